//! Bundles of Parakeet, converted natively, against what Hugging Face transformers computed (see `golden/README.md`), and the
//! same bits however they are computed.

use cactus_base::Pool;
use cactus_bundle::{Bundle, Ctc, Decoding, FrontEnd, Speech, Transducer, WindowFunction};
use cactus_import::{ConvertOptions, convert};
use cactus_kernels::Kernels;
use cactus_passes::{Bits, Policy};
use cactus_quant::Packing;
use cactus_runtime::Function;
use cactus_tensor::{DType, Tensor};
use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CASES: [&str; 3] = ["parakeet_ctc", "parakeet_rnnt", "parakeet_tdt"];

fn golden(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/speech")
        .join(case)
}

fn bundle(folder: &Path, case: &str, bits: u32) -> Arc<Bundle> {
    let path = folder.join(format!("{case}-{bits}"));
    let options = ConvertOptions {
        policy: Policy::uniform(Bits::from_number(bits).unwrap()),
        ..ConvertOptions::default()
    };
    let outcome = convert(&golden(case), &path, &options, &mut |_, _| {}).unwrap();
    assert!(outcome.notes.is_empty(), "{:?}", outcome.notes);
    Arc::new(Bundle::open(&path).unwrap())
}

struct Expected {
    tensors: BTreeMap<String, Tensor>,
    said: Value,
}

impl Expected {
    fn of(case: &str) -> Expected {
        let bytes = std::fs::read(golden(case).join("expected.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensor = |(name, t): (String, safetensors::tensor::TensorView<'_>)| {
            (name, Tensor::from_le_bytes(t.shape(), DType::F32, t.data()).unwrap())
        };
        Expected {
            tensors: file.tensors().into_iter().map(tensor).collect(),
            said: serde_json::from_slice(&std::fs::read(golden(case).join("expected.json")).unwrap()).unwrap(),
        }
    }

    /// Samples of each beginning of the sound.
    fn beginnings(&self) -> Vec<u64> {
        let all = self.said["beginnings"].as_array().unwrap();
        all.iter().map(|b| b["samples"].as_u64().unwrap()).collect()
    }

    /// The input of the encoder.
    fn features(&self, samples: u64) -> BTreeMap<String, Tensor> {
        let features = self.tensors[&format!("features.{samples}")].clone();
        let shape = [&[1], features.shape()].concat();
        BTreeMap::from([("features".to_owned(), features.reshaped(shape).unwrap())])
    }
}

fn assert_near(what: &str, got: &Tensor, want: &Tensor) {
    let (got, want) = (got.as_f32().unwrap(), want.as_f32().unwrap());
    let largest = want.iter().fold(0.0f32, |m, w| m.max(w.abs()));
    let worst = got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max);
    assert!(
        got.len() == want.len() && worst <= 1e-4 * largest,
        "{what} differ by {worst} of {largest}"
    );
}

fn function(bundle: &Arc<Bundle>, component: &str, kernels: Option<&'static Kernels>) -> Function {
    Function::new(Arc::clone(bundle), component, kernels).unwrap()
}

/// One call of the predictor or of the joint.
fn call<const N: usize>(f: &Function, pool: &Pool, inputs: [(&str, Tensor); N]) -> BTreeMap<String, Tensor> {
    let inputs = inputs.map(|(name, t)| (name.to_owned(), t)).into();
    f.run(pool, 1, &inputs).unwrap().into_iter().collect()
}

