//! Integer tensors as functions of their indices.
//!
//! Masks are made of positions: iotas, reshaped, broadcast, shifted and compared. [`affine`] follows such a value back
//! and gives it as `constant + sum of coefficient * index`, which is exact, so a mask can be proven to be what it looks
//! like.

use crate::pattern::{describe, maker};
use cactus_ir::{BinaryFn, CompareFn, Def, Dim, Graph, Literal, Node, Op, UnaryFn, ValueId};
use cactus_tensor::DType;

/// `constant + sum(coefficients[i] * index[i])`, an index for each axis of the value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Affine {
    pub(crate) coefficients: Vec<i64>,
    pub(crate) constant: Dim,
}

/// Why a value is not known; a clause that follows "because".
pub(crate) type Known<T> = std::result::Result<T, String>;

/// Longest chain of operations followed.
pub(crate) const MAX_DEPTH: usize = 48;

impl Affine {
    /// `self + sign * other`, aligned at the last axis.
    pub(crate) fn combined(&self, other: &Affine, sign: i64) -> Option<Affine> {
        let rank = self.coefficients.len().max(other.coefficients.len());
        let at = |a: &Affine, i: usize| {
            (i + a.coefficients.len())
                .checked_sub(rank)
                .map_or(0, |j| a.coefficients[j])
        };
        let coefficients: Option<Vec<i64>> = (0..rank)
            .map(|i| at(self, i).checked_add(at(other, i).checked_mul(sign)?))
            .collect();
        let constant = match sign {
            1 => self.constant.add(&other.constant),
            _ => self.constant.sub(&other.constant),
        };
        Some(Affine {
            coefficients: coefficients?,
            constant: constant.ok()?,
        })
    }

    /// `self + n`.
    pub(crate) fn plus(&self, n: i64) -> Option<Affine> {
        self.combined(
            &Affine {
                coefficients: Vec::new(),
                constant: integer(n)?,
            },
            1,
        )
    }

    pub(crate) fn negated(&self) -> Option<Affine> {
        Affine {
            coefficients: Vec::new(),
            constant: Dim::known(0),
        }
        .combined(self, -1)
    }

    /// `self * other`, where one of them is the same integer everywhere.
    fn times(&self, other: &Affine) -> Option<Affine> {
        let number = |x: &Affine| {
            x.constant
                .as_integer()
                .filter(|_| x.coefficients.iter().all(|&c| c == 0))
        };
        let (x, n) = match (number(self), number(other)) {
            (_, Some(n)) => (self, n),
            (Some(n), None) => (other, n),
            _ => return None,
        };
        let rank = self.coefficients.len().max(other.coefficients.len());
        let mut coefficients = vec![0; rank - x.coefficients.len()];
        for c in &x.coefficients {
            coefficients.push(c.checked_mul(n)?);
        }
        let constant = x.constant.times_integer(n).ok()?;
        Some(Affine { coefficients, constant })
    }

    /// The value under a node that moves axes.
    pub(crate) fn moved(&self, g: &Graph, node: &Node) -> Option<Affine> {
        let (old, new) = (&g.ty(node.inputs[0]).shape, &g.ty(node.outputs[0]).shape);
        let mut constant = self.constant.clone();
        let mut coefficients = vec![0; new.len()];
        match &node.op {
            Op::Permute { perm } => {
                for (i, &p) in perm.iter().enumerate() {
                    coefficients[i] = self.coefficients[p];
                }
            }
            Op::Expand { .. } => {
                let added = new.len() - old.len();
                for (i, d) in old.iter().enumerate() {
                    // An axis of size 1 has only index 0.
                    coefficients[added + i] = if d.is(1) { 0 } else { self.coefficients[i] };
                }
            }
            Op::Slice { axis, start, .. } => {
                coefficients.clone_from(&self.coefficients);
                match (self.coefficients[*axis], start.as_known()) {
                    (0, _) | (_, Some(0)) => {}
                    (1, _) => constant = constant.add(start).ok()?,
                    (-1, _) => constant = constant.sub(start).ok()?,
                    (c, Some(s)) => constant = constant.add(&integer(c.checked_mul(i64::try_from(s).ok()?)?)?).ok()?,
                    _ => return None,
                }
            }
            Op::Reshape { .. } => return self.between(old, new),
            _ => return None,
        }
        Some(Affine { coefficients, constant })
    }

