//! What is in the bundles of models that see: the encoder of a GGUF file, and how many bits its weights have.

use super::{CASES, bundle, farthest, golden, greedy, load, logits};
use cactus_bundle::Bundle;
use cactus_engine::chat::{Chat, ChatRequest};
use cactus_engine::{CancelToken, LoadOptions, Model};
use cactus_import::{ConvertOptions, convert};
use cactus_multimodal::{Picture, Pictures};
use cactus_passes::{Bits, Policy};
use cactus_testkit::picture_noise;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// The encoder in llama.cpp's form, beside a text model of the same width in another file.
#[test]
fn encoder_in_a_file_of_its_own_gives_the_rows_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("smolvlm", "../../gguf/llama.gguf"),
        ("lfm2_vl", "../../gguf/lfm2.gguf"),
        ("gemma3", "../../gguf/gemma3_text.gguf"),
        ("qwen3_5", "text.gguf"),
        ("qwen3_5_moe", "text.gguf"),
        ("qwen3_vl", "text.gguf"),
        ("gemma4", "text.gguf"),
        ("gemma4_moe", "text.gguf"),
        ("qwen3_vl_moe", "text.gguf"),
    ] {
        let options = ConvertOptions {
            policy: Policy::uniform(Bits::ThirtyTwo),
            pictures: Some(golden(name).join("mmproj.gguf")),
            ..ConvertOptions::default()
        };
        let path = folder.path().join(format!("{name}-gguf"));
        convert(&golden(name).join(text), &path, &options, &mut |_, _| {}).unwrap();
        let (model, pictures) = load(&path, 64);
        let (other, of_folder) = load(&bundle(folder.path(), name, Bits::ThirtyTwo), 64);
        // The file does not say how pictures are cut, so their views are those of the released models.
        let (whole, own) = (pictures.processor(), of_folder.processor());
        assert_eq!(
            (&whole.marks, whole.patch, whole.merge),
            (&own.marks, own.patch, own.merge),
            "{name}"
        );
        assert_eq!(
            (&whole.values, whole.filter, &whole.places),
            (&own.values, own.filter, &own.places),
            "{name}"
        );
        // Within the bounds of both, where there are such.
        let side = if name == "qwen3_vl" { 256 } else { 64 };
        let picture = Picture::new(side, side, picture_noise(side, side, 7)).unwrap();
        let rows = |model: &Model, pictures: &Pictures| {
            let look = pictures.look_at(model, &picture, &CancelToken::new()).unwrap();
            look.shown.media.rows().to_vec()
        };
        let (found, want) = (rows(&model, &pictures), || rows(&other, &of_folder));
        match name {
            // Its file says both sizes, or every picture keeps its own.
            "smolvlm" | "qwen3_vl" => assert!(found == want(), "{name}"),
            // llama.cpp's converter writes its projection in half precision, and a norm with one more.
            "gemma3" => assert!(farthest(&found, &want()) < 2e-3, "{name}"),
            _ => {}
        }
        let graph = |path: &Path, component: &str| Bundle::open(path).unwrap().graph(component).unwrap().0.to_string();
        let folders = folder.path().join(format!("{name}-ThirtyTwo"));
        assert_eq!(
            graph(&path, "picture_encoder"),
            graph(&folders, "picture_encoder"),
            "{name}"
        );
        if text == "text.gguf" {
            // The text model of the same folder.
            assert_eq!(graph(&path, "decoder"), graph(&folders, "decoder"), "{name}");
        }
        if name == "qwen3_vl" {
            let of = |model: &Arc<Model>, pictures: &Pictures| {
                let content = json!([{"type": "image"}, {"type": "text", "text": "What is this?"}]);
                let request = ChatRequest {
                    messages: vec![json!({"role": "user", "content": content})],
                    pictures: vec![pictures.look_at(model, &picture, &CancelToken::new()).unwrap().shown],
                    ..ChatRequest::default()
                };
                logits(model, &Chat::new(model, &request).unwrap(), 64)
            };
            assert!(of(&model, &pictures) == of(&other, &of_folder), "{name}");
            // Alone it writes the same about a text, to the bit: there all axes say the same.
            let alone = ConvertOptions {
                pictures: None,
                ..options.clone()
            };
            let path = folder.path().join("alone");
            convert(&golden(name).join(text), &path, &alone, &mut |_, _| {}).unwrap();
            let alone = Model::load(&path, &LoadOptions::default()).unwrap();
            assert_eq!(alone.media_width(), None, "{name}");
            let of_text = |model: &Arc<Model>| {
                let request = ChatRequest {
                    messages: vec![json!({"role": "user", "content": "the one and the other"})],
                    ..ChatRequest::default()
                };
                let chat = Chat::new(model, &request).unwrap();
                let mut session = model.session().unwrap();
                let options = greedy(name, 16);
                let answer = session.generate(&chat.prompt, &options, &CancelToken::new(), &mut |_| {});
                answer.unwrap().completion_token_ids
            };
            let seeing = Model::load(&folder.path().join(format!("{name}-gguf")), &LoadOptions::default()).unwrap();
            assert_eq!(of_text(&alone), of_text(&seeing), "{name}");
        }
        let weights = |path: &Path| {
            let bundle = Bundle::open(path).unwrap();
            let (_, bindings) = bundle.graph("picture_encoder").unwrap();
            let stored = bindings
                .values()
                .filter(|name| !name.starts_with("multi_modal_projector.mm_"))
                .map(|name| (name.clone(), bundle.weight(name).unwrap().data.to_vec()));
            stored.collect::<std::collections::BTreeMap<String, Vec<u8>>>()
        };
        assert!(
            weights(&path) == weights(&folder.path().join(format!("{name}-ThirtyTwo"))),
            "{name}"
        );
        // One for another text model is refused.
        let other = if name == "lfm2_vl" { "llama.gguf" } else { "lfm2.gguf" };
        let other = golden(name).join("../../gguf").join(other);
        let error = convert(&other, &folder.path().join("other"), &options, &mut |_, _| {}).unwrap_err();
        assert!(error.to_string().contains("text model of the family"), "{error}");
    }
    let options = ConvertOptions {
        pictures: Some(golden("smolvlm").join("../../gguf/lfm2.gguf")),
        ..ConvertOptions::default()
    };
    let text = golden("smolvlm").join("../../gguf/llama.gguf");
    let error = convert(&text, &folder.path().join("other"), &options, &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("mmproj"), "{error}");
}

