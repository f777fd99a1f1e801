//! Where a request can go, and what is understood there.

use crate::{Effort, Error, ErrorKind, Issuer, MinutePrice, Price, Request, Result};
use std::fmt;
use std::net::IpAddr;
use ureq::http::Uri;

/// A model that somebody else runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// What the user calls it.
    pub name: String,
    /// How it is spoken to.
    pub protocol: Protocol,
    /// Which variety of the protocol.
    pub dialect: Dialect,
    /// Its address.
    pub base: Base,
    /// The model's name there.
    pub model: String,
    /// What it can do.
    pub capabilities: Capabilities,
    /// What it costs; `None` where nobody said.
    pub price: Option<Price>,
    /// What a minute of sound costs there; `None` where nobody said, or it writes down no speech.
    pub minute: Option<MinutePrice>,
}

impl Target {
    /// A target at an address, with the dialect that its host speaks and cautious capabilities.
    pub fn new(name: impl Into<String>, protocol: Protocol, base: Base, model: impl Into<String>) -> Self {
        let dialect = Dialect::of_host(base.host());
        Self {
            name: name.into(),
            protocol,
            dialect,
            base,
            model: model.into(),
            capabilities: Capabilities::of(protocol, dialect),
            price: None,
            minute: None,
        }
    }

    /// Who makes the opaque parts of its answers.
    #[must_use]
    pub fn issuer(&self) -> Issuer {
        Issuer {
            protocol: self.protocol,
            authority: self.base.authority().to_owned(),
            model: self.model.clone(),
        }
    }

    /// Whether it can do what the request needs.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] where no target could, [`ErrorKind::Unsupported`] naming what this one cannot.
    pub fn check(&self, request: &Request) -> Result<()> {
        use crate::{Format, Part};
        request.check()?;
        let can = &self.capabilities;
        let lacks = |what: &str| {
            let message = format!("the target `{}` does not take {what}", self.name);
            Err(Error::new(ErrorKind::Unsupported, message))
        };
        let has = |wanted: fn(&Part) -> bool| request.messages.iter().flat_map(|m| &m.parts).any(wanted);
        if !can.images && has(|p| matches!(p, Part::Image(_))) {
            return lacks("images");
        }
        if !can.audio && has(|p| matches!(p, Part::Audio(_))) {
            return lacks("audio");
        }
        if !can.tools && (!request.tools.is_empty() || has(|p| matches!(p, Part::ToolCall(_) | Part::ToolResult(_)))) {
            return lacks("tools");
        }
        if !can.json_object && request.format == Format::JsonObject {
            return lacks("a JSON object without a schema for the answer");
        }
        if !can.json_schema && matches!(request.format, Format::JsonSchema { .. }) {
            return lacks("a JSON schema for the answer");
        }
        if let Some(most) = can.max_output_tokens
            && request.max_output_tokens > most
        {
            return lacks(&format!(
                "answers of {} tokens; it writes {most} at most",
                request.max_output_tokens
            ));
        }
        Ok(())
    }
}

/// How a target is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// `POST …/chat/completions`.
    OpenAiChat,
    /// `POST …/responses`.
    OpenAiResponses,
    /// `POST …/messages`.
    Anthropic,
    /// `POST …/models/{model}:generateContent`.
    Gemini,
    /// `POST …/audio/transcriptions`: it writes down speech, and does nothing else.
    OpenAiTranscriptions,
}

/// Words of the protocols and dialects, as users write them.
const PROTOCOLS: &[(&str, Protocol)] = &[
    ("openai_chat", Protocol::OpenAiChat),
    ("openai_responses", Protocol::OpenAiResponses),
    ("anthropic", Protocol::Anthropic),
    ("gemini", Protocol::Gemini),
    ("openai_transcriptions", Protocol::OpenAiTranscriptions),
];

const DIALECTS: &[(&str, Dialect)] = &[
    ("vendor", Dialect::Vendor),
    ("deepseek", Dialect::DeepSeek),
    ("openrouter", Dialect::OpenRouter),
    ("compatible", Dialect::Compatible),
];

