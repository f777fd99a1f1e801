//! Triangular filters on a mel scale.

use super::recipe::{Filterbank, MelNorm, MelScale};

/// Filters as the bins that they see.
#[derive(Debug)]
pub(super) struct Bank {
    /// For each filter the first frequency and its weights.
    filters: Vec<(usize, Vec<f64>)>,
}

impl Bank {
    /// Corners have equal distances in mel; each triangle falls to 0 at its neighbors' peaks. Weights are rounded to `f32`, as
    /// the models' own are.
    pub(super) fn new(bank: &Filterbank, sample_rate_hz: u32, fft_samples: usize) -> Self {
        let (low, high) = (to_mel(bank.scale, bank.low_hz), to_mel(bank.scale, bank.high_hz));
        let corners: Vec<f64> = (0..bank.bins + 2)
            .map(|i| to_hz(bank.scale, low + (high - low) * i as f64 / (bank.bins + 1) as f64))
            .collect();
        let frequencies = fft_samples / 2 + 1;
        let filters = corners
            .windows(3)
            .map(|corner| {
                let [left, peak, right] = [corner[0], corner[1], corner[2]];
                let height = match bank.norm {
                    MelNorm::Slaney => 2.0 / (right - left),
                    MelNorm::None => 1.0,
                };
                let weight = |k: usize| {
                    let f = k as f64 * f64::from(sample_rate_hz) / fft_samples as f64;
                    let triangle = ((f - left) / (peak - left)).min((right - f) / (right - peak));
                    f64::from((triangle.max(0.0) * height) as f32)
                };
                let mut seen = (0..frequencies).filter(|&k| weight(k) > 0.0);
                let first = seen.next().unwrap_or(0);
                let end = seen.next_back().unwrap_or(first) + 1;
                (first, (first..end).map(weight).collect())
            })
            .collect();
        Self { filters }
    }

    /// The filters' outputs over a spectrum.
    pub(super) fn apply<'a>(&'a self, spectrum: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
        self.filters.iter().map(|(first, weights)| {
            let mut sum = 0.0;
            for (weight, value) in weights.iter().zip(&spectrum[*first..]) {
                sum += weight * value;
            }
            sum
        })
    }
}

/// Hz for a mel of Slaney's linear part.
const LINEAR_HZ: f64 = 200.0 / 3.0;
/// Where Slaney's scale becomes logarithmic, in Hz and mel.
const BREAK_HZ: f64 = 1000.0;
const BREAK_MEL: f64 = 15.0;
/// Mels for a factor of 6.4.
const LOG_MELS: f64 = 27.0;

fn to_mel(scale: MelScale, hz: f64) -> f64 {
    match scale {
        MelScale::Htk => 2595.0 * libm::log10(1.0 + hz / 700.0),
        MelScale::Slaney if hz < BREAK_HZ => hz / LINEAR_HZ,
        MelScale::Slaney => BREAK_MEL + libm::log(hz / BREAK_HZ) * (LOG_MELS / libm::log(6.4)),
    }
}

fn to_hz(scale: MelScale, mel: f64) -> f64 {
    match scale {
        MelScale::Htk => 700.0 * (libm::pow(10.0, mel / 2595.0) - 1.0),
        MelScale::Slaney if mel < BREAK_MEL => mel * LINEAR_HZ,
        MelScale::Slaney => BREAK_HZ * libm::exp((mel - BREAK_MEL) * (libm::log(6.4) / LOG_MELS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_there_and_back_give_the_same() {
        for scale in [MelScale::Slaney, MelScale::Htk] {
            for hz in [0.0, 20.0, 440.0, 999.0, 1000.0, 1001.0, 4000.0, 8000.0, 24000.0] {
                let back = to_hz(scale, to_mel(scale, hz));
                assert!((back - hz).abs() < 1e-8, "{scale:?}: {hz} became {back}");
            }
        }
    }

    #[test]
    fn bank_narrower_than_a_frequency_has_empty_filters() {
        let bank = Filterbank {
            bins: 100,
            low_hz: 10.0,
            high_hz: 20.0,
            scale: MelScale::Slaney,
            norm: MelNorm::Slaney,
        };
        let bank = Bank::new(&bank, 16_000, 400);
        assert!(bank.apply(&[1.0; 201]).all(|x| x == 0.0));
    }
}
