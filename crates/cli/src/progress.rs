//! Progress bars on a terminal, nothing elsewhere.

use crate::output;
use cactus_hub::Event;
use cactus_quality::Stage;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A bar of bytes with rate and time left; hidden where standard error is no terminal.
pub(crate) fn byte_bar(total: u64, what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total);
    let style = "{msg:<28} {bar:32.cyan/blue} {bytes:>10}/{total_bytes:<10} {bytes_per_sec:>12} {eta:>5} left";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar.set_message(what.to_owned());
    bar
}

/// A spinner for work of unknown length.
pub(crate) fn spinner(what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// Shows the events of a fetch.
#[derive(Debug, Default)]
pub(crate) struct FetchProgress {
    bar: Option<ProgressBar>,
}

impl cactus_hub::Progress for FetchProgress {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Waiting { id } => output::note(format!("another process is fetching `{id}`; waiting for it")),
            Event::Begin {
                id,
                total_bytes,
                resumed_bytes,
            } => {
                let resumed = match resumed_bytes {
                    0 => String::new(),
                    n => format!(", {} already here", output::bytes(n)),
                };
                output::note(format!("fetching `{id}` ({}{resumed})", output::bytes(total_bytes)));
                let bar = byte_bar(total_bytes, id);
                bar.set_position(resumed_bytes);
                self.bar = Some(bar);
            }
            Event::File { name, number, count } => {
                if let Some(bar) = &self.bar {
                    bar.set_message(match count {
                        1 => name.to_owned(),
                        _ => format!("{name} ({number}/{count})"),
                    });
                }
            }
            Event::Bytes { done, .. } => {
                if let Some(bar) = &self.bar {
                    bar.set_position(done);
                }
            }
            Event::Verify { name } => {
                if let Some(bar) = &self.bar {
                    bar.set_message(format!("checking {name}"));
                }
            }
            Event::Done { .. } => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
            }
            _ => {}
        }
    }
}

/// One bar after another for the stages of a conversion.
#[derive(Debug, Default)]
pub(crate) struct StageBar {
    current: std::cell::RefCell<Option<(Stage, ProgressBar)>>,
}

impl StageBar {
    pub(crate) fn show(&self, stage: Stage, done: u64, total: u64) {
        let mut current = self.current.borrow_mut();
        // Collecting inputs happens in the middle of converting; its bar gives way again.
        if current.as_ref().is_none_or(|(shown, _)| *shown != stage) {
            if let Some((_, bar)) = current.take() {
                bar.finish_and_clear();
            }
            let what = match stage {
                Stage::Reference => "reading",
                Stage::Sensitivity => "measuring sensitivity",
                Stage::Calibrating => "calibrating",
                Stage::Measuring => "measuring quality",
                _ => "converting",
            };
            *current = Some((stage, byte_bar(total, what)));
        }
        if let Some((_, bar)) = &*current {
            bar.set_length(total);
            bar.set_position(done);
        }
    }

    pub(crate) fn end(&self) {
        if let Some((_, bar)) = self.current.borrow_mut().take() {
            bar.finish_and_clear();
        }
    }
}

/// A bar of things counted one by one, with what is known so far.
pub(crate) fn count_bar(total: u64, what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total);
    if let Ok(style) =
        ProgressStyle::with_template("{prefix:<12} {bar:32.cyan/blue} {pos:>5}/{len:<5} {eta:>5} left  {msg}")
    {
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar.set_prefix(what.to_owned());
    bar
}
