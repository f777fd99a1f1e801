//! Files that are cut short while a model is read: nothing that is made of them leaves their readers.
#![cfg(unix)]

use cactus_import::{ErrorKind, open};
use std::fs;
use std::path::Path;

#[test]
fn tensors_of_files_that_are_cut_short_are_errors() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden");
    for (source, files) in [
        ("models/qwen2", &["model.safetensors"][..]),
        ("gguf/llama.gguf", &["llama.gguf"]),
        ("onnx/silero_vad/products.onnx", &["products.onnx"]),
        ("ort/moonshine", &["encoder_model.ort", "decoder_model_merged.ort"]),
    ] {
        let (from, folder) = (golden.join(source), tempfile::tempdir().unwrap());
        let path = match from.is_dir() {
            true => {
                for entry in fs::read_dir(&from).unwrap() {
                    let entry = entry.unwrap();
                    fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
                }
                folder.path().to_owned()
            }
            false => {
                let path = folder.path().join(from.file_name().unwrap());
                fs::copy(&from, &path).unwrap();
                path
            }
        };
        let model = open(&path).unwrap();
        let tensors = &*model.tensors;
        let names = tensors.names();
        assert!(!names.is_empty(), "{source}");
        for name in &names {
            tensors.read(name).unwrap();
        }
        for file in files {
            let file = fs::File::options().write(true).open(folder.path().join(file)).unwrap();
            file.set_len(0).unwrap();
        }
        for name in names {
            // Parts first: a whole tensor that is read marks the file.
            if let Some(part) = tensors.read_rows(name, 0..1) {
                assert_eq!(part.unwrap_err().kind(), ErrorKind::Io, "{source}: {name}");
            }
            let whole = tensors.read(name).unwrap_err();
            assert_eq!(whole.kind(), ErrorKind::Io, "{source}: {name}: {whole}");
        }
    }
}
