//! Sizes, tiles, patches and tokens of a picture, from its sides alone.

use super::record::MAX_PIXELS;
use super::{Processor, SizeRule};
use crate::resize::Region;
use crate::{Error, ErrorKind};

/// Largest side of a picture that is planned for: larger than any that is decoded by default.
const MAX_SOURCE_SIDE: u32 = 1 << 20;
/// Largest longer side after the first step of [`SizeRule::LongSide`].
const LONG_SIDE_LIMIT: f64 = 4096.0;
/// Frames of a picture.
const ONE_FRAME: [u64; 2] = [1, 1];

/// What becomes of a picture of given sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Width of the picture in pixels.
    pub width: u32,
    /// Height of the picture in pixels.
    pub height: u32,
    /// What the model sees, in its order.
    pub views: Vec<View>,
    /// Rows and columns of tiles, where the picture is cut.
    pub tiles: Option<Grid>,
    /// Tokens of all views.
    pub tokens: u64,
    /// Whole pictures on the way: each is made of the one before, the first of the picture.
    pub(super) stages: Vec<(u32, u32)>,
}

/// A part or the whole of a picture, as the model sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// What it is.
    pub role: Role,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Its patches.
    pub grid: Grid,
    /// Its tokens.
    pub tokens: u64,
    /// Size of the whole of which it is the region at `left` and `top`. The whole is made of the last stage.
    pub(super) whole: (u32, u32),
    pub(super) left: u32,
    pub(super) top: u32,
}

/// Rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Rows.
    pub rows: u32,
    /// Columns.
    pub columns: u32,
}

/// What a view shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The picture, and there is no other view.
    Only,
    /// A tile, counted from 0.
    Tile {
        /// Its row.
        row: u32,
        /// Its column.
        column: u32,
    },
    /// The whole picture in small, behind its tiles.
    Whole,
}

impl View {
    pub(super) fn region(&self) -> Region {
        Region {
            left: self.left,
            top: self.top,
            width: self.width,
            height: self.height,
        }
    }
}

impl Processor {
    /// What becomes of a picture of `width` x `height` pixels. Nothing is decoded or computed for it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRecord`] as [`Processor::check`]; [`ErrorKind::UnsuitableShape`] where the rule has no size for such a
    /// picture.
    pub fn plan(&self, width: u32, height: u32) -> Result<Plan, Error> {
        self.check()?;
        self.planned(&self.size, width, height, ONE_FRAME)
    }

