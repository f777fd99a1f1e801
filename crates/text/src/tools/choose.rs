//! Which of many tools a question is about.
//!
//! Okapi BM25 (Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework") over the words of names, descriptions and
//! parameters. It knows no synonyms and no other language. Where a model of vectors has said how near each tool is, both orders are
//! joined by rank (Cormack, Clarke and Büttcher 2009, "Reciprocal Rank Fusion"). The choice depends on nothing but its input.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Tool;

/// How soon more of the same word stops to count.
const K1: f64 = 1.5;
/// How much a long description counts against a tool.
const B: f64 = 0.75;
/// A word in the name counts as so many elsewhere.
const NAME_WEIGHT: usize = 3;
/// What ranks of two orders are joined with.
const RANK_OFFSET: f64 = 60.0;
/// Deepest schemas whose words count.
const MAX_DEPTH: usize = 8;

/// The places in `tools` of the `k` tools that `question` is most likely about, in the order of `tools`, so that a prompt
/// changes as little as it can. Of tools that fit equally, the first are taken. `near` has how near each tool is to the question, where a model of
/// vectors was asked: more is nearer.
pub fn most_relevant(tools: &[Tool], question: &str, near: Option<&[f32]>, k: usize) -> Vec<usize> {
    let documents: Vec<Vec<String>> = tools.iter().map(document).collect();
    let average = documents.iter().map(Vec::len).sum::<usize>() as f64 / tools.len().max(1) as f64;
    let mut found_in: BTreeMap<&str, usize> = BTreeMap::new();
    let counts: Vec<BTreeMap<&str, usize>> = documents
        .iter()
        .map(|document| {
            let mut counts = BTreeMap::new();
            for word in document {
                *counts.entry(word.as_str()).or_insert(0) += 1;
            }
            counts.keys().for_each(|word| *found_in.entry(word).or_insert(0) += 1);
            counts
        })
        .collect();
    let mut asked = words(question);
    asked.sort_unstable();
    asked.dedup();
    let score = |counts: &BTreeMap<&str, usize>, length: usize| -> f64 {
        let terms = asked.iter().filter_map(|word| {
            let count = *counts.get(word.as_str())? as f64;
            let containing = *found_in.get(word.as_str())? as f64;
            let rarity = ((tools.len() as f64 - containing + 0.5) / (containing + 0.5)).ln_1p();
            let length = 1.0 - B + B * length as f64 / average.max(1.0);
            Some(rarity * count * (K1 + 1.0) / (count + K1 * length))
        });
        terms.sum()
    };
    let mut order: Vec<(usize, f64)> = counts
        .iter()
        .zip(&documents)
        .map(|(counts, document)| score(counts, document.len()))
        .enumerate()
        .collect();
    best_first(&mut order);
    if let Some(near) = near {
        let mut joined = vec![0.0; tools.len()];
        let mut nearest: Vec<(usize, f64)> = near.iter().map(|&x| f64::from(x)).enumerate().collect();
        nearest.truncate(tools.len());
        best_first(&mut nearest);
        // Tools that have no word of the question share the rank behind those that have some.
        let worded = order.iter().take_while(|(_, score)| *score > 0.0).count();
        for (side, last) in [(&order, worded), (&nearest, tools.len())] {
            for (rank, (index, _)) in side.iter().enumerate() {
                joined[*index] += 1.0 / (RANK_OFFSET + (rank.min(last) + 1) as f64);
            }
        }
        order = joined.into_iter().enumerate().collect();
        best_first(&mut order);
    }
    let mut chosen: Vec<usize> = order.into_iter().take(k).map(|(index, _)| index).collect();
    chosen.sort_unstable();
    chosen
}

/// The larger numbers first, and of equal ones the first.
fn best_first(order: &mut [(usize, f64)]) {
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
}

/// A tool in words, for a model that makes vectors of texts: its name, what it does, and what it wants to know.
pub fn in_words(tool: &Tool) -> String {
    let mut wants = Vec::new();
    add_names(&tool.parameters, &mut wants);
    let mut out = words(&tool.name).join(" ");
    if !tool.description.is_empty() {
        out.push_str(": ");
        out.push_str(&tool.description);
    }
    if !wants.is_empty() {
        out.push_str(" (");
        out.push_str(&wants.join(", "));
        out.push(')');
    }
    out
}

