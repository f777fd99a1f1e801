//! From sound to what speech models read: samples out of audio files, their change of rate, and features of them.
//!
//! Purpose: one way from a file or a microphone to the input of an encoder, with the same bits on every machine and for every way
//! of cutting the samples into pushes. [`decode`] reads files block by block, a [`Sound`] can be read more than once, [`Resampler`] changes the rate, [`Frontend`] computes log-mel
//! features as a declarative [`Recipe`] says.
//!
//! All arithmetic is plain `f32` and `f64` in a fixed order, without instructions chosen at run time; logarithms and sines are
//! those of `libm`, compiled from Rust. So features and resampled audio depend neither on the CPU nor on the C library. Nor does what is
//! decoded of WAV, FLAC, ALAC and Opus. The decoders of MP3, AAC and Vorbis make tables with the standard library's powers and sines,
//! whose last bit may differ between operating systems.
//!
//! It may depend on `base`, `tensor` and `simd`, and needs none of them today. It deliberately knows no model family (a
//! recipe comes from a bundle), opens no microphone, starts no thread, finds no speech and writes no audio.
#![forbid(unsafe_code)]

pub mod decode;
mod error;
pub mod features;
pub mod fft;
mod resample;
mod sound;

pub use error::{Error, ErrorKind};
pub use features::{Features, Frontend, Recipe};
pub use resample::{MAX_PHASES, RATES_HZ, Resampler, resample};
pub use sound::{Samples, Sound};
