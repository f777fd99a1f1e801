//! Attention without a cache on bytes: queries, keys, values and shares of a softmax in eight bits, sums in integers.
//!
//! Purpose: encoders in which every position sees every other, where products in `f32` take most of the time. Smooth keys are those of `SageAttention`
//! (Zhang et al. 2024); the rest is the online softmax of the neighbor [`super::attention_strip`], with shares in integers.
//!
//! - Keys: each channel's mean over all keys is taken away first. That shifts all scores of a query alike, so a softmax does not see it,
//!   and what is left is smaller. Each whole 16 channels of keys and of queries are rotated (signs and a Hadamard transform, as in `QuaRot`, Ashkboos et al. 2024), so that
//!   a large one does not cost the others their bits. A scale for each key; a scale for each query. Dot products are exact, and a score is one product with each scale.
//! - Shares: in a block of [`BLOCK_KEYS`] keys the largest score has the share 254, and the others theirs, rounded to integers. They are stored less 127, as products of signed
//!   bytes are exact on every tier; the sums of a channel make up for that. So shares of a block
//!   that holds no large score are as fine as those of any other, and the block as a whole is weighed by a float. Beside one large score all others of a block
//!   may round to zero, though they are a good part together: what the shares of a block are before they are rounded, less what they are then, goes to the mean of its values.
//! - Values: each channel's mean over all keys is taken away, and added to the result. A scale for each channel and block.
//!
//! It deliberately takes nothing beside queries, keys and values: no mask, bias, cap or sink ([`DenseAttention::integers`]). A query that is not finite gives
//! NaN, a key that is not gives NaN everywhere in its head, a value in its channel.
//!
//! Where the CPU multiplies tiles (AMX) `x86` computes the same.
//!
//! The bits do not depend on the tier nor on how queries are shared out: what is not an integer sum is one chain, 16 and the fixed tree, or the rotation's stages.

use super::DenseAttention;
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::exec::{Exec, Kernels, SharedMut};
use crate::math;
use crate::matmul::wide_blocks;
use cactus_quant::cq::rotation::SIGNS;
#[cfg(target_arch = "x86_64")]
use cactus_simd::Isa;
use cactus_simd::{LANES, Op, Simd};
use std::ops::Range;

/// Keys that are scored before their values are added, and whose values share scales.
pub(super) const BLOCK_KEYS: usize = 128;
/// Keys whose shares are stored at once.
pub(super) const CHUNK_KEYS: usize = 64;
/// Queries of a register tile.
const TILE_QUERIES: usize = 6;
/// Queries of a strip: keys and values are read from afar once for so many.
pub(super) const STRIP_QUERIES: usize = 48;
/// Binary logarithm of 254, the share of the largest score of a block.
const LOG2_TOP_SHARE: f32 = 7.988_684_7;
/// What is taken away from shares, so that they are signed bytes.
const SHARE_SHIFT: i32 = 127;
/// Largest magnitude of a quantized number.
const TOP_BYTE: f32 = 127.0;
/// Below it a row or channel is zeros, as its inverse would be no number.
const LEAST: f32 = 1e-30;

/// A line: four bytes in each of 16 lanes.
pub(super) type Line = [i32; LANES];
/// The scores of a query for a block of keys.
pub(super) type Scores = [[f32; LANES]; BLOCK_KEYS / LANES];
/// Its shares, four in a word.
pub(super) type Shares = [Line; BLOCK_KEYS / CHUNK_KEYS];

/// What one call needs for one head of keys, and where it lies.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    keys: usize,
    width: usize,
}

impl Sizes {
    /// Blocks of keys.
    pub(super) fn blocks(self) -> usize {
        self.keys.div_ceil(BLOCK_KEYS)
    }

    /// Keys of a block.
    pub(super) fn seen(self, block: usize) -> usize {
        BLOCK_KEYS.min(self.keys - block * BLOCK_KEYS)
    }

