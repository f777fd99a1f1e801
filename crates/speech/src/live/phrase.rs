//! The text of a phrase that is spoken: what stays, what may change, and what is final.

use super::Commit;
use crate::decoder::{Decoder, Surroundings, Task, other_model};
use crate::framewise::{Behind, Token, Wishes, whole};
use crate::heard::Piece;
use crate::prompt::Prompts;
use crate::prompted::{Window, confidence, continued, repeats};
use crate::rules::Rules;
use crate::scribe::Scribe;
use crate::words::{self, is_spaced};
use crate::{Result, Segment, TranscribeOptions, Transcriber};
use cactus_audio::Samples;
use cactus_engine::CancelToken;

/// The phrase that is spoken.
#[derive(Debug, Default)]
pub(super) struct Phrase {
    pub(super) id: usize,
    /// Where it begins, in samples.
    pub(super) start: u64,
    pub(super) samples: Vec<f32>,
    /// How many of them lie before the chunk in which it begins.
    pub(super) lead: usize,
    pub(super) language: Option<String>,
    /// Tokens that stay, and their log-probabilities.
    pub(super) committed: Vec<u32>,
    logprobs: Vec<f64>,
    /// The same with their places, and where decoding goes on, of a model whose tokens have places.
    placed: Vec<Token>,
    pub(super) behind: Behind,
    /// The last text behind them.
    pub(super) draft: Vec<u32>,
    /// Samples of the phrase after which it is written again.
    pub(super) next: usize,
}

/// How phrases are written.
#[derive(Debug)]
pub(super) enum Manner {
    /// Behind a prompt, which has the text that stays. The rules are those at the beginning of a text, and behind it.
    Prompted(Box<Prompts>, Box<[Rules; 2]>),
    /// Along the sound: behind the place of the last token that stays.
    Framewise(Wishes),
}

/// How a phrase is to be written.
#[derive(Clone, Copy)]
pub(super) struct Orders<'a> {
    pub(super) options: &'a TranscribeOptions,
    pub(super) commit: Commit,
    pub(super) cancel: &'a CancelToken,
}

/// Where the sound of a phrase begins, and between which times somebody speaks, in seconds.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) begin_s: f64,
    pub(super) start_s: f64,
    pub(super) end_s: f64,
}

impl Manner {
    pub(super) fn of(task: Task) -> Manner {
        match task {
            Task::Prompted(prompts) => {
                let rules = Rules::of(prompts.prompted()).without_times();
                Manner::Prompted(prompts, Box::new([rules.clone(), rules.continued()]))
            }
            Task::Framewise(run) => Manner::Framewise(run.wishes),
        }
    }

    /// Commits what the text before and that of now agree on, or what was written of sound that is over, but for the last word, which may
    /// not be whole.
    pub(super) fn write(&self, transcriber: &mut Transcriber, phrase: &mut Phrase, orders: Orders<'_>) -> Result<()> {
        let by_attention = orders.commit == Commit::Attention;
        let frames = transcriber.hear(&phrase.samples, by_attention, orders.cancel)?;
        let surroundings = Surroundings {
            ear: &transcriber.ear,
            tokenizer: &transcriber.tokenizer,
        };
        let decode = |tokens: &[u32]| surroundings.tokenizer.decode(tokens, true);
        match (self, &mut transcriber.decoder) {
            (Manner::Prompted(prompts, rules), Decoder::Prompted(scribe)) => {
                phrase.find_language(scribe, orders.options)?;
                let prompt = [prompts.before(), phrase.prompt(prompts)].concat();
                let most = scribe.most_tokens(transcriber.ear.seconds(frames));
                let most = most.saturating_sub(phrase.committed.len());
                let (rules, hypotheses) = (phrase.rules(rules), &mut scribe.hypotheses);
                let text = continued(hypotheses, &prompt, &phrase.draft, rules, most, orders.cancel)?;
                let language = phrase.language.as_deref();
                let agreed = match repeats(&decode(&text.tokens)) {
                    true => 0,
                    false if by_attention => {
                        let settled = scribe.settled(surroundings, &phrase.prompt(prompts), &text.tokens, frames)?;
                        agreed(&text.tokens[..settled], &text.tokens, language, &decode)
                    }
                    false => agreed(&phrase.draft, &text.tokens, language, &decode),
                };
                phrase.commit(&text.tokens, &text.logprobs, agreed);
            }
            (Manner::Framewise(wishes), Decoder::Framewise(framewise)) => {
                let tokens = framewise.tokens(1, wishes, &phrase.behind, orders.cancel)?;
                let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
                let logprobs: Vec<f64> = tokens.iter().map(|token| token.logprob).collect();
                let agreed = agreed(&phrase.draft, &ids, None, &decode);
                framewise.keep(&tokens[..agreed], wishes, &mut phrase.behind)?;
                phrase.placed.extend_from_slice(&tokens[..agreed]);
                phrase.commit(&ids, &logprobs, agreed);
            }
            _ => return Err(other_model()),
        }
        Ok(())
    }

