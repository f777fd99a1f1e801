//! Graphs as a whole: made, saved, loaded, ended; and what is known of their nodes.

use super::node_graph::{Graph, Result};
use super::open::{GRAPHS, change, id, nodes_of, with};
use crate::failure::{Code, Failure};
use crate::guard;
use crate::input::text;
use crate::output::{put_required, write_values};
use crate::tensor_info::cactus_tensor_info_t;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Most axes of a node.
const MAX_RANK: usize = super::node_graph::MAX_RANK;

/// An empty graph, which `cactus_graph_destroy` ends; NULL where there are too many. A graph does one thing at a time: calls
/// from several threads take turns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_create() -> *mut c_void {
    guard::or(std::ptr::null_mut(), || {
        GRAPHS.insert(Arc::new(Mutex::new(Graph::new())))
    })
}

/// Ends a graph. What its functions gave pointers to is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_destroy(graph: *mut c_void) {
    guard::quiet(|| match graph.is_null() {
        true => Ok(()),
        false => GRAPHS.remove(graph).map(drop),
    });
}

/// Removes all nodes and everything they hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_hard_reset(graph: *mut c_void) -> c_int {
    change(graph, |g| {
        g.hard_reset();
        Ok(())
    })
}

/// Writes a graph to a file: its nodes, and the elements of embedded inputs. Weight files are named in it, and caches are empty
/// when it is loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_save(graph: *mut c_void, path: *const c_char) -> c_int {
    guard::status(|| {
        // SAFETY: the caller's promise about `path`.
        let path = unsafe { text(path, "path") }?;
        with(graph, |g| g.save(Path::new(path)))
    })
}

/// The graph of a file that `cactus_graph_save` wrote, its nodes with the numbers they had; NULL where it cannot be read. A node
/// whose weight file is not there has to be bound before it is executed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_load(path: *const c_char) -> *mut c_void {
    guard::or(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise about `path`.
        let path = unsafe { text(path, "path") }?;
        GRAPHS.insert(Arc::new(Mutex::new(Graph::load(Path::new(path))?)))
    })
}

/// Accepts the back end of a node: 0 CPU, 1 Metal. Everything is computed on the CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_set_node_backend(graph: *mut c_void, node: u64, backend: c_int) -> c_int {
    guard::status(|| {
        with(graph, |g| g.info(id(node)?).map(drop))?;
        match backend {
            0 | 1 => Ok(()),
            _ => Err(Failure::argument(format!(
                "`backend`: expected 0 or 1, found {backend}"
            ))),
        }
    })
}

/// Writes what is known of a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_get_output_info(
    graph: *mut c_void,
    node: u64,
    info: *mut cactus_tensor_info_t,
) -> c_int {
    guard::status(|| {
        let known = with(graph, |g| g.info(id(node)?))?;
        let mut shape = [0; MAX_RANK];
        shape.iter_mut().zip(&known.shape).for_each(|(to, &n)| *to = n);
        let value = cactus_tensor_info_t {
            precision: known.precision.code(),
            rank: known.shape.len(),
            shape,
            num_elements: known.elements,
            byte_size: known.bytes,
        };
        // SAFETY: the caller's promise about `info`.
        unsafe { put_required(info, "info", value) }
    })
}

/// Writes the number of what a node computes. Numbers are of this library and do not change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_get_node_op_type(graph: *mut c_void, node: u64, op_type: *mut c_int) -> c_int {
    guard::status(|| {
        let code = with(graph, |g| Ok(g.op_of(id(node)?)?.code()))?;
        // SAFETY: the caller's promise about `op_type`.
        unsafe { put_required(op_type, "op_type", code) }
    })
}

/// Writes the nodes that a node reads, and how many they are. `count` says how many there is room for; with `nodes` NULL only
/// the number is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_get_node_inputs(
    graph: *mut c_void,
    node: u64,
    nodes: *mut u64,
    count: *mut usize,
) -> c_int {
    guard::status(|| {
        let all = with(graph, |g| -> Result<Vec<u64>> {
            Ok(g.inputs_of(id(node)?)?.iter().map(|&n| n as u64).collect())
        })?;
        if count.is_null() {
            return Err(Failure::argument(
                "`count`: expected a place for the number, found NULL",
            ));
        }
        if !nodes.is_null() {
            // SAFETY: it is not null, and the caller promised that it can be read.
            let room = unsafe { count.read() };
            // SAFETY: the caller's promise about `nodes`.
            let written = unsafe { write_values(&all, nodes, room) };
            if written.is_err() {
                // SAFETY: it is not null, and the caller promised that it can be written.
                unsafe { count.write(all.len()) };
                let what = format!("node {node} reads {} nodes, and there is room for {room}", all.len());
                return Err(Failure::new(Code::BufferTooSmall, what));
            }
        }
        // SAFETY: it is not null, and the caller promised that it can be written.
        unsafe { put_required(count, "count", all.len()) }
    })
}

/// Nodes to read beside those that no other node reads, in place of those named before. Others are computed again when they are
/// read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_graph_retain_outputs(graph: *mut c_void, nodes: *const u64, count: usize) -> c_int {
    guard::status(|| {
        // SAFETY: the caller's promise about `nodes`.
        let nodes = unsafe { nodes_of(nodes, count, "nodes") }?;
        with(graph, |g| {
            let ids: Vec<usize> = nodes.iter().map(|&n| id(n)).collect::<Result<_>>()?;
            g.retain_outputs(&ids)
        })
    })
}
