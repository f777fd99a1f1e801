//! Low-rank adapters of PEFT (`adapter_config.json` with `adapter_model.safetensors`), merged into the weights of a source
//! while they are read: `W + factor · B A`, in `f32`, before anything is quantized.
//!
//! An adapter is checked against the source as a whole before the first weight is read. It deliberately does not stay apart
//! from the weights at run time, and does not read pickled files.

mod config;

use crate::{Error, ErrorKind, Result, SafetensorsSource, TensorSource, open_bytes};
use cactus_tensor::Tensor;
use config::Config;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// File names of an adapter.
const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
/// What PEFT puts before the names of modules.
const PREFIX: &str = "base_model.model.";

/// What an adapter does to one tensor.
#[derive(Debug)]
enum Change {
    /// Adds `factor · B A` to `[out, in]`; the names of `A` `[r, in]` and `B` `[out, r]`.
    Add { a: String, b: String, factor: f32 },
    /// Adds `factor · (B A)ᵀ` to a table `[rows, dim]`; the names of `A` `[r, rows]` and `B` `[dim, r]`.
    AddTransposed { a: String, b: String, factor: f32 },
    /// Stands in its place: a module that was trained whole.
    Replace(String),
}

/// A source with an adapter merged in.
struct Adapted {
    base: Box<dyn TensorSource>,
    adapter: SafetensorsSource,
    /// By the name of the tensor in the source.
    changes: BTreeMap<String, Change>,
    folder: PathBuf,
}

/// `base` with the adapter in `folder` merged into it.
///
/// # Errors
/// [`ErrorKind::Missing`] for an absent file, or a module that the source does not have; [`ErrorKind::Malformed`] for
/// shapes that do not fit; [`ErrorKind::Unsupported`] for adapters of another kind, such as DoRA.
pub fn merge(base: Box<dyn TensorSource>, folder: &Path) -> Result<Box<dyn TensorSource>> {
    let config_path = folder.join(CONFIG);
    let config = Config::read(&crate::hf::read_json(&config_path)?, &config_path)?;
    let path = folder.join(WEIGHTS);
    if !path.exists() && folder.join("adapter_model.bin").exists() {
        let what = format!("the adapter is pickled (`adapter_model.bin`); save it as `{WEIGHTS}`");
        return Err(Error::unsupported(what).in_file(folder));
    }
    let adapter = SafetensorsSource::from_bytes(&path, open_bytes(&path)?)?;
    let changes = changes(&*base, &adapter, &config).map_err(|e| e.in_file(&path))?;
    Ok(Box::new(Adapted {
        base,
        adapter,
        changes,
        folder: folder.to_path_buf(),
    }))
}

/// Every tensor of the adapter, as a change of one of `base`.
fn changes(base: &dyn TensorSource, adapter: &SafetensorsSource, config: &Config) -> Result<BTreeMap<String, Change>> {
    let mut out = BTreeMap::new();
    for name in adapter.names() {
        let path = name.strip_prefix(PREFIX).unwrap_or(name);
        if path.contains("lora_magnitude_vector") {
            return Err(Error::unsupported("DoRA adapters are not supported").of_tensor(name));
        }
        if path.ends_with("lora_B.bias") {
            return Err(Error::unsupported("biases in the adapter (`lora_bias`) are not supported").of_tensor(name));
        }
        let pair = |a: &str, b: &str| {
            path.strip_suffix(a)
                .map(|module| (module, format!("{}{b}", &name[..name.len() - a.len()])))
        };
        let (module, change) = if let Some((module, b)) = pair(".lora_A.weight", ".lora_B.weight") {
            let factor = config.factor(module);
            (
                format!("{module}.weight"),
                Change::Add {
                    a: name.to_owned(),
                    b,
                    factor,
                },
            )
        } else if let Some((module, b)) = pair(".lora_embedding_A", ".lora_embedding_B") {
            let factor = config.factor(module);
            (
                format!("{module}.weight"),
                Change::AddTransposed {
                    a: name.to_owned(),
                    b,
                    factor,
                },
            )
        } else if path.ends_with(".lora_B.weight") || path.ends_with(".lora_embedding_B") {
            let other = name
                .replace(".lora_B.", ".lora_A.")
                .replace(".lora_embedding_B", ".lora_embedding_A");
            if adapter.shape(&other).is_none() {
                return Err(Error::missing(format!("the adapter has no `{other}`")).of_tensor(name));
            }
            continue;
        } else {
            let plain = path
                .replace(".modules_to_save.default", "")
                .replace(".modules_to_save", "");
            (plain.replace(".base_layer", ""), Change::Replace(name.to_owned()))
        };
        let target = find(base, &module).ok_or_else(|| {
            let what = format!("the adapter changes `{module}`, which the model does not have");
            Error::missing(what).of_tensor(name)
        })?;
        check(base, adapter, config, &target, &change).map_err(|e| e.of_tensor(name))?;
        if out.insert(target.clone(), change).is_some() {
            return Err(Error::malformed(format!("the adapter changes `{target}` twice")).of_tensor(name));
        }
    }
    if out.is_empty() {
        return Err(Error::missing("the adapter changes nothing"));
    }
    Ok(out)
}

