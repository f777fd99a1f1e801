//! `speech.json`: what turns sound into a model's input, and its output into text or times of speech, where a model hears.
//!
//! The record is declarative and names no family: a program that knows the kinds below can drive any model that has one.
//! Unknown fields and kinds are refused, as in the other documents.

use crate::{Bundle, Error, ErrorKind, Result, SPEECH_PATH};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of `speech.json` that this crate writes, and the only one it reads.
pub const SPEECH_VERSION: u32 = 1;

/// `speech.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speech {
    /// Version of this document.
    pub version: u32,
    /// How samples become the input of the component `encoder`, or `detector` of a model that finds speech.
    pub front_end: FrontEnd,
    /// The stretch of sound that the model was made for; absent where it takes any length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// How much sound the model hears at once, where it takes any length but its memory does not. A `log_mel` front end has this or
    /// `window`; the others have neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pieces: Option<Pieces>,
    /// How longer sound than a piece is heard as a whole, where the bundle has what is needed for it: the components
    /// `local_distances`, `local_input`, `local_layer_0` and so on, and `local_output`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<Local>,
    /// How sound that goes on is heard block after block, where the bundle has the component `streaming_encoder`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streaming: Option<Streaming>,
    /// How the output becomes text, or what else it is.
    pub decoding: Decoding,
}

/// How samples become an input. Samples are mono, from -1 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum FrontEnd {
    /// The logarithm of the power in bands of the mel scale.
    LogMel(LogMel),
    /// The samples themselves, some at a time.
    Chunks(Chunks),
    /// The samples themselves, all at once: `[1, samples]`.
    Samples(Samples),
}

/// Samples in chunks, each with the end of the one before in front: `[chunks, context_samples + chunk_samples]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chunks {
    /// Samples a second.
    pub sample_rate_hz: u32,
    /// New samples of each chunk.
    pub chunk_samples: u32,
    /// Samples before them, which are zeros at the beginning.
    pub context_samples: u32,
}

/// A piece of sound as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Samples {
    /// Samples a second.
    pub sample_rate_hz: u32,
    /// Fewest samples; shorter sound is filled up with zeros.
    pub least_samples: u32,
    /// Most samples; longer sound is cut into pieces where it is quiet.
    pub most_samples: u32,
    /// Samples from one position of the encoder to the next; without it nobody can say when a word is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position_samples: Option<u32>,
}

/// A log-mel spectrogram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogMel {
    /// Samples a second.
    pub sample_rate_hz: u32,
    /// Window of each frame.
    pub window: WindowFunction,
    /// Samples under the window, which lies in the middle of the transform.
    pub window_samples: u32,
    /// Samples of the Fourier transform.
    pub fft_samples: u32,
    /// Samples from one frame to the next.
    pub hop_samples: u32,
    /// What the half transform before the first sample and after the last is filled with, where windows reach there.
    pub edges: Edges,
    /// Whether the frame centered behind the last sample is left out.
    pub drop_last_frame: bool,
    /// Factor of the sample before that is taken from each sample; 0 for none.
    pub preemphasis: f32,
    /// What is emphasized at once.
    #[serde(default, skip_serializing_if = "Emphasis::is_of_sound")]
    pub emphasis: Emphasis,
    /// What of the transform the bands add up.
    #[serde(default, skip_serializing_if = "Spectrum::is_power")]
    pub spectrum: Spectrum,
    /// Bands.
    pub mels: u32,
    /// Mel scale and norm of the bands.
    pub mel_scale: MelScale,
    /// Lower end of the lowest band.
    pub min_hz: f32,
    /// Upper end of the highest band.
    pub max_hz: f32,
    /// The logarithm.
    pub log: Logarithm,
    /// What is done with the logarithms.
    pub normalization: Normalization,
}

/// A window function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WindowFunction {
    /// `sin²(pi i / n)`.
    HannPeriodic,
    /// `sin²(pi i / (n - 1))`.
    HannSymmetric,
}

/// What lies beyond the sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Edges {
    /// The sound mirrored, without the sample at the end itself.
    Reflect,
    /// Zeros.
    Zeros,
    /// Nothing: the first window begins with the first sample, and the last ends before the last sample.
    None,
}

/// What is emphasized at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Emphasis {
    /// The whole sound, which zeros are before.
    #[default]
    Sound,
    /// Each window alone, before which the sample is as large as its first.
    Window,
}

