//! Models that see in few bits: their language model is calibrated and measured by text, their encoder of pictures keeps its bits.

use cactus_import::ConvertOptions;
use cactus_passes::{Bits, Policy};
use cactus_quality::{Calibrate, Floor, Report, Request, Text, Verdict, convert_measured};
use std::path::Path;
use std::rc::Rc;

/// What is found of a conversion of the golden model.
fn made(bits: Bits, calibrate: Calibrate, average_bits: Option<f64>) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/seeing/lfm2_vl");
    let options = ConvertOptions {
        policy: Policy::uniform(bits),
        threads: Some(2),
        ..ConvertOptions::default()
    };
    let request = Request {
        average_bits,
        calibrate,
        calibration_tokens: 4096,
        measure: Some(Text::built_in_held_out()),
        floor: Floor {
            kl_mean: f64::MAX,
            top1: 0.0,
            ..Floor::default()
        },
        ..Request::default()
    };
    let made = convert_measured(
        &golden,
        &folder.path().join("bundle"),
        &options,
        &request,
        &(Rc::new(|_, _, _| {}) as _),
    );
    made.unwrap().quality.unwrap()
}

fn divergence(report: &Report) -> f64 {
    report.comparison.as_ref().unwrap().kl_mean
}

#[test]
fn what_writes_is_calibrated_and_measured() {
    let (plain, calibrated) = (
        made(Bits::Three, Calibrate::No, None),
        made(Bits::Three, Calibrate::BuiltIn, None),
    );
    assert_eq!(calibrated.verdict, Verdict::Passed);
    let (own, others): (Vec<_>, Vec<_>) = calibrated
        .tensors
        .iter()
        .partition(|tensor| tensor.name.starts_with("model."));
    assert!(own.iter().any(|tensor| tensor.calibrated), "{own:?}");
    assert!(others.iter().all(|tensor| !tensor.calibrated), "{others:?}");
    let (kl, without) = (divergence(&calibrated), divergence(&plain));
    assert!(kl > 0.0 && kl < without, "{kl} calibrated, {without} without");
}

#[test]
fn bits_on_average_are_those_of_what_writes() {
    let report = |average| made(Bits::Four, Calibrate::No, Some(average));
    let (more, fewer) = (report(6.5), report(3.5));
    assert!(divergence(&more) < divergence(&fewer));
    let others = fewer.tensors.iter().filter(|tensor| !tensor.name.starts_with("model."));
    assert!(
        others.into_iter().all(|tensor| tensor.relative < 1e-3),
        "{:?}",
        fewer.tensors
    );
}
