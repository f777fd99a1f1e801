//! The record and what it may say.

use super::{Films, Marks, Places};
use crate::decode::{Alpha, Limits};
use crate::resize::Filter;
use crate::{Error, ErrorKind, Picture, decode};
use serde::{Deserialize, Serialize};

/// The version of the record that this crate writes, and the only one it reads.
pub const VERSION: u32 = 1;

/// Longest side that a record may ask for, and most pixels in all views of a picture.
pub(super) const MAX_SIDE: u32 = 4096;
pub(super) const MAX_PIXELS: u64 = 64 << 20;
const MAX_TOKENS: u32 = 1 << 16;

/// What happens to a picture, in the order in which it happens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// [`VERSION`].
    pub version: u32,
    /// What becomes of transparency when a file is decoded.
    #[serde(default)]
    pub alpha: Alpha,
    /// Which sizes and views the picture gets.
    pub size: SizeRule,
    /// How it is resized.
    pub filter: Filter,
    /// How bytes become numbers.
    pub values: Values,
    /// Side of a patch in pixels. Where the model takes planes, it says only how many patches there are.
    pub patch: u32,
    /// Patches of a side that become one token.
    #[serde(default = "one")]
    pub merge: u32,
    /// What order the numbers have.
    pub layout: Layout,
    /// Where patches are, for a model that is told by a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<Places>,
    /// What stands in the prompt for the picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marks: Option<Marks>,
    /// What the model sees of a film, if it sees films.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub films: Option<Films>,
}

fn one() -> u32 {
    1
}

/// Which sizes and views a picture gets. `unit` is a patch times `merge`, in pixels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SizeRule {
    /// Always this size, whatever the shape.
    Fixed {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// The shorter side becomes `edge`, and the middle is kept.
    ShortestEdge {
        /// The shorter side in pixels.
        edge: u32,
        /// Width of what is kept, at most `edge`.
        crop_width: u32,
        /// Height of what is kept, at most `edge`.
        crop_height: u32,
    },
    /// As large as a number of tokens allows, up or down: sides are multiples of the unit, rounded down.
    Budget {
        /// Most tokens.
        tokens: u32,
        /// Numbers of tokens that the model was trained with. Empty: any.
        #[serde(default)]
        choices: Vec<u32>,
    },
    /// Sides to the nearest multiples of the unit; scaled only where the pixels are outside of bounds.
    Bounds {
        /// Fewest pixels.
        min_pixels: u64,
        /// Most pixels.
        max_pixels: u64,
        /// How many times longer than the other a side may be.
        max_ratio: u32,
    },
    /// Sides to the nearest multiples of the unit within bounds; a larger picture is cut into a grid of tiles near its shape, with the
    /// picture in small behind them.
    Tiles {
        /// Side of a tile in pixels.
        tile: u32,
        /// Fewest tiles.
        min_tiles: u32,
        /// Most tiles. With one at least and at most, nothing is cut.
        max_tiles: u32,
        /// Fewest tokens of a picture that is not cut, and of the small one.
        min_tokens: u32,
        /// Most tokens of these.
        max_tokens: u32,
        /// How many times as many a picture may have before it is cut.
        tolerance: f64,
        /// Whether the small one is there.
        thumbnail: bool,
    },
    /// The longer side becomes `side`, then the whole becomes a square, whatever its shape.
    Squares {
        /// The longer side in pixels.
        side: u32,
        /// Side of the square in pixels.
        tile: u32,
    },
    /// The longer side becomes `side`, then both are rounded up to whole tiles, with the whole in the size of a tile behind them.
    LongSide {
        /// The longer side in pixels.
        side: u32,
        /// Side of a tile in pixels.
        tile: u32,
    },
}

/// How bytes become numbers: `(byte * scale - mean) / std` for each channel, rounded to `f32` at each step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Values {
    /// Multiplied with the byte.
    pub scale: f64,
    /// Subtracted, for red, green and blue.
    #[serde(default)]
    pub mean: [f64; 3],
    /// Divided by.
    #[serde(default = "ones")]
    pub std: [f64; 3],
}

fn ones() -> [f64; 3] {
    [1.0; 3]
}

