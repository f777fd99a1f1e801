//! A bundle that hears, and whole recordings.

use crate::alignment::{self, Alignment, Reading};
use crate::cut::{Piece, cut};
use crate::features::{Ear, unknown};
use crate::heard::Heard;
use crate::hypotheses::Hypotheses;
use crate::prompt::Prompts;
use crate::prompted::{DRAWS, Window, Written, confidence};
use crate::rules::{Chances, Rules};
use crate::words;
use crate::{Error, Result, Segment, Transcript};
use cactus_audio::{Samples, Sound};
use cactus_base::Cores;
use cactus_bundle::{Bundle, Decoding, Prompted, Speech};
use cactus_engine::{CancelToken, Model};
use cactus_runtime::{Function, KvDType, Options, Program};
use cactus_tensor::Tensor;
use cactus_text::Tokenizer;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Tokens of a prompt that are read at once. Most prompts have four; more of them would only take memory.
const CHUNK_TOKENS: usize = 64;

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
    /// Texts that are followed side by side (beam search), at most [`MOST_BEAMS`]; with 0 or 1 the likeliest token is taken after
    /// each. A window that has to be written again at a higher temperature is drawn, five times.
    pub beams: usize,
    /// Text as if it had been said before the recording: it shows how names are spelled, and punctuation set. Only the first
    /// window reads it, unless [`TranscribeOptions::carry_tokens`] keeps it.
    pub initial_prompt: String,
    /// Words that may be said, which every window gets to read.
    pub hotwords: Vec<String>,
    /// How freely tokens are drawn, from 0 to 1. With 0 the likeliest are taken, and higher temperatures tried where the text looks
    /// wrong; any other is the only one.
    pub temperature: f64,
}

/// Most of [`TranscribeOptions::beams`].
pub const MOST_BEAMS: usize = 32;

/// How likely it is that a language is spoken.
#[derive(Clone, Debug, PartialEq)]
pub struct LanguageChance {
    /// Its code.
    pub code: String,
    /// The token that stands for it.
    pub token: u32,
    /// From 0 to 1; those of all languages together are 1.
    pub probability: f64,
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

/// A recording on its way.
struct Recording<'a> {
    options: &'a TranscribeOptions,
    prompted: &'a Prompted,
    prompts: Prompts,
    rules: Rules,
    cancel: &'a CancelToken,
    transcript: Transcript,
    /// Where the last segment with words ends.
    spoken_s: f64,
}

