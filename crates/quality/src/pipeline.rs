//! Making a bundle with everything that quality asks for: reference, calibration, allocation, measurement, floor.
//!
//! The source is first made into a bundle of half precision beside the destination, which the result is measured against, and
//! into one of 8 bits, which text is run through to see what reaches each weight: it is as good as the source for that, and
//! more than twice as fast. Both are removed at the end. The bundle itself is moved into place last, so a conversion that
//! fails, or ends below the floor, leaves the destination as it was.

use crate::finish::{Temporary, install};
use crate::trial::{Trial, trial};
use crate::{Error, Floor, Moments, Report, Result, Text, allocate};
use cactus_bundle::Bundle;
use cactus_import::{Calibration, ConvertOptions, Outcome, Stop, convert_calibrated};
use cactus_passes::{Bits, Policy};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

/// Tokens of a window to calibrate with and to measure on; of fewer, where the model has no longer context.
pub const WINDOW: usize = 512;
/// Tokens of a window that sensitivity is measured on.
pub(crate) const SHORT_WINDOW: usize = 192;
/// Windows that sensitivity is measured on.
pub(crate) const SHORT_WINDOWS: usize = 2;

/// Whether text is run through the source first, so that the errors of weights below 8 bits are fed back.
#[derive(Clone, Debug, Default)]
pub enum Calibrate {
    /// It is not.
    #[default]
    No,
    /// Ours, where text can be run through the source.
    BuiltIn,
    /// This one.
    With(Text),
}

/// What a conversion is asked for beside [`ConvertOptions`].
#[derive(Clone, Debug)]
pub struct Request {
    /// Average bits that an allocation may spend; the policy's bits are ignored then, its rules hold.
    pub average_bits: Option<f64>,
    /// Whether and with what to calibrate.
    pub calibrate: Calibrate,
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
            calibrate: Calibrate::No,
            calibration_tokens: 16_384,
            measure: None,
            measure_tokens: 4096,
            floor: Floor::default(),
            accept_below_floor: false,
            memory_bytes: 896 << 20,
        }
    }
}

/// What a conversion is doing.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Making the bundles that are run and compared with; elements.
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

/// Gets the stage and how far it is.
pub type Progress = Rc<dyn Fn(Stage, u64, u64)>;

/// Converts the model at `source` into a bundle at `destination` as `options` and `request` say.
///
/// # Errors
/// What is wrong with source or texts; [`crate::ErrorKind::Floor`] for a bundle below the floor. The destination is then as
/// it was.
pub fn convert_measured(
    source: &Path,
    destination: &Path,
    options: &ConvertOptions,
    request: &Request,
    progress: &Progress,
) -> Result<Made> {
    cactus_bundle::check_destination(destination, options.replace)?;
    let make = |weights: Weights<'_>, to: &Path, calibration: Option<&mut dyn Calibration>, stage: Stage| {
        let mut options = ConvertOptions {
            replace: true,
            ..options.clone()
        };
        match weights {
            Weights::Half => (options.policy, options.widen) = (Policy::uniform(Bits::Sixteen), true),
            Weights::Eight => options.policy = Policy::uniform(Bits::Eight),
            Weights::Asked(exact) => options.policy.exact.clone_from(exact),
        }
        let mut at = |done, total| progress(stage, done, total);
        convert_calibrated(source, to, &options, calibration, &mut at)
    };
    let job = Job {
        make: &make,
        trial: &trial,
        never: None,
        policy: &options.policy,
        few: options.policy.least() < Bits::Eight || request.average_bits.is_some(),
        threads: options.threads,
        destination,
        replace: options.replace,
        stop: options.stop.clone(),
    };
    job.run(request, progress)
}

/// What a bundle on the way holds.
pub(crate) enum Weights<'a> {
    /// Half precision, or single where half cannot hold a value.
    Half,
    /// 8 bits.
    Eight,
    /// What was asked for, with these bits of single weights.
    Asked(&'a BTreeMap<String, Bits>),
}

/// Makes a bundle of the source at a path, which may be replaced.
type Make<'a> = dyn Fn(Weights<'_>, &Path, Option<&mut dyn Calibration>, Stage) -> cactus_import::Result<Outcome> + 'a;

/// Finds out how text is run through bundles.
type Try<'a> = dyn Fn(&Path, usize) -> Result<Result<Box<dyn Trial>, String>> + 'a;

/// A source, and how it becomes a bundle.
pub(crate) struct Job<'a> {
    pub(crate) make: &'a Make<'a>,
    /// How text is run through bundles of the source, like the one at a path, on so many threads; or why it cannot be.
    pub(crate) trial: &'a Try<'a>,
    /// Why it cannot, where that is known before.
    pub(crate) never: Option<&'a str>,
    pub(crate) policy: &'a Policy,
    /// Whether weights have fewer than 8 bits.
    pub(crate) few: bool,
    pub(crate) threads: Option<usize>,
    pub(crate) destination: &'a Path,
    pub(crate) replace: bool,
    /// Ends it early.
    pub(crate) stop: Stop,
}

