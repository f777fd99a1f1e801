//! The vector kernels: equal bits on every tier and thread count, close to `f64`, at edge shapes.

mod support;

use cactus_kernels::matmul::PEAK_OUTPUTS;
use cactus_kernels::{Activation, BinaryOp, Exec, Link, QuantizedRows, UnaryOp, registry};
use support::{Random, assert_close, assert_same_bits, same_everywhere};

/// Lengths around vector, group and piece edges.
const DIMS: [usize; 12] = [1, 15, 16, 17, 31, 32, 33, 64, 576, 640, 1025, 2049];

/// Which test covers which operation.
const COVERAGE: &[(&str, fn())] = &[
    ("quantize_rows", norm_and_gated_quantized_equal_their_two_steps),
    ("rms_norm", rms_norm_any_dim_matches_definition),
    ("rms_norm_quantize", norm_and_gated_quantized_equal_their_two_steps),
    ("rms_norm_heads", rms_norm_heads_equals_rms_norm_of_each_head),
    ("layer_norm", layer_norm_any_dim_matches_definition),
    ("gated", gated_every_activation_matches_definition),
    ("gated_quantize", norm_and_gated_quantized_equal_their_two_steps),
    ("unary", unary_every_function_matches_definition),
    ("binary", binary_every_function_and_broadcast_matches_definition),
    ("chain_with_peaks", chain_equals_its_functions_and_finds_the_peaks),
    ("rope_table", rope_matches_definition),
    ("rope_table_of_axes", rope_of_axes_is_the_sum_of_their_angles),
    ("rope", rope_matches_definition),
    ("softmax_rows", softmax_rows_matches_definition),
    ("row_statistics", row_statistics_matches_definition),
    ("short_conv", short_conv_matches_definition_and_chunks_agree),
];

/// Operations with test files of their own.
const ELSEWHERE: [&str; 10] = [
    "linear",
    "rotate_rows",
    "embed",
    "kv_append",
    "attention",
    "norm_rope_heads",
    "norm_add",
    "gated_delta",
    "score_rows",
    "hamming_rows",
];

#[test]
fn registry_every_operation_is_covered() {
    for row in registry::rows() {
        let covered = COVERAGE.iter().any(|(op, _)| *op == row.op) || ELSEWHERE.contains(&row.op);
        assert!(covered, "no test covers {}", row.op);
    }
    for op in COVERAGE.iter().map(|(op, _)| op).chain(&ELSEWHERE) {
        assert!(
            registry::rows().iter().any(|row| row.op == *op),
            "{op} is not registered"
        );
    }
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

#[test]
fn rms_norm_any_dim_matches_definition() {
    for dim in DIMS {
        for rows in [1, 3, 40] {
            let mut random = Random::new((dim * 100 + rows) as u64);
            let (x, weight) = (random.floats(rows * dim, 3.0), random.floats(dim, 2.0));
            let found = same_everywhere(&format!("rms_norm {rows}x{dim}"), |exec| {
                let mut out = vec![f32::NAN; rows * dim];
                exec.rms_norm(&x, &weight, 1e-5, rows, dim, &mut out);
                out
            });
            let mut exact = Vec::new();
            for row in wide(&x).chunks(dim) {
                let mean = row.iter().map(|x| x * x).sum::<f64>() / dim as f64;
                exact.extend(
                    row.iter()
                        .zip(&weight)
                        .map(|(x, w)| x / (mean + 1e-5).sqrt() * f64::from(*w)),
                );
            }
            assert_close("rms_norm", &found, &exact, 1e-6, 1e-12);
        }
    }
}

#[test]
fn rms_norm_heads_equals_rms_norm_of_each_head() {
    for (rows, heads, head_dim, gap) in [(1, 1, 64, 0), (3, 5, 48, 7), (40, 2, 256, 100), (2, 3, 17, 1)] {
        let stride = heads * head_dim + gap;
        let mut random = Random::new(3);
        let (x, weight) = (random.floats(rows * stride, 3.0), random.floats(head_dim, 2.0));
        let found = same_everywhere("rms_norm_heads", |exec| {
            let mut x = x.clone();
            exec.rms_norm_heads(&mut x, &weight, 1e-6, rows, stride, heads, head_dim);
            x
        });
        let expected = same_everywhere("rms_norm", |exec| {
            let mut expected = x.clone();
            for row in expected.chunks_mut(stride) {
                let source = row[..heads * head_dim].to_vec();
                exec.rms_norm(&source, &weight, 1e-6, heads, head_dim, &mut row[..heads * head_dim]);
            }
            expected
        });
        assert_same_bits("rms_norm_heads", &found, &expected);
    }
}

#[test]
fn layer_norm_any_dim_matches_definition() {
    for dim in DIMS {
        let rows = 5;
        let mut random = Random::new(dim as u64);
        let (x, weight, bias) = (
            random.floats(rows * dim, 3.0),
            random.floats(dim, 2.0),
            random.floats(dim, 1.0),
        );
        for bias in [None, Some(&bias[..])] {
            let found = same_everywhere(&format!("layer_norm {dim}"), |exec| {
                let mut out = vec![f32::NAN; rows * dim];
                exec.layer_norm(&x, &weight, bias, 1e-3, rows, dim, &mut out);
                out
            });
            let mut exact = Vec::new();
            for row in wide(&x).chunks(dim) {
                let mean = row.iter().sum::<f64>() / dim as f64;
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / dim as f64;
                exact.extend(row.iter().enumerate().map(|(i, x)| {
                    let bias = bias.map_or(0.0, |b| f64::from(b[i]));
                    (x - mean) / (variance + 1e-3).sqrt() * f64::from(weight[i]) + bias
                }));
            }
            assert_close("layer_norm", &found, &exact, 1e-5, 3e-5);
        }
    }
}

/// Error function by numeric integration (Simpson), to 1e-12.
fn erf(x: f64) -> f64 {
    let n = 2000;
    let h = x / f64::from(n);
    let f = |t: f64| (-t * t).exp();
    let sum: f64 = (0..n)
        .map(|i| {
            let a = f64::from(i) * h;
            f(a) + 4.0 * f(a + h / 2.0) + f(a + h)
        })
        .sum();
    sum * h / 6.0 * 2.0 / std::f64::consts::PI.sqrt()
}

fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh())
}

