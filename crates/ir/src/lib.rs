//! The portable graph: operations, symbolic shapes, verifier, text and JSON form.
