//! A model that finds speech, as a bundle: what the reference computes, and the same bits on every tier, for any number of
//! threads, and whether chunks come one by one or together.

use cactus_base::Pool;
use cactus_bundle::{Bundle, Chunks, Decoding, FrontEnd};
use cactus_import::{ConvertOptions, convert};
use cactus_kernels::Kernels;
use cactus_passes::{Bits, Policy};
use cactus_runtime::Function;
use cactus_tensor::{DType, Tensor};
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CHUNK: usize = 64;
const CONTEXT: usize = 8;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/speech/silero_vad")
        .join(name)
}

fn expected(name: &str) -> Tensor {
    let bytes = std::fs::read(golden("expected.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let t = file.tensor(name).unwrap();
    Tensor::from_le_bytes(t.shape(), DType::F32, t.data()).unwrap()
}

/// Chunks of the sound with their contexts.
fn chunks() -> Vec<Vec<f32>> {
    let mut sound = vec![0.0; CONTEXT];
    sound.extend_from_slice(expected("sound").as_f32().unwrap());
    let count = (sound.len() - CONTEXT).div_ceil(CHUNK);
    sound.resize(CONTEXT + count * CHUNK, 0.0);
    (0..count)
        .map(|i| sound[i * CHUNK..][..CONTEXT + CHUNK].to_vec())
        .collect()
}

/// Probabilities and the last state, of so many chunks at once.
fn heard(detector: &Function, pool: &Pool, threads: usize, at_once: usize) -> (Vec<f32>, Tensor) {
    let mut state = Tensor::from_f32([2, 1, 20], vec![0.0; 40]).unwrap();
    let mut found = Vec::new();
    for part in chunks().chunks(at_once) {
        let samples = Tensor::from_f32([part.len(), CONTEXT + CHUNK], part.concat()).unwrap();
        let inputs = BTreeMap::from([("samples".to_owned(), samples), ("state".to_owned(), state)]);
        let outputs: BTreeMap<String, Tensor> = detector.run(pool, threads, &inputs).unwrap().into_iter().collect();
        found.extend_from_slice(outputs["probabilities"].as_f32().unwrap());
        state = outputs["next_state"].clone();
    }
    (found, state)
}

fn bundle(folder: &Path, bits: Bits) -> (Arc<Bundle>, Vec<String>) {
    let path = folder.join(format!("{bits:?}"));
    let options = ConvertOptions {
        policy: Policy::uniform(bits),
        ..ConvertOptions::default()
    };
    let outcome = convert(&golden("silero_vad_16k.safetensors"), &path, &options, &mut |_, _| {}).unwrap();
    (Arc::new(Bundle::open(&path).unwrap()), outcome.notes)
}

#[test]
fn native_bundle_computes_what_the_reference_does_whatever_bits_are_asked_for() {
    let (folder, pool) = (tempfile::tempdir().unwrap(), Pool::new(1));
    for (bits, notes) in [(Bits::ThirtyTwo, 0), (Bits::Eight, 1), (Bits::Four, 1)] {
        let (bundle, said) = bundle(folder.path(), bits);
        assert_eq!(said.len(), notes, "{said:?}");
        assert!(said.iter().all(|note| note.contains("32 bits")), "{said:?}");
        let detector = Function::new(Arc::clone(&bundle), "detector", None).unwrap();
        let (found, state) = heard(&detector, &pool, 1, 7);
        for (found, name) in [(&found[..], "probabilities"), (state.as_f32().unwrap(), "state")] {
            let want = expected(name);
            let want = want.as_f32().unwrap();
            let worst = found.iter().zip(want).map(|(f, w)| (f - w).abs()).fold(0.0, f32::max);
            assert!(found.len() == want.len() && worst < 1e-5, "{name}: {worst}");
        }
        let manifest = bundle.manifest();
        assert_eq!((&*manifest.task, &*manifest.family), ("voice_activity", "silero_vad"));
        let speech = bundle.speech().unwrap().unwrap();
        let chunks = Chunks {
            sample_rate_hz: 2000,
            chunk_samples: CHUNK as u32,
            context_samples: CONTEXT as u32,
        };
        assert_eq!(
            (speech.front_end, speech.decoding),
            (FrontEnd::Chunks(chunks), Decoding::Activity {})
        );
    }
}

#[test]
fn native_bundle_computes_the_same_bits_on_tiers_and_threads_and_for_chunks_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let (bundle, _) = bundle(folder.path(), Bits::ThirtyTwo);
    let mut first = None;
    for kernels in Kernels::available() {
        let detector = Function::new(Arc::clone(&bundle), "detector", Some(kernels)).unwrap();
        for (threads, at_once) in [(1, 1), (1, 40), (3, 1), (3, 9)] {
            let (found, state) = heard(&detector, &Pool::new(threads), threads, at_once);
            let bits = [&found, state.as_f32().unwrap()].concat();
            let bits: Vec<u32> = bits.iter().map(|v| v.to_bits()).collect();
            let want = first.get_or_insert_with(|| bits.clone());
            assert!(bits == *want, "{}: {threads} threads, {at_once} chunks", kernels.tier());
        }
    }
}
