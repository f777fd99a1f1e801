//! Block formats and packings: INT8, F16, F32 and the GGUF block types.