impl Protocol {
    /// From the word for it: `openai_chat`, `openai_responses`, `anthropic`, `gemini` or `openai_transcriptions`. Hyphens
    /// are as good.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let word = word.replace('-', "_");
        PROTOCOLS.iter().find(|(w, _)| *w == word).map(|(_, p)| *p)
    }

    /// The words that [`parse`](Self::parse) knows.
    pub fn words() -> impl Iterator<Item = &'static str> {
        PROTOCOLS.iter().map(|(word, _)| *word)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every variant is in the table: a test looks.
        f.write_str(PROTOCOLS.iter().find(|(_, p)| p == self).map_or("", |(word, _)| word))
    }
}

/// Whose variety of a protocol it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Of the vendor who made the protocol.
    Vendor,
    /// Of DeepSeek: thinking is on unless turned off, and its text goes back.
    DeepSeek,
    /// Of OpenRouter: errors come inside answers, details of reasoning go back.
    OpenRouter,
    /// Of anybody else, such as a server of ours: what all of them understand.
    Compatible,
}

impl Dialect {
    /// From the word for it: `vendor`, `deepseek`, `openrouter` or `compatible`.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        DIALECTS.iter().find(|(w, _)| *w == word).map(|(_, d)| *d)
    }

    /// The words that [`parse`](Self::parse) knows.
    pub fn words() -> impl Iterator<Item = &'static str> {
        DIALECTS.iter().map(|(word, _)| *word)
    }

    /// What a host speaks.
    #[must_use]
    pub fn of_host(host: &str) -> Self {
        match host {
            "api.openai.com" | "api.anthropic.com" | "generativelanguage.googleapis.com" => Self::Vendor,
            "api.deepseek.com" => Self::DeepSeek,
            "openrouter.ai" => Self::OpenRouter,
            _ => Self::Compatible,
        }
    }
}

/// What a target understands beyond text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Tools.
    pub tools: bool,
    /// Answers that are some JSON object, without a schema.
    pub json_object: bool,
    /// Answers that follow a JSON schema.
    pub json_schema: bool,
    /// Images.
    pub images: bool,
    /// Recordings.
    pub audio: bool,
    /// Of speech that it writes down, when each word is said.
    pub word_times: bool,
    /// `temperature`.
    pub temperature: bool,
    /// `top_p`.
    pub top_p: bool,
    /// `top_k`.
    pub top_k: bool,
    /// `seed`.
    pub seed: bool,
    /// Stop strings.
    pub stop: bool,
    /// How it is told how much to think.
    pub thinking: Thinking,
    /// Most tokens of prompt and answer together.
    pub context_tokens: Option<u64>,
    /// Most tokens of an answer.
    pub max_output_tokens: Option<u32>,
}

/// How a target is told how much to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    /// It cannot be told.
    Unknown,
    /// By a word, which may be one for "not at all".
    Effort {
        /// The least that it takes.
        least: Effort,
    },
}

impl Capabilities {
    /// What is safe to assume.
    #[must_use]
    pub fn of(protocol: Protocol, dialect: Dialect) -> Self {
        let vendor = dialect == Dialect::Vendor;
        let openai = matches!(protocol, Protocol::OpenAiChat | Protocol::OpenAiResponses);
        let anthropic = protocol == Protocol::Anthropic;
        let gemini = protocol == Protocol::Gemini;
        // The reasoning models of OpenAI and all of Anthropic's refuse options of sampling, even at their defaults.
        let sampling = !(vendor && (openai || anthropic));
        Self {
            tools: true,
            json_object: !anthropic,
            json_schema: true,
            images: vendor,
            audio: (vendor && gemini) || protocol == Protocol::OpenAiTranscriptions,
            word_times: protocol == Protocol::OpenAiTranscriptions,
            temperature: sampling,
            top_p: sampling,
            top_k: gemini || (anthropic && sampling),
            seed: sampling && (gemini || protocol == Protocol::OpenAiChat),
            stop: protocol != Protocol::OpenAiResponses && !(vendor && openai),
            thinking: match (vendor, dialect) {
                (_, Dialect::Compatible) => Thinking::Unknown,
                (true, _) if gemini => Thinking::Effort { least: Effort::Low },
                _ => Thinking::Effort { least: Effort::None },
            },
            context_tokens: None,
            max_output_tokens: None,
        }
    }
}

