//! Experts whose matrices are stored with rows and columns exchanged, as products on the other side want them.

use super::{DOWN, GATE_UP};
use crate::{Error, Result, TensorSource};
use cactus_tensor::Tensor;
use std::ops::Range;

/// A tensor `[experts, rows, columns]` of which the source has `[experts, columns, rows]`.
#[derive(Debug)]
pub(super) struct Turned {
    pub(super) shape: [usize; 3],
}

/// The tensors of `source` that are so, by the shapes of the two that belong together, with the shapes that families want.
pub(super) fn find(source: &dyn TensorSource) -> Vec<(String, [usize; 3])> {
    let axes = |name: &str| <[usize; 3]>::try_from(source.shape(name)?).ok();
    let mut found = Vec::new();
    for name in source.names() {
        let Some(prefix) = name
            .strip_suffix(GATE_UP)
            .filter(|prefix| prefix.ends_with(".experts."))
        else {
            continue;
        };
        let back = format!("{prefix}{DOWN}");
        let (Some([experts, hidden, both]), Some([of_back, width, out])) = (axes(name), axes(&back)) else {
            continue;
        };
        // Not turned it would be `[experts, 2 * width, hidden]` and `[experts, hidden, width]`, which is never the same.
        if experts == of_back && hidden == out && width.checked_mul(2) == Some(both) && both > 0 {
            found.push((name.to_owned(), [experts, both, hidden]));
            found.push((back, [experts, hidden, width]));
        }
    }
    found
}

impl Turned {
    /// All of it.
    pub(super) fn read(&self, source: &dyn TensorSource, name: &str) -> Result<Tensor> {
        let fail = |e: String| Error::malformed(e).of_tensor(name);
        let [experts, rows, columns] = self.shape;
        let whole = source.read(name)?;
        let stored = whole.as_f32().map_err(|e| fail(e.to_string()))?;
        if experts.checked_mul(rows).and_then(|n| n.checked_mul(columns)) != Some(stored.len()) {
            return Err(fail(format!(
                "expected {:?} elements, found {}",
                self.shape,
                stored.len()
            )));
        }
        let mut values = Vec::with_capacity(stored.len());
        for expert in stored.chunks((rows * columns).max(1)) {
            turn(expert, [rows, columns], 0..rows, &mut values);
        }
        Tensor::from_f32(self.shape, values).map_err(|e| fail(e.to_string()))
    }

    /// Rows `rows` of all experts, of which only those experts are read whose rows they are.
    pub(super) fn rows(&self, source: &dyn TensorSource, name: &str, rows: Range<usize>) -> Option<Result<Tensor>> {
        let [experts, of_each, columns] = self.shape;
        if rows.start > rows.end || rows.end > experts.checked_mul(of_each)? {
            return None;
        }
        let mut values = Vec::with_capacity(rows.len() * columns);
        let mut at = rows.start;
        while at < rows.end {
            let (expert, first) = (at / of_each, at % of_each);
            let last = of_each.min(first + rows.end - at);
            let stored = match source.read_rows(name, expert * columns..(expert + 1) * columns)? {
                Ok(stored) => stored,
                Err(e) => return Some(Err(e)),
            };
            let stored = stored
                .as_f32()
                .ok()
                .filter(|stored| stored.len() == of_each * columns)?;
            turn(stored, [of_each, columns], first..last, &mut values);
            at += last - first;
        }
        let tensor = Tensor::from_f32([rows.len(), columns], values);
        Some(tensor.map_err(|e| Error::malformed(e.to_string()).of_tensor(name)))
    }
}

/// Rows `range` of the matrix of these rows and columns that is stored the other way around.
fn turn(stored: &[f32], [rows, columns]: [usize; 2], range: Range<usize>, out: &mut Vec<f32>) {
    for row in range {
        out.extend((0..columns).map(|column| stored[column * rows + row]));
    }
}
