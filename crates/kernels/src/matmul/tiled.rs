//! Activations once more, as CPUs with tile products read them.
//!
//! Sixteen rows lie beside each other, so that a tile is loaded from where it is: of each 16 rows and each group first the bytes, `[step][row][DEPTH]`, then 16 scales. A row that is missing in the last
//! tile has a scale of 0, and bytes of any value.
//!
//! This lies behind the cells, which all other products read, and only where the CPU has tiles and there are [`TILES_FROM`] rows.

use crate::exec::SharedMut;
use cactus_simd::has_tiles;

/// Rows of a tile.
pub(crate) const ROWS: usize = 16;
/// From this number of rows on tiles are used, a multiple of a tile. Products of 16 rows are faster without.
pub(crate) const TILES_FROM: usize = 32;
/// A line of the cache, with which a tile begins.
const LINE: usize = 64;

/// How rows lie in memory: first the cells, one for each row and group, then the tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowLayout {
    pub(crate) rows: usize,
    pub(crate) groups: usize,
    pub(crate) cell_bytes: usize,
    /// Bytes that a row of a tile has of a group.
    pub(crate) row_bytes: usize,
}

impl RowLayout {
    /// Bytes of memory, `None` on overflow.
    #[inline]
    pub(crate) fn bytes(self) -> Option<usize> {
        self.of_cells()?.checked_add(self.of_tiles()?)
    }

    /// The memory of the cells, and the tiles; `None` where `memory` is too small.
    #[inline]
    pub(crate) fn split(self, memory: &mut [u8]) -> Option<(&mut [u8], Tiled<'_>)> {
        let (of_cells, of_tiles) = (self.of_cells()?, self.of_tiles()?);
        let (cells, rest) = memory.split_at_mut_checked(of_cells)?;
        let mut memory = rest.get_mut(..of_tiles)?;
        if of_tiles > 0 {
            let start = memory.as_ptr().align_offset(LINE).min(LINE);
            memory = &mut memory[start..start + of_tiles - LINE];
        }
        let layout = self;
        Some((cells, Tiled { memory, layout }))
    }

    #[inline]
    fn of_cells(self) -> Option<usize> {
        self.rows.checked_mul(self.groups)?.checked_mul(self.cell_bytes)
    }

    /// None where no tiles are used, else those of the tiles and of what it may take to begin with a line.
    #[inline]
    fn of_tiles(self) -> Option<usize> {
        if self.rows < TILES_FROM || !has_tiles() {
            return Some(0);
        }
        let tiles = self.rows.div_ceil(ROWS).checked_mul(self.groups)?;
        tiles.checked_mul(self.group_bytes())?.checked_add(LINE)
    }

    fn group_bytes(self) -> usize {
        ROWS * (self.row_bytes + size_of::<f32>())
    }

    /// Where in the tiles row `row` of group `group` has its bytes of the first step, but for those of the rows before, and its scale.
    fn places(self, row: usize, group: usize) -> [usize; 2] {
        let group = (row / ROWS * self.groups + group) * self.group_bytes();
        let scales = group + ROWS * self.row_bytes;
        [group, scales + row % ROWS * size_of::<f32>()]
    }
}

/// Of 16 rows and a group the bytes of each step, and the scales.
pub(crate) type TileOf<'a, const DEPTH: usize, const STEPS: usize> =
    (&'a [[[i8; DEPTH]; ROWS]; STEPS], &'a [f32; ROWS]);

/// Rows in tiles; empty where no tiles are used.
#[derive(Debug)]
pub(crate) struct Tiled<'a> {
    memory: &'a mut [u8],
    layout: RowLayout,
}

impl Tiled<'_> {
    /// Tile `tile` of group `group`; `None` where no tiles are used.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn group<const DEPTH: usize, const STEPS: usize>(
        &self,
        tile: usize,
        group: usize,
    ) -> Option<TileOf<'_, DEPTH, STEPS>> {
        assert!(DEPTH * STEPS == self.layout.row_bytes, "rows of a tile");
        let [at, _] = self.layout.places(tile * ROWS, group);
        let memory = self.memory.get(at..at + self.layout.group_bytes())?;
        let (bytes, scales) = memory.split_at(ROWS * DEPTH * STEPS);
        // SAFETY: as many bytes as the array has.
        let bytes = unsafe { &*bytes.as_ptr().cast() };
        bytemuck::cast_slice(scales).first_chunk().map(|scales| (bytes, scales))
    }

    /// Whether there are rows in tiles.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn is_used(&self) -> bool {
        !self.memory.is_empty()
    }

    /// A writer that the parts of a run share, each for rows of its own.
    pub(crate) fn writer(&mut self) -> TileWriter<'_> {
        TileWriter {
            layout: self.layout,
            is_used: !self.memory.is_empty(),
            memory: SharedMut::new(self.memory),
        }
    }
}

/// Write access to single rows from several threads.
pub(crate) struct TileWriter<'a> {
    layout: RowLayout,
    is_used: bool,
    memory: SharedMut<'a, u8>,
}

impl TileWriter<'_> {
    /// Writes a row of a group, `STEPS` times `DEPTH` bytes and their scale, where tiles are used.
    ///
    /// # Safety
    /// No other thread may write the same group of the same row at the same time. Scales of rows that are missing in the last tile are written with the last row that is there.
    #[inline(always)]
    pub(crate) unsafe fn write<const DEPTH: usize, const STEPS: usize>(
        &self,
        row: usize,
        group: usize,
        bytes: &[[i8; DEPTH]; STEPS],
        scale: f32,
    ) {
        if !cfg!(target_arch = "x86_64") || !self.is_used {
            return;
        }
        let [first, scale_at] = self.layout.places(row, group);
        let put = |at: usize, bytes: &[u8]| {
            // SAFETY: bytes of this group of this row are ours by this function's contract, and with the last row those of rows that are not there.
            unsafe { self.memory.piece(at..at + bytes.len()) }.copy_from_slice(bytes);
        };
        for (step, bytes) in bytes.iter().enumerate() {
            put(first + (step * ROWS + row % ROWS) * DEPTH, bytemuck::cast_slice(bytes));
        }
        put(scale_at, &scale.to_ne_bytes());
        if row + 1 == self.layout.rows {
            for missing in 1..ROWS - row % ROWS {
                put(scale_at + missing * size_of::<f32>(), &[0; size_of::<f32>()]);
            }
        }
    }
}
