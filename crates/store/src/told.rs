//! Steps as four plain values, for callers in other languages.

use crate::Step;
use cactus_hub::Event;
use cactus_quality::Stage;

impl Step<'_> {
    /// Says the step as stage, what it is about, how much of it is done, and of how much: bytes, or the stage's own parts; 0 of 0
    /// where that is not known. The stages are `waiting`, `downloading`, `checking`, `converting`, `reading source`,
    /// `choosing bits`, `calibrating`, `measuring quality`, and `note`, about which the user should know. Some steps say
    /// nothing, and one with several notes says each.
    pub fn tell(&self, say: &mut dyn FnMut(&'static str, &str, u64, u64)) {
        match self {
            Step::Fetch(Event::Waiting { id }) => say("waiting", id, 0, 0),
            Step::Fetch(Event::Begin {
                id,
                total_bytes,
                resumed_bytes,
            }) => say("downloading", id, *resumed_bytes, *total_bytes),
            Step::Fetch(Event::Bytes { done, total }) => say("downloading", "", *done, *total),
            Step::Fetch(Event::Verify { name }) => say("checking", name, 0, 0),
            Step::Converting { source, .. } => say("converting", &source.display().to_string(), 0, 0),
            Step::Stage { stage, done, total } => {
                let stage = match stage {
                    Stage::Reference => "reading source",
                    Stage::Sensitivity => "choosing bits",
                    Stage::Calibrating => "calibrating",
                    Stage::Measuring => "measuring quality",
                    _ => "converting",
                };
                say(stage, "", *done, *total);
            }
            Step::Made(made) => {
                for note in made.outcome.notes.iter().chain(&made.below_floor) {
                    say("note", note, 0, 0);
                }
            }
            Step::Fetch(_) | Step::Converted => {}
        }
    }
}
