//! The functions of the library as C calls them, with a tiny golden model.

mod bad_input;
mod public;
mod requests;
mod sessions;
mod stress;
mod support;