#[test]
fn what_sees_keeps_eight_bits_where_text_has_fewer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("four");
    let options = ConvertOptions {
        policy: Policy::uniform(Bits::Four),
        ..ConvertOptions::default()
    };
    let made = convert(&golden("smolvlm"), &path, &options, &mut |_, _| {}).unwrap();
    assert!(
        made.notes.iter().any(|note| note.contains("keeps 8 bits")),
        "{:?}",
        made.notes
    );
    let bundle = Bundle::open(&path).unwrap();
    let packings = |component: &str| -> Vec<String> {
        let (_, bindings) = bundle.graph(component).unwrap();
        let weights = bindings.values().map(|name| bundle.weight(name).unwrap());
        let matrices = weights.filter(|w| w.dims.len() == 2 && w.dims[1] % 32 == 0);
        matrices.map(|w| w.packing.to_string()).collect()
    };
    let found = packings("picture_encoder");
    assert!(found.iter().all(|p| p == "int8_g32" || p == "f16_n16"), "{found:?}");
}

#[test]
fn attention_of_what_sees_is_on_integers_where_its_weights_have_few_bits() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bits) in CASES
        .iter()
        .flat_map(|name| [Bits::Four, Bits::Eight, Bits::Sixteen, Bits::ThirtyTwo].map(|bits| (name, bits)))
    {
        let path = folder.path().join(format!("{name}-{bits:?}"));
        let options = ConvertOptions {
            policy: Policy::uniform(bits),
            ..ConvertOptions::default()
        };
        convert(&golden(name), &path, &options, &mut |_, _| {}).unwrap();
        let bundle = Bundle::open(&path).unwrap();
        let integers = |component: &str| -> Vec<bool> {
            let graph = bundle.graph(component).unwrap().0.to_string();
            let attention = graph.lines().filter(|line| line.contains("= attention("));
            attention.map(|line| line.contains("integers=true")).collect()
        };
        let (encoder, decoder) = (integers("picture_encoder"), integers("decoder"));
        assert!(!encoder.is_empty() && !decoder.is_empty(), "{name}");
        assert!(
            encoder.iter().all(|x| *x == (bits <= Bits::Eight)),
            "{name} {bits:?}: {encoder:?}"
        );
        assert!(decoder.iter().all(|x| !x), "{name} {bits:?}: {decoder:?}");
    }
}

/// What 8 bits cost the rows of a picture, and what attention on integers adds to it.
#[test]
fn rows_of_eight_bits_are_near_those_of_thirty_two() {
    let folder = tempfile::tempdir().unwrap();
    for name in CASES {
        let rows = |bits| {
            let (model, pictures) = load(&bundle(folder.path(), name, bits), 128);
            let picture = Picture::new(64, 64, picture_noise(64, 64, 7)).unwrap();
            let look = pictures.look_at(&model, &picture, &CancelToken::new()).unwrap();
            look.shown.media.rows().to_vec()
        };
        let (found, want) = (rows(Bits::Eight), rows(Bits::ThirtyTwo));
        let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| f64::from(x * y)).sum::<f64>();
        let cosine = dot(&found, &want) / (dot(&found, &found) * dot(&want, &want)).sqrt();
        assert!(cosine > 0.999, "{name}: {cosine}");
    }
}
