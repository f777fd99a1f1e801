//! Real weights, where `CACTUS_TEST_MODELS` names the folder that `scripts/fetch_models.py` filled.

use cactus_embed::{EmbedOptions, Embedder, Role};
use cactus_import::{ConvertOptions, convert};
use cactus_passes::{Bits, Policy};
use std::path::PathBuf;

fn model(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("CACTUS_TEST_MODELS").map(|dir| PathBuf::from(dir).join(name));
    let found = path.filter(|p| p.exists());
    if found.is_none() {
        use std::io::Write;
        // Said loudly: a test that did nothing must not look like one that passed.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {name} is not in CACTUS_TEST_MODELS");
    }
    found
}

const TEXTS: [&str; 6] = [
    "hello world",
    "The cat sits outside in the sun.",
    "A kitten is lying in the garden, where it is warm.",
    "The parliament voted against the new tax on Thursday.",
    "How do I reset the password of my account?",
    "In computing, a hash table is a data structure that maps keys to values.",
];

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum() };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn minilm_has_the_published_vectors_and_few_bits_stay_near_them() {
    let Some(source) = model("all-MiniLM-L6-v2") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let vectors = |bits: Bits| {
        let path = folder.path().join(format!("{bits:?}"));
        let options = ConvertOptions {
            policy: Policy::uniform(bits),
            ..ConvertOptions::default()
        };
        convert(&source, &path, &options, &mut |_, _| {}).unwrap();
        let embedder = Embedder::open(&path, None).unwrap();
        assert_eq!((embedder.limit_tokens(), embedder.vectors().dimensions), (256, 384));
        embedder.embed(Role::Plain, &TEXTS, &EmbedOptions::default()).unwrap()
    };
    let exact = vectors(Bits::ThirtyTwo);
    // What fastembed's tests hold it to.
    for (found, want) in exact.values.iter().zip([-0.0345, 0.0310, 0.0067, 0.0261]) {
        assert!((found - want).abs() < 1e-3, "{found} is not {want}");
    }
    for (bits, least) in [(Bits::Sixteen, 0.999_999), (Bits::Eight, 0.999), (Bits::Four, 0.93)] {
        let found = vectors(bits);
        assert_eq!(found.tokens, exact.tokens);
        for ((text, a), b) in TEXTS.iter().zip(exact.rows()).zip(found.rows()) {
            let near = cosine(a, b);
            assert!(near >= least, "{bits:?}: {near} for {text}");
        }
        // Texts of one meaning are nearer than others.
        let rows: Vec<&[f32]> = found.rows().collect();
        assert!(
            cosine(rows[1], rows[2]) > 0.4 && cosine(rows[1], rows[3]) < 0.2,
            "{bits:?}"
        );
    }
}
