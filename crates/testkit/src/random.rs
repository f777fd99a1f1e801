//! Seeded random numbers, tensors and weights: the same on every platform. What they are compared with is elsewhere.

use cactus_ir::{Graph, WeightExpr};
use cactus_tensor::{Tensor, element_count};
use std::collections::BTreeMap;

/// A seeded generator (SplitMix64, Steele et al. 2014): the same numbers on every platform.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator; equal seeds give equal numbers.
    pub fn new(seed: u64) -> Self {
        Random { state: seed }
    }

    /// A generator that depends on a name too, so that tensors do not repeat each other.
    pub fn named(seed: u64, name: &str) -> Self {
        // FNV-1a, 64 bits.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
        Random::new(seed ^ hash)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..n`; 0 where `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next_u64() % (n.max(1) as u64)) as usize
    }

    /// Uniform in `[-1, 1)`, a multiple of 2^-23.
    pub fn uniform(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// A tensor of [`Random::uniform`] values times `factor`.
    ///
    /// # Panics
    /// Where the shape is too large.
    pub fn tensor(&mut self, shape: &[usize], factor: f32) -> Tensor {
        let n = element_count(shape).expect("a test shape fits");
        let values = (0..n).map(|_| self.uniform() * factor).collect();
        Tensor::from_f32(shape, values).expect("the count is that of the shape")
    }

    /// Token ids below `vocab`, `i64` of `shape`.
    ///
    /// # Panics
    /// Where the shape is too large.
    pub fn tokens(&mut self, shape: &[usize], vocab: usize) -> Tensor {
        let n = element_count(shape).expect("a test shape fits");
        let ids = (0..n).map(|_| self.below(vocab) as i64).collect();
        Tensor::from_i64(shape, ids).expect("the count is that of the shape")
    }
}

/// `len` values of [`Random::uniform`].
pub fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.uniform()).collect()
}

/// Random tensors for every source tensor that the weights of `graph` read: matrices of variance about `1/fan_in`,
/// vectors near 1 (near 0 where the name says bias).
///
/// # Panics
/// Where a weight is neither a source tensor, nor one with its elements changed or in another order: then the source's shape is unknown.
pub fn source_tensors(graph: &Graph, seed: u64) -> BTreeMap<String, Tensor> {
    /// The source of a weight of this shape, and its own, as far as that matters: a reshape takes any of as many elements.
    fn source(expr: &WeightExpr, shape: Vec<usize>) -> (&str, Vec<usize>) {
        match expr {
            WeightExpr::Source(name) => (name, shape),
            WeightExpr::AddScalar { x, .. } | WeightExpr::MulScalar { x, .. } => source(x, shape),
            WeightExpr::Reshape { x, .. } => source(x, shape),
            WeightExpr::Permute { x, perm } => {
                let mut before = shape.clone();
                for (size, axis) in shape.iter().zip(perm) {
                    before[*axis] = *size;
                }
                source(x, before)
            }
            other => panic!("the shapes of the sources of {other:?} are unknown"),
        }
    }
    let mut out = BTreeMap::new();
    for (v, expr) in graph.weights() {
        let shape = graph.ty(v).known_shape().expect("weights have fixed shapes");
        let (name, shape) = source(expr, shape);
        let mut random = Random::named(seed, name);
        let tensor = match &shape[..] {
            [n] => {
                let base = if name.contains("bias") { 0.0 } else { 1.0 };
                let values = (0..*n).map(|_| base + 0.2 * random.uniform()).collect();
                Tensor::from_f32([*n], values).expect("the count is that of the shape")
            }
            _ => {
                let fan_in: usize = shape[1..].iter().product();
                random.tensor(&shape, (3.0 / fan_in.max(1) as f32).sqrt())
            }
        };
        out.insert(name.to_owned(), tensor);
    }
    out
}
