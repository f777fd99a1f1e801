//! Log-mel features as a declarative recipe says.
//!
//! A [`Recipe`] is data: a bundle carries it, and no model family is named here. [`Frontend`] checks it and makes the tables once; it is
//! shared freely. [`Frontend::extract`] takes a whole recording. [`Frontend::stream`] takes samples in pushes of any size and gives
//! the frames as soon as their last sample is there, each with the bits that the whole recording gives it; what a recipe normalizes
//! over all frames follows at the end ([`Frontend::normalize`]).
//!
//! Arithmetic is in `f64` up to the logarithm, one sum at a time and in order, so the results have no tier to depend on.

mod mel;
mod recipe;
mod spread;
mod stream;

pub use recipe::{
    Edge, Emphasis, Filterbank, Log, MelNorm, MelScale, Normalization, Recipe, Scope, Spectrum, WindowShape,
};
pub use spread::Spread;
pub use stream::{Stream, Tail};

use crate::Error;
use crate::fft::RealFft;
use mel::Bank;
use std::sync::Arc;

/// Features of a recording or a part of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Features {
    /// Values of a frame.
    pub bins: usize,
    /// Frames that describe the audio. Zeros for [`Recipe::padding_frames`] more follow them.
    pub valid_frames: usize,
    /// `[frames, bins]`, frames in time.
    pub data: Vec<f32>,
}

impl Features {
    /// Frames in [`Features::data`], with those of padding.
    pub fn frames(&self) -> usize {
        self.data.len() / self.bins
    }

    /// `frames` frames from `start`, as `[bins, frames]`: the input of an encoder that convolves over time. What lies behind the
    /// end is `0.0`.
    pub fn channels_first(&self, start: usize, frames: usize) -> Vec<f32> {
        let mut out = vec![0.0; self.bins * frames];
        let rows = self.data.chunks_exact(self.bins).skip(start).take(frames);
        for (frame, row) in rows.enumerate() {
            for (bin, &value) in row.iter().enumerate() {
                out[bin * frames + frame] = value;
            }
        }
        out
    }
}

/// A checked recipe with its tables. Clones share them.
#[derive(Debug, Clone)]
pub struct Frontend {
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct Plan {
    recipe: Recipe,
    window: Vec<f64>,
    /// Where the window begins in a frame of `fft_samples`.
    window_start: usize,
    fft: RealFft,
    bank: Bank,
}

impl Frontend {
    /// Checks `recipe` and makes the window, the transform and the filters.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidRecipe`], naming the field.
    pub fn new(recipe: Recipe) -> Result<Self, Error> {
        recipe.check()?;
        let fft = RealFft::new(recipe.fft_samples)?;
        let bank = Bank::new(&recipe.filters, recipe.sample_rate_hz, recipe.fft_samples);
        Ok(Self {
            plan: Arc::new(Plan {
                window: recipe.window.values(recipe.window_samples),
                window_start: (recipe.fft_samples - recipe.window_samples) / 2,
                fft,
                bank,
                recipe,
            }),
        })
    }

    /// The recipe.
    pub fn recipe(&self) -> &Recipe {
        &self.plan.recipe
    }

    /// Values of a frame.
    pub fn bins(&self) -> usize {
        self.plan.recipe.filters.bins
    }

    /// The frames of `samples` samples, without those of padding.
    pub fn valid_frames(&self, samples: u64) -> u64 {
        let recipe = &self.plan.recipe;
        match recipe.scope_samples() {
            None => recipe.frames(samples),
            Some(scope) => samples.div_ceil(scope as u64) * (scope / recipe.hop_samples) as u64,
        }
    }

    /// A stream of frames from its first sample on. Its frames are logarithms; see [`Frontend::normalize`].
    ///
    /// Where the recipe's scope is a window ([`Scope::Window`]) the stream is one window: its edges are where it begins and ends.
    pub fn stream(&self) -> Stream {
        Stream::new(self.plan.clone())
    }

    /// The features of `samples` (mono, `[-1, 1]`, at the recipe's rate), normalized as the recipe says.
    ///
    /// With [`Scope::Window`] the samples are cut into windows of that length, the last one is filled with silence, and each is
    /// treated as a recording of its own.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidSamples`] where a sample is not finite.
    pub fn extract(&self, samples: &[f32]) -> Result<Features, Error> {
        self.extract_within(samples, [0, 0])
    }

