//! Products with codebook weights: every tier and thread count against a bit-exact scalar model of the documented order,
//! the model against `f64`, over edge shapes.

mod support;

use cactus_base::{Pool, Step};
use cactus_kernels::{Epilogue, Exec, Kernels, RotatedRows};
use cactus_quant::cq::{groups, rotation};
use cactus_quant::{PackedView, Packing, pack};
use cactus_testkit::noise;
use proptest::prelude::*;
use support::products::{
    assert_any_grouping_gives_equal_bits, check, check_edges, check_many_blocks, linear, relative_error,
};

const PACKINGS: [Packing; 11] = [
    Packing::Cq1G128,
    Packing::Cq2G128,
    Packing::Cq3G128,
    Packing::Cq4G128,
    Packing::Cq5G128,
    Packing::Cq6G128,
    Packing::Tcq2G128,
    Packing::Tcq3G128,
    Packing::Tcq4G128,
    Packing::Tcq5G128,
    Packing::Tcq6G128,
];

/// Scale and integers of the groups of one row of activations, as documented.
fn rotate_model(x: &[f32]) -> Vec<(f32, Vec<i8>)> {
    groups(x.len())
        .map(|(start, d)| {
            let mut u = vec![0f32; d];
            let part = &x[start..x.len().min(start + d)];
            u[..part.len()].copy_from_slice(part);
            rotation::rotate(&mut u);
            let max = u.iter().fold(0f32, |m, x| m.max(x.abs()));
            if max < 1e-30 {
                return (0.0, vec![0; d]);
            }
            let q = u.iter().map(|u| (u * (127.0 / max)).round_ties_even() as i8).collect();
            (max / 127.0 / (64 * d) as f32, q)
        })
        .collect()
}

/// Scales and codebook integers of the groups of one row of weights, read at the documented places.
fn weights_model(w: &PackedView<'_>, row: usize) -> Vec<(f32, Vec<i8>)> {
    let bits = w.packing().codebook_bits().unwrap();
    let b = bits as usize;
    let all: Vec<_> = groups(w.k()).collect();
    let indices: usize = all.iter().map(|(_, d)| 2 * b * d).sum();
    let block = &w.data()[row / 16 * (indices + 64 * all.len().div_ceil(2))..];
    let mut at = 0;
    let mut out = Vec::new();
    for pair in all.chunks(2) {
        let mut values = at + 64;
        for (i, &(_, d)) in pair.iter().enumerate() {
            let scale_at = at + 32 * i + row % 16 * 2;
            let scale = half::f16::from_le_bytes([block[scale_at], block[scale_at + 1]]).to_f32();
            let index = |input: usize| {
                let (line, byte) = (input % 32 / 4, 4 * (row % 16) + input % 4);
                let chunk = &block[values + input / 32 * 64 * b..];
                let low = || chunk[line / 2 * 64 + byte] >> (line % 2 * 4) & 15;
                match bits {
                    6 => low() + (chunk[256 + line / 4 * 64 + byte] >> (line % 4 * 2) & 3) * 16,
                    5 => low() + (chunk[256 + byte] >> line & 1) * 16,
                    4 => low(),
                    3 => (chunk[line / 4 * 64 + byte] >> (line % 4 * 2) & 3) + (chunk[128 + byte] >> line & 1) * 4,
                    2 => chunk[line / 4 * 64 + byte] >> (line % 4 * 2) & 3,
                    _ => chunk[byte] >> line & 1,
                }
            };
            let book = w.packing().codebook(d).unwrap();
            let integers = book.integers();
            let of = |i: usize| {
                // Every fourth input from the first on, then from the second on: the weight before is in the line before, or
                // in the last line for the input before.
                let before = if i >= 4 {
                    Some(i - 4)
                } else {
                    i.checked_sub(1).map(|i| d - 4 + i)
                };
                let carry = match (book.carries(), before) {
                    (Some(carries), Some(before)) => carries[usize::from(index(before) % 4)],
                    _ => 0,
                };
                integers[usize::from(index(i))] + carry
            };
            out.push((scale, (0..d).map(of).collect()));
            values += 2 * b * d;
        }
        at = values;
    }
    out
}

