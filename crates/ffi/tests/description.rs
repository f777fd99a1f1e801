//! Header, description and exported symbols are made of the sources, and agree with what is checked in.
//!
//! `UPDATE_ABI=1 cargo test -p cactus-ffi --test description` writes them again.
#![allow(clippy::print_stderr, reason = "says what is skipped")]

use cbindgen::{Builder, Config, DocumentationStyle, EnumConfig, Language, RenameRule, Style};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const HEAD: &str = include_str!("header.txt");

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every source, in the order in which the header has them.
fn sources() -> Vec<PathBuf> {
    fn below(folder: &Path, out: &mut Vec<PathBuf>) {
        let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            match path.is_dir() {
                true => below(&path, out),
                false => out.push(path),
            }
        }
    }
    let src = folder().join("src");
    let first = [
        "library.rs",
        "failure.rs",
        "types.rs",
        "log.rs",
        "load.rs",
        "model.rs",
        "request.rs",
        "session.rs",
    ];
    let mut sources: Vec<PathBuf> = first.iter().map(|name| src.join(name)).collect();
    let mut others = Vec::new();
    below(&src, &mut others);
    others.retain(|path| !sources.contains(path));
    sources.extend(others);
    sources
}

fn header() -> String {
    let words = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    let mut config = Config {
        language: Language::C,
        header: Some(HEAD.trim_end().to_owned()),
        include_guard: Some("CACTUS_H".to_owned()),
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"].map(str::to_owned).to_vec(),
        no_includes: true,
        cpp_compat: true,
        style: Style::Both,
        usize_is_size_t: true,
        documentation_style: DocumentationStyle::C,
        line_length: 120,
        enumeration: EnumConfig {
            rename_variants: RenameRule::QualifiedScreamingSnakeCase,
            ..EnumConfig::default()
        },
        ..Config::default()
    };
    config.export.rename = words(&[("Code", "cactus_code"), ("EventKind", "cactus_event_kind")]);
    config.export.include = ["Code", "EventKind"].map(str::to_owned).to_vec();
    let mut builder = Builder::new().with_config(config);
    // cbindgen reads the modules that a source declares; each would be read again.
    let declares = |source: &PathBuf| source.ends_with("lib.rs") || source.ends_with("mod.rs");
    for source in sources().into_iter().filter(|source| !declares(source)) {
        builder = builder.with_src(source);
    }
    let mut out = Vec::new();
    builder.generate().expect("the sources can be read").write(&mut out);
    String::from_utf8(out).unwrap()
}

/// Words of a C declaration without its comments, on one line.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `type` and `name` of `const char *name`.
fn typed(declaration: &str) -> Value {
    let text = plain(declaration);
    let at = text.rfind([' ', '*']).map_or(0, |at| at + 1);
    json!({"name": &text[at..], "type": text[..at].trim()})
}

fn parameters(list: &str) -> Vec<Value> {
    match plain(list).as_str() {
        "void" | "" => Vec::new(),
        list => list.split(", ").map(typed).collect(),
    }
}

/// The declarations of a header as cbindgen writes it, each with the comment before it.
fn declarations(header: &str) -> Vec<(String, String)> {
    let body = header.split_once("extern \"C\" {\n#endif // __cplusplus\n").unwrap();
    let mut found = Vec::new();
    // Types stand before `extern "C"`, functions after it.
    for part in [
        body.0
            .split_once("#include <stdint.h>")
            .map_or(body.0, |(_, types)| types),
        body.1,
    ] {
        let (mut doc, mut code) = (String::new(), String::new());
        let mut in_comment = false;
        for line in part.lines().filter(|line| !line.starts_with('#')) {
            let trimmed = line.trim();
            let outside = code.is_empty();
            if outside && (trimmed.starts_with("/*") || in_comment) {
                in_comment = !trimmed.ends_with("*/");
                let text = trimmed
                    .trim_start_matches("/*")
                    .trim_end_matches("*/")
                    .trim_start_matches('*')
                    .trim();
                doc.push_str(text);
                doc.push('\n');
                continue;
            }
            if trimmed.is_empty() && outside {
                continue;
            }
            code.push_str(line);
            code.push('\n');
            let open = code.matches('{').count() > code.matches('}').count();
            if trimmed.ends_with(';') && !open {
                found.push((plain(&doc), std::mem::take(&mut code)));
                doc.clear();
            }
        }
    }
    found
}

