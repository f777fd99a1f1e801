//! Speed, load time and memory of a model on this machine.

use crate::args::BenchArgs;
use crate::commands::{bench_streams, function, function_bench, profile};
use crate::{model, output};
use anyhow::{Result, bail};
use cactus_engine::{Bundle, CancelToken, Model, ProcessMemory, Session};
use std::sync::Arc;
use std::time::Instant;

#[derive(serde::Serialize)]
struct Row {
    name: String,
    tokens: usize,
    tok_s_median: f64,
    tok_s_all: Vec<f64>,
}

impl Row {
    /// A row of measurements of `tokens` tokens, at least one.
    fn of(name: String, tokens: usize, tok_s_all: Vec<f64>) -> Row {
        let mut sorted = tok_s_all.clone();
        sorted.sort_by(f64::total_cmp);
        Row {
            name,
            tokens,
            tok_s_median: sorted[sorted.len() / 2],
            tok_s_all,
        }
    }
}

#[derive(serde::Serialize)]
struct Report {
    model: String,
    rows: Vec<Row>,
    /// Opening the bundle and lowering it: ready for token ids.
    load_ms: f64,
    /// Until the tokenizer is ready too: ready for text.
    load_text_ms: f64,
    peak_rss_mb: Option<f64>,
    anon_mb: Option<f64>,
    mapped_mb: f64,
    arena_mb: f64,
    state_mb: f64,
    threads: usize,
    decode_threads: usize,
    context: usize,
    isa: &'static str,
}

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    if args.reps == 0 {
        bail!("`--reps` must be at least 1");
    }
    let path = model::bundle(&args.model)?;
    let bundle = Arc::new(Bundle::open(&path)?);
    if args.component.is_some() {
        return function_bench::run(bundle, args);
    }
    Model::check_answers(&bundle)?;
    if function::is_function(&bundle) {
        return function_bench::run(bundle, args);
    }
    let mut options = model::load_options(&args.engine);
    // A measurement of N tokens needs room for N tokens.
    let deepest = args.depth.iter().copied().max().unwrap_or(0);
    let needed = deepest.saturating_add(args.decode).saturating_add(1);
    options.context_tokens = options.context_tokens.max(args.prefill).max(needed);
    // The first load warms the page cache; the second is measured.
    drop(Model::of(bundle, &options)?.session()?);
    let start = Instant::now();
    let loaded = Model::load(&path, &options)?;
    let mut session = loaded.session()?;
    let load_ms = start.elapsed().as_secs_f64() * 1e3;
    let has_text = loaded.tokenizer().is_ok();
    let load_text_ms = if has_text {
        start.elapsed().as_secs_f64() * 1e3
    } else {
        load_ms
    };
    let context = loaded.program().context_tokens();
    if args.prefill > context || needed > context {
        bail!(
            "`--prefill`, or `--depth` plus `--decode`, needs {} tokens; the model handles at most {context}",
            needed.max(args.prefill)
        );
    }
    session.execution().set_profiling(args.profile);
    let mut rows = Vec::new();
    if args.prefill > 0 {
        rows.push(measure(
            format!("prefill-{}", args.prefill),
            args.prefill,
            args.reps,
            || prefill(&mut session, args.prefill),
        )?);
    }
    if args.decode > 0 {
        for &depth in &args.depth {
            let name = match depth {
                0 => format!("decode-{}", args.decode),
                depth => format!("decode-{}@{depth}", args.decode),
            };
            rows.push(measure(name, args.decode, args.reps, || {
                decode(&mut session, depth, args.decode)
            })?);
        }
    }
    for &streams in &args.streams {
        let mut all = Vec::with_capacity(args.reps);
        let mut tokens = 0;
        for _ in 0..args.reps {
            let (seconds, said) = bench_streams::measure(&loaded, streams.into(), args.decode)?;
            all.push(said as f64 / seconds);
            tokens = said;
        }
        rows.push(Row::of(format!("streams-{streams}"), tokens, all));
    }
    if args.profile {
        profile::print(&mut session);
    }
    let memory = ProcessMemory::now();
    let plan = loaded.program().memory();
    let mb = |n: u64| n as f64 / 1e6;
    let report = Report {
        model: loaded.bundle().manifest().name.clone(),
        rows,
        load_ms,
        load_text_ms,
        peak_rss_mb: memory.peak_resident.map(mb),
        anon_mb: memory.anonymous.map(mb),
        mapped_mb: mb(plan.mapped_bytes as u64),
        arena_mb: mb(plan.arena_bytes as u64),
        state_mb: mb(plan.state_bytes as u64),
        threads: loaded.threads(),
        decode_threads: loaded.decode_threads(),
        context,
        isa: loaded.program().kernels().tier().name(),
    };
    if args.json {
        return output::json(&report);
    }
    let table: Vec<Vec<String>> = report
        .rows
        .iter()
        .map(|r| {
            let (min, max) = r
                .tok_s_all
                .iter()
                .fold((f64::MAX, 0f64), |(a, b), &x| (a.min(x), b.max(x)));
            vec![
                r.name.clone(),
                format!("{:.1}", r.tok_s_median),
                format!("{min:.1}"),
                format!("{max:.1}"),
            ]
        })
        .collect();
    if !table.is_empty() {
        output::table(&["test", "tok/s", "min", "max"], &table);
    }
    let optional = |x: Option<f64>| x.map_or_else(|| "not known".to_owned(), |x| format!("{x:.1} MB"));
    output::note(format!(
        "model   {} on {}, {} threads for the prompt, {} for generating",
        report.model, report.isa, report.threads, report.decode_threads
    ));
    output::note(format!(
        "load    {:.1} ms, {:.1} ms with the tokenizer",
        report.load_ms, report.load_text_ms
    ));
    output::note(format!(
        "memory  {} at most; {} of its own (activations {:.1} MB, states up to {:.1} MB for {} tokens), {:.1} MB of weights mapped",
        optional(report.peak_rss_mb),
        optional(report.anon_mb),
        report.arena_mb,
        report.state_mb,
        report.context,
        report.mapped_mb
    ));
    Ok(())
}

