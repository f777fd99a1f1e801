//! Every operation against values worked out by hand or by an independent formula.

use cactus_ir::{Activation, AttentionAttrs, BinaryFn, Bindings, CompareFn, Dim, Op, ReduceFn, UnaryFn};
use cactus_reference::{ErrorKind, Result, eval_op};
use cactus_tensor::{DType, Data, Tensor};
use cactus_testkit::assert_close;

fn f32s(shape: &[usize], v: &[f32]) -> Tensor {
    Tensor::from_f32(shape, v.to_vec()).unwrap()
}

fn i64s(shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::from_i64(shape, v.to_vec()).unwrap()
}

fn bools(shape: &[usize], v: &[bool]) -> Tensor {
    Tensor::new(shape, Data::Bool(v.to_vec())).unwrap()
}

fn count(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    f32s(shape, &(0..n).map(|i| i as f32).collect::<Vec<_>>())
}

fn eval(op: &Op, inputs: &[&Tensor]) -> Result<Tensor> {
    eval_op(op, inputs, &Bindings::new())
}

fn dims(shape: &[usize]) -> Vec<Dim> {
    shape.iter().map(|&d| Dim::known(d)).collect()
}

#[test]
fn experts_add_what_the_chosen_give_in_proportion() {
    // Two experts of width 1 over rows of 2: the first gates by the first element, the second by the second.
    let gate_up = f32s(&[4, 2], &[1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0]);
    let down = f32s(&[4, 1], &[1.0, 2.0, 10.0, 20.0]);
    let x = f32s(&[1, 2, 2], &[2.0, 3.0, -1.0, 4.0]);
    let (ids, shares) = (
        i64s(&[1, 2, 2], &[1, 0, 0, 1]),
        f32s(&[1, 2, 2], &[0.5, 1.0, 3.0, 0.25]),
    );
    let op = Op::Experts {
        activation: Activation::Relu,
    };
    // Row 0: expert 0 gives relu(2) * 3 = 6, expert 1 relu(3) * 5 = 15. Row 1: relu(-1) * 4 = 0 and relu(4) * 3 = 12.
    let want = [75.0 + 6.0, 150.0 + 12.0, 0.25 * 120.0, 0.25 * 240.0];
    let got = eval(&op, &[&x, &ids, &shares, &gate_up, &down]).unwrap();
    assert_eq!(got, f32s(&[1, 2, 2], &want));
    // With biases, row 0 has relu(2 + 1) * (3 - 1) = 6 and relu(3 - 3) * 5 = 0; what expert 1 gives is then its bias.
    let biases = [
        f32s(&[2, 2], &[1.0, -1.0, -3.0, 0.0]),
        f32s(&[2, 2], &[0.5, 0.0, 7.0, -7.0]),
    ];
    let got = eval(&op, &[&x, &ids, &shares, &gate_up, &down, &biases[0], &biases[1]]).unwrap();
    let want = [0.5 * 7.0 + 6.5, -3.5 + 12.0, 3.0 * 0.5 + 0.25 * 37.0, 0.25 * 53.0];
    assert_eq!(got, f32s(&[1, 2, 2], &want));
    for bad in [
        vec![&biases[0]],
        vec![&biases[0], &shares],
        vec![&biases[0], &biases[1], &biases[1]],
    ] {
        let e = eval(&op, &[&[&x, &ids, &shares, &gate_up, &down][..], &bad].concat()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Type, "{e}");
    }
    let outside = i64s(&[1, 2, 2], &[1, 0, 0, 2]);
    let e = eval(&op, &[&x, &outside, &shares, &gate_up, &down]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Value);
    // Three rows of `gate_up` are no two gated units.
    let odd = f32s(&[3, 2], &[0.0; 6]);
    let e = eval(&op, &[&x, &ids, &shares, &odd, &down]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Type);
}

#[test]
fn unary_matches_known_values() {
    let inf = f32::INFINITY;
    let cases: &[(UnaryFn, &[f32], &[f32])] = &[
        (UnaryFn::Neg, &[1.5, -2.0], &[-1.5, 2.0]),
        (UnaryFn::Abs, &[1.5, -2.0], &[1.5, 2.0]),
        (UnaryFn::Exp, &[0.0, 2.0, -inf], &[1.0, 7.389_056, 0.0]),
        (UnaryFn::Log, &[1.0, 3.0], &[0.0, 1.098_612_3]),
        (UnaryFn::Sqrt, &[4.0, 5.0], &[2.0, 2.236_068]),
        (UnaryFn::Rsqrt, &[4.0, 5.0], &[0.5, 0.447_213_6]),
        (UnaryFn::Sin, &[0.0, 1.0], &[0.0, 0.841_471]),
        (UnaryFn::Cos, &[0.0, 1.0], &[1.0, 0.540_302_3]),
        (UnaryFn::Tanh, &[0.0, 1.0], &[0.0, 0.761_594_2]),
        (UnaryFn::Erf, &[0.0, 1.0], &[0.0, 0.842_700_8]),
        (UnaryFn::Sigmoid, &[0.0, 1.0, -inf], &[0.5, 0.731_058_6, 0.0]),
        (UnaryFn::Relu, &[1.0, -1.0], &[1.0, 0.0]),
        (UnaryFn::Silu, &[0.0, 1.0, -2.0], &[0.0, 0.731_058_6, -0.238_405_84]),
        // Reference values of torch.nn.functional.gelu.
        (UnaryFn::GeluErf, &[1.0, -1.0], &[0.841_344_8, -0.158_655_26]),
        (UnaryFn::GeluTanh, &[1.0, -1.0], &[0.841_192, -0.158_808]),
    ];
    for (f, x, want) in cases {
        let got = eval(&Op::Unary { f: *f }, &[&f32s(&[x.len()], x)]).unwrap();
        assert_close(&got, &f32s(&[x.len()], want), 1e-6, &format!("{f:?}"));
    }
    let not = eval(&Op::Unary { f: UnaryFn::Not }, &[&bools(&[2], &[true, false])]).unwrap();
    assert_eq!(not, bools(&[2], &[false, true]));
}

