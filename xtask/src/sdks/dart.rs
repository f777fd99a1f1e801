//! Dart calls C by `dart:ffi`: its raw layer is a class with a function for each of the library's, and the same functions as a
//! code asset, for an application whose build hook has brought the library.

use super::{Abi, Enumeration, Function, Generated, Named, Structure};

const FOLDER: &str = "sdks/dart/lib/src";
const HEAD: &str = "// Made by `cargo xtask sdks` of crates/ffi/abi.json; do not edit.\n// dart format off\n";
/// The name of the code asset, which `sdks/dart/hook/build.dart` gives.
const ASSET: &str = "package:cactus_engine/cactus";
/// Columns of a comment.
const WIDTH: usize = 80;

pub(super) fn files(abi: &Abi) -> Vec<Generated> {
    vec![
        (format!("{FOLDER}/raw.g.dart"), raw(abi)),
        (format!("{FOLDER}/raw_bundled.g.dart"), bundled(abi)),
    ]
}

/// The class that calls what it looks up.
fn raw(abi: &Abi) -> String {
    let mut text = format!(
        "{HEAD}\n/// The functions of `cactus.h`, one by one. Nothing here is part of the package's API.\nlibrary;\n\nimport 'dart:ffi';\n\n\
         /// The ABI that this file was made of.\nconst int abiVersion = {};\n",
        abi.abi_version
    );
    for handle in &abi.handles {
        text += &format!(
            "\n{}typedef {} = Void;\n",
            comment(&handle.doc, ""),
            type_name(&handle.name)
        );
    }
    for structure in abi.structures.iter().filter(|structure| is_used(abi, structure)) {
        text += &struct_class(structure);
    }
    for enumeration in &abi.enumerations {
        text += &constants(enumeration);
    }
    for callback in &abi.callbacks {
        text += &format!(
            "\n{}typedef {} = {};\n",
            comment(&callback.doc, ""),
            type_name(&callback.name),
            signature(callback, native)
        );
    }
    text += "\n/// Finds the address of a function by its name in C.\ntypedef Lookup = Pointer<T> Function<T extends NativeType>(String name);\n\n\
             /// The functions of the library. Each is looked up when it is called for the first time.\n\
             final class Raw {\n  /// The functions that a lookup finds.\n  Raw(this._lookup);\n\n  final Lookup _lookup;\n";
    for function in abi.functions() {
        text += &format!(
            "\n{}  late final {} =\n      _lookup<NativeFunction<{}>>('{}')\n          .asFunction();\n",
            comment(&documentation(function), "  "),
            format_args!("{} {}", signature(function, dart), member(&function.name)),
            signature(function, native),
            function.name,
        );
    }
    text + "}\n"
}

/// The functions as a code asset, and what finds them there.
fn bundled(abi: &Abi) -> String {
    let mut text = format!(
        "{HEAD}\n/// The functions of `cactus.h` where a build hook has brought the library.\n@DefaultAsset('{ASSET}')\nlibrary;\n\n\
         import 'dart:ffi';\n\nimport 'raw.g.dart';\n"
    );
    for function in abi.functions() {
        let parameters = function.parameters.iter();
        let parameters: Vec<String> = parameters
            .map(|parameter| format!("{} {}", dart(&parameter.kind), parameter_name(parameter)))
            .collect();
        text += &format!(
            "\n@Native<{}>(symbol: '{}')\nexternal {} _{}({});\n",
            signature(function, native),
            function.name,
            dart(&function.returns),
            member(&function.name),
            parameters.join(", "),
        );
    }
    text += "\n/// Finds a function in the asset.\n///\n/// Throws an [ArgumentError] where the application has none, or the asset lacks it.\n\
             Pointer<T> bundled<T extends NativeType>(String name) {\n  final Pointer<NativeType> found = switch (name) {\n";
    for function in abi.functions() {
        text += &format!(
            "    '{}' =>\n      Native.addressOf<NativeFunction<{}>>(_{}),\n",
            function.name,
            signature(function, native),
            member(&function.name)
        );
    }
    text + "    _ => throw ArgumentError.value(name, 'name', 'is no function of the library'),\n  };\n  return found.cast<T>();\n}\n"
}

