//! Recordings by the functions of the public engine, with tiny models of random weights.

use crate::support::{borrowed, buffered, c, error};
use cactus_audio::decode::{Limits, load};
use cactus_engine::CancelToken;
use cactus_ffi::*;
use cactus_import::{ConvertOptions, convert};
use cactus_speech::{SpanOptions, TranscribeOptions, Transcriber, Vad};
use cactus_testkit::recordings::{Becomes, awkward};
use serde_json::{Value, json};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Bundles that hear and that find speech.
fn bundles() -> &'static [PathBuf; 3] {
    static MADE: OnceLock<(tempfile::TempDir, [PathBuf; 3])> = OnceLock::new();
    let (_, paths) = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["whisper", "whisper_en", "silero_vad"].map(|name| {
            let path = folder.path().join(name);
            let source = here("golden/speech").join(name);
            convert(&source, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
            path
        });
        (folder, paths)
    });
    paths
}

/// A model that is closed at the end.
struct Public(*mut c_void);

unsafe impl Send for Public {}
unsafe impl Sync for Public {}

impl Public {
    fn open(path: &Path) -> Public {
        let model = unsafe { cactus_init(c(path.to_str().unwrap()).as_ptr(), null(), false) };
        assert!(!model.is_null(), "{}", error().1);
        Public(model)
    }
}

impl Drop for Public {
    fn drop(&mut self) {
        unsafe { cactus_destroy(self.0) };
    }
}

/// What is asked for, without a callback.
#[derive(Clone, Copy, Default)]
struct Ask<'a> {
    file: Option<&'a CStr>,
    prompt: Option<&'a CStr>,
    options: Option<&'a CStr>,
    pcm: &'a [u8],
}

fn pointer(text: Option<&CStr>) -> *const c_char {
    text.map_or(null(), CStr::as_ptr)
}

fn transcribe(model: &Public, ask: Ask<'_>) -> (c_int, Value) {
    let (code, text) = buffered(1 << 20, |buffer, size| unsafe {
        let (file, prompt, options) = (pointer(ask.file), pointer(ask.prompt), pointer(ask.options));
        let (pcm, bytes) = (ask.pcm.as_ptr(), ask.pcm.len());
        cactus_transcribe(
            model.0,
            file,
            prompt,
            buffer,
            size,
            options,
            None,
            null_mut(),
            pcm,
            bytes,
        )
    });
    (code, serde_json::from_str(&text).unwrap())
}

fn vad(model: &Public, ask: Ask<'_>) -> (c_int, Value) {
    let (code, text) = buffered(1 << 20, |buffer, size| unsafe {
        let (file, options) = (pointer(ask.file), pointer(ask.options));
        cactus_vad(model.0, file, buffer, size, options, ask.pcm.as_ptr(), ask.pcm.len())
    });
    (code, serde_json::from_str(&text).unwrap())
}

/// A tone that rises, as C gives it.
fn pcm(seconds: f64) -> Vec<u8> {
    let n = (seconds * 16_000.0) as usize;
    let sample = |i: usize| ((i as f64 * i as f64 * 1e-5).sin() * 16_000.0) as i16;
    (0..n).flat_map(|i| sample(i).to_le_bytes()).collect()
}

fn clip() -> CString {
    c(here("crates/audio/tests/files/mono_16k.flac").to_str().unwrap())
}

