//! Counts what the ARM64 kernels execute and writes `docs/reference/kernels.md`: `cargo xtask kernels-table`.
//!
//! An emulator cannot time, but it can count: `crates/kernels/examples/count.rs` runs one kernel under QEMU, which logs every
//! block of instructions that runs; the difference between three calls and one, halved, is one call. The addresses give the
//! instructions, by `objdump`, and the loop that matters most. `llvm-mca` then simulates that loop on models of several cores.
//!
//! `--check` counts again and fails where a kernel executes more than the document says, or more than a limit allows. It does not simulate.
//! CI does that, too, if the document is not of the sources that it has; `--stamp` writes into the document that it is
//! of these sources where a check finds nothing.
#![allow(clippy::print_stderr, reason = "a developer reads it")]

use crate::Repository;
use crate::arm::{LINKER, SME2_CPU, TARGET, emulator, has_std, major, sme2_emulator};
use crate::counted_sources;
use crate::side_by_side::side_by_side;
use crate::trace::{output, trace};
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DOCUMENT: &str = "docs/reference/kernels.md";
const TIERS: [&str; 3] = ["neon", "neon_dotprod", "neon_i8mm"];
const SME2: &str = "sme2";
/// What has code of its own on the tier `sme2`; all else is that of `neon_i8mm`.
const SME2_CASES: [&str; 3] = ["linear_i8_rows_4", "linear_i8_rows_16", "linear_tcq4_rows_16"];
/// What a count may grow without being a regression, in thousandths: code nearby moves registers.
const SLACK: u64 = 30;

/// Limits of instructions for 16 bytes of weights other than loads and dot products, for one row of activations.
const LIMITS: [(&str, &str, f64); 2] = [
    ("linear_i8_rows_1", "neon_dotprod", 1.15),
    ("linear_i8_rows_1", "neon_i8mm", 1.15),
];

/// Cores that are simulated: name, name of `llvm-mca`, features beyond its own, and whether it has `SDOT` and `SMMLA`.
const CORES: [(&str, &str, bool, bool); 7] = [
    ("Cortex-A53", "cortex-a53", false, false),
    ("Cortex-A55", "cortex-a55", true, false),
    ("Neoverse N1 (as Cortex-A76)", "neoverse-n1", true, false),
    ("Cortex-A720", "cortex-a720", true, true),
    ("Cortex-X4", "cortex-x4", true, true),
    ("Neoverse V2", "neoverse-v2", true, true),
    ("Apple M4", "apple-m4", true, true),
];

/// The CPU on which the tiers of NEON are counted. With vectors of variable length, the C library would copy with them.
const NEON_CPU: &str = "max,sve=off,sme=off";
/// The first version of `llvm-mca` that has models of all [`CORES`].
const SIMULATOR: u32 = 22;
/// The heading of what it writes.
const SIMULATED: &str = "\n## Simulated throughput\n";

/// One kernel on one tier.
struct Measured {
    case: String,
    tier: &'static str,
    /// Bytes of weights or cache that one call reads, and multiply-adds that it does.
    bytes: u64,
    products: u64,
    counts: Counts,
    hot: Loop,
}

/// Instructions of one call by kind.
#[derive(Default, Clone, Copy)]
struct Counts {
    loads: u64,
    stores: u64,
    dots: u64,
    other: u64,
}

impl Counts {
    fn total(self) -> u64 {
        self.loads + self.stores + self.dots + self.other
    }

    fn add(&mut self, instruction: &str, times: u64) {
        let mnemonic = instruction.split_whitespace().next().unwrap_or_default();
        let kind = match mnemonic {
            "sdot" | "smmla" | "smull" | "smull2" | "smlal" | "smlal2" | "sadalp" | "smopa" => &mut self.dots,
            ".inst" => match newer(instruction) {
                Newer::Load => &mut self.loads,
                Newer::Store => &mut self.stores,
                Newer::Product => &mut self.dots,
                Newer::Other => &mut self.other,
            },
            m if m.starts_with("ld") => &mut self.loads,
            m if m.starts_with("st") => &mut self.stores,
            _ => &mut self.other,
        };
        *kind += times;
    }
}

/// What an instruction of SME2 does that the disassembler is too old for.
#[derive(Debug, PartialEq)]
enum Newer {
    Load,
    Store,
    Product,
    Other,
}

