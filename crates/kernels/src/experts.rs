//! Experts: gated units of which each row takes a few. The rows that take one are gathered, so that its weights are read once.
//!
//! Where there are enough of them, each expert is a part of one run, which its thread computes alone: so the threads meet once, not at every product.
//! Otherwise they share each product. A result is the same either way, as it does not depend on threads nor on other rows.

use crate::exec::SharedMut;
use crate::matmul::{Activations, Epilogue, QuantizedRows, RotatedRows};
use crate::{Activation, Exec};
use cactus_base::Step;
use cactus_quant::{PackedView, Packing};

/// An expert, and what it is taken for.
#[derive(Debug, Clone, Copy)]
pub struct Expert<'a> {
    /// Gate and what it lets through, one above the other, `[2m, n]`.
    pub gate_up: PackedView<'a>,
    /// Back to a row, `[n, m]`.
    pub down: PackedView<'a>,
    /// Added to the results of both, `[2m]` and `[n]`.
    pub biases: Option<[&'a [f32]; 2]>,
    /// Where its results belong; no place is that of two.
    pub places: &'a [usize],
}

/// Elements of a piece are a multiple of so many, so that each begins where a vector may.
const UNIT: usize = 16;

/// Elements of the scratch memory of an expert with so many rows: gathered rows, both stages within, and an operand as packings read it.
fn pieces(rows: usize, n: usize, m: usize) -> [usize; 4] {
    let wide = n.max(m);
    let packed = QuantizedRows::bytes(rows, wide).max(RotatedRows::bytes(rows, wide));
    [rows * n, rows * 2 * m, rows * m, packed.unwrap_or(0).div_ceil(4)].map(|x| x.next_multiple_of(UNIT))
}

impl Exec<'_> {
    /// Elements of scratch memory that [`Exec::experts`] needs for so many places of experts `[2m, n]` and `[n, m]`.
    #[must_use]
    pub fn experts_scratch(places: usize, n: usize, m: usize) -> usize {
        // None needs more than if each place had an expert of its own.
        places.saturating_mul(pieces(1, n, m).iter().sum())
    }

    /// `out[p] = down · (act(gate · x) * (up · x))` for each place `p` of each expert, with `x` the row `p / chosen` of `x [rows, n]`; `out [rows * chosen, n]`,
    /// of which other places are left as they are. Shazeer et al. 2017.
    ///
    /// # Panics
    /// When a length or a shape does not match, or a place is beyond `out` or that of two: programming errors.
    pub fn experts(
        &self,
        act: Activation,
        x: &[f32],
        chosen: usize,
        experts: &[Expert<'_>],
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let width = self.step.width();
        let n = experts.first().map_or(1, |expert| expert.down.n().max(1));
        let mut is_taken = vec![false; out.len() / n];
        for expert in experts {
            assert!(expert.down.n() == n, "experts: rows of one width");
            for &place in expert.places {
                let taken = std::mem::replace(&mut is_taken[place], true);
                assert!(!taken, "experts: place {place} is that of two");
            }
        }
        let out = SharedMut::new(out);
        // So that no thread has nothing to do while others compute their last expert, or for a short time alone.
        if width <= 1 || !(experts.len() >= 3 * width || experts.len().is_multiple_of(width)) {
            for expert in experts {
                self.expert(act, x, chosen, expert, scratch, &out);
            }
            return;
        }
        let needed = |expert: &Expert<'_>| -> usize {
            pieces(expert.places.len(), expert.down.n(), expert.down.k())
                .iter()
                .sum()
        };
        let (kernels, scratch) = (self.kernels, SharedMut::new(scratch));
        self.step.run(experts.len(), &|part| {
            let start = experts[..part].iter().map(needed).sum::<usize>();
            let own = start..start + needed(&experts[part]);
            // SAFETY: pieces of different parts follow each other.
            let scratch = unsafe { scratch.piece(own) };
            let alone = Exec {
                kernels,
                step: &Step::inline(),
            };
            alone.expert(act, x, chosen, &experts[part], scratch, &out);
        });
    }

    fn expert(
        &self,
        act: Activation,
        x: &[f32],
        chosen: usize,
        expert: &Expert<'_>,
        mut scratch: &mut [f32],
        out: &SharedMut<'_, f32>,
    ) {
        let Expert {
            gate_up, down, places, ..
        } = expert;
        let (n, m, rows) = (down.n(), down.k(), places.len());
        assert!(gate_up.n() == 2 * m && gate_up.k() == n, "experts: shapes");
        let [gathered, stage, hidden, packed] = pieces(rows, n, m).map(|len| {
            let (piece, rest) = std::mem::take(&mut scratch).split_at_mut(len);
            scratch = rest;
            piece
        });
        let (gathered, stage) = (&mut gathered[..rows * n], &mut stage[..rows * 2 * m]);
        for (to, &place) in gathered.chunks_exact_mut(n.max(1)).zip(*places) {
            to.copy_from_slice(&x[place / chosen * n..][..n]);
        }
        let bias = |which: usize| expert.biases.map(|b| b[which]);
        self.expert_product(gate_up, gathered, bias(0), packed, stage);
        let hidden = &mut hidden[..rows * m];
        self.gated(act, stage, m, rows, hidden);
        // The gathered rows have been read: their place takes the results.
        self.expert_product(down, hidden, bias(1), packed, gathered);
        for (from, &place) in gathered.chunks_exact(n.max(1)).zip(*places) {
            // SAFETY: no place is that of two, as `experts` has checked, and this thread has this one.
            unsafe { out.piece(place * n..(place + 1) * n) }.copy_from_slice(from);
        }
    }

    /// Rows of `x` by a matrix, plus a bias where there is one, its operand made as the packing reads it.
    fn expert_product(
        &self,
        w: &PackedView<'_>,
        x: &[f32],
        bias: Option<&[f32]>,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let rows = x.len() / w.k().max(1);
        let epilogue = Epilogue {
            bias,
            ..Epilogue::default()
        };
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(scratch);
        if w.packing() == Packing::Int8G32 {
            let mut q = QuantizedRows::new(bytes, rows, w.k());
            self.quantize_rows(x, rows, w.k(), &mut q);
            self.linear(w, Activations::Q8(q), rows, epilogue, out);
        } else if w.packing().codebook_bits().is_some() {
            let mut q = RotatedRows::new(bytes, rows, w.k());
            self.rotate_rows(x, rows, w.k(), &mut q);
            self.linear(w, Activations::Rotated(q), rows, epilogue, out);
        } else {
            self.linear(w, Activations::F32(x), rows, epilogue, out);
        }
    }
}
