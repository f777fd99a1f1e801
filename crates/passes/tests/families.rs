//! Every golden model, as its family builds it, fuses completely and computes the same call by call.

use cactus_ir::{Graph, Op, State, StateKind, ValueId, WeightExpr};
use cactus_models::{ComponentDef, ModelDef};
use cactus_passes::{Bits, Options, Policy, StatePolicy, Storage, choose_storage, optimize};
use cactus_reference::{Error, ErrorKind, Interpreter, States, Tensors, WeightSource, eval_op, run};
use cactus_tensor::{Data, Tensor};
use cactus_testkit::{Random, assert_close, source_tensors};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn definitions(folder: &str) -> Vec<(String, ModelDef)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(folder);
    let mut models: Vec<(String, ModelDef)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        // A detector of speech is a single file of weights, which says itself what it is.
        .filter(|path| !path.join("silero_vad_16k.safetensors").exists())
        .map(|path| {
            let config = fs::read(path.join("config.json")).unwrap();
            let def = cactus_models::build(&serde_json::from_slice(&config).unwrap()).unwrap();
            (path.file_name().unwrap().to_string_lossy().into_owned(), def)
        })
        .collect();
    models.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(models.len() >= 2, "the golden models are missing");
    models
}

fn golden() -> Vec<(String, Graph)> {
    let all = definitions("models").into_iter();
    all.map(|(name, def)| (name, def.decoder().clone())).collect()
}

fn get(tensors: &Tensors) -> impl WeightSource {
    |name: &str| {
        let missing = || Error::new(ErrorKind::Weight, "there is no such tensor");
        tensors.get(name).cloned().ok_or_else(missing)
    }
}

/// Whether a weight is that of all experts of a layer.
fn is_of_experts(expr: &WeightExpr) -> bool {
    matches!(expr, WeightExpr::Source(name) if name.contains(".experts.") && !name.ends_with("_bias"))
}

fn rows(x: &Tensor, start: usize, end: usize) -> Tensor {
    let op = Op::Slice {
        axis: 1,
        start: start.into(),
        end: end.into(),
    };
    eval_op(&op, &[x], &Default::default()).unwrap()
}

