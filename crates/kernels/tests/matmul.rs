//! Products of packed weights: every tier and thread count against a bit-exact scalar model of the documented order,
//! the model against `f64`, over edge shapes.

mod support;

use cactus_base::{Pool, Step};
use cactus_kernels::{Activations, Epilogue, ErrorKind, Exec, Kernels, QuantizedRows};
use cactus_quant::{PackedView, Packing, pack};
use cactus_testkit::noise;
use proptest::prelude::*;
use support::products::{
    assert_any_grouping_gives_equal_bits, check, check_edges, check_many_blocks, linear, relative_error,
};

const MATRIX_PACKINGS: [Packing; 4] = [Packing::RowMajor, Packing::Int8G32, Packing::F16N16, Packing::F32N16];

/// Rows of a packed matrix as `f32`.
fn decode(w: &PackedView<'_>) -> Vec<f32> {
    let mut out = vec![0.0; w.n() * w.k()];
    for (row, values) in out.chunks_exact_mut(w.k()).enumerate() {
        w.decode_row(row, values);
    }
    out
}

/// Scale and integers of the groups of one row of activations, as documented.
fn quantize_model(x: &[f32]) -> Vec<(f32, [i8; 32])> {
    let group = |x: &[f32]| {
        let max = x.iter().fold(0f32, |m, x| m.max(x.abs()));
        let mut q = [0; 32];
        if max < 1e-30 {
            return (0.0, q);
        }
        for (q, x) in q.iter_mut().zip(x) {
            *q = (x * (127.0 / max)).round_ties_even() as i8;
        }
        (max / 127.0, q)
    };
    x.chunks(32).map(group).collect()
}

/// Integers and scales of one row of an INT8 matrix, read at the documented places.
fn int8_row(w: &PackedView<'_>, row: usize) -> Vec<(f32, [i8; 32])> {
    let groups = w.k().div_ceil(32);
    let block_bytes = groups * 512 + groups.div_ceil(2) * 64;
    let block = &w.data()[row / 16 * block_bytes..];
    let group = |g: usize| {
        let pair = g / 2 * (64 + 1024);
        let scale_at = pair + g % 2 * 32 + row % 16 * 2;
        let values = &block[pair + 64 + g % 2 * 512..];
        let scale = half::f16::from_le_bytes([block[scale_at], block[scale_at + 1]]).to_f32();
        (
            scale,
            std::array::from_fn(|i| values[64 * (i / 4) + 4 * (row % 16) + i % 4] as i8),
        )
    };
    (0..groups).map(group).collect()
}

/// The documented order of arithmetic, one output at a time.
fn linear_model(w: &PackedView<'_>, x: &[f32], rows: usize, epilogue: Epilogue<'_>, out: &mut [f32]) {
    let (n, k) = (w.n(), w.k());
    let decoded = decode(w);
    let int8: Vec<_> = match w.packing() {
        Packing::Int8G32 => (0..n).map(|o| int8_row(w, o)).collect(),
        _ => Vec::new(),
    };
    for r in 0..rows {
        let x = &x[r * k..(r + 1) * k];
        let q = quantize_model(x);
        for o in 0..n {
            let mut sum = 0f32;
            if w.packing() == Packing::Int8G32 {
                for ((sx, x), (sw, w)) in q.iter().zip(&int8[o]) {
                    let dot: i32 = x.iter().zip(w).map(|(&x, &w)| i32::from(x) * i32::from(w)).sum();
                    sum = (dot as f32 * sw).mul_add(*sx, sum);
                }
            } else {
                let mut p = [0f32; 4];
                for (i, (w, x)) in decoded[o * k..(o + 1) * k].iter().zip(x).enumerate() {
                    p[i % 4] = w.mul_add(*x, p[i % 4]);
                }
                sum = (p[0] + p[1]) + (p[2] + p[3]);
            }
            if let Some(bias) = epilogue.bias {
                sum += bias[o];
            }
            let out = &mut out[r * n + o];
            *out = if epilogue.accumulate { *out + sum } else { sum };
        }
    }
}

#[test]
fn linear_edge_shapes_equal_the_scalar_model_bit_for_bit() {
    let (widths, rows) = (&[1, 31, 32, 33, 64, 576], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 64]);
    check_edges(linear_model, &MATRIX_PACKINGS, widths, rows, 200_000);
}

#[test]
fn linear_many_blocks_equal_the_scalar_model_bit_for_bit() {
    check_many_blocks(linear_model, &MATRIX_PACKINGS);
}

