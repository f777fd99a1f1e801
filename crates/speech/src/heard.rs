//! A recording as a model hears it: of a long one, no more is kept than is heard at once.
//!
//! Whisper's features are normalized by the largest of the whole recording, and a progress needs its length. So it is read once for
//! these; a short one is kept meanwhile. A long one is read again, as far as it is heard, and what lies behind is let go. The
//! features are those of the whole recording, to the bit.

use crate::pauses::{longest, piece};
use crate::{Error, Result};
use cactus_audio::features::{Features, Stream, Tail};
use cactus_audio::{Frontend, Sound};
use cactus_bundle::{Samples, Window};
use cactus_engine::CancelToken;
use cactus_tensor::Tensor;
use std::ops::Range;

/// A recording on its way through a model. Its unit of time is a frame of the [`crate::features::Ear`], and it is heard forwards.
pub(crate) struct Heard<'a> {
    sound: &'a mut dyn Sound,
    cancel: &'a CancelToken,
    /// What is kept, from sample `first` on.
    samples: Vec<f32>,
    first: usize,
    view: View,
    /// Samples of the recording.
    total: usize,
    /// Samples of this reading so far, and whether there are more.
    taken: usize,
    more: bool,
}

/// What is heard.
pub(crate) enum View {
    /// Windows of a spectrogram.
    Mel(Box<Mel>),
    /// Pieces of the samples: as they are, or as a spectrogram of each.
    Samples(Samples, Option<Frontend>),
}

/// Frames of a recording.
pub(crate) struct Mel {
    frontend: Frontend,
    window: Window,
    stream: Stream,
    /// What is kept, from frame `first` on.
    kept: Features,
    first: usize,
    /// What the first reading has found.
    tail: Option<Tail>,
}

impl Mel {
    pub(crate) fn new(frontend: &Frontend, window: Window) -> Mel {
        Mel {
            stream: frontend.stream(),
            kept: Features {
                bins: frontend.bins(),
                valid_frames: 0,
                data: Vec::new(),
            },
            frontend: frontend.clone(),
            window,
            first: 0,
            tail: None,
        }
    }

    fn end(&self) -> usize {
        self.first + self.kept.frames()
    }

    /// Takes samples, the last ones where there are no `more`.
    fn push(&mut self, samples: &[f32], more: bool) {
        let data = &mut self.kept.data;
        let before = data.len();
        self.stream.push(samples, data);
        let end = (!more).then(|| self.stream.finish(data));
        match (&self.tail, end) {
            (Some(tail), _) => self.frontend.normalize(&mut data[before..], tail),
            (None, Some(tail)) => {
                // All of them, or some that nobody will hear.
                self.frontend.normalize(data, &tail);
                self.tail = Some(tail);
            }
            (None, None) => {}
        }
    }
}