    /// The same by another rule, of a frame of a film of so many frames: as they are, and as they are joined. The record is checked.
    pub(super) fn planned(&self, size: &SizeRule, width: u32, height: u32, frames: [u64; 2]) -> Result<Plan, Error> {
        if !(1..=MAX_SOURCE_SIDE).contains(&width) || !(1..=MAX_SOURCE_SIDE).contains(&height) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("a picture of {width} x {height} pixels; expected sides from 1 to {MAX_SOURCE_SIDE}"),
            ));
        }
        let mut plan = Plan {
            width,
            height,
            views: Vec::new(),
            tiles: None,
            tokens: 0,
            stages: Vec::new(),
        };
        match *size {
            SizeRule::Fixed { width, height } => self.only(&mut plan, width, height),
            SizeRule::Squares { side, tile } => {
                plan.stages = vec![long_side(width, height, side)];
                self.only(&mut plan, tile, tile);
            }
            SizeRule::ShortestEdge {
                edge,
                crop_width,
                crop_height,
            } => {
                let (wide, high) = shortest_edge(width, height, edge);
                let view = self.view(Role::Only, (wide, high), (crop_width, crop_height));
                plan.views.push(View {
                    left: (wide - crop_width) / 2,
                    top: (high - crop_height) / 2,
                    ..view
                });
            }
            SizeRule::Budget { tokens, .. } => {
                let (wide, high) = budget(width, height, self.unit(), tokens)?;
                self.only(&mut plan, wide, high);
            }
            SizeRule::Bounds {
                min_pixels,
                max_pixels,
                max_ratio,
            } => {
                if f64::from(width.max(height)) / f64::from(width.min(height)) > f64::from(max_ratio) {
                    return Err(shape(format!(
                        "a picture of {width} x {height} pixels has one side more than {max_ratio} times the other; cut it"
                    )));
                }
                let (wide, high) = bounded(width, height, self.unit(), 0, [min_pixels, max_pixels], frames);
                self.only(&mut plan, wide, high);
            }
            SizeRule::Tiles { .. } => self.tiled(&mut plan, size),
            SizeRule::LongSide { side, tile } => self.long_side(&mut plan, side, tile),
        }
        let sides = plan
            .views
            .iter()
            .map(|view| (view.width, view.height))
            .chain(plan.stages.iter().copied());
        let pixels: u64 = sides.map(|(w, h)| u64::from(w) * u64::from(h)).sum();
        if pixels > MAX_PIXELS {
            return Err(shape(format!(
                "a picture of {width} x {height} pixels would be given to the model as {pixels} pixels, and at most {MAX_PIXELS} are \
                 computed; cut it"
            )));
        }
        plan.tokens = plan.views.iter().map(|view| view.tokens).sum();
        Ok(plan)
    }

    /// A view of `size` from the top left of a whole.
    fn view(&self, role: Role, whole: (u32, u32), (width, height): (u32, u32)) -> View {
        let grid = Grid {
            rows: height / self.patch,
            columns: width / self.patch,
        };
        View {
            role,
            width,
            height,
            grid,
            tokens: u64::from(grid.rows / self.merge) * u64::from(grid.columns / self.merge),
            whole,
            left: 0,
            top: 0,
        }
    }

    fn only(&self, plan: &mut Plan, width: u32, height: u32) {
        plan.views.push(self.view(Role::Only, (width, height), (width, height)));
    }

    /// A grid of square tiles that fill `grid.columns * tile` x `grid.rows * tile`.
    fn cut(&self, plan: &mut Plan, grid: Grid, tile: u32) {
        let whole = (grid.columns * tile, grid.rows * tile);
        plan.tiles = Some(grid);
        for row in 0..grid.rows {
            for column in 0..grid.columns {
                plan.views.push(View {
                    left: column * tile,
                    top: row * tile,
                    ..self.view(Role::Tile { row, column }, whole, (tile, tile))
                });
            }
        }
    }

    fn tiled(&self, plan: &mut Plan, size: &SizeRule) {
        let SizeRule::Tiles {
            tile,
            min_tiles,
            max_tiles,
            min_tokens,
            max_tokens,
            tolerance,
            thumbnail,
        } = *size
        else {
            return;
        };
        let (width, height, unit) = (plan.width, plan.height, self.unit());
        let area = |tokens: u32| u64::from(tokens) * u64::from(unit).pow(2);
        let most = area(max_tokens);
        let (wide, high) = bounded(width, height, unit, unit, [area(min_tokens), most], ONE_FRAME);
        // As large a picture as the sides to the nearest unit, of which a patch is the least.
        let near = |side: u32| u64::from(nearest(side, unit).max(self.patch));
        let large = (near(width) * near(height)) as f64 > most as f64 * tolerance;
        if !large || (min_tiles, max_tiles) == (1, 1) {
            return self.only(plan, wide, high);
        }
        let grid = nearest_grid(width, height, tile, min_tiles, max_tiles);
        if grid.rows * grid.columns == 1 {
            return self.only(plan, tile, tile);
        }
        self.cut(plan, grid, tile);
        if thumbnail {
            plan.views.push(self.view(Role::Whole, (wide, high), (wide, high)));
        }
    }

    fn long_side(&self, plan: &mut Plan, side: u32, tile: u32) {
        let first = long_side(plan.width, plan.height, side);
        let (wide, high) = whole_tiles(first, tile);
        plan.stages = vec![first, (wide, high)];
        let grid = Grid {
            rows: high / tile,
            columns: wide / tile,
        };
        if grid.rows == 1 && grid.columns == 1 {
            return self.only(plan, wide, high);
        }
        self.cut(plan, grid, tile);
        plan.views.push(self.view(Role::Whole, (tile, tile), (tile, tile)));
    }
}

fn shape(message: String) -> Error {
    Error::new(ErrorKind::UnsuitableShape, message)
}

/// Sides whose shorter one is `edge`. The longer is rounded down.
fn shortest_edge(width: u32, height: u32, edge: u32) -> (u32, u32) {
    let long = |long: u32, short: u32| ((u64::from(edge) * u64::from(long)) as f64 / f64::from(short)) as u32;
    if width <= height {
        (edge, long(height, width).max(edge))
    } else {
        (long(width, height).max(edge), edge)
    }
}