    /// The final text of a phrase, of the words that begin before sample `until` where text goes on behind it; `None` where there is none.
    pub(super) fn close(
        &mut self,
        transcriber: &mut Transcriber,
        phrase: &mut Phrase,
        orders: Orders<'_>,
        times: Times,
        until: Option<usize>,
        spoken_s: &mut f64,
    ) -> Result<Option<Segment>> {
        let Orders { options, cancel, .. } = orders;
        transcriber.reserve(options)?;
        let frames = transcriber.hear(&phrase.samples, options.words, cancel)?;
        let surroundings = Surroundings {
            ear: &transcriber.ear,
            tokenizer: &transcriber.tokenizer,
        };
        match (self, &mut transcriber.decoder) {
            (Manner::Prompted(prompts, rules), Decoder::Prompted(scribe)) => {
                let stretch = (times, frames);
                phrase.close_prompted(scribe, surroundings, (prompts, rules), orders, stretch, spoken_s)
            }
            (Manner::Framewise(wishes), Decoder::Framewise(framewise)) => {
                phrase.language.clone_from(&options.language);
                let new = match until {
                    None => framewise.tokens(options.beams, wishes, &phrase.behind, cancel)?,
                    Some(until) => {
                        let begins_word = |token| surroundings.begins_word(token);
                        let behind = &mut phrase.behind;
                        framewise.go_on_to_word(options.beams, wishes, behind, until, &begins_word, cancel)?
                    }
                };
                let tokens = [&phrase.placed[..], &new].concat();
                let stretch = framewise.stretch(surroundings.ear, times.begin_s, frames);
                let decode = |tokens: &[u32]| surroundings.text(&[], tokens);
                let segment = whole(&tokens, stretch, &decode);
                Ok(segment.map(|segment| Segment {
                    id: phrase.id,
                    text: decode(&segment.tokens),
                    words: if options.words { segment.words } else { Vec::new() },
                    ..segment
                }))
            }
            _ => Err(other_model()),
        }
    }
}

impl Phrase {
    /// One whose `samples` begin at `start`, `lead` of them before somebody speaks. It is first written at `next` samples.
    pub(super) fn new(id: usize, start: u64, samples: Vec<f32>, lead: usize, next: usize) -> Phrase {
        Phrase {
            id,
            start,
            samples,
            lead,
            next,
            ..Phrase::default()
        }
    }

    /// Where decoding begins in the sound from sample `first` on, which is heard after this phrase: what stays may reach over its end, and is
    /// not said twice. `goes_on` where it is heard with the end of this one, so that text goes on, too.
    pub(super) fn behind_cut(&self, transcriber: &Transcriber, first: usize, goes_on: bool) -> Behind {
        match (&transcriber.decoder, goes_on) {
            (Decoder::Prompted(_), _) => Behind::default(),
            (Decoder::Framewise(framewise), true) => framewise.later(&self.behind, first),
            (Decoder::Framewise(framewise), false) => {
                framewise.behind(framewise.written(&self.behind).saturating_sub(first))
            }
        }
    }

    fn commit(&mut self, tokens: &[u32], logprobs: &[f64], agreed: usize) {
        self.committed.extend_from_slice(&tokens[..agreed]);
        self.logprobs.extend_from_slice(&logprobs[..agreed]);
        self.draft = tokens[agreed..].to_vec();
    }

    /// What a decoder that is prompted continues: language and task, and the text that stays.
    fn prompt(&self, prompts: &Prompts) -> Vec<u32> {
        let mut prompt = prompts.start_without_times(self.language.as_deref());
        prompt.extend_from_slice(&self.committed);
        prompt
    }

