//! What must not fuse does not, and the report says why.

mod kit;

use cactus_ir::{
    AttentionAttrs, BinaryFn, CompareFn, Dim, Graph, GraphBuilder, Literal, Op, ReduceFn, Result, SEQ, TensorType,
    UnaryFn, ValueId,
};
use cactus_tensor::DType;
use cactus_testkit::{assert_close, tiny::causal_mask};
use kit::{dims, graph, input, inputs, output, run_pass};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Runs `pass`, which must not fire and must give a reason with `why`.
#[track_caller]
fn refused(pass: &str, why: &str, before: &Graph) {
    let (after, report) = run_pass(pass, before);
    assert_eq!(report.fired_count(pass), 0, "{why}:\n{report}\n{after}");
    assert_eq!(after.to_string(), before.to_string(), "{why}");
    let reasons: Vec<_> = report.misses(pass).collect();
    assert!(
        reasons.iter().any(|(_, reason)| reason.contains(why)),
        "`{why}` is not among {reasons:?}"
    );
    assert!(report.to_string().contains(why), "{report}");
}

/// Attention of one head under what `mask` makes of the scores.
fn attention(mask: impl FnOnce(&mut GraphBuilder, ValueId) -> Result<ValueId>) -> Graph {
    graph(|b| {
        let [q, k, v] = ["q", "k", "v"].map(|n| input(b, n, "batch 2 seq 4"));
        let k = b.permute(k, &[0, 1, 3, 2])?;
        let scores = b.matmul(q, k)?;
        let scores = mask(b, scores)?;
        let shares = b.softmax_last(scores)?;
        b.matmul(shares, v)
    })
}

fn query_and_key(b: &mut GraphBuilder) -> Result<(ValueId, ValueId)> {
    let positions = b.iota(0, SEQ)?;
    Ok((
        b.reshape(positions, dims("seq 1"))?,
        b.reshape(positions, dims("1 seq"))?,
    ))
}

/// One of two numbers in the shape of `x`, by a condition that is `truth` everywhere.
fn choose(b: &mut GraphBuilder, x: ValueId, truth: bool, numbers: [i64; 2]) -> Result<ValueId> {
    let nothing = b.binary(BinaryFn::Sub, x, x)?;
    let other = b.scalar_i64(i64::from(!truth))?;
    let condition = b.compare(CompareFn::Eq, nothing, other)?;
    let [yes, no] = [b.scalar_i64(numbers[0])?, b.scalar_i64(numbers[1])?];
    b.select(condition, yes, no)
}

fn hide(b: &mut GraphBuilder, mask: ValueId, scores: ValueId) -> Result<ValueId> {
    let hidden = b.scalar(f32::NEG_INFINITY)?;
    b.select(mask, scores, hidden)
}

/// One row for all positions, not each its own, through an expert for each; its first product has a bias or not.
fn experts_of_one_row(biased: bool) -> Graph {
    graph(|b| {
        let (row, ids) = (input(b, "row", "1 1 6"), b.iota(0, SEQ)?);
        let rows = b.expand(row, dims("seq 1 6"))?;
        let rows = b.reshape(rows, dims("seq 6 1"))?;
        let (gate_up, down) = (b.weight("gate_up", &[9, 4, 6]), b.weight("down", &[9, 6, 2]));
        let shares = input(b, "shares", "seq 1 1");
        let w = b.op(Op::Take { axis: 0 }, &[gate_up, ids])?;
        let y = b.matmul(w, rows)?;
        let mut y = b.reshape(y, dims("seq 4"))?;
        if biased {
            let bias = b.weight("gate_up_bias", &[9, 4]);
            let bias = b.op(Op::Take { axis: 0 }, &[bias, ids])?;
            y = b.add(y, bias)?;
        }
        let activation = cactus_ir::Activation::Silu;
        let y = b.op(
            Op::Gated {
                activation,
                above: None,
            },
            &[y],
        )?;
        let y = b.reshape(y, dims("seq 2 1"))?;
        let w = b.op(Op::Take { axis: 0 }, &[down, ids])?;
        let y = b.matmul(w, y)?;
        let y = b.reshape(y, dims("seq 1 6"))?;
        let y = b.mul(y, shares)?;
        let (f, axes) = (ReduceFn::Sum, vec![1]);
        b.op(
            Op::Reduce {
                f,
                axes,
                keepdim: false,
            },
            &[y],
        )
    })
}

