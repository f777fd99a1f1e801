//! Damaged files of every kind: errors or audio, never a panic, in bounded time and memory.

use cactus_audio::decode::{Limits, Reader};
use proptest::prelude::*;

fn files() -> Vec<(String, Vec<u8>)> {
    let folder = format!("{}/tests/files", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !matches!(path.extension().and_then(|e| e.to_str()), Some("py" | "s16le")))
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Reads all of it. What is accepted is finite and as many frames as were counted.
fn read(bytes: Vec<u8>) {
    let limits = Limits { max_seconds: 60.0 };
    let Ok(mut reader) = Reader::from_bytes(bytes, limits) else {
        return;
    };
    let mut frames = 0;
    while let Ok(Some(block)) = reader.next_block() {
        assert_eq!(block.first_frame, frames);
        assert!(block.samples.len().is_multiple_of(block.channels) && !block.samples.is_empty());
        assert!(block.samples.iter().all(|v| v.is_finite()));
        frames += (block.samples.len() / block.channels) as u64;
    }
    assert!(frames <= 60 * 768_000);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reader_of_damaged_files_gives_audio_or_an_error(
        which in any::<prop::sample::Index>(),
        // Headers lie in front, and what is there does the most harm.
        changes in prop::collection::vec((prop_oneof![0..200usize, 0..30_000usize], prop_oneof![Just(0u8), Just(255), any::<u8>()]), 1..6),
        cut in prop::option::weighted(0.2, 0..30_000usize),
    ) {
        let files = files();
        let mut bytes = files[which.index(files.len())].1.clone();
        for (at, value) in changes {
            let length = bytes.len();
            bytes[at % length] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut % (bytes.len() + 1));
        }
        read(bytes);
    }
}

#[test]
fn reader_of_files_cut_anywhere_gives_audio_or_an_error() {
    for (_, bytes) in files() {
        for cut in (0..bytes.len()).step_by(1 + bytes.len() / 24) {
            read(bytes[..cut].to_vec());
        }
    }
}
