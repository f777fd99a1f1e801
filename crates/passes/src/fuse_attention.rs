//! Attention out of products, mask and softmax. The proof that a mask is causal is in `mask`, the way back through
//! permutations and repeated heads in `layout`; states come later, in `insert_states`.

use crate::layout::Heads;
use crate::mask::{Visible, conditions, conditions_of_bias, conditions_of_not, is_hiding, visible};
use crate::pattern::{
    Match, Miss, binary, describe, either, insert_before, maker, near, only_user, place, place_of, scalar,
    times_scalar, type_of, unary,
};
use crate::{Pass, Report, Result};
use cactus_ir::{AttentionAttrs, BinaryFn, Dim, Graph, Literal, Node, NodeId, Op, UnaryFn, ValueId};

/// Finds scaled dot-product attention: products of queries and keys, scale, optional softcap, mask (selected or added),
/// softmax, product with the values. Repeated heads and permutations on the way are absorbed. A mask that is proven to be
/// causal, a window, or both becomes an attribute; another one, such as that of padding, or numbers for distances become an
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
            match find(graph, id) {
                Ok(found) => {
                    let mut what = match (found.attrs.causal, found.attrs.window) {
                        (true, None) => "causal attention",
                        (true, Some(_)) => "causal attention with a window",
                        (false, None) => "attention",
                        (false, Some(_)) => "attention with a window",
                    }
                    .to_owned();
                    if let Some(bias) = &found.bias {
                        what += &format!(
                            " and a mask that is added, as it is not proven to be causal: {}",
                            bias.why
                        );
                    }
                    rewrite(graph, found)?;
                    report.fired(self.name(), &path, what);
                }
                Err(Miss::Near(why)) => report.missed(self.name(), &path, why),
                Err(Miss::Other) => {}
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
    bias: Option<Bias>,
}

/// What is added to the scores because nothing is proven of it.
#[derive(Clone)]
struct Bias {
    source: BiasSource,
    /// What could not be proven.
    why: String,
}

#[derive(Clone, Copy)]
enum BiasSource {
    /// These numbers.
    Numbers(ValueId),
    /// A very negative number where the condition does not hold (or where it does), else zero.
    Hidden {
        condition: ValueId,
        number: ValueId,
        where_true: bool,
    },
}

impl Bias {
    /// The value that has the shape of what is added.
    fn shaped(&self) -> ValueId {
        match self.source {
            BiasSource::Numbers(v) | BiasSource::Hidden { condition: v, .. } => v,
        }
    }
}

/// The scores before scale, cap and mask.
struct Scores {
    product: ValueId,
    scale: f64,
    softcap: Option<f32>,
    visible: Visible,
    bias: Option<Bias>,
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
    let Some(root) = only_user(g, shares) else {
        return near("the softmax is used elsewhere too");
    };
    let product = g.node(root);
    if product.op != Op::MatMul || product.inputs[0] != shares {
        return near(format!(
            "{} follows the softmax, not the product with the values",
            place(product)
        ));
    }
    let values = product.inputs[1];
    let scores = scores(g, node.inputs[0])?;
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
    if v.factor != 1.0 {
        // A factor on the values stays where it is: the product is linear, but attention has no place for it.
        return near("the values are scaled between their heads and the product");
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
    let attrs = AttentionAttrs {
        scale: (scores.scale * q.factor * k.factor) as f32,
        causal: scores.visible.causal,
        window: scores.visible.window,
        softcap: scores.softcap,
        state: None,
    };
    if !attrs.scale.is_finite() {
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
        bias: scores.bias,
    })
}

