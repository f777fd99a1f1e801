//! What a file is, by its first bytes: so that an error can name what is not read here.

use super::Format;
use crate::{Error, ErrorKind};

const READ: &[(&[u8], Format)] = &[(b"\x89PNG\r\n\x1a\n", Format::Png), (b"\xff\xd8\xff", Format::Jpeg)];

/// Pictures that are not read: offset, bytes, name.
const NOT_READ: &[(usize, &[u8], &str)] = &[
    (0, b"GIF8", "a GIF picture"),
    (0, b"BM", "a BMP picture"),
    (0, b"II*\0", "a TIFF picture"),
    (0, b"MM\0*", "a TIFF picture"),
    (0, b"\xff\x0a", "a JPEG XL picture"),
    (0, b"\0\0\0\x0cJXL ", "a JPEG XL picture"),
    (0, b"\0\0\0\x0cjP  ", "a JPEG 2000 picture"),
    (0, b"8BPS", "a Photoshop file"),
    (0, b"qoif", "a QOI picture"),
    (0, b"%PDF", "a PDF document"),
    (0, b"<svg", "an SVG drawing"),
    (0, b"<?xml", "an XML file, perhaps an SVG drawing"),
];

/// Brands of ISO media files that hold pictures.
const BRANDS: &[(&[&[u8; 4]], &str)] = &[(HEIC_BRANDS, HEIC), (&[b"avif", b"avis"], "an AVIF picture")];
const HEIC_BRANDS: &[&[u8; 4]] = &[b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"];
const HEIC: &str = "a HEIC picture, as iPhones make them";

const EXPECTED: &str = "PNG, JPEG and WebP are read";

pub(super) fn format(bytes: &[u8]) -> Result<Format, Error> {
    if bytes.is_empty() {
        return Err(Error::new(
            ErrorKind::Empty,
            format!("the picture has no bytes; {EXPECTED}"),
        ));
    }
    if let Some((_, format)) = READ.iter().find(|(begin, _)| bytes.starts_with(begin)) {
        return Ok(*format);
    }
    let at = |offset: usize, count: usize| bytes.get(offset..offset + count);
    if bytes.starts_with(b"RIFF") && at(8, 4) == Some(b"WEBP") {
        return Ok(Format::WebP);
    }
    let other = NOT_READ
        .iter()
        .find(|(offset, begin, _)| at(*offset, begin.len()) == Some(begin))
        .map(|(_, _, name)| *name)
        .or_else(|| media(bytes));
    Err(match other {
        Some(name) => Error::new(
            ErrorKind::UnsupportedFormat,
            format!("this is {name}; {EXPECTED}; save it as JPEG or PNG"),
        ),
        None => {
            let shown: Vec<String> = bytes.iter().take(8).map(|b| format!("{b:02x}")).collect();
            Error::new(
                ErrorKind::UnknownFormat,
                format!(
                    "this is no picture that is known here: it begins with {}; {EXPECTED}",
                    shown.join(" ")
                ),
            )
        }
    })
}

/// Whether a file is a HEIC picture, by its first bytes: it is not read here, but a caller may know somebody who reads it.
#[must_use]
pub fn is_heic(bytes: &[u8]) -> bool {
    media(bytes) == Some(HEIC)
}

/// The name of an ISO media file, by its main brand.
fn media(bytes: &[u8]) -> Option<&'static str> {
    if bytes.get(4..8) != Some(b"ftyp") {
        return None;
    }
    let brand = bytes.get(8..12)?;
    Some(
        BRANDS
            .iter()
            .find(|(brands, _)| brands.iter().any(|known| &known[..] == brand))
            .map_or("a video or another ISO media file", |(_, name)| *name),
    )
}
