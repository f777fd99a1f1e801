//! One row of logits, and what the output head knows about it already.

use std::ops::Deref;

/// Logits that share a peak.
pub const PEAK_LOGITS: usize = cactus_kernels::matmul::PEAK_OUTPUTS;

/// Logits of one position, `[vocab]`; reads like the slice of them.
///
/// The output head leaves the largest of each [`PEAK_LOGITS`] logits beside them, so that the most likely tokens are found
/// without reading the vocabulary again: a sixteenth of it, and those few stretches that hold them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logits<'a> {
    values: &'a [f32],
    peaks: &'a [f32],
}

impl<'a> Logits<'a> {
    /// Logits and their peaks, see [`Logits::peaks`]; none (an empty slice) where they are not known.
    ///
    /// # Panics
    /// When the number of peaks does not match: a programming error.
    #[must_use]
    pub fn new(values: &'a [f32], peaks: &'a [f32]) -> Self {
        let expected = values.len().div_ceil(PEAK_LOGITS);
        assert!(
            peaks.is_empty() || peaks.len() == expected,
            "{} peaks, expected {expected}",
            peaks.len()
        );
        Logits { values, peaks }
    }

    /// The logits.
    #[must_use]
    pub fn values(self) -> &'a [f32] {
        self.values
    }

    /// The largest of each [`PEAK_LOGITS`] logits (the last ones may be fewer), or NaN where one of them is not finite.
    /// `None` where they are not known.
    #[must_use]
    pub fn peaks(self) -> Option<&'a [f32]> {
        (!self.peaks.is_empty()).then_some(self.peaks)
    }
}

impl Deref for Logits<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.values
    }
}

impl<'a, T: AsRef<[f32]> + ?Sized> From<&'a T> for Logits<'a> {
    fn from(values: &'a T) -> Self {
        Logits::new(values.as_ref(), &[])
    }
}
