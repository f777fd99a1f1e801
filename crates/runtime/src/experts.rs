//! Experts that a router chooses, as functions and programs compute them: which of them each row takes, and the kernel over their slices of stacked weights.

use crate::{Error, Result};
use cactus_ir::{Route, RouteFn};
use cactus_kernels::{Activation, Activations, Exec, Expert, ExpertSizes, Experts, UnaryOp};
use cactus_quant::PackedView;

/// Which experts rows take, and with which shares, `[rows, chosen]`.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    pub(crate) ids: Vec<usize>,
    pub(crate) shares: Vec<f32>,
}

/// Experts and shares of each row of `scores`, as [`Route`] defines them; `p` is as large as the scores. The sum of shares is
/// one of a few numbers in order, so it has the same bits wherever it is computed.
pub(crate) fn choose(
    exec: &Exec<'_>,
    route: &Route,
    experts: usize,
    scores: &[f32],
    [bias, factor]: [Option<&[f32]>; 2],
    p: &mut [f32],
) -> Result<Choices> {
    let rows = scores.len() / experts.max(1);
    match route.f {
        RouteFn::Softmax => exec.softmax_rows(scores, rows, experts, p),
        RouteFn::Sigmoid => exec.unary(UnaryOp::Sigmoid, scores, p),
        other => return Err(Error::Argument(format!("there is no kernel for the router {other:?}"))),
    }
    let mut ids: Vec<usize> = Vec::with_capacity(rows * route.chosen);
    let mut shares = Vec::with_capacity(rows * route.chosen);
    for p in p.chunks_exact(experts.max(1)) {
        let first = ids.len();
        for _ in 0..route.chosen {
            let mut best: Option<(usize, f32)> = None;
            for (e, &p) in p.iter().enumerate() {
                let rank = bias.map_or(p, |b| p + b[e]);
                // What is not a number ranks first, as in a sort.
                let better = best.is_none_or(|(_, b)| rank > b || (rank.is_nan() && !b.is_nan()));
                if better && !ids[first..].contains(&e) {
                    best = Some((e, rank));
                }
            }
            let e = best.map_or(0, |(e, _)| e);
            ids.push(e);
            shares.push(p[e]);
        }
        let shares = &mut shares[first..];
        if let Some(epsilon) = route.normalize {
            let sum = shares.iter().fold(0.0, |sum, p| sum + p) + epsilon;
            shares.iter_mut().for_each(|p| *p /= sum);
        }
        if let Some(factor) = factor {
            shares.iter_mut().zip(&ids[first..]).for_each(|(p, &e)| *p *= factor[e]);
        }
    }
    Ok(Choices { ids, shares })
}

/// The experts of a layer, in stacked weights.
pub(crate) struct Layer<'a> {
    pub(crate) act: Activation,
    pub(crate) experts: usize,
    pub(crate) chosen: usize,
    /// Width of a row, and within an expert.
    pub(crate) n: usize,
    pub(crate) m: usize,
    /// Both matrices of an expert, `[2m, n]` and `[n, m]`.
    pub(crate) matrices: &'a dyn Fn(usize) -> Result<[PackedView<'a>; 2]>,
    /// `[experts, 2m]` and `[experts, n]`.
    pub(crate) biases: Option<[&'a [f32]; 2]>,
}

impl Layer<'_> {
    /// What the experts make of rows `x`, times their shares, to `out [rows, n]` or added to it. Every number of `choices` is that of an expert.
    pub(crate) fn compute(
        &self,
        exec: &Exec<'_>,
        choices: &Choices,
        x: &Activations<'_>,
        scratch: &mut [f32],
        accumulate: bool,
        out: &mut [f32],
    ) -> Result<()> {
        // Places by expert: where those of each begin, then the places themselves.
        let mut starts = vec![0; self.experts + 1];
        choices.ids.iter().for_each(|&e| starts[e + 1] += 1);
        for e in 0..self.experts {
            starts[e + 1] += starts[e];
        }
        let mut places = vec![0; choices.ids.len()];
        let mut next = starts.clone();
        for (place, &e) in choices.ids.iter().enumerate() {
            places[next[e]] = place;
            next[e] += 1;
        }
        let mut taken = Vec::with_capacity(places.len().min(self.experts));
        for e in (0..self.experts).filter(|&e| starts[e] < starts[e + 1]) {
            let [gate_up, down] = (self.matrices)(e)?;
            taken.push(Expert {
                gate_up,
                down,
                biases: self
                    .biases
                    .map(|[a, b]| [&a[e * 2 * self.m..][..2 * self.m], &b[e * self.n..][..self.n]]),
                places: &places[starts[e]..starts[e + 1]],
            });
        }
        // Those with most to do first, so that no thread begins one of them when the others are done.
        taken.sort_by_key(|expert| std::cmp::Reverse(expert.places.len()));
        let experts = Experts {
            act: self.act,
            chosen: self.chosen,
            taken: &taken,
            shares: &choices.shares,
        };
        if choices.ids.is_empty() && !accumulate {
            out.fill(0.0);
        }
        exec.experts(&experts, x, scratch, accumulate, out);
        Ok(())
    }
}

/// Elements of scratch memory for rows that choose among `experts`.
pub(crate) fn scratch_len(sizes: &ExpertSizes, rows: usize, experts: usize) -> usize {
    // Scores are done with once the experts are chosen.
    Exec::experts_scratch(sizes).max(rows.saturating_mul(experts))
}
