//! The resampler on tones, and in pushes.

use cactus_audio::{ErrorKind, Resampler, resample};
use proptest::prelude::*;
use std::f64::consts::PI;

const RATES: [u32; 10] = [
    8_000, 11_025, 12_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000, 11_127,
];

fn tone(hz: f64, rate: u32, seconds: f64) -> Vec<f32> {
    (0..(f64::from(rate) * seconds) as usize)
        .map(|i| (0.5 * (2.0 * PI * hz * i as f64 / f64::from(rate)).sin()) as f32)
        .collect()
}

/// The middle of what comes out, where no edge is near, and the time in seconds of its first sample.
fn middle(samples: &[f32], rate: u32) -> (&[f32], f64) {
    let edge = samples.len() / 4;
    (&samples[edge..samples.len() - edge], edge as f64 / f64::from(rate))
}

#[test]
fn resample_of_a_tone_that_passes_gives_the_same_tone_at_the_same_time() {
    for from in RATES {
        for to in [16_000, 48_000] {
            let low = f64::from(from.min(to));
            for part in [0.01, 0.1, 0.3, 0.45] {
                let hz = part * low;
                let out = resample(&tone(hz, from, 0.25), from, to).unwrap();
                let (samples, start) = middle(&out, to);
                let worst = samples.iter().enumerate().fold(0f64, |worst, (i, &got)| {
                    let t = start + i as f64 / f64::from(to);
                    worst.max((f64::from(got) - 0.5 * (2.0 * PI * hz * t).sin()).abs())
                });
                // 0.5 × 1e-4 is 0.001 dB, in amplitude and delay together.
                assert!(worst < 5e-5, "{from} to {to} Hz, tone of {hz:.0} Hz: {worst:.2e}");
            }
        }
    }
}

#[test]
fn resample_of_a_tone_above_the_lower_rate_gives_silence() {
    for from in RATES.into_iter().filter(|&rate| rate > 16_000) {
        let top = f64::from(from) / 2.0;
        for hz in [8_000.0, 8_100.0, 9_000.0, 0.9 * top, 0.99 * top]
            .into_iter()
            .filter(|&hz| hz >= 8_000.0)
        {
            let out = resample(&tone(hz, from, 0.25), from, 16_000).unwrap();
            let (samples, _) = middle(&out, 16_000);
            let power = samples.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / samples.len() as f64;
            let decibels = 10.0 * (power / 0.125).log10();
            assert!(decibels < -99.0, "{from} Hz, tone of {hz:.0} Hz: {decibels:.1} dB");
        }
    }
}

#[test]
fn resample_up_makes_no_images() {
    for from in [8_000, 11_025, 11_127] {
        let hz = 0.4 * f64::from(from);
        let out = resample(&tone(hz, from, 0.5), from, 16_000).unwrap();
        let (samples, start) = middle(&out, 16_000);
        let rest: f64 = samples
            .iter()
            .enumerate()
            .map(|(i, &got)| {
                let t = start + i as f64 / 16_000.0;
                (f64::from(got) - 0.5 * (2.0 * PI * hz * t).sin()).powi(2)
            })
            .sum();
        let decibels = 10.0 * (rest / samples.len() as f64 / 0.125).log10();
        assert!(decibels < -95.0, "{from} Hz: {decibels:.1} dB beside the tone");
    }
}

#[test]
fn resample_of_a_constant_stays_constant() {
    for from in RATES {
        let out = resample(&vec![0.25; from as usize / 4], from, 16_000).unwrap();
        let (samples, _) = middle(&out, 16_000);
        assert!(samples.iter().all(|x| (x - 0.25).abs() < 1e-6), "{from} Hz");
    }
}

#[test]
fn resample_has_the_samples_of_the_time() {
    for (samples, from, to, want) in [
        (0, 48_000, 16_000, 0),
        (1, 48_000, 16_000, 1),
        (3, 48_000, 16_000, 1),
        (4, 48_000, 16_000, 2),
        (441, 44_100, 16_000, 160),
        (80, 8_000, 16_000, 160),
        (1, 1_000, 768_000, 768),
        (768, 768_000, 1_000, 1),
        (5, 16_000, 16_000, 5),
    ] {
        let out = resample(&vec![0.5; samples], from, to).unwrap();
        assert_eq!(out.len(), want, "{samples} samples from {from} to {to} Hz");
    }
}

#[test]
fn new_of_rates_out_of_range_is_refused() {
    for (from, to) in [(0, 16_000), (16_000, 0), (999, 16_000), (u32::MAX, 16_000)] {
        assert_eq!(Resampler::new(from, to).unwrap_err().kind(), ErrorKind::InvalidHeader);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn push_in_any_pieces_has_the_bits_of_the_whole(
        from in prop::sample::select(&RATES[..]),
        samples in prop_oneof![0..500usize, 4000..9000usize],
        cuts in prop::collection::vec(0..5000usize, 0..12),
    ) {
        let audio: Vec<f32> = (0..samples as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0).collect();
        let whole = resample(&audio, from, 16_000).unwrap();
        let mut resampler = Resampler::new(from, 16_000).unwrap();
        for _ in 0..2 {
            let (mut rest, mut out) = (&audio[..], Vec::new());
            for &cut in &cuts {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                resampler.push(now, &mut out);
                rest = later;
            }
            resampler.push(rest, &mut out);
            resampler.finish(&mut out);
            prop_assert_eq!(&out, &whole);
        }
    }
}

#[test]
fn push_after_the_first_ones_allocates_nothing() {
    let mut resampler = Resampler::new(44_100, 16_000).unwrap();
    let (audio, mut out) = (tone(440.0, 44_100, 1.0), Vec::with_capacity(32_000));
    resampler.push(&audio, &mut out);
    let counted = allocation_counter::measure(|| {
        for push in audio.chunks(777) {
            out.clear();
            resampler.push(push, &mut out);
        }
    });
    assert_eq!(counted.count_total, 0);
}
