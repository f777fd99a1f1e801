//! What a model sees films with.

use crate::cache::Cache;
use crate::pictures::{Pictures, wrong};
use crate::{Error, Result, fit_together, unshown};
use cactus_engine::chat::{Asking, MediaFile, Sense, Shown, Shows, Timing, Unshown};
use cactus_engine::{CancelToken, MediaDigest, MediaKind, Model};
use cactus_vision::decode::header;
use cactus_vision::processor::{self, FilmPlan, Processed};
use cactus_vision::{Limits, Picture};
use sha2::Digest as _;
use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Shows a model films, with its encoder of pictures. It may be used from several threads.
#[derive(Debug)]
pub struct Films {
    pictures: Arc<Pictures>,
    /// What of the record of pictures is of films.
    record: processor::Films,
    cache: Mutex<Cache<FilmPlan>>,
}

/// A film that was watched.
#[derive(Debug, Clone)]
pub struct Watched {
    /// What stands in the prompt for it.
    pub shown: Shown,
    /// Its frames and tokens.
    pub plan: FilmPlan,
    /// Seconds that decoding and preparing took; 0 where it was known.
    pub prepare_seconds: f64,
    /// Seconds that the encoder took; 0 where it was known.
    pub encode_seconds: f64,
    /// Whether it had been encoded before.
    pub known: bool,
}

/// A film whose frames are files of pictures.
#[derive(Debug, Clone, Copy)]
struct Frames<'a> {
    files: &'a [Vec<u8>],
    timing: &'a Timing,
}

/// What the model sees of them.
#[derive(Debug)]
struct Seen {
    plan: FilmPlan,
    /// The numbers of the frames.
    chosen: Vec<usize>,
    times: Vec<f64>,
    seconds: f64,
}

impl Films {
    /// What shows films with the encoder of `pictures`; `None` where the model sees none.
    #[must_use]
    pub fn of(pictures: &Arc<Pictures>) -> Option<Films> {
        Some(Films {
            record: pictures.processor().films.clone()?,
            pictures: Arc::clone(pictures),
            cache: Mutex::default(),
        })
    }

    /// Which of `count` frames, which go by in `seconds`, the model sees.
    #[must_use]
    pub fn chosen(&self, count: usize, seconds: f64) -> Vec<usize> {
        self.record.frames.chosen(count, seconds)
    }

    /// Frames and tokens of a film of which frames of `width` x `height` pixels are seen at `times`, of `seconds` in all. Nothing is computed
    /// for it.
    ///
    /// # Errors
    /// [`Error::Picture`] for a shape that the model cannot take, or times that are none; [`Error::TooManyFrames`] for one that does not fit
    /// the context.
    pub fn plan(&self, model: &Model, sides: [u32; 2], times: &[f64], seconds: f64) -> Result<FilmPlan> {
        self.pictures.belongs_to(model)?;
        let plan = self
            .pictures
            .processor()
            .plan_film(sides[0], sides[1], times, seconds)?;
        let Some(plan) = plan else {
            return Err(Error::Model("the model sees no films".into()));
        };
        let context = model.context_tokens();
        match plan.tokens < context as u64 {
            true => Ok(plan),
            false => Err(Error::TooManyFrames {
                frames: plan.frames,
                tokens: plan.tokens,
                context,
            }),
        }
    }

    /// The same of `count` frames that are here.
    fn plan_of(&self, model: &Model, count: usize, sides: [u32; 2], times: &[f64], seconds: f64) -> Result<FilmPlan> {
        match count == times.len() {
            true => self.plan(model, sides, times, seconds),
            false => Err(Error::FilmTimes {
                frames: count,
                times: times.len(),
            }),
        }
    }

    /// Watches the frames of a film that the model sees, all of one size, at `times`, of `seconds` in all. [`Films::chosen`] says which they are.
    ///
    /// # Errors
    /// As [`Films::plan`]; [`Error::Cancelled`].
    pub fn watch(
        &self,
        model: &Model,
        frames: &[Picture],
        (times, seconds): (&[f64], f64),
        cancel: &CancelToken,
    ) -> Result<Watched> {
        let sides = frames.first().map_or([0; 2], |frame| [frame.width(), frame.height()]);
        let plan = self.plan_of(model, frames.len(), sides, times, seconds)?;
        let digest = self.pictures.digest(b"frames", |sha| {
            for (frame, time) in frames.iter().zip(times) {
                sha.update(time.to_le_bytes());
                sha.update(frame.width().to_le_bytes());
                sha.update(frame.height().to_le_bytes());
                sha.update(frame.rgb());
            }
            sha.update(seconds.to_le_bytes());
        });
        self.encoded(model, (digest, plan), &mut |i| Ok(frames[i].clone()), cancel)
    }

    /// Watches a film whose frames are files of pictures.
    ///
    /// # Errors
    /// As [`Films::plan`], before anything is decoded; [`Error::Picture`] for a frame that cannot be decoded, is beyond `limits`, or has another
    /// size than the first; [`Error::Cancelled`].
    pub fn watch_files(
        &self,
        model: &Model,
        files: &[Vec<u8>],
        timing: &Timing,
        limits: &Limits,
        cancel: &CancelToken,
    ) -> Result<Watched> {
        let frames = Frames { files, timing };
        self.look(model, frames, self.seen(model, frames, limits)?, limits, (0, cancel))
    }

