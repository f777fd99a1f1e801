//! Qwen3.5 with experts (`model_type` `qwen3_5_moe`): Qwen3.5 whose layers have experts, and beside the chosen one that every position has, times a
//! share of its own. Qwen team 2026.

use crate::config::Config;
use crate::decoder::Decoder;
use crate::experts::{Experts, Shared};
use crate::layers::GatedMlp;
use crate::{ModelDef, Result, qwen3_5, seeing};

/// The model that sees.
pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let [text, vision] = seeing::sections(c, "qwen3_5_moe_text")?;
    let decoder = decoder(&text)?;
    qwen3_5::beside(c, [text, vision], decoder)
}

/// The language model alone.
pub(crate) fn build_text(c: &Config<'_>) -> Result<ModelDef> {
    decoder(c)?.generator(c)
}

fn decoder(c: &Config<'_>) -> Result<Decoder> {
    let mut decoder = qwen3_5::decoder(c)?;
    let mut experts = Experts::read(c, &decoder.dims, "moe_intermediate_size", true)?;
    experts.router.normalize = Some(0.0);
    experts.shared = Some(Shared {
        mlp: GatedMlp {
            intermediate: c.width("shared_expert_intermediate_size")?,
            ..decoder.mlp
        },
        name: "mlp.shared_expert",
        gate: Some("mlp.shared_expert_gate"),
    });
    decoder.experts.fill(Some(experts));
    Ok(decoder)
}
