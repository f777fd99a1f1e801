//! One window of sound: from the encoder's states to the tokens that the decoder writes, at one temperature after the other.

use crate::hotwords::{Along, Hotwords};
use crate::hypotheses::Hypotheses;
use crate::rules::{Chances, Rules};
use crate::{Error, Result};
use cactus_engine::sampler::Sampler;
use cactus_engine::{CancelToken, GenerateOptions};
use cactus_runtime::{EachRow, Logits};
use cactus_text::Tokenizer;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::Write as _;

/// Temperatures of the tries, until one looks right.
const TEMPERATURES: [f64; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
/// Texts drawn at a temperature above 0, of which the likeliest counts.
pub(crate) const DRAWS: usize = 5;
/// Text that zlib makes smaller than by this factor repeats itself.
const MOST_COMPRESSION: f64 = 2.4;
/// Mean log-probability below which a try looks wrong.
const LEAST_LOGPROB: f64 = -1.0;
/// Probability of no speech from which a window counts as silent, if its text is unlikely, too.
const SILENT: f64 = 0.6;

/// What the decoder wrote of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Written {
    /// Without the token that ends it.
    pub(crate) tokens: Vec<u32>,
    /// Of each token.
    pub(crate) logprobs: Vec<f64>,
    /// Mean over the tokens and the one that ends them.
    pub(crate) mean_logprob: f64,
    pub(crate) no_speech: f64,
    pub(crate) temperature: f64,
    /// Bytes of its text by bytes of the same text compressed.
    pub(crate) compression: f64,
}

impl Written {
    /// Whether nobody speaks.
    pub(crate) fn is_silent(&self) -> bool {
        self.no_speech > SILENT && self.mean_logprob <= LEAST_LOGPROB
    }

    pub(crate) fn looks_right(&self) -> bool {
        let repeats = self.compression > MOST_COMPRESSION;
        self.is_silent() || !(repeats || self.mean_logprob < LEAST_LOGPROB)
    }
}

/// What a window is decoded with.
pub(crate) struct Window<'a> {
    pub(crate) hypotheses: &'a mut Hypotheses,
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) rules: &'a Rules,
    /// Words that get a bonus, and how far the text before has come among them.
    pub(crate) hotwords: &'a Hotwords,
    pub(crate) along: Along,
    /// Text from before, the start, language and task.
    pub(crate) prompt: &'a [u32],
    /// Where the start stands in the prompt.
    pub(crate) start: usize,
    /// What the text may begin with, where the likeliest token is taken after each: it changes the time alone.
    pub(crate) draft: &'a [u32],
    pub(crate) no_speech: Option<u32>,
    pub(crate) most_tokens: usize,
    /// Texts that are followed side by side at temperature 0; 1 for the likeliest token after each.
    pub(crate) beams: usize,
    /// The only temperature to try; 0 is the first.
    pub(crate) temperature: f64,
    /// Whether higher ones are tried, too, where the text looks wrong.
    pub(crate) tries_again: bool,
    pub(crate) cancel: &'a CancelToken,
}

/// What follows the prompt, before anything is drawn.
#[derive(Default)]
struct Beginning {
    row: Vec<f32>,
    no_speech: f64,
    /// The text of the likeliest tokens, where it is the first to try.
    text: Option<Text>,
}

/// A text on its way.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Text {
    pub(crate) tokens: Vec<u32>,
    pub(crate) logprobs: Vec<f64>,
    /// Sum of the log-probabilities, that of its end included.
    sum: f64,
    /// What it got for hotwords, and how far it has come among them.
    bonus: f64,
    along: Along,
}

impl Text {
    fn new(along: Along) -> Text {
        Text {
            along,
            ..Text::default()
        }
    }

    fn mean_logprob(&self) -> f64 {
        self.sum / (self.tokens.len() + 1) as f64
    }

    /// As [`Text::mean_logprob`], with what it got for hotwords that are whole.
    fn mean_worth(&self, hotwords: &Hotwords) -> f64 {
        (self.sum + self.bonus - hotwords.end(self.along)) / (self.tokens.len() + 1) as f64
    }

