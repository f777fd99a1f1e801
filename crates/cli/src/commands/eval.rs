//! How good a bundle is: on a text, against another bundle, in a task.

use super::asking::Asking;
use crate::args::{EvalArgs, EvalTask};
use crate::progress::{Unit, bar};
use crate::{model, output};
use anyhow::{Context, Result, bail};
use cactus_engine::{KvDType, Model};
use cactus_quality::tasks::{Task, TaskOptions};
use cactus_quality::{Runner, Text, WINDOW, Windows, compare, perplexity};
use std::path::Path;

pub(crate) fn run(args: &EvalArgs) -> Result<()> {
    model::there(&args.bundle)?;
    if let Some(against) = &args.against {
        model::there(against)?;
    }
    let threads = model::threads(args.threads);
    match (args.task, &args.against) {
        (Some(task), _) => ask(args, task, threads),
        (None, Some(against)) => measure_against(args, against, threads),
        (None, None) => measure(args, threads),
    }
}

/// The windows of the text, and their length in tokens.
fn windows(args: &EvalArgs, runner: &Runner, length: usize) -> Result<Windows> {
    let text = match &args.file {
        Some(file) => Text::read(file).context("`--file` cannot be read")?,
        None => Text::built_in_held_out(),
    };
    let texts = Model::load_text(runner.bundle())?;
    let count = args.chunks.map_or(usize::MAX, usize::from);
    Ok(Windows::of(&texts, &text, length, count)?)
}

fn measure(args: &EvalArgs, threads: usize) -> Result<()> {
    let length = args.context.unwrap_or(WINDOW);
    let mut runner = Runner::open(&args.bundle, length, threads)?;
    let windows = windows(args, &runner, length)?;
    let bar = bar(windows.iter().len() as u64, "measuring", Unit::Of("windows"));
    let p = perplexity(&mut runner, &windows, &mut |done, p| {
        bar.set_position(done as u64);
        bar.set_message(format!("perplexity {:.4}", p.perplexity));
    })?;
    bar.finish_and_clear();
    if args.json {
        return output::json(&p);
    }
    output::line(format!("{:<17} {:.4} ± {:.4}", "perplexity", p.perplexity, p.error));
    output::note(format!(
        "{} tokens scored, in {} windows of {} tokens",
        p.tokens, p.windows, p.context
    ));
    Ok(())
}

fn measure_against(args: &EvalArgs, against: &Path, threads: usize) -> Result<()> {
    let length = args.context.unwrap_or(WINDOW);
    let mut reference = Runner::open(against, length, threads)?;
    let mut candidate = Runner::open(&args.bundle, length, threads)?;
    let windows = windows(args, &reference, length)?;
    let bar = bar(windows.iter().len() as u64, "comparing", Unit::Of("windows"));
    let c = compare(&mut reference, &mut candidate, &windows, &mut |done, c| {
        bar.set_position(done as u64);
        bar.set_message(format!("divergence {:.4}", c.kl_mean));
        Ok(())
    })?;
    bar.finish_and_clear();
    if args.json {
        return output::json(&c);
    }
    let rows = [
        ("divergence", format!("{:.5} ± {:.5} nats", c.kl_mean, c.kl_error)),
        (
            "",
            format!("median {:.5}, 99th percentile {:.4}", c.kl_median, c.kl_p99),
        ),
        ("same top token", format!("{:.2} %", 100.0 * c.top1)),
        (
            "perplexity",
            format!("{:.4} (reference {:.4})", c.perplexity, c.perplexity_reference),
        ),
    ];
    for (key, value) in rows {
        output::line(format!("{key:<17} {value}"));
    }
    output::note(format!(
        "{} tokens compared, in {} windows of {} tokens",
        c.tokens, c.windows, c.context
    ));
    Ok(())
}

fn ask(args: &EvalArgs, task: EvalTask, threads: usize) -> Result<()> {
    let task = task.into();
    if args.constrained && task != Task::Bfcl {
        bail!("`--constrained` holds calls of tools to their schemas, so it is for `--task bfcl`");
    }
    let asked = Asking {
        bundle: &args.bundle,
        task,
        data: args
            .data
            .as_deref()
            .context("`--task` needs a file of questions: `--data FILE`")?,
        answers: args.answers.as_deref(),
        limit: args.limit,
        results: args.results.as_deref(),
        context_tokens: args.context,
        kv_dtype: KvDType::F16,
        threads,
        options: TaskOptions {
            max_tokens: args.max_new_tokens.unwrap_or(task.default_tokens()),
            raw: args.raw,
            constrained: args.constrained,
            one_call: args.one_call,
            allow_code_execution: args.allow_code_execution,
            streams: args.streams.into(),
            ..TaskOptions::default()
        },
    };
    let results = asked.ask()?;
    if args.json {
        return output::json(&results);
    }
    let percent = |x: f64| 100.0 * x;
    output::line(format!(
        "{:<17} {:.2} ± {:.2} %",
        task.name(),
        percent(results.accuracy),
        percent(results.error)
    ));
    output::note(format!("{} of {} cases right", results.correct, results.cases.len()));
    Ok(())
}
