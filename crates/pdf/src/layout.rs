//! Stretches of lines to the text of a page: columns one after the other, lines in paragraphs.

use crate::glyphs::Glyph;
use crate::lines::{Stretch, stretches};

/// Lines that stand beside one another in columns, at least.
const COLUMN_LINES: usize = 3;
/// Width of a stretch in a column of prose, as a share of the width of the region; a cell of a table is narrower.
const COLUMN_SHARE: f64 = 0.2;
/// Places that are tried as a gutter.
const MOST_PLACES: usize = 64;
/// Columns within columns.
const MOST_DEPTH: usize = 8;

/// A line: what stands on one baseline, from left to right.
struct Line {
    text: String,
    left: f64,
    right: f64,
    base: f64,
    size: f64,
    /// Whether something wide lies between its parts, as between the cells of a table.
    has_cells: bool,
}

/// The text of a page.
pub(crate) fn text(glyphs: Vec<Glyph>) -> String {
    let mut text = String::new();
    for group in stretches(glyphs) {
        let mut lines = Vec::new();
        read(group, 0, &mut lines);
        for region in lines {
            write(&region, &mut text);
        }
    }
    text
}

/// Puts the stretches of a region into lines, and its columns one after the other.
fn read(region: Vec<Stretch>, depth: usize, regions: &mut Vec<Vec<Line>>) {
    let rows = rows(region);
    let Some(gutter) = (depth < MOST_DEPTH).then(|| gutter(&rows)).flatten() else {
        regions.push(rows.into_iter().map(line).collect());
        return;
    };
    // Between what goes over the gutter, the left side is read before the right one.
    let (mut sides, mut above) = ([Vec::new(), Vec::new()], Vec::new());
    for row in rows {
        if row.iter().any(|stretch| crosses(stretch, gutter)) {
            let [left, right] = std::mem::take(&mut sides);
            for side in [left, right].into_iter().filter(|side: &Vec<Stretch>| !side.is_empty()) {
                read(side, depth + 1, regions);
            }
            above.push(line(row));
            continue;
        }
        if !above.is_empty() {
            regions.push(std::mem::take(&mut above));
        }
        for stretch in row {
            sides[usize::from(stretch.middle() > gutter)].push(stretch);
        }
    }
    for side in sides.into_iter().filter(|side| !side.is_empty()) {
        read(side, depth + 1, regions);
    }
    if !above.is_empty() {
        regions.push(above);
    }
}

fn crosses(stretch: &Stretch, x: f64) -> bool {
    stretch.left < x && x < stretch.right
}

/// Stretches by baseline, from the top, each row from the left.
fn rows(mut region: Vec<Stretch>) -> Vec<Vec<Stretch>> {
    region.sort_by(|a, b| a.base.total_cmp(&b.base));
    let mut rows: Vec<Vec<Stretch>> = Vec::new();
    for stretch in region {
        match rows.last_mut() {
            Some(row)
                if row
                    .first()
                    .is_some_and(|first| stretch.base - first.base <= 0.35 * first.size.min(stretch.size)) =>
            {
                row.push(stretch);
            }
            _ => rows.push(vec![stretch]),
        }
    }
    for row in &mut rows {
        row.sort_by(|a, b| a.left.total_cmp(&b.left));
        let to_left = row.iter().filter(|stretch| stretch.is_rtl()).count();
        if 2 * to_left > row.len() {
            row.reverse();
        }
    }
    rows
}

/// Where the middle of the white between two columns is; `None` where there are none.
fn gutter(rows: &[Vec<Stretch>]) -> Option<f64> {
    let all = || rows.iter().flatten();
    let left = all().map(|s| s.left).min_by(f64::total_cmp)?;
    let right = all().map(|s| s.right).max_by(f64::total_cmp)?;
    let width = right - left;
    // A place between columns lies right before where many stretches begin.
    let mut starts: Vec<f64> = all()
        .map(|s| s.left)
        .filter(|x| (left + 0.2 * width..left + 0.8 * width).contains(x))
        .collect();
    starts.sort_by(f64::total_cmp);
    // A little further right others begin, too; they are one place.
    let mut places: Vec<(usize, f64)> = Vec::new();
    let mut at = 0;
    while let Some(&x) = starts.get(at) {
        let here = starts[at..].partition_point(|&other| other <= x + 1.0).max(1);
        places.push((here, x - 0.5));
        at += here;
    }
    // A page of a map has places without number, and a column many lines.
    places.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.total_cmp(&b.1)));
    places.truncate(MOST_PLACES);
    let parted = places.iter().filter_map(|&(_, x)| Some((columns(rows, x, width)?, x)));
    let best = parted.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, x)| x)
}

