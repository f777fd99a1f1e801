//! Attention without a cache on bytes: equal bits on every tier and thread count; near the exact attention of the numbers that its bytes stand for,
//! within what rounding of shares can do; and near attention in single precision.

mod support;

use cactus_kernels::dense::{DenseAttention, ScoreOperands};
use cactus_quant::cq::rotation::SIGNS;
use support::{Random, same_everywhere};

const BLOCK: usize = 128;

fn attention(queries: usize, keys: usize, heads: [usize; 2], width: usize) -> DenseAttention {
    DenseAttention {
        integers: true,
        ..DenseAttention::plain([queries, keys], heads, width, 1.0 / (width as f32).sqrt())
    }
}

/// What is computed, the same on every tier and thread count.
fn attend(a: &DenseAttention, [q, k, v]: [&[f32]; 3]) -> Vec<f32> {
    same_everywhere(&format!("{a:?}"), |exec| {
        let mut scratch = vec![f32::NAN; exec.attend_dense_scratch_bytes(a) / 4];
        let mut out = vec![f32::NAN; q.len()];
        exec.attend_dense(a, [q, k, v], ScoreOperands::default(), &mut scratch, &mut out);
        out
    })
}

/// A column or row as what its bytes stand for.
fn rounded(x: &[f32]) -> Vec<f64> {
    let size = x.iter().fold(0f32, |size, x| size.max(x.abs()));
    let (scale, inverse) = match size >= 1e-30 {
        true => (size * (1.0 / 127.0), 127.0 / size),
        false => (0.0, 0.0),
    };
    let one = |x: &f32| f64::from((x * inverse).round_ties_even()) * f64::from(scale);
    x.iter().map(one).collect()
}

/// A row whose whole runs of 16 are rotated.
fn rotated(row: &[f32]) -> Vec<f32> {
    let mut row = row.to_vec();
    for x in row.as_chunks_mut::<16>().0 {
        x.iter_mut()
            .zip(&SIGNS)
            .for_each(|(x, sign)| *x = f32::from_bits(x.to_bits() ^ sign.cast_unsigned()));
        for stride in [1, 2, 4, 8] {
            for i in (0..16).filter(|i| i & stride == 0) {
                (x[i], x[i + stride]) = (x[i] + x[i + stride], x[i] - x[i + stride]);
            }
        }
        x.iter_mut().for_each(|x| *x *= 0.25);
    }
    row
}

/// Rows less the mean of their columns, and that.
fn centered(rows: &[Vec<f32>]) -> (Vec<Vec<f32>>, Vec<f32>) {
    let share = 1.0 / rows.len() as f32;
    let mean: Vec<f32> = (0..rows[0].len())
        .map(|c| rows.iter().fold(0.0, |sum, row| sum + row[c]) * share)
        .collect();
    let less = |row: &Vec<f32>| row.iter().zip(&mean).map(|(x, mean)| x - mean).collect();
    (rows.iter().map(less).collect(), mean)
}

/// Checks every element against the exact attention of the rounded operands. A share `s` of the unit `u` of a block is off by `1e-4 s` at most, as the power is,
/// and rounded by a half at most; what a block loses by rounding goes to the mean `m` of its values. So a result is off by
/// `Σ u (|v - m| / 2 + 1e-4 s |v - result|) / Σ u s` at most, where the divisor is smaller by as much.
fn check(a: &DenseAttention, [q, k, v]: [&[f32]; 3]) {
    let found = attend(a, [q, k, v]);
    let group = a.heads / a.kv_heads;
    for (b, h) in (0..a.batch).flat_map(|b| (0..a.heads).map(move |h| (b, h))) {
        let row = |x: &[f32], count: usize, heads: usize, head: usize, i: usize| {
            x[((b * count + i) * heads + head) * a.width..][..a.width].to_vec()
        };
        let of_head =
            |x: &[f32]| -> Vec<Vec<f32>> { (0..a.keys).map(|i| row(x, a.keys, a.kv_heads, h / group, i)).collect() };
        let keys = centered(&of_head(k)).0;
        let keys: Vec<Vec<f64>> = keys.iter().map(|row| rounded(&rotated(row))).collect();
        let (values, mean) = centered(&of_head(v));
        let mut of_channel = vec![Vec::new(); a.width];
        for (c, channel) in of_channel.iter_mut().enumerate() {
            for block in values.chunks(BLOCK) {
                channel.extend(rounded(&block.iter().map(|row| row[c]).collect::<Vec<_>>()));
            }
        }
        for i in 0..a.queries {
            let factor = a.scale * std::f32::consts::LOG2_E;
            let query: Vec<f32> = row(q, a.queries, a.heads, h, i).iter().map(|q| q * factor).collect();
            let query = rounded(&rotated(&query));
            let scores: Vec<f64> = keys
                .iter()
                .map(|key| key.iter().zip(&query).map(|(k, q)| k * q).sum())
                .collect();
            let most = |scores: &[f64]| scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let top = most(&scores);
            let units: Vec<f64> = scores
                .chunks(BLOCK)
                .flat_map(|block| vec![(most(block) - top).exp2() / 254.0; block.len()])
                .collect();
            let shares: Vec<f64> = scores.iter().map(|score| (score - top).exp2()).collect();
            let total: f64 = shares.iter().sum();
            for (c, values) in of_channel.iter().enumerate() {
                let exact = shares.iter().zip(values).map(|(s, v)| s * v).sum::<f64>() / total;
                let of_block = values.chunks(BLOCK).flat_map(|block| {
                    let mean = block.iter().sum::<f64>() / block.len() as f64;
                    vec![mean; block.len()]
                });
                let rounding = units
                    .iter()
                    .zip(values)
                    .zip(of_block)
                    .map(|((u, v), m)| 0.5 * u * (v - m).abs());
                let powers = shares.iter().zip(values).map(|(s, v)| 1e-4 * s * (v - exact).abs());
                let bound = (rounding.sum::<f64>() + powers.sum::<f64>()) / (total * (1.0 - 1e-4));
                let found = f64::from(found[((b * a.queries + i) * a.heads + h) * a.width + c]) - f64::from(mean[c]);
                let size = values.iter().fold(0f64, |size, v| size.max(v.abs())) + f64::from(mean[c].abs());
                assert!(
                    (found - exact).abs() <= bound + 1e-5 * size,
                    "{a:?}, head {h}, query {i}, channel {c}: {found}, expected {exact} within {bound}"
                );
            }
        }
    }
}

