//! Between a transcript of this machine, the rules of `hybrid`, and what a target hears and says.

use cactus_cloud::codec::transcription::{Timed, Transcription};
use cactus_hybrid::transcript::{Piece, Segment, Word};
use cactus_speech as speech;

/// How far the times of a target may lie behind the end of what it heard: it may pad the sound.
const BEYOND_S: f64 = 1.0;
/// No piece has more words; more of them are rubbish.
const MOST_WORDS: usize = 512;
/// Sound by whose loudness a place to cut is found.
const FRAME_MS: u64 = 20;
/// Languages that are written without spaces.
const UNSPACED: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];

fn ms(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1000.0).round() as u64
}

/// A transcript as the rules take it.
pub(super) fn segments(transcript: &speech::Transcript) -> Vec<Segment> {
    transcript.segments.iter().map(segment).collect()
}

/// A segment as the rules take it.
pub(super) fn segment(segment: &speech::Segment) -> Segment {
    let word = |word: &speech::Word| Word {
        text: word.text.trim().to_owned(),
        start_ms: ms(word.start_s),
        end_ms: ms(word.end_s),
        confidence: Some(word.probability),
    };
    Segment {
        id: segment.id as u64,
        revision: 0,
        start_ms: ms(segment.start_s),
        end_ms: ms(segment.end_s),
        speech: true,
        logprob: Some(libm::log(segment.confidence)),
        words: segment.words.iter().map(word).collect(),
        amended: false,
    }
}

/// Puts a revised segment into the transcript. It has no tokens of the model here any more, and nobody says how sure the words of the
/// target are.
pub(super) fn put(revised: &Segment, transcript: &mut speech::Transcript) {
    let language = transcript.language.clone().unwrap_or_default();
    let space = if UNSPACED.contains(&language.as_str()) { "" } else { " " };
    let Some(segment) = transcript.segments.iter_mut().find(|s| s.id as u64 == revised.id) else {
        return;
    };
    let word = |word: &Word| speech::Word {
        text: format!("{space}{}", word.text),
        start_s: word.start_ms as f64 / 1000.0,
        end_s: word.end_ms as f64 / 1000.0,
        probability: word.confidence.unwrap_or(f64::NAN),
    };
    segment.words = revised.words.iter().map(word).collect();
    segment.text = segment.words.iter().map(|word| word.text.as_str()).collect();
    segment.tokens.clear();
}

/// A piece whose ends lie where it is quietest in its margins.
pub(super) fn in_pauses(piece: &Piece, samples: &[f32], rate_hz: u32) -> Piece {
    let at = |ms: u64| ((ms * u64::from(rate_hz) / 1000) as usize).min(samples.len());
    let loudness = |from: u64| {
        let frame = &samples[at(from)..at(from + FRAME_MS)];
        frame.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>()
    };
    let quietest = |from: u64, to: u64| {
        let frames = (from..to).step_by(FRAME_MS as usize).filter(|ms| ms + FRAME_MS <= to);
        frames.min_by(|a, b| loudness(*a).total_cmp(&loudness(*b)))
    };
    let half = FRAME_MS / 2;
    Piece {
        from_ms: quietest(piece.from_ms, piece.start_ms).map_or(piece.from_ms, |ms| ms + half),
        to_ms: quietest(piece.end_ms, piece.to_ms).map_or(piece.to_ms, |ms| ms + half),
        ..piece.clone()
    }
}

/// A piece as a file of WAV: 16 bits, mono.
pub(super) fn wav(piece: &Piece, samples: &[f32], rate_hz: u32) -> Vec<u8> {
    let at = |ms: u64| ((ms * u64::from(rate_hz) / 1000) as usize).min(samples.len());
    let samples = &samples[at(piece.from_ms)..at(piece.to_ms)];
    let bytes = 2 * samples.len() as u32;
    let mut file = Vec::with_capacity(44 + samples.len() * 2);
    let mut put = |bytes: &[u8]| file.extend_from_slice(bytes);
    put(b"RIFF");
    put(&(36 + bytes).to_le_bytes());
    put(b"WAVEfmt ");
    for (value, size) in [(16, 4), (1, 2), (1, 2), (rate_hz, 4), (2 * rate_hz, 4), (2, 2), (16, 2)] {
        put(&value.to_le_bytes()[..size]);
    }
    put(b"data");
    put(&bytes.to_le_bytes());
    for sample in samples {
        let sample = (f64::from(*sample) * 32_768.0).round().clamp(-32_768.0, 32_767.0);
        put(&(sample as i16).to_le_bytes());
    }
    file
}

