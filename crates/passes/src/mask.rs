//! What a mask lets through, proven.

use crate::affine::{Affine, Known, MAX_DEPTH, affine, aligned, everywhere};
use crate::pattern::{binary, describe, maker, scalar, strip};
use cactus_ir::{BinaryFn, CompareFn, Def, Dim, Graph, Literal, Node, Op, UnaryFn, ValueId};
use cactus_tensor::DType;

/// Scores below this become 0 in softmax whatever the others are: the smallest a model is known to use.
const HIDDEN_BELOW: f32 = -1e4;

/// Every condition must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Conditions(Vec<Condition>);

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    /// This value of the indices is not negative.
    NotNegative(Affine),
    /// Both values are in one of the chunks of so many.
    SameChunk([Affine; 2], usize),
    /// The vector has the same number at both places.
    SameNumber([Affine; 2], ValueId),
    /// The first is at most what the vector has at the second.
    UpTo([Affine; 2], ValueId),
}

impl Condition {
    /// The condition under a node that moves axes.
    fn moved(&self, g: &Graph, node: &Node) -> Option<Condition> {
        Some(match self {
            Condition::NotNegative(x) => Condition::NotNegative(x.moved(g, node)?),
            Condition::SameChunk([a, b], n) => Condition::SameChunk([a.moved(g, node)?, b.moved(g, node)?], *n),
            Condition::SameNumber([a, b], v) => Condition::SameNumber([a.moved(g, node)?, b.moved(g, node)?], *v),
            Condition::UpTo([a, b], v) => Condition::UpTo([a.moved(g, node)?, b.moved(g, node)?], *v),
        })
    }
}

impl Conditions {
    /// The conditions under a node that moves axes.
    fn moved(&self, g: &Graph, node: &Node) -> Option<Conditions> {
        self.0
            .iter()
            .map(|c| c.moved(g, node))
            .collect::<Option<_>>()
            .map(Conditions)
    }
}

/// What a query at index `i` sees of the keys `j`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Visible {
    /// Only `j <= i`.
    pub(crate) causal: bool,
    /// Only `j > i - window`.
    pub(crate) window: Option<usize>,
    /// Only `j < i + ahead`.
    pub(crate) ahead: Option<usize>,
    /// Only `j` in the same chunk of so many positions.
    pub(crate) chunk: Option<usize>,
    /// Only `j` where this vector has the number that it has at `i`.
    pub(crate) texts: Option<ValueId>,
    /// Only `j` up to what this vector has at `i`, which is `i` or later.
    pub(crate) until: Option<ValueId>,
}

impl Visible {
    /// What is seen under both.
    pub(crate) fn and(self, other: Visible) -> Visible {
        let least = |a: Option<usize>, b: Option<usize>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Visible {
            causal: self.causal || other.causal,
            window: least(self.window, other.window),
            ahead: least(self.ahead, other.ahead),
            chunk: self.chunk.or(other.chunk),
            texts: self.texts.or(other.texts),
            until: self.until.or(other.until),
        }
    }
}

/// The number that hides a score, where `v` is one.
pub(crate) fn is_hiding(g: &Graph, v: ValueId) -> bool {
    scalar(g, v).is_some_and(|c| c <= HIDDEN_BELOW)
}

/// Where the boolean `v` is true.
pub(crate) fn conditions(g: &Graph, v: ValueId) -> Known<Conditions> {
    follow(g, v, MAX_DEPTH)
}

/// Where the number `v`, added to scores, is 0; elsewhere it hides them.
pub(crate) fn conditions_of_bias(g: &Graph, v: ValueId) -> Known<Conditions> {
    follow_bias(g, v, MAX_DEPTH)
}

