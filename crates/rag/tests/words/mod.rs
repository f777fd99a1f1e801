//! A model that counts words.
#![allow(dead_code, reason = "not every test uses all of it")]

use cactus_rag::{Embed, EmbedError};
use cactus_retrieval::{Metric, Recipe};
use std::cell::{Cell, RefCell};

const DIM: usize = 64;

/// A vector has a place for some of the words each.
pub(crate) struct Words {
    pub(crate) name: &'static str,
    pub(crate) made: RefCell<Vec<String>>,
    pub(crate) fails: Cell<bool>,
}

impl Words {
    pub(crate) fn new() -> Words {
        Words {
            name: "words",
            made: RefCell::default(),
            fails: Cell::new(false),
        }
    }

    pub(crate) fn taken(&self) -> Vec<String> {
        self.made.take()
    }
}

fn vector(text: &str) -> Vec<f32> {
    let mut vector = vec![0.01; DIM];
    for word in text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        let hash = word
            .to_lowercase()
            .bytes()
            .fold(7u32, |hash, b| hash.wrapping_mul(31).wrapping_add(b.into()));
        vector[hash as usize % DIM] += 1.0;
    }
    vector
}

impl Embed for Words {
    fn recipe(&self) -> Recipe {
        Recipe::new(self.name, DIM, Metric::Cosine)
    }

    fn most_tokens(&self) -> usize {
        12
    }

    fn count_tokens(&self, text: &str) -> usize {
        text.split_whitespace().count()
    }

    fn embed_documents(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        if self.fails.get() {
            return Err("no model today".into());
        }
        for text in texts {
            assert!(self.count_tokens(text) <= 12, "{text}");
        }
        self.made.borrow_mut().extend_from_slice(texts);
        Ok(texts.iter().map(|text| vector(text)).collect())
    }

    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        Ok(vector(text))
    }
}
