//! The nodes that do arithmetic over many elements for each result: reductions, products, windows, recurrences, rotation.
//! Everything elementwise, and what moves data, is the parent's.

use super::super::filters::PackedFilters;
use super::super::folds::Bounds;
use super::{Run, around, block, floats, recurrent};
use crate::{Error, Result};
use cactus_ir::{AttentionAttrs, ConvAttrs, Node, Op, ReduceFn, ValueId};
use cactus_kernels::dense::{
    self, BlockConv, BlockEpilogue, DenseAttention, Dims, ReduceOp, ScoreBias, Window, broadcast_strides,
    recurrent_scratch_elems,
};
use cactus_kernels::{Epilogue, Norm};
use cactus_quant::{PackedView, Packing};
use cactus_tensor::DType;

/// How a convolution is computed.
pub(super) enum Way<'a> {
    /// As a product of integers that places have.
    Integers(PackedView<'a>),
    /// As a product of rows that windows gather.
    Rows(PackedView<'a>),
    /// Each channel alone.
    Depthwise,
    /// With channels in the lanes.
    Blocks(BlockConv),
    /// Each channel alone, channels in the lanes.
    DepthwiseBlocks(BlockConv),
    /// As a product with what each window reads.
    Windows,
}

impl Run<'_> {
    pub(super) fn reduce(
        &self,
        f: ReduceFn,
        axes: &[usize],
        v: ValueId,
        out: &mut [u8],
        scratch: &mut [f32],
    ) -> Result<()> {
        let ops = self.operands();
        let shape = ops.shape(v);
        let count: usize = axes.iter().map(|&a| shape[a]).product();
        if count == 0 && matches!(f, ReduceFn::Max | ReduceFn::Min) {
            return Err(Error::Argument(
                "cannot take the largest or smallest element of an empty axis".into(),
            ));
        }
        // The axes kept first, so that what is reduced lies at the end.
        let order: Dims = (0..shape.len())
            .filter(|a| !axes.contains(a))
            .chain(axes.iter().copied())
            .collect();
        let strides = broadcast_strides(shape, shape);
        let turned: Dims = order.iter().map(|&a| shape[a]).collect();
        let steps: Dims = order.iter().map(|&a| strides[a]).collect();
        let kept: usize = turned[..shape.len() - axes.len()].iter().product();
        if self.graph.ty(v).dtype == DType::I64 {
            let mut moved = vec![0i64; kept * count];
            dense::copy_strided(ops.i64(v)?, 0, &turned, &steps, &mut moved);
            for (i, o) in bytemuck::cast_slice_mut::<u8, i64>(out).iter_mut().enumerate() {
                let line = moved[i * count..(i + 1) * count].iter().copied();
                *o = match f {
                    ReduceFn::Sum => line.fold(0, i64::wrapping_add),
                    ReduceFn::Prod => line.fold(1, i64::wrapping_mul),
                    ReduceFn::Max => line.max().unwrap_or(0),
                    _ => line.min().unwrap_or(0),
                };
            }
            return Ok(());
        }
        let op = match f {
            ReduceFn::Sum => ReduceOp::Sum,
            ReduceFn::Mean => ReduceOp::Mean,
            ReduceFn::Max => ReduceOp::Max,
            ReduceFn::Min => ReduceOp::Min,
            _ => ReduceOp::Prod,
        };
        match block(shape, axes) {
            Some(dims) => self.exec.reduce(op, ops.f32(v)?, dims, floats(out)),
            None => {
                let moved = &mut scratch[..kept * count];
                self.exec.copy_strided(ops.f32(v)?, 0, &turned, &steps, moved);
                self.exec.reduce(op, moved, [kept, count, 1], floats(out));
            }
        }
        Ok(())
    }

    pub(super) fn softmax(&self, axis: usize, x: &[f32], shape: &[usize], out: &mut [u8], scratch: &mut [f32]) {
        let [outer, n, inner] = around(shape, axis);
        if inner == 1 {
            return self.exec.softmax_rows(x, outer, n, floats(out));
        }
        let (turned, rest) = scratch.split_at_mut(x.len());
        let done = &mut rest[..x.len()];
        self.exec
            .copy_strided(x, 0, &[outer, inner, n], &[n * inner, 1, inner], turned);
        self.exec.softmax_rows(turned, outer * inner, n, done);
        self.exec
            .copy_strided(done, 0, &[outer, n, inner], &[n * inner, 1, n], floats(out));
    }

    /// The numbers of bounds.
    pub(super) fn bounds(&self, bounds: Option<&Bounds>) -> Result<Option<[f32; 2]>> {
        let Some(bounds) = bounds else { return Ok(None) };
        let ops = self.operands();
        let [least, most] = bounds.map(|v| ops.f32(v).map(|x| x[0]));
        Ok(Some([least?, most?]))
    }

    /// What a product or a convolution does besides: the bounds of its operand, and what becomes of its results.
    fn folds(&self, node: &Node) -> Result<(Option<[f32; 2]>, Epilogue<'static>)> {
        let (folds, out) = (&self.plan.folds, &node.outputs[0]);
        let after = folds.after.get(out).copied().unwrap_or_default();
        let epilogue = Epilogue {
            bounds: self.bounds(after.bounds.as_ref())?,
            activation: after.activation,
            ..Epilogue::default()
        };
        Ok((self.bounds(folds.before.get(out))?, epilogue))
    }

    pub(super) fn linear(&self, node: &Node, out: &mut [u8], scratch: &mut [f32]) -> Result<()> {
        let ops = self.operands();
        let x = ops.f32(node.inputs[0])?;
        let bias = node.inputs.get(2).map(|&b| ops.f32(b)).transpose()?;
        let (before, after) = self.folds(node)?;
        let finish = |out: &mut [f32]| {
            after.bounds.into_iter().for_each(|b| self.exec.keep_within(b, out));
            after
                .activation
                .into_iter()
                .for_each(|f| self.exec.unary_in_place(f, out));
        };
        if ops.shape(node.inputs[1])[1] == 0 {
            // Sums of nothing, of as many rows as the result says.
            let out = floats(out);
            match bias {
                Some(bias) => out
                    .chunks_exact_mut(bias.len().max(1))
                    .for_each(|row| row.copy_from_slice(bias)),
                None => out.fill(0.0),
            }
            finish(out);
            return Ok(());
        }
        let epilogue = Epilogue { bias, ..after };
        let Some(w) = self.constants.matrix(node.inputs[1])? else {
            let s = ops.shape(node.inputs[1]);
            let rows = x.len() / s[1].max(1);
            self.exec.pack_rows(ops.f32(node.inputs[1])?, s[0], s[1], s[1], scratch);
            self.exec.product(x, scratch, [rows, s[1], s[0]], false, floats(out));
            if let Some(bias) = bias {
                for row in floats(out).chunks_exact_mut(bias.len().max(1)) {
                    row.iter_mut().zip(bias).for_each(|(o, b)| *o += b);
                }
            }
            finish(floats(out));
            return Ok(());
        };
        let rows = x.len() / w.k().max(1);
        let x = self.exec.activations(w.packing(), x, [rows, w.k()], before, scratch);
        self.exec.linear(&w, x, rows, epilogue, floats(out));
        Ok(())
    }

    pub(super) fn matmul(
        &self,
        a: ValueId,
        b: ValueId,
        shape: &[usize],
        out: &mut [u8],
        scratch: &mut [f32],
    ) -> Result<()> {
        let ops = self.operands();
        let (sa, sb) = (ops.shape(a), ops.shape(b));
        let [m, k, n] = [sa[sa.len() - 2], sa[sa.len() - 1], sb[sb.len() - 1]];
        let (x, y, out) = (ops.f32(a)?, ops.f32(b)?, floats(out));
        let outer = &shape[..shape.len() - 2];
        let steps_a = broadcast_strides(&sa[..sa.len() - 2], outer);
        let steps_b = broadcast_strides(&sb[..sb.len() - 2], outer);
        if k == 0 {
            out.fill(0.0);
            return Ok(());
        }
        let mut packed_of = usize::MAX;
        for i in 0..outer.iter().product() {
            let (mut rest, mut ia, mut ib) = (i, 0, 0);
            for axis in (0..outer.len()).rev() {
                let at = rest % outer[axis];
                rest /= outer[axis];
                ia += at * steps_a[axis];
                ib += at * steps_b[axis];
            }
            if packed_of != ib {
                self.exec
                    .pack_columns(&y[ib * k * n..(ib + 1) * k * n], n, k, n, scratch);
                packed_of = ib;
            }
            let out = &mut out[i * m * n..(i + 1) * m * n];
            self.exec
                .product(&x[ia * m * k..(ia + 1) * m * k], scratch, [m, k, n], false, out);
        }
        Ok(())
    }

    pub(super) fn conv(&self, node: &Node, out: &mut [u8], scratch: &mut [f32]) -> Result<()> {
        let ops = self.operands();
        let x = ops.f32(node.inputs[0])?;
        let bias = node.inputs.get(2).map(|&b| ops.f32(b)).transpose()?;
        let (w, batch) = (self.plan.window(node), self.shape(node.inputs[0])[0]);
        if batch == 0 {
            return Ok(());
        }
        let epilogue = Epilogue {
            bias,
            ..self.folds(node)?.1
        };
        let in_blocks = BlockEpilogue {
            bias,
            activation: epilogue.activation,
        };
        let way = self.way(node, &w)?;
        match &way {
            Way::Integers(filters) => {
                let forms = [node.inputs[0], node.outputs[0]].map(|v| self.form(v));
                self.exec
                    .conv_integers(&w, batch, forms, x, filters, epilogue, scratch, floats(out));
                return Ok(());
            }
            Way::Rows(filters) => {
                self.exec
                    .conv_rows(&w, batch, x, filters, epilogue, scratch, floats(out));
                return Ok(());
            }
            Way::Blocks(conv) => return self.conv_blocks(node, conv, in_blocks, floats(out), scratch),
            Way::DepthwiseBlocks(conv) => return self.depthwise_blocks(node, conv, in_blocks, floats(out), scratch),
            Way::Depthwise | Way::Windows => {}
        }
        let weight = ops.f32(node.inputs[1])?;
        let (each_in, each_out) = (x.len() / batch, out.len() / 4 / batch);
        for b in 0..batch {
            let x = &x[b * each_in..(b + 1) * each_in];
            let out = &mut floats(out)[b * each_out..(b + 1) * each_out];
            match (&node.op, &way) {
                (Op::ConvTranspose { conv, .. }, _) => {
                    self.exec.conv_transpose(&w, x, weight, bias, conv.groups, scratch, out);
                }
                (_, Way::Depthwise) => self.exec.conv_depthwise(&w, x, weight, epilogue, scratch, out),
                (Op::Conv(ConvAttrs { groups, .. }) | Op::Conv1d { groups, .. }, _) => {
                    self.exec.conv(&w, x, weight, epilogue, *groups, scratch, out);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// How a convolution with windows `w` is computed.
    pub(super) fn way(&self, node: &Node, w: &Window) -> Result<Way<'_>> {
        let filters = self.shape(node.inputs[1]);
        // The filters of one convolution may be a transposed one's, too.
        let (Op::Conv(ConvAttrs { groups, .. }) | Op::Conv1d { groups, .. }) = node.op else {
            return Ok(Way::Windows);
        };
        match self.plan.blocks.conv(node.outputs[0]) {
            Some(conv) if groups == 1 => return Ok(Way::Blocks(*conv)),
            Some(conv) => return Ok(Way::DepthwiseBlocks(*conv)),
            None => {}
        }
        if groups == 1
            && let Some(way) = self.packed_way(node, w)?
        {
            return Ok(way);
        }
        Ok(match groups {
            _ if filters[1] == 1 && filters[0] == groups => Way::Depthwise,
            _ => Way::Windows,
        })
    }

    /// How a convolution that reads its filters packed is computed: stored so, or as it has few windows.
    fn packed_way(&self, node: &Node, w: &Window) -> Result<Option<Way<'_>>> {
        let (filters, folds) = (node.inputs[1], &self.plan.folds);
        let packed = PackedFilters::of(self.graph, self.constants, folds, filters, self.shape(filters), w)?;
        Ok(packed.map(|packed| match packed {
            PackedFilters::Integers(filters) => Way::Integers(filters),
            PackedFilters::Rows(filters) => Way::Rows(filters),
        }))
    }

    pub(super) fn recurrent(&self, node: &Node, out: &mut [u8], scratch: &mut [f32]) -> Result<()> {
        let ops = self.operands();
        let r = recurrent(node, ops.shape(node.inputs[0]), ops.shape(node.inputs[1]));
        let lstm = matches!(node.op, Op::Lstm { .. });
        let gates = if lstm { 4 } else { 3 };
        let (own, rest) = scratch.split_at_mut(recurrent_scratch_elems(&r, gates));
        let packed: &[f32] = match self.constants.matrix(node.inputs[1])? {
            Some(w) if w.packing() == Packing::F32N16 => {
                let blocks = w.layout().blocks();
                if blocks == 0 {
                    &[]
                } else {
                    bytemuck::cast_slice(w.data())
                }
            }
            Some(_) => {
                return Err(Error::Argument(
                    "the weights of a recurrent layer must be stored in 32 bits; convert the model again".into(),
                ));
            }
            None => {
                self.exec
                    .pack_rows(ops.f32(node.inputs[1])?, gates * r.width, r.width, r.width, rest);
                rest
            }
        };
        let f = |i: usize| ops.f32(node.inputs[i]);
        match lstm {
            true => self.exec.lstm(&r, f(0)?, packed, f(2)?, f(3)?, own, floats(out)),
            false => self.exec.gru(&r, f(0)?, packed, f(2)?, f(3)?, own, floats(out)),
        }
        Ok(())
    }

    /// Rotates heads, after `norm` where there is one; positions and frequencies are the last operands.
    pub(super) fn rope(
        &self,
        node: &Node,
        norm: Option<Norm<'_>>,
        scale: f32,
        out: &mut [u8],
        scratch: &mut [f32],
    ) -> Result<()> {
        let ops = self.operands();
        let interleaved = matches!(node.op, Op::Rope { interleaved: true, .. });
        let s = ops.shape(node.inputs[0]);
        let last = node.inputs.len() - 1;
        let (positions, freq) = (ops.i64(node.inputs[last - 1])?, ops.f32(node.inputs[last])?);
        let axes = ops.shape(node.inputs[last - 1]).get(1).copied().unwrap_or(1).max(1);
        let half = freq.len() / axes;
        let n = positions.len() / axes * half;
        let (angles, rest) = scratch.split_at_mut(n);
        let (cos, rest) = rest.split_at_mut(n);
        let sin = &mut rest[..n];
        for (row, position) in angles.chunks_exact_mut(half.max(1)).zip(positions.chunks_exact(axes)) {
            for (pair, angle) in row.iter_mut().enumerate() {
                *angle = cactus_kernels::rope_angle(position.iter().map(|&p| p as f32), freq, half, pair);
            }
        }
        self.exec.unary(cactus_kernels::UnaryOp::Cos, angles, cos);
        self.exec.unary(cactus_kernels::UnaryOp::Sin, angles, sin);
        if scale != 1.0 {
            cos.iter_mut().chain(sin.iter_mut()).for_each(|v| *v *= scale);
        }
        out.copy_from_slice(ops.bytes(node.inputs[0])?);
        let (rows, heads, dim) = (s[1], s[2], s[3]);
        for sequence in floats(out).chunks_exact_mut((rows * heads * dim).max(1)) {
            match norm {
                Some(norm) => self
                    .exec
                    .norm_rope_heads(sequence, norm, rows, heads * dim, heads, cos, sin),
                None => self
                    .exec
                    .rope(sequence, rows, heads * dim, heads, dim, interleaved, cos, sin),
            }
        }
        Ok(())
    }
}

pub(super) fn pool_op(f: ReduceFn) -> ReduceOp {
    match f {
        ReduceFn::Max => ReduceOp::Max,
        _ => ReduceOp::Mean,
    }
}

/// The operand that is added to scores.
pub(super) fn score_bias<'a>(a: &DenseAttention, shape: &[usize], data: &'a [f32]) -> ScoreBias<'a> {
    let strides = broadcast_strides(shape, &[a.batch, a.heads, a.queries, a.keys]);
    ScoreBias {
        data,
        strides: [strides[0], strides[1], strides[2]],
    }
}

