//! Running a whole graph: binding symbols, evaluating nodes in order, moving states on. Single operations are in
//! `eval`.

use crate::eval::{Past, eval_with};
use crate::states::{StateValue, States};
use crate::{Error, ErrorKind, Result, WeightSource, elementwise, eval_weight_expr, recurrent};
use cactus_ir::{Bindings, Def, Graph, Literal, Node, Op, PAST, SEQ, TensorType, ValueId};
use cactus_tensor::{DType, Data, Tensor};
use std::collections::{BTreeMap, HashMap};

/// Tensors by name: the inputs of a call, or its outputs.
pub type Tensors = BTreeMap<String, Tensor>;

/// Runs one graph; holds its weights, so that many calls read them once.
#[derive(Debug)]
pub struct Interpreter<'g> {
    graph: &'g Graph,
    constants: HashMap<ValueId, Tensor>,
}

/// Runs `graph` once. See [`Interpreter`] for many calls.
///
/// # Errors
/// Those of [`Interpreter::new`] and [`Interpreter::run`].
pub fn run(graph: &Graph, inputs: &Tensors, weights: &dyn WeightSource, states: &mut States) -> Result<Tensors> {
    Interpreter::new(graph, weights)?.run(inputs, states)
}

impl<'g> Interpreter<'g> {
    /// Evaluates the weights of `graph` by their expressions over `source`, the tensors of the source model.
    ///
    /// # Errors
    /// Those of the source, and [`ErrorKind::Weight`] where a weight is not of its declared shape.
    pub fn new(graph: &'g Graph, source: &dyn WeightSource) -> Result<Self> {
        Self::with_weights(graph, |_, expr| eval_weight_expr(expr, source))
    }

    /// Takes the weights of `graph` by their own names from `stored`, the tensors of a bundle.
    ///
    /// # Errors
    /// As [`Interpreter::new`].
    pub fn from_stored(graph: &'g Graph, stored: &dyn WeightSource) -> Result<Self> {
        Self::with_weights(graph, |name, _| stored.tensor(name))
    }

    fn with_weights(graph: &'g Graph, get: impl Fn(&str, &cactus_ir::WeightExpr) -> Result<Tensor>) -> Result<Self> {
        let mut constants = HashMap::new();
        for (id, expr) in graph.weights() {
            let value = graph.value(id);
            let tensor = get(&value.name, expr).map_err(|e| e.at(value.name.clone()))?;
            check_type(&value.ty, &tensor, &Bindings::new())
                .map_err(|what| Error::new(ErrorKind::Weight, what).at(value.name.clone()))?;
            constants.insert(id, tensor);
        }
        let operands = graph.nodes().flat_map(|(_, n)| n.inputs.iter().copied());
        for v in operands.chain(graph.outputs().iter().map(|(_, v)| *v)) {
            if let Def::Literal(literal) = &graph.value(v).def {
                constants.insert(v, literal_tensor(graph.ty(v), literal)?);
            }
        }
        Ok(Interpreter { graph, constants })
    }

    /// Runs the graph on `inputs` and moves `states` past them. The symbol `past` is what the states hold; every other
    /// symbol gets its value from the shapes of the inputs. After an error the states are as before.
    ///
    /// # Errors
    /// [`ErrorKind::Input`] and [`ErrorKind::State`] where they do not fit the graph; otherwise those of the operation,
    /// placed at its node.
    pub fn run(&self, inputs: &Tensors, states: &mut States) -> Result<Tensors> {
        self.run_observed(inputs, states, &mut |_, _| {})
    }

