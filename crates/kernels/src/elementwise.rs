//! Elementwise functions of one and two operands, and gated activations.

use crate::exec::{Exec, Kernels, SharedMut};
use crate::math;
use crate::matmul::{QuantizedRows, RowWriter};
use crate::parts::{part_count, part_range};
use cactus_quant::GROUP;
use cactus_simd::{Op, Simd};
use std::marker::PhantomData;

/// Elements computed at a time before they are quantized or written back; whole groups.
const PIECE: usize = 16 * GROUP;

/// Function of one operand.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `-x`
    Neg,
    /// `|x|`
    Abs,
    /// `e^x`
    Exp,
    /// Natural logarithm.
    Log,
    /// Square root.
    Sqrt,
    /// `1 / sqrt(x)`, both exact.
    Rsqrt,
    /// Sine, radians.
    Sin,
    /// Cosine, radians.
    Cos,
    /// Hyperbolic tangent.
    Tanh,
    /// Error function.
    Erf,
    /// `1 / (1 + e^-x)`
    Sigmoid,
    /// `max(x, 0)`
    Relu,
    /// `x * sigmoid(x)`
    Silu,
    /// Exact GELU.
    GeluErf,
    /// GELU by the tanh approximation.
    GeluTanh,
    /// `ln(1 + e^x)`
    Softplus,
    /// `min(max(x + 3, 0), 6) / 6`
    HardSigmoid,
    /// `x * hard_sigmoid(x)`
    HardSwish,
}

impl UnaryOp {
    /// All functions.
    pub const ALL: [Self; 18] = [
        Self::Neg,
        Self::Abs,
        Self::Exp,
        Self::Log,
        Self::Sqrt,
        Self::Rsqrt,
        Self::Sin,
        Self::Cos,
        Self::Tanh,
        Self::Erf,
        Self::Sigmoid,
        Self::Relu,
        Self::Silu,
        Self::GeluErf,
        Self::GeluTanh,
        Self::Softplus,
        Self::HardSigmoid,
        Self::HardSwish,
    ];
}

/// Function of two operands.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`
    Div,
    /// `a > b ? a : b`
    Max,
    /// `a < b ? a : b`
    Min,
}

impl BinaryOp {
    /// All functions.
    pub const ALL: [Self; 6] = [Self::Add, Self::Sub, Self::Mul, Self::Div, Self::Max, Self::Min];
}

/// Activation of a gated layer.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x * sigmoid(x)`
    Silu,
    /// GELU by the tanh approximation.
    GeluTanh,
    /// Exact GELU.
    GeluErf,
    /// `max(x, 0)`
    Relu,
    /// `x * sigmoid(1.702 x)` of what is at most 7; what it multiplies is cut at -7 and 7, and one more.
    ClampedSwish,
}

impl Activation {
    /// All activations.
    pub const ALL: [Self; 5] = [
        Self::Silu,
        Self::GeluTanh,
        Self::GeluErf,
        Self::Relu,
        Self::ClampedSwish,
    ];
}

/// A vector function known at compile time.
trait Map: 'static {
    fn map<S: Simd>(s: S, x: S::F) -> S::F;
}

/// A gated unit known at compile time.
trait Gate: 'static {
    fn gate<S: Simd>(s: S, gate: S::F, up: S::F) -> S::F;
}

impl<M: Map> Gate for M {
    #[inline(always)]
    fn gate<S: Simd>(s: S, gate: S::F, up: S::F) -> S::F {
        s.mul(M::map(s, gate), up)
    }
}

/// [`Activation::ClampedSwish`].
struct ClampedSwish;

impl Gate for ClampedSwish {
    #[inline(always)]
    fn gate<S: Simd>(s: S, gate: S::F, up: S::F) -> S::F {
        let (one, most) = (s.splat(1.0), s.splat(7.0));
        let gate = s.min(gate, most);
        let up = s.max(s.min(up, most), s.neg(most));
        let share = math::sigmoid(s, s.mul(gate, s.splat(1.702)));
        s.mul(s.add(up, one), s.mul(gate, share))
    }
}

/// A vector function of two operands known at compile time.
trait Zip: 'static {
    fn zip<S: Simd>(s: S, a: S::F, b: S::F) -> S::F;
}

