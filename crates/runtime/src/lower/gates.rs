//! Gated units, short convolutions with their activations, and the gated delta rule.

use super::Lowerer;
use crate::gates::GatedRows;
use crate::step::{Kind, View};
use crate::{Result, kernel_names};
use cactus_ir::{Activation, Node};

impl Lowerer<'_> {
    pub(super) fn short_conv(
        &mut self,
        node: &Node,
        activation: Option<Activation>,
        state: Option<&str>,
    ) -> Result<()> {
        let Some(state) = state else {
            return self.fail(
                node,
                "expected a convolution with a state, which the pass `insert_states` adds",
            );
        };
        let then = match activation.map(|a| a.unary().and_then(kernel_names::unary)) {
            Some(None) => return self.fail(node, "there is no kernel for this activation"),
            then => then.flatten(),
        };
        let state = self.state_index(node, state)?;
        let x = self.view(node, node.inputs[0])?;
        let weight = self.vector(node, node.inputs[1])?;
        let bias = node.inputs.get(2).map(|&b| self.vector(node, b)).transpose()?;
        let out = self.fresh(node, node.outputs[0], x.width)?;
        let kind = Kind::ShortConv {
            state,
            x,
            weight,
            bias,
            then,
            out,
        };
        self.push(node, kind);
        Ok(())
    }

    pub(super) fn gated_delta(&mut self, node: &Node, steps: bool, state: &str) -> Result<()> {
        let state = self.state_index(node, state)?;
        let mut operands = Vec::new();
        for &v in node.inputs.iter().take(5) {
            operands.push(self.view(node, v)?);
        }
        let [q, k, v, mut decay, mut rate] = operands[..] else {
            return self.fail(node, "expected operands with one row for each position");
        };
        let out = node.outputs[0];
        let heads = |v| self.graph.ty(v).shape[2].as_known().unwrap_or(0);
        let (heads, key_heads) = (heads(out), heads(node.inputs[0]));
        if steps {
            let (speed, bias) = (self.fixed(node, 5)?, self.fixed(node, 6)?);
            let [made, learned] = [self.rows_buffer(node, heads)?, self.rows_buffer(node, heads)?];
            let kind = Kind::Decays {
                step: decay,
                rate,
                speed,
                bias,
                decay: made,
                learned,
            };
            self.push(node, kind);
            (decay, rate) = (View::of(made, heads), View::of(learned, heads));
        }
        let out = self.fresh(node, out, v.width)?;
        let kind = Kind::GatedDelta {
            state,
            q,
            k,
            v,
            decay,
            rate,
            heads,
            key_heads,
            out,
        };
        self.push(node, kind);
        Ok(())
    }

    pub(super) fn gated(&mut self, node: &Node, activation: Activation, above: Option<f32>) -> Result<()> {
        let out = node.outputs[0];
        let Some(activation) = kernel_names::activation(activation) else {
            return self.fail(node, "there is no kernel for this activation");
        };
        if self.graph.ty(out).shape.len() != 3 {
            return self.fail(node, "expected gates for whole rows");
        }
        if let &[gate, up] = &node.inputs[..] {
            let (gate, up) = (self.view(node, gate)?, self.view(node, up)?);
            return self.gated_rows(node, (activation, above), gate, up);
        }
        if above.is_some() {
            let x = self.view(node, node.inputs[0])?;
            let width = x.width / 2;
            let gate = View { width, ..x };
            let offset = x.offset + width;
            return self.gated_rows(node, (activation, above), gate, View { offset, ..gate });
        }
        let x = self.whole(node, node.inputs[0])?;
        let kind = if self.only_quantized(out) {
            let out = self.fresh_quantized(node, out, x.width / 2)?;
            Kind::GatedQuantize { activation, x, out }
        } else {
            let out = self.fresh(node, out, x.width / 2)?;
            Kind::Gated { activation, x, out }
        };
        self.push(node, kind);
        Ok(())
    }

    /// Norms the heads in place where nobody else reads them, then gates them.
    pub(super) fn norm_gate(&mut self, node: &Node, eps: f32, activation: Activation) -> Result<()> {
        let &[x, gate, _] = &node.inputs[..] else {
            return self.fail(node, "expected rows, a gate and a weight");
        };
        let Some(activation) = kernel_names::activation(activation) else {
            return self.fail(node, "there is no kernel for this activation");
        };
        let Some(head_dim) = self.graph.ty(x).last_known() else {
            return self.fail(node, "the normalized axis must have a fixed size");
        };
        let weight = self.fixed(node, 2)?;
        let gate = self.view(node, gate)?;
        let x = self.overwritable(node, x)?;
        let kind = Kind::RmsNormHeads {
            x,
            head_dim,
            weight,
            eps,
        };
        self.push(node, kind);
        self.gated_rows(node, (activation, None), gate, x)
    }

    fn gated_rows(
        &mut self,
        node: &Node,
        (activation, above): (cactus_kernels::Activation, Option<f32>),
        gate: View,
        up: View,
    ) -> Result<()> {
        let unit = GatedRows {
            activation,
            above,
            n: up.width,
        };
        let Some(bytes) = unit.scratch_len(self.rows_here()).and_then(|n| n.checked_mul(4)) else {
            return self.fail(node, "a row is larger than the address space");
        };
        if gate.width != up.width {
            return self.fail(node, "expected gates as wide as what they are of");
        }
        let scratch = self.buffer(bytes);
        let out = self.fresh(node, node.outputs[0], up.width)?;
        let kind = Kind::GatedRows {
            unit,
            gate,
            up,
            scratch,
            out,
        };
        self.push(node, kind);
        Ok(())
    }
}