#[test]
fn linear_rows_in_any_grouping_give_equal_bits() {
    assert_any_grouping_gives_equal_bits(&MATRIX_PACKINGS, 96);
}

/// With so many rows threads have rows of their own, unless there are many weights; with so many outputs runs have whole register tiles, and the last one a part of one.
#[test]
fn linear_of_many_rows_gives_equal_bits_for_any_number_of_threads() {
    for (packing, n, k, rows) in [
        (Packing::Int8G32, 70, 96, 128),
        (Packing::Int8G32, 33, 64, 203),
        (Packing::Int8G32, 1000, 64, 12),
        (Packing::Int8G32, 520, 64, 200),
        (Packing::Tcq4G128, 70, 96, 130),
        (Packing::Tcq4G128, 1800, 128, 12),
    ] {
        let packed = pack(packing, n, k, &noise(n * k, 3)).unwrap();
        let x = noise(rows * k, 4);
        let product = |kernels, threads| {
            let pool = Pool::new(threads);
            let step = pool.step(threads);
            let exec = Exec { kernels, step: &step };
            let mut memory = vec![0.0; Activations::bytes(packing, rows, k).unwrap() / 4];
            let mut out = vec![f32::NAN; rows * n];
            let x = exec.activations(packing, &x, [rows, k], None, &mut memory);
            exec.linear(&packed.view(), x, rows, Epilogue::default(), &mut out);
            out.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        let first = product(Kernels::detect().unwrap(), 1);
        for kernels in Kernels::available() {
            for threads in [2, 3] {
                let found = product(kernels, threads);
                assert!(
                    found == first,
                    "{packing} {n} {k} {rows}, {}, {threads} threads",
                    kernels.tier()
                );
            }
        }
    }
}

#[test]
fn linear_is_close_to_f64() {
    let (n, k, rows) = (33, 576, 5);
    for packing in MATRIX_PACKINGS {
        let found = check(linear_model, packing, [n, k, rows], false, false, 9);
        let packed = pack(packing, n, k, &noise(n * k, 9)).unwrap();
        let relative = relative_error(&found, &packed.view(), &noise(rows * k, 10), rows);
        let limit = if packing == Packing::Int8G32 { 8e-3 } else { 1e-6 };
        assert!(relative < limit, "{packing}: relative error {relative}");
        assert!(
            packing != Packing::Int8G32 || relative > 1e-4,
            "INT8 rounds: {relative}"
        );
    }
}

#[test]
fn linear_extreme_int8_values_do_not_saturate() {
    let (n, k) = (16, 64);
    // -128 weights occur when the scale rounds down; all activations at the ends of their range.
    let tiny = 127.0 * 5.96e-8 * 1.4;
    for (weight, x) in [(-tiny, 1.0), (-tiny, -1.0), (1.0, 1.0), (-1.0, 1.0), (1.0, -1.0)] {
        let packed = pack(Packing::Int8G32, n, k, &vec![weight; n * k]).unwrap();
        let view = packed.view();
        let mut expected = vec![0.0; n];
        linear_model(&view, &vec![x; k], 1, Epilogue::default(), &mut expected);
        for kernels in Kernels::available() {
            let step = Step::inline();
            let mut out = vec![0.0; n];
            linear(
                Exec { kernels, step: &step },
                &view,
                &vec![x; k],
                1,
                Epilogue::default(),
                &mut out,
            );
            assert_eq!(out, expected, "{} {weight} {x}", kernels.tier());
            assert!(out[0] != 0.0);
        }
    }
}

#[test]
fn quantize_rows_every_tier_equals_the_model() {
    for (rows, k) in [(1, 1), (1, 32), (3, 33), (8, 64), (9, 31), (17, 100), (33, 576)] {
        let mut x = noise(rows * k, 21);
        x[0] = 0.0;
        if rows > 2 {
            x[k..2 * k].fill(0.0);
            x[2 * k..3 * k].iter_mut().for_each(|x| *x *= 1e-35);
        }
        for kernels in Kernels::available() {
            let pool = Pool::new(2);
            for step in [Step::inline(), pool.step(2)] {
                let mut memory = vec![u32::MAX; QuantizedRows::bytes(rows, k).unwrap() / 4];
                let mut q = QuantizedRows::new(bytemuck::cast_slice_mut(&mut memory), rows, k);
                Exec { kernels, step: &step }.quantize_rows(&x, rows, k, &mut q);
                for (row, x) in x.chunks_exact(k).enumerate() {
                    for (g, expected) in quantize_model(x).into_iter().enumerate() {
                        assert_eq!(
                            q.group(row, g),
                            expected,
                            "{} {rows}x{k} row {row} group {g}",
                            kernels.tier()
                        );
                    }
                }
            }
        }
    }
}

/// A value that is not finite makes its own row NaN where activations are quantized, and what `f32` arithmetic makes of it
/// elsewhere; other rows keep their bits, and all tiers agree.
#[test]
fn not_finite_activations_spoil_their_row_alone() {
    let (n, k, rows) = (17, 140, 3);
    let codebooks = Packing::ALL.into_iter().filter(|p| p.codebook_bits().is_some());
    for packing in MATRIX_PACKINGS.into_iter().chain(codebooks) {
        let packed = pack(packing, n, k, &noise(n * k, 1)).unwrap();
        let product = |kernels, x: &[f32]| {
            let step = Step::inline();
            let mut out = vec![0.0; rows * n];
            linear(
                Exec { kernels, step: &step },
                &packed.view(),
                x,
                rows,
                Epilogue::default(),
                &mut out,
            );
            out
        };
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 3, 15, 31, 32, 127, 128, 139] {
                let mut x = noise(rows * k, 2);
                let clean = x.clone();
                x[k + at] = bad;
                let mut first: Option<Vec<f32>> = None;
                for kernels in Kernels::available() {
                    let (out, whole) = (product(kernels, &x), product(kernels, &clean));
                    let case = format!("{packing} {bad} at {at}, {}", kernels.tier());
                    for (i, (found, whole)) in out.iter().zip(&whole).enumerate() {
                        if i / n != 1 {
                            assert_eq!(found.to_bits(), whole.to_bits(), "{case}: output {i}");
                        } else if packing == Packing::Int8G32 || packing.codebook_bits().is_some() || bad.is_nan() {
                            assert!(found.is_nan(), "{case}: output {i} is {found}");
                        } else {
                            assert!(!found.is_finite(), "{case}: output {i} is {found}");
                        }
                    }
                    let same = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan();
                    assert!(
                        first.get_or_insert_with(|| out.clone()).iter().zip(&out).all(same),
                        "{case}"
                    );
                }
            }
        }
        // The largest and the smallest numbers are numbers.
        for x in [f32::MAX, f32::MIN_POSITIVE / 4.0] {
            let mut outs = Kernels::available().map(|kernels| product(kernels, &vec![x; rows * k]));
            let first = outs.next().unwrap();
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert!(outs.all(|out| bits(&out) == bits(&first)), "{packing} {x}");
        }
    }
}

