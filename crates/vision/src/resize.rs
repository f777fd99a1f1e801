//! Resampling with the bytes that Pillow gives.
//!
//! Purpose: the sizes of models are reached by Pillow in their training and in the reference implementation, and other arithmetic is the
//! commonest cause of a model that sees a little worse. So this is Pillow's: a filter widened by the scale where a picture shrinks, one
//! direction after the other with bytes between, weights normalized to a sum of one and rounded to 22 binary places. Rows come first.
//! Where the height shrinks by more than twice the width, columns do, as in Pillow 13; before it rows always did, so there a few bytes
//! differ by one.
//!
//! What lies between the directions is computed when it is needed and kept as long as it is, so the memory beside the result is a few
//! rows. A [`Region`] of the result can be asked for alone, with the same bytes.

use crate::picture::{Picture, bytes};
use crate::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// Binary places of a weight: 8 bits of the sum are the byte, and 2 are room for weights outside of 0..1.
const PLACES: u32 = 22;
/// Bytes that a picture in the making may take, with its rows in between.
const MAX_BYTES: usize = 1 << 30;

/// What a pixel of the result takes from its surroundings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// A triangle one pixel wide on each side.
    Bilinear,
    /// Keys' cubic with a = -0.5, two pixels on each side.
    Bicubic,
    /// A windowed sinc, three pixels on each side.
    Lanczos,
}

impl Filter {
    fn support(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// The filter at distance `x`.
    fn at(self, x: f64) -> f64 {
        match self {
            Self::Bilinear => (1.0 - x.abs()).max(0.0),
            Self::Bicubic => {
                const A: f64 = -0.5;
                let x = x.abs();
                if x < 1.0 {
                    ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
                } else if x < 2.0 {
                    (((x - 5.0) * x + 8.0) * x - 4.0) * A
                } else {
                    0.0
                }
            }
            Self::Lanczos => {
                if (-3.0..3.0).contains(&x) {
                    sinc(x) * sinc(x / 3.0)
                } else {
                    0.0
                }
            }
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { libm::sin(x * PI) / (x * PI) }
}

/// A part of a picture, in pixels from its top left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The first column.
    pub left: u32,
    /// The first row.
    pub top: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

/// For each pixel of one direction of the result, which pixels it is made of, and how much of each.
struct Weights {
    /// First pixel and number of pixels.
    spans: Vec<(usize, usize)>,
    /// Weights of all spans one behind the other, each as long as the longest.
    values: Vec<i32>,
    longest: usize,
}

impl Weights {
    /// Those of pixels `first..first + count` where `from` pixels become `to`.
    fn new(filter: Filter, from: u32, to: u32, first: u32, count: u32) -> Self {
        let scale = f64::from(from) / f64::from(to);
        let widened = scale.max(1.0);
        let support = filter.support() * widened;
        let longest = (support.ceil() as usize * 2 + 1).min(from as usize);
        let mut spans = Vec::with_capacity(count as usize);
        let mut values = vec![0; longest * count as usize];
        let mut exact = Vec::with_capacity(longest);
        for (pixel, values) in (first..first + count).zip(values.chunks_exact_mut(longest)) {
            let center = (f64::from(pixel) + 0.5) * scale;
            // Numbers below zero become zero, as they must.
            let begin = (center - support + 0.5) as usize;
            let end = ((center + support + 0.5) as usize).min(from as usize);
            exact.clear();
            exact.extend((begin..end).map(|at| filter.at((at as f64 - center + 0.5) * (1.0 / widened))));
            let sum: f64 = exact.iter().sum();
            for (value, &weight) in values.iter_mut().zip(&exact) {
                let weight = if sum == 0.0 { weight } else { weight / sum };
                *value = round_away(weight * f64::from(1 << PLACES));
            }
            spans.push((begin, end - begin));
        }
        Self { spans, values, longest }
    }

    /// The first pixel that is needed, and the one behind the last.
    fn reach(&self) -> (usize, usize) {
        let begin = self.spans.iter().map(|span| span.0).min();
        let end = self.spans.iter().map(|span| span.0 + span.1).max();
        (begin.unwrap_or(0), end.unwrap_or(0))
    }

    fn of(&self, pixel: usize) -> (usize, &[i32]) {
        let (begin, count) = self.spans[pixel];
        (begin, &self.values[pixel * self.longest..][..count])
    }
}

/// To the nearest integer, halves away from zero.
fn round_away(x: f64) -> i32 {
    (if x < 0.0 { x - 0.5 } else { x + 0.5 }) as i32
}

/// The byte of a sum of weighted bytes.
fn byte(sum: i32) -> u8 {
    (sum >> PLACES).clamp(0, 255) as u8
}

/// `picture` in `width` x `height` pixels.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] where a side is 0, [`ErrorKind::TooLarge`] where the result would take more than 1 GiB.
pub fn resize(picture: &Picture, width: u32, height: u32, filter: Filter) -> Result<Picture, Error> {
    let whole = Region {
        left: 0,
        top: 0,
        width,
        height,
    };
    resize_region(picture, width, height, filter, whole)
}

/// The `region` of `picture` in `width` x `height` pixels. Nothing outside of it is computed.
///
/// # Errors
/// As [`resize`], and [`ErrorKind::InvalidInput`] where the region is empty or leaves the picture.
pub fn resize_region(
    picture: &Picture,
    width: u32,
    height: u32,
    filter: Filter,
    region: Region,
) -> Result<Picture, Error> {
    let inside =
        |first: u32, count: u32, side: u32| count > 0 && first.checked_add(count).is_some_and(|end| end <= side);
    if !inside(region.left, region.width, width) || !inside(region.top, region.height, height) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "{region:?} of a picture of {width} x {height} pixels; expected a part of it with at least one pixel"
            ),
        ));
    }
    let stride = region.width as usize * 3;
    let size = bytes(region.width, region.height).filter(|&size| size <= MAX_BYTES);
    let size = size.ok_or_else(|| too_large(region))?;
    let (from_width, from_height) = (picture.width(), picture.height());
    let along = (width != from_width).then(|| Weights::new(filter, from_width, width, region.left, region.width));
    let down = (height != from_height).then(|| Weights::new(filter, from_height, height, region.top, region.height));
    let mut rgb = vec![0; size];
    let rows = rgb.chunks_exact_mut(stride).enumerate();
    match (along, down) {
        (None, None) => {
            for (y, row) in rows {
                row.copy_from_slice(&picture.row(region.top as usize + y)[region.left as usize * 3..][..stride]);
            }
        }
        (Some(along), None) => {
            for (y, row) in rows {
                across(picture.row(region.top as usize + y), 0, &along, row);
            }
        }
        (None, Some(down)) => {
            let mut sums = vec![0; stride];
            for (y, row) in rows {
                downward(&down, y, &mut sums, row, |from| {
                    &picture.row(from)[region.left as usize * 3..]
                });
            }
        }
        (Some(along), Some(down)) if columns_first((from_width, from_height), (width, height)) => {
            let (begin, end) = along.reach();
            let mut sums = vec![0; (end - begin) * 3];
            let mut between = vec![0; (end - begin) * 3];
            for (y, row) in rows {
                downward(&down, y, &mut sums, &mut between, |from| {
                    &picture.row(from)[begin * 3..]
                });
                across(&between, begin, &along, row);
            }
        }
        (Some(along), Some(down)) => {
            // Row `y` lies in slot `y % held`: no row of the result needs more than `held`, and the first that it needs only moves down.
            let held = down.longest;
            let room = stride.checked_mul(held).filter(|&room| room <= MAX_BYTES);
            let mut between = vec![0; room.ok_or_else(|| too_large(region))?];
            let mut sums = vec![0; stride];
            let mut next = 0;
            for (y, row) in rows {
                let (begin, weights) = down.of(y);
                for from in begin.max(next)..begin + weights.len() {
                    across(
                        picture.row(from),
                        0,
                        &along,
                        &mut between[from % held * stride..][..stride],
                    );
                    next = from + 1;
                }
                downward(&down, y, &mut sums, row, |from| &between[from % held * stride..]);
            }
        }
    }
    Picture::new(region.width, region.height, rgb)
}

