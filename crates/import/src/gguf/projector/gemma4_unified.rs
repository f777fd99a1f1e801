//! Gemma 4 12B, which has no encoders (`gemma4uv` and `gemma4ua`): names, configuration, and pixels whose colors llama.cpp has before rows.

use super::super::names::Change;
use super::super::source::COLORS;
use super::super::{Metadata, TensorInfo};
use super::File;
use crate::{Error, Result};
use serde_json::{Value, json};

/// Names in the file, and those of Hugging Face.
const NAMES: [(&str, &str, Change); 11] = [
    (
        "v.patch_norm.1.weight",
        "vision_embedder.patch_ln1.weight",
        Change::FlatColorsLast,
    ),
    (
        "v.patch_norm.1.bias",
        "vision_embedder.patch_ln1.bias",
        Change::FlatColorsLast,
    ),
    (
        "v.patch_embd.weight",
        "vision_embedder.patch_dense.weight",
        Change::FlatColorsLast,
    ),
    ("v.patch_embd.bias", "vision_embedder.patch_dense.bias", Change::Keep),
    (
        "v.patch_norm.2.weight",
        "vision_embedder.patch_ln2.weight",
        Change::Keep,
    ),
    ("v.patch_norm.2.bias", "vision_embedder.patch_ln2.bias", Change::Keep),
    (
        "v.position_embd.weight",
        "vision_embedder.pos_embedding",
        Change::Exchanged,
    ),
    ("v.patch_norm.3.weight", "vision_embedder.pos_norm.weight", Change::Keep),
    ("v.patch_norm.3.bias", "vision_embedder.pos_norm.bias", Change::Keep),
    (
        "mm.input_projection.weight",
        "embed_vision.embedding_projection.weight",
        Change::Keep,
    ),
    (
        "mm.a.input_projection.weight",
        "embed_audio.embedding_projection.weight",
        Change::Keep,
    ),
];

pub(super) fn name(_: &Metadata, info: &TensorInfo) -> Option<(String, Change)> {
    let (_, own, change) = NAMES.iter().find(|row| row.0 == info.name)?;
    Some(((*own).to_owned(), *change))
}

pub(super) fn configure(file: &File<'_>, config: &mut Value) -> Result<()> {
    // The text model is that of Gemma 4, but for what a configuration may leave out.
    config["text_config"]["model_type"] = "gemma4_unified_text".into();
    let mut vision = file.vision(&[("patch_size", "patch_size")])?;
    let (Some(&[rows, numbers]), Some(&[2, positions, _])) =
        (file.shape("v.patch_embd.weight"), file.shape("v.position_embd.weight"))
    else {
        let what =
            "expected `v.patch_embd.weight` of two axes, and `v.position_embd.weight` of three, the first of them 2";
        return Err(Error::malformed(what));
    };
    vision.insert("mm_embed_dim".to_owned(), rows.into());
    vision.insert("mm_posemb_size".to_owned(), positions.into());
    // A token is a square of patches.
    let side = (numbers / COLORS).isqrt();
    let patch = vision["patch_size"].as_u64().map_or(0, |n| n as usize);
    let merge = side.checked_div(patch).unwrap_or(0);
    if (merge * patch).pow(2).checked_mul(COLORS) != Some(numbers) {
        let what =
            format!("`v.patch_embd.weight` has {numbers} columns, which is no square of patches of {patch} pixels");
        return Err(Error::malformed(what));
    }
    vision.insert("pooling_kernel_size".to_owned(), merge.into());
    config["vision_config"] = vision.into();
    if let Some(&[_, samples]) = file.shape("mm.a.input_projection.weight") {
        config["audio_config"] = json!({"audio_embed_dim": samples});
    }
    Ok(())
}
