//! A bundle that hears, and whole recordings.

use crate::alignment;
use crate::decoder::{Decoder, Recording, Surroundings, Task};
use crate::features::Ear;
use crate::heard::{Heard, Piece};
use crate::local::Local;
use crate::phantoms;
use crate::streaming::{Passage, Streaming};
use crate::{Error, Result, Segment, Transcript};
use cactus_audio::{Samples, Sound};
use cactus_base::Cores;
use cactus_bundle::{Bundle, Decoding};
use cactus_engine::{CancelToken, Model};
use cactus_runtime::Function;
use cactus_tensor::Tensor;
use cactus_text::Tokenizer;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Root of the mean square of a sound below which nobody speaks: -60 dB.
const STILL: f64 = 1e-3;

/// How a recording is transcribed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TranscribeOptions {
    /// Code of the language that is spoken, such as `de`; `None` finds out from the first window. A model whose text goes along with the
    /// sound is held to the letters of the language, which says little where another has the same ones.
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
    /// Words that may be said. A model that reads text before a window gets to read them; with any other, tokens that go on along one of
    /// them get a bonus, which decides near ties, and there may be 200 of them.
    pub hotwords: Vec<String>,
    /// Leave out what nobody may have said, beside at least so many seconds of silence: segments whose words are unlikely, very short or
    /// very long. At least 0.1; `None` leaves nothing out. For models that write times, which are those of words then, whether they are asked
    /// for or not. Live speech refuses it, as it is found before it is written.
    pub hallucination_silence_s: Option<f64>,
    /// How freely tokens are drawn, from 0 to 1. With 0 the likeliest are taken, and higher temperatures tried where the text looks
    /// wrong; any other is the only one.
    pub temperature: f64,
}

impl TranscribeOptions {
    /// Leaves out what goes without saying: a model that can be told no language knows English, and most programs name that one whatever the
    /// model is.
    pub fn fit(&mut self, transcriber: &Transcriber) {
        if transcriber.languages().next().is_none() {
            self.language.take_if(|code| code == "en");
        }
    }

