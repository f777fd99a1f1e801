//! Films, against what transformers computed (`golden/seeing_films.py`).

use super::{Expected, bundle, farthest, golden, greedy, like, load};
use cactus_engine::chat::{Chat, ChatRequest, Data, MediaFile, Sense, Timing, to_base64};
use cactus_engine::scheduler::{Scheduler, SchedulerLimits};
use cactus_engine::{CancelToken, Model};
use cactus_multimodal::{ErrorKind, Films, Limits, Picture, Pictures, Watched};
use cactus_passes::Bits;
use cactus_testkit::picture_noise;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// Cases, and the token that is replaced by rows.
const CASES: [(&str, &str); 5] = [
    ("gemma4", "<|image|>"),
    ("gemma4_moe", "<|image|>"),
    ("qwen3_5", "<|video_pad|>"),
    ("qwen3_vl", "<|video_pad|>"),
    ("smolvlm", "<image>"),
];

/// All frames of the film of a case, and how many go by in a second.
fn film(want: &Expected) -> (Vec<Picture>, f64) {
    let film = &want.about["film"];
    let [width, height] = [0, 1].map(|i| film[i].as_u64().unwrap() as u32);
    let seeds = film[2].as_array().unwrap().iter();
    let frame =
        |seed: &Value| Picture::new(width, height, picture_noise(width, height, seed.as_u64().unwrap())).unwrap();
    (seeds.map(frame).collect(), film[3].as_f64().unwrap())
}

/// A picture as a PNG file.
fn png(picture: &Picture) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, picture.width(), picture.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(picture.rgb()).unwrap();
    file
}

fn watch(model: &Model, films: &Films, frames: &[Picture], rate: f64) -> Watched {
    let seconds = frames.len() as f64 / rate;
    let chosen = films.chosen(frames.len(), seconds);
    let times: Vec<f64> = chosen.iter().map(|&i| i as f64 / rate).collect();
    let seen: Vec<Picture> = chosen.iter().map(|&i| frames[i].clone()).collect();
    films
        .watch(model, &seen, (&times, seconds), &CancelToken::new())
        .unwrap()
}

fn with_films(path: &Path, chunk_tokens: usize) -> (Arc<Model>, Arc<Pictures>, Films) {
    let (model, pictures) = load(path, chunk_tokens);
    let films = Films::of(&pictures).unwrap();
    (model, pictures, films)
}

/// The messages of a case, with `part` in place of the film.
fn messages(want: &Expected, part: &Value) -> Vec<Value> {
    let mut messages = want.about["messages"].as_array().unwrap().clone();
    messages[0]["content"][0] = part.clone();
    messages
}

#[test]
fn rows_prompt_and_logits_of_a_film_are_those_of_transformers() {
    let folder = tempfile::tempdir().unwrap();
    for (name, token) in CASES {
        let want = Expected::read(name, ["film.json", "film.safetensors"]);
        let path = bundle(folder.path(), name, Bits::ThirtyTwo);
        let (model, _, films) = with_films(&path, 128);
        let (frames, rate) = film(&want);
        let watched = watch(&model, &films, &frames, rate);
        let far = farthest(watched.shown.media.rows(), &want.numbers("rows"));
        assert!(far <= 1e-4, "{name}: rows are {far} away");
        let request = ChatRequest {
            messages: messages(&want, &json!({"type": "video"})),
            films: vec![watched.shown],
            ..ChatRequest::default()
        };
        let chat = Chat::new(&model, &request).unwrap();
        like(name, &model, &chat, (&want, token));
        let mut session = model.session().unwrap();
        let answer = session.generate(&chat.prompt, &greedy(name, 24), &CancelToken::new(), &mut |_| {});
        assert_eq!(answer.unwrap().completion_token_ids, want.ids("greedy"), "{name}");
    }
}

/// As a client sends it: files of frames in a message, to be chosen from, or with their times; and with more asked behind a prefix that is known.
#[test]
fn frames_in_a_message_are_seen_as_the_film() {
    let folder = tempfile::tempdir().unwrap();
    for (name, _) in CASES {
        let want = Expected::read(name, ["film.json", "film.safetensors"]);
        let path = bundle(folder.path(), name, Bits::ThirtyTwo);
        let (model, _, films) = with_films(&path, 128);
        let (frames, rate) = film(&want);
        let seconds = frames.len() as f64 / rate;
        let files: Vec<String> = frames.iter().map(|frame| to_base64(&png(frame))).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let chosen = films.chosen(frames.len(), seconds);
        let times: Vec<f64> = chosen.iter().map(|&i| i as f64 / rate).collect();
        let some = chosen.iter().map(|&i| files[i]).collect();
        let url = format!("data:video/jpeg;base64,{}", files.join(","));
        let parts = [
            Data::Frames(files.clone(), Timing::Rate(rate)).part(Sense::Film),
            Data::Frames(some, Timing::At(times, seconds)).part(Sense::Film),
            json!({"type": "video_url", "video_url": {"url": url, "fps": rate}}),
        ];
        let scheduler = Scheduler::new(Arc::clone(&model), SchedulerLimits::default()).unwrap();
        for part in parts {
            let request = ChatRequest {
                messages: messages(&want, &part),
                ..ChatRequest::default()
            };
            let chat = Chat::new(&model, &request).unwrap();
            assert_eq!(chat.text, want.about["text"].as_str().unwrap(), "{name}");
            let answer = scheduler.generate(chat.request(greedy(name, 24)), &mut |_| {}).unwrap();
            assert_eq!(answer.completion_token_ids, want.ids("greedy"), "{name}");
        }
    }
}

