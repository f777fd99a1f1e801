//! Folders of sentence-transformers as bundles, against what sentence-transformers computed (`golden/embedding_models.py`).

use cactus_bundle::{Bundle, Pooling};
use cactus_embed::{
    EmbedOptions, Embedder, Error, ErrorKind, Input, Probe, RankOptions, Reranker, Role, TokenEmbedder,
};
use cactus_engine::CancelToken;
use cactus_import::{ConvertOptions, convert};
use cactus_passes::{Bits, Policy};
use cactus_quant::pack;
use cactus_runtime::Observed;
use cactus_testkit::copy_folder;
use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/embedding")
        .join(name)
}

fn expected(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(golden(name).join("expected.json")).unwrap()).unwrap()
}

fn options(bits: Bits) -> ConvertOptions {
    ConvertOptions {
        policy: Policy::uniform(bits),
        ..ConvertOptions::default()
    }
}

fn bundle(folder: &Path, name: &str, options: &ConvertOptions) -> PathBuf {
    let path = folder.join(name);
    convert(&golden(name), &path, options, &mut |_, _| {}).unwrap();
    path
}

fn folders(with: &str) -> Vec<String> {
    let all = std::fs::read_dir(golden("")).unwrap();
    let names = all.map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| expected(name).get(with).is_some()).collect();
    names.sort();
    names
}