#[test]
fn fuse_experts_refuses_rows_that_are_not_repeated_for_each_choice() {
    refused("fuse_experts", "rows are not repeated once", &experts_of_one_row(false));
}

#[test]
fn fuse_experts_refuses_a_bias_of_one_product_alone() {
    refused("fuse_experts", "only one of the products", &experts_of_one_row(true));
}

/// Runs `fuse_attention`, which must add the mask to the scores and say with `why` what could not be proven.
#[track_caller]
fn added(why: &str, before: &Graph) {
    let (after, report) = run_pass("fuse_attention", before);
    assert_eq!(operands_of_attention(&after), Some(4), "{why}:\n{report}\n{after}");
    assert!(report.to_string().contains(why), "{report}");
    for seq in [1, 5] {
        let given = inputs(before, 1, seq);
        let (got, want) = (output(&after, before, &given), output(before, before, &given));
        assert_close(&got, &want, 1e-5, why);
    }
}

fn operands_of_attention(g: &Graph) -> Option<usize> {
    let mut nodes = g.nodes().map(|(_, node)| node);
    let attention = nodes.find(|node| matches!(node.op, Op::Attention(_)))?;
    Some(attention.inputs.len())
}

#[test]
fn fuse_attention_adds_a_mask_that_it_cannot_prove() {
    added(
        "input `attention_mask`",
        &attention(|b, scores| {
            let mask = b.input("attention_mask", TensorType::new(DType::I64, dims("batch 1 1 seq")));
            let zero = b.scalar_i64(0)?;
            let mask = b.compare(CompareFn::Gt, mask, zero)?;
            hide(b, mask, scores)
        }),
    );
    added(
        "not proven to be causal",
        &attention(|b, scores| {
            // Twice as many keys.
            let (query, key) = query_and_key(b)?;
            let query = b.add(query, query)?;
            let mask = b.compare(CompareFn::Le, key, query)?;
            hide(b, mask, scores)
        }),
    );
    added(
        "not proven to be causal",
        &attention(|b, scores| {
            let (query, key) = query_and_key(b)?;
            let (p, q) = (
                b.compare(CompareFn::Le, key, query)?,
                b.compare(CompareFn::Ge, key, query)?,
            );
            let mask = b.binary(BinaryFn::Or, p, q)?;
            hide(b, mask, scores)
        }),
    );
    added(
        "is not a mask of zeros and very negative numbers",
        &attention(|b, scores| {
            // A bias by distance.
            let (query, key) = query_and_key(b)?;
            let distance = b.binary(BinaryFn::Sub, key, query)?;
            let bias = b.cast(distance, DType::F32)?;
            b.add(scores, bias)
        }),
    );
    refused(
        "fuse_attention",
        "very negative number",
        &attention(|b, scores| {
            let positions = b.iota(0, SEQ)?;
            let mask = causal_mask(b, positions, None)?;
            let low = b.scalar(-10.0)?;
            b.select(mask, scores, low)
        }),
    );
    refused(
        "fuse_attention",
        "too small to add",
        &attention(|b, scores| {
            // A query that sees nothing would see all alike.
            let mask = b.input("attention_mask", TensorType::new(DType::Bool, dims("batch 1 1 seq")));
            let low = b.scalar(-1e4)?;
            b.select(mask, scores, low)
        }),
    );
}

