//! Samples that can be read more than once.

use crate::Error;

/// Samples that are handed out at once, so that memory does not grow with what is there.
const PART_SAMPLES: usize = 4096;

/// Mono samples, from -1 to 1, that are read in parts and can be read again from the beginning: what is computed over all of a
/// recording needs a reading of its own where the recording is too long to be kept.
pub trait Sound {
    /// Goes back to the beginning.
    ///
    /// # Errors
    /// Those of opening it.
    fn rewind(&mut self) -> Result<(), Error>;

    /// Appends the next samples to `out`; there may be none. `false` once the end has been appended.
    ///
    /// # Errors
    /// Those of reading it.
    fn read(&mut self, out: &mut Vec<f32>) -> Result<bool, Error>;
}

/// Samples in memory, borrowed or owned.
#[derive(Debug, Clone)]
pub struct Samples<S> {
    all: S,
    at: usize,
}

impl<S: AsRef<[f32]>> Samples<S> {
    /// All of `all`, from its beginning.
    pub fn new(all: S) -> Self {
        Self { all, at: 0 }
    }

    /// All of them.
    pub fn all(&self) -> &[f32] {
        self.all.as_ref()
    }
}

impl<S: AsRef<[f32]>> Sound for Samples<S> {
    fn rewind(&mut self) -> Result<(), Error> {
        self.at = 0;
        Ok(())
    }

    fn read(&mut self, out: &mut Vec<f32>) -> Result<bool, Error> {
        let rest = &self.all.as_ref()[self.at..];
        let part = &rest[..rest.len().min(PART_SAMPLES)];
        out.extend_from_slice(part);
        self.at += part.len();
        Ok(part.len() < rest.len())
    }
}
