//! Targets as data: a table that is built in, and files of the user's in the same form.

use crate::{Base, Dialect, Error, ErrorKind, Hours, MinutePrice, Money, Price, Protocol, Rates, Result, Target, Tier};
use serde::Deserialize;

/// The targets that are built in. Their prices have a date and a source.
pub const BUILT_IN: &str = include_str!("targets.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    date: String,
    source: String,
    #[serde(default)]
    target: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    protocol: String,
    base: String,
    dialect: Option<String>,
    model: Option<String>,
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
    price: Vec<Step>,
    usd_per_minute: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    over: Option<u64>,
    hours: Option<[u16; 2]>,
    input: String,
    output: String,
    cached: Option<String>,
    cache_written: Option<String>,
}

/// Reads a file of targets. A target without `price` has none, which is not the same as costing nothing.
///
/// # Errors
/// [`ErrorKind::InvalidTarget`], naming the target and what is wrong.
pub fn read(text: &str) -> Result<Vec<Target>> {
    let file: File = toml::from_str(text).map_err(|e| wrong(format!("the file of targets: {}", e.message())))?;
    let (date, source) = (&file.date, &file.source);
    let mut targets: Vec<Target> = Vec::new();
    for entry in file.target {
        let name = entry.name.clone();
        if targets.iter().any(|t| t.name == name) {
            return Err(wrong(format!("the target `{name}` is there twice")));
        }
        let target = entry
            .target(date, source)
            .map_err(|e| wrong(format!("the target `{name}`: {e}")))?;
        targets.push(target);
    }
    Ok(targets)
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::InvalidTarget, message)
}

impl Entry {
    fn target(self, date: &str, source: &str) -> Result<Target> {
        let found = |word: &str, what: &str, known: Vec<&str>| {
            wrong(format!("{what} is `{word}`, expected one of {}", known.join(", ")))
        };
        let protocol = Protocol::parse(&self.protocol)
            .ok_or_else(|| found(&self.protocol, "protocol", Protocol::words().collect()))?;
        let base = Base::parse(&self.base, self.plain_http)?;
        let model = self.model.unwrap_or_else(|| self.name.clone());
        let mut target = Target::new(self.name, protocol, base, model);
        if let Some(word) = &self.dialect {
            target.dialect = Dialect::parse(word).ok_or_else(|| found(word, "dialect", Dialect::words().collect()))?;
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
        if hears && !self.price.is_empty() {
            return Err(wrong("it has a price for tokens, expected `usd_per_minute`".into()));
        }
        if let Some(text) = &self.usd_per_minute {
            if !hears {
                let message = "it has a price for minutes, which only protocol `openai_transcriptions` has";
                return Err(wrong(message.into()));
            }
            let amount = Money::parse(text)
                .ok_or_else(|| wrong(format!("a price is `{text}`, expected dollars such as `0.006`")))?;
            target.minute = Some(MinutePrice {
                source: source.to_owned(),
                date: date.to_owned(),
                amount,
            });
        }
        if let Some(first) = self.price.first() {
            if first.over.is_some() || first.hours.is_some() {
                return Err(wrong(
                    "the first price has conditions, expected one that always holds".into(),
                ));
            }
            let tiers = self.price.iter().map(Step::tier).collect::<Result<_>>()?;
            target.price = Some(Price {
                source: source.to_owned(),
                date: date.to_owned(),
                tiers,
            });
        }
        Ok(target)
    }
}

impl Step {
    fn tier(&self) -> Result<Tier> {
        let optional = |text: &Option<String>| text.as_deref().map(for_one_token).transpose();
        let hours = self.hours.map(|[from, to]| match from < 1440 && to < 1440 {
            true => Ok(Hours { from, to }),
            false => Err(wrong(
                "hours are minutes after midnight, expected less than 1440".into(),
            )),
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
fn for_one_token(text: &str) -> Result<Money> {
    let million = Money::parse(text).filter(|money| money.pico() % 1_000_000 == 0);
    let million =
        million.ok_or_else(|| wrong(format!("a price is `{text}`, expected dollars with at most 6 decimals")))?;
    Ok(Money::from_pico(million.pico() / 1_000_000))
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
        let head = "date = \"d\"\nsource = \"s\"\n[[target]]\nname = \"t\"\n";
        let good = "protocol = \"anthropic\"\nbase = \"https://h/v1\"\n";
        let cases = [
            ("protocol = \"x\"\nbase = \"https://h\"", "expected one of openai_chat"),
            ("protocol = \"anthropic\"\nbase = \"http://h\"", "not encrypted"),
            (
                "protocol = \"anthropic\"\nbase = \"https://h\"\nkey = \"sk\"",
                "unknown field `key`",
            ),
            (&format!("{good}price = [{{ input = \"-1\", output = \"1\" }}]"), "`-1`"),
            (
                &format!("{good}price = [{{ over = 5, input = \"1\", output = \"1\" }}]"),
                "has conditions",
            ),
            (&format!("{good}dialect = \"x\""), "expected one of vendor"),
            (
                &format!("{good}usd_per_minute = \"1\""),
                "only protocol `openai_transcriptions`",
            ),
            (
                "protocol = \"openai_transcriptions\"\nbase = \"https://h\"\nprice = [{ input = \"1\", output = \"1\" }]",
                "expected `usd_per_minute`",
            ),
            (
                "protocol = \"openai_transcriptions\"\nbase = \"https://h\"\nusd_per_minute = \"x\"",
                "such as `0.006`",
            ),
        ];
        for (body, want) in cases {
            let error = read(&format!("{head}{body}")).unwrap_err();
            assert!(error.to_string().contains(want), "{want}: {error}");
        }
        assert!(read(&format!("{head}{good}")).unwrap()[0].price.is_none());
        for word in ["openai_responses", "openai-responses"] {
            let target = read(&format!("{head}protocol = \"{word}\"\nbase = \"https://h\"")).unwrap();
            assert_eq!(target[0].protocol, Protocol::OpenAiResponses, "{word}");
        }
    }
}
