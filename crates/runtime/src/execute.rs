//! Execution of the steps of a program for the rows of one call.

mod experts;
mod gates;
mod given;
mod rows;
mod streams;

use crate::gates::layer_norm_heads;
use crate::grids::AXES;
use crate::observe::{Observed, Observer, Replaced, values};
use crate::pages;
use crate::state::StatePlan;
use crate::step::{self, Buffer, Kind, Lowered, Rows, View};
use crate::{Error, Profile, Program, Result};
use cactus_base::AlignedBuf;
use cactus_kernels::{
    Activations, Attention, Epilogue, Exec, KvRun, Link, NextNorm, Norm, QuantizedRows, RotatedRows, UnaryOp,
};
use cactus_quant::PackedView;
pub(crate) use given::Held;
use std::ops::{ControlFlow, Range};
use std::time::Instant;

/// Functions behind the output head that are computed in one pass.
const LINKS: usize = 8;

/// Where the output head writes.
#[derive(Default)]
pub(crate) struct HeadOut<'a> {
    /// `[rows, vocab]`
    pub(crate) logits: &'a mut [f32],
    /// `[rows, peaks of the program]`
    pub(crate) peaks: &'a mut [f32],
}

/// What is known of each row of a call.
#[derive(Debug, Default)]
pub(crate) struct RowInfo {
    pub(crate) ids: Vec<u32>,
    /// In the sequence.
    pub(crate) positions: Vec<usize>,
    /// Index of the run.
    pub(crate) runs: Vec<u32>,
    /// One more than the last position that attention up to given positions sees from each; empty where that is its own everywhere.
    until: Vec<u32>,
    /// On the axes of the rotary embedding; empty where it has one.
    pub(crate) on_axes: Vec<[u32; AXES]>,
}

impl RowInfo {
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.positions.clear();
        self.runs.clear();
        self.until.clear();
        self.on_axes.clear();
    }

    /// Appends a run of rows.
    pub(crate) fn push_run(&mut self, ids: &[u32], past: usize) {
        let run = self.runs.last().map_or(0, |run| run + 1);
        self.ids.extend_from_slice(ids);
        self.positions.extend(past..past + ids.len());
        self.runs.extend(std::iter::repeat_n(run, ids.len()));
    }

    /// Gives the positions of `media`, which have rows of `width` numbers from the given position on, the token `id`.
    pub(crate) fn stand_in(&mut self, media: &[(usize, &[f32])], width: usize, id: u32) {
        for (first, rows) in media {
            self.ids[*first..first + rows.len() / width].fill(id);
        }
    }

    /// Lets the rows of each of `spans`, which lie within runs, see each other.
    pub(crate) fn see_each_other(&mut self, spans: impl Iterator<Item = Range<usize>>) {
        for span in spans.filter(|span| !span.is_empty()) {
            if self.until.is_empty() {
                self.until
                    .extend(self.positions.iter().map(|&position| position as u32 + 1));
            }
            let end = self.until[span.end - 1];
            self.until[span].fill(end);
        }
    }

    /// Makes row `to` what row `from` is.
    fn copy(&mut self, from: usize, to: usize) {
        self.ids[to] = self.ids[from];
        self.positions[to] = self.positions[from];
        self.runs[to] = self.runs[from];
        if let Some(&position) = self.on_axes.get(from) {
            self.on_axes[to] = position;
        }
        if let Some(&until) = self.until.get(from) {
            self.until[to] = until;
        }
    }

    /// The rows `rows` of one run at a time.
    pub(crate) fn runs(&self, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut start = rows.start;
        std::iter::from_fn(move || {
            let run = *self.runs[start..rows.end].first()?;
            let end = start + self.runs[start..rows.end].iter().take_while(|r| **r == run).count();
            let found = start..end;
            start = end;
            Some(found)
        })
    }
}

/// Consecutive rows of a call that belong to one sequence.
pub(crate) struct Run<'a> {
    pub(crate) rows: Range<usize>,
    /// By state; empty where it is in pages.
    pub(crate) carried: &'a mut [AlignedBuf],
    pub(crate) given: Option<&'a Held>,
}

