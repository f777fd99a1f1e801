//! Splits a model's output into text, reasoning and calls, as it comes.
//!
//! Depends on the table of formats and the readers of what is between markers. It deliberately knows no ids of tokens: it is
//! given decoded text, and of special tokens their spelling.
//!
//! Everything happens character by character, so how the output was cut into pieces cannot change what it means. What may still
//! become a marker waits, and so does a call until it is whole; nothing that was given out is ever taken back. White space
//! around calls and reasoning belongs to neither and is dropped.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::format::Syntax;
use super::{CallFormat, Tool, ToolCall, syntax};

/// Longest call, in bytes; a longer one is text.
const MAX_CALL_BYTES: usize = 1 << 20;
/// How often the rest of an output is read anew after a call that never ended.
const MAX_RESUMED: usize = 64;
/// Letters of ids.
const ID_LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Begins a code block that may hold a bare call.
const FENCE: &str = "```";

/// A piece of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text.
    Text(&'a str),
    /// The spelling of a special token.
    Special(&'a str),
}

/// What a piece of output adds to the message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delta {
    /// Text of the answer.
    Text(String),
    /// Reasoning.
    Reasoning(String),
    /// A call begins. Those of one message are numbered from 0.
    CallBegin {
        /// Its number.
        index: usize,
        /// Its id.
        id: String,
        /// The tool.
        name: String,
    },
    /// More of the arguments of the call that began last; together they are a JSON object.
    CallArguments {
        /// Its number.
        index: usize,
        /// What follows.
        fragment: String,
    },
    /// The call is whole.
    CallEnd {
        /// Its number.
        index: usize,
    },
    /// The call that began last came to nothing and is given out as text. Only with [`ParserOptions::stream_arguments`].
    CallFailed {
        /// Its number.
        index: usize,
    },
    /// A call could not be read and was given out as text; why.
    Note(String),
}

/// A whole message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// Text of the answer.
    pub text: String,
    /// Reasoning.
    pub reasoning: String,
    /// Calls, in order.
    pub calls: Vec<ToolCall>,
    /// Why calls could not be read; they are in the text.
    pub notes: Vec<String>,
}

impl Message {
    /// Adds a delta.
    pub fn add(&mut self, delta: Delta) {
        match delta {
            Delta::Text(text) => self.text.push_str(&text),
            Delta::Reasoning(text) => self.reasoning.push_str(&text),
            Delta::CallBegin { id, name, .. } => self.calls.push(ToolCall {
                id,
                name,
                arguments: String::new(),
            }),
            Delta::CallArguments { fragment, .. } => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments.push_str(&fragment);
                }
            }
            Delta::CallEnd { .. } => {}
            Delta::CallFailed { .. } => drop(self.calls.pop()),
            Delta::Note(note) => self.notes.push(note),
        }
    }
}

/// What a parser is told about the request.
#[derive(Debug, Clone, Default)]
pub struct ParserOptions {
    /// The tools that were offered. Without any, calls are text.
    pub tools: Vec<Tool>,
    /// The output begins inside reasoning: see [`CallFormat::begins_in_reasoning`].
    pub in_reasoning: bool,
    /// Markers of the format that are special tokens of the vocabulary: text that spells them is text.
    pub special_markers: Vec<String>,
    /// Give out arguments as they come, where the format writes them as JSON after the name. A call that then comes to nothing
    /// has begun already, so this is for output under a constraint. Otherwise calls come whole.
    pub stream_arguments: bool,
    /// Makes ids of calls differ between messages.
    pub seed: u64,
}

