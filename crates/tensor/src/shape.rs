use crate::{Error, Result};

/// Number of elements of `shape`; 1 for a scalar.
///
/// # Errors
/// [`Error::Overflow`] where the product does not fit `usize`.
pub fn element_count(shape: &[usize]) -> Result<usize> {
    shape
        .iter()
        .try_fold(1usize, |n, &d| n.checked_mul(d))
        .ok_or_else(|| Error::Overflow { shape: shape.to_vec() })
}

/// Row-major strides of `shape`, in elements.
pub fn strides_row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

/// The shape that `left` and `right` broadcast to, by NumPy's rule: aligned at the last axis, each pair of sizes equal
/// or one of them 1.
///
/// # Errors
/// [`Error::Broadcast`] where a pair of sizes differs and neither is 1.
pub fn broadcast_shapes(left: &[usize], right: &[usize]) -> Result<Vec<usize>> {
    let rank = left.len().max(right.len());
    let at = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |j| s[j]);
    (0..rank)
        .map(|i| match (at(left, i), at(right, i)) {
            (a, b) if a == b => Ok(a),
            (1, b) => Ok(b),
            (a, 1) => Ok(a),
            _ => Err(Error::Broadcast {
                left: left.to_vec(),
                right: right.to_vec(),
            }),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn element_count_of_huge_shape_is_an_error() {
        assert_eq!(element_count(&[]).unwrap(), 1);
        assert_eq!(element_count(&[2, 0, 3]).unwrap(), 0);
        assert!(element_count(&[usize::MAX, 2]).is_err());
    }

    #[test]
    fn broadcast_follows_numpy() {
        type Case<'a> = (&'a [usize], &'a [usize], Option<&'a [usize]>);
        let cases: &[Case<'_>] = &[
            (&[2, 3], &[3], Some(&[2, 3])),
            (&[2, 1, 4], &[3, 1], Some(&[2, 3, 4])),
            (&[], &[5], Some(&[5])),
            (&[2], &[3], None),
        ];
        for (a, b, want) in cases {
            assert_eq!(broadcast_shapes(a, b).ok().as_deref(), *want, "{a:?} {b:?}");
        }
    }

    #[test]
    fn strides_are_row_major() {
        assert_eq!(strides_row_major(&[2, 3, 4]), [12, 4, 1]);
        assert_eq!(strides_row_major(&[]), [0usize; 0]);
    }
}