    fn seen(&self, model: &Model, frames: Frames<'_>, limits: &Limits) -> Result<Seen> {
        let count = frames.files.len();
        let (chosen, times, seconds) = match frames.timing {
            Timing::Rate(rate) => {
                let seconds = count as f64 / rate;
                let chosen = self.chosen(count, seconds);
                let times = chosen.iter().map(|&i| i as f64 / rate).collect();
                (chosen, times, seconds)
            }
            Timing::At(times, seconds) => ((0..count).collect(), times.clone(), *seconds),
        };
        let mut sides = None;
        for &i in &chosen {
            let found = header(&frames.files[i], limits).map_err(|e| e.within(frame_name(i)))?;
            let found = [found.width, found.height];
            let first = *sides.get_or_insert(found);
            if found != first {
                return Err(Error::FrameSize {
                    frame: i + 1,
                    found,
                    first,
                });
            }
        }
        let sides = sides.unwrap_or_default();
        Ok(Seen {
            plan: self.plan_of(model, chosen.len(), sides, &times, seconds)?,
            chosen,
            times,
            seconds,
        })
    }

    /// Watches what is seen, for who has this salt.
    fn look(
        &self,
        model: &Model,
        frames: Frames<'_>,
        seen: Seen,
        limits: &Limits,
        (salt, cancel): (u64, &CancelToken),
    ) -> Result<Watched> {
        let digest = self.pictures.digest(b"film", |sha| {
            sha.update(salt.to_le_bytes());
            sha.update(seen.seconds.to_le_bytes());
            for (&i, time) in seen.chosen.iter().zip(&seen.times) {
                let file = &frames.files[i];
                sha.update(time.to_le_bytes());
                sha.update((file.len() as u64).to_le_bytes());
                sha.update(file);
            }
        });
        let processor = self.pictures.processor();
        let mut frame = |i: usize| {
            let i = seen.chosen[i];
            let frame = processor.decode(&frames.files[i], limits);
            Ok(frame.map_err(|e| e.within(frame_name(i)))?)
        };
        self.encoded(model, (digest, seen.plan), &mut frame, cancel)
    }

    fn known(&self, digest: &MediaDigest) -> Option<Watched> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let (shown, plan) = cache.get(digest)?;
        Some(Watched {
            shown,
            plan,
            prepare_seconds: 0.0,
            encode_seconds: 0.0,
            known: true,
        })
    }

    /// The film of which `frame` gives the frames, by their number among those that are seen; few of them are held at once.
    fn encoded(
        &self,
        model: &Model,
        (digest, plan): (MediaDigest, FilmPlan),
        frame: &mut dyn FnMut(usize) -> Result<Picture>,
        cancel: &CancelToken,
    ) -> Result<Watched> {
        if let Some(known) = self.known(&digest) {
            return Ok(known);
        }
        let _turn = self.pictures.turn();
        // Somebody else may have watched it meanwhile.
        if let Some(known) = self.known(&digest) {
            return Ok(known);
        }
        let begun = Instant::now();
        let preparing = Cell::new(0.0);
        let joined = (self.record.joined as usize).max(1);
        let groups = (0..plan.frames).step_by(joined);
        let prepared = groups.map(|first| {
            let begun = Instant::now();
            let group = (first..plan.frames.min(first + joined)).map(&mut *frame);
            let group = group.collect::<Result<Vec<Picture>>>()?;
            let group: Vec<&Picture> = group.iter().collect();
            let prepared: Processed = self.pictures.processor().process_frames(&plan, &group)?;
            preparing.set(preparing.get() + begun.elapsed().as_secs_f64());
            Ok(prepared)
        });
        let rows = self.pictures.rows(model, prepared, plan.tokens, cancel)?;
        let [view] = &plan.frame.views[..] else {
            return Err(wrong(model, "is given several views of a frame".into()));
        };
        let in_grids = model.media_in_grids();
        let kind = MediaKind::Film {
            rows: NonZeroUsize::new(view.tokens as usize).unwrap_or(NonZeroUsize::MIN),
            columns: in_grids.then(|| self.pictures.columns(view)).flatten(),
        };
        let shown = Shown {
            sense: Sense::Film,
            text: self.record.text(&plan),
            written: self.record.marks.written().to_owned(),
            token: self.record.marks.token.clone(),
            media: model.hold_media(digest, rows, kind)?,
        };
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.put(digest, shown.clone(), plan.clone());
        let prepare_seconds = preparing.get();
        Ok(Watched {
            shown,
            plan,
            prepare_seconds,
            encode_seconds: begun.elapsed().as_secs_f64() - prepare_seconds,
            known: false,
        })
    }
}

fn frame_name(i: usize) -> String {
    format!("frame {}", i + 1)
}

impl Shows for Films {
    fn show(
        &self,
        model: &Model,
        files: &[&MediaFile],
        asking: &Asking<'_>,
    ) -> std::result::Result<Vec<Shown>, Unshown> {
        let limits = Limits::default();
        let mut planned = Vec::new();
        for (i, file) in files.iter().enumerate() {
            let MediaFile::Frames(files, timing) = file else {
                return Err(unshown(i, "expected the frames of a film, found one file"));
            };
            let frames = Frames { files, timing };
            planned.push((frames, self.seen(model, frames, &limits).map_err(|e| unshown(i, e))?));
        }
        let tokens: u64 = planned.iter().map(|(_, seen)| seen.plan.tokens).sum();
        fit_together(model, asking, "films", files.len(), tokens)?;
        let look = |(i, (frames, seen))| {
            let watched = self.look(model, frames, seen, &limits, (asking.salt, asking.cancel));
            watched.map(|watched| watched.shown).map_err(|e| unshown(i, e))
        };
        planned.into_iter().enumerate().map(look).collect()
    }
}
