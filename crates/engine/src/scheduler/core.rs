//! What happens in one pass: who is admitted, whose rows are computed, what becomes of their logits.
//!
//! Everything but sampling happens on the caller's thread, and nothing here waits. The only clock is the one that learns how
//! many rows of prompts fit between two tokens of the answers; it changes when something is computed, never what.

use super::cache::PrefixCache;
use super::job::{Job, Running};
use super::{Event, SchedulerLimits, SchedulerStats};
use crate::completion::FinishReason;
use crate::memory::total_memory;
use crate::speculate::MAX_DRAFT_TOKENS;
use crate::{Error, Model, Result, media};
use cactus_runtime::{BLOCK, Batch, Capacity, Part, SequenceId};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Rows of a pass that memory is still the limit of: guesses may fill them, and prompts get at least as many.
const FREE_ROWS: usize = 8;
/// Most rows of a prompt that are scored in one pass: the logits of all of them are kept at once.
const MOST_SCORED: usize = 32;
/// Most bytes of keys and values where nobody said how many.
const MOST_KV_BYTES: u64 = 1 << 30;
/// Weight of the latest measurement in running means.
const LATEST: f64 = 0.2;

/// A model's requests and what they share.
#[derive(Debug)]
pub(super) struct Core {
    model: Arc<Model>,
    limits: SchedulerLimits,
    batch: Batch,
    cache: PrefixCache,
    waiting: Vec<Job>,
    running: Vec<Running>,
    admissions: u64,
    /// Seconds of a row, where rows are many; 0 before the first measurement.
    row_seconds: f64,
    service_seconds: f64,
    counts: SchedulerStats,
    /// Ended, and not told so yet.
    ended: Vec<(Job, Result<FinishReason>)>,
}

impl Core {
    pub(super) fn new(model: Arc<Model>, limits: SchedulerLimits) -> Result<Core> {
        let program = Arc::clone(model.program());
        let chunk = program.chunk_tokens();
        if limits.sequences == 0 || limits.sequences > chunk || limits.queue == 0 {
            return Err(Error::Argument(format!(
                "a scheduler computes 1 to {chunk} sequences at once and lets at least one wait, found {} and {}",
                limits.sequences, limits.queue
            )));
        }
        let given = program.given_inputs();
        if !given.is_empty() {
            let names = given.join("`, `");
            return Err(Error::Argument(format!(
                "the model reads `{names}` beside token ids, which a scheduler cannot give it"
            )));
        }
        let snapshots = match limits.prefix_cache {
            true => 2 * limits.sequences + 8,
            false => 0,
        };
        let batch = Batch::new(
            Arc::clone(&program),
            Capacity {
                sequences: limits.sequences,
                tokens: kv_tokens(&program, &limits),
                snapshots,
            },
        )?;
        let cache = match limits.prefix_cache {
            true => PrefixCache::new(&batch, snapshots),
            false => PrefixCache::Off,
        };
        Ok(Core {
            counts: SchedulerStats {
                kv_tokens: kv_tokens(&program, &limits),
                ..SchedulerStats::default()
            },
            model,
            limits,
            batch,
            cache,
            waiting: Vec::new(),
            running: Vec::new(),
            admissions: 0,
            row_seconds: 0.0,
            service_seconds: 1.0,
            ended: Vec::new(),
        })
    }