#[test]
fn embed_equals_decoded_rows_and_refuses_unknown_ids() {
    for packing in MATRIX_PACKINGS {
        let (n, k) = (35, 70);
        let packed = pack(packing, n, k, &noise(n * k, 8)).unwrap();
        let rows = decode(&packed.view());
        let pool = Pool::new(2);
        let step = pool.step(2);
        for kernels in Kernels::available() {
            let exec = Exec { kernels, step: &step };
            let ids = [34u32, 0, 16, 15, 0];
            let mut out = vec![0.0; ids.len() * k];
            exec.embed(&packed.view(), &ids, &mut out).unwrap();
            for (id, out) in ids.iter().zip(out.chunks_exact(k)) {
                assert_eq!(out, &rows[*id as usize * k..][..k]);
            }
            let error = exec.embed(&packed.view(), &[0, 35], &mut out[..2 * k]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::IndexOutOfRange);
            assert!(
                error.to_string().contains("35") && error.to_string().contains("position 1"),
                "{error}"
            );
            exec.embed(&packed.view(), &[], &mut []).unwrap();
        }
    }
}

#[test]
fn quantized_bytes_overflow_is_none() {
    assert_eq!(QuantizedRows::bytes(usize::MAX, 33), None);
    assert_eq!(QuantizedRows::bytes(3, 33), Some(3 * 2 * 40));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn linear_any_shape_equals_the_scalar_model(
        n in 1usize..70,
        k in 1usize..200,
        rows in 1usize..20,
        bias in any::<bool>(),
        accumulate in any::<bool>(),
        seed in 0u64..1 << 40,
    ) {
        for packing in MATRIX_PACKINGS {
            check(linear_model, packing, [n, k, rows], bias, accumulate, seed);
        }
    }
}