/// The address that a target's paths are put behind, such as `https://api.openai.com/v1`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Base {
    /// Without a slash at the end.
    text: String,
    scheme_len: usize,
    path_at: usize,
}

impl fmt::Debug for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What protocols put behind an address.
const PATHS: [&str; 5] = [
    "/chat/completions",
    "/responses",
    "/messages",
    "/audio/transcriptions",
    "/models",
];

impl Base {
    /// Reads an address: `https://HOST[:PORT][/PATH]`, or with `plain` also `http://`, which goes to private addresses alone
    /// ([`Base::is_private`]; a host name is looked at again when it is resolved).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidTarget`], saying what is wrong.
    pub fn parse(text: &str, plain: bool) -> Result<Self> {
        let wrong = |why: &str| {
            Err(Error::new(
                ErrorKind::InvalidTarget,
                format!("the address `{text}` {why}"),
            ))
        };
        // It is part of messages; a password in it would be too.
        if text.contains('@') {
            let message = "an address with `@` was given; a key does not belong into an address".to_owned();
            return Err(Error::new(ErrorKind::InvalidTarget, message));
        }
        if let Some(at) = text.find(['?', '#']) {
            // What follows may be a key.
            let message = format!(
                "the address `{}…` has a query or a fragment; expected https://HOST/PATH",
                &text[..=at]
            );
            return Err(Error::new(ErrorKind::InvalidTarget, message));
        }
        let text = text.trim_end_matches('/');
        if let Some(end) = PATHS.iter().find(|end| text.ends_with(*end)) {
            return wrong(&format!(
                "ends with `{end}`, which is added to it; expected it without that"
            ));
        }
        let Ok(uri) = text.parse::<Uri>() else {
            return wrong("cannot be read; expected https://HOST/PATH");
        };
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return wrong("has no scheme or no host; expected https://HOST/PATH");
        };
        if authority.host().is_empty() {
            return wrong("has no host; expected https://HOST/PATH");
        }
        let port = authority
            .as_str()
            .rsplit_once(':')
            .filter(|(_, port)| !port.ends_with(']'));
        if port.is_some_and(|(_, port)| port.parse::<u16>().is_err()) {
            return wrong("has a port that is no number up to 65535; expected https://HOST:PORT/PATH");
        }
        let scheme_len = scheme.len();
        let scheme = scheme.to_ascii_lowercase();
        let authority = authority.as_str().to_ascii_lowercase();
        let start = scheme_len + "://".len();
        let path_at = start + authority.len();
        let base = Self {
            text: format!("{scheme}://{authority}{}", &text[path_at..]),
            scheme_len,
            path_at,
        };
        match scheme.as_str() {
            "https" => Ok(base),
            "http" if !plain => wrong(
                "is not encrypted, so others can read what is sent; expected https, or `plain_http = true` beside it where it is this \
                 machine or an address of a private network",
            ),
            "http" if is_literal(base.host()) && !base.is_private() => wrong(
                "is not encrypted, so others can read what is sent; expected https, as plain http is for loopback and private addresses \
                 only",
            ),
            "http" => Ok(base),
            _ => wrong("has an unknown scheme; expected https"),
        }
    }

    /// Whether it is `http`.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.scheme_len == "http".len()
    }

    /// Host and port, as written, in lower case.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.text[self.scheme_len + "://".len()..self.path_at]
    }

    /// Whom a key is for: host and port, and before them `http://` where nothing is encrypted. The port is left out where it is the
    /// scheme's own.
    #[must_use]
    pub fn origin(&self) -> String {
        let (scheme, own) = match self.is_plain() {
            true => ("http://", ":80"),
            false => ("", ":443"),
        };
        let authority = self.authority();
        format!("{scheme}{}", authority.strip_suffix(own).unwrap_or(authority))
    }

    /// The host, in lower case, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        let authority = self.authority();
        if let Some(inner) = authority.strip_prefix('[') {
            return inner.split(']').next().unwrap_or(inner);
        }
        authority.split(':').next().unwrap_or(authority)
    }

    /// Whether the host is an address of loopback, of a private network or of the link, or `localhost`.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.host() == "localhost" || self.host().parse().is_ok_and(is_private)
    }

    /// The whole address of a path, which begins with a slash.
    #[must_use]
    pub fn join(&self, path: &str) -> String {
        format!("{}{path}", self.text)
    }
}