#[test]
fn every_shape_is_within_what_rounding_of_shares_can_do() {
    let shapes = [
        attention(1, 1, [1, 1], 64),
        attention(1, 65, [2, 2], 72),
        attention(77, 65, [2, 1], 64),
        attention(77, 130, [1, 1], 80),
        attention(5, 257, [3, 3], 96),
        attention(50, 300, [4, 2], 20),
        attention(3, 128, [1, 1], 128),
        attention(2, 15, [1, 1], 3),
        DenseAttention {
            batch: 2,
            scale: -0.2,
            ..attention(9, 127, [2, 2], 64)
        },
    ];
    for (i, a) in shapes.into_iter().enumerate() {
        let mut random = Random::new(i as u64 + 1);
        let q = random.floats(a.batch * a.queries * a.heads * a.width, 1.0);
        let [mut k, mut v] = [(); 2].map(|()| random.floats(a.batch * a.keys * a.kv_heads * a.width, 1.0));
        check(&a, [&q, &k, &v]);
        // Far from zero, as keys of trained models are.
        k.iter_mut().enumerate().for_each(|(i, x)| *x += (i % 7) as f32 * 3.0);
        v.iter_mut().enumerate().for_each(|(i, x)| *x -= (i % 5) as f32 * 2.0);
        check(&a, [&q, &k, &v]);
    }
}

#[test]
fn it_is_near_attention_in_single_precision() {
    let a = attention(31, 600, [2, 2], 72);
    let mut random = Random::new(5);
    let q = random.floats(a.queries * a.heads * a.width, 2.0);
    let [k, v] = [(); 2].map(|()| random.floats(a.keys * a.kv_heads * a.width, 1.0));
    let found = attend(&a, [&q, &k, &v]);
    let exact = attend(&DenseAttention { integers: false, ..a }, [&q, &k, &v]);
    let dot = |x: &[f32], y: &[f32]| -> f64 { x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum() };
    for (found, exact) in found.chunks(a.width).zip(exact.chunks(a.width)) {
        let cosine = dot(found, exact) / (dot(found, found) * dot(exact, exact)).sqrt();
        assert!(cosine > 0.998, "{cosine}");
    }
}

/// Beside one large score each of the others is less than half of the least share that there is, but together they are up to a quarter.
#[test]
fn shares_too_small_for_an_integer_count_together() {
    for keys in [17, 100, 128, 200] {
        let a = DenseAttention {
            scale: 0.1,
            ..attention(3, keys, [1, 1], 72)
        };
        let rows = |count: usize, of: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
            (0..count * a.width).map(|i| of(i / a.width, i % a.width)).collect()
        };
        let q = rows(a.queries, &|_, c| if c == 0 { 8.0 } else { 0.0 });
        let (last, block) = (keys - 1, (keys - 1) / BLOCK * BLOCK);
        let k = rows(keys, &|key, c| if key == last && c == 0 { 8.0 } else { 0.0 });
        let v = rows(keys, &|key, _| if (block..last).contains(&key) { 1.0 } else { 0.0 });
        let share = (-6.4_f32).exp();
        let expected = (last - block) as f32 * share / (1.0 + last as f32 * share);
        for found in attend(&a, [&q, &k, &v]) {
            let off = (found / expected - 1.0).abs();
            // The mean of the block's values has the last in it.
            let within = 0.01 + 1.0 / (keys - block) as f32;
            assert!(off < within, "{keys} keys: found {found}, expected {expected}");
        }
    }
}

