//! CPU feature tokens, run-time detection and 16-lane vector operations.
//!
//! Purpose: let kernels be written once, in safe Rust, and run at the full width of each CPU with the same bits on all.
//!
//! It depends only on `half` (software conversions) and, on ARM64 and on x86-64 with Linux, on `libc` (detection). It deliberately contains no kernel, no thread, no allocation.
//!
//! # Tokens
//!
//! An instruction-set token ([`Scalar`]; `Avx2`, `Avx2Vnni`, `Avx512`, `Amx`; `Neon`, `NeonDot`, `NeonI8mm`, `Sme2`; `Simd128`) is a zero-sized value that can only be made where the CPU has
//! the instructions. All operations are methods of a token (trait [`Simd`]), so holding one proves that calling them is
//! sound, and no caller writes `unsafe` for the CPU's sake.
//!
//! # One logical width
//!
//! Every tier works on vectors of [`LANES`] = 16 lanes of `f32` or `i32`: an array on the scalar tier, two 256-bit
//! registers with AVX2, one 512-bit register with AVX-512, four 128-bit ones with NEON and in WebAssembly. Together with two rules, fused
//! where the code says fused, and reductions in the one order that [`Simd::reduce_sum`] defines, this makes results
//! bit-identical on all tiers: kernels put element `i` into lane `i % 16`, so the order of additions is the same
//! everywhere. No operation here has a result that depends on the tier within its documented domain.
//!
//! # Dispatch and inlining
//!
//! Instruction sets are enabled per function in Rust: intrinsics only become single instructions once inlined into a
//! function that carries the feature. A kernel is therefore a struct implementing [`Op`] whose `eval` is generic over the
//! token and `#[inline(always)]`, as is every function it calls with vectors in hand. [`Isa::dispatch`] (or
//! [`Simd::vectorize`]) enters it through one function per tier that carries the features. Two hazards follow:
//!
//! - A generic helper without `#[inline(always)]` may be compiled as a function of its own without the features; every
//!   intrinsic in it is then a call. It shows in a disassembly as `call …_mm512_…`.
//! - A closure cannot carry `#[inline(always)]`. Closures that touch vectors are to be avoided in hot loops.
//!
//! # Example
//!
//! ```
//! use cactus_simd::{Isa, Op, Simd};
//!
//! struct Sum<'a>(&'a [f32]);
//!
//! impl Op for Sum<'_> {
//!     type Output = f32;
//!
//!     #[inline(always)]
//!     fn eval<S: Simd>(self, s: S) -> f32 {
//!         let (chunks, tail) = self.0.as_chunks::<16>();
//!         let mut sum = s.zero();
//!         for chunk in chunks {
//!             sum = s.add(sum, s.load(chunk));
//!         }
//!         s.reduce_sum(s.add(sum, s.load_partial(tail)))
//!     }
//! }
//!
//! let data: Vec<f32> = (0..100).map(|i| i as f32).collect();
//! for isa in Isa::available() {
//!     assert_eq!(isa.dispatch(Sum(&data)), 4950.0);
//! }
//! ```

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod isa;
mod scalar;
mod vector;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod wasm;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "aarch64")]
pub use aarch64::{Arm, Baseline, Dotprod, HasDotprod, I8mm, Level, Neon, NeonDot, NeonI8mm, Sme2};
pub use isa::{Isa, Tier};
pub use scalar::Scalar;
pub use vector::{LANES, Op, OpFor, Simd};
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub use wasm::Simd128;
#[cfg(target_arch = "x86_64")]
pub use x86::{Amx, Avx2, Avx2Vnni, Avx512, Tiles};

/// Asks for the line of the cache at an address, of whatever memory, into the cache of the second level, for threads that wait for others. Nobody has
/// measured that on ARM64, and WebAssembly cannot do it: there it is left out.
pub const FETCH: Option<fn(usize)> = {
    #[cfg(target_arch = "x86_64")]
    {
        Some(x86::fetch)
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
};

/// Whether this CPU multiplies tiles and the system lets this process do so: whether there is a token of the tier [`Tier::AmxInt8`].
#[inline]
#[must_use]
pub fn has_tiles() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        Amx::detect().is_some()
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Whether this CPU reads weights of 8 bits faster without software prefetching, whose lines take the fill buffers of its first-level cache. Known of AMD's Zen 4
/// alone.
pub fn prefers_hardware_prefetch() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        x86::prefers_hardware_prefetch()
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}