    /// Quads of channels.
    pub(super) fn quads(self) -> usize {
        self.width.div_ceil(4)
    }

    /// Vectors of channels.
    pub(super) fn vectors(self) -> usize {
        self.width.div_ceil(LANES)
    }
}

/// Keys and values of a head in bytes.
pub(super) struct Packed<'a> {
    pub(super) sizes: Sizes,
    /// For each 16 keys a line of each quad of channels.
    pub(super) keys: &'a mut [Line],
    /// Of each key.
    pub(super) key_scales: &'a mut [[f32; LANES]],
    /// Of each channel; memory for packing alone.
    key_means: &'a mut [[f32; LANES]],
    /// For each block and vector of channels a line of each quad of keys.
    pub(super) values: &'a mut [Line],
    /// For each block, the sum of each channel's bytes times [`SHARE_SHIFT`].
    pub(super) value_sums: &'a mut [Line],
    /// For each block, of each channel.
    value_scales: &'a mut [[f32; LANES]],
    /// Of each channel; NaN where a value is not finite.
    value_means: &'a mut [[f32; LANES]],
    /// Zero, or NaN where a key is not finite.
    poison: &'a mut f32,
}

/// A row of every position of a head: `width` elements at `position * stride`.
#[derive(Clone, Copy)]
struct Rows<'a> {
    data: &'a [f32],
    stride: usize,
    width: usize,
}

impl<'a> Rows<'a> {
    /// 16 elements of a row, fewer at its end.
    #[inline(always)]
    fn vector<S: Simd>(self, s: S, position: usize, vector: usize) -> S::F {
        let row: &'a [f32] = &self.data[position * self.stride..][..self.width];
        s.load_partial(&row[vector * LANES..])
    }
}

/// Sixteen elements rotated, which keeps their length. Queries and keys are rotated alike, so their products stay.
#[inline(always)]
fn rotated<S: Simd>(s: S, x: S::F) -> S::F {
    let (signs, _) = SIGNS.as_chunks();
    let flipped = s.floats(s.xor_i(s.bits(x), s.load_i(&signs[0])));
    s.mul(s.hadamard_lanes(flipped), s.splat(0.25))
}

/// Makes bytes of a row of `width` floats, after rotating each whole 16 of them. `put` takes four words of each vector, and a poison that is
/// NaN where a number is not finite is added to; returned is the scale.
#[inline(always)]
fn row_as_bytes<S: Simd>(
    s: S,
    floats: &mut [[f32; LANES]],
    width: usize,
    poison: &mut S::F,
    mut put: impl FnMut(usize, [i32; 4]),
) -> f32 {
    let mut size = s.zero();
    for (vector, floats) in floats.iter_mut().enumerate() {
        let mut x = s.load(floats);
        if (vector + 1) * LANES <= width {
            x = rotated(s, x);
        }
        *poison = s.fma(x, s.zero(), *poison);
        size = s.max(s.abs(x), size);
        s.store(x, floats);
    }
    let (scale, inverse) = scales(s.reduce_max(size));
    for (vector, x) in floats.iter().enumerate() {
        put(vector, bytes(s, s.mul(s.load(x), s.splat(inverse))));
    }
    scale
}

/// Packs a head.
struct Pack<'a, 'b> {
    k: Rows<'a>,
    v: Rows<'a>,
    /// Memory for a row that becomes bytes.
    floats: &'b mut [[f32; LANES]],
    to: &'b mut Packed<'a>,
}

impl Op for Pack<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let to = self.to;
        means(s, self.k, to.sizes.keys, to.key_means);
        pack_keys(s, self.k, self.floats, to);
        means(s, self.v, to.sizes.keys, to.value_means);
        pack_values(s, self.v, to);
    }
}

