//! How sure an answer is: signals of its tokens, a combiner, a calibrator, and a bound on the errors of what is kept.
//!
//! ```text
//! raw logits ─► TokenSignal ─► Signals (running) ─► features ─► Combiner ─► logit ─► Calibrator ─► P(right)
//! ```
//!
//! Signals come from the raw logits: before penalties, temperature and masks. Of a tool call only the tokens of values count,
//! as braces and keys are always sure. Everything is additions, multiplications and comparisons of `f64` in a fixed order, with
//! `exp`, `log` and `lgamma` of the crate `libm`, so a decision has the same bits on every machine.
//!
//! It knows no model and reads no bundle: whoever has one gives digests ([`Key`]) and stores the [`Section`].

mod bound;
mod calibrate;
mod combine;
mod fit;
mod metrics;
mod section;
mod signals;
#[cfg(test)]
mod tests;

pub use bound::{Certified, certify, errors_allowed, thresholds, upper_bound};
pub use calibrate::Calibrator;
pub use combine::{Combiner, NotFitted};
pub use fit::{CrossValidated, Fit, LEAST, Sample};
pub use metrics::{Case, Floor, Routing, auroc, brier, ece, ece_floor, routing};
pub use section::{Key, Section, SectionError, Uncalibrated};
pub use signals::{FEATURES, Features, Signals, TokenSignal};

/// 1 / (1 + e^-x), without overflow.
#[must_use]
pub fn sigmoid(x: f64) -> f64 {
    let e = libm::exp(-x.abs());
    if x >= 0.0 { 1.0 / (1.0 + e) } else { e / (1.0 + e) }
}

/// The logarithm of the odds of a probability, which is kept away from 0 and 1 by 10⁻⁹.
#[must_use]
pub fn logit(p: f64) -> f64 {
    let p = p.clamp(1e-9, 1.0 - 1e-9);
    libm::log(p) - libm::log(1.0 - p)
}