    fn push(&mut self, token: u32, logprob: f64, hotwords: &Hotwords) {
        let (along, change) = hotwords.step(self.along, token);
        (self.along, self.bonus) = (along, self.bonus + change);
        self.tokens.push(token);
        self.logprobs.push(logprob);
        self.sum += logprob;
    }
}

impl Window<'_> {
    /// Writes until a try looks right; of those that do not, the likeliest of those that do not repeat themselves.
    pub(crate) fn write(&mut self) -> Result<Written> {
        let mut beginning = self.begin()?;
        let mut tries: Vec<Written> = Vec::new();
        let likelier = |a: &Written, b: &Written| a.mean_logprob.total_cmp(&b.mean_logprob);
        let only = [self.temperature];
        let temperatures = match self.temperature == 0.0 && self.tries_again {
            true => &TEMPERATURES[..],
            false => &only,
        };
        for &temperature in temperatures {
            let texts = match beginning.text.take() {
                Some(text) => vec![text],
                None if temperature > 0.0 => self.draw(&beginning, temperature)?,
                None => self.search(&beginning, self.beams)?,
            };
            let worth = |text: &Text| text.mean_worth(self.hotwords);
            let Some(text) = texts.into_iter().max_by(|a, b| worth(a).total_cmp(&worth(b))) else {
                continue;
            };
            let written = self.written(text, &beginning, temperature);
            if written.looks_right() {
                return Ok(written);
            }
            tries.push(written);
        }
        let better = |a: &Written, b: &Written| {
            let repeats = |w: &Written| w.compression > MOST_COMPRESSION;
            let order = repeats(b).cmp(&repeats(a));
            order.then(likelier(a, b))
        };
        Ok(tries.into_iter().max_by(better).unwrap_or_default())
    }

    fn begin(&mut self) -> Result<Beginning> {
        let mut beginning = Beginning::default();
        let (token, last) = (self.no_speech, self.prompt.len() - self.start - 1);
        let mut see = |place: usize, logits: Logits<'_>| {
            if let (0, Some(token)) = (place, token) {
                beginning.no_speech = Chances::of(&logits).logprob(token).exp();
            }
            if place == last {
                beginning.row.clear();
                beginning.row.extend_from_slice(&logits);
            }
        };
        if self.temperature > 0.0 || self.beams > 1 {
            self.hypotheses.read(self.prompt, self.start, &mut see)?;
            return Ok(beginning);
        }
        let continued = Continued {
            prompt: self.prompt,
            start: self.start,
            draft: self.draft,
            rules: self.rules,
            hotwords: self.hotwords,
            along: self.along,
            most: self.most_tokens,
            cancel: self.cancel,
        };
        beginning.text = Some(continued.write(self.hypotheses, &mut see)?);
        Ok(beginning)
    }

    fn check_cancel(&self) -> Result<()> {
        match self.cancel.is_cancelled() {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }

    /// Writes [`DRAWS`] texts, each token drawn at `temperature`.
    fn draw(&mut self, beginning: &Beginning, temperature: f64) -> Result<Vec<Text>> {
        let count = DRAWS;
        let vocabulary = self.hypotheses.program().vocab_size();
        let sampler = |seed| {
            let options = GenerateOptions {
                temperature: temperature as f32,
                // The same sound has the same text.
                seed: Some(seed),
                ..GenerateOptions::default()
            };
            Sampler::new(&options, vocabulary).map_err(|e| Error::Option(e.to_string()))
        };
        let mut samplers = (0..count as u64).map(sampler).collect::<Result<Vec<Sampler>>>()?;
        let mut texts = vec![Text::new(self.along); count];
        let mut rows = vec![beginning.row.clone(); count];
        let mut open: Vec<usize> = (0..count).collect();
        self.hypotheses.begin(count, self.prompt.len())?;
        loop {
            self.check_cancel()?;
            let mut next: Vec<(usize, u32)> = Vec::with_capacity(open.len());
            for &i in &open {
                let (text, row) = (&mut texts[i], &mut rows[i]);
                self.rules.apply(&text.tokens, row);
                let raised = self.hotwords.raised(text.along, row);
                let drawn = samplers[i].sample(raised.as_deref().unwrap_or(row));
                let drawn = drawn.map_err(|e| Error::Model(e.to_string()))?;
                let chance = Chances::of(row).logprob(drawn.token);
                if drawn.token == self.rules.end {
                    text.sum += chance;
                    continue;
                }
                text.push(drawn.token, chance, self.hotwords);
                if text.tokens.len() < self.most_tokens {
                    next.push((i, drawn.token));
                }
            }
            if next.is_empty() {
                return Ok(texts);
            }
            self.hypotheses.write(&next, &mut |place, logits| {
                let row = &mut rows[next[place].0];
                row.clear();
                row.extend_from_slice(&logits);
            })?;
            open = next.into_iter().map(|(i, _)| i).collect();
        }
    }

    /// Beam search: follows the `beams` likeliest texts, until as many have ended (`BeamSearchDecoder` of OpenAI's implementation).
    fn search(&mut self, beginning: &Beginning, beams: usize) -> Result<Vec<Text>> {
        let mut texts = vec![Text::new(self.along)];
        let mut rows = vec![beginning.row.clone()];
        let mut ended: Vec<Text> = Vec::new();
        self.hypotheses.begin(1, self.prompt.len())?;
        loop {
            self.check_cancel()?;
            // Text, token, its log-probability and what the text is worth with it; the sort is stable, so of equals the first text's likelier
            // token counts.
            let mut candidates: Vec<(usize, u32, f64, f64)> = Vec::new();
            for (i, (text, row)) in texts.iter().zip(&mut rows).enumerate() {
                self.rules.apply(&text.tokens, row);
                let chances = Chances::of(row);
                // One more than are followed, as one may be the end.
                let mut tokens = chances.best(beams + 1);
                let hot = self.hotwords.next(text.along);
                let hot: Vec<u32> = hot
                    .filter(|&t| chances.is_possible(t) && !tokens.contains(&t))
                    .collect();
                tokens.extend(hot);
                candidates.extend(tokens.into_iter().map(|token| {
                    let logprob = chances.logprob(token);
                    let change = match token == self.rules.end {
                        true => -self.hotwords.end(text.along),
                        false => self.hotwords.step(text.along, token).1,
                    };
                    (i, token, logprob, text.sum + text.bonus + logprob + change)
                }));
            }
            candidates.sort_by(|a, b| b.3.total_cmp(&a.3));
            let (mut followed, mut parents): (Vec<Text>, Vec<usize>) = (Vec::new(), Vec::new());
            for (i, token, logprob, _) in candidates {
                if followed.len() == beams {
                    break;
                }
                let mut text = texts[i].clone();
                if token != self.rules.end {
                    text.push(token, logprob, self.hotwords);
                    followed.push(text);
                    parents.push(i);
                } else if ended.len() < beams {
                    text.sum += logprob;
                    ended.push(text);
                }
            }
            let is_full = followed.iter().any(|text| text.tokens.len() >= self.most_tokens);
            if ended.len() == beams || is_full || followed.is_empty() {
                // What has not ended counts where too little has.
                let missing = beams - ended.len();
                ended.extend(followed.into_iter().take(missing));
                return Ok(ended);
            }
            self.hypotheses.follow(&parents)?;
            let last = |text: &Text| text.tokens.last().copied().unwrap_or(self.rules.end);
            let next: Vec<(usize, u32)> = followed.iter().map(last).enumerate().collect();
            rows.resize(followed.len(), Vec::new());
            self.hypotheses.write(&next, &mut |place, logits| {
                rows[place].clear();
                rows[place].extend_from_slice(&logits);
            })?;
            texts = followed;
        }
    }

    fn written(&self, text: Text, beginning: &Beginning, temperature: f64) -> Written {
        let words = text.tokens.iter().copied().filter(|&t| !self.rules.is_stamp(t));
        let words: Vec<u32> = words.collect();
        Written {
            mean_logprob: text.mean_logprob(),
            no_speech: beginning.no_speech,
            temperature,
            compression: compression(&self.tokenizer.decode(&words, true)),
            tokens: text.tokens,
            logprobs: text.logprobs,
        }
    }
}

