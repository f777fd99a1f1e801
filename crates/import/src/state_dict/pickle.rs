//! A reader of the pickles in files of `torch.save`: data in, data out, nothing is ever called.
//!
//! Purpose: to find the tensors of a state dict without running what a pickle may hold. A pickle is a program for a stack
//! machine (its operations are those of Python's `pickletools`); this one knows the operations that data needs, and a
//! fixed list of names that may be mentioned. Everything else is an error that names what was found. It knows bytes only:
//! where a tensor's elements lie is `super`'s business.
//!
//! Hostile input: values lie in one vector of bounded length and refer to each other by index, so nothing recurs, and a
//! file makes no more of them than it has bytes.

use crate::{Error, Result};
use std::collections::HashMap;

/// Values a pickle may have; a state dict makes about twenty for each tensor.
const MAX_VALUES: usize = 1 << 22;
/// Longest name of a storage; torch counts them.
const MAX_KEY_BYTES: usize = 32;
/// Most axes whose sizes are looked at.
const MAX_AXES: usize = 64;
/// Highest protocol whose operations are known.
const MAX_PROTOCOL: u8 = 5;

/// Index of a value.
pub(super) type Id = usize;

/// What a pickle holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Bytes,
    /// Items of a tuple or a list.
    Items(Vec<Id>),
    /// Keys and values, in the order written.
    Dict(Vec<(Id, Id)>),
    /// A name of the list below.
    Known(Known),
    /// A storage: element type and name of its entry.
    Storage {
        kind: &'static str,
        key: String,
    },
    /// A tensor: its storage, first element, sizes and strides.
    Tensor {
        storage: Id,
        offset: i64,
        sizes: Id,
        strides: Id,
    },
}

/// The names that may be mentioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    OrderedDict,
    Size,
    Tensor,
    Parameter,
    /// The class of a storage, by the element type in our words.
    Storage(&'static str),
    /// An element type, which nothing that is read depends on.
    Type,
}

fn known(module: &str, name: &str) -> Option<Known> {
    Some(match (module, name) {
        ("collections", "OrderedDict") => Known::OrderedDict,
        ("torch", "Size") => Known::Size,
        ("torch._utils", "_rebuild_tensor_v2") => Known::Tensor,
        ("torch._utils", "_rebuild_parameter") => Known::Parameter,
        (
            "torch",
            "float32" | "float64" | "float16" | "bfloat16" | "int64" | "int32" | "int16" | "int8" | "uint8" | "bool",
        ) => Known::Type,
        ("torch", "FloatStorage") => Known::Storage("F32"),
        ("torch", "DoubleStorage") => Known::Storage("F64"),
        ("torch", "HalfStorage") => Known::Storage("F16"),
        ("torch", "BFloat16Storage") => Known::Storage("BF16"),
        ("torch", "LongStorage") => Known::Storage("I64"),
        ("torch", "IntStorage") => Known::Storage("I32"),
        ("torch", "ShortStorage") => Known::Storage("I16"),
        ("torch", "CharStorage") => Known::Storage("I8"),
        ("torch", "ByteStorage") => Known::Storage("U8"),
        ("torch", "BoolStorage") => Known::Storage("BOOL"),
        _ => return None,
    })
}

/// The values of a pickle, and which of them it is.
#[derive(Debug)]
pub(super) struct Pickle {
    values: Vec<Value>,
    root: Id,
}

impl Pickle {
    /// Reads a pickle to its end.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unsupported`] for an operation or a name that is not on the list,
    /// [`crate::ErrorKind::Malformed`] for what no pickle has; both name the byte.
    pub(super) fn read(bytes: &[u8]) -> Result<Pickle> {
        let mut machine = Machine {
            bytes,
            at: 0,
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
        };
        loop {
            let begin = machine.at;
            match machine.step() {
                Ok(None) => {}
                Ok(Some(root)) => {
                    return Ok(Pickle {
                        values: machine.values,
                        root,
                    });
                }
                Err(e) => return Err(e.at_offset(begin)),
            }
        }
    }

    pub(super) fn root(&self) -> Id {
        self.root
    }

    pub(super) fn get(&self, id: Id) -> &Value {
        &self.values[id]
    }

