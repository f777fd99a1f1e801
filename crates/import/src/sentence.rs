//! Folders of sentence-transformers: what stands around the transformer. `modules.json` lists modules in order, each with a folder of
//! its own; prompts and limits lie in files beside it.
//!
//! A module is known by the last component of its class, for the packages that classes lie in have changed. What is not known is
//! refused by its name: a module that is left out gives wrong vectors without an error.

use crate::safetensors::SINGLE_FILE;
use crate::{Error, ErrorKind, Result, SafetensorsSource, TensorSource, hf, open_weights};
use cactus_tensor::Tensor;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

const LIST: &str = "modules.json";

/// What a folder of sentence-transformers says beside the transformer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SentenceFolder {
    /// The modules behind the transformer, in order: the configuration of each with its `kind` and its `path`.
    pub modules: Vec<Value>,
    /// Most tokens of a text.
    pub max_seq_length: Option<usize>,
    /// Whether texts are put into lower case first.
    pub lower_case: bool,
    /// What stands before texts, by name.
    pub prompts: BTreeMap<String, String>,
    /// Name of the prompt of a text of which nothing is said.
    pub default_prompt: Option<String>,
    /// How vectors are compared.
    pub similarity: Option<String>,
}

/// Fields of module configurations that are known, by kind.
const KNOWN: [(&str, &[&str]); 7] = [
    (
        "Transformer",
        &[
            "max_seq_length",
            "do_lower_case",
            "transformer_task",
            "modality_config",
            "module_output_name",
            "model_args",
            "tokenizer_args",
            "config_args",
            "processing_kwargs",
        ],
    ),
    (
        "Pooling",
        &[
            "word_embedding_dimension",
            "embedding_dimension",
            "pooling_mode",
            "pooling_mode_cls_token",
            "pooling_mode_mean_tokens",
            "pooling_mode_max_tokens",
            "pooling_mode_mean_sqrt_len_tokens",
            "pooling_mode_weightedmean_tokens",
            "pooling_mode_lasttoken",
            "include_prompt",
        ],
    ),
    (
        "Dense",
        &[
            "in_features",
            "out_features",
            "bias",
            "activation_function",
            "use_residual",
            "module_input_name",
            "module_output_name",
        ],
    ),
    ("Normalize", &["module_input_name", "module_output_name"]),
    ("LayerNorm", &["dimension"]),
    ("Dropout", &["dropout"]),
    ("LogitScore", &["true_token_id", "false_token_id", "module_input_name"]),
];

