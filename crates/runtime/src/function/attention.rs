//! Attention without a cache, in `f32`: products of packed keys and values, head by head.

use cactus_ir::AttentionAttrs;
use cactus_kernels::dense::packed_bytes;
use cactus_kernels::{BinaryOp, Exec, UnaryOp};

/// Bytes of scratch memory for queries and keys of these shapes, `[batch, positions, heads, width]`.
pub(super) fn scratch_bytes(q: &[usize], k: &[usize]) -> usize {
    let [queries, keys, width] = [q[1], k[1], q[3]];
    packed_bytes(keys, width) + packed_bytes(width, keys) + 4 * (2 * queries * width + 2 * queries * keys)
}

/// `out [batch, queries, heads, width]`. Positions of queries are their indices.
pub(super) fn attention(
    exec: &Exec<'_>,
    a: &AttentionAttrs,
    [q_shape, k_shape]: [&[usize]; 2],
    [q, k, v]: [&[f32]; 3],
    out: &mut [f32],
    scratch: &mut [f32],
) {
    let [batch, queries, heads, width] = [q_shape[0], q_shape[1], q_shape[2], q_shape[3]];
    let (keys, kv_heads) = (k_shape[1], k_shape[2]);
    if queries == 0 || keys == 0 || heads == 0 || width == 0 {
        return out.fill(0.0);
    }
    let (packed_keys, rest) = scratch.split_at_mut(packed_bytes(keys, width) / 4);
    let (packed_values, rest) = rest.split_at_mut(packed_bytes(width, keys) / 4);
    let (head, rest) = rest.split_at_mut(queries * width);
    let (result, rest) = rest.split_at_mut(queries * width);
    let (scores, rest) = rest.split_at_mut(queries * keys);
    let shares = &mut rest[..queries * keys];
    let group = heads / kv_heads;
    for b in 0..batch {
        for h in 0..heads {
            let kv = (b * keys * kv_heads + h / group) * width;
            if h % group == 0 {
                exec.pack_rows(&k[kv..], keys, width, kv_heads * width, packed_keys);
                exec.pack_columns(&v[kv..], width, keys, kv_heads * width, packed_values);
            }
            let first = (b * queries * heads + h) * width;
            for (i, row) in head.chunks_exact_mut(width).enumerate() {
                row.copy_from_slice(&q[first + i * heads * width..][..width]);
            }
            exec.product(head, packed_keys, [queries, width, keys], false, scores);
            exec.binary(BinaryOp::Mul, scores, &[a.scale], shares);
            if let Some(cap) = a.softcap {
                exec.binary(BinaryOp::Div, shares, &[cap], scores);
                exec.unary(UnaryOp::Tanh, scores, shares);
                scores.copy_from_slice(shares);
                exec.binary(BinaryOp::Mul, scores, &[cap], shares);
            }
            for (i, row) in shares.chunks_exact_mut(keys).enumerate() {
                if a.causal {
                    row[(i + 1).min(keys)..].fill(f32::NEG_INFINITY);
                }
                if let Some(window) = a.window {
                    row[..(i + 1).saturating_sub(window).min(keys)].fill(f32::NEG_INFINITY);
                }
            }
            exec.softmax_rows(shares, queries, keys, scores);
            exec.product(scores, packed_values, [queries, keys, width], false, result);
            for (i, row) in result.chunks_exact(width).enumerate() {
                out[first + i * heads * width..][..width].copy_from_slice(row);
            }
        }
    }
}
