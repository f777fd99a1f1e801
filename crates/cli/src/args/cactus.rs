//! Options of handing off under the names of the public Cactus engine: those of its table that are no variables, with hyphens.

use super::WrongArgument;
use cactus_router::hybrid::policy::{CACTUS_OPTIONS, CactusOption, Policy, set_cactus_option};
use clap::builder::{NonEmptyStringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Map, Value};

/// What was given of these options, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct CactusArgs(pub(crate) Map<String, Value>);

/// Those that say how to hand off. The others can only forbid it, which holds without a target, too.
const OF_HANDOFFS: [&str; 2] = ["confidence_threshold", "cloud_timeout_ms"];

fn flags() -> impl Iterator<Item = &'static CactusOption> {
    // The variables are in capitals.
    CACTUS_OPTIONS
        .iter()
        .filter(|option| option.name.bytes().all(|b| !b.is_ascii_uppercase()))
}

fn argument(option: &'static CactusOption) -> Arg {
    let check = move |text: String| {
        let set = set_cactus_option(&mut Policy::default(), option.name, &Value::from(text.as_str()));
        set.map(|()| text).map_err(|_| format!("expected {}", option.expects))
    };
    let argument = Arg::new(option.name)
        .long(option.name.replace('_', "-"))
        .help(option.effect.replace('`', ""))
        .help_heading("Handing off, as Cactus names it")
        .action(ArgAction::Set)
        .value_parser(NonEmptyStringValueParser::new().try_map(check));
    match option.is_switch {
        // What follows a switch is another argument, unless it is joined to it.
        true => argument
            .value_name("true|false")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        false => argument.value_name("NUMBER").allow_negative_numbers(true),
    }
}

impl Args for CactusArgs {
    fn augment_args(command: Command) -> Command {
        flags().fold(command, |command, option| command.arg(argument(option)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for CactusArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |option: &CactusOption| {
            let value = matches.get_one::<String>(option.name)?;
            Some((option.name.to_owned(), Value::from(value.as_str())))
        };
        Ok(CactusArgs(flags().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let CactusArgs(given) = CactusArgs::from_arg_matches(matches)?;
        self.0.extend(given);
        Ok(())
    }
}

impl CactusArgs {
    /// Refuses what has no meaning where nobody can be asked, of these options and of `others`; `add` is what to give, too.
    pub(crate) fn check_without_target(&self, others: &[(&str, bool)], add: &str) -> Result<(), WrongArgument> {
        let given = OF_HANDOFFS.iter().filter(|name| self.0.contains_key(**name));
        let mut given = given.map(|name| name.replace('_', "-"));
        let other = others
            .iter()
            .find(|(_, given)| *given)
            .map(|(name, _)| (*name).to_owned());
        match other.or_else(|| given.next()) {
            None => Ok(()),
            Some(option) => Err(WrongArgument(format!(
                "`--{option}` says how to hand off, and nobody else can be asked; add {add}, or leave it out"
            ))),
        }
    }
}