/// What the folder says, and the folder of the transformer itself; `None` where it is none of sentence-transformers.
///
/// # Errors
/// What is damaged, leaves the folder, or is not supported, by name.
pub(crate) fn read(folder: &Path) -> Result<Option<(SentenceFolder, PathBuf)>> {
    let path = folder.join(LIST);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::reading(&path, e)),
    };
    let malformed = |what: &str| Error::malformed(what).in_file(&path);
    let list: Vec<Map<String, Value>> =
        serde_json::from_slice(&text).map_err(|e| malformed("expected a list of modules").caused_by(e))?;
    let mut modules = Vec::new();
    for entry in &list {
        let text = |key: &str| entry.get(key).and_then(Value::as_str);
        let class = text("type").ok_or_else(|| malformed("a module has no `type`"))?;
        let kind = class.rsplit('.').next().unwrap_or(class);
        let at = text("path").unwrap_or_default();
        let inside = Path::new(at).components().all(|c| matches!(c, Component::Normal(_)));
        if !inside {
            return Err(malformed("the path of a module leaves the folder"));
        }
        let order = entry.get("idx").and_then(Value::as_u64).unwrap_or(modules.len() as u64);
        modules.push((order, kind.to_owned(), at.to_owned()));
    }
    modules.sort_by_key(|(order, ..)| *order);
    let mut modules = modules.into_iter();
    let Some((_, kind, base)) = modules.next() else {
        return Err(malformed("the list of modules is empty"));
    };
    if kind != "Transformer" {
        let what = format!(
            "the first module of the folder is `{}`, which is not supported; supported is `Transformer`",
            short(&kind)
        );
        return Err(Error::unsupported(what).in_file(&path));
    }
    let base_folder = folder.join(&base);
    let mut out = SentenceFolder::default();
    transformer(&base_folder, &mut out)?;
    for (_, kind, at) in modules {
        if kind == "Dropout" {
            continue;
        }
        let config_path = folder.join(&at).join("config.json");
        let mut config = match hf::read_json_if_there(&config_path)? {
            Some(Value::Object(config)) => config,
            _ => Map::new(),
        };
        known(&kind, &config, &config_path)?;
        // Vectors that are not those of the chain before belong to another model.
        let input = config.get("module_input_name").and_then(Value::as_str);
        if input.is_some_and(|name| !["sentence_embedding", "token_embeddings", "causal_logits"].contains(&name)) {
            let what = format!(
                "field `module_input_name`: `{}` is not supported",
                short(input.unwrap_or_default())
            );
            return Err(Error::unsupported(what).in_file(&config_path));
        }
        config.insert("kind".to_owned(), kind.into());
        config.insert("path".to_owned(), at.into());
        out.modules.push(Value::Object(config));
    }
    let path = folder.join("config_sentence_transformers.json");
    if let Some(config) = hf::read_json_if_there(&path)? {
        let text = |key: &str| config.get(key).and_then(Value::as_str).map(str::to_owned);
        if let Some(prompts) = config.get("prompts").and_then(Value::as_object) {
            let texts = prompts
                .iter()
                .filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned())));
            out.prompts = texts.collect();
        }
        out.default_prompt = text("default_prompt_name");
        out.similarity = text("similarity_fn_name");
    }
    Ok(Some((out, base_folder)))
}

/// What the transformer's own configuration says; of its several names the first that is there.
fn transformer(folder: &Path, out: &mut SentenceFolder) -> Result<()> {
    const NAMES: [&str; 7] = [
        "bert",
        "roberta",
        "distilbert",
        "camembert",
        "albert",
        "xlm-roberta",
        "xlnet",
    ];
    let named = NAMES.iter().map(|name| format!("sentence_{name}_config.json"));
    let Some(path) = named.map(|name| folder.join(name)).find(|path| path.exists()) else {
        return Ok(());
    };
    let config = hf::read_json(&path)?;
    let fields = config.as_object().cloned().unwrap_or_default();
    known("Transformer", &fields, &path)?;
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    if let Some(task) = text("transformer_task")
        && !["feature-extraction", "text-generation"].contains(&task)
    {
        let what = format!("field `transformer_task`: `{}` is not supported", short(task));
        return Err(Error::unsupported(what).in_file(&path));
    }
    out.max_seq_length = fields
        .get("max_seq_length")
        .and_then(Value::as_u64)
        .and_then(|n| usize::try_from(n).ok());
    out.lower_case = fields.get("do_lower_case").and_then(Value::as_bool).unwrap_or(false);
    Ok(())
}

/// Refuses a kind that is not known, and a field that its configuration should not have.
fn known(kind: &str, config: &Map<String, Value>, path: &Path) -> Result<()> {
    let Some((_, fields)) = KNOWN.iter().find(|(name, _)| *name == kind) else {
        let names: Vec<&str> = KNOWN.iter().skip(1).map(|(name, _)| *name).collect();
        let what = format!(
            "the module `{}` of sentence-transformers is not supported; supported behind the transformer are {}",
            short(kind),
            names.join(", ")
        );
        return Err(Error::unsupported(what).in_file(path));
    };
    match config
        .iter()
        .find(|(key, value)| !fields.contains(&key.as_str()) && !value.is_null())
    {
        None => Ok(()),
        Some((key, _)) => {
            let what = format!("field `{}` of the module `{kind}` is not supported", short(key));
            Err(Error::unsupported(what).in_file(path))
        }
    }
}

fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

/// `modules` as the configuration has them for the model family.
pub(crate) fn complete(config: &mut Value, folder: &SentenceFolder) {
    if let Some(fields) = config.as_object_mut() {
        fields.insert("text_modules".to_owned(), json!(folder.modules));
    }
}

