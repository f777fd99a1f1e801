//! Phrases that are heard again by a target while listening goes on.

use super::super::again::Again;
use super::super::route;
use crate::output;
use anyhow::Result;
use cactus_router::hybrid::money::Pico;
use cactus_router::{Amended, LiveHearing, Offered, Phrase};
use cactus_speech::{Segment, StreamEvent, TranscribeOptions};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a look for what was heard again may take at the end, before it is asked whether anybody still waits.
const LOOK: Duration = Duration::from_millis(100);

/// Phrases on their way to a target and back.
pub(super) struct Later {
    hearing: LiveHearing,
    rate_hz: u32,
    /// Phrases that were handed over, and of them those that were changed.
    taken: usize,
    changed: usize,
    /// Phrases that nobody had time for.
    missed: usize,
    finals: usize,
    sent_ms: u64,
    cost: Pico,
    billed: bool,
    target: Option<String>,
    notes: Vec<String>,
}

impl Later {
    pub(super) fn new(again: &Again, options: &TranscribeOptions, rate_hz: u32, is_piped: bool) -> Result<Later> {
        Ok(Later {
            hearing: again.live(options, is_piped)?,
            rate_hz,
            taken: 0,
            changed: 0,
            missed: 0,
            finals: 0,
            sent_ms: 0,
            cost: Pico::ZERO,
            billed: true,
            target: None,
            notes: Vec::new(),
        })
    }

    /// Hands over what is final, with its sound.
    pub(super) fn offer(&mut self, event: &StreamEvent) {
        let StreamEvent::Final {
            segment,
            language,
            sound,
            ..
        } = event
        else {
            return;
        };
        self.finals += 1;
        let phrase = Phrase {
            segment: segment.clone(),
            language: language.clone(),
            samples: sound.clone(),
            rate_hz: self.rate_hz,
        };
        match self.hearing.offer(phrase) {
            Offered::Sure => {}
            Offered::Taken => self.taken += 1,
            Offered::Full => self.missed += 1,
        }
    }

    /// What was heard again meanwhile.
    pub(super) fn each(&mut self, show: &mut dyn FnMut(&Amended)) {
        while let Some(amended) = self.hearing.next(Duration::ZERO) {
            self.count(&amended);
            show(&amended);
        }
    }

    /// Waits for the rest, unless `is_over`, and says what came of it all.
    pub(super) fn finish(mut self, is_over: &dyn Fn() -> bool, show: &mut dyn FnMut(&Amended)) {
        let waiting = self.hearing.waiting();
        if waiting > 0 {
            output::note(format!(
                "({waiting} phrases are being heard again; Ctrl-C leaves them as they are)"
            ));
        }
        while self.hearing.waiting() > 0 && !is_over() {
            if let Some(amended) = self.hearing.next(LOOK) {
                self.count(&amended);
                show(&amended);
            }
        }
        output::note(self.line());
    }

    fn count(&mut self, amended: &Amended) {
        let outcome = &amended.answered.outcome;
        self.changed += usize::from(amended.revision.revision > 0);
        self.sent_ms += amended.sound.sent_ms;
        self.cost = self.cost.plus(outcome.cost);
        self.billed &= outcome.billed;
        self.target.clone_from(&amended.answered.target);
        for note in &amended.answered.notes {
            // A target that rests says so of each phrase.
            if self.notes.last() != Some(note) {
                output::note(format!("({note})"));
                self.notes.push(note.clone());
            }
        }
        if amended.sound.sent_ms == 0 {
            let because = route::because(outcome.reason);
            let note = format!("phrase {} stays as it is, because {because}", amended.segment.id);
            output::note(format!("({note})"));
        }
    }

    /// What was heard again, by whom, and for how much.
    fn line(&self) -> String {
        let missed = match self.missed {
            0 => String::new(),
            missed => format!("; {missed} more came too fast and stay as they are"),
        };
        let cost = match self.billed {
            true => self.cost.to_string(),
            false => format!("at most {}", self.cost),
        };
        format!(
            "({} was let hear {:.1} s for {} of {} phrases, and changed {}; {cost}{missed})",
            self.target.as_deref().unwrap_or("no target"),
            self.sent_ms as f64 / 1000.0,
            self.taken,
            self.finals,
            self.changed
        )
    }
}

/// What became of a phrase, for programs.
pub(super) fn event(amended: &Amended, words: bool) -> Value {
    let mut told = Value::Object(amended.answered.to_json());
    // The phrase has its own.
    for name in ["confidence", "error_bound", "time_to_first_token_ms"] {
        if let Some(fields) = told.as_object_mut() {
            fields.remove(name);
        }
    }
    told["event"] = json!("revision");
    told["id"] = json!(amended.segment.id);
    told["revision"] = json!(amended.revision.revision);
    told["amended"] = json!(amended.revision.amended);
    told["answered_by"] = json!(amended.revision.target.as_deref().unwrap_or("local"));
    told["segment"] = json!(shown(&amended.segment, words));
    if let Some(language) = &amended.language {
        told["language"] = json!(language);
    }
    told
}

/// A segment as it is shown: with its words where they were asked for.
pub(super) fn shown(segment: &Segment, words: bool) -> Segment {
    let mut segment = segment.clone();
    if !words {
        segment.words.clear();
    }
    segment
}
