//! Whole graphs: symbols, weights, states, errors.

use cactus_ir::{AttentionAttrs, Dim, Graph, GraphBuilder, Op, State, StateKind, TensorType, WeightExpr};
use cactus_reference::{Error, ErrorKind, Interpreter, Result, States, Tensors, eval_op, eval_weight_expr, run};
use cactus_tensor::{DType, Tensor};
use cactus_testkit::{Random, assert_close, source_tensors, tiny};

fn source(tensors: &Tensors) -> impl Fn(&str) -> Result<Tensor> {
    |name: &str| {
        tensors
            .get(name)
            .cloned()
            .ok_or_else(|| Error::new(ErrorKind::Weight, "there is no such tensor"))
    }
}

fn hidden(width: usize) -> TensorType {
    TensorType::new(
        DType::F32,
        [Dim::symbol("batch"), Dim::symbol("seq"), Dim::known(width)],
    )
}

/// Rope on queries and keys, attention and a short convolution; with states, positions start at `past`.
fn mixer(stateful: bool, window: Option<usize>) -> Graph {
    let mut b = GraphBuilder::new("mixer");
    let x = b.input("x", hidden(12));
    let start = if stateful { Dim::symbol("past") } else { 0.into() };
    let y = b
        .scope("layers.0", |b| {
            let positions = b.iota(start, "seq")?;
            let freq = b.vector(vec![1.0, 0.3])?;
            let heads = |n: usize| vec![Dim::symbol("batch"), Dim::symbol("seq"), n.into(), 4.into()];
            let mut part = |from: usize, n: usize| {
                let y = b.slice_last(x, from * 4, (from + n) * 4)?;
                b.reshape(y, heads(n))
            };
            let (q, k, v) = (part(0, 2)?, part(2, 1)?, part(1, 1)?);
            let q = b.op(
                Op::Rope {
                    scale: 1.0,
                    interleaved: false,
                },
                &[q, positions, freq],
            )?;
            let k = b.op(
                Op::Rope {
                    scale: 1.0,
                    interleaved: false,
                },
                &[k, positions, freq],
            )?;
            let attention = Op::Attention(AttentionAttrs {
                scale: 0.5,
                causal: true,
                window,
                state: stateful.then(|| "kv".into()),
                ..AttentionAttrs::default()
            });
            let y = b.op(attention, &[q, k, v])?;
            let y = b.reshape(y, hidden(8).shape)?;
            let w = b.weight("conv", &[8, 3]);
            let state = stateful.then(|| "conv".into());
            let conv = Op::ShortConv {
                activation: None,
                state,
            };
            b.op(conv, &[y, w])
        })
        .unwrap();
    b.output("y", y);
    let mut g = b.graph().clone();
    if stateful {
        let kv = StateKind::Kv {
            kv_heads: 1,
            head_dim: 4,
            window,
        };
        let conv = StateKind::Conv { channels: 8, rows: 2 };
        for (name, kind) in [("kv", kv), ("conv", conv)] {
            let name = name.to_owned();
            g.add_state(State { name, kind }).unwrap();
        }
    }
    g.verify().unwrap();
    g
}

fn slice_rows(x: &Tensor, start: usize, end: usize) -> Tensor {
    let op = Op::Slice {
        axis: 1,
        start: start.into(),
        end: end.into(),
    };
    eval_op(&op, &[x], &Default::default()).unwrap()
}

