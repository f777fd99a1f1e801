//! What a person allows: which targets, which content, which money, when to hand off.
//!
//! A policy is a TOML file ([`Policy::from_toml`], every option in `docs/reference/policy.md`), the same as values
//! ([`Policy::from_values_at`]), or the default with what flags
//! and option names of the public Cactus engine change ([`set_cactus_option`]). Without a file nothing leaves: there is
//! no target, and nobody consented.
//!
//! It depends on `money`, `budget`, `redact` and `transcript` for their types. It reads no file, environment or key; it only says where a key
//! is to be found.

mod address;
mod cactus;
mod consent;
mod file;
#[cfg(test)]
mod tests;
mod transcription;
mod values;
mod words;

pub use cactus::{CACTUS_OPTIONS, CactusOption, UnknownOption, set_cactus_option};
pub use consent::{Consent, Leave, Verdict};
pub use values::ValueError;
pub use words::PolicyError;

use crate::budget::Caps;
use crate::money::{Pico, Price};
use crate::redact::Rules;
use crate::transcript;
use std::collections::BTreeMap;

/// Whether requests may be handed off at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handoff {
    /// Everything is answered here.
    Never,
    /// What is better answered elsewhere goes there.
    #[default]
    Auto,
    /// Everything goes to the target, as far as consent and budget let it; the rest is answered here.
    Always,
}

/// What a target speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's chat completions, and what is compatible with it.
    #[serde(alias = "openai-chat")]
    OpenaiChat,
    /// OpenAI's responses.
    #[serde(alias = "openai-responses")]
    OpenaiResponses,
    /// Google's generateContent.
    Gemini,
    /// OpenAI's transcriptions, and what is compatible with them: speech to text, and nothing else.
    #[serde(alias = "openai-transcriptions")]
    OpenaiTranscriptions,
}

/// Names that no target can have: requests and answers call by them the model on this machine, and whoever the policy says.
pub const RESERVED_NAMES: [&str; 2] = ["local", "auto"];

/// Kinds of task that [`Target::accuracy`] tells apart: answers with tools or a form, and all others.
pub const TASKS: [&str; 2] = ["default", "tools"];

/// Where a key is to be found. Never the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeySource {
    /// The target asks for none.
    #[default]
    None,
    /// A variable of the environment.
    Environment(String),
    /// The system's keyring, by this name.
    Keyring(String),
    /// A file that only its owner can read.
    File(String),
}

/// Who may answer elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// What it speaks.
    pub protocol: Protocol,
    /// Its address. Plain `http` is only for this machine, and with `plain_http` for private networks.
    pub base_url: String,
    /// The model's name there.
    pub model: String,
    /// Where its key is.
    pub key: KeySource,
    /// What a token costs; nothing of a target that writes down speech.
    pub price: Price,
    /// What a minute of sound costs; only of a target that writes down speech.
    pub minute: Option<Pico>,
    /// The day (`2026-11-22`) on which somebody looked the price up.
    pub priced_on: Option<String>,
    /// The most that an answer may have, thoughts included.
    pub max_output_tokens: u32,
    /// Whether it sees pictures.
    pub images: bool,
    /// Whether it hears.
    pub audio: bool,
    /// Whether one that writes down speech says when each word is said.
    pub word_times: bool,
    /// Whether it calls tools.
    pub tools: bool,
    /// How often its answers are right, by kind of task ([`TASKS`]); the key `default` is for the others.
    pub accuracy: BTreeMap<String, f64>,
}

/// What may happen to a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolUse {
    /// Neither its description nor its results leave: a request that has used it stays here.
    #[default]
    LocalOnly,
    /// What it returned may leave; only the local model calls it.
    ResultsMayLeave,
    /// The target may call it, too.
    CloudMayCall,
}

/// When something takes too long, in milliseconds. Keep-alives are no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Until a connection stands.
    pub connect_ms: u64,
    /// Until the first piece of an answer.
    pub first_payload_ms: u64,
    /// Between two pieces.
    pub gap_ms: u64,
    /// For all targets and tries of a request together, from when the first is sent to.
    pub total_ms: u64,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            connect_ms: 2_000,
            first_payload_ms: 8_000,
            gap_ms: 10_000,
            total_ms: 60_000,
        }
    }
}

