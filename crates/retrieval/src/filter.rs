//! Which documents a search looks at, by their metadata.
//!
//! A filter becomes a set of rows of each segment, column by column, before anything is compared. So a search with a filter
//! is as exact as one without, and finds as many results as there are.

use crate::bitmap::Bitmap;
use crate::document::{Value, ValueKind};
use crate::error::{Error, ErrorKind, Result};
use crate::segment::Segment;
use crate::segment::column::{Column, Data};
use std::cmp::Ordering;
use std::path::Path;

/// A condition on the metadata of a document.
///
/// Whole numbers and floats are compared by value with each other; values of other types are never equal across types. A
/// condition on a list holds where it holds for one of its texts. A document without the value meets no condition but
/// [`Filter::Not`] of one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Filter {
    /// The value of this name is this one; a list has this text.
    Eq(String, Value),
    /// It is one of these.
    In(String, Vec<Value>),
    /// It lies between these, both included; a missing one is no bound. Numbers by value, texts by their bytes.
    Range(String, Option<Value>, Option<Value>),
    /// There is a value of this name, whatever it is.
    Exists(String),
    /// All of these hold; of none, every document does.
    And(Vec<Filter>),
    /// One of these holds; of none, no document does.
    Or(Vec<Filter>),
    /// This does not hold.
    Not(Box<Filter>),
}

/// Filters may not be nested deeper.
const MAX_DEPTH: usize = 64;

impl Filter {
    /// [`Filter::Eq`]
    pub fn eq(name: &str, value: impl Into<Value>) -> Filter {
        Filter::Eq(name.to_owned(), value.into())
    }

    /// [`Filter::Range`] with both bounds.
    pub fn between(name: &str, from: impl Into<Value>, to: impl Into<Value>) -> Filter {
        Filter::Range(name.to_owned(), Some(from.into()), Some(to.into()))
    }

    /// [`Filter::Exists`]
    #[must_use]
    pub fn exists(name: &str) -> Filter {
        Filter::Exists(name.to_owned())
    }

    /// [`Filter::Not`]
    #[must_use]
    pub fn negated(self) -> Filter {
        Filter::Not(Box::new(self))
    }

    /// An error where a filter can never be meant.
    pub(crate) fn check(&self, path: &Path) -> Result<()> {
        self.check_below(path, 0)
    }

    fn check_below(&self, path: &Path, depth: usize) -> Result<()> {
        let invalid = |what: String| Err(Error::new(ErrorKind::Invalid, path, format!("filter: {what}")));
        if depth > MAX_DEPTH {
            return invalid(format!("expected at most {MAX_DEPTH} levels"));
        }
        match self {
            Filter::And(filters) | Filter::Or(filters) => filters
                .iter()
                .try_for_each(|filter| filter.check_below(path, depth + 1)),
            Filter::Not(filter) => filter.check_below(path, depth + 1),
            Filter::Exists(_) => Ok(()),
            Filter::Eq(name, value) => check_value(name, value).map_or(Ok(()), invalid),
            Filter::In(name, values) => {
                let problem = values.iter().find_map(|value| check_value(name, value));
                problem.map_or(Ok(()), invalid)
            }
            Filter::Range(name, from, to) => {
                let bounds = [from, to];
                let mut bounds = bounds.into_iter().flatten();
                let problem = bounds.clone().find_map(|value| match value {
                    Value::Bool(_) => Some(format!(
                        "`{name}`: expected numbers or texts as bounds, found a truth value"
                    )),
                    value => check_value(name, value),
                });
                if let Some(problem) = problem {
                    return invalid(problem);
                }
                match (bounds.next(), bounds.next()) {
                    (None, _) => invalid(format!("`{name}`: expected a bound, found none")),
                    (Some(a), Some(b)) if compare(a, b).is_none() => invalid(format!(
                        "`{name}`: expected bounds that can be compared, found {a:?} and {b:?}"
                    )),
                    _ => Ok(()),
                }
            }
        }
    }

    /// The rows of a segment for which it holds, deleted ones among them.
    pub(crate) fn rows(&self, segment: &Segment) -> Result<Bitmap> {
        Ok(match self {
            Filter::And(filters) => {
                let mut rows = Bitmap::full(segment.rows);
                for filter in filters {
                    rows = rows.and(&filter.rows(segment)?);
                }
                rows
            }
            Filter::Or(filters) => {
                let mut rows = Bitmap::new(segment.rows);
                for filter in filters {
                    rows = rows.or(&filter.rows(segment)?);
                }
                rows
            }
            Filter::Not(filter) => filter.rows(segment)?.not(),
            Filter::Exists(name) => {
                let mut rows = Bitmap::new(segment.rows);
                for kind in ValueKind::ALL {
                    if let Some(column) = segment.column(name, kind)? {
                        // Nothing is looked at that could be unreadable.
                        let _ = keep(&column, &mut rows, |_| Some(true));
                    }
                }
                rows
            }
            Filter::Eq(name, value) => matching(segment, name, &Test::one_of(std::slice::from_ref(value)))?,
            Filter::In(name, values) => matching(segment, name, &Test::one_of(values))?,
            Filter::Range(name, from, to) => matching(segment, name, &Test::Range(from.as_ref(), to.as_ref()))?,
        })
    }
}

fn check_value(name: &str, value: &Value) -> Option<String> {
    match value {
        Value::List(_) => Some(format!(
            "`{name}`: expected a single value, found a list; a list has a text where `Eq` holds"
        )),
        Value::Float(x) if x.is_nan() => Some(format!("`{name}`: expected a number, found NaN")),
        _ => None,
    }
}

