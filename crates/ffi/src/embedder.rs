//! A model that makes vectors of texts, and maybe of pictures, as C holds it. It can be closed at any time, as [`crate::underway`] says.

use crate::documents::Documents;
use crate::failure::{Code, Failure, Result};
use crate::handle::{Handles, Kind};
use crate::hearer::HEARERS;
use crate::loaded::MODELS;
use crate::log::{Level, say};
#[cfg(feature = "pictures")]
use crate::pictures;
use crate::underway::{self, Underway};
use cactus_bundle::{Bundle, Gives};
use cactus_embed::{EmbedOptions, Embedder, Error, Role};
#[cfg(feature = "pictures")]
use cactus_embed::{Limits, PictureEmbedder};
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

/// Every one that is open.
pub(crate) static EMBEDDERS: Handles<Embedding> = Handles::new(Kind::Embedder);

/// See the module.
#[derive(Debug)]
pub(crate) struct Embedding {
    model: Arc<Embedder>,
    #[cfg(feature = "pictures")]
    pictures: Option<PictureEmbedder>,
    documents: Option<Documents>,
    underway: Arc<Underway>,
}

/// The model of a handle. One that does something else is an error that says so.
///
/// # Errors
/// [`Code::Handle`], or [`Code::Unsupported`].
pub(crate) fn get(handle: *mut c_void) -> Result<Arc<Embedding>> {
    EMBEDDERS.get(handle).map_err(|failure| {
        let what = match (MODELS.get(handle), HEARERS.get(handle)) {
            (Ok(_), _) => "the model writes text and makes no vectors",
            (_, Ok(_)) => "the model hears and makes no vectors",
            _ => return failure,
        };
        Failure::unsupported(&format!(
            "{what}; load a bundle that does, such as one converted from all-MiniLM-L6-v2"
        ))
    })
}

impl Embedding {
    /// Loads the bundle at `path`, if it is one that makes vectors, and the documents of a folder.
    ///
    /// # Errors
    /// What is missing, damaged or not supported; a bundle that scores documents; as [`Documents::open`].
    pub(crate) fn open(path: &Path, folder: Option<&Path>) -> Result<Option<Arc<Embedding>>> {
        let bundle = Arc::new(Bundle::open(path)?);
        match bundle.embedding()?.map(|record| record.gives) {
            None => return Ok(None),
            Some(Gives::Vectors(_)) => {}
            Some(Gives::TokenVectors(_)) => {
                let what =
                    "the model makes a vector of each token, which no function here does; the server and Python do";
                return Err(Failure::unsupported(what));
            }
            Some(_) => {
                let what =
                    "the model scores documents for a query, which no function here does; the server and Python do";
                return Err(Failure::unsupported(what));
            }
        }
        let model = Arc::new(Embedder::of(&bundle, None)?);
        #[cfg(feature = "pictures")]
        let pictures = PictureEmbedder::is_in(&bundle).then(|| PictureEmbedder::of(&bundle, None));
        #[cfg(feature = "pictures")]
        let pictures = pictures.transpose()?;
        let documents = folder
            .map(|folder| Documents::open(folder, Some((path, &model))))
            .transpose()?;
        say(Level::Info, "model", &format!("loaded {}", path.display()));
        Ok(Some(Arc::new(Embedding {
            model,
            #[cfg(feature = "pictures")]
            pictures,
            documents,
            underway: Underway::new(),
        })))
    }

    /// The vector of a text; of the length 1 where `normalize` asks for it, or the model gives no other.
    ///
    /// # Errors
    /// A text that is too long; [`Code::Cancelled`] after a stop or close.
    pub(crate) fn vector(&self, text: &str, normalize: bool) -> Result<Vec<f32>> {
        let this = self.underway.begin()?;
        let options = EmbedOptions {
            cancel: this.stop().token().clone(),
            ..EmbedOptions::default()
        };
        let mut vector = self.model.embed(Role::Plain, &[text], &options)?.values;
        if normalize && !self.model.vectors().normalized {
            cactus_embed::normalize(&mut vector);
        }
        Ok(vector)
    }

    /// The vector of the picture in a file.
    ///
    /// # Errors
    /// A model that makes no vectors of pictures; a file that cannot be read or decoded or is too large; [`Code::Cancelled`] after a stop or close.
    #[cfg(feature = "pictures")]
    pub(crate) fn vector_of_picture(&self, path: &str) -> Result<Vec<f32>> {
        let Some(pictures) = &self.pictures else {
            let what = format!(
                "the model `{}` makes vectors of texts and none of pictures; load a bundle that does, such as one of CLIP or SigLIP whose \
                 folder says how pictures are prepared (`preprocessor_config.json`)",
                self.model.name()
            );
            return Err(Failure::unsupported(&what));
        };
        let file = pictures::picture_file(path, "image_path")?;
        let this = self.underway.begin()?;
        let options = EmbedOptions {
            cancel: this.stop().token().clone(),
            ..EmbedOptions::default()
        };
        let made = pictures.embed_files(&[file], &Limits::default(), &options);
        Ok(made
            .map_err(|e| match e {
                Error::Picture { source, .. } => Failure::argument(format!("`image_path`: `{path}`: {source}")),
                other => other.into(),
            })?
            .values)
    }

    /// # Errors
    /// Always.
    #[cfg(not(feature = "pictures"))]
    pub(crate) fn vector_of_picture(&self, _path: &str) -> Result<Vec<f32>> {
        Err(Failure::left_out("a vector of a picture", "pictures"))
    }

    /// The documents that came with it.
    pub(crate) fn documents(&self) -> Option<&Documents> {
        self.documents.as_ref()
    }

    /// Registers something that is under way until it is dropped.
    ///
    /// # Errors
    /// As [`Underway::begin`].
    pub(crate) fn begin(&self) -> Result<underway::Entry> {
        self.underway.begin()
    }

    /// Cancels what is under way now.
    pub(crate) fn stop(&self) {
        self.underway.stop();
    }

    /// As [`underway::close`].
    pub(crate) fn close(self: Arc<Self>) {
        underway::close(self, |model| &model.underway);
    }
}

impl From<cactus_embed::Error> for Failure {
    fn from(error: cactus_embed::Error) -> Failure {
        use cactus_embed::ErrorKind as Kind;
        let code = match (&error, error.kind()) {
            (Error::Bundle(_), _) => Code::Bundle,
            (_, Kind::Option | Kind::Text | Kind::Picture) => Code::Argument,
            (_, Kind::Cancelled) => Code::Cancelled,
            _ => Code::Unsupported,
        };
        Failure::new(code, error.to_string())
    }
}
