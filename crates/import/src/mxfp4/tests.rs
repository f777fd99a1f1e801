use super::*;
use crate::{ErrorKind, open};
use std::path::Path;
use std::sync::Arc;

/// A safetensors file of bytes from rows of name, shape and data.
fn file(tensors: &[(&str, &[usize], &[u8])]) -> SafetensorsSource {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (name, shape, bytes) in tensors {
        let start = data.len();
        data.extend_from_slice(bytes);
        let entry = serde_json::json!({"dtype": "U8", "shape": shape, "data_offsets": [start, data.len()]});
        header.insert((*name).to_owned(), entry);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let bytes = [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat();
    SafetensorsSource::from_bytes(Path::new("m.safetensors"), Arc::new(bytes)).unwrap()
}

fn blocks() -> Vec<u8> {
    (0..4 * 16).map(|i: u8| i.wrapping_mul(37)).collect()
}

#[test]
fn numbers_of_four_bits_are_multiplied_by_a_power_of_two() {
    let blocks = blocks();
    let source = file(&[
        ("w_blocks", &[2, 2, 1, 16], &blocks),
        ("w_scales", &[2, 2, 1], &[127, 128, 120, 0]),
    ]);
    let source = Mxfp4Source::new(source).unwrap();
    assert_eq!(
        (source.names(), source.shape("w").unwrap()),
        (vec!["w"], vec![2, 2, 32])
    );
    assert_eq!(source.stored_type("w"), Some("MXFP4"));
    let signed = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let number = |code: u8| signed[usize::from(code % 8)] * if code < 8 { 1.0f64 } else { -1.0 };
    let want: Vec<f32> = blocks
        .iter()
        .enumerate()
        .flat_map(|(i, byte)| {
            let factor = 2f64.powi([0, 1, -7, -127][i / 16]);
            [number(byte % 16), number(byte / 16)].map(|v| (v * factor) as f32)
        })
        .collect();
    assert_eq!(source.read("w").unwrap().as_f32().unwrap(), want);
    let rows = source.read_rows("w", 1..3).unwrap().unwrap();
    assert_eq!((rows.shape(), rows.as_f32().unwrap()), (&[2, 32][..], &want[32..96]));
    assert!(source.read_rows("w", 3..5).is_none());
}

#[test]
fn what_does_not_fit_names_the_tensor() {
    let blocks = blocks();
    let whole: (&str, &[usize], &[u8]) = ("w_blocks", &[2, 2, 1, 16], &blocks);
    let scales: (&str, &[usize], &[u8]) = ("w_scales", &[2, 2, 1], &[127; 4]);
    for (tensors, text) in [
        (vec![whole], "there is no `w_scales`"),
        (vec![scales], "there is no `w_blocks`"),
        (vec![whole, ("w_scales", &[4, 1], &[127; 4])], "does not fit the scales"),
        (
            vec![("w_blocks", &[2, 4, 8], &blocks), scales],
            "expected blocks of 16 bytes",
        ),
        (
            vec![("w_blocks", &[64], &blocks), scales],
            "expected blocks of 16 bytes",
        ),
        (vec![whole, scales, ("w", &[1], &[0])], "in numbers, too"),
    ] {
        let error = Mxfp4Source::new(file(&tensors)).err().expect(text);
        assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
        assert!(error.to_string().contains(text) && error.tensor().is_some(), "{error}");
    }
    for scale in [254, 255] {
        let source = Mxfp4Source::new(file(&[whole, ("w_scales", &[2, 2, 1], &[127, 127, scale, 127])])).unwrap();
        let error = source.read("w").unwrap_err();
        assert!(error.to_string().contains(&format!("the scale {scale}")), "{error}");
        assert!(source.read_rows("w", 0..2).unwrap().is_ok());
    }
}

/// The same model in numbers and packed, as released.
#[test]
fn packed_gpt_oss_is_the_one_in_numbers() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden");
    let numbers = open(&golden.join("models/gpt_oss")).unwrap();
    for packed in ["mxfp4/gpt_oss", "mxfp4/gpt_oss.gguf"] {
        is_the_one_in_numbers(&numbers, &open(&golden.join(packed)).unwrap());
    }
}

fn is_the_one_in_numbers(numbers: &crate::SourceModel, packed: &crate::SourceModel) {
    assert_eq!(packed.tensors.names(), numbers.tensors.names());
    let mut of_four_bits = 0;
    for name in numbers.tensors.names() {
        let (want, found) = (numbers.tensors.read(name).unwrap(), packed.tensors.read(name).unwrap());
        assert_eq!(found.shape(), want.shape(), "{name}");
        assert!(found.as_f32().unwrap() == want.as_f32().unwrap(), "{name}");
        of_four_bits += usize::from(packed.tensors.stored_type(name) == Some("MXFP4"));
    }
    assert_eq!(of_four_bits, 4);
    let build = |model: &crate::SourceModel| cactus_models::build(&model.config).unwrap();
    assert!(build(packed).decoder() == build(numbers).decoder());
}
