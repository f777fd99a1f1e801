//! Attention out of products, mask and softmax. The way from the softmax back to the product is in `scores`, the proof that
//! a mask is causal in `mask`, sinks and slopes in `of_heads`, the way back through permutations and repeated heads in
//! `layout`; states come later, in `insert_states`.

use crate::layout::Heads;
use crate::of_heads::{sinks_operand, with_sinks, without_maximum};
use crate::pattern::{Match, Miss, insert_before, is_output, maker, near, place, place_of, scalar, type_of, users};
use crate::scores::{Bias, BiasSource, scores};
use crate::{Pass, Report, Result};
use cactus_ir::{AttentionAttrs, BinaryFn, Dim, Graph, Literal, NodeId, Op, ValueId};

/// Finds scaled dot-product attention: products of queries and keys, scale, optional softcap, mask (selected or added),
/// softmax, product with the values. Repeated heads and permutations on the way are absorbed. A mask that is proven to be
/// causal, a window, chunks, or several of them become attributes; sinks, and a bias that is linear in the distance, become
/// operands with a number for each head; another one, such as that of padding, or numbers for distances become an
/// operand that is added to the scores, and such attention cannot have a state.
#[derive(Debug)]
pub(crate) struct FuseAttention;

impl FuseAttention {
    pub(crate) const NAME: &'static str = "fuse_attention";
}

impl Pass for FuseAttention {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()> {
        for id in graph.order().to_vec() {
            let path = place_of(graph, id);
            // Once for each product with the softmax.
            loop {
                let found = match find(graph, id) {
                    Ok(found) => found,
                    Err(miss) => {
                        if let Miss::Near(why) = miss {
                            report.missed(self.name(), &path, why);
                        }
                        break;
                    }
                };
                let mut what = if found.attrs.causal {
                    "causal attention"
                } else {
                    "attention"
                }
                .to_owned();
                let parts = [
                    (found.attrs.window.is_some(), " with a window"),
                    (found.attrs.ahead.is_some(), " with few later positions"),
                    (found.attrs.chunk.is_some(), " in chunks"),
                    (found.attrs.sinks, " with sinks"),
                    (found.attrs.slopes, " with slopes"),
                    (found.attrs.texts, " within texts"),
                    (found.attrs.until, " up to given positions"),
                ];
                parts.iter().filter(|(is, _)| *is).for_each(|(_, part)| what += part);
                if let Some(bias) = &found.bias {
                    what += &format!(
                        " and a mask that is added, as it is not proven to be causal: {}",
                        bias.why
                    );
                }
                rewrite(graph, found)?;
                report.fired(self.name(), &path, what);
            }
        }
        graph.remove_dead();
        Ok(())
    }
}

struct Found {
    root: NodeId,
    q: Heads,
    k: Heads,
    v: Heads,
    attrs: AttentionAttrs,
    /// In any shape.
    sinks: Option<ValueId>,
    slopes: Option<Vec<f32>>,
    texts: Option<ValueId>,
    until: Option<ValueId>,
    bias: Option<Bias>,
}

/// What reads the shares: one node, or the first of several products of them with values, as differential attention has
/// them (Ye et al. 2024).
fn reader(g: &Graph, shares: ValueId) -> Match<NodeId> {
    let all = users(g, shares);
    let is_product = |id: &NodeId| {
        let node = g.node(*id);
        node.op == Op::MatMul && node.inputs[0] == shares && node.inputs[1] != shares
    };
    match all[..] {
        [] => Err(Miss::Other),
        _ if is_output(g, shares) => near("the softmax is used elsewhere too"),
        [one] => Ok(one),
        [first, ..] if all.iter().all(is_product) => Ok(first),
        _ => near("the softmax is used elsewhere too"),
    }
}