    /// Sizes or strides: numbers that are not negative.
    pub(super) fn sizes(&self, id: Id) -> Option<Vec<usize>> {
        let Value::Items(items) = self.get(id) else {
            return None;
        };
        if items.len() > MAX_AXES {
            return None;
        }
        let one = |&i: &Id| match self.get(i) {
            Value::Int(n) => usize::try_from(*n).ok(),
            _ => None,
        };
        items.iter().map(one).collect()
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    values: Vec<Value>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
}

impl<'a> Machine<'a> {
    /// One operation; the value of the whole where it was the last.
    fn step(&mut self) -> Result<Option<Id>> {
        let [op] = self.take()?;
        match op {
            b'.' => return self.pop().map(Some),
            0x80 => {
                let [protocol] = self.take()?;
                if protocol > MAX_PROTOCOL {
                    let what = format!("pickle protocol {protocol} is not supported; at most {MAX_PROTOCOL} is");
                    return Err(Error::unsupported(what));
                }
            }
            // A frame is a hint of how much to read at once.
            0x95 => drop(self.take::<8>()?),
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            b'K' => {
                let [n] = self.take()?;
                self.push(Value::Int(n.into()))?;
            }
            b'M' => {
                let n = u16::from_le_bytes(self.take()?);
                self.push(Value::Int(n.into()))?;
            }
            b'J' => {
                let n = i32::from_le_bytes(self.take()?);
                self.push(Value::Int(n.into()))?;
            }
            0x8a => self.long()?,
            b'G' => {
                let x = f64::from_be_bytes(self.take()?);
                self.push(Value::Float(x))?;
            }
            0x8c => {
                let [n] = self.take()?;
                self.text(n.into())?;
            }
            b'X' => {
                let n = u32::from_le_bytes(self.take()?);
                self.text(n as usize)?;
            }
            b'C' => {
                let [n] = self.take()?;
                self.slice(n.into())?;
                self.push(Value::Bytes)?;
            }
            b']' | b')' => self.push(Value::Items(Vec::new()))?,
            b'}' => self.push(Value::Dict(Vec::new()))?,
            b'(' => self.marks.push(self.stack.len()),
            b't' | b'l' => {
                let items = self.since_mark()?;
                self.push(Value::Items(items))?;
            }
            0x85..=0x87 => {
                let n = usize::from(op - 0x84);
                let items = self.last(n)?;
                self.push(Value::Items(items))?;
            }
            b'a' => {
                let items = self.last(1)?;
                self.append(items)?;
            }
            b'e' => {
                let items = self.since_mark()?;
                self.append(items)?;
            }
            b's' => {
                let items = self.last(2)?;
                self.set(&items)?;
            }
            b'u' => {
                let items = self.since_mark()?;
                self.set(&items)?;
            }
            b'0' => drop(self.pop()?),
            b'q' => {
                let [n] = self.take()?;
                self.remember(n.into())?;
            }
            b'r' => {
                let n = u32::from_le_bytes(self.take()?);
                self.remember(n)?;
            }
            0x94 => {
                let n = u32::try_from(self.memo.len()).map_err(|_| Error::malformed("too many values"))?;
                self.remember(n)?;
            }
            b'h' => {
                let [n] = self.take()?;
                self.recall(n.into())?;
            }
            b'j' => {
                let n = u32::from_le_bytes(self.take()?);
                self.recall(n)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(module, name)?;
            }
            0x93 => self.stack_global()?,
            b'Q' => self.storage()?,
            b'R' => self.rebuild()?,
            // The state of an object: metadata of an OrderedDict, which is not needed.
            b'b' => drop(self.pop()?),
            _ => {
                let what = format!("operation {op:#04x} of a pickle, which tensors do not need");
                return Err(Error::unsupported(what));
            }
        }
        Ok(None)
    }

    fn slice(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(count).filter(|&e| e <= self.bytes.len());
        let Some(end) = end else {
            return Err(Error::malformed("the pickle ends too early"));
        };
        let found = &self.bytes[self.at..end];
        self.at = end;
        Ok(found)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.slice(N)?);
        Ok(out)
    }

