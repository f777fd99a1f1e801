//! The key-value cache: its layout in memory, and appending to it.
//!
//! Purpose: memory that the runtime owns and that only this crate reads. Positions lie in blocks of [`BLOCK_TOKENS`], aligned
//! to absolute positions, and blocks in pages: equal stretches of one memory that many sequences share. A sequence says in a
//! table which page holds each of its blocks, so it takes memory as it grows, and sequences with a common beginning can have
//! the same pages there. A page can hold the blocks of many layers; [`KvLayout::placed`] says where in it those of one are.
//! A layer's part of a page has one contiguous stretch for each KV head, then the references of all heads.
//!
//! # Blocks of [`KvDType::I8G32`]
//!
//! With `dim` = head_dim rounded up to a multiple of 32 (the rest zeros) and `groups = dim / 32`:
//!
//! | Part | Elements |
//! |---|---|
//! | key scales | `f32 [groups][64]` |
//! | keys | `i8 [4][dim/4][16][4]`: 16 positions beside each other, quads of the dimension |
//! | value scales | `f32 [groups][64]` |
//! | values | `i8 [16][dim][4]`: quads of positions |
//!
//! So both products of attention are dot products of quads with 16 results beside each other. Scales are `max|x| / 127`
//! per group of 32 dimensions, integers `round(x * (127 / max|x|))` as in [`QuantizedRows`](crate::QuantizedRows).
//!
//! Channels of keys that are far larger than the others, which biases make, would take the bits of all that share their
//! scale. Two steps keep them from it:
//!
//! - **Reference.** A block has a reference `f32 [head_dim]`, subtracted from each of its keys; attention adds its product
//!   with the query to all scores of the block. It is made of the key of the block's first position: where the largest
//!   magnitude is above 6 times the mean, the channels above twice the mean; all else is zero. Such channels are the slowly
//!   turning ones of the rotary embedding and hardly change within a block. Positions are therefore appended in order.
//! - **Rotation.** What is left is rotated, and so are the queries: in runs of 128, 64 or 32 dimensions (those of
//!   [`cactus_quant::cq::groups`]) signs are flipped and the Hadamard transform is taken (Ashkboos et al. 2024, `QuaRot`).
//!   Scales of keys carry its factor `1/d`, so products stay what they were.
//!
//! References lie behind the stretches of all heads, `[kv_heads][dim]`.
//!
//! # Blocks of [`KvDType::F16`]
//!
//! With `dim` = head_dim rounded up to a multiple of 16: keys `f16 [4][dim][16]`, then values `f16 [64][dim]`.

use crate::error::{Error, ErrorKind, Result};
use crate::exec::{Exec, SharedMut, check_strided};
use crate::matmul::{Cell, quantize_group, rotate_vectors};
use crate::parts::{part_count, part_range};
use crate::stack::Stack;
use cactus_base::checked;
use cactus_quant::cq::{CQ_GROUP, groups};
use cactus_simd::{Op, Simd};
use std::ops::Range;

/// Positions of a block, the unit of capacity and of attention.
pub const BLOCK_TOKENS: usize = 64;
/// Largest head dimension.
pub const MAX_HEAD_DIM: usize = 512;
/// Elements that share a scale.
pub(crate) const GROUP: usize = 32;
/// A key has outliers where its largest magnitude is more than this times the mean.
const OUTLIER: f32 = 6.0;
/// Of a key with outliers, the channels whose magnitude is more than this times the mean go into the reference.
const LARGE: f32 = 2.0;

/// How keys and values are stored.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvDType {
    /// 8-bit integers with an `f32` scale per group of 32 along the head dimension.
    I8G32,
    /// Half precision.
    F16,
}

/// Shape of the keys and values of one layer, and where in a page their blocks lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvLayout {
    kv_heads: usize,
    head_dim: usize,
    dtype: KvDType,
    bytes: usize,
    offset: usize,
    page_bytes: usize,
}

