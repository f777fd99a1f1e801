//! Every pass alone on a small graph: text before and after, report, and the same function.

mod alone;
mod kit;

use alone::{binary, checked};
use cactus_ir::{BinaryFn, CompareFn, Dim, Graph, GraphBuilder, Literal, Op, ReduceFn, Result, SEQ, UnaryFn, ValueId};
use cactus_reference::{Interpreter, States, Tensors, eval_op};
use cactus_tensor::DType;
use kit::{dims, graph, input, inputs, output, run_pass};

/// Snapshots what pass `name` makes of `before`, which computes the same.
#[track_caller]
fn check(name: &str, case: &str, before: &Graph) {
    insta::assert_snapshot!(format!("{name}-{case}"), checked(name, case, before));
}

#[test]
fn canonicalize_gives_equal_things_one_form() {
    let g = graph(|b| {
        let x = input(b, "x", "batch seq 2 4");
        // Permutations that undo each other around a no-op, and chained reshapes.
        let y = b.permute(x, &[0, 2, 1, 3])?;
        let y = b.cast(y, DType::F32)?;
        let y = b.permute(y, &[0, 2, 1, 3])?;
        let y = b.reshape(y, dims("batch seq 8 1"))?;
        let y = b.reshape(y, dims("batch seq 8"))?;
        // The named function behind products, powers and quotients; constants on the right.
        let s = b.unary(UnaryFn::Sigmoid, y)?;
        let y = b.mul(s, y)?;
        let square = binary(b, BinaryFn::Pow, y, 2.0)?;
        let (one, two) = (b.scalar(1.0)?, b.scalar(2.0)?);
        let y = b.binary(BinaryFn::Add, two, square)?;
        let root = b.unary(UnaryFn::Sqrt, y)?;
        let y = b.binary(BinaryFn::Div, one, root)?;
        // Computed twice, and an operand broadcast by hand.
        let again = b.unary(UnaryFn::Sqrt, square)?;
        let twice = b.unary(UnaryFn::Sqrt, square)?;
        let sum = b.add(again, twice)?;
        let v = b.vector(vec![1.0; 8])?;
        let v = b.reshape(v, dims("1 1 8"))?;
        let v = b.expand(v, dims("batch seq 8"))?;
        let y = b.mul(y, v)?;
        let y = b.add(y, sum)?;
        // Slices of slices and of what was just joined; no-ops.
        let joined = b.concat_last(&[y, sum])?;
        let y = b.slice_last(joined, 0, 6)?;
        let y = b.slice_last(y, 1, 5)?;
        let y = binary(b, BinaryFn::Mul, y, 1.0)?;
        let y = b.slice_last(y, 0, 4)?;
        binary(b, BinaryFn::Add, y, 0.0)
    });
    check("canonicalize", "chains", &g);
}

#[test]
fn canonicalize_turns_conditions_and_biases() {
    let g = graph(|b| {
        let x = input(b, "x", "batch seq 4");
        let w = b.weight("w", &[4, 4]);
        let bias = b.weight("bias", &[4]);
        let y = b.linear(x, w, None)?;
        let y = b.add(bias, y)?;
        let zero = b.scalar(0.0)?;
        let below = b.compare(CompareFn::Gt, zero, y)?;
        let not = b.unary(UnaryFn::Not, below)?;
        b.select(not, y, x)
    });
    check("canonicalize", "conditions", &g);
}

#[test]
fn fold_computes_constants_and_changes_weights() {
    let g = graph(|b| {
        let x = input(b, "x", "batch seq 4");
        // 10000^(-2i/8) from integers.
        let i = b.iota(0, 4)?;
        let i = b.cast(i, DType::F32)?;
        let e = b.scale(i, -0.25)?;
        let base = b.scalar(10000.0)?;
        let freq = b.binary(BinaryFn::Pow, base, e)?;
        let y = b.mul(x, freq)?;
        let w = b.weight("norm.weight", &[4]);
        let one = b.scalar(1.0)?;
        let w = b.add(w, one)?;
        let y = b.mul(y, w)?;
        let y = b.scale(y, 0.5)?;
        let y = b.scale(y, 3.0)?;
        let fc = b.weight("fc.weight", &[4, 4]);
        let fc = b.permute(fc, &[1, 0])?;
        let y = b.matmul(y, fc)?;
        let plain = b.weight("conv1d.weight", &[4, 6]);
        b.matmul(y, plain)
    });
    check("fold", "constants", &g);
}