/// How the text that taking the likeliest token finds goes on behind a prompt.
pub(crate) struct Continued<'a> {
    pub(crate) prompt: &'a [u32],
    /// The first position of the prompt whose logits are shown.
    pub(crate) start: usize,
    /// What it may begin with: as much of it as it does is found in one pass. It changes the time alone.
    pub(crate) draft: &'a [u32],
    pub(crate) rules: &'a Rules,
    /// See [`Window::hotwords`].
    pub(crate) hotwords: &'a Hotwords,
    pub(crate) along: Along,
    /// Most tokens.
    pub(crate) most: usize,
    pub(crate) cancel: &'a CancelToken,
}

/// A text of likeliest tokens on its way. A hotword changes which token comes next, and never whether one does. Where the text leaves
/// a hotword before its end, it goes back to the first token that it took for that one, and takes the likeliest there.
struct Greedy<'a> {
    about: &'a Continued<'a>,
    text: Text,
    row: Vec<f32>,
    /// The text as it was before it took another token than the likeliest for the hotword that it goes along, and that one.
    other: Option<(Text, u32, f64)>,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    /// This token, the last of the text.
    Write(u32),
    /// The same, and the text before it is shorter than it was.
    Back(u32),
    /// Nothing.
    End,
}

impl Greedy<'_> {
    /// Adds the token that `logits` say.
    fn take(&mut self, logits: &[f32]) -> Next {
        let Continued {
            rules, hotwords, most, ..
        } = *self.about;
        if self.text.tokens.len() >= most {
            return Next::End;
        }
        self.row.clear();
        self.row.extend_from_slice(logits);
        rules.apply(&self.text.tokens, &mut self.row);
        let chances = Chances::of(&self.row);
        let likeliest = chances.best(1).first().copied().unwrap_or(rules.end);
        let token = match likeliest == rules.end {
            true => likeliest,
            false => hotwords.choose(self.text.along, likeliest, &self.row),
        };
        let along = self.text.along;
        let leaves = along.is_open() && (token == rules.end || !hotwords.goes_on(along, token));
        if leaves && let Some((text, likeliest, logprob)) = self.other.take() {
            self.text = text;
            return self.push(likeliest, logprob, true);
        }
        let logprob = chances.logprob(token);
        if token == rules.end {
            self.text.sum += logprob;
            return Next::End;
        }
        if token != likeliest && self.other.is_none() {
            self.other = Some((self.text.clone(), likeliest, chances.logprob(likeliest)));
        }
        self.push(token, logprob, false)
    }

    fn push(&mut self, token: u32, logprob: f64, back: bool) -> Next {
        self.text.push(token, logprob, self.about.hotwords);
        if !self.text.along.is_open() {
            // A hotword is whole, or none has begun.
            self.other = None;
        }
        if self.text.tokens.len() >= self.about.most
            && let Some((text, likeliest, logprob)) = self.other.take()
        {
            // No place is left for the rest of it.
            self.text = text;
            return self.push(likeliest, logprob, true);
        }
        match self.text.tokens.len() < self.about.most {
            true if back => Next::Back(token),
            true => Next::Write(token),
            false => Next::End,
        }
    }
}

