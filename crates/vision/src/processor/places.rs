//! How a table of positions is read for a view: a row of weights over the table for each patch.
//!
//! Encoders were trained with a square table, an entry for each patch of a picture of one size. For a view of another size the table is
//! stretched, in a way that the model was trained with. Weights, not stretched entries, are what an encoder takes: so the table stays a
//! weight of the model, and how it is stretched a choice of the record.

use super::{Grid, Processor};
use crate::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

/// The table and how it is stretched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Places {
    /// Rows of the table, and as many columns.
    pub side: u32,
    /// How it is read where a view has other sides.
    pub stretch: Stretch,
}

/// How a table is read for other sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stretch {
    /// The entry in which the beginning of a patch lies.
    Nearest,
    /// Linear between the middles of entries, over a wider surrounding where the table shrinks: `antialias` of PyTorch, corners not
    /// aligned.
    Smoothed,
    /// Linear between the two nearest entries, the first patch on the first entry and the last on the last: corners aligned.
    Corners,
}

/// The most rows of a table.
const MAX_SIDE: u32 = 256;
/// Most numbers of the weights of a view.
const MAX_NUMBERS: u64 = 1 << 28;

impl Places {
    pub(super) fn check(&self) -> Result<(), Error> {
        match (1..=MAX_SIDE).contains(&self.side) {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::InvalidRecord,
                format!(
                    "the picture record's places.side is {}; expected from 1 to {MAX_SIDE}",
                    self.side
                ),
            )),
        }
    }

    /// Weights of `count` patches along one side over the table's, `[count, side]`.
    fn along(&self, count: u32) -> Vec<f64> {
        let (count, side) = (count as usize, self.side as usize);
        let mut weights = vec![0.0; count * side];
        for (i, row) in weights.chunks_exact_mut(side.max(1)).enumerate() {
            match self.stretch {
                Stretch::Nearest => row[(i * side / count).min(side - 1)] = 1.0,
                Stretch::Smoothed => smoothed(row, i, side as f64 / count as f64),
                Stretch::Corners => corners(row, i, count),
            }
        }
        weights
    }
}

/// As `torch.nn.functional.interpolate` with `mode="bilinear", antialias=True, align_corners=False`.
fn smoothed(row: &mut [f64], i: usize, scale: f64) {
    let support = scale.max(1.0);
    let center = scale * (i as f64 + 0.5);
    let first = ((center - support + 0.5).max(0.0)) as usize;
    let end = ((center + support + 0.5) as usize).min(row.len());
    let mut sum = 0.0;
    for (j, weight) in row.iter_mut().enumerate().take(end).skip(first) {
        *weight = (1.0 - ((j as f64 - center + 0.5) / support).abs()).max(0.0);
        sum += *weight;
    }
    if sum > 0.0 {
        row[first..end].iter_mut().for_each(|weight| *weight /= sum);
    }
}

/// As `torch.nn.functional.interpolate` with `mode="bilinear", align_corners=True`, where a patch is in single precision.
fn corners(row: &mut [f64], i: usize, count: usize) {
    let last = row.len().saturating_sub(1);
    let at = i as f32 * last as f32 / count.saturating_sub(1).max(1) as f32;
    let first = (at as usize).min(last);
    let share = f64::from(at - first as f32);
    row[first] += 1.0 - share;
    row[(first + 1).min(last)] += share;
}

impl Processor {
    /// The weights of each patch of a view over the table of positions, `[patches, side * side]` in the order of the patches; none where
    /// the record has no table.
    ///
    /// # Errors
    /// [`ErrorKind::UnsuitableShape`] for a view of so many patches that the weights would take too much memory.
    pub fn places(&self, grid: Grid) -> Result<Option<Vec<f32>>, Error> {
        let Some(places) = &self.places else { return Ok(None) };
        let table = u64::from(places.side).pow(2);
        let numbers = u64::from(grid.rows) * u64::from(grid.columns) * table;
        if numbers > MAX_NUMBERS {
            return Err(Error::new(
                ErrorKind::UnsuitableShape,
                format!(
                    "a view of {} x {} patches has too many for this model",
                    grid.columns, grid.rows
                ),
            ));
        }
        let side = places.side as usize;
        let (down, across) = (places.along(grid.rows), places.along(grid.columns));
        let mut weights = Vec::with_capacity(numbers as usize);
        for [column, row] in self.patches(grid) {
            let across = &across[column as usize * side..][..side];
            for &y in &down[row as usize * side..][..side] {
                weights.extend(across.iter().map(|&x| (y * x) as f32));
            }
        }
        Ok(Some(weights))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn along(side: u32, stretch: Stretch, count: u32) -> Vec<Vec<f64>> {
        let places = Places { side, stretch };
        let weights = places.along(count);
        weights.chunks(side as usize).map(<[f64]>::to_vec).collect()
    }

    #[test]
    fn table_of_the_same_side_is_read_as_it_is() {
        for stretch in [Stretch::Nearest, Stretch::Smoothed, Stretch::Corners] {
            for (i, row) in along(5, stretch, 5).iter().enumerate() {
                let expected: Vec<f64> = (0..5).map(|j| if i == j { 1.0 } else { 0.0 }).collect();
                assert_eq!(*row, expected, "{stretch:?}");
            }
        }
    }

    #[test]
    fn weights_of_a_patch_are_one_together() {
        for stretch in [Stretch::Nearest, Stretch::Smoothed, Stretch::Corners] {
            for (side, count) in [(4, 7), (7, 4), (16, 1), (1, 9), (16, 33), (16, 15)] {
                for row in along(side, stretch, count) {
                    let sum: f64 = row.iter().sum();
                    assert!((sum - 1.0).abs() < 1e-12, "{stretch:?} {side} {count}");
                    assert!(row.iter().all(|w| (0.0..=1.0).contains(w)));
                }
            }
        }
    }

    #[test]
    fn smoothed_is_torchs() {
        let seventh = 1.0 / 7.0;
        let cases = [
            (
                4,
                2,
                vec![
                    vec![3.0 * seventh, 3.0 * seventh, seventh, 0.0],
                    vec![0.0, seventh, 3.0 * seventh, 3.0 * seventh],
                ],
            ),
            (3, 2, vec![vec![0.625, 0.375, 0.0], vec![0.0, 0.375, 0.625]]),
            (
                2,
                4,
                vec![vec![1.0, 0.0], vec![0.75, 0.25], vec![0.25, 0.75], vec![0.0, 1.0]],
            ),
        ];
        for (side, count, expected) in cases {
            let found = along(side, Stretch::Smoothed, count);
            let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12;
            assert!(
                found.iter().flatten().zip(expected.iter().flatten()).all(near),
                "{found:?}"
            );
        }
    }

    #[test]
    fn corners_are_aligned() {
        let found = along(5, Stretch::Corners, 3);
        let want = [
            [1.0, 0.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 1.0, 0.0, 0.0],
            [0.0, 0.0, 0.0, 0.0, 1.0],
        ];
        assert_eq!(found, want.map(|row| row.to_vec()));
        let found = along(3, Stretch::Corners, 5);
        let want = [
            [1.0, 0.0, 0.0],
            [0.5, 0.5, 0.0],
            [0.0, 1.0, 0.0],
            [0.0, 0.5, 0.5],
            [0.0, 0.0, 1.0],
        ];
        assert_eq!(found, want.map(|row| row.to_vec()));
        assert_eq!(along(4, Stretch::Corners, 1), [[1.0, 0.0, 0.0, 0.0]]);
    }
}
