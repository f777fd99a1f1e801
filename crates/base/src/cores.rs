//! Which cores are fast: phones and many boards have big and little ones, and a kernel whose parts are shared between both
//! is no faster than with the big ones alone, while it keeps all of them from other work.
//!
//! Linux and Android tell each core's capacity relative to the fastest (1024) in `cpu_capacity`, and where that is missing
//! its highest frequency in `cpufreq/cpuinfo_max_freq`. Elsewhere all cores count as fast: the scheduler of Apple's systems
//! and of Windows decides where threads run, and offers hints in place of masks.

use std::path::Path;

/// A core is fast where it has at least this share of the fastest one's capacity. Middle cores of three-cluster chips
/// (Cortex-A720 beside X4: about 0.8; A76 beside X1: about 0.6) are; little ones (A55, A520: 0.15 to 0.4) are not.
const FAST: f64 = 0.5;

/// The cores that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    /// Numbers of the fast ones, ascending; empty where the system does not number them.
    pub fast: Vec<usize>,
    /// How many there are, fast and slow.
    pub count: usize,
    /// How many threads the system grants, which a quota may make fewer than `count`.
    pub granted: usize,
}

impl Cores {
    /// Looks at this machine.
    #[must_use]
    pub fn detect() -> Self {
        let granted = std::thread::available_parallelism().map_or(1, usize::from);
        let allowed = allowed();
        let fast = fast(Path::new("/sys/devices/system/cpu"), &allowed);
        Cores {
            count: allowed.len().max(granted),
            fast,
            granted,
        }
    }

    /// Threads that compute fastest: one for each fast core, at most as many as the system grants.
    #[must_use]
    pub fn threads(&self) -> usize {
        match self.fast.len() {
            0 => self.granted,
            fast => fast.min(self.granted),
        }
        .max(1)
    }
}

/// Those of the `allowed` cores that are fast, by what the system says in `root`.
fn fast(root: &Path, allowed: &[usize]) -> Vec<usize> {
    let read = |core: usize, file: &str| -> Option<f64> {
        let text = std::fs::read_to_string(root.join(format!("cpu{core}")).join(file)).ok()?;
        text.trim().parse().ok().filter(|n: &f64| *n > 0.0)
    };
    for file in ["cpu_capacity", "cpufreq/cpuinfo_max_freq"] {
        let speeds: Option<Vec<f64>> = allowed.iter().map(|&core| read(core, file)).collect();
        let Some(speeds) = speeds else { continue };
        let most = speeds.iter().copied().fold(0.0, f64::max);
        let fast = allowed.iter().zip(&speeds).filter(|(_, speed)| **speed >= most * FAST);
        return fast.map(|(&core, _)| core).collect();
    }
    allowed.to_vec()
}

/// Cores this process may run on, ascending; empty where the system does not say.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn allowed() -> Vec<usize> {
    // SAFETY: a cpu_set_t is an array of integers, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the size is that of the set behind the pointer.
    let failed = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if failed != 0 {
        return Vec::new();
    }
    let most = usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
    // SAFETY: the numbers are below the size of the set.
    (0..most)
        .filter(|&core| unsafe { libc::CPU_ISSET(core, &set) })
        .collect()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn allowed() -> Vec<usize> {
    Vec::new()
}

/// Keeps the calling thread on `cores`. `false` where the system does not allow it or has no such call.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn pin(cores: &[usize]) -> bool {
    let most = usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
    if cores.is_empty() || cores.iter().any(|&core| core >= most) {
        return false;
    }
    // SAFETY: a cpu_set_t is an array of integers, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &core in cores {
        // SAFETY: the number is below the size of the set.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: the size is that of the set behind the pointer; 0 is the calling thread.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0 }
}

/// Keeps the calling thread on `cores`. `false` where the system does not allow it or has no such call.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn pin(_: &[usize]) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder like `/sys/devices/system/cpu` with a file of these values.
    fn machine(name: &str, file: &str, values: &[&str]) -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("cactus-cores-{}-{name}", std::process::id()));
        for (core, value) in values.iter().enumerate() {
            let path = root.join(format!("cpu{core}")).join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, value).unwrap();
        }
        root
    }

    #[test]
    fn fast_cores_are_those_near_the_fastest() {
        let cases: [(&str, &[&str], &[usize]); 4] = [
            ("cpu_capacity", &["160\n", "160", "498", "498", "1024", "1024"], &[4, 5]),
            ("cpu_capacity", &["870", "1024", "350", "870"], &[0, 1, 3]),
            (
                "cpufreq/cpuinfo_max_freq",
                &["1500000", "1500000", "2400000"],
                &[0, 1, 2],
            ),
            ("cpu_capacity", &["1024", "broken"], &[0, 1]),
        ];
        for (i, (file, values, expected)) in cases.iter().enumerate() {
            let root = machine(&i.to_string(), file, values);
            let all: Vec<usize> = (0..values.len()).collect();
            assert_eq!(fast(&root, &all), *expected, "{values:?}");
            // Cores that this process may not use do not count, not even as a measure.
            assert_eq!(fast(&root, &all[..1]), [0], "{values:?}");
            std::fs::remove_dir_all(root).unwrap();
        }
        assert_eq!(fast(Path::new("/nowhere"), &[0, 3]), [0, 3]);
    }

    #[test]
    fn threads_are_at_least_one_and_at_most_granted() {
        let cores = |fast: &[usize], granted| Cores {
            fast: fast.to_vec(),
            count: 8,
            granted,
        };
        assert_eq!(cores(&[4, 5, 6, 7], 8).threads(), 4);
        assert_eq!(cores(&[4, 5, 6, 7], 2).threads(), 2);
        assert_eq!(cores(&[], 3).threads(), 3);
        assert_eq!(cores(&[], 0).threads(), 1);
        assert!(Cores::detect().threads() >= 1);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pinned_thread_may_run_where_it_was_pinned_and_nowhere_else() {
        let all = allowed();
        let one = [all[all.len() - 1]];
        let seen = std::thread::spawn(move || pin(&one).then(allowed)).join().unwrap();
        assert_eq!(seen, Some(one.to_vec()));
        assert!(!pin(&[]) && !pin(&[usize::MAX]));
    }
}
