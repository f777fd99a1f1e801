//! Memory of this process, as the system counts it.

/// Memory of this process in bytes; a field is `None` where the system does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ProcessMemory {
    /// Resident pages now, mapped files included.
    pub resident: Option<u64>,
    /// Most resident pages so far.
    pub peak_resident: Option<u64>,
    /// Resident pages that belong to no file: what the system cannot drop.
    pub anonymous: Option<u64>,
}

impl ProcessMemory {
    /// Reads the counters. Only Linux and Android have them without native code.
    pub fn now() -> Self {
        let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
            return ProcessMemory::default();
        };
        let field = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name))?;
            let kib: u64 = line.trim_start_matches(':').split_whitespace().next()?.parse().ok()?;
            kib.checked_mul(1024)
        };
        ProcessMemory {
            resident: field("VmRSS"),
            peak_resident: field("VmHWM"),
            anonymous: field("RssAnon"),
        }
    }
}

/// Bytes of memory of this machine; `None` where the system does not tell. A module of WebAssembly has at most 4 GiB, and what it sets
/// aside is taken at once, so it counts as a small machine.
pub(crate) fn total_memory() -> Option<u64> {
    if cfg!(target_family = "wasm") {
        return Some(1 << 30);
    }
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_on_linux() {
        let m = ProcessMemory::now();
        assert!(m.resident.is_some_and(|n| n > 1 << 20));
        assert!(m.peak_resident >= m.resident);
        assert!(m.anonymous <= m.resident);
    }
}
