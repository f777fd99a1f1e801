//! Experts whose rows of the gate and of what it gates take turns, as those of gpt-oss do.

use super::GATE_UP;
use crate::{Error, Result, TensorSource};
use cactus_tensor::Tensor;
use std::ops::Range;
use std::path::PathBuf;

/// A source whose experts have the rows of their gates first. Their biases, `….experts.gate_up_proj_bias` `[experts, 2 * width]`, too.
pub(super) struct Interleaved(pub(super) Box<dyn TensorSource>);

/// What takes turns.
enum Turns {
    /// Rows of each expert, of which there are so many, of so many elements.
    Rows {
        experts: usize,
        of_each: usize,
        width: usize,
    },
    /// Elements of each row.
    Elements { of_each: usize },
}

impl Interleaved {
    fn turns(&self, name: &str) -> Option<Turns> {
        let own = name.split_once(".experts.")?.1;
        let shape = self.0.shape(name)?;
        match shape[..] {
            [experts, of_each, width] if own == GATE_UP && of_each % 2 == 0 => Some(Turns::Rows {
                experts,
                of_each,
                width,
            }),
            [_, of_each] if own.strip_suffix("_bias") == Some(GATE_UP) && of_each % 2 == 0 => {
                Some(Turns::Elements { of_each })
            }
            _ => None,
        }
    }
}

/// The pieces of `values`, `width` long, in order: of each `count` the first, third and so on, then the others.
fn sorted(values: &[f32], count: usize, width: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(values.len());
    for all in values.chunks((count * width).max(1)) {
        for first in [0, 1] {
            out.extend(all.chunks(width.max(1)).skip(first).step_by(2).flatten());
        }
    }
    out
}

impl TensorSource for Interleaved {
    fn names(&self) -> Vec<&str> {
        self.0.names()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.0.shape(name)
    }

    fn stored_type(&self, name: &str) -> Option<&'static str> {
        self.0.stored_type(name)
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        let tensor = self.0.read(name)?;
        let (count, width) = match self.turns(name) {
            None => return Ok(tensor),
            Some(Turns::Rows { of_each, width, .. }) => (of_each, width),
            Some(Turns::Elements { of_each }) => (of_each, 1),
        };
        let fail = |e: cactus_tensor::Error| Error::malformed(e.to_string()).of_tensor(name);
        let values = sorted(tensor.as_f32().map_err(fail)?, count, width);
        Tensor::from_f32(tensor.shape(), values).map_err(fail)
    }

    fn read_rows(&self, name: &str, rows: Range<usize>) -> Option<Result<Tensor>> {
        let (experts, of_each, width) = match self.turns(name) {
            None => return self.0.read_rows(name, rows),
            Some(Turns::Elements { .. }) => return None,
            Some(Turns::Rows {
                experts,
                of_each,
                width,
            }) => (experts, of_each, width),
        };
        if rows.start > rows.end || rows.end > experts.checked_mul(of_each)? {
            return None;
        }
        let half = of_each / 2;
        let mut values = Vec::with_capacity(rows.len() * width);
        let mut at = rows.start;
        while at < rows.end {
            // Within the gates of an expert, or what they gate.
            let (part, first) = (at / half, at % half);
            let count = (half - first).min(rows.end - at);
            let stored = part / 2 * of_each + 2 * first;
            let both = match self.0.read_rows(name, stored..stored + 2 * count)? {
                Ok(both) => both,
                Err(e) => return Some(Err(e)),
            };
            let both = both.as_f32().ok().filter(|both| both.len() == 2 * count * width)?;
            values.extend(both.chunks(width.max(1)).skip(part % 2).step_by(2).flatten());
            at += count;
        }
        let tensor = Tensor::from_f32([rows.len(), width], values);
        Some(tensor.map_err(|e| Error::malformed(e.to_string()).of_tensor(name)))
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.0.files()
    }
}