/// The mean of each channel, each one chain.
#[inline(always)]
fn means<S: Simd>(s: S, rows: Rows<'_>, count: usize, means: &mut [[f32; LANES]]) {
    let share = s.splat(1.0 / count as f32);
    for (vector, mean) in means.iter_mut().enumerate() {
        let mut sum = s.zero();
        for position in 0..count {
            sum = s.add(sum, rows.vector(s, position, vector));
        }
        s.store(s.mul(sum, share), mean);
    }
}

#[inline(always)]
fn pack_keys<S: Simd>(s: S, rows: Rows<'_>, floats: &mut [[f32; LANES]], to: &mut Packed<'_>) {
    let quads = to.sizes.quads();
    // What lies behind the last key is never seen, but read.
    to.keys.fill([0; LANES]);
    to.key_scales.fill([0.0; LANES]);
    let mut poison = s.zero();
    for key in 0..to.sizes.keys {
        let lines = &mut to.keys[key / LANES * quads..][..quads];
        for (vector, (floats, mean)) in floats.iter_mut().zip(&*to.key_means).enumerate() {
            s.store(s.sub(rows.vector(s, key, vector), s.load(mean)), floats);
        }
        let put = |vector: usize, words: [i32; 4]| {
            for (line, word) in lines[4 * vector..].iter_mut().zip(words) {
                line[key % LANES] = word;
            }
        };
        to.key_scales[key / LANES][key % LANES] = row_as_bytes(s, floats, rows.width, &mut poison, put);
    }
    *to.poison = s.reduce_sum(poison);
}

#[inline(always)]
fn pack_values<S: Simd>(s: S, rows: Rows<'_>, to: &mut Packed<'_>) {
    let (vectors, nothing, low) = (to.sizes.vectors(), s.zero(), s.splat_i(255));
    for (vector, mean) in to.value_means.iter_mut().enumerate() {
        let (center, mut poison) = (s.load(mean), nothing);
        for block in 0..to.sizes.blocks() {
            let keys = block * BLOCK_KEYS..to.sizes.keys.min((block + 1) * BLOCK_KEYS);
            let mut size = nothing;
            for key in keys.clone() {
                let x = s.sub(rows.vector(s, key, vector), center);
                size = s.max(s.abs(x), size);
                poison = s.fma(x, nothing, poison);
            }
            let is_something = s.le(s.splat(LEAST), size);
            let inverse = s.select(is_something, s.div(s.splat(TOP_BYTE), size), nothing);
            let scale = s.select(is_something, s.mul(size, s.splat(1.0 / TOP_BYTE)), nothing);
            let at = block * vectors + vector;
            s.store(scale, &mut to.value_scales[at]);
            let lines = &mut to.values[at * (BLOCK_KEYS / 4)..][..BLOCK_KEYS / 4];
            let mut sum = s.splat_i(0);
            for (quad, line) in lines.iter_mut().enumerate() {
                let mut four = [s.splat_i(0); 4];
                for (i, four) in four.iter_mut().enumerate() {
                    let key = keys.start + quad * 4 + i;
                    if key < keys.end {
                        let x = s.sub(rows.vector(s, key, vector), center);
                        let byte = s.to_int(s.mul(x, inverse));
                        sum = s.add_i(sum, byte);
                        *four = s.and_i(byte, low);
                    }
                }
                let [a, b, c, d] = four;
                let (ab, cd) = (s.or_i(a, s.shl_i::<8>(b)), s.or_i(c, s.shl_i::<8>(d)));
                s.store_i(s.or_i(ab, s.shl_i::<16>(cd)), line);
            }
            s.store_i(s.sub_i(s.shl_i::<7>(sum), sum), &mut to.value_sums[at]);
        }
        s.store(s.add(center, poison), mean);
    }
}

/// The scale of numbers up to `size`, and what makes them bytes.
#[inline(always)]
fn scales(size: f32) -> (f32, f32) {
    match size >= LEAST {
        true => (size * (1.0 / TOP_BYTE), TOP_BYTE / size),
        false => (0.0, 0.0),
    }
}

