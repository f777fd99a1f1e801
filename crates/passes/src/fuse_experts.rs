//! Experts chosen by a router, out of indexed weights and products of one row each. How the router chooses is left as it is
//! written: there are as many ways as models.

use crate::pattern::{
    Match, Miss, binary, either, free_name, insert_before, maker, near, number, only_user, place, rewrite_each, strip,
    users,
};
use crate::{Pass, Report, Result};
use cactus_ir::{
    Activation, BinaryFn, CompareFn, Def, Dim, Graph, Node, NodeId, Op, ReduceFn, TensorType, ValueId, WeightExpr,
};
use cactus_tensor::DType;

/// Finds `sum over j of shares[j] * down[ids[j]] · gated(gate_up[ids[j]] · x)`, where each position has its own choice of
/// experts. The indexed weights are never made: only the chosen experts are computed.
#[derive(Debug)]
pub(crate) struct FuseExperts;

impl Pass for FuseExperts {
    fn name(&self) -> &'static str {
        "fuse_experts"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        rewrite_each(graph, report, (self.name(), "experts"), find, rewrite)
    }
}

struct Found {
    activation: Activation,
    x: ValueId,
    ids: ValueId,
    shares: ValueId,
    gate_up: ValueId,
    down: ValueId,
    /// Of both, where there are such.
    biases: Option<[ValueId; 2]>,
    /// Width of a row, and within an expert.
    sizes: [usize; 2],
    experts: usize,
}

/// Experts around the sum `id` of what the chosen give.
fn find(g: &Graph, id: NodeId) -> Match<Found> {
    let node = g.node(id);
    let Op::Reduce {
        f: ReduceFn::Sum, axes, ..
    } = &node.op
    else {
        return Err(Miss::Other);
    };
    let parts = node.inputs[0];
    let shape = &g.ty(parts).shape;
    let rank = shape.len();
    // […, chosen, n], summed over the chosen.
    if rank < 2 || axes[..] != [rank - 2] {
        return Err(Miss::Other);
    }
    let (Some(chosen), Some(n)) = (shape[rank - 2].as_known(), shape[rank - 1].as_known()) else {
        return Err(Miss::Other);
    };
    let scaled = strip(g, parts);
    let sides = either(g, scaled, BinaryFn::Mul, |rows, shares| {
        let rows = biased_product(g, strip(g, rows))?;
        // One share for each row.
        g.ty(shares).last_known().filter(|&w| w == 1)?;
        Some((rows, strip(g, shares)))
    });
    let Some(((last, down_bias), shares)) = sides else {
        return Err(Miss::Other);
    };
    let gated = maker(g, last.operand).ok_or(Miss::Other)?;
    let (
        &Op::Gated {
            activation,
            above: None,
        },
        &[gate_up],
    ) = (&gated.op, &gated.inputs[..])
    else {
        return near(format!("{} stands between the products of the experts", place(gated)));
    };
    let Some((first, gate_up_bias)) = biased_product(g, strip(g, gate_up)) else {
        return near("what is gated is not a product of an expert's weight");
    };
    if strip(g, first.ids) != strip(g, last.ids) {
        return near("the two products choose different experts");
    }
    let [experts, wide, width] = first.weight_shape;
    let [down_experts, rows, m] = last.weight_shape;
    if down_experts != experts || rows != n || width != n || Some(wide) != m.checked_mul(2) {
        return near("the weights of the experts do not fit each other");
    }
    let biases = match (gate_up_bias, down_bias) {
        (Some(of_first), Some(of_last)) => Some([of_first, of_last]),
        (None, None) => None,
        _ => return near("only one of the products of the experts has a bias"),
    };
    for weight in [first.weight, last.weight] {
        if users(g, weight).len() != 1 {
            return near("the experts' weights are used elsewhere too");
        }
    }
    // The operand of the first product is the row, once for each choice.
    let expanded = maker(g, first.operand).ok_or(Miss::Other)?;
    let Op::Expand { shape: wide } = &expanded.op else {
        return near(format!("{} is not one row for each of its experts", place(expanded)));
    };
    let from = &g.ty(expanded.inputs[0]).shape;
    let repeated = wide.len() == from.len()
        && wide.len() >= 2
        && wide[wide.len() - 2].is(chosen)
        && from[from.len() - 2].is(1)
        && wide[wide.len() - 1].is(n)
        && wide[..wide.len() - 2] == from[..from.len() - 2];
    if !repeated {
        return near("rows are not repeated once for each chosen expert");
    }
    let x = strip(g, expanded.inputs[0]);
    let ids = strip(g, last.ids);
    let last_is = |v: ValueId, w: usize| g.ty(v).last_known() == Some(w);
    if !last_is(x, n) || !last_is(ids, chosen) || !last_is(shares, chosen) || g.ty(ids).shape != g.ty(shares).shape {
        return near("rows, chosen experts and their weights do not fit each other");
    }
    let leading = |v: ValueId| g.ty(v).shape[..g.ty(v).shape.len() - 1].to_vec();
    if leading(x) != leading(ids) {
        return near("rows and chosen experts belong to different positions");
    }
    Ok(Found {
        activation,
        x,
        ids,
        shares,
        gate_up: first.weight,
        down: last.weight,
        biases,
        sizes: [n, m],
        experts,
    })
}

