//! Bundles of models that hear, converted natively, against what Hugging Face transformers computed (see
//! `golden/README.md`): states of the encoder, logits, greedy tokens; and the same bits however they are computed.

use cactus_base::Pool;
use cactus_bundle::{Bundle, Decoding, FrontEnd, Prompted};
use cactus_import::{ConvertOptions, convert};
use cactus_kernels::Kernels;
use cactus_passes::{Bits, Policy};
use cactus_runtime::{Batch, Capacity, Execution, Function, Head, KvDType, Logits, Options, Part, Program, Wanted};
use cactus_tensor::{DType, Tensor};
use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Each with the input of its encoder.
const CASES: [(&str, &str); 6] = [
    ("whisper", "input_features"),
    ("whisper_en", "input_features"),
    ("moonshine", "input_values"),
    ("moonshine_wide", "input_values"),
    ("moonshine_streaming", "input_values"),
    ("moonshine_streaming_wide", "input_values"),
];

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

    fn ids(&self, pointer: &str) -> Vec<u32> {
        let ids = self.said.pointer(pointer).unwrap().as_array().unwrap();
        ids.iter().map(|v| v.as_u64().unwrap() as u32).collect()
    }

    fn inputs(&self, name: &str) -> BTreeMap<String, Tensor> {
        BTreeMap::from([(name.to_owned(), self.tensors[name].clone())])
    }
}

fn assert_near(what: &str, got: &[f32], want: &Tensor, tolerance: f32) {
    let want = want.as_f32().unwrap();
    let largest = want.iter().fold(0.0f32, |m, w| m.max(w.abs()));
    let worst = got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max);
    assert!(
        got.len() == want.len() && worst <= tolerance * largest,
        "{what} differ by {worst} of {largest}"
    );
}

fn execution(bundle: &Arc<Bundle>, kv_dtype: KvDType, kernels: Option<&'static Kernels>) -> Execution {
    let options = Options {
        context_tokens: 64,
        chunk_tokens: 64,
        rows_together: 0,
        kv_dtype,
        kernels,
    };
    Execution::new(Arc::new(Program::new(Arc::clone(bundle), "decoder", &options).unwrap())).unwrap()
}

/// Logits of `ids`, computed in pieces.
fn logits(run: &mut Execution, pool: &Pool, width: usize, ids: &[u32], pieces: &[usize]) -> Vec<f32> {
    let (mut found, mut rest) = (Vec::new(), ids);
    for &n in pieces {
        let (now, later) = rest.split_at(n.min(rest.len()));
        rest = later;
        if !now.is_empty() {
            let mut each = |_: usize, row: Logits<'_>| found.extend_from_slice(&row);
            run.run(pool, width, now, Head::From(0, &mut each)).unwrap();
        }
    }
    found
}

