//! Steps whose kernels are those of functions: rows go out of the arena and come back into it; and those that read what holds
//! for a sequence.

use super::{Call, Held, RowInfo, floats, parts};
use crate::function::Exchange;
use crate::step::{Buffer, Input, Kind, Lowered, View};
use crate::{Error, Result};
use cactus_base::AlignedBuf;
use cactus_kernels::{Attention, DeltaRows, GatedDelta, KvRun};
use std::ops::Range;

impl Call<'_> {
    /// Puts the numbers `from` on of rows of media in place of `x`, or adds them.
    pub(super) fn media(&mut self, x: View, (from, added): (usize, bool), out: Buffer, rows: &Range<usize>) {
        let to = View::of(out, x.width);
        let (x_span, out_span) = (self.view_span(x, rows), self.view_span(to, rows));
        if x.buffer != out {
            let [xs, os] = parts(self.arena, [x_span, out_span.clone()]);
            for (from, to) in floats(xs).chunks(x.stride).zip(floats(os).chunks_exact_mut(x.width)) {
                to.copy_from_slice(&from[x.offset..][..x.width]);
            }
        }
        let out = floats(&mut self.arena[out_span]);
        let width = self.lowered.media.width.unwrap_or(x.width).max(1);
        for &(first, values) in self.media {
            for (row, values) in (first..).zip(values.chunks_exact(width)) {
                if !rows.contains(&row) {
                    continue;
                }
                let (values, out) = (
                    &values[from..][..x.width],
                    &mut out[(row - rows.start) * x.width..][..x.width],
                );
                match added {
                    true => out.iter_mut().zip(values).for_each(|(x, y)| *x += y),
                    false => out.copy_from_slice(values),
                }
            }
        }
    }
}

/// Rows of the arena, and what every position has.
struct Rows<'a, 'g> {
    arena: &'a mut AlignedBuf,
    lowered: &'a Lowered,
    inputs: &'a [Input],
    outputs: &'a [(Buffer, usize)],
    info: &'a RowInfo,
    given: Option<&'g Held>,
    rows: Range<usize>,
    /// First row that the step computes.
    first: usize,
}

impl Rows<'_, '_> {
    /// Byte of the arena at which the rows begin in a buffer of rows of `stride` floats.
    fn at(&self, buffer: Buffer, stride: usize) -> usize {
        self.lowered.row_bytes(buffer, stride, self.rows.start, self.first)
    }
}

impl<'g> Exchange<'g> for Rows<'_, 'g> {
    fn held(&self, index: usize) -> Option<&'g [u8]> {
        match self.inputs[index] {
            Input::Given(index) => self.given.and_then(|g| g.values.get(index)).map(|value| &**value),
            _ => None,
        }
    }

    fn read(&self, index: usize, to: &mut [u8]) {
        let view = match self.inputs[index] {
            Input::Rows(view) => view,
            Input::Ids => {
                let ids = self.info.ids[self.rows.clone()].iter().map(|&id| i64::from(id));
                return numbers(to, ids);
            }
            // Read where it lies.
            Input::Given(_) => return,
            Input::Positions => {
                let positions = self.info.positions[self.rows.clone()].iter().map(|&p| p as i64);
                return numbers(to, positions);
            }
        };
        let at = self.at(view.buffer, view.stride) + view.offset * 4;
        for (i, to) in to.chunks_exact_mut((view.width * 4).max(1)).enumerate() {
            let from = at + i * view.stride * 4;
            to.copy_from_slice(&self.arena[from..from + to.len()]);
        }
    }

    fn write(&mut self, index: usize, from: &[u8]) {
        let (buffer, width) = self.outputs[index];
        let at = self.at(buffer, width);
        self.arena[at..at + from.len()].copy_from_slice(from);
    }
}

fn numbers(to: &mut [u8], from: impl Iterator<Item = i64>) {
    for (to, n) in bytemuck::cast_slice_mut::<u8, i64>(to).iter_mut().zip(from) {
        *to = n;
    }
}

