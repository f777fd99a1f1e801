//! Components as plain functions: inputs to outputs, one call at a time, without states.
//!
//! A [`Function`] holds the graph with its constants in place. For the sizes of a call it makes a plan (the shape of every
//! value, and which memory it shares), which is kept for the next call of the same sizes; then nodes run in order, each
//! one kernel over dense tensors. This is the general way: any graph without states, any rank. Language models take the
//! other, [`crate::Program`].

mod blocks;
mod constants;
mod execute;
mod filters;
mod folds;
mod island;
mod memory;
mod plan;
mod tokens;

pub(crate) use island::{Exchange, Island};
pub use tokens::TokenFunction;

use crate::{Error, Observed, Observer, Result};
use cactus_base::Pool;
use cactus_bundle::Bundle;
use cactus_ir::{Bindings, Graph, ValueId};
use cactus_kernels::{Exec, Kernels};
use cactus_quant::Packed;
use cactus_tensor::{DType, Data, Elements, Tensor, TensorView};
use constants::Constants;
use memory::Memory;
use plan::Plan;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A component lowered for this CPU as a function. Immutable but for the memory of the last call, so calls from several
/// threads take turns.
#[derive(Debug)]
pub struct Function {
    graph: Graph,
    kernels: &'static Kernels,
    constants: Constants,
    prepared: Mutex<Option<Prepared>>,
}

/// Plan and memory for one set of sizes.
#[derive(Debug)]
struct Prepared {
    bindings: Bindings,
    /// The sizes are those of the inputs, and what the graph was captured for.
    is_bound: bool,
    plan: Plan,
    memory: Memory,
}

/// Inputs of a call, by name.
pub type Views<'a> = [(&'a str, TensorView<'a>)];

fn view<'a>(inputs: &Views<'a>, name: &str) -> Option<TensorView<'a>> {
    inputs.iter().find(|(n, _)| *n == name).map(|(_, view)| *view)
}

/// Gets the mnemonic and the path of an operation, and the seconds it took.
pub type NodeObserver<'a> = dyn FnMut(&str, &str, f64) + 'a;

/// Who looks on while a call is computed.
enum Watch<'a> {
    Nobody,
    /// Someone who wants to know how long each operation takes.
    Times(&'a mut NodeObserver<'a>),
    /// Someone who wants to see what reaches the weights, and nothing else.
    Inputs(Observer<'a>),
    /// Someone who may want no more of it, which is asked before every operation.
    Stops(&'a mut dyn FnMut() -> bool),
}

/// Gets the outputs of a call, and what computed them.
pub(crate) type ReadOutputs<'a> = dyn FnMut(&Exec<'_>, &Outputs<'_>) -> Result<()> + 'a;

/// The outputs of a call where they lie, by their place in the graph.
pub(crate) struct Outputs<'a>(&'a execute::Run<'a>);

impl Outputs<'_> {
    /// The elements of an output as they are held.
    pub(crate) fn bytes(&self, index: usize) -> Result<&[u8]> {
        self.0.bytes(self.0.graph.outputs()[index].1)
    }

    /// The elements of an output of floats.
    pub(crate) fn f32(&self, index: usize) -> Result<&[f32]> {
        Ok(bytemuck::cast_slice(self.bytes(index)?))
    }
}

/// Inputs or outputs by name, in the order of the graph.
pub type Named = Vec<(String, Tensor)>;

impl Function {
    /// Lowers the component `name` of `bundle`. One with states is taken as the function that it was made from: of a whole
    /// sequence, from its first position on. `kernels` is `None` for the fastest tier of this CPU.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Bundle`] where the bundle is damaged, [`crate::ErrorKind::Unsupported`] for an operation that
    /// has no kernel, naming the node.
    pub fn new(bundle: Arc<Bundle>, name: &str, kernels: Option<&'static Kernels>) -> Result<Function> {
        let (graph, bindings) = bundle.graph(name)?;
        let graph = graph.of_whole_sequences().map_err(|e| Error::Unsupported {
            node: format!("component {name}"),
            message: e.to_string(),
        })?;
        let kernels = match kernels {
            Some(k) => k,
            None => Kernels::detect()?,
        };
        Function::of(graph, bundle, &bindings, kernels)
    }

