//! Models of texts in few bits: calibrated, measured against their source, and with bits where they matter.

use cactus_import::ConvertOptions;
use cactus_passes::{Bits, Policy};
use cactus_quality::{Calibrate, Floor, Made, Request, Text, TextComparison, Verdict, convert_measured};
use std::path::{Path, PathBuf};
use std::rc::Rc;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/embedding")
        .join(name)
}

/// A conversion of a golden model into a bundle in `folder`.
fn made(folder: &Path, name: &str, bits: Bits, change: impl FnOnce(&mut Request)) -> cactus_quality::Result<Made> {
    let options = ConvertOptions {
        policy: Policy::uniform(bits),
        replace: true,
        threads: Some(2),
        ..ConvertOptions::default()
    };
    let mut request = Request {
        calibrate: Calibrate::BuiltIn,
        calibration_tokens: 4096,
        measure: Some(Text::built_in_held_out()),
        ..Request::default()
    };
    change(&mut request);
    convert_measured(
        &golden(name),
        &folder.join(name),
        &options,
        &request,
        &(Rc::new(|_, _, _| {}) as _),
    )
}

fn cosine(made: &Made) -> f64 {
    match made.quality.as_ref().unwrap().texts {
        Some(TextComparison::Vectors { cosine_mean, .. }) => cosine_mean,
        ref other => panic!("expected vectors, found {other:?}"),
    }
}

#[test]
fn vectors_of_few_bits_are_calibrated_and_measured() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "bert",
        "bert_tokens",
        "embedding_gemma2",
        "gemma3_text",
        "qwen3",
        "nomic_bert",
        "clip_pictures",
    ] {
        let anything = |request: &mut Request| request.floor.cosine = -1.0;
        let made = |calibrate| {
            made(folder.path(), name, Bits::Three, |request| {
                anything(request);
                request.calibrate = calibrate;
            })
            .unwrap()
        };
        let (plain, calibrated) = (made(Calibrate::No), made(Calibrate::BuiltIn));
        let report = calibrated.quality.as_ref().unwrap();
        assert_eq!(report.verdict, Verdict::Passed, "{name}: {report:?}");
        assert!(report.calibration.is_some() && report.text.is_some() && report.comparison.is_none());
        assert!(report.tensors.iter().any(|t| t.calibrated), "{name}");
        assert!(
            cosine(&calibrated) > cosine(&plain) && cosine(&calibrated) < 1.0,
            "{name}: {} calibrated, {} without",
            cosine(&calibrated),
            cosine(&plain)
        );
        let document = std::fs::read(folder.path().join(name).join("quality.json")).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
        assert_eq!(document["texts"]["kind"], "vectors");
    }
}

#[test]
fn scores_of_few_bits_are_measured_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["bert_ranker", "qwen3_ranker"] {
        let made = made(folder.path(), name, Bits::Four, |request| request.floor.order = 0.0).unwrap();
        let report = made.quality.unwrap();
        let Some(TextComparison::Scores {
            pairs,
            order,
            shift_mean,
            ..
        }) = report.texts
        else {
            panic!("{name}: expected scores, found {:?}", report.texts);
        };
        assert!(pairs > 8 && order > 0.5 && shift_mean > 0.0, "{name}: {report:?}");
        assert!(report.tensors.iter().any(|t| t.calibrated), "{name}");
    }
}

#[test]
fn bits_go_where_vectors_need_them() {
    let folder = tempfile::tempdir().unwrap();
    let average = |average: f64| {
        let made = made(folder.path(), "bert", Bits::Four, |request| {
            request.average_bits = Some(average);
            request.floor.cosine = -1.0;
        });
        cosine(&made.unwrap())
    };
    assert!(average(6.5) > average(3.5));
}

#[test]
fn vectors_below_the_floor_are_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let floor = Floor {
        cosine: 0.999_999,
        ..Floor::default()
    };
    let error = made(folder.path(), "bert", Bits::Two, |request| request.floor = floor).unwrap_err();
    assert_eq!(error.kind(), cactus_quality::ErrorKind::Floor);
    assert!(error.to_string().contains("mean cosine"), "{error}");
    assert!(!folder.path().join("bert").exists());
}
