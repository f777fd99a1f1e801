//! The arguments of one call: found by the names of the operation's schema, absent ones at their defaults. What a row does
//! not ask for is an error, so that no argument is passed over in silence.

use super::importer::Importer;
use super::schema::{Argument, Name, Node, OptionalTensor, SymArgument};
use super::tensors::graph_type;
use crate::{Error, Result};
use cactus_ir::{Dim, ValueId};
use cactus_tensor::DType;
use std::cell::RefCell;

/// An argument whose values are known.
#[derive(Clone, Debug)]
pub(crate) enum Arg {
    Tensor(ValueId),
    Tensors(Vec<Option<ValueId>>),
    Size(Dim),
    Sizes(Vec<Dim>),
    Float(f64),
    Floats(Vec<f64>),
    Flag(bool),
    Text(String),
    DType(i64),
    None,
    /// Of a kind that no row reads, which this says.
    Other(&'static str),
}

/// A number of a call.
#[derive(Clone, Debug)]
pub(crate) enum Number {
    Float(f64),
    Size(Dim),
}

impl Number {
    /// As a float, where it is fixed.
    pub(crate) fn value(&self) -> Option<f64> {
        match self {
            Number::Float(v) => Some(*v),
            Number::Size(d) => d.as_integer().map(|n| n as f64),
        }
    }
}

/// A call of an operation with its arguments.
#[derive(Debug)]
pub(crate) struct Call {
    arguments: Vec<(String, Arg)>,
    used: RefCell<Vec<bool>>,
    /// Arguments that are tensors of complex numbers.
    complex: Vec<String>,
}

/// What never changes a result here.
const IGNORED: &[&str] = &[
    "device",
    "pin_memory",
    "layout",
    "memory_format",
    "non_blocking",
    "copy",
    "requires_grad",
    "cudnn_enable",
    "cudnn_enabled",
    "implicit",
];

impl Call {
    /// Reads the arguments of `node`.
    pub(crate) fn read(importer: &Importer<'_>, node: &Node) -> Result<Call> {
        let (mut arguments, mut complex) = (Vec::new(), Vec::new());
        for input in &node.inputs {
            if matches!(&input.arg, Argument::AsTensor(n) if importer.is_complex(&n.name)) {
                complex.push(input.name.clone());
            }
            let arg = convert(importer, &input.arg).map_err(|e| at(&input.name, e))?;
            arguments.push((input.name.clone(), arg));
        }
        let used = RefCell::new(
            arguments
                .iter()
                .map(|(name, _)| IGNORED.contains(&name.as_str()))
                .collect(),
        );
        Ok(Call {
            arguments,
            used,
            complex,
        })
    }

    /// The argument, where it is given.
    fn get(&self, name: &str) -> Option<&Arg> {
        let i = self.arguments.iter().position(|(n, _)| n == name)?;
        self.used.borrow_mut()[i] = true;
        match &self.arguments[i].1 {
            Arg::None => None,
            arg => Some(arg),
        }
    }

    /// Passes over arguments that do not change the result.
    pub(crate) fn ignore(&self, names: &[&str]) {
        for name in names {
            self.get(name);
        }
    }

    /// An error where an argument was not asked for.
    pub(crate) fn finish(&self) -> Result<()> {
        let used = self.used.borrow();
        match self.arguments.iter().zip(used.iter()).find(|(_, used)| !**used) {
            None => Ok(()),
            Some(((name, _), _)) => Err(Error::unsupported(format!("its argument `{name}` is not supported"))),
        }
    }

    fn wrong<T>(&self, name: &str, want: &str) -> Result<T> {
        let found = match self.get(name) {
            None => "nothing".to_owned(),
            Some(Arg::Other(what)) => (*what).to_owned(),
            Some(arg) => format!("{arg:?}"),
        };
        Err(Error::unsupported(format!(
            "its argument `{name}` should be {want}, found {found}"
        )))
    }

    pub(crate) fn tensor(&self, name: &str) -> Result<ValueId> {
        match self.get(name) {
            Some(Arg::Tensor(v)) => Ok(*v),
            _ => self.wrong(name, "a tensor"),
        }
    }

    pub(crate) fn optional(&self, name: &str) -> Result<Option<ValueId>> {
        match self.get(name) {
            None => Ok(None),
            Some(Arg::Tensor(v)) => Ok(Some(*v)),
            _ => self.wrong(name, "a tensor or nothing"),
        }
    }

