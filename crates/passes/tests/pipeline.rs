//! The whole pipeline keeps what models compute, after every pass and over a sequence of calls.

use cactus_ir::{Graph, Op};
use cactus_passes::{ErrorKind, Options, StatePolicy, optimize, optimize_observed, pass_names};
use cactus_reference::{Error, Interpreter, States, Tensors, WeightSource, eval_op};
use cactus_tensor::Tensor;
use cactus_testkit::tiny::{Decoder, Mixer, Style};
use cactus_testkit::{Random, assert_close, source_tensors};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn get(tensors: &Tensors) -> impl WeightSource {
    |name: &str| {
        let missing = || Error::new(cactus_reference::ErrorKind::Weight, "there is no such tensor");
        tensors.get(name).cloned().ok_or_else(missing)
    }
}

fn logits(graph: &Graph, weights: &Tensors, ids: &Tensor, states: &mut States) -> Tensor {
    let it = Interpreter::new(graph, &get(weights)).unwrap();
    it.run(&Tensors::from([("input_ids".into(), ids.clone())]), states)
        .unwrap()["logits"]
        .clone()
}

fn rows(x: &Tensor, start: usize, end: usize) -> Tensor {
    let op = Op::Slice {
        axis: 1,
        start: start.into(),
        end: end.into(),
    };
    eval_op(&op, &[x], &Default::default()).unwrap()
}

fn families() -> Vec<(&'static str, Decoder)> {
    let partial = Decoder {
        rotary: 4,
        rope_scale: 1.25,
        ..Decoder::llama()
    };
    let one_kv_head = Decoder {
        kv_heads: 1,
        ..Decoder::llama()
    };
    let no_groups = Decoder {
        kv_heads: 4,
        ..Decoder::qwen2()
    };
    vec![
        ("llama", Decoder::llama()),
        ("gemma", Decoder::gemma()),
        ("qwen2", Decoder::qwen2()),
        ("lfm2", Decoder::lfm2()),
        ("partial rope", partial),
        ("one kv head", one_kv_head),
        ("no groups", no_groups),
    ]
}

fn styles() -> Vec<Style> {
    let d = Style::default();
    vec![
        d,
        Style {
            square_by_pow: true,
            positions_last: true,
            mask_by_add: true,
            ..d
        },
        Style {
            norm_by_div: true,
            scale_by_div: true,
            silu_by_sigmoid: true,
            swapped: true,
            ..d
        },
        Style {
            rope_by_halves: true,
            swapped: true,
            mask_by_add: true,
            ..d
        },
        Style {
            rope_by_halves: true,
            positions_last: true,
            ..d
        },
    ]
}

fn count(g: &Graph, is: impl Fn(&Op) -> bool) -> usize {
    g.nodes().filter(|(_, n)| is(&n.op)).count()
}

/// Runs the pipeline and compares what every stage computes with the graph given.
fn check_every_stage(what: &str, model: &Decoder, seq: usize, tolerance: f32) {
    let graph = model.build().unwrap();
    let weights = source_tensors(&graph, 11);
    let ids = Random::new(seq as u64).tokens(&[2, seq], model.vocab);
    let want = logits(&graph, &weights, &ids, &mut States::default());
    let options = Options {
        states: StatePolicy::Never,
        ..Options::default()
    };
    let mut last = graph.clone();
    let (stateless, _) = optimize_observed(&graph, &options, &mut |pass, g| {
        if *g != last {
            let got = logits(g, &weights, &ids, &mut States::default());
            assert_close(
                &got,
                &want,
                tolerance,
                &format!("{what}, {seq} positions, after {pass}"),
            );
            last = g.clone();
        }
    })
    .unwrap();
    assert!(stateless.states().is_empty());

    let (stateful, _) = optimize(&graph, &Options::default()).unwrap();
    let ids = rows_of_first(&ids, seq);
    let want = logits(&stateless, &weights, &ids, &mut States::default());
    let it = Interpreter::new(&stateful, &get(&weights)).unwrap();
    for chunk in [1, 3, seq] {
        let mut states = States::new(&stateful).unwrap();
        for start in (0..seq).step_by(chunk) {
            let end = (start + chunk).min(seq);
            let inputs = Tensors::from([("input_ids".into(), rows(&ids, start, end))]);
            let got = it.run(&inputs, &mut states).unwrap();
            assert_eq!(
                got["logits"],
                rows(&want, start, end),
                "{what}, chunk {chunk} at {start}"
            );
        }
    }
}

