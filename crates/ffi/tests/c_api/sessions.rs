//! Conversations.

use crate::support::*;
use cactus_ffi::*;
use serde_json::{Value, json};
use std::ptr::{null, null_mut};

fn open(model: &Model, defaults: &str) -> *mut cactus_session {
    let mut session = null_mut();
    let code = unsafe { cactus_session_open(model.0, c(defaults).as_ptr(), &raw mut session) };
    assert_eq!(code, 0, "{}", error().1);
    session
}

fn send(session: *mut cactus_session, request: &str) -> Result<*mut cactus_request, (i32, String)> {
    let mut handle = null_mut();
    match unsafe { cactus_session_send(session, c(request).as_ptr(), None, null_mut(), &raw mut handle) } {
        0 => Ok(handle),
        _ => Err(error()),
    }
}

fn messages(session: *mut cactus_session) -> Vec<Value> {
    let mut text = null_mut();
    assert_eq!(unsafe { cactus_session_messages(session, &raw mut text) }, 0);
    serde_json::from_str(&taken(text)).unwrap()
}

#[test]
fn session_remembers_and_can_be_opened_again() {
    let model = Model::load();
    let session = open(
        &model,
        r#"{"messages": [{"role": "system", "content": "be brief"}], "options": {"max_tokens": 4, "temperature": 0}}"#,
    );
    let first = send(session, "\"one\"").unwrap();
    let busy = send(session, "\"two\"");
    let answer = wait(first).unwrap();
    close(first);
    // The request may have ended already.
    match busy {
        Ok(second) => {
            wait(second).unwrap();
            close(second);
        }
        Err((code, _)) => assert_eq!(code, Code::Busy as i32),
    }
    let held = messages(session);
    assert_eq!(
        held[..2],
        [
            json!({"role": "system", "content": "be brief"}),
            json!({"role": "user", "content": "one"})
        ]
    );
    assert_eq!(held[2], answer["message"]);

    // What fails leaves it as it was.
    let wrong = [
        r#"{"messages": [{"role": "x"}]}"#,
        "3",
        r#"{"options": {"max_tokens": 0}}"#,
        "{",
    ];
    for request in wrong {
        assert_eq!(
            send(session, request).unwrap_err().0,
            Code::Argument as i32,
            "{request}"
        );
    }
    assert_eq!(messages(session), held);
    let again = open(
        &model,
        &json!({"messages": held, "options": {"max_tokens": 4, "temperature": 0}}).to_string(),
    );
    let (a, b) = (send(session, "\"more\"").unwrap(), send(again, "\"more\"").unwrap());
    assert_eq!(wait(a).unwrap()["tokens"], wait(b).unwrap()["tokens"]);
    for (session, request) in [(session, a), (again, b)] {
        close(request);
        assert_eq!(unsafe { cactus_session_close(session) }, 0);
        assert_eq!(unsafe { cactus_session_close(session) }, Code::Handle as i32);
    }
}

#[test]
fn defaults_that_no_request_could_have_are_refused_at_once() {
    let model = Model::load();
    let tool = r#"{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}"#;
    let refused = |defaults: &str, want: &str| {
        let mut session = null_mut();
        let code = unsafe { cactus_session_open(model.0, c(defaults).as_ptr(), &raw mut session) };
        let (_, message) = error();
        assert_eq!(code, Code::Argument as i32, "{defaults}");
        assert!(session.is_null() && message.contains(want), "{defaults}: {message}");
    };
    for (defaults, want) in [
        (r#"{"nothing": 1}"#, "`nothing`"),
        (r#"{"prompt": "x"}"#, "`prompt`"),
        (r#"{"tokens": [1]}"#, "`tokens`"),
        (r#"{"options": {"temperature": -1}}"#, "`temperature`"),
        (r#"{"options": 3}"#, "`options`"),
        (r#"{"priority": "urgent"}"#, "`priority`"),
        (r#"{"messages": [{"role": "nobody", "content": ""}]}"#, "role"),
        (r#"{"messages": 3}"#, "`messages`"),
        (r#"{"schema": 3}"#, "`schema`"),
        #[cfg(feature = "forms")]
        (r#"{"regex": "("}"#, ""),
        (r#"{"regex": "a", "schema": {}}"#, "at most one"),
        (r#"{"tools": [{}]}"#, "`tools[0]`"),
        (r#"{"tool_choice": "perhaps"}"#, "`tool_choice`"),
        (
            &format!(r#"{{"tools": [{tool}], "tool_choice": {{"function": {{"name": "g"}}}}}}"#),
            "tool_choice",
        ),
        (r#"{"continue_final": 1}"#, "`continue_final`"),
    ] {
        refused(defaults, want);
    }
    // What a request completes, or says otherwise, is kept.
    for defaults in [
        r#"{"messages": null, "options": null}"#,
        r#"{"tool_choice": "required"}"#,
        r#"{"continue_final": true}"#,
        #[cfg(feature = "forms")]
        r#"{"messages": [{"role": "system", "content": "be brief"}], "regex": "[a-z]+"}"#,
        r#"{"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]}"#,
        r#"{"messages": [{"role": "user", "content": "one"}]}"#,
        #[cfg(feature = "forms")]
        &format!(r#"{{"tools": [{tool}], "tool_choice": {{"function": {{"name": "f"}}}}}}"#),
    ] {
        let session = open(&model, defaults);
        assert_eq!(unsafe { cactus_session_close(session) }, 0);
    }
}

#[test]
fn closing_a_session_cancels_its_request() {
    let model = Model::load();
    let session = open(&model, r#"{"options": {"max_tokens": 200, "ignore_eos": true}}"#);
    let request = send(session, "\"one\"").unwrap();
    assert_eq!(unsafe { cactus_session_close(session) }, 0);
    // A tiny model may be done before.
    let reason = wait(request).unwrap()["finish_reason"].clone();
    assert!(reason == "cancelled" || reason == "length", "{reason}");
    close(request);
    let mut none = null_mut();
    assert_eq!(
        unsafe { cactus_session_open(null_mut(), null(), &raw mut none) },
        Code::Handle as i32
    );
}
