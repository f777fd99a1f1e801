//! The memory plan: buffers with lifetimes become offsets in one arena.
//!
//! Greedy by size (Pisarchyk and Lee 2020): the largest buffer first, each at the lowest offset where no buffer that is
//! alive at the same time lies.

/// Alignment of every buffer, in bytes.
const ALIGN_BYTES: usize = 64;

/// A buffer asked for: its size and the first and last step that touches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) bytes: usize,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// Offsets in the order of the requests, and the size of the arena.
pub(crate) fn plan(requests: &[Request]) -> (Vec<usize>, usize) {
    let mut by_size: Vec<usize> = (0..requests.len()).collect();
    by_size.sort_by_key(|&i| (std::cmp::Reverse(requests[i].bytes), i));
    let mut offsets = vec![0usize; requests.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut total = 0;
    for i in by_size {
        let r = &requests[i];
        let bytes = r.bytes.next_multiple_of(ALIGN_BYTES);
        let mut busy: Vec<(usize, usize)> = placed
            .iter()
            .filter(|&&j| requests[j].first <= r.last && r.first <= requests[j].last)
            .map(|&j| (offsets[j], offsets[j] + requests[j].bytes.next_multiple_of(ALIGN_BYTES)))
            .collect();
        busy.sort_unstable();
        let mut at = 0;
        for (start, end) in busy {
            if start >= at + bytes {
                break;
            }
            at = at.max(end);
        }
        offsets[i] = at;
        total = total.max(at + bytes);
        placed.push(i);
    }
    (offsets, total)
}

/// Where the memory of a program goes, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MemoryReport {
    /// Tensor files mapped from the bundle; these pages belong to the page cache.
    pub mapped_bytes: usize,
    /// The arena of activations.
    pub arena_bytes: usize,
    /// What the arena's buffers would take without sharing.
    pub buffers_bytes: usize,
    /// States at the full context.
    pub state_bytes: usize,
    /// Logits of one position.
    pub logits_bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: usize, first: usize, last: usize) -> Request {
        Request { bytes, first, last }
    }

    #[test]
    fn buffers_alive_together_never_overlap() {
        // A fixed linear congruential sequence gives varied sizes and lifetimes.
        let mut seed = 12345u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((seed >> 33) % n) as usize
        };
        let requests: Vec<Request> = (0..200)
            .map(|_| {
                let first = next(100);
                request(1 + next(5000), first, first + next(20))
            })
            .collect();
        let (offsets, total) = plan(&requests);
        for i in 0..requests.len() {
            assert!(offsets[i].is_multiple_of(ALIGN_BYTES));
            assert!(offsets[i] + requests[i].bytes <= total);
            for j in 0..i {
                let (a, b) = (&requests[i], &requests[j]);
                let together = a.first <= b.last && b.first <= a.last;
                let apart = offsets[i] + a.bytes <= offsets[j] || offsets[j] + b.bytes <= offsets[i];
                assert!(!together || apart, "{i} and {j}");
            }
        }
        let sum: usize = requests.iter().map(|r| r.bytes).sum();
        assert!(total < sum / 2, "{total} of {sum}");
    }

    #[test]
    fn disjoint_lifetimes_share_memory() {
        let (offsets, total) = plan(&[request(100, 0, 1), request(100, 2, 3)]);
        assert_eq!(offsets, [0, 0]);
        assert_eq!(total, 128);
    }
}
