//! What reaches each weight, collected by running text through a bundle, and the encoding that makes use of it.

use crate::{Error, Result, Source};
use cactus_import::Calibration;
use cactus_kernels::feedback::{Curvature, SecondMoments};
use cactus_kernels::{Exec, Kernels};
use cactus_quant::{Packed, Packing};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

/// Second moments on demand, in the order in which a conversion asks for them. Text is run once for as many weights as the
/// memory allows, and again for the next ones.
pub struct Moments {
    source: Box<dyn Source>,
    budget_bytes: usize,
    kernels: &'static Kernels,
    /// Matrices of the bundle that will be asked for, in the order of its file: name and inputs.
    order: Vec<(String, usize)>,
    held: HashMap<String, SecondMoments>,
    /// Matrices that no text reaches, such as those of a component for something else.
    unreached: HashSet<String>,
    /// Of the weight that is packed next.
    curvature: Option<Curvature>,
    progress: Progress,
}

/// Gets the texts done and in all, of the run under way.
type Progress = Box<dyn FnMut(usize, usize) -> Result<()>>;

impl std::fmt::Debug for Moments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Moments")
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

impl Moments {
    /// Moments of the weights of a bundle, which must hold them in floats or in 8 bits, over the texts of `source`. At most
    /// `budget_bytes` are held at a time, or one matrix.
    ///
    /// # Errors
    /// Where the CPU lacks the kernels that were asked for.
    pub fn new(source: Box<dyn Source>, budget_bytes: usize, progress: Progress) -> Result<Self> {
        let mut order: Vec<_> = source
            .bundle()
            .weights()
            .iter()
            .filter(|(_, w)| w.dims.len() == 2)
            .map(|(name, w)| (w.offset, (name.clone(), w.dims[1])))
            .collect();
        order.sort();
        Ok(Self {
            source,
            budget_bytes,
            kernels: Kernels::detect().map_err(cactus_runtime::Error::from)?,
            order: order.into_iter().map(|(_, weight)| weight).collect(),
            held: HashMap::new(),
            unreached: HashSet::new(),
            curvature: None,
            progress,
        })
    }

    /// Collects the moments of `name` and of those that will be asked for next.
    fn collect(&mut self, name: &str) -> Result<()> {
        let Some(at) = self.order.iter().position(|(n, _)| n == name) else {
            return Ok(());
        };
        self.held.clear();
        let mut bytes = 0usize;
        let mut wanted: HashMap<String, SecondMoments> = HashMap::new();
        let open = |(name, _): &&(String, usize)| !self.unreached.contains(name);
        for (name, k) in self.order[at..].iter().filter(open) {
            bytes = bytes.saturating_add(SecondMoments::bytes(*k));
            if !wanted.is_empty() && bytes > self.budget_bytes {
                break;
            }
            wanted.insert(name.clone(), SecondMoments::new(*k));
        }
        let count = self.source.texts();
        // Every text shows as many inputs as the first; after the last of them the rest of the model is not wanted.
        let mut all = usize::MAX;
        for text in 0..count {
            let mut shown = 0;
            self.source.observe(text, &mut |seen| {
                if let Some(sums) = wanted.get_mut(seen.weight).filter(|sums| sums.k() == seen.k) {
                    seen.exec.add_second_moments(seen.input, sums);
                    shown += 1;
                }
                match shown < all {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            })?;
            all = shown;
            (self.progress)(text + 1, count)?;
        }
        self.unreached
            .extend(wanted.extract_if(|_, sums| sums.seen() == 0).map(|(name, _)| name));
        self.held = wanted;
        Ok(())
    }
}

impl Calibration for Moments {
    fn expect(&mut self, names: Vec<String>) {
        let names: HashSet<String> = names.into_iter().collect();
        self.order.retain(|(name, _)| names.contains(name));
    }

    fn prepare(&mut self, name: &str, k: usize) -> cactus_import::Result<bool> {
        self.curvature = None;
        if !self.held.contains_key(name) && !self.unreached.contains(name) {
            self.collect(name).map_err(|e| match e {
                Error::Convert(stopped) => stopped,
                e => {
                    let what = format!("cannot collect the inputs of the weight: {e}");
                    cactus_import::Error::new(cactus_import::ErrorKind::Unsupported, what).of_tensor(name)
                }
            })?;
        }
        if let Some(moments) = self.held.remove(name).filter(|m| m.k() == k) {
            let (pool, threads) = self.source.pool();
            let step = pool.step(threads);
            let exec = Exec {
                kernels: self.kernels,
                step: &step,
            };
            self.curvature = Some(exec.curvature(&moments));
        }
        Ok(self.curvature.is_some())
    }

    fn pack(&mut self, packing: Packing, [n, k]: [usize; 2], values: &[f32]) -> cactus_quant::Result<Packed> {
        let (pool, threads) = self.source.pool();
        let Some(curvature) = &self.curvature else {
            return cactus_quant::pack_on(packing, n, k, values, threads);
        };
        let step = pool.step(threads);
        let exec = Exec {
            kernels: self.kernels,
            step: &step,
        };
        exec.pack_with_feedback(packing, [n, k], values, curvature)
    }
}
