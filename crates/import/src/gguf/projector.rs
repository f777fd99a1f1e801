//! The encoders of pictures and sounds that llama.cpp keeps in a file of their own (`mmproj`), beside the text model.
//!
//! Its tensors get Hugging Face names and its metadata become `vision_config`, so that the two files are the folder of which they were
//! made. What such a file does not hold (filter, tiles, budgets) is that of the released models of its kind. Each kind is a row of [`KINDS`];
//! what its files say is in the file of its encoder.

mod gemma3n;
mod gemma4;
mod gemma4_sound;
mod gemma4_unified;
mod qwen3_vl;
mod siglip;

use super::metadata::required;
use super::names::Change;
use super::source::{GgufSource, Part};
use super::{Metadata, TensorInfo};
use crate::{Error, Result, SourceModel, TensorSource, other_tokens};
use cactus_tensor::Tensor;
use serde_json::{Map, Value, json};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A kind of encoder.
struct Kind {
    /// `clip.projector_type`.
    projector: &'static str,
    /// `model_type` of the text model.
    of_text: &'static str,
    /// `model_type` of both together.
    family: &'static str,
    /// The name of a tensor and the change that its values need.
    name: fn(&Metadata, &TensorInfo) -> Option<(String, Change)>,
    /// Adds what a file says to the configuration, `vision_config` among it.
    configure: fn(&File<'_>, &mut Value) -> Result<()>,
    /// Adds what the released models do with a picture.
    prepare: fn(&Metadata, &mut Value) -> Result<()>,
    /// The tensors as Hugging Face has them, where names and changes of each alone are not enough.
    whole: fn(GgufSource) -> Result<Box<dyn TensorSource>>,
}

const KINDS: [Kind; 10] = [
    Kind {
        projector: "gemma3",
        of_text: "gemma3_text",
        family: "gemma3",
        name: siglip::gemma3_name,
        configure: siglip::configure_gemma3,
        prepare: siglip::prepare_gemma3,
        whole: as_it_is,
    },
    Kind {
        projector: "gemma3nv",
        of_text: "gemma3n_text",
        family: "gemma3n",
        name: gemma3n::name,
        configure: gemma3n::configure,
        prepare: gemma3n::prepare,
        whole: as_it_is,
    },
    Kind {
        projector: "gemma4v",
        of_text: "gemma4_text",
        family: "gemma4",
        name: gemma4::name,
        configure: gemma4::configure,
        prepare: gemma4::prepare,
        whole: as_it_is,
    },
    Kind {
        projector: "gemma4uv",
        of_text: "gemma4_text",
        family: "gemma4_unified",
        name: gemma4_unified::name,
        configure: gemma4_unified::configure,
        prepare: gemma4::prepare,
        whole: as_it_is,
    },
    Kind {
        projector: "idefics3",
        of_text: "llama",
        family: "smolvlm",
        name: siglip::name,
        configure: siglip::configure_idefics3,
        prepare: siglip::prepare_idefics3,
        whole: as_it_is,
    },
    Kind {
        projector: "lfm2",
        of_text: "lfm2",
        family: "lfm2_vl",
        name: siglip::lfm2_name,
        configure: siglip::configure_lfm2,
        prepare: siglip::prepare_lfm2,
        whole: as_it_is,
    },
    Kind {
        projector: "qwen3vl_merger",
        of_text: "qwen3_vl_text",
        family: "qwen3_vl",
        name: qwen3_vl::name,
        configure: qwen3_vl::configure,
        prepare: qwen3_vl::prepare,
        whole: qwen3_vl::whole,
    },
    Kind {
        projector: "qwen3vl_merger",
        of_text: "qwen3_vl_moe_text",
        family: "qwen3_vl_moe",
        name: qwen3_vl::name,
        configure: qwen3_vl::configure,
        prepare: qwen3_vl::prepare,
        whole: qwen3_vl::whole,
    },
    Kind {
        projector: "qwen3vl_merger",
        of_text: "qwen3_5_text",
        family: "qwen3_5",
        name: qwen3_vl::name,
        configure: qwen3_vl::configure,
        prepare: qwen3_vl::prepare,
        whole: qwen3_vl::whole,
    },
    Kind {
        projector: "qwen3vl_merger",
        of_text: "qwen3_5_moe_text",
        family: "qwen3_5_moe",
        name: qwen3_vl::name,
        configure: qwen3_vl::configure,
        prepare: qwen3_vl::prepare,
        whole: qwen3_vl::whole,
    },
];

fn as_it_is(source: GgufSource) -> Result<Box<dyn TensorSource>> {
    Ok(Box::new(source))
}

/// What a file says.
struct File<'a> {
    metadata: &'a Metadata,
    tensors: &'a [TensorInfo],
}

