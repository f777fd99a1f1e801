//! The one thing of EXIF that concerns pixels: how the camera was held.

use crate::{Error, Picture};

/// How stored rows and columns become upright ones, by the values 1 to 8 of the tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Orientation {
    Upright,
    FlippedAcross,
    HalfTurn,
    FlippedDown,
    Transposed,
    QuarterRight,
    Transversed,
    QuarterLeft,
}

/// The tag of the orientation, and the type of a 16-bit number.
const TAG: u16 = 0x0112;
const SHORT: u16 = 3;

impl Orientation {
    /// That of an EXIF block. A block that cannot be read says nothing.
    pub(super) fn of(block: &[u8]) -> Self {
        match value(block.strip_prefix(b"Exif\0\0").unwrap_or(block)) {
            Some(2) => Self::FlippedAcross,
            Some(3) => Self::HalfTurn,
            Some(4) => Self::FlippedDown,
            Some(5) => Self::Transposed,
            Some(6) => Self::QuarterRight,
            Some(7) => Self::Transversed,
            Some(8) => Self::QuarterLeft,
            _ => Self::Upright,
        }
    }

    fn swaps(self) -> bool {
        matches!(
            self,
            Self::Transposed | Self::QuarterRight | Self::Transversed | Self::QuarterLeft
        )
    }

    /// Sides after turning.
    pub(super) fn sides(self, width: u32, height: u32) -> (u32, u32) {
        if self.swaps() { (height, width) } else { (width, height) }
    }

    /// The picture upright.
    pub(super) fn apply(self, picture: &Picture) -> Result<Picture, Error> {
        if self == Self::Upright {
            return Ok(picture.clone());
        }
        let (width, height) = self.sides(picture.width(), picture.height());
        let (last_x, last_y) = (picture.width() as usize - 1, picture.height() as usize - 1);
        let mut rgb = Vec::with_capacity(picture.rgb().len());
        for y in 0..height as usize {
            for x in 0..width as usize {
                let (from_x, from_y) = match self {
                    Self::Upright => (x, y),
                    Self::FlippedAcross => (last_x - x, y),
                    Self::HalfTurn => (last_x - x, last_y - y),
                    Self::FlippedDown => (x, last_y - y),
                    Self::Transposed => (y, x),
                    Self::QuarterRight => (y, last_y - x),
                    Self::Transversed => (last_x - y, last_y - x),
                    Self::QuarterLeft => (last_x - y, x),
                };
                rgb.extend_from_slice(&picture.row(from_y)[from_x * 3..][..3]);
            }
        }
        Picture::new(width, height, rgb)
    }
}

/// The tag's value in a TIFF block: in the first directory, whose entries have 12 bytes each.
fn value(block: &[u8]) -> Option<u16> {
    let little = match block.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let short = |at: usize| {
        let bytes = block.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if little {
            u16::from_le_bytes(bytes)
        } else {
            u16::from_be_bytes(bytes)
        })
    };
    let long = |at: usize| {
        let bytes = block.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if little {
            u32::from_le_bytes(bytes)
        } else {
            u32::from_be_bytes(bytes)
        })
    };
    let directory = long(4)? as usize;
    let entries = short(directory)?;
    (0..usize::from(entries)).find_map(|entry| {
        let at = directory.checked_add(2 + 12 * entry)?;
        (short(at)? == TAG && short(at + 2)? == SHORT).then(|| short(at + 8))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(little: bool, orientation: u16) -> Vec<u8> {
        let short = |v: u16| if little { v.to_le_bytes() } else { v.to_be_bytes() };
        let long = |v: u32| if little { v.to_le_bytes() } else { v.to_be_bytes() };
        let mut out = if little { b"II*\0".to_vec() } else { b"MM\0*".to_vec() };
        out.extend(long(10));
        out.extend([0; 2]);
        out.extend(short(2));
        for (tag, value) in [(0x0100, 9), (TAG, orientation)] {
            out.extend(short(tag));
            out.extend(short(SHORT));
            out.extend(long(1));
            out.extend(short(value));
            out.extend([0; 2]);
        }
        out
    }

    #[test]
    fn apply_of_each_orientation_moves_the_corners() {
        // Two rows of three: a b c / d e f, each letter one gray.
        let rgb = b"abcdef".iter().flat_map(|&v| [v; 3]).collect();
        let picture = Picture::new(3, 2, rgb).unwrap();
        let cases: &[(u16, u32, &[u8; 6])] = &[
            (1, 3, b"abcdef"),
            (2, 3, b"cbafed"),
            (3, 3, b"fedcba"),
            (4, 3, b"defabc"),
            (5, 2, b"adbecf"),
            (6, 2, b"daebfc"),
            (7, 2, b"fcebda"),
            (8, 2, b"cfbead"),
            (9, 3, b"abcdef"),
        ];
        for &(value, width, expected) in cases {
            for little in [true, false] {
                let turned = Orientation::of(&block(little, value)).apply(&picture).unwrap();
                let gray: Vec<u8> = turned.rgb().iter().copied().step_by(3).collect();
                assert_eq!((turned.width(), &gray[..]), (width, &expected[..]), "{value}");
            }
        }
    }

    #[test]
    fn of_damaged_blocks_is_upright() {
        let whole = block(true, 6);
        for cut in 0..whole.len() - 2 {
            assert_eq!(Orientation::of(&whole[..cut]), Orientation::Upright, "{cut}");
        }
        let mut far = whole;
        far[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Orientation::of(&far), Orientation::Upright);
    }
}
