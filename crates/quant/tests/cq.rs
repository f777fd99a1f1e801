//! The codebook packings: error by bit width, odd widths, degenerate rows, single rows.

use cactus_quant::cq::{Codebook, groups, rotation};
use cactus_quant::{ErrorKind, Packing, pack};
use cactus_testkit::noise;
use proptest::prelude::*;

fn decoded(packing: Packing, n: usize, k: usize, rows: &[f32]) -> Vec<f32> {
    let packed = pack(packing, n, k, rows).unwrap();
    let mut out = vec![f32::NAN; n * k];
    for (row, values) in out.chunks_exact_mut(k).enumerate() {
        packed.view().decode_row(row, values);
    }
    out
}

/// Squared error relative to the squares.
fn relative_error(rows: &[f32], found: &[f32]) -> f64 {
    let square = |x: f32| f64::from(x) * f64::from(x);
    let error: f64 = rows.iter().zip(found).map(|(&a, &b)| square(a - b)).sum();
    error / rows.iter().map(|&x| square(x)).sum::<f64>().max(1e-300)
}

#[test]
fn error_by_bits_whatever_the_width() {
    for (packing, limit) in [
        (Packing::Cq1G128, 0.37),
        (Packing::Cq2G128, 0.120),
        (Packing::Cq3G128, 0.0355),
        (Packing::Cq4G128, 0.0099),
        (Packing::Cq5G128, 0.00267),
        (Packing::Cq6G128, 0.0007),
        (Packing::Tcq2G128, 0.1),
        (Packing::Tcq3G128, 0.027),
        (Packing::Tcq4G128, 0.0073),
        (Packing::Tcq5G128, 0.00206),
        (Packing::Tcq6G128, 0.0006),
    ] {
        for k in [128, 576, 640, 896, 352] {
            let rows = noise(32 * k, u64::from(packing.codebook_bits().unwrap()) + k as u64);
            let error = relative_error(&rows, &decoded(packing, 32, k, &rows));
            assert!(error < limit && error > limit * 0.8, "{packing} {k}: {error}");
        }
        // Widths that are filled up lose a little more: more numbers than weights are stored.
        for k in [1, 5, 33, 70, 129] {
            let rows = noise(32 * k, 5);
            let error = relative_error(&rows, &decoded(packing, 32, k, &rows));
            assert!(error < limit * 1.1, "{packing} {k}: {error}");
        }
    }
}

#[test]
fn zero_rows_tiny_and_equal_weights() {
    for packing in Packing::ALL.into_iter().filter(|p| p.codebook_bits().is_some()) {
        assert!(decoded(packing, 3, 200, &[0.0; 600]).iter().all(|x| *x == 0.0));
        // A zero group in a row that is not zero.
        let mut rows = noise(256, 1);
        rows[..128].fill(0.0);
        assert!(decoded(packing, 1, 256, &rows)[..128].iter().all(|x| *x == 0.0));
        for value in [1.0, -0.02, 1e-5, 2000.0] {
            let rows = vec![value; 384];
            let error = relative_error(&rows, &decoded(packing, 2, 192, &rows));
            assert!(error < 0.45, "{packing} {value}: {error}");
        }
        let one = decoded(packing, 1, 1, &[0.7]);
        assert!((one[0] - 0.7).abs() < 0.3, "{packing}: {one:?}");
        // Below the smallest scale the weights become zeros, not noise.
        assert!(decoded(packing, 1, 128, &[1e-12; 128]).iter().all(|x| x.abs() < 1e-9));
    }
}

#[test]
fn a_group_beyond_the_scale_is_refused_with_its_largest_value() {
    let mut rows = noise(40 * 300, 2);
    rows[20 * 300 + 257] = 60_000.0;
    rows[20 * 300 + 258] = -65_000.0;
    let error = pack(Packing::Cq4G128, 40, 300, &rows).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Value);
    assert!(error.to_string().contains("row 20, column 258"), "{error}");
    assert!(error.to_string().contains("cq4_g128"), "{error}");
}