#[test]
fn golden_model_fuses_completely() {
    for (name, raw) in golden() {
        let (g, report) = optimize(&raw, &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        for (_, node) in g.nodes() {
            // What the runtime has a kernel or a view for.
            let known = matches!(
                node.op,
                Op::Iota { .. }
                    | Op::Embedding
                    | Op::Linear
                    | Op::Slice { .. }
                    | Op::Reshape { .. }
                    | Op::RmsNorm { .. }
                    | Op::Rope { .. }
                    | Op::NormRope { .. }
                    | Op::NormAdd { .. }
                    | Op::AltupPredict
                    | Op::AltupCorrect { .. }
                    | Op::SliceAdd { .. }
                    | Op::Attention(_)
                    | Op::ShortConv { .. }
                    | Op::Gated { .. }
                    | Op::RoutedExperts { .. }
                    | Op::Unary { .. }
                    | Op::Binary { .. }
            );
            // Streams are made as large as each other by functions.
            let of_streams = name == "gemma3n_text"
                && matches!(
                    node.op,
                    Op::Reduce { .. } | Op::Concat { .. } | Op::Compare { .. } | Op::Where
                );
            assert!(known || of_streams, "{name}: {} in\n{report}\n{g}", node.op.mnemonic());
        }
        let routed = g
            .nodes()
            .filter(|(_, n)| matches!(n.op, Op::RoutedExperts { .. }))
            .count();
        let sparse = raw.weights().iter().filter(|(_, expr)| is_of_experts(expr)).count() / 2;
        assert_eq!(routed, sparse, "{name}:\n{report}\n{g}");
        let mixers = g
            .nodes()
            .filter(|(_, n)| matches!(n.op, Op::Attention(_) | Op::ShortConv { .. }))
            .collect::<Vec<_>>();
        let changes = mixers.iter().filter(|(_, n)| n.op.changes_state()).count();
        assert_eq!(g.states().len(), changes, "{name}");
        // Layers that share keys and values with earlier ones keep none.
        let shared = match name.as_str() {
            "gemma3n_text" => 3,
            "gemma4_text" => 2,
            _ => 0,
        };
        assert_eq!(mixers.len() - changes, shared, "{name}:\n{g}");
    }
}

#[test]
fn golden_model_computes_the_same_call_by_call() {
    for (name, raw) in golden() {
        let weights = source_tensors(&raw, 5);
        let ids = Random::new(9).tokens(&[1, 6], 20);
        let call = |ids: Tensor| Tensors::from([("input_ids".into(), ids)]);
        let want = run(&raw, &call(ids.clone()), &get(&weights), &mut States::default()).unwrap();
        let (g, _) = optimize(&raw, &Options::default()).unwrap();
        let it = Interpreter::new(&g, &get(&weights)).unwrap();
        let mut states = States::new(&g).unwrap();
        for (start, end) in [(0, 3), (3, 4), (4, 6)] {
            let got = it.run(&call(rows(&ids, start, end)), &mut states).unwrap();
            assert_close(&got["logits"], &rows(&want["logits"], start, end), 1e-5, &name);
        }
    }
}

/// A prompt with two runs of rows among its tokens, each of which sees itself where the model lets it.
#[test]
fn models_that_see_compute_the_same_call_by_call() {
    const SPANS: [(usize, usize); 2] = [(1, 6), (7, 9)];
    let (mut both_ways, mut in_grids) = (0, 0);
    for (name, def) in definitions("seeing") {
        let raw = def.decoder();
        let (weights, mut random) = (source_tensors(raw, 5), Random::new(9));
        let width = raw.ty(raw.input("media_rows").unwrap()).last_known().unwrap();
        let (ids, rows_of) = (random.tokens(&[1, 11], 20), random.tensor(&[1, 11, width], 1.0));
        // Wherever they are: causality is a matter of the sequence.
        let on_axes = random.tokens(&[11, 3], 300);
        let call = |start: usize, end: usize| {
            let span = |at: usize| SPANS.iter().find(|span| (span.0..span.1).contains(&at));
            let mask: Vec<bool> = (start..end).map(|at| span(at).is_some()).collect();
            let until: Vec<i64> = (start..end)
                .map(|at| span(at).map_or(at, |span| span.1 - 1) as i64)
                .collect();
            let mut inputs = Tensors::from([
                ("input_ids".into(), rows(&ids, start, end)),
                ("media_rows".into(), rows(&rows_of, start, end)),
                (
                    "media_mask".into(),
                    Tensor::new([1, end - start, 1], Data::Bool(mask)).unwrap(),
                ),
            ]);
            if raw.input("media_until").is_some() {
                inputs.insert("media_until".into(), Tensor::from_i64([end - start], until).unwrap());
            }
            if raw.input("media_positions").is_some() {
                let numbers = on_axes.as_i64().unwrap()[start * 3..end * 3].to_vec();
                let positions = Tensor::from_i64([end - start, 3], numbers).unwrap();
                inputs.insert("media_positions".into(), positions);
            }
            inputs
        };
        let want = run(raw, &call(0, 11), &get(&weights), &mut States::default()).unwrap();
        let (g, report) = optimize(raw, &Options::default()).unwrap();
        let see_ahead = g
            .nodes()
            .filter(|(_, n)| matches!(&n.op, Op::Attention(a) if a.until))
            .count();
        // Large models of Gemma 4 let them do so in layers with a window alone.
        let windows_alone = matches!(name.as_str(), "gemma4_moe" | "gemma4_unified");
        let is_windowed = |s: &State| matches!(s.kind, StateKind::Kv { window: Some(_), .. });
        let expected = match raw.input("media_until") {
            Some(_) => g.states().iter().filter(|s| !windows_alone || is_windowed(s)).count(),
            None => 0,
        };
        assert_eq!(see_ahead, expected, "{name}: {report}");
        both_ways += usize::from(see_ahead > 0);
        if let Some(positions) = raw.input("media_positions") {
            assert_eq!(raw.ty(positions).shape.len(), 2, "{name}");
            let of_axes = |inputs: &[ValueId]| inputs.contains(&g.input("media_positions").unwrap());
            let turns = |op: &Op| matches!(op, Op::Rope { .. } | Op::NormRope { .. });
            let turned = g.nodes().filter(|(_, n)| turns(&n.op) && of_axes(&n.inputs));
            let attention = g.nodes().filter(|(_, n)| matches!(n.op, Op::Attention(_)));
            assert_eq!(turned.count(), 2 * attention.count(), "{name}: {report}\n{g}");
            in_grids += 1;
        }
        // A state that is corrected at each position by what it holds makes roundings larger.
        let corrects = g.nodes().any(|(_, n)| matches!(n.op, Op::GatedDelta { .. }));
        let near = if corrects { 5e-5 } else { 1e-5 };
        let it = Interpreter::new(&g, &get(&weights)).unwrap();
        let mut states = States::new(&g).unwrap();
        for (start, end) in [(0, 6), (6, 7), (7, 10), (10, 11)] {
            let got = it.run(&call(start, end), &mut states).unwrap();
            assert_close(&got["logits"], &rows(&want["logits"], start, end), near, &name);
        }
        // As one function again.
        let whole = run(
            &g.of_whole_sequences().unwrap(),
            &call(0, 11),
            &get(&weights),
            &mut States::default(),
        )
        .unwrap();
        assert_close(&whole["logits"], &want["logits"], near, &name);
    }
    assert!(both_ways > 0, "no golden model has pictures that see themselves");
    assert!(in_grids > 0, "no golden model has pictures in grids");
}

#[test]
fn storage_follows_what_reads_a_weight() {
    for (name, raw) in golden() {
        let (g, _) = optimize(&raw, &Options::default()).unwrap();
        for (weight, choice) in choose_storage(&g, &Policy::uniform(Bits::Eight)) {
            let is_matrix = weight.contains("proj") || weight.contains("embed_tokens") || weight.contains("lm_head");
            let is_matrix =
                (is_matrix || weight.contains(".w")) && !weight.ends_with("bias") && !weight.contains("norm");
            let is_matrix = is_matrix || weight.ends_with(".gate.weight");
            let is_matrix = is_matrix && !weight.contains("conv.conv");
            assert_eq!(
                choice.storage != Storage::Plain,
                is_matrix,
                "{name}: {weight} {choice:?}"
            );
        }
    }
}

/// Every operation of a component of a model that hears, once each, with its number.
fn counted(g: &Graph) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (_, node) in g.nodes() {
        *counts.entry(node.op.mnemonic()).or_default() += 1;
    }
    counts
}