impl<'a> Heard<'a> {
    /// Reads all of `sound`, and keeps it where it has no more than `most_kept` samples.
    ///
    /// # Errors
    /// Samples that are no numbers or cannot be read; after `cancel`.
    pub(crate) fn new(
        sound: &'a mut dyn Sound,
        view: View,
        most_kept: usize,
        cancel: &'a CancelToken,
    ) -> Result<Heard<'a>> {
        let mut heard = Heard {
            sound,
            cancel,
            samples: Vec::new(),
            first: 0,
            view,
            total: 0,
            taken: 0,
            more: true,
        };
        heard.sound.rewind()?;
        let mut is_kept = true;
        while heard.more {
            heard.part()?;
            // Deviations of all frames need all frames.
            is_kept &=
                heard.taken <= most_kept || matches!(&heard.view, View::Mel(mel) if !mel.frontend.normalizes_parts());
            if !is_kept {
                heard.keep_from(usize::MAX);
            }
        }
        heard.total = heard.taken;
        if !is_kept {
            heard.sound.rewind()?;
            // The memory of what was kept, until it became too much, is given back.
            (heard.samples, heard.first, heard.taken, heard.more) = (Vec::new(), 0, 0, true);
            if let View::Mel(mel) = &mut heard.view {
                (mel.kept.data, mel.first) = (Vec::new(), 0);
            }
        }
        Ok(heard)
    }

    /// Reads the next part.
    fn part(&mut self) -> Result<()> {
        if self.cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let before = self.samples.len();
        self.more = self.sound.read(&mut self.samples)?;
        let new = &self.samples[before..];
        if let Some(at) = new.iter().position(|x| !x.is_finite()) {
            return Err(Error::Samples(format!(
                "sample {} is {}; samples should be numbers from -1 to 1",
                self.taken + at,
                new[at]
            )));
        }
        self.taken += new.len();
        if let View::Mel(mel) = &mut self.view {
            mel.push(new, self.more);
        }
        if !self.more && self.taken < self.total {
            return Err(Error::Samples(format!(
                "the recording had {} samples when it was first read, and has {} now; it should stay as it is while it is transcribed",
                self.total, self.taken
            )));
        }
        Ok(())
    }

    /// Lets go what lies before frame `at`.
    fn keep_from(&mut self, at: usize) {
        let sample = at.saturating_mul(self.hop());
        let gone = sample.saturating_sub(self.first).min(self.samples.len());
        self.samples.drain(..gone);
        self.first += gone;
        if let View::Mel(mel) = &mut self.view {
            let gone = at.saturating_sub(mel.first).min(mel.kept.frames());
            mel.kept.data.drain(..gone * mel.kept.bins);
            mel.first += gone;
        }
    }

    /// Samples of a frame.
    fn hop(&self) -> usize {
        match &self.view {
            View::Mel(mel) => mel.frontend.recipe().hop_samples,
            View::Samples(..) => 1,
        }
    }

    /// Samples of the recording.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Frames with sound.
    pub(crate) fn frames(&self) -> usize {
        self.total / self.hop()
    }

    /// Goes on to frame `at`, and says how many frames from there on are heard at once. `until` is where a piece of sound ends in any
    /// case. Frames before `at` are gone.
    ///
    /// # Errors
    /// Those of reading; after a cancellation.
    pub(crate) fn advance(&mut self, at: usize, until: usize) -> Result<usize> {
        self.keep_from(at);
        let frames = self.frames();
        match self.view {
            View::Mel(ref mel) => {
                let end = frames.min(at.saturating_add(mel.window.frames as usize));
                while self.more && matches!(&self.view, View::Mel(mel) if mel.end() < end) {
                    self.part()?;
                    self.keep_from(at);
                }
                Ok(end - at)
            }
            View::Samples(about, _) => {
                let most = about.most_samples as usize;
                // More than that does not change where the piece ends.
                let end = frames.min(at + 2 * longest(about.sample_rate_hz, most));
                while self.more && self.first + self.samples.len() < end {
                    self.part()?;
                    self.keep_from(at);
                }
                let sound = self.samples(at..end.min(until.max(at)));
                Ok(piece(sound, about.sample_rate_hz, most))
            }
        }
    }

    /// The samples of some frames from the one on that was gone to.
    pub(crate) fn samples(&self, frames: Range<usize>) -> &[f32] {
        let place = |frame: usize| (frame * self.hop()).saturating_sub(self.first).min(self.samples.len());
        &self.samples[place(frames.start)..place(frames.end)]
    }

    /// What the encoder reads of some frames from the one on that was gone to.
    pub(crate) fn input(&self, frames: Range<usize>) -> Result<Tensor> {
        self.input_of(frames, usize::MAX)
    }

    /// As [`Heard::input`], of a window that is cut to `most` frames.
    pub(crate) fn input_of(&self, frames: Range<usize>, most: usize) -> Result<Tensor> {
        let (shape, values) = match &self.view {
            View::Mel(mel) => {
                let frames_each = most.min(mel.window.frames as usize);
                let values = mel.kept.channels_first(frames.start - mel.first, frames_each);
                (vec![1, mel.kept.bins, frames_each], values)
            }
            View::Samples(about, frontend) => {
                let mut values = self.samples(frames).to_vec();
                values.resize(values.len().max(about.least_samples as usize), 0.0);
                match frontend {
                    None => (vec![1, values.len()], values),
                    Some(frontend) => {
                        let features = frontend.extract(&values)?;
                        (vec![1, features.frames(), features.bins], features.data)
                    }
                }
            }
        };
        Tensor::from_f32(shape, values).map_err(|e| Error::Model(e.to_string()))
    }

    /// Numbers that are kept.
    #[cfg(test)]
    fn held(&self) -> usize {
        let frames = match &self.view {
            View::Mel(mel) => mel.kept.data.capacity(),
            View::Samples(..) => 0,
        };
        self.samples.capacity() + frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cactus_audio::Recipe;
    use cactus_audio::features::{
        Edge, Filterbank, Log, MelNorm, MelScale, Normalization, Scope, Spectrum, WindowShape,
    };
    use proptest::prelude::*;

    /// Sound that is made when it is read, in parts of these sizes by turns.
    struct Made {
        length: usize,
        sizes: Vec<usize>,
        at: usize,
        parts: usize,
        readings: usize,
        /// Samples that are left out when it is read again.
        lost: usize,
    }

    impl Made {
        fn new(length: usize, sizes: &[usize]) -> Made {
            Made {
                length,
                sizes: sizes.to_vec(),
                at: 0,
                parts: 0,
                readings: 0,
                lost: 0,
            }
        }

        /// Noise that grows and fades, with pauses.
        fn sample(i: usize) -> f32 {
            let noise = ((i as u32).wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0;
            match i / 700 % 5 {
                4 => 1e-4 * noise,
                loud => noise * loud as f32 / 4.0,
            }
        }

        fn all(&self) -> Vec<f32> {
            (0..self.length).map(Made::sample).collect()
        }
    }

    impl Sound for Made {
        fn rewind(&mut self) -> std::result::Result<(), cactus_audio::Error> {
            self.at = 0;
            if self.readings > 0 {
                self.length -= self.lost;
            }
            self.readings += 1;
            Ok(())
        }

        fn read(&mut self, out: &mut Vec<f32>) -> std::result::Result<bool, cactus_audio::Error> {
            let size = self.sizes[self.parts % self.sizes.len()];
            self.parts += 1;
            let to = self.length.min(self.at + size);
            out.extend((self.at..to).map(Made::sample));
            self.at = to;
            Ok(to < self.length)
        }
    }

    const WINDOW: Window = Window {
        samples: 5000,
        frames: 100,
        positions: 50,
    };

    fn frontend(normalization: Normalization) -> Frontend {
        let recipe = Recipe {
            sample_rate_hz: 1000,
            preemphasis: 0.5,
            left_edge: Edge::Reflect,
            right_edge: Edge::Zeros,
            window: WindowShape::HannPeriodic,
            window_samples: 80,
            fft_samples: 80,
            hop_samples: 50,
            spectrum: Spectrum::Power,
            filters: Filterbank {
                bins: 4,
                low_hz: 0.0,
                high_hz: 500.0,
                scale: MelScale::Slaney,
                norm: MelNorm::Slaney,
            },
            log: Log::Log10Floor { floor: 1e-10 },
            normalization,
            padding_frames: 0,
        };
        Frontend::new(recipe).unwrap()
    }

    fn peak() -> Normalization {
        Normalization::Peak {
            range: 8.0,
            add: 4.0,
            divide: 4.0,
            scope: Scope::Input,
        }
    }

    fn mel(frontend: &Frontend) -> View {
        View::Mel(Box::new(Mel::new(frontend, WINDOW)))
    }

    const PIECES: Samples = Samples {
        sample_rate_hz: 100,
        least_samples: 900,
        most_samples: 3000,
    };

    proptest! {
        #[test]
        fn windows_have_the_bits_of_the_whole_recording(
            length in 0usize..30_000,
            sizes in prop::collection::vec(0usize..6000, 1..4),
            most_kept in prop::sample::select(vec![0, 9000, 100_000]),
            steps in prop::collection::vec(1usize..=100, 1..4),
            each_bin in any::<bool>(),
        ) {
            let sizes = [&sizes[..], &[1]].concat();
            let mut sound = Made::new(length, &sizes);
            let samples = sound.all();
            let frontend = frontend(if each_bin { Normalization::PerBin { epsilon: 1e-5 } } else { peak() });
            let whole = frontend.extract(&samples).unwrap();
            let cancel = CancelToken::new();
            let mut heard = Heard::new(&mut sound, mel(&frontend), most_kept, &cancel).unwrap();
            prop_assert_eq!((heard.total(), heard.frames()), (length, whole.valid_frames));
            let (mut at, mut steps) = (0, steps.iter().cycle());
            while at < heard.frames() {
                let frames = heard.advance(at, 7).unwrap();
                prop_assert_eq!(frames, 100.min(heard.frames() - at));
                prop_assert_eq!(heard.samples(at..at + frames), &samples[at * 50..(at + frames) * 50]);
                let input = heard.input(at..at + frames).unwrap();
                let expected = Tensor::from_f32(vec![1, 4, 100], whole.channels_first(at, 100)).unwrap();
                prop_assert_eq!(input, expected);
                at += steps.next().unwrap().min(&frames);
            }
        }

        #[test]
        fn pieces_are_those_of_the_whole_recording(
            length in 0usize..30_000,
            sizes in prop::collection::vec(0usize..6000, 1..4),
            most_kept in prop::sample::select(vec![0, 100_000]),
            mut cuts in prop::collection::vec(1usize..30_000, 0..4),
        ) {
            let sizes = [&sizes[..], &[1]].concat();
            let mut sound = Made::new(length, &sizes);
            let samples = sound.all();
            cuts.sort_unstable();
            let cancel = CancelToken::new();
            let mut heard = Heard::new(&mut sound, View::Samples(PIECES, None), most_kept, &cancel).unwrap();
            let mut at = 0;
            while at < heard.frames() {
                let until = cuts.iter().copied().find(|&cut| cut > at).unwrap_or(length);
                let expected = piece(&samples[at..until.min(length)], 100, 3000);
                prop_assert_eq!(heard.advance(at, until).unwrap(), expected);
                let mut values = samples[at..at + expected].to_vec();
                values.resize(expected.max(900), 0.0);
                let expected_input = Tensor::from_f32(vec![1, values.len()], values).unwrap();
                prop_assert_eq!(heard.input(at..at + expected).unwrap(), expected_input);
                at += expected;
            }
            prop_assert_eq!(at, length);
        }
    }

    #[test]
    fn of_ten_hours_no_more_is_kept_than_is_heard_at_once() {
        let cancel = CancelToken::new();
        for view in [mel(&frontend(peak())), View::Samples(PIECES, None)] {
            let mut sound = Made::new(36_000_000, &[4096]);
            let mut heard = Heard::new(&mut sound, view, 60_000, &cancel).unwrap();
            let (mut at, mut most) = (0, heard.held());
            while at < heard.frames() {
                at += heard.advance(at, usize::MAX).unwrap();
                most = most.max(heard.held());
            }
            // A minute and a part of it, with room to grow.
            assert!(most < 160_000, "{most}");
            assert_eq!(sound.readings, 2);
        }
    }

    #[test]
    fn short_recordings_are_read_once() {
        let cancel = CancelToken::new();
        let mut sound = Made::new(60_000, &[4096]);
        let mut heard = Heard::new(&mut sound, mel(&frontend(peak())), 60_000, &cancel).unwrap();
        assert_eq!(heard.advance(1000, 0).unwrap(), 100);
        assert_eq!(sound.readings, 1);
    }

    #[test]
    fn a_recording_that_shrinks_is_an_error() {
        let cancel = CancelToken::new();
        let mut sound = Made::new(20_000, &[4096]);
        sound.lost = 10;
        let mut heard = Heard::new(&mut sound, mel(&frontend(peak())), 1000, &cancel).unwrap();
        assert_eq!(heard.advance(0, 0).unwrap(), 100);
        let error = heard.advance(399, 0).unwrap_err().to_string();
        assert!(error.contains("20000") && error.contains("19990"), "{error}");
        cancel.cancel();
        let mut sound = Made::new(20_000, &[4096]);
        let stopped = Heard::new(&mut sound, mel(&frontend(peak())), 1000, &cancel);
        assert!(matches!(stopped, Err(Error::Cancelled)));
    }
}
