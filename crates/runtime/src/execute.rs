//! Execution of a program: one chunk of positions at a time.

mod rows;

use crate::function::held;
use crate::observe::{Observed, Observer, Replaced};
use crate::state::{StatePlan, States};
use crate::step::{self, Buffer, Kind, Lowered, Rows, TAIL_ROWS, View};
use crate::{Error, Logits, Profile, Program, Result};
use cactus_base::{AlignedBuf, Pool};
use cactus_kernels::{Activations, Epilogue, Exec, Link, NextNorm, Norm, QuantizedRows, RotatedRows, UnaryOp};
use cactus_quant::PackedView;
use cactus_tensor::Tensor;
use rows::Held;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Functions behind the output head that are computed in one pass.
const LINKS: usize = 8;

/// Which logits a call computes.
#[allow(missing_debug_implementations)]
pub enum Head<'a> {
    /// None: the call only fills the states.
    Skip,
    /// Those of the last position, left in [`Execution::logits`].
    Last,
    /// Those of every position from the given one (counted within the call) on; the callback gets position and logits.
    From(usize, &'a mut dyn FnMut(usize, Logits<'_>)),
}

/// What changes from call to call: arena, states, logits. One execution runs one sequence.
#[derive(Debug)]
pub struct Execution {
    program: Arc<Program>,
    arena: AlignedBuf,
    states: States,
    /// `[rows, vocab]`, and the peaks of each row.
    logits: Vec<f32>,
    peaks: Vec<f32>,
    profile: Option<Profile>,
    given: Option<Held>,
    pub(crate) replaced: Replaced,
}

impl Execution {
    /// Memory for one sequence.
    ///
    /// # Errors
    /// Where the memory cannot be had.
    pub fn new(program: Arc<Program>) -> Result<Execution> {
        Ok(Execution {
            arena: AlignedBuf::zeroed(program.lowered.arena_bytes)?,
            states: States::new(&program.states)?,
            logits: vec![0.0; program.lowered.vocab_size],
            peaks: vec![0.0; program.lowered.peaks()],
            profile: None,
            given: None,
            replaced: Replaced::new(),
            program,
        })
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Positions held by the states.
    pub fn len(&self) -> usize {
        self.states.len
    }

    /// Whether the states hold no position.
    pub fn is_empty(&self) -> bool {
        self.states.len == 0
    }

    /// Logits of the last position of the last call that asked for them, `[vocab]`.
    pub fn logits(&self) -> Logits<'_> {
        let lowered = &self.program.lowered;
        Logits::new(&self.logits[..lowered.vocab_size], &self.peaks[..lowered.peaks()])
    }

    /// Begins or ends measuring the time of each step.
    pub fn set_profiling(&mut self, on: bool) {
        self.profile = on.then(|| Profile::new(self.program.lowered.steps.len()));
    }

