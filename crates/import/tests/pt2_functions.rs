//! Programs of `golden/pt2` as functions: from the archive through a bundle to outputs, beside PyTorch, with the same bits on
//! every tier and number of threads.

use cactus_base::Pool;
use cactus_bundle::Bundle;
use cactus_import::pt2::{Task, TranspileOptions, transpile};
use cactus_kernels::Kernels;
use cactus_runtime::{ErrorKind, Execution, Function, Head, KvDType, Options, Program};
use cactus_tensor::{DType, Data, Tensor};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Inputs = BTreeMap<String, Tensor>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/pt2")
}

fn cases() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|e| {
            let name = e.unwrap().file_name();
            name.to_str().and_then(|n| n.strip_suffix(".pt2")).map(str::to_owned)
        })
        .collect();
    names.sort();
    assert!(names.len() >= 16, "the fixtures are missing: {names:?}");
    names
}

/// The calls of a case: inputs by name, outputs in order.
fn calls(case: &str) -> Vec<(Inputs, Vec<Tensor>)> {
    let bytes = std::fs::read(folder().join(format!("{case}.safetensors"))).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut out: Vec<(Inputs, Vec<Tensor>)> = Vec::new();
    let mut names: Vec<&str> = file.names();
    // Outputs in the order of their numbers.
    names.sort_by_key(|n| (n.len(), *n));
    for name in names {
        let view = file.tensor(name).unwrap();
        let dtype = match view.dtype() {
            Dtype::F32 => DType::F32,
            Dtype::I64 => DType::I64,
            other => panic!("{other:?}"),
        };
        let tensor = Tensor::from_le_bytes(view.shape(), dtype, view.data()).unwrap();
        let [call, kind, what] = name.splitn(3, '.').collect::<Vec<_>>()[..] else {
            panic!("{name}")
        };
        let call: usize = call.parse().unwrap();
        out.resize_with(out.len().max(call + 1), Default::default);
        match kind {
            "input" => drop(out[call].0.insert(what.to_owned(), tensor)),
            _ => out[call].1.push(tensor),
        }
    }
    out
}

fn bundle(case: &str, dir: &Path, bits: Option<u32>) -> Arc<Bundle> {
    let options = TranspileOptions {
        task: Task::Function,
        bits,
        ..TranspileOptions::default()
    };
    let path = dir.join(format!("{case}-{bits:?}"));
    let source = folder().join(format!("{case}.pt2"));
    transpile(&source, &path, &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{case}: {e}"));
    Arc::new(Bundle::open(&path).unwrap())
}

/// The numbers of a tensor; integers of the fixtures are small enough to be floats.
fn floats(t: &Tensor) -> Vec<f32> {
    match t.data() {
        Data::F32(v) => v.clone(),
        Data::I64(v) => v.iter().map(|&n| n as f32).collect(),
        other => panic!("{other:?}"),
    }
}

/// The largest difference in proportion to the largest value.
fn difference(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    let scale = want.iter().fold(1e-3f32, |m, v| m.max(v.abs()));
    got.iter().zip(want).fold(0.0, |m, (a, b)| m.max((a - b).abs() / scale))
}

#[test]
fn function_computes_what_torch_computed_with_equal_bits_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    for case in cases() {
        let bundle = bundle(&case, dir.path(), None);
        bundle.verify(2, &|_| {}).whole().unwrap();
        let calls = calls(&case);
        let mut bits: Option<Vec<Vec<u32>>> = None;
        for kernels in Kernels::available() {
            let function =
                Function::new(Arc::clone(&bundle), "model", Some(kernels)).unwrap_or_else(|e| panic!("{case}: {e}"));
            for threads in [1, 2] {
                let pool = Pool::new(threads);
                let mut now = Vec::new();
                // Twice, so that memory of the other sizes has been in use.
                for (i, (inputs, want)) in calls.iter().chain(&calls).enumerate() {
                    let got = function
                        .run(&pool, threads, inputs)
                        .unwrap_or_else(|e| panic!("{case}, call {i}: {e}"));
                    assert_eq!(got.len(), want.len());
                    for (o, ((name, got), want)) in got.iter().zip(want).enumerate() {
                        assert_eq!(*name, format!("output_{o}"));
                        assert_eq!(got.shape(), want.shape(), "{case}");
                        let d = difference(&floats(got), &floats(want));
                        assert!(d < 1e-4, "{case} on {}, call {i}, output {o}: {d:e}", kernels.tier());
                        now.push(floats(got).iter().map(|v| v.to_bits()).collect());
                    }
                }
                assert_eq!(
                    bits.get_or_insert_with(|| now.clone()),
                    &now,
                    "{case} on {}",
                    kernels.tier()
                );
            }
        }
    }
}

