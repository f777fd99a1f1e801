//! What callers set: inputs, copied or read where they lie, weight files, shapes that change.

use super::build::{Graph, check_shape};
use super::precision::decode;
use super::weights::WeightFile;
use super::{Error, ErrorKind, GraphOp, Precision, Result};
use cactus_tensor::Tensor;
use std::path::Path;

/// Memory of the caller that an input reads at each execution.
pub(crate) trait External: Send + std::fmt::Debug {
    /// Its bytes, as many as the input had when it was set.
    fn bytes(&self) -> &[u8];
}

/// The elements of an input.
#[derive(Debug)]
pub(super) enum Source {
    /// A copy.
    Copied(Vec<f32>),
    /// Memory of the caller.
    External(Box<dyn External>, Precision),
}

/// What was set of an input.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) source: Option<Source>,
    /// Elements that share a scale, and the scales, `[rows, groups]`.
    pub(super) scales: Option<(usize, Vec<f32>)>,
    /// Whether rows lie in blocks of four, four elements of each in turn.
    pub(super) interleaved: bool,
}

impl Graph {
    fn input_node(&self, id: usize) -> Result<()> {
        match self.node(id)?.op {
            GraphOp::Input { .. } => Ok(()),
            _ => Err(Error::new(ErrorKind::Node, format!("node {id} is not an input"))),
        }
    }

    /// Bytes that an input has in `precision`.
    ///
    /// # Errors
    /// [`ErrorKind::Node`] where the node is none, [`ErrorKind::Unsupported`] for a precision of weight files alone.
    pub(crate) fn input_bytes(&self, id: usize, precision: Precision) -> Result<usize> {
        self.input_node(id)?;
        let elements: usize = self.node(id)?.shape.iter().product();
        Ok(elements * precision.plain_bytes()?)
    }

    fn set(&mut self, id: usize, source: Source) {
        if self.embedded.contains(&id) || self.files.remove(&id).is_some() {
            self.version += 1;
        }
        self.given.entry(id).or_default().source = Some(source);
    }

    /// Sets an input to elements of `precision`, which are copied.
    ///
    /// # Errors
    /// As [`Graph::input_bytes`], and [`ErrorKind::Argument`] where the length differs.
    pub(crate) fn set_input(&mut self, id: usize, bytes: &[u8], precision: Precision) -> Result<()> {
        let want = self.input_bytes(id, precision)?;
        if bytes.len() != want {
            return Err(Error::argument(format!(
                "{want} bytes are expected, found {}",
                bytes.len()
            )));
        }
        let values = decode(bytes, precision)?;
        self.set(id, Source::Copied(values));
        Ok(())
    }

    /// Makes an input read memory of the caller at each execution.
    ///
    /// # Errors
    /// As [`Graph::set_input`].
    pub(crate) fn set_external_input(
        &mut self,
        id: usize,
        memory: Box<dyn External>,
        precision: Precision,
    ) -> Result<()> {
        let want = self.input_bytes(id, precision)?;
        if memory.bytes().len() != want {
            return Err(Error::argument(format!(
                "{want} bytes are expected, found {}",
                memory.bytes().len()
            )));
        }
        self.set(id, Source::External(memory, precision));
        Ok(())
    }

    /// Makes the value of an input part of the graph: it is saved with it, and prepared once.
    ///
    /// # Errors
    /// [`ErrorKind::Node`] where the node is no input.
    pub(crate) fn mark_embedded_input(&mut self, id: usize) -> Result<()> {
        self.input_node(id)?;
        self.embedded.insert(id);
        self.version += 1;
        Ok(())
    }

    /// Gives the whole numbers of an input scales: `groups` of `size` elements in each row.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] where they do not fit its shape.
    pub(crate) fn set_grouped_scales(&mut self, id: usize, size: usize, groups: usize, scales: &[f32]) -> Result<()> {
        let want = self.scales_of(id, size, groups)?;
        if scales.len() != want {
            return Err(Error::argument(format!(
                "{want} scales are expected, found {}",
                scales.len()
            )));
        }
        self.given.entry(id).or_default().scales = Some((size, scales.to_vec()));
        self.version += 1;
        Ok(())
    }

