//! From questions whose answers are known to probabilities that come true: what `decisions.json` of a bundle holds, and how good
//! it is.
//!
//! The questions are asked as `/v1/decisions` asks them, by `protocol`. A temperature for each kind, and a shift between yes
//! and no, are fitted by maximum likelihood. It deliberately has no questions of its own.

use crate::{Error, Result};
use cactus_engine::{CancelToken, DECISIONS_PATH, Model, Scheduler};
use cactus_hybrid::score::{brier, ece, ece_floor};
use cactus_protocol::decisions::{Calibration, Choice, Decide, Fitted, Kind, LIMIT, decide};
use cactus_protocol::openai::decisions::request;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// Fewer questions of a kind are not learned from.
pub const LEAST_DECISIONS: usize = 100;
/// Parts of the questions, each of which is tried on what was fitted to the others.
const FOLDS: usize = 5;
/// Bins of the calibration error, of equally many cases.
const BINS: usize = 10;
/// How much a temperature of 1 and no shift count, in questions.
const PRIOR: f64 = 1.0;
/// What is less likely than the likeliest choice by more than this has no chance.
const NO_CHANCE: f64 = -80.0;

/// Questions about one input, with the place of the right answer among the choices of each.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownDecisions {
    asked: Decide,
    right: Vec<usize>,
}

/// A question that was asked.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionCase {
    kind: Kind,
    /// Those of one input are kept together.
    input: usize,
    logprobs: Vec<f64>,
    right: usize,
}

/// How good the probabilities of a kind are. Those after the fit are of questions that it has not seen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecisionReport {
    /// `predicate`, `choice` or `score`.
    pub kind: &'static str,
    /// Questions.
    pub cases: usize,
    /// Share of them whose likeliest choice is right: before the fit, and after it, which moves yes against no.
    pub accuracy: [f64; 2],
    /// Mean distance between probability and share of what came true, before and after. Of a predicate it is the probability of
    /// yes, else that of the likeliest choice.
    pub ece: [f64; 2],
    /// What perfect probabilities would have there: on average, and at most in 95 of 100 such sets.
    pub ece_floor: [f64; 2],
    /// Mean squared distance between these probabilities and what came true, before and after.
    pub brier: [f64; 2],
    /// Mean negative logarithm of the probability of what is right, in nats, before and after.
    pub nats: [f64; 2],
    /// What was fitted to all.
    pub fitted: Fitted,
}

/// Reads JSON lines: each a request as `/v1/decisions` takes it, whose questions have an `answer`, too: true or false for a
/// predicate, a value of the choices, a label of the levels.
///
/// # Errors
/// [`crate::ErrorKind::Task`] with the line and what is wrong with it.
pub fn read_decisions(data: &str) -> Result<Vec<KnownDecisions>> {
    let lines = data.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read: Result<Vec<_>> = lines
        .map(|(i, line)| known(line).map_err(|e| Error::Task(format!("line {} of the data: {e}", i + 1))))
        .collect();
    match read {
        Ok(read) if read.is_empty() => Err(Error::Task("the data has no questions".into())),
        other => other,
    }
}

fn known(line: &str) -> std::result::Result<KnownDecisions, String> {
    let body: Value = serde_json::from_str(line).map_err(|e| format!("not JSON: {e}"))?;
    let asked = request(&body).map_err(|e| e.to_string())?;
    let given = body["questions"].as_array().into_iter().flatten();
    let right = asked
        .questions
        .iter()
        .zip(given)
        .enumerate()
        .map(|(i, (question, given))| {
            let answer = given.get("answer").unwrap_or(&Value::Null);
            let place = match (question.kind, answer) {
                (Kind::Predicate, Value::Bool(yes)) => Some(usize::from(!yes)),
                (Kind::Predicate, _) => None,
                _ => question
                    .choices
                    .iter()
                    .position(|choice: &Choice| choice.value == *answer),
            };
            let expected = match question.kind {
                Kind::Predicate => "true or false",
                Kind::Choice => "one of the values of `choices`",
                Kind::Score => "one of the labels of `levels`",
            };
            place.ok_or_else(|| format!("`questions[{i}].answer`: found {answer}, expected {expected}"))
        });
    let right = right.collect::<std::result::Result<_, _>>()?;
    Ok(KnownDecisions { asked, right })
}

