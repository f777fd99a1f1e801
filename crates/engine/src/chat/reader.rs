//! From the pieces of an answer to what they add to the message.

use cactus_text::Tokenizer;
use cactus_text::tools::{CallFormat, Delta, OutputParser, ParserOptions, Piece};

/// Splits an answer into reasoning, text and calls, as it comes. How it was cut into pieces makes no difference.
#[derive(Debug, Clone)]
pub struct MessageReader {
    parser: OutputParser,
}

impl MessageReader {
    /// A reader of answers in `format`. Which of its markers are special tokens, it looks up itself.
    pub(super) fn new(format: CallFormat, tokenizer: &Tokenizer, options: ParserOptions) -> Self {
        let special = |word: &&str| tokenizer.token_id(word).is_some_and(|id| tokenizer.is_special(id));
        let special_markers = format.special_words().into_iter().filter(special);
        let options = ParserOptions {
            special_markers: special_markers.map(str::to_owned).collect(),
            ..options
        };
        Self {
            parser: OutputParser::new(format, options),
        }
    }

    /// Takes what a token brought, its text and then its spelling if it is a special one, and appends what that adds to the
    /// message to `out`.
    pub fn push(&mut self, text: &str, special: Option<&str>, out: &mut Vec<Delta>) {
        if !text.is_empty() {
            self.parser.push(Piece::Text(text), out);
        }
        if let Some(word) = special {
            self.parser.push(Piece::Special(word), out);
        }
    }

    /// Ends the message: appends what waited to `out`.
    pub fn finish(&mut self, out: &mut Vec<Delta>) {
        self.parser.finish(out);
    }
}