fn is_literal(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok()
}

/// Whether an address is of loopback, of a private network, or of the link.
pub(crate) fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, Role};

    #[test]
    fn base_is_https_or_plain_to_a_private_address() {
        let cases = [
            (
                "https://api.openai.com/v1/",
                false,
                Ok(("api.openai.com", "api.openai.com")),
            ),
            (
                "HTTPS://API.OpenAI.com:8443/V1",
                false,
                Ok(("api.openai.com", "api.openai.com:8443")),
            ),
            ("http://127.0.0.1:8081/v1", true, Ok(("127.0.0.1", "127.0.0.1:8081"))),
            ("http://[fd00::1]:80", true, Ok(("fd00::1", "[fd00::1]:80"))),
            ("http://box.local/v1", true, Ok(("box.local", "box.local"))),
            ("http://127.0.0.1/v1", false, Err("not encrypted")),
            ("http://8.8.8.8/v1", true, Err("private addresses only")),
            ("http://[2001:db8::1]/v1", true, Err("private addresses only")),
            ("https://sk-1@host/v1", false, Err("does not belong")),
            ("https://host/v1?key=1", false, Err("query")),
            (
                "https://host/v1/chat/completions/",
                false,
                Err("ends with `/chat/completions`, which is added"),
            ),
            ("ftp://host", true, Err("unknown scheme")),
            ("/v1", true, Err("no scheme")),
            ("host", true, Err("no scheme")),
            ("https://", true, Err("no host")),
            ("", true, Err("cannot be read")),
            ("https://ho st/", true, Err("cannot be read")),
            ("https://host:70000/", true, Err("no number up to 65535")),
        ];
        for (text, plain, want) in cases {
            match (Base::parse(text, plain), want) {
                (Ok(base), Ok((host, authority))) => assert_eq!((base.host(), base.authority()), (host, authority)),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
        let base = Base::parse("https://Host/V1//", false).unwrap();
        assert_eq!(base.join("/messages"), "https://host/V1/messages");
    }

    #[test]
    fn is_private_knows_the_ranges() {
        let cases = [
            ("127.0.0.1", true),
            ("10.1.2.3", true),
            ("172.16.0.1", true),
            ("172.32.0.1", false),
            ("192.168.1.1", true),
            ("169.254.1.1", true),
            ("100.64.0.1", false),
            ("::1", true),
            ("fe80::1", true),
            ("::ffff:10.0.0.1", true),
            ("::ffff:8.8.8.8", false),
            ("8.8.8.8", false),
        ];
        for (text, want) in cases {
            assert_eq!(is_private(text.parse().unwrap()), want, "{text}");
        }
    }

    #[test]
    fn words_are_read_back() {
        for word in Protocol::words() {
            assert_eq!(Protocol::parse(word).unwrap().to_string(), word);
        }
        assert_eq!(Dialect::words().filter_map(Dialect::parse).count(), DIALECTS.len());
        assert_eq!(Protocol::parse("grpc"), None);
    }

    #[test]
    fn check_names_what_a_target_cannot_do() {
        let base = Base::parse("http://127.0.0.1:1/v1", true).unwrap();
        let mut target = Target::new("lan", Protocol::OpenAiChat, base, "m");
        let mut request = Request::new(vec![Message::text(Role::User, "hi")], 100);
        target.check(&request).unwrap();
        target.capabilities.max_output_tokens = Some(10);
        let error = target.check(&request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("10 at most"), "{error}");
        target.capabilities.json_schema = false;
        request.max_output_tokens = 5;
        request.format = crate::Format::JsonSchema {
            name: "n".into(),
            schema: serde_json::json!({}),
            strict: false,
        };
        assert!(target.check(&request).unwrap_err().to_string().contains("JSON schema"));
    }
}
