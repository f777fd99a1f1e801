//! Texts in calls: rows of several texts one behind the other, as many as one call is worth.

use crate::{Error, Result};
use cactus_base::{Cores, Pool};
use cactus_bundle::Bundle;
use cactus_engine::CancelToken;
use cactus_quant::Packed;
use cactus_runtime::{Function, Observer, Views};
use cactus_tensor::{Elements, TensorView};
use std::sync::Arc;

/// Rows from which on a call gains nothing from more: weights are read once for all of them, and activations stay in the caches.
pub(crate) const CALL_ROWS: usize = 512;

/// A component that takes texts.
#[derive(Debug)]
pub(crate) struct Texts {
    function: Function,
    output: &'static str,
    /// Whether it gives something of each token, instead of each text.
    of_tokens: bool,
    pool: Pool,
    threads: usize,
    vocab: usize,
}

impl Texts {
    /// The component `name` of `bundle` with the output `output`, on so many threads; `None` is one for each fast core.
    pub(crate) fn load(
        bundle: &Arc<Bundle>,
        name: &'static str,
        output: &'static str,
        threads: Option<usize>,
    ) -> Result<Texts> {
        let threads = threads.unwrap_or_else(|| Cores::detect().threads()).max(1);
        let function = Function::new(Arc::clone(bundle), name, None)?;
        let has = function.graph().outputs().iter().any(|(found, _)| found == output);
        if !has {
            return Err(Error::Model(format!("its component `{name}` has no output `{output}`")));
        }
        Ok(Texts {
            function,
            output,
            of_tokens: false,
            pool: Pool::new(threads),
            threads,
            vocab: bundle.manifest().vocab_size,
        })
    }

    /// The same where the component gives something of each token.
    pub(crate) fn of_tokens(self) -> Texts {
        let of_tokens = true;
        Texts { of_tokens, ..self }
    }

    /// What the component gives of one text of which the first `seen` tokens are seen.
    pub(crate) fn run_expanded(&self, tokens: &[u32], seen: usize, width: usize) -> Result<Vec<f32>> {
        let texts = [tokens.to_vec()];
        self.check(&texts)?;
        let seen: Vec<i64> = (0..tokens.len()).map(|i| i64::from(i < seen)).collect();
        let mut out = Vec::with_capacity(tokens.len() * width);
        self.call(&texts, None, Some(&seen), width, &mut out)?;
        Ok(out)
    }

    fn check(&self, texts: &[Vec<u32>]) -> Result<()> {
        for (index, tokens) in texts.iter().enumerate() {
            if tokens.is_empty() {
                let what = "has no tokens".to_owned();
                return Err(Error::Text { index, what });
            }
            if let Some(token) = tokens.iter().find(|&&token| token as usize >= self.vocab) {
                let what = format!("has the token {token}, and the model has {} tokens", self.vocab);
                return Err(Error::Text { index, what });
            }
        }
        Ok(())
    }

    /// What the component gives of each text, `width` numbers, row after row. `types` has which of two texts each token is of, where
    /// the component wants to know.
    pub(crate) fn run(
        &self,
        texts: &[Vec<u32>],
        types: Option<&[Vec<u32>]>,
        width: usize,
        cancel: &CancelToken,
    ) -> Result<Vec<f32>> {
        self.check(texts)?;
        let mut out = Vec::with_capacity(texts.len() * width);
        let mut next = 0;
        while next < texts.len() {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let mut rows = 0;
            let fitting = texts[next..].iter().take_while(|tokens| {
                rows += tokens.len();
                rows <= CALL_ROWS
            });
            let end = next + fitting.count().max(1);
            self.call(&texts[next..end], types.map(|t| &t[next..end]), None, width, &mut out)?;
            next = end;
        }
        Ok(out)
    }

    /// Shows `observer` what reaches the weights while a text is computed, until it has seen enough.
    pub(crate) fn observe(&self, tokens: &[u32], types: Option<&[u32]>, observer: Observer<'_>) -> Result<()> {
        let texts = [tokens.to_vec()];
        self.check(&texts)?;
        let types = types.map(|types| [types.to_vec()]);
        let types = types.as_ref().map(|types| &types[..]);
        self.with_inputs(&texts, types, None, |inputs| {
            Ok(self.function.observe(&self.pool, self.threads, inputs, observer)?)
        })
    }

    /// Computes with another matrix in place of a stored one; `None` restores it.
    pub(crate) fn replace(&mut self, name: &str, matrix: Option<Packed>) -> Result<()> {
        Ok(self.function.replace_weight(name, matrix)?)
    }

    /// Threads, and how many of them compute.
    pub(crate) fn pool(&self) -> (&Pool, usize) {
        (&self.pool, self.threads)
    }

    /// Calls with the inputs that `texts` are.
    fn with_inputs<R>(
        &self,
        texts: &[Vec<u32>],
        types: Option<&[Vec<u32>]>,
        seen: Option<&[i64]>,
        call: impl FnOnce(&Views<'_>) -> Result<R>,
    ) -> Result<R> {
        let joined = |texts: &[Vec<u32>]| -> Vec<i64> { texts.iter().flatten().map(|&t| i64::from(t)).collect() };
        let ids = joined(texts);
        let types = types.map(joined);
        let mut starts = Vec::with_capacity(texts.len());
        let mut rows = 0;
        for tokens in texts {
            starts.push(rows as i64);
            rows += tokens.len();
        }
        let (row, each, all) = ([1, rows], [texts.len()], [rows]);
        let view = |shape, elements| TensorView::new(shape, elements).map_err(|e| Error::Model(e.to_string()));
        let mut inputs = vec![
            ("input_ids", view(&row, Elements::I64(&ids))?),
            ("starts", view(&each, Elements::I64(&starts))?),
        ];
        if let Some(types) = &types {
            inputs.push(("token_types", view(&row, Elements::I64(types))?));
        }
        if let Some(seen) = seen {
            inputs.push(("seen", view(&all, Elements::I64(seen))?));
        }
        call(&inputs)
    }

    fn call(
        &self,
        texts: &[Vec<u32>],
        types: Option<&[Vec<u32>]>,
        seen: Option<&[i64]>,
        width: usize,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        let rows: usize = texts.iter().map(Vec::len).sum();
        let before = out.len();
        let mut found = 0;
        self.with_inputs(texts, types, seen, |inputs| {
            let mut read = |name: &str, view: TensorView<'_>| {
                if let (true, Elements::F32(values)) = (name == self.output, view.elements()) {
                    out.extend_from_slice(values);
                    found = values.len();
                }
            };
            Ok(self.function.run_reading(&self.pool, self.threads, inputs, &mut read)?)
        })?;
        let (count, what) = match self.of_tokens {
            true => (rows, "tokens"),
            false => (texts.len(), "texts"),
        };
        if found != count * width {
            return Err(Error::Model(format!(
                "expected {width} numbers for each of {count} {what}, found {found}"
            )));
        }
        match out[before..].iter().all(|x| x.is_finite()) {
            true => Ok(()),
            false => Err(Error::Model("the model gives numbers that are not finite".into())),
        }
    }
}
