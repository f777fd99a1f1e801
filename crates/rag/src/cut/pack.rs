//! Parts of a document to pieces of a size.

use super::{Part, Piece, Rules, in_context};
use std::ops::Range;
use unicode_segmentation::UnicodeSegmentation as _;

/// A part that is small enough.
struct Unit {
    bytes: Range<usize>,
    text: String,
    tokens: usize,
    /// What stands between it and the one before in a piece, where that is not what stands there in the document.
    joint: &'static str,
    /// Whether its text is that of its bytes.
    verbatim: bool,
    /// Whether a paragraph or a function ends here.
    ends: bool,
}

/// Packs parts into pieces; a heading begins one.
pub(super) fn pack(source: &str, parts: Vec<Part>, rules: Rules<'_>) -> Vec<Piece> {
    let lines = Lines::of(source);
    let (mut pieces, mut headings) = (Vec::new(), Vec::<(usize, String)>::new());
    let mut section: Vec<Part> = Vec::new();
    // A heading with nothing under it so far.
    let mut bare: Option<Part> = None;
    for part in parts {
        let Some(level) = part.heading else {
            if section.last().is_some_and(|last| last.page != part.page) {
                close((source, &lines), &headings, &mut section, rules, &mut pieces);
            }
            section.push(part);
            bare = None;
            continue;
        };
        close((source, &lines), &headings, &mut section, rules, &mut pieces);
        // What is under a heading has it above; a heading with nothing under it is a text itself.
        if let Some(alone) = bare.take().filter(|bare| bare.heading >= Some(level)) {
            headings.pop();
            section.push(as_it_stands(source, alone));
            close((source, &lines), &headings, &mut section, rules, &mut pieces);
        }
        headings.retain(|(above, _)| *above < level);
        headings.push((level, part.text.clone()));
        bare = Some(part);
    }
    if let Some(alone) = bare {
        headings.pop();
        section.push(as_it_stands(source, alone));
    }
    close((source, &lines), &headings, &mut section, rules, &mut pieces);
    pieces
}

/// A heading as a text: with its marks and addresses, which count like all that a piece shows, where it is shown as it stands.
fn as_it_stands(source: &str, mut heading: Part) -> Part {
    if heading.verbatim
        && !heading.text.is_empty()
        && let Some(own) = source.get(heading.bytes.clone())
    {
        own.clone_into(&mut heading.text);
    }
    heading
}

/// Makes pieces of what stands under some headings.
fn close(
    (source, lines): (&str, &Lines),
    headings: &[(usize, String)],
    section: &mut Vec<Part>,
    rules: Rules<'_>,
    pieces: &mut Vec<Piece>,
) {
    let headings: Vec<String> = headings.iter().map(|(_, text)| text.clone()).collect();
    // Long headings leave a text half of the room at least.
    let room = rules.most_tokens.max(1);
    let above = (rules.count)(&in_context(&headings, ""));
    let most = room.saturating_sub(above).max(room.div_ceil(2));
    let page = section.first().and_then(|part| part.page);
    let piece = |units: &[Unit]| Piece {
        page,
        ..piece(source, lines, &headings, units)
    };
    let mut units = Vec::new();
    for part in section.drain(..) {
        split(part, most, rules, &mut units);
    }
    let mut open: Vec<Unit> = Vec::new();
    let mut tokens = 0;
    for unit in units {
        if tokens + unit.tokens > most && !open.is_empty() {
            // Back to the end of the last paragraph, where that leaves enough.
            let ends = open.iter().rposition(|unit| unit.ends);
            let kept: usize = ends.map_or(0, |at| open[..=at].iter().map(|unit| unit.tokens).sum());
            let later = match ends {
                Some(at) if 2 * kept >= most => open.split_off(at + 1),
                _ => Vec::new(),
            };
            pieces.push(piece(&open));
            open = later;
            tokens = open.iter().map(|unit| unit.tokens).sum();
            if tokens + unit.tokens > most && !open.is_empty() {
                pieces.push(piece(&open));
                open.clear();
                tokens = 0;
            }
        }
        tokens += unit.tokens;
        open.push(unit);
    }
    if !open.is_empty() {
        pieces.push(piece(&open));
    }
}

