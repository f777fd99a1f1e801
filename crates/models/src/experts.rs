//! Experts, of which a router chooses some for each position: Shazeer et al. 2017, Fedus et al. 2021.
//!
//! What is written takes the weights of the chosen out of all of them, as `transformers` does where it computes the chosen alone. The
//! passes make one operation of it, which copies no weight.

use crate::Result;
use crate::config::{Config, Dims, MAX_WIDTH};
use crate::decoder::activation;
use crate::layers::{GatedMlp, gated, linear};
use cactus_ir::{BinaryFn, Dim, GraphBuilder, Op, ReduceFn, UnaryFn, ValueId};

/// Where a unit of [`Unit::Clamped`] is cut, and the factor within its logistic function.
pub(crate) const LIMIT: f32 = 7.0;
pub(crate) const ALPHA: f32 = 1.702;

/// Most experts of a layer.
pub(crate) const MAX_EXPERTS: usize = 1 << 10;

/// The experts of a layer. Their weights are those of `transformers`, `experts.gate_up_proj` `[count, 2 * intermediate, hidden]` and
/// `experts.down_proj` `[count, hidden, intermediate]`, and of the router, in most families `gate.weight`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Experts {
    pub(crate) hidden: usize,
    /// Width within an expert.
    pub(crate) intermediate: usize,
    pub(crate) count: usize,
    /// How many are chosen for a position.
    pub(crate) chosen: usize,
    pub(crate) unit: Unit,
    pub(crate) router: Router,
    /// Names of the module in its layer, and of the router in the module.
    pub(crate) names: [&'static str; 2],
    /// What every position has beside the chosen.
    pub(crate) shared: Option<Shared>,
}

/// An expert that is not chosen: every position has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    pub(crate) mlp: GatedMlp,
    /// Its name in the layer.
    pub(crate) name: &'static str,
    /// Name in the layer of the projection to one number, whose logistic function is the expert's share, where it has one.
    pub(crate) gate: Option<&'static str>,
}

impl Shared {
    /// What it gives of `x`, with the weights of the layer `at`.
    fn apply(&self, b: &mut GraphBuilder, x: ValueId, at: &str) -> cactus_ir::Result<ValueId> {
        let y = b.scope(self.name, |b| self.mlp.apply(b, x, &format!("{at}.{}", self.name)))?;
        let Some(gate) = self.gate else { return Ok(y) };
        b.scope(gate, |b| {
            let share = linear(b, x, &format!("{at}.{gate}"), 1, self.mlp.hidden, false)?;
            let share = b.unary(UnaryFn::Sigmoid, share)?;
            b.mul(share, y)
        })
    }
}

/// What stands between the two products of an expert.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    /// A gated unit with this activation.
    Gated(UnaryFn),
    /// One whose halves are cut before, beside matrices that have biases, `experts.gate_up_proj_bias` `[count, 2 * intermediate]` and
    /// `experts.down_proj_bias` `[count, hidden]`.
    Clamped,
}

/// How scores become shares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Router {
    /// Softmax over all experts, or the logistic function of each.
    pub(crate) softmax: bool,
    /// Whether experts are ranked with `expert_bias` added.
    pub(crate) bias: bool,
    /// Whether scores have a bias.
    pub(crate) scores_bias: bool,
    /// Shares are divided by their sum and this, where it is given.
    pub(crate) normalize: Option<f32>,
    /// Shares are multiplied by this at last, where it is given.
    pub(crate) factor: Option<f32>,
}

impl Experts {
    /// Reads `num_experts`, `num_experts_per_tok`, `norm_topk_prob` (`normalizes` where absent) and, from the field `width`, the width
    /// within an expert. The router is a softmax.
    pub(crate) fn read(c: &Config<'_>, dims: &Dims, width: &str, normalizes: bool) -> Result<Experts> {
        let count_key = match c.has("num_experts") {
            true => "num_experts",
            false => "num_local_experts",
        };
        let count = c.size(count_key, 1..=MAX_EXPERTS)?;
        let chosen = c.size("num_experts_per_tok", 1..=MAX_EXPERTS)?;
        if chosen > count {
            let what = format!("{chosen} experts cannot be chosen of {count}, which `{count_key}` says");
            return Err(c.invalid("num_experts_per_tok", what));
        }
        Ok(Experts {
            hidden: dims.hidden,
            intermediate: c.size(width, 1..=MAX_WIDTH)?,
            count,
            chosen,
            unit: Unit::Gated(activation(c, "hidden_act", "silu")?),
            router: Router {
                softmax: true,
                bias: false,
                scores_bias: false,
                normalize: c.flag("norm_topk_prob", normalizes)?.then_some(0.0),
                factor: None,
            },
            names: ["mlp", "gate"],
            shared: None,
        })
    }

    /// What the chosen give of `x` `[b, s, hidden]` together, each times its share, and the shared expert beside them, with the weights
    /// of the layer `at`.
    pub(crate) fn apply(&self, b: &mut GraphBuilder, x: ValueId, at: &str) -> cactus_ir::Result<ValueId> {
        let [module, router] = self.names;
        let prefix = &format!("{at}.{module}");
        let (ids, shares) = b.scope(router, |b| self.choose(b, x, prefix))?;
        let y = b.scope("experts", |b| self.compute(b, [x, ids, shares], prefix))?;
        let Some(shared) = &self.shared else { return Ok(y) };
        let beside = shared.apply(b, x, at)?;
        b.add(y, beside)
    }

