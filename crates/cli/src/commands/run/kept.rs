//! A conversation that is kept in a file: its messages, beside what the session has computed of them.

use anyhow::{Context as _, Result, bail};
use cactus_engine::Session;
use cactus_engine::chat::ToolCall;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::Path;

/// What is said, for the note of a saved session.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) system: Option<String>,
    pub(super) messages: Vec<Value>,
}

impl Kept {
    /// The conversation in `file`, whose states `session` takes; none if there is no such file yet. `system` is the system
    /// prompt of the command line, which has to be that of the conversation.
    pub(super) fn restore(session: &mut Session, file: &Path, system: Option<&str>) -> Result<Option<Kept>> {
        if !file
            .try_exists()
            .with_context(|| format!("cannot read `{}`", file.display()))?
        {
            return Ok(None);
        }
        let note = session.restore(file)?;
        let kept: Kept = serde_json::from_str(&note)
            .with_context(|| format!("`{}` is a saved session, but holds no conversation", file.display()))?;
        if system.is_some() && system != kept.system.as_deref() {
            bail!(
                "the conversation in `{}` has another system prompt; leave out `--system`, or begin another file",
                file.display()
            );
        }
        Ok(Some(kept))
    }

    pub(super) fn save(&self, session: &mut Session, file: &Path) -> Result<()> {
        Ok(session.save(file, &serde_json::to_string(self)?)?)
    }

    /// Calls of the last answer that await their results.
    pub(super) fn pending(&self) -> VecDeque<ToolCall> {
        let of_tools = |message: &&Value| message["role"] == "tool";
        let results = self.messages.iter().rev().take_while(of_tools).count();
        let answer = self.messages.iter().rev().nth(results);
        let calls = answer.and_then(|answer| answer["tool_calls"].as_array());
        let call = |call: &Value| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            ToolCall {
                id: text(&call["id"]),
                name: text(&call["function"]["name"]),
                arguments: text(&call["function"]["arguments"]),
            }
        };
        calls.into_iter().flatten().skip(results).map(call).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn calls_without_a_result_are_pending() {
        let call = |name: &str| json!({"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}});
        let answer = json!({"role": "assistant", "content": "", "tool_calls": [call("a"), call("b")]});
        let result = json!({"role": "tool", "content": "1"});
        let question = json!({"role": "user", "content": "?"});
        for (messages, expected) in [
            (vec![], vec![]),
            (vec![question.clone()], vec![]),
            (vec![question.clone(), answer.clone()], vec!["a", "b"]),
            (vec![question.clone(), answer.clone(), result.clone()], vec!["b"]),
            (vec![question.clone(), answer.clone(), result.clone(), result], vec![]),
            (vec![answer, question], vec![]),
        ] {
            let kept = Kept { system: None, messages };
            let names: Vec<String> = kept.pending().into_iter().map(|call| call.name).collect();
            assert_eq!(names, expected);
        }
    }
}
