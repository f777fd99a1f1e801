//! Personal data and secrets out of what leaves, and back into what returns.
//!
//! ```text
//! "mail jo@example.org" ── redact ──► "mail [EMAIL_1]" ──► target ──► "sent to [EMAIL_1]" ── restore ──► "sent to jo@…"
//! ```
//!
//! A [`Redactor`] belongs to one conversation: the same value has the same placeholder in each turn. [`Gate`] applies it to
//! whole requests, in which a value that was found once is replaced wherever it stands, and is the only maker of [`Outgoing`], which is what a transport should ask for. [`Restorer`] puts values
//! back into a stream cut anywhere, [`Redactor::restore_json`] and [`Redactor::restore_json_as`] into the arguments of a tool.
//!
//! Found is what has a form: email addresses, phone numbers, cards (Luhn), IBANs (length by country, modulo 97), national ids
//! (most by their check digits), keys and passwords by prefix or label, JSON web tokens, IP addresses and positions. A text is
//! looked through in a plain form (`fold`), so that wide letters, other digits and invisible characters hide nothing. Names of
//! people and places have no form, and are not found. Neither is what is spelled out, spread over parts or encoded: this is a net
//! with holes, not a proof. The work is linear in the text.
//!
//! It depends on nothing of this crate. It does not know who may receive what: that is consent's.

mod called;
mod detect;
mod digits;
mod email;
mod fold;
mod gate;
mod identity;
mod known;
mod labels;
mod names;
mod restore;
mod restore_json;
mod secrets;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_names;
#[cfg(test)]
mod tests_numbers;

pub use gate::{Class, Content, Gate, Outgoing, Part, Refused, UnknownClass};
pub use restore::Restorer;

use serde_json::Value;
use std::collections::BTreeMap;

/// A kind of text that should not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An email address.
    Email,
    /// A phone number: international, or of a common national form.
    Phone,
    /// The number of a payment card.
    Card,
    /// An international bank account number.
    Iban,
    /// A number by which a state knows a person.
    NationalId,
    /// A key, a password or a private key.
    Key,
    /// A JSON web token.
    Jwt,
    /// An IP address, apart from loopback ones.
    Ip,
    /// A position as degrees of latitude and longitude.
    Position,
    /// What looks like one of our placeholders. Always replaced, so that it comes back as it was.
    Placeholder,
}

impl Kind {
    /// All kinds that a policy decides about.
    pub const ALL: [Kind; 9] = [
        Kind::Email,
        Kind::Phone,
        Kind::Card,
        Kind::Iban,
        Kind::NationalId,
        Kind::Key,
        Kind::Jwt,
        Kind::Ip,
        Kind::Position,
    ];

    /// The word for it in policy files and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Email => "email",
            Kind::Phone => "phone",
            Kind::Card => "card",
            Kind::Iban => "iban",
            Kind::NationalId => "national_id",
            Kind::Key => "key",
            Kind::Jwt => "jwt",
            Kind::Ip => "ip",
            Kind::Position => "position",
            Kind::Placeholder => "placeholder",
        }
    }

    /// The word in its placeholders.
    fn label(self) -> &'static str {
        match self {
            Kind::Email => "EMAIL",
            Kind::Phone => "PHONE",
            Kind::Card => "CARD",
            Kind::Iban => "IBAN",
            Kind::NationalId => "ID",
            Kind::Key => "KEY",
            Kind::Jwt => "JWT",
            Kind::Ip => "IP",
            Kind::Position => "POSITION",
            Kind::Placeholder => "TEXT",
        }
    }
}

/// What happens to text of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// The request does not leave.
    Block,
    /// A placeholder leaves instead.
    #[default]
    Placeholder,
    /// It leaves as it is.
    Allow,
}

/// What happens to each kind; placeholders, where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(BTreeMap<Kind, Action>);

impl Rules {
    /// The same with another action for a kind.
    #[must_use]
    pub fn with(mut self, kind: Kind, action: Action) -> Rules {
        self.0.insert(kind, action);
        self
    }

    /// Whether any kind keeps a request from leaving.
    #[must_use]
    pub fn block_any(&self) -> bool {
        self.0.values().any(|action| *action == Action::Block)
    }

    /// What happens to a kind.
    #[must_use]
    pub fn action(&self, kind: Kind) -> Action {
        if kind == Kind::Placeholder {
            Action::Placeholder
        } else {
            self.0.get(&kind).copied().unwrap_or_default()
        }
    }
}

