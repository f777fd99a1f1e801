//! Texts by what they mean (feature `search`).
//!
//!     cargo run -p cactus-conformance --example 09-embed-and-search EMBEDDER FOLDER
#![allow(clippy::print_stdout, reason = "it is an example")]

use cactus::search::{Document, EmbedOptions, Embedder, Index, Query, QueryOptions, Role};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("the folder of a model is missing")?;
    let folder = arguments.next().ok_or("the folder of the index is missing")?;
    let embedder = Embedder::load(Path::new(&path), None)?;
    let texts = ["The river is quick.", "Bread is baked.", "Rain falls on the hill."];
    let made = embedder.embed(Role::Document, &texts, &EmbedOptions::default())?;

    // One file, which is there again the next time.
    let index = Index::open(Path::new(&folder), embedder.dimensions())?;
    let documents = texts.iter().zip(made.rows()).zip(1_u64..);
    index.put(documents.map(|((text, vector), id)| Document::new(id, vector.to_vec()).with_text(*text)))?;

    let water = embedder.embed(Role::Query, &["water"], &EmbedOptions::default())?;
    let best = QueryOptions {
        top_k: 2,
        ..QueryOptions::default()
    };
    for hit in index.query(&Query::Vector(&water.values), &best)? {
        let document = index.get(hit.id)?;
        println!(
            "{:.3} {}",
            hit.score,
            document.map(|document| document.text).unwrap_or_default()
        );
    }
    Ok(())
}
