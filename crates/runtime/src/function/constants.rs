//! Weights in place and literals, and the products' operands packed once.

use super::{held, held_type};
use crate::{Error, Result};
use cactus_base::AlignedBuf;
use cactus_bundle::Bundle;
use cactus_ir::{ConvAttrs, Def, Dim, Graph, Literal, Node, Op, ValueId};
use cactus_kernels::dense::FEW_WINDOWS;
use cactus_quant::{Packed, PackedView, Packing};
use cactus_tensor::{Data, Tensor};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Everything that does not change from call to call.
#[derive(Debug)]
pub(super) struct Constants {
    /// Where stored weights lie; `None` where all were given.
    bundle: Option<Arc<Bundle>>,
    /// Stored tensors by value.
    weights: HashMap<ValueId, usize>,
    /// Literals, and weights that were given.
    literals: HashMap<ValueId, AlignedBuf>,
    /// Matrices that are stored or given plainly and are read by products.
    packed: HashMap<ValueId, Packed>,
    /// Matrices that hold one below the other and are plain, each packed on its own.
    parts: HashMap<ValueId, Vec<Packed>>,
    /// Matrices that stand in for stored ones, by their place in the bundle.
    replaced: HashMap<usize, Packed>,
}

/// The operand that a node reads packed.
fn product_operand(graph: &Graph, node: &Node) -> Option<usize> {
    let few = || {
        let places = graph.ty(node.outputs[0]).shape.get(2..)?;
        let windows = places
            .iter()
            .map(Dim::as_known)
            .try_fold(1usize, |n, d| n.checked_mul(d?))?;
        (windows < FEW_WINDOWS).then_some(1)
    };
    match &node.op {
        Op::Linear | Op::Lstm { .. } | Op::Gru { .. } => Some(1),
        Op::AltupPredict => Some(2),
        Op::AltupCorrect { .. } => Some(3),
        Op::Conv(ConvAttrs { groups: 1, .. }) | Op::Conv1d { groups: 1, .. } => few(),
        _ => None,
    }
}

impl Constants {
    /// Whether the files behind the weights have stayed what they were.
    pub(super) fn intact(&self) -> Result<()> {
        match &self.bundle {
            Some(bundle) => Ok(bundle.intact()?),
            None => Ok(()),
        }
    }

    /// Weights of a bundle, found by `bindings`.
    pub(super) fn new(graph: &Graph, bundle: Arc<Bundle>, bindings: &BTreeMap<String, String>) -> Result<Constants> {
        let mut constants = Constants {
            bundle: None,
            weights: HashMap::new(),
            literals: HashMap::new(),
            packed: HashMap::new(),
            parts: HashMap::new(),
            replaced: HashMap::new(),
        };
        for (v, _) in graph.weights() {
            let name = &graph.value(v).name;
            let index = bindings.get(name).and_then(|stored| bundle.weight_index(stored));
            let Some(index) = index else {
                return Err(Error::Unsupported {
                    node: format!("weight {name}"),
                    message: "the bundle has no tensor for it".into(),
                });
            };
            constants.weights.insert(v, index);
        }
        constants.bundle = Some(bundle);
        constants.prepare(graph)?;
        Ok(constants)
    }

    /// Weights that are given, by name.
    pub(super) fn given(graph: &Graph, tensors: &BTreeMap<String, Tensor>) -> Result<Constants> {
        let mut constants = Constants {
            bundle: None,
            weights: HashMap::new(),
            literals: HashMap::new(),
            packed: HashMap::new(),
            parts: HashMap::new(),
            replaced: HashMap::new(),
        };
        for (v, _) in graph.weights() {
            let value = graph.value(v);
            let expected = || Error::Unsupported {
                node: format!("weight {}", value.name),
                message: format!("a tensor {} is expected for it", value.ty),
            };
            let tensor = tensors.get(&value.name).ok_or_else(expected)?;
            if tensor.dtype() != held_type(value.ty.dtype) || Some(tensor.shape()) != value.ty.known_shape().as_deref()
            {
                return Err(expected());
            }
            constants.literals.insert(v, AlignedBuf::from_slice(held(tensor))?);
        }
        constants.prepare(graph)?;
        Ok(constants)
    }