    /// The value in the shape `new` instead of `old`, where only axes of size 1 come and go.
    pub(crate) fn between(&self, old: &[Dim], new: &[Dim]) -> Option<Affine> {
        let wide = |shape: &[Dim]| -> Vec<usize> { (0..shape.len()).filter(|&i| !shape[i].is(1)).collect() };
        let (from, to) = (wide(old), wide(new));
        let same = from.len() == to.len() && from.iter().zip(&to).all(|(&i, &j)| old[i] == new[j]);
        if !same {
            return None;
        }
        let mut coefficients = vec![0; new.len()];
        for (i, j) in from.into_iter().zip(to) {
            coefficients[j] = self.coefficients[i];
        }
        Some(Affine {
            coefficients,
            constant: self.constant.clone(),
        })
    }
}

/// Parts that continue each other along an axis: each goes on where the one before ends.
fn joined(g: &Graph, node: &Node, axis: usize, depth: usize) -> Option<Affine> {
    let parts: Option<Vec<Affine>> = node.inputs.iter().map(|&v| affine(g, v, depth).ok()).collect();
    let parts = parts?;
    // A part of one element says nothing about the step along the axis.
    let step = |i: usize| (!g.ty(node.inputs[i]).shape[axis].is(1)).then(|| parts[i].coefficients[axis]);
    let by = (0..parts.len()).find_map(step)?;
    let mut next = parts[0].constant.clone();
    for (i, part) in parts.iter().enumerate() {
        let same = |k: usize| k == axis || part.coefficients[k] == parts[0].coefficients[k];
        let fits = step(i).is_none_or(|s| s == by) && (0..part.coefficients.len()).all(same);
        if !fits || part.constant != next {
            return None;
        }
        next = next
            .add(&g.ty(node.inputs[i]).shape[axis].times_integer(by).ok()?)
            .ok()?;
    }
    let mut out = parts[0].clone();
    out.coefficients[axis] = by;
    Some(out)
}

/// Elements of an affine vector at affine indices.
fn taken(g: &Graph, node: &Node, axis: usize, depth: usize) -> Option<Affine> {
    let (x, ids) = (
        affine(g, node.inputs[0], depth).ok()?,
        affine(g, node.inputs[1], depth).ok()?,
    );
    let scaled = |c: i64| c.checked_mul(x.coefficients[axis]);
    let mut coefficients = x.coefficients[..axis].to_vec();
    for &c in &ids.coefficients {
        coefficients.push(scaled(c)?);
    }
    coefficients.extend(&x.coefficients[axis + 1..]);
    let shift = ids.constant.times_integer(x.coefficients[axis]).ok()?;
    Some(Affine {
        coefficients,
        constant: x.constant.add(&shift).ok()?,
    })
}

/// The truth value of `v`, where it is the same everywhere.
pub(crate) fn everywhere(g: &Graph, v: ValueId, depth: usize) -> Option<bool> {
    let depth = depth.checked_sub(1)?;
    let Some(node) = maker(g, v) else {
        return match &g.value(v).def {
            Def::Literal(Literal::Bool(b)) if b.windows(2).all(|w| w[0] == w[1]) => b.first().copied(),
            _ => None,
        };
    };
    match &node.op {
        Op::Compare { f } => {
            let side = |i: usize| affine(g, node.inputs[i], depth).ok();
            let difference = side(0)?.combined(&side(1)?, -1)?;
            let fixed = difference.coefficients.iter().all(|&c| c == 0);
            let n = difference.constant.as_integer().filter(|_| fixed)?;
            Some(match f {
                CompareFn::Eq => n == 0,
                CompareFn::Ne => n != 0,
                CompareFn::Lt => n < 0,
                CompareFn::Le => n <= 0,
                CompareFn::Gt => n > 0,
                CompareFn::Ge => n >= 0,
                _ => return None,
            })
        }
        Op::Unary { f: UnaryFn::Not } => everywhere(g, node.inputs[0], depth).map(|b| !b),
        // One number as a truth value.
        Op::Cast { dtype: DType::Bool } => {
            if g.ty(node.inputs[0]).dtype == DType::Bool {
                return everywhere(g, node.inputs[0], depth);
            }
            let x = affine(g, node.inputs[0], depth).ok()?;
            let fixed = x.coefficients.iter().all(|&c| c == 0);
            x.constant.as_integer().filter(|_| fixed).map(|n| n != 0)
        }
        Op::Binary {
            f: f @ (BinaryFn::And | BinaryFn::Or),
        } => {
            // The truth value that decides alone.
            let decides = *f == BinaryFn::Or;
            let side = |i: usize| everywhere(g, node.inputs[i], depth);
            match (side(0), side(1)) {
                (Some(a), _) | (_, Some(a)) if a == decides => Some(decides),
                (Some(_), b) => b,
                _ => None,
            }
        }
        Op::Reshape { .. } | Op::Permute { .. } | Op::Expand { .. } | Op::Slice { .. } | Op::Take { .. } => {
            everywhere(g, node.inputs[0], depth)
        }
        _ => None,
    }
}

