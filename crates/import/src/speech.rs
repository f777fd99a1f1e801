//! The record of how a model hears (`speech.json`), from what a source says of its tokens.
//!
//! Front ends of other formats make a `generation_config.json` in the convention of `transformers` first, as they make a
//! `config.json`; what that does not name is found by its spelling in the tokenizer.

mod positions;

use crate::{Error, Result, SourceModel};
use cactus_bundle::{
    Chunks, Decoding, Edges, Emphasis, FrontEnd, LogMel, Logarithm, MelScale, Normalization, Prompted, SPEECH_VERSION,
    Samples, Spectrum, Speech, Streaming, Timestamps, Window, WindowFunction,
};
use cactus_models::{ActivityDef, ModelDef, SamplesDef, SoundDef};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// From this many tokens on a Whisper model knows several languages, where its source does not say
/// (`Whisper.is_multilingual` of OpenAI's implementation).
const MULTILINGUAL_VOCAB: usize = 51_865;
/// Times from the beginning of a window to its end.
const STAMPS: u32 = 1501;
/// Milliseconds between two.
const STAMP_MS: u32 = 20;

/// Heads of cross attention that follow the sound, in a generation configuration.
const ALIGNMENT_HEADS: &str = "alignment_heads";

/// Positions that attention sees on each side, in a configuration.
const ATTENTION_CONTEXT: &str = "attention_context";

/// The configuration of `model`, with what its graphs need of how it generates, and how far local attention is to see.
pub(crate) fn complete(model: &SourceModel, attention_context: Option<usize>) -> Value {
    let mut config = model.config.clone();
    if let (Some(fields), Some(context)) = (config.as_object_mut(), attention_context) {
        fields.insert(ATTENTION_CONTEXT.to_owned(), context.into());
    }
    if let Some(folder) = &model.sentence {
        crate::sentence::complete(&mut config, folder);
    }
    let heads = model
        .generation_config
        .get(ALIGNMENT_HEADS)
        .filter(|heads| !heads.is_null());
    if let (Some(fields), Some(heads)) = (config.as_object_mut(), heads) {
        fields.insert(ALIGNMENT_HEADS.to_owned(), heads.clone());
    }
    config
}

/// The record of `model`, and what is unclear about it; no record for a model that does not hear.
///
/// # Errors
/// Where a token is named that the vocabulary does not have.
pub(crate) fn record(def: &ModelDef, model: &SourceModel) -> Result<(Option<Speech>, Option<String>)> {
    if let Some(activity) = def.activity {
        let speech = finder(activity);
        speech.check(def.vocab_size).map_err(Error::malformed)?;
        return Ok((Some(speech), None));
    }
    if let Some(about) = &def.positions {
        let speech = positions::record(about, def.context_tokens, &model.front_end)?;
        speech.check(def.vocab_size).map_err(Error::malformed)?;
        return Ok((Some(speech), None));
    }
    let (front_end, window) = match (def.sound, def.samples) {
        (Some(sound), _) => {
            let front_end = whisper_front_end(sound);
            let window = Window {
                samples: u64::from(front_end.hop_samples) * sound.frames as u64,
                frames: sound.frames as u32,
                positions: sound.positions as u32,
            };
            (FrontEnd::LogMel(front_end), Some(window))
        }
        (None, Some(samples)) => (FrontEnd::Samples(whole(samples)), None),
        (None, None) => return Ok((None, None)),
    };
    let Some(prompted) = prompted(def, model)? else {
        let what =
            "the source does not say which token begins a transcript, so the bundle cannot tell how to transcribe";
        return Ok((None, Some(what.to_owned())));
    };
    let speech = Speech {
        version: SPEECH_VERSION,
        window,
        pieces: None,
        local: None,
        streaming: def
            .samples
            .and_then(|samples| samples.streaming)
            .map(|about| Streaming {
                block_samples: small(about.block_samples),
                late: small(about.late),
                position_least: small(about.position_least),
            }),
        front_end,
        decoding: Decoding::Prompted(prompted),
    };
    speech.check(def.vocab_size).map_err(Error::malformed)?;
    Ok((Some(speech), None))
}

