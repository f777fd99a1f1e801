//! Causal depthwise convolutions in the layout of the rest of the model. The permutations this leaves are for
//! `canonicalize` and `sink_permutes`.

use crate::pattern::{Match, Miss, free_name, insert_before, near, only_user, place_of};
use crate::{Pass, Report, Result};
use cactus_ir::{Def, Dim, Graph, NodeId, Op, TensorType, ValueId, WeightExpr};
use cactus_tensor::DType;

/// Finds the causal depthwise convolution of `[batch, channels, seq]`: padded on the left, or on both sides and cut to
/// the first positions. It works on `[batch, seq, channels]` between two permutations afterwards.
#[derive(Debug)]
pub(crate) struct FuseShortConv;

impl Pass for FuseShortConv {
    fn name(&self) -> &'static str {
        "fuse_short_conv"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        for id in graph.order().to_vec() {
            let path = place_of(graph, id);
            match find(graph, id) {
                Ok(root) => {
                    rewrite(graph, id, root)?;
                    report.fired(self.name(), &path, "short_conv");
                }
                Err(Miss::Near(why)) => report.missed(self.name(), &path, why),
                Err(Miss::Other) => {}
            }
        }
        graph.remove_dead();
        Ok(())
    }
}

/// The last node of the pattern around the convolution `id`.
fn find(g: &Graph, id: NodeId) -> Match<NodeId> {
    let node = g.node(id);
    let Op::Conv1d {
        groups,
        pad_left,
        pad_right,
    } = node.op
    else {
        return Err(Miss::Other);
    };
    let (x, w) = (g.ty(node.inputs[0]), g.ty(node.inputs[1]));
    let Some(&[channels, 1, kernel]) = w.known_shape().as_deref() else {
        return near(format!("the weight {w} is not depthwise"));
    };
    if groups != channels || !x.shape[1].is(channels) {
        return near(format!("{groups} groups of {x} are not depthwise"));
    }
    if pad_left + 1 != kernel {
        return near(format!("{pad_left} zeros before {kernel} taps are not causal"));
    }
    if pad_right == 0 {
        return Ok(id);
    }
    let cut = only_user(g, node.outputs[0]).filter(|&user| match &g.node(user).op {
        Op::Slice { axis: 2, start, end } => start.is(0) && *end == x.shape[2],
        _ => false,
    });
    match cut {
        Some(root) => Ok(root),
        None => near("what is padded on the right is not removed again"),
    }
}

fn rewrite(g: &mut Graph, id: NodeId, root: NodeId) -> Result<()> {
    let node = g.node(id);
    let (x, w, bias) = (node.inputs[0], node.inputs[1], node.inputs.get(2).copied());
    let taps = taps(g, id, w)?;
    let swap = Op::Permute { perm: vec![0, 2, 1] };
    let x = insert_before(g, root, swap.clone(), &[x])?;
    let inputs: Vec<ValueId> = [x, taps].into_iter().chain(bias).collect();
    let conv = Op::ShortConv {
        activation: None,
        state: None,
    };
    let y = insert_before(g, root, conv, &inputs)?;
    Ok(g.replace(root, swap, &[y])?)
}

/// The weight `[channels, 1, kernel]` as `[channels, kernel]`.
fn taps(g: &mut Graph, conv: NodeId, w: ValueId) -> Result<ValueId> {
    let shape: Vec<Dim> = g
        .ty(w)
        .shape
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != 1)
        .map(|(_, d)| d.clone())
        .collect();
    let sizes: Option<Vec<usize>> = shape.iter().map(Dim::as_known).collect();
    let (Def::Weight(expr), Some(sizes)) = (&g.value(w).def, sizes) else {
        return insert_before(g, conv, Op::Reshape { shape }, &[w]);
    };
    let expr = WeightExpr::Reshape {
        x: Box::new(expr.clone()),
        shape: sizes,
    };
    let name = g.value(w).name.clone();
    // Where nobody else reads the weight, the new one takes its name.
    let name = if only_user(g, w).is_some() {
        name
    } else {
        free_name(g, &format!("{name}.taps"))
    };
    Ok(g.add_weight(name, TensorType::new(DType::F32, shape), expr))
}
