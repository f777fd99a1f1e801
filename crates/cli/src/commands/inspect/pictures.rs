//! What becomes of a picture before a model sees it, in words.

use anyhow::{Context as _, Result};
use cactus_bundle::VISION_PATH;
use cactus_engine::Bundle;
use cactus_vision::Processor;
use cactus_vision::decode::Alpha;
use cactus_vision::processor::{Channels, Layout, PatchOrder, SizeRule};

/// The record of a bundle that sees.
pub(super) fn record(bundle: &Bundle) -> Result<Option<Processor>> {
    if !bundle.has_file(VISION_PATH) {
        return Ok(None);
    }
    let read = Processor::from_json(&bundle.file(VISION_PATH)?);
    Ok(Some(read.with_context(|| format!("cannot read `{VISION_PATH}`"))?))
}

/// The record, a line for each step.
pub(super) fn lines(processor: &Processor) -> Vec<String> {
    let filter = format!("{:?}", processor.filter).to_lowercase();
    let mut lines = Vec::new();
    if processor.alpha != Alpha::default() {
        lines.push(format!(
            "transparency: {}",
            format!("{:?}", processor.alpha).to_lowercase()
        ));
    }
    lines.push(format!("{}, {filter}", size(&processor.size)));
    let cactus_vision::processor::Values { scale, mean, std } = processor.values;
    lines.push(format!(
        "numbers: (byte x {scale:.6} - {mean:?}) / {std:?} of red, green and blue"
    ));
    let token = match processor.merge {
        1 => String::new(),
        n => format!(", {n} x {n} of them a token"),
    };
    lines.push(format!(
        "patches of {0} x {0} pixels{token}{1}",
        processor.patch,
        layout(processor.layout)
    ));
    if processor.places.is_some() {
        lines.push("places of patches between those of a table".to_owned());
    }
    if let Some(marks) = &processor.marks {
        let text = |text: &str| format!("`{}`", text.escape_debug());
        let around = format!("{}{}", marks.start, marks.only);
        lines.push(format!(
            "in a prompt: {} {} {}",
            text(&around),
            text(&marks.token),
            text(&marks.end)
        ));
        let of_views = [
            ("a tile", &marks.tile),
            ("a row of tiles", &marks.row_end),
            ("the whole", &marks.whole),
        ];
        let of_views: Vec<String> = of_views
            .into_iter()
            .filter(|(_, mark)| !mark.is_empty())
            .map(|(what, mark)| {
                let side = if what == "a row of tiles" { "behind" } else { "before" };
                format!("{} {side} {what}", text(mark))
            })
            .collect();
        if !of_views.is_empty() {
            lines.push(format!("in a picture of several views: {}", of_views.join(", ")));
        }
    }
    if let Some(films) = &processor.films {
        let frames = &films.frames;
        let most = frames.most;
        let number = match frames.rate {
            Some(1.0) => format!("one frame a second, at most {most}"),
            Some(rate) => format!("{rate} frames a second, at most {most}"),
            None => format!("{most} frames"),
        };
        let joined = match films.joined {
            1 => String::new(),
            n => format!(", {n} of them together"),
        };
        lines.push(format!("of a film {number}{joined}: {}", size(&films.size)));
    }
    lines
}

fn size(rule: &SizeRule) -> String {
    match rule {
        SizeRule::Fixed { width, height } => format!("to {width} x {height} pixels"),
        SizeRule::ShortestEdge {
            edge,
            crop_width,
            crop_height,
        } => format!("the shorter side to {edge} pixels, {crop_width} x {crop_height} of the middle"),
        SizeRule::Budget { tokens, .. } => format!("as large as {tokens} tokens allow"),
        SizeRule::Bounds {
            min_pixels, max_pixels, ..
        } => format!("as it is, within {min_pixels} to {max_pixels} pixels"),
        SizeRule::Tiles {
            tile,
            max_tiles,
            min_tokens,
            max_tokens,
            thumbnail,
            ..
        } => {
            let whole = if *thumbnail { " and the whole" } else { "" };
            format!("{min_tokens} to {max_tokens} tokens, or up to {max_tiles} tiles of {tile} x {tile} pixels{whole}")
        }
        SizeRule::Squares { side, tile } => format!("the longer side to {side} pixels, then to {tile} x {tile}"),
        SizeRule::LongSide { side, tile } => {
            format!("the longer side to {side} pixels, tiles of {tile} x {tile} and the whole")
        }
    }
}

fn layout(layout: Layout) -> &'static str {
    match layout {
        Layout::Planes => ", as planes",
        Layout::Patches { order, channels, .. } => match (order, channels) {
            (PatchOrder::Raster, Channels::First) => " in rows, each color of a patch by itself",
            (PatchOrder::Raster, Channels::Last) => " in rows, the colors of a pixel together",
            (PatchOrder::Blocks, Channels::First) => " ordered by token, each color of a patch by itself",
            (PatchOrder::Blocks, Channels::Last) => " ordered by token, the colors of a pixel together",
        },
    }
}
