//! Scaled dot-product attention, one query row at a time.

use crate::linear::dot;
use crate::reduce::softmax_row;
use crate::{Error, ErrorKind, Result};
use cactus_ir::AttentionAttrs;
use cactus_tensor::Tensor;

/// `(q [batch, seq, heads, head_dim], k, v [batch, keys, kv_heads, head_dim], sinks? [heads], slopes? [heads],
/// texts? i64 [seq], until? i64 [seq], bias? [batch|1, heads|1, seq|1, keys]) -> like q`, where the queries stand at positions `past..past+seq` and the keys at
/// `0..keys`. Where attention may be on integers, this is what it approximates: the attribute changes nothing here.
pub(crate) fn attention(attrs: &AttentionAttrs, operands: &[&Tensor], past: usize) -> Result<Tensor> {
    let [q, k, v] = [0, 1, 2].map(|i| operands[i]);
    let of_heads = |at: Option<usize>| at.map(|at| operands[at].as_f32()).transpose();
    let sinks = of_heads(attrs.sinks_operand())?;
    let slopes = of_heads(attrs.slopes_operand())?;
    let texts = attrs.texts_operand().map(|at| operands[at].as_i64()).transpose()?;
    if texts.is_some_and(|texts| texts.windows(2).any(|two| two[1] < two[0])) {
        let what = "the numbers of texts fall; the positions of a text stand together, in ascending order";
        return Err(Error::new(ErrorKind::Value, what));
    }
    let until = attrs.until_operand().map(|at| operands[at].as_i64()).transpose()?;
    let until = until.map(|until| last_seen(until, past, k.shape()[1])).transpose()?;
    let bias = operands.get(attrs.bias_operand());
    let [batch, seq, heads, dim] = [q.shape()[0], q.shape()[1], q.shape()[2], q.shape()[3]];
    let [keys, kv_heads] = [k.shape()[1], k.shape()[2]];
    let (qd, kd, vd) = (q.as_f32()?, k.as_f32()?, v.as_f32()?);
    let bias = bias.map(|b| Ok::<_, Error>((b.shape(), b.as_f32()?))).transpose()?;
    // Axes of size 1 are broadcast.
    let added = |at: [usize; 4]| {
        bias.map_or(0.0, |(shape, data)| {
            let index = at.iter().zip(shape).fold(0, |i, (&at, &n)| i * n + at.min(n - 1));
            f64::from(data[index])
        })
    };
    let mut out = Vec::with_capacity(qd.len());
    for b in 0..batch {
        for t in 0..seq {
            let position = past + t;
            let visible: Vec<usize> = (0..keys)
                .filter(|&j| sees(attrs, position, until.as_ref().map_or(position, |until| until[t]), j))
                .filter(|&j| texts.is_none_or(|texts| texts[t] == texts[j]))
                .collect();
            for h in 0..heads {
                let query = &qd[((b * seq + t) * heads + h) * dim..][..dim];
                let row = |j: usize| ((b * keys + j) * kv_heads + h / (heads / kv_heads)) * dim;
                let mut scores: Vec<f64> = visible
                    .iter()
                    .map(|&j| {
                        let score = dot(query, &kd[row(j)..][..dim]) * f64::from(attrs.scale);
                        let score = match attrs.softcap.map(f64::from) {
                            Some(cap) => cap * (score / cap).tanh(),
                            None => score,
                        };
                        let slope = slopes.map_or(0.0, |s| f64::from(s[h]));
                        score + slope * (j as f64 - position as f64) + added([b, h, t, j])
                    })
                    .collect();
                // It has its share of the softmax, and no value.
                scores.extend(sinks.map(|s| f64::from(s[h])));
                let weights = softmax_row(&scores);
                for i in 0..dim {
                    let terms = visible.iter().zip(&weights);
                    let sum: f64 = terms.map(|(&j, w)| w * f64::from(vd[row(j) + i])).sum();
                    out.push(sum as f32);
                }
            }
        }
    }
    Ok(Tensor::from_f32(q.shape(), out)?)
}

/// The last positions that queries from `past` on see of `keys`.
fn last_seen(until: &[i64], past: usize, keys: usize) -> Result<Vec<usize>> {
    let mut least = 0;
    let each = until.iter().zip(past..).map(|(&until, position)| {
        let last = usize::try_from(until).ok().filter(|last| (least.max(position)..keys).contains(last));
        least = last.unwrap_or(least);
        last.ok_or_else(|| {
            let what = format!(
                "the query at position {position} of {keys} sees up to position {until}; expected its own or a later one, not before \
                 that of the query before"
            );
            Error::new(ErrorKind::Value, what)
        })
    });
    each.collect()
}

/// Whether the query at `position`, where causal attention sees keys up to `last`, sees the one at `key`.
fn sees(attrs: &AttentionAttrs, position: usize, last: usize, key: usize) -> bool {
    let past_end = attrs.causal && key > last;
    let too_far = attrs.ahead.is_some_and(|ahead| key >= position.saturating_add(ahead));
    let too_old = attrs
        .window
        .is_some_and(|window| position >= key && position - key >= window);
    let other_chunk = attrs.chunk.is_some_and(|chunk| key / chunk < position / chunk);
    !past_end && !too_far && !too_old && !other_chunk
}