fn piece(source: &str, lines: &Lines, headings: &[String], units: &[Unit]) -> Piece {
    let mut text = String::new();
    for unit in units {
        if !text.is_empty() {
            text.push_str(unit.joint);
        }
        text.push_str(&unit.text);
    }
    let start = units.first().map_or(0, |unit| unit.bytes.start);
    let end = units.last().map_or(start, |unit| unit.bytes.end);
    let gap = |two: &[Unit]| source.get(two[0].bytes.end..two[1].bytes.start);
    let joined = units
        .windows(2)
        .all(|two| gap(two).is_some_and(|gap| gap.trim().is_empty()));
    // What a reader is shown is what stands in the document, where nothing else stands between.
    if let Some(own) = source.get(start..end)
        && joined
        && units.iter().all(|unit| unit.verbatim)
    {
        own.clone_into(&mut text);
    }
    Piece {
        lines: [lines.line(start), lines.line(end.saturating_sub(1).max(start))],
        bytes: start..end,
        page: None,
        headings: headings.to_vec(),
        text,
    }
}

/// A part as units of at most so many tokens.
fn split(part: Part, most: usize, rules: Rules<'_>, units: &mut Vec<Unit>) {
    let tokens = (rules.count)(&part.text);
    let joint = "\n\n";
    // A text that is not that of its bytes keeps them all for each of its units.
    let verbatim = part.verbatim;
    if tokens <= most {
        if !part.text.trim().is_empty() {
            units.push(Unit {
                bytes: part.bytes,
                text: part.text,
                tokens,
                joint,
                verbatim,
                ends: true,
            });
        }
        return;
    }
    let place = |range: Range<usize>| match verbatim {
        true => part.bytes.start + range.start..part.bytes.start + range.end,
        false => part.bytes.clone(),
    };
    let first = units.len();
    let add = |range: Range<usize>, joint: &'static str, units: &mut Vec<Unit>| {
        let text = &part.text[range.clone()];
        let trimmed = text.trim_end();
        let skipped = if joint == "\n" {
            0
        } else {
            trimmed.len() - trimmed.trim_start().len()
        };
        let (range, trimmed) = (range.start + skipped..range.start + trimmed.len(), &trimmed[skipped..]);
        if !trimmed.trim().is_empty() {
            units.push(Unit {
                bytes: place(range),
                tokens: (rules.count)(trimmed),
                text: trimmed.to_owned(),
                joint,
                verbatim,
                ends: false,
            });
        }
    };
    let coarse: Vec<Range<usize>> = match part.is_code {
        true => ranges(part.text.split_inclusive('\n')),
        false => ranges(part.text.split_sentence_bounds()),
    };
    let joint = if part.is_code { "\n" } else { " " };
    for range in coarse {
        if (rules.count)(&part.text[range.clone()]) <= most {
            add(range, joint, units);
            continue;
        }
        for word in words(&part.text, range, most, rules) {
            add(word, joint, units);
        }
    }
    if let Some(unit) = units.get_mut(first) {
        unit.joint = "\n\n";
    }
    if let Some(unit) = units.last_mut() {
        unit.ends = true;
    }
}

/// A range of `text` as ranges of whole words, or of characters where a word is too long, of at most so many tokens.
fn words(text: &str, range: Range<usize>, most: usize, rules: Rules<'_>) -> Vec<Range<usize>> {
    let fits = |range: &Range<usize>| (rules.count)(&text[range.clone()]) <= most;
    let mut found = Vec::new();
    let mut rest = range.clone();
    while !rest.is_empty() && !fits(&rest) {
        let bounds: Vec<usize> = text[rest.clone()]
            .split_word_bound_indices()
            .map(|(at, _)| rest.start + at)
            .skip(1)
            .collect();
        // The longest front that fits, by halving: tokens grow with the text.
        let longest = |bounds: &[usize]| bounds.partition_point(|&end| fits(&(rest.start..end)));
        let end = match longest(&bounds) {
            0 => {
                let characters: Vec<usize> = text[rest.clone()]
                    .char_indices()
                    .map(|(at, _)| rest.start + at)
                    .skip(1)
                    .collect();
                let count = longest(&characters).max(1);
                characters.get(count - 1).copied().unwrap_or(rest.end)
            }
            count => bounds[count - 1],
        };
        found.push(rest.start..end);
        rest.start = end;
    }
    if !rest.is_empty() {
        found.push(rest);
    }
    found
}

fn ranges<'a>(parts: impl Iterator<Item = &'a str>) -> Vec<Range<usize>> {
    let mut at = 0;
    let range = |part: &str| {
        let start = at;
        at += part.len();
        start..at
    };
    parts.map(range).collect()
}

/// Where lines begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(source: &str) -> Lines {
        let ends = source.bytes().enumerate().filter(|(_, b)| *b == b'\n');
        Lines(std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect())
    }

    /// The line of a byte, from 1.
    fn line(&self, at: usize) -> usize {
        self.0.partition_point(|&start| start <= at)
    }
}

