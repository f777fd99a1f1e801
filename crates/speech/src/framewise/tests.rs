//! Tokens of tiny models of random weights, beside those of transformers (`golden/parakeet_models.py`).

use super::*;
use crate::Transcriber;
use crate::decoder::Decoder;
use cactus_audio::Samples;
use cactus_import::{ConvertOptions, convert};
use cactus_passes::{Bits, Policy};
use safetensors::SafeTensors;
use serde_json::Value;
use std::path::Path;

fn golden(name: &str) -> (Transcriber, Vec<f32>, Value) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/speech")
        .join(name);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m");
    let options = ConvertOptions {
        policy: Policy::uniform(Bits::ThirtyTwo),
        ..ConvertOptions::default()
    };
    convert(&source, &path, &options, &mut |_, _| {}).unwrap();
    let expected = std::fs::read(source.join("expected.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&expected).unwrap();
    let bytes = tensors.tensor("sound").unwrap().data().to_vec();
    let sound = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
    let said = serde_json::from_slice(&std::fs::read(source.join("expected.json")).unwrap()).unwrap();
    (Transcriber::load(&path, Some(2)).unwrap(), sound.collect(), said)
}

fn hear(model: &mut Transcriber, samples: &[f32]) {
    let (mut sound, cancel) = (Samples::new(samples), CancelToken::new());
    let mut heard = model.ear.hear(&mut sound, &cancel).unwrap();
    let frames = heard.advance(0, usize::MAX).unwrap();
    let input = heard.input(0..frames).unwrap();
    model.listen(input, false).unwrap();
}

fn framewise(model: &mut Transcriber) -> &mut Framewise {
    match &mut model.decoder {
        Decoder::Framewise(framewise) => framewise,
        other => panic!("{other:?}"),
    }
}

fn none() -> Wishes {
    Wishes {
        hotwords: Hotwords::new(&[], &|_| None).unwrap(),
        lock: Lock::default(),
    }
}

fn found(model: &mut Transcriber, beams: usize, behind: &Behind) -> Vec<Token> {
    framewise(model)
        .tokens(beams, &none(), behind, &CancelToken::new())
        .unwrap()
}

#[test]
fn tokens_and_their_places_are_those_of_transformers() {
    for name in ["parakeet_ctc", "parakeet_tdt", "parakeet_rnnt"] {
        let (mut model, sound, said) = golden(name);
        for beginning in said["beginnings"].as_array().unwrap() {
            let samples = beginning["samples"].as_u64().unwrap() as usize;
            hear(&mut model, &sound[..samples]);
            let found = found(&mut model, 1, &Behind::default());
            let number = |value: &Value| value.as_u64().map(|n| n as usize);
            let expected = beginning["tokens"].as_array().unwrap();
            let expected: Vec<_> = expected
                .iter()
                .map(|t| (number(&t["token"]), number(&t["position"]), number(&t["duration"])))
                .collect();
            let places: Vec<_> = found
                .iter()
                .zip(&expected)
                .map(|(t, (.., duration))| (Some(t.id as usize), Some(t.start), duration.map(|_| t.end - t.start)))
                .collect();
            assert_eq!(
                (places, found.len()),
                (expected.clone(), expected.len()),
                "{name}, {samples} samples"
            );
            let ids: Vec<u32> = found.iter().map(|t| t.id).collect();
            let text = beginning["text"].as_str().unwrap();
            assert_eq!(model.tokenizer.decode(&ids, true), text, "{name}, {samples} samples");
        }
    }
}

#[test]
fn decoding_goes_on_behind_every_token() {
    for name in ["parakeet_ctc", "parakeet_tdt", "parakeet_rnnt"] {
        let (mut model, sound, _) = golden(name);
        hear(&mut model, &sound);
        let mut behind = Behind::default();
        let all = found(&mut model, 1, &behind);
        assert!(all.len() > 10, "{name}: {all:?}");
        for kept in 0..all.len() {
            assert_eq!(found(&mut model, 1, &behind), all[kept..], "{name} behind {kept}");
            let next = &all[kept..=kept];
            framewise(&mut model).keep(next, &none(), &mut behind).unwrap();
        }
    }
}

#[test]
fn more_beams_find_texts_that_are_as_likely() {
    for name in ["parakeet_ctc", "parakeet_tdt", "parakeet_rnnt"] {
        let (mut model, sound, _) = golden(name);
        hear(&mut model, &sound);
        for beams in [2, 8] {
            let found = found(&mut model, beams, &Behind::default());
            assert!(found.windows(2).all(|w| w[0].start <= w[1].start), "{name}: {found:?}");
            assert!(
                found.iter().all(|t| t.start <= t.end && t.logprob <= 0.0),
                "{name}: {found:?}"
            );
            // The same again.
            assert_eq!(self::found(&mut model, beams, &Behind::default()), found, "{name}");
        }
    }
}
