//! Files as one channel at one rate.

use super::reader::{Limits, Reader};
use crate::{Error, Resampler};
use std::io::{Read, Seek};

/// A file as mono samples at a rate of the caller's choice.
#[derive(Debug)]
pub struct Mono {
    reader: Reader,
    resampler: Resampler,
    mixed: Vec<f32>,
    done: bool,
}

impl Mono {
    /// Mixes the channels of `reader` by their mean and resamples to `rate_hz`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidHeader`] where `rate_hz` cannot be made of the file's rate.
    pub fn new(reader: Reader, rate_hz: u32) -> Result<Self, Error> {
        let resampler = Resampler::new(reader.info().sample_rate_hz, rate_hz)?;
        Ok(Self {
            reader,
            resampler,
            mixed: Vec::new(),
            done: false,
        })
    }

    /// The same rate of another file, with what is kept for it.
    pub(super) fn restart(&mut self, reader: Reader) -> Result<(), Error> {
        let (from, to) = (reader.info().sample_rate_hz, self.resampler.to_hz());
        match from == self.resampler.from_hz() {
            true => self.resampler.reset(),
            false => self.resampler = Resampler::new(from, to)?,
        }
        (self.reader, self.done) = (reader, false);
        Ok(())
    }

    /// Samples a second.
    pub(super) fn rate_hz(&self) -> u32 {
        self.resampler.to_hz()
    }

    /// The file.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Appends the samples of the next block to `out`; there may be none. `false` once the end has been appended.
    ///
    /// # Errors
    /// As [`Reader::next_block`].
    pub fn read(&mut self, out: &mut Vec<f32>) -> Result<bool, Error> {
        if self.done {
            return Ok(false);
        }
        match self.reader.next_block()? {
            Some(block) => {
                self.mixed.clear();
                block.mix_into(&mut self.mixed);
                self.resampler.push(&self.mixed, out);
                Ok(true)
            }
            None => {
                self.resampler.finish(out);
                self.done = true;
                Ok(false)
            }
        }
    }
}

/// A whole file as mono samples at `rate_hz`. Memory is that of the samples: 230 MB for an hour at 16 kHz.
///
/// # Errors
/// As [`Reader::new`] and [`Reader::next_block`].
pub fn load(source: impl Read + Seek + Send + Sync + 'static, rate_hz: u32, limits: Limits) -> Result<Vec<f32>, Error> {
    let mut mono = Mono::new(Reader::new(source, limits)?, rate_hz)?;
    let mut samples = Vec::new();
    while mono.read(&mut samples)? {}
    Ok(samples)
}
