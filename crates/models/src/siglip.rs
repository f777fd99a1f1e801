//! SigLIP (`model_type` `siglip`; SigLIP 2 where its pictures have one size): an encoder of texts in which all tokens see each other and
//! the state of the last is projected, and one of pictures. Zhai et al. 2023.
//!
//! A text is in lower case and always filled up to the whole context, and what fills it is seen like the rest.

use crate::clip_text::{self, Encoder, Fields};
use crate::config::{Config, MAX_WIDTH};
use crate::picture_tower::{Block, Defaults, Ending, Tower};
use crate::texts::{self, Module, PoolingDef};
use crate::{Error, ErrorKind, ModelDef, Result};

/// Of both encoders, where nobody says another.
const EPS: f64 = 1e-6;
const ACTIVATION: &str = "gelu_pytorch_tanh";

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    clip_text::no_modules(c)?;
    let fields =
        |key: &str, at: &'static str| -> Result<Fields<'_>> { Ok(Fields(vec![c.section(key, at)?.unwrap_or(*c)])) };
    let written = fields("text_config", "text_config.")?;
    let encoder = Encoder {
        dims: clip_text::dims(&written, [768, 12, 32_000, 64])?,
        block: Block::read(&written, 3072, EPS, ACTIVATION)?,
        causal: false,
    };
    let dims = &encoder.dims;
    let projection = written.size("projection_size", MAX_WIDTH, dims.hidden)?;
    let modules = [
        Module::Pooling(vec![PoolingDef::Last]),
        Module::head("text_model.head", dims.hidden, projection),
        Module::Normalize,
    ];
    let mut model = texts::embedder(c, dims, false, &modules, &mut |b, calls| encoder.encoded(b, calls))?;
    if let Some(vectors) = &mut model.vectors {
        vectors.fills_context = true;
        vectors.lower_case = true;
    }
    let defaults = Defaults {
        patch: 16,
        eps: EPS,
        activation: ACTIVATION,
    };
    let tower = Tower::read(&fields("vision_config", "vision_config.")?, &defaults, Ending::Probe)?;
    if tower.dimensions() != projection {
        let what = format!(
            "vectors of pictures have {} elements, and those of texts {projection}; expected equally many",
            tower.dimensions()
        );
        return Err(Error::new(ErrorKind::Invalid, c.family(), what));
    }
    tower.beside(model)
}
