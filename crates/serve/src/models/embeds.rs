//! What a model of vectors does it with.

use cactus_bundle::Bundle;
use cactus_embed::{Embedder, PictureEmbedder};
use cactus_rag::Vectors;
use std::path::Path;
use std::sync::Arc;

/// What makes vectors of texts, and of pictures where the bundle does both.
#[derive(Debug)]
pub struct Embeds {
    texts: Vectors,
    pictures: Option<PictureEmbedder>,
}

impl Embeds {
    pub(super) fn load(name: &str, path: &Path, threads: Option<usize>) -> cactus_embed::Result<Embeds> {
        let bundle = Arc::new(Bundle::open(path)?);
        let texts = Arc::new(Embedder::of(&bundle, threads)?);
        let pictures = PictureEmbedder::is_in(&bundle).then(|| PictureEmbedder::of(&bundle, threads));
        Ok(Embeds {
            texts: Vectors::of(name, path, texts)?,
            pictures: pictures.transpose()?,
        })
    }

    /// For texts.
    pub(crate) fn texts(&self) -> &Vectors {
        &self.texts
    }

    /// For pictures.
    pub(crate) fn pictures(&self) -> Option<&PictureEmbedder> {
        self.pictures.as_ref()
    }
}
