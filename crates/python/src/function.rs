//! A component of a bundle as a function of arrays.
//!
//! Arrays go in and out as bytes, which NumPy reads in place: an input is copied once, into the runtime's tensor, and an output
//! once, out of it. (The buffer protocol, which would spare the copies, is not in the stable ABI of Python 3.10.)

use crate::{errors, live};
use cactus_base::{Cores, Pool};
use cactus_bundle::Bundle;
use cactus_tensor::{DType, Data, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Name, type, shape and elements, little-endian and row-major.
type Array<'py> = (String, &'static str, Vec<usize>, Bound<'py, PyBytes>);

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

    /// Computes the outputs, in order. An input is its type, its shape and its elements.
    fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: BTreeMap<String, (String, Vec<usize>, Vec<u8>)>,
    ) -> PyResult<Vec<Array<'py>>> {
        live::check(py)?;
        let outputs = live::outside(py, || {
            let tensors = inputs.into_iter().map(|(name, (dtype, shape, bytes))| {
                let wrong = |e: String| cactus_runtime::Error::Argument(format!("input `{name}`: {e}"));
                let dtype = DType::from_name(&dtype).ok_or_else(|| wrong(format!("there is no type `{dtype}`")))?;
                let tensor = Tensor::from_le_bytes(shape, dtype, &bytes).map_err(|e| wrong(e.to_string()))?;
                Ok((name, tensor))
            });
            let tensors = tensors.collect::<Result<BTreeMap<_, _>, cactus_runtime::Error>>()?;
            self.function.run(&self.pool, self.threads, &tensors)
        });
        let outputs = outputs.map_err(|e| errors::of_runtime(py, &e))?;
        let arrays = outputs.into_iter().map(|(name, tensor)| {
            let (shape, data) = tensor.into_parts();
            let (dtype, bytes) = bytes(py, &data)?;
            Ok((name, dtype, shape, bytes))
        });
        arrays.collect()
    }
}

fn bytes<'py>(py: Python<'py>, data: &Data) -> PyResult<(&'static str, Bound<'py, PyBytes>)> {
    fn filled<'py, const N: usize, T>(
        py: Python<'py>,
        from: &[T],
        f: impl Fn(&T) -> [u8; N],
    ) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, from.len() * N, |to| {
            for (to, from) in to.as_chunks_mut::<N>().0.iter_mut().zip(from) {
                *to = f(from);
            }
            Ok(())
        })
    }
    Ok(match data {
        Data::F32(v) => ("f32", filled(py, v, |x| x.to_le_bytes())?),
        Data::I64(v) => ("i64", filled(py, v, |x| x.to_le_bytes())?),
        Data::Bool(v) => ("bool", filled(py, v, |&x| [u8::from(x)])?),
        _ => {
            return Err(errors::raise(
                py,
                "UnsupportedError",
                "an output has a type that Python does not get",
                &[],
            ));
        }
    })
}
