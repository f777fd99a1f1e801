//! What the graph functions share: finding the graph of a handle, adding a node, and the arrays that they take.

use super::node_graph::{Error, ErrorKind, Graph, GraphOp, Result};
use crate::failure::{self, Code, Failure};
use crate::guard;
use crate::handle::{Handles, Kind};
use crate::input::values;
use crate::output::put_required;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// Graphs that are open. A graph does one thing at a time; calls from several threads take turns.
pub(super) static GRAPHS: Handles<Mutex<Graph>> = Handles::new(Kind::Graph);

/// Longest list of sizes or nodes.
const MAX_LIST: usize = 1 << 20;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match error.kind() {
            ErrorKind::Argument | ErrorKind::Node | ErrorKind::Shape | ErrorKind::Order | ErrorKind::Run => {
                Code::Argument
            }
            ErrorKind::Unsupported => Code::NotInBuild,
            ErrorKind::Missing => Code::NotFound,
            ErrorKind::Damaged => Code::Bundle,
            ErrorKind::File | ErrorKind::Memory => Code::System,
            ErrorKind::Defect => Code::Internal,
        };
        Failure::new(code, error.to_string())
    }
}

/// Does `work` with the graph of a handle.
pub(super) fn with<T>(graph: *mut c_void, work: impl FnOnce(&mut Graph) -> Result<T>) -> failure::Result<T> {
    let graph = GRAPHS.get(graph)?;
    // Whatever a call changes is changed at its end, so a graph whose call panicked is whole.
    let mut graph = graph.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(work(&mut graph)?)
}

/// As [`with`], for functions that give nothing else.
pub(super) fn change(graph: *mut c_void, work: impl FnOnce(&mut Graph) -> Result<()>) -> c_int {
    guard::status(|| with(graph, work))
}

/// The number of a node, as the graph counts.
pub(super) fn id(node: u64) -> Result<usize> {
    usize::try_from(node).map_err(|_| Error::new(ErrorKind::Node, format!("there is no node {node}")))
}

/// Adds a node that reads `inputs`, and writes its number.
///
/// # Safety
/// `out` is null, or can be written.
pub(super) unsafe fn add(
    graph: *mut c_void,
    name: &str,
    op: GraphOp,
    inputs: &[u64],
    out: *mut u64,
) -> failure::Result<()> {
    if out.is_null() {
        return Err(Failure::argument(format!(
            "{name}: `out`: expected a place for the node, found NULL"
        )));
    }
    let made = with(graph, |g| {
        let ids: Vec<usize> = inputs.iter().map(|&n| id(n)).collect::<Result<_>>()?;
        g.add(op, &ids).map_err(|e| e.at(name))
    })?;
    // SAFETY: the caller's promise.
    unsafe { put_node(out, made) }
}

/// Writes the number of a node.
///
/// # Safety
/// `out` is null, or can be written.
pub(super) unsafe fn put_node(out: *mut u64, node: usize) -> failure::Result<()> {
    // SAFETY: the caller's promise.
    unsafe { put_required(out, "out", node as u64) }
}

/// Sizes that the caller lends.
///
/// # Safety
/// As of [`values`].
pub(super) unsafe fn sizes<'a>(start: *const usize, count: usize, name: &str) -> failure::Result<&'a [usize]> {
    if count > MAX_LIST {
        return Err(Failure::argument(format!("`{name}`: {count} sizes are too many")));
    }
    // SAFETY: the caller's promise.
    unsafe { values(start, count, name) }
}

/// Numbers of nodes that the caller lends.
///
/// # Safety
/// As of [`values`].
pub(super) unsafe fn nodes_of<'a>(start: *const u64, count: usize, name: &str) -> failure::Result<&'a [u64]> {
    if count > MAX_LIST {
        return Err(Failure::argument(format!("`{name}`: {count} nodes are too many")));
    }
    // SAFETY: the caller's promise.
    unsafe { values(start, count, name) }
}

/// Operands of which the last counts only where the caller says so.
pub(super) fn with_bias(all: &[u64], has: bool) -> &[u64] {
    match (has, all) {
        (false, [most @ .., _]) => most,
        _ => all,
    }
}

/// Refuses sizes of 0.
pub(super) fn at_least_one(sizes: &[(&str, usize)]) -> failure::Result<()> {
    match sizes.iter().find(|(_, n)| *n == 0) {
        None => Ok(()),
        Some((name, _)) => Err(Failure::argument(format!("`{name}`: expected at least 1, found 0"))),
    }
}
