//! Attention on bytes: queries and shares are rows of tiles, keys and values their columns, all of them read where they are.

use super::super::attention_bytes::{
    BLOCK_KEYS, CHUNK_KEYS, Line, STRIP_QUERIES, Scores, Shares, Sharing, Sizes, Strip, mask_behind,
};
use crate::matmul::AMX_ROWS as ROWS;
use cactus_simd::{Amx, Avx512, LANES, OpFor, Simd, Tiles};
use std::mem::MaybeUninit;

/// Tiles of a strip.
const TILES: usize = STRIP_QUERIES / ROWS;
/// Queries whose shares are made at a time.
const HALF: usize = ROWS / 2;
/// Bytes of a row.
const DEPTH: usize = 64;
/// Tiles of sums: groups of keys, or vectors of channels.
const SUMS: usize = 4;
/// Groups of keys of a block.
const GROUPS: usize = BLOCK_KEYS / LANES;

/// A strip of queries.
pub(in crate::dense) struct Run<'a> {
    pub(in crate::dense) token: Amx,
    pub(in crate::dense) strip: Strip<'a>,
}

/// Whether tiles serve queries of so many channels: rows have to be full.
pub(in crate::dense) fn serves(queries: usize, width: usize) -> bool {
    queries >= ROWS && width.is_multiple_of(DEPTH)
}

/// The integer sums of a tile.
type Dots = [[MaybeUninit<i32>; LANES]; ROWS];

/// What waits between instructions on tiles; it begins with a line of the cache.
#[repr(align(64))]
struct Memory {
    /// By tile of queries.
    scores: [[Scores; ROWS]; TILES],
    shares: [[Shares; ROWS]; TILES],
    dots: [Dots; SUMS],
}

impl OpFor<Avx512> for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn eval(mut self, s: Avx512) {
        const {
            assert!(
                CHUNK_KEYS == DEPTH && GROUPS.is_multiple_of(SUMS),
                "whole tiles of keys"
            )
        };
        self.strip.begin(s);
        // SAFETY: the only ones of this thread: nothing below makes others.
        let tiles = unsafe { self.token.tiles::<DEPTH>() };
        let mut memory = Memory {
            scores: [[[[0.0; LANES]; GROUPS]; ROWS]; TILES],
            shares: [[[[0; LANES]; BLOCK_KEYS / CHUNK_KEYS]; ROWS]; TILES],
            dots: [[[MaybeUninit::uninit(); LANES]; ROWS]; SUMS],
        };
        let packed = self.strip.packed;
        let whole = (self.strip.queries.len() / packed.sizes.quads() / ROWS).min(TILES);
        let mut found = [[<Sharing as bytemuck::Zeroable>::zeroed(); ROWS / HALF]; TILES];
        for block in 0..packed.sizes.blocks() {
            // Each step for all queries of a strip before the next, as a tile that reads what was just stored waits for it, and the first products of a step for their rows.
            for tile in 0..whole {
                self.score(
                    s,
                    &tiles,
                    block,
                    tile * ROWS,
                    &mut memory.scores[tile],
                    &mut memory.dots,
                );
            }
            for tile in 0..whole {
                ask_for(s, packed.values, packed.sizes, block, [tile, whole]);
                let (scores, _) = memory.scores[tile].as_chunks::<HALF>();
                let (shares, _) = memory.shares[tile].as_chunks_mut::<HALF>();
                for (half, (scores, shares)) in scores.iter().zip(shares).enumerate() {
                    found[tile][half] = self.strip.share(s, tile * ROWS + half * HALF, scores, shares);
                }
            }
            for tile in 0..whole {
                // After the last block the next strip begins with the first.
                let next = (block + 1) % packed.sizes.blocks();
                ask_for(s, packed.keys, packed.sizes, next, [tile, whole]);
                self.add(
                    s,
                    &tiles,
                    block,
                    tile * ROWS,
                    &found[tile],
                    &memory.shares[tile],
                    &mut memory.dots,
                );
            }
            self.strip.rows(s, block, whole * ROWS);
        }
        self.strip.end(s);
    }
}

