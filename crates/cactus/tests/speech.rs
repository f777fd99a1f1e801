//! Recordings and live speech, with tiny models of random weights and a detector that hears one tone.

mod support;

use cactus::speech::{
    Heard, LiveOptions, Sound, SpanOptions, StreamEvent, StreamOptions, TranscribeOptions, Transcriber,
};
use cactus::{CancelToken, ErrorKind};
use cactus_testkit::tone;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use support::{detector, golden, pcm};

/// A bundle that hears, with a bundle that finds speech in its folder `vad`.
fn hears() -> &'static Path {
    static MADE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = MADE.get_or_init(|| {
        let made = support::bundle("speech/whisper");
        detector(&made.1.join("vad"));
        made
    });
    path
}

fn load() -> Transcriber {
    Transcriber::load(hears(), Some(1)).unwrap()
}

fn kind<T>(result: cactus::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

/// In a language without spaces characters are confirmed.
fn chinese() -> TranscribeOptions {
    TranscribeOptions {
        language: Some("zh".to_owned()),
        ..TranscribeOptions::default()
    }
}

/// The window of the tiny model is one second long.
fn live_options() -> LiveOptions {
    LiveOptions {
        stream: StreamOptions {
            transcribe: chinese(),
            step_ms: 100,
            silence_ms: 200,
            most_s: Some(1.0),
            ..StreamOptions::default()
        },
        ..LiveOptions::default()
    }
}

#[test]
fn a_recording_has_one_text_as_a_file_and_as_samples() {
    let samples = tone::sound(&[(0.1, 0.8), (0.2, 1.0)]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("said.wav");
    std::fs::write(&file, tone::wav(&samples)).unwrap();
    let transcriber = load();
    let options = chinese();
    // As the file has them.
    let pcm: Vec<i16> = samples.iter().map(|x| (x * 32_767.0) as i16).collect();
    let floats: Vec<f32> = pcm.iter().map(|&x| f32::from(x) / 32768.0).collect();
    let want = transcriber.transcribe(Sound::File(&file), &options).unwrap();
    assert!(!want.text().is_empty() && (want.duration_s - 2.1).abs() < 0.01);
    assert_eq!(transcriber.transcribe(Sound::Pcm(&pcm), &options).unwrap(), want);
    let rate_hz = transcriber.sample_rate_hz();
    let samples = Sound::Samples {
        samples: &floats,
        rate_hz,
    };
    let mut windows = 0;
    let made = transcriber.transcribe_until(samples, &options, &CancelToken::new(), &mut |_| windows += 1);
    assert_eq!((made.unwrap(), windows > 0), (want, true));

    let found = transcriber.detect_language(Sound::Pcm(&pcm)).unwrap();
    assert_eq!(found.len(), transcriber.languages().len());
    let all: f64 = found.iter().map(|chance| chance.probability).sum();
    assert!((all - 1.0).abs() < 1e-6);
}

#[test]
fn a_model_that_knows_one_language_may_be_told_english() {
    let (_folder, path) = support::bundle("speech/whisper_en");
    let transcriber = Transcriber::load(&path, Some(1)).unwrap();
    let pcm = pcm(&tone::sound(&[(0.1, 0.5)]));
    let options = |code: &str| TranscribeOptions {
        language: Some(code.to_owned()),
        ..TranscribeOptions::default()
    };
    assert!(transcriber.languages().is_empty());
    assert!(transcriber.transcribe(Sound::Pcm(&pcm), &options("en")).is_ok());
    assert_eq!(
        kind(transcriber.transcribe(Sound::Pcm(&pcm), &options("de"))),
        ErrorKind::Argument
    );
    assert_eq!(
        kind(transcriber.detect_language(Sound::Pcm(&pcm))),
        ErrorKind::Unsupported
    );
}

#[test]
fn a_detector_finds_speech_and_writes_nothing() {
    let finds = Transcriber::load(&hears().join("vad"), None).unwrap();
    let pcm = pcm(&tone::sound(&[(0.5, 0.5), (0.5, 0.0)]));
    let (options, cancel) = (SpanOptions::default(), CancelToken::new());
    let spans = finds.speech(Sound::Pcm(&pcm), &options, &cancel).unwrap();
    let near = |sample: u64, s: f64| (sample as f64 / f64::from(finds.sample_rate_hz()) - s).abs() < 0.1;
    assert!(
        matches!(spans[..], [span] if near(span.start, 0.5) && near(span.end, 1.0)),
        "{spans:?}"
    );
    assert_eq!(
        kind(finds.transcribe(Sound::Pcm(&pcm), &chinese())),
        ErrorKind::Unsupported
    );
    assert_eq!(kind(finds.live(&LiveOptions::default())), ErrorKind::Unsupported);
    assert_eq!(
        kind(load().speech(Sound::Pcm(&pcm), &options, &cancel)),
        ErrorKind::Unsupported
    );
    cancel.cancel();
    assert_eq!(
        kind(finds.speech(Sound::Pcm(&pcm), &options, &cancel)),
        ErrorKind::Cancelled
    );
}

#[test]
fn what_cannot_be_heard_is_an_error_that_says_so() {
    let transcriber = load();
    let options = chinese();
    let folder = tempfile::tempdir().unwrap();
    let none = folder.path().join("none.wav");
    let failed = transcriber.transcribe(Sound::File(&none), &options).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::System);
    assert!(failed.to_string().contains("none.wav"), "{failed}");
    let picture = golden("pictures/files/rgb.png");
    assert_eq!(
        kind(transcriber.transcribe(Sound::File(&picture), &options)),
        ErrorKind::Argument
    );
    let no_number = Sound::Samples {
        samples: &[f32::NAN; 1600],
        rate_hz: 16_000,
    };
    assert_eq!(kind(transcriber.transcribe(no_number, &options)), ErrorKind::Argument);
    let no_rate = Sound::Samples {
        samples: &[0.0; 1600],
        rate_hz: 0,
    };
    assert_eq!(kind(transcriber.transcribe(no_rate, &options)), ErrorKind::Argument);
    let other = TranscribeOptions {
        language: Some("xx".to_owned()),
        ..TranscribeOptions::default()
    };
    assert_eq!(
        kind(transcriber.transcribe(Sound::Pcm(&[0; 1600]), &other)),
        ErrorKind::Argument
    );
    assert_eq!(kind(Transcriber::load(folder.path(), None)), ErrorKind::Bundle);
    let (_folder, writes) = support::bundle("models/qwen2_tied");
    assert_eq!(kind(Transcriber::load(&writes, None)), ErrorKind::Unsupported);
}

#[test]
fn who_has_the_model_is_waited_for_and_can_be_stopped() {
    let transcriber = load();
    let long = pcm(&tone::sound(&[(0.1, 30.0)]));
    let (cancel, waits) = (CancelToken::new(), CancelToken::new());
    let mut inside = None;
    let stopped = std::thread::scope(|scope| {
        let mut each = |_: cactus::speech::Progress<'_>| {
            // It would wait for itself.
            inside = Some(kind(transcriber.transcribe(Sound::Pcm(&[0; 1600]), &chinese())));
            let (other, stop) = (transcriber.clone(), waits.clone());
            let waiting = scope
                .spawn(move || kind(other.transcribe_until(Sound::Pcm(&[0; 1600]), &chinese(), &stop, &mut |_| {})));
            waits.cancel();
            assert_eq!(waiting.join().unwrap(), ErrorKind::Cancelled);
            cancel.cancel();
        };
        kind(transcriber.transcribe_until(Sound::Pcm(&long), &chinese(), &cancel.clone(), &mut each))
    });
    assert_eq!((stopped, inside), (ErrorKind::Cancelled, Some(ErrorKind::Busy)));
    // What was stopped leaves nothing behind.
    assert!(transcriber.transcribe(Sound::Pcm(&long[..16_000]), &chinese()).is_ok());
}

