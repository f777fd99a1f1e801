//! What follows the transformer, as a folder of sentence-transformers lists it. What is not known is refused by its name: left out, it would
//! give other vectors without an error.

use super::PoolingDef;
use crate::config::{Config, MAX_VOCAB, MAX_WIDTH, describe};
use crate::{Error, ErrorKind};
use cactus_ir::UnaryFn;
use serde_json::Value;

/// Field of the configuration with the modules behind the transformer.
pub(crate) const MODULES: &str = "text_modules";
/// Field of the configuration that says that each token has a vector of its own.
pub(super) const OF_TOKENS: &str = "text_token_vectors";
/// Field of the configuration that says that queries are filled up with tokens that are seen by none.
pub(super) const UNSEEN: &str = "text_expansion_unseen";

/// What follows the transformer.
#[derive(Clone, Debug)]
pub(crate) enum Module {
    Pooling(Vec<PoolingDef>),
    Dense(Dense),
    Normalize,
    /// Name of its weights, where it has such, and width.
    LayerNorm(Option<String>, usize),
    LogitScore(LogitScore),
}

/// The logit of one token, less that of another where there is one.
#[derive(Clone, Debug)]
pub(crate) struct LogitScore {
    pub(super) yes: usize,
    pub(super) no: Option<usize>,
    /// A head of the tokens that count alone, by which they are numbered: its name and its rows.
    pub(super) head: Option<(String, usize)>,
}

impl Module {
    /// A dense layer without bias and activation.
    pub(crate) fn projection(name: &str, from: usize, to: usize) -> Module {
        Module::Dense(Dense {
            name: name.to_owned(),
            from,
            to,
            bias: false,
            activation: None,
        })
    }