/// Of `.inst 0xa0408000 ; undefined`, by the bits that tell loads and stores of several vectors and outer products.
fn newer(instruction: &str) -> Newer {
    let word = instruction.split_whitespace().nth(1).and_then(|w| w.strip_prefix("0x"));
    let word = word.and_then(|w| u32::from_str_radix(w, 16).ok()).unwrap_or_default();
    match (word & 0xff80_0000, word & 0x0020_0000) {
        (0xa000_0000, 0) => Newer::Load,
        (0xa000_0000, _) => Newer::Store,
        (0xa080_0000, _) => Newer::Product,
        _ => Newer::Other,
    }
}

/// Instructions of a loop, once around.
#[derive(Default)]
struct Loop {
    instructions: Vec<String>,
    times: u64,
}

impl Loop {
    fn executed(&self) -> u64 {
        self.times * self.instructions.len() as u64
    }

    /// Multiply-adds of bytes, once around.
    fn byte_products(&self) -> u64 {
        // Integer units have a `smull`, too.
        let of = |instruction: &String| match instruction.split_whitespace().next().unwrap_or_default() {
            "sdot" => 16,
            "smmla" => 32,
            "smull" | "smull2" | "smlal" | "smlal2" if instruction.contains(".8h") => 8,
            _ => 0,
        };
        self.instructions.iter().map(of).sum()
    }

    /// Multiply-adds, once around.
    fn products(&self) -> u64 {
        match self.byte_products() {
            0 => 4 * self.instructions.iter().filter(|i| i.starts_with("fmla")).count() as u64,
            bytes => bytes,
        }
    }
}

/// What to do with the counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Write the document.
    Write,
    /// Compare with the document.
    Check,
    /// Compare, and write into the document that it is of these sources.
    Stamp,
}

/// Whether the document was counted of the sources that are here.
pub(crate) fn is_of_these_sources() -> Result<bool> {
    let repository = Repository::open()?;
    let document = repository
        .file(DOCUMENT)
        .with_context(|| format!("there is no {DOCUMENT}"))?;
    Ok(counted_sources::is_of(
        &document.text,
        &counted_sources::hash(&repository)?,
    ))
}

/// Writes the document, or checks it.
///
/// # Errors
/// Where a tool is missing or fails.
pub fn run(mode: Mode) -> Result<bool> {
    let repository = Repository::open()?;
    let root = repository.root().to_path_buf();
    if !has_std(&root, None, TARGET) {
        bail!("the standard library of {TARGET} is missing: rustup target add {TARGET}");
    }
    let emulator = emulator(&root).context("qemu-aarch64 is missing; scripts/setup.sh --ci installs it")?;
    let newer_emulator = sme2_emulator(&root);
    if newer_emulator.is_none() {
        eprintln!(
            "SKIPPED the tier {SME2}: the emulator is too old; scripts/setup.sh --ci fetches a newer one on Debian"
        );
    }
    // Vectors as long as those of the CPUs that are sold.
    let sme2_cpu = format!("{SME2_CPU}64");
    let program = build(&root)?;
    let code = disassemble(&program)?;
    let cases = output(Command::new(emulator).arg(&program))?;
    let mut jobs = Vec::new();
    for case in cases.lines() {
        let tiers = match case {
            // Floats are the same on all tiers.
            case if ["f16", "f32", "gated_delta"].iter().any(|float| case.contains(float)) => &TIERS[..1],
            _ => &TIERS[..],
        };
        jobs.extend(tiers.iter().map(|&tier| ((emulator, NEON_CPU), case, tier)));
        if let (Some(emulator), true) = (&newer_emulator, SME2_CASES.contains(&case)) {
            jobs.push(((emulator, &sme2_cpu), case, SME2));
        }
    }
    let measured = side_by_side(&jobs, |&(emulator, case, tier)| {
        eprintln!("counting {case} {tier}");
        measure(emulator, &program, &code, case, tier)
    })?;
    let path = root.join(DOCUMENT);
    if mode != Mode::Write {
        let document = fs::read_to_string(&path)?;
        let is_good = compare(&document, &measured)?;
        if is_good && mode == Mode::Stamp {
            fs::write(
                &path,
                counted_sources::stamped(&document, &counted_sources::hash(&repository)?)?,
            )?;
        }
        return Ok(is_good);
    }
    if newer_emulator.is_none() {
        bail!("the document would lose the rows of {SME2}");
    }
    let simulated = match simulator() {
        Some(program) => simulated(&measured, program)?,
        None => {
            eprintln!(
                "SKIPPED the simulation: there is no llvm-mca of version {SIMULATOR} or later (on Debian in the package \
                 llvm-{SIMULATOR}), and older ones lack cores. The counts are written. The table of simulated throughput \
                 stays as it was, so it is out of date for every kernel that changed."
            );
            let before = fs::read_to_string(&path)?;
            let at = before.find(SIMULATED).with_context(|| {
                format!("{DOCUMENT} has no table of simulated throughput to keep; install llvm-{SIMULATOR}")
            })?;
            before[at..].to_owned()
        }
    };
    let document = counted(&measured)? + &simulated;
    fs::write(
        &path,
        counted_sources::stamped(&document, &counted_sources::hash(&repository)?)?,
    )?;
    Ok(over_limits(&measured).is_empty())
}

