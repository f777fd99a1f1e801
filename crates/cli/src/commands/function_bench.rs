//! Speed of functions: every component of a bundle, or the one that is asked for, called again and again on made-up inputs.

use crate::args::BenchArgs;
use crate::commands::function::chosen;
use crate::{model, output};
use anyhow::{Context, Result};
use cactus_base::Pool;
use cactus_engine::Bundle;
use cactus_ir::Bindings;
use cactus_runtime::Function;
use cactus_tensor::{DType, Tensor};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Most axes whose size varies.
const MAX_SYMBOLS: usize = 16;

#[derive(serde::Serialize)]
struct Row {
    component: String,
    median_ms: f64,
    min_ms: f64,
    all_ms: Vec<f64>,
    activations_mb: f64,
}

pub(crate) fn run(bundle: Arc<Bundle>, args: &BenchArgs) -> Result<()> {
    let threads = model::threads(args.engine.threads);
    let pool = Pool::new(threads);
    let mut rows = Vec::new();
    for component in chosen(&bundle, args.component.as_deref())? {
        let function = Function::new(Arc::clone(&bundle), &component.name, None)?;
        let inputs = made_up(&function, args.prefill)
            .with_context(|| format!("cannot make up inputs for component `{}`", component.name))?;
        // The first call makes the plan.
        function.run(&pool, threads, &inputs)?;
        let mut all_ms = Vec::new();
        let mut times: BTreeMap<String, (f64, usize)> = BTreeMap::new();
        for _ in 0..args.reps {
            let start = Instant::now();
            if args.profile {
                let mut observe = |op: &str, _: &str, seconds: f64| {
                    let slot = times.entry(op.to_owned()).or_default();
                    *slot = (slot.0 + seconds, slot.1 + 1);
                };
                function.run_observed(&pool, threads, &inputs, Some(&mut observe))?;
            } else {
                function.run(&pool, threads, &inputs)?;
            }
            all_ms.push(start.elapsed().as_secs_f64() * 1e3);
        }
        profile(times, args.reps);
        let mut sorted = all_ms.clone();
        sorted.sort_by(f64::total_cmp);
        rows.push(Row {
            component: component.name.clone(),
            median_ms: sorted[sorted.len() / 2],
            min_ms: sorted[0],
            all_ms,
            activations_mb: function.activation_bytes() as f64 / 1e6,
        });
    }
    if args.json {
        return output::json(&rows);
    }
    for row in rows {
        output::line(format!(
            "{:<20} {:>10.3} ms  (fastest {:.3} ms, {:.1} MB of activations, {threads} threads)",
            row.component, row.median_ms, row.min_ms, row.activations_mb
        ));
    }
    Ok(())
}

/// Inputs of a function: those of `known`, the rest made up in sizes that the function allows; and which are made up.
pub(crate) fn any_inputs(
    function: &Function,
    known: &BTreeMap<String, Tensor>,
) -> Result<(BTreeMap<String, Tensor>, Vec<String>)> {
    let sizes = [16, 8, 32, 4, 64, 2, 128, 256, 512, 1];
    let found = sizes.into_iter().find_map(|n| made_up(function, n).ok());
    let Some(mut inputs) = found else {
        anyhow::bail!("cannot make up inputs for component `{}`", function.graph().name);
    };
    let mut invented = Vec::new();
    for (name, slot) in &mut inputs {
        match known.get(name) {
            Some(value) => *slot = value.clone(),
            None => invented.push(name.clone()),
        }
    }
    Ok((inputs, invented))
}

/// Ones (and, for floats, a slow wave) of the declared types, sizes that vary at `size` or as near to it as allowed.
fn made_up(function: &Function, size: usize) -> Result<BTreeMap<String, Tensor>> {
    let graph = function.graph();
    let mut bindings = Bindings::new();
    for &v in graph.inputs() {
        for symbol in graph.ty(v).shape.iter().flat_map(cactus_ir::Dim::symbols) {
            bindings.insert(symbol.to_owned(), size);
        }
    }
    anyhow::ensure!(
        bindings.len() <= MAX_SYMBOLS,
        "{} sizes vary, at most {MAX_SYMBOLS} are supported",
        bindings.len()
    );
    if let Some(batch) = bindings.get_mut(cactus_ir::BATCH) {
        *batch = 1;
    }
    if let Some(broken) = graph.broken_constraint(&bindings)? {
        anyhow::bail!("{broken}; choose another size with `--prefill`");
    }
    let mut inputs = BTreeMap::new();
    for &v in graph.inputs() {
        let value = graph.value(v);
        let shape = value
            .ty
            .shape
            .iter()
            .map(|d| d.eval(&bindings))
            .collect::<cactus_ir::Result<Vec<usize>>>()?;
        let n: usize = shape.iter().product();
        let tensor = match value.ty.dtype {
            DType::Bool => Tensor::from_le_bytes(shape.clone(), DType::Bool, &vec![1; n])?,
            d if d.is_float() => Tensor::from_f32(shape, (0..n).map(|i| (i as f32 * 0.37).sin()).collect())?,
            _ => Tensor::from_i64(shape, vec![1; n])?,
        };
        inputs.insert(value.name.clone(), tensor);
    }
    Ok(inputs)
}

/// Times by kind of operation, the longest first.
fn profile(times: BTreeMap<String, (f64, usize)>, reps: usize) {
    let total: f64 = times.values().map(|t| t.0).sum();
    let mut rows: Vec<_> = times.into_iter().collect();
    rows.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    for (op, (seconds, calls)) in rows {
        output::note(format!(
            "{:>6.1} %  {:>10.3} ms  {:>6} calls  {op}",
            seconds / total * 100.0,
            seconds / reps as f64 * 1e3,
            calls / reps
        ));
    }
}
