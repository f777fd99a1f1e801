//! Pictures or sounds that were encoded lately.

use cactus_engine::MediaDigest;
use cactus_engine::chat::Shown;

/// Most bytes of rows that are kept.
const MOST_BYTES: usize = 64 << 20;

/// The last ones, the latest last, and what is known of each.
#[derive(Debug)]
pub(crate) struct Cache<T> {
    entries: Vec<(MediaDigest, Shown, T)>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Cache { entries: Vec::new() }
    }
}

impl<T: Clone> Cache<T> {
    pub(crate) fn get(&mut self, digest: &MediaDigest) -> Option<(Shown, T)> {
        let at = self.entries.iter().position(|(known, ..)| known == digest)?;
        let entry = self.entries.remove(at);
        let found = (entry.1.clone(), entry.2.clone());
        self.entries.push(entry);
        Some(found)
    }

    pub(crate) fn put(&mut self, digest: MediaDigest, shown: Shown, about: T) {
        self.entries.retain(|(known, ..)| *known != digest);
        self.entries.push((digest, shown, about));
        let bytes =
            |entries: &[(MediaDigest, Shown, T)]| entries.iter().map(|(_, s, _)| s.media.bytes()).sum::<usize>();
        while self.entries.len() > 1 && bytes(&self.entries) > MOST_BYTES {
            self.entries.remove(0);
        }
    }
}