#[test]
fn what_is_no_film_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (model, pictures, films) = with_films(&bundle(folder.path(), "smolvlm", Bits::Eight), 48);
    let never = CancelToken::new();
    let frame = |side: u32| Picture::new(side, side, picture_noise(side, side, 1)).unwrap();
    let refused = |frames: &[Picture], times: &[f64], seconds: f64| {
        let error = films.watch(&model, frames, (times, seconds), &never).unwrap_err();
        (error.kind(), error.to_string())
    };
    for (frames, times, seconds, word) in [
        (vec![], vec![], 1.0, "frames"),
        (vec![frame(20); 2], vec![1.0, 0.5], 2.0, "in order"),
        (vec![frame(20)], vec![f64::NAN], 2.0, "in order"),
        (vec![frame(20)], vec![0.0, 1.0], 2.0, "1 frames and 2 times"),
        (vec![frame(20)], vec![0.0], -1.0, "in seconds"),
        (vec![frame(20), frame(21)], vec![0.0, 1.0], 2.0, "20 x 20"),
        (vec![frame(20); 65], (0..65).map(f64::from).collect(), 65.0, "64 frames"),
    ] {
        let (kind, what) = refused(&frames, &times, seconds);
        assert!(kind == ErrorKind::Picture && what.contains(word), "{what}");
    }
    let limits = Limits::default();
    let watched = films.watch_files(&model, &[b"no picture".to_vec()], &Timing::Rate(1.0), &limits, &never);
    assert_eq!(watched.unwrap_err().kind(), ErrorKind::Picture);
    let late = Timing::At(vec![0.0, 1.0], 2.0);
    let watched = films.watch_files(&model, &[png(&frame(20))], &late, &limits, &never);
    assert!(watched.unwrap_err().to_string().contains("2 times"));
    never.cancel();
    let cancelled = films.watch(&model, &[frame(20)], (&[0.0], 1.0), &never).unwrap_err();
    assert_eq!(cancelled.kind(), ErrorKind::Cancelled);
    // Fewer frames, and a model that sees none.
    let fewer = pictures.processor().with_frames(2).unwrap();
    assert_eq!(fewer.films.unwrap().frames.chosen(100, 10.0).len(), 2);
    let (model, pictures) = load(&bundle(folder.path(), "lfm2_vl", Bits::Eight), 48);
    assert!(Films::of(&pictures).is_none() && pictures.processor().with_frames(2).is_err());
    let file = MediaFile::Frames(vec![png(&frame(20))], Timing::Rate(1.0));
    assert_eq!(file.bytes(), png(&frame(20)).len());
    let part = Data::Frames(vec!["QUI="], Timing::Rate(1.0)).part(Sense::Film);
    let request = ChatRequest {
        messages: vec![json!({"role": "user", "content": [part]})],
        ..ChatRequest::default()
    };
    let error = Chat::new(&model, &request).unwrap_err().to_string();
    assert!(error.contains("sees no films"), "{error}");
}

/// Two frames more than fit the context.
#[test]
fn a_film_that_does_not_fit_is_refused_before_it_is_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _, films) = with_films(&bundle(folder.path(), "gemma4", Bits::Eight), 128);
    assert!(golden("gemma4").join("film.json").is_file());
    let files = vec![png(&Picture::new(50, 30, picture_noise(50, 30, 1)).unwrap()); 9];
    let files: Vec<String> = files.iter().map(|file| to_base64(&file[..60])).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    assert_eq!(films.chosen(9, 9.0).len(), 9);
    let request = ChatRequest {
        messages: vec![json!({"role": "user", "content": [Data::Frames(files, Timing::Rate(1.0)).part(Sense::Film)]})],
        ..ChatRequest::default()
    };
    let error = Chat::new(&model, &request).unwrap_err().to_string();
    assert!(
        error.contains("540 tokens") && error.contains("fewer frames"),
        "{error}"
    );
}
