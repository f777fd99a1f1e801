//! Whisper tiny.en, as CTranslate2 stores it, against what CTranslate2 computes of the same spectrogram
//! (`golden/real/make_whisper.py`). Needs `whisper-tiny.en` of `scripts/fetch_models.py` where `CACTUS_TEST_MODELS` points to.
#![allow(clippy::print_stderr, reason = "a skipped test must be seen")]

use cactus_base::Pool;
use cactus_bundle::{Bundle, Decoding};
use cactus_import::{ConvertOptions, convert};
use cactus_passes::{Bits, Policy};
use cactus_runtime::{Execution, Function, Head, Options, Program};
use cactus_tensor::{DType, Tensor};
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SENTENCE: &str =
    " And so my fellow Americans ask not what your country can do for you, ask what you can do for your country.";

/// A tensor of the golden file as numbers.
fn golden(name: &str) -> Tensor {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/real/whisper-tiny.en.safetensors");
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let t = file.tensor(name).unwrap();
    let dtype = match t.dtype() {
        Dtype::F16 => DType::F16,
        Dtype::I64 => DType::I64,
        _ => DType::F32,
    };
    Tensor::from_le_bytes(t.shape(), dtype, t.data()).unwrap()
}

/// The whole window: the sound, and silence behind it.
fn spectrogram() -> Tensor {
    let (mel, silence) = (golden("mel"), golden("silence").as_f32().unwrap()[0]);
    let &[mels, frames] = mel.shape() else { panic!() };
    let mut all = vec![silence; mels * 3000];
    for (row, sound) in all.chunks_mut(3000).zip(mel.as_f32().unwrap().chunks(frames)) {
        row[..frames].copy_from_slice(sound);
    }
    Tensor::from_f32([1, mels, 3000], all).unwrap()
}

fn model() -> Option<PathBuf> {
    let folder = std::env::var_os("CACTUS_TEST_MODELS").map(|f| PathBuf::from(f).join("whisper-tiny.en"));
    let found = folder.filter(|f| f.join("model.bin").is_file());
    if found.is_none() {
        eprintln!("SKIPPED: CACTUS_TEST_MODELS has no whisper-tiny.en; scripts/fetch_models.py fetches it");
    }
    found
}

#[test]
fn tiny_en_hears_what_ctranslate2_does() {
    let Some(source) = model() else { return };
    let folder = tempfile::tempdir().unwrap();
    let pool = Pool::new(2);
    let rows = golden("rows").as_i64().unwrap().to_vec();
    let want = golden("states").as_f32().unwrap().to_vec();
    let tokens: Vec<u32> = golden("tokens").as_i64().unwrap().iter().map(|&t| t as u32).collect();
    // The largest difference of any state, relative to the largest state.
    for (bits, tolerance) in [(32, 1e-5), (8, 2e-2)] {
        let path = folder.path().join(bits.to_string());
        let options = ConvertOptions {
            policy: Policy::uniform(Bits::from_number(bits).unwrap()),
            ..ConvertOptions::default()
        };
        let outcome = convert(&source, &path, &options, &mut |_, _| {}).unwrap();
        assert!(outcome.notes.is_empty(), "{:?}", outcome.notes);
        let bundle = Arc::new(Bundle::open(&path).unwrap());
        let encoder = Function::new(Arc::clone(&bundle), "encoder", None).unwrap();
        let inputs = BTreeMap::from([("input_features".to_owned(), spectrogram())]);
        let heard: BTreeMap<String, Tensor> = encoder.run(&pool, 2, &inputs).unwrap().into_iter().collect();
        let states = heard["encoder_hidden_states"].as_f32().unwrap();
        let width = states.len() / 1500;
        let found = rows.iter().flat_map(|&row| &states[row as usize * width..][..width]);
        let largest = want.iter().fold(0f32, |m, v| m.max(v.abs()));
        let worst = found.zip(&want).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
        assert!(worst <= tolerance * largest, "{bits} bits: {worst} of {largest}");

        let speech = bundle.speech().unwrap().unwrap();
        let Decoding::Prompted(p) = speech.decoding else {
            panic!()
        };
        assert!(p.languages.is_empty() && p.alignment_heads.len() == 8 && p.suppressed.len() == 90);
        let program = Program::new(Arc::clone(&bundle), "decoder", &Options::default()).unwrap();
        let mut run = Execution::new(Arc::new(program)).unwrap();
        run.give(&pool, 2, &heard).unwrap();
        let mut next = vec![p.start, p.no_timestamps.unwrap()];
        let mut said = Vec::new();
        while said.last() != Some(&p.end) && said.len() < 64 {
            run.run(&pool, 2, &next, Head::Last).unwrap();
            let logits = run.logits();
            let allowed = |t: &u32| {
                let first = said.is_empty() && p.suppressed_first.contains(t);
                !first && !p.suppressed.contains(t) && p.timestamps.is_none_or(|s| *t < s.first)
            };
            let all = (0..logits.len() as u32).filter(allowed);
            let best = all
                .max_by(|&a, &b| logits[a as usize].total_cmp(&logits[b as usize]))
                .unwrap();
            said.push(best);
            next = vec![best];
        }
        assert_eq!(said, tokens, "{bits} bits");
        let tokenizer = std::fs::read(source.join("tokenizer.json")).unwrap();
        let tokenizer = cactus_text::Tokenizer::from_bytes(&tokenizer).unwrap();
        let text = tokenizer.decode(&said[..said.len() - 1], true);
        assert_eq!(text, SENTENCE);
    }
}
