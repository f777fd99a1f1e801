//! The text of a recording, piece by piece: pieces that end where nobody speaks stand for themselves, and over the end of others text goes on.

use super::utterance::{Stretch, segments, whole_segments};
use super::{Behind, Framewise, Token, Wishes};
use crate::decoder::{Recording, Surroundings};
use crate::heard::Piece;
use crate::{Result, Segment};

/// A segment that has become longer ends with a word, though no sentence does, in seconds.
const MOST_S: f64 = 20.0;

/// A recording on its way.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) wishes: Wishes,
    open: Option<Open>,
}

/// Text that goes on.
#[derive(Debug)]
struct Open {
    /// The frame of the recording at which its positions begin to count.
    first: usize,
    /// What was heard of it.
    stretch: Stretch,
    behind: Behind,
    /// Tokens that are in no segment yet.
    tokens: Vec<Token>,
}

impl Run {
    pub(crate) fn new(wishes: Wishes) -> Run {
        Run { wishes, open: None }
    }

    /// Adds what is said in the piece that was heard last, from frame `at` on.
    pub(crate) fn write(
        &mut self,
        framewise: &mut Framewise,
        surroundings: Surroundings<'_>,
        recording: &mut Recording<'_>,
        at: usize,
        piece: &Piece,
    ) -> Result<()> {
        let ear = surroundings.ear;
        let position = framewise.position_samples / ear.frame_samples();
        let heard = at - piece.before;
        let mut open = self.open.take().unwrap_or_else(|| Open {
            first: heard,
            stretch: framewise.stretch(ear, ear.seconds(heard), 0),
            behind: framewise.behind(piece.before * ear.frame_samples()),
            tokens: Vec::new(),
        });
        // Positions of the piece count from where it was heard.
        let offset = (heard - open.first) / position;
        let until = match piece.goes_on {
            true => (piece.before + piece.frames) / position,
            false => usize::MAX,
        };
        open.behind.position -= offset;
        let (beams, cancel) = (recording.options.beams, recording.cancel);
        let new = framewise.go_on(beams, &self.wishes, &mut open.behind, until, cancel)?;
        open.behind.position += offset;
        open.tokens.extend(new.into_iter().map(|token| Token {
            start: token.start + offset,
            end: token.end + offset,
            ..token
        }));
        open.stretch.length_s = ear.seconds(at + piece.frames + piece.behind - open.first);
        self.open = Some(open);
        match piece.goes_on {
            true => self.add_whole(surroundings, recording),
            false => self.close(surroundings, recording),
        }
        Ok(())
    }

    /// Adds the segments that are whole.
    fn add_whole(&mut self, surroundings: Surroundings<'_>, recording: &mut Recording<'_>) {
        if let Some(open) = &mut self.open {
            let decode = |tokens: &[u32]| surroundings.text(&[], tokens);
            let (segments, used) = whole_segments(&open.tokens, open.stretch, MOST_S, &decode);
            open.tokens.drain(..used);
            add(recording, segments);
        }
    }

    /// Nobody goes on: adds what is left.
    pub(crate) fn close(&mut self, surroundings: Surroundings<'_>, recording: &mut Recording<'_>) {
        if let Some(open) = self.open.take() {
            let decode = |tokens: &[u32]| surroundings.text(&[], tokens);
            add(recording, segments(&open.tokens, open.stretch, &decode));
        }
    }
}

fn add(recording: &mut Recording<'_>, mut segments: Vec<Segment>) {
    if !recording.options.words {
        segments.iter_mut().for_each(|segment| segment.words.clear());
    }
    recording.transcript.add(segments);
}
