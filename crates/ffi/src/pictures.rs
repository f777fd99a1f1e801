//! Pictures, films and sounds in messages, and the files that they come from.

use crate::failure::{Failure, Result};
use cactus_engine::Model;
use cactus_engine::chat::{MAX_FILE_BYTES, to_base64};
use cactus_multimodal::Limits;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read as _;

/// Gives a model what it sees and hears with.
///
/// # Errors
/// A bundle that is damaged.
pub(crate) fn attach(model: &Model) -> Result<()> {
    Ok(cactus_multimodal::attach(model).map_err(cactus_engine::Error::from)?)
}

/// Whether this build can show what messages hold: it can.
///
/// # Errors
/// None.
#[allow(clippy::unnecessary_wraps, reason = "a build without pictures refuses some")]
pub(crate) fn check(_messages: &[Value]) -> Result<()> {
    Ok(())
}

/// The part of a message that is the picture in a file.
///
/// # Errors
/// As [`picture_file`].
pub(crate) fn picture_part(path: &str, name: &str) -> Result<Value> {
    Ok(json!({"type": "image", "data": to_base64(&picture_file(path, name)?)}))
}

/// The part of a message that is the sound in a file.
///
/// # Errors
/// A file that cannot be read, or has more bytes than a sound may have.
pub(crate) fn sound_part(path: &str, name: &str) -> Result<Value> {
    let bytes = file(path, name, MAX_FILE_BYTES, "cut the sound shorter")?;
    Ok(json!({"type": "audio", "data": to_base64(&bytes)}))
}

/// The bytes of a file that may be a picture; no more are read than one may have.
///
/// # Errors
/// A file that cannot be read, or has more.
pub(crate) fn picture_file(path: &str, name: &str) -> Result<Vec<u8>> {
    file(path, name, Limits::default().max_bytes, "save the picture smaller")
}

fn file(path: &str, name: &str, most: usize, remedy: &str) -> Result<Vec<u8>> {
    let cannot = |why: String| Failure::argument(format!("`{name}`: cannot read `{path}`: {why}"));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| cannot(e.to_string()))?;
    let mut file = file.take(most as u64 + 1);
    file.read_to_end(&mut bytes).map_err(|e| cannot(e.to_string()))?;
    match bytes.len() <= most {
        true => Ok(bytes),
        false => Err(cannot(format!("it has more than {most} bytes; {remedy}"))),
    }
}