/// How many stretches stand in the columns that `x` parts; `None` where it parts none.
fn columns(rows: &[Vec<Stretch>], x: f64, width: f64) -> Option<usize> {
    let (mut counts, mut widths) = ([0usize; 2], [0.0f64; 2]);
    let mut crossing = 0usize;
    for row in rows {
        if row.iter().any(|stretch| crosses(stretch, x)) {
            crossing += 1;
            continue;
        }
        for stretch in row {
            let side = usize::from(stretch.middle() > x);
            counts[side] += 1;
            widths[side] += stretch.width();
        }
    }
    let is_prose =
        |side: usize| counts[side] >= COLUMN_LINES && widths[side] / counts[side] as f64 >= COLUMN_SHARE * width;
    let both = counts[0] + counts[1];
    (is_prose(0) && is_prose(1) && crossing <= both / 2).then_some(both)
}

fn line(row: Vec<Stretch>) -> Line {
    let mut line = Line {
        text: String::new(),
        left: f64::INFINITY,
        right: f64::NEG_INFINITY,
        base: 0.0,
        size: 0.0,
        has_cells: row.len() > 1,
    };
    for stretch in row {
        if !line.text.is_empty() {
            line.text.push(' ');
        }
        line.text.push_str(&stretch.text);
        line.left = line.left.min(stretch.left);
        line.right = line.right.max(stretch.right);
        if stretch.size > line.size {
            (line.size, line.base) = (stretch.size, stretch.base);
        }
    }
    line
}

/// Writes lines as paragraphs: a line that fills its region goes on in the next one.
fn write(lines: &[Line], text: &mut String) {
    let pitch = pitch(lines);
    let left = lines
        .iter()
        .map(|line| line.left)
        .min_by(f64::total_cmp)
        .unwrap_or_default();
    let right = lines
        .iter()
        .map(|line| line.right)
        .max_by(f64::total_cmp)
        .unwrap_or_default();
    for (i, line) in lines.iter().enumerate() {
        match i.checked_sub(1).and_then(|i| lines.get(i)) {
            None if text.is_empty() => {}
            None => text.push_str("\n\n"),
            Some(_) if begins(lines, i, pitch, left) => text.push_str("\n\n"),
            Some(before) if before.has_cells || line.has_cells => text.push('\n'),
            // A word that would have fitted behind it: the line ends where somebody wanted it to.
            Some(before) if right - before.right > 0.15 * (right - left) + 2.0 * before.size => text.push('\n'),
            Some(_) => {
                let goes_on = line.text.chars().next().is_some_and(char::is_lowercase);
                match hyphenated(text) && goes_on {
                    true => drop(text.pop()),
                    false => text.push(' '),
                }
            }
        }
        text.push_str(&line.text);
    }
}

/// Whether a text ends with a part of a word.
fn hyphenated(text: &str) -> bool {
    let mut last = text.chars().rev();
    matches!(last.next(), Some('-' | '\u{2010}')) && last.next().is_some_and(char::is_lowercase)
}

/// The usual distance of two lines.
fn pitch(lines: &[Line]) -> f64 {
    let mut steps: Vec<f64> = lines
        .windows(2)
        .map(|two| two[1].base - two[0].base)
        .filter(|step| *step > 0.0)
        .collect();
    steps.sort_by(f64::total_cmp);
    steps.get(steps.len() / 2).copied().unwrap_or_default()
}

