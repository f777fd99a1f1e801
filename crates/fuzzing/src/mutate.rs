//! Cheap deterministic mutations of a valid input: truncations, flipped bytes, extreme integers, JSON values swapped for
//! hostile ones. What libFuzzer does with coverage and for hours, this does blindly and in a second.

use crate::Form;
use serde_json::{Value, json};

/// SplitMix64 (Steele et al. 2014): a few lines, and the same numbers everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// `count` mutations of `seed`, each of one to three steps; the same for the same arguments.
pub fn mutations(form: Form, seed: &[u8], count: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut random = Random(seed.len() as u64);
    let count = if seed.is_empty() { 0 } else { count };
    (0..count).map(move |_| {
        let mut out = seed.to_vec();
        for _ in 0..=random.below(3) {
            if !out.is_empty() {
                out = step(form, &out, &mut random);
            }
        }
        out
    })
}

fn step(form: Form, input: &[u8], random: &mut Random) -> Vec<u8> {
    match (form, random.below(8)) {
        (_, 0) => input[..random.below(input.len())].to_vec(),
        (Form::Json, 1..=5) => json(input, random),
        (Form::Binary, 1..=5) => binary(input, random),
        _ => bytes(input, random),
    }
}

/// Flips a bit, or removes or repeats a few bytes.
fn bytes(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = seed.to_vec();
    let at = random.below(out.len());
    let end = (at + 1 + random.below(24)).min(out.len());
    match random.below(3) {
        0 => out[at] ^= 1 << random.below(8),
        1 => drop(out.drain(at..end)),
        _ => {
            let piece = out[at..end].to_vec();
            let to = random.below(out.len());
            out.splice(to..to, piece);
        }
    }
    out
}

/// Overwrites an integer with an extreme one. The head of a file, where its sizes are, is hit more often.
fn binary(seed: &[u8], random: &mut Random) -> Vec<u8> {
    const EXTREMES: [u64; 8] = [
        0,
        1,
        0x7fff_ffff,
        0xffff_ffff,
        1 << 32,
        i64::MAX as u64,
        u64::MAX,
        u64::MAX - 127,
    ];
    let mut out = seed.to_vec();
    let range = if random.below(2) == 0 {
        out.len()
    } else {
        out.len().min(256)
    };
    let at = random.below(range);
    let value = EXTREMES[random.below(EXTREMES.len())].to_le_bytes();
    let width = [1, 4, 8][random.below(3)].min(out.len() - at);
    out[at..at + width].copy_from_slice(&value[..width]);
    out
}

/// Swaps one value of one document for a hostile one, or takes it out.
fn json(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut documents: Vec<Vec<u8>> = seed.split(|b| *b == 0).map(<[u8]>::to_vec).collect();
    let which = random.below(documents.len());
    let Ok(mut value) = serde_json::from_slice::<Value>(&documents[which]) else {
        return bytes(seed, random);
    };
    let hostile = [
        Value::Null,
        json!(-1),
        json!(0),
        json!(u64::MAX),
        json!(4_294_967_296u64),
        json!(1e308),
        json!(0.5),
        json!(true),
        json!(""),
        json!("../../x"),
        json!([]),
        json!({}),
        json!([[[[[]]]]]),
        json!("seq-1"),
    ];
    swap(&mut value, hostile[random.below(hostile.len())].clone(), random);
    documents[which] = value.to_string().into_bytes();
    documents.join(&0)
}

/// Walks down at random and puts `new` where it stops.
fn swap(at: &mut Value, new: Value, random: &mut Random) {
    let stop = random.below(8) == 0;
    match at {
        Value::Array(items) if !items.is_empty() && !stop => {
            let i = random.below(items.len());
            if random.below(16) == 0 {
                items.remove(i);
            } else {
                swap(&mut items[i], new, random);
            }
        }
        Value::Object(fields) if !fields.is_empty() && !stop => {
            let i = random.below(fields.len());
            let Some((key, value)) = fields.iter_mut().nth(i) else {
                return;
            };
            if random.below(16) == 0 {
                let key = key.clone();
                fields.remove(&key);
            } else {
                swap(value, new, random);
            }
        }
        other => *other = new,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_differ_from_the_seed_and_repeat() {
        let seeds: [(Form, &[u8]); 3] = [
            (Form::Binary, &[7; 300]),
            (Form::Json, b"{\"a\": [1, 2, {\"b\": \"c\"}]}\0{\"d\": 3}"),
            (Form::Text, b"{% for m in messages %}{{ m.content }}{% endfor %}"),
        ];
        for (form, seed) in seeds {
            let made: Vec<Vec<u8>> = mutations(form, seed, 100).collect();
            assert!(mutations(form, seed, 100).eq(made.iter().cloned()));
            let changed = made.iter().filter(|m| *m != seed).count();
            assert!(changed > 90, "{form:?}: {changed}");
        }
        assert_eq!(mutations(Form::Text, b"", 5).count(), 0);
    }
}
