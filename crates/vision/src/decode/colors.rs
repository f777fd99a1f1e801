//! Samples of any kind to RGB: the table of the module above.

use super::Alpha;

/// What the samples of a pixel are, 8 bits each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Samples {
    Gray,
    GrayAlpha,
    Rgb,
    Rgba,
    /// Inks as amounts left white: 255 is no ink.
    InverseCmyk,
    /// Inks as amounts: 0 is no ink.
    Cmyk,
}

/// RGB of all pixels.
pub(super) fn rgb(samples: Vec<u8>, kind: Samples, alpha: Alpha) -> Vec<u8> {
    match kind {
        Samples::Rgb => samples,
        Samples::Gray => samples.iter().flat_map(|&v| [v; 3]).collect(),
        Samples::GrayAlpha => each::<2>(&samples, |[v, a]| [over_white(v, a, alpha); 3]),
        Samples::Rgba => each::<4>(&samples, |[r, g, b, a]| [r, g, b].map(|v| over_white(v, a, alpha))),
        Samples::InverseCmyk => each::<4>(&samples, inks),
        Samples::Cmyk => each::<4>(&samples, |pixel| inks(pixel.map(|v| 255 - v))),
    }
}

fn each<const N: usize>(samples: &[u8], pixel: impl Fn([u8; N]) -> [u8; 3]) -> Vec<u8> {
    samples.as_chunks::<N>().0.iter().flat_map(|&s| pixel(s)).collect()
}

/// `value` at opacity `a` over white, to the nearest.
fn over_white(value: u8, a: u8, alpha: Alpha) -> u8 {
    match alpha {
        Alpha::Drop => value,
        Alpha::White => {
            let (value, a) = (u32::from(value), u32::from(a));
            ((value * a + 255 * (255 - a) + 127) / 255) as u8
        }
    }
}

/// Inks left white, as light.
fn inks([c, m, y, k]: [u8; 4]) -> [u8; 3] {
    [c, m, y].map(|v| {
        // What ink takes of the light that black leaves, to the nearest.
        let taken = (u32::from(255 - v) * u32::from(k) + 127) / 255;
        k - taken as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rgb_of_each_kind_is_as_the_table_says() {
        use Alpha::{Drop, White};
        let cases: &[(Samples, Alpha, &[u8], [u8; 3])] = &[
            (Samples::Gray, White, &[7], [7; 3]),
            (Samples::Rgb, White, &[1, 2, 3], [1, 2, 3]),
            (Samples::GrayAlpha, White, &[10, 255], [10; 3]),
            (Samples::GrayAlpha, White, &[10, 0], [255; 3]),
            (Samples::GrayAlpha, Drop, &[10, 0], [10; 3]),
            // 100 * 51 / 255 + 204 = 224.
            (Samples::Rgba, White, &[100, 0, 255, 51], [224, 204, 255]),
            (Samples::Rgba, Drop, &[100, 0, 255, 51], [100, 0, 255]),
            (Samples::InverseCmyk, White, &[255, 128, 0, 255], [255, 128, 0]),
            (Samples::InverseCmyk, White, &[255, 128, 0, 0], [0, 0, 0]),
            (Samples::Cmyk, White, &[0, 127, 255, 0], [255, 128, 0]),
        ];
        for (kind, alpha, samples, expected) in cases {
            assert_eq!(
                rgb(samples.to_vec(), *kind, *alpha),
                expected,
                "{kind:?} {alpha:?} {samples:?}"
            );
        }
    }
}
