//! Nodes whose operands or results have their channels in the lanes, see [`super::super::blocks`].

use super::{Run, heavy};
use crate::{Error, Result, kernel_names};
use cactus_ir::{Node, Op, ReduceFn, ValueId};
use cactus_kernels::dense::{
    self, BlockConv, BlockEpilogue, BlockTranspose, Filters, Form, ReduceOp, Source, block_elems,
};
use cactus_quant::Packing;

impl Run<'_> {
    /// Samples, channels and places of a value.
    pub(super) fn planes(&self, v: ValueId) -> [usize; 3] {
        let shape = self.shape(v);
        [shape[0], shape[1], shape[2..].iter().product()]
    }

    /// Elements of a sample of a value as it is held.
    fn sample(&self, v: ValueId) -> usize {
        let [_, channels, places] = self.planes(v);
        match self.plan.blocks.contains(v) {
            true => block_elems(channels, places),
            false => channels * places,
        }
    }

    /// How the channels of a value lie.
    pub(super) fn form(&self, v: ValueId) -> Form {
        match self.plan.blocks.contains(v) {
            true => Form::Blocks,
            false => Form::Planes,
        }
    }

    fn source<'a>(&self, v: ValueId, x: &'a [f32]) -> Source<'a> {
        match self.plan.blocks.contains(v) {
            true => Source::Blocks(x),
            false => Source::Planes(x),
        }
    }

    /// Elements that a convolution needs beside its operands.
    pub(super) fn block_scratch_elems(&self, node: &Node, conv: &BlockConv) -> usize {
        let own = self
            .exec
            .conv_blocks_scratch_elems(conv, self.source(node.inputs[0], &[]));
        own.saturating_add(self.result_elems(node))
    }

    /// Elements of a result in blocks that becomes planes then.
    fn result_elems(&self, node: &Node) -> usize {
        let [_, channels, places] = self.planes(node.outputs[0]);
        match self.plan.blocks.contains(node.outputs[0]) {
            true => 0,
            false => block_elems(channels, places),
        }
    }

    pub(super) fn conv_blocks(
        &self,
        node: &Node,
        conv: &BlockConv,
        epilogue: BlockEpilogue<'_>,
        out: &mut [f32],
        scratch: &mut [f32],
    ) -> Result<()> {
        let ops = self.operands();
        let (x, made) = (node.inputs[0], node.outputs[0]);
        let weight = self.block_filters(node.inputs[1])?;
        let (kept, scratch) = scratch.split_at_mut(self.result_elems(node));
        let samples = ops.f32(x)?.chunks_exact(self.sample(x));
        for (own, out) in samples.zip(out.chunks_exact_mut(self.sample(made))) {
            let source = self.source(x, own);
            match self.plan.blocks.contains(made) {
                true => self.exec.conv_blocks(conv, source, weight, epilogue, scratch, out),
                false => {
                    self.exec.conv_blocks(conv, source, weight, epilogue, scratch, kept);
                    self.exec.from_blocks(kept, self.planes(made)[2], out);
                }
            }
        }
        Ok(())
    }

    /// The filters of a convolution as they are there.
    fn block_filters(&self, v: ValueId) -> Result<Filters<'_>> {
        let mut of = v;
        while let Some((_, node)) = self.graph.producer(of)
            && matches!(node.op, Op::Reshape { .. })
        {
            of = node.inputs[0];
        }
        if self.constants.plain(of).is_none()
            && let Some(m) = self.constants.matrix(of)?
            && m.packing() == Packing::F32N16
        {
            return Ok(Filters::Packed(bytemuck::cast_slice(m.data())));
        }
        Ok(Filters::Plain(self.operands().f32(v)?))
    }

    pub(super) fn depthwise_blocks(
        &self,
        node: &Node,
        conv: &BlockConv,
        epilogue: BlockEpilogue<'_>,
        out: &mut [f32],
        scratch: &mut [f32],
    ) -> Result<()> {
        let ops = self.operands();
        let (x, weight) = (node.inputs[0], ops.f32(node.inputs[1])?);
        let samples = ops.f32(x)?.chunks_exact(self.sample(x));
        for (x, out) in samples.zip(out.chunks_exact_mut(self.sample(node.outputs[0]))) {
            self.exec.depthwise_blocks(conv, x, weight, epilogue, scratch, out);
        }
        Ok(())
    }

    /// Bytes that a transposed convolution needs whose operand or result is in blocks.
    pub(super) fn transpose_scratch_bytes(&self, node: &Node) -> usize {
        let (x, weight) = (self.planes(node.inputs[0]), self.shape(node.inputs[1]));
        let [_, channels, places] = self.planes(node.outputs[0]);
        if let Some(touching) = self.touching(node) {
            let own = self.exec.transpose_blocks_scratch_elems(&touching);
            return own.saturating_mul(4);
        }
        let own = dense::conv_transpose_scratch_bytes(&self.plan.window(node), x[1], weight[1]);
        own + 4 * (x[1] * x[2] + channels * places)
    }

    /// A transposed convolution from blocks to blocks whose windows do not overlap.
    fn touching(&self, node: &Node) -> Option<BlockTranspose> {
        let (x, made) = (node.inputs[0], node.outputs[0]);
        let blocks = &self.plan.blocks;
        let [channels, filters] = [self.planes(x)[1], self.planes(made)[1]];
        let of = || BlockTranspose::of(&self.plan.window(node), channels, filters);
        (blocks.contains(x) && blocks.contains(made)).then(of)?
    }

    /// A pool, a reduction of planes, an operation of two operands, a join, a transposed convolution, or what makes rows of channels and back.
    pub(super) fn in_blocks(&self, node: &Node, out: &mut [f32], scratch: &mut [f32]) -> Result<()> {
        let ops = self.operands();
        let made = node.outputs[0];
        let (x, blocks) = (node.inputs[0], &self.plan.blocks);
        let [_, channels, places] = self.planes(x);
        match &node.op {
            Op::Pool(a) => {
                let op = heavy::pool_op(a.f);
                let w = self.plan.window(node);
                let divisor = a.count_padding.then(|| w.taps());
                self.exec.pool_blocks(op, &w, divisor, ops.f32(x)?, out);
            }
            Op::Reduce { f, .. } => {
                let op = if *f == ReduceFn::Sum {
                    ReduceOp::Sum
                } else {
                    ReduceOp::Mean
                };
                let samples = ops.f32(x)?.chunks_exact(self.sample(x));
                for (x, out) in samples.zip(out.chunks_exact_mut(channels)) {
                    self.exec.reduce_blocks(op, x, places, out);
                }
            }
            Op::Binary { f } => {
                let Some(op) = kernel_names::binary(*f) else {
                    return Err(Error::Argument(format!("there is no kernel for {f:?}")));
                };
                let [a, b] = [node.inputs[0], node.inputs[1]];
                match (blocks.contains(a), blocks.contains(b)) {
                    (true, true) => {
                        let functions = self.functions(made);
                        self.exec
                            .zip_blocks(op, functions, ops.f32(a)?, ops.f32(b)?, places, out);
                        return Ok(());
                    }
                    (true, false) if ops.f32(b)?.len() == 1 => {
                        self.exec.binary(op, ops.f32(a)?, ops.f32(b)?, out);
                        return Ok(());
                    }
                    _ => {}
                }
                let is_first = blocks.contains(b);
                let (whole, each) = if is_first { (b, a) } else { (a, b) };
                let [_, channels, places] = self.planes(whole);
                let (each, size) = (ops.f32(each)?, self.sample(whole));
                let samples = ops.f32(whole)?.chunks_exact(size).zip(out.chunks_exact_mut(size));
                for ((x, out), each) in samples.zip(each.chunks_exact(channels).cycle()) {
                    self.exec.binary_blocks(op, x, each, is_first, places, out);
                }
            }
            Op::Concat { .. } => {
                for (sample, out) in out.chunks_exact_mut(self.sample(made)).enumerate() {
                    let mut rest = out;
                    for &v in &node.inputs {
                        let size = self.sample(v);
                        let (to, behind) = std::mem::take(&mut rest).split_at_mut(size);
                        let x = &ops.f32(v)?[sample * size..(sample + 1) * size];
                        self.exec.copy_blocks(x, self.planes(made)[2], to);
                        rest = behind;
                    }
                }
            }
            Op::Permute { .. } => {
                let samples = ops.f32(x)?.chunks_exact(self.sample(x));
                for (x, out) in samples.zip(out.chunks_exact_mut(self.sample(made))) {
                    match blocks.contains(made) {
                        true => self.exec.rows_to_blocks(x, self.planes(made)[1], out),
                        false => self.exec.blocks_to_rows(x, channels, out),
                    }
                }
            }
            Op::ConvTranspose { conv, .. } => {
                let (weight, bias) = (
                    ops.f32(node.inputs[1])?,
                    node.inputs.get(2).map(|&b| ops.f32(b)).transpose()?,
                );
                if let Some(touching) = self.touching(node) {
                    let samples = ops.f32(x)?.chunks_exact(self.sample(x));
                    for (x, out) in samples.zip(out.chunks_exact_mut(self.sample(made))) {
                        self.exec.transpose_blocks(&touching, x, weight, bias, scratch, out);
                    }
                    return Ok(());
                }
                let w = self.plan.window(node);
                let [_, filters, outputs] = self.planes(made);
                let (input, rest) = scratch.split_at_mut(channels * places);
                let (result, rest) = rest.split_at_mut(filters * outputs);
                let samples = ops.f32(x)?.chunks_exact(self.sample(x));
                for (own, out) in samples.zip(out.chunks_exact_mut(self.sample(made))) {
                    let own = match blocks.contains(x) {
                        true => {
                            self.exec.from_blocks(own, places, input);
                            &*input
                        }
                        false => own,
                    };
                    match blocks.contains(made) {
                        true => {
                            self.exec
                                .conv_transpose(&w, own, weight, bias, conv.groups, rest, result);
                            self.exec.to_blocks(result, outputs, out);
                        }
                        false => self.exec.conv_transpose(&w, own, weight, bias, conv.groups, rest, out),
                    }
                }
            }
            other => {
                let what = format!("there is no kernel for the operation {} in blocks", other.mnemonic());
                return Err(Error::Argument(what));
            }
        }
        Ok(())
    }
}
