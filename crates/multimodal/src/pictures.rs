//! What a model sees pictures with.

use crate::cache::Cache;
use crate::films::Films;
use crate::{Error, Result, files_of, fit_together, owner, unshown};
use cactus_base::Pool;
use cactus_bundle::{Bundle, VISION_PATH};
use cactus_engine::chat::{Asking, MediaFile, Sense, Shown, Shows, Unshown};
use cactus_engine::{CancelToken, MediaDigest, MediaKind, Model};
use cactus_runtime::Function;
use cactus_tensor::{Elements, TensorView};
use cactus_vision::decode::header;
use cactus_vision::processor::{Grid, Marks, Processed, View};
use cactus_vision::{Limits, Picture, Plan, Processor};
use sha2::{Digest, Sha256};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

const COMPONENT: &str = "picture_encoder";
const PATCHES: &str = "patches";
const PLACES: &str = "places";
const CELLS: &str = "cells";
const ROWS: &str = "rows";

/// The encoder of pictures of a model. It may be used from several threads.
#[derive(Debug)]
pub struct Pictures {
    processor: Processor,
    marks: Marks,
    /// What pictures are prepared with, for their digests.
    record: Vec<u8>,
    cache: Mutex<Cache<Plan>>,
    /// Held while one is decoded and encoded, which takes memory and all threads.
    turn: Mutex<()>,
    /// The program of the model that it belongs to.
    owner: usize,
}

/// A picture that was looked at.
#[derive(Debug, Clone)]
pub struct Look {
    /// What stands in the prompt for it.
    pub shown: Shown,
    /// Its views and tokens.
    pub plan: Plan,
    /// Seconds that decoding and preparing took; 0 where it was known.
    pub prepare_seconds: f64,
    /// Seconds that the encoder took; 0 where it was known.
    pub encode_seconds: f64,
    /// Whether it had been encoded before.
    pub known: bool,
}

impl Pictures {
    /// Whether a model of this bundle sees pictures.
    #[must_use]
    pub fn is_in(bundle: &Bundle) -> bool {
        bundle.has_file(VISION_PATH) && bundle.component(COMPONENT).is_ok()
    }

    /// What `model` sees pictures with, which is given to it for conversations that hold files; `None` where it sees none. Nothing of the
    /// encoder is loaded yet.
    ///
    /// # Errors
    /// [`Error::Model`] for a bundle that is damaged.
    pub fn attach(model: &Model) -> Result<Option<Arc<Pictures>>> {
        Pictures::attach_with(model, None, None)
    }

    /// The same with another number of tokens than the bundle says, where it is given: the budget of a picture, or the most of one that is
    /// not cut. More show more and take longer. And with at most so many frames of a film.
    ///
    /// # Errors
    /// As [`Pictures::attach`], and [`Error::Picture`] where the model was not trained with it, or its pictures have a size of their own.
    pub fn attach_with(model: &Model, tokens: Option<u32>, frames: Option<u32>) -> Result<Option<Arc<Pictures>>> {
        let mut found = Pictures::of(model)?;
        if let (Some(pictures), Some(tokens)) = (&mut found, tokens) {
            pictures.processor = pictures.processor.with_tokens(tokens)?;
            pictures.record.extend(tokens.to_le_bytes());
        }
        if let (Some(pictures), Some(frames)) = (&mut found, frames) {
            pictures.processor = pictures.processor.with_frames(frames)?;
        }
        let pictures = found.map(Arc::new);
        if let Some(pictures) = &pictures {
            model.set_shows(Sense::Picture, Arc::<Pictures>::clone(pictures));
            if let Some(films) = Films::of(pictures) {
                model.set_shows(Sense::Film, Arc::new(films));
            }
        }
        Ok(pictures)
    }

