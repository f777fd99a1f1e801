//! What a front end does, as a record that a bundle can carry.

use crate::{Error, ErrorKind, fft, resample};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// How samples become features. Fields are in the order of the computation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Rate of the samples in Hz. Others have to be resampled before.
    pub sample_rate_hz: u32,
    /// `p` in `x[t] - p x[t-1]`, where `x[-1]` is 0. 0 leaves the samples as they are.
    #[serde(default)]
    pub preemphasis: f64,
    /// What `x[-1]` is, and with it what is emphasized at once.
    #[serde(default)]
    pub emphasis: Emphasis,
    /// What lies before the first sample.
    pub left_edge: Edge,
    /// What lies behind the last sample.
    pub right_edge: Edge,
    /// The window's shape.
    pub window: WindowShape,
    /// The window's length in samples. It lies in the middle of the transform.
    pub window_samples: usize,
    /// Length of the Fourier transform in samples. Frame `f` has its middle at sample `f * hop_samples`, or its window begins there
    /// where nothing lies before the first sample.
    pub fft_samples: usize,
    /// Samples from one frame to the next. At least a 64th of the transform. There are
    /// `samples / hop_samples` frames, rounded down, or those whose window ends before the last sample where nothing lies behind it.
    pub hop_samples: usize,
    /// What is taken of the transform.
    pub spectrum: Spectrum,
    /// The triangular filters.
    pub filters: Filterbank,
    /// The logarithm and what keeps it from zero.
    pub log: Log,
    /// What follows over all frames.
    pub normalization: Normalization,
    /// Frames of zeros behind the features, which a model masks.
    #[serde(default)]
    pub padding_frames: usize,
}

/// What is emphasized at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Emphasis {
    /// The recording, before which `x[-1]` is 0.
    #[default]
    Recording,
    /// Each window, before which `x[-1]` is as large as its first sample (HTK).
    Window,
}

/// What lies outside of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edge {
    /// The signal mirrored at its first or last sample, which is not repeated.
    Reflect,
    /// Silence.
    Zeros,
    /// Nothing: no window reaches there. Both edges are so, or none.
    None,
}

/// The shape of a window. `n` is its length in samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowShape {
    /// `0.5 - 0.5 cos(2π i / n)`.
    HannPeriodic,
    /// `0.5 - 0.5 cos(2π i / (n - 1))`.
    HannSymmetric,
    /// `0.54 - 0.46 cos(2π i / (n - 1))`.
    HammingSymmetric,
    /// All ones.
    Rectangular,
}

/// What is taken of a complex spectrum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spectrum {
    /// `|X|²`.
    Power,
    /// `|X|`.
    Magnitude,
}

/// Triangular filters with equal distances on a mel scale.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filterbank {
    /// Filters, which is values of a frame.
    pub bins: usize,
    /// Where the first filter begins.
    pub low_hz: f64,
    /// Where the last filter ends.
    pub high_hz: f64,
    /// The scale.
    pub scale: MelScale,
    /// How high the filters are.
    pub norm: MelNorm,
}

/// From frequency to mel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MelScale {
    /// Linear to 1 kHz, then logarithmic (Slaney, *Auditory Toolbox*, 1998); librosa's default.
    Slaney,
    /// `2595 log10(1 + f / 700)` (HTK).
    Htk,
}

/// The height of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MelNorm {
    /// Equal areas: `2 / width in Hz`.
    Slaney,
    /// All are 1 high.
    None,
}

/// The logarithm of a filter's output `x`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Log {
    /// `log10(max(x, floor))`.
    Log10Floor {
        /// The floor.
        floor: f64,
    },
    /// `ln(x + guard)`.
    LnGuard {
        /// The guard.
        guard: f64,
    },
    /// `ln(max(x, floor))`.
    LnFloor {
        /// The floor.
        floor: f64,
    },
}

/// What is done to the logarithms once all are known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Normalization {
    /// Nothing: a stream's frames are final.
    None,
    /// `(max(x, peak - range) + add) / divide`.
    Peak {
        /// How far below the peak values are kept.
        range: f64,
        /// Added.
        add: f64,
        /// Divided by.
        divide: f64,
        /// Over what the peak is taken.
        scope: Scope,
    },
    /// `(x - mean) / (deviation + epsilon)` for each filter over the frames; the deviation is that of a sample (`n - 1`).
    PerBin {
        /// Keeps the quotient finite.
        epsilon: f64,
    },
}

/// Over what a peak is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Scope {
    /// The whole recording, with the frames behind its end that still see samples of it. Windows that are cut out later are
    /// filled with `0.0`.
    Input,
    /// Windows of so many samples, the last one filled with silence, each with edges of its own.
    Window {
        /// Length of a window, a multiple of the hop.
        samples: usize,
    },
}