/// Asks `scheduler`'s model. `each` gets the number of inputs that are done.
///
/// # Errors
/// [`crate::ErrorKind::Task`] where the model cannot be asked; after `cancel`.
pub fn ask_decisions(
    scheduler: &Scheduler,
    known: &[KnownDecisions],
    cancel: &CancelToken,
    each: &mut dyn FnMut(usize),
) -> Result<Vec<DecisionCase>> {
    let mut cases = Vec::new();
    for (input, known) in known.iter().enumerate() {
        // `decide` cancels what it was given when it ends.
        if cancel.is_cancelled() {
            return Err(Error::Task("stopped before all questions were asked".into()));
        }
        let decided = decide(scheduler, &known.asked, None, 0, CancelToken::new())
            .map_err(|e| Error::Task(format!("input {}: {e}", input + 1)))?;
        let questions = known.asked.questions.iter().zip(&known.right);
        cases.extend(
            decided
                .answers
                .into_iter()
                .zip(questions)
                .map(|(answer, (question, &right))| DecisionCase {
                    kind: question.kind,
                    input,
                    logprobs: answer.logprobs,
                    right,
                }),
        );
        each(input + 1);
    }
    Ok(cases)
}

/// Fits `model`'s probabilities to `cases`, kind by kind; kinds with fewer than [`LEAST_DECISIONS`] questions are left as they are.
///
/// # Errors
/// [`crate::ErrorKind::Task`] where no kind has enough questions.
pub fn fit_decisions(model: &Model, cases: &[DecisionCase]) -> Result<(Calibration, Vec<DecisionReport>)> {
    let mut calibration = Calibration::new(model)?;
    let mut reports = Vec::new();
    let kinds = [
        (Kind::Predicate, "predicate"),
        (Kind::Choice, "choice"),
        (Kind::Score, "score"),
    ];
    for (kind, name) in kinds {
        let cases: Vec<&DecisionCase> = cases.iter().filter(|case| case.kind == kind).collect();
        if cases.len() < LEAST_DECISIONS {
            continue;
        }
        let report = measure(name, kind, &cases);
        calibration.set(kind, report.fitted);
        reports.push(report);
    }
    if reports.is_empty() {
        return Err(Error::Task(format!(
            "found {} questions; expected at least {LEAST_DECISIONS} of one kind",
            cases.len()
        )));
    }
    Ok((calibration, reports))
}

/// Writes a calibration into the bundle in `folder`, in place of one that is there.
///
/// # Errors
/// Where the bundle is damaged; file errors.
pub fn write_decisions(folder: &Path, calibration: &Calibration) -> Result<()> {
    let mut document = calibration.to_json();
    document.push(b'\n');
    Ok(cactus_bundle::amend(folder, DECISIONS_PATH, &document)?)
}

fn measure(name: &'static str, kind: Kind, cases: &[&DecisionCase]) -> DecisionReport {
    let mut after: Vec<(&DecisionCase, Fitted)> = Vec::new();
    for fold in 0..FOLDS {
        let (tried, learned): (Vec<&DecisionCase>, Vec<&DecisionCase>) =
            cases.iter().partition(|case| case.input % FOLDS == fold);
        let fitted = fit(kind, &learned);
        after.extend(tried.into_iter().map(|case| (case, fitted)));
    }
    let before: Vec<(&DecisionCase, Fitted)> = cases.iter().map(|&case| (case, Fitted::NONE)).collect();
    let each = |set: &[(&DecisionCase, Fitted)]| -> (f64, f64, Vec<(f64, bool)>) {
        let (mut right, mut nats, mut came) = (0usize, 0.0, Vec::new());
        for (case, fitted) in set {
            let p = fitted.probabilities(&case.logprobs);
            let best = (1..p.len()).fold(0, |best, i| if p[i] > p[best] { i } else { best });
            right += usize::from(best == case.right);
            nats -= p[case.right].max(f64::MIN_POSITIVE).ln();
            came.push(match kind {
                Kind::Predicate => (p[0], case.right == 0),
                _ => (p[best], best == case.right),
            });
        }
        let n = set.len() as f64;
        (right as f64 / n, nats / n, came)
    };
    let ((accuracy_before, nats_before, came_before), (accuracy, nats, came)) = (each(&before), each(&after));
    let p: Vec<f64> = came.iter().map(|(p, _)| *p).collect();
    let floor = ece_floor(&p, BINS);
    DecisionReport {
        kind: name,
        cases: cases.len(),
        accuracy: [accuracy_before, accuracy],
        ece: [ece(&came_before, BINS), ece(&came, BINS)],
        ece_floor: [floor.mean, floor.p95],
        brier: [brier(&came_before), brier(&came)],
        nats: [nats_before, nats],
        fitted: fit(kind, cases),
    }
}