/// Whether a paragraph begins with line `i`, which is not the first.
fn begins(lines: &[Line], i: usize, pitch: f64, left: f64) -> bool {
    let (before, line) = (&lines[i - 1], &lines[i]);
    let step = line.base - before.base;
    let other_size = (line.size - before.size).abs() > 0.15 * line.size.max(before.size);
    let is_far = step > 1.35 * pitch.min(1.6 * line.size.max(before.size)).max(line.size) || step < 0.0;
    let indented = |line: &Line| line.left - left > 0.8 * line.size;
    let next = lines.get(i + 1);
    let is_first = indented(line) && !indented(before) && next.is_some_and(|next| !indented(next));
    is_far || other_size || is_first
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Glyphs of half an em each, with nothing drawn for a space.
    fn drawn(text: &str, left: f64, base: f64, size: f64) -> Vec<Glyph> {
        let glyph = |(i, c): (usize, char)| {
            let x = left + i as f64 * size / 2.0;
            Glyph {
                text: c.to_string(),
                start: [x, base],
                end: [x + size / 2.0, base],
                size,
            }
        };
        text.chars().enumerate().filter(|(_, c)| *c != ' ').map(glyph).collect()
    }

    fn page(lines: &[(&str, f64, f64)]) -> String {
        text(
            lines
                .iter()
                .flat_map(|(text, left, base)| drawn(text, *left, *base, 10.0))
                .collect(),
        )
    }

    #[test]
    fn columns_are_found_in_whatever_order_they_are_drawn() {
        let mut lines = vec![("a title that goes over both of the columns here", 0.0, 0.0)];
        for (i, (left, right)) in [
            ("one two three four", "nine ten eleven on"),
            ("five six seven and", "twelve thirteen an"),
            ("eight at the end.", "fourteen are last."),
        ]
        .into_iter()
        .enumerate()
        {
            let base = 30.0 + 12.0 * i as f64;
            lines.extend([(left, 0.0, base), (right, 120.0, base)]);
        }
        lines.push(("a line below that goes over both of the columns", 0.0, 90.0));
        let want = "a title that goes over both of the columns here\n\n\
                    one two three four five six seven and eight at the end.\n\n\
                    nine ten eleven on twelve thirteen an fourteen are last.\n\n\
                    a line below that goes over both of the columns";
        assert_eq!(page(&lines), want);
        lines.reverse();
        assert_eq!(page(&lines), want);
    }

    #[test]
    fn cells_of_a_table_stay_in_their_rows() {
        let rows = [("name", "count"), ("tea", "12"), ("bread", "7"), ("salt", "30")];
        let lines: Vec<(&str, f64, f64)> = rows
            .iter()
            .enumerate()
            .flat_map(|(i, (a, b))| [(*a, 0.0, 12.0 * i as f64), (*b, 200.0, 12.0 * i as f64)])
            .collect();
        assert_eq!(page(&lines), "name count\ntea 12\nbread 7\nsalt 30");
    }

    #[test]
    fn lines_become_paragraphs() {
        for (lines, want) in [
            (
                vec![("the first line is", 0.0, 0.0), ("as long as this is", 0.0, 12.0)],
                "the first line is as long as this is",
            ),
            // A word that is cut is one again, a name with a hyphen keeps it.
            (vec![("a diffi-", 0.0, 0.0), ("cult one", 0.0, 12.0)], "a difficult one"),
            (
                vec![("the year-", 0.0, 0.0), ("The 2024", 0.0, 12.0)],
                "the year- The 2024",
            ),
            (
                vec![("short", 0.0, 0.0), ("a line that is much longer", 0.0, 12.0)],
                "short\na line that is much longer",
            ),
            (
                vec![("here it ends.", 0.0, 0.0), ("far below on.", 0.0, 40.0)],
                "here it ends.\n\nfar below on.",
            ),
            (
                vec![
                    ("one is here and", 0.0, 0.0),
                    ("it ends in this.", 0.0, 12.0),
                    ("two has inset", 12.0, 24.0),
                    ("and goes on yet.", 0.0, 36.0),
                ],
                "one is here and it ends in this.\n\ntwo has inset and goes on yet.",
            ),
        ] {
            assert_eq!(page(&lines), want);
        }
    }

    #[test]
    fn text_that_is_turned_stands_behind_the_rest() {
        let mut glyphs = drawn("up", 0.0, 0.0, 10.0);
        for glyph in &mut glyphs {
            (glyph.start, glyph.end) = ([5.0, 90.0 - glyph.start[0]], [5.0, 90.0 - glyph.end[0]]);
        }
        glyphs.extend(drawn("level text", 20.0, 50.0, 10.0));
        assert_eq!(text(glyphs), "level text\n\nup");
    }

    #[test]
    fn pages_upside_down_are_read_in_their_lines() {
        let mut glyphs = drawn("first line here", 0.0, 0.0, 10.0);
        glyphs.extend(drawn("second line too", 0.0, 12.0, 10.0));
        for (i, glyph) in glyphs.iter_mut().enumerate() {
            // What a rotation leaves of zero has either sign.
            let jitter = if i % 2 == 0 { 1e-9 } else { -1e-9 };
            glyph.start = [100.0 - glyph.start[0], 50.0 - glyph.start[1]];
            glyph.end = [100.0 - glyph.end[0], 50.0 - glyph.end[1] + jitter];
        }
        assert_eq!(text(glyphs), "first line here second line too");
    }

    #[test]
    fn bold_by_drawing_twice_and_signs_of_notes_are_read_once_and_in_line() {
        let mut glyphs = Vec::new();
        for glyph in drawn("bold", 0.0, 0.0, 10.0) {
            let mut again = glyph.clone();
            again.start[0] += 0.3;
            again.end[0] += 0.3;
            glyphs.extend([glyph, again]);
        }
        glyphs.extend(drawn("2", 20.5, -4.0, 6.0));
        assert_eq!(text(glyphs), "bold2");
    }
}
