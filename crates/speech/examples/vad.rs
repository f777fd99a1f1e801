//! How long a chunk takes to listen to: `cargo run --release -p cactus-speech --example vad BUNDLE RECORDING [TIMES]`. For every
//! run it prints the microseconds of a chunk when chunks come one by one, and when the recording comes at once. One thread.
#![allow(clippy::print_stdout, reason = "what it measures goes to stdout")]

use cactus_audio::decode::{Limits, load};
use cactus_speech::Vad;
use std::error::Error;
use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [bundle, recording, times @ ..] = &args[..] else {
        return Err("expected a bundle and a recording".into());
    };
    let times = times.first().map_or(Ok(1), |n| n.parse())?;
    let mut vad = Vad::load(&PathBuf::from(bundle), 1)?;
    let samples = load(File::open(recording)?, vad.sample_rate_hz(), Limits::default())?;
    let (whole, _) = samples.split_at(samples.len() / vad.chunk_samples() * vad.chunk_samples());
    let chunks = (whole.len() / vad.chunk_samples()) as f64;
    for _ in 0..times {
        let mut took = [0.0; 2];
        for (took, size) in took.iter_mut().zip([vad.chunk_samples(), whole.len()]) {
            vad.reset();
            let begun = Instant::now();
            for part in whole.chunks(size) {
                vad.push(part)?;
            }
            *took = begun.elapsed().as_secs_f64() * 1e6 / chunks;
        }
        println!("{:.2} {:.2}", took[0], took[1]);
    }
    Ok(())
}
