//! Vectors of texts and pictures, and an index of them.

use crate::failure::{Failure, Result};
use cactus_bundle::{Bundle, Gives};
use cactus_embed::{EmbedOptions, Embedder, Limits, PictureEmbedder, Role};
use cactus_retrieval::{Document, Filter, Id, Layout, Metric, Query, Recipe, SharedIndex, Value as Field};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// The field of a document that has the text beside its own.
const METADATA: &str = "metadata";

/// A model that makes vectors.
pub(crate) struct Embeds {
    texts: Arc<Embedder>,
    pictures: Option<PictureEmbedder>,
}

impl Embeds {
    pub(crate) fn load(path: &str) -> Result<Embeds> {
        let bundle = Arc::new(Bundle::open(Path::new(path))?);
        if !matches!(bundle.embedding()?.map(|record| record.gives), Some(Gives::Vectors(_))) {
            return Err(Failure::new("unsupported", "the bundle makes no vectors"));
        }
        let texts = Arc::new(Embedder::of(&bundle, None)?);
        let pictures = PictureEmbedder::is_in(&bundle).then(|| PictureEmbedder::of(&bundle, None));
        Ok(Embeds {
            texts,
            pictures: pictures.transpose()?,
        })
    }

    pub(crate) fn embed(&self, step: &Value) -> Result<Value> {
        let mut vectors = Vec::new();
        for text in step["texts"].as_array().into_iter().flatten() {
            let text = text.as_str().unwrap_or_default();
            let made = self.texts.embed(Role::Plain, &[text], &EmbedOptions::default());
            let mut vector = made?.values;
            if step["normalize"] == true && !self.texts.vectors().normalized {
                cactus_embed::normalize(&mut vector);
            }
            vectors.push(hex(&vector));
        }
        Ok(json!({"vectors": vectors}))
    }

    pub(crate) fn embed_image(&self, path: &str) -> Result<Value> {
        let pictures = self.pictures.as_ref();
        let pictures = pictures.ok_or_else(|| Failure::new("unsupported", "the model makes no vectors of pictures"))?;
        let file = std::fs::read(path).map_err(|e| Failure::argument(format!("{path}: {e}")))?;
        let made = pictures.embed_files(&[file], &Limits::default(), &EmbedOptions::default())?;
        Ok(json!({"vectors": [hex(&made.values)]}))
    }
}

/// Floats as the digits of their bits.
pub(crate) fn hex(floats: &[f32]) -> String {
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

pub(crate) fn open(step: &Value) -> Result<SharedIndex> {
    let folder = Path::new(step["folder"].as_str().unwrap_or_default());
    std::fs::create_dir_all(folder).map_err(|e| Failure::new("system", format!("{}: {e}", folder.display())))?;
    let dimension = step["dimension"].as_u64().unwrap_or_default() as usize;
    let recipe = Recipe::new("caller", dimension, Metric::Cosine);
    Ok(SharedIndex::open_or_create(
        &folder.join("cactus.index"),
        &recipe,
        Layout::default(),
    )?)
}

pub(crate) fn add(index: &SharedIndex, step: &Value) -> Result<()> {
    let mut documents = Vec::new();
    for (i, number) in ids(step).enumerate() {
        let text = step["documents"][i].as_str().unwrap_or_default();
        let document = Document::new(id(number), floats(&step["vectors"][i])).with_text(text);
        documents.push(match step["metadatas"][i].as_str() {
            Some(text) => document.with(METADATA, text),
            None => document,
        });
    }
    index.write(|index| documents.into_iter().try_for_each(|document| index.add(document)))?;
    Ok(())
}

pub(crate) fn query(index: &SharedIndex, step: &Value) -> Result<Value> {
    let options = &step["options"];
    let top = options["top_k"].as_u64().unwrap_or(10) as usize;
    let least = options["score_threshold"]
        .as_f64()
        .map_or(f32::NEG_INFINITY, |least| least as f32);
    let filter = options.get("filter").map(Filter::from_json).transpose()?;
    let reader = index.read()?;
    let mut found = Vec::new();
    for vector in step["vectors"].as_array().into_iter().flatten() {
        let mut hits = reader.search(&Query::Vector(&floats(vector)), filter.as_ref(), top)?;
        hits.retain(|hit| hit.score >= least);
        let hits = hits.iter().map(|hit| json!([number(&hit.id), hex(&[hit.score])]));
        found.push(hits.collect::<Vec<_>>());
    }
    Ok(json!({"found": found}))
}

pub(crate) fn get(index: &SharedIndex, step: &Value) -> Result<Value> {
    let reader = index.read()?;
    let mut documents = Vec::new();
    for number in ids(step) {
        let document = reader.get(&id(number))?;
        let document = document.ok_or_else(|| Failure::argument(format!("the index has no document {number}")))?;
        let metadata = match document.metadata.get(METADATA) {
            Some(Field::Text(text)) => text.as_str(),
            _ => "",
        };
        documents.push(json!([document.text, metadata, hex(&document.vector)]));
    }
    Ok(json!({"documents": documents}))
}

pub(crate) fn delete(index: &SharedIndex, step: &Value) -> Result<()> {
    index.write(|index| ids(step).try_for_each(|number| index.delete(&id(number)).map(drop)))?;
    Ok(())
}

pub(crate) fn compact(index: &SharedIndex) -> Result<()> {
    index.write(|index| index.compact())?;
    Ok(())
}