#[test]
fn fuse_activation_finds_both_gelus() {
    let g = graph(|b| {
        let x = input(b, "x", "batch seq 4");
        let half = b.scale(x, 0.5)?;
        let inner = binary(b, BinaryFn::Div, x, std::f32::consts::SQRT_2)?;
        let erf = b.unary(UnaryFn::Erf, inner)?;
        let erf = binary(b, BinaryFn::Add, erf, 1.0)?;
        let x = b.mul(half, erf)?;
        let cube = binary(b, BinaryFn::Pow, x, 3.0)?;
        let cube = b.scale(cube, 0.044715)?;
        let inner = b.add(x, cube)?;
        let inner = b.scale(inner, 0.797_884_6)?;
        let tanh = b.unary(UnaryFn::Tanh, inner)?;
        let tanh = binary(b, BinaryFn::Add, tanh, 1.0)?;
        let y = b.mul(x, tanh)?;
        b.scale(y, 0.5)
    });
    check("fuse_activation", "gelu", &g);
}

#[test]
fn fuse_activation_finds_hard_functions_however_they_are_divided() {
    let g = graph(|b| {
        let within_six = |b: &mut GraphBuilder, x: ValueId| {
            let shifted = binary(b, BinaryFn::Add, x, 3.0)?;
            let above = binary(b, BinaryFn::Max, shifted, 0.0)?;
            binary(b, BinaryFn::Min, above, 6.0)
        };
        let x = input(b, "x", "batch seq 4");
        // hard_swish as MobileNetV3 has it, and divided at last.
        let share = within_six(b, x)?;
        let share = b.scale(share, 1.0 / 6.0)?;
        let x = b.mul(x, share)?;
        let share = within_six(b, x)?;
        let y = b.mul(share, x)?;
        let x = binary(b, BinaryFn::Div, y, 6.0)?;
        // hard_sigmoid, and what is neither.
        let share = within_six(b, x)?;
        let x = binary(b, BinaryFn::Div, share, 6.0)?;
        let share = within_six(b, x)?;
        b.scale(share, 0.25)
    });
    check("fuse_activation", "hard", &g);
}

#[test]
fn fuse_layer_norm_with_and_without_bias() {
    let norm = |b: &mut GraphBuilder, x: ValueId, name: &str, bias: bool| {
        let mean = b.reduce_last(ReduceFn::Mean, x)?;
        let centered = b.binary(BinaryFn::Sub, x, mean)?;
        let square = b.mul(centered, centered)?;
        let variance = b.reduce_last(ReduceFn::Mean, square)?;
        let variance = binary(b, BinaryFn::Add, variance, 1e-5)?;
        let y = match bias {
            true => {
                let root = b.unary(UnaryFn::Sqrt, variance)?;
                b.binary(BinaryFn::Div, centered, root)?
            }
            false => {
                let root = b.unary(UnaryFn::Rsqrt, variance)?;
                b.mul(root, centered)?
            }
        };
        let w = b.weight(&format!("{name}.weight"), &[4]);
        let y = b.mul(w, y)?;
        if !bias {
            return Ok(y);
        }
        let w = b.weight(&format!("{name}.bias"), &[4]);
        b.add(y, w)
    };
    let g = graph(|b| {
        let x = input(b, "x", "batch seq 4");
        let y = norm(b, x, "first", true)?;
        norm(b, y, "second", false)
    });
    check("fuse_layer_norm", "both", &g);
}

#[test]
fn fuse_layer_norm_takes_weights_of_heads() {
    let of_heads = |weight: &[usize]| {
        graph(|b| {
            let x = input(b, "x", "batch seq 2 4");
            let mean = b.reduce_last(ReduceFn::Mean, x)?;
            let centered = b.binary(BinaryFn::Sub, x, mean)?;
            let square = b.mul(centered, centered)?;
            let variance = b.reduce_last(ReduceFn::Mean, square)?;
            let variance = binary(b, BinaryFn::Add, variance, 1e-5)?;
            let root = b.unary(UnaryFn::Rsqrt, variance)?;
            let y = b.mul(root, centered)?;
            let w = b.weight("weight", weight);
            b.mul(w, y)
        })
    };
    check("fuse_layer_norm", "heads", &of_heads(&[2, 4]));
    let before = of_heads(&[2, 1]);
    assert_eq!(run_pass("fuse_layer_norm", &before).0.to_string(), before.to_string());
}

