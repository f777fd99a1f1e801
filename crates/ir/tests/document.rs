//! What the serialized form refuses.

use cactus_ir::{AttentionAttrs, Dim, ErrorKind, Graph, Op, State, StateKind, TensorType, WeightExpr};
use cactus_tensor::DType;
use serde_json::{Value, json};

/// A graph with a weight made by an expression, an attribute, and a state.
fn graph() -> Graph {
    let ty = |shape: &[usize]| TensorType::new(DType::F32, shape.iter().map(|&n| Dim::known(n)).collect::<Vec<_>>());
    let mut g = Graph::new("decoder");
    let shape = [Dim::symbol("batch"), Dim::symbol("seq"), Dim::known(4)];
    let x = g.add_input("x", TensorType::new(DType::F32, shape));
    let expr = WeightExpr::AddScalar {
        x: Box::new(WeightExpr::source("norm")),
        value: 1.0,
    };
    let w = g.add_weight("norm", ty(&[4]), expr);
    let taps = g.add_weight("taps", ty(&[4, 3]), WeightExpr::source("taps"));
    let y = g.append("norm", Op::RmsNorm { eps: 1e-5 }, &[x, w]).unwrap();
    let state = Some("c".to_owned());
    let y = g
        .append(
            "conv",
            Op::ShortConv {
                activation: None,
                state,
            },
            &[y, taps],
        )
        .unwrap();
    g.add_output("y", y);
    let kind = StateKind::Conv { channels: 4, rows: 2 };
    let name = "c".to_owned();
    g.add_state(State { name, kind }).unwrap();
    g.verify().unwrap();
    g
}

#[test]
fn unknown_fields_are_refused_wherever_they_stand() {
    let sound: Value = serde_json::from_str(&graph().to_json()).unwrap();
    Graph::from_json(&sound.to_string()).unwrap();
    let weight = |v: &Value| v.pointer("/def/weight/add_scalar").is_some();
    let made = sound["values"].as_array().unwrap().iter().position(weight).unwrap();
    let places = [
        "".to_owned(),
        "/values/0".to_owned(),
        "/values/0/type".to_owned(),
        format!("/values/{made}/def/weight/add_scalar"),
        "/states/0".to_owned(),
        "/nodes/0".to_owned(),
        "/nodes/1".to_owned(),
        "/outputs/0".to_owned(),
    ];
    for place in places {
        let mut damaged = sound.clone();
        damaged.pointer_mut(&place).unwrap()["added_later"] = json!(1);
        let e = Graph::from_json(&damaged.to_string()).expect_err(&place);
        assert_eq!(e.kind(), ErrorKind::Format, "{place}");
        assert!(e.to_string().contains("added_later"), "{place}: {e}");
    }
}

#[test]
fn numbers_that_are_not_finite_do_not_verify() {
    for bad in [f32::NAN, f32::INFINITY] {
        let mut g = graph();
        let (id, inputs) = g.nodes().map(|(id, n)| (id, n.inputs.clone())).next().unwrap();
        g.replace(id, Op::RmsNorm { eps: bad }, &inputs).unwrap();
        assert_eq!(g.verify().unwrap_err().kind(), ErrorKind::Structure);

        let mut g = graph();
        let expr = WeightExpr::MulScalar {
            x: Box::new(WeightExpr::source("a")),
            value: bad,
        };
        let ty = TensorType::new(DType::F32, [Dim::known(1)]);
        g.add_weight("scaled", ty, expr);
        assert_eq!(g.verify().unwrap_err().kind(), ErrorKind::Structure);
    }
}

#[test]
fn ranks_beyond_the_limit_do_not_verify() {
    for (rank, sound) in [(TensorType::MAX_RANK, true), (TensorType::MAX_RANK + 1, false)] {
        let mut g = graph();
        g.add_input("wide", TensorType::new(DType::F32, vec![Dim::known(1); rank]));
        assert_eq!(g.verify().is_ok(), sound, "{rank}");
    }
}

/// What another operation has appended is read by those with the same keys and values, and after it.
#[test]
fn state_is_read_alone_where_the_same_was_appended() {
    let ty = |heads: usize| TensorType::new(DType::F32, [1.into(), Dim::symbol("seq"), heads.into(), 8.into()]);
    // Whether each of two operations only reads, and whether the second has other keys.
    let build = |reads: [bool; 2], other_keys: bool| {
        let mut g = Graph::new("decoder");
        let (q, k, v) = (
            g.add_input("q", ty(2)),
            g.add_input("k", ty(1)),
            g.add_input("v", ty(1)),
        );
        let attention = |appended: bool| {
            let attrs = json!({"scale": 1.0, "causal": true, "state": "kv", "appended": appended});
            Op::Attention(serde_json::from_value::<AttentionAttrs>(attrs).unwrap())
        };
        let x = g.append("first", attention(reads[0]), &[q, k, v]).unwrap();
        let keys = if other_keys { v } else { k };
        let y = g.append("second", attention(reads[1]), &[x, keys, v]).unwrap();
        g.add_output("y", y);
        let kind = StateKind::Kv {
            kv_heads: 1,
            head_dim: 8,
            window: None,
        };
        let name = "kv".to_owned();
        g.add_state(State { name, kind }).unwrap();
        g.verify().map_err(|e| e.to_string())
    };
    build([false, true], false).unwrap();
    assert!(build([false, false], false).unwrap_err().contains("used twice"));
    for (reads, other_keys) in [([true, true], false), ([true, false], false), ([false, true], true)] {
        let error = build(reads, other_keys).unwrap_err();
        assert!(error.contains("no operation before appends the same"), "{error}");
    }
}

#[test]
fn states_without_a_sensible_size_do_not_verify() {
    let huge = usize::MAX / 2 + 1;
    let kinds = [
        StateKind::Kv {
            kv_heads: huge,
            head_dim: 2,
            window: None,
        },
        StateKind::Conv {
            channels: huge,
            rows: 1,
        },
        StateKind::Recurrent { shape: vec![huge, 4] },
    ];
    for kind in kinds {
        let mut g = graph();
        let name = "unused".to_owned();
        g.add_state(State { name, kind }).unwrap();
        assert_eq!(g.verify().unwrap_err().kind(), ErrorKind::Structure);
    }
}
