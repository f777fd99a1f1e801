//! What a model that writes text sees and hears with: its components, their precision, and the records of its front ends. And which
//! components may attend on integers.

use crate::convert::from_bundle;
use crate::source::TokenizerFiles;
use crate::{Error, ErrorKind, Result};
use cactus_bundle::{BundleWriter, HEARING_PATH, Hearing, VISION_PATH};
use cactus_models::ModelDef;
use cactus_passes::{Bits, Policy};
use cactus_vision::processor::Processor;

/// Why a model takes no pictures though it has the component for them.
pub(crate) const BLIND: &str =
    "the source has no `preprocessor_config.json`, so the bundle takes texts alone and no pictures";

/// What somebody should know of a model that takes more than is made of it here.
pub(crate) fn left_out(def: &ModelDef) -> Option<String> {
    (!def.left_out.is_empty()).then(|| {
        format!(
            "the source also takes {}, which are left out: the bundle takes texts alone",
            def.left_out.join(" and ")
        )
    })
}

/// The components of `def` that see or hear.
pub(crate) fn components(def: &ModelDef) -> Vec<&'static str> {
    let sees = def.sees.as_ref().map(|s| s.component);
    let hears = def.hears.as_ref().map(|h| h.component);
    sees.into_iter().chain(hears).collect()
}

/// Whether attention of the component `name` may be on integers: what sees or hears beside text, and encoders of a window of sound, which attend to
/// many positions.
pub(crate) fn may_attend_on_integers(def: &ModelDef, name: &str) -> bool {
    components(def).contains(&name) || def.sound.is_some_and(|sound| sound.component == name)
}

/// The precision of what sees or hears: no text calibrates or measures it, and what it loses, every answer loses. What stands before and behind its
/// layers is little work, and keeps 16 bits.
pub(crate) fn precision(policy: &Policy) -> Policy {
    let mut own = Policy {
        bits: policy.bits.max(Bits::Sixteen),
        ..policy.clone()
    };
    // As families call them.
    for layers in ["*.layers.*", "*.blocks.*"] {
        own.rules.push((layers.to_owned(), policy.bits.max(Bits::Eight)));
    }
    own
}

/// What somebody should know who asked for fewer bits than `component` gets.
pub(crate) fn keeps_more(component: &str, policy: &Policy) -> Option<String> {
    (policy.bits < Bits::Eight)
        .then(|| format!("`{component}` keeps 8 bits: no text calibrates it; a rule of a policy changes that"))
}

/// What somebody should know of how pictures and sounds can be shown: the tokenizer does not know their tokens where a text model and encoders of two models
/// were named together.
pub(crate) fn fit(
    tokenizer: Option<&TokenizerFiles>,
    vision: Option<&Processor>,
    hearing: Option<&Hearing>,
) -> Result<Option<String>> {
    let films = vision.and_then(|v| Some(&v.films.as_ref()?.marks.token));
    let pictures = vision.and_then(|v| Some(&v.marks.as_ref()?.token));
    let sounds = hearing.map(|h| &h.marks.token);
    let tokens: Vec<&String> = [pictures, films, sounds]
        .into_iter()
        .flatten()
        .filter(|token| !token.is_empty())
        .collect();
    let (Some(files), [_, ..]) = (tokenizer, &tokens[..]) else {
        return Ok(None);
    };
    let tokenizer = cactus_text::Tokenizer::from_bytes(&files.tokenizer_json)
        .map_err(|e| Error::new(ErrorKind::Malformed, "the tokenizer cannot be read").caused_by(e))?;
    if let Some(token) = tokens.into_iter().find(|token| tokenizer.token_id(token).is_none()) {
        return Ok(Some(format!(
            "the tokenizer does not know the token `{token}`, so the model can be shown nothing; expected a text model and encoders of one model"
        )));
    }
    Ok(files.chat_template.is_none().then(|| {
        "the source has no chat template, and without one the model is shown no pictures and sounds".to_owned()
    }))
}

/// Writes the records that there are.
pub(crate) fn add_records(
    writer: &mut BundleWriter,
    vision: Option<&Processor>,
    hearing: Option<&Hearing>,
) -> Result<()> {
    if let Some(vision) = vision {
        let bytes = serde_json::to_vec_pretty(vision).unwrap_or_default();
        writer.add_file(VISION_PATH, &bytes).map_err(from_bundle)?;
    }
    if let Some(hearing) = hearing {
        let bytes = serde_json::to_vec_pretty(hearing).unwrap_or_default();
        writer.add_file(HEARING_PATH, &bytes).map_err(from_bundle)?;
    }
    Ok(())
}
