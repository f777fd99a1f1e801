//! Products whose input and result are kept within bounds that are stored with the matrix, as in the encoders of Gemma 4.

use crate::layers::linear;
use cactus_ir::{BinaryFn, GraphBuilder, Result, ValueId, WeightExpr};

/// Whether products are bounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounded(pub(crate) bool);

impl Bounded {
    /// `x` times the matrix `{at}.linear.weight` `[n, k]`.
    pub(crate) fn product(self, b: &mut GraphBuilder, x: ValueId, at: &str, [n, k]: [usize; 2]) -> Result<ValueId> {
        self.within(b, x, at, |b, x| linear(b, x, &format!("{at}.linear"), n, k, false))
    }

    /// What `of` gives of `x`, both kept within the bounds that are stored under `at`.
    pub(crate) fn within(
        self,
        b: &mut GraphBuilder,
        x: ValueId,
        at: &str,
        of: impl FnOnce(&mut GraphBuilder, ValueId) -> Result<ValueId>,
    ) -> Result<ValueId> {
        let bound = |b: &mut GraphBuilder, x, name: &str| {
            if !self.0 {
                return Ok(x);
            }
            // Stored without an axis, or with one.
            let [least, most] = ["min", "max"].map(|end| {
                let stored = format!("{at}.{name}_{end}");
                let x = Box::new(WeightExpr::source(&stored));
                b.weight_from(&stored, &[1], WeightExpr::Reshape { x, shape: vec![1] })
            });
            let x = b.binary(BinaryFn::Max, x, least)?;
            b.binary(BinaryFn::Min, x, most)
        };
        let x = bound(b, x, "input")?;
        let y = of(b, x)?;
        bound(b, y, "output")
    }
}
