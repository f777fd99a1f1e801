//! Pictures: resizing as a product with a table of weights for each axis, normalizing, and cutting into patches.

use super::lower::Lower;
use super::{Error, Result};
use cactus_ir::{BinaryFn as Bin, CompareFn, ValueId};
use serde::{Deserialize, Serialize};

/// Most elements of an axis of a picture.
const MAX_SIDE: usize = 1 << 12;

/// How a picture becomes rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Patches {
    /// Height and width of the picture.
    pub(crate) source: [usize; 2],
    /// Height and width that it gets.
    pub(crate) target: [usize; 2],
    /// Side of a patch.
    pub(crate) patch: usize,
    /// Channels, up to 4.
    pub(crate) channels: usize,
    /// Factor on the elements.
    #[serde(with = "super::number")]
    pub(crate) rescale: f32,
    /// What is taken off each channel.
    pub(crate) mean: Vec<f32>,
    /// What it is divided by.
    pub(crate) deviation: Vec<f32>,
}

impl Patches {
    /// Whether the sizes make sense.
    pub(super) fn check(&self) -> Result<()> {
        let sides = self.source.iter().chain(&self.target);
        let sized = sides.clone().all(|&n| (1..=MAX_SIDE).contains(&n)) && (1..=4).contains(&self.channels);
        let cut = self.patch > 0 && self.target.iter().all(|n| n.is_multiple_of(self.patch.max(1)));
        let each = self.mean.len() == self.channels && self.deviation.len() == self.channels;
        match sized && cut && each {
            true => Ok(()),
            false => Err(Error::argument(format!(
                "a picture {:?} of {} channels does not become {:?} in patches of {}; expected sides from 1 to {MAX_SIDE}, up to 4 \
                 channels, and sides that are multiples of the patch",
                self.source, self.channels, self.target, self.patch
            ))),
        }
    }

    /// `unsigned` says that elements below 0 are bytes above 127.
    pub(super) fn lower(&self, l: &mut Lower, x: ValueId, unsigned: bool) -> Result<ValueId> {
        self.check()?;
        let ([h, w], c) = (self.source, self.channels);
        let mut x = l.reshape(x, &[h, w, c])?;
        if unsigned {
            let zero = l.b.scalar(0.0)?;
            let below = l.b.compare(CompareFn::Lt, x, zero)?;
            let bytes = l.with(Bin::Add, x, 256.0)?;
            x = l.b.select(below, bytes, x)?;
        }
        let [th, tw] = self.target;
        if self.target != self.source {
            let rows = l.table(&[th, h], &weights(h, th, false))?;
            let wide = l.reshape(x, &[h, w * c])?;
            let tall = l.b.matmul(rows, wide)?;
            let tall = l.reshape(tall, &[th, w, c])?;
            let columns = l.table(&[tw, w], &weights(w, tw, false))?;
            x = l.b.matmul(columns, tall)?;
        }
        let x = l.with(Bin::Mul, x, self.rescale)?;
        let (mean, deviation) = (l.b.vector(self.mean.clone())?, l.b.vector(self.deviation.clone())?);
        let x = l.bin(Bin::Sub, x, mean)?;
        let x = l.bin(Bin::Div, x, deviation)?;
        let p = self.patch;
        let cut = l.reshape(x, &[th / p, p, tw / p, p, c])?;
        let cut = l.b.permute(cut, &[0, 2, 1, 3, 4])?;
        l.reshape(cut, &[th / p * (tw / p), p * p * c])
    }
}

/// Weights of bilinear interpolation, `[to, from]`: between the two nearest elements, whose centers, or outermost elements,
/// lie where those of the result lie.
fn weights(from: usize, to: usize, corners: bool) -> Vec<f32> {
    let mut table = vec![0f32; from * to];
    for (i, row) in table.chunks_exact_mut(from).enumerate() {
        let at = match corners {
            true if to < 2 => 0.0,
            true => i as f64 * (from - 1) as f64 / (to - 1) as f64,
            false => (i as f64 + 0.5) * from as f64 / to as f64 - 0.5,
        };
        let at = at.clamp(0.0, (from - 1) as f64);
        let first = at.floor() as usize;
        let share = (at - first as f64) as f32;
        row[first] += 1.0 - share;
        row[(first + 1).min(from - 1)] += share;
    }
    table
}

/// A square of position embeddings `[n * n, width]` as `[height * width, …]`, its corners staying.
pub(super) fn positions(l: &mut Lower, x: ValueId, height: usize, width: usize) -> Result<ValueId> {
    let shape = l.shape(x)?;
    let &[count, embed] = shape.as_slice() else {
        return Err(Error::shape(format!("[n * n, width] is expected, found {shape:?}")));
    };
    let n = count.isqrt();
    let sized = [height, width].iter().all(|s| (1..=MAX_SIDE).contains(s));
    if n * n != count || n == 0 || n > MAX_SIDE || !sized {
        return Err(Error::shape(format!(
            "{count} positions are not a square that becomes {height} by {width}"
        )));
    }
    let rows = l.table(&[height, n], &weights(n, height, true))?;
    let wide = l.reshape(x, &[n, n * embed])?;
    let tall = l.b.matmul(rows, wide)?;
    let tall = l.reshape(tall, &[height, n, embed])?;
    let columns = l.table(&[width, n], &weights(n, width, true))?;
    let out = l.b.matmul(columns, tall)?;
    l.reshape(out, &[height * width, embed])
}
