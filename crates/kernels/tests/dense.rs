//! Windows and attention without a cache: equal bits on every tier and thread count, close to `f64`, at edge shapes.

mod support;

use cactus_base::{AlignedBuf, Step};
use cactus_kernels::dense::{
    DenseAttention, Form, ReduceOp, ScoreBias, ScoreOperands, Window, block_elems, broadcast_strides, is_on_integers,
};
use cactus_kernels::{BinaryOp, Epilogue, Exec, Kernels, QuantizedRows, Tier, UnaryOp};
use cactus_quant::{PackedView, Packing, pack};
use support::{Random, assert_close, assert_same_bits, same_everywhere};

/// Of each axis: places, taps, stride, zeros before, zeros after, dilation.
type Axis = [usize; 6];

const NO_AXIS: Axis = [1, 1, 1, 0, 0, 1];

fn window(axes: [Axis; 3]) -> Window {
    let of = |i: usize| axes.map(|axis| axis[i]);
    let out = axes.map(|[size, taps, stride, before, after, dilation]| {
        (size + before + after - (taps - 1) * dilation - 1) / stride + 1
    });
    Window {
        size: of(0),
        out,
        kernel: of(1),
        stride: of(2),
        before: of(3),
        dilation: of(5),
    }
}

const WINDOWS: [[Axis; 3]; 14] = [
    // One axis; its own stride, and one larger than its taps.
    [NO_AXIS, NO_AXIS, [41, 3, 1, 1, 1, 1]],
    [NO_AXIS, NO_AXIS, [60, 3, 2, 1, 1, 1]],
    [NO_AXIS, NO_AXIS, [23, 2, 5, 0, 0, 1]],
    // Padding after which whole windows read nothing.
    [NO_AXIS, NO_AXIS, [3, 3, 1, 9, 7, 2]],
    // Two: rows shorter and longer than a line, every stride and dilation.
    [NO_AXIS, [7, 3, 1, 1, 1, 1], [7, 3, 1, 1, 1, 1]],
    [NO_AXIS, [14, 3, 2, 1, 1, 1], [19, 5, 2, 2, 2, 1]],
    [NO_AXIS, [16, 7, 3, 3, 0, 1], [40, 7, 4, 3, 3, 1]],
    [NO_AXIS, [11, 3, 1, 2, 2, 2], [18, 3, 2, 3, 3, 3]],
    [NO_AXIS, [9, 1, 1, 0, 0, 1], [13, 1, 1, 0, 0, 1]],
    [NO_AXIS, [9, 1, 2, 0, 0, 1], [13, 1, 2, 0, 0, 1]],
    // Rows of several lines at once.
    [NO_AXIS, [5, 5, 1, 2, 2, 1], [150, 5, 2, 2, 2, 1]],
    // Windows enough for each thread to have stripes of its own.
    [NO_AXIS, [25, 1, 1, 0, 0, 1], [51, 1, 1, 0, 0, 1]],
    [NO_AXIS, [22, 3, 1, 1, 1, 1], [50, 3, 1, 1, 1, 1]],
    // Three.
    [[4, 2, 1, 0, 1, 1], [5, 3, 2, 1, 1, 1], [6, 3, 1, 1, 1, 1]],
];

/// What every tap of every window reads, `None` where that is outside: windows first.
fn reads(w: &Window) -> Vec<Vec<Option<usize>>> {
    let split = |n: usize, s: [usize; 3]| [n / (s[1] * s[2]), n / s[2] % s[1], n % s[2]];
    let windows: usize = w.out.iter().product();
    let taps: usize = w.kernel.iter().product();
    let at = |window: usize, tap: usize| {
        let (window, tap) = (split(window, w.out), split(tap, w.kernel));
        let mut place = 0;
        for a in 0..3 {
            let p = (window[a] * w.stride[a] + tap[a] * w.dilation[a]).checked_sub(w.before[a])?;
            if p >= w.size[a] {
                return None;
            }
            place = place * w.size[a] + p;
        }
        Some(place)
    };
    (0..windows).map(|i| (0..taps).map(|t| at(i, t)).collect()).collect()
}

