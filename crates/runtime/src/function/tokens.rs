//! Functions from token ids to logits: what a language model is without states.

use super::Function;
use crate::{Error, Result};
use cactus_base::Pool;
use cactus_ir::{Dim, ValueId};
use cactus_tensor::{DType, Tensor};
use std::collections::BTreeMap;

/// A function from token ids `i64 [1, n]`, of any length `n`, to logits `f32 [1, n, vocab]`.
#[derive(Debug)]
pub struct TokenFunction {
    function: Function,
    input: String,
    vocab_size: usize,
}

impl TokenFunction {
    /// Looks at inputs and outputs of `function`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Argument`] with what stands in the way.
    pub fn new(function: Function) -> Result<TokenFunction> {
        let g = function.graph();
        let refused = |why: String| {
            Err(Error::Argument(format!(
                "it cannot generate: {why}; what generates takes token ids i64[1, n] of any length to logits \
                 f32[1, n, vocab]"
            )))
        };
        let (&[ids], &[(_, logits)]) = (g.inputs(), g.outputs()) else {
            let (inputs, outputs) = (g.inputs().len(), g.outputs().len());
            return refused(format!(
                "expected one input and one output, found {inputs} and {outputs}"
            ));
        };
        let one = |d: &Dim| d.is(1) || d.as_symbol().is_some();
        let shown = |v: ValueId| g.ty(v).to_string();
        let input = g.value(ids).name.clone();
        let length = match (&g.ty(ids).shape[..], g.ty(ids).dtype) {
            ([batch, n], DType::I64) if one(batch) => n,
            _ => return refused(format!("its input `{input}` is {}", shown(ids))),
        };
        if length.as_symbol().is_none() {
            return refused(format!(
                "its input `{input}` is {}; expected a length that is not fixed",
                shown(ids)
            ));
        }
        let vocab_size = match (&g.ty(logits).shape[..], g.ty(logits).dtype) {
            ([batch, n, vocab], DType::F32) if one(batch) && n == length => vocab.as_known(),
            _ => None,
        };
        match vocab_size {
            Some(vocab_size) => Ok(TokenFunction {
                function,
                input,
                vocab_size,
            }),
            None => refused(format!("its output is {}", shown(logits))),
        }
    }

    /// Logits for a position.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The logits after the last of `ids`, `[vocab]`, on `width` threads of `pool`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Argument`] for a length that the function does not take.
    pub fn logits(&self, pool: &Pool, width: usize, ids: &[u32]) -> Result<Vec<f32>> {
        let broken = |e: cactus_tensor::Error| Error::Argument(e.to_string());
        let ids: Vec<i64> = ids.iter().map(|&id| id.into()).collect();
        let inputs = BTreeMap::from([(
            self.input.clone(),
            Tensor::from_i64([1, ids.len()], ids).map_err(broken)?,
        )]);
        let outputs = self.function.run(pool, width, &inputs)?;
        let all = outputs.first().map(|(_, t)| t.as_f32()).transpose().map_err(broken)?;
        let all = all.unwrap_or_default();
        Ok(all[all.len().saturating_sub(self.vocab_size)..].to_vec())
    }
}
