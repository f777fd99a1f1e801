//! From answers that were judged to the section `confidence` of a bundle, and how good it is.
//!
//! Depends on the results of tasks, and on the fits, bounds and metrics of `hybrid`. It deliberately asks no model.

use crate::tasks::{Judged, Results, Setup};
use crate::{Error, Result};
use cactus_bundle::Checksum;
use cactus_engine::CONFIDENCE_PATH;
use cactus_hybrid::score::{
    Certified, CrossValidated, Fit, Key, LEAST, Sample, Section, auroc, brier, certify, ece, ece_floor, thresholds,
};
use serde::Serialize;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;

/// Bins of the calibration error, of equally many cases.
const BINS: usize = 10;
/// With fewer groups there is nothing to learn from some about others.
const LEAST_GROUPS: usize = 5;
/// A bound holds with a confidence of 1 minus this.
const DELTA: f64 = 0.1;

/// How good a confidence is. All numbers are of answers that the fit behind their confidence has not seen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConfidenceReport {
    /// Answers with a score.
    pub cases: usize,
    /// Answers without a token that counts, or without any: they have no score and are left out.
    pub without_score: usize,
    /// Whether groups of cases that are alike were kept together; with fewer than 5 of them each case stands alone, so the
    /// numbers hold for these functions and for no others.
    pub grouped: bool,
    /// Share of right answers.
    pub accuracy: f64,
    /// The chance that a right answer is surer than a wrong one.
    pub auroc: f64,
    /// The same of the mean log-probability alone, which needs no fit.
    pub auroc_of_mean_logprob: f64,
    /// Mean distance between confidence and share of right answers, in 10 bins of equally many cases.
    pub ece: f64,
    /// What a perfect confidence would have there, on average, as there are only so many cases.
    pub ece_floor: f64,
    /// What a perfect confidence would have there at most, in 95 of 100 such sets of cases.
    pub ece_floor_p95: f64,
    /// Mean squared distance between confidence and outcome.
    pub brier: f64,
    /// The threshold with a guarantee, if there is one.
    pub certified: Option<Certified>,
    /// Share of wrong answers that is allowed among those kept.
    pub max_error: f64,
    /// The share of requests that any router has to hand off for that, however good it is: (m - a) / (1 - a), with m the
    /// share of wrong answers and a the share that is allowed.
    pub least_handed_off: f64,
    /// Each answer, in the order of the results.
    pub answers: Vec<Scored>,
}

/// An answer and its confidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scored {
    /// Its task.
    pub task: &'static str,
    /// Its id.
    pub id: String,
    /// Whether it is right.
    pub correct: bool,
    /// At its end.
    pub confidence: f64,
    /// Along the answer, the end included.
    pub along: Vec<Along>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the answer.
    pub answer_tokens: usize,
}

/// Confidence after so many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Along {
    /// Tokens of the answer so far.
    pub tokens: u32,
    /// Those among them that count.
    pub values: u32,
    /// The confidence.
    pub confidence: f64,
}

