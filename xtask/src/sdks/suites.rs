//! The tests of every SDK, and the conformance suite over all of them, with the library that this build made.

use crate::ci::{Context, Outcome};
use crate::ffi;
use anyhow::Result;

/// The folders below `sdks/` whose `test.sh` is run, each with what it needs beyond a C compiler.
const SDKS: &[(&str, &str)] = &[
    ("cpp", "a C++ compiler"),
    ("python", "Python with NumPy"),
    ("rust", "the examples in Rust"),
    ("node", "Node"),
    ("kotlin", "a JDK"),
    ("react-native", "JavaScriptCore"),
    ("web", "the standard library of Rust for WebAssembly"),
    ("swift", "Swift"),
    ("dart", "Dart"),
    ("flutter", "Flutter's tools"),
];

/// What a script says with this code: the tools are not on this machine.
const ABSENT: i32 = 77;

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
    let mut left_out = Vec::new();
    for (sdk, needs) in SDKS {
        eprintln!("--- sdks/{sdk}");
        let script = format!("sdks/{sdk}/test.sh");
        match with(&script).status()?.code() {
            Some(0) => {}
            Some(ABSENT) => left_out.push(format!("{sdk} ({needs})")),
            _ => return Ok(Outcome::Failed(format!("{script} failed"))),
        }
    }
    let mut suite = with("python3");
    suite.arg("sdks/conformance/run.py").arg("--cactus").arg(&program);
    if let failed @ Outcome::Failed(_) = context.run(&mut suite)? {
        return Ok(failed);
    }
    Ok(match left_out.is_empty() {
        true => Outcome::Passed,
        false => Outcome::Skipped(format!("not on this machine: {}", left_out.join(", "))),
    })
}
