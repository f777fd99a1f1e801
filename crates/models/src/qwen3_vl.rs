//! Qwen3-VL (`model_type` `qwen3_vl`): an encoder whose patches turn by row and column, and Qwen3, in which a picture stands in a grid (three
//! axes of positions, which take turns over the pairs of a head) and early layers add what the encoder's lower layers saw (DeepStack, Meng
//! et al. 2024). Bai et al. 2025.

use crate::config::Config;
use crate::decoder::Decoder;
use crate::grid_encoder::GridEncoder;
use crate::layers::Normed;
use crate::media::{self, AXES};
use crate::registry::MarksDef;
use crate::{ModelDef, Result, seeing};

pub(crate) const MARKS: MarksDef = MarksDef {
    written: "",
    token: "<|image_pad|>",
    start: "",
    end: "",
    only: "",
    tile: "",
    row_end: "",
    whole: "",
};

/// Layers of the encoder whose states are shown to the decoder, where the configuration is silent.
const TAPS: [usize; 3] = [8, 16, 24];
/// Pairs of a head that turn by time, row and column, where it is silent.
const SECTIONS: [usize; AXES] = [24, 20, 20];

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let [text, vision] = seeing::sections(c, "qwen3_vl_text")?;
    let decoder = Decoder::read(&text, Some(128), 500_000.0)?;
    beside(c, [text, vision], decoder)
}

/// The encoder of section `vision`, and `decoder` of section `text`, to which what is alike with experts and without is added.
pub(crate) fn beside(c: &Config<'_>, [text, vision]: [Config<'_>; 2], mut decoder: Decoder) -> Result<ModelDef> {
    decoder.attention_bias(&text)?;
    decoder.qk_norm = Some(Normed::Head);
    decoder.tied = seeing::tied(c, &text, false)?;
    let encoder = GridEncoder::read(vision, decoder.dims.hidden, &TAPS)?;
    let sections = media::sections(&text, decoder.dims.head_dim / 2, SECTIONS)?;
    seeing::in_grids([c, &text], decoder, &encoder, sections, MARKS)
}
