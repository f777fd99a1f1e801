//! A bundle that hears, and whole recordings.

use crate::features::{frontend, unknown};
use crate::prompted::{Window, Written};
use crate::rules::{Rules, logprob};
use crate::{Error, Result, Segment, Transcript};
use cactus_audio::Frontend;
use cactus_base::{Cores, Pool};
use cactus_bundle::{Bundle, Decoding, Prompted, Speech, Window as Stretch};
use cactus_engine::{CancelToken, Model};
use cactus_runtime::{Execution, Function, Head, KvDType, Options, Program};
use cactus_tensor::Tensor;
use cactus_text::Tokenizer;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The latest time that a window's first segment may begin at, in milliseconds.
const LATEST_FIRST_MS: u32 = 1000;

/// Root of the mean square of a sound below which nobody speaks: -60 dB.
const STILL: f64 = 1e-3;

/// How a recording is transcribed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TranscribeOptions {
    /// Code of the language that is spoken, such as `de`; `None` finds out from the first window.
    pub language: Option<String>,
    /// Write English, whatever is spoken.
    pub translate: bool,
    /// Tokens of the text before that each window gets to read, at most half of the decoder's context. With 0 a mistake does not
    /// carry on, with more names are spelled alike.
    pub carry_tokens: usize,
    /// How freely tokens are drawn, from 0 to 1. With 0 the likeliest are taken, and higher temperatures tried where the text looks
    /// wrong; any other is the only one.
    pub temperature: f64,
}

/// How far it is.
#[derive(Debug)]
pub struct Progress<'a> {
    /// Seconds of the recording that are transcribed.
    pub done_s: f64,
    /// Its length.
    pub duration_s: f64,
    /// What came last.
    pub segments: &'a [Segment],
}

/// A loaded model that hears.
#[derive(Debug)]
pub struct Transcriber {
    speech: Speech,
    stretch: Stretch,
    frontend: Frontend,
    encoder: Function,
    /// Names of the encoder's input and output.
    ports: [String; 2],
    execution: Execution,
    tokenizer: Tokenizer,
    pool: Pool,
    threads: usize,
}

impl Transcriber {
    /// Loads the bundle in `folder` with so many threads; `None` is one for each fast core.
    ///
    /// # Errors
    /// A bundle that is damaged or does not hear.
    pub fn load(folder: &Path, threads: Option<usize>) -> Result<Transcriber> {
        let bundle = Arc::new(Bundle::open(folder)?);
        let Some(speech) = bundle.speech()? else {
            let task = &bundle.manifest().task;
            return Err(Error::Model(format!(
                "`{}` does not transcribe: it has no `speech.json` (its task is `{task}`)",
                folder.display()
            )));
        };
        if let Decoding::Activity {} = speech.decoding {
            let what = format!(
                "`{}` does not transcribe: it finds where somebody speaks",
                folder.display()
            );
            return Err(Error::Model(what));
        }
        let Some(stretch) = speech.window else {
            return Err(unknown("decoding without windows", &speech.decoding));
        };
        let frontend = frontend(&speech.front_end, true)?;
        let encoder = Function::new(Arc::clone(&bundle), "encoder", None)?;
        let declared = bundle.manifest().components.iter().find(|c| c.name == "encoder");
        let ports = declared.and_then(|c| Some([c.inputs.first()?.name.clone(), c.outputs.first()?.name.clone()]));
        let Some(ports) = ports else {
            return Err(Error::Model("its encoder has no input or no output".into()));
        };
        let context_tokens = bundle.manifest().context_tokens;
        let options = Options {
            context_tokens,
            chunk_tokens: context_tokens,
            kv_dtype: KvDType::F16,
            ..Options::default()
        };
        let program = Program::new(Arc::clone(&bundle), "decoder", &options)?;
        let (tokenizer, _) = Model::load_text(&bundle)?;
        let threads = threads.unwrap_or_else(|| Cores::detect().threads()).max(1);
        Ok(Transcriber {
            stretch,
            frontend,
            encoder,
            ports,
            execution: Execution::new(Arc::new(program))?,
            tokenizer,
            pool: Pool::new(threads),
            threads,
            speech,
        })
    }

    /// Samples a second that it takes.
    #[must_use]
    pub fn sample_rate_hz(&self) -> u32 {
        self.frontend.recipe().sample_rate_hz
    }

    /// Codes of the languages that it knows; none where it knows one alone.
    pub fn languages(&self) -> impl Iterator<Item = &str> {
        let known = match &self.speech.decoding {
            Decoding::Prompted(prompted) => Some(prompted.languages.keys()),
            _ => None,
        };
        known.into_iter().flatten().map(String::as_str)
    }