    /// Takes the literals, and packs what products read.
    fn prepare(&mut self, graph: &Graph) -> Result<()> {
        let outputs = graph.outputs().iter().map(|(_, v)| *v);
        let read = graph.nodes().flat_map(|(_, n)| n.inputs.iter().copied());
        for v in read.chain(outputs) {
            if let Def::Literal(literal) = &graph.value(v).def
                && !self.literals.contains_key(&v)
            {
                let shape = graph.ty(v).known_shape().unwrap_or_default();
                self.literals
                    .insert(v, AlignedBuf::from_slice(held(&tensor(&shape, literal)?))?);
            }
        }
        for (_, node) in graph.nodes() {
            if let Some([gate_up, down]) = node.op.expert_weights().map(|w| w.map(|i| node.inputs[i])) {
                let sizes = (graph.ty(gate_up).known_shape(), graph.ty(down).known_shape());
                if let (Some(&[_, n]), Some(&[_, m])) = (sizes.0.as_deref(), sizes.1.as_deref()) {
                    self.pack_parts(graph, gate_up, 2 * m)?;
                    self.pack_parts(graph, down, n)?;
                }
            }
            if let Some(v) = product_operand(graph, node).and_then(|i| node.inputs.get(i)) {
                self.pack(graph, *v)?;
            }
            if let (Op::Conv(_) | Op::Conv1d { .. }, Some(&filters)) = (&node.op, node.inputs.get(1)) {
                self.pack_filters(graph, filters)?;
            }
        }
        Ok(())
    }

    /// Packs an `int8_g32` matrix anew that is turned into the filters `v` of a convolution, as older versions laid them tap by tap.
    fn pack_filters(&mut self, graph: &Graph, v: ValueId) -> Result<()> {
        let before = |v: ValueId, is: fn(&Op) -> bool| {
            let (_, node) = graph.producer(v).filter(|(_, node)| is(&node.op))?;
            node.inputs.first().copied()
        };
        let reshaped = before(v, |op| matches!(op, Op::Permute { .. }));
        let Some(v) = reshaped.and_then(|v| before(v, |op| matches!(op, Op::Reshape { .. }))) else {
            return Ok(());
        };
        let Some(matrix) = self.matrix(v)?.filter(|m| m.packing() == Packing::Int8G32) else {
            return Ok(());
        };
        let (n, k) = (matrix.n(), matrix.k());
        let mut rows = AlignedBuf::zeroed(n.saturating_mul(k).saturating_mul(4))?;
        let rows: &mut [f32] = bytemuck::cast_slice_mut(&mut rows);
        for (i, row) in rows.chunks_exact_mut(k).enumerate() {
            matrix.decode_row(i, row);
        }
        let packed = cactus_quant::pack(Packing::Int8N16, n, k, rows).map_err(|source| Error::Weight {
            weight: graph.value(v).name.clone(),
            source,
        })?;
        self.packed.insert(v, packed);
        Ok(())
    }

    /// The bundle, and which of its weights a value is.
    fn stored(&self, v: ValueId) -> Option<(&Bundle, usize)> {
        Some((self.bundle.as_deref()?, *self.weights.get(&v)?))
    }

    /// The name that a bundle has for a value.
    pub(super) fn stored_name(&self, v: ValueId) -> Option<&str> {
        let (bundle, index) = self.stored(v)?;
        Some(bundle.weight_name(index))
    }

    /// Packs a matrix that is constant and plain.
    fn pack(&mut self, graph: &Graph, v: ValueId) -> Result<()> {
        let plain = match self.stored(v) {
            Some((bundle, i)) => bundle.weight_at(i).packing == Packing::RowMajor,
            None => self.literals.contains_key(&v),
        };
        let shape = graph.ty(v).known_shape().unwrap_or_default();
        let (true, false, [n, axes @ ..]) = (plain, self.packed.contains_key(&v), &shape[..]) else {
            return Ok(());
        };
        // The axes of a filter are one.
        let (n, k): (usize, usize) = (*n, axes.iter().product());
        if axes.is_empty() || n == 0 || k == 0 {
            return Ok(());
        }
        let values: &[f32] = match self.plain(v) {
            Some(bytes) => bytemuck::cast_slice(bytes),
            None => return Ok(()),
        };
        let packed = cactus_quant::pack(Packing::F32N16, n, k, values).map_err(|source| Error::Weight {
            weight: graph.value(v).name.clone(),
            source,
        })?;
        self.packed.insert(v, packed);
        Ok(())
    }

