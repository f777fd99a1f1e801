//! JavaScript's raw layer: the interface `Native` in TypeScript, and C++ that calls the library with values of no host.
//!
//! Purpose: Node's addon and React Native's module differ in how a value of JavaScript is read and made, and in nothing else. So
//! what is generated here knows neither: `raw.cpp` takes arguments as `Value`s and leaves a `Value`, and each host converts.
//! `sdks/node/native/call.hpp` says what a `Value` is. Four functions have a shape of their own and are written by hand in
//! `sdks/node/native/by_hand.cpp`.

use super::{Abi, Function, Generated, Named};
use std::fmt::Write as _;

/// Functions that the library's other callers need, and JavaScript does not: what they do is done for every call.
const LEFT_OUT: &[&str] = &[
    "cactus_clear_error",
    "cactus_error_kind",
    "cactus_last_error",
    "cactus_string_free",
    "cactus_tokens_free",
];

/// Functions with a thunk by hand: parameters, and what they give, in TypeScript, and what is different from C.
const BY_HAND: &[(&str, &str, &str, &str)] = &[
    (
        "cactus_request_next",
        "request: Handle, timeout_ms: number",
        "string",
        "Here it gives a JSON array with that event and all that came with it; an empty one where none came in time or none will come \
         any more. A request that is closed meanwhile is an error of the kind `handle`.",
    ),
    (
        "cactus_stream_transcribe_stop",
        "stream: Handle, finish: boolean",
        "string",
        "Here `finish` says whether what was said last is wanted; without it nothing is waited for, and the text is empty.",
    ),
    (
        "cactus_index_get",
        "index: Handle, ids: Int32Array",
        "{ documents: string[]; metadatas: string[]; embeddings: Float32Array }",
        "Here vectors stand one behind the other, and buffers are as large as need be.",
    ),
    (
        "cactus_index_query",
        "index: Handle, embeddings: Float32Array, embedding_dim: number, options_json: Text, room: number",
        "{ counts: Uint32Array; ids: Int32Array; scores: Float32Array }",
        "Here vectors stand one behind the other, and so do the results; `counts` says how many each has. `room` is the most that one \
         can have.",
    ),
];

/// What gives a handle, and what closes it.
const CLOSERS: &[(&str, &str)] = &[
    ("cactus_model_load", "cactus_model_close"),
    ("cactus_request_start", "cactus_request_close"),
    ("cactus_session_open", "cactus_session_close"),
    ("cactus_session_send", "cactus_request_close"),
    ("cactus_transcription_start", "cactus_request_close"),
    ("cactus_init", "cactus_destroy"),
    ("cactus_index_init", "cactus_index_destroy"),
    ("cactus_stream_transcribe_start", "cactus_stream_transcribe_stop"),
];

/// Texts that every call needs. All others may be null.
const NEEDED: &[&str] = &[
    "name",
    "text",
    "request_json",
    "path",
    "image_path",
    "index_dir",
    "model_path",
    "query",
    "messages_json",
];

/// What one or more parameters of C are in JavaScript.
#[derive(Debug, PartialEq, Eq)]
enum Shape {
    /// Arguments, by name.
    Text(String),
    Flag(String),
    /// With its type in C.
    Number(String, String),
    Handle(String),
    /// `const uint32_t *`, and how many.
    Ids(String),
    /// `const int *`, and how many somewhere behind it.
    Ints(String),
    /// `const uint8_t *`, and how many.
    Bytes(String),
    /// `const char *const *`, as many as there are numbers.
    Texts(String),
    /// `const float *const *`, as many as there are numbers, each of as many floats as the dimension says.
    Rows(String),
    Progress,
    Tokens,
    Log,
    /// A callback that is not used, as events are fetched.
    NoEvents,
    /// How many numbers there are.
    Count,
    /// Results.
    GivesText,
    GivesIds,
    /// `char *buffer, size_t buffer_size`.
    GivesBuffer,
    /// `float *buffer, size_t buffer_size, size_t *dim`.
    GivesFloats,
    /// With its type in C.
    GivesHandle(String),
}