/// A loaded model that hears.
#[derive(Debug)]
pub struct Transcriber {
    bundle: Arc<Bundle>,
    speech: Speech,
    pub(crate) ear: Ear,
    encoder: Function,
    /// Names of the encoder's input and output.
    ports: [String; 2],
    pub(crate) hypotheses: Hypotheses,
    /// Loaded when words are first asked for.
    alignment: Option<Alignment>,
    /// What the encoder gave of the window.
    states: Option<Tensor>,
    pub(crate) tokenizer: Tokenizer,
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
        let ear = Ear::new(&speech)?;
        let encoder = Function::new(Arc::clone(&bundle), "encoder", None)?;
        let declared = bundle.manifest().components.iter().find(|c| c.name == "encoder");
        let ports = declared.and_then(|c| Some([c.inputs.first()?.name.clone(), c.outputs.first()?.name.clone()]));
        let Some(ports) = ports else {
            return Err(Error::Model("its encoder has no input or no output".into()));
        };
        let context_tokens = bundle.manifest().context_tokens;
        let options = Options {
            context_tokens,
            chunk_tokens: CHUNK_TOKENS.min(context_tokens),
            kv_dtype: KvDType::F16,
            ..Options::default()
        };
        let program = Program::new(Arc::clone(&bundle), "decoder", &options)?;
        let (tokenizer, _) = Model::load_text(&bundle)?;
        let threads = threads.unwrap_or_else(|| Cores::detect().threads()).max(1);
        Ok(Transcriber {
            ear,
            encoder,
            ports,
            hypotheses: Hypotheses::new(Arc::new(program), DRAWS, threads)?,
            alignment: None,
            states: None,
            tokenizer,
            speech,
            bundle,
        })
    }

    /// Samples a second that it takes.
    #[must_use]
    pub fn sample_rate_hz(&self) -> u32 {
        self.ear.sample_rate_hz()
    }

    /// Codes of the languages that it knows; none where it knows one alone.
    pub fn languages(&self) -> impl Iterator<Item = &str> {
        let known = match &self.speech.decoding {
            Decoding::Prompted(prompted) => Some(prompted.languages.keys()),
            _ => None,
        };
        known.into_iter().flatten().map(String::as_str)
    }

    /// Whether it can say when a word is said ([`TranscribeOptions::words`]): its bundle has what is needed for it.
    #[must_use]
    pub fn has_words(&self) -> bool {
        let mut components = self.bundle.manifest().components.iter();
        components.any(|component| component.name == alignment::NAME)
    }

    /// Whether this model has these options.
    ///
    /// # Errors
    /// [`Error::Option`] with what it has.
    pub fn check(&self, options: &TranscribeOptions) -> Result<()> {
        let Decoding::Prompted(prompted) = &self.speech.decoding else {
            return Err(unknown("decoding", &self.speech.decoding));
        };
        let context = self.hypotheses.program().context_tokens();
        self.check_words(options)?;
        Prompts::new(prompted, options, &self.tokenizer, context).map(drop)
    }

    fn check_words(&self, options: &TranscribeOptions) -> Result<()> {
        match self.ear {
            Ear::Samples(_) if options.words && !self.has_words() => Err(Error::Option(
                "this model does not say when a word is said; leave times of words out, or take a Whisper model".into(),
            )),
            _ => Ok(()),
        }
    }

    /// Bytes of memory beside the mapped weights: states and activations of the decoder.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let memory = self.hypotheses.program().memory();
        memory.arena_bytes + memory.state_bytes + memory.logits_bytes
    }

    /// As [`Transcriber::detect_language_in`], of samples in memory.
    ///
    /// # Errors
    /// As [`Transcriber::transcribe`].
    pub fn detect_language(&mut self, samples: &[f32]) -> Result<Vec<LanguageChance>> {
        self.detect_language_in(&mut Samples::new(samples))
    }

    /// How likely each of its languages is in the first window of `sound`, the likeliest first. There are none where nobody speaks, or
    /// of a model that knows one alone. No more than that window is read.
    ///
    /// # Errors
    /// As [`Transcriber::transcribe_sound`].
    pub fn detect_language_in(&mut self, sound: &mut dyn Sound) -> Result<Vec<LanguageChance>> {
        let Decoding::Prompted(prompted) = &self.speech.decoding else {
            return Err(unknown("decoding", &self.speech.decoding));
        };
        let prompted = prompted.clone();
        let most = self.ear.most_frames() * self.ear.frame_samples();
        let mut first = Vec::new();
        sound.rewind()?;
        while first.len() < most && sound.read(&mut first)? {}
        first.truncate(most);
        if prompted.languages.is_empty() || is_still(&first, self.sample_rate_hz()) {
            return Ok(Vec::new());
        }
        let (mut first, cancel) = (Samples::new(first), CancelToken::new());
        let mut heard = self.ear.hear(&mut first, &cancel)?;
        let frames = heard.advance(0, usize::MAX)?;
        self.listen(heard.input(0..frames)?, false)?;
        let mut found = self.language_chances(&prompted)?;
        found.sort_by(|a, b| b.probability.total_cmp(&a.probability));
        Ok(found)
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
        self.transcribe_sound(&mut Samples::new(samples), options, cancel, each)
    }

    /// As [`Transcriber::transcribe`], of a recording that is read while it is transcribed. One of more than a minute is read twice, in
    /// memory that does not depend on its length.
    ///
    /// # Errors
    /// As [`Transcriber::transcribe`]; those of reading.
    pub fn transcribe_sound(
        &mut self,
        sound: &mut dyn Sound,
        options: &TranscribeOptions,
        cancel: &CancelToken,
        each: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Transcript> {
        let prompts = self.prepare(options)?;
        let heard = self.ear.hear(sound, cancel)?;
        self.transcribe_heard(heard, &[], prompts, options, cancel, each)
    }

    /// Transcribes what was read once, with what [`Transcriber::prepare`] gave. A model that hears pieces of a recording gets none that goes over one of
    /// `cuts`, places in the samples in ascending order.
    pub(crate) fn transcribe_heard(
        &mut self,
        mut heard: Heard<'_>,
        cuts: &[usize],
        prompts: Prompts,
        options: &TranscribeOptions,
        cancel: &CancelToken,
        each: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Transcript> {
        let prompted = prompts.prompted().clone();
        let rate = f64::from(self.sample_rate_hz());
        let hop = self.ear.frame_samples();
        let frame_s = hop as f64 / rate;
        let mut recording = Recording {
            options,
            prompts,
            rules: Rules::of(&prompted),
            prompted: &prompted,
            cancel,
            transcript: Transcript {
                language: options.language.clone(),
                duration_s: heard.total() as f64 / rate,
                segments: Vec::new(),
            },
            spoken_s: 0.0,
        };
        let mut at = 0;
        while at < heard.frames() {
            let next = cuts[cuts.partition_point(|&cut| cut <= at * hop)..].first();
            let frames = heard.advance(at, next.map_or(heard.frames(), |cut| cut / hop))?;
            let known = recording.transcript.segments.len();
            at += match is_still(heard.samples(at..at + frames), self.sample_rate_hz()) {
                true => {
                    recording.prompts.pause();
                    frames
                }
                false => {
                    self.listen(heard.input(at..at + frames)?, options.words)?;
                    let until_s = self.window(&mut recording, at as f64 * frame_s, frames)?;
                    // A window of which nothing is closed would be read for ever.
                    ((until_s / frame_s).round() as usize).clamp(1, frames)
                }
            };
            let transcript = &recording.transcript;
            each(Progress {
                done_s: (at as f64 * frame_s).min(transcript.duration_s),
                duration_s: transcript.duration_s,
                segments: &transcript.segments[known..],
            });
        }
        Ok(recording.transcript)
    }

    /// The prompts for `options`, with what they need loaded.
    pub(crate) fn prepare(&mut self, options: &TranscribeOptions) -> Result<Prompts> {
        let Decoding::Prompted(prompted) = &self.speech.decoding else {
            return Err(unknown("decoding", &self.speech.decoding));
        };
        let context = self.hypotheses.program().context_tokens();
        self.check_words(options)?;
        let prompts = Prompts::new(prompted, options, &self.tokenizer, context)?;
        self.hypotheses.reserve(options.beams)?;
        if options.words && self.alignment.is_none() {
            self.alignment = Some(Alignment::load(&self.bundle, &self.ports[1])?);
        }
        Ok(prompts)
    }

    /// Most tokens of the text of so many frames.
    pub(crate) fn most_tokens(&self, frames: usize) -> usize {
        let context = self.hypotheses.program().context_tokens();
        let most = match self.tokens_per_second() {
            Some(limit) => (context - 1).min((f64::from(limit) * self.seconds(frames)).ceil() as usize),
            None => (context / 2).saturating_sub(1),
        };
        most.max(1)
    }

    fn tokens_per_second(&self) -> Option<f32> {
        match &self.speech.decoding {
            Decoding::Prompted(prompted) => prompted.tokens_per_second,
            _ => None,
        }
    }

    /// Whether a text that looks wrong is written again, at higher temperatures. The others have a limit to their length alone.
    pub(crate) fn tries_again(&self) -> bool {
        self.tokens_per_second().is_none()
    }

    /// The text of `tokens` behind that of others, with the space that parts them. Tokenizers of one kind leave it out at a
    /// text's beginning, which is why something has to stand in front.
    pub(crate) fn text(&self, before: &[u32], tokens: &[u32]) -> String {
        let before = match before {
            [] => &tokens[..tokens.len().min(1)],
            _ => before,
        };
        let all = self.tokenizer.decode(&[before, tokens].concat(), true);
        match all.strip_prefix(&self.tokenizer.decode(before, true)) {
            Some(text) => text.to_owned(),
            None => self.tokenizer.decode(tokens, true),
        }
    }

    /// Adds what is said in the window that was listened to last, with sound in so many frames, and says up to which second of it.
    fn window(&mut self, recording: &mut Recording<'_>, begin_s: f64, frames: usize) -> Result<f64> {
        let Recording { options, prompted, .. } = *recording;
        let length_s = self.seconds(frames);
        if recording.transcript.language.is_none() && !prompted.languages.is_empty() {
            recording.transcript.language = self.language(prompted)?;
        }
        let language = recording.transcript.language.clone();
        let before = recording.prompts.before();
        let written = Window {
            most_tokens: self.most_tokens(frames),
            tries_again: self.tries_again(),
            hypotheses: &mut self.hypotheses,
            tokenizer: &self.tokenizer,
            rules: &recording.rules,
            start: before.len(),
            prompt: &[before, recording.prompts.start(language.as_deref())].concat(),
            no_speech: prompted.no_speech,
            beams: options.beams,
            temperature: options.temperature,
            cancel: recording.cancel,
        }
        .write()?;
        if written.is_silent() {
            recording.prompts.add(&[], written.temperature);
            return Ok(length_s);
        }
        let cut = cut(&written.tokens, &recording.rules, length_s);
        let pieces = cut.pieces.iter();
        let mut segments: Vec<Segment> = pieces
            .map(|piece| self.segment(piece, begin_s, &written, &recording.rules))
            .collect();
        let mut until_s = cut.until_s;
        if options.words {
            let prompt = recording.prompts.start_without_times(language.as_deref());
            let kept = cut.pieces.iter().flat_map(|piece| piece.tokens.clone());
            let kept = kept.filter(|&i| !recording.rules.is_stamp(written.tokens[i]));
            let probabilities: Vec<f64> = kept.map(|i| libm::exp(written.logprobs[i])).collect();
            let words = self.words(&prompt, language.as_deref(), &segments, &probabilities, frames)?;
            recording.spoken_s = words::place(&mut segments, words, begin_s, recording.spoken_s);
            let last = segments.iter().rev().find_map(|s| s.words.last());
            // What follows the last word is read again, unless the model has said that nothing does.
            until_s = match last.map(|word| word.end_s - begin_s) {
                Some(end_s) if end_s > 0.0 && !cut.closed => end_s,
                _ => until_s,
            };
        }
        let known = recording.transcript.segments.len();
        recording.transcript.add(segments);
        let new = &recording.transcript.segments[known..];
        recording.prompts.add(new, written.temperature);
        Ok(until_s)
    }

    /// So many frames of the front end.
    pub(crate) fn seconds(&self, frames: usize) -> f64 {
        let hop_s = self.ear.frame_samples() as f64 / f64::from(self.sample_rate_hz());
        frames as f64 * hop_s
    }

    /// Computes what the decoder reads of a window.
    pub(crate) fn listen(&mut self, input: Tensor, words: bool) -> Result<()> {
        // The window before takes no memory meanwhile.
        self.states = None;
        self.hypotheses.forget()?;
        let inputs = BTreeMap::from([(self.ports[0].clone(), input)]);
        let (pool, threads) = self.hypotheses.pool();
        let states = self.encoder.run(pool, threads, &inputs)?;
        let states: BTreeMap<String, Tensor> = states.into_iter().filter(|(name, _)| *name == self.ports[1]).collect();
        self.hypotheses.hear(&states)?;
        // Words are found in them.
        self.states = states.into_values().next().filter(|_| words);
        Ok(())
    }

    /// The likeliest language of the window.
    pub(crate) fn language(&mut self, prompted: &Prompted) -> Result<Option<String>> {
        let best = self.language_chances(prompted)?.into_iter();
        let best = best.max_by(|a, b| a.probability.total_cmp(&b.probability));
        Ok(best.map(|chance| chance.code))
    }

    /// How likely each language is in the window.
    fn language_chances(&mut self, prompted: &Prompted) -> Result<Vec<LanguageChance>> {
        let mut found = Vec::new();
        self.hypotheses.read(&[prompted.start], 0, &mut |_, logits| {
            let chances = Chances::of(&logits);
            let largest = prompted.languages.values().map(|&token| chances.logprob(token));
            let largest = largest.fold(f64::NEG_INFINITY, f64::max);
            let each = prompted.languages.iter().map(|(code, &token)| LanguageChance {
                code: code.clone(),
                token,
                probability: libm::exp(chances.logprob(token) - largest),
            });
            found = each.collect::<Vec<_>>();
        })?;
        let sum: f64 = found.iter().map(|chance| chance.probability).sum();
        found.iter_mut().for_each(|chance| chance.probability /= sum);
        Ok(found)
    }

    fn segment(&self, piece: &Piece, begin_s: f64, written: &Written, rules: &Rules) -> Segment {
        let own = piece.tokens.clone().filter(|&i| !rules.is_stamp(written.tokens[i]));
        let tokens: Vec<u32> = own.clone().map(|i| written.tokens[i]).collect();
        Segment {
            id: 0,
            start_s: begin_s + piece.start_s,
            end_s: begin_s + piece.end_s,
            text: self.text(&[], &tokens),
            tokens,
            mean_logprob: written.mean_logprob,
            confidence: confidence(own.map(|i| written.logprobs[i]), written.compression),
            no_speech: written.no_speech,
            temperature: written.temperature,
            compression: written.compression,
            window_s: begin_s,
            words: Vec::new(),
        }
    }

    /// The words of a window of so many frames, in seconds from its beginning.
    pub(crate) fn words(
        &self,
        prompt: &[u32],
        language: Option<&str>,
        segments: &[Segment],
        probabilities: &[f64],
        frames: usize,
    ) -> Result<Vec<words::Timed>> {
        let (Some(alignment), Some(states)) = (&self.alignment, &self.states) else {
            return Ok(Vec::new());
        };
        let Decoding::Prompted(Prompted { end, .. }) = self.speech.decoding else {
            return Ok(Vec::new());
        };
        let segments: Vec<&[u32]> = segments.iter().map(|segment| &segment.tokens[..]).collect();
        let frames_each = self.ear.position_frames();
        let reading = Reading {
            prompt,
            segments: &segments,
            probabilities,
            end,
            language,
            states,
            heard: frames / frames_each,
            step_s: self.seconds(frames_each),
        };
        let (pool, threads) = self.hypotheses.pool();
        alignment.words(pool, threads, &self.tokenizer, &reading)
    }
}

/// Whether the loudest tenth of a second is too quiet for speech. Models of this kind write something of such windows, mostly "you".
fn is_still(samples: &[f32], rate_hz: u32) -> bool {
    let part = (rate_hz as usize / 10).max(1);
    let power = |part: &[f32]| part.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>() / part.len() as f64;
    samples.chunks(part).all(|part| power(part) < STILL * STILL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_the_space_before_its_first_word() {
        for name in ["whisper", "moonshine"] {
            let source = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../golden/speech")
                .join(name);
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m");
            cactus_import::convert(&source, &path, &Default::default(), &mut |_, _| {}).unwrap();
            let model = Transcriber::load(&path, Some(1)).unwrap();
            let tokens = |text: &str| model.tokenizer.encode_as_text(text, false).unwrap();
            // One tokenizer puts the space there itself.
            let space = if name == "whisper" { " " } else { "" };
            let (first, second) = (tokens(&format!("{space}the of")), tokens(&format!("{space}and é")));
            assert_eq!(model.text(&[], &first), " the of", "{name}");
            assert_eq!(model.text(&first, &second), " and é", "{name}");
            assert_eq!(model.text(&first, &[]), "", "{name}");
            assert_eq!(model.text(&[], &[]), "", "{name}");
            let both = [&first[..], &second].concat();
            assert_eq!(model.text(&[], &both), " the of and é", "{name}");
        }
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
}
