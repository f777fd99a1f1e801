//! A file that is read from its beginning more than once.

use super::mono::Mono;
use super::reader::{Info, Limits, Reader};
use crate::{Error, ErrorKind, Sound};
use std::path::Path;

/// By how much a stated length may be wrong, in seconds.
const STATED_ERROR_S: f64 = 0.1;

/// A file as mono samples at a rate of the caller's choice. Each reading decodes it anew, in memory that does not depend on its length.
pub struct Recording {
    open: Box<dyn FnMut() -> Result<Reader, Error> + Send>,
    mono: Mono,
    /// Samples of this reading so far.
    taken: u64,
    is_begun: bool,
    is_whole: bool,
    damage: Option<String>,
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording")
            .field("mono", &self.mono)
            .finish_non_exhaustive()
    }
}

impl Recording {
    /// The file that `open` opens, at `rate_hz`.
    ///
    /// # Errors
    /// Those of `open`; as [`Mono::new`].
    pub fn new(mut open: impl FnMut() -> Result<Reader, Error> + Send + 'static, rate_hz: u32) -> Result<Self, Error> {
        Ok(Self {
            mono: Mono::new(open()?, rate_hz)?,
            open: Box::new(open),
            taken: 0,
            is_begun: false,
            is_whole: false,
            damage: None,
        })
    }

    /// The file at `path`.
    ///
    /// # Errors
    /// As [`Reader::open`] and [`Mono::new`].
    pub fn open(path: &Path, rate_hz: u32, limits: Limits) -> Result<Self, Error> {
        let path = path.to_owned();
        Self::new(move || Reader::open(&path, limits), rate_hz)
    }

    /// A file that is in memory. Clones of `bytes` should share them.
    ///
    /// # Errors
    /// As [`Reader::from_bytes`] and [`Mono::new`].
    pub fn from_bytes(
        bytes: impl AsRef<[u8]> + Clone + Send + Sync + 'static,
        rate_hz: u32,
        limits: Limits,
    ) -> Result<Self, Error> {
        Self::new(move || Reader::from_bytes(bytes.clone(), limits), rate_hz)
    }

    /// The same file, for which it is an error ([`ErrorKind::Damaged`]) to end before the length that it states: a part of it got lost.
    #[must_use]
    pub fn whole(mut self) -> Self {
        self.is_whole = true;
        self
    }

    /// What its headers say.
    #[must_use]
    pub fn info(&self) -> &Info {
        self.mono.reader().info()
    }

    /// What is wrong with a file that was read to its end all the same, in words. It is known once that was reached.
    #[must_use]
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    fn found_damage(&self) -> Option<String> {
        let early = self.ends_early();
        let packets = match self.mono.reader().damaged_packets() {
            0 => None,
            1 => Some("a part of the file is damaged, and silent here".to_owned()),
            n => Some(format!("{n} parts of the file are damaged, and silent here")),
        };
        match (early, packets) {
            (Some(early), Some(packets)) => Some(format!("{early}; {packets}")),
            (early, packets) => early.or(packets),
        }
    }

    fn ends_early(&self) -> Option<String> {
        let reader = self.mono.reader();
        let info = reader.info();
        let found = self.taken as f64 / f64::from(self.mono.rate_hz());
        match info.frames.map(|frames| frames as f64 / f64::from(info.sample_rate_hz)) {
            _ if !reader.is_truncated() => None,
            Some(stated) if found < stated - STATED_ERROR_S => Some(format!(
                "the file ends early: it states {stated:.2} s and has {found:.2} s"
            )),
            Some(_) => None,
            None => Some(format!("the file ends in the midst of something, after {found:.2} s")),
        }
    }

    fn check_end(&self) -> Result<(), Error> {
        match self.ends_early() {
            Some(message) if self.is_whole && self.mono.reader().info().frames.is_some() => {
                Err(Error::new(ErrorKind::Damaged, message))
            }
            _ => Ok(()),
        }
    }
}

impl Sound for Recording {
    fn rewind(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.is_begun) {
            self.mono.restart((self.open)()?)?;
            self.taken = 0;
        }
        Ok(())
    }

    fn read(&mut self, out: &mut Vec<f32>) -> Result<bool, Error> {
        self.is_begun = true;
        let before = out.len();
        let more = self.mono.read(out)?;
        self.taken += (out.len() - before) as u64;
        if !more {
            self.damage = self.found_damage();
            self.check_end()?;
        }
        Ok(more)
    }
}
