//! Every family at tiny random weights, from folder or GGUF to logits, beside Hugging Face transformers; and the promise
//! that the same bits come out of every tier, thread count and split of the prompt.

use cactus_base::Pool;
use cactus_bundle::Bundle;
use cactus_import::{ConvertOptions, convert};
use cactus_kernels::Kernels;
use cactus_passes::{Bits, Policy};
use cactus_runtime::{Execution, Head, KvDType, Logits, Options, Program};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Every golden model of text.
fn cases() -> Vec<String> {
    cactus_testkit::cases(&golden().join("models"))
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden")
}

struct Expected {
    ids: Vec<u32>,
    logits: Vec<f32>,
    prompt: Vec<u32>,
    greedy: Vec<u32>,
}

fn expected(case: &str) -> Expected {
    let dir = golden().join("models").join(case);
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("expected.json")).unwrap()).unwrap();
    let ids = |v: &serde_json::Value| -> Vec<u32> {
        v.as_array()
            .unwrap()
            .iter()
            .map(|x| x.as_u64().unwrap() as u32)
            .collect()
    };
    let bytes = std::fs::read(dir.join("expected.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let logits = tensors.tensor("logits").unwrap();
    Expected {
        ids: ids(&json["input_ids"]),
        logits: logits
            .data()
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&b| f32::from_le_bytes(b))
            .collect(),
        prompt: ids(&json["greedy"]["prompt_ids"]),
        greedy: ids(&json["greedy"]["tokens"]),
    }
}

/// Whether its configuration counts experts, or streams of hidden states.
fn has_islands(case: &str) -> bool {
    let config = std::fs::read(golden().join("models").join(case).join("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    ["num_experts", "num_local_experts", "altup_num_inputs"]
        .iter()
        .any(|key| config.get(key).is_some())
}

fn bundle(source: &Path, dir: &Path, bits: u32) -> Arc<Bundle> {
    let options = ConvertOptions {
        policy: Policy::uniform(Bits::from_number(bits).unwrap()),
        replace: true,
        ..ConvertOptions::default()
    };
    let path = dir.join(format!("{}-{bits}", source.file_name().unwrap().to_string_lossy()));
    convert(source, &path, &options, &mut |_, _| {}).unwrap();
    Arc::new(Bundle::open(&path).unwrap())
}

fn program(bundle: &Arc<Bundle>, kv: KvDType, kernels: Option<&'static Kernels>) -> Arc<Program> {
    let options = Options {
        context_tokens: 4096,
        chunk_tokens: 4096,
        rows_together: 0,
        kv_dtype: kv,
        kernels,
    };
    Arc::new(Program::new(Arc::clone(bundle), "decoder", &options).unwrap())
}

/// Logits of every position, computed in chunks of `chunk`.
fn all_logits(program: &Arc<Program>, pool: &Pool, ids: &[u32], chunk: usize) -> Vec<f32> {
    let mut execution = Execution::new(Arc::clone(program)).unwrap();
    let mut out = Vec::new();
    for part in ids.chunks(chunk) {
        let mut each = |_: usize, row: Logits<'_>| out.extend_from_slice(&row);
        execution
            .run(pool, pool.threads(), part, Head::From(0, &mut each))
            .unwrap();
    }
    out
}

fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().reduce(|a, b| if b.1 > a.1 { b } else { a });
    best.map_or(0, |(i, _)| i as u32)
}

/// `|got - want| / |want|` in the Euclidean norm over all positions.
fn assert_logits(case: &str, got: &[f32], want: &[f32], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{case}");
    let square = |x: f32| f64::from(x) * f64::from(x);
    let error: f64 = got.iter().zip(want).map(|(a, b)| square(a - b)).sum();
    let relative = (error / want.iter().map(|&x| square(x)).sum::<f64>()).sqrt();
    assert!(
        relative <= tolerance,
        "{case}: relative error {relative:.2e}, at most {tolerance:.0e}"
    );
}

/// Allowed error with F32 weights; what remains is the F16 KV cache. The tiny Gemma (seven layers, norms on both sides of
/// everything) amplifies that rounding about six times as much as the others.
fn tolerance(case: &str) -> f64 {
    if case == "gemma3_text" { 6e-3 } else { 2e-3 }
}

#[test]
fn f32_logits_follow_transformers_for_every_family() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::new(1);
    for case in &cases() {
        let e = expected(case);
        let b = bundle(&golden().join("models").join(case), dir.path(), 32);
        let p = program(&b, KvDType::F16, None);
        assert_logits(case, &all_logits(&p, &pool, &e.ids, 4096), &e.logits, tolerance(case));
    }
}

#[test]
fn gguf_twins_give_the_same_logits() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::new(1);
    for entry in std::fs::read_dir(golden().join("gguf")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "gguf") {
            continue;
        }
        let case = path.file_stem().unwrap().to_string_lossy().into_owned();
        let e = expected(&case);
        let b = bundle(&path, dir.path(), 32);
        let p = program(&b, KvDType::F16, None);
        assert_logits(&case, &all_logits(&p, &pool, &e.ids, 4096), &e.logits, tolerance(&case));
    }
}