#[test]
fn conv_matches_definition() {
    for axes in WINDOWS {
        let w = window(axes);
        let (reads, plane) = (reads(&w), w.size.iter().product::<usize>());
        let taps = reads[0].len();
        for (groups, channels, filters) in [(1, 3, 5), (2, 2, 8), (2, 3, 6), (4, 1, 1), (1, 19, 33)] {
            let mut random = Random::new((plane * filters) as u64);
            let x = random.floats(groups * channels * plane, 1.0);
            let weight = random.floats(groups * filters * channels * taps, 1.0);
            let bias = random.floats(groups * filters, 1.0);
            let epilogue = Epilogue {
                bias: Some(&bias),
                activation: (filters % 3 == 0).then_some(UnaryOp::Relu),
                ..Epilogue::default()
            };
            let found = same_everywhere(&format!("conv {axes:?} {groups}"), |exec| {
                let mut scratch = vec![f32::NAN; exec.conv_scratch_elems(&w, channels)];
                let mut out = vec![f32::NAN; groups * filters * reads.len()];
                exec.conv(&w, &x, &weight, epilogue, groups, &mut scratch, &mut out);
                out
            });
            let mut exact = Vec::new();
            for f in 0..groups * filters {
                let x = &x[f / filters * channels * plane..];
                for window in &reads {
                    let mut sum = f64::from(bias[f]);
                    for c in 0..channels {
                        for (tap, place) in window.iter().enumerate() {
                            let v = place.map_or(0.0, |p| f64::from(x[c * plane + p]));
                            sum += v * f64::from(weight[(f * channels + c) * taps + tap]);
                        }
                    }
                    exact.push(if filters % 3 == 0 { sum.max(0.0) } else { sum });
                }
            }
            assert_close(&format!("conv {axes:?} {groups}"), &found, &exact, 1e-5, 1e-4);
            if channels == 1 && filters == 1 {
                let found = same_everywhere(&format!("depthwise {axes:?}"), |exec| {
                    let mut scratch = vec![f32::NAN; exec.conv_depthwise_scratch_elems(&w)];
                    let mut out = vec![f32::NAN; groups * reads.len()];
                    exec.conv_depthwise(&w, &x, &weight, epilogue, &mut scratch, &mut out);
                    out
                });
                assert_close(&format!("depthwise {axes:?}"), &found, &exact, 1e-5, 1e-4);
            }
            if groups > 1 {
                continue;
            }
            // The other way, of two samples, in 32 bits and in 8.
            let twice = x.repeat(2);
            let as_rows = |packing| {
                let packed = pack(packing, filters, channels * taps, &weight).unwrap();
                same_everywhere(&format!("conv_rows {packing} {axes:?}"), |exec| {
                    let mut scratch = vec![f32::NAN; exec.conv_rows_scratch_elems(&w, 2, &packed.view())];
                    let mut out = vec![f32::NAN; 2 * filters * reads.len()];
                    exec.conv_rows(&w, 2, &twice, &packed.view(), epilogue, &mut scratch, &mut out);
                    out
                })
            };
            assert_same_bits(
                &format!("conv_rows {axes:?}"),
                &as_rows(Packing::F32N16),
                &found.repeat(2),
            );
            let rounded = as_rows(Packing::Int8G32);
            // Each product is off by half a step of either factor at most.
            let bound = channels as f64 * taps as f64 * 4.0 * 4.0 / 127.0;
            assert_close(
                &format!("conv_rows, 8 bits, {axes:?}"),
                &rounded,
                &exact.repeat(2),
                0.0,
                bound,
            );
        }
    }
}

/// Quantizes places in groups of 32 channels and multiplies them: what [`Exec::conv_integers`] is by definition with scales for each 32 inputs.
fn product_of_places(exec: &Exec<'_>, channels: usize, x: &[f32], weight: &PackedView<'_>, bias: &[f32]) -> Vec<f32> {
    let (n, filters) = (x.len() / channels, weight.layout().n());
    let rows: Vec<f32> = (0..n * channels).map(|i| x[i % channels * n + i / channels]).collect();
    let mut memory = vec![0.0; QuantizedRows::bytes(n, channels).unwrap() / 4];
    let rows = exec.activations(Packing::Int8G32, &rows, [n, channels], None, &mut memory);
    let mut made = vec![f32::NAN; n * filters];
    exec.linear(weight, rows, n, finish(bias), &mut made);
    let turned = (0..n * filters).map(|i| made[i % n * filters + i / n]);
    turned.collect()
}