macro_rules! maps {
    ($($name:ident = |$s:ident, $x:ident| $body:expr;)*) => {$(
        struct $name;
        impl Map for $name {
            #[inline(always)]
            fn map<S: Simd>($s: S, $x: S::F) -> S::F {
                $body
            }
        }
    )*};
}

macro_rules! zips {
    ($($name:ident = $method:ident;)*) => {$(
        struct $name;
        impl Zip for $name {
            #[inline(always)]
            fn zip<S: Simd>(s: S, a: S::F, b: S::F) -> S::F {
                s.$method(a, b)
            }
        }
    )*};
}

maps! {
    Neg = |s, x| s.neg(x);
    Abs = |s, x| s.abs(x);
    Exp = |s, x| math::exp(s, x);
    Sqrt = |s, x| s.sqrt(x);
    Rsqrt = |s, x| s.div(s.splat(1.0), s.sqrt(x));
    Tanh = |s, x| math::tanh(s, x);
    Erf = |s, x| math::erf(s, x);
    Sigmoid = |s, x| math::sigmoid(s, x);
    Relu = |s, x| s.max(s.zero(), x);
    Silu = |s, x| math::silu(s, x);
    Softplus = |s, x| math::softplus(s, x);
    HardSigmoid = |s, x| hard_sigmoid(s, x);
    HardSwish = |s, x| s.mul(x, hard_sigmoid(s, x));
    GeluErf = |s, x| math::gelu_erf(s, x);
    GeluTanh = |s, x| math::gelu_tanh(s, x);
}

/// What is no number stays so: the operand of which that is said to be one is the second.
#[inline(always)]
fn hard_sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    let above = s.max(s.zero(), s.add(x, s.splat(3.0)));
    s.mul(s.min(s.splat(6.0), above), s.splat(1.0 / 6.0))
}

zips! {
    Add = add;
    Sub = sub;
    Mul = mul;
    Div = div;
    Max = max;
    Min = min;
}

