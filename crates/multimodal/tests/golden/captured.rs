//! A model that was captured from PyTorch (`golden/pt2/seeing`), beside the bundle of its folder: one is used as the other.

use super::{Expected, bundle, golden, greedy, like_transformers, load};
use cactus_bundle::{Bundle, VISION_PATH};
use cactus_engine::chat::Chat;
use cactus_engine::{CancelToken, LoadOptions, Model};
use cactus_import::pt2::{TranspileOptions, transpile};
use cactus_multimodal::Pictures;
use cactus_passes::Bits;
use std::path::{Path, PathBuf};

const CASE: &str = "smolvlm";

fn captured() -> PathBuf {
    golden(CASE).join("../../pt2/seeing").join(CASE)
}

/// Choices with the folder of the model `name`.
fn of(name: &str) -> TranspileOptions {
    TranspileOptions {
        tokenizer: Some(golden(name)),
        ..TranspileOptions::default()
    }
}

/// A bundle of the components at `capture`, and what the user should know.
fn transpiled(capture: &Path, to: &Path, options: &TranspileOptions) -> Result<Vec<String>, String> {
    let made = transpile(&capture.join("capture.json"), to, options, &mut |_, _| {});
    made.map(|made| made.notes).map_err(|e| e.to_string())
}

#[test]
fn captured_model_is_that_of_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("captured");
    assert_eq!(transpiled(&captured(), &path, &of(CASE)), Ok(Vec::new()));
    like_transformers(CASE, &path);
    let (model, pictures) = load(&path, 48);
    let want = Expected::of(CASE);
    let chat = Chat::new(&model, &want.request(&model, &pictures)).unwrap();
    let mut session = model.session().unwrap();
    let answer = session
        .generate(&chat.prompt, &greedy(CASE, 24), &CancelToken::new(), &mut |_| {})
        .unwrap();
    assert_eq!(answer.completion_token_ids, want.ids("greedy"));

    let native = bundle(folder.path(), CASE, Bits::ThirtyTwo);
    let [one, other] = [&path, &native].map(|path| Bundle::open(path).unwrap());
    assert_eq!(one.file(VISION_PATH).unwrap(), other.file(VISION_PATH).unwrap());
    let (a, b) = (one.manifest(), other.manifest());
    assert_eq!(
        (&a.task, a.context_tokens, a.vocab_size, &a.tokens),
        (&b.task, b.context_tokens, b.vocab_size, &b.tokens)
    );
    for component in ["picture_encoder", "decoder"] {
        let operations = |bundle: &Bundle| {
            let graph = bundle.graph(component).unwrap().0;
            let mut all: Vec<String> = graph.nodes().map(|(_, n)| n.op.mnemonic().to_string()).collect();
            all.sort();
            (all, graph.states().len())
        };
        assert_eq!(operations(&one), operations(&other), "{component}");
    }
}

#[test]
fn bits_of_what_sees_are_those_of_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    for (bits, integers) in [(4, true), (8, true), (16, false)] {
        let path = folder.path().join(bits.to_string());
        let options = TranspileOptions {
            bits: Some(bits),
            ..of(CASE)
        };
        let notes = transpiled(&captured(), &path, &options).unwrap();
        assert_eq!(
            notes.iter().any(|note| note.contains("keeps 8 bits")),
            bits < 8,
            "{notes:?}"
        );
        let graph = Bundle::open(&path)
            .unwrap()
            .graph("picture_encoder")
            .unwrap()
            .0
            .to_string();
        assert_eq!(graph.contains("integers=true"), integers, "{bits}");
        load(&path, 48);
    }
}

#[test]
fn what_the_family_does_not_have_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("out");
    let refused = |capture: &Path, options: &TranspileOptions, word: &str| {
        let error = transpiled(capture, &to, options).unwrap_err();
        assert!(error.contains(word) && !to.exists(), "{error}");
    };
    // The numbers of a patch of another family, and inputs that it does not have.
    refused(&captured(), &of("lfm2_vl"), "`patches`");
    refused(&captured(), &of("qwen3_vl"), "`patches`");
    // Components under each other's names, and one that the family does not have.
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    for file in ["picture_encoder.pt2", "decoder.pt2"] {
        std::fs::copy(captured().join(file), other.join(file)).unwrap();
    }
    let text = std::fs::read_to_string(captured().join("capture.json")).unwrap();
    let written = |text: String| std::fs::write(other.join("capture.json"), text).unwrap();
    written(text.replace("picture_encoder.pt2", "decoder.pt2"));
    refused(&other, &of(CASE), "`patches`");
    written(text.replace("\"decoder.pt2\"", "\"picture_encoder.pt2\""));
    refused(&other, &of(CASE), "`input_ids`");
    written(text.replace("\"name\": \"picture_encoder\"", "\"name\": \"sound_encoder\""));
    refused(&other, &of(CASE), "`sound_encoder`");
}

#[test]
fn without_the_files_of_a_folder_a_captured_model_takes_texts() {
    let folder = tempfile::tempdir().unwrap();
    let silent = folder.path().join("silent");
    std::fs::create_dir(&silent).unwrap();
    for file in [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    ] {
        std::fs::copy(golden(CASE).join(file), silent.join(file)).unwrap();
    }
    let of_silent = TranspileOptions {
        tokenizer: Some(silent),
        ..TranspileOptions::default()
    };
    let path = folder.path().join("texts");
    let notes = transpiled(&captured(), &path, &of_silent).unwrap();
    assert!(notes.iter().any(|note| note.contains("no pictures")), "{notes:?}");
    let model = Model::load(&path, &LoadOptions::default()).unwrap();
    assert!(Pictures::attach(&model).unwrap().is_none());
    let bare = folder.path().join("bare");
    let notes = transpiled(&captured(), &bare, &TranspileOptions::default()).unwrap();
    assert!(notes.iter().any(|note| note.contains("takes texts alone")), "{notes:?}");
    assert!(!Bundle::open(&bare).unwrap().has_file(VISION_PATH));
}