/// What all convolutions on integers do at the end here.
fn finish(bias: &[f32]) -> Epilogue<'_> {
    Epilogue {
        bias: Some(bias),
        activation: Some(UnaryOp::Relu),
        ..Epilogue::default()
    }
}

/// The scale and the integers of a place.
fn quantized(x: &[f32]) -> (f32, Vec<i32>) {
    if x.iter().any(|x| !x.is_finite()) {
        return (f32::NAN, vec![0; x.len()]);
    }
    let largest = x.iter().fold(0f32, |m, x| m.max(x.abs()));
    if largest < 1e-30 {
        return (0.0, vec![0; x.len()]);
    }
    let integers = x.iter().map(|x| (x * (127.0 / largest)).round_ties_even() as i32);
    (largest / 127.0, integers.collect())
}

/// What [`Exec::conv_integers`] is by definition with a scale for each filter.
fn sums_of_taps(w: &Window, channels: usize, x: &[f32], weight: &PackedView<'_>, bias: &[f32]) -> Vec<f32> {
    let (reads, plane) = (reads(w), w.size.iter().product::<usize>());
    let (filters, taps) = (weight.layout().n(), w.kernel.iter().product::<usize>());
    let (k, block_bytes) = (taps * channels, weight.layout().block_bytes());
    let places: Vec<(f32, Vec<i32>)> = (0..plane)
        .map(|p| quantized(&(0..channels).map(|c| x[c * plane + p]).collect::<Vec<_>>()))
        .collect();
    let mut out = vec![0.0; filters * reads.len()];
    for filter in 0..filters {
        let block = &weight.data()[filter / 16 * block_bytes..][..block_bytes];
        let r = filter % 16;
        let scale = f32::from_le_bytes(block[4 * r..4 * r + 4].try_into().unwrap());
        let integers: Vec<i32> = (0..k)
            .map(|i| i32::from(block[64 + i / 4 * 64 + 4 * r + i % 4] as i8))
            .collect();
        for (window, read) in reads.iter().enumerate() {
            let mut sum = 0f32;
            for (place, integers) in read.iter().zip(integers.chunks_exact(channels)) {
                let nothing = (0.0, vec![0; channels]);
                let (scale, place) = place.map_or(&nothing, |p| &places[p]);
                for (a, b) in place.chunks(256).zip(integers.chunks(256)) {
                    let dot: i32 = a.iter().zip(b).map(|(a, b)| a * b).sum();
                    sum = (dot as f32).mul_add(*scale, sum);
                }
            }
            let value = sum.mul_add(scale, bias[filter]);
            // As the function has it.
            out[filter * reads.len() + window] = if value > 0.0 || value.is_nan() { value } else { 0.0 };
        }
    }
    out
}