/// Comment and text of each field or value of a body in braces.
fn members(body: &str) -> Vec<(String, String)> {
    let (mut doc, mut found, mut in_comment) = (String::new(), Vec::new(), false);
    for line in body.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with("/*") || in_comment {
            in_comment = !line.ends_with("*/");
            doc.push_str(
                line.trim_start_matches("/*")
                    .trim_end_matches("*/")
                    .trim_start_matches('*')
                    .trim(),
            );
            doc.push(' ');
        } else {
            found.push((plain(&doc), line.trim_end_matches([';', ',']).to_owned()));
            doc.clear();
        }
    }
    found
}

fn describe(header: &str) -> Value {
    let [
        mut handles,
        mut structures,
        mut enumerations,
        mut callbacks,
        mut functions,
    ] = [const { Vec::new() }; 5];
    let groups = groups();
    for (doc, code) in declarations(header) {
        let flat = plain(&code);
        if let Some((head, rest)) = code.split_once('{') {
            let (body, tail) = rest.rsplit_once('}').unwrap();
            let name = plain(head).split(' ').next_back().unwrap().to_owned();
            if plain(head).contains("enum") {
                let values: Vec<Value> = members(body)
                    .iter()
                    .map(|(doc, text)| {
                        let (name, value) = text.split_once(" = ").expect("every value is written");
                        json!({"name": name, "value": value.parse::<i64>().unwrap(), "doc": doc})
                    })
                    .collect();
                let name = plain(head).split(' ').nth(1).map_or(name, str::to_owned);
                enumerations
                    .push(json!({"name": name.trim_end_matches(':'), "type": "int32_t", "doc": doc, "values": values}));
            } else {
                let fields: Vec<Value> = members(body)
                    .iter()
                    .map(|(doc, text)| {
                        let mut field = typed(text);
                        field["doc"] = json!(doc);
                        field
                    })
                    .collect();
                let name = plain(tail).trim_end_matches(';').to_owned();
                structures.push(json!({"name": name, "doc": doc, "fields": fields}));
            }
        } else if let Some(rest) = flat.strip_prefix("typedef struct ") {
            let name = rest.trim_end_matches(';').split(' ').next_back().unwrap();
            handles.push(json!({"name": name, "doc": doc}));
        } else if let Some(rest) = flat.strip_prefix("typedef ") {
            // The name of an enumeration's type is said with its values.
            let Some((returns, rest)) = rest.split_once("(*") else {
                continue;
            };
            let (name, rest) = rest.split_once(")(").unwrap();
            let list = parameters(rest.trim_end_matches(");"));
            callbacks.push(json!({"name": name, "doc": doc, "returns": returns.trim(), "parameters": list}));
        } else {
            let (head, list) = flat.split_once('(').expect("a function");
            let mut function = typed(head);
            let returns = function["type"].take();
            let name = function["name"].as_str().unwrap().to_owned();
            let list = parameters(list.trim_end_matches(");"));
            let group = groups.iter().find(|(function, _)| *function == name);
            let group = group.map(|(_, group)| *group).expect("a function of a source");
            functions.push(json!({
                "name": name,
                "group": group,
                "since": 1,
                "doc": doc,
                "returns": returns,
                "parameters": list,
            }));
        }
    }
    json!({
        "description": "The C ABI of libcactus, made of its sources. Raw bindings of other languages can be generated from it. \
                        `char *` that a function gives belongs to the caller (cactus_string_free); `const char *` is borrowed.",
        "abi_version": cactus_ffi::CACTUS_ABI_VERSION,
        "groups": {
            "cactus": "functions of this project",
            "public": "functions of the public Cactus engine",
            "public_graph": "functions of the public Cactus graph API",
        },
        "handles": handles,
        "structures": structures,
        "enumerations": enumerations,
        "callbacks": callbacks,
        "functions": functions,
    })
}

