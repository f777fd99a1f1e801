//! The logits of the tiny models, bit for bit: every tier of every architecture gives what `golden/logits.txt` says.
//!
//! So conversion is held to bits as well. After a change of the arithmetic that is meant,
//! `CACTUS_UPDATE_GOLDEN=1 cargo test -p cactus-runtime --test same_bits` writes the file anew; say why in the commit.

use cactus_base::Pool;
use cactus_bundle::Bundle;
use cactus_import::{ConvertOptions, convert};
use cactus_kernels::Kernels;
use cactus_passes::{Bits, Policy};
use cactus_runtime::{Execution, Head, KvDType, Logits, Options, Program};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden")
}

fn input_ids(case: &Path) -> Vec<u32> {
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(case.join("expected.json")).unwrap()).unwrap();
    let ids = json["input_ids"].as_array().unwrap();
    ids.iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// SHA-256 of the logits of all positions as little-endian `f32`, computed in chunks of `chunk`.
fn digest(program: &Arc<Program>, threads: usize, chunk: usize, ids: &[u32]) -> String {
    let mut hash = Sha256::new();
    let pool = Pool::new(threads);
    let mut execution = Execution::new(Arc::clone(program)).unwrap();
    for ids in ids.chunks(chunk) {
        let mut add = |_: usize, row: Logits<'_>| row.iter().for_each(|x| hash.update(x.to_le_bytes()));
        execution.run(&pool, threads, ids, Head::From(0, &mut add)).unwrap();
    }
    let mut text = String::new();
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The kernels of this CPU: all, or those from the tier on that the variable `CACTUS_TEST_FROM_TIER` names. Whatever runs
/// this on emulated CPUs, one for each tier, sets it.
fn tested() -> impl Iterator<Item = &'static Kernels> {
    let from = std::env::var("CACTUS_TEST_FROM_TIER").unwrap_or_else(|_| "scalar".to_owned());
    let mut tested = Kernels::available()
        .skip_while(move |kernels| kernels.tier().name() != from)
        .peekable();
    assert!(tested.peek().is_some(), "this CPU lacks the tier to test");
    tested
}

/// The bundle of a model, converted unless it is in `dir` already. Others may be at it, too.
fn bundle(case: &Path, dir: &Path, bits: u32) -> Arc<Bundle> {
    let name = format!("{}-{bits}", case.file_name().unwrap().display());
    let path = dir.join(&name);
    if !path.exists() {
        let options = ConvertOptions {
            policy: Policy::uniform(Bits::from_number(bits).unwrap()),
            ..ConvertOptions::default()
        };
        let own = dir.join(format!("{name}.{}", std::process::id()));
        convert(case, &own, &options, &mut |_, _| {}).unwrap();
        if std::fs::rename(&own, &path).is_err() {
            assert!(path.exists(), "{} was not moved", own.display());
        }
    }
    Arc::new(Bundle::open(&path).unwrap())
}

/// Digests of one model, a line for each kind of weights and cache.
fn digests(case: &Path, dir: &Path) -> String {
    let name = case.file_name().unwrap().to_str().unwrap();
    let ids = input_ids(case);
    let mut lines = String::new();
    for (bits, kv_dtype) in [
        (8, KvDType::I8G32),
        (8, KvDType::F16),
        (16, KvDType::F16),
        (32, KvDType::F16),
        (4, KvDType::I8G32),
        (2, KvDType::I8G32),
    ] {
        let bundle = bundle(case, dir, bits);
        let kv = if kv_dtype == KvDType::F16 { "f16" } else { "i8g32" };
        let mut of_lowest = None;
        for kernels in tested() {
            let options = Options {
                context_tokens: 4096,
                chunk_tokens: 4096,
                rows_together: 0,
                kv_dtype,
                kernels: Some(kernels),
            };
            let program = Arc::new(Program::new(Arc::clone(&bundle), "decoder", &options).unwrap());
            for (threads, chunk) in [(1, 4096), (2, 7)] {
                let found = digest(&program, threads, chunk, &ids);
                let expected = of_lowest.get_or_insert_with(|| found.clone());
                let tier = kernels.tier();
                assert_eq!(
                    &found, expected,
                    "{name}, {bits} bits, KV {kv}: {tier} with {threads} threads and chunks of {chunk} differs from the lowest tier"
                );
            }
        }
        let _ = writeln!(lines, "{name} {bits} {kv} {}", of_lowest.unwrap());
    }
    lines
}

#[test]
fn logits_of_every_family_and_tier_equal_the_golden_bits() {
    let file = golden().join("logits.txt");
    let own = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("CACTUS_TEST_BUNDLES").map(PathBuf::from);
    let dir = kept.as_deref().unwrap_or(own.path());
    let mut cases: Vec<PathBuf> = std::fs::read_dir(golden().join("models"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    assert!(cases.len() >= 8, "{cases:?}");
    // Two that begin at once from both ends convert half of the models each.
    let from_behind = std::env::var_os("CACTUS_TEST_FROM_TIER").is_some_and(|tier| tier != "scalar");
    let mut lines: Vec<String> = match from_behind {
        true => cases.iter().rev().map(|case| digests(case, dir)).collect(),
        false => cases.iter().map(|case| digests(case, dir)).collect(),
    };
    if from_behind {
        lines.reverse();
    }
    let found = lines.concat();
    if std::env::var_os("CACTUS_UPDATE_GOLDEN").is_some_and(|v| v == "1") {
        std::fs::write(&file, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap();
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected, "{} on {}", file.display(), std::env::consts::ARCH);
    }
    assert_eq!(found, expected);
}
