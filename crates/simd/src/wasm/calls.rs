//! Multiply and add as a call, in whose place a finished module has one instruction.
//!
//! Relaxed SIMD has a multiply-add, but the compiler, told that it may use relaxed SIMD, also takes relaxed minima for others, whose results
//! differ. So it is not told: it calls [`cactus_fma_f32x4`] wherever lanes are multiplied and added, and `sdks/web/scripts/fuse.mjs`
//! puts `f32x4.relaxed_madd` in the place of each call. An engine may round its product or not, and has to do the same
//! everywhere; [`is_exact`] looks what this one does. Without the script the calls are slow, and right.

use super::{F, fused};
use std::arch::wasm32::*;
use std::hint::black_box;

/// `a * b + c` with one rounding.
///
/// Its name is known to `fuse.mjs`, which finds it among what the module exports.
#[unsafe(no_mangle)]
#[inline(never)]
#[allow(
    improper_ctypes_definitions,
    reason = "nobody calls it by a declaration; vectors have to be passed as such"
)]
extern "C" fn cactus_fma_f32x4(a: v128, b: v128, c: v128) -> v128 {
    fused::carefully_four(a, b, c)
}

/// `a * b + c`.
#[inline(always)]
pub(super) fn fma(a: F, b: F, c: F) -> F {
    each!(cactus_fma_f32x4(a, b, c))
}

/// Whether what is in the place of the calls rounds once.
pub(super) fn is_exact() -> bool {
    // The square of `1 + 2^-12` is `1 + 2^-11 + 2^-24`, whose last term a rounding drops.
    let a = black_box([f32x4_splat(1.0 + 1.0 / 4096.0); 4]);
    let c = black_box([f32x4_splat(-1.0 - 1.0 / 2048.0); 4]);
    let left = f32x4_splat(1.0 / 16_777_216.0);
    fma(a, a, c).into_iter().all(|sum| i32x4_all_true(i32x4_eq(sum, left)))
}
