//! Making a bundle: what to store in how many bits, how it is measured against its source, and what the user is told.
//! The pipeline itself is `import`'s and `quality`'s.

use crate::args::{CalibrationArgs, ComparisonArgs, ConvertArgs, ConvertBits};
use crate::commands::policy;
use crate::progress::{Unit, bar};
use crate::{model, output};
use anyhow::{Result, bail};
use cactus_hub::Format;
use cactus_import::{ConvertOptions, convert_weights, is_weights_file, pt2};
use cactus_passes::{Bits, Policy};
use cactus_quality::{Calibrate, Made, Request, Text};
use std::path::Path;

pub(crate) fn run(args: &ConvertArgs) -> Result<()> {
    let source = Path::new(&args.source);
    if pt2::is_pt2(source) && source.is_file() {
        bail!(
            "`{0}` is a captured program with its weights, which `cactus transpile` converts: \
             cactus transpile {0} FOLDER --bits 4",
            args.source
        );
    }
    if is_weights_file(source) {
        return weights(source, args);
    }
    let hub = model::hub(args.token.clone(), args.offline)?;
    let fetched = model::fetch(&hub, &args.source)?;
    if fetched.format == Format::Bundle {
        bail!(
            "`{}` is already a bundle; a bundle is made from the original weights",
            fetched.path.display()
        );
    }
    cactus_bundle::check_destination(&args.destination, args.force)?;
    let options = ConvertOptions {
        policy: match fetched.format {
            // A model of tensors alone is small, and keeps its 32 bits.
            Format::Safetensors | Format::Onnx => Policy::uniform(Bits::ThirtyTwo),
            _ => chosen_policy(args)?,
        },
        replace: args.force,
        sample_rate_hz: args.sample_rate,
        attention_context: args.attention_context,
        query_prompt: args.query_prompt.clone(),
        document_prompt: args.document_prompt.clone(),
        rerank: args.rerank,
        adapter: args.lora.clone(),
        pictures: args.mmproj.clone(),
        name: fetched.record.as_ref().map(|r| r.id.clone()),
        license: fetched.record.as_ref().and_then(|r| r.license.clone()),
        passes: args.fusion.passes(),
        ..ConvertOptions::default()
    };
    let mut request = request(args, &options.policy)?;
    // What is wrong with the source is told by its conversion.
    if !args.rerank && !cactus_import::takes_text(&fetched.path).unwrap_or(true) {
        without_text(args, &mut request);
    }
    let bits = policy::in_words(&options.policy, request.average_bits);
    model::note_converting(&fetched.path, &bits);
    let made = model::convert(&fetched.path, &args.destination, &options, &request)?;
    if args.fusion.explain {
        output::note(&made.outcome.explanation);
    }
    if args.json {
        return output::json(&made);
    }
    report(&made);
    output::line(made.outcome.path.display());
    Ok(())
}

/// Packs the tensors of a file, for a program that takes them later.
fn weights(source: &Path, args: &ConvertArgs) -> Result<()> {
    let needs_a_program = [
        (args.calibration.calibrate.is_some(), "--calibrate"),
        (args.comparison.quality_text.is_some(), "--quality-text"),
        (args.lora.is_some(), "--lora"),
        (matches!(args.bits, ConvertBits::Average(_)), "--bits auto:AVERAGE"),
    ];
    if let Some((_, option)) = needs_a_program.iter().find(|(given, _)| *given) {
        bail!(
            "`{option}` runs the model, but `{}` has only weights and no program to run",
            source.display()
        );
    }
    if args.sample_rate.is_some() {
        bail!(
            "`--sample-rate` chooses one of several networks, but `{}` has only weights",
            source.display()
        );
    }
    if args.attention_context.is_some() {
        bail!(
            "`--attention-context` is for Parakeet, but `{}` has only weights",
            source.display()
        );
    }
    if args.query_prompt.is_some() || args.document_prompt.is_some() || args.rerank {
        bail!(
            "`--query-prompt`, `--document-prompt` and `--rerank` are for whole models, but `{}` has only weights",
            source.display()
        );
    }
    cactus_bundle::check_destination(&args.destination, args.force)?;
    let options = ConvertOptions {
        policy: chosen_policy(args)?,
        replace: args.force,
        ..ConvertOptions::default()
    };
    let what = source.file_name().unwrap_or(source.as_os_str()).to_string_lossy();
    output::note(format!(
        "converting the weights of {what} to {}",
        policy::in_words(&options.policy, None)
    ));
    let mut shown = None;
    let outcome = convert_weights(source, &args.destination, &options, &mut |done, total| {
        shown
            .get_or_insert_with(|| bar(total, "converting", Unit::Of("weights")))
            .set_position(done);
    });
    if let Some(bar) = shown {
        bar.finish_and_clear();
    }
    let outcome = outcome?;
    for note in &outcome.notes {
        output::note(note);
    }
    if args.json {
        return output::json(&outcome);
    }
    output::note(format!(
        "{} tensors, {}, in {:.1} s; use them with: cactus transpile my_model.py:MyModel FOLDER --weights-dir {}",
        outcome.tensors,
        output::bytes(outcome.weights_bytes),
        outcome.seconds,
        outcome.path.display()
    ));
    output::line(outcome.path.display());
    Ok(())
}

