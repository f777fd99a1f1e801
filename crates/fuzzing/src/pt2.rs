//! Archives of `torch.export.save`: the zip, and the program inside.

use cactus_import::SharedBytes;
use cactus_import::pt2::{TranspileOptions, import_bytes, optimize};
use std::io::{Cursor, Read, Write};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use zip::read::{ArchiveOffset, Config};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// Golden archives whose weights serve as those of mutated programs: small ones, of many kinds of operations.
const BASES: [&str; 8] = [
    "classifier",
    "cnn_core",
    "inverses",
    "lstm_step",
    "scans",
    "tagger",
    "unet",
    "windows",
];
const PROGRAM: &str = "models/model.json";

/// An archive, imported and optimized.
pub(crate) fn pt2_archive(data: &[u8]) -> bool {
    let bytes: SharedBytes = Arc::new(data.to_vec());
    let Ok(mut imported) = import_bytes(Path::new("fuzzed.pt2"), bytes) else {
        return false;
    };
    imported.graph.verify().expect("what is imported is a valid graph");
    // May refuse, and may not panic.
    if let Ok((_, optimized, _)) = optimize(&mut imported, &TranspileOptions::default()) {
        optimized.verify().expect("passes keep a graph valid");
    }
    true
}

/// The program of an archive, beside the weights of each base in turn.
pub(crate) fn pt2_program(data: &[u8]) -> bool {
    bases().iter().any(|entries| pt2_archive(&archive(entries, Some(data))))
}

pub(crate) fn archives() -> Vec<Vec<u8>> {
    bases().iter().map(|entries| archive(entries, None)).collect()
}

pub(crate) fn programs() -> Vec<Vec<u8>> {
    let program = |entries: &Entries| {
        let found = entries.iter().find(|(name, _)| name.ends_with(PROGRAM));
        found.expect("a golden archive has a program").1.clone()
    };
    bases().iter().map(program).collect()
}

/// Names and contents.
type Entries = Vec<(String, Vec<u8>)>;

fn bases() -> &'static [Entries] {
    static READ: OnceLock<Vec<Entries>> = OnceLock::new();
    READ.get_or_init(|| BASES.iter().map(|name| entries(name)).collect())
}

/// The golden archive `name`.
pub(crate) fn golden(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/pt2");
    let path = folder.join(format!("{name}.pt2"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn entries(name: &str) -> Entries {
    let bytes = golden(name);
    let config = Config {
        archive_offset: ArchiveOffset::Known(0),
    };
    let mut zip = ZipArchive::with_config(config, Cursor::new(bytes)).expect("a golden archive is a zip");
    (0..zip.len())
        .map(|i| {
            let mut entry = zip.by_index(i).expect("a golden archive is whole");
            let mut content = Vec::new();
            entry.read_to_end(&mut content).expect("a golden archive is whole");
            (entry.name().expect("a name in UTF-8").into_owned(), content)
        })
        .collect()
}

/// A zip of stored entries, with another program if one is given.
fn archive(entries: &Entries, program: Option<&[u8]>) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (name, content) in entries {
        let content = program.filter(|_| name.ends_with(PROGRAM)).unwrap_or(content);
        zip.start_file(name.as_str(), options).expect("a zip in memory");
        zip.write_all(content).expect("a zip in memory");
    }
    zip.finish().expect("a zip in memory").into_inner()
}