impl Continued<'_> {
    /// Writes it. `see` is shown the logits of the prompt's positions from `start` on, counted from there.
    pub(crate) fn write(&self, hypotheses: &mut Hypotheses, see: EachRow<'_>) -> Result<Text> {
        let (prompt, start) = (self.prompt, self.start);
        let draft = &self.draft[..self.draft.len().min(self.most)];
        let mut greedy = Greedy {
            about: self,
            text: Text::new(self.along),
            row: Vec::new(),
            other: None,
        };
        // The first token that is not in the draft, or the end.
        let mut next = Next::End;
        let read = [prompt, draft].concat();
        hypotheses.read(&read, start, &mut |place, logits| {
            // Rows behind the first difference continue another text.
            if let Some(place) = (start + place + 1).checked_sub(prompt.len())
                && greedy.text.tokens.len() == place
                && greedy.text.tokens == draft[..place]
            {
                next = greedy.take(&logits);
            }
            if start + place < prompt.len() {
                see(place, logits);
            }
        })?;
        let text = &greedy.text.tokens;
        let agreed = text.iter().zip(draft).take_while(|(a, b)| a == b).count();
        hypotheses.begin(1, prompt.len() + agreed)?;
        if let Next::Back(token) = next {
            next = Next::Write(token);
        }
        loop {
            let token = match next {
                Next::Write(token) => token,
                Next::Back(token) => {
                    hypotheses.begin(1, prompt.len() + greedy.text.tokens.len() - 1)?;
                    token
                }
                Next::End => return Ok(greedy.text),
            };
            if self.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            hypotheses.write(&[(0, token)], &mut |_, logits| next = greedy.take(&logits))?;
        }
    }
}

