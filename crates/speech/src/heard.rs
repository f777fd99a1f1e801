//! A recording as a model hears it: of a long one, no more is kept than is heard at once.
//!
//! Whisper's features are normalized by the largest of the whole recording, and a progress needs its length. So it is read once for
//! these; a short one is kept meanwhile. A long one is read again, as far as it is heard, and what lies behind is let go. The
//! features are those of the whole recording, to the bit.

use crate::pauses::{End, longest, piece};
use crate::{Error, Result};
use cactus_audio::features::{Features, Spread, Stream, Tail};
use cactus_audio::{Frontend, Sound};
use cactus_bundle::{Samples, Window};
use cactus_engine::CancelToken;
use cactus_tensor::Tensor;
use std::ops::Range;

/// What is heard at once, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    /// What text is wanted of.
    pub(crate) frames: usize,
    /// Frames before and behind it that are heard with it.
    pub(crate) before: usize,
    pub(crate) behind: usize,
    /// Whether somebody speaks at its end, so that text goes on behind it.
    pub(crate) goes_on: bool,
    /// Samples further out on each side that the features of the first and the last frames are made of.
    edges: [usize; 2],
}

impl Piece {
    /// So many frames alone.
    pub(crate) fn alone(frames: usize) -> Piece {
        Piece {
            frames,
            ..Piece::default()
        }
    }

    /// So many frames of a text that goes on behind them, or does not.
    pub(crate) fn within(frames: usize, goes_on: bool) -> Piece {
        Piece {
            goes_on,
            ..Piece::alone(frames)
        }
    }
}

/// How pieces overlap that end where somebody speaks, in samples, after NVIDIA NeMo's buffered inference: 10 seconds before, 10 new ones, 5
/// behind. Positions of the encoder divide each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overlap {
    pub(crate) before: usize,
    pub(crate) new: usize,
    pub(crate) behind: usize,
    /// Samples of a position.
    pub(crate) position: usize,
}

impl Overlap {
    /// For a model that takes `about` and makes a position of so many samples; `None` where it takes too few.
    pub(crate) fn new(about: &Samples, position: usize) -> Option<Overlap> {
        let all = (OVERLAP_S * about.sample_rate_hz as usize).min(about.most_samples as usize);
        Overlap::of(all, position)
    }

    /// The same where no more samples are heard at once.
    pub(crate) fn within(self, samples: usize) -> Option<Overlap> {
        Overlap::of(samples.min(self.before + self.new + self.behind), self.position)
    }

    fn of(samples: usize, position: usize) -> Option<Overlap> {
        let whole = |samples: usize| samples / position * position;
        let (long, short) = (whole(samples / 5 * 2), whole(samples / 5));
        (short > 0).then_some(Overlap {
            before: long,
            new: long,
            behind: short,
            position,
        })
    }
}

/// Seconds that are heard at once of pieces that overlap.
const OVERLAP_S: usize = 25;

/// A recording on its way through a model. Its unit of time is a frame of the [`crate::features::Ear`], and it is heard forwards.
pub(crate) struct Heard<'a> {
    sound: &'a mut dyn Sound,
    cancel: &'a CancelToken,
    /// What is kept, from sample `first` on.
    samples: Vec<f32>,
    first: usize,
    view: View,
    /// Where the sound begins that has gone on to where it is now without a pause.
    begun: Option<usize>,
    /// Samples of the recording.
    total: usize,
    /// Samples of this reading so far, and whether there are more.
    taken: usize,
    more: bool,
    /// Where bands are normalized over the whole recording.
    levels: Option<Levels>,
}

/// Levels of the bands of a recording, from its first reading.
struct Levels {
    stream: Stream,
    frames: Vec<f32>,
    spread: Spread,
}

