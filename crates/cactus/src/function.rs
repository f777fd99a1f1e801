//! Bundles that are functions of arrays.

use cactus_base::{Cores, Pool};
use cactus_bundle::PortDecl;
use cactus_engine::{Bundle, Result};
use cactus_tensor::Tensor;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A component of a bundle as a function: arrays in, arrays out, one whole call at a time. Language models are bundles with a
/// component `decoder`, which gives the logits of every position when it is called so.
///
/// # Examples
/// ```
/// use cactus::{Function, Tensor};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let made = tempfile::tempdir()?;
/// # let folder = made.path().join("bundle");
/// # let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/models/qwen2_tied");
/// # cactus_import::convert(source.as_ref(), &folder, &Default::default(), &mut |_, _| {})?;
/// let function = Function::load(&folder, "decoder", None)?;
/// let ids = Tensor::from_i64([1, 3], vec![5, 6, 7])?;
/// let outputs = function.run([(function.inputs()[0].clone(), ids)])?;
/// assert_eq!(outputs[0].1.shape()[..2], [1, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Function {
    function: cactus_runtime::Function,
    pool: Pool,
    threads: usize,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

impl Function {
    /// Loads the component `name` of the bundle in the folder `path`, to be run by `threads` threads; `None` is one for each fast
    /// core.
    ///
    /// # Errors
    /// Where the bundle is missing or damaged, has no such component, or one that cannot be run here.
    pub fn load(path: &Path, name: &str, threads: Option<usize>) -> Result<Function> {
        let bundle = Arc::new(Bundle::open(path)?);
        let components = &bundle.manifest().components;
        let described = components.iter().find(|component| component.name == name);
        let names = |ports: &[PortDecl]| ports.iter().map(|port| port.name.clone()).collect();
        let (inputs, outputs) = described.map_or_else(Default::default, |c| (names(&c.inputs), names(&c.outputs)));
        let threads = threads.unwrap_or_else(|| Cores::detect().threads()).clamp(1, 1024);
        Ok(Function {
            function: cactus_runtime::Function::new(bundle, name, None)?,
            pool: Pool::new(threads),
            threads,
            inputs,
            outputs,
        })
    }

    /// Names of the inputs, in order.
    #[must_use]
    pub fn inputs(&self) -> &[String] {
        &self.inputs
    }

    /// Names of the outputs, in order.
    #[must_use]
    pub fn outputs(&self) -> &[String] {
        &self.outputs
    }

    /// Computes the outputs, in order, each with its name.
    ///
    /// # Errors
    /// For an input that is missing, unknown, or of another type or shape than the function takes; where numbers overflow a
    /// size.
    pub fn run(&self, inputs: impl IntoIterator<Item = (String, Tensor)>) -> Result<Vec<(String, Tensor)>> {
        let inputs: BTreeMap<String, Tensor> = inputs.into_iter().collect();
        Ok(self.function.run(&self.pool, self.threads, &inputs)?)
    }
}
