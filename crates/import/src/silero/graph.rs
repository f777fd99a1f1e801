//! Silero VAD as a program in ONNX, of which its package has several: one network, or two for 16 and 8 kHz behind a branch, with
//! the weights as constants of a branch or of the whole, and the cell as one node or spelled out. So nothing goes by names:
//! weights are what the nodes take, from the transform of the samples on.

use crate::onnx::{Node, Program, Rows, ValueId};
use crate::{Error, Result, SharedBytes, TensorSource};
use cactus_tensor::Tensor;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Steps of the four convolutions, which the family has built in.
const STRIDES: [i64; 4] = [1, 2, 2, 1];
/// Samples a second for each sample of the transform, times two: it spans 16 ms.
const RATE_OF_TWO: usize = 125;
/// Where the gates of ONNX (input, output, forget, cell) stand in the order of PyTorch (input, forget, cell, output).
const GATES: [usize; 4] = [0, 2, 3, 1];

/// The weights of one network of a program.
pub struct OnnxSource {
    path: PathBuf,
    bytes: SharedBytes,
    weights: BTreeMap<&'static str, Rows>,
}

impl std::fmt::Debug for OnnxSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OnnxSource").field(&self.describe()).finish()
    }
}

impl OnnxSource {
    /// The network for `rate_hz`, or that for the highest rate.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Malformed`] where the bytes break the format, [`crate::ErrorKind::Unsupported`] where no network of
    /// this kind is there, or none for that rate.
    pub(crate) fn new(path: &Path, bytes: SharedBytes, rate_hz: Option<u32>) -> Result<OnnxSource> {
        let weights = Program::parse(bytes.as_ref().as_ref())
            .and_then(|program| weights(&program, rate_hz))
            .map_err(|e| e.in_file(path));
        bytes.intact()?;
        Ok(OnnxSource {
            path: path.to_owned(),
            bytes,
            weights: weights?,
        })
    }
}

impl TensorSource for OnnxSource {
    fn names(&self) -> Vec<&str> {
        self.weights.keys().copied().collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.weights.get(name).map(|rows| rows.shape.clone())
    }

    fn stored_type(&self, name: &str) -> Option<&'static str> {
        self.weights.get(name).map(|_| "F32")
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        let rows = self.weights.get(name);
        let rows = rows.ok_or_else(|| Error::missing("there is no such tensor").of_tensor(name))?;
        let bytes = self.bytes.as_ref().as_ref();
        let pieces = rows.pieces.iter().flat_map(|piece| bytes[piece.clone()].as_chunks().0);
        let values = pieces.map(|b| f32::from_le_bytes(*b)).collect();
        self.bytes.intact()?;
        let failed = |e| {
            Error::malformed("the data do not fit the shape")
                .of_tensor(name)
                .caused_by(e)
        };
        let tensor = Tensor::from_f32(rows.shape.clone(), values);
        tensor.map_err(failed).map_err(|e| e.in_file(&self.path))
    }

    fn describe(&self) -> String {
        format!("Silero VAD in ONNX, {} weights", self.weights.len())
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }
}

/// Samples of the transform that a node is, where it is one: a convolution with the stored waves.
fn transform(program: &Program, node: &Node) -> Option<usize> {
    let waves = program.constant(node.input(1)?)?;
    match (node.op.as_str(), &waves.shape[..]) {
        ("Conv", &[waves, 1, fft]) if Some(waves) == fft.checked_add(2) => Some(fft),
        _ => None,
    }
}

fn weights(program: &Program, rate_hz: Option<u32>) -> Result<BTreeMap<&'static str, Rows>> {
    let found: Vec<(usize, &Node)> = program
        .nodes
        .iter()
        .filter_map(|node| Some((transform(program, node)?, node)))
        .collect();
    let rate_of = |fft: usize| fft.saturating_mul(RATE_OF_TWO) / 2;
    let chosen = match rate_hz {
        Some(rate_hz) => found.iter().find(|(fft, _)| rate_of(*fft) == rate_hz as usize),
        None => found.iter().max_by_key(|(fft, _)| *fft),
    };
    let Some(&(fft, first)) = chosen else {
        let rates: BTreeSet<usize> = found.iter().map(|(fft, _)| rate_of(*fft)).collect();
        let rates: Vec<String> = rates.iter().map(usize::to_string).collect();
        return Err(match (rate_hz, rates.is_empty()) {
            (Some(rate_hz), false) => Error::unsupported(format!(
                "the file has no network for {rate_hz} samples a second; it has those for {}",
                rates.join(" and ")
            )),
            _ => Error::unsupported("expected Silero VAD, which begins with a transform; the program has none"),
        });
    };
    let mut network = Network {
        program,
        weights: BTreeMap::new(),
    };
    network.add("stft_conv.weight", first, 1)?;
    network.steps(first, (fft / 2) as i64, 0)?;
    let mut at = first;
    let names = [
        ("conv1.weight", "conv1.bias"),
        ("conv2.weight", "conv2.bias"),
        ("conv3.weight", "conv3.bias"),
        ("conv4.weight", "conv4.bias"),
    ];
    for ((weight, bias), stride) in names.into_iter().zip(STRIDES) {
        at = network.next(at, "Conv")?;
        network.add(weight, at, 1)?;
        network.add(bias, at, 2)?;
        network.steps(at, stride, 1)?;
    }
    let cell = network.next(at, "LSTM").or_else(|_| network.next(at, "Gemm"))?;
    match cell.op.as_str() {
        "LSTM" => network.cell(cell)?,
        _ => network.spelled_out(cell)?,
    }
    let last = network.next(cell, "Conv")?;
    network.add("final_conv.weight", last, 1)?;
    network.add("final_conv.bias", last, 2)?;
    network.steps(last, 1, 0)?;
    Ok(network.weights)
}

