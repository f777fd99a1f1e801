//! Shape lists, tolerances and tiny models for tests.