#[test]
fn fuse_attention_refuses_what_is_read_elsewhere_or_is_something_else() {
    let shared = graph(|b| {
        let [q, k] = ["q", "k"].map(|n| input(b, n, "batch 2 seq 4"));
        let kt = b.permute(k, &[0, 1, 3, 2])?;
        let scores = b.matmul(q, kt)?;
        let shares = b.softmax_last(scores)?;
        b.output("shares", shares);
        b.matmul(shares, k)
    });
    refused("fuse_attention", "softmax is used elsewhere", &shared);
    let router = graph(|b| {
        let x = input(b, "x", "batch seq 4");
        b.softmax_last(x)
    });
    refused("fuse_attention", "not over the keys", &router);
    let activated = attention(|b, scores| b.unary(UnaryFn::Exp, scores));
    refused("fuse_attention", "exp is not between scores and softmax", &activated);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, rng_seed: RngSeed::Fixed(2), ..ProptestConfig::default() })]

    /// Whatever the comparison, offset and order, attention computes the same after the pass, and the masks that
    /// attention can express are found.
    #[test]
    fn any_mask_of_positions_keeps_its_meaning(
        f in 0usize..4, offset in -3i64..4, key_first: bool, negate: bool, by_add: bool, also_causal: bool,
        floats: bool, beside in 0usize..4,
    ) {
        let f = [CompareFn::Lt, CompareFn::Le, CompareFn::Gt, CompareFn::Ge][f];
        let before = attention(|b, scores| {
            let (query, key) = query_and_key(b)?;
            let (mut a, mut c) = if key_first { (key, query) } else { (query, key) };
            let by = b.scalar_i64(offset)?;
            c = b.add(by, c)?;
            if floats {
                (a, c) = (b.cast(a, DType::F32)?, b.cast(c, DType::F32)?);
            }
            let mut mask = b.compare(f, a, c)?;
            if negate {
                mask = b.unary(UnaryFn::Not, mask)?;
            }
            if also_causal {
                let causal = b.compare(CompareFn::Le, key, query)?;
                mask = b.binary(BinaryFn::And, causal, mask)?;
            }
            // Or where two numbers are equal, which they are nowhere, as the images of a text without any.
            let choice = [(0, 1), (1, 0)].into_iter().nth(beside);
            if let Some((a, c)) = choice {
                let of_query = choose(b, query, false, [7, -1])?;
                let of_key = choose(b, key, true, [a, c])?;
                let same = b.compare(CompareFn::Eq, of_query, of_key)?;
                mask = if a == 0 { b.binary(BinaryFn::Or, same, mask)? } else { b.binary(BinaryFn::Or, mask, same)? };
            }
            if !by_add {
                return hide(b, mask, scores);
            }
            let (zero, hidden) = (b.scalar(0.0)?, b.scalar(f32::NEG_INFINITY)?);
            let bias = b.select(mask, zero, hidden)?;
            b.add(bias, scores)
        });
        let (after, report) = run_pass("fuse_attention", &before);
        for seq in [1, 2, 6] {
            let given = inputs(&before, 1, seq);
            let (got, want) = (output(&after, &before, &given), output(&before, &before, &given));
            assert_close(&got, &want, 1e-5, &format!("{seq} positions, {report}"));
        }
        // As `key <= query + n` (true) or `key >= query + n` (false).
        let (lower, n) = match (f, key_first) {
            (CompareFn::Lt, true) => (true, offset - 1),
            (CompareFn::Le, true) => (true, offset),
            (CompareFn::Gt, true) => (false, offset + 1),
            (CompareFn::Ge, true) => (false, offset),
            // query f key + offset
            (CompareFn::Lt, false) => (false, 1 - offset),
            (CompareFn::Le, false) => (false, -offset),
            (CompareFn::Gt, false) => (true, -offset - 1),
            _ => (true, -offset),
        };
        let (lower, n) = if !negate { (lower, n) } else if lower { (false, n + 1) } else { (true, n - 1) };
        let expressible = if lower { n >= 0 } else { n <= 0 };
        let operands = if expressible { 3 } else { 4 };
        prop_assert_eq!(operands_of_attention(&after), Some(operands), "{}\n{}", report, before);
    }
}

#[test]
fn fuse_rms_norm_refuses_another_operand() {
    let g = graph(|b| {
        let (x, y) = (input(b, "x", "batch seq 4"), input(b, "y", "batch seq 4"));
        let square = b.mul(x, x)?;
        let mean = b.reduce_last(ReduceFn::Mean, square)?;
        let eps = b.scalar(1e-6)?;
        let mean = b.add(mean, eps)?;
        let root = b.unary(UnaryFn::Rsqrt, mean)?;
        b.mul(y, root)
    });
    refused("fuse_rms_norm", "the root scales input `y`, not input `x`", &g);
}

/// `x * cos + rotated * sin` with angles and rotated as given.
fn rope(
    angles: impl Fn(&mut GraphBuilder, f32) -> Result<ValueId>,
    rates: [f32; 2],
    rotate: impl Fn(&mut GraphBuilder, ValueId) -> Result<ValueId>,
) -> Graph {
    graph(|b| {
        let x = input(b, "x", "batch seq 2 4");
        let cos = angles(b, rates[0])?;
        let cos = b.unary(UnaryFn::Cos, cos)?;
        let sin = angles(b, rates[1])?;
        let sin = b.unary(UnaryFn::Sin, sin)?;
        let rotated = rotate(b, x)?;
        let (p, q) = (b.mul(x, cos)?, b.mul(rotated, sin)?);
        b.add(p, q)
    })
}

