//! Audio files to samples.
//!
//! WAV (integers of 8 to 32 bits, floats, A-law, µ-law), FLAC, MP3, Vorbis and Opus in Ogg and WebM, AAC-LC and ALAC in MP4 and M4A, and AAC in
//! ADTS. Symphonia reads the containers and decodes all but Opus, which is `ropus`' part. Neither contains C.
//!
//! [`Reader`] gives blocks as they are in the file; memory does not depend on its length. [`Mono`] mixes them down and brings them to a
//! rate; [`load`] does that for a whole file, and [`Recording`] for one that is read more than once. What an encoder put before and
//! behind the audio is removed: the delays that LAME's tag, edit lists of MP4, Opus' pre-skip and the positions in Ogg pages state. So
//! times are those of the recording.
//!
//! A file may be anything. What is wrong as a whole is an error. A packet that cannot be decoded becomes silence of its length, so
//! that what follows keeps its time, and is counted ([`Reader::damaged_packets`]); a file that ends early gives what there is
//! ([`Reader::is_truncated`]).

mod codec;
mod edits;
mod guard;
mod mono;
mod opus;
mod reader;
mod recording;
mod sniff;

pub use mono::{Mono, load};
pub use reader::{Block, Info, Limits, MAX_CHANNELS, Reader};
pub use recording::Recording;