/// The tensor that a module of the adapter means: models wrapped for a task say `model.` more or less often.
fn find(base: &dyn TensorSource, name: &str) -> Option<String> {
    let shorter = name.strip_prefix("model.").unwrap_or(name);
    let candidates = [name.to_owned(), shorter.to_owned(), format!("model.{name}")];
    candidates.into_iter().find(|n| base.shape(n).is_some())
}

fn check(
    base: &dyn TensorSource,
    adapter: &SafetensorsSource,
    config: &Config,
    target: &str,
    change: &Change,
) -> Result<()> {
    let shape = |name: &str| {
        let found = adapter.shape(name);
        found.ok_or_else(|| Error::missing(format!("the adapter has no `{name}`")))
    };
    let is = base.shape(target).unwrap_or_default();
    let (a, b) = match change {
        Change::Replace(name) => {
            let given = shape(name)?;
            return match given == is {
                true => Ok(()),
                false => Err(Error::malformed(format!(
                    "expected shape {is:?} of `{target}`, found {given:?}"
                ))),
            };
        }
        Change::Add { a, b, .. } | Change::AddTransposed { a, b, .. } => (shape(a)?, shape(b)?),
    };
    let [n, k] = is[..] else {
        return Err(Error::unsupported(format!(
            "`{target}` has shape {is:?}; only adapters of matrices are supported"
        )));
    };
    let (out, inputs) = match change {
        Change::AddTransposed { .. } => (k, n),
        _ => (n, k),
    };
    let rank = config.rank(target.strip_suffix(".weight").unwrap_or(target));
    if a != [rank, inputs] || b != [out, rank] {
        let what = format!(
            "for `{target}` {is:?} and rank {rank}, expected A {:?} and B {:?}, found {a:?} and {b:?}",
            [rank, inputs],
            [out, rank]
        );
        return Err(Error::malformed(what));
    }
    Ok(())
}

impl Adapted {
    /// A matrix of the adapter.
    fn matrix(&self, name: &str) -> Result<(Vec<f32>, usize)> {
        let tensor = self.adapter.read(name)?;
        let columns = tensor.shape().last().copied().unwrap_or(0);
        let values = tensor
            .as_f32()
            .map_err(|e| Error::malformed(e.to_string()).of_tensor(name))?;
        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
            let what = format!("element {at} of the adapter is {}", values[at]);
            return Err(Error::malformed(what)
                .of_tensor(name)
                .in_file(&self.folder.join(WEIGHTS)));
        }
        Ok((values.to_vec(), columns))
    }

    /// `w [n, k] += factor · left [n, r] · right [r, k]`.
    fn add(w: &mut [f32], k: usize, left: &[f32], right: &[f32], factor: f32) {
        let r = right.len() / k.max(1);
        let mut sum = vec![0f32; k];
        for (row, left) in w.chunks_exact_mut(k.max(1)).zip(left.chunks_exact(r.max(1))) {
            sum.fill(0.0);
            for (&x, right) in left.iter().zip(right.chunks_exact(k.max(1))) {
                for (sum, &y) in sum.iter_mut().zip(right) {
                    *sum += x * y;
                }
            }
            for (w, &sum) in row.iter_mut().zip(&sum) {
                *w += factor * sum;
            }
        }
    }
}

