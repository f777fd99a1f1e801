//! Sound and pictures.

use super::node_graph::{Frames, GraphOp, MelBank, Patches};
use super::open::{add, at_least_one};
use crate::failure::Failure;
use crate::guard;
use crate::input::values;
use std::ffi::{c_int, c_void};

/// `(x [n, c, l], weight [2 bins, c, k]) -> [n, 2 bins, (l - k) / stride + 1]`: real parts, then imaginary ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_stft(
    graph: *mut c_void,
    x: u64,
    weight: u64,
    stride: usize,
    bins: usize,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        at_least_one(&[("stride", stride)])?;
        // SAFETY: the caller's promise about `out`.
        unsafe { add(graph, "stft", GraphOp::Stft { stride, bins }, &[x, weight], out) }
    })
}

/// `[…, n] -> […, n/2 + 1, 2]`: real and imaginary parts; up to 8192 points.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_rfft(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "rfft", GraphOp::Rfft, &[x], out) })
}

/// `[…, n/2 + 1, 2] -> […, n]`, the inverse of `cactus_graph_rfft`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_irfft(graph: *mut c_void, x: u64, length: usize, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "irfft", GraphOp::Irfft(length), &[x], out) })
}

/// Triangles `[bins, filters]`, FP32. Norm: 0 peaks of 1, 1 equal areas; scale: 0 HTK, 1 Kaldi, 2 Slaney.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_mel_filter_bank(
    graph: *mut c_void,
    bins: usize,
    filters: usize,
    low: f32,
    high: f32,
    rate: usize,
    norm: c_int,
    scale: c_int,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "mel_filter_bank",
            GraphOp::MelFilterBank(MelBank {
                bins,
                mels: filters,
                low,
                high,
                rate,
                norm,
                scale,
            }),
            &[],
            out,
        )
    })
}

/// `(wave [n], filters [fft/2 + 1, m]) -> [m, frames]`, FP32, as `transformers.audio_utils.spectrogram` with a Hann
/// window. Padding: 0 mirrored, 1 zeros; logarithm: 0 none, 1 natural, 2 decimal. Dither is not in this build.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_spectrogram(
    graph: *mut c_void,
    wave: u64,
    filters: u64,
    frame_length: usize,
    hop_length: usize,
    fft_length: usize,
    power: f32,
    center: bool,
    pad_mode: c_int,
    mel_floor: f32,
    log_mode: c_int,
    dither: f32,
    preemphasis: f32,
    remove_dc: bool,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        if dither != 0.0 {
            return Err(Failure::not_in_build("dither in `cactus_graph_spectrogram`"));
        }
        let frames = Frames {
            length: frame_length,
            hop: hop_length,
            transform: fft_length,
            power,
            center,
            pad: pad_mode,
            floor: mel_floor,
            log: log_mode,
            preemphasis,
            remove_mean: remove_dc,
        };
        // SAFETY: the caller's promise about `out`.
        unsafe {
            add(
                graph,
                "spectrogram",
                GraphOp::Spectrogram(frames),
                &[wave, filters],
                out,
            )
        }
    })
}

/// A picture `[height, width, channels]` (INT8 is read as bytes) resized by bilinear interpolation, rescaled, normalized
/// by channel, and cut: `[patches, patch_size^2 * channels]`, FP32.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_image_preprocess(
    graph: *mut c_void,
    pixels: u64,
    source_width: c_int,
    source_height: c_int,
    target_width: c_int,
    target_height: c_int,
    patch_size: c_int,
    channels: c_int,
    rescale: f32,
    mean: *const f32,
    deviation: *const f32,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        let size = |n: c_int, name: &str| {
            usize::try_from(n).map_err(|_| Failure::argument(format!("`{name}`: {n} is negative")))
        };
        let channels = size(channels, "channels")?;
        if channels > 4 {
            return Err(Failure::argument(format!(
                "`channels`: expected 1 to 4, found {channels}"
            )));
        }
        // SAFETY: the caller's promise about `mean` and `deviation`.
        let (mean, deviation) = unsafe {
            (
                values(mean, channels, "mean")?,
                values(deviation, channels, "deviation")?,
            )
        };
        let patches = Patches {
            source: [
                size(source_height, "source_height")?,
                size(source_width, "source_width")?,
            ],
            target: [
                size(target_height, "target_height")?,
                size(target_width, "target_width")?,
            ],
            patch: size(patch_size, "patch_size")?,
            channels,
            rescale,
            mean: mean.to_vec(),
            deviation: deviation.to_vec(),
        };
        // SAFETY: the caller's promise about `out`.
        unsafe {
            add(
                graph,
                "image_preprocess",
                GraphOp::ImagePreprocess(patches),
                &[pixels],
                out,
            )
        }
    })
}

/// A square of embeddings `[n * n, d]` as `[height * width, d]`, the corners staying.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_bilinear_interpolation(
    graph: *mut c_void,
    x: u64,
    height: usize,
    width: usize,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "bilinear_interpolation",
            GraphOp::Bilinear { height, width },
            &[x],
            out,
        )
    })
}
