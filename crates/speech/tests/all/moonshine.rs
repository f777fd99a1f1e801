//! A model that hears samples as they are: whole recordings in pieces, and live, with tiny ones of random weights, and with Moonshine
//! tiny (`moonshine-tiny` of `scripts/fetch_models.py`, where `CACTUS_TEST_MODELS` points to).
#![allow(clippy::print_stderr, reason = "a skipped test must be seen")]

use cactus_audio::decode::{Limits, load};
use cactus_engine::CancelToken;
use cactus_import::{ConvertOptions, convert};
use cactus_passes::{Bits, Policy};
use cactus_speech::{
    Commit, ErrorKind, Result, Span, Stream, StreamEvent, StreamOptions, TranscribeOptions, Transcriber, Transcript,
    Vad,
};
use cactus_testkit::tone;
use std::fs::File;
use std::path::{Path, PathBuf};

fn bundle(folder: &Path, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/speech")
        .join(name);
    let path = folder.join(name);
    convert(&source, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
    path
}

/// A tone that rises, 16,000 samples a second.
fn sound(seconds: f64) -> Vec<f32> {
    let n = (seconds * 16_000.0) as usize;
    let tone = |i: usize| (0.5 * (i as f64 * i as f64 * 1e-5).sin()) as f32;
    (0..n).map(tone).collect()
}

fn said(transcriber: &mut Transcriber, samples: &[f32], options: &TranscribeOptions) -> Result<Transcript> {
    transcriber.transcribe(samples, options, &CancelToken::new(), &mut |_| {})
}

#[test]
fn long_sound_is_cut_where_it_is_quiet() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["moonshine", "moonshine_wide"] {
        let path = bundle(folder.path(), name);
        let mut samples = sound(34.0);
        samples[16_000 * 12..16_000 * 13].fill(0.0);
        // Nobody speaks for a whole piece.
        samples.extend(vec![0.0; 16_000 * 21]);
        let mut first = None;
        for threads in [1, 3] {
            let mut transcriber = Transcriber::load(&path, Some(threads)).unwrap();
            assert!(transcriber.has_words() && transcriber.languages().count() == 0);
            let mut told = Vec::new();
            let options = TranscribeOptions::default();
            let found = transcriber
                .transcribe(&samples, &options, &CancelToken::new(), &mut |p| told.push(p.done_s))
                .unwrap();
            assert!(
                told.windows(2).all(|w| w[0] < w[1]) && told.last() == Some(&55.0),
                "{told:?}"
            );
            let [one, rest @ ..] = &found.segments[..] else {
                panic!("{found:?}")
            };
            assert!(one.start_s == 0.0 && (12.1..12.95).contains(&one.end_s), "{one:?}");
            assert!(rest.first().is_some_and(|s| s.start_s == one.end_s), "{rest:?}");
            for segment in &found.segments {
                // Six and a half tokens a second, and the memory of the decoder.
                let limit = ((segment.end_s - segment.start_s) * 6.5).ceil() as usize;
                assert!(segment.tokens.len() <= limit.min(63), "{segment:?}");
                assert!((segment.temperature, segment.no_speech) == (0.0, 0.0), "{segment:?}");
            }
            let want = first.get_or_insert_with(|| found.clone());
            assert_eq!(found, *want, "{threads} threads");
        }
    }
}

#[test]
fn words_are_the_text_and_follow_each_other() {
    let folder = tempfile::tempdir().unwrap();
    for (name, rate_hz) in [
        ("moonshine", 16e3),
        ("moonshine_wide", 16e3),
        ("moonshine_streaming", 16e3),
        ("moonshine_streaming_wide", 8e3),
    ] {
        let path = bundle(folder.path(), name);
        let samples = sound(9.0);
        let with = TranscribeOptions {
            words: true,
            ..TranscribeOptions::default()
        };
        let mut first = None;
        for threads in [1, 3] {
            let mut transcriber = Transcriber::load(&path, Some(threads)).unwrap();
            let found = said(&mut transcriber, &samples, &with).unwrap();
            let without = said(&mut transcriber, &samples, &TranscribeOptions::default()).unwrap();
            assert_eq!(found.text(), without.text(), "{name}: words change no text");
            let (mut words, mut at_s) = (0, 0.0);
            for segment in &found.segments {
                let text: String = segment.words.iter().map(|w| w.text.as_str()).collect();
                assert_eq!(text.trim(), segment.text.trim(), "{name}");
                for word in &segment.words {
                    assert!(
                        at_s <= word.start_s && word.start_s <= word.end_s,
                        "{name}: {word:?} after {at_s}"
                    );
                    assert!((0.0..=1.0).contains(&word.probability), "{word:?}");
                    at_s = word.start_s;
                    words += 1;
                }
                assert!(segment.end_s <= samples.len() as f64 / rate_hz, "{segment:?}");
            }
            assert!(words > 1, "{name}: {found:?}");
            let want = first.get_or_insert_with(|| found.clone());
            assert_eq!(found, *want, "{name}, {threads} threads");
        }
    }
}

