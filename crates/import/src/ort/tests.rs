use super::*;
use crate::{ConvertOptions, ErrorKind, SafetensorsSource, convert, open};
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};
use tokenizers::Tokenizer;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ort/moonshine")
}

static PROGRAMS: LazyLock<[Vec<u8>; 2]> =
    LazyLock::new(|| [ENCODER, DECODER].map(|name| std::fs::read(golden().join(name)).unwrap()));

fn parsed(programs: [Vec<u8>; 2]) -> Result<(Value, OrtSource)> {
    let bytes = programs.map(|p| -> SharedBytes { Arc::new(p) });
    read([Path::new(ENCODER), Path::new(DECODER)], bytes)
}

#[test]
fn the_folder_is_the_model_that_was_written() {
    written(&golden(), json!(false), "36 weights (F32 18, U8 18)");
}

#[test]
fn the_folder_of_the_other_form_is_the_model_that_was_written() {
    written(
        &golden().with_file_name("moonshine_sums"),
        json!(true),
        "35 weights (I8 20, F32 15)",
    );
}

fn written(folder: &Path, tied: Value, weights: &str) {
    let model = open(folder).unwrap();
    assert_eq!(model.format, "onnxruntime");
    assert_eq!(
        model.config,
        json!({
            "model_type": "moonshine", "vocab_size": 272, "hidden_size": 12, "intermediate_size": 20,
            "encoder_num_hidden_layers": 1, "decoder_num_hidden_layers": 1,
            "encoder_num_attention_heads": 2, "decoder_num_attention_heads": 2,
            "max_position_embeddings": 194, "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
            "tie_word_embeddings": tied, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
        })
    );
    assert_eq!(
        model.tensors.describe(),
        format!("Moonshine for ONNX Runtime, {weights}")
    );
    let path = folder.join("expected.safetensors");
    let expected = SafetensorsSource::from_bytes(&path, open_bytes(&path).unwrap()).unwrap();
    assert_eq!(model.tensors.names(), expected.names());
    for name in expected.names() {
        let (found, want) = (model.tensors.read(name).unwrap(), expected.read(name).unwrap());
        assert_eq!(model.tensors.shape(name).as_deref(), Some(want.shape()), "{name}");
        assert_eq!(found.as_f32().unwrap(), want.as_f32().unwrap(), "{name}");
    }
    let made = tempfile::tempdir().unwrap();
    let outcome = convert(
        folder,
        &made.path().join("m"),
        &ConvertOptions::default(),
        &mut |_, _| {},
    )
    .unwrap();
    assert!(outcome.notes.is_empty(), "{:?}", outcome.notes);
}

#[test]
fn tokens_are_read_and_written_as_sentencepiece_does() {
    let files = open(&golden()).unwrap().tokenizer.unwrap();
    let tokenizer = Tokenizer::from_bytes(&files.tokenizer_json).unwrap();
    let ids = |text: &str| tokenizer.encode(text, false).unwrap().get_ids().to_vec();
    let text = |ids: &[u32]| tokenizer.decode(ids, true).unwrap();
    // 259 is the mark of a space, then letters, then pieces: "▁the" before "▁th", of which it is not made.
    assert_eq!(ids("the a"), [266, 267]);
    assert_eq!(ids("at"), [267, 263]);
    // No token of this letter: its bytes.
    assert_eq!(ids("ü"), [259, 3 + 0xc3, 3 + 0xbc]);
    assert_eq!(
        text(&[1, 266, 267, 259, 3 + 0xc3, 3 + 0xbc, 269, 271, 270, 2]),
        "the a üé"
    );
}

