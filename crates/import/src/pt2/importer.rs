//! The walk over the nodes of a program: names to values, a row of the table for each call, sizes checked against what the
//! program declares.

use super::archive::Archive;
use super::arguments::Call;
use super::bound::Folder;
use super::expression;
use super::ops;
use super::patterns;
use super::schema::{Argument, Head, InputSpec, Node, OutputSpec, Program, Range, SCHEMA_MAJOR, SymInt};
use super::tensors::{Pt2Tensors, graph_type};
use super::wrapped;
use crate::{Error, Result, SharedBytes, open_bytes};
use cactus_ir::{BATCH, Constraint, Dim, Graph, GraphBuilder, Literal, SEQ, TensorType, ValueId, WeightExpr};
use cactus_tensor::{DType, Data, Tensor};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// A buffer of at most this many floats is a literal, which passes can look into; a larger one is a weight.
const LITERAL_ELEMS: usize = 1024;

/// Most axes of a stored weight.
pub(crate) const STORED_RANK: usize = 4;

/// Codes of the types of complex numbers in torch's schema.
const COMPLEX: [i64; 3] = [9, 10, 11];

/// A program as a graph, and its tensors.
#[derive(Debug)]
pub struct Imported {
    /// What the program computes, in primitive operations.
    pub graph: Graph,
    /// Its weights, by the names that the graph has.
    pub tensors: Pt2Tensors,
    /// The torch that wrote it.
    pub torch_version: String,
}

/// Imports the archive at `path`.
///
/// # Errors
/// What is damaged or not supported, naming the node and, where the archive has it, the line of the source.
pub fn import_file(path: &Path) -> Result<Imported> {
    import_with(path, None)
}

/// As [`import_file`], with weights of a folder.
pub(crate) fn import_with(path: &Path, folder: Option<&Folder>) -> Result<Imported> {
    import(path, open_bytes(path)?, folder).map_err(|e| e.in_file(path))
}

/// Imports an archive from its bytes; `path` is for messages and names the graph.
///
/// # Errors
/// As [`import_file`].
pub fn import_bytes(path: &Path, bytes: SharedBytes) -> Result<Imported> {
    import(path, bytes, None)
}

fn import(path: &Path, bytes: SharedBytes, folder: Option<&Folder>) -> Result<Imported> {
    let archive = Archive::open(bytes)?;
    let head: Head = archive.json("models/model.json")?;
    if head.schema_version.major != SCHEMA_MAJOR {
        let what = format!(
            "the program has schema version {}.{} (torch {}), this program reads major version {SCHEMA_MAJOR}: export it \
             again with torch 2.9 to 2.15",
            head.schema_version.major, head.schema_version.minor, head.torch_version
        );
        return Err(Error::unsupported(what));
    }
    let mut program: Program = archive.json("models/model.json")?;
    wrapped::write_in_place(&mut program.graph_module.graph)?;
    let tensors = Pt2Tensors::open(path, &archive, folder)?;
    let name = path
        .file_stem()
        .map_or_else(|| "model".to_owned(), |s| s.to_string_lossy().into_owned());
    let mut importer = Importer::new(&name, &program, &tensors)?;
    importer.run()?;
    let graph = importer.finish()?;
    Ok(Imported {
        graph,
        tensors,
        torch_version: head.torch_version,
    })
}

/// The state of an import.
pub(crate) struct Importer<'a> {
    pub(crate) b: GraphBuilder,
    program: &'a Program,
    tensors: &'a Pt2Tensors,
    values: HashMap<String, ValueId>,
    /// Names of symbols: torch's to ours.
    symbols: BTreeMap<String, String>,
    /// What must not be negative, beyond what the program says.
    required: RefCell<Vec<Dim>>,
}

impl expression::Bounds for Importer<'_> {
    fn least(&self, symbol: &str) -> i64 {
        let range = |(theirs, range): (&String, &Range)| (self.rename(theirs) == symbol).then_some(range.min_val);
        let stated = self.program.range_constraints.iter().find_map(range).flatten();
        stated.unwrap_or(0).max(0)
    }

    fn most(&self, symbol: &str) -> Option<i64> {
        let range = |(theirs, range): (&String, &Range)| (self.rename(theirs) == symbol).then_some(range.max_val);
        let stated = self.program.range_constraints.iter().find_map(range).flatten();
        stated.filter(|&n| n < i64::MAX / 2)
    }

    fn require(&self, size: Dim) {
        let mut required = self.required.borrow_mut();
        if !required.contains(&size) {
            required.push(size);
        }
    }
}

