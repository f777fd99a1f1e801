//! Small valid inputs, made from the golden files and by the writers of the formats.

use crate::{ggml_writer, gguf_writer};
use cactus_bundle::{Checksum, RecordHeader, encode_graph};
use cactus_import::gguf::GgufFile;
use cactus_ir::Graph;
use cactus_passes::Options;
use cactus_quant::{Packing, pack};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Tensors of a golden GGUF file up to this size are kept in its seed.
const MAX_TENSOR_BYTES: usize = 512;
/// Data of a golden GGUF file whose head alone is kept have fewer bytes.
const MAX_DATA_BYTES: usize = 4 << 20;

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(path)
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Content of the files under `golden/{folder}` whose path ends with `suffix`, in the order of their names.
fn files(folder: &str, suffix: &str) -> Vec<Vec<u8>> {
    fn collect(folder: &Path, suffix: &str, out: &mut Vec<PathBuf>) {
        let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                collect(&path, suffix, out);
            } else if path.to_string_lossy().ends_with(suffix) {
                out.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    collect(&golden(folder), suffix, &mut paths);
    paths.sort();
    paths.iter().map(|p| read(p)).collect()
}

pub(crate) fn tensor_records() -> Vec<Vec<u8>> {
    let cases: &[(Packing, &[usize])] = &[
        (Packing::RowMajor, &[]),
        (Packing::RowMajor, &[40]),
        (Packing::RowMajor, &[2, 3, 4, 5]),
        (Packing::Int8G32, &[3, 40]),
        (Packing::Int8G32, &[17, 96]),
        (Packing::F16N16, &[3, 5]),
        (Packing::F32N16, &[17, 2]),
        (Packing::Int8N16, &[17, 33]),
    ];
    let path = Path::new("seed.weights");
    let record = |packing: Packing, dims: &[usize]| {
        let (n, k) = match dims {
            [n, k] => (*n, *k),
            _ => (1, dims.iter().product()),
        };
        let values: Vec<f32> = (0..n * k).map(|i| i as f32 * 0.25 - 3.0).collect();
        let packed = pack(packing, n, k, &values).expect("finite values");
        let (scales, data) = (packed.scales(), packed.data());
        let mut header = RecordHeader::plan(path, dims, packing, scales.len(), data.len()).expect("a small tensor");
        let mut payload = scales.to_vec();
        payload.resize(header.data_offset - header.scales_offset, 0);
        payload.extend(data);
        header.payload_checksum = Checksum::of(&payload);
        let mut out = header.encode().to_vec();
        out.extend(payload);
        out.resize(header.record_bytes, 0);
        out
    };
    cases.iter().map(|(packing, dims)| record(*packing, dims)).collect()
}

/// Cuts a configuration to two layers, and so those that it has inside.
fn cut(config: &mut Value) {
    let Some(fields) = config.as_object_mut() else {
        return;
    };
    fields.values_mut().for_each(cut);
    for layers in ["num_hidden_layers", "encoder_layers", "decoder_layers"] {
        if let Some(count) = fields.get_mut(layers) {
            *count = json!(2);
        }
    }
    // Whichever way a configuration lists its layers: one of each kind.
    if let Some(which) = fields.get_mut("full_attn_idxs") {
        *which = json!([1]);
    }
    if let Some(types) = fields.get_mut("layer_types").and_then(Value::as_array_mut) {
        types.dedup();
        types.resize(2, types[0].clone());
    }
}

/// The graph of a golden family cut to at most two layers, before and after the passes.
pub(crate) fn decoder(family: &str) -> (Graph, Graph) {
    let mut config: Value =
        serde_json::from_slice(&read(&golden(&format!("models/{family}/config.json")))).expect("golden JSON");
    cut(&mut config);
    let def = cactus_models::build(&config).expect("a golden configuration");
    let raw = def.decoder();
    let (optimized, _) = cactus_passes::optimize(raw, &Options::default()).expect("a golden graph");
    (raw.clone(), optimized)
}

fn graphs() -> Vec<Graph> {
    ["llama", "lfm2", "gemma3_text", "qwen2"]
        .iter()
        .flat_map(|family| {
            let (raw, optimized) = decoder(family);
            [raw, optimized]
        })
        .collect()
}

pub(crate) fn graphs_cactus() -> Vec<Vec<u8>> {
    graphs().iter().map(encode_graph).collect()
}

pub(crate) fn graphs_json() -> Vec<Vec<u8>> {
    // Compact: white space would only dilute what is mutated.
    let compact = |g: &Graph| serde_json::to_vec(g).expect("a graph has string keys");
    graphs().iter().map(compact).collect()
}

pub(crate) fn programs() -> Vec<Vec<u8>> {
    let compact = |family: &&str| serde_json::to_vec(&decoder(family).1).expect("a graph has string keys");
    let mut all: Vec<Vec<u8>> = ["llama", "lfm2", "gemma3_text", "qwen2"].iter().map(compact).collect();
    // Some matrices in half precision: 2 for a matrix, 9 is no packing.
    let floats = [&all[0][..], &[0, 2, 9, 2, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]].concat();
    all.push(floats);
    all
}

pub(crate) fn gguf_files() -> Vec<Vec<u8>> {
    let shrink = |bytes: Vec<u8>| {
        let file = GgufFile::parse(&bytes).expect("a golden file");
        gguf_writer::shrunk(&file, &bytes, |t| t.range.len() <= MAX_TENSOR_BYTES)
    };
    // Of encoders the golden folder has files up to their data. Some are no model without the tensors that are left out here.
    let whole = |mut head: Vec<u8>| {
        head.resize(head.len() + MAX_DATA_BYTES, 0);
        head
    };
    let encoders = files("gguf_embedding", ".gguf").into_iter().map(whole).map(shrink);
    let encoders = encoders.filter(|seed| crate::import::gguf(seed));
    files("gguf", ".gguf").into_iter().map(shrink).chain(encoders).collect()
}

pub(crate) fn ctranslate2_files() -> Vec<Vec<u8>> {
    files("ctranslate2", "/model.bin")
}

pub(crate) fn ggml_files() -> Vec<Vec<u8>> {
    vec![ggml_writer::whisper()]
}

pub(crate) fn ort_programs() -> Vec<Vec<u8>> {
    let both = |folder: &str| {
        let names = ["encoder_model", "decoder_model_merged"];
        let [encoder, decoder] = names.map(|name| read(&golden(&format!("ort/{folder}/{name}.ort"))));
        let length = u32::try_from(encoder.len()).expect("a small file");
        [&length.to_le_bytes()[..], &encoder, &decoder].concat()
    };
    ["moonshine", "moonshine_sums"].map(both).to_vec()
}

pub(crate) fn onnx_programs() -> Vec<Vec<u8>> {
    files("onnx/silero_vad", ".onnx")
}

pub(crate) fn state_dicts() -> Vec<Vec<u8>> {
    files("pt2", ".pt")
}

pub(crate) fn safetensors_files() -> Vec<Vec<u8>> {
    let file = |header: &Value, data: &[u8]| {
        let header = header.to_string();
        let mut out = (header.len() as u64).to_le_bytes().to_vec();
        out.extend(header.as_bytes());
        out.extend(data);
        out
    };
    vec![
        file(&json!({}), &[]),
        file(
            &json!({
                "__metadata__": {"format": "pt"},
                "model.norm.weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                "a": {"dtype": "BF16", "shape": [2, 1, 2], "data_offsets": [8, 16]},
                "b": {"dtype": "F16", "shape": [], "data_offsets": [16, 18]},
                "c": {"dtype": "I64", "shape": [0, 3], "data_offsets": [18, 18]},
            }),
            &[0x3c; 18],
        ),
        silero(&file),
    ]
}

/// The least Silero VAD.
fn silero(file: &dyn Fn(&Value, &[u8]) -> Vec<u8>) -> Vec<u8> {
    let tensors: &[(&str, &[usize])] = &[
        ("stft_conv.weight", &[10, 1, 8]),
        ("conv1.weight", &[1, 5, 3]),
        ("conv2.weight", &[1, 1, 3]),
        ("conv3.weight", &[1, 1, 3]),
        ("conv4.weight", &[1, 1, 3]),
        ("lstm_cell.weight_hh", &[4, 1]),
    ];
    let (mut header, mut end) = (json!({}), 0);
    for (name, shape) in tensors {
        let start = end;
        end += 4 * shape.iter().product::<usize>();
        header[*name] = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, end]});
    }
    file(&header, &vec![0x3c; end])
}