/// Groups the parameters of a function.
///
/// # Panics
/// Where a parameter has a form that is not known here: it is added here, or to [`BY_HAND`].
fn shapes(function: &Function) -> Vec<Shape> {
    let all = &function.parameters;
    let kind = |i: usize| all.get(i).map_or("", |p| p.kind.as_str());
    let mut shapes = Vec::new();
    let mut i = 0;
    while i < all.len() {
        let name = all[i].name.trim_start_matches('_').to_owned();
        let (shape, taken) = match (kind(i), kind(i + 1), kind(i + 2)) {
            ("char *", "size_t", _) => (Shape::GivesBuffer, 2),
            ("float *", "size_t", "size_t *") => (Shape::GivesFloats, 3),
            ("uint32_t **", "size_t *", _) => (Shape::GivesIds, 2),
            ("char **", ..) => (Shape::GivesText, 1),
            ("const uint32_t *", "size_t", _) => (Shape::Ids(name), 2),
            ("const uint8_t *", "size_t", _) => (Shape::Bytes(name), 2),
            ("const int *", ..) => (Shape::Ints(name), 1),
            ("const char *const *", ..) => (Shape::Texts(name), 1),
            ("const float *const *", ..) => (Shape::Rows(name), 1),
            ("size_t", ..) if name == "count" || name == "ids_count" => (Shape::Count, 1),
            ("const char *", ..) => (Shape::Text(name), 1),
            ("bool", ..) => (Shape::Flag(name), 1),
            ("cactus_progress_callback", "void *", _) => (Shape::Progress, 2),
            ("cactus_token_callback", "void *", _) => (Shape::Tokens, 2),
            ("cactus_log_callback_t", "void *", _) => (Shape::Log, 2),
            ("cactus_event_callback", "void *", _) => (Shape::NoEvents, 2),
            ("void *", ..) => (Shape::Handle(name), 1),
            (c @ ("size_t" | "int" | "int32_t" | "int64_t"), ..) => (Shape::Number(name, c.to_owned()), 1),
            (c, ..) => match c.strip_prefix("struct ") {
                Some(c) if c.ends_with(" **") => (Shape::GivesHandle(format!("struct {}", &c[..c.len() - 1])), 1),
                Some(_) => (Shape::Handle(name), 1),
                None => panic!("{}: a parameter of the type `{c}` is not known", function.name),
            },
        };
        shapes.push(shape);
        i += taken;
    }
    shapes
}

/// `cactus_model_load` is `modelLoad`.
fn name(function: &Function) -> String {
    let mut words = function.name.trim_start_matches("cactus_").split('_');
    let mut name = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at(1);
        name += &first.to_uppercase();
        name += rest;
    }
    name
}

fn by_hand(function: &Function) -> Option<&'static (&'static str, &'static str, &'static str, &'static str)> {
    BY_HAND.iter().find(|(name, ..)| *name == function.name)
}

fn closer(function: &Function) -> Option<&'static str> {
    let found = CLOSERS.iter().find(|(opens, _)| *opens == function.name);
    found.map(|(_, closes)| *closes)
}

fn is_closer(function: &Function) -> bool {
    CLOSERS.iter().any(|(_, closes)| *closes == function.name)
}

fn used(abi: &Abi) -> impl Iterator<Item = &Function> {
    abi.functions()
        .filter(|function| !LEFT_OUT.contains(&function.name.as_str()))
}

pub(super) fn files(abi: &Abi) -> Vec<Generated> {
    vec![
        ("sdks/node/src/native.ts".to_owned(), typescript(abi)),
        ("sdks/node/native/symbols.hpp".to_owned(), symbols(abi)),
        ("sdks/node/native/raw.cpp".to_owned(), raw(abi)),
    ]
}

/// Breaks a text into lines of a comment.
fn comment(text: &str, before: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always one");
        if !line.is_empty() && before.len() + line.len() + word.len() + 1 > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.iter().map(|line| format!("{before}{line}\n")).collect()
}

/// A comment of documentation in TypeScript.
fn block(text: &str, indent: &str) -> String {
    let lines = comment(text, &format!("{indent} * "), 132);
    match lines.lines().count() {
        1 => format!("{indent}/** {} */\n", text.trim()),
        _ => format!("{indent}/**\n{lines}{indent} */\n"),
    }
}

/// `CACTUS_CODE_NOT_FOUND` is `not_found`.
fn spelled(value: &str) -> String {
    let name = value
        .trim_start_matches("CACTUS_CODE_")
        .trim_start_matches("CACTUS_EVENT_KIND_");
    name.to_lowercase()
}

