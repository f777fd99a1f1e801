//! Pictures, sounds and films in a prompt: rows in place of embeddings, and the ids by which they are known.
//!
//! A prompt is token ids. A position that has a row of its own instead of a token gets an id of its own too, beyond those of every
//! vocabulary: the model hands out a run of ids for each medium, and the same ones for the same medium ever after. So equal ids mean equal
//! rows, exactly, and what compares prompts (prefixes, snapshots, sessions) needs to know nothing more. What a medium is, is said by a
//! digest of 256 bits of everything that its rows were made of.
//!
//! It may depend on the runtime's rows. It deliberately makes no rows and does not keep them: whoever has a [`Media`] keeps it alive, a
//! session or request for as long as it is computed.

use crate::{Error, Model, Result};
use cactus_bundle::{Bundle, VISION_PATH};
use cactus_runtime::MediaRows;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The first id of a row; those below are tokens.
pub const FIRST_MEDIA_ID: u32 = 1 << 31;
/// The first id of a row that sees no later one, whatever the model.
const FIRST_CAUSAL_ID: u32 = FIRST_MEDIA_ID + (1 << 30);
/// Ids of either kind.
const IDS: u32 = 1 << 30;

/// So many media are remembered before a model is better loaded again.
const MANY_MEDIA: usize = 1 << 20;

/// Most rows of a view that a model is loaded for.
const MAX_ROWS_OF_VIEW: usize = 1 << 14;

/// What tells one medium from another: a digest of everything that its rows were made of.
pub type MediaDigest = [u8; 32];

/// What the rows of a medium are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// Those of a picture: they see each other where the model was trained so.
    Picture {
        /// Columns of the grid in which they stand, row after row. It matters where [`Model::media_in_grids`].
        columns: Option<NonZeroUsize>,
    },
    /// Those of a film: those of a frame see each other where the model was trained so. Text stands between its frames.
    Film {
        /// Rows of a frame.
        rows: NonZeroUsize,
        /// As of a picture.
        columns: Option<NonZeroUsize>,
    },
    /// Those of a sound: each sees those before it.
    Sound,
}

/// The rows of a picture, a sound or a film. See the module documentation.
#[derive(Debug)]
pub struct Media {
    first: u32,
    width: usize,
    rows: Vec<f32>,
    kind: MediaKind,
}

impl Media {
    /// The ids of its rows, in order. They go into a prompt where the rows belong, all of them or some.
    #[must_use]
    pub fn ids(&self) -> Range<u32> {
        self.first..self.first + self.len() as u32
    }

    /// Rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len() / self.width
    }

    /// Whether it has none, which never is so.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Its rows, one after the other.
    #[must_use]
    pub fn rows(&self) -> &[f32] {
        &self.rows
    }

    /// What its rows are to each other.
    #[must_use]
    pub fn kind(&self) -> MediaKind {
        self.kind
    }

    /// Columns of the grid in which its rows stand, where the model has such.
    #[must_use]
    pub fn columns(&self) -> Option<NonZeroUsize> {
        match self.kind {
            MediaKind::Picture { columns } | MediaKind::Film { columns, .. } => columns,
            MediaKind::Sound => None,
        }
    }

    /// Rows that stand together: all, or those of a frame.
    fn rows_of_part(&self) -> usize {
        match self.kind {
            MediaKind::Film { rows, .. } => rows.get(),
            MediaKind::Picture { .. } | MediaKind::Sound => self.len(),
        }
    }

    /// Bytes of its rows.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rows.len() * 4
    }
}

/// The media that a model knows by their ids.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// First id and number of rows of every medium there ever was.
    ids: HashMap<MediaDigest, (u32, usize)>,
    /// Those that somebody holds, by their first id.
    held: BTreeMap<u32, Weak<Media>>,
    /// Ids handed out of those from [`FIRST_MEDIA_ID`] and from [`FIRST_CAUSAL_ID`] on.
    used: [u32; 2],
}

