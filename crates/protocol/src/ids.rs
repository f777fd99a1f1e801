//! Ids of answers, items and calls.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// An id such as `chatcmpl-4fGh…`: the prefix and 24 letters and digits that nobody can guess. They come from a keyed hash
/// of a counter, whose key the system drew when the process began.
#[must_use]
pub fn new_id(prefix: &str) -> String {
    static KEYS: OnceLock<(RandomState, RandomState, RandomState)> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (a, b, c) = KEYS.get_or_init(Default::default);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut id = String::with_capacity(prefix.len() + 24);
    id.push_str(prefix);
    for mut bits in [a, b, c].map(|key| key.hash_one(count)) {
        for _ in 0..8 {
            id.push(char::from(LETTERS[(bits % 62) as usize]));
            bits /= 62;
        }
    }
    id
}
