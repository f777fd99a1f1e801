//! Late interaction: a vector for each token of query and document (Khattab and Zaharia 2020, `ColBERT`).
//!
//! The score of a document is the sum, over the tokens of the query, of the largest product with a token of the document. It
//! ranks candidates that a search has found; an index does not store such matrices.

use cactus_kernels::{Error, Kernels, RowFormat, RowLayout, RowQuery, SCAN_ROWS};

/// The vectors of a document's tokens.
#[derive(Clone, Debug)]
pub struct TokenMatrix {
    layout: RowLayout,
    /// Blocks of rows, aligned as the kernels read them.
    blocks: Vec<u32>,
    tokens: usize,
}

impl TokenMatrix {
    /// Of `vectors [tokens, dim]`; what is behind the last whole token is left out.
    ///
    /// # Errors
    /// Where no vector has so many dimensions.
    pub fn new(vectors: &[f32], dim: usize, format: RowFormat) -> Result<TokenMatrix, Error> {
        let layout = RowLayout::new(dim, format)?;
        let (tokens, bytes) = (vectors.len() / dim, layout.block_bytes());
        let mut blocks = vec![0u32; tokens.div_ceil(SCAN_ROWS) * bytes / 4];
        let memory: &mut [u8] = bytemuck::cast_slice_mut(&mut blocks);
        for (token, vector) in vectors.chunks_exact(dim).enumerate() {
            let block = &mut memory[token / SCAN_ROWS * bytes..][..bytes];
            layout.write(block, token % SCAN_ROWS, vector);
        }
        Ok(TokenMatrix { layout, blocks, tokens })
    }

    /// Tokens.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The score beside `query [tokens, dim]`; 0 of no tokens on either side. Tokens whose vectors are no numbers count for
    /// nothing.
    #[must_use]
    pub fn max_sim(&self, query: &[f32], kernels: &Kernels) -> f32 {
        let mut scores = vec![0.0; self.blocks.len() * 4 / self.layout.block_bytes() * SCAN_ROWS];
        let mut sum = 0.0;
        for token in query.chunks_exact(self.layout.dim()) {
            let token = RowQuery::new(self.layout, token);
            kernels.score_rows(bytemuck::cast_slice(&self.blocks), &token, &mut scores);
            let own = scores[..self.tokens].iter().copied();
            let largest = own.fold(f32::NEG_INFINITY, |max, x| if x > max { x } else { max });
            if largest.is_finite() {
                sum += largest;
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors(count: usize, dim: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count * dim).map(|_| next()).collect()
    }

    #[test]
    fn max_sim_matches_definition_on_every_tier() {
        let dim = 32;
        for (tokens, asked) in [(0, 4), (1, 1), (16, 3), (45, 8), (5, 0)] {
            let (document, query) = (vectors(tokens, dim, 1), vectors(asked, dim, 2));
            let mut exact = 0.0f64;
            for q in query.chunks(dim) {
                let dots = document
                    .chunks(dim)
                    .map(|d| d.iter().zip(q).map(|(a, b)| f64::from(a * b)).sum::<f64>());
                exact += dots.reduce(f64::max).unwrap_or_default();
            }
            for (format, error) in [(RowFormat::F32, 1e-5), (RowFormat::Int8, 0.02)] {
                let matrix = TokenMatrix::new(&document, dim, format).unwrap();
                assert_eq!(matrix.tokens(), tokens);
                let mut found = Kernels::available().map(|kernels| matrix.max_sim(&query, kernels));
                let first = found.next().unwrap();
                assert!(
                    (f64::from(first) - exact).abs() <= error * asked.max(1) as f64,
                    "{first} {exact}"
                );
                assert!(found.all(|other| other.to_bits() == first.to_bits()));
            }
        }
        assert!(TokenMatrix::new(&[], 0, RowFormat::F32).is_err());
    }
}
