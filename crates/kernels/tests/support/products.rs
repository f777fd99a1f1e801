//! What the tests of products share: activations of the kind that a packing takes, and the comparison of every tier and
//! thread count with a scalar model, bit by bit.

use cactus_base::{Pool, Step};
use cactus_kernels::{Activations, Epilogue, Exec, Kernels, QuantizedRows, RotatedRows};
use cactus_quant::{PackedView, Packing, pack};
use cactus_testkit::noise;

/// Sets `out` to the product that the documented order of arithmetic gives, one output at a time.
pub(crate) type Model = fn(w: &PackedView<'_>, x: &[f32], rows: usize, epilogue: Epilogue<'_>, out: &mut [f32]);

/// Calls `f` with `x` as the activations that the packing of `w` takes.
pub(crate) fn with_activations(
    exec: Exec<'_>,
    w: &PackedView<'_>,
    x: &[f32],
    rows: usize,
    f: impl FnOnce(Activations<'_>),
) {
    let k = w.k();
    let words = QuantizedRows::bytes(rows, k).max(RotatedRows::bytes(rows, k)).unwrap() / 4;
    let mut memory = vec![u32::MAX; words];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
    if w.packing() == Packing::Int8G32 {
        exec.quantize_rows(x, rows, k, &mut QuantizedRows::new(bytes, rows, k));
        f(Activations::Q8(QuantizedRows::new(bytes, rows, k)));
    } else if w.packing().codebook_bits().is_some() {
        exec.rotate_rows(x, rows, k, &mut RotatedRows::new(bytes, rows, k));
        f(Activations::Rotated(RotatedRows::new(bytes, rows, k)));
    } else {
        f(Activations::F32(x));
    }
}

pub(crate) fn linear(
    exec: Exec<'_>,
    w: &PackedView<'_>,
    x: &[f32],
    rows: usize,
    epilogue: Epilogue<'_>,
    out: &mut [f32],
) {
    with_activations(exec, w, x, rows, |x| exec.linear(w, x, rows, epilogue, out));
}

/// Compares all tiers, at one and two threads, with the model, bit by bit; returns the model's result. `x` is
/// `noise(rows * k, seed + 1)`.
pub(crate) fn check(
    model: Model,
    packing: Packing,
    [n, k, rows]: [usize; 3],
    bias: bool,
    accumulate: bool,
    seed: u64,
) -> Vec<f32> {
    let packed = pack(packing, n, k, &noise(n * k, seed)).unwrap();
    let w = packed.view();
    let x = noise(rows * k, seed + 1);
    let bias = bias.then(|| noise(n, seed + 2));
    let epilogue = Epilogue {
        bias: bias.as_deref(),
        accumulate,
        ..Epilogue::default()
    };
    let before = noise(rows * n, seed + 3);
    let mut expected = before.clone();
    model(&w, &x, rows, epilogue, &mut expected);
    let pool = Pool::new(2);
    for kernels in Kernels::available() {
        for step in [Step::inline(), pool.step(2)] {
            let mut out = before.clone();
            linear(Exec { kernels, step: &step }, &w, &x, rows, epilogue, &mut out);
            for (i, (a, b)) in out.iter().zip(&expected).enumerate() {
                let (tier, width) = (kernels.tier(), step.width());
                let case = format!("{packing} {n}x{k} rows {rows} {tier} width {width}");
                let at = (i / n, i % n);
                assert_eq!(a.to_bits(), b.to_bits(), "{case} at {at:?}: {a} expected {b}");
            }
        }
    }
    expected
}

/// [`check`] over every combination of sizes of at most `most` multiply-adds (or of 9 rows).
pub(crate) fn check_edges(model: Model, packings: &[Packing], widths: &[usize], rows: &[usize], most: usize) {
    for &packing in packings {
        for n in [1, 15, 16, 17, 33, 48] {
            for &k in widths {
                for &rows in rows {
                    if n * k * rows > most && rows != 9 {
                        continue;
                    }
                    let seed = (n * 31 + k * 7 + rows) as u64;
                    check(model, packing, [n, k, rows], rows % 2 == 0, rows % 3 == 0, seed);
                }
            }
        }
    }
}

/// [`check`] with enough weights for several runs of blocks and parts.
pub(crate) fn check_many_blocks(model: Model, packings: &[Packing]) {
    for &packing in packings {
        for rows in [1, 8, 13] {
            check(model, packing, [1000, 640, rows], false, false, 77);
        }
    }
}

/// Asserts that rows computed a few at a time have the bits of all at once.
pub(crate) fn assert_any_grouping_gives_equal_bits(packings: &[Packing], k: usize) {
    let (n, rows) = (40, 21);
    for &packing in packings {
        let packed = pack(packing, n, k, &noise(n * k, 3)).unwrap();
        let x = noise(rows * k, 4);
        for kernels in Kernels::available() {
            let step = Step::inline();
            let exec = Exec { kernels, step: &step };
            let mut whole = vec![0.0; rows * n];
            linear(exec, &packed.view(), &x, rows, Epilogue::default(), &mut whole);
            for chunk in [1, 2, 5, 8, 16] {
                let mut pieces = vec![0.0; rows * n];
                for (x, out) in x.chunks(chunk * k).zip(pieces.chunks_mut(chunk * n)) {
                    linear(exec, &packed.view(), x, x.len() / k, Epilogue::default(), out);
                }
                assert!(
                    whole.iter().zip(&pieces).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{packing} {chunk}"
                );
            }
        }
    }
}

/// Root of the squared differences between `found` and the product of `w [n, k]` and `x [rows, k]` in `f64`, relative to
/// the product.
pub(crate) fn relative_error(found: &[f32], w: &PackedView<'_>, x: &[f32], rows: usize) -> f64 {
    let (n, k) = (w.n(), w.k());
    let mut decoded = vec![0f32; k];
    let (mut error, mut power) = (0f64, 0f64);
    for o in 0..n {
        w.decode_row(o, &mut decoded);
        for r in 0..rows {
            let terms = decoded.iter().zip(&x[r * k..]);
            let exact: f64 = terms.map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
            error += (f64::from(found[r * n + o]) - exact).powi(2);
            power += exact * exact;
        }
    }
    (error / power).sqrt()
}
