//! Experts beside the gated unit that every position takes (Gemma 4): they read the state before the unit, behind a norm of their own, a
//! router ranks them by that state without the weight of a norm, and each expert has a factor.

use crate::Result;
use crate::config::{Config, Dims, MAX_WIDTH};
use crate::experts::{Experts, MAX_EXPERTS, Router, Unit};
use crate::layers::{Norm, linear};
use cactus_ir::{GraphBuilder, Op, UnaryFn, ValueId};

#[derive(Clone, Copy, Debug)]
pub(crate) struct RoutedBeside {
    experts: Experts,
    norm: Norm,
}

impl RoutedBeside {
    /// Those that a configuration describes; none where it has none.
    pub(crate) fn read(c: &Config<'_>, dims: &Dims, norm: Norm, activation: UnaryFn) -> Result<Option<RoutedBeside>> {
        if !c.flag("enable_moe_block", false)? {
            return Ok(None);
        }
        let count = c.size("num_experts", 1..=MAX_EXPERTS)?;
        Ok(Some(RoutedBeside {
            experts: Experts {
                hidden: dims.hidden,
                intermediate: c.size("moe_intermediate_size", 1..=MAX_WIDTH)?,
                count,
                chosen: c.size("top_k_experts", 1..=count)?,
                unit: Unit::Gated(activation),
                names: ["", "router"],
                shared: None,
                router: Router {
                    softmax: true,
                    bias: false,
                    scores_bias: false,
                    normalize: Some(0.0),
                    factor: None,
                },
            },
            norm,
        }))
    }

    /// What the unit gave, `y`, and what the chosen give of the state `x` before it, both normed, with the weights of the layer under `at`.
    pub(crate) fn beside(&self, b: &mut GraphBuilder, x: ValueId, y: ValueId, at: &str) -> cactus_ir::Result<ValueId> {
        let hidden = self.experts.hidden;
        let norm = |b: &mut GraphBuilder, x, name: &str| {
            b.scope(name, |b| self.norm.apply(b, x, &format!("{at}.{name}.weight"), hidden))
        };
        let y = norm(b, y, "post_feedforward_layernorm_1")?;
        let (ids, shares) = b.scope("router", |b| self.choose(b, x, &format!("{at}.router")))?;
        let z = norm(b, x, "pre_feedforward_layernorm_2")?;
        let z = b.scope("experts", |b| self.experts.compute(b, [z, ids, shares], at))?;
        let z = norm(b, z, "post_feedforward_layernorm_2")?;
        b.add(y, z)
    }

    /// Numbers and shares of the chosen, `[b, s, chosen]` each.
    fn choose(&self, b: &mut GraphBuilder, x: ValueId, at: &str) -> cactus_ir::Result<(ValueId, ValueId)> {
        let Experts { hidden, count, .. } = self.experts;
        let x = self.norm.bare(b, x)?;
        let scale = b.weight(&format!("{at}.scale"), &[hidden]);
        let x = b.mul(x, scale)?;
        let x = b.scale(x, (hidden as f64).powf(-0.5) as f32)?;
        let scores = linear(b, x, &format!("{at}.proj"), count, hidden, false)?;
        let all = b.softmax_last(scores)?;
        let (ids, shares) = self.experts.first(b, all, all)?;
        let factors = b.weight(&format!("{at}.per_expert_scale"), &[count]);
        let factors = b.op(Op::Take { axis: 0 }, &[factors, ids])?;
        Ok((ids, b.mul(shares, factors)?))
    }
}
