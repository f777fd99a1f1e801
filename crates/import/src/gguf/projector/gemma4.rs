//! The encoder of pictures of Gemma 4 (`gemma4v`): names, configuration, and filters whose colors llama.cpp has before rows. That of sounds is in the same
//! file.

use super::super::names::Change;
use super::super::{Metadata, TensorInfo};
use super::{File, gemma4_sound, norm_or_bounded, of_layer};
use crate::Result;
use serde_json::Value;

/// Layers: the stems in the file, and where Hugging Face has them.
const NORMS: [(&str, &str); 6] = [
    ("ln1", "input_layernorm"),
    ("ln2", "pre_feedforward_layernorm"),
    ("attn_post_norm", "post_attention_layernorm"),
    ("ffn_post_norm", "post_feedforward_layernorm"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
];
/// Matrices, which may have bounds beside them.
const PRODUCTS: [(&str, &str); 7] = [
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_out", "self_attn.o_proj"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];
/// Outside of layers.
const OUTSIDE: [(&str, &str, Change); 5] = [
    (
        "v.patch_embd.weight",
        "vision_model.patch_embedder.input_proj.weight",
        Change::ColorsLast,
    ),
    (
        "v.position_embd.weight",
        "vision_model.patch_embedder.position_embedding_table",
        Change::Keep,
    ),
    ("v.std_bias", "vision_model.std_bias", Change::Keep),
    ("v.std_scale", "vision_model.std_scale", Change::Keep),
    (
        "mm.input_projection.weight",
        "embed_vision.embedding_projection.weight",
        Change::Keep,
    ),
];
/// Numbers of the encoder, and their fields.
const NUMBERS: [(&str, &str); 5] = [
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("block_count", "num_hidden_layers"),
    ("attention.head_count", "num_attention_heads"),
    ("patch_size", "patch_size"),
];

pub(super) fn name(_: &Metadata, info: &TensorInfo) -> Option<(String, Change)> {
    if let Some((_, own, change)) = OUTSIDE.iter().find(|row| row.0 == info.name) {
        return Some(((*own).to_owned(), *change));
    }
    if let Some(heard) = gemma4_sound::name(info) {
        return Some(heard);
    }
    let (layer, rest) = of_layer(info.name.strip_prefix("v.blk.")?)?;
    let own = norm_or_bounded(rest, &NORMS, &PRODUCTS)?;
    Some((format!("vision_model.encoder.layers.{layer}.{own}"), Change::Keep))
}

pub(super) fn configure(file: &File<'_>, config: &mut Value) -> Result<()> {
    let mut vision = file.vision(&NUMBERS)?;
    let head_dim = file.rows("v.blk.0.attn_q_norm.weight")?;
    vision.insert("head_dim".to_owned(), head_dim.into());
    // A table for columns and one for rows.
    if let Some(&[2, positions, _]) = file.shape("v.position_embd.weight") {
        vision.insert("position_embedding_size".to_owned(), positions.into());
    }
    let has = |name: &str| Value::from(file.shape(name).is_some());
    vision.insert("use_clipped_linears".to_owned(), has("v.blk.0.attn_q.input_min"));
    vision.insert("standardize".to_owned(), has("v.std_scale"));
    config["vision_config"] = vision.into();
    if let Some(audio) = gemma4_sound::configuration(file)? {
        config["audio_config"] = audio;
    }
    Ok(())
}

pub(super) fn prepare(_: &Metadata, fields: &mut Value) -> Result<()> {
    fields["do_normalize"] = false.into();
    Ok(())
}
