//! Keeps some notes in an index and looks for one by its vector, its words and both: `notes INDEX`.
#![allow(clippy::print_stdout, reason = "a program that reports to its user")]

use cactus_retrieval::{Document, Filter, Index, Layout, Metric, Query, Recipe, Result};
use std::path::PathBuf;

fn main() -> Result<()> {
    let path = std::env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from("notes.index"), PathBuf::from);
    let recipe = Recipe::new("three numbers", 3, Metric::Cosine);
    let mut index = if path.exists() {
        Index::open(&path, Some(&recipe))?
    } else {
        Index::create(&path, &recipe, Layout::default())?
    };
    let notes = [
        (1u64, [0.9, 0.1, 0.0], "The boat leaves at seven", 2025i64),
        (2, [0.1, 0.9, 0.2], "Water the cactus once a month", 2026),
        (3, [0.0, 0.2, 0.9], "getUserName returns the name of the user", 2026),
    ];
    for (id, vector, text, year) in notes {
        index.upsert(Document::new(id, vector.to_vec()).with_text(text).with("year", year))?;
    }
    index.commit()?;

    let reader = index.reader()?;
    let near = [0.2, 0.8, 0.1];
    for (what, query) in [
        ("near", Query::Vector(&near)),
        ("words", Query::Words("name of a user")),
        (
            "both",
            Query::Both {
                vector: &near,
                words: "cactus",
            },
        ),
    ] {
        for hit in reader.search(&query, Some(&Filter::eq("year", 2026i64)), 2)? {
            println!("{what:6} {:.3} {}", hit.score, hit.id);
        }
    }
    Ok(())
}