impl KvLayout {
    /// The layout of a layer whose blocks have pages of their own.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidShape`] for a head dimension outside of 1 to [`MAX_HEAD_DIM`], no heads, or sizes beyond the
    /// address space.
    pub fn new(kv_heads: usize, head_dim: usize, dtype: KvDType) -> Result<Self> {
        let invalid = |context: String| Error::new(ErrorKind::InvalidShape, context);
        if head_dim == 0 || head_dim > MAX_HEAD_DIM {
            return Err(invalid(format!(
                "head dimension: expected 1 to {MAX_HEAD_DIM}, found {head_dim}"
            )));
        }
        if kv_heads == 0 {
            return Err(invalid("a KV cache needs at least one head, found 0".to_owned()));
        }
        let mut layout = Self {
            kv_heads,
            head_dim,
            dtype,
            bytes: 0,
            offset: 0,
            page_bytes: 0,
        };
        let head = layout.head_bytes() + layout.reference_bytes();
        layout.bytes = checked::product("KV block bytes", &[kv_heads, head])
            .and_then(|bytes| checked::round_up("KV block bytes", bytes, 64))
            .map_err(|e| invalid(e.to_string()))?;
        layout.page_bytes = layout.bytes;
        Ok(layout)
    }

    /// The same layer's part of pages of `page_bytes`, from byte `offset` of each.
    ///
    /// # Panics
    /// When the part does not fit the page, or offset or page size is no multiple of 64: a programming error.
    #[must_use]
    pub fn placed(mut self, offset: usize, page_bytes: usize) -> Self {
        assert!(
            offset.is_multiple_of(64) && page_bytes.is_multiple_of(64),
            "KV pages are aligned to 64 bytes, found {offset} in {page_bytes}"
        );
        assert!(
            offset.checked_add(self.bytes).is_some_and(|end| end <= page_bytes),
            "{} bytes at {offset} of a page of {page_bytes}",
            self.bytes
        );
        (self.offset, self.page_bytes) = (offset, page_bytes);
        self
    }

    /// Bytes of a block of [`BLOCK_TOKENS`] positions, a multiple of 64. The memory must be aligned to 4 bytes (64 is
    /// faster) and zeroed once.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of KV heads.
    #[must_use]
    pub fn kv_heads(&self) -> usize {
        self.kv_heads
    }

    /// Elements of a head.
    #[must_use]
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Storage type.
    #[must_use]
    pub fn dtype(&self) -> KvDType {
        self.dtype
    }

    /// `head_dim` with padding.
    pub(crate) fn dim(&self) -> usize {
        match self.dtype {
            KvDType::I8G32 => self.head_dim.next_multiple_of(GROUP),
            KvDType::F16 => self.head_dim.next_multiple_of(16),
        }
    }

    /// Bytes of one head of a block.
    fn head_bytes(&self) -> usize {
        let dim = self.dim();
        match self.dtype {
            KvDType::I8G32 => 2 * BLOCK_TOKENS * (dim + dim / GROUP * size_of::<f32>()),
            KvDType::F16 => 2 * BLOCK_TOKENS * dim * size_of::<u16>(),
        }
    }

    /// Bytes of `head` in the block of page `page`.
    #[inline(always)]
    pub(crate) fn head_range(&self, head: usize, page: u32) -> Range<usize> {
        let start = page as usize * self.page_bytes + self.offset + head * self.head_bytes();
        start..start + self.head_bytes()
    }

    /// Bytes of the reference of one head of a block.
    fn reference_bytes(&self) -> usize {
        match self.dtype {
            KvDType::I8G32 => self.dim() * size_of::<f32>(),
            KvDType::F16 => 0,
        }
    }

    /// Bytes of the reference of `head` in the block of page `page`.
    fn reference_range(&self, head: usize, page: u32) -> Range<usize> {
        let behind = self.kv_heads * self.head_bytes() + head * self.reference_bytes();
        let start = page as usize * self.page_bytes + self.offset + behind;
        start..start + self.reference_bytes()
    }

