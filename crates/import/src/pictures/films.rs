//! The same of films: which of their frames such a model sees, and in which size.

use super::pixels;
use super::views::{BUDGETS, MAX_RATIO};
use crate::fields::Fields;
use crate::{Error, Result};
use cactus_models::{FilmMarksDef, FilmsDef, FramesDef, SeesDef};
use cactus_vision::processor::{FilmMarks, Films, Frames, SizeRule, Spread, TimeFormat};
use serde_json::{Map, Value};

/// Whose fields they are.
const OF: &str = "video processor";
/// Tokens of a frame, by the models whose pictures have a budget of them.
const BUDGET: u32 = 70;
/// Most tokens of a frame, or of those that are joined with it, by the models whose films have bounds of pixels.
const MOST_TOKENS: u32 = 768;
/// Most frames, whatever a folder says.
const MOST_FRAMES: u32 = 999;
/// The longer side of a frame, and that of the square it becomes.
const SIDES: [u32; 2] = [4 * 364, 364];

/// What becomes of a film, by the section `video_processor` of what is said of pictures, where there is one.
pub(super) fn record(pictures: &Fields<'_>, sees: &SeesDef, def: &FilmsDef) -> Result<Films> {
    let section = pictures.get("video_processor").and_then(Value::as_object);
    let empty = Map::new();
    // Of a number of tokens or frames those of pictures say nothing.
    let own = Fields {
        of: OF,
        map: section.unwrap_or(&empty),
    };
    as_pictures(pictures, &own)?;
    let whole = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let (joined, unit) = (
        pixels(sees.copies),
        pixels(sees.patch).saturating_mul(pixels(sees.merge)),
    );
    let (frames, size, max_frame_pixels, time) = match def.frames {
        FramesDef::Parts(most) => {
            let frames = Frames {
                rate: None,
                least: 1,
                most: own.count("num_frames", whole(most))?.min(MOST_FRAMES),
                spread: Spread::Starts,
                skip_seconds: 0.0,
            };
            let size = SizeRule::Budget {
                tokens: own.count("max_soft_tokens", BUDGET)?,
                choices: BUDGETS.to_vec(),
            };
            (frames, size, None, TimeFormat::Minutes)
        }
        FramesDef::Nearest { rate, least, most } => {
            let most = own.count("max_frames", whole(most))?.min(MOST_FRAMES);
            let frames = Frames {
                rate: Some(own.number("fps", rate)?),
                least: own.count("min_frames", whole(least))?.min(most),
                most,
                spread: Spread::Nearest,
                skip_seconds: 0.0,
            };
            let of = if section.is_some() { &own } else { pictures };
            let [min_pixels, max_pixels] = of.pixels()?;
            let size = SizeRule::Bounds {
                min_pixels,
                max_pixels,
                max_ratio: MAX_RATIO,
            };
            let tokens = own.count("max_video_tokens", MOST_TOKENS)?;
            let most = u64::from(tokens) * u64::from(unit).pow(2);
            (frames, size, Some(most), TimeFormat::Seconds)
        }
        FramesDef::Below {
            rate,
            most,
            skip_seconds,
        } => {
            let of = if section.is_some() { &own } else { pictures };
            let sampling = of.get("video_sampling").and_then(Value::as_object);
            let sampling = Fields {
                of: OF,
                map: sampling.unwrap_or(&empty),
            };
            let frames = Frames {
                rate: Some(sampling.number("fps", own.number("fps", rate)?)?),
                least: 1,
                most: sampling
                    .count("max_frames", own.count("num_frames", whole(most))?)?
                    .min(MOST_FRAMES),
                spread: Spread::Below,
                skip_seconds,
            };
            let [side, tile] = SIDES;
            let size = SizeRule::Squares {
                side: sampling.longest_edge("video_size", of.longest_edge("size", side)?)?,
                tile: of.longest_edge("max_image_size", tile)?,
            };
            (frames, size, None, TimeFormat::Minutes)
        }
    };
    Ok(Films {
        frames,
        joined,
        size,
        max_frame_pixels,
        time,
        marks: marks(&def.marks),
    })
}

/// Refuses what makes other numbers of frames than of pictures, which one encoder reads.
fn as_pictures(pictures: &Fields<'_>, own: &Fields<'_>) -> Result<()> {
    for key in ["resample", "rescale_factor", "image_mean", "image_std"] {
        // Where nothing is said of either, both have what released models have.
        if let (Some(film), Some(picture)) = (own.get(key), pictures.get(key))
            && film != picture
        {
            let what = format!("`{key}` of the {OF} is {film}, and that of the image processor {picture}");
            return Err(Error::unsupported(what));
        }
    }
    Ok(())
}

fn marks(def: &FilmMarksDef) -> FilmMarks {
    FilmMarks {
        written: def.written.into(),
        token: def.token.into(),
        start: def.start.into(),
        frame: def.frame.into(),
        frame_end: def.frame_end.into(),
        between: def.between.into(),
        end: def.end.into(),
    }
}
