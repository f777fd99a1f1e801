//! Order, running sums, and elements picked or placed by index. Indices are checked by the caller.

use std::cmp::Ordering;
use std::ops::AddAssign;

/// Slices of `x [outer, n, inner]` at `ids`: `out [outer, ids, inner]`.
///
/// # Panics
/// When a length does not fit or an index is not below `n`: programming errors.
pub fn take<T: Copy>(x: &[T], [outer, n, inner]: [usize; 3], ids: &[i64], out: &mut [T]) {
    assert_eq!(out.len(), outer * ids.len() * inner, "take: elements of the output");
    if inner == 0 {
        return;
    }
    for (o, to) in out.chunks_exact_mut((ids.len() * inner).max(1)).enumerate() {
        for (&id, to) in ids.iter().zip(to.chunks_exact_mut(inner)) {
            let first = (o * n + id as usize) * inner;
            to.copy_from_slice(&x[first..first + inner]);
        }
    }
}

/// Calls `f` with the place in `x` for every element of `ids`.
fn places(shape: &[usize], axis: usize, ids: &[i64], ids_shape: &[usize], mut f: impl FnMut(usize, usize)) {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    let mut index = vec![0usize; shape.len()];
    for (n, &id) in ids.iter().enumerate() {
        let at = (0..shape.len()).map(|i| if i == axis { id as usize } else { index[i] } * strides[i]);
        f(n, at.sum());
        for i in (0..shape.len()).rev() {
            index[i] += 1;
            if index[i] < ids_shape[i] {
                break;
            }
            index[i] = 0;
        }
    }
}

/// One element of `x` for each of `ids`, whose place along `axis` it gives.
///
/// # Panics
/// As [`take`].
pub fn gather<T: Copy>(x: &[T], shape: &[usize], axis: usize, ids: &[i64], ids_shape: &[usize], out: &mut [T]) {
    places(shape, axis, ids, ids_shape, |n, at| out[n] = x[at]);
}

/// Replaces elements of `x`, or adds to them, as [`gather`] would read them.
///
/// # Panics
/// As [`take`].
pub fn scatter<T: Copy + AddAssign>(
    x: &mut [T],
    shape: &[usize],
    axis: usize,
    ids: &[i64],
    ids_shape: &[usize],
    updates: &[T],
    add: bool,
) {
    places(shape, axis, ids, ids_shape, |n, at| match add {
        true => x[at] += updates[n],
        false => x[at] = updates[n],
    });
}

/// Order of two elements, where there is one; `None` where one is NaN.
fn order<T: PartialOrd>(a: T, b: T) -> Option<Ordering> {
    a.partial_cmp(&b)
}

/// Index of the first largest (or smallest) element of each line of `x [outer, n, inner]`; of the first NaN, where there
/// is one.
///
/// # Panics
/// When a length does not fit or `n` is 0: programming errors.
#[allow(clippy::eq_op, reason = "only NaN differs from itself")]
pub fn arg_extreme<T: PartialOrd + Copy>(x: &[T], [outer, n, inner]: [usize; 3], largest: bool, out: &mut [i64]) {
    assert!(n > 0 && out.len() == outer * inner, "arg_extreme: lengths");
    for (i, slot) in out.iter_mut().enumerate() {
        let first = i / inner * n * inner + i % inner;
        let mut best = (x[first], 0);
        for j in 1..n {
            let v = x[first + j * inner];
            let is_nan = v != v;
            let better = match order(v, best.0) {
                Some(Ordering::Greater) => largest,
                Some(Ordering::Less) => !largest,
                Some(Ordering::Equal) => false,
                None => is_nan && best.0 == best.0,
            };
            if better {
                best = (v, j);
            }
        }
        *slot = best.1 as i64;
    }
}

/// The indices that sort each line of `x [outer, n, inner]`, equal elements in their order; NaN counts as the largest.
///
/// # Panics
/// When a length does not fit: a programming error.
#[allow(clippy::eq_op, reason = "only NaN differs from itself")]
pub fn arg_sort<T: PartialOrd + Copy>(x: &[T], [outer, n, inner]: [usize; 3], descending: bool, out: &mut [i64]) {
    assert_eq!(out.len(), outer * n * inner, "arg_sort: elements of the output");
    let mut indices = Vec::with_capacity(n);
    for i in 0..outer * inner {
        let first = i / inner * n * inner + i % inner;
        indices.clear();
        indices.extend(0..n);
        indices.sort_by(|&a, &b| {
            let (a, b) = (x[first + a * inner], x[first + b * inner]);
            let o = order(a, b).unwrap_or_else(|| (a != a).cmp(&(b != b)));
            if descending { o.reverse() } else { o }
        });
        for (j, &from) in indices.iter().enumerate() {
            out[first + j * inner] = from as i64;
        }
    }
}

/// Running sums of each line of `x [outer, n, inner]`, in order.
///
/// # Panics
/// When a length does not fit: a programming error.
pub fn cum_sum<T: Copy>(x: &[T], [outer, n, inner]: [usize; 3], add: impl Fn(T, T) -> T, out: &mut [T]) {
    assert_eq!(out.len(), outer * n * inner, "cum_sum: elements of the output");
    out.copy_from_slice(x);
    for o in 0..outer {
        for at in (o * n + 1) * inner..(o + 1) * n * inner {
            out[at] = add(out[at - inner], out[at]);
        }
    }
}
