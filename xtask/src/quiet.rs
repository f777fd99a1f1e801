//! Commands that must not reach anybody: they run where only this machine can be reached, and fail where they try to reach another.
#![allow(clippy::print_stderr, reason = "a developer reads it")]

use crate::ci::{Context, Outcome};
use anyhow::Result;
use std::ffi::OsStr;
use std::process::Command;

/// Runs a command so; its exit code 77 says that it could not.
const NO_NETWORK: &str = "scripts/no_network.sh";

/// Programs that try to reach others, or a name server on this machine: the script has to see each of them.
const LOUD: &[(&str, &str)] = &[
    (
        "a packet by IPv4",
        "s.socket(s.AF_INET, s.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9))",
    ),
    (
        "an attempt by IPv6",
        "s.socket(s.AF_INET6, s.SOCK_DGRAM).connect_ex(('2001:db8::1', 9))",
    ),
    ("a look-up of a name", "s.getaddrinfo('names.test', 9)"),
    (
        "a name server on this machine",
        "s.socket(s.AF_INET, s.SOCK_DGRAM).sendto(b'x', ('127.0.0.53', 53))",
    ),
];

/// Whether it can be done here, and the script sees what it has to.
enum Can {
    Yes,
    No(String),
    Wrong(String),
}

fn can(context: &Context) -> Result<Can> {
    let status = context.command(NO_NETWORK).arg("true").status()?;
    match status.code() {
        Some(0) => {}
        // The build server is no place where this may be left out unseen, as long as it could be had.
        Some(77) if in_ci() && context.answers("unshare", &["--net", "true"]) => {
            let why = format!("{NO_NETWORK} cannot run, though network namespaces can be made: is iproute2 installed?");
            return Ok(Can::Wrong(why));
        }
        Some(77) => return Ok(Can::No(format!("{NO_NETWORK} cannot run"))),
        _ => return Ok(Can::Wrong(format!("{NO_NETWORK} true: {status}"))),
    }
    for (what, program) in LOUD {
        let program = format!("import socket as s\ntry: {program}\nexcept OSError: pass");
        let mut command = context.command(NO_NETWORK);
        let seen = command.arg(context.python()).args(["-c", &program]).output()?;
        if seen.status.code() != Some(1) || !String::from_utf8_lossy(&seen.stderr).contains("was to leave") {
            return Ok(Can::Wrong(format!("{NO_NETWORK} does not see {what}: {}", seen.status)));
        }
    }
    Ok(Can::Yes)
}

fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true" || value == "1")
}

/// Runs a program that must not reach anybody, and fails where it tries to. Where that cannot be watched it runs all the same; the step
/// then counts as skipped, and says so.
pub(crate) fn run(
    context: &Context,
    program: impl AsRef<OsStr>,
    prepare: impl FnOnce(&mut Command),
) -> Result<Outcome> {
    let can = can(context)?;
    let mut command = match &can {
        Can::Yes => {
            let mut command = context.command(NO_NETWORK);
            command.arg(program);
            command
        }
        Can::No(why) => {
            eprintln!("NOT WATCHED: {why}; what follows runs with the network");
            context.command(program)
        }
        Can::Wrong(why) => return Ok(Outcome::Failed(why.clone())),
    };
    prepare(&mut command);
    let outcome = context.run(&mut command)?;
    Ok(match (outcome, can) {
        (Outcome::Passed, Can::No(why)) => Outcome::Skipped(format!(
            "it passed, but nobody has watched whether something leaves: {why}"
        )),
        (outcome, _) => outcome,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_sees_whoever_tries_to_reach_others() {
        match can(&Context::new().unwrap()).unwrap() {
            Can::Yes => {}
            Can::No(why) => eprintln!("SKIPPED: {why}"),
            Can::Wrong(why) => panic!("{why}"),
        }
    }
}
