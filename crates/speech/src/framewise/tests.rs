//! Tokens of tiny models of random weights, beside those of transformers (`golden/parakeet_models.py`).

use super::*;
use crate::Transcriber;
use crate::decoder::Decoder;
use crate::heard::Piece;
use cactus_audio::Samples;
use cactus_import::{ConvertOptions, convert};
use cactus_passes::{Bits, Policy};
use safetensors::SafeTensors;
use serde_json::Value;
use std::path::Path;

fn golden(name: &str) -> (Transcriber, Vec<f32>, Value) {
    golden_with(name, None)
}

/// As [`golden`], of a bundle with local attention.
fn golden_with(name: &str, attention_context: Option<usize>) -> (Transcriber, Vec<f32>, Value) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/speech")
        .join(name);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m");
    let options = ConvertOptions {
        policy: Policy::uniform(Bits::ThirtyTwo),
        attention_context,
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
    let frames = heard.frames();
    heard.advance(0, usize::MAX).unwrap();
    let input = heard.input(0, &Piece::alone(frames)).unwrap();
    model.listen(input, false).unwrap();
}

fn framewise(model: &mut Transcriber) -> &mut Framewise {
    match &mut model.decoder {
        Decoder::Framewise(framewise) => framewise,
        other => panic!("{other:?}"),
    }
}

/// One to the end of the sound.
pub(super) fn walk<'a>(beams: usize, hotwords: &'a Hotwords, behind: &'a Behind) -> Walk<'a> {
    static NEVER: std::sync::LazyLock<CancelToken> = std::sync::LazyLock::new(CancelToken::new);
    Walk {
        beams,
        hotwords,
        behind,
        until: usize::MAX,
        cancel: &NEVER,
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

/// Sound that changes all the time, without a pause.
fn varied(seconds: usize) -> Vec<f32> {
    let noise = |i: usize| ((i as u32).wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0;
    let sample = |i: usize| {
        let t = i as f64 / 16e3;
        let loud = 0.3 + 0.2 * libm::sin(9.0 * t) + 0.1 * libm::sin(1.7 * t);
        let pitch = 200.0 + 150.0 * libm::sin(3.1 * t) + 90.0 * libm::sin(0.37 * t);
        let tone = libm::sin(core::f64::consts::TAU * pitch * t);
        loud as f32 * (0.7 * tone as f32 + 0.3 * noise(i))
    };
    (0..seconds * 16_000).map(sample).collect()
}

/// Random models see everything at once, so little stays what it was where sound is cut. Numbers are tokens of the whole, and how many differ
/// where pieces overlap, and where they are cut.
#[test]
fn pieces_that_overlap_are_nearer_to_the_whole_than_pieces_that_are_cut() {
    let samples = varied(60);
    for (name, is_normalized, expected) in [
        ("parakeet_ctc", true, (613, 214, 387)),
        ("parakeet_tdt", true, (164, 86, 95)),
        ("parakeet_rnnt", true, (555, 86, 174)),
        ("parakeet_ctc", false, (406, 111, 168)),
        ("parakeet_tdt", false, (114, 31, 42)),
        ("parakeet_rnnt", false, (86, 0, 44)),
    ] {
        let (mut model, ..) = golden(name);
        if let Ear::Samples(_, Some(frontend), _) = &mut model.ear
            && !is_normalized
        {
            let normalization = cactus_audio::features::Normalization::None;
            let recipe = frontend.recipe().clone();
            **frontend = cactus_audio::Frontend::new(cactus_audio::Recipe {
                normalization,
                ..recipe
            })
            .unwrap();
        }
        hear(&mut model, &samples);
        let whole = found(&mut model, 1, &Behind::default());
        let whole: Vec<u32> = whole.iter().map(|t| t.id).collect();
        let mut differ = || {
            let (options, cancel) = (crate::TranscribeOptions::default(), CancelToken::new());
            let said = model.transcribe(&samples, &options, &cancel, &mut |_| {}).unwrap();
            let said: Vec<u32> = said.segments.iter().flat_map(|s| s.tokens.clone()).collect();
            let Ear::Samples(_, _, overlap) = &mut model.ear else {
                panic!("{name} hears no pieces");
            };
            *overlap = None;
            distance(&whole, &said)
        };
        let (overlapping, cut) = (differ(), differ());
        assert_eq!((whole.len(), overlapping, cut), expected, "{name}, {is_normalized}");
    }
}

/// Tokens to add, to take away or to change.
fn distance(a: &[u32], b: &[u32]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut before = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let new = (before + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
            before = std::mem::replace(&mut row[j + 1], new);
        }
    }
    row[b.len()]
}

#[test]
fn a_long_recording_is_heard_as_a_whole_where_attention_is_local() {
    for name in ["parakeet_ctc", "parakeet_tdt", "parakeet_rnnt"] {
        // More positions than there are: local attention sees what the encoder sees.
        let (mut model, sound, _) = golden_with(name, Some(1000));
        let samples: Vec<f32> = sound.iter().cycle().take(16 * 38_400 + 77).copied().collect();
        hear_all(&mut model, &samples);
        let wanted: Vec<u32> = found(&mut model, 1, &Behind::default()).iter().map(|t| t.id).collect();
        assert!(wanted.len() > 30, "{wanted:?}");
        let said = |model: &mut Transcriber| {
            let mut ends = Vec::new();
            let options = TranscribeOptions {
                words: true,
                ..TranscribeOptions::default()
            };
            let cancel = CancelToken::new();
            let found = model
                .transcribe(&samples, &options, &cancel, &mut |p| ends.push(p.done_s))
                .unwrap();
            assert!(
                ends.is_sorted() && ends.last() == Some(&found.duration_s),
                "{name}: {ends:?}"
            );
            found
        };
        let ids = |found: &crate::Transcript| -> Vec<u32> {
            found.segments.iter().flat_map(|s| s.tokens.iter().copied()).collect()
        };
        assert_eq!(ids(&said(&mut model)), wanted, "{name}");
        // Of blocks, the text goes on from one to the next.
        let (mut near, ..) = golden_with(name, Some(16));
        let found = said(&mut near);
        let words: Vec<f64> = found
            .segments
            .iter()
            .flat_map(|s| &s.words)
            .map(|w| w.start_s)
            .collect();
        assert!(
            words.is_sorted() && words.len() > 30 && words[0] >= 0.0,
            "{name}: {words:?}"
        );
        assert!(found.segments.iter().all(|s| s.end_s <= found.duration_s));
    }
}

/// Lets the encoder itself hear a recording that is longer than a piece.
fn hear_all(model: &mut Transcriber, samples: &[f32]) {
    let features = model.ear.frontend().unwrap().extract(samples).unwrap();
    let shape = [1, features.frames(), features.bins];
    model
        .listen(Tensor::from_f32(shape, features.data).unwrap(), false)
        .unwrap();
}