/// The example as a static program without relocation, so that addresses in the log are those in the file.
fn build(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target").join("count");
    let status = Command::new("cargo")
        .current_dir(root)
        .args(["build", "--locked", "--release", "--target", TARGET])
        .args(["-p", "cactus-kernels", "--example", "count"])
        .env("CARGO_TARGET_DIR", &folder)
        .env("RUSTFLAGS", "-C target-feature=+crt-static -C relocation-model=static")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
        .status()?;
    if !status.success() {
        bail!("the example could not be built");
    }
    Ok(folder.join(TARGET).join("release/examples/count"))
}

/// Instructions by address.
fn disassemble(program: &Path) -> Result<BTreeMap<u64, String>> {
    let text = output(
        Command::new("aarch64-linux-gnu-objdump")
            .args(["-d", "--no-show-raw-insn"])
            .arg(program),
    )?;
    let mut code = BTreeMap::new();
    for line in text.lines() {
        let Some((address, instruction)) = line.split_once(":\t") else {
            continue;
        };
        if let Ok(address) = u64::from_str_radix(address.trim(), 16) {
            let instruction = instruction.split("//").next().unwrap_or_default();
            code.insert(address, instruction.replace('\t', " ").trim().to_owned());
        }
    }
    Ok(code)
}

fn measure(
    emulator: (&str, &str),
    program: &Path,
    code: &BTreeMap<u64, String>,
    case: &str,
    tier: &'static str,
) -> Result<Measured> {
    let (once, printed) = trace(emulator, program, case, tier, 1)?;
    let (thrice, _) = trace(emulator, program, case, tier, 3)?;
    let mut counts = Counts::default();
    // Instructions that are executed equally often are taken for one loop.
    let mut loops: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for (address, times) in thrice {
        // What runs before the calls may differ a little from start to start.
        let times = times.saturating_sub(once.get(&address).copied().unwrap_or(0)) / 2;
        let instruction = code.get(&address).context("an address without an instruction")?;
        if times > 0 {
            counts.add(instruction, times);
            loops.entry(times).or_default().push(instruction.clone());
        }
    }
    let loops = loops
        .into_iter()
        .map(|(times, instructions)| Loop { instructions, times });
    let hot = loops.max_by_key(|l| (l.times * l.byte_products(), l.executed()));
    let hot = hot.unwrap_or_default();
    let mut numbers = printed.split_whitespace().map(str::parse);
    let (Some(Ok(bytes)), Some(Ok(products))) = (numbers.next(), numbers.next()) else {
        bail!("the example printed `{printed}`");
    };
    Ok(Measured {
        case: case.to_owned(),
        tier,
        bytes,
        products,
        counts,
        hot,
    })
}

/// A program that can simulate all cores.
fn simulator() -> Option<&'static str> {
    ["llvm-mca-22", "/usr/lib/llvm-22/bin/llvm-mca", "llvm-mca"]
        .into_iter()
        .find(|program| {
            let output = Command::new(program).arg("--version").output();
            output.is_ok_and(|output| knows_all_cores(&String::from_utf8_lossy(&output.stdout)))
        })
}

/// Whether the `llvm-mca` that prints this version is new enough.
fn knows_all_cores(version: &str) -> bool {
    major(version).is_some_and(|major| major >= SIMULATOR)
}