    /// Whether times of words have to be found.
    pub(crate) fn finds_words(&self) -> bool {
        self.words || self.hallucination_silence_s.is_some()
    }
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

impl LanguageChance {
    /// How evenly the chances are spread: their entropy beside that of equal chances, from 0 (one language is certain) to 1 (all are as
    /// likely, or there are none).
    #[must_use]
    pub fn entropy(chances: &[LanguageChance]) -> f64 {
        let plogp = |p: f64| if p > 0.0 { p * p.ln() } else { 0.0 };
        match chances.len() {
            0 => 1.0,
            1 => 0.0,
            n => -chances.iter().map(|chance| plogp(chance.probability)).sum::<f64>() / (n as f64).ln(),
        }
    }
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
    pub(crate) ear: Ear,
    encoder: Function,
    /// Names of the encoder's input and output.
    ports: [String; 2],
    pub(crate) decoder: Decoder,
    /// For sound of any length, where the bundle has it.
    pub(crate) local: Option<Local>,
    /// For sound that goes on, where the bundle has it.
    pub(crate) streaming: Option<Streaming>,
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
            return Err(Error::Model(format!(
                "`{}` does not transcribe: it finds where somebody speaks",
                folder.display()
            )));
        }
        let threads = threads.unwrap_or_else(|| Cores::detect().threads()).max(1);
        let (tokenizer, _) = Model::load_text(&bundle)?;
        let decoder = Decoder::load(&bundle, &speech.decoding, &tokenizer, threads)?;
        let ear = Ear::new(&speech)?;
        let encoder = Function::new(Arc::clone(&bundle), "encoder", None)?;
        let declared = bundle.manifest().components.iter().find(|c| c.name == "encoder");
        let ports = declared.and_then(|c| Some([c.inputs.first()?.name.clone(), c.outputs.first()?.name.clone()]));
        let Some(ports) = ports else {
            return Err(Error::Model("its encoder has no input or no output".into()));
        };
        let local = speech.local.map(|about| Local::load(&bundle, about)).transpose()?;
        let streaming = match (speech.streaming, ear.position_frames()) {
            (Some(about), Some(position)) => Some(Streaming::load(&bundle, about, position, &ports)?),
            _ => None,
        };
        Ok(Transcriber {
            ear,
            local,
            streaming,
            encoder,
            ports,
            decoder,
            tokenizer,
            bundle,
        })
    }

    /// Samples a second that it takes.
    #[must_use]
    pub fn sample_rate_hz(&self) -> u32 {
        self.ear.sample_rate_hz()
    }

    /// Codes of the languages that it can be told, or, where text goes along with the sound, be held to by their letters; none where it knows
    /// one alone.
    pub fn languages(&self) -> impl Iterator<Item = &str> {
        let (told, held) = match &self.decoder {
            Decoder::Prompted(scribe) => (Some(scribe.prompted.languages.keys()), &[][..]),
            Decoder::Framewise(framewise) => (None, framewise.languages()),
        };
        told.into_iter()
            .flatten()
            .map(String::as_str)
            .chain(held.iter().copied())
    }

    /// Whether it can say which language is spoken ([`Transcriber::detect_language_in`]).
    #[must_use]
    pub fn tells_languages(&self) -> bool {
        matches!(&self.decoder, Decoder::Prompted(scribe) if !scribe.prompted.languages.is_empty())
    }

    /// Whether it can say when a word is said ([`TranscribeOptions::words`]): its bundle has what is needed for it.
    #[must_use]
    pub fn has_words(&self) -> bool {
        let mut components = self.bundle.manifest().components.iter();
        let aligned = components.any(|component| component.name == alignment::NAME);
        matches!(self.decoder, Decoder::Framewise(_)) || (aligned && self.ear.position_frames().is_some())
    }

    /// Whether this model has these options.
    ///
    /// # Errors
    /// [`Error::Option`] with what it has.
    pub fn check(&self, options: &TranscribeOptions) -> Result<()> {
        self.task(options).map(drop)
    }

    fn task(&self, options: &TranscribeOptions) -> Result<Task> {
        phantoms::check(options)?;
        if options.finds_words() && !self.has_words() {
            return Err(alignment::missing());
        }
        self.decoder.task(options, self.surroundings())
    }

    pub(crate) fn surroundings(&self) -> Surroundings<'_> {
        let (ear, tokenizer) = (&self.ear, &self.tokenizer);
        Surroundings { ear, tokenizer }
    }

    /// Bytes of memory beside the mapped weights: states and activations of the decoder.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.decoder.memory_bytes()
    }

    /// As [`Transcriber::detect_language_in`], of samples in memory.
    ///
    /// # Errors
    /// As [`Transcriber::transcribe`].
    pub fn detect_language(&mut self, samples: &[f32]) -> Result<Vec<LanguageChance>> {
        self.detect_language_in(&mut Samples::new(samples))
    }

    /// How likely each of its languages is in the first window of `sound`, the likeliest first. There are none where nobody speaks, or
    /// of a model that tells no languages apart. No more than that window is read.
    ///
    /// # Errors
    /// As [`Transcriber::transcribe_sound`].
    pub fn detect_language_in(&mut self, sound: &mut dyn Sound) -> Result<Vec<LanguageChance>> {
        if !self.tells_languages() {
            return Ok(Vec::new());
        }
        let most = self.ear.most_frames() * self.ear.frame_samples();
        let mut first = Vec::new();
        sound.rewind()?;
        while first.len() < most && sound.read(&mut first)? {}
        first.truncate(most);
        if is_still(&first, self.sample_rate_hz()) {
            return Ok(Vec::new());
        }
        let (mut first, cancel) = (Samples::new(first), CancelToken::new());
        let mut heard = self.ear.hear(&mut first, &cancel)?;
        let piece = heard.advance(0, usize::MAX)?;
        let input = heard.input(0, &piece)?;
        self.listen(input, false)?;
        let Decoder::Prompted(scribe) = &mut self.decoder else {
            return Ok(Vec::new());
        };
        let mut found = scribe.language_chances()?;
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
        let task = self.prepare(options)?;
        let heard = self.ear.hear_levelled(sound, self.local.is_some(), cancel)?;
        self.transcribe_heard(heard, &[], task, options, cancel, each)
    }

    /// Transcribes what was read once, with what [`Transcriber::prepare`] gave. A model that hears pieces of a recording gets none that goes over one of
    /// `cuts`, places in the samples in ascending order.
    pub(crate) fn transcribe_heard(
        &mut self,
        mut heard: Heard<'_>,
        cuts: &[usize],
        mut task: Task,
        options: &TranscribeOptions,
        cancel: &CancelToken,
        each: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Transcript> {
        let rate = f64::from(self.sample_rate_hz());
        let hop = self.ear.frame_samples();
        let frame_s = hop as f64 / rate;
        let mut recording = Recording {
            options,
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
            let until = next.map_or(heard.frames(), |cut| cut / hop);
            if self.local.is_some() && until - at > self.ear.most_frames() {
                self.pass(&mut heard, at..until, &mut task, &mut recording, each)?;
                at = until;
                continue;
            }
            let piece = heard.advance(at, until)?;
            let frames = piece.frames;
            let known = recording.transcript.segments.len();
            at += match is_still(heard.samples(at..at + frames), self.sample_rate_hz()) {
                true => {
                    task.pause(self.surroundings(), &mut recording);
                    frames
                }
                false => {
                    self.listen(heard.input(at, &piece)?, options.finds_words())?;
                    let surroundings = Surroundings {
                        ear: &self.ear,
                        tokenizer: &self.tokenizer,
                    };
                    let until_s = self
                        .decoder
                        .write(surroundings, &mut task, &mut recording, at, &piece)?;
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

    /// Transcribes `frames`, which go on from what was heard last, as a whole.
    fn pass(
        &mut self,
        heard: &mut Heard<'_>,
        frames: Range<usize>,
        task: &mut Task,
        recording: &mut Recording<'_>,
        each: &mut dyn FnMut(Progress<'_>),
    ) -> Result<()> {
        let (Some(local), Some(frontend), Some(overlap)) = (&self.local, self.ear.frontend(), self.ear.overlap())
        else {
            return Ok(());
        };
        let surroundings = Surroundings {
            ear: &self.ear,
            tokenizer: &self.tokenizer,
        };
        let block = local.block(overlap.position);
        let (mut stream, mut passage, mut features) = (frontend.stream(), local.begin(), Vec::new());
        let (mut read, mut at) = (frames.start, frames.start);
        // Of each block on its way whether nobody speaks in it.
        let mut still = VecDeque::new();
        while read < frames.end || passage.goes_on() {
            if read < frames.end {
                let until = frames.end.min(read + block);
                let samples = heard.next(read..until)?;
                still.push_back(is_still(samples, self.ear.sample_rate_hz()));
                features.clear();
                stream.push(samples, &mut features);
                read = until;
                if read == frames.end {
                    stream.finish(&mut features);
                }
                if let Some(spread) = heard.spread() {
                    frontend.normalize_by(&mut features, spread);
                }
                passage.push(local, self.decoder.pool(), &features, read < frames.end)?;
            }
            while let Some(states) = passage.next(local, self.decoder.pool())? {
                if recording.cancel.is_cancelled() {
                    return Err(Error::Cancelled);
                }
                // What is left behind the last one has no position.
                let end = match passage.goes_on() {
                    true => at + block,
                    false => frames.end,
                };
                let piece = Piece::within(end - at, end < frames.end);
                let known = recording.transcript.segments.len();
                match still.pop_front() {
                    Some(true) => task.pause(surroundings, recording),
                    _ => {
                        self.decoder
                            .hear(BTreeMap::from([(self.ports[1].clone(), states)]), false)?;
                        self.decoder.write(surroundings, task, recording, at, &piece)?;
                    }
                }
                at = end;
                each(Progress {
                    done_s: self.ear.seconds(at),
                    duration_s: recording.transcript.duration_s,
                    segments: &recording.transcript.segments[known..],
                });
            }
        }
        task.pause(surroundings, recording);
        Ok(())
    }

    /// What is to be done for `options`, with what it needs loaded.
    pub(crate) fn prepare(&mut self, options: &TranscribeOptions) -> Result<Task> {
        let task = self.task(options)?;
        self.reserve(options)?;
        Ok(task)
    }

    /// Loads what says where the model looks while it writes.
    pub(crate) fn prepare_attention(&mut self) -> Result<()> {
        match &mut self.decoder {
            Decoder::Prompted(scribe) if !matches!(self.ear, Ear::Samples(..)) => {
                scribe.align(&self.bundle, &self.ports[1])
            }
            _ => Err(Error::Option(
                "text is committed by attention with models of Whisper's kind alone; commit by agreement".into(),
            )),
        }
    }

    /// Loads what `options` need.
    pub(crate) fn reserve(&mut self, options: &TranscribeOptions) -> Result<()> {
        match &mut self.decoder {
            Decoder::Prompted(scribe) => scribe.reserve(&self.bundle, &self.ports[1], options),
            Decoder::Framewise(_) => Ok(()),
        }
    }

    /// As [`Transcriber::listen`], of sound that goes on, where the model hears only what is new of it. Says whether it could.
    pub(crate) fn listen_on(&mut self, passage: &mut Passage, samples: &[f32], words: bool) -> Result<bool> {
        let Some(streaming) = &self.streaming else {
            return Ok(false);
        };
        let Some(states) = streaming.hear(self.decoder.pool(), passage, samples)? else {
            return Ok(false);
        };
        self.decoder.forget()?;
        self.decoder
            .hear(BTreeMap::from([(self.ports[1].clone(), states)]), words)?;
        Ok(true)
    }

    /// Computes what the decoder reads of a window or a piece; `words` where times of words will be asked for.
    pub(crate) fn listen(&mut self, input: Tensor, words: bool) -> Result<()> {
        // The window before takes no memory meanwhile.
        self.decoder.forget()?;
        let inputs = BTreeMap::from([(self.ports[0].clone(), input)]);
        let (pool, threads) = self.decoder.pool();
        let states = self.encoder.run(pool, threads, &inputs)?;
        drop(inputs);
        // What the decoder keeps of them takes its place.
        self.encoder.release();
        let states: BTreeMap<String, Tensor> = states.into_iter().filter(|(name, _)| *name == self.ports[1]).collect();
        self.decoder.hear(states, words)
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
            assert_eq!(model.surroundings().text(&[], &first), " the of", "{name}");
            assert_eq!(model.surroundings().text(&first, &second), " and é", "{name}");
            assert_eq!(model.surroundings().text(&first, &[]), "", "{name}");
            assert_eq!(model.surroundings().text(&[], &[]), "", "{name}");
            let both = [&first[..], &second].concat();
            assert_eq!(model.surroundings().text(&[], &both), " the of and é", "{name}");
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