    /// How many scales an input has.
    ///
    /// # Errors
    /// As [`Graph::set_grouped_scales`].
    pub(crate) fn scales_of(&self, id: usize, size: usize, groups: usize) -> Result<usize> {
        self.input_node(id)?;
        let shape = &self.node(id)?.shape;
        match shape.as_slice() {
            &[n, k] if size > 0 && k.div_ceil(size) == groups => Ok(n * groups),
            _ => Err(Error::shape(format!(
                "{groups} groups of {size} elements do not fit {shape:?}"
            ))),
        }
    }

    /// Says whether the rows of an input lie in blocks of four.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] where its shape is no multiple of four by four.
    pub(crate) fn set_interleaved(&mut self, id: usize, interleaved: bool, rows: usize) -> Result<()> {
        self.input_node(id)?;
        let shape = &self.node(id)?.shape;
        let fits = matches!(shape.as_slice(), &[n, k] if n % 4 == 0 && k % 4 == 0 && (rows == 0 || rows == n));
        if interleaved && !fits {
            return Err(Error::shape(format!(
                "{shape:?} with {rows} rows cannot lie in blocks of four rows; expected multiples of four"
            )));
        }
        self.given.entry(id).or_default().interleaved = interleaved;
        self.version += 1;
        Ok(())
    }

    /// Elements of an input as they count.
    pub(super) fn input_values(&self, id: usize) -> Result<Tensor> {
        let node = self.node(id)?;
        let unset = || {
            Error::order(format!(
                "input node {id} {:?} has no value; set it before the graph is executed",
                node.shape
            ))
        };
        let given = self.given.get(&id).ok_or_else(unset)?;
        let mut values = match given.source.as_ref().ok_or_else(unset)? {
            Source::Copied(values) => values.clone(),
            Source::External(memory, precision) => decode(memory.bytes(), *precision)?,
        };
        if let (true, &[n, k]) = (given.interleaved, node.shape.as_slice()) {
            let mixed = values.clone();
            for (i, v) in values.iter_mut().enumerate() {
                let (r, c) = (i / k.max(1), i % k.max(1));
                let block = (r / 4) * (k / 4) + c / 4;
                *v = mixed[block * 16 + (r % 4) * 4 + c % 4];
            }
            debug_assert_eq!(values.len(), n * k);
        }
        if let (Some((size, scales)), &[_, k]) = (&given.scales, node.shape.as_slice()) {
            let groups = k.div_ceil(*size);
            for (i, v) in values.iter_mut().enumerate() {
                *v *= scales[i / k * groups + i % k / size];
            }
        }
        Ok(Tensor::from_f32(node.shape.clone(), values)?)
    }

    /// Adds elements that belong to the graph, as a node.
    ///
    /// # Errors
    /// As [`Graph::input`], and [`super::ErrorKind::Argument`] where there are not as many as the shape says.
    pub(crate) fn constant(&mut self, shape: &[usize], values: Vec<f32>, precision: Precision) -> Result<usize> {
        if cactus_tensor::element_count(shape) != Ok(values.len()) {
            return Err(Error::argument(format!(
                "{} elements do not fit {shape:?}",
                values.len()
            )));
        }
        let id = self.input(shape, precision)?;
        self.embedded.insert(id);
        self.set(id, Source::Copied(values));
        Ok(id)
    }

    /// Adds a weight file as a node.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] and [`ErrorKind::File`] where it cannot be read, [`ErrorKind::Damaged`] where it is no weight file,
    /// [`ErrorKind::Unsupported`] for a layout that is not known here.
    pub(crate) fn weights(&mut self, path: &Path) -> Result<usize> {
        let file = WeightFile::open(path)?;
        let (shape, precision) = (file.shape().to_vec(), file.precision());
        let path = path.to_string_lossy().into_owned();
        let id = self.push(GraphOp::Weights { path }, &[], shape, precision)?;
        self.files.insert(id, file);
        Ok(id)
    }

