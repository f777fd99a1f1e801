//! Fits against what is known, metrics against counting, and bits.

use super::*;

/// SplitMix64 as numbers from 0 to 1.
struct Uniform(u64);

impl Uniform {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn token(logprob: f64, margin: f64, entropy: f64) -> TokenSignal {
    TokenSignal {
        logprob,
        margin,
        gap: 0.25,
        entropy,
        value: true,
    }
}

#[test]
fn features_of_tokens_are_their_statistics() {
    let mut signals = Signals::default();
    assert_eq!(signals.features(), None);
    signals.push(TokenSignal {
        value: false,
        ..token(-9.0, 0.0, 9.0)
    });
    assert_eq!(signals.features(), None);
    for i in 1..=20u8 {
        signals.push(token(-f64::from(i), f64::from(i), 0.5));
    }
    signals.set_probe(0.25);
    let features = signals.features().unwrap();
    let expected = [-10.5, -20.0, -19.0, 10.5, 1.0, 0.25, 0.5, 0.5, libm::log1p(20.0), 0.25];
    assert_eq!(features, expected);
    for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        signals.push(token(wrong, wrong, wrong));
    }
    signals.set_probe(f64::NAN);
    assert!(signals.features().unwrap().iter().all(|x| x.is_finite()));
}

/// Cases whose answer is right with a probability that depends on two features.
fn cases(n: usize, seed: u64) -> Vec<(Features, bool)> {
    let mut uniform = Uniform(seed);
    (0..n)
        .map(|_| {
            let mut features: Features = std::array::from_fn(|_| 4.0 * uniform.next() - 2.0);
            features[9] = 0.0;
            let p = sigmoid(1.5 * features[0] - 1.0 * features[3] + 0.5);
            let right = uniform.next() < p;
            (features, right)
        })
        .collect()
}

