//! A detector of speech for tests, in the form of Silero VAD's package: it hears one tone, and nothing else.

use serde_json::{Map, Value, json};
use std::io;
use std::path::{Path, PathBuf};

/// Samples a second that [`write_detector`]'s model takes, and [`sound`] gives.
pub const RATE: usize = 16_000;
/// Samples of the transform, as in the model for 16 kHz.
const FFT: usize = 256;
/// Bins of the transform.
const BINS: usize = FFT / 2 + 1;
/// The bin that is heard, 250 Hz.
const BIN: usize = 4;

/// Writes a file of weights to `folder`, which converts as Silero VAD does, and gives its path. Shapes are those of the real one but for
/// its widths, which are 1: a bin of the transform alone goes on, and the cell, whose gates stand open, forgets at once.
///
/// # Errors
/// Those of the file system.
pub fn write_detector(folder: &Path) -> io::Result<PathBuf> {
    let wave = |i: usize| (std::f64::consts::TAU * (BIN * i) as f64 / FFT as f64) as f32;
    let mut basis = vec![0.0; 2 * BINS * FFT];
    for i in 0..FFT {
        basis[BIN * FFT + i] = wave(i).cos();
        basis[(BINS + BIN) * FFT + i] = wave(i).sin();
    }
    let mut first = vec![0.0; BINS * 3];
    first[BIN * 3..][..3].fill(1.0);
    let ones = || vec![1.0; 3];
    let tensors: [(&str, &[usize], Vec<f32>); 15] = [
        ("stft_conv.weight", &[2 * BINS, 1, FFT], basis),
        ("conv1.weight", &[1, BINS, 3], first),
        ("conv1.bias", &[1], vec![0.0]),
        ("conv2.weight", &[1, 1, 3], ones()),
        ("conv2.bias", &[1], vec![0.0]),
        ("conv3.weight", &[1, 1, 3], ones()),
        ("conv3.bias", &[1], vec![0.0]),
        ("conv4.weight", &[1, 1, 3], ones()),
        ("conv4.bias", &[1], vec![0.0]),
        ("lstm_cell.weight_ih", &[4, 1], vec![0.0, 0.0, 0.1, 0.0]),
        ("lstm_cell.weight_hh", &[4, 1], vec![0.0; 4]),
        ("lstm_cell.bias_ih", &[4], vec![10.0, -10.0, 0.0, 10.0]),
        ("lstm_cell.bias_hh", &[4], vec![0.0; 4]),
        ("final_conv.weight", &[1, 1, 1], vec![20.0]),
        ("final_conv.bias", &[1], vec![-10.0]),
    ];
    // The format safetensors: length of the header, header, data.
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, shape, values) in tensors {
        let begin = data.len();
        data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        let about = json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()]});
        header.insert(name.to_owned(), about);
    }
    let header = Value::Object(header).to_string();
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    let path = folder.join("silero_vad_16k.safetensors");
    std::fs::write(&path, bytes)?;
    Ok(path)
}

/// Tones that are heard, each `(silence, tone)` in seconds: it lasts so long, after so much silence.
#[must_use]
pub fn sound(parts: &[(f64, f64)]) -> Vec<f32> {
    let mut all = Vec::new();
    for &(silence, tone) in parts {
        all.resize(all.len() + (silence * RATE as f64) as usize, 0.0);
        let turns = |i: usize| (i * BIN) as f64 / FFT as f64;
        let samples = 0..(tone * RATE as f64) as usize;
        all.extend(samples.map(|i| (0.3 * (std::f64::consts::TAU * turns(i)).sin()) as f32));
    }
    all
}

/// A WAV file of `samples`, 16 bits, [`RATE`] a second.
#[must_use]
pub fn wav(samples: &[f32]) -> Vec<u8> {
    let data: Vec<u8> = samples
        .iter()
        .flat_map(|s| ((s * 32_767.0) as i16).to_le_bytes())
        .collect();
    let length = data.len() as u32;
    let mut file = b"RIFF".to_vec();
    file.extend((36 + length).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data");
    file.extend(length.to_le_bytes());
    file.extend(data);
    file
}