impl Exec<'_> {
    /// `out[i] = op(x[i])`.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn unary(&self, op: UnaryOp, x: &[f32], out: &mut [f32]) {
        assert!(x.len() == out.len(), "unary: {} values in, {} out", x.len(), out.len());
        let kernels = self.kernels;
        self.pieces(out, 1, op.cost(), &|start, out| {
            unary_into(kernels, op, &x[start..start + out.len()], out);
        });
    }

    /// `x[i] = op(x[i])`, with the bits of [`Exec::unary`].
    pub fn unary_in_place(&self, op: UnaryOp, x: &mut [f32]) {
        let kernels = self.kernels;
        self.pieces(x, 1, op.cost(), &|_, x| unary_piece(kernels, op, x));
    }

    /// `out[i] = op(a[i], b[i % b.len()])`: `b` is of the same shape, a row vector over the last axis, or one scalar.
    ///
    /// # Panics
    /// When `a` and `out` differ in length or `b`'s length does not divide it.
    pub fn binary(&self, op: BinaryOp, a: &[f32], b: &[f32], out: &mut [f32]) {
        assert!(a.len() == out.len(), "binary: {} values in, {} out", a.len(), out.len());
        if out.is_empty() {
            return;
        }
        assert!(
            !b.is_empty() && out.len().is_multiple_of(b.len()),
            "binary: {} does not divide {}",
            b.len(),
            out.len()
        );
        let kernels = self.kernels;
        if b.len() == out.len() {
            return self.zip(op, [None; 2], a, b, out);
        }
        self.pieces(out, b.len(), 1, &|start, out| {
            // One scalar is for all of a piece, a vector for each stretch of its length.
            let stretch = if b.len() == 1 { out.len().max(1) } else { b.len() };
            for (a, out) in a[start..start + out.len()]
                .chunks_exact(stretch)
                .zip(out.chunks_exact_mut(stretch))
            {
                binary_piece(kernels, op, a, b, out);
            }
        });
    }

    /// `out[i] = op(f(a[i]), g(b[i]))`, with the bits of [`Exec::unary`] for each function that there is and then [`Exec::binary`].
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn zip(&self, op: BinaryOp, functions: [Option<UnaryOp>; 2], a: &[f32], b: &[f32], out: &mut [f32]) {
        assert!(
            a.len() == out.len() && b.len() == out.len(),
            "zip: {} and {} values in, {} out",
            a.len(),
            b.len(),
            out.len()
        );
        let kernels = self.kernels;
        self.pieces(out, 1, zip_cost(functions), &|start, out| {
            let own = start..start + out.len();
            zip_piece(kernels, op, functions, &a[own.clone()], &b[own], out);
        });
    }

    /// `out[r, i] = act(gate_up[r, i]) * gate_up[r, n + i]`, but for what an [`Activation`] says of the second; `gate_up [rows, 2n]`, `out [rows, n]`.
    ///
    /// # Panics
    /// When a slice's length does not match.
    pub fn gated(&self, act: Activation, gate_up: &[f32], n: usize, rows: usize, out: &mut [f32]) {
        assert!(gate_up.len() == rows * 2 * n && out.len() == rows * n, "gated: lengths");
        match act {
            Activation::Silu => self.gated_as::<Silu>(gate_up, n, rows, out),
            Activation::GeluTanh => self.gated_as::<GeluTanh>(gate_up, n, rows, out),
            Activation::GeluErf => self.gated_as::<GeluErf>(gate_up, n, rows, out),
            Activation::Relu => self.gated_as::<Relu>(gate_up, n, rows, out),
            Activation::ClampedSwish => self.gated_as::<ClampedSwish>(gate_up, n, rows, out),
        }
    }

    fn gated_as<M: Gate>(&self, gate_up: &[f32], n: usize, rows: usize, out: &mut [f32]) {
        if n == 0 {
            return;
        }
        let kernels = self.kernels;
        // One row is cut along itself, many by rows.
        let unit = if rows == 1 { 16.min(n) } else { n };
        self.pieces(out, unit, 2, &|start, out| {
            let mut done = 0;
            while done < out.len() {
                let (row, column) = ((start + done) / n, (start + done) % n);
                let len = (n - column).min(out.len() - done);
                let (gate, up) = gate_up[row * 2 * n..][..2 * n].split_at(n);
                kernels.run(Gated::<M> {
                    gate: &gate[column..column + len],
                    up: &up[column..column + len],
                    out: &mut out[done..done + len],
                    map: PhantomData,
                });
                done += len;
            }
        });
    }

    /// `x = min(max(x, bounds[0]), bounds[1])`, with the bits of [`Exec::binary`].
    pub fn keep_within(&self, bounds: [f32; 2], x: &mut [f32]) {
        let kernels = self.kernels;
        self.pieces(x, 16, 1, &|_, x| keep_piece_within(kernels, bounds, x));
    }

    /// [`Exec::gated`] followed by [`Exec::quantize_rows`] in one pass, with the same bits.
    ///
    /// # Panics
    /// When a length or the shape of `out` does not match.
    pub fn gated_quantize(&self, act: Activation, gate_up: &[f32], n: usize, rows: usize, out: &mut QuantizedRows<'_>) {
        assert!(gate_up.len() == rows * 2 * n, "gated_quantize: lengths");
        assert!(
            out.rows() == rows && out.k() == n,
            "gated_quantize: shape of the output"
        );
        match act {
            Activation::Silu => self.gated_quantize_as::<Silu>(gate_up, n, rows, out),
            Activation::GeluTanh => self.gated_quantize_as::<GeluTanh>(gate_up, n, rows, out),
            Activation::GeluErf => self.gated_quantize_as::<GeluErf>(gate_up, n, rows, out),
            Activation::Relu => self.gated_quantize_as::<Relu>(gate_up, n, rows, out),
            Activation::ClampedSwish => self.gated_quantize_as::<ClampedSwish>(gate_up, n, rows, out),
        }
    }

    fn gated_quantize_as<M: Gate>(&self, gate_up: &[f32], n: usize, rows: usize, out: &mut QuantizedRows<'_>) {
        if n == 0 {
            return;
        }
        let kernels = self.kernels;
        let pieces = n.div_ceil(PIECE);
        let units = rows * pieces;
        let parts = part_count(self.step.width(), units, n.min(PIECE));
        let out = out.writer();
        self.step.run(parts, &|part| {
            for unit in part_range(units, parts, part) {
                let (row, start) = (unit / pieces, unit % pieces * PIECE);
                let end = (start + PIECE).min(n);
                let (gate, up) = gate_up[row * 2 * n..][..2 * n].split_at(n);
                let (gate, up) = (&gate[start..end], &up[start..end]);
                kernels.run(GatedQuantize::<M> {
                    gate,
                    up,
                    row,
                    group: start / GROUP,
                    out: &out,
                    map: PhantomData,
                });
            }
        });
    }

    /// Cuts `out` into pieces of whole `unit`s and calls `f(first element, piece)`, on the step's threads when the work,
    /// about `cost` nanoseconds per 8 elements, is worth it.
    fn pieces(&self, out: &mut [f32], unit: usize, cost: usize, f: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        /// Fewest elements of a unit: enough work to count in nanoseconds.
        const LEAST: usize = 256;
        let len = out.len();
        let unit = unit.saturating_mul(LEAST.div_ceil(unit));
        let units = len.div_ceil(unit);
        let parts = part_count(self.step.width(), units, unit.saturating_mul(cost) / 8);
        let out = SharedMut::new(out);
        self.step.run(parts, &|part| {
            let units = part_range(units, parts, part);
            let (start, end) = ((units.start * unit).min(len), (units.end * unit).min(len));
            // SAFETY: the units of different parts are disjoint.
            f(start, unsafe { out.piece(start..end) });
        });
    }
}