const TYPESCRIPT_HEAD: &str = r"// What a host gives to the SDK: the functions of libcactus. Made by `cargo xtask sdks`; do not edit.
//
// Everything else of the SDK is written over this interface and knows no host: Node's addon, React Native's module and the
// WebAssembly build each give an object of the type `Native` to `provide`.
//
// Functions of the first part of the interface return at once; a host whose library is on another thread may give a promise. All
// others read files, compute or wait: they run on a thread of the host's own, never on the one that runs JavaScript, and as many at
// once as are called. What fails throws, or rejects with, an `Error` that has `code` and `kind` of the C library.

/** A number that stands for an object of the library. A number that was closed gives an error of the kind `handle`, for ever. */
export type Handle = number;

/** Text, or null where there is none. */
export type Text = string | null;

/** A value, at once or later. */
export type Soon<T> = T | Promise<T>;

/** Takes the progress of loading. Called on the thread of JavaScript while the function runs; false stops it within seconds. */
export type OnProgress = (stage: string, what: string, done: number, total: number) => unknown;

/** Takes the text of a token, and the token. */
export type OnToken = (text: string, token: number) => unknown;

/** Takes what the library has to say: level (0 debug, 1 information, 2 warning, 3 error), part of the library, and message. */
export type OnLog = (level: number, component: string, message: string) => unknown;
";

const TYPESCRIPT_TAIL: &str = r#"
let provided: Native | undefined;
let maker: (() => Native) | undefined;

/** Says where the functions come from. `make` is called when the first of them is needed, and once, unless it throws. */
export function provide(make: () => Native): void {
  provided = undefined;
  maker = make;
}

/** The functions of this host. */
export function native(): Native {
  if (provided === undefined) {
    if (maker === undefined) throw new Error("no host has given the functions of libcactus; import the package of your platform");
    provided = maker();
  }
  return provided;
}
"#;

fn typescript(abi: &Abi) -> String {
    let mut text = TYPESCRIPT_HEAD.to_owned();
    let _ = write!(
        text,
        "\n/** The ABI that this package was made for. */\nexport const ABI_VERSION = {};\n",
        abi.abi_version
    );
    for (name, of, enumeration) in [
        ("ErrorKind", "Why a call failed.", "cactus_code"),
        ("EventName", "What happens to a request.", "cactus_event_kind"),
    ] {
        let found = abi.enumerations.iter().find(|e| e.name == enumeration);
        let values = found.map_or(&[][..], |e| &e.values);
        let _ = write!(text, "\n/** {of} */\nexport type {name} =\n");
        for value in values {
            text += &block(&value.doc, "  ");
            let _ = writeln!(text, "  | \"{}\"", spelled(&value.name));
        }
        text.truncate(text.trim_end().len());
        text += ";\n";
    }
    text += "\nexport interface Native {\n";
    for at_once in [true, false] {
        for function in used(abi).filter(|f| f.is_at_once() == at_once) {
            let (parameters, result) = signature(function);
            let mut doc = function.doc.clone();
            if let Some((.., different)) = by_hand(function) {
                let _ = write!(doc, " {different}");
            }
            text += &block(&doc, "  ");
            let result = match (at_once, function.name.as_str()) {
                (_, "cactus_version" | "cactus_abi_version") => result,
                (true, _) => format!("Soon<{result}>"),
                (false, _) => format!("Promise<{result}>"),
            };
            let _ = writeln!(text, "  {}({parameters}): {result};", name(function));
        }
    }
    text + "}\n" + TYPESCRIPT_TAIL
}

