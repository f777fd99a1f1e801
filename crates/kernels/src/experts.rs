//! Experts: gated units of which each row takes a few. The rows that take one are gathered, so that its weights are read once.
//!
//! All experts of a call are computed side by side: first what all of them let through, then the way back, each cut into pieces for the threads, which
//! meet between the stages and not at every product. Many rows are computed in waves, which bound the memory. A result is the same however this is
//! cut, as it depends neither on threads nor on other rows.

use crate::exec::SharedMut;
use crate::matmul::{Activations, Epilogue, QuantizedRows, RotatedRows, TILES_FROM};
use crate::parts::{part_count, part_range};
use crate::{Activation, Exec};
use cactus_base::Step;
use cactus_quant::{BLOCK_ROWS, PackedView, Packing};
use cactus_simd::{Op, Simd};
use std::ops::Range;

/// An expert, and what it is taken for.
#[derive(Debug, Clone, Copy)]
pub struct Expert<'a> {
    /// Gate and what it lets through, one above the other, `[2m, n]`.
    pub gate_up: PackedView<'a>,
    /// Back to a row, `[n, m]`.
    pub down: PackedView<'a>,
    /// Added to the results of both, `[2m]` and `[n]`.
    pub biases: Option<[&'a [f32]; 2]>,
    /// Where its results belong: row times the number of experts a row takes, plus which of them it is. No place is that of two.
    pub places: &'a [usize],
}

/// What rows take of experts.
#[derive(Debug, Clone, Copy)]
pub struct Experts<'a> {
    /// Of the gates.
    pub act: Activation,
    /// How many a row takes.
    pub chosen: usize,
    /// Those that some row takes, all with the same shapes and packings.
    pub taken: &'a [Expert<'a>],
    /// What the result of each place counts for.
    pub shares: &'a [f32],
}

/// Elements of a piece of memory are a multiple of so many, so that each begins where a vector may.
const UNIT: usize = 16;
/// Most places of a wave.
const WAVE: usize = 256;

/// What [`Exec::experts_scratch`] depends on.
#[derive(Debug, Clone, Copy)]
pub struct ExpertSizes {
    /// Rows times how many experts each takes.
    pub places: usize,
    /// Packings of both matrices.
    pub packings: [Packing; 2],
    /// Width of a row.
    pub n: usize,
    /// Width within an expert.
    pub m: usize,
}

impl ExpertSizes {
    /// Elements that an expert with so many rows needs: gathered rows, what both halves are, what the gate lets through, and the same as the packing reads it.
    fn pieces(&self, rows: usize) -> [usize; 4] {
        let &Self {
            packings: [first, second],
            n,
            m,
            ..
        } = self;
        let hidden = if second.codebook_bits().is_some() { rows * m } else { 0 };
        [
            operand_len(first, rows, n),
            rows * 2 * m,
            hidden,
            operand_len(second, rows, m),
        ]
        .map(|x| x.next_multiple_of(UNIT))
    }

    fn results(&self) -> usize {
        (self.places * self.n).next_multiple_of(UNIT)
    }
}

/// Elements of `rows` rows of `k` inputs as a packing reads them.
fn operand_len(packing: Packing, rows: usize, k: usize) -> usize {
    match Activations::bytes(packing, rows, k) {
        Some(0) => rows * k,
        bytes => bytes.unwrap_or(usize::MAX).div_ceil(4),
    }
}

/// An expert in a wave, or some of its places.
struct Member<'a> {
    expert: &'a Expert<'a>,
    places: &'a [usize],
    /// In the scratch memory, see [`ExpertSizes::pieces`].
    memory: [Range<usize>; 4],
    /// Its results among those of all.
    results: Range<usize>,
}

impl<'a> Member<'a> {
    /// Its first matrix or its second.
    fn matrix(&self, which: usize) -> PackedView<'a> {
        [self.expert.gate_up, self.expert.down][which]
    }
}

/// Blocks of a member's matrix.
struct Piece {
    member: usize,
    blocks: Range<usize>,
}

