//! Stop strings over streamed text: matched on text, not on tokens, so that a stop string is found however
//! the tokens cut it, and text that may still turn into one is held back.
//!
//! Depends on nothing. It deliberately does not know tokens or options; it is fed with the whole characters
//! that the streaming detokenizer releases.
//!
//! All stop strings are followed at once by an Aho-Corasick automaton (Aho and Corasick 1975), whose state is
//! the longest end of the text that begins a stop string. So the work is constant per byte, and the text held
//! back is exactly what the state stands for. The match that *ends* first wins, and among those ending
//! together the longest: this is the only rule whose result does not depend on how the text was cut.

/// Follows the stop strings of one generation. Without any, text passes straight through.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    nodes: Vec<Node>,
    /// Length in bytes of each stop string.
    lengths: Vec<usize>,
    include_stop: bool,
    state: usize,
    /// Text not released yet: always the last `nodes[state].depth` bytes of all that was pushed.
    held: String,
    matched: Option<usize>,
}

/// A prefix of some stop string.
#[derive(Debug, Clone, Default)]
struct Node {
    /// Next byte and the node it leads to, ascending by byte.
    children: Vec<(u8, usize)>,
    /// The longest proper end of this prefix that is itself a prefix.
    fail: usize,
    /// Length of the prefix in bytes.
    depth: usize,
    /// The longest stop string that ends here.
    output: Option<usize>,
}

impl Node {
    fn child(&self, byte: u8) -> Option<usize> {
        self.children
            .binary_search_by_key(&byte, |c| c.0)
            .ok()
            .map(|i| self.children[i].1)
    }
}

impl StopMatcher {
    /// A matcher for these strings; empty ones are ignored. With `include_stop` the string that is met is
    /// released too.
    pub fn new<S: AsRef<str>>(stops: &[S], include_stop: bool) -> Self {
        let mut nodes = vec![Node::default()];
        let mut lengths = Vec::with_capacity(stops.len());
        for (index, stop) in stops.iter().enumerate() {
            let stop = stop.as_ref();
            lengths.push(stop.len());
            let mut at = 0;
            for &byte in stop.as_bytes() {
                at = match nodes[at].children.binary_search_by_key(&byte, |c| c.0) {
                    Ok(position) => nodes[at].children[position].1,
                    Err(position) => {
                        let new = nodes.len();
                        let depth = nodes[at].depth + 1;
                        nodes.push(Node {
                            depth,
                            ..Node::default()
                        });
                        nodes[at].children.insert(position, (byte, new));
                        new
                    }
                };
            }
            if at != 0 && nodes[at].output.is_none() {
                nodes[at].output = Some(index);
            }
        }
        // Breadth first, so that the shorter prefixes that fail links point to are complete.
        let mut queue: Vec<usize> = nodes[0].children.iter().map(|c| c.1).collect();
        let mut next = 0;
        while next < queue.len() {
            let at = queue[next];
            next += 1;
            for (byte, child) in nodes[at].children.clone() {
                let fail = step(&nodes, nodes[at].fail, byte);
                nodes[child].fail = fail;
                // The prefix itself is the longest match; only without one does a shorter end count.
                nodes[child].output = nodes[child].output.or(nodes[fail].output);
                queue.push(child);
            }
        }
        Self {
            nodes,
            lengths,
            include_stop,
            state: 0,
            held: String::new(),
            matched: None,
        }
    }

    /// Takes the next piece of text and appends to `out` what can no longer be part of a stop string.
    /// Returns the index of the stop string that was met, if one was.
    ///
    /// After a match everything further is dropped and the same match is returned again.
    pub fn push(&mut self, text: &str, out: &mut String) -> Option<usize> {
        if self.matched.is_some() {
            return self.matched;
        }
        if self.nodes.len() == 1 {
            out.push_str(text);
            return None;
        }
        let start = self.held.len();
        self.held.push_str(text);
        for (offset, &byte) in text.as_bytes().iter().enumerate() {
            self.state = step(&self.nodes, self.state, byte);
            if let Some(index) = self.nodes[self.state].output {
                // A stop string begins and ends on character borders, so these cuts do too.
                let end = start + offset + 1;
                let kept = if self.include_stop {
                    end
                } else {
                    end - self.lengths[index]
                };
                out.push_str(&self.held[..kept]);
                self.held.clear();
                self.matched = Some(index);
                return self.matched;
            }
        }
        let release = self.held.len() - self.nodes[self.state].depth;
        out.push_str(&self.held[..release]);
        self.held.drain(..release);
        None
    }

    /// Ends the text: appends to `out` what was held back, since no more can complete a stop string.
    pub fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
        self.state = 0;
    }

    /// Index of the stop string that was met.
    pub fn matched(&self) -> Option<usize> {
        self.matched
    }

    /// Text that is held back because it may be the beginning of a stop string.
    pub fn held(&self) -> &str {
        &self.held
    }
}

