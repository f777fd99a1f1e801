//! PNG: all colors and depths, interlaced or not. Of an animation, the picture that programs without animation show.

use super::colors::{Samples, rgb};
use super::{Alpha, Limits, Opened, check, damaged, decoder_bytes, unsupported};
use crate::{Error, ErrorKind};
use png::{ColorType, DecodingError, Transformations};
use std::io::Cursor;

pub(super) struct Png<'a> {
    reader: png::Reader<Cursor<&'a [u8]>>,
}

impl<'a> Png<'a> {
    pub(super) fn open(bytes: &'a [u8], limits: &Limits) -> Result<Self, Error> {
        let allowed = png::Limits {
            bytes: decoder_bytes(limits),
        };
        let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), allowed);
        decoder.set_ignore_text_chunk(true);
        decoder.set_ignore_iccp_chunk(true);
        decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
        // The sides are compared before anything is made room for.
        let info = decoder.read_header_info().map_err(error)?;
        check(info.width, info.height, limits)?;
        let reader = decoder.read_info().map_err(error)?;
        Ok(Self { reader })
    }
}

impl Opened for Png<'_> {
    fn sides(&self) -> (u32, u32) {
        self.reader.info().size()
    }

    fn exif(&self) -> Option<&[u8]> {
        self.reader.info().exif_metadata.as_deref()
    }

    fn pixels(mut self: Box<Self>, alpha: Alpha) -> Result<Vec<u8>, Error> {
        let (width, height) = self.sides();
        let (color, _) = self.reader.output_color_type();
        let samples = match color {
            ColorType::Grayscale => Samples::Gray,
            ColorType::GrayscaleAlpha => Samples::GrayAlpha,
            ColorType::Rgb => Samples::Rgb,
            ColorType::Rgba => Samples::Rgba,
            ColorType::Indexed => {
                return Err(unsupported(
                    "the PNG's palette was not resolved; save it without a palette",
                ));
            }
        };
        let size = self.reader.output_buffer_size().ok_or_else(|| {
            Error::new(
                ErrorKind::TooLarge,
                "the PNG's pixels cannot be counted on this machine",
            )
        })?;
        let mut pixels = vec![0; size];
        let frame = self.reader.next_frame(&mut pixels).map_err(error)?;
        if (frame.width, frame.height) != (width, height) {
            return Err(damaged(format!(
                "the PNG's first frame has {} x {} pixels; expected the picture's {width} x {height}",
                frame.width, frame.height
            )));
        }
        pixels.truncate(frame.buffer_size());
        Ok(rgb(pixels, samples, alpha))
    }
}

fn error(error: DecodingError) -> Error {
    match error {
        DecodingError::LimitsExceeded => Error::new(
            ErrorKind::TooLarge,
            "the PNG needs more memory than its limits allow; save it smaller or without metadata",
        ),
        other => damaged(format!("the PNG cannot be decoded: {other}")),
    }
}