#[test]
fn stateful_run_in_chunks_equals_the_whole_stateless_run() {
    let mut random = Random::new(7);
    let weights = Tensors::from([("conv".into(), random.tensor(&[8, 3], 1.0))]);
    let x = random.tensor(&[1, 9, 12], 1.0);
    for window in [None, Some(1), Some(4)] {
        let whole = mixer(false, window);
        let inputs = Tensors::from([("x".into(), x.clone())]);
        let want = run(&whole, &inputs, &source(&weights), &mut States::default()).unwrap();
        let graph = mixer(true, window);
        let stateful = Interpreter::new(&graph, &source(&weights)).unwrap();
        for chunk in [1, 2, 4, 9] {
            let mut states = States::new(&graph).unwrap();
            let mut parts = Vec::new();
            for start in (0..9).step_by(chunk) {
                assert_eq!(states.past(), start);
                let part = slice_rows(&x, start, (start + chunk).min(9));
                let inputs = Tensors::from([("x".into(), part)]);
                parts.push(stateful.run(&inputs, &mut states).unwrap()["y"].clone());
            }
            let joined = eval_op(
                &Op::Concat { axis: 1 },
                &parts.iter().collect::<Vec<_>>(),
                &Default::default(),
            )
            .unwrap();
            assert_eq!(joined, want["y"], "window {window:?}, chunk {chunk}");
        }
    }
}

#[test]
fn states_stay_as_they_were_after_an_error() {
    let mut random = Random::new(7);
    let weights = Tensors::from([("conv".into(), random.tensor(&[8, 3], 1.0))]);
    let graph = mixer(true, None);
    let it = Interpreter::new(&graph, &source(&weights)).unwrap();
    let mut states = States::new(&graph).unwrap();
    let inputs = |shape: &[usize]| Tensors::from([("x".into(), Random::new(1).tensor(shape, 1.0))]);
    it.run(&inputs(&[1, 3, 12]), &mut states).unwrap();
    let before = states.clone();
    let two = it.run(&inputs(&[2, 1, 12]), &mut states).unwrap_err();
    assert_eq!(two.kind(), ErrorKind::State);
    assert_eq!(two.place(), "layers.0/attention");
    assert_eq!(states, before);
    // States of a graph that has none of these names.
    let foreign = it.run(&inputs(&[1, 1, 12]), &mut States::default()).unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::State);
}

#[test]
fn inputs_that_do_not_fit_are_errors_that_say_so() {
    let mut b = GraphBuilder::new("g");
    let a = b.input("a", hidden(2));
    let c = b.input("c", hidden(2));
    let y = b.add(a, c).unwrap();
    b.output("y", y);
    let g = b.finish().unwrap();
    let none = |_: &str| -> Result<Tensor> { Err(Error::new(ErrorKind::Weight, "no weights")) };
    let zeros = |shape: &[usize]| Random::new(0).tensor(shape, 0.0);
    let good = zeros(&[1, 3, 2]);
    let ids = Random::new(0).tokens(&[1, 3, 2], 4);
    let cases: &[(&[(&str, &Tensor)], &str)] = &[
        (&[("a", &good)], "input `c` is missing"),
        (&[("a", &good), ("c", &good), ("d", &good)], "no input `d`"),
        (
            &[("a", &good), ("c", &zeros(&[1, 4, 2]))],
            "input `c`: declared f32[batch, seq, 2], here [1, 3, 2]",
        ),
        (&[("a", &zeros(&[3, 2])), ("c", &good)], "input `a`: declared"),
        (&[("a", &ids), ("c", &good)], "found i64[1, 3, 2]"),
    ];
    for (inputs, want) in cases {
        let inputs = inputs.iter().map(|(n, t)| ((*n).to_owned(), (*t).clone())).collect();
        let e = run(&g, &inputs, &none, &mut States::default()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Input, "{e}");
        assert!(e.to_string().contains(want), "{e}");
    }
}

