//! What the decoder reads before it writes a window: hints, the text before, language and task.

use crate::hotwords::Hotwords;
use crate::{Error, Result, Segment, TranscribeOptions};
use cactus_bundle::Prompted;
use cactus_text::Tokenizer;

/// Temperature above which a text is no example for the next window.
const EXAMPLE: f64 = 0.5;
/// Places of the prompt that are left for the start, language and task.
const LEFT: usize = 8;

/// The prompts of one recording.
#[derive(Debug)]
pub(crate) struct Prompts {
    prompted: Prompted,
    /// Tokens of words that may be said, of a model that reads text before.
    hotwords: Vec<u32>,
    /// The same words of one that does not: what it writes along them gets a bonus.
    tree: Hotwords,
    /// Tokens of the text before, or as if before.
    carried: Vec<u32>,
    /// Most of [`Prompts::carried`] that is kept once something was said.
    carry: usize,
    /// Most tokens of hints and the text before.
    most: usize,
    task: Option<u32>,
    begun: bool,
}

impl Prompts {
    /// For a decoder with room for `context` tokens. `spell` gives the tokens that write a word behind others.
    ///
    /// # Errors
    /// An option that the model does not have, hints that are too long.
    pub(crate) fn new(
        prompted: &Prompted,
        options: &TranscribeOptions,
        tokenizer: &Tokenizer,
        spell: &dyn Fn(&str) -> Option<Vec<u32>>,
        context: usize,
    ) -> Result<Prompts> {
        check(prompted, options)?;
        let most = (context / 2).saturating_sub(LEFT);
        let encode = |text: &str, what: &str| -> Result<Vec<u32>> {
            let text = text.trim();
            if text.is_empty() {
                return Ok(Vec::new());
            }
            if prompted.previous.is_none() {
                return Err(Error::Option(format!(
                    "this model reads no text before, so it takes no {what}; names may be hotwords"
                )));
            }
            // Words begin with their space. No text is a special token.
            let tokens = tokenizer.encode_as_text(&format!(" {text}"), false);
            tokens.map_err(|e| Error::Option(format!("the {what} cannot be read: {e}")))
        };
        let (read, tree) = match prompted.previous {
            Some(_) => (&options.hotwords[..], Hotwords::default()),
            None => (&[][..], Hotwords::new(&options.hotwords, spell)?),
        };
        let named: Vec<&str> = read
            .iter()
            .map(|word| word.trim())
            .filter(|word| !word.is_empty())
            .collect();
        let hotwords = encode(&named.join(", "), "hotwords")?;
        let mut carried = encode(&options.initial_prompt, "initial prompt")?;
        if hotwords.len() > most {
            let found = hotwords.len();
            return Err(Error::Option(format!(
                "hotwords should have at most {most} tokens, found {found}; fewer of them also help more"
            )));
        }
        // Of a long text, its end is nearest.
        keep_last(&mut carried, most - hotwords.len());
        Ok(Prompts {
            hotwords,
            tree,
            carried,
            carry: options.carry_tokens,
            most,
            task: match options.translate {
                true => prompted.translate,
                false => prompted.transcribe,
            },
            begun: false,
            prompted: prompted.clone(),
        })
    }

    pub(crate) fn prompted(&self) -> &Prompted {
        &self.prompted
    }

    /// Words along which what is written gets a bonus.
    pub(crate) fn tree(&self) -> &Hotwords {
        &self.tree
    }

    /// What stands before the start.
    pub(crate) fn before(&self) -> Vec<u32> {
        let room = self.most - self.hotwords.len();
        let carried = &self.carried[self.carried.len() - self.carried.len().min(room)..];
        match self.prompted.previous {
            Some(previous) if !(self.hotwords.is_empty() && carried.is_empty()) => {
                [&[previous], &self.hotwords[..], carried].concat()
            }
            _ => Vec::new(),
        }
    }

    /// From the start on.
    pub(crate) fn start(&self, language: Option<&str>) -> Vec<u32> {
        let mut tokens = vec![self.prompted.start];
        tokens.extend(language.and_then(|code| self.prompted.languages.get(code)));
        tokens.extend(self.task);
        if self.prompted.timestamps.is_none() {
            tokens.extend(self.prompted.no_timestamps);
        }
        tokens
    }

    /// As [`Prompts::start`], for a text without times.
    pub(crate) fn start_without_times(&self, language: Option<&str>) -> Vec<u32> {
        let mut tokens = self.start(language);
        tokens.extend(
            self.prompted
                .no_timestamps
                .filter(|_| self.prompted.timestamps.is_some()),
        );
        tokens
    }

    /// Nobody spoke for a window.
    pub(crate) fn pause(&mut self) {
        if self.begun {
            self.carried.clear();
        }
    }

    /// This was said in a window.
    pub(crate) fn add(&mut self, segments: &[Segment], temperature: f64) {
        self.begun = true;
        if temperature > EXAMPLE {
            self.carried.clear();
        }
        self.carried.extend(segments.iter().flat_map(|s| &s.tokens));
        keep_last(&mut self.carried, self.carry);
    }
}

fn keep_last(tokens: &mut Vec<u32>, most: usize) {
    tokens.drain(..tokens.len() - tokens.len().min(most));
}

