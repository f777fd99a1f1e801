//! How sure a bundle's answers are: learned from questions with known answers, and kept in the bundle.

use super::asking::Asking;
use crate::args::CalibrateArgs;
use crate::{model, output};
use anyhow::Result;
use cactus_engine::LoadOptions;
use cactus_quality::tasks::{Results, Task, TaskOptions};
use cactus_quality::{ConfidenceReport, fit_confidence, write_confidence};
use serde::Serialize;

/// What `--json` prints.
#[derive(Serialize)]
struct Calibrated<'a> {
    written: bool,
    #[serde(flatten)]
    report: &'a ConfidenceReport,
}

pub(crate) fn run(args: &CalibrateArgs) -> Result<()> {
    let task = args.task.into();
    // Before hours of answers: a file that cannot be learned from.
    let also: Vec<Results> = args
        .also
        .iter()
        .map(|file| Results::read(file))
        .collect::<Result<_, _>>()?;
    let asking = Asking {
        bundle: &args.bundle,
        task,
        data: &args.data,
        answers: args.answers.as_deref(),
        limit: args.limit,
        results: args.results.as_deref(),
        context_tokens: args.context,
        // As `cactus run` has it.
        kv_dtype: LoadOptions::default().kv_dtype,
        threads: model::threads(args.threads),
        options: TaskOptions {
            max_tokens: args.max_new_tokens.unwrap_or(task.default_tokens()),
            constrained: task == Task::Bfcl,
            one_call: args.one_call,
            allow_code_execution: args.allow_code_execution,
            signals: true,
            ..TaskOptions::default()
        },
    };
    let asked = asking.ask()?;
    let all: Vec<&Results> = std::iter::once(&asked).chain(&also).collect();
    let (section, report) = fit_confidence(&all, args.max_error)?;
    if !args.dry_run {
        write_confidence(&args.bundle, &section)?;
    }
    let written = !args.dry_run;
    if args.json {
        return output::json(&Calibrated {
            written,
            report: &report,
        });
    }
    show(&report);
    match written {
        true => output::note(format!("written into {}", args.bundle.display())),
        false => output::note("nothing was written (--dry-run)"),
    }
    Ok(())
}

fn show(report: &ConfidenceReport) {
    let percent = |x: f64| format!("{:.1} %", 100.0 * x);
    let without = match report.without_score {
        0 => String::new(),
        n => format!("; {n} more have no score and are left out"),
    };
    let alike = if report.grouped {
        ""
    } else {
        "; too few functions to try it on functions that it has not seen"
    };
    let kept = match &report.certified {
        Some(c) => format!(
            "confidence from {:.3}: {} of {} answers, {} of them wrong; at most {} wrong with {} certainty",
            c.threshold,
            c.kept,
            report.cases,
            c.errors,
            percent(c.max_error),
            percent(1.0 - c.delta)
        ),
        None => format!(
            "no threshold keeps wrong answers at or below {} for certain; give more questions, or a larger --max-error",
            percent(report.max_error)
        ),
    };
    let rows = [
        (
            "answers",
            format!("{}, {} right{without}{alike}", report.cases, percent(report.accuracy)),
        ),
        (
            "AUROC",
            format!(
                "{:.3}  (0.5 is chance, 1 is perfect; the mean log-probability alone has {:.3})",
                report.auroc, report.auroc_of_mean_logprob
            ),
        ),
        (
            "ECE",
            format!(
                "{:.3}  (a perfect confidence: {:.3}, at most {:.3} in 95 % of such sets)",
                report.ece, report.ece_floor, report.ece_floor_p95
            ),
        ),
        ("Brier score", format!("{:.3}", report.brier)),
        ("keep", kept),
        (
            "hand off",
            format!(
                "at least {}, however good the router, for at most {} wrong",
                percent(report.least_handed_off),
                percent(report.max_error)
            ),
        ),
    ];
    for (key, value) in rows {
        output::line(format!("{key:<17} {value}"));
    }
}