impl Emphasis {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    fn is_of_sound(&self) -> bool {
        *self == Emphasis::Sound
    }
}

/// What is taken of a Fourier transform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Spectrum {
    /// The square of the absolute value.
    #[default]
    Power,
    /// The absolute value.
    Magnitude,
}

impl Spectrum {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    fn is_power(&self) -> bool {
        *self == Spectrum::Power
    }
}

/// How bands divide the frequencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MelScale {
    /// Slaney's scale, linear below 1 kHz, and bands of equal area.
    Slaney,
    /// HTK's scale, `2595 log10(1 + f / 700)`, and bands of equal height.
    Htk,
}

/// The logarithm of a power.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Logarithm {
    /// `log10(max(x, floor))`.
    Log10Floor {
        /// The least power.
        floor: f32,
    },
    /// `ln(x + guard)`.
    LnGuard {
        /// What is added to each power.
        guard: f32,
    },
    /// `ln(max(x, floor))`.
    LnFloor {
        /// The least power.
        floor: f32,
    },
}

/// What is done with the logarithms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Normalization {
    /// Nothing.
    None {},
    /// `(max(x, largest - range) + add) / divide`, where `largest` is that of all bands and frames.
    BelowLargest {
        /// How far below the largest.
        range: f32,
        /// Added.
        add: f32,
        /// Divided by.
        divide: f32,
    },
    /// `(x - mean) / (deviation + epsilon)` for each band over the frames with sound, with `n - 1` in the deviation.
    EachBand {
        /// Added to the deviation.
        epsilon: f32,
    },
}

/// A fixed stretch of sound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Samples; shorter sound is filled up with zeros.
    pub samples: u64,
    /// Frames of the front end that it becomes.
    pub frames: u32,
    /// Positions that the encoder makes of them.
    pub positions: u32,
}

/// Pieces of a recording, each heard alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pieces {
    /// Fewest samples; shorter sound is filled up with zeros.
    pub least_samples: u32,
    /// Most samples; longer sound is cut into pieces where it is quiet.
    pub most_samples: u32,
}

/// An encoder whose attention sees some positions on each side, as many as are computed at once. Everything is `f32`; `first` and `count`,
/// `i64[1]`, say where the first row stands and how many frames or positions the sound has.
///
/// - `local_distances` takes nothing and gives `distances_0` and so on, `[2 * context + 1, width]`, one for each layer.
/// - `local_input` makes of `features` `[1, frames, mels]`, `first` and `count` the `next_states` `[1, context, width]`.
/// - `local_layer_0` and so on make of `states`, like them, their `distances`, `memory` `[1, rows, width]`, `first` and `count` the
///   `next_states` of positions `late` before, and the `next_memory`. The first memory is zeros.
/// - `local_output` makes of `states` what `encoder` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Local {
    /// Positions that are seen on each side.
    pub context: u32,
    /// Layers.
    pub layers: u32,
    /// Positions by which what a layer gives lies before what it takes.
    pub late: u32,
    /// Frames on each side of those that become positions.
    pub edge_frames: u32,
}

/// An encoder for sound that goes on. The component `streaming_encoder` takes what `encoder` takes, `[1, block_samples]`, with `memory`
/// `f32[1, rows, width]`, zeros at the beginning, and `first` and `count`, `i64[1]`: where the first position of the block stands, and how
/// many positions the sound has, or any larger number as long as it goes on. It gives what `encoder` gives of as many positions, from `first - late`
/// on, and the `next_memory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streaming {
    /// Samples of a block.
    pub block_samples: u32,
    /// Positions by which what is given lies before what is taken.
    pub late: u32,
    /// Samples that a position needs of those that are its own.
    pub position_least: u32,
}

/// How the output of a model becomes text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Decoding {
    /// The component `decoder` writes token after token, and a prompt of special tokens says what.
    Prompted(Prompted),
    /// The component `encoder` gives a token for every position at once.
    Ctc(Ctc),
    /// The component `encoder` gives a state for every position, `predictor` one for the text so far, and `joint` the next token of both.
    Transducer(Transducer),
    /// There is no text: the component `detector` makes of `samples` and `state` the `probabilities` that somebody speaks, one for
    /// each chunk, and the `next_state`. The first state is zeros.
    Activity {},
}

