//! The random generator: small, seedable, the same on every platform. Not for secrets.

/// xoshiro256** 1.0 (Blackman and Vigna 2018), seeded through SplitMix64 as its authors advise.
#[derive(Debug, Clone)]
pub(super) struct Xoshiro256 {
    pub(super) state: [u64; 4],
}

impl Xoshiro256 {
    pub(super) fn new(seed: u64) -> Self {
        let mut mix = seed;
        Self {
            state: std::array::from_fn(|_| split_mix64(&mut mix)),
        }
    }

    pub(super) fn next(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in [0, 1) with 53 random bits.
    pub(super) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

pub(super) fn split_mix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A seed from the system's randomness, by way of the keys of the standard hasher.
pub(super) fn system_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}
