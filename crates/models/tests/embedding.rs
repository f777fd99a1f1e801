//! Models that make vectors and scores of texts, against what sentence-transformers computed from the same tiny folders
//! (`golden/embedding_models.py`).

mod support;

use cactus_ir::Graph;
use cactus_models::{ComponentDef, ModelDef};
use cactus_reference::{Error, ErrorKind, Interpreter, States, Tensors};
use cactus_tensor::Tensor;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use support::{json as read_json, read};

fn folder(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/embedding")
        .join(case)
}

/// The configuration with the modules behind the transformer, as the front end hands it over.
fn config(folder: &Path) -> Value {
    let mut config = read_json(&folder.join("config.json"));
    let Ok(list) = fs::read(folder.join("modules.json")) else {
        return config;
    };
    let list: Vec<Value> = serde_json::from_slice(&list).unwrap();
    let modules: Vec<Value> = list[1..]
        .iter()
        .map(|entry| {
            let path = entry["path"].as_str().unwrap();
            let about = folder.join(path).join("config.json");
            let mut module = if about.exists() { read_json(&about) } else { json!({}) };
            module["kind"] = entry["type"].as_str().unwrap().rsplit('.').next().into();
            module["path"] = path.into();
            module
        })
        .collect();
    config["text_modules"] = modules.into();
    let about = folder.join("config_sentence_transformers.json");
    let about = if about.exists() { read_json(&about) } else { json!({}) };
    if about["model_type"] == "ColBERT" {
        config["text_token_vectors"] = true.into();
        let unseen = about["do_query_expansion"] == true && about["attend_to_expansion_tokens"] == false;
        config["text_expansion_unseen"] = unseen.into();
    }
    config
}

struct Case {
    def: ModelDef,
    weights: BTreeMap<String, Tensor>,
    expected: Value,
}

fn open(case: &str) -> Case {
    open_with(case, &|_| ())
}

/// The case by another configuration.
fn open_with(case: &str, change: &dyn Fn(&mut Value)) -> Case {
    let folder = folder(case);
    let stored = read(&folder.join("model.safetensors"));
    let mut config = config(&folder);
    change(&mut config);
    if case == "nomic_bert_apart" {
        config["qkv_apart"] = true.into();
    }
    let def = cactus_models::build(&config).unwrap();
    // As the front end shows them: without the name of the model within, but for decoders with it.
    let prefix: &[&str] = match def.family {
        "modernbert" => &["model."],
        "embedding_gemma2" => &["language_model."],
        _ => &["bert.", "roberta."],
    };
    let decoder = ["qwen3", "gemma3_text", "lfm2"].contains(&def.family);
    let mut weights = BTreeMap::new();
    for (name, tensor) in stored {
        let name = if case == "nomic_bert_apart" {
            makers_name(&name)
        } else {
            name
        };
        let own = prefix.iter().find_map(|p| name.strip_prefix(p)).unwrap_or(&name);
        let own = match decoder && !own.starts_with("model.") {
            true => format!("model.{own}"),
            false => own.to_owned(),
        };
        weights.insert(own, tensor);
    }
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.join("model.safetensors").exists() {
            let at = path.file_name().unwrap().to_string_lossy().into_owned();
            let own = read(&path.join("model.safetensors")).into_iter();
            weights.extend(own.map(|(name, tensor)| (format!("{at}.{name}"), tensor)));
        }
    }
    let stray = def.unread(weights.keys().map(String::as_str));
    assert!(stray.is_empty(), "{case}: the graph leaves {stray:?}");
    Case {
        def,
        weights,
        expected: read_json(&folder.join("expected.json")),
    }
}

