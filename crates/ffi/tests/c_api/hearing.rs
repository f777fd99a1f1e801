//! Recordings under a policy: a target hears again what is doubtful, where it may. The model has random weights, so what it writes is nonsense
//! that never changes.

use crate::support::{borrowed, buffered, c, error};
use cactus_ffi::*;
use cactus_import::{ConvertOptions, convert};
use cactus_passes::{Bits, Policy};
use cactus_testkit::http::{Server, json_answer};
use serde_json::{Value, json};
use std::ffi::{c_char, c_void};
use std::path::Path;
use std::ptr::null;

/// A model that is closed at the end, and the folder of its bundle.
struct Hears {
    model: *mut c_void,
    _folder: tempfile::TempDir,
}

impl Hears {
    fn open(name: &str) -> Hears {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../golden/speech")
            .join(name);
        // In 16 bits: what random weights write hangs on the last bit, and who hears again needs words.
        let options = ConvertOptions {
            policy: Policy::uniform(Bits::Sixteen),
            ..ConvertOptions::default()
        };
        convert(&source, &path, &options, &mut |_, _| {}).unwrap();
        let model = unsafe { cactus_init(c(path.to_str().unwrap()).as_ptr(), null(), false) };
        assert!(!model.is_null(), "{}", error().1);
        Hears { model, _folder: folder }
    }

    fn set(&self, toml: Option<&str>, options: Option<&Value>) -> Result<(), String> {
        let (toml, options) = (toml.map(c), options.map(|options| c(&options.to_string())));
        let place = |text: &Option<std::ffi::CString>| text.as_ref().map_or(null(), |text| text.as_ptr());
        match unsafe { cactus_model_set_policy(self.model.cast(), place(&toml), place(&options)) } {
            0 => Ok(()),
            _ => Err(error().1),
        }
    }

    /// The result, and what the callback was given.
    fn hear(&self, options: &str) -> (Value, String) {
        let (pcm, mut told) = (pcm(), String::new());
        let (_, text) = buffered(1 << 20, |buffer, size| unsafe {
            let (options, user) = (c(options), (&raw mut told).cast());
            let (pcm, bytes) = (pcm.as_ptr(), pcm.len());
            cactus_transcribe(
                self.model,
                null(),
                null(),
                buffer,
                size,
                options.as_ptr(),
                Some(tell),
                user,
                pcm,
                bytes,
            )
        });
        (serde_json::from_str(&text).unwrap(), told)
    }
}

impl Drop for Hears {
    fn drop(&mut self) {
        unsafe { cactus_destroy(self.model) };
    }
}

unsafe extern "C" fn tell(text: *const c_char, _token: u32, user_data: *mut c_void) {
    let told = unsafe { &mut *user_data.cast::<String>() };
    told.push_str(&borrowed(text));
}

/// A tone that rises for four seconds.
fn pcm() -> Vec<u8> {
    let samples = (0..64_000).map(|i| (16_000.0 * (f64::from(i) * f64::from(i) * 1e-5).sin()) as i16);
    samples.flat_map(i16::to_le_bytes).collect()
}

/// A policy that lets a target hear everything, at a cent a second.
fn toml(target: &Server, audio: &str, most_usd: &str) -> String {
    format!(
        "version = 1\nhandoff = \"always\"\n[routing]\nretries = 0\n[budget]\nrequest_usd = {most_usd}\n[consent]\naudio = \"{audio}\"\n\
         [targets.near]\nprotocol = \"openai_transcriptions\"\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\n\
         usd_per_minute = 0.6\n",
        target.port()
    )
}

