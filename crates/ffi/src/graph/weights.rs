//! Weight files, and whole numbers with scales.

use super::node_graph::{GraphOp, Precision, decode};
use super::open::{add, change, id, put_node, with};
use crate::failure::Failure;
use crate::guard;
use crate::input::{text, values};
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

/// Maps a weight file, whose elements are the node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_mmap_weights(graph: *mut c_void, path: *const c_char, out: *mut u64) -> c_int {
    // SAFETY: the caller's promises.
    guard::status(|| unsafe { mapped(graph, path, out) })
}

/// Maps a weight file that is a table of rows; otherwise as `cactus_graph_mmap_weights`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_mmap_embeddings(graph: *mut c_void, path: *const c_char, out: *mut u64) -> c_int {
    // SAFETY: the caller's promises.
    guard::status(|| unsafe { mapped(graph, path, out) })
}

/// # Safety
/// As of the functions above.
unsafe fn mapped(graph: *mut c_void, path: *const c_char, out: *mut u64) -> crate::failure::Result<()> {
    if out.is_null() {
        return Err(Failure::argument("`out`: expected a place for the node, found NULL"));
    }
    // SAFETY: the caller's promise.
    let path = unsafe { text(path, "path") }?;
    let made = with(graph, |g| g.weights(Path::new(path)))?;
    // SAFETY: the caller's promise.
    unsafe { put_node(out, made) }
}

/// Rows of a weight file by number: a node of the file, and one that reads it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_embedding_from_file(
    graph: *mut c_void,
    path: *const c_char,
    indices: u64,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        let mut table = 0;
        // SAFETY: the caller's promises, and a place of our own.
        unsafe {
            with(graph, |g| g.info(id(indices)?).map(drop))?;
            mapped(graph, path, &raw mut table)?;
            add(
                graph,
                "embedding_from_file",
                GraphOp::Take { axis: 0 },
                &[table, indices],
                out,
            )
        }
    })
}

/// Gives a node the elements of a weight file of its shape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_bind_mmap_weights(graph: *mut c_void, node: u64, path: *const c_char) -> c_int {
    guard::status(|| {
        // SAFETY: the caller's promise about `path`.
        let path = unsafe { text(path, "path") }?;
        with(graph, |g| g.bind_weights(id(node)?, Path::new(path)))
    })
}

/// Gives the whole numbers of an input `[n, k]` scales, half-precision floats `[n, groups]`, one for each `group_size` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_set_grouped_scales(
    graph: *mut c_void,
    node: u64,
    group_size: usize,
    groups: usize,
    scales: *const c_void,
) -> c_int {
    guard::status(|| {
        let count = with(graph, |g| g.scales_of(id(node)?, group_size, groups))?;
        let bytes = count
            .checked_mul(2)
            .ok_or_else(|| Failure::argument("there are too many scales"))?;
        // SAFETY: the caller's promise about `scales`.
        let scales = unsafe { values(scales.cast::<u8>(), bytes, "scales") }?;
        let scales = decode(scales, Precision::Fp16)?;
        with(graph, |g| g.set_grouped_scales(id(node)?, group_size, groups, &scales))
    })
}

/// Says that the rows of an input lie in blocks of four, four elements of each in turn; `rows` is their number, or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_set_interleaved(
    graph: *mut c_void,
    node: u64,
    interleaved: bool,
    rows: usize,
) -> c_int {
    change(graph, |g| g.set_interleaved(id(node)?, interleaved, rows))
}

/// A hint about the memory of a weight file. Its pages come and go by themselves, so that only the node is checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_release_weight_pages(graph: *mut c_void, node: u64) -> c_int {
    change(graph, |g| g.advise(id(node)?))
}

/// As `cactus_graph_release_weight_pages`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_prefetch_weight_pages(graph: *mut c_void, node: u64) -> c_int {
    change(graph, |g| g.advise(id(node)?))
}

/// As `cactus_graph_release_weight_pages`, for all weight files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_release_all_weight_pages(graph: *mut c_void) -> c_int {
    change(graph, |_| Ok(()))
}
