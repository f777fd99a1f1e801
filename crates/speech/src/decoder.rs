//! What a model writes with, by the kind of its record.

use crate::features::{Ear, unknown};
use crate::framewise::{Framewise, Lock, Run, Wishes};
use crate::heard::Piece;
use crate::hotwords::Hotwords;
use crate::prompt::Prompts;
use crate::scribe::Scribe;
use crate::{Error, Result, TranscribeOptions, Transcript};
use cactus_base::Pool;
use cactus_bundle::{Bundle, Decoding};
use cactus_engine::CancelToken;
use cactus_tensor::Tensor;
use cactus_text::Tokenizer;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A loaded decoder.
#[derive(Debug)]
pub(crate) enum Decoder {
    /// A prompt says what it should write.
    Prompted(Box<Scribe>),
    /// Each position of the sound says what is said there.
    Framewise(Box<Framewise>),
}

/// What is to be done with a recording, or with live speech.
#[derive(Debug)]
pub(crate) enum Task {
    /// See [`Decoder::Prompted`].
    Prompted(Box<Prompts>),
    /// See [`Decoder::Framewise`].
    Framewise(Box<Run>),
}

/// A recording on its way.
pub(crate) struct Recording<'a> {
    pub(crate) options: &'a TranscribeOptions,
    pub(crate) cancel: &'a CancelToken,
    pub(crate) transcript: Transcript,
    /// Where the last segment with words ends.
    pub(crate) spoken_s: f64,
}

/// What a decoder works between: the sound and the text.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) ear: &'a Ear,
    pub(crate) tokenizer: &'a Tokenizer,
}

impl Surroundings<'_> {
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

    /// Whether a token begins with the space before a word.
    pub(crate) fn begins_word(&self, token: u32) -> bool {
        let bytes = self.tokenizer.token_bytes(token);
        bytes.is_some_and(|bytes| bytes.starts_with(b" "))
    }

    /// The tokens that write a word behind others; `None` where they would write something else. Models without capitals get the word
    /// without them.
    fn tokens(&self, word: &str) -> Option<Vec<u32>> {
        let spelled = |word: &str, spaced: bool| {
            let text = if spaced { format!(" {word}") } else { word.to_owned() };
            let tokens = self.tokenizer.encode_as_text(&text, false).ok()?;
            (self.text(&[], &tokens) == format!(" {word}")).then_some(tokens)
        };
        // Some tokenizers put a space before a text by themselves.
        let either = |word: &str| spelled(word, false).or_else(|| spelled(word, true));
        either(word).or_else(|| either(&word.to_lowercase()))
    }
}

impl Decoder {
    /// Loads what `decoding` asks for.
    ///
    /// # Errors
    /// What does not write, or is damaged.
    pub(crate) fn load(
        bundle: &Arc<Bundle>,
        decoding: &Decoding,
        tokenizer: &Tokenizer,
        threads: usize,
    ) -> Result<Decoder> {
        if let Some(framewise) = Framewise::load(bundle, decoding, tokenizer, threads)? {
            return Ok(Decoder::Framewise(Box::new(framewise)));
        }
        match decoding {
            Decoding::Prompted(prompted) => Ok(Decoder::Prompted(Box::new(Scribe::load(bundle, prompted, threads)?))),
            other => Err(unknown("decoding", other)),
        }
    }

    /// What `options` ask for.
    ///
    /// # Errors
    /// [`Error::Option`] for what this model does not have.
    pub(crate) fn task(&self, options: &TranscribeOptions, surroundings: Surroundings<'_>) -> Result<Task> {
        match self {
            Decoder::Prompted(scribe) => {
                let context = scribe.hypotheses.program().context_tokens();
                let spell = |word: &str| surroundings.tokens(word);
                let prompts = Prompts::new(&scribe.prompted, options, surroundings.tokenizer, &spell, context)?;
                Ok(Task::Prompted(Box::new(prompts)))
            }
            Decoder::Framewise(framewise) => {
                Framewise::check(options)?;
                let lock = match &options.language {
                    Some(code) => framewise.lock(code, surroundings.tokenizer)?,
                    None => Lock::default(),
                };
                let hotwords = Hotwords::new(&options.hotwords, &|word| {
                    let tokens = surroundings.tokens(word)?;
                    lock.allows(&tokens).then_some(tokens)
                })?;
                Ok(Task::Framewise(Box::new(Run::new(Wishes { hotwords, lock }))))
            }
        }
    }

    /// Threads, and how many work at once.
    pub(crate) fn pool(&self) -> (&Pool, usize) {
        match self {
            Decoder::Prompted(scribe) => scribe.hypotheses.pool(),
            Decoder::Framewise(framewise) => framewise.pool(),
        }
    }

    /// Forgets the sound, whose memory is free then.
    pub(crate) fn forget(&mut self) -> Result<()> {
        match self {
            Decoder::Prompted(scribe) => scribe.forget(),
            Decoder::Framewise(framewise) => {
                framewise.forget();
                Ok(())
            }
        }
    }

    /// Takes what the encoder gave of the sound; `words` where times of words will be asked for.
    pub(crate) fn hear(&mut self, states: BTreeMap<String, Tensor>, words: bool) -> Result<()> {
        match self {
            Decoder::Prompted(scribe) => scribe.hear(states, words),
            Decoder::Framewise(framewise) => match states.values().next() {
                Some(states) => framewise.hear(states),
                None => Err(Error::Model("its encoder gives nothing".into())),
            },
        }
    }

    /// Adds what is said in the piece that was heard last, from frame `at` of the recording on. Says up to which second of it.
    pub(crate) fn write(
        &mut self,
        surroundings: Surroundings<'_>,
        task: &mut Task,
        recording: &mut Recording<'_>,
        at: usize,
        piece: &Piece,
    ) -> Result<f64> {
        match (self, task) {
            (Decoder::Prompted(scribe), Task::Prompted(prompts)) => {
                let begin_s = surroundings.ear.seconds(at);
                scribe.window(surroundings, prompts, recording, (begin_s, piece.frames))
            }
            (Decoder::Framewise(framewise), Task::Framewise(run)) => {
                run.write(framewise, surroundings, recording, at, piece)?;
                Ok(surroundings.ear.seconds(piece.frames))
            }
            _ => Err(other_model()),
        }
    }

    /// Bytes of memory beside the mapped weights.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Decoder::Prompted(scribe) => scribe.memory_bytes(),
            Decoder::Framewise(framewise) => framewise.memory_bytes(),
        }
    }
}

impl Task {
    /// Nobody spoke for a while.
    pub(crate) fn pause(&mut self, surroundings: Surroundings<'_>, recording: &mut Recording<'_>) {
        match self {
            Task::Prompted(prompts) => prompts.pause(),
            Task::Framewise(run) => run.close(surroundings, recording),
        }
    }
}

/// Where somebody takes another transcriber than a task was made for.
pub(crate) fn other_model() -> Error {
    Error::Option(
        "this stream was made for another model; it should be given the transcriber that it was made with".into(),
    )
}
