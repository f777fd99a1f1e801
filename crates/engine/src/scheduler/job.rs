//! One request: from its arrival to its end, and while it is under way.
//!
//! What it computes next, and what becomes of its logits. It deliberately knows nothing of other requests.

use super::{Event, Piece, Priority, Sink};
use crate::Result;
use crate::completion::{CancelToken, Delta, FinishReason};
use crate::generation::Generation;
use crate::media::{self, Held, Parted};
use crate::sampler::Sampled;
use crate::speculate::{DraftLength, Drafter, PromptLookup};
use cactus_runtime::{Batch, Part, SequenceId, Wanted};
use std::time::Instant;

/// Most rows that an answer under way computes at once: its last token and those that a grammar forces after it.
const MOST_FORCED: usize = 32;
/// Tokens of an answer for which memory is set aside when it is admitted.
const SET_ASIDE: usize = 256;

/// A request, from its arrival to its end.
pub(super) struct Job {
    /// Prompt and what was said so far.
    pub(super) tokens: Vec<u32>,
    pub(super) prompt_tokens: usize,
    /// The pictures and sounds of the prompt.
    pub(super) media: Held,
    pub(super) generation: Generation,
    pub(super) priority: Priority,
    pub(super) salt: u64,
    pub(super) cancel: CancelToken,
    pub(super) sink: Sink,
    pub(super) arrived: Instant,
    /// The first token has been drawn.
    pub(super) started: bool,
    pub(super) guesses: DraftLength,
}

impl Job {
    pub(super) fn new(
        prompt: Vec<u32>,
        media: Held,
        generation: Generation,
        (priority, salt): (Priority, u64),
        cancel: CancelToken,
        sink: Sink,
    ) -> Job {
        let guesses = DraftLength::new(generation.options().prompt_lookup);
        Job {
            prompt_tokens: prompt.len(),
            tokens: prompt,
            media,
            generation,
            priority,
            salt,
            cancel,
            sink,
            arrived: Instant::now(),
            started: false,
            guesses,
        }
    }

    /// The tokens that need not be computed where they are known from before: all before the first row with logits.
    pub(super) fn reusable(&self) -> &[u32] {
        &self.tokens[..self.first_scored().unwrap_or(self.tokens.len() - 1)]
    }

    /// The first row whose logits score the token after it, while tokens of the prompt are still to be scored.
    pub(super) fn first_scored(&self) -> Option<usize> {
        let from = self.generation.scores_from().filter(|_| !self.started)?;
        Some(from - 1)
    }

    /// Tokens for which memory is set aside.
    pub(super) fn expected_tokens(&self) -> usize {
        let answer = self.generation.options().max_tokens.min(SET_ASIDE);
        (self.prompt_tokens + answer).max(self.tokens.len())
    }

    pub(super) fn end(mut self, result: Result<FinishReason>) {
        let mut pieces = Vec::new();
        let result = result.and_then(|reason| {
            self.generation.end(&mut |delta| pieces.push(Piece::from(delta)))?;
            Ok(reason)
        });
        for piece in pieces {
            (self.sink)(Event::Delta(piece));
        }
        let generation = self.generation;
        (self.sink)(Event::End(result.map(|reason| generation.completion(reason))));
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("prompt_tokens", &self.prompt_tokens)
            .field("tokens", &self.tokens.len())
            .finish_non_exhaustive()
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) job: Job,
    pub(super) id: SequenceId,
    /// Rises with each admission.
    pub(super) admitted: u64,
    /// Lengths at which the prompt is kept for others, ascending.
    pub(super) stations: Vec<usize>,
    /// Rows of the pass under way, and the guesses among them.
    pub(super) rows: usize,
    pub(super) guessed: usize,
    /// What the pass brought.
    pub(super) events: Vec<Event>,
    pub(super) end: Option<Result<FinishReason>>,
    /// Positions whose states are right; fewer than were computed where guesses were wrong.
    pub(super) right: usize,
}

impl Running {
    /// Tokens whose rows are to be computed, `held` being computed.
    pub(super) fn pending(&self, held: usize) -> usize {
        self.job.tokens.len() - held
    }

    /// Whether it is an answer that goes on, rather than a prompt (or what was computed before it was put back).
    pub(super) fn goes_on(&self, held: usize) -> bool {
        self.job.started && self.pending(held) <= MOST_FORCED
    }

