//! Experts chosen by a router: the rows that chose one are gathered, so that its weights are read once and only where a row
//! wants them. What each row gets is added in the order of its choices, so that the bits do not depend on the other rows.

use super::{Run, checked};
use crate::{Error, Result, kernel_names};
use cactus_ir::{Activation, Node, Op, Route, RouteFn};
use cactus_kernels::{Activations, Epilogue, Exec, QuantizedRows, RotatedRows, UnaryOp};
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
        let [gate_up, down] = node.op.expert_weights().unwrap_or([3, 4]).map(shape);
        let (n, m) = (gate_up[1], down[1]);
        // Choices or scores.
        let by = shape(1);
        let chosen = match &node.op {
            Op::RoutedExperts { route, .. } => route.chosen,
            _ => by.last().copied().unwrap_or(0),
        };
        Sizes {
            rows: by[..by.len() - 1].iter().product(),
            chosen,
            experts: down[0].checked_div(n).unwrap_or(0),
            n,
            m,
        }
    }

    pub(super) fn experts_scratch_bytes(&self, node: &Node) -> usize {
        let s = self.expert_sizes(node);
        let scores = match node.op {
            Op::RoutedExperts { .. } => s.rows * s.experts,
            _ => 0,
        };
        // Scores are done with once the experts are chosen.
        4 * s.parts().iter().sum::<usize>().max(scores)
    }

    pub(super) fn experts(&self, node: &Node, f: Activation, out: &mut [f32], scratch: &mut [f32]) -> Result<()> {
        let s = self.expert_sizes(node);
        let ops = self.operands();
        let x = ops.f32(node.inputs[0])?;
        let routed;
        let (ids, shares) = match &node.op {
            Op::RoutedExperts { route, .. } => {
                let vector = |at: Option<usize>| at.map(|i| ops.f32(node.inputs[i])).transpose();
                let scores = ops.f32(node.inputs[1])?;
                let of = [vector(route.bias_operand())?, vector(route.factor_operand())?];
                let p = &mut scratch[..scores.len()];
                routed = choices(&self.exec, route, s.experts, scores, of, p)?;
                (&routed.0[..], &routed.1[..])
            }
            _ => (ops.i64(node.inputs[1])?, ops.f32(node.inputs[2])?),
        };
        checked(ids, s.experts)?;
        let [gate_up_weight, down_weight] = node.op.expert_weights().unwrap_or([3, 4]).map(|i| node.inputs[i]);
        let Some(f) = kernel_names::activation(f) else {
            return Err(Error::Argument("there is no kernel for this activation".into()));
        };
        let biases = match node.op.expert_biases(node.inputs.len()) {
            Some(at) => {
                let [gate_up, down] = at.map(|i| ops.f32(node.inputs[i]));
                Some([gate_up?, down?])
            }
            None => None,
        };
        let bias = |which: usize, e: usize, rows: usize| biases.map(|b| &b[which][e * rows..][..rows]);
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
            let gate_up = self.constants.part(gate_up_weight, e, 2 * s.m)?;
            let down = self.constants.part(down_weight, e, s.n)?;
            product(
                &self.exec,
                &gate_up,
                &gathered[..count * s.n],
                bias(0, e, 2 * s.m),
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
                bias(1, e, s.n),
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

/// Experts and shares of each row of `scores`, as [`Route`] defines them; `p` is as large as the scores. The sum of shares is
/// one of a few numbers in order, so it has the same bits wherever it is computed.
fn choices(
    exec: &Exec<'_>,
    route: &Route,
    experts: usize,
    scores: &[f32],
    [bias, factor]: [Option<&[f32]>; 2],
    p: &mut [f32],
) -> Result<(Vec<i64>, Vec<f32>)> {
    let rows = scores.len() / experts.max(1);
    match route.f {
        RouteFn::Softmax => exec.softmax_rows(scores, rows, experts, p),
        RouteFn::Sigmoid => exec.unary(UnaryOp::Sigmoid, scores, p),
        other => return Err(Error::Argument(format!("there is no kernel for the router {other:?}"))),
    }
    let mut ids: Vec<i64> = Vec::with_capacity(rows * route.chosen);
    let mut shares = Vec::with_capacity(rows * route.chosen);
    for p in p.chunks_exact(experts.max(1)) {
        let first = ids.len();
        for _ in 0..route.chosen {
            let mut best: Option<(usize, f32)> = None;
            for (e, &p) in p.iter().enumerate() {
                let rank = bias.map_or(p, |b| p + b[e]);
                // What is not a number ranks first, as in a sort.
                let better = best.is_none_or(|(_, b)| rank > b || (rank.is_nan() && !b.is_nan()));
                if better && !ids[first..].contains(&(e as i64)) {
                    best = Some((e, rank));
                }
            }
            let e = best.map_or(0, |(e, _)| e);
            ids.push(e as i64);
            shares.push(p[e]);
        }
        let shares = &mut shares[first..];
        if let Some(epsilon) = route.normalize {
            let sum = shares.iter().fold(0.0, |sum, p| sum + p) + epsilon;
            shares.iter_mut().for_each(|p| *p /= sum);
        }
        if let Some(factor) = factor {
            shares
                .iter_mut()
                .zip(&ids[first..])
                .for_each(|(p, &e)| *p *= factor[e as usize]);
        }
    }
    Ok((ids, shares))
}

/// The scratch memory as parts of these sizes.
fn divide(mut scratch: &mut [f32], sizes: [usize; 5]) -> [&mut [f32]; 5] {
    sizes.map(|n| {
        let (part, rest) = std::mem::take(&mut scratch).split_at_mut(n);
        scratch = rest;
        part
    })
}

/// Rows of `x` by a matrix, plus a bias where there is one, its operand made as the packing reads it.
fn product(exec: &Exec<'_>, w: &PackedView<'_>, x: &[f32], bias: Option<&[f32]>, scratch: &mut [f32], out: &mut [f32]) {
    let rows = x.len() / w.k().max(1);
    let epilogue = Epilogue {
        bias,
        ..Epilogue::default()
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
