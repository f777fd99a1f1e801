//! WebP with and without loss, and with alpha. Of an animation, the first frame.
//!
//! The library below makes room for a lossy frame by the frame's own header, which may say more than the file's: so those are compared
//! first.

use super::colors::{Samples, rgb};
use super::{Alpha, Limits, Opened, check, damaged, decoder_bytes};
use crate::{Error, ErrorKind};
use image_webp::{DecodingError, WebPDecoder};
use std::io::Cursor;

pub(super) struct WebP<'a> {
    decoder: WebPDecoder<Cursor<&'a [u8]>>,
    exif: Option<Vec<u8>>,
}

impl<'a> WebP<'a> {
    pub(super) fn open(bytes: &'a [u8], limits: &Limits) -> Result<Self, Error> {
        let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(error)?;
        decoder.set_memory_limit(decoder_bytes(limits));
        // Metadata that cannot be read says nothing.
        let exif = decoder.exif_metadata().unwrap_or(None);
        let (width, height) = decoder.dimensions();
        check(width, height, limits)?;
        frames(bytes.get(12..).unwrap_or_default(), width, height, true)?;
        Ok(Self { decoder, exif })
    }
}

/// Refuses lossy frames that are larger than the picture.
fn frames(mut chunks: &[u8], width: u32, height: u32, outermost: bool) -> Result<(), Error> {
    while let (Some(name), Some(length)) = (chunks.get(..4), chunks.get(4..8)) {
        let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let data = &chunks[8..][..length.min(chunks.len() - 8)];
        match name {
            // The header of a key frame: 3 bytes, 3 of a start code, and 14 bits of each side.
            b"VP8 " => {
                let side = |at: usize| {
                    data.get(at..at + 2)
                        .map_or(0, |b| u32::from(u16::from_le_bytes([b[0], b[1]]) & 0x3fff))
                };
                let (frame_width, frame_height) = (side(6), side(8));
                if frame_width > width || frame_height > height {
                    return Err(damaged(format!(
                        "a frame of the WebP has {frame_width} x {frame_height} pixels, and the picture {width} x {height}"
                    )));
                }
            }
            // A frame of an animation has 16 bytes of its own, and chunks.
            b"ANMF" if outermost => frames(data.get(16..).unwrap_or_default(), width, height, false)?,
            _ => {}
        }
        let next = length.saturating_add(8 + length % 2);
        chunks = chunks.get(next..).unwrap_or_default();
    }
    Ok(())
}

impl Opened for WebP<'_> {
    fn sides(&self) -> (u32, u32) {
        self.decoder.dimensions()
    }

    fn exif(&self) -> Option<&[u8]> {
        self.exif.as_deref()
    }

    fn pixels(mut self: Box<Self>, alpha: Alpha) -> Result<Vec<u8>, Error> {
        let samples = if self.decoder.has_alpha() {
            Samples::Rgba
        } else {
            Samples::Rgb
        };
        let size = self.decoder.output_buffer_size().ok_or_else(|| {
            Error::new(
                ErrorKind::TooLarge,
                "the WebP's pixels cannot be counted on this machine",
            )
        })?;
        let mut pixels = vec![0; size];
        self.decoder.read_image(&mut pixels).map_err(error)?;
        Ok(rgb(pixels, samples, alpha))
    }
}

fn error(error: DecodingError) -> Error {
    match error {
        DecodingError::MemoryLimitExceeded | DecodingError::ImageTooLarge => Error::new(
            ErrorKind::TooLarge,
            "the WebP needs more memory than its limits allow; save it smaller or without metadata",
        ),
        other => damaged(format!("the WebP cannot be decoded: {other}")),
    }
}
