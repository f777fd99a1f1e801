//! Functions that move elements.

use super::node_graph::{Error, Graph, GraphOp, Result, from_either_end};
use super::open::{add, id, nodes_of, sizes, with};
use crate::guard;
use std::ffi::{c_int, c_void};

fn flattened(g: &Graph, x: usize, start: c_int, end: c_int) -> Result<Vec<usize>> {
    let shape = g.info(x)?.shape;
    let (start, end) = (from_either_end(start, shape.len())?, from_either_end(end, shape.len())?);
    if start > end {
        return Err(Error::argument(format!("axis {start} is behind axis {end}")));
    }
    let mut flat = shape[..start].to_vec();
    flat.push(shape[start..=end].iter().product());
    flat.extend(&shape[end + 1..]);
    Ok(flat)
}

fn gathered(g: &Graph, x: usize, indices: usize, axis: c_int) -> Result<GraphOp> {
    let (x, indices) = (g.info(x)?.shape.len(), g.info(indices)?.shape.len());
    let at = from_either_end(axis, x)?;
    Ok(match at > 0 && x == indices {
        true => GraphOp::Gather { axis },
        false => GraphOp::Take { axis },
    })
}

fn is_table(g: &Graph, table: usize) -> Result<()> {
    let shape = g.info(table)?.shape;
    match shape.len() {
        2 => Ok(()),
        _ => Err(Error::shape(format!("a table [rows, n] is expected, found {shape:?}"))),
    }
}

/// The same elements under another shape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_view(
    graph: *mut c_void,
    x: u64,
    shape: *const usize,
    rank: usize,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        // SAFETY: the caller's promise about `shape`.
        let shape = unsafe { sizes(shape, rank, "shape") }?;
        // SAFETY: the caller's promise about `out`.
        unsafe { add(graph, "view", GraphOp::Reshape(shape.to_vec()), &[x], out) }
    })
}

/// The same elements under another shape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_reshape(
    graph: *mut c_void,
    x: u64,
    shape: *const usize,
    rank: usize,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        // SAFETY: the caller's promise about `shape`.
        let shape = unsafe { sizes(shape, rank, "shape") }?;
        // SAFETY: the caller's promise about `out`.
        unsafe { add(graph, "reshape", GraphOp::Reshape(shape.to_vec()), &[x], out) }
    })
}

/// `x` broadcast to a shape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_expand(
    graph: *mut c_void,
    x: u64,
    shape: *const usize,
    rank: usize,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        // SAFETY: the caller's promise about `shape`.
        let shape = unsafe { sizes(shape, rank, "shape") }?;
        // SAFETY: the caller's promise about `out`.
        unsafe { add(graph, "expand", GraphOp::Expand(shape.to_vec()), &[x], out) }
    })
}

/// Axis `i` of the result is axis `permutation[i]` of `x`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_transpose_n(
    graph: *mut c_void,
    x: u64,
    permutation: *const usize,
    rank: usize,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        // SAFETY: the caller's promise about `permutation`.
        let order = unsafe { sizes(permutation, rank, "permutation") }?;
        // SAFETY: the caller's promise about `out`.
        unsafe { add(graph, "transpose_n", GraphOp::Permute(order.to_vec()), &[x], out) }
    })
}

/// The last two axes in the other order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_transpose(graph: *mut c_void, x: u64, out: *mut u64) -> c_int {
    guard::status(|| {
        let rank = with(graph, |g| Ok(g.info(id(x)?)?.shape.len()))?;
        let mut order: Vec<usize> = (0..rank).collect();
        if rank >= 2 {
            order.swap(rank - 2, rank - 1);
        }
        // SAFETY: the caller's promise about `out`.
        unsafe { add(graph, "transpose", GraphOp::Permute(order), &[x], out) }
    })
}

/// Axes from `start` to `end`, both included, as one; negative ones count from behind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_flatten(
    graph: *mut c_void,
    x: u64,
    start: c_int,
    end: c_int,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        let shape = with(graph, |g| flattened(g, id(x)?, start, end))?;
        // SAFETY: the caller's promise about `out`.
        unsafe { add(graph, "flatten", GraphOp::Reshape(shape), &[x], out) }
    })
}