/// Names and descriptions of the parameters themselves, not of what is in them.
fn add_names(schema: &Value, out: &mut Vec<String>) {
    for (name, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        out.push(match property.get("description").and_then(Value::as_str) {
            Some(text) => text.to_owned(),
            None => words(name).join(" "),
        });
    }
}

fn document(tool: &Tool) -> Vec<String> {
    let name = words(&tool.name);
    let mut document = words(&tool.description);
    for _ in 0..NAME_WEIGHT {
        document.extend(name.iter().cloned());
    }
    add_schema(&tool.parameters, &mut document, 0);
    document
}

/// Words of the parameters: their names, descriptions and choices.
fn add_schema(schema: &Value, document: &mut Vec<String>, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    let text = schema.get("description").and_then(Value::as_str);
    document.extend(text.map(words).unwrap_or_default());
    for choice in schema.get("enum").and_then(Value::as_array).into_iter().flatten() {
        document.extend(choice.as_str().map(words).unwrap_or_default());
    }
    for (name, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        document.extend(words(name));
        add_schema(property, document, depth + 1);
    }
    if let Some(items) = schema.get("items") {
        add_schema(items, document, depth + 1);
    }
}

/// Words in small letters; `getWeather` and `get_weather` are two. A plural's `s` is left off.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut small = false;
    for c in text.chars().chain([' ']) {
        if !c.is_alphanumeric() || (small && c.is_uppercase()) {
            let whole = std::mem::take(&mut word);
            let stem = whole
                .strip_suffix('s')
                .filter(|stem| stem.len() > 2 && !stem.ends_with('s'));
            let stem = stem.unwrap_or(&whole);
            if !stem.is_empty() {
                words.push(stem.to_owned());
            }
        }
        small = c.is_lowercase();
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_at_borders_of_all_kinds() {
        assert_eq!(
            words("getWeather set_alarms, U.S. class"),
            ["get", "weather", "set", "alarm", "u", "s", "class"]
        );
        assert_eq!(words(" Zürich 日本!"), ["zürich", "日本"]);
    }

    #[test]
    fn relevant_tools_are_chosen() {
        let tool = |name: &str, description: &str| Tool {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: serde_json::json!({"properties": {"city": {"description": format!("for {name}")}}}),
            strict: false,
        };
        let tools = [
            tool("set_alarm", "Sets an alarm clock at a time"),
            tool("get_weather", "Current weather and forecast"),
            tool("sendEmail", "Sends a message to a person"),
            tool("play_music", "Plays a song"),
        ];
        for (question, k, chosen) in [
            ("What is the weather like in Bern?", 1, vec![1]),
            ("send an email to Ann, then play songs", 2, vec![2, 3]),
            ("wake me with alarms", 1, vec![0]),
            ("nothing that fits", 2, vec![0, 1]),
            ("weather", 9, vec![0, 1, 2, 3]),
            ("weather", 0, vec![]),
        ] {
            assert_eq!(most_relevant(&tools, question, None, k), chosen, "{question}");
        }
        assert!(most_relevant(&[], "x", None, 3).is_empty());
        // What is near counts where no word is the same, and beside the words where some are.
        for (question, near, k, chosen) in [
            ("Will I need an umbrella?", [0.1, 0.7, 0.2, 0.3], 1, vec![1]),
            ("Will I need an umbrella?", [0.1, 0.7, 0.2, 0.3], 2, vec![1, 3]),
            ("wake me with alarms", [0.3, 0.2, 0.1, 0.4], 1, vec![0]),
            ("nothing", [0.5; 4], 2, vec![0, 1]),
        ] {
            assert_eq!(most_relevant(&tools, question, Some(&near), k), chosen, "{question}");
        }
        assert_eq!(most_relevant(&tools, "song", Some(&[]), 1), vec![3]);
        assert_eq!(
            in_words(&tools[0]),
            "set alarm: Sets an alarm clock at a time (for set_alarm)"
        );
    }
}