/// Follows scores back from softmax to the product of queries and keys.
fn scores(g: &Graph, mut v: ValueId) -> Match<Scores> {
    let mut seen = Visible::default();
    let mut bias: Option<Bias> = None;
    let hidden = |condition, number, where_true| BiasSource::Hidden {
        condition,
        number,
        where_true,
    };
    // Masks, the outermost first.
    loop {
        let (conditions, source, inner) = match maker(g, v) {
            Some(Node {
                op: Op::Where, inputs, ..
            }) if is_hiding(g, inputs[2]) => {
                let source = hidden(inputs[0], inputs[2], false);
                (conditions(g, inputs[0]), source, inputs[1])
            }
            Some(Node {
                op: Op::Where, inputs, ..
            }) if is_hiding(g, inputs[1]) => {
                let source = hidden(inputs[0], inputs[1], true);
                (conditions_of_not(g, inputs[0]), source, inputs[2])
            }
            Some(Node { op: Op::Where, .. }) => {
                return near(format!(
                    "{} does not hide scores with a very negative number",
                    describe(g, v)
                ));
            }
            Some(Node {
                op: Op::Binary { f: BinaryFn::Add },
                inputs,
                ..
            }) => {
                // The side that leads to the product is the scores.
                let (a, b) = (inputs[0], inputs[1]);
                let (inner, added) = if leads_to_product(g, a) { (a, b) } else { (b, a) };
                if !leads_to_product(g, inner) {
                    return near(format!(
                        "{} does not come from a product of queries and keys",
                        describe(g, v)
                    ));
                }
                (conditions_of_bias(g, added), BiasSource::Numbers(added), inner)
            }
            _ => break,
        };
        match conditions.and_then(|c| visible(&c)) {
            Ok(more) => seen = seen.and(more),
            Err(why) if bias.is_some() => return near(format!("a second mask is not proven to be causal: {why}")),
            Err(why) if !swallows(g, source) => {
                return near(format!(
                    "the mask is not proven to be causal ({why}), and the number that hides scores is too small to add"
                ));
            }
            Err(why) => bias = Some(Bias { source, why }),
        }
        v = inner;
    }
    let mut scale = 1.0;
    let mut softcap = None;
    let capped = either(g, v, BinaryFn::Mul, |t, c| {
        Some((unary(g, t, UnaryFn::Tanh)?, scalar(g, c)?))
    });
    if let Some((inner, cap)) = capped {
        // cap * tanh(x), where the cap's inverse is a factor of x.
        if !(cap > 0.0 && cap.is_finite()) {
            return near(format!("a cap of {cap} is not positive"));
        }
        softcap = Some(cap);
        scale = f64::from(cap);
        v = inner;
    }
    while let Some((inner, c)) = times_scalar(g, v).filter(|(x, _)| g.ty(*x) == g.ty(v)) {
        scale *= c;
        v = inner;
    }
    match maker(g, v) {
        Some(Node { op: Op::MatMul, .. }) if only_user(g, v).is_some() => Ok(Scores {
            product: v,
            scale,
            softcap,
            visible: seen,
            bias,
        }),
        Some(Node { op: Op::MatMul, .. }) => near("the scores are used elsewhere too"),
        _ => near(format!(
            "{} is not between scores and softmax in attention",
            describe(g, v)
        )),
    }
}

/// Whether `v` is a product under constant factors, a cap and masks.
fn leads_to_product(g: &Graph, mut v: ValueId) -> bool {
    for _ in 0..crate::affine::MAX_DEPTH {
        let Some(node) = maker(g, v) else { return false };
        v = match &node.op {
            Op::MatMul => return true,
            Op::Unary { f: UnaryFn::Tanh } => node.inputs[0],
            Op::Where if is_hiding(g, node.inputs[1]) => node.inputs[2],
            Op::Where => node.inputs[1],
            Op::Binary { .. } => match times_scalar(g, v) {
                Some((x, _)) => x,
                // A mask inside a mask: scores are the side that is as large as the sum.
                None => match binary(g, v, BinaryFn::Add) {
                    Some((a, b)) => {
                        if g.ty(a) == g.ty(v) {
                            a
                        } else {
                            b
                        }
                    }
                    None => return false,
                },
            },
            _ => return false,
        };
    }
    false
}

/// Whether a score plus the hiding number is that number in `f32`, so that adding hides as selecting does.
fn swallows(g: &Graph, source: BiasSource) -> bool {
    const ALL_SCORES_VANISH: f32 = -1e30;
    match source {
        BiasSource::Numbers(_) => true,
        BiasSource::Hidden { number, .. } => scalar(g, number).is_some_and(|c| c <= ALL_SCORES_VANISH),
    }
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
        bias,
    } = found;
    let op = Op::Attention(attrs);
    let mut inputs = vec![q.build(g, root)?, k.build(g, root)?, v.build(g, root)?];
    // The operation has one width: zeros behind queries and keys change no score, behind values they are cut off again.
    let width = |x: &Heads| x.size(g, 3).as_known().unwrap_or(0);
    let (keys, values) = (width(&k), width(&v));
    for (x, own) in inputs.iter_mut().zip([keys, keys, values]) {
        *x = widened(g, root, *x, keys.max(values) - own)?;
    }
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
