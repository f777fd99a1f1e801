//! Films that come with a message: the forms that they have there, and when their frames are seen.

use super::attached::{Data, WrongPart, data_of_url};
use serde_json::{Map, Value};

/// When the frames of a film are seen.
#[derive(Debug, Clone, PartialEq)]
pub enum Timing {
    /// So many go by in a second, and the model sees some of them.
    Rate(f64),
    /// At these times of a film of so many seconds; the model sees all of them.
    At(Vec<f64>, f64),
}

/// Frames that go by in a second, where a film does not say it.
const USUAL_RATE: f64 = 1.0;

/// Whether a part of a content is a film, and its frames, if they come with it: `{"type": "video", "frames": [base64, …], "fps": 2}`, and `video_url`
/// with a data URL of the type `video/jpeg`, in which the frames stand with commas between, as vLLM has it. Without `fps`, one frame goes by
/// in a second. In place of it `times` may say when each frame is seen, and `seconds` how long the film is. `None` for a part that is no film.
///
/// # Errors
/// As [`picture_of_part`](super::picture_of_part), and films in one file, which nothing here decodes.
pub fn film_of_part(part: &Map<String, Value>) -> Result<Option<Option<Data<'_>>>, WrongPart> {
    match part.get("type").and_then(Value::as_str) {
        Some("video") => of_video(part).map(Some),
        Some("video_url") => of_video_url(part.get("video_url")).map(|data| Some(Some(data))),
        _ => Ok(None),
    }
}

fn of_video(part: &Map<String, Value>) -> Result<Option<Data<'_>>, WrongPart> {
    let given = |field: &str| part.get(field).filter(|value| !value.is_null());
    let frames = match (given("frames"), given("data")) {
        (Some(frames), _) => frames.as_array().filter(|frames| !frames.is_empty()),
        (None, Some(_)) => return Err(("data", ONE_FILE.to_owned())),
        (None, None) => return Ok(None),
    };
    let frames: Option<Vec<&str>> = frames.and_then(|frames| frames.iter().map(Value::as_str).collect());
    let frames = frames.ok_or_else(|| {
        let what = "expected the frames of the film, each a picture file as base64";
        ("frames", what.to_owned())
    })?;
    let timing = match given("times") {
        None => Timing::Rate(rate(given("fps"), "fps")?),
        Some(times) => at(times, given("seconds"), frames.len())?,
    };
    Ok(Some(Data::Frames(frames, timing)))
}

/// The times of so many frames of a film that goes on for `seconds`, or ends with the last of them.
fn at(times: &Value, seconds: Option<&Value>, count: usize) -> Result<Timing, WrongPart> {
    let wrong = |field: &'static str, what: &str| (field, what.to_owned());
    let times: Option<Vec<f64>> = times
        .as_array()
        .and_then(|times| times.iter().map(Value::as_f64).collect());
    let times = times
        .filter(|times| times.len() == count && times.is_sorted())
        .ok_or_else(|| wrong("times", "expected the time of each frame in seconds, in order"))?;
    let last = times.last().copied().unwrap_or_default();
    let seconds = seconds
        .map_or(Some(last), Value::as_f64)
        .filter(|seconds| *seconds >= last)
        .ok_or_else(|| wrong("seconds", "expected the length of the film"))?;
    Ok(Timing::At(times, seconds))
}

fn of_video_url(part: Option<&Value>) -> Result<Data<'_>, WrongPart> {
    let (field, url, fps) = match part {
        Some(Value::Object(object)) => ("video_url.url", object.get("url"), object.get("fps")),
        found => ("video_url", found, None),
    };
    let Some(Value::String(url)) = url else {
        let what = "expected a data URL (`data:video/jpeg;base64,…`), found nothing";
        return Err((field, what.to_owned()));
    };
    let data = data_of_url(url, "video/jpeg", "").map_err(|what| (field, what))?;
    if !["data:video/jpeg;", "data:image/"]
        .iter()
        .any(|kind| url.starts_with(kind))
    {
        return Err((field, ONE_FILE.to_owned()));
    }
    let timing = Timing::Rate(rate(fps, "video_url.fps")?);
    Ok(Data::Frames(data.split(',').collect(), timing))
}

