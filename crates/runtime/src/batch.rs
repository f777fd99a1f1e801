//! Several sequences of one program, computed in one pass over the rows of all.
//!
//! Purpose: what changes from call to call. A batch owns the arena, the pages of keys and values, and its sequences. A call
//! takes rows of any of them: linears, norms and the head see one matrix of rows, attention and whatever else remembers work
//! on each row's own sequence. A row's logits have the same bits alone and in any company.
//!
//! It deliberately does not decide who is computed when, waits for nobody and evicts nobody: where pages run out, the call
//! says so and changes nothing.

use crate::execute::{Call, HeadOut, Held, RowInfo, Run};
use crate::observe::{Observer, Replaced};
use crate::pages::{self, Sequence};
use crate::step::TAIL_ROWS;
use crate::{Error, Logits, Profile, Program, Result};
use cactus_base::{AlignedBuf, Pool, Step};
use cactus_kernels::{Exec, KvRun};
use cactus_tensor::Tensor;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Stretches of keys and values of a call for which no memory is asked: those of a few sequences.
const FEW: usize = 8;

/// Gets the logits of one row after the other: its place among the rows of the call, and its logits.
pub type EachRow<'a> = &'a mut dyn FnMut(usize, Logits<'_>);

/// A sequence of a [`Batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(usize);

/// How much memory a [`Batch`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Sequences that can be open at once.
    pub sequences: usize,
    /// Positions that they can hold together, rounded up to whole pages. Memory is taken where it is used first.
    pub tokens: usize,
    /// Snapshots that can be held beside them.
    pub snapshots: usize,
}

/// Which logits of a [`Part`] are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// None: the call only fills the states.
    Nothing,
    /// Those of the last position.
    Last,
    /// Those of every position from the given one (counted within the part) on.
    From(usize),
}

/// What one call computes for one sequence: the positions after those it holds.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The sequence.
    pub sequence: SequenceId,
    /// Token ids of the positions.
    pub ids: &'a [u32],
    /// Logits to compute.
    pub wanted: Wanted,
    /// Rows that stand in place of the embeddings of some positions, whose ids must be of the vocabulary all the same.
    pub media: &'a [MediaRows<'a>],
}

/// Consecutive positions of a [`Part`] whose embeddings are given.
#[derive(Clone, Copy, Debug)]
pub struct MediaRows<'a> {
    /// The first of them, counted within the part.
    pub at: usize,
    /// Their rows, `[positions, width]` with the width of [`Program::media_width`].
    pub rows: &'a [f32],
    /// Rows of the same medium before them, which earlier calls have computed.
    pub skipped: usize,
    /// Whether they see each other where [`Program::media_see_ahead`], as those of a picture do; the last of them is the last of its medium
    /// then, as what a row gives depends on all that it sees. Those of a sound see what is before them.
    pub see_each_other: bool,
    /// Columns of the grid in which the rows of the medium stand, row after row; `None` where they stand in line. It matters where
    /// [`Program::media_in_grids`].
    pub columns: Option<NonZeroUsize>,
}

/// Several sequences of one program. See the module documentation.
#[derive(Debug)]
pub struct Batch {
    program: Arc<Program>,
    arena: AlignedBuf,
    pub(crate) pools: Vec<pages::Pool>,
    sequences: Vec<Option<Sequence>>,
    /// `[wanted rows, vocab]`, and the peaks of each row.
    logits: Vec<f32>,
    peaks: Vec<f32>,
    rows: RowInfo,
    wanted: Vec<usize>,
    profile: Option<Profile>,
    pub(crate) replaced: Replaced,
}

