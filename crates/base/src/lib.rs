//! Aligned buffers, checked arithmetic, the knob registry and the resident thread pool.
