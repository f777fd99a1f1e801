//! Hugging Face folders: `config.json`, safetensors weights, tokenizer files.

use crate::mxfp4::{self, Mxfp4Source};
use crate::safetensors::SafetensorsSource;
use crate::sentence::{self, SentenceSource};
use crate::{Error, Result, SourceModel, TensorSource, TokenizerFiles, experts, other_tokens};
use cactus_bundle::TokenIds;
use serde_json::{Value, json};
use std::path::Path;

/// Opens a Hugging Face folder.
///
/// Reads `config.json`, `generation_config.json` if it is there, what the preprocessor says of sound or pictures, `tokenizer.json` with `tokenizer_config.json`, the
/// chat template from `chat_template.jinja`, else from `tokenizer_config.json`, and the safetensors headers. Of a folder of
/// sentence-transformers it reads the modules, prompts and limits, too, and shows the weights of the modules beside the others.
///
/// # Errors
/// [`crate::ErrorKind::Missing`] where `config.json` or the weights are absent, [`crate::ErrorKind::Malformed`] where
/// a file is no JSON object or breaks its format, [`crate::ErrorKind::Unsupported`] where the weights are quantized or
/// the folder has a tokenizer in another form than `tokenizer.json`.
pub fn open_folder(folder: &Path) -> Result<SourceModel> {
    let whole = folder;
    let (sentence, base) = match sentence::read(folder)? {
        Some((sentence, base)) => (Some(sentence), base),
        None => (None, folder.to_path_buf()),
    };
    let folder = base.as_path();
    let config_path = folder.join("config.json");
    let mut config = read_json(&config_path)?;
    let mut packed = false;
    if let Some(quantized) = config.get("quantization_config").filter(|q| !q.is_null()) {
        let method = quantized
            .get("quant_method")
            .and_then(Value::as_str)
            .unwrap_or("an unnamed method");
        packed = method == mxfp4::METHOD;
        if !packed {
            return Err(Error::unsupported(format!(
                "the weights are quantized by `{method}`, which is not supported; supported are `{}`, F32, F16 and BF16",
                mxfp4::METHOD
            ))
            .in_file(&config_path));
        }
    }
    let Texts {
        generation_config,
        tokenizer,
        front_end,
        hearing,
        ..
    } = open_texts(folder)?;
    let files = SafetensorsSource::open(folder)?;
    let tensors: Box<dyn TensorSource> = match packed {
        true => Box::new(Mxfp4Source::new(files).map_err(|e| e.in_file(folder))?),
        false => Box::new(files),
    };
    let mut tensors = experts::with_stacked(tensors).map_err(|e| e.in_file(folder))?;
    sentence::by_names(&mut config, &tensors.names());
    let model_type = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    if model_type == "gpt_oss" {
        tensors = experts::with_gates_first(tensors);
    }
    let modules = sentence.as_ref().map_or(&[][..], |s| &s.modules[..]);
    let own_name = |name: &str| sentence::family_name(model_type, sentence.is_some(), name);
    let other_names = tensors.names().iter().any(|name| own_name(name) != **name);
    let tensors = match other_names || !modules.is_empty() {
        true => Box::new(SentenceSource::new(tensors, own_name, whole, modules)?),
        false => tensors,
    };
    let tensors = other_tokens::with_rows(tensors, &config);
    Ok(SourceModel {
        format: "huggingface",
        config,
        generation_config,
        front_end,
        hearing,
        sentence,
        tokenizer,
        tensors,
    })
}

/// How sound or a picture becomes an input: in a file of its own, or in that of everything that prepares an input, where pictures come first if
/// the model sees. What is said of films stands in its section `video_processor`.
fn front_end(folder: &Path, config: &Value) -> Result<Value> {
    let sees = config.get("vision_config").is_some_and(Value::is_object);
    let mut all = read_json_if_there(&folder.join("processor_config.json"))?;
    let mut section = |key: &str| {
        let section = all.as_mut().and_then(|all| all.get_mut(key)).map(Value::take);
        section.filter(Value::is_object)
    };
    let found = match read_json_if_there(&folder.join("preprocessor_config.json"))? {
        Some(alone) => Some(alone),
        None => {
            let mut keys = ["feature_extractor", "image_processor"];
            if sees {
                keys.reverse();
            }
            keys.into_iter().find_map(&mut section)
        }
    };
    let mut found = found.filter(Value::is_object).unwrap_or_else(|| json!({}));
    if sees && found.as_object().is_some_and(|fields| !fields.is_empty()) {
        let alone = read_json_if_there(&folder.join("video_preprocessor_config.json"))?;
        if let Some(films) = alone.or_else(|| section("video_processor")) {
            found["video_processor"] = films;
        }
    }
    Ok(found)
}

