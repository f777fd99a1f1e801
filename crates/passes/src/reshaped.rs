//! An operation on its operands under other shapes: what passes share that move reshapes below operations.

use crate::Result;
use crate::pattern::insert_before;
use cactus_ir::{Dim, Graph, NodeId, Op, TensorType, ValueId, infer};

/// An operand, and the shape to give it where that is not its own.
pub(crate) type Operand = (ValueId, Option<Vec<Dim>>);

/// What `op` gives of the operands; `None` where it cannot take them.
pub(crate) fn result(g: &Graph, op: &Op, operands: &[Operand]) -> Option<TensorType> {
    let types: Vec<_> = operands
        .iter()
        .map(|(v, shape)| {
            let mut ty = g.ty(*v).clone();
            if let Some(shape) = shape {
                ty.shape.clone_from(shape);
            }
            ty
        })
        .collect();
    infer(op, &types.iter().collect::<Vec<_>>()).ok()
}

/// The operands as inputs of an operation in the place of `id`, with reshapes before it where they are needed.
pub(crate) fn inputs(graph: &mut Graph, id: NodeId, operands: Vec<Operand>) -> Result<Vec<ValueId>> {
    let mut inputs = Vec::with_capacity(operands.len());
    for (v, shape) in operands {
        inputs.push(match shape {
            Some(shape) if shape != graph.ty(v).shape => insert_before(graph, id, Op::Reshape { shape }, &[v])?,
            _ => v,
        });
    }
    Ok(inputs)
}