    /// As [`Interpreter::run`]; `observe` sees every node with its result, in order.
    ///
    /// # Errors
    /// As [`Interpreter::run`].
    pub fn run_observed(
        &self,
        inputs: &Tensors,
        states: &mut States,
        observe: &mut dyn FnMut(&Node, &Tensor),
    ) -> Result<Tensors> {
        states.check(self.graph)?;
        let bindings = self.bind(inputs, states)?;
        let mut next = states.clone();
        let mut computed: HashMap<ValueId, Tensor> = HashMap::new();
        for &v in self.graph.inputs() {
            let name = &self.graph.value(v).name;
            computed.insert(v, inputs[name].clone()); // `bind` found every input
        }
        let mut last_use = HashMap::new();
        for (i, (_, node)) in self.graph.nodes().enumerate() {
            last_use.extend(node.inputs.iter().map(|&v| (v, i)));
        }
        for (_, v) in self.graph.outputs() {
            last_use.insert(*v, usize::MAX);
        }
        for (i, (_, node)) in self.graph.nodes().enumerate() {
            let place = || format!("{}/{}", node.path, node.op.mnemonic());
            let operands: Result<Vec<&Tensor>> = node
                .inputs
                .iter()
                .map(|v| self.find(&computed, *v).map_err(|e| e.at(place())))
                .collect();
            let out = node.outputs[0];
            let ty = self.graph.ty(out);
            let mut result = eval_node(node, &operands?, &bindings, &mut next).map_err(|e| e.at(place()))?;
            if matches!(ty.dtype, DType::F16 | DType::BF16) {
                result = elementwise::cast(&result, ty.dtype)?;
            }
            check_type(ty, &result, &bindings).map_err(|what| Error::new(ErrorKind::Type, what).at(place()))?;
            observe(node, &result);
            for v in &node.inputs {
                if last_use.get(v) == Some(&i) {
                    computed.remove(v);
                }
            }
            if last_use.contains_key(&out) {
                computed.insert(out, result);
            }
        }
        let outputs: Result<Tensors> = self
            .graph
            .outputs()
            .iter()
            .map(|(name, v)| Ok((name.clone(), self.find(&computed, *v)?.clone())))
            .collect();
        let outputs = outputs?;
        if !next.values.is_empty() {
            next.past += bindings.get(SEQ).copied().unwrap_or(0);
            next.check(self.graph)?;
        }
        *states = next;
        Ok(outputs)
    }

    fn find<'a>(&'a self, computed: &'a HashMap<ValueId, Tensor>, v: ValueId) -> Result<&'a Tensor> {
        computed.get(&v).or_else(|| self.constants.get(&v)).ok_or_else(|| {
            let what = format!("value %{} is used before it is defined", v.index());
            Error::new(ErrorKind::Type, what)
        })
    }

    /// Values of the symbols of this call.
    fn bind(&self, inputs: &Tensors, states: &States) -> Result<Bindings> {
        let fail = |what: String| Error::new(ErrorKind::Input, what);
        let mut bindings = Bindings::new();
        if !self.graph.states().is_empty() {
            bindings.insert(PAST.to_owned(), states.past);
        }
        for name in inputs.keys() {
            if self.graph.input(name).is_none() {
                return Err(fail(format!("the graph has no input `{name}`")));
            }
        }
        let mut declared = Vec::new();
        for &v in self.graph.inputs() {
            let value = self.graph.value(v);
            let tensor = inputs
                .get(&value.name)
                .ok_or_else(|| fail(format!("input `{}` is missing", value.name)))?;
            if tensor.shape().len() == value.ty.shape.len() {
                for (dim, &size) in value.ty.shape.iter().zip(tensor.shape()) {
                    if let Some(symbol) = dim.as_symbol() {
                        bindings.entry(symbol.to_owned()).or_insert(size);
                    }
                }
            }
            declared.push((value, tensor));
        }
        // A second look, now that every symbol that stands alone has its value.
        for (value, tensor) in declared {
            check_type(&value.ty, tensor, &bindings).map_err(|what| fail(format!("input `{}`: {what}", value.name)))?;
        }
        if let Some(broken) = self.graph.broken_constraint(&bindings)? {
            return Err(fail(broken));
        }
        Ok(bindings)
    }
}

