//! Vectors of texts and pictures by the functions of the public API.

use super::support::*;
use cactus_embed::{Limits, PictureEmbedder};
use cactus_ffi::*;
use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(name)
}

/// A bundle of a tiny model of vectors.
fn bundle(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let source = golden("embedding").join(name);
    cactus_import::convert(&source, &path, &Default::default(), &mut |_, _| {}).unwrap();
    (folder, path)
}

fn init(bundle: &Path) -> *mut c_void {
    let model = unsafe { cactus_init(c(bundle.to_str().unwrap()).as_ptr(), null(), false) };
    assert!(!model.is_null(), "{:?}", error());
    model
}

#[test]
fn vectors_of_texts_are_written_where_there_is_room() {
    let (_folder, bundle) = bundle("bert");
    let want = cactus_embed::Embedder::open(&bundle, Some(1)).unwrap();
    let want = want
        .embed(Default::default(), &["the word"], &Default::default())
        .unwrap();
    let (mut room, mut dim) = ([0f32; 40], 0);
    let (path, text, long) = (c(bundle.to_str().unwrap()), c("the word"), c(&"the ".repeat(60)));
    unsafe {
        let model = cactus_init(path.as_ptr(), null(), false);
        assert!(!model.is_null(), "{:?}", error());
        let mut embed =
            |text: &CString, bytes| cactus_embed(model, text.as_ptr(), room.as_mut_ptr(), bytes, &raw mut dim, true);
        assert_eq!(embed(&text, 160), 32);
        // Room is counted in bytes, and what does not fit is not written.
        assert_eq!(embed(&text, 127), -2);
        assert_eq!(embed(&long, 160), -1);
        assert_eq!(error().0, Code::Argument as i32);
        assert_eq!((dim, &room[..32], &room[32..]), (32, &want.values[..], &[0f32; 8][..]));
        assert_eq!(
            cactus_embed(model, text.as_ptr(), null_mut(), 160, null_mut(), true),
            -1
        );

        // What the model does not do is an error that says so, and so is a model that makes no vectors.
        assert!(cactus_prefill(model, c"[]".as_ptr(), null_mut(), 0, null(), null(), null(), 0) < 0);
        let writer = Model::load();
        assert_eq!(
            cactus_embed(
                writer.public(),
                text.as_ptr(),
                room.as_mut_ptr(),
                160,
                &raw mut dim,
                true
            ),
            -1
        );
        assert_eq!(error().0, Code::Unsupported as i32);
        cactus_reset(model);
        cactus_stop(model);
        cactus_destroy(model);
        assert_eq!(
            cactus_embed(model, text.as_ptr(), room.as_mut_ptr(), 160, &raw mut dim, true),
            -1
        );
        assert_eq!(error().0, Code::Handle as i32);
    }
}

#[test]
fn vectors_of_pictures_are_written_where_there_is_room() {
    let files = golden("pictures/files");
    let picture = files.join("rgba.png");
    for name in ["clip_pictures", "siglip"] {
        let (folder, bundle) = bundle(name);
        let want = PictureEmbedder::open(&bundle, Some(1)).unwrap();
        let want = want.embed_files(
            &[std::fs::read(&picture).unwrap()],
            &Limits::default(),
            &Default::default(),
        );
        let want = want.unwrap().values;
        let bytes = want.len() * 4;
        let (mut room, mut dim) = (vec![0f32; want.len() + 8], 0);
        let model = init(&bundle);
        let mut embed = |path: &Path, bytes| {
            let path = c(path.to_str().unwrap());
            unsafe { cactus_image_embed(model, path.as_ptr(), room.as_mut_ptr(), bytes, &raw mut dim) }
        };
        // Room is counted in bytes, and what does not fit is not written.
        assert_eq!(embed(&picture, bytes - 1), -2);
        assert_eq!(error().0, Code::BufferTooSmall as i32);
        assert_eq!(embed(&picture, bytes + 32) as usize, want.len(), "{:?}", error());

        // A picture whose header says that it has more pixels than are allowed, and a file that has more bytes.
        let (large, long) = (folder.path().join("large.jpg"), folder.path().join("long.png"));
        let mut patched = std::fs::read(files.join("smooth.jpg")).unwrap();
        let frame = patched.windows(2).position(|bytes| bytes == [0xff, 0xc0]).unwrap();
        patched[frame + 5..frame + 9].fill(0xff);
        std::fs::write(&large, patched).unwrap();
        let sparse = std::fs::File::create(&long).unwrap();
        sparse.set_len(Limits::default().max_bytes as u64 + 1).unwrap();
        let cut = folder.path().join("cut.png");
        std::fs::write(&cut, &std::fs::read(&picture).unwrap()[..40]).unwrap();
        for (path, word) in [
            (&large, "65535"),
            (&long, "bytes"),
            (&cut, "cut.png"),
            (&bundle.join("config.json"), "picture"),
            (&folder.path().join("absent.png"), "cannot read"),
            (&bundle, "cannot read"),
        ] {
            assert_eq!(embed(path, bytes), -1, "{}", path.display());
            let (code, message) = error();
            assert_eq!(code, Code::Argument as i32, "{message}");
            assert!(
                message.contains("image_path") && message.contains(word),
                "{word}: {message}"
            );
        }
        assert_eq!(
            (dim, &room[..want.len()], &room[want.len()..]),
            (want.len(), &want[..], &[0f32; 8][..])
        );
        let path = c(picture.to_str().unwrap());
        unsafe {
            let mut only = 0;
            assert_eq!(
                cactus_image_embed(model, path.as_ptr(), null_mut(), bytes, &raw mut only),
                -1
            );
            assert_eq!((only, error().0), (want.len(), Code::Argument as i32));
            assert_eq!(
                cactus_image_embed(model, null(), room.as_mut_ptr(), bytes, &raw mut dim),
                -1
            );
            // Texts of the same handle lie in the same space.
            assert_eq!(
                cactus_embed(model, c"the".as_ptr(), room.as_mut_ptr(), bytes, &raw mut dim, true) as usize,
                dim
            );
            assert_eq!(dim, want.len());
            assert_eq!(
                cactus_audio_embed(model, path.as_ptr(), room.as_mut_ptr(), bytes, &raw mut dim),
                -1
            );
            assert_eq!(error().0, Code::NotInBuild as i32);
            cactus_destroy(model);
            assert_eq!(
                cactus_image_embed(model, path.as_ptr(), room.as_mut_ptr(), bytes, &raw mut dim),
                -1
            );
            assert_eq!(error().0, Code::Handle as i32);
        }
    }
}

#[test]
fn models_that_make_no_vectors_of_pictures_say_so() {
    let path = c(golden("pictures/files/rgba.png").to_str().unwrap());
    let (mut room, mut dim) = ([0f32; 64], 0);
    let mut embed = |model| unsafe { cactus_image_embed(model, path.as_ptr(), room.as_mut_ptr(), 256, &raw mut dim) };
    let (_folder, bundle) = bundle("bert");
    let model = init(&bundle);
    assert_eq!(embed(model), -1);
    let (code, message) = error();
    assert_eq!(code, Code::Unsupported as i32);
    assert!(
        message.contains("none of pictures") && message.contains("CLIP"),
        "{message}"
    );
    unsafe { cactus_destroy(model) };
    let writer = Model::load();
    assert_eq!((embed(writer.public()), error().0), (-1, Code::Unsupported as i32));
}
