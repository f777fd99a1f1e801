//! Transcriptions as requests, with a tiny model of random weights.

use crate::support::{c, error, taken};
use cactus_ffi::*;
use cactus_import::{ConvertOptions, convert};
use serde_json::Value;
use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

fn bundle() -> &'static Path {
    static MADE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/speech/whisper");
        let path = folder.path().join("whisper");
        convert(&source, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
        (folder, path)
    });
    path
}

struct Hears(*mut c_void);

impl Hears {
    fn open() -> Hears {
        let model = unsafe { cactus_init(c(bundle().to_str().unwrap()).as_ptr(), null(), false) };
        assert!(!model.is_null(), "{}", error().1);
        Hears(model)
    }

    fn start(&self, pcm: &[u8], options: &str) -> Result<*mut cactus_request, (i32, String)> {
        let (options, mut request) = (c(options), null_mut());
        let (samples, bytes) = (pcm.as_ptr(), pcm.len());
        match unsafe {
            cactus_transcription_start(
                self.0,
                null(),
                samples,
                bytes,
                options.as_ptr(),
                None,
                null_mut(),
                &raw mut request,
            )
        } {
            0 => Ok(request),
            _ => Err(error()),
        }
    }
}

impl Drop for Hears {
    fn drop(&mut self) {
        unsafe { cactus_destroy(self.0) };
    }
}

/// So many seconds of a tone that rises.
fn tone(seconds: usize) -> Vec<u8> {
    let samples = (0..seconds * 16_000).map(|i| (16_000.0 * ((i * i) as f64 * 1e-5).sin()) as i16);
    samples.flat_map(i16::to_le_bytes).collect()
}

fn next(request: *mut cactus_request, timeout_ms: i64) -> (Option<Value>, bool) {
    let (mut event, mut over) = (null_mut(), false);
    let code = unsafe { cactus_request_next(request, timeout_ms, &raw mut event, &raw mut over) };
    assert_eq!(code, 0, "{}", error().1);
    let event = (!event.is_null()).then(|| serde_json::from_str(&taken(event)).unwrap());
    (event, over)
}

/// All events to the end; exactly one last one is among them.
fn rest(request: *mut cactus_request) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        let (event, over) = next(request, -1);
        match event {
            Some(event) => events.push(event),
            None if over => break,
            None => {}
        }
    }
    let is_end = |event: &&Value| matches!(event["event"].as_str(), Some("done" | "cancelled" | "failed"));
    assert_eq!(events.iter().filter(is_end).count(), 1, "{events:?}");
    assert!(events.last().filter(is_end).is_some(), "{events:?}");
    events
}

fn close(request: *mut cactus_request) {
    assert_eq!(unsafe { cactus_request_close(request) }, 0);
}

fn said(result: &Value) -> (Value, Value, Value) {
    (
        result["response"].clone(),
        result["segments"].clone(),
        result["language"].clone(),
    )
}

