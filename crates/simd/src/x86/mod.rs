//! The x86-64 tiers.

/// Evaluates intrinsics in the methods of a token.
macro_rules! intrinsics {
    ($body:expr) => {
        // SAFETY: the method's token can only be made where the CPU has the features of these intrinsics, and their
        // memory operands are references to arrays of exactly the accessed size (or masked to the slice's length).
        unsafe { $body }
    };
}

/// Applies an expression to the low and the high half of a logical vector in two registers.
macro_rules! halves {
    ($f:ident($($a:expr),*)) => {
        intrinsics!([$f($($a[0]),*), $f($($a[1]),*)])
    };
}

mod amx;
mod avx2;
mod avx512;
mod level;

pub use amx::{Amx, Tiles};
pub use avx2::{Avx2, Avx2Vnni};
pub use avx512::Avx512;

/// Asks for the line of the cache at `address`, of whatever memory, into the cache of the second level.
pub(crate) fn fetch(address: usize) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: every x86-64 CPU has the instruction, and it neither reads nor faults, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(address as *const i8) }
}

/// Whether the CPU is of AMD's family 19h and has AVX-512, which is Zen 4.
pub(crate) fn prefers_hardware_prefetch() -> bool {
    use std::arch::x86_64::__cpuid;
    use std::sync::OnceLock;
    static IS_ZEN4: OnceLock<bool> = OnceLock::new();
    *IS_ZEN4.get_or_init(|| {
        let (vendor, version) = (__cpuid(0), __cpuid(1).eax);
        let is_amd = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD";
        let family = (version >> 8 & 0xF) + (version >> 20 & 0xFF);
        is_amd && family == 0x19 && is_x86_feature_detected!("avx512f")
    })
}