/// One call under way.
pub(crate) struct Call<'a> {
    pub(crate) program: &'a Program,
    pub(crate) lowered: &'a Lowered,
    pub(crate) exec: Exec<'a>,
    pub(crate) arena: &'a mut AlignedBuf,
    pub(crate) pools: &'a mut [pages::Pool],
    /// Where keys and values of each run lie, for each group of layers one after the other.
    pub(crate) kv_runs: &'a [KvRun<'a>],
    pub(crate) runs: &'a mut [Run<'a>],
    pub(crate) rows: &'a mut RowInfo,
    /// Rows of media of the call, by their row.
    pub(crate) media: &'a [(usize, &'a [f32])],
    pub(crate) profile: Option<&'a mut Profile>,
    pub(crate) observer: Option<Observer<'a>>,
    /// Whether the observer has seen enough.
    pub(crate) ended: bool,
    pub(crate) replaced: &'a Replaced,
}

impl<'a> Call<'a> {
    /// Moves the rows `wanted`, ascending, to the front of what the tail reads, so that it can compute them alone.
    pub(crate) fn gather(&mut self, wanted: &[usize]) {
        for &(buffer, row_bytes) in &self.lowered.tail_reads {
            let at = self.lowered.offsets[buffer];
            for (to, &from) in wanted.iter().enumerate().filter(|(to, from)| to != *from) {
                let from = at + from * row_bytes;
                self.arena.copy_within(from..from + row_bytes, at + to * row_bytes);
            }
        }
        for (to, &from) in wanted.iter().enumerate() {
            self.rows.copy(from, to);
        }
    }

    /// Runs `steps` for the rows `rows` of the call; logits go to `out`.
    pub(crate) fn steps(&mut self, steps: Range<usize>, rows: Range<usize>, mut out: HeadOut<'_>) -> Result<()> {
        for i in steps {
            let start = self.profile.is_some().then(Instant::now);
            if self.observer.is_some() {
                let kind = &self.lowered.steps[i].kind;
                if self.ended || self.show(kind, &rows).is_break() {
                    self.ended = true;
                    return Ok(());
                }
                if matches!(kind, Kind::Head { .. }) {
                    continue;
                }
            }
            self.expect(i, rows.len());
            self.step(&self.lowered.steps[i].kind, &rows, &mut out)?;
            if let (Some(profile), Some(start)) = (self.profile.as_deref_mut(), start) {
                profile.add(i, start.elapsed());
            }
        }
        Ok(())
    }

    /// Where step `step` is a product, says which one comes after it. The first one comes after the last, for the next token.
    fn expect(&self, step: usize, rows: usize) {
        let steps = &self.lowered.steps;
        let product = |kind: &Kind| match kind {
            Kind::Linear { weight, .. } | Kind::Head { weight, .. } => Some(*weight),
            _ => None,
        };
        if self.exec.step.width() == 1 || product(&steps[step].kind).is_none() {
            return;
        }
        let mut later = steps[step + 1..].iter().chain(steps);
        let next = later.find(|step| product(&step.kind).is_some() || matches!(step.kind, Kind::Experts(_)));
        if let Some(Ok(w)) = next
            .and_then(|step| product(&step.kind))
            .map(|weight| self.matrix(weight))
        {
            self.exec.expect_linear(&w, rows);
        }
    }

    /// Shows the observer what a step is about to read.
    fn show(&mut self, kind: &Kind, rows: &Range<usize>) -> ControlFlow<()> {
        let (Kind::Linear { x, weight, .. } | Kind::Head { x, weight, .. }) = kind else {
            return ControlFlow::Continue(());
        };
        let exec = self.exec;
        let name = self.program.weight_name(*weight);
        let decoded;
        let (input, k) = match *x {
            Rows::F32(x) => {
                let span = self.view_span(x, rows);
                (bytemuck::cast_slice(&self.arena[span]), x.width)
            }
            Rows::Quantized(buffer) => {
                let Ok(k) = self.program.matrix(*weight).map(|m| m.k()) else {
                    return ControlFlow::Continue(());
                };
                let span = self.whole(buffer);
                decoded = values(&QuantizedRows::new(&mut self.arena[span], rows.len(), k));
                (&decoded[..], k)
            }
            Rows::Rotated(_) => return ControlFlow::Continue(()),
        };
        let Some(observer) = &mut self.observer else {
            return ControlFlow::Continue(());
        };
        observer(Observed {
            weight: name,
            input,
            k,
            exec,
        })
    }

