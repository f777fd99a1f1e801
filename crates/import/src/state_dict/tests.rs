use super::*;
use crate::ErrorKind;
use proptest::prelude::*;
use std::sync::Arc;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/pt2")
        .join(name)
}

fn parse(bytes: Vec<u8>) -> Result<StateDict> {
    StateDict::from_bytes(Path::new("x.pt"), Arc::new(bytes))
}

#[test]
fn open_reads_every_type_view_and_name_as_torch_does() {
    let dict = StateDict::open(&golden("checkpoint.pt")).unwrap();
    let path = golden("checkpoint.safetensors");
    let want = crate::SafetensorsSource::from_bytes(&path, crate::open_bytes(&path).unwrap()).unwrap();
    assert_eq!(dict.names().len(), 11);
    for name in want.names() {
        let (found, want) = (dict.read(name).unwrap(), want.read(name).unwrap());
        assert_eq!(found.shape(), want.shape(), "{name}");
        assert_eq!(found.as_f32().unwrap(), want.as_f32().unwrap(), "{name}");
    }
    for (name, ty) in [("count", "I64"), ("mask", "BOOL"), ("small", "I16")] {
        assert_eq!(dict.stored_type(name), Some(ty));
        assert_eq!(dict.read(name).unwrap_err().kind(), ErrorKind::Unsupported);
    }
    let about = "state dict of torch.save, 11 tensors (F32 5, BF16 1, BOOL 1, F16 1, F64 1, I16 1, I64 1)";
    assert_eq!(dict.describe(), about);
}

/// A zip of stored entries, as torch writes them.
fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    use std::io::Write;
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, bytes) in entries {
        writer.start_file(format!("archive/{name}"), options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// `{'w': tensor}` of a float storage `0` with these numbers: first element, sizes, strides.
fn tensor(offset: u8, sizes: [u8; 2], strides: [u8; 2]) -> Vec<u8> {
    let mut p = b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n((".to_vec();
    p.extend(b"X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ");
    p.extend([b'K', offset, b'K', sizes[0], b'K', sizes[1], 0x86]);
    p.extend([b'K', strides[0], b'K', strides[1], 0x86, 0x89]);
    p.extend(b"ccollections\nOrderedDict\n)RtRs.");
    p
}

#[test]
fn a_tensor_lies_within_its_storage_or_is_an_error() {
    let data = [0u8, 0, 128, 63, 0, 0, 0, 64, 0, 0, 64, 64, 0, 0, 128, 64];
    let read = |p: &[u8]| parse(zip(&[("data.pkl", p), ("data/0", &data)]));
    let found = read(&tensor(0, [2, 2], [1, 2])).unwrap().read("w").unwrap();
    assert_eq!(found.as_f32().unwrap(), [1.0, 3.0, 2.0, 4.0]);
    for (offset, sizes, strides) in [
        (1, [2, 2], [2, 1]),
        (0, [3, 2], [2, 1]),
        (0, [2, 2], [4, 1]),
        (0, [255, 2], [0, 1]),
    ] {
        let error = read(&tensor(offset, sizes, strides)).unwrap_err();
        assert_eq!(error.tensor(), Some("w"), "{error}");
    }
    let error = parse(zip(&[("data.pkl", &tensor(0, [2, 2], [2, 1]))])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
}

#[test]
fn what_is_no_state_dict_is_an_error_that_says_what_it_is() {
    let long = [b"\x80\x02".to_vec(), vec![b'N'; 1 << 23]].concat();
    let cases: [(&[u8], &str); 12] = [
        (b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.", "`os.system`"),
        (b"\x80\x02c__main__\nNet\n)\x81.", "`__main__.Net`"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "`os.system`"),
        (b"\x80\x02}.", "none"),
        (b"\x80\x02].", "a dict of tensors"),
        (b"\x80\x02)", "too early"),
        (b"\x80\x02R.", "takes more than it has made"),
        (b"\x80\x02(0.", "takes more than it has made"),
        (b"\x80\x09.", "protocol 9"),
        (b"\x80\x02h\x05.", "never kept"),
        (b"\x80\x02}K\x01u.", "takes more"),
        (&long, "values"),
    ];
    for (pickle, word) in cases {
        let error = parse(zip(&[("data.pkl", pickle)])).unwrap_err().to_string();
        assert!(error.contains(word), "{word:?} not in {error}");
    }
    let cases: [(Vec<u8>, &str); 4] = [
        (b"\x80\x02}.".to_vec(), "a zip is expected"),
        (zip(&[("other", b"x")]), "`data.pkl`"),
        (zip(&[("data.pkl", b"\x80\x02}."), ("byteorder", b"big")]), "big-endian"),
        (
            zip(&[("data.pkl", b"\x80\x02}."), ("constants.pkl", b"")]),
            "TorchScript",
        ),
    ];
    for (bytes, word) in cases {
        let error = parse(bytes).unwrap_err().to_string();
        assert!(error.contains(word), "{word:?} not in {error}");
    }
}

/// Operations that are cheap to write and could be dear to read.
#[test]
fn few_bytes_do_not_become_many_values() {
    // One list, recalled into itself and rebuilt again and again: nothing is copied and nothing recurs.
    let mut pickle = b"\x80\x02ctorch\nSize\nq\x000]q\x01".to_vec();
    for _ in 0..100_000 {
        pickle.extend(b"h\x01a");
    }
    for _ in 0..100_000 {
        pickle.extend(b"0h\x00h\x01\x85R");
    }
    pickle.push(b'.');
    let error = parse(zip(&[("data.pkl", &pickle)])).unwrap_err().to_string();
    assert!(error.contains("a dict of tensors"), "{error}");
}

proptest! {
    #[test]
    fn random_edits_of_a_file_are_ok_or_an_error(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = std::fs::read(golden("checkpoint.pt")).unwrap();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        for bytes in [bytes.clone(), bytes[..cut.index(bytes.len())].to_vec()] {
            if let Ok(dict) = parse(bytes) {
                for name in dict.names() {
                    let _ = dict.read(name);
                }
            }
        }
    }

    #[test]
    fn random_pickles_are_ok_or_an_error(
        // Operations and small operands more often than other bytes.
        bytes in proptest::collection::vec(prop_oneof![
            prop::sample::select(b"NKMJGXC])}(tlaesu0qrhjcQRb.\x80\x85\x86\x87\x88\x89\x8a\x8c\x93\x94\x95\n\x00\x01\x02".to_vec()),
            any::<u8>(),
        ], 0..200),
    ) {
        let _ = pickle::Pickle::read(&bytes);
        let edited: Vec<u8> = tensor(0, [2, 2], [2, 1]).into_iter().chain(bytes).collect();
        let at = edited.len() / 2;
        let _ = pickle::Pickle::read(&edited[at..]);
    }
}