/// What order the numbers of a picture have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Layout {
    /// `[views, 3, height, width]`.
    Planes,
    /// `[patches, numbers of a patch]`, those of all views one behind the other. What is left at the right and below of the last whole
    /// patch is left out.
    Patches {
        /// Which patch comes first.
        order: PatchOrder,
        /// Where the channel is in a patch.
        channels: Channels,
        /// How often the picture is in a patch, between channel and row: models of films see a still this many times.
        #[serde(default = "one")]
        copies: u32,
    },
}

/// Which patch of a view comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PatchOrder {
    /// Row after row.
    Raster,
    /// Those of a token together: blocks row after row, and so within a block.
    Blocks,
}

/// Where the channel is in a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channels {
    /// `[3, copies, patch, patch]`, as the weights of a convolution are stored.
    First,
    /// `[patch, patch, 3]`.
    Last,
}

impl Processor {
    /// Pixels of a token's side.
    pub fn unit(&self) -> u32 {
        self.patch * self.merge
    }

    /// The record in `json`, checked.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRecord`] for what is no record, and as [`Processor::check`].
    pub fn from_json(json: &[u8]) -> Result<Self, Error> {
        let read: Self = serde_json::from_slice(json)
            .map_err(|e| Error::new(ErrorKind::InvalidRecord, format!("it is no picture record: {e}")))?;
        read.check()?;
        Ok(read)
    }

    /// The picture of a file, as this record wants it.
    ///
    /// # Errors
    /// As [`decode::decode`].
    pub fn decode(&self, bytes: &[u8], limits: &Limits) -> Result<Picture, Error> {
        decode::decode(bytes, limits, self.alpha)
    }

