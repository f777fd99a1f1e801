//! Model and Session: prefill, decode, sampling, streaming, scoring.
