//! Programs in ONNX: what computes what of which constants. Only as much of the format as models are recognized by, which
//! is the nodes with their integer attributes and the constants, with what lies in branches.
//!
//! Written from the schema `onnx.proto`. Names in a branch may hide those around it, so values are numbered as they are met.

use crate::protobuf::{Message, Value};
use crate::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Branches within branches that are looked into.
const MAX_DEPTH: usize = 16;
/// Steps of following values, for each node of a program: a program says in a few bytes what takes for ever to spell out.
const STEPS_FOR_EACH: usize = 64;
/// Types of elements.
const F32: u64 = 1;
const I64: u64 = 7;
/// Elements of the longest list of sizes or indices that is kept.
const MAX_NUMBERS: usize = 64;

/// A value of a program.
pub(crate) type ValueId = usize;

/// A constant.
#[derive(Clone, Debug)]
pub(crate) struct Constant {
    pub(crate) shape: Vec<usize>,
    /// Where its bytes lie in the file, where it has numbers of 32 bits.
    pub(crate) floats: Option<Range<usize>>,
    /// Its elements, where they are a few integers.
    numbers: Vec<i64>,
}

/// What is computed.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) op: String,
    /// Values; `None` where one is left out.
    pub(crate) inputs: Vec<Option<ValueId>>,
    pub(crate) outputs: Vec<ValueId>,
    integers: BTreeMap<String, Vec<i64>>,
}

impl Node {
    /// An attribute of integers, empty where it is absent.
    pub(crate) fn integers(&self, name: &str) -> &[i64] {
        self.integers.get(name).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn input(&self, i: usize) -> Option<ValueId> {
        self.inputs.get(i).copied().flatten()
    }
}

/// A part of a constant: some of its rows, or rows of several.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rows {
    pub(crate) shape: Vec<usize>,
    /// Where the bytes lie in the file, one after the other.
    pub(crate) pieces: Vec<Range<usize>>,
}

impl Rows {
    fn row_bytes(&self) -> Option<usize> {
        let elements = self.shape.get(1..)?.iter().try_fold(4usize, |n, &d| n.checked_mul(d))?;
        (elements > 0).then_some(elements)
    }

    /// Rows `range`.
    pub(crate) fn slice(&self, range: Range<usize>) -> Option<Rows> {
        let row = self.row_bytes()?;
        let (mut skip, mut left) = (range.start.checked_mul(row)?, range.len().checked_mul(row)?);
        let mut pieces = Vec::new();
        for piece in &self.pieces {
            let skipped = skip.min(piece.len());
            let start = piece.start + skipped;
            let taken = left.min(piece.end - start);
            (skip, left) = (skip - skipped, left - taken);
            if taken > 0 {
                pieces.push(start..start + taken);
            }
        }
        let shape = [&[range.len()][..], &self.shape[1..]].concat();
        (left == 0).then_some(Rows { shape, pieces })
    }

    /// One after the other; `None` where rows differ in shape.
    pub(crate) fn concat(all: &[Rows]) -> Option<Rows> {
        let (first, rest) = all.split_first()?;
        let mut whole = first.clone();
        for rows in rest {
            if rows.shape.get(1..)? != first.shape.get(1..)? {
                return None;
            }
            whole.shape[0] = whole.shape[0].checked_add(*rows.shape.first()?)?;
            whole.pieces.extend(rows.pieces.iter().cloned());
        }
        Some(whole)
    }
}

/// A program with its branches, which follow one another as if all were taken: the outputs of a node with branches are made of theirs.
pub(crate) struct Program {
    /// In an order in which what a node takes is there before it.
    pub(crate) nodes: Vec<Node>,
    constants: BTreeMap<ValueId, Constant>,
    makers: HashMap<ValueId, usize>,
    values: usize,
}

/// Names and what they stand for, of a graph and those around it.
type Scopes<'a> = Vec<HashMap<&'a str, ValueId>>;

