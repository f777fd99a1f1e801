//! A conversion with everything that quality asks for: reference, calibration, allocation, measurement, floor.
//!
//! The source is first converted to half precision beside the destination; that bundle is calibrated on and measured
//! against, and removed at the end. The bundle itself is moved into place last, so a conversion that fails, or ends below the
//! floor, leaves the destination as it was.

use crate::{
    Comparison, Error, Floor, Moments, Report, Result, Runner, Sensitivity, Windows, allocate, compare, sensitivity,
};
use cactus_bundle::Bundle;
use cactus_engine::Model;
use cactus_import::{ConvertOptions, Outcome, convert, convert_calibrated};
use cactus_passes::{Bits, Policy};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Tokens of a window to calibrate with and to measure on.
const WINDOW: usize = 512;
/// Tokens of a window that sensitivity is measured on.
const SHORT_WINDOW: usize = 192;
/// Windows that sensitivity is measured on.
const SHORT_WINDOWS: usize = 2;

/// What a conversion is asked for beside [`ConvertOptions`].
#[derive(Clone, Debug)]
pub struct Request {
    /// Average bits that an allocation may spend; the policy's bits are ignored then, its rules hold.
    pub average_bits: Option<f64>,
    /// Text to calibrate with, and what to call it.
    pub calibration: Option<(String, String)>,
    /// Most tokens to calibrate with.
    pub calibration_tokens: usize,
    /// Text to measure on, and what to call it.
    pub measure: Option<(String, String)>,
    /// Most tokens to measure on; half of them are scored.
    pub measure_tokens: usize,
    /// What must be reached.
    pub floor: Floor,
    /// Whether to write the bundle all the same.
    pub accept_below_floor: bool,
    /// Bytes of second moments held at a time.
    pub memory_bytes: usize,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            average_bits: None,
            calibration: None,
            calibration_tokens: 16_384,
            measure: None,
            measure_tokens: 4096,
            floor: Floor::default(),
            accept_below_floor: false,
            memory_bytes: 2 << 30,
        }
    }
}

/// What a conversion is doing.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Converting the source to half precision; elements.
    Reference,
    /// Measuring what coarser weights do; matrices.
    Sensitivity,
    /// Collecting the inputs of weights; windows of the run under way.
    Calibrating,
    /// Packing; elements.
    Converting,
    /// Comparing with the reference; windows.
    Measuring,
}

/// What was made, and how good it is.
#[derive(Debug, serde::Serialize)]
pub struct Made {
    /// The conversion.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The quality document, where it was measured.
    pub quality: Option<Report>,
    /// Why the bundle is below the floor.
    pub below_floor: Option<String>,
}

/// Removes a folder when dropped.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // Best effort: the name says what it is.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `.NAME.KIND-PID` beside `destination`.
fn beside(destination: &Path, kind: &str) -> PathBuf {
    let name = destination.file_name().unwrap_or_default().to_string_lossy();
    destination.with_file_name(format!(".{name}.{kind}-{}", std::process::id()))
}

