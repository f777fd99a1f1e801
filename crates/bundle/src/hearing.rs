//! `hearing.json`: how sounds become the input of a model that writes about them, whose rows stand among the embeddings of tokens.
//!
//! Like `speech.json` the record names no family. Unknown fields and kinds are refused, as in the other documents.

use crate::speech::{Checked, Edges, FrontEnd, MAX_SAMPLES, counts};
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
    /// How samples become frames: a spectrogram, whose frames are heard whose window ends before the last sample of the sound, or chunks of samples,
    /// the last of them filled up with zeros.
    pub front_end: FrontEnd,
    /// Most samples of a sound.
    pub most_samples: u32,
    /// The sound is filled up with zeros to a multiple of so many samples before.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub whole_samples: u32,
    /// Frames that the component `sound_encoder` takes together. Zeros follow those of the sound up to a multiple.
    pub block_frames: u32,
    /// Frames of a row; the last row may have fewer.
    pub row_frames: u32,
    /// Rows of every sound, where they are as many whatever its length: the component gives as many more than a sound has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_rows: Option<u32>,
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

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_one(n: &u32) -> bool {
    *n == 1
}

impl Hearing {
    /// So many samples with the zeros behind them.
    #[must_use]
    pub fn filled(&self, samples: usize) -> usize {
        samples.next_multiple_of(self.whole_samples.max(1) as usize)
    }

    /// Frames that are heard of so many samples.
    #[must_use]
    pub fn frames(&self, samples: usize) -> usize {
        let before = match &self.front_end {
            FrontEnd::LogMel(mel) if mel.edges == Edges::None => mel.window_samples,
            FrontEnd::LogMel(mel) => mel.window_samples / 2,
            _ => 0,
        };
        let each = self.frame_samples().max(1) as usize;
        self.filled(samples).saturating_sub(before as usize).div_ceil(each)
    }

    /// Samples from one frame to the next.
    #[must_use]
    pub fn frame_samples(&self) -> u32 {
        match &self.front_end {
            FrontEnd::LogMel(mel) => mel.hop_samples,
            FrontEnd::Chunks(chunks) => chunks.chunk_samples,
            FrontEnd::Samples(_) => 1,
        }
    }

    /// Samples a second.
    #[must_use]
    pub fn sample_rate_hz(&self) -> u32 {
        match &self.front_end {
            FrontEnd::LogMel(mel) => mel.sample_rate_hz,
            FrontEnd::Chunks(chunks) => chunks.sample_rate_hz,
            FrontEnd::Samples(samples) => samples.sample_rate_hz,
        }
    }

    /// Rows of so many samples; none where there is no frame.
    #[must_use]
    pub fn rows(&self, samples: usize) -> usize {
        let own = self.frames(samples).div_ceil(self.row_frames.max(1) as usize);
        match self.all_rows {
            Some(all) if own > 0 => all as usize,
            _ => own,
        }
    }

    fn check(&self) -> Checked {
        match &self.front_end {
            FrontEnd::LogMel(mel) => {
                mel.check()?;
            }
            FrontEnd::Chunks(chunks) if chunks.check()?.context_samples == 0 => {}
            FrontEnd::Chunks(_) => return Err("`front_end.context_samples` should be 0".to_owned()),
            FrontEnd::Samples(_) => return Err("`front_end.kind` should be `log_mel` or `chunks`".to_owned()),
        }
        counts(
            "hearing",
            [
                ("most_samples", self.most_samples, 1, MAX_SAMPLES),
                ("whole_samples", self.whole_samples, 1, MAX_SAMPLES),
                ("row_frames", self.row_frames, 1, 1 << 10),
                ("block_frames", self.block_frames, self.row_frames, 1 << 16),
                ("all_rows", self.all_rows.unwrap_or(1), 1, 1 << 16),
            ],
        )?;
        let own = self
            .frames(self.most_samples as usize)
            .div_ceil(self.row_frames as usize);
        if let Some(all) = self.all_rows.filter(|&all| own > all as usize) {
            return Err(format!(
                "`all_rows` should be at least {own}, as sounds have up to so many; found {all}"
            ));
        }
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
