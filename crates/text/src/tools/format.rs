//! The ways in which families of models write calls and mark reasoning.

use super::parser::Piece;
use crate::ChatTemplate;

/// What is between the markers of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    /// `{"name": ..., "arguments": {...}}`, or several of them in a row or list. The second word is the usual key.
    Json(&'static str),
    /// `<function=name>` and `<parameter=key>` with raw values.
    Elements,
    /// `[name(key="value"), ...]` in Python.
    Python,
    /// `call:name{key:...}` with strings between these words.
    Call(&'static str),
    /// `name[ARGS]{...}`, `name[CALL_ID]id[ARGS]{...}`, or a list as in `Json`.
    Mistral,
    /// OpenAI's harmony: every piece is a message with a header that names channel and recipient.
    Harmony,
}

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// A template with all words of one of these lists has this format. Rows are tried in order.
    signs: &'static [&'static [&'static str]],
    /// Words that begin a call.
    pub(super) open: &'static [&'static str],
    /// Words that end it; without any, a call ends with its last bracket.
    pub(super) close: &'static [&'static str],
    pub(super) syntax: Syntax,
    /// Whether a call may also stand without markers, or in a code block, at the beginning of an answer.
    pub(super) bare: bool,
    /// Whether one answer may have several calls.
    pub(super) parallel: bool,
}

/// The table. What a family adds to it is a row.
static ROWS: &[Row] = &[
    Row {
        name: "gemma4",
        signs: &[&["<|tool_call>call:"]],
        open: &["<|tool_call>"],
        close: &["<tool_call|>"],
        syntax: Syntax::Call("<|\"|>"),
        bare: false,
        parallel: true,
    },
    Row {
        name: "function_gemma",
        signs: &[&["<start_function_call>"]],
        open: &["<start_function_call>"],
        close: &["<end_function_call>"],
        syntax: Syntax::Call("<escape>"),
        bare: false,
        parallel: true,
    },
    Row {
        name: "lfm2",
        signs: &[
            &["<|tool_call_start|>"],
            &["<|tool_list_start|>"],
            &["List of tools: [", "<|im_start|>"],
        ],
        open: &["<|tool_call_start|>"],
        close: &["<|tool_call_end|>"],
        syntax: Syntax::Python,
        bare: false,
        parallel: true,
    },
    Row {
        name: "qwen_xml",
        signs: &[&["<function=", "<parameter="]],
        open: &["<tool_call>", "<function="],
        close: &["</tool_call>"],
        syntax: Syntax::Elements,
        bare: false,
        parallel: true,
    },
    Row {
        name: "mistral",
        signs: &[&["[TOOL_CALLS]", "[ARGS]"]],
        open: &["[TOOL_CALLS]"],
        close: &[],
        syntax: Syntax::Mistral,
        bare: false,
        parallel: true,
    },
    Row {
        name: "mistral_list",
        signs: &[&["[TOOL_CALLS]"]],
        open: &["[TOOL_CALLS]"],
        close: &[],
        syntax: Syntax::Mistral,
        bare: false,
        parallel: true,
    },
    Row {
        name: "harmony",
        signs: &[&["<|channel|>", "<|message|>"]],
        open: &[],
        close: &["<|call|>", "<|end|>", "<|return|>"],
        syntax: Syntax::Harmony,
        bare: false,
        parallel: false,
    },
    Row {
        name: "granite",
        signs: &[&["<|tool_call|>"]],
        open: &["<|tool_call|>"],
        close: &[],
        syntax: Syntax::Json("arguments"),
        bare: false,
        parallel: true,
    },
    Row {
        name: "hermes",
        signs: &[&["<tool_call>"]],
        open: &["<tool_call>"],
        close: &["</tool_call>"],
        syntax: Syntax::Json("arguments"),
        bare: true,
        parallel: true,
    },
    Row {
        name: "llama3",
        signs: &[&["<|python_tag|>"], &["ipython", "\"parameters\""]],
        open: &["<|python_tag|>"],
        close: &[],
        syntax: Syntax::Json("parameters"),
        bare: true,
        parallel: false,
    },
];

/// Markers of reasoning, each with the words of a template that show it.
static REASONING: &[(&str, &str, &str)] = &[
    ("<|channel>thought", "<|channel>thought\n", "<channel|>"),
    ("</think>", "<think>", "</think>"),
    ("<think>", "<think>", "</think>"),
    ("[THINK]", "[THINK]", "[/THINK]"),
];

