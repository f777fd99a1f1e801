//! From a name to a bundle, with progress.

use crate::{TICK, errors, live};
use cactus_passes::Bits;
use cactus_store::{Step, Wanted, Watcher};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

enum Message {
    /// Stage, what, done, total.
    Step(&'static str, String, u64, u64),
    End(cactus_store::Result<PathBuf>),
}

/// Sends what happens to the thread that asked, which alone enters the interpreter.
struct Sending {
    to: Sender<Message>,
    cancelled: Arc<AtomicBool>,
}

impl Watcher for Sending {
    fn step(&self, step: Step<'_>) {
        step.tell(&mut |stage, what, done, total| {
            // Nobody listens any more after an interrupt.
            let _ = self.to.send(Message::Step(stage, what.to_owned(), done, total));
        });
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// What is known of a bundle, as JSON, and what is wrong with it, if anything.
#[pyfunction]
pub(crate) fn check_bundle(py: Python<'_>, path: PathBuf, verify: bool) -> PyResult<(String, Option<PyErr>)> {
    live::check(py)?;
    let (report, checked) = live::outside(py, || cactus_engine::check_bundle(&path, verify));
    let wrong = checked.err().map(|e| errors::of_engine(py, &e));
    Ok((serde_json::Value::Object(report).to_string(), wrong))
}

/// The folder of a bundle of the model `name`, fetched and converted into the cache where need be. `progress` is called with
/// stage, what, done and total. An interrupt stops a download or a conversion. A path that is not UTF-8 has to be that of a bundle.
#[pyfunction]
#[pyo3(signature = (name, *, bits, calibrate, reconvert, token, offline, progress))]
#[allow(clippy::too_many_arguments, reason = "they are keywords")]
pub(crate) fn prepare(
    py: Python<'_>,
    name: OsString,
    bits: u32,
    calibrate: bool,
    reconvert: bool,
    token: Option<String>,
    offline: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<PathBuf> {
    live::check(py)?;
    let Some(bits) = Bits::from_number(bits) else {
        let message = format!("`bits`: found {bits}, expected 1, 2, 3, 4, 5, 6, 8, 16 or 32");
        return Err(errors::raise(py, "InvalidRequestError", &message, &[]));
    };
    let name = match name.into_string() {
        Ok(name) => name,
        Err(path) if cactus_bundle::Bundle::is_bundle(path.as_ref()) => return Ok(path.into()),
        Err(path) => {
            let message = format!(
                "`model`: {} is no bundle, and a model is converted from a path of UTF-8 alone; rename it, or convert it first",
                path.display()
            );
            return Err(errors::raise(py, "InvalidRequestError", &message, &[]));
        }
    };
    let wanted = Wanted {
        bits,
        calibrate,
        reconvert,
    };
    let (to, mut receiver) = channel();
    let cancelled = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&cancelled);
    let spawned = std::thread::Builder::new()
        .name("cactus-store".to_owned())
        .spawn(move || {
            let watcher: Rc<dyn Watcher> = Rc::new(Sending {
                to: to.clone(),
                cancelled: theirs,
            });
            let made = cactus_store::hub(token, offline, None)
                .and_then(|hub| cactus_store::bundle(&hub, &name, &wanted, &watcher));
            let _ = to.send(Message::End(made));
        });
    if let Err(e) = spawned {
        let message = format!("a thread cannot be started: {e}");
        return Err(errors::raise(py, "CactusError", &message, &[]));
    }
    let interrupted = |e: PyErr| {
        cancelled.store(true, Ordering::Relaxed);
        e
    };
    loop {
        let waiting = &mut receiver;
        match live::outside(py, move || waiting.recv_timeout(TICK)) {
            Ok(Message::Step(stage, what, done, total)) => {
                if let Some(progress) = &progress {
                    progress.call1(py, (stage, what, done, total)).map_err(interrupted)?;
                }
            }
            Ok(Message::End(Ok(path))) => return Ok(path),
            Ok(Message::End(Err(e))) => return Err(errors::of_store(py, &e)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(errors::raise(py, "ConversionError", "the conversion has failed", &[]));
            }
        }
        py.check_signals().map_err(interrupted)?;
    }
}
