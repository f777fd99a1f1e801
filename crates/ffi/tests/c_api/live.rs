//! Live speech by the functions of the public engine, with a tiny Whisper of random weights and a detector that hears one tone.

use crate::support::{buffered, c, error};
use cactus_engine::CancelToken;
use cactus_ffi::*;
use cactus_import::{ConvertOptions, convert};
use cactus_speech::{Stream, StreamEvent, StreamOptions, TranscribeOptions, Transcriber, Vad};
use cactus_testkit::tone;
use serde_json::{Value, json};
use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

/// A bundle that hears, with a bundle that finds speech in its folder `vad`.
fn bundle() -> &'static Path {
    static MADE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("whisper");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/speech/whisper");
        convert(&source, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
        let detector = tone::write_detector(folder.path()).unwrap();
        convert(&detector, &path.join("vad"), &ConvertOptions::default(), &mut |_, _| {}).unwrap();
        (folder, path)
    });
    path
}

/// The window of the tiny model is one second long, and in a language without spaces characters are confirmed.
const OPTIONS: &str = r#"{"language": "zh", "min_chunk_sec": 0.05, "silence_sec": 0.2, "max_segment_sec": 1.0}"#;

fn open(path: &Path) -> *mut c_void {
    let model = unsafe { cactus_init(c(path.to_str().unwrap()).as_ptr(), null(), false) };
    assert!(!model.is_null(), "{}", error().1);
    model
}

fn start(model: *mut c_void, options: &str) -> *mut c_void {
    unsafe { cactus_stream_transcribe_start(model, c(options).as_ptr()) }
}

fn process(stream: *mut c_void, pcm: &[u8], room: usize) -> (c_int, Value) {
    let (code, text) = buffered(room, |buffer, size| unsafe {
        cactus_stream_transcribe_process(stream, pcm.as_ptr(), pcm.len(), buffer, size)
    });
    (code, serde_json::from_str(&text).unwrap_or_default())
}

fn stop(stream: *mut c_void) -> (c_int, Value) {
    let (code, text) = buffered(1 << 16, |buffer, size| unsafe {
        cactus_stream_transcribe_stop(stream, buffer, size)
    });
    (code, serde_json::from_str(&text).unwrap())
}

/// A phrase, one that is too long, a click, and one that the end cuts.
fn sound() -> (Vec<f32>, Vec<u8>) {
    let samples = tone::sound(&[(0.5, 0.3), (0.6, 2.2), (0.6, 0.05), (0.6, 0.5)]);
    let pcm: Vec<i16> = samples.iter().map(|x| (x * 32768.0) as i16).collect();
    let heard = pcm.iter().map(|&x| f32::from(x) / 32768.0).collect();
    (heard, pcm.iter().flat_map(|x| x.to_le_bytes()).collect())
}

/// What the engine makes of it.
fn expected(samples: &[f32]) -> Vec<StreamEvent> {
    let mut transcriber = Transcriber::load(bundle(), None).unwrap();
    let vad = Vad::load(&bundle().join("vad"), 1).unwrap();
    let options = StreamOptions {
        transcribe: TranscribeOptions {
            language: Some("zh".to_owned()),
            ..TranscribeOptions::default()
        },
        // So often, texts of random weights have something in common from one step to the next.
        step_ms: 50,
        silence_ms: 200,
        most_s: Some(1.0),
        ..StreamOptions::default()
    };
    let mut stream = Stream::new(&mut transcriber, vad, options).unwrap();
    let (cancel, mut events) = (CancelToken::new(), Vec::new());
    stream
        .push(&mut transcriber, samples, &cancel, &mut |e| events.push(e))
        .unwrap();
    stream
        .finish(&mut transcriber, &cancel, &mut |e| events.push(e))
        .unwrap();
    events
}

fn events(found: &Value) -> Vec<Value> {
    found["events"].as_array().unwrap().clone()
}

