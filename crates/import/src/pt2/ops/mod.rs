//! The table: one row for each operation, by its name. A row reads the arguments of a call and writes operations of the
//! portable graph; what it does not read is an error. To add an operation, add a row to the file of its kind.

mod complex;
mod conv;
mod create;
mod elementwise;
mod index;
mod inverse;
mod linear;
mod norm;
mod pad;
mod rearrange;
mod recurrent;
mod reduce;
mod resize;
mod scan;
mod shape;
mod window;

use super::arguments::{Call, Number};
use super::importer::{Importer, invalid};
use super::schema::{Argument, Node};
use crate::{Error, Result};
use cactus_ir::{BinaryFn, CompareFn, Dim, Literal, Op, ReduceFn, TensorType, UnaryFn, ValueId};
use cactus_tensor::DType;
use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

/// What a row does: reads a call and gives its results. Fewer than the operation has are allowed: the others cannot be
/// used.
pub(crate) type Row = fn(&mut Importer<'_>, &Call) -> Result<Vec<ValueId>>;

static TABLES: &[&[(&str, Row)]] = &[
    complex::ROWS,
    conv::ROWS,
    create::ROWS,
    elementwise::ROWS,
    index::ROWS,
    inverse::ROWS,
    linear::ROWS,
    norm::ROWS,
    pad::ROWS,
    rearrange::ROWS,
    recurrent::ROWS,
    reduce::ROWS,
    resize::ROWS,
    scan::ROWS,
    shape::ROWS,
    window::ROWS,
];

fn table() -> &'static HashMap<&'static str, Row> {
    static TABLE: OnceLock<HashMap<&'static str, Row>> = OnceLock::new();
    TABLE.get_or_init(|| TABLES.iter().flat_map(|t| t.iter().copied()).collect())
}

/// The names of all operations that have a row, sorted: `add.Tensor` stands for `aten.add.Tensor`, and a name without a dot
/// for its default overload.
pub fn operation_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = table().keys().copied().collect();
    names.sort_unstable();
    names
}

/// The name of a target in the table.
fn short(target: &str) -> &str {
    let name = target.strip_prefix("torch.ops.").unwrap_or(target);
    let name = name.strip_prefix("aten.").unwrap_or(name);
    name.strip_suffix(".default").unwrap_or(name)
}

/// The name without the underscore of an operation in place.
fn functional(name: &str) -> Option<String> {
    let (base, overload) = name.split_once('.').map_or((name, None), |(b, o)| (b, Some(o)));
    let base = base
        .strip_suffix('_')
        .filter(|b| !b.is_empty() && !b.starts_with("__"))?;
    Some(overload.map_or(base.to_owned(), |o| format!("{base}.{o}")))
}

/// Whether a target changes its operand.
pub(crate) fn is_in_place(target: &str) -> bool {
    let name = short(target);
    !table().contains_key(name) && functional(name).is_some()
}

/// What an operation computes with narrow integers, wrapped as theirs are: here they have 64 bits.
pub(crate) fn within_its_bits(im: &mut Importer<'_>, target: &str, v: ValueId, code: i64) -> Result<ValueId> {
    const GROWING: [&str; 14] = [
        "add",
        "sub",
        "rsub",
        "mul",
        "neg",
        "abs",
        "pow",
        "sum",
        "cumsum",
        "cumprod",
        "bitwise_not",
        "__lshift__",
        "bitwise_left_shift",
        "floor_divide",
    ];
    let base = short(target).split('.').next().unwrap_or("");
    let (bits, signed) = match code {
        1 => (8, false),
        2 => (8, true),
        3 => (16, true),
        _ => return Ok(v),
    };
    match GROWING.contains(&base.trim_end_matches('_')) || GROWING.contains(&base) {
        true => inverse::wrapped(im, v, bits, signed),
        false => Ok(v),
    }
}

/// Whether a node only computes sizes or checks them: declared sizes and constraints say it already.
fn is_arithmetic_of_sizes(node: &Node) -> bool {
    let of_sizes = |a: &Argument| {
        matches!(
            a,
            Argument::AsSymInt(_)
                | Argument::AsSymInts(_)
                | Argument::AsSymBool(_)
                | Argument::AsSymFloat(_)
                | Argument::AsInt(_)
        )
    };
    let checks = [
        "_assert_tensor_metadata",
        "_assert_scalar",
        "_assert_async",
        "sym_constrain_range",
        "_is_all_true",
    ];
    checks.iter().any(|c| short(&node.target).starts_with(c))
        || (!node.outputs.is_empty() && node.outputs.iter().all(of_sizes))
        || node.target == "torch._C._set_grad_enabled"
}

/// The row of a target; `None` for arithmetic of sizes.
pub(crate) fn row(target: &str) -> Option<Row> {
    let name = short(target);
    let found = table().get(name).or_else(|| table().get(functional(name)?.as_str()));
    found.copied()
}

/// The row of a target that has an operand or a result of complex numbers.
pub(crate) fn row_on_complex(target: &str) -> Option<Row> {
    let name = short(target);
    complex::ON_COMPLEX
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, row)| *row)
}