/// Of what transformers has in memory of Nomic BERT.
fn makers_name(name: &str) -> String {
    [
        ("layers.", "encoder.layers."),
        ("embeddings.LayerNorm", "emb_ln"),
        ("self_attn.o_proj", "attn.out_proj"),
        ("self_attn", "attn"),
        ("up_proj", "fc11"),
        ("gate_proj", "fc12"),
        ("down_proj", "fc2"),
        ("post_attention_layernorm", "norm1"),
        ("post_mlp_layernorm", "norm2"),
    ]
    .iter()
    .fold(name.to_owned(), |name, (new, old)| name.replace(new, old))
}

fn ids(value: &Value) -> Vec<i64> {
    let list = value.as_array().unwrap();
    list.iter().map(|v| v.as_i64().unwrap()).collect()
}

impl Case {
    /// What the component gives of texts one behind the other, and their types where it wants them.
    fn run(&self, texts: &[Vec<i64>], types: Option<&[Vec<i64>]>) -> Vec<f32> {
        self.run_component(&self.def.components[0], texts, types, None)
    }

    /// The same of any component, with which tokens are seen.
    fn run_component(
        &self,
        component: &ComponentDef,
        texts: &[Vec<i64>],
        types: Option<&[Vec<i64>]>,
        seen: Option<&[i64]>,
    ) -> Vec<f32> {
        let mut starts = Vec::new();
        let mut rows = 0;
        for text in texts {
            starts.push(rows as i64);
            rows += text.len();
        }
        let joined = |texts: &[Vec<i64>]| Tensor::from_i64([1, rows], texts.concat()).unwrap();
        let starts = Tensor::from_i64([texts.len()], starts).unwrap();
        let types = types.map(|types| ("token_types", joined(types)));
        let seen = seen.map(|seen| ("seen", Tensor::from_i64([rows], seen.to_vec()).unwrap()));
        let inputs = [("input_ids", joined(texts)), ("starts", starts)];
        self.run_graph(&component.graph, inputs.into_iter().chain(types).chain(seen))
    }