/// Frames a second, which stand in `field`.
fn rate(fps: Option<&Value>, field: &'static str) -> Result<f64, WrongPart> {
    match fps {
        None | Some(Value::Null) => Ok(USUAL_RATE),
        Some(fps) => fps.as_f64().filter(|fps| (1e-3..=1e3).contains(fps)).ok_or_else(|| {
            let what = format!("expected frames a second from 0.001 to 1000, found {fps}");
            (field, what)
        }),
    }
}

/// Why a film in one file is refused.
const ONE_FILE: &str = "expected the frames of the film as files of pictures (`data:video/jpeg;base64,FRAME,FRAME,…`): no film in one file is \
    decoded here";

#[cfg(test)]
mod tests {
    use super::super::attached::{MAX_FRAMES, MediaFile, Sense, media_of_part};
    use super::*;
    use serde_json::json;

    #[test]
    fn every_form_of_a_film_gives_its_frames() {
        let film = |rate| {
            Some((
                Sense::Film,
                Some(Data::Frames(vec!["QUI=", "QkM="], Timing::Rate(rate))),
            ))
        };
        let frames = json!(["QUI=", "QkM="]);
        let url = "data:video/jpeg;base64,QUI=,QkM=";
        for (part, expected) in [
            (json!({"type": "video"}), Some((Sense::Film, None))),
            (json!({"type": "video", "frames": frames}), film(1.0)),
            (json!({"type": "video", "frames": frames, "fps": 2.5}), film(2.5)),
            (json!({"type": "video_url", "video_url": url}), film(1.0)),
            (
                json!({"type": "video_url", "video_url": {"url": url, "fps": 4}}),
                film(4.0),
            ),
        ] {
            assert_eq!(media_of_part(part.as_object().unwrap()).unwrap(), expected, "{part}");
        }
        for timing in [Timing::Rate(2.0), Timing::At(vec![0.5, 3.0], 4.0)] {
            let made = Data::Frames(vec!["QUI=", "QkM="], timing.clone());
            let part = made.part(Sense::Film);
            assert_eq!(
                media_of_part(part.as_object().unwrap()).unwrap(),
                Some((Sense::Film, Some(made.clone())))
            );
            assert_eq!(
                made.decode().unwrap(),
                MediaFile::Frames(vec![b"AB".to_vec(), b"BC".to_vec()], timing)
            );
        }
        assert!(
            Data::Frames(vec![""; MAX_FRAMES + 1], Timing::Rate(1.0))
                .decode()
                .is_err()
        );
        for (part, field, word) in [
            (json!({"type": "video", "frames": []}), "frames", "frames"),
            (json!({"type": "video", "frames": [3]}), "frames", "base64"),
            (json!({"type": "video", "frames": frames, "fps": 0}), "fps", "a second"),
            (
                json!({"type": "video", "frames": frames, "times": [0]}),
                "times",
                "each frame",
            ),
            (
                json!({"type": "video", "frames": frames, "times": [1, 0]}),
                "times",
                "in order",
            ),
            (
                json!({"type": "video", "frames": frames, "times": [0, 2], "seconds": 1}),
                "seconds",
                "length",
            ),
            (json!({"type": "video", "data": "QUI="}), "data", "in one file"),
            (json!({"type": "video_url"}), "video_url", "data URL"),
            (
                json!({"type": "video_url", "video_url": {"url": "http://a/b.mp4"}}),
                "video_url.url",
                "fetched",
            ),
            (
                json!({"type": "video_url", "video_url": "data:video/mp4;base64,QUI="}),
                "video_url",
                "in one file",
            ),
            (
                json!({"type": "video_url", "video_url": {"url": url, "fps": "a"}}),
                "video_url.fps",
                "a second",
            ),
        ] {
            let (found, what) = media_of_part(part.as_object().unwrap()).unwrap_err();
            assert_eq!(found, field, "{part}");
            assert!(what.contains(word), "{part}: {what}");
        }
    }
}