impl<'a> Importer<'a> {
    fn new(name: &str, program: &'a Program, tensors: &'a Pt2Tensors) -> Result<Self> {
        let graph = &program.graph_module.graph;
        if let Some(object) = graph.custom_obj_values.keys().next() {
            let what = format!("the program uses a custom object `{object}`, which is not supported");
            return Err(Error::unsupported(what));
        }
        let mut importer = Importer {
            b: GraphBuilder::new(name),
            program,
            tensors,
            values: HashMap::new(),
            symbols: BTreeMap::new(),
            required: RefCell::default(),
        };
        importer.name_symbols();
        importer.declare_inputs()?;
        Ok(importer)
    }

    /// Names a symbol after the first axis of an input that it counts; rows and positions of token ids are the batch and
    /// the sequence.
    fn name_symbols(&mut self) {
        let graph = &self.program.graph_module.graph;
        let mut first_ids = true;
        for spec in &self.program.graph_module.signature.input_specs {
            let InputSpec::UserInput {
                arg: Argument::AsTensor(name),
            } = spec
            else {
                continue;
            };
            let Some(meta) = graph.tensor_values.get(&name.name) else {
                continue;
            };
            let is_ids = first_ids && meta.sizes.len() == 2 && graph_type(meta.dtype).is_ok_and(|d| d == DType::I64);
            first_ids &= !is_ids;
            for (i, size) in meta.sizes.iter().enumerate() {
                let SymInt::AsExpr(expr) = size else { continue };
                let Ok(dim) = expression::size(&expr.expr_str, &str::to_owned, &expression::Unbounded) else {
                    continue;
                };
                let Some(symbol) = dim.as_symbol() else { continue };
                let ours = match (is_ids, i) {
                    (true, 0) => BATCH.to_owned(),
                    (true, _) => SEQ.to_owned(),
                    _ => format!("{}.{i}", name.name),
                };
                let taken = self.symbols.values().any(|v| *v == ours);
                if !taken {
                    self.symbols.entry(symbol.to_owned()).or_insert(ours);
                }
            }
        }
    }

    fn rename(&self, symbol: &str) -> String {
        self.symbols.get(symbol).cloned().unwrap_or_else(|| symbol.to_owned())
    }

    fn dim(&self, size: &SymInt) -> Result<Dim> {
        match size {
            SymInt::AsInt(n) => Ok(Dim::integer(*n)),
            SymInt::AsExpr(e) => expression::size(&e.expr_str, &|s| self.rename(s), self),
        }
    }

    /// A size that the graph computes, by its name.
    pub(crate) fn computed_size(&self, name: &str) -> Result<Dim> {
        match self.program.graph_module.graph.sym_int_values.get(name) {
            Some(size) => self.dim(size),
            None => Err(Error::malformed(format!("the size `{name}` is used and never defined"))),
        }
    }

    fn declared(&self, name: &str) -> Result<(DType, Vec<Dim>)> {
        let meta = self.program.graph_module.graph.tensor_values.get(name);
        let meta = meta.ok_or_else(|| Error::malformed(format!("the tensor `{name}` has no declared type")))?;
        let mut sizes = meta.sizes.iter().map(|s| self.dim(s)).collect::<Result<Vec<Dim>>>()?;
        if COMPLEX.contains(&meta.dtype) {
            // Real and imaginary part.
            sizes.push(Dim::known(2));
            return Ok((DType::F32, sizes));
        }
        Ok((graph_type(meta.dtype)?, sizes))
    }

    /// Whether a tensor is of complex numbers, which have an axis more here.
    pub(crate) fn is_complex(&self, name: &str) -> bool {
        let meta = self.program.graph_module.graph.tensor_values.get(name);
        meta.is_some_and(|m| COMPLEX.contains(&m.dtype))
    }

    fn has_complex(&self, node: &Node) -> bool {
        let of = |a: &Argument| matches!(a, Argument::AsTensor(n) if self.is_complex(&n.name));
        node.inputs.iter().any(|i| of(&i.arg)) || node.outputs.iter().any(of)
    }

