//! Memory of a kernel on the stack, as large as the largest shape needs, of which a call uses and clears a part.

use bytemuck::Zeroable;
use std::mem::MaybeUninit;

/// Stack memory of which only the part that is used gets initialized; it begins with a line of the cache.
#[repr(align(64))]
pub(crate) struct Stack<T, const N: usize>([MaybeUninit<T>; N]);

impl<T: Zeroable + Copy, const N: usize> Stack<T, N> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; N])
    }

    /// The first `n` elements, all zero.
    #[inline(always)]
    pub(crate) fn zeroed(&mut self, n: usize) -> &mut [T] {
        let part = &mut self.0[..n];
        part.fill(MaybeUninit::zeroed());
        // SAFETY: all `n` elements were just set to zero bytes, a valid value as `T` is `Zeroable`.
        unsafe { std::slice::from_raw_parts_mut(part.as_mut_ptr().cast(), n) }
    }

    /// The first `n` elements, to be changed.
    ///
    /// # Safety
    /// An earlier call of `zeroed` covered at least `n` elements.
    #[inline(always)]
    pub(crate) unsafe fn initialized_mut(&mut self, n: usize) -> &mut [T] {
        // SAFETY: by this function's contract.
        unsafe { std::slice::from_raw_parts_mut(self.0[..n].as_mut_ptr().cast(), n) }
    }

    /// The first `n` elements, which were passed to [`Stack::zeroed`] before.
    ///
    /// # Safety
    /// An earlier call of `zeroed` covered at least `n` elements.
    #[inline(always)]
    pub(crate) unsafe fn initialized(&self, n: usize) -> &[T] {
        // SAFETY: by this function's contract.
        unsafe { std::slice::from_raw_parts(self.0[..n].as_ptr().cast(), n) }
    }
}
