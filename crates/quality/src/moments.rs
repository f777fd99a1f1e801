//! The second moments of what reaches each weight, collected by running text through a bundle.

use crate::{Result, Runner, Windows};
use cactus_import::Calibration;
use cactus_kernels::{Activations, Epilogue, Exec, Kernels};
use cactus_quant::cq::Curvature;
use cactus_quant::{Packing, pack};
use std::collections::HashMap;
use std::sync::Arc;

/// Rows gathered before they are multiplied.
const ROWS: usize = 128;

/// Second moments on demand, in the order in which a conversion asks for them. Text is run once for as many weights as the
/// memory allows, and again for the next ones.
#[derive(Debug)]
pub struct Moments {
    runner: Runner,
    windows: Windows,
    budget_bytes: usize,
    /// Matrices of the bundle that are multiplied, in the order of its file: name and inputs.
    order: Vec<(String, usize)>,
    held: HashMap<String, Vec<f32>>,
    progress: Progress,
}

/// Gets the windows done and in all, of the run under way.
type ProgressFn = Box<dyn FnMut(usize, usize)>;

struct Progress(ProgressFn);

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Progress")
    }
}

impl Moments {
    /// Moments of the weights of the bundle behind `runner`, which must hold them in floats, over `windows`. At most
    /// `budget_bytes` are held at a time, or one matrix.
    #[must_use]
    pub fn new(runner: Runner, windows: Windows, budget_bytes: usize, progress: ProgressFn) -> Self {
        let mut order: Vec<_> = runner
            .bundle()
            .weights()
            .iter()
            .filter(|(_, w)| w.dims.len() == 2)
            .map(|(name, w)| (w.offset, (name.clone(), w.dims[1])))
            .collect();
        order.sort();
        Self {
            runner,
            windows,
            budget_bytes,
            order: order.into_iter().map(|(_, weight)| weight).collect(),
            held: HashMap::new(),
            progress: Progress(progress),
        }
    }

    /// Collects the moments of `name` and of those that will be asked for next.
    fn collect(&mut self, name: &str) -> Result<()> {
        let Some(at) = self.order.iter().position(|(n, _)| n == name) else {
            return Ok(());
        };
        self.held.clear();
        let mut bytes = 0usize;
        let mut wanted: HashMap<String, Sum> = HashMap::new();
        for (name, k) in &self.order[at..] {
            bytes = bytes.saturating_add(k.saturating_mul(*k).saturating_mul(4));
            if !wanted.is_empty() && bytes > self.budget_bytes {
                break;
            }
            wanted.insert(name.clone(), Sum::new(*k));
        }
        let count = self.windows.iter().len();
        let kernels = Kernels::detect().map_err(cactus_runtime::Error::from)?;
        for (done, window) in self.windows.iter().enumerate() {
            let mut ready: Vec<(String, Vec<f32>)> = Vec::new();
            self.runner.observe(window, &mut |seen| {
                if let Some(sum) = wanted.get_mut(seen.weight) {
                    sum.rows.extend_from_slice(seen.input);
                    if sum.rows.len() >= ROWS * sum.k {
                        ready.push((seen.weight.to_owned(), std::mem::take(&mut sum.rows)));
                    }
                }
            })?;
            // Not while the runner's own threads are at work.
            let step = self.runner.pool().step(self.runner.threads());
            let exec = Exec { kernels, step: &step };
            for (name, rows) in ready {
                if let Some(sum) = wanted.get_mut(&name) {
                    sum.add(exec, &rows)?;
                }
            }
            self.progress.0(done + 1, count);
        }
        let step = self.runner.pool().step(self.runner.threads());
        let exec = Exec { kernels, step: &step };
        for (name, mut sum) in wanted {
            let rest = std::mem::take(&mut sum.rows);
            sum.add(exec, &rest)?;
            if sum.seen > 0 {
                self.held.insert(name, sum.moments);
            }
        }
        Ok(())
    }
}

impl Calibration for Moments {
    fn curvature(&mut self, name: &str, k: usize) -> cactus_import::Result<Option<Arc<Curvature>>> {
        if !self.held.contains_key(name) {
            self.collect(name).map_err(|e| {
                let what = format!("cannot collect the inputs of the weight: {e}");
                cactus_import::Error::new(cactus_import::ErrorKind::Unsupported, what).of_tensor(name)
            })?;
        }
        let moments = self.held.remove(name).filter(|m| m.len() == k * k);
        Ok(moments.map(|m| Arc::new(Curvature::new(k, &m, self.runner.threads()))))
    }
}

/// The second moments of one weight's inputs as they grow.
struct Sum {
    k: usize,
    /// `[k, k]`, allocated with the first rows.
    moments: Vec<f32>,
    /// Inputs not yet multiplied.
    rows: Vec<f32>,
    seen: usize,
}

impl Sum {
    fn new(k: usize) -> Self {
        Self {
            k,
            moments: Vec::new(),
            rows: Vec::new(),
            seen: 0,
        }
    }

    /// Adds `xᵀ x` of rows `x [rows, k]`, by the kernel that multiplies weights.
    fn add(&mut self, exec: Exec<'_>, x: &[f32]) -> Result<()> {
        let (k, rows) = (self.k, x.len() / self.k.max(1));
        if rows == 0 {
            return Ok(());
        }
        self.moments.resize(k * k, 0.0);
        let mut transposed = vec![0f32; x.len()];
        for (r, row) in x.chunks_exact(k).enumerate() {
            for (i, &x) in row.iter().enumerate() {
                // What is not finite would spoil everything that was seen.
                transposed[i * rows + r] = if x.is_finite() { x } else { 0.0 };
            }
        }
        let packed = pack(Packing::F32N16, k, rows, &transposed).map_err(|source| crate::Error::Pack {
            weight: "activations".into(),
            source,
        })?;
        let epilogue = Epilogue {
            bias: None,
            accumulate: true,
        };
        exec.linear(
            &packed.view(),
            Activations::F32(&transposed),
            k,
            epilogue,
            &mut self.moments,
        );
        self.seen += rows;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cactus_base::Step;

    #[test]
    fn sums_are_second_moments() {
        let k = 19;
        let x: Vec<f32> = (0..7 * k).map(|i| ((i * 37 % 23) as f32 - 11.0) / 4.0).collect();
        let mut sum = Sum::new(k);
        for kernels in Kernels::available() {
            let exec = Exec {
                kernels,
                step: &Step::inline(),
            };
            sum = Sum::new(k);
            sum.add(exec, &x[..3 * k]).unwrap();
            sum.add(exec, &x[3 * k..]).unwrap();
        }
        assert_eq!(sum.seen, 7);
        for i in 0..k {
            for j in 0..k {
                let exact: f32 = x.chunks_exact(k).map(|row| row[i] * row[j]).sum();
                assert!((sum.moments[i * k + j] - exact).abs() < 1e-3);
            }
        }
    }
}
