//! Sequences of calls of the C library, as a program makes them that gets everything wrong: handles that were closed, are of
//! another kind or made up, damaged JSON, text that is not UTF-8, buffers of every size, callbacks that call back.
//!
//! The bytes are a program: one byte for each function, then its arguments. What the header forbids for good (a buffer that is
//! smaller than its size) is not tried. Each call has to succeed or to say why not; none may fail by a defect.
#![allow(
    unsafe_code,
    reason = "functions of C are called; what may be passed is in the header"
)]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each block is one call of a C function with arguments that its contract allows, wrong as they are"
)]

use cactus_ffi::*;
use cactus_import::{ConvertOptions, convert};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most calls of one program.
const MAX_CALLS: usize = 48;

/// Texts that some function takes.
const TEXTS: [&str; 20] = [
    r#"[{"role": "user", "content": "hello there"}]"#,
    r#"{"messages": [{"role": "user", "content": "hi"}], "options": {"max_tokens": 3, "stop": ["a"], "logprobs": 2}}"#,
    r#"{"prompt": "x", "regex": "[a-c]{2}", "priority": "low", "options": {"max_tokens": 3, "temperature": 0.5, "seed": 7}}"#,
    r#"{"tokens": [3, 4, 5], "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}, "options": {"max_tokens": 4}}"#,
    r#"{"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required", "options": {"max_tokens": 5}}"#,
    r#"{"max_tokens": 2, "temperature": 1.0, "top_k": 5, "stop_sequences": ["b"]}"#,
    r#"{"max_tokens": 40, "force_tools": true, "tool_rag_top_k": 1}"#,
    r#"[{"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}}]"#,
    r#"{"messages": [{"role": "system", "content": "be brief"}], "options": {"max_tokens": 2}}"#,
    r#""what the user says""#,
    r#"{"context_tokens": 64, "chunk_tokens": 16, "threads": 1, "sequences": 2, "queue": 3}"#,
    r#"{"context_tokens": 32, "kv_dtype": "f16", "threads": 2, "pin": false, "bits": 4, "offline": true}"#,
    r#"{"prompt": "", "grammar": "start: \"a\" | \"b\"", "continue_final": true, "options": {"max_tokens": 1}}"#,
    r#"[{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "tool_calls": []}, {"role": "tool"}]"#,
    "hello",
    "",
    "{",
    "auto",
    r#"{"options": {"max_tokens": 18446744073709551616}}"#,
    "[[[[[[[[[[[[[[[[[[[[[[[[",
];

/// The paths of a golden model as a bundle, and of a file for graphs.
fn paths() -> &'static (tempfile::TempDir, Vec<u8>, Vec<u8>) {
    static PATHS: OnceLock<(tempfile::TempDir, Vec<u8>, Vec<u8>)> = OnceLock::new();
    PATHS.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/models/qwen2_tied");
        let bundle = folder.path().join("bundle");
        convert(&source, &bundle, &ConvertOptions::default(), &mut |_, _| {}).expect("the golden model");
        let text = |path: &Path| [path.as_os_str().as_encoded_bytes(), b"\0"].concat();
        let graph = text(&folder.path().join("graph"));
        (folder, text(&bundle), graph)
    })
}

/// What callbacks look at: the model and the request of the program that came last.
static MODEL: AtomicUsize = AtomicUsize::new(0);
static REQUEST: AtomicUsize = AtomicUsize::new(0);

fn held<T>(place: &AtomicUsize) -> *mut T {
    without_provenance_mut(place.load(Ordering::Relaxed))
}

/// What a callback does is in place of what belongs to it: nothing lives behind that address.
fn misbehave(what: usize) {
    // SAFETY: as the module says.
    unsafe {
        match what {
            1 => drop(cactus_request_cancel(held(&REQUEST))),
            2 => drop(cactus_request_close(held(&REQUEST))),
            3 => {
                let mut result = null_mut();
                if cactus_request_wait(held(&REQUEST), &raw mut result) == 0 {
                    cactus_string_free(result);
                }
            }
            4 => drop(cactus_model_close(held(&MODEL))),
            5 => cactus_stop(held(&MODEL)),
            6 => cactus_clear_error(),
            7 => drop(cactus_request_consent(held(&REQUEST), true)),
            _ => {}
        }
    }
}

