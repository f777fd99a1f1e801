//! What becomes of texts in a model that makes vectors of them, in words.

use cactus_bundle::{Embedding, Gives, TokenTexts};

/// The record, a line for each thing to know.
pub(super) fn lines(record: &Embedding) -> Vec<String> {
    let mut lines = vec![format!(
        "texts of at most {} tokens, prompts included",
        record.limit_tokens
    )];
    if record.lower_case {
        lines.push("in lower case".to_owned());
    }
    if let Some(fill) = &record.fill {
        lines.push(format!("filled up to {} tokens", fill.length));
    }
    match &record.gives {
        Gives::Vectors(vectors) => {
            let cut = match vectors.least_dimensions {
                Some(least) => format!(", may be cut to {least}"),
                None => String::new(),
            };
            let pooling: Vec<String> = vectors.pooling.iter().map(word).collect();
            let length = if vectors.normalized { ", length 1" } else { "" };
            lines.push(format!(
                "{} dimensions{cut}, pooled by {}{length}, compared by {}",
                vectors.dimensions,
                pooling.join(" and "),
                word(&vectors.similarity)
            ));
            for (name, prompt) in &vectors.prompts {
                let usual = if vectors.default_prompt.as_ref() == Some(name) {
                    " (if nothing is said)"
                } else {
                    ""
                };
                lines.push(format!("prompt `{name}`{usual}: `{}`", prompt.escape_debug()));
            }
        }
        Gives::TokenVectors(vectors) => {
            lines.push(format!("{} dimensions for each token", vectors.dimensions));
            for (role, texts) in [("query", &vectors.query), ("document", &vectors.document)] {
                lines.push(token_texts(role, texts));
            }
        }
        Gives::Scores(_) => lines.push("a score of a query and a document".to_owned()),
        _ => {}
    }
    lines
}

fn token_texts(role: &str, texts: &TokenTexts) -> String {
    let prompt = match texts.prompt.is_empty() {
        true => String::new(),
        false => format!(", prompt `{}`", texts.prompt.escape_debug()),
    };
    let filled = match texts.expansion {
        Some(expansion) => format!(", filled up to {}", expansion.length),
        None => String::new(),
    };
    format!("a {role} of at most {} tokens{prompt}{filled}", texts.limit_tokens)
}

/// A name of a record as people write it.
fn word(of: &impl serde::Serialize) -> String {
    let name = serde_json::to_value(of).unwrap_or_default();
    name.as_str().unwrap_or_default().replace('_', " ")
}
