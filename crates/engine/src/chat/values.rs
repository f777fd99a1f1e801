//! Which tokens of an answer belong to values: the ones that a score of the answer is made of.
//!
//! Depends on the deltas of `text`. It deliberately knows no scores.

use cactus_text::tools::Delta;

/// Tells of each token whether it belongs to a value.
///
/// Text and reasoning are values. Of the arguments of a call, values are the characters of strings, numbers, `true`, `false` and
/// `null`, and the character that ends one: it is where `New York` becomes `New York, NY` or not. Keys, braces and the
/// function's name are none: a model that writes JSON at all is always sure of them.
///
/// A call that comes whole, all of it with its last token, says nothing of its tokens, so none of them is a value and such an
/// answer has no score. Calls come as they are written where they are JSON with the name first, between markers, under a
/// constraint; whole without a constraint, and from models that write calls in Python, in elements or bare.
#[derive(Clone, Debug, Default)]
pub struct ValueTokens {
    arguments: Tracker,
}

impl ValueTokens {
    /// Takes what [`MessageReader::push`](super::MessageReader::push) gave out for one token. Whether that token belongs to a
    /// value; a token that gave out nothing does not.
    pub fn push(&mut self, deltas: &[Delta]) -> bool {
        let mut value = false;
        let mut begun_here = false;
        // What the call that began with this token held.
        let mut held = false;
        for delta in deltas {
            match delta {
                Delta::Text(text) | Delta::Reasoning(text) => value |= !text.is_empty(),
                Delta::CallBegin { .. } => {
                    self.arguments = Tracker::default();
                    (begun_here, held) = (true, false);
                }
                Delta::CallArguments { fragment, .. } => {
                    let found = fragment.chars().fold(false, |found, c| self.arguments.push(c) | found);
                    match begun_here {
                        true => held |= found,
                        false => value |= found,
                    }
                }
                Delta::CallEnd { .. } => (begun_here, held) = (false, false),
                _ => {}
            }
        }
        value || held
    }
}

/// Most brackets inside one another that are kept apart; JSON that is deeper is not told from what is around it.
const MAX_DEPTH: u32 = 64;

