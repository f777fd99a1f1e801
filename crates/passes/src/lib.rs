//! Portable graph rewrites: canonicalise, fold, fuse, state, precision, dead code.
