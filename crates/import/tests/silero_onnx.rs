//! Silero VAD as programs in ONNX (`golden/silero_onnx.py`): the same weights in two forms, and what is refused.

use cactus_import::silero::{OnnxSource, read_onnx};
use cactus_import::{ConvertOptions, Result, TensorSource, convert, open};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(path)
}

fn programs() -> [(PathBuf, Vec<u8>); 2] {
    let folder = golden("onnx/silero_vad");
    ["branches.onnx", "products.onnx"].map(|name| (folder.join(name), fs::read(folder.join(name)).unwrap()))
}

fn network(bytes: Vec<u8>, rate_hz: Option<u32>) -> Result<(Value, OnnxSource)> {
    read_onnx(Path::new("m.onnx"), Arc::new(bytes), rate_hz)
}

#[test]
fn programs_have_the_same_weights_however_they_are_written() {
    let [(path, branches), (_, products)] = programs();
    assert_eq!(open(&path).unwrap().format, "onnx");
    for (rate_hz, fft) in [(Some(2000), 32), (Some(1000), 16), (None, 32)] {
        let (config, one) = network(branches.clone(), rate_hz).unwrap();
        let (same, other) = network(products.clone(), rate_hz).unwrap();
        let want = json!({"model_type": "silero_vad", "fft_samples": fft, "widths": [8, 6, 6, 8], "hidden_size": 8});
        assert_eq!((&config, &same), (&want, &want));
        assert_eq!((one.names().len(), one.names()), (15, other.names()));
        for name in one.names() {
            let [one, other] = [&one, &other].map(|source| source.read(name).unwrap());
            assert_eq!(one.shape(), other.shape(), "{name}");
            assert_eq!(one.as_f32().unwrap(), other.as_f32().unwrap(), "{name}");
        }
    }
}

#[test]
fn programs_that_compute_something_else_are_refused() {
    let [(_, branches), (_, products)] = programs();
    // The same number of bytes, so that the rest of the file is as it was.
    let with = |bytes: &[u8], old: &[u8], new: &[u8]| {
        assert_eq!(old.len(), new.len());
        let mut changed = bytes.to_vec();
        let places: Vec<usize> = (0..bytes.len() - old.len())
            .filter(|&at| bytes[at..].starts_with(old))
            .collect();
        assert!(!places.is_empty(), "{old:?}");
        places
            .iter()
            .for_each(|&at| changed[at..at + new.len()].copy_from_slice(new));
        changed
    };
    let refused = |bytes: Vec<u8>, rate_hz| network(bytes, rate_hz).unwrap_err().to_string();
    for (bytes, says) in [
        (with(&branches, b"LSTM", b"Copy"), "and not `Gemm`"),
        (with(&branches, b"Slice", b"Erase"), "and not `Gemm`"),
        (with(&products, b"Gemm", b"Copy"), "and not `Gemm`"),
        (with(&products, b"Tanh", b"Relu"), "functions of the gates"),
        (with(&products, b"transB", b"transA"), "transposed"),
        (with(&branches, b"strides", b"Strides"), "the step 16"),
        (with(&branches, b"pads", b"Pads"), "1 zeros"),
        (with(&branches, b"Conv", b"Copy"), "has none"),
    ] {
        let error = refused(bytes, None);
        assert!(error.contains("Silero VAD") && error.contains(says), "{says}: {error}");
    }
    let error = refused(branches, Some(8000));
    assert!(error.contains("for 8000") && error.contains("1000 and 2000"), "{error}");
    for bytes in [&b""[..], b"\x08\x08", b"no program"] {
        assert!(refused(bytes.to_vec(), None).starts_with("m.onnx"));
    }
}

#[test]
fn rates_of_choice_are_those_of_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let at = |rate_hz| ConvertOptions {
        sample_rate_hz: Some(rate_hz),
        ..ConvertOptions::default()
    };
    let made = |source: &Path, rate_hz| {
        let to = folder.path().join("m");
        let done = convert(source, &to, &at(rate_hz), &mut |_, _| {});
        let _ = fs::remove_dir_all(to);
        done.map(|_| ()).map_err(|e| e.to_string())
    };
    made(&golden("speech/silero_vad"), 2000).unwrap();
    assert!(
        made(&golden("speech/silero_vad"), 1000)
            .unwrap_err()
            .contains("found one for 2000")
    );
    made(&programs()[0].0, 1000).unwrap();
    let other = golden("speech/whisper");
    assert!(made(&other, 16_000).unwrap_err().contains("no rate of choice"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Bytes changed anywhere: refused, or a model whose weights can all be read.
    #[test]
    fn changed_programs_are_refused_or_read(
        which in 0usize..2, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), end in any::<prop::sample::Index>(), cut in any::<bool>(),
    ) {
        let mut program = programs()[which].1.clone();
        for (at, byte) in changes {
            let at = at.index(program.len());
            program[at] = byte;
        }
        if cut {
            program.truncate(end.index(program.len()));
        }
        for rate_hz in [None, Some(1000)] {
            if let Ok((config, source)) = network(program.clone(), rate_hz) {
                let _ = cactus_models::build(&config);
                for name in source.names() {
                    let shape = source.shape(name).unwrap();
                    let tensor = source.read(name).unwrap();
                    prop_assert_eq!(tensor.shape(), &shape[..]);
                }
            }
        }
    }
}
