//! How the queries of a run are cut into tiles.

use super::MAX_QUERIES;
use std::ops::Range;

/// Reading keys and values, in units of what is computed with them for one query.
const READ_COST: usize = 4;

/// How the queries of a run are cut into tiles.
pub(super) struct Plan {
    kv_heads: usize,
    /// Query heads of a KV head, of a tile, and tiles they make.
    group: usize,
    tile_heads: usize,
    splits: usize,
    rows: usize,
    tile_rows: usize,
}

impl Plan {
    pub(super) fn new(kv_heads: usize, group: usize, rows: usize, threads: usize) -> Self {
        // What the thread with most tiles does: each reads keys and values once, and computes for each of its queries.
        let cost = |heads: usize| {
            let tiles = kv_heads * group.div_ceil(heads) * rows.div_ceil(Self::rows_of(heads, rows));
            tiles.div_ceil(threads) * (READ_COST + heads * Self::rows_of(heads, rows))
        };
        let most = group.min(MAX_QUERIES);
        // Of equals the one with the fewest reads.
        let tile_heads = (1..=most).rev().min_by_key(|&heads| cost(heads)).unwrap_or(most);
        Self::of(kv_heads, group, rows, tile_heads)
    }

    /// As many heads in a tile as it can have: keys and values are read as few times as can be.
    pub(super) fn few_reads(kv_heads: usize, group: usize, rows: usize) -> Self {
        Self::of(kv_heads, group, rows, group.min(MAX_QUERIES))
    }

    fn of(kv_heads: usize, group: usize, rows: usize, tile_heads: usize) -> Self {
        Self {
            kv_heads,
            group,
            tile_heads,
            splits: group.div_ceil(tile_heads),
            rows,
            tile_rows: Self::rows_of(tile_heads, rows),
        }
    }

    /// Rows of a tile of so many heads.
    fn rows_of(heads: usize, rows: usize) -> usize {
        (MAX_QUERIES / heads).clamp(1, rows.max(1))
    }

    pub(super) fn tiles(&self) -> usize {
        self.kv_heads * self.splits * self.rows.div_ceil(self.tile_rows)
    }

    /// KV head, query heads within its group, and rows of a tile; the longest tiles, those of late rows, come first.
    pub(super) fn tile(&self, index: usize) -> (usize, Range<usize>, Range<usize>) {
        let (row_tile, rest) = (
            index / (self.kv_heads * self.splits),
            index % (self.kv_heads * self.splits),
        );
        let (split, kv_head) = (rest / self.kv_heads, rest % self.kv_heads);
        let last = self.rows.div_ceil(self.tile_rows) - 1;
        let first_row = (last - row_tile) * self.tile_rows;
        let heads = split * self.tile_heads..((split + 1) * self.tile_heads).min(self.group);
        (kv_head, heads, first_row..(first_row + self.tile_rows).min(self.rows))
    }
}