    pub(crate) fn optional_tensors(&self, name: &str) -> Result<Vec<Option<ValueId>>> {
        match self.get(name) {
            Some(Arg::Tensors(v)) => Ok(v.clone()),
            _ => self.wrong(name, "a list of tensors"),
        }
    }

    pub(crate) fn tensors(&self, name: &str) -> Result<Vec<ValueId>> {
        let all: Option<Vec<ValueId>> = self.optional_tensors(name)?.into_iter().collect();
        all.map_or_else(|| self.wrong(name, "a list of tensors"), Ok)
    }

    /// A size; `default` where it is absent.
    pub(crate) fn size(&self, name: &str, default: Option<i64>) -> Result<Dim> {
        match (self.get(name), default) {
            (Some(Arg::Size(d)), _) => Ok(d.clone()),
            (None, Some(n)) => Ok(Dim::integer(n)),
            _ => self.wrong(name, "an integer"),
        }
    }

    /// A size, where it is given.
    pub(crate) fn optional_size(&self, name: &str) -> Result<Option<Dim>> {
        match self.get(name) {
            None => Ok(None),
            Some(Arg::Size(d)) => Ok(Some(d.clone())),
            _ => self.wrong(name, "an integer or nothing"),
        }
    }

    /// An integer that is fixed; `default` where it is absent.
    pub(crate) fn integer(&self, name: &str, default: Option<i64>) -> Result<i64> {
        match self.size(name, default)?.as_integer() {
            Some(n) => Ok(n),
            None => self.wrong(name, "a fixed integer"),
        }
    }

    pub(crate) fn optional_integer(&self, name: &str) -> Result<Option<i64>> {
        match self.optional_size(name)? {
            None => Ok(None),
            Some(d) => match d.as_integer() {
                Some(n) => Ok(Some(n)),
                None => self.wrong(name, "a fixed integer"),
            },
        }
    }

    /// Sizes, where they are given; a single one counts as a list.
    pub(crate) fn sizes(&self, name: &str) -> Result<Option<Vec<Dim>>> {
        match self.get(name) {
            None => Ok(None),
            Some(Arg::Sizes(d)) => Ok(Some(d.clone())),
            Some(Arg::Size(d)) => Ok(Some(vec![d.clone()])),
            Some(Arg::Tensors(v)) if v.is_empty() => Ok(Some(Vec::new())),
            _ => self.wrong(name, "a list of integers"),
        }
    }

    /// Fixed integers, where they are given.
    pub(crate) fn integers(&self, name: &str) -> Result<Option<Vec<i64>>> {
        let Some(sizes) = self.sizes(name)? else {
            return Ok(None);
        };
        let fixed: Option<Vec<i64>> = sizes.iter().map(Dim::as_integer).collect();
        fixed.map_or_else(|| self.wrong(name, "a list of fixed integers"), |v| Ok(Some(v)))
    }

    /// Fixed sizes of `n` axes: one for all, or one each; `default` where they are absent or an empty list.
    pub(crate) fn per_axis(&self, name: &str, n: usize, default: &[usize]) -> Result<Vec<usize>> {
        let given = self.integers(name)?.unwrap_or_default();
        let sizes: Option<Vec<usize>> = given.iter().map(|&v| usize::try_from(v).ok()).collect();
        match sizes {
            Some(v) if v.is_empty() => Ok(default.to_vec()),
            Some(v) if v.len() == n => Ok(v),
            Some(v) if v.len() == 1 => Ok(vec![v[0]; n]),
            _ => self.wrong(name, &format!("{n} sizes")),
        }
    }

    /// A number; `default` where it is absent.
    pub(crate) fn number(&self, name: &str, default: Option<f64>) -> Result<Number> {
        match (self.get(name), default) {
            (Some(Arg::Float(v)), _) => Ok(Number::Float(*v)),
            (Some(Arg::Size(d)), _) => Ok(Number::Size(d.clone())),
            (Some(Arg::Flag(b)), _) => Ok(Number::Size(Dim::integer((*b).into()))),
            (None, Some(v)) => Ok(Number::Float(v)),
            _ => self.wrong(name, "a number"),
        }
    }

    pub(crate) fn optional_number(&self, name: &str) -> Result<Option<Number>> {
        match self.get(name) {
            None => Ok(None),
            Some(_) => self.number(name, None).map(Some),
        }
    }