#[test]
fn transcription_gives_what_cactus_transcribe_gives_segment_by_segment() {
    let model = Hears::open();
    let pcm = tone(40);
    let mut buffer = vec![0_u8; 1 << 20];
    let code = unsafe {
        let room = (buffer.as_mut_ptr().cast(), buffer.len());
        cactus_transcribe(
            model.0,
            null(),
            null(),
            room.0,
            room.1,
            null(),
            None,
            null_mut(),
            pcm.as_ptr(),
            pcm.len(),
        )
    };
    assert!(code > 0, "{}", error().1);
    let whole: Value = serde_json::from_slice(&buffer[..usize::try_from(code).unwrap()]).unwrap();
    let request = model.start(&pcm, "{}").unwrap();
    let events = rest(request);
    let end = events.last().unwrap();
    assert_eq!(end["event"], "done");
    assert_eq!(said(&end["result"]), said(&whole));
    let texts: Vec<_> = events.iter().filter(|event| event["event"] == "text").collect();
    let segments = whole["segments"].as_array().unwrap();
    let with_text: Vec<_> = segments.iter().filter(|segment| segment["text"] != "").collect();
    assert!(!texts.is_empty());
    assert_eq!(texts.len(), with_text.len());
    for (event, segment) in texts.iter().zip(with_text) {
        for field in ["text", "start", "end"] {
            assert_eq!(event[field], segment[field]);
        }
    }
    close(request);
    for (options, word) in [
        (r#"{"language": 5}"#, "`language`"),
        (r#"{"prompt": 5}"#, "`prompt`"),
        ("[]", "options_json"),
    ] {
        let (code, message) = model.start(&pcm, options).unwrap_err();
        assert_eq!(code, Code::Argument as i32);
        assert!(message.contains(word), "{message}");
    }
    assert_eq!(model.start(&[], "{}").unwrap_err().0, Code::Argument as i32);
    assert_eq!(model.start(&pcm[..3], "{}").unwrap_err().0, Code::Argument as i32);
}

#[test]
fn cancel_stops_one_transcription_alone_also_one_that_waits() {
    let model = Hears::open();
    let long = tone(1800);
    let first = model.start(&long, "{}").unwrap();
    // It has begun, so the others wait.
    assert!(next(first, -1).0.is_some());
    let waits = model.start(&long, "{}").unwrap();
    let last = model.start(&tone(2), "{}").unwrap();
    for _ in 0..2 {
        assert_eq!(unsafe { cactus_request_cancel(waits) }, 0);
    }
    let events = rest(waits);
    assert_eq!((events.len(), &events[0]["event"]), (1, &"cancelled".into()));
    assert_eq!(events[0]["result"]["response"], "");
    // The first goes on.
    assert_ne!(next(first, 0), (None, true));
    assert_eq!(unsafe { cactus_request_cancel(first) }, 0);
    let events = rest(first);
    let end = events.last().unwrap();
    assert_eq!(end["event"], "cancelled");
    assert!(!end["result"]["segments"].as_array().unwrap().is_empty());
    assert_eq!(rest(last).last().unwrap()["event"], "done");
    for request in [first, waits, last] {
        close(request);
    }
}

#[test]
fn closing_a_request_or_its_model_ends_it() {
    let model = Hears::open();
    let long = tone(1800);
    let request = model.start(&long, "{}").unwrap();
    assert!(next(request, -1).0.is_some());
    close(request);
    let requests = [0; 3].map(|_| model.start(&long, "{}").unwrap());
    std::thread::sleep(Duration::from_millis(20));
    // It waits for all of them.
    unsafe { cactus_destroy(model.0) };
    for request in requests {
        assert_eq!(rest(request).last().unwrap()["event"], "cancelled");
        close(request);
    }
    assert_eq!(model.start(&long, "{}").unwrap_err().0, Code::Handle as i32);
}

unsafe extern "C" fn heard(event: *const cactus_event, user: *mut c_void) {
    let (kinds, event) = unsafe { (&*user.cast::<Mutex<Vec<c_int>>>(), &*event) };
    kinds.lock().unwrap().push(event.kind);
}

#[test]
fn callback_hears_segments_and_one_end() {
    let model = Hears::open();
    let pcm = tone(40);
    let kinds: Mutex<Vec<c_int>> = Mutex::default();
    let user = (&raw const kinds).cast_mut().cast();
    let mut request = null_mut();
    let code = unsafe {
        cactus_transcription_start(
            model.0,
            null(),
            pcm.as_ptr(),
            pcm.len(),
            null(),
            Some(heard),
            user,
            &raw mut request,
        )
    };
    assert_eq!(code, 0, "{}", error().1);
    // What was given is copied.
    drop(pcm);
    let mut result = null_mut();
    assert_eq!(unsafe { cactus_request_wait(request, &raw mut result) }, 0);
    let result: Value = serde_json::from_str(&taken(result)).unwrap();
    close(request);
    let kinds = kinds.into_inner().unwrap();
    let (end, texts) = kinds.split_last().unwrap();
    assert_eq!(*end, EventKind::Done as c_int);
    assert!(texts.iter().all(|kind| *kind == EventKind::Text as c_int));
    assert!(texts.len() <= result["segments"].as_array().unwrap().len());
}
