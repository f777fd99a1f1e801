//! Silero VAD as its package carries it: a file of tensors alone (`silero_vad_16k.safetensors`), or a program in ONNX
//! (`silero_vad.onnx` and others). Shapes say the rest.

mod graph;

pub use graph::OnnxSource;

use crate::{Error, Result, SafetensorsSource, SharedBytes, SourceModel, TensorSource, open_bytes};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Names of the file in the package, which has it in a folder with other forms of the model: the first that is there counts.
const FILES: [&str; 2] = ["silero_vad_16k.safetensors", "silero_vad.onnx"];
/// Tensors that tell the model from others, with the number of their axes.
const TELLING: [(&str, usize); 3] = [
    ("stft_conv.weight", 3),
    ("lstm_cell.weight_hh", 2),
    ("final_conv.weight", 3),
];

/// The file of the model, where `path` is it or a folder that has it and no `config.json`.
pub(crate) fn file_of(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        let mut files = FILES.iter().map(|name| path.join(name));
        return files.find(|file| file.is_file() && !path.join("config.json").is_file());
    }
    (is_onnx(path) && path.is_file() || is_file(path)).then(|| path.to_path_buf())
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case(extension))
}

/// Whether a file is a program in ONNX by its name: its bytes have no mark.
fn is_onnx(path: &Path) -> bool {
    has_extension(path, "onnx")
}

/// Whether a file holds the tensors of Silero VAD.
pub(crate) fn is_file(path: &Path) -> bool {
    let opened = || SafetensorsSource::from_bytes(path, open_bytes(path)?);
    has_extension(path, "safetensors") && path.is_file() && opened().is_ok_and(|source| is_silero(&source))
}

fn is_silero(source: &dyn TensorSource) -> bool {
    let is = |(name, axes): &(&str, usize)| source.shape(name).is_some_and(|s| s.len() == *axes);
    TELLING.iter().all(is)
}

/// Opens the file: of several networks in it that for `rate_hz` samples a second, or that for the most.
///
/// # Errors
/// What is damaged, or has other shapes than this model; where there is none for that rate.
pub(crate) fn open_file(path: &Path, rate_hz: Option<u32>) -> Result<SourceModel> {
    let bytes = open_bytes(path)?;
    let (format, config, tensors): (_, _, Box<dyn TensorSource>) = match is_onnx(path) {
        true => {
            let (config, source) = read_onnx(path, bytes, rate_hz)?;
            ("onnx", config, Box::new(source))
        }
        false => {
            let (config, source) = read(path, bytes)?;
            ("silero", config, Box::new(source))
        }
    };
    Ok(SourceModel {
        format,
        config,
        generation_config: json!({}),
        front_end: json!({}),
        hearing: json!({}),
        sentence: None,
        tokenizer: None,
        tensors,
    })
}

/// The configuration that the shapes of a file say, and its tensors; `path` is for messages.
///
/// # Errors
/// [`crate::ErrorKind::Malformed`] where the bytes break the format, [`crate::ErrorKind::Missing`] for a tensor that is not
/// there, [`crate::ErrorKind::Unsupported`] for shapes that do not fit together.
pub fn read(path: &Path, bytes: SharedBytes) -> Result<(Value, SafetensorsSource)> {
    let source = SafetensorsSource::from_bytes(path, bytes)?;
    let config = config(&source).map_err(|e| e.in_file(path))?;
    Ok((config, source))
}

/// As [`read`], of a program in ONNX: the network for `rate_hz` samples a second, or that for the most.
///
/// # Errors
/// As [`read`]; [`crate::ErrorKind::Unsupported`] where the program has no such network.
pub fn read_onnx(path: &Path, bytes: SharedBytes, rate_hz: Option<u32>) -> Result<(Value, OnnxSource)> {
    let source = OnnxSource::new(path, bytes, rate_hz)?;
    let config = config(&source).map_err(|e| e.in_file(path))?;
    Ok((config, source))
}

fn config(source: &dyn TensorSource) -> Result<Value> {
    let shape = |name: &str| {
        let found = source.shape(name);
        found.ok_or_else(|| Error::missing("the file has no such tensor; expected Silero VAD").of_tensor(name))
    };
    let unlike = |name: &str, expected: &str, found: &[usize]| {
        Error::unsupported(format!("expected {expected}, found {found:?}")).of_tensor(name)
    };
    let name = "stft_conv.weight";
    let found = shape(name)?;
    let &[waves, 1, fft] = &found[..] else {
        return Err(unlike(name, "the shape [samples + 2, 1, samples]", &found));
    };
    if Some(waves) != fft.checked_add(2) {
        return Err(unlike(name, "the shape [samples + 2, 1, samples]", &found));
    }
    let mut widths = [0; 4];
    let mut channels = fft / 2 + 1;
    for (i, width) in widths.iter_mut().enumerate() {
        let name = format!("conv{}.weight", i + 1);
        let found = shape(&name)?;
        match &found[..] {
            &[out, of, 3] if of == channels => *width = out,
            _ => return Err(unlike(&name, &format!("the shape [width, {channels}, 3]"), &found)),
        }
        channels = *width;
    }
    let name = "lstm_cell.weight_hh";
    let found = shape(name)?;
    let hidden = match &found[..] {
        &[gates, hidden] if Some(gates) == hidden.checked_mul(4) => hidden,
        _ => return Err(unlike(name, "the shape [4 * width, width]", &found)),
    };
    Ok(json!({
        "model_type": "silero_vad", "fft_samples": fft, "widths": widths, "hidden_size": hidden,
    }))
}

#[cfg(test)]
mod tests;
