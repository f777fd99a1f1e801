use super::*;
use crate::ErrorKind;
use cactus_ir::WeightExpr;
use cactus_testkit::Random;
use half::f16;
use proptest::prelude::*;
use std::sync::Arc;
use tokenizers::Tokenizer;

const WIDTH: usize = 32;
const MELS: usize = 8;
/// Bytes, and tokens made of them.
const TOKENS: usize = 260;
/// With special tokens, 99 languages and times.
const VOCAB: usize = TOKENS + 8 + 99 + 1501;

/// Tokens in the order of their ids: "he" and "ll" before what is made of them.
fn tokens() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = (0..=255).rev().map(|b| vec![b]).collect();
    all.extend(["he", "ll", "hell", " hell"].map(|t| t.as_bytes().to_vec()));
    all
}

/// Every tensor of a model of one layer on each side, by OpenAI's name: shape, values.
fn model() -> Vec<(String, Vec<usize>, Vec<f32>)> {
    let mut shapes: Vec<(String, Vec<usize>)> = vec![
        ("encoder.conv1.weight".into(), vec![WIDTH, MELS, 3]),
        ("encoder.conv1.bias".into(), vec![WIDTH, 1]),
        ("encoder.conv2.weight".into(), vec![WIDTH, WIDTH, 3]),
        ("encoder.conv2.bias".into(), vec![WIDTH, 1]),
        ("encoder.positional_embedding".into(), vec![10, WIDTH]),
        ("decoder.positional_embedding".into(), vec![12, WIDTH]),
        ("decoder.token_embedding.weight".into(), vec![VOCAB, WIDTH]),
    ];
    let norm = |name: String| {
        [
            (format!("{name}.weight"), vec![WIDTH]),
            (format!("{name}.bias"), vec![WIDTH]),
        ]
    };
    for (side, last, attentions) in [
        ("encoder", "ln_post", &["attn"][..]),
        ("decoder", "ln", &["attn", "cross_attn"]),
    ] {
        shapes.extend(norm(format!("{side}.{last}")));
        let at = format!("{side}.blocks.0");
        for attention in attentions {
            shapes.extend(norm(format!("{at}.{attention}_ln")));
            for linear in ["query", "key", "value", "out"] {
                shapes.push((format!("{at}.{attention}.{linear}.weight"), vec![WIDTH, WIDTH]));
                if linear != "key" {
                    shapes.push((format!("{at}.{attention}.{linear}.bias"), vec![WIDTH]));
                }
            }
        }
        shapes.extend(norm(format!("{at}.mlp_ln")));
        for (mlp, [n, k]) in [("mlp.0", [2 * WIDTH, WIDTH]), ("mlp.2", [WIDTH, 2 * WIDTH])] {
            shapes.push((format!("{at}.{mlp}.weight"), vec![n, k]));
            shapes.push((format!("{at}.{mlp}.bias"), vec![n]));
        }
    }
    let mut random = Random::new(7);
    shapes
        .into_iter()
        .map(|(name, shape)| {
            let values = random.tensor(&shape, 1.0);
            // What half precision holds, so that nothing is rounded.
            let values = values.as_f32().unwrap().iter().map(|&v| f16::from_f32(v).to_f32());
            (name, shape, values.collect())
        })
        .collect()
}

