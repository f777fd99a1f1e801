//! Tokens that are no text, of models that keep their embeddings beside those of texts (Gemma 3n). Such an embedding becomes a row as what an encoder gives does: normed,
//! multiplied by the projection, and normed again. Nothing of it depends on a prompt, so the rows are made here, once, and shown in place of the embeddings.

use crate::{Error, Result, TensorSource};
use cactus_tensor::Tensor;
use serde_json::Value;
use std::ops::Range;
use std::path::PathBuf;

/// The rows, first those of pictures.
const TABLE: &str = "embed_others.weight";
/// The last row, that of silence.
const SILENCE: &str = "embed_audio.silence";
/// Where the embeddings are, and the sections of the configuration.
const KINDS: [(&str, &str); 2] = [("embed_vision", "vision_config"), ("embed_audio", "audio_config")];
/// What is shown no more.
const OWN: [&str; 2] = ["embedding.weight", "hard_embedding_norm.weight"];
/// Added to mean squares, where the configuration is silent.
const EPS: f64 = 1e-6;

/// `tensors` with the rows, where there are such embeddings of both kinds.
pub(crate) fn with_rows(tensors: Box<dyn TensorSource>, config: &Value) -> Box<dyn TensorSource> {
    let there = |of: &str| OWN.iter().all(|name| tensors.shape(&format!("{of}.{name}")).is_some());
    if !KINDS.iter().all(|(of, _)| there(of)) {
        return tensors;
    }
    let eps = KINDS.map(|(_, section)| {
        let said = config.get(section).and_then(|section| section.get("rms_norm_eps"));
        said.and_then(Value::as_f64).unwrap_or(EPS)
    });
    Box::new(OtherTokens { tensors, eps })
}

struct OtherTokens {
    tensors: Box<dyn TensorSource>,
    eps: [f64; 2],
}

/// Whether `name` is shown no more.
fn is_own(name: &str) -> bool {
    let own = |(of, rest): (&str, &str)| KINDS.iter().any(|kind| kind.0 == of) && OWN.contains(&rest);
    name.split_once('.').is_some_and(own)
}

impl OtherTokens {
    /// Tokens, width of an embedding and width of a row of a kind.
    fn sizes(&self, kind: usize) -> Result<[usize; 3]> {
        let of = KINDS[kind].0;
        let shape = |name: &str| self.tensors.shape(&format!("{of}.{name}")).unwrap_or_default();
        let (table, norm) = (shape(OWN[0]), shape(OWN[1]));
        let projection = shape("embedding_projection.weight");
        match (&table[..], &norm[..], &projection[..]) {
            (&[tokens, width], &[own], &[row, from]) if own == width && from == width && tokens > 0 => {
                Ok([tokens, width, row])
            }
            _ => {
                let what = format!(
                    "expected a table `[tokens, width]`, a norm `[width]` and a projection `[row, width]`; found {table:?}, {norm:?} and {projection:?}"
                );
                Err(Error::malformed(what).of_tensor(format!("{of}.{}", OWN[0])))
            }
        }
    }

    /// Shape of what is shown as `name`.
    fn made(&self, name: &str) -> Option<Vec<usize>> {
        let [(pictures, row), (sounds, other)] = [0, 1].map(|kind| {
            let [tokens, _, row] = self.sizes(kind).unwrap_or_default();
            (tokens, row)
        });
        match name {
            TABLE if row == other && row > 0 => Some(vec![pictures + sounds, row]),
            SILENCE if other > 0 => Some(vec![other]),
            _ => None,
        }
    }

    /// The rows of the tokens `tokens` of a kind, one after the other.
    fn rows(&self, kind: usize, tokens: Range<usize>) -> Result<Vec<f32>> {
        let [_, width, row] = self.sizes(kind)?;
        let (of, eps) = (KINDS[kind].0, self.eps[kind]);
        let read = |name: &str| -> Result<Vec<f32>> {
            let name = format!("{of}.{name}");
            let tensor = self.tensors.read(&name)?;
            let values = tensor.as_f32().map(<[f32]>::to_vec);
            values.map_err(|e| Error::malformed(e.to_string()).of_tensor(&name))
        };
        let (table, norm) = (read(OWN[0])?, read(OWN[1])?);
        let projection = read("embedding_projection.weight")?;
        let mut rows = Vec::with_capacity(tokens.len() * row);
        let (mut normed, mut made) = (vec![0.0; width], vec![0.0; row]);
        for embedding in table.chunks_exact(width).skip(tokens.start).take(tokens.len()) {
            for ((out, &x), &factor) in normed.iter_mut().zip(embedding).zip(&norm) {
                *out = f64::from(x) * f64::from(factor);
            }
            let squares = embedding.iter().map(|&x| f64::from(x).powi(2)).sum();
            scale(&mut normed, squares, eps);
            for (out, weights) in made.iter_mut().zip(projection.chunks_exact(width)) {
                *out = weights.iter().zip(&normed).map(|(&w, x)| f64::from(w) * x).sum();
            }
            let squares = made.iter().map(|x| x * x).sum();
            scale(&mut made, squares, eps);
            rows.extend(made.iter().map(|&x| x as f32));
        }
        Ok(rows)
    }
}