#[test]
fn binary_broadcasts_and_follows_its_definition() {
    let a = f32s(&[2, 1], &[2.0, -3.0]);
    let b = f32s(&[2], &[2.0, 4.0]);
    let cases: &[(BinaryFn, [f32; 4])] = &[
        (BinaryFn::Add, [4.0, 6.0, -1.0, 1.0]),
        (BinaryFn::Sub, [0.0, -2.0, -5.0, -7.0]),
        (BinaryFn::Mul, [4.0, 8.0, -6.0, -12.0]),
        (BinaryFn::Div, [1.0, 0.5, -1.5, -0.75]),
        (BinaryFn::Pow, [4.0, 16.0, 9.0, 81.0]),
        (BinaryFn::Max, [2.0, 4.0, 2.0, 4.0]),
        (BinaryFn::Min, [2.0, 2.0, -3.0, -3.0]),
    ];
    for (f, want) in cases {
        let got = eval(&Op::Binary { f: *f }, &[&a, &b]).unwrap();
        assert_eq!(got, f32s(&[2, 2], want), "{f:?}");
    }
    let ints: &[(BinaryFn, i64)] = &[
        (BinaryFn::Add, 9),
        (BinaryFn::Sub, 5),
        (BinaryFn::Mul, 14),
        (BinaryFn::Div, 3),
        (BinaryFn::Pow, 49),
        (BinaryFn::Max, 7),
        (BinaryFn::Min, 2),
    ];
    for (f, want) in ints {
        let got = eval(&Op::Binary { f: *f }, &[&i64s(&[], &[7]), &i64s(&[], &[2])]).unwrap();
        assert_eq!(got, i64s(&[], &[*want]), "{f:?}");
    }
    let (p, q) = (
        bools(&[4], &[true, true, false, false]),
        bools(&[4], &[true, false, true, false]),
    );
    let and = eval(&Op::Binary { f: BinaryFn::And }, &[&p, &q]).unwrap();
    assert_eq!(and, bools(&[4], &[true, false, false, false]));
    let or = eval(&Op::Binary { f: BinaryFn::Or }, &[&p, &q]).unwrap();
    assert_eq!(or, bools(&[4], &[true, true, true, false]));
}

#[test]
fn compare_where_and_cast_follow_their_definition() {
    let (a, b) = (f32s(&[3], &[1.0, 2.0, f32::NAN]), f32s(&[], &[2.0]));
    let cases: &[(CompareFn, [bool; 3])] = &[
        (CompareFn::Eq, [false, true, false]),
        (CompareFn::Ne, [true, false, true]),
        (CompareFn::Lt, [true, false, false]),
        (CompareFn::Le, [true, true, false]),
        (CompareFn::Gt, [false, false, false]),
        (CompareFn::Ge, [false, true, false]),
    ];
    for (f, want) in cases {
        let got = eval(&Op::Compare { f: *f }, &[&a, &b]).unwrap();
        assert_eq!(got, bools(&[3], want), "{f:?}");
    }
    let cond = bools(&[2, 1], &[true, false]);
    let got = eval(&Op::Where, &[&cond, &f32s(&[2], &[1.0, 2.0]), &f32s(&[], &[9.0])]).unwrap();
    assert_eq!(got, f32s(&[2, 2], &[1.0, 2.0, 9.0, 9.0]));

    let x = f32s(&[3], &[-1.7, 0.0, 300.4]);
    let casts: &[(DType, Tensor)] = &[
        (DType::I64, i64s(&[3], &[-1, 0, 300])),
        (DType::I8, i64s(&[3], &[-1, 0, 127])),
        (DType::Bool, bools(&[3], &[true, false, true])),
        (DType::BF16, f32s(&[3], &[-1.703_125, 0.0, 300.0])),
        (DType::F16, f32s(&[3], &[-1.700_195_3, 0.0, 300.5])),
    ];
    for (dtype, want) in casts {
        let got = eval(&Op::Cast { dtype: *dtype }, &[&x]).unwrap();
        assert_eq!(got, *want, "{dtype}");
    }
    let back = eval(&Op::Cast { dtype: DType::F32 }, &[&i64s(&[1], &[7])]).unwrap();
    assert_eq!(back, f32s(&[1], &[7.0]));
}

