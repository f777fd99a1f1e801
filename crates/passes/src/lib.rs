//! Portable rewrites of the graph, from primitive operations as importers write them to the fused and stateful ones
//! that the runtime lowers.
//!
//! [`optimize`] runs the whole pipeline: canonicalize, fold constants, fuse (norms, rotary embedding, attention, alternating updates, short
//! convolution, gated MLP, chosen experts, steps of the delta rule), merge linears that share an operand, insert states, fuse once more
//! what stands side by side (norm and rotation, norm and sum, norm and gate, router and experts), remove dead code. Each pass is one file
//! and one [`Pass`]; the graph is verified after each. A [`Report`] says where each pattern fired and, where it nearly
//! did, why not. [`choose_storage`] decides how each weight is stored; that is no rewrite, since the graph sees a weight
//! as `f32` whatever it is stored as. [`attend_on_integers`] then says of attention, where its caller asks, that it need not be more exact than its
//! operands.
//!
//! Every pass keeps the function of the graph up to rounding; `insert_states` keeps it over a sequence of calls.
//!
//! It may depend on `ir`, `tensor` and `reference` (the constant folder). It deliberately knows no kernel, no CPU, no
//! file and no model family: a pattern is found by what it computes, never by its name.
#![forbid(unsafe_code)]

mod affine;
mod canonicalize;
mod dead_code;
mod drop_repeats;
mod error;
mod fold;
mod fold_padding;
mod fuse_activation;
mod fuse_altup;
mod fuse_attention;
mod fuse_conv_activation;
mod fuse_conv_norm;
mod fuse_delta_steps;
mod fuse_experts;
mod fuse_gate;
mod fuse_gated_mlp;
mod fuse_layer_norm;
mod fuse_norm_add;
mod fuse_norm_gate;
mod fuse_norm_rope;
mod fuse_norm_scale;
mod fuse_rms_norm;
mod fuse_rope;
mod fuse_router;
mod fuse_short_conv;
mod fuse_sinks;
mod insert_states;
mod keep_batch;
mod layout;
mod mask;
mod merge_linear;
mod of_heads;
mod pattern;
mod pipeline;
mod policy;
mod positions;
mod precision;
mod report;
mod reshaped;
mod rope_pairs;
mod rope_table;
mod scores;
mod seq_axis;
mod sink_permutes;
mod sink_reshapes;
mod take_rows;

pub use error::{Error, ErrorKind, Result};
pub use pipeline::{Options, Pass, StatePolicy, optimize, optimize_observed, pass, pass_names};
pub use policy::Policy;
pub use precision::{
    Bits, Storage, StorageChoice, attend_on_integers, choose_storage, lay_filters, storage_of_matrix, unquantized,
};
pub use report::{Outcome, Record, Report};
