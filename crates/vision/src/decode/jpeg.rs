//! JPEG: baseline and progressive, gray, color and inks.
//!
//! The library below is told to bear what other decoders bear, and then it bears a file cut short as well: the rest is gray. So the end of
//! the file is looked for first, by its markers alone.

use super::colors::{Samples, rgb};
use super::{Alpha, Opened, damaged, unsupported};
use crate::Error;
use std::io::Cursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

pub(super) struct Jpeg<'a> {
    decoder: JpegDecoder<Cursor<&'a [u8]>>,
    marks: Marks,
}

/// What the markers tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Marks {
    /// Adobe's, whose inks are stored as amounts left white.
    adobe: bool,
    /// The end of the picture was found.
    complete: bool,
}

impl<'a> Jpeg<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        // Sides are compared by the caller, before pixels; the library's own limits are those of the format.
        let options = DecoderOptions::new_safe()
            .set_strict_mode(false)
            .set_max_width(usize::from(u16::MAX))
            .set_max_height(usize::from(u16::MAX))
            .jpeg_set_out_colorspace(ColorSpace::RGB);
        let mut decoder = JpegDecoder::new_with_options(Cursor::new(bytes), options);
        decoder.decode_headers().map_err(error)?;
        Ok(Self {
            decoder,
            marks: Marks::of(bytes),
        })
    }
}

impl Opened for Jpeg<'_> {
    fn sides(&self) -> (u32, u32) {
        // A JPEG's sides have 16 bits.
        self.decoder.dimensions().map_or((0, 0), |(w, h)| (w as u32, h as u32))
    }

    fn exif(&self) -> Option<&[u8]> {
        self.decoder.exif().map(Vec::as_slice)
    }

    fn pixels(mut self: Box<Self>, alpha: Alpha) -> Result<Vec<u8>, Error> {
        if !self.marks.complete {
            return Err(damaged("the JPEG is cut short: its end marker is missing"));
        }
        let stored = self.decoder.input_colorspace();
        let (out, samples) = match stored {
            Some(ColorSpace::YCbCr | ColorSpace::RGB | ColorSpace::YCCK) => (ColorSpace::RGB, Samples::Rgb),
            Some(ColorSpace::Luma) => (ColorSpace::Luma, Samples::Gray),
            Some(ColorSpace::CMYK) if self.marks.adobe => (ColorSpace::CMYK, Samples::InverseCmyk),
            Some(ColorSpace::CMYK) => (ColorSpace::CMYK, Samples::Cmyk),
            other => {
                return Err(unsupported(format!(
                    "the JPEG's colors are {other:?}; expected gray, color or four inks; save it as RGB"
                )));
            }
        };
        let options = self.decoder.options().jpeg_set_out_colorspace(out);
        self.decoder.set_options(options);
        let (width, height) = self.sides();
        let mut pixels = self.decoder.decode().map_err(error)?;
        let expected = width as usize * height as usize * out.num_components();
        if pixels.len() < expected {
            return Err(damaged(format!(
                "the JPEG gave {} samples; expected {expected}",
                pixels.len()
            )));
        }
        pixels.truncate(expected);
        Ok(rgb(pixels, samples, alpha))
    }
}

impl Marks {
    /// Walks the segments, and through the coded data between them, to the end of the picture.
    fn of(bytes: &[u8]) -> Self {
        let mut marks = Self::default();
        let mut at = 2;
        while let Some(offset) = bytes.get(at..).and_then(|rest| rest.iter().position(|&b| b == 0xff)) {
            at += offset + 1;
            match bytes.get(at) {
                // The end.
                Some(0xd9) => {
                    marks.complete = true;
                    break;
                }
                // A byte of data, a fill byte, a restart or another begin: nothing follows that belongs to it.
                Some(0x00 | 0xff | 0x01 | 0xd0..=0xd8) => {}
                Some(&marker) => {
                    let Some(length) = bytes.get(at + 1..at + 3) else { break };
                    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
                    marks.adobe |= marker == 0xee && bytes.get(at + 3..at + 8) == Some(b"Adobe");
                    at += 1 + length;
                }
                None => break,
            }
        }
        marks
    }
}

fn error(error: DecodeErrors) -> Error {
    match error {
        DecodeErrors::Unsupported(scheme) => unsupported(format!(
            "the JPEG is of a kind that is not decoded ({scheme:?}); save it again as a usual JPEG"
        )),
        other => damaged(format!("the JPEG cannot be decoded: {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_segments_and_data_tell_end_and_maker() {
        let begin = b"\xff\xd8";
        let adobe = b"\xff\xee\x00\x0eAdobe\0\x64\0\0\0\0\0";
        // A segment whose content looks like an end.
        let decoy = b"\xff\xe1\x00\x06\xff\xd9\xff\xd9";
        let scan = b"\xff\xda\x00\x02data\xff\x00data\xff\xd0data";
        let cases: &[(&[&[u8]], bool, bool)] = &[
            (&[begin, scan, b"\xff\xd9"], false, true),
            (&[begin, adobe, scan, b"\xff\xff\xd9"], true, true),
            (&[begin, decoy, scan], false, false),
            (&[begin, adobe], true, false),
            (&[begin, b"\xff\xe1"], false, false),
            (&[begin, b"\xff"], false, false),
        ];
        for (parts, adobe, complete) in cases {
            let (adobe, complete) = (*adobe, *complete);
            assert_eq!(Marks::of(&parts.concat()), Marks { adobe, complete }, "{parts:02x?}");
        }
    }
}