    /// The reference of a block of [`KvDType::I8G32`], `[head_dim]`.
    pub(crate) fn reference<'a>(&self, kv: &'a [u8], head: usize, page: u32) -> &'a [f32] {
        let all: &[f32] = bytemuck::cast_slice(&kv[self.reference_range(head, page)]);
        &all[..self.head_dim.min(all.len())]
    }

    /// Checks memory, and that it holds the pages of the blocks that `runs` need.
    pub(crate) fn check(&self, what: &str, kv: &[u8], runs: &[KvRun<'_>], blocks: impl Fn(&KvRun<'_>) -> Range<usize>) {
        assert!(
            kv.as_ptr().cast::<f32>().is_aligned(),
            "{what}: KV memory is not aligned to 4 bytes"
        );
        let pages = kv.len() / self.page_bytes.max(1);
        for run in runs.iter().filter(|run| run.rows > 0) {
            let blocks = blocks(run);
            assert!(
                blocks.end <= run.pages.len(),
                "{what}: blocks up to {}, {} pages",
                blocks.end,
                run.pages.len()
            );
            for &page in &run.pages[blocks] {
                assert!((page as usize) < pages, "{what}: page {page} of {pages}");
            }
        }
    }
}

/// Consecutive positions of one sequence in a call. The rows of a call are those of its runs, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct KvRun<'a> {
    /// Positions.
    pub rows: usize,
    /// Positions of the sequence before them.
    pub past: usize,
    /// Page of each block of the sequence: position `p` lies in `pages[p / BLOCK_TOKENS]`. Blocks that are neither read
    /// nor written may have any.
    pub pages: &'a [u32],
}

impl KvRun<'_> {
    /// Blocks that hold its positions.
    fn blocks(&self) -> Range<usize> {
        self.past / BLOCK_TOKENS..(self.past + self.rows).div_ceil(BLOCK_TOKENS)
    }
}

/// The parts of a block of [`KvDType::I8G32`].
#[derive(Clone, Copy)]
pub(crate) struct Int8Block<'a> {
    /// `[groups][4][16]`
    pub(crate) key_scales: &'a [[f32; 16]],
    /// `[4][dim/4]`
    pub(crate) keys: &'a [[i8; 64]],
    /// `[groups][4][16]`
    pub(crate) value_scales: &'a [[f32; 16]],
    /// `[16][dim/16]`
    pub(crate) values: &'a [[i8; 64]],
}

impl<'a> Int8Block<'a> {
    #[inline(always)]
    pub(crate) fn new(bytes: &'a [u8], dim: usize) -> Self {
        let scale_bytes = dim / GROUP * BLOCK_TOKENS * size_of::<f32>();
        let (key_scales, rest) = bytes.split_at(scale_bytes);
        let (keys, rest) = rest.split_at(BLOCK_TOKENS * dim);
        let (value_scales, values) = rest.split_at(scale_bytes);
        Self {
            key_scales: bytemuck::cast_slice(key_scales),
            keys: bytemuck::cast_slice(keys),
            value_scales: bytemuck::cast_slice(value_scales),
            values: bytemuck::cast_slice(&values[..BLOCK_TOKENS * dim]),
        }
    }
}

/// The parts of a block of [`KvDType::F16`].
#[derive(Clone, Copy)]
pub(crate) struct HalfBlock<'a> {
    /// `[4][dim]`
    pub(crate) keys: &'a [[u16; 16]],
    /// `[64][dim/16]`
    pub(crate) values: &'a [[u16; 16]],
}

impl<'a> HalfBlock<'a> {
    #[inline(always)]
    pub(crate) fn new(bytes: &'a [u8], dim: usize) -> Self {
        let (keys, values) = bytes.split_at(BLOCK_TOKENS * dim * size_of::<u16>());
        Self {
            keys: bytemuck::cast_slice(keys),
            values: bytemuck::cast_slice(values),
        }
    }
}

