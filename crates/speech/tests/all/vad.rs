//! Where somebody speaks: a tiny model of made-up weights against what NumPy computes of it (`golden/silero_vad.py`), spans
//! against those of Silero's package, and Silero VAD itself (`silero-vad` of `scripts/fetch_models.py`).
#![allow(clippy::print_stderr, reason = "a skipped test must be seen")]

use cactus_audio::decode::{Limits, load};
use cactus_engine::CancelToken;
use cactus_import::{ConvertOptions, convert};
use cactus_speech::{ErrorKind, Span, SpanOptions, SpeechSpans, TranscribeOptions, Transcriber, Vad};
use proptest::prelude::*;
use safetensors::SafeTensors;
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn golden(path: &str) -> PathBuf {
    here("../../golden").join(path)
}

fn bundle(folder: &Path, source: &Path) -> PathBuf {
    let path = folder.join("m");
    convert(source, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
    path
}

fn tiny(folder: &Path) -> Vad {
    Vad::load(&bundle(folder, &golden("speech/silero_vad")), 1).unwrap()
}

fn expected(name: &str) -> Vec<f32> {
    expected_of("speech/silero_vad", name)
}

fn expected_of(model: &str, name: &str) -> Vec<f32> {
    let bytes = std::fs::read(golden(model).join("expected.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let values = file.tensor(name).unwrap().data().chunks(4);
    values.map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// Probabilities of a whole sound, given in pieces of these sizes, over and over.
fn heard(vad: &mut Vad, sound: &[f32], sizes: &[usize]) -> Vec<f32> {
    let (mut found, mut rest, mut sizes) = (Vec::new(), sound, sizes.iter().cycle());
    while !rest.is_empty() {
        let (now, later) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
        found.extend_from_slice(vad.push(now).unwrap());
        rest = later;
    }
    found.extend(vad.finish().unwrap());
    found
}

fn assert_near(found: &[f32], want: &[f32]) {
    assert_eq!(found.len(), want.len());
    let worst = found.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst < 1e-5, "they differ by {worst}");
}

#[test]
fn probabilities_are_those_of_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let mut vad = tiny(folder.path());
    assert_eq!((vad.sample_rate_hz(), vad.chunk_samples()), (2000, 64));
    let sound = expected("sound");
    let found = heard(&mut vad, &sound, &[sound.len()]);
    assert_near(&found, &expected("probabilities"));
    // Nothing is left of the sound before.
    assert_eq!(heard(&mut vad, &sound, &[64]), found);
    vad.push(&sound[..100]).unwrap();
    vad.reset();
    assert_eq!(heard(&mut vad, &sound, &[64]), found);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Short pieces, and long ones that make whole batches.
    #[test]
    fn probabilities_do_not_depend_on_how_sound_is_cut(sizes in prop::collection::vec(1usize..5000, 1..6)) {
        let folder = tempfile::tempdir().unwrap();
        let path = bundle(folder.path(), &golden("speech/silero_vad"));
        let sound = expected("sound").repeat(3);
        let whole = heard(&mut Vad::load(&path, 1).unwrap(), &sound, &[sound.len()]);
        let mut vad = Vad::load(&path, 1 + sizes[0] % 3).unwrap();
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&heard(&mut vad, &sound, &sizes)), bits(&whole));
    }
}

