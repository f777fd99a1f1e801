//! Responses that others continue, bounded: the oldest make room. They live as long as the server.

use super::guard::Tenant;
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes of all that is kept, as JSON.
const MAX_BYTES: usize = 64 << 20;

/// A response that is kept.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    /// As the client got it.
    pub(super) response: Value,
    /// The conversation with its answer, without instructions.
    pub(super) turns: Vec<Value>,
    tenant: Tenant,
    bytes: usize,
}

#[derive(Debug)]
pub(super) struct Store {
    most: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    kept: HashMap<String, Kept>,
    order: VecDeque<String>,
    bytes: usize,
}

impl Store {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            inner: Mutex::default(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn keep(&self, id: &str, tenant: Tenant, response: Value, turns: Vec<Value>) {
        let of_turns: usize = turns.iter().map(|turn| turn.to_string().len()).sum();
        let kept = Kept {
            bytes: response.to_string().len() + of_turns,
            response,
            turns,
            tenant,
        };
        let mut inner = self.inner();
        inner.bytes += kept.bytes;
        inner.kept.insert(id.to_owned(), kept);
        inner.order.push_back(id.to_owned());
        while inner.kept.len() > self.most || inner.bytes > MAX_BYTES {
            let Some(oldest) = inner.order.pop_front() else { break };
            if let Some(kept) = inner.kept.remove(&oldest) {
                inner.bytes -= kept.bytes;
            }
        }
    }

    /// A response of the same tenant.
    pub(super) fn get(&self, id: &str, tenant: Tenant) -> Option<Kept> {
        let inner = self.inner();
        inner.kept.get(id).filter(|kept| kept.tenant == tenant).cloned()
    }

    /// Forgets a response of the same tenant; whether it was there.
    pub(super) fn forget(&self, id: &str, tenant: Tenant) -> bool {
        let mut inner = self.inner();
        if inner.kept.get(id).is_none_or(|kept| kept.tenant != tenant) {
            return false;
        }
        if let Some(kept) = inner.kept.remove(id) {
            inner.bytes -= kept.bytes;
        }
        inner.order.retain(|other| other != id);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_their_tenants_own_and_the_oldest_make_room() {
        let store = Store::new(2);
        let (one, two) = (Tenant(1), Tenant(2));
        for id in ["a", "b", "c"] {
            store.keep(id, one, Value::from(id), Vec::new());
        }
        assert!(store.get("a", one).is_none());
        assert_eq!(store.get("b", one).unwrap().response, "b");
        assert!(store.get("b", two).is_none() && !store.forget("b", two));
        assert!(store.forget("b", one) && !store.forget("b", one));
        store.keep("huge", one, Value::from("x".repeat(MAX_BYTES)), Vec::new());
        assert!(
            store.get("huge", one).is_none(),
            "more than everything together may take"
        );
    }
}
