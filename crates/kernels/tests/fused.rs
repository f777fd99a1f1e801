//! Kernels that do the work of several: equal bits on every tier and thread count, and those of the operations one after
//! the other or close to the definition.

mod support;

use cactus_kernels::{
    BinaryOp, DeltaRows, Epilogue, Exec, GatedDelta, NextNorm, Norm, QuantizedRows, RotatedRows, UnaryOp,
};
use cactus_quant::{Packing, pack};
use support::{Random, assert_close, assert_same_bits, products, same_everywhere};

#[test]
fn norm_rope_heads_equals_norm_then_rope() {
    for (rows, heads, head_dim, half, gap) in [
        (1, 1, 64, 32, 0),
        (3, 5, 48, 12, 7),
        (40, 2, 256, 128, 100),
        (2, 3, 17, 5, 1),
        (2, 2, 96, 17, 0),
    ] {
        let stride = heads * head_dim + gap;
        let mut random = Random::new(3);
        let (x, weight) = (random.floats(rows * stride, 3.0), random.floats(head_dim, 2.0));
        let (cos, sin) = (random.floats(rows * half, 1.0), random.floats(rows * half, 1.0));
        let found = same_everywhere("norm_rope_heads", |exec| {
            let mut x = x.clone();
            let norm = Norm {
                weight: &weight,
                eps: 1e-6,
            };
            exec.norm_rope_heads(&mut x, norm, rows, stride, heads, &cos, &sin);
            x
        });
        let expected = same_everywhere("norm, then rope", |exec| {
            let mut x = x.clone();
            exec.rms_norm_heads(&mut x, &weight, 1e-6, rows, stride, heads, head_dim);
            exec.rope(&mut x, rows, stride, heads, head_dim, false, &cos, &sin);
            x
        });
        assert_same_bits("norm_rope_heads", &found, &expected);
    }
}

#[test]
fn norm_add_equals_norm_then_sum_then_norm() {
    for dim in [1, 15, 16, 17, 33, 640, 1025, 2049] {
        for rows in [1, 3, 40] {
            let mut random = Random::new((dim * 10 + rows) as u64);
            let [x, residual] = [0; 2].map(|_| random.floats(rows * dim, 3.0));
            let [first, second] = [0; 2].map(|_| random.floats(dim, 2.0));
            let norm = Norm {
                weight: &first,
                eps: 1e-6,
            };
            let then = Norm {
                weight: &second,
                eps: 1e-5,
            };
            let bytes = QuantizedRows::bytes(rows, dim).unwrap();
            let floats = |bytes: &[u8]| bytes.iter().map(|&b| f32::from(b)).collect::<Vec<_>>();
            // The sums, their norm, and its quantized rows.
            let found = same_everywhere(&format!("norm_add {rows}x{dim}"), |exec| {
                let mut all = Vec::new();
                let mut sum = residual.clone();
                exec.norm_add(&x, norm, rows, &mut sum, NextNorm::None);
                all.extend_from_slice(&sum);
                let (mut sum, mut out) = (residual.clone(), vec![f32::NAN; rows * dim]);
                exec.norm_add(&x, norm, rows, &mut sum, NextNorm::Rows(then, &mut out));
                all.extend(sum.iter().chain(&out));
                let mut memory = cactus_base::AlignedBuf::zeroed(bytes).unwrap();
                let mut sum = residual.clone();
                let mut q = QuantizedRows::new(&mut memory, rows, dim);
                exec.norm_add(&x, norm, rows, &mut sum, NextNorm::Quantized(then, &mut q));
                all.extend_from_slice(&sum);
                all.extend(floats(&memory));
                all
            });
            let expected = same_everywhere("one after the other", |exec| {
                let (mut normalized, mut sum) = (vec![0.0; rows * dim], vec![0.0; rows * dim]);
                exec.rms_norm(&x, &first, 1e-6, rows, dim, &mut normalized);
                exec.binary(BinaryOp::Add, &residual, &normalized, &mut sum);
                let mut out = vec![0.0; rows * dim];
                exec.rms_norm(&sum, &second, 1e-5, rows, dim, &mut out);
                let mut memory = cactus_base::AlignedBuf::zeroed(bytes).unwrap();
                let mut q = QuantizedRows::new(&mut memory, rows, dim);
                exec.rms_norm_quantize(&sum, &second, 1e-5, rows, dim, &mut q);
                [&sum[..], &sum, &out, &sum, &floats(&memory)].concat()
            });
            assert_same_bits("norm_add", &found, &expected);
        }
    }
}

