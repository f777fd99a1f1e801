//! What Gemma 4 hears with (`gemma4a`), in the file of its encoder of pictures: names and configuration. How many positions a block has such a file does
//! not say; it is that of the released models.

use super::super::TensorInfo;
use super::super::names::Change;
use super::{File, beside, norm_or_bounded, of_layer};
use crate::Result;
use serde_json::{Map, Value};

/// Norms of layers: the stems in the file, and where Hugging Face has them.
const NORMS: [(&str, &str); 9] = [
    ("ffn_norm", "feed_forward1.pre_layer_norm"),
    ("ffn_post_norm", "feed_forward1.post_layer_norm"),
    ("ffn_norm_1", "feed_forward2.pre_layer_norm"),
    ("ffn_post_norm_1", "feed_forward2.post_layer_norm"),
    ("attn_pre_norm", "norm_pre_attn"),
    ("attn_post_norm", "norm_post_attn"),
    ("conv_norm", "lconv1d.pre_layer_norm"),
    ("norm_conv", "lconv1d.conv_norm"),
    ("ln2", "norm_out"),
];
/// Matrices, which may have bounds beside them.
pub(super) const PRODUCTS: [(&str, &str); 10] = [
    ("ffn_up", "feed_forward1.ffw_layer_1"),
    ("ffn_down", "feed_forward1.ffw_layer_2"),
    ("ffn_up_1", "feed_forward2.ffw_layer_1"),
    ("ffn_down_1", "feed_forward2.ffw_layer_2"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_out", "self_attn.post"),
    ("conv_pw1", "lconv1d.linear_start"),
    ("conv_pw2", "lconv1d.linear_end"),
];
/// Other weights of layers.
const OTHERS: [(&str, &str, Change); 3] = [
    ("attn_k_rel.weight", "self_attn.relative_k_proj.weight", Change::Keep),
    (
        "per_dim_scale.weight",
        "self_attn.per_dim_scale",
        Change::BeforeSoftplus,
    ),
    (
        "conv_dw.weight",
        "lconv1d.depthwise_conv1d.weight",
        Change::DepthwiseTaps,
    ),
];
/// The convolutions before the layers.
pub(super) const CONVOLUTIONS: [(&str, &str); 4] = [
    (
        "a.conv1d.0.weight",
        "audio_model.subsample_conv_projection.layer0.conv.weight",
    ),
    (
        "a.conv1d.0.norm.weight",
        "audio_model.subsample_conv_projection.layer0.norm.weight",
    ),
    (
        "a.conv1d.1.weight",
        "audio_model.subsample_conv_projection.layer1.conv.weight",
    ),
    (
        "a.conv1d.1.norm.weight",
        "audio_model.subsample_conv_projection.layer1.norm.weight",
    ),
];
/// What else is outside of layers.
const OUTSIDE: [(&str, &str); 4] = [
    (
        "a.input_projection.weight",
        "audio_model.subsample_conv_projection.input_proj_linear.weight",
    ),
    ("a.pre_encode.out.weight", "audio_model.output_proj.weight"),
    ("a.pre_encode.out.bias", "audio_model.output_proj.bias"),
    (
        "mm.a.input_projection.weight",
        "embed_audio.embedding_projection.weight",
    ),
];
/// Numbers of the encoder, and their fields.
const NUMBERS: [(&str, &str); 3] = [
    ("embedding_length", "hidden_size"),
    ("block_count", "num_hidden_layers"),
    ("attention.head_count", "num_attention_heads"),
];

pub(super) fn name(info: &TensorInfo) -> Option<(String, Change)> {
    let outside = beside(&CONVOLUTIONS, &info.name).or_else(|| beside(&OUTSIDE, &info.name));
    if let Some(own) = outside {
        return Some((own.to_owned(), Change::Keep));
    }
    let (layer, rest) = of_layer(info.name.strip_prefix("a.blk.")?)?;
    let at = |own: &str| format!("audio_model.layers.{layer}.{own}");
    if let Some((_, own, change)) = OTHERS.iter().find(|row| row.0 == rest) {
        return Some((at(own), *change));
    }
    let own = norm_or_bounded(rest, &NORMS, &PRODUCTS)?;
    Some((at(&own), Change::Keep))
}

/// `audio_config`, where the file has an encoder of sounds.
pub(super) fn configuration(file: &File<'_>) -> Result<Option<Value>> {
    if file.metadata.bool("clip.has_audio_encoder")? != Some(true) {
        return Ok(None);
    }
    let mut audio: Map<String, Value> = file.numbers("clip.audio", &NUMBERS)?;
    let channels = [0, 1].map(|i| file.rows(&format!("a.conv1d.{i}.weight")));
    let [first, second] = channels;
    audio.insert("subsampling_conv_channels".to_owned(), vec![first?, second?].into());
    audio.insert(
        "output_proj_dims".to_owned(),
        file.rows("a.pre_encode.out.weight")?.into(),
    );
    if let Some(&[.., taps]) = file.shape("a.blk.0.conv_dw.weight") {
        audio.insert("conv_kernel_size".to_owned(), taps.into());
    }
    let bounded = file.shape("a.blk.0.attn_q.input_min").is_some();
    audio.insert("use_clipped_linears".to_owned(), bounded.into());
    Ok(Some(audio.into()))
}
