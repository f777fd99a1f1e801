//! What was decided, what another policy would have decided, and what was spent.

use crate::args::RouteCommand;
use crate::output;
use anyhow::{Context, Result, bail};
use cactus_router::hybrid::budget::{Folder, Journal, Spent, date_of};
use cactus_router::hybrid::money::Pico;
use cactus_router::hybrid::policy::Policy;
use cactus_router::hybrid::record::{Record, Ring, Tried, replay, summary};
use cactus_router::hybrid::route::{Reason, Side};
use cactus_router::setup::Setup;
use cactus_router::{Keys, Log, Unfinished, dollars, word};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where budget, record and keys lie.
pub(crate) fn folder() -> Result<PathBuf> {
    cactus_router::default_folder().context("this system has no folder for such files; name one in CACTUS_STATE")
}

/// The keys that `cactus auth` keeps.
pub(crate) fn keys() -> Result<Keys> {
    Ok(Keys::new(folder()?.join("keys")))
}

/// The table of targets that a user may have written.
pub(crate) fn own_targets() -> Result<PathBuf> {
    Ok(folder()?.join("targets.toml"))
}

pub(crate) fn run(command: &RouteCommand) -> Result<()> {
    match command {
        RouteCommand::Log { last, json } => log(last.get(), *json),
        RouteCommand::Explain { number, json } => explain(*number as usize, *json),
        RouteCommand::Replay { policy, json } => again(policy, *json),
        RouteCommand::Budget { policy, json } => budget(policy.as_deref(), *json),
    }
}

fn read(most: usize) -> Result<Ring> {
    let log = Log::new(&folder()?);
    let (ring, others) = log.read(most)?;
    if others > 0 {
        output::warning(format!(
            "{others} lines of `{}` are no decisions and are left out",
            log.path().display()
        ));
    }
    Ok(ring)
}

/// Tries of which nothing is recorded, those that a process is still at included.
fn unfinished() -> Result<Vec<Unfinished>> {
    Ok(Log::new(&folder()?).unfinished(now_seconds())?)
}

fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

fn log(last: usize, as_json: bool) -> Result<()> {
    let ring = read(last)?;
    let unfinished = unfinished()?;
    if as_json {
        output::line(ring.to_lines().trim_end());
        unfinished.iter().for_each(|one| output::line(json_of(one).to_string()));
        return Ok(());
    }
    if ring.records().next().is_none() && unfinished.is_empty() {
        output::note("nothing was decided yet: `cactus run MODEL --cloud TARGET` routes requests");
        return Ok(());
    }
    let recorded = ring.records().map(|record| (record.seconds, row(record)));
    let others = unfinished.iter().map(|one| (one.seconds, unfinished_row(one)));
    let mut rows: Vec<(u64, Vec<String>)> = recorded.chain(others).collect();
    rows.sort_by_key(|(seconds, _)| *seconds);
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(_, row)| row).collect();
    let header = ["time (UTC)", "answered by", "reason", "sure", "cost", "seconds"];
    output::table(&header, &rows);
    Ok(())
}

/// What became of a try of which nothing is recorded.
fn ended(one: &Unfinished) -> &'static str {
    match one.under_way {
        true => "under way",
        false => "ended without a record",
    }
}

fn json_of(one: &Unfinished) -> serde_json::Value {
    json!({
        "unfinished": ended(one),
        "seconds": one.seconds,
        "target": one.target,
        "reserved_usd": dollars(one.amount),
    })
}

fn unfinished_row(one: &Unfinished) -> Vec<String> {
    let asked = format!("nobody ({} was asked)", one.target);
    let cost = format!("at most {}", one.amount);
    let none = String::new();
    vec![
        time(one.seconds),
        asked,
        ended(one).to_owned(),
        none.clone(),
        cost,
        none,
    ]
}

fn row(record: &Record) -> Vec<String> {
    vec![
        time(record.seconds),
        answered_by(record),
        word(record.reason),
        record.confidence.map_or_else(String::new, |c| format!("{c:.2}")),
        cost(record),
        format!("{:.1}", record.total_ms as f64 / 1e3),
    ]
}