#[test]
fn f32_greedy_tokens_equal_transformers_over_64_steps() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::new(1);
    for case in &cases() {
        let e = expected(case);
        let b = bundle(&golden().join("models").join(case), dir.path(), 32);
        let mut execution = Execution::new(program(&b, KvDType::F16, None)).unwrap();
        execution.run(&pool, 1, &e.prompt, Head::Last).unwrap();
        let mut got = vec![argmax(&execution.logits())];
        while got.len() < e.greedy.len() {
            let last = got[got.len() - 1];
            execution.run(&pool, 1, &[last], Head::Last).unwrap();
            got.push(argmax(&execution.logits()));
        }
        assert_eq!(got, e.greedy, "{case}");
        assert_eq!(got.len(), 64, "{case}");
    }
}

#[test]
fn int8_logits_have_the_same_bits_on_every_tier_thread_count_and_chunk_size() {
    let dir = tempfile::tempdir().unwrap();
    for case in &cases() {
        let e = expected(case);
        let b = bundle(&golden().join("models").join(case), dir.path(), 8);
        for kv in [KvDType::I8G32, KvDType::F16] {
            let mut want: Option<Vec<f32>> = None;
            for kernels in Kernels::available() {
                let p = program(&b, kv, Some(kernels));
                for (threads, chunk) in [(1, 4096), (1, 1), (1, 7), (1, 128), (2, 4096), (3, 7), (4, 128)] {
                    let got = all_logits(&p, &Pool::new(threads), &e.ids, chunk);
                    let want = want.get_or_insert_with(|| got.clone());
                    let same =
                        got.len() == want.len() && got.iter().zip(&*want).all(|(a, b)| a.to_bits() == b.to_bits());
                    let tier = kernels.tier().name();
                    assert!(same, "{case} {kv:?} {tier} threads {threads} chunk {chunk}");
                }
            }
            // Eight bits lose little: the model stays the same one.
            assert_logits(case, &want.unwrap(), &e.logits, 0.3);
        }
    }
}

#[test]
fn truncated_execution_equals_a_fresh_one() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::new(1);
    for case in &cases() {
        let e = expected(case);
        let b = bundle(&golden().join("models").join(case), dir.path(), 8);
        let p = program(&b, KvDType::I8G32, None);
        let mut fresh = Execution::new(Arc::clone(&p)).unwrap();
        fresh.run(&pool, 1, &e.ids, Head::Last).unwrap();
        let mut used = Execution::new(p).unwrap();
        used.run(&pool, 1, &e.ids, Head::Last).unwrap();
        let keep = e.ids.len() / 2;
        // Convolution states cannot go back; then the execution says so and is begun anew.
        let kept = used.truncate(keep);
        assert_eq!(kept, !case.starts_with("lfm2"), "{case}");
        if !kept {
            used.clear();
        }
        let rest = &e.ids[used.len()..];
        used.run(&pool, 1, rest, Head::Last).unwrap();
        assert_eq!(used.logits(), fresh.logits(), "{case}");
    }
}

#[test]
fn nothing_is_allocated_for_a_token_after_warm_up() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::new(1);
    // Experts and streams are computed in islands, which are functions between the steps.
    for case in cases().iter().filter(|case| !has_islands(case)) {
        let e = expected(case);
        let b = bundle(&golden().join("models").join(case), dir.path(), 8);
        let mut execution = Execution::new(program(&b, KvDType::I8G32, None)).unwrap();
        execution.run(&pool, 1, &e.prompt, Head::Last).unwrap();
        execution.run(&pool, 1, &[1], Head::Last).unwrap();
        let counted = allocation_counter::measure(|| {
            for i in 0..8 {
                execution.run(&pool, 1, &[i], Head::Last).unwrap();
            }
        });
        assert_eq!(counted.count_total, 0, "{case}: {counted:?}");
    }
}

#[test]
fn impossible_calls_are_errors_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::new(1);
    let b = bundle(&golden().join("models/llama"), dir.path(), 8);
    let options = Options {
        context_tokens: 8,
        chunk_tokens: 4,
        rows_together: 0,
        kv_dtype: KvDType::I8G32,
        kernels: None,
    };
    let p = Arc::new(Program::new(b, "decoder", &options).unwrap());
    let mut x = Execution::new(p).unwrap();
    assert!(x.run(&pool, 1, &[], Head::Last).is_err());
    assert!(x.run(&pool, 1, &[1; 5], Head::Last).is_err());
    assert!(x.run(&pool, 1, &[u32::MAX], Head::Last).is_err());
    assert_eq!(x.len(), 0);
    x.run(&pool, 1, &[1; 4], Head::Skip).unwrap();
    x.run(&pool, 1, &[1; 4], Head::Last).unwrap();
    let full = x.run(&pool, 1, &[1], Head::Last).unwrap_err();
    assert_eq!(full.kind(), cactus_runtime::ErrorKind::ContextFull);
    assert_eq!(x.len(), 8);
}