#[test]
fn native_bundle_computes_what_transformers_does() {
    let (folder, pool) = (tempfile::tempdir().unwrap(), Pool::new(1));
    for case in CASES {
        let (bundle, expected) = (bundle(folder.path(), case, 32), Expected::of(case));
        let encoder = function(&bundle, "encoder", None);
        for samples in expected.beginnings() {
            let [(_, states)] = &encoder.run(&pool, 1, &expected.features(samples)).unwrap()[..] else {
                panic!("{case}")
            };
            let want = &expected.tensors[&format!("states.{samples}")];
            assert_eq!(states.shape()[1..], *want.shape(), "{case}");
            assert_near(&format!("{case}: {samples}"), states, want);
        }
        let Some(next_state) = expected.tensors.get("next_state") else {
            continue;
        };
        let predictor = function(&bundle, "predictor", None);
        let shape = next_state.shape().to_vec();
        let zeros = vec![0.0; shape.iter().product()];
        let mut state = Tensor::from_f32(shape, zeros).unwrap();
        let mut predictions = Vec::new();
        for token in expected.said["predictor_tokens"].as_array().unwrap() {
            let token = Tensor::from_i64([1], vec![token.as_i64().unwrap()]).unwrap();
            let mut made = call(&predictor, &pool, [("token", token), ("state", state)]);
            predictions.push(made.remove("prediction").unwrap());
            state = made.remove("next_state").unwrap();
        }
        let all: Vec<f32> = predictions.iter().flat_map(|p| p.as_f32().unwrap().to_vec()).collect();
        let want = &expected.tensors["predictions"];
        assert_near(case, &Tensor::from_f32(want.shape().to_vec(), all).unwrap(), want);
        assert_near(case, &state, next_state);
        let states = expected.tensors[&format!("states.{}", expected.beginnings()[0])].clone();
        let last = predictions.pop().unwrap();
        let made = call(
            &function(&bundle, "joint", None),
            &pool,
            [("states", states), ("prediction", last)],
        );
        assert_near(case, &made["logits"], &expected.tensors["joint_logits"]);
    }
}

#[test]
fn native_bundle_computes_the_same_bits_on_threads_and_tiers() {
    let folder = tempfile::tempdir().unwrap();
    for case in CASES {
        for bits in [8, 4] {
            let (bundle, expected) = (bundle(folder.path(), case, bits), Expected::of(case));
            let mut first = None;
            for kernels in Kernels::available() {
                let encoder = function(&bundle, "encoder", Some(kernels));
                for threads in [1, 3] {
                    let pool = Pool::new(threads);
                    let mut found = Vec::new();
                    for samples in expected.beginnings() {
                        let made = encoder.run(&pool, threads, &expected.features(samples)).unwrap();
                        found.extend(made[0].1.as_f32().unwrap().iter().map(|v| v.to_bits()));
                    }
                    let want = first.get_or_insert_with(|| found.clone());
                    assert!(found == *want, "{case}: {}, {threads} threads", kernels.tier());
                }
            }
        }
    }
}

/// Rows of the joint are independent: as many as there are can be asked at once, or one after the other.
#[test]
fn rows_of_the_joint_have_the_bits_that_each_has_alone() {
    let (folder, pool) = (tempfile::tempdir().unwrap(), Pool::new(1));
    let (bundle, expected) = (bundle(folder.path(), "parakeet_tdt", 8), Expected::of("parakeet_tdt"));
    let joint = function(&bundle, "joint", None);
    let states = &expected.tensors[&format!("states.{}", expected.beginnings()[0])];
    let width = states.shape()[1];
    let prediction = expected.tensors["predictions"].as_f32().unwrap()[..width].to_vec();
    let asked = |rows: &[f32]| {
        let states = Tensor::from_f32([rows.len() / width, width], rows.to_vec()).unwrap();
        let prediction = Tensor::from_f32([1, width], prediction.clone()).unwrap();
        let made = call(&joint, &pool, [("states", states), ("prediction", prediction)]);
        let logits = made["logits"].as_f32().unwrap();
        logits.iter().map(|v| v.to_bits()).collect::<Vec<u32>>()
    };
    let states = states.as_f32().unwrap();
    let alone: Vec<u32> = states.chunks(width).flat_map(asked).collect();
    assert!(alone == asked(states));
}

