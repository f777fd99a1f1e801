use crate::{Error, ErrorKind, Result};
use cactus_ir::{Graph, StateKind};
use cactus_tensor::element_count;
use std::collections::BTreeMap;

/// Contents of one state.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StateValue {
    /// Keys and values of every position so far, `[past, kv_heads, head_dim]` each. A window is applied when reading.
    Kv {
        /// Keys.
        keys: Vec<f32>,
        /// Values.
        values: Vec<f32>,
        /// Elements of one position: `kv_heads * head_dim`.
        row_elems: usize,
    },
    /// The last inputs of a causal convolution, `[rows, channels]`, oldest first.
    Conv {
        /// The inputs.
        rows: Vec<f32>,
        /// Elements of one row.
        channels: usize,
    },
    /// A tensor carried from step to step, row-major.
    Recurrent(Vec<f32>),
}

/// The states of one sequence, between calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct States {
    pub(crate) past: usize,
    pub(crate) values: BTreeMap<String, StateValue>,
}

impl States {
    /// The states of `graph` before the first call: nothing past, all zero.
    ///
    /// # Errors
    /// [`ErrorKind::State`] where a state's size overflows or its kind is unknown.
    pub fn new(graph: &Graph) -> Result<Self> {
        let mut values = BTreeMap::new();
        for s in graph.states() {
            let size = |shape: &[usize]| {
                element_count(shape).map_err(|e| Error::new(ErrorKind::State, format!("state `{}`: {e}", s.name)))
            };
            let value = match &s.kind {
                StateKind::Kv { kv_heads, head_dim, .. } => StateValue::Kv {
                    keys: Vec::new(),
                    values: Vec::new(),
                    row_elems: size(&[*kv_heads, *head_dim])?,
                },
                StateKind::Conv { channels, rows } => StateValue::Conv {
                    rows: vec![0.0; size(&[*rows, *channels])?],
                    channels: *channels,
                },
                StateKind::Recurrent { shape } => StateValue::Recurrent(vec![0.0; size(shape)?]),
                other => {
                    let what = format!("state `{}` of kind {other:?} is not supported", s.name);
                    return Err(Error::new(ErrorKind::State, what));
                }
            };
            values.insert(s.name.clone(), value);
        }
        Ok(States { past: 0, values })
    }

    /// Number of positions held: the value of the symbol `past` in the next call.
    pub fn past(&self) -> usize {
        self.past
    }

    /// The state called `name`.
    pub fn get(&self, name: &str) -> Option<&StateValue> {
        self.values.get(name)
    }

    pub(crate) fn expect(&self, name: &str) -> Result<&StateValue> {
        self.get(name).ok_or_else(|| {
            let what = format!("state `{name}` is not among the states given");
            Error::new(ErrorKind::State, what)
        })
    }

    /// Checks that these are states of `graph` and agree on the number of positions held.
    pub(crate) fn check(&self, graph: &Graph) -> Result<()> {
        for s in graph.states() {
            if let StateValue::Kv { keys, row_elems, .. } = self.expect(&s.name)?
                && Some(keys.len()) != self.past.checked_mul(*row_elems)
            {
                let held = keys.len() / (*row_elems).max(1);
                let what = format!("state `{}` holds {held} positions, the others {}", s.name, self.past);
                return Err(Error::new(ErrorKind::State, what));
            }
        }
        Ok(())
    }
}
