//! Walking over elements by shape and strides.

use crate::elementwise::{BinaryOp, binary_piece};
use crate::exec::{Exec, SharedMut};
use crate::parts::{part_count, part_range};
use smallvec::{SmallVec, smallvec};

/// Sizes or strides of axes. Those of few axes take no memory of their own, so that a call of a small function takes none.
pub type Dims = SmallVec<[usize; 6]>;

/// Row-major strides of `from` for walking over `shape`, which it broadcasts to: 0 along axes of one element.
#[must_use]
pub fn broadcast_strides(from: &[usize], shape: &[usize]) -> Dims {
    let mut strides: Dims = smallvec![0; shape.len()];
    let added = shape.len() - from.len();
    let mut step = 1;
    for i in (0..from.len()).rev() {
        if from[i] != 1 {
            strides[added + i] = step;
        }
        step *= from[i];
    }
    strides
}

/// The same walk over fewer axes: neighbors that every operand steps through as one are merged, axes of one element left
/// out. There is at least one axis.
fn collapsed<const N: usize>(shape: &[usize], strides: [&[usize]; N]) -> (Dims, [Dims; N]) {
    let mut sizes = Dims::new();
    let mut steps: [Dims; N] = std::array::from_fn(|_| Dims::new());
    for (i, &n) in shape.iter().enumerate() {
        if n == 1 {
            continue;
        }
        let joins = sizes.last().is_some() && (0..N).all(|o| steps[o].last() == Some(&(strides[o][i] * n)));
        if joins {
            if let Some(last) = sizes.last_mut() {
                *last *= n;
            }
            for (own, all) in steps.iter_mut().zip(&strides) {
                if let Some(last) = own.last_mut() {
                    *last = all[i];
                }
            }
        } else {
            sizes.push(n);
            for (own, all) in steps.iter_mut().zip(&strides) {
                own.push(all[i]);
            }
        }
    }
    if sizes.is_empty() {
        sizes.push(1);
        for own in &mut steps {
            own.push(0);
        }
    }
    (sizes, steps)
}

/// Calls `f` with the index of each line along the last axis and the offsets of its first elements, for lines `lines`.
fn for_lines<const N: usize>(
    shape: &[usize],
    strides: &[Dims; N],
    lines: std::ops::Range<usize>,
    mut f: impl FnMut(usize, [usize; N]),
) {
    let outer = &shape[..shape.len() - 1];
    let mut index: Dims = smallvec![0; outer.len()];
    let mut rest = lines.start;
    for i in (0..outer.len()).rev() {
        index[i] = rest % outer[i];
        rest /= outer[i];
    }
    for line in lines {
        let at = std::array::from_fn(|o| index.iter().zip(&strides[o]).map(|(i, s)| i * s).sum());
        f(line, at);
        for i in (0..outer.len()).rev() {
            index[i] += 1;
            if index[i] < outer[i] {
                break;
            }
            index[i] = 0;
        }
    }
}

fn lines_of(shape: &[usize]) -> usize {
    shape[..shape.len() - 1].iter().product()
}

/// `out`, of `shape`, from elements of `x` that begin at `start` and lie `strides` apart.
///
/// # Panics
/// When `out` is not of `shape`, or an element lies outside of `x`: programming errors.
pub fn copy_strided<T: Copy>(x: &[T], start: usize, shape: &[usize], strides: &[usize], out: &mut [T]) {
    if let Some((shape, steps)) = copied(shape, strides, out) {
        copy_lines(x, start, &shape, &steps, out);
    }
}

/// The axes of a copy, merged where they can be; `None` where there is nothing to copy.
fn copied<T>(shape: &[usize], strides: &[usize], out: &[T]) -> Option<(Dims, [Dims; 1])> {
    assert_eq!(
        out.len(),
        shape.iter().product::<usize>(),
        "copy_strided: elements of the output"
    );
    (!out.is_empty()).then(|| collapsed(shape, [strides]))
}

fn copy_lines<T: Copy>(x: &[T], start: usize, shape: &[usize], steps: &[Dims; 1], out: &mut [T]) {
    let n = shape[shape.len() - 1];
    let step = steps[0][shape.len() - 1];
    for_lines(shape, steps, 0..lines_of(shape), |line, [at]| {
        let to = &mut out[line * n..(line + 1) * n];
        let from = &x[start + at..];
        match step {
            1 => to.copy_from_slice(&from[..n]),
            0 => to.fill(from[0]),
            _ => {
                for (to, from) in to.iter_mut().zip(from.iter().step_by(step)) {
                    *to = *from;
                }
            }
        }
    });
}

/// `out = f(a, b)` over `shape`, both broadcast by their strides.
///
/// # Panics
/// As [`copy_strided`].
pub fn map2<A: Copy, B: Copy, O>(
    shape: &[usize],
    a: (&[A], &[usize]),
    b: (&[B], &[usize]),
    out: &mut [O],
    f: impl Fn(A, B) -> O,
) {
    assert_eq!(
        out.len(),
        shape.iter().product::<usize>(),
        "map2: elements of the output"
    );
    if out.is_empty() {
        return;
    }
    let (shape, steps) = collapsed(shape, [a.1, b.1]);
    let n = shape[shape.len() - 1];
    let step = [0, 1].map(|o| steps[o][shape.len() - 1]);
    for_lines(&shape, &steps, 0..lines_of(&shape), |line, at| {
        for (i, to) in out[line * n..(line + 1) * n].iter_mut().enumerate() {
            *to = f(a.0[at[0] + i * step[0]], b.0[at[1] + i * step[1]]);
        }
    });
}

