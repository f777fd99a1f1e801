//! Experts that a router chooses.

use super::Lowerer;
use crate::experts::scratch_len;
use crate::step::{Kind, RoutedExperts, Rows};
use crate::{Result, kernel_names};
use cactus_ir::{Activation, Node, Route, RouteFn};
use cactus_kernels::ExpertSizes;
use cactus_quant::{BLOCK_ROWS, Packing};

impl Lowerer<'_> {
    pub(super) fn routed_experts(&mut self, node: &Node, activation: Activation, route: &Route) -> Result<()> {
        let out = node.outputs[0];
        let (Some(activation), RouteFn::Softmax | RouteFn::Sigmoid) = (kernel_names::activation(activation), route.f)
        else {
            return self.fail(node, "there is no kernel for this activation or this router");
        };
        let &[x, scores, gate_up, down, ..] = &node.inputs[..] else {
            return self.fail(node, "expected at least four operands");
        };
        let width = self.width(node, self.graph.ty(out))?;
        let (Some(&[all, m]), Some(experts)) = (
            self.graph.ty(down).known_shape().as_deref(),
            self.graph.ty(scores).last_known(),
        ) else {
            return self.fail(node, "expected matrices whose sizes are known");
        };
        if self.graph.ty(out).last_known() != Some(width) || experts.checked_mul(width) != Some(all) {
            return self.fail(node, "expected experts of whole rows");
        }
        let weights = [self.weight(node, gate_up)?, self.weight(node, down)?];
        let packings = weights.map(|weight| self.bundle.weight_at(self.weights[weight]).packing);
        for (packing, rows) in packings.into_iter().zip([2 * m, width]) {
            if packing != Packing::RowMajor && !rows.is_multiple_of(BLOCK_ROWS) {
                return self.fail(node, format!("expected experts of whole blocks of {BLOCK_ROWS} rows"));
            }
        }
        let numbers = |l: &mut Self, at: Option<usize>| at.map(|i| l.fixed(node, i)).transpose();
        let (bias, factor) = (
            numbers(self, route.bias_operand())?,
            numbers(self, route.factor_operand())?,
        );
        let biases = match route.biases_operands() {
            Some([a, b]) => Some([self.fixed(node, a)?, self.fixed(node, b)?]),
            None => None,
        };
        let scores = self.whole(node, scores)?;
        let x = self.linear_operand(node, x, gate_up)?;
        if scores.width != experts || matches!(x, Rows::F32(x) if x.width != width) {
            return self.fail(node, "expected rows and scores that belong to the experts");
        }
        let rows = self.rows_here();
        let sizes = ExpertSizes {
            places: rows.saturating_mul(route.chosen),
            packings,
            n: width,
            m,
        };
        let Some(bytes) = scratch_len(&sizes, rows, experts).checked_mul(4) else {
            return self.fail(node, "the memory of the experts is larger than the address space");
        };
        let scratch = self.buffer(bytes);
        let residual = self.residual(out, &[x, Rows::F32(scores)]);
        let buffer = match &residual {
            Some(residual) => residual.view.buffer,
            None => self.fresh(node, out, width)?,
        };
        let kind = Kind::Experts(Box::new(RoutedExperts {
            x,
            scores,
            activation,
            route: route.clone(),
            bias,
            factor,
            weights,
            biases,
            experts,
            n: width,
            m,
            scratch,
            out: buffer,
            accumulate: residual.is_some(),
        }));
        if let Some(residual) = residual {
            self.merge(residual);
        }
        self.push(node, kind);
        Ok(())
    }
}