#[test]
fn recordings_have_the_text_that_the_engine_hears() {
    let model = Public::open(&bundles()[0]);
    let mut engine = Transcriber::load(&bundles()[0], None).unwrap();
    let mut expected = |samples: &[f32], language: Option<&str>, translate: bool| {
        let options = TranscribeOptions {
            language: language.map(str::to_owned),
            translate,
            ..TranscribeOptions::default()
        };
        engine
            .transcribe(samples, &options, &CancelToken::new(), &mut |_| {})
            .unwrap()
    };
    let sound = pcm(2.5);
    let samples: Vec<f32> = sound
        .chunks_exact(2)
        .map(|pair| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32768.0)
        .collect();
    let ask = Ask {
        pcm: &sound,
        ..Ask::default()
    };
    let want = expected(&samples, None, false);
    let (code, found) = transcribe(&model, ask);
    assert!(code > 0 && found["success"] == true, "{found}");
    assert_eq!(found["response"], want.text());
    assert_eq!(found["language"].as_str(), want.language.as_deref());
    assert_eq!(found["segments"].as_array().unwrap().len(), want.segments.len());
    assert!(!want.segments.is_empty() && found["segments"][0]["text"] == want.segments[0].text);
    assert!(found["total_time_ms"].as_f64() > Some(0.0) && found["decode_tokens"].as_u64() > Some(0));
    // Language and task, as options and as public programs write them.
    let want = expected(&samples, Some("de"), true).text();
    for (prompt, options) in [
        (None, Some(c"{\"language\": \"de\", \"translate\": true}")),
        (Some(c"<|startoftranscript|><|de|><|translate|><|notimestamps|>"), None),
    ] {
        let (_, found) = transcribe(&model, Ask { prompt, options, ..ask });
        assert_eq!(found["response"], want);
    }
    // Hints.
    let hints = TranscribeOptions {
        initial_prompt: "Cactus".to_owned(),
        hotwords: vec!["Ada".to_owned()],
        ..TranscribeOptions::default()
    };
    let want = Transcriber::load(&bundles()[0], None)
        .unwrap()
        .transcribe(&samples, &hints, &CancelToken::new(), &mut |_| {})
        .unwrap();
    let (prompt, options) = (Some(c"Cactus"), Some(c"{\"custom_vocabulary\": [\"Ada\"]}"));
    let (_, found) = transcribe(&model, Ask { prompt, options, ..ask });
    assert_eq!(found["response"], want.text());
    // What nobody may have said.
    let silence = TranscribeOptions {
        hallucination_silence_s: Some(0.5),
        ..TranscribeOptions::default()
    };
    let want = Transcriber::load(&bundles()[0], None)
        .unwrap()
        .transcribe(&samples, &silence, &CancelToken::new(), &mut |_| {})
        .unwrap();
    let options = Some(c"{\"hallucination_silence\": 0.5}");
    let found = transcribe(&model, Ask { options, ..ask }).1;
    assert_eq!(found["response"], want.text());
    assert_ne!(found["response"], expected(&samples, None, false).text());
    let flac = load(File::open(clip().to_str().unwrap()).unwrap(), 16_000, Limits::default()).unwrap();
    let file = clip();
    let ask = Ask {
        file: Some(&file),
        ..Ask::default()
    };
    assert_eq!(
        transcribe(&model, ask).1["response"],
        expected(&flac, None, false).text()
    );
    unsafe { cactus_reset(model.0) };
    // A model that knows English alone is told so by the prompt of every public program.
    let english = Public::open(&bundles()[1]);
    let prompt = Some(c"<|startoftranscript|><|en|><|transcribe|><|notimestamps|>");
    assert_eq!(transcribe(&english, Ask { prompt, ..ask }).1["success"], true);
}

fn language(model: &Public, ask: Ask<'_>) -> (c_int, Value) {
    let (code, text) = buffered(1 << 12, |buffer, size| unsafe {
        let (file, options) = (pointer(ask.file), pointer(ask.options));
        cactus_detect_language(model.0, file, buffer, size, options, ask.pcm.as_ptr(), ask.pcm.len())
    });
    (code, serde_json::from_str(&text).unwrap())
}

#[test]
fn languages_are_those_of_the_engine() {
    let model = Public::open(&bundles()[0]);
    let file = clip();
    let ask = Ask {
        file: Some(&file),
        ..Ask::default()
    };
    let samples = load(File::open(file.to_str().unwrap()).unwrap(), 16_000, Limits::default()).unwrap();
    let mut engine = Transcriber::load(&bundles()[0], None).unwrap();
    let want = engine.detect_language(&samples).unwrap();
    let (code, found) = language(&model, ask);
    assert!(code > 0, "{found}");
    assert_eq!(found["language"], want[0].code);
    assert_eq!(found["language_token"], format!("<|{}|>", want[0].code));
    assert_eq!(found["token_id"], want[0].token);
    let (confidence, entropy) = (
        found["confidence"].as_f64().unwrap(),
        found["entropy"].as_f64().unwrap(),
    );
    assert!(
        (0.0..=1.0).contains(&entropy) && (confidence + entropy - 1.0).abs() < 1e-9,
        "{found}"
    );
    let silence = [0; 16_000];
    let nobody = Ask {
        pcm: &silence,
        ..Ask::default()
    };
    assert_eq!(language(&model, nobody).1["language"], "unknown");
    for (path, says) in [(&bundles()[1], "English alone"), (&bundles()[2], "`cactus_vad`")] {
        let (code, found) = language(&Public::open(path), ask);
        assert!(code == -1 && found["error"].as_str().unwrap().contains(says), "{found}");
    }
}

