//! LFM2-VL and LFM2.5-VL (`model_type` `lfm2_vl`): SigLIP 2's encoder for pictures of any shape, two products over the patches of a token,
//! and LFM2. Liquid AI 2025.

use crate::config::{Config, MAX_WIDTH, describe};
use crate::picture_encoder::{self, Defaults, PictureEncoder, Projector};
use crate::registry::{MarksDef, PlacesDef, SeesDef, ViewsDef};
use crate::{ModelDef, Result, lfm2, seeing};

const MARKS: MarksDef = MarksDef {
    written: "",
    token: "<image>",
    start: "<|image_start|>",
    end: "<|image_end|>",
    only: "",
    tile: "<|img_row_{row}_col_{column}|>",
    row_end: "",
    whole: "<|img_thumbnail|>",
};

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let [text, vision] = seeing::sections(c, "lfm2")?;
    let tie = if c.has("tie_embedding") {
        "tie_embedding"
    } else {
        "tie_word_embeddings"
    };
    let decoder = lfm2::decoder(&text, c.flag(tie, true)?)?;
    let activation = c.text("projector_hidden_act")?.unwrap_or("gelu");
    if activation != "gelu" {
        let what = format!("{} is not supported; supported is `gelu`", describe(&activation.into()));
        return Err(c.unsupported("projector_hidden_act", what));
    }
    if let Some(layer) = c.get("vision_feature_layer").filter(|layer| layer.as_i64() != Some(-1)) {
        let what = format!("{} is not supported; supported is -1, the last layer", describe(layer));
        return Err(c.unsupported("vision_feature_layer", what));
    }
    let projector = Projector::TwoLayers {
        at: "multi_modal_projector",
        norm: c.flag("projector_use_layernorm", true)?,
        width: c.size_or("projector_hidden_size", MAX_WIDTH, 2560)?,
        bias: c.flag("projector_bias", true)?,
    };
    let merge = picture_encoder::merge(c, "downsample_factor", 2)?;
    let defaults = Defaults {
        hidden: 768,
        heads: 12,
        patch: 16,
    };
    let encoder = PictureEncoder::read(
        vision,
        &defaults,
        |vision, _| picture_encoder::positions(vision, "num_patches", 256),
        (merge, decoder.hidden_size, projector),
        "vision_model",
    )?;
    let sees = SeesDef {
        views: ViewsDef::Tiles,
        places: Some(PlacesDef::Smoothed),
        channels_last: true,
        marks: MARKS,
        ..seeing::of(&encoder)
    };
    seeing::beside(c, decoder, encoder.component()?, sees)
}
