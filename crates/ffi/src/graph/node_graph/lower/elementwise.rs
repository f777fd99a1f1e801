//! Functions of one element at a time, and choices by masks.

use super::{Lower, dims};
use crate::graph::node_graph::op::{BinaryFn, UnaryFn};
use crate::graph::node_graph::precision::F16_MAX;
use crate::graph::node_graph::{Error, Precision, Result};
use cactus_ir::{BinaryFn as Bin, CompareFn, Dim, Op, ReduceFn, UnaryFn as Un, ValueId};
use cactus_tensor::DType;

impl Lower {
    pub(super) fn unary_fn(&mut self, f: UnaryFn, x: ValueId) -> Result<ValueId> {
        let f = match f {
            UnaryFn::Abs => Un::Abs,
            UnaryFn::Exp => Un::Exp,
            UnaryFn::Sqrt => Un::Sqrt,
            UnaryFn::Cos => Un::Cos,
            UnaryFn::Sin => Un::Sin,
            UnaryFn::Log => Un::Log,
            UnaryFn::Relu => Un::Relu,
            UnaryFn::Silu => Un::Silu,
            UnaryFn::Gelu => Un::GeluTanh,
            UnaryFn::GeluErf => Un::GeluErf,
            UnaryFn::Sigmoid => Un::Sigmoid,
            UnaryFn::Tanh => Un::Tanh,
            UnaryFn::LogicalNot => {
                let zero = self.b.scalar(0.0)?;
                let not = self.b.compare(CompareFn::Eq, x, zero)?;
                return self.float(not);
            }
            UnaryFn::BitwiseNot => {
                let (x, ones) = (self.whole(x)?, self.b.scalar_i64(-1)?);
                let turned = self.bin(Bin::BitXor, x, ones)?;
                return self.float(turned);
            }
        };
        self.un(f, x)
    }

    pub(super) fn binary_fn(&mut self, f: BinaryFn, a: ValueId, b: ValueId) -> Result<ValueId> {
        let compare = match f {
            BinaryFn::Add => return self.bin(Bin::Add, a, b),
            BinaryFn::Subtract => return self.bin(Bin::Sub, a, b),
            BinaryFn::Multiply => return self.bin(Bin::Mul, a, b),
            BinaryFn::Divide => return self.bin(Bin::Div, a, b),
            BinaryFn::FloorDivide => return self.bin(Bin::FloorDiv, a, b),
            BinaryFn::Pow => return self.bin(Bin::Pow, a, b),
            BinaryFn::AddClipped => {
                let sum = self.bin(Bin::Add, a, b)?;
                return self.clamp(sum, -F16_MAX, F16_MAX);
            }
            BinaryFn::BitwiseAnd | BinaryFn::BitwiseOr => {
                let f = if f == BinaryFn::BitwiseAnd {
                    Bin::BitAnd
                } else {
                    Bin::BitOr
                };
                let (a, b) = (self.whole(a)?, self.whole(b)?);
                let bits = self.bin(f, a, b)?;
                return self.float(bits);
            }
            BinaryFn::NotEqual => CompareFn::Ne,
            BinaryFn::Equal => CompareFn::Eq,
            BinaryFn::Less => CompareFn::Lt,
            BinaryFn::LessEqual => CompareFn::Le,
            BinaryFn::Greater => CompareFn::Gt,
            BinaryFn::GreaterEqual => CompareFn::Ge,
        };
        let truth = self.b.compare(compare, a, b)?;
        self.float(truth)
    }

    pub(crate) fn clamp(&mut self, x: ValueId, low: f32, high: f32) -> Result<ValueId> {
        let x = self.with(Bin::Max, x, low)?;
        self.with(Bin::Min, x, high)
    }

    pub(crate) fn round_to(&mut self, x: ValueId, precision: Precision) -> Result<ValueId> {
        match precision {
            Precision::Fp32 => Ok(x),
            Precision::Fp16 => {
                let half = self.b.cast(x, DType::F16)?;
                self.float(half)
            }
            Precision::Int8 => {
                let whole = self.un(Un::Round, x)?;
                self.clamp(whole, -128.0, 127.0)
            }
            _ => Err(Error::unsupported(format!(
                "nothing is converted to {precision:?} while a graph runs; expected INT8, FP16 or FP32"
            ))),
        }
    }

    /// See [`crate::graph::node_graph::GraphOp::MaskedSelectPrefix`].
    pub(super) fn masked_select_prefix(&mut self, [x, mask]: [ValueId; 2]) -> Result<ValueId> {
        let (shape, marked) = (self.shape(x)?, self.shape(mask)?);
        let Some(rest) = shape.strip_prefix(marked.as_slice()) else {
            return Err(Error::shape(format!(
                "the mask {marked:?} does not have the first axes of {shape:?}"
            )));
        };
        let n: usize = marked.iter().product();
        let rows: Vec<usize> = std::iter::once(n).chain(rest.iter().copied()).collect();
        let (x, mask) = (self.reshape(x, &rows)?, self.reshape(mask, &[n])?);
        let truth = self.truth(mask)?;
        let kept = self.float(truth)?;
        // Sorting keeps the order of equal elements.
        let (axis, descending) = (0, true);
        let order = self.b.op(Op::ArgSort { axis, descending }, &[kept])?;
        let moved = self.b.op(Op::Take { axis: 0 }, &[x, order])?;
        let count = self.reduce(ReduceFn::Sum, kept, 0)?;
        let place = self.count(Dim::known(0), Dim::known(n), &dims(&[n]))?;
        let place = self.float(place)?;
        let inside = self.b.compare(CompareFn::Lt, place, count)?;
        let wide: Vec<usize> = std::iter::once(n).chain(rest.iter().map(|_| 1)).collect();
        let (inside, zero) = (self.reshape(inside, &wide)?, self.b.scalar(0.0)?);
        Ok(self.b.select(inside, moved, zero)?)
    }

    /// See [`crate::graph::node_graph::GraphOp::MaskedScatter`].
    pub(super) fn masked_scatter(&mut self, [x, mask, source]: [ValueId; 3]) -> Result<ValueId> {
        let shape = self.shape(x)?;
        let given: usize = self.shape(source)?.iter().product();
        let n: usize = shape.iter().product();
        if given == 0 {
            return Err(Error::shape("the source has no element"));
        }
        let truth = self.truth(mask)?;
        let truth = self.b.expand(truth, dims(&shape))?;
        let truth = self.reshape(truth, &[n])?;
        let ones = self.float(truth)?;
        let ones = self.whole(ones)?;
        let before = self.b.op(Op::CumSum { axis: 0 }, &[ones])?;
        let (one, zero, most) = (
            self.b.scalar_i64(1)?,
            self.b.scalar_i64(0)?,
            self.b.scalar_i64(given as i64 - 1)?,
        );
        let place = self.bin(Bin::Sub, before, one)?;
        let place = self.bin(Bin::Max, place, zero)?;
        let place = self.bin(Bin::Min, place, most)?;
        let source = self.reshape(source, &[given])?;
        let taken = self.b.op(Op::Take { axis: 0 }, &[source, place])?;
        let flat = self.reshape(x, &[n])?;
        let chosen = self.b.select(truth, taken, flat)?;
        self.reshape(chosen, &shape)
    }
}
