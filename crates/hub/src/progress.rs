//! How a fetch tells its caller what it is doing. This crate never prints.

/// One step of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Another process is fetching the same model; this one waits for it.
    Waiting {
        /// The model.
        id: &'a str,
    },
    /// The fetch begins, or resumes.
    Begin {
        /// The model.
        id: &'a str,
        /// Bytes that the whole fetch transfers, counting those already here.
        total_bytes: u64,
        /// Bytes already here from an interrupted fetch.
        resumed_bytes: u64,
    },
    /// The next file or package begins.
    File {
        /// Its name.
        name: &'a str,
        /// Its number, from 1.
        number: usize,
        /// How many there are.
        count: usize,
    },
    /// Bytes of the whole fetch that are here by now. Never decreases, except when a damaged file starts over.
    Bytes {
        /// Bytes here.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// A file is being unpacked, joined or checked against its digest.
    Verify {
        /// Its name.
        name: &'a str,
    },
    /// The model is in the cache, whole.
    Done {
        /// The model.
        id: &'a str,
    },
}

/// Receives the events of a fetch, and may stop it.
///
/// Implemented for closures that take an [`Event`], and by [`Silent`].
pub trait Progress {
    /// Called for every event, on the thread that fetches, at most about ten times a second for [`Event::Bytes`].
    fn event(&mut self, event: Event<'_>);

    /// Asked often; `true` makes the fetch stop with [`crate::Error::Cancelled`]. What has arrived is kept.
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl<F: FnMut(Event<'_>)> Progress for F {
    fn event(&mut self, event: Event<'_>) {
        self(event);
    }
}

/// A [`Progress`] that ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn event(&mut self, _event: Event<'_>) {}
}
