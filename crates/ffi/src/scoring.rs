//! How likely given tokens are, for both layers.

use crate::failure::{Code, Failure, Result};
use crate::loaded::Loaded;
use cactus_engine::scheduler::Request;
use cactus_engine::{FinishReason, GenerateOptions};
use std::sync::Arc;

/// The likelihood of one token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scored {
    /// Natural logarithm of its probability.
    pub(crate) logprob: f64,
}

/// Checks that token ids are those of a model.
///
/// # Errors
/// [`Code::Argument`], which names the first that is not.
pub(crate) fn known(model: &Loaded, tokens: &[u32]) -> Result<()> {
    let vocab = model.engine().vocab_size();
    match tokens.iter().position(|&id| id as usize >= vocab) {
        None => Ok(()),
        Some(place) => Err(Failure::argument(format!(
            "`tokens[{place}]`: expected an id below {vocab}, found {}",
            tokens[place]
        ))),
    }
}

/// Scores `tokens[first..]`, each given all before it. `first` is at least 1.
///
/// # Errors
/// For a token that the model does not have, and those of the scheduler.
pub(crate) fn scores(model: &Arc<Loaded>, tokens: &[u32], first: usize) -> Result<Vec<Scored>> {
    known(model, tokens)?;
    let work = model.begin()?;
    let options = GenerateOptions {
        max_tokens: 1,
        logprobs: Some(0),
        ..GenerateOptions::default()
    };
    let request = Request {
        score_from: Some(first.max(1)),
        salt: model.salt(),
        cancel: work.cancel().clone(),
        ..Request::new(tokens.to_vec(), options)
    };
    let completion = model.scheduler().generate(request, &mut |_| {})?;
    if completion.finish_reason == FinishReason::Cancelled {
        return Err(Failure::new(Code::Cancelled, "the computation was stopped"));
    }
    Ok(completion
        .prompt_logprobs
        .iter()
        .map(|info| Scored { logprob: info.logprob })
        .collect())
}