impl Program {
    /// # Errors
    /// [`crate::ErrorKind::Malformed`] where the bytes break the format.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Program> {
        let mut program = Program {
            nodes: Vec::new(),
            constants: BTreeMap::new(),
            makers: HashMap::new(),
            values: 0,
        };
        let mut graph = None;
        for field in Message::new(bytes).fields() {
            if let (7, Value::Bytes(message)) = field? {
                graph = Some(message);
            }
        }
        let graph = graph.ok_or_else(|| Error::malformed("the file is no program in ONNX: it has no graph"))?;
        program.graph(graph, &mut Vec::new())?;
        for (at, node) in program.nodes.iter().enumerate() {
            program.makers.extend(node.outputs.iter().map(|&v| (v, at)));
        }
        Ok(program)
    }

    pub(crate) fn constant(&self, value: ValueId) -> Option<&Constant> {
        self.constants.get(&value)
    }

    fn maker(&self, value: ValueId) -> Option<&Node> {
        Some(&self.nodes[*self.makers.get(&value)?])
    }

    /// The first node that `is_end` and that reads one of `values`, or what others make of them that are not.
    pub(crate) fn next<'p>(&'p self, values: &[ValueId], is_end: impl Fn(&Node) -> bool) -> Option<&'p Node> {
        let mut made = vec![false; self.values];
        values.iter().for_each(|&v| made[v] = true);
        for node in &self.nodes {
            if node.inputs.iter().flatten().any(|&v| made[v]) {
                if is_end(node) {
                    return Some(node);
                }
                node.outputs.iter().for_each(|&v| made[v] = true);
            }
        }
        None
    }

    /// The rows of constants that `value` is, where it is put together of them and of nothing else.
    pub(crate) fn rows(&self, value: ValueId) -> Option<Rows> {
        let mut steps = STEPS_FOR_EACH * (self.nodes.len() + 1);
        self.rows_within(value, &mut steps, MAX_DEPTH)
    }

    fn rows_within(&self, value: ValueId, steps: &mut usize, depth: usize) -> Option<Rows> {
        *steps = steps.checked_sub(1)?;
        let depth = depth.checked_sub(1)?;
        if let Some(constant) = self.constant(value) {
            let pieces = vec![constant.floats.clone()?];
            let shape = constant.shape.clone();
            return Some(Rows { shape, pieces });
        }
        let node = self.maker(value)?;
        let mut of = |i: usize| self.rows_within(node.input(i)?, steps, depth);
        let numbers = |i: usize| Some(&self.constant(node.input(i)?)?.numbers[..]);
        match node.op.as_str() {
            "Identity" => of(0),
            "Unsqueeze" => {
                let axes = numbers(1).unwrap_or(node.integers("axes"));
                let mut rows = of(0)?;
                rows.shape.insert(0, 1);
                (axes == [0]).then_some(rows)
            }
            "Slice" => {
                let (&[start], &[end]) = (numbers(1)?, numbers(2)?) else {
                    return None;
                };
                let is_plain = |i: usize, want: i64| node.input(i).is_none() || numbers(i).is_some_and(|n| n == [want]);
                let rows = of(0)?;
                let len = *rows.shape.first()?;
                let (start, end) = (usize::try_from(start).ok()?, usize::try_from(end).ok()?.min(len));
                (is_plain(3, 0) && is_plain(4, 1) && start <= end).then(|| rows.slice(start..end))?
            }
            "Concat" if node.integers("axis") == [0] => {
                let parts: Option<Vec<Rows>> = (0..node.inputs.len()).map(of).collect();
                let whole = Rows::concat(&parts?)?;
                *steps = steps.checked_sub(whole.pieces.len())?;
                Some(whole)
            }
            _ => None,
        }
    }

    fn define<'a>(&mut self, name: &'a str, scopes: &mut Scopes<'a>) -> ValueId {
        let id = self.values;
        self.values += 1;
        if let Some(scope) = scopes.last_mut() {
            scope.insert(name, id);
        }
        id
    }

    fn value<'a>(&mut self, name: &'a str, scopes: &mut Scopes<'a>) -> ValueId {
        let known = scopes.iter().rev().find_map(|scope| scope.get(name)).copied();
        known.unwrap_or_else(|| self.define(name, scopes))
    }

    /// Adds what is in a graph, and gives its outputs.
    fn graph<'a>(&mut self, graph: Message<'a>, scopes: &mut Scopes<'a>) -> Result<Vec<ValueId>> {
        if scopes.len() == MAX_DEPTH {
            return Err(Error::unsupported("branches lie too deep in each other").at_offset(graph.range().start));
        }
        scopes.push(HashMap::new());
        let (mut nodes, mut outputs) = (Vec::new(), Vec::new());
        for field in graph.fields() {
            match field? {
                (1, Value::Bytes(node)) => nodes.push(node),
                (5, Value::Bytes(tensor)) => {
                    let (name, constant) = constant(tensor)?;
                    let id = self.define(name, scopes);
                    self.constants.insert(id, constant);
                }
                // Inputs, which may hide names around them.
                (11, Value::Bytes(about)) => {
                    let name = name_of(about)?;
                    if scopes.last().is_some_and(|scope| !scope.contains_key(name)) {
                        self.define(name, scopes);
                    }
                }
                (12, Value::Bytes(about)) => outputs.push(name_of(about)?),
                _ => {}
            }
        }
        for node in nodes {
            self.node(node, scopes)?;
        }
        let outputs = outputs.into_iter().map(|name| self.value(name, scopes)).collect();
        scopes.pop();
        Ok(outputs)
    }

    fn node<'a>(&mut self, message: Message<'a>, scopes: &mut Scopes<'a>) -> Result<()> {
        let (mut inputs, mut outputs, mut op) = (Vec::new(), Vec::new(), "");
        let (mut integers, mut held) = (BTreeMap::new(), None);
        for field in message.fields() {
            match field? {
                (1, Value::Bytes(name)) => match name.text()? {
                    "" => inputs.push(None),
                    name => inputs.push(Some(self.value(name, scopes))),
                },
                (2, Value::Bytes(name)) => outputs.push(name.text()?),
                (4, Value::Bytes(name)) => op = name.text()?,
                (5, Value::Bytes(attribute)) => {
                    let (mut name, mut numbers) = ("", Vec::new());
                    for field in attribute.fields() {
                        match field? {
                            (1, Value::Bytes(text)) => name = text.text()?,
                            (3 | 8, Value::Number(n)) => numbers.push(n.cast_signed()),
                            (8, Value::Bytes(packed)) => numbers.extend(packed.numbers()?),
                            (5, Value::Bytes(tensor)) => held = Some(constant(tensor)?.1),
                            (6, Value::Bytes(branch)) => {
                                inputs.extend(self.graph(branch, scopes)?.into_iter().map(Some))
                            }
                            _ => {}
                        }
                    }
                    integers.insert(name.to_owned(), numbers);
                }
                _ => {}
            }
        }
        let outputs: Vec<ValueId> = outputs.into_iter().map(|name| self.define(name, scopes)).collect();
        if let ("Constant", [output], Some(constant)) = (op, &outputs[..], held) {
            self.constants.insert(*output, constant);
            return Ok(());
        }
        self.nodes.push(Node {
            op: op.to_owned(),
            inputs,
            outputs,
            integers,
        });
        Ok(())
    }
}

