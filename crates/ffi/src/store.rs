//! From what a program names to the folder of a bundle on this machine.
//!
//! Purpose: the one place that knows whether this build has the store. With the feature `store` a name goes the way that the command
//! line and Python take, too, so each finds what another has made. Without it there is no network code and no converter below this
//! crate, and a name gets an error that says so. It deliberately loads nothing.

use crate::failure::Result;
use crate::load::Progress;
use cactus_engine::Bundle;
use std::fmt;
use std::path::{Path, PathBuf};

/// How a bundle is got where there is none.
#[cfg_attr(not(feature = "store"), allow(dead_code, reason = "there is nothing to get"))]
pub(crate) struct How {
    /// Bits for each weight.
    pub(crate) bits: u32,
    /// Whether weights below 8 bits are calibrated.
    pub(crate) calibrate: bool,
    /// Whether one in the cache is made again.
    pub(crate) reconvert: bool,
    /// Whether the network is left alone.
    pub(crate) offline: bool,
    /// For the Hugging Face hub.
    pub(crate) token: Option<String>,
    /// Folder of the cache; where the user has it if absent.
    pub(crate) cache: Option<PathBuf>,
}

impl fmt::Debug for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the token.
        f.debug_struct("How").field("bits", &self.bits).finish_non_exhaustive()
    }
}

/// The folder of a bundle of the model `name`.
///
/// # Errors
/// Why there is none; [`crate::Code::Cancelled`] where `progress` stopped it.
pub(crate) fn bundle(name: &str, how: How, progress: Progress) -> Result<PathBuf> {
    match Path::new(name) {
        path if Bundle::is_bundle(path) => Ok(path.to_owned()),
        _ => found(name, how, progress),
    }
}

#[cfg(not(feature = "store"))]
fn found(name: &str, _how: How, _progress: Progress) -> Result<PathBuf> {
    use crate::failure::Failure;
    let what = format!("`{name}` is not the folder of a bundle; to find, download and convert other models");
    Err(Failure::left_out(&what, "store"))
}

#[cfg(feature = "store")]
use with_store::found;

#[cfg(feature = "store")]
mod with_store {
    use super::How;
    use crate::failure::{Code, Failure, Result};
    use crate::load::Progress;
    use cactus_hub::ErrorKind as HubKind;
    use cactus_passes::Bits;
    use cactus_store::{Error, ErrorKind, Step, Wanted, Watcher};
    use std::cell::Cell;
    use std::path::PathBuf;
    use std::rc::Rc;

    /// Hands steps to the caller's function, and remembers that it wants to stop.
    struct Telling {
        progress: Progress,
        stopped: Cell<bool>,
    }

    impl Watcher for Telling {
        fn step(&self, step: Step<'_>) {
            step.tell(&mut |stage, what, done, total| {
                // Who has said to stop is not asked again.
                if !self.stopped.get() && self.progress.tell(stage, what, done, total).is_err() {
                    self.stopped.set(true);
                }
            });
        }

        fn is_cancelled(&self) -> bool {
            self.stopped.get()
        }
    }

    pub(super) fn found(name: &str, how: How, progress: Progress) -> Result<PathBuf> {
        let wrong = || Failure::argument(format!("there are no weights of {} bits", how.bits));
        let wanted = Wanted {
            bits: Bits::from_number(how.bits).ok_or_else(wrong)?,
            calibrate: how.calibrate,
            reconvert: how.reconvert,
        };
        let telling = Rc::new(Telling {
            progress,
            stopped: Cell::new(false),
        });
        let watcher: Rc<dyn Watcher> = telling.clone();
        let hub = cactus_store::hub(how.token, how.offline, how.cache)?;
        let path = cactus_store::bundle(&hub, name, &wanted, &watcher)?;
        match telling.stopped.get() {
            // The last step was stopped at: there is a bundle, but nobody wants it now.
            true => Err(Failure::new(Code::Cancelled, "loading was stopped")),
            false => Ok(path),
        }
    }

    impl From<Error> for Failure {
        fn from(error: Error) -> Failure {
            let code = match error.kind() {
                ErrorKind::Cancelled => Code::Cancelled,
                ErrorKind::Hub(HubKind::NotFound | HubKind::InvalidName) => Code::NotFound,
                ErrorKind::Hub(HubKind::Offline) => Code::Offline,
                ErrorKind::Hub(HubKind::Unauthorized) => Code::Unauthorized,
                ErrorKind::Hub(HubKind::Busy) => Code::Busy,
                ErrorKind::Hub(HubKind::Io | HubKind::NoSpace) | ErrorKind::Io => Code::System,
                ErrorKind::Hub(HubKind::Unsupported) | ErrorKind::WeightsOnly => Code::Unsupported,
                ErrorKind::Hub(_) | ErrorKind::Quality(_) => Code::Fetch,
                _ => Code::Internal,
            };
            let mut message = error.to_string();
            if let Error::Hub(e) = &error
                && !e.suggestions().is_empty()
            {
                message.push_str("; names like it: ");
                message.push_str(&e.suggestions().join(", "));
            }
            Failure::new(code, message)
        }
    }
}
