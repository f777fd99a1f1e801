//! The second moments of a linear's inputs, summed span by span.

use super::{Span, spans};
use crate::exec::{Exec, SharedMut};
use crate::matmul::{Activations, Epilogue};
use cactus_base::Step;
use cactus_quant::cq::CQ_GRAIN;
use cactus_quant::{BLOCK_ROWS, PackedView, Packing};

/// Columns that are summed at once, in which the lower triangle of a span is cut.
const PANEL: usize = 128;
/// Rows of activations multiplied at once: bounds the memory of their rearranged copies.
const ROWS: usize = 512;

/// `Σ x xᵀ` over rows `x [k]`, within each span of inputs; only the panels that hold the lower triangle are kept.
#[derive(Clone, Debug)]
pub struct SecondMoments {
    k: usize,
    spans: Vec<Span>,
    panels: Vec<Panel>,
    seen: usize,
}

/// Columns `start..start + columns` of a span's lower triangle, for the inputs from `start` to the span's end.
#[derive(Clone, Debug)]
struct Panel {
    start: usize,
    columns: usize,
    /// `[end - start, columns]`
    sums: Vec<f32>,
}

impl SecondMoments {
    /// Sums of nothing, for `k` inputs.
    #[must_use]
    pub fn new(k: usize) -> Self {
        let spans = spans(k);
        let mut panels = Vec::new();
        for s in &spans {
            for at in (0..s.size).step_by(PANEL) {
                let columns = PANEL.min(s.size - at);
                panels.push(Panel {
                    start: s.start + at,
                    columns,
                    sums: vec![0.0; (s.size - at) * columns],
                });
            }
        }
        Self {
            k,
            spans,
            panels,
            seen: 0,
        }
    }

    /// Bytes of these sums.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.panels.iter().map(|p| size_of_val(&*p.sums)).sum()
    }

    /// Bytes of the sums for `k` inputs, before there are any.
    #[must_use]
    pub fn bytes(k: usize) -> usize {
        let of = |s: &Span| {
            (0..s.size)
                .step_by(PANEL)
                .map(|at| (s.size - at) * PANEL.min(s.size - at) * 4)
                .sum::<usize>()
        };
        spans(k).iter().map(of).sum()
    }

    /// Inputs.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// Rows summed.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.seen
    }

    /// The spans within which they are summed.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Calls `f` with every place `i`, `j <= i` of the lower triangle of a span, counted from the span's first input.
    pub fn each(&self, span: &Span, f: &mut dyn FnMut(usize, usize, f32)) {
        let end = span.start + span.size;
        for p in self.panels.iter().filter(|p| (span.start..end).contains(&p.start)) {
            let at = p.start - span.start;
            for (i, row) in p.sums.chunks_exact(p.columns).enumerate() {
                for (j, &x) in row.iter().enumerate().take(i + 1) {
                    f(at + i, at + j, x);
                }
            }
        }
    }
}

impl Exec<'_> {
    /// Adds `x xᵀ` of every row of `x [rows, k]` to `sums`. What is not finite counts as zero, for it would spoil everything
    /// that was seen. The bits do not depend on the number of threads.
    ///
    /// # Panics
    /// Where `x` is no whole rows: a programming error.
    pub fn add_second_moments(&self, x: &[f32], sums: &mut SecondMoments) {
        let k = sums.k.max(1);
        assert!(x.len().is_multiple_of(k), "second moments: rows of {k} inputs");
        for x in x.chunks(ROWS * k) {
            self.add_rows(x, k, sums);
            sums.seen += x.len() / k;
        }
    }

    fn add_rows(&self, x: &[f32], k: usize, sums: &mut SecondMoments) {
        let rows = x.len() / k;
        let padded = k.next_multiple_of(CQ_GRAIN);
        // The same inputs as rows of 16 lanes (weights) and as columns (activations).
        let (mut lanes, mut turned) = (vec![0f32; padded * rows], vec![0f32; padded * rows]);
        let (to_lanes, to_turned) = (SharedMut::new(&mut lanes), SharedMut::new(&mut turned));
        self.step.run(padded / BLOCK_ROWS, &|strip| {
            let at = strip * BLOCK_ROWS * rows;
            // SAFETY: strips are disjoint.
            let (lanes, turned) = unsafe {
                (
                    to_lanes.piece(at..at + BLOCK_ROWS * rows),
                    to_turned.piece(at..at + BLOCK_ROWS * rows),
                )
            };
            let first = (strip * BLOCK_ROWS).min(k);
            let last = (first + BLOCK_ROWS).min(k);
            for (r, line) in lanes.chunks_exact_mut(BLOCK_ROWS).enumerate() {
                for (l, &value) in x[r * k + first..r * k + last].iter().enumerate() {
                    let value = if value.is_finite() { value } else { 0.0 };
                    line[l] = value;
                    turned[l * rows + r] = value;
                }
            }
        });
        let count = sums.panels.len();
        let ends: Vec<usize> = sums.panels.iter().map(|p| p.start + p.sums.len() / p.columns).collect();
        let (kernels, panels) = (self.kernels, SharedMut::new(&mut sums.panels));
        self.step.run(count, &|index| {
            // SAFETY: panels are disjoint.
            let panel = &mut unsafe { panels.piece(index..index + 1) }[0];
            let weights = bytemuck::cast_slice(&lanes[panel.start * rows..(panel.start + panel.columns) * rows]);
            let alone = Exec {
                kernels,
                step: &Step::inline(),
            };
            let view = PackedView::new(Packing::F32N16, panel.columns, rows, &[], weights);
            let epilogue = Epilogue {
                accumulate: true,
                ..Epilogue::default()
            };
            let x = &turned[panel.start * rows..ends[index] * rows];
            alone.linear(
                &view.expect("a panel has whole blocks of 16 columns"),
                Activations::F32(x),
                ends[index] - panel.start,
                epilogue,
                &mut panel.sums,
            );
        });
    }
}
