//! The C library as C and C++ programs find it: installed, linked, and run under sanitizers and Valgrind.
//!
//! The library itself is not instrumented: what is checked is the memory that crosses the border, what is leaked, and the header of
//! C++ with its threads. Valgrind sees both sides.

use crate::ci::{Context, Outcome};
use anyhow::Result;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a program is built and run: name, flags, and the environment.
const WAYS: &[(&str, &[&str], (&str, &str))] = &[
    (
        "address",
        &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
        ("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0"),
    ),
    (
        "thread",
        &["-fsanitize=thread"],
        (
            "TSAN_OPTIONS",
            "halt_on_error=1 suppressions=crates/ffi/tests/programs/tsan.txt",
        ),
    ),
    ("plain", &[], ("LC_ALL", "C")),
];

/// Compilers, flags and programs.
const PROGRAMS: &[(&str, &[&str], &str)] = &[
    ("cc", C11, "answer.c"),
    ("cc", C11, "names.c"),
    (
        "c++",
        &["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"],
        "answer.cpp",
    ),
];

/// The guide whose programs and parts of programs are compiled.
const GUIDE: &str = "docs/guides/c.md";

const C11: &[&str] = &["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// A model that is no bundle.
const SOURCE: &str = "golden/models/qwen2_tied";

/// The step.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    if !cfg!(target_os = "linux") || !context.answers("cc", &["--version"]) || !context.answers("c++", &["--version"]) {
        return Ok(Outcome::Skipped("it needs Linux and a C and C++ compiler".to_owned()));
    }
    let folder = context.root.join("target").join("ci-ffi");
    let prefix = match installed(context, &folder)? {
        Ok(prefix) => prefix,
        Err(failed) => return Ok(failed),
    };
    let bundle = folder.join("bundle");
    let mut convert = context.command(context.built("cactus"));
    convert.arg("convert").arg(SOURCE).arg(&bundle);
    if let failed @ Outcome::Failed(_) = context.run(&mut convert)? {
        return Ok(failed);
    }
    if let failed @ Outcome::Failed(_) = guide(context, &folder, &prefix)? {
        return Ok(failed);
    }
    let mut left_out = Vec::new();
    for (compiler, dialect, source) in PROGRAMS {
        // What each program is given; a cache is made once in each way.
        let arguments = |way: &str| match *source {
            "names.c" => vec![SOURCE.into(), folder.join(format!("cache-{way}"))],
            _ => vec![bundle.clone()],
        };
        for (way, flags, environment) in WAYS {
            let program = folder.join(format!("{source}.{way}"));
            let mut build = context.command(compiler);
            build
                .args(*dialect)
                .args(*flags)
                .args(["-g", "-O1", "-pthread", "-o"])
                .arg(&program);
            build.arg(format!("crates/ffi/tests/programs/{source}"));
            build.arg(format!("-I{}", prefix.join("include").display()));
            build.arg(prefix.join("lib/libcactus.so"));
            build.arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
            if let failed @ Outcome::Failed(_) = context.run(&mut build)? {
                return Ok(failed);
            }
            let mut run = user(context, &program);
            run.args(arguments(way)).env(environment.0, environment.1);
            if let failed @ Outcome::Failed(_) = context.run(&mut run)? {
                return Ok(failed);
            }
        }
        if !context.answers("valgrind", &["--version"]) {
            left_out.push("valgrind is not installed; scripts/setup.sh --ci installs it");
            continue;
        }
        let mut valgrind = user(context, "valgrind");
        valgrind.args([
            "--quiet",
            // One thread could otherwise keep the turn for seconds.
            "--fair-sched=yes",
            "--error-exitcode=9",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
        ]);
        valgrind
            .arg(folder.join(format!("{source}.plain")))
            .args(arguments("valgrind"));
        if let failed @ Outcome::Failed(_) = context.run(&mut valgrind)? {
            return Ok(failed);
        }
    }
    for found in [
        pkg_config(context, &folder, &prefix, &bundle)?,
        cmake(context, &folder, &prefix, &bundle)?,
    ] {
        match found {
            Outcome::Passed => {}
            Outcome::Skipped(_) => left_out.push("pkg-config or cmake is not installed"),
            failed => return Ok(failed),
        }
    }
    let mut published = user(context, "scripts/test_cactus_compute.sh");
    published.arg(prefix.join("lib/libcactus.so")).arg(&bundle);
    match published.status()?.code() {
        Some(0) => {}
        Some(77) => left_out.push("cactus-compute could not be installed"),
        _ => return Ok(Outcome::Failed("scripts/test_cactus_compute.sh failed".to_owned())),
    }
    let mut nm = context.command("nm");
    let exported = nm
        .args(["-D", "--defined-only", "--format=just-symbols"])
        .arg(prefix.join("lib/libcactus.so"))
        .output()?;
    let exported = String::from_utf8_lossy(&exported.stdout).into_owned();
    let listed = std::fs::read_to_string(context.root.join("crates/ffi/symbols.txt"))?;
    let sorted = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<String>>();
    if sorted(&exported) != sorted(&listed) {
        let what = "libcactus.so exports other names than crates/ffi/symbols.txt lists";
        return Ok(Outcome::Failed(what.to_owned()));
    }
    Ok(match left_out.first() {
        None => Outcome::Passed,
        Some(why) => Outcome::Skipped((*why).to_owned()),
    })
}