#[test]
fn text_of_a_short_sound_is_as_long_as_the_sound_lets_it_be() {
    let folder = tempfile::tempdir().unwrap();
    let mut transcriber = Transcriber::load(&bundle(folder.path(), "moonshine"), Some(1)).unwrap();
    let options = TranscribeOptions::default();
    let mut lengths = Vec::new();
    for (seconds, most) in [(0.001, 1), (0.15, 1), (0.16, 2), (1.0, 7), (2.0, 13)] {
        let found = said(&mut transcriber, &sound(seconds), &options).unwrap();
        let tokens: usize = found.segments.iter().map(|s| s.tokens.len()).sum();
        assert!(tokens <= most, "{seconds} s: {found:?}");
        assert!(found.segments.iter().all(|s| s.end_s <= seconds));
        lengths.push(tokens);
    }
    // This one goes on until it is stopped.
    assert_eq!(lengths.last(), Some(&13));
    assert!(said(&mut transcriber, &[], &options).unwrap().segments.is_empty());
}

/// As far as the length of the sound lets it write.
#[test]
fn both_generations_write_what_transformers_does() {
    let folder = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/speech");
    for (name, rate_hz) in [
        ("moonshine", 16e3),
        ("moonshine_wide", 16e3),
        ("moonshine_streaming", 16e3),
        ("moonshine_streaming_wide", 8e3),
    ] {
        let path = folder.path().join(name);
        let exact = ConvertOptions {
            policy: Policy::uniform(Bits::from_number(32).unwrap()),
            ..ConvertOptions::default()
        };
        convert(&golden.join(name), &path, &exact, &mut |_, _| {}).unwrap();
        let bytes = std::fs::read(golden.join(name).join("expected.safetensors")).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let heard = file.tensor("input_values").unwrap();
        let (values, _) = heard.data().as_chunks::<4>();
        let samples: Vec<f32> = values.iter().map(|v| f32::from_le_bytes(*v)).collect();
        let told: serde_json::Value =
            serde_json::from_slice(&std::fs::read(golden.join(name).join("expected.json")).unwrap()).unwrap();
        let want = told.pointer("/greedy/tokens").unwrap().as_array().unwrap().iter();
        // Its text ends with token 2.
        let want: Vec<u64> = want.map(|t| t.as_u64().unwrap()).take_while(|t| *t != 2).collect();
        let mut transcriber = Transcriber::load(&path, Some(1)).unwrap();
        let found = said(&mut transcriber, &samples, &TranscribeOptions::default()).unwrap();
        let tokens: Vec<u64> = found
            .segments
            .iter()
            .flat_map(|s| &s.tokens)
            .map(|&t| t.into())
            .collect();
        let most = (samples.len() as f64 / rate_hz * 6.5).ceil() as usize;
        assert_eq!(tokens, want[..most.min(want.len())], "{name}");
    }
}

#[test]
fn spans_are_pieces_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut transcriber = Transcriber::load(&bundle(folder.path(), "moonshine"), Some(1)).unwrap();
    let samples = sound(9.0);
    let spans = [(16_000, 48_000), (64_000, 112_000), (128_000, 144_000)].map(|(start, end)| Span { start, end });
    let options = TranscribeOptions::default();
    let found = transcriber
        .transcribe_spans(&samples, &spans, &options, &CancelToken::new(), &mut |_| {})
        .unwrap();
    assert_eq!(found.segments.len(), 3);
    for (segment, span) in found.segments.iter().zip(spans) {
        let (start, end) = (span.start as usize, span.end as usize);
        assert_eq!(
            (segment.start_s, segment.end_s),
            (start as f64 / 16e3, end as f64 / 16e3)
        );
        let alone = said(&mut transcriber, &samples[start..end], &options).unwrap();
        assert_eq!(alone.segments[0].tokens, segment.tokens);
    }
}