/// What is heard.
pub(crate) enum View {
    /// Windows of a spectrogram.
    Mel(Box<Mel>),
    /// Pieces of the samples: as they are, or as a spectrogram of each.
    Samples(Samples, Option<Frontend>, Option<Overlap>),
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
    /// Reads all of `sound`, and keeps it where it has no more than `most_kept` samples. With `levelled` it is known then how that front end
    /// normalizes all of it ([`Heard::spread`]).
    ///
    /// # Errors
    /// Samples that are no numbers or cannot be read; after `cancel`.
    pub(crate) fn new(
        sound: &'a mut dyn Sound,
        view: View,
        levelled: Option<&Frontend>,
        most_kept: usize,
        cancel: &'a CancelToken,
    ) -> Result<Heard<'a>> {
        let mut heard = Heard {
            sound,
            cancel,
            samples: Vec::new(),
            first: 0,
            view,
            begun: None,
            total: 0,
            taken: 0,
            more: true,
            levels: levelled.map(|frontend| Levels {
                stream: frontend.stream(),
                frames: Vec::new(),
                spread: Spread::new(frontend.bins()),
            }),
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
        if let Some(Levels { stream, frames, spread }) = &mut heard.levels {
            frames.clear();
            stream.finish(frames);
            spread.add(frames);
            *frames = Vec::new();
        }
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
        if let (Some(levels), 0) = (&mut self.levels, self.total) {
            levels.frames.clear();
            levels.stream.push(new, &mut levels.frames);
            levels.spread.add(&levels.frames);
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

    /// How the bands of all of it are spread; `None` where nobody wanted to know.
    pub(crate) fn spread(&self) -> Option<&Spread> {
        self.levels.as_ref().map(|levels| &levels.spread)
    }

    /// Goes on to `frames`, of which those before are gone, and gives their samples.
    ///
    /// # Errors
    /// Those of reading; after a cancellation.
    pub(crate) fn next(&mut self, frames: Range<usize>) -> Result<&[f32]> {
        self.keep_from(frames.start);
        while self.more && self.first + self.samples.len() < frames.end * self.hop() {
            self.part()?;
            self.keep_from(frames.start);
        }
        Ok(self.samples(frames))
    }

    /// Samples of the recording.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Frames with sound.
    pub(crate) fn frames(&self) -> usize {
        self.total / self.hop()
    }

    /// Goes on to frame `at`, which is where the last piece ended or before, and says what is heard from there on at once. `until` is where a
    /// piece of sound ends in any case. Frames before that are gone.
    ///
    /// # Errors
    /// Those of reading; after a cancellation.
    pub(crate) fn advance(&mut self, at: usize, until: usize) -> Result<Piece> {
        let frames = self.frames();
        match self.view {
            View::Mel(ref mel) => {
                let end = frames.min(at.saturating_add(mel.window.frames as usize));
                self.keep_from(at);
                while self.more && matches!(&self.view, View::Mel(mel) if mel.end() < end) {
                    self.part()?;
                    self.keep_from(at);
                }
                Ok(Piece::alone(end - at))
            }
            View::Samples(about, ref frontend, overlap) => {
                let edge = frontend.as_ref().map_or(0, Frontend::edge_samples);
                let rate = about.sample_rate_hz;
                let longest = longest(rate, about.most_samples as usize);
                let begun = self.begun.unwrap_or(at);
                let before = overlap.map_or(0, |overlap| overlap.before.min(at - begun));
                let left = edge.min(at - before - begun);
                // More than that does not change where the piece ends.
                let end = frames.min(at + 2 * longest);
                while self.more && self.first + self.samples.len() < end {
                    self.keep_from(at - before - left);
                    self.part()?;
                }
                self.keep_from(at - before - left);
                let until = end.min(until.max(at));
                let sound = self.samples(at..until);
                let (found, behind) = match overlap {
                    Some(overlap) => {
                        // With what is heard before it, the last piece of some that overlap is no longer than the others.
                        let longest = if begun < at {
                            overlap.new + overlap.behind
                        } else {
                            longest
                        };
                        match piece(sound, rate, longest) {
                            End {
                                is_quiet: true,
                                samples,
                            } => (samples, None),
                            _ => (overlap.new, Some(overlap.behind)),
                        }
                    }
                    None => (piece(sound, rate, longest).samples, None),
                };
                self.begun = behind.map(|_| begun);
                let right = behind.map_or(0, |behind| edge.min(until - at - found - behind));
                Ok(Piece {
                    frames: found,
                    before,
                    behind: behind.unwrap_or(0),
                    goes_on: behind.is_some(),
                    edges: [left, right],
                })
            }
        }
    }

    /// The samples of some frames, none of which is gone.
    pub(crate) fn samples(&self, frames: Range<usize>) -> &[f32] {
        let place = |frame: usize| (frame * self.hop()).saturating_sub(self.first).min(self.samples.len());
        &self.samples[place(frames.start)..place(frames.end)]
    }

    /// What the encoder reads of a piece from frame `at` on.
    pub(crate) fn input(&self, at: usize, piece: &Piece) -> Result<Tensor> {
        self.input_of(at, piece, usize::MAX)
    }

    /// As [`Heard::input`], of a window that is cut to `most` frames.
    pub(crate) fn input_of(&self, at: usize, piece: &Piece, most: usize) -> Result<Tensor> {
        let (begin, end) = (at - piece.before, at + piece.frames + piece.behind);
        let (shape, values) = match &self.view {
            View::Mel(mel) => {
                let frames_each = most.min(mel.window.frames as usize);
                let values = mel.kept.channels_first(begin - mel.first, frames_each);
                (vec![1, mel.kept.bins, frames_each], values)
            }
            View::Samples(about, frontend, _) => {
                let [left, right] = piece.edges;
                let mut values = self.samples(begin - left..end + right).to_vec();
                values.resize(values.len().max(about.least_samples as usize), 0.0);
                match frontend {
                    None => (vec![1, values.len()], values),
                    Some(frontend) => {
                        let features = frontend.extract_within(&values, piece.edges)?;
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
            emphasis: cactus_audio::features::Emphasis::Recording,
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
        position_samples: None,
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
            let mut heard = Heard::new(&mut sound, mel(&frontend), None, most_kept, &cancel).unwrap();
            prop_assert_eq!((heard.total(), heard.frames()), (length, whole.valid_frames));
            let (mut at, mut steps) = (0, steps.iter().cycle());
            while at < heard.frames() {
                let piece = heard.advance(at, 7).unwrap();
                let frames = piece.frames;
                prop_assert_eq!(frames, 100.min(heard.frames() - at));
                prop_assert_eq!(heard.samples(at..at + frames), &samples[at * 50..(at + frames) * 50]);
                let input = heard.input(at, &piece).unwrap();
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
            let mut heard = Heard::new(&mut sound, View::Samples(PIECES, None, None), None, most_kept, &cancel).unwrap();
            let mut at = 0;
            while at < heard.frames() {
                let until = cuts.iter().copied().find(|&cut| cut > at).unwrap_or(length);
                let expected = piece(&samples[at..until.min(length)], 100, longest(100, 3000)).samples;
                let found = heard.advance(at, until).unwrap();
                prop_assert_eq!(found, Piece::alone(expected));
                let mut values = samples[at..at + expected].to_vec();
                values.resize(expected.max(900), 0.0);
                let expected_input = Tensor::from_f32(vec![1, values.len()], values).unwrap();
                prop_assert_eq!(heard.input(at, &found).unwrap(), expected_input);
                at += expected;
            }
            prop_assert_eq!(at, length);
        }
    }

    #[test]
    fn pieces_without_a_pause_overlap_and_see_no_edge_within_the_sound() {
        let about = Samples {
            sample_rate_hz: 1000,
            most_samples: 30_000,
            ..PIECES
        };
        let overlap = Overlap::new(&about, 400);
        assert_eq!(
            overlap.map(|o| (o.before, o.new, o.behind)),
            Some((10_000, 10_000, 4800))
        );
        assert_eq!(
            overlap.and_then(|o| o.within(7000)).map(|o| (o.before, o.behind)),
            Some((2800, 1200))
        );
        assert_eq!(overlap.and_then(|o| o.within(1000)), None);
        // Steady noise, with one pause after 41 s.
        let noise = |i: u32| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0;
        let mut samples: Vec<f32> = (0..64_000).map(noise).collect();
        samples[41_000..41_400].fill(0.0);
        let frontend = frontend(Normalization::PerBin { epsilon: 1e-5 });
        let (mut stream, mut raw) = (frontend.stream(), Vec::new());
        stream.push(&samples, &mut raw);
        let tail = stream.finish(&mut raw);
        let expected = [
            // At, frames, before, behind.
            (0, 10_000, 0, 4800),
            (10_000, 10_000, 10_000, 4800),
            (20_000, 10_000, 10_000, 4800),
            // The pause, in its middle and on.
            (30_000, 11_250, 10_000, 0),
            (41_250, 10_000, 0, 4800),
            (51_250, 12_750, 10_000, 0),
        ];
        for sizes in [&[64_000][..], &[999, 5000], &[1]] {
            let mut sound = Kept(&samples, 0, sizes.iter().copied().cycle());
            let cancel = CancelToken::new();
            let view = View::Samples(about, Some(frontend.clone()), overlap);
            let mut heard = Heard::new(&mut sound, view, None, 1000, &cancel).unwrap();
            let (mut at, mut found) = (0, Vec::new());
            while at < heard.frames() {
                let piece = heard.advance(at, usize::MAX).unwrap();
                let input = heard.input(at, &piece).unwrap();
                let (begin, end) = (at - piece.before, at + piece.frames + piece.behind);
                // A pause is an edge.
                if begin % 50 == 0 && begin < 41_250 && end != 41_250 {
                    let mut frames = raw[begin / 50 * 4..end / 50 * 4].to_vec();
                    frontend.normalize(&mut frames, &tail);
                    assert_eq!(input.as_f32().unwrap(), frames, "at {at}");
                }
                assert_eq!(piece.goes_on, piece.behind > 0);
                found.push((at, piece.frames, piece.before, piece.behind));
                at += piece.frames;
            }
            assert_eq!(found, expected);
        }
    }

    /// Samples, how many were read, and the sizes of parts.
    struct Kept<'a, I>(&'a [f32], usize, I);

    impl<I: Iterator<Item = usize>> Sound for Kept<'_, I> {
        fn rewind(&mut self) -> std::result::Result<(), cactus_audio::Error> {
            self.1 = 0;
            Ok(())
        }

        fn read(&mut self, out: &mut Vec<f32>) -> std::result::Result<bool, cactus_audio::Error> {
            let to = self.0.len().min(self.1 + self.2.next().unwrap_or(1));
            out.extend_from_slice(&self.0[self.1..to]);
            self.1 = to;
            Ok(to < self.0.len())
        }
    }

    #[test]
    fn of_ten_hours_no_more_is_kept_than_is_heard_at_once() {
        let cancel = CancelToken::new();
        for view in [mel(&frontend(peak())), View::Samples(PIECES, None, None)] {
            let mut sound = Made::new(36_000_000, &[4096]);
            let mut heard = Heard::new(&mut sound, view, None, 60_000, &cancel).unwrap();
            let (mut at, mut most) = (0, heard.held());
            while at < heard.frames() {
                at += heard.advance(at, usize::MAX).unwrap().frames;
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
        let mut heard = Heard::new(&mut sound, mel(&frontend(peak())), None, 60_000, &cancel).unwrap();
        assert_eq!(heard.advance(1000, 0).unwrap().frames, 100);
        assert_eq!(sound.readings, 1);
    }

    #[test]
    fn a_recording_that_shrinks_is_an_error() {
        let cancel = CancelToken::new();
        let mut sound = Made::new(20_000, &[4096]);
        sound.lost = 10;
        let mut heard = Heard::new(&mut sound, mel(&frontend(peak())), None, 1000, &cancel).unwrap();
        assert_eq!(heard.advance(0, 0).unwrap().frames, 100);
        let error = heard.advance(399, 0).unwrap_err().to_string();
        assert!(error.contains("20000") && error.contains("19990"), "{error}");
        cancel.cancel();
        let mut sound = Made::new(20_000, &[4096]);
        let stopped = Heard::new(&mut sound, mel(&frontend(peak())), None, 1000, &cancel);
        assert!(matches!(stopped, Err(Error::Cancelled)));
    }
}