/// The bytes of a file, by whisper.cpp's conversion; matrices in half precision, or in blocks of 32 of 8 bits.
fn file(blocks: bool) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let kind = if blocks { 2007 } else { 1 };
    let sizes = [VOCAB, 10, WIDTH, 2, 1, 12, WIDTH, 2, 1, MELS, kind];
    let number = |n: usize, out: &mut Vec<u8>| out.extend((n as u32).to_le_bytes());
    for n in sizes {
        number(n, &mut out);
    }
    for n in [MELS, 201] {
        number(n, &mut out);
    }
    out.extend(vec![0; 4 * MELS * 201]);
    number(TOKENS, &mut out);
    for token in tokens() {
        number(token.len(), &mut out);
        out.extend(token);
    }
    for (name, shape, values) in model() {
        let half = shape.len() > 1 && !name.ends_with("bias") && !name.ends_with("positional_embedding");
        let ty = match (half, blocks && shape.len() == 2) {
            (true, true) => 8,
            (true, false) => 1,
            _ => 0,
        };
        for n in [shape.len(), name.len(), ty] {
            number(n, &mut out);
        }
        shape.iter().rev().for_each(|&n| number(n, &mut out));
        out.extend(name.as_bytes());
        match ty {
            0 => values.iter().for_each(|v| out.extend(v.to_le_bytes())),
            1 => values.iter().for_each(|&v| out.extend(f16::from_f32(v).to_le_bytes())),
            _ => values.chunks(32).for_each(|block| {
                let scale = f16::from_f32(block.iter().fold(0f32, |m, v| m.max(v.abs())) / 127.0);
                out.extend(scale.to_le_bytes());
                out.extend(block.iter().map(|v| (v / scale.to_f32()).round() as i8 as u8));
            }),
        }
    }
    out
}

fn parse(bytes: Vec<u8>) -> Result<SourceModel> {
    read(Path::new("ggml-tiny.bin"), Arc::new(bytes))
}

#[test]
fn weights_have_the_names_shapes_and_values_of_transformers() {
    for blocks in [false, true] {
        let found = parse(file(blocks)).unwrap();
        let def = cactus_models::build(&found.config).unwrap();
        assert_eq!(
            (def.vocab_size, def.context_tokens, def.hidden_size),
            (VOCAB, 12, WIDTH)
        );
        assert!(def.unread(found.tensors.names()).is_empty());
        // Each weight that the graphs read is there in its shape.
        for component in &def.components {
            for (v, expr) in component.graph.weights() {
                let shape = component.graph.ty(v).known_shape();
                let stored = found.tensors.shape(expr.sources()[0]);
                match expr {
                    WeightExpr::Reshape { .. } => {
                        let elements = |shape: Option<Vec<usize>>| shape.map(|dims| dims.iter().product::<usize>());
                        assert_eq!(elements(stored), elements(shape), "{expr:?}");
                    }
                    _ => assert_eq!(stored, shape, "{expr:?}"),
                }
            }
        }
        for (name, _, want) in model() {
            let to = hugging_face_name(&name).unwrap();
            let got = found.tensors.read(&to).unwrap();
            let most = if blocks { 0.006 } else { 0.0 };
            let near = got
                .as_f32()
                .unwrap()
                .iter()
                .zip(&want)
                .all(|(g, w)| (g - w).abs() <= most);
            assert!(near && got.as_f32().unwrap().len() == want.len(), "{name}");
        }
    }
}

