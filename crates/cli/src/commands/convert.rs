//! Making a bundle: what to store in how many bits, how it is measured against its source, and what the user is told.
//! The pipeline itself is `import`'s and `quality`'s.

use crate::args::{ConvertArgs, ConvertBits};
use crate::commands::policy;
use crate::progress::{StageBar, byte_bar};
use crate::{model, output};
use anyhow::{Context, Result, bail};
use cactus_hub::Format;
use cactus_import::{ConvertOptions, convert_weights, is_weights_file, pt2};
use cactus_passes::{Bits, Policy};
use cactus_quality::{DEFAULT_CALIBRATION, DEFAULT_HELD_OUT, Made, Request, Stage, convert_measured, read_text};
use std::path::Path;
use std::rc::Rc;

pub(crate) fn run(args: &ConvertArgs) -> Result<()> {
    let source = Path::new(&args.source);
    if pt2::is_pt2(source) && source.is_file() {
        bail!(
            "`{0}` is a program with its weights, which `cactus transpile` reads and quantizes at once: \
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
        bail!("`{}` is a bundle already", fetched.path.display());
    }
    let options = ConvertOptions {
        policy: chosen_policy(args)?,
        replace: args.force,
        adapter: args.lora.clone(),
        name: fetched.record.as_ref().map(|r| r.id.clone()),
        license: fetched.record.as_ref().and_then(|r| r.license.clone()),
        passes: args.fusion.passes(),
        ..ConvertOptions::default()
    };
    let request = request(args, &options.policy)?;
    let made = convert(&fetched.path, args, &options, &request)?;
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
        (args.calibrate.is_some(), "--calibrate"),
        (args.quality_text.is_some(), "--quality-text"),
        (args.lora.is_some(), "--lora"),
        (matches!(args.bits, ConvertBits::Average(_)), "--bits auto:AVERAGE"),
    ];
    if let Some((_, option)) = needs_a_program.iter().find(|(given, _)| *given) {
        bail!(
            "`{option}` runs the model, and `{}` has weights without a program",
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
    output::note(format!("packing the weights of {what} in {} bits", options.policy));
    let mut bar = None;
    let outcome = convert_weights(source, &args.destination, &options, &mut |done, total| {
        bar.get_or_insert_with(|| byte_bar(total, "packing")).set_position(done);
    });
    if let Some(bar) = bar {
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
        "{} tensors, {}, in {:.1} s; a program takes them: cactus transpile my_model.py:MyModel FOLDER --weights-dir {}",
        outcome.tensors,
        output::bytes(outcome.weights_bytes),
        outcome.seconds,
        outcome.path.display()
    ));
    output::line(outcome.path.display());
    Ok(())
}

/// The policy of a file, under what is said on the command line.
fn chosen_policy(args: &ConvertArgs) -> Result<Policy> {
    let bits = match args.bits {
        ConvertBits::Fixed(bits) => bits,
        ConvertBits::Average(_) => Bits::Four,
    };
    let mut policy = match &args.policy {
        Some(file) => {
            let text = std::fs::read_to_string(file).with_context(|| format!("cannot read `{}`", file.display()))?;
            policy::parse(&text, bits).with_context(|| format!("`{}`", file.display()))?
        }
        None => Policy::uniform(bits),
    };
    if let Some(bits) = args.embedding_bits {
        policy.embeddings = Some(bits);
    }
    Ok(policy)
}

/// What calibrates and measures: ours where no text is named. Eight bits and floats are as good as the source, and measured
/// only where a text is named.
fn request(args: &ConvertArgs, policy: &Policy) -> Result<Request> {
    let named = |file: &Path| -> Result<(String, String)> {
        let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
        Ok((read_text(file)?, name.into_owned()))
    };
    let ours = |text: &str, name: &str| (text.to_owned(), name.to_owned());
    let plain = |bits: Bits| bits >= Bits::Eight;
    let fine = matches!(args.bits, ConvertBits::Fixed(_))
        && plain(policy.bits)
        && policy.embeddings.is_none_or(plain)
        && policy.rules.iter().all(|(_, bits)| plain(*bits));
    Ok(Request {
        average_bits: match args.bits {
            ConvertBits::Average(average) => Some(average),
            ConvertBits::Fixed(_) => None,
        },
        calibration: match &args.calibrate {
            Some(Some(file)) => Some(named(file)?),
            Some(None) => Some(ours(DEFAULT_CALIBRATION, "built-in calibration text")),
            None => None,
        },
        calibration_tokens: args.calibration_tokens,
        measure: match &args.quality_text {
            Some(file) => Some(named(file)?),
            None if args.no_quality || fine => None,
            None => Some(ours(DEFAULT_HELD_OUT, "built-in held-out text")),
        },
        accept_below_floor: args.force,
        ..Request::default()
    })
}

fn convert(source: &Path, args: &ConvertArgs, options: &ConvertOptions, request: &Request) -> Result<Made> {
    let what = source.file_name().unwrap_or(source.as_os_str()).to_string_lossy();
    match args.bits {
        ConvertBits::Average(average) => output::note(format!("converting {what} to {average} bits on average")),
        ConvertBits::Fixed(_) => output::note(format!("converting {what} to {} bits", options.policy)),
    }
    let bar = Rc::new(StageBar::default());
    let shown = Rc::clone(&bar);
    let progress: Rc<dyn Fn(Stage, u64, u64)> = Rc::new(move |stage, done, total| shown.show(stage, done, total));
    let made = convert_measured(source, &args.destination, options, request, &progress);
    bar.end();
    let made = made?;
    for note in &made.outcome.notes {
        output::warning(note);
    }
    if let Some(why) = &made.below_floor {
        output::warning(format!("the bundle is below the floor: {why}"));
    }
    Ok(made)
}

fn report(made: &Made) {
    output::note(format!(
        "{} tensors, {}, in {:.1} s",
        made.outcome.tensors,
        output::bytes(made.outcome.weights_bytes),
        made.outcome.seconds
    ));
    if let Some(quality) = &made.quality {
        let c = &quality.comparison;
        output::note(format!(
            "against the source: divergence {:.4} ± {:.4} nats, same first token {:.1} %, perplexity {:.3} (source {:.3})",
            c.kl_mean,
            c.kl_error,
            100.0 * c.top1,
            c.perplexity,
            c.perplexity_reference
        ));
    }
}
