//! Fitting to cases, and scores of cases that a fit has not seen.

use super::calibrate::Calibrator;
use super::combine::{Combiner, NotFitted};
use super::signals::Features;

/// Parts into which cases are cut: each is scored by a fit to the others.
const FOLDS: usize = 5;
/// Fewest cases of a fit with a guarantee worth having.
pub const LEAST: usize = 100;

/// An answer that was judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Samples of one group are alike, so none is scored by a fit to another one.
    pub group: u64,
    /// At the end of the answer.
    pub features: Features,
    /// Whether the answer is right.
    pub right: bool,
}

/// From features to a probability.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// From features to log-odds.
    pub combiner: Combiner,
    /// From log-odds to a probability.
    pub calibrator: Calibrator,
}

impl Fit {
    /// A combiner of all samples; and a calibrator of the log-odds that each sample gets from a combiner of other groups,
    /// as those of the combiner's own samples are too sure. The calibrator has the most freedom that its number of samples
    /// allows.
    ///
    /// # Errors
    /// [`NotFitted`] for too few samples, or only right or only wrong ones in most of them.
    pub fn of(samples: &[Sample]) -> Result<Fit, NotFitted> {
        let held_out = log_odds(samples)?;
        let calibrator = match samples.len() {
            1000.. => Calibrator::fit_isotonic(&held_out)?,
            100.. => Calibrator::fit_platt(&held_out)?,
            _ => Calibrator::fit_temperature(&held_out)?,
        };
        Ok(Fit {
            combiner: combiner(samples.iter())?,
            calibrator,
        })
    }

    /// The probability that an answer with these features is right.
    #[must_use]
    pub fn confidence(&self, features: &Features) -> f64 {
        self.calibrator.probability(self.combiner.log_odds(features))
    }
}

/// Fits to all parts of some samples but one, for each part.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossValidated {
    fold: Vec<usize>,
    fits: Vec<Fit>,
}

impl CrossValidated {
    /// Fits to the samples, at least 100.
    ///
    /// # Errors
    /// As [`Fit::of`].
    pub fn of(samples: &[Sample]) -> Result<CrossValidated, NotFitted> {
        NotFitted::unless(LEAST, samples.iter().map(|sample| sample.right))?;
        let fold = folds(samples);
        let others = |k: usize| -> Vec<Sample> {
            let each = samples.iter().zip(&fold);
            each.filter(|(_, fold)| **fold != k)
                .map(|(sample, _)| *sample)
                .collect()
        };
        let fits = (0..FOLDS).map(|k| Fit::of(&others(k))).collect::<Result<_, _>>()?;
        Ok(CrossValidated { fold, fits })
    }

    /// The probability that sample `index` is right, with these features, by the fit that has not seen its group.
    #[must_use]
    pub fn confidence(&self, index: usize, features: &Features) -> f64 {
        self.fits[self.fold[index]].confidence(features)
    }
}

fn combiner<'a>(samples: impl Iterator<Item = &'a Sample>) -> Result<Combiner, NotFitted> {
    let cases: Vec<(Features, bool)> = samples.map(|sample| (sample.features, sample.right)).collect();
    Combiner::fit(&cases)
}

/// The log-odds of each sample by a combiner of the other groups.
fn log_odds(samples: &[Sample]) -> Result<Vec<(f64, bool)>, NotFitted> {
    let fold = folds(samples);
    let mut out = vec![(0.0, false); samples.len()];
    for k in 0..FOLDS {
        let others = samples.iter().zip(&fold).filter(|(_, fold)| **fold != k);
        let combiner = combiner(others.map(|(sample, _)| sample))?;
        for (i, sample) in samples.iter().enumerate().filter(|(i, _)| fold[*i] == k) {
            out[i] = (combiner.log_odds(&sample.features), sample.right);
        }
    }
    Ok(out)
}

