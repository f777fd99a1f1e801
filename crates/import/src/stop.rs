//! Stopping a conversion from outside.

use crate::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asks a conversion to stop, from any thread. It ends with [`ErrorKind::Stopped`] after the tensors under way, or the window of
/// text under way, and leaves the destination as it was.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks to stop, for good.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Asked between the parts of a conversion.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`] where somebody has asked to stop.
    pub fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Stopped, "the conversion was stopped")),
            false => Ok(()),
        }
    }
}
