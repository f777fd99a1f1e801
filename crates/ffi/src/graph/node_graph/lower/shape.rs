//! What moves elements, and reductions of axes.

use super::{Lower, dims};
use crate::graph::node_graph::op::ReduceFn;
use crate::graph::node_graph::{Error, Result};
use cactus_ir::{BinaryFn as Bin, Dim, Op, ReduceFn as Reduce, UnaryFn as Un, ValueId};

impl Lower {
    pub(super) fn slice(&mut self, x: ValueId, axis: i32, [start, length, step]: [usize; 3]) -> Result<ValueId> {
        let axis = self.axis(x, axis)?;
        let size = self.shape(x)?[axis];
        let last = length
            .checked_sub(1)
            .map_or(Some(start), |n| n.checked_mul(step)?.checked_add(start)?.checked_add(1));
        let Some(end) = last.filter(|&end| end <= size && step > 0) else {
            return Err(Error::shape(format!(
                "{length} elements from {start} on, {step} apart, are not in an axis of {size}"
            )));
        };
        if step == 1 {
            return self.part(x, axis, start, end);
        }
        let ids = self.b.iota(0usize, length)?;
        let (step, start) = (self.b.scalar_i64(step as i64)?, self.b.scalar_i64(start as i64)?);
        let ids = self.bin(Bin::Mul, ids, step)?;
        let ids = self.bin(Bin::Add, ids, start)?;
        Ok(self.b.op(Op::Take { axis }, &[x, ids])?)
    }

    pub(super) fn index(&mut self, x: ValueId, axis: i32, index: usize) -> Result<ValueId> {
        let axis = self.axis(x, axis)?;
        let mut shape = self.shape(x)?;
        if index >= shape[axis] {
            return Err(Error::shape(format!(
                "index {index} is not in an axis of {}",
                shape[axis]
            )));
        }
        let row = self.part(x, axis, index, index + 1)?;
        shape.remove(axis);
        self.reshape(row, if shape.is_empty() { &[1] } else { &shape })
    }

    pub(super) fn unfold(&mut self, x: ValueId, axis: i32, size: usize, step: usize) -> Result<ValueId> {
        let axis = self.axis(x, axis)?;
        let n = self.shape(x)?[axis];
        if size == 0 || step == 0 || size > n {
            return Err(Error::shape(format!(
                "windows of {size}, {step} apart, are not in an axis of {n}; expected sizes from 1 on"
            )));
        }
        let windows = (n - size) / step + 1;
        let starts = self.count(Dim::known(0), Dim::known(windows), &dims(&[windows, 1]))?;
        let step = self.b.scalar_i64(step as i64)?;
        let starts = self.bin(Bin::Mul, starts, step)?;
        let inside = self.count(Dim::known(0), Dim::known(size), &dims(&[1, size]))?;
        let ids = self.bin(Bin::Add, starts, inside)?;
        let taken = self.b.op(Op::Take { axis }, &[x, ids])?;
        let rank = self.shape(taken)?.len();
        let order: Vec<usize> = (0..rank).filter(|&a| a != axis + 1).chain([axis + 1]).collect();
        Ok(self.b.permute(taken, &order)?)
    }

    pub(super) fn pad(&mut self, x: ValueId, pads: &[usize], value: f32) -> Result<ValueId> {
        let rank = self.shape(x)?.len();
        if !pads.len().is_multiple_of(2) || pads.len() / 2 > rank {
            return Err(Error::argument(format!(
                "{} pads do not fit {rank} axes; expected a pair for each of the last axes",
                pads.len()
            )));
        }
        let mut out = x;
        for (i, pair) in pads.chunks_exact(2).enumerate() {
            out = self.pad_axis(out, rank - 1 - i, [pair[0], pair[1]], value)?;
        }
        Ok(out)
    }