    fn declare_inputs(&mut self) -> Result<()> {
        for spec in &self.program.graph_module.signature.input_specs {
            match spec {
                InputSpec::UserInput {
                    arg: Argument::AsTensor(name),
                } => {
                    let (dtype, shape) = self.declared(&name.name)?;
                    let v = self.b.input(&name.name, TensorType::new(dtype, shape));
                    self.values.insert(name.name.clone(), v);
                }
                // A number or nothing that the caller passed: the graph was captured for just that.
                InputSpec::UserInput {
                    arg: Argument::AsNone(_),
                } => {}
                InputSpec::UserInput { arg } => {
                    let what = format!("an input is {arg:?}; inputs must be tensors");
                    return Err(Error::unsupported(what));
                }
                InputSpec::Parameter { arg, parameter_name } => self.constant(&arg.name, parameter_name, true)?,
                InputSpec::Buffer { arg, buffer_name } => self.constant(&arg.name, buffer_name, false)?,
                InputSpec::TensorConstant {
                    arg,
                    tensor_constant_name,
                } => self.constant(&arg.name, tensor_constant_name, false)?,
                InputSpec::ConstantInput { name, value } => {
                    let what = format!(
                        "the input `{name}` is the constant {value}; wrap the module so that it takes tensors only"
                    );
                    return Err(Error::unsupported(what));
                }
                InputSpec::CustomObj(_) => return Err(Error::unsupported("an input is a custom object")),
                InputSpec::Token(_) => return Err(Error::unsupported("an input is an effect token")),
            }
        }
        Ok(())
    }

    /// Declares a tensor of the archive as a weight or, where it is small or no float, as a literal.
    fn constant(&mut self, name: &str, stored: &str, parameter: bool) -> Result<()> {
        let key = self.tensors.canonical(stored);
        let missing =
            || Error::missing("the program needs this tensor, which the archive does not have").of_tensor(stored);
        let dtype = self.tensors.dtype(key).ok_or_else(missing)?;
        let shape = crate::TensorSource::shape(self.tensors, key).ok_or_else(missing)?;
        let (declared, sizes) = self.declared(name)?;
        let fixed: Option<Vec<usize>> = sizes.iter().map(Dim::as_known).collect();
        if declared != dtype || fixed.as_ref() != Some(&shape) {
            let what = format!(
                "it is stored as {dtype}{shape:?}, the program declares {}",
                TensorType::new(declared, sizes)
            );
            return Err(Error::malformed(what).of_tensor(stored));
        }
        let elems: usize = shape.iter().product();
        let weight = dtype == DType::F32 && (parameter || elems > LITERAL_ELEMS);
        if !weight || !parameter {
            let used = self.is_read(name);
            if !used {
                return Ok(());
            }
            let tensor = self.tensors.tensor(key)?;
            if let Some(v) = patterns::of_positions(self, &tensor)? {
                self.values.insert(name.to_owned(), v);
                return Ok(());
            }
            if !weight {
                let v = self.literal(&tensor).map_err(|e| e.of_tensor(stored))?;
                self.values.insert(name.to_owned(), v);
                return Ok(());
            }
        }
        let v = self.weight(key, &shape)?;
        self.values.insert(name.to_owned(), v);
        Ok(())
    }

    /// A weight; one of more axes than are stored is stored with the last of them as one.
    fn weight(&mut self, key: &str, shape: &[usize]) -> Result<ValueId> {
        let Some((kept, rest)) = shape
            .split_at_checked(STORED_RANK - 1)
            .filter(|_| shape.len() > STORED_RANK)
        else {
            return Ok(self.b.weight(key, shape));
        };
        let stored: Vec<usize> = kept.iter().copied().chain([rest.iter().product()]).collect();
        let expr = WeightExpr::Reshape {
            x: Box::new(WeightExpr::source(key)),
            shape: stored.clone(),
        };
        let v = self.b.weight_from(key, &stored, expr);
        self.reshape(v, shape.iter().map(|&d| Dim::known(d)).collect())
    }

    fn is_read(&self, name: &str) -> bool {
        let graph = &self.program.graph_module.graph;
        let reads = |a: &Argument| match a {
            Argument::AsTensor(n) => n.name == name,
            Argument::AsTensors(all) => all.iter().any(|n| n.name == name),
            Argument::AsOptionalTensors(all) => all
                .iter()
                .any(|t| matches!(t, super::schema::OptionalTensor::AsTensor(n) if n.name == name)),
            Argument::AsOptionalTensor(super::schema::OptionalTensor::AsTensor(n)) => n.name == name,
            _ => false,
        };
        graph.outputs.iter().any(reads) || graph.nodes.iter().any(|n| n.inputs.iter().any(|i| reads(&i.arg)))
    }