/// Fits a confidence to what one bundle answered, and measures it. At most a share of `max_error` of the answers that are kept
/// may be wrong.
///
/// # Errors
/// [`crate::ErrorKind::Task`] for results of different bundles, templates or samplers, or without signals, or of the same
/// questions twice; for fewer than 100 answers with a score; where all of them are right, or all wrong.
pub fn fit_confidence(results: &[&Results], max_error: f64) -> Result<(Section, ConfidenceReport)> {
    let first = same(results)?;
    let each = results
        .iter()
        .flat_map(|r| r.cases.iter().map(|case| (r.setup.task.name(), case)));
    let scored: Vec<(&'static str, &Judged, Sample)> = each
        .filter_map(|(task, case)| {
            let end = case.gathered.as_ref()?.seen.last()?;
            let sample = Sample {
                group: group(task, case),
                features: end.features,
                right: case.correct,
            };
            Some((task, case, sample))
        })
        .collect();
    let asked: usize = results.iter().map(|r| r.cases.len()).sum();
    let mut samples: Vec<Sample> = scored.iter().map(|(.., sample)| *sample).collect();
    let grouped = samples.iter().map(|sample| sample.group).collect::<BTreeSet<_>>().len() >= LEAST_GROUPS;
    if !grouped {
        (0..).zip(&mut samples).for_each(|(i, sample)| sample.group = i);
    }
    let refuse = |_| {
        let none = asked - samples.len();
        let without = match none {
            0 => String::new(),
            none => format!("; {none} more have no score, as nothing in them counts"),
        };
        let right = samples.iter().filter(|sample| sample.right).count();
        let wrong = samples.len() - right;
        // Numbers of the parts that a fit is made of would say nothing to whoever asked the questions.
        Error::Task(format!(
            "confidence cannot be fitted: expected at least {LEAST} answers with a score, with right and wrong ones in each fifth of them; \
             found {right} right and {wrong} wrong ones{without}. Give more questions, or some that are harder or easier"
        ))
    };
    let crossed = CrossValidated::of(&samples).map_err(refuse)?;
    let fit = Fit::of(&samples).map_err(refuse)?;
    let answers: Vec<Scored> = scored
        .iter()
        .enumerate()
        .filter_map(|(i, (task, case, sample))| {
            let gathered = case.gathered.as_ref()?;
            Some(Scored {
                task,
                id: case.id.clone(),
                correct: case.correct,
                confidence: crossed.confidence(i, &sample.features),
                along: gathered
                    .seen
                    .iter()
                    .map(|seen| Along {
                        tokens: seen.tokens,
                        values: seen.values,
                        confidence: crossed.confidence(i, &seen.features),
                    })
                    .collect(),
                prompt_tokens: gathered.prompt_tokens,
                answer_tokens: gathered.answer_tokens,
            })
        })
        .collect();
    let mut report = measure(answers, asked, grouped, max_error);
    let plain: Vec<(f64, bool)> = samples.iter().map(|s| (s.features[0], s.right)).collect();
    report.auroc_of_mean_logprob = auroc(&plain).unwrap_or(0.5);
    let tasks: BTreeSet<&str> = results.iter().map(|r| r.setup.task.name()).collect();
    let section = Section {
        version: 1,
        key: Key {
            bundle: first.bundle.clone(),
            template: first.template.clone(),
            sampler: first.sampler.clone(),
        },
        task: tasks.into_iter().collect::<Vec<_>>().join("+"),
        cases: samples.len() as u64,
        combiner: fit.combiner,
        calibrator: fit.calibrator,
        certified: report.certified,
    };
    Ok((section, report))
}

/// Writes a section into the bundle in `folder`, in place of one that is there.
///
/// # Errors
/// Where the bundle is damaged; file errors.
pub fn write_confidence(folder: &Path, section: &Section) -> Result<()> {
    let mut document = section.to_json();
    document.push(b'\n');
    Ok(cactus_bundle::amend(folder, CONFIDENCE_PATH, &document)?)
}

fn measure(answers: Vec<Scored>, asked: usize, grouped: bool, max_error: f64) -> ConfidenceReport {
    let cases: Vec<(f64, bool)> = answers.iter().map(|a| (a.confidence, a.correct)).collect();
    let p: Vec<f64> = cases.iter().map(|(p, _)| *p).collect();
    let accuracy = cases.iter().filter(|(_, right)| *right).count() as f64 / cases.len().max(1) as f64;
    let floor = ece_floor(&p, BINS);
    // Thresholds are quantiles of the scores and do not look at who was right.
    let certified = certify(&thresholds(&p), &cases, max_error, DELTA);
    ConfidenceReport {
        cases: cases.len(),
        without_score: asked - cases.len(),
        grouped,
        accuracy,
        // Both kinds are there, or nothing could have been fitted.
        auroc: auroc(&cases).unwrap_or(0.5),
        auroc_of_mean_logprob: 0.5,
        ece: ece(&cases, BINS),
        ece_floor: floor.mean,
        ece_floor_p95: floor.p95,
        brier: brier(&cases),
        certified,
        max_error,
        least_handed_off: ((1.0 - accuracy - max_error) / (1.0 - max_error)).max(0.0),
        answers,
    }
}

/// Cases of other tasks are never alike.
fn group(task: &str, case: &Judged) -> u64 {
    let name = case.group.as_deref().unwrap_or(&case.id);
    Checksum::of(format!("{task}\0{}\0{name}", u8::from(case.group.is_some())).as_bytes()).0
}

/// The setup of the first results; others have to be of the same bundle, template and sampler.
fn same<'a>(results: &[&'a Results]) -> Result<&'a Setup> {
    let Some(first) = results.first().map(|r| &r.setup) else {
        return Err(Error::Task("there are no results to learn from".to_owned()));
    };
    let mut seen = HashSet::new();
    for (i, result) in results.iter().enumerate() {
        let setup = &result.setup;
        let what = format!("results {} of {} ({})", i + 1, results.len(), setup.task.name());
        let differs = [
            ("bundle", setup.bundle != first.bundle),
            ("chat template", setup.template != first.template),
            ("sampler", setup.sampler != first.sampler),
        ];
        if let Some((other, _)) = differs.iter().find(|(_, differs)| *differs) {
            return Err(Error::Task(format!("{what} are of another {other} than the first")));
        }
        if !setup.signals {
            return Err(Error::Task(format!(
                "{what} do not say how sure the model was; expected a file that `calibrate` saved"
            )));
        }
        let ids = result.cases.iter().map(|case| (setup.task.name(), case.id.as_str()));
        if let Some((_, id)) = ids.into_iter().find(|id| !seen.insert(*id)) {
            return Err(Error::Task(format!("{what} have the case `{id}` a second time")));
        }
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::{Gathered, Seen, Task};

    fn results(task: Task, n: u32, from: u32) -> Results {
        let mut results = Results::new(Setup {
            task,
            data: "d".into(),
            bundle: "b".into(),
            template: "t".into(),
            sampler: "s".into(),
            cases: n as usize,
            max_tokens: 8,
            raw: false,
            constrained: false,
            one_call: false,
            signals: true,
        });
        for i in from..from + n {
            // A multiplicative congruence: enough to have no order.
            let x = f64::from(i.wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 24);
            let mut features = [0.0; 10];
            features[0] = x;
            let seen = |tokens, x| Seen {
                tokens,
                values: tokens,
                features: {
                    let mut early = features;
                    early[0] = x;
                    early
                },
            };
            results.push(Judged {
                id: format!("c{i}"),
                correct: x > f64::from(i % 7) / 7.0,
                answer: String::new(),
                why: None,
                group: None,
                gathered: Some(Gathered {
                    prompt_tokens: 3,
                    answer_tokens: 9,
                    seen: vec![seen(1, 0.5), seen(9, x)],
                }),
            });
        }
        results
    }

    #[test]
    fn fit_says_how_good_it_is_and_is_written_into_its_key() {
        let (a, b) = (results(Task::Bfcl, 300, 0), results(Task::Gsm8k, 100, 300));
        let (section, report) = fit_confidence(&[&a, &b], 0.2).unwrap();
        assert_eq!((section.cases, section.task.as_str()), (400, "bfcl+gsm8k"));
        assert_eq!((section.key.bundle.as_str(), section.key.sampler.as_str()), ("b", "s"));
        assert_eq!((report.cases, report.without_score), (400, 0));
        assert!(
            report.auroc > 0.75 && report.ece < 2.0 * report.ece_floor_p95,
            "{report:?}"
        );
        let wrong = 1.0 - report.accuracy;
        assert!((report.least_handed_off - (wrong - 0.2) / 0.8).abs() < 1e-12);
        let certified = report.certified.unwrap();
        let kept = report.answers.iter().filter(|a| a.confidence >= certified.threshold);
        assert_eq!(kept.count() as u64, certified.kept);
        assert!(certified.errors as f64 <= 0.2 * certified.kept as f64);
        let along = &report.answers[0].along;
        assert_eq!(
            (along[0].tokens, along[1].confidence),
            (1, report.answers[0].confidence)
        );
        assert_eq!(Section::from_json(&section.to_json()).unwrap(), section);
    }

    #[test]
    fn what_cannot_be_learned_from_is_refused_by_name() {
        let a = results(Task::Bfcl, 200, 0);
        let with = |change: &dyn Fn(&mut Results)| {
            let mut b = results(Task::Gsm8k, 100, 0);
            change(&mut b);
            fit_confidence(&[&a, &b], 0.2).unwrap_err().to_string()
        };
        for (error, expected) in [
            (with(&|b| b.setup.bundle = "c".into()), "another bundle"),
            (with(&|b| b.setup.template = "c".into()), "another chat template"),
            (with(&|b| b.setup.sampler = "c".into()), "another sampler"),
            (with(&|b| b.setup.signals = false), "how sure the model was"),
            (with(&|b| b.setup.task = Task::Bfcl), "a second time"),
            (fit_confidence(&[], 0.2).unwrap_err().to_string(), "no results"),
        ] {
            assert!(error.contains(expected), "{error}");
        }
        let mut few = results(Task::Bfcl, 110, 0);
        few.cases.iter_mut().take(20).for_each(|case| case.gathered = None);
        let error = fit_confidence(&[&few], 0.2).unwrap_err().to_string();
        assert!(error.contains("at least 100") && error.contains("20 more"), "{error}");
    }
}
