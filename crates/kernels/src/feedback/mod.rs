//! Encoding of weights in codebooks with error feedback: what an error in one input's weight does to the outputs is made good
//! by the weights of the inputs after it.
//!
//! Purpose: the second moments of a linear's inputs ([`SecondMoments`]), their factors ([`Curvature`]) and the encoding with
//! them ([`Exec::pack_with_feedback`](crate::Exec::pack_with_feedback)). It deliberately runs no model (see `quality`, which
//! knows what reaches a weight) and defines no bytes (see `quant`).
//!
//! # The loss
//!
//! For inputs `x` with second moments `H = E[x xᵀ]`, an error `e` in a row of weights changes its output by `e H eᵀ` in the
//! mean square. With `H = U D Uᵀ`, `U` upper triangular with ones on the diagonal, that is the sum over the inputs of
//! `D_i (e_i + Σ_{j<i} e_j U_ji)²`: whoever quantizes the inputs in order and adds to each weight what the errors before it
//! leave to be made good, `Σ_{j<i} e_j U_ji`, minimizes each term in turn. This is the feedback of GPTQ (Frantar et al.
//! 2022) in the form of LDLQ (Chee et al. 2023), which needs no inverse.
//!
//! # Spans
//!
//! The whole of `H` costs memory with the square of the width, and its factors time with the cube. Inputs are therefore cut
//! into spans of whole groups, at most [`SPAN_INPUTS`] wide and about equal, and what inputs of different spans have in
//! common is left out: `H` is block-diagonal. Time and memory then grow with the width, and a span's factor stays in the
//! cache while rows are encoded.

mod encode;
mod factor;
mod moments;
mod walk;

pub use factor::{Curvature, DAMPING, Factors, SHRINKAGE};
pub use moments::SecondMoments;

use crate::parts::part_range;
use cactus_quant::cq::groups;

/// Most inputs of a span.
pub const SPAN_INPUTS: usize = 1024;

/// Consecutive groups of inputs whose errors are fed back among themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// First input.
    pub start: usize,
    /// Inputs, those that fill up the last group too.
    pub size: usize,
    /// Index in the row, first input counted from the span's, and size of each group.
    pub groups: Vec<(usize, usize, usize)>,
}

/// The spans of a row of `k` inputs.
#[must_use]
pub fn spans(k: usize) -> Vec<Span> {
    let all: Vec<(usize, usize)> = groups(k).collect();
    let padded = all.last().map_or(0, |(start, d)| start + d);
    let count = padded.div_ceil(SPAN_INPUTS);
    let span = |part| {
        let range = part_range(all.len(), count, part);
        let (start, last) = (all[range.start].0, all[range.end - 1]);
        Span {
            start,
            size: last.0 + last.1 - start,
            groups: range.map(|i| (i, all[i].0 - start, all[i].1)).collect(),
        }
    };
    (0..count).map(span).collect()
}