/// How a family of models writes calls and marks reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallFormat {
    pub(super) row: Option<&'static Row>,
    /// Words around reasoning.
    pub(super) reasoning: Option<(&'static str, &'static str)>,
}

impl CallFormat {
    /// The format that a chat template asks of its model, by the words in its text.
    pub fn of_template(template: &ChatTemplate) -> Self {
        Self::of_text(template.source_with_tools())
    }

    /// The same for the text of a template.
    pub fn of_text(template: &str) -> Self {
        let has = |words: &&[&str]| words.iter().all(|word| template.contains(word));
        let row = ROWS.iter().find(|row| row.signs.iter().any(has));
        let reasoning = REASONING.iter().find(|(sign, ..)| template.contains(sign));
        Self {
            row,
            reasoning: reasoning.map(|(_, open, close)| (*open, *close)),
        }
    }

    /// A format by its name in [`names`](Self::names), with reasoning between `<think>` and `</think>`, or in Gemma 4's and
    /// Mistral's own marks.
    pub fn by_name(name: &str) -> Option<Self> {
        let row = ROWS.iter().find(|row| row.name == name)?;
        let reasoning = match name {
            "gemma4" => Some(("<|channel>thought\n", "<channel|>")),
            "mistral" | "mistral_list" => Some(("[THINK]", "[/THINK]")),
            "harmony" => None,
            _ => Some(("<think>", "</think>")),
        };
        Some(Self {
            row: Some(row),
            reasoning,
        })
    }

    /// The same model's format where its template has no way to write calls and it is told one in words: `hermes`.
    #[must_use]
    pub fn told_in_words(self) -> Self {
        let row = ROWS.iter().find(|row| row.name == "hermes");
        Self { row, ..self }
    }

    /// All formats.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ROWS.iter().map(|row| row.name)
    }

    /// The format's name; `None` where the template has no way to write calls.
    pub fn name(&self) -> Option<&'static str> {
        self.row.map(|row| row.name)
    }

    /// Words around reasoning, where there are any.
    pub fn reasoning(&self) -> Option<(&'static str, &'static str)> {
        self.reasoning
    }

    /// Whether an answer after `prompt` begins inside reasoning, because the prompt ends with the words that open it.
    pub fn begins_in_reasoning(&self, prompt: &str) -> bool {
        let open = self.reasoning.map(|(open, _)| open.trim_end());
        open.is_some_and(|open| prompt.trim_end().ends_with(open))
    }

    /// Every word that is a marker in this format, longest first.
    pub(super) fn markers(&self) -> Vec<&'static str> {
        let mut words: Vec<&'static str> = Vec::new();
        if let Some(row) = self.row {
            words.extend(row.open.iter().chain(row.close));
            match row.syntax {
                Syntax::Harmony => words.extend(["<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"]),
                Syntax::Mistral => words.extend(["[CALL_ID]", "[ARGS]"]),
                Syntax::Call(quote) => words.push(quote),
                _ => {}
            }
        }
        words.extend(self.reasoning.iter().flat_map(|(open, close)| [open, close]));
        words
    }

    /// The words that must keep their place when ids are decoded, for which special tokens must not be skipped.
    pub fn special_words(&self) -> Vec<&'static str> {
        self.markers().into_iter().map(str::trim_end).collect()
    }

    /// Splits text that spells its special tokens, such as a rendered template, into pieces as decoding ids would.
    pub fn pieces<'a>(&self, text: &'a str, is_special: impl Fn(&str) -> bool) -> Vec<Piece<'a>> {
        let words: Vec<&str> = self
            .special_words()
            .into_iter()
            .filter(|word| is_special(word))
            .collect();
        let mut pieces = Vec::new();
        let mut rest = text;
        loop {
            let found = words
                .iter()
                .filter_map(|word| Some((rest.find(word)?, word.len())))
                .min_by_key(|&(at, length)| (at, std::cmp::Reverse(length)));
            let Some((at, length)) = found else {
                pieces.push(Piece::Text(rest));
                return pieces;
            };
            pieces.push(Piece::Text(&rest[..at]));
            pieces.push(Piece::Special(&rest[at..at + length]));
            rest = &rest[at + length..];
        }
    }
}
