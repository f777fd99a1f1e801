//! Experts of a layer as one tensor, whatever tensors a checkpoint keeps them in.
//!
//! Families name them as `transformers` 5 does: `….experts.gate_up_proj` `[experts, 2 * width, hidden]`, in which each expert has the
//! rows of its gate and then those that are gated, and `….experts.down_proj` `[experts, hidden, width]`. Published checkpoints have
//! three tensors for each expert, GGUF files three for all of them, and some have the two tensors with rows and columns exchanged, which
//! their shapes tell. Nothing is copied before it is read.

mod interleaved;
mod turned;

use crate::{Error, Result, TensorSource};
use cactus_tensor::Tensor;
use interleaved::Interleaved;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use turned::Turned;

/// Names of an expert's projections: gate, gated, back; in most families, and in LFM2.
const NAMES: [[&str; 3]; 2] = [["gate_proj", "up_proj", "down_proj"], ["w1", "w3", "w2"]];
const GATE_UP: &str = "gate_up_proj";
const DOWN: &str = "down_proj";
/// What is behind them in the names of biases.
const BIAS: &str = "_bias";

/// What stands below each other for every expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Gate,
    Up,
    /// Both of them.
    GateUp,
    Down,
}

/// Where a tensor of experts belongs: the name of the whole, the expert, where it has only one, and what it has of it.
type Place = (String, Option<usize>, Role);

fn place(name: &str) -> Option<Place> {
    let (prefix, rest) = name.split_once(".experts.")?;
    let (rest, ending) = match rest.strip_suffix(".weight") {
        Some(rest) => (rest, ""),
        None => (rest.strip_suffix(".bias")?, BIAS),
    };
    let (expert, own) = match rest.split_once('.') {
        Some((number, own)) => {
            let expert: usize = number.parse().ok()?;
            // A plain decimal number, so that no two spellings collide.
            (Some(expert).filter(|e| e.to_string() == number)?.into(), own)
        }
        None => (None, rest),
    };
    let role = match NAMES.iter().find_map(|names| names.iter().position(|n| *n == own)) {
        Some(which) => [Role::Gate, Role::Up, Role::Down][which],
        None if own == GATE_UP => Role::GateUp,
        None => return None,
    };
    let whole = if role == Role::Down { DOWN } else { GATE_UP };
    Some((format!("{prefix}.experts.{whole}{ending}"), expert, role))
}

/// A source whose experts are under the names of families.
struct ExpertsSource {
    inner: Box<dyn TensorSource>,
    /// Every name, and what it is made of; `None` where `inner` has it as it is.
    names: BTreeMap<String, Option<Made>>,
}

/// What a tensor is made of.
#[derive(Debug)]
enum Made {
    Stack(Stack),
    Turned(Turned),
}

impl Made {
    fn shape(&self) -> Vec<usize> {
        match self {
            Made::Stack(stack) => stack.shape[..3 - usize::from(stack.biases)].to_vec(),
            Made::Turned(turned) => turned.shape.to_vec(),
        }
    }
}

/// A tensor that is made of equally many rows of others, one below the other.
#[derive(Debug)]
struct Stack {
    /// `[experts, rows, columns]`.
    shape: [usize; 3],
    /// Rows of each part.
    part_rows: usize,
    /// Tensors of one expert in the order of the parts, or those with all experts, one for each role.
    tensors: Vec<String>,
    of_each: bool,
    /// Whether its rows are numbers, without the last axis.
    biases: bool,
}