    fn of(model: &Model) -> Result<Option<Pictures>> {
        let bundle = model.bundle();
        if !Pictures::is_in(bundle) {
            return Ok(None);
        }
        let root = bundle.root().display();
        let damaged = |what: String| Error::Model(format!("`{root}`: {VISION_PATH}: {what}"));
        let record = bundle.file(VISION_PATH)?;
        let processor = Processor::from_json(&record).map_err(|e| damaged(e.to_string()))?;
        let Some(marks) = processor.marks.clone().filter(|marks| !marks.token.is_empty()) else {
            return Err(damaged("it does not say what stands in a prompt for a picture".into()));
        };
        if model.media_width().is_none() {
            return Err(damaged("the model takes no rows of pictures in its prompt".into()));
        }
        Ok(Some(Pictures {
            processor,
            marks,
            record,
            cache: Mutex::default(),
            turn: Mutex::default(),
            owner: owner(model),
        }))
    }

    /// What becomes of a picture before the model sees it.
    #[must_use]
    pub fn processor(&self) -> &Processor {
        &self.processor
    }

    /// Views and tokens of a picture of `width` x `height` pixels. Nothing is computed for it.
    ///
    /// # Errors
    /// [`Error::Picture`] for a shape that the model cannot take; [`Error::TooManyTokens`] for one that does not fit the context.
    pub fn plan(&self, model: &Model, width: u32, height: u32) -> Result<Plan> {
        self.belongs_to(model)?;
        let plan = self.processor.plan(width, height)?;
        let context = model.context_tokens();
        match plan.tokens < context as u64 {
            true => Ok(plan),
            false => Err(Error::TooManyTokens {
                width,
                height,
                tokens: plan.tokens,
                context,
            }),
        }
    }

    pub(crate) fn belongs_to(&self, model: &Model) -> Result<()> {
        match owner(model) == self.owner {
            true => Ok(()),
            false => Err(Error::Model("these pictures are for another model".into())),
        }
    }

    /// Looks at the picture of a PNG, JPEG or WebP file.
    ///
    /// # Errors
    /// As [`Pictures::plan`], before anything is decoded; [`Error::Picture`] for what cannot be decoded or is beyond `limits`;
    /// [`Error::Cancelled`].
    pub fn look_at_file(&self, model: &Model, bytes: &[u8], limits: &Limits, cancel: &CancelToken) -> Result<Look> {
        let found = header(bytes, limits)?;
        let plan = self.plan(model, found.width, found.height)?;
        self.look(model, bytes, plan, limits, (0, cancel))
    }

    /// As [`Pictures::look_at_file`], of a file that has this plan, for who has this salt.
    fn look(
        &self,
        model: &Model,
        bytes: &[u8],
        plan: Plan,
        limits: &Limits,
        (salt, cancel): (u64, &CancelToken),
    ) -> Result<Look> {
        let digest = self.digest(b"file", |sha| {
            sha.update(salt.to_le_bytes());
            sha.update(bytes);
        });
        if let Some(known) = self.known(&digest) {
            return Ok(known);
        }
        let _turn = self.turn();
        // Somebody else may have looked at it meanwhile.
        if let Some(known) = self.known(&digest) {
            return Ok(known);
        }
        let begun = Instant::now();
        let picture = self.processor.decode(bytes, limits)?;
        self.encoded(model, (digest, plan), &picture, begun, cancel)
    }

    /// Looks at a picture that is decoded.
    ///
    /// # Errors
    /// As [`Pictures::plan`]; [`Error::Cancelled`].
    pub fn look_at(&self, model: &Model, picture: &Picture, cancel: &CancelToken) -> Result<Look> {
        let plan = self.plan(model, picture.width(), picture.height())?;
        let digest = self.digest(b"pixels", |sha| {
            sha.update(picture.width().to_le_bytes());
            sha.update(picture.height().to_le_bytes());
            sha.update(picture.rgb());
        });
        if let Some(known) = self.known(&digest) {
            return Ok(known);
        }
        let _turn = self.turn();
        self.encoded(model, (digest, plan), picture, Instant::now(), cancel)
    }

