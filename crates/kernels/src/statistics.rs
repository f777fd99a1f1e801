//! What a row of logits says of its softmax, without writing it.

use crate::Kernels;
use crate::math::exp;
use cactus_simd::{Op, Simd};

/// Chunks of 16 that are summed before they join the sum of the row, so that its rounding stays small.
const CHUNKS: usize = 64;

/// Statistics of a row `x` of finite numbers.
///
/// With `x'` for `x - max`: the softmax of element `i` is `e^x'[i] / sum`, its entropy `ln sum - moment / sum` nats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowStatistics {
    /// The largest element.
    pub max: f32,
    /// The second largest; as `max` where that is there twice, and minus infinity for a single element.
    pub second: f32,
    /// The sum of `e^x'`.
    pub sum: f32,
    /// The sum of `x' e^x'`.
    pub moment: f32,
}

impl Kernels {
    /// Statistics of `x`, on this thread. An element that is not finite gives unspecified numbers.
    ///
    /// # Panics
    /// When `x` is empty.
    #[must_use]
    pub fn row_statistics(&self, x: &[f32]) -> RowStatistics {
        assert!(!x.is_empty(), "row_statistics: no element");
        self.run(Statistics { x })
    }
}

struct Statistics<'a> {
    x: &'a [f32],
}

impl Op for Statistics<'_> {
    type Output = RowStatistics;

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> RowStatistics {
        let (chunks, tail) = self.x.as_chunks::<16>();
        let present = s.lanes(0, tail.len());
        let lowest = s.splat(f32::NEG_INFINITY);

        let (mut first, mut second) = (lowest, lowest);
        let mut see = |x: S::F| {
            second = s.max(second, s.min(first, x));
            first = s.max(first, x);
        };
        for chunk in chunks {
            see(s.load(chunk));
        }
        see(s.select(present, s.load_partial(tail), lowest));
        let (mut firsts, mut seconds) = ([0.0; 16], [0.0; 16]);
        s.store(first, &mut firsts);
        s.store(second, &mut seconds);
        let (mut max, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
        for x in firsts.into_iter().chain(seconds) {
            if x > max {
                (max, second) = (x, max);
            } else if x > second {
                second = x;
            }
        }

        let highest = s.splat(max);
        let (mut sum, mut moment) = (s.zero(), s.zero());
        for chunks in chunks.chunks(CHUNKS) {
            let (mut part, mut part_moment) = (s.zero(), s.zero());
            for chunk in chunks {
                let x = s.sub(s.load(chunk), highest);
                let e = exp(s, x);
                part = s.add(part, e);
                part_moment = s.fma(x, e, part_moment);
            }
            sum = s.add(sum, part);
            moment = s.add(moment, part_moment);
        }
        let x = s.sub(s.load_partial(tail), highest);
        let e = s.select(present, exp(s, x), s.zero());
        sum = s.add(sum, e);
        moment = s.add(moment, s.select(present, s.mul(x, e), s.zero()));
        RowStatistics {
            max,
            second,
            sum: s.reduce_sum(sum),
            moment: s.reduce_sum(moment),
        }
    }
}
