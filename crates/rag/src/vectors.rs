//! A bundle that makes vectors, as an index wants it.

use crate::{Embed, EmbedError, nearness};
use cactus_bundle::{Checksum, MANIFEST_PATH};
use cactus_embed::{EmbedOptions, Embedder, Role};
use cactus_retrieval::{Metric, Recipe};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A model of vectors with the recipe of its index. It is shared: whoever has it may compute with it, and calls take turns.
#[derive(Clone, Debug)]
pub struct Vectors {
    embedder: Arc<Embedder>,
    recipe: Recipe,
    /// See [`Embed::embed_unrelated`].
    unrelated: Arc<OnceLock<Arc<[Vec<f32>]>>>,
}

impl Vectors {
    /// Of the bundle in `folder`, which people call `name`.
    ///
    /// # Errors
    /// [`cactus_embed::Error::Model`] for a bundle that makes no vectors, and where it is damaged or cannot be read.
    pub fn open(name: &str, folder: &Path, threads: Option<usize>) -> cactus_embed::Result<Vectors> {
        let embedder = Embedder::open(folder, threads)?;
        Vectors::of(name, folder, Arc::new(embedder))
    }

    /// As [`Vectors::open`], of a model that is loaded.
    ///
    /// # Errors
    /// As [`Vectors::open`].
    pub fn of(name: &str, folder: &Path, embedder: Arc<Embedder>) -> cactus_embed::Result<Vectors> {
        let manifest = folder.join(MANIFEST_PATH);
        let bytes = std::fs::read(&manifest)
            .map_err(|e| cactus_embed::Error::Model(format!("cannot read `{}`: {e}", manifest.display())))?;
        let recipe = Recipe {
            digest: Checksum::of(&bytes).to_string(),
            prompts: embedder.vectors().prompts.clone(),
            ..Recipe::new(name, embedder.vectors().dimensions as usize, Metric::Cosine)
        };
        Ok(Vectors {
            embedder,
            recipe,
            unrelated: Arc::default(),
        })
    }

    /// The model.
    #[must_use]
    pub fn embedder(&self) -> &Arc<Embedder> {
        &self.embedder
    }

    fn embed(&self, role: Role<'_>, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let options = EmbedOptions {
            truncate: true,
            ..EmbedOptions::default()
        };
        let made = self.embedder.embed(role, texts, &options)?;
        Ok(made.rows().map(<[f32]>::to_vec).collect())
    }
}

impl Embed for Vectors {
    fn recipe(&self) -> Recipe {
        self.recipe.clone()
    }

    fn most_tokens(&self) -> usize {
        self.embedder.limit_tokens()
    }

    fn count_tokens(&self, text: &str) -> usize {
        // A token has a byte at least. What cannot become tokens gets no vector, which says why.
        self.embedder.count(Role::Document, text).unwrap_or(text.len())
    }

    fn embed_documents(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.embed(Role::Document, texts)
    }

    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let made = self.embed(Role::Query, &[text.to_owned()])?;
        made.into_iter().next().ok_or_else(|| "the model gave no vector".into())
    }

    fn embed_unrelated(&self) -> Result<Arc<[Vec<f32>]>, EmbedError> {
        if let Some(known) = self.unrelated.get() {
            return Ok(Arc::clone(known));
        }
        let made: Arc<[Vec<f32>]> = self.embed(Role::Query, &nearness::unrelated())?.into();
        Ok(Arc::clone(self.unrelated.get_or_init(|| made)))
    }
}