#[test]
fn conv_integers_is_what_its_definition_says() {
    for axes in WINDOWS {
        let w = window(axes);
        let (plane, taps) = (w.size.iter().product::<usize>(), w.kernel.iter().product::<usize>());
        // One block of filters, and tiles of two, three and four; a second run of channels.
        let sizes = [(32, 5), (3, 40), (72, 16), (272, 3), (16, 70), (48, 100), (32, 64)];
        let packings = [Packing::Int8G32, Packing::Int8N16];
        for ((channels, filters), packing) in sizes.into_iter().flat_map(|size| packings.map(|p| (size, p))) {
            if !is_on_integers(packing, &w, channels) {
                continue;
            }
            let mut random = Random::new((plane * filters) as u64);
            let mut x = random.floats(2 * channels * plane, 1.0);
            // A group without a scale, a place without one, one without a number, and one whose numbers are far apart.
            x[..plane.min(20)].fill(1e-35);
            (0..channels).for_each(|c| x[(channels + c) * plane] = 1e-32);
            x[plane / 2] = f32::INFINITY;
            x[plane / 3] = f32::NAN;
            x[(channels + 1) * plane - 1] = 1e30;
            let weight = random.floats(filters * channels * taps, 1.0);
            let bias = random.floats(filters, 1.0);
            let packed = pack(packing, filters, channels * taps, &weight).unwrap();
            let mut data = AlignedBuf::from_slice(packed.data()).unwrap();
            if packing == Packing::Int8N16 {
                // What no conversion writes: the least byte, and scales that are negative and no numbers.
                data[64 + 4] = 0x80;
                for (filter, scale) in [(1, -0.25), (2, f32::NAN), (3, f32::INFINITY)] {
                    if filter < filters {
                        data[4 * filter..4 * filter + 4].copy_from_slice(&f32::to_le_bytes(scale));
                    }
                }
            }
            let packed = PackedView::new(packing, filters, channels * taps, &[], &data).unwrap();
            let what = format!("conv_integers {packing} {axes:?} {channels} {filters}");
            let scalar = Exec {
                kernels: Kernels::for_tier(Tier::Scalar).unwrap(),
                step: &Step::inline(),
            };
            let samples = x.chunks_exact(channels * plane);
            let by_definition: Vec<f32> = samples
                .flat_map(|x| match packing {
                    Packing::Int8G32 => product_of_places(&scalar, channels, x, &packed, &bias),
                    _ => sums_of_taps(&w, channels, x, &packed, &bias),
                })
                .collect();
            let windows = w.out.iter().product::<usize>();
            // Lanes behind the last channel hold what nobody may read.
            let mut in_blocks = vec![f32::NAN; 2 * block_elems(channels, plane)];
            for (i, v) in x.iter().enumerate() {
                let (sample, channel, place) = (i / (channels * plane), i / plane % channels, i % plane);
                let block = sample * channels.div_ceil(16) + channel / 16;
                in_blocks[(block * plane + place) * 16 + channel % 16] = *v;
            }
            let forms = [Form::Planes, Form::Blocks];
            for forms in forms.iter().flat_map(|&x| forms.map(|out| [x, out])) {
                let what = format!("{what} {forms:?}");
                let found = same_everywhere(&what, |exec| {
                    let mut scratch = vec![f32::NAN; exec.conv_integers_scratch_elems(&w, &packed)];
                    let each = filters * windows;
                    let x = if forms[0] == Form::Planes { &x } else { &in_blocks };
                    let mut out = vec![f32::NAN; 2 * each];
                    let conv = |scratch: &mut [f32], out: &mut [f32]| {
                        exec.conv_integers(&w, 2, forms, x, &packed, finish(&bias), scratch, out);
                    };
                    if forms[1] == Form::Planes {
                        conv(&mut scratch, &mut out);
                        return out;
                    }
                    let size = block_elems(filters, windows);
                    let mut made = vec![f32::NAN; 2 * size];
                    conv(&mut scratch, &mut made);
                    for (made, out) in made.chunks_exact(size.max(1)).zip(out.chunks_exact_mut(each.max(1))) {
                        exec.from_blocks(made, windows, out);
                    }
                    out
                });
                assert_same_bits(&what, &found, &by_definition);
            }
        }
    }
}

#[test]
fn convolutions_without_windows_give_nothing() {
    let w = Window {
        out: [1, 0, 0],
        ..window([NO_AXIS, [2, 3, 1, 1, 1, 1], [2, 3, 1, 1, 1, 1]])
    };
    let (x, weight) = ([1.0; 32 * 4], [1.0; 32 * 9]);
    let packed = pack(Packing::Int8N16, 1, 32 * 9, &weight).unwrap();
    same_everywhere("no windows", |exec| {
        assert_eq!(exec.conv_depthwise_scratch_elems(&w), 0);
        exec.conv_depthwise(&w, &x, &weight, Epilogue::default(), &mut [], &mut []);
        let mut scratch = vec![0.0; exec.conv_integers_scratch_elems(&w, &packed.view())];
        exec.conv_integers(
            &w,
            1,
            [Form::Planes; 2],
            &x,
            &packed.view(),
            Epilogue::default(),
            &mut scratch,
            &mut [],
        );
        Vec::new()
    });
}

#[test]
fn windows_far_before_the_input_read_zeros() {
    let w = Window {
        size: [1, 1, 3],
        out: [1; 3],
        kernel: [1, 1, 2],
        stride: [1; 3],
        before: [0, 0, usize::MAX],
        dilation: [1; 3],
    };
    let packed = pack(Packing::Int8N16, 2, 32, &[1.0; 64]).unwrap();
    same_everywhere("far before", |exec| {
        let mut scratch = vec![f32::NAN; exec.conv_integers_scratch_elems(&w, &packed.view())];
        let (forms, bias, mut out) = ([Form::Planes; 2], [1.0, 2.0], vec![f32::NAN; 2]);
        exec.conv_integers(
            &w,
            1,
            forms,
            &[1.0; 48],
            &packed.view(),
            finish(&bias),
            &mut scratch,
            &mut out,
        );
        assert_eq!(out, bias);
        out
    });
}