/// Splits one message.
#[derive(Debug, Clone)]
pub struct OutputParser {
    format: CallFormat,
    options: ParserOptions,
    state: State,
    /// Text that may become a marker.
    held: String,
    /// Bytes of it that are a special token.
    held_special: usize,
    /// White space that belongs to the text only if text follows.
    space: String,
    /// Nothing but white space came since the beginning, the end of reasoning, or a call.
    fresh: bool,
    /// Whether that white space belongs to the text after it.
    lead: Lead,
    calls: usize,
    resumed: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lead {
    Text,
    Drop,
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    Text,
    Reasoning,
    Call(Box<Call>),
    /// Of a message in harmony.
    Header(String),
}

/// A call that is coming in.
#[derive(Debug, Clone, Default, PartialEq)]
struct Call {
    /// What began it, with white space before.
    begin: String,
    body: String,
    brackets: Brackets,
    /// Begun by a bracket or a code block: it is text, without a note, unless it turns out to be a call.
    bare: bool,
    fenced: bool,
    /// The function, where a header named it.
    name: Option<String>,
    /// Where the first closing marker ended that stood inside a string.
    passed: Option<usize>,
    live: Live,
}

/// Arguments that are given out as they come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Live {
    /// They have not begun.
    #[default]
    Before,
    /// The bracket that ends them leads to this depth.
    Inside(usize),
    After,
}

/// Brackets and quotes of JSON, or of a call in Python.
#[derive(Debug, Clone, Default, PartialEq)]
struct Brackets {
    depth: usize,
    begun: bool,
    quoted: bool,
    escaped: bool,
    /// Parentheses instead of the others: the first bracket was one.
    round: bool,
    /// Only braces: square brackets are part of markers.
    braces: bool,
}

impl Brackets {
    /// Takes the next character; whether it closes the last bracket.
    fn closes(&mut self, c: char) -> bool {
        if self.quoted {
            self.quoted = self.escaped || c != '"';
            self.escaped = !self.escaped && c == '\\';
            return false;
        }
        if !self.begun && !self.braces {
            self.round = c == '(';
        }
        let counts = match c {
            '(' | ')' => self.round,
            '[' | ']' => !self.round && !self.braces,
            '{' | '}' => !self.round,
            '"' => {
                self.quoted = self.begun;
                return false;
            }
            _ => return false,
        };
        if counts && matches!(c, '(' | '[' | '{') {
            self.begun = true;
            self.depth += 1;
        } else if counts && self.begun {
            self.depth = self.depth.saturating_sub(1);
            return self.depth == 0;
        }
        false
    }
}

impl Call {
    /// After a character: begins the call where its arguments begin, and gives out what belongs to them.
    fn give_out(&mut self, c: char, quoted: bool, index: usize, id: String, out: &mut Vec<Delta>) {
        let depth = self.brackets.depth;
        match self.live {
            Live::Before if c == '{' && !quoted => {
                let Some(name) = self.name_before_arguments() else {
                    return;
                };
                self.live = Live::Inside(depth.saturating_sub(1));
                out.push(Delta::CallBegin { index, id, name });
                let fragment = c.to_string();
                out.push(Delta::CallArguments { index, fragment });
            }
            Live::Inside(end) => {
                let fragment = match c {
                    // As it is read in the end.
                    '\n' if quoted => "\\n".to_owned(),
                    '\t' if quoted => "\\t".to_owned(),
                    '\r' if quoted => "\\r".to_owned(),
                    c => c.to_string(),
                };
                add(out, Delta::CallArguments { index, fragment });
                if depth == end && !self.brackets.quoted {
                    self.live = Live::After;
                }
            }
            Live::Before | Live::After => {}
        }
    }

    /// The function's name, if the body so far ends where its arguments begin: `{"name": "f", "arguments": {`, or in harmony a
    /// bracket after the header.
    fn name_before_arguments(&self) -> Option<String> {
        let body = self.body.trim_start();
        if let Some(name) = &self.name {
            return (body == "{").then(|| name.clone());
        }
        let after = |text: &'_ str, word: &str| text.trim_start().strip_prefix(word).map(str::to_owned);
        let rest = after(&after(&after(&after(body, "{")?, "\"name\"")?, ":")?, "\"")?;
        let (name, rest) = rest.split_once('"')?;
        let rest = after(rest, ",")?;
        let rest = after(&rest, "\"arguments\"").or_else(|| after(&rest, "\"parameters\""))?;
        let whole = after(&after(&rest, ":")?, "{")?.is_empty() && !name.contains('\\');
        whole.then(|| name.to_owned())
    }
}

