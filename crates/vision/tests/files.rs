//! Files of every kind beside Pillow, limits, what is refused, and damage.

use cactus_vision::decode::{Format, decode, header};
use cactus_vision::{Alpha, ErrorKind, Limits};
use proptest::prelude::*;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Pixels in hexadecimal, or their digest where they must be met exactly.
#[derive(Deserialize)]
struct Expected {
    size: (u32, u32),
    drop: String,
    white: Option<String>,
}

fn golden(file: &str) -> Vec<u8> {
    let path = format!("{}/../../golden/pictures/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn files() -> Vec<(String, Vec<u8>, Expected)> {
    let all: BTreeMap<String, Expected> = serde_json::from_slice(&golden("files.json")).unwrap();
    all.into_iter()
        .map(|(name, expected)| {
            let bytes = golden(&format!("files/{name}"));
            (name, bytes, expected)
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..][..2], 16).unwrap())
        .collect()
}

#[test]
fn decode_of_every_kind_equals_pillow() {
    for (name, bytes, expected) in files() {
        for (alpha, wanted) in [
            (Alpha::Drop, &expected.drop),
            (Alpha::White, expected.white.as_ref().unwrap_or(&expected.drop)),
        ] {
            let picture = decode(&bytes, &Limits::default(), alpha).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!((picture.width(), picture.height()), expected.size, "{name}");
            let head = header(&bytes, &Limits::default()).unwrap();
            assert_eq!((head.width, head.height), expected.size, "{name}");
            if wanted.len() == 16 {
                assert_eq!(&hex(&Sha256::digest(picture.rgb())[..8]), wanted, "{name}, {alpha:?}");
                continue;
            }
            // Decoders with loss may differ by rounding, and where chroma has half the pixels, by how it is spread.
            let most = if name == "halved.jpg" || name == "progressive.jpg" || name.starts_with("lossy") {
                24
            } else {
                4
            };
            let differences: Vec<u8> = picture
                .rgb()
                .iter()
                .zip(unhex(wanted))
                .map(|(a, b)| a.abs_diff(b))
                .collect();
            let worst = *differences.iter().max().unwrap();
            let mean = differences.iter().map(|&d| f64::from(d)).sum::<f64>() / differences.len() as f64;
            assert!(
                worst <= most && mean < 1.5,
                "{name}, {alpha:?}: differs by {worst}, {mean:.2} on average"
            );
        }
    }
}

#[test]
fn header_of_each_format_names_it() {
    for (file, format) in [
        ("rgb.png", Format::Png),
        ("inks.jpg", Format::Jpeg),
        ("lossy.webp", Format::WebP),
    ] {
        assert_eq!(
            header(&golden(&format!("files/{file}")), &Limits::default())
                .unwrap()
                .format,
            format
        );
    }
}

#[test]
fn decode_beyond_limits_is_refused_before_pixels() {
    for file in ["rgb.png", "smooth.jpg", "exact.webp", "lossy.webp"] {
        let bytes = golden(&format!("files/{file}"));
        let usual = Limits::default();
        let cases = [
            Limits {
                max_bytes: bytes.len() - 1,
                ..usual
            },
            Limits {
                max_pixels: 37 * 23 - 1,
                ..usual
            },
            Limits { max_side: 36, ..usual },
        ];
        for limits in cases {
            let error = decode(&bytes, &limits, Alpha::White).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooLarge, "{file}: {error}");
        }
        let exact = Limits {
            max_bytes: bytes.len(),
            max_pixels: 37 * 23,
            max_side: 37,
        };
        decode(&bytes, &exact, Alpha::White).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}

