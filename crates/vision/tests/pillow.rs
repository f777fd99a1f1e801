//! Resizing beside Pillow: a golden file, and Pillow itself where Python has it.
#![allow(clippy::print_stderr, reason = "a skipped test must be seen")]

use cactus_testkit::picture_noise;
use cactus_vision::{Filter, Picture, Region, resize, resize_region};
use proptest::prelude::*;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

fn root() -> String {
    format!("{}/../..", env!("CARGO_MANIFEST_DIR"))
}

/// Width, height, seed, and the size and filter of the result.
#[derive(Debug, Clone, Copy, Deserialize, serde::Serialize)]
struct Case(u32, u32, u64, u32, u32, Filter);

#[derive(Deserialize)]
struct Golden {
    case: Case,
    digest: String,
}

fn noise(width: u32, height: u32, seed: u64) -> Picture {
    Picture::new(width, height, picture_noise(width, height, seed)).unwrap()
}

fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash[..8].iter().map(|b| format!("{b:02x}")).collect()
}

fn resized(Case(width, height, seed, to_width, to_height, filter): Case) -> String {
    digest(
        resize(&noise(width, height, seed), to_width, to_height, filter)
            .unwrap()
            .rgb(),
    )
}

#[test]
fn resize_of_golden_sizes_has_the_bytes_of_pillow() {
    let text = std::fs::read_to_string(format!("{}/golden/pictures/resize.json", root())).unwrap();
    let cases: Vec<Golden> = serde_json::from_str(&text).unwrap();
    assert!(cases.len() >= 60);
    for golden in cases {
        assert_eq!(resized(golden.case), golden.digest, "{:?}", golden.case);
    }
}

/// A Python that has Pillow: the one of the project's environment, or the system's.
fn pillow() -> Option<Child> {
    let root = root();
    let candidates = [
        format!("{root}/.venv/bin/python"),
        format!("{root}/.venv-torch/bin/python"),
        "python3".to_owned(),
    ];
    let has_pillow = |python: &String| {
        let mut command = Command::new(python);
        // Versions before 13 resample in another order where pictures are tall.
        command
            .args(["-c", "import PIL; assert int(PIL.__version__.split('.')[0]) >= 13"])
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let python = candidates.iter().find(|python| has_pillow(python))?;
    let child = Command::new(python)
        .args([format!("{root}/golden/pictures.py").as_str(), "answer"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    Some(child.unwrap())
}

#[test]
fn resize_of_random_sizes_has_the_bytes_of_pillow_that_is_there() {
    let Some(mut child) = pillow() else {
        eprintln!("SKIPPED: no Python with Pillow 13 was found; scripts/setup.sh --ci installs one");
        return;
    };
    let mut ask = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let cases: usize = std::env::var("CACTUS_TEST_SIZES").map_or(150, |cases| cases.parse().unwrap());
    let mut state = 1u64;
    let mut below = |bound: u32| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % bound
    };
    for seed in 0..cases as u64 {
        // Sides of all orders of magnitude, so that both directions and extreme shapes come up.
        let mut side = || {
            let bound = [4, 40, 200, 600][below(4) as usize];
            1 + below(bound)
        };
        let (width, height, to_width, to_height) = (side(), side(), side(), side());
        let filter = [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos][seed as usize % 3];
        let case = Case(width, height, seed, to_width, to_height, filter);
        writeln!(ask, "{}", serde_json::to_string(&case).unwrap()).unwrap();
        let expected = answers.next().unwrap().unwrap();
        assert_eq!(resized(case), expected, "{case:?}");
    }
    drop(ask);
    assert!(child.wait().unwrap().success());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn resize_region_of_any_part_is_cut_out_of_the_whole(
        from in (1..40u32, 1..40u32),
        to in (1..60u32, 1..60u32),
        part in (0..60u32, 0..60u32, 1..60u32, 1..60u32),
        filter in prop_oneof![Just(Filter::Bilinear), Just(Filter::Bicubic), Just(Filter::Lanczos)],
    ) {
        let picture = noise(from.0, from.1, 3);
        let region = Region {
            left: part.0 % to.0,
            top: part.1 % to.1,
            width: 1 + part.2 % (to.0 - part.0 % to.0),
            height: 1 + part.3 % (to.1 - part.1 % to.1),
        };
        let whole = resize(&picture, to.0, to.1, filter).unwrap();
        let cut = resize_region(&picture, to.0, to.1, filter, region).unwrap();
        for y in 0..region.height {
            let begin = (((region.top + y) * to.0 + region.left) * 3) as usize;
            let row = (y * region.width * 3) as usize;
            let bytes = (region.width * 3) as usize;
            prop_assert_eq!(&cut.rgb()[row..row + bytes], &whole.rgb()[begin..begin + bytes]);
        }
    }
}

#[test]
fn resize_to_nothing_and_too_much_is_refused() {
    let picture = noise(3, 5, 1);
    for (width, height) in [(0, 1), (1, 0), (u32::MAX, u32::MAX), (u32::MAX, 1)] {
        resize(&picture, width, height, Filter::Bicubic).unwrap_err();
    }
    let outside = Region {
        left: 2,
        top: 0,
        width: 2,
        height: 1,
    };
    resize_region(&picture, 3, 5, Filter::Bicubic, outside).unwrap_err();
    let overflowing = Region {
        left: u32::MAX,
        top: 0,
        width: 2,
        height: 1,
    };
    resize_region(&picture, 3, 5, Filter::Bicubic, overflowing).unwrap_err();
}
