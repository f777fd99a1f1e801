//! Messages of a conversation, as JSON has them.

use serde_json::{Value, json};

/// A message with a role and a text, as templates expect it.
pub fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// The text of a message, whose content is one, or parts of which some have one.
fn text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// What the user asked last; `None` where nobody did.
pub fn question(messages: &[Value]) -> Option<String> {
    let asked = messages.iter().rev().find(|message| message["role"] == "user");
    asked.map(text).filter(|text| !text.trim().is_empty())
}

/// Lets a model read `more` before a conversation, behind what it is told already. Templates take one such message, as the first.
pub fn instruct(messages: &mut Vec<Value>, more: &str) {
    match messages.first_mut() {
        Some(first) if first["role"] == "system" || first["role"] == "developer" => {
            first["content"] = format!("{}\n\n{more}", text(first)).into();
        }
        _ => messages.insert(0, message("system", more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_is_the_last_text_of_the_user() {
        let parts =
            json!({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "b"}, {"text": "c"}]});
        let conversation = [
            message("user", "a"),
            message("assistant", "x"),
            parts,
            message("tool", "y"),
        ];
        assert_eq!(question(&conversation).as_deref(), Some("b\nc"));
        assert_eq!(question(&conversation[..2]).as_deref(), Some("a"));
        for nothing in [
            &[][..],
            &[message("system", "a")],
            &[message("user", "  ")],
            &[json!({"role": "user"})],
        ] {
            assert_eq!(question(nothing), None);
        }
    }

    #[test]
    fn instructions_stand_in_one_message_at_the_beginning() {
        let mut told = vec![message("developer", "Be short."), message("user", "a")];
        instruct(&mut told, "more");
        assert_eq!(told, [message("developer", "Be short.\n\nmore"), message("user", "a")]);
        let mut bare = vec![message("user", "a")];
        instruct(&mut bare, "more");
        assert_eq!(bare, [message("system", "more"), message("user", "a")]);
    }
}