    /// The times measured since profiling began.
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }

    /// Takes the inputs of a sequence beside its token ids ([`Program::given_inputs`]), computes what depends on them alone,
    /// and forgets every position.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Argument`] for an input that is missing, unknown or of another type or shape than declared, or
    /// where the program has none.
    pub fn give(&mut self, pool: &Pool, width: usize, inputs: &BTreeMap<String, Tensor>) -> Result<()> {
        let Some(given) = &self.program.lowered.given else {
            return Err(Error::Argument("the program reads token ids alone".into()));
        };
        let bindings = given.function.bind(inputs)?;
        let outputs = given.function.run(pool, width, inputs)?;
        self.given = Some(Held {
            values: outputs.iter().map(|(_, t)| held(t)).collect(),
            bindings,
        });
        self.clear();
        Ok(())
    }

    /// Forgets every position.
    pub fn clear(&mut self) {
        self.states.clear(&self.program.states);
    }

    /// Forgets the positions from `keep` on. Where a state has lost what it would need (a sliding window that moved on,
    /// a convolution), it returns `false` and forgets nothing.
    pub fn truncate(&mut self, keep: usize) -> bool {
        let len = self.states.len;
        if keep >= len {
            return keep == len;
        }
        if keep == 0 {
            self.clear();
            return true;
        }
        if !self.program.states.iter().all(|s| s.can_truncate(len, keep)) {
            return false;
        }
        self.states.len = keep;
        true
    }

    /// Computes the positions of `ids`, at most [`Program::chunk_tokens`], after those the states hold, on `width`
    /// threads of `pool`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Argument`] for an empty or too long chunk or an unknown token id,
    /// [`crate::ErrorKind::ContextFull`] where the states have no room, [`crate::ErrorKind::Bundle`] where a file of the bundle
    /// was cut short or could not be read; the states are then as before, and no logits were shown that came of it.
    pub fn run(&mut self, pool: &Pool, width: usize, ids: &[u32], head: Head<'_>) -> Result<()> {
        self.run_observed(pool, width, ids, head, None)
    }

    /// As [`Execution::run`], showing `observer` the inputs of linears.
    ///
    /// # Errors
    /// As [`Execution::run`].
    pub fn run_observed(
        &mut self,
        pool: &Pool,
        width: usize,
        ids: &[u32],
        head: Head<'_>,
        observer: Option<Observer<'_>>,
    ) -> Result<()> {
        let computed = self.pass(pool, width, ids, head, observer);
        // Before anything else that went wrong: zeros in place of weights may be why.
        self.program.bundle.intact()?;
        computed?;
        self.states.len += ids.len();
        Ok(())
    }

    /// Computes the positions of `ids`, which the states then hold beyond their length.
    fn pass(
        &mut self,
        pool: &Pool,
        width: usize,
        ids: &[u32],
        head: Head<'_>,
        observer: Option<Observer<'_>>,
    ) -> Result<()> {
        let program = Arc::clone(&self.program);
        let past = self.states.len;
        if ids.is_empty() || ids.len() > program.chunk_tokens {
            return Err(Error::Argument(format!(
                "a call computes 1 to {} tokens, found {}",
                program.chunk_tokens,
                ids.len()
            )));
        }
        if past + ids.len() > program.context_tokens {
            return Err(Error::ContextFull {
                capacity: program.context_tokens,
                used: past,
                wanted: ids.len(),
            });
        }
        let wanted = program.given_inputs();
        if !wanted.is_empty() && self.given.is_none() {
            let what = format!(
                "the model reads `{}` too, which must be given first",
                wanted.join("`, `")
            );
            return Err(Error::Argument(what));
        }
        let step = pool.step(width);
        let mut call = Call {
            lowered: &program.lowered,
            program: &program,
            exec: Exec {
                kernels: program.kernels,
                step: &step,
            },
            arena: &mut self.arena,
            states: &mut self.states,
            profile: self.profile.as_mut(),
            // Not moved as a whole: only the reference itself can take a shorter lifetime.
            observer: match observer {
                Some(o) => Some(o),
                None => None,
            },
            replaced: &self.replaced,
            given: self.given.as_ref(),
            ids,
            past,
        };
        let steps = program.lowered.steps.len();
        call.steps(0..program.lowered.tail, 0..ids.len(), HeadOut::default())?;
        let (vocab, blocks) = (program.lowered.vocab_size, program.lowered.peaks());
        match head {
            Head::Skip => {}
            Head::Last => {
                let last = ids.len() - 1;
                let out = HeadOut {
                    logits: &mut self.logits[..vocab],
                    peaks: &mut self.peaks[..blocks],
                };
                call.steps(program.lowered.tail..steps, last..last + 1, out)?;
            }
            Head::From(first, each) => {
                let rows = TAIL_ROWS.min(ids.len());
                if self.logits.len() < rows * vocab {
                    self.logits.resize(rows * vocab, 0.0);
                    self.peaks.resize(rows * blocks, 0.0);
                }
                let mut start = first;
                while start < ids.len() {
                    let end = (start + TAIL_ROWS).min(ids.len());
                    let out = HeadOut {
                        logits: &mut self.logits[..(end - start) * vocab],
                        peaks: &mut self.peaks[..(end - start) * blocks],
                    };
                    call.steps(program.lowered.tail..steps, start..end, out)?;
                    program.bundle.intact()?;
                    for i in 0..end - start {
                        let (logits, peaks) = (&self.logits[i * vocab..][..vocab], &self.peaks[i * blocks..][..blocks]);
                        each(start + i, Logits::new(logits, peaks));
                    }
                    start = end;
                }
            }
        }
        Ok(())
    }
}

/// Where the output head writes.
#[derive(Default)]
struct HeadOut<'a> {
    /// `[rows, vocab]`
    logits: &'a mut [f32],
    /// `[rows, peaks of the program]`
    peaks: &'a mut [f32],
}

/// One call under way.
struct Call<'a> {
    program: &'a Program,
    lowered: &'a Lowered,
    exec: Exec<'a>,
    arena: &'a mut AlignedBuf,
    states: &'a mut States,
    profile: Option<&'a mut Profile>,
    observer: Option<Observer<'a>>,
    replaced: &'a Replaced,
    given: Option<&'a Held>,
    ids: &'a [u32],
    past: usize,
}

