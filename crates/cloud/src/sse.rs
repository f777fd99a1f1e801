//! Server-sent events, read as they arrive.
//!
//! The form is that of the HTML standard, section 9.2.6: lines end in CR, LF or both; lines of `data` are joined; an empty line
//! ends an event; a line that begins with a colon is a comment. Where the standard replaces what is not UTF-8, this reader
//! refuses it, and an event that the end of the stream cuts is never given out.

use crate::{Error, ErrorKind, Result};

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Its name; empty where it has none.
    pub name: String,
    /// Its data.
    pub data: String,
}

/// Reads events from bytes that come in pieces of any size. How the bytes are cut changes nothing.
#[derive(Clone, Debug)]
pub struct SseReader {
    /// The line so far.
    line: Vec<u8>,
    /// The event so far, and whether it has data.
    event: SseEvent,
    has_data: bool,
    /// The last byte was CR: a LF belongs to it.
    after_cr: bool,
    /// Nothing has been read: a byte order mark may come.
    at_start: bool,
    max_line_bytes: usize,
    max_event_bytes: usize,
}

impl SseReader {
    /// A reader that accepts lines and events up to these sizes.
    #[must_use]
    pub fn new(max_line_bytes: usize, max_event_bytes: usize) -> Self {
        Self {
            line: Vec::new(),
            event: SseEvent::default(),
            has_data: false,
            after_cr: false,
            at_start: true,
            max_line_bytes,
            max_event_bytes,
        }
    }

    /// Reads `bytes` and puts the events that end in them at the end of `out`.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] where a line or an event is too long, [`ErrorKind::Protocol`] where a line is not UTF-8. The
    /// events before it are given out; nothing after it may be read.
    pub fn feed(&mut self, mut bytes: &[u8], out: &mut Vec<SseEvent>) -> Result<()> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|b| matches!(b, b'\r' | b'\n'));
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + piece.len() > self.max_line_bytes {
                let message = format!("a line of the answer is longer than {} bytes", self.max_line_bytes);
                return Err(Error::new(ErrorKind::TooLarge, message));
            }
            self.line.extend_from_slice(piece);
            let Some(end) = end else { break };
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.end_line(out)?;
        }
        Ok(())
    }

    fn end_line(&mut self, out: &mut Vec<SseEvent>) -> Result<()> {
        let line = std::mem::take(&mut self.line);
        let mut text = std::str::from_utf8(&line).map_err(|e| {
            let message = format!("a line of the answer is not UTF-8 after {} bytes", e.valid_up_to());
            Error::new(ErrorKind::Protocol, message)
        })?;
        if std::mem::take(&mut self.at_start) {
            text = text.strip_prefix('\u{feff}').unwrap_or(text);
        }
        if text.is_empty() {
            let event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.has_data) {
                out.push(event);
            }
        } else {
            let (field, value) = text.split_once(':').unwrap_or((text, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => value.clone_into(&mut self.event.name),
                "data" => {
                    if self.event.data.len() + value.len() >= self.max_event_bytes {
                        let message = format!("an event of the answer is longer than {} bytes", self.max_event_bytes);
                        return Err(Error::new(ErrorKind::TooLarge, message));
                    }
                    if self.has_data {
                        self.event.data.push('\n');
                    }
                    self.event.data.push_str(value);
                    self.has_data = true;
                }
                // A comment has an empty name; `id` and `retry` are for clients that connect again.
                _ => {}
            }
        }
        self.line = line;
        self.line.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(pieces: &[&[u8]]) -> Result<Vec<SseEvent>> {
        let mut reader = SseReader::new(100, 200);
        let mut out = Vec::new();
        for piece in pieces {
            reader.feed(piece, &mut out)?;
        }
        Ok(out)
    }

    fn event(name: &str, data: &str) -> SseEvent {
        SseEvent {
            name: name.into(),
            data: data.into(),
        }
    }

    #[test]
    fn feed_reads_the_forms_of_the_standard() {
        let cases: &[(&str, &[SseEvent])] = &[
            ("data: a\n\n", &[event("", "a")]),
            (
                "data:a\r\n\r\ndata: b\r\rdata\n\n",
                &[event("", "a"), event("", "b"), event("", "")],
            ),
            ("event: x\ndata: a\ndata:  b\n\n", &[event("x", "a\n b")]),
            (": comment\n\n:\n\nevent: lost\n\ndata: a\n\n", &[event("", "a")]),
            ("id: 1\nretry: 5\nother: x\ndata: ä€😀\n\n", &[event("", "ä€😀")]),
            ("\u{feff}data: a\n\n\u{feff}data: b\n\n", &[event("", "a")]),
            ("data: a\n\ndata: cut\n", &[event("", "a")]),
            ("data: a\n\ndata: cut", &[event("", "a")]),
        ];
        for (text, want) in cases {
            assert_eq!(read(&[text.as_bytes()]).unwrap(), *want, "{text:?}");
        }
    }

    #[test]
    fn feed_refuses_what_is_too_long_or_not_utf8() {
        let long = format!("data: {}", "x".repeat(100));
        assert_eq!(read(&[long.as_bytes()]).unwrap_err().kind(), ErrorKind::TooLarge);
        let comment = [b':'; 101];
        assert_eq!(read(&[&comment]).unwrap_err().kind(), ErrorKind::TooLarge);
        let line = format!("data: {}\n", "x".repeat(90));
        let event = line.repeat(3);
        assert_eq!(read(&[event.as_bytes()]).unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(read(&[b"data: \xff\n"]).unwrap_err().kind(), ErrorKind::Protocol);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn feed_gives_the_same_events_however_bytes_are_cut(
            lines in prop::collection::vec((prop::sample::select(vec!["data: ä€😀", "data:x", "event: e", ": c", "", "", "\u{feff}", "id"]),
                prop::sample::select(vec!["\n", "\r", "\r\n"])), 0..20),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let text: String = lines.iter().map(|(line, end)| format!("{line}{end}")).collect();
            let bytes = text.as_bytes();
            let whole = read(&[bytes]);
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(&read(&single), &whole);
            let mut at: Vec<usize> = cuts.iter().map(|i| i.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert_eq!(read(&pieces), whole);
        }
    }
}