/// `weight[ids] · operand`, a row for each index.
struct ExpertProduct {
    weight: ValueId,
    /// `[experts, n, k]`.
    weight_shape: [usize; 3],
    ids: ValueId,
    /// The rows, before they became columns.
    operand: ValueId,
}

/// The same, and the bias of each expert where one is added.
fn biased_product(g: &Graph, v: ValueId) -> Option<(ExpertProduct, Option<ValueId>)> {
    if let Some(product) = expert_product(g, v) {
        return Some((product, None));
    }
    either(g, v, BinaryFn::Add, |rows, taken| {
        let product = expert_product(g, strip(g, rows))?;
        let take = maker(g, taken)?;
        let (Op::Take { axis: 0 }, &[bias, ids]) = (&take.op, &take.inputs[..]) else {
            return None;
        };
        let [experts, n, _] = product.weight_shape;
        let fits = g.ty(bias).known_shape()? == [experts, n] && matches!(g.value(bias).def, Def::Weight(_));
        let same = strip(g, never_negative(g, strip(g, ids), experts)) == strip(g, product.ids);
        (fits && same).then_some((product, Some(bias)))
    })
}

fn expert_product(g: &Graph, v: ValueId) -> Option<ExpertProduct> {
    let node = maker(g, v)?;
    let (Op::MatMul, &[taken, column]) = (&node.op, &node.inputs[..]) else {
        return None;
    };
    // Columns of one element are the rows themselves.
    g.ty(column).last_known().filter(|&w| w == 1)?;
    let take = maker(g, taken)?;
    let (Op::Take { axis: 0 }, &[weight, ids]) = (&take.op, &take.inputs[..]) else {
        return None;
    };
    let shape = g.ty(weight).known_shape()?;
    let weight_shape = <[usize; 3]>::try_from(shape).ok()?;
    if !matches!(g.value(weight).def, Def::Weight(_)) || only_user(g, taken).is_none() {
        return None;
    }
    let ids = never_negative(g, strip(g, ids), weight_shape[0]);
    Some(ExpertProduct {
        weight,
        weight_shape,
        ids,
        operand: strip(g, column),
    })
}

/// The index behind `where(i < 0, i + n, i)`, where `i` comes from a sort and so counts from 0.
pub(crate) fn never_negative(g: &Graph, v: ValueId, n: usize) -> ValueId {
    let wrapped = || {
        let node = maker(g, v)?;
        let (Op::Where, &[cond, other, i]) = (&node.op, &node.inputs[..]) else {
            return None;
        };
        let cond = maker(g, cond)?;
        let asks = cond.op == Op::Compare { f: CompareFn::Lt }
            && cond.inputs[0] == i
            && number(g, cond.inputs[1]) == Some(0.0);
        let (base, shift) = binary(g, other, BinaryFn::Add)?;
        let wraps = base == i && number(g, shift) == Some(n as f64);
        (asks && wraps && counts_from_zero(g, i, 2)).then_some(i)
    };
    wrapped().map_or(v, |i| strip(g, i))
}

/// Whether `v` is an index that a sort or a search gave; `depth` is how many times indices may be joined.
fn counts_from_zero(g: &Graph, mut v: ValueId, depth: usize) -> bool {
    loop {
        match maker(g, v) {
            Some(Node {
                op: Op::ArgSort { .. } | Op::ArgReduce { .. },
                ..
            }) => return true,
            Some(Node {
                op: Op::Reshape { .. } | Op::Slice { .. } | Op::Permute { .. } | Op::Expand { .. },
                inputs,
                ..
            }) => v = inputs[0],
            Some(Node {
                op: Op::Concat { .. },
                inputs,
                ..
            }) => return depth > 0 && inputs.iter().all(|&x| counts_from_zero(g, x, depth - 1)),
            _ => return false,
        }
    }
}

fn rewrite(g: &mut Graph, id: NodeId, found: Found) -> Result<()> {
    let [n, m] = found.sizes;
    let gate_up = stacked(g, found.gate_up, [found.experts * 2 * m, n]);
    let down = stacked(g, found.down, [found.experts * n, m]);
    let op = Op::Experts {
        activation: found.activation,
    };
    let mut inputs = vec![found.x, found.ids, found.shares, gate_up, down];
    inputs.extend(found.biases.into_iter().flatten());
    let y = insert_before(g, id, op, &inputs)?;
    let shape = g.ty(g.node(id).outputs[0]).shape.clone();
    Ok(g.replace(id, Op::Reshape { shape }, &[y])?)
}

/// The weight `[experts, n, k]` with the matrices one below the other.
fn stacked(g: &mut Graph, v: ValueId, shape: [usize; 2]) -> ValueId {
    let value = g.value(v);
    let (name, expr) = match &value.def {
        Def::Weight(expr) => (value.name.clone(), expr.clone()),
        _ => return v,
    };
    let expr = WeightExpr::Reshape {
        x: Box::new(expr),
        shape: shape.to_vec(),
    };
    let name = free_name(g, &format!("{name}.stacked"));
    g.add_weight(name, TensorType::new(DType::F32, shape.map(Dim::known).to_vec()), expr)
}