/// The tensor of a literal declared as `ty`.
///
/// # Errors
/// [`ErrorKind::Type`] where the literal does not fit its type.
pub fn literal_tensor(ty: &TensorType, literal: &Literal) -> Result<Tensor> {
    let data = match literal {
        Literal::F32(v) => Data::F32(v.clone()),
        Literal::I64(v) => Data::I64(v.clone()),
        Literal::Bool(v) => Data::Bool(v.clone()),
        other => {
            let what = format!("a literal of {} is not supported", other.dtype());
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
    };
    Ok(Tensor::new(ty.known_shape().unwrap_or_default(), data)?)
}

/// Says how `tensor` is not of type `ty`, if it is not.
fn check_type(ty: &TensorType, tensor: &Tensor, bindings: &Bindings) -> std::result::Result<(), String> {
    let held = match ty.dtype {
        DType::F32 | DType::F16 | DType::BF16 => DType::F32,
        DType::Bool => DType::Bool,
        _ => DType::I64,
    };
    let shape: std::result::Result<Vec<usize>, _> = ty.shape.iter().map(|d| d.eval(bindings)).collect();
    let shape = shape.map_err(|e| e.to_string())?;
    if held != tensor.dtype() || shape != tensor.shape() {
        return Err(format!(
            "declared {ty}, here {shape:?}, found {}{:?}",
            tensor.dtype(),
            tensor.shape()
        ));
    }
    Ok(())
}

/// Evaluates a node and updates the state it uses.
fn eval_node(node: &Node, operands: &[&Tensor], bindings: &Bindings, states: &mut States) -> Result<Tensor> {
    let Some(name) = node.op.state() else {
        return eval_with(&node.op, operands, bindings, Past::default());
    };
    let fail = |what: String| Error::new(ErrorKind::State, format!("state `{name}` {what}"));
    if operands.first().and_then(|x| x.shape().first()) != Some(&1) {
        return Err(fail("holds one sequence, so the batch must be 1".into()));
    }
    let positions = states.past;
    match (&node.op, states.expect(name)?.clone()) {
        (
            Op::Attention(_),
            StateValue::Kv {
                mut keys,
                mut values,
                row_elems,
            },
        ) => {
            let &[q, k, v, ref of_heads @ ..] = operands else {
                return Err(fail("needs queries, keys and values".into()));
            };
            let changes = node.op.changes_state();
            let grown = |kept: &mut Vec<f32>, new: &Tensor| -> Result<Tensor> {
                let [1, rows, heads, dim] = *new.shape() else {
                    return Err(fail(format!("cannot take {:?}", new.shape())));
                };
                if heads.checked_mul(dim) != Some(row_elems) {
                    return Err(fail(format!("cannot take {:?}", new.shape())));
                }
                // Those of this call are there where another operation has appended them.
                if changes {
                    kept.extend_from_slice(new.as_f32()?);
                }
                Ok(Tensor::from_f32([1, positions + rows, heads, dim], kept.clone())?)
            };
            let (k, v) = (grown(&mut keys, k)?, grown(&mut values, v)?);
            let past = Past {
                positions,
                ..Past::default()
            };
            let out = eval_with(&node.op, &[&[q, &k, &v], of_heads].concat(), bindings, past)?;
            let new = StateValue::Kv {
                keys,
                values,
                row_elems,
            };
            states.values.insert(name.to_owned(), new);
            Ok(out)
        }
        (Op::ShortConv { .. }, StateValue::Conv { mut rows, channels }) => {
            let past = Past {
                positions,
                conv_rows: Some(&rows),
                ..Past::default()
            };
            let kernel = operands.get(1).and_then(|w| w.shape().get(1)).copied();
            if kernel.and_then(|k| k.checked_sub(1)?.checked_mul(channels)) != Some(rows.len()) {
                return Err(fail("has another size than the kernel needs".into()));
            }
            let out = eval_with(&node.op, operands, bindings, past)?;
            let keep = rows.len();
            rows.extend_from_slice(operands[0].as_f32()?);
            rows.drain(..rows.len() - keep);
            let new = StateValue::Conv { rows, channels };
            states.values.insert(name.to_owned(), new);
            Ok(out)
        }
        (Op::GatedDelta { .. }, StateValue::Recurrent(before)) => {
            let past = Past {
                positions,
                carried: Some(&before),
                ..Past::default()
            };
            // Checks the operands too.
            let out = eval_with(&node.op, operands, bindings, past)?;
            let (_, after) = recurrent::gated_delta(operands, Some(&before))?;
            if after.len() != before.len() {
                return Err(fail("has another size than the operation needs".into()));
            }
            states.values.insert(name.to_owned(), StateValue::Recurrent(after));
            Ok(out)
        }
        _ => Err(fail("is of another kind than the operation uses".into())),
    }
}