impl UnaryOp {
    /// About how many nanoseconds 8 elements take.
    pub(crate) fn cost(self) -> usize {
        match self {
            Self::Log | Self::Sin | Self::Cos => 40,
            _ => 2,
        }
    }
}

/// Stretches of one length, as far apart as the rows of a matrix.
pub(crate) struct Stretches<'a> {
    memory: &'a SharedMut<'a, f32>,
    first: usize,
    len: usize,
    count: usize,
    stride: usize,
    /// What is read in place of a single stretch.
    from: Option<&'a [f32]>,
}

impl<'a> Stretches<'a> {
    /// `count` stretches of `len` elements, the first at `first`, each `stride` behind the last.
    ///
    /// # Safety
    /// Nobody else may read or write those elements while functions are applied to them.
    pub(crate) unsafe fn new(
        memory: &'a SharedMut<'a, f32>,
        first: usize,
        len: usize,
        count: usize,
        stride: usize,
    ) -> Self {
        Self {
            memory,
            first,
            len,
            count,
            stride,
            from: None,
        }
    }

    #[inline(always)]
    fn each(&self) -> impl Iterator<Item = &'a mut [f32]> {
        (0..self.count).map(|i| {
            let start = self.first + i * self.stride;
            // SAFETY: ours by the contract of `new`, and one after the other.
            unsafe { self.memory.piece(start..start + self.len) }
        })
    }
}

/// `x[i] = op(x[i])` on this thread.
pub(crate) fn unary_piece(kernels: &Kernels, op: UnaryOp, x: &mut [f32]) {
    let x = SharedMut::new(x);
    // SAFETY: the slice is ours.
    unary_stretches(kernels, op, &unsafe { Stretches::new(&x, 0, x.len(), 1, 0) });
}

/// `out[i] = op(x[i])` on this thread.
pub(crate) fn unary_into(kernels: &Kernels, op: UnaryOp, x: &[f32], out: &mut [f32]) {
    let (len, memory) = (out.len(), SharedMut::new(out));
    // SAFETY: the slice is ours.
    let mut out = unsafe { Stretches::new(&memory, 0, len, 1, 0) };
    out.from = Some(&x[..len]);
    unary_stretches(kernels, op, &out);
}

