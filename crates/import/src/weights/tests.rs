use super::*;
use crate::ErrorKind;
use crate::pt2::{TranspileOptions, transpile};
use cactus_bundle::Bundle;
use cactus_passes::Bits;
use std::path::PathBuf;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/pt2")
        .join(name)
}

fn options(bits: Bits) -> ConvertOptions {
    ConvertOptions {
        policy: Policy::uniform(bits),
        ..ConvertOptions::default()
    }
}

#[test]
fn a_state_dict_becomes_a_folder_of_weights_that_a_program_takes() {
    let dir = tempfile::tempdir().unwrap();
    let (weights, bound, direct) = (
        dir.path().join("w"),
        dir.path().join("bound"),
        dir.path().join("direct"),
    );
    let made = convert_weights(
        &golden("classifier.pt"),
        &weights,
        &options(Bits::Eight),
        &mut |_, _| {},
    )
    .unwrap();
    assert_eq!(made.tensors, 5);
    let folder = Bundle::open(&weights).unwrap();
    assert_eq!(folder.manifest().task, WEIGHTS_TASK);
    assert!(folder.manifest().components.is_empty());
    assert_eq!(folder.weights()["fc1.bias"].packing, "row_major");
    // 24 columns are narrow enough that INT8 is still smaller than 16 bits; 16 are not.
    assert_eq!(folder.weights()["embedding.weight"].packing, "f16_n16");
    assert_eq!(folder.weights()["fc2.weight"].packing, "int8_g32");

    let from = |weights: Option<PathBuf>, bits| TranspileOptions {
        weights,
        bits,
        ..TranspileOptions::default()
    };
    let program = golden("classifier.pt2");
    transpile(&program, &bound, &from(Some(weights.clone()), None), &mut |_, _| {}).unwrap();
    transpile(&program, &direct, &from(None, Some(8)), &mut |_, _| {}).unwrap();
    let (bound, direct) = (Bundle::open(&bound).unwrap(), Bundle::open(&direct).unwrap());
    assert_eq!(
        bound.weights().keys().collect::<Vec<_>>(),
        direct.weights().keys().collect::<Vec<_>>()
    );
    for name in direct.weights().keys() {
        let (a, b) = (bound.weight(name).unwrap(), direct.weight(name).unwrap());
        assert_eq!((a.dims, a.packing, a.data), (b.dims, b.packing, b.data), "{name}");
    }
    // The folder is as it was.
    folder.verify(2, &|_| {}).whole().unwrap();
}

#[test]
fn a_folder_that_does_not_fit_or_is_the_destination_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (weights, out) = (dir.path().join("w"), dir.path().join("out"));
    convert_weights(&golden("classifier.pt"), &weights, &options(Bits::Four), &mut |_, _| {}).unwrap();
    let mut from = TranspileOptions {
        weights: Some(weights.clone()),
        replace: true,
        ..TranspileOptions::default()
    };
    let fails = |program: &str, to: &Path, from: &TranspileOptions, word: &str| {
        let error = transpile(&golden(program), to, from, &mut |_, _| {})
            .unwrap_err()
            .to_string();
        assert!(error.contains(word), "{word:?} not in {error}");
    };
    fails("cnn.pt2", &out, &from, "does not fit this program: it has no `");
    fails("classifier.pt2", &weights, &from, "name another folder");
    from.bits = Some(8);
    fails("classifier.pt2", &out, &from, "have a number of bits already");
    from.bits = None;
    from.weights = Some(dir.path().join("nothing"));
    fails("classifier.pt2", &out, &from, "made by `cactus convert`");
    assert!(!out.exists());
    Bundle::open(&weights).unwrap().verify(2, &|_| {}).whole().unwrap();
}

#[test]
fn convert_weights_says_what_it_cannot_pack() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("w");
    let made = convert_weights(&golden("checkpoint.pt"), &out, &options(Bits::Four), &mut |_, _| {}).unwrap();
    assert_eq!(made.tensors, 8);
    assert!(
        made.notes[0].starts_with("3 tensors are not floats"),
        "{:?}",
        made.notes
    );
    let text = dir.path().join("x.pt");
    std::fs::write(&text, "hello").unwrap();
    assert!(is_weights_file(&text) && !is_weights_file(dir.path()));
    let error = convert_weights(&text, &dir.path().join("v"), &options(Bits::Four), &mut |_, _| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