#[test]
fn pieces_of_sound_give_the_events_of_the_engine_and_text_that_only_grows() {
    let (samples, pcm) = sound();
    let want = expected(&samples);
    let text: String = want
        .iter()
        .filter_map(|event| match event {
            StreamEvent::Final { segment, .. } => Some(segment.text.as_str()),
            _ => None,
        })
        .collect();
    let want: Vec<Value> = want.iter().map(|event| json!(event)).collect();
    let model = open(bundle());
    for size in [640, 3200, pcm.len()] {
        let stream = start(model, OPTIONS);
        assert!(!stream.is_null(), "{}", error().1);
        let (mut found, mut confirmed, mut early, mut pending) = (Vec::new(), String::new(), 0, 0);
        for piece in pcm.chunks(size) {
            let (code, result) = process(stream, piece, 1 << 16);
            assert!(code > 0 && result["success"] == true, "{result}");
            let pieces = events(&result);
            let is_final = pieces.iter().any(|event| event["event"] == "final");
            let new = result["confirmed"].as_str().unwrap();
            early += usize::from(!is_final && !new.is_empty());
            pending += usize::from(result["pending"] != "");
            confirmed.push_str(new);
            found.extend(pieces);
        }
        let (code, result) = stop(stream);
        assert!(code > 0 && result["pending"] == "", "{result}");
        assert_eq!(result["language"], "zh");
        confirmed.push_str(result["confirmed"].as_str().unwrap());
        found.extend(events(&result));
        assert_eq!(found, want, "pieces of {size} bytes");
        assert!(!text.is_empty() && confirmed == text);
        if size < pcm.len() {
            assert!(
                early > 0 && pending > 0,
                "text comes while somebody speaks: {early}, {pending}"
            );
        }
        assert_eq!(process(stream, &pcm, 1 << 16).0, -1);
        assert_eq!(error().0, Code::Handle as i32, "closed");
    }
    unsafe { cactus_destroy(model) };
}

#[test]
fn streams_share_a_model_and_results_that_do_not_fit_are_kept() {
    let (samples, pcm) = sound();
    let want: Vec<Value> = expected(&samples).iter().map(|event| json!(event)).collect();
    let model = open(bundle());
    let vad = bundle().join("vad");
    let mut named: Value = serde_json::from_str(OPTIONS).unwrap();
    named["vad"] = json!(vad.to_str().unwrap());
    let streams = [start(model, OPTIONS), start(model, &named.to_string())];
    let mut found = [Vec::new(), Vec::new()];
    for piece in pcm.chunks(6400) {
        for (stream, found) in streams.iter().zip(&mut found) {
            assert_eq!(process(*stream, piece, 32).0, -2);
            let (code, text) = buffered(1 << 16, |buffer, size| unsafe {
                cactus_stream_transcribe_process(*stream, null(), 0, buffer, size)
            });
            assert!(code > 0, "{text}");
            found.extend(events(&serde_json::from_str(&text).unwrap()));
        }
    }
    for (stream, found) in streams.iter().zip(&mut found) {
        found.extend(events(&stop(*stream).1));
        assert_eq!(*found, want);
    }
    unsafe { cactus_destroy(model) };
}

#[test]
fn wrong_calls_say_what_is_wrong_and_a_closed_model_ends_its_streams() {
    let model = open(bundle());
    let refused = |model: *mut c_void, options: &str, says: &str| {
        assert!(start(model, options).is_null(), "{options}");
        let message = error().1;
        assert!(message.contains(says), "{says}: {message}");
    };
    for (options, says) in [
        ("[]", "options_json"),
        (r#"{"vad": 5}"#, "`vad`"),
        (r#"{"vad": "/nowhere"}"#, "/nowhere"),
        (r#"{"language": "xx"}"#, "`xx`"),
        (r#"{"min_chunk_sec": -1}"#, "`min_chunk_sec`"),
        (r#"{"silence_sec": 1e9}"#, "`silence_sec`"),
        (r#"{"max_segment_sec": 7}"#, "`most_s`"),
        (r#"{"threshold": 7, "max_segment_sec": 1}"#, "`threshold`"),
    ] {
        refused(model, options, says);
    }
    let finds = open(&bundle().join("vad"));
    refused(finds, OPTIONS, "`cactus_vad`");
    refused(null_mut(), OPTIONS, "NULL");
    unsafe { cactus_destroy(finds) };

    let (_, pcm) = sound();
    let stream = start(model, OPTIONS);
    let (code, found) = process(stream, &pcm[..3], 1 << 16);
    assert_eq!((code, &found["success"]), (-1, &json!(false)));
    assert!(found["error"].as_str().unwrap().contains("found 3 bytes"), "{found}");
    for wrong in [null_mut(), model] {
        assert_eq!(process(wrong, &pcm, 1 << 16).0, -1);
        assert_eq!(error().0, Code::Handle as i32);
        assert_eq!(unsafe { cactus_stream_transcribe_stop(wrong, null_mut(), 0) }, -1);
    }
    unsafe { cactus_destroy(model) };
    let (code, found) = process(stream, &pcm, 1 << 16);
    assert_eq!((code, &found["error"]), (-1, &json!("the model was closed")));
    assert_eq!(unsafe { cactus_stream_transcribe_stop(stream, null_mut(), 0) }, 0);
    assert_eq!(unsafe { cactus_stream_transcribe_stop(stream, null_mut(), 0) }, -1);
}