#[test]
fn fuse_rms_norm_in_every_order() {
    let g = graph(|b| {
        let x = input(b, "x", "batch seq 4");
        let root = |b: &mut GraphBuilder, x: ValueId, f: UnaryFn, eps: f32| {
            let square = b.mul(x, x)?;
            let mean = b.reduce_last(ReduceFn::Mean, square)?;
            let mean = binary(b, BinaryFn::Add, mean, eps)?;
            b.unary(f, mean)
        };
        let [w1, w2, w3, w4] = ["w1", "w2", "w3", "w4"].map(|n| b.weight(n, &[4]));
        let r = root(b, x, UnaryFn::Rsqrt, 1e-6)?;
        let y = b.mul(x, r)?;
        let y = b.mul(w1, y)?;
        let r = root(b, y, UnaryFn::Sqrt, 1e-5)?;
        let y = b.binary(BinaryFn::Div, y, r)?;
        let y = b.mul(y, w2)?;
        // The weight first.
        let r = root(b, y, UnaryFn::Rsqrt, 1e-4)?;
        let z = b.mul(y, w3)?;
        let y = b.mul(z, r)?;
        // One root, two weights.
        let r = root(b, y, UnaryFn::Rsqrt, 1e-3)?;
        let z = b.mul(y, r)?;
        let (p, q) = (b.mul(z, w4)?, b.mul(z, w1)?);
        let y = b.add(p, q)?;
        // No weight.
        let r = root(b, y, UnaryFn::Rsqrt, 1e-2)?;
        b.mul(y, r)
    });
    check("fuse_rms_norm", "orders", &g);
}

/// Positions times frequencies as transformers writes it: a matrix product of broadcast operands.
fn angles_by_matmul(b: &mut GraphBuilder, freq: ValueId) -> Result<ValueId> {
    let positions = b.iota(0, SEQ)?;
    let positions = b.reshape(positions, dims("1 seq"))?;
    let positions = b.reshape(positions, dims("1 1 seq"))?;
    let positions = b.cast(positions, DType::F32)?;
    let freq = b.reshape(freq, dims("1 2 1"))?;
    let angles = b.matmul(freq, positions)?;
    let angles = b.permute(angles, &[0, 2, 1])?;
    b.concat_last(&[angles, angles])
}

#[test]
fn fuse_rope_sees_through_a_matrix_product() {
    let g = graph(|b| {
        let x = input(b, "x", "batch 3 seq 4");
        let freq = b.vector(vec![1.0, 0.1])?;
        let angles = angles_by_matmul(b, freq)?;
        let mut table = |f| {
            let t = b.unary(f, angles)?;
            let t = b.scale(t, 1.5)?;
            b.reshape(t, dims("1 1 seq 4"))
        };
        let (cos, sin) = (table(UnaryFn::Cos)?, table(UnaryFn::Sin)?);
        let (low, high) = (b.slice_last(x, 0, 2)?, b.slice_last(x, 2, 4)?);
        let high = b.unary(UnaryFn::Neg, high)?;
        let rotated = b.concat_last(&[high, low])?;
        let (p, q) = (b.mul(x, cos)?, b.mul(rotated, sin)?);
        b.add(p, q)
    });
    check("fuse_rope", "matmul", &g);
}

/// Each frequency twice in a row, `[seq, 4]`.
fn angles_of_neighbors(b: &mut GraphBuilder) -> Result<ValueId> {
    let positions = b.iota(0, SEQ)?;
    let positions = b.cast(positions, DType::F32)?;
    let positions = b.reshape(positions, dims("seq 1"))?;
    let freq = b.vector(vec![1.0, 0.1])?;
    let angles = b.mul(positions, freq)?;
    let angles = b.reshape(angles, dims("seq 2 1"))?;
    let angles = b.expand(angles, dims("seq 2 2"))?;
    b.reshape(angles, dims("seq 4"))
}