/// Sizes of the gated delta rule: positions, heads, heads of keys, keys, values.
const DELTAS: [[usize; 5]; 6] = [
    [1, 1, 1, 1, 1],
    [5, 4, 2, 8, 8],
    [3, 2, 1, 17, 33],
    [4, 6, 3, 128, 64],
    [70, 4, 4, 64, 128],
    [2, 3, 3, 5, 200],
];

#[test]
fn gated_delta_matches_definition_and_chunks_agree() {
    for [len, heads, key_heads, keys, values] in DELTAS {
        let mut random = Random::new((len * 7 + values) as u64);
        let gap = 3;
        let widths = [key_heads * keys, key_heads * keys, heads * values, heads, heads];
        let mut operands = widths.map(|w| random.floats(len * (w + gap), 1.0));
        // Decays and rates lie between 0 and 1, keys have a length of about 1.
        for rows in &mut operands[3..] {
            rows.iter_mut().for_each(|x| *x = x.abs().min(1.0));
        }
        operands[1].iter_mut().for_each(|x| *x /= (keys as f32).sqrt());
        let before = random.floats(heads * keys * values, 1.0);
        let run = |chunk: usize| {
            same_everywhere("gated_delta", |exec| {
                let (mut state, mut out) = (before.clone(), vec![f32::NAN; len * heads * values]);
                for start in (0..len).step_by(chunk) {
                    let n = chunk.min(len - start);
                    let rows = |i: usize| DeltaRows {
                        data: &operands[i][start * (widths[i] + gap)..],
                        stride: widths[i] + gap,
                    };
                    let call = GatedDelta {
                        len: n,
                        heads,
                        key_heads,
                        keys,
                        values,
                        q: rows(0),
                        k: rows(1),
                        v: rows(2),
                        decay: rows(3),
                        rate: rows(4),
                    };
                    let out = &mut out[start * heads * values..][..n * heads * values];
                    exec.gated_delta(&call, &mut state, out);
                }
                [out, state].concat()
            })
        };
        let found = run(len);
        for chunk in [1, 3, 64] {
            assert_same_bits("chunks", &run(chunk), &found);
        }
        let at = |i: usize, t: usize, j: usize| f64::from(operands[i][t * (widths[i] + gap) + j]);
        let mut exact = vec![0f64; len * heads * values];
        let mut after = Vec::new();
        for h in 0..heads {
            let key = h / (heads / key_heads) * keys;
            let mut s: Vec<f64> = before[h * keys * values..][..keys * values]
                .iter()
                .map(|&x| x.into())
                .collect();
            for t in 0..len {
                s.iter_mut().for_each(|s| *s *= at(3, t, h));
                for j in 0..values {
                    let told: f64 = (0..keys).map(|i| s[i * values + j] * at(1, t, key + i)).sum();
                    let new = at(4, t, h) * (at(2, t, h * values + j) - told);
                    for i in 0..keys {
                        s[i * values + j] += at(1, t, key + i) * new;
                    }
                    exact[(t * heads + h) * values + j] =
                        (0..keys).map(|i| s[i * values + j] * at(0, t, key + i)).sum();
                }
            }
            after.extend(s);
        }
        exact.extend(after);
        assert_close("gated_delta", &found, &exact, 1e-4, 1e-3);
    }
}

