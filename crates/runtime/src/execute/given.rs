//! What holds for a sequence: computed once of what it is given beside token ids, and read by every row of it.
//!
//! Keys and values are made a few hundred positions at a time where each position's depend on that position alone, as those of
//! cross attention do: what lies between the inputs and the blocks would otherwise take several times the memory of both.

use crate::function::Outputs;
use crate::lower::Crossed;
use crate::{Error, Program, Result};
use cactus_base::{AlignedBuf, Pool};
use cactus_ir::Bindings;
use cactus_kernels::{BLOCK_TOKENS, Exec, KvLayout, KvRun};
use cactus_tensor::{Elements, Tensor, TensorView};
use std::collections::BTreeMap;

/// Most positions of a piece.
const PIECE: usize = 256;

/// What holds for a sequence.
#[derive(Debug)]
pub(crate) struct Held {
    /// Empty where no step reads a value as it is.
    pub(crate) values: Vec<AlignedBuf>,
    /// In the order of the program's.
    pub(crate) crossed: Vec<Blocks>,
    pub(crate) bindings: Bindings,
}

/// Keys and values of a sequence that does not grow.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) memory: AlignedBuf,
    pub(crate) pages: Vec<u32>,
    pub(crate) positions: usize,
}

impl Held {
    /// Computes what `program` holds of `inputs`, on `width` threads of `pool`.
    pub(crate) fn new(program: &Program, pool: &Pool, width: usize, inputs: &BTreeMap<String, Tensor>) -> Result<Held> {
        let Some(given) = &program.lowered.given else {
            return Err(Error::Argument("the model takes no input besides token ids".into()));
        };
        let views: BTreeMap<String, TensorView<'_>> = inputs
            .iter()
            .map(|(name, tensor)| (name.clone(), tensor.view()))
            .collect();
        let bindings = given.function.bind(&views)?;
        let crossed = &program.lowered.crossed;
        let mut held = Held {
            values: Vec::new(),
            crossed: Vec::new(),
            bindings,
        };
        let whole = views.values().next().map_or(&[][..], TensorView::shape);
        match (&given.pieces, whole) {
            (Some(symbol), &[one, positions, row]) if positions > PIECE => {
                held.crossed = crossed
                    .iter()
                    .map(|c| Blocks::zeroed(&c.layout, positions))
                    .collect::<Result<_>>()?;
                // As long as each other, so that one plan serves all but the last.
                let piece = positions.div_ceil(positions.div_ceil(PIECE));
                let numbers = views.values().next().and_then(|view| match view.elements() {
                    Elements::F32(numbers) => Some(numbers),
                    _ => None,
                });
                let numbers = numbers.ok_or_else(|| Error::Argument("expected an input of 32-bit floats".into()))?;
                let mut bindings = held.bindings.clone();
                for past in (0..positions).step_by(piece) {
                    let rows = piece.min(positions - past);
                    let shape = [one, rows, row];
                    let part = TensorView::new(&shape, Elements::F32(&numbers[past * row..][..rows * row]));
                    let part = part.map_err(|e| Error::Argument(e.to_string()))?;
                    let views = given.inputs.iter().map(|name| (name.clone(), part)).collect();
                    bindings.insert(symbol.clone(), rows);
                    let function = &given.function;
                    function.run_bound(pool, width, &views, &bindings, &mut |exec, outputs| {
                        held.append(exec, crossed, outputs, past, rows)
                    })?;
                }
            }
            _ => {
                let bindings = held.bindings.clone();
                let function = &given.function;
                function.run_bound(pool, width, &views, &bindings, &mut |exec, outputs| {
                    for c in crossed {
                        let positions = outputs.f32(c.keys)?.len() / (c.layout.kv_heads() * c.layout.head_dim());
                        held.crossed.push(Blocks::zeroed(&c.layout, positions)?);
                    }
                    let positions = held.crossed.iter().map(|blocks| blocks.positions).collect::<Vec<_>>();
                    for ((c, blocks), rows) in crossed.iter().zip(&mut held.crossed).zip(positions) {
                        blocks.append(exec, c, outputs, 0, rows)?;
                    }
                    for (index, read) in given.read.iter().enumerate() {
                        held.values.push(match read {
                            true => AlignedBuf::from_slice(outputs.bytes(index)?)?,
                            false => AlignedBuf::zeroed(0)?,
                        });
                    }
                    Ok(())
                })?;
            }
        }
        Ok(held)
    }

    fn append(
        &mut self,
        exec: &Exec<'_>,
        crossed: &[Crossed],
        outputs: &Outputs<'_>,
        past: usize,
        rows: usize,
    ) -> Result<()> {
        let all = crossed.iter().zip(&mut self.crossed);
        all.into_iter()
            .try_for_each(|(c, blocks)| blocks.append(exec, c, outputs, past, rows))
    }
}

impl Blocks {
    /// Room for so many positions.
    fn zeroed(layout: &KvLayout, positions: usize) -> Result<Blocks> {
        let blocks = positions.div_ceil(BLOCK_TOKENS);
        Ok(Blocks {
            memory: AlignedBuf::zeroed(blocks * layout.bytes())?,
            pages: (0..u32::try_from(blocks).unwrap_or(u32::MAX)).collect(),
            positions,
        })
    }

    /// Stores `rows` keys and values, each `[heads, width]`, from position `past` on.
    fn append(
        &mut self,
        exec: &Exec<'_>,
        crossed: &Crossed,
        outputs: &Outputs<'_>,
        past: usize,
        rows: usize,
    ) -> Result<()> {
        let layout = &crossed.layout;
        let stride = layout.kv_heads() * layout.head_dim();
        let (keys, values) = (outputs.f32(crossed.keys)?, outputs.f32(crossed.values)?);
        let run = KvRun {
            rows,
            past,
            pages: &self.pages,
        };
        exec.kv_append(layout, &mut self.memory, &[run], keys, stride, values, stride);
        Ok(())
    }
}