#[test]
fn what_is_no_such_model_is_refused_with_the_place() {
    let [encoder, decoder] = PROGRAMS.clone();
    let refused = |encoder: &[u8], decoder: &[u8]| parsed([encoder.to_vec(), decoder.to_vec()]).unwrap_err();
    let mut other = encoder.clone();
    other[4] = b'X';
    let error = refused(&other, &decoder);
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Malformed, Some(4)));
    assert!(error.to_string().contains(ENCODER), "{error}");
    let error = refused(&encoder, &decoder[..decoder.len() / 2]);
    assert!(
        error.kind() == ErrorKind::Malformed && error.to_string().contains(DECODER),
        "{error}"
    );
    let error = refused(&decoder, &encoder);
    assert!(
        matches!(error.kind(), ErrorKind::Missing | ErrorKind::Malformed),
        "{error}"
    );
    for bytes in [&b"\x03ab"[..], &[0x80], &[0xff, 0xff, 1]] {
        let error = tokens(bytes).unwrap_err().to_string();
        assert!(error.contains("in the middle of a token"), "{error}");
    }
    let error = tokenizer(b"\x01a").unwrap_err().to_string();
    assert!(error.contains("found 1 tokens"), "{error}");
    let long = [&[0x80 + 2, 1][..], &[b'x'; 130]].concat();
    assert_eq!(tokens(&long).unwrap(), [[b'x'; 130]]);
}

#[test]
fn shapes_of_too_many_elements_are_refused_for_every_type() {
    let constant_of = |kind: i32, sizes: [i64; 2]| {
        let mut bytes: Vec<u8> = Vec::new();
        // The list of fields at 4, of which the last three are there; the table at 20; the sizes at 36; no data at 56.
        bytes.extend(20u32.to_le_bytes());
        for number in [14u16, 16, 0, 0, 4, 8, 12, 0] {
            bytes.extend(number.to_le_bytes());
        }
        for number in [16, 36 - 24, kind, 56 - 32, 2] {
            bytes.extend(number.to_le_bytes());
        }
        for size in sizes {
            bytes.extend(size.to_le_bytes());
        }
        bytes.extend(0u32.to_le_bytes());
        let buffer = Buffer::new(&bytes);
        buffer.root().and_then(|table| constant(&table))
    };
    for kind in [F32, U8, I8, I64, 9] {
        let error = constant_of(kind, [1 << 40, 1 << 40]).unwrap_err().to_string();
        assert!(error.contains("too many elements"), "{kind}: {error}");
        assert_eq!(constant_of(kind, [1 << 40, 0]).unwrap().shape, [1 << 40, 0]);
    }
}

/// Offsets that lead to one place again and again cost no more than the file.
#[test]
fn parts_that_are_used_too_often_are_refused() {
    // One table, without fields, that a list has thousands of times.
    let buffer_of = |count: u32| {
        let mut bytes: Vec<u8> = Vec::new();
        // The list of fields of the root: one, at 4; its table at 8; the list at 16; the other table behind it.
        bytes.extend(12u32.to_le_bytes());
        bytes.extend(6u16.to_le_bytes());
        bytes.extend(8u16.to_le_bytes());
        bytes.extend(4u16.to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend(8i32.to_le_bytes());
        bytes.extend(4u32.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        for i in 0..count {
            bytes.extend((4 * (count - i)).to_le_bytes());
        }
        bytes.extend((-8i32).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(60_000u16.to_le_bytes());
        bytes.resize(bytes.len() + 60_000, 0);
        bytes
    };
    let tables = |bytes: &[u8]| Buffer::new(bytes).root().and_then(|t| t.tables(0)).map(|t| t.len());
    assert_eq!(tables(&buffer_of(3)).unwrap(), 3);
    let error = tables(&buffer_of(1000)).unwrap_err().to_string();
    assert!(error.contains("used too often"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Bytes changed anywhere: refused, or a model whose weights can all be read.
    #[test]
    fn changed_programs_are_refused_or_read(
        which in 0usize..2, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), end in any::<prop::sample::Index>(), cut in any::<bool>(),
    ) {
        let mut programs = PROGRAMS.clone();
        let program = &mut programs[which];
        for (at, byte) in changes {
            let at = at.index(program.len());
            program[at] = byte;
        }
        if cut {
            let end = end.index(program.len());
            program.truncate(end);
        }
        if let Ok((config, source)) = parsed(programs) {
            let _ = cactus_models::build(&config);
            for name in source.names() {
                let shape = source.shape(name).unwrap();
                let tensor = source.read(name).unwrap();
                prop_assert_eq!(tensor.shape(), &shape[..]);
            }
        }
    }

    #[test]
    fn any_bytes_of_tokens_are_refused_or_a_tokenizer(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(json) = tokenizer(&bytes) {
            prop_assert!(json["model"]["vocab"].as_object().is_some_and(|v| v.len() >= 259));
        }
    }
}