#[test]
fn conv_scratch_of_absurd_windows_saturates() {
    let far = usize::MAX / 4;
    for (stride, dilation) in [(far, 1), (1, far), (far, far)] {
        let w = Window {
            size: [far; 3],
            out: [2; 3],
            kernel: [3; 3],
            stride: [stride; 3],
            before: [far; 3],
            dilation: [dilation; 3],
        };
        let packed = pack(Packing::Int8N16, 1, 32 * 27, &[0.0; 32 * 27]).unwrap();
        same_everywhere("scratch", |exec| {
            assert_eq!(exec.conv_scratch_elems(&w, 3), usize::MAX, "{w:?}");
            let elems = exec.conv_integers_scratch_elems(&w, &packed.view());
            assert_eq!(elems, usize::MAX, "{w:?}");
            Vec::new()
        });
    }
}

#[test]
fn pool_matches_definition_and_keeps_nan() {
    for axes in WINDOWS {
        let w = window(axes);
        let (reads, plane) = (reads(&w), w.size.iter().product::<usize>());
        let mut x = Random::new(plane as u64).floats(3 * plane, 1.0);
        x[plane] = f32::NAN;
        for (op, divisor) in [
            (ReduceOp::Max, None),
            (ReduceOp::Mean, None),
            (ReduceOp::Mean, Some(reads[0].len())),
        ] {
            let found = same_everywhere(&format!("pool {op:?} {axes:?}"), |exec| {
                let mut out = vec![f32::NAN; 3 * reads.len()];
                exec.pool(op, &w, divisor, &x, &mut out);
                out
            });
            for (i, &found) in found.iter().enumerate() {
                let x = &x[i / reads.len() * plane..];
                let values: Vec<f32> = reads[i % reads.len()].iter().flatten().map(|&p| x[p]).collect();
                let expected = match op {
                    ReduceOp::Max if values.iter().any(|v| v.is_nan()) => f32::NAN,
                    ReduceOp::Max => values.iter().copied().fold(f32::NEG_INFINITY, f32::max),
                    _ => values.iter().sum::<f32>() / divisor.unwrap_or(values.len()) as f32,
                };
                let same = (found.is_nan() && expected.is_nan())
                    || found == expected
                    || (found - expected).abs() <= 1e-5 * (1.0 + expected.abs());
                assert!(
                    same,
                    "pool {op:?} {axes:?}: element {i} is {found}, expected {expected}"
                );
            }
        }
    }
}

