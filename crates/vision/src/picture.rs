//! Pixels in memory.

use crate::{Error, ErrorKind};

/// A picture as 8-bit RGB, row after row from the top: `[height, width, 3]`.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    width: u32,
    height: u32,
    rgb: Vec<u8>,
}

impl Picture {
    /// A picture of `rgb`, `[height, width, 3]`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] where a side is 0 or the bytes are not as many as the sides say.
    pub fn new(width: u32, height: u32, rgb: Vec<u8>) -> Result<Self, Error> {
        let expected = bytes(width, height);
        if width == 0 || height == 0 || expected != Some(rgb.len()) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "a picture of {width} x {height} pixels was given {} bytes; expected sides of at least 1 and 3 bytes a pixel",
                    rgb.len()
                ),
            ));
        }
        Ok(Self { width, height, rgb })
    }

    /// Pixels of a row.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// The bytes, `[height, width, 3]`.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// The bytes of row `y`, `[width, 3]`.
    pub(crate) fn row(&self, y: usize) -> &[u8] {
        let stride = self.width as usize * 3;
        &self.rgb[y * stride..][..stride]
    }
}

impl std::fmt::Debug for Picture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Picture({} x {})", self.width, self.height)
    }
}

/// Bytes of a picture of these sides, if they can be counted.
pub(crate) fn bytes(width: u32, height: u32) -> Option<usize> {
    (width as usize).checked_mul(height as usize)?.checked_mul(3)
}