/// What the conditions mean for scores whose last two axes are query and key.
pub(crate) fn visible(conditions: &Conditions) -> Known<Visible> {
    conditions.0.iter().try_fold(Visible::default(), |seen, c| {
        let more = match c {
            Condition::NotNegative(c) => visible_under(c)?,
            Condition::SameChunk(values, n) => {
                if !are_positions(values) {
                    return Err(format!("chunks are not those of positions: {values:?}"));
                }
                let chunk = Some(*n);
                if seen.chunk.is_some() && seen.chunk != chunk {
                    return Err("chunks of two sizes".into());
                }
                Visible {
                    chunk,
                    ..Visible::default()
                }
            }
            Condition::SameNumber(values, v) => {
                if !are_positions(values) {
                    return Err(format!("numbers are not compared at positions: {values:?}"));
                }
                if seen.texts.is_some_and(|of| of != *v) {
                    return Err("texts of two kinds".into());
                }
                Visible {
                    texts: Some(*v),
                    ..Visible::default()
                }
            }
            Condition::UpTo([key, query], v) => {
                if !is_position(key, 1) || !is_position(query, 2) {
                    return Err(format!(
                        "keys up to a given position are not those of a query: {key:?}, {query:?}"
                    ));
                }
                if seen.until.is_some_and(|of| of != *v) {
                    return Err("last positions of two kinds".into());
                }
                Visible {
                    until: Some(*v),
                    ..Visible::default()
                }
            }
        };
        Ok(seen.and(more))
    })
}

/// Whether the values are the positions of query and key themselves.
fn are_positions([a, b]: &[Affine; 2]) -> bool {
    is_position(a, 1) && is_position(b, 2) || is_position(a, 2) && is_position(b, 1)
}

/// Whether `x` is the position along the axis that is so far from the end.
fn is_position(x: &Affine, from_end: usize) -> bool {
    let at = x.coefficients.len().checked_sub(from_end);
    let unit = |(i, &c): (usize, &i64)| c == i64::from(Some(i) == at);
    at.is_some() && x.constant.is(0) && x.coefficients.iter().enumerate().all(unit)
}

fn visible_under(c: &Affine) -> Known<Visible> {
    let unknown = || format!("a condition on positions is neither causal nor a window: {c:?} >= 0");
    let (Some(key), query) = (
        c.coefficients.last().copied().or(Some(0)),
        c.coefficients.len().checked_sub(2),
    ) else {
        return Err(unknown());
    };
    let (query, leading) = match query {
        Some(q) => (c.coefficients[q], &c.coefficients[..q]),
        None => (0, &[][..]),
    };
    if leading.iter().any(|&k| k != 0) {
        return Err("the mask differs between heads or sequences".into());
    }
    let is_not_negative = c.constant.as_known();
    match (query, key) {
        (0, 0) if is_not_negative.is_some() => Ok(Visible::default()),
        // i - j >= 0
        (1, -1) if c.constant.is(0) => Ok(Visible {
            causal: true,
            ..Visible::default()
        }),
        // i - j + n >= 0: keys before i + n + 1
        (1, -1) => match is_not_negative.and_then(|n| n.checked_add(1)) {
            Some(ahead) => Ok(Visible {
                ahead: Some(ahead),
                ..Visible::default()
            }),
            None => Err(unknown()),
        },
        // j - i + n >= 0: keys after i - n - 1
        (-1, 1) => match is_not_negative.and_then(|n| n.checked_add(1)) {
            Some(window) => Ok(Visible {
                window: Some(window),
                ..Visible::default()
            }),
            None => Err(unknown()),
        },
        _ => Err(unknown()),
    }
}

