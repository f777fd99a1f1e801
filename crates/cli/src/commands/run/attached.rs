//! Pictures, films and sounds that go with the next question.

use super::drawn;
use crate::hint::{Advised, NAME_HEARING, NAME_SEEING};
use crate::{film_file, output, picture_file};
use anyhow::{Context as _, Result, bail};
use cactus_engine::chat::{Data, MAX_FILE_BYTES, Sense, to_base64};
use cactus_engine::{CancelToken, Model};
use cactus_multimodal::{Films, Heard, Limits, Look, Pictures, Sounds, Watched};
use cactus_vision::decode::header;
use cactus_vision::processor::Role;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What shows a model pictures and films and plays it sounds, and those that it has not been asked about.
pub(super) struct Attached {
    pictures: Option<Arc<Pictures>>,
    films: Option<Films>,
    sounds: Option<Arc<Sounds>>,
    /// Whether views are told of, and in which folder they are drawn.
    tells: Option<Option<PathBuf>>,
    /// Names of the files that were drawn, without the number of the view.
    drawn: HashSet<String>,
    /// As parts of a message.
    waiting: Vec<Value>,
    /// Tokens of these.
    tokens: u64,
}

impl Attached {
    /// With so many tokens for a picture and frames of a film, where that is given.
    pub(super) fn new(
        model: &Model,
        [tokens, frames]: [Option<u32>; 2],
        tells: Option<Option<PathBuf>>,
    ) -> Result<Attached> {
        let option = if frames.is_some() {
            "--video-frames"
        } else {
            "--image-tokens"
        };
        let pictures = Pictures::attach_with(model, tokens, frames).with_context(|| format!("`{option}`"))?;
        if let (None, Some(_)) = (&pictures, tokens) {
            return Err(anyhow::Error::msg(Advised {
                what: "`--image-tokens`: the model sees no pictures".to_owned(),
                advice: NAME_SEEING.to_owned(),
            }));
        }
        Ok(Attached {
            films: pictures.as_ref().and_then(Films::of),
            pictures,
            sounds: Sounds::attach(model)?,
            tells,
            drawn: HashSet::new(),
            waiting: Vec::new(),
            tokens: 0,
        })
    }

    /// Refuses pictures that do not fit the context together, before any of them is encoded. What is wrong with one of them is said when it is shown.
    pub(super) fn plan(&self, model: &Model, files: &[PathBuf]) -> Result<()> {
        let (Some(pictures), [_, _, ..]) = (&self.pictures, files) else {
            return Ok(());
        };
        let limits = Limits::default();
        let tokens = |file: &PathBuf| {
            let found = header(&picture_file::read(file, limits.max_bytes).ok()?, &limits).ok()?;
            Some(pictures.plan(model, found.width, found.height).ok()?.tokens)
        };
        let tokens: u64 = files.iter().filter_map(tokens).sum();
        fit(model, &format!("{} pictures", files.len()), tokens)
    }

    /// Counts what goes with the next question, where it still fits.
    fn count(&mut self, model: &Model, tokens: u64) -> Result<()> {
        let all = self.tokens + tokens;
        if !self.waiting.is_empty() {
            fit(
                model,
                &format!("what goes with the question, {} files,", self.waiting.len() + 1),
                all,
            )?;
        }
        self.tokens = all;
        Ok(())
    }

    /// Looks at the picture in `file`, which goes with the next question.
    pub(super) fn show(&mut self, model: &Model, file: &Path, cancel: &CancelToken) -> Result<()> {
        let Some(pictures) = &self.pictures else {
            return Err(cannot(model, "sees no pictures", NAME_SEEING));
        };
        if model.chat_template()?.is_none() {
            bail!("pictures stand in a conversation, which needs a chat template, and the model has none");
        }
        let limits = Limits::default();
        let shown = file.display();
        let pictures = Arc::clone(pictures);
        let bytes = picture_file::read(file, limits.max_bytes)?;
        let planned = header(&bytes, &limits).map_err(cactus_multimodal::Error::from);
        let planned = planned.and_then(|found| pictures.plan(model, found.width, found.height));
        let planned = planned.with_context(|| format!("`{shown}`"))?;
        self.count(model, planned.tokens)?;
        let look = pictures.look_at_file(model, &bytes, &limits, cancel);
        let look = look.with_context(|| format!("`{shown}`"))?;
        tell(&shown.to_string(), &look);
        if let Some(folder) = &self.tells {
            views(&look);
            if let Some(folder) = folder {
                let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                // Files of one name may come from several folders.
                let names = (1..).map(|i| if i == 1 { stem.clone() } else { format!("{stem}-{i}") });
                let name = names
                    .into_iter()
                    .find(|name| !self.drawn.contains(name))
                    .unwrap_or_default();
                let picture = pictures.processor().decode(&bytes, &limits)?;
                drawn::draw(pictures.processor(), &picture, folder, &name)?;
                self.drawn.insert(name);
            }
        }
        self.waiting.push(json!({"type": "image", "data": to_base64(&bytes)}));
        Ok(())
    }

