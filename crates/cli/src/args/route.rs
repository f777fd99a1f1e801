//! Options that say who else may answer, and what that may cost.

use super::{CactusArgs, WrongArgument};
use cactus_router::hybrid::policy::Handoff;
use cactus_router::hybrid::redact::Class;
use clap::{Args, Subcommand, ValueEnum};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Who else may answer.
#[derive(Debug, Args)]
#[command(next_help_heading = "Handing off")]
pub(crate) struct RouteArgs {
    /// Who may answer what this machine should not: a name of the policy file or of the table of targets, or an address with a
    /// model, such as `http://127.0.0.1:8081/v1#name`. Without this and `--policy` nothing leaves this machine
    #[arg(long, value_name = "TARGET", conflicts_with_all = ["raw", "input_ids"])]
    pub(crate) cloud: Option<String>,
    /// Hand off what the model here is not sure of, nothing, or everything that may leave [default: as the policy says, or auto]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(crate) handoff: Option<When>,
    /// The most that this conversation may cost, in dollars
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub(crate) budget: Option<String>,
    /// File that says what may leave, to whom, and for how much
    #[arg(long, value_name = "FILE", conflicts_with_all = ["raw", "input_ids"])]
    pub(crate) policy: Option<PathBuf>,
    /// Kinds of content that may leave without a question: text, tool_result, image, audio, document
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub(crate) consent: Vec<Class>,
    #[command(flatten)]
    pub(crate) cactus: CactusArgs,
}

impl RouteArgs {
    /// Whether anything could leave.
    pub(crate) fn is_given(&self) -> bool {
        self.cloud.is_some() || self.policy.is_some()
    }

    /// Refuses options that mean nothing without a target.
    pub(crate) fn check(&self) -> Result<(), WrongArgument> {
        if self.is_given() {
            return Ok(());
        }
        let others = [
            ("handoff", self.handoff.is_some_and(|when| when != When::Never)),
            ("budget", self.budget.is_some()),
            ("consent", !self.consent.is_empty()),
        ];
        let add = "`--cloud TARGET` or `--policy FILE`";
        self.cactus.check_without_target(&others, add)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    Auto,
    Never,
    Always,
}

impl From<When> for Handoff {
    fn from(when: When) -> Handoff {
        match when {
            When::Auto => Handoff::Auto,
            When::Never => Handoff::Never,
            When::Always => Handoff::Always,
        }
    }
}

/// What was decided, and what it cost.
#[derive(Debug, Subcommand)]
pub(crate) enum RouteCommand {
    /// List the last decisions: who answered, why, how sure, for how much; and requests that have ended without a record
    Log {
        /// Only the last so many
        #[arg(long, short = 'n', default_value = "20", value_name = "N")]
        last: NonZeroUsize,
        /// One line of JSON for each decision, then one with `unfinished` for each request that is under way or ended without a record
        #[arg(long)]
        json: bool,
    },
    /// Say how a decision came about
    Explain {
        /// Which one, counted from the last, which is 1
        #[arg(default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        number: u32,
        /// Print the record as JSON
        #[arg(long)]
        json: bool,
    },
    /// Say what another policy would have done with the requests of the record
    Replay {
        /// The policy file
        policy: PathBuf,
        /// Print the sums as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what was spent, what is reserved, and the limits with what is left of them
    Budget {
        /// Policy file whose limits apply [default: those that hold without one]
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Keys of targets.
#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Keep the key of a target, in a file that only you can read. It is read from the terminal or from standard input
    Set {
        /// A name of the table of targets or of the policy, or an address such as `https://api.example.com/v1`
        target: String,
        /// Policy file that has the target
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
    },
    /// Remove the key of a target
    Remove {
        /// As for `set`, or a host as `list` shows it
        target: String,
        /// Policy file that has the target
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
    },
    /// List the hosts that have a key
    List,
}