/// Attention around the softmax `id`.
fn find(g: &Graph, id: NodeId) -> Match<Found> {
    let node = g.node(id);
    let Op::Softmax { axis } = node.op else {
        return Err(Miss::Other);
    };
    let shares = node.outputs[0];
    let ty = g.ty(shares);
    if ty.shape.len() != 4 || axis != 3 {
        return near(format!(
            "softmax of {ty} is not over the keys of [batch, heads, queries, keys]"
        ));
    }
    let mut root = reader(g, shares)?;
    let mut inner = node.inputs[0];
    inner = without_maximum(g, inner).unwrap_or(inner);
    let mut shares = shares;
    let mut sinks = None;
    if let Some((scores, of_heads)) = with_sinks(g, inner) {
        // The shares of the sinks are cut off.
        let cut = g.node(root);
        let keys = Op::Slice {
            axis: 3,
            start: Dim::known(0),
            end: g.ty(scores).shape[3].clone(),
        };
        if cut.op != keys {
            return near(format!(
                "{} follows the softmax with sinks, which does not cut them off",
                place(cut)
            ));
        }
        shares = cut.outputs[0];
        root = reader(g, shares)?;
        inner = without_maximum(g, scores).unwrap_or(scores);
        sinks = Some(of_heads);
    }
    let product = g.node(root);
    if product.op != Op::MatMul || product.inputs[0] != shares {
        return near(format!(
            "{} follows the softmax, not the product with the values",
            place(product)
        ));
    }
    let values = product.inputs[1];
    let scores = scores(g, inner)?;
    let product = maker(g, scores.product).ok_or(Miss::Other)?;
    if g.ty(product.inputs[0]).shape.len() != 4 || g.ty(product.inputs[1]).shape.len() != 4 {
        return near("queries or keys do not have 4 axes");
    }
    if g.ty(values).shape.len() != 4 {
        return near("the values do not have 4 axes");
    }
    // q [batch, heads, seq, d], k transposed [batch, heads, d, keys], v [batch, heads, keys, d]
    let q = Heads::of(g, product.inputs[0], [0, 2, 1, 3]);
    let k = Heads::of(g, product.inputs[1], [0, 3, 1, 2]);
    let v = Heads::of(g, values, [0, 2, 1, 3]);
    if q.repeats != 1 {
        return near("query heads are repeated");
    }
    let (heads, kv_heads) = (q.size(g, 2).as_known(), k.size(g, 2).as_known());
    if kv_heads != v.size(g, 2).as_known() || k.repeats != v.repeats {
        return near("keys and values have different numbers of heads");
    }
    let grouped = match (heads, kv_heads) {
        // One head is broadcast by the product itself.
        (Some(h), Some(kv)) => kv.checked_mul(k.repeats) == Some(h) || (kv == 1 && k.repeats == 1),
        _ => false,
    };
    if !grouped {
        return near("the number of query heads is not fixed, or differs from that of the keys");
    }
    // What is given is never before the query's own position, which says more where the mask has both.
    let until = scores.visible.until.filter(|_| !scores.visible.causal);
    let causal = scores.visible.causal || until.is_some();
    let attrs = AttentionAttrs {
        scale: (scores.scale * q.factor * k.factor) as f32,
        causal,
        window: scores.visible.window,
        ahead: scores.visible.ahead.filter(|_| !causal),
        chunk: scores.visible.chunk,
        softcap: scores.softcap,
        sinks: sinks.is_some(),
        slopes: scores.slopes.is_some(),
        texts: scores.visible.texts.is_some(),
        until: until.is_some(),
        integers: false,
        state: None,
        appended: false,
    };
    if attrs.until && (attrs.texts || attrs.chunk.is_some() || scores.visible.ahead.is_some() || scores.bias.is_some())
    {
        return near(
            "texts, chunks, few later positions or a mask that is not proven stand beside given last positions",
        );
    }
    if attrs.until && q.size(g, 1) != k.size(g, 1) {
        return near("given last positions of queries that are not the keys");
    }
    if attrs.texts && (attrs.chunk.is_some() || scores.bias.is_some()) {
        return near("chunks, or a mask that is not proven, stand beside texts");
    }
    if attrs.texts && (q.size(g, 1) != k.size(g, 1) || !q.size(g, 0).is(1)) {
        return near("texts with queries that are not the keys, or in a batch");
    }
    if attrs.chunk.is_some() && !attrs.causal {
        return near("the mask shows later positions of a chunk");
    }
    if attrs.sinks && attrs.slopes {
        // What all keys of a row have alike is no longer nothing beside a sink.
        return near("a bias for each distance stands beside sinks");
    }
    if !attrs.scale.is_finite() || !(v.factor as f32).is_finite() {
        return near("the scale is not finite");
    }
    // Sizes that the operation wants equal, in order: batch, keys against values, and the result against the product.
    let same = |a: &Heads, b: &Heads, i: usize| a.size(g, i) == b.size(g, i);
    if !same(&q, &k, 0) || !same(&k, &v, 0) || !same(&k, &v, 1) || !same(&q, &k, 3) {
        return near("queries, keys and values differ in batch, length or width");
    }
    if !same(&k, &v, 3) && (k.size(g, 3).as_known().is_none() || v.size(g, 3).as_known().is_none()) {
        return near("keys and values differ in width, which varies");
    }
    if type_of(g, &g.node(root).op, &g.node(root).inputs).is_none_or(|t| t.shape[1] != *q.size(g, 2)) {
        return near("the product has another number of heads than the queries");
    }
    if let Some(bias) = &scores.bias {
        let shape = &g.ty(bias.shaped()).shape;
        let axes = [q.size(g, 0), q.size(g, 2), q.size(g, 1), k.size(g, 1)];
        let missing = axes.len().saturating_sub(shape.len());
        let mut sizes = shape.iter().zip(axes.iter().skip(missing)).enumerate();
        let fits = sizes.all(|(i, (size, full))| size == *full || i + missing < 3 && size.is(1));
        if shape.is_empty() || shape.len() > 4 || !fits {
            return near(format!(
                "the mask is not proven to be causal ({}), and cannot be added, as it does not have the shape of the scores: {}",
                bias.why,
                g.ty(bias.shaped())
            ));
        }
    }
    Ok(Found {
        root,
        q,
        k,
        v,
        attrs,
        sinks,
        slopes: scores.slopes,
        texts: scores.visible.texts,
        until,
        bias: scores.bias,
    })
}