    /// Gives a node of a graph the elements of a weight file.
    ///
    /// # Errors
    /// As [`Graph::weights`]; [`ErrorKind::Node`] where the node is neither input nor weight, [`ErrorKind::Shape`] where shapes
    /// differ.
    pub(crate) fn bind_weights(&mut self, id: usize, path: &Path) -> Result<()> {
        let node = self.node(id)?;
        if !matches!(node.op, GraphOp::Input { .. } | GraphOp::Weights { .. }) {
            return Err(Error::new(
                ErrorKind::Node,
                format!("node {id} is neither an input nor a weight"),
            ));
        }
        let file = WeightFile::open(path)?;
        if file.shape() != node.shape {
            return Err(Error::shape(format!(
                "`{}` holds {:?}, and node {id} is {:?}",
                path.display(),
                file.shape(),
                node.shape
            )));
        }
        self.files.insert(id, file);
        self.version += 1;
        Ok(())
    }

    /// Advice about the memory of one weight, or of all: mapped pages come and go by themselves, so that it is only checked.
    ///
    /// # Errors
    /// [`ErrorKind::Node`] where the node has no weight file.
    pub(crate) fn advise(&self, id: usize) -> Result<()> {
        self.node(id)?;
        match self.files.contains_key(&id) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Node, format!("node {id} has no weight file"))),
        }
    }

    /// Says which axes of an input may change between executions.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] where there are not as many as axes.
    pub(crate) fn set_dynamic(&mut self, id: usize, axes: &[bool]) -> Result<()> {
        self.input_node(id)?;
        let rank = self.node(id)?.shape.len();
        if axes.len() != rank {
            return Err(Error::argument(format!(
                "{rank} axes are expected, found {}",
                axes.len()
            )));
        }
        self.nodes[id].op = GraphOp::Input { dynamic: axes.to_vec() };
        Ok(())
    }

    /// Gives an input another shape, and every node the shape that follows; nothing changes where one does not fit.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] where the rank, or an axis that is not dynamic, would change, and where a node does not fit.
    pub(crate) fn set_input_shape(&mut self, id: usize, shape: &[usize]) -> Result<()> {
        self.input_node(id)?;
        check_shape(shape)?;
        let node = &self.nodes[id];
        let GraphOp::Input { dynamic } = &node.op else {
            return Ok(());
        };
        let changes = |i: usize| dynamic.is_empty() || dynamic.get(i).copied().unwrap_or(false);
        let fits = shape.len() == node.shape.len() && (0..shape.len()).all(|i| shape[i] == node.shape[i] || changes(i));
        if !fits {
            return Err(Error::shape(format!(
                "input node {id} is {:?} and cannot become {shape:?}; only its dynamic axes change",
                node.shape
            )));
        }
        if shape == node.shape {
            return Ok(());
        }
        let old: Vec<Vec<usize>> = self.nodes.iter().map(|n| n.shape.clone()).collect();
        self.nodes[id].shape = shape.to_vec();
        if let Err(e) = self.infer_again(id) {
            self.nodes.iter_mut().zip(old).for_each(|(n, shape)| n.shape = shape);
            return Err(e);
        }
        // Values of the old size no longer fit.
        self.given.remove(&id);
        self.last = None;
        self.buffers.clear();
        self.version += 1;
        Ok(())
    }

    fn infer_again(&mut self, changed: usize) -> Result<()> {
        let mut stale = vec![false; self.nodes.len()];
        stale[changed] = true;
        for i in changed + 1..self.nodes.len() {
            let node = &self.nodes[i];
            stale[i] = node.inputs.iter().any(|&x| stale[x]);
            if stale[i] {
                let (op, inputs) = (node.op.clone(), node.inputs.clone());
                let (shape, _) = self.inferred(&op, &inputs).map_err(|e| e.at(&format!("node {i}")))?;
                check_shape(&shape)?;
                self.nodes[i].shape = shape;
            }
        }
        Ok(())
    }
}
