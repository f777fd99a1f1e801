//! Running a bundle that is a plain function: arrays from files, arrays to files.

use crate::args::RunArgs;
use crate::{npy, output};
use anyhow::{Context, Result, bail};
use cactus_base::Pool;
use cactus_engine::Bundle;
use cactus_runtime::Function;
use cactus_tensor::Tensor;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Whether a bundle is a plain function.
pub(crate) fn is_function(bundle: &Bundle) -> bool {
    bundle.component("decoder").is_err()
}

pub(crate) fn run(bundle: Bundle, args: &RunArgs) -> Result<()> {
    let bundle = Arc::new(bundle);
    let [component] = &bundle.manifest().components[..] else {
        bail!("the bundle has several components; only one can be run");
    };
    if args.prompt.is_some() {
        bail!("the bundle is a function, which takes arrays: `--input NAME=FILE.npy`");
    }
    let function = Function::new(Arc::clone(&bundle), &component.name, None)?;
    let mut inputs: BTreeMap<String, Tensor> = BTreeMap::new();
    if let Some(ids) = &args.input_ids {
        let Some(first) = component.inputs.first() else {
            bail!("the function takes no input");
        };
        let ids: Vec<i64> = ids.iter().map(|&i| i.into()).collect();
        inputs.insert(first.name.clone(), Tensor::from_i64([1, ids.len()], ids)?);
    }
    for input in &args.input {
        let Some((name, path)) = input.split_once('=') else {
            bail!("`{input}` is no input; write `--input NAME=FILE.npy`, where NAME may be a position");
        };
        let by_position = name.parse::<usize>().ok().and_then(|i| component.inputs.get(i));
        let name = by_position.map_or(name, |port| &port.name);
        inputs.insert(name.to_owned(), npy::read(Path::new(path))?);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.engine.threads.map_or(cores, usize::from);
    let pool = Pool::new(threads);
    let start = Instant::now();
    let outputs = function.run(&pool, threads, &inputs)?;
    let seconds = start.elapsed().as_secs_f64();
    let mut described = Vec::new();
    for (i, (name, tensor)) in outputs.iter().enumerate() {
        let mut entry = json!({"name": name, "dtype": tensor.dtype().name(), "shape": tensor.shape()});
        if let Some(folder) = &args.output_dir {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
            let bytes = npy::encode(tensor);
            for stem in [name.clone(), i.to_string()] {
                let path = folder.join(format!("{stem}.npy"));
                std::fs::write(&path, &bytes).with_context(|| format!("cannot write `{}`", path.display()))?;
            }
            entry["file"] = json!(format!("{name}.npy"));
        }
        described.push(entry);
        if !args.json {
            output::line(format!("{name}: {}{:?}", tensor.dtype(), tensor.shape()));
        }
    }
    let result = json!({"outputs": described, "total_time_ms": seconds * 1e3});
    if let Some(path) = &args.result_json {
        let bytes = serde_json::to_vec_pretty(&result)?;
        std::fs::write(path, bytes).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    if args.json {
        output::json(&result)?;
    }
    Ok(())
}
