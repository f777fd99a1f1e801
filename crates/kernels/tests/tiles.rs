//! Tile products of AMX: the same bits as with AVX-512 for every number of rows, odd shape and number of threads. Where the CPU has none or the system does not let programs use them
//! there is nothing to test, and it says so. `sme2` has the same of outer products.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::print_stderr, reason = "a skipped test must be seen")]

mod support;

use cactus_base::{Pool, Step};
use cactus_kernels::{Epilogue, Exec, Kernels, UnaryOp};
use cactus_quant::{Packing, pack};
use cactus_simd::Tier;
use cactus_testkit::noise;
use support::products::linear;

/// The kernels of the tier and those it is compared with, or none with a note.
fn kernels() -> Option<[&'static Kernels; 2]> {
    let tiers = [Tier::AmxInt8, Tier::Avx512Vnni].map(Kernels::for_tier);
    if tiers[0].is_none() {
        eprintln!("SKIPPED: no AMX here");
    }
    Some([tiers[0]?, tiers[1]?])
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
        let epilogue = Epilogue {
            bias,
            accumulate: bias.is_some(),
            bounds: rows.is_multiple_of(3).then_some([-2.0, 3.0]),
            activation: rows.is_multiple_of(5).then_some(UnaryOp::Abs),
            ..Epilogue::default()
        };
        let product = |kernels, step: &Step<'_>| {
            let mut out = noise(rows * n, 5);
            linear(Exec { kernels, step }, &packed.view(), &x, rows, epilogue, &mut out);
            out
        };
        let expected = product(other, &Step::inline());
        for step in [Step::inline(), pool.step(2), pool.step(3)] {
            let found = product(kernels, &step);
            let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
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
            check(packing, [17, k], [32, 47, 49]);
        }
    }
}

#[test]
fn products_of_several_panels_have_the_same_bits() {
    for packing in [Packing::Int8G32, Packing::Tcq2G128, Packing::Tcq5G128] {
        // One more group than a panel has, and several panels with a rest; more rows than wait at once.
        check(packing, [48, 1056], [32, 300]);
        check(packing, [31, 2144], [130]);
    }
}

/// Threads have rows of their own where weights are few, from 64 rows each on.
#[test]
fn rows_shared_among_threads_have_the_same_bits() {
    check(Packing::Int8G32, [160, 64], [191, 192, 200, 217]);
}
