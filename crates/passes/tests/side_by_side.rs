//! What is fused last, out of operations that stand side by side, and what is left out first: text before and after, the same numbers to the last bit,
//! and what must not match.

mod kit;

use cactus_ir::{Activation, BinaryFn, Dim, Graph, GraphBuilder, Literal, Op, ReduceFn, Result, SEQ, UnaryFn, ValueId};
use cactus_tensor::DType;
use kit::{dims, graph, input, inputs, output, run_pass};

/// The fused operations are defined by those that they are made of, so nothing rounds in another way.
#[track_caller]
fn check(name: &str, case: &str, fired: usize, before: &Graph) {
    let (after, report) = run_pass(name, before);
    assert_eq!(report.fired_count(name), fired, "{report}\n{after}");
    for seq in [1, 5] {
        let given = inputs(before, 1, seq);
        let want = output(before, before, &given);
        assert_eq!(output(&after, before, &given), want, "{name} {case} [{seq}]");
    }
    insta::assert_snapshot!(format!("{name}-{case}"), format!("{before}\n{after}\n{report}"));
}

#[track_caller]
fn refused(pass: &str, why: &str, before: &Graph) {
    let (after, report) = run_pass(pass, before);
    assert_eq!(after.to_string(), before.to_string(), "{why}");
    assert!(
        report.misses(pass).any(|(_, reason)| reason.contains(why)),
        "`{why}` is not in\n{report}"
    );
}

fn norm(b: &mut GraphBuilder, x: ValueId, name: &str, n: usize) -> Result<ValueId> {
    let w = b.weight(name, &[n]);
    b.op(Op::RmsNorm { eps: 1e-6 }, &[x, w])
}

/// A query and a key, of which `read_again` is read elsewhere too.
fn rotated(b: &mut GraphBuilder, read_again: bool) -> Result<ValueId> {
    let x = input(b, "x", "batch seq 3 4");
    let (positions, freq) = (b.iota(0, SEQ)?, b.vector(vec![1.0, 0.1])?);
    let y = norm(b, x, "norm", 4)?;
    let rotated = b.op(
        Op::Rope {
            scale: 1.5,
            interleaved: false,
        },
        &[y, positions, freq],
    )?;
    match read_again {
        true => b.add(rotated, y),
        false => Ok(rotated),
    }
}

#[test]
fn fuse_norm_rope_normalizes_heads_and_rotates_them() {
    check("fuse_norm_rope", "heads", 1, &graph(|b| rotated(b, false)));
    refused("fuse_norm_rope", "used elsewhere", &graph(|b| rotated(b, true)));
}

#[test]
fn fuse_norm_add_takes_the_branch_on_either_side() {
    let g = graph(|b| {
        let x = input(b, "x", "batch seq 4");
        let y = b.unary(UnaryFn::Exp, x)?;
        let y = norm(b, y, "first", 4)?;
        let x = b.add(x, y)?;
        let y = b.unary(UnaryFn::Tanh, x)?;
        let y = norm(b, y, "second", 4)?;
        b.add(y, x)
    });
    check("fuse_norm_add", "branches", 2, &g);
    let g = graph(|b| {
        let x = input(b, "x", "batch seq 4");
        let y = norm(b, x, "norm", 4)?;
        let sum = b.add(x, y)?;
        b.mul(sum, y)
    });
    refused("fuse_norm_add", "used elsewhere", &g);
    let g = graph(|b| {
        let x = input(b, "x", "batch seq 4");
        let y = norm(b, x, "norm", 4)?;
        let w = b.weight("bias", &[4]);
        b.add(y, w)
    });
    refused("fuse_norm_add", "another shape", &g);
}

/// A norm of heads and a gate that is made in another shape; `read_again` says whether the gate is read elsewhere too.
fn gated_norm(b: &mut GraphBuilder, f: UnaryFn, read_again: bool) -> Result<ValueId> {
    let (x, gate) = (input(b, "x", "batch seq 3 4"), input(b, "gate", "batch seq 12"));
    let normed = norm(b, x, "norm", 4)?;
    let active = b.unary(f, gate)?;
    let heads = b.reshape(active, dims("batch seq 3 4"))?;
    let y = b.mul(heads, normed)?;
    match read_again {
        true => b.add(y, heads),
        false => Ok(y),
    }
}

