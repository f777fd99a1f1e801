//! A saved session of somebody else.

use cactus_bundle::Checksum;
use cactus_engine::{CancelToken, GenerateOptions, LoadOptions, Model};
use cactus_import::{ConvertOptions, convert};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A tiny model with a sliding window in some layers.
fn model() -> &'static Arc<Model> {
    static MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    MODEL.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/models/gemma3_text");
        let bundle = folder.path().join("bundle");
        convert(&source, &bundle, &ConvertOptions::default(), &mut |_, _| {}).expect("the golden model");
        let options = LoadOptions {
            context_tokens: 128,
            chunk_tokens: 16,
            threads: Some(1),
            ..LoadOptions::default()
        };
        // What is mapped stays after its file is gone.
        Model::load(&bundle, &options).expect("the golden model")
    })
}

fn options() -> GenerateOptions {
    GenerateOptions {
        max_tokens: 2,
        ignore_eos: true,
        ..GenerateOptions::default()
    }
}

/// A file without its checksum, which is added: it keeps out damage, not malice. What is accepted can be gone on with.
pub(crate) fn saved_session(data: &[u8]) -> bool {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let path = folder.path().join("session");
    let mut file = data.to_vec();
    file.extend(Checksum::of(data).0.to_le_bytes());
    std::fs::write(&path, file).expect("a temporary file");
    let mut session = model().session().expect("memory of a tiny model");
    let accepted = session.restore(&path).is_ok();
    let mut prompt = session.tokens().to_vec();
    assert!(accepted || prompt.is_empty());
    prompt.truncate(120);
    prompt.push(5);
    // Wild states may give logits that are no numbers, which is an error.
    let _ = session.generate(&prompt, &options(), &CancelToken::new(), &mut |_| {});
    accepted
}

pub(crate) fn saved_session_seeds() -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let path = folder.path().join("session");
    let mut session = model().session().expect("memory of a tiny model");
    let mut seeds = Vec::new();
    for length in [1, 20, 100] {
        let prompt: Vec<u32> = (0..length).map(|i| 3 + i % 40).collect();
        let made = session.prefill(&prompt, &CancelToken::new()).map(drop);
        made.and_then(|()| session.save(&path, ["", "note", "[{}]"][seeds.len()]))
            .expect("a saved session");
        let mut seed = std::fs::read(&path).expect("a saved session");
        seed.truncate(seed.len() - 8);
        seeds.push(seed);
    }
    seeds
}