    /// Packs matrices of `rows` rows one below the other, where they are constant and plain.
    fn pack_parts(&mut self, graph: &Graph, v: ValueId, rows: usize) -> Result<()> {
        let k = graph.ty(v).last_known().unwrap_or(0);
        let (Some(bytes), false) = (self.plain(v), self.parts.contains_key(&v)) else {
            return Ok(());
        };
        let values: &[f32] = bytemuck::cast_slice(bytes);
        let parts: std::result::Result<Vec<Packed>, _> = values
            .chunks_exact((rows * k).max(1))
            .map(|part| cactus_quant::pack(Packing::F32N16, rows, k, part))
            .collect();
        let parts = parts.map_err(|source| Error::Weight {
            weight: graph.value(v).name.clone(),
            source,
        })?;
        self.parts.insert(v, parts);
        Ok(())
    }

    /// Matrix `index` of those of `rows` rows that a constant holds one below the other.
    pub(super) fn part(&self, v: ValueId, index: usize, rows: usize) -> Result<PackedView<'_>> {
        if let Some(part) = self.parts.get(&v).and_then(|p| p.get(index)) {
            return Ok(part.view());
        }
        let whole = self.matrix(v)?;
        let part = whole.and_then(|w| w.rows(index.checked_mul(rows)?, rows));
        part.ok_or_else(|| Error::Unsupported {
            node: format!("matrix {index}"),
            message: format!("its slice of {rows} rows does not begin and end at a block of its packing"),
        })
    }

    /// Elements of a literal or of a weight that is stored plainly.
    pub(super) fn plain(&self, v: ValueId) -> Option<&[u8]> {
        if let Some(l) = self.literals.get(&v) {
            return Some(l);
        }
        let (bundle, i) = self.stored(v)?;
        let w = bundle.weight_at(i);
        (w.packing == Packing::RowMajor).then_some(w.data)
    }

    pub(super) fn is_constant(&self, v: ValueId) -> bool {
        self.weights.contains_key(&v) || self.literals.contains_key(&v)
    }

    /// The filters of a convolution as products read them, where they were packed: it has few windows then.
    pub(super) fn filters(&self, v: ValueId) -> Option<PackedView<'_>> {
        Some(self.packed.get(&v)?.view())
    }

    /// Computes with `matrix` in place of the stored tensor `name`; `None` restores it.
    pub(super) fn replace(&mut self, name: &str, matrix: Option<Packed>) -> Result<()> {
        let index = self.bundle.as_deref().and_then(|bundle| bundle.weight_index(name));
        let found = index.and_then(|index| Some((index, *self.weights.iter().find(|(_, i)| **i == index)?.0)));
        let Some((index, v)) = found else {
            return Err(Error::Argument(format!("the model reads no tensor `{name}`")));
        };
        self.replaced.remove(&index);
        let Some(matrix) = matrix else {
            return Ok(());
        };
        let (stored, layout) = (self.matrix(v)?.map(|m| *m.layout()), *matrix.layout());
        if stored != Some(layout) {
            return Err(Error::Argument(format!(
                "`{name}` is stored as {stored:?}, but its replacement as {layout:?}"
            )));
        }
        self.replaced.insert(index, matrix);
        Ok(())
    }

    /// A constant matrix as products read it.
    pub(super) fn matrix(&self, v: ValueId) -> Result<Option<PackedView<'_>>> {
        if let Some(p) = self.weights.get(&v).and_then(|index| self.replaced.get(index)) {
            return Ok(Some(p.view()));
        }
        if let Some(p) = self.packed.get(&v) {
            return Ok(Some(p.view()));
        }
        let Some((bundle, i)) = self.stored(v) else {
            return Ok(None);
        };
        let view = bundle.weight_at(i).matrix();
        view.map(Some).map_err(|source| Error::Weight {
            weight: bundle.weight_name(i).to_owned(),
            source,
        })
    }
}

fn tensor(shape: &[usize], literal: &Literal) -> Result<Tensor> {
    let data = match literal {
        Literal::F32(v) => Data::F32(v.clone()),
        Literal::I64(v) => Data::I64(v.clone()),
        Literal::Bool(v) => Data::Bool(v.clone()),
        other => {
            return Err(Error::Unsupported {
                node: "a literal".into(),
                message: format!("constants of type {} are not supported", other.dtype()),
            });
        }
    };
    Tensor::new(shape, data).map_err(|e| Error::Argument(e.to_string()))
}
