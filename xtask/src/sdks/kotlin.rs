//! Kotlin, on the JVM and on Android: `Raw.kt` declares native methods, and `cactus_jni.c` has them.
//!
//! One way for both systems: JNI. Texts cross as byte arrays, as the strings of JNI are in a UTF-8 of their own; samples and vectors as
//! direct buffers; handles as numbers. What the C file needs beside is in `support.h`, written by hand. Events are not taken by a
//! callback: such a parameter is NULL.

use super::{Abi, Function, Generated, Named};
use std::fmt::Write as _;

const KOTLIN: &str = "sdks/kotlin/src/jvmMain/kotlin/dev/cactusengine/raw/Raw.kt";
const CODES: &str = "sdks/kotlin/src/commonMain/kotlin/dev/cactusengine/CactusCode.kt";
const NATIVE: &str = "sdks/kotlin/src/native/cactus_jni.c";
const MADE: &str = "Made of crates/ffi/abi.json by `cargo xtask sdks`; do not edit.";
const WIDTH: usize = 116;

pub(super) fn files(abi: &Abi) -> Vec<Generated> {
    vec![
        (CODES.to_owned(), codes(abi)),
        (KOTLIN.to_owned(), raw(abi)),
        (NATIVE.to_owned(), native(abi)),
    ]
}

/// The functions that Kotlin is given. What the library gives away is freed before it gets there.
fn declared(abi: &Abi) -> impl Iterator<Item = &Function> {
    let frees = ["cactus_string_free", "cactus_tokens_free"];
    abi.functions()
        .filter(move |function| !frees.contains(&function.name.as_str()))
}

/// How a parameter crosses the border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Text,
    Texts,
    Handle,
    HandleOut,
    /// A string that the library gives away.
    Owned,
    /// A buffer that is read or written in place.
    Room,
    Rooms,
    Ints,
    /// An array of token ids that the library gives away, with its count.
    Tokens,
    Sizes,
    Flag,
    Flags,
    Int,
    Long,
    /// Called until the function returns.
    Callback,
    /// Called for ever.
    Kept,
    /// A structure that is written: its numbers, and its texts.
    Structure,
    /// NULL.
    Absent,
    /// Goes with the parameter before.
    Joined,
}

/// A parameter and how it crosses.
struct Crossing<'a> {
    parameter: &'a Named,
    way: Way,
    /// The name of the count that goes with it.
    count: Option<&'a str>,
}

fn crossings<'a>(abi: &Abi, function: &'a Function) -> Vec<Crossing<'a>> {
    let parameters = &function.parameters;
    let kind_at = |at: usize| parameters.get(at).map_or("", |parameter| parameter.kind.as_str());
    let mut joined = false;
    let mut all = Vec::new();
    for (at, parameter) in parameters.iter().enumerate() {
        let next = kind_at(at + 1);
        let way = match parameter.kind.as_str() {
            _ if joined => Way::Joined,
            "const char *" => Way::Text,
            "const char *const *" => Way::Texts,
            "void *" => Way::Handle,
            "char **" if next == "size_t *" => Way::Rooms,
            "char **" => Way::Owned,
            "int **" | "float **" | "const float *const *" => Way::Rooms,
            "char *" | "float *" | "const uint8_t *" => Way::Room,
            "const int *" | "const uint32_t *" => Way::Ints,
            "uint32_t **" => Way::Tokens,
            "size_t *" => Way::Sizes,
            "bool" => Way::Flag,
            "bool *" => Way::Flags,
            "int" | "int32_t" | "uint32_t" => Way::Int,
            "int64_t" | "size_t" => Way::Long,
            "cactus_event_callback" => Way::Absent,
            "cactus_log_callback_t" => Way::Kept,
            kind if abi.callbacks.iter().any(|callback| callback.name == kind) => Way::Callback,
            kind if is_structure(abi, kind) => Way::Structure,
            kind if is_handle(abi, kind, " **") => Way::HandleOut,
            kind if is_handle(abi, kind, " *") => Way::Handle,
            kind => panic!("{}: Kotlin has no way for `{kind}`", function.name),
        };
        joined = matches!(way, Way::Absent | Way::Kept | Way::Callback | Way::Tokens);
        let count = (next == "size_t").then(|| parameters[at + 1].name.as_str());
        all.push(Crossing { parameter, way, count });
    }
    all
}