/// Cuts the products of a wave with matrices of so many blocks, of `block_bytes` each.
fn cut(width: usize, members: &[Member<'_>], blocks: usize, block_bytes: usize) -> Vec<Piece> {
    /// Pieces for each thread, so that a slow one does not hold the rest up.
    const EACH: usize = 8;
    /// Bytes of a piece below which cutting it in two loses more than it gains.
    const MIN_BYTES: usize = 64 << 10;
    // A few rows are multiplied while the weights arrive.
    let work = |member: &Member<'_>| member.places.len().max(4);
    let all: usize = members.iter().map(work).sum();
    let wanted = match width {
        0 | 1 => members.len(),
        width => {
            let pieces = members.len() + EACH * width;
            pieces.min(members.len() * blocks * block_bytes / MIN_BYTES)
        }
    };
    let mut pieces = Vec::with_capacity(wanted + members.len());
    for (i, member) in members.iter().enumerate() {
        let count = (wanted * work(member)).div_ceil(all.max(1)).clamp(1, blocks.max(1));
        pieces.extend((0..count).map(|piece| Piece {
            member: i,
            blocks: part_range(blocks, count, piece),
        }));
    }
    pieces
}

impl Exec<'_> {
    /// Elements of scratch memory that [`Exec::experts`] needs.
    #[must_use]
    pub fn experts_scratch(sizes: &ExpertSizes) -> usize {
        // None needs more for a place than if each had an expert of its own, or, where rows are in tiles, than if all had the fewest rows of which a tile holds one alone.
        let each = |rows: usize| {
            sizes
                .pieces(rows)
                .iter()
                .fold(0, |n: usize, &len| n.saturating_add(len))
                .div_ceil(rows)
        };
        let wave = sizes.places.min(WAVE);
        let of_wave = wave.saturating_mul(each(1).max(each(TILES_FROM + 1)));
        sizes.results().saturating_add(of_wave)
    }

    /// `out[t] = Σ share · down · (act(gate · x[t]) * (up · x[t]))` over the experts that row `t` takes, in the order of its places; added to `out [rows, n]` where it
    /// is to `accumulate`. `x [rows, n]` are the rows as the packing of the first matrices reads them. Shazeer et al. 2017.
    ///
    /// # Panics
    /// When a length, a shape or the kind of `x` does not match, or a place has not exactly one expert: programming errors.
    pub fn experts(
        &self,
        experts: &Experts<'_>,
        x: &Activations<'_>,
        scratch: &mut [f32],
        accumulate: bool,
        out: &mut [f32],
    ) {
        let &Experts {
            chosen, taken, shares, ..
        } = experts;
        let Some(first) = taken.first() else {
            assert!(shares.is_empty(), "experts: places without one");
            return;
        };
        let (n, m) = (first.down.n(), first.down.k());
        let packings = [first.gate_up.packing(), first.down.packing()];
        let sizes = ExpertSizes {
            places: shares.len(),
            packings,
            n,
            m,
        };
        assert!(out.len() * chosen == shares.len() * n, "experts: lengths");
        let mut at = vec![usize::MAX; shares.len()];
        let mut count = 0;
        for expert in taken {
            let Expert { gate_up, down, .. } = expert;
            let fits = down.n() == n && down.k() == m && gate_up.n() == 2 * m && gate_up.k() == n;
            assert!(
                fits && [gate_up.packing(), down.packing()] == packings,
                "experts: shapes"
            );
            for &place in expert.places {
                let before = std::mem::replace(&mut at[place], count);
                assert!(before == usize::MAX, "experts: place {place} is that of two");
                count += 1;
            }
        }
        assert!(count == shares.len(), "experts: places without one");

        let (results, memory) = scratch.split_at_mut(sizes.results());
        let mut wave = Vec::with_capacity(taken.len());
        let (mut used, mut done) = (0, 0);
        for expert in taken {
            let mut places = expert.places;
            while !places.is_empty() {
                if used > 0 && used + places.len() > WAVE {
                    self.wave(experts, &sizes, x, &wave, memory, results);
                    wave.clear();
                    used = 0;
                }
                let (now, rest) = places.split_at(places.len().min(WAVE));
                let mut start = wave.last().map_or(0, |last: &Member<'_>| last.memory[3].end);
                wave.push(Member {
                    expert,
                    places: now,
                    memory: sizes.pieces(now.len()).map(|len| {
                        start += len;
                        start - len..start
                    }),
                    results: done * n..(done + now.len()) * n,
                });
                used += now.len();
                done += now.len();
                places = rest;
            }
        }
        self.wave(experts, &sizes, x, &wave, memory, results);
        if chosen > 0 && n > 0 {
            self.sum_of_shares(&results[..done * n], &at, experts, n, accumulate, out);
        }
    }

    /// Computes the results of some experts.
    fn wave(
        &self,
        experts: &Experts<'_>,
        sizes: &ExpertSizes,
        x: &Activations<'_>,
        members: &[Member<'_>],
        memory: &mut [f32],
        results: &mut [f32],
    ) {
        let (&Experts { act, chosen, .. }, &ExpertSizes { packings, n, m, .. }) = (experts, sizes);
        let memory = SharedMut::new(memory);
        let kernels = self.kernels;
        let over_members = |cost: usize, f: &(dyn Fn(&Member<'_>) + Sync)| {
            let rows: usize = members.iter().map(|member| member.places.len()).sum();
            let parts = part_count(self.step.width(), rows, cost).min(members.len());
            self.step.run(parts, &|part| {
                members[part_range(members.len(), parts, part)].iter().for_each(f);
            });
        };
        // A single row is what every expert reads.
        let is_single = x.rows(n) == 1;
        let mut gathered = Vec::new();
        if !is_single {
            over_members(n / 8, &|member| {
                // SAFETY: pieces of different members lie apart, and the runs of this function follow each other.
                let to = unsafe { memory.piece(member.memory[0].clone()) };
                gather(
                    x,
                    member.places.iter().map(|place| place / chosen),
                    to,
                    member.places.len(),
                    n,
                );
            });
            // SAFETY: as above.
            gathered.extend(members.iter().map(|member| unsafe {
                Activations::read(
                    packings[0],
                    memory.piece(member.memory[0].clone()),
                    member.places.len(),
                    n,
                )
            }));
        }
        self.products(members, 0, &|i| gathered.get(i).unwrap_or(x), &|i| {
            memory.sub(members[i].memory[1].clone())
        });
        over_members(m, &|member| {
            let rows = member.places.len();
            // SAFETY: as above.
            let [stage, hidden, to] = [1, 2, 3].map(|which| unsafe { memory.piece(member.memory[which].clone()) });
            let stage = &stage[..rows * 2 * m];
            let step = &Step::inline();
            let alone = Exec { kernels, step };
            match Activations::read(packings[1], to, rows, m) {
                Activations::Q8(mut to) => alone.gated_quantize(act, stage, m, rows, &mut to),
                Activations::Rotated(mut to) => {
                    let hidden = &mut hidden[..rows * m];
                    alone.gated(act, stage, m, rows, hidden);
                    alone.rotate_rows(hidden, rows, m, &mut to);
                }
                Activations::F32(_) => alone.gated(act, stage, m, rows, &mut to[..rows * m]),
            }
        });
        let hidden: Vec<Activations<'_>> = members
            .iter()
            // SAFETY: as above.
            .map(|member| unsafe {
                Activations::read(
                    packings[1],
                    memory.piece(member.memory[3].clone()),
                    member.places.len(),
                    m,
                )
            })
            .collect();
        let results = SharedMut::new(results);
        self.products(members, 1, &|i| &hidden[i], &|i| {
            results.sub(members[i].results.clone())
        });
    }

    /// The products of the members' matrices, the first or the second, with `x` of each, to `out` of each.
    fn products<'m>(
        &self,
        members: &[Member<'_>],
        which: usize,
        x: &(dyn Fn(usize) -> &'m Activations<'m> + Sync),
        out: &(dyn Fn(usize) -> SharedMut<'m, f32> + Sync),
    ) {
        /// As of a product: see `parts::block_parts`.
        const MIN_SHARED_BYTES: usize = 128 << 10;
        let Some(layout) = members.first().map(|member| *member.matrix(which).layout()) else {
            return;
        };
        let blocks = layout.n().div_ceil(BLOCK_ROWS);
        let bytes = members.len() * layout.data_bytes();
        let width = if bytes < MIN_SHARED_BYTES { 1 } else { self.step.width() };
        let pieces = cut(width, members, blocks, layout.data_bytes() / blocks.max(1));
        let kernels = self.kernels;
        let compute = |piece: usize| {
            let Piece { member, blocks } = &pieces[piece];
            let expert = &members[*member];
            let whole = expert.matrix(which);
            let rows = blocks.start * BLOCK_ROWS..whole.n().min(blocks.end * BLOCK_ROWS);
            let w = whole.rows(rows.start, rows.len()).expect("whole blocks of a matrix");
            let step = &Step::inline();
            let alone = Exec { kernels, step };
            let epilogue = Epilogue {
                bias: expert.expert.biases.map(|b| &b[which][rows.clone()]),
                ..Epilogue::default()
            };
            // SAFETY: each piece has columns of its own of the results of its member.
            unsafe {
                alone.linear_columns(
                    &w,
                    x(*member),
                    expert.places.len(),
                    epilogue,
                    (&out(*member), rows.start, whole.n()),
                )
            };
        };
        match width {
            0 | 1 => (0..pieces.len()).for_each(compute),
            _ => self.step.run(pieces.len(), &compute),
        }
    }

    /// Sums of the results, of which that of a place is number `at`, times their shares.
    fn sum_of_shares(
        &self,
        results: &[f32],
        at: &[usize],
        experts: &Experts<'_>,
        n: usize,
        accumulate: bool,
        out: &mut [f32],
    ) {
        let (&Experts { chosen, shares, .. }, kernels) = (experts, self.kernels);
        let rows = at.len() / chosen;
        let parts = part_count(self.step.width(), rows, n * chosen / 8);
        let out = SharedMut::new(out);
        self.step.run(parts, &|part| {
            for row in part_range(rows, parts, part) {
                kernels.run(SumOfShares {
                    results,
                    at: &at[row * chosen..][..chosen],
                    shares: &shares[row * chosen..][..chosen],
                    accumulate,
                    // SAFETY: rows are disjoint.
                    out: unsafe { out.piece(row * n..(row + 1) * n) },
                });
            }
        });
    }
}

/// Puts rows of `x` one behind the other.
fn gather(x: &Activations<'_>, which: impl Iterator<Item = usize>, to: &mut [f32], rows: usize, k: usize) {
    match x {
        Activations::F32(x) => {
            for (to, row) in to.chunks_exact_mut(k.max(1)).zip(which) {
                to.copy_from_slice(&x[row * k..][..k]);
            }
        }
        Activations::Q8(x) => x.gather(which, &mut QuantizedRows::new(bytemuck::cast_slice_mut(to), rows, k)),
        Activations::Rotated(x) => x.gather(which, &mut RotatedRows::new(bytemuck::cast_slice_mut(to), rows, k)),
    }
}

struct SumOfShares<'a> {
    results: &'a [f32],
    at: &'a [usize],
    shares: &'a [f32],
    accumulate: bool,
    out: &'a mut [f32],
}

impl Op for SumOfShares<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let n = self.out.len();
        let mut column = 0;
        while column < n {
            let len = UNIT.min(n - column);
            let mut sum = s.zero();
            for (&at, &share) in self.at.iter().zip(self.shares) {
                let y = &self.results[at * n + column..][..len];
                let y = match y.first_chunk() {
                    Some(y) => s.load(y),
                    None => s.load_partial(y),
                };
                sum = s.add(sum, s.mul(s.splat(share), y));
            }
            let out = &mut self.out[column..column + len];
            if let Ok(out) = <&mut [f32; UNIT]>::try_from(&mut *out) {
                if self.accumulate {
                    sum = s.add(s.load(out), sum);
                }
                s.store(sum, out);
            } else {
                if self.accumulate {
                    sum = s.add(s.load_partial(out), sum);
                }
                s.store_partial(sum, out);
            }
            column += len;
        }
    }
}
