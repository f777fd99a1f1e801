//! Pictures of `golden/pictures.py`.

/// The bytes of a picture of noise, RGB, row by row: the same as `noise` of `golden/pictures.py` makes.
#[must_use]
pub fn picture_noise(width: u32, height: u32, seed: u64) -> Vec<u8> {
    let start = seed.wrapping_mul(2_246_822_519);
    let bytes = u64::from(width) * u64::from(height) * 3;
    (0..bytes)
        .map(|i| ((i.wrapping_mul(2_654_435_761).wrapping_add(start) & 0xffff_ffff) >> 24) as u8)
        .collect()
}