#[test]
fn awkward_sound_has_probabilities_or_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut vad = tiny(folder.path());
    assert!(vad.push(&[]).unwrap().is_empty());
    assert_eq!(vad.finish().unwrap(), None);
    assert_eq!(vad.spans(&[], &SpanOptions::default()).unwrap(), []);
    // 10 ms are less than a chunk.
    assert!(vad.push(&[0.1; 20]).unwrap().is_empty());
    assert!((0.0..=1.0).contains(&vad.finish().unwrap().unwrap()));
    let loud = vec![1e5; 640];
    assert!(vad.push(&loud).unwrap().iter().all(|p| (0.0..=1.0).contains(p)));
    vad.reset();
    let sound = expected("sound");
    for bad in [f32::NAN, f32::INFINITY, -1e30] {
        let first = vad.push(&sound[..100]).unwrap().to_vec();
        let error = vad.push(&[0.0, bad]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Sound);
        assert!(error.to_string().contains("sample 101"), "{error}");
        // Nothing was taken of what was refused.
        let found = [first, heard(&mut vad, &sound[100..], &[300])].concat();
        assert_near(&found, &expected("probabilities"));
    }
}

#[test]
fn spans_are_those_of_the_package() {
    let cases: Value = serde_json::from_slice(&std::fs::read(golden("speech/silero_vad/spans.json")).unwrap()).unwrap();
    for case in cases.as_array().unwrap() {
        let given = &case["options"];
        let ms = |name: &str| given[name].as_u64().unwrap() as u32;
        let options = SpanOptions {
            threshold: given["threshold"].as_f64().unwrap(),
            neg_threshold: given["neg_threshold"].as_f64(),
            min_speech_duration_ms: ms("min_speech_duration_ms"),
            max_speech_duration_s: given["max_speech_duration_s"].as_f64(),
            min_silence_duration_ms: ms("min_silence_duration_ms"),
            speech_pad_ms: ms("speech_pad_ms"),
            ..SpanOptions::default()
        };
        let mut spans = SpeechSpans::new(&options, 16_000, 512).unwrap();
        let mut found: Vec<Span> = Vec::new();
        for p in case["probabilities"].as_array().unwrap() {
            found.extend(spans.push(p.as_f64().unwrap() as f32));
        }
        found.extend(spans.finish(case["samples"].as_u64().unwrap()));
        let pair = |span: &Value| Span {
            start: span[0].as_u64().unwrap(),
            end: span[1].as_u64().unwrap(),
        };
        let want: Vec<Span> = case["spans"].as_array().unwrap().iter().map(pair).collect();
        assert_eq!(found, want, "{case}");
    }
}

#[test]
fn spans_come_as_soon_as_they_are_sure() {
    let mut spans = SpeechSpans::new(&SpanOptions::default(), 16_000, 512).unwrap();
    let mut at = Vec::new();
    // 20 chunks of speech, then silence: over after 100 ms of it, or 4 chunks.
    for i in 0..40 {
        let found = spans.push(if i < 20 { 0.9 } else { 0.1 }).collect::<Vec<_>>();
        assert_eq!(spans.is_speech(), i < 24, "{i}");
        at.extend(found.into_iter().map(|span| (i, span)));
    }
    assert_eq!(
        at,
        [(
            24,
            Span {
                start: 0,
                end: 20 * 512 + 480
            }
        )]
    );
    assert_eq!(spans.finish(40 * 512).count(), 0);
}

