//! The tests of every SDK, and the conformance suite over all of them, with the library that this build made.

use crate::ci::{Context, Outcome};
use crate::ffi;
use anyhow::Result;
use std::env;

/// The folders below `sdks/` whose `test.sh` every run has, each with what it needs beyond a C compiler.
const ALWAYS: &[(&str, &str)] = &[
    ("cpp", "a C++ compiler"),
    ("python", "Python with NumPy"),
    ("rust", "the examples in Rust"),
    ("node", "Node"),
    ("kotlin", "a JDK"),
];

/// Those that are run where [`ALL`] says so: they install a gigabyte of tools, or build the library for another system.
const IF_ASKED: &[(&str, &str)] = &[
    ("web", "the standard library of Rust for WebAssembly"),
    ("react-native", "JavaScriptCore"),
    ("swift", "Swift"),
    ("dart", "Dart"),
    ("flutter", "Flutter's tools"),
];

/// The variable that asks for every SDK with the value `all`.
const ALL: &str = "CACTUS_SDKS";

/// Runners of the conformance suite that every run has.
const RUNNERS: &str = "c,cpp,python,rust,node,kotlin";

/// What a script says with this code: the tools are not on this machine.
const ABSENT: i32 = 77;

/// The runners of the conformance suite whose tools the tests of an SDK have as well.
fn runners(sdk: &'static str) -> Vec<&'static str> {
    match sdk {
        "cpp" => vec!["c", "cpp"],
        "react-native" => vec!["jsi"],
        _ => vec![sdk],
    }
}

/// The step.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    if !cfg!(target_os = "linux") || !context.answers("cc", &["--version"]) {
        return Ok(Outcome::Skipped("it needs Linux and a C compiler".to_owned()));
    }
    let folder = context.root.join("target").join("ci-sdks");
    let prefix = match ffi::installed(context, &folder)? {
        Ok(prefix) => prefix,
        Err(failed) => return Ok(failed),
    };
    let program = context.built("cactus");
    let with = |script: &str| {
        let mut command = ffi::user(context, script);
        command
            .env("CACTUS_PREFIX", &prefix)
            .env("CACTUS_LIB_PATH", prefix.join("lib/libcactus.so"))
            .env("CACTUS_PROGRAM", &program)
            .env("CACTUS_CONFORMANCE_RUST", context.built("cactus-conformance"))
            .env("CACTUS_PYTHON_EXTENSION", context.built("lib_native.so"));
        command
    };
    let all = env::var_os(ALL).is_some_and(|value| value == "all");
    let mut left_out = Vec::new();
    if !all {
        let names: Vec<&str> = IF_ASKED.iter().map(|(name, _)| *name).collect();
        left_out.push(format!("{} ({ALL}=all runs them)", names.join(", ")));
    }
    eprintln!("--- sdks/conformance/test_compare.py");
    let tests = with("python3").arg("sdks/conformance/test_compare.py").status()?;
    if !tests.success() {
        return Ok(Outcome::Failed("sdks/conformance/test_compare.py failed".to_owned()));
    }
    // Whose tools are here, as their tests have run: these may not be skipped by the suite.
    let mut required = vec!["rust"];
    for (sdk, needs) in ALWAYS.iter().chain(IF_ASKED.iter().filter(|_| all)) {
        eprintln!("--- sdks/{sdk}");
        let script = format!("sdks/{sdk}/test.sh");
        // The suite follows, for all at once.
        match with(&script).env("CACTUS_CONFORMANCE", "0").status()?.code() {
            Some(0) => required.extend(runners(sdk)),
            Some(ABSENT) => left_out.push(format!("{sdk} ({needs})")),
            _ => return Ok(Outcome::Failed(format!("{script} failed"))),
        }
    }
    let mut suite = with("python3");
    suite
        .arg("sdks/conformance/run.py")
        .arg("--cactus")
        .arg(&program)
        .arg("--require")
        .arg(required.join(","));
    if !all {
        suite.args(["--only", RUNNERS]);
    }
    if let failed @ Outcome::Failed(_) = context.run(&mut suite)? {
        return Ok(failed);
    }
    Ok(match left_out.is_empty() {
        true => Outcome::Passed,
        false => Outcome::Skipped(format!("left out: {}", left_out.join(", "))),
    })
}