#[test]
fn vectors_are_those_of_sentence_transformers() {
    let folder = tempfile::tempdir().unwrap();
    let names = folders("texts");
    assert!(names.len() >= 3, "{names:?}");
    for name in names {
        let path = bundle(folder.path(), &name, &options(Bits::ThirtyTwo));
        let embedder = Embedder::open(&path, Some(2)).unwrap();
        let file = std::fs::read(golden(&name).join("expected.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&file).unwrap();
        let tensor = |name: &str| {
            let tensor = file.tensor(name).ok()?;
            let numbers = tensor
                .data()
                .chunks(4)
                .map(|c| f32::from_le_bytes(c.try_into().unwrap()));
            Some((numbers.collect::<Vec<f32>>(), tensor.shape()[1]))
        };
        let (want, width) = tensor("vectors").unwrap();
        let rows = expected(&name)["texts"].as_array().unwrap().clone();
        if let Some((want, dimensions)) = tensor("cut") {
            let options = EmbedOptions {
                dimensions: Some(dimensions),
                ..EmbedOptions::default()
            };
            let (row, want) = (&rows[1], &want[dimensions..2 * dimensions]);
            let text = row["text"].as_str().unwrap();
            let found = embedder.embed(Role::Plain, &[text], &options).unwrap();
            let far = found.values.iter().zip(want).map(|(f, w)| (f - w).abs());
            assert!(far.fold(0.0, f32::max) <= 1e-4, "{name}: {text} cut to {dimensions}");
        }
        for (row, want) in rows.iter().zip(want.chunks(width)) {
            let text = row["text"].as_str().unwrap();
            let role = match row["prompt"].as_str() {
                None => Role::Plain,
                Some("query") => Role::Query,
                Some("passage" | "document") => Role::Document,
                Some(task) => Role::Task(task),
            };
            let found = embedder.embed(role, &[text], &EmbedOptions::default()).unwrap();
            assert_eq!(found.dimensions, width, "{name}");
            assert_eq!(
                found.tokens,
                [row["ids"].as_array().unwrap().len()],
                "{name}: {text} as {role:?}"
            );
            assert_eq!(embedder.count(role, text).unwrap(), found.tokens[0]);
            let largest = want.iter().fold(1f32, |m, w| m.max(w.abs()));
            let far = found.values.iter().zip(want).map(|(f, w)| (f - w).abs());
            let far = far.fold(0.0, f32::max);
            assert!(far <= 1e-4 * largest, "{name}: {text} as {role:?}: {far}");
        }
    }
}

#[test]
fn vectors_of_tokens_are_those_of_sentence_transformers() {
    let folder = tempfile::tempdir().unwrap();
    let names = folders("matrices");
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        let path = bundle(folder.path(), &name, &options(Bits::ThirtyTwo));
        let embedder = TokenEmbedder::open(&path, Some(2)).unwrap();
        let file = std::fs::read(golden(&name).join("expected.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&file).unwrap();
        let tensor = file.tensor("vectors").unwrap();
        let numbers = tensor
            .data()
            .chunks(4)
            .map(|c| f32::from_le_bytes(c.try_into().unwrap()));
        let mut want = numbers.collect::<Vec<f32>>();
        for row in expected(&name)["matrices"].as_array().unwrap() {
            let text = row["text"].as_str().unwrap();
            let role = if row["role"] == "query" {
                Role::Query
            } else {
                Role::Document
            };
            let found = embedder
                .embed(role, &[text], &EmbedOptions::default())
                .unwrap()
                .remove(0);
            assert_eq!(found.dimensions, tensor.shape()[1], "{name}");
            assert_eq!(
                found.rows().len(),
                row["kept"].as_array().unwrap().len(),
                "{name}: {text}"
            );
            let others = want.split_off(found.values.len());
            let far = found.values.iter().zip(&want).map(|(f, w)| (f - w).abs());
            let far = far.fold(0.0, f32::max);
            assert!(far <= 1e-4, "{name}: {text} as {role:?}: {far}");
            want = others;
        }
        assert!(want.is_empty(), "{name}");
    }
}

#[test]
fn matrix_has_the_same_bits_whatever_stands_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let texts: Vec<String> = (0..60).map(|i| format!("the word {i} of this")).collect();
    for name in folders("matrices") {
        let path = bundle(folder.path(), &name, &options(Bits::Eight));
        let embedder = TokenEmbedder::open(&path, Some(3)).unwrap();
        let options = EmbedOptions {
            truncate: true,
            ..EmbedOptions::default()
        };
        for role in [Role::Query, Role::Document] {
            let all = embedder.embed(role, &texts, &options).unwrap();
            for (text, together) in texts.iter().zip(&all) {
                let alone = embedder.embed(role, &[text], &options).unwrap();
                assert!(alone[0] == *together, "{name}: {text} as {role:?}");
            }
        }
    }
}

#[test]
fn matrices_follow_the_record_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path(), "modernbert_tokens", &options(Bits::ThirtyTwo));
    let embedder = TokenEmbedder::open(&path, Some(1)).unwrap();
    let vectors = embedder.vectors();
    assert_eq!((vectors.query.limit_tokens, vectors.document.limit_tokens), (32, 64));
    assert!(vectors.query.mark.is_some() && vectors.query.mark != vectors.document.mark);
    let expansion = vectors.query.expansion.unwrap();
    assert_eq!((expansion.length, expansion.seen), (32, false));
    assert!(vectors.query.skipped.is_empty() && !vectors.document.skipped.is_empty());
    let options = EmbedOptions::default();
    // Filled up, and without what is skipped; nothing said is a document.
    let rows = |role, text: &str| embedder.embed(role, &[text], &options).unwrap()[0].rows().len();
    assert_eq!(rows(Role::Query, "the"), 32);
    assert_eq!(rows(Role::Document, "the, of."), rows(Role::Plain, "the of"));
    let long = "the ".repeat(40);
    let error = embedder.embed(Role::Query, &["a", &long], &options).unwrap_err();
    let Error::TooLong {
        index: 1,
        tokens: 43,
        limit: 32,
    } = error
    else {
        panic!("{error}");
    };
    let wrong = EmbedOptions {
        dimensions: Some(8),
        ..EmbedOptions::default()
    };
    let error = embedder.embed(Role::Query, &["a"], &wrong).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Option);
    let error = embedder.embed(Role::Task("a"), &["a"], &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Option);
    // One kind of bundle is not the other.
    let error = Embedder::open(&path, None).unwrap_err();
    assert!(error.to_string().contains("each token"), "{error}");
    let path = bundle(folder.path(), "bert", &self::options(Bits::ThirtyTwo));
    assert!(TokenEmbedder::open(&path, None).is_err());
}

#[test]
fn folder_that_says_something_unknown_of_tokens_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for (key, value, word) in [
        (
            "query_expansion",
            serde_json::json!({"strategy": "fixed"}),
            "query_expansion",
        ),
        ("similarity_fn_name", "cosine".into(), "MaxSim"),
        ("query_length", 0.into(), "query_length"),
        ("skiplist_words", "!".into(), "skiplist_words"),
        ("prompts", serde_json::json!({"query": "q: "}), "prompts"),
    ] {
        let changed = folder.path().join(key);
        copy_folder(&golden("bert_tokens"), &changed);
        let file = changed.join("config_sentence_transformers.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        config[key] = value;
        std::fs::write(&file, config.to_string()).unwrap();
        let to = folder.path().join("bundle");
        let error = convert(&changed, &to, &options(Bits::Eight), &mut |_, _| {}).unwrap_err();
        assert!(error.to_string().contains(word), "{key}: {error}");
    }
}