/// A model that gives a token for every position: connectionist temporal classification. The encoder's output is `logits`
/// `[1, positions, vocabulary]`. Equal tokens one after the other are one, and blanks are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ctc {
    /// Stands for no token.
    pub blank: u32,
    /// Samples from one position to the next.
    pub position_samples: u32,
}

/// A model that walks over the positions and writes what it hears at each: a transducer, with durations or without.
///
/// - `encoder` gives `states` `[1, positions, width]`.
/// - `predictor` makes of `token` `i64[1]` and `state` `f32[2 * layers, 1, hidden]` the `prediction` `f32[1, width]` and the `next_state`.
///   The first token is `blank`, with a state of zeros; a blank that is read off later leaves both as they are.
/// - `joint` makes of `states` `f32[rows, width]` and `prediction` the `logits` `f32[rows, vocabulary + durations]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transducer {
    /// Stands for no token.
    pub blank: u32,
    /// Positions that a token may move on, in ascending order, each with a logit behind those of the vocabulary. With none, a blank
    /// moves one on, and a token moves none.
    #[serde(default)]
    pub durations: Vec<u32>,
    /// Most tokens of one position, after which it moves on in any case.
    pub most_symbols: u32,
    /// Samples from one position to the next.
    pub position_samples: u32,
}

/// Token ids of a decoder that is told by its prompt what to write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prompted {
    /// Begins a transcript.
    pub start: u32,
    /// Ends one.
    pub end: u32,
    /// Begins text from before, which stands in front of `start`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<u32>,
    /// Its probability after `start` is that of no speech.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_speech: Option<u32>,
    /// Follows the task where no timestamps are wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_timestamps: Option<u32>,
    /// Task: write what is said. Absent, with `languages` empty, in a model of one language, whose prompt has neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcribe: Option<u32>,
    /// Task: translate into English.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translate: Option<u32>,
    /// By code, such as `de`.
    #[serde(default)]
    pub languages: BTreeMap<String, u32>,
    /// Tokens that stand for times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamps: Option<Timestamps>,
    /// Never written, in ascending order.
    #[serde(default)]
    pub suppressed: Vec<u32>,
    /// Never written first, in ascending order.
    #[serde(default)]
    pub suppressed_first: Vec<u32>,
    /// Most tokens for a second of sound, where the model needs a limit: it writes without end of what it does not understand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<f32>,
    /// Heads of cross attention that follow the sound: layer and head, each from 0.
    #[serde(default)]
    pub alignment_heads: Vec<[u32; 2]>,
}

/// Tokens that stand for times, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timestamps {
    /// Stands for the beginning of the window.
    pub first: u32,
    /// How many there are.
    pub count: u32,
    /// Milliseconds from one to the next.
    pub step_ms: u32,
}

impl Bundle {
    /// What the model needs to hear; `None` where it does not.
    ///
    /// # Errors
    /// Where the record is damaged, of another version, or says what cannot be: a token beyond the vocabulary, a front end
    /// without bands or samples.
    pub fn speech(&self) -> Result<Option<Speech>> {
        if !self.has_file(SPEECH_PATH) {
            return Ok(None);
        }
        self.check_version(SPEECH_PATH, SPEECH_VERSION)?;
        let speech: Speech = self.listed(SPEECH_PATH)?;
        match speech.check(self.manifest().vocab_size) {
            Ok(()) => Ok(Some(speech)),
            Err(what) => Err(Error::new(ErrorKind::Invalid, self.root().join(SPEECH_PATH), what)),
        }
    }

    /// Whether a document has the version that this program reads. It is read first and alone: a newer document may have fields that this
    /// program does not know.
    pub(crate) fn check_version(&self, document: &str, version: u32) -> Result<()> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let head: Head = self.listed(document)?;
        if head.version == version {
            return Ok(());
        }
        let what = format!("has version {}, this program reads version {version}", head.version);
        Err(Error::new(ErrorKind::Version, self.root().join(document), what))
    }
}

/// What cannot be, in words.
pub(crate) type Checked<T = ()> = std::result::Result<T, String>;

/// Most samples of a transform, and of a second.
pub(crate) const MAX_SAMPLES: u32 = 1 << 20;
/// Most bands.
const MAX_MELS: u32 = 1 << 12;

