//! Speed of several answers at once, through the scheduler that a server uses.

use anyhow::{Result, anyhow};
use cactus_engine::scheduler::{Event, Request, SchedulerLimits};
use cactus_engine::{GenerateOptions, Model, Scheduler};
use std::sync::{Arc, mpsc};
use std::time::Instant;

/// Tokens of each prompt: short, so that what is measured is generating.
const PROMPT_TOKENS: usize = 16;

/// Seconds in which `streams` answers of `decode` tokens are generated, from the first token of the last to begin to the end of
/// all, and the tokens said in them.
pub(super) fn measure(model: &Arc<Model>, streams: usize, decode: usize) -> Result<(f64, usize)> {
    let limits = SchedulerLimits {
        sequences: streams,
        prefix_cache: false,
        ..SchedulerLimits::default()
    };
    let scheduler = Scheduler::new(Arc::clone(model), limits)?;
    let vocab = model.vocab_size();
    let (sender, receiver) = mpsc::channel();
    for stream in 0..streams {
        let prompt = (0..PROMPT_TOKENS).map(|i| super::bench::token(i + 31 * stream, vocab));
        let options = GenerateOptions {
            // Those that begin sooner go on until the last has begun.
            max_tokens: decode + 4 * streams,
            ignore_eos: true,
            ..GenerateOptions::default()
        };
        let sender = sender.clone();
        let sink = move |event: Event| {
            let what = match event {
                Event::Started { .. } => Ok(Seen::Started),
                Event::Delta(_) => Ok(Seen::Token),
                Event::End(Ok(_)) => Ok(Seen::End),
                Event::End(Err(e)) => Err(e),
            };
            // The receiver is there until all have ended.
            drop(sender.send((Instant::now(), what)));
        };
        scheduler.submit(Request::new(prompt.collect(), options), Box::new(sink))?;
    }
    drop(sender);
    let (mut begun, mut tokens, mut start, mut last) = (0, 0, None, Instant::now());
    for (at, what) in receiver {
        match what? {
            Seen::Started => {
                begun += 1;
                start = (begun == streams).then_some(at).or(start);
            }
            Seen::Token if start.is_some() => {
                tokens += 1;
                last = at;
            }
            // Beyond this fewer streams are under way.
            Seen::End => break,
            Seen::Token => {}
        }
    }
    let start = start.ok_or_else(|| {
        anyhow!("some answers ended before all of them had begun; generate more tokens with `--decode`")
    })?;
    Ok((last.duration_since(start).as_secs_f64(), tokens))
}

enum Seen {
    Started,
    Token,
    End,
}