/// Converts the model at `source` into a bundle at `destination` as `options` and `request` say. `progress` gets the stage
/// and how far it is.
///
/// # Errors
/// What is wrong with source or texts; [`crate::ErrorKind::Floor`] for a bundle below the floor. The destination is then as
/// it was.
pub fn convert_measured(
    source: &Path,
    destination: &Path,
    options: &ConvertOptions,
    request: &Request,
    progress: &Rc<dyn Fn(Stage, u64, u64)>,
) -> Result<Made> {
    cactus_bundle::check_destination(destination, options.replace)?;
    let mut options = options.clone();
    let threads = options
        .threads
        .unwrap_or_else(|| cactus_base::Cores::detect().threads());
    let wants = request.calibration.is_some() || request.measure.is_some() || request.average_bits.is_some();
    let stage = |s: Stage| move |done: u64, total: u64| progress(s, done, total);
    if !wants {
        let outcome = convert(source, destination, &options, &mut stage(Stage::Converting))?;
        return Ok(Made {
            outcome,
            quality: None,
            below_floor: None,
        });
    }
    let reference = Temporary(beside(destination, "reference"));
    let mut float = options.clone();
    float.policy = Policy::uniform(Bits::Sixteen);
    float.replace = true;
    convert(source, &reference.0, &float, &mut stage(Stage::Reference))?;
    let bundle = Bundle::open(&reference.0)?;
    let needed = request.calibration.is_some() || request.average_bits.is_some();
    if !needed && !bundle.has_file("tokenizer.json") {
        let mut outcome = convert(source, destination, &options, &mut stage(Stage::Converting))?;
        outcome.notes.push("not measured: the source has no tokenizer".into());
        return Ok(Made {
            outcome,
            quality: None,
            below_floor: None,
        });
    }
    let (tokenizer, _) = Model::load_text(&bundle)?;
    let longest = bundle.manifest().context_tokens;
    drop(bundle);
    let runner = || Runner::open(&reference.0, WINDOW, threads);
    let windows = |text: &str, length: usize, tokens: usize| {
        let length = length.min(longest);
        Windows::of(&tokenizer, text, length, tokens / length.max(1))
    };

    let given = request
        .calibration
        .as_ref()
        .map_or(crate::DEFAULT_CALIBRATION, |(t, _)| t.as_str());
    if let Some(target) = request.average_bits {
        let windows = windows(given, SHORT_WINDOW, SHORT_WINDOWS * SHORT_WINDOW)?;
        let found = sensitivities(&mut runner()?, &options.policy, target, &windows, &**progress)?;
        options.policy.exact = allocate(&found, target);
    }
    let candidate = Temporary(beside(destination, "measured"));
    let outcome = match &request.calibration {
        Some((text, _)) => {
            let windows = windows(text, WINDOW, request.calibration_tokens)?;
            let progress = Rc::clone(progress);
            let shown = Box::new(move |done, total| progress(Stage::Calibrating, done as u64, total as u64));
            let mut moments = Moments::new(runner()?, windows, request.memory_bytes, shown);
            let mut at = stage(Stage::Converting);
            convert_calibrated(source, &candidate.0, &options, Some(&mut moments), &mut at)?
        }
        None => convert(source, &candidate.0, &options, &mut stage(Stage::Converting))?,
    };
    let mut made = Made {
        outcome,
        quality: None,
        below_floor: None,
    };
    if let Some((text, name)) = &request.measure {
        let windows = windows(text, WINDOW, request.measure_tokens)?;
        let found = measure(&mut runner()?, &candidate.0, &windows, threads, &**progress)?;
        let mut report = Report::new(found, request.floor, name.clone(), made.outcome.errors.clone());
        report.calibration = request.calibration.as_ref().map(|(_, name)| name.clone());
        made.below_floor = report.failure();
        if let Some(why) = made.below_floor.as_ref().filter(|_| !request.accept_below_floor) {
            return Err(Error::Floor(why.clone()));
        }
        let mut document = serde_json::to_vec_pretty(&report).map_err(|e| Error::Text(e.to_string()))?;
        document.push(b'\n');
        cactus_bundle::amend(&candidate.0, QUALITY_PATH, &document)?;
        made.quality = Some(report);
    }
    cactus_bundle::install(&candidate.0, destination, options.replace)?;
    made.outcome.path = destination.to_path_buf();
    Ok(made)
}

/// Path of the quality document in a bundle.
pub const QUALITY_PATH: &str = "quality.json";

fn measure(
    reference: &mut Runner,
    candidate: &Path,
    windows: &Windows,
    threads: usize,
    progress: &dyn Fn(Stage, u64, u64),
) -> Result<Comparison> {
    let mut candidate = Runner::open(candidate, windows.length(), threads)?;
    let total = windows.iter().len() as u64;
    progress(Stage::Measuring, 0, total);
    compare(reference, &mut candidate, windows, &mut |done, _| {
        progress(Stage::Measuring, done as u64, total);
    })
}

/// What every matrix without a rule of its own is sensitive to.
fn sensitivities(
    runner: &mut Runner,
    policy: &Policy,
    target: f64,
    windows: &Windows,
    progress: &dyn Fn(Stage, u64, u64),
) -> Result<Vec<Sensitivity>> {
    let mut open: Vec<(u64, String)> = runner
        .bundle()
        .weights()
        .iter()
        .filter(|(name, w)| w.dims.len() == 2 && w.dims[1].is_multiple_of(32) && !policy.has_rule(name))
        .filter(|(_, w)| w.packing != cactus_quant::Packing::RowMajor.name())
        .map(|(name, w)| (w.offset, name.clone()))
        .collect();
    open.sort();
    let names: Vec<String> = open.into_iter().map(|(_, name)| name).collect();
    // Measured near the precisions that it will be about.
    let bits = if target < 3.0 { 2 } else { 3 };
    let total = names.len() as u64;
    sensitivity(runner, &names, bits, windows, &mut |done| {
        progress(Stage::Sensitivity, done as u64, total);
    })
}
