//! Drawings of what a model is given of a picture: each view, with the squares of its tokens.

use crate::output;
use anyhow::{Context as _, Result};
use cactus_multimodal::{Picture, Processor};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// Draws the views of `picture` into `folder`, as `NAME.1.png` and so on.
///
/// # Errors
/// A folder or file that cannot be written.
pub(super) fn draw(processor: &Processor, picture: &Picture, folder: &Path, name: &str) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
    let views = processor.views(picture)?;
    for (i, view) in views.iter().enumerate() {
        let file = folder.join(format!("{name}.{}.png", i + 1));
        write(view, processor.unit(), &file).with_context(|| format!("cannot write `{}`", file.display()))?;
    }
    let what = match views.len() {
        1 => "a view".to_owned(),
        count => format!("{count} views"),
    };
    output::note(format!("drawn: {what} in `{}`", folder.display()));
    Ok(())
}

/// A view with a line before each token but the first, so far from what is there that it shows on every picture.
fn write(view: &Picture, side: u32, file: &Path) -> Result<()> {
    let (width, side) = (view.width() as usize, side.max(2) as usize);
    let mut rgb = view.rgb().to_vec();
    for (i, pixel) in rgb.chunks_exact_mut(3).enumerate() {
        let (x, y) = (i % width, i / width);
        if (x > 0 && x.is_multiple_of(side)) || (y > 0 && y.is_multiple_of(side)) {
            pixel.iter_mut().for_each(|byte| *byte = byte.wrapping_add(128));
        }
    }
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(file)?), view.width(), view.height());
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&rgb)?;
    writer.finish()?;
    Ok(())
}