impl Batch {
    /// Memory for sequences of `program`.
    ///
    /// # Errors
    /// Where the memory cannot be had.
    pub fn new(program: Arc<Program>, capacity: Capacity) -> Result<Batch> {
        let pools = program.states.groups.iter().map(|group| {
            let pages = match group.window {
                None => capacity.tokens.div_ceil(cactus_kernels::BLOCK_TOKENS),
                // A window is held whole by whoever has come so far.
                Some(_) => group
                    .most_pages
                    .saturating_mul(capacity.sequences.saturating_add(capacity.snapshots)),
            };
            pages::Pool::new(pages, group.page_bytes)
        });
        Ok(Batch {
            arena: AlignedBuf::zeroed(program.lowered.arena_bytes)?,
            pools: pools.collect::<Result<_>>()?,
            sequences: (0..capacity.sequences).map(|_| None).collect(),
            logits: vec![0.0; program.lowered.vocab_size],
            peaks: vec![0.0; program.lowered.peaks()],
            rows: RowInfo::default(),
            wanted: Vec::new(),
            profile: None,
            replaced: Replaced::new(),
            program,
        })
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Begins a sequence.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Busy`] where as many are open as the batch was made for.
    pub fn open(&mut self) -> Result<SequenceId> {
        let Some(place) = self.sequences.iter().position(Option::is_none) else {
            return Err(Error::Busy {
                what: "sequences",
                capacity: self.sequences.len(),
                wanted: 1,
                free: 0,
            });
        };
        self.sequences[place] = Some(Sequence::new(&self.program.states)?);
        Ok(SequenceId(place))
    }

    /// Ends a sequence, whose pages others can have then.
    pub fn close(&mut self, id: SequenceId) {
        if let Some(mut sequence) = self.sequences.get_mut(id.0).and_then(Option::take) {
            sequence.clear(&mut self.pools);
        }
    }

    fn sequence(&self, id: SequenceId) -> Result<&Sequence> {
        let found = self.sequences.get(id.0).and_then(Option::as_ref);
        found.ok_or_else(|| Error::Argument(format!("sequence {} does not exist or was closed", id.0)))
    }

    /// A sequence, and the pages of all.
    pub(crate) fn parts(&mut self, id: SequenceId) -> Result<(&mut Sequence, &mut [pages::Pool])> {
        let found = self.sequences.get_mut(id.0).and_then(Option::as_mut);
        let sequence = found.ok_or_else(|| Error::Argument(format!("sequence {} is not open", id.0)))?;
        Ok((sequence, &mut self.pools))
    }

    /// Positions held by a sequence; 0 for one that is not open.
    pub fn len(&self, id: SequenceId) -> usize {
        self.sequence(id).map_or(0, |s| s.len)
    }

    /// Positions that sequences can still take together: those of the pages that nobody holds.
    pub fn free_tokens(&self) -> usize {
        let pages = self.pools.iter().zip(&self.program.states.groups);
        let unlimited = pages.filter(|(_, group)| group.window.is_none());
        let free = unlimited.map(|(pool, _)| pool.free() * cactus_kernels::BLOCK_TOKENS);
        free.min().unwrap_or(usize::MAX)
    }

    /// Logits of wanted row `index` of the last call that kept them, `[vocab]`, in the order of the parts.
    ///
    /// # Panics
    /// When the call computed fewer: a programming error.
    pub fn logits(&self, index: usize) -> Logits<'_> {
        let (vocab, peaks) = (self.program.lowered.vocab_size, self.program.lowered.peaks());
        Logits::new(
            &self.logits[index * vocab..][..vocab],
            &self.peaks[index * peaks..][..peaks],
        )
    }

    /// Begins or ends measuring the time of each step.
    pub fn set_profiling(&mut self, on: bool) {
        self.profile = on.then(|| Profile::new(self.program.lowered.steps.len()));
    }

    /// The times measured since profiling began.
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }

    /// Takes the inputs of a sequence beside its token ids ([`Program::given_inputs`]), computes what depends on them alone,
    /// and forgets its positions.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Argument`] for an input that is missing, unknown or of another type or shape than declared, or
    /// where the program has none.
    pub fn give(&mut self, id: SequenceId, pool: &Pool, width: usize, inputs: &BTreeMap<String, Tensor>) -> Result<()> {
        self.sequence(id)?;
        let held = Held::new(&self.program, pool, width, inputs)?;
        if let Some(sequence) = &mut self.sequences[id.0] {
            sequence.given = Some(Arc::new(held));
            sequence.clear(&mut self.pools);
        }
        Ok(())
    }

    /// Gives `to` the inputs beside token ids that `from` was given ([`Batch::give`]), and forgets its positions. What was
    /// computed of them is held once for both: hypotheses about one sound share its keys and values.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Argument`] where one of the sequences is not open or `from` was given nothing.
    pub fn share_given(&mut self, from: SequenceId, to: SequenceId) -> Result<()> {
        let Some(held) = self.sequence(from)?.given.clone() else {
            let nothing = format!("sequence {} has no inputs beside token ids to share", from.0);
            return Err(Error::Argument(nothing));
        };
        let (sequence, pools) = self.parts(to)?;
        sequence.given = Some(held);
        sequence.clear(pools);
        Ok(())
    }

