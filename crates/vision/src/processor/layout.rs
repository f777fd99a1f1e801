//! Pixels to numbers in the order that a model reads.

use super::{Channels, Grid, Layout, PatchOrder, Plan, Processor, Values, View};
use crate::resize::{resize, resize_region};
use crate::{Error, Picture};
use std::borrow::Cow;

/// What an encoder reads of a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Processed {
    /// The numbers, in the order of `shape`.
    pub values: Vec<f32>,
    /// `[views, 3, height, width]`, or `[patches, numbers of a patch]`.
    pub shape: Vec<usize>,
    /// Rows and columns of patches of each view.
    pub grids: Vec<Grid>,
    /// Column and row of each patch within its view, in the order of the patches. Where the model takes planes, row after row.
    pub positions: Vec<[u32; 2]>,
    /// Tokens of all views.
    pub tokens: u64,
}

impl Processor {
    /// The numbers of `picture`.
    ///
    /// # Errors
    /// As [`Processor::plan`].
    pub fn process(&self, picture: &Picture) -> Result<Processed, Error> {
        let plan = self.plan(picture.width(), picture.height())?;
        self.carry_out(&plan, &[picture])
    }

    /// The numbers of pictures of one size that share patches: as many as a patch has copies, or one in place of all of them.
    pub(super) fn carry_out(&self, plan: &Plan, pictures: &[&Picture]) -> Result<Processed, Error> {
        let staged = pictures.iter().map(|picture| self.staged(plan, picture));
        let staged = staged.collect::<Result<Vec<_>, Error>>()?;
        let table = self.values.table();
        let numbers = plan.views.iter().map(|view| self.numbers(view)).sum();
        let mut values = Vec::with_capacity(numbers);
        let mut positions = Vec::new();
        for view in &plan.views {
            let (width, height) = view.whole;
            let resized = staged
                .iter()
                .map(|source| resize_region(source, width, height, self.filter, view.region()));
            let pixels = resized.collect::<Result<Vec<_>, Error>>()?;
            let patches = self.patches(view.grid);
            match self.layout {
                Layout::Planes => pixels.iter().for_each(|pixels| planes(pixels, &table, &mut values)),
                Layout::Patches { channels, copies, .. } => {
                    for &[column, row] in &patches {
                        let corner = (
                            column as usize * self.patch as usize,
                            row as usize * self.patch as usize,
                        );
                        patch(
                            &pixels,
                            &table,
                            corner,
                            self.patch as usize,
                            channels,
                            copies,
                            &mut values,
                        );
                    }
                }
            }
            positions.extend(patches);
        }
        let shape = match self.layout {
            // The views have one size: the record's check says so.
            Layout::Planes => {
                let view = &plan.views[0];
                vec![plan.views.len(), 3, view.height as usize, view.width as usize]
            }
            Layout::Patches { .. } => vec![positions.len(), self.patch_numbers()],
        };
        Ok(Processed {
            values,
            shape,
            grids: plan.views.iter().map(|view| view.grid).collect(),
            positions,
            tokens: plan.tokens,
        })
    }

    /// The pixels of each view of `picture`, before they become numbers.
    ///
    /// # Errors
    /// As [`Processor::plan`].
    pub fn views(&self, picture: &Picture) -> Result<Vec<Picture>, Error> {
        let plan = self.plan(picture.width(), picture.height())?;
        let source = self.staged(&plan, picture)?;
        let pixels = |view: &View| resize_region(&source, view.whole.0, view.whole.1, self.filter, view.region());
        plan.views.iter().map(pixels).collect()
    }

    /// A picture as its views are cut from it.
    fn staged<'a>(&self, plan: &Plan, picture: &'a Picture) -> Result<Cow<'a, Picture>, Error> {
        let mut source = Cow::Borrowed(picture);
        for &(width, height) in &plan.stages {
            source = Cow::Owned(resize(&source, width, height, self.filter)?);
        }
        Ok(source)
    }

    /// Numbers of a patch.
    pub fn patch_numbers(&self) -> usize {
        let copies = match self.layout {
            Layout::Planes => 1,
            Layout::Patches { copies, .. } => copies as usize,
        };
        (self.patch as usize).pow(2) * 3 * copies
    }

    fn numbers(&self, view: &View) -> usize {
        match self.layout {
            Layout::Planes => view.width as usize * view.height as usize * 3,
            Layout::Patches { .. } => view.grid.rows as usize * view.grid.columns as usize * self.patch_numbers(),
        }
    }

    /// Column and row of each patch of a view, in order.
    pub(super) fn patches(&self, grid: Grid) -> Vec<[u32; 2]> {
        let block = match self.layout {
            Layout::Patches {
                order: PatchOrder::Blocks,
                ..
            } => self.merge,
            _ => 1,
        };
        let mut patches = Vec::with_capacity(grid.rows as usize * grid.columns as usize);
        for top in (0..grid.rows).step_by(block as usize) {
            for left in (0..grid.columns).step_by(block as usize) {
                for row in top..(top + block).min(grid.rows) {
                    patches.extend((left..(left + block).min(grid.columns)).map(|column| [column, row]));
                }
            }
        }
        patches
    }
}

/// The number of each byte, for each channel.
type Table = [[f32; 256]; 3];

impl Values {
    fn table(&self) -> Table {
        std::array::from_fn(|channel| {
            let (mean, std) = (self.mean[channel] as f32, self.std[channel] as f32);
            std::array::from_fn(|byte| ((byte as f64 * self.scale) as f32 - mean) / std)
        })
    }
}

fn planes(pixels: &Picture, table: &Table, values: &mut Vec<f32>) {
    for (channel, table) in table.iter().enumerate() {
        values.extend(
            pixels
                .rgb()
                .iter()
                .skip(channel)
                .step_by(3)
                .map(|&byte| table[usize::from(byte)]),
        );
    }
}

fn patch(
    pictures: &[Picture],
    table: &Table,
    (left, top): (usize, usize),
    side: usize,
    channels: Channels,
    copies: u32,
    values: &mut Vec<f32>,
) {
    match channels {
        Channels::Last => {
            for picture in pictures {
                for y in 0..side {
                    for pixel in row(picture, top + y, left, side).as_chunks::<3>().0 {
                        values.extend(pixel.iter().zip(table).map(|(&byte, table)| table[usize::from(byte)]));
                    }
                }
            }
        }
        Channels::First => {
            for (channel, table) in table.iter().enumerate() {
                let first = values.len();
                for picture in pictures {
                    for y in 0..side {
                        let bytes = row(picture, top + y, left, side).iter().skip(channel).step_by(3);
                        values.extend(bytes.map(|&byte| table[usize::from(byte)]));
                    }
                }
                let end = values.len();
                for _ in pictures.len()..copies as usize {
                    values.extend_from_within(first..end);
                }
            }
        }
    }
}

/// Bytes of `side` pixels of row `y` from `left` on.
fn row(picture: &Picture, y: usize, left: usize, side: usize) -> &[u8] {
    &picture.row(y)[left * 3..][..side * 3]
}
