//! Attention and positions.

use super::node_graph::{Attend, Error, GraphOp, Precision};
use super::open::{add, id, put_node, with, with_bias};
use crate::failure::Failure;
use crate::guard;
use crate::input::values;
use std::ffi::{c_int, c_void};

/// Elements of a cached row that share a scale.
const CACHE_GROUP: usize = 32;

fn cached(scale: f32, causal: bool, window: usize) -> Attend {
    Attend {
        scale,
        causal,
        offset: None,
        window,
        mask: false,
        additive: false,
    }
}

/// Rows of whole numbers with their scales.
fn scaled(rows: &[i8], scales: &[f32], width: usize) -> Vec<f32> {
    let groups = width.div_ceil(CACHE_GROUP);
    let value = |(i, &v): (usize, &i8)| f32::from(v) * scales[i / width * groups + i % width / CACHE_GROUP];
    rows.iter().enumerate().map(value).collect()
}

/// Rotary embedding of the halves of each head of `[batch, seq, heads, head_dim]`; the first row has position
/// `position_offset`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_rope(
    graph: *mut c_void,
    x: u64,
    theta: f32,
    position_offset: usize,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "rope",
            GraphOp::Rope {
                theta,
                offset: position_offset,
                rotary: 0,
                interleaved: false,
            },
            &[x],
            out,
        )
    })
}

/// Rotary embedding of neighbors, of the first `rotary` elements of each head; 0 for all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_rope_gptj(
    graph: *mut c_void,
    x: u64,
    theta: f32,
    position_offset: usize,
    rotary: usize,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "rope_gptj",
            GraphOp::Rope {
                theta,
                offset: position_offset,
                rotary,
                interleaved: true,
            },
            &[x],
            out,
        )
    })
}

/// `(q [batch, seq, heads, d], k [batch, keys, kv_heads, d], v [batch, keys, kv_heads, e]) -> [batch, seq, heads, e]`.
/// The first query has position `position_offset` and sees `window` keys before its own at most (0 for all). The mask is
/// `[batch, seq, keys]` or `[batch, heads, seq, keys]`, added to the scores where `additive`, else 0 where a key is not
/// seen.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_attention(
    graph: *mut c_void,
    query: u64,
    key: u64,
    value: u64,
    scale: f32,
    causal: bool,
    position_offset: usize,
    window: usize,
    use_mask: bool,
    mask: u64,
    additive: bool,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        let attend = Attend {
            scale,
            causal,
            offset: Some(position_offset).filter(|&o| o != usize::MAX),
            window,
            mask: use_mask,
            additive,
        };
        // SAFETY: the caller's promise about `out`.
        unsafe {
            add(
                graph,
                "attention",
                GraphOp::Attention(attend),
                with_bias(&[query, key, value, mask], use_mask),
                out,
            )
        }
    })
}

/// Causal attention of the last positions of two caches: the new keys and values have been appended to them.
/// `position_offset` is where the caches say, so that it is not read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_attention_cached(
    graph: *mut c_void,
    query: u64,
    key: u64,
    value: u64,
    key_cache: u64,
    value_cache: u64,
    scale: f32,
    position_offset: usize,
    window: usize,
    value_dim: usize,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        let _ = position_offset;
        let attend = cached(scale, true, window);
        // SAFETY: the caller's promise about `out`.
        unsafe {
            add(
                graph,
                "attention_cached",
                GraphOp::AttentionCached { attend, value_dim },
                &[query, key, value, key_cache, value_cache],
                out,
            )
        }
    })
}

/// As `cactus_graph_attention_cached`, with a mask as of `cactus_graph_attention`, whose first columns count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_attention_cached_masked(
    graph: *mut c_void,
    query: u64,
    key: u64,
    value: u64,
    key_cache: u64,
    value_cache: u64,
    scale: f32,
    position_offset: usize,
    window: usize,
    value_dim: usize,
    causal: bool,
    mask: u64,
    additive: bool,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        let _ = position_offset;
        let attend = Attend {
            mask: true,
            additive,
            ..cached(scale, causal, window)
        };
        // SAFETY: the caller's promise about `out`.
        unsafe {
            add(
                graph,
                "attention_cached_masked",
                GraphOp::AttentionCached { attend, value_dim },
                &[query, key, value, key_cache, value_cache, mask],
                out,
            )
        }
    })
}

/// `(q [batch, seq, heads, d], relative [batch or 1, 2 seq - 1 or more, heads, d]) -> [batch, heads, seq, seq]`: scores
/// of distances.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_rel_pos_bias(
    graph: *mut c_void,
    query: u64,
    relative: u64,
    scale: f32,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "rel_pos_bias",
            GraphOp::RelPosBias { scale },
            &[query, relative],
            out,
        )
    })
}

/// Attention to both sides with scores of distances of a second query; the mask `[batch, seq]` is added.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_rel_pos_attention(
    graph: *mut c_void,
    query: u64,
    key: u64,
    value: u64,
    relative_query: u64,
    relative_key: u64,
    use_mask: bool,
    mask: u64,
    scale: f32,
    window: usize,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "rel_pos_attention",
            GraphOp::RelPosAttention {
                scale,
                window,
                mask: use_mask,
            },
            with_bias(&[query, key, value, relative_query, relative_key, mask], use_mask),
            out,
        )
    })
}

/// Attention to a cache of whole numbers with a scale for each 32 elements of a row, and to new keys and values behind it. The
/// cache `[cache_len, kv_heads, head_dim]` and its scales are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_attention_int8_hybrid(
    graph: *mut c_void,
    query: u64,
    key: u64,
    value: u64,
    scale: f32,
    position_offset: usize,
    cached_keys: *const i8,
    cached_values: *const i8,
    key_scales: *const f32,
    value_scales: *const f32,
    cache_len: usize,
    kv_heads: usize,
    head_dim: usize,
    window: usize,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        let sizes = cache_len.checked_mul(kv_heads).and_then(|rows| {
            Some((
                rows.checked_mul(head_dim)?,
                rows.checked_mul(head_dim.div_ceil(CACHE_GROUP))?,
            ))
        });
        let Some((elements, scales)) = sizes.filter(|_| head_dim > 0) else {
            return Err(Failure::argument("the sizes of the cache are no sizes of an array"));
        };
        // SAFETY: the caller's promise about the cache.
        let (k, v, ks, vs) = unsafe {
            (
                values(cached_keys, elements, "cached_keys")?,
                values(cached_values, elements, "cached_values")?,
                values(key_scales, scales, "key_scales")?,
                values(value_scales, scales, "value_scales")?,
            )
        };
        let (k, v) = (scaled(k, ks, head_dim), scaled(v, vs, head_dim));
        let made = with(graph, |g| {
            if g.info(id(query)?)?.shape.first() != Some(&1) {
                return Err(Error::shape("a cache holds one sequence; expected a query [1, seq, …]"));
            }
            let shape = [1, cache_len, kv_heads, head_dim];
            let mut joined = [0; 2];
            for (to, (values, new)) in joined.iter_mut().zip([(k, key), (v, value)]) {
                let cache = g.constant(&shape, values, Precision::Fp16)?;
                *to = g.add(GraphOp::Concat { axis: 1 }, &[cache, id(new)?])?;
            }
            let attend = Attend {
                offset: Some(position_offset).filter(|&o| o != usize::MAX),
                ..cached(scale, true, window)
            };
            g.add(GraphOp::Attention(attend), &[id(query)?, joined[0], joined[1]])
        });
        // SAFETY: the caller's promise about `out`.
        unsafe { put_node(out, made?) }
    })
}