fn moonshine_fuses_completely(name: &str, def: &ModelDef, function: &Options) {
    let [encoder, decoder, _alignment] = &def.components[..] else {
        panic!("{name} has {} components", def.components.len());
    };
    let (g, _) = optimize(&encoder.graph, function).unwrap();
    let found = counted(&g);
    let layers = found["attention"];
    let want = [
        ("conv", 3),
        // Two of the group norm, whose mean is that of all channels and positions.
        ("add", 2 * layers + 2),
        ("gelu_erf", layers + 2),
        ("layer_norm", 2 * layers + 1),
        // Queries, keys and values, output, and the two of the feed-forward layer.
        ("linear", 4 * layers),
        ("rope", 2 * layers),
        ("reduce_mean", 2),
        ("rsqrt", 1),
    ];
    for (op, n) in want {
        assert_eq!(found[op], n, "{name}: {op} in\n{g}");
    }
    let left = ["softmax", "matmul", "cos", "concat"];
    assert!(!found.keys().any(|op| left.contains(&op.as_str())), "{g}");

    moonshine_decoder_fuses_completely(name, def, decoder);
}

fn moonshine_streaming_fuses_completely(name: &str, def: &ModelDef, function: &Options) {
    let [encoder, decoder, _alignment, blocks] = &def.components[..] else {
        panic!("{name} has {} components", def.components.len());
    };
    // One more where the decoder has another width.
    let other = usize::from(name.ends_with("wide"));
    for component in [encoder, blocks] {
        let (g, _) = optimize(&component.graph, function).unwrap();
        let found = counted(&g);
        let layers = found["attention"];
        let want = [
            ("conv", 2),
            ("silu", 2),
            ("layer_norm", 2 * layers + 1),
            // The same products, of the same weights.
            ("linear", 4 * layers + 1 + other),
            ("take", 1),
        ];
        for (op, n) in want {
            assert_eq!(found[op], n, "{name}: {op} in\n{g}");
        }
        let left = ["softmax", "matmul"];
        assert!(!found.keys().any(|op| left.contains(&op.as_str())), "{g}");
    }
    moonshine_decoder_fuses_completely(name, def, decoder);
}

