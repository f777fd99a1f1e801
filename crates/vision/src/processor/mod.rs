//! How a picture becomes the input of a model, as a record that a bundle carries as `vision.json`.
//!
//! Purpose: one interpreter for all models that see. [`Processor`] is the record, [`Plan`] what it makes of a width and a height, and
//! [`Processed`] what it makes of pixels. It names no family: what one does is a choice of [`SizeRule`], [`Layout`] and numbers.
//!
//! Sizes are computed as the reference implementations do, in `f64` and with halves to even where theirs are, because a side that is one
//! patch longer is another picture to a model.

mod films;
mod layout;
mod marks;
mod places;
mod plan;
mod record;

pub use films::{FilmMarks, FilmPlan, Films, Frames, Spread, TimeFormat};
pub use layout::Processed;
pub use marks::Marks;
pub use places::{Places, Stretch};
pub use plan::{Grid, Plan, Role, View};
pub use record::{Channels, Layout, PatchOrder, Processor, SizeRule, VERSION, Values};
