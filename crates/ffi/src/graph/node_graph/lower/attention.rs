//! Attention: positions and masks become a bias on the scores, and the rest is one operation.

use super::{Lower, Operands, dims};
use crate::graph::node_graph::op::Attend;
use crate::graph::node_graph::{Error, Result};
use cactus_ir::{AttentionAttrs, BinaryFn as Bin, CompareFn, Dim, Op, ReduceFn, ValueId};

const NOT_SEEN: f32 = f32::NEG_INFINITY;

impl Lower {
    pub(super) fn attention(&mut self, v: &[ValueId], attend: &Attend) -> Result<ValueId> {
        let (&[q, k, value], mask) = v
            .split_first_chunk::<3>()
            .ok_or_else(|| Error::argument("query, key and value are expected"))?;
        for x in [q, k, value] {
            let ty = self.b.ty(x);
            if ty.shape.len() != 4 {
                return Err(Error::shape(format!(
                    "[batch, seq, heads, head_dim] is expected, found {ty}"
                )));
            }
        }
        let (size, width) = (self.width(q)?, self.width(value)?);
        let found = self.width(k)?;
        if found != size {
            return Err(Error::shape(format!(
                "heads of keys are expected to be as wide as those of queries, {size}, found {found}"
            )));
        }
        // Zeros change neither scores nor sums, so heads of two widths become heads of the wider.
        let wide = size.max(width);
        let (q, k, value) = (self.widen(q, wide)?, self.widen(k, wide)?, self.widen(value, wide)?);
        let (queries, keys) = (self.b.shape(q)[1].clone(), self.b.shape(k)[1].clone());
        let start = match attend.offset {
            Some(offset) => Dim::known(offset),
            None => keys.sub(&queries)?,
        };
        let plain = attend.causal && start == keys.sub(&queries)? && queries == keys;
        let masked = !mask.is_empty();
        let mut bias = match plain && !masked {
            true => None,
            false => self.seen(attend, start, &queries, &keys)?,
        };
        if let Some(&mask) = mask.first() {
            bias = Some(self.mask_bias(mask, attend.additive, bias)?);
        }
        let attrs = AttentionAttrs {
            scale: attend.scale,
            causal: plain && !masked,
            window: (plain && !masked && attend.window > 0).then(|| attend.window.saturating_add(1)),
            ..AttentionAttrs::default()
        };
        let mut operands = vec![q, k, value];
        operands.extend(bias);
        let mut out = self.b.op(Op::Attention(attrs), &operands)?;
        if let Some(bias) = bias {
            out = self.zero_where_blind(out, bias)?;
        }
        match width < wide {
            true => self.part(out, 3, 0, width),
            false => Ok(out),
        }
    }

    fn width(&self, x: ValueId) -> Result<usize> {
        let ty = self.b.ty(x);
        ty.last_known()
            .ok_or_else(|| Error::shape(format!("the heads of {ty} have no width")))
    }

    /// Heads with zeros behind.
    fn widen(&mut self, x: ValueId, wide: usize) -> Result<ValueId> {
        let mut shape = self.b.shape(x);
        let width = self.width(x)?;
        if width == wide {
            return Ok(x);
        }
        shape[3] = Dim::known(wide - width);
        let zero = self.b.scalar(0.0)?;
        let zeros = self.b.expand(zero, shape)?;
        self.join(3, &[x, zeros])
    }

    /// `[1, 1, queries, keys]`: 0 where a query sees a key by its position, minus infinity elsewhere. `None` where all see all.
    fn seen(&mut self, attend: &Attend, start: Dim, queries: &Dim, keys: &Dim) -> Result<Option<ValueId>> {
        if !attend.causal && attend.window == 0 {
            return Ok(None);
        }
        let one = Dim::known(1);
        let own = self.count(start, queries.clone(), &[queries.clone(), one.clone()])?;
        let key = self.count(Dim::known(0), keys.clone(), &[one.clone(), keys.clone()])?;
        let mut seen = None;
        if attend.causal {
            seen = Some(self.b.compare(CompareFn::Le, key, own)?);
        }
        if attend.window > 0 {
            let window = self
                .b
                .scalar_i64(i64::try_from(attend.window).unwrap_or(i64::MAX / 2))?;
            let first = self.bin(Bin::Sub, own, window)?;
            let near = self.b.compare(CompareFn::Ge, key, first)?;
            seen = Some(match seen {
                Some(seen) => self.bin(Bin::And, seen, near)?,
                None => near,
            });
        }
        let Some(seen) = seen else { return Ok(None) };
        let (zero, not) = (self.b.scalar(0.0)?, self.b.scalar(NOT_SEEN)?);
        let bias = self.b.select(seen, zero, not)?;
        Ok(Some(
            self.b
                .reshape(bias, [one.clone(), one, queries.clone(), keys.clone()])?,
        ))
    }

