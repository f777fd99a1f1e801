//! Portable graph to program: views, fusions that only this executor can see, and the memory plan.
//!
//! Activations are matrices `[rows, width]` of `f32`, a row for each position of the call. Reshapes and slices of the
//! last axes are views. What is fused here, because it concerns memory and quantized activations and so has no place in
//! the portable graph:
//!
//! - a residual addition happens in the linear that feeds it;
//! - the operand of INT8 linears is quantized once, however many read it, by the norm or gate that makes it where nobody
//!   else reads it; that of codebook linears is rotated once;
//! - rotary embedding happens in place;
//! - everything after the last operation that mixes positions forms the *tail*, computed only for rows whose logits are
//!   asked for, a few at once; the linear that makes the logits and what is done to each of them are one step (`head`).

mod elementwise;
mod experts;
mod gates;
mod given;
mod head;
mod island;
mod media;
mod norms;
mod products;
mod streams;

use crate::function::Island;
use crate::memory::{Request, plan};
use crate::step::{Buffer, Fixed, Input, Kind, Lowered, MediaInputs, Rows, Step, TAIL_ROWS, View};
use crate::{Error, Result, kernel_names};
use cactus_bundle::Bundle;
use cactus_ir::{Def, Dim, Graph, Literal, Node, NodeId, Op, TensorType, ValueId};
use cactus_kernels::{Kernels, KvDType, QuantizedRows};
use cactus_quant::Packing;
use given::Split;
pub(crate) use given::{Crossed, Given};
use head::Head;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What a value of the graph became.
#[derive(Clone, Copy, Debug)]
enum Place {
    Ids,
    Positions,
    Rows(View),
    /// Rows of a value whose positions are not at axis 1: what no step reads.
    Turned(View),
    /// What holds for the whole sequence, by its index.
    Given(usize),
    Media(media::Part),
}

struct Lowerer<'a> {
    graph: &'a Graph,
    bundle: &'a Arc<Bundle>,
    bindings: &'a BTreeMap<String, String>,
    rows: usize,
    uses: Vec<Vec<NodeId>>,
    position: HashMap<NodeId, usize>,
    places: HashMap<ValueId, Place>,
    quantized: HashMap<ValueId, Buffer>,
    rotated: HashMap<ValueId, Buffer>,
    rope_tables: Vec<(ValueId, f32, Buffer, usize)>,
    weights: Vec<usize>,
    weight_index: HashMap<ValueId, usize>,
    requests: Vec<Request>,
    steps: Vec<Step>,
    /// Position of the node being lowered.
    now: usize,
    /// Position of the last node that changes a state; the tail is behind it.
    last_state: Option<usize>,
    head: Option<Head>,
    /// Additions that another step has already made, and reshapes before them.
    merged: HashMap<NodeId, View>,
    /// Values in the order in which they got their places.
    placed: Vec<ValueId>,
    /// Nodes that no step computes and nobody has read yet.
    later: Vec<NodeId>,
    islands: Vec<Island>,
    /// Keys and values among what is given.
    crossed: Vec<Crossed>,
    dtype: KvDType,
    media: MediaInputs,
}