    fn line(&mut self) -> Result<&'a str> {
        let rest = &self.bytes[self.at..];
        let Some(count) = rest.iter().take(1 << 10).position(|&b| b == b'\n') else {
            return Err(Error::malformed("a name without an end"));
        };
        let line = self.slice(count)?;
        self.at += 1;
        std::str::from_utf8(line).map_err(|_| Error::malformed("a name that is not text"))
    }

    fn text(&mut self, count: usize) -> Result<()> {
        let text = std::str::from_utf8(self.slice(count)?).map_err(|_| Error::malformed("a text is not UTF-8"))?;
        self.push(Value::Text(text.to_owned()))
    }

    /// A whole number of up to 8 bytes.
    fn long(&mut self) -> Result<()> {
        let [count] = self.take()?;
        let bytes = self.slice(count.into())?;
        if bytes.len() > 8 {
            return Err(Error::unsupported("a whole number of more than 64 bits"));
        }
        let fill = if bytes.last().is_some_and(|b| b & 0x80 != 0) {
            0xff
        } else {
            0
        };
        let mut all = [fill; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        self.push(Value::Int(i64::from_le_bytes(all)))
    }

    fn push(&mut self, value: Value) -> Result<()> {
        if self.values.len() == MAX_VALUES {
            return Err(Error::unsupported(format!("a pickle of more than {MAX_VALUES} values")));
        }
        self.values.push(value);
        self.stack.push(self.values.len() - 1);
        Ok(())
    }

    /// The last value; marks below it stay whole.
    fn pop(&mut self) -> Result<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack.len() > floor {
            true => self.stack.pop().ok_or_else(empty),
            false => Err(empty()),
        }
    }

    fn last(&mut self, count: usize) -> Result<Vec<Id>> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack.len().checked_sub(count).filter(|&n| n >= floor) {
            Some(from) => Ok(self.stack.split_off(from)),
            None => Err(empty()),
        }
    }

    fn since_mark(&mut self) -> Result<Vec<Id>> {
        // Values are only taken above the last mark, so it is never beyond the end.
        let from = self.marks.pop().ok_or_else(empty)?;
        Ok(self.stack.split_off(from.min(self.stack.len())))
    }

    /// The container on top of the stack, to be filled.
    fn top(&mut self) -> Result<&mut Value> {
        let &id = self.stack.last().ok_or_else(empty)?;
        Ok(&mut self.values[id])
    }

    fn append(&mut self, items: Vec<Id>) -> Result<()> {
        match self.top()? {
            Value::Items(list) => list.extend(items),
            other => return Err(Error::malformed(format!("items for {}", kind(other)))),
        }
        Ok(())
    }

    fn set(&mut self, items: &[Id]) -> Result<()> {
        let (pairs, rest) = items.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(Error::malformed("a key without a value"));
        }
        match self.top()? {
            Value::Dict(dict) => dict.extend(pairs.iter().map(|[k, v]| (*k, *v))),
            other => return Err(Error::malformed(format!("keys for {}", kind(other)))),
        }
        Ok(())
    }

    fn remember(&mut self, name: u32) -> Result<()> {
        let &id = self.stack.last().ok_or_else(empty)?;
        self.memo.insert(name, id);
        Ok(())
    }

    fn recall(&mut self, name: u32) -> Result<()> {
        match self.memo.get(&name) {
            Some(&id) => self.stack.push(id),
            None => return Err(Error::malformed(format!("value {name} is used and never kept"))),
        }
        Ok(())
    }

    fn global(&mut self, module: &str, name: &str) -> Result<()> {
        match known(module, name) {
            Some(k) => self.push(Value::Known(k)),
            None => Err(Error::unsupported(format!(
                "the file holds `{}.{}`, and reading that would run code; only tensors are supported: save `model.state_dict()`",
                module.escape_debug(),
                name.escape_debug()
            ))),
        }
    }

    fn stack_global(&mut self) -> Result<()> {
        let parts = self.last(2)?;
        let text = |i: usize| match &self.values[parts[i]] {
            Value::Text(t) => Ok(t.clone()),
            other => Err(Error::malformed(format!("a name that is {}", kind(other)))),
        };
        let (module, name) = (text(0)?, text(1)?);
        self.global(&module, &name)
    }

    /// `('storage', class, key, device, elements)`.
    fn storage(&mut self) -> Result<()> {
        let id = self.pop()?;
        let Value::Items(items) = &self.values[id] else {
            return Err(Error::malformed("a storage should be a tuple"));
        };
        let values: Vec<&Value> = items.iter().take(3).map(|&i| &self.values[i]).collect();
        match values[..] {
            [Value::Text(tag), Value::Known(Known::Storage(kind)), Value::Text(key)]
                if tag == "storage" && key.len() <= MAX_KEY_BYTES =>
            {
                let (kind, key) = (*kind, key.clone());
                self.push(Value::Storage { kind, key })
            }
            _ => Err(Error::unsupported(
                "an object outside of the pickle that is not a storage of numbers",
            )),
        }
    }

    /// A call, of which only those that make data are known: what they would give is put together here.
    fn rebuild(&mut self) -> Result<()> {
        let parts = self.last(2)?;
        let (Value::Known(what), Value::Items(given)) = (&self.values[parts[0]], &self.values[parts[1]]) else {
            let found = kind(&self.values[parts[0]]);
            return Err(Error::malformed(format!("a call of {found}")));
        };
        let int = |i: usize| match given.get(i).map(|&v| &self.values[v]) {
            Some(Value::Int(n)) => Some(*n),
            _ => None,
        };
        let made = match (what, given.len()) {
            (Known::OrderedDict, 0) => Value::Dict(Vec::new()),
            (Known::Tensor, 4..) => Value::Tensor {
                storage: given[0],
                offset: int(1).ok_or_else(|| Error::malformed("a tensor without a first element"))?,
                sizes: given[2],
                strides: given[3],
            },
            // What it is made of stands for it; a copy would let a few bytes make many values.
            (Known::Parameter, 1..) | (Known::Size, 1) => {
                let same = given[0];
                self.stack.push(same);
                return Ok(());
            }
            (what, count) => {
                let what = format!("{what:?} made of {count} values, which is not supported");
                return Err(Error::unsupported(what));
            }
        };
        self.push(made)
    }
}

fn empty() -> Error {
    Error::malformed("a pickle that takes more than it has made")
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::None => "none",
        Value::Bool(_) => "a truth value",
        Value::Int(_) | Value::Float(_) => "a number",
        Value::Text(_) | Value::Bytes => "a text",
        Value::Items(_) => "a list",
        Value::Dict(_) => "a dict",
        Value::Known(_) => "a class",
        Value::Storage { .. } => "a storage",
        Value::Tensor { .. } => "a tensor",
    }
}