/// The state after `byte`: the longest end of the text so far that is a prefix of a stop string.
fn step(nodes: &[Node], mut state: usize, byte: u8) -> usize {
    loop {
        match nodes[state].child(byte) {
            Some(child) => return child,
            None if state == 0 => return 0,
            None => state = nodes[state].fail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pushes the pieces; returns what was released, the match, and what was left held before the end.
    fn run<S: AsRef<str>>(stops: &[&str], include: bool, pieces: &[S]) -> (String, Option<usize>, String) {
        let mut matcher = StopMatcher::new(stops, include);
        let mut out = String::new();
        for piece in pieces {
            if matcher.push(piece.as_ref(), &mut out).is_some() {
                break;
            }
        }
        let held = matcher.held().to_owned();
        matcher.finish(&mut out);
        (out, matcher.matched(), held)
    }

    /// The rule stated directly: the first end, then the longest.
    fn naive(stops: &[&str], include: bool, text: &str) -> (String, Option<usize>) {
        for end in 1..=text.len() {
            let ending = stops
                .iter()
                .enumerate()
                .filter(|(_, s)| !s.is_empty() && text.as_bytes()[..end].ends_with(s.as_bytes()));
            // `max_by_key` gives the last of equals, the matcher the first.
            if let Some((index, stop)) = ending.rev().max_by_key(|(_, s)| s.len()) {
                let kept = if include { end } else { end - stop.len() };
                return (text[..kept].to_owned(), Some(index));
            }
        }
        (text.to_owned(), None)
    }

    #[test]
    fn stop_cases_release_text_before_the_first_ending_match() {
        type Case = (
            &'static [&'static str],
            &'static [&'static str],
            &'static str,
            Option<usize>,
        );
        let cases: [Case; 12] = [
            (&[], &["any", "thing"], "anything", None),
            (&[""], &["any", "thing"], "anything", None),
            (&["END"], &["the EN", "D of it"], "the ", Some(0)),
            (&["END"], &["the E", "N", "E", "ND."], "the EN", Some(0)),
            (&["END"], &["the EN"], "the EN", None),
            (&["\n\n"], &["a\n", "b\n", "\n", "c"], "a\nb", Some(0)),
            (&["abcd", "bc"], &["abcd"], "a", Some(1)),
            (&["bc", "abc"], &["xab", "c"], "x", Some(1)),
            (&["aab"], &["aaaa", "ab"], "aaa", Some(0)),
            (
                &["\u{1f600}!"],
                &["x\u{1f600}", "?\u{1f600}", "!"],
                "x\u{1f600}?",
                Some(0),
            ),
            (&["x", "x"], &["axb"], "a", Some(0)),
            (
                &["</s>", "<|im_end|>"],
                &["hi <", "|im", "_end|", ">", "!"],
                "hi ",
                Some(1),
            ),
        ];
        for (stops, pieces, expected, matched) in cases {
            let (out, found, _) = run(stops, false, pieces);
            assert_eq!((out.as_str(), found), (expected, matched), "{stops:?} in {pieces:?}");
        }
    }

    #[test]
    fn stop_included_is_released_with_the_text() {
        let (out, matched, _) = run(&["END"], true, &["the E", "ND of it"]);
        assert_eq!((out.as_str(), matched), ("the END", Some(0)));
    }

    #[test]
    fn stop_after_a_match_drops_everything() {
        let mut matcher = StopMatcher::new(&["."], false);
        let mut out = String::new();
        assert_eq!(matcher.push("a.b", &mut out), Some(0));
        assert_eq!(matcher.push("c", &mut out), Some(0));
        matcher.finish(&mut out);
        assert_eq!(out, "a");
    }

    #[test]
    fn stop_held_text_is_only_what_can_still_match() {
        let mut matcher = StopMatcher::new(&["<|end|>", "\nUser:"], false);
        let mut out = String::new();
        for (piece, released, held) in [
            ("Hello", "Hello", ""),
            (" <", " ", "<"),
            ("|", "", "<|"),
            ("x\n", "<|x", "\n"),
            ("User", "", "\nUser"),
            ("s", "\nUsers", ""),
        ] {
            out.clear();
            matcher.push(piece, &mut out);
            assert_eq!((out.as_str(), matcher.held()), (released, held), "after {piece:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn stop_any_cut_equals_the_whole_text(
            stops in prop::collection::vec("[ab\u{e9}\u{1f600}]{0,5}", 0..5),
            pieces in prop::collection::vec("[abc\u{e9}\u{1f600}]{0,6}", 0..12),
            include in any::<bool>(),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let text: String = pieces.concat();
            let (out, matched, held) = run(&stops, include, &pieces);
            prop_assert_eq!((out.clone(), matched), naive(&stops, include, &text));
            let chars: Vec<String> = text.chars().map(String::from).collect();
            prop_assert_eq!(run(&stops, include, &chars), (out, matched, held.clone()));
            // Nothing is held without need: what is held begins a stop string.
            prop_assert!(held.is_empty() || stops.iter().any(|s| s.starts_with(&held)));
        }
    }
}