impl Known {
    /// The medium of `digest`, whose `rows` have `width` numbers each.
    fn hold(&self, digest: MediaDigest, width: usize, rows: Vec<f32>, kind: MediaKind) -> Result<Arc<Media>> {
        let count = rows.len() / width.max(1);
        if count == 0 || count * width != rows.len() {
            return Err(Error::Argument(format!(
                "expected whole rows of {width} numbers, found {} numbers",
                rows.len()
            )));
        }
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let table = &mut *table;
        let first = match table.ids.get(&digest) {
            Some(&(first, known)) if known == count => first,
            Some(&(_, known)) => {
                let what = format!("a medium of this digest has {known} rows; found {count}");
                return Err(Error::Argument(what));
            }
            None => {
                let (first, before) = match kind {
                    MediaKind::Picture { .. } | MediaKind::Film { .. } => (FIRST_MEDIA_ID, &mut table.used[0]),
                    MediaKind::Sound => (FIRST_CAUSAL_ID, &mut table.used[1]),
                };
                // One id stays unused behind each, so that two of them never look like one.
                let used = u32::try_from(count)
                    .ok()
                    .and_then(|n| before.checked_add(n)?.checked_add(1));
                let Some(used) = used.filter(|used| *used < IDS) else {
                    let what = "the model has been shown too many pictures, sounds or films; load it again".to_owned();
                    return Err(Error::Argument(what));
                };
                let first = first + std::mem::replace(before, used);
                table.ids.insert(digest, (first, count));
                first
            }
        };
        if let Some(held) = table.held.get(&first).and_then(Weak::upgrade) {
            return Ok(held);
        }
        table.held.retain(|_, media| media.strong_count() > 0);
        let media = Arc::new(Media {
            first,
            width,
            rows,
            kind,
        });
        table.held.insert(first, Arc::downgrade(&media));
        Ok(media)
    }

    /// Whether few ids are left, or many media are remembered.
    fn is_spent(&self) -> bool {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.ids.len() >= MANY_MEDIA || table.used.iter().any(|used| *used >= IDS - IDS / 16)
    }

    fn find(&self, id: u32) -> Option<Arc<Media>> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, media) = table.held.range(..=id).next_back()?;
        media.upgrade().filter(|media| media.ids().contains(&id))
    }
}

impl Model {
    /// Rows that may stand in prompts in place of tokens, `[rows, width]` with the width of [`Model::media_width`]. Of one digest there
    /// is one medium: if somebody holds it already, it is that.
    ///
    /// # Errors
    /// [`Error::Argument`] for rows of another width, another number of them than the digest had before, or more that see each other than
    /// one call can compute.
    pub fn hold_media(&self, digest: MediaDigest, rows: Vec<f32>, kind: MediaKind) -> Result<Arc<Media>> {
        let Some(width) = self.media_width() else {
            return Err(Error::Argument(
                "the model takes no pictures, sounds or films".to_owned(),
            ));
        };
        let (mut count, most) = (rows.len() / width.max(1), self.program().chunk_tokens());
        if let MediaKind::Film { rows, .. } = kind {
            count = count.min(rows.get());
        }
        let together = self.program().media_see_ahead() && kind != MediaKind::Sound;
        if together && count > most {
            return Err(Error::Argument(format!(
                "{count} rows see each other, so one call has to compute them, and a call computes at most {most} positions; load the model \
                 for larger pictures (`picture_rows`) or longer calls (`chunk_tokens`, `--chunk` of the command), or show a smaller one"
            )));
        }
        self.known_media().hold(digest, width, rows, kind)
    }

    /// Whether it has been shown so much that it is better loaded again when nobody uses it: ids of media are never given to others, as
    /// prefixes that are kept name them, so they run out, and what is remembered of them grows.
    #[must_use]
    pub fn has_spent_media(&self) -> bool {
        self.known_media().is_spent()
    }

    /// Whether a medium is one of this model's: ids mean nothing to another.
    pub(crate) fn holds(&self, media: &Arc<Media>) -> bool {
        let found = self.known_media().find(media.first);
        found.is_some_and(|found| Arc::ptr_eq(&found, media))
    }

    /// Whether a picture stands in its prompts as a grid, in which rows have other positions than in line.
    #[must_use]
    pub fn media_in_grids(&self) -> bool {
        self.program().media_in_grids()
    }

    /// Width of the rows that may stand in its prompts; `None` where the model takes tokens alone.
    #[must_use]
    pub fn media_width(&self) -> Option<usize> {
        self.program().media_width()
    }
}

/// Shortens guesses to the tokens before the first that is none.
pub(crate) fn keep_tokens(guesses: &mut Vec<u32>) {
    let end = guesses.iter().position(|id| is_row(*id));
    guesses.truncate(end.unwrap_or(guesses.len()));
}

/// Whether an id stands for a row and no token.
pub(crate) fn is_row(id: u32) -> bool {
    id >= FIRST_MEDIA_ID
}

/// The media of a prompt, held while it is computed.
#[derive(Debug, Default)]
pub(crate) struct Held(Vec<Arc<Media>>);