fn plain_angles(b: &mut GraphBuilder, rate: f32) -> Result<ValueId> {
    let positions = b.iota(0, SEQ)?;
    let positions = b.cast(positions, DType::F32)?;
    let positions = b.reshape(positions, dims("seq 1 1"))?;
    let freq = b.vector(vec![rate, 0.1])?;
    let angles = b.mul(positions, freq)?;
    b.concat_last(&[angles, angles])
}

fn rotate_half(b: &mut GraphBuilder, x: ValueId) -> Result<ValueId> {
    let (low, high) = (b.slice_last(x, 0, 2)?, b.slice_last(x, 2, 4)?);
    let high = b.unary(UnaryFn::Neg, high)?;
    b.concat_last(&[high, low])
}

#[test]
fn fuse_rope_refuses_other_angles_and_parts() {
    let different = rope(plain_angles, [1.0, 0.5], rotate_half);
    refused("fuse_rope", "different angles", &different);
    let swapped = rope(plain_angles, [1.0, 1.0], |b, x| {
        let (low, high) = (b.slice_last(x, 0, 2)?, b.slice_last(x, 2, 4)?);
        let low = b.unary(UnaryFn::Neg, low)?;
        b.concat_last(&[low, high])
    });
    refused("fuse_rope", "not the halves", &swapped);
    let not_negated = rope(plain_angles, [1.0, 1.0], |b, x| {
        let (low, high) = (b.slice_last(x, 0, 2)?, b.slice_last(x, 2, 4)?);
        b.concat_last(&[high, low])
    });
    refused("fuse_rope", "not the negated second half", &not_negated);
    // Tables over heads rather than positions.
    let heads = rope(
        |b, rate| {
            let positions = b.iota(0, 2)?;
            let positions = b.cast(positions, DType::F32)?;
            let positions = b.reshape(positions, dims("2 1"))?;
            let freq = b.vector(vec![rate, 0.1])?;
            let angles = b.mul(positions, freq)?;
            b.concat_last(&[angles, angles])
        },
        [1.0, 1.0],
        rotate_half,
    );
    let (after, _) = run_pass("fuse_rope", &heads);
    let given = inputs(&heads, 2, 3);
    assert_close(
        &output(&after, &heads, &given),
        &output(&heads, &heads, &given),
        1e-6,
        "angles of heads",
    );
}

#[test]
fn fuse_rope_refuses_neighbors_with_angles_of_halves_and_other_pairs() {
    let of_neighbors = |b: &mut GraphBuilder, rate: f32| {
        let positions = b.iota(0, SEQ)?;
        let positions = b.cast(positions, DType::F32)?;
        let positions = b.reshape(positions, dims("seq 1 1 1"))?;
        let freq = b.vector(vec![rate, 0.1])?;
        let freq = b.reshape(freq, dims("2 1"))?;
        let angles = b.mul(positions, freq)?;
        let angles = b.expand(angles, dims("seq 1 2 2"))?;
        b.reshape(angles, dims("seq 1 4"))
    };
    // Elements at `ids`, negated, then those at `others`, in turn.
    let turn = |ids: [i64; 2], others: [i64; 2]| {
        move |b: &mut GraphBuilder, x: ValueId| {
            let mut at = |ids: [i64; 2]| {
                let ids = b.literal(&[2], Literal::I64(ids.to_vec()))?;
                b.op(Op::Take { axis: 3 }, &[x, ids])
            };
            let (minus, plus) = (at(ids)?, at(others)?);
            let minus = b.unary(UnaryFn::Neg, minus)?;
            let minus = b.reshape(minus, dims("batch seq 2 2 1"))?;
            let plus = b.reshape(plus, dims("batch seq 2 2 1"))?;
            let pairs = b.concat_last(&[minus, plus])?;
            b.reshape(pairs, dims("batch seq 2 4"))
        }
    };
    let swapped = rope(of_neighbors, [1.0, 1.0], turn([0, 2], [1, 3]));
    refused("fuse_rope", "not the neighbors", &swapped);
    let other = rope(of_neighbors, [1.0, 1.0], turn([2, 3], [0, 1]));
    refused("fuse_rope", "not the neighbors", &other);
    let different = rope(of_neighbors, [1.0, 0.5], turn([1, 3], [0, 2]));
    refused("fuse_rope", "different angles", &different);
    let mixed = rope(plain_angles, [1.0, 1.0], turn([1, 3], [0, 2]));
    refused("fuse_rope", "not the negated second half", &mixed);
    let halves = rope(of_neighbors, [1.0, 1.0], rotate_half);
    refused("fuse_rope", "not pairs of a negated second element", &halves);
}

