//! Who consented to what leaving, by class of content.

use crate::redact::Class;
use std::collections::BTreeMap;

/// When content of a class may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leave {
    /// Never.
    #[default]
    Never,
    /// Where a person says yes, each time.
    Ask,
    /// To the targets in the list.
    Listed,
    /// To every target.
    Always,
}

/// Consent by class; never, where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consent {
    /// When each class may leave.
    pub classes: BTreeMap<Class, Leave>,
    /// The targets to which `listed` classes may go.
    pub listed: Vec<String>,
    /// The classes of which a file says that they never leave, and in which line: no option raises that.
    pub denied: BTreeMap<Class, usize>,
}

/// What consent says about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may leave.
    Granted,
    /// It may leave if a person says yes to these classes.
    Ask(Vec<Class>),
    /// It may not, because of this class.
    Denied(Class),
}

impl Consent {
    /// Whether a request that holds these classes may go to a target.
    #[must_use]
    pub fn verdict(&self, classes: &[Class], target: &str) -> Verdict {
        let mut ask = Vec::new();
        for class in classes {
            match self.classes.get(class).copied().unwrap_or_default() {
                Leave::Never => return Verdict::Denied(*class),
                Leave::Listed if !self.listed.iter().any(|listed| listed == target) => return Verdict::Denied(*class),
                Leave::Ask if !ask.contains(class) => ask.push(*class),
                Leave::Ask | Leave::Listed | Leave::Always => {}
            }
        }
        if ask.is_empty() {
            Verdict::Granted
        } else {
            Verdict::Ask(ask)
        }
    }
}
