//! Experts chosen by a router: the rows that chose one are gathered, so that its weights are read once and only where a row
//! wants them. What each row gets is added in the order of its choices, so that the bits do not depend on the other rows.

use super::{Run, checked};
use crate::{Error, Result, kernel_names};
use cactus_ir::{Activation, Node};
use cactus_kernels::{Activations, Epilogue, Exec, QuantizedRows, RotatedRows};
use cactus_quant::{PackedView, Packing};

/// Sizes of a call.
#[derive(Clone, Copy)]
struct Sizes {
    rows: usize,
    /// Experts that a row chooses.
    chosen: usize,
    experts: usize,
    /// Width of a row.
    n: usize,
    /// Width within an expert.
    m: usize,
}

impl Sizes {
    /// Elements of the scratch memory: results by row and choice, gathered rows, both stages within an expert, and the
    /// operand as a packing reads it.
    fn parts(&self) -> [usize; 5] {
        let most = self.rows * self.chosen;
        let wide = self.n.max(self.m);
        let packed = QuantizedRows::bytes(most, wide)
            .max(RotatedRows::bytes(most, wide))
            .unwrap_or(0);
        // Each part begins where a vector may: sizes are rounded up to 64 bytes.
        [
            most * self.n,
            most * self.n,
            most * 2 * self.m,
            most * self.m,
            packed.div_ceil(4),
        ]
        .map(|n| n.next_multiple_of(16))
    }
}

impl Run<'_> {
    fn expert_sizes(&self, node: &Node) -> Sizes {
        let shape = |i: usize| self.shape(node.inputs[i]);
        let (ids, gate_up, down) = (shape(1), shape(3), shape(4));
        let (n, m) = (gate_up[1], down[1]);
        let chosen = ids.last().copied().unwrap_or(0);
        Sizes {
            rows: ids[..ids.len() - 1].iter().product(),
            chosen,
            experts: down[0].checked_div(n).unwrap_or(0),
            n,
            m,
        }
    }

    pub(super) fn experts_scratch_bytes(&self, node: &Node) -> usize {
        4 * self.expert_sizes(node).parts().iter().sum::<usize>()
    }

    pub(super) fn experts(&self, node: &Node, f: Activation, out: &mut [f32], scratch: &mut [f32]) -> Result<()> {
        let s = self.expert_sizes(node);
        let ops = self.operands();
        let (x, ids, shares) = (
            ops.f32(node.inputs[0])?,
            ops.i64(node.inputs[1])?,
            ops.f32(node.inputs[2])?,
        );
        checked(ids, s.experts)?;
        let Some(f) = kernel_names::activation(f) else {
            return Err(Error::Argument("this activation has no kernel".into()));
        };
        let [all, gathered, stage, hidden, packed] = divide(scratch, s.parts());
        let mut takers = Vec::with_capacity(s.rows * s.chosen);
        for e in 0..s.experts {
            takers.clear();
            takers.extend((0..ids.len()).filter(|&i| ids[i] == e as i64));
            if takers.is_empty() {
                continue;
            }
            for (to, &i) in gathered.chunks_exact_mut(s.n).zip(&takers) {
                to.copy_from_slice(&x[i / s.chosen * s.n..][..s.n]);
            }
            let count = takers.len();
            let gate_up = self.constants.part(node.inputs[3], e, 2 * s.m)?;
            let down = self.constants.part(node.inputs[4], e, s.n)?;
            product(
                &self.exec,
                &gate_up,
                &gathered[..count * s.n],
                packed,
                &mut stage[..count * 2 * s.m],
            );
            self.exec
                .gated(f, &stage[..count * 2 * s.m], s.m, count, &mut hidden[..count * s.m]);
            // The gathered rows have been read: their place takes the results.
            product(
                &self.exec,
                &down,
                &hidden[..count * s.m],
                packed,
                &mut gathered[..count * s.n],
            );
            for (from, &i) in gathered.chunks_exact(s.n).zip(&takers) {
                all[i * s.n..][..s.n].copy_from_slice(from);
            }
        }
        for (t, row) in out.chunks_exact_mut(s.n.max(1)).enumerate() {
            row.fill(0.0);
            for i in t * s.chosen..(t + 1) * s.chosen {
                row.iter_mut()
                    .zip(&all[i * s.n..][..s.n])
                    .for_each(|(o, &y)| *o += shares[i] * y);
            }
        }
        Ok(())
    }
}

/// The scratch memory as parts of these sizes.
fn divide(mut scratch: &mut [f32], sizes: [usize; 5]) -> [&mut [f32]; 5] {
    sizes.map(|n| {
        let (part, rest) = std::mem::take(&mut scratch).split_at_mut(n);
        scratch = rest;
        part
    })
}

/// Rows of `x` by a matrix, its operand made as the packing reads it.
fn product(exec: &Exec<'_>, w: &PackedView<'_>, x: &[f32], scratch: &mut [f32], out: &mut [f32]) {
    let rows = x.len() / w.k().max(1);
    let epilogue = Epilogue {
        bias: None,
        accumulate: false,
    };
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(scratch);
    if w.packing() == Packing::Int8G32 {
        let mut q = QuantizedRows::new(bytes, rows, w.k());
        exec.quantize_rows(x, rows, w.k(), &mut q);
        exec.linear(w, Activations::Q8(q), rows, epilogue, out);
    } else if w.packing().codebook_bits().is_some() {
        let mut q = RotatedRows::new(bytes, rows, w.k());
        exec.rotate_rows(x, rows, w.k(), &mut q);
        exec.linear(w, Activations::Rotated(q), rows, epilogue, out);
    } else {
        exec.linear(w, Activations::F32(x), rows, epilogue, out);
    }
}
