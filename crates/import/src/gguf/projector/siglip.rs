//! Encoders of SigLIP's form: Gemma 3 (`gemma3`), SmolVLM (`idefics3`) and LFM2-VL (`lfm2`).

use super::super::metadata::required;
use super::super::names::Change;
use super::super::{Metadata, TensorInfo};
use super::{File, beside, count, of_layer, stem_of, with_gelu};
use crate::Result;
use serde_json::{Map, Value, json};

/// Patches of a side that become one token of Gemma 3, where its file is silent.
const GEMMA3_MERGE: usize = 4;
/// Layers: the stems in the file, and where Hugging Face has them.
const LAYER: [(&str, &str); 6] = [
    ("ln1", "layer_norm1"),
    ("ln2", "layer_norm2"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_out", "self_attn.out_proj"),
];
/// The same outside of layers.
const OUTSIDE: [(&str, &str); 8] = [
    ("v.patch_embd", "vision_model.embeddings.patch_embedding"),
    ("v.position_embd", "vision_model.embeddings.position_embedding"),
    ("v.post_ln", "vision_model.post_layernorm"),
    ("mm.model.fc", "connector.modality_projection.proj"),
    ("mm.soft_emb_norm", "multi_modal_projector.mm_soft_emb_norm"),
    ("mm.input_norm", "multi_modal_projector.layer_norm"),
    ("mm.1", "multi_modal_projector.linear_1"),
    ("mm.2", "multi_modal_projector.linear_2"),
];
/// Numbers of the encoder, and their fields.
const NUMBERS: [(&str, &str); 6] = [
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("block_count", "num_hidden_layers"),
    ("attention.head_count", "num_attention_heads"),
    ("image_size", "image_size"),
    ("patch_size", "patch_size"),
];

pub(super) fn name(metadata: &Metadata, info: &TensorInfo) -> Option<(String, Change)> {
    let (stem, suffix) = stem_of(&info.name)?;
    let name = if let Some(rest) = stem.strip_prefix("v.blk.") {
        let (layer, stem) = of_layer(rest)?;
        // The first converters exchanged the names, so the shape decides.
        let intermediate = metadata.count("clip.vision.feed_forward_length").ok()?;
        let first = info.shape.first().copied() == intermediate;
        let own = match stem {
            "ffn_up" | "ffn_down" if first => "mlp.fc1",
            "ffn_up" | "ffn_down" => "mlp.fc2",
            _ => beside(&LAYER, stem)?,
        };
        format!("vision_model.encoder.layers.{layer}.{own}.{suffix}")
    } else {
        format!("{}.{suffix}", beside(&OUTSIDE, stem)?)
    };
    Some((name, Change::Keep))
}

pub(super) fn gemma3_name(metadata: &Metadata, info: &TensorInfo) -> Option<(String, Change)> {
    match info.name.as_str() {
        "mm.input_projection.weight" => {
            let name = "multi_modal_projector.mm_input_projection_weight";
            Some((name.to_owned(), Change::Keep))
        }
        // Stored as what is multiplied with; the model has one less.
        "mm.soft_emb_norm.weight" => Some((name(metadata, info)?.0, Change::MinusOne)),
        _ => name(metadata, info),
    }
}

pub(super) fn lfm2_name(metadata: &Metadata, info: &TensorInfo) -> Option<(String, Change)> {
    let (name, change) = name(metadata, info)?;
    // Stored as a convolution; the model has a product whose colors come last.
    let change = if info.shape.len() == 4 {
        Change::ColorsLast
    } else {
        change
    };
    Some((name, change))
}

fn vision(file: &File<'_>) -> Result<Map<String, Value>> {
    let mut vision = file.vision(&NUMBERS)?;
    let eps = "clip.vision.attention.layer_norm_epsilon";
    let found = required(file.metadata.float(eps)?, eps)?;
    vision.insert("layer_norm_eps".to_owned(), found.into());
    Ok(vision)
}

/// Patches of a side that become one token; none where the file is silent.
fn merge(file: &File<'_>) -> Result<Option<usize>> {
    file.metadata.count(MERGE)
}

const MERGE: &str = "clip.vision.projector.scale_factor";

pub(super) fn configure_gemma3(file: &File<'_>, config: &mut Value) -> Result<()> {
    with_gelu(file)?;
    let merge = merge(file)?.unwrap_or(GEMMA3_MERGE);
    let [image, patch] = ["image_size", "patch_size"].map(|key| count(file.metadata, &format!("clip.vision.{key}")));
    let side = image? / patch?.max(1) / merge.max(1);
    config["mm_tokens_per_image"] = side.saturating_mul(side).into();
    config["vision_config"] = vision(file)?.into();
    Ok(())
}

pub(super) fn configure_idefics3(file: &File<'_>, config: &mut Value) -> Result<()> {
    with_gelu(file)?;
    config["scale_factor"] = required(merge(file)?, MERGE)?.into();
    config["vision_config"] = vision(file)?.into();
    Ok(())
}

pub(super) fn configure_lfm2(file: &File<'_>, config: &mut Value) -> Result<()> {
    with_gelu(file)?;
    config["downsample_factor"] = required(merge(file)?, MERGE)?.into();
    config["projector_hidden_size"] = file.rows("mm.1.weight")?.into();
    config["projector_use_layernorm"] = file.shape("mm.input_norm.weight").is_some().into();
    config["projector_bias"] = file.shape("mm.1.bias").is_some().into();
    let mut vision = vision(file)?;
    vision.insert("num_patches".to_owned(), file.rows("v.position_embd.weight")?.into());
    config["vision_config"] = vision.into();
    Ok(())
}

pub(super) fn prepare_gemma3(metadata: &Metadata, fields: &mut Value) -> Result<()> {
    let side = count(metadata, "clip.vision.image_size")?;
    fields["size"] = json!({"height": side, "width": side});
    fields["resample"] = 2.into();
    Ok(())
}

pub(super) fn prepare_idefics3(metadata: &Metadata, fields: &mut Value) -> Result<()> {
    let tile = count(metadata, "clip.vision.image_size")?;
    let side = metadata.count("clip.vision.preproc_image_size")?.unwrap_or(tile);
    fields["size"] = json!({"longest_edge": side});
    fields["max_image_size"] = json!({"longest_edge": tile});
    fields["resample"] = 1.into();
    Ok(())
}

pub(super) fn prepare_lfm2(_: &Metadata, fields: &mut Value) -> Result<()> {
    fields["resample"] = 2.into();
    Ok(())
}