/// The value with an axis for each of `rank`, aligned at the last one.
pub(crate) fn aligned(x: &Affine, rank: usize) -> Option<Affine> {
    let all = Affine {
        coefficients: vec![0; rank],
        constant: Dim::known(0),
    };
    all.combined(x, 1)
}

/// A dimension that may be negative.
fn integer(n: i64) -> Option<Dim> {
    let size = Dim::known(usize::try_from(n.unsigned_abs()).ok()?);
    if n < 0 {
        Dim::known(0).sub(&size).ok()
    } else {
        Some(size)
    }
}

/// `v` as a function of its indices. Floating-point values count too where they are whole numbers.
pub(crate) fn affine(g: &Graph, v: ValueId, depth: usize) -> Known<Affine> {
    let unknown = || format!("{} is not made of positions", describe(g, v));
    let Some(depth) = depth.checked_sub(1) else {
        return Err("the chain of operations is too long".into());
    };
    let Some(node) = maker(g, v) else {
        return constant(g, v).ok_or_else(unknown);
    };
    let of = |i: usize| affine(g, node.inputs[i], depth);
    match &node.op {
        Op::Iota { start, .. } => Ok(Affine {
            coefficients: vec![1],
            constant: start.clone(),
        }),
        // A truth value as a number, where it is the same everywhere.
        Op::Cast { .. } if g.ty(node.inputs[0]).dtype == DType::Bool => {
            let truth = everywhere(g, node.inputs[0], depth).ok_or_else(unknown)?;
            Ok(Affine {
                coefficients: vec![0; g.ty(v).shape.len()],
                constant: Dim::known(truth.into()),
            })
        }
        Op::Cast { dtype } if !matches!(dtype, DType::Bool) => of(0),
        // Sums of nothing.
        Op::CumSum { .. } => of(0).and_then(|x| {
            let zero = x.constant.is(0) && x.coefficients.iter().all(|&c| c == 0);
            if zero { Ok(x) } else { Err(unknown()) }
        }),
        Op::Where => match everywhere(g, node.inputs[0], depth) {
            Some(holds) => aligned(&of(if holds { 1 } else { 2 })?, g.ty(v).shape.len()).ok_or_else(unknown),
            None => Err(unknown()),
        },
        Op::Concat { axis } => joined(g, node, *axis, depth).ok_or_else(unknown),
        Op::Take { axis } => taken(g, node, *axis, depth).ok_or_else(unknown),
        Op::Unary { f: UnaryFn::Neg } => of(0)?.negated().ok_or_else(unknown),
        Op::Binary { f: BinaryFn::Add } => of(0)?.combined(&of(1)?, 1).ok_or_else(unknown),
        Op::Binary { f: BinaryFn::Sub } => of(0)?.combined(&of(1)?, -1).ok_or_else(unknown),
        Op::Binary { f: BinaryFn::Mul } => of(0)?.times(&of(1)?).ok_or_else(unknown),
        Op::Reshape { .. } | Op::Permute { .. } | Op::Expand { .. } | Op::Slice { .. } => {
            of(0)?.moved(g, node).ok_or_else(unknown)
        }
        _ => Err(unknown()),
    }
}

/// A literal whose elements are one whole number, or go in equal steps along the only axis that has several.
fn constant(g: &Graph, v: ValueId) -> Option<Affine> {
    let numbers: Vec<i64> = match &g.value(v).def {
        Def::Literal(Literal::I64(v)) => v.clone(),
        Def::Literal(Literal::F32(v)) => {
            // Up to 2^24 every whole number has its own f32.
            let whole = |&c: &f32| (c.fract() == 0.0 && c.abs() <= 16_777_216.0).then_some(c as i64);
            v.iter().map(whole).collect::<Option<_>>()?
        }
        _ => return None,
    };
    let shape = g.ty(v).known_shape()?;
    let first = *numbers.first()?;
    let mut coefficients = vec![0; shape.len()];
    if numbers.iter().any(|&n| n != first) {
        let mut wide = (0..shape.len()).filter(|&i| shape[i] != 1);
        let (axis, None) = (wide.next()?, wide.next()) else {
            return None;
        };
        let step = numbers[1].checked_sub(first)?;
        let even = numbers.windows(2).all(|w| w[1].checked_sub(w[0]) == Some(step));
        coefficients[axis] = even.then_some(step)?;
    }
    Some(Affine {
        coefficients,
        constant: integer(first)?,
    })
}
