//! The best of many candidates: by score, equal ones by id, so that the order is the same however they come.

use crate::document::IdRef;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A document with a score. What is less is better.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) score: f32,
    pub(crate) id: IdRef<'a>,
    pub(crate) part: usize,
    pub(crate) row: usize,
}

impl Ord for Candidate<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then_with(|| self.id.cmp(&other.id))
    }
}

impl PartialOrd for Candidate<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate<'_> {}

/// Keeps the best `k`.
#[derive(Debug)]
pub(crate) struct Top<'a> {
    k: usize,
    heap: BinaryHeap<Candidate<'a>>,
}

impl<'a> Top<'a> {
    pub(crate) fn new(k: usize) -> Top<'a> {
        Top {
            k,
            heap: BinaryHeap::new(),
        }
    }

    /// What is below this has no place any more.
    #[inline]
    pub(crate) fn threshold(&self) -> f32 {
        match self.heap.peek() {
            Some(worst) if self.heap.len() >= self.k => worst.score,
            _ => f32::NEG_INFINITY,
        }
    }

    pub(crate) fn offer(&mut self, candidate: Candidate<'a>) {
        if self.heap.len() < self.k {
            self.heap.push(candidate);
        } else if let Some(mut worst) = self.heap.peek_mut()
            && candidate < *worst
        {
            *worst = candidate;
        }
    }

    /// The best first.
    pub(crate) fn into_sorted(self) -> Vec<Candidate<'a>> {
        self.heap.into_sorted_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_keeps_the_best_and_orders_equal_ones_by_id() {
        let candidate = |score, id| Candidate {
            score,
            id: IdRef::Number(id),
            part: 0,
            row: 0,
        };
        let all = [
            (1.0, 5),
            (2.0, 9),
            (2.0, 3),
            (-1.0, 1),
            (2.0, 4),
            (f32::NEG_INFINITY, 0),
        ];
        for k in 0..8 {
            let mut top = Top::new(k);
            all.iter().for_each(|(score, id)| top.offer(candidate(*score, *id)));
            let found: Vec<IdRef<'_>> = top.into_sorted().into_iter().map(|c| c.id).collect();
            let expected = [3, 4, 9, 5, 1, 0].map(IdRef::Number);
            assert_eq!(found, expected[..k.min(6)], "{k}");
        }
    }
}
