//! Products of matrices, norms, rotation, and the layers that are made of them.

use super::{Lower, dims};
use crate::graph::node_graph::{Error, Result};
use cactus_ir::{BinaryFn as Bin, Dim, Op, ReduceFn, UnaryFn as Un, ValueId};

impl Lower {
    pub(super) fn matmul(&mut self, [a, b]: [ValueId; 2], transposed: bool) -> Result<ValueId> {
        let rank = self.shape(b)?.len();
        if rank < 2 {
            return Err(Error::shape("the second operand of a product has fewer than two axes"));
        }
        if transposed && rank == 2 {
            return Ok(self.b.linear(a, b, None)?);
        }
        let b = if transposed { self.swap_last(b)? } else { b };
        Ok(self.b.matmul(a, b)?)
    }

    /// The last two axes in the other order.
    pub(super) fn swap_last(&mut self, x: ValueId) -> Result<ValueId> {
        let rank = self.b.ty(x).shape.len();
        let mut order: Vec<usize> = (0..rank).collect();
        if rank >= 2 {
            order.swap(rank - 2, rank - 1);
        }
        Ok(self.b.permute(x, &order)?)
    }

    pub(super) fn layer_norm(&mut self, v: &[ValueId], eps: f32) -> Result<ValueId> {
        let (&x, params) = v
            .split_first()
            .ok_or_else(|| Error::argument("there is nothing to normalize"))?;
        let n = self.last(x)?;
        let mut all = vec![x];
        for &p in params {
            all.push(self.vector(p, n)?);
        }
        Ok(self.b.op(Op::LayerNorm { eps }, &all)?)
    }

    pub(super) fn group_norm(&mut self, [x, w, bias]: [ValueId; 3], groups: usize, eps: f32) -> Result<ValueId> {
        let shape = self.shape(x)?;
        let (Some(&batch), Some(&channels)) = (shape.first(), shape.get(1)) else {
            return Err(Error::shape(format!(
                "[batch, channels, …] is expected, found {shape:?}"
            )));
        };
        if groups == 0 || channels % groups != 0 {
            return Err(Error::shape(format!(
                "{channels} channels cannot be divided into {groups} groups"
            )));
        }
        let each: usize = channels / groups * shape[2..].iter().product::<usize>();
        let grouped = self.reshape(x, &[batch, groups, each])?;
        let mean = self.reduce(ReduceFn::Mean, grouped, 2)?;
        let variance = self.variance(grouped, 2)?;
        let off = self.bin(Bin::Sub, grouped, mean)?;
        let spread = self.with(Bin::Add, variance, eps)?;
        let factor = self.un(Un::Rsqrt, spread)?;
        let normal = self.bin(Bin::Mul, off, factor)?;
        let normal = self.reshape(normal, &shape)?;
        let (w, bias) = (self.along(w, 1, &shape)?, self.along(bias, 1, &shape)?);
        let scaled = self.bin(Bin::Mul, normal, w)?;
        self.bin(Bin::Add, scaled, bias)
    }

    pub(super) fn batch_norm(&mut self, v: [ValueId; 5], axis: i32, eps: f32) -> Result<ValueId> {
        let axis = self.axis(v[0], axis)?;
        let shape = self.shape(v[0])?;
        let [x, w, bias, mean, variance] = v;
        let mut params = [w, bias, mean, variance];
        for p in &mut params {
            *p = self.along(*p, axis, &shape)?;
        }
        let [w, bias, mean, variance] = params;
        let off = self.bin(Bin::Sub, x, mean)?;
        let spread = self.with(Bin::Add, variance, eps)?;
        let factor = self.un(Un::Rsqrt, spread)?;
        let factor = self.bin(Bin::Mul, factor, w)?;
        let scaled = self.bin(Bin::Mul, off, factor)?;
        self.bin(Bin::Add, scaled, bias)
    }

    /// A vector of the size of one axis of `shape`, so that it is broadcast along the others.
    fn along(&mut self, v: ValueId, axis: usize, shape: &[usize]) -> Result<ValueId> {
        let wide: Vec<usize> = (0..shape.len())
            .map(|a| if a == axis { shape[axis] } else { 1 })
            .collect();
        self.reshape(v, &wide)
    }

    pub(super) fn rope(
        &mut self,
        x: ValueId,
        theta: f32,
        offset: usize,
        rotary: usize,
        interleaved: bool,
    ) -> Result<ValueId> {
        let shape = self.shape(x)?;
        let &[_, seq, _, width] = shape.as_slice() else {
            return Err(Error::shape(format!(
                "[batch, seq, heads, head_dim] is expected, found {shape:?}"
            )));
        };
        let rotary = if rotary == 0 { width } else { rotary };
        if rotary > width || rotary % 2 != 0 {
            return Err(Error::shape(format!(
                "{rotary} elements of a head of {width} cannot turn; expected an even number of them"
            )));
        }
        let freq: Vec<f32> = (0..rotary / 2)
            .map(|k| f64::from(theta).powf(-2.0 * k as f64 / rotary as f64) as f32)
            .collect();
        let freq = self.b.vector(freq)?;
        let positions = self.b.iota(offset, seq)?;
        let scale = 1.0;
        Ok(self.b.op(Op::Rope { scale, interleaved }, &[x, positions, freq])?)
    }