/// How much of a local answer that is shown as it comes is judged, and how long it waits unseen until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldBack {
    /// It is judged after so many tokens, or at the end of a shorter one.
    pub tokens: u32,
    /// Milliseconds since the first of them after which it is shown, judged or not.
    pub ms: u64,
}

impl Default for HoldBack {
    fn default() -> HoldBack {
        HoldBack { tokens: 24, ms: 400 }
    }
}

/// What makes a handoff worth it.
#[derive(Clone, Debug, PartialEq)]
pub struct Routing {
    /// Hand off where the confidence is below this. Without it, where the gain is worth the price.
    pub confidence_threshold: Option<f64>,
    /// What a right answer is worth, in dollars.
    pub value_usd: f64,
    /// What a second of waiting costs, in dollars.
    pub second_usd: f64,
    /// What it costs that something leaves, in dollars.
    pub privacy_usd: f64,
    /// The share of wrong answers among the kept ones that the calibration should bound.
    pub max_error: f64,
    /// Ask both where the local answer is doubtful, and take the first good one.
    pub hedge: bool,
    /// The doubtful range of confidence in which both are asked.
    pub hedge_range: [f64; 2],
    /// How often a target is asked again before anything has come from it.
    pub retries: u32,
}

impl Default for Routing {
    fn default() -> Routing {
        Routing {
            confidence_threshold: None,
            value_usd: 0.01,
            second_usd: 0.0001,
            privacy_usd: 0.0,
            max_error: 0.2,
            hedge: false,
            hedge_range: [0.4, 0.7],
            retries: 1,
        }
    }
}

/// All that a person allows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Whether requests may be handed off at all.
    pub handoff: Handoff,
    /// The targets by name.
    pub targets: BTreeMap<String, Target>,
    /// Names of targets, the preferred first. The others are only used where they are named. In a file that has none, all of them in its
    /// order.
    pub prefer: Vec<String>,
    /// What may leave.
    pub consent: Consent,
    /// What may be spent.
    pub caps: Caps,
    /// What is replaced or blocked on its way out.
    pub redaction: Rules,
    /// What tools may do, by name; the others as `tool_default` says.
    pub tools: BTreeMap<String, ToolUse>,
    /// For tools that are not named.
    pub tool_default: ToolUse,
    /// When something takes too long.
    pub deadlines: Deadlines,
    /// How much of a local answer waits unseen.
    pub hold_back: HoldBack,
    /// What makes a handoff worth it.
    pub routing: Routing,
    /// What of a transcript is heard again elsewhere.
    pub transcription: transcript::Rules,
}

impl Policy {
    /// What a tool may do.
    #[must_use]
    pub fn tool(&self, name: &str) -> ToolUse {
        self.tools.get(name).copied().unwrap_or(self.tool_default)
    }

    /// The targets that can answer such a request, the preferred first.
    pub fn preferred(&self, images: bool, audio: bool, tools: bool) -> impl Iterator<Item = (&str, &Target)> {
        let able =
            move |target: &Target| (target.images || !images) && (target.audio || !audio) && (target.tools || !tools);
        let answers = self.in_order().filter(|(_, target)| !target.hears());
        answers.filter(move |(_, target)| able(target))
    }

    /// The targets that write down speech, the preferred first.
    pub fn hearers(&self) -> impl Iterator<Item = (&str, &Target)> {
        self.in_order().filter(|(_, target)| target.hears())
    }

    fn in_order(&self) -> impl Iterator<Item = (&str, &Target)> {
        let named = self.prefer.iter().filter_map(|name| self.targets.get_key_value(name));
        named.map(|(name, target)| (name.as_str(), target))
    }
}

impl Target {
    /// Whether it writes down speech, and does nothing else.
    #[must_use]
    pub fn hears(&self) -> bool {
        self.protocol == Protocol::OpenaiTranscriptions
    }

    /// How often its answers to a kind of task are right; `None` where nobody has said or measured it.
    #[must_use]
    pub fn accuracy(&self, task: &str) -> Option<f64> {
        self.accuracy
            .get(task)
            .or_else(|| self.accuracy.get("default"))
            .copied()
    }
}