/// The words of an answer, with times of the recording; all 0 where the target gives none.
///
/// # Errors
/// Why it cannot be an answer to this piece.
pub(super) fn words(answer: &Transcription, piece: &Piece) -> Result<Vec<Word>, &'static str> {
    let length_s = (piece.to_ms - piece.from_ms) as f64 / 1000.0;
    let ordered = |timed: &[Timed]| {
        timed
            .iter()
            .all(|t| 0.0 <= t.start_s && t.start_s <= t.end_s && t.end_s <= length_s + BEYOND_S)
    };
    if !ordered(&answer.words) || !ordered(&answer.segments) {
        return Err("its times lie outside of what it was given to hear");
    }
    let spelled: Vec<&str> = answer.text.split_whitespace().collect();
    if spelled.len().max(answer.words.len()) > MOST_WORDS {
        return Err("it has more words than anybody can say in that time");
    }
    let word = |text: &str, start_s: f64, end_s: f64| Word {
        text: text.trim().to_owned(),
        start_ms: (piece.from_ms + ms(start_s)).min(piece.to_ms),
        end_ms: (piece.from_ms + ms(end_s)).min(piece.to_ms),
        confidence: None,
    };
    let plain = |text: &str| -> String {
        let letters = text.chars().filter(|c| c.is_alphanumeric());
        letters.flat_map(char::to_lowercase).collect()
    };
    if !answer.words.is_empty() {
        // Words may come without the punctuation of the text.
        let same = spelled.len() == answer.words.len();
        let same = same
            && spelled
                .iter()
                .zip(&answer.words)
                .all(|(a, b)| plain(a) == plain(&b.text));
        let texts = answer.words.iter().enumerate();
        let texts = texts.map(|(i, w)| word(if same { spelled[i] } else { &w.text }, w.start_s, w.end_s));
        return Ok(texts.filter(|word| !word.text.is_empty()).collect());
    }
    if !answer.segments.is_empty() {
        return Ok(answer.segments.iter().flat_map(|s| spread(s, &word)).collect());
    }
    let untimed = |text: &&str| Word {
        text: (*text).to_owned(),
        start_ms: 0,
        end_ms: 0,
        confidence: None,
    };
    Ok(spelled.iter().map(untimed).collect())
}

/// The words of a stretch, each for as long as it has letters.
fn spread(stretch: &Timed, word: &dyn Fn(&str, f64, f64) -> Word) -> Vec<Word> {
    let letters: usize = stretch.text.split_whitespace().map(|w| w.chars().count()).sum();
    let each_s = (stretch.end_s - stretch.start_s) / letters.max(1) as f64;
    let mut at = stretch.start_s;
    let one = |text: &str| {
        let from = at;
        at += each_s * text.chars().count() as f64;
        word(text, from, at)
    };
    stretch.text.split_whitespace().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start_ms: u64, end_ms: u64) -> Piece {
        Piece {
            start_ms,
            end_ms,
            from_ms: start_ms - 300,
            to_ms: end_ms + 300,
            segments: vec![0],
        }
    }

    fn timed(text: &str, start_s: f64, end_s: f64) -> Timed {
        Timed {
            text: text.to_owned(),
            start_s,
            end_s,
        }
    }

    #[test]
    fn pieces_end_where_it_is_quiet_and_are_written_as_they_sound() {
        let mut samples = vec![0.5; 16_000 * 3];
        samples[16_000 * 800 / 1000..16_000 * 820 / 1000].fill(0.0);
        samples[16_000 * 2240 / 1000..16_000 * 2260 / 1000].fill(0.01);
        let cut = in_pauses(&piece(1000, 2000), &samples, 16_000);
        assert_eq!(
            (cut.from_ms, cut.start_ms, cut.end_ms, cut.to_ms),
            (810, 1000, 2000, 2250)
        );
        let file = wav(&cut, &samples, 16_000);
        let read = cactus_audio::decode::load(std::io::Cursor::new(file), 16_000, Default::default()).unwrap();
        assert_eq!(read.len(), 16 * (2250 - 810));
        assert_eq!((read[0], read[200]), (0.0, 0.5));
        let loud = wav(&piece(300, 400), &[2.0, -2.0, 1.0], 1000);
        assert_eq!(&loud[44..], [0xff, 0x7f, 0, 0x80, 0xff, 0x7f]);
    }

    #[test]
    fn answers_become_words_of_the_recording() {
        let piece = piece(1000, 2000);
        let answer = Transcription {
            text: " Hello, you!".to_owned(),
            words: vec![timed("Hello", 0.3, 0.6), timed("you", 0.6, 1.9)],
            ..Transcription::default()
        };
        let of = |answer: &Transcription| -> Vec<(String, u64, u64)> {
            let found = words(answer, &piece).unwrap();
            found.into_iter().map(|w| (w.text, w.start_ms, w.end_ms)).collect()
        };
        // The spelling is the text's, and what lies behind the end ends with it.
        assert_eq!(
            of(&answer),
            [("Hello,".into(), 1000, 1300), ("you!".into(), 1300, 2300)]
        );
        let other = Transcription {
            text: "Hello".to_owned(),
            ..answer.clone()
        };
        assert_eq!(of(&other)[1], ("you".into(), 1300, 2300));
        let stretches = Transcription {
            text: "ab cdef".to_owned(),
            words: Vec::new(),
            segments: vec![timed("ab cdef", 0.3, 0.9)],
            billed_s: None,
        };
        assert_eq!(of(&stretches), [("ab".into(), 1000, 1200), ("cdef".into(), 1200, 1600)]);
        let untimed = Transcription {
            text: "ab cd".to_owned(),
            ..Transcription::default()
        };
        assert_eq!(of(&untimed), [("ab".into(), 0, 0), ("cd".into(), 0, 0)]);
        assert_eq!(of(&Transcription::default()), []);
    }

    #[test]
    fn times_outside_and_floods_are_refused() {
        let piece = piece(1000, 2000);
        for (start, end) in [(-0.1, 0.2), (0.5, 0.4), (0.0, 2.7), (1e300, 1e300), (f64::NAN, 1.0)] {
            for is_word in [true, false] {
                let mut answer = Transcription::default();
                let list = if is_word {
                    &mut answer.words
                } else {
                    &mut answer.segments
                };
                list.push(timed("a", start, end));
                assert!(words(&answer, &piece).is_err(), "{start} {end}");
            }
        }
        let flood = Transcription {
            text: "a ".repeat(513),
            ..Transcription::default()
        };
        assert!(words(&flood, &piece).is_err());
    }
}