/// The likeliest inverse temperature and shift, by Newton's method: the loss is convex in both. Only predicates have a shift.
fn fit(kind: Kind, cases: &[&DecisionCase]) -> Fitted {
    let shifted = kind == Kind::Predicate;
    let rows: Vec<(Vec<f64>, usize)> = cases
        .iter()
        .map(|case| {
            let top = case.logprobs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let row = case.logprobs.iter().map(|l| (l - top).max(NO_CHANCE));
            // Where nothing has any chance, all are alike.
            let row = row.map(|l| if l.is_nan() { 0.0 } else { l }).collect();
            (row, case.right)
        })
        .collect();
    let (mut at, mut loss) = ([1.0, 0.0], f64::INFINITY);
    let mut step = [0.0, 0.0];
    for _ in 0..100 {
        let next = [at[0] - step[0], at[1] - step[1]];
        let (found, gradient, curvature) = derivatives(&rows, next, shifted);
        if found > loss {
            step = step.map(|s| s / 2.0);
            continue;
        }
        let gain = loss - found;
        (at, loss) = (next, found);
        if gain < 1e-12 {
            break;
        }
        let [a, b, d] = curvature;
        let determinant = a * d - b * b;
        step = [
            (d * gradient[0] - b * gradient[1]) / determinant,
            (a * gradient[1] - b * gradient[0]) / determinant,
        ];
    }
    Fitted {
        temperature: (1.0 / at[0].max(1.0 / LIMIT)).max(1.0 / LIMIT),
        shift: at[1].clamp(-LIMIT, LIMIT),
        cases: cases.len() as u64,
    }
}

