//! Targets as data: a table that is built in, and files of the user's in the same form.

use crate::{Base, Dialect, Hours, MinutePrice, Money, Price, Protocol, Rates, Target, Tier};
use serde::Deserialize;
use std::ops::Range;
use toml::Spanned;

/// The targets that are built in. Their prices have a date and a source.
pub const BUILT_IN: &str = include_str!("targets.toml");

/// What is wrong with a file of targets, and where in its text. A message about a type is serde's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Misread {
    /// Which bytes.
    pub at: Range<usize>,
    /// What was expected and found.
    pub what: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    date: Spanned<String>,
    source: String,
    #[serde(default)]
    target: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<String>,
    protocol: Spanned<String>,
    base: Spanned<String>,
    dialect: Option<Spanned<String>>,
    model: Option<Spanned<String>>,
    #[serde(default)]
    plain_http: bool,
    images: Option<bool>,
    audio: Option<bool>,
    tools: Option<bool>,
    json_schema: Option<bool>,
    context_tokens: Option<u64>,
    max_output_tokens: Option<u32>,
    word_times: Option<bool>,
    #[serde(default)]
    price: Vec<Spanned<Step>>,
    usd_per_minute: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    over: Option<u64>,
    hours: Option<Spanned<[u16; 2]>>,
    input: Spanned<String>,
    output: Spanned<String>,
    cached: Option<Spanned<String>>,
    cache_written: Option<Spanned<String>>,
}

/// Reads a file of targets. A target without `price` has none, which is not the same as costing nothing.
///
/// # Errors
/// [`Misread`], naming what is wrong, and where.
pub fn read(text: &str) -> Result<Vec<Target>, Misread> {
    let file: File = toml::from_str(text).map_err(|e| Misread {
        at: e.span().unwrap_or_default(),
        what: e.message().to_owned(),
    })?;
    if !is_day(file.date.get_ref()) {
        return wrong(
            &file.date,
            format!("expected a day such as `2026-11-22`; found `{}`", file.date.get_ref()),
        );
    }
    let mut targets: Vec<Target> = Vec::new();
    for entry in file.target {
        let name = &entry.get_ref().name;
        let found = name.get_ref();
        if found.trim().is_empty() {
            return wrong(name, "expected a name for the target; found an empty one".to_owned());
        }
        if targets.iter().any(|t| t.name == *found) {
            return wrong(name, format!("expected each target once; found `{found}` again"));
        }
        targets.push(entry.into_inner().target(file.date.get_ref(), &file.source)?);
    }
    Ok(targets)
}

fn is_day(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    lengths == [4, 2, 2] && parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_digit()))
}

fn wrong<T, S>(at: &Spanned<S>, what: String) -> Result<T, Misread> {
    Err(Misread { at: at.span(), what })
}

/// A word of a list.
fn one_of<T>(
    word: &Spanned<String>,
    known: impl Iterator<Item = &'static str>,
    parse: fn(&str) -> Option<T>,
) -> Result<T, Misread> {
    let found = word.get_ref();
    match parse(found) {
        Some(value) => Ok(value),
        None => {
            let known: Vec<&str> = known.collect();
            wrong(word, format!("expected one of {}; found `{found}`", known.join(", ")))
        }
    }
}

impl Entry {
    fn target(self, date: &str, source: &str) -> Result<Target, Misread> {
        let protocol = one_of(&self.protocol, Protocol::words(), Protocol::parse)?;
        let base = match Base::parse(self.base.get_ref(), self.plain_http) {
            Ok(base) => base,
            Err(error) => return wrong(&self.base, error.to_string()),
        };
        let model = self.model.as_ref().unwrap_or(&self.name);
        if model.get_ref().trim().is_empty() {
            let what = "expected the name that the model has there; found an empty one";
            return wrong(model, what.to_owned());
        }
        let mut target = Target::new(self.name.get_ref().clone(), protocol, base, model.get_ref().clone());
        if let Some(word) = &self.dialect {
            target.dialect = one_of(word, Dialect::words(), Dialect::parse)?;
            target.capabilities = crate::Capabilities::of(protocol, target.dialect);
        }
        let can = &mut target.capabilities;
        can.images = self.images.unwrap_or(can.images);
        can.audio = self.audio.unwrap_or(can.audio);
        can.tools = self.tools.unwrap_or(can.tools);
        can.json_schema = self.json_schema.unwrap_or(can.json_schema);
        can.word_times = self.word_times.unwrap_or(can.word_times);
        can.context_tokens = self.context_tokens;
        can.max_output_tokens = self.max_output_tokens;
        let hears = protocol == Protocol::OpenAiTranscriptions;
        if let Some(price) = self.price.first().filter(|_| hears) {
            let what = "it has a price for tokens; a target that writes down speech has `usd_per_minute`";
            return wrong(price, what.to_owned());
        }
        if let Some(text) = &self.usd_per_minute {
            if !hears {
                let what = "it has a price for minutes, which only protocol `openai_transcriptions` has";
                return wrong(text, what.to_owned());
            }
            let Some(amount) = Money::parse(text.get_ref()) else {
                let what = format!("expected dollars such as `0.006`; found `{}`", text.get_ref());
                return wrong(text, what);
            };
            target.minute = Some(MinutePrice {
                source: source.to_owned(),
                date: date.to_owned(),
                amount,
            });
        }
        if let Some(first) = self.price.first() {
            if first.get_ref().over.is_some() || first.get_ref().hours.is_some() {
                let what = "the first price has conditions; expected one that always holds";
                return wrong(first, what.to_owned());
            }
            let tiers = self.price.iter().map(|step| step.get_ref().tier());
            target.price = Some(Price {
                source: source.to_owned(),
                date: date.to_owned(),
                tiers: tiers.collect::<Result<_, _>>()?,
            });
        }
        Ok(target)
    }
}

