//! The text of a phrase that is spoken: what stays, what may change, and what is final.

use super::Commit;
use crate::decoder::{Decoder, Surroundings, Task, other_model};
use crate::framewise::{Behind, Framewise, Token, Wishes, whole};
use crate::heard::Piece;
use crate::hotwords::Along;
use crate::loops;
use crate::prompt::Prompts;
use crate::prompted::{Continued, Window, Written, confidence, repeats};
use crate::rules::Rules;
use crate::scribe::Scribe;
use crate::streaming::Passage;
use crate::words::{self, ENDS, Timed, is_spaced};
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
    /// What a model that goes on with sound has heard of it.
    passage: Passage,
    /// Its final text, where it may be over.
    pub(super) ready: Option<Ready>,
    /// The model hears its whole window: with less of it, it has begun to repeat itself.
    whole: bool,
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
    /// Frames behind the sound that are heard with it, where the window of the model is cut.
    pub(super) margin: Option<usize>,
    pub(super) cancel: &'a CancelToken,
}

impl Orders<'_> {
    /// The same for a phrase.
    fn of(self, phrase: &Phrase) -> Self {
        Orders {
            margin: self.margin.filter(|_| !phrase.whole),
            ..self
        }
    }
}

/// What comes behind a phrase that is written as if it were all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// More of it, perhaps: what stays is committed.
    Perhaps,
    /// Nothing of it.
    Nothing,
    /// The next phrase, which has the words that begin at this sample and later, and hears the end of this one with them.
    Next(usize),
}

/// Where the sound of a phrase begins, and between which times somebody speaks, in seconds.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) begin_s: f64,
    pub(super) start_s: f64,
    pub(super) end_s: f64,
}

/// A text that is final if nobody speaks any more.
#[derive(Debug)]
pub(super) struct Ready {
    /// `None` where there is none.
    segment: Option<Segment>,
    /// Its words, from the beginning of the sound, of a model that is prompted.
    words: Vec<Timed>,
}

impl Ready {
    /// Whether it ends a sentence. What trails off does not.
    pub(super) fn is_sentence(&self) -> bool {
        self.segment.as_ref().is_some_and(|segment| {
            let text = segment.text.trim_end();
            let quoted = text.trim_end_matches(|c: char| !c.is_alphanumeric() && !ENDS.contains(c));
            quoted.ends_with(|c| ENDS.contains(c)) && !quoted.ends_with("..")
        })
    }
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

    /// Writes what is said so far, and commits what stays.
    pub(super) fn write(&self, transcriber: &mut Transcriber, phrase: &mut Phrase, orders: Orders<'_>) -> Result<()> {
        let orders = orders.of(phrase);
        let frames = transcriber.hear(phrase, orders.commit == Commit::Attention, orders)?;
        let surroundings = Surroundings {
            ear: &transcriber.ear,
            tokenizer: &transcriber.tokenizer,
        };
        match (self, &mut transcriber.decoder) {
            (Manner::Prompted(prompts, rules), Decoder::Prompted(scribe)) => {
                phrase.find_language(scribe, orders.options)?;
                let prompt = [prompts.before(), phrase.prompt(prompts)].concat();
                let most = scribe.most_tokens(transcriber.ear.seconds(frames));
                let most = most.saturating_sub(phrase.committed.len());
                let continued = Continued {
                    prompt: &prompt,
                    start: prompt.len() - 1,
                    draft: &phrase.draft,
                    rules: phrase.rules(rules),
                    hotwords: prompts.tree(),
                    along: phrase.along(prompts),
                    most,
                    cancel: orders.cancel,
                };
                let text = continued.write(&mut scribe.hypotheses, &mut |_, _| {})?;
                if orders.margin.is_some() && phrase.goes_round(surroundings, &text.tokens) {
                    phrase.whole = true;
                    return self.write(transcriber, phrase, orders);
                }
                let text = (&text.tokens[..], &text.logprobs[..]);
                phrase.agree(scribe, surroundings, prompts, text, (orders.commit, frames))
            }
            (Manner::Framewise(wishes), Decoder::Framewise(framewise)) => {
                let tokens = framewise.tokens(1, wishes, &phrase.behind, orders.cancel)?;
                phrase.agree_along(framewise, surroundings, wishes, &tokens)
            }
            _ => Err(other_model()),
        }
    }

