//! Values seen through the operations that only rearrange them.

use crate::Result;
use crate::pattern::{insert_before, maker, times_scalar};
use cactus_ir::{Dim, Graph, Node, NodeId, Op, ValueId};

/// A value of 4 axes as `[batch, seq, heads, head_dim]`: axis `i` of that is axis `perm[i]` of `base`, with each head of
/// `base` standing for `repeats` heads in a row, all times `factor`.
#[derive(Clone, Debug)]
pub(crate) struct Heads {
    pub(crate) base: ValueId,
    pub(crate) perm: [usize; 4],
    pub(crate) repeats: usize,
    pub(crate) factor: f64,
}

impl Heads {
    /// Follows `v` back through permutations, repeated heads and constant factors, where axis `i` of
    /// `[batch, seq, heads, head_dim]` is axis `perm[i]` of `v`.
    pub(crate) fn of(g: &Graph, v: ValueId, perm: [usize; 4]) -> Heads {
        let mut at = Heads {
            base: v,
            perm,
            repeats: 1,
            factor: 1.0,
        };
        loop {
            if let Some(Node {
                op: Op::Permute { perm },
                inputs,
                ..
            }) = maker(g, at.base)
            {
                at.perm = at.perm.map(|p| perm[p]);
                at.base = inputs[0];
            } else if let Some((base, repeats)) = repeated(g, at.base, at.perm[2]) {
                at.repeats *= repeats;
                at.base = base;
            } else if let Some((base, factor)) = times_scalar(g, at.base).filter(|(x, _)| g.ty(*x) == g.ty(at.base)) {
                at.factor *= factor;
                at.base = base;
            } else {
                return at;
            }
        }
    }

    /// Size of axis `i` of `[batch, seq, heads, head_dim]`, heads not repeated.
    pub(crate) fn size<'g>(&self, g: &'g Graph, i: usize) -> &'g Dim {
        &g.ty(self.base).shape[self.perm[i]]
    }

    /// The value `[batch, seq, heads, head_dim]`, made before node `before` where it does not exist.
    pub(crate) fn build(&self, g: &mut Graph, before: NodeId) -> Result<ValueId> {
        match self.perm {
            [0, 1, 2, 3] => Ok(self.base),
            perm => insert_before(g, before, Op::Permute { perm: perm.to_vec() }, &[self.base]),
        }
    }
}

/// `(x, n)` where `v` is `x` with each index of `axis` repeated `n` times in a row: an axis inserted, expanded and
/// merged.
fn repeated(g: &Graph, v: ValueId, axis: usize) -> Option<(ValueId, usize)> {
    let step = |v: ValueId, want: fn(&Op) -> bool| maker(g, v).filter(|n| want(&n.op)).map(|n| n.inputs[0]);
    let wide = step(v, |op| matches!(op, Op::Reshape { .. }))?;
    let narrow = step(wide, |op| matches!(op, Op::Expand { .. }))?;
    let x = step(narrow, |op| matches!(op, Op::Reshape { .. }))?;
    let shape = |v: ValueId| &g.ty(v).shape[..];
    let repeats = shape(wide).get(axis + 1)?.as_known()?;
    // [.., heads, 1, ..] from [.., heads, ..], expanded at the new axis only, then merged into the one before.
    let inserted = shape(narrow).len() == shape(x).len() + 1
        && shape(narrow)[axis + 1].is(1)
        && shape(narrow)[..=axis] == shape(x)[..=axis]
        && shape(narrow)[axis + 2..] == shape(x)[axis + 1..];
    let expanded = shape(wide).len() == shape(narrow).len()
        && (0..shape(wide).len()).all(|i| i == axis + 1 || shape(wide)[i] == shape(narrow)[i]);
    let merged = shape(v).len() == shape(x).len()
        && (0..shape(v).len()).all(|i| i == axis || shape(v)[i] == shape(x)[i])
        && shape(v)[axis].as_known() == shape(x)[axis].as_known()?.checked_mul(repeats);
    (inserted && expanded && merged).then_some((x, repeats))
}