struct Network<'p> {
    program: &'p Program,
    weights: BTreeMap<&'static str, Rows>,
}

fn unlike(what: impl std::fmt::Display) -> Error {
    Error::unsupported(format!("expected Silero VAD, of version 5 or 6: {what}"))
}

impl<'p> Network<'p> {
    /// The next node with weights, which has to be of this kind.
    fn next(&self, node: &Node, op: &str) -> Result<&'p Node> {
        let weighs = |node: &Node| {
            let is_weight = |&v: &ValueId| self.program.rows(v).is_some_and(|rows| rows.shape.len() > 1);
            matches!(node.op.as_str(), "Conv" | "LSTM" | "Gemm" | "MatMul")
                && node.inputs.iter().flatten().any(is_weight)
        };
        let next = self.program.next(&node.outputs, weighs);
        let next = next.ok_or_else(|| unlike(format_args!("no `{op}` follows a `{}`", node.op)))?;
        match next.op == op {
            true => Ok(next),
            false => Err(unlike(format_args!(
                "`{}` follows a `{}`, and not `{op}`",
                next.op, node.op
            ))),
        }
    }

    /// What `node` takes as input `i`, by this name.
    fn add(&mut self, name: &'static str, node: &Node, i: usize) -> Result<()> {
        let rows = node.input(i).and_then(|v| self.program.rows(v));
        let rows =
            rows.ok_or_else(|| unlike(format_args!("input {i} of a `{}` is no constant", node.op)).of_tensor(name))?;
        self.weights.insert(name, rows);
        Ok(())
    }

    /// Checks how far a convolution goes with each step, and how many zeros are at its ends.
    fn steps(&self, node: &Node, stride: i64, pad: i64) -> Result<()> {
        let is = |name: &str, want: &[i64], default: &[i64]| match node.integers(name) {
            [] => want == default,
            found => found == want,
        };
        let fits = is("strides", &[stride], &[1]) && is("pads", &[pad, pad], &[0, 0]);
        match fits && is("dilations", &[1], &[1]) && is("group", &[1], &[1]) {
            true => Ok(()),
            false => Err(unlike(format_args!(
                "a `Conv` should have the step {stride} and {pad} zeros at each end"
            ))),
        }
    }

    /// The weights of a node `LSTM`, `[1, 4 * width, ...]`, and its biases, `[1, 8 * width]`.
    fn cell(&mut self, node: &Node) -> Result<()> {
        let rows = |i: usize| {
            let mut rows = self.program.rows(node.input(i)?)?;
            let is_one = rows.shape.first() == Some(&1) && rows.shape.len() > 1;
            is_one.then(|| {
                rows.shape.remove(0);
                rows
            })
        };
        let in_order = |rows: &Rows| {
            let width = rows.shape.first()? / 4;
            let gates: Option<Vec<Rows>> = GATES.iter().map(|g| rows.slice(g * width..(g + 1) * width)).collect();
            Rows::concat(&gates?)
        };
        let found = || {
            let (input, hidden, biases) = (rows(1)?, rows(2)?, rows(3)?);
            let half = biases.shape.first()? / 2;
            let (before, behind) = (biases.slice(0..half)?, biases.slice(half..2 * half)?);
            Some([
                in_order(&input)?,
                in_order(&hidden)?,
                in_order(&before)?,
                in_order(&behind)?,
            ])
        };
        let found = found().ok_or_else(|| unlike("the inputs of an `LSTM` are no constants of one direction"))?;
        let names = [
            "lstm_cell.weight_ih",
            "lstm_cell.weight_hh",
            "lstm_cell.bias_ih",
            "lstm_cell.bias_hh",
        ];
        self.weights.extend(names.into_iter().zip(found));
        Ok(())
    }

    /// The cell as two products whose sum is split into the gates of PyTorch. `first` takes what was heard, the other the state.
    fn spelled_out(&mut self, first: &Node) -> Result<()> {
        let made = |node: &Node| node.outputs.first().copied();
        let sum = self.program.next(&first.outputs, |node| node.op == "Add");
        let read = |v: Option<ValueId>| sum.is_some_and(|sum| v.is_some() && sum.inputs.contains(&v));
        let mut products = self
            .program
            .nodes
            .iter()
            .filter(|node| node.op == "Gemm" && read(made(node)));
        let both = (products.next(), products.next(), products.next());
        let (Some(one), Some(other), None) = both else {
            return Err(unlike("the gates should be the sum of two products"));
        };
        let second = if made(one) == made(first) { other } else { one };
        // Functions of the gates, which tell their order but for those that are alike.
        let gates = sum.and_then(|sum| self.program.next(&sum.outputs, |node| node.op == "Split"));
        let functions: Option<Vec<&str>> = gates.map(|split| {
            let of = |&v: &ValueId| self.program.next(&[v], |_| true).map_or("", |node| node.op.as_str());
            split.outputs.iter().map(of).collect()
        });
        if functions.as_deref() != Some(&["Sigmoid", "Sigmoid", "Tanh", "Sigmoid"][..]) {
            return Err(unlike(format_args!(
                "the functions of the gates are {:?}",
                functions.unwrap_or_default()
            )));
        }
        for (node, weight, bias) in [
            (first, "lstm_cell.weight_ih", "lstm_cell.bias_ih"),
            (second, "lstm_cell.weight_hh", "lstm_cell.bias_hh"),
        ] {
            if node.integers("transB") != [1] {
                return Err(unlike("the weights of a `Gemm` should be transposed"));
            }
            self.add(weight, node, 1)?;
            self.add(bias, node, 2)?;
        }
        Ok(())
    }
}