#[test]
fn reduce_covers_any_axes() {
    let x = count(&[2, 3, 2]);
    let cases: &[(ReduceFn, &[usize], bool, Tensor)] = &[
        (ReduceFn::Sum, &[1], false, f32s(&[2, 2], &[6.0, 9.0, 24.0, 27.0])),
        (
            ReduceFn::Mean,
            &[2],
            true,
            f32s(&[2, 3, 1], &[0.5, 2.5, 4.5, 6.5, 8.5, 10.5]),
        ),
        (ReduceFn::Max, &[0, 2], false, f32s(&[3], &[7.0, 9.0, 11.0])),
        (ReduceFn::Min, &[0, 1, 2], true, f32s(&[1, 1, 1], &[0.0])),
    ];
    for (f, axes, keepdim, want) in cases {
        let op = Op::Reduce {
            f: *f,
            axes: axes.to_vec(),
            keepdim: *keepdim,
        };
        assert_eq!(eval(&op, &[&x]).unwrap(), *want, "{f:?} {axes:?}");
    }
}

#[test]
fn softmax_sums_to_one_and_takes_minus_infinity() {
    let x = f32s(&[2, 2], &[0.0, f32::NEG_INFINITY, 2f32.ln(), 0.0]);
    let rows = eval(&Op::Softmax { axis: 1 }, &[&x]).unwrap();
    assert_close(&rows, &f32s(&[2, 2], &[1.0, 0.0, 2.0 / 3.0, 1.0 / 3.0]), 1e-7, "rows");
    let columns = eval(&Op::Softmax { axis: 0 }, &[&x]).unwrap();
    assert_close(
        &columns,
        &f32s(&[2, 2], &[1.0 / 3.0, 0.0, 2.0 / 3.0, 1.0]),
        1e-7,
        "columns",
    );
    let none = eval(&Op::Softmax { axis: 0 }, &[&f32s(&[1], &[f32::NEG_INFINITY])]).unwrap();
    assert!(none.as_f32().unwrap()[0].is_nan());
}

#[test]
fn shape_operations_move_the_right_elements() {
    let x = count(&[2, 3]);
    let permuted = eval(&Op::Permute { perm: vec![1, 0] }, &[&x]).unwrap();
    assert_eq!(permuted, f32s(&[3, 2], &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]));
    let reshaped = eval(&Op::Reshape { shape: dims(&[3, 2]) }, &[&x]).unwrap();
    assert_eq!(reshaped, count(&[3, 2]));
    let cut = Op::Slice {
        axis: 1,
        start: 1.into(),
        end: 3.into(),
    };
    let cut = eval(&cut, &[&x]).unwrap();
    assert_eq!(cut, f32s(&[2, 2], &[1.0, 2.0, 4.0, 5.0]));
    let joined = eval(&Op::Concat { axis: 1 }, &[&cut, &x]).unwrap();
    let want = [1.0, 2.0, 0.0, 1.0, 2.0, 4.0, 5.0, 3.0, 4.0, 5.0];
    assert_eq!(joined, f32s(&[2, 5], &want));
    let wide = eval(
        &Op::Expand {
            shape: dims(&[2, 2, 2]),
        },
        &[&f32s(&[2, 1], &[1.0, 2.0])],
    );
    assert_eq!(
        wide.unwrap(),
        f32s(&[2, 2, 2], &[1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0])
    );
    let iota = Op::Iota {
        start: "past".into(),
        len: "seq".into(),
    };
    let bindings = Bindings::from([("past".into(), 5), ("seq".into(), 3)]);
    assert_eq!(eval_op(&iota, &[], &bindings).unwrap(), i64s(&[3], &[5, 6, 7]));
}

#[test]
fn embedding_and_products_match_hand_computed_values() {
    let table = count(&[3, 2]);
    let rows = eval(&Op::Embedding, &[&table, &i64s(&[1, 2], &[2, 0])]).unwrap();
    assert_eq!(rows, f32s(&[1, 2, 2], &[4.0, 5.0, 0.0, 1.0]));

    let x = f32s(&[1, 2], &[1.0, -2.0]);
    let bias = f32s(&[3], &[10.0, 20.0, 30.0]);
    let y = eval(&Op::Linear, &[&x, &table]).unwrap();
    assert_eq!(y, f32s(&[1, 3], &[-2.0, -4.0, -6.0]));
    let y = eval(&Op::Linear, &[&x, &table, &bias]).unwrap();
    assert_eq!(y, f32s(&[1, 3], &[8.0, 16.0, 24.0]));

    // Leading axes [2, 1] and [2] broadcast to [2, 2].
    let a = f32s(&[2, 1, 1, 2], &[1.0, 2.0, 3.0, 4.0]);
    let b = f32s(&[2, 2, 1], &[1.0, 1.0, 1.0, -1.0]);
    let y = eval(&Op::MatMul, &[&a, &b]).unwrap();
    assert_eq!(y, f32s(&[2, 2, 1, 1], &[3.0, -1.0, 7.0, -1.0]));
}

