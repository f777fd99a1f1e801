//! Kernel sets, and their binding to threads.

use crate::error::{Error, ErrorKind, Result};
use crate::parts::{part_count, part_range};
use cactus_base::{Step, knobs};
use cactus_simd::{Isa, Op, Tier};
use std::ops::Range;

/// The kernels of one tier. A value proves that this CPU has the tier.
#[derive(Debug)]
pub struct Kernels {
    isa: Isa,
}

impl Kernels {
    /// The kernels of `tier`, if this CPU has it.
    #[must_use]
    pub fn for_tier(tier: Tier) -> Option<&'static Self> {
        Self::available().find(|kernels| kernels.tier() == tier)
    }

    /// The kernel sets of this CPU, from the lowest tier to the highest.
    pub fn available() -> impl Iterator<Item = &'static Self> {
        static SETS: std::sync::OnceLock<Vec<Kernels>> = std::sync::OnceLock::new();
        SETS.get_or_init(|| Isa::available().map(|isa| Self { isa }).collect())
            .iter()
    }

    /// The best kernels of this CPU, or those that the knob `CACTUS_ISA` asks for.
    ///
    /// # Errors
    /// [`ErrorKind::UnsupportedTier`] when the knob holds an unknown name or a tier that this CPU lacks.
    pub fn detect() -> Result<&'static Self> {
        let choice = knobs::ISA
            .choice()
            .map_err(|e| Error::new(ErrorKind::UnsupportedTier, e.to_string()))?;
        Self::choose(choice.unwrap_or("auto"))
    }

    /// The kernels of the tier called `name`, or the best ones for `auto`.
    ///
    /// # Errors
    /// As [`Kernels::detect`].
    pub fn choose(name: &str) -> Result<&'static Self> {
        let chosen = match Tier::from_name(name) {
            None if name == "auto" => Self::available().last(),
            None => None,
            Some(tier) => Self::for_tier(tier),
        };
        chosen.ok_or_else(|| {
            let tiers: Vec<_> = Self::available().map(|k| k.tier().name()).collect();
            let context = format!("{}: this CPU has {}, found `{name}`", knobs::ISA.name, tiers.join(", "));
            Error::new(ErrorKind::UnsupportedTier, context)
        })
    }

    /// The tier of these kernels.
    #[must_use]
    pub const fn tier(&self) -> Tier {
        self.isa.tier()
    }

    /// The token of the tier.
    #[must_use]
    pub const fn isa(&self) -> Isa {
        self.isa
    }

    /// Runs `op` compiled for the tier, on this thread.
    #[inline]
    pub(crate) fn run<O: Op>(&self, op: O) -> O::Output {
        self.isa.dispatch(op)
    }
}

/// A kernel set bound to the threads of a step: the object whose methods are the operations.
#[derive(Debug, Clone, Copy)]
pub struct Exec<'a> {
    /// The kernels to use.
    pub kernels: &'static Kernels,
    /// The threads to use.
    pub step: &'a Step<'a>,
}

impl Exec<'_> {
    /// Calls `f` with every row of `width` elements, which it may change, and its number; rows of `x` are `stride` apart,
    /// and one takes about `cost` nanoseconds.
    ///
    /// # Panics
    /// When `x` does not hold the rows.
    pub(crate) fn for_rows(
        &self,
        what: &str,
        x: &mut [f32],
        [rows, stride, width]: [usize; 3],
        cost: usize,
        f: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) {
        check_strided(what, x.len(), rows, stride, width);
        let parts = part_count(self.step.width(), rows, cost);
        let x = SharedMut::new(x);
        self.step.run(parts, &|part| {
            for row in part_range(rows, parts, part) {
                // SAFETY: rows are disjoint, as the stride is at least the width.
                f(row, unsafe { x.piece(row * stride..row * stride + width) });
            }
        });
    }
}

/// Checks that a slice of `len` elements holds `rows` rows of `width` elements, `stride` apart.
pub(crate) fn check_strided(what: &str, len: usize, rows: usize, stride: usize, width: usize) {
    assert!(
        stride >= width || rows <= 1,
        "{what}: rows of {width} elements cannot be {stride} apart"
    );
    let needed = if rows == 0 { 0 } else { (rows - 1) * stride + width };
    assert!(
        len >= needed,
        "{what}: {rows} rows of {width} elements {stride} apart need {needed} elements, found {len}"
    );
}

/// A mutable slice whose disjoint pieces are handed to the parts of a run.
pub(crate) struct SharedMut<'a, T> {
    start: *mut T,
    len: usize,
    _slice: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: access goes through `piece`, whose contract makes pieces disjoint; `T: Send` lets a piece be written elsewhere.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            _slice: std::marker::PhantomData,
        }
    }

    /// The elements of `range`, bounds-checked.
    ///
    /// # Safety
    /// No two pieces that are alive at the same time may overlap.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn piece(&self, range: Range<usize>) -> &mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "piece {range:?} of a slice of {}",
            self.len
        );
        // SAFETY: in bounds by the assertion; exclusive by this function's contract; valid for the slice's lifetime.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start) }
    }

    /// The elements of `range`, shared: pieces of the result and of this one count alike.
    pub(crate) fn sub(&self, range: Range<usize>) -> SharedMut<'a, T> {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "part {range:?} of a slice of {}",
            self.len
        );
        SharedMut {
            // SAFETY: in bounds by the assertion.
            start: unsafe { self.start.add(range.start) },
            len: range.len(),
            _slice: std::marker::PhantomData,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}
