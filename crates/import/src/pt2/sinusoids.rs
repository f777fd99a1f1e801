//! Stored tables of sines and cosines of positions (GPT-J's `embed_positions`): the frequencies are found again from the
//! numbers, and every number is checked against them.

use super::importer::{Importer, invalid};
use crate::Result;
use cactus_ir::{Dim, UnaryFn, ValueId};
use cactus_tensor::{DType, Data, Tensor};
use std::f64::consts::TAU;

/// How far a number may be from the sine or cosine of its angle: what implementations differ by.
const TOLERANCE: f64 = 1e-6;

/// `[rows, 2 * frequencies]`: the sines of each position, then its cosines, or the other way around.
pub(super) struct Sinusoids {
    rows: usize,
    inv_freq: Vec<f32>,
    cosines_first: bool,
}

/// The table that `t` is, if it is one.
pub(super) fn of(t: &Tensor) -> Option<Sinusoids> {
    let (&[rows, width], Data::F32(v)) = (t.shape(), t.data()) else {
        return None;
    };
    let half = width / 2;
    if rows < 4 || half == 0 || width != 2 * half {
        return None;
    }
    let cosines_first = v[0] == 1.0;
    // The first position has angles of 0.
    let (ones, zeros) = if cosines_first { (0, half) } else { (half, 0) };
    if v[ones..ones + half].iter().any(|&x| x != 1.0) || v[zeros..zeros + half].iter().any(|&x| x != 0.0) {
        return None;
    }
    let inv_freq: Option<Vec<f32>> = (0..half)
        .map(|k| {
            let at = |row: usize| {
                let of = |column: usize| f64::from(v[row * width + column + k]);
                (of(zeros), of(ones))
            };
            frequency(rows, &at)
        })
        .collect();
    Some(Sinusoids {
        rows,
        inv_freq: inv_freq?,
        cosines_first,
    })
}

/// The frequency whose angles have the sines and cosines `at` each position.
fn frequency(rows: usize, at: &dyn Fn(usize) -> (f64, f64)) -> Option<f32> {
    let angle = |row: usize| {
        let (sin, cos) = at(row);
        sin.atan2(cos)
    };
    // Each doubling of the position halves what the rounding of its numbers leaves open.
    let mut estimate = angle(1);
    for row in (1..).map(|i| 1usize << i).take_while(|&row| row < rows) {
        let near = angle(row);
        let turns = ((row as f64 * estimate - near) / TAU).round();
        estimate = (near + turns * TAU) / row as f64;
    }
    let error = |f: f32| {
        (0..rows).fold(0f64, |most, row| {
            let (sin, cos) = f64::from(row as f32 * f).sin_cos();
            let (s, c) = at(row);
            most.max((sin - s).abs()).max((cos - c).abs())
        })
    };
    let nearest = estimate as f32;
    let candidates = [nearest, nearest.next_up(), nearest.next_down()].map(|f| (f, error(f)));
    let (f, off) = candidates.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    (off <= TOLERANCE && f.is_finite()).then_some(f)
}

impl Sinusoids {
    /// The operations that make the table.
    pub(super) fn build(&self, im: &mut Importer<'_>) -> Result<ValueId> {
        let positions = im.b.iota(0usize, self.rows).map_err(invalid)?;
        let positions = im.cast(positions, DType::F32)?;
        let positions = im.reshape(positions, vec![Dim::known(self.rows), Dim::known(1)])?;
        let inv_freq = im.b.vector(self.inv_freq.clone()).map_err(invalid)?;
        let angles = im.b.mul(positions, inv_freq).map_err(invalid)?;
        let (sin, cos) = (im.unary(UnaryFn::Sin, angles)?, im.unary(UnaryFn::Cos, angles)?);
        match self.cosines_first {
            true => im.concat(&[cos, sin], 1),
            false => im.concat(&[sin, cos], 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sines, then cosines, of `rows` positions.
    fn table(rows: usize, inv_freq: &[f32]) -> Tensor {
        let mut v = Vec::new();
        for row in 0..rows {
            let angles = inv_freq.iter().map(|f| f64::from(row as f32 * f));
            v.extend(angles.clone().map(|a| a.sin() as f32));
            v.extend(angles.map(|a| a.cos() as f32));
        }
        Tensor::from_f32([rows, 2 * inv_freq.len()], v).unwrap()
    }

    #[test]
    fn frequencies_are_found_again_to_the_bit() {
        let inv_freq: Vec<f32> = (0..32).map(|i| 10_000f32.powf(-(i as f32) / 32.0)).collect();
        let found = of(&table(2048, &inv_freq)).unwrap();
        assert_eq!((found.rows, found.cosines_first), (2048, false));
        for (i, (a, b)) in found.inv_freq.iter().zip(&inv_freq).enumerate() {
            // A slow frequency's last bit may not show in any position.
            assert!(a == b || (i > 16 && (a - b).abs() < 1e-7 * b), "{i}: {a} {b}");
        }
    }

    #[test]
    fn other_tables_are_none() {
        let mut off = table(64, &[1.0, 0.1]);
        let mut v = off.as_f32().unwrap().to_vec();
        v[50] += 1e-4;
        off = Tensor::from_f32([64, 4], v).unwrap();
        let zeros = Tensor::from_f32([64, 4], vec![0.0; 256]).unwrap();
        let odd = Tensor::from_f32([4, 3], vec![1.0; 12]).unwrap();
        for (i, t) in [off, zeros, odd, table(2, &[1.0])].iter().enumerate() {
            assert!(of(t).is_none(), "{i}");
        }
    }
}
