//! Running nodes: each one kernel over dense tensors.

mod blocks;
mod experts;
mod gates;
mod heavy;
mod streams;

use self::heavy::Way;
use super::constants::Constants;
use super::held_bytes;
use super::memory::Memory;
use super::plan::{Place, Plan};
use crate::{Error, Observed, Observer, Result, kernel_names};
use cactus_base::AlignedBuf;
use cactus_ir::{BinaryFn, Bindings, CompareFn, Dim, Graph, Node, Op, ReduceFn, UnaryFn, ValueId};
use cactus_kernels::dense::{
    self, Dims, Recurrent, ScoreOperands, broadcast_strides, map2, map3, packed_bytes, recurrent_scratch_elems,
};
use cactus_kernels::{Activations, BinaryOp, Exec, NextNorm, Norm, UnaryOp};
use cactus_tensor::{DType, Elements, TensorView};
use std::ops::ControlFlow;

/// A call under way.
pub(super) struct Run<'a> {
    pub(super) graph: &'a Graph,
    pub(super) constants: &'a Constants,
    pub(super) plan: &'a Plan,
    pub(super) bindings: &'a Bindings,
    pub(super) memory: &'a mut Memory,
    /// The elements of each input, as they are held.
    pub(super) inputs: &'a [&'a [u8]],
    pub(super) exec: Exec<'a>,
}

/// Refuses a node that no kernel computes.
pub(super) fn check(graph: &Graph, node: &Node) -> Result<()> {
    let dtype = |i: usize| node.inputs.get(i).map(|&v| graph.ty(v).dtype);
    let unsupported = match &node.op {
        Op::Unary { f } => kernel_names::unary(*f).is_none() && plain_unary(*f).is_none() && *f != UnaryFn::Not,
        Op::Gated { activation, .. }
        | Op::NormGate { activation, .. }
        | Op::Experts { activation }
        | Op::RoutedExperts { activation, .. } => kernel_names::activation(*activation).is_none(),
        Op::Scatter { .. } => dtype(0) == Some(DType::Bool),
        op => op.state().is_some(),
    };
    // Values of 16-bit floats are held in 32 bits, rounded by the cast that makes them; what only moves elements keeps them.
    let exact = matches!(
        node.op,
        Op::Cast { .. }
            | Op::Reshape { .. }
            | Op::Permute { .. }
            | Op::Slice { .. }
            | Op::Concat { .. }
            | Op::Expand { .. }
            | Op::Take { .. }
            | Op::Gather { .. }
            | Op::Where
    );
    let half = !exact
        && node
            .outputs
            .iter()
            .any(|&v| matches!(graph.ty(v).dtype, DType::F16 | DType::BF16));
    if unsupported || half {
        return Err(Error::Unsupported {
            node: format!("{}/{}", node.path, node.op.mnemonic()),
            message: match half {
                true => "there is no kernel for values of 16-bit floats; expected 32 bits".into(),
                false => "there is no kernel for this operation".into(),
            },
        });
    }
    Ok(())
}

/// Operands of a node: constant, an input, or in the slots while the result's is taken out.
pub(super) struct Operands<'a> {
    constants: &'a Constants,
    plan: &'a Plan,
    graph: &'a Graph,
    slots: &'a [Option<AlignedBuf>],
    inputs: &'a [&'a [u8]],
}

impl<'a> Operands<'a> {
    pub(super) fn bytes(&self, v: ValueId) -> Result<&'a [u8]> {
        let len = self.plan.bytes(self.graph, v);
        let missing = || Error::Unsupported {
            node: format!("weight {}", self.graph.value(v).name),
            message: "it is packed for matrix products, but another operation reads it; convert it with 32 bits".into(),
        };
        let (bytes, start) = match self.plan.places.get(&v) {
            Some(Place::Slot { slot, start }) => (self.slots[*slot].as_deref().unwrap_or(&[]), *start),
            Some(Place::Input { index, start }) => (self.inputs[*index], *start),
            Some(Place::Constant { of, start }) => (self.constants.plain(*of).ok_or_else(missing)?, *start),
            None => return Err(missing()),
        };
        bytes.get(start..start + len).ok_or_else(|| {
            Error::Argument("a value lies outside of its memory; this is a bug, please report it".into())
        })
    }

    pub(super) fn f32(&self, v: ValueId) -> Result<&'a [f32]> {
        Ok(bytemuck::cast_slice(self.bytes(v)?))
    }

    fn i64(&self, v: ValueId) -> Result<&'a [i64]> {
        Ok(bytemuck::cast_slice(self.bytes(v)?))
    }

    pub(super) fn shape(&self, v: ValueId) -> &'a [usize] {
        &self.plan.shapes[v.index()]
    }
}