/// The largest multiples of `unit` near the shape that have at most `tokens` units.
fn budget(width: u32, height: u32, unit: u32, tokens: u32) -> Result<(u32, u32), Error> {
    let most = u64::from(tokens) * u64::from(unit).pow(2);
    let factor = (most as f64 / (u64::from(width) * u64::from(height)) as f64).sqrt();
    let fill = |side: u32| (factor * f64::from(side) / f64::from(unit)).floor() as u64;
    // Where one side vanishes it becomes one unit, and the other as many as it is longer.
    let thin = |long: u32, short: u32| u64::from(long / short).min(u64::from(tokens));
    let (columns, rows) = match (fill(width), fill(height)) {
        (0, 0) => {
            return Err(shape(format!(
                "{tokens} tokens are too few for a picture of {width} x {height} pixels; allow more"
            )));
        }
        (columns, 0) if columns > 0 => (thin(width, height), 1),
        (0, _) => (1, thin(height, width)),
        both => both,
    };
    if rows * columns > u64::from(tokens) {
        return Err(shape(format!(
            "a picture of {width} x {height} pixels would take {} tokens, and {tokens} are allowed; cut it",
            rows * columns
        )));
    }
    // At most `tokens` units, which the record's check bounds.
    Ok((columns as u32 * unit, rows as u32 * unit))
}

/// To the nearest multiple of `unit`, halves to the even one.
fn nearest(side: u32, unit: u32) -> u32 {
    (f64::from(side) / f64::from(unit)).round_ties_even() as u32 * unit
}

/// Sides to the nearest multiples of `unit`, but at least `least`; scaled where so many frames of them, as they are and as they are joined, have
/// too few or too many pixels.
fn bounded(
    width: u32,
    height: u32,
    unit: u32,
    least: u32,
    [min_pixels, max_pixels]: [u64; 2],
    [frames, joined]: [u64; 2],
) -> (u32, u32) {
    let (wide, high) = (nearest(width, unit).max(least), nearest(height, unit).max(least));
    let pixels = u64::from(wide) * u64::from(high) * joined;
    let source = (u64::from(width) * u64::from(height) * frames) as f64;
    let units = |count: f64| (count as u32).saturating_mul(unit);
    let u = f64::from(unit);
    if pixels > max_pixels {
        let beta = (source / max_pixels as f64).sqrt();
        let down = |side: u32| units((f64::from(side) / beta / u).floor()).max(unit);
        (down(width), down(height))
    } else if pixels < min_pixels {
        let beta = (min_pixels as f64 / source).sqrt();
        let up = |side: u32| units((f64::from(side) * beta / u).ceil());
        (up(width), up(height))
    } else {
        (wide, high)
    }
}

/// The grid whose shape is nearest. Of equally near ones, a larger one counts where the picture fills more than half of it.
fn nearest_grid(width: u32, height: u32, tile: u32, min_tiles: u32, max_tiles: u32) -> Grid {
    let aspect = f64::from(width) / f64::from(height);
    let area = (u64::from(width) * u64::from(height)) as f64;
    let mut grids: Vec<Grid> = (1..=max_tiles)
        .flat_map(|columns| (1..=max_tiles / columns).map(move |rows| Grid { rows, columns }))
        .filter(|grid| grid.rows * grid.columns >= min_tiles)
        .collect();
    grids.sort_by_key(|grid| grid.rows * grid.columns);
    let mut best = Grid { rows: 1, columns: 1 };
    let mut least = f64::INFINITY;
    for grid in grids {
        let difference = (aspect - f64::from(grid.columns) / f64::from(grid.rows)).abs();
        let filled = u64::from(tile).pow(2) * u64::from(grid.rows * grid.columns);
        if difference < least || (difference == least && area > 0.5 * filled as f64) {
            best = grid;
            least = difference;
        }
    }
    best
}

/// Sides whose longer one is `side`; the other is rounded down and made even by one more.
fn long_side(width: u32, height: u32, side: u32) -> (u32, u32) {
    let aspect = f64::from(width) / f64::from(height);
    let even = |v: f64| {
        let v = v as u32;
        (v + v % 2).max(1)
    };
    let (wide, high) = if width >= height {
        (side, even(f64::from(side) / aspect))
    } else {
        (even(f64::from(side) * aspect), side)
    };
    let aspect = f64::from(wide) / f64::from(high);
    let limit = LONG_SIDE_LIMIT;
    if wide >= high && f64::from(wide) > limit {
        (limit as u32, ((limit / aspect) as u32).max(1))
    } else if high > wide && f64::from(high) > limit {
        (((limit * aspect) as u32).max(1), limit as u32)
    } else {
        (wide, high)
    }
}

/// The longer side up to whole tiles, the other after it by the shape, and then up as well.
fn whole_tiles((width, height): (u32, u32), tile: u32) -> (u32, u32) {
    let aspect = f64::from(width) / f64::from(height);
    let up = |side: u32| side.div_ceil(tile) * tile;
    let (wide, high) = if width >= height {
        let wide = up(width);
        (wide, up((f64::from(wide) / aspect) as u32))
    } else {
        let high = up(height);
        (up((f64::from(high) * aspect) as u32), high)
    };
    (wide.max(tile), high.max(tile))
}
