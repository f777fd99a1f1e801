//! Channels in the lanes: equal bits on every tier and thread count, close to `f64`, at edge shapes.

mod support;

use cactus_kernels::dense::{BlockConv, BlockEpilogue, BlockTranspose, Filters, ReduceOp, Source, Window, block_elems};
use cactus_kernels::{BinaryOp, Exec, Kernels, UnaryOp};
use cactus_quant::{Packing, pack};
use support::{Random, assert_close, assert_same_bits, same_everywhere};

/// Of each axis: places, taps, stride, zeros before, zeros after, dilation.
type Axis = [usize; 6];

fn window(axes: [Axis; 2]) -> Window {
    let of = |i: usize, first: usize| [first, axes[0][i], axes[1][i]];
    let out = |[size, taps, stride, before, after, dilation]: Axis| {
        (size + before + after - (taps - 1) * dilation - 1) / stride + 1
    };
    Window {
        size: of(0, 1),
        out: [1, out(axes[0]), out(axes[1])],
        kernel: of(1, 1),
        stride: of(2, 1),
        before: of(3, 0),
        dilation: of(5, 1),
    }
}

const WINDOWS: [[Axis; 2]; 13] = [
    [[7, 3, 1, 1, 1, 1], [7, 3, 1, 1, 1, 1]],
    // Tiles: odd planes, no padding, rows of one tile, more tiles than a stripe has.
    [[13, 3, 1, 1, 1, 1], [17, 3, 1, 1, 1, 1]],
    [[12, 3, 1, 0, 0, 1], [19, 3, 1, 0, 0, 1]],
    [[9, 3, 1, 4, 1, 1], [16, 3, 1, 0, 5, 1]],
    [[80, 3, 1, 1, 1, 1], [2, 3, 1, 1, 1, 1]],
    [[50, 3, 1, 1, 1, 1], [70, 3, 1, 1, 1, 1]],
    // Taps: every stride and dilation, one tap, and padding after which whole windows read nothing.
    [[14, 3, 2, 1, 1, 1], [19, 5, 2, 2, 2, 1]],
    [[16, 7, 3, 3, 0, 1], [40, 7, 4, 3, 3, 1]],
    [[11, 3, 1, 2, 2, 2], [18, 3, 2, 3, 3, 3]],
    [[9, 1, 1, 0, 0, 1], [13, 1, 1, 0, 0, 1]],
    [[9, 1, 2, 0, 0, 1], [13, 1, 2, 0, 0, 1]],
    [[3, 3, 1, 9, 7, 2], [3, 3, 1, 8, 6, 1]],
    // Long rows.
    [[6, 5, 1, 2, 2, 1], [113, 5, 2, 2, 2, 1]],
];

/// What tap `tap` of window `at` reads of a plane, `None` where that is outside.
fn read(w: &Window, [y, x]: [usize; 2], [ky, kx]: [usize; 2]) -> Option<usize> {
    let at = |axis: usize, window: usize, tap: usize| {
        let at = (window * w.stride[axis] + tap * w.dilation[axis]).checked_sub(w.before[axis])?;
        (at < w.size[axis]).then_some(at)
    };
    Some(at(1, y, ky)? * w.size[2] + at(2, x, kx)?)
}

/// The sums of a convolution; `each` of the channels for every filter.
fn exact(w: &Window, x: &[f32], weight: &[f32], bias: &[f32], depthwise: bool) -> Vec<f64> {
    let plane = w.size[1] * w.size[2];
    let taps = w.kernel[1] * w.kernel[2];
    let channels = if depthwise { 1 } else { x.len() / plane };
    let mut all = Vec::new();
    for (f, bias) in bias.iter().enumerate() {
        for (y, column) in (0..w.out[1]).flat_map(|y| (0..w.out[2]).map(move |x| (y, x))) {
            let mut sum = f64::from(*bias);
            for (c, tap) in (0..channels).flat_map(|c| (0..taps).map(move |tap| (c, tap))) {
                if let Some(place) = read(w, [y, column], [tap / w.kernel[2], tap % w.kernel[2]]) {
                    let from = if depthwise { f } else { c };
                    sum += f64::from(x[from * plane + place]) * f64::from(weight[(f * channels + c) * taps + tap]);
                }
            }
            all.push(sum);
        }
    }
    all
}

