//! Rules on Rust sources: `unsafe` and its reasons, printing, connections, module names, module documentation.

use crate::repository::{Finding, TextFile};
use crate::scan::{code_only, lines_with_word, without_test_module};

/// Crates that may contain `unsafe`; every other one forbids it.
pub const UNSAFE_CRATES: &[&str] = &[
    "base", "simd", "tensor", "kernels", "bundle", "ffi", "fuzzing", "python",
];

/// Crates that need it in one place: the crate, and the file that has all of it.
pub const UNSAFE_FILES: &[(&str, &str)] = &[
    ("fuzzing", "crates/fuzzing/src/c_calls.rs"),
    ("python", "crates/python/src/dlpack.rs"),
];

/// Crates that talk to a person on a terminal; every other one is a library and never prints.
pub const PRINTING_CRATES: &[&str] = &["cli", "xtask"];

/// Crates that talk to other machines. No device build without `store` and `cloud` has one of them (see `engine_side`), and the standard
/// library's means are no others'.
pub const CONNECTING_CRATES: &[&str] = &["cli", "cloud", "hub", "serve", "testkit"];
/// What connects, or looks a name up.
const CONNECTIONS: &[&str] = &[
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "UnixListener",
    "UnixDatagram",
    "ToSocketAddrs",
    "to_socket_addrs",
    "getaddrinfo",
];

/// Module names that say nothing about what is inside.
pub const EMPTY_NAMES: &[&str] = &[
    "common", "helper", "helpers", "manager", "managers", "misc", "shared", "stuff", "util", "utils",
];

/// A file with more lines than this begins with documentation.
pub const DOCUMENTED_LINES: usize = 100;

/// How far above an `unsafe` block its reason may begin: a long reason has several lines.
const REASON_LINES: usize = 14;

/// All rules of this module over the sources of libraries and programs.
pub fn check<'a>(files: impl IntoIterator<Item = &'a TextFile>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.into_iter().filter(|f| f.is_crate_source()) {
        let code = code_only(&file.text);
        unsafe_code(file, &code, &mut findings);
        printing(file, &code, &mut findings);
        connections(file, &code, &mut findings);
        names(file, &code, &mut findings);
        documentation(file, &mut findings);
    }
    findings
}

fn unsafe_code(file: &TextFile, code: &str, findings: &mut Vec<Finding>) {
    let name = file.crate_name().unwrap_or_default();
    let mut finding = |line, message: String| findings.push(Finding::new(&file.path, line, message));
    if !UNSAFE_CRATES.contains(&name) {
        for line in lines_with_word(code, "unsafe") {
            finding(
                line,
                format!("`unsafe` is allowed only in {}", UNSAFE_CRATES.join(", ")),
            );
        }
        let is_root = ["lib.rs", "main.rs"]
            .iter()
            .any(|root| file.path.ends_with(&format!("src/{root}")));
        if is_root && !code.contains("#![forbid(unsafe_code)]") {
            finding(0, "needs `#![forbid(unsafe_code)]`".to_owned());
        }
        return;
    }
    let lines: Vec<&str> = file.text.lines().collect();
    let only = UNSAFE_FILES.iter().find(|(of, path)| *of == name && *path != file.path);
    for line in lines_with_word(code, "unsafe") {
        if let Some((_, path)) = only {
            finding(line, format!("`unsafe` is allowed in this crate only in {path}"));
        }
        // An `unsafe fn` or trait states a duty (clippy wants its "# Safety"); a block or an impl claims it is met.
        let statement = code.lines().nth(line - 1).unwrap_or_default();
        let claims = statement.contains("unsafe {") || statement.contains("unsafe impl");
        let above = &lines[line.saturating_sub(REASON_LINES + 1)..line];
        if claims && !above.iter().any(|l| l.contains("SAFETY:")) {
            finding(line, "an `unsafe` block needs a `// SAFETY:` reason".to_owned());
        }
    }
}

fn printing(file: &TextFile, code: &str, findings: &mut Vec<Finding>) {
    if PRINTING_CRATES.contains(&file.crate_name().unwrap_or_default()) || is_test_file(&file.path) {
        return;
    }
    for (line, number) in without_test_module(code).lines().zip(1..) {
        for word in [
            "println!",
            "print!",
            "eprintln!",
            "eprint!",
            "dbg!",
            "stdout()",
            "stderr()",
        ] {
            if lines_with_word(line, word.trim_end_matches(['!', '(', ')'])).is_empty() || !line.contains(word) {
                continue;
            }
            findings.push(Finding::new(
                &file.path,
                number,
                format!("`{word}` in a library: give it to the caller instead"),
            ));
        }
    }
}

fn connections(file: &TextFile, code: &str, findings: &mut Vec<Finding>) {
    if CONNECTING_CRATES.contains(&file.crate_name().unwrap_or_default()) || is_test_file(&file.path) {
        return;
    }
    let code = without_test_module(code);
    for word in CONNECTIONS {
        for line in lines_with_word(code, word) {
            let message = format!(
                "`{word}` talks to others, which only {} may",
                CONNECTING_CRATES.join(", ")
            );
            findings.push(Finding::new(&file.path, line, message));
        }
    }
}

