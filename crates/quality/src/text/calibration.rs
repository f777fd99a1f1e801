//! The text that calibration uses where none is given; `text/calibration/README.md` says what it is and where it is from.

use super::{Row, RowKind, lines};

/// Pieces of the plain kinds are separated by this line.
const SEPARATOR: &str = "\n=====\n";
const PLAIN: [&str; 3] = [
    include_str!("../../text/calibration/prose.txt"),
    include_str!("../../text/calibration/code.txt"),
    include_str!("../../text/calibration/languages.txt"),
];
const CHAT: &str = include_str!("../../text/calibration/chat.jsonl");

/// The pieces of all kinds, each kind spread evenly over the whole, so that any beginning has something of each.
pub(super) fn rows() -> Vec<Row> {
    let plain = |text: &str| -> Vec<Row> {
        let piece = |text: &str| Row {
            place: String::new(),
            kind: RowKind::Text(text.trim_end().to_owned()),
        };
        text.split(SEPARATOR).map(piece).collect()
    };
    let mut kinds: Vec<Vec<Row>> = PLAIN.iter().map(|text| plain(text)).collect();
    // Ours, and tested.
    kinds.push(lines(CHAT).unwrap_or_default());
    let mut placed: Vec<(f64, Row)> = Vec::new();
    for rows in kinds {
        let count = rows.len() as f64;
        placed.extend(
            rows.into_iter()
                .enumerate()
                .map(|(i, row)| ((i as f64 + 0.5) / count, row)),
        );
    }
    placed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    placed.into_iter().map(|(_, row)| row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_part_in_every_quarter() {
        let rows = rows();
        let marks = ["def ", "Der Zug", "messages"];
        assert!(
            marks
                .iter()
                .all(|m| [PLAIN[1], PLAIN[2], CHAT].iter().any(|t| t.contains(m)))
        );
        for quarter in rows.chunks(rows.len().div_ceil(4)) {
            let chats = quarter
                .iter()
                .filter(|r| matches!(r.kind, RowKind::Chat { .. }))
                .count();
            assert!((2..=6).contains(&chats), "{chats}");
            for kind in PLAIN {
                let found = quarter
                    .iter()
                    .any(|r| matches!(&r.kind, RowKind::Text(t) if kind.contains(t.as_str())));
                assert!(found);
            }
        }
    }
}
