//! The TOML form of a policy, checked: an error names the line, what was expected and what is there.

use super::transcription::TranscriptionTable;
use super::words::PolicyError;
use super::{
    Consent, Deadlines, Handoff, HoldBack, KeySource, Leave, Policy, Protocol, RESERVED_NAMES, Routing, TASKS, Target,
    ToolUse, address,
};
use crate::budget::{Caps, date_of};
use crate::money::{Pico, Price};
use crate::redact::{Action, Class, Kind, Rules};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use toml::Spanned;

/// The version of the form.
const VERSION: i64 = 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: Spanned<i64>,
    handoff: Option<HandoffWord>,
    prefer: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    targets: BTreeMap<String, Spanned<TargetTable>>,
    consent: Option<Spanned<ConsentTable>>,
    #[serde(default)]
    budget: BudgetTable,
    #[serde(default)]
    redaction: RedactionTable,
    #[serde(default)]
    tools: ToolsTable,
    #[serde(default)]
    deadlines: DeadlinesTable,
    #[serde(default)]
    hold_back: HoldBackTable,
    #[serde(default)]
    routing: RoutingTable,
    #[serde(default)]
    transcription: TranscriptionTable,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum HandoffWord {
    Never,
    Auto,
    Always,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetTable {
    protocol: Spanned<Protocol>,
    base_url: Spanned<String>,
    model: Spanned<String>,
    key: Option<Spanned<String>>,
    #[serde(default)]
    plain_http: bool,
    input_usd_per_million: Option<Usd>,
    output_usd_per_million: Option<Usd>,
    usd_per_minute: Option<Usd>,
    priced_on: Option<Spanned<String>>,
    #[serde(default = "default_output")]
    max_output_tokens: Spanned<u32>,
    #[serde(default)]
    images: bool,
    #[serde(default)]
    audio: bool,
    #[serde(default = "yes")]
    word_times: bool,
    #[serde(default = "yes")]
    tools: bool,
    #[serde(default)]
    accuracy: BTreeMap<Spanned<String>, Share>,
}

fn default_output() -> Spanned<u32> {
    Spanned::new(0..0, 2048)
}

fn yes() -> bool {
    true
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConsentTable {
    text: Option<Spanned<Leave>>,
    image: Option<Spanned<Leave>>,
    audio: Option<Spanned<Leave>>,
    tool_result: Option<Spanned<Leave>>,
    document: Option<Spanned<Leave>>,
    #[serde(default)]
    listed: Vec<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetTable {
    request_usd: Option<Limit>,
    session_usd: Option<Limit>,
    day_usd: Option<Limit>,
    month_usd: Option<Limit>,
    user_month_usd: Option<Limit>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ActionWord {
    Block,
    Placeholder,
    Allow,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RedactionTable {
    email: Option<ActionWord>,
    phone: Option<ActionWord>,
    card: Option<ActionWord>,
    iban: Option<ActionWord>,
    national_id: Option<ActionWord>,
    key: Option<ActionWord>,
    jwt: Option<ActionWord>,
    ip: Option<ActionWord>,
    position: Option<ActionWord>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolsTable {
    #[serde(default)]
    default: ToolUse,
    #[serde(default)]
    named: BTreeMap<String, ToolUse>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeadlinesTable {
    connect_ms: Option<Positive>,
    first_payload_ms: Option<Positive>,
    gap_ms: Option<Positive>,
    total_ms: Option<Positive>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct HoldBackTable {
    tokens: Option<Spanned<u32>>,
    ms: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoutingTable {
    confidence_threshold: Option<Share>,
    value_usd: Option<Usd>,
    second_usd: Option<Usd>,
    privacy_usd: Option<Usd>,
    max_error: Option<Spanned<Share>>,
    hedge: Option<bool>,
    hedge_range: Option<Spanned<[Share; 2]>>,
    retries: Option<Spanned<u32>>,
}

/// Dollars, as a number or as text.
#[derive(Clone, Copy)]
struct Usd(Pico);

/// Dollars, or that there is no limit.
#[derive(Clone, Copy)]
struct Limit(Option<Pico>);

struct AmountVisitor;

impl Visitor<'_> for AmountVisitor {
    type Value = Limit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("dollars such as 0.25")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Limit, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Limit, E> {
        // The shortest decimal that is this number is what was written.
        self.visit_str(&value.to_string())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Limit, E> {
        if text == "none" {
            return Ok(Limit(None));
        }
        text.parse().map(|amount| Limit(Some(amount))).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Limit, D::Error> {
        from.deserialize_any(AmountVisitor)
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Usd, D::Error> {
        let Limit(amount) = Limit::deserialize(from)?;
        amount
            .map(Usd)
            .ok_or_else(|| de::Error::custom("expected dollars such as 0.25; found `none`"))
    }
}

impl Usd {
    fn dollars(self) -> f64 {
        self.0.0 as f64 / 1e12
    }

    /// Of a price for a million tokens, that of one, rounded up.
    fn per_token(self) -> Pico {
        Pico(self.0.0.div_ceil(1_000_000))
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "f64")]
pub(super) struct Share(pub(super) f64);

impl TryFrom<f64> for Share {
    type Error = String;

    fn try_from(value: f64) -> Result<Share, String> {
        let inside = (0.0..=1.0).contains(&value);
        inside
            .then_some(Share(value))
            .ok_or_else(|| format!("expected a number from 0 to 1; found {value}"))
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "i64")]
struct Positive(u64);

impl TryFrom<i64> for Positive {
    type Error = String;

    fn try_from(value: i64) -> Result<Positive, String> {
        let found = || format!("expected milliseconds, from 1 on; found {value}");
        u64::try_from(value)
            .ok()
            .filter(|ms| *ms > 0)
            .map(Positive)
            .ok_or_else(found)
    }
}

impl Policy {
    /// Reads a policy file.
    ///
    /// # Errors
    /// [`PolicyError`] with the first line that is wrong.
    pub fn from_toml(text: &str) -> Result<Policy, PolicyError> {
        Policy::read(text, None)
    }

    /// Reads a policy file at a time, in seconds since 1970: no price can have been looked up later.
    ///
    /// # Errors
    /// [`PolicyError`] with the first line that is wrong.
    pub fn from_toml_at(text: &str, now: u64) -> Result<Policy, PolicyError> {
        Policy::read(text, Some(now))
    }

    fn read(text: &str, now: Option<u64>) -> Result<Policy, PolicyError> {
        let line = |at: usize| text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count() + 1;
        let file: File = toml::from_str(text)
            .map_err(|error| PolicyError::at(text, error.span().unwrap_or_default(), error.message()))?;
        file.check(&line, now)
            .map_err(|(span, what)| PolicyError::at(text, span, &what))
    }
}

/// Where, and what is wrong.
type Wrong = (Range<usize>, String);

impl File {
    /// `line` is that of a place in the file.
    fn check(self, line: &dyn Fn(usize) -> usize, now: Option<u64>) -> Result<Policy, Wrong> {
        if *self.version.get_ref() != VERSION {
            let found = self.version.get_ref();
            return Err((
                self.version.span(),
                format!("expected version = {VERSION}; found {found}"),
            ));
        }
        let known = |name: &Spanned<String>| {
            let found = name.get_ref();
            if self.targets.contains_key(found) {
                return Ok(found.clone());
            }
            let names: Vec<&str> = self.targets.keys().map(String::as_str).collect();
            let names = if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            };
            Err((
                name.span(),
                format!("expected the name of a target ({names}); found `{found}`"),
            ))
        };
        let prefer = self.prefer.as_ref();
        for (i, name) in prefer.into_iter().flatten().enumerate() {
            let before = &prefer.map_or(&[][..], |names| &names[..i]);
            if before.iter().any(|other| other.get_ref() == name.get_ref()) {
                let what = format!(
                    "expected each target once; found `{}` again: `routing.retries` says how often one is asked again",
                    name.get_ref()
                );
                return Err((name.span(), what));
            }
        }
        let prefer = prefer
            .map(|names| names.iter().map(known).collect::<Result<Vec<_>, _>>())
            .transpose()?;
        let consent_at = self.consent.as_ref().map_or(0..0, Spanned::span);
        let consent = self.consent.map(Spanned::into_inner).unwrap_or_default();
        let listed = consent.listed.iter().map(known).collect::<Result<Vec<_>, _>>()?;
        let mut in_order: Vec<(usize, String)> = self
            .targets
            .iter()
            .map(|(name, t)| (t.span().start, name.clone()))
            .collect();
        in_order.sort();
        let mut targets = BTreeMap::new();
        for (name, table) in self.targets {
            if RESERVED_NAMES.contains(&name.as_str()) {
                let what = format!(
                    "a target cannot be called `{name}`, which requests call another thing; give it another name"
                );
                return Err((table.span(), what));
            }
            if name.trim().is_empty() || name.contains(char::is_control) {
                let what = format!("expected a name for the target that can be shown in a line; found {name:?}");
                return Err((table.span(), what));
            }
            targets.insert(name, table.into_inner().check(now)?);
        }
        let leave = [
            (Class::Text, consent.text),
            (Class::Image, consent.image),
            (Class::Audio, consent.audio),
            (Class::ToolResult, consent.tool_result),
            (Class::Document, consent.document),
        ];
        let says = |found: &Option<Spanned<Leave>>, word| found.as_ref().is_some_and(|leave| *leave.get_ref() == word);
        let denied = leave.iter().filter(|(_, leave)| says(leave, Leave::Never));
        let denied = denied.filter_map(|(class, leave)| Some((*class, line(leave.as_ref()?.span().start))));
        let denied = denied.collect();
        if let Some((class, _)) = leave.iter().find(|(_, leave)| says(leave, Leave::Listed))
            && listed.is_empty()
        {
            let what = format!(
                "`{} = \"listed\"` lets nothing leave without a list; add `listed = [\"NAME\"]` with names of targets to `[consent]`",
                class.name()
            );
            return Err((consent_at, what));
        }
        let classes = leave
            .into_iter()
            .filter_map(|(class, leave)| Some((class, leave?.into_inner())))
            .collect();
        let handoff = match self.handoff {
            Some(HandoffWord::Never) => Handoff::Never,
            Some(HandoffWord::Auto) | None => Handoff::Auto,
            Some(HandoffWord::Always) => Handoff::Always,
        };
        Ok(Policy {
            handoff,
            prefer: prefer.unwrap_or_else(|| in_order.into_iter().map(|(_, name)| name).collect()),
            targets,
            consent: Consent {
                classes,
                listed,
                denied,
            },
            caps: self.budget.caps(),
            redaction: self.redaction.rules(),
            tools: self.tools.named,
            tool_default: self.tools.default,
            deadlines: self.deadlines.deadlines(),
            hold_back: self.hold_back.check()?,
            routing: self.routing.check()?,
            transcription: self.transcription.rules(),
        })
    }
}

impl TargetTable {
    /// Of tokens, and of a minute of sound: whichever it charges for has to be said, and nothing else.
    fn prices(&self) -> Result<(Price, Option<Pico>), Wrong> {
        let hears = *self.protocol.get_ref() == Protocol::OpenaiTranscriptions;
        let wrong = |what: &str| Err((self.protocol.span(), what.to_owned()));
        match (
            self.input_usd_per_million,
            self.output_usd_per_million,
            self.usd_per_minute,
        ) {
            (None, None, Some(minute)) if hears => Ok((Price::default(), Some(minute.0))),
            _ if hears => wrong(
                "a target that writes down speech is paid by the minute: expected `usd_per_minute`, and no price for tokens",
            ),
            (Some(input), Some(output), None) => Ok((
                Price {
                    input: input.per_token(),
                    output: output.per_token(),
                },
                None,
            )),
            (_, _, Some(_)) => wrong(
                "`usd_per_minute` is a price of `protocol = \"openai_transcriptions\"`; found it with another one",
            ),
            _ => wrong("expected `input_usd_per_million` and `output_usd_per_million`; found a target without a price"),
        }
    }

    fn check(self, now: Option<u64>) -> Result<Target, Wrong> {
        let url = self.base_url.get_ref();
        if let Err(expected) = address::check(url, self.plain_http) {
            return Err((
                self.base_url.span(),
                format!("expected {expected}; found {}", address::shown(url)),
            ));
        }
        if self.model.get_ref().trim().is_empty() {
            let what = "expected the name that the model has there; found an empty one".to_owned();
            return Err((self.model.span(), what));
        }
        let key = match &self.key {
            None => KeySource::None,
            Some(key) => {
                let found = key.get_ref();
                let (kind, name) = found.split_once(':').unwrap_or(("", ""));
                match (kind, name.is_empty()) {
                    ("env", false) => KeySource::Environment(name.to_owned()),
                    ("keyring", false) => KeySource::Keyring(name.to_owned()),
                    ("file", false) => KeySource::File(name.to_owned()),
                    // What is there may be the key itself, which no message repeats.
                    _ => {
                        let what =
                            "expected where the key is: `env:NAME`, `keyring:NAME` or `file:PATH`; found another text";
                        return Err((key.span(), what.to_owned()));
                    }
                }
            }
        };
        if let Some(day) = &self.priced_on
            && !is_day(day.get_ref())
        {
            let found = day.get_ref();
            return Err((
                day.span(),
                format!("expected a day such as `2026-11-22`; found `{found}`"),
            ));
        }
        if let (Some(day), Some(now)) = (&self.priced_on, now) {
            // Somewhere it is tomorrow already. Days of this form are in the order of their letters.
            let (year, month, date) = date_of(now);
            let (next_year, next_month, next_date) = date_of(now.saturating_add(14 * 3600));
            let latest = format!("{next_year:04}-{next_month:02}-{next_date:02}");
            if *day.get_ref() > latest {
                let what = format!(
                    "expected a day that has been (today is {year:04}-{month:02}-{date:02} by the clock of this machine); found `{}`",
                    day.get_ref()
                );
                return Err((day.span(), what));
            }
        }
        if let Some(task) = self
            .accuracy
            .keys()
            .find(|task| !TASKS.contains(&task.get_ref().as_str()))
        {
            let expected = TASKS.join("`, `");
            return Err((
                task.span(),
                format!("expected a kind of task (`{expected}`); found `{}`", task.get_ref()),
            ));
        }
        let (price, minute) = self.prices()?;
        let protocol = *self.protocol.get_ref();
        let hears = protocol == Protocol::OpenaiTranscriptions;
        let max_output_tokens = *self.max_output_tokens.get_ref();
        if max_output_tokens == 0 {
            return Err((
                self.max_output_tokens.span(),
                "expected at least 1 token; found 0".to_owned(),
            ));
        }
        Ok(Target {
            protocol,
            base_url: self.base_url.into_inner(),
            model: self.model.into_inner(),
            key,
            price,
            minute,
            priced_on: self.priced_on.map(Spanned::into_inner),
            max_output_tokens,
            images: self.images,
            audio: self.audio || hears,
            word_times: self.word_times && hears,
            tools: self.tools && !hears,
            accuracy: self
                .accuracy
                .into_iter()
                .map(|(task, share)| (task.into_inner(), share.0))
                .collect(),
        })
    }
}

fn is_day(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    let digits = parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_digit()));
    lengths == [4, 2, 2]
        && digits
        && (1..=12).contains(&parts[1].parse().unwrap_or(0))
        && (1..=31).contains(&parts[2].parse().unwrap_or(0))
}

impl BudgetTable {
    fn caps(self) -> Caps {
        let default = Caps::default();
        let or = |limit: Option<Limit>, default| limit.map_or(default, |limit| limit.0);
        Caps {
            request: or(self.request_usd, default.request),
            session: or(self.session_usd, default.session),
            day: or(self.day_usd, default.day),
            month: or(self.month_usd, default.month),
            user: or(self.user_month_usd, default.user),
        }
    }
}

impl RedactionTable {
    fn rules(self) -> Rules {
        let words = [
            (Kind::Email, self.email),
            (Kind::Phone, self.phone),
            (Kind::Card, self.card),
            (Kind::Iban, self.iban),
            (Kind::NationalId, self.national_id),
            (Kind::Key, self.key),
            (Kind::Jwt, self.jwt),
            (Kind::Ip, self.ip),
            (Kind::Position, self.position),
        ];
        words
            .into_iter()
            .fold(Rules::default(), |rules, (kind, word)| match word {
                None => rules,
                Some(ActionWord::Block) => rules.with(kind, Action::Block),
                Some(ActionWord::Placeholder) => rules.with(kind, Action::Placeholder),
                Some(ActionWord::Allow) => rules.with(kind, Action::Allow),
            })
    }
}

impl DeadlinesTable {
    fn deadlines(self) -> Deadlines {
        let default = Deadlines::default();
        let or = |ms: Option<Positive>, default| ms.map_or(default, |ms| ms.0);
        Deadlines {
            connect_ms: or(self.connect_ms, default.connect_ms),
            first_payload_ms: or(self.first_payload_ms, default.first_payload_ms),
            gap_ms: or(self.gap_ms, default.gap_ms),
            total_ms: or(self.total_ms, default.total_ms),
        }
    }
}

impl HoldBackTable {
    fn check(self) -> Result<HoldBack, Wrong> {
        let default = HoldBack::default();
        let tokens = match self.tokens {
            Some(tokens) if *tokens.get_ref() == 0 => {
                let what = "expected at least 1 token, as an answer is judged by what it says; found 0".to_owned();
                return Err((tokens.span(), what));
            }
            tokens => tokens.map_or(default.tokens, Spanned::into_inner),
        };
        let ms = self.ms.unwrap_or(default.ms);
        Ok(HoldBack { tokens, ms })
    }
}

impl RoutingTable {
    fn check(self) -> Result<Routing, Wrong> {
        let default = Routing::default();
        let dollars = |usd: Option<Usd>, default| usd.map_or(default, Usd::dollars);
        let hedge_range = match self.hedge_range {
            None => default.hedge_range,
            Some(range) => {
                let [Share(low), Share(high)] = *range.get_ref();
                if low > high {
                    return Err((
                        range.span(),
                        format!("expected the lower end first; found {low} before {high}"),
                    ));
                }
                [low, high]
            }
        };
        let max_error = match self.max_error {
            None => default.max_error,
            Some(share) => match share.get_ref().0 {
                most if most > 0.0 && most < 1.0 => most,
                most => {
                    let what = format!(
                        "expected more than 0, as nothing is never wrong, and less than 1, as everything would be kept; found {most}: \
                         `handoff = \"always\"` or `\"never\"` is what hands off everything or nothing"
                    );
                    return Err((share.span(), what));
                }
            },
        };
        let retries = match self.retries {
            None => default.retries,
            Some(retries) if *retries.get_ref() <= 5 => retries.into_inner(),
            Some(retries) => {
                return Err((
                    retries.span(),
                    format!("expected at most 5 retries; found {}", retries.get_ref()),
                ));
            }
        };
        Ok(Routing {
            confidence_threshold: self.confidence_threshold.map(|share| share.0),
            value_usd: dollars(self.value_usd, default.value_usd),
            second_usd: dollars(self.second_usd, default.second_usd),
            privacy_usd: dollars(self.privacy_usd, default.privacy_usd),
            max_error,
            hedge: self.hedge.unwrap_or(default.hedge),
            hedge_range,
            retries,
        })
    }
}