/// How held text compares with the markers.
enum Held {
    Marker(&'static str),
    Beginning,
    Text,
}

impl OutputParser {
    /// A parser at the beginning of a message.
    pub fn new(format: CallFormat, options: ParserOptions) -> Self {
        let harmony = format.row.is_some_and(|row| row.syntax == Syntax::Harmony);
        let state = match (harmony, options.in_reasoning) {
            (true, _) => State::Header(String::new()),
            (false, true) => State::Reasoning,
            (false, false) => State::Text,
        };
        Self {
            format,
            options,
            state,
            held: String::new(),
            held_special: 0,
            space: String::new(),
            fresh: true,
            lead: Lead::Text,
            calls: 0,
            resumed: 0,
        }
    }

    /// Splits a whole output.
    pub fn whole(format: CallFormat, options: ParserOptions, output: &[Piece<'_>]) -> Message {
        let mut parser = Self::new(format, options);
        let mut deltas = Vec::new();
        for piece in output {
            parser.push(*piece, &mut deltas);
        }
        parser.finish(&mut deltas);
        let mut message = Message::default();
        deltas.into_iter().for_each(|delta| message.add(delta));
        message
    }

    /// Takes the next piece and appends what it adds to `out`.
    pub fn push(&mut self, piece: Piece<'_>, out: &mut Vec<Delta>) {
        match piece {
            Piece::Text(text) => {
                for c in text.chars() {
                    self.held.push(c);
                    self.settle(out);
                }
            }
            Piece::Special(word) => {
                self.release(out);
                let markers = self.markers();
                if let Some(&marker) = markers.iter().find(|&&marker| marker == word) {
                    self.marker(marker, true, out);
                } else if markers.iter().any(|marker| marker.starts_with(word)) {
                    self.held.push_str(word);
                    self.held_special = word.len();
                } else {
                    self.stray(word);
                }
            }
        }
    }

    /// Ends the message: gives out what waited.
    pub fn finish(&mut self, out: &mut Vec<Delta>) {
        loop {
            self.release(out);
            match std::mem::replace(&mut self.state, State::Text) {
                State::Call(call) => self.end_call(*call, out),
                State::Header(header) => {
                    let named = header.contains("<|channel|>") || matches!(header.trim(), "" | "assistant");
                    if !named {
                        self.text(&header, out);
                    }
                }
                State::Text if !self.fresh || (self.lead == Lead::Text && self.calls == 0) => {
                    let space = std::mem::take(&mut self.space);
                    add(out, Delta::Text(space));
                }
                State::Text | State::Reasoning => self.space.clear(),
            }
            if self.held.is_empty() && self.space.is_empty() && self.state == State::Text {
                break;
            }
        }
    }

    /// A call that the output ended in: whole but for its closing marker, or never to be whole.
    fn end_call(&mut self, call: Call, out: &mut Vec<Delta>) {
        match self.read(&call) {
            Ok(calls) => self.made(&call, calls, out),
            Err(_) if call.passed.is_some() && self.resumed < MAX_RESUMED => {
                // The first closing marker was one after all. What follows it may hold good calls.
                self.resumed += 1;
                let (bad, rest) = call.body.split_at(call.passed.unwrap_or_default());
                let reason = "a string in it has no end".to_owned();
                self.failed(&call, bad, &reason, out);
                self.push(Piece::Text(rest), out);
            }
            Err(reason) => self.failed(&call, &call.body, &reason, out),
        }
    }

    /// Gives out held text that became no marker.
    fn release(&mut self, out: &mut Vec<Delta>) {
        while !self.held.is_empty() {
            self.drop_first(out);
            self.settle(out);
        }
    }

    fn settle(&mut self, out: &mut Vec<Delta>) {
        while !self.held.is_empty() {
            match self.compare() {
                Held::Marker(marker) => {
                    let special = self.held_special > 0;
                    self.held.clear();
                    self.held_special = 0;
                    self.marker(marker, special, out);
                }
                Held::Beginning => return,
                Held::Text => self.drop_first(out),
            }
        }
    }

    fn drop_first(&mut self, out: &mut Vec<Delta>) {
        if self.held_special > 0 {
            let word: String = self.held.drain(..self.held_special).collect();
            self.held_special = 0;
            self.stray(&word);
        } else if let Some(c) = self.held.chars().next() {
            self.held.drain(..c.len_utf8());
            self.plain(c, out);
        }
    }

    fn compare(&self) -> Held {
        let mut beginning = false;
        for marker in self.markers() {
            if self.held_special == 0 && self.is_special(marker) {
                continue;
            }
            if marker == self.held {
                return Held::Marker(marker);
            }
            beginning |= marker.starts_with(&self.held);
        }
        match beginning {
            true => Held::Beginning,
            false => Held::Text,
        }
    }

    fn is_special(&self, marker: &str) -> bool {
        self.options
            .special_markers
            .iter()
            .any(|word| marker.starts_with(word.as_str()))
    }

    /// Whether a call may stand here without markers.
    fn may_be_bare(&self) -> bool {
        self.fresh && !self.options.tools.is_empty() && self.format.row.is_some_and(|row| row.bare)
    }

    /// The markers that mean something now.
    fn markers(&self) -> Vec<&'static str> {
        let mut markers = Vec::new();
        let row = self.format.row;
        let harmony = row.is_some_and(|row| row.syntax == Syntax::Harmony);
        if harmony {
            markers.extend(["<|start|>", "<|message|>"]);
        }
        let closing = row.iter().flat_map(|row| row.close);
        let opening = row.iter().flat_map(|row| row.open);
        match &self.state {
            State::Call(call) if call.bare => markers.extend(call.fenced.then_some(FENCE)),
            State::Call(_) => markers.extend(closing.chain(opening)),
            State::Header(_) => markers.extend(closing),
            State::Reasoning => {
                markers.extend(self.format.reasoning.map(|(_, close)| close));
                if harmony {
                    markers.extend(closing);
                }
                markers.extend(opening);
            }
            State::Text => {
                markers.extend(opening.chain(closing));
                markers.extend(self.format.reasoning.map(|(open, _)| open));
                markers.extend(self.may_be_bare().then_some(FENCE));
            }
        }
        markers
    }