    /// A digest of a picture or a film and of all that is done to it.
    pub(crate) fn digest(&self, kind: &[u8], picture: impl FnOnce(&mut Sha256)) -> MediaDigest {
        let mut sha = Sha256::new();
        sha.update(kind);
        sha.update((self.record.len() as u64).to_le_bytes());
        sha.update(&self.record);
        picture(&mut sha);
        sha.finalize().into()
    }

    fn known(&self, digest: &MediaDigest) -> Option<Look> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let (shown, plan) = cache.get(digest)?;
        Some(Look {
            shown,
            plan,
            prepare_seconds: 0.0,
            encode_seconds: 0.0,
            known: true,
        })
    }

    fn encoded(
        &self,
        model: &Model,
        (digest, plan): (MediaDigest, Plan),
        picture: &Picture,
        begun: Instant,
        cancel: &CancelToken,
    ) -> Result<Look> {
        let prepared = self.processor.process(picture)?;
        let prepare_seconds = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let rows = self.rows(model, std::iter::once(Ok(prepared)), plan.tokens, cancel)?;
        let shown = Shown {
            sense: Sense::Picture,
            text: self.marks.text(&plan),
            written: self.marks.written().to_owned(),
            token: self.marks.token.clone(),
            media: model.hold_media(digest, rows, self.kind(model, &plan)?)?,
        };
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.put(digest, shown.clone(), plan.clone());
        Ok(Look {
            shown,
            plan,
            prepare_seconds,
            encode_seconds: begun.elapsed().as_secs_f64(),
            known: false,
        })
    }

    /// What the rows of a picture are to each other, in a grid where the model has such.
    fn kind(&self, model: &Model, plan: &Plan) -> Result<MediaKind> {
        if !model.media_in_grids() {
            return Ok(MediaKind::Picture { columns: None });
        }
        match &plan.views[..] {
            [only] => Ok(MediaKind::Picture {
                columns: self.columns(only),
            }),
            views => Err(wrong(
                model,
                format!("gives rows of {} views, and the model takes one grid", views.len()),
            )),
        }
    }

    /// Columns of the grid in which the tokens of a view stand.
    pub(crate) fn columns(&self, view: &View) -> Option<NonZeroUsize> {
        NonZeroUsize::new((view.grid.columns / self.processor.merge) as usize)
    }

    /// Held while one is decoded and encoded.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows of all views of all that is `prepared`, one view after the other, which are `tokens`.
    pub(crate) fn rows(
        &self,
        model: &Model,
        prepared: impl Iterator<Item = Result<Processed>>,
        tokens: u64,
        cancel: &CancelToken,
    ) -> Result<Vec<f32>> {
        let mut encoder = Encoder::new(self, model)?;
        for prepared in prepared {
            encoder.add(&prepared?, cancel)?;
        }
        let (rows, width) = (encoder.rows, model.media_width().unwrap_or(1));
        if rows.len() as u64 != tokens * width as u64 {
            let found = rows.len();
            let what = format!("made {found} numbers of {tokens} tokens; expected {width} for each");
            return Err(wrong(model, what));
        }
        match rows.iter().all(|x| x.is_finite()) {
            true => Ok(rows),
            false => Err(wrong(model, "gives numbers that are not finite".into())),
        }
    }
}

/// The encoder while it computes.
struct Encoder<'a> {
    processor: &'a Processor,
    model: &'a Model,
    pool: Pool,
    function: Function,
    asks_for_cells: bool,
    /// The weights of places of the last grid: tiles and frames have one, so they are made once.
    places: Option<(Grid, Option<Vec<f32>>)>,
    rows: Vec<f32>,
}

