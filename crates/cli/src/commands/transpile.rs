//! Making a bundle of a program that was captured, or handing a model that was not to Python, which captures it.

use crate::args::{ConvertBits, TaskName, TranspileArgs};
use crate::commands::{convert, function, policy};
use crate::hint::{self, Advised};
use crate::{model, output, python};
use anyhow::{Context, Result};
use cactus_engine::Bundle;
use cactus_import::pt2::{self, Task, TranspileOptions};
use cactus_passes::Bits;
use cactus_quality::{Request, transpile_measured};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

pub(crate) fn run(args: &TranspileArgs) -> Result<ExitCode> {
    let source = Path::new(&args.source);
    if pt2::is_pt2(source) || pt2::is_capture(source) {
        return archive(source, args).map(|()| ExitCode::SUCCESS);
    }
    let is_file_name = |e: &std::ffi::OsStr| ["gguf", "json", "onnx", "safetensors"].iter().any(|known| e == *known);
    if !source.exists() && source.extension().is_some_and(is_file_name) {
        anyhow::bail!("`{}` was not found (no such file)", source.display());
    }
    let is_read = |e: &std::ffi::OsStr| ["pt", "pth", "py"].iter().any(|known| e == *known);
    if source.is_file() && !source.extension().is_some_and(is_read) {
        anyhow::bail!(
            "`{}` is not a model that can be transpiled; expected a .pt2 file, a Hugging Face folder or id, FILE.py:NAME or a .pt \
             file",
            source.display()
        );
    }
    let typed = std::env::args_os().skip_while(|a| a != "transpile").skip(1);
    python::transpile(typed)
}

fn archive(source: &Path, args: &TranspileArgs) -> Result<()> {
    if let Some(option) = args.capture.given() {
        anyhow::bail!(
            "`{option}` says how a model is captured, but `{}` is already captured; leave the option out, or capture the model again",
            source.display()
        );
    }
    let destination = destination(args)?;
    cactus_bundle::check_destination(&destination, args.force)?;
    let asked = policy::read(&args.widths)?;
    let (average, bits) = match args.bits {
        // Four, of what has no sensitivity.
        Some(ConvertBits::Average(average)) => (Some(average), Some(Bits::Four)),
        Some(ConvertBits::Fixed(bits)) => (None, asked.bits.or(Some(bits))),
        None => (None, asked.bits),
    };
    let options = TranspileOptions {
        task: match args.task {
            TaskName::Auto => Task::Auto,
            TaskName::CausalLmLogits => Task::CausalLm,
            _ => Task::Function,
        },
        bits: bits.map(Bits::number),
        embeddings: asked.embeddings,
        rules: asked.rules,
        replace: args.force,
        name: args.name.clone(),
        tokenizer: args.tokenizer.clone(),
        passes: args.fusion.passes(),
        weights: args.weights_dir.clone(),
        ..TranspileOptions::default()
    };
    let few = average.is_some() || options.fewer_than_eight_bits();
    let request = Request {
        average_bits: average,
        calibrate: convert::calibrate(&args.calibration, few)?,
        calibration_tokens: args.calibration.calibration_tokens,
        measure: convert::measure(&args.comparison, true)?,
        accept_below_floor: args.force,
        ..Request::default()
    };
    // No text is run without a tokenizer.
    if args.tokenizer.is_some() {
        model::note_calibrating(&request.calibrate);
    }
    let made = model::with_progress(|progress| transpile_measured(source, &destination, &options, &request, progress));
    let advised = Advised {
        what: format!("`{}` was not transpiled: too much quality is lost", source.display()),
        advice:
            "use more bits, or a `--policy` with more bits for the matrices with the largest errors; `--force` writes the bundle anyway"
                .to_owned(),
    };
    let made = made.map_err(|e| advised.of_floor(e.into()))?;
    model::warn(&made);
    if made
        .outcome
        .notes
        .iter()
        .any(|note| note.ends_with(cactus_quality::NO_TOKENIZER))
    {
        output::note(hint::NAME_TOKENIZER);
    }
    let mut json = serde_json::to_value(&made)?;
    json["explanation"] = made.outcome.explanation.clone().into();
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
        output::note(&made.outcome.explanation);
    }
    convert::report(&made);
    output::line(made.outcome.path.display());
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
    pt2::transpile(source, &whole, &options, &mut |_, _| {})?;
    function::execute(&Arc::new(Bundle::open(&whole)?))
}

fn destination(args: &TranspileArgs) -> Result<PathBuf> {
    if let Some(path) = args.destination.as_ref().or(args.artifact_dir.as_ref()) {
        return Ok(path.clone());
    }
    let stem = Path::new(&args.source)
        .file_stem()
        .context("the source has no file name; name the folder of the bundle too")?;
    let path = Path::new("weights").join(stem);
    std::fs::create_dir_all("weights").context("cannot create the folder `weights`")?;
    Ok(path)
}
