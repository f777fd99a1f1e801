//! Products of a query with many rows against an `f64` reference, with equal bits on every tier.

mod support;

use cactus_kernels::{ErrorKind, Kernels, MAX_SCAN_DIM, RowFormat, RowLayout, RowQuery, SCAN_ROWS};
use support::{Random, assert_close, same_everywhere};

const DIMS: [usize; 10] = [1, 3, 4, 5, 8, 9, 63, 384, 769, 1024];

/// `rows` rows in blocks; what is beside them is no row.
fn blocks(layout: RowLayout, rows: &[Vec<f32>]) -> Vec<u32> {
    let mut memory = vec![u32::MAX; rows.len().div_ceil(SCAN_ROWS) * layout.block_bytes() / 4];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
    for (r, row) in rows.iter().enumerate() {
        let block = &mut bytes[r / SCAN_ROWS * layout.block_bytes()..][..layout.block_bytes()];
        layout.write(block, r % SCAN_ROWS, row);
    }
    memory
}

fn rows(random: &mut Random, count: usize, dim: usize) -> Vec<Vec<f32>> {
    (0..count).map(|_| random.floats(dim, 2.0)).collect()
}

#[test]
fn score_rows_any_dim_matches_definition_on_what_is_stored() {
    for format in [RowFormat::Int8, RowFormat::F32] {
        for dim in DIMS {
            for count in [1, 16, 17, 40] {
                let layout = RowLayout::new(dim, format).unwrap();
                let mut random = Random::new((dim * 100 + count) as u64);
                let (rows, query) = (rows(&mut random, count, dim), random.floats(dim, 3.0));
                let memory = blocks(layout, &rows);
                let bytes: &[u8] = bytemuck::cast_slice(&memory);
                let prepared = RowQuery::new(layout, &query);
                let found = same_everywhere(&format!("score_rows {format:?} {count}x{dim}"), |exec| {
                    let mut out = vec![f32::NAN; count.div_ceil(SCAN_ROWS) * SCAN_ROWS];
                    exec.kernels.score_rows(bytes, &prepared, &mut out);
                    out.truncate(count);
                    out
                });
                let mut stored = vec![0.0; dim];
                let (mut exact, mut bound) = (Vec::new(), 0.0f64);
                for r in 0..count {
                    let block = &bytes[r / SCAN_ROWS * layout.block_bytes()..][..layout.block_bytes()];
                    layout.read(block, r % SCAN_ROWS, &mut stored);
                    let terms = stored.iter().zip(&query).map(|(a, b)| f64::from(*a) * f64::from(*b));
                    exact.push(terms.sum());
                    bound = bound.max(stored.iter().map(|x| f64::from(x.abs())).sum());
                }
                let step = match format {
                    // Half a step of the query's integers in each dimension.
                    RowFormat::Int8 => query.iter().fold(0.0f32, |m, x| m.max(x.abs())) / 16256.0,
                    _ => 1e-6,
                };
                assert_close("score_rows", &found, &exact, 1e-6, bound * f64::from(step) * 0.51);
            }
        }
    }
}

#[test]
fn row_stored_in_bytes_is_within_half_a_step_and_copies_as_it_is() {
    for dim in DIMS {
        let layout = RowLayout::new(dim, RowFormat::Int8).unwrap();
        let mut random = Random::new(dim as u64);
        let rows = rows(&mut random, SCAN_ROWS, dim);
        let memory = blocks(layout, &rows);
        let block: &[u8] = bytemuck::cast_slice(&memory);
        let mut moved = vec![0u8; layout.block_bytes()];
        let (mut stored, mut copied) = (vec![0.0; dim], vec![0.0; dim]);
        for (r, row) in rows.iter().enumerate() {
            layout.read(block, r, &mut stored);
            let step = row.iter().fold(0.0f32, |m, x| m.max(x.abs())) / 127.0;
            for (a, b) in stored.iter().zip(row) {
                assert!((a - b).abs() <= 0.501 * step, "{a} {b} {step}");
            }
            layout.copy(block, r, &mut moved, SCAN_ROWS - 1 - r);
            layout.read(&moved, SCAN_ROWS - 1 - r, &mut copied);
            assert_eq!(stored, copied);
        }
    }
}

#[test]
fn unit_row_has_the_length_1_as_it_is_stored_and_stays_the_same_when_it_is_stored_again() {
    for dim in DIMS {
        let layout = RowLayout::new(dim, RowFormat::Int8).unwrap().of_unit_rows();
        let mut block = vec![0u8; layout.block_bytes()];
        let mut again = block.clone();
        let mut stored = vec![0.0; dim];
        for seed in 0..50 {
            let mut row = Random::new(seed).floats(dim, 1.0);
            let normalize = |row: &mut [f32]| {
                let length = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
                row.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
                length
            };
            normalize(&mut row);
            layout.write(&mut block, 3, &row);
            layout.read(&block, 3, &mut stored);
            let length = normalize(&mut stored);
            assert!((length - 1.0).abs() < 1e-6, "{length}");
            layout.write(&mut again, 3, &stored);
            assert_eq!(block, again);
        }
    }
}

#[test]
fn rows_of_zeros_and_of_no_numbers_score_zero_and_nan() {
    for format in [RowFormat::Int8, RowFormat::F32] {
        let layout = RowLayout::new(5, format).unwrap();
        let rows = [vec![0.0; 5], vec![1.0, f32::NAN, 0.0, 0.0, 0.0], vec![1e-38; 5]];
        let memory = blocks(layout, &rows);
        let query = RowQuery::new(layout, &[1.0, 2.0, -3.0, 4.0, 5.0]);
        for kernels in Kernels::available() {
            let mut out = [0.0; SCAN_ROWS];
            kernels.score_rows(bytemuck::cast_slice(&memory), &query, &mut out);
            assert_eq!(out[0], 0.0);
            assert!(out[1].is_nan() && out[2].abs() < 1e-36);
        }
    }
}

#[test]
fn hamming_rows_counts_bits_on_every_tier() {
    for words in [1, 2, 6, 12, 13] {
        for blocks in [1, 3] {
            let mut random = Random::new(words as u64);
            let mut word = || u64::from(random.bits()) << 32 | u64::from(random.bits());
            let rows: Vec<[u64; SCAN_ROWS]> = (0..words * blocks).map(|_| std::array::from_fn(|_| word())).collect();
            let query: Vec<u64> = (0..words).map(|_| word()).collect();
            let expected: Vec<u32> = (0..blocks * SCAN_ROWS)
                .map(|r| {
                    let lines = &rows[r / SCAN_ROWS * words..][..words];
                    lines
                        .iter()
                        .zip(&query)
                        .map(|(l, q)| (l[r % SCAN_ROWS] ^ q).count_ones())
                        .sum()
                })
                .collect();
            for kernels in Kernels::available() {
                let mut out = vec![0; blocks * SCAN_ROWS];
                kernels.hamming_rows(&rows, &query, &mut out);
                assert_eq!(out, expected, "{words} {}", kernels.tier());
            }
        }
    }
}

#[test]
fn layout_of_no_or_too_many_dimensions_is_refused() {
    for dim in [0, MAX_SCAN_DIM + 1] {
        let error = RowLayout::new(dim, RowFormat::Int8).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidShape, "{error}");
    }
    assert!(RowLayout::new(MAX_SCAN_DIM, RowFormat::F32).is_ok());
}