    fn run_graph(&self, graph: &Graph, inputs: impl IntoIterator<Item = (&'static str, Tensor)>) -> Vec<f32> {
        let source = |name: &str| -> cactus_reference::Result<Tensor> {
            let missing = || Error::new(ErrorKind::Weight, format!("no tensor `{name}`"));
            self.weights.get(name).cloned().ok_or_else(missing)
        };
        let inputs: Tensors = inputs
            .into_iter()
            .map(|(name, tensor)| (name.to_owned(), tensor))
            .collect();
        let interpreter = Interpreter::new(graph, &source).unwrap();
        let outputs = interpreter.run(&inputs, &mut States::new(graph).unwrap()).unwrap();
        let (_, values) = outputs.iter().next().unwrap();
        values.as_f32().unwrap().to_vec()
    }
}

fn close(case: &str, found: &[f32], want: &[f32]) {
    assert_eq!(found.len(), want.len(), "{case}");
    let largest = want.iter().fold(0f32, |m, w| m.max(w.abs()));
    let far = found.iter().zip(want).map(|(f, w)| (f - w).abs()).fold(0.0, f32::max);
    assert!(far <= 1e-4 * largest.max(1.0), "{case}: {far} of {largest}");
}

fn vectors(case: &str) {
    let model = open(case);
    let expected = read(&folder(case).join("expected.safetensors"))
        .remove("vectors")
        .unwrap();
    let def = model.def.vectors.as_ref().unwrap();
    assert_eq!(expected.shape()[1], def.dimensions, "{case}");
    let rows = model.expected["texts"].as_array().unwrap();
    let mut texts: Vec<Vec<i64>> = rows.iter().map(|row| ids(&row["ids"])).collect();
    assert_eq!(def.fills_context, model.expected["fill"].is_object(), "{case}");
    if def.fills_context {
        let length = model.expected["fill"]["length"].as_u64().unwrap() as usize;
        assert_eq!(length, model.def.context_tokens);
        let token = model.expected["fill"]["token"].as_i64().unwrap();
        texts.iter_mut().for_each(|text| text.resize(length, token));
    }
    let want = expected.as_f32().unwrap();
    close(case, &model.run(&texts, None), want);
    // And each alone, which is computed in doubles here and so has nearly the same numbers.
    for (text, want) in texts.iter().zip(want.chunks(def.dimensions)).take(5) {
        close(case, &model.run(std::slice::from_ref(text), None), want);
    }
}

/// Vectors of texts and of pictures, which come as flat patches.
fn pictures(case: &str) {
    vectors(case);
    let model = open(case);
    let mut expected = read(&folder(case).join("expected.safetensors"));
    let (pixels, want) = (expected.remove("pixels").unwrap(), expected.remove("pictures").unwrap());
    let def = model.def.pictures.unwrap();
    let (side, patch) = (def.side, def.patch);
    assert_eq!(pixels.shape()[1..], [3, side, side]);
    let all = pixels.as_f32().unwrap();
    let grid = side / patch;
    let mut patches = Vec::new();
    for picture in all.chunks(3 * side * side) {
        for at in 0..grid * grid {
            for channel in 0..3 {
                for y in 0..patch {
                    let first = (channel * side + at / grid * patch + y) * side + at % grid * patch;
                    patches.extend(&picture[first..first + patch]);
                }
            }
        }
    }
    let component = model.def.components.iter().find(|c| c.name == def.component).unwrap();
    let numbers = 3 * patch * patch;
    let count = pixels.shape()[0];
    let found = model.run_graph(
        &component.graph,
        [(
            "patches",
            Tensor::from_f32([count, grid * grid, numbers], patches.clone()).unwrap(),
        )],
    );
    close(case, &found, want.as_f32().unwrap());
    // A picture alone.
    let one = grid * grid * numbers;
    let alone = Tensor::from_f32([1, grid * grid, numbers], patches[one..2 * one].to_vec()).unwrap();
    let width = want.shape()[1];
    let found = model.run_graph(&component.graph, [("patches", alone)]);
    close(case, &found, &want.as_f32().unwrap()[width..2 * width]);
}

/// A vector of each token: those of all texts whose tokens are seen in one call, of the others one by one.
fn matrices(case: &str) {
    let model = open(case);
    let expected = read(&folder(case).join("expected.safetensors"))
        .remove("vectors")
        .unwrap();
    let def = model.def.vectors.as_ref().unwrap();
    let width = def.dimensions;
    assert_eq!(expected.shape()[1], width, "{case}");
    assert!(def.pooling.is_empty() && def.normalized, "{case}");
    let rows = model.expected["matrices"].as_array().unwrap();
    let whole: Vec<Vec<i64>> = rows
        .iter()
        .filter(|row| !ids(&row["seen"]).contains(&0))
        .map(|row| ids(&row["ids"]))
        .collect();
    let together = model.run(&whole, None);
    let (mut together, mut want) = (&together[..], expected.as_f32().unwrap());
    for row in rows {
        let (tokens, seen, kept) = (ids(&row["ids"]), ids(&row["seen"]), ids(&row["kept"]));
        let alone;
        let found = match seen.contains(&0) {
            true => {
                let component = &model.def.components[1];
                assert_eq!(component.name, "expanded_embedder");
                alone = model.run_component(component, &[tokens], None, Some(&seen));
                &alone[..]
            }
            false => {
                let (own, others) = together.split_at(tokens.len() * width);
                together = others;
                own
            }
        };
        let (own, others) = want.split_at(kept.len() * width);
        want = others;
        let found: Vec<f32> = kept
            .iter()
            .flat_map(|&i| found[i as usize * width..(i as usize + 1) * width].to_vec())
            .collect();
        close(case, &found, own);
    }
    assert!(together.is_empty() && want.is_empty(), "{case}");
}

fn scores(case: &str) {
    let model = open(case);
    assert!(model.def.scores.is_some(), "{case}");
    let rows = model.expected["pairs"].as_array().unwrap();
    let texts: Vec<Vec<i64>> = rows.iter().map(|row| ids(&row["ids"])).collect();
    let types: Vec<Vec<i64>> = rows.iter().filter_map(|row| row.get("types").map(ids)).collect();
    let typed = model.def.components[0].graph.input("token_types").is_some();
    let want: Vec<f32> = rows.iter().map(|row| row["logit"].as_f64().unwrap() as f32).collect();
    close(case, &model.run(&texts, typed.then_some(&types[..])), &want);
}

macro_rules! cases {
    ($($name:ident: $check:ident)*) => {
        $(#[test]
        fn $name() {
            $check(stringify!($name));
        })*

        /// No golden folder is without its test.
        #[test]
        fn golden_cases_are_all_tested() {
            let mut cases: Vec<String> = fs::read_dir(folder("")).unwrap().map(|e| {
                e.unwrap().file_name().into_string().unwrap()
            }).collect();
            cases.sort();
            let mut tested = vec![$(stringify!($name)),*];
            tested.sort();
            assert_eq!(cases, tested);
        }
    };
}

cases! {
    bert: vectors
    bert_poolings: vectors
    bert_ranker: scores
    bert_tokens: matrices
    clip: vectors
    clip_pictures: pictures
    embedding_gemma2: vectors
    gemma3_text: vectors
    lfm2: vectors
    lfm2_tokens: matrices
    lfm2_tokens_causal: matrices
    modernbert: vectors
    modernbert_ranker: scores
    modernbert_tokens: matrices
    nomic_bert: vectors
    nomic_bert_apart: vectors
    nomic_bert_makers: vectors
    nomic_bert_moe: vectors
    qwen3: vectors
    qwen3_ranker: scores
    siglip: pictures
    xlm_roberta: vectors
    xlm_roberta_ranker: scores
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let whole = config(&folder("bert_poolings"));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut changed = whole.clone();
        change(&mut changed);
        cactus_models::build(&changed).unwrap_err().to_string()
    };
    type Change<'a> = &'a dyn Fn(&mut Value);
    let cases: &[(Change<'_>, &str)] = &[
        (
            &|c| c["text_modules"][0]["pooling_mode"] = "attention".into(),
            "`attention`",
        ),
        (
            &|c| c["text_modules"][0]["include_prompt"] = false.into(),
            "include_prompt",
        ),
        (&|c| c["text_modules"][1]["kind"] = "Router".into(), "`Router`"),
        (
            &|c| c["text_modules"][1]["activation_function"] = "torch.nn.Mish".into(),
            "`Mish`",
        ),
        (&|c| c["text_modules"][1]["in_features"] = 7.into(), "7 elements"),
        (&|c| c["text_modules"][1]["use_residual"] = true.into(), "use_residual"),
        (&|c| c["text_modules"] = json!([]), "Pooling"),
        (
            &|c| c["position_embedding_type"] = "relative_key".into(),
            "relative_key",
        ),
        (&|c| c["is_decoder"] = true.into(), "is_decoder"),
        (
            &|c| {
                c["architectures"] = json!(["BertForSequenceClassification"]);
                c["id2label"] = json!({"0": "a", "1": "b"});
            },
            "2 labels",
        ),
    ];
    for (change, word) in cases {
        let error = with(change);
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn nomic_bert_refuses_what_it_does_not_compute_by_name() {
    let whole = config(&folder("nomic_bert_moe"));
    type Change<'a> = &'a dyn Fn(&mut Value);
    let cases: &[(Change<'_>, &str)] = &[
        (&|c| c["decoder"] = true.into(), "`decoder`"),
        (&|c| c["causal"] = true.into(), "`causal`"),
        (&|c| c["use_rms_norm"] = true.into(), "`use_rms_norm`"),
        (&|c| c["rotary_emb_fraction"] = 0.0.into(), "`rotary_emb_fraction`"),
        (&|c| c["rotary_emb_scale_base"] = 512.into(), "`rotary_emb_scale_base`"),
        (&|c| c["activation_function"] = "gelu_new".into(), "`gelu_new`"),
        (&|c| c["activation_function"] = "swiglu".into(), "experts have `gelu`"),
        (&|c| c["moe_top_k"] = 5.into(), "`moe_top_k`"),
        (
            &|c| c["moe_normalize_expert_weights"] = true.into(),
            "`moe_normalize_expert_weights`",
        ),
        (&|c| c["num_shared_experts"] = 1.into(), "`num_shared_experts`"),
        (&|c| c["num_heads_kv"] = 1.into(), "`num_heads_kv`"),
        (
            &|c| c["architectures"] = json!(["NomicBertForSequenceClassification"]),
            "`architectures`",
        ),
    ];
    for (change, word) in cases {
        let mut changed = whole.clone();
        change(&mut changed);
        let error = cactus_models::build(&changed).unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn nomic_bert_reads_no_more_than_it_was_trained_on() {
    let mut config = config(&folder("nomic_bert_makers"));
    config["n_positions"] = 8192.into();
    config["rotary_scaling_factor"] = 2.into();
    config["max_trained_positions"] = 2048.into();
    assert_eq!(cactus_models::build(&config).unwrap().context_tokens, 2048);
    config["max_trained_positions"] = Value::Null;
    assert_eq!(cactus_models::build(&config).unwrap().context_tokens, 2048);
    config["n_positions"] = 512.into();
    assert_eq!(cactus_models::build(&config).unwrap().context_tokens, 512);
}

#[test]
fn nomic_bert_says_how_far_vectors_may_be_cut() {
    let least = |case: &str, change: &dyn Fn(&mut Value)| {
        let mut config = config(&folder(case));
        change(&mut config);
        cactus_models::build(&config).unwrap().vectors.unwrap().least_dimensions
    };
    assert_eq!(least("nomic_bert", &|_| ()), Some(64));
    assert_eq!(least("nomic_bert_makers", &|c| c["n_embd"] = 768.into()), None);
    assert_eq!(least("nomic_bert_moe", &|c| c["n_embd"] = 768.into()), Some(256));
}

#[test]
fn lfm2_refuses_architectures_that_it_does_not_know_by_name() {
    let whole = config(&folder("lfm2"));
    type Change<'a> = &'a dyn Fn(&mut Value);
    let cases: &[(Change<'_>, &str)] = &[
        (
            &|c| c["architectures"] = json!(["Lfm2BidirForSequenceRouting"]),
            "`Lfm2BidirForSequenceRouting`",
        ),
        (&|c| c["conv_L_cache"] = 4.into(), "`conv_L_cache`"),
        (
            &|c| {
                c["architectures"] = json!(["Lfm2Model"]);
                c["is_causal"] = false.into();
            },
            "`is_causal`",
        ),
    ];
    for (change, word) in cases {
        let mut changed = whole.clone();
        change(&mut changed);
        let error = cactus_models::build(&changed).unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn embedding_gemma2_sees_as_far_as_its_radius_on_both_sides() {
    let expected = read(&folder("embedding_gemma2").join("expected.safetensors"))
        .remove("vectors")
        .unwrap();
    let want = expected.as_f32().unwrap();
    let width = expected.shape()[1];
    let far = |radius: usize| {
        let model = open_with("embedding_gemma2", &|c| {
            c["text_config"]["sliding_window"] = radius.into();
        });
        // The second text is longer than what a token sees.
        let text = ids(&model.expected["texts"][1]["ids"]);
        assert!(text.len() > 2 * 6 + 1);
        let found = model.run(&[text], None);
        let pairs = found.iter().zip(&want[width..2 * width]);
        pairs.map(|(f, w)| (f - w).abs()).fold(0.0, f32::max)
    };
    assert!(far(6) <= 1e-4, "{}", far(6));
    for other in [3, 5, 7] {
        assert!(far(other) > 1e-2, "{other}: {}", far(other));
    }
}

#[test]
fn embedding_gemma2_is_the_same_without_what_sees_and_hears() {
    let whole = config(&folder("embedding_gemma2"));
    let mut text = whole["text_config"].clone();
    text["text_modules"] = whole["text_modules"].clone();
    let [whole, text] = [whole, text].map(|config| cactus_models::build(&config).unwrap());
    assert_eq!(whole.left_out, ["pictures", "sounds"]);
    assert!(text.left_out.is_empty());
    let tokens = |def: &ModelDef| (def.bos_token_id, def.eos_token_ids.clone(), def.pad_token_id);
    assert_eq!(tokens(&whole), (Some(0), vec![2], Some(1)));
    assert_eq!(tokens(&text), tokens(&whole));
    let graph = |def: &ModelDef| def.components[0].graph.to_string();
    assert_eq!(graph(&whole), graph(&text));
    // Names that no part of the folder has are still told.
    assert_eq!(
        whole.unread(["vision_tower.a", "embed_audio.b", "tower.c"]),
        ["tower.c"]
    );
}

/// As transformers 5.23 writes the released sizes, of which it may leave out what is a default.
#[test]
fn embedding_gemma2_has_the_defaults_of_transformers() {
    let kinds: Vec<&str> = (1..=24)
        .map(|n| match n % 6 {
            0 => "full_attention",
            _ => "sliding_attention",
        })
        .collect();
    let own = json!({"head_dim": 512, "num_key_value_heads": 1});
    let said = json!({
        "attention_bias": false, "embedding_dim": 768, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 512, "hidden_size_per_layer_input": 512, "intermediate_size": 2048, "layer_types": kinds,
        "max_position_embeddings": 262_144, "model_type": "embedding_gemma2_text", "num_attention_heads": 4,
        "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "sliding_window": 512,
        "vocab_size": 262_144, "per_layer_config": {"05": own, "11": own, "17": own, "23": own},
        "rope_parameters": {
            "full_attention": {"rope_theta": 1_000_000.0, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 10_000.0, "rope_type": "default"},
        },
    });
    let [silent, said] = [json!({}), said].map(|text| {
        let config = json!({"model_type": "embedding_gemma2", "text_config": text, "vision_config": null});
        cactus_models::build(&config).unwrap()
    });
    let graph = &silent.components[0].graph;
    assert_eq!(graph.to_string(), said.components[0].graph.to_string());
    assert!(silent.left_out.is_empty());
    let shape = |name: &str| {
        let found = graph.weights().into_iter().find(|(v, _)| graph.value(*v).name == name);
        graph.value(found.unwrap().0).ty.known_shape().unwrap()
    };
    assert_eq!(shape("layers.4.self_attn.k_proj.weight"), [512, 512]);
    assert_eq!(shape("layers.4.self_attn.q_proj.weight"), [1024, 512]);
    assert_eq!(shape("layers.5.self_attn.k_proj.weight"), [512, 512]);
    assert_eq!(shape("layers.5.self_attn.q_proj.weight"), [2048, 512]);
    assert_eq!(shape("ple.per_layer_model_projection.weight"), [24 * 512, 512]);
    let vectors = silent.vectors.unwrap();
    assert_eq!((vectors.dimensions, vectors.least_dimensions), (768, Some(128)));
    assert_eq!((silent.context_tokens, silent.eos_token_ids), (262_144, vec![1]));
}

#[test]
fn embedding_gemma2_reads_every_field_or_refuses_it_by_name() {
    let whole = config(&folder("embedding_gemma2"));
    let build = |change: &dyn Fn(&mut Value)| {
        let mut changed = whole.clone();
        change(&mut changed);
        cactus_models::build(&changed)
    };
    let graph = |change: &dyn Fn(&mut Value)| build(change).unwrap().components[0].graph.to_string();
    type Change<'a> = &'a dyn Fn(&mut Value);
    // What changes the graph, and what says the same otherwise.
    let plain = graph(&|_| ());
    let changes: &[(Change<'_>, bool)] = &[
        (&|c| c["text_config"]["sliding_window"] = 7.into(), false),
        (&|c| c["text_config"]["attention_bias"] = true.into(), false),
        (&|c| c["text_config"]["hidden_activation"] = "silu".into(), false),
        (&|c| c["text_config"]["rms_norm_eps"] = 1e-5.into(), false),
        (
            &|c| c["text_config"]["rope_parameters"]["sliding_attention"]["rope_theta"] = 2000.0.into(),
            false,
        ),
        (&|c| c["text_config"]["rope_parameters"] = Value::Null, false),
        (
            &|c| {
                c["text_config"]["layer_types"][1] = "sliding_attention".into();
                c["text_config"]["per_layer_config"]["1"] = Value::Null;
            },
            false,
        ),
        // The last layer sees everything.
        (
            &|c| c["text_config"]["layer_types"][3] = "sliding_attention".into(),
            true,
        ),
        (
            &|c| {
                c["text_config"]["layer_types"] = Value::Null;
                c["text_config"]["sliding_window_pattern"] = 2.into();
            },
            true,
        ),
        (
            &|c| {
                c["text_config"]["per_layer_config"] = Value::Null;
                c["text_config"]["global_head_dim"] = 24.into();
            },
            true,
        ),
        (&|c| c["text_config"]["num_kv_shared_layers"] = 0.into(), true),
    ];
    for (i, (change, same)) in changes.iter().enumerate() {
        assert_eq!(graph(change) == plain, *same, "{i}");
    }
    let cases: &[(Change<'_>, &str)] = &[
        (&|c| c["text_config"] = Value::Null, "`text_config` is missing"),
        (
            &|c| c["text_config"]["model_type"] = "gemma4_text".into(),
            "`text_config.model_type`",
        ),
        (
            &|c| c["text_config"]["sliding_window"] = 0.into(),
            "`text_config.sliding_window`",
        ),
        (
            &|c| c["text_config"]["embedding_dim"] = "768".into(),
            "`text_config.embedding_dim`",
        ),
        (
            &|c| c["text_config"]["num_key_value_heads"] = 3.into(),
            "3 does not divide",
        ),
        (&|c| c["text_config"]["hidden_activation"] = "swish9".into(), "`swish9`"),
        (
            &|c| c["text_config"]["layer_types"][0] = "chunked_attention".into(),
            "`chunked_attention`",
        ),
        (
            &|c| c["text_config"]["layer_types"] = json!(["full_attention"]),
            "each of 4 layers",
        ),
        (
            &|c| c["text_config"]["rope_parameters"]["full_attention"]["rope_type"] = "longrope".into(),
            "`longrope`",
        ),
        (
            &|c| c["text_config"]["hidden_size_per_layer_input"] = 0.into(),
            "`text_config.hidden_size_per_layer_input`",
        ),
        (
            &|c| c["text_config"]["num_kv_shared_layers"] = 2.into(),
            "`text_config.num_kv_shared_layers`",
        ),
        (
            &|c| c["text_config"]["enable_moe_block"] = true.into(),
            "`text_config.enable_moe_block`",
        ),
        (
            &|c| c["text_config"]["per_layer_config"]["1"]["intermediate_size"] = 9.into(),
            "`per_layer_config.*.intermediate_size`",
        ),
        (
            &|c| c["text_config"]["per_layer_config"]["4"] = json!({"head_dim": 24}),
            "numbers of layers below 4, found `4`",
        ),
        (
            &|c| c["text_config"]["per_layer_config"]["3"]["head_dim"] = 32.into(),
            "layer 3 has other heads",
        ),
        (
            &|c| c["text_config"]["per_layer_config"]["0"] = json!({"num_key_value_heads": 4}),
            "layer 0 has other heads",
        ),
        (&|c| c["vision_config"] = 3.into(), "`vision_config`"),
    ];
    for (change, word) in cases {
        let error = build(change).unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}");
    }
}