impl Held {
    /// Those of `prompt`.
    pub(crate) fn of(model: &Model, prompt: &[u32]) -> Result<Held> {
        let mut held = Held::default();
        held.add(model, prompt)?;
        Ok(held)
    }

    /// Holds those of `tokens`, too.
    pub(crate) fn add(&mut self, model: &Model, tokens: &[u32]) -> Result<()> {
        for &id in tokens.iter().filter(|id| is_row(**id)) {
            if self.find(id).is_none() {
                let found = model.known_media().find(id);
                self.0.push(found.ok_or_else(|| {
                    Error::Argument(format!(
                        "the prompt has the id {id}, and no picture, sound or film with it is held"
                    ))
                })?);
            }
        }
        Ok(())
    }

    fn find(&self, id: u32) -> Option<&Arc<Media>> {
        self.0.iter().find(|media| media.ids().contains(&id))
    }

    /// `tokens` with rows parted from tokens; `None` where all are tokens.
    pub(crate) fn part(&self, tokens: &[u32]) -> Option<Parted<'_>> {
        if !tokens.iter().any(|id| is_row(*id)) {
            return None;
        }
        let mut parted = Parted {
            ids: tokens.to_vec(),
            rows: Vec::new(),
        };
        let mut at = 0;
        while let Some(&id) = tokens.get(at) {
            let Some(media) = self.find(id).filter(|_| is_row(id)) else {
                at += 1;
                continue;
            };
            let skipped = (id - media.first) as usize;
            let within = skipped % media.rows_of_part();
            let end = media.ids().end.min(id + (media.rows_of_part() - within) as u32);
            let run = (id..end).zip(&tokens[at..]).take_while(|(a, b)| a == *b).count();
            // Models whose lower layers read ids read that of padding at such places, which is 0.
            parted.ids[at..at + run].fill(0);
            parted.rows.push(MediaRows {
                at,
                rows: &media.rows[skipped * media.width..][..run * media.width],
                skipped: within,
                see_each_other: media.kind != MediaKind::Sound,
                columns: media.columns(),
            });
            at += run;
        }
        Some(parted)
    }
}

/// Tokens and rows of a call.
pub(crate) struct Parted<'a> {
    /// A token for each position.
    pub(crate) ids: Vec<u32>,
    /// Rows in place of some of their embeddings.
    pub(crate) rows: Vec<MediaRows<'a>>,
}

/// Most rows of a view or of a frame: as many as the encoder always makes, or as were `asked` for, or as the record of pictures allows; 0 where
/// none of these says. In a model whose pictures see themselves in both directions, so many are computed at once.
pub(crate) fn rows_of_view(bundle: &Bundle, asked: Option<usize>) -> Result<usize> {
    const ENCODER: &str = "picture_encoder";
    if bundle.component(ENCODER).is_ok() {
        let (graph, _) = bundle.graph(ENCODER)?;
        let rows = graph.outputs().iter().find(|(name, _)| name == "rows");
        let shape = rows.map(|(_, rows)| &graph.ty(*rows).shape[..]);
        if let Some(rows) = shape.and_then(|shape| shape.get(1)?.as_known()) {
            return Ok(rows);
        }
    }
    if !bundle.has_file(VISION_PATH) {
        return Ok(0);
    }
    // Whoever sees with it says what is wrong with it.
    let record: Value = serde_json::from_slice(&bundle.file(VISION_PATH)?).unwrap_or_default();
    let most = |at: &str| record.pointer(at).and_then(Value::as_u64).unwrap_or(0);
    let [picture, frame] = ["/size/budget/tokens", "/films/size/budget/tokens"].map(most);
    let picture = asked.unwrap_or(usize::try_from(picture).unwrap_or(0));
    Ok(picture.max(usize::try_from(frame).unwrap_or(0)).min(MAX_ROWS_OF_VIEW))
}

/// Whether an id stands for a row that may see later ones.
fn may_see_ahead(id: u32) -> bool {
    (FIRST_MEDIA_ID..FIRST_CAUSAL_ID).contains(&id)
}

/// Whether the rows on both sides of place `at` follow each other in a medium whose rows may see each other.
fn is_within(ids: &[u32], at: usize) -> bool {
    let row = |at: usize| ids.get(at).copied().filter(|id| may_see_ahead(*id));
    let before = at.checked_sub(1).and_then(row);
    before.is_some_and(|before| row(at) == before.checked_add(1))
}

