//! Every packing over edge shapes: round trips, error bounds, refusals.

use cactus_quant::{Error, ErrorKind, PackedLayout, PackedView, Packing, pack, pack_block, pack_on};
use cactus_testkit::noise;
use proptest::prelude::*;

fn decode(view: &PackedView<'_>) -> Vec<f32> {
    let mut out = vec![f32::NAN; view.n() * view.k()];
    for (row, values) in out.chunks_exact_mut(view.k()).enumerate() {
        view.decode_row(row, values);
    }
    out
}

/// Largest error that the packing may make at any value of what shares a scale and has this largest magnitude.
fn bound(packing: Packing, max: f32, x: f32) -> f32 {
    match packing {
        // Half a step, and the step's own rounding to f16 (2^-11) which the clip can add at the ends of the range.
        Packing::Int8G32 => max / 127.0 * (0.5 + 127.0 / 2048.0) + 6e-8 * 128.0,
        // Half a step, and the rounding of a quotient and of a product.
        Packing::Int8N16 => max / 127.0 * 0.5001 + 1e-30,
        Packing::F16N16 => x.abs() / 2048.0 + 6e-8,
        // Bounds of single weights say nothing where errors are spread over a group; `cq.rs` measures those.
        p if p.codebook_bits().is_some() => f32::INFINITY,
        _ => 0.0,
    }
}

fn check_round_trip(packing: Packing, n: usize, k: usize, rows: &[f32]) {
    let packed = pack(packing, n, k, rows).unwrap();
    assert_eq!(packed.data().as_ptr() as usize % 64, 0);
    let view = PackedView::new(packing, n, k, packed.scales(), packed.data()).unwrap();
    let back = decode(&view);
    for (r, (row, got)) in rows.chunks_exact(k).zip(back.chunks_exact(k)).enumerate() {
        let shared = if packing == Packing::Int8N16 { k } else { 32 };
        for (g, (row, got)) in row.chunks(shared).zip(got.chunks(shared)).enumerate() {
            let max = row.iter().fold(0f32, |m, x| m.max(x.abs()));
            for (c, (&x, &y)) in row.iter().zip(got).enumerate() {
                let limit = bound(packing, max, x);
                assert!(
                    (x - y).abs() <= limit,
                    "{packing} {n}x{k} row {r} column {}: {x} {y}",
                    g * shared + c
                );
            }
        }
    }
}

#[test]
fn pack_edge_shapes_round_trip_within_the_bound() {
    for packing in Packing::ALL {
        for n in [1, 15, 16, 17, 33] {
            for k in [1, 3, 31, 32, 33, 64, 65, 576] {
                check_round_trip(packing, n, k, &noise(n * k, (n * 1000 + k) as u64));
            }
        }
    }
}

#[test]
fn threads_change_no_byte_and_the_first_bad_value_is_named() {
    let (n, k) = (195, 70);
    let rows = noise(n * k, 2);
    let mut bad = rows.clone();
    for at in [40 * k + 3, 41 * k, 180 * k + 1] {
        bad[at] = f32::NAN;
    }
    for packing in Packing::ALL {
        let one = pack(packing, n, k, &rows).unwrap();
        for threads in [0, 2, 3, 100] {
            assert_eq!(
                pack_on(packing, n, k, &rows, threads).unwrap().data(),
                one.data(),
                "{packing}"
            );
            let error = pack_on(packing, n, k, &bad, threads).unwrap_err().to_string();
            assert!(error.starts_with("row 40, column 3"), "{packing}: {error}");
        }
        assert!(pack_on(packing, n, k, &rows[1..], 2).is_err());
    }
}

#[test]
fn pack_int8_places_every_byte_as_documented() {
    let (n, k) = (18, 70);
    let rows: Vec<f32> = (0..n * k).map(|i| ((i * 37) % 255) as f32 - 127.0).collect();
    let packed = pack(Packing::Int8G32, n, k, &rows).unwrap();
    let data = packed.data();
    let block_bytes = 64 + 1024 + 64 + 512;
    assert_eq!(data.len(), 2 * block_bytes);
    let mut used = vec![false; data.len()];
    for row in 0..n {
        for column in 0..k {
            let (g, j, i) = (column / 32, column % 32 / 4, column % 4);
            let pair = row / 16 * block_bytes + g / 2 * (64 + 1024);
            let scale_at = pair + g % 2 * 32 + row % 16 * 2;
            let value_at = pair + 64 + g % 2 * 512 + 64 * j + 4 * (row % 16) + i;
            let scale = half::f16::from_le_bytes([data[scale_at], data[scale_at + 1]]).to_f32();
            let group = &rows[row * k..][g * 32..k.min(g * 32 + 32)];
            let max = group.iter().fold(0f32, |m, x| m.max(x.abs()));
            assert_eq!(scale, half::f16::from_f32(max / 127.0).to_f32());
            let expected = (rows[row * k + column] / scale).round_ties_even().clamp(-128.0, 127.0);
            assert_eq!(f32::from(data[value_at] as i8), expected, "{row} {column}");
            used[value_at] = true;
            used[scale_at] = true;
            used[scale_at + 1] = true;
        }
    }
    // What no weight occupies is padding, and padding is zero.
    assert!(data.iter().zip(&used).all(|(&byte, &used)| used || byte == 0));
}