    pub(crate) fn pad_axis(&mut self, x: ValueId, axis: usize, pair: [usize; 2], value: f32) -> Result<ValueId> {
        let mut shape = self.shape(x)?;
        let mut parts = vec![x];
        for (n, behind) in [(pair[0], false), (pair[1], true)] {
            if n > 0 {
                shape[axis] = n;
                let edge = self.filled(value, &shape)?;
                parts.insert(if behind { parts.len() } else { 0 }, edge);
            }
        }
        match parts.as_slice() {
            [x] => Ok(*x),
            parts => self.join(axis, parts),
        }
    }

    pub(super) fn top_k(&mut self, x: ValueId, k: usize) -> Result<ValueId> {
        let shape = self.shape(x)?;
        let &[rows, n] = shape.as_slice() else {
            return Err(Error::shape(format!("[rows, n] is expected, found {shape:?}")));
        };
        if k > n {
            return Err(Error::shape(format!("the {k} largest of {n} elements are asked for")));
        }
        let (axis, descending) = (1, true);
        let order = self.b.op(Op::ArgSort { axis, descending }, &[x])?;
        let places = self.part(order, 1, 0, k)?;
        let values = self.b.op(Op::Gather { axis }, &[x, places])?;
        let places = self.float(places)?;
        let (places, values) = (
            self.reshape(places, &[1, rows, k])?,
            self.reshape(values, &[1, rows, k])?,
        );
        self.join(0, &[places, values])
    }

    pub(super) fn scatter_top_k(&mut self, [places, values]: [ValueId; 2], classes: usize) -> Result<ValueId> {
        let shape = self.shape(places)?;
        let &[rows, _] = shape.as_slice() else {
            return Err(Error::shape(format!("places [rows, k] are expected, found {shape:?}")));
        };
        let zeros = self.filled(0.0, &[rows, classes])?;
        let ids = self.whole(places)?;
        let (axis, add) = (1, false);
        let spread = self.b.op(Op::Scatter { axis, add }, &[zeros, ids, values])?;
        Ok(self.b.permute(spread, &[1, 0])?)
    }

    pub(super) fn reduce_fn(&mut self, f: ReduceFn, x: ValueId, axis: Option<i32>) -> Result<ValueId> {
        let shape = self.shape(x)?;
        let (x, axis, rest) = match axis {
            None => (self.reshape(x, &[shape.iter().product()])?, 0, vec![1]),
            Some(axis) => {
                let axis = self.axis(x, axis)?;
                let mut rest = shape.clone();
                rest.remove(axis);
                (x, axis, if rest.is_empty() { vec![1] } else { rest })
            }
        };
        let out = match f {
            ReduceFn::Sum => self.reduce(Reduce::Sum, x, axis)?,
            ReduceFn::Mean => self.reduce(Reduce::Mean, x, axis)?,
            ReduceFn::Min => self.reduce(Reduce::Min, x, axis)?,
            ReduceFn::Max => self.reduce(Reduce::Max, x, axis)?,
            ReduceFn::Variance => self.variance(x, axis)?,
        };
        self.reshape(out, &rest)
    }

    /// Mean of the squared distances from the mean; the axis stays with size 1.
    pub(super) fn variance(&mut self, x: ValueId, axis: usize) -> Result<ValueId> {
        let mean = self.reduce(Reduce::Mean, x, axis)?;
        let off = self.bin(Bin::Sub, x, mean)?;
        let square = self.bin(Bin::Mul, off, off)?;
        self.reduce(Reduce::Mean, square, axis)
    }

    pub(super) fn glu(&mut self, x: ValueId, axis: i32) -> Result<ValueId> {
        let axis = self.axis(x, axis)?;
        let n = self.shape(x)?[axis];
        if n % 2 != 0 {
            return Err(Error::shape(format!("an axis of {n} elements cannot be halved")));
        }
        let (value, gate) = (self.part(x, axis, 0, n / 2)?, self.part(x, axis, n / 2, n)?);
        let gate = self.un(Un::Sigmoid, gate)?;
        self.bin(Bin::Mul, value, gate)
    }
}
