//! Compute kernels and their drivers: one set per instruction-set tier, the same bits on all.
