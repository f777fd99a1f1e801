//! Live speech: with a tiny Whisper of random weights, and a detector whose weights are made so that it hears one tone; and with the
//! real models (`whisper-tiny.en` and `silero-vad` of `scripts/fetch_models.py`, where `CACTUS_TEST_MODELS` points to).
#![allow(clippy::print_stderr, reason = "a skipped test must be seen")]

use cactus_audio::decode::{Limits, load};
use cactus_engine::CancelToken;
use cactus_import::{ConvertOptions, convert};
use cactus_speech::{
    Commit, ErrorKind, FinalReason, Stream, StreamEvent, StreamOptions, TranscribeOptions, Transcriber, Vad,
};
use cactus_testkit::tone::{self, RATE, sound};
use std::fs::File;
use std::path::{Path, PathBuf};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn bundle(folder: &Path, name: &str, source: &Path) -> PathBuf {
    let path = folder.join(name);
    convert(source, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
    path
}

struct Models {
    _folder: tempfile::TempDir,
    transcriber: Transcriber,
    vad: PathBuf,
}

fn models(threads: usize) -> Models {
    let folder = tempfile::tempdir().unwrap();
    let whisper = bundle(folder.path(), "whisper", &here("../../golden/speech/whisper"));
    Models {
        transcriber: Transcriber::load(&whisper, Some(threads)).unwrap(),
        vad: bundle(folder.path(), "vad", &tone::write_detector(folder.path()).unwrap()),
        _folder: folder,
    }
}

/// The window of the tiny model is one second long.
fn options() -> StreamOptions {
    StreamOptions {
        transcribe: TranscribeOptions {
            // In a language without spaces, characters are committed.
            language: Some("zh".to_owned()),
            words: true,
            ..TranscribeOptions::default()
        },
        // So often, texts of random weights have something in common from one step to the next.
        step_ms: 50,
        silence_ms: 200,
        most_s: Some(1.0),
        ..StreamOptions::default()
    }
}

/// All events of a sound that comes in pieces of these sizes, over and over.
fn events(models: &mut Models, options: &StreamOptions, samples: &[f32], sizes: &[usize]) -> Vec<StreamEvent> {
    let (cancel, mut found) = (CancelToken::new(), Vec::new());
    let vad = Vad::load(&models.vad, 1).unwrap();
    let mut stream = Stream::new(&mut models.transcriber, vad, options.clone()).unwrap();
    let (mut rest, mut sizes) = (samples, sizes.iter().cycle());
    while !rest.is_empty() {
        let (now, later) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
        stream
            .push(&mut models.transcriber, now, &cancel, &mut |e| found.push(e))
            .unwrap();
        rest = later;
    }
    stream
        .finish(&mut models.transcriber, &cancel, &mut |e| found.push(e))
        .unwrap();
    found
}

#[test]
fn events_do_not_depend_on_pushes_and_committed_text_only_grows() {
    for commit in [Commit::Agreement, Commit::Attention] {
        committed_text_only_grows(&StreamOptions { commit, ..options() });
    }
}

fn committed_text_only_grows(options: &StreamOptions) {
    let mut models_of_one = models(1);
    // A phrase, one that is too long, a click, and one that the end cuts.
    let samples = sound(&[(0.5, 0.3), (0.6, 2.2), (0.6, 0.05), (0.6, 0.5)]);
    let all = events(&mut models_of_one, options, &samples, &[samples.len()]);
    for sizes in [&[1000][..], &[1, 511, 7, 4000], &[512], &[20_000, 3]] {
        assert_eq!(events(&mut models_of_one, options, &samples, sizes), all, "{sizes:?}");
    }
    assert_eq!(events(&mut models(3), options, &samples, &[777]), all, "three threads");

    let (mut committed, mut open, mut ended, mut partials, mut kept) = (String::new(), None, 0.0, 0, 0);
    let mut reasons = Vec::new();
    for event in &all {
        match event {
            StreamEvent::SpeechStart { id, start_s } => {
                assert!(open.is_none() && *start_s >= ended, "{event:?}");
                (open, committed) = (Some(*id), String::new());
            }
            StreamEvent::Partial { id, committed: now, .. } => {
                assert!(open == Some(*id) && now.starts_with(&committed), "{event:?}");
                kept += now.len() - committed.len();
                committed.clone_from(now);
                partials += 1;
            }
            StreamEvent::Final {
                segment,
                reason,
                language,
                until_s,
                ..
            } => {
                assert!(*until_s >= segment.end_s, "{event:?}");
                assert!(
                    open == Some(segment.id) && segment.text.starts_with(&committed),
                    "{event:?}"
                );
                assert_eq!(language.as_deref(), Some("zh"));
                let words: String = segment.words.iter().map(|w| w.text.as_str()).collect();
                assert_eq!(words, segment.text);
                assert!(segment.start_s >= ended - 0.4 && segment.end_s <= samples.len() as f64 / RATE as f64);
                reasons.push(*reason);
            }
            StreamEvent::SpeechEnd { id, end_s } => {
                assert_eq!(open.take(), Some(*id));
                assert!(*end_s >= ended, "{event:?}");
                ended = *end_s;
            }
            other => panic!("{other:?}"),
        }
    }
    // What random weights look at may be the end.
    let stays = kept > 0 || options.commit == Commit::Attention;
    assert!(open.is_none() && partials >= 10 && stays, "{all:?}");
    assert!(
        reasons.starts_with(&[FinalReason::Silence, FinalReason::Length]),
        "{reasons:?}"
    );
    assert_eq!(reasons.last(), Some(&FinalReason::End));
    let click = all
        .iter()
        .filter(|e| matches!(e, StreamEvent::SpeechStart { .. }))
        .count();
    let finals = reasons.len();
    assert_eq!(click, finals + 1, "the click begins and has no text: {all:?}");
}

#[test]
fn silence_and_noise_have_no_events() {
    let mut models = models(1);
    let mut state = 1u32;
    let noise: Vec<f32> = (0..20 * RATE)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 * 0.02 - 0.01
        })
        .collect();
    assert!(events(&mut models, &options(), &noise, &[1600]).is_empty());
    assert!(events(&mut models, &options(), &[], &[1]).is_empty());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut models = models(1);
    let mut refused = |options: StreamOptions| {
        let vad = Vad::load(&models.vad, 1).unwrap();
        Stream::new(&mut models.transcriber, vad, options).unwrap_err()
    };
    let with = |most_s, threshold, language: &str| {
        let mut options = options();
        (options.most_s, options.threshold) = (Some(most_s), threshold);
        options.transcribe.language = Some(language.to_owned());
        options
    };
    for (options, expected) in [
        (with(1.5, 0.5, "de"), "`most_s`"),
        (with(f64::NAN, 0.5, "de"), "`most_s`"),
        (with(1.0, 7.0, "de"), "`threshold`"),
        (with(1.0, 0.5, "xx"), "`xx`"),
    ] {
        let error = refused(options);
        assert_eq!(error.kind(), ErrorKind::Option);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let mut phantoms = options();
    phantoms.transcribe.hallucination_silence_s = Some(2.0);
    let error = refused(phantoms);
    assert_eq!(error.kind(), ErrorKind::Option);
    assert!(error.to_string().contains("nothing is written of silence"), "{error}");
    let before = StreamOptions {
        before_ms: 501,
        ..options()
    };
    assert!(refused(before).to_string().contains("`before_ms`"));
    let folder = tempfile::tempdir().unwrap();
    let slow = bundle(folder.path(), "slow", &here("../../golden/speech/silero_vad"));
    let slow = Vad::load(&slow, 1).unwrap();
    let error = Stream::new(&mut models.transcriber, slow, options()).unwrap_err();
    assert!(error.to_string().contains("2000"), "{error}");

    let vad = Vad::load(&models.vad, 1).unwrap();
    let mut stream = Stream::new(&mut models.transcriber, vad, options()).unwrap();
    let cancel = CancelToken::new();
    let bad = stream.push(&mut models.transcriber, &[0.0, f32::NAN], &cancel, &mut |_| {});
    assert_eq!(bad.unwrap_err().kind(), ErrorKind::Sound);
    cancel.cancel();
    let stopped = stream.push(&mut models.transcriber, &sound(&[(0.0, 0.9)]), &cancel, &mut |_| {});
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Cancelled);
}

