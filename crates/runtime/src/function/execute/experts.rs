//! Experts chosen by a router, as a node.

use super::{Operands, Run, checked};
use crate::experts::{Choices, Layer, choose, scratch_len};
use crate::{Error, Result, kernel_names};
use cactus_ir::{Activation, Node, Op};
use cactus_kernels::{Activations, ExpertSizes};

impl Run<'_> {
    /// Rows, experts and the sizes of the kernel.
    fn expert_sizes(&self, node: &Node) -> Result<(usize, usize, ExpertSizes)> {
        let weights = node.op.expert_weights().unwrap_or([3, 4]).map(|i| node.inputs[i]);
        let [gate_up, down] = weights.map(|weight| self.shape(weight));
        let (n, m) = (gate_up[1], down[1]);
        // Choices or scores.
        let by = self.shape(node.inputs[1]);
        let chosen = match &node.op {
            Op::RoutedExperts { route, .. } => route.chosen,
            _ => by.last().copied().unwrap_or(0),
        };
        let rows: usize = by[..by.len() - 1].iter().product();
        let packing =
            |which: usize, rows: usize| Ok::<_, Error>(self.constants.part(weights[which], 0, rows)?.packing());
        let sizes = ExpertSizes {
            places: rows * chosen,
            packings: [packing(0, 2 * m)?, packing(1, n)?],
            n,
            m,
        };
        Ok((rows, down[0].checked_div(n).unwrap_or(0), sizes))
    }

    pub(super) fn experts_scratch_bytes(&self, node: &Node) -> usize {
        // What is wrong with the weights is said when they are used.
        let Ok((rows, experts, sizes)) = self.expert_sizes(node) else {
            return 0;
        };
        4 * (operand_len(&sizes, rows) + scratch_len(&sizes, rows, experts))
    }

    pub(super) fn experts(&self, node: &Node, f: Activation, out: &mut [f32], scratch: &mut [f32]) -> Result<()> {
        let (rows, experts, sizes) = self.expert_sizes(node)?;
        let ops = self.operands();
        let x = ops.f32(node.inputs[0])?;
        let (operand, scratch) = scratch.split_at_mut(operand_len(&sizes, rows));
        let choices = match &node.op {
            Op::RoutedExperts { route, .. } => {
                let vector = |at: Option<usize>| at.map(|i| ops.f32(node.inputs[i])).transpose();
                let scores = ops.f32(node.inputs[1])?;
                let of = [vector(route.bias_operand())?, vector(route.factor_operand())?];
                choose(&self.exec, route, experts, scores, of, &mut scratch[..scores.len()])?
            }
            _ => given(&ops, node, experts)?,
        };
        let Some(act) = kernel_names::activation(f) else {
            return Err(Error::Argument("there is no kernel for this activation".into()));
        };
        let biases = match node.op.expert_biases(node.inputs.len()) {
            Some(at) => {
                let [gate_up, down] = at.map(|i| ops.f32(node.inputs[i]));
                Some([gate_up?, down?])
            }
            None => None,
        };
        let ExpertSizes { packings, n, m, places } = sizes;
        let weights = node.op.expert_weights().unwrap_or([3, 4]).map(|i| node.inputs[i]);
        let layer = Layer {
            act,
            experts,
            chosen: places.checked_div(rows).unwrap_or(0),
            n,
            m,
            matrices: &|e| {
                Ok([
                    self.constants.part(weights[0], e, 2 * m)?,
                    self.constants.part(weights[1], e, n)?,
                ])
            },
            biases,
        };
        let x = self.exec.activations(packings[0], x, [rows, n], None, operand);
        layer.compute(&self.exec, &choices, &x, scratch, false, out)
    }
}

/// Choices that are values of the graph.
fn given(ops: &Operands<'_>, node: &Node, experts: usize) -> Result<Choices> {
    let ids = ops.i64(node.inputs[1])?;
    checked(ids, experts)?;
    Ok(Choices {
        ids: ids.iter().map(|&id| id as usize).collect(),
        shares: ops.f32(node.inputs[2])?.to_vec(),
    })
}

/// Elements of the rows as the first matrices' packing reads them.
fn operand_len(sizes: &ExpertSizes, rows: usize) -> usize {
    let bytes = Activations::bytes(sizes.packings[0], rows, sizes.n);
    // What follows begins where a vector may.
    bytes.unwrap_or(0).div_ceil(4).next_multiple_of(16)
}
