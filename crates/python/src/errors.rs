//! Errors of the engine as exceptions: the classes are in `cactus.errors`, by what a program can do about them.

use cactus_engine::ErrorKind as EngineKind;
use cactus_hub::ErrorKind as HubKind;
use cactus_protocol::{ApiError, Kind};
use cactus_store::ErrorKind as StoreKind;
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;

/// What an exception carries beside its message.
#[derive(Clone, Debug)]
pub(crate) enum Detail {
    /// Text.
    Text(String),
    /// Seconds.
    Seconds(f64),
    /// Texts.
    Texts(Vec<String>),
}

/// The exception of the class `cactus.errors.CLASS`.
pub(crate) fn raise(py: Python<'_>, class: &str, message: &str, details: &[(&str, Detail)]) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let value = py.import("cactus.errors")?.getattr(class)?.call1((message,))?;
        for (name, detail) in details {
            let detail = match detail {
                Detail::Text(text) => text.into_bound_py_any(py)?,
                Detail::Seconds(seconds) => seconds.into_bound_py_any(py)?,
                Detail::Texts(texts) => texts.into_bound_py_any(py)?,
            };
            value.setattr(*name, detail)?;
        }
        Ok(PyErr::from_value(value))
    };
    made().unwrap_or_else(|e| e)
}

/// What is wrong with a request, or went wrong with an answer.
pub(crate) fn of_api(py: Python<'_>, error: &ApiError) -> PyErr {
    let class = match (error.kind, error.code) {
        (_, Some("context_length_exceeded")) => "ContextFullError",
        (Kind::Invalid, _) => "InvalidRequestError",
        (Kind::Busy, _) => "BusyError",
        _ => "CactusError",
    };
    let mut details = Vec::new();
    if let Some(param) = &error.param {
        details.push(("param", Detail::Text(param.clone())));
    }
    if let Some(after) = error.retry_after {
        details.push(("retry_after", Detail::Seconds(after.as_secs_f64())));
    }
    raise(py, class, &error.message, &details)
}

/// What the engine refused.
pub(crate) fn of_engine(py: Python<'_>, error: &cactus_engine::Error) -> PyErr {
    let class = match error.kind() {
        EngineKind::Bundle => "BundleError",
        EngineKind::Unsupported => "UnsupportedError",
        EngineKind::Text | EngineKind::Argument => "InvalidRequestError",
        EngineKind::ContextFull => "ContextFullError",
        EngineKind::Busy => "BusyError",
        EngineKind::Saved => "SavedSessionError",
        EngineKind::Memory => "OutOfMemoryError",
        _ => "CactusError",
    };
    raise(py, class, &error.to_string(), &[])
}

/// Why a bundle cannot be run as a function.
pub(crate) fn of_runtime(py: Python<'_>, error: &cactus_runtime::Error) -> PyErr {
    let class = match error.kind() {
        cactus_runtime::ErrorKind::Bundle => "BundleError",
        cactus_runtime::ErrorKind::Argument => "InvalidRequestError",
        cactus_runtime::ErrorKind::Memory => "OutOfMemoryError",
        _ => "UnsupportedError",
    };
    raise(py, class, &error.to_string(), &[])
}

/// Why there is no bundle.
pub(crate) fn of_store(py: Python<'_>, error: &cactus_store::Error) -> PyErr {
    let mut details = Vec::new();
    if let cactus_store::Error::Hub(e) = error
        && !e.suggestions().is_empty()
    {
        let names = e.suggestions().iter().map(ToString::to_string);
        details.push(("suggestions", Detail::Texts(names.collect())));
    }
    let class = match error.kind() {
        StoreKind::Hub(HubKind::NotFound | HubKind::InvalidName) => "ModelNotFoundError",
        StoreKind::Hub(HubKind::Unsupported) | StoreKind::WeightsOnly => "UnsupportedError",
        StoreKind::Hub(HubKind::Io | HubKind::NoSpace) | StoreKind::Io => "StorageError",
        StoreKind::Hub(_) => "DownloadError",
        StoreKind::Quality(_) => "ConversionError",
        _ => "CactusError",
    };
    raise(py, class, &error.to_string(), &details)
}