impl Run<'_> {
    /// The bytes of a value.
    pub(super) fn bytes(&self, v: ValueId) -> Result<&[u8]> {
        self.operands().bytes(v)
    }

    /// Shows an observer what a linear is about to read; any other node is passed over.
    pub(super) fn show(&self, node: &Node, observer: Observer<'_>) -> Result<ControlFlow<()>> {
        let (Op::Linear, [x, weight, ..]) = (&node.op, &node.inputs[..]) else {
            return Ok(ControlFlow::Continue(()));
        };
        let (Some(weight), Some(&k)) = (self.constants.stored_name(*weight), self.shape(*x).last()) else {
            return Ok(ControlFlow::Continue(()));
        };
        let (input, exec) = (self.operands().f32(*x)?, self.exec);
        let mut kept = Vec::new();
        if let Some(bounds) = self.bounds(self.plan.folds.before.get(&node.outputs[0]))? {
            kept.extend_from_slice(input);
            exec.keep_within(bounds, &mut kept);
        }
        let input = if kept.is_empty() { input } else { &kept[..] };
        Ok(observer(Observed { weight, input, k, exec }))
    }

    /// Shows a value to `f`.
    pub(super) fn read(&self, v: ValueId, f: impl FnOnce(TensorView<'_>) -> Result<()>) -> Result<()> {
        let operands = self.operands();
        let shape = operands.shape(v);
        let bools: Vec<bool>;
        let elements = match super::held_type(self.graph.ty(v).dtype) {
            DType::F32 => Elements::F32(operands.f32(v)?),
            DType::I64 => Elements::I64(operands.i64(v)?),
            _ => {
                bools = operands.bytes(v)?.iter().map(|&b| b != 0).collect();
                Elements::Bool(&bools)
            }
        };
        f(TensorView::new(shape, elements).map_err(|e| Error::Argument(e.to_string()))?)
    }

    fn operands(&self) -> Operands<'_> {
        Operands {
            constants: self.constants,
            plan: self.plan,
            graph: self.graph,
            slots: &self.memory.slots,
            inputs: self.inputs,
        }
    }

    /// Computes a node.
    pub(super) fn node(&mut self, node: &Node) -> Result<()> {
        let v = node.outputs[0];
        let Some(&Place::Slot { slot, .. }) = self.plan.places.get(&v) else {
            return Ok(());
        };
        let aliased = node.inputs.first().and_then(|x| self.plan.places.get(x));
        let is_done = self.plan.folds.done.contains(&v);
        let is_view = (is_done || matches!(node.op, Op::Reshape { .. } | Op::Slice { .. }))
            && matches!(aliased, Some(Place::Slot { slot: s, .. }) if *s == slot);
        if is_view {
            return Ok(());
        }
        let in_place = matches!(aliased, Some(Place::Slot { slot: s, .. }) if *s == slot);
        let need = self.scratch_bytes(node);
        let mut scratch = match self.memory.scratch.take() {
            Some(s) if s.len() >= need => s,
            _ => AlignedBuf::zeroed(need)?,
        };
        let Some(mut out) = self.memory.slots[slot].take() else {
            return Err(Error::Argument(
                "the memory of a value is in use by another one; this is a bug, please report it".into(),
            ));
        };
        let len = self.plan.bytes(self.graph, v);
        let result = match &node.op {
            Op::Unary { f } if in_place => {
                if let Some(f) = kernel_names::unary(*f) {
                    let x = floats(&mut out[..len]);
                    match self.plan.blocks.contains(v) {
                        true => self.exec.unary_blocks(f, None, self.planes(v)[2], x),
                        false => self.exec.unary_in_place(f, x),
                    }
                }
                Ok(())
            }
            _ => self.compute(node, &mut out[..len], bytemuck::cast_slice_mut(&mut scratch[..need])),
        };
        self.memory.slots[slot] = Some(out);
        self.memory.scratch = Some(scratch);
        result.map_err(|e| match e {
            Error::Argument(what) => Error::Argument(format!("in {}/{}: {what}", node.path, node.op.mnemonic())),
            e => e,
        })
    }

    fn shape(&self, v: ValueId) -> &[usize] {
        &self.plan.shapes[v.index()]
    }

    /// Bytes of scratch memory that a node needs.
    fn scratch_bytes(&self, node: &Node) -> usize {
        let shape = |i: usize| self.shape(node.inputs[i]);
        let out = self.shape(node.outputs[0]);
        match &node.op {
            Op::Linear => match self.constants.matrix(node.inputs[1]) {
                Ok(Some(w)) => {
                    let rows = shape(0).iter().product::<usize>() / w.k().max(1);
                    Activations::bytes(w.packing(), rows, w.k()).unwrap_or(0)
                }
                _ => packed_bytes(shape(1)[0], shape(1)[1]),
            },
            Op::MatMul => {
                let b = shape(1);
                packed_bytes(b[b.len() - 1], b[b.len() - 2])
            }
            Op::ConvTranspose { .. } if self.plan.blocks.touches(node) => self.transpose_scratch_bytes(node),
            Op::Conv1d { .. } | Op::Conv(_) => {
                let w = self.plan.window(node);
                let elems = match self.way(node, &w) {
                    Ok(Way::Integers(filters)) => self.exec.conv_integers_scratch_elems(&w, &filters),
                    Ok(Way::Rows(filters)) => self.exec.conv_rows_scratch_elems(&w, shape(0)[0], &filters),
                    Ok(Way::Depthwise) => self.exec.conv_depthwise_scratch_elems(&w),
                    Ok(Way::Blocks(conv)) => self.block_scratch_elems(node, &conv),
                    Ok(Way::DepthwiseBlocks(conv)) => self.exec.depthwise_blocks_scratch_elems(&conv),
                    // What is wrong is said when it is computed.
                    Ok(Way::Windows) | Err(_) => self.exec.conv_scratch_elems(&w, self.shape(node.inputs[1])[1]),
                };
                elems.saturating_mul(4)
            }
            Op::ConvTranspose { conv, .. } => {
                let (x, weight) = (shape(0), shape(1));
                dense::conv_transpose_scratch_bytes(&self.plan.window(node), x[1] / conv.groups, weight[1])
            }
            Op::Reduce { axes, .. } => match block(shape(0), axes) {
                Some(_) => 0,
                None => shape(0).iter().product::<usize>() * 4,
            },
            Op::Softmax { axis } if axis + 1 != out.len() => out.iter().product::<usize>() * 8,
            Op::Lstm { .. } | Op::Gru { .. } => {
                let gates = if matches!(node.op, Op::Lstm { .. }) { 4 } else { 3 };
                let r = recurrent(node, shape(0), shape(1));
                let packed = match self.constants.matrix(node.inputs[1]) {
                    Ok(Some(_)) => 0,
                    _ => packed_bytes(gates * r.width, r.width),
                };
                4 * recurrent_scratch_elems(&r, gates) + packed
            }
            Op::GatedDelta { steps, .. } => {
                let (q, v) = (shape(0), shape(2));
                let made = if *steps { 2 * v[1] * v[2] } else { 0 };
                4 * (v[2] * q[3] * v[3] + made)
            }
            Op::Gated { .. } | Op::NormGate { .. } => self.gated_scratch_bytes(node),
            Op::AltupPredict | Op::AltupCorrect { .. } => self.streams_scratch_bytes(node),
            Op::Experts { .. } | Op::RoutedExperts { .. } => self.experts_scratch_bytes(node),
            Op::Attention(a) if a.texts => {
                self.exec
                    .attend_texts_scratch_bytes(&heavy::dense_attention(a, shape(0), shape(1)))
            }
            Op::Attention(a) => self
                .exec
                .attend_dense_scratch_bytes(&heavy::dense_attention(a, shape(0), shape(1))),
            Op::Rope { .. } | Op::NormRope { .. } => {
                let last = node.inputs.len() - 1;
                4 * 3 * shape(last - 1)[0] * shape(last).last().copied().unwrap_or(0)
            }
            _ => 0,
        }
    }

    fn compute(&self, node: &Node, out: &mut [u8], scratch: &mut [f32]) -> Result<()> {
        let ops = self.operands();
        let exec = &self.exec;
        let x = node.inputs.first().copied();
        let arg = |i: usize| node.inputs[i];
        let shape = self.shape(node.outputs[0]);
        let first = || ops.f32(arg(0));
        match &node.op {
            Op::Pool(_)
            | Op::Reduce { .. }
            | Op::Binary { .. }
            | Op::Concat { .. }
            | Op::ConvTranspose { .. }
            | Op::Permute { .. }
                if self.plan.blocks.touches(node) =>
            {
                self.in_blocks(node, floats(out), scratch)?;
            }
            Op::Unary { f: UnaryFn::Not } => {
                for (o, &b) in out.iter_mut().zip(ops.bytes(arg(0))?) {
                    *o = u8::from(b == 0);
                }
            }
            Op::Unary { f } if self.graph.ty(arg(0)).dtype == DType::I64 => {
                for (o, &v) in bytemuck::cast_slice_mut::<u8, i64>(out)
                    .iter_mut()
                    .zip(ops.i64(arg(0))?)
                {
                    *o = match f {
                        UnaryFn::Neg => v.wrapping_neg(),
                        UnaryFn::Abs => v.wrapping_abs(),
                        _ => v.signum(),
                    };
                }
            }
            Op::Unary { f } => match (kernel_names::unary(*f), plain_unary(*f)) {
                (Some(f), _) if self.plan.blocks.contains(node.outputs[0]) => {
                    exec.unary_blocks(f, Some(first()?), self.planes(node.outputs[0])[2], floats(out));
                }
                (Some(f), _) => exec.unary(f, first()?, floats(out)),
                (None, Some(f)) => floats(out).iter_mut().zip(first()?).for_each(|(o, &x)| *o = f(x)),
                _ => return Err(Error::Argument(format!("there is no kernel for {f:?}"))),
            },
            Op::Binary { f } => self.binary(*f, node, shape, out)?,
            Op::Compare { f } => self.compare(*f, arg(0), arg(1), shape, out)?,
            Op::Where => {
                let strides = |i: usize| broadcast_strides(ops.shape(arg(i)), shape);
                let (c, a, b) = (strides(0), strides(1), strides(2));
                let cond = (ops.bytes(arg(0))?, &c[..]);
                match self.graph.ty(arg(1)).dtype {
                    DType::I64 => {
                        let (x, y) = (ops.i64(arg(1))?, ops.i64(arg(2))?);
                        map3(shape, cond, (x, &a), (y, &b), bytemuck::cast_slice_mut(out), pick);
                    }
                    DType::Bool => map3(
                        shape,
                        cond,
                        (ops.bytes(arg(1))?, &a),
                        (ops.bytes(arg(2))?, &b),
                        out,
                        pick,
                    ),
                    _ => {
                        let (x, y) = (ops.f32(arg(1))?, ops.f32(arg(2))?);
                        map3(shape, cond, (x, &a), (y, &b), floats(out), pick);
                    }
                }
            }
            Op::Cast { dtype } => self.cast(arg(0), *dtype, out)?,
            Op::Reduce { f, axes, .. } => self.reduce(*f, axes, arg(0), out, scratch)?,
            Op::Softmax { axis } => self.softmax(*axis, first()?, shape, out, scratch),
            Op::ArgReduce { f, axis, .. } => {
                let dims = around(ops.shape(arg(0)), *axis);
                if dims[1] == 0 {
                    return Err(Error::Argument(
                        "cannot take the largest or smallest element of an empty axis".into(),
                    ));
                }
                let (out, largest) = (bytemuck::cast_slice_mut(out), *f == ReduceFn::Max);
                match self.graph.ty(arg(0)).dtype {
                    DType::I64 => dense::arg_extreme(ops.i64(arg(0))?, dims, largest, out),
                    _ => dense::arg_extreme(first()?, dims, largest, out),
                }
            }
            Op::ArgSort { axis, descending } => {
                let (dims, out) = (around(shape, *axis), bytemuck::cast_slice_mut(out));
                match self.graph.ty(arg(0)).dtype {
                    DType::I64 => dense::arg_sort(ops.i64(arg(0))?, dims, *descending, out),
                    _ => dense::arg_sort(first()?, dims, *descending, out),
                }
            }
            Op::CumSum { axis } => {
                let dims = around(shape, *axis);
                match self.graph.ty(arg(0)).dtype {
                    DType::I64 => {
                        dense::cum_sum(ops.i64(arg(0))?, dims, i64::wrapping_add, bytemuck::cast_slice_mut(out));
                    }
                    _ => dense::cum_sum(first()?, dims, |a, b| a + b, floats(out)),
                }
            }
            Op::Permute { perm } => {
                let strides = broadcast_strides(ops.shape(arg(0)), ops.shape(arg(0)));
                let strides: Dims = perm.iter().map(|&p| strides[p]).collect();
                self.walk(arg(0), 0, shape, &strides, out)?;
            }
            Op::Expand { .. } => {
                let strides = broadcast_strides(ops.shape(arg(0)), shape);
                self.walk(arg(0), 0, shape, &strides, out)?;
            }
            Op::Slice { axis, start, .. } => {
                let strides = broadcast_strides(ops.shape(arg(0)), ops.shape(arg(0)));
                let start = self.eval(start)? * strides[*axis];
                self.walk(arg(0), start, shape, &strides, out)?;
            }
            Op::Reshape { .. } => out.copy_from_slice(ops.bytes(arg(0))?),
            Op::Concat { axis } => {
                let inner =
                    |v: ValueId| ops.shape(v)[*axis..].iter().product::<usize>() * held_bytes(self.graph.ty(v).dtype);
                let row: usize = node.inputs.iter().map(|&v| inner(v)).sum();
                let mut at = 0;
                for &v in &node.inputs {
                    let (run, bytes) = (inner(v), ops.bytes(v)?);
                    if run > 0 {
                        for (row, part) in out.chunks_exact_mut(row).zip(bytes.chunks_exact(run)) {
                            row[at..at + run].copy_from_slice(part);
                        }
                    }
                    at += run;
                }
            }
            Op::Iota { start, .. } => {
                let start = self.eval(start)? as i64;
                for (i, o) in bytemuck::cast_slice_mut::<u8, i64>(out).iter_mut().enumerate() {
                    *o = start + i as i64;
                }
            }
            Op::Embedding => {
                let ids = ops.i64(arg(1))?;
                match self.constants.matrix(arg(0))? {
                    Some(table) => {
                        let rows = table.n();
                        checked(ids, rows)?;
                        let ids: Vec<u32> = ids.iter().map(|&i| i as u32).collect();
                        exec.embed(&table, &ids, floats(out))?;
                    }
                    None => {
                        let s = ops.shape(arg(0));
                        checked(ids, s[0])?;
                        dense::take(ops.f32(arg(0))?, [1, s[0], s[1]], ids, floats(out));
                    }
                }
            }
            Op::Take { axis } => {
                let (dims, ids) = (around(ops.shape(arg(0)), *axis), ops.i64(arg(1))?);
                checked(ids, dims[1])?;
                let [outer, n, inner] = dims;
                // Elements of any type are moved as bytes.
                let bytes = held_bytes(self.graph.ty(arg(0)).dtype);
                dense::take(ops.bytes(arg(0))?, [outer, n, inner * bytes], ids, out);
            }
            Op::Gather { axis } => {
                let (s, ids_shape, ids) = (ops.shape(arg(0)), ops.shape(arg(1)), ops.i64(arg(1))?);
                checked(ids, s[*axis])?;
                match self.graph.ty(arg(0)).dtype {
                    DType::I64 => {
                        dense::gather(
                            ops.i64(arg(0))?,
                            s,
                            *axis,
                            ids,
                            ids_shape,
                            bytemuck::cast_slice_mut(out),
                        );
                    }
                    DType::Bool => dense::gather(ops.bytes(arg(0))?, s, *axis, ids, ids_shape, out),
                    _ => dense::gather(first()?, s, *axis, ids, ids_shape, floats(out)),
                }
            }
            Op::Scatter { axis, add } => {
                let (ids_shape, ids) = (ops.shape(arg(1)), ops.i64(arg(1))?);
                checked(ids, shape[*axis])?;
                out.copy_from_slice(ops.bytes(arg(0))?);
                match self.graph.ty(arg(0)).dtype {
                    DType::I64 => {
                        let out = bytemuck::cast_slice_mut(out);
                        dense::scatter(out, shape, *axis, ids, ids_shape, ops.i64(arg(2))?, *add);
                    }
                    _ => dense::scatter(floats(out), shape, *axis, ids, ids_shape, ops.f32(arg(2))?, *add),
                }
            }
            Op::Linear => self.linear(node, out, scratch)?,
            Op::MatMul => self.matmul(arg(0), arg(1), shape, out, scratch)?,
            Op::Conv1d { .. } | Op::Conv(_) | Op::ConvTranspose { .. } => self.conv(node, out, scratch)?,
            Op::Pool(a) => {
                let op = heavy::pool_op(a.f);
                let w = self.plan.window(node);
                let divisor = a.count_padding.then(|| w.taps());
                exec.pool(op, &w, divisor, first()?, floats(out));
            }
            Op::Lstm { .. } | Op::Gru { .. } => self.recurrent(node, out, scratch)?,
            Op::GatedDelta { .. } => self.gated_delta(node, out, scratch)?,
            Op::Experts { activation } | Op::RoutedExperts { activation, .. } => {
                self.experts(node, *activation, floats(out), scratch)?;
            }
            Op::RmsNorm { eps } => {
                let w = ops.f32(arg(1))?;
                let rows = shape.iter().product::<usize>() / w.len().max(1);
                exec.rms_norm(first()?, w, *eps, rows, w.len(), floats(out));
            }
            Op::LayerNorm { eps } => self.layer_norm(node, *eps, floats(out))?,
            Op::AltupPredict | Op::AltupCorrect { .. } => self.altup(node, floats(out), scratch)?,
            Op::SliceAdd { axis, start, end } => self.slice_add(node, *axis, [*start, *end], floats(out))?,
            Op::Gated { .. } => self.gated(node, floats(out), scratch)?,
            Op::NormGate { eps, .. } => self.norm_gate(node, *eps, floats(out), scratch)?,
            Op::Rope { scale, .. } => self.rope(node, None, *scale, out, scratch)?,
            Op::NormRope { eps, scale } => {
                let weight = ops.f32(arg(1))?;
                self.rope(node, Some(Norm { weight, eps: *eps }), *scale, out, scratch)?;
            }
            Op::NormAdd { eps } => {
                let weight = ops.f32(arg(2))?;
                let rows = shape.iter().product::<usize>() / weight.len().max(1);
                out.copy_from_slice(ops.bytes(arg(0))?);
                let norm = Norm { weight, eps: *eps };
                exec.norm_add(ops.f32(arg(1))?, norm, rows, floats(out), NextNorm::None);
            }
            Op::Attention(a) => {
                let [q, k, v] = [arg(0), arg(1), arg(2)];
                let mut dense = heavy::dense_attention(a, ops.shape(q), ops.shape(k));
                let hidden = match a.until_operand() {
                    Some(at) => heavy::hidden_behind(ops.i64(arg(at))?, dense.keys)?,
                    None => Vec::new(),
                };
                let bias = match (node.inputs.get(a.bias_operand()), a.until) {
                    (Some(&bias), _) => Some(heavy::score_bias(&dense, ops.shape(bias), ops.f32(bias)?)),
                    (None, true) => {
                        dense.causal = false;
                        Some(heavy::score_bias(&dense, &[dense.queries, dense.keys], &hidden))
                    }
                    (None, false) => None,
                };
                let more = ScoreOperands {
                    bias,
                    sinks: a.sinks_operand().map(|i| ops.f32(arg(i))).transpose()?,
                    slopes: a.slopes_operand().map(|i| ops.f32(arg(i))).transpose()?,
                };
                let qkv = [ops.f32(q)?, ops.f32(k)?, ops.f32(v)?];
                match a.texts_operand() {
                    None => exec.attend_dense(&dense, qkv, more, scratch, floats(out)),
                    Some(texts) => {
                        let lengths = heavy::text_lengths(ops.i64(arg(texts))?)?;
                        exec.attend_texts(&dense, &lengths, qkv, more, scratch, floats(out));
                    }
                }
            }
            Op::ShortConv { activation, .. } => self.short_conv(node, *activation, floats(out))?,
            other => {
                let _ = x;
                return Err(Error::Argument(format!(
                    "there is no kernel for the operation {}",
                    other.mnemonic()
                )));
            }
        }
        Ok(())
    }

    fn eval(&self, d: &Dim) -> Result<usize> {
        d.eval(self.bindings).map_err(|e| Error::Argument(e.to_string()))
    }

    /// Elements of `v` by strides.
    fn walk(&self, v: ValueId, start: usize, shape: &[usize], strides: &[usize], out: &mut [u8]) -> Result<()> {
        let ops = self.operands();
        match held_bytes(self.graph.ty(v).dtype) {
            4 => self.exec.copy_strided(ops.f32(v)?, start, shape, strides, floats(out)),
            8 => self
                .exec
                .copy_strided(ops.i64(v)?, start, shape, strides, bytemuck::cast_slice_mut(out)),
            _ => self.exec.copy_strided(ops.bytes(v)?, start, shape, strides, out),
        }
        Ok(())
    }

    /// What the operands of an operation with result `v` become first.
    fn functions(&self, v: ValueId) -> [Option<UnaryOp>; 2] {
        self.plan.folds.operands.get(&v).copied().unwrap_or_default()
    }

    fn binary(&self, f: BinaryFn, node: &Node, shape: &[usize], out: &mut [u8]) -> Result<()> {
        let (ops, functions) = (self.operands(), self.functions(node.outputs[0]));
        let [a, b] = [node.inputs[0], node.inputs[1]];
        let (sa, sb) = (
            broadcast_strides(ops.shape(a), shape),
            broadcast_strides(ops.shape(b), shape),
        );
        match self.graph.ty(a).dtype {
            DType::Bool => {
                let and = f == BinaryFn::And;
                let join = move |a: u8, b: u8| if and { a & b } else { a | b };
                map2(shape, (ops.bytes(a)?, &sa), (ops.bytes(b)?, &sb), out, join);
            }
            DType::I64 => {
                let (x, y) = (ops.i64(a)?, ops.i64(b)?);
                if matches!(f, BinaryFn::Div | BinaryFn::FloorDiv | BinaryFn::Mod) && y.contains(&0) {
                    return Err(Error::Argument("an integer was divided by 0".into()));
                }
                map2(shape, (x, &sa), (y, &sb), bytemuck::cast_slice_mut(out), |a, b| {
                    integers(f, a, b)
                });
            }
            _ => {
                let (x, y) = (ops.f32(a)?, ops.f32(b)?);
                match kernel_names::binary(f) {
                    Some(op) if functions != [None; 2] => self.exec.zip(op, functions, x, y, floats(out)),
                    Some(op) => self.floats(op, shape, (x, &sa), (y, &sb), floats(out)),
                    None => map2(shape, (x, &sa), (y, &sb), floats(out), |a, b| match f {
                        BinaryFn::Pow => f64::from(a).powf(b.into()) as f32,
                        BinaryFn::FloorDiv => (a / b).floor(),
                        _ => a - (a / b).floor() * b,
                    }),
                }
            }
        }
        Ok(())
    }

    /// Equal shapes at once, others line by line.
    fn floats(&self, op: BinaryOp, shape: &[usize], a: (&[f32], &[usize]), b: (&[f32], &[usize]), out: &mut [f32]) {
        let whole = a.0.len() == out.len() && (b.0.len() == out.len() || b.0.len() == 1);
        match whole {
            true => self.exec.binary(op, a.0, b.0, out),
            false => self.exec.binary_broadcast(op, shape, a, b, out),
        }
    }

    fn compare(&self, f: CompareFn, a: ValueId, b: ValueId, shape: &[usize], out: &mut [u8]) -> Result<()> {
        fn ordered<T: PartialOrd>(f: CompareFn) -> fn(T, T) -> u8 {
            match f {
                CompareFn::Eq => |a, b| u8::from(a == b),
                CompareFn::Ne => |a, b| u8::from(a != b),
                CompareFn::Lt => |a, b| u8::from(a < b),
                CompareFn::Le => |a, b| u8::from(a <= b),
                CompareFn::Gt => |a, b| u8::from(a > b),
                _ => |a, b| u8::from(a >= b),
            }
        }
        let ops = self.operands();
        let (sa, sb) = (
            broadcast_strides(ops.shape(a), shape),
            broadcast_strides(ops.shape(b), shape),
        );
        match self.graph.ty(a).dtype {
            DType::Bool => map2(shape, (ops.bytes(a)?, &sa), (ops.bytes(b)?, &sb), out, ordered(f)),
            DType::I64 => map2(shape, (ops.i64(a)?, &sa), (ops.i64(b)?, &sb), out, ordered(f)),
            _ => map2(shape, (ops.f32(a)?, &sa), (ops.f32(b)?, &sb), out, ordered(f)),
        }
        Ok(())
    }

    fn cast(&self, v: ValueId, to: DType, out: &mut [u8]) -> Result<()> {
        let ops = self.operands();
        let from = super::held_type(self.graph.ty(v).dtype);
        match (from, super::held_type(to)) {
            (DType::F32, _) if to == DType::F16 => {
                each(ops.f32(v)?, floats(out), |x| half::f16::from_f32(x).to_f32());
            }
            (DType::F32, _) if to == DType::BF16 => {
                each(ops.f32(v)?, floats(out), |x| half::bf16::from_f32(x).to_f32());
            }
            (DType::I64, _) if to == DType::F16 => {
                each(ops.i64(v)?, floats(out), |x| half::f16::from_f32(x as f32).to_f32());
            }
            (DType::I64, _) if to == DType::BF16 => {
                each(ops.i64(v)?, floats(out), |x| half::bf16::from_f32(x as f32).to_f32());
            }
            (a, b) if a == b => out.copy_from_slice(ops.bytes(v)?),
            (DType::F32, DType::I64) => each(ops.f32(v)?, bytemuck::cast_slice_mut(out), |x| x as i64),
            (DType::F32, _) => each(ops.f32(v)?, out, |x| u8::from(x != 0.0)),
            (DType::I64, DType::F32) => each(ops.i64(v)?, floats(out), |x| x as f32),
            (DType::I64, _) => each(ops.i64(v)?, out, |x| u8::from(x != 0)),
            (_, DType::F32) => each(ops.bytes(v)?, floats(out), f32::from),
            _ => each(ops.bytes(v)?, bytemuck::cast_slice_mut(out), i64::from),
        }
        Ok(())
    }
}

