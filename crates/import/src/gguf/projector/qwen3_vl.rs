//! The encoder of Qwen3-VL (`qwen3vl_merger`): names, configuration, and filters over two frames, of which llama.cpp keeps a tensor each.

use super::super::metadata::required;
use super::super::names::Change;
use super::super::source::GgufSource;
use super::super::{Metadata, TensorInfo};
use super::{File, beside, of_layer, stem_of, with_gelu};
use crate::{Error, Result, TensorSource};
use cactus_tensor::Tensor;
use serde_json::{Value, json};
use std::ops::Range;
use std::path::PathBuf;

/// Layers: the stems in the file, and where Hugging Face has them.
const LAYER: [(&str, &str); 6] = [
    ("ln1", "norm1"),
    ("ln2", "norm2"),
    ("attn_qkv", "attn.qkv"),
    ("attn_out", "attn.proj"),
    ("ffn_up", "mlp.linear_fc1"),
    ("ffn_down", "mlp.linear_fc2"),
];
/// What is made of the states of a layer.
const MERGER: [(&str, &str); 3] = [("norm", "norm"), ("fc1", "linear_fc1"), ("fc2", "linear_fc2")];
/// The same outside of layers.
const OUTSIDE: [(&str, &str); 5] = [
    ("v.position_embd", "visual.pos_embed"),
    ("v.patch_embd", "visual.patch_embed.proj"),
    ("v.post_ln", "visual.merger.norm"),
    ("mm.0", "visual.merger.linear_fc1"),
    ("mm.2", "visual.merger.linear_fc2"),
];
/// Numbers of the encoder, and their fields.
const NUMBERS: [(&str, &str); 7] = [
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("block_count", "depth"),
    ("attention.head_count", "num_heads"),
    ("patch_size", "patch_size"),
    ("spatial_merge_size", "spatial_merge_size"),
    ("projection_dim", "out_hidden_size"),
];
/// Filters of both frames, as the file has them, and together.
const FRAMES: [&str; 2] = ["v.patch_embd.weight", "v.patch_embd.weight.1"];
const FILTERS: &str = "visual.patch_embed.proj.weight";
/// Pixels of the smallest and the largest picture of the released models.
const PIXELS: [usize; 2] = [65_536, 16_777_216];

/// Layers whose states become rows of their own.
fn taps(metadata: &Metadata) -> Result<Vec<usize>> {
    let key = "clip.vision.is_deepstack_layers";
    let flags = required(metadata.bools(key)?, key)?;
    Ok((0..flags.len()).filter(|&layer| flags[layer]).collect())
}

pub(super) fn name(metadata: &Metadata, info: &TensorInfo) -> Option<(String, Change)> {
    if FRAMES.contains(&info.name.as_str()) {
        return Some((info.name.clone(), Change::Keep));
    }
    let (stem, suffix) = stem_of(&info.name)?;
    let name = if let Some(rest) = stem.strip_prefix("v.blk.") {
        let (layer, stem) = of_layer(rest)?;
        format!("visual.blocks.{layer}.{}", beside(&LAYER, stem)?)
    } else if let Some(rest) = stem.strip_prefix("v.deepstack.") {
        let (layer, stem) = of_layer(rest)?;
        let index = taps(metadata).ok()?.iter().position(|&tap| tap == layer)?;
        format!("visual.deepstack_merger_list.{index}.{}", beside(&MERGER, stem)?)
    } else {
        beside(&OUTSIDE, stem)?.to_owned()
    };
    Some((format!("{name}.{suffix}"), Change::Keep))
}

pub(super) fn configure(file: &File<'_>, config: &mut Value) -> Result<()> {
    with_gelu(file)?;
    let mut vision = file.vision(&NUMBERS)?;
    vision.insert(
        "num_position_embeddings".to_owned(),
        file.rows("v.position_embd.weight")?.into(),
    );
    vision.insert("temporal_patch_size".to_owned(), FRAMES.len().into());
    vision.insert("deepstack_visual_indexes".to_owned(), json!(taps(file.metadata)?));
    config["vision_config"] = vision.into();
    Ok(())
}

pub(super) fn prepare(_: &Metadata, fields: &mut Value) -> Result<()> {
    let [fewest, most] = PIXELS;
    fields["size"] = json!({"shortest_edge": fewest, "longest_edge": most});
    fields["resample"] = 3.into();
    Ok(())
}

/// The filters of both frames as one tensor.
pub(super) fn whole(source: GgufSource) -> Result<Box<dyn TensorSource>> {
    Ok(Box::new(OfFrames::new(source)?))
}

/// A file whose filters are one tensor, `[filters, colors, frames, rows, columns]`.
struct OfFrames {
    source: GgufSource,
    /// Shape of the filters of a frame.
    shape: [usize; 4],
}

impl OfFrames {
    fn new(source: GgufSource) -> Result<OfFrames> {
        let [first, second] = FRAMES.map(|name| source.shape(name));
        let shape = first.filter(|first| Some(first) == second.as_ref());
        let shape = shape.as_deref().and_then(|shape| <[usize; 4]>::try_from(shape).ok());
        let expected = || {
            Error::unsupported(format!(
                "expected the filters of two frames, `{}`",
                FRAMES.join("` and `")
            ))
        };
        Ok(OfFrames {
            shape: shape.ok_or_else(expected)?,
            source,
        })
    }
}

impl TensorSource for OfFrames {
    fn names(&self) -> Vec<&str> {
        let mut names = self.source.names();
        names.retain(|name| !FRAMES.contains(name));
        names.push(FILTERS);
        names.sort_unstable();
        names
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        let [filters, colors, rows, columns] = self.shape;
        match name {
            FILTERS => Some(vec![filters, colors, FRAMES.len(), rows, columns]),
            _ if FRAMES.contains(&name) => None,
            _ => self.source.shape(name),
        }
    }

    fn stored_type(&self, name: &str) -> Option<&'static str> {
        self.source.stored_type(if name == FILTERS { FRAMES[0] } else { name })
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        if name != FILTERS {
            return self.source.read(name);
        }
        let [first, second] = [self.source.read(FRAMES[0])?, self.source.read(FRAMES[1])?];
        let [_, _, rows, columns] = self.shape;
        let number = |e: cactus_tensor::Error| Error::malformed(e.to_string()).of_tensor(FILTERS);
        let (first, second) = (first.as_f32().map_err(number)?, second.as_f32().map_err(number)?);
        let of_frame = (rows * columns).max(1);
        let both = first.chunks(of_frame).zip(second.chunks(of_frame));
        let values: Vec<f32> = both.flat_map(|(a, b)| a.iter().chain(b).copied()).collect();
        Tensor::from_f32(self.shape(FILTERS).unwrap_or_default(), values).map_err(number)
    }

    fn read_rows(&self, name: &str, rows: Range<usize>) -> Option<Result<Tensor>> {
        match name {
            FILTERS => None,
            _ => self.source.read_rows(name, rows),
        }
    }

    fn describe(&self) -> String {
        self.source.describe()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.source.files()
    }
}
