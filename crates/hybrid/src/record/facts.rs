//! What another policy has to know of a request: counts, kinds and digests of names, and nothing of what it said.

use crate::money::{Pico, Price};
use crate::policy::{Policy, ToolUse};
use crate::redact::{Action, Kind};
use crate::route::Offer;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

/// What another policy has to know of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// Tokens of its prompt by our own count, as they are reserved for.
    pub input_tokens: u64,
    /// The most tokens of an answer that were asked for, where somebody has said.
    pub output_tokens: Option<u64>,
    /// Tokens of prompt and answer by the count of the target that answered.
    pub used: Option<[u64; 2]>,
    /// How many texts of each kind a policy may replace or block.
    pub found: BTreeMap<String, u64>,
    /// The tools that it offers, as [`tool_digest`] has them.
    pub offers_tools: Vec<String>,
    /// Those that were called, or whose results are in it.
    pub uses_tools: Vec<String>,
    /// Whether its answer has a form, and not a text.
    pub structured: bool,
    /// Whether it was shown as it came.
    pub streamed: bool,
    /// The one target that it was for, where it was for no other.
    pub only: Option<String>,
    /// Targets of the policy that could not take it, or have no key.
    pub unable: Vec<String>,
}

/// A tool's name without the name: its first 64 bits of SHA-256, in hexadecimal.
#[must_use]
pub fn tool_digest(name: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

impl Facts {
    /// Whether a policy keeps it here because of its tools.
    #[must_use]
    pub fn uses_local_tools(&self, policy: &Policy) -> bool {
        let named: BTreeMap<String, ToolUse> = policy
            .tools
            .iter()
            .map(|(name, may)| (tool_digest(name), *may))
            .collect();
        let may = |digest: &String| named.get(digest).copied().unwrap_or(policy.tool_default);
        self.uses_tools.iter().any(|tool| may(tool) == ToolUse::LocalOnly)
            || self.offers_tools.iter().any(|tool| may(tool) != ToolUse::CloudMayCall)
    }

    /// Whether it holds what a policy blocks.
    #[must_use]
    pub fn is_blocked(&self, policy: &Policy) -> bool {
        let blocks = |kind: &Kind| policy.redaction.action(*kind) == Action::Block;
        Kind::ALL
            .iter()
            .any(|kind| blocks(kind) && self.found.contains_key(kind.name()))
    }

    /// The kind of task, by which policies say how often a target is right.
    #[must_use]
    pub fn task(&self) -> &'static str {
        if self.structured { "tools" } else { "default" }
    }

    /// The most tokens that a target with such a limit may answer.
    #[must_use]
    pub fn most_tokens(&self, target_most: u32) -> u32 {
        let asked = self.output_tokens.unwrap_or(u64::MAX);
        u32::try_from(asked).map_or(target_most, |asked| asked.min(target_most))
    }
}

/// What a target would have charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Its price in the policy.
    pub price: Price,
    /// The most tokens that it may answer.
    pub most_tokens: u32,
}

/// A target as a policy would have offered it for a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Offering {
    pub(super) offer: Offer,
    /// What a person has said of it.
    pub(super) consented: Option<bool>,
    /// What a handoff to it would have cost, where that is not what it did cost.
    pub(super) cost: Option<Pico>,
}
