//! Progress bars on a terminal, nothing elsewhere.

use crate::output;
use cactus_hub::Event;
use cactus_quality::Stage;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

/// What a bar counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    /// Things by their name, in the plural.
    Of(&'static str),
}

impl Unit {
    /// `92.9 MB`, `134.5 M`, `33`.
    fn amount(self, n: u64) -> String {
        let x = n as f64;
        match (self, n) {
            (Unit::Bytes, _) => output::bytes(n),
            (Unit::Of(_), 0..10_000) => n.to_string(),
            (Unit::Of(_), 10_000..1_000_000) => format!("{:.1} k", x / 1e3),
            (Unit::Of(_), 1_000_000..1_000_000_000) => format!("{:.1} M", x / 1e6),
            (Unit::Of(_), _) => format!("{:.2} G", x / 1e9),
        }
    }

    /// `1 of 2 windows`.
    fn progress(self, done: u64, total: u64) -> String {
        let name = match self {
            Unit::Bytes => "",
            Unit::Of(name) => name,
        };
        let text = format!("{} of {} {name}", self.amount(done), self.amount(total));
        text.trim_end().to_owned()
    }

    /// `45.2 MB/s`, `0.4/s`.
    fn rate(self, per_second: f64) -> String {
        match self {
            Unit::Of(_) if per_second < 100.0 => format!("{per_second:.1}/s"),
            _ => format!("{}/s", self.amount(per_second as u64)),
        }
    }
}

/// A bar of bytes.
pub(crate) fn byte_bar(total: u64, what: &str) -> ProgressBar {
    bar(total, what, Unit::Bytes)
}

/// A bar with what is done, rate and time left, and a message behind them; hidden where standard error is no terminal.
pub(crate) fn bar(total: u64, what: &str, unit: Unit) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total);
    let template = "{prefix:<18} {bar:20.cyan/blue} {done}  {rate}  {left}  {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        // Writing to the terminal's buffer cannot fail.
        let done = move |s: &ProgressState, out: &mut dyn Write| {
            let _ = out.write_str(&unit.progress(s.pos(), s.len().unwrap_or(0)));
        };
        let rate = move |s: &ProgressState, out: &mut dyn Write| {
            if s.pos() > 0 {
                let _ = out.write_str(&unit.rate(s.per_sec()));
            }
        };
        let left = |s: &ProgressState, out: &mut dyn Write| {
            if s.pos() > 0 {
                let _ = write!(out, "{:#} left", HumanDuration(s.eta()));
            }
        };
        let style = style
            .with_key("done", done)
            .with_key("rate", rate)
            .with_key("left", left);
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar.set_prefix(what.to_owned());
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
            Event::Waiting { id } => output::note(format!("another process is downloading `{id}`; waiting for it")),
            Event::Begin {
                id,
                total_bytes,
                resumed_bytes,
            } => {
                let resumed = match resumed_bytes {
                    0 => String::new(),
                    n => format!(", {} of it already here", output::bytes(n)),
                };
                output::note(format!("downloading `{id}` ({}{resumed})", output::bytes(total_bytes)));
                let bar = byte_bar(total_bytes, id);
                bar.set_position(resumed_bytes);
                bar.reset_eta();
                self.bar = Some(bar);
            }
            Event::File { name, number, count } => {
                if let Some(bar) = &self.bar {
                    bar.set_prefix(match count {
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
                    bar.set_prefix(format!("checking {name}"));
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
            let (what, unit) = match stage {
                Stage::Reference => ("reading source", "weights"),
                Stage::Sensitivity => ("choosing bits", "matrices"),
                Stage::Calibrating => ("calibrating", "windows"),
                Stage::Measuring => ("measuring quality", "windows"),
                _ => ("converting", "weights"),
            };
            *current = Some((stage, bar(total, what, Unit::Of(unit))));
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

#[cfg(test)]
mod tests {
    use super::Unit;

    #[test]
    fn bars_show_their_unit() {
        let cases = [
            (Unit::Bytes, 1, 2, "1 B of 2 B", 45_200_000.0, "45.2 MB/s"),
            (Unit::Of("windows"), 1, 2, "1 of 2 windows", 0.44, "0.4/s"),
            (
                Unit::Of("weights"),
                67_250_000,
                134_515_008,
                "67.2 M of 134.5 M weights",
                3e7,
                "30.0 M/s",
            ),
        ];
        for (unit, done, total, progress, per_second, rate) in cases {
            assert_eq!(unit.progress(done, total), progress);
            assert_eq!(unit.rate(per_second), rate);
        }
    }
}