    /// Whether this model has these options.
    ///
    /// # Errors
    /// [`Error::Option`] with what it has.
    pub fn check(&self, options: &TranscribeOptions) -> Result<()> {
        match &self.speech.decoding {
            Decoding::Prompted(prompted) => check(prompted, options),
            other => Err(unknown("decoding", other)),
        }
    }

    /// Bytes of memory beside the mapped weights: states and activations of the decoder.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let memory = self.execution.program().memory();
        memory.arena_bytes + memory.state_bytes + memory.logits_bytes
    }

    /// Transcribes `samples`: mono, from -1 to 1, [`Transcriber::sample_rate_hz`] of them a second. `each` is told of every window.
    ///
    /// The text is the same for any number of threads and on every machine.
    ///
    /// # Errors
    /// Samples that are no numbers; an option that this model does not have; after `cancel`.
    pub fn transcribe(
        &mut self,
        samples: &[f32],
        options: &TranscribeOptions,
        cancel: &CancelToken,
        each: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Transcript> {
        let Decoding::Prompted(prompted) = &self.speech.decoding else {
            return Err(unknown("decoding", &self.speech.decoding));
        };
        let prompted = prompted.clone();
        check(&prompted, options)?;
        let features = self.frontend.extract(samples)?;
        let rate = f64::from(self.sample_rate_hz());
        let frame_s = self.frontend.recipe().hop_samples as f64 / rate;
        let mut transcript = Transcript {
            language: options.language.clone(),
            duration_s: samples.len() as f64 / rate,
            segments: Vec::new(),
        };
        let rules = rules(&prompted);
        let window = self.stretch.frames as usize;
        let mut carried: Vec<u32> = Vec::new();
        let mut at = 0;
        while at < features.valid_frames {
            let frames = window.min(features.valid_frames - at);
            let hop = self.frontend.recipe().hop_samples;
            let heard = &samples[(at * hop).min(samples.len())..((at + frames) * hop).min(samples.len())];
            if is_still(heard, self.sample_rate_hz()) {
                at += frames;
                carried.clear();
                each(Progress {
                    done_s: (at as f64 * frame_s).min(transcript.duration_s),
                    duration_s: transcript.duration_s,
                    segments: &[],
                });
                continue;
            }
            self.listen(features.channels_first(at, window), features.bins)?;
            if transcript.language.is_none() && !prompted.languages.is_empty() {
                transcript.language = self.language(&prompted)?;
            }
            let (prompt, start) = self.prompt(&prompted, options, transcript.language.as_deref(), &carried);
            let written = Window {
                most_tokens: (self.execution.program().context_tokens() / 2).saturating_sub(1).max(1),
                execution: &mut self.execution,
                pool: &self.pool,
                threads: self.threads,
                tokenizer: &self.tokenizer,
                rules: &rules,
                prompt: &prompt,
                start,
                no_speech: prompted.no_speech,
                temperature: options.temperature,
                cancel,
            }
            .write()?;
            let before = transcript.segments.len();
            let begin_s = at as f64 * frame_s;
            at += match written.is_silent() {
                true => frames,
                false => {
                    let cut = cut(&written.tokens, &rules, frames as f64 * frame_s);
                    for piece in &cut.pieces {
                        self.keep(&mut transcript, piece, begin_s, &written, &rules);
                    }
                    // A window of which nothing is closed would be read for ever.
                    ((cut.until_s / frame_s).round() as usize).clamp(1, frames)
                }
            };
            let new = &transcript.segments[before..];
            // What was drawn at a high temperature is no example.
            if written.temperature > 0.5 {
                carried.clear();
            }
            carried.extend(new.iter().flat_map(|s| &s.tokens));
            each(Progress {
                done_s: (at as f64 * frame_s).min(transcript.duration_s),
                duration_s: transcript.duration_s,
                segments: new,
            });
        }
        Ok(transcript)
    }

    /// Computes what the decoder reads of a window, `[bins, frames]`.
    fn listen(&mut self, features: Vec<f32>, bins: usize) -> Result<()> {
        let frames = features.len() / bins.max(1);
        let input = Tensor::from_f32([1, bins, frames], features).map_err(|e| Error::Model(e.to_string()))?;
        let inputs = BTreeMap::from([(self.ports[0].clone(), input)]);
        let states = self.encoder.run(&self.pool, self.threads, &inputs)?;
        let states = states.into_iter().filter(|(name, _)| *name == self.ports[1]).collect();
        Ok(self.execution.give(&self.pool, self.threads, &states)?)
    }

    /// The likeliest language of the window.
    fn language(&mut self, prompted: &Prompted) -> Result<Option<String>> {
        self.execution.clear();
        self.execution
            .run(&self.pool, self.threads, &[prompted.start], Head::Last)?;
        let row = self.execution.logits();
        let chance = |token: u32| logprob(&row, token);
        let each = prompted.languages.iter().map(|(code, &token)| (code, chance(token)));
        let best = each.max_by(|a, b| a.1.total_cmp(&b.1));
        Ok(best.map(|(code, _)| code.clone()))
    }

    /// The prompt, and where the start stands in it.
    fn prompt(
        &self,
        prompted: &Prompted,
        options: &TranscribeOptions,
        language: Option<&str>,
        carried: &[u32],
    ) -> (Vec<u32>, usize) {
        let mut prompt = Vec::new();
        let most = options
            .carry_tokens
            .min((self.execution.program().context_tokens() / 2).saturating_sub(8));
        let kept = &carried[carried.len() - carried.len().min(most)..];
        if let (Some(previous), false) = (prompted.previous, kept.is_empty()) {
            prompt.push(previous);
            prompt.extend_from_slice(kept);
        }
        let start = prompt.len();
        prompt.push(prompted.start);
        prompt.extend(language.and_then(|code| prompted.languages.get(code)));
        let task = if options.translate {
            prompted.translate
        } else {
            prompted.transcribe
        };
        prompt.extend(task);
        if prompted.timestamps.is_none() {
            prompt.extend(prompted.no_timestamps);
        }
        (prompt, start)
    }

    fn keep(&self, transcript: &mut Transcript, piece: &Piece<'_>, begin_s: f64, written: &Written, rules: &Rules) {
        let tokens: Vec<u32> = piece.tokens.iter().copied().filter(|&t| !rules.is_stamp(t)).collect();
        let text = self.tokenizer.decode(&tokens, true);
        // No text, or no time for one.
        if text.trim().is_empty() || piece.end_s <= piece.start_s {
            return;
        }
        transcript.segments.push(Segment {
            id: transcript.segments.len(),
            start_s: begin_s + piece.start_s,
            end_s: begin_s + piece.end_s,
            text,
            tokens,
            mean_logprob: written.mean_logprob,
            no_speech: written.no_speech,
            temperature: written.temperature,
            compression: written.compression,
            window_s: begin_s,
        });
    }
}