unsafe extern "C" fn on_event(event: *const cactus_event, user_data: *mut c_void) {
    // SAFETY: as the module says.
    let (event, text, json) = unsafe { ((*event).kind, text((*event).text), text((*event).json)) };
    assert!((1..=10).contains(&event), "event {event}");
    assert!(
        json.is_empty() || serde_json::from_str::<serde_json::Value>(&json).is_ok(),
        "{text} {json}"
    );
    misbehave(user_data.addr());
}

unsafe extern "C" fn on_token(token: *const c_char, _id: u32, user_data: *mut c_void) {
    let _ = text(token);
    misbehave(user_data.addr());
}

unsafe extern "C" fn on_progress(
    stage: *const c_char,
    what: *const c_char,
    done: u64,
    total: u64,
    user_data: *mut c_void,
) -> c_int {
    assert!(!text(stage).is_empty() && done <= total);
    let _ = text(what);
    c_int::from(user_data.addr() == 1)
}

unsafe extern "C" fn on_log(level: c_int, component: *const c_char, message: *const c_char, _user_data: *mut c_void) {
    assert!((0..4).contains(&level) && !text(component).is_empty() && !text(message).is_empty());
}

/// A text that the library lends.
fn text(borrowed: *const c_char) -> String {
    assert!(!borrowed.is_null(), "a text that is NULL");
    // SAFETY: as the module says.
    let text = unsafe { CStr::from_ptr(borrowed) };
    text.to_str().expect("the library gives UTF-8").to_owned()
}

/// A text that the library gives away, where the call succeeded.
fn taken(owned: *mut c_char, succeeded: bool) {
    assert!(succeeded || owned.is_null(), "a failed call gave a text");
    if !owned.is_null() {
        text(owned);
        unsafe { cactus_string_free(owned) };
    }
}

/// The last error, which has to be one that is no defect.
fn last_error() -> i32 {
    let mut error = cactus_error {
        code: 1,
        kind: null(),
        message: null(),
    };
    // SAFETY: as the module says.
    assert_eq!(unsafe { cactus_last_error(&raw mut error) }, 0);
    let message = text(error.message);
    assert!((-19..-1).contains(&error.code), "{} {message}", error.code);
    assert!(!message.is_empty() && text(error.kind) != "unknown");
    error.code
}

/// One of our functions: whether it succeeded.
fn ours(code: c_int) -> bool {
    assert!(code == 0 || last_error() == code, "returned {code}");
    code == 0
}

/// One of the public functions, likewise.
fn public(code: c_int) -> bool {
    if code < 0 {
        assert!(code == -1 || code == -2, "returned {code}");
        last_error();
    }
    code >= 0
}

/// A buffer of the program, with something behind it that has to stay.
struct Room {
    bytes: Vec<u64>,
    size: usize,
    is_null: bool,
}

impl Room {
    const BEHIND: u64 = 0x5555_5555_5555_5555;

    fn start<T>(&mut self) -> *mut T {
        match self.is_null {
            true => null_mut(),
            false => self.bytes.as_mut_ptr().cast(),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.bytes.last(), Some(&Self::BEHIND), "it wrote behind a buffer");
        }
    }
}

/// A program, and what it holds. Closed handles stay in the lists.
struct Run<'a> {
    bytes: &'a [u8],
    models: Vec<*mut c_void>,
    sessions: Vec<*mut c_void>,
    requests: Vec<*mut c_void>,
    graphs: Vec<*mut c_void>,
    nodes: Vec<u64>,
    /// Some input is larger than what a program could give.
    is_huge: bool,
}