pub(super) fn floats(bytes: &mut [u8]) -> &mut [f32] {
    bytemuck::cast_slice_mut(bytes)
}

fn pick<T>(cond: u8, a: T, b: T) -> T {
    if cond != 0 { a } else { b }
}

fn each<A: Copy, B>(x: &[A], out: &mut [B], f: impl Fn(A) -> B) {
    out.iter_mut().zip(x).for_each(|(o, &x)| *o = f(x));
}

fn integers(f: BinaryFn, a: i64, b: i64) -> i64 {
    match f {
        BinaryFn::Add => a.wrapping_add(b),
        BinaryFn::Sub => a.wrapping_sub(b),
        BinaryFn::Mul => a.wrapping_mul(b),
        BinaryFn::Div => a.wrapping_div(b),
        BinaryFn::FloorDiv => floor_div(a, b),
        BinaryFn::Mod => a.wrapping_sub(floor_div(a, b).wrapping_mul(b)),
        BinaryFn::Pow => u32::try_from(b).map_or(0, |b| a.wrapping_pow(b)),
        BinaryFn::Max => a.max(b),
        BinaryFn::Min => a.min(b),
        // The others are of booleans, which the verifier keeps from here.
        _ => f.bits(a, b).unwrap_or(0),
    }
}

fn floor_div(a: i64, b: i64) -> i64 {
    let q = a.wrapping_div(b);
    let inexact = q.wrapping_mul(b) != a;
    q - i64::from(inexact && (a < 0) != (b < 0))
}

