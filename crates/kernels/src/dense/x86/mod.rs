//! Tile products (AMX) for operations on dense tensors in bytes.
//!
//! Purpose: what convolutions and attention on bytes do with many rows, where one instruction multiplies 16 rows of 64 bytes with 16 columns. Their bytes lie as
//! tiles want them, so most are read in place. All else on these CPUs is the generic code, and the bits are the same: integer sums are exact, and what follows has the same order.
//! `docs/adr/0033-tiles-of-amx.md` has the reasons and figures.

mod attention_bytes;
mod conv_bytes;

pub(super) use attention_bytes::{Run as AttentionRun, serves as serves_queries};
pub(super) use conv_bytes::Run as ConvRun;
