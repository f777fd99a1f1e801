//! The tier of the outer products of SME2.
//!
//! Purpose: the token that proves SME2, its detection, and the length of a streaming vector. The instructions themselves
//! are not here: one is of no use alone, as a CPU enters streaming mode for a whole loop and forgets its vector registers
//! at both ends. Such a loop is one `asm!` in the kernel that wants it, which takes the token as its proof.
//!
//! All else on this tier is the code of the tiers below, so nothing is compiled twice for it.

use super::NeonI8mm;
use std::arch::asm;

/// Token of the tier with the outer products of SME2 (Apple M4, Arm C1), besides all of [`NeonI8mm`].
#[derive(Debug, Clone, Copy)]
pub struct Sme2(NeonI8mm);

impl Sme2 {
    /// The token if this CPU has the tier and the system lets programs use it.
    #[must_use]
    pub fn detect() -> Option<Self> {
        NeonI8mm::detect().filter(|_| has_sme2()).map(Self)
    }

    /// The token of all operations outside of streaming mode.
    #[inline(always)]
    #[must_use]
    pub const fn neon(self) -> NeonI8mm {
        self.0
    }

    /// Number of 32-bit lanes of a streaming vector of this thread: 4 to 64. A system may let threads choose.
    #[inline]
    #[must_use]
    pub fn streaming_lanes(self) -> usize {
        let bytes: usize;
        // SAFETY: reads a length, in any mode; the token proves the instruction.
        unsafe {
            asm!(".arch_extension sme", "rdsvl {0}, #1", out(reg) bytes, options(pure, nomem, nostack, preserves_flags));
        }
        bytes / 4
    }
}

/// By the second word of capabilities that the kernel hands to every program.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn has_sme2() -> bool {
    const HWCAP2_SME2: u64 = 1 << 37;
    // SAFETY: takes and returns integers; a key that the kernel does not know gives 0.
    let capabilities = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    capabilities & HWCAP2_SME2 != 0
}

/// By the name of the feature, which systems that are older than it do not know.
#[cfg(any(target_os = "macos", target_os = "ios"))]
fn has_sme2() -> bool {
    let (mut value, mut size) = (0i32, size_of::<i32>());
    // SAFETY: the name ends with a zero, `value` has `size` bytes, and nothing is written to the system.
    let status = unsafe {
        libc::sysctlbyname(
            c"hw.optional.arm.FEAT_SME2".as_ptr(),
            (&raw mut value).cast(),
            &raw mut size,
            std::ptr::null_mut(),
            0,
        )
    };
    status == 0 && size == size_of::<i32>() && value == 1
}

/// Not told by any other system that is known to run on such CPUs.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "macos", target_os = "ios")))]
fn has_sme2() -> bool {
    false
}
