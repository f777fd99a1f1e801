//! The component `alignment` of a model whose decoder looks at sound: it reads a whole text with the decoder's weights and says how much of each
//! position some heads look at, of which times of words are made.

use crate::Result;
use crate::config::Config;
use cactus_ir::{Dim, GraphBuilder, Op, ValueId};

/// Its output, `f32[1, heads, seq, positions]`; each row adds up to 1.
const SHARES: &str = "alignment_shares";
/// Heads whose shares it gives, of the generation configuration: pairs of layer and head.
const HEADS: &str = "alignment_heads";

/// The heads that the configuration names, in ascending order; without any, those of the later half of the layers, as OpenAI's implementation
/// has it.
pub(crate) fn heads(c: &Config<'_>, [layers, heads]: [usize; 2]) -> Result<Vec<[usize; 2]>> {
    let mut pairs = c.pairs(HEADS, [0..=layers - 1, 0..=heads - 1])?.unwrap_or_default();
    if pairs.is_empty() {
        pairs = (layers / 2..layers)
            .flat_map(|layer| (0..heads).map(move |head| [layer, head]))
            .collect();
    }
    pairs.sort_unstable();
    pairs.dedup();
    Ok(pairs)
}

/// Adds the output: the shares of `heads`. `seen` has what each layer's cross attention compares: queries `[1, heads, seq, dim]`, and keys
/// `[1, heads, dim, positions]`; their products are scaled by `scale`.
pub(crate) fn output(
    b: &mut GraphBuilder,
    heads: &[[usize; 2]],
    seen: &[[ValueId; 2]],
    scale: Option<f32>,
) -> cactus_ir::Result<()> {
    let mut shares = Vec::new();
    for [layer, head] in heads {
        let one = |b: &mut GraphBuilder, x: ValueId| {
            let (start, end) = (Dim::known(*head), Dim::known(head + 1));
            b.op(Op::Slice { axis: 1, start, end }, &[x])
        };
        let [q, k] = seen[*layer];
        let (q, k) = (one(b, q)?, one(b, k)?);
        let mut scores = b.matmul(q, k)?;
        if let Some(scale) = scale {
            scores = b.scale(scores, scale)?;
        }
        shares.push(b.softmax_last(scores)?);
    }
    let shares = b.op(Op::Concat { axis: 1 }, &shares)?;
    b.output(SHARES, shares);
    Ok(())
}