/// The operations among `nodes` that have no row, in words; empty where all have one.
pub(crate) fn missing(nodes: &[Node]) -> String {
    let mut missing: BTreeMap<&str, (usize, &Node)> = BTreeMap::new();
    for node in nodes {
        if row(&node.target).is_none() && !is_arithmetic_of_sizes(node) {
            missing
                .entry(node.target.trim_start_matches("torch.ops."))
                .or_insert((0, node))
                .0 += 1;
        }
    }
    if missing.is_empty() {
        return String::new();
    }
    let mut text = format!("{} operations of the program are not supported:", missing.len());
    for (target, (count, first)) in &missing {
        let result = first.outputs.iter().find_map(|o| match o {
            Argument::AsTensor(n) => Some(n.name.as_str()),
            _ => None,
        });
        let result = result.map_or(String::new(), |r| format!(", first as `{r}`"));
        let line = source_line(first).map_or(String::new(), |l| format!(", at {l}"));
        text.push_str(&format!("\n  {target} ({count} times{result}{line})"));
    }
    text.push_str(match missing.keys().all(|target| target.starts_with("higher_order.")) {
        true => "\neach chooses or repeats a part of the program while it runs, which a graph cannot: write it without, with \
                 `torch.where` or an unrolled loop",
        false => "\nwrite them with supported operations in the module; or add support for them: a row in crates/import/src/pt2/ops",
    });
    text
}

/// The targets of a program that have no row, for reports.
///
/// # Errors
/// Where the archive cannot be read.
pub fn unsupported_operations(path: &std::path::Path) -> Result<Vec<String>> {
    let archive = super::archive::Archive::open(crate::open_bytes(path)?)?;
    let mut program: super::schema::Program = archive.json("models/model.json")?;
    super::wrapped::write_in_place(&mut program.graph_module.graph)?;
    let nodes = &program.graph_module.graph.nodes;
    let mut names: Vec<String> = nodes
        .iter()
        .filter(|n| row(&n.target).is_none() && !is_arithmetic_of_sizes(n))
        .map(|n| short(&n.target).to_owned())
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// The path of the module that a node comes from, where the archive has it: a label.
pub(crate) fn module_path(node: &Node) -> String {
    // `L__self___0,path,class;…`, the innermost module last.
    let stack = node.metadata.get("nn_module_stack").map_or("", String::as_str);
    let innermost = stack.rsplit(';').next().unwrap_or("");
    innermost.split(',').nth(1).unwrap_or("").to_owned()
}

/// The last line of the user's source that led to a node.
pub(crate) fn source_line(node: &Node) -> Option<String> {
    let trace = node.metadata.get("stack_trace")?;
    let last = trace.lines().rev().find(|l| l.trim_start().starts_with("File "))?;
    Some(last.trim().trim_start_matches("File ").to_owned())
}

// ---- what rows share

pub(crate) fn unsupported<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::unsupported(what.into()))
}

