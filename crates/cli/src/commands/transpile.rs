//! Making a bundle of a program that was captured, or handing a model that was not to Python, which captures it.

use crate::args::{TaskName, TranspileArgs};
use crate::commands::function;
use crate::progress::byte_bar;
use crate::{output, python};
use anyhow::{Context, Result};
use cactus_engine::Bundle;
use cactus_import::Outcome;
use cactus_import::pt2::{self, Task, TranspileOptions};
use cactus_passes::Bits;
use cactus_runtime::{Options, Program};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

pub(crate) fn run(args: &TranspileArgs) -> Result<ExitCode> {
    let source = Path::new(&args.source);
    if pt2::is_pt2(source) || pt2::is_capture(source) {
        return archive(source, args).map(|()| ExitCode::SUCCESS);
    }
    let typed = std::env::args_os().skip_while(|a| a != "transpile").skip(1);
    python::transpile(typed)
}

fn archive(source: &Path, args: &TranspileArgs) -> Result<()> {
    if let Some(option) = args.capture.given() {
        anyhow::bail!(
            "`{option}` says how a model is captured, and `{}` was captured before; capture it again with it, or leave it out",
            source.display()
        );
    }
    let destination = destination(args)?;
    cactus_bundle::check_destination(&destination, args.force)?;
    let mut options = TranspileOptions {
        task: match args.task {
            TaskName::Auto => Task::Auto,
            TaskName::CausalLmLogits => Task::CausalLm,
            _ => Task::Function,
        },
        bits: args.bits.map(Bits::number),
        replace: args.force,
        name: args.name.clone(),
        tokenizer: args.tokenizer.clone(),
        passes: args.fusion.passes(),
        weights: args.weights_dir.clone(),
    };
    let mut outcome = transpile(source, &destination, &options)?;
    // A causal model that the runtime cannot continue call by call still runs as a whole.
    if options.task == Task::Auto
        && let Err(e) = continues(&destination)
    {
        output::warning(format!("the model runs without states, one whole sequence a call: {e}"));
        options.task = Task::Function;
        options.replace = true;
        outcome = transpile(source, &destination, &options)?;
    }
    for note in &outcome.notes {
        output::warning(note);
    }
    let mut json = serde_json::to_value(&outcome)?;
    json["explanation"] = outcome.explanation.clone().into();
    if args.execute_after_transpile {
        json["components"] = executed(source, &destination, &options)?;
        save(&destination.join("result.json"), &json)?;
    }
    if let Some(path) = &args.result_json {
        save(path, &json)?;
    }
    if args.json {
        return output::json(&json);
    }
    if args.fusion.explain {
        output::note(&outcome.explanation);
    }
    output::note(format!(
        "{} tensors, {}, in {:.1} s",
        outcome.tensors,
        output::bytes(outcome.weights_bytes),
        outcome.seconds
    ));
    output::line(outcome.path.display());
    Ok(())
}

fn save(path: &Path, json: &serde_json::Value) -> Result<()> {
    let bytes = serde_json::to_vec_pretty(json)?;
    std::fs::write(path, bytes).with_context(|| format!("cannot write `{}`", path.display()))
}

/// Runs the bundle on made-up inputs; one that continues a sequence call by call is run as a whole.
fn executed(source: &Path, made: &Path, options: &TranspileOptions) -> Result<serde_json::Value> {
    let bundle = Arc::new(Bundle::open(made)?);
    if function::is_function(&bundle) {
        return function::execute(&bundle);
    }
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    let whole = folder.path().join("whole");
    let options = TranspileOptions {
        task: Task::Function,
        ..options.clone()
    };
    transpile(source, &whole, &options)?;
    function::execute(&Arc::new(Bundle::open(&whole)?))
}

fn destination(args: &TranspileArgs) -> Result<PathBuf> {
    if let Some(path) = args.destination.as_ref().or(args.artifact_dir.as_ref()) {
        return Ok(path.clone());
    }
    let stem = Path::new(&args.source).file_stem().context("the source has no name")?;
    let path = Path::new("weights").join(stem);
    std::fs::create_dir_all("weights").context("cannot create the folder `weights`")?;
    Ok(path)
}

/// Transpiles with a progress bar.
pub(crate) fn transpile(source: &Path, destination: &Path, options: &TranspileOptions) -> Result<Outcome> {
    let mut bar = None;
    let outcome = pt2::transpile(source, destination, options, &mut |done, total| {
        bar.get_or_insert_with(|| byte_bar(total, "transpiling"))
            .set_position(done);
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(outcome?)
}

/// Whether the component of a causal language model can be lowered.
fn continues(bundle: &Path) -> Result<()> {
    let bundle = Arc::new(Bundle::open(bundle)?);
    if bundle.manifest().task != Task::CausalLm.name() {
        return Ok(());
    }
    Program::new(bundle, "decoder", &Options::default())?;
    Ok(())
}
