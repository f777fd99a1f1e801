//! A program that was captured, with what its bundle lost: every matrix, and for a causal language model with a tokenizer
//! the divergence from the same program with its own weights in half precision.

use crate::finish::{Temporary, install, measure};
use crate::pipeline::WINDOW;
use crate::{Made, Report, Request, Result, Runner, Stage, Windows};
use cactus_bundle::Bundle;
use cactus_engine::Model;
use cactus_import::pt2::{Task, TranspileOptions, transpile};
use cactus_runtime::{Options, Program};
use std::path::Path;
use std::sync::Arc;

/// Makes a bundle at `destination` of the archive or capture at `source`, as [`transpile`] does, and measures it where
/// weights have fewer than 8 bits; of `request` everything but calibration and average bits is heeded. A causal model that
/// the runtime cannot continue call by call becomes a function, unless `options` ask for states.
///
/// # Errors
/// What is damaged or not supported; [`crate::ErrorKind::Floor`] for a bundle below the floor. The destination is then as it
/// was.
pub fn transpile_measured(
    source: &Path,
    destination: &Path,
    options: &TranspileOptions,
    request: &Request,
    progress: &dyn Fn(Stage, u64, u64),
) -> Result<Made> {
    options.check_destination(destination)?;
    let stage = |s: Stage| move |done: u64, total: u64| progress(s, done, total);
    let candidate = Temporary::beside(destination, "measured")?;
    let replace = options.replace;
    let mut options = TranspileOptions {
        replace: true,
        ..options.clone()
    };
    let mut outcome = transpile(source, &candidate.0, &options, &mut stage(Stage::Converting))?;
    if options.task == Task::Auto
        && let Err(e) = continues(&candidate.0)
    {
        options.task = Task::Function;
        outcome = transpile(source, &candidate.0, &options, &mut stage(Stage::Converting))?;
        let note = format!("the model has no states, so each call computes a whole sequence: {e}");
        outcome.notes.push(note);
    }
    if !options.fewer_than_eight_bits() {
        return install(outcome, None, destination, replace, true);
    }
    let compared = match &request.measure {
        None => Err("not asked for".to_owned()),
        Some(text) => measurable(&candidate.0)?.map(|()| text),
    };
    let errors = outcome.errors.clone();
    let report = match compared {
        Err(why) => {
            if request.measure.is_some() {
                outcome.notes.push(format!("the quality was not measured: {why}"));
            }
            Report::unmeasured(why, request.floor, errors)
        }
        Ok(text) => {
            let reference = Temporary::beside(destination, "reference")?;
            let float = TranspileOptions {
                bits: Some(16),
                embeddings: None,
                rules: Vec::new(),
                widen: true,
                ..options.clone()
            };
            transpile(source, &reference.0, &float, &mut stage(Stage::Reference))?;
            let threads = cactus_base::Cores::detect().threads();
            let mut runner = Runner::open(&reference.0, WINDOW, threads)?;
            let texts = Model::load_text(runner.bundle())?;
            let length = WINDOW.min(runner.context_tokens());
            let windows = Windows::of(&texts, text, length, request.measure_tokens / length.max(1))?;
            let found = measure(&mut runner, &candidate.0, &windows, progress)?;
            Report::measured(found, request.floor, text.name().to_owned(), errors)
        }
    };
    install(outcome, Some(report), destination, replace, request.accept_below_floor)
}

/// Whether the component of a causal language model can be lowered.
fn continues(folder: &Path) -> Result<()> {
    let bundle = Arc::new(Bundle::open(folder)?);
    if bundle.manifest().task == Task::CausalLm.name() {
        Program::new(bundle, "decoder", &Options::default())?;
    }
    Ok(())
}

/// Whether next-token distributions can be had of text, or why not.
fn measurable(folder: &Path) -> Result<Result<(), String>> {
    let bundle = Arc::new(Bundle::open(folder)?);
    if bundle.manifest().task != Task::CausalLm.name() {
        return Ok(Err("it is not a causal language model with states".into()));
    }
    if !Model::has_tokenizer(&bundle) {
        return Ok(Err("there is no tokenizer".into()));
    }
    let program = Program::new(bundle, "decoder", &Options::default())?;
    Ok(match program.given_inputs() {
        [] => Ok(()),
        more => Err(format!("it has {} inputs beside the token ids", more.len())),
    })
}