    pub(super) fn gaussian_top_k(&mut self, x: ValueId, ppf: f32) -> Result<ValueId> {
        let axis = self.axis(x, -1)?;
        let mean = self.reduce(ReduceFn::Mean, x, axis)?;
        let variance = self.variance(x, axis)?;
        let deviation = self.un(Un::Sqrt, variance)?;
        let above = self.with(Bin::Mul, deviation, ppf)?;
        let bound = self.bin(Bin::Add, mean, above)?;
        let over = self.bin(Bin::Sub, x, bound)?;
        self.un(Un::Relu, over)
    }

    pub(super) fn dense_mlp(
        &mut self,
        [x, gate, up, down]: [ValueId; 4],
        product: f32,
        factor: f32,
    ) -> Result<ValueId> {
        let (gate, up) = (self.b.linear(x, gate, None)?, self.b.linear(x, up, None)?);
        let gate = if factor == 1.0 {
            gate
        } else {
            self.with(Bin::Mul, gate, factor)?
        };
        let gate = self.un(Un::GeluTanh, gate)?;
        let inner = self.bin(Bin::Mul, gate, up)?;
        let inner = if product == 1.0 {
            inner
        } else {
            self.with(Bin::Mul, inner, product)?
        };
        Ok(self.b.linear(inner, down, None)?)
    }

    pub(super) fn projections(&mut self, v: &[ValueId]) -> Result<ValueId> {
        let (&x, weights) = v
            .split_first()
            .ok_or_else(|| Error::argument("there is nothing to project"))?;
        let parts: Vec<ValueId> = weights
            .iter()
            .map(|&w| self.b.linear(x, w, None))
            .collect::<cactus_ir::Result<_>>()?;
        Ok(self.b.concat_last(&parts)?)
    }

    pub(super) fn softcap_logits(&mut self, [x, w]: [ValueId; 2], cap: f32, scale: f32) -> Result<ValueId> {
        let logits = self.b.linear(x, w, None)?;
        let scaled = self.with(Bin::Mul, logits, scale)?;
        if cap <= 0.0 {
            return Ok(scaled);
        }
        let part = self.with(Bin::Div, scaled, cap)?;
        let bent = self.un(Un::Tanh, part)?;
        self.with(Bin::Mul, bent, cap)
    }

    pub(super) fn altup_predict(&mut self, v: &[ValueId]) -> Result<ValueId> {
        let (&coefs, streams) = v
            .split_first()
            .ok_or_else(|| Error::argument("there are no coefficients"))?;
        let [n, seq, width] = self.streams(streams)?;
        let coefs = self.reshape(coefs, &[seq, n, n])?;
        let wide: Vec<ValueId> = streams
            .iter()
            .map(|&s| self.reshape(s, &[seq, 1, width]))
            .collect::<Result<_>>()?;
        let all = self.join(1, &wide)?;
        let mixed = self.b.matmul(coefs, all)?;
        let sum = self.bin(Bin::Add, all, mixed)?;
        let turned = self.b.permute(sum, &[1, 0, 2])?;
        self.reshape(turned, &[n * seq, width])
    }

    pub(super) fn altup_correct(&mut self, v: &[ValueId]) -> Result<ValueId> {
        let [coefs, innovation, predictions @ ..] = v else {
            return Err(Error::argument("coefficients and an innovation are expected"));
        };
        let [n, seq, width] = self.streams(predictions)?;
        let coefs = self.reshape(*coefs, &[seq, n])?;
        let innovation = self.reshape(*innovation, &[seq, width])?;
        let mut parts = Vec::with_capacity(n);
        for (i, &p) in predictions.iter().enumerate() {
            let coef = self.part(coefs, 1, i, i + 1)?;
            let step = self.bin(Bin::Mul, innovation, coef)?;
            parts.push(self.bin(Bin::Add, p, step)?);
        }
        self.join(0, &parts)
    }

    /// How many, and the `[seq, width]` of each.
    fn streams(&self, streams: &[ValueId]) -> Result<[usize; 3]> {
        let first = streams.first().ok_or_else(|| Error::argument("there are no streams"))?;
        match self.shape(*first)?.as_slice() {
            &[seq, width] => Ok([streams.len(), seq, width]),
            other => Err(Error::shape(format!(
                "streams [seq, width] are expected, found {other:?}"
            ))),
        }
    }

    /// `1` on the diagonal, `[n, n]`.
    pub(super) fn identity(&mut self, n: usize) -> Result<ValueId> {
        let rows = self.count(Dim::known(0), Dim::known(n), &dims(&[n, 1]))?;
        let columns = self.count(Dim::known(0), Dim::known(n), &dims(&[1, n]))?;
        let same = self.b.compare(cactus_ir::CompareFn::Eq, rows, columns)?;
        self.float(same)
    }
}