fn transposed(x: &[f32], columns: usize) -> Vec<f32> {
    let rows = x.len() / columns.max(1);
    let mut out = vec![0f32; x.len()];
    for (r, row) in x.chunks_exact(columns.max(1)).enumerate() {
        for (c, &x) in row.iter().enumerate() {
            out[c * rows + r] = x;
        }
    }
    out
}

impl TensorSource for Adapted {
    fn names(&self) -> Vec<&str> {
        self.base.names()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.base.shape(name)
    }

    fn stored_type(&self, name: &str) -> Option<&'static str> {
        self.base.stored_type(name)
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        let Some(change) = self.changes.get(name) else {
            return self.base.read(name);
        };
        let malformed = |e: cactus_tensor::Error| Error::new(ErrorKind::Malformed, e.to_string()).of_tensor(name);
        if let Change::Replace(by) = change {
            return self.adapter.read(by);
        }
        let tensor = self.base.read(name)?;
        let shape = tensor.shape().to_vec();
        let k = shape.last().copied().unwrap_or(0);
        let mut w = tensor.as_f32().map_err(malformed)?.to_vec();
        match change {
            Change::Add { a, b, factor } => {
                let (a, b) = (self.matrix(a)?.0, self.matrix(b)?.0);
                Self::add(&mut w, k, &b, &a, *factor);
            }
            Change::AddTransposed { a, b, factor } => {
                let ((a, rows), (b, rank)) = (self.matrix(a)?, self.matrix(b)?);
                Self::add(&mut w, k, &transposed(&a, rows), &transposed(&b, rank), *factor);
            }
            Change::Replace(_) => {}
        }
        Tensor::from_f32(shape, w).map_err(malformed)
    }

    fn read_rows(&self, name: &str, rows: Range<usize>) -> Option<Result<Tensor>> {
        if self.changes.contains_key(name) {
            return None;
        }
        self.base.read_rows(name, rows)
    }

    fn describe(&self) -> String {
        let name = self
            .folder
            .file_name()
            .unwrap_or(self.folder.as_os_str())
            .to_string_lossy();
        let base = self.base.describe();
        format!("{base}; adapter `{name}` merged into {} tensors", self.changes.len())
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files = self.base.files();
        files.push(self.folder.join(WEIGHTS));
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::HashMap;

    type Given<'a> = &'a [(&'a str, &'a [usize], &'a [f32])];

    fn file(tensors: Given<'_>) -> Vec<u8> {
        let bytes: Vec<Vec<u8>> = tensors
            .iter()
            .map(|(_, _, v)| v.iter().flat_map(|x| x.to_le_bytes()).collect())
            .collect();
        let views: HashMap<&str, safetensors::tensor::TensorView<'_>> = tensors
            .iter()
            .zip(&bytes)
            .map(|((name, shape, _), bytes)| {
                let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.to_vec(), bytes);
                (*name, view.unwrap())
            })
            .collect();
        safetensors::serialize(&views, None).unwrap()
    }

    fn base() -> Box<dyn TensorSource> {
        let bytes = file(&[
            ("model.embed_tokens.weight", &[3, 2], &[0.0; 6]),
            ("model.layers.0.q_proj.weight", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            ("model.norm.weight", &[2], &[1.0, 1.0]),
        ]);
        let bytes: crate::SharedBytes = std::sync::Arc::new(bytes);
        Box::new(SafetensorsSource::from_bytes(Path::new("base"), bytes).unwrap())
    }

    fn adapter(config: &serde_json::Value, tensors: Given<'_>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(CONFIG), config.to_string()).unwrap();
        std::fs::write(folder.path().join(WEIGHTS), file(tensors)).unwrap();
        folder
    }

    const Q_A: &str = "base_model.model.model.layers.0.q_proj.lora_A.weight";
    const Q_B: &str = "base_model.model.model.layers.0.q_proj.lora_B.weight";

    #[test]
    fn merged_weights_are_those_computed_by_hand() {
        let config = json!({"peft_type": "LORA", "r": 2, "lora_alpha": 4});
        let folder = adapter(
            &config,
            &[
                (Q_A, &[2, 3], &[1.0, 0.0, -1.0, 2.0, 1.0, 0.5]),
                (Q_B, &[2, 2], &[1.0, 2.0, 0.0, -1.0]),
                (
                    "base_model.model.model.embed_tokens.lora_embedding_A",
                    &[2, 3],
                    &[1.0, 2.0, 3.0, 0.0, 1.0, 0.0],
                ),
                (
                    "base_model.model.model.embed_tokens.lora_embedding_B",
                    &[2, 2],
                    &[1.0, 10.0, 0.0, 1.0],
                ),
                ("base_model.model.model.norm.modules_to_save.weight", &[2], &[7.0, 8.0]),
            ],
        );
        let merged = merge(base(), folder.path()).unwrap();
        let read = |name: &str| merged.read(name).unwrap().as_f32().unwrap().to_vec();
        // B A = [[5, 2, 0], [-2, -1, -0.5]], counted twice.
        assert_eq!(read("model.layers.0.q_proj.weight"), [11.0, 6.0, 3.0, 0.0, 3.0, 5.0]);
        // B A = [[1, 12, 3], [0, 1, 0]], turned.
        assert_eq!(read("model.embed_tokens.weight"), [2.0, 0.0, 24.0, 2.0, 6.0, 0.0]);
        assert_eq!(read("model.norm.weight"), [7.0, 8.0]);
        assert!(merged.describe().contains("merged into 3 tensors"));
        assert_eq!(merged.files().len(), 2);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let config = json!({"peft_type": "LORA", "r": 1, "lora_alpha": 4});
        let (a, b): (&[f32], &[f32]) = (&[1.0; 3], &[1.0; 2]);
        let cases: [(Given<'_>, &str); 8] = [
            (&[(Q_A, &[1, 2], &[1.0; 2]), (Q_B, &[2, 1], b)], "expected A [1, 3]"),
            (&[(Q_A, &[3, 1], a), (Q_B, &[2, 1], b)], "found [3, 1]"),
            (
                &[(Q_A, &[1, 3], a)],
                "no `base_model.model.model.layers.0.q_proj.lora_B.weight`",
            ),
            (
                &[(Q_B, &[2, 1], b)],
                "no `base_model.model.model.layers.0.q_proj.lora_A.weight`",
            ),
            (
                &[("base_model.model.lm_head.lora_A.weight", &[1, 3], a)],
                "`lm_head.weight`, which the model does not have",
            ),
            (&[("base_model.model.model.norm.lora_A.weight", &[1, 3], a)], "lora_B"),
            (
                &[("base_model.model.model.layers.0.q_proj.lora_magnitude_vector", &[2], b)],
                "DoRA",
            ),
            (&[], "changes nothing"),
        ];
        for (tensors, what) in cases {
            let folder = adapter(&config, tensors);
            let error = merge(base(), folder.path()).err().unwrap().to_string();
            assert!(error.contains(what) && error.contains(WEIGHTS), "{what}: {error}");
        }
        let folder = adapter(&config, &[(Q_A, &[1, 3], &[1.0, f32::NAN, 0.0]), (Q_B, &[2, 1], b)]);
        let merged = merge(base(), folder.path()).unwrap();
        let error = merged.read("model.layers.0.q_proj.weight").unwrap_err().to_string();
        assert!(error.contains("element 1 of the adapter is NaN"), "{error}");
        let whole = std::fs::read(folder.path().join(WEIGHTS)).unwrap();
        for end in 0..whole.len() {
            std::fs::write(folder.path().join(WEIGHTS), &whole[..end]).unwrap();
            assert!(merge(base(), folder.path()).is_err(), "{end}");
        }
        std::fs::rename(folder.path().join(WEIGHTS), folder.path().join("adapter_model.bin")).unwrap();
        assert!(
            merge(base(), folder.path())
                .err()
                .unwrap()
                .to_string()
                .contains("pickled")
        );
    }
}
