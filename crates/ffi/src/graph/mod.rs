//! Functions of the public Cactus graph API: a graph built node by node, executed, saved and loaded.
//!
//! `node_graph` is the graph itself, in safe Rust. The other modules are the C functions over it, by kind; what they share is in
//! `open`. Functions that add a node take the graph, the nodes that it reads, its attributes, and a place for the number of the
//! new node. All give 0, or -1 and the last error.

#[forbid(unsafe_code)]
mod node_graph;

mod attention;
mod conv;
mod elementwise;
mod life;
mod linear;
mod open;
mod reduce;
mod run;
mod scalar;
mod shape;
mod signal;
mod state;
mod weights;

pub use attention::*;
pub use conv::*;
pub use elementwise::*;
pub use life::*;
pub use linear::*;
pub use reduce::*;
pub use run::*;
pub use scalar::*;
pub use shape::*;
pub use signal::*;
pub use state::*;
pub use weights::*;