/// Blocks of planes, NaN in the lanes that nobody may read.
fn in_blocks(x: &[f32], places: usize) -> Vec<f32> {
    let channels = x.len() / places;
    let mut blocks = vec![f32::NAN; block_elems(channels, places)];
    for (i, v) in x.iter().enumerate() {
        let (c, place) = (i / places, i % places);
        blocks[(c / 16 * places + place) * 16 + c % 16] = *v;
    }
    blocks
}

fn out_of_blocks(exec: &Exec<'_>, blocks: &[f32], channels: usize, places: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; channels * places];
    exec.from_blocks(blocks, places, &mut out);
    out
}

#[test]
fn convolutions_match_the_definition() {
    for axes in WINDOWS {
        let w = window(axes);
        let (places, windows) = (w.size[1] * w.size[2], w.out[1] * w.out[2]);
        for (channels, filters) in [(3, 20), (16, 16), (19, 53), (40, 150), (200, 33)] {
            if channels * filters > 3000 && windows > 300 {
                continue;
            }
            let conv = BlockConv::of(&w, channels, filters).unwrap();
            let k = channels * w.kernel[1] * w.kernel[2];
            let mut random = Random::new((places * filters + channels) as u64);
            let x = random.floats(channels * places, 1.0);
            let weight = random.floats(filters * k, 1.0);
            let bias = random.floats(filters, 1.0);
            let blocks = in_blocks(&x, places);
            let packed = pack(Packing::F32N16, filters, k, &weight).unwrap();
            let packed: Vec<f32> = packed
                .data()
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect();
            let activation = [None, Some(UnaryOp::Relu), Some(UnaryOp::Sigmoid)][(channels + filters) % 3];
            let epilogue = BlockEpilogue {
                bias: Some(&bias),
                activation,
            };
            let what = format!("conv {axes:?} {channels} {filters}");
            let of = |source: Source<'_>, weight: Filters<'_>| {
                same_everywhere(&what, |exec| {
                    let mut scratch = vec![f32::NAN; exec.conv_blocks_scratch_elems(&conv, source)];
                    let mut out = vec![f32::NAN; block_elems(filters, windows)];
                    exec.conv_blocks(&conv, source, weight, epilogue, &mut scratch, &mut out);
                    out_of_blocks(exec, &out, filters, windows)
                })
            };
            let found = of(Source::Blocks(&blocks), Filters::Plain(&weight));
            let mut exact = exact(&w, &x, &weight, &bias, false);
            for sum in &mut exact {
                *sum = match activation {
                    None => *sum,
                    Some(UnaryOp::Relu) => sum.max(0.0),
                    _ => 1.0 / (1.0 + (-*sum).exp()),
                };
            }
            assert_close(&what, &found, &exact, 1e-5, 1e-4);
            assert_same_bits(&what, &of(Source::Planes(&x), Filters::Plain(&weight)), &found);
            assert_same_bits(&what, &of(Source::Blocks(&blocks), Filters::Packed(&packed)), &found);
        }
    }
}

#[test]
fn channels_alone_match_the_definition() {
    for axes in WINDOWS {
        let w = window(axes);
        let (places, windows) = (w.size[1] * w.size[2], w.out[1] * w.out[2]);
        let channels = 19;
        let conv = BlockConv::of(&w, channels, channels).unwrap();
        let mut random = Random::new(places as u64);
        let x = random.floats(channels * places, 1.0);
        let weight = random.floats(channels * w.kernel[1] * w.kernel[2], 1.0);
        let bias = random.floats(channels, 1.0);
        let blocks = in_blocks(&x, places);
        let relu = axes[0][0] % 2 == 0;
        let epilogue = BlockEpilogue {
            bias: Some(&bias),
            activation: relu.then_some(UnaryOp::Relu),
        };
        let what = format!("depthwise {axes:?}");
        let found = same_everywhere(&what, |exec| {
            let mut scratch = vec![f32::NAN; exec.depthwise_blocks_scratch_elems(&conv)];
            let mut out = vec![f32::NAN; block_elems(channels, windows)];
            exec.depthwise_blocks(&conv, &blocks, &weight, epilogue, &mut scratch, &mut out);
            out_of_blocks(exec, &out, channels, windows)
        });
        let mut exact = exact(&w, &x, &weight, &bias, true);
        if relu {
            exact.iter_mut().for_each(|sum| *sum = sum.max(0.0));
        }
        assert_close(&what, &found, &exact, 1e-5, 1e-4);
    }
}