#[test]
fn conv1d_pads_groups_and_adds_the_bias() {
    let x = f32s(&[1, 2, 3], &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
    let depthwise = Op::Conv1d {
        groups: 2,
        pad_left: 1,
        pad_right: 0,
    };
    let w = f32s(&[2, 1, 2], &[1.0, 2.0, 3.0, 4.0]);
    let y = eval(&depthwise, &[&x, &w]).unwrap();
    assert_eq!(y, f32s(&[1, 2, 3], &[2.0, 5.0, 8.0, 40.0, 110.0, 180.0]));
    let full = Op::Conv1d {
        groups: 1,
        pad_left: 0,
        pad_right: 1,
    };
    let w = f32s(&[1, 2, 2], &[1.0, 0.0, 0.0, 1.0]);
    let y = eval(&full, &[&x, &w, &f32s(&[1], &[0.5])]).unwrap();
    assert_eq!(y, f32s(&[1, 1, 3], &[21.5, 32.5, 3.5]));
}

#[test]
fn norms_match_their_formulae() {
    let x = f32s(&[2, 2], &[3.0, 4.0, 0.0, 2.0]);
    let w = f32s(&[2], &[1.0, 2.0]);
    let root = 12.5f32.sqrt();
    let y = eval(&Op::RmsNorm { eps: 0.0 }, &[&x, &w]).unwrap();
    let want = [3.0 / root, 8.0 / root, 0.0, 2.0 * 2f32.sqrt()];
    assert_close(&y, &f32s(&[2, 2], &want), 1e-6, "rms");
    let y = eval(&Op::RmsNorm { eps: 2.0 }, &[&x, &w]).unwrap();
    assert_close(
        &y,
        &f32s(&[2, 2], &[3.0 / 14.5f32.sqrt(), 8.0 / 14.5f32.sqrt(), 0.0, 2.0]),
        1e-6,
        "eps",
    );
    let y = eval(&Op::LayerNorm { eps: 0.0 }, &[&x, &w]).unwrap();
    assert_close(&y, &f32s(&[2, 2], &[-1.0, 2.0, -1.0, 2.0]), 1e-6, "layer");
    let bias = f32s(&[2], &[0.5, -0.5]);
    let y = eval(&Op::LayerNorm { eps: 0.0 }, &[&x, &w, &bias]).unwrap();
    assert_close(&y, &f32s(&[2, 2], &[-0.5, 1.5, -0.5, 1.5]), 1e-6, "bias");
}

#[test]
fn rope_turns_pairs_and_leaves_the_rest() {
    // One head of 6, rotary 4: pairs (0, 2) and (1, 3); elements 4 and 5 stay.
    let x = f32s(
        &[1, 2, 1, 6],
        &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    );
    let freq = f32s(&[2], &[1.0, 0.5]);
    let y = eval(
        &Op::Rope {
            scale: 1.0,
            interleaved: false,
        },
        &[&x, &i64s(&[2], &[0, 3]), &freq],
    )
    .unwrap();
    let (c, s) = (3f32.cos(), 3f32.sin());
    let (d, t) = (1.5f32.cos(), 1.5f32.sin());
    let turned = [c - 3.0 * s, 2.0 * d - 4.0 * t, 3.0 * c + s, 4.0 * d + 2.0 * t, 5.0, 6.0];
    let want = [&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..], &turned].concat();
    assert_close(&y, &f32s(&[1, 2, 1, 6], &want), 1e-6, "rope");
    let y = eval(
        &Op::Rope {
            scale: 2.0,
            interleaved: false,
        },
        &[&x, &i64s(&[2], &[0, 0]), &freq],
    )
    .unwrap();
    assert_eq!(y.as_f32().unwrap()[..6], [2.0, 4.0, 6.0, 8.0, 5.0, 6.0]);
    // Pairs (0, 1) and (2, 3).
    let neighbors = Op::Rope {
        scale: 1.0,
        interleaved: true,
    };
    let y = eval(&neighbors, &[&x, &i64s(&[2], &[0, 3]), &freq]).unwrap();
    let turned = [c - 2.0 * s, 2.0 * c + s, 3.0 * d - 4.0 * t, 4.0 * d + 3.0 * t, 5.0, 6.0];
    let want = [&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..], &turned].concat();
    assert_close(&y, &f32s(&[1, 2, 1, 6], &want), 1e-6, "rope of neighbors");
    // The first pair by the first axis, the second by the other: the same positions as above, each where it counts.
    let halves = Op::Rope {
        scale: 1.0,
        interleaved: false,
    };
    let of_axes = f32s(&[2, 2], &[1.0, 0.0, 0.0, 0.5]);
    let y = eval(&halves, &[&x, &i64s(&[2, 2], &[0, 0, 3, 3]), &of_axes]).unwrap();
    let (c, s) = (3f32.cos(), 3f32.sin());
    let turned = [c - 3.0 * s, 2.0 * d - 4.0 * t, 3.0 * c + s, 4.0 * d + 2.0 * t, 5.0, 6.0];
    let want = [&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..], &turned].concat();
    assert_close(&y, &f32s(&[1, 2, 1, 6], &want), 1e-6, "rope of axes");
    let y = eval(&halves, &[&x, &i64s(&[2, 2], &[0, 9, 3, 0]), &of_axes]).unwrap();
    let turned = [c - 3.0 * s, 2.0, 3.0 * c + s, 4.0];
    assert_close(
        &f32s(&[4], &y.as_f32().unwrap()[6..10]),
        &f32s(&[4], &turned),
        1e-6,
        "the first axis alone",
    );
}