fn moonshine_decoder_fuses_completely(name: &str, def: &ModelDef, decoder: &ComponentDef) {
    let (g, report) = optimize(&decoder.graph, &Options::default()).unwrap();
    let (found, layers) = (counted(&g), def.layers);
    let causal = g.nodes().filter(|(_, n)| matches!(&n.op, Op::Attention(a) if a.causal));
    assert_eq!(
        (causal.count(), found["attention"], found["rope"], g.states().len()),
        (layers, 2 * layers, 2 * layers, layers)
    );
    // Keys and values of all layers, of what the encoder gave, are one product.
    assert_eq!(found["linear"], 6 * layers + 2, "{name}:\n{report}\n{g}");
}

fn parakeet_fuses_completely(name: &str, def: &ModelDef, function: &Options) {
    let halvings = def.positions.as_ref().unwrap().frames.ilog2() as usize;
    let (g, report) = optimize(&def.components[0].graph, function).unwrap();
    let (found, layers) = (counted(&g), def.layers);
    let want = [
        ("attention", layers),
        ("layer_norm", 5 * layers),
        // Queries by distance, with the distances.
        ("matmul", layers),
        ("conv", halvings + layers),
        // Two feed-forward layers, one of queries, keys and values, output, and the convolutions of one tap; distances of all
        // layers, the convolutions of one tap before, the layers before and behind.
        ("linear", 8 * layers + halvings + 2),
    ];
    for (op, n) in want {
        assert_eq!(found.get(op).copied(), Some(n), "{name}: {op} in\n{report}\n{g}");
    }
    let left = ["softmax", "rsqrt", "reduce_mean"];
    assert!(!found.keys().any(|op| left.contains(&op.as_str())), "{g}");
}

#[test]
fn golden_speech_model_fuses_completely() {
    let function = Options {
        states: StatePolicy::Never,
        ..Options::default()
    };
    for (name, def) in definitions("speech") {
        match def.family {
            "moonshine" => {
                moonshine_fuses_completely(&name, &def, &function);
                continue;
            }
            "moonshine_streaming" => {
                moonshine_streaming_fuses_completely(&name, &def, &function);
                continue;
            }
            _ => {}
        }
        if def.positions.is_some() {
            parakeet_fuses_completely(&name, &def, &function);
            continue;
        }
        let [encoder, decoder, alignment] = &def.components[..] else {
            panic!("{name} has {} components", def.components.len());
        };
        let (g, _) = optimize(&encoder.graph, &function).unwrap();
        let found = counted(&g);
        let layers = found["attention"];
        let want = [
            ("conv1d", 1),
            ("conv", 1),
            // One for the positions.
            ("add", 2 * layers + 1),
            ("gelu_erf", layers + 2),
            ("layer_norm", 2 * layers + 1),
            // Queries with values, keys, output, and the two of the feed-forward layer.
            ("linear", 5 * layers),
            ("mul", layers),
        ];
        for (op, n) in want {
            assert_eq!(found[op], n, "{name}: {op} in\n{g}");
        }
        assert!(
            !found
                .keys()
                .any(|op| ["softmax", "matmul", "mean", "rsqrt"].contains(&op.as_str())),
            "{g}"
        );

        let (g, report) = optimize(&decoder.graph, &Options::default()).unwrap();
        let found = counted(&g);
        let layers = def.layers;
        let causal = g.nodes().filter(|(_, n)| matches!(&n.op, Op::Attention(a) if a.causal));
        assert_eq!(
            (causal.count(), found["attention"], g.states().len()),
            (layers, 2 * layers, layers)
        );
        // Keys of all layers, and values of all layers, of what the encoder gave are one product each.
        assert_eq!(found["linear"], 7 * layers + 3, "{name}:\n{report}\n{g}");

        // Of the last layer, cross attention is read and not used.
        let (g, report) = optimize(&alignment.graph, &function).unwrap();
        let found = counted(&g);
        let heads: usize = g
            .outputs()
            .iter()
            .map(|(_, v)| g.value(*v).ty.shape[1].as_known().unwrap())
            .sum();
        assert_eq!(found["softmax"], heads, "{name}:\n{report}\n{g}");
        assert_eq!(
            found.get("attention").copied().unwrap_or(0),
            2 * layers - 1,
            "{name}:\n{report}\n{g}"
        );
    }
}