#[test]
fn options_without_meaning_are_refused_by_name() {
    let with = |change: fn(&mut SpanOptions)| {
        let mut options = SpanOptions::default();
        change(&mut options);
        let error = SpeechSpans::new(&options, 16_000, 512).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Option);
        error.to_string()
    };
    for (change, name) in [
        ((|o| o.threshold = 1.5) as fn(&mut SpanOptions), "`threshold`"),
        (|o| o.threshold = f64::NAN, "threshold`"),
        (|o| o.neg_threshold = Some(-0.1), "`neg_threshold`"),
        (|o| o.neg_threshold = Some(0.6), "`neg_threshold`"),
        (|o| o.max_speech_duration_s = Some(0.0), "`max_speech_duration_s`"),
        (|o| o.max_speech_duration_s = Some(f64::NAN), "`max_speech_duration_s`"),
    ] {
        let error = with(change);
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn bundles_that_do_something_else_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (source, what) in [
        ("speech/whisper", "writes down"),
        ("models/qwen2_tied", "causal_lm_logits"),
    ] {
        let path = folder.path().join(source.replace('/', "-"));
        convert(&golden(source), &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
        let error = Vad::load(&path, 1).unwrap_err().to_string();
        assert!(
            error.contains("does not find speech") && error.contains(what),
            "{error}"
        );
    }
    let path = bundle(folder.path(), &golden("speech/silero_vad"));
    let error = Transcriber::load(&path, Some(1)).unwrap_err().to_string();
    assert!(error.contains("does not transcribe"), "{error}");
}

/// The words are those of the spans alone; times are those of the recording.
#[test]
fn spans_alone_are_transcribed_at_their_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path(), &golden("speech/whisper"));
    let mut transcriber = Transcriber::load(&path, Some(1)).unwrap();
    let samples: Vec<f32> = (0..96_000)
        .map(|i| (0.5 * (f64::from(i) * f64::from(i) * 1e-5).sin()) as f32)
        .collect();
    let spans = [(8000, 24_000), (64_000, 88_000)].map(|(start, end)| Span { start, end });
    let speech = [&samples[8000..24_000], &samples[64_000..88_000]].concat();
    let (options, cancel) = (TranscribeOptions::default(), CancelToken::new());
    let alone = transcriber.transcribe(&speech, &options, &cancel, &mut |_| {}).unwrap();
    let (mut told, mut done) = (Vec::new(), Vec::new());
    let found = transcriber
        .transcribe_spans(&samples, &spans, &options, &cancel, &mut |progress| {
            told.extend_from_slice(progress.segments);
            done.push(progress.done_s);
            assert_eq!(progress.duration_s, 6.0);
        })
        .unwrap();
    assert_eq!((found.text(), found.duration_s), (alone.text(), 6.0));
    assert_eq!(told, found.segments);
    assert!(done.is_sorted() && done.last() == Some(&6.0), "{done:?}");
    assert!(!found.segments.is_empty());
    for segment in &found.segments {
        let inside = |s: f64| (0.5..=1.5).contains(&s) || (4.0..=5.5).contains(&s);
        assert!(inside(segment.start_s) && inside(segment.end_s), "{segment:?}");
    }
    let nothing = transcriber
        .transcribe_spans(&samples, &[], &options, &cancel, &mut |_| {})
        .unwrap();
    assert_eq!((nothing.segments.len(), nothing.duration_s), (0, 6.0));
    let back = [spans[1], spans[0]];
    let error = transcriber.transcribe_spans(&samples, &back, &options, &cancel, &mut |_| {});
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Option);
}

/// The network for `rate_hz` of a program in ONNX.
fn of_program(folder: &Path, source: &Path, rate_hz: u32) -> Vad {
    let options = ConvertOptions {
        sample_rate_hz: Some(rate_hz),
        replace: true,
        ..ConvertOptions::default()
    };
    let path = folder.join("m");
    convert(source, &path, &options, &mut |_, _| {}).unwrap();
    let vad = Vad::load(&path, 1).unwrap();
    assert_eq!(
        (vad.sample_rate_hz(), vad.chunk_samples()),
        (rate_hz, rate_hz as usize / 125 * 4)
    );
    vad
}

#[test]
fn programs_in_onnx_give_what_onnx_runtime_does() {
    let folder = tempfile::tempdir().unwrap();
    let sound = expected_of("onnx/silero_vad", "sound");
    for name in ["branches", "products"] {
        for rate_hz in [2000, 1000] {
            let source = golden(&format!("onnx/silero_vad/{name}.onnx"));
            let mut vad = of_program(folder.path(), &source, rate_hz);
            let want = expected_of("onnx/silero_vad", &format!("probabilities.{rate_hz}"));
            assert_near(&heard(&mut vad, &sound, &[700, 1]), &want);
        }
    }
}

