//! From pictures to what models that see read: pixels out of picture files, Pillow's resize, and views, patches and numbers by a record.
//!
//! Purpose: one way from the bytes of a file to the input of a vision encoder. [`decode`] reads PNG, JPEG and WebP as 8-bit RGB under
//! limits that hold before a pixel is decoded, [`resize`] gives the bytes that Pillow gives, and [`Processor`] is a declarative record
//! that says everything else: the size rule, tiles, the filter, the numbers, the order of patches, the marks in the prompt.
//! [`Processor::plan`] tells sizes and tokens from width and height alone, so a caller can refuse or shrink before decoding.
//!
//! All arithmetic is integers and plain `f32` and `f64` in a fixed order, and nothing is chosen by the CPU at run time, the decoders
//! included. Decoders of JPEG may differ from one another by some levels; from RGB on, the results are those of Pillow and NumPy.
//!
//! It may depend on `base`, `simd` and `tensor`, and needs none of them today. It deliberately knows no model family (a record comes
//! from a bundle), reads no files by path, fetches no addresses, takes no frames out of videos, converts no color profiles, starts no
//! thread and writes no pictures.
#![forbid(unsafe_code)]

pub mod decode;
mod error;
mod picture;
pub mod processor;
mod resize;

pub use decode::{Alpha, Limits, is_heic};
pub use error::{Error, ErrorKind};
pub use picture::Picture;
pub use processor::{Plan, Processed, Processor};
pub use resize::{Filter, Region, resize, resize_region};