#[test]
fn codebooks_of_the_format_never_change() {
    // Computed from the distribution; listed because every stored tensor depends on them.
    let positive = |bits: u32, d: usize| Codebook::of(bits, d).integers()[1 << (bits - 1)..1 << bits].to_vec();
    for (d, by_bits) in [
        (
            128,
            [
                &[100][..],
                &[37, 123],
                &[13, 40, 71, 113],
                &[6, 18, 31, 44, 59, 76, 97, 127],
                &[2, 7, 12, 17, 22, 27, 32, 38, 44, 50, 57, 64, 73, 83, 96, 116],
                &[
                    1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 26, 28, 30, 33, 35, 38, 40, 43, 46, 49, 52, 55, 59, 63,
                    67, 72, 78, 85, 94, 108,
                ],
            ],
        ),
        (
            64,
            [
                &[100],
                &[38, 126],
                &[14, 43, 76, 121],
                &[6, 18, 30, 43, 57, 73, 93, 122],
                &[3, 8, 13, 18, 24, 29, 35, 41, 47, 54, 61, 69, 78, 89, 103, 123],
                &[
                    1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 24, 26, 28, 30, 33, 35, 38, 40, 43, 46, 49, 52, 55, 59, 63,
                    67, 72, 77, 84, 93, 106,
                ],
            ],
        ),
        (
            32,
            [
                &[100],
                &[37, 122],
                &[14, 43, 76, 120],
                &[6, 18, 30, 43, 57, 73, 93, 120],
                &[3, 8, 13, 19, 24, 30, 36, 42, 48, 55, 62, 70, 79, 90, 103, 122],
                &[
                    1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 28, 30, 32, 35, 37, 40, 42, 45, 48, 51, 54, 57, 61,
                    65, 69, 75, 81, 88, 100,
                ],
            ],
        ),
    ] {
        for (bits, expected) in (1..).zip(by_bits) {
            assert_eq!(positive(bits, d), expected, "{bits} bits, groups of {d}");
            let all = &Codebook::of(bits, d).integers()[..1 << bits];
            assert!(all.iter().zip(all.iter().rev()).all(|(a, b)| *a == -*b));
        }
    }
    let trellises: [(&[i8], [i8; 4]); 5] = [
        (&[16, 70], [-6, 52, -52, 6]),
        (&[8, 26, 47, 76], [9, -29, 29, -9]),
        (&[4, 11, 18, 26, 35, 44, 62, 91], [18, 5, -5, -18]),
        (
            &[1, 4, 6, 9, 12, 16, 21, 25, 28, 33, 38, 43, 52, 62, 78, 106],
            [3, 10, -10, -3],
        ),
        (
            &[
                1, 2, 4, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, 19, 21, 23, 25, 26, 28, 30, 33, 36, 39, 41, 44, 47, 51,
                58, 65, 75, 92, 115,
            ],
            [-2, -7, 7, 2],
        ),
    ];
    for (bits, (positive, carries)) in (2..).zip(trellises) {
        for d in [128, 64, 32] {
            let book = Codebook::of_trellis(bits, d);
            assert_eq!(book.integers()[1 << (bits - 1)..1 << bits], *positive, "{bits} bits");
            assert_eq!(book.carries(), Some(&carries), "{bits} bits");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn rotation_keeps_lengths_and_undoes_itself(x in prop::collection::vec(-100f32..100.0, 128), size in 0usize..3) {
        let d = 32 << size;
        let mut y = x[..d].to_vec();
        rotation::rotate(&mut y);
        let square = |x: &[f32]| x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
        let (before, after) = (square(&x[..d]), square(&y) / d as f64);
        prop_assert!((before - after).abs() <= 1e-6 * before + 1e-9);
        rotation::hadamard(&mut y);
        rotation::flip(&mut y);
        for (a, b) in x.iter().zip(&y) {
            prop_assert!((a - b / d as f32).abs() < 1e-3);
        }
    }

    #[test]
    fn packing_decoded_weights_again_changes_little(n in 1usize..20, k in 1usize..300, bits in 1u32..7, seed in any::<u64>()) {
        let packing = Packing::of_codebook_bits(bits).unwrap();
        let rows = noise(n * k, seed);
        let once = decoded(packing, n, k, &rows);
        let twice = decoded(packing, n, k, &once);
        let whole = groups(k).all(|(start, d)| start + d <= k);
        // The scale that was stored is mostly found again, and else one that loses less than the first time. A group that is
        // filled up loses what fell on the filling.
        let limit = if whole { relative_error(&rows, &once) } else { 0.5 };
        let error = relative_error(&once, &twice);
        prop_assert!(error <= limit, "{error}, limit {limit}");
    }
}