/// A request holds what the rules block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request holds text of the kind `{}`, which the policy does not let leave", .0.name())]
pub struct Blocked(pub Kind);

/// The values of one conversation and their placeholders.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    rules: Rules,
    numbers: BTreeMap<Kind, u32>,
    /// Placeholder by value, and whether the value was a number in JSON.
    placeholders: BTreeMap<(Kind, String, bool), String>,
    values: BTreeMap<String, (String, bool)>,
    replaced: BTreeMap<Kind, u64>,
    /// What is replaced wherever it stands.
    known: known::Known,
}

impl Redactor {
    /// A redactor that knows no values yet.
    #[must_use]
    pub fn new(rules: Rules) -> Redactor {
        Redactor {
            rules,
            ..Redactor::default()
        }
    }

    /// The text with placeholders.
    ///
    /// # Errors
    /// [`Blocked`] where the text holds a kind that the rules block.
    pub fn redact(&mut self, text: &str) -> Result<String, Blocked> {
        let mut redacted = String::with_capacity(text.len());
        self.redact_into(text, &mut redacted, 0)?;
        Ok(redacted)
    }

    /// Scans what lies between matches again, as each placeholder ends a word, so that what became one is found, too.
    fn redact_into(&mut self, text: &str, redacted: &mut String, depth: usize) -> Result<(), Blocked> {
        const DEPTH: usize = 8;
        let mut found = detect::detect(text, |kind| self.rules.action(kind) != Action::Allow);
        self.known.add(text, &mut found);
        if found.is_empty() {
            redacted.push_str(text);
            return Ok(());
        }
        let mut end = 0;
        for span in found {
            if self.rules.action(span.kind) == Action::Block {
                return Err(Blocked(span.kind));
            }
            let between = &text[end..span.start];
            if depth < DEPTH {
                self.redact_into(between, redacted, depth + 1)?;
            } else {
                redacted.push_str(between);
            }
            let placeholder = self.placeholder(span.kind, &text[span.start..span.end], false);
            redacted.push_str(&placeholder);
            end = span.end;
        }
        if depth < DEPTH {
            return self.redact_into(&text[end..], redacted, depth + 1);
        }
        redacted.push_str(&text[end..]);
        Ok(())
    }

    /// Takes in the values of texts that will be redacted, so that each is replaced wherever it stands, in earlier texts, too.
    ///
    /// # Errors
    /// As [`Redactor::redact`].
    fn learn(&mut self, parts: &[Part]) -> Result<(), Blocked> {
        let replaced = self.replaced.clone();
        for part in parts.iter().filter(|part| !matches!(part.content, Content::Bytes(_))) {
            self.redact_part(part.clone())?;
        }
        self.replaced = replaced;
        let values = self.placeholders.keys().map(|(kind, value, _)| (*kind, value.as_str()));
        self.known = known::Known::of(values);
        Ok(())
    }

    /// Redacts each string, key and number of a JSON value, and what stands under a key such as `password`. A number that is
    /// replaced becomes a string.
    ///
    /// # Errors
    /// As [`Redactor::redact`].
    pub fn redact_json(&mut self, value: &mut Value) -> Result<(), Blocked> {
        self.redact_under(names::Under::default(), value)
    }