/// `source` with experts under the names of families; as it is where it has none in other tensors.
///
/// # Errors
/// [`crate::ErrorKind::Malformed`] where an expert is missing, there twice, or of another shape than the others, naming the tensor.
pub(crate) fn with_stacked(source: Box<dyn TensorSource>) -> Result<Box<dyn TensorSource>> {
    let mut names = BTreeMap::new();
    let mut found: BTreeMap<String, BTreeMap<(Option<usize>, Role), String>> = BTreeMap::new();
    for name in source.names() {
        let Some((whole, expert, role)) = place(name) else {
            names.insert(name.to_owned(), None);
            continue;
        };
        if let Some(other) = found.entry(whole).or_default().insert((expert, role), name.to_owned()) {
            let what = format!("it has the same experts as `{other}`");
            return Err(Error::malformed(what).of_tensor(name));
        }
    }
    let mut any = !found.is_empty();
    for (name, shape) in turned::find(source.as_ref()) {
        names.insert(name, Some(Made::Turned(Turned { shape })));
        any = true;
    }
    if !any {
        return Ok(source);
    }
    for (whole, parts) in found {
        let stack = Stack::of(source.as_ref(), &parts, whole.ends_with(BIAS)).map_err(|e| match e.tensor() {
            Some(_) => e,
            None => e.of_tensor(whole.as_str()),
        })?;
        if names.insert(whole.clone(), Some(Made::Stack(stack))).is_some() {
            let what = "its experts are there in tensors of their own, too";
            return Err(Error::malformed(what).of_tensor(whole));
        }
    }
    Ok(Box::new(ExpertsSource { inner: source, names }))
}

/// `source`, whose rows of gates and of what they gate take turns, with the gates first.
pub(crate) fn with_gates_first(source: Box<dyn TensorSource>) -> Box<dyn TensorSource> {
    Box::new(Interleaved(source))
}

impl Stack {
    fn of(source: &dyn TensorSource, found: &BTreeMap<(Option<usize>, Role), String>, biases: bool) -> Result<Stack> {
        let roles: &[Role] = match found.keys().next() {
            Some((_, Role::Down)) => &[Role::Down],
            Some((_, Role::GateUp)) => &[Role::GateUp],
            _ => &[Role::Gate, Role::Up],
        };
        let of_each = found.keys().all(|(expert, _)| expert.is_some());
        let numbers = if of_each { found.len().div_ceil(roles.len()) } else { 1 };
        // Experts in order, and of each of them what it has in order.
        let expected = (0..numbers).flat_map(|n| roles.iter().map(move |&role| (of_each.then_some(n), role)));
        let mut names = Vec::with_capacity(found.len());
        for key in expected {
            let Some(name) = found.get(&key) else {
                let (expert, role) = key;
                let of = expert.map(|n| format!(" of expert {n}")).unwrap_or_default();
                return Err(Error::malformed(format!("the {role:?} projection{of} is missing")));
            };
            names.push(name);
        }
        if names.len() != found.len() {
            let what = format!("expected {} tensors of experts, found {}", names.len(), found.len());
            return Err(Error::malformed(what));
        }
        let shapes: Vec<Vec<usize>> = names.iter().map(|n| source.shape(n).unwrap_or_default()).collect();
        if let Some((name, shape)) = names.iter().zip(&shapes).find(|(_, shape)| **shape != shapes[0]) {
            let what = format!("expected the shape {:?} of the others, found {shape:?}", shapes[0]);
            return Err(Error::malformed(what).of_tensor(name.as_str()));
        }
        let (experts, part_rows, columns) = match (of_each, biases, &shapes[0][..]) {
            (true, false, &[rows, columns]) => (numbers, rows, columns),
            (false, false, &[experts, rows, columns]) => (experts, rows, columns),
            (true, true, &[rows]) => (numbers, rows, 1),
            (false, true, &[experts, rows]) => (experts, rows, 1),
            (_, _, shape) => {
                let axes = 3 - usize::from(of_each) - usize::from(biases);
                let what = format!("expected {axes} axes, found the shape {shape:?}");
                return Err(Error::malformed(what).of_tensor(names[0].as_str()));
            }
        };
        // What has no elements may claim any number of experts.
        let rows = part_rows
            .checked_mul(roles.len())
            .filter(|&rows| rows > 0 && columns > 0);
        let rows = rows.filter(|rows| rows.checked_mul(experts).is_some());
        let Some(rows) = rows else {
            let what = format!("experts of the shape {:?} have no rows, or too many", shapes[0]);
            return Err(Error::malformed(what).of_tensor(names[0].as_str()));
        };
        Ok(Stack {
            shape: [experts, rows, columns],
            part_rows,
            tensors: names.into_iter().cloned().collect(),
            of_each,
            biases,
        })
    }

    /// The tensor with a part, and its first row there.
    fn part(&self, part: usize) -> Option<(&str, usize)> {
        let (tensor, first) = match self.of_each {
            true => (part, 0),
            false => (part % self.tensors.len(), part / self.tensors.len() * self.part_rows),
        };
        Some((self.tensors.get(tensor)?, first))
    }