/// Versions 5 and 6, for 16 and 8 kHz.
#[test]
fn silero_in_onnx_gives_what_onnx_runtime_does() {
    let Some(models) = std::env::var_os("CACTUS_TEST_MODELS").map(PathBuf::from) else {
        eprintln!(
            "SKIPPED: CACTUS_TEST_MODELS is not set; scripts/fetch_models.py fetches silero-vad and silero-vad-5"
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let sound = signal();
    let cases: Value = serde_json::from_slice(&std::fs::read(golden("real/silero_onnx.json")).unwrap()).unwrap();
    for case in cases.as_array().unwrap() {
        let source = models.join(case["file"].as_str().unwrap());
        if !source.is_file() {
            eprintln!("SKIPPED: no {}; scripts/fetch_models.py fetches it", source.display());
            continue;
        }
        let rate_hz = u32::try_from(case["rate_hz"].as_u64().unwrap()).unwrap();
        let mut vad = of_program(folder.path(), &source, rate_hz);
        let want: Vec<f32> = serde_json::from_value(case["probabilities"].clone()).unwrap();
        assert_near(&heard(&mut vad, &sound, &[1000]), &want);
    }
}

/// A synthetic signal of 0.4 s.
fn signal() -> Vec<f32> {
    let bytes = std::fs::read(golden("features/signal.s16le")).unwrap();
    let samples = bytes.as_chunks::<2>().0.iter();
    samples.map(|b| f32::from(i16::from_le_bytes(*b)) / 32_768.0).collect()
}

#[test]
fn silero_finds_speech() {
    let models = std::env::var_os("CACTUS_TEST_MODELS").map(|f| PathBuf::from(f).join("silero-vad"));
    let Some(source) = models.filter(|f| f.join("silero_vad_16k.safetensors").is_file()) else {
        eprintln!("SKIPPED: CACTUS_TEST_MODELS has no silero-vad; scripts/fetch_models.py fetches it");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut vad = Vad::load(&bundle(folder.path(), &source), 1).unwrap();
    assert_eq!((vad.sample_rate_hz(), vad.chunk_samples()), (16_000, 512));
    // What NumPy computes of it.
    let found = heard(&mut vad, &signal(), &[1000]);
    let want: Vec<f32> = serde_json::from_slice(&std::fs::read(golden("real/silero_vad.json")).unwrap()).unwrap();
    assert_near(&found, &want);

    // John F. Kennedy, who pauses between the parts of his sentence.
    let file = File::open(here("tests/files/jfk.opus")).unwrap();
    let samples = load(file, 16_000, Limits::default()).unwrap();
    let spans = vad.spans(&samples, &SpanOptions::default()).unwrap();
    let seconds: Vec<[f64; 2]> = spans
        .iter()
        .map(|s| [s.start, s.end].map(|n| n as f64 / 16_000.0))
        .collect();
    let want = [
        [0.290, 2.302],
        [3.266, 3.870],
        [3.970, 4.446],
        [5.378, 7.678],
        [8.162, 10.622],
    ];
    assert_eq!(seconds.len(), want.len(), "{seconds:?}");
    for (found, want) in seconds.iter().zip(want) {
        assert!(
            (found[0] - want[0]).abs() < 0.07 && (found[1] - want[1]).abs() < 0.07,
            "{seconds:?}"
        );
    }
    // A pause of any length, and noise of a recorder: one span for the sentence, and nothing else.
    let noise: Vec<f32> = (0..160_000u32)
        .map(|i| (f64::from(i.wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 24) - 0.5) as f32 * 1e-3)
        .collect();
    let longer = [&noise[..], &samples, &noise].concat();
    let joined = vad.spans(&longer, &SpanOptions::for_transcription()).unwrap();
    let [Span { start, end }] = joined[..] else {
        panic!("{joined:?}");
    };
    assert!(
        (150_000..170_000).contains(&start) && (325_000..345_000).contains(&end),
        "{start} {end}"
    );
}
