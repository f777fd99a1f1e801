//! What models share that see pictures and write text: the two sections of their configuration, and the encoder beside the decoder.

use crate::config::{Config, describe};
use crate::decoder::Decoder;
use crate::grid_encoder::GridEncoder;
use crate::media::{AXES, Grids, Media};
use crate::picture_encoder::{PICTURE_ENCODER, PictureEncoder};
use crate::registry::{self, ComponentDef, FilmMarksDef, FilmsDef, FramesDef, MarksDef, PlacesDef, SeesDef, ViewsDef};
use crate::{Error, ErrorKind, ModelDef, Result};

/// The sections for texts, of the family `family`, and for pictures.
pub(crate) fn sections<'a>(c: &Config<'a>, family: &str) -> Result<[Config<'a>; 2]> {
    let missing = |key: &str| {
        let what = format!("field `{key}` is missing; expected an object");
        Error::new(ErrorKind::Missing, c.family(), what)
    };
    let text = c
        .section("text_config", "text_config.")?
        .ok_or_else(|| missing("text_config"))?;
    let vision = c.section("vision_config", "vision_config.")?;
    let found = text.text("model_type")?.unwrap_or(family);
    if found != family {
        let what = format!("{} is not supported; supported is `{family}`", describe(&found.into()));
        return Err(text.unsupported("model_type", what));
    }
    Ok([text, vision.ok_or_else(|| missing("vision_config"))?])
}

/// Pairs of frames, with the marks of a picture around each.
const FILMS_IN_GRIDS: FilmsDef = FilmsDef {
    frames: FramesDef::Nearest {
        rate: 2.0,
        least: 4,
        most: 768,
    },
    marks: FilmMarksDef {
        written: "<|vision_start|><|video_pad|><|vision_end|>",
        token: "<|video_pad|>",
        start: "",
        frame: "<{time} seconds><|vision_start|>",
        frame_end: "<|vision_end|>",
        between: "",
        end: "",
    },
};

/// What is known of an encoder alone.
pub(crate) fn of(encoder: &PictureEncoder) -> SeesDef {
    SeesDef {
        component: PICTURE_ENCODER,
        patch: encoder.patch,
        merge: encoder.merge,
        table: encoder.table.isqrt(),
        views: ViewsDef::Tiles,
        places: Some(PlacesDef::Nearest),
        channels_last: false,
        copies: 1,
        marks: MarksDef::default(),
        films: None,
    }
}

/// `model` with an encoder of pictures before its decoder; `c` may know its tokens better than the section for texts.
pub(crate) fn beside(c: &Config<'_>, mut model: ModelDef, encoder: ComponentDef, sees: SeesDef) -> Result<ModelDef> {
    if c.has("eos_token_id") {
        model.eos_token_ids = c.token_ids("eos_token_id")?;
    }
    model.components.insert(0, encoder);
    model.task = registry::MULTIMODAL_LM;
    model.sees = Some(sees);
    Ok(model)
}

/// Whether the head is the embedding, which the section for texts says or the whole, or is as `usual`.
pub(crate) fn tied(c: &Config<'_>, text: &Config<'_>, usual: bool) -> Result<bool> {
    match text.has("tie_word_embeddings") {
        true => text.flag("tie_word_embeddings", usual),
        false => c.flag("tie_word_embeddings", usual),
    }
}

/// A model whose pictures stand in grids, with as many pairs of a head for each axis.
pub(crate) fn in_grids(
    [c, text]: [&Config<'_>; 2],
    mut decoder: Decoder,
    encoder: &GridEncoder,
    sections: [usize; AXES],
    marks: MarksDef,
) -> Result<ModelDef> {
    let layers = encoder.taps.len();
    if layers >= decoder.dims.layers {
        let what = format!(
            "{layers} layers need more than the {} of the text model",
            decoder.dims.layers
        );
        return Err(c.unsupported("vision_config.deepstack_visual_indexes", what));
    }
    decoder.media = Some(Media::InGrids(Grids { sections, layers }));
    let sees = SeesDef {
        component: PICTURE_ENCODER,
        patch: encoder.patch,
        merge: encoder.merge,
        table: encoder.table.isqrt(),
        views: ViewsDef::Bounds,
        places: Some(PlacesDef::Corners),
        channels_last: false,
        copies: encoder.times,
        marks,
        films: Some(FILMS_IN_GRIDS),
    };
    beside(c, decoder.generator(text)?, encoder.component()?, sees)
}
