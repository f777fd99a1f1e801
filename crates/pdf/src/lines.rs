//! Glyphs to stretches of a line, with the spaces that a reader sees.

use crate::glyphs::Glyph;
use std::collections::BTreeMap;

/// A gap that is a space, in ems. A space has a quarter in most fonts, and less in a tight line; letters stand closer.
const SPACE: f64 = 0.15;
/// A gap that ends a stretch: another column, or another cell of a table.
const GUTTER: f64 = 1.0;
/// How far a glyph may stand above or below the baseline, as signs of a power or a note do.
const SHIFT: f64 = 0.45;

/// Glyphs of one line with nothing wide between them, in a page that is turned so that lines go to the right.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stretch {
    pub(crate) text: String,
    pub(crate) left: f64,
    pub(crate) right: f64,
    /// Its baseline; down is positive.
    pub(crate) base: f64,
    pub(crate) size: f64,
    is_rtl: bool,
}

impl Stretch {
    /// Whether its letters go to the left.
    pub(crate) fn is_rtl(&self) -> bool {
        self.is_rtl
    }

    pub(crate) fn width(&self) -> f64 {
        self.right - self.left
    }

    pub(crate) fn middle(&self) -> f64 {
        (self.left + self.right) / 2.0
    }
}

/// The stretches of a page by the direction of their lines, the commonest direction first.
pub(crate) fn stretches(glyphs: Vec<Glyph>) -> Vec<Vec<Stretch>> {
    let mut turned: BTreeMap<i32, Vec<Glyph>> = BTreeMap::new();
    for glyph in glyphs {
        let [x, y] = [glyph.end[0] - glyph.start[0], glyph.end[1] - glyph.start[1]];
        // Glyphs without a width go where the one before did, which is to the right nearly always.
        let degrees = match x.hypot(y) > 1e-6 * glyph.size {
            true => y.atan2(x).to_degrees().round() as i32,
            false => 0,
        };
        turned.entry(degrees.rem_euclid(360)).or_default().push(glyph);
    }
    let mut groups: Vec<(i32, Vec<Glyph>)> = turned.into_iter().collect();
    groups.sort_by_key(|(degrees, glyphs)| (std::cmp::Reverse(glyphs.len()), *degrees));
    let groups = groups.into_iter().map(|(degrees, mut glyphs)| {
        let (sin, cos) = f64::from(-degrees).to_radians().sin_cos();
        let turn = |[x, y]: [f64; 2]| [x * cos - y * sin, x * sin + y * cos];
        for glyph in &mut glyphs {
            (glyph.start, glyph.end) = (turn(glyph.start), turn(glyph.end));
        }
        joined(&glyphs)
    });
    groups.filter(|stretches| !stretches.is_empty()).collect()
}

/// Joins glyphs that follow one another, in the order in which they are drawn.
fn joined(glyphs: &[Glyph]) -> Vec<Stretch> {
    let mut found: Vec<Stretch> = Vec::new();
    let mut last: Option<&Glyph> = None;
    for glyph in glyphs {
        let is_blank = glyph.text.trim().is_empty();
        if let (Some(before), Some(open)) = (last, found.last_mut()) {
            // Drawn again a little beside, to look bold.
            let is_again = before.text == glyph.text
                && (glyph.start[0] - before.start[0]).abs() < 0.1 * glyph.size
                && (glyph.start[1] - before.start[1]).abs() < 0.1 * glyph.size;
            if is_again && !is_blank {
                continue;
            }
            if let Some(gap) = gap(open, before, glyph) {
                if (gap > SPACE * open.size.min(glyph.size) || is_blank) && !open.text.ends_with(' ') {
                    open.text.push(' ');
                }
                if !is_blank {
                    open.text.push_str(&glyph.text);
                    open.left = open.left.min(glyph.start[0]);
                    open.right = open.right.max(glyph.end[0]);
                    if glyph.size > open.size {
                        (open.size, open.base) = (glyph.size, glyph.start[1]);
                    }
                    open.is_rtl |= is_rtl(&glyph.text);
                }
                last = Some(glyph);
                continue;
            }
        }
        if is_blank {
            continue;
        }
        found.push(Stretch {
            text: glyph.text.clone(),
            left: glyph.start[0],
            right: glyph.end[0].max(glyph.start[0]),
            base: glyph.start[1],
            size: glyph.size,
            is_rtl: is_rtl(&glyph.text),
        });
        last = Some(glyph);
    }
    for stretch in &mut found {
        stretch.text.truncate(stretch.text.trim_end().len());
    }
    found
}

/// What lies between a glyph and the stretch before it; `None` where it begins another one.
fn gap(open: &Stretch, before: &Glyph, glyph: &Glyph) -> Option<f64> {
    let size = open.size.max(glyph.size);
    if (glyph.start[1] - open.base).abs() > SHIFT * size {
        return None;
    }
    let gap = match is_rtl(&glyph.text) || is_rtl(&before.text) {
        true if glyph.start[0] < before.start[0] => before.start[0] - glyph.end[0],
        _ => glyph.start[0] - before.end[0],
    };
    (-0.5 * size..GUTTER * size).contains(&gap).then_some(gap)
}

/// Whether it is of a script that is written to the left.
fn is_rtl(text: &str) -> bool {
    text.chars()
        .any(|c| matches!(c, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}'))
}