/// How sound becomes an input of a model that sees, too.
fn hearing(folder: &Path, config: &Value) -> Result<Value> {
    let all = ["vision_config", "audio_config"]
        .iter()
        .all(|key| config.get(key).is_some_and(Value::is_object));
    if !all {
        return Ok(json!({}));
    }
    let said = read_json_if_there(&folder.join("processor_config.json"))?;
    let section = said.and_then(|mut said| said.get_mut("feature_extractor").map(Value::take));
    if let Some(section) = section.filter(Value::is_object) {
        return Ok(section);
    }
    // Older folders have both in one.
    let both = read_json_if_there(&folder.join("preprocessor_config.json"))?;
    let both = both.filter(|both| both.get("feature_extractor_type").is_some_and(Value::is_string));
    Ok(both.unwrap_or_else(|| json!({})))
}

/// What a folder has beside weights.
pub(crate) struct Texts {
    pub(crate) config: Value,
    pub(crate) generation_config: Value,
    pub(crate) tokenizer: Option<TokenizerFiles>,
    /// As [`SourceModel::front_end`].
    pub(crate) front_end: Value,
    /// As [`SourceModel::hearing`].
    pub(crate) hearing: Value,
}

/// Reads the texts of a folder; what is not there is empty.
pub(crate) fn open_texts(folder: &Path) -> Result<Texts> {
    let object = |name: &str| Ok(read_json_if_there(&folder.join(name))?.unwrap_or_else(|| json!({})));
    let config = object("config.json")?;
    Ok(Texts {
        front_end: front_end(folder, &config)?,
        hearing: hearing(folder, &config)?,
        generation_config: object("generation_config.json")?,
        tokenizer: read_tokenizer(folder)?,
        config,
    })
}

impl Texts {
    /// The tokens with a role, by the configurations; those beyond the vocabulary are left out.
    pub(crate) fn token_ids(&self, vocab_size: usize) -> TokenIds {
        let all = |key: &str| -> Vec<u32> {
            let id = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok());
            let found = [&self.generation_config, &self.config].map(|c| match c.get(key) {
                Some(Value::Array(ids)) => ids.iter().filter_map(id).collect(),
                Some(v) => id(v).into_iter().collect::<Vec<u32>>(),
                None => Vec::new(),
            });
            let mut found = found.concat();
            found.retain(|&t| (t as usize) < vocab_size);
            found
        };
        let mut eos = all("eos_token_id");
        eos.sort_unstable();
        eos.dedup();
        TokenIds {
            bos: all("bos_token_id").first().copied(),
            eos,
            pad: all("pad_token_id").first().copied(),
            add_bos: add_bos(self.tokenizer.as_ref()),
        }
    }
}

/// Whether a tokenizer says that texts begin with a token of their own.
pub(crate) fn add_bos(tokenizer: Option<&TokenizerFiles>) -> bool {
    let stated = tokenizer.and_then(|t| t.tokenizer_config.get("add_bos_token")?.as_bool());
    stated.unwrap_or(false)
}

/// Reads a JSON object.
pub(crate) fn read_json(path: &Path) -> Result<Value> {
    let text = std::fs::read(path).map_err(|e| Error::reading(path, e))?;
    let value: Value = serde_json::from_slice(&text)
        .map_err(|e| Error::malformed("expected a JSON object").in_file(path).caused_by(e))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(Error::malformed("expected a JSON object, found another JSON value").in_file(path))
    }
}

pub(crate) fn read_json_if_there(path: &Path) -> Result<Option<Value>> {
    match read_json(path) {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.kind() == crate::ErrorKind::Missing => Ok(None),
        Err(e) => Err(e),
    }
}

/// Forms of a tokenizer that older folders have instead of `tokenizer.json`.
const OTHER_TOKENIZERS: [&str; 3] = ["tokenizer.model", "vocab.json", "vocab.txt"];

