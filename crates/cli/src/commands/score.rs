//! Perplexity by the convention of `llama-perplexity`: the text is cut into windows of `--context` tokens, each window
//! is computed from an empty context (its first token replaced by the begin-of-sequence token where the model adds one),
//! and the tokens of its second half are scored. A last window that is not full is left out.

use crate::args::ScoreArgs;
use crate::progress::{Unit, bar};
use crate::{model, output};
use anyhow::{Context, Result, bail};
use cactus_engine::LoadOptions;

pub(crate) fn run(args: &ScoreArgs) -> Result<()> {
    if args.context < 4 {
        bail!("`--context` must be at least 4 tokens, found {}", args.context);
    }
    let bytes =
        std::fs::read(&args.file).with_context(|| format!("`--file`: cannot read `{}`", args.file.display()))?;
    let text = model::utf8(bytes, &format!("`{}`", args.file.display()))?;
    let loaded = model::load(
        &args.model,
        &LoadOptions {
            context_tokens: args.context,
            kv_dtype: model::kv_dtype(args.kv),
            threads: args.threads.map(usize::from),
            ..LoadOptions::default()
        },
    )?;
    if loaded.program().context_tokens() < args.context {
        bail!(
            "`--context` is {1} tokens, but the model handles at most {0}",
            loaded.program().context_tokens(),
            args.context
        );
    }
    let tokenizer = loaded.tokenizer()?;
    let tokens = tokenizer.encode(&text, true)?;
    let windows: Vec<&[u32]> = tokens.chunks_exact(args.context).collect();
    if windows.is_empty() {
        bail!(
            "the text has only {} tokens, less than one window of {}; give a longer text or a smaller `--context`",
            tokens.len(),
            args.context
        );
    }
    let count = args.chunks.unwrap_or(windows.len()).min(windows.len());
    let bos = if tokenizer.adds_bos() { tokenizer.bos() } else { None };
    let mut session = loaded.session()?;
    let bar = bar(count as u64, "scoring", Unit::Of("windows"));
    let (mut sum, mut sum_squares, mut scored) = (0.0, 0.0, 0usize);
    // The first token whose prediction is scored follows the window's middle, as `llama-perplexity` counts.
    let first = args.context / 2 + 1;
    for (i, window) in windows.iter().take(count).enumerate() {
        let mut window = window.to_vec();
        if let Some(bos) = bos {
            window[0] = bos;
        }
        let score = session.score(&window, first)?;
        sum -= score.logprob;
        sum_squares += score.token_logprobs.iter().map(|p| p * p).sum::<f64>();
        scored += score.tokens;
        bar.set_position(i as u64 + 1);
        bar.set_message(format!("perplexity {:.4}", (sum / scored as f64).exp()));
    }
    bar.finish_and_clear();
    let nll = sum / scored as f64;
    let variance = (sum_squares / scored as f64 - nll * nll).max(0.0);
    let perplexity = nll.exp();
    let error = perplexity * (variance / scored as f64).sqrt();
    if args.json {
        return output::json(&serde_json::json!({
            "perplexity": perplexity, "standard_error": error, "nll": nll, "tokens": scored,
            "windows": count, "context": args.context, "isa": loaded.program().kernels().tier().name(),
        }));
    }
    output::line(format!("perplexity {perplexity:.4} +/- {error:.4}"));
    output::note(format!(
        "{scored} tokens scored, in {count} windows of {} tokens",
        args.context
    ));
    Ok(())
}
