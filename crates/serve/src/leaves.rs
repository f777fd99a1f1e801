//! Clients that leave.

use cactus_engine::CancelToken;

/// Stops what is computed for a client when it is dropped, as whatever waits for a request is when its client leaves.
pub(crate) struct Leaves(pub(crate) CancelToken);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
