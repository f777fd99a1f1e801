//! A component of a bundle as a function of arrays.

use crate::array::{Array, Input};
use crate::{errors, live};
use cactus_base::{Cores, Pool};
use cactus_bundle::Bundle;
use cactus_tensor::{DType, TensorView};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A component that is lowered for this CPU.
#[pyclass(frozen, module = "cactus._native")]
pub(crate) struct Function {
    function: cactus_runtime::Function,
    pool: Pool,
    threads: usize,
}

#[pymethods]
impl Function {
    /// The components of a bundle, as JSON: name, inputs and outputs.
    #[staticmethod]
    fn components(py: Python<'_>, path: PathBuf) -> PyResult<String> {
        let found = live::outside(py, || Ok(Bundle::open(&path)?.manifest().components.clone()));
        let found = found.map_err(|e: cactus_bundle::Error| errors::raise(py, "BundleError", &e.to_string(), &[]))?;
        let found = found
            .iter()
            .map(|c| serde_json::json!({"name": c.name, "inputs": c.inputs, "outputs": c.outputs}));
        Ok(serde_json::Value::from_iter(found).to_string())
    }

    /// Opens the component of a bundle.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, component: String, threads: Option<usize>) -> PyResult<Function> {
        live::check(py)?;
        let threads = threads.unwrap_or_else(|| Cores::detect().threads()).clamp(1, 1024);
        let made = live::outside(py, || {
            let bundle = Bundle::open(&path).map_err(|e| ("BundleError", e.to_string()))?;
            cactus_store::needs_program(&bundle).map_err(|e| ("UnsupportedError", e.to_string()))?;
            Ok(cactus_runtime::Function::new(Arc::new(bundle), &component, None))
        });
        let made = made.map_err(|(class, message): (&str, String)| errors::raise(py, class, &message, &[]))?;
        let function = made.map_err(|e| errors::of_runtime(py, &e))?;
        Ok(Function {
            function,
            pool: Pool::new(threads),
            threads,
        })
    }

    /// Computes the outputs, in order: names and arrays.
    fn run(&self, py: Python<'_>, inputs: BTreeMap<String, Py<Input>>) -> PyResult<Vec<(String, Array)>> {
        live::check(py)?;
        let outputs = live::outside(py, || {
            let graph = self.function.graph();
            let given: Vec<_> = inputs
                .iter()
                .map(|(name, input)| {
                    let wanted = graph.input(name).map_or(DType::F32, |v| graph.ty(v).dtype);
                    (name, input.get().sizes(), input.get().given(wanted))
                })
                .collect();
            let views = given.iter().map(|(name, shape, given)| {
                let wrong = |e: cactus_tensor::Error| cactus_runtime::Error::Argument(format!("input `{name}`: {e}"));
                Ok((
                    (*name).clone(),
                    TensorView::new(shape, given.elements()).map_err(wrong)?,
                ))
            });
            let views = views.collect::<Result<BTreeMap<_, _>, cactus_runtime::Error>>()?;
            self.function.run_views(&self.pool, self.threads, &views)
        });
        let outputs = outputs.map_err(|e| errors::of_runtime(py, &e))?;
        let outputs = outputs.into_iter();
        outputs
            .map(|(name, tensor)| Ok((name, Array::new(py, tensor)?)))
            .collect()
    }
}