pub(crate) fn hf_configs() -> Vec<Vec<u8>> {
    // Some lie beside a model that another file describes too.
    let short = |bytes: Vec<u8>| {
        let whole: Value = serde_json::from_slice(&bytes).expect("golden JSON");
        let mut short = whole.clone();
        cut(&mut short);
        let model = [short, whole].into_iter().find(|c| cactus_models::build(c).is_ok());
        model.map(|config| config.to_string().into_bytes())
    };
    let golden = ["models", "speech", "embedding", "seeing"].map(|folder| files(folder, "/config.json"));
    let mut all: Vec<Vec<u8>> = golden.concat().into_iter().filter_map(short).collect();
    all.dedup();
    all.push(br#"{"model_type": "silero_vad", "fft_samples": 8, "widths": [2, 1, 1, 2], "hidden_size": 1}"#.to_vec());
    let scaling = [
        json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}),
        json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}),
        json!({"type": "linear", "factor": 2.0}),
        json!({"rope_type": "dynamic", "factor": 2.0}),
    ];
    for scaling in scaling {
        all.push(
            json!({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1,
                "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 9, "max_position_embeddings": 64,
                "rope_scaling": scaling})
            .to_string()
            .into_bytes(),
        );
    }
    all
}

pub(crate) fn tokenizers() -> Vec<Vec<u8>> {
    let compact = |bytes: Vec<u8>| {
        let value: Value = serde_json::from_slice(&bytes).expect("golden JSON");
        value.to_string().into_bytes()
    };
    let mut all: Vec<Vec<u8>> = files("tokenizers", "/tokenizer.json")
        .into_iter()
        .map(compact)
        .collect();
    all.extend(files("models/llama", "/tokenizer.json").into_iter().map(compact));
    all
}