#[test]
fn fuse_rope_finds_neighbors_of_the_first_part_of_heads() {
    // As Cohere and GLM have it: every other element, and the table of each frequency twice.
    let g = graph(|b| {
        let q = input(b, "q", "batch seq 3 6");
        let x = b.slice_last(q, 0, 4)?;
        let rest = b.slice_last(q, 4, 6)?;
        let heads = |b: &mut GraphBuilder, x| b.permute(x, &[0, 2, 1, 3]);
        let (x, rest) = (heads(b, x)?, heads(b, rest)?);
        let angles = angles_of_neighbors(b)?;
        let mut table = |f| {
            let t = b.unary(f, angles)?;
            b.reshape(t, dims("1 1 seq 4"))
        };
        let (cos, sin) = (table(UnaryFn::Cos)?, table(UnaryFn::Sin)?);
        let mut every_other = |first: i64| {
            let ids = b.literal(&[2], Literal::I64(vec![first, first + 2]))?;
            b.op(Op::Take { axis: 3 }, &[x, ids])
        };
        let (even, odd) = (every_other(0)?, every_other(1)?);
        let minus = b.unary(UnaryFn::Neg, odd)?;
        let minus = b.reshape(minus, dims("batch 3 seq 2 1"))?;
        let even = b.reshape(even, dims("batch 3 seq 2 1"))?;
        let turned = b.concat_last(&[minus, even])?;
        let turned = b.reshape(turned, dims("batch 3 seq 4"))?;
        let (p, q) = (b.mul(x, cos)?, b.mul(turned, sin)?);
        let y = b.add(p, q)?;
        b.concat_last(&[y, rest])
    });
    check("fuse_rope", "neighbors", &g);
}

/// Heads that share keys ask for an axis besides where pairs are joined.
#[test]
fn fuse_rope_finds_pairs_of_an_axis_of_their_own() {
    for (case, joined) in [("pairs", "batch seq 3 4"), ("pairs-of-groups", "batch seq 3 1 4")] {
        let g = graph(|b| {
            let x = input(b, "x", "batch seq 3 4");
            let positions = b.iota(0, SEQ)?;
            let positions = b.cast(positions, DType::F32)?;
            let positions = b.reshape(positions, dims("seq 1 1"))?;
            let freq = b.vector(vec![1.0, 0.1])?;
            let angles = b.mul(positions, freq)?;
            let (cos, sin) = (b.unary(UnaryFn::Cos, angles)?, b.unary(UnaryFn::Sin, angles)?);
            let pairs = b.reshape(x, dims("batch seq 3 2 2"))?;
            let mut element = |i: usize| {
                let x = b.slice_last(pairs, i, i + 1)?;
                b.reshape(x, dims("batch seq 3 2"))
            };
            let (even, odd) = (element(0)?, element(1)?);
            let (p, q) = (b.mul(even, cos)?, b.mul(odd, sin)?);
            let first = b.binary(BinaryFn::Sub, p, q)?;
            let (p, q) = (b.mul(odd, cos)?, b.mul(even, sin)?);
            let second = b.add(p, q)?;
            let first = b.reshape(first, dims("batch seq 3 2 1"))?;
            let second = b.reshape(second, dims("batch seq 3 2 1"))?;
            let y = b.concat_last(&[first, second])?;
            b.reshape(y, dims(joined))
        });
        check("fuse_rope", case, &g);
    }
}

/// Sines of ten positions beside their cosines, `[10, 4]`.
fn sinusoids(b: &mut GraphBuilder) -> Result<ValueId> {
    let rows = b.iota(0, 10)?;
    let rows = b.cast(rows, DType::F32)?;
    let rows = b.reshape(rows, dims("10 1"))?;
    let freq = b.vector(vec![1.0, 0.1])?;
    let angles = b.mul(rows, freq)?;
    let (sin, cos) = (b.unary(UnaryFn::Sin, angles)?, b.unary(UnaryFn::Cos, angles)?);
    b.concat_last(&[sin, cos])
}