    /// As [`Frontend::extract`], of the samples between so many on the left and on the right. Those are no edge of the recording: frames between see them,
    /// and nothing is normalized by them. They are whole frames; where `[left, right]` are neither nothing nor at least
    /// [`Frontend::edge_samples`], frames see the edges behind them, too.
    ///
    /// # Errors
    /// As [`Frontend::extract`].
    pub fn extract_within(&self, samples: &[f32], edges: [usize; 2]) -> Result<Features, Error> {
        if let Some((index, value)) = samples.iter().enumerate().find(|(_, v)| !v.is_finite()) {
            return Err(Error::new(
                crate::ErrorKind::InvalidSamples,
                format!("sample {index} is {value}; features need finite numbers"),
            ));
        }
        let recipe = &self.plan.recipe;
        let mut stream = self.stream();
        let mut data = Vec::new();
        let mut whole = |parts: &[&[f32]], data: &mut Vec<f32>| {
            let begin = data.len();
            for part in parts {
                stream.push(part, data);
            }
            let tail = stream.finish(data);
            let left = (edges[0] / recipe.hop_samples * self.bins()).min(data.len() - begin);
            data.drain(begin..begin + left);
            let right = edges[1] / recipe.hop_samples * self.bins();
            data.truncate(data.len().saturating_sub(right).max(begin));
            self.normalize(&mut data[begin..], &tail);
        };
        match recipe.scope_samples() {
            None => whole(&[samples], &mut data),
            Some(scope) => {
                let silence = vec![0.0; scope];
                for window in samples.chunks(scope) {
                    whole(&[window, &silence[window.len()..]], &mut data);
                }
            }
        }
        let valid_frames = data.len() / self.bins();
        data.resize(data.len() + recipe.padding_frames * self.bins(), 0.0);
        Ok(Features {
            bins: self.bins(),
            valid_frames,
            data,
        })
    }

    /// Samples beside a frame that it may depend on: all that its transform and the emphasis see, as whole frames.
    pub fn edge_samples(&self) -> usize {
        let recipe = &self.plan.recipe;
        (recipe.fft_samples / 2 + 1).next_multiple_of(recipe.hop_samples)
    }

    /// Whether the frames of a stream may be normalized in parts, once its end is known: each depends on no other but by [`Tail`].
    pub fn normalizes_parts(&self) -> bool {
        !matches!(self.plan.recipe.normalization, Normalization::PerBin { .. })
    }

    /// Normalizes frames `[frames, bins]` of a sound whose bands are spread so. Only a recipe that normalizes each band does; others leave them as
    /// they are.
    pub fn normalize_by(&self, frames: &mut [f32], spread: &Spread) {
        if let Normalization::PerBin { epsilon } = self.plan.recipe.normalization {
            spread.normalize(frames, epsilon);
        }
    }

    /// Normalizes the frames of one stream, `[frames, bins]`, with what its end told: all of them, or parts of them where
    /// [`Frontend::normalizes_parts`].
    ///
    /// # Panics
    /// Where `frames` is not a multiple of [`Frontend::bins`] long.
    pub fn normalize(&self, frames: &mut [f32], tail: &Tail) {
        let bins = self.bins();
        assert!(frames.len().is_multiple_of(bins), "whole frames");
        match self.plan.recipe.normalization {
            Normalization::None => {}
            Normalization::Peak { range, add, divide, .. } => {
                let floor = f64::from(tail.peak) - range;
                for value in frames {
                    *value = ((f64::from(*value).max(floor) + add) / divide) as f32;
                }
            }
            Normalization::PerBin { epsilon } => {
                let count = (frames.len() / bins) as f64;
                let mut mean = vec![0f64; bins];
                for frame in frames.chunks_exact(bins) {
                    for (sum, &value) in mean.iter_mut().zip(frame) {
                        *sum += f64::from(value);
                    }
                }
                mean.iter_mut().for_each(|m| *m /= count);
                let mut deviation = vec![0f64; bins];
                for frame in frames.chunks_exact(bins) {
                    for ((sum, &value), mean) in deviation.iter_mut().zip(frame).zip(&mean) {
                        let difference = f64::from(value) - mean;
                        *sum += difference * difference;
                    }
                }
                // One frame has no deviation: it becomes zeros.
                for d in &mut deviation {
                    *d = (*d / (count - 1.0).max(1.0)).sqrt() + epsilon;
                }
                for frame in frames.chunks_exact_mut(bins) {
                    for ((value, mean), deviation) in frame.iter_mut().zip(&mean).zip(&deviation) {
                        *value = ((f64::from(*value) - mean) / deviation) as f32;
                    }
                }
            }
        }
    }
}
