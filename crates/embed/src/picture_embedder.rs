//! A bundle that makes vectors of pictures.

use crate::batch::CALL_ROWS;
use crate::embedder::{cut, dimensions, record};
use crate::{EmbedOptions, Embedded, Error, Result};
use cactus_base::{Cores, Pool};
use cactus_bundle::{Bundle, Gives, VISION_PATH, Vectors};
use cactus_engine::CancelToken;
use cactus_runtime::Function;
use cactus_tensor::{Elements, TensorView};
use cactus_vision::decode::header;
use cactus_vision::{Limits, Picture, Processor};
use std::path::Path;
use std::sync::Arc;

const COMPONENT: &str = "picture_embedder";
const PATCHES: &str = "patches";
const VECTORS: &str = "vectors";

/// A model that makes vectors of pictures, loaded. They are compared with those that an [`crate::Embedder`] of the same bundle makes of
/// texts: what is near says what a text is about, not how well it fits, so vectors of texts are nearer to each other than to those of
/// pictures. It may be used from several threads, whose calls take turns.
#[derive(Debug)]
pub struct PictureEmbedder {
    processor: Processor,
    vectors: Vectors,
    function: Function,
    /// Patches of a picture, and numbers of a patch.
    sizes: [usize; 2],
    pool: Pool,
    threads: usize,
    name: String,
}

impl PictureEmbedder {
    /// Whether the bundle makes vectors of pictures.
    #[must_use]
    pub fn is_in(bundle: &Bundle) -> bool {
        bundle.has_file(VISION_PATH) && bundle.component(COMPONENT).is_ok()
    }

    /// Loads the bundle in `folder` with so many threads; `None` is one for each fast core.
    ///
    /// # Errors
    /// [`Error::Model`] for a bundle that makes no vectors of pictures, and where it is damaged.
    pub fn open(folder: &Path, threads: Option<usize>) -> Result<PictureEmbedder> {
        PictureEmbedder::of(&Arc::new(Bundle::open(folder)?), threads)
    }

    /// As [`PictureEmbedder::open`], of a bundle that is open.
    ///
    /// # Errors
    /// As [`PictureEmbedder::open`].
    pub fn of(bundle: &Arc<Bundle>, threads: Option<usize>) -> Result<PictureEmbedder> {
        let not = "makes no vectors of pictures";
        let root = bundle.root().display();
        let Gives::Vectors(vectors) = record(bundle, not)?.gives else {
            return Err(Error::Model(format!("`{root}` {not}: it does something else of texts")));
        };
        if !PictureEmbedder::is_in(bundle) {
            return Err(Error::Model(format!("`{root}` {not}, but of texts")));
        }
        let damaged = |what: String| Error::Model(format!("`{root}`: {VISION_PATH}: {what}"));
        let processor = Processor::from_json(&bundle.file(VISION_PATH)?).map_err(|e| damaged(e.to_string()))?;
        let function = Function::new(Arc::clone(bundle), COMPONENT, None)?;
        let has = function.graph().outputs().iter().any(|(found, _)| found == VECTORS);
        let input = function
            .graph()
            .input(PATCHES)
            .map(|v| function.graph().value(v).ty.shape.clone());
        let sizes = match input.as_deref() {
            Some([_, patches, numbers]) if has => [patches.as_known(), numbers.as_known()],
            _ => [None, None],
        };
        let [Some(patches), Some(numbers)] = sizes else {
            let what = format!("its component `{COMPONENT}` should make `{VECTORS}` of `{PATCHES}`");
            return Err(Error::Model(format!("`{root}`: {what}")));
        };
        if processor.patch_numbers() != numbers {
            let found = processor.patch_numbers();
            return Err(damaged(format!(
                "a patch has {found} numbers, and the model takes {numbers}"
            )));
        }
        let threads = threads.unwrap_or_else(|| Cores::detect().threads()).max(1);
        Ok(PictureEmbedder {
            processor,
            vectors,
            function,
            sizes: [patches, numbers],
            pool: Pool::new(threads),
            threads,
            name: bundle.manifest().name.clone(),
        })
    }

    /// The model's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its vectors are. Prompts are for texts.
    #[must_use]
    pub fn vectors(&self) -> &Vectors {
        &self.vectors
    }