    fn rules<'a>(&self, rules: &'a [Rules; 2]) -> &'a Rules {
        &rules[usize::from(!self.committed.is_empty())]
    }

    /// The language, unless there is text in it that stays.
    fn find_language(&mut self, scribe: &mut Scribe, options: &TranscribeOptions) -> Result<()> {
        if options.language.is_some() {
            self.language.clone_from(&options.language);
        } else if self.committed.is_empty() && !scribe.prompted.languages.is_empty() {
            self.language = scribe.language()?;
        }
        Ok(())
    }

    /// The final text by a prompt.
    fn close_prompted(
        &mut self,
        scribe: &mut Scribe,
        surroundings: Surroundings<'_>,
        (prompts, rules): (&mut Prompts, &[Rules; 2]),
        Orders { options, cancel, .. }: Orders<'_>,
        (times, frames): (Times, usize),
        spoken_s: &mut f64,
    ) -> Result<Option<Segment>> {
        self.find_language(scribe, options)?;
        let before = prompts.before();
        let most = scribe.most_tokens(surroundings.ear.seconds(frames));
        let written = Window {
            most_tokens: most.saturating_sub(self.committed.len()).max(1),
            tries_again: scribe.tries_again(),
            no_speech: scribe.prompted.no_speech,
            hypotheses: &mut scribe.hypotheses,
            tokenizer: surroundings.tokenizer,
            rules: self.rules(rules),
            start: before.len(),
            prompt: &[before, self.prompt(prompts)].concat(),
            beams: options.beams,
            temperature: options.temperature,
            cancel,
        }
        .write()?;
        if self.committed.is_empty() && written.is_silent() {
            prompts.pause();
            return Ok(None);
        }
        let known: f64 = self.logprobs.iter().sum();
        let new = written.mean_logprob * (written.tokens.len() + 1) as f64;
        let tokens = [&self.committed[..], &written.tokens].concat();
        let logprobs = [&self.logprobs[..], &written.logprobs].concat();
        let mut segment = [Segment {
            id: self.id,
            start_s: times.start_s,
            end_s: times.end_s,
            text: surroundings.text(&[], &tokens),
            mean_logprob: (known + new) / (tokens.len() + 1) as f64,
            confidence: confidence(logprobs.iter().copied(), written.compression),
            no_speech: written.no_speech,
            temperature: written.temperature,
            compression: written.compression,
            window_s: times.begin_s,
            words: Vec::new(),
            tokens,
        }];
        if options.words {
            let language = self.language.as_deref();
            let probabilities: Vec<f64> = logprobs.iter().map(|&l| libm::exp(l)).collect();
            let prompt = prompts.start_without_times(language);
            let words = scribe.words(surroundings, &prompt, language, &segment, &probabilities, frames)?;
            *spoken_s = words::place(&mut segment, words, times.begin_s, *spoken_s);
        }
        if !segment[0].text.trim().is_empty() {
            prompts.add(&segment, written.temperature);
        }
        let [segment] = segment;
        Ok(Some(segment))
    }
}

impl Transcriber {
    /// Lets the model hear one window, and says how many of its frames have sound.
    fn hear(&mut self, samples: &[f32], words: bool, cancel: &CancelToken) -> Result<usize> {
        let mut sound = Samples::new(samples);
        let mut heard = self.ear.hear(&mut sound, cancel)?;
        let frames = heard.frames().min(self.ear.most_frames());
        heard.advance(0, frames)?;
        let input = heard.input(0, &Piece::alone(frames))?;
        self.listen(input, words)?;
        Ok(frames)
    }
}

/// How many tokens two texts in a row begin with alike, up to the beginning of a word of the second.
fn agreed(before: &[u32], now: &[u32], language: Option<&str>, decode: &dyn Fn(&[u32]) -> String) -> usize {
    let common = before.iter().zip(now).take_while(|(a, b)| a == b).count();
    let begins_word = |at: usize| match is_spaced(language) {
        // The space of a text's first word is left out by some.
        true => decode(&now[..=at])
            .strip_prefix(&decode(&now[..at]))
            .is_some_and(|text| text.starts_with(' ')),
        false => !decode(&now[..at]).ends_with(char::REPLACEMENT_CHARACTER),
    };
    let places = (1..=common).rev().filter(|&at| at < now.len());
    places.into_iter().find(|&at| begins_word(at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_texts_agree_on_is_committed_up_to_the_last_word() {
        let pieces = [" a", " b", "c", " d", "x"];
        let decode = |tokens: &[u32]| tokens.iter().map(|&t| pieces[t as usize]).collect::<String>();
        for (before, now, spaced, unspaced) in [
            (&[][..], &[0, 1][..], 0, 0),
            (&[0, 1, 2], &[0, 1, 2], 1, 2),
            (&[0, 1, 2], &[0, 1, 2, 3], 3, 3),
            (&[0, 1, 2, 3], &[0, 1, 4, 3], 1, 2),
            (&[0, 1, 2, 3], &[4], 0, 0),
            (&[0, 1], &[], 0, 0),
        ] {
            assert_eq!(agreed(before, now, Some("de"), &decode), spaced, "{before:?} {now:?}");
            assert_eq!(agreed(before, now, Some("ja"), &decode), unspaced, "{before:?} {now:?}");
            // Where a text's first space is left out, words begin where they do.
            let bare = |tokens: &[u32]| decode(tokens).trim_start().to_owned();
            assert_eq!(agreed(before, now, Some("de"), &bare), spaced, "{before:?} {now:?}");
        }
    }
}
