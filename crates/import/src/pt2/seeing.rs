//! A captured model that writes about pictures or sounds. Its components take and give what those of its family do, so that one runtime shows both pictures and
//! plays both sounds; the records of how these are prepared come from the model's folder, read as for a folder that is converted.

use super::capture::Part;
use crate::convert::{self, from_models};
use crate::hf::Texts;
use crate::{Error, Result, hearing, pictures, senses};
use cactus_bundle::{BundleWriter, Hearing, TokenIds};
use cactus_ir::{BATCH, Dim, Graph, TensorType};
use cactus_models::{ModelDef, PICTURE_ENCODER, SOUND_ENCODER};
use cactus_vision::processor::Processor;
use std::path::Path;

/// Why a bundle takes no pictures and sounds though it has the components for them.
const NO_FOLDER: &str =
    "no folder of the model says how pictures and sounds are prepared, so the bundle takes texts alone";

/// What the folder of such a model says.
pub(crate) struct Seeing {
    def: ModelDef,
    vision: Option<Processor>,
    hearing: Option<Hearing>,
}

/// Whether a component of this name makes rows of pictures or sounds.
pub(crate) fn is_sense(component: &str) -> bool {
    [PICTURE_ENCODER, SOUND_ENCODER].contains(&component)
}

/// What is known of a model with the components `parts`, of whose folder these are the texts, and what a user should know; nothing where none of them sees or
/// hears. What sees is taken away where the folder does not say how pictures are prepared.
///
/// # Errors
/// What is not supported, naming the field.
pub(crate) fn read(
    parts: &mut Vec<Part>,
    texts: Option<&Texts>,
    folder: Option<&Path>,
) -> Result<(Option<Seeing>, Option<String>)> {
    let has = |parts: &[Part], component: &str| parts.iter().any(|p| p.name.as_deref() == Some(component));
    if ![PICTURE_ENCODER, SOUND_ENCODER].iter().any(|name| has(parts, name)) {
        return Ok((None, None));
    }
    let (Some(texts), Some(folder)) = (texts, folder) else {
        return Ok((None, Some(NO_FOLDER.to_owned())));
    };
    let def = cactus_models::build(&texts.config).map_err(|e| from_models(e, folder))?;
    let known = senses::components(&def);
    let foreign = |p: &&Part| {
        p.name
            .as_deref()
            .is_some_and(|name| is_sense(name) && !known.contains(&name))
    };
    if let Some(part) = parts.iter().find(foreign) {
        let what = format!(
            "models of the family `{}` have no component `{}`, and there is one in the capture",
            def.family,
            part.name.as_deref().unwrap_or_default()
        );
        return Err(Error::unsupported(what).in_file(&part.path));
    }
    let vision = match has(parts, PICTURE_ENCODER) {
        true => pictures::record(&def, &texts.front_end).map_err(|e| e.in_file(folder))?,
        false => None,
    };
    let hearing = match has(parts, SOUND_ENCODER) {
        true => hearing::record(&def, &texts.hearing).map_err(|e| e.in_file(folder))?,
        false => None,
    };
    let blind = has(parts, PICTURE_ENCODER) && vision.is_none();
    if blind {
        parts.retain(|p| p.name.as_deref() != Some(PICTURE_ENCODER));
    }
    Ok((
        Some(Seeing { def, vision, hearing }),
        blind.then(|| senses::BLIND.to_owned()),
    ))
}

impl Seeing {
    /// Checks that the captured component `name` takes and gives what that of the family does.
    ///
    /// # Errors
    /// The first input or output that differs.
    pub(crate) fn check(&self, name: &str, captured: &Graph) -> Result<()> {
        let Some(own) = self.def.components.iter().find(|c| c.name == name) else {
            return Ok(());
        };
        let inputs = |g: &Graph| ports(g, g.inputs().iter().map(|&v| (g.value(v).name.clone(), v)));
        let outputs = |g: &Graph| ports(g, g.outputs().iter().map(|(name, v)| (name.clone(), *v)));
        for (kind, expected, found) in [
            ("input", inputs(&own.graph), inputs(captured)),
            ("output", outputs(&own.graph), outputs(captured)),
        ] {
            for (port, ty) in &expected {
                let same = found.iter().find(|(other, _)| other == port);
                if !same.is_some_and(|(_, other)| fits(ty, other)) {
                    let found = same.map_or_else(|| "none".to_owned(), |(_, other)| other.to_string());
                    let what = format!("the component `{name}` should have the {kind} `{port}`, {ty}; found {found}");
                    return Err(Error::unsupported(what));
                }
            }
            if let Some((port, ty)) = found
                .iter()
                .find(|(port, _)| expected.iter().all(|(own, _)| own != port))
            {
                let what =
                    format!("the component `{name}` has the {kind} `{port}`, {ty}, which its family does not have");
                return Err(Error::unsupported(what));
            }
        }
        Ok(())
    }

    /// Writes how pictures and sounds are prepared.
    ///
    /// # Errors
    /// What cannot be written.
    pub(crate) fn add_records(&self, writer: &mut BundleWriter) -> Result<()> {
        senses::add_records(writer, self.vision.as_ref(), self.hearing.as_ref())
    }

    /// The tokens with a role.
    pub(crate) fn token_ids(&self, texts: &Texts) -> TokenIds {
        convert::token_ids(&self.def, &texts.generation_config, texts.tokenizer.as_ref())
    }
}

fn ports(g: &Graph, of: impl Iterator<Item = (String, cactus_ir::ValueId)>) -> Vec<(String, TensorType)> {
    of.map(|(name, v)| (name, g.ty(v).clone())).collect()
}

/// Whether what was captured has the type `own`: the same known sizes, and others that vary, but for the batch, which a capture fixes at one.
fn fits(own: &TensorType, captured: &TensorType) -> bool {
    let batch = Dim::symbol(BATCH);
    let one = |(own, captured): (&Dim, &Dim)| match (own.as_known(), captured.as_known()) {
        (Some(own), Some(captured)) => own == captured,
        (None, Some(captured)) => *own == batch && captured == 1,
        (own, None) => own.is_none(),
    };
    own.dtype == captured.dtype
        && own.shape.len() == captured.shape.len()
        && own.shape.iter().zip(&captured.shape).all(one)
}