impl WindowShape {
    /// The window, `[n]`.
    pub(super) fn values(self, n: usize) -> Vec<f64> {
        let raised = |constant: f64, divisor: usize| {
            (0..n)
                .map(|i| constant - (1.0 - constant) * libm::cos(2.0 * PI * i as f64 / divisor.max(1) as f64))
                .collect()
        };
        match self {
            Self::HannPeriodic => raised(0.5, n),
            Self::HannSymmetric => raised(0.5, n - 1),
            Self::HammingSymmetric => raised(0.54, n - 1),
            Self::Rectangular => vec![1.0; n],
        }
    }
}

impl Recipe {
    /// Whether windows lie within the samples.
    pub(super) fn is_within(&self) -> bool {
        self.left_edge == Edge::None
    }

    /// The frames of so many samples.
    pub(super) fn frames(&self, samples: u64) -> u64 {
        let hop = self.hop_samples as u64;
        match self.is_within() {
            true => samples.saturating_sub(self.window_samples as u64).div_ceil(hop),
            false => samples / hop,
        }
    }

    pub(super) fn scope_samples(&self) -> Option<usize> {
        match self.normalization {
            Normalization::Peak {
                scope: Scope::Window { samples },
                ..
            } => Some(samples),
            _ => None,
        }
    }

    /// Bundles come from anywhere: what is not refused here is computed without overflow and in bounded memory.
    pub(super) fn check(&self) -> Result<(), Error> {
        let rate = f64::from(self.sample_rate_hz);
        let nyquist = rate / 2.0;
        let filters = &self.filters;
        let finite = |value: f64| value.is_finite() && value.abs() < 1e9;
        let positive = |value: f64| value > 0.0 && value < 1e9;
        let range = |name: &str, value: usize, low: usize, high: usize| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(refuse(name, value, &format!("from {low} to {high}")))
            }
        };
        if !resample::RATES_HZ.contains(&self.sample_rate_hz) {
            return Err(refuse("sample_rate_hz", self.sample_rate_hz, "from 1000 to 768000"));
        }
        range("fft_samples", self.fft_samples, 2, fft::MAX_SAMPLES)?;
        range("window_samples", self.window_samples, 1, self.fft_samples)?;
        range(
            "hop_samples",
            self.hop_samples,
            (self.fft_samples / 64).max(1),
            self.fft_samples,
        )?;
        range("filters.bins", filters.bins, 1, 1024)?;
        range("padding_frames", self.padding_frames, 0, 1024)?;
        if !(0.0..=1.0).contains(&self.preemphasis) {
            return Err(refuse("preemphasis", self.preemphasis, "from 0 to 1"));
        }
        if !(filters.low_hz >= 0.0 && filters.low_hz < filters.high_hz && filters.high_hz <= nyquist) {
            return Err(refuse(
                "filters.low_hz and high_hz",
                format!("{} and {}", filters.low_hz, filters.high_hz),
                &format!("rising, from 0 to half the sample rate, {nyquist}"),
            ));
        }
        if self.is_within() != (self.right_edge == Edge::None) {
            let found = format!("{:?}", self.right_edge).to_lowercase();
            return Err(refuse(
                "right_edge",
                found,
                "none where the left edge is none, and only there",
            ));
        }
        if self.is_within() && !matches!(self.normalization, Normalization::None) {
            return Err(refuse("normalization", "another", "none where the edges are none"));
        }
        let (Log::Log10Floor { floor: smallest } | Log::LnGuard { guard: smallest } | Log::LnFloor { floor: smallest }) =
            self.log;
        if !(positive(smallest) && smallest >= 1e-30) {
            return Err(refuse("log", smallest, "a floor or guard of at least 1e-30"));
        }
        match self.normalization {
            Normalization::None => {}
            Normalization::Peak { range, add, divide, .. } => {
                if !(positive(range) && finite(add) && finite(divide) && divide.abs() > 1e-9) {
                    return Err(refuse(
                        "normalization.peak",
                        format!("range {range}, add {add}, divide {divide}"),
                        "a positive range and a divisor other than 0",
                    ));
                }
            }
            Normalization::PerBin { epsilon } => {
                if !(positive(epsilon) && epsilon >= 1e-12) {
                    return Err(refuse("normalization.per_bin.epsilon", epsilon, "at least 1e-12"));
                }
            }
        }
        if let Some(samples) = self.scope_samples() {
            range(
                "normalization.peak.scope.window.samples",
                samples,
                self.hop_samples,
                1 << 24,
            )?;
            if !samples.is_multiple_of(self.hop_samples) {
                return Err(refuse(
                    "normalization.peak.scope.window.samples",
                    samples,
                    &format!("a multiple of hop_samples, {}", self.hop_samples),
                ));
            }
        }
        Ok(())
    }
}

fn refuse(field: &str, found: impl std::fmt::Display, expected: &str) -> Error {
    Error::new(
        ErrorKind::InvalidRecipe,
        format!("the feature recipe's {field} is {found}; expected {expected}"),
    )
}