#[test]
fn fit_finds_the_weights_that_made_the_cases() {
    let combiner = Combiner::fit(&cases(20_000, 1)).unwrap();
    let at = |i: usize, x: f64| {
        let mut features = [0.0; FEATURES];
        features[i] = x;
        combiner.log_odds(&features)
    };
    let slopes: Vec<f64> = (0..FEATURES).map(|i| at(i, 1.0) - at(i, 0.0)).collect();
    for (i, expected) in [1.5, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
        .into_iter()
        .enumerate()
    {
        assert!(
            (slopes[i] - expected).abs() < 0.08,
            "feature {i}: {} for {expected}",
            slopes[i]
        );
    }
    assert!((at(0, 0.0) - 0.5).abs() < 0.08);
    // Separable cases have finite weights.
    let separable: Vec<(Features, bool)> = cases(200, 2).into_iter().map(|(f, _)| (f, f[0] > 0.0)).collect();
    assert!(
        Combiner::fit(&separable)
            .unwrap()
            .log_odds(&[1.0; FEATURES])
            .is_finite()
    );
    let error = Combiner::fit(&separable[..49]).unwrap_err();
    assert!(error.to_string().contains("expected at least 50 cases"), "{error}");
    let one_kind: Vec<(Features, bool)> = separable.iter().map(|(f, _)| (*f, true)).collect();
    Combiner::fit(&one_kind).unwrap_err();
}

#[test]
fn each_calibrator_repairs_overconfidence_and_keeps_the_order() {
    // True odds are a third of what is said, in logarithms, and lower by one half.
    let mut uniform = Uniform(3);
    let mut draw = |n: usize| -> Vec<(f64, bool)> {
        let mut one = || {
            let x = 12.0 * uniform.next() - 6.0;
            (x, uniform.next() < sigmoid(x / 3.0 - 0.5))
        };
        (0..n).map(|_| one()).collect()
    };
    let (fit, test) = (draw(4000), draw(4000));
    let error = |f: &dyn Fn(f64) -> f64| ece(&test.iter().map(|(x, right)| (f(*x), *right)).collect::<Vec<_>>(), 15);
    let before = error(&sigmoid);
    assert!(before > 0.1);
    for (calibrator, most) in [
        (Calibrator::fit_temperature(&fit).unwrap(), 0.11),
        (Calibrator::fit_platt(&fit).unwrap(), 0.03),
        (Calibrator::fit_isotonic(&fit).unwrap(), 0.035),
    ] {
        assert!(calibrator.is_sound());
        let after = error(&|x| calibrator.probability(x));
        assert!(
            after < most && after < before,
            "{after} of {before} with {calibrator:?}"
        );
        let line: Vec<f64> = (-100..100)
            .map(|i| calibrator.probability(f64::from(i) / 10.0))
            .collect();
        assert!(line.windows(2).all(|p| p[0] <= p[1]), "{calibrator:?} falls");
    }
    let Calibrator::Platt { slope, offset } = Calibrator::fit_platt(&fit).unwrap() else {
        panic!()
    };
    assert!(
        (slope - 1.0 / 3.0).abs() < 0.03 && (offset + 0.5).abs() < 0.1,
        "{slope} {offset}"
    );
    Calibrator::fit_isotonic(&fit[..999]).unwrap_err();
}

#[test]
fn errors_allowed_are_those_of_the_binomial_distribution() {
    // Most errors at 90 % confidence, by exact sums.
    for (n, at_5, at_10, at_20) in [
        (50, Some(0), Some(1), Some(5)),
        (100, Some(1), Some(5), Some(14)),
        (200, Some(5), Some(14), Some(32)),
        (400, Some(14), Some(31), Some(69)),
        (1000, Some(40), Some(87), Some(183)),
        (10, None, None, Some(0)),
    ] {
        for (a, expected) in [(0.05, at_5), (0.1, at_10), (0.2, at_20)] {
            // 0.8^10 = 0.107 is just above a tenth.
            let expected = if (n, a) == (10, 0.2) { None } else { expected };
            assert_eq!(errors_allowed(n, a, 0.1), expected, "n = {n}, a = {a}");
        }
    }
    // 1 - 0.1^(1/22): none of 22 wrong.
    assert!((upper_bound(22, 0, 0.1) - (1.0 - 0.1f64.powf(1.0 / 22.0))).abs() < 1e-12);
    assert_eq!((upper_bound(0, 0, 0.1), upper_bound(5, 5, 0.1)), (1.0, 1.0));
    assert!(upper_bound(100, 5, 0.1) < 0.1 && upper_bound(100, 6, 0.1) > 0.1);
}

#[test]
fn certified_bound_is_kept_in_at_least_90_of_100_splits() {
    let mut uniform = Uniform(4);
    let mut draw = |n: usize| -> Vec<(f64, bool)> {
        let mut one = || {
            let p = uniform.next();
            (p, uniform.next() < p)
        };
        (0..n).map(|_| one()).collect()
    };
    let (mut certified, mut violated) = (0, 0);
    for _ in 0..400 {
        let fit: Vec<f64> = draw(300).iter().map(|(p, _)| *p).collect();
        let Some(bound) = certify(&thresholds(&fit), &draw(300), 0.2, 0.1) else {
            continue;
        };
        certified += 1;
        // The share of errors among kept answers is known: 1 - p, uniform from the threshold to 1.
        violated += usize::from((1.0 - bound.threshold) / 2.0 > 0.2);
        assert!(bound.errors <= bound.kept);
    }
    assert!(certified > 300, "only {certified} of 400");
    assert!(violated * 10 <= certified, "{violated} of {certified}");
    assert_eq!(certify(&[0.5], &[(0.9, true); 5], 0.2, 0.1), None);
    // The first threshold keeps too few to show anything.
    let few_at_first = [vec![(0.95, false)], vec![(0.9, true); 40]].concat();
    assert_eq!(
        certify(&[0.94, 0.5], &few_at_first, 0.2, 0.1).map(|c| (c.kept, c.errors)),
        Some((41, 1))
    );
}

#[test]
fn auroc_counts_pairs_and_ties_half() {
    assert_eq!(auroc(&[(0.1, false), (0.2, true)]), Some(1.0));
    assert_eq!(auroc(&[(0.1, true), (0.2, false)]), Some(0.0));
    assert_eq!(auroc(&[(0.2, true), (0.2, false)]), Some(0.5));
    assert_eq!(auroc(&[(0.2, true)]), None);
    let mut uniform = Uniform(5);
    let cases: Vec<(f64, bool)> = (0..200)
        .map(|_| ((uniform.next() * 10.0).floor(), uniform.next() < 0.4))
        .collect();
    let (mut pairs, mut ordered) = (0.0, 0.0);
    for (a, _) in cases.iter().filter(|c| c.1) {
        for (b, _) in cases.iter().filter(|c| !c.1) {
            pairs += 1.0;
            ordered += if a > b {
                1.0
            } else if a == b {
                0.5
            } else {
                0.0
            };
        }
    }
    assert_eq!(auroc(&cases), Some(ordered / pairs));
}

#[test]
fn ece_of_a_perfect_predictor_has_the_published_floor() {
    // 0.08 with 164 cases and 10 bins.
    let mut uniform = Uniform(6);
    let probabilities: Vec<f64> = (0..164).map(|_| uniform.next()).collect();
    let floor = ece_floor(&probabilities, 10);
    assert!(
        (0.06..0.1).contains(&floor.mean) && (floor.mean..0.14).contains(&floor.p95),
        "{floor:?}"
    );
    assert_eq!(
        ece(&[(0.8, true), (0.8, true), (0.8, false), (0.8, true)], 1),
        0.8 - 0.75 + 0.0
    );
    assert!((brier(&[(0.8, true), (0.4, false)]) - 0.1).abs() < 1e-12);
}

#[test]
fn routing_by_a_perfect_score_has_skill_one_and_by_none_zero() {
    let case = |score: f64, local, cloud| Case { score, local, cloud };
    // Right where the target is wrong, too, and the other way round.
    let gains = [
        (false, true),
        (false, true),
        (true, true),
        (false, false),
        (true, false),
    ];
    let perfect: Vec<Case> = gains
        .iter()
        .enumerate()
        .map(|(i, (l, c))| case(i as f64, *l, *c))
        .collect();
    let routed = routing(&perfect);
    assert_eq!(routed.accuracy, [0.4, 0.6, 0.8, 0.8, 0.8, 0.6]);
    assert!((routed.skill.unwrap() - 1.0).abs() < 1e-12);
    let blind: Vec<Case> = perfect.iter().map(|c| Case { score: 0.0, ..*c }).collect();
    let routed = routing(&blind);
    assert!(routed.skill.unwrap().abs() < 1e-12 && (routed.apgr.unwrap() - 0.5).abs() < 1e-12);
    let same = routing(&[case(0.1, true, true)]);
    assert_eq!((same.apgr, same.skill), (None, None));
}

fn section() -> Section {
    let key = Key {
        bundle: "b".to_owned(),
        template: "t".to_owned(),
        sampler: "s".to_owned(),
    };
    let cases = cases(500, 7);
    let combiner = Combiner::fit(&cases).unwrap();
    let scored: Vec<(f64, bool)> = cases.iter().map(|(f, right)| (combiner.log_odds(f), *right)).collect();
    let calibrator = Calibrator::fit_platt(&scored).unwrap();
    let certified = Some(Certified {
        threshold: 0.7,
        max_error: 0.2,
        delta: 0.1,
        kept: 100,
        errors: 3,
    });
    Section {
        version: 1,
        key,
        task: "test".to_owned(),
        cases: 500,
        combiner,
        calibrator,
        certified,
    }
}

#[test]
fn section_is_the_same_after_json_and_refused_where_it_is_wrong() {
    let section = section();
    let json = section.to_json();
    let read = Section::from_json(&json).unwrap();
    assert_eq!(read, section);
    let mut signals = Signals::default();
    signals.push(token(-0.5, 2.0, 0.7));
    assert_eq!(
        read.confidence(&signals).map(f64::to_bits),
        section.confidence(&signals).map(f64::to_bits)
    );
    assert_eq!((section.bound(0.69), section.bound(0.7)), (None, Some(0.2)));
    for (from, to) in [
        ("\"version\":1", "\"version\":2"),
        ("\"task\"", "\"tusk\""),
        ("\"threshold\":0.7", "\"threshold\":7"),
        ("\"errors\":3", "\"errors\":300"),
        ("\"slope\":", "\"slope\":-"),
        ("\"scale\":[", "\"scale\":[0,"),
        ("{", ""),
    ] {
        let text = String::from_utf8(json.clone()).unwrap();
        let wrong = text.replacen(from, to, 1);
        assert_ne!(wrong, text);
        let error = Section::from_json(wrong.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("expected"), "{error}");
    }
    section.holds_for(&section.key).unwrap();
    for what in ["bundle", "template", "sampler"] {
        let mut key = section.key.clone();
        match what {
            "bundle" => key.bundle.push('x'),
            "template" => key.template.push('x'),
            _ => key.sampler.push('x'),
        }
        assert_eq!(section.holds_for(&key).unwrap_err(), Uncalibrated { what });
    }
}

#[test]
fn confidence_has_these_bits_on_every_machine() {
    let section = section();
    let mut signals = Signals::default();
    for i in 0..40u8 {
        signals.push(token(-0.05 * f64::from(i), 3.0 - 0.1 * f64::from(i), 0.3));
    }
    let bits = section.confidence(&signals).unwrap().to_bits();
    assert_eq!(bits, BITS, "{bits:#x}");
}

const BITS: u64 = 0x3fbc_2d8d_8043_e79e;