/// Where in a JSON text the next character is.
#[derive(Clone, Debug, Default)]
struct Tracker {
    /// Open brackets, the innermost in the lowest bit: 1 for those of objects.
    objects: u64,
    depth: u32,
    /// After the colon of a key, or in a list.
    after_key: bool,
    inside: Inside,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Inside {
    /// Between things.
    #[default]
    Nothing,
    String {
        key: bool,
        escaped: bool,
    },
    /// A number, `true`, `false` or `null`.
    Word,
}

impl Tracker {
    /// Takes the next character: whether it belongs to a value, or ends one.
    fn push(&mut self, c: char) -> bool {
        if let Inside::String { key, escaped } = self.inside {
            self.inside = match c {
                '"' if !escaped => Inside::Nothing,
                _ => Inside::String {
                    key,
                    escaped: c == '\\' && !escaped,
                },
            };
            return !key;
        }
        let ends_word = self.inside == Inside::Word;
        self.inside = Inside::Nothing;
        match c {
            '{' | '[' => {
                self.objects = self.objects << 1 | u64::from(c == '{');
                self.depth = (self.depth + 1).min(MAX_DEPTH);
                self.after_key = false;
            }
            '}' | ']' => {
                self.objects >>= 1;
                self.depth = self.depth.saturating_sub(1);
                self.after_key = false;
            }
            ':' => self.after_key = true,
            ',' => self.after_key = false,
            '"' => {
                let in_object = self.depth > 0 && self.objects & 1 == 1;
                self.inside = Inside::String {
                    key: in_object && !self.after_key,
                    escaped: false,
                };
            }
            c if c.is_whitespace() => {}
            _ => {
                self.inside = Inside::Word;
                return true;
            }
        }
        ends_word
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn arguments(fragment: &str) -> Vec<Delta> {
        vec![Delta::CallArguments {
            index: 0,
            fragment: fragment.to_owned(),
        }]
    }

    fn begin() -> Delta {
        Delta::CallBegin {
            index: 0,
            id: "a".to_owned(),
            name: "f".to_owned(),
        }
    }

    /// The characters that are marked, others as dots, where each comes alone.
    fn marked(json: &str) -> String {
        let mut values = ValueTokens::default();
        assert!(!values.push(&[begin()]));
        let each = json.chars();
        each.map(|c| match values.push(&arguments(&c.to_string())) {
            true => c,
            false => '.',
        })
        .collect()
    }

    #[test]
    fn values_of_arguments_are_marked_and_nothing_else() {
        for (json, expected) in [
            (r#"{"a": "bc", "d": 12}"#, r#".......bc".......12}"#),
            (
                r#"{"a":["x",-1.5e3,null],"b":{"c":true}}"#,
                r#".......x".-1.5e3,null]..........true}."#,
            ),
            (r#"{"a":"","b\"":"\"\\"}"#, r#"......"........\"\\"."#),
            (r#"{}"#, ".."),
            (r#"[{"k":"v"},"w"]"#, r#".......v"...w"."#),
            (r#"{"a":"{\"k\": 1, [", "b":"k"}"#, r#"......{\"k\": 1, [".......k"."#),
            (r#"{"a": 1 , "b": 2}"#, r#"......1 .......2}"#),
        ] {
            assert_eq!(marked(json), expected, "{json}");
        }
    }

    #[test]
    fn text_is_a_value_and_what_gives_out_nothing_is_none() {
        let mut values = ValueTokens::default();
        assert!(values.push(&[Delta::Text("a".to_owned())]));
        assert!(values.push(&[Delta::Reasoning("a".to_owned())]));
        assert!(!values.push(&[]));
        assert!(!values.push(&[Delta::Note("a".to_owned())]));
        // The brace that begins a call comes with its first value.
        assert!(values.push(&[begin(), arguments(r#"{"a": "b"#).remove(0)]));
        assert!(values.push(&arguments("c")));
        assert!(!values.push(&[Delta::CallEnd { index: 0 }]));
        // The next one is read from its beginning.
        assert!(!values.push(&[begin(), arguments(r#"{"a"#).remove(0)]));
    }

    #[test]
    fn call_that_comes_whole_has_no_values() {
        let mut values = ValueTokens::default();
        let whole = [
            begin(),
            arguments(r#"{"a": "b"}"#).remove(0),
            Delta::CallEnd { index: 0 },
        ];
        assert!(!values.push(&whole));
        let text = [&whole[..], &[Delta::Text("b".to_owned())]].concat();
        assert!(values.push(&text));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-z\"\\\\{}\\[\\]:, é]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z\":]{0,4}", inner, 0..4).prop_map(|m| json!(m)),
            ]
        })
    }

    proptest! {
        /// However the arguments are cut, a piece is a value if one of its characters is.
        #[test]
        fn cuts_make_no_difference(value in any_json(), cuts in prop::collection::vec(1usize..9, 1..64), pretty: bool) {
            let json = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let letters: Vec<char> = json.chars().collect();
            let mut single = Tracker::default();
            let marks: Vec<bool> = letters.iter().map(|&c| single.push(c)).collect();
            let mut values = ValueTokens::default();
            values.push(&[begin()]);
            let mut at = 0;
            for length in cuts.iter().cycle() {
                if at >= letters.len() {
                    break;
                }
                let end = (at + length).min(letters.len());
                let piece: String = letters[at..end].iter().collect();
                prop_assert_eq!(values.push(&arguments(&piece)), marks[at..end].contains(&true), "{} {}", json, piece);
                at = end;
            }
        }

        /// What is marked has the value's own words, in order.
        #[test]
        fn marks_are_the_leaves(value in any_json()) {
            fn leaves(value: &Value, out: &mut Vec<String>) {
                match value {
                    Value::Array(items) => items.iter().for_each(|v| leaves(v, out)),
                    Value::Object(fields) => fields.values().for_each(|v| leaves(v, out)),
                    leaf => out.push(leaf.to_string()),
                }
            }
            let mut expected = Vec::new();
            leaves(&value, &mut expected);
            let json = value.to_string();
            let mut tracker = Tracker::default();
            let mut rest = json.as_str();
            for leaf in &expected {
                // Up to the leaf nothing is marked but the end of the one before.
                let (mut word, mut seen) = (String::new(), false);
                while word.is_empty() || !seen {
                    let Some(c) = rest.chars().next() else { break };
                    rest = &rest[c.len_utf8()..];
                    let was_word = tracker.inside == Inside::Word;
                    let marked = tracker.push(c);
                    let ends = was_word && tracker.inside != Inside::Word;
                    if marked && !ends {
                        word.push(c);
                    }
                    let want = leaf.strip_prefix('"').unwrap_or(leaf);
                    seen = word == want;
                    prop_assert!(want.starts_with(&word), "{json}: {word} of {want}");
                }
                prop_assert!(seen, "{json}: {leaf}");
            }
        }
    }
}