    /// A matrix of the program, or what stands in for it.
    fn matrix(&self, index: usize) -> Result<PackedView<'a>> {
        let (program, replaced): (&'a Program, &'a Replaced) = (self.program, self.replaced);
        match replaced.get(&index) {
            Some(matrix) => Ok(matrix.view()),
            None => program.matrix(index),
        }
    }

    fn norm(&self, weight: usize, eps: f32) -> Norm<'a> {
        let program: &'a Program = self.program;
        Norm {
            weight: program.vector(weight),
            eps,
        }
    }

    /// Arena bytes of the rows of a buffer of `f32` rows of `stride` elements.
    fn span(&self, buffer: Buffer, stride: usize, rows: &Range<usize>) -> Range<usize> {
        let at = self.lowered.row_bytes(buffer, stride, rows.start, rows.start);
        at..at + rows.len() * stride * 4
    }

    fn view_span(&self, v: View, rows: &Range<usize>) -> Range<usize> {
        self.span(v.buffer, v.stride, rows)
    }

    /// Arena bytes of a buffer of quantized rows or tables.
    fn whole(&self, buffer: Buffer) -> Range<usize> {
        let at = self.lowered.offsets[buffer];
        at..at + self.lowered.sizes[buffer]
    }
}

/// Bytes of several disjoint ranges of the arena, each mutable.
///
/// # Panics
/// Where ranges overlap, which the memory plan excludes for buffers alive at once.
fn parts<const N: usize>(arena: &mut AlignedBuf, ranges: [Range<usize>; N]) -> [&mut [u8]; N] {
    arena
        .get_disjoint_mut(ranges)
        .expect("the memory plan keeps buffers that are alive together apart")
}

fn floats(bytes: &mut [u8]) -> &mut [f32] {
    bytemuck::cast_slice_mut(bytes)
}