impl Run<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else {
            return 0;
        };
        self.bytes = rest;
        *first
    }

    fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A count that is small, or none at all.
    fn count(&mut self) -> usize {
        match self.byte() {
            0xff => usize::MAX,
            0xfe => 1 << 40,
            byte => usize::from(byte),
        }
    }

    /// Most often a handle of `kind`, closed or not; else one of another kind, or none.
    fn handle<T>(&mut self, kind: usize) -> *mut T {
        let byte = self.byte();
        let lists = [&self.models, &self.sessions, &self.requests, &self.graphs];
        let from = |list: &[*mut c_void]| list.get(usize::from(byte) % list.len().max(1)).copied();
        let found = match byte {
            0..0xc0 => from(lists[kind]),
            0xc0..0xe0 => from(lists[(kind + 1 + usize::from(byte) % 3) % 4]),
            0xe0..0xf0 => from(lists[kind]).map(|h| without_provenance_mut(h.addr() ^ (1 << (byte % 16 * 4)))),
            0xf0..0xf8 => Some(without_provenance_mut(usize::from(byte))),
            _ => Some(without_provenance_mut(usize::MAX)),
        };
        found.unwrap_or_default().cast()
    }

    /// A text of the list, the same damaged, or bytes of the program; none for NULL.
    fn text(&mut self) -> Option<Vec<u8>> {
        let mut text = match self.byte() {
            0 => return None,
            byte @ 1..0x60 => TEXTS[usize::from(byte - 1) % TEXTS.len()].as_bytes().to_vec(),
            byte @ 0x60..0xa0 => {
                let mut text = TEXTS[usize::from(byte) % TEXTS.len()].as_bytes().to_vec();
                let (at, new) = (self.below(text.len()), self.byte());
                match (text.get_mut(at), new) {
                    (Some(_), 0) => text.truncate(at),
                    (Some(_), 1) => drop(text.remove(at)),
                    (Some(old), new) => *old = new,
                    (None, _) => {}
                }
                text
            }
            byte => {
                let (inside, rest) = self.bytes.split_at(usize::from(byte - 0xa0).min(self.bytes.len()));
                self.bytes = rest;
                inside.to_vec()
            }
        };
        text.push(0);
        Some(text)
    }

    fn room(&mut self) -> Room {
        let byte = self.byte();
        let words = [0, 1, 2, 8, 32, 512, 4096, 8192][usize::from(byte % 8)];
        let mut bytes = vec![0; words];
        bytes.push(Room::BEHIND);
        Room {
            size: if byte >= 0xfc { usize::MAX } else { words * 8 },
            // A size that no object has is only given for no object.
            is_null: byte & 0x40 != 0 || byte >= 0xfc,
            bytes,
        }
    }

    fn ids(&mut self) -> Vec<u32> {
        let count = self.below(24);
        (0..count)
            .map(|_| match self.byte() {
                0xff => u32::MAX,
                id => u32::from(id),
            })
            .collect()
    }

    fn node(&mut self) -> u64 {
        let byte = self.byte();
        match self.nodes.get(usize::from(byte) % self.nodes.len().max(1)) {
            Some(&node) if byte < 0xf0 => node,
            _ => u64::from(byte) << (byte % 8 * 8),
        }
    }

    fn shape(&mut self) -> Vec<usize> {
        let rank = self.below(5);
        let mut dims: Vec<usize> = (0..rank).map(|_| self.count()).collect();
        dims.iter_mut().filter(|d| **d < 200).for_each(|d| *d %= 5);
        self.is_huge |= dims.iter().any(|&d| d >= 200);
        dims
    }

    /// Gives the bundle, or something that is none; nothing that could be looked for elsewhere.
    fn model_name(&mut self) -> *const c_char {
        match self.byte() {
            0 => null(),
            0xf0 => c"/nowhere".as_ptr(),
            0xf1 => c"\xff/\xfe".as_ptr(),
            0xf2 => c"/".as_ptr(),
            _ => paths().1.as_ptr().cast(),
        }
    }

    fn load(&mut self) -> bool {
        let (name, options, stops) = (self.model_name(), self.text(), self.below(4));
        let mut model = null_mut();
        // SAFETY: as the module says.
        let code = unsafe {
            cactus_model_load(
                name,
                start(&options),
                Some(on_progress),
                without_provenance_mut(stops),
                &raw mut model,
            )
        };
        let loaded = ours(code);
        assert_eq!(loaded, !model.is_null());
        self.models.extend(loaded.then_some(model.cast()));
        loaded
    }

    /// Begins a request, by a model or a session.
    fn ask(&mut self, in_session: bool) -> bool {
        let mut request = null_mut();
        let handle = self.handle::<c_void>(usize::from(in_session));
        let (asked, polled, what) = (self.text(), self.flag(), self.below(8));
        let (callback, user): (cactus_event_callback, _) = match polled {
            true => (None, null_mut()),
            false => (Some(on_event), without_provenance_mut(what)),
        };
        let asked = start(&asked);
        // SAFETY: as the module says.
        let begun = ours(unsafe {
            match in_session {
                true => cactus_session_send(handle.cast(), asked, callback, user, &raw mut request),
                false => cactus_request_start(handle.cast(), asked, callback, user, &raw mut request),
            }
        });
        assert_eq!(begun, !request.is_null());
        if begun {
            REQUEST.store(request.addr(), Ordering::Relaxed);
            self.requests.push(request.cast());
        }
        begun
    }

    fn complete(&mut self, only_prefill: bool) -> bool {
        let model = self.handle::<c_void>(0);
        let (messages, options, tools) = (self.text(), self.text(), self.text());
        let (mut room, pcm, what) = (self.room(), self.below(3), self.below(8));
        let size = room.size;
        let sound = [0u8; 2];
        let sound = if pcm == 1 { null() } else { sound.as_ptr() };
        // SAFETY: as the module says.
        public(unsafe {
            let (messages, options, tools) = (start(&messages), start(&options), start(&tools));
            match only_prefill {
                true => cactus_prefill(model, messages, room.start(), size, options, tools, sound, pcm),
                false => cactus_complete(
                    model,
                    messages,
                    room.start(),
                    size,
                    options,
                    tools,
                    Some(on_token),
                    without_provenance_mut(what),
                    sound,
                    pcm,
                ),
            }
        })
    }

    fn absent(&mut self) -> bool {
        let model = self.handle::<c_void>(0);
        let (text, mut room, mut length) = (self.text(), self.room(), 0);
        let (text, size) = (start(&text), room.size);
        // SAFETY: as the module says.
        public(unsafe {
            match self.below(6) {
                0 => cactus_embed(model, text, room.start(), size / 4, &raw mut length, true),
                1 => cactus_image_embed(model, text, room.start(), size / 4, &raw mut length),
                2 => cactus_audio_embed(model, text, room.start(), size / 4, &raw mut length),
                3 => cactus_transcribe(model, text, text, room.start(), size, text, None, null_mut(), null(), 0),
                4 => cactus_rag_query(model, text, room.start(), size, 3),
                _ => cactus_set_backend(text),
            }
        })
    }

    /// One call; whether it succeeded.
    fn call(&mut self) -> bool {
        let (mut string, mut count) = (null_mut(), 0);
        let function = self.below(40);
        // SAFETY: as the module says.
        unsafe {
            match function {
                0 => self.load(),
                1 => ours(cactus_model_close(self.handle(0))),
                2 => {
                    let done = ours(cactus_model_info(self.handle(0), &raw mut string));
                    taken(string, done);
                    done
                }
                3 => {
                    let (model, text, special) = (self.handle(0), self.text(), self.flag());
                    let mut tokens = null_mut();
                    let done = ours(cactus_model_tokenize(
                        model,
                        start(&text),
                        special,
                        &raw mut tokens,
                        &raw mut count,
                    ));
                    assert_eq!(done, !tokens.is_null());
                    cactus_tokens_free(tokens, count);
                    done
                }
                4 => {
                    let (model, ids, wrong) = (self.handle(0), self.ids(), self.byte());
                    let (place, given) = wrongly(&ids, wrong);
                    let done = ours(cactus_model_detokenize(
                        model,
                        place,
                        given,
                        wrong & 1 == 1,
                        &raw mut string,
                    ));
                    taken(string, done);
                    done
                }
                5 => {
                    let (model, ids, first, wrong) = (self.handle(0), self.ids(), self.count(), self.byte());
                    let (place, given) = wrongly(&ids, wrong);
                    let done = ours(cactus_model_score(model, place, given, first, &raw mut string));
                    taken(string, done);
                    done
                }
                6 => ours(cactus_model_set_threads(self.handle(0), self.count(), self.count())),
                7 => {
                    let done = ours(cactus_check_bundle(self.model_name(), self.flag(), &raw mut string));
                    // There is a report in either case.
                    taken(string, true);
                    done
                }
                8..=11 => self.ask(false),
                12 => {
                    let (request, mut over) = (self.handle(2), false);
                    let timeout = [0, 1, 5, -1, i64::MIN][self.below(5)];
                    let done = ours(cactus_request_next(request, timeout, &raw mut string, &raw mut over));
                    taken(string, done);
                    done
                }
                13 => {
                    let done = ours(cactus_request_wait(self.handle(2), &raw mut string));
                    taken(string, done);
                    done
                }
                14 => match self.below(4) {
                    0 => ours(cactus_request_consent(self.handle(2), self.flag())),
                    1 => ours(cactus_model_set_policy(
                        self.handle(0),
                        start(&self.text()),
                        start(&self.text()),
                    )),
                    _ => ours(cactus_request_cancel(self.handle(2))),
                },
                15 => ours(cactus_request_close(self.handle(2))),
                16 => {
                    let (model, defaults, mut session) = (self.handle(0), self.text(), null_mut());
                    let done = ours(cactus_session_open(model, start(&defaults), &raw mut session));
                    self.sessions.extend(done.then_some(session.cast()));
                    done
                }
                17 | 18 => self.ask(true),
                19 => {
                    let done = ours(cactus_session_messages(self.handle(1), &raw mut string));
                    taken(string, done);
                    done
                }
                20 => ours(cactus_session_close(self.handle(1))),
                21 | 22 => self.complete(false),
                23 => self.complete(true),
                24 => {
                    let (model, text, mut room) = (self.handle(0), self.text(), self.room());
                    let size = room.size / 4;
                    public(cactus_tokenize(model, start(&text), room.start(), size, &raw mut count))
                }
                25 => {
                    let (model, messages, options, tools) = (self.handle(0), self.text(), self.text(), self.text());
                    let mut room = self.room();
                    let size = room.size;
                    let (messages, options, tools) = (start(&messages), start(&options), start(&tools));
                    public(cactus_render_prompt(
                        model,
                        messages,
                        options,
                        tools,
                        room.start(),
                        size,
                    ))
                }
                26 => {
                    let (model, ids, wrong) = (self.handle(0), self.ids(), self.byte());
                    let (from, to, context, mut room) = (self.count(), self.count(), self.count(), self.room());
                    let ((place, given), size) = (wrongly(&ids, wrong), room.size);
                    public(cactus_score_window(
                        model,
                        place,
                        given,
                        from,
                        to,
                        context,
                        room.start(),
                        size,
                    ))
                }
                27 => {
                    let (name, corpus) = (self.model_name(), self.text());
                    let model = cactus_init(name, start(&corpus), false);
                    self.models.extend((!model.is_null()).then_some(model));
                    !model.is_null()
                }
                28 => {
                    match self.below(4) {
                        0 => cactus_destroy(self.handle(0)),
                        1 => cactus_reset(self.handle(0)),
                        2 => cactus_stop(self.handle(0)),
                        _ => cactus_memory_pressure(),
                    }
                    true
                }
                29 => self.absent(),
                30 => {
                    let level = i32::from(self.byte()) - 2;
                    cactus_log_set_level(level);
                    cactus_log_set_callback(Some(on_log), null_mut());
                    !text(cactus_error_kind(level)).is_empty()
                }
                _ => self.graph(function),
            }
        }
    }

    fn graph(&mut self, function: usize) -> bool {
        // What a program gives is never smaller than what its shapes say.
        static DATA: [u64; 1 << 10] = [0; 1 << 10];
        let mut out = u64::MAX;
        let graph = self.handle::<c_void>(3);
        // SAFETY: as the module says.
        let done = public(unsafe {
            match function {
                31 => {
                    let graph = match self.below(4) {
                        0 => cactus_graph_load(paths().2.as_ptr().cast()),
                        _ => cactus_graph_create(),
                    };
                    self.graphs.extend((!graph.is_null()).then_some(graph));
                    return !graph.is_null();
                }
                32 => {
                    let shape = self.shape();
                    cactus_graph_input(
                        graph,
                        shape.as_ptr(),
                        shape.len(),
                        c_int::from(self.byte() % 6),
                        &raw mut out,
                    )
                }
                33 => {
                    let (node, precision) = (self.node(), c_int::from(self.byte() % 6));
                    let data = if self.is_huge || self.byte() == 0xff {
                        null()
                    } else {
                        DATA.as_ptr().cast()
                    };
                    cactus_graph_set_input(graph, node, data, precision)
                }
                34 => match self.below(5) {
                    0 => cactus_graph_add(graph, self.node(), self.node(), &raw mut out),
                    1 => cactus_graph_matmul(graph, self.node(), self.node(), self.flag(), &raw mut out),
                    2 => cactus_graph_softmax(graph, self.node(), c_int::from(self.byte()) - 8, &raw mut out),
                    3 => cactus_graph_scalar_add(graph, self.node(), f32::NAN, &raw mut out),
                    _ => {
                        let (node, shape) = (self.node(), self.shape());
                        cactus_graph_reshape(graph, node, shape.as_ptr(), shape.len(), &raw mut out)
                    }
                },
                35 | 36 => cactus_graph_execute(graph),
                37 => {
                    let mut place = null_mut();
                    cactus_graph_get_output_ptr(graph, self.node(), &raw mut place)
                }
                38 => match self.flag() {
                    true => cactus_graph_save(graph, paths().2.as_ptr().cast()),
                    false => cactus_graph_hard_reset(graph),
                },
                _ => {
                    cactus_graph_destroy(graph);
                    return true;
                }
            }
        });
        self.nodes.extend((done && out != u64::MAX).then_some(out));
        done
    }

    /// Closes what is open: each is closed or gives the code of handles, and then that code for ever.
    fn close(&mut self) {
        let closed = |code: c_int| assert!(ours(code) || code == Code::Handle as i32, "{code}");
        for twice in [false, true] {
            for &request in &self.requests {
                // SAFETY: as the module says.
                closed(unsafe { cactus_request_close(request.cast()) });
            }
            for &session in &self.sessions {
                closed(unsafe { cactus_session_close(session.cast()) });
            }
            for &model in &self.models {
                closed(unsafe { cactus_model_close(model.cast()) });
                assert!(!twice || !ours(unsafe { cactus_model_set_threads(model.cast(), 1, 1) }));
            }
        }
        for &graph in &self.graphs {
            // SAFETY: as the module says.
            unsafe { cactus_graph_destroy(graph) };
        }
    }
}