    /// Appends at most `most` guesses to the tokens; returns how many.
    pub(super) fn guess(&mut self, most: usize, context: usize) -> Result<usize> {
        let job = &mut self.job;
        if job.generation.options().prompt_lookup == 0 {
            return Ok(0);
        }
        let most = job
            .guesses
            .get()
            .min(most)
            .min(context.saturating_sub(job.tokens.len()));
        let mut guesses = Vec::new();
        if most > 0 {
            PromptLookup::default().draft(&job.tokens, most, &mut guesses)?;
            media::keep_tokens(&mut guesses);
            job.generation.keep_allowed(&mut guesses)?;
        }
        self.guessed = guesses.len();
        self.rows += guesses.len();
        job.tokens.append(&mut guesses);
        Ok(self.guessed)
    }

    /// How many of the last rows of the pass need logits, `held` being computed before it.
    pub(super) fn wanted_rows(&self, held: usize) -> usize {
        let end = held + self.rows;
        if let Some(first) = self.job.first_scored() {
            return end.saturating_sub(first.max(held));
        }
        match end == self.job.tokens.len() {
            true => self.guessed + 1,
            false => 0,
        }
    }

    /// Scores the tokens after the rows of the pass that are wanted, the first of which is row `first` of the batch's; returns
    /// the place of the row after them. `held` counts the pass.
    pub(super) fn score(&mut self, batch: &Batch, first: usize, held: usize) -> Result<usize> {
        let wanted = self.wanted_rows(held - self.rows);
        let job = &mut self.job;
        let scored = wanted - usize::from(held == job.tokens.len());
        for i in 0..scored {
            let place = held - wanted + i + 1;
            job.generation
                .score(place, job.tokens[place], batch.logits(first + i))?;
        }
        Ok(first + scored)
    }

    /// The rows of media that the pass computes for it, `held` being computed.
    pub(super) fn media(&self, held: usize) -> Option<Parted<'_>> {
        self.job.media.part(&self.job.tokens[held..held + self.rows])
    }

    /// What the pass computes for it, `held` being computed, with what [`Running::media`] gives.
    pub(super) fn part<'a>(&'a self, held: usize, media: Option<&'a Parted<'a>>) -> Option<Part<'a>> {
        let tokens = &self.job.tokens;
        let end = held + self.rows;
        (self.rows > 0).then(|| Part {
            sequence: self.id,
            ids: media.map_or(&tokens[held..end], |m| &m.ids),
            media: media.map_or(&[], |m| &m.rows),
            wanted: match self.wanted_rows(held) {
                0 => Wanted::Nothing,
                wanted => Wanted::From(self.rows - wanted),
            },
        })
    }

    /// Draws after the rows of the pass that are wanted, the first of which is row `first` of the batch's: for as long as the
    /// guesses are what is drawn. Some of the tokens then said may be forced.
    pub(super) fn advance(&mut self, batch: &Batch, mut first: usize) -> Result<Option<FinishReason>> {
        let held = batch.len(self.id);
        if self.job.first_scored().is_some() {
            first = self.score(batch, first, held)?;
            if held < self.job.tokens.len() {
                return Ok(None);
            }
        }
        let Running {
            job,
            events,
            guessed,
            right,
            ..
        } = self;
        let Job { generation, tokens, .. } = job;
        if !job.started {
            job.started = true;
            events.push(Event::Started {
                prompt_tokens: job.prompt_tokens,
                cached_tokens: generation.cached,
            });
        }
        let mut on_delta = |delta: Delta<'_>| events.push(Event::Delta(delta.into()));
        let known = tokens.len() - *guessed;
        let mut accepted = 0;
        let mut end;
        loop {
            let sampled = generation.draw(batch.logits(first + accepted))?;
            let token = sampled.token;
            *right = known + accepted;
            end = generation.say(sampled, &mut on_delta)?;
            let guess = tokens[known..].get(accepted).copied();
            if end.is_some() || guess != Some(token) {
                tokens.truncate(known + accepted);
                tokens.push(token);
                break;
            }
            accepted += 1;
        }
        generation.drafted += *guessed;
        generation.accepted += accepted;
        if *guessed > 0 {
            job.guesses.learn(*guessed, accepted);
        }
        let context = batch.program().context_tokens();
        if end.is_none() {
            let room = context.saturating_sub(tokens.len()).min(MOST_FORCED - 1);
            for token in generation.forced(room)? {
                tokens.push(token);
                end = generation.say(Sampled::forced(token), &mut on_delta)?;
                if end.is_some() {
                    break;
                }
            }
        }
        Ok(end.or((tokens.len() > context).then_some(FinishReason::ContextFull)))
    }
}
