//! Captured language models as they generate: through states, in pieces of any size, the tokens that PyTorch picks by
//! computing the whole sequence again for each. The tokens are in `golden/pt2/greedy.json`, which `make_pt2.py` writes.

use cactus_base::Pool;
use cactus_bundle::Bundle;
use cactus_import::pt2::{Task, TranspileOptions, transpile};
use cactus_kernels::Kernels;
use cactus_runtime::{Execution, Head, KvDType, Logits, Options, Program};
use cactus_tensor::{DType, Tensor};
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/pt2")
}

/// Prompt and tokens by the case's name.
fn greedy() -> BTreeMap<String, [Vec<u32>; 2]> {
    let text = std::fs::read(golden().join("greedy.json")).unwrap();
    let all: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&text).unwrap();
    let ids = |v: &serde_json::Value| serde_json::from_value(v.clone()).unwrap();
    let cases = all
        .into_iter()
        .map(|(case, v)| (case, [ids(&v["prompt"]), ids(&v["tokens"])]));
    cases.collect()
}

/// A case with weights of so many bits; as they are where that is `None`.
fn program(folder: &Path, case: &str, bits: Option<u32>, kernels: Option<&'static Kernels>) -> Arc<Program> {
    let bundle = folder.join(format!("{case}-{}", bits.unwrap_or(0)));
    if !bundle.exists() {
        let options = TranspileOptions {
            task: Task::CausalLm,
            bits,
            ..TranspileOptions::default()
        };
        let source = golden().join(format!("{case}.pt2"));
        transpile(&source, &bundle, &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{case}: {e}"));
    }
    let options = Options {
        kv_dtype: KvDType::F16,
        kernels,
        ..Options::default()
    };
    let bundle = Arc::new(Bundle::open(&bundle).unwrap());
    Arc::new(Program::new(bundle, "decoder", &options).unwrap_or_else(|e| panic!("{case}: {e}")))
}

fn largest(logits: &[f32]) -> u32 {
    (0..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best }) as u32
}

/// The floats of a case whose names begin so: `0.input.` of what its first call reads beside token ids.
fn floats(case: &str, prefix: &str) -> BTreeMap<String, Tensor> {
    let bytes = std::fs::read(golden().join(format!("{case}.safetensors"))).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut out = BTreeMap::new();
    for name in file.names() {
        let view = file.tensor(name).unwrap();
        if let (Some(input), safetensors::Dtype::F32) = (name.strip_prefix(prefix), view.dtype()) {
            let tensor = Tensor::from_le_bytes(view.shape(), DType::F32, view.data()).unwrap();
            out.insert(input.to_owned(), tensor);
        }
    }
    out
}

fn execution(case: &str, program: &Arc<Program>, pool: &Pool) -> Execution {
    let mut run = Execution::new(Arc::clone(program)).unwrap();
    if !program.given_inputs().is_empty() {
        let e = run.run(pool, 1, &[3], Head::Skip).unwrap_err().to_string();
        assert!(e.contains("must be given before the first token"), "{e}");
        run.give(pool, 1, &floats(case, "0.input.")).unwrap();
    }
    run
}

/// Logits in bits of every position of `ids`, computed in pieces.
fn logits(case: &str, program: &Arc<Program>, threads: usize, ids: &[u32], pieces: &[usize]) -> Vec<u32> {
    let pool = Pool::new(threads);
    let mut run = execution(case, program, &pool);
    let (mut out, mut rest) = (Vec::new(), ids);
    for &n in pieces {
        let (now, later) = rest.split_at(n.min(rest.len()));
        rest = later;
        if !now.is_empty() {
            let mut each = |_: usize, row: Logits<'_>| out.extend(row.iter().map(|v| v.to_bits()));
            run.run(&pool, threads, now, Head::From(0, &mut each)).unwrap();
        }
    }
    out
}

#[test]
fn captured_model_generates_the_tokens_of_torch() {
    let folder = tempfile::tempdir().unwrap();
    for (case, [prompt, want]) in greedy() {
        let program = program(folder.path(), &case, None, None);
        let pool = Pool::new(1);
        let mut run = execution(&case, &program, &pool);
        let (mut ids, mut found) = (prompt.clone(), Vec::new());
        while found.len() < want.len() {
            run.run(&pool, 1, &ids, Head::Last).unwrap();
            ids = vec![largest(&run.logits())];
            found.push(ids[0]);
        }
        assert_eq!(found, want, "{case}");
        // The same again in the same memory: nothing of the last sequence is left.
        run.clear();
        run.run(&pool, 1, &prompt, Head::Last).unwrap();
        assert_eq!(largest(&run.logits()), want[0], "{case}");
    }
}

#[test]
fn what_an_encoder_gave_holds_until_other_frames_are_given() {
    let folder = tempfile::tempdir().unwrap();
    let case = "whisper_decoder";
    let program = program(folder.path(), case, None, None);
    assert_eq!(program.given_inputs(), ["encoder_hidden_states"]);
    let bytes = std::fs::read(golden().join(format!("{case}.safetensors"))).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let pool = Pool::new(1);
    let mut run = Execution::new(program).unwrap();
    // Calls of other lengths and numbers of frames, one after another in the same memory.
    for call in [0, 1, 0] {
        let ids = file.tensor(&format!("{call}.input.decoder_input_ids")).unwrap();
        let ids: Vec<u32> = ids.data().chunks_exact(8).map(|b| b[0].into()).collect();
        run.give(&pool, 1, &floats(case, &format!("{call}.input."))).unwrap();
        let mut found = Vec::new();
        let mut each = |_: usize, row: Logits<'_>| found.extend_from_slice(&row);
        run.run(&pool, 1, &ids, Head::From(0, &mut each)).unwrap();
        let want = &floats(case, &format!("{call}.output."))["0"];
        let want = want.as_f32().unwrap();
        let largest = want.iter().fold(0f32, |m, v| m.max(v.abs()));
        let error = found.iter().zip(want).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
        assert!(
            found.len() == want.len() && error < 5e-3 * largest,
            "call {call}: {error} of {largest}"
        );
    }
    // Conditions of the capture hold for what is given, too: at most 64 frames.
    let many = Tensor::from_f32([1, 65, 32], vec![0.5; 65 * 32]).unwrap();
    let e = run.give(&pool, 1, &BTreeMap::from([("encoder_hidden_states".to_owned(), many)]));
    let e = e.unwrap_err().to_string();
    assert!(e.contains("64"), "{e}");
}

#[test]
fn captured_model_computes_the_same_bits_in_pieces_on_threads_and_tiers() {
    let folder = tempfile::tempdir().unwrap();
    for (case, parts) in greedy() {
        let ids = parts.concat();
        for bits in [None, Some(8), Some(4)] {
            let mut first = None;
            for kernels in Kernels::available() {
                let program = program(folder.path(), &case, bits, Some(kernels));
                for (threads, pieces) in [
                    (1, vec![ids.len()]),
                    (1, vec![1; ids.len()]),
                    (3, vec![5, 1, 9, ids.len()]),
                ] {
                    let found = logits(&case, &program, threads, &ids, &pieces);
                    let want = first.get_or_insert_with(|| found.clone());
                    let tier = kernels.tier();
                    assert!(
                        found == *want,
                        "{case}, {bits:?} bits: {tier}, {threads} threads, pieces {pieces:?}"
                    );
                }
            }
        }
    }
}