fn start(text: &Option<Vec<u8>>) -> *const c_char {
    text.as_ref().map_or(null(), |text| text.as_ptr().cast())
}

/// Ids as they are, or as no program may give them and what is recognized: no array, one that is too long to be one, one that
/// begins between two ids.
fn wrongly(ids: &[u32], how: u8) -> (*const u32, usize) {
    match how {
        0xfd => (ids.as_ptr(), usize::MAX),
        0xfe => (null(), ids.len()),
        0xff => (
            ids.as_ptr().cast::<u8>().wrapping_add(1).cast(),
            ids.len().saturating_sub(1),
        ),
        _ => (ids.as_ptr(), ids.len()),
    }
}

/// Runs a program with one model that is loaded before. Accepted is what has a call that succeeded.
pub(crate) fn c_calls(data: &[u8]) -> bool {
    // What another program has saved is not looked at.
    let _ = std::fs::remove_file(paths().0.path().join("graph"));
    let mut run = Run {
        bytes: &[1, 11, 2],
        models: Vec::new(),
        sessions: Vec::new(),
        requests: Vec::new(),
        graphs: Vec::new(),
        nodes: Vec::new(),
        is_huge: false,
    };
    assert!(run.load());
    run.bytes = data;
    MODEL.store(run.models[0].addr(), Ordering::Relaxed);
    let mut succeeded = false;
    for _ in 0..MAX_CALLS {
        if run.bytes.is_empty() {
            break;
        }
        succeeded |= run.call();
    }
    // SAFETY: as the module says.
    unsafe { cactus_log_set_callback(None, null_mut()) };
    run.close();
    succeeded
}

