use super::*;
use crate::ErrorKind;
use crate::gguf::writer::{Tensor, Writer};
use proptest::prelude::*;

/// A small file with every value type, nesting, and tensors of three types.
fn sample() -> Writer {
    let mut writer = Writer::new()
        .key("u8", Value::U8(1))
        .key("i8", Value::I8(-1))
        .key("u16", Value::U16(2))
        .key("i16", Value::I16(-2))
        .count("u32", 3)
        .key("i32", Value::I32(-3))
        .key("f32", Value::F32(0.5))
        .key("bool", Value::Bool(true))
        .text("string", "héllo")
        .key("u64", Value::U64(1 << 40))
        .key("i64", Value::I64(-4))
        .key("f64", Value::F64(0.25));
    for (i, array) in [
        Array::U8(vec![1, 2]),
        Array::I8(vec![-1]),
        Array::U16(vec![3]),
        Array::I16(vec![-3]),
        Array::U32(vec![4]),
        Array::I32(vec![-4, 5]),
        Array::F32(vec![1.5]),
        Array::Bool(vec![true, false]),
        Array::String(vec!["a".into(), String::new()]),
        Array::Array(vec![
            Array::U8(vec![]),
            Array::Array(vec![Array::String(vec!["x".into()])]),
        ]),
        Array::U64(vec![6]),
        Array::I64(vec![-6]),
        Array::F64(vec![]),
    ]
    .into_iter()
    .enumerate()
    {
        writer = writer.key(&format!("array.{i}"), Value::Array(array));
    }
    writer = writer.f32("a", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    writer.tensors.push(Tensor {
        name: "q".into(),
        dims: vec![64, 2],
        ty: GgmlType::Q8_0.id(),
        data: vec![7; 4 * 34],
        offset: None,
    });
    writer.tensors.push(Tensor {
        name: "h".into(),
        dims: vec![3],
        ty: GgmlType::F16.id(),
        data: vec![0; 6],
        offset: None,
    });
    writer
}

#[test]
fn parse_sample_gives_what_was_written() {
    for (version, alignment) in [(2, 32), (3, 32), (3, 64)] {
        let mut writer = sample();
        writer.version = version;
        writer.alignment = alignment;
        if alignment != 32 {
            writer = writer.count("general.alignment", alignment as u32);
        }
        let bytes = writer.bytes();
        let file = GgufFile::parse(&bytes).unwrap();
        assert_eq!((file.version, file.alignment), (version, alignment));
        let found: Vec<_> = file.metadata.iter().map(|(k, v)| (k.to_owned(), v.clone())).collect();
        assert_eq!(found, writer.metadata);
        for (info, written) in file.tensors.iter().zip(&writer.tensors) {
            assert_eq!(info.name, written.name);
            assert_eq!(info.ty.id(), written.ty);
            let dims: Vec<u64> = info.shape.iter().rev().map(|&d| d as u64).collect();
            assert_eq!(dims, written.dims);
            assert_eq!(&bytes[info.range.clone()], &written.data[..]);
            assert_eq!(info.range.start % alignment, 0);
        }
        assert_eq!(file.tensors.len(), 3);
    }
}

#[test]
fn parse_of_every_truncation_is_an_error() {
    let bytes = sample().bytes();
    for len in 0..bytes.len() {
        let error = GgufFile::parse(&bytes[..len]).expect_err("truncated");
        assert_eq!(error.kind(), ErrorKind::Malformed, "{len}: {error}");
    }
}

#[test]
fn parse_of_every_byte_flip_is_ok_or_an_error() {
    let bytes = sample().bytes();
    let head = bytes.len() - 4 * 34 - 64;
    let mut refused = 0;
    for at in 0..head {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            match GgufFile::parse(&bytes) {
                Ok(file) => {
                    for t in &file.tensors {
                        assert!(t.range.end <= bytes.len());
                        assert_eq!(t.ty.size_bytes(t.elems()), Some(t.range.len()));
                    }
                }
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
    assert!(refused > head, "most flips in the head are noticed: {refused}");
}

proptest! {
    #[test]
    fn parse_of_random_edits_is_ok_or_an_error(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = sample().bytes();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = GgufFile::parse(&bytes);
        bytes.truncate(cut.index(bytes.len()) + 1);
        let _ = GgufFile::parse(&bytes);
    }

    #[test]
    fn parse_of_random_bytes_after_a_valid_start_is_ok_or_an_error(
        tail in proptest::collection::vec(any::<u8>(), 0..300),
        counts in (0u64..4, 0u64..4),
    ) {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(counts.0.to_le_bytes());
        bytes.extend(counts.1.to_le_bytes());
        bytes.extend(tail);
        let _ = GgufFile::parse(&bytes);
    }
}

/// Expects an error of `kind` whose text has every one of `words`.
fn refused(writer: &Writer, kind: ErrorKind, words: &[&str]) {
    let error = GgufFile::parse(&writer.bytes()).expect_err("hostile file");
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word:?} not in {error:?}");
    }
}

fn with_tensor(dims: &[u64], ty: u32, data: usize, offset: Option<u64>) -> Writer {
    let mut writer = sample();
    writer.tensors.push(Tensor {
        name: "evil".into(),
        dims: dims.to_vec(),
        ty,
        data: vec![0; data],
        offset,
    });
    writer
}

#[test]
fn parse_of_hostile_tensor_names_it() {
    use ErrorKind::{Malformed, Unsupported};
    let huge = u64::MAX / 2;
    type Case<'a> = (&'a [u64], u32, Option<u64>, ErrorKind, &'a str);
    let cases: &[Case<'_>] = &[
        (&[huge, huge], 0, None, Malformed, "overflows"),
        (&[1 << 62], 0, None, Malformed, "overflows"),
        (&[1 << 40], 0, None, Malformed, "past the file"),
        (&[0], 0, None, Malformed, "zero"),
        (&[1; 5], 0, None, Malformed, "rank"),
        (&[33], 8, None, Malformed, "Q8_0 blocks of 32"),
        (&[32], 17, None, Unsupported, "IQ2_XS"),
        (&[32], 999, None, Unsupported, "999"),
        (&[8], 0, Some(0), Malformed, "overlaps that of `a`"),
        (&[8], 0, Some(8), Malformed, "multiple of the alignment"),
        (&[8], 0, Some(huge & !31), Malformed, "past the file"),
        (&[8], 0, Some(!31), Malformed, "past the file"),
    ];
    for (dims, ty, offset, kind, word) in cases {
        let writer = with_tensor(dims, *ty, 32, *offset);
        refused(&writer, *kind, &["`evil`", word]);
    }
}

#[test]
fn parse_of_repeated_names_is_an_error() {
    let twice = sample().f32("a", &[1], &[0.0]);
    refused(&twice, ErrorKind::Malformed, &["`a`", "twice"]);
    let twice = sample().count("u32", 1);
    refused(&twice, ErrorKind::Malformed, &["`u32`", "twice"]);
}

#[test]
fn parse_of_bad_header_is_an_error() {
    let with_version = |version| Writer { version, ..sample() };
    refused(&with_version(1), ErrorKind::Unsupported, &["version 1"]);
    refused(&with_version(4), ErrorKind::Unsupported, &["version 4"]);
    refused(
        &with_version(3u32.swap_bytes()),
        ErrorKind::Unsupported,
        &["big-endian"],
    );
    for alignment in [0, 3, 48, 1 << 30] {
        let writer = sample().count("general.alignment", alignment);
        refused(&writer, ErrorKind::Malformed, &["general.alignment"]);
    }
    let error = GgufFile::parse(b"GGML\x03\0\0\0").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
}

#[test]
fn parse_of_counts_beyond_the_file_allocates_nothing() {
    for (tensors, entries) in [(u64::MAX, 0), (0, u64::MAX), (1 << 40, 1 << 40)] {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(tensors.to_le_bytes());
        bytes.extend(entries.to_le_bytes());
        bytes.extend([0; 64]);
        let error = GgufFile::parse(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed);
        assert!(error.to_string().contains("do not fit"), "{error}");
    }
}

#[test]
fn parse_of_deep_nesting_is_an_error() {
    let mut array = Array::U8(vec![1]);
    for _ in 0..MAX_NESTING {
        array = Array::Array(vec![array]);
    }
    let writer = sample().key("deep", Value::Array(array));
    refused(&writer, ErrorKind::Unsupported, &["`deep`"]);
}

#[test]
fn parse_of_bad_value_is_an_error() {
    let bytes = Writer::new().key("flag", Value::Bool(true)).bytes();
    let at = bytes.iter().rposition(|&b| b == 1).unwrap();
    let mut bad_bool = bytes.clone();
    bad_bool[at] = 2;
    assert!(GgufFile::parse(&bad_bool).unwrap_err().to_string().contains("0 or 1"));
    let mut bad_type = bytes;
    bad_type[at - 4] = 99;
    assert!(GgufFile::parse(&bad_type).unwrap_err().to_string().contains("99"));
    let mut bad_text = Writer::new().text("k", "abcd").bytes();
    let at = bad_text.windows(4).position(|w| w == b"abcd").unwrap();
    bad_text[at] = 0xff;
    assert!(GgufFile::parse(&bad_text).unwrap_err().to_string().contains("UTF-8"));
}
