//! Convolutions: one operation under several orders of axes.

use super::Lower;
use crate::graph::node_graph::op::ConvForm;
use crate::graph::node_graph::{Error, Result};
use cactus_ir::{ConvAttrs, Op, ValueId};

impl Lower {
    /// `steps` are stride and dilation.
    pub(super) fn conv(
        &mut self,
        v: &[ValueId],
        form: ConvForm,
        groups: usize,
        steps: [usize; 2],
        padding: [usize; 2],
    ) -> Result<ValueId> {
        let [x, w, bias @ ..] = v else {
            return Err(Error::argument("a value and a weight are expected"));
        };
        let last = form == ConvForm::ChannelsLast;
        let x = if last { self.channels_second(*x)? } else { *x };
        let shape = self.shape(x)?;
        let (Some(&channels), Some(axes @ 1..=3)) = (shape.get(1), shape.len().checked_sub(2)) else {
            return Err(Error::shape(format!(
                "[batch, channels, size…] is expected, found {shape:?}"
            )));
        };
        let groups = if groups == 0 { channels } else { groups };
        let w = match form {
            ConvForm::KernelInside => self.b.permute(*w, &[2, 0, 1])?,
            _ => self.full_weight(*w, axes, channels, groups)?,
        };
        let out = self.shape(w)?.first().copied().unwrap_or(0);
        let mut operands = vec![x, w];
        if let Some(&bias) = bias.first() {
            operands.push(self.vector(bias, out)?);
        }
        let attrs = ConvAttrs {
            groups,
            stride: vec![steps[0]; axes],
            padding: vec![padding; axes],
            dilation: vec![steps[1]; axes],
        };
        let y = self.b.op(Op::Conv(attrs), &operands)?;
        match last {
            true => Ok(self.b.permute(y, &[0, 2, 1])?),
            false => Ok(y),
        }
    }

    fn channels_second(&mut self, x: ValueId) -> Result<ValueId> {
        let shape = self.shape(x)?;
        match shape.len() {
            3 => Ok(self.b.permute(x, &[0, 2, 1])?),
            _ => Err(Error::shape(format!(
                "[batch, length, channels] is expected, found {shape:?}"
            ))),
        }
    }

    /// `[out, channels/groups, kernel…]`, of which axes of size 1 may have been left out.
    fn full_weight(&mut self, w: ValueId, axes: usize, channels: usize, groups: usize) -> Result<ValueId> {
        let shape = self.shape(w)?;
        let missing = (axes + 2).saturating_sub(shape.len());
        let full = match (missing, shape.as_slice()) {
            (0, _) => return Ok(w),
            // Depthwise, `[channels, kernel…]`.
            (1, [out, kernel @ ..]) if groups == channels && kernel.len() == axes => {
                let mut full = vec![*out, 1];
                full.extend(kernel);
                full
            }
            // Pointwise, `[out, channels]`.
            (_, &[out, inputs]) => {
                let mut full = vec![out, inputs];
                full.resize(axes + 2, 1);
                full
            }
            _ => {
                return Err(Error::shape(format!(
                    "a weight [out, channels, kernel…] is expected, found {shape:?}"
                )));
            }
        };
        self.reshape(w, &full)
    }

    pub(super) fn stft(&mut self, [x, w]: [ValueId; 2], stride: usize, bins: usize) -> Result<ValueId> {
        let shape = self.shape(w)?;
        let rows = bins
            .checked_mul(2)
            .filter(|&n| n > 0 && shape.first().is_some_and(|&have| n <= have));
        let Some(rows) = rows else {
            return Err(Error::shape(format!(
                "{bins} bins need a weight of twice as many rows, found {shape:?}"
            )));
        };
        let w = self.part(w, 0, 0, rows)?;
        self.conv(&[x, w], ConvForm::ChannelsFirst, 1, [stride, 1], [0, 0])
    }
}