/// 16 numbers up to 127 as bytes, four in a word.
#[inline(always)]
fn bytes<S: Simd>(s: S, x: S::F) -> [i32; 4] {
    let mut bytes = [0; LANES];
    s.store_i8(s.to_int(x), &mut bytes);
    bytemuck::cast(bytes)
}

/// Queries of one head, against all of its keys.
pub(super) struct Strip<'a> {
    pub(super) packed: &'a Packed<'a>,
    /// A row for each query, and what products of queries and keys are multiplied by to become exponents of two.
    rows: Rows<'a>,
    factor: f32,
    /// As in [`Pack`].
    floats: &'a mut [[f32; LANES]],
    /// A word of each quad of channels for each query.
    pub(super) queries: &'a mut [i32],
    /// What the kernel keeps of each query.
    state: &'a mut [Query],
    /// Shares of each query, relative to that of its largest score, in 16 sums.
    totals: &'a mut [[f32; LANES]],
    /// The result, `[queries, vectors]`.
    out: &'a mut [[f32; LANES]],
}

/// What is kept of a query.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Query {
    /// Sum of its bytes.
    sum: i32,
    /// Exponent of two that one unit of a product with a key, times the key's scale, is.
    scale: f32,
    /// Largest exponent so far.
    most: f32,
    /// Zero, or NaN where it is not finite.
    poison: f32,
}

/// Elements of a [`Query`] in scratch memory.
const QUERY_ELEMS: usize = size_of::<Query>() / 4;

impl Op for Strip<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(mut self, s: S) {
        self.begin(s);
        for block in 0..self.packed.sizes.blocks() {
            self.rows(s, block, 0);
        }
        self.end(s);
    }
}

