//! The component that says what sound each token of a text was written of, and the words of a window that come of it.

use crate::words::{Shares, Timed, timed};
use crate::{Error, Result};
use cactus_base::Pool;
use cactus_bundle::Bundle;
use cactus_runtime::Function;
use cactus_tensor::{Elements, Tensor};
use std::sync::Arc;

pub(crate) const NAME: &str = "alignment";

/// A loaded component `alignment`.
#[derive(Debug)]
pub(crate) struct Alignment {
    function: Function,
    /// Names of the inputs that take the text, and what the encoder gave.
    inputs: [String; 2],
}

/// A window's text and sound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading<'a> {
    pub(crate) prompt: &'a [u32],
    /// What was written, without times, by segments.
    pub(crate) segments: &'a [&'a [u32]],
    /// Of each of them.
    pub(crate) probabilities: &'a [f64],
    /// Ends a text.
    pub(crate) end: u32,
    pub(crate) language: Option<&'a str>,
    /// What the encoder gave of the window.
    pub(crate) states: &'a Tensor,
    /// Positions of it that have sound.
    pub(crate) heard: usize,
    /// Seconds of a position.
    pub(crate) step_s: f64,
}

/// Where a bundle does not have what words are timed by.
pub(crate) fn missing() -> Error {
    Error::Option(format!(
        "times of words are made by a component `{NAME}`, which this bundle does not have; convert its source again (`--reconvert`)"
    ))
}

impl Alignment {
    /// Loads it from `bundle`, whose encoder gives `states`.
    pub(crate) fn load(bundle: &Arc<Bundle>, states: &str) -> Result<Alignment> {
        let Some(declared) = bundle.manifest().components.iter().find(|c| c.name == NAME) else {
            return Err(missing());
        };
        let ids = declared.inputs.iter().find(|input| input.name != states);
        let ids = ids.ok_or_else(|| Error::Model(format!("its component `{NAME}` takes no text")))?;
        Ok(Alignment {
            inputs: [ids.name.clone(), states.to_owned()],
            function: Function::new(Arc::clone(bundle), NAME, None)?,
        })
    }

    /// The words of a window, in seconds from its beginning. `decode` keeps the space before a word.
    pub(crate) fn words(
        &self,
        pool: &Pool,
        threads: usize,
        decode: &dyn Fn(&[u32]) -> String,
        reading: &Reading<'_>,
    ) -> Result<Vec<Timed>> {
        let Reading { segments, .. } = *reading;
        if segments.iter().all(|segment| segment.is_empty()) {
            return Ok(Vec::new());
        }
        let starts = self.positions(pool, threads, reading, |s, first, heard| s.starts(first, heard))?;
        let starts: Vec<f64> = starts.into_iter().map(|at| at as f64 * reading.step_s).collect();
        Ok(timed(
            segments,
            &starts,
            reading.probabilities,
            reading.language,
            decode,
        ))
    }

    /// The position that was looked at most when each token of a text was written.
    pub(crate) fn peaks(&self, pool: &Pool, threads: usize, reading: &Reading<'_>) -> Result<Vec<usize>> {
        let mut peaks = self.positions(pool, threads, reading, |s, first, heard| s.peaks(first, heard))?;
        // That of the end.
        peaks.pop();
        Ok(peaks)
    }

    /// A position for each token, and one for the end.
    fn positions(
        &self,
        pool: &Pool,
        threads: usize,
        reading: &Reading<'_>,
        of: fn(&Shares<'_>, usize, usize) -> Vec<usize>,
    ) -> Result<Vec<usize>> {
        let (prompt, tokens) = (reading.prompt, reading.segments.concat());
        let text = prompt.iter().chain(&tokens).copied().chain([reading.end]);
        let ids: Vec<i64> = text.map(i64::from).collect();
        let ids = Tensor::from_i64([1, ids.len()], ids).map_err(|e| Error::Model(e.to_string()))?;
        let [takes_ids, takes_states] = &self.inputs;
        let inputs = [
            (takes_ids.as_str(), ids.view()),
            (takes_states.as_str(), reading.states.view()),
        ];
        let mut found = Vec::new();
        self.function.run_reading(pool, threads, &inputs, &mut |_, shares| {
            if let ([1, heads, rows, positions], Elements::F32(values)) = (shares.shape(), shares.elements()) {
                let shares = Shares {
                    values,
                    heads: *heads,
                    rows: *rows,
                    positions: *positions,
                };
                // The row of the prompt's last token is what the first one of the text was written of.
                found = of(&shares, prompt.len().saturating_sub(1), reading.heard);
            }
        })?;
        // Texts differ in length, so the next call needs other memory anyway.
        self.function.release();
        match found.len() == tokens.len() + 1 {
            true => Ok(found),
            false => Err(Error::Model(format!(
                "its component `{NAME}` gives no shares of attention"
            ))),
        }
    }
}
