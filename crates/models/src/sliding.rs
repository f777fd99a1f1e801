//! What components have in common that hear sound of any length, some rows at a time, and keep what they need of the rows before.

use cactus_ir::{BinaryFn, CompareFn, Dim, GraphBuilder, Op, TensorType, ValueId};
use cactus_tensor::DType;

/// Input and output, `f32[1, rows, hidden]`: what is kept from call to call. It is zeros at the beginning.
pub(crate) const MEMORY: &str = "memory";
pub(crate) const NEXT_MEMORY: &str = "next_memory";
/// Inputs, each `i64[1]`: where the first row stands, in frames or positions, and how many of them the sound has. Before zero and from there on
/// is none.
pub(crate) const FIRST: &str = "first";
pub(crate) const COUNT: &str = "count";
/// Added to scores of keys outside of the sound. It is finite, as all that a position outside sees may be such keys.
pub(crate) const OUTSIDE: f32 = -1e30;

/// Type of [`FIRST`] and [`COUNT`].
pub(crate) fn integer() -> TensorType {
    TensorType::new(DType::I64, [Dim::known(1)])
}

/// Rows of `x` `[1, rows, …]`.
pub(crate) fn rows(b: &mut GraphBuilder, x: ValueId, start: usize, end: usize) -> cactus_ir::Result<ValueId> {
    let (start, end) = (Dim::known(start), Dim::known(end));
    b.op(Op::Slice { axis: 1, start, end }, &[x])
}

/// Which of `places` places from `first` on are in the sound, `bool[places]`.
pub(crate) fn inside(b: &mut GraphBuilder, first: ValueId, places: &Dim, count: ValueId) -> cactus_ir::Result<ValueId> {
    let steps = b.iota(0, places.clone())?;
    let places = b.add(first, steps)?;
    let zero = b.scalar_i64(0)?;
    let begun = b.compare(CompareFn::Ge, places, zero)?;
    let goes_on = b.compare(CompareFn::Lt, places, count)?;
    b.binary(BinaryFn::And, begun, goes_on)
}