impl Speech {
    /// Checks what a reader would otherwise rely on.
    ///
    /// # Errors
    /// What cannot be, in words.
    pub fn check(&self, vocab_size: usize) -> std::result::Result<(), String> {
        let (hop, extent) = match &self.front_end {
            FrontEnd::LogMel(m) if m.edges == Edges::None => {
                return Err("`front_end.edges` should be `reflect` or `zeros`".to_owned());
            }
            FrontEnd::LogMel(m) => (m.check()?.hop_samples, "one of `window` and `pieces`"),
            FrontEnd::Chunks(c) => (c.check()?.chunk_samples, "no `window` and no `pieces`"),
            FrontEnd::Samples(s) => (s.check().map(|()| 1)?, "no `window` and no `pieces`"),
        };
        let extents = usize::from(self.window.is_some()) + usize::from(self.pieces.is_some());
        if extents != usize::from(matches!(self.front_end, FrontEnd::LogMel(_))) {
            return Err(format!(
                "beside this `front_end` there should be {extent}, found {extents} of them"
            ));
        }
        if let Some(pieces) = &self.pieces {
            pieces.check()?;
        }
        if let Some(local) = &self.local {
            local.check()?;
            let framewise = matches!(self.decoding, Decoding::Ctc(_) | Decoding::Transducer(_));
            if self.pieces.is_none() || !framewise {
                return Err("`local` should stand beside `pieces` and a `decoding` of positions".to_owned());
            }
        }
        if let Some(streaming) = &self.streaming {
            streaming.check(&self.front_end, &self.decoding)?;
        }
        match (&self.decoding, &self.front_end) {
            (Decoding::Activity {}, FrontEnd::Chunks(_)) => Ok(()),
            (Decoding::Activity {}, _) => Err("a model that finds speech should take samples in `chunks`".to_owned()),
            (_, FrontEnd::Chunks(_)) => {
                Err("a model that writes should have a front end other than `chunks`".to_owned())
            }
            (Decoding::Prompted(p), _) => p.check(vocab_size),
            (Decoding::Ctc(c), _) => steps(c.blank, c.position_samples, hop, vocab_size),
            (Decoding::Transducer(t), _) => t.check(hop, vocab_size),
        }
    }
}

impl Prompted {
    fn check(&self, vocab_size: usize) -> Checked {
        let p = self;
        if let Some(limit) = p.tokens_per_second.filter(|n| !(n.is_finite() && *n > 0.0)) {
            return Err(format!(
                "`decoding.tokens_per_second` should be a number above 0, found {limit}"
            ));
        }
        let last_stamp = p.timestamps.map(|t| u64::from(t.first) + u64::from(t.count.max(1)) - 1);
        let one = [p.previous, p.no_speech, p.no_timestamps, p.transcribe, p.translate];
        let tokens = [p.start, p.end].into_iter().chain(one.into_iter().flatten());
        let tokens = tokens.chain(p.languages.values().copied());
        let tokens = tokens.chain(p.suppressed.iter().chain(&p.suppressed_first).copied());
        tokens
            .map(u64::from)
            .chain(last_stamp)
            .try_for_each(|t| within(t, vocab_size))
    }
}

/// Most that a token may move on, and most tokens of a position.
const MAX_STEPS: u32 = 1 << 10;

impl Transducer {
    fn check(&self, hop: u32, vocab_size: usize) -> Checked {
        steps(self.blank, self.position_samples, hop, vocab_size)?;
        counts("decoding", [("most_symbols", self.most_symbols, 1, MAX_STEPS)])?;
        let d = &self.durations;
        if !d.is_sorted_by(|a, b| a < b) || d.last().is_some_and(|last| !(1..=MAX_STEPS).contains(last)) {
            let what = "`decoding.durations` should ascend, the last from 1";
            return Err(format!("{what} to {MAX_STEPS}, found {d:?}"));
        }
        Ok(())
    }
}

/// Most positions that are seen on a side, and most layers.
const MAX_CONTEXT: u32 = 1 << 12;
const MAX_LAYERS: u32 = 1 << 10;

impl Local {
    fn check(&self) -> Checked {
        counts(
            "local",
            [
                ("context", self.context, 1, MAX_CONTEXT),
                ("layers", self.layers, 1, MAX_LAYERS),
                ("late", self.late, self.context, 2 * MAX_CONTEXT),
                ("edge_frames", self.edge_frames, 0, MAX_SAMPLES),
            ],
        )
    }
}