    /// Lowers `graph`, which no bundle holds; its weights are given by name, dense and of the declared shapes.
    /// `kernels` as of [`Function::new`].
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unsupported`] for an operation that has no kernel, for a graph with states, and for a weight
    /// that is missing or of another type or shape.
    pub fn with_weights(
        graph: Graph,
        weights: &BTreeMap<String, Tensor>,
        kernels: Option<&'static Kernels>,
    ) -> Result<Function> {
        check(&graph)?;
        let constants = Constants::given(&graph, weights)?;
        let kernels = match kernels {
            Some(k) => k,
            None => Kernels::detect()?,
        };
        Ok(Function {
            graph,
            kernels,
            constants,
            prepared: Mutex::new(None),
        })
    }

    /// Lowers `graph`, whose weights `bindings` finds in `bundle`.
    pub(crate) fn of(
        graph: Graph,
        bundle: Arc<Bundle>,
        bindings: &BTreeMap<String, String>,
        kernels: &'static Kernels,
    ) -> Result<Function> {
        check(&graph)?;
        let constants = Constants::new(&graph, bundle, bindings)?;
        // Some weights were read and kept in another form.
        constants.intact()?;
        Ok(Function {
            graph,
            kernels,
            constants,
            prepared: Mutex::new(None),
        })
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Computes the outputs for `inputs`, by name, on `width` threads of `pool`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Argument`] for an input that is missing, unknown, of another type or shape than declared, or
    /// outside of what the graph was captured for; [`crate::ErrorKind::Bundle`] where a file of the bundle was cut short or
    /// could not be read.
    pub fn run(&self, pool: &Pool, width: usize, inputs: &BTreeMap<String, Tensor>) -> Result<Named> {
        self.run_observed(pool, width, inputs, None)
    }

    /// As [`Function::run`], of inputs that somebody else owns; they are read in place.
    ///
    /// # Errors
    /// As [`Function::run`].
    pub fn run_views(&self, pool: &Pool, width: usize, inputs: &BTreeMap<String, TensorView<'_>>) -> Result<Named> {
        let inputs: Vec<_> = inputs.iter().map(|(name, view)| (name.as_str(), *view)).collect();
        self.call_named(pool, width, &inputs, Watch::Nobody)
    }

    /// As [`Function::run_views`]; `read` sees every output by name where it lies, in the order of the graph. A call of the same sizes as
    /// the one before takes no memory.
    ///
    /// # Errors
    /// As [`Function::run`].
    pub fn run_reading(
        &self,
        pool: &Pool,
        width: usize,
        inputs: &Views<'_>,
        read: &mut dyn FnMut(&str, TensorView<'_>),
    ) -> Result<()> {
        self.call(pool, width, inputs, Watch::Nobody, &mut |name, view| {
            read(name, view);
            Ok(())
        })
    }

    /// As [`Function::run_reading`], unless `stop` says so before some operation. Gives whether all was computed; `read` sees nothing otherwise.
    ///
    /// # Errors
    /// As [`Function::run`].
    pub fn run_reading_unless(
        &self,
        pool: &Pool,
        width: usize,
        inputs: &Views<'_>,
        stop: &dyn Fn() -> bool,
        read: &mut dyn FnMut(&str, TensorView<'_>),
    ) -> Result<bool> {
        let mut stopped = false;
        let mut stops = || {
            stopped = stop();
            stopped
        };
        self.call(pool, width, inputs, Watch::Stops(&mut stops), &mut |name, view| {
            read(name, view);
            Ok(())
        })?;
        Ok(!stopped)
    }

    /// As [`Function::run`]; `observe` is called after every operation.
    ///
    /// # Errors
    /// As [`Function::run`].
    pub fn run_observed(
        &self,
        pool: &Pool,
        width: usize,
        inputs: &BTreeMap<String, Tensor>,
        observe: Option<&mut NodeObserver<'_>>,
    ) -> Result<Named> {
        let inputs: Vec<_> = inputs
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor.view()))
            .collect();
        match observe {
            None => self.call_named(pool, width, &inputs, Watch::Nobody),
            Some(observe) => {
                let mut observe = |mnemonic: &str, path: &str, seconds: f64| observe(mnemonic, path, seconds);
                self.call_named(pool, width, &inputs, Watch::Times(&mut observe))
            }
        }
    }

    /// As [`Function::run_reading`], without outputs: `observer` sees what reaches each weight of a linear that a bundle holds, just
    /// before it is multiplied, until it has seen enough.
    ///
    /// # Errors
    /// As [`Function::run`].
    pub fn observe(&self, pool: &Pool, width: usize, inputs: &Views<'_>, observer: Observer<'_>) -> Result<()> {
        let mut observer = |seen: Observed<'_>| observer(seen);
        self.call(pool, width, inputs, Watch::Inputs(&mut observer), &mut |_, _| Ok(()))
    }

    /// Computes with `matrix` in place of the stored tensor `name` from now on; `None` restores it.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Argument`] where the function reads no such tensor, or one of another shape or packing.
    pub fn replace_weight(&mut self, name: &str, matrix: Option<Packed>) -> Result<()> {
        self.constants.replace(name, matrix)
    }

    fn call_named(&self, pool: &Pool, width: usize, inputs: &Views<'_>, watch: Watch<'_>) -> Result<Named> {
        let mut named = Named::new();
        self.call(pool, width, inputs, watch, &mut |name, view| {
            let data = match view.elements() {
                Elements::F32(v) => Data::F32(v.to_vec()),
                Elements::I64(v) => Data::I64(v.to_vec()),
                Elements::Bool(v) => Data::Bool(v.to_vec()),
                _ => Data::F32(Vec::new()),
            };
            let tensor = Tensor::new(view.shape(), data).map_err(|e| Error::Argument(e.to_string()))?;
            named.push((name.to_owned(), tensor));
            Ok(())
        })?;
        Ok(named)
    }

    fn call(
        &self,
        pool: &Pool,
        width: usize,
        inputs: &Views<'_>,
        watch: Watch<'_>,
        read: &mut dyn FnMut(&str, TensorView<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut held = self.prepared.lock().unwrap_or_else(|e| e.into_inner());
        if !held.as_ref().is_some_and(|p| p.is_bound && self.fits(&p.plan, inputs)) {
            let bindings = self.bind(inputs)?;
            self.prepare(&mut held, &bindings)?.is_bound = true;
        }
        self.compute(&mut held, pool, width, inputs, watch, &mut |_, outputs| {
            let all = self.graph.outputs().iter();
            all.into_iter()
                .try_for_each(|(name, v)| outputs.0.read(*v, |view| read(name, view)))
        })
    }

    /// As [`Function::run_views`], with inputs of sizes that the caller answers for: `bindings` has them, and what the graph was
    /// captured for is not looked at. `read` gets the outputs where they lie.
    pub(crate) fn run_bound(
        &self,
        pool: &Pool,
        width: usize,
        inputs: &Views<'_>,
        bindings: &Bindings,
        read: &mut ReadOutputs<'_>,
    ) -> Result<()> {
        let mut held = self.prepared.lock().unwrap_or_else(|e| e.into_inner());
        self.prepare(&mut held, bindings)?;
        self.compute(&mut held, pool, width, inputs, Watch::Nobody, read)
    }

    /// Whether the inputs are those of a plan.
    fn fits(&self, plan: &Plan, inputs: &Views<'_>) -> bool {
        let own = self.graph.inputs();
        inputs.len() == own.len()
            && own.iter().all(|&v| {
                let value = self.graph.value(v);
                let given = view(inputs, &value.name);
                given.is_some_and(|given| {
                    given.dtype() == held_type(value.ty.dtype) && given.shape() == &plan.shapes[v.index()][..]
                })
            })
    }

    /// Plan and memory for these sizes, kept from the call before where they are the same.
    fn prepare<'a>(&self, held: &'a mut Option<Prepared>, bindings: &Bindings) -> Result<&'a mut Prepared> {
        let prepared = match held.take().filter(|p| p.bindings == *bindings) {
            Some(prepared) => prepared,
            None => {
                let plan = Plan::new(&self.graph, &self.constants, bindings)?;
                Prepared {
                    bindings: bindings.clone(),
                    is_bound: false,
                    memory: Memory::new(&plan)?,
                    plan,
                }
            }
        };
        Ok(held.insert(prepared))
    }

    fn compute(
        &self,
        held: &mut Option<Prepared>,
        pool: &Pool,
        width: usize,
        inputs: &Views<'_>,
        mut watch: Watch<'_>,
        read: &mut ReadOutputs<'_>,
    ) -> Result<()> {
        let missing =
            || Error::Argument("something of the function is missing; this is a bug, please report it".into());
        let Prepared {
            bindings, plan, memory, ..
        } = held.as_mut().ok_or_else(missing)?;
        let step = pool.step(width);
        let given = self.graph.inputs().iter().map(|&v| {
            let given = view(inputs, &self.graph.value(v).name).ok_or_else(missing)?;
            Ok(bytes_of(given.elements()))
        });
        let given: SmallVec<[&[u8]; 4]> = given.collect::<Result<_>>()?;
        let mut run = execute::Run {
            graph: &self.graph,
            constants: &self.constants,
            plan,
            bindings,
            memory,
            inputs: &given,
            exec: Exec {
                kernels: self.kernels,
                step: &step,
            },
        };
        for (_, node) in self.graph.nodes() {
            let is_over = match &mut watch {
                Watch::Inputs(observer) => run.show(node, *observer)?.is_break(),
                Watch::Stops(stop) => stop(),
                Watch::Times(_) | Watch::Nobody => false,
            };
            if is_over {
                return self.constants.intact();
            }
            let begun = matches!(watch, Watch::Times(_)).then(Instant::now);
            if let Err(e) = run.node(node) {
                // Zeros in place of weights may be why.
                self.constants.intact()?;
                return Err(e);
            }
            if let (Watch::Times(observe), Some(begun)) = (&mut watch, begun) {
                observe(&node.op.mnemonic(), &node.path, begun.elapsed().as_secs_f64());
            }
        }
        self.constants.intact()?;
        read(&run.exec, &Outputs(&run))
    }

    /// Gives back the memory of the last call: for a caller that has no other soon, or needs memory for something else before.
    pub fn release(&self) {
        *self.prepared.lock().unwrap_or_else(|e| e.into_inner()) = None;
    }

    /// Bytes of activations for the sizes of the last call.
    pub fn activation_bytes(&self) -> usize {
        let held = self.prepared.lock().unwrap_or_else(|e| e.into_inner());
        held.as_ref().map_or(0, |p| p.memory.bytes())
    }

    /// The value of every symbol, by the shapes of the inputs, which must all fit.
    pub(crate) fn bind(&self, inputs: &Views<'_>) -> Result<Bindings> {
        let declared = || {
            let all = self.graph.inputs().iter().map(|&v| self.port(v));
            all.collect::<Vec<_>>().join(", ")
        };
        let fail = |what: String| Err(Error::Argument(what));
        if let Some((unknown, _)) = inputs.iter().find(|(n, _)| self.graph.input(n).is_none()) {
            return fail(format!("there is no input `{unknown}`; the inputs are {}", declared()));
        }
        let mut bindings = Bindings::new();
        for &v in self.graph.inputs() {
            let value = self.graph.value(v);
            let Some(given) = view(inputs, &value.name) else {
                return fail(format!(
                    "input `{}` is missing; expected the inputs {}",
                    value.name,
                    declared()
                ));
            };
            if given.dtype() != held_type(value.ty.dtype) || given.shape().len() != value.ty.shape.len() {
                return fail(format!(
                    "input {} is expected, found {}{:?}",
                    self.port(v),
                    given.dtype(),
                    given.shape()
                ));
            }
            for (dim, &size) in value.ty.shape.iter().zip(given.shape()) {
                if let Some(symbol) = dim.as_symbol() {
                    bindings.entry(symbol.to_owned()).or_insert(size);
                }
            }
        }
        for &v in self.graph.inputs() {
            let value = self.graph.value(v);
            let Some(given) = view(inputs, &value.name) else {
                continue;
            };
            for (i, (dim, &size)) in value.ty.shape.iter().zip(given.shape()).enumerate() {
                let want = dim.eval(&bindings).map_err(|e| Error::Argument(e.to_string()))?;
                if want != size {
                    return fail(format!(
                        "input {} is expected, found {}{:?}: axis {i} has {size} elements, not {want}",
                        self.port(v),
                        given.dtype(),
                        given.shape()
                    ));
                }
            }
        }
        match self.graph.broken_constraint(&bindings) {
            Ok(None) => Ok(bindings),
            Ok(Some(broken)) => fail(broken),
            Err(e) => fail(e.to_string()),
        }
    }

    fn port(&self, v: ValueId) -> String {
        let value = self.graph.value(v);
        format!("`{}` {}", value.name, value.ty)
    }
}