fn answered_by(record: &Record) -> String {
    match record.answered_by {
        Some(Side::Local) => "local".to_owned(),
        Some(Side::Cloud) => record.target.clone().unwrap_or_else(|| "cloud".to_owned()),
        None => "nobody".to_owned(),
    }
}

fn cost(record: &Record) -> String {
    let cost = match (record.attempts, record.billed) {
        (0, _) => String::new(),
        (_, true) => record.cost.to_string(),
        (_, false) => format!("at most {}", record.cost),
    };
    match record.claim {
        Some(claim) if claim.believed => format!("{cost}, more than expected"),
        Some(claim) => format!("{cost}, FALSE BILL of {}", claim.amount),
        None => cost,
    }
}

/// What a reason means, as a sentence goes on after "because".
pub(crate) fn because(reason: Reason) -> &'static str {
    match reason {
        Reason::HandoffOff => "handing off is switched off",
        Reason::NoTarget => "no target can take such a request",
        Reason::Offline => "the target cannot be reached, or has failed too often of late",
        Reason::KeyRefused => "the target has refused its key, or wants money",
        Reason::DeniedByPolicy => "the policy does not let its content leave",
        Reason::DeniedByPerson => "a person said no",
        Reason::NobodyToAsk => "nobody was there to say yes",
        Reason::ToolLocalOnly => "it uses a tool that stays on this machine",
        Reason::OverCap => "a budget has no room for it",
        Reason::BudgetFailed => "the budget's file cannot be used",
        Reason::Uncalibrated => {
            "no calibration (`cactus calibrate`) holds for such a request, so nobody knows how sure the model is"
        }
        Reason::Confident => "the answer here is sure enough",
        Reason::NotWorthIt => "the target is not enough better for its price",
        Reason::LowConfidence => "the answer here is not sure enough",
        Reason::Hedged => "the answer here is doubtful, and both were asked",
        Reason::LocalUnable => "the model here cannot take the request",
        Reason::Always => "everything is handed off",
        Reason::Named => "the request asked for the target by name",
        Reason::Invalid => "the answer here does not have the form that was asked for",
        Reason::LocalFailed => "the model here failed",
        Reason::CloudFailed => "the target failed",
        Reason::Timeout => "the time that the targets have together was over",
        Reason::Cancelled => "it was cancelled",
        Reason::Unjudged => "nothing is decided yet",
        _ => "of something that this version has no words for",
    }
}

/// What a try of a target came to, in words.
fn tried(tried: &Tried) -> String {
    let came = match tried.failed.as_deref() {
        None => "answered".to_owned(),
        Some("form") => "failed: its answer does not have the form that was asked for".to_owned(),
        Some("cancelled") => "stopped, as it was not needed any more".to_owned(),
        Some("timeout") => "failed: nothing came in time".to_owned(),
        Some("unreachable") => "failed: it cannot be reached".to_owned(),
        Some("unauthorized") => "failed: it refused the key".to_owned(),
        Some("forbidden") => "failed: it does not allow this to the key".to_owned(),
        Some("no_credit") => "failed: it wants money".to_owned(),
        Some("redirect") => "failed: it sent us to another address, and no redirect is followed".to_owned(),
        Some("rate_limited") => "failed: it had too many requests".to_owned(),
        Some("cut") => "failed: the connection broke, or the answer ended before its end".to_owned(),
        Some(word) => format!("failed: {}", word.replace('_', " ")),
    };
    let cost = tried.cost.map_or_else(|| "no bill".to_owned(), |cost| cost.to_string());
    format!("{}: {came}; {} ms, {cost}", tried.target, tried.ms)
}

