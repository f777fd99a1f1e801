//! Bundles written, read, damaged.

use cactus_bundle::{
    About, Bundle, BundleWriter, Checksum, ErrorKind, FileEntry, MANIFEST_PATH, Manifest, Provenance,
    WEIGHTS_MANIFEST_PATH, WeightsManifest, decode_graph, encode_graph,
};
use cactus_ir::{Dim, Graph, GraphBuilder, TensorType};
use cactus_quant::Packing;
use cactus_tensor::DType;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn graph() -> Graph {
    let mut b = GraphBuilder::new("decoder");
    let ids = b.input(
        "input_ids",
        TensorType::new(DType::I64, [Dim::symbol("batch"), Dim::symbol("seq")]),
    );
    let table = b.weight("embed.weight", &[20, 40]);
    let norm = b.weight("norm.weight", &[40]);
    let x = b.embedding(table, ids).unwrap();
    let x = b.op(cactus_ir::Op::RmsNorm { eps: 1e-5 }, &[x, norm]).unwrap();
    let y = b.linear(x, table, None).unwrap();
    b.output("logits", y);
    b.finish().unwrap()
}

fn write(destination: &Path, replace: bool) -> cactus_bundle::Result<PathBuf> {
    let mut w = BundleWriter::create(destination, replace)?;
    let rows: Vec<f32> = (0..800).map(|i| (i as f32 * 0.37).sin()).collect();
    let packed = cactus_quant::pack(Packing::Int8G32, 20, 40, &rows).unwrap();
    w.add_weight(
        "embed.weight",
        &[20, 40],
        Packing::Int8G32,
        packed.scales(),
        packed.data(),
    )?;
    let norm: Vec<u8> = (0..40).flat_map(|_| 1f32.to_le_bytes()).collect();
    w.add_weight("norm.weight", &[40], Packing::RowMajor, &[], &norm)?;
    let g = graph();
    let bindings: BTreeMap<String, String> = ["embed.weight", "norm.weight"]
        .into_iter()
        .map(|n| (n.into(), n.into()))
        .collect();
    w.add_component("decoder", &g, &g, &bindings)?;
    w.add_file("tokenizer.json", b"{}")?;
    let about = About {
        name: "tiny".into(),
        family: "llama".into(),
        task: "causal_lm_logits".into(),
        context_tokens: 64,
        vocab_size: 20,
        ..About::default()
    };
    w.finish(about, &Provenance::default())
}

#[test]
fn written_bundle_reads_back_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(&dir.path().join("m"), false).unwrap();
    let b = Bundle::open(&path).unwrap();
    b.verify(2, &|_| {}).whole().unwrap();
    let (g, bindings) = b.graph("decoder").unwrap();
    assert_eq!(g, graph());
    assert_eq!(bindings.len(), 2);
    let w = b.weight("embed.weight").unwrap();
    assert_eq!(w.dims, [20, 40]);
    assert!((w.data.as_ptr() as usize).is_multiple_of(64));
    let mut row = [0f32; 40];
    w.matrix().unwrap().decode_row(3, &mut row);
    for (i, x) in row.iter().enumerate() {
        assert!((x - ((120 + i) as f32 * 0.37).sin()).abs() < 0.01);
    }
    assert_eq!(b.weight("nope").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn unfinished_bundle_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let destination = dir.path().join("m");
    let mut w = BundleWriter::create(&destination, false).unwrap();
    w.add_file("x", b"1").unwrap();
    drop(w);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn existing_things_are_never_overwritten_by_accident() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = write(&dir.path().join("m"), false).unwrap();
    assert_eq!(write(&bundle, false).unwrap_err().kind(), ErrorKind::Exists);
    write(&bundle, true).unwrap();
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("precious"), b"1").unwrap();
    assert_eq!(write(&other, true).unwrap_err().kind(), ErrorKind::Exists);
    assert!(other.join("precious").is_file());
    let file = dir.path().join("file");
    fs::write(&file, b"1").unwrap();
    assert_eq!(write(&file, true).unwrap_err().kind(), ErrorKind::Exists);
    // Neither attempt left a partial folder.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn newer_version_is_named_with_the_versions_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(&dir.path().join("m"), false).unwrap();
    let manifest = path.join(MANIFEST_PATH);
    let text = fs::read_to_string(&manifest)
        .unwrap()
        .replacen("\"version\": 1", "\"version\": 7", 1);
    fs::write(&manifest, text).unwrap();
    let e = Bundle::open(&path).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Version);
    assert!(
        e.to_string().contains("version 7") && e.to_string().contains("versions 1 to 1"),
        "{e}"
    );
}