    /// A dense layer with a bias and without activation.
    pub(crate) fn head(name: &str, from: usize, to: usize) -> Module {
        Module::Dense(Dense {
            name: name.to_owned(),
            from,
            to,
            bias: true,
            activation: None,
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Dense {
    pub(super) name: String,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) bias: bool,
    pub(super) activation: Option<UnaryFn>,
}

/// The modules that the configuration lists; the mean where it lists none.
pub(crate) fn modules(c: &Config<'_>) -> crate::Result<Vec<Module>> {
    let Some(list) = c.get(MODULES) else {
        return Ok(vec![Module::Pooling(vec![PoolingDef::Mean])]);
    };
    let list = list
        .as_array()
        .ok_or_else(|| c.invalid(MODULES, "expected a list of modules"))?;
    let of = |m: &Value| match m["path"].as_str() {
        Some(path) if !path.is_empty() => format!("module `{path}`"),
        _ => format!("module {}", describe(&m["kind"])),
    };
    list.iter().map(|m| module(c, m).map_err(|e| e.of(&of(m)))).collect()
}

fn module(c: &Config<'_>, value: &Value) -> crate::Result<Module> {
    let m = Config::new(c.family(), value)?;
    let name = || -> crate::Result<String> {
        let path = m.text("path")?.unwrap_or_default();
        if path.is_empty() {
            return Err(m.invalid("path", "expected the folder of the module's weights"));
        }
        Ok(path.replace('/', "."))
    };
    match m.text("kind")?.unwrap_or_default() {
        "Pooling" => Ok(Module::Pooling(pooling(&m)?)),
        "Normalize" => Ok(Module::Normalize),
        "LogitScore" => Ok(Module::LogitScore(LogitScore {
            yes: m.size("true_token_id", 0..=MAX_VOCAB)?,
            no: m.size_if_set("false_token_id", 0..=MAX_VOCAB)?,
            head: match m.text("head")? {
                None => None,
                Some(name) => Some((name.to_owned(), m.size("head_rows", 1..=MAX_VOCAB)?)),
            },
        })),
        "LayerNorm" => Ok(Module::LayerNorm(
            Some(format!("{}.norm", name()?)),
            m.size("dimension", 1..=MAX_WIDTH)?,
        )),
        "Dense" => {
            let activation = match m.text("activation_function")? {
                // What an old folder does not say is this one.
                None => Some(UnaryFn::Tanh),
                Some(path) => match path.rsplit('.').next().unwrap_or_default() {
                    "Identity" => None,
                    "Tanh" => Some(UnaryFn::Tanh),
                    "ReLU" => Some(UnaryFn::Relu),
                    "GELU" => Some(UnaryFn::GeluErf),
                    "SiLU" => Some(UnaryFn::Silu),
                    "Sigmoid" => Some(UnaryFn::Sigmoid),
                    other => {
                        let what = format!(
                            "{} is not supported; supported are Identity, Tanh, ReLU, GELU, SiLU and Sigmoid",
                            describe(&other.into())
                        );
                        return Err(m.unsupported("activation_function", what));
                    }
                },
            };
            if m.flag("use_residual", false)? {
                return Err(m.unsupported("use_residual", "a dense layer beside a residual is not supported"));
            }
            Ok(Module::Dense(Dense {
                name: format!("{}.linear", name()?),
                from: m.size("in_features", 1..=MAX_WIDTH)?,
                to: m.size("out_features", 1..=MAX_WIDTH)?,
                bias: m.flag("bias", true)?,
                activation,
            }))
        }
        other => {
            let what = format!(
                "the module {} of sentence-transformers is not supported; supported are Pooling, Dense, LayerNorm and Normalize",
                describe(&other.into())
            );
            Err(Error::new(ErrorKind::Unsupported, c.family(), what))
        }
    }
}

/// The modes by their names, and by the switches of older folders.
const MODES: [(&str, &str, PoolingDef); 6] = [
    ("cls", "pooling_mode_cls_token", PoolingDef::First),
    ("lasttoken", "pooling_mode_lasttoken", PoolingDef::Last),
    ("mean", "pooling_mode_mean_tokens", PoolingDef::Mean),
    (
        "mean_sqrt_len_tokens",
        "pooling_mode_mean_sqrt_len_tokens",
        PoolingDef::MeanSqrt,
    ),
    (
        "weightedmean",
        "pooling_mode_weightedmean_tokens",
        PoolingDef::WeightedMean,
    ),
    ("max", "pooling_mode_max_tokens", PoolingDef::Max),
];

/// The order in which older folders put the results of several switches.
const SWITCHES: [PoolingDef; 6] = [
    PoolingDef::First,
    PoolingDef::Max,
    PoolingDef::Mean,
    PoolingDef::MeanSqrt,
    PoolingDef::WeightedMean,
    PoolingDef::Last,
];

fn pooling(m: &Config<'_>) -> crate::Result<Vec<PoolingDef>> {
    if !m.flag("include_prompt", true)? {
        let what = "the prompt cannot be left out of the pooling yet";
        return Err(m.unsupported("include_prompt", what));
    }
    let named = match m.get("pooling_mode") {
        None => None,
        Some(Value::String(one)) => Some(vec![one.as_str()]),
        Some(_) => m.texts("pooling_mode")?,
    };
    let found: Vec<PoolingDef> = match named {
        Some(names) => names
            .into_iter()
            .map(|name| {
                let mode = MODES.iter().find(|(known, ..)| *known == name);
                mode.map(|(.., mode)| *mode).ok_or_else(|| {
                    let known: Vec<&str> = MODES.iter().map(|(known, ..)| *known).collect();
                    let what = format!(
                        "{} is not supported; supported are {}",
                        describe(&name.into()),
                        known.join(", ")
                    );
                    m.unsupported("pooling_mode", what)
                })
            })
            .collect::<crate::Result<_>>()?,
        None => {
            let mut found = Vec::new();
            for mode in SWITCHES {
                let switch = MODES.iter().find(|(.., of)| *of == mode).map(|(_, switch, _)| *switch);
                if m.flag(switch.unwrap_or_default(), false)? {
                    found.push(mode);
                }
            }
            found
        }
    };
    match found.is_empty() {
        true => Err(m.invalid(
            "pooling_mode",
            "its `config.json` names no way of pooling, or is not there",
        )),
        false => Ok(found),
    }
}