#[test]
fn decode_of_a_header_that_claims_too_much_is_refused() {
    // The width of the PNG: bytes 16 to 20, before their checksum is right again.
    let mut png = golden("files/rgb.png");
    png[16..20].copy_from_slice(&60_000u32.to_be_bytes());
    let crc = crc32(&png[12..29]);
    png[29..33].copy_from_slice(&crc.to_be_bytes());
    let error = decode(&png, &Limits::default(), Alpha::White).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    // A lossy frame larger than the WebP's own header says, behind a header of the extended kind.
    let simple = golden("files/lossy.webp");
    let chunk = simple.windows(4).position(|w| w == b"VP8 ").unwrap();
    let mut frame = simple[chunk..].to_vec();
    frame[14..16].copy_from_slice(&16_000u16.to_le_bytes());
    let mut extended = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0".to_vec();
    extended.extend([36, 0, 0, 22, 0, 0]);
    extended.extend(frame);
    let length = (extended.len() - 8) as u32;
    extended[4..8].copy_from_slice(&length.to_le_bytes());
    let error = decode(&extended, &Limits::default(), Alpha::White).unwrap_err();
    assert!(error.to_string().contains("16000"), "{error}");
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1))
        })
    })
}

#[test]
fn decode_of_other_files_names_them() {
    let cases: &[(&[u8], ErrorKind, &str)] = &[
        (b"", ErrorKind::Empty, "no bytes"),
        (
            b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
            ErrorKind::UnsupportedFormat,
            "HEIC picture, as iPhones make them",
        ),
        (b"\0\0\0\x18ftypavif\0\0\0\0", ErrorKind::UnsupportedFormat, "AVIF"),
        (b"\0\0\0\x18ftypisom\0\0\0\0", ErrorKind::UnsupportedFormat, "video"),
        (b"GIF89a", ErrorKind::UnsupportedFormat, "GIF"),
        (b"II*\0", ErrorKind::UnsupportedFormat, "TIFF"),
        (b"hello, world", ErrorKind::UnknownFormat, "68 65 6c"),
        (b"\x89PNG\r\n\x1a\n", ErrorKind::Damaged, "PNG"),
        (b"\xff\xd8\xff", ErrorKind::Damaged, "JPEG"),
        (b"RIFF\x04\0\0\0WEBP", ErrorKind::Damaged, "WebP"),
    ];
    for (bytes, kind, named) in cases {
        let error = decode(bytes, &Limits::default(), Alpha::White).unwrap_err();
        assert_eq!(error.kind(), *kind, "{error}");
        assert!(error.to_string().contains(named), "{error}");
    }
}

/// Small limits, so that damage to the sides costs little.
const SMALL: Limits = Limits {
    max_bytes: 1 << 20,
    max_pixels: 1 << 20,
    max_side: 4096,
};

#[test]
fn decode_of_files_cut_anywhere_is_an_error_or_the_whole_picture() {
    for (name, bytes, expected) in files() {
        for cut in 0..bytes.len() {
            match decode(&bytes[..cut], &SMALL, Alpha::White) {
                // What lies behind the pixels may be missing.
                Ok(picture) => {
                    let whole = decode(&bytes, &SMALL, Alpha::White).unwrap();
                    // Turning is told behind the pixels in some files.
                    assert!(
                        picture == whole || name.starts_with("turned"),
                        "{name} cut to {cut} bytes"
                    );
                    assert_eq!(picture.rgb().len() as u32, expected.size.0 * expected.size.1 * 3);
                }
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn decode_of_damaged_files_gives_a_picture_or_an_error(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((prop_oneof![0..64usize, 0..2000usize], prop_oneof![Just(0u8), Just(255), any::<u8>()]), 1..6),
    ) {
        thread_local! {
            static FILES: Vec<(String, Vec<u8>, Expected)> = files();
        }
        FILES.with(|files| {
            let mut bytes = files[which.index(files.len())].1.clone();
            for (at, value) in changes {
                let length = bytes.len();
                bytes[at % length] = value;
            }
            if let Ok(picture) = decode(&bytes, &SMALL, Alpha::White) {
                assert_eq!(picture.rgb().len(), picture.width() as usize * picture.height() as usize * 3);
                let head = header(&bytes, &SMALL).unwrap();
                assert_eq!((head.width, head.height), (picture.width(), picture.height()));
            }
        });
    }
}