impl Job<'_> {
    pub(crate) fn run(&self, request: &Request, progress: &Progress) -> Result<Made> {
        let calibrate = if self.few {
            request.calibrate.clone()
        } else {
            Calibrate::No
        };
        let half = request.measure.is_some() || request.average_bits.is_some();
        if !half && matches!(calibrate, Calibrate::No) {
            return self.plain(request, "not asked for");
        }
        if let Some(why) = self.never {
            return self.without_text(request, &calibrate, why);
        }
        let reference = Temporary::beside(self.destination, "reference")?;
        let observed = Temporary::beside(self.destination, "observed")?;
        let first = if half { &reference.0 } else { &observed.0 };
        let weights = if half { Weights::Half } else { Weights::Eight };
        (self.make)(weights, first, None, Stage::Reference)?;
        let threads = self.threads.unwrap_or_else(|| cactus_base::Cores::detect().threads());
        let trial = match (self.trial)(first, threads)? {
            Ok(trial) => trial,
            Err(why) => return self.without_text(request, &calibrate, &why),
        };
        let text = match calibrate {
            Calibrate::No => None,
            Calibrate::BuiltIn => Some(Text::built_in_calibration()),
            Calibrate::With(text) => Some(text),
        };
        let mut exact = self.policy.exact.clone();
        if let Some(target) = request.average_bits {
            let ours = Text::built_in_calibration();
            let text = text.as_ref().unwrap_or(&ours);
            // Measured near the precisions that it will be about.
            let bits = if target < 3.0 { 2 } else { 3 };
            let found = trial.sensitivities(&reference.0, self.policy, bits, text, &**progress)?;
            exact = allocate(&found, target);
        }
        let candidate = Temporary::beside(self.destination, "measured")?;
        let asked = Weights::Asked(&exact);
        let outcome = match &text {
            Some(text) => {
                if half {
                    (self.make)(Weights::Eight, &observed.0, None, Stage::Reference)?;
                }
                let shown = Rc::clone(progress);
                let stop = self.stop.clone();
                let shown = Box::new(move |done, total| {
                    shown(Stage::Calibrating, done as u64, total as u64);
                    Ok(stop.check()?)
                });
                let source = trial.source(&observed.0, text, request.calibration_tokens)?;
                let mut moments = Moments::new(source, request.memory_bytes, shown)?;
                (self.make)(asked, &candidate.0, Some(&mut moments), Stage::Converting)?
            }
            None => (self.make)(asked, &candidate.0, None, Stage::Converting)?,
        };
        drop(observed);
        let errors = outcome.errors.clone();
        let mut report = match &request.measure {
            Some(text) => {
                let text_and_tokens = (text, request.measure_tokens);
                let found = trial.measure(&reference.0, &candidate.0, text_and_tokens, &**progress, &self.stop)?;
                Some(Report::measured(found, request.floor, text.name().to_owned(), errors))
            }
            None => self
                .few
                .then(|| Report::unmeasured("not asked for".into(), request.floor, errors)),
        };
        if let Some(report) = &mut report {
            report.calibration = text.map(|text| text.name().to_owned());
        }
        let accept = request.accept_below_floor;
        install(outcome, report, self.destination, self.replace, accept)
    }

    /// The bundle of a model that no text can be run through, where none has to be.
    fn without_text(&self, request: &Request, calibrate: &Calibrate, why: &str) -> Result<Made> {
        if request.average_bits.is_some() || matches!(calibrate, Calibrate::With(_)) {
            let what = format!("text cannot be run through the model, which calibration needs: {why}");
            return Err(Error::Text(what));
        }
        let mut made = self.plain(request, why)?;
        let what = match (calibrate, &request.measure) {
            (Calibrate::No, _) => "the quality was not measured",
            (_, None) => "the model was not calibrated",
            _ => "the model was neither calibrated nor measured",
        };
        made.outcome.notes.push(format!("{what}: {why}"));
        Ok(made)
    }

    /// The bundle without a text, and why no more is known of it.
    fn plain(&self, request: &Request, why: &str) -> Result<Made> {
        let candidate = Temporary::beside(self.destination, "measured")?;
        let asked = Weights::Asked(&self.policy.exact);
        let outcome = (self.make)(asked, &candidate.0, None, Stage::Converting)?;
        let report = self
            .few
            .then(|| Report::unmeasured(why.into(), request.floor, outcome.errors.clone()));
        install(outcome, report, self.destination, self.replace, true)
    }
}

/// The matrices of a bundle that text reaches, as `reads` says, and no rule says anything of, in the order of its file.
pub(crate) fn open_matrices(bundle: &Bundle, policy: &Policy, mut reads: impl FnMut(&str) -> bool) -> Vec<String> {
    let mut open: Vec<(u64, String)> = bundle
        .weights()
        .iter()
        .filter(|(name, w)| w.dims.len() == 2 && w.dims[1].is_multiple_of(32) && !policy.has_rule(name))
        .filter(|(name, w)| w.packing != cactus_quant::Packing::RowMajor.name() && reads(name))
        .map(|(name, w)| (w.offset, name.clone()))
        .collect();
    open.sort();
    open.into_iter().map(|(_, name)| name).collect()
}
