//! What is imported: GGUF files, safetensors files, configurations.

use cactus_bundle::Checksum;
use cactus_import::gguf::{GgufFile, GgufSource, config, tokenizer};
use cactus_import::state_dict::StateDict;
use cactus_import::{SafetensorsSource, SharedBytes, TensorSource};
use cactus_passes::{Options, StatePolicy};
use cactus_text::{ChatTemplate, ChatTemplateSource, Tokenizer};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Larger tensors are not decoded, to keep runs short.
const MAX_ELEMS: usize = 1 << 16;
/// Graphs of more nodes are built and not optimized, to keep runs short.
const MAX_NODES: usize = 400;

/// Answers that are remembered at a time.
const MAX_ANSWERS: usize = 1 << 14;

/// Whether `content` was accepted, by `accepts` when it came first: most mutations of a file leave its configuration and its
/// tokenizer alone, which take longest to read.
fn once(content: &[u8], accepts: impl FnOnce() -> bool) -> bool {
    static ANSWERS: Mutex<Option<HashMap<Checksum, bool>>> = Mutex::new(None);
    let key = Checksum::of(content);
    let lock = || ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&answer) = lock().get_or_insert_default().get(&key) {
        return answer;
    }
    let answer = accepts();
    let mut held = lock();
    let answers = held.get_or_insert_default();
    if answers.len() >= MAX_ANSWERS {
        answers.clear();
    }
    answers.insert(key, answer);
    answer
}

/// A GGUF file: container, weights, configuration, tokenizer, and the model they describe.
pub(crate) fn gguf(data: &[u8]) -> bool {
    let Ok(file) = GgufFile::parse(data) else {
        return false;
    };
    for tensor in &file.tensors {
        assert!(data.get(tensor.range.clone()).is_some(), "a tensor lies in the file");
    }
    // Any of these may refuse; none may panic.
    let _ = config::generation_config(&file.metadata);
    let _ = tokenizer::end_ids(&file.metadata);
    if let Ok(Some(files)) = tokenizer::tokenizer(&file.metadata) {
        once(&files.tokenizer_json, || {
            Tokenizer::from_bytes(&files.tokenizer_json).is_ok()
        });
        let _ = ChatTemplate::from_source(ChatTemplateSource {
            chat_template: files.chat_template.as_deref(),
            ..ChatTemplateSource::default()
        });
    }
    let bytes: SharedBytes = Arc::new(data.to_vec());
    let Ok(source) = GgufSource::new(Path::new("fuzzed.gguf"), bytes) else {
        return false;
    };
    read_all(&source);
    let _ = source.rope_factors();
    config::config(&source).is_ok_and(|config| build(&config))
}

/// A safetensors file, and the model that it is where it says so by its tensors.
pub(crate) fn safetensors(data: &[u8]) -> bool {
    let bytes: SharedBytes = Arc::new(data.to_vec());
    if let Ok((config, source)) = cactus_import::silero::read(Path::new("fuzzed.safetensors"), Arc::clone(&bytes)) {
        read_all(&source);
        build(&config);
    }
    let source = SafetensorsSource::from_bytes(Path::new("fuzzed.safetensors"), bytes);
    source.is_ok_and(|source| {
        read_all(&source);
        true
    })
}

/// Weights of Whisper as CTranslate2 stores them, and the model that they describe.
pub(crate) fn ctranslate2(data: &[u8]) -> bool {
    let bytes: SharedBytes = Arc::new(data.to_vec());
    cactus_import::ctranslate2::read(Path::new("fuzzed.bin"), bytes).is_ok_and(|(config, source)| {
        read_all(source.as_ref());
        build(&config)
    })
}

/// A Whisper file of whisper.cpp, and the model that it describes.
pub(crate) fn ggml(data: &[u8]) -> bool {
    let bytes: SharedBytes = Arc::new(data.to_vec());
    cactus_import::ggml::read(Path::new("fuzzed.bin"), bytes).is_ok_and(|model| {
        read_all(&*model.tensors);
        build(&model.config)
    })
}

/// Moonshine for ONNX Runtime: the bytes of the encoder's program, after their number, then the decoder's.
pub(crate) fn ort(data: &[u8]) -> bool {
    let Some((length, rest)) = data.split_first_chunk::<4>() else {
        return false;
    };
    let length = (u32::from_le_bytes(*length) as usize).min(rest.len());
    let (encoder, decoder) = rest.split_at(length);
    let bytes = [encoder, decoder].map(|b| -> SharedBytes { Arc::new(b.to_vec()) });
    let paths = ["fuzzed_encoder.ort", "fuzzed_decoder.ort"].map(Path::new);
    cactus_import::ort::read(paths, bytes).is_ok_and(|(config, source)| {
        read_all(&source);
        build(&config)
    })
}

/// Silero VAD as a program in ONNX: each of its networks.
pub(crate) fn onnx(data: &[u8]) -> bool {
    let bytes: SharedBytes = Arc::new(data.to_vec());
    let read = |rate_hz| cactus_import::silero::read_onnx(Path::new("fuzzed.onnx"), Arc::clone(&bytes), rate_hz);
    [None, Some(1000)]
        .map(read)
        .into_iter()
        .flatten()
        .any(|(config, source)| {
            read_all(&source);
            build(&config)
        })
}

/// A file of `torch.save`.
pub(crate) fn state_dict(data: &[u8]) -> bool {
    let bytes: SharedBytes = Arc::new(data.to_vec());
    StateDict::from_bytes(Path::new("fuzzed.pt"), bytes).is_ok_and(|source| {
        read_all(&source);
        true
    })
}

fn read_all(source: &dyn TensorSource) {
    assert!(!source.describe().is_empty());
    for name in source.names() {
        let shape = source.shape(name).expect("a listed tensor has a shape");
        assert!(source.stored_type(name).is_some());
        let elems = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        if elems.is_some_and(|n| n <= MAX_ELEMS)
            && let Ok(tensor) = source.read(name)
        {
            assert_eq!(tensor.shape(), shape);
            assert_eq!(tensor.as_f32().map(<[f32]>::len).ok(), elems);
        }
    }
}

/// A `config.json`.
pub(crate) fn hf_config(data: &[u8]) -> bool {
    serde_json::from_slice(data).is_ok_and(|config| build(&config))
}

/// Builds the model, and optimizes it where it is small.
fn build(config: &Value) -> bool {
    once(config.to_string().as_bytes(), || build_anew(config))
}

fn build_anew(config: &Value) -> bool {
    let Ok(def) = cactus_models::build(config) else {
        return false;
    };
    assert!(def.unread(["lm_head.weight"]).len() <= 1);
    for component in &def.components {
        component.graph.verify().expect("a family builds a valid graph");
        if component.graph.order().len() <= MAX_NODES {
            let options = Options {
                states: StatePolicy::IfPossible,
                ..Options::default()
            };
            let optimized = cactus_passes::optimize(&component.graph, &options);
            let (graph, _) = optimized.expect("passes take every graph of a family");
            graph.verify().expect("passes keep a graph valid");
            assert_eq!(graph.outputs().len(), component.graph.outputs().len());
        }
    }
    true
}
