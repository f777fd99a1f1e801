//! Kernels that do the work of several: equal bits on every tier and thread count, and those of the operations one after
//! the other or close to the definition.

mod support;

use cactus_kernels::{
    Activation, BinaryOp, DeltaRows, Epilogue, Exec, Expert, GatedDelta, NextNorm, Norm, QuantizedRows, UnaryOp,
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
fn linear_with_activation_has_bits_of_unary_after_it() {
    let packings = [
        Packing::RowMajor,
        Packing::F32N16,
        Packing::F16N16,
        Packing::Int8G32,
        Packing::Cq4G128,
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
            let run = |exec: &Exec<'_>, activation: Option<UnaryOp>| {
                let mut out = vec![f32::NAN; rows * n];
                let epilogue = Epilogue {
                    bias: Some(&bias),
                    activation,
                    ..Epilogue::default()
                };
                products::linear(*exec, &packed.view(), &x, rows, epilogue, &mut out);
                out
            };
            let what = format!("{packing} {n} {rows}");
            let apart = same_everywhere(&what, |exec| {
                let mut out = run(exec, None);
                exec.unary_in_place(UnaryOp::GeluErf, &mut out);
                out
            });
            let fused = same_everywhere(&what, |exec| run(exec, Some(UnaryOp::GeluErf)));
            assert_same_bits(&what, &fused, &apart);
        }
    }
}

/// Each expert with all of its rows, against each row with each of its experts.
#[test]
fn experts_equal_their_products_one_after_the_other() {
    let (rows, n, m, chosen) = (5, 64, 48, 3);
    let mut random = Random::new(11);
    let x = random.floats(rows * n, 2.0);
    for (packing, count, biased) in [
        (Packing::Int8G32, 4, true),
        (Packing::Cq4G128, 6, false),
        (Packing::F16N16, 3, false),
    ] {
        let weights: Vec<_> = (0..count)
            .map(|_| {
                let gate_up = pack(packing, 2 * m, n, &random.floats(2 * m * n, 0.5)).unwrap();
                let down = pack(packing, n, m, &random.floats(n * m, 0.5)).unwrap();
                (gate_up, down, random.floats(2 * m, 1.0), random.floats(n, 1.0))
            })
            .collect();
        let expert_of = |place: usize| (place / chosen + 2 * (place % chosen)) % count;
        let places: Vec<Vec<usize>> = (0..count)
            .map(|e| (0..rows * chosen).filter(|&p| expert_of(p) == e).collect())
            .collect();
        let found = same_everywhere("experts", |exec| {
            let experts: Vec<Expert<'_>> = weights
                .iter()
                .zip(&places)
                .filter(|(_, places)| !places.is_empty())
                .map(|((gate_up, down, a, b), places)| Expert {
                    gate_up: gate_up.view(),
                    down: down.view(),
                    biases: biased.then_some([&a[..], &b[..]]),
                    places,
                })
                .collect();
            let mut scratch = vec![f32::NAN; Exec::experts_scratch(rows * chosen, n, m)];
            let mut out = vec![f32::NAN; rows * chosen * n];
            exec.experts(Activation::Silu, &x, chosen, &experts, &mut scratch, &mut out);
            out
        });
        let expected = same_everywhere("products of experts", |exec| {
            let mut out = vec![f32::NAN; rows * chosen * n];
            for (place, out) in out.chunks_exact_mut(n).enumerate() {
                let (gate_up, down, a, b) = &weights[expert_of(place)];
                let epilogue = |bias| Epilogue {
                    bias: biased.then_some(bias),
                    ..Epilogue::default()
                };
                let (mut stage, mut hidden) = (vec![0.0; 2 * m], vec![0.0; m]);
                let row = &x[place / chosen * n..][..n];
                products::linear(*exec, &gate_up.view(), row, 1, epilogue(&a[..]), &mut stage);
                exec.gated(Activation::Silu, &stage, m, 1, &mut hidden);
                products::linear(*exec, &down.view(), &hidden, 1, epilogue(&b[..]), out);
            }
            out
        });
        assert_same_bits(&format!("experts in {packing}"), &found, &expected);
    }
}