pub(crate) fn tokenizer_tables() -> Vec<Vec<u8>> {
    let tables = |json: Vec<u8>| {
        let tokenizer = cactus_text::Tokenizer::from_bytes(&json).expect("a golden tokenizer");
        tokenizer.tables().map(|tables| tables.bytes().to_vec())
    };
    tokenizers().into_iter().filter_map(tables).collect()
}

pub(crate) fn chat_templates() -> Vec<Vec<u8>> {
    files("chat_templates", ".jinja")
}

pub(crate) fn generate_options() -> Vec<Vec<u8>> {
    let mut all = files("models/llama", "/generation_config.json");
    all.push(
        json!({"max_new_tokens": 3, "temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "typical_p": 0.9,
            "repetition_penalty": 1.1, "repetition_window": 64, "frequency_penalty": -0.5, "presence_penalty": 0.5,
            "logit_bias": {"3": -100, "7": 1.5}, "seed": u64::MAX, "stop": ["\n\n", "</s>"], "include_stop": true,
            "logprobs": 5, "ignore_eos": false, "do_sample": true})
        .to_string()
        .into_bytes(),
    );
    let mut plain: Value = serde_json::from_slice(&all[all.len() - 1]).expect("written above");
    if let Some(fields) = plain.as_object_mut() {
        fields.remove("do_sample");
    }
    all.push(plain.to_string().into_bytes());
    all
}