/// Changes the documents of a bundle and makes sizes and checksums right again.
fn rewrite(root: &Path, change: impl Fn(&mut Manifest, &mut WeightsManifest)) {
    let read = |path: &str| fs::read(root.join(path)).unwrap();
    let mut manifest: Manifest = serde_json::from_slice(&read(MANIFEST_PATH)).unwrap();
    let mut weights: WeightsManifest = serde_json::from_slice(&read(WEIGHTS_MANIFEST_PATH)).unwrap();
    change(&mut manifest, &mut weights);
    let bytes = serde_json::to_vec(&weights).unwrap();
    let entry = FileEntry {
        bytes: bytes.len() as u64,
        xxh3: Checksum::of(&bytes),
    };
    fs::write(root.join(WEIGHTS_MANIFEST_PATH), bytes).unwrap();
    manifest.files.insert(WEIGHTS_MANIFEST_PATH.to_owned(), entry);
    manifest.checksum = manifest.expected_checksum();
    fs::write(root.join(MANIFEST_PATH), serde_json::to_vec(&manifest).unwrap()).unwrap();
}

#[test]
fn documents_that_contradict_each_other_are_refused() {
    type Change = fn(&mut Manifest, &mut WeightsManifest);
    let cases: [(&str, Change); 7] = [
        ("version 2", |_, w| w.version = 2),
        ("same name", |m, _| m.components.push(m.components[0].clone())),
        ("not aligned", |_, w| {
            w.weights.get_mut("norm.weight").unwrap().offset += 8
        }),
        ("row_major", |_, w| {
            w.weights.get_mut("norm.weight").unwrap().packing = "f16_n16".to_owned()
        }),
        ("[40]", |_, w| w.weights.get_mut("norm.weight").unwrap().dims = vec![41]),
        ("same byte", |_, w| {
            drop(w.weights.insert("again".to_owned(), w.weights["norm.weight"].clone()))
        }),
        ("does not stay inside", |_, w| {
            w.weights.get_mut("norm.weight").unwrap().file = "../model.weights".to_owned()
        }),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (words, change) in cases {
        let root = write(&dir.path().join("m"), true).unwrap();
        rewrite(&root, |_, _| {});
        Bundle::open(&root).unwrap();
        rewrite(&root, change);
        let e = Bundle::open(&root).expect_err(words);
        assert_eq!(e.kind(), ErrorKind::Invalid, "{e}");
        assert!(e.to_string().contains(words), "{words}: {e}");
    }
}

/// What a writer leaves that is killed: the test runs itself as that writer.
#[cfg(unix)]
#[allow(clippy::print_stdout, reason = "the parent waits for it")]
#[test]
fn writer_that_was_killed_leaves_what_the_next_one_removes() {
    const FOLDER: &str = "CACTUS_TEST_KILLED_WRITER";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let mut w = BundleWriter::create(&Path::new(&folder).join("m"), false).unwrap();
        let data = vec![0; 4 * 1024 * 1024];
        w.add_weight("w", &[1024, 1024], Packing::RowMajor, &[], &data).unwrap();
        println!("written");
        std::thread::sleep(std::time::Duration::from_secs(600));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let name = "writer_that_was_killed_leaves_what_the_next_one_removes";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(FOLDER, dir.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        assert!(lines.any(|l| l.unwrap().contains("written")));
        child
    };
    let partial = || {
        let entries = fs::read_dir(dir.path()).unwrap();
        entries
            .filter(|e| {
                e.as_ref()
                    .unwrap()
                    .file_name()
                    .to_string_lossy()
                    .starts_with(".m.partial-")
            })
            .count()
    };
    let (mut killed, mut alive) = (start(), start());
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(partial(), 2);
    write(&dir.path().join("other"), false).unwrap();
    assert_eq!(partial(), 1, "only what is nobody's any more goes away");
    alive.kill().unwrap();
    alive.wait().unwrap();
    assert_eq!(cactus_bundle::remove_abandoned(dir.path()), 1);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    Bundle::open(&dir.path().join("other")).unwrap();
}

#[test]
fn many_who_amend_a_bundle_at_once_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(&dir.path().join("m"), false).unwrap();
    let before = files(&path).len();
    std::thread::scope(|scope| {
        for name in ["a.json", "b.json", "c.json"] {
            let path = &path;
            scope.spawn(move || {
                for turn in 0..10 {
                    let text = format!("{name} {turn}");
                    cactus_bundle::amend(path, name, text.as_bytes()).unwrap();
                    let entry = FileEntry {
                        bytes: text.len() as u64,
                        xxh3: Checksum::of(text.as_bytes()),
                    };
                    assert_eq!(Manifest::read(path).unwrap().files.get(name), Some(&entry));
                }
            });
        }
    });
    open_and_verify(&path).unwrap();
    let unix = cfg!(unix);
    assert_eq!(
        files(&path).len(),
        before + 3 + usize::from(!unix),
        "and nothing else is left there"
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn amending_puts_away_what_a_killed_process_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(&dir.path().join("m"), false).unwrap();
    let left = path.join("components/.manifest.json.new-0123456789abcdef");
    fs::write(&left, b"{").unwrap();
    cactus_bundle::amend(&path, "a.json", b"1").unwrap();
    assert!(!left.exists());
    let missing = dir.path().join("missing");
    let error = cactus_bundle::amend(&missing, "a.json", b"1").unwrap_err();
    assert_eq!(error.kind(), Bundle::open(&missing).unwrap_err().kind());
    assert!(!missing.exists(), "nothing is made where no bundle is");
}

#[test]
fn not_a_bundle_and_missing_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Bundle::open(dir.path()).unwrap_err().kind(), ErrorKind::NotABundle);
    assert_eq!(
        Bundle::open(&dir.path().join("x")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn manifest_paths_may_not_leave_the_bundle() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(&dir.path().join("m"), false).unwrap();
    fs::write(dir.path().join("secret"), b"x").unwrap();
    let b = Bundle::open(&path).unwrap();
    assert!(b.file("../secret").is_err());
    assert!(b.file("/etc/hostname").is_err());
}

/// Files of a bundle that are read when it is opened and verified.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            out.extend(files(&path))
        } else {
            out.push(path)
        }
    }
    out.sort();
    out
}

