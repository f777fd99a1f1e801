//! What the tests share: documents from a small generator, and a plain model of an index to compare with.
#![allow(dead_code)]

use cactus_retrieval::{Document, Filter, Id, Layout, Metric, Recipe, Value};
use std::collections::BTreeMap;

/// A small deterministic generator (xorshift64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }

    pub(crate) fn unit(&mut self) -> f32 {
        self.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0
    }

    pub(crate) fn vector(&mut self, dim: usize) -> Vec<f32> {
        (0..dim).map(|_| self.unit()).collect()
    }
}

const WORDS: [&str; 24] = [
    "river",
    "stone",
    "getUserName",
    "snake_case",
    "北京大学",
    "engine",
    "vector",
    "index",
    "rank",
    "fuse",
    "cactus",
    "device",
    "phone",
    "Größe",
    "model",
    "query",
    "text",
    "search",
    "word",
    "token",
    "3.14",
    "int8",
    "kernel",
    "file",
];

pub(crate) fn recipe(dimensions: usize, metric: Metric) -> Recipe {
    Recipe::new("test-model", dimensions, metric)
}

/// A document that follows from its number and version alone.
pub(crate) fn document(number: u64, version: u64, dim: usize) -> Document {
    let mut random = Random::new(number * 7919 + version + 1);
    let vector = random.vector(dim);
    let count = random.below(30);
    // Words at the front are frequent.
    let mut word = || {
        let last = random.below(WORDS.len());
        WORDS[random.below(last + 1)]
    };
    let text: Vec<&str> = (0..count).map(|_| word()).collect();
    let mut document = Document::new(number, vector).with_text(text.join(" "));
    if random.below(4) > 0 {
        document = document.with("year", 1990 + random.below(40) as i64);
    }
    if random.below(4) > 0 {
        document = document.with("kind", ["note", "mail", "code"][random.below(3)]);
    }
    if random.below(3) == 0 {
        document = document.with("weight", f64::from(random.unit()));
    }
    if random.below(3) == 0 {
        document = document.with("read", random.below(2) == 0);
    }
    if random.below(3) == 0 {
        let tags = (0..random.below(3))
            .map(|_| WORDS[random.below(5)].to_owned())
            .collect();
        document.metadata.insert("tags".to_owned(), Value::List(tags));
    }
    // A name with several types.
    if random.below(5) == 0 {
        let value = if random.below(2) == 0 {
            Value::Integer(7)
        } else {
            Value::from("seven")
        };
        document.metadata.insert("mixed".to_owned(), value);
    }
    document
}

/// The same document with a text as its id.
pub(crate) fn with_text_id(mut document: Document) -> Document {
    if let Id::Number(number) = document.id {
        document.id = Id::from(format!("doc/{number}").as_str());
    }
    document
}

pub(crate) fn filters() -> Vec<Filter> {
    vec![
        Filter::eq("kind", "mail"),
        Filter::eq("tags", "stone"),
        Filter::eq("year", 2000.0),
        Filter::In("kind".to_owned(), vec!["note".into(), "code".into(), 3i64.into()]),
        Filter::between("year", 2000i64, 2010.5),
        Filter::Range("weight".to_owned(), Some(0.0f64.into()), None),
        Filter::Range("kind".to_owned(), None, Some("mail".into())),
        Filter::exists("mixed"),
        Filter::eq("mixed", 7i64),
        Filter::And(vec![Filter::exists("read"), Filter::eq("read", true).negated()]),
        Filter::Or(vec![Filter::eq("kind", "none"), Filter::exists("weight")]),
        Filter::And(vec![]),
        Filter::Or(vec![]),
    ]
}

/// A filter as its definition says, document by document.
pub(crate) fn holds(filter: &Filter, metadata: &BTreeMap<String, Value>) -> bool {
    let number = |v: &Value| match v {
        Value::Integer(n) => Some(*n as f64),
        Value::Float(x) => Some(*x),
        _ => None,
    };
    let order = |a: &Value, b: &Value| match (a, b) {
        (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (a, b) => number(a)?.partial_cmp(&number(b)?),
    };
    let any = |name: &str, test: &dyn Fn(&Value) -> bool| match metadata.get(name) {
        None => false,
        Some(Value::List(texts)) => texts.iter().any(|t| test(&Value::Text(t.clone()))),
        Some(value) => test(value),
    };
    match filter {
        Filter::Eq(name, value) => any(name, &|v| order(v, value).is_some_and(|o| o.is_eq())),
        Filter::In(name, values) => any(name, &|v| values.iter().any(|w| order(v, w).is_some_and(|o| o.is_eq()))),
        Filter::Range(name, from, to) => any(name, &|v| {
            from.as_ref().is_none_or(|f| order(v, f).is_some_and(|o| o.is_ge()))
                && to.as_ref().is_none_or(|t| order(v, t).is_some_and(|o| o.is_le()))
        }),
        Filter::Exists(name) => metadata.contains_key(name),
        Filter::And(all) => all.iter().all(|f| holds(f, metadata)),
        Filter::Or(some) => some.iter().any(|f| holds(f, metadata)),
        Filter::Not(filter) => !holds(filter, metadata),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn layouts() -> Vec<Layout> {
    use cactus_retrieval::{Encoding, IdKind};
    let mut layouts = Vec::new();
    for encoding in [Encoding::Int8, Encoding::F32, Encoding::Binary] {
        for ids in [IdKind::Number, IdKind::Text] {
            layouts.push(Layout { encoding, ids });
        }
    }
    layouts
}