/// Divides `x` by the root of the mean of squares whose sum is given.
fn scale(x: &mut [f64], squares: f64, eps: f64) {
    let factor = 1.0 / (squares / x.len() as f64 + eps).sqrt();
    x.iter_mut().for_each(|x| *x *= factor);
}

impl TensorSource for OtherTokens {
    fn names(&self) -> Vec<&str> {
        let mut names = self.tensors.names();
        names.retain(|name| !is_own(name));
        names.extend([TABLE, SILENCE]);
        names.sort_unstable();
        names
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        match name {
            TABLE | SILENCE => self.made(name),
            _ if is_own(name) => None,
            _ => self.tensors.shape(name),
        }
    }

    fn stored_type(&self, name: &str) -> Option<&'static str> {
        match name {
            TABLE | SILENCE => Some("F32"),
            _ => self.tensors.stored_type(name),
        }
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        let [[pictures, ..], [sounds, ..]] = match name {
            TABLE | SILENCE => [self.sizes(0)?, self.sizes(1)?],
            _ => return self.tensors.read(name),
        };
        let values = match name {
            SILENCE => self.rows(1, sounds - 1..sounds)?,
            _ => [self.rows(0, 0..pictures)?, self.rows(1, 0..sounds)?].concat(),
        };
        let shape = self.made(name).unwrap_or_default();
        Tensor::from_f32(shape, values).map_err(|e| Error::malformed(e.to_string()).of_tensor(name))
    }

    fn read_rows(&self, name: &str, rows: Range<usize>) -> Option<Result<Tensor>> {
        match name {
            TABLE | SILENCE => None,
            _ => self.tensors.read_rows(name, rows),
        }
    }

    fn describe(&self) -> String {
        self.tensors.describe()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.tensors.files()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experts::tests::Given;
    use serde_json::json;

    /// Two tokens of each kind, two wide, and rows of three.
    fn given(changes: &[(&str, &[usize])]) -> Box<dyn TensorSource> {
        let mut tensors = std::collections::BTreeMap::new();
        for (of, first) in [("embed_vision", 1.0), ("embed_audio", -4.0)] {
            for (name, shape) in [
                (OWN[0], &[2, 2][..]),
                (OWN[1], &[2]),
                ("embedding_projection.weight", &[3, 2]),
            ] {
                let name = format!("{of}.{name}");
                let shape = changes
                    .iter()
                    .find(|(of, _)| *of == name)
                    .map_or(shape, |(_, shape)| shape);
                let values = (0..shape.iter().product()).map(|i: usize| first + i as f32);
                tensors.insert(name, Tensor::from_f32(shape.to_vec(), values.collect()).unwrap());
            }
        }
        tensors.insert("other.weight".to_owned(), Tensor::from_f32([1], vec![7.0]).unwrap());
        Box::new(Given { tensors, by_rows: true })
    }

    #[test]
    fn rows_are_normed_projected_and_normed_again() {
        let config = json!({"vision_config": {"rms_norm_eps": 0.5}, "audio_config": {}});
        let source = with_rows(given(&[]), &config);
        let projections = [
            "embed_audio.embedding_projection.weight",
            "embed_vision.embedding_projection.weight",
        ];
        let shown = [SILENCE, projections[0], TABLE, projections[1], "other.weight"];
        let mut names = source.names();
        names.sort_unstable();
        let mut want = shown.to_vec();
        want.sort_unstable();
        assert_eq!(names, want);
        assert!(source.shape("embed_audio.embedding.weight").is_none());
        let table = source.read(TABLE).unwrap();
        assert_eq!((table.shape(), source.shape(TABLE)), (&[4, 3][..], Some(vec![4, 3])));
        // The first picture's: [1, 2] over the root of 2.5 + 0.5, times [1, 2], through [[1, 2], [3, 4], [5, 6]].
        let scale = 3f64.sqrt();
        let normed = [1.0 / scale, 4.0 / scale];
        let row = [1.0, 3.0, 5.0].map(|x| x * normed[0] + (x + 1.0) * normed[1]);
        let size = (row.iter().map(|x| x * x).sum::<f64>() / 3.0 + 0.5).sqrt();
        for (found, want) in table.as_f32().unwrap().iter().zip(row) {
            assert!((f64::from(*found) - want / size).abs() < 1e-6, "{found}");
        }
        let silence = source.read(SILENCE).unwrap();
        assert_eq!(silence.as_f32().unwrap(), &table.as_f32().unwrap()[9..]);
        assert_eq!(source.read("other.weight").unwrap().as_f32().unwrap(), [7.0]);
    }

    #[test]
    fn tables_that_do_not_fit_are_refused_by_name() {
        for name in [OWN[0], OWN[1], "embedding_projection.weight"] {
            let name = format!("embed_audio.{name}");
            let source = with_rows(given(&[(&name, &[5])]), &json!({}));
            let error = source.read(TABLE).unwrap_err().to_string();
            assert!(error.contains("embed_audio.embedding.weight"), "{error}");
        }
        let without = Box::new(Given {
            tensors: std::collections::BTreeMap::new(),
            by_rows: true,
        });
        assert!(with_rows(without, &json!({})).names().is_empty());
    }
}
