//! Keys of targets.

use crate::args::AuthCommand;
use crate::commands::route;
use crate::output;
use anyhow::{Context, Result, bail};
use cactus_router::cloud::{Base, Protocol, Target};
use cactus_router::setup::table;
use std::io::{IsTerminal, Read};

/// A key is a few bytes; more is something else.
const MAX_BYTES: u64 = 4096;

pub(crate) fn run(command: &AuthCommand) -> Result<()> {
    let keys = route::keys()?;
    match command {
        AuthCommand::Set { target } => {
            let target = find(target)?;
            let text = key(&target)?;
            let path = keys.keep(&target, &text)?;
            output::note(format!(
                "the key for {} is in `{}`; it is sent to no other host",
                target.base.authority(),
                path.display()
            ));
        }
        AuthCommand::Remove { target } => {
            let target = find(target)?;
            let host = target.base.authority();
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
fn find(given: &str) -> Result<Target> {
    if given.contains("://") {
        let base = given.split('#').next().unwrap_or(given);
        return Ok(Target::new(given, Protocol::OpenAiChat, Base::parse(base, true)?, ""));
    }
    let mut known = Vec::new();
    for target in table(Some(&route::own_targets()?))? {
        if target.name == given {
            return Ok(target);
        }
        known.push(target.name);
    }
    bail!(
        "there is no target `{given}`; expected an address, or one of {}",
        known.join(", ")
    )
}

fn key(target: &Target) -> Result<String> {
    if std::io::stdin().is_terminal() {
        output::note(format!(
            "Paste the key for {}; it is not shown.",
            target.base.authority()
        ));
        return rpassword::read_password().context("cannot read from the terminal");
    }
    let mut text = String::new();
    let read = std::io::stdin().take(MAX_BYTES).read_to_string(&mut text);
    read.context("cannot read the key from standard input")?;
    Ok(text)
}
