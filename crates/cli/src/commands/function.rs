//! Running a bundle as a plain function: arrays from files, arrays to files. A language model is one, too, of whole
//! sequences.

use crate::args::RunArgs;
use crate::commands::function_bench;
use crate::{model, npy, output};
use anyhow::{Context, Result, bail};
use cactus_base::Pool;
use cactus_bundle::Component;
use cactus_engine::{Bundle, CancelToken, GenerateOptions, Recompute};
use cactus_runtime::{Function, TokenFunction};
use cactus_tensor::{DType, Tensor};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Whether a bundle is made of plain functions.
pub(crate) fn is_function(bundle: &Bundle) -> bool {
    bundle.component("decoder").map_or(true, |c| c.states.is_empty())
}

pub(crate) fn run(bundle: Arc<Bundle>, args: &RunArgs) -> Result<()> {
    model::needs_program(&bundle)?;
    if args.prompt.is_some() {
        if !is_function(&bundle) && args.component.is_some() {
            bail!(
                "`--component` runs one component on arrays, `--input NAME=FILE.npy`, or on token ids, `--input-ids`, and \
                 takes no prompt; leave it out to answer the prompt"
            );
        }
        bail!("a function takes arrays, `--input NAME=FILE.npy`, or token ids, `--input-ids`, and no prompt");
    }
    if args.max_new_tokens.is_some() {
        bail!(
            "`--max-new-tokens` generates from `--input-ids`; `--input`, `--output-dir` and `--component` compute the \
             outputs for all that is given, in one call. Leave one of them out"
        );
    }
    let components = chosen(&bundle, args.component.as_deref())?;
    let mut values = inputs(&components, args)?;
    let threads = model::threads(args.engine.threads);
    let pool = Pool::new(threads);
    let mut described = Vec::new();
    let mut seconds = 0.0;
    for component in &components {
        let function = Function::new(Arc::clone(&bundle), &component.name, None)?;
        let own: BTreeMap<String, Tensor> = component
            .inputs
            .iter()
            .filter_map(|port| Some((port.name.clone(), values.get(&port.name)?.clone())))
            .collect();
        let start = Instant::now();
        let outputs = function
            .run(&pool, threads, &own)
            .with_context(|| format!("in component `{}`", component.name))?;
        seconds += start.elapsed().as_secs_f64();
        for (name, tensor) in outputs {
            let position = described.len();
            let mut entry = json!({"name": name, "dtype": tensor.dtype().name(), "shape": tensor.shape()});
            if components.len() > 1 {
                entry["component"] = json!(component.name);
            }
            if let Some(folder) = &args.output_dir {
                entry["file"] = json!(write(folder, &name, position, &tensor)?);
            }
            described.push(entry);
            if !args.json {
                output::line(format!("{name}: {}{:?}", tensor.dtype(), tensor.shape()));
            }
            values.insert(name, tensor);
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

/// The input of a model with states that takes token ids.
pub(crate) fn ids_of(bundle: &Bundle) -> Option<&str> {
    let ports = &bundle.component("decoder").ok()?.inputs;
    let ids = ports.iter().find(|port| port.ty.dtype == DType::I64);
    ids.map(|port| port.name.as_str())
}

/// Whether an `--input` is the token ids of a model with states: then it is computed as the function that it was captured
/// from.
pub(crate) fn gives_ids(bundle: &Bundle, args: &RunArgs) -> bool {
    let Ok(component) = bundle.component("decoder") else {
        return false;
    };
    let ids = ids_of(bundle);
    args.input.iter().any(|input| {
        let name = input.split_once('=').map_or("", |(name, _)| name);
        let by_position = name.parse::<usize>().ok().and_then(|i| component.inputs.get(i));
        ids.is_some() && by_position.map_or(Some(name), |port| Some(port.name.as_str())) == ids
    })
}

/// Continues token ids with a bundle that has no states.
pub(crate) fn generate(bundle: Arc<Bundle>, args: &RunArgs, options: &GenerateOptions) -> Result<ExitCode> {
    model::needs_program(&bundle)?;
    let components = chosen(&bundle, args.component.as_deref())?;
    let [component] = components[..] else {
        let names: Vec<&str> = components.iter().map(|c| c.name.as_str()).collect();
        bail!(
            "the bundle has several components ({}), which do not generate together; name one with `--component`",
            names.join(", ")
        );
    };
    let function = Function::new(Arc::clone(&bundle), &component.name, None)?;
    let function = TokenFunction::new(function).with_context(|| format!("in component `{}`", component.name))?;
    output::note("the bundle has no states, so the whole sequence is computed again for each token");
    let threads = model::threads(args.engine.threads);
    let pool = Pool::new(threads);
    let eos = &bundle.manifest().tokens.eos;
    let prompt = args.input_ids.as_deref().unwrap_or_default();
    let completion = Recompute::new(function).generate((&pool, threads), prompt, options, eos, &CancelToken::new())?;
    super::run::show_ids(args, &completion)?;
    Ok(ExitCode::SUCCESS)
}

/// The components to run, in order.
pub(crate) fn chosen<'a>(bundle: &'a Bundle, name: Option<&str>) -> Result<Vec<&'a Component>> {
    let all = &bundle.manifest().components;
    match name {
        None => Ok(all.iter().collect()),
        Some(name) => match all.iter().find(|c| c.name == name) {
            Some(component) => Ok(vec![component]),
            None => {
                let names: Vec<&str> = all.iter().map(|c| c.name.as_str()).collect();
                bail!("the bundle has no component `{name}`; it has {}", names.join(", "))
            }
        },
    }
}

/// What a decoder reads beside token ids, by name or position.
pub(crate) fn given(names: &[String], inputs: &[String]) -> Result<BTreeMap<String, Tensor>> {
    let open: Vec<&str> = names.iter().map(String::as_str).collect();
    inputs.iter().map(|input| array(input, &open)).collect()
}

/// The arrays that were given, by name; a position counts those inputs that no component before computes.
fn inputs(components: &[&Component], args: &RunArgs) -> Result<BTreeMap<String, Tensor>> {
    let mut open: Vec<&str> = Vec::new();
    let mut computed: Vec<&str> = Vec::new();
    for component in components {
        for port in &component.inputs {
            if !computed.contains(&port.name.as_str()) && !open.contains(&port.name.as_str()) {
                open.push(&port.name);
            }
        }
        computed.extend(component.outputs.iter().map(|port| port.name.as_str()));
    }
    let mut inputs = BTreeMap::new();
    if let Some(ids) = &args.input_ids {
        let of_ids = |name: &&&str| name.ends_with("input_ids");
        let Some(name) = open.iter().find(of_ids).or(open.first()) else {
            bail!("`--input-ids` was given, but the function has no inputs");
        };
        let ids: Vec<i64> = ids.iter().map(|&i| i.into()).collect();
        inputs.insert((*name).to_owned(), Tensor::from_i64([1, ids.len()], ids)?);
    }
    for input in &args.input {
        inputs.extend([array(input, &open)?]);
    }
    if inputs.is_empty() && !open.is_empty() {
        let given: Vec<String> = open.iter().map(|n| format!("--input {n}={n}.npy")).collect();
        let types = components
            .iter()
            .flat_map(|c| &c.inputs)
            .filter(|p| open.contains(&p.name.as_str()));
        let types: Vec<String> = types.map(|p| format!("{} is {}", p.name, p.ty)).collect();
        bail!(
            "arrays are expected as inputs: {} ({})",
            given.join(" "),
            types.join(", ")
        );
    }
    Ok(inputs)
}

/// Every component on made-up inputs, those of a chain on what came out before: outputs with shape, least, largest and mean.
pub(crate) fn execute(bundle: &Arc<Bundle>) -> Result<serde_json::Value> {
    let threads = model::threads(None);
    let pool = Pool::new(threads);
    let mut values: BTreeMap<String, Tensor> = BTreeMap::new();
    let mut components = Vec::new();
    for component in &bundle.manifest().components {
        let function = Function::new(Arc::clone(bundle), &component.name, None)?;
        let (mut inputs, made_up) = function_bench::any_inputs(&function, &values)?;
        let outputs = function
            .run(&pool, threads, &inputs)
            .with_context(|| format!("in component `{}`", component.name))?;
        let rows: Vec<serde_json::Value> = outputs.iter().map(|(name, t)| described(name, t)).collect();
        let given: BTreeMap<&String, &[usize]> = inputs.iter().map(|(n, t)| (n, t.shape())).collect();
        components.push(json!({
            "name": component.name, "inputs": given, "made_up_inputs": made_up, "outputs": rows,
        }));
        values.append(&mut inputs);
        values.extend(outputs);
    }
    Ok(components.into())
}

fn described(name: &str, tensor: &Tensor) -> serde_json::Value {
    let mut row = json!({"name": name, "dtype": tensor.dtype().name(), "shape": tensor.shape()});
    if let Ok(v) = tensor.as_f32()
        && !v.is_empty()
    {
        let least = v.iter().copied().fold(f32::INFINITY, f32::min);
        let most = v.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mean = v.iter().map(|&x| f64::from(x)).sum::<f64>() / v.len() as f64;
        row["least"] = json!(least);
        row["largest"] = json!(most);
        row["mean"] = json!(mean);
    }
    row
}

/// `NAME=FILE.npy`, where the name may be a position in `open`.
fn array(input: &str, open: &[&str]) -> Result<(String, Tensor)> {
    let Some((name, path)) = input.split_once('=') else {
        bail!("expected `--input NAME=FILE.npy`, where NAME is a name or a position; found `{input}`");
    };
    let by_position = name.parse::<usize>().ok().and_then(|i| open.get(i).copied());
    let name = by_position.unwrap_or(name);
    if !open.contains(&name) {
        bail!("there is no input `{name}`; the inputs are {}", open.join(", "));
    }
    Ok((name.to_owned(), npy::read(Path::new(path))?))
}

/// Writes an output by name and by position; gives the name of the file.
fn write(folder: &Path, name: &str, position: usize, tensor: &Tensor) -> Result<String> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    let bytes = npy::encode(tensor)?;
    for stem in [name.to_owned(), position.to_string()] {
        let path = folder.join(format!("{stem}.npy"));
        std::fs::write(&path, &bytes).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(format!("{name}.npy"))
}