fn open_and_verify(root: &Path) -> cactus_bundle::Result<()> {
    Bundle::open(root)?.verify(2, &|_| {}).whole()
}

/// Makes a bundle of one matrix of 4 MiB, and damages one byte.
fn damaged(root: &Path, at: usize) {
    let mut w = BundleWriter::create(root, true).unwrap();
    let data: Vec<u8> = (0..1 << 20).flat_map(|i: u32| (i as f32).to_le_bytes()).collect();
    w.add_weight("first", &[1024], Packing::RowMajor, &[], &data[..4096])
        .unwrap();
    w.add_weight("matrix", &[1024, 1024], Packing::RowMajor, &[], &data)
        .unwrap();
    w.finish(About::default(), &Provenance::default()).unwrap();
    let path = root.join("model.weights");
    let mut bytes = fs::read(&path).unwrap();
    bytes[at] ^= 4;
    fs::write(&path, bytes).unwrap();
}

#[test]
fn damage_in_weights_is_placed_to_tensor_and_block() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("m");
    let block = cactus_bundle::BLOCK_BYTES;
    damaged(&root, 5 * block + 17);
    let bundle = Bundle::open(&root).unwrap();
    for threads in [1, 3] {
        let read = std::sync::atomic::AtomicU64::new(0);
        let found = bundle.verify(threads, &|n| {
            read.fetch_add(n, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(read.into_inner(), bundle.verified_bytes());
        assert_eq!(found.block_bytes, Some(block as u64));
        let [e] = &found.damage[..] else {
            panic!("{:?}", found.damage)
        };
        assert_eq!((e.kind(), e.offset()), (ErrorKind::Checksum, Some(5 * block as u64)));
        assert!(e.path().ends_with("model.weights"), "{e}");
        let inside = 5 * block as u64 - bundle.weights()["matrix"].offset;
        let words = format!("tensor `matrix`, bytes {inside} to {} of", inside + block as u64);
        assert!(e.to_string().contains(&words), "{e}");
    }
}

#[test]
fn bundle_without_checksums_of_blocks_is_verified_by_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("m");
    damaged(&root, 5 * cactus_bundle::BLOCK_BYTES + 17);
    rewrite(&root, |m, _| {
        m.files.retain(|path, _| path != cactus_bundle::WEIGHTS_CHECKSUMS_PATH)
    });
    let bundle = Bundle::open(&root).unwrap();
    let found = bundle.verify(2, &|_| {});
    assert_eq!(found.block_bytes, None);
    let [e] = &found.damage[..] else {
        panic!("{:?}", found.damage)
    };
    assert!(e.to_string().contains("tensor `matrix`, bytes 128 to"), "{e}");
}

#[test]
fn checksums_of_blocks_that_do_not_fit_the_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let root = write(&dir.path().join("m"), false).unwrap();
    let path = root.join(cactus_bundle::WEIGHTS_CHECKSUMS_PATH);
    let whole: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    type Change = fn(&mut serde_json::Value);
    let cases: [(&str, ErrorKind, Change); 5] = [
        ("version 2", ErrorKind::Version, |v| v["version"] = 2.into()),
        ("a block has 4096", ErrorKind::Invalid, |v| v["block_bytes"] = 0.into()),
        ("a block has 4096", ErrorKind::Invalid, |v| {
            v["block_bytes"] = u64::MAX.into()
        }),
        ("1 blocks, 0", ErrorKind::Invalid, |v| {
            v["files"] = serde_json::json!({})
        }),
        ("1 blocks, 2", ErrorKind::Invalid, |v| {
            let sums = v["files"]["model.weights"].as_array_mut().unwrap();
            sums.push(sums[0].clone());
        }),
    ];
    for (words, kind, change) in cases {
        let mut document = whole.clone();
        change(&mut document);
        let bytes = serde_json::to_vec(&document).unwrap();
        fs::write(&path, &bytes).unwrap();
        rewrite(&root, |m, _| {
            let entry = m.files.get_mut(cactus_bundle::WEIGHTS_CHECKSUMS_PATH).unwrap();
            *entry = FileEntry {
                bytes: bytes.len() as u64,
                xxh3: Checksum::of(&bytes),
            };
        });
        let e = open_and_verify(&root).expect_err(words);
        assert_eq!(e.kind(), kind, "{e}");
        assert!(e.to_string().contains(words), "{words}: {e}");
    }
}

