//! What a build without some features says: every function is there, and names the feature that it lacks.

use super::support::*;
use cactus_ffi::*;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};

/// The last error is that of a build without `feature`.
fn is_left_out(feature: &str) {
    let (code, message) = error();
    assert_eq!(code, Code::NotInBuild as i32, "{message}");
    assert!(message.contains(&format!("the feature `{feature}`")), "{message}");
}

/// Bundles of golden models cannot be loaded without `feature`.
#[cfg(not(all(feature = "search", feature = "speech")))]
fn are_refused(models: &[&str], feature: &str) {
    let folder = tempfile::tempdir().unwrap();
    for (i, model) in models.iter().enumerate() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(model);
        let path: PathBuf = folder.path().join(i.to_string());
        cactus_import::convert(&source, &path, &Default::default(), &mut |_, _| {}).unwrap();
        let path = c(path.to_str().unwrap());
        assert!(unsafe { cactus_init(path.as_ptr(), null(), false) }.is_null());
        is_left_out(feature);
    }
}

#[test]
fn text_is_there() {
    let model = Model::load();
    let request = json!({"messages": [{"role": "user", "content": "hello"}], "options": {"max_tokens": 2}});
    let request = start(&model, &request.to_string(), None, null_mut()).unwrap();
    assert_eq!(wait(request).unwrap()["message"]["role"], "assistant");
    close(request);
}

#[cfg(not(feature = "forms"))]
#[test]
fn answers_follow_no_form() {
    let model = Model::load();
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    for more in [
        json!({"schema": {"type": "object"}}),
        json!({"regex": "[a-z]+"}),
        json!({"grammar": "start: \"a\""}),
        json!({"tools": [tool], "tool_choice": "required"}),
    ] {
        let mut request = json!({"messages": [{"role": "user", "content": "x"}]});
        request
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        start(&model, &request.to_string(), None, null_mut()).unwrap_err();
        is_left_out("forms");
    }
    // Tools may be offered: their calls are read, and follow what the model thinks is right.
    let request =
        json!({"messages": [{"role": "user", "content": "x"}], "tools": [tool], "options": {"max_tokens": 2}});
    let request = start(&model, &request.to_string(), None, null_mut()).unwrap();
    let notes = wait(request).unwrap()["notes"].to_string();
    assert!(notes.contains("the feature `forms`"), "{notes}");
    close(request);
}

#[cfg(not(feature = "speech"))]
#[test]
fn nobody_hears() {
    let (code, answer) = buffered(512, |buffer, bytes| unsafe {
        cactus_vad(null_mut(), null(), buffer, bytes, null(), null(), 0)
    });
    assert_eq!(code, -1);
    is_left_out("speech");
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["error"], error().1);
    for (buffer, bytes) in [(null_mut(), 0), (null_mut(), 8)] {
        let code = unsafe { cactus_stream_transcribe_stop(null_mut(), buffer, bytes) };
        assert_eq!(code, -1);
        is_left_out("speech");
    }
    assert!(unsafe { cactus_stream_transcribe_start(null_mut(), null()) }.is_null());
    is_left_out("speech");
    are_refused(&["speech/whisper", "speech/silero_vad"], "speech");
}

#[cfg(not(feature = "pictures"))]
#[test]
fn messages_are_text() {
    let model = Model::load();
    for part in [
        json!({"type": "image", "data": "AAAA"}),
        json!({"type": "audio"}),
        json!({"type": "input_audio", "input_audio": {}}),
    ] {
        let request = json!({"messages": [{"role": "user", "content": [part]}]}).to_string();
        start(&model, &request, None, null_mut()).unwrap_err();
        is_left_out("pictures");
    }
    let files = [("images", "[\"/nowhere.png\"]"), ("audio", "[\"/nowhere.wav\"]")];
    let messages = files.map(|(field, paths)| format!(r#"[{{"role": "user", "content": "x", "{field}": {paths}}}]"#));
    for (messages, pcm) in [(&messages[0][..], &[][..]), (&messages[1], &[]), (HELLO, &[0; 8])] {
        let (code, _) = buffered(512, |buffer, bytes| unsafe {
            let (model, messages) = (model.public(), c(messages));
            let (pcm, pcm_bytes) = (pcm.as_ptr(), pcm.len());
            cactus_complete(
                model,
                messages.as_ptr(),
                buffer,
                bytes,
                null(),
                null(),
                None,
                null_mut(),
                pcm,
                pcm_bytes,
            )
        });
        assert_eq!(code, -1);
        is_left_out("pictures");
    }
}

#[cfg(not(feature = "search"))]
#[test]
fn nothing_is_searched() {
    let mut dim = 0;
    assert_eq!(
        unsafe { cactus_embed(null_mut(), null(), null_mut(), 0, &raw mut dim, true) },
        -1
    );
    is_left_out("search");
    assert!(unsafe { cactus_index_init(null(), 4) }.is_null());
    is_left_out("search");
    unsafe { cactus_index_destroy(null_mut()) };
    is_left_out("search");
    let folder = tempfile::tempdir().unwrap();
    let folder = c(folder.path().to_str().unwrap());
    assert!(unsafe { cactus_init(path().as_ptr(), folder.as_ptr(), false) }.is_null());
    is_left_out("search");
    are_refused(&["embedding/bert"], "search");
}

#[cfg(not(feature = "graphs"))]
#[test]
fn no_graphs_are_built() {
    assert!(unsafe { cactus_graph_create() }.is_null());
    is_left_out("graphs");
    let mut node = 7;
    assert_eq!(unsafe { cactus_graph_add(null_mut(), 0, 0, &raw mut node) }, -1);
    is_left_out("graphs");
    assert_eq!(node, 7);
    let mut info = std::mem::MaybeUninit::uninit();
    assert_eq!(
        unsafe { cactus_graph_get_output_info(null_mut(), 0, info.as_mut_ptr()) },
        -1
    );
    is_left_out("graphs");
}

#[cfg(not(feature = "cloud"))]
#[test]
fn nothing_is_handed_off() {
    let model = Model::load();
    let code = unsafe { cactus_model_set_policy(model.0, c("").as_ptr(), null()) };
    assert_eq!(code, Code::NotInBuild as i32);
    is_left_out("cloud");
}
