//! The operations that every tier offers.

/// Lanes of a logical vector on every tier.
pub const LANES: usize = 16;

/// Work that is compiled once per tier.
///
/// Implementations mark `eval` and everything it calls with vectors in hand `#[inline(always)]`; see the crate's
/// documentation on dispatch.
pub trait Op {
    /// What the work returns.
    type Output;

    /// Does the work with the operations of `s`.
    fn eval<S: Simd>(self, s: S) -> Self::Output;
}

/// Work for one tier, which may use what only that tier has; compiled with the tier's features.
///
/// As with [`Op`], `eval` and everything that it calls with vectors in hand are `#[inline(always)]`.
pub trait OpFor<S> {
    /// What the work returns.
    type Output;

    /// Does the work with the operations of `s`.
    fn eval(self, s: S) -> Self::Output;
}

/// Work for every tier as work for one.
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
pub(crate) struct Any<O>(pub(crate) O);

#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
impl<S: Simd, O: Op> OpFor<S> for Any<O> {
    type Output = O::Output;

    #[inline(always)]
    fn eval(self, s: S) -> O::Output {
        self.0.eval(s)
    }
}

/// The products of [`Simd::dot_runs`] quad after quad, with `$load` and `$dot`, after [`check_runs`].
macro_rules! one_by_one {
    ($s:ident, $load:ident, $dot:ident, $acc:ident, $count:ident, $q:ident, $step:ident, $x:ident) => {
        let mut sums = *$acc;
        // A number that the compiler does not know: it would not leave the loop one, and then has too few registers.
        for i in 0..std::hint::black_box($count) {
            // SAFETY: there are quads and inputs up to `count`, and their places are no larger than can be, which has just been checked.
            let mut quads = [$s.$load(unsafe { $q[0].get_unchecked(i * $step) }); C];
            for c in 1..C {
                // SAFETY: as above.
                quads[c] = $s.$load(unsafe { $q[c].get_unchecked(i * $step) });
            }
            for p in 0..P {
                for r in 0..R {
                    // SAFETY: as above.
                    let x = unsafe { *$x[p][r].get_unchecked(i) };
                    for c in 0..C {
                        sums[p][r][c] = $s.$dot(sums[p][r][c], quads[c], x);
                    }
                }
            }
        }
        *$acc = sums;
    };
}

/// Panics where there are not as many quads and inputs as [`Simd::dot_runs`] is asked to multiply.
#[inline(always)]
pub(crate) fn check_runs<const P: usize, const R: usize, const C: usize>(
    count: usize,
    q: &[&[[i8; 64]]; C],
    step: usize,
    x: &[[&[i32]; R]; P],
) {
    assert!(count.is_multiple_of(4), "dot_runs: no whole fours");
    let last = count.checked_sub(1).map(|last| last.checked_mul(step));
    for quads in q {
        let there = last.is_none_or(|last| last.is_some_and(|last| last < quads.len()));
        assert!(there, "dot_runs: too few quads");
    }
    for inputs in x.as_flattened() {
        assert!(inputs.len() >= count, "dot_runs: too few inputs");
    }
}

