//! Gemma 4 that sees and hears (`model_type` `gemma4`): an encoder for pictures of any shape, whose tokens are a budget, one for sounds in the small
//! models, and the text model. The rows of a picture see each other in layers with a window, where the model is large, and see what is before
//! them in the small ones, as those of a sound always do. Gemma team 2026.

use crate::axial_encoder::AxialEncoder;
use crate::config::Config;
use crate::gemma4_text::{self, Gemma4};
use crate::picture_encoder::PICTURE_ENCODER;
use crate::registry::{FilmMarksDef, FilmsDef, FramesDef, HeardDef, MarksDef, SeesDef, SoundMarksDef, ViewsDef};
use crate::sound_encoder::SoundEncoder;
use crate::{ModelDef, Result, seeing};

pub(crate) const MARKS: MarksDef = MarksDef {
    written: "",
    token: "<|image|>",
    start: "<|image>",
    end: "<image|>",
    only: "",
    tile: "",
    row_end: "",
    whole: "",
};

pub(crate) const FILMS: FilmsDef = FilmsDef {
    frames: FramesDef::Parts(32),
    marks: FilmMarksDef {
        written: "<|video|>",
        token: "<|image|>",
        start: "",
        frame: "{time} <|image>",
        frame_end: "<image|>",
        between: " ",
        end: "",
    },
};

pub(crate) const SOUND_MARKS: SoundMarksDef = SoundMarksDef {
    token: "<|audio|>",
    start: "<|audio>",
    end: "<audio|>",
};

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let [text, vision] = seeing::sections(c, "gemma4_text")?;
    let mut decoder = Gemma4::read(&text, gemma4_text::USUAL)?;
    decoder.media = true;
    decoder.tied = seeing::tied(c, &text, true)?;
    let encoder = AxialEncoder::read(&vision, decoder.dims.hidden)?;
    let sees = SeesDef {
        component: PICTURE_ENCODER,
        patch: encoder.patch,
        merge: encoder.merge,
        table: encoder.sides,
        views: ViewsDef::Budget,
        places: None,
        channels_last: true,
        copies: 1,
        marks: MARKS,
        films: Some(FILMS),
    };
    let hidden = decoder.dims.hidden;
    let model = seeing::beside(c, decoder.generator(&text)?, encoder.component()?, sees)?;
    match c.section("audio_config", "audio_config.")? {
        Some(audio) => {
            let encoder = SoundEncoder::read(&audio, hidden)?;
            let heard = HeardDef::Spectrogram(encoder.subsampling.bands);
            encoder.beside(model, heard, SOUND_MARKS)
        }
        None => Ok(model),
    }
}
