//! Weights without a program: one file of tensors becomes a folder of packed records with `weights_manifest.json`.
//!
//! Purpose: to quantize a state dict (`.pt`, `.pth`, `.bin`, `.ckpt`) or one `.safetensors` file once, by name, for a
//! program that is transpiled later and takes them ([`crate::pt2::TranspileOptions::weights`]). The folder is a bundle
//! whose list of components is empty. What a tensor is for is not known here: matrices are packed as linears and tables
//! are, the rest keeps 32 bits; tensors that are no floats belong to the program and are left to it.

use crate::convert::{self, ConvertOptions, Outcome, Planned};
use crate::state_dict::StateDict;
use crate::{Error, Result, SafetensorsSource, TensorSource, open_bytes};
use cactus_bundle::{About, BundleWriter, Provenance, TokenIds};
use cactus_ir::WeightExpr;
use cactus_passes::{Policy, Storage, storage_of_matrix};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// The task of a bundle that has weights and no program.
pub const WEIGHTS_TASK: &str = "weights";

/// Endings of files of `torch.save`.
const STATE_DICTS: [&str; 5] = ["pt", "pth", "bin", "ckpt", "pkl"];
/// Most axes of a stored tensor.
const MAX_RANK: usize = 4;

/// Whether a path is a file of tensors by name, without a program.
pub fn is_weights_file(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    let named = extension.is_some_and(|e| e == "safetensors" || STATE_DICTS.contains(&e.as_str()));
    // Whole models of whisper.cpp are called `.bin`, too, and Silero VAD is tensors alone.
    path.is_file() && named && !crate::ggml::is_file(path) && !crate::silero::is_file(path)
}

/// Opens a file of tensors by name.
///
/// # Errors
/// What is damaged, or no tensor; nothing that the file holds is run.
pub fn open_weights(path: &Path) -> Result<Box<dyn TensorSource>> {
    let safetensors = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("safetensors"));
    Ok(match safetensors {
        true => Box::new(SafetensorsSource::from_bytes(path, open_bytes(path)?)?),
        false => Box::new(StateDict::open(path)?),
    })
}

/// Packs the tensors of the file at `source` into a folder at `destination`. `progress` gets the elements done and in all.
///
/// # Errors
/// What is damaged or cannot be packed, naming the tensor. The destination is then as it was.
pub fn convert_weights(
    source: &Path,
    destination: &Path,
    options: &ConvertOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Outcome> {
    let start = Instant::now();
    let tensors = open_weights(source)?;
    let names: Vec<String> = tensors.names().into_iter().map(str::to_owned).collect();
    let (floats, left): (Vec<String>, Vec<String>) = names
        .into_iter()
        .partition(|n| matches!(tensors.stored_type(n), Some("F64" | "F32" | "F16" | "BF16")));
    let mut notes = Vec::new();
    if let [first, ..] = &left[..] {
        let what = "tensors are not floats, and are left to the program, for example `";
        notes.push(format!("{} {what}{first}`", left.len()));
    }
    if floats.is_empty() {
        return Err(Error::unsupported("the file has no float tensors").in_file(source));
    }
    let exprs: Vec<WeightExpr> = floats.iter().map(WeightExpr::source).collect();
    let weights: Vec<Planned<'_>> = floats
        .iter()
        .zip(&exprs)
        .map(|(name, expr)| {
            let dims = tensors.shape(name).unwrap_or_default();
            if dims.len() > MAX_RANK || dims.contains(&0) {
                let what = format!("a stored tensor has 1 to {MAX_RANK} axes and elements, found {dims:?}");
                return Err(Error::unsupported(what).of_tensor(name).in_file(source));
            }
            let storage = storage(name, &dims, &options.policy);
            Ok((name.clone(), expr, dims, convert::packing(name, Some(storage))?))
        })
        .collect::<Result<_>>()?;
    let mut writer = BundleWriter::create(destination, options.replace).map_err(convert::from_bundle)?;
    let errors = convert::write_weights(&mut writer, &*tensors, &weights, options, None, progress)?;
    let source_sha256 = convert::hash_files(&tensors.files(), &options.stop)?;
    let name = source.file_stem().unwrap_or(source.as_os_str()).to_string_lossy();
    let about = About {
        name: options.name.clone().unwrap_or_else(|| name.into_owned()),
        family: "none".to_owned(),
        task: WEIGHTS_TASK.to_owned(),
        context_tokens: 0,
        vocab_size: 0,
        tokens: TokenIds::default(),
    };
    let mut all = vec![tensors.describe()];
    all.extend(notes.iter().cloned());
    let provenance = Provenance {
        source: convert::file_name(source),
        source_format: "tensors".to_owned(),
        source_sha256,
        tool: format!("cactus {}", env!("CARGO_PKG_VERSION")),
        options: BTreeMap::from([("bits".to_owned(), options.policy.to_string())]),
        license: options.license.clone(),
        notes: all,
    };
    let weights_bytes = writer.weights_bytes();
    let path = writer.finish(about, &provenance).map_err(convert::from_bundle)?;
    Ok(Outcome {
        path,
        tensors: weights.len(),
        weights_bytes,
        seconds: start.elapsed().as_secs_f64(),
        notes,
        source_types: None,
        errors,
        explanation: String::new(),
    })
}

/// How a tensor is stored of which only name and shape are known.
fn storage(name: &str, dims: &[usize], policy: &Policy) -> Storage {
    match dims {
        &[_, k] => {
            let table = name.to_ascii_lowercase().contains("emb");
            storage_of_matrix(policy.bits_of(name, table).0, k)
        }
        _ => Storage::Plain,
    }
}

#[cfg(test)]
mod tests;
