use super::{GgmlType, decode};
use std::path::PathBuf;

/// Golden files of `golden/gguf_blocks.py`: `<name>.bin` holds blocks, `<name>.f32` what the `gguf` package makes of
/// them.
fn golden(ty: GgmlType) -> (Vec<u8>, Vec<u8>) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden/gguf_blocks");
    let read = |extension: &str| {
        let path = folder.join(format!("{}.{extension}", ty.name().to_lowercase()));
        std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    (read("bin"), read("f32"))
}

#[test]
fn table_has_a_row_per_type() {
    for ty in GgmlType::all() {
        assert_eq!(GgmlType::from_id(ty.id()), Some(ty));
        assert_eq!(GgmlType::name_of_id(ty.id()), Some(ty.name()));
    }
    // A new variant makes this match fail to compile, and the count below then asks for its row.
    let count = |ty: GgmlType| match ty {
        GgmlType::F32 | GgmlType::F16 | GgmlType::BF16 | GgmlType::Q4_0 | GgmlType::Q4_1 => 16,
        GgmlType::Q5_0 | GgmlType::Q5_1 | GgmlType::Q8_0 | GgmlType::Q2K | GgmlType::Q3K => 16,
        GgmlType::Q4K | GgmlType::Q5K | GgmlType::Q6K | GgmlType::Iq4Nl | GgmlType::Iq4Xs => 16,
        GgmlType::Mxfp4 => 16,
    };
    assert_eq!(GgmlType::all().count(), count(GgmlType::F32));
    assert_eq!(GgmlType::from_id(17), None);
    assert_eq!(GgmlType::name_of_id(17), Some("IQ2_XS"));
    assert_eq!(GgmlType::name_of_id(1000), None);
}

#[test]
fn decode_golden_blocks_gives_equal_bits() {
    for ty in GgmlType::all() {
        let (bytes, expected) = golden(ty);
        let expected: Vec<f32> = expected
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&b| f32::from_le_bytes(b))
            .collect();
        assert!(expected.len() >= 4 * ty.block_elems(), "{ty}: too few");
        let mut out = vec![0.0; expected.len()];
        decode(ty, &bytes, &mut out).unwrap();
        for (i, (got, want)) in out.iter().zip(&expected).enumerate() {
            assert_eq!(got.to_bits(), want.to_bits(), "{ty} element {i}");
        }
    }
}

#[test]
fn decode_with_odd_sizes_is_an_error() {
    for ty in GgmlType::all() {
        let (elems, bytes) = (ty.block_elems(), ty.block_bytes());
        let blocks = vec![0; 2 * bytes];
        let mut out = vec![0.0; 2 * elems + 1];
        assert!(decode(ty, &blocks, &mut out[..2 * elems]).is_ok(), "{ty}");
        assert!(decode(ty, &[], &mut []).is_ok(), "{ty}");
        for (b, e) in [
            (2 * bytes - 1, 2 * elems),
            (2 * bytes, elems),
            (bytes, 2 * elems),
            (2 * bytes, 2 * elems + 1),
        ] {
            let error = decode(ty, &blocks[..b], &mut out[..e]).unwrap_err();
            assert!(error.to_string().contains(ty.name()), "{error}");
        }
    }
}

#[test]
fn size_bytes_of_partial_block_or_overflow_is_none() {
    assert_eq!(GgmlType::Q4K.size_bytes(512), Some(288));
    assert_eq!(GgmlType::Q4K.size_bytes(128), None);
    assert_eq!(GgmlType::F32.size_bytes(usize::MAX), None);
}
