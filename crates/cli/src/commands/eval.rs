//! How good a bundle is: on a text, against another bundle, in a task.

use crate::args::{EvalArgs, EvalTask};
use crate::progress::{Unit, bar, spinner};
use crate::{model, output};
use anyhow::{Context, Result, bail};
use cactus_engine::{Bundle, CancelToken, KvDType, LoadOptions, Model};
use cactus_quality::tasks::{Results, Setup, Task, TaskOptions, read_cases, run_task};
use cactus_quality::{Runner, Text, WINDOW, Windows, compare, perplexity, read_file};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// Tokens of question and answer together.
const TASK_CONTEXT: usize = 4096;
/// Results are written when the last ones are this old.
const SAVE_EVERY: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &EvalArgs) -> Result<()> {
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
        Some(file) => Text::read(file)?,
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
    let task = match task {
        EvalTask::HellaSwag => Task::HellaSwag,
        EvalTask::Gsm8k => Task::Gsm8k,
        EvalTask::HumanEval => Task::HumanEval,
        EvalTask::Bfcl => Task::Bfcl,
    };
    if task == Task::HumanEval && !args.allow_code_execution {
        bail!(
            "`humaneval` runs Python programs that the model writes. Their time and memory are limited, they start in an empty \
             folder, and without network where `unshare` works; but that is no sandbox. To run them, give \
             `--allow-code-execution`"
        );
    }
    if args.constrained && task != Task::Bfcl {
        bail!("`--constrained` holds calls of tools to their schemas, so it is for `--task bfcl`");
    }
    let data = read_file(
        args.data
            .as_deref()
            .context("`--task` needs a file of questions: `--data FILE`")?,
    )?;
    let answers = args.answers.as_deref().map(read_file).transpose()?;
    let mut cases = read_cases(task, &data, answers.as_deref())?;
    cases.truncate(args.limit.map_or(usize::MAX, usize::from));
    let options = TaskOptions {
        max_tokens: args.max_new_tokens.unwrap_or(task.default_tokens()),
        raw: args.raw,
        constrained: args.constrained,
        one_call: args.one_call,
        allow_code_execution: args.allow_code_execution,
        ..TaskOptions::default()
    };
    let loading = spinner("loading");
    let load = LoadOptions {
        context_tokens: args.context.unwrap_or(TASK_CONTEXT),
        kv_dtype: KvDType::F16,
        threads: Some(threads),
        ..LoadOptions::default()
    };
    let loaded = Model::load(&args.bundle, &load)?;
    let setup = Setup {
        task,
        data: checksum(&[data.as_bytes(), answers.as_deref().unwrap_or_default().as_bytes()]),
        bundle: identity(&args.bundle, loaded.bundle())?,
        cases: cases.len(),
        max_tokens: options.max_tokens,
        raw: options.raw,
        constrained: options.constrained,
        one_call: options.one_call,
    };
    let mut results = match &args.results {
        Some(file) => Results::open(file, setup, &cases)?,
        None => Results::new(setup),
    };
    loading.finish_and_clear();
    if !results.cases.is_empty() {
        output::note(format!(
            "continuing: {} of {} cases were answered before",
            results.cases.len(),
            cases.len()
        ));
    }
    let bar = bar(cases.len() as u64, task.name(), Unit::Of("cases"));
    bar.set_position(results.cases.len() as u64);
    let mut saved = Instant::now();
    let run = run_task(
        &loaded,
        &cases,
        &options,
        &CancelToken::new(),
        &mut results,
        &mut |results| {
            bar.set_position(results.cases.len() as u64);
            bar.set_message(format!("{:.1} % right", 100.0 * results.accuracy));
            match &args.results {
                Some(file) if saved.elapsed() > SAVE_EVERY => {
                    saved = Instant::now();
                    results.save(file)
                }
                _ => Ok(()),
            }
        },
    );
    bar.finish_and_clear();
    // What was found before a failure is kept too.
    if let Some(file) = &args.results {
        results.save(file)?;
    }
    run?;
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

/// What tells a bundle from every other: its manifest does not have the checksums of weights.
fn identity(folder: &Path, bundle: &Bundle) -> Result<String> {
    let manifest = serde_json::to_vec(bundle.manifest())?;
    let files: BTreeSet<&str> = bundle.weights().values().map(|w| w.file.as_str()).collect();
    let mut out = checksum(&[&manifest]);
    for file in files {
        let bytes = cactus_bundle::Mapped::open(&folder.join(file))?;
        out = format!("{out}-{}", checksum(&[bytes.as_ref()]));
    }
    Ok(out)
}

fn checksum(parts: &[&[u8]]) -> String {
    let each: Vec<String> = parts
        .iter()
        .map(|p| cactus_bundle::Checksum::of(p).to_string())
        .collect();
    each.join("-")
}