/// How many positions each text has, of their numbers at each.
pub(super) fn text_lengths(texts: &[i64]) -> Result<Vec<usize>> {
    if texts.windows(2).any(|two| two[1] < two[0]) {
        let what = "the numbers of texts fall; the positions of a text stand together, in ascending order";
        return Err(Error::Argument(what.into()));
    }
    Ok(texts.chunk_by(|a, b| a == b).map(<[i64]>::len).collect())
}

/// What hides the `keys` behind those that each query sees up to, `[queries, keys]`.
pub(super) fn hidden_behind(until: &[i64], keys: usize) -> Result<Vec<f32>> {
    let mut least = 0;
    let mut hidden = Vec::with_capacity(until.len() * keys);
    for (position, &last) in until.iter().enumerate() {
        let Some(last) = usize::try_from(last)
            .ok()
            .filter(|last| (position.max(least)..keys).contains(last))
        else {
            let what = format!(
                "the query at position {position} of {keys} sees up to position {last}; expected its own or a later one, not before that \
                 of the query before"
            );
            return Err(Error::Argument(what));
        };
        least = last;
        hidden.extend((0..keys).map(|key| if key > last { f32::NEG_INFINITY } else { 0.0 }));
    }
    Ok(hidden)
}

/// Attention over queries and keys of these shapes, `[batch, positions, heads, width]`.
pub(super) fn dense_attention(a: &AttentionAttrs, q: &[usize], k: &[usize]) -> DenseAttention {
    DenseAttention {
        batch: q[0],
        queries: q[1],
        keys: k[1],
        heads: q[2],
        kv_heads: k[2],
        width: q[3],
        scale: a.scale,
        softcap: a.softcap,
        causal: a.causal,
        window: a.window,
        ahead: a.ahead,
        chunk: a.chunk,
        sinks: a.sinks,
        integers: a.integers,
    }
}
