//! Models of texts and pictures as bundles, against what transformers computed (`golden/picture_models.py`).

use cactus_bundle::Bundle;
use cactus_embed::{EmbedOptions, Embedder, Error, ErrorKind, PictureEmbedder, Role};
use cactus_engine::CancelToken;
use cactus_import::{ConvertOptions, convert};
use cactus_passes::{Bits, Policy};
use cactus_testkit::picture_noise;
use cactus_vision::{Limits, Picture};
use safetensors::SafeTensors;
use serde_json::Value;
use std::path::{Path, PathBuf};

const CASES: [&str; 2] = ["clip_pictures", "siglip"];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(name)
}

fn bundle(folder: &Path, name: &str, bits: Bits) -> PathBuf {
    let path = folder.join(format!("{name}-{bits:?}"));
    let options = ConvertOptions {
        policy: Policy::uniform(bits),
        ..ConvertOptions::default()
    };
    convert(&golden("embedding").join(name), &path, &options, &mut |_, _| {}).unwrap();
    path
}

fn noise(width: u32, height: u32, seed: u64) -> Picture {
    Picture::new(width, height, picture_noise(width, height, seed)).unwrap()
}

fn expected(name: &str) -> (Vec<Picture>, Vec<f32>) {
    let folder = golden("embedding").join(name);
    let about: Value = serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let pictures = about["pictures"].as_array().unwrap().iter().map(|row| {
        let [width, height, seed] = [0, 1, 2].map(|i| row[i].as_u64().unwrap());
        noise(width as u32, height as u32, seed)
    });
    let file = std::fs::read(folder.join("expected.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&file).unwrap();
    let numbers = file.tensor("pictures").unwrap().data().as_chunks().0.iter();
    (pictures.collect(), numbers.map(|&b| f32::from_le_bytes(b)).collect())
}

fn embed(embedder: &PictureEmbedder, pictures: &[Picture]) -> Vec<f32> {
    embedder.embed(pictures, &EmbedOptions::default()).unwrap().values
}

#[test]
fn vectors_of_pictures_are_those_of_transformers() {
    let folder = tempfile::tempdir().unwrap();
    for name in CASES {
        let (pictures, want) = expected(name);
        // Half precision rounds the weights, and 8 bits round both sides of a product.
        for (bits, least) in [
            (Bits::ThirtyTwo, 1.0 - 1e-7),
            (Bits::Sixteen, 0.999_99),
            (Bits::Eight, 0.997),
        ] {
            let embedder = PictureEmbedder::open(&bundle(folder.path(), name, bits), Some(2)).unwrap();
            let found = embedder.embed(&pictures, &EmbedOptions::default()).unwrap();
            assert_eq!((found.rows().len(), found.tokens.len()), (5, 5), "{name}");
            if bits == Bits::ThirtyTwo {
                let far = found
                    .values
                    .iter()
                    .zip(&want)
                    .map(|(f, w)| (f - w).abs())
                    .fold(0.0, f32::max);
                assert!(far <= 1e-4, "{name}: {far}");
            }
            for (index, (found, want)) in found.rows().zip(want.chunks(found.dimensions)).enumerate() {
                let cosine: f64 = found.iter().zip(want).map(|(f, w)| f64::from(*f) * f64::from(*w)).sum();
                assert!(cosine >= least, "{name} at {bits:?}, picture {index}: {cosine}");
            }
        }
    }
}

#[test]
fn vectors_of_pictures_are_the_same_bits_alone_and_together() {
    let folder = tempfile::tempdir().unwrap();
    for name in CASES {
        for bits in [Bits::Eight, Bits::ThirtyTwo] {
            let path = bundle(folder.path(), name, bits);
            let embedder = PictureEmbedder::open(&path, Some(2)).unwrap();
            // More than one call takes.
            let pictures: Vec<Picture> = (0..130).map(|seed| noise(20 + seed % 7, 30, seed.into())).collect();
            let together = embed(&embedder, &pictures);
            let width = together.len() / pictures.len();
            for index in [0, 1, 2, 77, 129] {
                let alone = embed(&embedder, &pictures[index..=index]);
                assert_eq!(alone, together[index * width..][..width], "{name}, picture {index}");
            }
            let other_threads = PictureEmbedder::open(&path, Some(1)).unwrap();
            assert_eq!(embed(&other_threads, &pictures[..9]), together[..9 * width]);
        }
    }
}

#[test]
fn texts_of_the_same_bundle_are_compared_with_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path(), "siglip", Bits::Eight);
    let (texts, pictures) = (
        Embedder::open(&path, Some(1)).unwrap(),
        PictureEmbedder::open(&path, Some(1)).unwrap(),
    );
    assert_eq!(texts.vectors(), pictures.vectors());
    // In upper case as in lower case.
    let found = texts
        .embed(Role::Plain, &["THE AND", "the and"], &EmbedOptions::default())
        .unwrap();
    let rows: Vec<&[f32]> = found.rows().collect();
    assert_eq!(rows[0], rows[1]);
    assert_eq!(found.tokens, [3, 3]);
}