/// Programs that use every function as it is meant, and some in passing as it is not.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let programs: [&[u8]; 8] = [
        // Ask, stream, wait, close, ask the closed.
        &[
            8, 0, 2, 0, 0, 13, 0, 12, 0, 0, 15, 0, 13, 0, 9, 0, 3, 1, 12, 0, 3, 12, 0, 3, 15, 1,
        ],
        // A conversation, closed while it answers; messages.
        &[
            16, 0, 9, 17, 0, 10, 0, 0, 19, 0, 17, 0, 10, 0, 1, 13, 0, 20, 0, 15, 0, 14, 1, 19, 0,
        ],
        // Callbacks that cancel, close, wait, and close the model.
        &[
            8, 0, 2, 0, 1, 8, 0, 3, 0, 2, 8, 0, 4, 0, 3, 13, 0, 8, 0, 5, 0, 4, 13, 3, 2, 0, 8, 0, 2, 0, 0,
        ],
        // Text to tokens and back, scores, threads, information.
        &[
            3, 0, 15, 1, 4, 0, 3, 5, 6, 7, 0, 5, 0, 4, 5, 6, 7, 8, 1, 0, 6, 0, 1, 1, 2, 0, 7, 1, 1, 4, 0, 2, 9, 9, 0xff,
        ],
        // The public functions, with room and without.
        &[
            21, 0, 1, 6, 8, 5, 0, 0, 22, 0, 1, 0, 0, 6, 0, 5, 21, 0, 1, 6, 0, 1, 0, 0, 23, 0, 1, 6, 0, 6, 0, 0, 24, 0,
            15, 5, 25, 0, 1, 6, 8, 6, 26, 0, 4, 5, 6, 7, 8, 0, 1, 3, 2, 5, 27, 1, 0, 28, 0, 1, 29, 0, 15, 5, 5,
        ],
        // Loads, loads what is none, closes one and asks it.
        &[
            0, 1, 11, 2, 0, 0xf0, 11, 2, 0, 1, 12, 1, 30, 2, 8, 1, 2, 1, 0, 1, 1, 8, 1, 2, 1, 0, 27, 1, 16, 30, 0, 1,
            1, 28, 3,
        ],
        // Graphs.
        &[
            31, 0, 1, 32, 0, 2, 2, 3, 1, 33, 0, 0, 1, 0, 34, 0, 0, 0, 0, 34, 0, 2, 1, 9, 35, 0, 37, 0, 1, 38, 0, 1, 31,
            1, 0, 35, 1, 38, 0, 0, 39, 0, 35, 0,
        ],
        // Damaged texts, bytes that are no text, handles that are none.
        &[
            8, 0, 0x62, 9, b'x', 0, 0, 8, 0, 0x63, 20, 0, 0, 0, 3, 0, 0xa3, 0xff, 0xfe, 0xfd, 1, 21, 0xc1, 0xa1, b'[',
            1, 1, 5, 0, 0, 2, 0xe0, 2, 0xf1, 2, 0xff, 28, 0, 0xff, 8, 0, 2, 1, 0,
        ],
    ];
    programs.into_iter().map(<[u8]>::to_vec).collect()
}