/// The name of an input or output.
fn name_of(about: Message<'_>) -> Result<&str> {
    let mut name = "";
    for field in about.fields() {
        if let (1, Value::Bytes(text)) = field? {
            name = text.text()?;
        }
    }
    Ok(name)
}

fn constant(tensor: Message<'_>) -> Result<(&str, Constant)> {
    let (mut name, mut dims, mut kind) = ("", Vec::new(), 0);
    let (mut data, mut numbers, mut is_elsewhere) = (None, Vec::new(), false);
    for field in tensor.fields() {
        match field? {
            (1, Value::Number(n)) => dims.push(n.cast_signed()),
            (1, Value::Bytes(packed)) => dims.extend(packed.numbers()?),
            (2, Value::Number(n)) => kind = n,
            (7, Value::Number(n)) => numbers.push(n.cast_signed()),
            (7, Value::Bytes(packed)) => numbers.extend(packed.numbers()?),
            (8, Value::Bytes(text)) => name = text.text()?,
            // Floats one behind the other, or the bytes of any type.
            (4 | 9, Value::Bytes(bytes)) => data = Some(bytes),
            (13, _) => is_elsewhere = true,
            _ => {}
        }
    }
    let at = tensor.range().start;
    let failed = |e: Error| e.of_tensor(name).at_offset(at);
    if is_elsewhere {
        return Err(failed(Error::unsupported(
            "the data lie in another file, which is not read",
        )));
    }
    let shape: Option<Vec<usize>> = dims.into_iter().map(|n| usize::try_from(n).ok()).collect();
    let elements = |shape: &[usize]| shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let sized = shape.and_then(|shape| Some((elements(&shape)?, shape)));
    let Some((elements, shape)) = sized else {
        return Err(failed(Error::malformed(
            "a size is negative, or there are too many elements",
        )));
    };
    let range = data.map_or(at..at, |data| data.range());
    let fits = |bytes: usize| elements.checked_mul(bytes) == Some(range.len());
    let floats = match kind {
        F32 if fits(4) => Some(range.clone()),
        F32 => {
            let what = format!("the shape {shape:?} does not fit {} bytes", range.len());
            return Err(failed(Error::malformed(what)));
        }
        _ => None,
    };
    if kind == I64
        && elements <= MAX_NUMBERS
        && fits(8)
        && let Some(data) = data
    {
        numbers = data.words();
    }
    numbers.truncate(MAX_NUMBERS);
    Ok((name, Constant { shape, floats, numbers }))
}

#[cfg(test)]
mod tests;