fn follow(g: &Graph, v: ValueId, depth: usize) -> Known<Conditions> {
    let unknown = || format!("{} is not a condition on positions", describe(g, v));
    let Some(depth) = depth.checked_sub(1) else {
        return Err("the chain of operations is too long".into());
    };
    let Some(node) = maker(g, v) else {
        return match &g.value(v).def {
            Def::Literal(Literal::Bool(b)) if b.iter().all(|&b| b) => Ok(Conditions::default()),
            Def::Literal(Literal::Bool(b)) => triangle(g, v, b).ok_or_else(unknown),
            _ => Err(unknown()),
        };
    };
    let of = |i: usize| follow(g, node.inputs[i], depth);
    if everywhere(g, v, depth) == Some(true) {
        return Ok(Conditions::default());
    }
    match &node.op {
        Op::Compare { f: CompareFn::Eq } if chunks_of(g, node, depth).is_some() => {
            Ok(Conditions(chunks_of(g, node, depth).into_iter().collect()))
        }
        Op::Compare { f: CompareFn::Eq } if numbers_of(g, node).is_some() => {
            Ok(Conditions(numbers_of(g, node).into_iter().collect()))
        }
        // A mask kept as one of two numbers, compared with one of them.
        Op::Compare {
            f: f @ (CompareFn::Eq | CompareFn::Ne),
        } => {
            let number = |v: ValueId| affine(g, v, depth).ok()?.constant.as_integer();
            let (choice, other) = match number(node.inputs[1]) {
                Some(n) => (node.inputs[0], n),
                None => (node.inputs[1], number(node.inputs[0]).ok_or_else(unknown)?),
            };
            let (conditions, holds, fails) = two_numbers(g, choice, depth).ok_or_else(unknown)?;
            let is = |n: f64| (n == other as f64) == (*f == CompareFn::Eq);
            match (is(holds), is(fails)) {
                (true, true) => Ok(Conditions::default()),
                (true, false) => Ok(conditions),
                (false, true) => conditions.negated(),
                (false, false) => Err(unknown()),
            }
        }
        Op::Compare {
            f: CompareFn::Le | CompareFn::Ge,
        } if up_to(g, node, depth).is_some() => Ok(Conditions(up_to(g, node, depth).into_iter().collect())),
        Op::Compare { f } => {
            let side = |i: usize| affine(g, node.inputs[i], depth);
            let (a, b) = (side(0)?, side(1)?);
            let above = |x: &Affine, y: &Affine, by: i64| x.combined(y, -1)?.plus(-by);
            let condition = match f {
                CompareFn::Le => above(&b, &a, 0),
                CompareFn::Lt => above(&b, &a, 1),
                CompareFn::Ge => above(&a, &b, 0),
                CompareFn::Gt => above(&a, &b, 1),
                _ => None,
            };
            Ok(Conditions(vec![Condition::NotNegative(condition.ok_or_else(unknown)?)]))
        }
        Op::Binary { f: BinaryFn::And } => {
            let (mut a, b) = (of(0)?, of(1)?);
            a.0.extend(b.0);
            Ok(a)
        }
        // Beside what holds nowhere, the other side.
        Op::Binary { f: BinaryFn::Or } => {
            let never = |i: usize| everywhere(g, node.inputs[i], depth) == Some(false);
            match (never(0), never(1)) {
                (true, _) => of(1),
                (_, true) => of(0),
                _ => Err(unknown()),
            }
        }
        Op::Unary { f: UnaryFn::Not } => of(0)?.negated(),
        // A mask kept as a number.
        Op::Cast { dtype: DType::Bool } => {
            let (conditions, holds, fails) = two_numbers(g, node.inputs[0], depth).ok_or_else(unknown)?;
            match (holds != 0.0, fails != 0.0) {
                (true, true) => Ok(Conditions::default()),
                (true, false) => Ok(conditions),
                (false, true) => conditions.negated(),
                (false, false) => Err(unknown()),
            }
        }
        Op::Reshape { .. } | Op::Permute { .. } | Op::Expand { .. } | Op::Slice { .. } => {
            of(0)?.moved(g, node).ok_or_else(unknown)
        }
        _ => Err(unknown()),
    }
}

/// Where a literal of rows and columns is true, if that is up to a diagonal.
fn triangle(g: &Graph, v: ValueId, b: &[bool]) -> Option<Conditions> {
    let shape = g.ty(v).known_shape()?;
    let [lead @ .., rows, columns] = &shape[..] else {
        return None;
    };
    if lead.iter().any(|&d| d != 1) || *rows < 2 || *columns < 2 {
        return None;
    }
    let diagonal = i64::try_from(b[..*columns].iter().take_while(|&&b| b).count()).ok()? - 1;
    let seen = |(k, &b): (usize, &bool)| b == ((k % columns) as i64 - (k / columns) as i64 <= diagonal);
    if !b.iter().enumerate().all(seen) {
        return None;
    }
    let mut coefficients = vec![0; shape.len()];
    coefficients[shape.len() - 2] = 1;
    coefficients[shape.len() - 1] = -1;
    Some(Conditions(vec![Condition::NotNegative(Affine {
        coefficients,
        constant: cactus_ir::Dim::integer(diagonal),
    })]))
}