    /// A special token that is no marker here. It leaves no trace in text, and belongs to a call.
    fn stray(&mut self, word: &str) {
        match &mut self.state {
            State::Call(call) => call.body.push_str(word),
            State::Header(header) => header.push_str(word),
            State::Text | State::Reasoning => {}
        }
    }

    fn marker(&mut self, marker: &'static str, special: bool, out: &mut Vec<Delta>) {
        let Some(row) = self.format.row else {
            return self.reasoning_marker(marker, special, out);
        };
        let closes = row.close.contains(&marker);
        match &mut self.state {
            State::Header(header) => match marker {
                "<|message|>" => self.begin_message(),
                "<|start|>" => header.clear(),
                marker => header.push_str(marker),
            },
            State::Call(call) => {
                let inside = call.brackets.quoted && !special && !call.fenced;
                let inside = inside || (row.syntax == Syntax::Elements && !call.body.contains("</function>"));
                if closes && inside {
                    call.body.push_str(marker);
                    call.passed.get_or_insert(call.body.len());
                } else if closes || marker == FENCE {
                    self.complete(marker, out);
                } else if row.open.contains(&marker) && !inside {
                    self.complete("", out);
                    self.marker(marker, special, out);
                } else {
                    call.body.push_str(marker);
                }
            }
            State::Text | State::Reasoning if row.syntax == Syntax::Harmony => {
                self.space.clear();
                self.state = State::Header(String::new());
            }
            State::Text | State::Reasoning if row.open.contains(&marker) && !self.options.tools.is_empty() => {
                if self.state == State::Reasoning {
                    self.space.clear();
                }
                self.begin_call(marker, false);
            }
            State::Text if marker == FENCE => self.begin_call(marker, true),
            // What a call left behind.
            State::Text if closes && self.fresh && self.calls > 0 => self.space.clear(),
            _ => self.reasoning_marker(marker, special, out),
        }
    }

