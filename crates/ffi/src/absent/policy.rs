//! Policies of models, in a build that leaves out the feature `cloud`: there are none.

use crate::failure::{Failure, Result};
#[cfg(feature = "speech")]
use crate::hearer::Reheard;
use crate::policy::For;
#[cfg(feature = "speech")]
use crate::underway::Stop;
#[cfg(feature = "speech")]
use cactus_speech::Transcript;
use serde_json::{Map, Value};

/// There is none in this build.
#[derive(Debug)]
pub(crate) enum Policy {}

impl Policy {
    pub(crate) fn new(_about: For<'_>, _text: Option<&str>, _options: &Map<String, Value>) -> Result<Policy> {
        Err(Failure::left_out("handing requests off", "cloud"))
    }
}

#[cfg(feature = "speech")]
impl Policy {
    pub(crate) fn hears(&self, _options: &Map<String, Value>) -> Result<bool> {
        match *self {}
    }

    pub(crate) fn hear_again(
        &self,
        _stop: &Stop,
        _sound: (&[f32], u32),
        _transcript: &Transcript,
        _hints: &str,
    ) -> Result<Reheard> {
        match *self {}
    }
}