/// Builds the library, and installs it into `folder`, which is made anew; gives the prefix.
pub(crate) fn installed(context: &Context, folder: &Path) -> Result<std::result::Result<PathBuf, Outcome>> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(folder)?;
    if let failed @ Outcome::Failed(_) = context.build_all()? {
        return Ok(Err(failed));
    }
    let prefix = folder.join("prefix");
    let mut install = context.command("scripts/install_c.sh");
    install
        .arg(&prefix)
        .env("CACTUS_PROFILE", "dev")
        .env("CACTUS_BUILT", context.built("libcactus_ffi.a"));
    Ok(match context.run(&mut install)? {
        Outcome::Passed => Ok(prefix),
        failed => Err(failed),
    })
}

/// Compiles what the guide shows.
fn guide(context: &Context, folder: &Path, prefix: &Path) -> Result<Outcome> {
    let text = std::fs::read_to_string(context.root.join(GUIDE))?;
    for (number, (language, shown)) in shown(&text).into_iter().enumerate() {
        let file = folder.join(format!("guide-{number}.{language}"));
        std::fs::write(&file, whole(language, shown))?;
        let (compiler, dialect) = match language {
            "c" => ("cc", C11),
            _ => ("c++", &["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"][..]),
        };
        let mut compile = context.command(compiler);
        compile.args(dialect).args(["-Wno-unused-variable", "-fsyntax-only"]);
        compile
            .arg(format!("-I{}", prefix.join("include").display()))
            .arg(&file);
        if let failed @ Outcome::Failed(_) = context.run(&mut compile)? {
            return Ok(failed);
        }
    }
    Ok(Outcome::Passed)
}

/// The blocks of C and C++ in a text of Markdown, with their languages.
fn shown(text: &str) -> Vec<(&str, &str)> {
    let blocks = text.split("\n```").skip(1).step_by(2);
    let code = blocks.filter_map(|block| block.split_once('\n'));
    code.filter(|(language, _)| ["c", "cpp"].contains(language)).collect()
}

/// A block as a file that can be compiled: what is no program gets the headers and a function around it, but for functions that it
/// begins with.
fn whole(language: &str, shown: &str) -> String {
    if shown.contains("int main(") {
        return shown.to_owned();
    }
    let (functions, statements) = match shown.starts_with("static ") {
        true => shown.split_once("\n}\n").unwrap_or((shown, "")),
        false => ("", shown),
    };
    let functions = if functions.is_empty() {
        String::new()
    } else {
        format!("{functions}\n}}\n")
    };
    match language {
        "c" => format!(
            "#include <cactus.h>\n#include <stdbool.h>\n#include <stdio.h>\n{functions}\
             void part(cactus_model *model, cactus_request *request);\n\
             void part(cactus_model *model, cactus_request *request) {{\n(void)model, (void)request;\n{statements}\n}}\n"
        ),
        _ => format!(
            "#include <cactus.hpp>\n#include <iostream>\n{functions}\
             void part(cactus::Model &model, const std::string &question);\n\
             void part(cactus::Model &model, const std::string &question) {{\n{statements}\n}}\n"
        ),
    }
}

/// A command as a user gives it: cargo lets those that it starts find libraries of its own folders first.
pub(crate) fn user(context: &Context, program: impl AsRef<OsStr>) -> Command {
    let mut command = context.command(program);
    command
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("DYLD_FALLBACK_LIBRARY_PATH");
    command
}

/// Builds and runs the C program, statically linked, with the flags that `pkg-config` gives.
fn pkg_config(context: &Context, folder: &Path, prefix: &Path, bundle: &Path) -> Result<Outcome> {
    if !context.answers("pkg-config", &["--version"]) {
        return Ok(Outcome::Skipped(String::new()));
    }
    let program = folder.join("answer.static");
    let shell = format!(
        "cc -o {} crates/ffi/tests/programs/answer.c $(pkg-config --cflags cactus) {} $(pkg-config --static --libs-only-l cactus \
         | sed 's/-lcactus//') && {0} {}",
        program.display(),
        prefix.join("lib/libcactus.a").display(),
        bundle.display()
    );
    let mut command: Command = user(context, "sh");
    command
        .args(["-c", &shell])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    context.run(&mut command)
}

/// Builds and runs both programs by `find_package`.
fn cmake(context: &Context, folder: &Path, prefix: &Path, bundle: &Path) -> Result<Outcome> {
    if !context.answers("cmake", &["--version"]) {
        return Ok(Outcome::Skipped(String::new()));
    }
    let build = folder.join("cmake");
    let mut configure = context.command("cmake");
    configure.args(["-S", "crates/ffi/tests/programs", "-B"]).arg(&build);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
    let mut make = context.command("cmake");
    make.arg("--build").arg(&build);
    let mut shared = user(context, build.join("answer_cpp"));
    let mut linked = user(context, build.join("answer_static"));
    for command in [&mut configure, &mut make, shared.arg(bundle), linked.arg(bundle)] {
        if let failed @ Outcome::Failed(_) = context.run(command)? {
            return Ok(failed);
        }
    }
    Ok(Outcome::Passed)
}
