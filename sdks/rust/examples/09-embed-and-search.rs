//! Texts by what they mean.
//!
//!     cargo run -p cactus-conformance --example 09-embed-and-search EMBEDDER FOLDER
#![allow(clippy::print_stdout, reason = "it is an example")]

use cactus_embed::{EmbedOptions, Embedder, Role};
use cactus_retrieval::{Document, Layout, Metric, Query, Recipe, SharedIndex};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("the folder of a model is missing")?;
    let folder = arguments.next().ok_or("the folder of the index is missing")?;
    let embedder = Embedder::open(Path::new(&path), None)?;
    let texts = ["The river is quick.", "Bread is baked.", "Rain falls on the hill."];
    let made = embedder.embed(Role::Document, &texts, &EmbedOptions::default())?;
    let dimensions = made.values.len() / texts.len();

    // One file, which is there again the next time.
    std::fs::create_dir_all(&folder)?;
    let recipe = Recipe::new("example", dimensions, Metric::Cosine);
    let index = SharedIndex::open_or_create(&Path::new(&folder).join("notes.index"), &recipe, Layout::default())?;
    index.write(|index| {
        let documents = texts.iter().zip(made.values.chunks(dimensions)).zip(1_u64..);
        documents
            .into_iter()
            .try_for_each(|((text, vector), id)| index.upsert(Document::new(id, vector.to_vec()).with_text(*text)))
    })?;
    let water = embedder.embed(Role::Query, &["water"], &EmbedOptions::default())?;
    let reader = index.read()?;
    for hit in reader.search(&Query::Vector(&water.values), None, 2)? {
        let document = reader.get(&hit.id)?;
        println!(
            "{:.3} {}",
            hit.score,
            document.map(|document| document.text).unwrap_or_default()
        );
    }
    Ok(())
}
