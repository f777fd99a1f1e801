//! Programs saved by `torch.export.save`: `.pt2` archives become graphs and bundles.
//!
//! Purpose: to read a captured PyTorch program with no Python on the machine. The archive is a zip of stored entries: a
//! graph as JSON, weights as raw little-endian bytes, which stay mapped. `archive` finds the entries, `schema` has the
//! JSON as types, `expression` reads symbolic sizes and guards, `tensors` is the weights as a [`crate::TensorSource`],
//! `importer` walks the nodes, and `ops` has a row for each ATen operation, which is all that decides how it is read:
//! names of modules are labels, never looked at. `wrapped` writes subgraphs in place
//! that only say in which mode they run. `constants` computes ahead what depends on weights alone, `bound`
//! puts weights of a folder in the place of the archive's, `seeing` reads how pictures and sounds are prepared for a model that
//! writes about them, and `transpile` makes the bundle.
//!
//! It fails closed: another schema, an operation or argument without a row, a pickled tensor, a custom object, a foreign
//! byte order or a guard that cannot be read are errors, never guesses. Range constraints and guards become part of the
//! graph. It deliberately does not run Python, does not fuse and does not add states (passes do).

mod archive;
mod arguments;
mod bound;
mod capture;
mod constants;
mod expression;
mod importer;
mod ops;
mod patterns;
mod schema;
mod seeing;
mod sinusoids;
mod tensors;
mod transpile;
mod wrapped;

pub(crate) use archive::Archive;
pub use capture::is_capture;
pub use importer::{Imported, import_bytes, import_file};
pub use ops::{operation_names, unsupported_operations};
pub use tensors::Pt2Tensors;
pub use transpile::{Task, TranspileOptions, optimize, transpile, transpile_calibrated};

/// Whether a path is named like an archive of `torch.export.save`.
pub fn is_pt2(path: &std::path::Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("pt2"))
}