/// The policy of a file and of the command line; bits of a file hold for all of its rules, and so above `--bits`.
fn chosen_policy(args: &ConvertArgs) -> Result<Policy> {
    let bits = match args.bits {
        ConvertBits::Fixed(bits) => bits,
        ConvertBits::Average(_) => Bits::Four,
    };
    let asked = policy::read(&args.widths)?;
    Ok(Policy {
        embeddings: asked.embeddings,
        rules: asked.rules,
        ..Policy::uniform(asked.bits.unwrap_or(bits))
    })
}

/// What calibrates and measures: ours where no text is named. Eight bits and floats are as good as the source, and measured
/// only where a text is named.
fn request(args: &ConvertArgs, policy: &Policy) -> Result<Request> {
    let average = match args.bits {
        ConvertBits::Average(average) => Some(average),
        ConvertBits::Fixed(_) => None,
    };
    let few = average.is_some() || policy.least() < Bits::Eight;
    Ok(Request {
        average_bits: average,
        calibrate: calibrate(&args.calibration, few)?,
        calibration_tokens: args.calibration.calibration_tokens,
        measure: measure(&args.comparison, few)?,
        accept_below_floor: args.force,
        ..Request::default()
    })
}

/// Takes our own texts out of a request: text cannot be run through the model, and nothing is calibrated or measured where nobody
/// asked for it.
fn without_text(args: &ConvertArgs, request: &mut Request) {
    if matches!(request.calibrate, Calibrate::BuiltIn) && args.calibration.calibrate.is_none() {
        request.calibrate = Calibrate::No;
    }
    if args.comparison.quality_text.is_none() {
        request.measure = None;
    }
}

/// What measures: ours where no text is named and `unasked`.
pub(crate) fn measure(args: &ComparisonArgs, unasked: bool) -> Result<Option<Text>> {
    match &args.quality_text {
        Some(file) => Ok(Some(Text::read(file)?)),
        None => Ok((unasked && !args.no_quality).then(Text::built_in_held_out)),
    }
}

/// What calibrates: ours where no text is named, and nothing where no weight has fewer than 8 bits.
pub(crate) fn calibrate(args: &CalibrationArgs, few: bool) -> Result<Calibrate> {
    let chosen = match &args.calibrate {
        _ if args.no_calibrate => Calibrate::No,
        // Read even where it will not be used: a name that is wrong is told.
        Some(Some(file)) => Calibrate::With(Text::read(file)?),
        Some(None) | None => Calibrate::BuiltIn,
    };
    if few {
        return Ok(chosen);
    }
    if args.calibrate.is_some() {
        output::warning("`--calibrate` has no effect, because no weight has fewer than 8 bits");
    }
    Ok(Calibrate::No)
}

/// Says what was made, and how good it is.
pub(crate) fn report(made: &Made) {
    if let Some(types) = &made.outcome.source_types {
        output::note(types);
    }
    output::note(format!(
        "{} tensors, {}, in {:.1} s",
        made.outcome.tensors,
        output::bytes(made.outcome.weights_bytes),
        made.outcome.seconds
    ));
    if let Some(texts) = made.quality.as_ref().and_then(|q| q.texts.as_ref()) {
        output::note(format!("compared with the source: {texts}"));
    }
    if let Some(c) = made.quality.as_ref().and_then(|q| q.comparison.as_ref()) {
        output::note(format!(
            "compared with the source: divergence {:.4} ± {:.4} nats, same top token {:.1} %, perplexity {:.3} (source {:.3})",
            c.kl_mean,
            c.kl_error,
            100.0 * c.top1,
            c.perplexity,
            c.perplexity_reference
        ));
    }
}