#[test]
fn weight_expressions_change_source_tensors() {
    let tensors = Tensors::from([
        ("a".into(), Tensor::from_f32([1, 2], vec![1.0, 2.0]).unwrap()),
        ("b".into(), Tensor::from_f32([1, 2], vec![3.0, 4.0]).unwrap()),
    ]);
    let get = source(&tensors);
    let [a, b] = ["a", "b"].map(|name| move || Box::new(WeightExpr::source(name)));
    let cases = [
        (WeightExpr::AddScalar { x: a(), value: 1.0 }, vec![1, 2], vec![2.0, 3.0]),
        (WeightExpr::MulScalar { x: a(), value: 3.0 }, vec![1, 2], vec![3.0, 6.0]),
        (WeightExpr::Reshape { x: a(), shape: vec![2] }, vec![2], vec![1.0, 2.0]),
        (WeightExpr::Add { x: a(), y: b() }, vec![1, 2], vec![4.0, 6.0]),
        (WeightExpr::Mul { x: a(), y: b() }, vec![1, 2], vec![3.0, 8.0]),
        (
            WeightExpr::Rsqrt {
                x: Box::new(WeightExpr::AddScalar {
                    x: b(),
                    value: -3.0 / 4.0,
                }),
            },
            vec![1, 2],
            vec![2.0 / 3.0, 1.0 / 3.25f32.sqrt()],
        ),
        (
            WeightExpr::Permute {
                x: a(),
                perm: vec![1, 0],
            },
            vec![2, 1],
            vec![1.0, 2.0],
        ),
        (
            WeightExpr::Concat {
                axis: 0,
                parts: vec![*a(), WeightExpr::source("b")],
            },
            vec![2, 2],
            vec![1.0, 2.0, 3.0, 4.0],
        ),
    ];
    for (expr, shape, values) in cases {
        let got = eval_weight_expr(&expr, &get).unwrap();
        assert_eq!(got, Tensor::from_f32(shape, values).unwrap(), "{expr:?}");
    }
    let missing = eval_weight_expr(&WeightExpr::source("c"), &get).unwrap_err();
    assert_eq!(missing.to_string(), "in c: there is no such tensor");
    let column = Box::new(WeightExpr::Reshape {
        x: a(),
        shape: vec![2, 1],
    });
    let larger = eval_weight_expr(&WeightExpr::Mul { x: a(), y: column }, &get).unwrap_err();
    assert!(larger.to_string().contains("does not broadcast"), "{larger}");
    let misfit = WeightExpr::Reshape { x: a(), shape: vec![3] };
    assert_eq!(eval_weight_expr(&misfit, &get).unwrap_err().kind(), ErrorKind::Weight);
}

#[test]
fn weight_of_another_shape_than_declared_is_an_error() {
    let g = mixer(false, None);
    let tensors = Tensors::from([("conv".into(), Random::new(0).tensor(&[8, 4], 1.0))]);
    let e = Interpreter::new(&g, &source(&tensors)).unwrap_err();
    assert_eq!((e.kind(), e.place()), (ErrorKind::Weight, "conv"));
    assert!(Interpreter::from_stored(&g, &source(&Tensors::new())).is_err());
}

#[test]
fn tiny_decoders_are_causal() {
    let models = [
        ("llama", tiny::Decoder::llama()),
        ("gemma", tiny::Decoder::gemma()),
        ("qwen2", tiny::Decoder::qwen2()),
        ("lfm2", tiny::Decoder::lfm2()),
    ];
    for (name, model) in models {
        let graph = model.build().unwrap();
        let weights = source_tensors(&graph, 3);
        let it = Interpreter::new(&graph, &source(&weights)).unwrap();
        let ids = Random::new(5).tokens(&[2, 6], model.vocab);
        let logits = |ids: &Tensor| {
            let inputs = Tensors::from([("input_ids".into(), ids.clone())]);
            it.run(&inputs, &mut States::default()).unwrap()["logits"].clone()
        };
        let whole = logits(&ids);
        assert_eq!(whole.shape(), [2, 6, model.vocab]);
        let prefix = logits(&slice_rows(&ids, 0, 4));
        assert_close(&slice_rows(&whole, 0, 4), &prefix, 1e-6, name);
        let values = whole.as_f32().unwrap();
        assert!(values.iter().all(|v| v.is_finite()), "{name}");
        assert!(values.iter().any(|v| v.abs() > 0.1), "{name}");
    }
}