#[test]
fn attention_masks_groups_and_caps() {
    let attrs = |causal, window, softcap| {
        Op::Attention(AttentionAttrs {
            scale: 1.0,
            causal,
            window,
            softcap,
            ..AttentionAttrs::default()
        })
    };
    // Two query heads on one KV head of width 1; keys 0, so that every visible key weighs the same.
    let q = f32s(&[1, 3, 2, 1], &[1.0; 6]);
    let k = f32s(&[1, 3, 1, 1], &[0.0; 3]);
    let v = f32s(&[1, 3, 1, 1], &[3.0, 6.0, 9.0]);
    let cases: &[(Op, [f32; 3])] = &[
        (attrs(false, None, None), [6.0, 6.0, 6.0]),
        (attrs(true, None, None), [3.0, 4.5, 6.0]),
        (attrs(true, Some(2), None), [3.0, 4.5, 7.5]),
        (attrs(true, Some(1), None), [3.0, 6.0, 9.0]),
    ];
    for (op, want) in cases {
        let got = eval(op, &[&q, &k, &v]).unwrap();
        let want: Vec<f32> = want.iter().flat_map(|&w| [w, w]).collect();
        assert_close(&got, &f32s(&[1, 3, 2, 1], &want), 1e-6, &format!("{op:?}"));
    }
    // Chunks of two; sinks of which one head's weighs as much as two keys; a slope that halves the weight with each step.
    let sinks = f32s(&[2], &[2f32.ln(), f32::NEG_INFINITY]);
    let slopes = f32s(&[2], &[2f32.ln(), 0.0]);
    let base = AttentionAttrs {
        scale: 1.0,
        causal: true,
        ..AttentionAttrs::default()
    };
    let chunk = AttentionAttrs {
        chunk: Some(2),
        ..base.clone()
    };
    let with_sinks = AttentionAttrs {
        sinks: true,
        ..base.clone()
    };
    let both = AttentionAttrs {
        sinks: true,
        slopes: true,
        ..base
    };
    let cases: [(AttentionAttrs, &[&Tensor], [f32; 6]); 3] = [
        (chunk, &[&q, &k, &v], [3.0, 3.0, 4.5, 4.5, 9.0, 9.0]),
        (with_sinks, &[&q, &k, &v, &sinks], [1.0, 3.0, 2.25, 4.5, 3.6, 6.0]),
        (
            both,
            &[&q, &k, &v, &sinks, &slopes],
            [1.0, 3.0, 7.5 / 3.5, 4.5, 12.75 / 3.75, 6.0],
        ),
    ];
    for (attrs, operands, want) in cases {
        let got = eval(&Op::Attention(attrs.clone()), operands).unwrap();
        assert_close(&got, &f32s(&[1, 3, 2, 1], &want), 1e-6, &format!("{attrs:?}"));
    }
    // One later position; two texts, of which none sees the other.
    let ahead = AttentionAttrs {
        scale: 1.0,
        window: Some(1),
        ahead: Some(2),
        ..AttentionAttrs::default()
    };
    let texts = AttentionAttrs {
        scale: 1.0,
        texts: true,
        ..AttentionAttrs::default()
    };
    let causal = AttentionAttrs {
        causal: true,
        ..texts.clone()
    };
    let numbers = i64s(&[3], &[4, 7, 7]);
    let cases: [(AttentionAttrs, &[&Tensor], [f32; 3]); 3] = [
        (ahead, &[&q, &k, &v], [4.5, 7.5, 9.0]),
        (texts.clone(), &[&q, &k, &v, &numbers], [3.0, 7.5, 7.5]),
        (causal, &[&q, &k, &v, &numbers], [3.0, 6.0, 7.5]),
    ];
    for (attrs, operands, want) in cases {
        let got = eval(&Op::Attention(attrs.clone()), operands).unwrap();
        let want: Vec<f32> = want.iter().flat_map(|&w| [w, w]).collect();
        assert_close(&got, &f32s(&[1, 3, 2, 1], &want), 1e-6, &format!("{attrs:?}"));
    }
    let fall = i64s(&[3], &[1, 1, 0]);
    let refused = eval(&Op::Attention(texts), &[&q, &k, &v, &fall]).unwrap_err();
    assert!(refused.to_string().contains("fall"), "{refused}");
    // The second and third position see each other, the window looks back from each alone.
    let until = |window| AttentionAttrs {
        scale: 1.0,
        causal: true,
        until: true,
        window,
        ..AttentionAttrs::default()
    };
    let ends = i64s(&[3], &[0, 2, 2]);
    for (window, want) in [(None, [3.0, 6.0, 6.0]), (Some(1), [3.0, 7.5, 9.0])] {
        let got = eval(&Op::Attention(until(window)), &[&q, &k, &v, &ends]).unwrap();
        let want: Vec<f32> = want.iter().flat_map(|&w| [w, w]).collect();
        assert_close(&got, &f32s(&[1, 3, 2, 1], &want), 1e-6, &format!("{window:?}"));
    }
    for (ends, what) in [
        ([0, 0, 2], "position 0"),
        ([2, 1, 2], "position 1"),
        ([0, 1, 3], "position 3"),
    ] {
        let refused = eval(&Op::Attention(until(None)), &[&q, &k, &v, &i64s(&[3], &ends)]).unwrap_err();
        assert!(refused.to_string().contains(what), "{refused}");
    }
    // Softmax of [0, cap * tanh(ln(3) / cap)] with values [0, 1].
    let k = f32s(&[1, 2, 1, 1], &[0.0, 3f32.ln()]);
    let v = f32s(&[1, 2, 1, 1], &[0.0, 1.0]);
    let q = f32s(&[1, 1, 1, 1], &[1.0]);
    let plain = eval(&attrs(false, None, None), &[&q, &k, &v]).unwrap();
    assert_close(&plain, &f32s(&[1, 1, 1, 1], &[0.75]), 1e-6, "plain");
    let capped = eval(&attrs(false, None, Some(0.5)), &[&q, &k, &v]).unwrap();
    let e = (0.5 * (3f64.ln() / 0.5).tanh()).exp();
    assert_close(&capped, &f32s(&[1, 1, 1, 1], &[(e / (1.0 + e)) as f32]), 1e-6, "capped");
}