#[test]
fn scores_are_those_of_sentence_transformers() {
    let folder = tempfile::tempdir().unwrap();
    let names = folders("pairs");
    assert!(names.len() >= 2, "{names:?}");
    for name in names {
        let path = bundle(folder.path(), &name, &options(Bits::ThirtyTwo));
        let reranker = Reranker::open(&path, Some(2)).unwrap();
        for row in expected(&name)["pairs"].as_array().unwrap() {
            let text = |key: &str| row[key].as_str().unwrap();
            let found = reranker
                .score(text("query"), &[text("document")], &RankOptions::default())
                .unwrap();
            assert_eq!(found.tokens, [row["ids"].as_array().unwrap().len()], "{name}");
            let want = row["score"].as_f64().unwrap() as f32;
            assert!(
                (found.scores[0] - want).abs() < 1e-4,
                "{name}: {} {want}",
                found.scores[0]
            );
        }
    }
}

#[test]
fn text_has_the_same_bits_whatever_stands_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path(), "bert", &options(Bits::Eight));
    let embedder = Embedder::open(&path, Some(3)).unwrap();
    // So many that they are several calls.
    let texts: Vec<String> = (0..200).map(|i| format!("the word {i} of this")).collect();
    let options = EmbedOptions::default();
    let all = embedder.embed(Role::Query, &texts, &options).unwrap();
    for (text, together) in texts.iter().zip(all.rows()) {
        let alone = embedder.embed(Role::Query, &[text], &options).unwrap();
        assert!(alone.values == together, "{text}");
        let length: f32 = together.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
    let one = Embedder::open(&path, Some(1)).unwrap();
    assert_eq!(one.embed(Role::Query, &texts, &options).unwrap(), all);
    assert_eq!(
        embedder
            .embed(Role::Query, &[] as &[&str], &options)
            .unwrap()
            .rows()
            .len(),
        0
    );
}

#[test]
fn record_is_what_the_folder_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path(), "bert", &options(Bits::ThirtyTwo));
    let embedder = Embedder::open(&path, Some(1)).unwrap();
    let vectors = embedder.vectors();
    assert_eq!(embedder.limit_tokens(), 32);
    assert_eq!(vectors.pooling, [Pooling::Mean]);
    assert!(vectors.normalized);
    assert_eq!(embedder.prompt(Role::Plain).unwrap(), "");
    assert_eq!(embedder.prompt(Role::Query).unwrap(), "what is: ");
    assert_eq!(embedder.prompt(Role::Document).unwrap(), "it is: ");
    assert_eq!(embedder.prompt(Role::Task("task")).unwrap(), "be: ");
    let error = embedder.prompt(Role::Task("nothing")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Option);
    assert!(error.to_string().contains("task"), "{error}");

    // What is said at conversion goes before.
    let said = ConvertOptions {
        query_prompt: Some("q: ".into()),
        document_prompt: Some(String::new()),
        name: None,
        ..options(Bits::ThirtyTwo)
    };
    let path = folder.path().join("said");
    let outcome = convert(&golden("bert"), &path, &said, &mut |_, _| {}).unwrap();
    assert!(outcome.notes.is_empty(), "{:?}", outcome.notes);
    let embedder = Embedder::open(&path, Some(1)).unwrap();
    assert_eq!(embedder.prompt(Role::Query).unwrap(), "q: ");
    assert_eq!(embedder.prompt(Role::Document).unwrap(), "");
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/models/qwen3");
    let error = convert(&other, &folder.path().join("none"), &said, &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("prompts"), "{error}");
}

