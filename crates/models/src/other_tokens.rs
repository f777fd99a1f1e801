//! Tokens that are no text, behind those that are: marks of pictures and sounds, first those of pictures. They have embeddings in tables of their own, of
//! which the front ends make rows as those of a picture or a sound are made: normed, projected and normed again. Gemma team 2025 (Gemma 3n).

use crate::Result;
use crate::config::{Config, Dims, MAX_VOCAB};
use crate::layers;
use cactus_ir::{BinaryFn, CompareFn, GraphBuilder, ValueId};

/// Their rows, `[tokens, hidden]`.
const TABLE: &str = "embed_others.weight";
/// Tokens of each kind, and the first of all, where the configuration is silent.
const TOKENS: usize = 128;
const FIRST: usize = 262_144;

#[derive(Clone, Copy, Debug)]
pub(crate) struct OtherTokens {
    first: usize,
    tokens: usize,
    hidden: usize,
}

impl OtherTokens {
    /// Those of the sections for pictures and sounds, beside a text model of these sizes.
    pub(crate) fn read([vision, audio]: [&Config<'_>; 2], dims: &Dims) -> Result<OtherTokens> {
        let of = |section: &Config<'_>, usual: usize| -> Result<[usize; 2]> {
            let first = section.size_or("vocab_offset", MAX_VOCAB, usual)?;
            Ok([first, first + section.size_or("vocab_size", MAX_VOCAB, TOKENS)?])
        };
        let [first, between] = of(vision, FIRST)?;
        let [second, end] = of(audio, between)?;
        if second != between || end != dims.vocab {
            let what = format!(
                "expected the tokens of pictures, {first} to {between}, those of sounds, {second} to {end}, and the end of the vocabulary, {}, \
                 one behind the other",
                dims.vocab
            );
            return Err(audio.unsupported("vocab_offset", what));
        }
        Ok(OtherTokens {
            first,
            tokens: end - first,
            hidden: dims.hidden,
        })
    }

    /// Puts their rows in place of embeddings `x`, `[b, s, hidden]`, of tokens `ids`, `[b, s]`.
    pub(crate) fn in_place(self, b: &mut GraphBuilder, x: ValueId, ids: ValueId) -> cactus_ir::Result<ValueId> {
        b.scope("others", |b| {
            let (first, zero) = (b.scalar_i64(self.first as i64)?, b.scalar_i64(0)?);
            let is_other = b.compare(CompareFn::Ge, ids, first)?;
            let at = b.binary(BinaryFn::Sub, ids, first)?;
            let at = b.select(is_other, at, zero)?;
            let table = b.weight(TABLE, &[self.tokens, self.hidden]);
            let own = b.embedding(table, at)?;
            let is_other = b.reshape(is_other, [layers::batch(), layers::seq(), 1.into()])?;
            b.select(is_other, own, x)
        })
    }
}
