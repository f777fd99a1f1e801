//! Keys of targets.

use crate::args::AuthCommand;
use crate::commands::route;
use crate::output;
use anyhow::{Context, Result, bail};
use cactus_router::cloud::{Base, Protocol, Target};
use cactus_router::setup::{Setup, table};
use std::io::{IsTerminal, Read};
use std::path::Path;

/// A key is a few bytes; more is something else.
const MAX_BYTES: u64 = 4096;

pub(crate) fn run(command: &AuthCommand) -> Result<()> {
    let keys = route::keys()?;
    match command {
        AuthCommand::Set { target, policy } => {
            let target = find(target, policy.as_deref())?;
            if target.base.is_plain() && !target.base.is_private() {
                output::warning(format!(
                    "plain HTTP goes to private networks alone: where `{}` is not in one, this key is never used; `https` goes anywhere",
                    target.base.host()
                ));
            }
            let text = key(&target)?;
            let path = keys.keep(&target, &text)?;
            output::note(format!(
                "the key for {} is in `{}`; it is sent to no other host",
                target.base.origin(),
                path.display()
            ));
        }
        AuthCommand::Remove { target, policy } => {
            let found;
            let host = match keys.list().contains(target) {
                true => target,
                false => {
                    found = find(target, policy.as_deref())?;
                    &found.base.origin()
                }
            };
            match keys.remove(host)? {
                true => output::note(format!("the key for {host} is gone")),
                false => bail!("there is no key for {host}"),
            }
        }
        AuthCommand::List => match keys.list().as_slice() {
            [] => output::note("there are no keys; `cactus auth set TARGET` keeps one"),
            hosts => hosts.iter().for_each(output::line),
        },
    }
    Ok(())
}

/// A target by name or address; of an address only the host counts.
fn find(given: &str, policy: Option<&Path>) -> Result<Target> {
    if given.contains("://") {
        let address = given.split('#').next().unwrap_or(given);
        let base = Base::parse(address, true)?;
        return Ok(Target::new(given, Protocol::OpenAiChat, base, ""));
    }
    let mut known = Vec::new();
    if let Some(file) = policy {
        let setup = Setup {
            file: Some(file),
            ..Setup::default()
        };
        for (name, target) in setup.read(&|_| None)?.policy.targets {
            if name == given {
                return Ok(Target::new(
                    name,
                    Protocol::OpenAiChat,
                    Base::parse(&target.base_url, true)?,
                    "",
                ));
            }
            known.push(name);
        }
    }
    for target in table(Some(&route::own_targets()?))? {
        if target.name == given {
            return Ok(target);
        }
        known.push(target.name);
    }
    bail!(
        "there is no target `{given}`; expected an address, one of {}, or one of a policy file (`--policy FILE`)",
        known.join(", ")
    )
}

fn key(target: &Target) -> Result<String> {
    if std::io::stdin().is_terminal() {
        output::note(format!("Paste the key for {}; it is not shown.", target.base.origin()));
        return rpassword::read_password().context("cannot read from the terminal");
    }
    let mut text = String::new();
    let read = std::io::stdin().take(MAX_BYTES).read_to_string(&mut text);
    read.context("cannot read the key from standard input")?;
    Ok(text)
}