#[test]
fn text_that_is_too_long_is_an_error_unless_it_may_lose_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path(), "bert", &options(Bits::ThirtyTwo));
    let embedder = Embedder::open(&path, Some(1)).unwrap();
    let long = "the ".repeat(40);
    let error = embedder
        .embed(Role::Query, &["the", &long], &EmbedOptions::default())
        .unwrap_err();
    let Error::TooLong {
        index: 1,
        tokens,
        limit: 32,
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(tokens, embedder.count(Role::Query, &long).unwrap());
    let truncate = EmbedOptions {
        truncate: true,
        ..EmbedOptions::default()
    };
    let cut = embedder.embed(Role::Query, &[&long], &truncate).unwrap();
    assert_eq!(cut.tokens, [32]);
    // The same text of as many words as there is room for, whose end is marked like any other's.
    let prompt = embedder.count(Role::Query, "").unwrap();
    let short = "the ".repeat(32 - prompt);
    let whole = embedder
        .embed(Role::Query, &[&short], &EmbedOptions::default())
        .unwrap();
    assert_eq!(whole, cut);

    let path = bundle(folder.path(), "bert_ranker", &options(Bits::ThirtyTwo));
    let reranker = Reranker::open(&path, Some(1)).unwrap();
    let long = "the ".repeat(80);
    let error = reranker
        .score("what", &["a", &long], &RankOptions::default())
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::TooLong {
                index: 1,
                limit: 64,
                ..
            }
        ),
        "{error}"
    );
    let truncate = RankOptions {
        truncate: true,
        ..RankOptions::default()
    };
    let cut = reranker.score("what", &["a", &long], &truncate).unwrap();
    assert_eq!(cut.tokens[1], 64);
    assert!(
        reranker.score(&long, &["a"], &truncate).is_err(),
        "a query is never cut"
    );
}

#[test]
fn what_the_model_does_not_do_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path(), "bert", &options(Bits::ThirtyTwo));
    let embedder = Embedder::open(&path, Some(1)).unwrap();
    let dimensions = |n| EmbedOptions {
        dimensions: Some(n),
        ..EmbedOptions::default()
    };
    for n in [0, 16, 33] {
        let error = embedder.embed(Role::Plain, &["a"], &dimensions(n)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Option, "{error}");
    }
    assert!(embedder.embed(Role::Plain, &["a"], &dimensions(32)).is_ok());
    let error = Reranker::open(&path, None).unwrap_err();
    assert!(error.to_string().contains("vectors"), "{error}");
    let ranker = bundle(folder.path(), "xlm_roberta_ranker", &options(Bits::ThirtyTwo));
    let error = Embedder::open(&ranker, None).unwrap_err();
    assert!(error.to_string().contains("scores"), "{error}");

    let tokens = |tokens: &[u32]| {
        let inputs = [Input::Tokens(tokens)];
        embedder.embed_inputs(Role::Query, &inputs, &EmbedOptions::default())
    };
    let expected = expected("bert");
    let row = &expected["texts"][0];
    let ids: Vec<u32> = row["ids"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_u64().unwrap() as u32)
        .collect();
    let text = row["text"].as_str().unwrap();
    let as_text = embedder.embed(Role::Plain, &[text], &EmbedOptions::default()).unwrap();
    assert_eq!(tokens(&ids).unwrap(), as_text, "tokens get no prompt");
    for wrong in [&[][..], &[9999], &[5; 33]] {
        assert_eq!(tokens(wrong).unwrap_err().kind(), ErrorKind::Text);
    }
    let stopped = EmbedOptions {
        cancel: CancelToken::new(),
        ..EmbedOptions::default()
    };
    stopped.cancel.cancel();
    let error = embedder.embed(Role::Plain, &["a"], &stopped).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

#[test]
fn source_that_names_no_prompts_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b");
    let outcome = convert(&golden("xlm_roberta"), &path, &options(Bits::Eight), &mut |_, _| {}).unwrap();
    assert!(
        outcome.notes.iter().any(|n| n.contains("--query-prompt")),
        "{:?}",
        outcome.notes
    );
}