/// `out = f(a, b, c)` over `shape`, all broadcast by their strides.
///
/// # Panics
/// As [`copy_strided`].
pub fn map3<A: Copy, B: Copy, O>(
    shape: &[usize],
    a: (&[A], &[usize]),
    b: (&[B], &[usize]),
    c: (&[B], &[usize]),
    out: &mut [O],
    f: impl Fn(A, B, B) -> O,
) {
    assert_eq!(
        out.len(),
        shape.iter().product::<usize>(),
        "map3: elements of the output"
    );
    if out.is_empty() {
        return;
    }
    let (shape, steps) = collapsed(shape, [a.1, b.1, c.1]);
    let n = shape[shape.len() - 1];
    let step = [0, 1, 2].map(|o| steps[o][shape.len() - 1]);
    for_lines(&shape, &steps, 0..lines_of(&shape), |line, at| {
        let to = &mut out[line * n..(line + 1) * n];
        // Lines that lie close, or are one element, become loops that the compiler makes vectors of.
        if step[0] == 1 && step[1] <= 1 && step[2] <= 1 {
            let a = &a.0[at[0]..][..n];
            let [b, c] = [(b.0, 1), (c.0, 2)].map(|(x, o)| &x[at[o]..][..if step[o] == 0 { 1 } else { n }]);
            match (b, c) {
                ([b], [c]) => (to.iter_mut().zip(a)).for_each(|(to, &a)| *to = f(a, *b, *c)),
                ([b], c) => (to.iter_mut().zip(a).zip(c)).for_each(|((to, &a), &c)| *to = f(a, *b, c)),
                (b, [c]) => (to.iter_mut().zip(a).zip(b)).for_each(|((to, &a), &b)| *to = f(a, b, *c)),
                (b, c) => (to.iter_mut().zip(a).zip(b).zip(c)).for_each(|(((to, &a), &b), &c)| *to = f(a, b, c)),
            }
            return;
        }
        for (i, to) in to.iter_mut().enumerate() {
            let at = |o: usize| at[o] + i * step[o];
            *to = f(a.0[at(0)], b.0[at(1)], c.0[at(2)]);
        }
    });
}

impl Exec<'_> {
    /// As [`copy_strided`], on all threads.
    ///
    /// # Panics
    /// As [`copy_strided`].
    pub fn copy_strided<T: Copy + Send + Sync>(
        &self,
        x: &[T],
        start: usize,
        shape: &[usize],
        strides: &[usize],
        out: &mut [T],
    ) {
        let Some((shape, steps)) = copied(shape, strides, out) else {
            return;
        };
        // The outermost axis of more than one element is what threads divide.
        let (n, each) = (shape[0], out.len() / shape[0]);
        let cost_ns = match steps[0].last() {
            Some(0 | 1) => out.len() / 8 + 4 * lines_of(&shape),
            _ => out.len(),
        };
        let parts = part_count(self.step.width(), cost_ns, 1).clamp(1, n);
        let out = SharedMut::new(out);
        self.step.run(parts, &|part| {
            let rows = part_range(n, parts, part);
            // SAFETY: the rows of different parts are disjoint.
            let out = unsafe { out.piece(rows.start * each..rows.end * each) };
            let mut shape = shape.clone();
            shape[0] = rows.len();
            copy_lines(x, start + rows.start * steps[0][0], &shape, &steps, out);
        });
    }

    /// `out = op(a, b)` over `shape`, both broadcast by their strides, whose last axes lie close or are repeated.
    ///
    /// # Panics
    /// As [`copy_strided`].
    pub fn binary_broadcast(
        &self,
        op: BinaryOp,
        shape: &[usize],
        a: (&[f32], &[usize]),
        b: (&[f32], &[usize]),
        out: &mut [f32],
    ) {
        assert_eq!(
            out.len(),
            shape.iter().product::<usize>(),
            "binary_broadcast: elements of the output"
        );
        if out.is_empty() {
            return;
        }
        let (shape, steps) = collapsed(shape, [a.1, b.1]);
        let n = shape[shape.len() - 1];
        let step = [0, 1].map(|o| steps[o][shape.len() - 1]);
        // Short lines cost more to begin than to compute.
        if step.iter().any(|&s| s > 1) || n < 8 {
            let f = scalar(op);
            return map2(&shape, (a.0, &steps[0]), (b.0, &steps[1]), out, f);
        }
        let lines = lines_of(&shape);
        if lines == 1 && step[0] == 1 {
            return self.binary(op, &a.0[..n], &b.0[..if step[1] == 0 { 1 } else { n }], out);
        }
        let parts = part_count(self.step.width(), lines, n / 8 + 1);
        let (kernels, out) = (self.kernels, SharedMut::new(out));
        self.step.run(parts, &|part| {
            let mut repeated = Vec::new();
            for_lines(&shape, &steps, part_range(lines, parts, part), |line, at| {
                // SAFETY: lines are disjoint, and each is of one part.
                let to = unsafe { out.piece(line * n..(line + 1) * n) };
                let second = &b.0[at[1]..][..if step[1] == 0 { 1 } else { n }];
                if step[0] == 0 && n > 1 {
                    repeated.clear();
                    repeated.resize(n, a.0[at[0]]);
                    binary_piece(kernels, op, &repeated, second, to);
                } else {
                    binary_piece(kernels, op, &a.0[at[0]..][..n], second, to);
                }
            });
        });
    }
}

/// One element of an operation, with the bits of the vectors.
fn scalar(op: BinaryOp) -> fn(f32, f32) -> f32 {
    match op {
        BinaryOp::Add => |a, b| a + b,
        BinaryOp::Sub => |a, b| a - b,
        BinaryOp::Mul => |a, b| a * b,
        BinaryOp::Div => |a, b| a / b,
        BinaryOp::Max => |a, b| if a > b { a } else { b },
        BinaryOp::Min => |a, b| if a < b { a } else { b },
    }
}