/// Lowers `graph` for calls of at most `rows` positions; keys and values are stored as `dtype`.
pub(crate) fn lower(
    graph: &Graph,
    bundle: &Arc<Bundle>,
    bindings: &BTreeMap<String, String>,
    rows: usize,
    dtype: KvDType,
    kernels: &'static Kernels,
) -> Result<Lowered> {
    let unsupported = |message: &str| Error::Unsupported {
        node: format!("component {}", graph.name),
        message: message.to_owned(),
    };
    let [(_, logits)] = graph.outputs() else {
        return Err(unsupported("expected a graph with one output, the logits"));
    };
    let is_ids = |v: &ValueId| graph.ty(*v).shape.contains(&Dim::symbol(cactus_ir::SEQ));
    let (ids, others): (Vec<ValueId>, Vec<ValueId>) = graph.inputs().iter().partition(|v| is_ids(v));
    let (media, ids): (Vec<ValueId>, Vec<ValueId>) = ids.into_iter().partition(|v| media::is_input(graph, *v));
    let [ids] = ids[..] else {
        return Err(unsupported(
            "expected a graph with one input that has an axis of positions, the token ids, and perhaps the rows of media",
        ));
    };
    let split = Split::new(graph, &others)?;
    let changes = |n: &NodeId| graph.node(*n).op.changes_state();
    let mut l = Lowerer {
        graph,
        bundle,
        bindings,
        rows,
        uses: graph.uses(),
        position: graph.order().iter().enumerate().map(|(i, &n)| (n, i)).collect(),
        places: HashMap::from([(ids, Place::Ids)]),
        quantized: HashMap::new(),
        rotated: HashMap::new(),
        rope_tables: Vec::new(),
        weights: Vec::new(),
        weight_index: HashMap::new(),
        requests: Vec::new(),
        steps: Vec::new(),
        now: 0,
        last_state: graph.order().iter().rposition(changes),
        head: Head::find(graph, *logits),
        merged: HashMap::new(),
        placed: Vec::new(),
        later: Vec::new(),
        islands: Vec::new(),
        crossed: Vec::new(),
        dtype,
        media: MediaInputs::default(),
    };
    if let Some(split) = &split {
        l.place_given(split);
    }
    l.place_media(&media)?;
    let (mut tail, mut tail_buffers) = (0, 0);
    for (now, (id, node)) in graph.nodes().enumerate() {
        l.now = now;
        let given = split.as_ref().is_some_and(|s| s.nodes.contains(&id));
        if given || l.head.as_ref().is_some_and(|h| h.links.contains(&id)) {
            continue;
        }
        l.node_or_later(id, node)?;
        if node.op.changes_state() {
            (tail, tail_buffers) = (l.steps.len(), l.requests.len());
            // The tail reads some rows of what was made before it, which quantized rows are not laid out for.
            l.quantized.clear();
            l.rotated.clear();
            if Some(now) == l.last_state {
                l.rope_tables.clear();
            }
        }
    }
    let vocab_size = l.logits(*logits)?;
    // The tail may run several times, for some rows each time: what it reads from before must outlive every run.
    let mut tail_reads = Vec::new();
    for (buffer, r) in l.requests.iter_mut().enumerate() {
        if r.first < tail && r.last >= tail {
            r.last = l.steps.len();
            tail_reads.push((buffer, r.bytes / rows.max(1)));
        }
    }
    let (offsets, arena_bytes) = plan(&l.requests);
    Ok(Lowered {
        tail,
        tail_reads,
        weights: l.weights,
        offsets,
        sizes: l.requests.iter().map(|r| r.bytes).collect(),
        arena_bytes,
        buffers_bytes: l.requests.iter().map(|r| r.bytes).sum(),
        vocab_size,
        tail_buffers,
        islands: l.islands,
        given: match split {
            Some(split) => Some(split.finish(bundle, bindings, kernels, &l.steps)?),
            None => None,
        },
        crossed: l.crossed,
        media: l.media,
        steps: l.steps,
    })
}

