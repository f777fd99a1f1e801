//! What listens all day takes no memory while it listens.

use cactus_engine::CancelToken;
use cactus_import::{ConvertOptions, convert};
use cactus_speech::{Stream, StreamOptions, Transcriber, Vad};
use cactus_testkit::tone;
use std::path::{Path, PathBuf};

fn bundle(folder: &Path, source: &Path) -> PathBuf {
    let path = folder.join(source.file_stem().unwrap()).with_extension("bundle");
    convert(source, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
    path
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/speech")
        .join(name)
}

/// Quiet noise.
fn sound(samples: usize) -> Vec<f32> {
    let mixed = (0..samples as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 8);
    mixed.map(|n| (n as f32 / 8_388_608.0 - 1.0) * 1e-3).collect()
}

#[test]
fn chunks_take_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut vad = Vad::load(&bundle(folder.path(), &golden("silero_vad")), 1).unwrap();
    let samples = sound(100 * vad.chunk_samples());
    // As a microphone gives them: parts of chunks.
    let mut hear = |times: usize| {
        for _ in 0..times {
            samples.chunks(441).for_each(|part| assert!(vad.push(part).is_ok()));
        }
    };
    hear(1);
    let counted = allocation_counter::measure(|| hear(3));
    assert_eq!(counted.count_total, 0, "in 300 chunks: {counted:?}");
}

#[test]
fn live_silence_takes_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut transcriber = Transcriber::load(&bundle(folder.path(), &golden("whisper")), Some(1)).unwrap();
    let detector = tone::write_detector(folder.path()).unwrap();
    let vad = Vad::load(&bundle(folder.path(), &detector), 1).unwrap();
    let samples = sound(100 * vad.chunk_samples());
    // The window of this model is one second long.
    let options = StreamOptions {
        most_s: Some(1.0),
        ..StreamOptions::default()
    };
    let mut stream = Stream::new(&mut transcriber, vad, options).unwrap();
    let cancel = CancelToken::new();
    let mut hear = |times: usize| {
        for _ in 0..times {
            for part in samples.chunks(441) {
                let mut each = |event| panic!("{event:?}");
                stream.push(&mut transcriber, part, &cancel, &mut each).unwrap();
            }
        }
    };
    hear(1);
    let counted = allocation_counter::measure(|| hear(3));
    assert_eq!(counted.count_total, 0, "in 300 chunks: {counted:?}");
}

#[test]
fn a_phrase_takes_no_memory_between_its_steps() {
    let folder = tempfile::tempdir().unwrap();
    let detector = tone::write_detector(folder.path()).unwrap();
    let detector = bundle(folder.path(), &detector);
    // The window of the first is one second long.
    for (name, most_s) in [("whisper", 1.0), ("moonshine", 6.0)] {
        let mut transcriber = Transcriber::load(&bundle(folder.path(), &golden(name)), Some(1)).unwrap();
        let options = StreamOptions {
            step_ms: 300,
            most_s: Some(most_s),
            ..StreamOptions::default()
        };
        let vad = Vad::load(&detector, 1).unwrap();
        let mut stream = Stream::new(&mut transcriber, vad, options).unwrap();
        let cancel = CancelToken::new();
        // Each part: whether something happened, and what it took.
        let mut hear = |samples: &[f32]| {
            let mut parts = Vec::new();
            for part in samples.chunks(160) {
                let mut happened = false;
                let mut each = |_| happened = true;
                let mut push = || stream.push(&mut transcriber, part, &cancel, &mut each).unwrap();
                let counted = allocation_counter::measure(&mut push);
                parts.push((happened, counted.count_total));
            }
            parts
        };
        // One phrase, one that is cut, and silence in which the next sound has room.
        let samples = tone::sound(&[(0.5, 0.5), (0.8, 1.5 * most_s), (0.8, 0.3)]);
        hear(&samples);
        let parts = hear(&samples);
        let quiet: Vec<u64> = parts
            .iter()
            .filter(|(happened, _)| !happened)
            .map(|(_, n)| *n)
            .collect();
        assert!(quiet.iter().all(|n| *n == 0), "{name}: {quiet:?}");
        assert!(quiet.len() + 5 < parts.len(), "{name}: there were steps");
    }
}
