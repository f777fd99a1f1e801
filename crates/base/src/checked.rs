//! Arithmetic on sizes and offsets that cannot wrap.
//!
//! Sizes read from a file are hostile until proven otherwise. These functions return an [`Error`] of kind
//! [`ErrorKind::Overflow`] that says which quantity did not fit.

use crate::error::{Error, ErrorKind, Result};
use std::ops::Range;

/// Product of all `factors`; `what` names the quantity in the error.
///
/// # Errors
/// When the product exceeds `usize::MAX`.
pub fn product(what: &str, factors: &[usize]) -> Result<usize> {
    factors
        .iter()
        .try_fold(1usize, |acc, &f| acc.checked_mul(f))
        .ok_or_else(|| {
            Error::new(
                ErrorKind::Overflow,
                format!("{what}: the product of {factors:?} does not fit usize"),
            )
        })
}

/// Sum of all `terms`; `what` names the quantity in the error.
///
/// # Errors
/// When the sum exceeds `usize::MAX`.
pub fn sum(what: &str, terms: &[usize]) -> Result<usize> {
    terms
        .iter()
        .try_fold(0usize, |acc, &t| acc.checked_add(t))
        .ok_or_else(|| {
            Error::new(
                ErrorKind::Overflow,
                format!("{what}: the sum of {terms:?} does not fit usize"),
            )
        })
}

/// `value` rounded up to a multiple of `unit`.
///
/// # Errors
/// When the result exceeds `usize::MAX` or `unit` is zero.
pub fn round_up(what: &str, value: usize, unit: usize) -> Result<usize> {
    value.checked_next_multiple_of(unit).ok_or_else(|| {
        Error::new(
            ErrorKind::Overflow,
            format!("{what}: {value} cannot be rounded up to a multiple of {unit}"),
        )
    })
}

/// `value` as `usize`.
///
/// # Errors
/// When the value is negative or too large for this platform.
pub fn to_usize<T: TryInto<usize> + Copy + std::fmt::Display>(what: &str, value: T) -> Result<usize> {
    value
        .try_into()
        .map_err(|_| Error::new(ErrorKind::Overflow, format!("{what}: {value} does not fit usize")))
}

/// The range `offset..offset + len`, checked to lie inside a container of `container_len` bytes.
///
/// # Errors
/// When the end overflows or lies past the container.
pub fn range(what: &str, offset: usize, len: usize, container_len: usize) -> Result<Range<usize>> {
    match offset.checked_add(len) {
        Some(end) if end <= container_len => Ok(offset..end),
        _ => Err(Error::new(
            ErrorKind::Overflow,
            format!("{what}: {len} bytes at offset {offset} lie outside of the {container_len} bytes available"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_overflow_names_quantity() {
        assert_eq!(product("rows", &[3, 4, 5]).unwrap(), 60);
        let error = product("rows", &[usize::MAX, 2]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Overflow);
        assert!(error.to_string().starts_with("rows:"), "{error}");
    }

    #[test]
    fn range_bounds_are_inclusive_of_end() {
        assert_eq!(range("scales", 8, 8, 16).unwrap(), 8..16);
        for (offset, len) in [(8, 9), (17, 0), (usize::MAX, 2)] {
            assert!(range("scales", offset, len, 16).is_err(), "{offset} {len}");
        }
    }

    #[test]
    fn round_up_and_conversions_report_what_does_not_fit() {
        assert_eq!(round_up("capacity", 65, 64).unwrap(), 128);
        assert!(round_up("capacity", usize::MAX, 64).is_err());
        assert!(round_up("capacity", 1, 0).is_err());
        assert!(sum("total", &[usize::MAX, 1]).is_err());
        assert!(to_usize("offset", -1i64).is_err());
        assert_eq!(to_usize("offset", 7u64).unwrap(), 7);
    }
}