#[test]
fn a_probe_sees_what_reaches_every_matrix_and_computes_with_another_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    for name in folders("texts")
        .into_iter()
        .chain(folders("pairs"))
        .chain(folders("matrices"))
    {
        let path = bundle(folder.path(), &name, &options(Bits::Eight));
        let mut probe = Probe::of(Arc::new(Bundle::open(&path).unwrap()), 2).unwrap();
        let passages = [
            probe.passage(Role::Document, "is it", "a plant", 512).unwrap(),
            probe.passage(Role::Query, "where", "a text", 512).unwrap(),
        ];
        let whole = probe.outputs(&passages).unwrap();
        assert_eq!(whole.len() % probe.width(), 0, "{name}");
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mut see = |shown: Observed<'_>| {
            // A dense layer behind the pooling has a row of a text, and the others one of each token.
            let rows = shown.input.len() / shown.k;
            assert!(
                rows == 1 || rows == passages[0].tokens(),
                "{name}: {} {rows}",
                shown.weight
            );
            *seen.entry(shown.weight.to_owned()).or_default() += 1;
            ControlFlow::Continue(())
        };
        probe.observe(&passages[0], &mut see).unwrap();
        assert!(seen.len() >= 4 && seen.values().all(|&n| n == 1), "{name}: {seen:?}");
        let mut first = 0;
        let mut end = |_: Observed<'_>| {
            first += 1;
            ControlFlow::Break(())
        };
        probe.observe(&passages[0], &mut end).unwrap();
        assert_eq!(first, 1, "{name}");
        // Without the first matrix it is another model, and with it the same one again.
        let weight = seen.keys().next().unwrap().clone();
        let layout = |probe: &Probe| {
            let stored = probe.bundle().weight_index(&weight).unwrap();
            let matrix = probe.bundle().weight_at(stored).matrix().unwrap();
            (matrix.packing(), matrix.n(), matrix.k())
        };
        let (packing, n, k) = layout(&probe);
        let nothing = pack(packing, n, k, &vec![0.0; n * k]).unwrap();
        probe.replace(&weight, Some(nothing)).unwrap();
        assert_ne!(probe.outputs(&passages).unwrap(), whole, "{name}: {weight}");
        let other = pack(packing, n + 1, k, &vec![0.0; (n + 1) * k]).unwrap();
        let error = probe.replace(&weight, Some(other)).unwrap_err().to_string();
        assert!(error.contains(&weight), "{error}");
        probe.replace(&weight, None).unwrap();
        assert_eq!(probe.outputs(&passages).unwrap(), whole, "{name}: {weight}");
        assert!(probe.replace("nothing", None).is_err());
    }
}

/// What transformers saves of the texts of `embedding_gemma2` alone.
fn texts_alone(to: &Path) {
    let from = golden("embedding_gemma2");
    copy_folder(&from, to);
    std::fs::remove_file(to.join("processor_config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
    let mut text = config["text_config"].take();
    text["architectures"] = vec!["EmbeddingGemma2TextModel"].into();
    std::fs::write(to.join("config.json"), text.to_string()).unwrap();
    let file = std::fs::read(from.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap().tensors();
    let own = tensors
        .into_iter()
        .filter_map(|(name, tensor)| Some((name.strip_prefix("language_model.")?.to_owned(), tensor)));
    let file = safetensors::serialize(own, None).unwrap();
    std::fs::write(to.join("model.safetensors"), file).unwrap();
}

#[test]
fn what_also_sees_and_hears_is_converted_for_texts_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("alone");
    texts_alone(&alone);
    let rows = expected("embedding_gemma2")["texts"].as_array().unwrap().clone();
    let texts: Vec<&str> = rows.iter().map(|row| row["text"].as_str().unwrap()).collect();
    let vectors = |source: &Path, bits: Bits| {
        let to = folder.path().join("bundle");
        let options = ConvertOptions {
            replace: true,
            ..options(bits)
        };
        let outcome = convert(source, &to, &options, &mut |_, _| {}).unwrap();
        let embedder = Embedder::open(&to, Some(2)).unwrap();
        let found = embedder
            .embed(Role::Document, &texts, &EmbedOptions::default())
            .unwrap();
        (found, outcome.notes)
    };
    let (whole, notes) = vectors(&golden("embedding_gemma2"), Bits::ThirtyTwo);
    let note = "the source also takes pictures and sounds, which are left out: the bundle takes texts alone";
    assert_eq!(notes, [note]);
    let (found, notes) = vectors(&alone, Bits::ThirtyTwo);
    assert!(found == whole && notes.is_empty(), "{notes:?}");
    // What scores lose is not divided by anything here.
    for (bits, least) in [(Bits::Sixteen, 0.9999), (Bits::Eight, 0.98), (Bits::Four, 0.7)] {
        let (found, _) = vectors(&alone, bits);
        let cosine = |(f, w): (&[f32], &[f32])| f.iter().zip(w).map(|(f, w)| f * w).sum::<f32>();
        let cosines = found.rows().zip(whole.rows()).map(cosine);
        let found = cosines.fold(1.0, f32::min);
        assert!(found > least, "{bits:?}: {found}");
    }
}