/// Every exported function by name, with the layer that its source belongs to. Those of macros are found, too.
fn groups() -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    for path in sources() {
        let within = path.strip_prefix(folder().join("src")).unwrap().to_owned();
        let group = match within.components().next().unwrap().as_os_str().to_str().unwrap() {
            "dropin" => "public",
            "graph" => "public_graph",
            _ => "cactus",
        };
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines() {
            let line = line.trim();
            let exported = ["pub unsafe extern \"C\" fn ", "pub extern \"C\" fn "];
            let function = exported.iter().find_map(|start| line.strip_prefix(start));
            let stub = (group == "public_graph" && line.starts_with("cactus_graph_")).then_some(line);
            if let Some(name) = function.or(stub).and_then(|rest| rest.split(['(', '<']).next())
                && name.starts_with("cactus_")
            {
                found.push((name.to_owned(), group));
            }
        }
    }
    found
}

fn symbols() -> String {
    let names: BTreeSet<String> = groups().into_iter().map(|(name, _)| name).collect();
    names.iter().map(|name| format!("{name}\n")).collect()
}

/// Compares with what is checked in, or writes it.
fn check(path: &str, made: &str) {
    let file = folder().join(path);
    if std::env::var_os("UPDATE_ABI").is_some() {
        fs::write(&file, made).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    let differs = found.lines().zip(made.lines()).position(|(a, b)| a != b);
    let line = differs.unwrap_or_else(|| found.lines().count().min(made.lines().count())) + 1;
    let again = "UPDATE_ABI=1 cargo test -p cactus-ffi --test description";
    assert!(
        found == made,
        "{path} differs from the sources at line {line}; `{again}` writes it again"
    );
}

#[test]
fn header_description_and_symbols_are_those_of_the_sources() {
    let header = header();
    check("include/cactus.h", &header);
    let description = describe(&header);
    check(
        "abi.json",
        &(serde_json::to_string_pretty(&description).unwrap() + "\n"),
    );
    check("symbols.txt", &symbols());
    // What is no macro is in the header.
    let described: BTreeSet<&str> = description["functions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        described.len(),
        description["functions"].as_array().unwrap().len(),
        "each function is described once"
    );
    let missing: Vec<String> = groups()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|n| !described.contains(n.as_str()))
        .collect();
    assert!(
        missing.iter().all(|name| name.starts_with("cactus_graph_")),
        "{missing:?}"
    );
    for name in described {
        assert!(name.starts_with("cactus_"), "{name}");
    }
}

/// The library beside this test, as cargo has built it for it.
fn library() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    here.with_file_name(format!(
        "{}cactus_ffi{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    ))
}

#[test]
fn library_exports_exactly_what_is_described() {
    let library = library();
    let mut nm = Command::new("nm");
    let Ok(output) = nm
        .args(["-D", "--defined-only", "--format=just-symbols"])
        .arg(&library)
        .output()
    else {
        eprintln!("SKIPPED: `nm` is not installed");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    // Names of a dependency leave the library that cargo links; scripts/install_c.sh links one without them.
    let mut exported: Vec<&str> = text.lines().filter(|name| !name.starts_with("llg_")).collect();
    exported.sort_unstable();
    let listed = symbols();
    assert_eq!(exported, listed.lines().collect::<Vec<_>>());
}

/// Names that bindings of the public package look up when they are imported.
#[test]
fn every_name_of_the_public_bindings_is_there() {
    let listed = symbols();
    let names: BTreeSet<&str> = listed.lines().collect();
    let public = include_str!("public_symbols.txt");
    let missing: Vec<&str> = public.lines().filter(|name| !names.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