impl Run<'_> {
    /// The products of queries and keys, times the scales of the keys.
    #[inline(always)]
    fn score(
        &self,
        s: Avx512,
        tiles: &Tiles<DEPTH>,
        block: usize,
        row: usize,
        scores: &mut [Scores; ROWS],
        dots: &mut [Dots; SUMS],
    ) {
        let packed = self.strip.packed;
        let (quads, seen) = (packed.sizes.quads(), packed.sizes.seen(block));
        let queries = &self.strip.queries[row * quads..(row + ROWS) * quads];
        for first in (0..GROUPS).step_by(SUMS) {
            // Behind the last key there are zeros.
            if first * LANES < seen {
                tiles.clear_all();
                for quad in (0..quads).step_by(DEPTH / 4) {
                    // SAFETY: a part of each of 16 rows, as quads are whole tiles.
                    unsafe { tiles.rows_at::<0>(queries[quad..].as_ptr().cast(), quads * 4) };
                    multiply(tiles, |group| {
                        &packed.keys[(block * GROUPS + first + group) * quads + quad..][..DEPTH / 4]
                    });
                }
                store(tiles, dots);
            }
            for (group, dots) in (first..).zip(dots.iter()) {
                if group * LANES >= seen {
                    for scores in scores.iter_mut() {
                        scores[group] = [f32::NEG_INFINITY; LANES];
                    }
                    continue;
                }
                let scale = s.load(&packed.key_scales[block * GROUPS + group]);
                for (dots, scores) in dots.iter().zip(scores.iter_mut()) {
                    // SAFETY: stored above.
                    let dots = unsafe { load(s, dots) };
                    s.store(s.mul(s.to_float(dots), scale), &mut scores[group]);
                }
            }
        }
        mask_behind(s, seen, scores);
    }

    /// Adds the values of a block, times the shares, to the result.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn add(
        &mut self,
        s: Avx512,
        tiles: &Tiles<DEPTH>,
        block: usize,
        row: usize,
        found: &[Sharing; ROWS / HALF],
        shares: &[Shares; ROWS],
        dots: &mut [Dots; SUMS],
    ) {
        let packed = self.strip.packed;
        // Channels are whole tiles, so vectors are whole fours.
        for vector in (0..packed.sizes.vectors()).step_by(SUMS) {
            let first = block * packed.sizes.vectors() + vector;
            tiles.clear_all();
            for chunk in 0..packed.sizes.seen(block).div_ceil(CHUNK_KEYS) {
                // SAFETY: a line of each of 16 queries, as a block has more chunks.
                unsafe { tiles.rows_at::<0>(shares.as_ptr().cast::<Line>().add(chunk).cast(), size_of::<Shares>()) };
                multiply(tiles, |c| {
                    &packed.values[(first + c) * (BLOCK_KEYS / 4) + chunk * (CHUNK_KEYS / 4)..][..CHUNK_KEYS / 4]
                });
            }
            store(tiles, dots);
            for (c, dots) in dots.iter().enumerate() {
                let begin = s.load_i(&packed.value_sums[first + c]);
                for (half, (found, dots)) in found.iter().zip(dots.as_chunks::<HALF>().0).enumerate() {
                    let mut sums = [begin; HALF];
                    for r in 0..HALF {
                        // SAFETY: stored above.
                        sums[r] = s.add_i(unsafe { load(s, &dots[r]) }, begin);
                    }
                    self.strip
                        .add_sums(s, block, row + half * HALF, vector + c, found, &sums);
                }
            }
        }
    }
}

/// Asks for lines of a block that the first tile of queries would wait for otherwise: part `tile` of `whole` equal ones.
#[inline(always)]
fn ask_for(s: Avx512, lines: &[Line], sizes: Sizes, block: usize, [tile, whole]: [usize; 2]) {
    // As many for keys as for values.
    let of_block = BLOCK_KEYS / 4 * sizes.vectors();
    let each = of_block.div_ceil(whole);
    let first = block * of_block + tile * each;
    for line in first..lines.len().min(first + each) {
        s.prefetch(lines.as_ptr().wrapping_add(line).cast());
    }
}

/// Adds the products of the rows with four tiles of lines to the sums.
#[inline(always)]
fn multiply<'a>(tiles: &Tiles<DEPTH>, lines: impl Fn(usize) -> &'a [Line]) {
    let lines = |i| bytemuck::cast_slice(lines(i));
    tiles.lines::<0>(lines(0));
    tiles.dot::<0, 0, 0>();
    tiles.lines::<1>(lines(1));
    tiles.dot::<1, 0, 1>();
    tiles.lines::<0>(lines(2));
    tiles.dot::<2, 0, 0>();
    tiles.lines::<1>(lines(3));
    tiles.dot::<3, 0, 1>();
}

#[inline(always)]
fn store(tiles: &Tiles<DEPTH>, [a, b, c, d]: &mut [Dots; SUMS]) {
    tiles.store::<0>(a);
    tiles.store::<1>(b);
    tiles.store::<2>(c);
    tiles.store::<3>(d);
}

/// A row of a tile.
///
/// # Safety
/// It is stored.
#[inline(always)]
unsafe fn load(s: Avx512, dots: &[MaybeUninit<i32>; LANES]) -> <Avx512 as Simd>::I {
    // SAFETY: this function's contract.
    s.load_i(unsafe { &*dots.as_ptr().cast::<Line>() })
}