impl Exec<'_> {
    /// Stores keys and values of the positions of `runs` in their pages of the memory `kv`.
    ///
    /// `k` and `v` hold a row for each position of the runs in order, `k_stride` and `v_stride` elements apart, each beginning
    /// with `[kv_heads, head_dim]`. The positions of a sequence are appended in order.
    ///
    /// # Panics
    /// When a slice is too short, the memory is not aligned to 4 bytes, a page is missing or beyond the memory, or two runs
    /// write to one page.
    #[allow(clippy::too_many_arguments)]
    pub fn kv_append(
        &self,
        layout: &KvLayout,
        kv: &mut [u8],
        runs: &[KvRun<'_>],
        k: &[f32],
        k_stride: usize,
        v: &[f32],
        v_stride: usize,
    ) {
        layout.check("kv_append", kv, runs, |run| run.blocks());
        check_apart(runs);
        let rows = runs.iter().map(|run| run.rows).sum();
        let width = layout.kv_heads * layout.head_dim;
        check_strided("kv_append keys", k.len(), rows, k_stride, width);
        check_strided("kv_append values", v.len(), rows, v_stride, width);
        let units: usize = runs.iter().map(|run| layout.kv_heads * run.blocks().len()).sum();
        if rows == 0 {
            return;
        }
        let splits = part_count(self.step.width(), rows, width) > 1;
        let parts = if splits { units } else { 1 };
        let kernels = self.kernels;
        let memory = SharedMut::new(kv);
        self.step.run(parts, &|part| {
            let mut units = part_range(units, parts, part);
            let mut first_row = 0;
            for run in runs {
                let count = layout.kv_heads * run.blocks().len();
                let of_run = units.start.min(count)..units.end.min(count);
                if run.rows > 0 && !of_run.is_empty() {
                    kernels.run(AppendUnits {
                        layout,
                        memory: &memory,
                        run,
                        units: of_run,
                        k: &k[first_row * k_stride..],
                        k_stride,
                        v: &v[first_row * v_stride..],
                        v_stride,
                    });
                }
                first_row += run.rows;
                units = units.start.saturating_sub(count)..units.end.saturating_sub(count);
            }
        });
    }
}

/// Checks that no page is written for two blocks.
fn check_apart(runs: &[KvRun<'_>]) {
    for (i, run) in runs.iter().enumerate() {
        let written = &run.pages[run.blocks()];
        for (j, page) in written.iter().enumerate() {
            let again = written[j + 1..].contains(page)
                || runs[i + 1..]
                    .iter()
                    .any(|other| other.pages[other.blocks()].contains(page));
            assert!(!again, "kv_append: page {page} is written for two blocks");
        }
    }
}

/// Stores some heads of some blocks of a run.
struct AppendUnits<'a> {
    layout: &'a KvLayout,
    memory: &'a SharedMut<'a, u8>,
    run: &'a KvRun<'a>,
    /// Heads of the first block, of the second, and so on. No others store them meanwhile.
    units: Range<usize>,
    /// From the first row of the run on.
    k: &'a [f32],
    k_stride: usize,
    v: &'a [f32],
    v_stride: usize,
}

impl Op for AppendUnits<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(mut self, s: S) {
        // What a single position goes to lies on lines far from each other, which are on their way together like this.
        if self.run.rows == 1 {
            for unit in self.units.clone() {
                self.unit(unit).fetch(s);
            }
        }
        for unit in self.units.clone() {
            self.unit(unit).store(s);
        }
    }
}

impl AppendUnits<'_> {
    /// A unit, of which there is one at a time.
    #[inline(always)]
    fn unit(&mut self, unit: usize) -> Append<'_> {
        let (layout, run) = (self.layout, self.run);
        let (head, block) = (unit % layout.kv_heads, run.past / BLOCK_TOKENS + unit / layout.kv_heads);
        let positions = (block * BLOCK_TOKENS).max(run.past)..((block + 1) * BLOCK_TOKENS).min(run.past + run.rows);
        let page = run.pages[block];
        // SAFETY: units differ in head or in block, no page is that of two blocks (`check_apart`), a unit is with one thread, and the
        // result borrows all units of it.
        let out = unsafe { self.memory.piece(layout.head_range(head, page)) };
        // SAFETY: as above, and references lie behind the heads.
        let reference = unsafe { self.memory.piece(layout.reference_range(head, page)) };
        let row = positions.start - run.past;
        Append {
            layout,
            k: &self.k[row * self.k_stride + head * layout.head_dim..],
            k_stride: self.k_stride,
            v: &self.v[row * self.v_stride + head * layout.head_dim..],
            v_stride: self.v_stride,
            positions,
            out,
            reference: bytemuck::cast_slice_mut(reference),
        }
    }
}

/// Quantizes some positions of one head into one block.
struct Append<'a> {
    layout: &'a KvLayout,
    positions: Range<usize>,
    k: &'a [f32],
    k_stride: usize,
    v: &'a [f32],
    v_stride: usize,
    out: &'a mut [u8],
    reference: &'a mut [f32],
}