/// The condition of `v[a] == v[b]`, for one vector of integers that stands on both sides with axes of size 1.
fn numbers_of(g: &Graph, node: &Node) -> Option<Condition> {
    let rank = g.ty(node.outputs[0]).shape.len();
    let ((a, v), (b, w)) = (vector(g, node.inputs[0], rank)?, vector(g, node.inputs[1], rank)?);
    (v == w).then_some(Condition::SameNumber([a, b], v))
}

/// The condition of `a <= v[b]`, for a vector of integers that is an input.
fn up_to(g: &Graph, node: &Node, depth: usize) -> Option<Condition> {
    let rank = g.ty(node.outputs[0]).shape.len();
    let (low, high) = match node.op {
        Op::Compare { f: CompareFn::Le } => (node.inputs[0], node.inputs[1]),
        _ => (node.inputs[1], node.inputs[0]),
    };
    let (at, v) = vector(g, high, rank)?;
    let given = matches!(g.value(v).def, Def::Input);
    let low = affine(g, low, depth).ok().filter(|_| given)?;
    Some(Condition::UpTo([aligned(&low, rank)?, at], v))
}

/// Where the integers of `x`, a vector of any length between axes of size 1, come from, for an index of `rank` axes, and that vector.
fn vector(g: &Graph, x: ValueId, rank: usize) -> Option<(Affine, ValueId)> {
    let v = strip(g, x);
    let ty = g.ty(v);
    if ty.dtype != DType::I64 || ty.shape.len() != 1 || ty.shape[0].as_known().is_some() {
        return None;
    }
    let identity = Affine {
        coefficients: vec![1],
        constant: Dim::known(0),
    };
    // From the vector to `x`, whatever reshapes are between.
    let at = identity.between(&ty.shape, &g.ty(x).shape)?;
    Some((aligned(&at, rank)?, v))
}

/// The condition of `floor(a / n) == floor(b / n)`.
fn chunks_of(g: &Graph, node: &Node, depth: usize) -> Option<Condition> {
    let rank = g.ty(node.outputs[0]).shape.len();
    let side = |v: ValueId| {
        let (x, n) = floor_quotient(g, v, depth)?;
        // With an axis for each of the result.
        Some((aligned(&x, rank)?, n))
    };
    let ((a, n), (b, m)) = (side(node.inputs[0])?, side(node.inputs[1])?);
    (n == m).then_some(Condition::SameChunk([a, b], n))
}

/// `(x, n)` where `v` is `floor(x / n)`.
fn floor_quotient(g: &Graph, v: ValueId, depth: usize) -> Option<(Affine, usize)> {
    let depth = depth.checked_sub(1)?;
    let node = maker(g, v)?;
    match &node.op {
        Op::Binary { f: BinaryFn::FloorDiv } => {
            let n = affine(g, node.inputs[1], depth).ok()?;
            let n = n
                .constant
                .as_known()
                .filter(|_| n.coefficients.iter().all(|&c| c == 0))?;
            let x = affine(g, node.inputs[0], depth).ok()?;
            (n > 0).then_some((x, n))
        }
        Op::Reshape { .. } | Op::Permute { .. } | Op::Expand { .. } | Op::Slice { .. } => {
            let (x, n) = floor_quotient(g, node.inputs[0], depth)?;
            Some((x.moved(g, node)?, n))
        }
        _ => None,
    }
}

impl Conditions {
    /// Where they do not hold.
    fn negated(&self) -> Known<Conditions> {
        match &self.0[..] {
            // Not x >= 0 is -x - 1 >= 0.
            [Condition::NotNegative(c)] => {
                let opposite = c.negated().and_then(|c| c.plus(-1));
                Ok(Conditions(vec![Condition::NotNegative(
                    opposite.ok_or("a condition overflows")?,
                )]))
            }
            _ => Err("the opposite of several conditions is not one set of conditions".into()),
        }
    }
}

