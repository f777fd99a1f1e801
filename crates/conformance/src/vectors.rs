//! Vectors of texts and pictures, and an index of them.

use crate::failure::{Failure, Result};
use cactus::search::{Document, EmbedOptions, Embedder, Id, Index, Query, QueryOptions, Role, Value as Field, filter};
use serde_json::{Value, json};
use std::path::Path;

/// The field of a document that has the text beside its own.
const METADATA: &str = "metadata";

pub(crate) fn load(path: &str) -> Result<Embedder> {
    Ok(Embedder::load(Path::new(path), None)?)
}

pub(crate) fn embed(embedder: &Embedder, step: &Value) -> Result<Value> {
    let options = EmbedOptions {
        normalize: step["normalize"] == true,
        ..EmbedOptions::default()
    };
    let texts = step["texts"].as_array().into_iter().flatten();
    let texts: Vec<&str> = texts.map(|text| text.as_str().unwrap_or_default()).collect();
    let made = embedder.embed(Role::Plain, &texts, &options)?;
    Ok(json!({"vectors": made.rows().map(hex).collect::<Vec<_>>()}))
}

pub(crate) fn embed_image(embedder: &Embedder, path: &str) -> Result<Value> {
    let made = embedder.embed_image(Path::new(path), &EmbedOptions::default())?;
    Ok(json!({"vectors": [hex(&made.values)]}))
}

/// Floats as the digits of their bits.
fn hex(floats: &[f32]) -> String {
    floats.iter().map(|x| format!("{:08x}", x.to_bits())).collect()
}

fn floats(hex: &Value) -> Vec<f32> {
    let digits = hex.as_str().unwrap_or_default().as_bytes().chunks(8);
    let bits = |digits: &[u8]| u32::from_str_radix(&String::from_utf8_lossy(digits), 16).unwrap_or_default();
    digits.map(|digits| f32::from_bits(bits(digits))).collect()
}

fn ids(step: &Value) -> impl Iterator<Item = i64> {
    let ids = step["ids"].as_array().into_iter().flatten();
    ids.filter_map(Value::as_i64).collect::<Vec<_>>().into_iter()
}

/// Any `int` of C names a document.
fn id(number: i64) -> Id {
    Id::Number(u64::from(number as u32))
}

fn number(id: &Id) -> i64 {
    match id {
        Id::Number(number) => i64::from(*number as u32 as i32),
        Id::Text(_) => 0,
    }
}

pub(crate) fn open(step: &Value) -> Result<Index> {
    let folder = Path::new(step["folder"].as_str().unwrap_or_default());
    Ok(Index::open(
        folder,
        step["dimension"].as_u64().unwrap_or_default() as usize,
    )?)
}

pub(crate) fn add(index: &Index, step: &Value) -> Result<()> {
    let documents = ids(step).enumerate().map(|(i, number)| {
        let text = step["documents"][i].as_str().unwrap_or_default();
        let document = Document::new(id(number), floats(&step["vectors"][i])).with_text(text);
        match step["metadatas"][i].as_str() {
            Some(text) => document.with(METADATA, text),
            None => document,
        }
    });
    Ok(index.add(documents)?)
}

pub(crate) fn query(index: &Index, step: &Value) -> Result<Value> {
    let given = &step["options"];
    let usual = QueryOptions::default();
    let options = QueryOptions {
        top_k: given["top_k"].as_u64().map_or(usual.top_k, |top| top as usize),
        score_threshold: given["score_threshold"].as_f64().map(|least| least as f32),
        filter: given.get("filter").map(filter).transpose()?,
    };
    let mut found = Vec::new();
    for vector in step["vectors"].as_array().into_iter().flatten() {
        let hits = index.query(&Query::Vector(&floats(vector)), &options)?;
        let hits = hits.iter().map(|hit| json!([number(&hit.id), hex(&[hit.score])]));
        found.push(hits.collect::<Vec<_>>());
    }
    Ok(json!({"found": found}))
}

pub(crate) fn get(index: &Index, step: &Value) -> Result<Value> {
    let mut documents = Vec::new();
    for number in ids(step) {
        let document = index.get(id(number))?;
        let document = document.ok_or_else(|| Failure::argument(format!("the index has no document {number}")))?;
        let metadata = match document.metadata.get(METADATA) {
            Some(Field::Text(text)) => text.as_str(),
            _ => "",
        };
        documents.push(json!([document.text, metadata, hex(&document.vector)]));
    }
    Ok(json!({"documents": documents}))
}

pub(crate) fn delete(index: &Index, step: &Value) -> Result<()> {
    index.delete(ids(step).map(id))?;
    Ok(())
}
