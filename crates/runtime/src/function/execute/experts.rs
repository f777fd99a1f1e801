//! Experts chosen by a router. What each row gets is added in the order of its choices, so that the bits do not depend on the other rows.

use super::{Run, checked};
use crate::{Error, Result, kernel_names};
use cactus_ir::{Activation, Node, Op, Route, RouteFn};
use cactus_kernels::{Exec, Expert, UnaryOp};

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
    /// Elements of the scratch memory: results by row and choice, and what the kernel needs.
    fn parts(&self) -> [usize; 2] {
        let places = self.rows * self.chosen;
        // The second begins where a vector may.
        [
            (places * self.n).next_multiple_of(16),
            Exec::experts_scratch(places, self.n, self.m),
        ]
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
        let mut of_experts: Vec<(usize, Vec<usize>)> = Vec::with_capacity(ids.len().min(s.experts));
        for e in 0..s.experts {
            let places: Vec<usize> = (0..ids.len()).filter(|&i| ids[i] == e as i64).collect();
            if !places.is_empty() {
                of_experts.push((e, places));
            }
        }
        // Those with most to do first, so that no thread begins one of them when the others are done.
        of_experts.sort_by_key(|(_, places)| std::cmp::Reverse(places.len()));
        let experts = of_experts.iter().map(|(e, places)| {
            let bias = |which: usize, rows: usize| biases.map_or(&[][..], |b| &b[which][e * rows..][..rows]);
            Ok(Expert {
                gate_up: self.constants.part(gate_up_weight, *e, 2 * s.m)?,
                down: self.constants.part(down_weight, *e, s.n)?,
                biases: biases.map(|_| [bias(0, 2 * s.m), bias(1, s.n)]),
                places,
            })
        });
        let experts = experts.collect::<Result<Vec<Expert<'_>>>>()?;
        let (all, scratch) = scratch.split_at_mut(s.parts()[0]);
        self.exec
            .experts(f, x, s.chosen, &experts, scratch, &mut all[..ids.len() * s.n]);
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
