//! CPU feature tokens, run-time detection and 16-lane vector operations.
