//! Products of packed weights and activations.
