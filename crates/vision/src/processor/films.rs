//! What a model sees of a film: some of its frames, each prepared as a picture is, and what stands in a prompt between them.

use super::record::{range, refuse};
use super::{Layout, Plan, Processed, Processor, SizeRule};
use crate::{Error, ErrorKind, Picture};
use serde::{Deserialize, Serialize};

/// Most frames that a record may ask for.
const MAX_FRAMES: u32 = 999;
/// Most frames that are chosen from.
const MAX_GIVEN: usize = 1 << 24;
/// Most bytes of a mark.
const MAX_BYTES: usize = 256;

/// What happens to a film.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Films {
    /// Which frames the model sees.
    pub frames: Frames,
    /// Frames that become the tokens of one: 1, or as many as the layout has copies. The last stands in for what is missing at the end.
    #[serde(default = "one")]
    pub joined: u32,
    /// The size of a frame, which has one view. Bounds of pixels hold for all frames together.
    pub size: SizeRule,
    /// Most pixels of a frame within such bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_frame_pixels: Option<u64>,
    /// How a time is written.
    pub time: TimeFormat,
    /// What stands in the prompt for the film.
    pub marks: FilmMarks,
}

fn one() -> u32 {
    1
}

/// Which frames of a film a model sees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frames {
    /// Frames a second. Absent: always as many as it sees at most, where the film has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Fewest, where the film has them.
    #[serde(default = "one")]
    pub least: u32,
    /// Most.
    pub most: u32,
    /// Where they are.
    pub spread: Spread,
    /// Seconds that are left out at both ends of a film that has more than the most frames.
    #[serde(default)]
    pub skip_seconds: f64,
}

/// Where the frames are that are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// The first frame of each of as many parts.
    Starts,
    /// From the first frame to the last, and what is between to the nearest. Their number is rounded down.
    Nearest,
    /// From the first frame to the last, and what is between rounded down. Their number is to the nearest.
    Below,
}

/// How a time is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeFormat {
    /// Minutes and seconds: `01:05`.
    Minutes,
    /// Seconds and tenths: `65.2`.
    Seconds,
}

/// The text of a film: `start`, its frames with `between` between them, `end`. A frame, or so many as are joined, is `frame`, as many times `token`
/// as it has tokens, and `frame_end`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilmMarks {
    /// What a chat template writes for a film; empty where that is the token.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub written: String,
    /// A token that is replaced by a row of the encoder.
    pub token: String,
    /// Before everything. `{count}` is the number of frames in English words, `{length}` that of the film as hours, minutes and seconds.
    #[serde(default)]
    pub start: String,
    /// Before a frame. `{time}` is when it is seen.
    #[serde(default)]
    pub frame: String,
    /// Behind a frame.
    #[serde(default)]
    pub frame_end: String,
    /// Between frames.
    #[serde(default)]
    pub between: String,
    /// Behind everything.
    #[serde(default)]
    pub end: String,
}

impl FilmMarks {
    /// What a chat template writes for a film.
    #[must_use]
    pub fn written(&self) -> &str {
        match self.written.is_empty() {
            true => &self.token,
            false => &self.written,
        }
    }
}

/// What becomes of a film of frames of given sides.
#[derive(Debug, Clone, PartialEq)]
pub struct FilmPlan {
    /// Frames that the model sees, in order.
    pub frames: usize,
    /// When each of the pictures is seen that they are joined to, in seconds.
    pub times: Vec<f64>,
    /// What becomes of a frame, and of those that are joined with it.
    pub frame: Plan,
    /// Tokens of all.
    pub tokens: u64,
    /// How long the film is.
    pub seconds: f64,
}

impl Frames {
    /// Which of `count` frames, which go on for `seconds`, are seen, ascending.
    #[must_use]
    pub fn chosen(&self, count: usize, seconds: f64) -> Vec<usize> {
        let count = count.min(MAX_GIVEN);
        if count == 0 {
            return Vec::new();
        }
        let [least, most] = [self.least, self.most].map(|n| n as usize);
        let number = match (self.rate.map(|rate| rate * seconds), self.spread) {
            (None, _) => most,
            (Some(number), Spread::Below) => number.round_ties_even() as usize,
            (Some(number), _) => number as usize,
        };
        let number = number.max(least).min(most).min(count);
        let (mut first, mut last) = (0, count - 1);
        let rate = self.rate.unwrap_or(0.0);
        if self.skip_seconds > 0.0 && seconds - 2.0 * self.skip_seconds > most as f64 * rate {
            let skipped = self.skip_seconds * (count as f64 / seconds);
            let (from, to) = (skipped as usize, ((count as f64 - skipped) as usize).min(count - 1));
            if from < to {
                (first, last) = (from, to);
            }
        }
        let step = match number {
            1 => 0.0,
            _ => (last - first) as f64 / (number - 1) as f64,
        };
        let place = |i: usize| match self.spread {
            Spread::Starts => i * count / number,
            _ if i > 0 && i + 1 == number => last,
            Spread::Nearest => (i as f64 * step + first as f64).round_ties_even() as usize,
            Spread::Below => (i as f64 * step + first as f64) as usize,
        };
        let mut chosen: Vec<usize> = (0..number).map(place).collect();
        chosen.dedup();
        chosen
    }
}