fn largest(row: &[f32]) -> u32 {
    (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as u32
}

#[test]
fn native_bundle_computes_what_transformers_does() {
    let (folder, pool) = (tempfile::tempdir().unwrap(), Pool::new(1));
    for (case, input) in CASES {
        let (bundle, expected) = (bundle(folder.path(), case, 32), Expected::of(case));
        assert_eq!(bundle.manifest().task, "seq2seq_transcription");
        let encoder = Function::new(Arc::clone(&bundle), "encoder", None).unwrap();
        let states = encoder.run(&pool, 1, &expected.inputs(input)).unwrap();
        let [(name, states)] = &states[..] else {
            panic!("{states:?}")
        };
        assert_eq!(name, "encoder_hidden_states");
        assert_near(case, states.as_f32().unwrap(), &expected.tensors[name], 1e-4);

        // As the function of a whole sequence, in single precision throughout.
        let ids = expected.ids("/decoder_input_ids");
        let mut inputs = BTreeMap::from([(name.clone(), states.clone())]);
        let wide = ids.iter().map(|&t| i64::from(t)).collect();
        inputs.insert(
            "decoder_input_ids".to_owned(),
            Tensor::from_i64([1, ids.len()], wide).unwrap(),
        );
        let decoder = Function::new(Arc::clone(&bundle), "decoder", None).unwrap();
        let whole = decoder.run(&pool, 1, &inputs).unwrap();
        assert_near(case, whole[0].1.as_f32().unwrap(), &expected.tensors["logits"], 1e-4);

        // Continued call by call, with keys and values in half precision.
        let mut run = execution(&bundle, KvDType::F16, None);
        run.give(&pool, 1, &BTreeMap::from([(name.clone(), states.clone())]))
            .unwrap();
        let found = logits(&mut run, &pool, 1, &ids, &[5, 1, ids.len()]);
        assert_near(case, &found, &expected.tensors["logits"], 2e-3);
        run.clear();
        let (mut ids, want) = (expected.ids("/greedy/prompt_ids"), expected.ids("/greedy/tokens"));
        let mut found = Vec::new();
        while found.len() < want.len() {
            run.run(&pool, 1, &ids, Head::Last).unwrap();
            ids = vec![largest(&run.logits())];
            found.extend_from_slice(&ids);
        }
        assert_eq!(found, want, "{case}");
    }
}

#[test]
fn native_bundle_computes_the_same_bits_in_pieces_on_threads_and_tiers() {
    let folder = tempfile::tempdir().unwrap();
    for (case, input) in CASES {
        let (bundle, expected) = (bundle(folder.path(), case, 8), Expected::of(case));
        let ids = expected.ids("/greedy/tokens");
        let mut first = None;
        for kernels in Kernels::available() {
            let encoder = Function::new(Arc::clone(&bundle), "encoder", Some(kernels)).unwrap();
            for (threads, pieces) in [(1, vec![ids.len()]), (3, vec![5, 1, 9, ids.len()])] {
                let pool = Pool::new(threads);
                let states = encoder.run(&pool, threads, &expected.inputs(input)).unwrap();
                let mut run = execution(&bundle, KvDType::I8G32, Some(kernels));
                run.give(&pool, threads, &states.iter().cloned().collect()).unwrap();
                let found = logits(&mut run, &pool, threads, &ids, &pieces);
                let found = [states[0].1.as_f32().unwrap(), &found].concat();
                let bits: Vec<u32> = found.iter().map(|v| v.to_bits()).collect();
                let want = first.get_or_insert_with(|| bits.clone());
                assert!(
                    bits == *want,
                    "{case}: {}, {threads} threads, {pieces:?}",
                    kernels.tier()
                );
            }
        }
    }
}

#[test]
fn speech_record_says_how_to_transcribe() {
    let folder = tempfile::tempdir().unwrap();
    let decoding = |case: &str| {
        let speech = bundle(folder.path(), case, 8).speech().unwrap().unwrap();
        let window = speech.window.unwrap();
        assert_eq!((window.samples, window.frames, window.positions), (16_000, 100, 50));
        let Decoding::Prompted(p) = speech.decoding else {
            panic!()
        };
        p
    };
    let p = decoding("whisper");
    let one = [p.previous, p.no_speech, p.no_timestamps, p.transcribe, p.translate];
    assert_eq!((p.start, p.end, one), (321, 320, [328, 329, 330, 326, 325].map(Some)));
    let languages: Vec<(&str, u32)> = p.languages.iter().map(|(code, &id)| (code.as_str(), id)).collect();
    assert_eq!(languages, [("de", 324), ("en", 322), ("zh", 323)]);
    assert_eq!(p.timestamps.map(|t| (t.first, t.count, t.step_ms)), Some((331, 61, 20)));
    assert_eq!(p.suppressed, [1, 2, 7, 321, 328]);
    assert_eq!(p.suppressed_first, [220, 320]);
    assert_eq!(p.alignment_heads, [[1, 0], [1, 1]]);
    // Of one language: no task and no language, though the vocabulary has their tokens.
    let p = decoding("whisper_en");
    let Prompted {
        languages,
        transcribe,
        translate,
        no_speech,
        ..
    } = p;
    assert!(languages.is_empty() && transcribe.is_none() && translate.is_none());
    assert_eq!(no_speech, Some(329));
}

#[test]
fn speech_record_of_samples_says_how_many() {
    let folder = tempfile::tempdir().unwrap();
    for (name, numbers) in [
        ("moonshine", (16_000, 895, 480_000, Some(384))),
        ("moonshine_streaming", (16_000, 80, 20_480, Some(320))),
        ("moonshine_streaming_wide", (8_000, 48, 12_288, Some(192))),
    ] {
        let speech = bundle(folder.path(), name, 8).speech().unwrap().unwrap();
        let FrontEnd::Samples(samples) = speech.front_end else {
            panic!("{speech:?}")
        };
        let found = (
            samples.sample_rate_hz,
            samples.least_samples,
            samples.most_samples,
            samples.position_samples,
        );
        assert_eq!(found, numbers, "{name}");
        let want = Prompted {
            start: 1,
            end: 2,
            tokens_per_second: Some(6.5),
            ..Prompted::default()
        };
        assert_eq!((speech.window, speech.decoding), (None, Decoding::Prompted(want)));
    }
}

/// What is heard for long is given in pieces; the function of a whole sequence takes it at once.
#[test]
fn keys_and_values_of_a_long_sound_are_those_of_all_its_positions() {
    let (folder, pool) = (tempfile::tempdir().unwrap(), Pool::new(1));
    let (bundle, expected) = (bundle(folder.path(), "whisper", 32), Expected::of("whisper"));
    let decoder = Function::new(Arc::clone(&bundle), "decoder", None).unwrap();
    let ids = expected.ids("/decoder_input_ids");
    let wide: Vec<i64> = ids.iter().map(|&t| i64::from(t)).collect();
    let heard = expected.tensors["encoder_hidden_states"].as_f32().unwrap();
    let row = heard.len() / 50;
    for positions in [255, 256, 257, 613, 1500] {
        let long: Vec<f32> = (0..positions * row)
            .map(|i| heard[i % heard.len()] * (1.0 + (i / heard.len()) as f32 * 0.03))
            .collect();
        let states = Tensor::from_f32([1, positions, row], long).unwrap();
        let mut inputs = BTreeMap::from([("encoder_hidden_states".to_owned(), states)]);
        let mut run = execution(&bundle, KvDType::F16, None);
        run.give(&pool, 1, &inputs).unwrap();
        let found = logits(&mut run, &pool, 1, &ids, &[ids.len()]);
        let tokens = Tensor::from_i64([1, ids.len()], wide.clone()).unwrap();
        inputs.insert("decoder_input_ids".to_owned(), tokens);
        let whole = decoder.run(&pool, 1, &inputs).unwrap();
        assert_near(&format!("{positions}"), &found, &whole[0].1, 2e-3);
    }
}

/// Hypotheses about one sound: what was computed of it is shared, and each has the bits that it has alone.
#[test]
fn sequences_that_share_a_sound_compute_the_bits_of_each_alone() {
    let (folder, pool) = (tempfile::tempdir().unwrap(), Pool::new(1));
    let (bundle, expected) = (bundle(folder.path(), "whisper", 8), Expected::of("whisper"));
    let encoder = Function::new(Arc::clone(&bundle), "encoder", None).unwrap();
    let states = encoder.run(&pool, 1, &expected.inputs("input_features")).unwrap();
    let states: BTreeMap<String, Tensor> = states.into_iter().collect();
    let all = [expected.ids("/greedy/tokens"), expected.ids("/decoder_input_ids")].map(|ids| ids[..9].to_vec());
    let alone = all.clone().map(|ids| {
        let mut run = execution(&bundle, KvDType::I8G32, None);
        run.give(&pool, 1, &states).unwrap();
        logits(&mut run, &pool, 1, &ids, &[ids.len()])
    });

    let program = Arc::clone(execution(&bundle, KvDType::I8G32, None).program());
    let capacity = Capacity {
        sequences: 2,
        tokens: 128,
        snapshots: 0,
    };
    let mut batch = Batch::new(program, capacity).unwrap();
    let [first, second] = [batch.open().unwrap(), batch.open().unwrap()];
    let nothing = batch.share_given(first, second).unwrap_err().to_string();
    assert!(nothing.contains("no inputs beside token ids"), "{nothing}");
    batch.give(first, &pool, 1, &states).unwrap();
    batch.share_given(first, second).unwrap();
    let mut found = [Vec::new(), Vec::new()];
    for i in 0..9 {
        let parts = [(first, 0), (second, 1)].map(|(sequence, of)| Part {
            sequence,
            ids: &all[of][i..=i],
            wanted: Wanted::Last,
            media: &[],
        });
        batch.run(&pool, 1, &parts, None).unwrap();
        for (row, found) in found.iter_mut().enumerate() {
            found.extend_from_slice(&batch.logits(row));
        }
        // Who shared it may end: the other goes on with it.
        if i == 8 {
            batch.close(first);
        }
    }
    for (found, alone) in found.iter().zip(&alone) {
        assert!(found.iter().map(|v| v.to_bits()).eq(alone.iter().map(|v| v.to_bits())));
    }
    let next = Part {
        sequence: second,
        ids: &[7],
        wanted: Wanted::Last,
        media: &[],
    };
    batch.run(&pool, 1, &[next], None).unwrap();
}