/// The bias as an operand of rank 4.
fn build_bias(g: &mut Graph, root: NodeId, bias: &Bias) -> Result<ValueId> {
    let v = match bias.source {
        BiasSource::Numbers(v) => v,
        BiasSource::Hidden {
            condition,
            number,
            where_true,
        } => {
            let hidden = scalar(g, number).unwrap_or(f32::NEG_INFINITY);
            let (hidden, zero) = (
                g.add_literal(&[], Literal::F32(vec![hidden]))?,
                g.add_literal(&[], Literal::F32(vec![0.0]))?,
            );
            let inputs = if where_true {
                [condition, hidden, zero]
            } else {
                [condition, zero, hidden]
            };
            insert_before(g, root, Op::Where, &inputs)?
        }
    };
    let own = g.ty(v).shape.clone();
    if own.len() == 4 {
        return Ok(v);
    }
    let mut shape = vec![Dim::known(1); 4 - own.len()];
    shape.extend(own);
    insert_before(g, root, Op::Reshape { shape }, &[v])
}

fn rewrite(g: &mut Graph, found: Found) -> Result<()> {
    let Found {
        root,
        q,
        k,
        v,
        attrs,
        sinks,
        slopes,
        texts,
        until,
        bias,
    } = found;
    let heads = q.size(g, 2).as_known().unwrap_or(0);
    let op = Op::Attention(attrs);
    let mut inputs = vec![q.build(g, root)?, k.build(g, root)?, v.build(g, root)?];
    if v.factor != 1.0 {
        // Before heads are repeated, which is less work.
        let factor = g.add_literal(&[], Literal::F32(vec![v.factor as f32]))?;
        inputs[2] = insert_before(g, root, Op::Binary { f: BinaryFn::Mul }, &[inputs[2], factor])?;
    }
    // The operation has one width: zeros behind queries and keys change no score, behind values they are cut off again.
    let width = |x: &Heads| x.size(g, 3).as_known().unwrap_or(0);
    let (keys, values) = (width(&k), width(&v));
    for (x, own) in inputs.iter_mut().zip([keys, keys, values]) {
        *x = widened(g, root, *x, keys.max(values) - own)?;
    }
    if let Some(sinks) = sinks {
        inputs.push(sinks_operand(g, root, sinks, heads)?);
    }
    if let Some(slopes) = slopes {
        inputs.push(g.add_literal(&[slopes.len()], Literal::F32(slopes))?);
    }
    inputs.extend(texts);
    inputs.extend(until);
    if let Some(bias) = bias {
        inputs.push(build_bias(g, root, &bias)?);
    }
    let mut y = insert_before(g, root, op, &inputs)?;
    if values < keys {
        let (start, end) = (Dim::known(0), Dim::known(values));
        y = insert_before(g, root, Op::Slice { axis: 3, start, end }, &[y])?;
    }
    Ok(g.replace(root, Op::Permute { perm: vec![0, 2, 1, 3] }, &[y])?)
}

/// `x` with `more` zeros at the end of its last axis.
fn widened(g: &mut Graph, before: NodeId, x: ValueId, more: usize) -> Result<ValueId> {
    if more == 0 {
        return Ok(x);
    }
    let mut shape = g.ty(x).shape.clone();
    let axis = shape.len() - 1;
    shape[axis] = Dim::known(more);
    let zero = g.add_literal(&[], Literal::F32(vec![0.0]))?;
    let zeros = insert_before(g, before, Op::Expand { shape }, &[zero])?;
    insert_before(g, before, Op::Concat { axis }, &[x, zeros])
}