    /// Rows `rows` of all experts, which `read` reads of one tensor; `None` where it does.
    fn rows(
        &self,
        rows: Range<usize>,
        mut read: impl FnMut(&str, Range<usize>) -> Option<Result<Tensor>>,
    ) -> Option<Result<Tensor>> {
        let [experts, of_each, columns] = self.shape;
        if rows.start > rows.end || rows.end > experts * of_each {
            return None;
        }
        let mut values = Vec::with_capacity(rows.len() * columns);
        let mut at = rows.start;
        while at < rows.end {
            let (part, skipped) = (at / self.part_rows, at % self.part_rows);
            let count = (self.part_rows - skipped).min(rows.end - at);
            let (name, first) = self.part(part)?;
            let first = first + skipped;
            let made = read(name, first..first + count)?.and_then(|tensor| {
                let found = tensor
                    .as_f32()
                    .map_err(|e| Error::malformed(e.to_string()).of_tensor(name))?;
                values.extend_from_slice(found);
                Ok(())
            });
            if let Err(e) = made {
                return Some(Err(e));
            }
            at += count;
        }
        let tensor = Tensor::from_f32([rows.len(), columns], values);
        Some(tensor.map_err(|e| Error::malformed(e.to_string())))
    }
}

impl ExpertsSource {
    /// What a name is made of, where `inner` does not have it as it is.
    fn made(&self, name: &str) -> Option<&Made> {
        self.names.get(name)?.as_ref()
    }
}

impl TensorSource for ExpertsSource {
    fn names(&self) -> Vec<&str> {
        self.names.keys().map(String::as_str).collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        match self.names.get(name)? {
            Some(made) => Some(made.shape()),
            None => self.inner.shape(name),
        }
    }

    fn stored_type(&self, name: &str) -> Option<&'static str> {
        match self.names.get(name)? {
            Some(Made::Stack(stack)) => self.inner.stored_type(stack.tensors.first()?),
            _ => self.inner.stored_type(name),
        }
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        let stack = match self.made(name) {
            Some(Made::Stack(stack)) => stack,
            Some(Made::Turned(turned)) => return turned.read(self.inner.as_ref(), name),
            None => return self.inner.read(name),
        };
        // Where rows cannot be read alone, a tensor is read once.
        let mut wholes: BTreeMap<String, Tensor> = BTreeMap::new();
        let [experts, rows, columns] = stack.shape;
        let all = stack.rows(0..experts * rows, |part, range| {
            let rows = || self.inner.read_rows(part, range.clone());
            if let Some(read) = (!stack.biases).then(rows).flatten() {
                return Some(read);
            }
            let cut = |whole: &Tensor| -> Result<Tensor> {
                let fail = |e: String| Error::malformed(e).of_tensor(part);
                let values = whole.as_f32().map_err(|e| fail(e.to_string()))?;
                let values = values.get(range.start * columns..range.end * columns);
                let values = values.ok_or_else(|| fail("it ends before its experts".into()))?;
                Tensor::from_f32([range.len(), columns], values.to_vec()).map_err(|e| fail(e.to_string()))
            };
            if !wholes.contains_key(part) {
                match self.inner.read(part) {
                    Ok(whole) => drop(wholes.insert(part.to_owned(), whole)),
                    Err(e) => return Some(Err(e)),
                }
            }
            wholes.get(part).map(cut)
        });
        let tensor = all.unwrap_or_else(|| Err(Error::malformed("its rows cannot be read")))?;
        let shaped = tensor.reshaped(self.shape(name).unwrap_or_default());
        shaped.map_err(|e| Error::malformed(e.to_string()).of_tensor(name))
    }

    fn read_rows(&self, name: &str, rows: Range<usize>) -> Option<Result<Tensor>> {
        match self.made(name) {
            Some(Made::Stack(stack)) if stack.biases => None,
            Some(Made::Stack(stack)) => stack.rows(rows, |part, range| self.inner.read_rows(part, range)),
            Some(Made::Turned(turned)) => turned.rows(self.inner.as_ref(), name, rows),
            None => self.inner.read_rows(name, rows),
        }
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.inner.files()
    }
}

#[cfg(test)]
pub(crate) mod tests;
