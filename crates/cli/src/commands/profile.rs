//! Where the time of a model went, by step, and how long its threads waited for each other.

use crate::output;
use cactus_base::Joins;
use cactus_engine::Session;
use std::sync::Arc;
use std::time::Duration;

/// Times by kind of kernel, then the slowest steps.
pub(super) fn print(session: &mut Session) {
    let program = Arc::clone(session.execution().program());
    let Some(profile) = session.execution().profile() else {
        return;
    };
    let rows = program.profile_rows(profile);
    let total: f64 = rows.iter().map(|r| r.total_us).sum();
    let mut kinds: Vec<(&str, f64, u64)> = Vec::new();
    for r in &rows {
        match kinds.iter_mut().find(|k| k.0 == r.kind) {
            Some(k) => {
                k.1 += r.total_us;
                k.2 += r.calls;
            }
            None => kinds.push((r.kind, r.total_us, r.calls)),
        }
    }
    kinds.sort_by(|a, b| b.1.total_cmp(&a.1));
    let line = |name: &str, us: f64, calls: u64| {
        output::note(format!(
            "{:>6.1} %  {:>10.2} ms  {calls:>8} calls  {name}",
            us / total * 100.0,
            us / 1e3
        ));
    };
    for (kind, us, calls) in kinds {
        line(kind, us, calls);
    }
    output::note("slowest steps:");
    for r in rows.iter().take(12) {
        line(&format!("{} {}", r.kind, r.label), r.total_us, r.calls);
    }
    print_joins(profile.joins(), total);
}

/// How long runs on several threads waited for their last part, of `total_us` in all.
fn print_joins(joins: &Joins, total_us: f64) {
    let (runs, micros) = (joins.count(), |d: Duration| d.as_secs_f64() * 1e6);
    if runs == 0 {
        return;
    }
    let waited = micros(joins.waited());
    output::note(format!(
        "{runs} runs on several threads; the first thread waited {:.2} µs for the others after each, {:.1} % of all:",
        waited / runs as f64,
        waited / total_us * 100.0
    ));
    for (least, most, count) in joins.histogram() {
        let share = count as f64 / runs as f64;
        let bar = "█".repeat((share * 50.0).round() as usize);
        output::note(format!(
            "{:>9.2} to {:>9.2} µs  {:>5.1} %  {bar}",
            micros(least),
            micros(most),
            share * 100.0
        ));
    }
}