impl Step {
    fn tier(&self) -> Result<Tier, Misread> {
        let optional = |text: &Option<Spanned<String>>| text.as_ref().map(for_one_token).transpose();
        let hours = self.hours.as_ref().map(|hours| match *hours.get_ref() {
            [from, to] if from < 1440 && to < 1440 => Ok(Hours { from, to }),
            [from, to] => wrong(
                hours,
                format!("expected minutes after midnight, less than 1440; found {from} and {to}"),
            ),
        });
        Ok(Tier {
            over_input_tokens: self.over,
            hours: hours.transpose()?,
            rates: Rates {
                input: for_one_token(&self.input)?,
                cached: optional(&self.cached)?,
                cache_written: optional(&self.cache_written)?,
                output: for_one_token(&self.output)?,
            },
        })
    }
}

/// Dollars for a million tokens, as text so that no figure is rounded.
fn for_one_token(text: &Spanned<String>) -> Result<Money, Misread> {
    let million = Money::parse(text.get_ref()).filter(|money| money.pico() % 1_000_000 == 0);
    match million {
        Some(million) => Ok(Money::from_pico(million.pico() / 1_000_000)),
        None => {
            let what = format!("expected dollars with at most 6 decimals; found `{}`", text.get_ref());
            wrong(text, what)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Usage;

    #[test]
    fn built_in_targets_are_read_and_cost_what_they_say() {
        let targets = read(BUILT_IN).unwrap();
        assert!(
            targets
                .iter()
                .all(|t| t.price.is_some() != t.minute.is_some() && t.dialect != Dialect::Compatible)
        );
        let haiku = targets.iter().find(|t| t.name == "claude-haiku-5-5").unwrap();
        let price = haiku.price.as_ref().unwrap();
        let usage = |input, output| Usage {
            input: Some(input),
            output: Some(output),
            ..Usage::default()
        };
        assert_eq!(price.cost(&usage(1000, 300), 0), Money::parse("0.00025"));
        assert_eq!(price.cost(&usage(100_001, 0), 0), Money::parse("0.0500005"));
        assert_eq!(price.date, "2026-11-22");
        let heard = targets.iter().find(|t| t.name == "gpt-transcribe").unwrap();
        assert!(heard.capabilities.audio && !heard.capabilities.word_times);
        assert_eq!(heard.minute.as_ref().unwrap().amount, Money::parse("0.0045").unwrap());
    }

    #[test]
    fn read_names_what_is_wrong() {
        let head = "date = \"2026-11-22\"\nsource = \"s\"\n[[target]]\nname = \"t\"\n";
        let good = "protocol = \"anthropic\"\nbase = \"https://h/v1\"\n";
        let cases = [
            (
                "protocol = \"x\"\nbase = \"https://h\"",
                "\"x\"",
                "expected one of openai_chat",
            ),
            (
                "protocol = \"anthropic\"\nbase = \"http://h\"",
                "\"http://h\"",
                "`plain_http = true`",
            ),
            (
                "protocol = \"anthropic\"\nbase = \"https://h/v1/messages\"",
                "\"https://h/v1/messages\"",
                "ends with `/messages`",
            ),
            (
                "protocol = \"anthropic\"\nbase = \"https://h\"\nkey = \"sk\"",
                "key",
                "unknown field `key`",
            ),
            (
                &format!("{good}price = [{{ input = \"-1\", output = \"1\" }}]"),
                "\"-1\"",
                "`-1`",
            ),
            (
                &format!("{good}price = [{{ over = 5, input = \"1\", output = \"1\" }}]"),
                "{ over = 5, input = \"1\", output = \"1\" }",
                "has conditions",
            ),
            (&format!("{good}dialect = \"x\""), "\"x\"", "expected one of vendor"),
            (&format!("{good}model = \"\""), "\"\"", "found an empty one"),
            (&format!("{good}images = 3"), "3", "invalid type"),
            (
                &format!("{good}[[target]]\nname = \"\"\n{good}"),
                "\"\"",
                "expected a name for the target",
            ),
            (
                &format!("{good}usd_per_minute = \"1\""),
                "\"1\"",
                "only protocol `openai_transcriptions`",
            ),
            (
                "protocol = \"openai_transcriptions\"\nbase = \"https://h\"\nprice = [{ input = \"1\", output = \"1\" }]",
                "{ input = \"1\", output = \"1\" }",
                "has `usd_per_minute`",
            ),
            (
                "protocol = \"openai_transcriptions\"\nbase = \"https://h\"\nusd_per_minute = \"x\"",
                "\"x\"",
                "such as `0.006`",
            ),
        ];
        for (body, place, want) in cases {
            let text = format!("{head}{body}");
            let error = read(&text).unwrap_err();
            assert!(error.what.contains(want), "{want}: {error}");
            assert_eq!(&text[error.at], place, "{want}");
        }
        let twice = format!("{head}{good}[[target]]\nname = \"t\"\n{good}");
        let error = read(&twice).unwrap_err();
        assert!(error.what.contains("found `t` again") && error.at.start > head.len());
        assert!(
            read("date = \"now\"\nsource = \"s\"")
                .unwrap_err()
                .what
                .contains("a day such as")
        );
        assert!(read(&format!("{head}{good}")).unwrap()[0].price.is_none());
        for word in ["openai_responses", "openai-responses"] {
            let target = read(&format!("{head}protocol = \"{word}\"\nbase = \"https://h\"")).unwrap();
            assert_eq!(target[0].protocol, Protocol::OpenAiResponses, "{word}");
        }
    }
}
