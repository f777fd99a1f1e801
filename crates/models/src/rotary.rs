//! Rotary position embedding in a graph, Su et al. 2021: tables of cosines and sines, and the heads that they turn.

use crate::rope::Rope;
use cactus_ir::{BinaryFn, Dim, GraphBuilder, Literal, Result, SEQ, UnaryFn, ValueId};
use cactus_tensor::DType;

/// Cosines and sines of one rotary embedding. It turns the first elements of each head, as many as it has frequencies for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotary {
    cos: ValueId,
    sin: ValueId,
    /// Elements of a head that are turned.
    width: usize,
    /// Whether neighbors are turned into each other, instead of elements half the width apart.
    neighbors: bool,
}

impl Rotary {
    /// Tables `[1, 1, s, width]`, which have each frequency twice.
    pub(crate) fn of_halves(b: &mut GraphBuilder, positions: ValueId, rope: &Rope) -> Result<Rotary> {
        let [cos, sin] = tables_of(b, rope, positions, &Dim::symbol(SEQ), 2)?;
        Ok(Rotary {
            cos,
            sin,
            width: 2 * rope.inv_freq.len(),
            neighbors: false,
        })
    }

    /// Tables `[1, 1, s, pairs]` of what turns neighbors.
    pub(crate) fn of_neighbors(b: &mut GraphBuilder, positions: ValueId, rope: &Rope) -> Result<Rotary> {
        let [cos, sin] = tables(b, rope, positions, &Dim::symbol(SEQ))?;
        Ok(Rotary {
            cos,
            sin,
            width: 2 * rope.inv_freq.len(),
            neighbors: true,
        })
    }

    /// Tables `[1, 1, count, width]`, which have each frequency twice, of positions `i64[count, axes]`; `inv_freq` has the frequencies of
    /// every pair for each axis, of which all but one usually are 0.
    pub(crate) fn on_axes(
        b: &mut GraphBuilder,
        positions: ValueId,
        inv_freq: &[Vec<f32>],
        scale: f32,
    ) -> Result<Rotary> {
        let (axes, pairs) = (inv_freq.len(), inv_freq.first().map_or(0, Vec::len));
        let count = b.shape(positions)[0].clone();
        let [cos, sin] = b.scope("rotary_emb", |b| {
            let inv_freq = b.literal(&[axes, pairs], Literal::F32(inv_freq.concat()))?;
            let p = b.cast(positions, DType::F32)?;
            let angles = b.matmul(p, inv_freq)?;
            of_angles(b, angles, scale, &count, [pairs, 2])
        })?;
        Ok(Rotary {
            cos,
            sin,
            width: 2 * pairs,
            neighbors: false,
        })
    }

    /// `x * cos + rotate_half(x) * sin` of the first elements of each head, `x` `[b, h, s, d]`.
    pub(crate) fn apply(self, b: &mut GraphBuilder, x: ValueId) -> Result<ValueId> {
        if self.neighbors {
            return turn(b, x, [self.cos, self.sin]);
        }
        let head_dim = b.shape(x)[3].as_known().unwrap_or(self.width);
        let part = match self.width < head_dim {
            true => b.slice_last(x, 0, self.width)?,
            false => x,
        };
        let half = self.width / 2;
        let straight = b.mul(part, self.cos)?;
        let first = b.slice_last(part, 0, half)?;
        let second = b.slice_last(part, half, self.width)?;
        let second = b.unary(UnaryFn::Neg, second)?;
        let rotated = b.concat_last(&[second, first])?;
        let crossed = b.mul(rotated, self.sin)?;
        let turned = b.add(straight, crossed)?;
        if self.width >= head_dim {
            return Ok(turned);
        }
        let rest = b.slice_last(x, self.width, head_dim)?;
        b.concat_last(&[turned, rest])
    }
}