fn gated(activation: Activation) -> Op {
    Op::Gated {
        activation,
        above: None,
    }
}

/// One operation and the same in several, which round alike.
#[test]
fn operations_with_a_gate_are_what_they_are_made_of() {
    let x = f32s(&[1, 2, 3], &[0.5, -1.0, 2.0, 3.0, 0.25, -4.0]);
    let gate = f32s(&[1, 2, 3], &[1.0, -2.0, 0.5, 0.0, 3.0, -0.75]);
    let weight = f32s(&[3], &[1.0, -0.5, 2.0]);
    let unary = |f, x: &Tensor| eval(&Op::Unary { f }, &[x]).unwrap();
    let binary = |f, a: &Tensor, b: &Tensor| eval(&Op::Binary { f }, &[a, b]).unwrap();
    let activation = Activation::Silu;
    let norm_gate = Op::NormGate { eps: 1e-5, activation };
    let normed = eval(&Op::RmsNorm { eps: 1e-5 }, &[&x, &weight]).unwrap();
    let want = binary(BinaryFn::Mul, &normed, &unary(UnaryFn::Silu, &gate));
    assert_eq!(eval(&norm_gate, &[&x, &gate, &weight]).unwrap(), want);
    let conv = |activation| Op::ShortConv {
        activation,
        state: None,
    };
    let taps = f32s(&[3, 2], &[1.0, 2.0, 3.0, 4.0, -1.0, 0.5]);
    let want = unary(UnaryFn::Silu, &eval(&conv(None), &[&x, &taps]).unwrap());
    assert_eq!(eval(&conv(Some(activation)), &[&x, &taps]).unwrap(), want);
    // Of two values as of their halves.
    let both = eval(&Op::Concat { axis: 2 }, &[&gate, &x]).unwrap();
    let of_halves = eval(&gated(activation), &[&both]).unwrap();
    assert_eq!(eval(&gated(activation), &[&gate, &x]).unwrap(), of_halves);
}

#[test]
fn gated_of_few_keeps_what_is_far_above_the_mean() {
    // The mean is 1, the standard deviation 2.
    let gate = f32s(&[1, 4], &[-1.0, -1.0, 3.0, 3.0]);
    let up = f32s(&[1, 4], &[5.0, 6.0, 7.0, 8.0]);
    for (above, want) in [
        (0.5, [0.0, 0.0, 7.0, 8.0]),
        (2.0, [0.0; 4]),
        (-1.5, [5.0, 6.0, 35.0, 40.0]),
    ] {
        let few = Op::Gated {
            activation: Activation::Relu,
            above: Some(above),
        };
        assert_eq!(eval(&few, &[&gate, &up]).unwrap(), f32s(&[1, 4], &want), "{above}");
        let both = eval(&Op::Concat { axis: 1 }, &[&gate, &up]).unwrap();
        assert_eq!(eval(&few, &[&both]).unwrap(), f32s(&[1, 4], &want), "{above}");
    }
}

