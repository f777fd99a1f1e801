use cactus_base::Joins;
use std::time::Duration;

/// Time spent for each step of a program, summed over calls.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    pub(crate) nanos: Vec<u64>,
    pub(crate) calls: Vec<u64>,
    pub(crate) joins: Joins,
}

/// One line of a profile.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ProfileRow {
    /// Module path and kernel, such as `layers.3.mlp/linear [3072, 576] int8`.
    pub label: String,
    /// Kind of step, such as `linear`.
    pub kind: &'static str,
    /// Number of times it ran.
    pub calls: u64,
    /// Total time in microseconds.
    pub total_us: f64,
}

impl Profile {
    pub(crate) fn new(steps: usize) -> Self {
        Profile {
            nanos: vec![0; steps],
            calls: vec![0; steps],
            joins: Joins::default(),
        }
    }

    /// How long the runs of kernels on several threads waited for their last part.
    pub fn joins(&self) -> &Joins {
        &self.joins
    }

    pub(crate) fn add(&mut self, step: usize, time: Duration) {
        self.nanos[step] += u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.calls[step] += 1;
    }
}