/// Loss at an inverse temperature and a shift, with its derivatives: two first ones; of the second ones both squares around the
/// mixed one.
fn derivatives(rows: &[(Vec<f64>, usize)], at: [f64; 2], shifted: bool) -> (f64, [f64; 2], [f64; 3]) {
    let [a, b] = at;
    let mut loss = PRIOR / 2.0 * ((a - 1.0) * (a - 1.0) + b * b);
    let mut gradient = [PRIOR * (a - 1.0), PRIOR * b];
    let mut curvature = [PRIOR, 0.0, PRIOR];
    for (row, right) in rows {
        let is_first = |i: usize| f64::from(u8::from(shifted && i == 0));
        let scores: Vec<f64> = row.iter().enumerate().map(|(i, l)| a * l + b * is_first(i)).collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let each: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
        let sum: f64 = each.iter().sum();
        loss += sum.ln() + top - scores[*right];
        let mut mean = [0.0; 2];
        let mut square = [0.0; 3];
        for (i, (l, e)) in row.iter().zip(&each).enumerate() {
            let (p, first) = (e / sum, is_first(i));
            mean = [mean[0] + p * l, mean[1] + p * first];
            square = [
                square[0] + p * l * l,
                square[1] + p * l * first,
                square[2] + p * first * first,
            ];
        }
        gradient = [
            gradient[0] + mean[0] - row[*right],
            gradient[1] + mean[1] - is_first(*right),
        ];
        curvature = [
            curvature[0] + square[0] - mean[0] * mean[0],
            curvature[1] + square[1] - mean[0] * mean[1],
            curvature[2] + square[2] - mean[1] * mean[1],
        ];
    }
    (loss, gradient, curvature)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Cases whose truth is drawn from `softmax(scale * logprobs + shift of the first)`.
    fn drawn(kind: Kind, n: usize, scale: f64, shift: f64) -> Vec<DecisionCase> {
        let mut state = 1u64;
        let mut uniform = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..n)
            .map(|input| {
                let choices = if kind == Kind::Predicate { 2 } else { 4 };
                let logprobs: Vec<f64> = (0..choices).map(|_| 6.0 * uniform().ln()).collect();
                let moved = Fitted {
                    temperature: 1.0 / scale,
                    shift,
                    cases: 0,
                };
                let (draw, mut sum, mut right) = (uniform(), 0.0, choices - 1);
                for (i, p) in moved.probabilities(&logprobs).iter().enumerate() {
                    sum += p;
                    if draw < sum {
                        right = i;
                        break;
                    }
                }
                DecisionCase {
                    kind,
                    input,
                    logprobs,
                    right,
                }
            })
            .collect()
    }

    #[test]
    fn what_answers_were_drawn_with_is_found_again() {
        for (kind, scale, shift) in [
            (Kind::Predicate, 0.4, -1.5),
            (Kind::Choice, 0.3, 0.0),
            (Kind::Score, 2.0, 0.0),
        ] {
            let cases = drawn(kind, 4000, scale, shift);
            let cases: Vec<&DecisionCase> = cases.iter().collect();
            let found = fit(kind, &cases);
            assert!(
                (1.0 / found.temperature / scale - 1.0).abs() < 0.1,
                "{kind:?}: {found:?}"
            );
            assert!((found.shift - shift).abs() < 0.15, "{kind:?}: {found:?}");
            let report = measure("x", kind, &cases);
            assert!(
                report.nats[1] < report.nats[0] && report.ece[1] < report.ece[0],
                "{report:?}"
            );
            assert!(report.ece[1] < 1.5 * report.ece_floor[1], "{report:?}");
        }
    }

    #[test]
    fn no_row_of_logits_breaks_the_fit() {
        let case = |logprobs: &[f64], right| DecisionCase {
            kind: Kind::Predicate,
            input: 0,
            logprobs: logprobs.to_vec(),
            right,
        };
        let none = f64::NEG_INFINITY;
        let cases = [
            case(&[none, none], 0),
            case(&[none, 0.0], 0),
            case(&[0.0, -1e300], 1),
            case(&[-1e300, -1e300], 1),
        ];
        for n in 0..=cases.len() {
            let some: Vec<&DecisionCase> = cases.iter().take(n).collect();
            let found = fit(Kind::Predicate, &some);
            assert!(found.temperature.is_finite() && found.shift.is_finite(), "{found:?}");
            assert!((1.0 / LIMIT..=LIMIT).contains(&found.temperature), "{found:?}");
        }
    }

    #[test]
    fn lines_are_requests_with_answers() {
        let line = json!({"input": "x", "questions": [
            {"type": "predicate", "instructions": "a?", "answer": false},
            {"type": "choice", "instructions": "b?", "choices": [{"value": "u"}, {"value": true}], "answer": true},
            {"type": "score", "instructions": "c?", "levels": [{"label": "u"}, {"label": "v"}], "answer": "v"},
        ]});
        let read = read_decisions(&format!("\n{line}\n")).unwrap();
        assert_eq!(read[0].right, [1, 1, 1]);
        for (from, to, what) in [
            (
                "false",
                "\"no\"",
                "`questions[0].answer`: found \"no\", expected true or false",
            ),
            ("\"answer\":true", "\"answer\":\"true\"", "one of the values"),
            (
                "\"answer\":\"v\"",
                "\"other\":\"v\"",
                "found null, expected one of the labels",
            ),
            ("\"x\"", "\"\"", "line 1 of the data: "),
        ] {
            let changed = line.to_string().replace(from, to);
            assert_ne!(changed, line.to_string());
            let error = read_decisions(&changed).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        assert!(read_decisions("\n").unwrap_err().to_string().contains("no questions"));
    }
}