    /// The result of a tool. JSON is redacted as such, and changes its white space where anything was replaced.
    ///
    /// # Errors
    /// As [`Redactor::redact`].
    fn redact_result(&mut self, text: &str) -> Result<String, Blocked> {
        if let Ok(value @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(text) {
            let mut redacted = value.clone();
            self.redact_json(&mut redacted)?;
            if redacted != value {
                return Ok(redacted.to_string());
            }
        }
        // A key that comes twice is in the text twice, and in the value once.
        self.redact(text)
    }

    /// A part of a request.
    fn redact_part(&mut self, Part { class, content }: Part) -> Result<Content, Blocked> {
        Ok(match content {
            Content::Text(text) if class == Class::ToolResult => Content::Text(self.redact_result(&text)?),
            Content::Text(text) => Content::Text(self.redact(&text)?),
            Content::Json(mut value) => {
                self.redact_json(&mut value)?;
                Content::Json(value)
            }
            bytes @ Content::Bytes(_) => bytes,
        })
    }

    /// What stands under a key of JSON, itself, in a list or in an object.
    fn redact_under(&mut self, under: names::Under<'_>, value: &mut Value) -> Result<(), Blocked> {
        let plain = match &*value {
            Value::String(text) => Some((text.clone(), false)),
            Value::Number(number) => Some((number.to_string(), true)),
            _ => None,
        };
        if let Some((text, number)) = plain.filter(|(text, _)| under.names(text)) {
            match self.rules.action(Kind::Key) {
                Action::Block => return Err(Blocked(Kind::Key)),
                Action::Placeholder => {
                    *value = Value::String(self.placeholder(Kind::Key, &text, number));
                    return Ok(());
                }
                Action::Allow => {}
            }
        }
        match value {
            Value::String(text) => *text = self.redact(text)?,
            Value::Number(number) => {
                let text = number.to_string();
                let mut found = detect::detect(&text, |kind| self.rules.action(kind) != Action::Allow);
                if found.is_empty() {
                    self.known.add(&text, &mut found);
                    found.retain(|span| span.end - span.start == text.len());
                }
                if let Some(span) = found.first() {
                    if self.rules.action(span.kind) == Action::Block {
                        return Err(Blocked(span.kind));
                    }
                    *value = Value::String(self.placeholder(span.kind, &text, true));
                }
            }
            Value::Array(items) => {
                // Of a command: `["--password", "hunter2"]`.
                let mut option = None;
                for item in items {
                    let next = item.as_str().filter(|text| text.starts_with('-')).map(str::to_owned);
                    self.redact_under(option.as_deref().map_or(under, |name| under.entry(name)), item)?;
                    option = next;
                }
            }
            Value::Object(map) => {
                let named = names::pair(map);
                for (key, mut item) in std::mem::take(map) {
                    // What is something else alone, under such a key.
                    let kind = detect::of_key(&key, &item);
                    match kind.map(|kind| (kind, self.rules.action(kind))) {
                        Some((kind, Action::Block)) => return Err(Blocked(kind)),
                        Some((kind, Action::Placeholder)) => {
                            let (text, number) = match &item {
                                Value::String(text) => (text.clone(), false),
                                number => (number.to_string(), true),
                            };
                            item = Value::String(self.placeholder(kind, &text, number));
                        }
                        _ => {
                            let name = named.as_deref().filter(|_| key.eq_ignore_ascii_case("value"));
                            self.redact_under(under.entry(name.unwrap_or(&key)), &mut item)?;
                        }
                    }
                    map.insert(self.redact(&key)?, item);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
        Ok(())
    }

    fn placeholder(&mut self, kind: Kind, value: &str, number: bool) -> String {
        *self.replaced.entry(kind).or_default() += 1;
        let key = (kind, value.to_owned(), number);
        if let Some(placeholder) = self.placeholders.get(&key) {
            return placeholder.clone();
        }
        let count = self.numbers.entry(kind).or_default();
        *count += 1;
        let placeholder = format!("[{}_{count}]", kind.label());
        self.placeholders.insert(key, placeholder.clone());
        self.values.insert(placeholder.clone(), (value.to_owned(), number));
        placeholder
    }

    /// The value behind a placeholder.
    fn value(&self, placeholder: &str) -> Option<&str> {
        self.values.get(placeholder).map(|(value, _)| value.as_str())
    }

    /// Whether this looks like one of our placeholders, in a conversation that has some, and is none. What looked like one before is
    /// replaced as it leaves, so nobody else can have said it first.
    fn never_made(&self, placeholder: &str) -> bool {
        let inside = placeholder.trim_start_matches('[').trim_end_matches(']');
        let (label, number) = inside.split_once('_').unwrap_or_default();
        let mut kinds = Kind::ALL.iter().chain(&[Kind::Placeholder]);
        let alike = !number.is_empty() && kinds.any(|kind| kind.label() == label);
        alike && !self.values.is_empty() && !self.values.contains_key(placeholder)
    }

    /// The text with values for the placeholders that this redactor made.
    #[must_use]
    pub fn restore(&self, text: &str) -> String {
        let mut restorer = Restorer::of_text();
        let mut restored = restorer.push(self, text);
        restored.push_str(&restorer.finish());
        restored
    }

    /// How many texts of each kind were replaced so far.
    #[must_use]
    pub fn replaced(&self) -> &BTreeMap<Kind, u64> {
        &self.replaced
    }
}
