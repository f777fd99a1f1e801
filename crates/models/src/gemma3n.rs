//! Gemma 3n that sees and hears (`model_type` `gemma3n`): a network of convolutions and attention for pictures, an encoder for sounds, whose rows
//! are always as many, tokens that are no text, and the text model. Gemma team 2025.

use crate::bounded::Bounded;
use crate::config::{Config, MAX_WIDTH};
use crate::gemma3n_text::Gemma3n;
use crate::mobile_encoder::{MobileEncoder, TOKEN_SIDE};
use crate::other_tokens::OtherTokens;
use crate::picture_encoder::PICTURE_ENCODER;
use crate::registry::{HeardDef, MarksDef, SeesDef, SoundMarksDef, ViewsDef};
use crate::sound_encoder::{Rows, SoundEncoder};
use crate::sound_positions::{self, Over, POSITION_FRAMES, Subsampling};
use crate::{ModelDef, Result, gemma3, seeing};
use serde_json::json;

/// A template writes the token itself.
const MARKS: MarksDef = MarksDef {
    written: "",
    ..gemma3::MARKS
};
const SOUND_MARKS: SoundMarksDef = SoundMarksDef {
    token: "<audio_soft_token>",
    start: "\n\n<start_of_audio>",
    end: "<end_of_audio>\n\n",
};
/// What stands before the fields of the encoder's layers.
const CONFORMER: &str = "conf_";
/// Rows of a sound, and positions of which the first is one, where the configuration is silent.
const SOUND_ROWS: usize = 188;
const REDUCED: usize = 4;
/// Most of them.
const MAX_ROWS: usize = 1 << 14;
const MAX_REDUCED: usize = 64;
/// Values that no state comes near, beyond which it would be cut off.
const UNREACHED: f64 = 1e6;

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let [text, vision] = seeing::sections(c, "gemma3n_text")?;
    let mut decoder = Gemma3n::read(&text)?;
    decoder.tied = seeing::tied(c, &text, true)?;
    let usual = json!({});
    let audio = match c.section("audio_config", "audio_config.")? {
        Some(audio) => audio,
        None => Config::new(c.family(), &usual)?,
    };
    decoder.media = true;
    decoder.others = Some(OtherTokens::read([&vision, &audio], &decoder.dims)?);
    let rows = c.size_or("audio_soft_tokens_per_image", MAX_ROWS, SOUND_ROWS)?;
    let encoder = sound_encoder(&audio, rows, decoder.dims.hidden)?;
    let pictures = MobileEncoder::read(&vision, decoder.dims.hidden)?;
    let tokens = pictures.side.pow(2);
    let found = c.size_or("vision_soft_tokens_per_image", MAX_ROWS, tokens)?;
    if found != tokens {
        let what = format!("expected {tokens}, as the encoder makes of a picture, found {found}");
        return Err(c.unsupported("vision_soft_tokens_per_image", what));
    }
    let sees = SeesDef {
        component: PICTURE_ENCODER,
        patch: TOKEN_SIDE,
        merge: 1,
        table: pictures.side,
        views: ViewsDef::Whole,
        places: None,
        channels_last: false,
        copies: 1,
        marks: MARKS,
        films: None,
    };
    let model = seeing::beside(c, decoder.generator(&text)?, pictures.component()?, sees)?;
    let heard = HeardDef::Windows(encoder.subsampling.bands);
    encoder.beside(model, heard, SOUND_MARKS)
}

/// The encoder of section `audio` with `all` rows for each sound, for a decoder of this width.
fn sound_encoder(audio: &Config<'_>, all: usize, width: usize) -> Result<SoundEncoder> {
    let mut encoder = SoundEncoder::read_named(audio, CONFORMER, 1536, width)?;
    for (key, each) in [("sscp_conv_kernel_size", 3), ("sscp_conv_stride_size", 2)] {
        let usual = json!([[each, each], [each, each]]);
        if audio.get(key).is_some_and(|found| *found != usual) {
            return Err(audio.unsupported(key, format!("expected {usual}")));
        }
    }
    let clipped = audio.number_if_set("gradient_clipping", 0.0..=f64::MAX)?;
    if let Some(clipped) = clipped.filter(|&clipped| clipped < UNREACHED) {
        let what = format!("{clipped} is not supported: states would be cut off there");
        return Err(audio.unsupported("gradient_clipping", what));
    }
    let bands = audio.size_or("input_feat_size", MAX_WIDTH, 128)?;
    if !bands.is_multiple_of(POSITION_FRAMES) {
        return Err(audio.unsupported("input_feat_size", format!("expected a multiple of 4, found {bands}")));
    }
    let of = audio.size_or("conf_reduction_factor", MAX_REDUCED, REDUCED)?;
    if !encoder.block.is_multiple_of(of) {
        let what = format!(
            "expected a number that divides `conf_attention_chunk_size`, {}",
            encoder.block
        );
        return Err(audio.unsupported("conf_reduction_factor", format!("{what}; found {of}")));
    }
    encoder.subsampling = Subsampling {
        bands,
        channels: sound_positions::channels(audio, "sscp_conv_channel_size")?,
        over: Over::TimesBefore,
        eps: audio.epsilon("sscp_conv_group_norm_eps", 1e-3)?,
        padding: [0, 2],
    };
    encoder.seen = encoder.block + 1;
    encoder.keys = None;
    encoder.bounded = Bounded(false);
    encoder.rows = Rows::First { of, all };
    Ok(encoder)
}