impl Films {
    pub(super) fn check(&self, of: &Processor) -> Result<(), Error> {
        let Frames {
            rate,
            least,
            most,
            skip_seconds,
            ..
        } = &self.frames;
        if let Some(rate) = rate {
            range("films.frames.rate", *rate, 1e-3, 1e3)?;
        }
        range("films.frames.most", *most, 1, MAX_FRAMES)?;
        range("films.frames.least", *least, 1, *most)?;
        range("films.frames.skip_seconds", *skip_seconds, 0.0, 1e4)?;
        let copies = match of.layout {
            Layout::Planes => return Err(refuse("films", "there", "absent where the layout is planes")),
            Layout::Patches { copies, .. } => copies,
        };
        if self.joined != 1 && self.joined != copies {
            return Err(refuse("films.joined", self.joined, &format!("1 or {copies}")));
        }
        of.check_size("films.size", &self.size)?;
        if matches!(self.size, SizeRule::Tiles { .. } | SizeRule::LongSide { .. }) {
            return Err(refuse(
                "films.size",
                "one with tiles",
                "one that gives a frame one view",
            ));
        }
        let marks = &self.marks;
        let all = [
            &marks.written,
            &marks.token,
            &marks.start,
            &marks.frame,
            &marks.frame_end,
            &marks.between,
            &marks.end,
        ];
        match all.into_iter().find(|mark| mark.len() > MAX_BYTES) {
            Some(mark) => Err(refuse(
                "films.marks",
                format!("a text of {} bytes", mark.len()),
                &format!("at most {MAX_BYTES}"),
            )),
            None if marks.token.is_empty() => Err(refuse("films.marks.token", "empty", "a token")),
            None => Ok(()),
        }
    }

    /// What stands in the prompt for a film with this plan.
    #[must_use]
    pub fn text(&self, plan: &FilmPlan) -> String {
        let whole = plan.seconds as u64;
        let length = format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
        let marks = &self.marks;
        let frame = |time: &f64| {
            let time = match self.time {
                TimeFormat::Minutes => format!("{:02}:{:02}", *time as u64 / 60, *time as u64 % 60),
                TimeFormat::Seconds => format!("{time:.1}"),
            };
            let token = marks.token.repeat(plan.frame.tokens as usize);
            format!("{}{token}{}", marks.frame.replace("{time}", &time), marks.frame_end)
        };
        let start = marks
            .start
            .replace("{count}", &in_words(plan.frames))
            .replace("{length}", &length);
        let all: Vec<String> = plan.times.iter().map(frame).collect();
        format!("{start}{}{}", all.join(&marks.between), marks.end)
    }
}

impl Processor {
    /// The same record with another number of frames that are seen of a film at most.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] where the model sees no films, and [`ErrorKind::InvalidRecord`] for a number that is out of bounds.
    pub fn with_frames(&self, most: u32) -> Result<Self, Error> {
        let mut made = self.clone();
        let Some(films) = &mut made.films else {
            return Err(Error::new(ErrorKind::InvalidInput, "this model sees no films"));
        };
        films.frames.most = most;
        films.frames.least = films.frames.least.min(most);
        made.check()?;
        Ok(made)
    }