/// As [`unary_piece`] for all of the stretches.
pub(crate) fn unary_stretches(kernels: &Kernels, op: UnaryOp, x: &Stretches<'_>) {
    match op {
        UnaryOp::Neg => unary_as::<Neg>(kernels, x),
        UnaryOp::Abs => unary_as::<Abs>(kernels, x),
        UnaryOp::Exp => unary_as::<Exp>(kernels, x),
        UnaryOp::Log => unary_scalar(math::ln, x),
        UnaryOp::Sqrt => unary_as::<Sqrt>(kernels, x),
        UnaryOp::Rsqrt => unary_as::<Rsqrt>(kernels, x),
        UnaryOp::Sin => unary_scalar(|x| math::sin_cos(x).0, x),
        UnaryOp::Cos => unary_scalar(|x| math::sin_cos(x).1, x),
        UnaryOp::Tanh => unary_as::<Tanh>(kernels, x),
        UnaryOp::Erf => unary_as::<Erf>(kernels, x),
        UnaryOp::Sigmoid => unary_as::<Sigmoid>(kernels, x),
        UnaryOp::Relu => unary_as::<Relu>(kernels, x),
        UnaryOp::Silu => unary_as::<Silu>(kernels, x),
        UnaryOp::Softplus => unary_as::<Softplus>(kernels, x),
        UnaryOp::GeluErf => unary_as::<GeluErf>(kernels, x),
        UnaryOp::GeluTanh => unary_as::<GeluTanh>(kernels, x),
        UnaryOp::HardSigmoid => unary_as::<HardSigmoid>(kernels, x),
        UnaryOp::HardSwish => unary_as::<HardSwish>(kernels, x),
    }
}

/// Keeps a piece of a thread within bounds.
pub(crate) fn keep_piece_within(kernels: &Kernels, bounds: [f32; 2], x: &mut [f32]) {
    kernels.run(KeepWithin { x, bounds });
}

struct KeepWithin<'a> {
    x: &'a mut [f32],
    bounds: [f32; 2],
}

impl Op for KeepWithin<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        keep_within(s, self.bounds, self.x);
    }
}

/// See [`Exec::keep_within`].
#[inline(always)]
pub(crate) fn keep_within<S: Simd>(s: S, [least, most]: [f32; 2], x: &mut [f32]) {
    let (least, most) = (s.splat(least), s.splat(most));
    let (lines, rest) = x.as_chunks_mut::<16>();
    for line in lines {
        s.store(s.min(s.max(s.load(line), least), most), line);
    }
    if !rest.is_empty() {
        s.store_partial(s.min(s.max(s.load_partial(rest), least), most), rest);
    }
}

fn unary_as<M: Map>(kernels: &Kernels, x: &Stretches<'_>) {
    let map = PhantomData;
    kernels.run(Unary::<M> { x, map });
}

fn unary_scalar(f: fn(f32) -> f32, x: &Stretches<'_>) {
    for stretch in x.each() {
        if let Some(from) = x.from {
            stretch.copy_from_slice(from);
        }
        for x in stretch {
            *x = f(*x);
        }
    }
}

/// `out[i] = op(a[i], b[i])` on this thread, or of one `b` for all; the others have one length.
pub(crate) fn binary_piece(kernels: &Kernels, op: BinaryOp, a: &[f32], b: &[f32], out: &mut [f32]) {
    match op {
        BinaryOp::Add => binary_as::<Add>(kernels, a, b, out),
        BinaryOp::Sub => binary_as::<Sub>(kernels, a, b, out),
        BinaryOp::Mul => binary_as::<Mul>(kernels, a, b, out),
        BinaryOp::Div => binary_as::<Div>(kernels, a, b, out),
        BinaryOp::Max => binary_as::<Max>(kernels, a, b, out),
        BinaryOp::Min => binary_as::<Min>(kernels, a, b, out),
    }
}

/// About how many nanoseconds 8 elements of [`zip_piece`] take.
pub(crate) fn zip_cost(functions: [Option<UnaryOp>; 2]) -> usize {
    let of = |f: Option<UnaryOp>| f.map_or(0, UnaryOp::cost);
    1 + of(functions[0]) + of(functions[1])
}

/// `out[i] = op(f(a[i]), g(b[i]))` on this thread.
pub(crate) fn zip_piece(
    kernels: &Kernels,
    op: BinaryOp,
    [f, g]: [Option<UnaryOp>; 2],
    a: &[f32],
    b: &[f32],
    out: &mut [f32],
) {
    if f.is_none() && g.is_none() {
        return binary_piece(kernels, op, a, b, out);
    }
    let mut own = [[0.0; PIECE]; 2];
    let [x, y] = &mut own;
    for ((a, b), out) in a.chunks(PIECE).zip(b.chunks(PIECE)).zip(out.chunks_mut(PIECE)) {
        let [a, b] = [(f, a, &mut *x), (g, b, &mut *y)].map(|(function, from, made)| match function {
            Some(function) => {
                let made = &mut made[..from.len()];
                unary_into(kernels, function, from, made);
                &*made
            }
            None => from,
        });
        binary_piece(kernels, op, a, b, out);
    }
}

