//! Mutations of JSON that stay JSON, for a fuzzer that keeps what reached something new: values are moved, repeated, renamed and
//! counted up within a document, so that those after ten steps are still read past the parser.

use serde_json::{Map, Number, Value};

use crate::mutate::Random;

/// One document of `input` (several are separated by zero bytes) with one to four values changed; `None` where that document
/// is no JSON.
pub fn reshaped(input: &[u8], seed: u64) -> Option<Vec<u8>> {
    let mut random = Random(seed);
    let mut documents: Vec<&[u8]> = input.split(|b| *b == 0).collect();
    let which = random.below(documents.len());
    let mut value: Value = serde_json::from_slice(documents[which]).ok()?;
    for _ in 0..=random.below(4) {
        change(&mut value, &mut random);
    }
    let text = value.to_string();
    documents[which] = text.as_bytes();
    Some(documents.join(&0))
}

fn change(document: &mut Value, random: &mut Random) {
    let count = nodes(document);
    let taken = any(document, random.below(count)).clone();
    // What is taken from elsewhere may not let the document double again and again.
    let taken = if nodes(&taken) > 64 { Value::Null } else { taken };
    let (key, text) = (word(document, random), word(document, random));
    let node = any_mut(document, random.below(count));
    match node {
        Value::Array(items) if random.below(3) > 0 => {
            let at = random.below(items.len() + 1);
            match random.below(3) {
                0 => items.insert(at, taken),
                1 if at < items.len() => drop(items.remove(at)),
                _ if !items.is_empty() => {
                    let other = random.below(items.len());
                    items.swap(at.min(other), other);
                }
                _ => {}
            }
        }
        Value::Object(fields) if random.below(3) > 0 => object(fields, key, taken, random),
        Value::Number(number) if random.below(4) > 0 => *node = counted(number, random),
        Value::String(held) if random.below(3) > 0 => {
            *held = match random.below(6) {
                0 => String::new(),
                1 => held.chars().rev().collect(),
                2 => format!("{held}{text}"),
                _ => text,
            };
        }
        Value::Bool(held) if random.below(3) > 0 => *held = !*held,
        _ => *node = taken,
    }
}

/// Adds, renames or removes a field.
fn object(fields: &mut Map<String, Value>, key: String, value: Value, random: &mut Random) {
    let old = match fields.len() {
        0 => None,
        n => fields.keys().nth(random.below(n)).cloned(),
    };
    match (random.below(3), old) {
        (0, Some(old)) => drop(fields.remove(&old)),
        (1, Some(old)) => {
            let held = fields.remove(&old).unwrap_or(value);
            fields.insert(key, held);
        }
        _ => drop(fields.insert(key, value)),
    }
}

/// A number near another one, or an extreme one.
fn counted(number: &Number, random: &mut Random) -> Value {
    const EXTREMES: [i64; 10] = [0, 1, -1, 2, 255, 65_536, i32::MAX as i64, 1 << 32, i64::MAX, i64::MIN];
    let steps = [-2, -1, 1, 2, 7, 32];
    match (number.as_i64(), random.below(8)) {
        (_, 0) => EXTREMES[random.below(EXTREMES.len())].into(),
        (_, 1) => u64::MAX.wrapping_shr(random.below(64) as u32).into(),
        (Some(n), 2) => n.wrapping_mul(2).into(),
        (Some(n), 3) => (n / 2).into(),
        (Some(n), 4) => (n as f64 + 0.5).into(),
        (Some(n), _) => n.wrapping_add(steps[random.below(steps.len())]).into(),
        (None, 2) => (number.as_f64().unwrap_or(0.5) * 1e30).into(),
        (None, 3) => (-number.as_f64().unwrap_or(0.5)).into(),
        (None, 4) => (number.as_f64().unwrap_or(0.5) as i64).into(),
        (None, _) => (number.as_f64().unwrap_or(0.5) * 0.5 + 0.25).into(),
    }
}

/// A name or a text that the document has somewhere.
fn word(document: &Value, random: &mut Random) -> String {
    let count = nodes(document);
    for _ in 0..8 {
        match any(document, random.below(count)) {
            Value::String(text) => return text.clone(),
            Value::Object(fields) if !fields.is_empty() => {
                let key = fields.keys().nth(random.below(fields.len()));
                return key.cloned().unwrap_or_default();
            }
            _ => {}
        }
    }
    "type".to_owned()
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        _ => Box::new(std::iter::empty()),
    }
}

/// Values in `value`, itself counted.
fn nodes(value: &Value) -> usize {
    1 + children(value).map(nodes).sum::<usize>()
}

/// The value numbered `n` of those in `value`, a parent before its children.
fn any(value: &Value, mut n: usize) -> &Value {
    let mut at = value;
    while n > 0 {
        n -= 1;
        let next = children(at).find(|child| {
            let count = nodes(child);
            let here = n < count;
            n -= if here { 0 } else { count };
            here
        });
        match next {
            Some(next) => at = next,
            None => return at,
        }
    }
    at
}

fn any_mut(value: &mut Value, mut n: usize) -> &mut Value {
    if n == 0 {
        return value;
    }
    n -= 1;
    let children: Box<dyn Iterator<Item = &mut Value>> = match value {
        Value::Array(items) => Box::new(items.iter_mut()),
        Value::Object(fields) => Box::new(fields.values_mut()),
        _ => unreachable!("a number below the count of nodes ends at a node"),
    };
    for child in children {
        let count = nodes(child);
        if n < count {
            return any_mut(child, n);
        }
        n -= count;
    }
    unreachable!("a number below the count of nodes ends at a node")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reshaped_documents_stay_json_and_repeat() {
        let input = b"{\"a\": [1, 2.5, {\"b\": \"c\", \"d\": null}], \"e\": true}\0[{\"x\": -3}, []]";
        let mut changed = 0;
        for seed in 0..500 {
            let made = reshaped(input, seed).expect("both documents are JSON");
            assert_eq!(reshaped(input, seed).as_ref(), Some(&made));
            let documents: Vec<&[u8]> = made.split(|b| *b == 0).collect();
            assert_eq!(documents.len(), 2);
            for document in documents {
                serde_json::from_slice::<Value>(document).expect("still JSON");
            }
            changed += usize::from(made != input);
        }
        assert!(changed > 450, "{changed}");
        assert_eq!(reshaped(b"[1", 0), None);
    }

    #[test]
    fn any_value_is_found_by_its_number() {
        let mut document = json!([1, [2, 3], {"a": 4}]);
        let found: Vec<Value> = (0..nodes(&document)).map(|n| any(&document, n).clone()).collect();
        let all = [
            document.clone(),
            json!(1),
            json!([2, 3]),
            json!(2),
            json!(3),
            json!({"a": 4}),
            json!(4),
        ];
        assert_eq!(found, all);
        for (n, value) in all.iter().enumerate() {
            assert_eq!(any_mut(&mut document, n), value);
        }
    }
}