    /// The same record with another number of tokens for a picture.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] where the model was not trained with it, or its pictures have a size of their own.
    pub fn with_tokens(&self, tokens: u32) -> Result<Self, Error> {
        let mut made = self.clone();
        let pixels = u64::from(tokens) * u64::from(self.unit()).pow(2);
        match &mut made.size {
            SizeRule::Budget { tokens: most, choices } => {
                if !choices.is_empty() && !choices.contains(&tokens) {
                    return Err(Error::new(
                        ErrorKind::InvalidInput,
                        format!("{tokens} tokens for a picture; this model was trained with one of {choices:?}"),
                    ));
                }
                *most = tokens;
            }
            SizeRule::Bounds {
                min_pixels, max_pixels, ..
            } => {
                *max_pixels = pixels;
                *min_pixels = pixels.min(*min_pixels);
            }
            SizeRule::Tiles {
                min_tokens, max_tokens, ..
            } => {
                *max_tokens = tokens;
                *min_tokens = tokens.min(*min_tokens);
            }
            SizeRule::Fixed { .. }
            | SizeRule::ShortestEdge { .. }
            | SizeRule::Squares { .. }
            | SizeRule::LongSide { .. } => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "this model's pictures have one size; leave the number of tokens out",
                ));
            }
        }
        made.check()?;
        Ok(made)
    }

    /// Compares every field with what can be computed without overflow and in bounded memory: bundles come from anywhere.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRecord`], naming the field.
    pub fn check(&self) -> Result<(), Error> {
        if self.version != VERSION {
            return Err(Error::new(
                ErrorKind::InvalidRecord,
                format!(
                    "the picture record has version {}; this version of Cactus reads {VERSION}; convert the model again",
                    self.version
                ),
            ));
        }
        range("patch", self.patch, 1, 512)?;
        range("merge", self.merge, 1, 16)?;
        let finite = |v: f64| v.is_finite() && v.abs() < 1e6;
        let Values { scale, mean, std } = &self.values;
        if !(finite(*scale) && *scale > 0.0) {
            return Err(refuse("values.scale", scale, "a positive number"));
        }
        if let Some(mean) = mean.iter().find(|v| !finite(**v)) {
            return Err(refuse("values.mean", mean, "numbers below a million"));
        }
        if let Some(std) = std.iter().find(|v| !(finite(**v) && **v >= 1e-6)) {
            return Err(refuse("values.std", std, "positive numbers of at least 1e-6"));
        }
        self.check_size("size", &self.size)?;
        if let Some(films) = &self.films {
            films.check(self)?;
        }
        if let Some(places) = &self.places {
            places.check()?;
        }
        if let Some(marks) = &self.marks {
            marks.check()?;
        }
        match self.layout {
            Layout::Planes
                if matches!(
                    self.size,
                    SizeRule::Budget { .. } | SizeRule::Bounds { .. } | SizeRule::Tiles { .. }
                ) =>
            {
                return Err(refuse(
                    "layout",
                    "planes",
                    "patches, because the views have several sizes",
                ));
            }
            Layout::Planes => {}
            Layout::Patches { channels, copies, .. } => {
                range("layout.patches.copies", copies, 1, 16)?;
                if copies > 1 && channels == Channels::Last {
                    return Err(refuse(
                        "layout.patches.copies",
                        copies,
                        "1 where the channels come last",
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks a rule that stands in the field `at`.
    pub(super) fn check_size(&self, at: &str, size: &SizeRule) -> Result<(), Error> {
        let unit = self.unit();
        let at = |field: &str| format!("{at}.{field}");
        let side = |field: &str, value: u32| range(&at(field), value, unit, MAX_SIDE);
        match size {
            SizeRule::Fixed { width, height } => {
                side("fixed.width", *width)?;
                side("fixed.height", *height)?;
            }
            SizeRule::ShortestEdge {
                edge,
                crop_width,
                crop_height,
            } => {
                side("shortest_edge.edge", *edge)?;
                range(&at("shortest_edge.crop_width"), *crop_width, unit, *edge)?;
                range(&at("shortest_edge.crop_height"), *crop_height, unit, *edge)?;
            }
            SizeRule::Budget { tokens, choices } => {
                range(&at("budget.tokens"), *tokens, 1, MAX_TOKENS)?;
                self.pixels(&at("budget.tokens"), *tokens)?;
                if !choices.is_empty() && !choices.contains(tokens) {
                    return Err(refuse(&at("budget.tokens"), tokens, &format!("one of {choices:?}")));
                }
            }
            SizeRule::Bounds {
                min_pixels,
                max_pixels,
                max_ratio,
            } => {
                range(
                    &at("bounds.max_pixels"),
                    *max_pixels,
                    u64::from(unit).pow(2),
                    MAX_PIXELS,
                )?;
                range(&at("bounds.min_pixels"), *min_pixels, 1, *max_pixels)?;
                range(&at("bounds.max_ratio"), *max_ratio, 1, 1 << 14)?;
            }
            SizeRule::Tiles {
                tile,
                min_tiles,
                max_tiles,
                min_tokens,
                max_tokens,
                tolerance,
                ..
            } => {
                side("tiles.tile", *tile)?;
                if !tile.is_multiple_of(unit) {
                    return Err(refuse(&at("tiles.tile"), tile, &format!("a multiple of {unit}")));
                }
                range(&at("tiles.max_tiles"), *max_tiles, 1, 64)?;
                range(&at("tiles.min_tiles"), *min_tiles, 1, *max_tiles)?;
                range(&at("tiles.max_tokens"), *max_tokens, 1, MAX_TOKENS)?;
                range(&at("tiles.min_tokens"), *min_tokens, 1, *max_tokens)?;
                self.pixels(&at("tiles.max_tokens"), *max_tokens)?;
                if !(0.0..=1e6).contains(tolerance) {
                    return Err(refuse(&at("tiles.tolerance"), tolerance, "from 0 to 1e6"));
                }
            }
            SizeRule::LongSide { side: long, tile } => {
                side("long_side.side", *long)?;
                side("long_side.tile", *tile)?;
            }
            SizeRule::Squares { side: long, tile } => {
                side("squares.side", *long)?;
                side("squares.tile", *tile)?;
            }
        }
        Ok(())
    }

    fn pixels(&self, field: &str, tokens: u32) -> Result<(), Error> {
        let pixels = u64::from(tokens) * u64::from(self.unit()).pow(2);
        if pixels > MAX_PIXELS {
            return Err(refuse(
                field,
                tokens,
                &format!("few enough that the picture has at most {MAX_PIXELS} pixels"),
            ));
        }
        Ok(())
    }
}

pub(super) fn range<T: PartialOrd + Copy + std::fmt::Display>(
    field: &str,
    value: T,
    low: T,
    high: T,
) -> Result<(), Error> {
    if (low..=high).contains(&value) {
        Ok(())
    } else {
        Err(refuse(field, value, &format!("from {low} to {high}")))
    }
}

pub(super) fn refuse(field: &str, found: impl std::fmt::Display, expected: &str) -> Error {
    Error::new(
        ErrorKind::InvalidRecord,
        format!("the picture record's {field} is {found}; expected {expected}"),
    )
}