#[test]
fn speech_record_says_how_to_transcribe() {
    let folder = tempfile::tempdir().unwrap();
    let speech = |case: &str| bundle(folder.path(), case, 8).speech().unwrap().unwrap();
    let about = |speech: &Speech| {
        let FrontEnd::LogMel(mel) = &speech.front_end else {
            panic!("{speech:?}")
        };
        assert_eq!(mel.window, WindowFunction::HannSymmetric);
        assert_eq!((mel.window_samples, mel.fft_samples, mel.hop_samples), (400, 512, 160));
        assert_eq!((mel.preemphasis, mel.max_hz, speech.window), (0.97, 8000.0, None));
        let pieces = speech.pieces.unwrap();
        assert_eq!((pieces.least_samples, pieces.most_samples), (320, 480_000));
        mel.mels
    };
    let ctc = speech("parakeet_ctc");
    let want = Ctc {
        blank: 95,
        position_samples: 1280,
    };
    assert_eq!((about(&ctc), ctc.decoding), (80, Decoding::Ctc(want)));
    for (case, mels, durations, position_samples) in [
        ("parakeet_tdt", 128, vec![0, 1, 2, 3, 4], 1280),
        ("parakeet_rnnt", 40, vec![], 640),
    ] {
        let found = speech(case);
        let want = Transducer {
            blank: 95,
            durations,
            most_symbols: 10,
            position_samples,
        };
        assert_eq!((about(&found), found.decoding), (mels, Decoding::Transducer(want)));
    }
}

/// Convolutions of one tap are matrices, as linear layers are; what is read elementwise stays exact.
#[test]
fn matrices_are_quantized_and_taps_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = bundle(folder.path(), "parakeet_ctc", 8);
    let packing = |name: &str| bundle.weight(name).unwrap().packing;
    for name in [
        "encoder.layers.0.conv.pointwise_conv1.weight",
        "encoder.layers.1.feed_forward2.linear2.weight",
        "ctc_head.weight",
    ] {
        assert_eq!(packing(name), Packing::Int8G32, "{name}");
    }
    for name in [
        "encoder.subsampling.layers.0.weight",
        "encoder.layers.0.conv.depthwise_conv.weight",
        "encoder.layers.0.norm_out.weight",
    ] {
        assert_eq!(packing(name), Packing::RowMajor, "{name}");
    }
}

/// What a folder says of its front end is taken, or refused.
#[test]
fn front_end_is_that_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for file in std::fs::read_dir(golden("parakeet_ctc")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), source.join(file.file_name())).unwrap();
    }
    let convert_with = |preprocessor: Value| {
        let text = serde_json::to_vec(&preprocessor).unwrap();
        std::fs::write(source.join("preprocessor_config.json"), text).unwrap();
        let options = ConvertOptions {
            replace: true,
            ..ConvertOptions::default()
        };
        let path = folder.path().join("bundle");
        convert(&source, &path, &options, &mut |_, _| {}).map_err(|e| e.to_string())?;
        let speech = Bundle::open(&path).unwrap().speech().unwrap().unwrap();
        Ok::<Speech, String>(speech)
    };
    let said = serde_json::json!({"hop_length": 80, "win_length": 200, "n_fft": 256, "preemphasis": null,
        "sampling_rate": 8000});
    let speech = convert_with(said).unwrap();
    let FrontEnd::LogMel(mel) = &speech.front_end else {
        panic!("{speech:?}")
    };
    assert_eq!((mel.hop_samples, mel.window_samples, mel.fft_samples), (80, 200, 256));
    assert_eq!((mel.preemphasis, mel.sample_rate_hz, mel.max_hz), (0.0, 8000, 4000.0));
    for (said, expected) in [
        (serde_json::json!({"feature_size": 128}), "128 bands"),
        (serde_json::json!({"hop_length": 0}), "hop_samples"),
        (serde_json::json!({"hop_length": "long"}), "hop_length"),
        (serde_json::json!({"preemphasis": "some"}), "preemphasis"),
        (
            serde_json::json!({"feature_extractor_type": "WhisperFeatureExtractor"}),
            "WhisperFeatureExtractor",
        ),
    ] {
        let error = convert_with(said).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}