#[test]
fn gated_delta_of_steps_makes_decays_and_rates() {
    let x = f32s(&[1, 2, 1, 2], &[0.5, -1.0, 2.0, 3.0]);
    let (step, rate) = (f32s(&[1, 2, 1], &[0.3, -2.0]), f32s(&[1, 2, 1], &[1.5, -0.5]));
    let (speed, bias) = (f32s(&[1], &[-0.7]), f32s(&[1], &[0.1]));
    let unary = |f, x: &Tensor| eval(&Op::Unary { f }, &[x]).unwrap();
    let binary = |f, a: &Tensor, b: &Tensor| eval(&Op::Binary { f }, &[a, b]).unwrap();
    let decay = unary(UnaryFn::Softplus, &binary(BinaryFn::Add, &step, &bias));
    let decay = unary(UnaryFn::Exp, &binary(BinaryFn::Mul, &decay, &speed));
    let rule = |steps| Op::GatedDelta { steps, state: None };
    let want = eval(&rule(false), &[&x, &x, &x, &decay, &unary(UnaryFn::Sigmoid, &rate)]).unwrap();
    let operands = [&x, &x, &x, &step, &rate, &speed, &bias];
    assert_eq!(eval(&rule(true), &operands).unwrap(), want);
    // Neither may be missing, and what has decays takes none.
    assert_eq!(eval(&rule(true), &operands[..5]).unwrap_err().kind(), ErrorKind::Type);
    assert_eq!(eval(&rule(false), &operands).unwrap_err().kind(), ErrorKind::Type);
}

#[test]
fn alternating_updates_match_hand_computed_values() {
    // Two streams of one position, whose routes are so far out that their tanh is 1 and -1.
    let streams = f32s(&[1, 1, 2, 2], &[1.0, 2.0, 10.0, 20.0]);
    let routes = f32s(&[1, 1, 2], &[40.0, -40.0]);
    // Factors 1 - 0.5, 0 - 1, 2 - 0, 0 - 0.
    let factors = f32s(&[4, 2], &[1.0, 0.5, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0]);
    let want = f32s(&[1, 1, 2, 2], &[1.0 + 0.5 - 10.0, 2.0 + 1.0 - 20.0, 12.0, 24.0]);
    assert_eq!(eval(&Op::AltupPredict, &[&streams, &routes, &factors]).unwrap(), want);
    // Factors 1 and -0.5 of what the second stream changed by.
    let factors = f32s(&[2, 2], &[1.0, 0.0, 0.5, 1.0]);
    let x = f32s(&[1, 1, 2], &[14.0, 12.0]);
    let correct = |active| Op::AltupCorrect { active };
    let want = f32s(&[1, 1, 2, 2], &[1.0 + 8.0, 2.0 - 16.0, 10.0 + 2.0, 20.0 - 4.0]);
    assert_eq!(eval(&correct(1), &[&streams, &x, &routes, &factors]).unwrap(), want);
    let add = |start, end| Op::SliceAdd { axis: 2, start, end };
    let want = f32s(&[1, 1, 2, 2], &[1.0, 2.0, 24.0, 32.0]);
    let y = x.clone().reshaped([1, 1, 1, 2]).unwrap();
    assert_eq!(eval(&add(1, 2), &[&streams, &y]).unwrap(), want);
    assert_eq!(
        eval(&add(1, 1), &[&streams, &f32s(&[2], &[1.0, 1.0])]).unwrap(),
        streams
    );
    let misfits: [(Op, Vec<&Tensor>); 6] = [
        (Op::AltupPredict, vec![&streams, &routes, &factors]),
        (correct(2), vec![&streams, &x, &routes, &factors]),
        (correct(1), vec![&streams, &routes, &x, &streams]),
        (add(1, 3), vec![&streams, &y]),
        (add(2, 1), vec![&streams, &y]),
        (add(0, 1), vec![&x, &streams]),
    ];
    for (op, operands) in misfits {
        assert_eq!(eval(&op, &operands).unwrap_err().kind(), ErrorKind::Type, "{op:?}");
    }
}

#[test]
fn layer_norm_has_weights_of_heads() {
    let x = f32s(&[1, 2, 2, 2], &[1.0, 3.0, -1.0, 5.0, 4.0, 0.0, 2.0, 2.5]);
    let (weight, bias) = (
        f32s(&[2, 2], &[1.0, 2.0, 3.0, 4.0]),
        f32s(&[2, 2], &[0.5, 0.0, -1.0, 1.0]),
    );
    let op = Op::LayerNorm { eps: 1e-5 };
    let all = eval(&op, &[&x, &weight, &bias]).unwrap();
    for head in 0..2 {
        let part = |x: &Tensor, axis: usize| {
            let (start, end) = (Dim::known(head), Dim::known(head + 1));
            eval(&Op::Slice { axis, start, end }, &[x]).unwrap()
        };
        let own = [&weight, &bias].map(|w| part(w, 0).reshaped([2]).unwrap());
        let want = eval(&op, &[&part(&x, 2), &own[0], &own[1]]).unwrap();
        assert_eq!(part(&all, 2), want, "{head}");
    }
    let other = f32s(&[2], &[1.0, 1.0]);
    assert_eq!(eval(&op, &[&x, &weight, &other]).unwrap_err().kind(), ErrorKind::Type);
}

