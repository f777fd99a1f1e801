//! Folders of sentence-transformers: what stands around the transformer. `modules.json` lists modules in order, each with a folder of
//! its own; prompts and limits lie in files beside it.
//!
//! A module is known by the last component of its class, for the packages that classes lie in have changed. What is not known is
//! refused by its name: a module that is left out gives wrong vectors without an error.

use crate::safetensors::SINGLE_FILE;
use crate::{Error, ErrorKind, Result, SafetensorsSource, TensorSource, conformer_names, hf, open_weights};
use cactus_tensor::Tensor;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

const LIST: &str = "modules.json";
/// Prompts that sentence-transformers has of every model, empty where its folder does not say them.
const EMPTY_PROMPTS: [&str; 2] = ["query", "document"];

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
    /// What becomes of texts whose tokens have vectors of their own; `None` where a text has one vector.
    pub late: Option<LateInteraction>,
    /// What the user should know of it.
    pub notes: Vec<String>,
}

/// What a folder of `PyLate` says of texts whose tokens have vectors of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LateInteraction {
    /// What stands before a query, as one token where the tokenizer has it.
    pub query_prefix: String,
    /// What stands before a document.
    pub document_prefix: String,
    /// Most tokens of a query.
    pub query_length: usize,
    /// Most tokens of a document.
    pub document_length: usize,
    /// Whether queries are filled up to so many.
    pub expands: bool,
    /// Whether what fills them up is seen by other tokens.
    pub attends: bool,
    /// Tokens of documents that are not compared.
    pub skiplist: Vec<String>,
}

/// What is not compared where a folder does not say it.
const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
/// Most tokens that a folder may ask for.
const MOST_LENGTH: u64 = 1 << 20;