    /// Writes what is said so far as if it were all.
    pub(super) fn ready(
        &self,
        transcriber: &mut Transcriber,
        phrase: &mut Phrase,
        orders: Orders<'_>,
        times: Times,
        then: Then,
    ) -> Result<Ready> {
        let (options, orders) = (orders.options, orders.of(phrase));
        let goes_on = then == Then::Perhaps;
        transcriber.reserve(options)?;
        let looks = options.words || goes_on && orders.commit == Commit::Attention;
        let frames = transcriber.hear(phrase, looks, orders)?;
        let surroundings = Surroundings {
            ear: &transcriber.ear,
            tokenizer: &transcriber.tokenizer,
        };
        match (self, &mut transcriber.decoder) {
            (Manner::Prompted(prompts, rules), Decoder::Prompted(scribe)) => {
                let stretch = (times, frames);
                let ready = phrase.ready_prompted(scribe, surroundings, (prompts, rules), orders, stretch)?;
                let Some((ready, written)) = ready else {
                    phrase.whole = true;
                    return self.ready(transcriber, phrase, orders, times, then);
                };
                if goes_on {
                    let text = (&written.tokens[..], &written.logprobs[..]);
                    phrase.agree(scribe, surroundings, prompts, text, (orders.commit, frames))?;
                }
                Ok(ready)
            }
            (Manner::Framewise(wishes), Decoder::Framewise(framewise)) => {
                phrase.language.clone_from(&options.language);
                let new = match then {
                    Then::Perhaps | Then::Nothing => {
                        framewise.tokens(options.beams, wishes, &phrase.behind, orders.cancel)?
                    }
                    Then::Next(at) => {
                        let begins_word = |token| surroundings.begins_word(token);
                        let behind = &mut phrase.behind;
                        framewise.go_on_to_word(options.beams, wishes, behind, at, &begins_word, orders.cancel)?
                    }
                };
                let tokens = [&phrase.placed[..], &new].concat();
                let stretch = framewise.stretch(surroundings.ear, times.begin_s, frames);
                let decode = |tokens: &[u32]| surroundings.text(&[], tokens);
                let segment = whole(&tokens, stretch, &decode);
                let segment = segment.map(|segment| Segment {
                    id: phrase.id,
                    text: decode(&segment.tokens),
                    words: if options.words { segment.words } else { Vec::new() },
                    ..segment
                });
                if goes_on {
                    phrase.agree_along(framewise, surroundings, wishes, &new)?;
                }
                let words = Vec::new();
                Ok(Ready { segment, words })
            }
            _ => Err(other_model()),
        }
    }

