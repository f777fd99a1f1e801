//! A model that makes vectors.

use crate::failure::Ours as _;
use cactus_embed::{Embedded, Role};
use cactus_engine::{Bundle, CancelToken, Result};
#[cfg(feature = "pictures")]
use cactus_engine::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How texts and pictures become vectors.
#[derive(Clone, Debug, Default)]
pub struct EmbedOptions {
    /// Whether vectors get the length 1 where the model gives them another.
    pub normalize: bool,
    /// Elements that vectors are cut to, where the model was trained for that; all of them where absent.
    pub dimensions: Option<usize>,
    /// Whether a text that is too long loses its end, instead of being an error.
    pub truncate: bool,
    /// Stops it from any thread, between two calls of the model.
    pub cancel: CancelToken,
}

/// A model that makes vectors of texts, and maybe of pictures, loaded. It may be used from several threads, whose calls take turns.
#[derive(Debug)]
pub struct Embedder {
    pub(super) model: Arc<cactus_embed::Embedder>,
    #[cfg(feature = "pictures")]
    pictures: Option<cactus_embed::PictureEmbedder>,
    pub(super) bundle: PathBuf,
}

impl Embedder {
    /// Loads the bundle in the folder `bundle`, to be run by `threads` threads; `None` is one for each fast core.
    ///
    /// # Errors
    /// [`ErrorKind::Bundle`](crate::ErrorKind::Bundle) where it is missing or damaged, [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported)
    /// where it makes no vectors.
    pub fn load(bundle: &Path, threads: Option<usize>) -> Result<Embedder> {
        let path = bundle.to_path_buf();
        let bundle = Arc::new(Bundle::open(bundle)?);
        let model = cactus_embed::Embedder::of(&bundle, threads).map_err(|e| e.ours())?;
        #[cfg(feature = "pictures")]
        let pictures = cactus_embed::PictureEmbedder::is_in(&bundle)
            .then(|| cactus_embed::PictureEmbedder::of(&bundle, threads))
            .transpose()
            .map_err(|e| e.ours())?;
        Ok(Embedder {
            model: Arc::new(model),
            #[cfg(feature = "pictures")]
            pictures,
            bundle: path,
        })
    }

    /// The model's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.model.name()
    }

    /// Elements of a vector that is not cut.
    #[must_use]
    pub fn dimensions(&self) -> usize {
        self.model.vectors().dimensions as usize
    }

    /// Most tokens of a text, those of its prompt and special ones among them.
    #[must_use]
    pub fn limit_tokens(&self) -> usize {
        self.model.limit_tokens()
    }

    /// How many tokens a text has that is for this, those of its prompt and special ones among them.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for a task that the model has no prompt for, or a text that cannot become tokens.
    pub fn count(&self, role: Role<'_>, text: &str) -> Result<usize> {
        self.model.count(role, text).map_err(|e| e.ours())
    }

    /// Vectors of `texts`, `[texts, dimensions]`, in their order. `role` says what they are for, and so which prompt of the model stands before
    /// them. A text has the same vector alone and beside others, on every machine and number of threads.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for a text that is too long, a task or dimensions that the model does not have;
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn embed<T: AsRef<str>>(&self, role: Role<'_>, texts: &[T], options: &EmbedOptions) -> Result<Embedded> {
        let made = self.model.embed(role, texts, &options.below());
        Ok(self.finished(made.map_err(|e| e.ours())?, options))
    }

    /// Whether it makes vectors of pictures, too.
    #[cfg(feature = "pictures")]
    #[must_use]
    pub fn sees(&self) -> bool {
        self.pictures.is_some()
    }

    /// The vector of the picture in a PNG, JPEG or WebP file, `[1, dimensions]`, to be compared with those of texts by the same model.
    /// With the feature `pictures`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a model that makes none; [`ErrorKind::Argument`] for a file that cannot be read or decoded or is too
    /// large; [`ErrorKind::Cancelled`].
    #[cfg(feature = "pictures")]
    pub fn embed_image(&self, file: &Path, options: &EmbedOptions) -> Result<Embedded> {
        let Some(pictures) = &self.pictures else {
            let what = format!(
                "the model `{}` makes vectors of texts and none of pictures; load a bundle that does, such as one of CLIP or SigLIP",
                self.name()
            );
            return Err(Error::above(ErrorKind::Unsupported, what));
        };
        let limits = cactus_embed::Limits::default();
        let wrong = |what: String| Error::Argument(format!("`{}`: {what}", file.display()));
        let bytes = read(file, limits.max_bytes).map_err(|e| wrong(format!("cannot read it: {e}")))?;
        let made = pictures.embed_files(&[bytes], &limits, &options.below());
        let made = made.map_err(|e| match e {
            cactus_embed::Error::Picture { source, .. } => wrong(source.to_string()),
            other => other.ours(),
        });
        Ok(self.finished(made?, options))
    }

    fn finished(&self, mut made: Embedded, options: &EmbedOptions) -> Embedded {
        if options.normalize && !self.model.vectors().normalized {
            let rows = made.values.chunks_exact_mut(made.dimensions.max(1));
            rows.for_each(cactus_embed::normalize);
        }
        made
    }
}

impl EmbedOptions {
    fn below(&self) -> cactus_embed::EmbedOptions {
        cactus_embed::EmbedOptions {
            dimensions: self.dimensions,
            truncate: self.truncate,
            cancel: self.cancel.clone(),
        }
    }
}

/// The bytes of a file; one more than `most` at most, which whoever decodes them refuses.
#[cfg(feature = "pictures")]
fn read(file: &Path, most: usize) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(file)?;
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
