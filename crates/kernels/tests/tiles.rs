//! Tile products of AMX: the same bits as with AVX-512 for every number of rows, odd shape and number of threads. Where the CPU has none or the system does not let programs use them
//! there is nothing to test, and it says so. `sme2` has the same of outer products.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::print_stderr, reason = "a skipped test must be seen")]

mod support;

use cactus_base::{Pool, Step};
use cactus_kernels::dense::{DenseAttention, Form, ScoreOperands, Window, block_elems};
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
            let what = format!("{packing} {n}x{k}, {rows} rows, width {}", step.width());
            assert_same(&what, &found, &expected);
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

/// Convolutions on bytes: planes of places with zeros around them, strides and taps.
#[test]
fn convolutions_of_any_number_of_windows_have_the_same_bits() {
    let Some([kernels, other]) = kernels() else {
        return;
    };
    let pool = Pool::new(3);
    // Height, width, taps of each, stride, zeros around. Lines longer and shorter than a tile, windows that are no whole tiles, every number of them up to two tiles.
    let planes = [
        [20, 35, 3, 1, 1],
        [7, 7, 3, 1, 1],
        [14, 14, 3, 2, 1],
        [15, 16, 1, 1, 0],
        [10, 39, 1, 2, 0],
    ];
    let lines = (1..40).map(|width| [1, width, 1, 1, 0]);
    for (i, [height, width, taps, stride, around]) in planes.into_iter().chain(lines).enumerate() {
        let w = window([height, width], taps, stride, around);
        // Channels that fill lines of the cache, and that do not; one run and two of them; blocks of filters in groups of one to four; more weights than a cache keeps; few
        // channels, which no tiles have.
        let sizes = [
            (64, 16),
            (144, 100),
            (64, 33),
            (272, 20),
            (320, 49),
            (256, 256),
            (16, 70),
            (70, 40),
        ];
        for (channels, filters) in sizes {
            // They take long.
            let is_slow = channels * filters > 20_000;
            if taps > 1 && channels % 16 > 0 || is_slow && height != 7 {
                continue;
            }
            let (places, windows) = (height * width, w.out.iter().product::<usize>());
            let packed = pack(
                Packing::Int8N16,
                filters,
                taps * taps * channels,
                &noise(filters * taps * taps * channels, channels as u64),
            )
            .unwrap();
            let (mut x, bias) = (noise(channels * places, 7), noise(filters, 8));
            // A place of zeros, and one without a number.
            x.iter_mut().step_by(places).for_each(|x| *x = 0.0);
            x[places - 1] = f32::NAN;
            let forms = [Form::Planes, Form::Blocks][i % 2];
            let epilogue = Epilogue {
                bias: (i % 3 > 0).then_some(&bias[..]),
                bounds: (i % 5 == 0).then_some([-3.0, 4.0]),
                activation: (i % 4 == 0).then_some(UnaryOp::Relu),
                ..Epilogue::default()
            };
            let made = |kernels, step: &Step<'_>| {
                let exec = Exec { kernels, step };
                let mut scratch = vec![f32::NAN; exec.conv_integers_scratch_elems(&w, &packed.view())];
                let elems = match forms {
                    Form::Planes => filters * windows,
                    Form::Blocks => block_elems(filters, windows),
                };
                let mut out = vec![0.5; elems];
                let forms = [Form::Planes, forms];
                exec.conv_integers(&w, 1, forms, &x, &packed.view(), epilogue, &mut scratch, &mut out);
                out
            };
            let expected = made(other, &Step::inline());
            for step in [Step::inline(), pool.step(3)] {
                let what = format!("{w:?}, {channels} channels, {filters} filters, width {}", step.width());
                assert_same(&what, &made(kernels, &step), &expected);
            }
        }
    }
}

/// Attention on bytes: queries that fill tiles and that do not, keys of whole blocks and parts of them.
#[test]
fn attention_on_bytes_has_the_same_bits() {
    let Some([kernels, other]) = kernels() else {
        return;
    };
    let pool = Pool::new(3);
    let sizes = [
        (16, 1),
        (15, 40),
        (17, 16),
        (33, 63),
        (48, 64),
        (50, 65),
        (100, 128),
        (147, 300),
        (47, 300),
        (31, 129),
        (22, 260),
    ];
    for (i, (queries, keys)) in sizes.into_iter().enumerate() {
        // The last two have no tiles.
        for (width, heads) in [(64, [4, 2]), (128, [2, 2]), (192, [1, 1]), (72, [2, 1]), (32, [2, 2])] {
            let attention = DenseAttention {
                integers: true,
                batch: 2,
                ..DenseAttention::plain([queries, keys], heads, width, 0.2)
            };
            let [mut q, mut k, mut v] = [(queries, heads[0]), (keys, heads[1]), (keys, heads[1])]
                .map(|(count, heads)| noise(2 * count * heads * width, (count + width) as u64));
            // A key beside which all others are nothing, or with which scores are too large for a float, or that is infinite; a query of zeros; one without a number, and such a value.
            let factor = [50.0, 1e37, f32::INFINITY][i % 3];
            k[..width].iter_mut().for_each(|k| *k *= factor);
            q[..width].fill(0.0);
            q[width] = f32::NAN;
            if i % 2 > 0 {
                v[3] = f32::NAN;
            }
            let made = |kernels, step: &Step<'_>| {
                let exec = Exec { kernels, step };
                let mut scratch = vec![f32::NAN; exec.attend_dense_scratch_bytes(&attention) / 4];
                let mut out = vec![0.5; q.len()];
                exec.attend_dense(
                    &attention,
                    [&q, &k, &v],
                    ScoreOperands::default(),
                    &mut scratch,
                    &mut out,
                );
                out
            };
            let expected = made(other, &Step::inline());
            for step in [Step::inline(), pool.step(3)] {
                let what = format!("{queries} queries, {keys} keys of {width}, width {}", step.width());
                assert_same(&what, &made(kernels, &step), &expected);
            }
        }
    }
}

fn window([height, width]: [usize; 2], taps: usize, stride: usize, around: usize) -> Window {
    let out = |size: usize| (size + 2 * around - taps) / stride + 1;
    Window {
        size: [1, height, width],
        out: [1, out(height), out(width)],
        kernel: [1, taps, taps],
        stride: [1, stride, stride],
        before: [0, around, around],
        dilation: [1; 3],
    }
}

fn assert_same(what: &str, found: &[f32], expected: &[f32]) {
    let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    assert_eq!(found.len(), expected.len(), "{what}");
    let differs = found.iter().zip(expected).position(|pair| !same(pair));
    assert_eq!(differs, None, "{what}");
}
