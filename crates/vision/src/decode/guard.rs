//! Panics of the libraries below, as errors.
//!
//! The decoders are meant to return errors for damaged files and mostly do. A panic that damage still finds must not leave this crate.

use crate::{Error, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `read` gives, or [`ErrorKind::Damaged`] where it panics. What it worked on must not be used again then.
pub(super) fn guarded<T>(part: &str, read: impl FnOnce() -> T) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(read)).map_err(|_| {
        Error::new(
            ErrorKind::Damaged,
            format!("the file is damaged in a way that its decoder cannot handle (in the {part})"),
        )
    })
}
