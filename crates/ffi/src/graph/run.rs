//! Inputs, executing, and results.

use super::node_graph::{External, Precision};
use super::open::{change, id, put_node, sizes, with};
use crate::failure::Failure;
use crate::guard;
use crate::input::values;
use crate::output::put_required;
use std::ffi::{c_int, c_void};

/// Memory of the caller.
#[derive(Debug)]
struct Lent {
    start: *const u8,
    bytes: usize,
}

// SAFETY: the caller promises that the memory can be read from whatever thread executes the graph.
unsafe impl Send for Lent {}

impl External for Lent {
    fn bytes(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: it is not null, and the caller promised so many bytes, until the input is set anew or the graph ends.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
}

/// Adds an input of a shape of 1 to 8 axes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_input(
    graph: *mut c_void,
    shape: *const usize,
    rank: usize,
    precision: c_int,
    out: *mut u64,
) -> c_int {
    guard::status(|| {
        if out.is_null() {
            return Err(Failure::argument(
                "input: `out`: expected a place for the node, found NULL",
            ));
        }
        // SAFETY: the caller's promise about `shape`.
        let shape = unsafe { sizes(shape, rank, "shape") }?;
        let precision = Precision::from_code(precision)?;
        let made = with(graph, |g| g.input(shape, precision))?;
        // SAFETY: the caller's promise about `out`.
        unsafe { put_node(out, made) }
    })
}

/// Sets an input to a copy of its elements, row-major, in any precision but that of codebooks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_set_input(
    graph: *mut c_void,
    node: u64,
    data: *const c_void,
    precision: c_int,
) -> c_int {
    guard::status(|| {
        let precision = Precision::from_code(precision)?;
        with_data(graph, node, data, precision, |lent| {
            with(graph, |g| g.set_input(id(node)?, lent.bytes(), precision))
        })
    })
}

/// Makes an input read memory of the caller whenever the graph is executed. It has to stay until the input is set anew or the
/// graph is destroyed or reset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_set_external_input(
    graph: *mut c_void,
    node: u64,
    data: *mut c_void,
    precision: c_int,
) -> c_int {
    guard::status(|| {
        let precision = Precision::from_code(precision)?;
        with_data(graph, node, data, precision, |lent| {
            with(graph, |g| g.set_external_input(id(node)?, Box::new(lent), precision))
        })
    })
}

fn with_data(
    graph: *mut c_void,
    node: u64,
    data: *const c_void,
    precision: Precision,
    work: impl FnOnce(Lent) -> crate::failure::Result<()>,
) -> crate::failure::Result<()> {
    let bytes = with(graph, |g| g.input_bytes(id(node)?, precision))?;
    if data.is_null() && bytes > 0 {
        return Err(Failure::argument(format!("`data`: expected {bytes} bytes, found NULL")));
    }
    let start = data.cast();
    work(Lent { start, bytes })
}

/// Makes the value of an input part of the graph: it is saved with it, and prepared once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_mark_embedded_input(graph: *mut c_void, node: u64) -> c_int {
    change(graph, |g| g.mark_embedded_input(id(node)?))
}

/// Says which axes of an input may change: as many bytes as it has axes, not 0 for those.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_set_input_dynamic_dims(
    graph: *mut c_void,
    node: u64,
    dynamic: *const u8,
    rank: usize,
) -> c_int {
    guard::status(|| {
        // SAFETY: the caller's promise about `dynamic`.
        let axes = unsafe { values(dynamic, rank, "dynamic") }?;
        let axes: Vec<bool> = axes.iter().map(|&a| a != 0).collect();
        with(graph, |g| g.set_dynamic(id(node)?, &axes))
    })
}

/// Gives an input another shape, and all nodes those that follow from it. Where one does not fit, nothing changes. The input has
/// to be set again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_set_runtime_input_shape(
    graph: *mut c_void,
    node: u64,
    shape: *const usize,
    rank: usize,
) -> c_int {
    guard::status(|| {
        // SAFETY: the caller's promise about `shape`.
        let shape = unsafe { sizes(shape, rank, "shape") }?;
        with(graph, |g| g.set_input_shape(id(node)?, shape))
    })
}

/// Computes every node that no other node reads, and those that are retained. Caches move on if it succeeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_execute(graph: *mut c_void) -> c_int {
    change(graph, super::node_graph::Graph::execute)
}

/// Writes where the elements of a node lie, row-major in its precision. They stay until the graph is executed, changed or
/// destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_get_output_ptr(graph: *mut c_void, node: u64, data: *mut *mut c_void) -> c_int {
    guard::status(|| {
        if data.is_null() {
            return Err(Failure::argument(
                "`data`: expected a place for the pointer, found NULL",
            ));
        }
        let start = with(graph, |g| Ok(g.output(id(node)?)?.as_ptr()))?;
        // SAFETY: the caller's promise about `data`.
        unsafe { put_required(data, "data", start.cast_mut().cast()) }
    })
}