#[test]
fn take_rows_computes_the_rows_that_a_gather_asks_for() {
    let g = graph(|b| {
        let x = input(b, "x", "1 seq 4");
        let table = sinusoids(b)?;
        let table = b.reshape(table, dims("1 10 4"))?;
        let positions = b.iota(0, SEQ)?;
        let index = b.reshape(positions, dims("1 seq 1"))?;
        let index = b.expand(index, dims("1 seq 4"))?;
        let rows = b.op(Op::Gather { axis: 1 }, &[table, index])?;
        b.add(x, rows)
    });
    check("take_rows", "sinusoids", &g);
}

#[test]
fn take_rows_leaves_other_gathers_and_stored_tables() {
    let g = graph(|b| {
        let x = input(b, "x", "1 seq 4");
        let positions = b.iota(0, SEQ)?;
        // A stored table has nothing to compute.
        let table = b.weight("table", &[10, 4]);
        let rows = b.op(Op::Take { axis: 0 }, &[table, positions])?;
        let y = b.add(x, rows)?;
        // An index of its own for each column.
        let table = sinusoids(b)?;
        let columns = b.iota(0, 4)?;
        let index = b.reshape(positions, dims("seq 1"))?;
        let index = b.expand(index, dims("seq 4"))?;
        let index = b.binary(BinaryFn::Max, index, columns)?;
        let gathered = b.op(Op::Gather { axis: 0 }, &[table, index])?;
        b.add(y, gathered)
    });
    let (after, report) = run_pass("take_rows", &g);
    assert_eq!(report.fired_count("take_rows"), 0, "{report}");
    assert_eq!(after.to_string(), g.to_string());
}

/// LFM2's gated convolution in the layout of the convolution.
fn gated_conv(b: &mut GraphBuilder, x: ValueId) -> Result<ValueId> {
    let x = b.permute(x, &[0, 2, 1])?;
    let mut third = |i: usize| {
        b.op(
            Op::Slice {
                axis: 1,
                start: (4 * i).into(),
                end: (4 * i + 4).into(),
            },
            &[x],
        )
    };
    let (gate_in, gate_out, x) = (third(0)?, third(1)?, third(2)?);
    let x = b.mul(gate_in, x)?;
    let (w, bias) = (b.weight("conv.weight", &[4, 1, 3]), b.weight("conv.bias", &[4]));
    let y = b.op(
        Op::Conv1d {
            groups: 4,
            pad_left: 2,
            pad_right: 2,
        },
        &[x, w, bias],
    )?;
    let y = b.op(
        Op::Slice {
            axis: 2,
            start: 0.into(),
            end: SEQ.into(),
        },
        &[y],
    )?;
    let y = b.mul(gate_out, y)?;
    b.permute(y, &[0, 2, 1])
}

#[test]
fn sink_permutes_moves_them_below_slices_and_products() {
    let g = graph(|b| {
        let x = input(b, "x", "batch seq 12");
        gated_conv(b, x)
    });
    check("sink_permutes", "gated-conv", &g);
}

#[test]
fn sink_reshapes_gives_merged_rows_an_axis_for_positions_again() {
    let g = graph(|b| {
        let x = input(b, "x", "1 seq 12");
        let (w, norm) = (b.weight("w", &[6, 12]), b.weight("norm", &[3]));
        // A matrix product over merged rows, as PyTorch's `addmm` wants it; then a norm of halves, gated by the same.
        let rows = b.reshape(x, dims("seq 12"))?;
        let y = b.linear(rows, w, None)?;
        let y = b.reshape(y, dims("1 seq 6"))?;
        let y = b.reshape(y, vec![Dim::symbol(SEQ).times(2)?, Dim::known(3)])?;
        let n = b.op(Op::RmsNorm { eps: 1e-6 }, &[y, norm])?;
        let s = b.op(Op::Softmax { axis: 1 }, &[y])?;
        let y = b.mul(n, s)?;
        b.reshape(y, dims("1 seq 6"))
    });
    check("sink_reshapes", "merged", &g);
}

#[test]
fn fuse_short_conv_takes_weight_bias_and_cut() {
    let g = graph(|b| {
        let x = input(b, "x", "batch seq 12");
        gated_conv(b, x)
    });
    check("fuse_short_conv", "gated-conv", &g);
}

