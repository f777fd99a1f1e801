//! Models of texts, as bundles: what several texts give in one call, and the same bits for each of them alone, on every tier and for
//! any number of threads.

use cactus_base::Pool;
use cactus_bundle::Bundle;
use cactus_import::{ConvertOptions, convert};
use cactus_kernels::Kernels;
use cactus_passes::{Bits, Policy};
use cactus_runtime::Function;
use cactus_tensor::Tensor;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/embedding")
        .join(name)
}

fn bundle(folder: &Path, name: &str, bits: Bits) -> Arc<Bundle> {
    let path = folder.join(format!("{name}-{bits:?}"));
    let options = ConvertOptions {
        policy: Policy::uniform(bits),
        ..ConvertOptions::default()
    };
    convert(&golden(name), &path, &options, &mut |_, _| {}).unwrap();
    Arc::new(Bundle::open(&path).unwrap())
}

/// What the only component gives of texts, as bits.
fn run(function: &Function, pool: &Pool, threads: usize, texts: &[Vec<i64>]) -> Vec<u32> {
    let mut starts = Vec::new();
    let mut rows = 0;
    for text in texts {
        starts.push(rows as i64);
        rows += text.len();
    }
    let mut inputs = BTreeMap::from([
        (
            "input_ids".to_owned(),
            Tensor::from_i64([1, rows], texts.concat()).unwrap(),
        ),
        ("starts".to_owned(), Tensor::from_i64([texts.len()], starts).unwrap()),
    ]);
    if function.graph().input("token_types").is_some() {
        let types = (0..rows as i64).map(|i| i % 2).collect();
        inputs.insert("token_types".to_owned(), Tensor::from_i64([1, rows], types).unwrap());
    }
    let outputs = function.run(pool, threads, &inputs).unwrap();
    let values = outputs[0].1.as_f32().unwrap().to_vec();
    assert!(values.iter().all(|v| v.is_finite()));
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn text_has_the_same_bits_alone_and_beside_others_on_every_tier() {
    let folder = tempfile::tempdir().unwrap();
    // Of even lengths, so that the types of a text do not depend on where it stands.
    let texts: Vec<Vec<i64>> = [2usize, 30, 4, 18, 12, 2, 60]
        .into_iter()
        .enumerate()
        .map(|(i, len)| (0..len).map(|t| ((t * 7 + i * 3) % 70) as i64).collect())
        .collect();
    let mut names: Vec<String> = std::fs::read_dir(golden(""))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() >= 5, "{names:?}");
    for (name, bits) in names
        .iter()
        .flat_map(|name| [Bits::ThirtyTwo, Bits::Eight, Bits::Four].map(|bits| (name, bits)))
    {
        let bundle = bundle(folder.path(), name, bits);
        let component = bundle.manifest().components[0].name.clone();
        let limit = bundle.embedding().unwrap().unwrap().limit_tokens as usize;
        let texts: Vec<Vec<i64>> = texts
            .iter()
            .map(|text| text[..text.len().min(limit)].to_vec())
            .collect();
        let mut first: Option<Vec<u32>> = None;
        for kernels in Kernels::available() {
            let function = Function::new(Arc::clone(&bundle), &component, Some(kernels)).unwrap();
            for threads in [1, 3] {
                let pool = Pool::new(threads);
                let together = run(&function, &pool, threads, &texts);
                let want = first.get_or_insert_with(|| together.clone());
                assert!(together == *want, "{name} {bits:?}: {} with {threads}", kernels.tier());
                // A vector of each text, or of each of its tokens.
                let of_tokens = function.graph().outputs()[0].0 == "token_vectors";
                let parts = |text: &Vec<i64>| if of_tokens { text.len() } else { 1 };
                let width = together.len() / texts.iter().map(parts).sum::<usize>();
                let mut rest = &together[..];
                for text in &texts {
                    let (want, others) = rest.split_at(parts(text) * width);
                    rest = others;
                    let alone = run(&function, &pool, threads, std::slice::from_ref(text));
                    assert!(
                        alone == want,
                        "{name} {bits:?}: {} tokens alone, {} with {threads}",
                        text.len(),
                        kernels.tier()
                    );
                }
            }
        }
    }
}

#[test]
fn starts_that_are_no_places_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = bundle(folder.path(), "bert", Bits::ThirtyTwo);
    let function = Function::new(bundle, "embedder", None).unwrap();
    let pool = Pool::new(1);
    for starts in [vec![0, 9], vec![-1, 2], vec![4], vec![1, 3]] {
        let inputs = BTreeMap::from([
            ("input_ids".to_owned(), Tensor::from_i64([1, 4], vec![5; 4]).unwrap()),
            (
                "starts".to_owned(),
                Tensor::from_i64([starts.len()], starts.clone()).unwrap(),
            ),
        ]);
        let found = function.run(&pool, 1, &inputs);
        assert!(found.is_err(), "{starts:?}: {found:?}");
    }
}