/// Whether the loudest tenth of a second is too quiet for speech. Models of this kind write something of such windows, mostly "you".
fn is_still(samples: &[f32], rate_hz: u32) -> bool {
    let part = (rate_hz as usize / 10).max(1);
    let power = |part: &[f32]| part.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>() / part.len() as f64;
    samples.chunks(part).all(|part| power(part) < STILL * STILL)
}

fn check(prompted: &Prompted, options: &TranscribeOptions) -> Result<()> {
    if let Some(code) = &options.language
        && !prompted.languages.contains_key(code)
    {
        let known: Vec<&str> = prompted.languages.keys().map(String::as_str).collect();
        return Err(Error::Option(match known.is_empty() {
            true => format!("this model knows one language alone; leave the language out (found `{code}`)"),
            false => format!(
                "the language `{code}` is not among those of this model: {}",
                known.join(", ")
            ),
        }));
    }
    if !(0.0..=1.0).contains(&options.temperature) {
        return Err(Error::Option(format!(
            "the temperature should be from 0 to 1, found {}",
            options.temperature
        )));
    }
    match options.translate && prompted.translate.is_none() {
        true => Err(Error::Option(
            "this model does not translate; a multilingual one may".into(),
        )),
        false => Ok(()),
    }
}

fn rules(prompted: &Prompted) -> Rules {
    let special = [
        prompted.previous,
        prompted.no_speech,
        prompted.no_timestamps,
        prompted.transcribe,
        prompted.translate,
    ];
    let mut never = prompted.suppressed.clone();
    never.extend(special.into_iter().flatten());
    never.push(prompted.start);
    never.extend(prompted.languages.values());
    Rules {
        end: prompted.end,
        stamps: prompted.timestamps,
        latest_first: prompted.timestamps.map(|t| LATEST_FIRST_MS / t.step_ms.max(1)),
        never,
        never_first: prompted.suppressed_first.clone(),
    }
}

/// Tokens between two times of a window, in seconds from its beginning.
#[derive(Debug, PartialEq)]
struct Piece<'a> {
    tokens: &'a [u32],
    start_s: f64,
    end_s: f64,
}