    fn reasoning_marker(&mut self, marker: &'static str, special: bool, out: &mut Vec<Delta>) {
        match (&self.state, self.format.reasoning) {
            (State::Reasoning, Some((_, close))) if marker == close => {
                self.state = State::Text;
                self.begin(Lead::Drop);
            }
            (State::Text, Some((open, _))) if marker == open && (self.fresh || special) => {
                self.state = State::Reasoning;
                self.begin(Lead::Drop);
            }
            (State::Reasoning, _) => self.thought(marker, out),
            _ => self.text(marker, out),
        }
    }

    /// Something new begins: white space before it belongs to nothing.
    fn begin(&mut self, lead: Lead) {
        self.space.clear();
        self.fresh = true;
        self.lead = lead;
    }

    fn begin_call(&mut self, marker: &str, bare: bool) {
        let mut call = Call {
            begin: std::mem::take(&mut self.space) + marker,
            bare,
            fenced: marker == FENCE,
            ..Call::default()
        };
        if marker.ends_with('=') {
            // The marker is a part of what is read.
            call.begin.truncate(call.begin.len() - marker.len());
            call.body.push_str(marker);
        }
        self.state = State::Call(Box::new(call));
    }

    /// After the header of a message in harmony.
    fn begin_message(&mut self) {
        let State::Header(header) = &self.state else { return };
        let recipient = header.split("to=functions.").nth(1);
        let name = recipient.and_then(|rest| rest.split(|c: char| c.is_whitespace() || c == '<').next());
        let analysis = header.contains("analysis");
        self.state = match name {
            Some(name) if !self.options.tools.is_empty() => State::Call(Box::new(Call {
                begin: format!("{header}<|message|>"),
                name: Some(name.to_owned()),
                ..Call::default()
            })),
            _ if analysis => State::Reasoning,
            _ => State::Text,
        };
        self.begin(Lead::Drop);
    }

    fn plain(&mut self, c: char, out: &mut Vec<Delta>) {
        let bare = self.may_be_bare();
        match &mut self.state {
            State::Header(header) => header.push(c),
            State::Call(call) => {
                if call.body.trim_start().is_empty() {
                    let mistral = self.format.row.is_some_and(|row| row.syntax == Syntax::Mistral);
                    call.brackets.braces = mistral && c != '[';
                }
                call.body.push(c);
                let quoted = call.brackets.quoted;
                let closed = call.brackets.closes(c);
                if self.options.stream_arguments && !call.bare {
                    let id = call_id(self.options.seed, self.calls);
                    call.give_out(c, quoted, self.calls, id, out);
                }
                let itself = self.format.row.is_some_and(|row| row.close.is_empty()) || (call.bare && !call.fenced);
                if closed && itself {
                    self.complete("", out);
                } else if call.body.len() > MAX_CALL_BYTES {
                    let call = call.clone();
                    let reason = format!("it is longer than {MAX_CALL_BYTES} bytes");
                    self.failed(&call, &call.body, &reason, out);
                }
            }
            // Between calls, some models write these.
            State::Text if c.is_whitespace() || (bare && self.calls > 0 && matches!(c, ';' | ',')) => {
                self.space.push(c)
            }
            State::Text if bare && c == '{' => {
                self.begin_call("", true);
                self.plain(c, out);
            }
            State::Text => self.text(c.encode_utf8(&mut [0; 4]), out),
            State::Reasoning if c.is_whitespace() => self.space.push(c),
            State::Reasoning => self.thought(c.encode_utf8(&mut [0; 4]), out),
        }
    }

    fn text(&mut self, text: &str, out: &mut Vec<Delta>) {
        if self.fresh && self.lead == Lead::Drop {
            self.space.clear();
        }
        self.fresh = false;
        let space = std::mem::take(&mut self.space);
        add(out, Delta::Text(space + text));
    }