#[test]
fn options_that_such_a_model_lacks_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let mut transcriber = Transcriber::load(&bundle(folder.path(), "moonshine"), Some(1)).unwrap();
    let plain = TranscribeOptions::default;
    for (options, why) in [
        (
            TranscribeOptions {
                language: Some("de".into()),
                ..plain()
            },
            "knows one language alone",
        ),
        (
            TranscribeOptions {
                translate: true,
                ..plain()
            },
            "does not translate",
        ),
        (
            TranscribeOptions {
                initial_prompt: "Hm.".into(),
                ..plain()
            },
            "takes no initial prompt",
        ),
        (
            TranscribeOptions {
                hotwords: vec!["Qwen".into(); 201],
                ..plain()
            },
            "at most 200 hotwords, found 201",
        ),
        (
            TranscribeOptions {
                carry_tokens: 4,
                ..plain()
            },
            "nothing to carry",
        ),
        (
            TranscribeOptions {
                hallucination_silence_s: Some(2.0),
                ..plain()
            },
            "writes no times",
        ),
    ] {
        let error = transcriber.check(&options).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Option && error.to_string().contains(why),
            "{error}"
        );
        let error = said(&mut transcriber, &sound(0.5), &options).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Option && error.to_string().contains(why),
            "{error}"
        );
    }
    // What needs nothing of the model works.
    let greedy = said(&mut transcriber, &sound(2.0), &plain()).unwrap();
    let beams = TranscribeOptions { beams: 3, ..plain() };
    let beams = said(&mut transcriber, &sound(2.0), &beams).unwrap();
    assert!(beams.segments[0].mean_logprob >= greedy.segments[0].mean_logprob);
    let drawn = TranscribeOptions {
        temperature: 0.7,
        ..plain()
    };
    assert_eq!(
        said(&mut transcriber, &sound(2.0), &drawn).unwrap().segments[0].temperature,
        0.7
    );
    assert_eq!(transcriber.detect_language(&sound(1.0)).unwrap(), []);
    for bad in [f32::NAN, f32::NEG_INFINITY] {
        let mut samples = sound(0.5);
        samples[77] = bad;
        let error = said(&mut transcriber, &samples, &plain()).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Sound && error.to_string().contains("sample 77"),
            "{error}"
        );
    }
}

/// Words that are one token of the tiny models.
const WORDS: [&str; 8] = ["a", "an", "and", "ar", "f", "i", "s", "th"];

#[test]
fn hotwords_change_near_ties_alone() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["moonshine", "moonshine_streaming"] {
        let mut transcriber = Transcriber::load(&bundle(folder.path(), name), Some(1)).unwrap();
        for (beams, temperature) in [(1, 0.0), (4, 0.0), (1, 0.5)] {
            let (mut heard, mut changed) = (0, 0);
            for sound in (1..9).map(|n| sound(4.0)[n * 4000..].to_vec()) {
                let mut found = |hotwords: &[&str]| {
                    let options = TranscribeOptions {
                        hotwords: hotwords.iter().map(|&w| w.to_owned()).collect(),
                        beams,
                        temperature,
                        ..TranscribeOptions::default()
                    };
                    said(&mut transcriber, &sound, &options).unwrap().segments
                };
                let without = found(&[]);
                assert_eq!(found(&["  ", ""]), without, "{name}");
                let with = found(&WORDS);
                // Log-probabilities are the model's own: no bonus makes one of them larger than 0.
                assert!(with.iter().all(|segment| segment.mean_logprob <= 0.0));
                heard += without.iter().map(|s| s.tokens.len()).sum::<usize>();
                changed += usize::from(with != without);
            }
            assert!(heard > 20, "{name}: {heard} tokens");
            assert!(
                changed > 0,
                "{name}: no hotword was near, {beams} beams at {temperature}"
            );
        }
    }
}

