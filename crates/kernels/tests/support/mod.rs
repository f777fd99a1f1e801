//! What the tests share: deterministic inputs, and running an operation on every tier and thread count.
#![allow(dead_code)]

pub(crate) mod products;

use cactus_base::{Pool, Step};
use cactus_kernels::{Exec, Kernels, Tier};

/// A small deterministic generator (xorshift64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn bits(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    /// In `-1.0..1.0`.
    pub(crate) fn unit(&mut self) -> f32 {
        self.bits() as f32 / (1u64 << 31) as f32 - 1.0
    }

    /// `n` values of magnitude up to `scale`, with a few large ones, as activations have.
    pub(crate) fn floats(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n)
            .map(|_| {
                let outlier = if self.bits().is_multiple_of(50) { 4.0 } else { 1.0 };
                self.unit() * scale * outlier
            })
            .collect()
    }
}

/// Numbers of threads to run with: one to four, or those that the variable `CACTUS_TEST_THREADS` names, as emulated CPUs have it.
pub(crate) fn threads() -> Vec<usize> {
    match std::env::var("CACTUS_TEST_THREADS") {
        Ok(given) => given.split(',').map(|count| count.parse().expect("a number")).collect(),
        Err(_) => (1..=4).collect(),
    }
}

/// Runs `op` on the scalar tier with one thread, then on every tier with each of [`threads`], and checks that all
/// give the same bits. Returns the result.
pub(crate) fn same_everywhere(what: &str, op: impl Fn(&Exec<'_>) -> Vec<f32>) -> Vec<f32> {
    let scalar = Kernels::for_tier(Tier::Scalar).expect("every CPU has the scalar tier");
    let expected = op(&Exec {
        kernels: scalar,
        step: &Step::inline(),
    });
    for kernels in Kernels::available() {
        for threads in threads() {
            let pool = Pool::new(threads);
            let step = pool.step(threads);
            let found = op(&Exec { kernels, step: &step });
            assert_same_bits(
                &format!("{what}, tier {}, {threads} threads", kernels.tier()),
                &found,
                &expected,
            );
        }
    }
    expected
}

#[track_caller]
pub(crate) fn assert_same_bits(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        let same = f.to_bits() == e.to_bits() || (f.is_nan() && e.is_nan());
        assert!(
            same,
            "{what}: element {i} is {f} ({:08x}), expected {e} ({:08x})",
            f.to_bits(),
            e.to_bits()
        );
    }
}

/// Checks `|found - exact| <= relative * |exact| + absolute`.
#[track_caller]
pub(crate) fn assert_close(what: &str, found: &[f32], exact: &[f64], relative: f64, absolute: f64) {
    assert_eq!(found.len(), exact.len(), "{what}: length");
    for (i, (&f, &e)) in found.iter().zip(exact).enumerate() {
        let f = f64::from(f);
        assert!(
            (f - e).abs() <= relative * e.abs() + absolute,
            "{what}: element {i} is {f}, expected {e}"
        );
    }
}