fn rows_of_first(ids: &Tensor, seq: usize) -> Tensor {
    Tensor::from_i64([1, seq], ids.as_i64().unwrap()[..seq].to_vec()).unwrap()
}

#[test]
fn every_pass_keeps_what_every_family_computes() {
    for (name, model) in families() {
        for style in styles() {
            let model = Decoder { style, ..model.clone() };
            check_every_stage(&format!("{name} {style:?}"), &model, 7, 1e-5);
        }
    }
}

#[test]
fn every_family_and_style_fuses_completely() {
    for (name, model) in families() {
        for style in styles() {
            let model = Decoder { style, ..model.clone() };
            let (g, report) = optimize(&model.build().unwrap(), &Options::default()).unwrap();
            let what = format!("{name} {style:?}\n{report}\n{g}");
            let attentions = model
                .layers
                .iter()
                .filter(|m| matches!(m, Mixer::Attention { .. }))
                .count();
            let convs = model.layers.len() - attentions;
            let layers = model.layers.len();
            assert_eq!(count(&g, |op| matches!(op, Op::Attention(_))), attentions, "{what}");
            assert_eq!(count(&g, |op| matches!(op, Op::ShortConv { .. })), convs, "{what}");
            // Heads that are normalized are rotated in the same operation.
            let (rope, norm_rope) = match model.qk_norm {
                true => (0, 2 * attentions),
                false => (2 * attentions, 0),
            };
            assert_eq!(count(&g, |op| matches!(op, Op::Rope { .. })), rope, "{what}");
            assert_eq!(count(&g, |op| matches!(op, Op::NormRope { .. })), norm_rope, "{what}");
            assert_eq!(count(&g, |op| matches!(op, Op::Gated { .. })), layers, "{what}");
            assert_eq!(
                count(&g, |op| matches!(op, Op::RmsNorm { .. })),
                2 * layers + 1,
                "{what}"
            );
            // Mixer in and out, gate and up, down; and the head.
            assert_eq!(count(&g, |op| matches!(op, Op::Linear)), 4 * layers + 1, "{what}");
            let left = |op: &Op| {
                matches!(
                    op,
                    Op::Permute { .. } | Op::MatMul | Op::Softmax { .. } | Op::Conv1d { .. } | Op::Expand { .. }
                ) || matches!(
                    op,
                    Op::Concat { .. } | Op::Cast { .. } | Op::Unary { .. } | Op::Where | Op::Compare { .. }
                )
            };
            assert_eq!(count(&g, left), 0, "{what}");
            assert_eq!(g.states().len(), layers, "{what}");
            assert_eq!(report.misses("fuse_attention").count(), 0, "{what}");
        }
    }
}

#[test]
fn windows_scales_and_caps_reach_the_attention() {
    let model = Decoder::gemma();
    let (g, _) = optimize(&model.build().unwrap(), &Options::default()).unwrap();
    let attrs: Vec<_> = g
        .nodes()
        .filter_map(|(_, n)| match &n.op {
            Op::Attention(a) => Some((a.causal, a.window, a.softcap, a.scale)),
            _ => None,
        })
        .collect();
    let scale = 1.0 / 8f32.sqrt();
    assert_eq!(
        attrs,
        [(true, Some(3), Some(20.0), scale), (true, None, Some(20.0), scale)]
    );
}

