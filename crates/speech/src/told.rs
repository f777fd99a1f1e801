//! What live speech has come to, between two looks at it.
//!
//! Purpose: from the events of a [`Stream`](crate::Stream) to the text that stays and the text that may still change. It deliberately
//! keeps no events: whoever shows them takes them as they come.

use crate::StreamEvent;

/// Text of live speech since somebody last looked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Text that has become certain. Whoever has read it empties it.
    pub confirmed: String,
    /// Text behind it that may change.
    pub pending: String,
    /// The language that was found last.
    pub language: Option<String>,
    /// Bytes of the phrase's text that are confirmed.
    phrase: usize,
}

impl Told {
    /// Takes what happened next.
    pub fn take(&mut self, event: &StreamEvent) {
        match event {
            StreamEvent::SpeechStart { .. } => self.phrase = 0,
            StreamEvent::Partial {
                committed, volatile, ..
            } => {
                self.confirm(committed);
                self.pending.clone_from(volatile);
            }
            StreamEvent::Final { segment, language, .. } => {
                self.confirm(&segment.text);
                self.pending.clear();
                self.language.clone_from(language);
            }
            _ => self.pending.clear(),
        }
    }

    /// The text of a phrase only grows.
    fn confirm(&mut self, text: &str) {
        self.confirmed.push_str(text.get(self.phrase..).unwrap_or_default());
        self.phrase = text.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_stays_is_told_once_and_each_phrase_begins_anew() {
        let start = |id| StreamEvent::SpeechStart { id, start_s: 0.0 };
        let partial = |committed: &str, volatile: &str| StreamEvent::Partial {
            id: 0,
            committed: committed.to_owned(),
            volatile: volatile.to_owned(),
            until_s: 1.0,
        };
        let mut told = Told::default();
        let mut look = |event: StreamEvent| {
            told.take(&event);
            (std::mem::take(&mut told.confirmed), told.pending.clone())
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(look(start(0)), pair("", ""));
        assert_eq!(look(partial("", " über")), pair("", " über"));
        assert_eq!(look(partial(" über", " all")), pair(" über", " all"));
        assert_eq!(look(partial(" über alles", "")), pair(" alles", ""));
        assert_eq!(look(partial(" über alles", " und")), pair("", " und"));
        assert_eq!(look(StreamEvent::SpeechEnd { id: 0, end_s: 2.0 }), pair("", ""));
        assert_eq!(look(start(1)), pair("", ""));
        assert_eq!(look(partial(" neu", "")), pair(" neu", ""));
    }
}