/// Where a call that computes `ids` from `from` on, and those up to `most` at the latest, ends without parting rows that may see each other.
/// `from` where it cannot.
pub(crate) fn whole_end(ids: &[u32], from: usize, most: usize) -> usize {
    (from..=most).rev().find(|&end| !is_within(ids, end)).unwrap_or(from)
}

/// Rows from `from` on that may see each other.
pub(crate) fn rows_together(ids: &[u32], from: usize) -> usize {
    let Some(end) = (from + 1..=ids.len()).find(|&end| !is_within(ids, end)) else {
        return 0;
    };
    if may_see_ahead(ids[from]) { end - from } else { 0 }
}

/// Lengths of `ids` at which a medium ends, ascending.
pub(crate) fn ends(ids: &[u32]) -> Vec<usize> {
    let rows: Vec<usize> = (0..ids.len()).filter(|&i| is_row(ids[i])).collect();
    let next = rows.iter().skip(1).map(|&i| Some(ids[i])).chain([None]);
    let ends = rows.iter().zip(next).filter(|(at, next)| *next != Some(ids[**at] + 1));
    ends.map(|(at, _)| at + 1).collect()
}

/// Where what is kept of `tokens` begins at the earliest, if it is to begin at `from` or later: no medium stays in part.
pub(crate) fn first_whole(tokens: &[u32], from: usize) -> usize {
    let of_row = |rows: &[u32], last: bool| -> Option<u32> {
        let mut rows = rows.iter().copied().filter(|id| is_row(*id));
        if last { rows.next_back() } else { rows.next() }
    };
    // Marks may stand between the rows of one medium, so the nearest rows on both sides tell.
    let (before, after) = tokens.split_at(from);
    match (of_row(before, true), of_row(after, false)) {
        (Some(a), Some(b)) if b == a.wrapping_add(1) => from + ends(after).first().copied().unwrap_or(0),
        _ => from,
    }
}