impl Lowerer<'_> {
    fn fail<T>(&self, node: &Node, message: impl Into<String>) -> Result<T> {
        Err(Error::Unsupported {
            node: format!("{}/{}", node.path, node.op.mnemonic()),
            message: message.into(),
        })
    }

    // ---- buffers

    fn buffer(&mut self, bytes: usize) -> Buffer {
        let now = self.steps.len();
        self.requests.push(Request {
            bytes,
            first: now,
            last: now,
        });
        self.requests.len() - 1
    }

    /// Most rows of the steps being made.
    fn rows_here(&self) -> usize {
        match self.last_state {
            Some(last) if self.now <= last => self.rows,
            _ => self.rows.min(TAIL_ROWS),
        }
    }

    fn rows_buffer(&mut self, node: &Node, width: usize) -> Result<Buffer> {
        match self.rows_here().checked_mul(width).and_then(|n| n.checked_mul(4)) {
            Some(bytes) => Ok(self.buffer(bytes)),
            None => self.fail(node, "the activation is larger than the address space"),
        }
    }

    fn touch(&mut self, buffer: Buffer) {
        self.requests[buffer].last = self.steps.len();
    }

    /// Appends a step; every buffer that `kind` names stays alive until it.
    fn push(&mut self, node: &Node, kind: Kind) {
        let mut touched = Vec::new();
        let rows = |r: &Rows| match *r {
            Rows::F32(v) => v.buffer,
            Rows::Quantized(b) | Rows::Rotated(b) => b,
        };
        match &kind {
            Kind::Embed { out, .. } => touched.push(*out),
            Kind::RopeTable { table, .. } => touched.push(*table),
            Kind::Rope { x, table, .. } | Kind::NormRopeHeads { x, table, .. } => touched.extend([x.buffer, *table]),
            Kind::NormAdd { x, residual, next, .. } => {
                touched.extend([x.buffer, residual.buffer]);
                touched.extend(next.map(|n| n.out));
            }
            Kind::RmsNormHeads { x, .. } => touched.push(x.buffer),
            Kind::RmsNorm { x, out, .. }
            | Kind::RmsNormQuantize { x, out, .. }
            | Kind::Gated { x, out, .. }
            | Kind::GatedQuantize { x, out, .. }
            | Kind::LayerNorm { x, out, .. }
            | Kind::LayerNormHeads { x, out, .. }
            | Kind::Quantize { x, out }
            | Kind::Rotate { x, out }
            | Kind::Copy { x, out }
            | Kind::Media { x, out, .. }
            | Kind::ShortConv { x, out, .. }
            | Kind::Unary { x, out, .. } => touched.extend([x.buffer, *out]),
            Kind::Linear { x, out, .. } => touched.extend([rows(x), *out]),
            Kind::Head { x, .. } => touched.push(rows(x)),
            Kind::Logits { x } => touched.push(x.buffer),
            Kind::Experts(e) => touched.extend([rows(&e.x), e.scores.buffer, e.scratch, e.out]),
            Kind::Island { inputs, outputs, .. } => {
                touched.extend(outputs.iter().map(|(b, _)| *b));
                touched.extend(inputs.iter().filter_map(|i| match i {
                    Input::Rows(v) => Some(v.buffer),
                    _ => None,
                }));
            }
            Kind::GatedDelta {
                q,
                k,
                v,
                decay,
                rate,
                out,
                ..
            } => {
                touched.extend([q, k, v, decay, rate].map(|x| x.buffer));
                touched.push(*out);
            }
            Kind::Decays {
                step,
                rate,
                decay,
                learned,
                ..
            } => touched.extend([step.buffer, rate.buffer, *decay, *learned]),
            Kind::GatedRows {
                gate, up, scratch, out, ..
            } => touched.extend([gate.buffer, up.buffer, *scratch, *out]),
            Kind::AltupPredict { x, routes, scratch, .. } => touched.extend([x.buffer, routes.buffer, *scratch]),
            Kind::AltupCorrect {
                x,
                new,
                routes,
                scratch,
                ..
            } => touched.extend([x.buffer, new.buffer, routes.buffer, *scratch]),
            Kind::AddToEach { x, y } => touched.extend([x.buffer, y.buffer]),
            Kind::CrossAttention { q, out, .. } => touched.extend([q.buffer, *out]),
            Kind::Attention { q, new, out, .. } => {
                touched.extend([q.buffer, *out]);
                touched.extend(new.iter().flatten().map(|view| view.buffer));
            }
            Kind::Binary { a, b, out, .. } => touched.extend([a.buffer, b.buffer, *out]),
            Kind::BinaryScalar { a, out, .. } | Kind::BinaryVector { a, out, .. } => touched.extend([a.buffer, *out]),
        }
        for b in touched {
            self.touch(b);
        }
        let label = self.label(node, &kind);
        self.steps.push(Step { kind, label });
    }

    fn label(&self, node: &Node, kind: &Kind) -> String {
        match kind {
            Kind::Island { island, .. } => format!("{} ({} operations)", node.path, self.islands[*island].len()),
            Kind::Linear { weight, .. } | Kind::Head { weight, .. } | Kind::Embed { table: weight, .. } => {
                let w = self.bundle.weight_at(self.weights[*weight]);
                format!("{} {:?} {}", node.path, w.dims, w.packing)
            }
            _ => node.path.clone(),
        }
    }

    // ---- operands

    fn weight(&mut self, node: &Node, v: ValueId) -> Result<usize> {
        if let Some(&i) = self.weight_index.get(&v) {
            return Ok(i);
        }
        let value = self.graph.value(v);
        if !matches!(value.def, Def::Weight(_)) {
            return self.fail(node, "expected the operand to be a weight");
        }
        let index = self
            .bindings
            .get(&value.name)
            .and_then(|stored| self.bundle.weight_index(stored));
        let Some(index) = index else {
            return self.fail(node, format!("the bundle has no tensor for weight `{}`", value.name));
        };
        self.weights.push(index);
        self.weight_index.insert(v, self.weights.len() - 1);
        Ok(self.weights.len() - 1)
    }

    /// A weight kept as plain `f32`.
    fn vector(&mut self, node: &Node, v: ValueId) -> Result<usize> {
        let i = self.weight(node, v)?;
        let w = self.bundle.weight_at(self.weights[i]);
        if w.packing != Packing::RowMajor {
            return self.fail(node, format!("expected a plain f32 tensor, found {}", w.packing));
        }
        Ok(i)
    }

    /// An operand that does not change.
    fn fixed(&mut self, node: &Node, operand: usize) -> Result<Fixed> {
        let v = node.inputs[operand];
        match &self.graph.value(v).def {
            Def::Literal(Literal::F32(numbers)) => Ok(Fixed::Given(numbers.clone())),
            _ => Ok(Fixed::Weight(self.vector(node, v)?)),
        }
    }

    fn view(&self, node: &Node, v: ValueId) -> Result<View> {
        match self.places.get(&v) {
            Some(Place::Rows(view)) => Ok(*view),
            _ => self.fail(node, "expected an operand with one row for each position"),
        }
    }

    /// Width of a row of `[batch, seq, …]` or `[seq, width]`.
    fn width(&self, node: &Node, ty: &TensorType) -> Result<usize> {
        let one_sequence = |d: &Dim| *d == Dim::symbol(cactus_ir::BATCH) || d.is(1);
        let seq = Dim::symbol(cactus_ir::SEQ);
        let (rowwise, first) = match &ty.shape[..] {
            [rows, _] => (*rows == seq, 1),
            [batch, rows, _, ..] => (one_sequence(batch) && *rows == seq, 2),
            _ => (false, 0),
        };
        let width = ty
            .shape
            .iter()
            .skip(first)
            .try_fold(1usize, |n, d| d.as_known().and_then(|d| n.checked_mul(d)));
        match width {
            Some(w) if rowwise => Ok(w),
            _ => self.fail(node, format!("expected an activation [batch, seq, …], found {ty}")),
        }
    }

    /// Rows of `v` without gaps: a copy where it is a view into wider rows.
    fn whole(&mut self, node: &Node, v: ValueId) -> Result<View> {
        let view = self.view(node, v)?;
        if view.is_whole() {
            return Ok(view);
        }
        let buffer = self.rows_buffer(node, view.width)?;
        self.push(node, Kind::Copy { x: view, out: buffer });
        Ok(View::of(buffer, view.width))
    }

    fn single_use(&self, v: ValueId) -> bool {
        self.uses[v.index()].len() == 1 && self.graph.outputs().iter().all(|(_, o)| *o != v)
    }

    fn packing(&self, v: ValueId) -> Option<Packing> {
        let stored = self.bindings.get(&self.graph.value(v).name)?;
        Some(self.bundle.weight_at(self.bundle.weight_index(stored)?).packing)
    }

    /// Whether a linear with this weight reads quantized rows.
    fn reads_quantized(&self, weight: ValueId) -> bool {
        self.packing(weight).is_some_and(|p| p == Packing::Int8G32)
    }

    fn quantized_buffer(&mut self, node: &Node, width: usize) -> Result<Buffer> {
        match QuantizedRows::bytes(self.rows_here(), width) {
            Some(bytes) => Ok(self.buffer(bytes)),
            None => self.fail(node, "the activation is larger than the address space"),
        }
    }

    /// Whether INT8 linears alone read `v`, before positions mix again: then whoever makes it quantizes it, and its `f32`
    /// rows exist nowhere.
    fn only_quantized(&self, v: ValueId) -> bool {
        let uses = &self.uses[v.index()];
        let last = uses.iter().map(|n| self.position[n]).max().unwrap_or(self.now);
        let mixes = |n: &NodeId| self.graph.node(*n).op.changes_state();
        if self.graph.order()[self.now..last].iter().any(mixes) {
            return false;
        }
        let reads = |n: &NodeId| {
            let node = self.graph.node(*n);
            matches!(node.op, Op::Linear) && node.inputs[0] == v && self.reads_quantized(node.inputs[1])
        };
        !uses.is_empty() && uses.iter().all(reads) && self.graph.outputs().iter().all(|(_, o)| *o != v)
    }

    /// A new buffer for the quantized rows of the result `v`.
    fn fresh_quantized(&mut self, node: &Node, v: ValueId, width: usize) -> Result<Buffer> {
        let buffer = self.quantized_buffer(node, width)?;
        self.quantized.insert(v, buffer);
        Ok(buffer)
    }

    /// A new whole buffer for the result `v`.
    fn fresh(&mut self, node: &Node, v: ValueId, width: usize) -> Result<Buffer> {
        let buffer = self.rows_buffer(node, width)?;
        self.place(v, Place::Rows(View::of(buffer, width)))?;
        Ok(buffer)
    }

    /// Records where `v` is, and so where every reshape and slice of it is.
    fn place(&mut self, v: ValueId, place: Place) -> Result<()> {
        self.places.insert(v, place);
        self.placed.push(v);
        for user in self.uses[v.index()].clone() {
            let node = self.graph.node(user);
            let out = node.outputs[0];
            let seen = match (&node.op, place) {
                (Op::Reshape { .. }, Place::Rows(_)) if self.width(node, self.graph.ty(out)).is_ok() => place,
                // `[seq]` as `[1, seq]`.
                (Op::Reshape { .. }, Place::Positions) => place,
                (_, Place::Media(part)) => match part.seen(node, self.graph.ty(out)) {
                    Some(part) => Place::Media(part),
                    None => continue,
                },
                (Op::Slice { axis, start, .. }, Place::Rows(view)) => match self.cut(node, view, *axis, start) {
                    Ok(cut) => Place::Rows(cut),
                    Err(_) => continue,
                },
                _ => continue,
            };
            self.place(out, seen)?;
        }
        Ok(())
    }

    /// Whether the rows of `v` may be overwritten by the step being lowered: no other value that overlaps them has a
    /// reader that is still to come.
    fn exclusive(&self, v: ValueId, view: View) -> bool {
        let is_output = |v: ValueId| self.graph.outputs().iter().any(|(_, o)| *o == v);
        self.places.iter().all(|(&other, place)| {
            let (Place::Rows(o) | Place::Turned(o)) = place else {
                return true;
            };
            let apart =
                o.buffer != view.buffer || o.offset + o.width <= view.offset || view.offset + view.width <= o.offset;
            let read = || {
                self.uses[other.index()].iter().all(|n| {
                    let is_view = matches!(self.graph.node(*n).op, Op::Reshape { .. } | Op::Slice { .. });
                    (is_view && !self.later.contains(n)) || self.is_done(*n)
                })
            };
            other == v || apart || (read() && !is_output(other))
        })
    }

    // ---- nodes

    fn node(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let out = node.outputs[0];
        match &node.op {
            Op::Iota { start, len } => {
                let fits = *start == Dim::symbol(cactus_ir::PAST) && *len == Dim::symbol(cactus_ir::SEQ);
                if !fits {
                    return self.fail(
                        node,
                        format!("expected positions that begin at `past` and count `seq`; found a beginning of {start} and a count of {len}"),
                    );
                }
                self.place(out, Place::Positions)
            }
            Op::Embedding => {
                let positions = match self.places.get(&node.inputs[1]) {
                    Some(Place::Ids) => false,
                    Some(Place::Positions) => true,
                    _ => return self.fail(node, "expected the indices to be the token ids or their positions"),
                };
                let ty = self.graph.ty(out);
                let width = match ty.last_known() {
                    Some(width) if positions => width,
                    _ => self.width(node, ty)?,
                };
                let table = self.weight(node, node.inputs[0])?;
                let out = self.fresh(node, out, width)?;
                self.push(node, Kind::Embed { table, positions, out });
                Ok(())
            }
            Op::Linear => self.linear(node),
            Op::Reshape { .. } | Op::Slice { .. } if self.places.contains_key(&out) => Ok(()),
            Op::Reshape { .. } if self.merged.remove(&id).is_some() => Ok(()),
            Op::RmsNorm { eps } => self.rms_norm(node, *eps),
            Op::LayerNorm { eps } => self.layer_norm(node, *eps),
            Op::Rope { scale, interleaved } => self.rope(node, *scale, *interleaved),
            Op::NormRope { eps, scale } => self.norm_rope(node, *eps, *scale),
            Op::NormAdd { eps } => self.norm_add(id, node, *eps),
            Op::Attention(a) => {
                let Some(state) = a.state.as_deref() else {
                    if let Some(crossed) = self.crossed(node, a) {
                        return self.cross_attention(node, a, crossed);
                    }
                    return self.fail(
                        node,
                        "expected attention with a KV state, which the pass `insert_states` adds",
                    );
                };
                let state = self.state_index(node, state)?;
                let q = self.view(node, node.inputs[0])?;
                let new = match a.appended {
                    true => None,
                    false => Some([self.view(node, node.inputs[1])?, self.view(node, node.inputs[2])?]),
                };
                self.until(node, a)?;
                let heads = self.graph.ty(out).shape[2].as_known().unwrap_or(0);
                let sinks = a.sinks_operand().map(|i| self.fixed(node, i)).transpose()?;
                let slopes = a.slopes_operand().map(|i| self.fixed(node, i)).transpose()?;
                let buffer = self.fresh(node, out, q.width)?;
                let kind = Kind::Attention {
                    state,
                    q,
                    new,
                    heads,
                    attrs: a.clone(),
                    sinks,
                    slopes,
                    out: buffer,
                };
                self.push(node, kind);
                Ok(())
            }
            Op::GatedDelta {
                steps,
                state: Some(state),
            } => self.gated_delta(node, *steps, state),
            Op::ShortConv { activation, state } => self.short_conv(node, *activation, state.as_deref()),
            Op::Gated { activation, above } => self.gated(node, *activation, *above),
            Op::AltupPredict => self.altup_predict(node),
            Op::AltupCorrect { active } => self.altup_correct(node, *active),
            Op::SliceAdd { axis, start, end } => self.slice_add(node, *axis, [*start, *end]),
            Op::NormGate { eps, activation } => self.norm_gate(node, *eps, *activation),
            Op::Unary { f } => {
                let Some(f) = kernel_names::unary(*f) else {
                    return self.fail(node, "there is no kernel for this function");
                };
                let view = self.view(node, node.inputs[0])?;
                let buffer = self.fresh(node, out, view.width)?;
                let kind = Kind::Unary {
                    f,
                    x: view,
                    out: buffer,
                };
                self.push(node, kind);
                Ok(())
            }
            Op::Binary { f } => self.binary(id, node, *f),
            Op::RoutedExperts { activation, route } => self.routed_experts(node, *activation, route),
            Op::Where => self.media(node),
            _ => self.fail(node, "there is no kernel for this operation in a model with states"),
        }
    }

    fn state_index(&self, node: &Node, name: &str) -> Result<usize> {
        match self.graph.states().iter().position(|s| s.name == name) {
            Some(i) => Ok(i),
            None => self.fail(node, format!("the graph does not declare the state `{name}`")),
        }
    }

    /// The part of `view` that a slice keeps.
    fn cut(&self, node: &Node, view: View, axis: usize, start: &Dim) -> Result<View> {
        let ty = self.graph.ty(node.inputs[0]);
        let width = self.width(node, self.graph.ty(node.outputs[0]))?;
        let before: Option<usize> = ty.shape[2..axis.max(2)].iter().map(Dim::as_known).product();
        let after: Option<usize> = ty.shape[axis + 1..].iter().map(Dim::as_known).product();
        match (before, after, start.as_known()) {
            (Some(1), Some(after), Some(start)) if axis >= 2 => Ok(View {
                offset: view.offset + start * after,
                width,
                ..view
            }),
            _ => self.fail(
                node,
                format!("expected a slice within rows, found one of axis {axis} of {ty}"),
            ),
        }
    }
}
