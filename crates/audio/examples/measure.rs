//! How long the parts of this crate take, and how good the resampler is: `cargo run --release -p cactus-audio --example measure [FILE…]`.
//!
//! Times are medians of nine runs on one thread. With files it says how long each takes to decode.
#![allow(clippy::print_stdout, reason = "what it measures goes to stdout")]

use cactus_audio::decode::{Limits, Reader};
use cactus_audio::{Frontend, Recipe, resample};
use std::f64::consts::PI;
use std::hint::black_box;
use std::time::Instant;

fn median_ms(mut run: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..9)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[4]
}

fn noise(samples: usize) -> Vec<f32> {
    (0..samples as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0)
        .collect()
}

/// The level in dB of what becomes of a tone of `hz`.
fn level_db(hz: f64, from: u32, to: u32) -> f64 {
    let tone: Vec<f32> = (0..from)
        .map(|i| (2.0 * PI * hz * f64::from(i) / f64::from(from)).sin() as f32)
        .collect();
    let out = resample(&tone, from, to).expect("rates in range");
    let middle = &out[out.len() / 4..out.len() * 3 / 4];
    let power = middle.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / middle.len() as f64;
    10.0 * (2.0 * power).log10()
}

fn main() {
    let second = noise(16_000 * 30);
    for text in [
        include_str!("../../../golden/features/whisper_80_input.json"),
        include_str!("../../../golden/features/whisper_128_window.json"),
        include_str!("../../../golden/features/nemo_80.json"),
        include_str!("../../../golden/features/nemo_128.json"),
    ] {
        let case: serde_json::Value = serde_json::from_str(text).expect("a golden file");
        let recipe: Recipe = serde_json::from_value(case["recipe"].clone()).expect("a recipe");
        let name = format!("FFT {}, {} mels", recipe.fft_samples, recipe.filters.bins);
        let frontend = Frontend::new(recipe).expect("a golden recipe");
        let ms = median_ms(|| drop(black_box(frontend.extract(black_box(&second)))));
        println!("features of 30 s, {name}: {ms:.1} ms");
    }
    for from in [8_000u32, 11_025, 22_050, 24_000, 44_100, 48_000, 96_000] {
        let audio = noise(from as usize * 30);
        let ms = median_ms(|| drop(black_box(resample(black_box(&audio), from, 16_000))));
        let low = f64::from(from.min(16_000));
        let pass: Vec<f64> = (1..=40)
            .map(|i| level_db((low * 0.456 * f64::from(i) / 40.0).round(), from, 16_000))
            .collect();
        let ripple = pass.iter().fold(0f64, |worst, level| worst.max(level.abs()));
        let stop = (0..40)
            .map(|i| 8_000.0 + (f64::from(from) / 2.0 - 8_000.0) * f64::from(i) / 40.0)
            .filter(|&hz| hz >= 8_000.0 && from > 16_000)
            .map(|hz| level_db(hz.round() + 1.0, from, 16_000))
            .fold(f64::NEG_INFINITY, f64::max);
        println!("30 s from {from} Hz to 16 kHz: {ms:.1} ms, ripple {ripple:.5} dB, aliases {stop:.1} dB");
    }
    for path in std::env::args().skip(1) {
        let mut seconds = 0.0;
        let ms = median_ms(|| {
            let mut reader = Reader::open(path.as_ref(), Limits::default()).expect("an audio file");
            let mut frames = 0;
            while let Some(block) = reader.next_block().expect("audio") {
                frames += block.samples.len() / block.channels;
            }
            seconds = frames as f64 / f64::from(reader.info().sample_rate_hz);
        });
        println!(
            "{path}: {seconds:.1} s in {ms:.1} ms, {:.0} times real time",
            seconds * 1e3 / ms
        );
    }
}