/// The weights of a transformer under the names of its family, and those of the modules behind it.
pub(crate) struct SentenceSource {
    sources: Vec<Box<dyn TensorSource>>,
    /// Name to the source that has it, and its name there.
    names: BTreeMap<String, (usize, String)>,
}

impl SentenceSource {
    /// `transformer` with its names changed by `renamed`, and the weights of `modules`, which lie in folders of `folder`, behind the
    /// folder's name.
    pub(crate) fn new(
        transformer: Box<dyn TensorSource>,
        renamed: impl Fn(&str) -> String,
        folder: &Path,
        modules: &[Value],
    ) -> Result<SentenceSource> {
        let own: Vec<(String, (usize, String))> = transformer
            .names()
            .into_iter()
            .map(|name| (renamed(name), (0, name.to_owned())))
            .collect();
        let mut out = SentenceSource {
            names: own.into_iter().collect(),
            sources: vec![transformer],
        };
        for module in modules {
            let text = |key: &str| module.get(key).and_then(Value::as_str).unwrap_or_default();
            if !["Dense", "LayerNorm"].contains(&text("kind")) {
                continue;
            }
            let at = folder.join(text("path"));
            let pickled = at.join("pytorch_model.bin");
            let source = match at.join(SINGLE_FILE).exists() || !pickled.exists() {
                true => Box::new(SafetensorsSource::open(&at)?),
                false => open_weights(&pickled)?,
            };
            let prefix = text("path").replace('/', ".");
            for name in source.names() {
                out.names
                    .insert(format!("{prefix}.{name}"), (out.sources.len(), name.to_owned()));
            }
            out.sources.push(source);
        }
        Ok(out)
    }

    fn find(&self, name: &str) -> Option<(&dyn TensorSource, &str)> {
        let (source, own) = self.names.get(name)?;
        Some((self.sources.get(*source)?.as_ref(), own))
    }
}

impl TensorSource for SentenceSource {
    fn names(&self) -> Vec<&str> {
        self.names.keys().map(String::as_str).collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        let (source, own) = self.find(name)?;
        source.shape(own)
    }

    fn stored_type(&self, name: &str) -> Option<&'static str> {
        let (source, own) = self.find(name)?;
        source.stored_type(own)
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        match self.find(name) {
            Some((source, own)) => source.read(own),
            None => Err(Error::new(ErrorKind::Missing, "there is no such tensor").of_tensor(name)),
        }
    }

    fn read_rows(&self, name: &str, rows: Range<usize>) -> Option<Result<Tensor>> {
        let (source, own) = self.find(name)?;
        source.read_rows(own, rows)
    }

    fn describe(&self) -> String {
        let all: Vec<String> = self.sources.iter().map(|s| s.describe()).collect();
        all.join("; ")
    }

    fn files(&self) -> Vec<PathBuf> {
        self.sources.iter().flat_map(|s| s.files()).collect()
    }
}

/// The name under which the family `model_type` knows the tensor `name`: that of its model without a head, as it is saved alone.
pub(crate) fn family_name(model_type: &str, embeds: bool, name: &str) -> String {
    match model_type {
        "bert" | "roberta" | "xlm-roberta" => {
            let prefix = if model_type == "bert" { "bert." } else { "roberta." };
            let name = name.strip_prefix(prefix).unwrap_or(name);
            // As the first checkpoints have it.
            let old = [
                ("LayerNorm.gamma", "LayerNorm.weight"),
                ("LayerNorm.beta", "LayerNorm.bias"),
            ];
            let found = old
                .iter()
                .find_map(|(old, new)| Some(format!("{}{new}", name.strip_suffix(old)?)));
            found.unwrap_or_else(|| name.to_owned())
        }
        "modernbert" => name.strip_prefix("model.").unwrap_or(name).to_owned(),
        _ if embeds && !name.starts_with("model.") && !name.starts_with("lm_head.") => format!("model.{name}"),
        _ => name.to_owned(),
    }
}