#[test]
fn fuse_gated_mlp_merges_linears_and_takes_slices() {
    let g = graph(|b| {
        let x = input(b, "x", "batch seq 4");
        let (gate, up) = (b.weight("mlp.gate.weight", &[6, 4]), b.weight("mlp.up.weight", &[6, 4]));
        let (gate_bias, up_bias) = (b.weight("mlp.gate.bias", &[6]), b.weight("mlp.up.bias", &[6]));
        let up = b.linear(x, up, Some(up_bias))?;
        let gate = b.linear(x, gate, Some(gate_bias))?;
        let gate = b.unary(UnaryFn::GeluTanh, gate)?;
        let y = b.mul(up, gate)?;
        // Six wide: the gate at 1..3, up at 3..5.
        let (gate, up) = (b.slice_last(y, 1, 3)?, b.slice_last(y, 3, 5)?);
        let gate = b.unary(UnaryFn::Silu, gate)?;
        let y = b.mul(gate, up)?;
        let w = b.weight("gate_up.weight", &[4, 2]);
        let y = b.linear(y, w, None)?;
        let (gate, up) = (b.slice_last(y, 0, 2)?, b.slice_last(y, 2, 4)?);
        let gate = b.unary(UnaryFn::Relu, gate)?;
        b.mul(gate, up)
    });
    check("fuse_gated_mlp", "three", &g);
}

/// Gates that are far above their mean, times values; `read_again` says whether the gates are read elsewhere too.
fn few_gates(b: &mut GraphBuilder, read_again: bool) -> Result<ValueId> {
    let x = input(b, "x", "batch seq 4");
    let (gate, up) = (b.weight("mlp.gate.weight", &[6, 4]), b.weight("mlp.up.weight", &[6, 4]));
    let gate = b.linear(x, gate, None)?;
    let mean = b.reduce_last(ReduceFn::Mean, gate)?;
    let off = b.binary(BinaryFn::Sub, gate, mean)?;
    let squared = b.mul(off, off)?;
    let variance = b.reduce_last(ReduceFn::Mean, squared)?;
    let deviation = b.unary(UnaryFn::Sqrt, variance)?;
    let margin = b.scale(deviation, 0.5)?;
    let least = b.add(mean, margin)?;
    let rest = b.binary(BinaryFn::Sub, gate, least)?;
    let few = b.unary(UnaryFn::Relu, rest)?;
    let active = b.unary(UnaryFn::GeluTanh, few)?;
    let up = b.linear(x, up, None)?;
    let y = b.mul(active, up)?;
    if read_again { b.add(y, gate) } else { Ok(y) }
}

#[test]
fn fuse_gated_mlp_finds_units_of_the_largest_gates() {
    check("fuse_gated_mlp", "few", &graph(|b| few_gates(b, false)));
    let (after, report) = run_pass("fuse_gated_mlp", &graph(|b| few_gates(b, true)));
    assert_eq!(report.fired_count("fuse_gated_mlp"), 0, "{after}");
}

#[test]
fn fuse_gate_takes_values_that_lie_apart() {
    let gates = |of: &str, read_again: bool| {
        graph(|b| {
            let (gate, x) = (input(b, "gate", of), input(b, "x", "batch seq 4"));
            let active = b.unary(UnaryFn::GeluTanh, gate)?;
            let y = b.mul(x, active)?;
            if read_again { b.add(y, active) } else { Ok(y) }
        })
    };
    check("fuse_gate", "apart", &gates("batch seq 4", false));
    for (of, read_again, why) in [
        ("batch seq 1", false, "differ in shape"),
        ("batch seq 4", true, "used elsewhere"),
    ] {
        let before = gates(of, read_again);
        let (after, report) = run_pass("fuse_gate", &before);
        assert_eq!(after.to_string(), before.to_string());
        assert!(
            report.misses("fuse_gate").any(|(_, reason)| reason.contains(why)),
            "{report}"
        );
    }
}

