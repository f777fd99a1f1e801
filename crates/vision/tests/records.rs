//! Records of released models beside the image processors of transformers.

use cactus_testkit::picture_noise;
use cactus_vision::processor::{Channels, Grid, Layout, PatchOrder};
use cactus_vision::{ErrorKind, Picture, Processor};
use proptest::prelude::*;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Model {
    record: Processor,
    cases: Vec<Case>,
    plans: Vec<Planned>,
}

#[derive(Deserialize)]
struct Case {
    picture: (u32, u32, u64),
    shape: Vec<usize>,
    grids: Vec<(u32, u32)>,
    digest: String,
    at: Vec<usize>,
    values: Vec<f32>,
    positions: Option<String>,
}

#[derive(Deserialize)]
struct Planned {
    size: (u32, u32),
    plan: Option<Expected>,
}

#[derive(Deserialize)]
struct Expected {
    grids: Vec<(u32, u32)>,
    tokens: u64,
    text: Option<String>,
}

fn models() -> BTreeMap<String, Model> {
    let path = format!("{}/../../golden/pictures/records.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn noise(width: u32, height: u32, seed: u64) -> Picture {
    Picture::new(width, height, picture_noise(width, height, seed)).unwrap()
}

fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash[..8].iter().map(|b| format!("{b:02x}")).collect()
}

fn pairs(grids: &[Grid]) -> Vec<(u32, u32)> {
    grids.iter().map(|grid| (grid.rows, grid.columns)).collect()
}

#[test]
fn process_of_random_pictures_equals_transformers() {
    for (name, model) in models() {
        assert!(model.cases.len() >= 4, "{name}");
        for case in &model.cases {
            let (width, height, seed) = case.picture;
            let made = model.record.process(&noise(width, height, seed)).unwrap();
            let at = format!("{name}, {width} x {height}");
            assert_eq!(made.shape, case.shape, "{at}");
            assert_eq!(pairs(&made.grids), case.grids, "{at}");
            for (&index, &expected) in case.at.iter().zip(&case.values) {
                let found = made.values[index];
                assert!(
                    (found - expected).abs() <= 1e-6,
                    "{at}: value {index} is {found}, expected {expected}"
                );
            }
            // Not only near: the same bits.
            let bytes: Vec<u8> = made.values.iter().flat_map(|v| v.to_le_bytes()).collect();
            assert_eq!(digest(&bytes), case.digest, "{at}");
            if let Some(positions) = &case.positions {
                let bytes: Vec<u8> = made.positions.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
                assert_eq!(&digest(&bytes), positions, "{at}");
            }
        }
    }
}

#[test]
fn plan_of_many_sizes_equals_transformers() {
    for (name, model) in models() {
        for planned in &model.plans {
            let (width, height) = planned.size;
            let at = format!("{name}, {width} x {height}");
            let Some(expected) = &planned.plan else {
                let error = model.record.plan(width, height).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::UnsuitableShape, "{at}");
                continue;
            };
            let plan = model
                .record
                .plan(width, height)
                .unwrap_or_else(|error| panic!("{at}: {error}"));
            let grids: Vec<Grid> = plan.views.iter().map(|view| view.grid).collect();
            assert_eq!(pairs(&grids), expected.grids, "{at}");
            assert_eq!(plan.tokens, expected.tokens, "{at}");
            if let Some(text) = &expected.text {
                let marks = model.record.marks.as_ref().unwrap();
                assert_eq!(&digest(marks.text(&plan).as_bytes()), text, "{at}");
            }
        }
    }
}

#[test]
fn plan_of_usual_sizes_has_the_published_tokens() {
    let models = models();
    let cases: &[(&str, (u32, u32), u64)] = &[
        ("gemma4", (512, 512), 256),
        ("gemma4", (1024, 768), 266),
        ("gemma4", (1920, 1080), 264),
        ("qwen3_vl", (512, 512), 256),
        ("qwen3_vl", (1024, 768), 768),
        ("qwen3_vl", (1920, 1080), 2040),
        ("lfm2_vl", (512, 512), 256),
        ("lfm2_vl", (1024, 768), 1536 + 234),
        ("lfm2_vl", (1920, 1080), 2048 + 252),
        ("smolvlm2_500m", (512, 512), 1088),
        ("smolvlm2_500m", (1024, 768), 832),
        ("smolvlm2_500m", (1920, 1080), 832),
        ("gemma3", (1920, 1080), 256),
        ("gemma3n", (1, 1), 256),
        ("paligemma", (300, 200), 256),
    ];
    for &(name, (width, height), tokens) in cases {
        let plan = models[name].record.plan(width, height).unwrap();
        assert_eq!(plan.tokens, tokens, "{name}, {width} x {height}");
    }
}

#[test]
fn with_tokens_of_trained_budgets_changes_the_plan() {
    let models = models();
    let record = &models["gemma4"].record;
    for (tokens, expected) in [(70, 60..=70), (1120, 1000..=1120)] {
        let plan = record.with_tokens(tokens).unwrap().plan(1024, 768).unwrap();
        assert!(expected.contains(&plan.tokens), "{tokens}: {}", plan.tokens);
    }
    let error = record.with_tokens(100).unwrap_err();
    assert!(
        error.kind() == ErrorKind::InvalidInput && error.to_string().contains("280"),
        "{error}"
    );
    assert!(
        models["qwen3_vl"]
            .record
            .with_tokens(300)
            .unwrap()
            .plan(4000, 3000)
            .unwrap()
            .tokens
            <= 300
    );
    models["gemma3"].record.with_tokens(100).unwrap_err();
}

