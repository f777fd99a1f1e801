//! What a program executes under QEMU, block by block.

use anyhow::{Context as _, Result, bail};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// How often each address is executed, and what the program prints.
pub(crate) fn trace(
    (emulator, cpu): (&str, &str),
    program: &Path,
    case: &str,
    tier: &str,
    calls: u64,
) -> Result<(BTreeMap<u64, u64>, String)> {
    let log = program.with_extension(format!("{case}.{tier}.log"));
    let printed = output(
        Command::new(emulator)
            .args(["-cpu", cpu, "-d", "in_asm,exec,nochain", "-D"])
            .arg(&log)
            .arg(program)
            .args([tier, case, &calls.to_string()]),
    )?;
    let times = executed(BufReader::with_capacity(1 << 20, fs::File::open(&log)?))?;
    fs::remove_file(&log)?;
    Ok((times, printed))
}

/// How often each address is executed, from a log of QEMU: of each block the instructions when it is translated, and a line
/// whenever it runs from its first to its last.
///
/// ```text
/// IN: _start
/// 0x00405e80:  d503201f  nop
/// 0x00405e84:  d65f03c0  ret
///
/// Trace 0: 0x7f6649600100 [0000000001009331/0000000000405e80/00000001/00000200] _start
/// ```
fn executed(mut log: impl BufRead) -> Result<BTreeMap<u64, u64>> {
    let hexadecimal = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let mut blocks: Vec<(Vec<u64>, u64)> = Vec::new();
    // By where the emulator keeps what it made of the block.
    let mut kept: HashMap<u64, usize> = HashMap::new();
    let mut translated: Vec<u64> = Vec::new();
    let mut line = String::new();
    while log.read_line(&mut line)? > 0 {
        if line.starts_with("IN:") {
            translated.clear();
        } else if let Some(run) = line.strip_prefix("Trace ") {
            let place = run.split_whitespace().nth(1).and_then(hexadecimal);
            let first = run.split('/').nth(1).and_then(hexadecimal);
            let (Some(place), Some(first)) = (place, first) else {
                bail!("expected a place and an address, found `{}`", line.trim_end());
            };
            if translated.first() == Some(&first) {
                kept.insert(place, blocks.len());
                blocks.push((std::mem::take(&mut translated), 0));
            }
            let block = kept.get(&place).and_then(|&block| blocks.get_mut(block));
            block.context("a block runs that was not translated")?.1 += 1;
        } else if let Some((address, _)) = line.split_once(':').filter(|_| line.starts_with("0x")) {
            translated.extend(hexadecimal(address));
        }
        line.clear();
    }
    let mut times = BTreeMap::new();
    for (addresses, runs) in blocks {
        for address in addresses {
            *times.entry(address).or_insert(0) += runs;
        }
    }
    Ok(times)
}

/// What a command prints.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().with_context(|| shown.clone())?;
    if !output.status.success() {
        bail!(
            "{shown}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executed_counts_every_instruction_of_blocks_that_run() {
        let log = "IN: f\n0x10:  d503201f  nop\n0x14:  b5ffffe1  cbnz x1, #0x10\n\n\
                   Trace 0: 0xa0 [1/10/1/200] f\nTrace 0: 0xa0 [1/10/1/200] f\n\
                   IN: f\n0x14:  b5ffffe1  cbnz x1, #0x10\n\nTrace 0: 0xb0 [1/14/1/200] f\n\
                   IN: g\n0x20:  d65f03c0  ret\n\nTrace 0: 0xa0 [1/20/1/200] g\n";
        let expected = BTreeMap::from([(0x10, 2), (0x14, 3), (0x20, 1)]);
        assert_eq!(executed(log.as_bytes()).unwrap(), expected);
        let error = executed("Trace 0: 0xa0 [1/10/1/200] f\n".as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "a block runs that was not translated");
        assert!(executed("Trace 0: 0xa0\n".as_bytes()).is_err());
    }
}