    /// A tensor as a constant of the graph.
    pub(crate) fn literal(&mut self, tensor: &Tensor) -> Result<ValueId> {
        let literal = match tensor.data() {
            Data::F32(v) => Literal::F32(v.clone()),
            Data::I64(v) => Literal::I64(v.clone()),
            Data::Bool(v) => Literal::Bool(v.clone()),
            _ => return Err(Error::unsupported("a constant of this element type is not supported")),
        };
        self.b.literal(tensor.shape(), literal).map_err(invalid)
    }

    /// The value called `name`.
    pub(crate) fn value(&self, name: &str) -> Result<ValueId> {
        let missing = || Error::unsupported(format!("`{name}` is used before it is computed"));
        self.values.get(name).copied().ok_or_else(missing)
    }

    fn run(&mut self) -> Result<()> {
        let program = self.program;
        let missing = ops::missing(&program.graph_module.graph.nodes);
        if !missing.is_empty() {
            return Err(Error::unsupported(missing));
        }
        for node in &program.graph_module.graph.nodes {
            self.node(node).map_err(|e| place(node, e))?;
        }
        Ok(())
    }

    fn node(&mut self, node: &Node) -> Result<()> {
        let Some(mut row) = ops::row(&node.target) else {
            // Arithmetic of sizes: what it gives is declared where it is used.
            return Ok(());
        };
        if self.has_complex(node) {
            row = ops::row_on_complex(&node.target).ok_or_else(|| {
                let what = "it is not supported on complex numbers; write the module with real ones";
                Error::unsupported(what)
            })?;
        }
        let call = Call::read(self, node)?;
        let path = ops::module_path(node);
        self.b.set_path(&path);
        let mut results = row(self, &call)?;
        call.finish()?;
        let mut names = Vec::new();
        for output in &node.outputs {
            match output {
                Argument::AsTensor(n) => names.push(&n.name),
                Argument::AsTensors(all) => names.extend(all.iter().map(|n| &n.name)),
                Argument::AsNone(_) | Argument::AsOptionalTensor(_) => {}
                _ => {}
            }
        }
        for (name, v) in names.iter().zip(&mut results) {
            if let Some(code) = self
                .program
                .graph_module
                .graph
                .tensor_values
                .get(*name)
                .map(|m| m.dtype)
            {
                *v = ops::within_its_bits(self, &node.target, *v, code)?;
            }
            let v = *v;
            self.check(name, v)?;
            self.values.insert((*name).clone(), v);
        }
        if ops::is_in_place(&node.target) {
            self.rebind(node, results.first().copied())?;
        }
        Ok(())
    }

    /// After an operation in place, every name of its operand means the result.
    fn rebind(&mut self, node: &Node, result: Option<ValueId>) -> Result<()> {
        let operand = node.inputs.iter().find(|i| i.name == "self");
        let (
            Some(result),
            Some(super::schema::NamedArgument {
                arg: Argument::AsTensor(name),
                ..
            }),
        ) = (result, operand)
        else {
            return Ok(());
        };
        let old = self.value(&name.name)?;
        if self.is_view_or_input(old) {
            let what = "it changes a view of another tensor in place; call run_decompositions({}) on the exported program \
                        before saving it";
            return Err(Error::unsupported(what));
        }
        for v in self.values.values_mut() {
            if *v == old {
                *v = result;
            }
        }
        Ok(())
    }

    fn is_view_or_input(&self, v: ValueId) -> bool {
        use cactus_ir::Op;
        match self.b.graph().producer(v) {
            None => !matches!(self.b.graph().value(v).def, cactus_ir::Def::Literal(_)),
            Some((_, n)) => matches!(
                n.op,
                Op::Reshape { .. } | Op::Permute { .. } | Op::Slice { .. } | Op::Expand { .. }
            ),
        }
    }

