//! The order of heads of values in a gated delta net, several of which share a head of keys.
//!
//! Hugging Face has those of one head of keys beside each other; llama.cpp has the first of each head of keys, then the second of each.

use super::Metadata;
use super::metadata::required;
use super::names::OfValues;
use crate::{Error, Result};

/// Where the rows (or columns, or elements) of heads of values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueHeads {
    /// Heads of keys.
    keys: usize,
    /// Heads of values for each of them.
    each: usize,
    /// Rows before the first of values.
    first: usize,
    /// Rows of a head.
    width: usize,
}

impl ValueHeads {
    /// Those of a tensor with so many rows, of which heads of values have what `part` says; `arch` is before the keys.
    pub(super) fn read(metadata: &Metadata, arch: &str, part: OfValues, rows: usize) -> Result<ValueHeads> {
        let count = |suffix: &str| {
            let key = format!("{arch}.ssm.{suffix}");
            required(metadata.count(&key)?, &key)
        };
        let (keys, values) = (count("group_count")?, count("time_step_rank")?);
        if keys == 0 || values == 0 || !values.is_multiple_of(keys) {
            return Err(Error::malformed(format!(
                "`{arch}.ssm.time_step_rank` should be a multiple of `{arch}.ssm.group_count`, found {values} and {keys}"
            )));
        }
        let first = match part {
            OfValues::RowsBehindKeys | OfValues::Taps => {
                count("state_size")?.checked_mul(keys).and_then(|n| n.checked_mul(2))
            }
            OfValues::Rows | OfValues::Columns | OfValues::Decays => Some(0),
        };
        let first = first.filter(|&first| first < rows && (rows - first).is_multiple_of(values));
        let Some(first) = first else {
            return Err(Error::malformed(format!(
                "its {rows} rows are not those of {keys} heads of queries and keys and {values} of values"
            )));
        };
        Ok(ValueHeads {
            keys,
            each: values / keys,
            first,
            width: (rows - first) / values,
        })
    }

    /// The stored row that Hugging Face's `row` comes from.
    fn stored(&self, row: usize) -> usize {
        let Some(behind) = row.checked_sub(self.first) else {
            return row;
        };
        let (head, within) = (behind / self.width, behind % self.width);
        let head = head % self.each * self.keys + head / self.each;
        self.first + head * self.width + within
    }

    /// `values` of so many rows in the order of Hugging Face.
    pub(super) fn rows(&self, values: &[f32], rows: usize) -> Vec<f32> {
        let width = values.len() / rows.max(1);
        let stored = (0..rows).map(|row| self.stored(row) * width);
        stored.flat_map(|at| values[at..at + width].iter().copied()).collect()
    }

    /// `values` of so many columns in the order of Hugging Face.
    pub(super) fn columns(&self, values: &[f32], columns: usize) -> Vec<f32> {
        let rows = values.chunks(columns.max(1));
        rows.flat_map(|row| (0..row.len()).map(|column| row[self.stored(column)]))
            .collect()
    }
}

/// What `-exp` made each of `values` of.
pub(super) fn logarithms(values: &[f32]) -> Result<Vec<f32>> {
    let of = |&v: &f32| {
        let made = (-f64::from(v)).ln() as f32;
        match v < 0.0 && made.is_finite() {
            true => Ok(made),
            false => Err(Error::malformed(format!("expected numbers below 0, found {v}"))),
        }
    };
    values.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_values_get_the_order_of_hugging_face() {
        // Two heads of keys, three of values each, of two rows; one row before them.
        let heads = ValueHeads {
            keys: 2,
            each: 3,
            first: 1,
            width: 2,
        };
        let stored: Vec<f32> = (0..13u8).map(f32::from).collect();
        let want = [0.0, 1.0, 2.0, 5.0, 6.0, 9.0, 10.0, 3.0, 4.0, 7.0, 8.0, 11.0, 12.0];
        assert_eq!(heads.rows(&stored, 13), want);
        assert_eq!(heads.columns(&stored, 13), want);
    }

    #[test]
    fn logarithms_are_of_numbers_below_zero() {
        let want = [-2.125f32, 4.0, 2.75];
        let stored = want.map(|x| -(f64::from(x).exp() as f32));
        assert_eq!(logarithms(&stored).unwrap(), want);
        for bad in [0.0, 1.0, f32::NAN, f32::NEG_INFINITY] {
            let error = logarithms(&[-1.0, bad]).unwrap_err();
            assert!(error.to_string().contains("below 0"), "{error}");
        }
    }
}