    /// Watches the film at `path`, which goes with the next question; of a folder of pictures, `rate` frames go by in a second.
    pub(super) fn watch(&mut self, model: &Model, path: &Path, rate: f64, cancel: &CancelToken) -> Result<()> {
        let Some(films) = &self.films else {
            return Err(cannot(model, "sees no films", NAME_SEEING));
        };
        if model.chat_template()?.is_none() {
            bail!("films stand in a conversation, which needs a chat template, and the model has none");
        }
        let limits = Limits::default();
        let shown = path.display();
        let film = film_file::read(path, rate, limits.max_bytes, |count, seconds| {
            films.chosen(count, seconds)
        })?;
        let bytes: usize = film.frames.iter().map(Vec::len).sum();
        if bytes > MAX_FILE_BYTES {
            bail!(
                "`{shown}`: its {} frames have {bytes} bytes, and at most {MAX_FILE_BYTES} go with a question; see fewer with `--video-frames`",
                film.frames.len()
            );
        }
        let watched = films.watch_files(model, &film.frames, &film.timing, &limits, cancel);
        let watched = watched.with_context(|| format!("`{shown}`"))?;
        tell_film(&shown.to_string(), &watched);
        let frames: Vec<String> = film.frames.iter().map(|frame| to_base64(frame)).collect();
        let frames = frames.iter().map(String::as_str).collect();
        self.waiting.push(Data::Frames(frames, film.timing).part(Sense::Film));
        Ok(())
    }

    /// Listens to the sound in `file`, which goes with the next question.
    pub(super) fn play(&mut self, model: &Model, file: &Path, cancel: &CancelToken) -> Result<()> {
        let Some(sounds) = &self.sounds else {
            return Err(cannot(model, "hears no sounds", NAME_HEARING));
        };
        if model.chat_template()?.is_none() {
            bail!("sounds stand in a conversation, which needs a chat template, and the model has none");
        }
        let shown = file.display();
        let bytes = picture_file::bytes_of(file, MAX_FILE_BYTES)?;
        let heard = sounds.listen_to_file(model, &bytes, cancel);
        let heard = heard.with_context(|| format!("`{shown}`"))?;
        tell_sound(&shown.to_string(), &heard);
        self.waiting.push(json!({"type": "audio", "data": to_base64(&bytes)}));
        Ok(())
    }

    /// A message of the user with the pictures, films and sounds that wait.
    pub(super) fn message(&self, text: &str) -> Value {
        if self.waiting.is_empty() {
            return cactus_text::message("user", text);
        }
        let mut parts = self.waiting.clone();
        parts.push(json!({"type": "text", "text": text}));
        json!({"role": "user", "content": parts})
    }

    /// Forgets those that `asked` has.
    pub(super) fn sent(&mut self, asked: &Value) {
        if asked["role"] == "user" {
            self.clear();
        }
    }

    /// Forgets them.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.tokens = 0;
    }
}

/// What a model does not do, with what to do about it.
fn cannot(model: &Model, what: &str, advice: &str) -> anyhow::Error {
    anyhow::Error::msg(Advised {
        what: format!("the model `{}` {what}", model.bundle().manifest().name),
        advice: advice.to_owned(),
    })
}

/// Refuses what has more tokens than the context.
fn fit(model: &Model, what: &str, tokens: u64) -> Result<()> {
    let context = model.context_tokens();
    if tokens < context as u64 {
        return Ok(());
    }
    bail!(
        "{what} together have {tokens} tokens, and the context holds {context}; give fewer or smaller ones, or a larger `--context` where the model allows it"
    )
}

/// What it took, in seconds.
fn times(known: bool, [prepare, encode]: [f64; 2]) -> String {
    match known {
        true => "known from before".to_owned(),
        false => format!("prepared in {prepare:.2} s, encoded in {encode:.2} s"),
    }
}

fn tell_sound(name: &str, heard: &Heard) {
    let time = times(heard.known, [heard.prepare_seconds, heard.encode_seconds]);
    let cut = if heard.is_cut_off { " (the file is cut off)" } else { "" };
    output::note(format!(
        "{name}: {:.1} s{cut}, {} tokens, {time}",
        heard.seconds, heard.tokens
    ));
}

fn tell_film(name: &str, watched: &Watched) {
    let plan = &watched.plan;
    let time = times(watched.known, [watched.prepare_seconds, watched.encode_seconds]);
    let [width, height] = match &plan.frame.views[..] {
        [view, ..] => [view.width, view.height],
        [] => [0; 2],
    };
    output::note(format!(
        "{name}: {} frames of {width} x {height} pixels, {} tokens, {time}",
        plan.frames, plan.tokens
    ));
}

fn tell(name: &str, look: &Look) {
    let plan = &look.plan;
    let views = match plan.views.len() {
        1 => String::new(),
        count => format!(" in {count} views"),
    };
    let time = times(look.known, [look.prepare_seconds, look.encode_seconds]);
    output::note(format!(
        "{name}: {} x {} pixels, {} tokens{views}, {time}",
        plan.width, plan.height, plan.tokens
    ));
}

/// A row for each view.
fn views(look: &Look) {
    let row = |(i, view): (usize, &cactus_vision::processor::View)| {
        let what = match view.role {
            Role::Only => "the picture".to_owned(),
            Role::Whole => "the whole, in small".to_owned(),
            Role::Tile { row, column } => format!("tile {}, {}", row + 1, column + 1),
        };
        vec![
            (i + 1).to_string(),
            what,
            format!("{} x {}", view.width, view.height),
            format!("{} x {}", view.grid.columns, view.grid.rows),
            view.tokens.to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = look.plan.views.iter().enumerate().map(row).collect();
    output::table(&["view", "shows", "pixels", "patches", "tokens"], &rows);
}