/// The operations of one instruction-set tier on vectors of [`LANES`] lanes; implemented by the tokens.
///
/// Lane `i` of a result depends on lane `i` of the operands unless said otherwise. Float operations round to nearest
/// even and keep subnormal numbers. The payload and sign of NaN results are unspecified.
pub trait Simd: Copy + Send + Sync + std::fmt::Debug + 'static {
    /// 16 lanes of `f32`.
    type F: Copy;
    /// 16 lanes of `i32`.
    type I: Copy;
    /// 16 truth values.
    type M: Copy;
    /// 16 quads of `i8`, prepared to be multiplied by signed bytes.
    type Quads: Copy;
    /// 16 quads of `i8`, prepared to be multiplied by non-negative bytes.
    type QuadsPlain: Copy;
    /// 64 signed bytes.
    type Bytes: Copy;

    /// How many output rows a register tile of a kernel should have at most: 8 with 32 registers of 16 lanes, fewer
    /// where a logical vector takes several registers.
    const TILE_ROWS: usize;
    /// What the sum of the bytes is multiplied with to give the first accumulator of a chain, see [`Simd::dot_start`].
    const DOT_OFFSET: i32 = 0;

    /// Runs `op` inside of a function that carries this tier's features.
    fn vectorize<O: Op>(self, op: O) -> O::Output;

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::F;
    /// All lanes zero.
    #[inline(always)]
    fn zero(self) -> Self::F {
        self.splat(0.0)
    }
    /// Loads 16 values.
    fn load(self, x: &[f32; 16]) -> Self::F;
    /// Loads `x.len().min(16)` values into the low lanes, zero into the rest.
    fn load_partial(self, x: &[f32]) -> Self::F;
    /// Stores 16 values.
    fn store(self, v: Self::F, out: &mut [f32; 16]);
    /// Stores the low `out.len().min(16)` lanes.
    fn store_partial(self, v: Self::F, out: &mut [f32]);

    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c` with one rounding.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `c - a * b` with one rounding.
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Square root.
    fn sqrt(self, a: Self::F) -> Self::F;
    /// `a < b ? a : b`; so `b` when either is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a > b ? a : b`; so `b` when either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// Nearest integer, ties to even.
    fn round(self, a: Self::F) -> Self::F;
    /// `a` without its sign.
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        self.floats(self.and_i(self.bits(a), self.splat_i(0x7fff_ffff)))
    }
    /// `a` with the sign flipped.
    #[inline(always)]
    fn neg(self, a: Self::F) -> Self::F {
        self.floats(self.xor_i(self.bits(a), self.splat_i(i32::MIN)))
    }

    /// `a < b`, false when either is NaN.
    fn lt(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a <= b`, false when either is NaN.
    fn le(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a == b`, false when either is NaN.
    fn eq(self, a: Self::F, b: Self::F) -> Self::M;
    /// Lane `i` is `from <= i < to`.
    fn lanes(self, from: usize, to: usize) -> Self::M;
    /// `m ? a : b`.
    fn select(self, m: Self::M, a: Self::F, b: Self::F) -> Self::F;

    /// Sum of all lanes in the one order that holds on every tier: lanes `i` and `i + 8` first, then `i` and `i + 4`,
    /// `i` and `i + 2`, `0` and `1`.
    fn reduce_sum(self, a: Self::F) -> f32;
    /// Largest lane, by [`Simd::max`] in the order of [`Simd::reduce_sum`]. NaN lanes give an unspecified lane.
    fn reduce_max(self, a: Self::F) -> f32;
    /// Lane `i` below `R`, at most 8, is [`Simd::reduce_sum`] of `v[i]`; the others are not specified.
    #[inline(always)]
    fn reduce_sums<const R: usize>(self, v: [Self::F; R]) -> Self::F {
        let mut sums = [0.0; 16];
        for (v, sum) in v.into_iter().zip(&mut sums) {
            *sum = self.reduce_sum(v);
        }
        self.load(&sums)
    }
    /// As [`Simd::reduce_sums`] with [`Simd::reduce_max`].
    #[inline(always)]
    fn reduce_maxima<const R: usize>(self, v: [Self::F; R]) -> Self::F {
        let mut maxima = [0.0; 16];
        for (v, max) in v.into_iter().zip(&mut maxima) {
            *max = self.reduce_max(v);
        }
        self.load(&maxima)
    }

    /// Nearest integers, ties to even. Lanes outside of the range of `i32` give unspecified values.
    fn to_int(self, a: Self::F) -> Self::I;
    /// Conversion to float, rounded to nearest even.
    fn to_float(self, a: Self::I) -> Self::F;
    /// The bits of the floats.
    fn bits(self, a: Self::F) -> Self::I;
    /// The floats of these bits.
    fn floats(self, a: Self::I) -> Self::F;

    /// All lanes `x`.
    fn splat_i(self, x: i32) -> Self::I;
    /// Loads 16 values.
    fn load_i(self, x: &[i32; 16]) -> Self::I;
    /// Stores 16 values.
    fn store_i(self, v: Self::I, out: &mut [i32; 16]);
    /// `a + b`, wrapping.
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a - b`, wrapping.
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise and.
    fn and_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise or.
    fn or_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise exclusive or.
    fn xor_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Shift left by `N < 32` bits.
    fn shl_i<const N: u32>(self, a: Self::I) -> Self::I;
    /// Arithmetic shift right by `N < 32` bits.
    fn shr_i<const N: u32>(self, a: Self::I) -> Self::I;
    /// Sum of all lanes, wrapping.
    fn reduce_sum_i(self, a: Self::I) -> i32;

    /// Loads 16 half-precision values (their bits); exact.
    fn load_f16(self, x: &[u16; 16]) -> Self::F;
    /// Stores 16 values as half precision, rounded to nearest even, overflow to infinity.
    fn store_f16(self, v: Self::F, out: &mut [u16; 16]);
    /// Loads 16 signed bytes.
    fn load_i8(self, x: &[i8; 16]) -> Self::I;
    /// Stores the low byte of each lane.
    fn store_i8(self, v: Self::I, out: &mut [i8; 16]);

    /// Asks for the cache line of an address to be brought near, without waiting. Any address will do: nothing is read.
    #[inline(always)]
    fn prefetch(self, _address: *const u8) {}
    /// As [`Simd::prefetch`], to the second-level cache, which can have more lines under way than the first.
    #[inline(always)]
    fn prefetch_l2(self, _address: *const u8) {}

    /// Loads 16 quads of signed bytes for [`Simd::dot`].
    fn load_quads(self, x: &[i8; 64]) -> Self::Quads;
    /// First accumulator of a chain of [`Simd::dot`]; `sum` is the sum of all the bytes that will be passed as `x`.
    #[inline(always)]
    fn dot_start(self, sum: i32) -> Self::I {
        self.splat_i(Self::DOT_OFFSET * sum)
    }
    /// Lane `l` of `acc` plus `q[4l]·x0 + q[4l+1]·x1 + q[4l+2]·x2 + q[4l+3]·x3`, exactly, where `x` holds the four signed
    /// bytes in memory order. Bytes of `x` lie in `-127..=127`. Only the end of a chain begun with
    /// [`Simd::dot_start`] and fed with all announced bytes is meaningful.
    fn dot(self, acc: Self::I, q: Self::Quads, x: i32) -> Self::I;
    /// Loads 16 quads of signed bytes for [`Simd::dot_plain`].
    fn load_quads_plain(self, x: &[i8; 64]) -> Self::QuadsPlain;
    /// As [`Simd::dot`] without start value, for bytes of `x` in `0..=127` and quads in `-127..=127`.
    fn dot_plain(self, acc: Self::I, q: Self::QuadsPlain, x: i32) -> Self::I;
    /// [`Simd::dot`] of four quads, one after the other, in `P` times `R` times `C` chains: `acc[p][r][c]` plus the products of `q[c][i]`
    /// with `x[p][r][i]`, for `i` from 0 to 3.
    #[inline(always)]
    fn dot_fours<const P: usize, const R: usize, const C: usize>(
        self,
        acc: &mut [[[Self::I; C]; R]; P],
        q: [[&[i8; 64]; 4]; C],
        x: [[&[i32; 4]; R]; P],
    ) {
        for i in 0..4 {
            let mut quads = [self.load_quads(q[0][i]); C];
            for c in 1..C {
                quads[c] = self.load_quads(q[c][i]);
            }
            for r in 0..R {
                for c in 0..C {
                    for p in 0..P {
                        acc[p][r][c] = self.dot(acc[p][r][c], quads[c], x[p][r][i]);
                    }
                }
            }
        }
    }
    /// [`Simd::dot`], or [`Simd::dot_plain`] where `PLAIN`, of `count` quads, whole fours, one after the other, in `P` times `R` times `C` chains: `acc[p][r][c]` plus the products of `q[c][i * step]`
    /// with `x[p][r][i]`, for `i` from 0 to `count`.
    ///
    /// # Panics
    /// When `count` is no multiple of four, and when there are fewer quads or inputs.
    #[inline(always)]
    fn dot_runs<const PLAIN: bool, const P: usize, const R: usize, const C: usize>(
        self,
        acc: &mut [[[Self::I; C]; R]; P],
        count: usize,
        q: [&[[i8; 64]]; C],
        step: usize,
        x: [[&[i32]; R]; P],
    ) {
        check_runs(count, &q, step, &x);
        if PLAIN {
            one_by_one!(self, load_quads_plain, dot_plain, acc, count, q, step, x);
        } else {
            one_by_one!(self, load_quads, dot, acc, count, q, step, x);
        }
    }
    /// 64 bytes of zeros.
    fn no_bytes(self) -> Self::Bytes;
    /// Each byte moves one further in its quad: byte `4l + i` becomes byte `4l + i + 1`, the last of a quad is lost, and the first
    /// becomes zero.
    fn next_bytes(self, bytes: Self::Bytes) -> Self::Bytes;
    /// Line `line` (0 to 7) of a chunk of packed indices, each replaced by its byte of `book` plus its byte of `carry`, for
    /// [`Simd::dot`]; and the bytes of `carries` that the low four bits of the indices name. Sums wrap. `BITS` is 1 to 6; the low bits of
    /// an index are those of its lowest vector:
    ///
    /// - 4: vector `line / 2`, the low half of each byte where `line` is even, else the high one;
    /// - 2: vector `line / 4`, bits `2 (line % 4)` and the next;
    /// - 1: bit `line`;
    /// - 3: the low two bits as of 2 in the first two vectors, the high one as of 1 in the last;
    /// - 5, 6: the low four bits as of 4 in the first four vectors, the high ones as of 1 or 2 in the last.
    fn lookup_quads<const BITS: usize>(
        self,
        book: &[i8; 64],
        carries: &[i8; 16],
        chunk: &[[u8; 64]; BITS],
        line: usize,
        carry: Self::Bytes,
    ) -> (Self::Quads, Self::Bytes);
    /// The Hadamard transform of the 16 lanes without normalization: for strides 1, 2, 4 and 8 in this order, lanes `i`
    /// (without that bit) and `i + stride` become their sum and their difference.
    #[inline(always)]
    fn hadamard_lanes(self, v: Self::F) -> Self::F {
        let mut x = [0.0; 16];
        self.store(v, &mut x);
        for stride in [1, 2, 4, 8] {
            for i in (0..16).filter(|i| i & stride == 0) {
                (x[i], x[i + stride]) = (x[i] + x[i + stride], x[i] - x[i + stride]);
            }
        }
        self.load(&x)
    }
    /// Rows become columns within each four lanes: lane `4 q + i` of result `j` is lane `4 q + j` of `v[i]`.
    #[inline(always)]
    fn transpose_fours(self, v: [Self::F; 4]) -> [Self::F; 4] {
        let mut rows = [[0.0; 16]; 4];
        for (v, row) in v.into_iter().zip(&mut rows) {
            self.store(v, row);
        }
        let mut columns = [[0.0; 16]; 4];
        for (j, column) in columns.iter_mut().enumerate() {
            for (lane, to) in column.iter_mut().enumerate() {
                *to = rows[lane % 4][lane / 4 * 4 + j];
            }
        }
        let [a, b, c, d] = &columns;
        [self.load(a), self.load(b), self.load(c), self.load(d)]
    }
    /// Four lanes change places with four lanes: lanes `4 i` to `4 i + 3` of result `q` are lanes `4 q` to `4 q + 3` of `v[i]`.
    #[inline(always)]
    fn transpose_quarters(self, v: [Self::F; 4]) -> [Self::F; 4] {
        let mut rows = [[0.0; 16]; 4];
        for (v, row) in v.into_iter().zip(&mut rows) {
            self.store(v, row);
        }
        let mut columns = [[0.0; 16]; 4];
        for (q, column) in columns.iter_mut().enumerate() {
            for (lane, to) in column.iter_mut().enumerate() {
                *to = rows[lane / 4][4 * q + lane % 4];
            }
        }
        let [a, b, c, d] = &columns;
        [self.load(a), self.load(b), self.load(c), self.load(d)]
    }
    /// Rows become columns: lane `i` of result `j` is lane `j` of `v[i]`.
    #[inline(always)]
    fn transpose(self, v: [Self::F; 16]) -> [Self::F; 16] {
        let [a, b, c, d] = [0, 4, 8, 12];
        let first = self.transpose_fours([v[a], v[a + 1], v[a + 2], v[a + 3]]);
        let second = self.transpose_fours([v[b], v[b + 1], v[b + 2], v[b + 3]]);
        let third = self.transpose_fours([v[c], v[c + 1], v[c + 2], v[c + 3]]);
        let fourth = self.transpose_fours([v[d], v[d + 1], v[d + 2], v[d + 3]]);
        let mut columns = v;
        // A loop, as closures would end up outside of the tier's features.
        for j in 0..4 {
            let own = self.transpose_quarters([first[j], second[j], third[j], fourth[j]]);
            for q in 0..4 {
                columns[4 * q + j] = own[q];
            }
        }
        columns
    }
    /// Splits the low 16 bits of 64 integers, which hold values in `0..=16383`, into their high and low seven bits.
    fn store_planes(self, v: [Self::I; 4], high: &mut [u8; 64], low: &mut [u8; 64]);
    /// Stores the low bytes of 64 integers, whose low 16 bits hold values in `-128..=127`.
    #[inline(always)]
    fn store_bytes(self, v: [Self::I; 4], out: &mut [i8; 64]) {
        for (v, out) in v.into_iter().zip(out.as_chunks_mut().0) {
            self.store_i8(v, out);
        }
    }
}