#[test]
fn pack_int8_by_rows_places_every_byte_as_documented() {
    let (n, k) = (18, 70);
    let rows: Vec<f32> = (0..n * k).map(|i| ((i * 37) % 255) as f32 - 127.0).collect();
    let packed = pack(Packing::Int8N16, n, k, &rows).unwrap();
    let data = packed.data();
    let block_bytes = 64 + 80 * 16;
    assert_eq!(data.len(), 2 * block_bytes);
    let mut used = vec![false; data.len()];
    for (row, values) in rows.chunks_exact(k).enumerate() {
        let (block, r) = (row / 16 * block_bytes, row % 16);
        let scale_at = block + 4 * r;
        let scale = f32::from_le_bytes(data[scale_at..scale_at + 4].try_into().unwrap());
        let max = values.iter().fold(0f32, |m, x| m.max(x.abs()));
        assert_eq!(scale, max / 127.0);
        used[scale_at..scale_at + 4].fill(true);
        for (column, x) in values.iter().enumerate() {
            let value_at = block + 64 + column / 4 * 64 + 4 * r + column % 4;
            assert_eq!(
                f32::from(data[value_at] as i8),
                (x / scale).round_ties_even(),
                "{row} {column}"
            );
            used[value_at] = true;
        }
    }
    // What no weight occupies is padding, and padding is zero.
    assert!(data.iter().zip(&used).all(|(&byte, &used)| used || byte == 0));
}

#[test]
fn pack_bad_value_names_row_and_column() {
    for (packing, bad) in [
        (Packing::Int8G32, f32::NAN),
        (Packing::Int8G32, f32::INFINITY),
        (Packing::Int8G32, 1e8),
        (Packing::Int8N16, f32::NAN),
        (Packing::Int8N16, f32::INFINITY),
        (Packing::F16N16, 65_520.0),
        (Packing::F16N16, f32::NAN),
        (Packing::F32N16, f32::NEG_INFINITY),
        (Packing::RowMajor, f32::NAN),
        (Packing::Cq1G128, f32::INFINITY),
        (Packing::Cq3G128, f32::NAN),
        (Packing::Cq4G128, 1e8),
    ] {
        let (n, k) = (20, 40);
        let mut rows = noise(n * k, 5);
        rows[17 * k + 33] = bad;
        let error = pack(packing, n, k, &rows).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value, "{packing} {bad}");
        let Error::Value { row, column, value, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(
            (row, column, value.get().to_bits()),
            (17, 33, bad.to_bits()),
            "{packing}"
        );
    }
}

#[test]
fn wrong_lengths_are_errors() {
    for packing in Packing::ALL {
        let rows = noise(20 * 40, 1);
        assert_eq!(pack(packing, 20, 41, &rows).unwrap_err().kind(), ErrorKind::Length);
        let packed = pack(packing, 20, 40, &rows).unwrap();
        let data = packed.data();
        for (scales, data) in [(&[][..], &data[1..]), (&data[..2], data), (&[], &[])] {
            let error = PackedView::new(packing, 20, 40, scales, data).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Length, "{packing}");
        }
        let layout = PackedLayout::new(packing, 20, 40).unwrap();
        let mut block = vec![0; layout.block_bytes()];
        assert!(pack_block(&layout, 0, &rows[..39], &mut block).is_err());
        assert!(pack_block(&layout, 20, &rows[..40], &mut block).is_err());
        assert!(pack_block(&layout, 19, &rows[..40], &mut block[1..]).is_err());
    }
    assert_eq!(pack(Packing::Int8G32, 0, 4, &[]).unwrap_err().kind(), ErrorKind::Shape);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn pack_any_values_round_trip_within_the_bound(
        n in 1usize..40,
        k in 1usize..100,
        seed in any::<u64>(),
        exponent in -20i32..12,
    ) {
        let mut rows = noise(n * k, seed);
        for (i, x) in rows.iter_mut().enumerate() {
            *x *= 2f32.powi(exponent - (i % 5) as i32);
        }
        for packing in Packing::ALL {
            check_round_trip(packing, n, k, &rows);
        }
    }

    #[test]
    fn pack_block_by_block_equals_pack(n in 1usize..40, k in 1usize..70, seed in any::<u64>()) {
        let rows = noise(n * k, seed);
        for packing in Packing::ALL {
            let whole = pack(packing, n, k, &rows).unwrap();
            let layout = *whole.layout();
            let per_block = if packing == Packing::RowMajor { 1 } else { 16 };
            let mut data = vec![0; layout.data_bytes()];
            for (b, block) in data.chunks_exact_mut(layout.block_bytes()).enumerate() {
                let first = b * per_block;
                let rows = &rows[first * k..n.min(first + per_block) * k];
                pack_block(&layout, first, rows, block).unwrap();
            }
            prop_assert_eq!(&data[..], whole.data());
        }
    }

    #[test]
    fn decode_any_bytes_is_defined(n in 1usize..20, k in 1usize..70, seed in any::<u64>()) {
        for packing in Packing::ALL {
            let layout = PackedLayout::new(packing, n, k).unwrap();
            let data: Vec<u8> = noise(layout.data_bytes(), seed).iter().map(|x| x.to_bits() as u8).collect();
            let view = PackedView::new(packing, n, k, &[], &data).unwrap();
            prop_assert_eq!(decode(&view).len(), n * k);
        }
    }
}
