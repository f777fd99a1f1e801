//! Every glyph of a page with its characters and its place.

use hayro_interpret::font::{Glyph as Drawn, GlyphRun, PositionedGlyph};
use hayro_interpret::hayro_cmap::{BfString, WritingMode};
use hayro_interpret::kurbo::{Affine, BezPath, Point};
use hayro_interpret::{BlendMode, ClipPath, Device, DrawMode, DrawProps, Image, ImageDrawProps, SoftMask};

/// Units of an em, as glyphs are measured.
const EM: f64 = 1000.0;
/// The width of a glyph that has none of its own.
const WIDTH: f64 = 500.0;

/// A glyph as it stands on a page, in points; down is positive.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Glyph {
    /// What it says; a ligature is the letters that it stands for.
    pub(crate) text: String,
    /// Where it begins and where it ends, on its baseline, which goes down where lines do.
    pub(crate) start: [f64; 2],
    /// See `start`.
    pub(crate) end: [f64; 2],
    /// The height of an em.
    pub(crate) size: f64,
}

/// Takes the glyphs of a page.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    pub(crate) glyphs: Vec<Glyph>,
    /// Glyphs that say nothing.
    pub(crate) unknown: usize,
}

impl Collector {
    fn take(&mut self, glyph: &PositionedGlyph<'_>, transform: Affine, is_vertical: bool) {
        let Some(said) = glyph.as_unicode() else {
            self.unknown += 1;
            return;
        };
        let mut text = String::new();
        match said {
            BfString::Char(c) => spell(c, &mut text),
            BfString::String(s) => s.chars().for_each(|c| spell(c, &mut text)),
        }
        let width = match &**glyph {
            Drawn::Outline(outline) => outline.advance_width(),
            Drawn::Type3(type3) => type3.advance_width(),
        };
        let width = width.map_or(WIDTH, f64::from);
        let transform = transform * glyph.transform();
        let start = transform * Point::ZERO;
        let up = transform * Point::new(0.0, EM);
        let size = (up - start).hypot();
        let end = match is_vertical {
            true => start + (start - up),
            false => transform * Point::new(width, 0.0),
        };
        let is_finite = [start.x, start.y, end.x, end.y, size].iter().all(|x| x.is_finite());
        if is_finite && size > 0.0 && !text.is_empty() {
            self.glyphs.push(Glyph {
                text,
                start: [start.x, start.y],
                end: [end.x, end.y],
                size,
            });
        }
    }
}

/// The letters of a character: ligatures are taken apart, spaces are one kind, and what has no meaning is left out.
fn spell(c: char, text: &mut String) {
    match c {
        '\u{fb00}' => text.push_str("ff"),
        '\u{fb01}' => text.push_str("fi"),
        '\u{fb02}' => text.push_str("fl"),
        '\u{fb03}' => text.push_str("ffi"),
        '\u{fb04}' => text.push_str("ffl"),
        '\u{fb05}' | '\u{fb06}' => text.push_str("st"),
        // What a line may end with, and is a letter of no word.
        '\u{ad}' => text.push('-'),
        c if c.is_whitespace() => text.push(' '),
        // Zero-width signs, and places where fonts keep what has no name.
        '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' | '\u{fffd}' | '\u{e000}'..='\u{f8ff}' => {}
        c if c.is_control() => {}
        c => text.push(c),
    }
}

impl<'a> Device<'a> for Collector {
    fn draw_glyph_run(&mut self, run: &GlyphRun<'_, 'a>, props: DrawProps<'a>, mode: &DrawMode) {
        // Text that is drawn and stroked comes twice; text that nobody sees is that of a scanned page.
        if matches!(mode, DrawMode::Stroke(_)) && self.ends_with(run, &props) {
            return;
        }
        let is_vertical = run.writing_mode() == WritingMode::Vertical;
        for glyph in run.glyphs() {
            self.take(glyph, props.transform, is_vertical);
        }
    }

    fn draw_path(&mut self, _: &BezPath, _: DrawProps<'a>, _: &DrawMode) {}
    fn push_clip_path(&mut self, _: &ClipPath) {}
    fn push_transparency_group(&mut self, _: f32, _: Option<SoftMask<'a>>, _: BlendMode) {}
    fn draw_image(&mut self, _: Image<'a, '_>, _: ImageDrawProps<'a>) {}
    fn pop_clip(&mut self) {}
    fn pop_transparency_group(&mut self) {}
}

impl Collector {
    /// Whether the glyphs before are those of this run.
    fn ends_with(&self, run: &GlyphRun<'_, '_>, props: &DrawProps<'_>) -> bool {
        let (Some(last), Some(drawn)) = (self.glyphs.last(), run.glyphs().last()) else {
            return false;
        };
        let start = props.transform * drawn.transform() * Point::ZERO;
        (start.x - last.start[0]).abs() < 0.01 && (start.y - last.start[1]).abs() < 0.01
    }
}