impl Strip<'_> {
    /// Runs a strip, by tiles where the CPU has them.
    fn run(self, kernels: &Kernels) {
        #[cfg(target_arch = "x86_64")]
        if let Isa::Amx(token) = kernels.isa()
            && x86::serves_queries(self.state.len(), self.packed.sizes.width)
        {
            return token.avx512().run(x86::AttentionRun { token, strip: self });
        }
        kernels.run(self);
    }

    /// Adds a block of keys for all queries from `row` on.
    #[inline(always)]
    pub(super) fn rows<S: Simd>(&mut self, s: S, block: usize, mut row: usize) {
        while row < self.state.len() {
            row += match self.state.len() - row {
                1 => self.tile::<S, 1>(s, block, row),
                2 | 3 => self.tile::<S, 2>(s, block, row),
                _ if wide_blocks::<S>() == 1 => self.tile::<S, 4>(s, block, row),
                4 | 5 | 7 | 8 => self.tile::<S, 4>(s, block, row),
                _ => self.tile::<S, TILE_QUERIES>(s, block, row),
            };
        }
    }

    /// What was added up becomes the result.
    #[inline(always)]
    pub(super) fn end<S: Simd>(&mut self, s: S) {
        let vectors = self.packed.sizes.vectors();
        for ((query, total), row) in (self.state.iter().zip(&*self.totals)).zip(self.out.chunks_exact_mut(vectors)) {
            let total = s.reduce_sum(s.load(total)) + (query.poison + *self.packed.poison);
            for (x, mean) in row.iter_mut().zip(&*self.packed.value_means) {
                s.store(s.add(s.div(s.load(x), s.splat(total)), s.load(mean)), x);
            }
        }
    }

    /// Queries become bytes.
    #[inline(always)]
    pub(super) fn begin<S: Simd>(&mut self, s: S) {
        let sizes = self.packed.sizes;
        let factor = s.splat(self.factor);
        let strip = self.state.len();
        for (row, words) in self.queries.chunks_exact_mut(sizes.quads()).enumerate() {
            // Rows of a head are far apart, so no CPU fetches those of its next strip by itself. After the last one this asks for what nobody needs.
            let next = self.rows.data.as_ptr().wrapping_add((row + strip) * self.rows.stride);
            for line in (0..sizes.width).step_by(LANES) {
                s.prefetch_l2(next.wrapping_add(line).cast());
            }
            let (mut poison, mut sum) = (s.zero(), 0);
            for (vector, floats) in self.floats.iter_mut().enumerate() {
                s.store(s.mul(self.rows.vector(s, row, vector), factor), floats);
            }
            let put = |vector: usize, four: [i32; 4]| {
                sum += four
                    .iter()
                    .flat_map(|word| word.to_ne_bytes())
                    .map(|b| i32::from(b.cast_signed()))
                    .sum::<i32>();
                words[4 * vector..]
                    .iter_mut()
                    .zip(four)
                    .for_each(|(to, word)| *to = word);
            };
            let scale = row_as_bytes(s, self.floats, sizes.width, &mut poison, put);
            self.state[row] = Query {
                sum,
                scale,
                most: f32::NEG_INFINITY,
                poison: s.reduce_sum(poison),
            };
        }
        self.totals.fill([0.0; LANES]);
        self.out.fill([0.0; LANES]);
    }

    /// Adds a block of keys for `R` queries from `row` on; returns `R`.
    #[inline(always)]
    fn tile<S: Simd, const R: usize>(&mut self, s: S, block: usize, row: usize) -> usize {
        let sizes = self.packed.sizes;
        let seen = sizes.seen(block);
        let groups = seen.div_ceil(LANES);
        let mut scores: [Scores; R] = [[[f32::NEG_INFINITY; LANES]; BLOCK_KEYS / LANES]; R];
        let mut group = 0;
        while group < groups {
            group += match groups - group {
                _ if wide_blocks::<S>() == 1 => self.score::<S, R, 1>(s, block, row, group, &mut scores),
                1 => self.score::<S, R, 1>(s, block, row, group, &mut scores),
                2 | 3 => self.score::<S, R, 2>(s, block, row, group, &mut scores),
                _ => self.score::<S, R, 4>(s, block, row, group, &mut scores),
            };
        }
        mask_behind(s, seen, &mut scores);
        let mut shares: [Shares; R] = [[[0; LANES]; BLOCK_KEYS / CHUNK_KEYS]; R];
        let found = self.share(s, row, &scores, &mut shares);
        let (mut vector, all) = (0, sizes.vectors());
        while vector < all {
            vector += match all - vector {
                _ if wide_blocks::<S>() == 1 => self.add::<S, R, 1>(s, block, row, vector, &found, &shares),
                1 => self.add::<S, R, 1>(s, block, row, vector, &found, &shares),
                2 => self.add::<S, R, 2>(s, block, row, vector, &found, &shares),
                3 | 5 | 6 | 9 => self.add::<S, R, 3>(s, block, row, vector, &found, &shares),
                _ => self.add::<S, R, 4>(s, block, row, vector, &found, &shares),
            };
        }
        R
    }

    /// The products of queries and `B` groups of 16 keys, times the scales of the keys; returns `B`.
    #[inline(always)]
    fn score<S: Simd, const R: usize, const B: usize>(
        &self,
        s: S,
        block: usize,
        row: usize,
        group: usize,
        scores: &mut [Scores; R],
    ) -> usize {
        let (quads, first) = (self.packed.sizes.quads(), block * (BLOCK_KEYS / LANES) + group);
        let keys: [&[Line]; B] = std::array::from_fn(|b| &self.packed.keys[(first + b) * quads..][..quads]);
        let queries: [&[i32]; R] = std::array::from_fn(|r| &self.queries[(row + r) * quads..][..quads]);
        let mut dots = [[[s.splat_i(0); B]; R]];
        for r in 0..R {
            dots[0][r] = [s.dot_start(self.state[row + r].sum); B];
        }
        let whole = quads / 4 * 4;
        s.dot_runs::<false, _, _, _>(&mut dots, whole, quads_of(keys), 1, [queries]);
        let [dots] = &mut dots;
        for quad in whole..quads {
            let mut lines = [s.load_quads(bytemuck::cast_ref(&keys[0][quad])); B];
            for b in 1..B {
                lines[b] = s.load_quads(bytemuck::cast_ref(&keys[b][quad]));
            }
            for r in 0..R {
                let query = queries[r][quad];
                for b in 0..B {
                    dots[r][b] = s.dot(dots[r][b], lines[b], query);
                }
            }
        }
        for b in 0..B {
            let scale = s.load(&self.packed.key_scales[first + b]);
            for r in 0..R {
                s.store(s.mul(s.to_float(dots[r][b]), scale), &mut scores[r][group + b]);
            }
        }
        B
    }

    /// Makes scores of `R` queries shares relative to that of the block's largest, and adds the shares up.
    #[inline(always)]
    pub(super) fn share<S: Simd, const R: usize>(
        &mut self,
        s: S,
        row: usize,
        scores: &[Scores; R],
        shares: &mut [Shares; R],
    ) -> Sharing {
        let (mut tops, mut exponents) = ([0.0; LANES], [0.0; LANES]);
        let mut most = [s.zero(); R];
        for r in 0..R {
            most[r] = s.load(&scores[r][0]);
            for group in &scores[r][1..] {
                most[r] = s.max(s.load(group), most[r]);
            }
        }
        s.store(s.reduce_maxima(most), &mut tops);
        for r in 0..R {
            let query = &mut self.state[row + r];
            let (found, before) = (tops[r] * query.scale, query.most);
            let most = if found > before { found } else { before };
            query.most = most;
            (exponents[r], exponents[8 + r]) = (before - most, found - most);
        }
        let mut found = Sharing {
            factors: [0.0; LANES],
            sums: [0; LANES],
            lost: [0.0; LANES],
        };
        s.store(math::exp2_share(s, s.load(&exponents)), &mut found.factors);
        let (highest, shift) = (s.splat(LOG2_TOP_SHARE), s.splat_i(SHARE_SHIFT * BLOCK_KEYS as i32));
        let (mut rounded, mut exact) = ([s.zero(); R], [s.zero(); R]);
        for r in 0..R {
            let (top, scale) = (s.splat(tops[r]), s.splat(self.state[row + r].scale));
            let mut sum = s.splat_i(0);
            for (scores, shares) in scores[r].as_chunks::<4>().0.iter().zip(&mut shares[r]) {
                let mut integers = [s.splat_i(0); 4];
                for (scores, integers) in scores.iter().zip(&mut integers) {
                    let x = s.fma(s.sub(s.load(scores), top), scale, highest);
                    let share;
                    (*integers, share) = math::exp2_byte(s, x, -SHARE_SHIFT as f32);
                    exact[r] = s.add(exact[r], share);
                }
                s.store_bytes(integers, bytemuck::cast_mut(shares));
                sum = s.dot_plain(sum, s.load_quads_plain(bytemuck::cast_ref(shares)), 0x0101_0101);
            }
            rounded[r] = s.to_float(sum);
            let total = &mut self.totals[row + r];
            let before = s.mul(s.load(total), s.splat(found.factors[r]));
            s.store(s.fma(exact[r], s.splat(found.factors[8 + r]), before), total);
        }
        // Integers below 2^24, so exact.
        let sums = s.to_int(s.reduce_sums(rounded));
        s.store_i(sums, &mut found.sums);
        let whole = s.to_float(s.add_i(sums, shift));
        s.store(s.sub(s.reduce_sums(exact), whole), &mut found.lost);
        found
    }

    /// Adds the values of a block, times the shares, to `C` vectors of the result, after it is multiplied by its factor; returns `C`.
    #[inline(always)]
    fn add<S: Simd, const R: usize, const C: usize>(
        &mut self,
        s: S,
        block: usize,
        row: usize,
        vector: usize,
        found: &Sharing,
        shares: &[Shares; R],
    ) -> usize {
        let all = self.packed.sizes.vectors();
        let first = block * all + vector;
        let seen = self.packed.sizes.seen(block);
        // Behind the last 16 keys of which some are seen, shares are stored as the one of nothing, and values are zero.
        let quads = seen.div_ceil(LANES) * (LANES / 4);
        let behind = SHARE_SHIFT * (BLOCK_KEYS - 4 * quads) as i32;
        let values: [&[Line]; C] =
            std::array::from_fn(|c| &self.packed.values[(first + c) * (BLOCK_KEYS / 4)..][..quads]);
        let shares: [&[i32]; R] = std::array::from_fn(|r| &shares[r].as_flattened()[..quads]);
        let mut dots = [[[s.splat_i(0); C]; R]];
        for r in 0..R {
            let start = s.dot_start(found.sums[r] + behind);
            for c in 0..C {
                dots[0][r][c] = s.add_i(start, s.load_i(&self.packed.value_sums[first + c]));
            }
        }
        s.dot_runs::<false, _, _, _>(&mut dots, quads, quads_of(values), 1, [shares]);
        for c in 0..C {
            let mut sums = [s.splat_i(0); R];
            for r in 0..R {
                sums[r] = dots[0][r][c];
            }
            self.add_sums(s, block, row, vector + c, found, &sums);
        }
        C
    }

    /// Adds the sums of a block's values times shares to a vector of the result of `R` queries, after it is multiplied by its factor.
    #[inline(always)]
    pub(super) fn add_sums<S: Simd, const R: usize>(
        &mut self,
        s: S,
        block: usize,
        row: usize,
        vector: usize,
        found: &Sharing,
        sums: &[S::I; R],
    ) {
        let (all, seen) = (self.packed.sizes.vectors(), self.packed.sizes.seen(block));
        let each = s.splat(1.0 / (SHARE_SHIFT as f32 * seen as f32));
        let at = block * all + vector;
        let scale = s.load(&self.packed.value_scales[at]);
        let mean = s.mul(s.to_float(s.load_i(&self.packed.value_sums[at])), each);
        for r in 0..R {
            let out = &mut self.out[(row + r) * all + vector];
            let before = s.mul(s.load(out), s.splat(found.factors[r]));
            let unit = s.mul(scale, s.splat(found.factors[8 + r]));
            let sum = s.fma(mean, s.splat(found.lost[r]), s.to_float(sums[r]));
            s.store(s.fma(sum, unit, before), out);
        }
    }
}