#[test]
fn linear_with_bounds_and_activation_has_bits_of_what_follows_it() {
    let packings = [
        Packing::RowMajor,
        Packing::F32N16,
        Packing::F16N16,
        Packing::Int8G32,
        Packing::Tcq4G128,
    ];
    for (packing, rows) in packings
        .into_iter()
        .flat_map(|p| [1, 3, 5, 9, 70].map(|rows| (p, rows)))
    {
        for (n, k) in [(33, 20), (160, 64)] {
            let mut random = Random::new((n * rows) as u64);
            let (x, weight) = (random.floats(rows * k, 1.0), random.floats(n * k, 1.0));
            let bias = random.floats(n, 1.0);
            let packed = pack(packing, n, k, &weight).unwrap();
            let run = |exec: &Exec<'_>, bounds: Option<[f32; 2]>, activation: Option<UnaryOp>| {
                let mut out = vec![f32::NAN; rows * n];
                let epilogue = Epilogue {
                    bias: Some(&bias),
                    bounds,
                    activation,
                    ..Epilogue::default()
                };
                products::linear(*exec, &packed.view(), &x, rows, epilogue, &mut out);
                out
            };
            let what = format!("{packing} {n} {rows}");
            let activation = Some(UnaryOp::GeluErf);
            for bounds in [None, Some([-0.5, 0.75])] {
                let apart = same_everywhere(&what, |exec| {
                    let mut out = run(exec, None, None);
                    for (op, bound) in [BinaryOp::Max, BinaryOp::Min]
                        .into_iter()
                        .zip(bounds.into_iter().flatten())
                    {
                        let made = out.clone();
                        exec.binary(op, &made, &[bound], &mut out);
                    }
                    exec.unary_in_place(UnaryOp::GeluErf, &mut out);
                    out
                });
                let fused = same_everywhere(&what, |exec| run(exec, bounds, activation));
                assert_same_bits(&what, &fused, &apart);
            }
        }
    }
}

#[test]
fn rows_are_bounded_as_they_are_quantized() {
    for (rows, k) in [(1, 20), (3, 512), (9, 1100)] {
        let x = Random::new(k as u64).floats(rows * k, 3.0);
        let bounds = [-1.0, 0.5];
        let floats = |bytes: &[u8]| bytes.iter().map(|&b| f32::from(b)).collect::<Vec<_>>();
        let found = same_everywhere("bounded and quantized", |exec| {
            let mut memory = vec![0u32; QuantizedRows::bytes(rows, k).unwrap() / 4];
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
            exec.quantize_rows_within(&x, rows, k, Some(bounds), &mut QuantizedRows::new(bytes, rows, k));
            let mut rotated = vec![0u32; RotatedRows::bytes(rows, k).unwrap() / 4];
            let more: &mut [u8] = bytemuck::cast_slice_mut(&mut rotated);
            exec.rotate_rows_within(&x, rows, k, Some(bounds), &mut RotatedRows::new(more, rows, k));
            [floats(bytes), floats(more)].concat()
        });
        let expected = same_everywhere("bounded, then quantized", |exec| {
            let mut x = x.clone();
            exec.keep_within(bounds, &mut x);
            assert!(x.iter().all(|x| (-1.0..=0.5).contains(x)));
            let mut memory = vec![0u32; QuantizedRows::bytes(rows, k).unwrap() / 4];
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
            exec.quantize_rows(&x, rows, k, &mut QuantizedRows::new(bytes, rows, k));
            let mut rotated = vec![0u32; RotatedRows::bytes(rows, k).unwrap() / 4];
            let more: &mut [u8] = bytemuck::cast_slice_mut(&mut rotated);
            exec.rotate_rows(&x, rows, k, &mut RotatedRows::new(more, rows, k));
            [floats(bytes), floats(more)].concat()
        });
        assert_same_bits("bounded rows", &found, &expected);
    }
}
