//! Gemma 3n (`model_type` `gemma3n`): its text model. What it sees and hears with is left. Gemma team 2025.

use crate::config::Config;
use crate::gemma3n_text::Gemma3n;
use crate::{ModelDef, Result, seeing};

/// What stands before the names of weights that are left.
const LEFT: [&str; 4] = ["vision_model.", "audio_model.", "embed_vision.", "embed_audio."];

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let [text, _] = seeing::sections(c, "gemma3n_text")?;
    let mut decoder = Gemma3n::read(&text)?;
    decoder.tied = seeing::tied(c, &text, true)?;
    let mut model = decoder.generator(&text)?;
    if c.has("eos_token_id") {
        model.eos_token_ids = c.token_ids("eos_token_id")?;
    }
    model.idle.extend(LEFT.map(str::to_owned));
    Ok(model)
}