fn check(prompted: &Prompted, options: &TranscribeOptions) -> Result<()> {
    // A model that can be told no language knows English.
    let is_own = |code: &str| prompted.languages.is_empty() && code == "en";
    if let Some(code) = &options.language
        && !prompted.languages.contains_key(code)
        && !is_own(code)
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
    if options.translate && prompted.translate.is_none() {
        let what = "this model does not translate; a multilingual one may";
        return Err(Error::Option(what.into()));
    }
    if options.carry_tokens > 0 && prompted.previous.is_none() {
        let what = "this model reads no text before, so there is nothing to carry; leave it at 0";
        return Err(Error::Option(what.into()));
    }
    if options.hallucination_silence_s.is_some() && prompted.timestamps.is_none() {
        let what = "this model writes no times, so text that nobody said cannot be told by the silence around it; leave the silence out, \
                    or find speech first";
        return Err(Error::Option(what.into()));
    }
    if options.beams > crate::MOST_BEAMS {
        let (most, found) = (crate::MOST_BEAMS, options.beams);
        return Err(Error::Option(format!("beams should be at most {most}, found {found}")));
    }
    if !(0.0..=1.0).contains(&options.temperature) {
        let found = options.temperature;
        return Err(Error::Option(format!(
            "the temperature should be from 0 to 1, found {found}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompted() -> Prompted {
        Prompted {
            start: 300,
            end: 301,
            previous: Some(302),
            transcribe: Some(303),
            translate: Some(304),
            no_timestamps: Some(305),
            languages: [("de".to_owned(), 306)].into(),
            ..Prompted::default()
        }
    }

    /// Tokens are bytes.
    fn tokenizer() -> Tokenizer {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/speech/whisper");
        Tokenizer::from_dir(&folder).unwrap()
    }

    fn said(tokens: Vec<u32>) -> Segment {
        Segment {
            tokens,
            ..Segment::default()
        }
    }

    #[test]
    fn hints_are_read_before_the_start() {
        let (prompted, tokenizer) = (prompted(), tokenizer());
        let tokens = |text: &str| tokenizer.encode_as_text(text, false).unwrap();
        let options = TranscribeOptions {
            initial_prompt: " Dear Sir.\n".to_owned(),
            hotwords: vec!["Qwen ".to_owned(), String::new(), "Cactus".to_owned()],
            ..TranscribeOptions::default()
        };
        let mut prompts = Prompts::new(&prompted, &options, &tokenizer, &|_| None, 200).unwrap();
        let hotwords = [vec![302], tokens(" Qwen, Cactus")].concat();
        let first = [hotwords.clone(), tokens(" Dear Sir.")].concat();
        assert_eq!(prompts.before(), first);
        // Silence before the first words keeps the prompt for them.
        prompts.pause();
        assert_eq!(prompts.before(), first);
        prompts.add(&[said(vec![1, 2, 3])], 0.0);
        assert_eq!(prompts.before(), hotwords, "nothing is carried");
        assert_eq!(prompts.start(Some("de")), [300, 306, 303, 305]);

        let options = TranscribeOptions {
            carry_tokens: 4,
            ..TranscribeOptions::default()
        };
        let mut prompts = Prompts::new(&prompted, &options, &tokenizer, &|_| None, 200).unwrap();
        assert!(prompts.before().is_empty());
        prompts.add(&[said(vec![1, 2, 3]), said(vec![4, 5])], 0.0);
        assert_eq!(prompts.before(), [302, 2, 3, 4, 5]);
        prompts.add(&[said(vec![6])], 0.6);
        assert_eq!(prompts.before(), [302, 6]);
        prompts.pause();
        assert!(prompts.before().is_empty());
    }

    #[test]
    fn hints_that_do_not_fit_are_cut_or_refused() {
        let (prompted, tokenizer) = (prompted(), tokenizer());
        let long = "hm ".repeat(100);
        let options = TranscribeOptions {
            initial_prompt: format!("{long} end"),
            hotwords: vec!["x".to_owned()],
            ..TranscribeOptions::default()
        };
        let prompts = Prompts::new(&prompted, &options, &tokenizer, &|_| None, 40).unwrap();
        let (before, end) = (prompts.before(), tokenizer.encode_as_text(" end", false).unwrap());
        assert_eq!(before.len(), 1 + 12);
        assert!(before.ends_with(&end));
        let refused = |prompted: &Prompted, options: &TranscribeOptions| {
            Prompts::new(prompted, options, &tokenizer, &|_| None, 40)
                .unwrap_err()
                .to_string()
        };
        let many = TranscribeOptions {
            hotwords: vec![long],
            ..TranscribeOptions::default()
        };
        assert!(refused(&prompted, &many).contains("at most 12 tokens"));
        let beams = TranscribeOptions {
            beams: 33,
            ..TranscribeOptions::default()
        };
        assert!(refused(&prompted, &beams).contains("at most 32, found 33"));
        let without = Prompted {
            previous: None,
            ..prompted.clone()
        };
        let [named, prompt] = [(options.hotwords, String::new()), (Vec::new(), options.initial_prompt)];
        let [named, prompt] = [named, prompt].map(|(hotwords, initial_prompt)| TranscribeOptions {
            hotwords,
            initial_prompt,
            ..TranscribeOptions::default()
        });
        assert!(refused(&without, &prompt).contains("takes no initial prompt"));
        // Without text before, each hotword has a branch of its own.
        assert!(refused(&without, &named).contains("the hotword `x`"));
        let spelled = Prompts::new(&without, &named, &tokenizer, &|_| Some(vec![7]), 40).unwrap();
        assert!(spelled.before().is_empty());
        assert_eq!(spelled.tree().next(Default::default()).collect::<Vec<_>>(), [7]);
        assert_eq!(prompts.tree().next(Default::default()).next(), None);
    }
}
