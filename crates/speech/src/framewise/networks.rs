//! The components `predictor` and `joint` of a transducer.

use super::transducer::{Joined, Networks, Predicted};
use super::{Lock, finite};
use crate::{Error, Result};
use cactus_base::Pool;
use cactus_bundle::Bundle;
use cactus_runtime::Function;
use cactus_tensor::{Elements, TensorView};
use std::sync::Arc;

const PREDICTOR: &str = "predictor";
const JOINT: &str = "joint";
/// What they take and give.
const TOKEN: &str = "token";
const STATE: &str = "state";
const PREDICTION: &str = "prediction";
const NEXT_STATE: &str = "next_state";
const STATES: &str = "states";
const LOGITS: &str = "logits";

/// Positions whose logits are computed at once. A blank leaves those behind it true, and a token makes them worthless: with one position in a
/// call the joint of Parakeet 0.6b takes 62 µs on one thread, with 2, 4 and 8 it takes 72, 132 and 302. It is always as many, as another
/// number would need another plan.
const ROWS: usize = 2;

/// Both components, loaded.
#[derive(Debug)]
pub(super) struct Pair {
    predictor: Function,
    joint: Function,
    state_shape: Vec<usize>,
}

impl Pair {
    pub(super) fn load(bundle: &Arc<Bundle>) -> Result<Pair> {
        let declared = bundle.manifest().components.iter().find(|c| c.name == PREDICTOR);
        let state = declared.and_then(|c| c.inputs.iter().find(|port| port.name == STATE));
        let Some(state_shape) = state.and_then(|port| port.ty.known_shape()) else {
            return Err(Error::Model(format!(
                "its component `{PREDICTOR}` should take `{STATE}`, of a fixed shape"
            )));
        };
        Ok(Pair {
            predictor: Function::new(Arc::clone(bundle), PREDICTOR, None)?,
            joint: Function::new(Arc::clone(bundle), JOINT, None)?,
            state_shape,
        })
    }
}

/// Both components, and the sound that they work on.
pub(super) struct Sounding<'a> {
    pair: &'a Pair,
    /// `[positions, width]`.
    states: &'a [f32],
    width: usize,
    pool: (&'a Pool, usize),
    lock: &'a Lock,
}

impl<'a> Sounding<'a> {
    pub(super) fn new(
        pair: &'a Pair,
        states: &'a [f32],
        width: usize,
        pool: (&'a Pool, usize),
        lock: &'a Lock,
    ) -> Sounding<'a> {
        Sounding {
            pair,
            states,
            width,
            pool,
            lock,
        }
    }
}

impl Networks for Sounding<'_> {
    fn positions(&self) -> usize {
        self.states.len() / self.width
    }

    fn predict(&mut self, before: Option<&Predicted>, token: u32) -> Result<Predicted> {
        let zeros;
        let state = match before {
            Some(before) => &before.state[..],
            None => {
                zeros = vec![0.0; self.pair.state_shape.iter().product()];
                &zeros
            }
        };
        let token = [i64::from(token)];
        let inputs = [
            (TOKEN, view(&[1], Elements::I64(&token))?),
            (STATE, view(&self.pair.state_shape, Elements::F32(state))?),
        ];
        let mut predicted = Predicted::default();
        let (pool, threads) = self.pool;
        self.pair
            .predictor
            .run_reading(pool, threads, &inputs, &mut |name, output| {
                let to = match name {
                    PREDICTION => &mut predicted.prediction,
                    NEXT_STATE => &mut predicted.state,
                    _ => return,
                };
                if let Elements::F32(values) = output.elements() {
                    to.extend_from_slice(values);
                }
            })?;
        match predicted.prediction.len() == self.width && predicted.state.len() == state.len() {
            true => Ok(predicted),
            false => Err(Error::Model(format!(
                "its component `{PREDICTOR}` should give `{PREDICTION}`, as wide as the encoder's output, and `{NEXT_STATE}`, as large as `{STATE}`"
            ))),
        }
    }

    fn join(&mut self, position: usize, predicted: &Predicted, joined: &mut Joined) -> Result<()> {
        let rows = ROWS.min(self.positions());
        // At the end those before are computed, too.
        let from = position.min(self.positions() - rows);
        let shapes = [[rows, self.width], [1, self.width]];
        let states = &self.states[from * self.width..(from + rows) * self.width];
        let inputs = [
            (STATES, view(&shapes[0], Elements::F32(states))?),
            (PREDICTION, view(&shapes[1], Elements::F32(&predicted.prediction))?),
        ];
        joined.from = from;
        joined.width = 0;
        joined.values.clear();
        let (pool, threads) = self.pool;
        self.pair
            .joint
            .run_reading(pool, threads, &inputs, &mut |name, output| {
                if let (LOGITS, &[found, width], Elements::F32(values)) = (name, output.shape(), output.elements())
                    && found == rows
                {
                    joined.width = width;
                    joined.values.extend(values.iter().map(finite));
                    joined
                        .values
                        .chunks_exact_mut(width.max(1))
                        .for_each(|row| self.lock.apply(row));
                }
            })?;
        match joined.width {
            0 => Err(Error::Model(format!(
                "its component `{JOINT}` should give `{LOGITS}`, a row for each of {rows} positions"
            ))),
            _ => Ok(()),
        }
    }
}

fn view<'a>(shape: &'a [usize], elements: Elements<'a>) -> Result<TensorView<'a>> {
    TensorView::new(shape, elements).map_err(|e| Error::Model(e.to_string()))
}
