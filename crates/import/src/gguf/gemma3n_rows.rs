//! Tensors of Gemma 3n of which Hugging Face has rows alone: projections of streams, which are one tensor in a file, and the table of inputs for
//! layers, which converters fill with zeros for tokens that have none.

use super::GgufSource;
use super::names::{LAYER_INPUTS, STREAMS};
use crate::{Error, Result, TensorSource};

/// Rows that are read at once in search of those that are zeros.
const ROWS: usize = 64;

/// Presents them as Hugging Face has them.
///
/// # Errors
/// [`crate::ErrorKind::Malformed`] where a tensor has not three axes, naming it.
pub(super) fn take_apart(source: &mut GgufSource) -> Result<()> {
    for name in STREAMS {
        let Some(whole) = source.weights.remove(name) else {
            continue;
        };
        let shape = <[usize; 3]>::try_from(&whole.shape[..]);
        let Some([count, rows, columns]) = shape.ok().filter(|shape| !shape.contains(&0)) else {
            let what = format!("expected the shape [streams, rows, columns], found {:?}", whole.shape);
            return Err(Error::malformed(what).of_tensor(name));
        };
        let stem = name.strip_suffix(".weight").unwrap_or(name);
        for i in 0..count {
            let mut one = whole.clone();
            one.shape = vec![rows, columns];
            // As many rows as the tensor has, which lie in the file.
            one.first_row = i * rows;
            source.weights.insert(format!("{stem}.{i}.weight"), one);
        }
    }
    let all = |name: &str| source.shape(name)?.first().copied();
    let (Some(rows), Some(tokens)) = (all(LAYER_INPUTS), all("model.embed_tokens.weight")) else {
        return Ok(());
    };
    // Only a table of all tokens has been filled.
    let kept = if rows == tokens { filled(source, rows)? } else { rows };
    if let Some(table) = source.weights.get_mut(LAYER_INPUTS) {
        table.shape[0] = kept;
    }
    Ok(())
}

/// The rows of the table up to the last of which not all are zeros, of `rows`; all where there is no such.
fn filled(source: &GgufSource, rows: usize) -> Result<usize> {
    let mut end = rows;
    while end > 0 {
        let start = end.saturating_sub(ROWS);
        let Some(some) = source.read_rows(LAYER_INPUTS, start..end) else {
            break;
        };
        let some = some?;
        let wrong = |e: cactus_tensor::Error| Error::malformed(e.to_string()).of_tensor(LAYER_INPUTS);
        let (values, width) = (some.as_f32().map_err(wrong)?, some.shape()[1].max(1));
        let mut found = values.chunks(width);
        if let Some(last) = found.rposition(|row| row.iter().any(|&x| x != 0.0)) {
            return Ok(start + last + 1);
        }
        end = start;
    }
    Ok(rows)
}