    /// A mask `[seq, keys]`, `[batch, seq, keys]` or `[batch, heads, seq, keys]` as bias, added to `bias`.
    fn mask_bias(&mut self, mask: ValueId, additive: bool, bias: Option<ValueId>) -> Result<ValueId> {
        let one = Dim::known(1);
        let shape = match self.b.shape(mask).as_slice() {
            [s, t] => vec![one.clone(), one, s.clone(), t.clone()],
            [b, s, t] => vec![b.clone(), one, s.clone(), t.clone()],
            all @ [_, _, _, _] => all.to_vec(),
            _ => {
                let ty = self.b.ty(mask);
                return Err(Error::shape(format!(
                    "a mask [batch, heads, seq, keys] is expected, found {ty}"
                )));
            }
        };
        let mask = self.b.reshape(mask, shape)?;
        let mask = match additive {
            true => mask,
            false => {
                let (seen, zero, not) = (self.truth(mask)?, self.b.scalar(0.0)?, self.b.scalar(NOT_SEEN)?);
                self.b.select(seen, zero, not)?
            }
        };
        match bias {
            Some(bias) => self.bin(Bin::Add, mask, bias),
            None => Ok(mask),
        }
    }

    /// A query that sees no key gets zeros, where softmax would give no number.
    fn zero_where_blind(&mut self, out: ValueId, bias: ValueId) -> Result<ValueId> {
        let best = self.reduce(ReduceFn::Max, bias, 3)?;
        let turned = self.b.permute(best, &[0, 2, 1, 3])?;
        let not = self.b.scalar(NOT_SEEN)?;
        let sees = self.b.compare(CompareFn::Gt, turned, not)?;
        let zero = self.b.scalar(0.0)?;
        Ok(self.b.select(sees, out, zero)?)
    }

    /// The caches hold the new keys and values already; `x` is query, new key, new value, cache of keys, cache of values, and
    /// perhaps a mask.
    pub(super) fn attention_cached(&mut self, x: &Operands<'_>, attend: &Attend, value_dim: usize) -> Result<ValueId> {
        let q = x.values[0];
        let batch = self.b.shape(q).first().cloned();
        if batch.as_ref().is_none_or(|b| !b.is(1)) {
            let ty = self.b.ty(q);
            return Err(Error::shape(format!(
                "a cache holds one sequence; expected a query [1, seq, …], found {ty}"
            )));
        }
        let mut held = [q; 2];
        for (i, held) in held.iter_mut().enumerate() {
            let cache = x.ids[3 + i];
            let rows = *self
                .states
                .get(&cache)
                .ok_or_else(|| Error::argument(format!("node {cache} is not a cache of keys or values")))?;
            let mut shape = self.b.shape(rows);
            if shape.len() != 3 {
                return Err(Error::argument(format!(
                    "node {cache} is not a cache of keys or values"
                )));
            }
            shape.insert(0, Dim::known(1));
            *held = self.b.reshape(rows, shape)?;
        }
        let [k, mut value] = held;
        if value_dim > 0 && value_dim != self.width(value)? {
            value = self.part(value, 3, 0, value_dim)?;
        }
        let mut v = vec![q, k, value];
        if let Some(&mask) = x.values.get(5) {
            v.push(self.columns(mask, self.b.shape(k)[1].clone())?);
        }
        self.attention(&v, attend)
    }

    /// The last `keys` columns of a mask, which may be as wide as the cache can become.
    fn columns(&mut self, mask: ValueId, keys: Dim) -> Result<ValueId> {
        let (Some(keys), width) = (keys.as_known(), self.last(mask)?) else {
            // The sizes are known when the graph is executed.
            let mut shape = self.b.shape(mask);
            if let Some(last) = shape.last_mut() {
                *last = keys;
            }
            let zero = self.b.scalar(0.0)?;
            return Ok(self.b.expand(zero, shape)?);
        };
        if width < keys {
            return Err(Error::shape(format!(
                "the mask has {width} columns, and the cache holds {keys} positions"
            )));
        }
        let axis = self.shape(mask)?.len() - 1;
        self.part(mask, axis, 0, keys)
    }

