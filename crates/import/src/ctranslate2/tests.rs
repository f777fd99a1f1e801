use super::*;
use crate::{ErrorKind, open};
use proptest::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

fn golden(form: &str, case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden")
        .join(form)
        .join(case)
}

/// A folder as CTranslate2's converter writes it. The tokenizer is that of the folder that it was made of.
fn folder(case: &str) -> tempfile::TempDir {
    let made = tempfile::tempdir().unwrap();
    let files = [
        (WEIGHTS, "ctranslate2"),
        ("config.json", "ctranslate2"),
        ("tokenizer.json", "speech"),
    ];
    for (name, form) in files {
        std::fs::copy(golden(form, case).join(name), made.path().join(name)).unwrap();
    }
    made
}

fn file() -> Vec<u8> {
    std::fs::read(golden("ctranslate2", "whisper").join(WEIGHTS)).unwrap()
}

fn parse(bytes: Vec<u8>) -> Result<(Value, Box<dyn TensorSource>)> {
    read(Path::new(WEIGHTS), Arc::new(bytes))
}

/// What CTranslate2's own converter wrote is the folder that it was made of.
#[test]
fn weights_equal_those_of_the_folder() {
    for (case, tolerance) in [("whisper", 0.5 / 127.0), ("whisper_en", 0.0)] {
        let made = folder(case);
        let found = open(made.path()).unwrap();
        let expected = open(&golden("speech", case)).unwrap();
        assert_eq!(found.format, "ctranslate2");
        let (found, expected) = (&found.tensors, &expected.tensors);
        assert_eq!(found.names(), expected.names(), "{case}");
        for name in expected.names() {
            let (got, want) = (found.read(name).unwrap(), expected.read(name).unwrap());
            assert_eq!(got.shape(), want.shape(), "{case}: {name}");
            let width = want.shape()[1..].iter().product::<usize>();
            let (got, want) = (got.as_f32().unwrap(), want.as_f32().unwrap());
            // Vectors and positions keep their precision; matrices and convolutions have a scale for each row.
            let tolerance = if found.stored_type(name) == Some("I8") {
                tolerance
            } else {
                0.0
            };
            for (got, want) in got.chunks(width).zip(want.chunks(width)) {
                let most = tolerance * 1.001 * want.iter().fold(0f32, |m, v| m.max(v.abs()));
                let fits = got.iter().zip(want).all(|(g, w)| (g - w).abs() <= most);
                assert!(fits, "{case}: {name}: {got:?} is not {want:?}");
            }
        }
        let rows = found
            .read_rows("model.decoder.embed_tokens.weight", 3..5)
            .unwrap()
            .unwrap();
        let whole = found.read("model.decoder.embed_tokens.weight").unwrap();
        assert_eq!(rows.as_f32().unwrap(), &whole.as_f32().unwrap()[3 * 32..5 * 32]);
    }
    let about = "CTranslate2 version 6, 89 weights (F32 54, I8 35)";
    let made = folder("whisper");
    assert_eq!(open(made.path()).unwrap().tensors.describe(), about);
}

#[test]
fn configuration_is_that_of_the_folder() {
    for case in ["whisper", "whisper_en"] {
        let made = folder(case);
        let found = open(made.path()).unwrap();
        let expected = open(&golden("speech", case)).unwrap();
        for (key, value) in found.config.as_object().unwrap() {
            assert_eq!(value, &expected.config[key], "{case}: {key}");
        }
        for key in ["alignment_heads", "suppress_tokens", "begin_suppress_tokens"] {
            assert_eq!(
                found.generation_config[key], expected.generation_config[key],
                "{case}: {key}"
            );
        }
        let build = |config| cactus_models::build(config).unwrap();
        let (found, expected) = (build(&found.config), build(&expected.config));
        for (found, expected) in found.components.iter().zip(&expected.components) {
            assert!(found.graph == expected.graph, "{case}");
        }
    }
}

#[test]
fn what_is_no_whisper_is_named() {
    let with = |at: usize, bytes: &[u8]| {
        let mut file = file();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        parse(file).err().expect("an error").to_string()
    };
    assert!(with(0, &[5]).contains("version 5"));
    assert!(with(6, b"Z").contains("`ZhisperSpec`"));
    assert!(with(4, &[0xff, 0xff]).contains("expected 65535") || with(4, &[0xff, 0xff]).contains("name in UTF-8"));
    // The number of variables, behind the version, the kind and its revision.
    assert!(with(4 + 2 + 12 + 4, &[0xff; 4]).contains("4294967295 variables"));
    let empty = tempfile::tempdir().unwrap();
    std::fs::write(empty.path().join(WEIGHTS), b"").unwrap();
    let error = open(empty.path()).unwrap_err();
    assert_eq!(
        (error.kind(), error.file()),
        (ErrorKind::Malformed, Some(&*empty.path().join(WEIGHTS)))
    );
}

#[test]
fn truncated_file_is_an_error() {
    let whole = file();
    assert!(parse(whole.clone()).is_ok());
    for len in (0..2000).chain((2000..whole.len()).step_by(499)) {
        let error = parse(whole[..len].to_vec()).err().expect("truncated");
        assert_eq!(error.kind(), ErrorKind::Malformed, "{len}: {error}");
    }
    let mut longer = whole;
    longer.push(0);
    assert!(parse(longer).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Whatever the bytes: an error, or weights that can be read.
    #[test]
    fn changed_file_never_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), in_head: bool) {
        let mut bytes = file();
        let len = if in_head { 4000 } else { bytes.len() };
        for (at, value) in changes {
            bytes[at.index(len)] = value;
        }
        if let Ok((config, source)) = parse(bytes) {
            for name in source.names() {
                let tensor = source.read(name).unwrap();
                prop_assert_eq!(Some(tensor.shape().to_vec()), source.shape(name));
            }
            let _ = cactus_models::build(&config);
        }
    }
}
