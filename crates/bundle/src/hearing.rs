//! `hearing.json`: how sounds become the input of a model that writes about them, whose rows stand among the embeddings of tokens.
//!
//! Like `speech.json` the record names no family. Unknown fields and kinds are refused, as in the other documents.

use crate::speech::{Checked, LogMel, MAX_SAMPLES, counts};
use crate::{Bundle, Error, ErrorKind, HEARING_PATH, Result};
use serde::{Deserialize, Serialize};

/// Version of `hearing.json` that this crate writes, and the only one it reads.
pub const HEARING_VERSION: u32 = 1;

/// `hearing.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hearing {
    /// Version of this document.
    pub version: u32,
    /// How samples become frames. Those frames are heard whose window ends before the last sample of the sound.
    pub front_end: LogMel,
    /// Most samples of a sound.
    pub most_samples: u32,
    /// Frames that the component `sound_encoder` takes together. Zeros follow those of the sound up to a multiple.
    pub block_frames: u32,
    /// Frames of a row; the last row may have fewer.
    pub row_frames: u32,
    /// What stands in a prompt for a sound.
    pub marks: SoundMarks,
}

/// What stands in a prompt for a sound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoundMarks {
    /// A token that is replaced by a row, which is also what a chat template writes for a sound.
    pub token: String,
    /// Before the rows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub start: String,
    /// Behind them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub end: String,
}

impl Hearing {
    /// Frames that are heard of so many samples.
    #[must_use]
    pub fn frames(&self, samples: usize) -> usize {
        let (half, hop) = (
            self.front_end.window_samples as usize / 2,
            self.front_end.hop_samples as usize,
        );
        samples.saturating_sub(half).div_ceil(hop.max(1))
    }

    /// Rows of so many samples.
    #[must_use]
    pub fn rows(&self, samples: usize) -> usize {
        self.frames(samples).div_ceil(self.row_frames.max(1) as usize)
    }

    fn check(&self) -> Checked {
        self.front_end.check()?;
        counts(
            "hearing",
            [
                ("most_samples", self.most_samples, 1, MAX_SAMPLES),
                ("row_frames", self.row_frames, 1, 1 << 10),
                ("block_frames", self.block_frames, self.row_frames, 1 << 16),
            ],
        )?;
        if !self.block_frames.is_multiple_of(self.row_frames) {
            return Err(format!(
                "`block_frames` should be a multiple of `row_frames`, {}; found {}",
                self.row_frames, self.block_frames
            ));
        }
        if self.marks.token.is_empty() {
            return Err("`marks.token` is empty; expected the token that rows replace".into());
        }
        Ok(())
    }
}

impl Bundle {
    /// How the model hears sounds that it writes about; `None` where it does not.
    ///
    /// # Errors
    /// Where the record is damaged, of another version, or says what cannot be.
    pub fn hearing(&self) -> Result<Option<Hearing>> {
        if !self.has_file(HEARING_PATH) {
            return Ok(None);
        }
        self.check_version(HEARING_PATH, HEARING_VERSION)?;
        let hearing: Hearing = self.listed(HEARING_PATH)?;
        match hearing.check() {
            Ok(()) => Ok(Some(hearing)),
            Err(what) => Err(Error::new(ErrorKind::Invalid, self.root().join(HEARING_PATH), what)),
        }
    }
}