#[test]
fn every_truncation_of_every_file_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = write(&dir.path().join("m"), false).unwrap();
    for file in files(&root) {
        let whole = fs::read(&file).unwrap();
        for len in (0..whole.len()).step_by(1 + whole.len() / 40) {
            fs::write(&file, &whole[..len]).unwrap();
            let e = open_and_verify(&root).expect_err(&format!("{} cut to {len}", file.display()));
            assert!(e.path().starts_with(&root), "{e}");
        }
        fs::write(&file, &whole).unwrap();
    }
    open_and_verify(&root).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_flipped_bit_is_found_or_harmless(at in any::<prop::sample::Index>(), which in any::<prop::sample::Index>(), bit in 0u8..8) {
        let dir = tempfile::tempdir().unwrap();
        let root = write(&dir.path().join("m"), false).unwrap();
        let all = files(&root);
        let file = &all[which.index(all.len())];
        let mut bytes = fs::read(file).unwrap();
        let i = at.index(bytes.len());
        bytes[i] ^= 1 << bit;
        fs::write(file, &bytes).unwrap();
        let result = open_and_verify(&root);
        // White space of the manifest means nothing; everything else is checked.
        let manifest = file.ends_with(MANIFEST_PATH);
        prop_assert!(result.is_err() || manifest, "{} byte {i} bit {bit}", file.display());
    }

    #[test]
    fn arbitrary_bytes_are_no_graph(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(decode_graph(Path::new("g"), &bytes).is_err());
    }

    #[test]
    fn damaged_graph_payloads_never_panic(at in any::<prop::sample::Index>(), value in any::<u8>()) {
        let mut bytes = encode_graph(&graph());
        let i = 32 + at.index(bytes.len() - 32);
        bytes[i] = value;
        // The checksum is made right again, so that the decoder itself sees the damage.
        let sum = cactus_bundle::Checksum::of(&bytes[32..]).0.to_le_bytes();
        bytes[24..32].copy_from_slice(&sum);
        if let Ok(g) = decode_graph(Path::new("g"), &bytes) {
            prop_assert!(g.verify().is_ok());
        }
    }
}
