//! Room for bodies under way: for their bytes, for what they become as JSON, and for fetching what they name. Whoever finds none waits a
//! little, and is told to come back then.
//!
//! Short bodies take no room: what a server's connections hold of them is little.

use crate::protocol::{ApiError, Kind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most values of a body of JSON. A value takes some 70 bytes of memory, and one with a name twice as much.
const MOST_VALUES: usize = 1 << 21;
/// Most values of all bodies of JSON.
const ALL_VALUES: usize = 1 << 22;
/// Most requests whose files are fetched at once.
const FETCHING: usize = 8;
/// Bytes that are counted together.
const UNIT_BYTES: usize = 1024;
/// Longest wait for room.
const WAIT: Duration = Duration::from_secs(10);
/// Longest wait for a place to fetch files.
const FETCH_WAIT: Duration = Duration::from_secs(30);

/// Room of a server. What holds a permit of it never waits for another of the same kind.
#[derive(Debug)]
pub(super) struct Room {
    all_bytes: usize,
    bytes: Arc<Semaphore>,
    values: Arc<Semaphore>,
    fetching: Arc<Semaphore>,
    /// Longest wait for bytes and values.
    wait: Duration,
}

impl Room {
    /// Room for so many bytes.
    pub(super) fn new(all_bytes: usize) -> Room {
        Room {
            all_bytes,
            bytes: Arc::new(Semaphore::new(units(all_bytes))),
            values: Arc::new(Semaphore::new(ALL_VALUES)),
            fetching: Arc::new(Semaphore::new(FETCHING)),
            wait: WAIT,
        }
    }

    /// Room for a body of `bytes`; for one that is larger than all room, all of it.
    ///
    /// # Errors
    /// [`Kind::Busy`].
    pub(super) async fn for_bytes(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let taken = taken(&self.bytes, units(bytes).min(units(self.all_bytes)), self.wait);
        taken.await.ok_or_else(|| {
            busy(format!(
                "bodies of other requests take the {} bytes that this server has for them; try again later",
                self.all_bytes
            ))
        })
    }

    /// Gives back what a body was announced with and does not have.
    pub(super) fn keep(held: &mut OwnedSemaphorePermit, bytes: usize) {
        let more = held.num_permits().saturating_sub(units(bytes));
        drop(held.split(more));
    }

    /// Room for so many values of JSON.
    ///
    /// # Errors
    /// [`Kind::TooLarge`]; [`Kind::Busy`].
    pub(super) async fn for_values(&self, values: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        if values > MOST_VALUES {
            let message = format!(
                "the body has about {values} values of JSON (numbers, texts, lists and objects), expected at most {MOST_VALUES}; send \
                 several requests with fewer each"
            );
            return Err(ApiError::new(Kind::TooLarge, message));
        }
        let taken = taken(&self.values, values, self.wait);
        taken.await.ok_or_else(|| {
            busy("bodies of other requests take all room that this server has for JSON; try again later".to_owned())
        })
    }

    /// A place for a request whose files are fetched.
    ///
    /// # Errors
    /// [`Kind::Busy`].
    pub(super) async fn for_fetching(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let taken = taken(&self.fetching, 1, FETCH_WAIT);
        taken.await.ok_or_else(|| {
            busy(format!(
                "the files of {FETCHING} requests are being fetched already; try again later"
            ))
        })
    }
}

/// What is taken for so many bytes.
fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES).clamp(1, u32::MAX as usize >> 1)
}

fn busy(message: String) -> ApiError {
    ApiError::new(Kind::Busy, message).with_retry_after(Duration::from_secs(5))
}

async fn taken(room: &Arc<Semaphore>, count: usize, longest: Duration) -> Option<OwnedSemaphorePermit> {
    let count = u32::try_from(count).ok()?;
    let taken = tokio::time::timeout(longest, Arc::clone(room).acquire_many_owned(count)).await;
    taken.ok()?.ok()
}

/// Values that JSON has at most, where one with a name counts twice: each follows a bracket, a comma or a colon outside of texts.
pub(super) fn values(json: &[u8]) -> usize {
    let mut count = 1;
    let mut rest = json.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b',' | b'[' | b'{' | b':' => count += 1,
            b'"' => loop {
                match rest.next() {
                    Some(b'\\') => drop(rest.next()),
                    Some(b'"') | None => break,
                    Some(_) => {}
                }
            },
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_texts() {
        for (json, expected) in [
            ("", 1),
            ("5", 1),
            ("[]", 2),
            ("[1,2,3]", 4),
            (r#""a,b[{:""#, 1),
            (r#"["\"",","]"#, 3),
            (r#"["\\",[]]"#, 4),
            (r#"{"a":1,"b":{"c,":[2]}}"#, 8),
            (r#"["unfinished,,,"#, 2),
            ("[\"\\", 2),
        ] {
            assert_eq!(values(json.as_bytes()), expected, "{json}");
        }
    }

    #[tokio::test]
    async fn room_that_is_taken_is_waited_for_and_then_refused() {
        let room = Room {
            wait: Duration::from_millis(10),
            ..Room::new(10 * UNIT_BYTES)
        };
        let most = room.for_bytes(9 * UNIT_BYTES).await.unwrap();
        let last = room.for_bytes(1).await.unwrap();
        let error = room.for_bytes(1).await.unwrap_err();
        assert_eq!(error.kind, Kind::Busy);
        assert!(
            error.retry_after.is_some() && error.message.contains("10240"),
            "{error}"
        );
        drop((most, last));
        let mut all = room.for_bytes(usize::MAX).await.unwrap();
        assert_eq!(room.for_bytes(1).await.unwrap_err().kind, Kind::Busy);
        Room::keep(&mut all, 2 * UNIT_BYTES);
        drop(room.for_bytes(8 * UNIT_BYTES).await.unwrap());
        assert_eq!(room.for_bytes(9 * UNIT_BYTES).await.unwrap_err().kind, Kind::Busy);
        drop(all);
        let _one = room.for_values(MOST_VALUES).await.unwrap();
        let _two = room.for_values(MOST_VALUES).await.unwrap();
        assert_eq!(room.for_values(1).await.unwrap_err().kind, Kind::Busy);
        assert_eq!(room.for_values(MOST_VALUES + 1).await.unwrap_err().kind, Kind::TooLarge);
    }
}