#[test]
fn fuse_gated_mlp_refuses_parts_that_do_not_lie_together() {
    let two = |f: fn(&mut GraphBuilder) -> Result<(ValueId, ValueId)>| {
        graph(|b| {
            let (gate, up) = f(b)?;
            let gate = b.unary(UnaryFn::Silu, gate)?;
            b.mul(gate, up)
        })
    };
    let swapped = two(|b| {
        let x = input(b, "x", "batch seq 8");
        Ok((b.slice_last(x, 4, 8)?, b.slice_last(x, 0, 4)?))
    });
    refused("fuse_gated_mlp", "directly after gate", &swapped);
    let unrelated = two(|b| Ok((input(b, "x", "batch seq 4"), input(b, "y", "batch seq 4"))));
    refused("fuse_gated_mlp", "neither linear layers", &unrelated);
    let operands = two(|b| {
        let (x, y) = (input(b, "x", "batch seq 4"), input(b, "y", "batch seq 4"));
        let (v, w) = (b.weight("v", &[4, 4]), b.weight("w", &[4, 4]));
        Ok((b.linear(x, v, None)?, b.linear(y, w, None)?))
    });
    refused("fuse_gated_mlp", "different inputs", &operands);
    let tied = two(|b| {
        let x = input(b, "x", "batch seq 4");
        let (v, w) = (b.weight("v", &[4, 4]), b.weight("w", &[4, 4]));
        let first = b.linear(x, v, None)?;
        let y = b.linear(x, w, None)?;
        b.output("other", y);
        Ok((first, y))
    });
    refused("fuse_gated_mlp", "used elsewhere", &tied);
}

#[test]
fn merge_linear_refuses_tied_weights() {
    let g = graph(|b| {
        let x = input(b, "x", "batch seq 4");
        let (v, w) = (b.weight("v", &[4, 4]), b.weight("w", &[4, 4]));
        let (p, q) = (b.linear(x, v, None)?, b.linear(x, w, None)?);
        let q = b.linear(q, w, None)?;
        b.add(p, q)
    });
    refused("merge_linear", "weight `w` is used elsewhere", &g);
}

#[test]
fn fuse_short_conv_refuses_what_sees_the_future() {
    let conv = |weight: [usize; 3], groups, pad_left, pad_right| {
        graph(|b| {
            let x = input(b, "x", "batch 4 seq");
            let w = b.weight("w", &weight);
            b.op(
                Op::Conv1d {
                    groups,
                    pad_left,
                    pad_right,
                },
                &[x, w],
            )
        })
    };
    refused("fuse_short_conv", "not causal", &conv([4, 1, 3], 4, 1, 1));
    refused("fuse_short_conv", "not removed again", &conv([4, 1, 3], 4, 2, 2));
    refused("fuse_short_conv", "not depthwise", &conv([4, 2, 3], 2, 2, 0));
    refused("fuse_short_conv", "not depthwise", &conv([8, 1, 3], 4, 2, 0));
}

#[test]
fn fold_padding_refuses_a_number_that_varies() {
    let g = graph(|b| {
        let (x, w) = (input(b, "x", "batch 4 7"), b.weight("w", &[4, 4, 1]));
        let zero = b.scalar(0.0)?;
        let zeros = b.expand(zero, dims("batch 4 seq"))?;
        let y = b.op(Op::Concat { axis: 2 }, &[zeros, x])?;
        let conv = Op::Conv1d {
            groups: 1,
            pad_left: 0,
            pad_right: 0,
        };
        b.op(conv, &[y, w])
    });
    refused("fold_padding", "varies", &g);
}

