//! The peaks that a product leaves beside its outputs, for every packing, tier, number of rows and threads.

use cactus_base::{Pool, Step};
use cactus_kernels::matmul::PEAK_OUTPUTS;
use cactus_kernels::{Activations, Epilogue, Exec, Kernels, QuantizedRows, RotatedRows};
use cactus_quant::{PackedView, Packing, pack};

/// Deterministic values in `-1..1`.
fn values(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i as f32 * 0.7391 + (i / 7) as f32).sin()).collect()
}

/// Calls `f` with activations of the kind that `w` takes.
fn with_activations(exec: Exec<'_>, w: &PackedView<'_>, x: &[f32], rows: usize, f: &mut dyn FnMut(Activations<'_>)) {
    let k = w.k();
    let words = QuantizedRows::bytes(rows, k).max(RotatedRows::bytes(rows, k)).unwrap() / 4;
    let mut memory = vec![0u32; words];
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

#[test]
fn peaks_are_the_largest_of_each_stretch_and_nan_where_one_is_not_finite() {
    let pool = Pool::new(2);
    let packings = [
        Packing::RowMajor,
        Packing::Int8G32,
        Packing::F16N16,
        Packing::F32N16,
        Packing::Cq4G128,
        Packing::Cq6G128,
    ];
    for packing in packings {
        for (n, k) in [(1, 32), (17, 96), (48, 128), (999, 640)] {
            let packed = pack(packing, n, k, &values(n * k)).unwrap();
            let w = packed.view();
            let mut bias = values(n);
            if n > 40 {
                (bias[3], bias[20], bias[40]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
            }
            for rows in [1, 2, 5, 8, 9, 17] {
                let x = values(rows * k);
                let blocks = n.div_ceil(PEAK_OUTPUTS);
                for kernels in Kernels::available() {
                    for step in [Step::inline(), pool.step(2)] {
                        let exec = Exec { kernels, step: &step };
                        let case = format!(
                            "{packing} {n}x{k} rows {rows} {} width {}",
                            kernels.tier(),
                            step.width()
                        );
                        let (mut plain, mut out) = (vec![0.0; rows * n], vec![0.0; rows * n]);
                        let mut peaks = vec![0.0; rows * blocks];
                        let epilogue = Epilogue {
                            bias: Some(&bias),
                            accumulate: false,
                        };
                        with_activations(exec, &w, &x, rows, &mut |x| {
                            exec.linear(&w, x, rows, epilogue, &mut plain)
                        });
                        with_activations(exec, &w, &x, rows, &mut |x| {
                            exec.linear_with_peaks(&w, x, rows, Some(&bias), &mut out, &mut peaks);
                        });
                        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                        assert_eq!(bits(&out), bits(&plain), "{case}");
                        let stretches = out.chunks(n).flat_map(|row| row.chunks(PEAK_OUTPUTS));
                        for (i, (stretch, &peak)) in stretches.zip(&peaks).enumerate() {
                            if stretch.iter().all(|x| x.is_finite()) {
                                let largest = stretch.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                                assert_eq!(peak, largest, "{case}: peak {i}");
                            } else {
                                assert!(peak.is_nan(), "{case}: peak {i} is {peak}");
                            }
                        }
                    }
                }
            }
        }
    }
}
