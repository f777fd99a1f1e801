//! How far the rows of pictures are from those of another bundle of the same model:
//! `cargo run --release -p cactus-multimodal --example compare_rows BUNDLE REFERENCE PICTURE…`.
//!
//! It prints the mean and the smallest cosine of rows, and the length of all differences beside the length of all rows of the reference.
#![allow(clippy::print_stdout, reason = "what it measures goes to stdout")]

use cactus_engine::{CancelToken, LoadOptions, Model};
use cactus_multimodal::{Limits, Pictures};
use std::error::Error;
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Rows of a picture, and how wide they are.
fn rows(bundle: &str, picture: &str) -> Result<(Vec<f32>, usize)> {
    let model = Model::load(Path::new(bundle), &LoadOptions::default())?;
    let pictures = Pictures::attach(&model)?.ok_or("the model sees no pictures")?;
    let file = std::fs::read(picture)?;
    let look = pictures.look_at_file(&model, &file, &Limits::default(), &CancelToken::new())?;
    let media = look.shown.media;
    Ok((media.rows().to_vec(), media.rows().len() / media.len()))
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bundle, reference, pictures @ ..] = &arguments[..] else {
        return Err("expected a bundle, a bundle to compare it with, and pictures".into());
    };
    for picture in pictures {
        let ((found, width), (want, wide)) = (rows(bundle, picture)?, rows(reference, picture)?);
        if (found.len(), width) != (want.len(), wide) {
            return Err("the bundles make rows of other sizes; expected the same model".into());
        }
        let pairs = found.chunks(width).zip(want.chunks(width));
        let cosines: Vec<f64> = pairs.map(|(a, b)| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()).collect();
        let mean = cosines.iter().sum::<f64>() / cosines.len() as f64;
        let least = cosines.iter().copied().fold(f64::INFINITY, f64::min);
        let differences: Vec<f32> = found.iter().zip(&want).map(|(a, b)| a - b).collect();
        let far = (dot(&differences, &differences) / dot(&want, &want)).sqrt();
        println!(
            "{picture}: {} rows, cosine {mean:.6} (least {least:.6}), {:.2} % away",
            cosines.len(),
            100.0 * far
        );
    }
    Ok(())
}