impl Importer<'_> {
    pub(crate) fn ty(&self, v: ValueId) -> &TensorType {
        self.b.ty(v)
    }

    pub(crate) fn shape(&self, v: ValueId) -> Vec<Dim> {
        self.b.ty(v).shape.clone()
    }

    pub(crate) fn rank(&self, v: ValueId) -> usize {
        self.b.ty(v).shape.len()
    }

    pub(crate) fn dtype(&self, v: ValueId) -> DType {
        self.b.ty(v).dtype
    }

    pub(crate) fn op(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        self.b.op(op, inputs).map_err(invalid)
    }

    pub(crate) fn unary(&mut self, f: UnaryFn, x: ValueId) -> Result<ValueId> {
        self.op(Op::Unary { f }, &[x])
    }

    pub(crate) fn binary(&mut self, f: BinaryFn, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.op(Op::Binary { f }, &[a, b])
    }

    pub(crate) fn compare(&mut self, f: CompareFn, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.op(Op::Compare { f }, &[a, b])
    }

    pub(crate) fn select(&mut self, cond: ValueId, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.op(Op::Where, &[cond, a, b])
    }

    pub(crate) fn cast(&mut self, x: ValueId, dtype: DType) -> Result<ValueId> {
        if self.dtype(x) == dtype {
            return Ok(x);
        }
        self.op(Op::Cast { dtype }, &[x])
    }

    /// `x` as floats.
    pub(crate) fn float(&mut self, x: ValueId) -> Result<ValueId> {
        self.cast(x, DType::F32)
    }

    /// A float constant.
    pub(crate) fn scalar(&mut self, v: f64) -> Result<ValueId> {
        self.b.scalar(v as f32).map_err(invalid)
    }

    /// A constant of an element type.
    pub(crate) fn scalar_of(&mut self, v: f64, dtype: DType) -> Result<ValueId> {
        let literal = match dtype {
            DType::F32 => Literal::F32(vec![v as f32]),
            DType::Bool => Literal::Bool(vec![v != 0.0]),
            _ => Literal::I64(vec![v as i64]),
        };
        self.b.literal(&[], literal).map_err(invalid)
    }

    /// A number of a call as a tensor of no axes: a float, or an integer that may vary.
    pub(crate) fn number(&mut self, n: &Number) -> Result<ValueId> {
        match n {
            Number::Float(v) => self.scalar(*v),
            Number::Size(d) => match d.as_integer() {
                Some(n) => self.b.scalar_i64(n).map_err(invalid),
                None => {
                    let one = self.b.iota(d.clone(), 1usize).map_err(invalid)?;
                    self.reshape(one, Vec::new())
                }
            },
        }
    }

    /// Two operands in the element type that PyTorch computes in; a number takes that of the tensor it meets, unless it is
    /// a float and the tensor has none.
    pub(crate) fn promoted(&mut self, a: ValueId, b: ValueId) -> Result<(ValueId, ValueId)> {
        let order = |d: DType| match d {
            DType::Bool => 0,
            DType::F32 => 2,
            _ => 1,
        };
        let (da, db) = (self.dtype(a), self.dtype(b));
        let wide = if order(da) >= order(db) { da } else { db };
        Ok((self.cast(a, wide)?, self.cast(b, wide)?))
    }

    /// The operands `self` and `other` of a call, of which the second may be a number.
    pub(crate) fn pair(&mut self, call: &Call) -> Result<(ValueId, ValueId)> {
        let a = call.tensor("self")?;
        let b = self.tensor_or_number(call, "other")?;
        self.promoted(a, b)
    }

    pub(crate) fn tensor_or_number(&mut self, call: &Call, name: &str) -> Result<ValueId> {
        match call.is_tensor(name) {
            true => call.tensor(name),
            false => {
                let n = call.number(name, None)?;
                self.number(&n)
            }
        }
    }

    pub(crate) fn reshape(&mut self, x: ValueId, shape: Vec<Dim>) -> Result<ValueId> {
        if self.ty(x).shape == shape {
            return Ok(x);
        }
        self.op(Op::Reshape { shape }, &[x])
    }

    pub(crate) fn permute(&mut self, x: ValueId, perm: Vec<usize>) -> Result<ValueId> {
        if perm.iter().enumerate().all(|(i, &p)| i == p) {
            return Ok(x);
        }
        self.op(Op::Permute { perm }, &[x])
    }

    pub(crate) fn expand(&mut self, x: ValueId, shape: Vec<Dim>) -> Result<ValueId> {
        if self.ty(x).shape == shape {
            return Ok(x);
        }
        self.op(Op::Expand { shape }, &[x])
    }

    pub(crate) fn slice(&mut self, x: ValueId, axis: usize, start: Dim, end: Dim) -> Result<ValueId> {
        if start.is(0) && end == self.ty(x).shape[axis] {
            return Ok(x);
        }
        self.op(Op::Slice { axis, start, end }, &[x])
    }

    pub(crate) fn concat(&mut self, parts: &[ValueId], axis: usize) -> Result<ValueId> {
        match parts {
            [one] => Ok(*one),
            parts => self.op(Op::Concat { axis }, parts),
        }
    }

    pub(crate) fn reduce(&mut self, f: ReduceFn, x: ValueId, axes: &[usize], keepdim: bool) -> Result<ValueId> {
        let mut axes = axes.to_vec();
        axes.sort_unstable();
        axes.dedup();
        if axes.is_empty() {
            return Ok(x);
        }
        self.op(Op::Reduce { f, axes, keepdim }, &[x])
    }

    /// `x` with an axis of size 1 at `axis`.
    pub(crate) fn unsqueeze(&mut self, x: ValueId, axis: usize) -> Result<ValueId> {
        let mut shape = self.shape(x);
        shape.insert(axis, Dim::known(1));
        self.reshape(x, shape)
    }

    /// An axis, counted from the end where it is negative.
    pub(crate) fn axis(&self, n: i64, rank: usize) -> Result<usize> {
        let at = if n < 0 { i64::try_from(rank).unwrap_or(0) + n } else { n };
        // A scalar may be asked for its axis 0 or -1.
        match usize::try_from(at) {
            Ok(at) if at < rank => Ok(at),
            _ => Err(Error::malformed(format!("axis {n} of a tensor of {rank} axes"))),
        }
    }

    /// The axes of argument `name`, ascending; all where it is absent or empty.
    pub(crate) fn axes(&self, call: &Call, name: &str, x: ValueId) -> Result<Vec<usize>> {
        let rank = self.rank(x);
        let mut axes = match call.integers(name)? {
            Some(all) if !all.is_empty() => all.iter().map(|&a| self.axis(a, rank)).collect::<Result<Vec<_>>>()?,
            _ => (0..rank).collect(),
        };
        axes.sort_unstable();
        Ok(axes)
    }

    /// Sizes that are all fixed, or what is not.
    pub(crate) fn fixed(&self, v: ValueId) -> Result<Vec<usize>> {
        self.ty(v).known_shape().ok_or_else(|| {
            let what = format!(
                "{} must have fixed sizes here; export it with a fixed length",
                self.ty(v)
            );
            Error::unsupported(what)
        })
    }
}