/// A window's tokens, cut where they say.
#[derive(Debug, PartialEq)]
struct Cut<'a> {
    pieces: Vec<Piece<'a>>,
    /// Where the next window begins.
    until_s: f64,
}

/// Cuts at two times in a row. What follows the last of them is read again by the next window, unless its end is closed, too.
fn cut<'a>(tokens: &'a [u32], rules: &Rules, length_s: f64) -> Cut<'a> {
    let whole = |end_s: f64| Cut {
        pieces: vec![Piece {
            tokens,
            start_s: 0.0,
            end_s,
        }],
        until_s: length_s,
    };
    let Some(stamps) = rules.stamps else {
        return whole(length_s);
    };
    // A time behind the end of the sound is its end.
    let seconds = |token: u32| (f64::from(token - stamps.first) * f64::from(stamps.step_ms) / 1000.0).min(length_s);
    let is = |i: usize| rules.is_stamp(tokens[i]);
    let mut ends: Vec<usize> = (1..tokens.len()).filter(|&i| is(i) && is(i - 1)).collect();
    let n = tokens.len();
    let closed = n >= 2 && is(n - 1) && !is(n - 2);
    if ends.is_empty() {
        let first = tokens
            .first()
            .filter(|t| rules.is_stamp(**t))
            .map_or(0.0, |t| seconds(*t));
        let last = tokens.iter().rev().find(|t| rules.is_stamp(**t)).map(|t| seconds(*t));
        let end = last.filter(|&s| s > first).unwrap_or(length_s);
        let mut cut = whole(end);
        cut.pieces[0].start_s = first;
        return cut;
    }
    if closed {
        ends.push(n);
    }
    let mut from = 0;
    let mut pieces = Vec::new();
    for end in ends {
        let tokens = &tokens[from..end];
        if let [first, .., last] = tokens
            && rules.is_stamp(*first)
            && rules.is_stamp(*last)
        {
            pieces.push(Piece {
                tokens,
                start_s: seconds(*first),
                end_s: seconds(*last),
            });
        }
        from = end;
    }
    let until_s = match closed {
        true => length_s,
        false => seconds(tokens[from - 1]),
    };
    Cut { pieces, until_s }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cactus_bundle::Timestamps;

    fn rules() -> Rules {
        Rules {
            end: 4,
            stamps: Some(Timestamps {
                first: 10,
                count: 1501,
                step_ms: 20,
            }),
            ..Rules::default()
        }
    }

    fn times(tokens: &[u32], length_s: f64) -> (Vec<(f64, f64, usize)>, f64) {
        let rules = rules();
        let cut = cut(tokens, &rules, length_s);
        let pieces = cut
            .pieces
            .iter()
            .map(|p| (p.start_s, p.end_s, p.tokens.len()))
            .collect();
        (pieces, cut.until_s)
    }

    #[test]
    fn a_whisper_is_not_still_and_noise_of_a_recorder_is() {
        let tone = |loud: f32| -> Vec<f32> { (0..16_000).map(|i| loud * (i as f32 * 0.1).sin()).collect() };
        assert!(is_still(&[], 16_000) && is_still(&tone(1e-3), 16_000));
        assert!(!is_still(&tone(2e-3), 16_000));
        let mut click = vec![0.0; 16_000];
        click[8000..9600].copy_from_slice(&tone(0.1)[..1600]);
        assert!(!is_still(&click, 16_000));
    }

    #[test]
    fn windows_are_cut_where_times_meet() {
        let at = |s: f64| 10 + (s * 50.0) as u32;
        // Two closed segments, and text that goes on: it is read again.
        let tokens = [at(0.0), 1, 2, at(2.0), at(2.0), 3, at(4.0), at(4.0), 1];
        assert_eq!(times(&tokens, 30.0), (vec![(0.0, 2.0, 4), (2.0, 4.0, 3)], 4.0));
        // The last one is closed at the end of the window's text.
        let tokens = [at(0.0), 1, 2, at(2.0), at(3.0), 3, at(4.0)];
        assert_eq!(times(&tokens, 30.0), (vec![(0.0, 2.0, 4), (3.0, 4.0, 3)], 30.0));
        // One segment alone, closed or not.
        assert_eq!(times(&[at(0.5), 1, at(4.0)], 11.0), (vec![(0.5, 4.0, 3)], 11.0));
        assert_eq!(times(&[at(0.0), 1, 2], 11.0), (vec![(0.0, 11.0, 3)], 11.0));
        assert_eq!(times(&[], 11.0), (vec![(0.0, 11.0, 0)], 11.0));
    }
}