/// Parameters and result in TypeScript.
fn signature(function: &Function) -> (String, String) {
    if let Some((_, parameters, result, _)) = by_hand(function) {
        return ((*parameters).to_owned(), (*result).to_owned());
    }
    let mut parameters = Vec::new();
    let mut result = match (function.returns.as_str(), closer(function)) {
        ("void *", Some(_)) => "Handle",
        ("const char *", _) => "string",
        ("uint32_t", _) => "number",
        _ => "void",
    };
    for shape in shapes(function) {
        let (name, kind) = match shape {
            Shape::Text(name) if NEEDED.contains(&name.as_str()) => (name, "string"),
            Shape::Text(name) => (name, "Text"),
            Shape::Flag(name) => (name, "boolean"),
            Shape::Number(name, _) => (name, "number"),
            Shape::Handle(name) => (name, "Handle"),
            Shape::Ids(name) => (name, "Uint32Array"),
            Shape::Ints(name) => (name, "Int32Array"),
            Shape::Bytes(name) => (name, "Uint8Array | null"),
            Shape::Texts(name) => (name, "(string | null)[]"),
            Shape::Rows(name) => (name, "Float32Array"),
            Shape::Progress => ("progress".to_owned(), "OnProgress | null"),
            Shape::Tokens => ("callback".to_owned(), "OnToken | null"),
            Shape::Log => ("callback".to_owned(), "OnLog | null"),
            Shape::NoEvents | Shape::Count => continue,
            Shape::GivesText | Shape::GivesBuffer => {
                result = "string";
                continue;
            }
            Shape::GivesIds => {
                result = "Uint32Array";
                continue;
            }
            Shape::GivesFloats => {
                result = "Float32Array";
                continue;
            }
            Shape::GivesHandle(_) => {
                result = "Handle";
                continue;
            }
        };
        parameters.push(format!("{name}: {kind}"));
    }
    (parameters.join(", "), result.to_owned())
}

/// The pointers of the functions, and the table of what JavaScript calls.
fn symbols(abi: &Abi) -> String {
    let mut text = String::from(
        "// The functions of libcactus that JavaScript calls. Made by `cargo xtask sdks`; do not edit.\n#ifndef CACTUS_JS_SYMBOLS_HPP\n\
         #define CACTUS_JS_SYMBOLS_HPP\n\n#include \"cactus.h\"\n\nnamespace cactus::js {\n\n\
         /// Pointers to the functions of one library.\nstruct Symbols {\n",
    );
    for function in abi.functions() {
        let _ = writeln!(text, "    decltype(&::{0}) {0};", function.name);
    }
    text += "};\n\n/// Calls `f(name, place)` for the place of each pointer.\ntemplate <typename F>\n\
             void for_each_symbol(Symbols &symbols, F f) {\n";
    for function in abi.functions() {
        let _ = writeln!(
            text,
            "    f(\"{0}\", reinterpret_cast<void **>(&symbols.{0}));",
            function.name
        );
    }
    text += "}\n\n#ifdef CACTUS_LINKED\n/// The functions of the library that is linked into the program.\n\
             inline void link_symbols(Symbols &symbols) {\n";
    for function in abi.functions() {
        let _ = writeln!(text, "    symbols.{0} = &::{0};", function.name);
    }
    text + "}\n#endif\n\n} // namespace cactus::js\n\n#endif\n"
}

fn raw(abi: &Abi) -> String {
    let mut text = String::from(
        "// Calls of libcactus with values of no host. Made by `cargo xtask sdks`; do not edit.\n\n#include \"call.hpp\"\n\n\
         namespace cactus::js {\n\nnamespace {\n",
    );
    for function in used(abi).filter(|f| by_hand(f).is_none()) {
        text += &thunk(function);
    }
    text += "\n} // namespace\n\nconst Entry ENTRIES[] = {\n";
    for function in used(abi) {
        let (run, arguments) = match by_hand(function) {
            Some(_) => (format!("{}_by_hand", function.name), kinds_by_hand(function)),
            None => (format!("{}_call", function.name), kinds(function)),
        };
        let _ = writeln!(
            text,
            "    {{\"{}\", \"{arguments}\", {}, {}, {run}}},",
            name(function),
            function.is_at_once(),
            is_closer(function)
        );
    }
    text + "};\n\nconst size_t ENTRY_COUNT = sizeof ENTRIES / sizeof ENTRIES[0];\n\n} // namespace cactus::js\n"
}

/// One letter for each argument, as `call.hpp` has them.
fn kinds(function: &Function) -> String {
    let letter = |shape| match shape {
        Shape::Text(_) => Some('t'),
        Shape::Flag(_) => Some('b'),
        Shape::Number(..) => Some('n'),
        Shape::Handle(_) => Some('h'),
        Shape::Ids(_) => Some('u'),
        Shape::Ints(_) => Some('i'),
        Shape::Bytes(_) => Some('p'),
        Shape::Texts(_) => Some('a'),
        Shape::Rows(_) => Some('f'),
        Shape::Progress | Shape::Tokens | Shape::Log => Some('c'),
        _ => None,
    };
    shapes(function).into_iter().filter_map(letter).collect()
}