#[test]
fn attend_dense_matches_definition() {
    let plain = DenseAttention::plain([5, 5], [2, 1], 8, 0.3);
    let kinds = [
        plain,
        DenseAttention {
            batch: 2,
            queries: 131,
            keys: 33,
            heads: 6,
            kv_heads: 3,
            width: 20,
            ..plain
        },
        DenseAttention {
            queries: 1,
            keys: 300,
            heads: 3,
            kv_heads: 3,
            ..plain
        },
        DenseAttention {
            queries: 37,
            keys: 37,
            heads: 1,
            width: 64,
            causal: true,
            ..plain
        },
        DenseAttention {
            queries: 40,
            keys: 40,
            causal: true,
            window: Some(7),
            softcap: Some(2.0),
            ..plain
        },
        DenseAttention {
            queries: 40,
            keys: 40,
            causal: true,
            chunk: Some(16),
            sinks: true,
            ..plain
        },
        DenseAttention {
            queries: 130,
            keys: 35,
            sinks: true,
            ..plain
        },
        DenseAttention {
            queries: 150,
            keys: 150,
            window: Some(9),
            ahead: Some(20),
            ..plain
        },
        DenseAttention {
            queries: 3,
            keys: 4000,
            heads: 1,
            ..plain
        },
    ];
    // What is added to scores: nothing, a row for all, a matrix for each head or sequence.
    // And with the fifth kind slopes.
    for (a, added) in kinds.into_iter().flat_map(|a| [0, 1, 2, 3, 4].map(|added| (a, added))) {
        let mut random = Random::new((a.queries * a.keys) as u64);
        let axes = match added {
            0 | 4 => [0, 0, 0],
            1 => [1, 1, 1],
            2 => [1, a.heads, a.queries],
            _ => [a.batch, 1, a.queries],
        };
        let mut bias = random.floats(axes.iter().product::<usize>() * a.keys, 1.0);
        // Some are hidden, but never a query's own position, the only one that all kinds see.
        bias.iter_mut()
            .skip(1)
            .step_by(7)
            .filter(|_| !a.causal && a.ahead.is_none())
            .for_each(|x| *x = f32::NEG_INFINITY);
        let of_axis = |i: usize| match axes[i] {
            1 => 0,
            _ => axes[i + 1..].iter().product::<usize>() * a.keys,
        };
        let strides = [of_axis(0), of_axis(1), of_axis(2)];
        let q = random.floats(a.batch * a.queries * a.heads * a.width, 1.0);
        let [k, v] = [(); 2].map(|()| random.floats(a.batch * a.keys * a.kv_heads * a.width, 1.0));
        let sinks = a.sinks.then(|| random.floats(a.heads, 3.0));
        let slopes = (added == 4).then(|| random.floats(a.heads, 0.1));
        let found = same_everywhere(&format!("{a:?}"), |exec| {
            let mut scratch = vec![f32::NAN; exec.attend_dense_scratch_bytes(&a) / 4];
            let mut out = vec![f32::NAN; q.len()];
            let bias = (1..4).contains(&added).then_some(ScoreBias { data: &bias, strides });
            let more = ScoreOperands {
                bias,
                sinks: sinks.as_deref(),
                slopes: slopes.as_deref(),
            };
            exec.attend_dense(&a, [&q, &k, &v], more, &mut scratch, &mut out);
            out
        });
        let mut exact = Vec::new();
        for b in 0..a.batch {
            for (i, h) in (0..a.queries).flat_map(|i| (0..a.heads).map(move |h| (i, h))) {
                let query = &q[((b * a.queries + i) * a.heads + h) * a.width..][..a.width];
                let kv = |j: usize| ((b * a.keys + j) * a.kv_heads + h / (a.heads / a.kv_heads)) * a.width;
                let bias_of = |j: usize| match added {
                    0 => 0.0,
                    4 => f64::from(slopes.as_ref().map_or(0.0, |s| s[h])) * (j as f64 - i as f64),
                    _ => f64::from(bias[b * strides[0] + h * strides[1] + i * strides[2] + j]),
                };
                let near = |j: usize| a.window.is_none_or(|w| j + w > i) && a.chunk.is_none_or(|n| j / n == i / n);
                let before = |j: usize| !a.causal && a.ahead.is_none_or(|ahead| j < i + ahead) || j <= i;
                let seen = |j: &usize| before(*j) && near(*j);
                let scores: Vec<(usize, f64)> = (0..a.keys)
                    .filter(seen)
                    .map(|j| {
                        let dot: f64 = (query.iter().zip(&k[kv(j)..]))
                            .map(|(q, k)| f64::from(*q) * f64::from(*k))
                            .sum();
                        let score = dot * f64::from(a.scale);
                        (
                            j,
                            (a.softcap
                                .map_or(score, |c| f64::from(c) * (score / f64::from(c)).tanh())
                                + bias_of(j))
                            .exp(),
                        )
                    })
                    .collect();
                let sum: f64 = scores.iter().map(|(_, e)| e).sum();
                let sum = sum + sinks.as_ref().map_or(0.0, |s| f64::from(s[h]).exp());
                exact.extend((0..a.width).map(|d| {
                    let weighted = scores.iter().map(|&(j, e)| e * f64::from(v[kv(j) + d]));
                    weighted.sum::<f64>() / sum
                }));
            }
        }
        assert_close(&format!("{a:?}"), &found, &exact, 1e-4, 1e-5);
    }
}