/// Simulated cycles once around the loop, and those that its resources alone would take.
fn simulate(mca: &str, core: &str, hot: &Loop) -> Result<(f64, f64)> {
    const ITERATIONS: u32 = 200;
    let mut child = Command::new(mca)
        .args(["-mtriple=aarch64-linux-gnu", "-mattr=+dotprod,+i8mm,+fullfp16"])
        .args([format!("-mcpu={core}"), format!("-iterations={ITERATIONS}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut text = String::new();
    for instruction in &hot.instructions {
        // A branch's target is of no interest, and the assembler would not know it.
        let instruction = instruction.split(" <").next().unwrap_or_default();
        let branches = ["b.", "cbz", "cbnz", "tbz", "tbnz"]
            .iter()
            .any(|name| instruction.starts_with(name));
        match instruction.rsplit_once(' ') {
            Some((head, _)) if branches || instruction.starts_with("b ") => writeln!(text, "{head} .")?,
            _ => writeln!(text, "{instruction}")?,
        }
    }
    child.stdin.take().context("no input")?.write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    let report = String::from_utf8_lossy(&output.stdout);
    let number = |name: &str| -> Result<f64> {
        let line = report.lines().find_map(|l| l.strip_prefix(name));
        let line = line.with_context(|| {
            let said = String::from_utf8_lossy(&output.stderr);
            format!("{mca} gave no line `{name}` for {core}; it said: {}", said.trim())
        })?;
        Ok(line.trim().parse()?)
    };
    Ok((
        number("Total Cycles:")? / f64::from(ITERATIONS),
        number("Block RThroughput:")?,
    ))
}

fn units(m: &Measured) -> f64 {
    m.bytes as f64 / 16.0
}

fn over_limits(measured: &[Measured]) -> Vec<String> {
    let mut findings = Vec::new();
    for m in measured.iter().filter(|m| m.tier == SME2) {
        // Outer products of 16 by 16 of 4 inputs each.
        if m.counts.dots < 64 * 512 / 64 {
            findings.push(format!("{} {SME2}: {} outer products", m.case, m.counts.dots));
        }
    }
    for (case, tier, limit) in LIMITS {
        for m in measured.iter().filter(|m| m.case == case && m.tier == tier) {
            let other = (m.counts.other + m.counts.stores) as f64 / units(m);
            if other > limit {
                findings.push(format!(
                    "{case} {tier}: {other:.2} other instructions for 16 bytes, at most {limit}"
                ));
            }
        }
    }
    findings
}

/// Whether nothing is executed more often than the document says.
fn compare(document: &str, measured: &[Measured]) -> Result<bool> {
    let mut findings = over_limits(measured);
    for m in measured {
        let row = format!("| `{}` | {} | ", m.case, m.tier);
        let stated = document.lines().find_map(|line| line.strip_prefix(row.as_str()));
        let stated: Option<u64> = stated.and_then(|rest| rest.split(' ').next()?.replace(',', "").parse().ok());
        match stated {
            None => findings.push(format!("{DOCUMENT} has no row for {} on {}", m.case, m.tier)),
            Some(stated) if m.counts.total() * 1000 > stated * (1000 + SLACK) => findings.push(format!(
                "{} on {}: {} instructions a call, {stated} in {DOCUMENT}",
                m.case,
                m.tier,
                m.counts.total()
            )),
            Some(_) => {}
        }
    }
    for finding in &findings {
        eprintln!("{finding}");
    }
    Ok(findings.is_empty())
}

/// The table of counts.
fn counted(measured: &[Measured]) -> Result<String> {
    let mut out = String::from(HEAD);
    for m in measured {
        let Counts {
            loads,
            stores,
            dots,
            other,
        } = m.counts;
        let per = |n: u64| n as f64 / units(m);
        writeln!(
            out,
            "| `{}` | {} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} |",
            m.case,
            m.tier,
            m.counts.total(),
            per(m.counts.total()),
            per(loads),
            per(dots),
            per(other + stores),
            m.products as f64 / m.counts.total() as f64
        )?;
    }
    Ok(out)
}

/// The table of simulations.
fn simulated(measured: &[Measured], mca: &str) -> Result<String> {
    let mut out = format!("{SIMULATED}{MODELS}");
    write!(out, "| kernel | tier | share |")?;
    CORES.iter().try_for_each(|core| write!(out, " {} |", core.0))?;
    write!(out, "\n|---|---|---|")?;
    CORES.iter().try_for_each(|_| write!(out, "---|"))?;
    for m in measured.iter().filter(|m| m.tier != SME2) {
        let share = m.hot.executed() as f64 / m.counts.total() as f64;
        write!(out, "\n| `{}` | {} | {:.0} % |", m.case, m.tier, 100.0 * share)?;
        let products = m.hot.products();
        for (_, core, has_dot, has_mmla) in CORES {
            if m.tier == "neon_dotprod" && !has_dot || m.tier == "neon_i8mm" && !has_mmla {
                write!(out, " |")?;
                continue;
            }
            let (cycles, bound) =
                simulate(mca, core, &m.hot).with_context(|| format!("the loop of {} {}", m.case, m.tier))?;
            write!(
                out,
                " {:.1} ({:.0} %) |",
                products as f64 / cycles,
                100.0 * bound / cycles
            )?;
        }
    }
    out.push('\n');
    Ok(out)
}

const HEAD: &str = "\
# Kernels on ARM64, counted

How many instructions each kernel executes on ARM64, counted under an emulator in the release build. The counts are exact, but no ARM
hardware has been timed for this page. `cargo xtask kernels-table` writes it, and `cargo xtask kernels-table --check` fails if a kernel
executes more than is written here. CI counts, too, unless it has the very sources that this page was counted of.

Counted of the sources ``.

- A row is one call. Products have 64 outputs and 512 inputs. Attention has 4 query heads of 64 on one KV head, and 256 positions. The
  gated delta rule takes one position of 4 heads with matrices of 64 by 64. Convolutions have 64 channels and give 96 positions,
  and `conv_f32_tiles` and `conv_i8_taps_9` 16 by 16 places, whose multiply-adds are counted as those of nine taps.
  `attention_f32_relative` is attention of 96 positions to each other without a cache, 4 heads of 64, with a number added to each
  score; `attention_bytes` attention of 256 patches to each other on bytes, one head of 64; `lstm_f32_step` one step of 64 units.
- `per 16 bytes` divides by the bytes that a call reads once: weights with their scales, the cache, or the matrices.
- `loads` counts a pair of registers as one. `dot` are multiplications of bytes. `other` is all the rest, stores included.

`sme2` has rows only where it has kernels of its own: integer products of four rows and more. Elsewhere it executes what `neon_i8mm` does.
Its rows are counted with streaming vectors of 512 bits, as CPUs have them. Its `dot` are outer products of 16 by 16 by 4 (`smopa`), and
a ninth of these only set the starting values of sums. The check fails if they are not executed.

| kernel | tier | instructions | per 16 bytes | loads | dot | other | multiply-adds per instruction |
|---|---|---|---|---|---|---|---|
";

const MODELS: &str = "
Multiply-adds per cycle of the loop in which most products of bytes lie, or, where there are none, most instructions (`share`
of all of the call), simulated by llvm-mca 22 on its model of each core, and in parentheses how close that is to what the core's units
alone allow for these instructions; the rest is latency. The models know no caches and no memory, and are coarse for some
cores (all of Apple's share an old one). They compare versions of a kernel; they do not predict speed. Decoding is bound by
memory wherever the loop keeps up.

The instructions alone could do 32 (`sdot`) or 64 (`smmla`) multiply-adds a cycle on cores with two vector units, twice
that with four. Groups of 32 with a scale, rounded in one defined order, cost two fused multiply-adds for 128 bytes of
products on the same units, which bounds an `sdot` kernel to 80 % of that and an `smmla` kernel to 67 %, and preparing
operands costs the rest. The aim of 90 % of what the instructions alone could do is therefore not met: with 64 rows the loop
does about three fifths of it, with `sdot` on Neoverse N1 as with `smmla` on Cortex-A720.

`sme2` is missing: llvm-mca 22 models no instruction of streaming mode for any core.

";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulator_of_an_older_version_is_not_taken() {
        for (version, expected) in [
            ("Debian LLVM version 22.1.8\n  Optimized build.", true),
            ("LLVM (http://llvm.org/):\n  LLVM version 23.0.0git\n", true),
            ("Debian LLVM version 14.0.6\n  Optimized build.", false),
            ("", false),
        ] {
            assert_eq!(knows_all_cores(version), expected, "{version}");
        }
    }
}