#[test]
fn spans_are_those_of_the_engine() {
    let model = Public::open(&bundles()[2]);
    let mut engine = Vad::load(&bundles()[2], 1).unwrap();
    let rate = engine.sample_rate_hz();
    let file = clip();
    let samples = load(File::open(file.to_str().unwrap()).unwrap(), rate, Limits::default()).unwrap();
    let options = SpanOptions {
        threshold: 0.02,
        neg_threshold: Some(0.01),
        min_speech_duration_ms: 0,
        ..SpanOptions::default()
    };
    let spans = engine.spans(&samples, &options).unwrap();
    let ask = Ask {
        file: Some(&file),
        options: Some(c"{\"threshold\": 0.02, \"neg_threshold\": 0.01, \"min_speech_duration_ms\": 0}"),
        ..Ask::default()
    };
    let (code, found) = vad(&model, ask);
    assert!(code > 0, "{found}");
    let want: Vec<Value> = spans
        .iter()
        .map(|span| json!({"start": span.start, "end": span.end}))
        .collect();
    assert!(!want.is_empty());
    assert_eq!(found["segments"], Value::from(want));
    // Samples are brought to the model's rate.
    let sound = pcm(1.0);
    let found = vad(
        &model,
        Ask {
            pcm: &sound,
            ..Ask::default()
        },
    );
    assert_eq!((found.0 > 0, &found.1["success"]), (true, &json!(true)), "{}", found.1);
}

#[test]
fn wrong_calls_say_what_is_wrong() {
    let (hears, finds) = (Public::open(&bundles()[0]), Public::open(&bundles()[2]));
    let (file, sound) = (clip(), pcm(0.5));
    let ask = Ask {
        file: Some(&file),
        ..Ask::default()
    };
    let with = |options| Ask {
        options: Some(options),
        ..ask
    };
    let text = c(here("README.md").to_str().unwrap());
    for (ask, says) in [
        (Ask::default(), "neither a file nor"),
        (Ask { pcm: &sound, ..ask }, "beside `pcm_buffer`"),
        (
            Ask {
                pcm: &sound[..3],
                ..Ask::default()
            },
            "found 3 bytes",
        ),
        (
            Ask {
                file: Some(c"/nowhere.wav"),
                ..ask
            },
            "/nowhere.wav",
        ),
        (
            Ask {
                file: Some(&text),
                ..ask
            },
            "README.md",
        ),
        (with(c"[]"), "options_json"),
        (with(c"{\"language\": \"xx\"}"), "`xx`"),
        (with(c"{\"language\": 5}"), "`language`"),
        (with(c"{\"temperature\": 3}"), "temperature"),
        (with(c"{\"custom_vocabulary\": [5]}"), "`custom_vocabulary`"),
        (with(c"{\"hallucination_silence\": \"1\"}"), "`hallucination_silence`"),
        (with(c"{\"hallucination_silence\": -1}"), "at least 0.1 seconds"),
    ] {
        let (code, found) = transcribe(&hears, ask);
        assert_eq!((code, &found["success"]), (-1, &json!(false)));
        let message = found["error"].as_str().unwrap();
        assert!(message.contains(says), "{says}: {message}");
        assert_eq!(borrowed(cactus_get_last_error()), message);
    }
    assert!(
        transcribe(&finds, ask).1["error"]
            .as_str()
            .unwrap()
            .contains("`cactus_vad`")
    );
    assert!(
        vad(&hears, ask).1["error"]
            .as_str()
            .unwrap()
            .contains("`cactus_transcribe`")
    );
    assert_eq!(vad(&finds, with(c"{\"threshold\": 7}")).0, -1);
    // A result that does not fit.
    let (code, _) = buffered(8, |buffer, size| unsafe {
        let none = null_mut();
        cactus_transcribe(
            hears.0,
            file.as_ptr(),
            null(),
            buffer,
            size,
            null(),
            None,
            none,
            null(),
            0,
        )
    });
    assert_eq!(code, -2);
    // It answers no prompts.
    let messages = c"[{\"role\": \"user\", \"content\": \"Hi\"}]";
    let (code, _) = buffered(4096, |buffer, size| unsafe {
        let (messages, none) = (messages.as_ptr(), null_mut());
        cactus_complete(hears.0, messages, buffer, size, null(), null(), None, none, null(), 0)
    });
    assert_eq!(code, -1);
    assert_eq!(error().0, Code::Handle as i32);
    let closed = Public::open(&bundles()[0]);
    unsafe { cactus_destroy(closed.0) };
    assert_eq!(transcribe(&closed, ask).0, -1);
    assert_eq!(error().0, Code::Handle as i32);
}