/// How many of the first `most` of `tokens` can be kept so that no medium stays in part.
pub(crate) fn last_whole(tokens: &[u32], most: usize) -> usize {
    match first_whole(tokens, most) == most {
        true => most,
        // The medium that would be cut begins behind the last one that ends before.
        false => tokens[..most].iter().position(|id| is_row(*id)).map_or(most, |first| {
            let whole = ends(&tokens[..most]);
            whole.iter().rev().nth(1).copied().unwrap_or(first)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MediaDigest = [1; 32];
    const B: MediaDigest = [2; 32];
    const STILL: MediaKind = MediaKind::Picture { columns: None };

    #[test]
    fn ids_of_a_medium_are_its_own_for_ever() {
        let known = Known::default();
        let a = known.hold(A, 2, vec![0.5; 6], STILL).unwrap();
        let b = known.hold(B, 2, vec![0.25; 4], STILL).unwrap();
        assert_eq!(a.ids().len(), 3);
        assert_eq!(b.ids(), a.ids().end + 1..a.ids().end + 3);
        assert!(Arc::ptr_eq(&a, &known.hold(A, 2, vec![0.5; 6], STILL).unwrap()));
        let ids = a.ids();
        drop(a);
        assert!(known.find(ids.start).is_none());
        assert_eq!(known.hold(A, 2, vec![0.5; 6], STILL).unwrap().ids(), ids);
        assert!(known.hold(A, 2, vec![0.5; 4], STILL).is_err());
        assert!(known.hold([3; 32], 2, vec![0.5; 3], STILL).is_err());
        assert!(known.hold([3; 32], 2, Vec::new(), STILL).is_err());
    }

    #[test]
    fn rows_of_a_sound_may_be_parted() {
        let known = Known::default();
        let picture = known.hold(A, 1, vec![0.5; 3], STILL).unwrap().ids().start;
        let sound = known.hold(B, 1, vec![0.5; 3], MediaKind::Sound).unwrap().ids().start;
        let ids = [7, sound, sound + 1, sound + 2, picture, picture + 1, 7];
        assert!(ids.iter().filter(|id| is_row(**id)).count() == 5);
        let whole: Vec<usize> = (0..=ids.len()).map(|most| whole_end(&ids, 0, most)).collect();
        assert_eq!(whole, [0, 1, 2, 3, 4, 4, 6, 7]);
        assert_eq!((rows_together(&ids, 1), rows_together(&ids, 4)), (0, 2));
        assert_eq!(ends(&ids), [4, 6]);
    }

    #[test]
    fn part_finds_rows_of_any_piece() {
        let known = Known::default();
        let rows: Vec<f32> = (0..8).map(|x| x as f32).collect();
        let media = known.hold(A, 2, rows, STILL).unwrap();
        let first = media.ids().start;
        let held = Held(vec![media]);
        assert!(held.part(&[1, 2, 3]).is_none());
        // The end of it, tokens, its beginning.
        let parted = held.part(&[first + 2, first + 3, 7, first, 9]).unwrap();
        assert_eq!(parted.ids, [0, 0, 7, 0, 9]);
        let found: Vec<(usize, &[f32])> = parted.rows.iter().map(|r| (r.at, r.rows)).collect();
        assert_eq!(found, [(0, &[4.0, 5.0, 6.0, 7.0][..]), (3, &[0.0, 1.0])]);
    }

    #[test]
    fn rows_of_a_film_are_counted_by_frame() {
        let known = Known::default();
        let rows: Vec<f32> = (0..6).map(|x| x as f32).collect();
        let [three, one] = [3, 1].map(NonZeroUsize::new);
        let film = MediaKind::Film {
            rows: three.unwrap(),
            columns: one,
        };
        let media = known.hold(A, 1, rows, film).unwrap();
        let first = media.ids().start;
        let held = Held(vec![media]);
        let parted = held
            .part(&[first + 1, first + 2, 7, first + 3, first + 4, first + 5])
            .unwrap();
        let found: Vec<_> = parted.rows.iter().map(|r| (r.at, r.rows, r.skipped)).collect();
        assert_eq!(found, [(0, &[1.0, 2.0][..], 1), (3, &[3.0, 4.0, 5.0], 0)]);
    }

    #[test]
    fn calls_end_at_rows_that_stand_together_or_apart() {
        let id = |n: u32| FIRST_MEDIA_ID + n;
        // Two runs of one medium with a mark between, a token, and another medium at the end.
        let ids = [1, id(0), id(1), 7, id(2), id(3), id(4), 5, id(9), id(10)];
        let whole: Vec<usize> = (0..=ids.len()).map(|most| whole_end(&ids, 0, most)).collect();
        assert_eq!(whole, [0, 1, 1, 3, 4, 4, 4, 7, 8, 8, 10]);
        assert_eq!(whole_end(&ids, 4, 6), 4);
        assert_eq!(whole_end(&ids, 5, 6), 5);
        let together: Vec<usize> = (0..ids.len()).map(|from| rows_together(&ids, from)).collect();
        assert_eq!(together, [0, 2, 1, 0, 3, 2, 1, 0, 2, 1]);
    }

    #[test]
    fn ends_are_behind_the_last_row_of_a_medium() {
        let id = |n: u32| FIRST_MEDIA_ID + n;
        assert_eq!(ends(&[1, id(0), id(1), 2, id(2), 3, id(9), 4]), [5, 7]);
        assert_eq!(ends(&[1, 2]), [0usize; 0]);
    }

    #[test]
    fn ids_are_spent_before_they_run_out() {
        let known = Known::default();
        let hold = |n: u8, kind| known.hold([n; 32], 1, vec![0.0; 4], kind);
        let picture = MediaKind::Picture { columns: None };
        let first = hold(1, picture).unwrap();
        assert!(!known.is_spent());
        known.0.lock().unwrap().used[1] = IDS - 8;
        assert!(known.is_spent());
        hold(2, MediaKind::Sound).unwrap();
        let error = hold(3, MediaKind::Sound).unwrap_err().to_string();
        assert!(error.contains("load it again"), "{error}");
        // Pictures have ids of their own, and keep theirs.
        hold(4, picture).unwrap();
        assert_eq!(hold(1, picture).unwrap().ids(), first.ids());
    }

    #[test]
    fn nothing_is_cut_within_a_medium() {
        let id = |n: u32| FIRST_MEDIA_ID + n;
        // A medium with marks between its rows, a token, and another one.
        let tokens = [1, id(0), 7, id(1), id(2), 5, id(9), id(10), 6];
        for (from, first, last) in [
            (0, 0, 0),
            (1, 1, 1),
            (2, 5, 1),
            (3, 5, 1),
            (4, 5, 1),
            (5, 5, 5),
            (6, 6, 6),
            (7, 8, 5),
            (8, 8, 8),
            (9, 9, 9),
        ] {
            assert_eq!(
                (first_whole(&tokens, from), last_whole(&tokens, from)),
                (first, last),
                "{from}"
            );
        }
    }
}