    /// Numbers and shares of the chosen, `[b, s, chosen]` each.
    fn choose(&self, b: &mut GraphBuilder, x: ValueId, prefix: &str) -> cactus_ir::Result<(ValueId, ValueId)> {
        let router = self.router;
        let scores = linear(
            b,
            x,
            &format!("{prefix}.{}", self.names[1]),
            self.count,
            self.hidden,
            router.scores_bias,
        )?;
        let all = match router.softmax {
            true => b.softmax_last(scores)?,
            false => b.unary(UnaryFn::Sigmoid, scores)?,
        };
        let mut ranked = all;
        if router.bias {
            let bias = b.weight(&format!("{prefix}.expert_bias"), &[self.count]);
            ranked = b.add(all, bias)?;
        }
        self.first(b, all, ranked)
    }

    /// Numbers of the first of `ranked` and their shares out of `all`, `[b, s, count]` each.
    pub(crate) fn first(
        &self,
        b: &mut GraphBuilder,
        all: ValueId,
        ranked: ValueId,
    ) -> cactus_ir::Result<(ValueId, ValueId)> {
        let router = self.router;
        let (axis, descending) = (2, true);
        let order = b.op(Op::ArgSort { axis, descending }, &[ranked])?;
        let ids = b.slice_last(order, 0, self.chosen)?;
        let mut shares = b.op(Op::Gather { axis }, &[all, ids])?;
        if let Some(least) = router.normalize {
            let mut sum = b.reduce_last(ReduceFn::Sum, shares)?;
            if least != 0.0 {
                let least = b.scalar(least)?;
                sum = b.add(sum, least)?;
            }
            shares = b.binary(BinaryFn::Div, shares, sum)?;
        }
        if let Some(factor) = router.factor {
            shares = b.scale(shares, factor)?;
        }
        Ok((ids, shares))
    }

    /// What the experts `ids` give of `x` together, `[b, s, hidden]`.
    pub(crate) fn compute(
        &self,
        b: &mut GraphBuilder,
        [x, ids, shares]: [ValueId; 3],
        prefix: &str,
    ) -> cactus_ir::Result<ValueId> {
        let Experts {
            hidden: n,
            intermediate: m,
            count,
            chosen,
            ..
        } = *self;
        let rows = b.shape(x)[..2].to_vec();
        let wide =
            |last: &[usize]| -> Vec<Dim> { rows.iter().cloned().chain(last.iter().map(|&n| n.into())).collect() };
        let gate_up = b.weight(&format!("{prefix}.experts.gate_up_proj"), &[count, 2 * m, n]);
        let down = b.weight(&format!("{prefix}.experts.down_proj"), &[count, n, m]);
        // The row once for each of its experts, as columns.
        let y = b.reshape(x, wide(&[1, n]))?;
        let y = b.expand(y, wide(&[chosen, n]))?;
        let y = b.reshape(y, wide(&[chosen, n, 1]))?;
        let biased = |b: &mut GraphBuilder, y, name: &str, rows: usize| match self.unit {
            Unit::Gated(_) => Ok(y),
            Unit::Clamped => {
                let bias = b.weight(&format!("{prefix}.experts.{name}_bias"), &[count, rows]);
                let bias = b.op(Op::Take { axis: 0 }, &[bias, ids])?;
                b.add(y, bias)
            }
        };
        let w = b.op(Op::Take { axis: 0 }, &[gate_up, ids])?;
        let y = b.matmul(w, y)?;
        let y = b.reshape(y, wide(&[chosen, 2 * m]))?;
        let y = biased(b, y, "gate_up_proj", 2 * m)?;
        let y = match self.unit {
            Unit::Gated(activation) => gated(b, y, m, activation)?,
            Unit::Clamped => clamped(b, y, m)?,
        };
        let y = b.reshape(y, wide(&[chosen, m, 1]))?;
        let w = b.op(Op::Take { axis: 0 }, &[down, ids])?;
        let y = b.matmul(w, y)?;
        let y = b.reshape(y, wide(&[chosen, n]))?;
        let y = biased(b, y, "down_proj", n)?;
        let shares = b.reshape(shares, wide(&[chosen, 1]))?;
        let y = b.mul(y, shares)?;
        let (f, axes, keepdim) = (ReduceFn::Sum, vec![2], false);
        b.op(Op::Reduce { f, axes, keepdim }, &[y])
    }
}

/// The unit of [`Unit::Clamped`] of `x` `[…, 2 * m]`.
fn clamped(b: &mut GraphBuilder, x: ValueId, m: usize) -> cactus_ir::Result<ValueId> {
    let gate = b.slice_last(x, 0, m)?;
    let up = b.slice_last(x, m, 2 * m)?;
    let (most, least, one) = (b.scalar(LIMIT)?, b.scalar(-LIMIT)?, b.scalar(1.0)?);
    let gate = b.binary(BinaryFn::Min, gate, most)?;
    let up = b.binary(BinaryFn::Max, up, least)?;
    let up = b.binary(BinaryFn::Min, up, most)?;
    let share = b.scale(gate, ALPHA)?;
    let share = b.unary(UnaryFn::Sigmoid, share)?;
    let gate = b.mul(gate, share)?;
    let up = b.add(up, one)?;
    b.mul(up, gate)
}
