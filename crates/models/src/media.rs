//! Rows of pictures among the embeddings of a decoder: its inputs, what rows see of each other, and where they stand.
//!
//! A family states all of it in primitive operations: a choice between rows and embeddings, a sum behind early layers, a mask that ends where an
//! input says, angles of positions on axes. What the inputs hold is the runtime's to make.

use crate::Result;
use crate::config::{Config, describe};
use crate::layers::{batch, seq};
use crate::rope::Rope;
use cactus_ir::{GraphBuilder, MEDIA_MASK, MEDIA_POSITIONS, MEDIA_ROWS, MEDIA_UNTIL, Op, TensorType, ValueId};
use cactus_tensor::DType;

/// Axes of positions: time, row, column.
pub(crate) const AXES: usize = 3;

/// What rows of a picture see of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    /// Those before them, as tokens do.
    Causal,
    /// All.
    BothWays,
    /// Those before them; they stand in grids, by which rope turns them, and early layers add more of them.
    InGrids(Grids),
}

/// Of pictures whose rows stand in grids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grids {
    /// Pairs of a head that turn by time, row and column. They take turns: pair `i` turns by row where `i % 3 == 1`, by column where it is 2,
    /// as long as there are such.
    pub(crate) sections: [usize; AXES],
    /// Layers behind which more of a row is added.
    pub(crate) layers: usize,
}

impl Grids {
    /// The frequencies of each axis.
    pub(crate) fn frequencies(&self, rope: &Rope) -> Vec<Vec<f32>> {
        let axis = |pair: usize| match pair % AXES {
            axis if axis > 0 && pair < AXES * self.sections[axis] => axis,
            _ => 0,
        };
        let of = |own: usize| {
            let pairs = rope.inv_freq.iter().enumerate();
            pairs.map(|(i, &f)| if axis(i) == own { f } else { 0.0 }).collect()
        };
        (0..AXES).map(of).collect()
    }
}

/// How many of the pairs of a head that turn do so by time, row and column.
pub(crate) fn sections(text: &Config<'_>, pairs: usize, default: [usize; AXES]) -> Result<[usize; AXES]> {
    let rope = match text.section("rope_parameters", "text_config.rope_parameters.")? {
        Some(rope) => Some(rope),
        None => text.section("rope_scaling", "text_config.rope_scaling.")?,
    };
    let Some(rope) = rope else { return Ok(default) };
    if !rope.flag("mrope_interleaved", true)? {
        return Err(rope.unsupported("mrope_interleaved", "axes that do not take turns are not supported"));
    }
    let found = rope.sizes("mrope_section", 0..=pairs)?.unwrap_or(default.to_vec());
    match found[..] {
        // Rows and columns have their turn in each three pairs.
        [time, row, column] if time + row + column == pairs && AXES * row.max(column) <= pairs + 2 => {
            Ok([time, row, column])
        }
        _ => {
            let what = format!("expected three numbers of pairs, {pairs} together, that can take turns");
            let found = rope.get("mrope_section").map_or_else(|| "none".into(), describe);
            Err(rope.unsupported("mrope_section", format!("{what}; found {found}")))
        }
    }
}

/// Rows of pictures and sounds, an input: as wide as an embedding, or several times that for what early layers add.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    at: ValueId,
    rows: ValueId,
    hidden: usize,
}

impl Shown {
    /// Declares it, with rows for `layers` layers beside those in place of embeddings.
    pub(crate) fn declare(b: &mut GraphBuilder, hidden: usize, layers: usize) -> Shown {
        let wide = hidden * (1 + layers);
        Shown {
            at: b.input(MEDIA_MASK, TensorType::new(DType::Bool, [batch(), seq(), 1.into()])),
            rows: b.input(MEDIA_ROWS, TensorType::new(DType::F32, [batch(), seq(), wide.into()])),
            hidden,
        }
    }

    /// Piece `index` of each row.
    fn piece(self, b: &mut GraphBuilder, index: usize) -> cactus_ir::Result<ValueId> {
        match b.shape(self.rows)[2].is(self.hidden) {
            true => Ok(self.rows),
            false => b.slice_last(self.rows, index * self.hidden, (index + 1) * self.hidden),
        }
    }

    /// Puts rows in place of embeddings, `[b, s, hidden]`, where the input says so.
    pub(crate) fn in_place(self, b: &mut GraphBuilder, x: ValueId) -> cactus_ir::Result<ValueId> {
        b.scope("media", |b| {
            let rows = self.piece(b, 0)?;
            b.op(Op::Where, &[self.at, rows, x])
        })
    }

    /// Token ids, `[b, s]`, with `pad` where the input says that there are rows.
    pub(crate) fn tokens(self, b: &mut GraphBuilder, ids: ValueId, pad: u32) -> cactus_ir::Result<ValueId> {
        b.scope("media", |b| {
            let at = b.reshape(self.at, [batch(), seq()])?;
            let pad = b.scalar_i64(i64::from(pad))?;
            b.select(at, pad, ids)
        })
    }

    /// Adds what is for layer `layer` to what it gave, there.
    pub(crate) fn added(self, b: &mut GraphBuilder, x: ValueId, layer: usize) -> cactus_ir::Result<ValueId> {
        b.scope("media", |b| {
            let rows = self.piece(b, layer + 1)?;
            let sum = b.add(x, rows)?;
            b.op(Op::Where, &[self.at, sum, x])
        })
    }
}

/// Up to which position each one sees, an input for models whose pictures see themselves in both directions, `i64[s]`.
pub(crate) fn until(b: &mut GraphBuilder) -> ValueId {
    b.input(MEDIA_UNTIL, TensorType::new(DType::I64, [seq()]))
}

/// Where each position is on the axes time, row and column, an input for models whose pictures stand in grids, `i64[s, 3]`.
pub(crate) fn on_axes(b: &mut GraphBuilder) -> ValueId {
    b.input(MEDIA_POSITIONS, TensorType::new(DType::I64, [seq(), AXES.into()]))
}