/// Whether a function that SDKs call takes it, or a callback.
fn is_used(abi: &Abi, structure: &Structure) -> bool {
    let takes = |function: &Function| function.parameters.iter().any(|p| base(&p.kind).0 == structure.name);
    abi.functions().any(takes) || abi.callbacks.iter().any(takes)
}

fn struct_class(structure: &Structure) -> String {
    let field = |field: &Named| {
        let annotation = match (base(&field.kind).1, native(&field.kind)) {
            (0, number) => format!("  @{number}()\n"),
            _ => String::new(),
        };
        let (kind, name) = (dart(&field.kind), camel(&field.name, false));
        format!("{}{annotation}  external {kind} {name};\n", comment(&field.doc, "  "))
    };
    let fields: Vec<String> = structure.fields.iter().map(field).collect();
    format!(
        "\n{}final class {} extends Struct {{\n{}}}\n",
        comment(&structure.doc, ""),
        type_name(&structure.name),
        fields.join("\n")
    )
}

fn constants(enumeration: &Enumeration) -> String {
    let mut text = format!(
        "\n{}abstract final class {} {{\n",
        comment(&format!("{} (`{}` in C.)", enumeration.doc, enumeration.kind), ""),
        type_name(&enumeration.name)
    );
    let prefix = format!("{}_", enumeration.name.to_uppercase());
    for (i, value) in enumeration.values.iter().enumerate() {
        let name = value.name.strip_prefix(&prefix).unwrap_or(&value.name);
        text += &format!(
            "{}{}  static const int {} = {};\n",
            if i == 0 { "" } else { "\n" },
            comment(&value.doc, "  "),
            camel(&name.to_lowercase(), false),
            value.value
        );
    }
    text + "}\n"
}

/// What a function does, and which it is.
fn documentation(function: &Function) -> String {
    let when = if function.is_at_once() {
        "returns at once"
    } else {
        "takes time: not for an isolate that draws"
    };
    format!(
        "{} (`{}`, since ABI {}; {when}.)",
        function.doc,
        function.name,
        function.since.max(1)
    )
}

/// A type of a function, with `written` for each of its types.
fn signature(function: &Function, written: fn(&str) -> String) -> String {
    let parameters = function.parameters.iter();
    let parameters: Vec<String> = parameters
        .map(|parameter| format!("{} {}", written(&parameter.kind), parameter_name(parameter)))
        .collect();
    format!("{} Function({})", written(&function.returns), parameters.join(", "))
}

fn parameter_name(parameter: &Named) -> String {
    camel(parameter.name.trim_start_matches('_'), false)
}

/// A type without what C says beside its name, and how many pointers lead to it.
fn base(kind: &str) -> (String, usize) {
    let words = kind.replace('*', " * ");
    let words = words
        .split_whitespace()
        .filter(|word| !["const", "struct"].contains(word));
    let (stars, names): (Vec<&str>, Vec<&str>) = words.partition(|word| *word == "*");
    (names.join(" "), stars.len())
}

/// A type of C, as native code has it.
fn native(kind: &str) -> String {
    let (name, stars) = base(kind);
    let named = match name.as_str() {
        "void" => "Void".to_owned(),
        "bool" => "Bool".to_owned(),
        "char" => "Char".to_owned(),
        "int" => "Int".to_owned(),
        "float" => "Float".to_owned(),
        "size_t" => "Size".to_owned(),
        number if number.ends_with("_t") && number.contains("int") => camel(number.trim_end_matches("_t"), true),
        // A callback is a pointer to a function, whatever C calls it.
        callback if callback.contains("_callback") => format!("Pointer<NativeFunction<{}>>", type_name(callback)),
        other => type_name(other),
    };
    (0..stars).fold(named, |inner, _| format!("Pointer<{inner}>"))
}