/// The part of each sample: groups stay whole, and each goes to the smallest part, the largest ones first. Groups of one size
/// are in the order of their numbers, which are digests, so the order of the samples says nothing.
fn folds(samples: &[Sample]) -> Vec<usize> {
    let mut sizes = std::collections::BTreeMap::new();
    for sample in samples {
        *sizes.entry(sample.group).or_insert(0usize) += 1;
    }
    let mut order: Vec<(u64, usize)> = sizes.iter().map(|(group, size)| (*group, *size)).collect();
    order.sort_by_key(|(group, size)| (std::cmp::Reverse(*size), *group));
    let mut held = [0; FOLDS];
    for (group, size) in order {
        let smallest = (0..FOLDS).min_by_key(|k| held[*k]).unwrap_or(0);
        held[smallest] += size;
        sizes.insert(group, smallest);
    }
    samples.iter().map(|sample| sizes[&sample.group]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{auroc, ece, ece_floor, sigmoid};
    use super::*;

    struct Uniform(u64);

    impl Uniform {
        fn next(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Answers that are right with a probability that the first two features tell.
    fn samples(n: usize, alike: usize) -> Vec<Sample> {
        let mut uniform = Uniform(0x1234_5678_9abc_def1);
        (0..n)
            .map(|i| {
                let mut features = [0.0; 10];
                features.iter_mut().for_each(|x| *x = 2.0 * uniform.next() - 1.0);
                let p = sigmoid(3.0 * features[0] - 2.0 * features[1] + 0.5);
                Sample {
                    group: (i / alike) as u64,
                    features,
                    right: uniform.next() < p,
                }
            })
            .collect()
    }

    #[test]
    fn groups_stay_whole_and_parts_are_alike() {
        let samples = samples(203, 3);
        let fold = folds(&samples);
        for (a, b) in samples.iter().zip(&fold) {
            let same = samples.iter().zip(&fold).filter(|(s, _)| s.group == a.group);
            assert!(same.map(|(_, fold)| fold).all(|fold| fold == b));
        }
        for k in 0..FOLDS {
            let size = fold.iter().filter(|fold| **fold == k).count();
            assert!((39..=42).contains(&size), "{size}");
        }
    }

    #[test]
    fn scores_of_cases_not_seen_rank_and_are_calibrated() {
        for n in [200, 600, 1500] {
            let samples = samples(n, 1);
            let crossed = CrossValidated::of(&samples).unwrap();
            let scored: Vec<(f64, bool)> = samples
                .iter()
                .enumerate()
                .map(|(i, sample)| (crossed.confidence(i, &sample.features), sample.right))
                .collect();
            assert!(auroc(&scored).unwrap() > 0.85, "{n}: {:?}", auroc(&scored));
            let p: Vec<f64> = scored.iter().map(|(p, _)| *p).collect();
            let (found, floor) = (ece(&scored, 10), ece_floor(&p, 10));
            assert!(found < 1.5 * floor.p95, "{n}: {found} {floor:?}");
        }
    }

    #[test]
    fn scores_of_noise_are_no_better_than_chance() {
        // Each group has features of its own and one answer, which a fit that has seen the group would know.
        let mut samples = samples(400, 8);
        for i in 0..samples.len() {
            let first = samples[i - i % 8];
            samples[i].features = first.features;
            samples[i].right = first.group.is_multiple_of(2);
        }
        let crossed = CrossValidated::of(&samples).unwrap();
        let scored = samples.iter().enumerate();
        let scored: Vec<(f64, bool)> = scored
            .map(|(i, s)| (crossed.confidence(i, &s.features), s.right))
            .collect();
        let found = auroc(&scored).unwrap();
        assert!((0.2..0.7).contains(&found), "{found}");
    }

    #[test]
    fn too_few_cases_are_refused_with_their_numbers() {
        let few = samples(99, 1);
        let error = CrossValidated::of(&few).unwrap_err();
        assert_eq!((error.least, error.right + error.wrong), (100, 99));
        let mut right = samples(300, 1);
        right.iter_mut().for_each(|sample| sample.right = true);
        assert!(CrossValidated::of(&right).is_err());
    }
}