#[test]
fn a_target_hears_again_what_the_policy_lets_leave() {
    let model = Hears::open("whisper");
    let state = tempfile::tempdir().unwrap();
    let options = json!({"state": state.path()});
    let (alone, told) = model.hear("{}");
    assert_eq!((&alone["cloud_handoff"], alone.get("reason")), (&json!(false), None));
    assert!(!told.is_empty());
    // As many words as there are here, and as long. Under a policy times of words are found, which may move windows.
    let deaf = Server::of(vec![json_answer("500 X", &json!({}))]);
    model.set(Some(&toml(&deaf, "ask", "1")), Some(&options)).unwrap();
    let (ours, _) = model.hear("{}");
    let words = ours["response"].as_str().unwrap().split_whitespace();
    let theirs: Vec<String> = words.map(|word| "x".repeat(word.chars().count())).collect();
    let near = Server::of(vec![json_answer("200 OK", &json!({"text": theirs.join(" ")}))]);
    model.set(Some(&toml(&near, "always", "1")), Some(&options)).unwrap();
    let (found, told) = model.hear("{}");
    assert_eq!(
        (&found["cloud_handoff"], &found["answered_by"], &found["reason"]),
        (&json!(true), &json!("near"), &json!("always")),
        "{found}"
    );
    assert!(
        near.asked() > 0 && found["heard_again"]["sent_s"].as_f64() > Some(3.0),
        "{found}"
    );
    assert!(
        found["cost_usd"]
            .as_f64()
            .is_some_and(|usd| (0.03..=0.05).contains(&usd)),
        "{found}"
    );
    let segments = found["segments"].as_array().unwrap();
    let changed: Vec<&Value> = segments.iter().filter(|s| s["revision"] == 1).collect();
    assert!(
        !changed.is_empty() && changed.iter().all(|s| s["answered_by"] == "near"),
        "{found}"
    );
    assert!(
        changed
            .iter()
            .all(|s| s["text"].as_str().is_some_and(|text| text.contains("xx")))
    );
    // The callback has the final text.
    let texts: String = segments.iter().filter_map(|s| s["text"].as_str()).collect();
    assert_eq!(told, texts);
    // One recording may stay here, and what is translated does.
    let asked = near.asked();
    for options in [
        r#"{"auto_handoff": false}"#,
        r#"{"no_cloud_handoff": true}"#,
        r#"{"translate": true, "language": "de"}"#,
    ] {
        let (found, _) = model.hear(options);
        assert_eq!(
            (&found["success"], &found["cloud_handoff"]),
            (&json!(true), &json!(false))
        );
    }
    let (refused, _) = model.hear(r#"{"auto_handoff": "perhaps"}"#);
    assert!(
        refused["error"].as_str().is_some_and(|e| e.contains("auto_handoff")),
        "{refused}"
    );
    assert_eq!(near.asked(), asked);
    // Until the policy is taken away.
    model.set(None, None).unwrap();
    assert_eq!(model.hear("{}").0["response"], alone["response"]);
    assert_eq!(near.asked(), asked);
}

#[test]
fn what_may_not_leave_stays_and_failures_leave_the_text_as_it_was() {
    let model = Hears::open("whisper");
    let near = Server::of(vec![json_answer("500 X", &json!({}))]);
    let state = tempfile::tempdir().unwrap();
    let options = json!({"state": state.path()});
    // Where words are found, the text may be another.
    let mut ours = None;
    for (audio, most_usd, reason, asked) in [
        ("never", "1", "denied_by_policy", 0),
        ("ask", "1", "nobody_to_ask", 0),
        ("always", "0.001", "over_cap", 0),
        ("always", "1", "cloud_failed", 1),
    ] {
        model.set(Some(&toml(&near, audio, most_usd)), Some(&options)).unwrap();
        let (found, _) = model.hear("{}");
        assert_eq!(
            (&found["success"], &found["cloud_handoff"], &found["reason"]),
            (&json!(true), &json!(false), &json!(reason)),
            "{found}"
        );
        assert_eq!(near.asked(), asked, "{reason}");
        assert!(
            found["segments"]
                .as_array()
                .unwrap()
                .iter()
                .all(|s| s["answered_by"] == "local")
        );
        let ours = ours.get_or_insert_with(|| found["response"].clone());
        assert_eq!(&found["response"], ours);
    }
}

#[test]
fn policies_that_make_no_sense_for_recordings_are_refused() {
    let hears = Hears::open("whisper");
    let near = Server::of(vec![json_answer("200 OK", &json!({"text": "x"}))]);
    let state = tempfile::tempdir().unwrap();
    let with = |name: &str, value: Value| json!({"state": state.path(), name: value});
    let chats = toml(&near, "always", "1")
        .replace("openai_transcriptions", "openai_chat")
        .replace(
            "usd_per_minute = 0.6",
            "input_usd_per_million = 1\noutput_usd_per_million = 1",
        );
    for (toml, options, says) in [
        (
            Some(&*chats),
            with("target", json!("near")),
            "does not write down speech",
        ),
        (None, with("target", json!("nobody")), "`nobody`"),
        (None, with("else", json!(1)), "`else` is unknown"),
    ] {
        let error = hears.set(toml, Some(&options)).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
    // An address is one that hears.
    let address = format!("http://127.0.0.1:{}/v1#m", near.port());
    let mut options = with("target", json!(address));
    (options["handoff"], options["consent"]) = (json!("always"), json!(["audio"]));
    hears.set(None, Some(&options)).unwrap();
    assert_eq!(hears.hear("{}").0["reason"], "always");
    assert!(
        near.requests()
            .iter()
            .all(|request| request.starts_with("POST /v1/audio/transcriptions"))
    );
    let finds = Hears::open("silero_vad");
    assert!(finds.set(None, Some(&options)).unwrap_err().contains("finds speech"));
}