fn activate(act: Activation, x: f64) -> f64 {
    match act {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => gelu_tanh(x),
        Activation::GeluErf => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
        Activation::Relu => x.max(0.0),
        other => unreachable!("{other:?}"),
    }
}

fn gated(act: Activation, gate: f64, up: f64) -> f64 {
    match act {
        Activation::ClampedSwish => {
            let gate = gate.min(7.0);
            (up.clamp(-7.0, 7.0) + 1.0) * gate / (1.0 + (-1.702 * gate).exp())
        }
        other => activate(other, gate) * up,
    }
}

#[test]
fn gated_every_activation_matches_definition() {
    for n in DIMS {
        for rows in [1, 7] {
            let x = Random::new(n as u64).floats(rows * 2 * n, 3.0);
            for act in Activation::ALL {
                let found = same_everywhere(&format!("gated {act:?} {rows}x{n}"), |exec| {
                    let mut out = vec![f32::NAN; rows * n];
                    exec.gated(act, &x, n, rows, &mut out);
                    out
                });
                let exact: Vec<f64> = wide(&x)
                    .chunks(2 * n)
                    .flat_map(|row| (0..n).map(|i| gated(act, row[i], row[n + i])).collect::<Vec<_>>())
                    .collect();
                assert_close(&format!("gated {act:?}"), &found, &exact, 2e-6, 1e-6);
            }
        }
    }
}

