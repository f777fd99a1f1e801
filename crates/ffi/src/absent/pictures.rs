//! Pictures, films and sounds in messages, in a build that leaves out the feature `pictures`: messages that hold some are refused.

use crate::failure::{Failure, Result};
use cactus_engine::Model;
use cactus_engine::chat::media_of_part;
use serde_json::Value;

/// Gives a model nothing.
///
/// # Errors
/// None.
#[allow(clippy::unnecessary_wraps, reason = "a build with pictures reads the bundle")]
pub(crate) fn attach(_model: &Model) -> Result<()> {
    Ok(())
}

/// Whether this build can show what messages hold.
///
/// # Errors
/// For messages that hold anything but text.
pub(crate) fn check(messages: &[Value]) -> Result<()> {
    let parts = messages.iter().filter_map(|message| message["content"].as_array());
    let mut parts = parts.flatten().filter_map(Value::as_object);
    match parts.any(|part| !matches!(media_of_part(part), Ok(None))) {
        true => Err(left_out()),
        false => Ok(()),
    }
}

/// # Errors
/// Always.
pub(crate) fn picture_part(_path: &str, _name: &str) -> Result<Value> {
    Err(left_out())
}

/// # Errors
/// Always.
pub(crate) fn sound_part(_path: &str, _name: &str) -> Result<Value> {
    Err(left_out())
}

fn left_out() -> Failure {
    Failure::left_out(
        "what shows pictures, films and sounds of messages to a model",
        "pictures",
    )
}