impl Call<'_> {
    fn step(&mut self, kind: &Kind, rows: &Range<usize>, head: &mut HeadOut<'_>) -> Result<()> {
        let n = rows.len();
        let exec = self.exec;
        match kind {
            Kind::Embed {
                table,
                positions: true,
                out,
            } => {
                let table = self.matrix(*table)?;
                let span = self.span(*out, table.k(), rows);
                let out = floats(&mut self.arena[span]);
                let positions = &self.rows.positions[rows.clone()];
                for (&position, row) in positions.iter().zip(out.chunks_exact_mut(table.k().max(1))) {
                    // A position beyond 32 bits is beyond every table.
                    exec.embed(&table, &[u32::try_from(position).unwrap_or(u32::MAX)], row)?;
                }
            }
            Kind::Embed { table, out, .. } => {
                let table = self.matrix(*table)?;
                let span = self.span(*out, table.k(), rows);
                exec.embed(&table, &self.rows.ids[rows.clone()], floats(&mut self.arena[span]))?;
            }
            Kind::RopeTable {
                inv_freq,
                on_axes: true,
                scale,
                table,
            } => {
                let (span, half) = (self.whole(*table), inv_freq.len() / AXES);
                let (cos, sin) = floats(&mut self.arena[span]).split_at_mut(self.program.chunk_tokens * half);
                let of = 0..rows.len() * half;
                let positions = &self.rows.on_axes[rows.clone()];
                exec.rope_table_of_axes(positions, inv_freq, *scale, &mut cos[of.clone()], &mut sin[of]);
            }
            Kind::RopeTable {
                inv_freq, scale, table, ..
            } => {
                let span = self.whole(*table);
                let (cos, sin) = floats(&mut self.arena[span]).split_at_mut(self.program.chunk_tokens * inv_freq.len());
                for run in self.rows.runs(rows.clone()) {
                    let (past, n) = (self.rows.positions[run.start], run.len());
                    let of = (run.start - rows.start) * inv_freq.len()..(run.end - rows.start) * inv_freq.len();
                    exec.rope_table(past, n, inv_freq, *scale, &mut cos[of.clone()], &mut sin[of]);
                }
            }
            Kind::Rope {
                x,
                head_dim,
                interleaved,
                table,
                half,
            } => {
                let (x_span, t_span) = (self.view_span(*x, rows), self.whole(*table));
                let [x_bytes, t_bytes] = parts(self.arena, [x_span, t_span]);
                let (cos, sin) = floats(t_bytes).split_at_mut(self.program.chunk_tokens * half);
                let len = n * half;
                let data = &mut floats(x_bytes)[x.offset..];
                exec.rope(
                    data,
                    n,
                    x.stride,
                    x.width / head_dim,
                    *head_dim,
                    *interleaved,
                    &cos[..len],
                    &sin[..len],
                );
            }
            Kind::RmsNorm { x, weight, eps, out } => {
                let w = weight.numbers(self.program);
                let [xs, os] = parts(self.arena, [self.view_span(*x, rows), self.span(*out, x.width, rows)]);
                exec.rms_norm(floats(xs), w, *eps, n, x.width, floats(os));
            }
            Kind::RmsNormQuantize { x, weight, eps, out } => {
                let w = weight.numbers(self.program);
                let [xs, os] = parts(self.arena, [self.view_span(*x, rows), self.whole(*out)]);
                let mut q = QuantizedRows::new(os, n, x.width);
                exec.rms_norm_quantize(floats(xs), w, *eps, n, x.width, &mut q);
            }
            Kind::RmsNormHeads {
                x,
                head_dim,
                weight,
                eps,
            } => {
                let w = weight.numbers(self.program);
                let span = self.view_span(*x, rows);
                let data = &mut floats(&mut self.arena[span])[x.offset..];
                exec.rms_norm_heads(data, w, *eps, n, x.stride, x.width / head_dim, *head_dim);
            }
            Kind::NormRopeHeads {
                x,
                weight,
                eps,
                table,
                half,
            } => {
                let norm = self.norm(*weight, *eps);
                let [x_bytes, t_bytes] = parts(self.arena, [self.view_span(*x, rows), self.whole(*table)]);
                let (cos, sin) = floats(t_bytes).split_at_mut(self.program.chunk_tokens * half);
                let (len, heads) = (n * half, x.width / norm.weight.len().max(1));
                let data = &mut floats(x_bytes)[x.offset..];
                exec.norm_rope_heads(data, norm, n, x.stride, heads, &cos[..len], &sin[..len]);
            }
            Kind::NormAdd {
                x,
                weight,
                eps,
                residual,
                next,
            } => {
                let norm = self.norm(*weight, *eps);
                let units = n * (x.width / norm.weight.len().max(1));
                let (x_span, sum_span) = (self.view_span(*x, rows), self.view_span(*residual, rows));
                let Some(next) = next else {
                    let [xs, sums] = parts(self.arena, [x_span, sum_span]);
                    exec.norm_add(floats(xs), norm, units, floats(sums), NextNorm::None);
                    return Ok(());
                };
                let then = self.norm(next.weight, next.eps);
                let out_span = match next.quantized {
                    true => self.whole(next.out),
                    false => self.span(next.out, x.width, rows),
                };
                let [xs, sums, os] = parts(self.arena, [x_span, sum_span, out_span]);
                if next.quantized {
                    let mut q = QuantizedRows::new(os, n, x.width);
                    exec.norm_add(floats(xs), norm, n, floats(sums), NextNorm::Quantized(then, &mut q));
                } else {
                    exec.norm_add(floats(xs), norm, n, floats(sums), NextNorm::Rows(then, floats(os)));
                }
            }
            Kind::LayerNorm {
                x,
                weight,
                bias,
                eps,
                out,
            } => {
                let w = self.program.vector(*weight);
                let b = bias.map(|b| self.program.vector(b));
                let [xs, os] = parts(self.arena, [self.view_span(*x, rows), self.span(*out, x.width, rows)]);
                exec.layer_norm(floats(xs), w, b, *eps, n, x.width, floats(os));
            }
            Kind::LayerNormHeads {
                x,
                head_dim,
                weight,
                bias,
                eps,
                out,
            } => {
                let (w, b) = (self.program.vector(*weight), bias.map(|b| self.program.vector(b)));
                let [xs, os] = parts(self.arena, [self.view_span(*x, rows), self.span(*out, x.width, rows)]);
                let source = floats(xs);
                for (i, row) in floats(os).chunks_exact_mut(x.width.max(1)).enumerate() {
                    layer_norm_heads(exec, row_of(source, *x, i), w, b, (*eps, *head_dim), row);
                }
            }
            Kind::Quantize { x, out } => {
                let [xs, os] = parts(self.arena, [self.view_span(*x, rows), self.whole(*out)]);
                let mut q = QuantizedRows::new(os, n, x.width);
                exec.quantize_rows(floats(xs), n, x.width, &mut q);
            }
            Kind::Rotate { x, out } => {
                let [xs, os] = parts(self.arena, [self.view_span(*x, rows), self.whole(*out)]);
                exec.rotate_rows(floats(xs), n, x.width, &mut RotatedRows::new(os, n, x.width));
            }
            Kind::Copy { x, out } => {
                let [xs, os] = parts(self.arena, [self.view_span(*x, rows), self.span(*out, x.width, rows)]);
                let source = floats(xs);
                for (i, row) in floats(os).chunks_exact_mut(x.width).enumerate() {
                    row.copy_from_slice(row_of(source, *x, i));
                }
            }
            Kind::Media { x, from, added, out } => self.media(*x, (*from, *added), *out, rows),
            Kind::Linear {
                x,
                weight,
                bias,
                out,
                accumulate,
            } => {
                let w = self.matrix(*weight)?;
                let epilogue = Epilogue {
                    bias: bias.map(|b| self.program.vector(b)),
                    accumulate: *accumulate,
                    ..Epilogue::default()
                };
                let out = self.span(*out, w.n(), rows);
                let x_span = self.operand_span(*x, rows);
                let [xs, os] = parts(self.arena, [x_span, out]);
                exec.linear(&w, activations(*x, xs, n, w.k()), n, epilogue, floats(os));
            }
            Kind::Head { x, weight, bias, then } => {
                let w = self.matrix(*weight)?;
                let bias = bias.map(|b| self.program.vector(b));
                let x_span = self.operand_span(*x, rows);
                let x = activations(*x, &mut self.arena[x_span], n, w.k());
                if then.is_empty() {
                    exec.linear_with_peaks(&w, x, n, bias, head.logits, head.peaks);
                    return Ok(());
                }
                let epilogue = Epilogue {
                    bias,
                    ..Epilogue::default()
                };
                exec.linear(&w, x, n, epilogue, head.logits);
                for group in then.chunks(LINKS) {
                    let mut links = [Link::Unary(UnaryOp::Neg); LINKS];
                    for (link, then) in links.iter_mut().zip(group) {
                        *link = match *then {
                            step::Link::Unary(f) => Link::Unary(f),
                            step::Link::Scalar(f, c) => Link::Scalar(f, c),
                            step::Link::Vector(f, v) => Link::Vector(f, self.program.vector(v)),
                        };
                    }
                    exec.chain_with_peaks(&links[..group.len()], head.logits, w.n(), head.peaks);
                }
            }
            Kind::Logits { x } => {
                let span = self.view_span(*x, rows);
                let source = floats(&mut self.arena[span]);
                for (i, row) in head.logits.chunks_exact_mut(x.width).enumerate() {
                    row.copy_from_slice(row_of(source, *x, i));
                }
                exec.chain_with_peaks(&[], head.logits, x.width, head.peaks);
            }
            Kind::Attention {
                state,
                q,
                new,
                heads,
                attrs,
                sinks,
                slopes,
                out,
            } => {
                // None of its rows is a medium's where all of them see up to themselves.
                let until = self.rows.until.get(rows.clone()).filter(|_| attrs.until);
                let StatePlan::Kv { layout, group } = &self.program.states.states[*state] else {
                    return Err(Error::Argument(
                        "this attention has no KV state; this is a bug, please report it".into(),
                    ));
                };
                let (q_span, out_span) = (self.view_span(*q, rows), self.span(*out, q.width, rows));
                let spans = new.map(|views| views.map(|view| self.view_span(view, rows)));
                let mut some = Vec::new();
                let all = &self.kv_runs[group * self.runs.len()..][..self.runs.len()];
                let runs = match rows.len() == self.rows.ids.len() {
                    true => all,
                    // In the tail, which has some of the rows.
                    false => {
                        some.extend(self.rows.runs(rows.clone()).map(|part| KvRun {
                            rows: part.len(),
                            past: self.rows.positions[part.start],
                            pages: all[self.rows.runs[part.start] as usize].pages,
                        }));
                        &some[..]
                    }
                };
                let kv = &mut self.pools[*group].memory;
                if let (Some([k, v]), Some(spans)) = (new, spans) {
                    let [ks, vs]: [&[f32]; 2] = spans.map(|span| bytemuck::cast_slice(&self.arena[span]));
                    exec.kv_append(layout, kv, runs, &ks[k.offset..], k.stride, &vs[v.offset..], v.stride);
                }
                let [qs, os] = parts(self.arena, [q_span, out_span]);
                let qs = &floats(qs)[q.offset..];
                let attention = Attention {
                    q_heads: *heads,
                    scale: attrs.scale,
                    causal: true,
                    until,
                    window: attrs.window,
                    chunk: attrs.chunk,
                    softcap: attrs.softcap,
                    sinks: sinks.as_ref().map(|x| x.numbers(self.program)),
                    slopes: slopes.as_ref().map(|x| x.numbers(self.program)),
                };
                exec.attention(layout, kv, runs, &attention, qs, q.stride, floats(os));
            }
            Kind::CrossAttention { .. } => self.cross_attention(kind, rows)?,
            Kind::ShortConv { .. } => self.short_conv(kind),
            Kind::AltupPredict { .. } | Kind::AltupCorrect { .. } | Kind::AddToEach { .. } => {
                self.streams(kind, rows)?
            }
            Kind::Decays { .. } => self.decays(kind, rows),
            Kind::GatedRows { .. } => self.gated_rows(kind, rows),
            Kind::GatedDelta { .. } => self.gated_delta(kind)?,
            Kind::Experts(step) => self.experts(step, rows)?,
            Kind::Island {
                island,
                inputs,
                outputs,
            } => self.island(*island, inputs, outputs, rows)?,
            Kind::Gated { activation, x, out } => {
                let half = x.width / 2;
                let [xs, os] = parts(self.arena, [self.view_span(*x, rows), self.span(*out, half, rows)]);
                exec.gated(*activation, floats(xs), half, n, floats(os));
            }
            Kind::GatedQuantize { activation, x, out } => {
                let half = x.width / 2;
                let [xs, os] = parts(self.arena, [self.view_span(*x, rows), self.whole(*out)]);
                let mut q = QuantizedRows::new(os, n, half);
                exec.gated_quantize(*activation, floats(xs), half, n, &mut q);
            }
            Kind::Unary { f, x, out } => {
                let [xs, os] = parts(self.arena, [self.view_span(*x, rows), self.span(*out, x.width, rows)]);
                let source = floats(xs);
                for (i, row) in floats(os).chunks_exact_mut(x.width).enumerate() {
                    exec.unary(*f, row_of(source, *x, i), row);
                }
            }
            Kind::Binary { f, a, b, out } => {
                let out_span = self.span(*out, a.width, rows);
                let (a_span, b_span) = (self.view_span(*a, rows), self.view_span(*b, rows));
                if a.buffer == b.buffer {
                    let [xs, os] = parts(self.arena, [a_span, out_span]);
                    let source = floats(xs);
                    for (i, row) in floats(os).chunks_exact_mut(a.width).enumerate() {
                        exec.binary(*f, row_of(source, *a, i), row_of(source, *b, i), row);
                    }
                } else {
                    let [xs, ys, os] = parts(self.arena, [a_span, b_span, out_span]);
                    let (xs, ys) = (floats(xs), floats(ys));
                    for (i, row) in floats(os).chunks_exact_mut(a.width).enumerate() {
                        exec.binary(*f, row_of(xs, *a, i), row_of(ys, *b, i), row);
                    }
                }
            }
            Kind::BinaryScalar { f, a, b, out } => {
                let [xs, os] = parts(self.arena, [self.view_span(*a, rows), self.span(*out, a.width, rows)]);
                let source = floats(xs);
                for (i, row) in floats(os).chunks_exact_mut(a.width).enumerate() {
                    exec.binary(*f, row_of(source, *a, i), std::slice::from_ref(b), row);
                }
            }
            Kind::BinaryVector { f, a, b, out } => {
                let w = self.program.vector(*b);
                let [xs, os] = parts(self.arena, [self.view_span(*a, rows), self.span(*out, a.width, rows)]);
                let source = floats(xs);
                for (i, row) in floats(os).chunks_exact_mut(a.width).enumerate() {
                    exec.binary(*f, row_of(source, *a, i), w, row);
                }
            }
        }
        Ok(())
    }

    fn operand_span(&self, x: Rows, rows: &Range<usize>) -> Range<usize> {
        match x {
            Rows::F32(v) => self.view_span(v, rows),
            Rows::Quantized(b) | Rows::Rotated(b) => self.whole(b),
        }
    }
}

fn activations(x: Rows, bytes: &mut [u8], rows: usize, k: usize) -> Activations<'_> {
    match x {
        Rows::F32(_) => Activations::F32(floats(bytes)),
        Rows::Quantized(_) => Activations::Q8(QuantizedRows::new(bytes, rows, k)),
        Rows::Rotated(_) => Activations::Rotated(RotatedRows::new(bytes, rows, k)),
    }
}

/// Row `i` of a view into rows that start at the view's buffer.
fn row_of(rows: &[f32], v: View, i: usize) -> &[f32] {
    &rows[i * v.stride + v.offset..][..v.width]
}