/// What comes of a sound in pieces of so many samples.
fn listen(transcriber: &Transcriber, pcm: &[i16], size: usize) -> (Vec<StreamEvent>, String) {
    let mut live = transcriber.live(&live_options()).unwrap();
    let (mut events, mut confirmed) = (Vec::new(), String::new());
    let mut take = |heard: Heard| {
        confirmed.push_str(&heard.confirmed);
        events.extend(heard.events);
        heard.pending
    };
    for piece in pcm.chunks(size) {
        take(live.push(piece).unwrap());
    }
    assert_eq!(take(live.finish().unwrap()), "");
    (events, confirmed)
}

#[test]
fn live_speech_is_the_same_in_pieces_of_any_size_and_its_text_only_grows() {
    // A phrase, one that is too long, a click, and one that the end cuts.
    let pcm = pcm(&tone::sound(&[(0.5, 0.3), (0.6, 2.2), (0.6, 0.05), (0.6, 0.5)]));
    let transcriber = load();
    let (events, confirmed) = listen(&transcriber, &pcm, pcm.len());
    let finals = events.iter().filter_map(|event| match event {
        StreamEvent::Final { segment, .. } => Some(segment.text.as_str()),
        _ => None,
    });
    assert_eq!(confirmed, finals.collect::<String>());
    assert!(!confirmed.is_empty());
    for size in [320, 1600] {
        assert_eq!(
            listen(&transcriber, &pcm, size),
            (events.clone(), confirmed.clone()),
            "{size}"
        );
    }
    // Two of them share the model.
    std::thread::scope(|scope| {
        let each = || listen(&transcriber, &pcm, 1600);
        let both = [scope.spawn(each), scope.spawn(each)];
        for one in both {
            assert_eq!(one.join().unwrap().0, events);
        }
    });
}

#[test]
fn live_speech_can_be_stopped_and_says_what_it_needs() {
    let transcriber = load();
    let mut live = transcriber.live(&live_options()).unwrap();
    live.push(&[0; 1600]).unwrap();
    live.cancel_token().cancel();
    assert_eq!(kind(live.push(&[0; 1600])), ErrorKind::Cancelled);
    assert_eq!(kind(live.finish()), ErrorKind::Cancelled);

    let fast = LiveOptions {
        rate_hz: 48_000,
        ..live_options()
    };
    let mut live = transcriber.live(&fast).unwrap();
    assert!(live.push_samples(&[0.0; 4800]).unwrap().events.is_empty());
    assert_eq!(kind(live.push_samples(&[f32::NAN; 4800])), ErrorKind::Argument);

    let elsewhere = LiveOptions {
        vad: Some(PathBuf::from("/nowhere")),
        ..live_options()
    };
    let failed = transcriber.live(&elsewhere).unwrap_err();
    assert!(
        failed.kind() == ErrorKind::Argument && failed.to_string().contains("/nowhere"),
        "{failed}"
    );
    let too_long = LiveOptions::default();
    let too_long = LiveOptions {
        stream: StreamOptions {
            most_s: Some(7.0),
            ..too_long.stream
        },
        ..LiveOptions::default()
    };
    assert_eq!(kind(transcriber.live(&too_long)), ErrorKind::Argument);
}