fn explain(number: usize, as_json: bool) -> Result<()> {
    let ring = read(number)?;
    let Some(record) = ring.records().rev().nth(number - 1) else {
        bail!(
            "the record has {} decisions; there is no number {number}",
            ring.records().count()
        );
    };
    if as_json {
        return output::json(record);
    }
    let mut rows = vec![
        ("time", format!("{} UTC", time(record.seconds))),
        ("answered by", answered_by(record)),
        ("because", because(record.reason).to_owned()),
    ];
    if let Some(wanted) = record.wanted {
        rows.push(("target wanted because", because(wanted).to_owned()));
    }
    if let Some(sound) = &record.sound {
        let sent = sound.sent_ms as f64 / 1000.0;
        let what = format!(
            "{} of {} segments were doubtful, {sent:.1} s were sent, {} changed",
            sound.wanted, sound.segments, sound.revised
        );
        rows.push(("heard again", what));
    }
    for offer in &record.offers {
        if let Some(passed) = offer.passed.filter(|_| record.target.as_ref() != Some(&offer.target)) {
            rows.push(("not answered by", format!("{}: {}", offer.target, because(passed))));
        }
    }
    if let Some(target) = &record.target {
        rows.push(("target", target.clone()));
    }
    let classes: Vec<&str> = record.classes.iter().map(|class| class.name()).collect();
    rows.push(("content", classes.join(", ")));
    match record.consented {
        Some(true) => rows.push(("a person", "said yes".to_owned())),
        Some(false) => rows.push(("a person", "said no".to_owned())),
        None => {}
    }
    if let Some(confidence) = record.confidence {
        let bound = record.bound.map_or_else(String::new, |b| {
            format!("; of answers so sure at most {:.0} % are wrong", 100.0 * b)
        });
        rows.push(("sure", format!("{confidence:.3}{bound}")));
    }
    if let Some(features) = &record.features {
        let names = [
            "mean log-probability",
            "smallest log-probability",
            "10 % quantile of it",
            "mean margin",
            "smallest margin",
            "mean gap",
            "mean entropy",
            "largest entropy",
        ];
        rows.extend(names.iter().zip(features).map(|(name, x)| (*name, format!("{x:.3}"))));
        rows.push(("tokens", record.tokens.to_string()));
    }
    if record.attempts > 0 {
        rows.push(("tries", record.attempts.to_string()));
        rows.extend(record.tries.iter().map(|one| ("", tried(one))));
        rows.push(("cost", cost(record)));
    }
    rows.push(("a try at worst", record.worst_case.to_string()));
    if !record.redactions.is_empty() {
        let each: Vec<String> = record
            .redactions
            .iter()
            .map(|(kind, n)| format!("{n} {kind}"))
            .collect();
        rows.push(("replaced on the way out", each.join(", ")));
    }
    if let Some(first) = record.first_ms {
        rows.push(("first text after", format!("{first} ms")));
    }
    rows.push(("end after", format!("{} ms", record.total_ms)));
    for (name, value) in rows {
        output::line(format!("{name:<26}{value}"));
    }
    Ok(())
}

fn again(file: &Path, as_json: bool) -> Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read the policy `{}`", file.display()))?;
    let policy = Policy::from_toml(&text).with_context(|| format!("the policy `{}`", file.display()))?;
    let ring = read(usize::MAX)?;
    let replayed = replay(ring.records(), &policy);
    let sums = summary(ring.records(), &replayed);
    if as_json {
        return output::json(&json!({
            "requests": sums.requests,
            "was_cloud": sums.was_cloud,
            "now_cloud": sums.now_cloud,
            "now_ask": sums.now_ask,
            "changed": sums.changed,
            "was_cost_usd": dollars(sums.was_cost),
            "now_cost_usd": dollars(sums.now_cost),
        }));
    }
    let rows = vec![
        vec![
            "handed off".to_owned(),
            sums.was_cloud.to_string(),
            sums.now_cloud.to_string(),
        ],
        vec!["asked about".to_owned(), String::new(), sums.now_ask.to_string()],
        vec![
            "cost at most".to_owned(),
            sums.was_cost.to_string(),
            sums.now_cost.to_string(),
        ],
    ];
    output::table(&["", "as it was", "under this policy"], &rows);
    output::note(format!(
        "{} requests, of which {} would have gone elsewhere",
        sums.requests, sums.changed
    ));
    Ok(())
}

/// One limit of a policy, and what of it is spent, where that is known here.
struct Limit {
    name: &'static str,
    cap: Option<Pico>,
    /// Not there of what is counted by request, conversation or user.
    spent: Option<Pico>,
}

impl Limit {
    /// What is left of it.
    fn left(&self) -> Option<Pico> {
        Some(self.cap?.minus(self.spent?))
    }