fn is_handle(abi: &Abi, kind: &str, pointers: &str) -> bool {
    let name = kind
        .strip_prefix("struct ")
        .and_then(|name| name.strip_suffix(pointers));
    abi.handles.iter().any(|handle| Some(handle.name.as_str()) == name)
}

fn is_structure(abi: &Abi, kind: &str) -> bool {
    let name = kind.trim_start_matches("struct ").trim_end_matches(" *");
    abi.structures.iter().any(|structure| structure.name == name)
}

/// `cactus_model_load` is `modelLoad`.
fn camel(name: &str) -> String {
    let mut out = String::new();
    for part in name.trim_start_matches('_').split('_') {
        match out.is_empty() {
            true => out.push_str(part),
            false => {
                let (first, rest) = part.split_at(part.len().min(1));
                out.push_str(&first.to_uppercase());
                out.push_str(rest);
            }
        }
    }
    out
}

fn short(name: &str) -> String {
    camel(name.strip_prefix("cactus_").unwrap_or(name))
}

/// The interface of a callback: `cactus_progress_callback` is `ProgressCallback`.
fn interface(name: &str) -> String {
    let short = short(name.trim_end_matches("_t"));
    let (first, rest) = short.split_at(1);
    first.to_uppercase() + rest
}

/// A doc comment.
fn doc(text: &str, indent: &str) -> String {
    let mut out = format!("{indent}/**\n");
    let mut line = String::new();
    // A comment of Kotlin or C ends at these.
    let text = text.replace("*/", "* /").replace("/*", "/ *");
    for word in text.split_whitespace() {
        if !line.is_empty() && indent.len() + line.len() + word.len() > WIDTH {
            let _ = writeln!(out, "{indent} *{line}");
            line.clear();
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = write!(out, "{indent} *{line}\n{indent} */\n");
    out
}

fn codes(abi: &Abi) -> String {
    let mut out = format!("// {MADE}\n\npackage dev.cactusengine\n\n");
    for enumeration in abi.enumerations.iter().filter(|e| e.name == "cactus_code") {
        out += "/** Codes of errors: [CactusException.code]. They never change their meaning. */\n";
        out += "public object CactusCode {\n";
        for value in &enumeration.values {
            let name = value.name.trim_start_matches("CACTUS_CODE_");
            let _ = write!(
                out,
                "{}    public const val {name}: Int = {}\n\n",
                doc(&value.doc, "    "),
                value.value
            );
        }
        out.truncate(out.trim_end().len());
        out += "\n}\n";
    }
    out
}

/// Parameters as Kotlin has them: name and type.
fn kotlin_parameters(crossings: &[Crossing<'_>]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for Crossing { parameter, way, .. } in crossings {
        let name = camel(&parameter.name);
        let kind = match way {
            Way::Text => "ByteArray?",
            Way::Texts | Way::Owned => "Array<ByteArray?>?",
            Way::Handle | Way::Long => "Long",
            Way::HandleOut | Way::Sizes => "LongArray?",
            Way::Room => "ByteBuffer?",
            Way::Rooms => "Array<ByteBuffer?>?",
            Way::Ints => "IntArray?",
            Way::Tokens => "Array<IntArray?>?",
            Way::Flag => "Boolean",
            Way::Flags => "BooleanArray?",
            Way::Int => "Int",
            Way::Callback | Way::Kept => {
                all.push((name, format!("{}?", interface(&parameter.kind))));
                continue;
            }
            Way::Structure => {
                all.push((format!("{name}Numbers"), "IntArray?".to_owned()));
                all.push((format!("{name}Texts"), "Array<ByteArray?>?".to_owned()));
                continue;
            }
            Way::Absent | Way::Joined => continue,
        };
        all.push((name, kind.to_owned()));
    }
    all
}

fn kotlin_result(returns: &str) -> Option<&'static str> {
    match returns {
        "void" => None,
        "const char *" => Some("ByteArray?"),
        "void *" => Some("Long"),
        _ => Some("Int"),
    }
}

/// Callbacks that Kotlin can give.
fn callbacks(abi: &Abi) -> impl Iterator<Item = &Function> {
    abi.callbacks
        .iter()
        .filter(|callback| callback.name != "cactus_event_callback")
}

fn raw(abi: &Abi) -> String {
    let mut out = format!("// {MADE}\n\npackage dev.cactusengine.raw\n\nimport java.nio.ByteBuffer\n\n");
    for callback in callbacks(abi) {
        let parameters: Vec<String> = callback
            .parameters
            .iter()
            .filter(|parameter| parameter.kind != "void *")
            .map(|parameter| {
                let kind = match parameter.kind.as_str() {
                    "const char *" => "ByteArray",
                    "uint64_t" => "Long",
                    _ => "Int",
                };
                format!("{}: {kind}", camel(&parameter.name))
            })
            .collect();
        let result = kotlin_result(&callback.returns).map_or(String::new(), |kind| format!(": {kind}"));
        let _ = write!(
            out,
            "{}internal fun interface {} {{\n    fun call({}){result}\n}}\n\n",
            doc(&callback.doc, ""),
            interface(&callback.name),
            parameters.join(", ")
        );
    }
    let _ = write!(
        out,
        "/** Each function of the C library, as `cactus_jni.c` gives it. [open] comes first. */\ninternal object Raw {{\n    \
         const val ABI_VERSION: Int = {}\n\n    \
         /** Opens the library at [path], or without one where the system looks. Gives what is wrong, or null. */\n    \
         @JvmStatic\n    external fun open(path: ByteArray?, abiVersion: Int): ByteArray?\n",
        abi.abi_version
    );
    for function in declared(abi) {
        let parameters: Vec<String> = kotlin_parameters(&crossings(abi, function))
            .into_iter()
            .map(|(name, kind)| format!("        {name}: {kind},\n"))
            .collect();
        let list = match parameters.is_empty() {
            true => String::new(),
            false => format!("\n{}    ", parameters.concat()),
        };
        let result = kotlin_result(&function.returns).map_or(String::new(), |kind| format!(": {kind}"));
        let mut text = function.doc.clone();
        if function.is_at_once() {
            text += " Returns at once.";
        }
        let _ = write!(
            out,
            "\n{}    @JvmStatic\n    external fun {}({list}){result}\n",
            doc(&text, "    "),
            short(&function.name)
        );
    }
    out += "}\n";
    out
}

/// The signature of a type of Kotlin in the JVM, and its name in JNI.
fn java(kind: &str) -> (String, &'static str) {
    let (signature, name) = match kind.trim_end_matches('?') {
        "ByteArray" => ("[B", "jbyteArray"),
        "Array<ByteArray?>" => ("[[B", "jobjectArray"),
        "Array<IntArray?>" => ("[[I", "jobjectArray"),
        "Array<ByteBuffer?>" => ("[Ljava/nio/ByteBuffer;", "jobjectArray"),
        "Long" => ("J", "jlong"),
        "LongArray" => ("[J", "jlongArray"),
        "ByteBuffer" => ("Ljava/nio/ByteBuffer;", "jobject"),
        "IntArray" => ("[I", "jintArray"),
        "Boolean" => ("Z", "jboolean"),
        "BooleanArray" => ("[Z", "jbooleanArray"),
        "Int" => ("I", "jint"),
        interface => return (format!("Ldev/cactusengine/raw/{interface};"), "jobject"),
    };
    (signature.to_owned(), name)
}

/// What a parameter needs in C.
#[derive(Default)]
struct Parts {
    /// A variable.
    declare: String,
    /// A condition that has to hold before the call; an exception is pending where it does not.
    take: String,
    argument: String,
    /// After the call.
    give: String,
    /// In any case.
    free: String,
}

fn parts(abi: &Abi, crossing: &Crossing<'_>) -> Parts {
    let Crossing { parameter, way, count } = crossing;
    let (name, kind) = (parameter.name.trim_start_matches('_'), &parameter.kind);
    let mine = format!("c_{name}");
    let count = count.map_or("0".to_owned(), |count| format!("(size_t){count}"));
    let buffers = |kind: &str, take: &str| Parts {
        declare: format!("{kind}{mine} = NULL;"),
        take: format!("{take}(env, {name}, (void ***)&{mine})"),
        argument: mine.clone(),
        free: format!("free({});", freed(&mine, kind)),
        ..Parts::default()
    };
    match way {
        Way::Text => Parts {
            declare: format!("char *{mine} = NULL;"),
            take: format!("text_in(env, {name}, &{mine})"),
            argument: mine.clone(),
            free: format!("free({mine});"),
            ..Parts::default()
        },
        Way::Texts => Parts {
            declare: format!("char **{mine} = NULL;"),
            take: format!("texts_in(env, {name}, {count_of}, &{mine})", count_of = "(size_t)count"),
            argument: format!("(const char *const *){mine}"),
            free: format!("texts_free({mine}, (size_t)count);"),
            ..Parts::default()
        },
        Way::Handle => Parts {
            argument: format!("({kind})(intptr_t){name}"),
            ..Parts::default()
        },
        Way::HandleOut => Parts {
            declare: format!("{}{mine} = NULL;", kind.trim_end_matches('*').to_owned() + "*"),
            argument: format!("&{mine}"),
            give: format!("handle_out(env, {name}, {mine});"),
            ..Parts::default()
        },
        Way::Owned => Parts {
            declare: format!("char *{mine} = NULL;"),
            argument: format!("{name} == NULL ? NULL : &{mine}"),
            give: format!("owned_out(env, {name}, {mine});"),
            ..Parts::default()
        },
        Way::Room => Parts {
            declare: format!("void *{mine} = NULL;"),
            take: format!("room_in(env, {name}, {count}, &{mine})"),
            argument: format!("({kind}){mine}"),
            ..Parts::default()
        },
        Way::Rooms => buffers(&rooms(kind), "rooms_in"),
        Way::Ints => Parts {
            declare: format!("jint *{mine} = NULL;"),
            take: format!("ints_in(env, {name}, {count}, &{mine})"),
            argument: format!("({kind}){mine}"),
            free: format!("free({mine});"),
            ..Parts::default()
        },
        Way::Tokens => Parts {
            declare: format!("uint32_t *{mine} = NULL;\n    size_t {mine}_count = 0;"),
            argument: format!("&{mine}, &{mine}_count"),
            give: format!("tokens_out(env, {name}, {mine}, {mine}_count);"),
            ..Parts::default()
        },
        Way::Sizes => Parts {
            declare: format!("size_t *{mine} = NULL;"),
            take: format!("sizes_in(env, {name}, &{mine})"),
            argument: mine.clone(),
            give: format!("sizes_out(env, {name}, {mine});"),
            free: format!("free({mine});"),
        },
        Way::Flag => Parts {
            argument: format!("{name} != JNI_FALSE"),
            ..Parts::default()
        },
        Way::Flags => Parts {
            declare: format!("bool {mine} = false;"),
            argument: format!("{name} == NULL ? NULL : &{mine}"),
            give: format!("flag_out(env, {name}, {mine});"),
            ..Parts::default()
        },
        Way::Int | Way::Long => Parts {
            argument: format!("({kind}){name}"),
            ..Parts::default()
        },
        Way::Callback => Parts {
            declare: format!("closure {mine} = {{0}};"),
            take: format!("closure_begin(env, {name}, &{mine})"),
            argument: format!("{name} == NULL ? NULL : call_{kind}, &{mine}"),
            free: format!("closure_end(env, &{mine});"),
            ..Parts::default()
        },
        Way::Kept => Parts {
            declare: format!("closure *{mine} = NULL;"),
            take: format!("closure_keep(env, {name}, &{mine})"),
            argument: format!("{name} == NULL ? NULL : call_{kind}, {mine}"),
            ..Parts::default()
        },
        Way::Structure => structure(abi, name, kind, &mine),
        Way::Absent => Parts {
            argument: "NULL, NULL".to_owned(),
            ..Parts::default()
        },
        Way::Joined => Parts::default(),
    }
}

/// The type of an array of buffers without its `const`.
fn rooms(kind: &str) -> String {
    match kind {
        "const float *const *" => "const float **".to_owned(),
        other => other.to_owned(),
    }
}

/// `free` takes no pointer to what is constant.
fn freed(name: &str, kind: &str) -> String {
    match kind.starts_with("const") {
        true => format!("(void *){name}"),
        false => name.to_owned(),
    }
}

fn structure(abi: &Abi, name: &str, kind: &str, mine: &str) -> Parts {
    let kind = kind.trim_end_matches(" *");
    let mut give = String::new();
    let (mut numbers, mut texts) = (0, 0);
    let fields = abi
        .structures
        .iter()
        .filter(|s| kind.ends_with(&s.name))
        .flat_map(|s| &s.fields);
    for field in fields {
        if field.kind == "const char *" {
            let _ = write!(give, "string_at(env, {name}_texts, {texts}, {mine}.{});", field.name);
            texts += 1;
        } else {
            let _ = write!(
                give,
                "number_at(env, {name}_numbers, {numbers}, {mine}.{});",
                field.name
            );
            numbers += 1;
        }
    }
    Parts {
        declare: format!("{kind} {mine} = {{0}};"),
        argument: format!("&{mine}"),
        give,
        ..Parts::default()
    }
}

/// What C calls, and what calls Kotlin.
fn trampoline(callback: &Function) -> String {
    let user = "user_data";
    let mut list = Vec::new();
    let (mut before, mut arguments, mut after) = (String::new(), String::new(), String::new());
    for parameter in &callback.parameters {
        let (name, kind) = (&parameter.name, &parameter.kind);
        list.push(format!("{}{}{name}", kind, if kind.ends_with('*') { "" } else { " " }));
        match kind.as_str() {
            "void *" => {}
            "const char *" => {
                let _ = writeln!(before, "    jbyteArray j_{name} = bytes_of(env, {name});");
                let _ = write!(arguments, ", j_{name}");
                let _ = writeln!(after, "    drop(env, j_{name});");
            }
            "uint64_t" => arguments += &format!(", (jlong){name}"),
            _ => arguments += &format!(", (jint){name}"),
        }
    }
    let (declare, call, nothing, give) = match callback.returns.as_str() {
        "void" => ("", "(*env)->CallVoidMethod", "return", String::new()),
        _ => (
            "    jint result = 1;\n",
            "result = (*env)->CallIntMethod",
            "return 1",
            "    return result;\n".to_owned(),
        ),
    };
    let stopped = match callback.returns.as_str() {
        "void" => "    caught(env, self);\n",
        _ => "    if (caught(env, self)) result = 1;\n",
    };
    format!(
        "static {} call_{}({}) {{\n    closure *self = {user};\n    JNIEnv *env = environment();\n    \
         if (env == NULL || self->thrown != NULL) {nothing};\n{declare}{before}    \
         if (!(*env)->ExceptionCheck(env)) {call}(env, self->object, method_{}{arguments});\n\
         {stopped}{after}{give}}}\n\n",
        callback.returns,
        callback.name,
        list.join(", "),
        callback.name,
    )
}

fn native_function(abi: &Abi, function: &Function) -> String {
    let crossings = crossings(abi, function);
    let mut list = String::new();
    for (name, kind) in kotlin_parameters(&crossings) {
        let _ = write!(list, ", {} {}", java(&kind).1, snake(&name));
    }
    let all: Vec<Parts> = crossings.iter().map(|crossing| parts(abi, crossing)).collect();
    let (returns, empty) = match kotlin_result(&function.returns) {
        None => ("void", ""),
        Some("ByteArray?") => ("jbyteArray", "NULL"),
        Some("Long") => ("jlong", "0"),
        Some(_) => ("jint", "-1"),
    };
    let mut out = format!(
        "static {returns} JNICALL jni_{}(JNIEnv *env, jclass raw{list}) {{\n    (void)raw;\n    (void)env;\n",
        function.name
    );
    if returns != "void" {
        let _ = writeln!(out, "    {returns} result = {empty};");
    }
    for part in all.iter().filter(|part| !part.declare.is_empty()) {
        let _ = writeln!(out, "    {}", part.declare);
    }
    let arguments: Vec<&str> = all
        .iter()
        .map(|p| p.argument.as_str())
        .filter(|a| !a.is_empty())
        .collect();
    let call = format!("lib.{}({})", function.name, arguments.join(", "));
    let call = match returns {
        "void" => call,
        "jbyteArray" => format!("result = bytes_of(env, {call})"),
        "jlong" => format!("result = (jlong)(intptr_t){call}"),
        _ => format!("result = (jint){call}"),
    };
    let takes: Vec<&str> = all
        .iter()
        .map(|p| p.take.as_str())
        .filter(|take| !take.is_empty())
        .collect();
    let indent = if takes.is_empty() { "    " } else { "        " };
    if !takes.is_empty() {
        let _ = writeln!(out, "    if ({}) {{", takes.join(" &&\n        "));
    }
    let _ = writeln!(out, "{indent}{call};");
    for part in all.iter().filter(|part| !part.give.is_empty()) {
        let _ = writeln!(
            out,
            "{indent}{}",
            part.give.replace(");", &format!(");\n{indent}")).trim_end()
        );
    }
    if !takes.is_empty() {
        out += "    }\n";
    }
    for part in all.iter().filter(|part| !part.free.is_empty()) {
        let _ = writeln!(out, "    {}", part.free);
    }
    if returns != "void" {
        out += "    return result;\n";
    }
    out += "}\n\n";
    out
}

/// `errorTexts` is `error_texts`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_uppercase() {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

fn native(abi: &Abi) -> String {
    let mut out = format!(
        "/* {MADE} */\n\n#include \"cactus.h\"\n#include <jni.h>\n\n/* The functions of the library, once it is opened. */\nstatic struct {{\n"
    );
    for function in abi.functions() {
        let _ = writeln!(out, "    __typeof__(&{0}) {0};", function.name);
    }
    out += "} lib;\n\n#include \"support.h\"\n\n";
    for callback in callbacks(abi) {
        let _ = writeln!(out, "static jmethodID method_{};", callback.name);
    }
    out.push('\n');
    for callback in callbacks(abi) {
        out += &trampoline(callback);
    }
    for function in declared(abi) {
        out += &native_function(abi, function);
    }
    out += "static const symbol symbols[] = {\n";
    for function in abi.functions() {
        let _ = writeln!(out, "    {{\"{0}\", (void **)&lib.{0}}},", function.name);
    }
    out += "};\n\nstatic jbyteArray JNICALL jni_open(JNIEnv *env, jclass raw, jbyteArray path, jint abi_version) {\n    \
            (void)raw;\n    return open_library(env, path, abi_version, symbols, sizeof symbols / sizeof *symbols);\n}\n\n\
            static const JNINativeMethod methods[] = {\n    {(char *)\"open\", (char *)\"([BI)[B\", (void *)jni_open},\n";
    for function in declared(abi) {
        let kinds = kotlin_parameters(&crossings(abi, function));
        let parameters: String = kinds.iter().map(|(_, kind)| java(kind).0).collect();
        let result = kotlin_result(&function.returns).map_or("V".to_owned(), |kind| java(kind).0);
        let _ = writeln!(
            out,
            "    {{(char *)\"{}\", (char *)\"({parameters}){result}\", (void *)jni_{}}},",
            short(&function.name),
            function.name
        );
    }
    out += "};\n\nstatic const callback_method callback_methods[] = {\n";
    for callback in callbacks(abi) {
        let parameters: String = callback
            .parameters
            .iter()
            .filter_map(|parameter| match parameter.kind.as_str() {
                "void *" => None,
                "const char *" => Some("[B"),
                "uint64_t" => Some("J"),
                _ => Some("I"),
            })
            .collect();
        let result = kotlin_result(&callback.returns).map_or("V".to_owned(), |kind| java(kind).0);
        let _ = writeln!(
            out,
            "    {{\"dev/cactusengine/raw/{}\", \"({parameters}){result}\", &method_{}}},",
            interface(&callback.name),
            callback.name
        );
    }
    out += "};\n\nJNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved) {\n    (void)reserved;\n    \
            return on_load(vm, \"dev/cactusengine/raw/Raw\", methods, sizeof methods / sizeof *methods, callback_methods,\n                   \
            sizeof callback_methods / sizeof *callback_methods);\n}\n";
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Repository;

    #[test]
    fn names_are_written_as_each_language_writes_them() {
        for (name, want) in [
            ("cactus_model_load", "modelLoad"),
            ("cactus_init", "init"),
            ("_cache_index", "cacheIndex"),
        ] {
            assert_eq!(short(name), want);
        }
        assert_eq!(interface("cactus_log_callback_t"), "LogCallback");
        assert_eq!(snake("errorTexts"), "error_texts");
    }

    #[test]
    fn parameters_cross_in_the_way_of_their_types() {
        let abi = Abi::read(&Repository::open().unwrap()).unwrap();
        let of = |name: &str| -> Vec<Way> {
            let function = abi.functions().find(|function| function.name == name).unwrap();
            crossings(&abi, function).iter().map(|crossing| crossing.way).collect()
        };
        use Way::*;
        for (name, want) in [
            ("cactus_last_error", vec![Structure]),
            ("cactus_model_load", vec![Text, Text, Callback, Joined, HandleOut]),
            ("cactus_model_tokenize", vec![Handle, Text, Flag, Tokens, Joined]),
            ("cactus_request_start", vec![Handle, Text, Absent, Joined, HandleOut]),
            ("cactus_request_next", vec![Handle, Long, Owned, Flags]),
            ("cactus_log_set_callback", vec![Kept, Joined]),
            ("cactus_index_add", vec![Handle, Ints, Texts, Texts, Rooms, Long, Long]),
            ("cactus_embed", vec![Handle, Text, Room, Long, Sizes, Flag]),
        ] {
            assert_eq!(of(name), want, "{name}");
        }
    }

    #[test]
    fn comments_cannot_end_early() {
        assert_eq!(doc("a */ b", ""), "/**\n * a * / b\n */\n");
    }
}
