//! Little-endian integers, one after the other.

/// What is left to read. Reading past the end gives `None`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(bytes)?;
        self.0 = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn usize(&mut self) -> Option<usize> {
        usize::try_from(self.u64()?).ok()
    }
}

/// Appends integers to bytes.
pub(crate) trait Append {
    fn u32(&mut self, n: u32);
    fn u64(&mut self, n: u64);
    fn fill_to(&mut self, multiple: usize);
}

impl Append for Vec<u8> {
    fn u32(&mut self, n: u32) {
        self.extend(n.to_le_bytes());
    }

    fn u64(&mut self, n: u64) {
        self.extend(n.to_le_bytes());
    }

    /// Zeros up to a multiple.
    fn fill_to(&mut self, multiple: usize) {
        self.resize(self.len().next_multiple_of(multiple), 0);
    }
}
