//! The end of a conversion: the comparison with the source, the quality document, and the move into place.

use crate::{Comparison, Error, Made, Report, Result, Runner, Stage, Verdict, Windows, compare};
use cactus_bundle::Scratch;
use cactus_import::{Outcome, Stop};
use std::path::{Path, PathBuf};

/// Path of the quality document in a bundle.
pub const QUALITY_PATH: &str = "quality.json";

/// A path for a bundle on its way, in a folder that goes away with it.
pub(crate) struct Temporary(
    pub(crate) PathBuf,
    #[expect(dead_code, reason = "held until it is dropped")] Scratch,
);

impl Temporary {
    /// A path `kind`, where nothing is yet, on the file system of `destination`.
    pub(crate) fn beside(destination: &Path, kind: &str) -> Result<Self> {
        let scratch = Scratch::beside(destination)?;
        Ok(Self(scratch.join(kind), scratch))
    }
}

/// Compares the bundle in `candidate` with `reference` on `windows`.
pub(crate) fn measure(
    reference: &mut Runner,
    candidate: &Path,
    windows: &Windows,
    progress: &dyn Fn(Stage, u64, u64),
    stop: &Stop,
) -> Result<Comparison> {
    let mut candidate = Runner::open(candidate, windows.length(), reference.threads())?;
    let total = windows.iter().len() as u64;
    progress(Stage::Measuring, 0, total);
    compare(reference, &mut candidate, windows, &mut |done, _| {
        progress(Stage::Measuring, done as u64, total);
        Ok(stop.check()?)
    })
}

/// Moves the bundle that `outcome` is of to `destination`, with its quality document where there is one.
///
/// # Errors
/// [`crate::ErrorKind::Floor`] for a bundle below the floor unless `accept`; file errors. The destination is then as it was.
pub(crate) fn install(
    mut outcome: Outcome,
    report: Option<Report>,
    destination: &Path,
    replace: bool,
    accept: bool,
) -> Result<Made> {
    let mut below_floor = None;
    if let Some(report) = &report {
        if report.verdict == Verdict::BelowFloor {
            let why = report.why.clone().unwrap_or_default();
            if !accept {
                let calibrated = report.calibration.is_some();
                return Err(Error::Floor { why, calibrated });
            }
            below_floor = Some(why);
        }
        let mut document = serde_json::to_vec_pretty(report).map_err(|e| Error::Text(e.to_string()))?;
        document.push(b'\n');
        cactus_bundle::amend(&outcome.path, QUALITY_PATH, &document)?;
    }
    cactus_bundle::install(&outcome.path, destination, replace)?;
    outcome.path = destination.to_path_buf();
    Ok(Made {
        outcome,
        quality: report,
        below_floor,
    })
}