    /// Makes a text final; `None` where there is none. `spoken_s` is where the last phrase with words ended.
    pub(super) fn settle(&mut self, ready: Ready, spoken_s: &mut f64) -> Option<Segment> {
        let Manner::Prompted(prompts, _) = self else {
            return ready.segment;
        };
        let Some(segment) = ready.segment else {
            prompts.pause();
            return None;
        };
        let mut segment = [segment];
        if !ready.words.is_empty() {
            let begin_s = segment[0].window_s;
            *spoken_s = words::place(&mut segment, ready.words, begin_s, *spoken_s);
        }
        if !segment[0].text.trim().is_empty() {
            let temperature = segment[0].temperature;
            prompts.add(&segment, temperature);
        }
        let [segment] = segment;
        Some(segment)
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

    /// Commits what the text before and a new one agree on, or what was written of sound that is over, but for the last word, which may
    /// not be whole.
    fn agree(
        &mut self,
        scribe: &Scribe,
        surroundings: Surroundings<'_>,
        prompts: &Prompts,
        (tokens, logprobs): (&[u32], &[f64]),
        (commit, frames): (Commit, usize),
    ) -> Result<()> {
        let decode = |tokens: &[u32]| surroundings.tokenizer.decode(tokens, true);
        let language = self.language.as_deref();
        let whole = surroundings.text(&[], &[&self.committed[..], tokens].concat());
        let is_loop = repeats(&decode(tokens)) || loops::is_stuck(&whole, language);
        let agreed = match (is_loop, commit) {
            (true, _) => 0,
            (false, Commit::Attention) => {
                let settled = scribe.settled(surroundings, &self.prompt(prompts), tokens, frames)?;
                agreed(&tokens[..settled], tokens, language, &decode)
            }
            (false, Commit::Agreement) => agreed(&self.draft, tokens, language, &decode),
        };
        self.commit(tokens, logprobs, agreed);
        Ok(())
    }

    /// The same of tokens that have places.
    fn agree_along(
        &mut self,
        framewise: &mut Framewise,
        surroundings: Surroundings<'_>,
        wishes: &Wishes,
        tokens: &[Token],
    ) -> Result<()> {
        let decode = |tokens: &[u32]| surroundings.tokenizer.decode(tokens, true);
        let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
        let logprobs: Vec<f64> = tokens.iter().map(|token| token.logprob).collect();
        let agreed = agreed(&self.draft, &ids, None, &decode);
        framewise.keep(&tokens[..agreed], wishes, &mut self.behind)?;
        self.placed.extend_from_slice(&tokens[..agreed]);
        self.commit(&ids, &logprobs, agreed);
        Ok(())
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

    /// How far the text that stays has come among the hotwords.
    fn along(&self, prompts: &Prompts) -> Along {
        prompts.tree().follow(Along::default(), &self.committed)
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

    /// Whether the text goes round in circles with these tokens.
    fn goes_round(&self, surroundings: Surroundings<'_>, tokens: &[u32]) -> bool {
        let text = surroundings.text(&[], &[&self.committed[..], tokens].concat());
        loops::goes_round(&text, self.language.as_deref()) || repeats(&text)
    }

    /// The final text by a prompt, and what was written of it now; `None` where it looks wrong and more of the window can be heard.
    fn ready_prompted(
        &mut self,
        scribe: &mut Scribe,
        surroundings: Surroundings<'_>,
        (prompts, rules): (&Prompts, &[Rules; 2]),
        Orders {
            options,
            margin,
            cancel,
            ..
        }: Orders<'_>,
        (times, frames): (Times, usize),
    ) -> Result<Option<(Ready, Written)>> {
        self.find_language(scribe, options)?;
        let before = prompts.before();
        let most = scribe.most_tokens(surroundings.ear.seconds(frames));
        let written = Window {
            most_tokens: most.saturating_sub(self.committed.len()).max(1),
            // Before higher temperatures comes more of the window.
            tries_again: scribe.tries_again() && margin.is_none(),
            no_speech: scribe.prompted.no_speech,
            hypotheses: &mut scribe.hypotheses,
            tokenizer: surroundings.tokenizer,
            rules: self.rules(rules),
            hotwords: prompts.tree(),
            along: self.along(prompts),
            start: before.len(),
            prompt: &[before, self.prompt(prompts)].concat(),
            draft: &self.draft,
            beams: options.beams,
            temperature: options.temperature,
            cancel,
        }
        .write()?;
        if margin.is_some() && (!written.looks_right() || self.goes_round(surroundings, &written.tokens)) {
            return Ok(None);
        }
        let mut ready = Ready {
            segment: None,
            words: Vec::new(),
        };
        if self.committed.is_empty() && written.is_silent() {
            return Ok(Some((ready, written)));
        }
        let known: f64 = self.logprobs.iter().sum();
        let new = written.mean_logprob * (written.tokens.len() + 1) as f64;
        let tokens = [&self.committed[..], &written.tokens].concat();
        let logprobs = [&self.logprobs[..], &written.logprobs].concat();
        let segment = Segment {
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
        };
        if options.words {
            let language = self.language.as_deref();
            let probabilities: Vec<f64> = logprobs.iter().map(|&l| libm::exp(l)).collect();
            let prompt = prompts.start_without_times(language);
            let segments = std::slice::from_ref(&segment);
            ready.words = scribe.words(surroundings, &prompt, language, segments, &probabilities, frames)?;
        }
        ready.segment = Some(segment);
        Ok(Some((ready, written)))
    }
}

/// Cut windows are made longer to a multiple of so many frames: those of another size are planned anew.
const WINDOW_FRAMES: usize = 100;

impl Transcriber {
    /// Lets the model hear a phrase, one window of it, and says how many of its frames have sound. `looks` where it will be asked what was looked at.
    fn hear(&mut self, phrase: &mut Phrase, looks: bool, orders: Orders<'_>) -> Result<usize> {
        let samples = &phrase.samples[..];
        let frames = samples.len().min(self.ear.most_frames());
        if self.listen_on(&mut phrase.passage, &samples[..frames], looks)? {
            return Ok(frames);
        }
        let mut sound = Samples::new(samples);
        let mut heard = self.ear.hear(&mut sound, orders.cancel)?;
        let frames = heard.frames().min(self.ear.most_frames());
        heard.advance(0, frames)?;
        let window = orders.margin.map_or(usize::MAX, |margin| {
            frames.saturating_add(margin).next_multiple_of(WINDOW_FRAMES)
        });
        let input = heard.input_of(0, &Piece::alone(frames), window)?;
        self.listen(input, looks)?;
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
    fn a_sentence_ends_with_its_mark_and_not_where_it_trails_off() {
        for (text, is_sentence) in [
            (" Ask not.", true),
            (" Can you?", true),
            (" He said: “No!”", true),
            (" (It is.) ", true),
            ("行きます。", true),
            (" And so,", false),
            (" And so", false),
            (" Well...", false),
            (" Well…", false),
            (" 3.5", false),
            (" ", false),
        ] {
            let segment = Segment {
                text: text.to_owned(),
                ..Segment::default()
            };
            let ready = Ready {
                segment: Some(segment),
                words: Vec::new(),
            };
            assert_eq!(ready.is_sentence(), is_sentence, "{text}");
        }
    }

    /// Random weights go round in circles, whatever they hear.
    #[test]
    fn text_that_goes_round_is_written_with_the_whole_window_and_not_committed() {
        let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/speech/whisper");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        cactus_import::convert(&source, &path, &Default::default(), &mut |_, _| {}).unwrap();
        let mut model = Transcriber::load(&path, Some(1)).unwrap();
        let options = TranscribeOptions {
            language: Some("de".to_owned()),
            ..TranscribeOptions::default()
        };
        let manner = Manner::of(model.prepare(&options).unwrap());
        let cancel = CancelToken::new();
        let orders = |margin| Orders {
            options: &options,
            commit: Commit::Agreement,
            margin,
            cancel: &cancel,
        };
        let (mut rounds, mut stuck, mut committed) = (0, 0, 0);
        for n in 1..24_u16 {
            let sample = |i: u16| (f32::from(i) * f32::from(i) * 1e-7 * f32::from(n)).sin();
            let samples: Vec<f32> = (0..3000 + 300 * n).map(sample).collect();
            let times = Times {
                begin_s: 0.0,
                start_s: 0.0,
                end_s: samples.len() as f64 / 16e3,
            };
            let phrase = || Phrase::new(0, 0, samples.clone(), 0, usize::MAX);
            let (mut all, mut cut) = (phrase(), phrase());
            manner.write(&mut model, &mut all, orders(None)).unwrap();
            manner.write(&mut model, &mut cut, orders(Some(1))).unwrap();
            let text = model.surroundings().text(&[], &cut.draft);
            assert!(!all.whole, "there was nothing more to hear");
            match cut.whole {
                true => assert_eq!(cut.draft, all.draft),
                false => assert!(!loops::goes_round(&text, Some("de")) && !repeats(&text), "{text}"),
            }
            rounds += usize::from(cut.whole);
            // Twice the same is agreed on, unless it does not come to an end.
            manner.write(&mut model, &mut cut, orders(Some(1))).unwrap();
            if loops::is_stuck(&text, Some("de")) || repeats(&text) {
                assert!(cut.committed.is_empty(), "{text}");
                stuck += 1;
            }
            committed += cut.committed.len();
            let (mut all, mut cut) = (phrase(), phrase());
            let mut tokens = |phrase: &mut Phrase, margin| {
                let ready = manner.ready(&mut model, phrase, orders(margin), times, Then::Nothing);
                ready.unwrap().segment.map(|segment| segment.tokens)
            };
            let (whole, part) = (tokens(&mut all, None), tokens(&mut cut, Some(1)));
            if cut.whole {
                assert_eq!(part, whole);
            }
        }
        assert!(rounds > 0 && stuck > 0 && committed > 0, "{rounds} {stuck} {committed}");
    }

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