    /// The value must be what the program declares.
    fn check(&self, name: &str, v: ValueId) -> Result<()> {
        let (dtype, sizes) = self.declared(name)?;
        let ty = self.b.graph().ty(v);
        let differs = |(a, b): (&Dim, &Dim)| matches!((a.as_integer(), b.as_integer()), (Some(a), Some(b)) if a != b);
        let fits = dtype == ty.dtype && sizes.len() == ty.shape.len() && !ty.shape.iter().zip(&sizes).any(differs);
        if !fits {
            let declared = TensorType::new(dtype, sizes);
            return Err(Error::malformed(format!(
                "its result `{name}` is {ty}, the program declares {declared}"
            )));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Graph> {
        let signature = &self.program.graph_module.signature;
        let mut outputs = Vec::new();
        for spec in &signature.output_specs {
            match spec {
                OutputSpec::UserOutput {
                    arg: Argument::AsTensor(n),
                } => outputs.push(self.value(&n.name)?),
                OutputSpec::UserOutput {
                    arg: Argument::AsNone(_),
                } => {}
                OutputSpec::UserOutput { arg } => {
                    return Err(Error::unsupported(format!(
                        "an output is {arg:?}; outputs must be tensors"
                    )));
                }
                _ => {
                    let what = "the program changes a buffer or an input, so a call has an effect beyond its result; export a \
                                module that returns what it changes";
                    return Err(Error::unsupported(what));
                }
            }
        }
        for (i, &v) in outputs.iter().enumerate() {
            self.b.output(&format!("output_{i}"), v);
        }
        let constraints = self.constraints()?;
        let mut graph = self.b.finish().map_err(invalid)?;
        graph.set_constraints(constraints);
        Ok(graph)
    }

    /// Whether any declared size depends on a symbol.
    fn occurs(&self, symbol: &str) -> bool {
        let quoted = format!("'{symbol}'");
        let graph = &self.program.graph_module.graph;
        let in_size = |s: &SymInt| matches!(s, SymInt::AsExpr(e) if e.expr_str.contains(&quoted));
        graph.tensor_values.values().any(|t| t.sizes.iter().any(in_size)) || graph.sym_int_values.values().any(in_size)
    }

    /// Ranges of symbols and guards.
    fn constraints(&self) -> Result<Vec<Constraint>> {
        let required = self.required.borrow();
        let mut out: Vec<Constraint> = required.iter().map(|d| Constraint::at_least(d.clone(), 0)).collect();
        let used: Vec<&str> = self.symbols.keys().map(String::as_str).collect();
        for (symbol, range) in &self.program.range_constraints {
            if !used.contains(&symbol.as_str()) && !self.occurs(symbol) {
                // torch lists symbols that it made on the way and that are nowhere in the program.
                continue;
            }
            if !used.contains(&symbol.as_str()) {
                let what = format!(
                    "the range of `{symbol}` cannot be checked, because no axis of an input has exactly that size"
                );
                return Err(Error::unsupported(what));
            }
            let dim = Dim::symbol(&self.rename(symbol));
            // A size is never negative, so smaller bounds say nothing.
            if let Some(min) = range.min_val.filter(|&n| n > 0) {
                out.push(Constraint::at_least(dim.clone(), min));
            }
            if let Some(max) = range.max_val.filter(|&n| n < i64::MAX / 2) {
                let minus = dim.times_integer(-1).map_err(invalid)?;
                out.push(Constraint::at_least(minus, -max));
            }
        }
        let axis = |input: &str, i: usize| {
            let v = self.b.graph().input(input)?;
            self.b.graph().ty(v).shape.get(i).cloned()
        };
        for guard in &self.program.guards_code {
            for c in expression::guard(guard, &axis)? {
                if !out.contains(&c) {
                    out.push(c);
                }
            }
        }
        Ok(out)
    }
}

/// An error of the graph, which is about what the program says.
pub(crate) fn invalid(e: cactus_ir::Error) -> Error {
    Error::unsupported(e.to_string())
}

/// Adds the operation and, where the archive has it, the line of the source.
fn place(node: &Node, e: Error) -> Error {
    let result = node.outputs.iter().find_map(|o| match o {
        Argument::AsTensor(n) => Some(n.name.as_str()),
        Argument::AsTensors(all) => all.first().map(|n| n.name.as_str()),
        _ => None,
    });
    let of = result.map_or(String::new(), |r| format!(" (`{r}`)"));
    let line = ops::source_line(node).map_or(String::new(), |l| format!("\n  at {l}"));
    let target = node.target.trim_start_matches("torch.ops.");
    Error::new(e.kind(), format!("{target}{of}: {e}{line}"))
}