/// Scales and integers of quantized rows, as floats.
fn contents(rows: usize, k: usize, fill: impl Fn(&mut QuantizedRows<'_>)) -> Vec<f32> {
    let mut memory = cactus_base::AlignedBuf::zeroed(QuantizedRows::bytes(rows, k).unwrap()).unwrap();
    let mut quantized = QuantizedRows::new(&mut memory, rows, k);
    fill(&mut quantized);
    let mut out = Vec::new();
    for row in 0..rows {
        for group in 0..k.div_ceil(32) {
            let (scale, integers) = quantized.group(row, group);
            out.push(scale);
            out.extend(integers.map(f32::from));
        }
    }
    out
}

#[test]
fn norm_and_gated_quantized_equal_their_two_steps() {
    for dim in DIMS {
        for rows in [1, 11, 40] {
            let mut random = Random::new((dim + rows) as u64);
            let (x, weight) = (random.floats(rows * 2 * dim, 3.0), random.floats(dim, 2.0));
            let row_part = &x[..rows * dim];
            let what = format!("{rows}x{dim}");
            let two_steps = |exec: &Exec<'_>, step: &dyn Fn(&mut [f32])| {
                let mut out = vec![f32::NAN; rows * dim];
                step(&mut out);
                contents(rows, dim, |q| exec.quantize_rows(&out, rows, dim, q))
            };
            let fused = same_everywhere(&what, |exec| {
                contents(rows, dim, |q| {
                    exec.rms_norm_quantize(row_part, &weight, 1e-6, rows, dim, q)
                })
            });
            let steps = same_everywhere(&what, |exec| {
                two_steps(exec, &|out| exec.rms_norm(row_part, &weight, 1e-6, rows, dim, out))
            });
            assert_same_bits(&format!("rms_norm_quantize {what}"), &fused, &steps);
            for act in Activation::ALL {
                let fused = same_everywhere(&what, |exec| {
                    contents(rows, dim, |q| exec.gated_quantize(act, &x, dim, rows, q))
                });
                let steps = same_everywhere(&what, |exec| {
                    two_steps(exec, &|out| exec.gated(act, &x, dim, rows, out))
                });
                assert_same_bits(&format!("gated_quantize {act:?} {what}"), &fused, &steps);
            }
            // And the integers stand for the values.
            let mut back = Vec::new();
            let plain = contents(rows, dim, |q| {
                let step = cactus_base::Step::inline();
                let kernels = cactus_kernels::Kernels::available().last().unwrap();
                Exec { kernels, step: &step }.quantize_rows(row_part, rows, dim, q);
            });
            for row in plain.chunks(33 * dim.div_ceil(32)) {
                let values = row
                    .chunks(33)
                    .flat_map(|group| group[1..].iter().map(move |q| q * group[0]));
                back.extend(values.take(dim));
            }
            assert_close("quantize_rows", &back, &wide(row_part), 0.0, 12.0 / 254.0 * 1.001);
        }
    }
}

fn exact_unary(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Erf => erf(x),
        UnaryOp::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        UnaryOp::Relu => x.max(0.0),
        UnaryOp::Silu => activate(Activation::Silu, x),
        UnaryOp::GeluErf => activate(Activation::GeluErf, x),
        UnaryOp::GeluTanh => activate(Activation::GeluTanh, x),
        UnaryOp::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        UnaryOp::HardSigmoid => (x + 3.0).clamp(0.0, 6.0) / 6.0,
        UnaryOp::HardSwish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn unary_every_function_matches_definition() {
    for op in UnaryOp::ALL {
        for len in [0, 1, 16, 37, 5000] {
            let mut x = Random::new(len as u64).floats(len, 3.0);
            if matches!(op, UnaryOp::Log | UnaryOp::Sqrt | UnaryOp::Rsqrt) {
                x.iter_mut().for_each(|x| *x = x.abs() + 1e-3);
            }
            let found = same_everywhere(&format!("{op:?} {len}"), |exec| {
                let mut out = vec![f32::NAN; len];
                exec.unary(op, &x, &mut out);
                let mut in_place = x.clone();
                exec.unary_in_place(op, &mut in_place);
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&in_place), bits(&out), "{op:?} in place");
                out
            });
            let exact: Vec<f64> = x.iter().map(|x| exact_unary(op, f64::from(*x))).collect();
            assert_close(&format!("{op:?}"), &found, &exact, 4e-7, 1e-6);
        }
        // What is not finite must neither panic nor differ between tiers.
        let odd = [
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            -0.0,
            1e-40,
            f32::MAX,
            f32::MIN,
            -1.0,
        ];
        same_everywhere(&format!("{op:?} of odd values"), |exec| {
            let mut out = vec![0.0; odd.len()];
            exec.unary(op, &odd, &mut out);
            out
        });
    }
}