    /// A number that is fixed; `default` where it is absent.
    pub(crate) fn float(&self, name: &str, default: Option<f64>) -> Result<f64> {
        match self.number(name, default)?.value() {
            Some(v) => Ok(v),
            None => self.wrong(name, "a fixed number"),
        }
    }

    pub(crate) fn optional_floats(&self, name: &str) -> Result<Option<Vec<f64>>> {
        match self.get(name) {
            None => Ok(None),
            Some(Arg::Floats(v)) => Ok(Some(v.clone())),
            _ => self.wrong(name, "a list of numbers"),
        }
    }

    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool> {
        match self.get(name) {
            None => Ok(default),
            Some(Arg::Flag(b)) => Ok(*b),
            _ => self.wrong(name, "true or false"),
        }
    }

    pub(crate) fn text<'a>(&'a self, name: &str, default: &'a str) -> Result<&'a str> {
        match self.get(name) {
            None => Ok(default),
            Some(Arg::Text(t)) => Ok(t),
            _ => self.wrong(name, "a word"),
        }
    }

    /// The element type of the graph, where one is given.
    pub(crate) fn dtype(&self, name: &str) -> Result<Option<DType>> {
        match self.get(name) {
            None => Ok(None),
            Some(Arg::DType(code)) => Ok(Some(graph_type(*code)?)),
            _ => self.wrong(name, "an element type"),
        }
    }

    /// The code of an element type of the schema, where one is given.
    pub(crate) fn dtype_code(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            Some(Arg::DType(code)) => Some(*code),
            _ => None,
        }
    }

    /// Whether an argument is a tensor of complex numbers.
    pub(crate) fn is_complex(&self, name: &str) -> bool {
        self.complex.iter().any(|n| n == name)
    }

    /// Whether an argument is a tensor.
    pub(crate) fn is_tensor(&self, name: &str) -> bool {
        let found = self.arguments.iter().find(|(n, _)| n == name);
        matches!(found, Some((_, Arg::Tensor(_))))
    }
}

fn at(name: &str, e: Error) -> Error {
    Error::new(e.kind(), format!("its argument `{name}`: {e}"))
}

fn convert(importer: &Importer<'_>, argument: &Argument) -> Result<Arg> {
    let tensor = |n: &Name| importer.value(&n.name);
    let optional = |t: &OptionalTensor| match t {
        OptionalTensor::AsTensor(n) => tensor(n).map(Some),
        OptionalTensor::AsNone(_) => Ok(None),
    };
    let size = |s: &SymArgument| match s {
        SymArgument::AsInt(n) => Ok(Dim::integer(*n)),
        SymArgument::AsName(name) => importer.computed_size(name),
    };
    Ok(match argument {
        Argument::AsTensor(n) => Arg::Tensor(tensor(n)?),
        Argument::AsTensors(all) => Arg::Tensors(all.iter().map(|n| tensor(n).map(Some)).collect::<Result<_>>()?),
        Argument::AsOptionalTensor(t) => optional(t)?.map_or(Arg::None, Arg::Tensor),
        Argument::AsOptionalTensors(all) => Arg::Tensors(all.iter().map(optional).collect::<Result<_>>()?),
        Argument::AsInt(n) => Arg::Size(Dim::integer(*n)),
        Argument::AsInts(all) => Arg::Sizes(all.iter().map(|&n| Dim::integer(n)).collect()),
        Argument::AsSymInt(s) => Arg::Size(size(s)?),
        Argument::AsSymInts(all) => Arg::Sizes(all.iter().map(size).collect::<Result<_>>()?),
        Argument::AsFloat(v) => Arg::Float(v.0),
        Argument::AsFloats(all) => Arg::Floats(all.iter().map(|v| v.0).collect()),
        Argument::AsBool(b) => Arg::Flag(*b),
        Argument::AsBools(_) => Arg::Other("a list of flags"),
        Argument::AsString(t) => Arg::Text(t.clone()),
        Argument::AsNone(_) => Arg::None,
        Argument::AsScalarType(code) => Arg::DType(*code),
        Argument::AsStrings(_) => Arg::Other("a list of words"),
        Argument::AsSymFloat(_) | Argument::AsSymFloats(_) => Arg::Other("a float that the graph computes"),
        Argument::AsSymBool(_) | Argument::AsSymBools(_) => Arg::Other("a truth value that the graph computes"),
        Argument::AsGraph(_) => Arg::Other("a subgraph"),
        Argument::AsDevice(_) | Argument::AsLayout(_) | Argument::AsMemoryFormat(_) => Arg::Other("a place or layout"),
    })
}