impl File<'_> {
    fn shape(&self, name: &str) -> Option<&[usize]> {
        let found = self.tensors.iter().find(|info| info.name == name);
        found.map(|info| &info.shape[..])
    }

    /// Rows of a matrix that has to be there.
    fn rows(&self, name: &str) -> Result<usize> {
        required(self.shape(name).and_then(|shape| shape.first()).copied(), name)
    }

    /// Numbers of `clip.vision`, by their fields of `vision_config`.
    fn vision(&self, fields: &[(&str, &str)]) -> Result<Map<String, Value>> {
        self.numbers("clip.vision", fields)
    }

    /// Numbers under `prefix`, by the fields that they are.
    fn numbers(&self, prefix: &str, fields: &[(&str, &str)]) -> Result<Map<String, Value>> {
        let of = |&(key, field): &(&str, &str)| {
            let found = count(self.metadata, &format!("{prefix}.{key}"))?;
            Ok((field.to_owned(), found.into()))
        };
        fields.iter().map(of).collect()
    }
}

/// `text` with the encoder of pictures in the GGUF file `path`.
///
/// # Errors
/// [`crate::ErrorKind::Unsupported`] where the file is no such encoder, of a kind that is not known, or not for that text model; otherwise
/// as [`super::open_file`].
pub(crate) fn with_pictures(text: SourceModel, path: &Path) -> Result<SourceModel> {
    joined(text, path).map_err(|e| e.in_file(path))
}

fn joined(text: SourceModel, path: &Path) -> Result<SourceModel> {
    let part = Part::open(path.to_path_buf())?;
    let metadata = part.file.metadata.clone();
    let architecture = metadata.string("general.architecture")?.unwrap_or_default();
    if architecture != "clip" {
        return Err(Error::unsupported(format!(
            "expected an encoder of pictures for llama.cpp (`mmproj`), found a GGUF file of the architecture `{architecture}`"
        )));
    }
    let projector = match metadata.string("clip.projector_type")? {
        Some(projector) => projector,
        None => required(metadata.string("clip.vision.projector_type")?, "clip.projector_type")?,
    };
    let kinds: Vec<&Kind> = KINDS.iter().filter(|kind| kind.projector == projector).collect();
    if kinds.is_empty() {
        let mut known: Vec<&str> = KINDS.iter().map(|kind| kind.projector).collect();
        known.dedup();
        return Err(Error::unsupported(format!(
            "the kind of encoder `{projector}` is not supported; supported are {}",
            known.join(", ")
        )));
    }
    let found = text
        .config
        .get("model_type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let Some(kind) = kinds.iter().find(|kind| kind.of_text == found) else {
        let texts: Vec<&str> = kinds.iter().map(|kind| kind.of_text).collect();
        return Err(Error::unsupported(format!(
            "it is for a text model of the family `{}`, and the other file is of `{found}`",
            texts.join("` or `")
        )));
    };
    let file = File {
        metadata: &metadata,
        tensors: &part.file.tensors,
    };
    let config = config(kind, &file, &text.config)?;
    let front_end = front_end(kind, &metadata)?;
    let vision = GgufSource::named(vec![part], &|_| false, |info| (kind.name)(&metadata, info))?;
    let vision = (kind.whole)(vision)?;
    let tensors = other_tokens::with_rows(Box::new(Joined([text.tensors, vision])), &config);
    Ok(SourceModel {
        config,
        front_end,
        tensors,
        ..text
    })
}

/// What stands beside a matrix whose input and result are kept within bounds.
const BOUNDS: [&str; 4] = ["input_min", "input_max", "output_min", "output_max"];