#[test]
fn binary_every_function_and_broadcast_matches_definition() {
    for op in BinaryOp::ALL {
        for (rows, dim) in [(1, 1), (1, 40), (3, 16), (50, 37), (2, 4096)] {
            let mut random = Random::new(dim as u64);
            let a = random.floats(rows * dim, 3.0);
            for b_len in [1, dim, rows * dim] {
                let b = random.floats(b_len, 2.0);
                let found = same_everywhere(&format!("{op:?} {rows}x{dim} with {b_len}"), |exec| {
                    let mut out = vec![f32::NAN; a.len()];
                    exec.binary(op, &a, &b, &mut out);
                    out
                });
                let exact: Vec<f64> = (0..a.len())
                    .map(|i| {
                        let (a, b) = (f64::from(a[i]), f64::from(b[i % b_len]));
                        match op {
                            BinaryOp::Add => a + b,
                            BinaryOp::Sub => a - b,
                            BinaryOp::Mul => a * b,
                            BinaryOp::Div => a / b,
                            BinaryOp::Max => a.max(b),
                            BinaryOp::Min => a.min(b),
                            other => unreachable!("{other:?}"),
                        }
                    })
                    .collect();
                assert_close(&format!("{op:?}"), &found, &exact, 6e-8, 1e-30);
            }
        }
    }
}

#[test]
fn functions_of_two_operands_have_bits_of_one_after_the_other() {
    let all = [None, Some(UnaryOp::Tanh), Some(UnaryOp::Sin), Some(UnaryOp::Relu)];
    for len in [0, 1, 37, 600, 20_000] {
        let mut random = Random::new(len as u64);
        let (a, b) = (random.floats(len, 3.0), random.floats(len, 2.0));
        for functions in all.iter().flat_map(|&f| all.map(|g| [f, g])) {
            same_everywhere(&format!("{functions:?} {len}"), |exec| {
                let made = [(functions[0], &a), (functions[1], &b)].map(|(f, x)| match f {
                    Some(f) => {
                        let mut made = vec![f32::NAN; len];
                        exec.unary(f, x, &mut made);
                        made
                    }
                    None => x.clone(),
                });
                let (mut expected, mut found) = (vec![f32::NAN; len], vec![f32::NAN; len]);
                exec.binary(BinaryOp::Mul, &made[0], &made[1], &mut expected);
                exec.zip(BinaryOp::Mul, functions, &a, &b, &mut found);
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&found), bits(&expected), "{functions:?} {len}");
                found
            });
        }
    }
}

#[test]
fn rope_matches_definition() {
    for (rows, heads, head_dim, half, gap, past) in [
        (1, 1, 64, 32, 0, 0),
        (5, 3, 64, 32, 64, 1000),
        (40, 2, 48, 12, 5, 7),
        (2, 2, 96, 17, 0, 131_071),
    ] {
        let inv_freq: Vec<f32> = (0..half).map(|i| 10_000f32.powf(-(i as f32) / half as f32)).collect();
        let stride = heads * head_dim + gap;
        let x = Random::new(5).floats(rows * stride, 2.0);
        let scale = 1.25;
        let tables = same_everywhere("rope_table", |exec| {
            let mut tables = vec![f32::NAN; 2 * rows * half];
            let (cos, sin) = tables.split_at_mut(rows * half);
            exec.rope_table(past, rows, &inv_freq, scale, cos, sin);
            tables
        });
        let (cos, sin) = tables.split_at(rows * half);
        for interleaved in [false, true] {
            let found = same_everywhere("rope", |exec| {
                let mut x = x.clone();
                exec.rope(&mut x, rows, stride, heads, head_dim, interleaved, cos, sin);
                x
            });
            let mut exact = wide(&x);
            for row in 0..rows {
                for head in 0..heads {
                    for (i, frequency) in inv_freq.iter().enumerate() {
                        let angle = f64::from((past + row) as f32 * frequency);
                        let at = row * stride + head * head_dim;
                        let (i, j) = match interleaved {
                            true => (at + 2 * i, at + 2 * i + 1),
                            false => (at + i, at + i + half),
                        };
                        let (a, b) = (exact[i], exact[j]);
                        exact[i] = f64::from(scale) * (a * angle.cos() - b * angle.sin());
                        exact[j] = f64::from(scale) * (b * angle.cos() + a * angle.sin());
                    }
                }
            }
            assert_close("rope", &found, &exact, 1e-6, 2e-6);
        }
    }
}

