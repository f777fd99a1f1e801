//! One request on its way: a state machine without IO, from events with times to actions.
//!
//! ```text
//! events ──►  Machine  ──► actions
//!   local tokens and end        start and cancel the local model, ask for consent, reserve money,
//!   consent, reservation        start and cancel the target, show text, take it back, settle, finish
//!   payload, end, failure of the target
//!   ticks of a clock, cancellation
//! ```
//!
//! **Before** the answer a rule, or what the prompt alone tells, sends a request to the target. **During** it, the beginning (24
//! tokens) is judged. It waits unseen for at most 400 ms, so that who is asked in the end is who is seen; a slower one is shown
//! before it is judged. What is shown stays, unless the judgment goes against it or the side that answers fails: then
//! [`Action::Replaced`] says so before anything of another. **After** it, what is not streamed (tool calls, JSON) is judged
//! as a whole. The clock decides what is shown when, and nothing else.
//!
//! A target that fails, or that no budget has room for, is followed by the next one that may be asked, and the last of them by the
//! local model.
//!
//! Tool calls come with the one [`Action::Finish`], so that none runs twice. Each reservation is settled exactly once, a late
//! one too. Whoever runs a machine passes on what comes for older runs and tries; it ignores that.
//!
//! It depends on `policy`, `score`, `money` and `budget` for their types. It reads no clock: times are inputs, and one that
//! goes back is taken for the latest seen. It knows no protocol.

mod decide;
mod machine;
#[cfg(test)]
pub(crate) mod tests;

pub use decide::{Wish, Worth, before, decide, prevented};
pub use machine::{Judged, Machine};

use crate::budget::Scope;
use crate::money::Pico;
use crate::policy::Verdict;
use crate::redact::Class;
use crate::score::TokenSignal;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The model on this machine.
    Local,
    /// The target.
    Cloud,
}

/// Why a request went where it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The policy says `handoff = "never"`.
    HandoffOff,
    /// No target can take the request.
    NoTarget,
    /// There is no connection, or the target has failed too often of late.
    Offline,
    /// The target has refused its key, or wants money for it.
    KeyRefused,
    /// The policy does not let a class of its content leave.
    DeniedByPolicy,
    /// A person said no.
    DeniedByPerson,
    /// A person would have had to say yes, and nobody was there to be asked.
    NobodyToAsk,
    /// The conversation has used a tool whose results stay here.
    ToolLocalOnly,
    /// A budget has no room.
    OverCap,
    /// The budget's files cannot be used.
    BudgetFailed,
    /// There is no calibration for this bundle, template and sampler.
    Uncalibrated,
    /// The local answer is sure enough.
    Confident,
    /// The target is not enough better for its price.
    NotWorthIt,
    /// The local answer is not sure enough.
    LowConfidence,
    /// The local answer is doubtful, and both were asked.
    Hedged,
    /// The local model cannot take the request: too long, or of a kind that it does not read.
    LocalUnable,
    /// The policy says `handoff = "always"`.
    Always,
    /// The request has named its target, and wants no other answer.
    Named,
    /// The local answer does not have the form that was asked for.
    Invalid,
    /// The local model failed.
    LocalFailed,
    /// The target failed.
    CloudFailed,
    /// The time that all targets have together is over.
    Timeout,
    /// Whoever asked no longer wants an answer.
    Cancelled,
    /// Nothing is decided yet, and what is shown may still be replaced. No request ends so.
    Unjudged,
}

/// What is known of a request before it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The targets that can take the request, in the order in which they are asked.
    pub offers: Vec<Offer>,
    /// Whether the target was asked for by name, so that nothing is weighed.
    pub named: bool,
    /// Whether the local model can take it.
    pub local_able: bool,
    /// Whether it uses or has used a tool that is `local_only`.
    pub local_tools: bool,
    /// Whether text is shown as it comes. Not so for tool calls and JSON, which are judged whole.
    pub streamed: bool,
    /// How sure the prompt alone makes the local model, calibrated.
    pub prompt_confidence: Option<f64>,
}

/// A target that can take a request, as far as it concerns this request.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The target's name.
    pub target: String,
    /// Whether it can be reached, as far as is known.
    pub reachable: bool,
    /// Whether it cannot be asked now because it has refused its key; then it is not reachable.
    pub refused: bool,
    /// What consent says.
    pub consent: Verdict,
    /// How often it is right with this kind of task.
    pub accuracy: Option<f64>,
    /// How much longer it takes, in seconds.
    pub seconds: f64,
    /// The most that one try may cost.
    pub worst_case: Pico,
}

impl Offer {
    /// Why it cannot be asked now, where it cannot.
    #[must_use]
    pub fn away(&self) -> Option<Reason> {
        match (self.reachable, self.refused) {
            (true, _) => None,
            (false, true) => Some(Reason::KeyRefused),
            (false, false) => Some(Reason::Offline),
        }
    }

    /// What a handoff to it brings and costs.
    #[must_use]
    pub fn worth(&self) -> Worth {
        Worth {
            cloud_accuracy: self.accuracy,
            price_usd: self.worst_case.0 as f64 / 1e12,
            seconds: self.seconds,
        }
    }
}

/// How much longer a target is thought to take that nobody has asked yet, in seconds.
pub const FIRST_SECONDS: f64 = 2.0;

/// What became of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// What a person said, where one was asked about it.
    pub consented: Option<bool>,
    /// Why it was wanted, and did not answer.
    pub passed: Option<Reason>,
}

