//! Runs the plan of the conformance suite (`sdks/conformance`) through the Rust API.
//!
//! What the SDKs of all languages have to give is recorded from here, so this deliberately does not know the C library: it asks the
//! crates themselves, and writes what they answer in the form that the C library has for it.
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "a developer reads it")]

mod answers;
mod asked;
mod case;
mod failure;
mod hearing;
mod routed;
mod vectors;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::io::Write as _;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    ensure!(arguments.len() == 3, "usage: {} PLAN RESULTS", arguments[0]);
    let plan: Value = serde_json::from_str(&std::fs::read_to_string(&arguments[1])?)?;
    let cases = plan["cases"].as_array().context("the plan has no cases")?;
    let mut out = std::io::BufWriter::new(std::fs::File::create(&arguments[2])?);
    for each in cases {
        let mut running = case::Case::default();
        let steps = each["steps"].as_array().context("a case has no steps")?;
        let results: Vec<Value> = steps.iter().map(|step| running.run(step)).collect();
        writeln!(out, "{}", json!({"case": each["name"], "results": results}))?;
        out.flush()?;
    }
    writeln!(out, "{}", json!({"end": cases.len()}))?;
    out.flush()?;
    Ok(())
}
