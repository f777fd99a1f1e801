//! How sure a bundle's answers are: learned from questions with known answers, and kept in the bundle.

use super::asking::{Asking, TASK_CONTEXT};
use crate::args::CalibrateArgs;
use crate::progress::{Unit, bar, spinner};
use crate::{model, output};
use anyhow::{Context as _, Result, bail};
use cactus_engine::scheduler::SchedulerLimits;
use cactus_engine::{CancelToken, LoadOptions, Model, Scheduler};
use cactus_quality::tasks::{Results, Task, TaskOptions};
use cactus_quality::{
    ConfidenceReport, ask_decisions, fit_confidence, fit_decisions, read_decisions, read_file, write_confidence,
    write_decisions,
};
use serde::Serialize;

/// What `--json` prints.
#[derive(Serialize)]
struct Calibrated<'a> {
    written: bool,
    #[serde(flatten)]
    report: &'a ConfidenceReport,
}

pub(crate) fn run(args: &CalibrateArgs) -> Result<()> {
    model::there(&args.bundle)?;
    let Some(task) = args.task.written() else {
        return decisions(args);
    };
    // Before hours of answers: a file that cannot be learned from.
    let also: Vec<Results> = args
        .also
        .iter()
        .map(|file| Results::read(file).context("`--also` cannot be read"))
        .collect::<Result<_>>()?;
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
            streams: args.streams.into(),
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
    tell_written(args);
    Ok(())
}

fn tell_written(args: &CalibrateArgs) {
    match args.dry_run {
        false => output::note(format!("written into {}", args.bundle.display())),
        true => output::note("nothing was written (--dry-run)"),
    }
}

/// Learns from decisions, which are read off one row of logits each, so nothing is kept on the way.
fn decisions(args: &CalibrateArgs) -> Result<()> {
    let given = [
        ("--answers", args.answers.is_some()),
        ("--results", args.results.is_some()),
        ("--also", !args.also.is_empty()),
        ("--one-call", args.one_call),
        ("--max-new-tokens", args.max_new_tokens.is_some()),
        ("--allow-code-execution", args.allow_code_execution),
    ];
    if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
        bail!("`{option}` is for answers that are written; decisions generate nothing, so leave it out");
    }
    let text = read_file(&args.data).context("`--data` cannot be read")?;
    let mut known = read_decisions(&text)?;
    known.truncate(args.limit.map_or(usize::MAX, usize::from));
    let loading = spinner("loading");
    let load = LoadOptions {
        context_tokens: args.context.unwrap_or(TASK_CONTEXT),
        threads: Some(model::threads(args.threads)),
        ..LoadOptions::default()
    };
    let limits = SchedulerLimits {
        sequences: args.streams.into(),
        ..SchedulerLimits::default()
    };
    let scheduler = Scheduler::new(Model::load(&args.bundle, &load)?, limits)?;
    loading.finish_and_clear();
    let bar = bar(known.len() as u64, "decisions", Unit::Of("inputs"));
    let cases = ask_decisions(&scheduler, &known, &CancelToken::new(), &mut |done| {
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let (calibration, reports) = fit_decisions(scheduler.model(), &cases?)?;
    if !args.dry_run {
        write_decisions(&args.bundle, &calibration)?;
    }
    if args.json {
        return output::json(&serde_json::json!({"written": !args.dry_run, "kinds": reports}));
    }
    for report in &reports {
        let pair = |[before, after]: [f64; 2]| format!("{before:.3} -> {after:.3}");
        output::line(format!(
            "{:<10} {} questions, {:.1} % right (before: {:.1} %)",
            report.kind,
            report.cases,
            100.0 * report.accuracy[1],
            100.0 * report.accuracy[0]
        ));
        let [floor, most] = report.ece_floor;
        let ece = format!(
            "{}  (a perfect probability: {floor:.3}, at most {most:.3} in 95 % of such sets)",
            pair(report.ece)
        );
        let fitted = report.fitted;
        let found = match fitted.shift {
            0.0 => format!("temperature {:.3}", fitted.temperature),
            shift => format!("temperature {:.3}, yes moved by {shift:+.3}", fitted.temperature),
        };
        for (what, text) in [
            ("ECE", ece),
            ("Brier score", pair(report.brier)),
            ("nats", pair(report.nats)),
            ("learned", found),
        ] {
            output::line(format!("  {what:<11} {text}"));
        }
    }
    tell_written(args);
    Ok(())
}

/// What the bound of `keep` is a bound of.
const CERTIFIED_OF: &str = "the bound of `keep` is proved for scores by five fits, each to four fifths of the answers; the bundle keeps one \
                            fit to all of them, for which it holds as far as that scores alike";

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
    if report.certified.is_some() {
        output::note(CERTIFIED_OF);
    }
}
