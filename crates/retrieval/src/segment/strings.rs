//! Many texts in one stretch of bytes: where each begins, `u64 [count + 1]`, then the bytes.

use bytemuck::Pod;

/// Elements of `bytes`, where they are aligned and divide.
pub(crate) fn cast<T: Pod>(bytes: &[u8]) -> Option<&[T]> {
    bytemuck::try_cast_slice(bytes).ok()
}

/// Texts where they lie. Each access is checked by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strings<'a> {
    offsets: &'a [u64],
    bytes: &'a [u8],
}

impl<'a> Strings<'a> {
    /// `count` texts in `bytes`, which are aligned to 8.
    pub(crate) fn new(bytes: &'a [u8], count: usize) -> Option<Strings<'a>> {
        let (offsets, bytes) = bytes.split_at_checked(count.checked_add(1)?.checked_mul(8)?)?;
        let offsets = cast(offsets)?;
        Some(Strings { offsets, bytes })
    }

    pub(crate) fn count(&self) -> usize {
        self.offsets.len() - 1
    }

    pub(crate) fn bytes(&self, i: usize) -> Option<&'a [u8]> {
        let start = usize::try_from(*self.offsets.get(i)?).ok()?;
        let end = usize::try_from(*self.offsets.get(i + 1)?).ok()?;
        self.bytes.get(start..end)
    }

    pub(crate) fn get(&self, i: usize) -> Option<&'a str> {
        std::str::from_utf8(self.bytes(i)?).ok()
    }

    /// Of ascending texts, the first that is not below `text`; `None` where one cannot be read.
    pub(crate) fn lower_bound(&self, text: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.bytes(middle)? < text {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some(low)
    }

    /// Of ascending texts, the place of this one, where it is there.
    pub(crate) fn find(&self, text: &[u8]) -> Option<Option<usize>> {
        let at = self.lower_bound(text)?;
        Some((at < self.count() && self.bytes(at)? == text).then_some(at))
    }
}