/// The documented order of arithmetic, one output at a time.
fn linear_model(w: &PackedView<'_>, x: &[f32], rows: usize, epilogue: Epilogue<'_>, out: &mut [f32]) {
    let (n, k) = (w.n(), w.k());
    let weights: Vec<_> = (0..n).map(|o| weights_model(w, o)).collect();
    for r in 0..rows {
        let x = rotate_model(&x[r * k..(r + 1) * k]);
        for o in 0..n {
            let mut sum = 0f32;
            for ((sx, x), (sw, w)) in x.iter().zip(&weights[o]) {
                let dot: i32 = x.iter().zip(w).map(|(&x, &w)| i32::from(x) * i32::from(w)).sum();
                sum = (dot as f32 * sw).mul_add(*sx, sum);
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
fn cq_edge_shapes_equal_the_scalar_model_bit_for_bit() {
    let (widths, rows) = (
        &[1, 32, 33, 65, 128, 224, 256, 350, 576],
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 17],
    );
    check_edges(linear_model, &PACKINGS, widths, rows, 100_000);
}

#[test]
fn cq_many_blocks_equal_the_scalar_model_bit_for_bit() {
    check_many_blocks(linear_model, &PACKINGS);
}

/// Integers are looked up once for 128 rows and 4 blocks.
#[test]
fn cq_many_rows_equal_the_scalar_model_bit_for_bit() {
    for (packing, rows) in PACKINGS.into_iter().zip([129, 136, 141, 257, 130].into_iter().cycle()) {
        check(linear_model, packing, [88, 224, rows], true, rows % 2 == 0, 5);
    }
}

#[test]
fn cq_rows_in_any_grouping_give_equal_bits() {
    assert_any_grouping_gives_equal_bits(&PACKINGS, 224);
}

#[test]
fn cq_is_close_to_f64_products_of_decoded_weights() {
    let (n, k, rows) = (33, 608, 5);
    for packing in PACKINGS {
        let found = check(linear_model, packing, [n, k, rows], false, false, 9);
        let packed = pack(packing, n, k, &noise(n * k, 9)).unwrap();
        let relative = relative_error(&found, &packed.view(), &noise(rows * k, 10), rows);
        assert!(
            (1e-4..1.2e-2).contains(&relative),
            "{packing}: relative error {relative}"
        );
    }
}

#[test]
fn rotate_rows_every_tier_equals_the_model() {
    for (rows, k) in [
        (1, 1),
        (1, 32),
        (3, 33),
        (8, 64),
        (9, 128),
        (17, 100),
        (33, 576),
        (2, 350),
    ] {
        let mut x = noise(rows * k, 21);
        x[0] = 0.0;
        if rows > 2 {
            x[k..2 * k].fill(0.0);
            x[2 * k..3 * k].iter_mut().for_each(|x| *x *= 1e-35);
        }
        for kernels in Kernels::available() {
            let pool = Pool::new(2);
            for step in [Step::inline(), pool.step(2)] {
                let mut memory = vec![u32::MAX; RotatedRows::bytes(rows, k).unwrap() / 4];
                let mut q = RotatedRows::new(bytemuck::cast_slice_mut(&mut memory), rows, k);
                Exec { kernels, step: &step }.rotate_rows(&x, rows, k, &mut q);
                for (row, x) in x.chunks_exact(k).enumerate() {
                    for (g, (scale, integers)) in rotate_model(x).into_iter().enumerate() {
                        let found = q.group(row, g);
                        let case = format!("{} {rows}x{k} row {row} group {g}", kernels.tier());
                        assert_eq!(found.0, scale, "{case}");
                        assert_eq!(found.1[..integers.len()], integers, "{case}");
                    }
                }
            }
        }
    }
}

#[test]
fn cq_not_finite_or_any_bytes_do_not_panic() {
    for packing in PACKINGS {
        let packed = pack(packing, 17, 40, &noise(17 * 40, 1)).unwrap();
        let any: Vec<u32> = noise(packed.data().len() / 4, 2).iter().map(|x| x.to_bits()).collect();
        let hostile = PackedView::new(packing, 17, 40, &[], bytemuck::cast_slice(&any)).unwrap();
        for kernels in Kernels::available() {
            let step = Step::inline();
            let exec = Exec { kernels, step: &step };
            let mut out = [0.0; 17];
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e-45] {
                linear(exec, &packed.view(), &[bad; 40], 1, Epilogue::default(), &mut out);
            }
            linear(exec, &hostile, &[1.0; 40], 1, Epilogue::default(), &mut out);
        }
    }
}

#[test]
fn cq_embed_equals_decoded_rows() {
    for packing in PACKINGS {
        let (n, k) = (35, 96);
        let packed = pack(packing, n, k, &noise(n * k, 8)).unwrap();
        let mut expected = vec![0.0; k];
        let step = Step::inline();
        for kernels in Kernels::available() {
            let ids = [34u32, 0, 16, 15, 0];
            let mut out = vec![0.0; ids.len() * k];
            Exec { kernels, step: &step }
                .embed(&packed.view(), &ids, &mut out)
                .unwrap();
            for (id, out) in ids.iter().zip(out.chunks_exact(k)) {
                packed.view().decode_row(*id as usize, &mut expected);
                assert_eq!(out, expected);
            }
        }
    }
}

#[test]
fn rotated_bytes_overflow_is_none() {
    assert_eq!(RotatedRows::bytes(usize::MAX, 33), None);
    assert_eq!(RotatedRows::bytes(1, usize::MAX), None);
    assert_eq!(RotatedRows::bytes(3, 97), Some(3 * 136));
    assert_eq!(RotatedRows::bytes(3, 96), Some(3 * 2 * 136));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn cq_any_shape_equals_the_scalar_model(
        n in 1usize..70,
        k in 1usize..400,
        rows in 1usize..20,
        bias in any::<bool>(),
        accumulate in any::<bool>(),
        seed in 0u64..1 << 40,
    ) {
        for packing in PACKINGS {
            check(linear_model, packing, [n, k, rows], bias, accumulate, seed);
        }
    }
}
