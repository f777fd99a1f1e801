//! Front ends: Hugging Face folders and GGUF files become bundles.