    fn row(&self) -> String {
        match (self.cap, self.left()) {
            (None, _) => "no limit".to_owned(),
            (Some(cap), None) => format!("at most {cap}"),
            (Some(cap), Some(left)) => format!("at most {cap}, of which {left} is left"),
        }
    }
}

/// The limits that apply: those of a policy file, or those that hold without one.
fn limits(policy: Option<&Path>, spent: &Spent) -> Result<[Limit; 5]> {
    let setup = Setup {
        file: policy,
        ..Setup::default()
    };
    let caps = setup.read(&|_| None)?.policy.caps;
    let limit = |name, cap, spent| Limit { name, cap, spent };
    Ok([
        limit("request", caps.request, None),
        limit("session", caps.session, None),
        limit("day", caps.day, Some(spent.day)),
        limit("month", caps.month, Some(spent.month)),
        limit("user_month", caps.user, None),
    ])
}

fn budget(policy: Option<&Path>, as_json: bool) -> Result<()> {
    let mut journal = Journal::new(Folder::new(&folder()?));
    let spent = journal.spent("", "", now_seconds())?;
    let limits = limits(policy, &spent)?;
    let history = journal.history()?;
    let unfinished = unfinished()?;
    if as_json {
        let list =
            |sums: &[(u64, Pico)]| -> Vec<_> { sums.iter().map(|(at, sum)| json!([at, dollars(*sum)])).collect() };
        let caps = limits.iter().map(|limit| {
            let told = json!({"cap_usd": limit.cap.map(dollars), "left_usd": limit.left().map(dollars)});
            (limit.name.to_owned(), told)
        });
        return output::json(&json!({
            "day_usd": dollars(spent.day),
            "month_usd": dollars(spent.month),
            "caps": caps.collect::<serde_json::Map<_, _>>(),
            "unsettled": spent.open,
            "unfinished": unfinished.iter().map(json_of).collect::<Vec<_>>(),
            "days_since_1970": list(&history.days),
            "months_since_1970_01": list(&history.months),
        }));
    }
    output::line(format!("{:<17} {}", "today (UTC)", spent.day));
    output::line(format!("{:<17} {}", "this month", spent.month));
    for limit in &limits {
        let name = match limit.name {
            "user_month" => "a user's month".to_owned(),
            "session" => "a conversation".to_owned(),
            name => format!("a {name}"),
        };
        output::line(format!("{name:<17} {}", limit.row()));
    }
    for (day, sum) in history.days.iter().rev().take(14) {
        output::line(format!("{:<17} {sum}", &time(day * 86_400)[..10]));
    }
    if spent.open > 0 {
        output::note(format!(
            "{} requests have no bill, as they were cut off or are under way; what was reserved for them counts as spent",
            spent.open
        ));
    }
    for one in &unfinished {
        output::note(format!(
            "{}: {} was reserved for {}; {}",
            time(one.seconds),
            one.amount,
            one.target,
            match one.under_way {
                true => "it is under way",
                false => "its process ended without a record, so that counts as spent",
            }
        ));
    }
    Ok(())
}

/// `2026-11-22 14:03:59`.
fn time(seconds: u64) -> String {
    let (year, month, day) = date_of(seconds);
    let rest = seconds % 86_400;
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_of_the_reference_has_words() {
        let reference = include_str!("../../../../docs/reference/policy.md");
        let table = reference
            .split("## Reasons")
            .nth(1)
            .unwrap()
            .split("\n## ")
            .next()
            .unwrap();
        let mut words = 0;
        for row in table.lines().filter(|line| line.starts_with("| `")) {
            for word in row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2) {
                let reason: Reason = serde_json::from_value(json!(word)).unwrap();
                assert!(!because(reason).contains("no words"), "{word}");
                words += 1;
            }
        }
        assert_eq!(words, 24);
    }

    #[test]
    fn time_is_that_of_utc() {
        assert_eq!(time(0), "1970-01-01 00:00:00");
        assert_eq!(time(951_782_399), "2000-02-28 23:59:59");
        assert_eq!(time(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(time(1_795_478_400), "2026-11-24 00:00:00");
    }
}
