//! Gated units, short convolutions, the gated delta rule, and layer norms.

use super::{Run, floats};
use crate::gates::{GatedRows, decays, layer_norm_heads};
use crate::{Error, Result, kernel_names};
use cactus_ir::{Activation, Node, Op};
use cactus_kernels::{DeltaRows, GatedDelta};

impl Run<'_> {
    /// How the gates of a node are computed row by row; `None` where halves of rows are.
    fn gated_rows(&self, node: &Node) -> Option<GatedRows> {
        let (activation, above) = match node.op {
            Op::Gated {
                activation,
                above: None,
            } if node.inputs.len() == 2 => (activation, None),
            Op::Gated {
                activation,
                above: Some(above),
            } => (activation, Some(above)),
            Op::NormGate { activation, .. } => (activation, None),
            _ => return None,
        };
        Some(GatedRows {
            activation: kernel_names::activation(activation)?,
            above,
            n: self.shape(node.outputs[0]).last().copied().unwrap_or(0),
        })
    }

    pub(super) fn gated_scratch_bytes(&self, node: &Node) -> usize {
        let rows = |n: usize| self.shape(node.outputs[0]).iter().product::<usize>() / n.max(1);
        self.gated_rows(node)
            .and_then(|unit| unit.scratch_len(rows(unit.n))?.checked_mul(4))
            .unwrap_or(0)
    }

    pub(super) fn gated(&self, node: &Node, out: &mut [f32], scratch: &mut [f32]) -> Result<()> {
        let ops = self.operands();
        let x = ops.f32(node.inputs[0])?;
        if let Some(unit) = self.gated_rows(node) {
            let n = unit.n;
            let (of_gate, ups, stride) = match node.inputs[..] {
                [_, up] => (x, ops.f32(up)?, n),
                _ => (x, x.get(n..).unwrap_or_default(), 2 * n),
            };
            unit.run(self.exec, scratch, out, |i, _, gate, up| {
                gate.copy_from_slice(&of_gate[i * stride..][..n]);
                up.copy_from_slice(&ups[i * stride..][..n]);
            });
            return Ok(());
        }
        let n = self.shape(node.outputs[0]).last().copied().unwrap_or(0);
        let Op::Gated { activation, .. } = node.op else {
            return Ok(());
        };
        match kernel_names::activation(activation) {
            Some(a) => self.exec.gated(a, x, n, out.len() / n.max(1), out),
            None => return Err(Error::Argument("there is no kernel for this activation".into())),
        }
        Ok(())
    }

    pub(super) fn norm_gate(&self, node: &Node, eps: f32, out: &mut [f32], scratch: &mut [f32]) -> Result<()> {
        let ops = self.operands();
        let [x, gates, weight] = [0, 1, 2].map(|i| ops.f32(node.inputs[i]));
        let (x, gates, weight) = (x?, gates?, weight?);
        let n = weight.len();
        self.exec.rms_norm(x, weight, eps, x.len() / n.max(1), n, out);
        let Some(unit) = self.gated_rows(node) else {
            return Err(Error::Argument("there is no kernel for this activation".into()));
        };
        unit.run(self.exec, scratch, out, |i, normed, gate, up| {
            gate.copy_from_slice(&gates[i * n..][..n]);
            up.copy_from_slice(normed);
        });
        Ok(())
    }

    pub(super) fn layer_norm(&self, node: &Node, eps: f32, out: &mut [f32]) -> Result<()> {
        let ops = self.operands();
        let (x, w) = (ops.f32(node.inputs[0])?, ops.f32(node.inputs[1])?);
        let bias = node.inputs.get(2).map(|&b| ops.f32(b)).transpose()?;
        let n = self.shape(node.outputs[0]).last().copied().unwrap_or(0);
        if w.len() == n {
            self.exec.layer_norm(x, w, bias, eps, x.len() / n.max(1), n, out);
            return Ok(());
        }
        let width = w.len().max(1);
        for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            layer_norm_heads(self.exec, x, w, bias, (eps, n), out);
        }
        Ok(())
    }

    /// Each sequence from inputs of zeros.
    pub(super) fn short_conv(&self, node: &Node, activation: Option<Activation>, out: &mut [f32]) -> Result<()> {
        let ops = self.operands();
        let (w, taps) = (ops.shape(node.inputs[1]), ops.f32(node.inputs[1])?);
        let (channels, rows) = (w[0], self.shape(node.outputs[0])[1]);
        let bias = node.inputs.get(2).map(|&b| ops.f32(b)).transpose()?;
        let sequence = (rows * channels).max(1);
        for (x, out) in ops
            .f32(node.inputs[0])?
            .chunks_exact(sequence)
            .zip(out.chunks_exact_mut(sequence))
        {
            let mut state = vec![0f32; channels * (w[1] - 1)];
            self.exec
                .short_conv(x, channels, taps, bias, &mut state, rows, channels, out);
        }
        if let Some(f) = activation.and_then(Activation::unary).and_then(kernel_names::unary) {
            self.exec.unary_in_place(f, out);
        }
        Ok(())
    }

    /// Each sequence from matrices of zeros.
    pub(super) fn gated_delta(&self, node: &Node, out: &mut [u8], scratch: &mut [f32]) -> Result<()> {
        let ops = self.operands();
        let (q, v) = (ops.shape(node.inputs[0]), ops.shape(node.inputs[2]));
        let (len, heads, key_heads, keys, values) = (q[1], v[2], q[2], q[3], v[3]);
        let (matrices, made) = scratch.split_at_mut(heads * keys * values);
        let of_heads = match node.inputs.get(5..7) {
            Some(&[speed, bias]) => Some([ops.f32(speed)?, ops.f32(bias)?]),
            _ => None,
        };
        for (b, out) in floats(out).chunks_exact_mut((len * heads * values).max(1)).enumerate() {
            let rows = |i: usize, stride: usize| {
                let data = &ops.f32(node.inputs[i])?[b * len * stride..][..len * stride];
                Ok::<_, Error>(DeltaRows { data, stride })
            };
            let mut given = [rows(3, heads)?, rows(4, heads)?];
            if let Some(of_heads) = of_heads {
                let (decay, rest) = made.split_at_mut(len * heads);
                let learned = &mut rest[..len * heads];
                decays(self.exec, given, of_heads, decay, learned);
                given = [decay, learned].map(|data| DeltaRows { data, stride: heads });
            }
            let [decay, rate] = given;
            let call = GatedDelta {
                len,
                heads,
                key_heads,
                keys,
                values,
                q: rows(0, key_heads * keys)?,
                k: rows(1, key_heads * keys)?,
                v: rows(2, heads * values)?,
                decay,
                rate,
            };
            matrices.fill(0.0);
            self.exec.gated_delta(&call, matrices, out);
        }
        Ok(())
    }
}
