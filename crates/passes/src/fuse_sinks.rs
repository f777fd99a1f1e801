//! Sinks of attention that stand behind it. Where a kernel gives the logarithm of the sum of a row beside the result, a
//! model multiplies the result by what a sink would have left of it; that is attention with sinks.

use crate::layout::Heads;
use crate::of_heads::{logarithm_of_sum, sinks_operand};
use crate::pattern::{Match, Miss, binary, either, insert_before, maker, near, rewrite_each, strip, unary};
use crate::scores::scores;
use crate::{Pass, Report, Result};
use cactus_ir::{AttentionAttrs, BinaryFn, Graph, NodeId, Op, UnaryFn, ValueId};

/// Makes `attention * sigmoid(log(sum(exp(scores))) - sink)` attention with sinks, where the scores are those of the
/// attention: with `Z` the sum of a row, `Z / (Z + exp(sink))` is `sigmoid(log(Z) - sink)`.
#[derive(Debug)]
pub(crate) struct FuseSinks;

impl Pass for FuseSinks {
    fn name(&self) -> &'static str {
        "fuse_sinks"
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        rewrite_each(graph, report, (self.name(), "sinks"), find, rewrite)
    }
}

struct Found {
    attention: NodeId,
    /// In any shape.
    sinks: ValueId,
    heads: usize,
}

/// The order of axes between the result of attention and that of the product it is made of.
const HEADS_FIRST: [usize; 4] = [0, 2, 1, 3];

fn find(g: &Graph, id: NodeId) -> Match<Found> {
    let out = g.node(id).outputs[0];
    let sides = either(g, out, BinaryFn::Mul, |x, share| {
        let attention = permuted_attention(g, x)?;
        let left = unary(g, strip(g, share), UnaryFn::Sigmoid)?;
        Some((attention, share, left))
    });
    let (attention, share, left) = sides.ok_or(Miss::Other)?;
    let (sum, sinks) = binary(g, left, BinaryFn::Sub).ok_or(Miss::Other)?;
    let rows = logarithm_of_sum(g, strip(g, sum)).ok_or(Miss::Other)?;
    let node = g.node(attention);
    let Op::Attention(attrs) = &node.op else {
        return Err(Miss::Other);
    };
    if attrs.sinks
        || attrs.slopes
        || attrs.texts
        || attrs.until
        || attrs.state.is_some()
        || node.inputs.len() > attrs.bias_operand()
    {
        return near("attention with sinks, slopes or an added mask is multiplied by what a sink leaves");
    }
    let [q, k] = [node.inputs[0], node.inputs[1]];
    let (queries, keys) = (&g.ty(q).shape, &g.ty(k).shape);
    let Some(heads) = queries[2].as_known() else {
        return near("the number of heads is not fixed");
    };
    // A share for each row of each head.
    let each = [&queries[0], &queries[2], &queries[1]];
    let of_share = &g.ty(share).shape;
    let of_left = &g.ty(left).shape;
    let by_rows = |shape: &[cactus_ir::Dim]| shape.iter().take(3).eq(each) && shape[3..].iter().all(|d| d.is(1));
    if !by_rows(of_share) || of_share.len() != 4 || !by_rows(of_left) {
        return near("what a sink leaves is not a number for each row of each head");
    }
    if !of_heads(g, sinks, of_left.len(), heads) {
        return near("the sinks are not a number for each head");
    }
    let seen = scores(g, rows)?;
    if seen.slopes.is_some() || seen.bias.is_some() {
        return near("the scores of the sum are not those of the attention: something is added to them");
    }
    let product = maker(g, seen.product).ok_or(Miss::Other)?;
    let of_product = [
        Heads::of(g, product.inputs[0], HEADS_FIRST),
        Heads::of(g, product.inputs[1], [0, 3, 1, 2]),
    ];
    let of_attention = [q, k].map(|v| Heads::of(g, v, [0, 1, 2, 3]));
    let same = |a: &Heads, b: &Heads| a.base == b.base && a.perm == b.perm;
    let repeats = of_product[1].repeats / of_attention[1].repeats.max(1);
    let grouped = keys[2].as_known().and_then(|n| n.checked_mul(repeats)) == Some(heads);
    let scale = |product: f64, [q, k]: &[Heads; 2]| (product * q.factor * k.factor) as f32;
    let alike = (of_product.iter().zip(&of_attention)).all(|(a, b)| same(a, b))
        && of_product[0].repeats == 1
        && of_attention.iter().all(|x| x.repeats == 1)
        && grouped
        && scale(seen.scale, &of_product) == scale(f64::from(attrs.scale), &of_attention)
        && seen.softcap == attrs.softcap
        && (seen.visible.causal, seen.visible.window, seen.visible.chunk) == (attrs.causal, attrs.window, attrs.chunk)
        && seen.visible.ahead == attrs.ahead;
    if !alike {
        return near("the scores of the sum are not those of the attention");
    }
    Ok(Found {
        attention,
        sinks,
        heads,
    })
}

/// The attention of which `v` is the result, with heads before positions.
fn permuted_attention(g: &Graph, v: ValueId) -> Option<NodeId> {
    let node = maker(g, v)?;
    let Op::Permute { perm } = &node.op else { return None };
    let (id, inner) = g.producer(node.inputs[0])?;
    (perm[..] == HEADS_FIRST && matches!(inner.op, Op::Attention(_))).then_some(id)
}

/// Whether `v` has a number for each head where it meets a value of `rank` axes, heads being axis 1 of it.
fn of_heads(g: &Graph, v: ValueId, rank: usize, heads: usize) -> bool {
    let shape = &g.ty(v).shape;
    let Some(lead) = rank.checked_sub(shape.len()) else {
        return false;
    };
    let mut sizes = shape.iter().enumerate();
    lead <= 1 && sizes.all(|(i, d)| if i + lead == 1 { d.is(heads) } else { d.is(1) })
}

fn rewrite(g: &mut Graph, id: NodeId, found: Found) -> Result<()> {
    let node = g.node(found.attention);
    let Op::Attention(attrs) = node.op.clone() else {
        return Ok(());
    };
    let mut inputs = node.inputs.clone();
    inputs.push(sinks_operand(g, id, found.sinks, found.heads)?);
    let op = Op::Attention(AttentionAttrs { sinks: true, ..attrs });
    let y = insert_before(g, id, op, &inputs)?;
    let perm = HEADS_FIRST.to_vec();
    Ok(g.replace(id, Op::Permute { perm }, &[y])?)
}