fn kinds_by_hand(function: &Function) -> String {
    let (_, parameters, ..) = by_hand(function).expect("only for these");
    let letter = |parameter: &str| match parameter.rsplit(": ").next() {
        Some("Handle") => 'h',
        Some("number") => 'n',
        Some("boolean") => 'b',
        Some("Int32Array") => 'i',
        Some("Float32Array") => 'f',
        Some("Text") => 't',
        _ => panic!("{}: `{parameter}` is not known", function.name),
    };
    parameters.split(", ").map(letter).collect()
}

/// The type of a handle parameter, for the cast.
fn handle_type<'a>(parameters: &'a [Named], name: &str) -> &'a str {
    let of = parameters.iter().find(|p| p.name.trim_start_matches('_') == name);
    of.map_or("void *", |p| p.kind.as_str())
}

/// The C++ function that calls one function of C.
fn thunk(function: &Function) -> String {
    let c = &function.name;
    let (mut before, mut passed, mut after) = (String::new(), Vec::new(), String::new());
    let mut argument = 0;
    let mut counted = "0".to_owned();
    let mut is_buffered = false;
    for shape in shapes(function) {
        let i = argument;
        argument += 1;
        match shape {
            Shape::Text(_) => passed.push(format!("call.text({i})")),
            Shape::Flag(_) => passed.push(format!("call.flag({i})")),
            Shape::Number(_, kind) => passed.push(format!("call.number<{kind}>({i})")),
            Shape::Handle(name) => {
                let kind = handle_type(&function.parameters, &name);
                passed.push(format!("static_cast<{kind}>(call.handle({i}))"));
            }
            Shape::Ids(_) => passed.push(format!("call.ids({i}).data(), call.ids({i}).size()")),
            Shape::Bytes(_) => passed.push(format!("call.bytes({i}), call.bytes_count({i})")),
            Shape::Ints(_) => {
                counted = format!("call.ints({i}).size()");
                passed.push(format!("call.ints({i}).data()"));
            }
            Shape::Texts(name) => {
                let _ = writeln!(before, "    const Texts {name}(call, {i}, {counted});");
                passed.push(format!("{name}.data()"));
            }
            Shape::Rows(name) => {
                let _ = writeln!(before, "    const Rows {name}(call, {i}, {}, {counted});", i + 1);
                passed.push(format!("{name}.data()"));
            }
            Shape::Progress => passed.push(format!("call.progress({i}), call.listener({i})")),
            Shape::Tokens => passed.push(format!("call.tokens({i}), call.listener({i})")),
            Shape::Log => {
                let _ = writeln!(before, "    call.keep_log_listener({i});");
                passed.push(format!("call.log({i}), call.listener({i})"));
            }
            Shape::NoEvents => {
                argument -= 1;
                passed.push("nullptr, nullptr".to_owned());
            }
            Shape::Count => {
                argument -= 1;
                passed.push(counted.clone());
            }
            Shape::GivesText => {
                argument -= 1;
                before += "    char *given = nullptr;\n";
                passed.push("&given".to_owned());
                after += "    call.give_owned(given);\n";
            }
            Shape::GivesIds => {
                argument -= 1;
                before += "    uint32_t *given = nullptr;\n    size_t count = 0;\n";
                passed.push("&given, &count".to_owned());
                after += "    call.give_ids(given, count);\n";
            }
            Shape::GivesHandle(kind) => {
                argument -= 1;
                let _ = writeln!(before, "    {kind}given = nullptr;");
                passed.push("&given".to_owned());
                after += &give_handle(function);
            }
            Shape::GivesBuffer | Shape::GivesFloats => {
                argument -= 1;
                is_buffered = true;
                let kind = if shape == Shape::GivesBuffer {
                    "TextBuffer"
                } else {
                    "FloatBuffer"
                };
                let _ = writeln!(before, "    {kind} given(call);");
                let dim = if shape == Shape::GivesBuffer {
                    ""
                } else {
                    ", given.dim()"
                };
                passed.push(format!("given.place(), given.bytes(){dim}"));
            }
        }
    }
    let called = format!("call.c().{c}({})", passed.join(", "));
    let body = match function.returns.as_str() {
        _ if is_buffered => {
            format!("    do {{\n        given.tried({called});\n    }} while (given.again());\n")
        }
        // A bundle that cannot be used gives a code, and a report all the same.
        "int" if c == "cactus_check_bundle" => {
            format!("    const int code = {called};\n    if (given == nullptr && !call.check(code)) return;\n{after}")
        }
        "int" if after.is_empty() => format!("    call.check({called});\n"),
        "int" => format!("    if (!call.check({called})) return;\n{after}"),
        "void *" => format!(
            "    void *given = {called};\n    if (!call.check(given == nullptr ? -1 : 0)) return;\n{}",
            give_handle(function)
        ),
        "const char *" => format!("    call.give_text({called});\n"),
        "uint32_t" => format!("    call.give_number({called});\n"),
        "void" => format!("    {called};\n"),
        other => panic!("{c}: a result of the type `{other}` is not known"),
    };
    let unused = if argument == 0 && !body.contains("call.") {
        "    (void)call;\n"
    } else {
        ""
    };
    let checked = if before.contains("Texts ") || before.contains("Rows ") {
        "    if (call.has_failed()) return;\n"
    } else {
        ""
    };
    format!("\nvoid {c}_call(Call &call) {{\n{unused}{before}{checked}{body}}}\n")
}