#[test]
fn rope_of_axes_is_the_sum_of_their_angles() {
    let (half, rows) = (24, 37);
    let inv_freq: Vec<f32> = (0..half).map(|i| 10_000f32.powf(-(i as f32) / half as f32)).collect();
    // Each pair on one axis, in turn.
    let of_axes: Vec<f32> = (0..3 * half)
        .map(|i| {
            if i / half == i % half % 3 {
                inv_freq[i % half]
            } else {
                0.0
            }
        })
        .collect();
    let mut random = Random::new(11);
    let positions: Vec<[u32; 3]> = (0..rows).map(|_| [(); 3].map(|()| random.bits() % 100_000)).collect();
    let tables = |positions: &[[u32; 3]], inv_freq: &[f32]| {
        same_everywhere("rope_table_of_axes", |exec| {
            let mut tables = vec![f32::NAN; 2 * positions.len() * half];
            let (cos, sin) = tables.split_at_mut(positions.len() * half);
            exec.rope_table_of_axes(positions, inv_freq, 1.5, cos, sin);
            tables
        })
    };
    let angle = |p: &[u32; 3], i: usize| f64::from(p[i % 3] as f32 * inv_freq[i]);
    let angles: Vec<f64> = (positions.iter())
        .flat_map(|p| (0..half).map(move |i| (p, i)))
        .map(|(p, i)| angle(p, i))
        .collect();
    let exact: Vec<f64> = (angles.iter().map(|a| 1.5 * a.cos()))
        .chain(angles.iter().map(|a| 1.5 * a.sin()))
        .collect();
    assert_close("rope_table_of_axes", &tables(&positions, &of_axes), &exact, 1e-6, 1e-6);
    // The same on all axes is what it is on one, to the bit.
    let past = 70_000;
    let same: Vec<[u32; 3]> = (0..rows as u32).map(|i| [past + i; 3]).collect();
    let plain = same_everywhere("rope_table", |exec| {
        let mut tables = vec![f32::NAN; 2 * rows * half];
        let (cos, sin) = tables.split_at_mut(rows * half);
        exec.rope_table(past as usize, rows, &inv_freq, 1.5, cos, sin);
        tables
    });
    assert!(tables(&same, &of_axes) == plain);
    // Every pair on all axes: products are rounded before they are added.
    let everywhere = inv_freq.repeat(3);
    let found = tables(&positions[..1], &everywhere);
    for (i, f) in inv_freq.iter().enumerate() {
        let [a, b, c] = positions[0].map(|p| p as f32 * f);
        let angle = f64::from(a + b + c);
        assert!((f64::from(found[i]) - 1.5 * angle.cos()).abs() < 1e-6, "{i}");
    }
}

