//! The codebook packings CQ1 to CQ6 and TCQ2 to TCQ6: groups along the input axis are rotated, and each rotated weight becomes an index of 1
//! to 6 bits into a codebook that is the same for every tensor. With a [`trellis`] the index before it counts, too.
//!
//! Purpose: the recipe (rotation, codebook, scale), its packed bytes, encoding of every group by itself, decoding of single
//! rows. It may depend on what the crate depends on. It deliberately has no error feedback, which is arithmetic enough for
//! kernels (`kernels::feedback`), and does not choose bits for a tensor (see `passes` and `quality`).
//!
//! # What a group stands for
//!
//! A group holds `d` inputs of one output: 128, and at the end of a row whose width is no multiple of 128 a group of 64, one
//! of 32, or both ([`groups`]). With `S` the fixed signs ([`rotation`]), `H` the Hadamard matrix of order `d` with entries
//! 1 and -1, `c` the codebook's integers at the stored indices (carries included, with a trellis) and `s` the stored `f16`,
//!
//! ```text
//! w = S · H · c · s / (64 · d)
//! ```
//!
//! `H/√d` is orthogonal and makes the weights of a group nearly normal, whatever they were; the codebook is the best there
//! is for that distribution ([`Codebook`]). In a product the rotation moves to the activations, `w · x = c · (H S x) · s /
//! (64 d)`, where it is done once for all outputs. Every constant is a power of two, so nothing is rounded on its account.
//!
//! The recipe follows TurboQuant (Zandieh et al. 2025) in rotation and data-free codebook.

mod block;
mod codebook;
mod encode;

pub mod rotation;
pub mod trellis;

pub use codebook::Codebook;
pub use encode::{Encoded, check_row, largest, write_group};

pub(crate) use block::{block_bytes, decode_row};
pub(crate) use encode::encode_block;

/// Inputs of a whole group.
pub const CQ_GROUP: usize = 128;
/// Widths are filled up with zeros to a multiple of this; the smallest group.
pub const CQ_GRAIN: usize = 32;
/// Stored scales are this many times the factor of a codebook integer in a rotated weight.
pub const CQ_UNIT: f32 = 64.0;

/// First input and size of every group of a row of `k` inputs; the last group may reach beyond `k`.
pub fn groups(k: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
    let padded = k.next_multiple_of(CQ_GRAIN);
    let whole = padded / CQ_GROUP;
    let rest = padded % CQ_GROUP;
    let tails = [64, 32].into_iter().filter(move |d| rest & d != 0);
    let sizes = std::iter::repeat_n(CQ_GROUP, whole).chain(tails);
    sizes.scan(0, |next, d| {
        let start = *next;
        *next += d;
        Some((start, d))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_cover_the_padded_width() {
        for (k, expected) in [
            (1, vec![(0, 32)]),
            (33, vec![(0, 64)]),
            (65, vec![(0, 64), (64, 32)]),
            (128, vec![(0, 128)]),
            (300, vec![(0, 128), (128, 128), (256, 64)]),
            (350, vec![(0, 128), (128, 128), (256, 64), (320, 32)]),
        ] {
            assert_eq!(groups(k).collect::<Vec<_>>(), expected, "{k}");
        }
        assert_eq!(groups(576).count(), 5);
    }
}