/// Frequencies of a head whose first half of pairs turns by one axis and whose other half by another, for [`Rotary::on_axes`].
pub(crate) fn of_two_axes(head_dim: usize, theta: f64) -> [Vec<f32>; 2] {
    let half = head_dim / 4;
    let of = |i: usize| theta.powf(-(i as f64) / half as f64) as f32;
    let (own, none): (Vec<f32>, _) = ((0..half).map(of).collect(), vec![0.0; half]);
    [[&own[..], &none].concat(), [&none[..], &own].concat()]
}

/// Cosines and sines of `count` positions, `[1, 1, count, pairs]`.
pub(crate) fn tables(b: &mut GraphBuilder, rope: &Rope, positions: ValueId, count: &Dim) -> Result<[ValueId; 2]> {
    tables_of(b, rope, positions, count, 1)
}

/// The same with all frequencies `times` times, one after the other.
fn tables_of(b: &mut GraphBuilder, rope: &Rope, positions: ValueId, count: &Dim, times: usize) -> Result<[ValueId; 2]> {
    b.scope("rotary_emb", |b| {
        let inv_freq = b.vector(rope.inv_freq.clone())?;
        let p = b.cast(positions, DType::F32)?;
        let p = b.reshape(p, [count.clone(), Dim::known(1)])?;
        let angles = b.mul(p, inv_freq)?;
        of_angles(b, angles, rope.scale, count, [rope.inv_freq.len(), times])
    })
}

/// Cosines and sines of the angles `[count, pairs]`, so many times one after the other, times `scale`.
fn of_angles(
    b: &mut GraphBuilder,
    angles: ValueId,
    scale: f32,
    count: &Dim,
    [pairs, times]: [usize; 2],
) -> Result<[ValueId; 2]> {
    let angles = match times {
        1 => angles,
        _ => b.concat_last(&vec![angles; times])?,
    };
    let mut table = |f| {
        let t = b.unary(f, angles)?;
        let t = if scale == 1.0 { t } else { b.scale(t, scale)? };
        b.reshape(
            t,
            [Dim::known(1), Dim::known(1), count.clone(), Dim::known(times * pairs)],
        )
    };
    Ok([table(UnaryFn::Cos)?, table(UnaryFn::Sin)?])
}

/// Turns neighbors of the first part of each head into each other, `x` `[1, heads, n, head_dim]`.
pub(crate) fn turn(b: &mut GraphBuilder, x: ValueId, [cos, sin]: [ValueId; 2]) -> Result<ValueId> {
    let shape = b.shape(x).to_vec();
    let pairs = b.shape(cos)[3].as_known().unwrap_or_default();
    let head_dim = shape[3].as_known().unwrap_or_default();
    let wide = |last: &[usize]| -> Vec<Dim> {
        let last = last.iter().map(|&n| Dim::known(n));
        shape[..3].iter().cloned().chain(last).collect()
    };
    let part = b.slice_last(x, 0, 2 * pairs)?;
    let neighbors = b.reshape(part, wide(&[pairs, 2]))?;
    let element = |b: &mut GraphBuilder, i: usize| {
        let one = b.slice_last(neighbors, i, i + 1)?;
        b.reshape(one, wide(&[pairs]))
    };
    let (first, second) = (element(b, 0)?, element(b, 1)?);
    let rotated = |b: &mut GraphBuilder, x: ValueId, y: ValueId, f: BinaryFn| {
        let straight = b.mul(x, cos)?;
        let crossed = b.mul(y, sin)?;
        let z = b.binary(f, straight, crossed)?;
        b.reshape(z, wide(&[pairs, 1]))
    };
    let y = [
        rotated(b, first, second, BinaryFn::Sub)?,
        rotated(b, second, first, BinaryFn::Add)?,
    ];
    let y = b.concat_last(&y)?;
    let y = b.reshape(y, wide(&[2 * pairs]))?;
    if 2 * pairs == head_dim {
        return Ok(y);
    }
    let rest = b.slice_last(x, 2 * pairs, head_dim)?;
    b.concat_last(&[y, rest])
}