#[test]
fn gates_that_do_not_fit_are_type_errors() {
    let (x, other, weight) = (count(&[1, 2, 4]), count(&[1, 2, 2]), count(&[4]));
    let (activation, state, taps) = (Activation::Silu, None, count(&[4, 3]));
    let clamped = Activation::ClampedSwish;
    let conv = Op::ShortConv {
        activation: Some(clamped),
        state,
    };
    let cases: [(Op, Vec<&Tensor>); 4] = [
        (gated(activation), vec![&x, &other]),
        (Op::NormGate { eps: 1e-5, activation }, vec![&x, &other, &weight]),
        (
            Op::NormGate {
                eps: 1e-5,
                activation: clamped,
            },
            vec![&x, &x, &weight],
        ),
        (conv, vec![&x, &taps]),
    ];
    for (op, operands) in cases {
        assert_eq!(eval(&op, &operands).unwrap_err().kind(), ErrorKind::Type, "{op:?}");
    }
}

#[test]
fn gated_and_short_conv_match_hand_computed_values() {
    let x = f32s(&[1, 4], &[1.0, -1.0, 2.0, 3.0]);
    let cases = [
        (Activation::Relu, [2.0, 0.0]),
        (Activation::Silu, [2.0 * 0.731_058_6, -3.0 * 0.268_941_43]),
        (Activation::GeluErf, [2.0 * 0.841_344_8, -3.0 * 0.158_655_26]),
        (Activation::GeluTanh, [2.0 * 0.841_192, -3.0 * 0.158_808]),
        (Activation::ClampedSwish, [3.0 * 0.845_795_8, -4.0 * 0.154_204_2]),
    ];
    for (activation, want) in cases {
        let y = eval(&gated(activation), &[&x]).unwrap();
        assert_close(&y, &f32s(&[1, 2], &want), 1e-6, &format!("{activation:?}"));
    }
    // Both halves are cut: at 7, and at -7 and 7.
    let x = f32s(&[1, 6], &[9.0, 9.0, -90.0, 8.0, -8.0, 2.0]);
    let activation = Activation::ClampedSwish;
    let y = eval(&gated(activation), &[&x]).unwrap();
    let seven = 7.0 * 0.999_993_3;
    assert_close(&y, &f32s(&[1, 3], &[8.0 * seven, -6.0 * seven, 0.0]), 1e-5, "cut");
    let x = f32s(&[1, 3, 2], &[1.0, 10.0, 2.0, 20.0, 3.0, 30.0]);
    let w = f32s(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let op = Op::ShortConv {
        activation: None,
        state: None,
    };
    let y = eval(&op, &[&x, &w]).unwrap();
    assert_eq!(y, f32s(&[1, 3, 2], &[2.0, 40.0, 5.0, 110.0, 8.0, 180.0]));
    let y = eval(&op, &[&x, &w, &f32s(&[2], &[0.5, -0.5])]).unwrap();
    assert_eq!(y, f32s(&[1, 3, 2], &[2.5, 39.5, 5.5, 109.5, 8.5, 179.5]));
}

#[test]
fn misfits_are_errors_of_the_right_kind() {
    let x = count(&[2, 3]);
    let slice = |start: usize, end: usize| Op::Slice {
        axis: 1,
        start: start.into(),
        end: end.into(),
    };
    let conv = Op::Conv1d {
        groups: 1,
        pad_left: 0,
        pad_right: 0,
    };
    let cases: &[(Op, Vec<&Tensor>, ErrorKind)] = &[
        (Op::Unary { f: UnaryFn::Exp }, vec![], ErrorKind::Type),
        (Op::MatMul, vec![&x, &x], ErrorKind::Type),
        (slice(2, 5), vec![&x], ErrorKind::Type),
        (Op::Permute { perm: vec![0, 0] }, vec![&x], ErrorKind::Type),
        (
            Op::Reshape {
                shape: vec!["seq".into()],
            },
            vec![&x],
            ErrorKind::Type,
        ),
        (
            Op::ShortConv {
                activation: None,
                state: Some("c".into()),
            },
            vec![&x],
            ErrorKind::State,
        ),
    ];
    for (op, inputs, kind) in cases {
        assert_eq!(eval(op, inputs).unwrap_err().kind(), *kind, "{op:?}");
    }
    let outside = eval(&Op::Embedding, &[&x, &i64s(&[1], &[2])]).unwrap_err();
    assert_eq!(outside.kind(), ErrorKind::Value);
    let negative = eval(&Op::Embedding, &[&x, &i64s(&[1], &[-1])]).unwrap_err();
    assert_eq!(negative.kind(), ErrorKind::Value);
    let by_zero = Op::Binary { f: BinaryFn::Div };
    let by_zero = eval(&by_zero, &[&i64s(&[], &[1]), &i64s(&[], &[0])]).unwrap_err();
    assert_eq!(by_zero.kind(), ErrorKind::Value);
    let long_kernel = eval(&conv, &[&count(&[1, 1, 2]), &count(&[1, 1, 5])]).unwrap_err();
    assert_eq!(long_kernel.kind(), ErrorKind::Type);
}
