//! What Gemma 3n sees (`gemma3nv`) and hears with (`gemma3na`), which llama.cpp keeps in one file. Blocks of pictures have their Hugging Face names there, and
//! what the file does not say of them is in the shapes of their tensors: sides of filters, numbers of heads, by how much a block widens. What
//! it does not say of sounds is that of the released models.

use super::super::names::Change;
use super::super::{Metadata, TensorInfo};
use super::gemma4_sound::{CONVOLUTIONS, PRODUCTS};
use super::{File, beside, count, norm_or_bounded, of_layer};
use crate::{Error, Result};
use serde_json::{Map, Value, json};

/// Norms of the layers of sounds: the stems in the file, and where Hugging Face has them, as Gemma 4 calls them.
const NORMS: [(&str, &str); 9] = [
    ("ffn_norm", "feed_forward1.pre_layer_norm"),
    ("ffn_post_norm", "feed_forward1.post_layer_norm"),
    ("ffn_norm_1", "feed_forward2.pre_layer_norm"),
    ("ffn_post_norm_1", "feed_forward2.post_layer_norm"),
    ("ln1", "norm_pre_attn"),
    ("ln2", "norm_post_attn"),
    ("conv_norm", "lconv1d.pre_layer_norm"),
    ("norm_conv", "lconv1d.conv_norm"),
    ("layer_pre_norm", "norm_out"),
];
/// Other weights of these layers. Files differ in whether the name of one says that it is a weight.
const OTHERS: [(&str, &str); 4] = [
    ("linear_pos.weight", "self_attn.relative_k_proj.weight"),
    ("conv_dw.weight", "lconv1d.depthwise_conv1d.weight"),
    ("per_dim_scale.weight", "self_attn.per_dim_scale"),
    ("per_dim_scale", "self_attn.per_dim_scale"),
];
/// Outside of layers and blocks.
const OUTSIDE: [(&str, &str); 9] = [
    (
        "a.pre_encode.out.weight",
        "audio_model.subsample_conv_projection.input_proj_linear.weight",
    ),
    ("mm.a.embedding.weight", "embed_audio.embedding.weight"),
    ("mm.a.hard_emb_norm.weight", "embed_audio.hard_embedding_norm.weight"),
    ("mm.a.soft_emb_norm.weight", "embed_audio.soft_embedding_norm.weight"),
    (
        "mm.a.input_projection.weight",
        "embed_audio.embedding_projection.weight",
    ),
    ("mm.embedding.weight", "embed_vision.embedding.weight"),
    ("mm.hard_emb_norm.weight", "embed_vision.hard_embedding_norm.weight"),
    ("mm.soft_emb_norm.weight", "embed_vision.soft_embedding_norm.weight"),
    ("mm.input_projection.weight", "embed_vision.embedding_projection.weight"),
];
/// Numbers of the encoder of sounds, and their fields.
const NUMBERS: [(&str, &str); 4] = [
    ("embedding_length", "hidden_size"),
    ("block_count", "conf_num_hidden_layers"),
    ("attention.head_count", "conf_num_attention_heads"),
    ("num_mel_bins", "input_feat_size"),
];
/// Where timm's names begin.
const TIMM: &str = "vision_model.timm_model";
/// Most stages of blocks, and blocks of one.
const MAX_STAGES: usize = 4;
const MAX_BLOCKS: usize = 256;

pub(super) fn name(_: &Metadata, info: &TensorInfo) -> Option<(String, Change)> {
    own(&info.name).map(|own| (own, Change::Keep))
}

fn own(name: &str) -> Option<String> {
    if let Some(own) = beside(&OUTSIDE, name).or_else(|| beside(&CONVOLUTIONS, name)) {
        return Some(own.to_owned());
    }
    if let Some(rest) = name.strip_prefix("a.blk.") {
        let (layer, rest) = of_layer(rest)?;
        let other = beside(&OTHERS, rest).map(str::to_owned);
        let own = other.or_else(|| norm_or_bounded(rest, &NORMS, &PRODUCTS))?;
        return Some(format!("audio_model.layers.{layer}.{own}"));
    }
    let rest = name.strip_prefix("v.")?;
    if let Some(blocks) = rest.strip_prefix("blk.") {
        let (stage, rest) = of_layer(blocks)?;
        let (block, rest) = of_layer(rest)?;
        return Some(format!("{TIMM}.blocks.{stage}.{block}.{rest}"));
    }
    let known = rest.starts_with("conv_stem.") || rest.starts_with("msfa.");
    known.then(|| format!("{TIMM}.{rest}"))
}

