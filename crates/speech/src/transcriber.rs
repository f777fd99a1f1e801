//! A bundle that hears, and whole recordings.

use crate::alignment::{Alignment, Reading};
use crate::cut::{Cut, Piece, cut};
use crate::features::{frontend, unknown};
use crate::prompted::{Window, Written};
use crate::rules::{Rules, logprob};
use crate::words;
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
    /// Find out when each word is said, and let those times move the segments' own.
    pub words: bool,
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
    bundle: Arc<Bundle>,
    speech: Speech,
    stretch: Stretch,
    frontend: Frontend,
    encoder: Function,
    /// Names of the encoder's input and output.
    ports: [String; 2],
    execution: Execution,
    /// Loaded when words are first asked for.
    alignment: Option<Alignment>,
    /// What the encoder gave of the window.
    states: Option<Tensor>,
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
            alignment: None,
            states: None,
            tokenizer,
            pool: Pool::new(threads),
            threads,
            speech,
            bundle,
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
        if options.words && self.alignment.is_none() {
            self.alignment = Some(Alignment::load(&self.bundle, &self.ports[1])?);
        }
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
        let (mut at, mut spoken_s) = (0, 0.0);
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
                cancel,
            }
            .write()?;
            let before = transcript.segments.len();
            let begin_s = at as f64 * frame_s;
            at += match written.is_silent() {
                true => frames,
                false => {
                    let cut = cut(&written.tokens, &rules, frames as f64 * frame_s);
                    let each = cut.pieces.iter();
                    let mut segments: Vec<Segment> = each.map(|p| self.segment(p, begin_s, &written, &rules)).collect();
                    let mut until_s = cut.until_s;
                    if options.words {
                        let language = transcript.language.as_deref();
                        let (mut prompt, _) = self.prompt(&prompted, options, language, &[]);
                        prompt.extend(prompted.no_timestamps.filter(|_| rules.stamps.is_some()));
                        let words = self.words(&prompt, language, &cut, &written, &rules, frames)?;
                        spoken_s = words::place(&mut segments, words, begin_s, spoken_s);
                        let last = segments.iter().rev().find_map(|s| s.words.last());
                        // What follows the last word is read again, unless the model has said that nothing does.
                        until_s = match last.map(|word| word.end_s - begin_s) {
                            Some(end_s) if end_s > 0.0 && !cut.closed => end_s,
                            _ => until_s,
                        };
                    }
                    transcript.add(segments);
                    // A window of which nothing is closed would be read for ever.
                    ((until_s / frame_s).round() as usize).clamp(1, frames)
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
        let states: BTreeMap<String, Tensor> = states.into_iter().filter(|(name, _)| *name == self.ports[1]).collect();
        self.execution.give(&self.pool, self.threads, &states)?;
        // Words are read off them again.
        self.states = states.into_values().next().filter(|_| self.alignment.is_some());
        Ok(())
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

    fn segment(&self, piece: &Piece, begin_s: f64, written: &Written, rules: &Rules) -> Segment {
        let tokens = written.tokens[piece.tokens.clone()].iter();
        let tokens: Vec<u32> = tokens.copied().filter(|&t| !rules.is_stamp(t)).collect();
        Segment {
            id: 0,
            start_s: begin_s + piece.start_s,
            end_s: begin_s + piece.end_s,
            text: self.tokenizer.decode(&tokens, true),
            tokens,
            mean_logprob: written.mean_logprob,
            no_speech: written.no_speech,
            temperature: written.temperature,
            words: Vec::new(),
        }
    }

    /// The words of a window of so many frames, in seconds from its beginning.
    fn words(
        &self,
        prompt: &[u32],
        language: Option<&str>,
        cut: &Cut,
        written: &Written,
        rules: &Rules,
        frames: usize,
    ) -> Result<Vec<words::Timed>> {
        let (Some(alignment), Some(states)) = (&self.alignment, &self.states) else {
            return Ok(Vec::new());
        };
        let kept = cut.pieces.iter().flat_map(|piece| piece.tokens.clone());
        let kept = kept.filter(|&i| !rules.is_stamp(written.tokens[i]));
        let (tokens, probabilities): (Vec<u32>, Vec<f64>) = kept
            .map(|i| (written.tokens[i], libm::exp(written.logprobs[i])))
            .unzip();
        let frames_each = (self.stretch.frames / self.stretch.positions.max(1)).max(1) as usize;
        let hop_s = self.frontend.recipe().hop_samples as f64 / f64::from(self.sample_rate_hz());
        let reading = Reading {
            prompt,
            tokens: &tokens,
            probabilities: &probabilities,
            end: rules.end,
            language,
            states,
            heard: frames / frames_each,
            step_s: frames_each as f64 * hop_s,
        };
        alignment.words(&self.pool, self.threads, &self.tokenizer, &reading)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whisper_is_not_still_and_noise_of_a_recorder_is() {
        let tone = |loud: f32| -> Vec<f32> { (0..16_000).map(|i| loud * (i as f32 * 0.1).sin()).collect() };
        assert!(is_still(&[], 16_000) && is_still(&tone(1e-3), 16_000));
        assert!(!is_still(&tone(2e-3), 16_000));
        let mut click = vec![0.0; 16_000];
        click[8000..9600].copy_from_slice(&tone(0.1)[..1600]);
        assert!(!is_still(&click, 16_000));
    }
}