/// `length` elements of an axis, from `start` on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_slice(
    graph: *mut c_void,
    x: u64,
    axis: c_int,
    start: usize,
    length: usize,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "slice",
            GraphOp::Slice {
                axis,
                start,
                length,
                step: 1,
            },
            &[x],
            out,
        )
    })
}

/// `length` elements of an axis, from `start` on, each `step`th.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_strided_slice(
    graph: *mut c_void,
    x: u64,
    axis: c_int,
    start: usize,
    length: usize,
    step: usize,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "strided_slice",
            GraphOp::Slice {
                axis,
                start,
                length,
                step,
            },
            &[x],
            out,
        )
    })
}

/// Element `index` of an axis, which goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_index(
    graph: *mut c_void,
    x: u64,
    index: usize,
    axis: c_int,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "index", GraphOp::Index { axis, index }, &[x], out) })
}

/// Windows of `size` elements of an axis, `step` apart, as a last axis.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_unfold(
    graph: *mut c_void,
    x: u64,
    axis: c_int,
    size: usize,
    step: usize,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "unfold", GraphOp::Unfold { axis, size, step }, &[x], out) })
}

/// `value` before and behind the last axes: `count` sizes in pairs, the last axis first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_pad(
    graph: *mut c_void,
    x: u64,
    pads: *const usize,
    count: usize,
    value: f32,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        // SAFETY: the caller's promise about `pads`.
        let pads = unsafe { sizes(pads, count, "pads") }?;
        // SAFETY: the caller's promise about `out`.
        unsafe {
            add(
                graph,
                "pad",
                GraphOp::Pad {
                    pads: pads.to_vec(),
                    value,
                },
                &[x],
                out,
            )
        }
    })
}

/// `a` and `b` joined at an axis.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_concat(graph: *mut c_void, a: u64, b: u64, axis: c_int, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "concat", GraphOp::Concat { axis }, &[a, b], out) })
}

/// `count` nodes joined at an axis.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_cat(
    graph: *mut c_void,
    nodes: *const u64,
    count: usize,
    axis: c_int,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        // SAFETY: the caller's promise about `nodes`.
        let nodes = unsafe { nodes_of(nodes, count, "nodes") }?;
        // SAFETY: the caller's promise about `out`.
        unsafe { add(graph, "cat", GraphOp::Concat { axis }, nodes, out) }
    })
}

/// Rows of `x` by number: `(x [n, …], indices […]) -> [indices…, …]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_gather(graph: *mut c_void, x: u64, indices: u64, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "gather", GraphOp::Take { axis: 0 }, &[x, indices], out) })
}

/// Elements of an axis of `x` by number: as `cactus_graph_gather` for axis 0, and where `indices` has fewer or more axes
/// than `x`; otherwise as `torch.gather`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_gather_dim(
    graph: *mut c_void,
    x: u64,
    indices: u64,
    axis: c_int,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        let op = with(graph, |g| gathered(g, id(x)?, id(indices)?, axis))?;
        // SAFETY: the caller's promise about `out`.
        unsafe { add(graph, "gather_dim", op, &[x, indices], out) }
    })
}

/// Rows of a table by number: `(table [rows, n], indices […]) -> [indices…, n]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_embedding_from_tensor(
    graph: *mut c_void,
    table: u64,
    indices: u64,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        with(graph, |g| is_table(g, id(table)?))?;
        // SAFETY: the caller's promise about `out`.
        unsafe {
            add(
                graph,
                "embedding_from_tensor",
                GraphOp::Take { axis: 0 },
                &[table, indices],
                out,
            )
        }
    })
}

/// The `k` largest of each row: `[rows, n] -> [2, rows, k]`, FP32: their places, then themselves, the largest first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_topk(graph: *mut c_void, x: u64, k: usize, out: *mut u64) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe { add(graph, "topk", GraphOp::TopK(k), &[x], out) })
}

/// `(indices [rows, k], values [rows, k]) -> [classes, rows]`, zeros elsewhere, FP32.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_scatter_topk(
    graph: *mut c_void,
    indices: u64,
    values: u64,
    classes: usize,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise about `out`.
    guard::status(|| unsafe {
        add(
            graph,
            "scatter_topk",
            GraphOp::ScatterTopK(classes),
            &[indices, values],
            out,
        )
    })
}
