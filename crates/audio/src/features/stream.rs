//! Frames out of samples that come in pushes.

use super::Plan;
use super::recipe::{Edge, Emphasis, Log, Normalization, Spectrum};
use crate::fft::Scratch;
use std::sync::Arc;

/// Samples that are taken over at once, so that memory does not grow with a push.
const CHUNK_SAMPLES: usize = 4096;

/// A recording in pushes. After some pushes its own memory does not grow any more.
#[derive(Debug, Clone)]
pub struct Stream {
    plan: Arc<Plan>,
    /// Emphasized samples behind the left edge. The edge itself is put in front when the samples it mirrors are there.
    buffer: Vec<f64>,
    /// Position of `buffer[0]`, counted from the beginning of the left edge.
    start: u64,
    edge_is_there: bool,
    /// The last sample before pre-emphasis.
    previous: f32,
    samples: u64,
    frames: u64,
    peak: f32,
    windowed: Vec<f64>,
    spectrum: Vec<f64>,
    scratch: Scratch,
}

/// What the end of a stream tells about all of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tail {
    /// Samples that were pushed.
    pub samples: u64,
    /// Frames that were written.
    pub frames: u64,
    /// The largest logarithm, also of the frames behind the end that still see samples. `-inf` where there is none.
    pub peak: f32,
}

impl Stream {
    pub(super) fn new(plan: Arc<Plan>) -> Self {
        let mut stream = Self {
            windowed: vec![0.0; plan.recipe.fft_samples],
            spectrum: vec![0.0; plan.fft.bins()],
            buffer: Vec::with_capacity(2 * CHUNK_SAMPLES + 2 * plan.recipe.fft_samples),
            plan,
            start: 0,
            edge_is_there: false,
            previous: 0.0,
            samples: 0,
            frames: 0,
            peak: f32::NEG_INFINITY,
            scratch: Scratch::default(),
        };
        stream.reset();
        stream
    }

    /// Forgets all samples. Memory is kept.
    pub fn reset(&mut self) {
        self.buffer.clear();
        (self.start, self.samples, self.frames) = (0, 0, 0);
        (self.previous, self.peak) = (0.0, f32::NEG_INFINITY);
        self.edge_is_there = false;
    }

    /// Samples on each side of the recording: those that transforms see, or at least those that they see beside a window.
    fn edge(&self) -> usize {
        let recipe = &self.plan.recipe;
        match recipe.is_within() {
            true => self.plan.window_start,
            false => recipe.fft_samples / 2,
        }
    }

    /// Takes `samples` (mono, finite) and appends the frames that are complete to `out`, `[frames, bins]`, as logarithms.
    pub fn push(&mut self, samples: &[f32], out: &mut Vec<f32>) {
        for chunk in samples.chunks(CHUNK_SAMPLES) {
            self.take(chunk);
            if !self.edge_is_there && self.samples > self.edge() as u64 {
                self.put_left_edge();
            }
            if self.edge_is_there {
                // A frame that begins within the recording may still be one too many for it.
                self.frames_until(self.plan.recipe.frames(self.samples), Some(out));
                self.drop_used();
            }
        }
    }

    /// Ends the recording: appends the frames that saw its edge, and is ready for another.
    pub fn finish(&mut self, out: &mut Vec<f32>) -> Tail {
        let plan = self.plan.clone();
        let recipe = &plan.recipe;
        let (hop, edge) = (recipe.hop_samples as u64, recipe.fft_samples as u64 / 2);
        let frames = recipe.frames(self.samples);
        if frames > 0 {
            let sees_the_end =
                matches!(recipe.normalization, Normalization::Peak { .. }) && recipe.right_edge == Edge::Zeros;
            if !self.edge_is_there {
                self.put_left_edge();
            }
            self.put_right_edge();
            self.frames_until(frames, Some(out));
            if sees_the_end {
                // Silence goes on: frames whose window still reaches back to a sample count for the peak.
                let last = (self.samples + edge).div_ceil(hop);
                let end = last * hop + recipe.fft_samples as u64;
                let missing = end.saturating_sub(self.start + self.buffer.len() as u64);
                self.buffer.resize(self.buffer.len() + missing as usize, 0.0);
                self.frames_until(last, None);
            }
        }
        let tail = Tail {
            samples: self.samples,
            frames,
            peak: self.peak,
        };
        self.reset();
        tail
    }