impl LateInteraction {
    /// Reads `config_sentence_transformers.json`, whose fields have defaults.
    fn read(config: &Map<String, Value>, path: &Path) -> Result<LateInteraction> {
        const FIELDS: [&str; 12] = [
            "model_type",
            "__version__",
            "prompts",
            "default_prompt_name",
            "similarity_fn_name",
            "query_prefix",
            "document_prefix",
            "query_length",
            "document_length",
            "do_query_expansion",
            "attend_to_expansion_tokens",
            "skiplist_words",
        ];
        let refused =
            |key: &str, what: &str| Error::unsupported(format!("field `{}`: {what}", short(key))).in_file(path);
        let stated = |key: &str| config.get(key).filter(|v| !v.is_null());
        let unknown = config.keys().find(|key| !FIELDS.contains(&key.as_str()));
        if let Some(key) = unknown.filter(|key| stated(key).is_some()) {
            return Err(refused(
                key,
                "is not supported for models that give a vector of each token",
            ));
        }
        if stated("default_prompt_name").is_some() {
            return Err(refused(
                "default_prompt_name",
                "is not supported for models that give a vector of each token",
            ));
        }
        let texts = stated("prompts").and_then(Value::as_object).into_iter().flatten();
        if texts.into_iter().any(|(_, text)| text.as_str() != Some("")) {
            return Err(refused(
                "prompts",
                "are not supported for models that give a vector of each token",
            ));
        }
        if !matches!(
            stated("similarity_fn_name").map(Value::as_str),
            None | Some(Some("MaxSim" | "maxsim"))
        ) {
            return Err(refused("similarity_fn_name", "expected `MaxSim`"));
        }
        let text = |key: &str, default: &str| match stated(key) {
            None => Ok(default.to_owned()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(refused(key, "expected a text")),
        };
        let length = |key: &str, default: usize| match stated(key).map(Value::as_u64) {
            None => Ok(default),
            Some(Some(n @ 1..=MOST_LENGTH)) => Ok(n as usize),
            Some(_) => Err(refused(key, "expected a number of tokens")),
        };
        let flag = |key: &str, default: bool| match stated(key).map(Value::as_bool) {
            None => Ok(default),
            Some(Some(flag)) => Ok(flag),
            Some(None) => Err(refused(key, "expected true or false")),
        };
        let skiplist = match stated("skiplist_words") {
            None => PUNCTUATION.chars().map(String::from).collect(),
            Some(Value::Array(words)) if words.iter().all(Value::is_string) => {
                words.iter().filter_map(|w| w.as_str().map(str::to_owned)).collect()
            }
            Some(_) => return Err(refused("skiplist_words", "expected a list of texts")),
        };
        Ok(LateInteraction {
            query_prefix: text("query_prefix", "[Q] ")?,
            document_prefix: text("document_prefix", "[D] ")?,
            query_length: length("query_length", 32)?,
            document_length: length("document_length", 180)?,
            expands: flag("do_query_expansion", true)?,
            attends: flag("attend_to_expansion_tokens", false)?,
            skiplist,
        })
    }
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
    // Texts and pictures, with nothing behind them.
    let sees = kind == "CLIPModel" && modules.len() == 0;
    if kind != "Transformer" && !sees {
        let what = format!(
            "the first module of the folder is `{}`, which is not supported; supported are `Transformer`, and `CLIPModel` alone",
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
        if let Some(name) = out
            .default_prompt
            .as_deref()
            .filter(|name| !out.prompts.contains_key(*name) && !EMPTY_PROMPTS.contains(name))
        {
            let what = format!(
                "field `default_prompt_name`: `{}` is not among the prompts",
                short(name)
            );
            return Err(Error::malformed(what).in_file(&path));
        }
        let kinds: Vec<&str> = out.modules.iter().filter_map(|m| m["kind"].as_str()).collect();
        let one_vector = kinds.iter().any(|kind| ["Pooling", "LogitScore"].contains(kind));
        if let (false, false, Some(config)) = (kinds.is_empty(), one_vector, config.as_object()) {
            out.late = Some(LateInteraction::read(config, &path)?);
        }
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
        if let Some(late) = &folder.late {
            fields.insert("text_token_vectors".to_owned(), true.into());
            fields.insert(
                "text_expansion_unseen".to_owned(),
                (late.expands && !late.attends).into(),
            );
        }
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
        "idefics3" | "smolvlm" => seeing_name(name, "text_model."),
        "gemma3n" => conformer_names::own(&seeing_name(name, "language_model.")),
        "gemma3" | "gemma4" | "gemma4_unified" | "lfm2_vl" | "qwen3_5" | "qwen3_5_moe" | "qwen3_vl"
        | "qwen3_vl_moe" => seeing_name(name, "language_model."),
        "embedding_gemma2" | "embedding_gemma2_text" => {
            let name = name.strip_prefix("model.").unwrap_or(name);
            name.strip_prefix("language_model.").unwrap_or(name).to_owned()
        }
        "granitemoe" | "granitemoeshared" => granite_name(name),
        "modernbert" => name.strip_prefix("model.").unwrap_or(name).to_owned(),
        "nomic_bert" => nomic_name(name),
        "clip" | "clip_text_model" | "siglip" => name.to_owned(),
        _ if embeds && !name.starts_with("model.") && !name.starts_with("lm_head.") => format!("model.{name}"),
        _ => name.to_owned(),
    }
}

/// The name of a tensor of a model that sees, as its parts have it alone; `text` is before those of its language model.
fn seeing_name(name: &str, text: &str) -> String {
    let inner = name.strip_prefix("model.").unwrap_or(name);
    if let Some(rest) = inner.strip_prefix(text) {
        // Older checkpoints have a whole model in this place.
        let rest = rest.strip_prefix("model.").unwrap_or(rest);
        return match rest.starts_with("lm_head.") {
            true => rest.to_owned(),
            false => format!("model.{rest}"),
        };
    }
    if let Some(rest) = inner.strip_prefix("vision_tower.") {
        return format!("vision_model.{}", rest.strip_prefix("vision_model.").unwrap_or(rest));
    }
    if let Some(rest) = inner.strip_prefix("audio_tower.") {
        return format!("audio_model.{rest}");
    }
    inner.to_owned()
}

/// The name of a tensor of Granite with experts, as transformers has it in memory.
fn granite_name(name: &str) -> String {
    const EXPERTS: [(&str, &str); 3] = [
        ("input_linear.weight", "experts.gate_up_proj"),
        ("output_linear.weight", "experts.down_proj"),
        ("router.layer.weight", "router.weight"),
    ];
    let found = EXPERTS.iter().find_map(|(own, new)| {
        let prefix = name.strip_suffix(own)?;
        prefix.ends_with(".block_sparse_moe.").then(|| format!("{prefix}{new}"))
    });
    found.unwrap_or_else(|| name.to_owned())
}

/// The makers' name of a tensor of Nomic BERT, which may have the one that transformers has in memory.
fn nomic_name(name: &str) -> String {
    const PARTS: [(&str, &str); 7] = [
        ("self_attn.o_proj.", "attn.out_proj."),
        ("self_attn.", "attn."),
        ("mlp.up_proj.", "mlp.fc11."),
        ("mlp.gate_proj.", "mlp.fc12."),
        ("mlp.down_proj.", "mlp.fc2."),
        ("post_attention_layernorm.", "norm1."),
        ("post_mlp_layernorm.", "norm2."),
    ];
    let name = name.strip_prefix("nomic_bert.").unwrap_or(name);
    let name = name.strip_prefix("bert.").unwrap_or(name);
    if let Some(kind) = name.strip_prefix("embeddings.LayerNorm.") {
        return format!("emb_ln.{kind}");
    }
    let Some(rest) = name.strip_prefix("layers.") else {
        return name.to_owned();
    };
    let part = PARTS.iter().find(|(new, _)| rest.contains(new));
    let rest = part.map_or_else(|| rest.to_owned(), |(new, old)| rest.replacen(new, old, 1));
    format!("encoder.layers.{rest}")
}

/// Says in the configuration what only the names of the tensors say.
pub(crate) fn by_names(config: &mut Value, names: &[&str]) {
    let apart = names.iter().any(|name| name.ends_with(".self_attn.q_proj.weight"));
    let nomic = config.get("model_type").and_then(Value::as_str) == Some("nomic_bert");
    if let (true, true, Some(fields)) = (apart, nomic, config.as_object_mut()) {
        fields.insert("qkv_apart".to_owned(), true.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_prompt_is_one_of_the_prompts() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("bert");
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/embedding/bert");
        cactus_testkit::copy_folder(&golden, &folder);
        for (name, accepted) in [("title", true), ("query", true), ("document", true), ("nope", false)] {
            let config = json!({"prompts": {"title": "title: "}, "default_prompt_name": name});
            std::fs::write(folder.join("config_sentence_transformers.json"), config.to_string()).unwrap();
            match read(&folder) {
                Ok(found) => assert!(accepted && found.is_some(), "{name}"),
                Err(e) => assert!(!accepted && e.to_string().contains(name), "{name}: {e}"),
            }
        }
    }
}