    /// Forgets what a sequence was given beside its token ids ([`Batch::give`]), and its positions: before more is given, so that both
    /// do not take memory at once.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Argument`] where the sequence is not open.
    pub fn forget_given(&mut self, id: SequenceId) -> Result<()> {
        let (sequence, pools) = self.parts(id)?;
        sequence.given = None;
        sequence.clear(pools);
        Ok(())
    }

    /// Forgets every position of a sequence.
    pub fn clear(&mut self, id: SequenceId) {
        if let Some(sequence) = self.sequences.get_mut(id.0).and_then(Option::as_mut) {
            sequence.clear(&mut self.pools);
        }
    }

    /// Forgets the positions of a sequence from `keep` on. Where a state has lost what it would need (a sliding window that
    /// moved on, a convolution), it returns `false` and forgets nothing.
    pub fn truncate(&mut self, id: SequenceId, keep: usize) -> bool {
        let sequence = self.sequences.get_mut(id.0).and_then(Option::as_mut);
        sequence.is_some_and(|s| s.truncate(&self.program.states, &mut self.pools, keep))
    }

    /// Computes `parts`, of different sequences and together at most [`Program::chunk_tokens`] positions, on `width` threads
    /// of `pool`. `each` gets the logits of every row that is wanted; without it they are kept for [`Batch::logits`].
    ///
    /// # Errors
    /// [`crate::ErrorKind::Argument`] for an empty or too long call, a sequence that is not open or named twice, or an
    /// unknown token id; [`crate::ErrorKind::ContextFull`] where a sequence would be longer than the context;
    /// [`crate::ErrorKind::Busy`] where there are not enough pages; [`crate::ErrorKind::Bundle`] where a file of the bundle was
    /// cut short or could not be read. The sequences are then as before, and no logits were shown that came of it.
    pub fn run(&mut self, pool: &Pool, width: usize, parts: &[Part<'_>], each: Option<EachRow<'_>>) -> Result<()> {
        self.run_observed(pool, width, parts, each, None)
    }

    /// As [`Batch::run`], showing `observer` the inputs of linears. No logits are computed then, and nothing after the linear at
    /// which it says that it has seen enough; those of rows that are wanted are shown as they were left.
    ///
    /// # Errors
    /// As [`Batch::run`].
    pub fn run_observed(
        &mut self,
        pool: &Pool,
        width: usize,
        parts: &[Part<'_>],
        each: Option<EachRow<'_>>,
        observer: Option<Observer<'_>>,
    ) -> Result<()> {
        self.rows.clear();
        self.wanted.clear();
        self.admit(parts)?;
        // Calls without any, which are all but a few, ask for no memory.
        let mut media = Vec::new();
        let media_width = self.program.media_width().unwrap_or(1).max(1);
        for part in parts {
            let (first, of) = (self.rows.ids.len(), media.len());
            media.extend(part.media.iter().map(|m| (first + m.at, m.rows)));
            self.rows.push_run(part.ids, self.len(part.sequence));
            self.rows
                .stand_in(&media[of..], media_width, self.program.lowered.media.stand_in);
            let wanted = match part.wanted {
                Wanted::Nothing => part.ids.len(),
                Wanted::Last => part.ids.len() - 1,
                Wanted::From(from) => from.min(part.ids.len()),
            };
            self.wanted.extend(first + wanted..first + part.ids.len());
        }

        if self.program.media_see_ahead() {
            let all = parts.iter().flat_map(|part| part.media);
            let together = media.iter().zip(all).filter(|(_, m)| m.see_each_other);
            let spans = together.map(|((first, rows), _)| *first..first + rows.len() / media_width);
            self.rows.see_each_other(spans);
        }

        // Out of the batch while they are computed, so that their tables and what they carry can be lent apart.
        let mut only = [Sequence::default()];
        let mut several = Vec::new();
        let sequences = match parts {
            [_] => &mut only[..],
            _ => {
                several.resize_with(parts.len(), Sequence::default);
                &mut several[..]
            }
        };
        for (sequence, part) in sequences.iter_mut().zip(parts) {
            *sequence = self.sequences[part.sequence.0].take().unwrap_or_default();
        }
        let computed = self.compute(pool, width, sequences, &media, each, observer);
        // Before anything else that went wrong: zeros in place of weights may be why.
        let result = self.program.bundle.intact().map_err(Error::from).and(computed);
        for (sequence, part) in sequences.iter_mut().zip(parts) {
            match result {
                Ok(()) => sequence.len += part.ids.len(),
                Err(_) => sequence.grids.truncate(sequence.len),
            }
            self.sequences[part.sequence.0] = Some(std::mem::take(sequence));
        }
        result
    }

    /// Says where each row is on the axes of the rotary embedding. On an error the sequences are as before.
    fn stand_in_grids(&mut self, parts: &[Part<'_>]) -> Result<()> {
        let width = self.program.media_width().unwrap_or(1).max(1);
        let mut result = Ok(());
        for part in parts {
            let Some(sequence) = self.sequences[part.sequence.0].as_mut() else {
                continue;
            };
            let past = sequence.len;
            for media in part.media {
                let stands = sequence.grids.add(media, past + media.at, media.rows.len() / width);
                result = result.and(stands);
            }
            let positions = past..past + part.ids.len();
            self.rows.on_axes.extend(positions.map(|p| sequence.grids.axes(p)));
        }
        if result.is_err() {
            for part in parts {
                if let Some(sequence) = self.sequences[part.sequence.0].as_mut() {
                    sequence.grids.truncate(sequence.len);
                }
            }
        }
        result
    }

    /// Checks `parts` and takes the pages that they need.
    fn admit(&mut self, parts: &[Part<'_>]) -> Result<()> {
        let program = Arc::clone(&self.program);
        let rows = parts.iter().map(|p| p.ids.len()).fold(0, usize::saturating_add);
        if rows > program.chunk_tokens || parts.is_empty() || parts.iter().any(|p| p.ids.is_empty()) {
            let count = match parts {
                [_] => String::new(),
                _ => format!(" for {} sequences", parts.len()),
            };
            return Err(Error::Argument(format!(
                "one call can compute 1 to {} tokens; found {rows}{count}",
                program.chunk_tokens
            )));
        }
        for (i, part) in parts.iter().enumerate() {
            let sequence = self.sequence(part.sequence)?;
            if parts[..i].iter().any(|p| p.sequence == part.sequence) {
                let twice = format!(
                    "sequence {} occurs twice in one call; expected each sequence once",
                    part.sequence.0
                );
                return Err(Error::Argument(twice));
            }
            if sequence.len + part.ids.len() > program.context_tokens {
                return Err(Error::ContextFull {
                    capacity: program.context_tokens,
                    used: sequence.len,
                    wanted: part.ids.len(),
                });
            }
            fits_media(part, program.media_width())?;
            let wanted = program.given_inputs();
            if !wanted.is_empty() && sequence.given.is_none() {
                let names = wanted.join("`, `");
                let what = format!("the model also needs `{names}`, which must be given before the first token");
                return Err(Error::Argument(what));
            }
        }
        for (group, plan) in program.states.groups.iter().enumerate() {
            let mut missing = 0;
            for part in parts {
                let sequence = self.sequence(part.sequence)?;
                missing += sequence.missing(group, &self.pools[group], sequence.len + part.ids.len());
            }
            let leaving = |part: &Part<'_>| {
                let sequence = self.sequence(part.sequence);
                sequence.map_or(0, |s| s.leaving(&program.states, group, s.len + part.ids.len()))
            };
            let free = self.pools[group].free() + parts.iter().map(leaving).sum::<usize>();
            if missing > free {
                return Err(Error::Busy {
                    what: match plan.window {
                        None => "pages of keys and values",
                        Some(_) => "pages of a window's keys and values",
                    },
                    capacity: self.pools[group].pages(),
                    wanted: missing,
                    free,
                });
            }
        }
        if program.media_in_grids() {
            self.stand_in_grids(parts)?;
        }
        for part in parts {
            if let Some(sequence) = self.sequences[part.sequence.0].as_mut() {
                let len = sequence.len + part.ids.len();
                sequence.leave(&program.states, &mut self.pools, len);
                sequence.take(&mut self.pools, len);
            }
        }
        Ok(())
    }

    /// Computes the rows in `self.rows`, those of `sequences` one after the other.
    fn compute(
        &mut self,
        pool: &Pool,
        width: usize,
        sequences: &mut [Sequence],
        media: &[(usize, &[f32])],
        each: Option<EachRow<'_>>,
        observer: Option<Observer<'_>>,
    ) -> Result<()> {
        let step = pool.step(width);
        if self.profile.is_some() {
            step.measure_joins();
        }
        let computed = self.compute_in(&step, sequences, media, each, observer);
        if let (Some(profile), Some(joins)) = (&mut self.profile, step.joins()) {
            profile.joins.merge(&joins);
        }
        computed
    }

    /// As [`Batch::compute`], in a step of the pool.
    fn compute_in(
        &mut self,
        step: &Step<'_>,
        sequences: &mut [Sequence],
        media: &[(usize, &[f32])],
        each: Option<EachRow<'_>>,
        observer: Option<Observer<'_>>,
    ) -> Result<()> {
        let program = Arc::clone(&self.program);
        let (count, groups) = (sequences.len(), program.states.groups.len());
        const NO_RUN: KvRun<'_> = KvRun {
            rows: 0,
            past: 0,
            pages: &[],
        };
        let (mut few, mut many) = ([NO_RUN; FEW], Vec::new());
        let kv_runs = match few.get_mut(..count * groups) {
            Some(runs) => runs,
            None => {
                many.resize(count * groups, NO_RUN);
                &mut many[..]
            }
        };
        let (mut one, mut several) = ([const { None }; 1], Vec::new());
        let all = 0..self.rows.ids.len();
        for (i, (sequence, rows)) in sequences.iter_mut().zip(self.rows.runs(all.clone())).enumerate() {
            for (group, table) in sequence.tables.iter().enumerate() {
                kv_runs[group * count + i] = KvRun {
                    rows: rows.len(),
                    past: sequence.len,
                    pages: &table.pages,
                };
            }
            let run = Run {
                rows,
                carried: &mut sequence.carried,
                given: sequence.given.as_deref(),
            };
            match count {
                1 => one[0] = Some(run),
                _ => several.push(run),
            }
        }
        let runs = match &mut one {
            [Some(run)] => std::slice::from_mut(run),
            _ => &mut several[..],
        };

        let mut call = Call {
            lowered: &program.lowered,
            program: &program,
            exec: Exec {
                kernels: program.kernels,
                step,
            },
            arena: &mut self.arena,
            pools: &mut self.pools,
            kv_runs,
            runs,
            rows: &mut self.rows,
            media,
            profile: self.profile.as_mut(),
            // Not moved as a whole: only the reference itself can take a shorter lifetime.
            observer: match observer {
                Some(o) => Some(o),
                None => None,
            },
            ended: false,
            replaced: &self.replaced,
        };
        let tail = program.lowered.tail;
        call.steps(0..tail, all, HeadOut::default())?;
        let (Some(&first), Some(&last)) = (self.wanted.first(), self.wanted.last()) else {
            return Ok(());
        };
        // The tail computes rows that follow one another.
        let rows = if last - first + 1 == self.wanted.len() {
            first..last + 1
        } else {
            call.gather(&self.wanted);
            0..self.wanted.len()
        };
        let (vocab, peaks) = (program.lowered.vocab_size, program.lowered.peaks());
        let kept = match each {
            Some(_) => TAIL_ROWS.min(rows.len()),
            None => rows.len(),
        };
        if self.logits.len() < kept * vocab {
            self.logits.resize(kept * vocab, 0.0);
            self.peaks.resize(kept * peaks, 0.0);
        }
        let mut each = each;
        for start in rows.clone().step_by(TAIL_ROWS) {
            let part = start..(start + TAIL_ROWS).min(rows.end);
            let first = if each.is_some() { 0 } else { start - rows.start };
            let out = HeadOut {
                logits: &mut self.logits[first * vocab..][..part.len() * vocab],
                peaks: &mut self.peaks[first * peaks..][..part.len() * peaks],
            };
            call.steps(tail..program.lowered.steps.len(), part.clone(), out)?;
            let Some(each) = each.as_deref_mut() else { continue };
            program.bundle.intact()?;
            for i in 0..part.len() {
                let logits = Logits::new(&self.logits[i * vocab..][..vocab], &self.peaks[i * peaks..][..peaks]);
                each(self.wanted[part.start - rows.start + i], logits);
            }
        }
        Ok(())
    }
}

/// Whether the rows of media of `part` are rows of some of its positions.
fn fits_media(part: &Part<'_>, width: Option<usize>) -> Result<()> {
    let Some(width) = width else {
        return match part.media {
            [] => Ok(()),
            _ => Err(Error::Argument("this program takes no rows of media".into())),
        };
    };
    for MediaRows { at, rows, .. } in part.media {
        let count = rows.len() / width.max(1);
        let end = at.checked_add(count).filter(|end| *end <= part.ids.len());
        if count * width != rows.len() || end.is_none() {
            return Err(Error::Argument(format!(
                "expected rows of {width} numbers for some of {} positions, found {} numbers from position {at} on",
                part.ids.len(),
                rows.len()
            )));
        }
    }
    Ok(())
}