/// How sure a text of tokens with these log-probabilities is ([`crate::Segment::confidence`]).
pub(crate) fn confidence(logprobs: impl Iterator<Item = f64>, compression: f64) -> f64 {
    let (mut sum, mut count) = (0.0, 0_u32);
    for logprob in logprobs {
        sum += logprob;
        count += 1;
    }
    match count == 0 || compression > MOST_COMPRESSION {
        true => 0.0,
        false => libm::exp(sum / f64::from(count)),
    }
}

/// Whether a text repeats itself.
pub(crate) fn repeats(text: &str) -> bool {
    compression(text) > MOST_COMPRESSION
}

/// Bytes of a text by bytes of it compressed; 1 for none.
pub(crate) fn compression(text: &str) -> f64 {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let packed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    match packed {
        Ok(packed) if !text.is_empty() => text.len() as f64 / packed.len().max(1) as f64,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_changes_nothing() {
        let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/speech/whisper");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        cactus_import::convert(&source, &path, &Default::default(), &mut |_, _| {}).unwrap();
        let mut model = crate::Transcriber::load(&path, Some(1)).unwrap();
        let crate::decoder::Task::Prompted(prompts) = model.prepare(&crate::TranscribeOptions::default()).unwrap()
        else {
            panic!("no prompts");
        };
        let samples: Vec<f32> = (0..9000).map(|i| (i as f32 * i as f32 * 1e-5).sin()).collect();
        let (mut sound, cancel) = (cactus_audio::Samples::new(samples), CancelToken::new());
        let mut heard = model.ear.hear(&mut sound, &cancel).unwrap();
        heard.advance(0, 1).unwrap();
        let input = heard.input(0, &crate::heard::Piece::alone(1)).unwrap();
        model.listen(input, false).unwrap();
        let crate::decoder::Decoder::Prompted(scribe) = &mut model.decoder else {
            panic!("no decoder");
        };
        let rules = Rules::of(prompts.prompted()).without_times();
        let prompt = prompts.start_without_times(Some("de"));
        let mut found = |hotwords: &Hotwords, draft: &[u32], most| {
            let continued = Continued {
                prompt: &prompt,
                start: prompt.len() - 1,
                draft,
                rules: &rules,
                hotwords,
                along: Along::default(),
                most,
                cancel: &CancelToken::new(),
            };
            continued.write(&mut scribe.hypotheses, &mut |_, _| {}).unwrap()
        };
        let plain = found(&Hotwords::default(), &[], 20);
        assert!(plain.tokens.len() > 3, "{plain:?}");
        // Any token may begin a word that is not gone on with, and some may go on with theirs.
        let words: Vec<String> = (0..200).map(|i| i.to_string()).collect();
        let never_whole = Hotwords::new(&words, &|word| Some(vec![word.parse().ok()?, 250])).unwrap();
        let whole = Hotwords::new(&words, &|word| Some(vec![word.parse().ok()?])).unwrap();
        for hotwords in [&Hotwords::default(), &never_whole, &whole] {
            let text = found(hotwords, &[], 20);
            for at in 0..=text.tokens.len() {
                let mut draft = text.tokens[..at].to_vec();
                assert_eq!(found(hotwords, &draft, 20), text, "the first {at}");
                draft.extend([7, 8, 9]);
                assert_eq!(found(hotwords, &draft, 20), text, "others behind the first {at}");
            }
            let short = found(hotwords, &text.tokens, 2);
            assert_eq!(short.tokens, text.tokens[..2]);
            assert_eq!(found(hotwords, &[], 2), short);
        }
    }

    /// Logits of five tokens, of which the last ends the text.
    fn greedily(hotwords: &Hotwords, rows: &dyn Fn(&[u32]) -> [f32; 5]) -> (Vec<u32>, usize) {
        let about = Continued {
            prompt: &[],
            start: 0,
            draft: &[],
            rules: &Rules {
                end: 4,
                ..Rules::default()
            },
            hotwords,
            along: Along::default(),
            most: 6,
            cancel: &CancelToken::new(),
        };
        let mut greedy = Greedy {
            about: &about,
            text: Text::new(Along::default()),
            row: Vec::new(),
            other: None,
        };
        let mut backs = 0;
        loop {
            match greedy.take(&rows(&greedy.text.tokens.clone())) {
                Next::End => return (greedy.text.tokens, backs),
                Next::Back(_) => backs += 1,
                Next::Write(_) => {}
            }
        }
    }

    #[test]
    fn a_hotword_that_does_not_become_whole_is_taken_back() {
        let spell = |word: &str| Some(word.bytes().map(|b| u32::from(b - b'0')).collect());
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&w| w.to_owned()).collect();
            Hotwords::new(&words, &spell).unwrap()
        };
        // 0 is a little likelier than 1; 2 follows 1, 3 follows 0, and then it is over.
        let rows = |text: &[u32]| match text {
            [] => [1.0, 0.5, 0.0, 0.0, -9.0],
            [1] => [0.0, 0.0, 5.0, 0.0, 0.0],
            [0] => [0.0, 0.0, 0.0, 5.0, 0.0],
            _ => [0.0, 0.0, 0.0, 0.0, 9.0],
        };
        for (words, expected, backs) in [
            (&[][..], &[0, 3][..], 0),
            (&["12"], &[1, 2], 0),
            // After 1, 2 is likelier than 3 by more than the bonus.
            (&["13"], &[0, 3], 1),
            (&["123"], &[0, 3], 1),
            // Whole so far: that stays.
            (&["123", "1"], &[1, 2], 0),
            // What is the likeliest anyway is not taken back.
            (&["02"], &[0, 3], 0),
            // The end is not put off.
            (&["0", "31"], &[0, 3], 0),
        ] {
            assert_eq!(greedily(&of(words), &rows), (expected.to_vec(), backs), "{words:?}");
        }
    }

    #[test]
    fn repeated_text_is_found_by_its_compression() {
        assert_eq!(compression(""), 1.0);
        assert!(compression("And so my fellow Americans, ask not what your country can do for you.") < 1.5);
        assert!(compression(&"Thank you. ".repeat(20)) > MOST_COMPRESSION);
    }

    #[test]
    fn confidence_is_the_geometric_mean_of_what_does_not_repeat_itself() {
        let of = |chances: &[f64], compression| confidence(chances.iter().map(|p| p.ln()), compression);
        assert!((of(&[0.9, 0.4], 1.2) - 0.6).abs() < 1e-12);
        assert_eq!(of(&[0.9, 0.4], 2.5), 0.0);
        assert_eq!(of(&[], 1.0), 0.0);
    }

    #[test]
    fn silence_is_right_and_repetition_is_not() {
        let written = |mean_logprob, no_speech, compression| Written {
            mean_logprob,
            no_speech,
            compression,
            ..Written::default()
        };
        for (found, silent, right) in [
            (written(-0.2, 0.1, 1.5), false, true),
            (written(-0.2, 0.9, 1.5), false, true),
            (written(-1.2, 0.9, 1.5), true, true),
            (written(-1.2, 0.1, 1.5), false, false),
            (written(-0.2, 0.1, 3.0), false, false),
        ] {
            assert_eq!((found.is_silent(), found.looks_right()), (silent, right), "{found:?}");
        }
    }
}