/// A family's sizes are small.
fn small(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The front end of a model that hears samples as they are.
fn whole(samples: SamplesDef) -> Samples {
    Samples {
        sample_rate_hz: samples.sample_rate_hz,
        least_samples: small(samples.least),
        most_samples: small(samples.most),
        position_samples: Some(small(samples.position)),
    }
}

/// The record of a model that finds speech.
fn finder(activity: ActivityDef) -> Speech {
    Speech {
        version: SPEECH_VERSION,
        window: None,
        pieces: None,
        local: None,
        streaming: None,
        front_end: FrontEnd::Chunks(Chunks {
            sample_rate_hz: activity.sample_rate_hz,
            chunk_samples: small(activity.chunk_samples),
            context_samples: small(activity.context_samples),
        }),
        decoding: Decoding::Activity {},
    }
}

/// The front end of every Whisper (`log_mel_spectrogram` of OpenAI's implementation).
fn whisper_front_end(sound: SoundDef) -> LogMel {
    LogMel {
        sample_rate_hz: 16_000,
        window: WindowFunction::HannPeriodic,
        window_samples: 400,
        fft_samples: 400,
        hop_samples: 160,
        edges: Edges::Reflect,
        drop_last_frame: true,
        preemphasis: 0.0,
        emphasis: Emphasis::Sound,
        spectrum: Spectrum::Power,
        mels: sound.mels as u32,
        mel_scale: MelScale::Slaney,
        min_hz: 0.0,
        max_hz: 8000.0,
        log: Logarithm::Log10Floor { floor: 1e-10 },
        normalization: Normalization::BelowLargest {
            range: 8.0,
            add: 4.0,
            divide: 4.0,
        },
    }
}

/// Ids by spelling: those of added tokens, and of the vocabulary.
struct Spellings(BTreeMap<String, u32>);

impl Spellings {
    fn of(model: &SourceModel) -> Result<Spellings> {
        let mut ids = BTreeMap::new();
        let Some(files) = &model.tokenizer else {
            return Ok(Spellings(ids));
        };
        let json: Value = serde_json::from_slice(&files.tokenizer_json)
            .map_err(|e| Error::malformed("the tokenizer is not JSON").caused_by(e))?;
        let special = |text: &str| text.starts_with("<|");
        if let Some(Value::Object(vocab)) = json.pointer("/model/vocab") {
            let found = vocab.iter().filter(|(text, _)| special(text));
            ids.extend(found.filter_map(|(text, id)| Some((text.clone(), token(id)?))));
        }
        if let Some(Value::Array(added)) = json.get("added_tokens") {
            ids.extend(added.iter().filter_map(|t| {
                let text = t.get("content")?.as_str().filter(|text| special(text))?;
                Some((text.to_owned(), token(t.get("id")?)?))
            }));
        }
        Ok(Spellings(ids))
    }

    fn get(&self, text: &str) -> Option<u32> {
        self.0.get(text).copied()
    }

    /// Tokens of languages, which lie between the start and the first task.
    fn languages(&self, start: u32) -> BTreeMap<String, u32> {
        let Some(task) = self.get("<|translate|>") else {
            return BTreeMap::new();
        };
        let between = self.0.iter().filter(|(_, id)| (start + 1..task).contains(id));
        between.filter_map(|(text, &id)| Some((code(text)?, id))).collect()
    }
}

/// `<|de|>` to `de`.
fn code(text: &str) -> Option<String> {
    Some(text.strip_prefix("<|")?.strip_suffix("|>")?.to_owned())
}

fn token(v: &Value) -> Option<u32> {
    v.as_u64().and_then(|n| u32::try_from(n).ok())
}

fn prompted(def: &ModelDef, model: &SourceModel) -> Result<Option<Prompted>> {
    let spelled = Spellings::of(model)?;
    let generation = &model.generation_config;
    let stated = |key: &str| [generation, &model.config].into_iter().find_map(|c| token(c.get(key)?));
    let tokens = |key: &str| -> Vec<u32> {
        let listed = [generation, &model.config]
            .into_iter()
            .find_map(|c| c.get(key)?.as_array());
        // -1 stands for a list of OpenAI's implementation, which the others have written out.
        let ids: BTreeSet<u32> = listed.into_iter().flatten().filter_map(token).collect();
        ids.into_iter().collect()
    };
    let start = stated("decoder_start_token_id").or_else(|| spelled.get("<|startoftranscript|>"));
    let end = spelled.get("<|endoftext|>").or_else(|| stated("eos_token_id"));
    let (Some(start), Some(end)) = (start, end) else {
        return Ok(None);
    };
    let multilingual = match generation.get("is_multilingual") {
        Some(Value::Bool(b)) => *b,
        _ => def.vocab_size >= MULTILINGUAL_VOCAB,
    };
    let task = |name: &str| {
        let stated = generation.pointer(&format!("/task_to_id/{name}")).and_then(token);
        stated
            .or_else(|| spelled.get(&format!("<|{name}|>")))
            .filter(|_| multilingual)
    };
    let languages = match generation.get("lang_to_id") {
        // A model of one language may have the tokens of others, which were never trained.
        _ if !multilingual => BTreeMap::new(),
        Some(Value::Object(all)) => all
            .iter()
            .filter_map(|(text, id)| Some((code(text)?, token(id)?)))
            .collect(),
        _ => spelled.languages(start),
    };
    let no_timestamps = stated("no_timestamps_token_id").or_else(|| spelled.get("<|notimestamps|>"));
    let first = spelled.get("<|0.00|>").or(no_timestamps.map(|t| t.saturating_add(1)));
    let left = |first: u32| u32::try_from(def.vocab_size).unwrap_or(u32::MAX).saturating_sub(first);
    let timestamps = first.filter(|&first| left(first) > 0).map(|first| Timestamps {
        first,
        count: left(first).min(STAMPS),
        step_ms: STAMP_MS,
    });
    let heads = generation.get(ALIGNMENT_HEADS).and_then(Value::as_array);
    let pair = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
        Some([layer, head]) => Some([token(layer)?, token(head)?]),
        _ => None,
    };
    Ok(Some(Prompted {
        start,
        end,
        previous: stated("prev_sot_token_id").or_else(|| spelled.get("<|startofprev|>")),
        no_speech: spelled.get("<|nospeech|>").or_else(|| spelled.get("<|nocaptions|>")),
        no_timestamps,
        transcribe: task("transcribe"),
        translate: task("translate"),
        languages,
        timestamps,
        suppressed: tokens("suppress_tokens"),
        suppressed_first: tokens("begin_suppress_tokens"),
        tokens_per_second: def.samples.map(|s| s.tokens_per_second),
        // The graph was built with them, so they are pairs of what there is.
        alignment_heads: heads.into_iter().flatten().filter_map(pair).collect(),
    }))
}