/// One warm-up, then `reps` measurements of `tokens` tokens.
fn measure(name: String, tokens: usize, reps: usize, mut f: impl FnMut() -> Result<f64>) -> Result<Row> {
    f()?;
    let mut all = Vec::with_capacity(reps);
    for _ in 0..reps {
        all.push(tokens as f64 / f()?);
    }
    Ok(Row::of(name, tokens, all))
}

/// Tokens that are valid for every vocabulary and not all alike.
pub(super) fn token(i: usize, vocab: usize) -> u32 {
    (i.wrapping_mul(7919) % vocab) as u32
}

/// Seconds to compute a prompt of `n` tokens and the logits after it.
fn prefill(session: &mut Session, n: usize) -> Result<f64> {
    session.reset();
    let vocab = session.model().vocab_size();
    let tokens: Vec<u32> = (0..n).map(|i| token(i, vocab)).collect();
    let start = Instant::now();
    session.compute(&tokens, &CancelToken::new())?;
    Ok(start.elapsed().as_secs_f64())
}

/// Seconds to generate `n` tokens greedily after a prompt of `depth` tokens, whatever they are.
fn decode(session: &mut Session, depth: usize, n: usize) -> Result<f64> {
    let vocab = session.model().vocab_size();
    let cancel = CancelToken::new();
    if depth == 0 {
        session.reset();
    } else {
        // Computed once: what is held of it is kept for the next repetition.
        let prompt: Vec<u32> = (0..depth).map(|i| token(i, vocab)).collect();
        session.prefill(&prompt, &cancel)?;
    }
    let mut next = token(1, vocab);
    session.compute(&[next], &cancel)?;
    let start = Instant::now();
    for _ in 0..n {
        session.compute(&[next], &cancel)?;
        next = session.best_token();
    }
    Ok(start.elapsed().as_secs_f64())
}