#[test]
fn fuse_norm_gate_takes_a_gate_of_another_shape() {
    check(
        "fuse_norm_gate",
        "heads",
        1,
        &graph(|b| gated_norm(b, UnaryFn::Silu, false)),
    );
    let again = graph(|b| gated_norm(b, UnaryFn::Silu, true));
    refused("fuse_norm_gate", "used elsewhere", &again);
    let other = graph(|b| gated_norm(b, UnaryFn::Sigmoid, false));
    assert_eq!(run_pass("fuse_norm_gate", &other).0.to_string(), other.to_string());
}

#[test]
fn fuse_conv_activation_takes_activations_alone() {
    let convolved = |f, read_again| {
        graph(|b| {
            let (x, w) = (input(b, "x", "batch seq 4"), b.weight("taps", &[4, 3]));
            let conv = Op::ShortConv {
                activation: None,
                state: None,
            };
            let y = b.op(conv, &[x, w])?;
            let active = b.unary(f, y)?;
            if read_again { b.add(active, y) } else { Ok(active) }
        })
    };
    check("fuse_conv_activation", "silu", 1, &convolved(UnaryFn::Silu, false));
    refused(
        "fuse_conv_activation",
        "is no activation",
        &convolved(UnaryFn::Tanh, false),
    );
    refused(
        "fuse_conv_activation",
        "used elsewhere",
        &convolved(UnaryFn::Silu, true),
    );
}

/// The delta rule of two heads with what makes its decays and rates.
#[derive(Clone, Copy, Default)]
struct DeltaSteps {
    /// Whether the bias is that of the linear before.
    linear: bool,
    /// What stands for the softplus.
    f: Option<UnaryFn>,
    /// Whether speeds are computed of an input.
    computed: bool,
}

impl DeltaSteps {
    fn graph(self) -> Graph {
        graph(|b| {
            let [q, k, v] = ["q", "k", "v"].map(|name| input(b, name, "batch seq 2 3"));
            let (x, rate) = (input(b, "x", "batch seq 4"), input(b, "rate", "batch seq 2"));
            let (w, bias, speed) = (b.weight("w", &[2, 4]), b.weight("bias", &[2]), b.weight("speed", &[2]));
            let step = match self.linear {
                true => b.linear(x, w, Some(bias))?,
                false => {
                    let y = b.linear(x, w, None)?;
                    b.add(bias, y)?
                }
            };
            let speed = if self.computed {
                b.unary(UnaryFn::Neg, rate)?
            } else {
                speed
            };
            let step = b.unary(self.f.unwrap_or(UnaryFn::Softplus), step)?;
            let decay = b.mul(step, speed)?;
            let decay = b.unary(UnaryFn::Exp, decay)?;
            let rate = b.unary(UnaryFn::Sigmoid, rate)?;
            let rule = Op::GatedDelta {
                steps: false,
                state: None,
            };
            b.op(rule, &[q, k, v, decay, rate])
        })
    }
}

#[test]
fn fuse_delta_steps_leaves_decays_and_rates_to_the_rule() {
    let plain = DeltaSteps::default();
    check("fuse_delta_steps", "sum", 1, &plain.graph());
    let linear = DeltaSteps { linear: true, ..plain };
    let (after, report) = run_pass("fuse_delta_steps", &linear.graph());
    assert_eq!(report.fired_count("fuse_delta_steps"), 1, "{after}");
    // The linear has lost its bias, which its sum rounds once more without.
    let without_bias = after.nodes().any(|(_, n)| n.op == Op::Linear && n.inputs.len() == 2);
    assert!(without_bias, "{after}");
    let f = Some(UnaryFn::Silu);
    refused("fuse_delta_steps", "no softplus", &DeltaSteps { f, ..plain }.graph());
    let computed = DeltaSteps {
        computed: true,
        ..plain
    };
    refused("fuse_delta_steps", "no softplus", &computed.graph());
}