fn binary_as<Z: Zip>(kernels: &Kernels, a: &[f32], b: &[f32], out: &mut [f32]) {
    let zip = PhantomData;
    match *b {
        [b] => kernels.run(BinaryScalar::<Z> { a, b, out, zip }),
        _ => kernels.run(Binary::<Z> { a, b, out, zip }),
    }
}

struct Unary<'a, M> {
    x: &'a Stretches<'a>,
    map: PhantomData<M>,
}

impl<M: Map> Op for Unary<'_, M> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for x in self.x.each() {
            let (chunks, tail) = x.as_chunks_mut::<16>();
            if let Some(from) = self.x.from {
                let (from, rest) = from.as_chunks::<16>();
                for (x, from) in chunks.iter_mut().zip(from) {
                    s.store(M::map(s, s.load(from)), x);
                }
                if !tail.is_empty() {
                    s.store_partial(M::map(s, s.load_partial(rest)), tail);
                }
                continue;
            }
            for x in chunks {
                s.store(M::map(s, s.load(x)), x);
            }
            if !tail.is_empty() {
                s.store_partial(M::map(s, s.load_partial(tail)), tail);
            }
        }
    }
}

struct Binary<'a, Z> {
    a: &'a [f32],
    b: &'a [f32],
    out: &'a mut [f32],
    zip: PhantomData<Z>,
}

impl<Z: Zip> Op for Binary<'_, Z> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let ((a, a_tail), (b, b_tail)) = (self.a.as_chunks::<16>(), self.b.as_chunks::<16>());
        let (outs, out_tail) = self.out.as_chunks_mut::<16>();
        for ((a, b), out) in a.iter().zip(b).zip(outs) {
            s.store(Z::zip(s, s.load(a), s.load(b)), out);
        }
        if !a_tail.is_empty() {
            s.store_partial(Z::zip(s, s.load_partial(a_tail), s.load_partial(b_tail)), out_tail);
        }
    }
}

struct BinaryScalar<'a, Z> {
    a: &'a [f32],
    b: f32,
    out: &'a mut [f32],
    zip: PhantomData<Z>,
}

impl<Z: Zip> Op for BinaryScalar<'_, Z> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let (a, a_tail) = self.a.as_chunks::<16>();
        let (outs, out_tail) = self.out.as_chunks_mut::<16>();
        let b = s.splat(self.b);
        for (a, out) in a.iter().zip(outs) {
            s.store(Z::zip(s, s.load(a), b), out);
        }
        if !a_tail.is_empty() {
            s.store_partial(Z::zip(s, s.load_partial(a_tail), b), out_tail);
        }
    }
}

/// One stretch of a gated row, quantized into the groups of `row` from `group` on.
struct GatedQuantize<'a, 'b, M> {
    gate: &'a [f32],
    up: &'a [f32],
    row: usize,
    group: usize,
    out: &'a RowWriter<'b>,
    map: PhantomData<M>,
}

impl<M: Gate> Op for GatedQuantize<'_, '_, M> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let mut values = [0.0; PIECE];
        let out = &mut values[..self.gate.len()];
        Gated::<M> {
            gate: self.gate,
            up: self.up,
            out,
            map: PhantomData,
        }
        .eval(s);
        // SAFETY: the units of the caller are disjoint runs of groups.
        unsafe {
            self.out
                .write_groups(s, self.row, self.group, &values[..self.gate.len()])
        };
    }
}

/// One stretch of a gated row.
struct Gated<'a, M> {
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
    map: PhantomData<M>,
}

impl<M: Gate> Op for Gated<'_, M> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let ((gates, gate_tail), (ups, up_tail)) = (self.gate.as_chunks::<16>(), self.up.as_chunks::<16>());
        let (outs, out_tail) = self.out.as_chunks_mut::<16>();
        for ((gate, up), out) in gates.iter().zip(ups).zip(outs) {
            s.store(M::gate(s, s.load(gate), s.load(up)), out);
        }
        if !gate_tail.is_empty() {
            s.store_partial(M::gate(s, s.load_partial(gate_tail), s.load_partial(up_tail)), out_tail);
        }
    }
}
