//! Layers of experts, of which each row chooses some.

use super::Lower;
use crate::graph::node_graph::op::Activation;
use crate::graph::node_graph::{Error, Result};
use cactus_ir::{Activation as Act, BinaryFn as Bin, Def, Op, ReduceFn, ValueId, WeightExpr};

/// How a row chooses.
pub(super) struct Route {
    pub(super) experts: usize,
    pub(super) gated: bool,
    /// What is added to the sum of the shares where they are divided by it.
    pub(super) normalize: Option<f32>,
    pub(super) factor: f32,
}

impl Lower {
    /// See [`crate::graph::node_graph::GraphOp::Experts`].
    pub(super) fn experts(&mut self, v: &[ValueId], route: &Route, activation: Activation) -> Result<ValueId> {
        let matrices = if route.gated { 3 } else { 2 };
        let (Some((&[x, probabilities, places], weights)), Some(count)) =
            (v.split_first_chunk::<3>(), route.experts.checked_mul(matrices))
        else {
            return Err(Error::argument("rows, probabilities and places are expected"));
        };
        if weights.len() != count || route.experts == 0 {
            return Err(Error::argument(format!(
                "{count} weights of {} experts are expected, found {}",
                route.experts,
                weights.len()
            )));
        }
        let ids = self.whole(places)?;
        let shares = self.b.op(Op::Gather { axis: 1 }, &[probabilities, ids])?;
        let shares = match route.normalize {
            None => shares,
            Some(eps) => {
                let sum = self.reduce(ReduceFn::Sum, shares, 1)?;
                let sum = self.with(Bin::Add, sum, eps)?;
                self.bin(Bin::Div, shares, sum)?
            }
        };
        let shares = self.with(Bin::Mul, shares, route.factor)?;
        let known = match activation {
            Activation::Silu => Some(Act::Silu),
            Activation::Gelu => Some(Act::GeluTanh),
            Activation::GeluErf => Some(Act::GeluErf),
            Activation::Relu => Some(Act::Relu),
            Activation::Sigmoid | Activation::Tanh => None,
        };
        if let (true, Some(activation)) = (route.gated, known) {
            let (w1, rest) = weights.split_at(route.experts);
            let (w3, w2) = rest.split_at(route.experts);
            let gate_up: Vec<ValueId> = w1.iter().zip(w3).flat_map(|(&a, &b)| [a, b]).collect();
            // Only the chosen are computed, where the matrices are constant.
            if let (Some(gate_up), Some(down)) = (self.constant_rows(&gate_up)?, self.constant_rows(w2)?) {
                return Ok(self
                    .b
                    .op(Op::Experts { activation }, &[x, ids, shares, gate_up, down])?);
            }
        }
        self.every_expert(x, ids, shares, weights, route, activation)
    }

    /// Weights one below the other, as one weight; `None` where one is computed or given.
    fn constant_rows(&mut self, parts: &[ValueId]) -> Result<Option<ValueId>> {
        let mut shape = [0, 0];
        let (mut exprs, mut name) = (Vec::with_capacity(parts.len()), String::new());
        for &v in parts {
            let value = self.b.graph().value(v);
            let Def::Weight(expr) = &value.def else {
                return Ok(None);
            };
            exprs.push(expr.clone());
            name = format!("{name}{} ", value.name);
            match self.shape(v)?.as_slice() {
                &[rows, width] if shape[1] == 0 || width == shape[1] => shape = [shape[0] + rows, width],
                other => {
                    return Err(Error::shape(format!(
                        "a matrix of an expert is {other:?}, another {shape:?}"
                    )));
                }
            }
        }
        let all = WeightExpr::Concat { axis: 0, parts: exprs };
        Ok(Some(self.b.weight_from(name.trim_end(), &shape, all)))
    }

    /// Every expert for every row, and the sum of those chosen.
    fn every_expert(
        &mut self,
        x: ValueId,
        ids: ValueId,
        shares: ValueId,
        weights: &[ValueId],
        route: &Route,
        activation: Activation,
    ) -> Result<ValueId> {
        let n = route.experts;
        let mut sum = None;
        for expert in 0..n {
            let hidden = self.b.linear(x, weights[expert], None)?;
            let mut inner = self.unary_fn(activation.unary(), hidden)?;
            if route.gated {
                let up = self.b.linear(x, weights[n + expert], None)?;
                inner = self.bin(Bin::Mul, inner, up)?;
            }
            let out = self.b.linear(inner, weights[weights.len() - n + expert], None)?;
            let this = self.b.scalar_i64(expert as i64)?;
            let chosen = self.b.compare(cactus_ir::CompareFn::Eq, ids, this)?;
            let zero = self.b.scalar(0.0)?;
            let share = self.b.select(chosen, shares, zero)?;
            let share = self.reduce(ReduceFn::Sum, share, 1)?;
            let part = self.bin(Bin::Mul, out, share)?;
            sum = Some(match sum {
                Some(sum) => self.bin(Bin::Add, sum, part)?,
                None => part,
            });
        }
        sum.ok_or_else(|| Error::argument("there are no experts"))
    }
}