impl Streaming {
    fn check(&self, front_end: &FrontEnd, decoding: &Decoding) -> Checked {
        let position = match (front_end, decoding) {
            (FrontEnd::Samples(samples), Decoding::Prompted(_)) => samples.position_samples,
            _ => None,
        };
        let Some(position) = position else {
            let what = "`streaming` should stand beside a front end of `samples` with `position_samples`, and a decoder that is `prompted`";
            return Err(what.to_owned());
        };
        counts(
            "streaming",
            [
                ("block_samples", self.block_samples, position, MAX_SAMPLES),
                ("late", self.late, 0, MAX_CONTEXT),
                ("position_least", self.position_least, 1, position),
            ],
        )?;
        match self.block_samples.is_multiple_of(position) {
            true => Ok(()),
            false => Err(format!(
                "`streaming.block_samples` should be a multiple of `front_end.position_samples`, {position}, found {}",
                self.block_samples
            )),
        }
    }
}

impl Pieces {
    fn check(&self) -> Checked {
        let Pieces {
            least_samples: least,
            most_samples: most,
        } = *self;
        counts(
            "pieces",
            [
                ("least_samples", least, 1, MAX_SAMPLES),
                ("most_samples", most, least, MAX_SAMPLES),
            ],
        )
    }
}

/// Whether a model that has a token at each position says so as it can be.
fn steps(blank: u32, position: u32, hop: u32, vocab_size: usize) -> Checked {
    counts("decoding", [("position_samples", position, 1, MAX_SAMPLES)])?;
    if !position.is_multiple_of(hop) {
        let what = "`decoding.position_samples` should be a multiple of the front end's step";
        return Err(format!("{what}, {hop}; found {position}"));
    }
    within(blank.into(), vocab_size)
}

/// Whether the vocabulary has a token.
fn within(token: u64, vocab_size: usize) -> Checked {
    match usize::try_from(token).is_ok_and(|t| t < vocab_size) {
        true => Ok(()),
        false => Err(format!("token {token} is beyond the vocabulary of {vocab_size} tokens")),
    }
}

impl LogMel {
    pub(crate) fn check(&self) -> Checked<&Self> {
        let m = self;
        counts(
            "front_end",
            [
                ("sample_rate_hz", m.sample_rate_hz, 1, MAX_SAMPLES),
                ("fft_samples", m.fft_samples, 1, MAX_SAMPLES),
                ("window_samples", m.window_samples, 1, m.fft_samples),
                ("hop_samples", m.hop_samples, 1, m.fft_samples),
                ("mels", m.mels, 1, MAX_MELS),
            ],
        )?;
        let numbers = [m.preemphasis, m.min_hz, m.max_hz];
        if !(numbers.iter().all(|v| v.is_finite()) && 0.0 <= m.min_hz && m.min_hz < m.max_hz) {
            return Err(format!(
                "the front end's bands should lie between two frequencies, found {} to {}",
                m.min_hz, m.max_hz
            ));
        }
        Ok(m)
    }
}

impl Samples {
    fn check(&self) -> Checked {
        counts(
            "front_end",
            [
                ("sample_rate_hz", self.sample_rate_hz, 1, MAX_SAMPLES),
                ("least_samples", self.least_samples, 1, MAX_SAMPLES),
                ("most_samples", self.most_samples, self.least_samples, MAX_SAMPLES),
                ("position_samples", self.position_samples.unwrap_or(1), 1, MAX_SAMPLES),
            ],
        )
    }
}

impl Chunks {
    pub(crate) fn check(&self) -> Checked<&Self> {
        counts(
            "front_end",
            [
                ("sample_rate_hz", self.sample_rate_hz, 1, MAX_SAMPLES),
                ("chunk_samples", self.chunk_samples, 1, MAX_SAMPLES),
                ("context_samples", self.context_samples, 0, self.chunk_samples),
            ],
        )?;
        Ok(self)
    }
}

/// Whether numbers of a section lie between a least and a most.
pub(crate) fn counts<const N: usize>(section: &str, each: [(&str, u32, u32, u32); N]) -> Checked {
    for (name, found, least, most) in each {
        if !(least..=most).contains(&found) {
            return Err(format!(
                "`{section}.{name}` should be from {least} to {most}, found {found}"
            ));
        }
    }
    Ok(())
}
