//! Pixels to numbers in the order that a model reads.

use super::{Channels, Grid, Layout, PatchOrder, Plan, Processor, Values, View};
use crate::resize::{resize, resize_region};
use crate::{Error, Picture};

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
        self.carry_out(&plan, picture)
    }

    fn carry_out(&self, plan: &Plan, picture: &Picture) -> Result<Processed, Error> {
        let mut source = picture;
        let mut stage;
        for &(width, height) in &plan.stages {
            stage = resize(source, width, height, self.filter)?;
            source = &stage;
        }
        let table = self.values.table();
        let numbers = plan.views.iter().map(|view| self.numbers(view)).sum();
        let mut values = Vec::with_capacity(numbers);
        let mut positions = Vec::new();
        for view in &plan.views {
            let (width, height) = view.whole;
            let pixels = resize_region(source, width, height, self.filter, view.region())?;
            let patches = self.patches(view.grid);
            match self.layout {
                Layout::Planes => planes(&pixels, &table, &mut values),
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
    pixels: &Picture,
    table: &Table,
    (left, top): (usize, usize),
    side: usize,
    channels: Channels,
    copies: u32,
    values: &mut Vec<f32>,
) {
    let row = |y: usize| &pixels.row(top + y)[left * 3..][..side * 3];
    match channels {
        Channels::Last => {
            for y in 0..side {
                for pixel in row(y).as_chunks::<3>().0 {
                    values.extend(pixel.iter().zip(table).map(|(&byte, table)| table[usize::from(byte)]));
                }
            }
        }
        Channels::First => {
            for (channel, table) in table.iter().enumerate() {
                let first = values.len();
                for y in 0..side {
                    values.extend(
                        row(y)
                            .iter()
                            .skip(channel)
                            .step_by(3)
                            .map(|&byte| table[usize::from(byte)]),
                    );
                }
                let end = values.len();
                for _ in 1..copies {
                    values.extend_from_within(first..end);
                }
            }
        }
    }
}