/// Scores of keys behind the last one become those of nothing, in the 16 that are partly seen; others behind have to be.
#[inline(always)]
pub(super) fn mask_behind<S: Simd>(s: S, seen: usize, scores: &mut [Scores]) {
    if seen.is_multiple_of(LANES) {
        return;
    }
    let lanes = s.lanes(0, seen % LANES);
    for scores in scores {
        let last = &mut scores[seen / LANES];
        s.store(s.select(lanes, s.load(last), s.splat(f32::NEG_INFINITY)), last);
    }
}

/// What is found of the shares of a block, by row of a register tile.
#[derive(Clone, Copy, bytemuck::Zeroable)]
pub(super) struct Sharing {
    /// In lane `r` the factor of what was added before, in lane `8 + r` that of the block.
    factors: [f32; LANES],
    /// Sums of the shares as they are stored.
    sums: Line,
    /// What they lost by being rounded, all together.
    lost: [f32; LANES],
}

/// Each of `C` runs of lines as quads.
#[inline(always)]
fn quads_of<const C: usize>(lines: [&[Line]; C]) -> [&[[i8; 64]]; C] {
    let mut quads = [&[][..]; C];
    for c in 0..C {
        quads[c] = bytemuck::cast_slice(lines[c]);
    }
    quads
}