/// What a value has to be.
enum Test<'a> {
    OneOf(&'a [Value]),
    Range(Option<&'a Value>, Option<&'a Value>),
}

impl<'a> Test<'a> {
    fn one_of(values: &'a [Value]) -> Test<'a> {
        Test::OneOf(values)
    }

    fn holds(&self, value: &Value) -> bool {
        match self {
            Test::OneOf(values) => values.iter().any(|v| compare(value, v) == Some(Ordering::Equal)),
            Test::Range(from, to) => {
                let from = from.is_none_or(|from| compare(value, from).is_some_and(Ordering::is_ge));
                from && to.is_none_or(|to| compare(value, to).is_some_and(Ordering::is_le))
            }
        }
    }
}

/// The order of two values, where they have one.
fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Integer(a), Value::Integer(b)) => Some(a.cmp(b)),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Integer(a), Value::Float(b)) => integer_with_float(*a, *b),
        (Value::Float(a), Value::Integer(b)) => integer_with_float(*b, *a).map(Ordering::reverse),
        _ => None,
    }
}

/// Exactly, also where the integer has more digits than a float.
fn integer_with_float(a: i64, b: f64) -> Option<Ordering> {
    if b.is_nan() {
        return None;
    }
    // 2^63, the first float above every integer.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    Some(if b >= LIMIT {
        Ordering::Less
    } else if b < -LIMIT {
        Ordering::Greater
    } else {
        let whole = b.trunc();
        a.cmp(&(whole as i64)).then(0.0f64.partial_cmp(&(b - whole))?)
    })
}

/// The rows whose value of this name passes.
fn matching(segment: &Segment, name: &str, test: &Test<'_>) -> Result<Bitmap> {
    let mut rows = Bitmap::new(segment.rows);
    for kind in ValueKind::ALL {
        if let Some(column) = segment.column(name, kind)? {
            in_column(&column, test, &mut rows).ok_or_else(|| segment.damaged("a column"))?;
        }
    }
    Ok(rows)
}

/// Adds the rows of a column that pass; `None` where it cannot be read.
fn in_column(column: &Column<'_>, test: &Test<'_>, rows: &mut Bitmap) -> Option<()> {
    match &column.data {
        Data::Integer(values) => keep(column, rows, |row| Some(test.holds(&Value::Integer(*values.get(row)?)))),
        Data::Float(values) => keep(column, rows, |row| Some(test.holds(&Value::Float(*values.get(row)?)))),
        Data::Bool(words) => {
            let each = [false, true].map(|b| test.holds(&Value::Bool(b)));
            keep(column, rows, |row| {
                Some(each[usize::from(words.get(row / 64)? >> (row % 64) & 1 == 1)])
            })
        }
        // Texts are compared once for each that there is.
        Data::Text { codes, dictionary } => {
            let passing = passing(dictionary, test)?;
            keep(column, rows, |row| Some(passing.has(*codes.get(row)? as usize)))
        }
        Data::List { codes, dictionary, .. } => {
            let passing = passing(dictionary, test)?;
            keep(column, rows, |row| {
                let codes = codes.get(column.list(row)?)?;
                Some(codes.iter().any(|code| passing.has(*code as usize)))
            })
        }
    }
}

/// Adds the rows with a value that pass.
#[inline]
fn keep(column: &Column<'_>, rows: &mut Bitmap, passes: impl Fn(usize) -> Option<bool>) -> Option<()> {
    for (i, (word, present)) in rows.words_mut().iter_mut().zip(column.present).enumerate() {
        let mut left = *present;
        while left != 0 {
            let bit = left.trailing_zeros() as usize;
            *word |= u64::from(passes(64 * i + bit)?) << bit;
            left &= left - 1;
        }
    }
    Some(())
}

/// The texts of a dictionary that pass.
fn passing(dictionary: &crate::segment::strings::Strings<'_>, test: &Test<'_>) -> Option<Bitmap> {
    let mut passing = Bitmap::new(dictionary.count());
    match test {
        Test::OneOf(values) => {
            for value in *values {
                if let Value::Text(text) = value
                    && let Some(at) = dictionary.find(text.as_bytes())?
                {
                    passing.set(at);
                }
            }
        }
        Test::Range(..) => {
            for at in 0..dictionary.count() {
                if test.holds(&Value::Text(dictionary.get(at)?.to_owned())) {
                    passing.set(at);
                }
            }
        }
    }
    Some(passing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_by_value_however_many_digits_they_have() {
        let big = 9_007_199_254_740_993i64; // 2^53 + 1, which is no float
        let cases = [
            (3, 3.0, Some(Ordering::Equal)),
            (3, 3.5, Some(Ordering::Less)),
            (-3, -3.5, Some(Ordering::Greater)),
            (big, 9_007_199_254_740_992.0, Some(Ordering::Greater)),
            (i64::MAX, 9_223_372_036_854_775_808.0, Some(Ordering::Less)),
            (i64::MIN, -9_223_372_036_854_775_808.0, Some(Ordering::Equal)),
            (i64::MIN, f64::NEG_INFINITY, Some(Ordering::Greater)),
            (0, f64::NAN, None),
        ];
        for (a, b, expected) in cases {
            assert_eq!(compare(&Value::Integer(a), &Value::Float(b)), expected, "{a} {b}");
            let turned = compare(&Value::Float(b), &Value::Integer(a));
            assert_eq!(turned, expected.map(Ordering::reverse), "{b} {a}");
        }
        assert_eq!(compare(&Value::Bool(true), &Value::Integer(1)), None);
        assert_eq!(compare(&Value::Text("1".to_owned()), &Value::Integer(1)), None);
    }
}