#[test]
fn whisper_and_silero_write_while_somebody_speaks() {
    let cache = std::env::var_os("CACTUS_TEST_MODELS").map(PathBuf::from);
    let sources = cache.map(|c| (c.join("whisper-tiny.en"), c.join("silero-vad")));
    let Some((whisper, silero)) = sources.filter(|(w, s)| w.join("model.bin").is_file() && s.is_dir()) else {
        eprintln!(
            "SKIPPED: CACTUS_TEST_MODELS has no whisper-tiny.en and silero-vad; scripts/fetch_models.py fetches them"
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut models = Models {
        transcriber: Transcriber::load(&bundle(folder.path(), "whisper", &whisper), None).unwrap(),
        vad: bundle(folder.path(), "vad", &silero.join("silero_vad_16k.safetensors")),
        _folder: folder,
    };
    let file = File::open(here("tests/files/jfk.opus")).unwrap();
    let samples = load(file, RATE as u32, Limits::default()).unwrap();
    let said = [
        "fellow americans",
        "ask what you can do for your country",
        "ask not what your country can do for you",
    ];
    let committed_s = |commit: Commit, said: &[&str], models: &mut Models| {
        let options = StreamOptions {
            commit,
            ..StreamOptions::default()
        };
        let found = events(models, &options, &samples, &[1600]);
        writes(said, &found);
        // When the first text stays.
        let first = found.iter().find_map(|e| match e {
            StreamEvent::Partial { committed, until_s, .. } if !committed.is_empty() => Some(*until_s),
            _ => None,
        });
        first.unwrap()
    };
    // The model hears the phrase and a second more, in place of half a minute.
    let cut = StreamOptions {
        margin_ms: Some(1000),
        ..StreamOptions::default()
    };
    let found = events(&mut models, &cut, &samples, &[1600]);
    writes(&said, &found);
    assert_eq!(found, events(&mut models, &cut, &samples, &[777]));
    // Each final text is there when its silence is: nothing comes between it and the last partial one.
    let lasts = found.iter().zip(&found[1..]).filter_map(|pair| match pair {
        (StreamEvent::Partial { until_s, .. }, StreamEvent::Final { reason, segment, .. }) => {
            (*reason == FinalReason::Silence).then_some(until_s - segment.end_s)
        }
        _ => None,
    });
    assert!(
        lasts.clone().count() > 0 && lasts.clone().all(|silence_s| silence_s < 0.13),
        "{found:?}"
    );
    let by_agreement = committed_s(Commit::Agreement, &said, &mut models);
    // What stays sooner is wrong more often: this model hears another word after "ask not" at first.
    let by_attention = committed_s(Commit::Attention, &said[..2], &mut models);
    assert!(by_attention < by_agreement, "{by_attention} {by_agreement}");
}

fn writes(all: &[&str], found: &[StreamEvent]) {
    let finals: Vec<&str> = found
        .iter()
        .filter_map(|e| match e {
            StreamEvent::Final { segment, .. } => Some(segment.text.as_str()),
            _ => None,
        })
        .collect();
    // Phrases are cut where he pauses, and begin and end as sentences do.
    let is_text = |c: char| c.is_alphabetic() || c == ' ';
    let text: String = finals.concat().to_lowercase().chars().filter(|&c| is_text(c)).collect();
    for said in all {
        assert!(text.contains(said), "{text}");
    }
}
