//! Picture files to pixels.
//!
//! Purpose: PNG, JPEG and WebP from bytes, the first frame of an animation, turned upright as EXIF says, as 8-bit RGB. Sides and bytes
//! are compared with [`Limits`] before any pixel is decoded, so a small file that claims to be large costs nothing.
//!
//! | file | becomes |
//! |---|---|
//! | 1, 2, 4 bits of gray | that gray, spread over 0..255 |
//! | 16 bits a channel | the upper 8 |
//! | gray | the same value thrice |
//! | palette | its colors |
//! | CMYK, YCCK | `c k / 255`, `m k / 255`, `y k / 255` of the inks left white |
//! | alpha, or a transparent color | as [`Alpha`] says |
//!
//! Color profiles and gamma are ignored, as by the reference implementations. It deliberately reads no other kind of picture: HEIC needs
//! a decoder in another language, and the rest is rare. They are named in the error.

mod colors;
mod exif;
mod guard;
mod jpeg;
mod png_file;
mod sniff;

pub use sniff::is_heic;
mod webp;

use crate::{Error, ErrorKind, Picture};
use exif::Orientation;
use serde::{Deserialize, Serialize};

/// What becomes of transparency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Alpha {
    /// The picture lies on white.
    #[default]
    White,
    /// It is left out: the colors are what the file has under it.
    Drop,
}

/// What a file may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file.
    pub max_bytes: usize,
    /// Pixels of the picture.
    pub max_pixels: u64,
    /// Pixels of a side.
    pub max_side: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 32 << 20,
            max_pixels: 64 << 20,
            max_side: 16_384,
        }
    }
}

/// The kinds of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Portable Network Graphics.
    Png,
    /// JPEG, baseline or progressive.
    Jpeg,
    /// WebP, with or without loss.
    WebP,
}

/// What a file says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of file.
    pub format: Format,
    /// Width in pixels, upright.
    pub width: u32,
    /// Height in pixels, upright.
    pub height: u32,
}

/// A decoder of one kind whose header was read.
trait Opened {
    /// Sides as stored.
    fn sides(&self) -> (u32, u32);
    /// The EXIF block, if there is one.
    fn exif(&self) -> Option<&[u8]>;
    /// Pixels as stored.
    fn pixels(self: Box<Self>, alpha: Alpha) -> Result<Vec<u8>, Error>;
}

fn open<'a>(bytes: &'a [u8], limits: &Limits) -> Result<(Format, Box<dyn Opened + 'a>), Error> {
    if bytes.len() > limits.max_bytes {
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!(
                "the picture has {} bytes, and at most {} are allowed; save it smaller",
                bytes.len(),
                limits.max_bytes
            ),
        ));
    }
    let format = sniff::format(bytes)?;
    let opened: Box<dyn Opened> = guard::guarded("header", || {
        Ok::<Box<dyn Opened>, Error>(match format {
            Format::Png => Box::new(png_file::Png::open(bytes, limits)?),
            Format::Jpeg => Box::new(jpeg::Jpeg::open(bytes)?),
            Format::WebP => Box::new(webp::WebP::open(bytes, limits)?),
        })
    })??;
    let (width, height) = opened.sides();
    check(width, height, limits)?;
    Ok((format, opened))
}

/// Sides beside the limits.
fn check(width: u32, height: u32, limits: &Limits) -> Result<(), Error> {
    if width == 0 || height == 0 {
        return Err(damaged(format!(
            "the header says {width} x {height} pixels; expected at least 1 x 1"
        )));
    }
    if width.max(height) > limits.max_side || u64::from(width) * u64::from(height) > limits.max_pixels {
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!(
                "the picture has {width} x {height} pixels, and at most {} in all and {} a side are allowed; make it smaller",
                limits.max_pixels, limits.max_side
            ),
        ));
    }
    Ok(())
}

/// Reads the beginning of a file: what it is and how large, without a pixel.
///
/// # Errors
/// [`ErrorKind::UnknownFormat`], [`ErrorKind::UnsupportedFormat`], [`ErrorKind::TooLarge`] and [`ErrorKind::Damaged`].
pub fn header(bytes: &[u8], limits: &Limits) -> Result<Header, Error> {
    let (format, opened) = open(bytes, limits)?;
    let (width, height) = opened.sides();
    let (width, height) = orientation(&*opened).sides(width, height);
    Ok(Header { format, width, height })
}

/// The picture of a file, upright.
///
/// # Errors
/// As [`header`].
pub fn decode(bytes: &[u8], limits: &Limits, alpha: Alpha) -> Result<Picture, Error> {
    let (_, opened) = open(bytes, limits)?;
    let (width, height) = opened.sides();
    let orientation = orientation(&*opened);
    let rgb = guard::guarded("pixels", || opened.pixels(alpha))??;
    orientation.apply(&Picture::new(width, height, rgb)?)
}

fn orientation(opened: &dyn Opened) -> Orientation {
    opened.exif().map_or(Orientation::Upright, Orientation::of)
}

fn damaged(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Damaged, message)
}

fn unsupported(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::UnsupportedFormat, message)
}

/// Most bytes that a decoder may take for its own work: those of 16-bit pixels with alpha, and some for tables and metadata.
fn decoder_bytes(limits: &Limits) -> usize {
    usize::try_from(limits.max_pixels.saturating_mul(8))
        .unwrap_or(usize::MAX)
        .saturating_add(limits.max_bytes)
        .saturating_add(1 << 20)
}
