//! Files of an index.

use cactus_bundle::Checksum;
use cactus_retrieval::{
    Document, Encoding, Error, Filter, Id, IdKind, Index, Layout, Metric, Query, Reader, Recipe, Value,
};
use std::fs;
use std::path::Path;

/// Bytes of an input that are the start of the header, and of those that are the root.
const HEAD: usize = 192;
const ROOT: usize = 64;
/// Bytes of the header and of the place of a root, and where what was committed begins.
const PAGE: usize = 4096;
const DATA: usize = 3 * PAGE;
const DIM: usize = 5;

/// An index without the zeros of its first pages: the start of the header, a root, and what was committed. Checksums are put
/// right: they keep out damage, not malice.
pub(crate) fn index_file(data: &[u8]) -> bool {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let path = folder.path().join("index");
    fs::write(&path, file(data)).expect("a temporary file");
    let accepted = use_all(&path).is_ok();
    if accepted {
        // What was taken in and written anew is an index.
        let reader = Reader::open(&path, None).expect("a compacted index");
        reader.verify().expect("a compacted index");
    }
    accepted
}

fn use_all(path: &Path) -> Result<(), Error> {
    let reader = Reader::open(path, None)?;
    let dimensions = reader.recipe().dimensions;
    let vector = vec![0.25; dimensions];
    let both = Query::Both {
        vector: &vector,
        words: "one two three",
    };
    let filters = [
        Filter::eq("kind", "note"),
        Filter::between("year", 1.5, 3000i64),
        Filter::And(vec![Filter::exists("tags"), Filter::eq("tags", "two").negated()]),
    ];
    reader.search(&both, None, 10)?;
    for filter in &filters {
        reader.search(&both, Some(filter), 10)?;
    }
    reader.for_each(|document| reader.get(&document.id).map(drop))?;
    let mut index = Index::open(path, None)?;
    index.set_durable(false);
    let text = index.layout().ids == IdKind::Text;
    let document = if text {
        Document::new("x2", vector)
    } else {
        Document::new(2, vector)
    };
    index.upsert(document.with_text("two more").with("year", 7i64))?;
    index.commit()?;
    index.compact()?;
    Ok(())
}

fn number(bytes: &[u8], at: usize) -> usize {
    let field = bytes
        .get(at..at.saturating_add(8))
        .and_then(|field| field.try_into().ok());
    field.map_or(0, |field| u64::from_le_bytes(field) as usize)
}

/// Puts the checksum of `bytes[range]` at `to`, where both are there.
fn sum(bytes: &mut [u8], from: usize, length: usize, to: usize) {
    let Some(content) = bytes.get(from..from.saturating_add(length)) else {
        return;
    };
    let sum = Checksum::of(content).0.to_le_bytes();
    if let Some(field) = bytes.get_mut(to..to.saturating_add(8)) {
        field.copy_from_slice(&sum);
    }
}

fn file(data: &[u8]) -> Vec<u8> {
    let (head, rest) = data.split_at(data.len().min(HEAD));
    let (root, rest) = rest.split_at(rest.len().min(ROOT));
    let mut file = vec![0; DATA];
    file.extend(rest);
    file[..head.len()].copy_from_slice(head);
    file[8..12].copy_from_slice(&(PAGE as u32).to_le_bytes());
    let at = PAGE * (1 + number(root, 16) % 2);
    file[at..at + root.len()].copy_from_slice(root);
    file.copy_within(16..24, at + 8);
    let (directory, bytes) = (number(&file, at + 24), number(&file, at + 32));
    for entry in (directory..directory.saturating_add(bytes.min(file.len())))
        .skip(24)
        .step_by(48)
    {
        let segment = number(&file, entry);
        let table = number(&file, segment.saturating_add(16))
            .saturating_mul(32)
            .saturating_add(32);
        sum(&mut file, segment, table, segment.saturating_add(table));
        let (deleted, bytes) = (number(&file, entry + 24), number(&file, entry + 32));
        if bytes > 0 {
            sum(&mut file, deleted, bytes, entry + 40);
        }
    }
    sum(&mut file, directory, bytes, at + 40);
    sum(&mut file, at, 56, at + 56);
    sum(&mut file, 0, PAGE - 8, PAGE - 8);
    file
}

pub(crate) fn index_seeds() -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let layouts = [
        (Encoding::Int8, IdKind::Number, Metric::Cosine),
        (Encoding::F32, IdKind::Text, Metric::Euclidean),
        (Encoding::Binary, IdKind::Number, Metric::Dot),
    ];
    let seed = |(encoding, ids, metric): (Encoding, IdKind, Metric)| {
        let path = folder.path().join(encoding.name());
        let mut index = Index::create(&path, &Recipe::new("m", DIM, metric), Layout { encoding, ids })?;
        for number in 0..6u64 {
            let vector = (0..DIM).map(|i| (number as f32 + 1.0) * i as f32 - 3.0).collect();
            let mut document = match ids {
                IdKind::Number => Document::new(number, vector),
                IdKind::Text => Document::new(format!("x{number}").as_str(), vector),
            };
            document = document
                .with_text("one two two getName 北京")
                .with("year", number as i64);
            document = document.with("kind", "note").with("weight", 0.5).with("read", true);
            let tags = vec!["one".to_owned(), "two".to_owned()];
            document.metadata.insert("tags".to_owned(), Value::List(tags));
            index.add(document)?;
            if number % 3 == 2 {
                index.commit()?;
            }
        }
        index.delete(&match ids {
            IdKind::Number => Id::from(1),
            IdKind::Text => Id::from("x1"),
        })?;
        let generation = index.commit()?.generation as usize;
        let file = fs::read(&path).expect("a new index");
        let at = PAGE * (1 + generation % 2);
        Ok::<_, Error>([&file[..HEAD], &file[at..at + ROOT], &file[DATA..number(&file, at + 48)]].concat())
    };
    layouts
        .into_iter()
        .map(|layout| seed(layout).expect("a new index"))
        .collect()
}
