//! Tokenizers and chat templates, which are programs that come with a model.

use cactus_text::{
    ChatTemplate, ChatTemplateSource, Clock, Limits, RenderOptions, Tokenizer, TokenizerSource, TokenizerTables,
    message,
};
use serde_json::json;

/// Texts that a tokenizer is tried on.
const TEXTS: [&str; 4] = [
    "",
    "Hello, world! 1234  x\n\n\ty",
    "<s>naïve 日本語 🦀</s> <|im_end|>\u{0}\u{fffd}",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

/// Far below the defaults, so that a run is short; the limits themselves are under test.
const LIMITS: Limits = Limits {
    fuel: 20_000,
    output_bytes: 1 << 16,
    value_bytes: 1 << 16,
    total_bytes: 1 << 20,
};

/// A `tokenizer.json`.
pub(crate) fn tokenizer_json(data: &[u8]) -> bool {
    Tokenizer::from_bytes(data).is_ok_and(|tokenizer| exercise(&tokenizer))
}

/// A `tokenizer.tables`.
pub(crate) fn tokenizer_tables(data: &[u8]) -> bool {
    let source = TokenizerSource {
        tables: Some(TokenizerTables::new(data.to_vec())),
        ..TokenizerSource::default()
    };
    Tokenizer::from_source(source).is_ok_and(|tokenizer| exercise(&tokenizer))
}

fn exercise(tokenizer: &Tokenizer) -> bool {
    for text in TEXTS {
        for special in [false, true] {
            if let Ok(ids) = tokenizer.encode(text, special) {
                let _ = tokenizer.decode(&ids, special);
            }
        }
    }
    let some: Vec<u32> = (0..64).chain([u32::MAX]).collect();
    let _ = tokenizer.decode(&some, true);
    let _ = (
        tokenizer.stop_ids().len(),
        tokenizer.adds_bos(),
        tokenizer.token_bytes(3),
    );
    true
}

/// A chat template.
pub(crate) fn chat_template(data: &[u8]) -> bool {
    let source = String::from_utf8_lossy(data);
    let Ok(template) = ChatTemplate::from_source(ChatTemplateSource {
        chat_template: Some(&source),
        tokenizer_config: Some(br#"{"bos_token": "<s>", "eos_token": "</s>"}"#),
        ..ChatTemplateSource::default()
    }) else {
        return false;
    };
    let template = template.with_limits(LIMITS).expect("limits are never refused");
    let tool = json!({"type": "function", "function": {"name": "add", "description": "Adds.", "parameters":
        {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a"]}}});
    let call = json!({"role": "assistant", "content": "", "tool_calls":
        [{"type": "function", "id": "c0", "function": {"name": "add", "arguments": {"a": 1.5, "b": null}}}]});
    let messages = [
        message("system", "Be brief."),
        message("user", "Say \"hi\" <b>\n"),
        call,
        json!({"role": "tool", "name": "add", "tool_call_id": "c0", "content": "{\"sum\": 2}"}),
        message("assistant", "hi"),
    ];
    let mut rendered = false;
    // Some templates refuse tools, some a system message; none a single question.
    for (turns, tools, answer) in [(0..5, true, false), (0..2, false, true), (1..2, false, true)] {
        let options = RenderOptions {
            tools: tools.then(|| vec![tool.clone()]),
            add_generation_prompt: answer,
            continue_final_message: !answer,
            clock: Clock::Fixed {
                unix_seconds: 1_721_999_109,
            },
            ..RenderOptions::default()
        };
        if let Ok(text) = template.render(&messages[turns], &options) {
            assert!(text.len() <= LIMITS.output_bytes, "a limit holds");
            rendered = true;
        }
    }
    let _ = (template.reads("tools"), template.names().count());
    rendered
}