fn give_handle(function: &Function) -> String {
    let closes = closer(function).unwrap_or_else(|| panic!("{}: nobody closes its handle", function.name));
    let call = match closes {
        "cactus_stream_transcribe_stop" => format!("{closes}(given, nullptr, 0)"),
        "cactus_destroy" | "cactus_index_destroy" => format!("{closes}(given)"),
        _ => format!("{closes}(static_cast<{} *>(given))", closes.trim_end_matches("_close")),
    };
    format!("    call.give_handle(given, [](const Symbols &symbols, void *given) {{ symbols.{call}; }});\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Repository;

    fn abi() -> Abi {
        Abi::read(&Repository::open().unwrap()).unwrap()
    }

    #[test]
    fn parameters_are_grouped_into_what_javascript_gives_and_gets() {
        let abi = abi();
        let of = |wanted: &str| used(&abi).find(|f| f.name == wanted).unwrap();
        for (function, want, letters) in [
            (
                "cactus_model_load",
                "name: string, options_json: Text, progress: OnProgress | null -> Handle",
                "ttc",
            ),
            (
                "cactus_model_tokenize",
                "model: Handle, text: string, special: boolean -> Uint32Array",
                "htb",
            ),
            (
                "cactus_embed",
                "model: Handle, text: string, normalize: boolean -> Float32Array",
                "htb",
            ),
            (
                "cactus_index_add",
                "index: Handle, ids: Int32Array, documents: (string | null)[], metadatas: (string | null)[], embeddings: Float32Array, \
                 embedding_dim: number -> void",
                "hiaafn",
            ),
            (
                "cactus_session_send",
                "session: Handle, request_json: string -> Handle",
                "ht",
            ),
            ("cactus_index_destroy", "index: Handle -> void", "h"),
        ] {
            let (parameters, result) = signature(of(function));
            assert_eq!(format!("{parameters} -> {result}"), want);
            assert_eq!(kinds(of(function)), letters, "{function}");
        }
        assert_eq!(name(of("cactus_stream_transcribe_start")), "streamTranscribeStart");
        assert_eq!(kinds_by_hand(of("cactus_index_query")), "hfntn");
    }

    #[test]
    fn every_function_that_gives_a_handle_has_one_that_closes_it() {
        let abi = abi();
        for function in used(&abi).filter(|f| by_hand(f).is_none()) {
            let gives =
                shapes(function).iter().any(|s| matches!(s, Shape::GivesHandle(_))) || function.returns == "void *";
            assert_eq!(gives, closer(function).is_some(), "{}", function.name);
        }
        let known = |name: &str| abi.functions().any(|f| f.name == name);
        assert!(CLOSERS.iter().all(|(opens, closes)| known(opens) && known(closes)));
        assert!(LEFT_OUT.iter().all(|name| known(name)));
        assert!(BY_HAND.iter().all(|(name, ..)| known(name)));
    }
}