fn too_large(region: Region) -> Error {
    Error::new(
        ErrorKind::TooLarge,
        format!(
            "{} x {} pixels take more than {} MiB to compute; use a smaller size",
            region.width,
            region.height,
            MAX_BYTES >> 20
        ),
    )
}

/// Whether columns are resampled before rows: where the height shrinks by more than twice what the width does.
fn columns_first(from: (u32, u32), to: (u32, u32)) -> bool {
    let less = |from: u32, to: u32| i64::from(from) - i64::from(to);
    let down = less(from.1, to.1);
    down > 0 && down > 2 * less(from.0, to.0)
}

/// Row `y` of the result out of rows above one another. `sums` is room for as many numbers as the row has.
fn downward<'a>(weights: &Weights, y: usize, sums: &mut [i32], row: &mut [u8], source: impl Fn(usize) -> &'a [u8]) {
    let (begin, weights) = weights.of(y);
    sums.fill(1 << (PLACES - 1));
    for (from, &weight) in (begin..).zip(weights) {
        for (sum, &value) in sums.iter_mut().zip(source(from)) {
            *sum += i32::from(value) * weight;
        }
    }
    for (value, &sum) in row.iter_mut().zip(&*sums) {
        *value = byte(sum);
    }
}

/// One row resampled. `source` begins at pixel `first` of its row.
fn across(source: &[u8], first: usize, weights: &Weights, row: &mut [u8]) {
    for (pixel, out) in row.as_chunks_mut::<3>().0.iter_mut().enumerate() {
        let (begin, weights) = weights.of(pixel);
        let mut sums = [1i32 << (PLACES - 1); 3];
        let source = source[(begin - first) * 3..][..weights.len() * 3].as_chunks::<3>().0;
        for (value, &weight) in source.iter().zip(weights) {
            for (sum, &value) in sums.iter_mut().zip(value) {
                *sum += i32::from(value) * weight;
            }
        }
        *out = sums.map(byte);
    }
}