#[test]
fn live_text_has_its_hotwords_and_only_grows() {
    let folder = tempfile::tempdir().unwrap();
    let vad = folder.path().join("vad");
    let detector = tone::write_detector(folder.path()).unwrap();
    convert(&detector, &vad, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
    let mut transcriber = Transcriber::load(&bundle(folder.path(), "moonshine"), Some(1)).unwrap();
    let samples = tone::sound(&[(0.5, 0.4), (0.6, 3.1), (0.6, 1.0)]);
    let mut events = |hotwords: &[&str], size: usize| {
        let options = StreamOptions {
            step_ms: 400,
            silence_ms: 200,
            transcribe: TranscribeOptions {
                hotwords: hotwords.iter().map(|&w| w.to_owned()).collect(),
                ..TranscribeOptions::default()
            },
            ..StreamOptions::default()
        };
        let mut stream = Stream::new(&mut transcriber, Vad::load(&vad, 1).unwrap(), options).unwrap();
        let (cancel, mut found) = (CancelToken::new(), Vec::new());
        for part in samples.chunks(size) {
            stream
                .push(&mut transcriber, part, &cancel, &mut |e| found.push(e))
                .unwrap();
        }
        stream
            .finish(&mut transcriber, &cancel, &mut |e| found.push(e))
            .unwrap();
        found
    };
    let (without, with) = (events(&[], 1000), events(&WORDS, 1000));
    assert_ne!(with, without, "no hotword was near");
    assert_eq!(events(&WORDS, 333), with);
    let mut committed = String::new();
    for event in with {
        match event {
            StreamEvent::SpeechStart { .. } => committed.clear(),
            StreamEvent::Partial { committed: now, .. } => {
                assert!(now.starts_with(&committed), "{committed:?} {now:?}");
                committed = now;
            }
            StreamEvent::Final { segment, .. } => assert!(segment.text.starts_with(&committed), "{segment:?}"),
            _ => {}
        }
    }
}

#[test]
fn moonshine_tiny_writes_what_is_said() {
    let models = std::env::var_os("CACTUS_TEST_MODELS").map(|f| PathBuf::from(f).join("moonshine-tiny"));
    let Some(source) = models.filter(|f| f.join("encoder_model.ort").is_file()) else {
        eprintln!("SKIPPED: CACTUS_TEST_MODELS has no moonshine-tiny; scripts/fetch_models.py fetches it");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m");
    convert(&source, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
    let mut transcriber = Transcriber::load(&path, None).unwrap();
    // John F. Kennedy, inaugural address, 1961: a work of the United States' government, in the public domain.
    let file = File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/jfk.opus")).unwrap();
    let samples = load(file, transcriber.sample_rate_hz(), Limits::default()).unwrap();
    let options = TranscribeOptions::default();
    let sentence =
        "And so my fellow Americans ask not what your country can do for you, ask what you can do for your country.";
    let found = said(&mut transcriber, &samples, &options).unwrap();
    assert_eq!(found.text(), sentence);
    // Again after a pause: in pieces, whose texts are parted by spaces.
    let pause = vec![0.0; 12 * 16_000];
    let longer = [&samples[..], &pause, &samples].concat();
    let found = said(&mut transcriber, &longer, &options).unwrap();
    assert_eq!(
        found.text().matches("what you can do for your country.").count(),
        2,
        "{}",
        found.text()
    );
    assert!(found.text().contains(". And so"), "{}", found.text());
    assert_eq!(
        said(&mut transcriber, &vec![0.0; 16_000 * 40], &options)
            .unwrap()
            .segments,
        []
    );
}

#[test]
fn live_text_grows_to_the_final_one() {
    let folder = tempfile::tempdir().unwrap();
    let vad = folder.path().join("vad");
    let detector = tone::write_detector(folder.path()).unwrap();
    convert(&detector, &vad, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
    for (name, most_s) in [("moonshine", 30.0), ("moonshine_streaming", 1.28)] {
        grows(&bundle(folder.path(), name), &vad, most_s);
    }
}

fn grows(path: &Path, vad: &Path, most_s: f64) {
    let mut transcriber = Transcriber::load(path, Some(1)).unwrap();
    let samples = tone::sound(&[(0.5, 0.4), (0.6, 3.1), (0.6, 1.0)]);
    let options = StreamOptions {
        step_ms: 400,
        silence_ms: 200,
        ..StreamOptions::default()
    };
    let mut all = None;
    for size in [samples.len(), 1000, 333] {
        let mut stream = Stream::new(&mut transcriber, Vad::load(vad, 1).unwrap(), options.clone()).unwrap();
        let (cancel, mut found) = (CancelToken::new(), Vec::new());
        for part in samples.chunks(size) {
            stream
                .push(&mut transcriber, part, &cancel, &mut |e| found.push(e))
                .unwrap();
        }
        stream
            .finish(&mut transcriber, &cancel, &mut |e| found.push(e))
            .unwrap();
        let want = all.get_or_insert_with(|| found.clone());
        assert_eq!(found, *want, "pushes of {size}");
    }
    let (mut committed, mut finals) = (String::new(), 0);
    for event in all.unwrap() {
        match event {
            StreamEvent::SpeechStart { .. } => committed.clear(),
            StreamEvent::Partial { committed: now, .. } => {
                assert!(now.starts_with(&committed), "{committed:?} {now:?}");
                committed = now;
            }
            StreamEvent::Final { segment, language, .. } => {
                assert!(
                    segment.text.starts_with(&committed) && language.is_none(),
                    "{committed:?} {segment:?}"
                );
                finals += 1;
            }
            _ => {}
        }
    }
    assert!(finals >= 1);
    let too_long = StreamOptions {
        most_s: Some(most_s + 0.1),
        ..options
    };
    let error = Stream::new(&mut transcriber, Vad::load(vad, 1).unwrap(), too_long).unwrap_err();
    assert!(error.to_string().contains(&format!("from 1 to {most_s},")), "{error}");
    let looking = StreamOptions {
        commit: Commit::Attention,
        ..StreamOptions::default()
    };
    let error = Stream::new(&mut transcriber, Vad::load(vad, 1).unwrap(), looking).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Option);
    assert!(error.to_string().contains("commit by agreement"), "{error}");
}
