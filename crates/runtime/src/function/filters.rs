//! Filters of a convolution that are there packed, as a bundle stores them or as few windows read them.

use super::constants::Constants;
use super::folds::Folds;
use crate::Result;
use cactus_ir::{Graph, Op, ValueId};
use cactus_kernels::dense::{FEW_WINDOWS, Window, is_on_integers};
use cactus_quant::{PackedView, Packing};

/// Packed filters, and what they are multiplied with.
pub(super) enum PackedFilters<'a> {
    /// Integers that places have.
    Integers(PackedView<'a>),
    /// Rows that windows gather.
    Rows(PackedView<'a>),
}

impl<'a> PackedFilters<'a> {
    /// The filters `v`, of shape `[filters, channels, kernel…]`, of a convolution in one group with the windows `w`; `None` where they are plain.
    pub(super) fn of(
        graph: &Graph,
        constants: &'a Constants,
        folds: &Folds,
        v: ValueId,
        shape: &[usize],
        w: &Window,
    ) -> Result<Option<Self>> {
        if w.out.iter().product::<usize>() < FEW_WINDOWS
            && let Some(few) = constants.filters(v)
        {
            return Ok(Some(Self::Rows(few)));
        }
        // What turns the axes of filters is done where they are in this order, see `Folds`.
        let is_turned = graph
            .producer(v)
            .is_some_and(|(_, node)| matches!(node.op, Op::Permute { .. }));
        let mut of = v;
        while let Some((_, node)) = graph.producer(of) {
            match node.op {
                Op::Reshape { .. } => of = node.inputs[0],
                _ if folds.done.contains(&of) => of = node.inputs[0],
                _ => return Ok(None),
            }
        }
        let taps = shape[2..].iter().product::<usize>();
        let stored = constants
            .matrix(of)?
            .filter(|m| m.n() == shape[0] && m.k() == shape[1] * taps);
        Ok(stored.and_then(|m| match m.packing() {
            packing if (is_turned || taps == 1) && is_on_integers(packing, w, shape[1]) => Some(Self::Integers(m)),
            Packing::Int8G32 | Packing::F32N16 => Some(Self::Rows(m)),
            _ => None,
        }))
    }
}