/// A type of C, as Dart has it.
fn dart(kind: &str) -> String {
    let written = native(kind);
    match written.as_str() {
        "Void" => "void".to_owned(),
        "Bool" => "bool".to_owned(),
        "Float" => "double".to_owned(),
        _ if written.starts_with("Pointer<") => written,
        _ => "int".to_owned(),
    }
}

/// `cactus_model_load` without what all have in common.
fn member(name: &str) -> String {
    camel(name.trim_start_matches("cactus_"), false)
}

fn type_name(name: &str) -> String {
    camel(name.trim_end_matches("_t"), true)
}

fn camel(name: &str, upper: bool) -> String {
    let mut text = String::new();
    for (i, word) in name.split('_').filter(|word| !word.is_empty()).enumerate() {
        let mut letters = word.chars();
        match letters.next() {
            Some(first) if i > 0 || upper => text.extend(first.to_uppercase()),
            Some(first) => text.push(first),
            None => {}
        }
        text.push_str(letters.as_str());
    }
    text
}

/// A comment of documentation, with lines of some length.
fn comment(doc: &str, indent: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in doc.split_whitespace() {
        match lines.last_mut() {
            Some(line) if indent.len() + line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("/// {word}")),
        }
    }
    lines.iter().map(|line| format!("{indent}{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_c_are_those_of_dart() {
        for (kind, in_native, in_dart) in [
            ("void", "Void", "void"),
            ("bool", "Bool", "bool"),
            ("int", "Int", "int"),
            ("int64_t", "Int64", "int"),
            ("uint32_t", "Uint32", "int"),
            ("size_t", "Size", "int"),
            ("const char *", "Pointer<Char>", "Pointer<Char>"),
            (
                "const char *const *",
                "Pointer<Pointer<Char>>",
                "Pointer<Pointer<Char>>",
            ),
            ("void *", "Pointer<Void>", "Pointer<Void>"),
            ("float **", "Pointer<Pointer<Float>>", "Pointer<Pointer<Float>>"),
            ("const uint8_t *", "Pointer<Uint8>", "Pointer<Uint8>"),
            (
                "struct cactus_model **",
                "Pointer<Pointer<CactusModel>>",
                "Pointer<Pointer<CactusModel>>",
            ),
            (
                "cactus_log_callback_t",
                "Pointer<NativeFunction<CactusLogCallback>>",
                "Pointer<NativeFunction<CactusLogCallback>>",
            ),
        ] {
            assert_eq!(
                (native(kind).as_str(), dart(kind).as_str()),
                (in_native, in_dart),
                "{kind}"
            );
        }
    }

    #[test]
    fn names_lose_what_all_have_in_common() {
        assert_eq!(member("cactus_model_load"), "modelLoad");
        assert_eq!(type_name("cactus_log_callback_t"), "CactusLogCallback");
        assert_eq!(camel("over", false), "over");
    }

    #[test]
    fn comments_are_broken_between_words() {
        let text = comment(&"word ".repeat(40), "  ");
        assert!(
            text.lines()
                .all(|line| line.starts_with("  /// word") && line.len() <= WIDTH)
        );
        assert_eq!(text.matches("word").count(), 40);
        assert_eq!(comment("", ""), "");
    }

    #[test]
    fn every_function_is_in_both_files_once() {
        let abi = Abi::read(&crate::Repository::open().unwrap()).unwrap();
        let (raw, bundled) = (raw(&abi), bundled(&abi));
        for function in abi.functions() {
            assert_eq!(
                raw.matches(&format!("('{}')", function.name)).count(),
                1,
                "{}",
                function.name
            );
            assert_eq!(
                bundled.matches(&format!("'{}'", function.name)).count(),
                2,
                "{}",
                function.name
            );
        }
    }
}