impl Append<'_> {
    #[inline(always)]
    fn store<S: Simd>(self, s: S) {
        match self.layout.dtype {
            KvDType::I8G32 => self.int8(s),
            KvDType::F16 => self.half(s),
        }
    }

    /// Asks for the lines that the first position is stored on.
    #[inline(always)]
    fn fetch<S: Simd>(&self, s: S) {
        let (dim, slot) = (self.layout.dim(), self.positions.start % BLOCK_TOKENS);
        let (keys, values) = self.out.split_at(self.out.len() / 2);
        let lines = |bytes: &[u8], range: Range<usize>| {
            for line in bytes[range].chunks(64) {
                s.prefetch_l2(line.as_ptr());
            }
        };
        match self.layout.dtype {
            KvDType::I8G32 => {
                let groups = dim / GROUP;
                let scales = groups * BLOCK_TOKENS * size_of::<f32>();
                for g in 0..groups {
                    let scale = (g * BLOCK_TOKENS + slot) * size_of::<f32>();
                    lines(keys, scale..scale + 1);
                    lines(values, scale..scale + 1);
                }
                lines(&keys[scales..], slot / 16 * dim * 16..(slot / 16 + 1) * dim * 16);
                lines(&values[scales..], slot / 4 * dim * 4..(slot / 4 + 1) * dim * 4);
                lines(bytemuck::cast_slice(self.reference), 0..dim * size_of::<f32>());
            }
            KvDType::F16 => {
                lines(keys, slot / 16 * dim * 32..(slot / 16 + 1) * dim * 32);
                lines(values, slot * dim * 2..(slot + 1) * dim * 2);
            }
        }
    }

    #[inline(always)]
    fn int8<S: Simd>(self, s: S) {
        let (dim, head_dim) = (self.layout.dim(), self.layout.head_dim);
        let groups = dim / GROUP;
        let (key_part, value_part) = self.out.split_at_mut(BLOCK_TOKENS * (dim + groups * size_of::<f32>()));
        let (key_scales, keys) = key_part.split_at_mut(groups * BLOCK_TOKENS * size_of::<f32>());
        let (value_scales, values) = value_part.split_at_mut(groups * BLOCK_TOKENS * size_of::<f32>());
        let key_scales: &mut [f32] = bytemuck::cast_slice_mut(key_scales);
        let value_scales: &mut [f32] = bytemuck::cast_slice_mut(value_scales);
        let mut rotated = Rotated::memory();
        for (row, position) in self.positions.clone().enumerate() {
            let slot = position % BLOCK_TOKENS;
            let key = &self.k[row * self.k_stride..][..head_dim];
            if slot == 0 {
                set_reference(s, key, self.reference);
            }
            let mut difference_memory = Stack::<f32, MAX_HEAD_DIM>::new();
            let difference = difference_memory.zeroed(head_dim);
            for ((difference, key), reference) in difference.iter_mut().zip(key).zip(&*self.reference) {
                *difference = key - reference;
            }
            rotated.set(s, difference, dim);
            for g in 0..groups {
                let span = g * GROUP..((g + 1) * GROUP).min(head_dim);
                let mut key = rotated.quantized(s, g);
                key.scale *= rotated.factor(g);
                let value = quantize_part(s, &self.v[row * self.v_stride..][span]);
                key_scales[g * BLOCK_TOKENS + slot] = key.scale;
                value_scales[g * BLOCK_TOKENS + slot] = value.scale;
                let quads = &mut keys[(slot / 16 * (dim / 4) + g * 8) * 64..][..8 * 64];
                for (quad, bytes) in quads.chunks_exact_mut(64).zip(key.quads) {
                    quad[slot % 16 * 4..][..4].copy_from_slice(&bytes.to_ne_bytes());
                }
                let lanes = &mut values[(slot / 4 * dim + g * GROUP) * 4..][..GROUP * 4];
                for (lane, byte) in lanes.chunks_exact_mut(4).zip(bytemuck::bytes_of(&value.quads)) {
                    lane[slot % 4] = *byte;
                }
            }
        }
    }

    #[inline(always)]
    fn half<S: Simd>(self, s: S) {
        let (dim, head_dim) = (self.layout.dim(), self.layout.head_dim);
        let (keys, values) = self.out.split_at_mut(BLOCK_TOKENS * dim * size_of::<u16>());
        let keys: &mut [u16] = bytemuck::cast_slice_mut(keys);
        let values: &mut [u16] = bytemuck::cast_slice_mut(values);
        for (row, position) in self.positions.clone().enumerate() {
            let slot = position % BLOCK_TOKENS;
            for d in (0..dim).step_by(16) {
                let span = d..(d + 16).min(head_dim);
                let mut bits = [0; 16];
                s.store_f16(s.load_partial(&self.k[row * self.k_stride..][span.clone()]), &mut bits);
                let lanes = &mut keys[(slot / 16 * dim + d) * 16..][..16 * 16];
                for (lane, bits) in lanes.chunks_exact_mut(16).zip(bits) {
                    lane[slot % 16] = bits;
                }
                s.store_f16(s.load_partial(&self.v[row * self.v_stride..][span]), &mut bits);
                values[slot * dim + d..][..16].copy_from_slice(&bits);
            }
        }
    }
}