#[test]
fn awkward_recordings_become_a_transcript_or_a_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let (hears, finds) = (Public::open(&bundles()[0]), Public::open(&bundles()[2]));
    for case in awkward() {
        let path = folder.path().join(case.name);
        std::fs::write(&path, &case.bytes).unwrap();
        let file = c(path.to_str().unwrap());
        let ask = Ask {
            file: Some(&file),
            ..Ask::default()
        };
        for (code, found) in [transcribe(&hears, ask), vad(&finds, ask)] {
            match case.becomes {
                Becomes::Heard(_) | Becomes::Part(_) => {
                    assert_eq!(
                        (code > 0, &found["success"]),
                        (true, &json!(true)),
                        "{}: {found}",
                        case.name
                    );
                }
                Becomes::Refused(why) => {
                    let message = found["error"].as_str().unwrap();
                    assert_eq!(code, -1, "{}", case.name);
                    assert!(message.contains(why) && message.contains(case.name), "{why}: {message}");
                }
            }
        }
    }
}

/// What a callback is given.
struct Told<'a> {
    model: &'a Public,
    text: String,
    stop: bool,
}

unsafe extern "C" fn told(text: *const c_char, _token: u32, user_data: *mut c_void) {
    let told = unsafe { &mut *user_data.cast::<Told<'_>>() };
    told.text.push_str(&borrowed(text));
    // The same model is busy with the recording that this belongs to.
    let sound = pcm(0.1);
    let again = transcribe(
        told.model,
        Ask {
            pcm: &sound,
            ..Ask::default()
        },
    );
    assert_eq!(again.0, -1);
    assert_eq!(error().0, Code::InCallback as i32);
    if told.stop {
        unsafe { cactus_stop(told.model.0) };
    }
}

#[test]
fn callbacks_get_each_segment_and_may_stop() {
    let model = Public::open(&bundles()[0]);
    let sound = pcm(6.0);
    let whole = transcribe(
        &model,
        Ask {
            pcm: &sound,
            ..Ask::default()
        },
    );
    for stop in [false, true] {
        let mut user = Told {
            model: &model,
            text: String::new(),
            stop,
        };
        let (code, text) = buffered(1 << 20, |buffer, size| unsafe {
            let (pcm, bytes, user) = (sound.as_ptr(), sound.len(), (&raw mut user).cast());
            cactus_transcribe(
                model.0,
                null(),
                null(),
                buffer,
                size,
                null(),
                Some(told),
                user,
                pcm,
                bytes,
            )
        });
        let found: Value = serde_json::from_str(&text).unwrap();
        match stop {
            false => {
                assert!(code > 0, "{found}");
                assert_eq!(whole.1["response"], user.text.trim());
            }
            true => {
                assert_eq!(code, -1, "{found}");
                assert_eq!(error().0, Code::Cancelled as i32);
                assert!(!user.text.is_empty() && user.text.len() < whole.1["response"].as_str().unwrap().len());
            }
        }
    }
}

#[test]
fn recordings_at_once_wait_for_each_other() {
    let model = Public::open(&bundles()[0]);
    let sounds = [pcm(0.5), pcm(1.5), pcm(2.5)];
    let ask = |sound: &Vec<u8>| {
        transcribe(
            &model,
            Ask {
                pcm: sound,
                ..Ask::default()
            },
        )
        .1["response"]
            .clone()
    };
    let alone: Vec<Value> = sounds.iter().map(ask).collect();
    std::thread::scope(|scope| {
        for (sound, want) in sounds.iter().zip(&alone) {
            scope.spawn(move || assert_eq!(ask(sound), *want));
        }
    });
}