/// What a failed try has cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Billed {
    /// Nothing: it was not sent, or refused.
    Nothing,
    /// Perhaps something.
    Unknown,
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The request begins.
    Start,
    /// A token of the local answer; `text` is what it adds, which may be nothing yet.
    LocalToken {
        /// Which run of the local model, from 0 on.
        run: u32,
        /// What it adds.
        text: String,
        /// What the raw logits say.
        signal: TokenSignal,
    },
    /// Text of the local answer that no token brings, such as what was held back for the end.
    LocalText {
        /// Which run.
        run: u32,
        /// The text.
        text: String,
    },
    /// A tool call of the local answer, whole.
    LocalCall {
        /// Which run.
        run: u32,
        /// The call.
        call: String,
    },
    /// The local answer is complete.
    LocalEnd {
        /// Which run.
        run: u32,
        /// Whether it has the form that was asked for.
        valid: bool,
    },
    /// The local model failed.
    LocalFailed {
        /// Which run.
        run: u32,
    },
    /// A person answered [`Action::AskConsent`].
    Consent(bool),
    /// Nobody is there to answer it.
    NobodyToAsk,
    /// [`Action::Reserve`] is done: the money is reserved, on disk.
    Reserved {
        /// Which try.
        attempt: u32,
    },
    /// Nothing was reserved: this budget has no room, or, with `None`, its files failed.
    NotReserved {
        /// Which try.
        attempt: u32,
        /// The budget.
        scope: Option<Scope>,
    },
    /// Text from the target, restored. Keep-alives are no event.
    CloudText {
        /// Which try.
        attempt: u32,
        /// The text.
        text: String,
    },
    /// A tool call from the target, whole and restored.
    CloudCall {
        /// Which try.
        attempt: u32,
        /// The call.
        call: String,
    },
    /// The target's answer is complete, its terminal event seen.
    CloudEnd {
        /// Which try.
        attempt: u32,
        /// Whether it has the form that was asked for.
        valid: bool,
        /// What it costs by the target's count of tokens, where that was said and makes sense.
        cost: Option<Pico>,
    },
    /// The try failed.
    CloudFailed {
        /// Which try.
        attempt: u32,
        /// Milliseconds after which another try may help, where one can.
        again_ms: Option<u64>,
        /// What it has cost.
        billed: Billed,
        /// Whether the target has refused its key, or wants money for it.
        refused: bool,
    },
    /// Time has passed ([`Machine::wake_ms`]).
    Tick,
    /// Whoever asked no longer wants an answer.
    Cancel,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Start the local model from the beginning.
    StartLocal {
        /// Which run: what it produces carries the number.
        run: u32,
    },
    /// Stop it.
    CancelLocal {
        /// Which run.
        run: u32,
    },
    /// Ask a person whether these classes may leave.
    AskConsent {
        /// To which of the request's targets.
        offer: usize,
        /// The classes.
        classes: Vec<Class>,
    },
    /// Reserve money.
    Reserve {
        /// Which try.
        attempt: u32,
        /// Of which of the request's targets.
        offer: usize,
        /// The most that it may cost.
        amount: Pico,
        /// What earlier tries have reserved or cost.
        so_far: Pico,
    },
    /// Send the request. Never before its [`Event::Reserved`].
    StartCloud {
        /// Which try.
        attempt: u32,
        /// To which of the request's targets.
        offer: usize,
    },
    /// Stop it.
    CancelCloud {
        /// Which try.
        attempt: u32,
        /// Because nothing came from it in time, which says something about the target.
        late: bool,
    },
    /// Settle a reservation; with `None` nobody knows, and it stays spent as it is.
    Settle {
        /// Which try.
        attempt: u32,
        /// What it cost.
        cost: Option<Pico>,
    },
    /// Show text, behind what is shown.
    Show {
        /// Whose it is.
        side: Side,
        /// The text.
        text: String,
    },
    /// What is shown is void: another answers from the beginning.
    Replaced,
    /// The end. Only settlements come after it.
    Finish(Box<Outcome>),
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Who answered; `None` where nobody did.
    pub answered_by: Option<Side>,
    /// Why that side.
    pub reason: Reason,
    /// Why the target was wanted, where it was; with a local answer, `reason` says what prevented it.
    pub wanted: Option<Reason>,
    /// The budget that had no room, where one had none.
    pub over: Option<Scope>,
    /// Which of the request's targets has answered, was asked last, or would have been asked.
    pub target: Option<usize>,
    /// What became of each of them.
    pub fates: Vec<Fate>,
    /// The answer's text: what is shown.
    pub text: String,
    /// Its tool calls. They are run once, now.
    pub calls: Vec<String>,
    /// How sure the local answer was when it was decided about, calibrated.
    pub confidence: Option<f64>,
    /// The proved bound on the share of errors of answers so sure.
    pub bound: Option<f64>,
    /// What it cost at most; exactly that where `billed`.
    pub cost: Pico,
    /// Whether each try has a bill.
    pub billed: bool,
    /// Tries that were sent.
    pub attempts: u32,
    /// Whether something shown was taken back.
    pub replaced: bool,
    /// Milliseconds until something was shown.
    pub first_ms: Option<u64>,
    /// Milliseconds until the end.
    pub total_ms: u64,
}

impl Outcome {
    /// Of an answer by the model on this machine, about which nothing had to be weighed.
    #[must_use]
    pub fn here(reason: Reason, total_ms: u64) -> Outcome {
        Outcome {
            answered_by: Some(Side::Local),
            reason,
            wanted: None,
            over: None,
            target: None,
            fates: Vec::new(),
            text: String::new(),
            calls: Vec::new(),
            confidence: None,
            bound: None,
            cost: Pico::default(),
            billed: true,
            attempts: 0,
            replaced: false,
            first_ms: None,
            total_ms,
        }
    }
}