/// Three streams that are predicted, corrected, and of which two have something added, whatever axis counts them.
#[derive(Clone, Copy, Default)]
struct Streams {
    /// Whether the first axis counts them, as in what is captured.
    first: bool,
    /// Whether each is taken out at last.
    apart: bool,
    /// Whether factors are those of something else than tangents.
    other: bool,
}

impl Streams {
    fn graph(self) -> Graph {
        graph(|b| {
            let [x, routes, later] = [
                ("x", "batch seq 6"),
                ("routes", "batch seq 3"),
                ("later", "batch seq 3"),
            ]
            .map(|(name, sizes)| input(b, name, sizes));
            let mut streams = Vec::new();
            for f in [UnaryFn::Sin, UnaryFn::Cos, UnaryFn::Neg] {
                let y = b.unary(f, x)?;
                streams.push(b.reshape(y, dims(if self.first { "1 batch seq 6" } else { "batch seq 1 6" }))?);
            }
            let axis = if self.first { 0 } else { 2 };
            let all = b.op(Op::Concat { axis }, &streams)?;
            let factors = |b: &mut GraphBuilder, routes, name: &str, rows: usize| {
                let y = b.unary(if self.other { UnaryFn::Sin } else { UnaryFn::Tanh }, routes)?;
                let w = b.weight(name, &[rows, 3]);
                b.linear(y, w, None)
            };
            let f = factors(b, routes, "predict", 9)?;
            let mut f = b.reshape(f, dims("batch seq 3 3"))?;
            let change = match self.first {
                true => {
                    let x = b.permute(all, &[1, 2, 3, 0])?;
                    f = b.permute(f, &[0, 1, 3, 2])?;
                    let y = b.matmul(x, f)?;
                    b.permute(y, &[3, 0, 1, 2])?
                }
                false => b.matmul(f, all)?,
            };
            let all = b.add(change, all)?;
            let part = |b: &mut GraphBuilder, all, start: usize, end: usize| {
                let (start, end) = (Dim::known(start), Dim::known(end));
                b.op(Op::Slice { axis, start, end }, &[all])
            };
            let stream = |b: &mut GraphBuilder, all, i: usize| {
                let one = part(b, all, i, i + 1)?;
                b.reshape(one, dims("batch seq 6"))
            };
            let active = stream(b, all, 1)?;
            let worked = b.unary(UnaryFn::Exp, active)?;
            let new = b.binary(BinaryFn::Sub, worked, active)?;
            let f = factors(b, later, "correct", 3)?;
            let one = b.scalar(1.0)?;
            let mut f = b.add(f, one)?;
            if self.first {
                f = b.permute(f, &[2, 0, 1])?;
            }
            let f = b.reshape(f, dims(if self.first { "3 batch seq 1" } else { "batch seq 3 1" }))?;
            let new = b.reshape(new, dims(if self.first { "1 batch seq 6" } else { "batch seq 1 6" }))?;
            let change = b.mul(new, f)?;
            let all = b.add(change, all)?;
            let y = stream(b, all, 1)?;
            let mut y = b.unary(UnaryFn::Sigmoid, y)?;
            if !self.first {
                y = b.reshape(y, dims("batch seq 1 6"))?;
            }
            let (first, others) = (part(b, all, 0, 1)?, part(b, all, 1, 3)?);
            let others = b.add(others, y)?;
            if self.apart {
                let (a, c) = (stream(b, all, 0)?, stream(b, others, 1)?);
                return b.mul(a, c);
            }
            let all = b.op(Op::Concat { axis }, &[first, others])?;
            let (a, c) = (stream(b, all, 0)?, stream(b, all, 2)?);
            b.mul(a, c)
        })
    }
}