    pub(super) fn rel_pos_bias(&mut self, [q, r]: [ValueId; 2], scale: f32) -> Result<ValueId> {
        let [_, seq, _, _] = self.four(q)?;
        let [_, distances, _, _] = self.four(r)?;
        if distances + 1 < 2 * seq {
            return Err(Error::shape(format!(
                "{distances} distances are too few for {seq} positions; expected {} or more",
                2 * seq - 1
            )));
        }
        let scores = self.distance_scores(q, r, seq.saturating_sub(1), usize::MAX)?;
        self.with(Bin::Mul, scores, scale)
    }

    /// `[batch, heads, seq, seq]`: `q_t · r` of the distance `j - t` of position `j`, of which 0 lies at `center`.
    fn distance_scores(&mut self, q: ValueId, r: ValueId, center: usize, last: usize) -> Result<ValueId> {
        let [batch, seq, heads, _] = self.four(q)?;
        let q = self.b.permute(q, &[0, 2, 1, 3])?;
        let r = self.b.permute(r, &[0, 2, 3, 1])?;
        let all = self.b.matmul(q, r)?;
        let own = self.count(Dim::known(0), Dim::known(seq), &dims(&[seq, 1]))?;
        let key = self.count(Dim::known(center), Dim::known(seq), &dims(&[1, seq]))?;
        let mut at = self.bin(Bin::Sub, key, own)?;
        if last != usize::MAX {
            let (zero, last) = (self.b.scalar_i64(0)?, self.b.scalar_i64(last as i64)?);
            at = self.bin(Bin::Max, at, zero)?;
            at = self.bin(Bin::Min, at, last)?;
        }
        let at = self.b.expand(at, dims(&[batch, heads, seq, seq]))?;
        Ok(self.b.op(Op::Gather { axis: 3 }, &[all, at])?)
    }

    pub(super) fn rel_pos_attention(
        &mut self,
        v: &[ValueId],
        scale: f32,
        window: usize,
        masked: bool,
    ) -> Result<ValueId> {
        let (&[q, k, value, rel, r], mask) = v
            .split_first_chunk::<5>()
            .ok_or_else(|| Error::argument("query, key, value, relative query and relative key are expected"))?;
        let [batch, seq, ..] = self.four(q)?;
        let distances = self.four(r)?[1];
        if distances == 0 {
            return Err(Error::shape("there are no distances"));
        }
        let (qh, kh, vh) = (
            self.b.permute(q, &[0, 2, 1, 3])?,
            self.b.permute(k, &[0, 2, 3, 1])?,
            self.b.permute(value, &[0, 2, 1, 3])?,
        );
        let content = self.b.matmul(qh, kh)?;
        let place = self.distance_scores(rel, r, (distances - 1) / 2, distances - 1)?;
        let scores = self.bin(Bin::Add, content, place)?;
        let mut scores = self.with(Bin::Mul, scores, scale)?;
        if let (true, Some(&mask)) = (masked, mask.first()) {
            let mask = self.reshape(mask, &[batch, 1, 1, seq])?;
            scores = self.bin(Bin::Add, scores, mask)?;
        }
        if window > 0 && window < seq {
            let own = self.count(Dim::known(0), Dim::known(seq), &dims(&[seq, 1]))?;
            let key = self.count(Dim::known(0), Dim::known(seq), &dims(&[1, seq]))?;
            let away = self.bin(Bin::Sub, key, own)?;
            let away = self.un(cactus_ir::UnaryFn::Abs, away)?;
            let most = self.b.scalar_i64(window as i64)?;
            let near = self.b.compare(CompareFn::Le, away, most)?;
            let not = self.b.scalar(NOT_SEEN)?;
            scores = self.b.select(near, scores, not)?;
        }
        let shares = self.b.softmax_last(scores)?;
        let out = self.b.matmul(shares, vh)?;
        Ok(self.b.permute(out, &[0, 2, 1, 3])?)
    }

    fn four(&self, x: ValueId) -> Result<[usize; 4]> {
        let shape = self.shape(x)?;
        <[usize; 4]>::try_from(shape.as_slice())
            .map_err(|_| Error::shape(format!("[batch, seq, heads, head_dim] is expected, found {shape:?}")))
    }
}