pub(super) fn configure(file: &File<'_>, config: &mut Value) -> Result<()> {
    let [pictures, others] = ["mm", "mm.a"].map(|at| file.rows(&format!("{at}.embedding.weight")));
    let (pictures, others) = (pictures?, others?);
    let vocab = config["text_config"].get("vocab_size").and_then(Value::as_u64);
    let vocab = vocab.and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let Some(first) = vocab.checked_sub(pictures + others) else {
        let what = format!(
            "it has {} tokens that are no text, and the text model has {vocab} tokens in all",
            pictures + others
        );
        return Err(Error::unsupported(what));
    };
    let side = tokens(file.metadata)?;
    let mut args = json!({"block_args": blocks(file)?, "msfa_output_resolution": side});
    args["stem_size"] = file.rows("v.conv_stem.conv.weight")?.into();
    config["vision_config"] = json!({
        "model_args": args,
        "hidden_size": file.rows("v.msfa.norm.weight")?,
        "vocab_size": pictures,
        "vocab_offset": first,
    });
    config["vision_soft_tokens_per_image"] = (side * side).into();
    let mut audio: Map<String, Value> = file.numbers("clip.audio", &NUMBERS)?;
    let channels = [0, 1].map(|i| file.rows(&format!("a.conv1d.{i}.weight")));
    let [one, two] = channels;
    audio.insert("sscp_conv_channel_size".to_owned(), vec![one?, two?].into());
    if let Some(&[.., taps]) = file.shape("a.blk.0.conv_dw.weight") {
        audio.insert("conf_conv_kernel_size".to_owned(), taps.into());
    }
    audio.insert("vocab_size".to_owned(), others.into());
    audio.insert("vocab_offset".to_owned(), (first + pictures).into());
    config["audio_config"] = audio.into();
    Ok(())
}

/// Tokens of a side: the file has the sides of a picture and how often that is all of its tokens.
fn tokens(metadata: &Metadata) -> Result<usize> {
    let [side, patch] = ["image_size", "patch_size"].map(|key| count(metadata, &format!("clip.vision.{key}")));
    let all = side? / patch?.max(1);
    Ok(all.isqrt())
}

/// The blocks of each stage, as timm decodes them. The first of a stage halves the sides.
fn blocks(file: &File<'_>) -> Result<Value> {
    let mut stages = Vec::new();
    let mut channels = file.rows("v.conv_stem.conv.weight")?;
    for stage in 0..MAX_STAGES {
        let mut blocks = Vec::new();
        for i in 0..MAX_BLOCKS {
            let Some((mut block, out)) = block(file, &format!("v.blk.{stage}.{i}"), channels) else {
                break;
            };
            block["stride"] = (if i == 0 { 2 } else { 1 }).into();
            block["out_chs"] = out.into();
            blocks.push(block);
            channels = out;
        }
        if blocks.is_empty() {
            break;
        }
        stages.push(blocks);
    }
    Ok(stages.into())
}

/// What the shapes of its tensors say of the block under `at`, which takes so many channels, and how many it gives.
fn block(file: &File<'_>, at: &str, channels: usize) -> Option<(Value, usize)> {
    let shape = |name: &str| file.shape(&format!("{at}.{name}.weight"));
    let rows = |name: &str| shape(name)?.first().copied();
    let side = |name: &str| shape(name).and_then(<[usize]>::last).copied();
    let ratio = |wide: usize| wide as f64 / channels.max(1) as f64;
    if let Some(wide) = rows("conv_exp") {
        let block = json!({"block_type": "er", "exp_kernel_size": side("conv_exp"), "exp_ratio": ratio(wide)});
        return Some((block, rows("conv_pwl")?));
    }
    if let Some(wide) = rows("pw_exp.conv") {
        let block = json!({
            "block_type": "uir",
            "dw_kernel_size_start": side("dw_start.conv").unwrap_or(0),
            "dw_kernel_size_mid": side("dw_mid.conv").unwrap_or(0),
            "exp_ratio": ratio(wide),
        });
        return Some((block, rows("pw_proj.conv")?));
    }
    let (wide, width) = (rows("attn.query.proj")?, rows("attn.key.proj")?);
    let down = side("attn.key.down_conv");
    let block = json!({
        "block_type": "mqa",
        "num_heads": wide / width.max(1),
        "key_dim": width,
        "value_dim": rows("attn.value.proj")?,
        "kv_stride": if down.is_some() { 2 } else { 1 },
        "dw_kernel_size": down.unwrap_or(3),
    });
    Some((block, rows("attn.output.proj")?))
}

pub(super) fn prepare(metadata: &Metadata, fields: &mut Value) -> Result<()> {
    let side = count(metadata, "clip.vision.image_size")?;
    fields["size"] = json!({"height": side, "width": side});
    fields["do_normalize"] = false.into();
    // Pillow's number of the bilinear filter, which the released models use.
    fields["resample"] = 2.into();
    Ok(())
}
