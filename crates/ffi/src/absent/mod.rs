//! What a build leaves out.
//!
//! Purpose: the one way in which features are absent. Header and symbols are the same for all builds, so a function whose feature is left
//! out fails with [`Code::NotInBuild`](crate::Code), and the message names the feature. `graphs`, `search` and `speech` list the functions
//! of their features with the types that they take. With the feature, the compiler compares the list with the functions; without it, the
//! list becomes functions that fail. The other modules stand in for those of their names: what they would load is refused, and there is
//! never anything of theirs to hold. What the feature `store` brings is asked for in one place, which `store` has itself. Forms are left out below, in the
//! crate `text`, whose refusal becomes the same code.

#![allow(dead_code, reason = "a build that leaves nothing out only compares")]

use crate::failure::Failure;
use crate::guard;
use crate::output::TextBuffer;
use std::ffi::{c_char, c_int, c_void};

/// One function of a feature; `;` is before and after the buffer that gets the reason of a failure, where there is one.
macro_rules! function {
    ($feature:literal, $name:ident, ($($before:ty),*; *mut c_char, usize; $($after:ty),*) -> $gives:ty) => {
        #[cfg(feature = $feature)]
        const _: unsafe extern "C" fn($($before,)* *mut c_char, usize $(, $after)*) -> $gives = crate::$name;

        #[cfg(not(feature = $feature))]
        #[doc = concat!("Not in this build, which leaves out the feature `", $feature, "`. Returns -1.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $(_: $before,)* buffer: *mut c_char, bytes: usize $(, _: $after)*
        ) -> $gives {
            // SAFETY: the header's contract of buffers.
            unsafe { $crate::absent::answered(buffer, bytes, stringify!($name), $feature) }
        }
    };
    ($feature:literal, $name:ident, ($($argument:ty),*) $(-> $gives:ty)?) => {
        #[cfg(feature = $feature)]
        const _: unsafe extern "C" fn($($argument),*) $(-> $gives)? = crate::$name;

        #[cfg(not(feature = $feature))]
        #[doc = concat!("Not in this build, which leaves out the feature `", $feature, "`.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($(_: $argument),*) $(-> $gives)? {
            $crate::absent::failed(stringify!($name), $feature)
        }
    };
}

/// The functions of a feature.
macro_rules! functions {
    ($feature:literal: $(fn $name:ident($($arguments:tt)*) $(-> $gives:ty)?;)*) => {
        $($crate::absent::function!($feature, $name, ($($arguments)*) $(-> $gives)?);)*

        #[cfg(test)]
        pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

use function;

#[cfg(not(feature = "search"))]
pub(crate) mod documents;
#[cfg(not(feature = "search"))]
pub(crate) mod embedder;
pub(crate) mod graphs;
#[cfg(not(feature = "speech"))]
pub(crate) mod hearer;
#[cfg(not(feature = "pictures"))]
pub(crate) mod pictures;
#[cfg(not(feature = "cloud"))]
pub(crate) mod policy;
pub(crate) mod search;
pub(crate) mod speech;

/// What a function gives that fails.
trait Failed {
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: c_int = -1;
}

impl Failed for *mut c_void {
    const FAILED: *mut c_void = std::ptr::null_mut();
}

impl Failed for () {
    const FAILED: () = ();
}

fn failed<T: Failed>(function: &str, feature: &str) -> T {
    guard::or(T::FAILED, || Err(left_out(function, feature)))
}

/// As [`failed`], with the reason in the caller's buffer, too.
///
/// # Safety
/// As [`TextBuffer::new`].
unsafe fn answered(buffer: *mut c_char, bytes: usize, function: &str, feature: &str) -> c_int {
    guard::count(|| {
        let failure = left_out(function, feature);
        // SAFETY: the caller's promise.
        if let Ok(buffer) = unsafe { TextBuffer::new(buffer, bytes, "response_buffer") } {
            // The failure matters more than whether its text fits.
            let _ = buffer.write(&crate::dropin::failed(&failure).to_string());
        }
        Err(failure)
    })
}

fn left_out(function: &str, feature: &str) -> Failure {
    Failure::left_out(&format!("`{function}`"), feature)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    /// Functions that the sources of a feature export.
    fn exported(sources: &[PathBuf]) -> BTreeSet<String> {
        let texts = sources.iter().map(|path| fs::read_to_string(path).unwrap());
        let names = |text: String| {
            let starts = text.split("pub unsafe extern \"C\" fn ").skip(1);
            starts
                .map(|rest| rest.split('(').next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        texts.flat_map(names).collect()
    }

    #[test]
    fn lists_have_every_function_of_their_features() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let dropin = |names: &[&str]| names.iter().map(|name| src.join("dropin").join(name)).collect();
        let graph = fs::read_dir(src.join("graph"))
            .unwrap()
            .map(|entry| entry.unwrap().path());
        for (names, sources) in [
            (graphs::NAMES, graph.filter(|path| path.is_file()).collect::<Vec<_>>()),
            (search::NAMES, dropin(&["embed.rs", "index.rs", "rag.rs"])),
            (speech::NAMES, dropin(&["hear.rs", "live.rs", "../heard.rs"])),
        ] {
            let listed: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert!(!listed.is_empty());
            assert_eq!(listed, exported(&sources));
        }
    }
}
