//! Subgraphs that only say in which mode they run: without gradients, under autocast, to be computed again in training.
//! A program that was not decomposed before it was saved has them; for its results they mean nothing, so they are written
//! in place of the call. Names of a subgraph are its own, so they get the call's name before them.

use super::schema::{Argument, Graph, NamedArgument, Node, OptionalTensor, SubGraph, SymArgument};
use crate::{Error, Result};
use std::collections::{BTreeMap, HashMap};

/// Operations that run a subgraph once, as it is.
const MODES: &[&str] = &[
    "wrap_with_set_grad_enabled",
    "wrap_with_autocast",
    "wrap",
    "tag_activation_checkpoint",
    "wrap_activation_checkpoint",
    "invoke_subgraph",
];

/// Writes the subgraphs of `graph` in place, those within them too.
///
/// # Errors
/// Where a call does not fit its subgraph.
pub(crate) fn write_in_place(graph: &mut Graph) -> Result<()> {
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for (at, node) in std::mem::take(&mut graph.nodes).into_iter().enumerate() {
        let target = node.target.trim_start_matches("torch.ops.").to_owned();
        let name = target.strip_prefix("higher_order.").unwrap_or("");
        match MODES.contains(&name) {
            false => nodes.push(node),
            true => called(graph, &mut nodes, node, at).map_err(|e| Error::new(e.kind(), format!("{target}: {e}")))?,
        }
    }
    graph.nodes = nodes;
    Ok(())
}

/// Appends the nodes of the subgraph that `call`, node `at` of `outer`, runs.
fn called(outer: &mut Graph, nodes: &mut Vec<Node>, call: Node, at: usize) -> Result<()> {
    let (mut body, mut operands) = (None, Vec::new());
    for input in call.inputs {
        match input.arg {
            Argument::AsGraph(graph) => body = Some(*graph),
            // What stands before the subgraph is the mode.
            _ if body.is_none() => {}
            Argument::AsTensor(name) => operands.push(name.name),
            Argument::AsTensors(all) => operands.extend(all.into_iter().map(|n| n.name)),
            Argument::AsSymInt(SymArgument::AsName(name)) => operands.push(name),
            Argument::AsString(_) | Argument::AsNone(_) => {}
            other => return Err(Error::unsupported(format!("an operand of a subgraph is {other:?}"))),
        }
    }
    let Some(SubGraph { name, graph: mut body }) = body else {
        return Err(Error::malformed("it has no subgraph"));
    };
    write_in_place(&mut body)?;
    if operands.len() != body.inputs.len() {
        let what = format!("{} operands for a subgraph of {}", operands.len(), body.inputs.len());
        return Err(Error::malformed(what));
    }
    let mut names = Names {
        given: HashMap::new(),
        prefix: format!("{name}#{at}"),
    };
    for (mut input, operand) in std::mem::take(&mut body.inputs).into_iter().zip(operands) {
        each_name(&mut input, &mut |inner| {
            names.given.insert(inner.clone(), operand.clone());
        });
    }
    for mut node in body.nodes {
        let arguments = node.inputs.iter_mut().map(|i| &mut i.arg);
        for argument in arguments.chain(&mut node.outputs) {
            each_name(argument, &mut |name| names.rename(name));
        }
        nodes.push(node);
    }
    names.add(body.tensor_values, &mut outer.tensor_values);
    names.add(body.sym_int_values, &mut outer.sym_int_values);
    let (mut from, mut to) = (Vec::new(), Vec::new());
    for (arguments, all) in [(body.outputs, &mut from), (call.outputs, &mut to)] {
        for mut argument in arguments {
            each_name(&mut argument, &mut |name| all.push(name.clone()));
        }
    }
    if from.len() != to.len() {
        let what = format!("{} results of a subgraph that gives {}", to.len(), from.len());
        return Err(Error::malformed(what));
    }
    for (mut from, to) in from.into_iter().zip(to) {
        if outer.sym_int_values.contains_key(&to) {
            // A size: what it is, is declared.
            continue;
        }
        names.rename(&mut from);
        nodes.push(alias(from, to));
    }
    Ok(())
}

/// Names of a subgraph: those of its operands outside, and all others with a prefix.
struct Names {
    given: HashMap<String, String>,
    prefix: String,
}

impl Names {
    fn of(&self, name: &str) -> String {
        let given = self.given.get(name).cloned();
        given.unwrap_or_else(|| format!("{}.{name}", self.prefix))
    }

    fn rename(&self, name: &mut String) {
        *name = self.of(name);
    }

    /// Adds what is declared of the names inside to what is declared outside.
    fn add<T>(&self, inner: BTreeMap<String, T>, outer: &mut BTreeMap<String, T>) {
        for (name, declared) in inner {
            outer.entry(self.of(&name)).or_insert(declared);
        }
    }
}

/// `to` as another name of `from`.
fn alias(from: String, to: String) -> Node {
    let name = |name: String| Argument::AsTensor(super::schema::Name { name });
    Node {
        target: "torch.ops.aten.alias.default".to_owned(),
        inputs: vec![NamedArgument {
            name: "self".to_owned(),
            arg: name(from),
        }],
        outputs: vec![name(to)],
        metadata: BTreeMap::new(),
    }
}

/// Calls `f` with every name of a value in `argument`.
fn each_name(argument: &mut Argument, f: &mut dyn FnMut(&mut String)) {
    let mut optional = |t: &mut OptionalTensor| {
        if let OptionalTensor::AsTensor(n) = t {
            f(&mut n.name);
        }
    };
    match argument {
        Argument::AsOptionalTensor(t) => optional(t),
        Argument::AsOptionalTensors(all) => all.iter_mut().for_each(optional),
        Argument::AsTensor(n) => f(&mut n.name),
        Argument::AsTensors(all) => all.iter_mut().for_each(|n| f(&mut n.name)),
        Argument::AsSymInt(SymArgument::AsName(n)) => f(n),
        Argument::AsSymInts(all) => {
            for size in all {
                if let SymArgument::AsName(n) = size {
                    f(n);
                }
            }
        }
        _ => {}
    }
}