fn read_tokenizer(folder: &Path) -> Result<Option<TokenizerFiles>> {
    let path = folder.join("tokenizer.json");
    let tokenizer_json = match std::fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return match OTHER_TOKENIZERS.iter().find(|f| folder.join(f).exists()) {
                Some(other) => Err(Error::unsupported(format!(
                    "the folder has `{other}` but no `tokenizer.json`, which is the only supported form"
                ))
                .in_file(folder)),
                None => Ok(None),
            };
        }
        Err(e) => return Err(Error::reading(&path, e)),
    };
    let tokenizer_config = read_json_if_there(&folder.join("tokenizer_config.json"))?.unwrap_or_else(|| json!({}));
    let template_path = folder.join("chat_template.jinja");
    let chat_template = match std::fs::read_to_string(&template_path) {
        Ok(text) => Some(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => template_of_config(&tokenizer_config),
        Err(e) => return Err(Error::reading(&template_path, e)),
    };
    Ok(Some(TokenizerFiles {
        tokenizer_json,
        tokenizer_config,
        chat_template,
    }))
}

/// `chat_template` of a `tokenizer_config.json`: a string, or a list of named ones, of which `default` counts.
fn template_of_config(config: &Value) -> Option<String> {
    let template = match config.get("chat_template")? {
        Value::Array(named) => named
            .iter()
            .find(|t| t.get("name").and_then(Value::as_str) == Some("default"))
            .or(named.first())?
            .get("template")?,
        other => other,
    };
    template.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, TensorSource, open};
    use std::fs;

    /// A safetensors file from rows of name, type, shape and data.
    fn safetensors(tensors: &[(&str, &str, &[usize], &[u8])]) -> Vec<u8> {
        let mut header = serde_json::Map::new();
        let mut data = Vec::new();
        for (name, dtype, shape, bytes) in tensors {
            let start = data.len();
            data.extend_from_slice(bytes);
            let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
            header.insert((*name).to_owned(), entry);
        }
        let header = serde_json::to_vec(&header).unwrap();
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header);
        file.extend(data);
        file
    }

    const F32_TWO: [u8; 8] = [0, 0, 128, 63, 0, 0, 0, 64];
    const F16_TWO: [u8; 4] = [0, 60, 0, 64];
    const BF16_TWO: [u8; 4] = [128, 63, 0, 64];

    /// File names with their bytes.
    type Files<'a> = &'a [(&'a str, &'a [u8])];

    fn folder(files: Files<'_>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        folder
    }

    #[test]
    fn open_single_file_reads_every_float_type() {
        let weights = safetensors(&[
            ("a", "F32", &[2], &F32_TWO),
            ("b", "F16", &[1, 2], &F16_TWO),
            ("c", "BF16", &[2, 1], &BF16_TWO),
            ("d", "I64", &[1], &[0; 8]),
        ]);
        let dir = folder(&[
            ("config.json", br#"{"model_type": "llama"}"#),
            ("model.safetensors", &weights),
        ]);
        let model = open(dir.path()).unwrap();
        assert_eq!(model.config["model_type"], "llama");
        assert!(model.tokenizer.is_none());
        let t = &model.tensors;
        assert_eq!(t.names(), ["a", "b", "c", "d"]);
        for (name, shape) in [("a", vec![2]), ("b", vec![1, 2]), ("c", vec![2, 1])] {
            let tensor = t.read(name).unwrap();
            assert_eq!(tensor.shape(), shape);
            assert_eq!(tensor.as_f32().unwrap(), [1.0, 2.0], "{name}");
        }
        let error = t.read("d").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("I64"), "{error}");
        assert_eq!(t.read("e").unwrap_err().kind(), ErrorKind::Missing);
        let about = "1 safetensors file, 4 tensors (BF16 1, F16 1, F32 1, I64 1)";
        assert_eq!(t.describe(), about);
    }

    #[test]
    fn open_sharded_reads_from_each_file() {
        let one = safetensors(&[("a", "F32", &[2], &F32_TWO)]);
        let two = safetensors(&[("b", "F16", &[2], &F16_TWO)]);
        let index = br#"{"metadata": {}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}"#;
        let dir = folder(&[
            ("model.safetensors.index.json", index),
            ("m-1.safetensors", &one),
            ("m-2.safetensors", &two),
        ]);
        let source = SafetensorsSource::open(dir.path()).unwrap();
        assert_eq!(source.files().len(), 2);
        for name in ["a", "b"] {
            assert_eq!(source.read(name).unwrap().as_f32().unwrap(), [1.0, 2.0]);
        }
    }

    #[test]
    fn open_sharded_with_bad_index_is_an_error() {
        let one = safetensors(&[("a", "F32", &[2], &F32_TWO)]);
        let cases: &[(&str, ErrorKind)] = &[
            (r#"{"weight_map": {"a": "../m.safetensors"}}"#, ErrorKind::Malformed),
            (r#"{"weight_map": {"a": "/m.safetensors"}}"#, ErrorKind::Malformed),
            (r#"{"weight_map": {"a": 3}}"#, ErrorKind::Malformed),
            (r#"{"weight_map": 1}"#, ErrorKind::Malformed),
            (r#"[]"#, ErrorKind::Malformed),
            (r#"{"#, ErrorKind::Malformed),
            (r#"{"weight_map": {"a": "absent.safetensors"}}"#, ErrorKind::Missing),
            (r#"{"weight_map": {"x": "m.safetensors"}}"#, ErrorKind::Missing),
        ];
        for (index, kind) in cases {
            let dir = folder(&[
                ("model.safetensors.index.json", index.as_bytes()),
                ("m.safetensors", &one),
            ]);
            let error = SafetensorsSource::open(dir.path()).err().expect(index);
            assert_eq!(error.kind(), *kind, "{index}: {error}");
        }
    }

    #[test]
    fn open_truncated_or_padded_file_is_an_error() {
        let whole = safetensors(&[("a", "F32", &[2], &F32_TWO)]);
        let path = Path::new("model.safetensors");
        let open = |bytes: Vec<u8>| SafetensorsSource::from_bytes(path, std::sync::Arc::new(bytes));
        assert!(open(whole.clone()).is_ok());
        for len in 0..whole.len() {
            let error = open(whole[..len].to_vec()).err().expect("truncated");
            assert_eq!(error.kind(), ErrorKind::Malformed);
            assert_eq!(error.file(), Some(path));
        }
        let mut padded = whole;
        padded.push(0);
        assert!(open(padded).is_err());
    }

    #[test]
    fn open_without_needed_files_says_which() {
        let cases: &[(Files<'_>, &str)] = &[
            (&[], "config.json"),
            (&[("config.json", b"{}")], "model.safetensors"),
            (&[("config.json", b"{}"), ("tokenizer.model", b"")], "tokenizer.model"),
            (&[("config.json", b"3")], "config.json"),
            (
                &[("config.json", br#"{"quantization_config": {"quant_method": "gptq"}}"#)],
                "gptq",
            ),
        ];
        for (files, word) in cases {
            let dir = folder(files);
            let error = open(dir.path()).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(
            open(Path::new("no/such/folder")).unwrap_err().kind(),
            ErrorKind::Missing
        );
        let dir = folder(&[("x.bin", b"PK\x03\x04"), ("y.bin", b"")]);
        for name in ["x.bin", "y.bin"] {
            let error = open(&dir.path().join(name)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
    }

    #[test]
    fn parts_of_models_that_see_and_hear_have_names_of_their_own() {
        for (stored, own) in [
            ("language_model.norm.weight", "model.norm.weight"),
            (
                "vision_tower.timm_model.msfa.norm.weight",
                "vision_model.timm_model.msfa.norm.weight",
            ),
            (
                "audio_tower.conformer.0.norm.weight",
                "audio_model.layers.0.norm_out.weight",
            ),
            ("embed_vision.embedding.weight", "embed_vision.embedding.weight"),
        ] {
            assert_eq!(sentence::family_name("gemma3n", false, &format!("model.{stored}")), own);
        }
        assert_eq!(
            sentence::family_name("gemma3n", false, "lm_head.weight"),
            "lm_head.weight"
        );
        for (stored, own) in [
            ("language_model.norm.weight", "norm.weight"),
            ("model.language_model.ple.x", "ple.x"),
            ("layers.0.layer_scalar", "layers.0.layer_scalar"),
            (
                "embed_vision.embedding_projection.weight",
                "embed_vision.embedding_projection.weight",
            ),
        ] {
            assert_eq!(sentence::family_name("embedding_gemma2", true, stored), own);
        }
    }

    #[test]
    fn chat_template_prefers_its_own_file() {
        let weights = safetensors(&[]);
        let config = br#"{"chat_template": "from config", "bos_token": "<s>"}"#;
        let named =
            br#"{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}"#;
        let base: Files<'_> = &[
            ("config.json", b"{}"),
            ("model.safetensors", &weights),
            ("tokenizer.json", b"{}"),
        ];
        let cases: &[(Files<'_>, Option<&str>)] = &[
            (&[("tokenizer_config.json", config)], Some("from config")),
            (&[("tokenizer_config.json", named)], Some("d")),
            (
                &[("tokenizer_config.json", config), ("chat_template.jinja", b"from file")],
                Some("from file"),
            ),
            (&[], None),
        ];
        for (extra, want) in cases {
            let dir = folder(&[base, *extra].concat());
            let tokenizer = open(dir.path()).unwrap().tokenizer.unwrap();
            assert_eq!(tokenizer.chat_template.as_deref(), *want);
        }
    }
}
