//! Pictures that were encoded lately.

use cactus_engine::MediaDigest;
use cactus_engine::chat::Shown;
use cactus_vision::Plan;

/// Most bytes of rows that are kept.
const MOST_BYTES: usize = 64 << 20;

/// The last pictures, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    entries: Vec<(MediaDigest, Shown, Plan)>,
}

impl Cache {
    pub(crate) fn get(&mut self, digest: &MediaDigest) -> Option<(Shown, Plan)> {
        let at = self.entries.iter().position(|(known, ..)| known == digest)?;
        let entry = self.entries.remove(at);
        let found = (entry.1.clone(), entry.2.clone());
        self.entries.push(entry);
        Some(found)
    }

    pub(crate) fn put(&mut self, digest: MediaDigest, shown: Shown, plan: Plan) {
        self.entries.retain(|(known, ..)| *known != digest);
        self.entries.push((digest, shown, plan));
        let bytes =
            |entries: &[(MediaDigest, Shown, Plan)]| entries.iter().map(|(_, s, _)| s.media.bytes()).sum::<usize>();
        while self.entries.len() > 1 && bytes(&self.entries) > MOST_BYTES {
            self.entries.remove(0);
        }
    }
}
