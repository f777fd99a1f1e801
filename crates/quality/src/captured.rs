//! A program that was captured, with what its bundle lost: every matrix, and for a causal language model with a tokenizer
//! the divergence from the same program with its own weights in half precision. Such a program is calibrated, too.

use crate::pipeline::{Job, Progress, Weights};
use crate::trial::{Answers, NO_MODEL, Trial};
use crate::{Made, Request, Result, Stage};
use cactus_bundle::Bundle;
use cactus_engine::Model;
use cactus_import::pt2::{Task, TranspileOptions, transpile_calibrated};
use cactus_import::{Calibration, Stop};
use cactus_passes::{Bits, Policy};
use cactus_runtime::{Options, Program};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

/// Why a captured language model is neither calibrated nor measured, where it came without its tokenizer.
pub const NO_TOKENIZER: &str = "there is no tokenizer";

/// Makes a bundle at `destination` of the archive or capture at `source`, as [`cactus_import::pt2::transpile`] does, and
/// calibrates and measures it as `request` says where weights have fewer than 8 bits. A causal model that the runtime cannot
/// continue call by call becomes a function, unless `options` ask for states.
///
/// # Errors
/// What is damaged or not supported; [`crate::ErrorKind::Floor`] for a bundle below the floor. The destination is then as it
/// was.
pub fn transpile_measured(
    source: &Path,
    destination: &Path,
    options: &TranspileOptions,
    request: &Request,
    progress: &Progress,
) -> Result<Made> {
    options.check_destination(destination)?;
    // Known with the first bundle that is made.
    let decided = RefCell::new((options.task, None::<String>));
    let make = |weights: Weights<'_>, to: &Path, calibration: Option<&mut dyn Calibration>, stage: Stage| {
        let mut options = TranspileOptions {
            replace: true,
            task: decided.borrow().0,
            ..options.clone()
        };
        let whole = match weights {
            Weights::Half => Some(Bits::Sixteen),
            Weights::Eight => Some(Bits::Eight),
            Weights::Asked(exact) => {
                options.exact.clone_from(exact);
                None
            }
        };
        if let Some(bits) = whole {
            (options.bits, options.embeddings) = (Some(bits.number()), None);
            (options.rules, options.widen) = (Vec::new(), bits == Bits::Sixteen);
        }
        let mut at = |done, total| progress(stage, done, total);
        let outcome = transpile_calibrated(source, to, &options, calibration, &mut at)?;
        if options.task != Task::Auto {
            return Ok(outcome);
        }
        let Err(e) = continues(to) else {
            return Ok(outcome);
        };
        *decided.borrow_mut() = (Task::Function, Some(e.to_string()));
        options.task = Task::Function;
        // What is no language model has not been calibrated.
        transpile_calibrated(source, to, &options, None, &mut at)
    };
    let policy = Policy {
        embeddings: options.embeddings,
        rules: options.rules.clone(),
        ..Policy::uniform(Bits::Four)
    };
    let few = options.fewer_than_eight_bits() || request.average_bits.is_some();
    let job = Job {
        make: &make,
        trial: &captured_trial,
        never: (options.task == Task::Function).then_some(NO_MODEL),
        policy: &policy,
        few,
        threads: None,
        destination,
        replace: options.replace,
        stop: Stop::default(),
    };
    let mut request = request.clone();
    if !few {
        request.measure = None;
    }
    let mut made = job.run(&request, progress)?;
    if let (_, Some(why)) = &*decided.borrow() {
        let note = format!("the model has no states, so each call computes a whole sequence: {why}");
        made.outcome.notes.push(note);
    }
    Ok(made)
}

/// Whether a bundle has a component that continues a text.
fn has_states(bundle: &Bundle) -> bool {
    bundle
        .component("decoder")
        .is_ok_and(|decoder| !decoder.states.is_empty())
}

/// Whether that component, where there is one, can be lowered.
fn continues(folder: &Path) -> Result<()> {
    let bundle = Arc::new(Bundle::open(folder)?);
    if has_states(&bundle) {
        Program::new(bundle, "decoder", &Options::default())?;
    }
    Ok(())
}

/// How text is run through a bundle of a program, or why it cannot be.
fn captured_trial(folder: &Path, threads: usize) -> Result<Result<Box<dyn Trial>, String>> {
    let bundle = Arc::new(Bundle::open(folder)?);
    if !has_states(&bundle) {
        return Ok(Err(NO_MODEL.into()));
    }
    if !Model::has_tokenizer(&bundle) {
        return Ok(Err(NO_TOKENIZER.into()));
    }
    let program = Program::new(Arc::clone(&bundle), "decoder", &Options::default())?;
    Ok(match program.given_inputs() {
        [] => Ok(Box::new(Answers::of(&bundle, threads)?)),
        more => Err(format!("it has {} inputs beside the token ids", more.len())),
    })
}