#[test]
fn fuse_altup_finds_updates_whatever_axis_counts_streams() {
    let third = Streams::default();
    let first = Streams { first: true, ..third };
    check("fuse_altup", "third", 3, &third.graph());
    // Streams are taken out where they come from, four of them.
    check("fuse_altup", "first", 7, &first.graph());
    let apart = Streams { apart: true, ..first };
    for streams in [first, apart] {
        let (after, report) = run_pass("fuse_altup", &streams.graph());
        assert_eq!(report.fired_count("fuse_altup"), 7, "{report}");
        let moves = after
            .nodes()
            .filter(|(_, n)| matches!(n.op, Op::Permute { .. }))
            .count();
        assert_eq!(moves, 0, "{after}");
        let given = inputs(&after, 1, 5);
        assert_eq!(
            output(&after, &streams.graph(), &given),
            output(&streams.graph(), &streams.graph(), &given)
        );
    }
    let other = Streams { other: true, ..third }.graph();
    let (after, _) = run_pass("fuse_altup", &other);
    assert!(
        !after
            .nodes()
            .any(|(_, n)| matches!(n.op, Op::AltupPredict | Op::AltupCorrect { .. })),
        "{after}"
    );
}

#[test]
fn fuse_norm_scale_takes_powers_of_two() {
    let scaled = |factors: [f32; 2], read_again: bool| {
        graph(|b| {
            let x = input(b, "x", "batch seq 4");
            let w = b.weight("norm", &[4]);
            let norm = |b: &mut GraphBuilder, x| b.op(Op::RmsNorm { eps: 1e-6 }, &[x, w]);
            let y = norm(b, x)?;
            let again = b.scale(y, factors[0])?;
            let z = b.unary(UnaryFn::Tanh, again)?;
            let z = norm(b, z)?;
            let z = b.scale(z, factors[1])?;
            if read_again { b.add(z, y) } else { Ok(z) }
        })
    };
    // Both norms have the same weight, and so the same scaled one.
    check("fuse_norm_scale", "twice", 2, &scaled([0.25, 0.25], false));
    refused("fuse_norm_scale", "no power of two", &scaled([0.3, -0.25], false));
    let (after, report) = run_pass("fuse_norm_scale", &scaled([0.25, 2.0], true));
    assert_eq!(report.fired_count("fuse_norm_scale"), 1, "{after}");
}

/// Ways of choosing two of four experts.
#[derive(Clone, Copy, Default)]
struct Router {
    sigmoid: bool,
    bias: bool,
    normalize: Option<f32>,
    factor: bool,
    smallest: bool,
    other_shares: bool,
}

impl Router {
    fn graph(self) -> Graph {
        graph(|b| {
            let (x, scores) = (input(b, "x", "1 seq 6"), input(b, "scores", "1 seq 4"));
            let p = match self.sigmoid {
                true => b.unary(UnaryFn::Sigmoid, scores)?,
                false => b.softmax_last(scores)?,
            };
            let ranked = match self.bias {
                true => {
                    let bias = b.vector(vec![0.3, -0.2, 0.0, 0.4])?;
                    b.add(p, bias)?
                }
                false => p,
            };
            let descending = !self.smallest;
            let order = b.op(Op::ArgSort { axis: 2, descending }, &[ranked])?;
            let ids = b.slice_last(order, 0, 2)?;
            let of = if self.other_shares { scores } else { p };
            let mut shares = b.op(Op::Gather { axis: 2 }, &[of, ids])?;
            if let Some(epsilon) = self.normalize {
                let (f, axes, keepdim) = (ReduceFn::Sum, vec![2], true);
                let mut sum = b.op(Op::Reduce { f, axes, keepdim }, &[shares])?;
                if epsilon != 0.0 {
                    let epsilon = b.scalar(epsilon)?;
                    sum = b.add(sum, epsilon)?;
                }
                shares = b.binary(BinaryFn::Div, shares, sum)?;
            }
            if self.factor {
                let factor = b.weight("factor", &[4]);
                let flat = b.reshape(ids, dims("seq 2"))?;
                let factor = b.op(Op::Take { axis: 0 }, &[factor, flat])?;
                shares = b.mul(shares, factor)?;
            }
            let (gate_up, down) = (b.weight("gate_up", &[16, 6]), b.weight("down", &[24, 2]));
            let activation = Activation::Silu;
            b.op(Op::Experts { activation }, &[x, ids, shares, gate_up, down])
        })
    }
}