#[test]
fn record_written_as_json_is_read_back_the_same() {
    for (name, model) in models() {
        let text = serde_json::to_string(&model.record).unwrap();
        assert_eq!(
            serde_json::from_str::<Processor>(&text).unwrap(),
            model.record,
            "{name}"
        );
        let more = text.replacen('{', "{\"sharpen\":1,", 1);
        let error = serde_json::from_str::<Processor>(&more).unwrap_err().to_string();
        assert!(error.contains("unknown field `sharpen`"), "{error}");
    }
}

#[test]
fn check_of_senseless_records_names_the_field() {
    let models = models();
    type Change = fn(&mut serde_json::Value);
    let cases: &[(&str, &str, Change)] = &[
        ("clip", "version", |r| r["version"] = 2.into()),
        ("clip", "patch", |r| r["patch"] = 0.into()),
        ("clip", "merge", |r| r["merge"] = 1_000_000.into()),
        ("clip", "values.scale", |r| r["values"]["scale"] = 0.into()),
        ("clip", "values.mean", |r| r["values"]["mean"][1] = 1e300.into()),
        ("clip", "values.std", |r| r["values"]["std"][2] = 0.into()),
        ("clip", "crop_width", |r| {
            r["size"]["shortest_edge"]["crop_width"] = 225.into()
        }),
        ("clip", "edge", |r| r["size"]["shortest_edge"]["edge"] = u32::MAX.into()),
        ("gemma3", "width", |r| r["size"]["fixed"]["width"] = 55.into()),
        ("gemma4", "tokens", |r| r["size"]["budget"]["tokens"] = 281.into()),
        ("gemma4", "layout", |r| r["layout"] = "planes".into()),
        ("gemma4", "copies", |r| r["layout"]["patches"]["copies"] = 2.into()),
        ("qwen3_vl", "copies", |r| r["layout"]["patches"]["copies"] = 0.into()),
        ("qwen3_vl", "min_pixels", |r| {
            r["size"]["bounds"]["min_pixels"] = 16_777_217.into()
        }),
        ("qwen3_vl", "max_pixels", |r| {
            r["size"]["bounds"]["max_pixels"] = u64::MAX.into()
        }),
        ("lfm2_vl", "tile", |r| r["size"]["tiles"]["tile"] = 500.into()),
        ("lfm2_vl", "min_tiles", |r| r["size"]["tiles"]["min_tiles"] = 11.into()),
        ("lfm2_vl", "max_tokens", |r| {
            r["size"]["tiles"]["max_tokens"] = u32::MAX.into()
        }),
        ("lfm2_vl", "tolerance", |r| {
            r["size"]["tiles"]["tolerance"] = (-1).into()
        }),
        ("smolvlm_2b", "side", |r| r["size"]["long_side"]["side"] = 5000.into()),
    ];
    for (name, field, change) in cases {
        let mut value = serde_json::to_value(&models[*name].record).unwrap();
        change(&mut value);
        let record: Processor = serde_json::from_value(value).unwrap();
        let error = record.plan(10, 10).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRecord, "{name}.{field}");
        assert!(error.to_string().contains(field), "{error}");
    }
}

#[test]
fn process_in_blocks_holds_the_patches_of_a_token_together() {
    let models = models();
    let mut record = models["qwen3_vl"].record.clone();
    let picture = noise(70, 90, 1);
    let blocks = record.process(&picture).unwrap();
    record.layout = Layout::Patches {
        order: PatchOrder::Raster,
        channels: Channels::First,
        copies: 2,
    };
    let raster = record.process(&picture).unwrap();
    let columns = raster.grids[0].columns as usize;
    let numbers = record.patch_numbers();
    assert_eq!(blocks.positions[..4], [[0, 0], [1, 0], [0, 1], [1, 1]]);
    for (index, &[column, row]) in blocks.positions.iter().enumerate() {
        let other = row as usize * columns + column as usize;
        assert_eq!(
            blocks.values[index * numbers..][..numbers],
            raster.values[other * numbers..][..numbers]
        );
    }
}

fn any_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "clip",
        "siglip",
        "gemma3",
        "gemma4",
        "qwen3_vl",
        "lfm2_vl",
        "smolvlm2_500m",
        "smolvlm_2b",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn plan_of_any_size_is_bounded_or_refused(name in any_name(), width in 1..(1u32 << 20), height in 1..(1u32 << 20), thin in 0..3) {
        thread_local! {
            static MODELS: BTreeMap<String, Model> = models();
        }
        let (width, height) = match thin { 0 => (width, height), 1 => (1 + width % 50, height), _ => (width % 5000 + 1, height % 5000 + 1) };
        MODELS.with(|models| {
            let record = &models[name].record;
            match record.plan(width, height) {
                Ok(plan) => {
                    let pixels: u64 = plan.views.iter().map(|v| u64::from(v.width) * u64::from(v.height)).sum();
                    assert!(plan.tokens >= 1 && pixels <= 64 << 20);
                    if name == "gemma4" {
                        assert!(plan.tokens <= 280);
                    }
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::UnsuitableShape),
            }
        });
    }
}