impl<'a> Encoder<'a> {
    fn new(pictures: &'a Pictures, model: &'a Model) -> Result<Encoder<'a>> {
        let function = Function::new(Arc::clone(model.bundle()), COMPONENT, None)?;
        Ok(Encoder {
            processor: &pictures.processor,
            model,
            pool: Pool::new(model.threads()),
            asks_for_cells: function.graph().input(CELLS).is_some(),
            function,
            places: None,
            rows: Vec::new(),
        })
    }

    /// Adds the rows of all views of `prepared`.
    fn add(&mut self, prepared: &Processed, cancel: &CancelToken) -> Result<()> {
        let wrong = |what: String| wrong(self.model, what);
        let threads = self.model.threads();
        let numbers = self.processor.patch_numbers();
        let joined = (self.processor.merge as usize).pow(2).max(1);
        let mut rest = (&prepared.values[..], &prepared.positions[..]);
        for &grid in &prepared.grids {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let patches = grid.rows as usize * grid.columns as usize;
            let numbers_of = rest.0.split_at_checked(patches * numbers);
            let (Some((view, more)), Some((positions, others))) = (numbers_of, rest.1.split_at_checked(patches)) else {
                return Err(wrong("was prepared fewer patches than its views have".into()));
            };
            rest = (more, others);
            let weights = match self.places.take() {
                Some((of, weights)) if of == grid => weights,
                _ => self.processor.places(grid)?,
            };
            let cells: Option<Vec<i64>> = self.asks_for_cells.then(|| {
                let cells = positions.iter().flat_map(|&[column, row]| [row, column]);
                cells.map(i64::from).collect()
            });
            let table = weights.as_ref().map_or(0, |weights| weights.len() / patches.max(1));
            let shapes = [numbers, table, 2].map(|width| [1, patches / joined, joined, width]);
            let given = [
                (PATCHES, Some(Elements::F32(view))),
                (PLACES, weights.as_deref().map(Elements::F32)),
                (CELLS, cells.as_deref().map(Elements::I64)),
            ];
            let mut inputs = Vec::new();
            for ((name, values), shape) in given.into_iter().zip(&shapes) {
                let Some(values) = values else { continue };
                let view = TensorView::new(shape, values);
                let view = view.map_err(|e| wrong(format!("cannot be given its input `{name}`: {e}")))?;
                inputs.push((name, view));
            }
            let stop = || cancel.is_cancelled();
            let mut read = |name: &str, view: TensorView<'_>| {
                if let (ROWS, Elements::F32(values)) = (name, view.elements()) {
                    self.rows.extend_from_slice(values);
                }
            };
            let whole = self
                .function
                .run_reading_unless(&self.pool, threads, &inputs, &stop, &mut read)?;
            if !whole {
                return Err(Error::Cancelled);
            }
            self.places = Some((grid, weights));
        }
        Ok(())
    }
}

impl Shows for Pictures {
    fn show(
        &self,
        model: &Model,
        files: &[&MediaFile],
        asking: &Asking<'_>,
    ) -> std::result::Result<Vec<Shown>, Unshown> {
        let files = files_of(files)?;
        let limits = Limits::default();
        let (mut tokens, mut plans) = (0, Vec::new());
        for (i, bytes) in files.iter().enumerate() {
            let found = header(bytes, &limits).map_err(|e| unshown(i, Error::from(e)))?;
            let plan = self.plan(model, found.width, found.height).map_err(|e| unshown(i, e))?;
            tokens += plan.tokens;
            plans.push(plan);
        }
        fit_together(model, asking, "pictures", files.len(), tokens)?;
        let look = |(i, (bytes, plan)): (usize, (&&[u8], Plan))| {
            let look = self.look(model, bytes, plan, &limits, (asking.salt, asking.cancel));
            look.map(|look| look.shown).map_err(|e| unshown(i, e))
        };
        files.iter().zip(plans).enumerate().map(look).collect()
    }
}

pub(crate) fn wrong(model: &Model, what: String) -> Error {
    let root = model.bundle().root().display();
    Error::Model(format!("`{root}`: the component `{COMPONENT}` {what}"))
}
