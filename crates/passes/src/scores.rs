//! From the softmax of attention back to the product of queries and keys: masks, biases, cap and scale between them.

use crate::mask::{
    Visible, conditions, conditions_of_bias, conditions_of_factor, conditions_of_not, is_hiding, visible,
};
use crate::of_heads::Slopes;
use crate::pattern::{Match, binary, describe, either, maker, near, only_user, scalar, times_scalar, unary};
use cactus_ir::{BinaryFn, Graph, Node, Op, UnaryFn, ValueId};

/// What is added to the scores because nothing is proven of it.
#[derive(Clone)]
pub(crate) struct Bias {
    pub(crate) source: BiasSource,
    /// What could not be proven.
    pub(crate) why: String,
}

#[derive(Clone, Copy)]
pub(crate) enum BiasSource {
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
    pub(crate) fn shaped(&self) -> ValueId {
        match self.source {
            BiasSource::Numbers(v) | BiasSource::Hidden { condition: v, .. } => v,
        }
    }
}

/// The scores before scale, cap and mask.
pub(crate) struct Scores {
    pub(crate) product: ValueId,
    pub(crate) scale: f64,
    pub(crate) softcap: Option<f32>,
    pub(crate) visible: Visible,
    /// Of each head.
    pub(crate) slopes: Option<Vec<f32>>,
    pub(crate) bias: Option<Bias>,
}

/// A mask that is multiplied still hides: the smallest factor that is taken.
const LEAST_FACTOR: f64 = 0.05;

/// Follows scores back from softmax to the product of queries and keys.
pub(crate) fn scores(g: &Graph, mut v: ValueId) -> Match<Scores> {
    let mut seen = Visible::default();
    let mut bias: Option<Bias> = None;
    let mut slopes: Option<Vec<f32>> = None;
    // On everything from here on.
    let mut outer = 1.0;
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
            Some(_) => match passed(g, v, seen) {
                Some((inner, factor)) => {
                    outer *= factor;
                    v = inner;
                    continue;
                }
                None => break,
            },
            None => break,
        };
        match conditions.and_then(|c| visible(&c)) {
            Ok(more) if seen.chunk.is_some() && more.chunk.is_some() && seen.chunk != more.chunk => {
                return near("chunks of two sizes");
            }
            Ok(more) if seen.texts.is_some() && more.texts.is_some() && seen.texts != more.texts => {
                return near("texts of two kinds");
            }
            Ok(more) if seen.until.is_some() && more.until.is_some() && seen.until != more.until => {
                return near("last positions of two kinds");
            }
            Ok(more) => seen = seen.and(more),
            Err(_) if slopes.is_none() && slopes_of(g, v, source).is_some() => {
                let of_scores = slopes_of(g, v, source).unwrap_or_default();
                slopes = Some(of_scores.iter().map(|s| s * outer as f32).collect());
            }
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
    if bias.is_some() && outer != 1.0 {
        return near("a mask that is not proven to be causal is multiplied");
    }
    let mut scale = outer;
    let mut softcap = None;
    let capped = either(g, v, BinaryFn::Mul, |t, c| {
        Some((unary(g, t, UnaryFn::Tanh)?, scalar(g, c)?))
    });
    if let Some((inner, cap)) = capped {
        // cap * tanh(x), where the cap's inverse is a factor of x.
        if !(cap > 0.0 && cap.is_finite()) {
            return near(format!("a cap of {cap} is not positive"));
        }
        if outer != 1.0 {
            return near("scores are multiplied behind their cap");
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
            slopes,
            bias,
        }),
        Some(Node { op: Op::MatMul, .. }) => near("the scores are used elsewhere too"),
        _ => near(format!(
            "{} is not between scores and softmax in attention",
            describe(g, v)
        )),
    }
}

/// What `v` is made of by an operation that softmax does not see under masks, and the factor in it: a constant factor of
/// masked scores, a bound that only hidden scores reach, or zeros where masks have hidden already.
fn passed(g: &Graph, v: ValueId, seen: Visible) -> Option<(ValueId, f64)> {
    if let Some(x) = bounded(g, v) {
        return Some((x, 1.0));
    }
    if let Some(x) = zeroed(g, v, Some(seen)) {
        return Some((x, 1.0));
    }
    let (x, c) = times_scalar(g, v).filter(|(x, _)| g.ty(*x) == g.ty(v))?;
    let node = maker(g, x)?;
    let masked = matches!(node.op, Op::Where | Op::Binary { f: BinaryFn::Add });
    (masked && c >= LEAST_FACTOR && c.is_finite()).then_some((x, c))
}

/// `x` where `v` is the larger of `x` and a number that hides.
fn bounded(g: &Graph, v: ValueId) -> Option<ValueId> {
    either(g, v, BinaryFn::Max, |x, least| is_hiding(g, least).then_some(x))
}

/// `x` where `v` is `x`, and zero outside of a mask that is proven and, if `within` is known, hides no more than that.
fn zeroed(g: &Graph, v: ValueId, within: Option<Visible>) -> Option<ValueId> {
    either(g, v, BinaryFn::Mul, |x, factor| {
        let kept = visible(&conditions_of_factor(g, factor)?).ok()?;
        let hidden_already = within.is_none_or(|seen| seen.and(kept) == seen);
        (g.ty(x) == g.ty(v) && hidden_already).then_some(x)
    })
}

/// A slope for each head, where the numbers added to the scores `v` are linear in the distance.
fn slopes_of(g: &Graph, v: ValueId, source: BiasSource) -> Option<Vec<f32>> {
    let BiasSource::Numbers(added) = source else {
        return None;
    };
    Slopes::added(g, added, g.ty(v).shape.get(1)?.as_known()?)
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
            Op::Binary { .. } => match (times_scalar(g, v).map(|(x, _)| x))
                .or_else(|| bounded(g, v))
                .or_else(|| zeroed(g, v, None))
            {
                Some(x) => x,
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
