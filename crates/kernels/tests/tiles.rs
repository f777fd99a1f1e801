//! Tile products of AMX: the same bits as with AVX-512 for every number of rows, odd shape and number of threads. Where the CPU has none or the system does not let programs use them
//! there is nothing to test, and it says so. `sme2` has the same of outer products.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::print_stderr, reason = "a skipped test must be seen")]

use cactus_base::{Pool, Step};
use cactus_kernels::{Activations, Epilogue, Exec, Kernels, QuantizedRows, RotatedRows, UnaryOp};
use cactus_quant::{PackedView, Packing, pack};
use cactus_simd::Tier;

/// The kernels of the tier and those it is compared with, or none with a note.
fn kernels() -> Option<[&'static Kernels; 2]> {
    let tiers = [Tier::AmxInt8, Tier::Avx512Vnni].map(Kernels::for_tier);
    if tiers[0].is_none() {
        eprintln!("SKIPPED: no AMX here");
    }
    Some([tiers[0]?, tiers[1]?])
}

/// Deterministic values in `-1..1`, some of them large.
fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
        if state.is_multiple_of(61) { 100.0 * value } else { value }
    };
    (0..len).map(next).collect()
}

/// The product of `rows` rows by the kernels of one tier; memory that was used before, as a tile's missing rows are whatever was there.
fn product(
    kernels: &'static Kernels,
    step: &Step<'_>,
    w: &PackedView<'_>,
    x: &[f32],
    rows: usize,
    bias: Option<&[f32]>,
) -> Vec<u32> {
    let (exec, k) = (Exec { kernels, step }, w.k());
    let bytes = RotatedRows::bytes(rows, k).max(QuantizedRows::bytes(rows, k)).unwrap();
    let mut memory = vec![f32::NAN.to_bits(); bytes / 4];
    let memory: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
    let x = if w.packing() == Packing::Int8G32 {
        exec.quantize_rows(x, rows, k, &mut QuantizedRows::new(memory, rows, k));
        Activations::Q8(QuantizedRows::new(memory, rows, k))
    } else {
        exec.rotate_rows(x, rows, k, &mut RotatedRows::new(memory, rows, k));
        Activations::Rotated(RotatedRows::new(memory, rows, k))
    };
    let epilogue = Epilogue {
        bias,
        accumulate: bias.is_some(),
        bounds: rows.is_multiple_of(3).then_some([-2.0, 3.0]),
        activation: rows.is_multiple_of(5).then_some(UnaryOp::Abs),
        ..Epilogue::default()
    };
    let mut out = noise(rows * w.n(), 5);
    exec.linear(w, x, rows, epilogue, &mut out);
    out.into_iter().map(f32::to_bits).collect()
}

fn check(packing: Packing, [n, k]: [usize; 2], rows: impl IntoIterator<Item = usize>) {
    let Some([kernels, other]) = kernels() else {
        return;
    };
    let packed = pack(packing, n, k, &noise(n * k, (n + k) as u64)).unwrap();
    let pool = Pool::new(3);
    for rows in rows {
        let (mut x, bias) = (noise(rows * k, 7), noise(n, 8));
        if rows > 20 {
            // A row whose outputs are NaN, and one of zeros.
            x[17 * k] = f32::INFINITY;
            x[18 * k..19 * k].fill(0.0);
        }
        let bias = (rows % 2 == 0).then_some(&bias[..]);
        let expected = product(other, &Step::inline(), &packed.view(), &x, rows, bias);
        for step in [Step::inline(), pool.step(2), pool.step(3)] {
            let found = product(kernels, &step, &packed.view(), &x, rows, bias);
            let same = |(a, b): (&u32, &u32)| a == b || f32::from_bits(*a).is_nan() && f32::from_bits(*b).is_nan();
            let differs = found.iter().zip(&expected).position(|pair| !same(pair));
            assert_eq!(differs, None, "{packing} {n}x{k}, {rows} rows, width {}", step.width());
        }
    }
}

#[test]
fn products_of_any_number_of_rows_have_the_same_bits() {
    for packing in [Packing::Int8G32, Packing::Tcq4G128, Packing::Cq1G128] {
        check(packing, [33, 128], 1..66);
    }
}

#[test]
fn products_with_odd_groups_have_the_same_bits() {
    for packing in [Packing::Int8G32, Packing::Cq4G128, Packing::Tcq3G128, Packing::Tcq6G128] {
        for k in [1, 31, 32, 64, 96, 130, 224, 352] {
            check(packing, [17, k], [16, 31, 33]);
        }
    }
}

#[test]
fn products_of_several_panels_have_the_same_bits() {
    for packing in [Packing::Int8G32, Packing::Tcq2G128, Packing::Tcq5G128] {
        // One more group than a panel has, and several panels with a rest; more rows than wait at once.
        check(packing, [48, 1056], [16, 300]);
        check(packing, [31, 2144], [130]);
    }
}

/// Threads have rows of their own where weights are few, from 64 rows each on.
#[test]
fn rows_shared_among_threads_have_the_same_bits() {
    check(Packing::Int8G32, [160, 64], [191, 192, 200, 217]);
}
