//! The x86-64 tiers.

/// Evaluates intrinsics in the methods of a token.
macro_rules! intrinsics {
    ($body:expr) => {
        // SAFETY: the method's token can only be made where the CPU has the features of these intrinsics, and their
        // memory operands are references to arrays of exactly the accessed size (or masked to the slice's length).
        unsafe { $body }
    };
}

mod avx2;
mod avx512;

pub use avx2::Avx2;
pub use avx512::Avx512;