#[test]
fn optimized_graph_survives_its_json_form() {
    for (name, model) in families() {
        let raw = model.build().unwrap();
        let (g, _) = optimize(&raw, &Options::default()).unwrap();
        for graph in [raw, g] {
            assert_eq!(Graph::from_json(&graph.to_json()).unwrap(), graph.compacted(), "{name}");
        }
    }
}

#[test]
fn optimize_again_changes_nothing() {
    for (name, model) in families() {
        let options = Options {
            states: StatePolicy::IfPossible,
            ..Options::default()
        };
        let (once, _) = optimize(&model.build().unwrap(), &options).unwrap();
        let (twice, _) = optimize(&once, &options).unwrap();
        assert_eq!(once.to_string(), twice.to_string(), "{name}");
    }
}

#[test]
fn any_pass_may_be_disabled() {
    let model = Decoder {
        style: Style {
            positions_last: true,
            mask_by_add: true,
            ..Style::default()
        },
        ..Decoder::lfm2()
    };
    let graph = model.build().unwrap();
    let weights = source_tensors(&graph, 11);
    let ids = Random::new(1).tokens(&[1, 5], model.vocab);
    let want = logits(&graph, &weights, &ids, &mut States::default());
    for name in pass_names() {
        let options = Options {
            states: StatePolicy::IfPossible,
            ..Options::default()
        }
        .without(name);
        let (g, report) = optimize(&graph, &options).unwrap();
        let got = logits(&g, &weights, &ids, &mut States::new(&g).unwrap());
        assert_close(&got, &want, 1e-5, name);
        assert_eq!(report.fired_count(name), 0, "{name}");
    }
}

#[test]
fn unknown_pass_is_an_error_that_lists_the_known() {
    let e = optimize(
        &Decoder::llama().build().unwrap(),
        &Options::default().without("fuse_rms"),
    )
    .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Option);
    assert!(
        e.to_string().contains("`fuse_rms`") && e.to_string().contains("fuse_rms_norm"),
        "{e}"
    );
}

#[test]
fn states_that_are_required_but_impossible_are_an_error() {
    let options = Options::default().without("fuse_attention");
    let e = optimize(&Decoder::llama().build().unwrap(), &options).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::State);
    assert!(e.to_string().contains("self_attn"), "{e}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, rng_seed: RngSeed::Fixed(2), ..ProptestConfig::default() })]

    #[test]
    fn decoder_of_any_size_keeps_its_logits(
        (kv_heads, group, half_dim) in (1usize..3, 1usize..4, 1usize..5),
        (hidden, intermediate, seq) in (1usize..9, 1usize..9, 1usize..9),
        window in proptest::option::of(1usize..5),
        kernel in 1usize..5,
        (qk_norm, qkv_bias, gemma, tied) in any::<(bool, bool, bool, bool)>(),
        flags in any::<(bool, bool, bool, bool, bool, bool)>(),
        (positions_last, rope_by_halves) in any::<(bool, bool)>(),
        rotary_halves in 1usize..5,
        cap in proptest::option::of(1f32..30.0),
    ) {
        let (square_by_pow, norm_by_div, mask_by_add, scale_by_div, swapped, silu_by_sigmoid) = flags;
        let model = Decoder {
            vocab: 13,
            // One wide is a special case of broadcasting, where a vector may be seen as a number.
            hidden: hidden + 1,
            heads: kv_heads * group,
            kv_heads,
            head_dim: 2 * half_dim,
            rotary: 2 * rotary_halves.min(half_dim),
            rope_scale: 1.0,
            intermediate,
            layers: vec![Mixer::Attention { window }, Mixer::ShortConv { kernel }],
            qk_norm, qkv_bias, gemma, tied,
            softcap: cap,
            style: Style {
                square_by_pow, norm_by_div, mask_by_add, scale_by_div, swapped, silu_by_sigmoid, positions_last,
                rope_by_halves,
            },
        };
        // Norms of vectors of two elements that nearly vanish make rounding errors large.
        check_every_stage("any decoder", &model, seq, 5e-4);
    }
}