/// Two of three experts for each row, as PyTorch's `bmm` over indexed weights computes them.
fn chosen_experts(b: &mut GraphBuilder, x: ValueId, ids: ValueId, shares: ValueId) -> Result<ValueId> {
    let twice = |last: usize| -> Result<Vec<Dim>> { Ok(vec![Dim::symbol(SEQ).times(2)?, Dim::known(last)]) };
    let column = |last: usize| -> Result<Vec<Dim>> { Ok([twice(last)?, dims("1")].concat()) };
    let (gate_up, down) = (b.weight("gate_up", &[3, 4, 6]), b.weight("down", &[3, 6, 2]));
    let y = b.reshape(x, dims("seq 1 6"))?;
    let y = b.expand(y, dims("seq 2 6"))?;
    let y = b.reshape(y, column(6)?)?;
    let ids = b.reshape(ids, vec![Dim::symbol(SEQ).times(2)?])?;
    let w = b.op(Op::Take { axis: 0 }, &[gate_up, ids])?;
    let y = b.matmul(w, y)?;
    let y = b.reshape(y, twice(4)?)?;
    let y = b.op(
        Op::Gated {
            activation: cactus_ir::Activation::Silu,
            above: None,
        },
        &[y],
    )?;
    let y = b.reshape(y, column(2)?)?;
    let w = b.op(Op::Take { axis: 0 }, &[down, ids])?;
    let y = b.matmul(w, y)?;
    let y = b.reshape(y, dims("1 seq 2 6"))?;
    let shares = b.reshape(shares, dims("1 seq 2 1"))?;
    let y = b.mul(y, shares)?;
    b.op(
        Op::Reduce {
            f: ReduceFn::Sum,
            axes: vec![2],
            keepdim: false,
        },
        &[y],
    )
}

#[test]
fn fuse_experts_makes_no_copies_of_weights() {
    let g = graph(|b| {
        let x = input(b, "x", "1 seq 6");
        let logits = b.slice_last(x, 0, 3)?;
        let order = b.op(
            Op::ArgSort {
                axis: 2,
                descending: true,
            },
            &[logits],
        )?;
        let ids = b.slice_last(order, 0, 2)?;
        let shares = b.op(Op::Gather { axis: 2 }, &[logits, ids])?;
        chosen_experts(b, x, ids, shares)
    });
    check("fuse_experts", "two-of-three", &g);
}

#[test]
fn merge_linear_joins_what_is_its_own() {
    let g = graph(|b| {
        let table = b.weight("embed", &[4, 4]);
        let x = input(b, "x", "batch seq 4");
        let part = |b: &mut GraphBuilder, name: &str, n: usize| {
            let w = b.weight(&format!("attn.{name}.weight"), &[n, 4]);
            b.linear(x, w, None)
        };
        let (q, k, v) = (part(b, "q", 4)?, part(b, "k", 2)?, part(b, "v", 2)?);
        let tied = b.linear(x, table, None)?;
        let again = b.linear(q, table, None)?;
        let all = b.concat_last(&[v, k, q])?;
        let sum = b.add(tied, again)?;
        b.concat_last(&[all, sum])
    });
    check("merge_linear", "attention", &g);
}

/// What many layers read of one thing that is computed is not all kept until the last of them.
#[test]
fn merge_linear_joins_a_few_at_a_time() {
    let merged = |computed: bool| {
        let g = graph(|b| {
            let x = input(b, "x", "batch seq 4");
            let x = if computed { b.unary(UnaryFn::Exp, x)? } else { x };
            let mut y = x;
            for layer in 0..6 {
                let w = b.weight(&format!("layers.{layer}.weight"), &[4, 4]);
                let z = b.linear(x, w, None)?;
                y = b.mul(y, z)?;
            }
            Ok(y)
        });
        checked("merge_linear", "layers", &g)
    };
    let (computed, given) = (merged(true), merged(false));
    assert!(
        computed.contains("4 linears into one") && computed.contains("2 linears into one"),
        "{computed}"
    );
    assert!(given.contains("6 linears into one"), "{given}");
}

#[test]
fn dead_code_removes_what_nobody_reads() {
    let g = graph(|b| {
        let x = input(b, "x", "batch seq 4");
        let unused = b.unary(UnaryFn::Exp, x)?;
        b.mul(unused, x)?;
        b.unary(UnaryFn::Neg, x)
    });
    check("dead_code", "chain", &g);
}