#[test]
fn touching_transposes_match_the_definition() {
    for (out, kernel, channels, filters) in [
        ([5, 9], [2, 2], 19, 33),
        ([1, 40], [3, 2], 16, 16),
        ([30, 3], [1, 4], 33, 70),
    ] {
        let w = Window {
            size: [1, out[0] * kernel[0], out[1] * kernel[1]],
            out: [1, out[0], out[1]],
            kernel: [1, kernel[0], kernel[1]],
            stride: [1, kernel[0], kernel[1]],
            before: [0; 3],
            dilation: [1; 3],
        };
        let of = BlockTranspose::of(&w, channels, filters).unwrap();
        let (places, made, taps) = (out[0] * out[1], w.size[1] * w.size[2], kernel[0] * kernel[1]);
        let mut random = Random::new(made as u64);
        let x = random.floats(channels * places, 1.0);
        let weight = random.floats(channels * filters * taps, 1.0);
        let bias = random.floats(filters, 1.0);
        let blocks = in_blocks(&x, places);
        let what = format!("transpose {out:?} {kernel:?}");
        let found = same_everywhere(&what, |exec| {
            let mut scratch = vec![f32::NAN; exec.transpose_blocks_scratch_elems(&of)];
            let mut out = vec![f32::NAN; block_elems(filters, made)];
            exec.transpose_blocks(&of, &blocks, &weight, Some(&bias), &mut scratch, &mut out);
            out_of_blocks(exec, &out, filters, made)
        });
        let mut exact = Vec::new();
        for f in 0..filters {
            for place in 0..made {
                let (y, column) = (place / w.size[2], place % w.size[2]);
                let from = y / kernel[0] * out[1] + column / kernel[1];
                let tap = y % kernel[0] * kernel[1] + column % kernel[1];
                let of = |c: usize| f64::from(x[c * places + from]) * f64::from(weight[(c * filters + f) * taps + tap]);
                exact.push(f64::from(bias[f]) + (0..channels).map(of).sum::<f64>());
            }
        }
        assert_close(&what, &found, &exact, 1e-5, 1e-4);
    }
    let overlapping = window([[8, 3, 2, 0, 1, 1], [8, 2, 2, 0, 0, 1]]);
    assert!(BlockTranspose::of(&overlapping, 16, 16).is_none());
}

#[test]
fn places_match_those_of_planes() {
    let channels = 37;
    for axes in WINDOWS {
        let w = window(axes);
        let (places, windows) = (w.size[1] * w.size[2], w.out[1] * w.out[2]);
        let mut random = Random::new(windows as u64);
        let mut x = random.floats(channels * places, 1.0);
        x[places / 2] = f32::NAN;
        x[places / 2 + usize::from(places > 1)] = f32::from_bits(0xffc0_0123);
        // The largest of a channel are zeros of both signs.
        for (i, v) in x[places..2 * places].iter_mut().enumerate() {
            *v = if i % 3 == 0 { -0.0 } else { (i % 2) as f32 * -v.abs() };
        }
        let each = random.floats(channels, 1.0);
        let blocks = in_blocks(&x, places);
        for (op, divisor) in [(ReduceOp::Max, None), (ReduceOp::Mean, None), (ReduceOp::Mean, Some(7))] {
            same_everywhere(&format!("pool {op:?} {axes:?}"), |exec| {
                let mut out = vec![f32::NAN; block_elems(channels, windows)];
                exec.pool_blocks(op, &w, divisor, &blocks, &mut out);
                let found = out_of_blocks(exec, &out, channels, windows);
                let mut expected = vec![0.0; channels * windows];
                exec.pool(op, &w, divisor, &x, &mut expected);
                assert_same_bits(&format!("pool {op:?} {axes:?}"), &found, &expected);
                found
            });
        }
        for (op, is_first) in [(BinaryOp::Mul, false), (BinaryOp::Sub, true), (BinaryOp::Div, false)] {
            let found = same_everywhere(&format!("{op:?} {axes:?}"), |exec| {
                let mut out = vec![f32::NAN; blocks.len()];
                exec.binary_blocks(op, &blocks, &each, is_first, places, &mut out);
                out_of_blocks(exec, &out, channels, places)
            });
            let expected = x.iter().enumerate().map(|(i, &v)| {
                let each = each[i / places];
                match op {
                    BinaryOp::Mul => v * each,
                    BinaryOp::Sub => each - v,
                    _ => v / each,
                }
            });
            assert_same_bits(&format!("{op:?} {axes:?}"), &found, &expected.collect::<Vec<_>>());
        }
        let other = random.floats(channels * places, 1.0);
        let functions = [Some(UnaryOp::Sigmoid), None];
        let found = same_everywhere(&format!("zip {axes:?}"), |exec| {
            let other = in_blocks(&other, places);
            let (mut made, mut out) = (vec![f32::NAN; blocks.len()], vec![f32::NAN; blocks.len()]);
            exec.copy_blocks(&blocks, places, &mut made);
            exec.unary_blocks(UnaryOp::Tanh, None, places, &mut made);
            exec.unary_blocks(UnaryOp::Tanh, Some(&blocks), places, &mut out);
            let planes = |blocks: &[f32]| out_of_blocks(exec, blocks, channels, places);
            assert_same_bits(&format!("in place {axes:?}"), &planes(&made), &planes(&out));
            exec.zip_blocks(BinaryOp::Mul, functions, &made, &other, places, &mut out);
            planes(&out)
        });
        let expected = same_everywhere(&format!("zip of planes {axes:?}"), |exec| {
            let (mut made, mut out) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
            exec.unary(UnaryOp::Tanh, &x, &mut made);
            exec.zip(BinaryOp::Mul, functions, &made, &other, &mut out);
            out
        });
        assert_same_bits(&format!("zip {axes:?}"), &found, &expected);
        x.iter_mut().filter(|v| v.is_nan()).for_each(|v| *v = 0.5);
        let blocks = in_blocks(&x, places);
        let found = same_everywhere(&format!("means {axes:?}"), |exec| {
            let mut out = vec![f32::NAN; channels];
            exec.reduce_blocks(ReduceOp::Mean, &blocks, places, &mut out);
            out
        });
        let exact = x.chunks_exact(places).map(|plane| {
            let sum: f64 = plane.iter().copied().map(f64::from).sum();
            sum / places as f64
        });
        assert_close(
            &format!("means {axes:?}"),
            &found,
            &exact.collect::<Vec<_>>(),
            1e-5,
            1e-5,
        );
    }
}

