//! How far a bundle is from another.

use crate::args::EvalArgs;
use crate::output;
use crate::progress::spinner;
use anyhow::Result;
use cactus_engine::Model;
use cactus_quality::{DEFAULT_HELD_OUT, Runner, Windows, compare, read_text};

pub(crate) fn run(args: &EvalArgs) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(cores, usize::from);
    let text = match &args.file {
        Some(file) => read_text(file)?,
        None => DEFAULT_HELD_OUT.to_owned(),
    };
    let mut reference = Runner::open(&args.against, args.context, threads)?;
    let mut candidate = Runner::open(&args.bundle, args.context, threads)?;
    let (tokenizer, _) = Model::load_text(reference.bundle())?;
    let windows = Windows::of(&tokenizer, &text, args.context, args.chunks.unwrap_or(usize::MAX))?;
    let total = windows.iter().len();
    let bar = spinner("comparing");
    let c = compare(&mut reference, &mut candidate, &windows, &mut |done, c| {
        bar.set_message(format!("window {done}/{total}, divergence {:.4}", c.kl_mean));
    })?;
    bar.finish_and_clear();
    if args.json {
        return output::json(&c);
    }
    let rows = [
        ("divergence", format!("{:.5} ± {:.5} nats", c.kl_mean, c.kl_error)),
        (
            "of it",
            format!("median {:.5}, 99th percentile {:.4}", c.kl_median, c.kl_p99),
        ),
        ("same first token", format!("{:.2} %", 100.0 * c.top1)),
        (
            "perplexity",
            format!("{:.4} (reference {:.4})", c.perplexity, c.perplexity_reference),
        ),
    ];
    for (key, value) in rows {
        output::line(format!("{key:<17} {value}"));
    }
    output::note(format!("{} tokens of {} windows of {}", c.tokens, c.windows, c.context));
    Ok(())
}