/// A channel in which keys are a hundred times as large, and queries as small, says no more than the others.
#[test]
fn large_channel_does_not_cost_the_others_their_bits() {
    let a = attention(31, 300, [1, 1], 64);
    let mut random = Random::new(7);
    let mut q = random.floats(a.queries * a.width, 2.0);
    let [mut k, v] = [(); 2].map(|()| random.floats(a.keys * a.width, 1.0));
    q.iter_mut().skip(5).step_by(a.width).for_each(|x| *x *= 0.01);
    k.iter_mut().skip(5).step_by(a.width).for_each(|x| *x *= 100.0);
    let found = attend(&a, [&q, &k, &v]);
    let exact = attend(&DenseAttention { integers: false, ..a }, [&q, &k, &v]);
    let square = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>();
    let off = square(&mut found.iter().zip(&exact).map(|(x, y)| x - y)) / square(&mut exact.iter().copied());
    assert!(off.sqrt() < 0.12, "{}", off.sqrt());
}

#[test]
fn operands_at_the_edges() {
    let a = attention(4, 200, [1, 1], 64);
    let mut random = Random::new(9);
    let q = random.floats(a.queries * a.width, 1.0);
    let [k, v] = [(); 2].map(|()| random.floats(a.keys * a.width, 1.0));
    let row = |x: &[f32], i: usize| x[i * a.width..][..a.width].to_vec();
    let mean = |c: usize| (0..a.keys).map(|j| f64::from(v[j * a.width + c])).sum::<f64>() / a.keys as f64;
    let near = |what: &str, found: f32, expected: f64, within: f64| {
        assert!(
            (f64::from(found) - expected).abs() <= within,
            "{what}: {found}, expected {expected}"
        );
    };

    // All keys the same: every query gets the mean of the values.
    let same: Vec<f32> = row(&k, 0).into_iter().cycle().take(k.len()).collect();
    for found in attend(&a, [&q, &same, &v]).chunks(a.width) {
        (found.iter().enumerate()).for_each(|(c, x)| near("equal keys", *x, mean(c), 0.01));
    }
    // So does a query of zeros.
    let found = attend(&a, [&vec![0.0; q.len()], &k, &v]);
    found
        .iter()
        .enumerate()
        .for_each(|(i, x)| near("no query", *x, mean(i % a.width), 0.01));
    // Values that are one number are that number.
    let constant: Vec<f32> = row(&v, 0).into_iter().cycle().take(v.len()).collect();
    for found in attend(&a, [&q, &k, &constant]).chunks(a.width) {
        (found.iter().zip(&constant)).for_each(|(x, v)| near("equal values", *x, f64::from(*v), 1e-5));
    }
    // Huge scores: all but the key with the largest one are nothing.
    let mut huge = q.clone();
    huge[..a.width].iter_mut().for_each(|x| *x *= 1e6);
    let exact = attend(&DenseAttention { integers: false, ..a }, [&huge, &k, &v]);
    let found = attend(&a, [&huge, &k, &v]);
    for (x, exact) in found[..a.width].iter().zip(&exact) {
        near("huge scores", *x, f64::from(*exact), 0.05);
    }
    // Finite keys whose rotation is not give no other bits on any tier.
    let mut vast = k.clone();
    vast[3 * a.width..][..a.width].fill(3e38);
    assert!(attend(&a, [&q, &vast, &v]).iter().all(|x| x.is_nan()));
    // What is not finite stays where it belongs.
    for strange in [f32::NAN, f32::INFINITY] {
        let with = |x: &[f32], at: usize| {
            let mut x = x.to_vec();
            x[at] = strange;
            x
        };
        let found = attend(&a, [&with(&q, a.width + 3), &k, &v]);
        assert!(found.iter().enumerate().all(|(i, x)| x.is_nan() == (i / a.width == 1)));
        let found = attend(&a, [&q, &with(&k, 7), &v]);
        assert!(found.iter().all(|x| x.is_nan()));
        let found = attend(&a, [&q, &k, &with(&v, 5 * a.width + 9)]);
        assert!(found.iter().enumerate().all(|(i, x)| x.is_nan() == (i % a.width == 9)));
    }
}

#[test]
#[should_panic(expected = "lengths")]
fn nothing_stands_beside_queries_keys_and_values() {
    let a = DenseAttention {
        causal: true,
        ..attention(4, 4, [1, 1], 16)
    };
    let x = vec![0.0; 64];
    attend(&a, [&x, &x, &x]);
}