/// Conditions, what `v` is where they hold, and what it is elsewhere: a choice of two numbers under operations that move
/// axes.
fn two_numbers(g: &Graph, v: ValueId, depth: usize) -> Option<(Conditions, f64, f64)> {
    let depth = depth.checked_sub(1)?;
    let node = maker(g, v)?;
    match (&node.op, &node.inputs[..]) {
        (Op::Where, &[cond, a, b]) => {
            let number = |v: ValueId| match scalar(g, v) {
                Some(c) => Some(f64::from(c)),
                None => Some(affine(g, v, depth).ok()?.constant.as_integer()? as f64),
            };
            Some((follow(g, cond, depth).ok()?, number(a)?, number(b)?))
        }
        (Op::Cast { .. }, &[x]) if g.ty(x).dtype == DType::Bool => Some((follow(g, x, depth).ok()?, 1.0, 0.0)),
        (Op::Cast { .. }, &[x]) => two_numbers(g, x, depth),
        (Op::Reshape { .. } | Op::Permute { .. } | Op::Expand { .. } | Op::Slice { .. }, &[x]) => {
            let (conditions, a, b) = two_numbers(g, x, depth)?;
            Some((conditions.moved(g, node)?, a, b))
        }
        _ => None,
    }
}

/// Where the boolean `v` is false.
pub(crate) fn conditions_of_not(g: &Graph, v: ValueId) -> Known<Conditions> {
    follow(g, v, MAX_DEPTH)?.negated()
}

fn follow_bias(g: &Graph, v: ValueId, depth: usize) -> Known<Conditions> {
    let unknown = || format!("{} is not a mask of zeros and very negative numbers", describe(g, v));
    let Some(depth) = depth.checked_sub(1) else {
        return Err("the chain of operations is too long".into());
    };
    let node = maker(g, v).ok_or_else(unknown)?;
    let is_zero = |v: ValueId| scalar(g, v) == Some(0.0);
    match (&node.op, &node.inputs[..]) {
        (Op::Where, &[cond, a, b]) if is_zero(a) && is_hiding(g, b) => follow(g, cond, depth),
        (Op::Where, &[cond, a, b]) if is_hiding(g, a) && is_zero(b) => follow(g, cond, depth)?.negated(),
        // hidden as a number times a hiding number
        (Op::Binary { f: BinaryFn::Mul }, &[a, b]) => {
            let hidden = if is_hiding(g, b) && scalar(g, b) != Some(f32::NEG_INFINITY) {
                a
            } else {
                return Err(unknown());
            };
            hidden_as_number(g, hidden, depth).ok_or_else(unknown)?
        }
        (Op::Binary { f: BinaryFn::Add }, &[a, b]) => {
            let (mut a, b) = (follow_bias(g, a, depth)?, follow_bias(g, b, depth)?);
            a.0.extend(b.0);
            Ok(a)
        }
        (Op::Reshape { .. } | Op::Permute { .. } | Op::Expand { .. } | Op::Slice { .. }, &[x]) => {
            follow_bias(g, x, depth)?.moved(g, node).ok_or_else(unknown)
        }
        (Op::Cast { .. }, &[x]) => follow_bias(g, x, depth),
        _ => Err(unknown()),
    }
}

/// Conditions for seeing, where `v` is 1 where a score is hidden and 0 elsewhere: such a choice, or `1 -` the opposite.
fn hidden_as_number(g: &Graph, v: ValueId, depth: usize) -> Option<Known<Conditions>> {
    if let Some((one, seen)) = binary(g, v, BinaryFn::Sub)
        && scalar(g, one) == Some(1.0)
    {
        return Some(Ok(seen_as_number(g, seen, depth)?));
    }
    match two_numbers(g, v, depth)? {
        (hidden, 1.0, 0.0) => Some(hidden.negated()),
        (seen, 0.0, 1.0) => Some(Ok(seen)),
        _ => None,
    }
}

/// Conditions for seeing, where `v` is 1 where a score is seen and 0 elsewhere.
fn seen_as_number(g: &Graph, v: ValueId, depth: usize) -> Option<Conditions> {
    match two_numbers(g, v, depth)? {
        (seen, 1.0, 0.0) => Some(seen),
        _ => None,
    }
}

/// Where the number `v` is 1; elsewhere it is 0.
pub(crate) fn conditions_of_factor(g: &Graph, v: ValueId) -> Option<Conditions> {
    seen_as_number(g, v, MAX_DEPTH)
}
