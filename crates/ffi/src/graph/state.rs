//! Caches, and what is kept between executions.

use super::node_graph::{GraphOp, Precision};
use super::open::{add, at_least_one, change, id, put_node, sizes, with};
use crate::failure::Failure;
use crate::guard;
use crate::output::put_required;
use std::ffi::{c_int, c_void};

/// A cache of keys or of values, empty at first: up to `capacity` positions `[heads, head_dim]`, of which `window` are
/// kept (0 for all), the first `sink` always. One slot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_kv_cache_state(
    graph: *mut c_void,
    capacity: usize,
    heads: usize,
    head_dim: usize,
    window: usize,
    sink: usize,
    slots: usize,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        if slots > 1 {
            return Err(Failure::not_in_build("a cache of several slots"));
        }
        at_least_one(&[("capacity", capacity), ("heads", heads), ("head_dim", head_dim)])?;
        // SAFETY: the caller's promise about `out`.
        unsafe {
            add(
                graph,
                "kv_cache_state",
                GraphOp::KvState {
                    capacity,
                    heads,
                    head_dim,
                    window,
                    sink,
                },
                &[],
                out,
            )
        }
    })
}

/// Appends rows to a cache; gives how many positions it holds, `[1]`, FP32. 0 for what the cache says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_kv_cache_append(
    graph: *mut c_void,
    rows: u64,
    cache: u64,
    window: usize,
    sink: usize,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "kv_cache_append",
            GraphOp::KvAppend { window, sink },
            &[rows, cache],
            out,
        )
    })
}

/// The last `window` rows `[channels]` that a convolution read, zeros at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_conv_cache_state(
    graph: *mut c_void,
    window: usize,
    channels: usize,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        at_least_one(&[("window", window), ("channels", channels)])?;
        // SAFETY: the caller's promise about `out`.
        unsafe {
            add(
                graph,
                "conv_cache_state",
                GraphOp::ConvState { rows: window, channels },
                &[],
                out,
            )
        }
    })
}

/// Appends rows; gives the window behind them, `[window, channels]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_conv_cache_append(
    graph: *mut c_void,
    rows: u64,
    cache: u64,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "conv_cache_append", GraphOp::ConvAppend, &[rows, cache], out) })
}

/// Makes the window the last of these rows, zeros before them where they are fewer; gives nothing, `[0]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_conv_cache_initialize(
    graph: *mut c_void,
    rows: u64,
    cache: u64,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "conv_cache_initialize",
            GraphOp::ConvInitialize,
            &[rows, cache],
            out,
        )
    })
}

/// What the next execution finds in a cache; gives it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_recurrent_cache_write(
    graph: *mut c_void,
    value: u64,
    cache: u64,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "recurrent_cache_write",
            GraphOp::RecurrentWrite,
            &[value, cache],
            out,
        )
    })
}

/// The value of the first execution, until it is invalidated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_persistent(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "persistent", GraphOp::Persistent, &[x], out) })
}

/// A tensor carried from execution to execution, zeros at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_recurrent_cache_state(
    graph: *mut c_void,
    shape: *const usize,
    rank: usize,
    precision: c_int,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        // SAFETY: the caller's promise about `shape`.
        let shape = unsafe { sizes(shape, rank, "shape") }?;
        let precision = Precision::from_code(precision)?;
        let made = with(graph, |g| g.recurrent_state(shape, precision))?;
        // SAFETY: the caller's promise about `out`.
        unsafe { put_node(out, made) }
    })
}

/// Writes 1 where a persistent node holds a value, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_is_populated(graph: *mut c_void, node: u64, populated: *mut c_int) -> c_int {
    guard::status(|| {
        let found = with(graph, |g| g.is_populated(id(node)?))?;
        // SAFETY: the caller's promise about `populated`.
        unsafe { put_required(populated, "populated", c_int::from(found)) }
    })
}

/// Makes the next execution compute a persistent node anew.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_invalidate_persistent(graph: *mut c_void, node: u64) -> c_int {
    change(graph, |g| g.invalidate_persistent(id(node)?))
}
