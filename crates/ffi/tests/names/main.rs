//! Models by name: what is converted on the way, what is told of it, and names of nothing.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each block is one call of a C function; what may be passed is in the header"
)]

#[path = "../c_api/support.rs"]
#[allow(dead_code, reason = "the tests of `c_api` use the rest")]
mod support;

use crate::support::*;
use cactus_ffi::*;
use serde_json::json;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;

/// Steps as they came.
type Steps = Vec<(String, u64, u64)>;

unsafe extern "C" fn keep(
    stage: *const c_char,
    what: *const c_char,
    done: u64,
    total: u64,
    steps: *mut c_void,
) -> c_int {
    let _ = borrowed(what);
    unsafe { (*steps.cast::<Steps>()).push((borrowed(stage), done, total)) };
    0
}

fn prepare(name: &str, options: &serde_json::Value) -> (Result<String, (i32, String)>, Steps) {
    let (mut steps, mut path) = (Steps::new(), null_mut());
    let options = c(&options.to_string());
    let user = (&raw mut steps).cast();
    let code = unsafe { cactus_model_prepare(c(name).as_ptr(), options.as_ptr(), Some(keep), user, &raw mut path) };
    let found = match code {
        0 => Ok(taken(path)),
        _ => Err(error()),
    };
    (found, steps)
}

/// A golden model or GGUF file that is no bundle.
fn source(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(path);
    path.to_str().unwrap().to_owned()
}

#[cfg(feature = "store")]
mod with_store {
    use super::*;
    use std::ptr::null;

    #[test]
    fn folders_and_files_are_converted_once_and_then_found() {
        let cache = tempfile::tempdir().unwrap();
        for (name, bits, stage) in [
            (source("models/qwen2_tied"), 8, "converting"),
            (source("models/qwen2_tied"), 16, "converting"),
            (source("gguf/qwen3.gguf"), 8, "converting"),
        ] {
            let options = json!({"offline": true, "cache": cache.path(), "bits": bits});
            let (path, steps) = prepare(&name, &options);
            let path = path.unwrap();
            assert!(Path::new(&path).starts_with(cache.path()), "{path}");
            assert!(steps.iter().any(|step| step.0 == stage), "{steps:?}");
            assert!(steps.iter().all(|(_, done, total)| done <= total), "{steps:?}");
            let (again, steps) = prepare(&name, &options);
            assert_eq!((again.unwrap(), steps), (path.clone(), Vec::new()));
            // A bundle is taken as it is.
            assert_eq!(prepare(&path, &json!({"bits": 2})).0.unwrap(), path);
            let mut model = null_mut();
            assert_eq!(
                unsafe { cactus_model_load(c(&path).as_ptr(), null(), None, null_mut(), &raw mut model) },
                0
            );
            unsafe { cactus_model_close(model) };
        }
    }

    #[test]
    fn bundle_that_lost_too_much_is_refused() {
        let cache = tempfile::tempdir().unwrap();
        let options = json!({"offline": true, "cache": cache.path(), "bits": 2});
        let (found, steps) = prepare(&source("models/qwen2_tied"), &options);
        let (code, message) = found.unwrap_err();
        assert_eq!(code, Code::Fetch as i32, "{message}");
        assert!(message.contains("below the floor"), "{message}");
        for stage in ["reading source", "calibrating", "converting", "measuring quality"] {
            assert!(steps.iter().any(|step| step.0 == stage), "{stage}: {steps:?}");
        }
    }

    #[test]
    fn names_of_nothing_say_what_is_wrong() {
        let cache = tempfile::tempdir().unwrap();
        let empty = tempfile::tempdir().unwrap();
        let options = json!({"offline": true, "cache": cache.path()});
        for (name, code, says) in [
            ("smolm2", Code::NotFound, "smollm2"),
            ("/nowhere", Code::NotFound, "/nowhere"),
            ("org/", Code::NotFound, "org/"),
            ("", Code::NotFound, "no model"),
            ("some-org/some-model", Code::Offline, "some-org/some-model"),
            (empty.path().to_str().unwrap(), Code::Unsupported, "cannot be used"),
        ] {
            let (found, steps) = prepare(name, &options);
            let (found, message) = found.unwrap_err();
            assert_eq!(found, code as i32, "{name}: {message}");
            assert!(message.contains(says), "{name}: {message}");
            assert_eq!(steps, Vec::new(), "{name}");
        }
    }
}

#[cfg(not(feature = "store"))]
#[test]
fn build_without_store_takes_bundles_and_says_what_it_lacks() {
    let bundle = bundle().to_str().unwrap();
    assert_eq!(prepare(bundle, &json!({"offline": true})).0.unwrap(), bundle);
    for name in [
        "smollm2",
        "/nowhere",
        "some-org/some-model",
        &source("models/qwen2_tied"),
    ] {
        let (found, message) = prepare(name, &json!({})).0.unwrap_err();
        assert_eq!(found, Code::NotInBuild as i32, "{name}: {message}");
        assert!(message.contains("not in this build"), "{message}");
        assert!(message.contains("the feature `store`"), "{message}");
    }
}

#[test]
fn wrong_options_name_themselves() {
    for (options, says) in [
        (
            json!({"bits": 7}),
            "`bits` should be 1, 2, 3, 4, 5, 6, 8, 16 or 32, found 7",
        ),
        (json!({"bits": "four"}), "found \"four\""),
        (json!({"calibrate": 1}), "`calibrate` should be true or false"),
        (json!({"offline": "yes"}), "`offline`"),
        (json!({"token": 5}), "`token` should be a string"),
        (json!({"cache": []}), "`cache`"),
        (json!({"threads": 2}), "`threads` is unknown"),
        (json!([]), "expected a JSON object"),
    ] {
        let (found, message) = prepare(bundle().to_str().unwrap(), &options).0.unwrap_err();
        assert_eq!(found, Code::Argument as i32, "{message}");
        assert!(message.contains(says), "{message}");
    }
}