/// The own name of a norm, or of a matrix or its bounds, by the lists of their stems.
fn norm_or_bounded(rest: &str, norms: &[(&str, &'static str)], products: &[(&str, &'static str)]) -> Option<String> {
    let (stem, suffix) = rest.rsplit_once('.')?;
    match (suffix, beside(norms, stem), beside(products, stem)) {
        ("weight", Some(norm), _) => Some(format!("{norm}.weight")),
        ("weight", None, Some(product)) => Some(format!("{product}.linear.weight")),
        (bound, None, Some(product)) if BOUNDS.contains(&bound) => Some(format!("{product}.{bound}")),
        _ => None,
    }
}

fn count(metadata: &Metadata, key: &str) -> Result<usize> {
    required(metadata.count(key)?, key)
}

/// The stem of a name and whether it is of weights or a bias; `None` for what is no weight.
fn stem_of(name: &str) -> Option<(&str, &str)> {
    let parts = name.rsplit_once('.');
    parts.filter(|(_, suffix)| matches!(*suffix, "weight" | "bias"))
}

/// The number of a layer, a plain decimal number, so that no two spellings collide, and what stands behind it.
fn of_layer(rest: &str) -> Option<(usize, &str)> {
    let (number, stem) = rest.split_once('.')?;
    let layer: usize = number.parse().ok()?;
    (layer.to_string() == number).then_some((layer, stem))
}

/// The name that stands beside `stem` in `list`.
fn beside(list: &[(&str, &'static str)], stem: &str) -> Option<&'static str> {
    list.iter().find(|row| row.0 == stem).map(|row| row.1)
}

fn config(kind: &Kind, file: &File<'_>, text: &Value) -> Result<Value> {
    let mut config = json!({
        "model_type": kind.family,
        "text_config": text,
        "tie_word_embeddings": text.get("tie_word_embeddings").cloned().unwrap_or(Value::Bool(false)),
    });
    for key in ["bos_token_id", "eos_token_id", "pad_token_id"] {
        if let Some(id) = text.get(key) {
            config[key] = id.clone();
        }
    }
    (kind.configure)(file, &mut config)?;
    config["vision_config"]["hidden_act"] = "gelu_pytorch_tanh".into();
    Ok(config)
}

/// Refuses other activations than GELU, in a file that says which it is.
fn with_gelu(file: &File<'_>) -> Result<()> {
    match file.metadata.bool("clip.use_gelu")? {
        Some(true) => Ok(()),
        _ => Err(Error::unsupported(
            "its activation is not supported; supported is the one of `clip.use_gelu`",
        )),
    }
}

/// What the released models of the kind do with a picture.
fn front_end(kind: &Kind, metadata: &Metadata) -> Result<Value> {
    let numbers = |key: &str| -> Result<Value> {
        let numbers = required(metadata.floats(key)?, key)?;
        Ok(numbers.iter().map(|&x| f64::from(x)).collect())
    };
    let mut fields = json!({
        "image_mean": numbers("clip.vision.image_mean")?,
        "image_std": numbers("clip.vision.image_std")?,
    });
    (kind.prepare)(metadata, &mut fields)?;
    Ok(fields)
}

/// The weights of two sources, whose names differ.
struct Joined([Box<dyn TensorSource>; 2]);

impl Joined {
    fn of(&self, name: &str) -> &dyn TensorSource {
        match self.0[1].shape(name) {
            Some(_) => &*self.0[1],
            None => &*self.0[0],
        }
    }
}

impl TensorSource for Joined {
    fn names(&self) -> Vec<&str> {
        let mut names = self.0[0].names();
        names.extend(self.0[1].names());
        names.sort_unstable();
        names
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.of(name).shape(name)
    }

    fn stored_type(&self, name: &str) -> Option<&'static str> {
        self.of(name).stored_type(name)
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        self.of(name).read(name)
    }

    fn read_rows(&self, name: &str, rows: Range<usize>) -> Option<Result<Tensor>> {
        self.of(name).read_rows(name, rows)
    }

    fn describe(&self) -> String {
        format!("{}; {}", self.0[0].describe(), self.0[1].describe())
    }

    fn files(&self) -> Vec<PathBuf> {
        let [text, vision] = &self.0;
        [text.files(), vision.files()].concat()
    }
}