#[test]
fn attend_texts_gives_each_text_the_bits_that_it_has_alone() {
    let plain = DenseAttention {
        batch: 1,
        queries: 0,
        keys: 0,
        heads: 4,
        kv_heads: 2,
        width: 20,
        scale: 0.3,
        softcap: None,
        causal: false,
        window: None,
        ahead: None,
        chunk: None,
        sinks: false,
        integers: false,
    };
    let kinds = [
        plain,
        DenseAttention { causal: true, ..plain },
        DenseAttention {
            causal: true,
            window: Some(5),
            sinks: true,
            ..plain
        },
        DenseAttention {
            window: Some(7),
            ahead: Some(7),
            softcap: Some(2.0),
            ..plain
        },
    ];
    let texts: [&[usize]; 4] = [&[1], &[130], &[7, 1, 64, 33, 2], &[200, 3, 97]];
    for (kind, lengths) in kinds.into_iter().flat_map(|kind| texts.map(|lengths| (kind, lengths))) {
        let rows: usize = lengths.iter().sum();
        let all = DenseAttention {
            queries: rows,
            keys: rows,
            ..kind
        };
        let mut random = Random::new(rows as u64);
        let q = random.floats(rows * all.heads * all.width, 1.0);
        let [k, v] = [(); 2].map(|()| random.floats(rows * all.kv_heads * all.width, 1.0));
        let sinks = all.sinks.then(|| random.floats(all.heads, 3.0));
        let slopes = random.floats(all.heads, 0.1);
        let more = ScoreOperands {
            bias: None,
            sinks: sinks.as_deref(),
            slopes: Some(&slopes),
        };
        let together = same_everywhere(&format!("{all:?} of {lengths:?}"), |exec| {
            let mut scratch = vec![f32::NAN; exec.attend_texts_scratch_bytes(&all) / 4];
            let mut out = vec![f32::NAN; q.len()];
            exec.attend_texts(&all, lengths, [&q, &k, &v], more, &mut scratch, &mut out);
            out
        });
        let alone = same_everywhere(&format!("{all:?} alone"), |exec| {
            let mut out = vec![f32::NAN; q.len()];
            let mut first = 0;
            for &len in lengths {
                let one = DenseAttention {
                    queries: len,
                    keys: len,
                    ..kind
                };
                let of =
                    |x: &[f32], heads: usize| x[first * heads * one.width..(first + len) * heads * one.width].to_vec();
                let (q, k, v) = (of(&q, one.heads), of(&k, one.kv_heads), of(&v, one.kv_heads));
                let mut scratch = vec![f32::NAN; exec.attend_dense_scratch_bytes(&one) / 4];
                let own = &mut out[first * one.heads * one.width..][..q.len()];
                exec.attend_dense(&one, [&q, &k, &v], more, &mut scratch, own);
                first += len;
            }
            out
        });
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&together), bits(&alone), "{kind:?} of {lengths:?}");
    }
}

#[test]
fn broadcast_binary_matches_definition() {
    // A factor for each channel on either side, rows against columns, short lines and a scalar.
    let cases: [[&[usize]; 3]; 5] = [
        [&[2, 96, 7, 7], &[2, 96, 7, 7], &[2, 96, 1, 1]],
        [&[1, 200, 300], &[1, 200, 1], &[1, 200, 300]],
        [&[60, 70], &[60, 1], &[1, 70]],
        [&[40, 30, 3], &[40, 30, 3], &[40, 1, 3]],
        [&[5, 9], &[5, 9], &[1, 1]],
    ];
    for [shape, a_shape, b_shape] in cases {
        let [a, b] = [a_shape, b_shape].map(|s| Random::new(s.len() as u64).floats(s.iter().product(), 1.0));
        let [a_steps, b_steps] = [a_shape, b_shape].map(|s| broadcast_strides(s, shape));
        let len: usize = shape.iter().product();
        let found = same_everywhere(&format!("broadcast {shape:?} {b_shape:?}"), |exec| {
            let mut out = vec![f32::NAN; len];
            exec.binary_broadcast(BinaryOp::Sub, shape, (&a, &a_steps), (&b, &b_steps), &mut out);
            out
        });
        let exact: Vec<f32> = (0..len)
            .map(|i| {
                let (mut rest, mut at) = (i, [0, 0]);
                for axis in (0..shape.len()).rev() {
                    at[0] += rest % shape[axis] * a_steps[axis];
                    at[1] += rest % shape[axis] * b_steps[axis];
                    rest /= shape[axis];
                }
                a[at[0]] - b[at[1]]
            })
            .collect();
        assert_same_bits(&format!("broadcast {shape:?} {b_shape:?}"), &found, &exact);
    }
}