/// Refuses a graph that has states, or a node that no kernel computes.
fn check(graph: &Graph) -> Result<()> {
    if let Some(state) = graph.states().first() {
        return Err(Error::Unsupported {
            node: format!("component {}", graph.name),
            message: format!("it has the state `{}`; expected a function, which has none", state.name),
        });
    }
    graph.nodes().try_for_each(|(_, node)| execute::check(graph, node))
}

/// The element type that a value is held in.
fn held_type(dtype: DType) -> DType {
    match dtype {
        DType::Bool => DType::Bool,
        d if d.is_float() => DType::F32,
        _ => DType::I64,
    }
}

/// Bytes of an element as it is held.
fn held_bytes(dtype: DType) -> usize {
    match held_type(dtype) {
        DType::F32 => 4,
        DType::I64 => 8,
        _ => 1,
    }
}

/// The elements of a tensor as they are held.
fn held(tensor: &Tensor) -> &[u8] {
    bytes_of(tensor.view().elements())
}

fn bytes_of(elements: Elements<'_>) -> &[u8] {
    match elements {
        Elements::F32(v) => bytemuck::cast_slice(v),
        Elements::I64(v) => bytemuck::cast_slice(v),
        Elements::Bool(v) => bytemuck::cast_slice(v),
        _ => &[],
    }
}