#[test]
fn fuse_conv_norm_refuses_what_is_no_number_for_each_channel() {
    let behind = |scale: &[usize], twice: bool| {
        graph(|b| {
            let x = input(b, "x", "batch 4 7");
            let (w, scale) = (b.weight("w", &[4, 4, 1]), b.weight("scale", scale));
            let conv = Op::Conv1d {
                groups: 1,
                pad_left: 0,
                pad_right: 0,
            };
            let y = b.op(conv, &[x, w])?;
            let z = b.mul(y, scale)?;
            if twice { b.add(y, z) } else { Ok(z) }
        })
    };
    refused(
        "fuse_conv_norm",
        "not one number for each channel",
        &behind(&[7], false),
    );
    refused(
        "fuse_conv_norm",
        "not one number for each channel",
        &behind(&[4, 7], false),
    );
    refused("fuse_conv_norm", "used elsewhere", &behind(&[4, 1], true));
}

#[test]
fn insert_states_names_the_node_that_mixes_positions() {
    let attrs = |causal| {
        Op::Attention(AttentionAttrs {
            scale: 1.0,
            causal,
            ..AttentionAttrs::default()
        })
    };
    type Build = Box<dyn Fn(&mut GraphBuilder) -> Result<ValueId>>;
    let cases: Vec<(&str, &str, Build)> = vec![
        (
            "attention",
            "later positions",
            Box::new(move |b| {
                let x = input(b, "x", "batch seq 2 4");
                b.op(attrs(false), &[x, x, x])
            }),
        ),
        (
            "reduce_mean",
            "computes across axis",
            Box::new(|b| {
                let x = input(b, "x", "batch seq 4");
                b.op(
                    Op::Reduce {
                        f: ReduceFn::Mean,
                        axes: vec![1],
                        keepdim: true,
                    },
                    &[x],
                )
            }),
        ),
        (
            "matmul",
            "sums over positions",
            Box::new(|b| {
                let x = input(b, "x", "batch seq 4");
                let t = b.permute(x, &[0, 2, 1])?;
                b.matmul(t, x)
            }),
        ),
        (
            "matmul",
            "it combines different positions with each other",
            Box::new(|b| {
                let x = input(b, "x", "batch seq 4");
                let t = b.permute(x, &[0, 2, 1])?;
                b.matmul(x, t)
            }),
        ),
        (
            "lt",
            "it combines different positions with each other",
            Box::new(|b| {
                let (query, key) = query_and_key(b)?;
                b.compare(CompareFn::Lt, query, key)
            }),
        ),
        (
            "conv1d",
            "not both causal and depthwise",
            Box::new(|b| {
                let x = input(b, "x", "batch 4 seq");
                let w = b.weight("w", &[4, 1, 3]);
                b.op(
                    Op::Conv1d {
                        groups: 4,
                        pad_left: 1,
                        pad_right: 1,
                    },
                    &[x, w],
                )
            }),
        ),
        (
            "slice",
            "it drops some of the positions",
            Box::new(|b| {
                let x = input(b, "x", "batch seq 4");
                b.op(
                    Op::Slice {
                        axis: 1,
                        start: Dim::known(0),
                        end: Dim::known(1),
                    },
                    &[x],
                )
            }),
        ),
        (
            "softmax",
            "computes across axis",
            Box::new(|b| {
                let x = input(b, "x", "batch seq 4");
                b.op(Op::Softmax { axis: 1 }, &[x])
            }),
        ),
        (
            "iota",
            "which its operands do not",
            Box::new(|b| b.iota(0, "2*seq".parse::<Dim>()?)),
        ),
    ];
    for (node, why, build) in cases {
        let g = graph(build);
        refused("insert_states", why, &g);
        let (_, report) = run_pass("insert_states", &g);
        let (at, _) = report.misses("insert_states").next().unwrap();
        assert_eq!(at, format!("layer/{node}"));
    }
}

#[test]
fn insert_states_leaves_pointwise_graphs_alone() {
    let g = graph(|b| {
        let x = input(b, "x", "batch seq 4");
        let last = b.op(
            Op::Slice {
                axis: 1,
                start: "seq-1".parse()?,
                end: SEQ.into(),
            },
            &[x],
        )?;
        b.unary(UnaryFn::Exp, last)
    });
    refused("insert_states", "nothing depends on earlier positions", &g);
}
