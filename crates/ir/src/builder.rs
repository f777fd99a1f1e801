//! Writing a graph node by node, as importers and tests do. Rewriting one is left to [`Graph`]'s own methods.

use crate::{BinaryFn, CompareFn, Dim, Graph, Literal, Op, ReduceFn, Result, TensorType, UnaryFn, ValueId, WeightExpr};
use cactus_tensor::DType;

/// Writes a graph node by node. Types are inferred and checked at each call; nodes take the current path.
///
/// ```
/// use cactus_ir::{Dim, GraphBuilder, TensorType};
/// use cactus_tensor::DType;
/// # fn main() -> cactus_ir::Result<()> {
/// let mut b = GraphBuilder::new("mlp");
/// let x = b.input("x", TensorType::new(DType::F32, [Dim::symbol("batch"), Dim::known(4)]));
/// let w = b.weight("fc.weight", &[2, 4]);
/// let y = b.linear(x, w, None)?;
/// b.output("y", y);
/// let graph = b.finish()?;
/// assert_eq!(graph.order().len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct GraphBuilder {
    graph: Graph,
    path: Vec<String>,
}

impl GraphBuilder {
    /// An empty graph called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        GraphBuilder {
            graph: Graph::new(name),
            path: Vec::new(),
        }
    }

    /// The graph so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Runs `f` with `name` appended to the path of the nodes it adds.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn scope<T>(&mut self, name: impl Into<String>, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.path.push(name.into());
        let out = f(self);
        self.path.pop();
        out
    }

    /// Gives the nodes that are added from now on this path.
    pub fn set_path(&mut self, path: &str) {
        self.path = vec![path.to_owned()];
    }

    /// A constant of fixed `shape`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Type`] where the element counts differ or it is too large for a literal.
    pub fn literal(&mut self, shape: &[usize], literal: Literal) -> Result<ValueId> {
        self.graph.add_literal(shape, literal)
    }

    /// Type of a value.
    pub fn ty(&self, v: ValueId) -> &TensorType {
        self.graph.ty(v)
    }

    /// Declares an input.
    pub fn input(&mut self, name: &str, ty: TensorType) -> ValueId {
        self.graph.add_input(name, ty)
    }

    /// A weight of fixed `shape`, taken from the source tensor of the same name. Asked for again, the same value.
    pub fn weight(&mut self, name: &str, shape: &[usize]) -> ValueId {
        self.weight_from(name, shape, WeightExpr::source(name))
    }

    /// A weight called `name` of fixed `shape` that conversion makes by `expr`. Asked for again, the same value.
    pub fn weight_from(&mut self, name: &str, shape: &[usize], expr: WeightExpr) -> ValueId {
        let known = self
            .graph
            .values()
            .iter()
            .position(|v| v.name == name && matches!(&v.def, crate::Def::Weight(e) if *e == expr));
        if let Some(i) = known {
            return ValueId(i as u32);
        }
        let dims: Vec<Dim> = shape.iter().map(|&d| Dim::known(d)).collect();
        self.graph.add_weight(name, TensorType::new(DType::F32, dims), expr)
    }

    /// Names `value` as an output.
    pub fn output(&mut self, name: &str, value: ValueId) {
        self.graph.add_output(name, value);
    }

    /// The verified graph.
    ///
    /// # Errors
    /// Those of [`Graph::verify`].
    pub fn finish(self) -> Result<Graph> {
        let graph = self.graph.compacted();
        graph.verify()?;
        Ok(graph)
    }

    /// Adds any operation.
    ///
    /// # Errors
    /// Those of [`crate::infer`]; the same for every method below.
    pub fn op(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        let path = self.path.join(".");
        self.graph.append(path, op, inputs)
    }

    /// An `f32` scalar constant.
    ///
    /// # Errors
    /// None in practice.
    pub fn scalar(&mut self, value: f32) -> Result<ValueId> {
        self.graph.add_literal(&[], Literal::F32(vec![value]))
    }

    /// An `i64` scalar constant.
    ///
    /// # Errors
    /// None in practice.
    pub fn scalar_i64(&mut self, value: i64) -> Result<ValueId> {
        self.graph.add_literal(&[], Literal::I64(vec![value]))
    }

    /// An `f32` vector constant.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Type`] where it is too large for a literal.
    pub fn vector(&mut self, values: Vec<f32>) -> Result<ValueId> {
        let n = values.len();
        self.graph.add_literal(&[n], Literal::F32(values))
    }

    /// `f(x)`.
    pub fn unary(&mut self, f: UnaryFn, x: ValueId) -> Result<ValueId> {
        self.op(Op::Unary { f }, &[x])
    }

    /// `f(a, b)`, broadcast.
    pub fn binary(&mut self, f: BinaryFn, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.op(Op::Binary { f }, &[a, b])
    }

    /// `a + b`, broadcast.
    pub fn add(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.binary(BinaryFn::Add, a, b)
    }

    /// `a * b`, broadcast.
    pub fn mul(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.binary(BinaryFn::Mul, a, b)
    }

    /// `x * factor`.
    pub fn scale(&mut self, x: ValueId, factor: f32) -> Result<ValueId> {
        let c = self.scalar(factor)?;
        self.mul(x, c)
    }

    /// Comparison, broadcast.
    pub fn compare(&mut self, f: CompareFn, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.op(Op::Compare { f }, &[a, b])
    }

    /// `cond ? a : b`, broadcast.
    pub fn select(&mut self, cond: ValueId, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.op(Op::Where, &[cond, a, b])
    }

    /// Reduction of the last axis, which stays with size 1.
    pub fn reduce_last(&mut self, f: ReduceFn, x: ValueId) -> Result<ValueId> {
        let axis = self.rank(x).saturating_sub(1);
        self.op(
            Op::Reduce {
                f,
                axes: vec![axis],
                keepdim: true,
            },
            &[x],
        )
    }

    /// Softmax of the last axis.
    pub fn softmax_last(&mut self, x: ValueId) -> Result<ValueId> {
        let axis = self.rank(x).saturating_sub(1);
        self.op(Op::Softmax { axis }, &[x])
    }

    /// Another shape of the same elements.
    pub fn reshape(&mut self, x: ValueId, shape: impl Into<Vec<Dim>>) -> Result<ValueId> {
        let shape = shape.into();
        self.op(Op::Reshape { shape }, &[x])
    }

    /// Broadcast to a shape.
    pub fn expand(&mut self, x: ValueId, shape: impl Into<Vec<Dim>>) -> Result<ValueId> {
        let shape = shape.into();
        self.op(Op::Expand { shape }, &[x])
    }

    /// Axes reordered.
    pub fn permute(&mut self, x: ValueId, perm: &[usize]) -> Result<ValueId> {
        self.op(Op::Permute { perm: perm.to_vec() }, &[x])
    }

    /// Elements `start..end` of the last axis.
    pub fn slice_last(&mut self, x: ValueId, start: usize, end: usize) -> Result<ValueId> {
        let axis = self.rank(x).saturating_sub(1);
        self.op(
            Op::Slice {
                axis,
                start: Dim::known(start),
                end: Dim::known(end),
            },
            &[x],
        )
    }

    /// Operands joined along the last axis.
    pub fn concat_last(&mut self, parts: &[ValueId]) -> Result<ValueId> {
        let axis = parts.first().map_or(0, |&p| self.rank(p).saturating_sub(1));
        self.op(Op::Concat { axis }, parts)
    }

    /// Another element type.
    pub fn cast(&mut self, x: ValueId, dtype: DType) -> Result<ValueId> {
        self.op(Op::Cast { dtype }, &[x])
    }

    /// `[start, start+1, …]`, `i64[len]`.
    pub fn iota(&mut self, start: impl Into<Dim>, len: impl Into<Dim>) -> Result<ValueId> {
        let (start, len) = (start.into(), len.into());
        self.op(Op::Iota { start, len }, &[])
    }

    /// Rows of `table` by `ids`.
    pub fn embedding(&mut self, table: ValueId, ids: ValueId) -> Result<ValueId> {
        self.op(Op::Embedding, &[table, ids])
    }

    /// `x · wᵀ + bias`.
    pub fn linear(&mut self, x: ValueId, w: ValueId, bias: Option<ValueId>) -> Result<ValueId> {
        let mut inputs = vec![x, w];
        inputs.extend(bias);
        self.op(Op::Linear, &inputs)
    }

    /// Matrix product of the last two axes.
    pub fn matmul(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.op(Op::MatMul, &[a, b])
    }

    /// Shape of a value.
    pub fn shape(&self, v: ValueId) -> Vec<Dim> {
        self.graph.ty(v).shape.clone()
    }

    fn rank(&self, v: ValueId) -> usize {
        self.graph.ty(v).shape.len()
    }
}
