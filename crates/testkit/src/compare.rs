use cactus_tensor::Tensor;

/// The largest `|actual - expected|` over the largest `|expected|` (or over 1, where that is smaller), and its index.
/// Equal infinities do not differ; a NaN on one side differs infinitely.
///
/// # Panics
/// Where the shapes differ or a tensor is not `f32`.
pub fn difference(actual: &Tensor, expected: &Tensor) -> (f32, usize) {
    assert_eq!(actual.shape(), expected.shape(), "the shapes differ");
    let (a, b) = (f32s(actual), f32s(expected));
    let finite = b.iter().copied().filter(|v| v.is_finite());
    let unit = finite.map(f32::abs).fold(1.0, f32::max);
    let mut worst = (0.0, 0);
    for (i, (&a, &b)) in a.iter().zip(b).enumerate() {
        let d = match (a - b).abs() / unit {
            _ if a == b || (a.is_nan() && b.is_nan()) => 0.0,
            d if d.is_nan() => f32::INFINITY,
            d => d,
        };
        if d > worst.0 {
            worst = (d, i);
        }
    }
    worst
}

/// Asserts that [`difference`] is at most `tolerance`; `what` names the case.
///
/// # Panics
/// Where it is larger, with the place and both values.
#[track_caller]
pub fn assert_close(actual: &Tensor, expected: &Tensor, tolerance: f32, what: &str) {
    let (worst, at) = difference(actual, expected);
    assert!(
        worst <= tolerance,
        "{what}: element {at} of {:?} is {}, expected {} (off by {worst:e}, allowed {tolerance:e})",
        actual.shape(),
        f32s(actual)[at],
        f32s(expected)[at],
    );
}

fn f32s(t: &Tensor) -> &[f32] {
    t.as_f32().expect("only f32 tensors are compared")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(v: &[f32]) -> Tensor {
        Tensor::from_f32([v.len()], v.to_vec()).unwrap()
    }

    #[test]
    fn difference_finds_the_worst_element() {
        let inf = f32::INFINITY;
        let cases: &[(&[f32], &[f32], f32, usize)] = &[
            (&[1.0, 2.0], &[1.0, 2.0], 0.0, 0),
            (&[1.0, 2.5], &[1.0, 2.0], 0.25, 1),
            (&[0.5, 0.0], &[0.25, 0.0], 0.25, 0),
            (&[inf, -inf], &[inf, -inf], 0.0, 0),
            (&[1.0, f32::NAN], &[1.0, 1.0], inf, 1),
            (&[f32::NAN], &[f32::NAN], 0.0, 0),
        ];
        for (a, b, worst, at) in cases {
            assert_eq!(difference(&tensor(a), &tensor(b)), (*worst, *at), "{a:?} {b:?}");
        }
    }
}