impl DenseAttention {
    fn sizes(&self) -> Sizes {
        let (keys, width) = (self.keys, self.width);
        Sizes { keys, width }
    }

    /// Queries of a strip on bytes.
    fn bytes_strip(&self) -> usize {
        STRIP_QUERIES.min(self.queries)
    }

    /// Elements of what [`Packed`] and [`Strip`] borrow, in the order of their fields but for the floats, which are last; whole lines of the cache.
    fn bytes_elems(&self) -> [usize; 13] {
        let (sizes, strip) = (self.sizes(), self.bytes_strip());
        let (keys, channels) = (sizes.blocks() * BLOCK_KEYS, sizes.vectors() * LANES);
        [
            keys * sizes.quads(),
            keys,
            channels,
            keys / 4 * channels,
            sizes.blocks() * channels,
            sizes.blocks() * channels,
            channels,
            1,
            strip * sizes.quads(),
            strip * QUERY_ELEMS,
            strip * LANES,
            strip * channels,
            channels,
        ]
        .map(|elems: usize| elems.next_multiple_of(LANES))
    }

    /// Elements of scratch memory for a part of the work.
    pub(super) fn bytes_part_elems(&self) -> usize {
        self.bytes_elems().iter().sum()
    }
}

impl Exec<'_> {
    /// Queries `rows` of all heads that share key head `kv` of sequence `b`, on bytes; no other thread may have the same ones.
    pub(super) fn attend_head_bytes(
        &self,
        a: &DenseAttention,
        [q, k, v]: [&[f32]; 3],
        [b, kv]: [usize; 2],
        rows: Range<usize>,
        scratch: &mut [f32],
        out: &SharedMut<'_, f32>,
    ) {
        let (width, sizes) = (a.width, a.sizes());
        let mut rest = scratch;
        let [
            keys,
            key_scales,
            key_means,
            values,
            value_sums,
            value_scales,
            value_means,
            poison,
            queries,
            state,
            totals,
            result,
            floats,
        ] = a.bytes_elems().map(|elems| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(elems);
            rest = others;
            own
        });
        let of_head = |data| Rows {
            data: &<[f32]>::as_ref(data)[(b * a.keys * a.kv_heads + kv) * width..],
            stride: a.kv_heads * width,
            width,
        };
        let mut packed = Packed {
            sizes,
            keys: bytemuck::cast_slice_mut(keys),
            key_scales: key_scales.as_chunks_mut().0,
            key_means: key_means.as_chunks_mut().0,
            values: bytemuck::cast_slice_mut(values),
            value_sums: bytemuck::cast_slice_mut(value_sums),
            value_scales: value_scales.as_chunks_mut().0,
            value_means: value_means.as_chunks_mut().0,
            poison: &mut poison[0],
        };
        self.kernels.run(Pack {
            k: of_head(k),
            v: of_head(v),
            floats: floats.as_chunks_mut().0,
            to: &mut packed,
        });
        let (group, strip) = (a.heads / a.kv_heads, a.bytes_strip());
        for h in kv * group..(kv + 1) * group {
            for start in rows.clone().step_by(strip) {
                let n = strip.min(rows.end - start);
                let at = |i: usize| ((b * a.queries + start + i) * a.heads + h) * width;
                let strip = Strip {
                    packed: &packed,
                    rows: Rows {
                        data: &q[at(0)..],
                        stride: a.heads * width,
                        width,
                    },
                    factor: a.scale * std::f32::consts::LOG2_E,
                    floats: floats.as_chunks_mut().0,
                    queries: &mut bytemuck::cast_slice_mut(queries)[..n * sizes.quads()],
                    state: &mut bytemuck::cast_slice_mut(state)[..n],
                    totals: &mut totals.as_chunks_mut().0[..n],
                    out: &mut result.as_chunks_mut().0[..n * sizes.vectors()],
                };
                strip.run(self.kernels);
                for (i, row) in result.chunks_exact(sizes.vectors() * LANES).take(n).enumerate() {
                    // SAFETY: tasks have disjoint heads or queries.
                    let out = unsafe { out.piece(at(i)..at(i) + width) };
                    out.copy_from_slice(&row[..width]);
                }
            }
        }
    }
}
