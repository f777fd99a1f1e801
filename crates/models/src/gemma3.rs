//! Gemma 3 that sees (`model_type` `gemma3`): SigLIP's encoder, the mean over the patches of a token, and the text model, in which the rows
//! of a picture see each other. Gemma team 2025.

use crate::config::{Config, describe, over};
use crate::layers::Norm;
use crate::picture_encoder::{self, Defaults, PictureEncoder, Projector};
use crate::registry::{MarksDef, SeesDef, ViewsDef};
use crate::{ModelDef, Result, gemma3_text, seeing};
use serde_json::{Value, json};

pub(crate) const MARKS: MarksDef = MarksDef {
    written: "<start_of_image>",
    token: "<image_soft_token>",
    start: "\n\n<start_of_image>",
    end: "<end_of_image>\n\n",
    only: "",
    tile: "",
    row_end: "",
    whole: "",
};

/// Tokens of a picture, where the configuration is silent.
const TOKENS: usize = 256;
/// Most tokens of a picture.
const MAX_TOKENS: usize = 1 << 14;

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let whole = filled(c);
    let c = &Config::new(c.family(), &whole)?;
    let [text, vision] = seeing::sections(c, "gemma3_text")?;
    let decoder = gemma3_text::seeing(&text)?;
    let tokens = c.size_or("mm_tokens_per_image", MAX_TOKENS, TOKENS)?;
    let defaults = Defaults {
        hidden: 768,
        heads: 12,
        patch: 16,
    };
    let table = |vision: &Config<'_>, patch| picture_encoder::square(vision, "image_size", 224, patch);
    let patch = picture_encoder::patch(&vision, &defaults)?;
    let [patches, side] = [table(&vision, patch)?.isqrt(), tokens.isqrt()];
    if side.pow(2) != tokens || !patches.is_multiple_of(side) {
        let what = format!(
            "{} is not supported: expected the square of a number that divides the {patches} patches of a side",
            describe(&tokens.into())
        );
        return Err(c.unsupported("mm_tokens_per_image", what));
    }
    let projector = Projector::Mean {
        at: "multi_modal_projector",
        norm: Norm {
            eps: vision.epsilon("layer_norm_eps", picture_encoder::EPS)?,
            plus_one: true,
        },
    };
    let rows = (patches / side, decoder.hidden_size, projector);
    let mut encoder = PictureEncoder::read(vision, &defaults, table, rows, "vision_model")?;
    encoder.one_size = true;
    let sees = SeesDef {
        views: ViewsDef::Whole,
        places: None,
        channels_last: false,
        marks: MARKS,
        ..seeing::of(&encoder)
    };
    seeing::beside(c, decoder, encoder.component()?, sees)
}

/// The configuration with what released ones leave out of the section for texts: there the defaults of transformers stand for it.
fn filled(c: &Config<'_>) -> Value {
    let text = json!({
        "vocab_size": 262_208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 131_072,
    });
    let mut whole = c.fields().clone();
    if let Some(Value::Object(given)) = whole.get_mut("text_config") {
        *given = over(text, given);
    }
    whole.into()
}
