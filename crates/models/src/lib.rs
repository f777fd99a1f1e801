//! One file per model family: configuration to portable graph and weight map.