    fn thought(&mut self, text: &str, out: &mut Vec<Delta>) {
        if self.fresh {
            self.space.clear();
        }
        self.fresh = false;
        let space = std::mem::take(&mut self.space);
        add(out, Delta::Reasoning(space + text));
    }

    /// The call is whole, if it can be read.
    fn complete(&mut self, end: &str, out: &mut Vec<Delta>) {
        let State::Call(call) = std::mem::replace(&mut self.state, State::Text) else {
            return;
        };
        match self.read(&call) {
            Ok(calls) => self.made(&call, calls, out),
            Err(reason) => self.failed(&call, &format!("{}{end}", call.body), &reason, out),
        }
        if self.format.row.is_some_and(|row| row.syntax == Syntax::Harmony) {
            self.state = State::Header(String::new());
        }
    }

    fn read(&self, call: &Call) -> Result<Vec<syntax::Read>, String> {
        let row = self.format.row.ok_or("the model has no format for calls")?;
        if let Some(name) = &call.name {
            return Ok(vec![syntax::Read {
                id: None,
                name: name.clone(),
                arguments: syntax::arguments(&call.body)?,
            }]);
        }
        let body = match call.fenced {
            true => call
                .body
                .trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_'),
            false => call.body.as_str(),
        };
        let calls = syntax::read(row.syntax, body, &self.options.tools)?;
        let known = |read: &syntax::Read| self.options.tools.iter().any(|tool| tool.name == read.name);
        match calls.iter().find(|read| call.bare && !known(read)) {
            Some(read) => Err(format!("there is no tool `{}`", read.name)),
            None => Ok(calls),
        }
    }

    fn made(&mut self, call: &Call, calls: Vec<syntax::Read>, out: &mut Vec<Delta>) {
        for (i, read) in calls.into_iter().enumerate() {
            let index = self.calls;
            if i > 0 || call.live == Live::Before {
                let id = read.id.unwrap_or_else(|| call_id(self.options.seed, index));
                let name = read.name;
                out.push(Delta::CallBegin { index, id, name });
                let fragment = read.arguments;
                out.push(Delta::CallArguments { index, fragment });
            }
            out.push(Delta::CallEnd { index });
            self.calls += 1;
        }
        self.begin(Lead::Text);
    }

    /// Gives a call back as text.
    fn failed(&mut self, call: &Call, body: &str, reason: &str, out: &mut Vec<Delta>) {
        self.state = State::Text;
        self.space.clear();
        self.fresh = false;
        if call.live != Live::Before {
            out.push(Delta::CallFailed { index: self.calls });
        }
        add(out, Delta::Text(format!("{}{body}", call.begin)));
        if !call.bare {
            out.push(Delta::Note(format!(
                "a tool call could not be read and is in the text: {reason}"
            )));
        }
    }
}

/// Adds to the last delta where it is of the same kind.
fn add(out: &mut Vec<Delta>, delta: Delta) {
    match (out.last_mut(), delta) {
        (Some(Delta::Text(last)), Delta::Text(text)) | (Some(Delta::Reasoning(last)), Delta::Reasoning(text)) => {
            last.push_str(&text);
        }
        (Some(Delta::CallArguments { fragment: last, .. }), Delta::CallArguments { fragment, .. }) => {
            last.push_str(&fragment)
        }
        (_, Delta::Text(text) | Delta::Reasoning(text)) if text.is_empty() => {}
        (_, delta) => out.push(delta),
    }
}

/// Nine letters and digits, which is the only form that Mistral's templates take.
pub(super) fn call_id(seed: u64, index: usize) -> String {
    let mut hash = xxh3_64_with_seed(&index.to_le_bytes(), seed);
    let mut id = String::with_capacity(9);
    for _ in 0..9 {
        id.push(char::from(ID_LETTERS[(hash % 62) as usize]));
        hash /= 62;
    }
    id
}