#[test]
fn planes_come_back_from_blocks() {
    for (channels, places) in [(1, 1), (16, 300), (19, 257), (33, 4)] {
        let x = Random::new(places as u64).floats(channels * places, 1.0);
        let back = same_everywhere(&format!("{channels} {places}"), |exec| {
            let mut blocks = vec![f32::NAN; block_elems(channels, places)];
            exec.to_blocks(&x, places, &mut blocks);
            out_of_blocks(exec, &blocks, channels, places)
        });
        assert_same_bits(&format!("{channels} {places}"), &back, &x);
    }
}

#[test]
fn rows_of_channels_come_from_blocks_and_go_back() {
    for (channels, places) in [(1, 1), (16, 300), (19, 257), (33, 4)] {
        let x = Random::new(places as u64).floats(channels * places, 1.0);
        let rows: Vec<f32> = (0..channels * places)
            .map(|i| x[i % channels * places + i / channels])
            .collect();
        let made = same_everywhere(&format!("{channels} {places}"), |exec| {
            let mut made = vec![f32::NAN; channels * places];
            exec.blocks_to_rows(&in_blocks(&x, places), channels, &mut made);
            made
        });
        assert_same_bits(&format!("rows of {channels} {places}"), &made, &rows);
        let back = same_everywhere(&format!("{channels} {places}"), |exec| {
            let mut blocks = vec![f32::NAN; block_elems(channels, places)];
            exec.rows_to_blocks(&rows, channels, &mut blocks);
            out_of_blocks(exec, &blocks, channels, places)
        });
        assert_same_bits(&format!("planes of {channels} {places}"), &back, &x);
    }
}

#[test]
fn absurd_windows_ask_for_more_than_there_is() {
    let pool = cactus_base::Pool::new(1);
    let step = pool.step(1);
    let kernels = Kernels::detect().unwrap();
    let exec = Exec { kernels, step: &step };
    let w = Window {
        size: [1, 8, 8],
        out: [1, 2, 2],
        kernel: [1, 3, 3],
        stride: [1, usize::MAX / 3, usize::MAX / 3],
        before: [0, usize::MAX / 4, 0],
        dilation: [1; 3],
    };
    let conv = BlockConv::of(&w, 64, 64).unwrap();
    assert_eq!(exec.depthwise_blocks_scratch_elems(&conv), usize::MAX);
    assert_eq!(exec.conv_blocks_scratch_elems(&conv, Source::Blocks(&[])), usize::MAX);
}