    /// What becomes of a film of which frames of `width` x `height` pixels are seen at `times`, of `seconds` in all; `None` where the model sees
    /// no films. Nothing is decoded or computed for it.
    ///
    /// # Errors
    /// As [`Processor::plan`]; [`ErrorKind::InvalidInput`] where there is no frame, there are more than the model sees, or the times are no
    /// times in order.
    pub fn plan_film(&self, width: u32, height: u32, times: &[f64], seconds: f64) -> Result<Option<FilmPlan>, Error> {
        self.check()?;
        let Some(films) = &self.films else {
            return Ok(None);
        };
        let wrong = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
        let most = films.frames.most as usize;
        if times.is_empty() || times.len() > most {
            return wrong(format!("expected 1 to {most} frames of a film, found {}", times.len()));
        }
        let in_order = times.is_sorted() && times.iter().all(|time| (0.0..1e7).contains(time));
        if !in_order || !(0.0..1e7).contains(&seconds) {
            return wrong("expected the times of a film's frames in order, in seconds".to_owned());
        }
        let joined = films.joined as usize;
        let frames = times.len().max(joined) as u64;
        // Half the rest of a group counts as none or a whole, as it is even.
        let groups = (frames as f64 / joined as f64).round_ties_even() as u64;
        let (mut size, mut sides) = (films.size.clone(), (width, height));
        if let SizeRule::Bounds {
            min_pixels, max_pixels, ..
        } = &mut size
        {
            if let Some(most) = films.max_frame_pixels {
                let share = most.min(*max_pixels / frames);
                *max_pixels = share.max((*min_pixels as f64 * 1.05) as u64) * frames;
            }
            let unit = f64::from(self.unit());
            if f64::from(width.min(height)) < unit && width > 0 && height > 0 {
                let scale = (unit / f64::from(height)).max(unit / f64::from(width));
                sides = ((f64::from(width) * scale) as u32, (f64::from(height) * scale) as u32);
            }
        }
        let mut frame = self.planned(&size, sides.0, sides.1, [frames, groups * joined as u64])?;
        (frame.width, frame.height) = (width, height);
        let mean = |group: &[f64]| match group {
            // The last stands in for what is missing.
            [first, ..] if group.len() == joined => (first + group[joined - 1]) / 2.0,
            [first, .., last] => (first + last) / 2.0,
            [one] => *one,
            [] => 0.0,
        };
        let times_of: Vec<f64> = times.chunks(joined).map(mean).collect();
        Ok(Some(FilmPlan {
            frames: times.len(),
            tokens: frame.tokens * times_of.len() as u64,
            times: times_of,
            frame,
            seconds,
        }))
    }

    /// The numbers of frames that are joined: as many as the record joins, or those at the end of the film.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for another number of frames, or of another size than `plan` is of.
    pub fn process_frames(&self, plan: &FilmPlan, frames: &[&Picture]) -> Result<Processed, Error> {
        let joined = self.films.as_ref().map_or(1, |films| films.joined as usize);
        let fits = |frame: &&Picture| (frame.width(), frame.height()) == (plan.frame.width, plan.frame.height);
        if frames.is_empty() || frames.len() > joined || !frames.iter().all(fits) {
            let what = format!(
                "expected 1 to {joined} frames of {} x {} pixels",
                plan.frame.width, plan.frame.height
            );
            return Err(Error::new(ErrorKind::InvalidInput, what));
        }
        self.carry_out(&plan.frame, frames)
    }
}

/// A number below a thousand in English words.
fn in_words(number: usize) -> String {
    const SMALL: [&str; 20] = [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
    ];
    const TENS: [&str; 8] = [
        "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
    ];
    match number {
        0..20 => SMALL[number].to_owned(),
        20..100 => {
            let tens = TENS[number / 10 - 2];
            match number % 10 {
                0 => tens.to_owned(),
                one => format!("{tens}-{}", SMALL[one]),
            }
        }
        100..1000 => {
            let hundreds = format!("{} hundred", SMALL[number / 100]);
            match number % 100 {
                0 => hundreds,
                rest => format!("{hundreds} and {}", in_words(rest)),
            }
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(rate: Option<f64>, [least, most]: [u32; 2], spread: Spread, skip_seconds: f64) -> Frames {
        Frames {
            rate,
            least,
            most,
            spread,
            skip_seconds,
        }
    }

    /// The numbers are those of `sample_frames` of transformers 5.23.
    #[test]
    fn frames_are_those_that_transformers_chooses() {
        // Gemma 4 with 6 frames.
        let gemma = frames(None, [1, 6], Spread::Starts, 0.0);
        assert_eq!(gemma.chosen(20, 2.0), [0, 3, 6, 10, 13, 16]);
        assert_eq!(gemma.chosen(4, 2.0), [0, 1, 2, 3]);
        // Qwen3-VL with 2 a second.
        let qwen = frames(Some(2.0), [4, 768], Spread::Nearest, 0.0);
        assert_eq!(qwen.chosen(75, 3.0), [0, 15, 30, 44, 59, 74]);
        assert_eq!(qwen.chosen(30, 1.0), [0, 10, 19, 29]);
        assert_eq!(qwen.chosen(3, 1.0), [0, 1, 2]);
        // SmolVLM with one a second, four at most.
        let smol = frames(Some(1.0), [1, 4], Spread::Below, 1.0);
        assert_eq!(smol.chosen(50, 2.5), [0, 49]);
        assert_eq!(smol.chosen(75, 3.0), [0, 37, 74]);
        assert_eq!(smol.chosen(250, 10.0), [25, 91, 158, 225]);
        assert_eq!(smol.chosen(10, 0.2), [0]);
        assert_eq!(smol.chosen(0, 0.2), [0usize; 0]);
    }

    #[test]
    fn numbers_are_written_as_they_are_said() {
        let words = [0, 7, 13, 20, 64, 100, 105, 342, 999].map(in_words);
        assert_eq!(
            words,
            [
                "zero",
                "seven",
                "thirteen",
                "twenty",
                "sixty-four",
                "one hundred",
                "one hundred and five",
                "three hundred and forty-two",
                "nine hundred and ninety-nine"
            ]
        );
    }
}