impl<'a> Call<'a> {
    /// Runs `steps` for the positions `rows` of the call; logits go to `out`.
    fn steps(&mut self, steps: Range<usize>, rows: Range<usize>, mut out: HeadOut<'_>) -> Result<()> {
        for i in steps {
            let start = self.profile.is_some().then(Instant::now);
            if self.observer.is_some() {
                self.show(&self.lowered.steps[i].kind, &rows);
            }
            self.step(&self.lowered.steps[i].kind, &rows, &mut out)?;
            if let (Some(profile), Some(start)) = (self.profile.as_deref_mut(), start) {
                profile.add(i, start.elapsed());
            }
        }
        Ok(())
    }

    /// Shows the observer what a step is about to read.
    fn show(&mut self, kind: &Kind, rows: &Range<usize>) {
        if let Kind::Linear {
            x: Rows::F32(x),
            weight,
            ..
        }
        | Kind::Head {
            x: Rows::F32(x),
            weight,
            ..
        } = kind
        {
            let span = self.view_span(*x, rows);
            let input = bytemuck::cast_slice(&self.arena[span]);
            let weight = self.program.weight_name(*weight);
            if let Some(observer) = &mut self.observer {
                observer(Observed {
                    weight,
                    input,
                    k: x.width,
                });
            }
        }
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
        let at = self.lowered.row_bytes(buffer, stride, rows);
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
                let (span, first) = (self.span(*out, table.k(), rows), self.past + rows.start);
                let out = floats(&mut self.arena[span]);
                for (i, row) in out.chunks_exact_mut(table.k().max(1)).enumerate() {
                    // A position beyond 32 bits is beyond every table.
                    exec.embed(&table, &[u32::try_from(first + i).unwrap_or(u32::MAX)], row)?;
                }
            }
            Kind::Embed { table, out, .. } => {
                let table = self.matrix(*table)?;
                let span = self.span(*out, table.k(), rows);
                exec.embed(&table, &self.ids[rows.clone()], floats(&mut self.arena[span]))?;
            }
            Kind::RopeTable { inv_freq, scale, table } => {
                let span = self.whole(*table);
                let (cos, sin) = floats(&mut self.arena[span]).split_at_mut(self.program.chunk_tokens * inv_freq.len());
                let len = n * inv_freq.len();
                exec.rope_table(
                    self.past + rows.start,
                    n,
                    inv_freq,
                    *scale,
                    &mut cos[..len],
                    &mut sin[..len],
                );
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
                let w = self.program.vector(*weight);
                let [xs, os] = parts(self.arena, [self.view_span(*x, rows), self.span(*out, x.width, rows)]);
                exec.rms_norm(floats(xs), w, *eps, n, x.width, floats(os));
            }
            Kind::RmsNormQuantize { x, weight, eps, out } => {
                let w = self.program.vector(*weight);
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
                let w = self.program.vector(*weight);
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
                    accumulate: false,
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
                k,
                v,
                heads,
                scale,
                window,
                softcap,
                out,
            } => {
                let StatePlan::Kv { layout, .. } = &self.program.states[*state] else {
                    return Err(Error::Argument("attention needs a KV state".into()));
                };
                let (q_span, out_span) = (self.view_span(*q, rows), self.span(*out, q.width, rows));
                let (k_span, v_span) = (self.view_span(*k, rows), self.view_span(*v, rows));
                let kv = &mut self.states.buffers[*state];
                let at = |x: &View| x.offset;
                let ks: &[f32] = bytemuck::cast_slice(&self.arena[k_span]);
                let vs: &[f32] = bytemuck::cast_slice(&self.arena[v_span]);
                exec.kv_append(layout, kv, self.past, n, &ks[at(k)..], k.stride, &vs[at(v)..], v.stride);
                let [qs, os] = parts(self.arena, [q_span, out_span]);
                exec.attention(
                    layout,
                    kv,
                    &floats(qs)[at(q)..],
                    q.stride,
                    n,
                    self.past,
                    *heads,
                    *scale,
                    *window,
                    *softcap,
                    floats(os),
                );
            }
            Kind::ShortConv {
                state,
                x,
                weight,
                bias,
                out,
            } => {
                let w = self.program.vector(*weight);
                let b = bias.map(|b| self.program.vector(b));
                let spans = [self.view_span(*x, rows), self.span(*out, x.width, rows)];
                let memory = floats(&mut self.states.buffers[*state]);
                let [xs, os] = parts(self.arena, spans);
                exec.short_conv(&floats(xs)[x.offset..], x.stride, w, b, memory, n, x.width, floats(os));
            }
            Kind::GatedDelta { .. } => self.gated_delta(kind, rows)?,
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
