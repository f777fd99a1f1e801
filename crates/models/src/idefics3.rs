//! Idefics 3 and SmolVLM (`model_type` `idefics3` and `smolvlm`): SigLIP's encoder, a product over the patches of a token, and Llama.
//! Laurençon et al. 2024, Marafioti et al. 2025.
//!
//! Pictures are enlarged to whole tiles, each of which the encoder sees alone, and the whole picture in the size of one.

use crate::config::Config;
use crate::decoder::Decoder;
use crate::media::Media;
use crate::picture_encoder::{self, Defaults, PictureEncoder, Projector};
use crate::registry::{FilmMarksDef, FilmsDef, FramesDef, MarksDef, PlacesDef, SeesDef, ViewsDef};
use crate::{ModelDef, Result, seeing};

const MARKS: MarksDef = MarksDef {
    written: "",
    token: "<image>",
    start: "",
    end: "<fake_token_around_image>",
    only: "<fake_token_around_image><global-img>",
    tile: "<fake_token_around_image><row_{row}_col_{column}>",
    row_end: "\n",
    whole: "\n<fake_token_around_image><global-img>",
};

const FILMS: FilmsDef = FilmsDef {
    frames: FramesDef::Below {
        rate: 1.0,
        most: 64,
        skip_seconds: 1.0,
    },
    marks: FilmMarksDef {
        written: "<video>",
        token: "<image>",
        start: "You are provided the following series of {count} frames from a {length} [H:MM:SS] video.\n",
        frame: "\nFrame from {time}:<fake_token_around_image><global-img>",
        frame_end: "<fake_token_around_image>",
        between: "",
        end: "\n\n",
    },
};

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let [text, vision] = seeing::sections(c, "llama")?;
    let mut decoder = Decoder::read(&text, None, 10_000.0)?;
    decoder.attention_bias(&text)?;
    decoder.media = Some(Media::Causal);
    decoder.tied = c.flag("tie_word_embeddings", false)?;
    let merge = picture_encoder::merge(c, "scale_factor", 2)?;
    let projector = Projector::Product {
        weight: "connector.modality_projection.proj",
    };
    let defaults = Defaults {
        hidden: 1152,
        heads: 16,
        patch: 32,
    };
    let encoder = PictureEncoder::read(
        vision,
        &defaults,
        |vision, patch| picture_encoder::square(vision, "image_size", 224, patch),
        (merge, decoder.dims.hidden, projector),
        "vision_model",
    )?;
    let sees = SeesDef {
        views: ViewsDef::LongSide,
        places: Some(PlacesDef::Nearest),
        channels_last: false,
        marks: MARKS,
        films: (c.family() == "smolvlm").then_some(FILMS),
        ..seeing::of(&encoder)
    };
    seeing::beside(c, decoder.build(&text)?, encoder.component()?, sees)
}
