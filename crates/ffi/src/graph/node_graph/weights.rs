//! Weight files: one tensor each, little endian. A header of 84 bytes, the scales, the elements; both begin at multiples of the
//! alignment that the header names.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | `CACT` |
//! | 4..8 | flags: 1 scales, 2 orthogonal rotation, 4 rows in blocks of four, 16 more than four axes, 32 panels |
//! | 8..12 | alignment |
//! | 12..16 | axes |
//! | 16..48 | sizes of four axes |
//! | 48..52 | precision |
//! | 52..60, 60..68 | bytes of elements, of scales |
//! | 68..72, 72..76 | elements that share a scale, how many groups a row has |
//! | 76..84 | rows before padding |

use super::precision::decode;
use super::{Error, ErrorKind, Precision, Result};
use cactus_bundle::Mapped;
use cactus_tensor::Tensor;
use std::path::{Path, PathBuf};

const HEADER_BYTES: usize = 84;
const SCALES: u32 = 1;

/// A weight file, mapped.
#[derive(Debug)]
pub(super) struct WeightFile {
    map: Mapped,
    path: PathBuf,
    precision: Precision,
    shape: Vec<usize>,
    data: (usize, usize),
    scales: (usize, usize),
    group: usize,
    groups: usize,
}

impl WeightFile {
    pub(super) fn open(path: &Path) -> Result<WeightFile> {
        let fail = |what: String| Error::new(ErrorKind::Damaged, format!("`{}`: {what}", path.display()));
        let map = Mapped::open(path)?;
        let Some(head) = map.get(..HEADER_BYTES) else {
            return Err(fail(format!(
                "{} bytes are too few for a header of {HEADER_BYTES}",
                map.len()
            )));
        };
        let u32_at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let size_at = |at: usize| {
            let wide = u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
            usize::try_from(wide).map_err(|_| fail(format!("{wide} does not fit the address space")))
        };
        if &head[..4] != b"CACT" {
            return Err(fail(format!(
                "expected a weight file (CACT), found {:02x?}",
                &head[..4]
            )));
        }
        let (flags, alignment, axes) = (u32_at(4), u32_at(8) as usize, u32_at(12) as usize);
        if flags & !SCALES != 0 {
            return Err(Error::unsupported(format!(
                "`{}` has the layout flags {flags:#x}; only plain rows (flags 0 and 1) are read",
                path.display()
            )));
        }
        if !(1..=4).contains(&axes) || !alignment.is_power_of_two() || alignment > 1 << 16 {
            return Err(fail(format!(
                "{axes} axes, alignment {alignment}; expected 1 to 4, and a power of two"
            )));
        }
        let shape: Vec<usize> = (0..axes).map(|i| size_at(16 + 8 * i)).collect::<Result<_>>()?;
        super::build::check_shape(&shape).map_err(|e| fail(e.to_string()))?;
        let precision = Precision::from_code(u32_at(48) as i32).map_err(|e| fail(e.to_string()))?;
        let Some(each) = precision.size_bytes() else {
            return Err(Error::unsupported(format!(
                "`{}` holds {precision:?}, which is not read here; expected INT8, FP16 or FP32",
                path.display()
            )));
        };
        let (data_bytes, scales_bytes) = (size_at(52)?, size_at(60)?);
        let (group, groups) = (u32_at(68) as usize, u32_at(72) as usize);
        let elements: usize = shape.iter().product();
        if data_bytes != elements * each {
            return Err(fail(format!(
                "{data_bytes} bytes of elements; expected {}",
                elements * each
            )));
        }
        let up = |at: usize| at.checked_next_multiple_of(alignment);
        let place = up(HEADER_BYTES).and_then(|scales| {
            let end = scales.checked_add(scales_bytes)?;
            let data = up(end)?;
            let last = data.checked_add(data_bytes)?;
            (last <= map.len()).then_some((scales, data))
        });
        let Some((scales, data)) = place else {
            return Err(fail(format!(
                "{scales_bytes} bytes of scales and {data_bytes} of elements do not fit a file of {}",
                map.len()
            )));
        };
        let rows = elements / shape.last().copied().unwrap_or(1).max(1);
        let scaled = flags & SCALES != 0 && precision == Precision::Int8;
        if scaled {
            let width = shape.last().copied().unwrap_or(0);
            let fits =
                group > 0 && width.div_ceil(group) == groups && rows.checked_mul(groups * 2) == Some(scales_bytes);
            if !fits {
                return Err(fail(format!(
                    "{scales_bytes} bytes of scales, groups of {group}, {groups} in a row, do not fit {shape:?}"
                )));
            }
        }
        Ok(WeightFile {
            path: path.to_path_buf(),
            precision,
            shape,
            data: (data, data_bytes),
            scales: (scales, if scaled { scales_bytes } else { 0 }),
            group,
            groups,
            map,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub(super) fn precision(&self) -> Precision {
        self.precision
    }

    pub(super) fn data_bytes(&self) -> usize {
        self.data.1
    }

    /// The elements, scaled.
    pub(super) fn read(&self) -> Result<Tensor> {
        let part = |(start, len): (usize, usize)| self.map.get(start..start + len).unwrap_or(&[]);
        let mut values = decode(part(self.data), self.precision)?;
        if self.scales.1 > 0 {
            let scales = decode(part(self.scales), Precision::Fp16)?;
            let width = self.shape.last().copied().unwrap_or(1).max(1);
            for (i, v) in values.iter_mut().enumerate() {
                *v *= scales[i / width * self.groups + i % width / self.group];
            }
        }
        self.map.intact()?;
        Ok(Tensor::from_f32(self.shape.clone(), values)?)
    }
}
