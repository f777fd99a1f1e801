//! Every fuzz target on its seeds, on mutations of them, on inputs that once failed, and on what a fuzzer found to reach more.

use cactus_fuzzing::{TARGETS, Target, mutate, target};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Mutations run in all for one target, shared out among its seeds, where `CACTUS_TEST_MUTATIONS` does not say otherwise.
const MUTATIONS: usize = 600;
/// No input may keep a parser busy for longer, in a build that is not optimized and on a busy machine.
const MAX_TIME: Duration = Duration::from_secs(20);

fn mutation_count() -> usize {
    let given = std::env::var("CACTUS_TEST_MUTATIONS").ok();
    given.map_or(MUTATIONS, |n| n.parse().expect("CACTUS_TEST_MUTATIONS is a number"))
}

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Where the input lies that a target is given: what hangs, or ends the process, says nothing itself.
fn under_way(target: &Target) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("fuzz-hang");
    folder.join(target.name)
}

/// Runs one input and tells whether it was accepted; where it fails, keeps it under the build folder and says where.
fn run(target: &Target, input: &[u8], what: &str) -> bool {
    fs::write(under_way(target), input).unwrap();
    let start = Instant::now();
    let accepted = catch_unwind(AssertUnwindSafe(|| (target.run)(input))).unwrap_or_else(|_| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-failed", target.name));
        fs::write(&path, input).unwrap();
        panic!("{} failed on {what}, kept as {}", target.name, path.display());
    });
    let time = start.elapsed();
    assert!(
        time < MAX_TIME,
        "{} took {time:?} on {what} of {} bytes, kept as {}",
        target.name,
        input.len(),
        under_way(target).display()
    );
    accepted
}

fn check(name: &str) {
    let target = target(name).unwrap();
    let kept = under_way(target);
    fs::create_dir_all(kept.parent().unwrap()).unwrap();
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty());
    for (i, seed) in seeds.iter().enumerate() {
        assert!(run(target, seed, &format!("seed {i}")), "seed {i} of {name} is refused");
        let mutated = mutate::mutations(target.form, seed, mutation_count().div_ceil(seeds.len()));
        for (j, input) in mutated.enumerate() {
            run(target, &input, &format!("mutation {j} of seed {i}"));
        }
    }
    run(target, b"", "nothing");
    for folder in ["regressions", "corpus"] {
        let entries = fs::read_dir(fuzz_folder().join(folder).join(name));
        for entry in entries.into_iter().flatten() {
            let path = entry.unwrap().path();
            run(target, &fs::read(&path).unwrap(), &path.display().to_string());
        }
    }
    fs::remove_file(kept).unwrap();
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn every_target_is_tested_and_has_a_program() {
            let tested = [$(stringify!($name)),*];
            for target in TARGETS {
                assert!(tested.contains(&target.name), "{}", target.name);
                let program = fuzz_folder().join(format!("fuzz_targets/{}.rs", target.name));
                let text = fs::read_to_string(&program).unwrap();
                assert!(text.contains(&format!("\"{}\"", target.name)), "{}", program.display());
                let manifest = fs::read_to_string(fuzz_folder().join("Cargo.toml")).unwrap();
                assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
            }
        }
    };
}

targets! {
    tensor_record graph_cactus graph_json program function manifest gguf safetensors ctranslate2 ggml ort onnx state_dict pt2_archive
    pt2_program hf_config tokenizer_json tokenizer_tables chat_template generate_options_json json_schema grammar_text tool_output
    saved_session audio_form realtime_event http_request c_calls
    cloud_stream
    audio_file audio_recipe
    picture_file picture_record
    index_file document pdf pdf_output
}