fn plain_unary(f: UnaryFn) -> Option<fn(f32) -> f32> {
    Some(match f {
        UnaryFn::Floor => f32::floor,
        UnaryFn::Ceil => f32::ceil,
        UnaryFn::Round => f32::round_ties_even,
        UnaryFn::Sign => |x: f32| if x == 0.0 || x.is_nan() { x } else { x.signum() },
        _ => return None,
    })
}

/// An error where an index is outside of an axis of `n` elements.
fn checked(ids: &[i64], n: usize) -> Result<()> {
    match ids.iter().find(|&&i| usize::try_from(i).map_or(true, |i| i >= n)) {
        None => Ok(()),
        Some(i) => Err(Error::Argument(format!(
            "index {i} is out of range for an axis with {n} elements"
        ))),
    }
}

/// Sizes before, of and after an axis.
fn around(shape: &[usize], axis: usize) -> [usize; 3] {
    [
        shape[..axis].iter().product(),
        shape[axis],
        shape[axis + 1..].iter().product(),
    ]
}

/// Sizes before, of and after a run of neighboring axes; `None` where they are not neighbors.
fn block(shape: &[usize], axes: &[usize]) -> Option<[usize; 3]> {
    let (&first, &last) = (axes.first()?, axes.last()?);
    (last - first + 1 == axes.len()).then(|| {
        [
            shape[..first].iter().product(),
            shape[first..=last].iter().product(),
            shape[last + 1..].iter().product(),
        ]
    })
}

fn recurrent(node: &Node, gates: &[usize], w: &[usize]) -> Recurrent {
    let reverse = matches!(node.op, Op::Lstm { reverse: true } | Op::Gru { reverse: true });
    Recurrent {
        len: gates[0],
        batch: gates[1],
        width: w[1],
        reverse,
    }
}