/// Makes the reference of a block from the key of its first position, `key [head_dim]`: its large channels where it has
/// outliers, else zeros.
#[inline(always)]
fn set_reference<S: Simd>(s: S, key: &[f32], reference: &mut [f32]) {
    let (mut sum, mut max) = (s.zero(), s.zero());
    for line in key.chunks(16) {
        let magnitude = s.abs(s.load_partial(line));
        sum = s.add(sum, magnitude);
        max = s.max(max, magnitude);
    }
    let mean = s.reduce_sum(sum) / key.len() as f32;
    let has_outliers = s.reduce_max(max) > OUTLIER * mean;
    for (reference, &key) in reference.iter_mut().zip(key) {
        *reference = if has_outliers && key.abs() > LARGE * mean {
            key
        } else {
            0.0
        };
    }
}

/// A head of keys or queries as it is before it becomes integers.
pub(crate) struct Rotated {
    x: Stack<f32, MAX_HEAD_DIM>,
    dim: usize,
}

impl Rotated {
    /// Memory for heads, one after the other.
    #[inline(always)]
    pub(crate) fn memory() -> Self {
        let x = Stack::new();
        Self { x, dim: 0 }
    }

    /// The head `x`, filled up with zeros to `dim` dimensions, a multiple of [`GROUP`], and rotated.
    #[inline(always)]
    pub(crate) fn set<S: Simd>(&mut self, s: S, x: &[f32], dim: usize) {
        self.dim = dim;
        let rotated = self.x.zeroed(dim);
        for (start, d) in groups(dim) {
            let mut part = [0.0; CQ_GROUP];
            let known = &x[start.min(x.len())..x.len().min(start + d)];
            part[..known.len()].copy_from_slice(known);
            let out = &mut rotated[start..start + d];
            match d {
                128 => store(s, rotate_vectors::<S, 8>(s, &part), out),
                64 => store(s, rotate_vectors::<S, 4>(s, &part), out),
                _ => store(s, rotate_vectors::<S, 2>(s, &part), out),
            }
        }
    }

    /// The integers of group `g`.
    #[inline(always)]
    pub(crate) fn quantized<S: Simd>(&self, s: S, g: usize) -> Cell {
        // SAFETY: `set` initialized all dimensions.
        let x = unsafe { self.x.initialized(self.dim) };
        quantize_part(s, &x[g * GROUP..(g + 1) * GROUP])
    }

    /// `1/d` of the run that holds group `g`: what the product of two rotated vectors is to be multiplied with.
    #[inline(always)]
    fn factor(&self, g: usize) -> f32 {
        let run = groups(self.dim).find(|&(start, d)| (start..start + d).contains(&(g * GROUP)));
        run.map_or(1.0, |(_, d)| 1.0 / d as f32)
    }
}

#[inline(always)]
fn store<S: Simd, const V: usize>(s: S, v: [S::F; V], out: &mut [f32]) {
    for (v, out) in v.into_iter().zip(out.as_chunks_mut::<16>().0) {
        s.store(v, out);
    }
}

/// Quantizes up to 32 elements, filled up with zeros.
#[inline(always)]
fn quantize_part<S: Simd>(s: S, x: &[f32]) -> Cell {
    match x.first_chunk::<GROUP>() {
        Some(group) => quantize_group(s, group),
        None => {
            let mut group = [0.0; GROUP];
            group[..x.len()].copy_from_slice(x);
            quantize_group(s, &group)
        }
    }
}
