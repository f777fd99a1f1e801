//! What holds for a sequence: computed once of what it is given beside token ids, and read by every row of it.
//!
//! Keys and values are made a few hundred positions at a time where each position's depend on that position alone, as those of
//! cross attention do: what lies between the inputs and the blocks would otherwise take several times the memory of both.

use crate::function::{Outputs, Views};
use crate::lower::{Crossed, Given};
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
        let views: Vec<_> = inputs
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor.view()))
            .collect();
        let mut held = Held {
            values: Vec::new(),
            crossed: Vec::new(),
            bindings: given.function.bind(&views)?,
        };
        let crossed = &program.lowered.crossed;
        match (&given.pieces, views.first()) {
            (Some(symbol), Some((_, view))) if matches!(view.shape(), &[_, positions, _] if positions > PIECE) => {
                held.in_pieces(given, symbol, view, crossed, pool, width)?;
            }
            _ => held.whole(given, &views, crossed, pool, width)?,
        }
        given.function.release();
        Ok(held)
    }

    /// From all positions at once, and the values that steps read as they are.
    fn whole(
        &mut self,
        given: &Given,
        views: &Views<'_>,
        crossed: &[Crossed],
        pool: &Pool,
        width: usize,
    ) -> Result<()> {
        let bindings = self.bindings.clone();
        given
            .function
            .run_bound(pool, width, views, &bindings, &mut |exec, outputs| {
                for c in crossed {
                    let positions = outputs.f32(c.keys)?.len() / (c.layout.kv_heads() * c.layout.head_dim());
                    let mut blocks = Blocks::zeroed(&c.layout, positions)?;
                    blocks.append(exec, c, outputs, 0, positions)?;
                    self.crossed.push(blocks);
                }
                for (index, read) in given.read.iter().enumerate() {
                    self.values.push(match read {
                        true => AlignedBuf::from_slice(outputs.bytes(index)?)?,
                        false => AlignedBuf::zeroed(0)?,
                    });
                }
                Ok(())
            })
    }

    /// From so many positions at a time of the one input, `[1, positions, row]`.
    fn in_pieces(
        &mut self,
        given: &Given,
        symbol: &str,
        view: &TensorView<'_>,
        crossed: &[Crossed],
        pool: &Pool,
        width: usize,
    ) -> Result<()> {
        let (&[one, positions, row], Elements::F32(numbers)) = (view.shape(), view.elements()) else {
            return Err(Error::Argument("expected an input of 32-bit floats".into()));
        };
        for c in crossed {
            self.crossed.push(Blocks::zeroed(&c.layout, positions)?);
        }
        // As long as each other, so that one plan serves all but the last.
        let piece = positions.div_ceil(positions.div_ceil(PIECE));
        let mut bindings = self.bindings.clone();
        for past in (0..positions).step_by(piece) {
            let rows = piece.min(positions - past);
            let shape = [one, rows, row];
            let part = TensorView::new(&shape, Elements::F32(&numbers[past * row..][..rows * row]));
            let part = part.map_err(|e| Error::Argument(e.to_string()))?;
            let views: Vec<_> = given.inputs.iter().map(|name| (name.as_str(), part)).collect();
            bindings.insert(symbol.to_owned(), rows);
            given
                .function
                .run_bound(pool, width, &views, &bindings, &mut |exec, outputs| {
                    let mut all = crossed.iter().zip(&mut self.crossed);
                    all.try_for_each(|(c, blocks)| blocks.append(exec, c, outputs, past, rows))
                })?;
        }
        Ok(())
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
