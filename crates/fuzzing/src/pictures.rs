//! Picture files, and the records of models that see.

use cactus_vision::decode::{decode, header};
use cactus_vision::{Alpha, Filter, Limits, Picture, Processor, resize};
use std::path::Path;

fn golden(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/pictures");
    std::fs::read(folder.join(name)).expect("a golden file of pictures")
}

/// What the header says is what is decoded, within the limits, and the picture can be resized.
pub(crate) fn picture_file(data: &[u8]) -> bool {
    let limits = Limits {
        max_pixels: 1 << 18,
        max_side: 2048,
        ..Limits::default()
    };
    let head = header(data, &limits);
    let Ok(picture) = decode(data, &limits, Alpha::White) else {
        return false;
    };
    let head = head.expect("a header that was decoded");
    assert_eq!(
        (head.width, head.height),
        (picture.width(), picture.height()),
        "the header is right"
    );
    assert!(
        u64::from(head.width) * u64::from(head.height) <= limits.max_pixels,
        "the limit holds"
    );
    let small = resize(&picture, 9, 7, Filter::Lanczos).expect("a small picture");
    assert_eq!(small.rgb().len(), 9 * 7 * 3);
    true
}

/// One file of each kind that is read.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    [
        "rgba.png",
        "bits.png",
        "palette_clear.png",
        "wide.png",
        "interlaced.png",
        "animated.png",
        "turned_6.png",
        "smooth.jpg",
        "halved.jpg",
        "progressive.jpg",
        "inks.jpg",
        "turned_7.jpg",
        "exact_alpha.webp",
        "lossy_alpha.webp",
        "animated.webp",
        "key.png",
        "gray_alpha.png",
        "gray.jpg",
        "lossy.webp",
        "exact.webp",
    ]
    .into_iter()
    .map(|name| golden(&format!("files/{name}")))
    .collect()
}

/// Plans of all shapes are refused or bounded. Where few pixels are asked for, they are computed.
pub(crate) fn picture_record(data: &[u8]) -> bool {
    let Ok(record) = Processor::from_json(data) else {
        return false;
    };
    for (width, height) in [(1, 1), (1, 3000), (3000, 1), (640, 480), (1 << 20, 1 << 20)] {
        let Ok(plan) = record.plan(width, height) else {
            continue;
        };
        let pixels: u64 = plan
            .views
            .iter()
            .map(|v| u64::from(v.width) * u64::from(v.height))
            .sum();
        assert!(pixels <= 64 << 20, "a bounded plan");
        if pixels > 1 << 18 || u64::from(width) * u64::from(height) > 1 << 12 {
            continue;
        }
        let rgb = (0..width * height * 3).map(|i| (i * 37) as u8).collect();
        let picture = Picture::new(width, height, rgb).expect("as many bytes as the sides say");
        let made = record.process(&picture).expect("what was planned is computed");
        assert_eq!(
            made.values.len(),
            made.shape.iter().product::<usize>(),
            "the shape is right"
        );
        assert!(made.values.iter().all(|v| v.is_finite()), "finite numbers");
        assert_eq!(made.tokens, plan.tokens);
    }
    film(&record);
    true
}

/// As many frames are seen as are said, and those that few pixels are asked for are computed.
fn film(record: &Processor) {
    let Some(films) = &record.films else {
        return;
    };
    for (count, seconds) in [(0, 0.0), (1, 1e6), (40, 3.0), (1 << 30, 1e-9), (100_000, 4000.0)] {
        let chosen = films.frames.chosen(count, seconds);
        assert!(chosen.len() <= films.frames.most as usize && chosen.is_empty() == (count == 0));
        assert!(
            chosen.is_sorted() && chosen.iter().all(|&i| i < count),
            "frames in order"
        );
        let times: Vec<f64> = chosen.iter().map(|&i| i as f64 * seconds / count as f64).collect();
        let Ok(Some(plan)) = record.plan_film(20, 30, &times, seconds) else {
            continue;
        };
        assert_eq!(plan.tokens, plan.frame.tokens * plan.times.len() as u64);
        let view = &plan.frame.views[0];
        if plan.tokens > 1 << 12 || view.width * view.height > 1 << 16 {
            continue;
        }
        assert!(films.text(&plan).matches(&films.marks.token).count() as u64 >= plan.tokens);
        let frame = Picture::new(20, 30, vec![7; 20 * 30 * 3]).expect("as many bytes as the sides say");
        let joined = vec![&frame; films.joined as usize];
        let made = record
            .process_frames(&plan, &joined)
            .expect("what was planned is computed");
        assert_eq!(
            made.values.len(),
            made.shape.iter().product::<usize>(),
            "the shape is right"
        );
        assert_eq!(made.tokens, plan.frame.tokens);
    }
}

/// The records of the golden file.
pub(crate) fn record_seeds() -> Vec<Vec<u8>> {
    let all: serde_json::Value = serde_json::from_slice(&golden("records.json")).expect("JSON");
    let models = all.as_object().expect("records by name");
    let records = models.values().map(|model| &model["record"]);
    let film = |record: &serde_json::Value, size: serde_json::Value, joined: u32| {
        let mut record = record.clone();
        record["films"] = serde_json::json!({
            "frames": {"rate": 2.0, "least": 2, "most": 9, "spread": "nearest", "skip_seconds": 1.0}, "joined": joined, "size": size,
            "time": "seconds", "marks": {"token": "<v>", "start": "{count} of {length}", "frame": "{time}", "end": "."},
        });
        record
    };
    let films = records.clone().filter_map(|record| {
        let copies = record["layout"].get("patches")?["copies"].as_u64().unwrap_or(1) as u32;
        let unit = record["patch"].as_u64()? * record["merge"].as_u64().unwrap_or(1);
        let size = serde_json::json!({"squares": {"side": 2 * unit, "tile": unit}});
        Some(film(record, size, copies))
    });
    records
        .cloned()
        .chain(films)
        .map(|record| record.to_string().into_bytes())
        .collect()
}
