//! Looking into an execution and changing it: the inputs of linears, and matrices replaced for a trial.
//!
//! For conversion, which has to know what reaches a weight and what a change of it does. A model in use has neither.

use crate::{Batch, Error, Execution, Result};
use cactus_kernels::{Exec, QuantizedRows};
use cactus_quant::{GROUP, Packed};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// The input of a linear.
#[derive(Debug)]
pub struct Observed<'a> {
    /// Name of the linear's weight in the bundle.
    pub weight: &'a str,
    /// `[rows, k]`; of a linear that reads quantized rows, their values.
    pub input: &'a [f32],
    /// Inputs of a row.
    pub k: usize,
    /// Kernels and threads of the call, which are idle meanwhile.
    pub exec: Exec<'a>,
}

/// Gets the input of each linear that reads `f32` or INT8 rows, just before it is computed, and says whether to go on.
pub type Observer<'a> = &'a mut dyn FnMut(Observed<'_>) -> ControlFlow<()>;

/// Matrices that stand in for stored ones, by index of the program's weight.
pub(crate) type Replaced = HashMap<usize, Packed>;

impl Execution {
    /// As [`Batch::replace_weight`].
    ///
    /// # Errors
    /// As [`Batch::replace_weight`].
    pub fn replace_weight(&mut self, name: &str, matrix: Option<Packed>) -> Result<()> {
        self.batch.replace_weight(name, matrix)
    }
}

impl Batch {
    /// Computes with `matrix` in place of the stored tensor `name` from now on; `None` restores it.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Argument`] where the program reads no such tensor, or one of another shape or packing.
    pub fn replace_weight(&mut self, name: &str, matrix: Option<Packed>) -> Result<()> {
        let program = std::sync::Arc::clone(self.program());
        let found = (0..program.lowered.weights.len()).find(|&i| program.weight_name(i) == name);
        let Some(index) = found else {
            return Err(Error::Argument(format!("the model reads no tensor `{name}`")));
        };
        let Some(matrix) = matrix else {
            self.replaced.remove(&index);
            return Ok(());
        };
        let (stored, layout) = (program.matrix(index)?, matrix.layout());
        if stored.layout() != layout {
            return Err(Error::Argument(format!(
                "`{name}` is [{}, {}] stored as {}, but its replacement is [{}, {}] stored as {}",
                stored.n(),
                stored.k(),
                stored.packing(),
                layout.n(),
                layout.k(),
                layout.packing()
            )));
        }
        self.replaced.insert(index, matrix);
        Ok(())
    }
}

/// The values of quantized rows, `[rows, k]`.
pub(crate) fn values(x: &QuantizedRows<'_>) -> Vec<f32> {
    let mut out = vec![0f32; x.rows() * x.k()];
    for (row, out) in out.chunks_exact_mut(x.k().max(1)).enumerate() {
        for (group, out) in out.chunks_mut(GROUP).enumerate() {
            let (scale, integers) = x.group(row, group);
            for (out, q) in out.iter_mut().zip(integers) {
                *out = f32::from(q) * scale;
            }
        }
    }
    out
}