fn names(file: &TextFile, code: &str, findings: &mut Vec<Finding>) {
    let stem = file.path.trim_end_matches(".rs").rsplit('/');
    let own = stem
        .take_while(|part| *part != "src")
        .find(|part| EMPTY_NAMES.contains(part));
    let inline = code.lines().find_map(|line| {
        let name = line.trim().strip_prefix("pub ").unwrap_or(line.trim());
        let name = name.strip_prefix("mod ")?.trim_end_matches(['{', ';', ' ']);
        EMPTY_NAMES.contains(&name).then_some(name)
    });
    if let Some(name) = own.or(inline) {
        findings.push(Finding::new(
            &file.path,
            0,
            format!("a module called `{name}` says nothing: name what is inside"),
        ));
    }
}

fn documentation(file: &TextFile, findings: &mut Vec<Finding>) {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    let is_root = matches!(name, "lib.rs" | "main.rs" | "mod.rs");
    let is_long = file.text.lines().count() > DOCUMENTED_LINES && !is_test_file(&file.path);
    if (is_root || is_long) && !file.text.starts_with("//! ") {
        findings.push(Finding::new(
            &file.path,
            1,
            "begins without module documentation (`//! ...`): its purpose, and what it leaves to others",
        ));
    }
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let file = TextFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        check([&file]).into_iter().map(|f| f.to_string()).collect()
    }

    #[test]
    fn check_finds_each_broken_rule() {
        let ok = "//! Doc.\n#![forbid(unsafe_code)]\n";
        let long = "x\n".repeat(DOCUMENTED_LINES + 1);
        let cases: &[(&str, &str, &str)] = &[
            ("crates/ir/src/lib.rs", "//! Doc.\n", "forbid(unsafe_code)"),
            ("crates/ir/src/lib.rs", "#![forbid(unsafe_code)]\n", "documentation"),
            ("crates/ir/src/a.rs", "fn f() { unsafe { g() } }", "allowed only"),
            ("crates/ir/src/a.rs", &long, "documentation"),
            ("crates/simd/src/a.rs", "fn f() { unsafe { g() } }", "SAFETY"),
            ("crates/simd/src/a.rs", "unsafe impl Send for X {}", "SAFETY"),
            (
                "crates/python/src/a.rs",
                "// SAFETY: it is.\nunsafe { g() }",
                "only in crates/python/src/dlpack.rs",
            ),
            ("crates/ir/src/a.rs", "fn f() { println!(\"x\") }", "println!"),
            ("crates/ir/src/a.rs", "fn f() { std::io::stdout().lock(); }", "stdout()"),
            (
                "crates/ffi/src/a.rs",
                "fn f() { std::net::TcpStream::connect(a); }",
                "TcpStream",
            ),
            (
                "crates/engine/src/a.rs",
                "use std::net::ToSocketAddrs;",
                "ToSocketAddrs",
            ),
            ("crates/ir/src/utils.rs", "", "utils"),
            ("crates/ir/src/helpers/a.rs", "", "helpers"),
            ("crates/ir/src/a.rs", "pub mod common {\n}", "common"),
        ];
        for (path, text, want) in cases {
            let findings = found(path, text);
            assert!(findings.iter().any(|f| f.contains(want)), "{path} {want}: {findings:?}");
        }
        assert!(found("crates/ir/src/lib.rs", ok).is_empty());
    }

    #[test]
    fn check_lets_pass_what_is_allowed() {
        let cases: &[(&str, &str)] = &[
            ("crates/simd/src/a.rs", "// SAFETY: checked above.\nunsafe { g() }"),
            (
                "crates/python/src/dlpack.rs",
                "// SAFETY: checked above.\nunsafe { g() }",
            ),
            ("crates/simd/src/a.rs", "/// # Safety\n/// x\npub unsafe fn f() {}"),
            (
                "crates/ir/src/a.rs",
                "// unsafe println!\nlet s = \"unsafe { dbg!(1) }\";",
            ),
            (
                "crates/ir/src/a.rs",
                "#[cfg(test)]\nmod tests {\n fn f() { println!() }\n}",
            ),
            ("crates/ir/src/a/tests.rs", "fn f() { println!() }"),
            ("crates/cli/src/a.rs", "fn f() { println!() }"),
            ("crates/hybrid/src/a.rs", "use std::net::IpAddr;"),
            ("crates/cloud/src/a.rs", "use std::net::TcpStream;"),
            ("crates/ir/src/a.rs", "fn blueprint() { footprint!(x) }"),
            ("crates/ir/tests/a.rs", "fn f() { unsafe {} }"),
        ];
        for (path, text) in cases {
            assert_eq!(found(path, text), [""; 0], "{path} {text}");
        }
    }
}
