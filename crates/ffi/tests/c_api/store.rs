//! Models from a plain address, with a server on this machine.

use crate::support::*;
use cactus_ffi::*;
use cactus_testkit::http::Server;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;

/// Hears stages; stops at the one that `user` names.
unsafe extern "C" fn heard(stage: *const c_char, _: *const c_char, _: u64, _: u64, user: *mut c_void) -> c_int {
    let stop = unsafe { CStr::from_ptr(user.cast::<c_char>()) };
    c_int::from(unsafe { CStr::from_ptr(stage) } == stop)
}

fn prepared(name: &str, cache: &Path, offline: bool, stop: &CStr) -> Result<String, (i32, String)> {
    let options = c(&format!(
        "{{\"cache\": {:?}, \"offline\": {offline}}}",
        cache.to_str().unwrap()
    ));
    let (name, mut path) = (c(name), null_mut());
    let user = stop.as_ptr().cast_mut().cast();
    match unsafe { cactus_model_prepare(name.as_ptr(), options.as_ptr(), Some(heard), user, &raw mut path) } {
        0 => Ok(taken(path)),
        _ => Err(error()),
    }
}

#[test]
fn bundle_at_an_address_is_prepared_and_errors_have_their_codes() {
    let served = bundle().parent().unwrap();
    let server = Server::of_folder(served);
    let cache = tempfile::tempdir().unwrap();
    let address = |file: &str| format!("http://127.0.0.1:{}/{file}", server.port());
    let code = |name: &str, offline, stop| prepared(name, cache.path(), offline, stop).unwrap_err().0;
    assert_eq!(code(&address("bundle"), true, c"never"), -17);
    assert_eq!(server.asked(), 0, "nothing is asked of who is offline");
    assert_eq!(code(&address("bundle"), false, c"downloading"), -11);
    assert_eq!(code(&address("absent"), false, c"never"), -16);
    assert_eq!(code("http://h.example/bundle", false, c"never"), -16);
    let (refused, said) = prepared("https://me:hunter2@h.example/b", cache.path(), false, c"never").unwrap_err();
    assert_eq!(refused, -16);
    assert!(said.contains("password") && !said.contains("hunter2"), "{said}");

    let path = prepared(&address("bundle"), cache.path(), false, c"never").unwrap();
    assert!(Path::new(&path).starts_with(cache.path()));
    let model = loaded(&c(&path));
    let again = loaded(&c(bundle().to_str().unwrap()));
    assert_eq!(answer(&model), answer(&again));
    assert_eq!(
        prepared(&address("bundle"), cache.path(), true, c"never").unwrap(),
        path
    );
}

fn loaded(name: &CStr) -> Model {
    let mut model = null_mut();
    let options = c(r#"{"context_tokens": 512, "threads": 1}"#);
    let code = unsafe { cactus_model_load(name.as_ptr(), options.as_ptr(), None, null_mut(), &raw mut model) };
    assert_eq!(code, 0, "{}", error().1);
    Model(model)
}

fn answer(model: &Model) -> String {
    let request = format!(r#"{{"messages": {HELLO}, "options": {{"max_tokens": 8, "temperature": 0}}}}"#);
    let request = start(model, &request, None, null_mut()).unwrap();
    let text = wait(request).unwrap()["message"].to_string();
    close(request);
    text
}