#[test]
fn chain_equals_its_functions_and_finds_the_peaks() {
    for width in DIMS {
        for rows in [1, 3] {
            let mut random = Random::new((width * 7 + rows) as u64);
            let (mut x, v) = (random.floats(rows * width, 40.0), random.floats(width, 2.0));
            if width > 40 {
                x[33] = f32::NAN;
            }
            let links = [
                Link::Scalar(BinaryOp::Div, 30.0),
                Link::Unary(UnaryOp::Tanh),
                Link::Scalar(BinaryOp::Mul, 30.0),
                Link::Vector(BinaryOp::Add, &v),
                Link::Scalar(BinaryOp::Max, -7.5),
            ];
            for links in [&links[..], &[]] {
                let what = format!("chain of {} on {rows}x{width}", links.len());
                let blocks = width.div_ceil(PEAK_OUTPUTS);
                let found = same_everywhere(&what, |exec| {
                    let (mut x, mut peaks) = (x.clone(), vec![f32::INFINITY; rows * blocks]);
                    exec.chain_with_peaks(links, &mut x, width, &mut peaks);
                    [x, peaks].concat()
                });
                let (y, peaks) = found.split_at(rows * width);
                let expected = same_everywhere("one after another", |exec| {
                    let mut x = x.clone();
                    for link in links {
                        let before = x.clone();
                        match link {
                            Link::Unary(f) => exec.unary(*f, &before, &mut x),
                            Link::Scalar(f, c) => exec.binary(*f, &before, &[*c], &mut x),
                            Link::Vector(f, v) => exec.binary(*f, &before, v, &mut x),
                        }
                    }
                    x
                });
                assert_same_bits(&what, y, &expected);
                for (row, peaks) in y.chunks(width).zip(peaks.chunks(blocks)) {
                    for (stretch, peak) in row.chunks(PEAK_OUTPUTS).zip(peaks) {
                        let finite = stretch.iter().all(|v| v.is_finite());
                        let most = stretch.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                        assert!(if finite { *peak == most } else { peak.is_nan() }, "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn row_statistics_matches_definition() {
    for dim in DIMS.into_iter().chain([151_936]) {
        for equal in [false, true] {
            let mut x = Random::new(dim as u64).floats(dim, 8.0);
            if equal {
                // The largest is there twice, in the last place too.
                let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                x[dim - 1] = max;
            }
            let found = same_everywhere(&format!("row_statistics {dim}"), |exec| {
                let s = exec.kernels.row_statistics(&x);
                vec![s.max, s.second, s.sum, s.moment]
            });
            let mut sorted = x.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let second = sorted.get(1).copied().unwrap_or(f32::NEG_INFINITY);
            assert_same_bits("max and second", &found[..2], &[sorted[0], second]);
            let below = wide(&x).into_iter().map(|v| v - f64::from(sorted[0]));
            let sum: f64 = below.clone().map(f64::exp).sum();
            let moment: f64 = below.map(|v| v * v.exp()).sum();
            assert_close("sum and moment", &found[2..], &[sum, moment], 1e-5, 1e-6);
        }
    }
}

#[test]
fn softmax_rows_matches_definition() {
    for dim in DIMS {
        let rows = 6;
        let mut x = Random::new(dim as u64).floats(rows * dim, 10.0);
        if dim > 1 {
            x[1] = f32::NEG_INFINITY;
        }
        let found = same_everywhere(&format!("softmax {dim}"), |exec| {
            let mut out = vec![f32::NAN; rows * dim];
            exec.softmax_rows(&x, rows, dim, &mut out);
            out
        });
        let mut exact = Vec::new();
        for row in wide(&x).chunks(dim) {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
            exact.extend(row.iter().map(|x| (x - max).exp() / sum));
        }
        // The argument's rounding, half a unit of up to 100, is part of the result.
        assert_close("softmax", &found, &exact, 1e-5, 1e-12);
    }
}

#[test]
fn short_conv_matches_definition_and_chunks_agree() {
    for (channels, taps, tokens, gap) in [
        (1, 1, 5, 0),
        (16, 3, 20, 0),
        (40, 3, 9, 24),
        (100, 4, 33, 1),
        (17, 16, 40, 0),
    ] {
        let stride = channels + gap;
        let mut random = Random::new(channels as u64);
        let x = random.floats(tokens * stride, 2.0);
        let (weight, bias) = (random.floats(channels * taps, 1.0), random.floats(channels, 1.0));
        for bias in [None, Some(&bias[..])] {
            let run = |exec: &Exec<'_>, chunk: usize| {
                let mut state = vec![0.0; (taps - 1) * channels];
                let mut out = vec![f32::NAN; tokens * channels];
                for first in (0..tokens).step_by(chunk) {
                    let rows = chunk.min(tokens - first);
                    let x = &x[first * stride..];
                    let out = &mut out[first * channels..(first + rows) * channels];
                    exec.short_conv(x, stride, &weight, bias, &mut state, rows, channels, out);
                }
                out.extend(state);
                out
            };
            let found = same_everywhere("short_conv", |exec| run(exec, tokens));
            for chunk in [1, 2, 7] {
                let chunked = same_everywhere("short_conv", |exec| run(exec, chunk));
                assert_same_bits(&format!("short_conv in chunks of {chunk}"), &chunked, &found);
            }
            let mut exact = Vec::new();
            for t in 0..tokens {
                for c in 0..channels {
                    let mut sum = bias.map_or(0.0, |b| f64::from(b[c]));
                    for j in 0..taps {
                        if let Some(p) = (t + j).checked_sub(taps - 1) {
                            sum += f64::from(weight[c * taps + j]) * f64::from(x[p * stride + c]);
                        }
                    }
                    exact.push(sum);
                }
            }
            assert_close("short_conv", &found[..tokens * channels], &exact, 1e-5, 1e-5);
        }
    }
}