    /// What becomes of a picture before the model sees it.
    #[must_use]
    pub fn processor(&self) -> &Processor {
        &self.processor
    }

    /// Vectors of `pictures`.
    ///
    /// # Errors
    /// [`Error::Picture`] for one whose shape the model cannot take; [`Error::Option`] for dimensions that it does not have;
    /// [`Error::Cancelled`].
    pub fn embed(&self, pictures: &[Picture], options: &EmbedOptions) -> Result<Embedded> {
        self.run(pictures.len(), options, |index| self.prepared(index, &pictures[index]))
    }

    /// As [`PictureEmbedder::embed`], of the bytes of PNG, JPEG and WebP files. What their headers say is checked first, of all. Then one
    /// after the other is decoded, so that no more than one is in memory as pixels.
    ///
    /// # Errors
    /// As [`PictureEmbedder::embed`], and [`Error::Picture`] for what cannot be decoded or is beyond `limits`.
    pub fn embed_files<T: AsRef<[u8]>>(
        &self,
        files: &[T],
        limits: &Limits,
        options: &EmbedOptions,
    ) -> Result<Embedded> {
        for (index, file) in files.iter().enumerate() {
            header(file.as_ref(), limits).map_err(|source| Error::Picture { index, source })?;
        }
        self.run(files.len(), options, |index| {
            let picture = self.processor.decode(files[index].as_ref(), limits);
            self.prepared(index, &picture.map_err(|source| Error::Picture { index, source })?)
        })
    }

    /// The patches of a picture.
    fn prepared(&self, index: usize, picture: &Picture) -> Result<Vec<f32>> {
        let made = self
            .processor
            .process(picture)
            .map_err(|source| Error::Picture { index, source })?;
        if made.shape != self.sizes {
            let what = format!(
                "{VISION_PATH} makes {:?} of a picture, and the model takes {:?}",
                made.shape, self.sizes
            );
            return Err(Error::Model(what));
        }
        Ok(made.values)
    }

    fn run(
        &self,
        count: usize,
        options: &EmbedOptions,
        prepared: impl Fn(usize) -> Result<Vec<f32>>,
    ) -> Result<Embedded> {
        let dimensions = dimensions(&self.vectors, options.dimensions)?;
        let whole = self.vectors.dimensions as usize;
        let [patches, numbers] = self.sizes;
        let at_once = (CALL_ROWS / patches).max(1);
        let mut values = Vec::with_capacity(count * whole);
        let mut inputs = Vec::new();
        for first in (0..count).step_by(at_once) {
            inputs.clear();
            let end = (first + at_once).min(count);
            for index in first..end {
                stop(&options.cancel)?;
                inputs.extend(prepared(index)?);
            }
            self.call(&inputs, [end - first, patches, numbers], &mut values)?;
        }
        if dimensions < whole {
            values = cut(&values, whole, dimensions, self.vectors.normalized);
        }
        Ok(Embedded {
            dimensions,
            values,
            tokens: vec![patches; count],
        })
    }

    fn call(&self, inputs: &[f32], shape: [usize; 3], out: &mut Vec<f32>) -> Result<()> {
        let view = TensorView::new(&shape, Elements::F32(inputs)).map_err(|e| Error::Model(e.to_string()))?;
        let before = out.len();
        self.function
            .run_reading(&self.pool, self.threads, &[(PATCHES, view)], &mut |name, view| {
                if let (VECTORS, Elements::F32(values)) = (name, view.elements()) {
                    out.extend_from_slice(values);
                }
            })?;
        let (found, width) = (&out[before..], self.vectors.dimensions as usize);
        if found.len() != shape[0] * width {
            return Err(Error::Model(format!(
                "expected {width} numbers for each of {} pictures, found {}",
                shape[0],
                found.len()
            )));
        }
        match found.iter().all(|x| x.is_finite()) {
            true => Ok(()),
            false => Err(Error::Model("the model gives numbers that are not finite".into())),
        }
    }
}

fn stop(cancel: &CancelToken) -> Result<()> {
    if cancel.is_cancelled() {
        Err(Error::Cancelled)
    } else {
        Ok(())
    }
}