#[cfg(test)]
mod tests {
    use crate::cut::{Kind, Rules, pieces};
    use proptest::prelude::*;

    fn count(text: &str) -> usize {
        text.split_whitespace()
            .map(|word| word.chars().count().div_ceil(8))
            .sum()
    }

    fn texts(kind: Kind, source: &str, most_tokens: usize) -> Vec<String> {
        let rules = Rules {
            most_tokens,
            count: &count,
        };
        pieces(kind, source, rules)
            .into_iter()
            .map(|piece| piece.text)
            .collect()
    }

    #[test]
    fn paragraphs_go_together_as_long_as_they_fit() {
        let source = "a b c\n\nd e\n\nf g h i j k. L m n o p.\n\nq";
        assert_eq!(
            texts(Kind::Text, source, 6),
            ["a b c\n\nd e", "f g h i j k.", "L m n o p.\n\nq"]
        );
        assert_eq!(texts(Kind::Text, source, 100), [source]);
        assert_eq!(texts(Kind::Text, "a b c d e", 2), ["a b", "c d", "e"]);
        assert_eq!(
            texts(Kind::Text, &"x".repeat(40), 2),
            ["x".repeat(16), "x".repeat(16), "x".repeat(8)]
        );
    }

    #[test]
    fn a_heading_begins_a_piece_and_stands_above_it() {
        let source = "intro\n\n# One\n\na\n\n## Two\n\nb\n\n## Three\n\n# Four\nc";
        let rules = Rules {
            most_tokens: 100,
            count: &count,
        };
        let found = pieces(Kind::Markdown, source, rules);
        let found: Vec<(String, String)> = found.iter().map(|p| (p.headings.join("/"), p.text.clone())).collect();
        let want = [
            ("", "intro"),
            ("One", "a"),
            ("One/Two", "b"),
            // Nothing is under it.
            ("One", "## Three"),
            ("Four", "c"),
        ];
        assert_eq!(found, want.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn a_heading_alone_is_cut_with_its_marks_and_addresses() {
        let source = "# [one](https://a.example/the/page/of/one)\n\n# two\n\n#\n";
        let found = texts(Kind::Markdown, source, 3);
        assert_eq!(
            found.concat().replace(' ', ""),
            "#[one](https://a.example/the/page/of/one)#two"
        );
        assert!(found.iter().all(|text| count(text) <= 3), "{found:?}");
    }

    #[test]
    fn code_is_cut_between_functions_then_lines() {
        let source = "fn a() {\n    1\n}\n\nfn b() {\n    one two three four\n    five six seven\n}\n";
        assert_eq!(
            texts(Kind::Code, source, 4),
            [
                "fn a() {\n    1",
                "}\n\nfn b() {",
                "    one two three four",
                "    five six seven\n}"
            ]
        );
        assert_eq!(
            texts(Kind::Code, source, 14),
            [
                "fn a() {\n    1\n}",
                "fn b() {\n    one two three four\n    five six seven\n}"
            ]
        );
    }

    proptest! {
        #[test]
        fn pieces_are_in_order_small_and_lose_no_word(
            source in "([a-zA-Z.#<>*é\u{4e2d}` -]{0,12}\n{0,3}){0,40}",
            most_tokens in 1usize..40,
            kind in prop::sample::select(vec![Kind::Text, Kind::Markdown, Kind::Html, Kind::Code]),
        ) {
            let rules = Rules { most_tokens, count: &count };
            let found = pieces(kind, &source, rules);
            let mut end = 0;
            for piece in &found {
                prop_assert!(!piece.text.trim().is_empty());
                prop_assert!(piece.bytes.end <= source.len() && source.is_char_boundary(piece.bytes.start) && source.is_char_boundary(piece.bytes.end));
                prop_assert!(piece.lines[0] >= 1 && piece.lines[0] <= piece.lines[1]);
                prop_assert!(count(&piece.text) <= most_tokens.max(1), "{:?} of {}", piece.text, count(&piece.text));
                if kind != Kind::Html {
                    prop_assert!(piece.bytes.start >= end, "{:?}", found);
                    end = piece.bytes.end;
                }
            }
            if matches!(kind, Kind::Text | Kind::Code) {
                let squeezed = |text: &str| text.split_whitespace().collect::<String>();
                let all: String = found.iter().map(|piece| squeezed(&piece.text)).collect();
                prop_assert_eq!(all, squeezed(&source));
            }
        }
    }
}
