//! Where a recording is cut for a model that hears pieces of it: where it is quiet.
//!
//! Pure functions of the samples, with sums in `f64`, in order, so that every machine cuts alike.

/// Longest piece, in seconds, however much a model takes: the training sees few that are longer.
const MOST_S: usize = 20;
/// Milliseconds of a step, whose power is one number.
const STEP_MS: usize = 10;
/// Steps that should be quiet together.
const PAUSE_STEPS: usize = 30;

/// Power of a pause, as a share of that of the sound before and around it: -15 dB.
const QUIET: f64 = 0.03;

/// Samples of the longest piece. Where the next piece ends depends on twice as many.
pub(crate) fn longest(rate_hz: u32, most: usize) -> usize {
    most.min(MOST_S * rate_hz as usize).max(1)
}

/// The next piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) samples: usize,
    /// Whether nobody speaks at its end, or the sound is over there.
    pub(crate) is_quiet: bool,
}

/// Where the next piece of `samples` ends: with all of them where they are at most `longest`, otherwise in the middle of the quietest pause
/// behind the first quarter of the longest piece; of equal ones the last. As much is left for the piece after it.
pub(crate) fn piece(samples: &[f32], rate_hz: u32, longest: usize) -> End {
    let rate = rate_hz as usize;
    if samples.len() <= longest {
        let (samples, is_quiet) = (samples.len(), true);
        return End { samples, is_quiet };
    }
    let step = (rate * STEP_MS / 1000).max(1);
    let power = |part: &[f32]| part.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>();
    let last = longest.min(samples.len() - longest / 4);
    let powers: Vec<f64> = samples[..last].chunks_exact(step).map(power).collect();
    let pauses = powers.windows(PAUSE_STEPS).enumerate().skip(longest / 4 / step);
    let quiet = pauses.map(|(at, steps)| (at, steps.iter().sum::<f64>()));
    let quietest = quiet.reduce(|best, next| if next.1 <= best.1 { next } else { best });
    let mean = powers.iter().sum::<f64>() / powers.len().max(1) as f64;
    match quietest {
        Some((at, power)) => End {
            samples: (at + PAUSE_STEPS / 2) * step,
            is_quiet: power <= QUIET * mean * PAUSE_STEPS as f64,
        },
        None => End {
            samples: last,
            is_quiet: false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn noise(seconds: f64) -> Vec<f32> {
        let samples = (seconds * 1000.0) as u32;
        let mixed = (0..samples).map(|i| i.wrapping_mul(2_654_435_761) >> 8);
        mixed.map(|n| n as f32 / 8_388_608.0 - 1.0).collect()
    }

    #[test]
    fn sound_is_cut_in_the_middle_of_its_quietest_pause() {
        let mut samples = noise(50.0);
        let piece = |samples: &[f32], rate, most| super::piece(samples, rate, longest(rate, most)).samples;
        assert_eq!(piece(&samples[..20_000], 1000, 30_000), 20_000, "short enough");
        samples[3000..3500].fill(0.0);
        samples[9000..9300].fill(0.0);
        assert_eq!(piece(&samples, 1000, 30_000), 9150, "too early a pause does not count");
        for x in &mut samples[15_000..15_600] {
            *x *= 0.1;
        }
        assert_eq!(piece(&samples, 1000, 30_000), 9150, "not as quiet");
        assert_eq!(piece(&samples[..14_000], 1000, 10_000), 9150);
        assert!(piece(&samples[..10_100], 1000, 10_000) <= 7600, "something is left");
        samples[18_000..19_000].fill(0.0);
        assert_eq!(piece(&samples, 1000, 30_000), 18_850, "the last of equal ones");
        assert_eq!(piece(&samples, 1000, 100), 100, "too short for a pause");
    }

    #[test]
    fn a_pause_is_much_quieter_than_what_is_around_it() {
        let steady = noise(50.0);
        assert!(!super::piece(&steady, 1000, 20_000).is_quiet);
        for (factor, is_quiet) in [(0.0, true), (0.1, true), (0.3, false)] {
            let mut samples = steady.clone();
            samples[9000..9400].iter_mut().for_each(|x| *x *= factor);
            let found = super::piece(&samples, 1000, 20_000);
            assert_eq!(found.is_quiet, is_quiet, "{factor}");
            assert!((9150..=9250).contains(&found.samples), "{found:?}");
        }
        assert!(super::piece(&steady[..20_000], 1000, 20_000).is_quiet, "the end");
        assert!(super::piece(&vec![0.0; 50_000], 1000, 20_000).is_quiet, "silence");
    }

    proptest! {
        #[test]
        fn pieces_are_never_empty_nor_too_long(
            seed in prop::collection::vec(-1.0f32..1.0, 1..40), times in 1usize..200, rate in 1u32..200, most in 1usize..4000,
        ) {
            let samples = seed.repeat(times);
            let found = piece(&samples, rate, longest(rate, most));
            prop_assert!(0 < found.samples && found.samples <= most.min(samples.len()), "{found:?}");
            prop_assert!(found.is_quiet || found.samples < samples.len());
        }
    }
}
