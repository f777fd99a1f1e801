//! The same of a model that writes about pictures, which sees views of them: tiles, and the whole in small.

use super::{films, pixels};
use crate::fields::Fields;
use crate::{Error, Result};
use cactus_models::{MarksDef, PlacesDef, SeesDef, ViewsDef};
use cactus_vision::processor::{Channels, Layout, Marks, PatchOrder, Places, Processor, SizeRule, Stretch, VERSION};
use cactus_vision::{Alpha, Filter};

/// Steps that are known: padding is for pictures that are computed together, and none here is.
const STEPS: [&str; 6] = [
    "do_resize",
    "do_rescale",
    "do_normalize",
    "do_convert_rgb",
    "do_image_splitting",
    "do_pad",
];

/// Numbers of tokens that the models whose pictures have a budget of them were trained with, and the usual one.
pub(super) const BUDGETS: [u32; 5] = [70, 140, 280, 560, 1120];
const BUDGET: u32 = 280;

/// How many times longer than the other a side may be, by the models whose pictures have bounds of pixels.
pub(super) const MAX_RATIO: u32 = 200;

/// The record of a model that sees as `sees` says.
pub(super) fn record(fields: &Fields<'_>, sees: &SeesDef) -> Result<Processor> {
    fields.refuse_other_steps(&STEPS)?;
    let record = Processor {
        version: VERSION,
        // As pictures are opened that are handed over as files.
        alpha: Alpha::White,
        size: match sees.views {
            ViewsDef::LongSide => long_side(fields)?,
            ViewsDef::Tiles => tiles(fields)?,
            ViewsDef::Whole => whole(fields, sees)?,
            ViewsDef::Bounds => bounds(fields)?,
            ViewsDef::Budget => SizeRule::Budget {
                tokens: fields.count("max_soft_tokens", BUDGET)?,
                choices: BUDGETS.to_vec(),
            },
        },
        filter: match sees.views {
            // Released ones are silent.
            ViewsDef::Bounds | ViewsDef::Budget if fields.get("resample").is_none() => Filter::Bicubic,
            _ => fields.filter()?,
        },
        values: match sees.views {
            // The model itself moves numbers up to 1 to where it wants them.
            ViewsDef::Budget if fields.get("do_normalize").is_none() => fields.values_of(false)?,
            _ => fields.values()?,
        },
        patch: pixels(sees.patch),
        merge: pixels(sees.merge),
        layout: Layout::Patches {
            order: PatchOrder::Blocks,
            channels: match sees.channels_last {
                true => Channels::Last,
                false => Channels::First,
            },
            copies: pixels(sees.copies),
        },
        places: sees.places.map(|places| Places {
            side: pixels(sees.table),
            stretch: match places {
                PlacesDef::Nearest => Stretch::Nearest,
                PlacesDef::Smoothed => Stretch::Smoothed,
                PlacesDef::Corners => Stretch::Corners,
            },
        }),
        marks: Some(marks(&sees.marks)),
        films: match &sees.films {
            Some(def) => Some(films::record(fields, sees, def)?),
            None => None,
        },
    };
    fits(fields, sees)?;
    record.check().map_err(|e| Error::malformed(e.to_string()))?;
    Ok(record)
}

/// Whether the image processor says the same of patches as the model.
fn fits(fields: &Fields<'_>, sees: &SeesDef) -> Result<()> {
    for (key, own) in [
        ("encoder_patch_size", sees.patch),
        ("downsample_factor", sees.merge),
        ("patch_size", sees.patch),
        ("merge_size", sees.merge),
        ("pooling_kernel_size", sees.merge),
        ("temporal_patch_size", sees.copies),
    ] {
        let found = fields.count(key, pixels(own))?;
        if found != pixels(own) {
            let what = format!("`{key}` of the image processor is {found}, and the model has {own}");
            return Err(Error::unsupported(what));
        }
    }
    Ok(())
}

fn long_side(fields: &Fields<'_>) -> Result<SizeRule> {
    let tile = fields.longest_edge("max_image_size", 364)?;
    Ok(match fields.step("do_image_splitting")? {
        true => SizeRule::LongSide {
            side: fields.longest_edge("size", 4 * 364)?,
            tile,
        },
        // The only view has the size of a tile.
        false => SizeRule::Fixed {
            width: tile,
            height: tile,
        },
    })
}

/// The size of the table of positions, which the image processor has to name.
fn whole(fields: &Fields<'_>, sees: &SeesDef) -> Result<SizeRule> {
    let side = pixels(sees.table.saturating_mul(sees.patch));
    match fields.sides("size")? {
        Some([width, height]) if [width, height] == [side; 2] => Ok(SizeRule::Fixed { width, height }),
        Some([width, height]) => Err(Error::unsupported(format!(
            "the image processor makes pictures of {width} x {height} pixels, and the model takes {side} x {side}"
        ))),
        None => Err(fields.refuse("size", "a size")),
    }
}

/// Bounds of pixels, which the image processor has to name.
fn bounds(fields: &Fields<'_>) -> Result<SizeRule> {
    let [min_pixels, max_pixels] = fields.pixels()?;
    Ok(SizeRule::Bounds {
        min_pixels,
        max_pixels,
        max_ratio: MAX_RATIO,
    })
}

fn tiles(fields: &Fields<'_>) -> Result<SizeRule> {
    let cuts = fields.step("do_image_splitting")?;
    let count = |key: &str, usual: u32| if cuts { fields.count(key, usual) } else { Ok(1) };
    Ok(SizeRule::Tiles {
        tile: fields.count("tile_size", 512)?,
        min_tiles: count("min_tiles", 2)?,
        max_tiles: count("max_tiles", 10)?,
        min_tokens: fields.count("min_image_tokens", 64)?,
        max_tokens: fields.count("max_image_tokens", 256)?,
        tolerance: fields.number("max_pixels_tolerance", 2.0)?,
        thumbnail: fields.step("use_thumbnail")?,
    })
}

fn marks(def: &MarksDef) -> Marks {
    Marks {
        written: def.written.into(),
        token: def.token.into(),
        start: def.start.into(),
        end: def.end.into(),
        only: def.only.into(),
        tile: def.tile.into(),
        row_end: def.row_end.into(),
        whole: def.whole.into(),
    }
}

impl Fields<'_> {
    /// A number of something, at least one.
    pub(super) fn count(&self, key: &str, usual: u32) -> Result<u32> {
        match self.get(key) {
            None => Ok(usual),
            Some(value) => {
                let count = value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
                count.ok_or_else(|| self.refuse(key, "a number of at least one"))
            }
        }
    }

    /// Fewest and most pixels, under one name or another.
    pub(super) fn pixels(&self) -> Result<[u64; 2]> {
        let of = |edge: &str, old: &str| -> Result<u64> {
            let named = self.get("size").and_then(|size| size.get(edge));
            let found = named.or_else(|| self.get(old)).and_then(serde_json::Value::as_u64);
            found.filter(|n| *n > 0).ok_or_else(|| {
                let expected = "`shortest_edge` and `longest_edge`, the fewest and most pixels";
                self.refuse("size", expected)
            })
        };
        Ok([of("shortest_edge", "min_pixels")?, of("longest_edge", "max_pixels")?])
    }

    /// A field with a `longest_edge` in pixels.
    pub(super) fn longest_edge(&self, key: &str, usual: u32) -> Result<u32> {
        let Some(value) = self.get(key) else { return Ok(usual) };
        let edge = value.get("longest_edge").and_then(serde_json::Value::as_u64);
        let edge = edge.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
        edge.ok_or_else(|| self.refuse(key, "`longest_edge` in pixels"))
    }
}