#[test]
fn tokenizer_and_its_special_tokens_follow_from_the_vocabulary() {
    let found = parse(file(false)).unwrap();
    let tokenizer = Tokenizer::from_bytes(&found.tokenizer.as_ref().unwrap().tokenizer_json).unwrap();
    let encode = |text: &str| tokenizer.encode(text, false).unwrap().get_ids().to_vec();
    // " hell" and "o"; "he", "l" and "p".
    assert_eq!(encode(" hello"), [259, 255 - u32::from(b'o')]);
    assert_eq!(encode("help"), [256, 255 - u32::from(b'l'), 255 - u32::from(b'p')]);
    assert_eq!(encode("é"), [255 - 0xc3, 255 - 0xa9]);
    assert_eq!(
        tokenizer.decode(&[259, 255 - 0xc3, 255 - 0xa9], false).unwrap(),
        " hellé"
    );
    let id = |text: &str| tokenizer.token_to_id(text).unwrap();
    let first = TOKENS as u32;
    assert_eq!(
        (id("<|endoftext|>"), id("<|startoftranscript|>"), id("<|en|>")),
        (first, first + 1, first + 2)
    );
    assert_eq!((id("<|su|>"), id("<|translate|>")), (first + 100, first + 101));
    assert_eq!(id("<|notimestamps|>") as usize, VOCAB - 1501 - 1);
    let config = &found.generation_config;
    assert_eq!(config["decoder_start_token_id"], id("<|startoftranscript|>"));
    assert_eq!(config["begin_suppress_tokens"], json!([255 - u32::from(b' '), first]));
    let suppressed: Vec<u64> = config["suppress_tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_u64().unwrap())
        .collect();
    for b in "#()*+/:;<=>@[]^_`{|}~".bytes() {
        assert!(suppressed.contains(&(255 - u64::from(b))), "{}", char::from(b));
    }
    // A comma is speech; times are not, and are left to the rules of times.
    assert!(!suppressed.contains(&(255 - u64::from(b','))) && suppressed.iter().all(|&t| t < (VOCAB - 1501) as u64));
    assert!(suppressed.is_sorted());
    assert!(
        config.get("alignment_heads").is_none(),
        "unknown sizes have unknown heads"
    );
}

#[test]
fn what_does_not_fit_is_named() {
    let with = |at: usize, value: u32| {
        let mut file = file(false);
        file[at..at + 4].copy_from_slice(&value.to_le_bytes());
        parse(file).err().map(|e| e.to_string()).unwrap_or_default()
    };
    let tokens_at = 4 + 44 + 8 + 4 * MELS * 201;
    for (at, value, said) in [
        (0, 7, "does not start"),
        (4, VOCAB as u32 - 99, "1 to 100 languages"),
        (12, 64, "64 wide"),
        (48, u32::MAX, "ends early"),
        (tokens_at, u32::MAX, "4294967295 tokens"),
        (tokens_at + 4, u32::MAX, "4294967295 bytes of a token"),
    ] {
        let error = with(at, value);
        assert!(
            error.contains(said) && error.starts_with("ggml-tiny.bin: "),
            "{at}: {error}"
        );
    }
    let mut old = file(true);
    old[44..48].copy_from_slice(&7u32.to_le_bytes());
    assert!(parse(old).unwrap_err().to_string().contains("layout 0"));
}

#[test]
fn truncated_file_is_an_error() {
    let whole = file(false);
    let head = 4 + 44 + 8 + 4 * MELS * 201;
    for len in (0..60)
        .chain(head..head + 1500)
        .chain((head..whole.len()).step_by(4999))
    {
        let error = match parse(whole[..len].to_vec()) {
            Err(e) => e,
            // Between two tensors: the file is whole, the model is not.
            Ok(found) => {
                let def = cactus_models::build(&found.config).unwrap();
                let names: Vec<&str> = found.tensors.names();
                let weights = def.components.iter().flat_map(|c| c.graph.weights());
                assert!(
                    weights.flat_map(|(_, e)| e.sources()).any(|n| !names.contains(&n)),
                    "{len}"
                );
                continue;
            }
        };
        assert!(
            [ErrorKind::Malformed, ErrorKind::Missing].contains(&error.kind()),
            "{len}: {error}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Whatever the bytes: an error, or weights that can be read.
    #[test]
    fn changed_file_never_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), part in 0..3u8) {
        let mut bytes = file(true);
        let tokens_at = 4 + 44 + 8 + 4 * MELS * 201;
        let range = match part {
            0 => 0..56,
            1 => tokens_at..tokens_at + 4 + 8 * TOKENS,
            _ => tokens_at..bytes.len(),
        };
        for (at, value) in changes {
            bytes[range.start + at.index(range.len())] = value;
        }
        if let Ok(found) = parse(bytes) {
            for name in found.tensors.names() {
                let tensor = found.tensors.read(name).unwrap();
                prop_assert_eq!(Some(tensor.shape().to_vec()), found.tensors.shape(name));
            }
            let _ = cactus_models::build(&found.config);
        }
    }
}