    fn take(&mut self, chunk: &[f32]) {
        let recipe = &self.plan.recipe;
        let emphasis = match recipe.emphasis {
            Emphasis::Recording => recipe.preemphasis,
            Emphasis::Window => 0.0,
        };
        for &sample in chunk {
            self.buffer
                .push(f64::from(sample) - emphasis * f64::from(self.previous));
            self.previous = sample;
        }
        self.samples += chunk.len() as u64;
    }

    /// Puts the left edge before the samples, of which none has been dropped yet.
    fn put_left_edge(&mut self) {
        let edge = self.edge();
        let length = self.buffer.len();
        self.buffer.resize(length + edge, 0.0);
        self.buffer.copy_within(..length, edge);
        for i in 0..edge {
            self.buffer[i] = match self.plan.recipe.left_edge {
                Edge::Zeros | Edge::None => 0.0,
                Edge::Reflect => self
                    .mirrored(edge as i64 - i as i64, length)
                    .map_or(0.0, |at| self.buffer[edge + at]),
            };
        }
        self.edge_is_there = true;
    }

    fn put_right_edge(&mut self) {
        let (edge, end) = (self.edge(), self.buffer.len());
        // What has been dropped is farther back than any mirror image reaches, unless the recording is short and nothing was dropped.
        let kept = (self.samples as usize).min(end);
        for i in 0..edge {
            let value = match self.plan.recipe.right_edge {
                Edge::Zeros | Edge::None => 0.0,
                Edge::Reflect => self
                    .mirrored(kept as i64 + i as i64, kept)
                    .map_or(0.0, |at| self.buffer[end - kept + at]),
            };
            self.buffer.push(value);
        }
    }

    /// The sample that position `i` shows, of a recording of `length` samples. A mirror that looks beyond the other end
    /// sees what is there.
    fn mirrored(&self, i: i64, length: usize) -> Option<usize> {
        let length = length as i64;
        let recipe = &self.plan.recipe;
        let mut i = i;
        loop {
            if i < 0 {
                match recipe.left_edge {
                    Edge::Zeros | Edge::None => return None,
                    Edge::Reflect => i = -i,
                }
            } else if i >= length {
                match recipe.right_edge {
                    Edge::Zeros | Edge::None => return None,
                    Edge::Reflect if length == 1 => i = 0,
                    Edge::Reflect => i = 2 * (length - 1) - i,
                }
            } else {
                return Some(i as usize);
            }
        }
    }

    /// Computes frames up to `end`, as far as the samples reach.
    fn frames_until(&mut self, end: u64, mut out: Option<&mut Vec<f32>>) {
        let plan = &*self.plan;
        let recipe = &plan.recipe;
        while self.frames < end {
            let begin = (self.frames * recipe.hop_samples as u64 - self.start) as usize;
            let Some(samples) = self.buffer.get(begin..begin + recipe.fft_samples) else {
                break;
            };
            let range = plan.window_start..plan.window_start + recipe.window_samples;
            let window = &mut self.windowed[range.clone()];
            let (factor, mut before) = match recipe.emphasis {
                Emphasis::Recording => (0.0, 0.0),
                Emphasis::Window => (recipe.preemphasis, samples[range.start]),
            };
            for ((out, &sample), weight) in window.iter_mut().zip(&samples[range]).zip(&plan.window) {
                *out = (sample - factor * before) * weight;
                before = sample;
            }
            plan.fft.power(&self.windowed, &mut self.scratch, &mut self.spectrum);
            if recipe.spectrum == Spectrum::Magnitude {
                self.spectrum.iter_mut().for_each(|x| *x = x.sqrt());
            }
            for x in plan.bank.apply(&self.spectrum) {
                let value = match recipe.log {
                    Log::Log10Floor { floor } => libm::log10(x.max(floor)),
                    Log::LnGuard { guard } => libm::log(x + guard),
                    Log::LnFloor { floor } => libm::log(x.max(floor)),
                } as f32;
                self.peak = self.peak.max(value);
                if let Some(out) = &mut out {
                    out.push(value);
                }
            }
            self.frames += 1;
        }
    }

    /// Drops what neither a later frame nor a mirror at the end needs.
    fn drop_used(&mut self) {
        let next = (self.frames * self.plan.recipe.hop_samples as u64 - self.start) as usize;
        let mirror = self.buffer.len().saturating_sub(self.edge() + 1);
        let dropped = next.min(mirror);
        self.buffer.drain(..dropped);
        self.start += dropped as u64;
    }
}
