//! A conversion with everything that quality asks for: reference, calibration, allocation, measurement, floor.
//!
//! The source is first converted to half precision beside the destination; that bundle is calibrated on and measured
//! against, and removed at the end. The bundle itself is moved into place last, so a conversion that fails, or ends below the
//! floor, leaves the destination as it was.

use crate::finish::{Temporary, install, measure};
use crate::{Floor, Moments, Report, Result, Runner, Sensitivity, Text, Windows, allocate, sensitivity};
use cactus_bundle::Bundle;
use cactus_engine::Model;
use cactus_import::{ConvertOptions, Outcome, convert, convert_calibrated};
use cactus_passes::{Bits, Policy};
use std::path::Path;
use std::rc::Rc;

/// Tokens of a window to calibrate with and to measure on; of fewer, where the model has no longer context.
pub const WINDOW: usize = 512;
/// Tokens of a window that sensitivity is measured on.
const SHORT_WINDOW: usize = 192;
/// Windows that sensitivity is measured on.
const SHORT_WINDOWS: usize = 2;

/// What a conversion is asked for beside [`ConvertOptions`].
#[derive(Clone, Debug)]
pub struct Request {
    /// Average bits that an allocation may spend; the policy's bits are ignored then, its rules hold.
    pub average_bits: Option<f64>,
    /// Text to calibrate with.
    pub calibration: Option<Text>,
    /// Most tokens to calibrate with.
    pub calibration_tokens: usize,
    /// Text to measure on.
    pub measure: Option<Text>,
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
    let few = options.policy.least() < Bits::Eight || request.average_bits.is_some();
    let candidate = Temporary::beside(destination, "measured")?;
    let unmeasured = |options: &ConvertOptions, why: &str| {
        let outcome = convert(source, &candidate.0, options, &mut stage(Stage::Converting))?;
        let report = few.then(|| Report::unmeasured(why.into(), request.floor, outcome.errors.clone()));
        install(outcome, report, destination, options.replace, true)
    };
    if !wants {
        return unmeasured(&options, "not asked for");
    }
    let reference = Temporary::beside(destination, "reference")?;
    let mut float = options.clone();
    float.policy = Policy::uniform(Bits::Sixteen);
    float.replace = true;
    float.widen = true;
    convert(source, &reference.0, &float, &mut stage(Stage::Reference))?;
    let bundle = Bundle::open(&reference.0)?;
    let needed = request.calibration.is_some() || request.average_bits.is_some();
    if !needed && !Model::has_tokenizer(&bundle) {
        let why = "the source has no tokenizer";
        let mut made = unmeasured(&options, why)?;
        made.outcome.notes.push(format!("not measured: {why}"));
        return Ok(made);
    }
    let texts = Model::load_text(&bundle)?;
    let longest = bundle.manifest().context_tokens;
    drop(bundle);
    let runner = || Runner::open(&reference.0, WINDOW, threads);
    let windows = |text: &Text, length: usize, tokens: usize| {
        let length = length.min(longest);
        Windows::of(&texts, text, length, tokens / length.max(1))
    };

    if let Some(target) = request.average_bits {
        let given = request.calibration.clone().unwrap_or_else(Text::built_in_calibration);
        let windows = windows(&given, SHORT_WINDOW, SHORT_WINDOWS * SHORT_WINDOW)?;
        let found = sensitivities(&mut runner()?, &options.policy, target, &windows, &**progress)?;
        options.policy.exact = allocate(&found, target);
    }
    let outcome = match &request.calibration {
        Some(text) => {
            let windows = windows(text, WINDOW, request.calibration_tokens)?;
            let progress = Rc::clone(progress);
            let shown = Box::new(move |done, total| progress(Stage::Calibrating, done as u64, total as u64));
            let mut moments = Moments::new(runner()?, windows, request.memory_bytes, shown);
            let mut at = stage(Stage::Converting);
            convert_calibrated(source, &candidate.0, &options, Some(&mut moments), &mut at)?
        }
        None => convert(source, &candidate.0, &options, &mut stage(Stage::Converting))?,
    };
    let errors = outcome.errors.clone();
    let mut report = match &request.measure {
        Some(text) => {
            let windows = windows(text, WINDOW, request.measure_tokens)?;
            let found = measure(&mut runner()?, &candidate.0, &windows, &**progress)?;
            Some(Report::measured(found, request.floor, text.name().to_owned(), errors))
        }
        None => few.then(|| Report::unmeasured("not asked for".into(), request.floor, errors)),
    };
    if let Some(report) = &mut report {
        report.calibration = request.calibration.as_ref().map(|text| text.name().to_owned());
    }
    install(
        outcome,
        report,
        destination,
        options.replace,
        request.accept_below_floor,
    )
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
