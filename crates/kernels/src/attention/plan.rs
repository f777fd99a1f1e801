//! How the queries of a run are cut into tiles.

use super::{FEW, MAX_ELEMS, MAX_QUERIES, MAX_ROWS};
use crate::kv::KvLayout;
use std::ops::Range;

/// Reading keys and values, in units of what is computed with them for one query.
const READ_COST: usize = 4;

/// How the queries of a run are cut into tiles.
pub(super) struct Plan {
    kv_heads: usize,
    /// KV heads of a tile.
    joined: usize,
    /// Query heads of a KV head, of a tile, and tiles they make.
    group: usize,
    tile_heads: usize,
    splits: usize,
    rows: usize,
    tile_rows: usize,
}

impl Plan {
    pub(super) fn new(layout: &KvLayout, group: usize, rows: usize, threads: usize) -> Self {
        let (kv_heads, most) = (layout.kv_heads(), most_queries(layout));
        // What the thread with most tiles does: each reads keys and values once, and computes for each of its queries.
        let cost = |heads: usize| {
            let tile_rows = rows_of(most, heads, rows);
            let tiles = kv_heads * group.div_ceil(heads) * rows.div_ceil(tile_rows);
            tiles.div_ceil(threads) * (READ_COST + heads * tile_rows)
        };
        let most = group.min(most);
        // Of equals the one with the fewest reads.
        let tile_heads = (1..=most).rev().min_by_key(|&heads| cost(heads)).unwrap_or(most);
        // As many KV heads as leave the thread with most of them no more than it would have one by one.
        let most_heads = kv_heads.div_ceil(threads);
        let is_even = |joined: &usize| kv_heads.div_ceil(*joined).div_ceil(threads) * joined <= most_heads;
        let joined = (1..=kv_heads.min(FEW)).rev().find(is_even).unwrap_or(1);
        Self::of(layout, group, rows, tile_heads, joined)
    }

    /// As many query heads in a tile as it can have: keys and values are read as few times as can be. `joined` as for [`Plan::of`].
    pub(super) fn few_reads(layout: &KvLayout, group: usize, rows: usize, joined: usize) -> Self {
        Self::of(layout, group, rows, group.min(most_queries(layout)), joined)
    }

    /// At most `joined` KV heads are in a tile, where few queries read them.
    fn of(layout: &KvLayout, group: usize, rows: usize, tile_heads: usize, joined: usize) -> Self {
        let tile_rows = rows_of(most_queries(layout), tile_heads, rows);
        // Tiles of a part of a group, or of some of many rows, are of one KV head.
        let fit = match tile_heads == group && tile_rows == rows {
            true => FEW / (tile_heads * tile_rows),
            false => 1,
        };
        let kv_heads = layout.kv_heads();
        Self {
            kv_heads,
            joined: joined.min(fit).clamp(1, kv_heads),
            group,
            tile_heads,
            splits: group.div_ceil(tile_heads),
            rows,
            tile_rows,
        }
    }

    pub(super) fn tiles(&self) -> usize {
        self.kv_heads.div_ceil(self.joined) * self.splits * self.rows.div_ceil(self.tile_rows)
    }

    /// KV heads, query heads within the group of each, and rows of a tile; the longest tiles, those of late rows, come first.
    pub(super) fn tile(&self, index: usize) -> (Range<usize>, Range<usize>, Range<usize>) {
        let of_heads = self.kv_heads.div_ceil(self.joined);
        let (row_tile, rest) = (index / (of_heads * self.splits), index % (of_heads * self.splits));
        let (split, first_head) = (rest / of_heads, rest % of_heads * self.joined);
        let last = self.rows.div_ceil(self.tile_rows) - 1;
        let first_row = (last - row_tile) * self.tile_rows;
        (
            first_head..(first_head + self.joined).min(self.kv_heads),
            split * self.tile_heads..((split + 1) * self.tile_heads).min(self.group),
            first_row..(first_row + self.tile_rows).min(self.rows),
        )
    }
}

/// Most queries of a tile.
fn most_queries(layout: &KvLayout) -> usize {
    (MAX_ELEMS / layout.dim()).min(MAX_QUERIES)
}

/// Rows of a tile of so many heads and at most `most` queries: where it can be, all register tiles are full.
fn rows_of(most: usize, heads: usize, rows: usize) -> usize {
    let most = most / heads;
    let full = (1..=most).rev().find(|rows| (rows * heads).is_multiple_of(MAX_ROWS));
    full.unwrap_or(most).clamp(1, rows.max(1))
}
