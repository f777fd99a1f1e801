#!/usr/bin/env bash
# rustdoc with its unstable options, for `cargo xtask rust-api`. Only rustdoc gets them: set for a whole build, the variable would make
# every dependency again.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
