//! Qwen3.5 (`model_type` `qwen3_5`): a gated delta net on three layers of four, attention with gates on the fourth, of whose heads a part is turned,
//! and the encoder of Qwen3-VL. Qwen team 2026.

use crate::config::{Config, Dims, describe, layer_types};
use crate::decoder::Decoder;
use crate::delta_net::DeltaNet;
use crate::grid_encoder::GridEncoder;
use crate::layers::{Norm, Normed};
use crate::media::{self, AXES};
use crate::qwen3_vl::MARKS;
use crate::rope::Rope;
use crate::{ModelDef, Result, seeing};

/// Which layers attend, where the configuration is silent: the last of so many.
const INTERVAL: usize = 4;
/// The part of a head that is turned, where it is silent.
const SHARE: f64 = 0.25;
/// Pairs that turn by time, row and column, where it is silent.
const SECTIONS: [usize; AXES] = [11, 11, 10];

/// The model that sees.
pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let [text, vision] = seeing::sections(c, "qwen3_5_text")?;
    let decoder = decoder(&text)?;
    beside(c, [text, vision], decoder)
}

/// The encoder of section `vision`, and `decoder` of section `text`.
pub(crate) fn beside(c: &Config<'_>, [text, vision]: [Config<'_>; 2], mut decoder: Decoder) -> Result<ModelDef> {
    decoder.tied = seeing::tied(c, &text, false)?;
    let encoder = GridEncoder::read(vision, decoder.dims.hidden, &[])?;
    let sections = media::sections(&text, decoder.rope.inv_freq.len(), SECTIONS)?;
    seeing::in_grids([c, &text], decoder, &encoder, sections, MARKS)
}

/// The language model alone.
pub(crate) fn build_text(c: &Config<'_>) -> Result<ModelDef> {
    decoder(c)?.generator(c)
}

/// The language model, with a gated MLP on every layer.
pub(crate) fn decoder(c: &Config<'_>) -> Result<Decoder> {
    let dims = Dims::read(c, Some(256))?;
    let rope = Rope::read_part(c, dims.head_dim, 10_000_000.0, SHARE)?;
    let mut decoder = Decoder::with_rope(c, dims, rope)?;
    decoder.attention_bias(c)?;
    decoder.norm = Norm {
        plus_one: true,
        ..decoder.norm
    };
    decoder.qk_norm = Some(Normed::Head);
    decoder.gated = true;
    let net = DeltaNet::read(c, decoder.dims.hidden, decoder.norm.eps)?;
    let layers = decoder.dims.layers;
    let attends = match layer_types(c, layers)? {
        Some(types) => {
            let attends = |t| match t {
                "full_attention" => Ok(true),
                "linear_attention" => Ok(false),
                other => {
                    let found = describe(&other.into());
                    let what =
                        format!("{found} is not supported; supported are `full_attention` and `linear_attention`");
                    Err(c.unsupported("layer_types", what))
                }
            };
            types.into_iter().map(attends).collect::<Result<Vec<bool>>>()?
        }
        None => {
            let interval = c.size_or("full_attention_interval", layers.max(1), INTERVAL)?;
            (1..=layers).map(|layer| layer.is_multiple_of(interval)).collect()
        }
    };
    decoder.nets = attends.into_iter().map(|attends| (!attends).then_some(net)).collect();
    Ok(decoder)
}
