//! Granite 3 with experts (`model_type` `granitemoe`), and one more that every position has (`granitemoeshared`). IBM 2024.

use crate::config::{Config, MAX_WIDTH};
use crate::decoder::Decoder;
use crate::experts::{Experts, Shared};
use crate::layers::GatedMlp;
use crate::{ModelDef, Result, granite};

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    decoder(c, None)?.build(c)
}

/// With an expert that every position has, where its width is not 0.
pub(crate) fn build_shared(c: &Config<'_>) -> Result<ModelDef> {
    let width = c.size_if_set("shared_intermediate_size", 0..=MAX_WIDTH)?;
    decoder(c, width.filter(|&width| width > 0))?.build(c)
}

fn decoder(c: &Config<'_>, shared: Option<usize>) -> Result<Decoder> {
    let mut decoder = granite::decoder(c)?;
    let mut experts = Experts::read(c, &decoder.dims, "intermediate_size", true)?;
    // The reference takes the softmax of the chosen alone, which is theirs of all over its sum.
    experts.router.normalize = Some(0.0);
    experts.names = ["block_sparse_moe", "router"];
    experts.shared = shared.map(|intermediate| Shared {
        mlp: GatedMlp {
            intermediate,
            joined: Some("input_linear"),
            names: ["", "", "output_linear"],
            ..decoder.mlp
        },
        name: "shared_mlp",
        gate: None,
    });
    decoder.experts.fill(Some(experts));
    Ok(decoder)
}