#[test]
fn fuse_router_knows_the_usual_ways() {
    let plain = Router::default();
    let cases = [
        ("softmax", plain),
        (
            "normalized",
            Router {
                normalize: Some(0.0),
                ..plain
            },
        ),
        (
            "sigmoid",
            Router {
                sigmoid: true,
                bias: true,
                normalize: Some(1e-6),
                ..plain
            },
        ),
        (
            "factor",
            Router {
                normalize: Some(0.0),
                factor: true,
                ..plain
            },
        ),
    ];
    for (case, router) in cases {
        check("fuse_router", case, 1, &router.graph());
    }
    let smallest = Router {
        smallest: true,
        ..plain
    };
    refused("fuse_router", "does not choose the largest", &smallest.graph());
    let raw = Router {
        other_shares: true,
        ..plain
    };
    refused("fuse_router", "become weights by", &raw.graph());
}

/// A table for text, height and width, of which the frequencies at `places` are those of the height.
fn sections(b: &mut GraphBuilder, positions_differ: bool, places: [i64; 2]) -> Result<ValueId> {
    let positions = b.iota(0, SEQ)?;
    let positions = b.reshape(positions, dims("1 1 seq"))?;
    let mut streams = b.op(Op::Expand { shape: dims("3 1 seq") }, &[positions])?;
    if positions_differ {
        let shift = b.literal(&[3, 1, 1], Literal::I64(vec![0, 1, 2]))?;
        streams = b.add(streams, shift)?;
    }
    let streams = b.reshape(streams, dims("3 1 seq 1"))?;
    let streams = b.cast(streams, DType::F32)?;
    let freq = b.vector(vec![1.0, 0.1])?;
    let angles = b.mul(streams, freq)?;
    let table = b.unary(UnaryFn::Cos, angles)?;
    let stream = |b: &mut GraphBuilder, i: usize| {
        let (start, end) = (Dim::known(i), Dim::known(i + 1));
        let y = b.op(Op::Slice { axis: 0, start, end }, &[table])?;
        b.reshape(y, dims("1 seq 2"))
    };
    let (text, height) = (stream(b, 0)?, stream(b, 1)?);
    let [read, written] = places;
    let read = b.literal(&[1], Literal::I64(vec![read]))?;
    let written = b.literal(&[1, 1, 1], Literal::I64(vec![written]))?;
    let part = b.op(Op::Take { axis: 2 }, &[height, read])?;
    let written = b.op(Op::Expand { shape: dims("1 seq 1") }, &[written])?;
    let add = false;
    let table = b.op(Op::Scatter { axis: 2, add }, &[text, written, part])?;
    let x = input(b, "x", "1 seq 2");
    b.mul(x, table)
}

#[test]
fn drop_repeats_finds_equal_streams() {
    let g = graph(|b| sections(b, false, [1, 1]));
    check("drop_repeats", "sections", 2, &g);
    // What is equal must be one value before a scatter of it is seen.
    let (equal, _) = run_pass("drop_repeats", &g);
    let (equal, _) = run_pass("canonicalize", &equal);
    check("drop_repeats", "scatter", 1, &equal);
    for (differ, places) in [(true, [1, 1]), (false, [0, 1])] {
        let mut g = graph(|b| sections(b, differ, places));
        for pass in ["drop_repeats", "canonicalize", "drop_repeats"] {
            g = run_pass(pass, &g).0;
        }
        let scatters = g.nodes().filter(|(_, n)| matches!(n.op, Op::Scatter { .. })).count();
        assert_eq!(scatters, 1, "{g}");
    }
}
