//! How long the parts of this crate take: `cargo run --release -p cactus-vision --example time_pictures [FILE…]`.
//!
//! Times are medians of nine runs on one thread. With files it says how long each takes to decode.
#![allow(clippy::print_stdout, reason = "what it measures goes to stdout")]

use cactus_vision::{Alpha, Filter, Limits, Picture, Processor, decode, resize};
use std::hint::black_box;
use std::time::Instant;

fn median_ms(mut run: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..9)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[4]
}

fn noise(width: u32, height: u32) -> Picture {
    let rgb = (0..width * height * 3)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    Picture::new(width, height, rgb).expect("as many bytes as the sides say")
}

fn main() {
    let photo = noise(4032, 3024);
    for (filter, width, height) in [
        (Filter::Bilinear, 896, 896),
        (Filter::Bicubic, 298, 224),
        (Filter::Bicubic, 912, 672),
        (Filter::Lanczos, 2048, 1536),
    ] {
        let time = median_ms(|| drop(black_box(resize(&photo, width, height, filter))));
        println!("4032 x 3024 to {width} x {height}, {filter:?}: {time:.1} ms");
    }
    let records = format!("{}/../../golden/pictures/records.json", env!("CARGO_MANIFEST_DIR"));
    let records = std::fs::read(records).expect("the golden records");
    let records: serde_json::Value = serde_json::from_slice(&records).expect("JSON");
    for (name, model) in records.as_object().expect("records by name") {
        let record: Processor = serde_json::from_value(model["record"].clone()).expect("a record");
        let time = median_ms(|| drop(black_box(record.process(&photo))));
        println!("4032 x 3024 by the record of {name}: {time:.1} ms");
    }
    for file in std::env::args().skip(1) {
        let bytes = std::fs::read(&file).expect("a file");
        let picture = decode::decode(&bytes, &Limits::default(), Alpha::White).expect("a picture");
        let time = median_ms(|| drop(black_box(decode::decode(&bytes, &Limits::default(), Alpha::White))));
        println!("{file}, {} x {}: {time:.1} ms", picture.width(), picture.height());
    }
}