#[test]
fn files_become_the_vectors_of_their_pixels() {
    let folder = tempfile::tempdir().unwrap();
    let embedder = PictureEmbedder::open(&bundle(folder.path(), "clip_pictures", Bits::Eight), Some(1)).unwrap();
    let files: Vec<Vec<u8>> = ["rgba.png", "turned_6.png", "exact.webp", "smooth.jpg"]
        .iter()
        .map(|name| std::fs::read(golden("pictures/files").join(name)).unwrap())
        .collect();
    let limits = Limits::default();
    let options = EmbedOptions::default();
    let found = embedder.embed_files(&files, &limits, &options).unwrap();
    let pixels: Vec<Picture> = files
        .iter()
        .map(|f| embedder.processor().decode(f, &limits).unwrap())
        .collect();
    assert_eq!(found, embedder.embed(&pixels, &options).unwrap());

    let broken = [files[0].clone(), b"GIF89a".to_vec()];
    let error = embedder.embed_files(&broken, &limits, &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Picture);
    assert!(error.to_string().starts_with("picture 1: this is a GIF"), "{error}");
    let small = Limits { max_side: 10, ..limits };
    let error = embedder.embed_files(&files, &small, &options).unwrap_err();
    assert!(matches!(error, Error::Picture { index: 0, .. }), "{error}");
}

#[test]
fn options_that_have_no_meaning_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path(), "clip_pictures", Bits::Eight);
    let embedder = PictureEmbedder::open(&path, Some(1)).unwrap();
    let picture = [noise(3, 3, 1)];
    let options = EmbedOptions {
        dimensions: Some(7),
        ..EmbedOptions::default()
    };
    assert_eq!(
        embedder.embed(&picture, &options).unwrap_err().kind(),
        ErrorKind::Option
    );
    let cancel = CancelToken::default();
    cancel.cancel();
    let options = EmbedOptions {
        cancel,
        ..EmbedOptions::default()
    };
    assert!(matches!(embedder.embed(&picture, &options), Err(Error::Cancelled)));
}

#[test]
fn open_of_bundles_that_see_nothing_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path(), "bert", Bits::Eight);
    let error = PictureEmbedder::open(&path, Some(1)).unwrap_err();
    assert!(
        error.to_string().contains("makes no vectors of pictures, but of texts"),
        "{error}"
    );
    // A folder that does not say how pictures are prepared makes vectors of texts alone, and the conversion says it.
    let path = folder.path().join("clip");
    let outcome = convert(
        &golden("embedding/clip"),
        &path,
        &ConvertOptions::default(),
        &mut |_, _| {},
    )
    .unwrap();
    assert!(
        outcome
            .notes
            .iter()
            .any(|note| note.contains("preprocessor_config.json")),
        "{:?}",
        outcome.notes
    );
    assert!(!PictureEmbedder::is_in(&Bundle::open(&path).unwrap()));
    Embedder::open(&path, Some(1)).unwrap();
}

#[test]
fn records_that_do_not_fit_the_model_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for entry in std::fs::read_dir(golden("embedding/siglip")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), source.join(entry.file_name())).unwrap();
    }
    let file = source.join("preprocessor_config.json");
    let whole: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    type Change = fn(&mut Value);
    let cases: &[(&str, Change)] = &[
        ("22 x 22", |c| {
            c["size"] = serde_json::json!({"height": 22, "width": 22})
        }),
        ("`resample`", |c| c["resample"] = 0.into()),
        ("`image_std`", |c| c["image_std"] = serde_json::json!([0.5])),
        ("values.std", |c| c["image_std"] = serde_json::json!([0.5, 0.0, 0.5])),
        ("`do_flip_channel_order`", |c| c["do_flip_channel_order"] = true.into()),
    ];
    for (named, change) in cases {
        let mut changed = whole.clone();
        change(&mut changed);
        std::fs::write(&file, serde_json::to_vec(&changed).unwrap()).unwrap();
        let path = folder.path().join("bundle");
        let error = convert(&source, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap_err();
        assert!(error.to_string().contains(named), "{named}: {error}");
    }
}