#[test]
fn insert_states_continues_a_sequence() {
    let attention = |causal, window| {
        Op::Attention(cactus_ir::AttentionAttrs {
            scale: 0.5,
            causal,
            window,
            ..cactus_ir::AttentionAttrs::default()
        })
    };
    let before = graph(|b| {
        let x = input(b, "x", "batch seq 8");
        let heads = |b: &mut GraphBuilder, start: usize| {
            let y = b.slice_last(x, start, start + 4)?;
            b.reshape(y, dims("batch seq 2 2"))
        };
        let (q, k) = (heads(b, 0)?, heads(b, 4)?);
        let positions = b.iota(0, SEQ)?;
        let freq = b.vector(vec![0.7])?;
        let q = b.op(
            Op::Rope {
                scale: 1.0,
                interleaved: false,
            },
            &[q, positions, freq],
        )?;
        let y = b.op(attention(true, Some(2)), &[q, k, k])?;
        let y = b.op(attention(true, None), &[y, q, k])?;
        let y = b.reshape(y, dims("batch seq 4"))?;
        let w = b.weight("taps", &[4, 3]);
        let y = b.op(
            Op::ShortConv {
                activation: None,
                state: None,
            },
            &[y, w],
        )?;
        // A learned position, and sums that stay within one.
        let table = b.weight("positions", &[16, 4]);
        let p = b.embedding(table, positions)?;
        let y = b.add(y, p)?;
        let y = b.permute(y, &[0, 2, 1])?;
        let axes = vec![1];
        let y = b.op(
            Op::Reduce {
                f: ReduceFn::Sum,
                axes,
                keepdim: false,
            },
            &[y],
        )?;
        b.reshape(y, dims("batch seq 1"))
    });
    let (after, report) = run_pass("insert_states", &before);
    insta::assert_snapshot!("insert_states-mixers", format!("{before}\n{after}\n{report}"));

    let given = inputs(&before, 1, 7);
    let want = output(&before, &before, &given);
    let weights = cactus_testkit::source_tensors(&before, 7);
    let source = |name: &str| Ok(weights[name].clone());
    let it = Interpreter::new(&after, &source).unwrap();
    let rows = |x: &cactus_tensor::Tensor, start: usize, end: usize| {
        let op = Op::Slice {
            axis: 1,
            start: start.into(),
            end: Dim::known(end),
        };
        eval_op(&op, &[x], &Default::default()).unwrap()
    };
    for chunk in [1, 2, 7] {
        let mut states = States::new(&after).unwrap();
        for start in (0..7).step_by(chunk) {
            let end = (start + chunk).min(7);
            let part = Tensors::from([("x".into(), rows(&given["x"], start, end))]);
            assert_eq!(
                it.run(&part, &mut states).unwrap()["y"],
                rows(&want, start, end),
                "chunk {chunk} at {start}"
            );
        }
    }
}

#[test]
fn positions_choose_rows_of_a_table_and_are_counted() {
    let before = graph(|b| {
        let table = b.weight("positions", &[16, 4]);
        let (start, end) = (Dim::known(2), Dim::symbol(SEQ).add(&Dim::known(2))?);
        let rows = b.op(Op::Slice { axis: 0, start, end }, &[table])?;
        let one = b.scalar(1.0)?;
        let shape = vec![Dim::symbol(SEQ), Dim::known(1)];
        let ones = b.op(Op::Expand { shape }, &[one])?;
        let counted = b.op(Op::CumSum { axis: 0 }, &[ones])?;
        let x = input(b, "x", "batch seq 4");
        let x = b.add(x, rows)?;
        b.mul(x, counted)
    });
    let (after, report) = run_pass("positions", &before);
    assert_eq!(report.fired_count("positions"), 2, "{report}\n{after}");
    let text = after.to_string();
    let left = ["cum_sum", "slice"].iter().any(|op| text.contains(op));
    assert!(!left && text.contains("embedding"), "{text}");
    for seq in [1, 5] {
        let given = inputs(&before, 1, seq);
        let want = output(&before, &before, &given);
        assert_eq!(output(&after, &before, &given), want, "[{seq}]");
    }
}
