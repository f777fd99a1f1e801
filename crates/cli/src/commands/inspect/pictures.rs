//! What becomes of a picture before a model sees it, in words.

use anyhow::{Context as _, Result};
use cactus_bundle::VISION_PATH;
use cactus_engine::Bundle;
use cactus_vision::Processor;
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
    let mut lines = vec![format!("{}, {filter}", size(&processor.size))];
    let token = match processor.merge {
        1 => String::new(),
        n => format!(", {n} x {n} of them a token"),
    };
    lines.push(format!(
        "patches of {0} x {0} pixels{token}{1}",
        processor.patch,
        layout(processor.layout)
    ));
    if let Some(marks) = &processor.marks {
        let text = |text: &str| format!("`{}`", text.escape_debug());
        let around = format!("{}{}", marks.start, marks.only);
        lines.push(format!(
            "in a prompt: {} {} {}",
            text(&around),
            text(&marks.token),
            text(&marks.end)
        ));
    }
    if let Some(films) = &processor.films {
        let frames = &films.frames;
        let most = frames.most;
        let number = match frames.rate {
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
            (PatchOrder::Raster, Channels::First) => ", row after row, colors first",
            (PatchOrder::Raster, Channels::Last) => ", row after row, colors last",
            (PatchOrder::Blocks, Channels::First) => ", token after token, colors first",
            (PatchOrder::Blocks, Channels::Last) => ", token after token, colors last",
        },
    }
}