#[test]
fn golden_speech_model_computes_the_same_call_by_call() {
    let all = definitions("speech").into_iter();
    for (name, def) in all.filter(|(_, def)| def.components.iter().any(|c| c.continues)) {
        let raw = def.decoder();
        let weights = source_tensors(raw, 5);
        let ids = Random::new(9).tokens(&[1, 6], 20);
        let states = Random::new(3).tensor(&[1, 7, def.hidden_size], 1.0);
        let call = |ids: Tensor| {
            Tensors::from([
                ("decoder_input_ids".into(), ids),
                ("encoder_hidden_states".into(), states.clone()),
            ])
        };
        let want = run(raw, &call(ids.clone()), &get(&weights), &mut States::default()).unwrap();
        let (g, _) = optimize(raw, &Options::default()).unwrap();
        let it = Interpreter::new(&g, &get(&weights)).unwrap();
        let mut held = States::new(&g).unwrap();
        for (start, end) in [(0, 3), (3, 4), (4, 6)] {
            let got = it.run(&call(rows(&ids, start, end)), &mut held).unwrap();
            assert_close(&got["logits"], &rows(&want["logits"], start, end), 1e-5, &name);
        }
    }
}

#[test]
fn models_of_texts_have_attention_within_texts_and_compute_the_same() {
    let mut tested = 0;
    for (name, def) in definitions("embedding") {
        let of_texts = |c: &&ComponentDef| c.graph.input("starts").is_some();
        let Some(component) = def.components.iter().find(of_texts) else {
            // A language model before it is told to make vectors.
            continue;
        };
        let function = Options {
            states: StatePolicy::Never,
            ..Options::default()
        };
        tested += 1;
        let (g, report) = optimize(&component.graph, &function).unwrap();
        let within = g
            .nodes()
            .filter(|(_, n)| matches!(&n.op, Op::Attention(a) if a.texts))
            .count();
        let others = counted(&g);
        // Convolutions look where texts end; routers choose by shares.
        let (layers, left): (usize, &[&str]) = match (def.family, &name[..]) {
            ("lfm2", _) => (1, &["where"]),
            (_, "nomic_bert_moe") => (def.layers, &["softmax"]),
            _ => (def.layers, &[]),
        };
        assert_eq!(within, layers, "{name}: {report}\n{g}");
        let found = ["compare", "softmax", "where"]
            .into_iter()
            .filter(|op| others.contains_key(*op));
        assert!(found.eq(left.iter().copied()), "{name}: a mask is left in {others:?}");
        let weights = source_tensors(&component.graph, 5);
        let ids = Random::new(9).tokens(&[1, 9], 20);
        let mut inputs = Tensors::from([
            ("input_ids".into(), ids),
            ("starts".into(), Tensor::from_i64([3], vec![0, 4, 5]).unwrap()),
        ]);
        if component.graph.input("token_types").is_some() {
            inputs.insert("token_types".into(), Random::new(3).tokens(&[1, 9], 2));
        }
        let want = run(&component.graph, &inputs, &get(&weights), &mut States::default()).unwrap();
        let got = run(&g, &inputs, &get(&weights), &mut States::default()).unwrap();
        for (output, want) in &want {
            assert_close(&got[output], want, 1e-5, &name);
        }
    }
    assert!(tested >= 3, "{tested} models of texts");
}