impl Call<'_> {
    pub(super) fn island(
        &mut self,
        island: usize,
        inputs: &[Input],
        outputs: &[(Buffer, usize)],
        rows: &Range<usize>,
    ) -> Result<()> {
        let lowered = self.lowered;
        let first = rows.start;
        let mut compute = |rows: Range<usize>, given: Option<&Held>| {
            let mut exchange = Rows {
                first,
                arena: self.arena,
                lowered,
                inputs,
                outputs,
                info: self.rows,
                given,
                rows: rows.clone(),
            };
            lowered.islands[island].run(self.exec, rows.len(), given.map(|g| &g.bindings), &mut exchange)
        };
        if !inputs.iter().any(|i| matches!(i, Input::Given(_))) {
            return compute(rows.clone(), None);
        }
        // What is given differs from sequence to sequence.
        for rows in self.rows.runs(rows.clone()) {
            let run = self.rows.runs[rows.start] as usize;
            compute(rows, self.runs[run].given)?;
        }
        Ok(())
    }

    /// Attention to what is given; queries of sequences that share it are computed together.
    pub(super) fn cross_attention(&mut self, kind: &Kind, rows: &Range<usize>) -> Result<()> {
        let Kind::CrossAttention {
            crossed,
            q,
            heads,
            attrs,
            sinks,
            out,
        } = kind
        else {
            return Err(Error::Argument(
                "a step has an unexpected kind; this is a bug, please report it".into(),
            ));
        };
        let layout = &self.lowered.crossed[*crossed].layout;
        let attention = Attention {
            causal: false,
            softcap: attrs.softcap,
            sinks: sinks.as_ref().map(|x| x.numbers(self.program)),
            ..Attention::plain(*heads, attrs.scale)
        };
        let (q_span, out_span) = (self.view_span(*q, rows), self.span(*out, q.width, rows));
        let [queries, results] = parts(self.arena, [q_span, out_span]);
        let (queries, results) = (floats(queries), floats(results));
        let given = |rows: &Range<usize>| self.runs[self.rows.runs[rows.start] as usize].given;
        let mut runs = self.rows.runs(rows.clone()).peekable();
        while let Some(first) = runs.next() {
            let held = given(&first);
            let mut end = first.end;
            while let Some(next) = runs.next_if(|next| held.zip(given(next)).is_some_and(|(a, b)| std::ptr::eq(a, b))) {
                end = next.end;
            }
            let Some(blocks) = held.and_then(|held| held.crossed.get(*crossed)) else {
                return Err(Error::Argument(
                    "a sequence was given nothing to look at; this is a bug, please report it".into(),
                ));
            };
            let here = first.start - rows.start..end - rows.start;
            let run = KvRun {
                rows: here.len(),
                past: blocks.positions,
                pages: &blocks.pages,
            };
            self.exec.attention(
                layout,
                &blocks.memory,
                &[run],
                &attention,
                &queries[here.start * q.stride + q.offset..],
                q.stride,
                &mut results[here.start * q.width..here.end * q.width],
            );
        }
        Ok(())
    }

    pub(super) fn gated_delta(&mut self, kind: &Kind) -> Result<()> {
        let &Kind::GatedDelta {
            state,
            q,
            k,
            v,
            decay,
            rate,
            heads,
            key_heads,
            out,
        } = kind
        else {
            return Err(Error::Argument(
                "a step has an unexpected kind; this is a bug, please report it".into(),
            ));
        };
        let lowered = self.lowered;
        for run in self.runs.iter_mut() {
            let at = |x: View| {
                let at = lowered.offsets[x.buffer];
                at + run.rows.start * x.stride * 4..at + run.rows.end * x.stride * 4
            };
            let spans = [q, k, v, decay, rate].map(|x| (at(x), x));
            let out = at(View::of(out, v.width));
            let matrices = floats(&mut run.carried[state]);
            let (before, rest) = self.arena.split_at_mut(out.start);
            let (result, after) = rest.split_at_mut(out.len());
            let [q_rows, k_rows, v_rows, decay, rate] = spans.map(|(span, view)| {
                // Buffers that are alive together lie apart, so an operand is on one side of the result.
                let data: &[f32] = bytemuck::cast_slice(match span.end <= out.start {
                    true => &before[span],
                    false => &after[span.start - out.end..span.end - out.end],
                });
                DeltaRows {
                    data: &data[view.offset..],
                    stride: view.stride,
                }
            });
            let call = GatedDelta {
                len: run.rows.len(),
                heads,
                key_heads,
                keys: q.width / key_heads.max(1),
                values: v.width / heads.max(1),
                q: q_rows,
                k: k_rows,
                v: v_rows,
                decay,
                rate,
            };
            self.exec.gated_delta(&call, matrices, floats(result));
        }
        Ok(())
    }
}