    /// Takes jobs that have arrived.
    pub(super) fn take(&mut self, jobs: &mut Vec<Job>) {
        self.waiting.append(jobs);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Seconds that a request takes lately, from its arrival to its end.
    pub(super) fn service_seconds(&self) -> f64 {
        self.service_seconds
    }

    pub(super) fn stats(&self) -> SchedulerStats {
        let free = self.batch.free_tokens().min(self.counts.kv_tokens);
        SchedulerStats {
            running: self.running.len(),
            waiting: self.waiting.len(),
            kv_tokens_used: self.counts.kv_tokens - free,
            kv_tokens_cached: self.cache.tokens(),
            ..self.counts
        }
    }

    /// Lets go of all prefixes that nobody computes from.
    pub(super) fn forget_prefixes(&mut self) {
        while self.cache.forget_one(&mut self.batch) {}
    }

    /// Ends everything.
    pub(super) fn cancel_all(&mut self) {
        for job in &self.waiting {
            job.cancel.cancel();
        }
        for running in &self.running {
            running.job.cancel.cancel();
        }
        self.drop_cancelled();
        self.tell();
    }

    /// Hands out what came since the last time.
    pub(super) fn tell(&mut self) {
        for r in &mut self.running {
            for event in r.events.drain(..) {
                (r.job.sink)(event);
            }
        }
        for (job, result) in self.ended.drain(..) {
            job.end(result);
        }
    }

    /// Computes one pass. What comes of it is handed out by [`Core::tell`].
    pub(super) fn step(&mut self) {
        self.drop_cancelled();
        self.admit();
        if let Err(e) = self.pass() {
            // Whatever it is, it is everybody's: a damaged bundle, memory that the system refuses.
            let e = Error::Shared(Arc::new(e));
            for running in &mut self.running {
                running.end = Some(Err(Error::again(&e)));
            }
        }
        self.retire();
    }

    fn drop_cancelled(&mut self) {
        let cancelled = |job: &mut Job| job.cancel.is_cancelled();
        for job in self.waiting.extract_if(.., cancelled) {
            self.counts.cancelled += 1;
            self.ended.push((job, Ok(FinishReason::Cancelled)));
        }
        for running in &mut self.running {
            if running.job.cancel.is_cancelled() {
                running.end = Some(Ok(FinishReason::Cancelled));
            }
        }
        self.retire();
    }

    // ---- who is computed

    /// Lets those begin who are next and for whom there is memory.
    fn admit(&mut self) {
        let turn = |job: &Job| (std::cmp::Reverse(job.priority), job.arrived);
        self.waiting.sort_by_key(turn);
        let mut next = 0;
        while self.running.len() < self.limits.sequences && next < self.waiting.len() {
            let job = &self.waiting[next];
            if self.is_underway(job) {
                next += 1;
                continue;
            }
            if !self.has_room(job) && !self.running.is_empty() {
                return;
            }
            let job = self.waiting.remove(next);
            self.begin(job);
        }
    }

    /// Whether a prompt is being computed that begins like this one: what it leaves behind is worth waiting for.
    fn is_underway(&self, job: &Job) -> bool {
        let mut others = self
            .running
            .iter()
            .filter(|r| !r.job.started && r.job.salt == job.salt)
            .peekable();
        if others.peek().is_none() {
            return false;
        }
        let known = self.cache.known(job.salt, job.reusable());
        others.any(|r| {
            let tokens = &r.job.tokens;
            let common = tokens.iter().zip(job.reusable()).take_while(|(a, b)| a == b).count();
            self.cache.shares(common, tokens.len()) > known
        })
    }

    fn has_room(&self, job: &Job) -> bool {
        let blocks = |tokens: usize| tokens.div_ceil(BLOCK);
        let promised = |r: &Running| blocks(r.job.expected_tokens()).saturating_sub(blocks(self.batch.len(r.id)));
        let promised: usize = self.running.iter().map(promised).sum();
        let known = self.cache.known(job.salt, job.reusable());
        let wanted = blocks(job.expected_tokens()).saturating_sub(known / BLOCK);
        let free = self.batch.free_tokens().saturating_add(self.cache.tokens()) / BLOCK;
        promised + wanted <= free
    }

    /// A sequence that begins with what is known of a job's tokens, and how much that is.
    fn open(&mut self, job: &Job) -> Result<(SequenceId, usize)> {
        let id = self.batch.open()?;
        // The logits of the last token are needed, so its row is computed in any case.
        let known = self.cache.begin(&mut self.batch, id, job.salt, job.reusable());
        if known.is_err() {
            self.batch.close(id);
        }
        Ok((id, known?))
    }

    fn begin(&mut self, mut job: Job) {
        let (id, known) = match self.open(&job) {
            Ok(begun) => begun,
            Err(e) => {
                self.counts.failed += 1;
                self.ended.push((job, Err(e)));
                return;
            }
        };
        if !job.started {
            job.generation.cached = known;
            self.counts.cached_tokens += known as u64;
            self.counts.prompt_tokens += job.prompt_tokens as u64;
        }
        self.admissions += 1;
        let mut stations = self.cache.stations(job.salt, &job.tokens, known);
        if self.model.program().media_see_ahead() {
            stations.retain(|&at| media::whole_end(&job.tokens, 0, at) == at);
        }
        self.running.push(Running {
            stations,
            job,
            id,
            admitted: self.admissions,
            rows: 0,
            guessed: 0,
            events: Vec::new(),
            end: None,
            right: 0,
        });
    }

    /// Chooses the rows of a pass: those of the answers that go on, guesses while memory is what a pass waits for, and rows of
    /// prompts in the time that is left.
    fn plan(&mut self) {
        let chunk = self.model.program().chunk_tokens();
        let mut room = chunk;
        let held: Vec<usize> = self.running.iter().map(|r| self.batch.len(r.id)).collect();
        for (r, &held) in self.running.iter_mut().zip(&held) {
            (r.rows, r.guessed) = (0, 0);
            if r.goes_on(held) && r.pending(held) <= room {
                r.rows = r.pending(held);
                room -= r.rows;
            }
        }
        let answers = chunk - room;
        if answers > 0 && answers < FREE_ROWS && self.model.program().can_rewind(MAX_DRAFT_TOKENS) {
            let share = (FREE_ROWS - answers) / self.running.iter().filter(|r| r.rows > 0).count().max(1);
            let lone = self.running.len() == 1;
            for r in self.running.iter_mut().filter(|r| r.rows == 1) {
                // Alone, as many as a session would; among others, what costs them nothing.
                let most = if lone { MAX_DRAFT_TOKENS } else { share };
                match r.guess(most.min(room), self.model.program().context_tokens()) {
                    Ok(guesses) => room -= guesses,
                    Err(e) => {
                        r.rows = 0;
                        r.end = Some(Err(e));
                    }
                }
            }
        }
        let mut for_prompts = match answers {
            0 => room,
            _ => room.min(self.prompt_rows()),
        };
        if self.model.program().media_see_ahead() {
            let together = self.show(room, &held);
            for_prompts = for_prompts.saturating_sub(together);
        }
        self.share_out(for_prompts, &held);
    }

    /// Gives rows to the first prompt that goes on with a picture which sees itself in both directions: all of the picture, as no pass
    /// may end within it, and so before those that need fewer. Returns how many.
    fn show(&mut self, room: usize, held: &[usize]) -> usize {
        let waiting = self.running.iter_mut().zip(held);
        let waiting = waiting.filter(|(r, held)| r.end.is_none() && !r.goes_on(**held));
        let shown = waiting.map(|(r, held)| (media::rows_together(&r.job.tokens, *held), r));
        let fits = shown.filter(|(rows, _)| (1..=room).contains(rows));
        let Some((rows, r)) = fits.min_by_key(|(_, r)| (std::cmp::Reverse(r.job.priority), r.job.arrived)) else {
            return 0;
        };
        r.rows = rows;
        rows
    }

    /// Gives `rows` to prompts: half of them to who needs fewest, so that a short prompt never waits for a long one, and half to
    /// who came first, so that no prompt waits for ever. What the first leave over is the others'.
    fn share_out(&mut self, rows: usize, held: &[usize]) {
        let see_ahead = self.model.program().media_see_ahead();
        let mut order: Vec<usize> = (0..self.running.len())
            .filter(|&i| self.running[i].end.is_none() && !self.running[i].goes_on(held[i]))
            .collect();
        let mut left = rows;
        for (kept, by_need) in [(rows / 2, true), (0, false)] {
            order.sort_by_key(|&i| {
                let r = &self.running[i];
                let need = if by_need { r.pending(held[i]) } else { 0 };
                (std::cmp::Reverse(r.job.priority), need, r.job.arrived)
            });
            for &i in &order {
                let r = &mut self.running[i];
                let station = r.stations.iter().find(|&&at| at > held[i]);
                let pending = station.map_or(r.pending(held[i]), |at| at - held[i]);
                let most = match r.job.first_scored() {
                    Some(first) => first.saturating_sub(held[i]) + MOST_SCORED,
                    None => usize::MAX,
                };
                let mut given = (pending.min(most).saturating_sub(r.rows)).min(left - kept);
                if see_ahead {
                    let from = held[i] + r.rows;
                    given = media::whole_end(&r.job.tokens, from, from + given) - from;
                }
                r.rows += given;
                left -= given;
            }
        }
    }

    /// Rows of prompts that fit between two tokens.
    fn prompt_rows(&self) -> usize {
        match self.row_seconds > 0.0 {
            true => ((self.limits.gap.as_secs_f64() / self.row_seconds) as usize).max(FREE_ROWS),
            false => 4 * FREE_ROWS,
        }
    }

    // ---- what is computed

    fn pass(&mut self) -> Result<()> {
        loop {
            self.plan();
            let Core {
                model, batch, running, ..
            } = self;
            let media: Vec<_> = running.iter().map(|r| r.media(batch.len(r.id))).collect();
            let each = running.iter().zip(&media);
            let parts: Vec<Part<'_>> = each.filter_map(|(r, m)| r.part(batch.len(r.id), m.as_ref())).collect();
            if parts.is_empty() {
                return Ok(());
            }
            let rows: usize = parts.iter().map(|p| p.ids.len()).sum();
            let threads = match rows > 2 * parts.len() {
                true => model.threads(),
                false => model.decode_threads(),
            };
            let start = Instant::now();
            let result = batch.run(model.pool(), threads, &parts, None);
            drop(parts);
            drop(media);
            match result {
                Ok(()) => {
                    self.counts.passes += 1;
                    self.counts.rows += rows as u64;
                    self.learn(rows, start.elapsed());
                    self.draw(threads);
                    return self.settle();
                }
                Err(cactus_runtime::Error::Busy { wanted, free, .. }) => {
                    self.take_back_guesses();
                    if !self.make_room(wanted - free.min(wanted)) {
                        return Ok(());
                    }
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn learn(&mut self, rows: usize, took: Duration) {
        if rows >= 4 * FREE_ROWS {
            let measured = took.as_secs_f64() / rows as f64;
            self.row_seconds = match self.row_seconds > 0.0 {
                true => LATEST * measured + (1.0 - LATEST) * self.row_seconds,
                false => measured,
            };
        }
    }

    /// Draws for all whose last row was computed, several at once.
    fn draw(&mut self, threads: usize) {
        let Core {
            model, batch, running, ..
        } = self;
        let batch = &*batch;
        let mut first = 0;
        let mut draws = Vec::new();
        for r in running.iter_mut().filter(|r| r.rows > 0) {
            let held = batch.len(r.id);
            r.right = held;
            let wanted = r.wanted_rows(held - r.rows);
            if wanted > 0 {
                draws.push(Mutex::new((first, r)));
                first += wanted;
            }
        }
        let step = model.pool().step(threads.min(draws.len()));
        step.run(draws.len(), &|i| {
            let mut draw = draws[i].lock().unwrap_or_else(PoisonError::into_inner);
            let (first, r) = &mut *draw;
            r.end = r.advance(batch, *first).transpose();
        });
    }

    /// Forgets the states of wrong guesses, and keeps prompts for others.
    fn settle(&mut self) -> Result<()> {
        let mut said = 0;
        for r in self.running.iter_mut().filter(|r| r.rows > 0) {
            let held = self.batch.len(r.id);
            said += r
                .events
                .iter()
                .filter(|e| matches!(e, Event::Delta(p) if p.token.is_some()))
                .count();
            if r.right < held && !self.batch.truncate(r.id, r.right) {
                // A program that says it can be rewound can.
                return Err(Error::Argument("the states of this model cannot be rewound".to_owned()));
            }
            let prompt_done = r.events.iter().any(|e| matches!(e, Event::Started { .. }));
            let at_station = r.stations.contains(&held);
            if prompt_done || at_station {
                self.cache
                    .keep(&mut self.batch, r.id, r.job.salt, &r.job.tokens[..r.right])?;
            }
        }
        self.counts.generated_tokens += said as u64;
        Ok(())
    }

    fn take_back_guesses(&mut self) {
        for r in &mut self.running {
            let known = r.job.tokens.len() - r.guessed;
            r.job.tokens.truncate(known);
            r.guessed = 0;
        }
    }

    /// Frees pages: forgets prefixes, then puts back whoever came last. `false` where nobody can go on: the only one left has
    /// ended then.
    fn make_room(&mut self, pages: usize) -> bool {
        let mut freed = 0;
        while freed < pages && self.cache.forget_one(&mut self.batch) {
            freed += 1;
        }
        if freed > 0 {
            return true;
        }
        let order = |r: &Running| (std::cmp::Reverse(r.job.priority), r.admitted);
        let last = (0..self.running.len()).max_by_key(|&i| order(&self.running[i]));
        let Some(last) = last else { return false };
        if self.running.len() == 1 {
            self.running[last].end = Some(Ok(FinishReason::ContextFull));
            return false;
        }
        let r = self.running.remove(last);
        self.batch.close(r.id);
        self.counts.preemptions += 1;
        self.waiting.push(r.job);
        true
    }

    // ---- what becomes of it

    /// Lets go of those that ended.
    fn retire(&mut self) {
        for r in self.running.extract_if(.., |r| r.end.is_some()) {
            let Running {
                mut job,
                id,
                events,
                end,
                ..
            } = r;
            for event in events {
                (job.sink)(event);
            }
            let result = end.unwrap_or(Ok(FinishReason::Stop));
            let held = self.batch.len(id);
            match &result {
                Err(_) => self.counts.failed += 1,
                Ok(reason) => {
                    match reason {
                        FinishReason::Cancelled => self.counts.cancelled += 1,
                        _ => self.counts.finished += 1,
                    }
                    // Only a convenience for whoever comes next: without it all is computed again.
                    let _ = self.cache.keep(&mut self.batch, id, job.salt, &job.tokens[..held]);
                }
            }
            self.batch.close(id);
            let took = job.arrived.elapsed().as_secs_f64();
            self.service_seconds = LATEST * took + (1.0 - LATEST) * self.service_seconds;
            self.ended.push((job, result));
        }
    }
}

/// Tokens whose keys and values are kept.
fn kv_tokens(program: &cactus_runtime::Program, limits: &SchedulerLimits) -> usize {
    let context = program.context_tokens();
    let most = match limits.kv_tokens {
        Some(tokens) => tokens,
        None => {
            let all = context.saturating_mul(limits.sequences);
            let bytes = (total_memory().unwrap_or(8 << 30) / 8).min(MOST_KV_BYTES);
            let fitting = (bytes as usize) / program.block_bytes().max(1);
            all.min(fitting.saturating_mul(BLOCK))
        }
    };
    most.max(context).next_multiple_of(BLOCK)
}
