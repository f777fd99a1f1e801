//! Attention within texts that stand one after the other: each is computed as it is alone, so that its bits do not depend on the
//! others, and no score between two texts is computed.

use super::{DenseAttention, ScoreOperands};
use crate::exec::{Exec, SharedMut};
use crate::parts::part_range;
use cactus_base::Step;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most queries of a text in a task, where there are few texts.
const TASK_QUERIES: usize = 96;

impl Exec<'_> {
    /// Bytes of scratch memory for [`Exec::attend_texts`], whatever the lengths are.
    #[must_use]
    pub fn attend_texts_scratch_bytes(&self, a: &DenseAttention) -> usize {
        if a.is_empty() {
            return 0;
        }
        // Each thread has that of the longest text.
        self.step.width() * a.part_elems().iter().sum::<usize>() * 4
    }

    /// `out [1, queries, heads, width]`: as [`Exec::attend_dense`] of each text alone. `a` describes all of them as one sequence;
    /// `lengths` are those of the texts, in order. A bias is not taken.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn attend_texts(
        &self,
        a: &DenseAttention,
        lengths: &[usize],
        [q, k, v]: [&[f32]; 3],
        more: ScoreOperands<'_>,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (of_query, of_key) = (a.heads * a.width, a.kv_heads * a.width);
        assert!(
            a.batch == 1
                && !a.integers
                && a.queries == a.keys
                && lengths.iter().sum::<usize>() == a.queries
                && q.len() == a.queries * of_query
                && out.len() == q.len()
                && k.len() == a.keys * of_key
                && v.len() == k.len()
                && (a.kv_heads == 0 || a.heads.is_multiple_of(a.kv_heads))
                && a.sinks == more.sinks.is_some()
                && more.bias.is_none()
                && [more.sinks, more.slopes].iter().flatten().all(|x| x.len() == a.heads),
            "attend_texts: lengths"
        );
        if a.is_empty() {
            return out.fill(0.0);
        }
        let threads = self.step.width();
        let few = lengths.len() * a.kv_heads < 4 * threads;
        // Where each task's text begins, the task, and how many there are of the text.
        let mut tasks: Vec<([usize; 2], usize, usize)> = Vec::new();
        let mut first = 0;
        for &len in lengths {
            let cuts = if few && threads > 1 {
                len.div_ceil(TASK_QUERIES)
            } else {
                1
            };
            tasks.extend((0..a.kv_heads * cuts).map(|task| ([first, len], task, cuts)));
            first += len;
        }
        let parts = threads.min(tasks.len());
        let each = a.part_elems().iter().sum::<usize>();
        let (kernels, out, scratch) = (self.kernels, SharedMut::new(out), SharedMut::new(scratch));
        let next = AtomicUsize::new(0);
        self.step.run(parts, &|part| {
            // SAFETY: parts have disjoint scratch memory.
            let scratch = unsafe { scratch.piece(part * each..(part + 1) * each) };
            let step = Step::inline();
            let exec = Exec { kernels, step: &step };
            while let Some(&([first, len], task, cuts)) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                let text = DenseAttention {
                    queries: len,
                    keys: len,
                    ..*a
                };
                let (kv, rows) = (task / cuts, part_range(len, cuts, task % cuts));
                let qkv = [(q, of_query), (k, of_key), (v, of_key)]
                    .map(|(x, width): (&[f32], usize)| &x[first * width..(first + len) * width]);
                // Tasks have disjoint heads or queries.
                exec.attend_head(&text, qkv, more, [0, kv], rows, scratch, (&out, first * of_query));
            }
        });
    }
}