#[test]
fn quantized_function_stays_near() {
    let dir = tempfile::tempdir().unwrap();
    for (case, bits, most) in [
        ("minilm", 8, 0.05),
        ("minilm", 16, 0.003),
        ("cnn", 8, 0.01),
        ("vit", 8, 0.05),
    ] {
        let function = Function::new(bundle(case, dir.path(), Some(bits)), "model", None).unwrap();
        let (pool, calls) = (Pool::new(2), calls(case));
        for (inputs, want) in &calls {
            let got = function.run(&pool, 2, inputs).unwrap();
            let d = difference(&floats(&got[0].1), &floats(&want[0]));
            assert!(d < most && d > 0.0, "{case} at {bits} bits: {d:e}");
        }
    }
}

#[test]
fn inputs_that_do_not_fit_are_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let function = Function::new(bundle("minilm", dir.path(), None), "model", None).unwrap();
    let pool = Pool::new(1);
    let ids = |n: usize| Tensor::from_i64([1, n], vec![5; n]).unwrap();
    let named = |all: &[(&str, Tensor)]| -> Inputs { all.iter().map(|(n, t)| ((*n).to_owned(), t.clone())).collect() };
    let mask = ("attention_mask", ids(7));
    let cases = [
        (named(&[]), "input `input_ids` is missing"),
        (
            named(&[("input_ids", ids(7)), mask.clone(), ("x", ids(1))]),
            "no input `x`",
        ),
        (
            named(&[
                ("input_ids", Tensor::from_f32([1, 7], vec![0.0; 7]).unwrap()),
                mask.clone(),
            ]),
            "found f32[1, 7]",
        ),
        (
            named(&[("input_ids", ids(8)), mask.clone()]),
            "axis 1 has 7 elements, not 8",
        ),
        (
            named(&[("input_ids", ids(1)), ("attention_mask", ids(1))]),
            "seq is at least 2, here seq = 1",
        ),
        (
            named(&[("input_ids", ids(65)), ("attention_mask", ids(65))]),
            "here seq = 65",
        ),
        (
            named(&[("input_ids", Tensor::from_i64([1, 7], vec![96; 7]).unwrap()), mask]),
            "index 96 is out of range for an axis with 96 elements",
        ),
    ];
    for (inputs, want) in cases {
        let e = function.run(&pool, 1, &inputs).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Argument);
        assert!(e.to_string().contains(want), "{e}");
    }
}

#[test]
fn causal_model_runs_call_by_call_in_the_runtime() {
    let dir = tempfile::tempdir().unwrap();
    for case in ["gpt", "smollm2", "llama_eager", "qwen3", "gemma3", "gemma4", "lfm2"] {
        let path = dir.path().join(case);
        let source = folder().join(format!("{case}.pt2"));
        transpile(&source, &path, &TranspileOptions::default(), &mut |_, _| {}).unwrap();
        let bundle = Arc::new(Bundle::open(&path).unwrap());
        assert_eq!(bundle.manifest().task, "causal_lm_logits");
        let options = Options {
            kv_dtype: KvDType::F16,
            ..Options::default()
        };
        let program = Arc::new(Program::new(bundle, "decoder", &options).unwrap_or_else(|e| panic!("{case}: {e}")));
        let (inputs, want) = calls(case).remove(1);
        let ids: Vec<u32> = inputs["input_ids"]
            .as_i64()
            .unwrap()
            .iter()
            .map(|&i| i as u32)
            .collect();
        let vocab = want[0].shape()[2];
        let pool = Pool::new(1);
        let mut execution = Execution::new(Arc::clone(&program)).unwrap();
        for (i, id) in ids.iter().enumerate() {
            execution.run(&pool, 1, &[*id], Head::Last).unwrap();
            let d = difference(&execution.logits(), &floats(&want[0])[i * vocab..(i + 1) * vocab]);
            assert!(d < 5e-3, "{case} at {i}: {d:e}");
        }
    }
}
