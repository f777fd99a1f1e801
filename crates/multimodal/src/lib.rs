//! Pictures, films and sounds for models that write text about them: from a file to rows that stand in a prompt.
//!
//! Purpose: one way for the command line, HTTP, C and Python to show a model a picture or a film, and to play it a sound. [`Pictures`] belongs to a model whose bundle has an
//! encoder of pictures and a record of what it reads (`vision.json`). It tells from a file's header how many tokens a picture will be,
//! refuses what does not fit the context before a pixel is decoded, prepares and encodes the picture view by view, and gives a
//! [`Shown`](cactus_engine::chat::Shown): the text that stands in the prompt, and the rows in place of its tokens. What was encoded lately is
//! kept, so that the next question about a picture costs nothing. [`Films`] shows it frames of a film, by the same record and encoder. [`Sounds`] does the same with the encoder of sounds and its record
//! (`hearing.json`): how many tokens a sound will be depends on its length alone.
//!
//! The encoder's memory is taken when a picture is encoded and given back afterwards; its weights stay mapped, which the system drops when
//! it needs room. Views are encoded one after the other, so memory does not grow with the size of a picture, and a row has the same bits
//! whatever else is encoded.
//!
//! It may depend on `engine`, `vision`, `audio`, `speech` (for front ends of sound) and `runtime`. It deliberately knows no model family and no protocol, reads no files by path,
//! fetches no addresses, and renders no prompts.
#![forbid(unsafe_code)]

mod cache;
mod error;
mod films;
mod pictures;
mod sounds;

pub use cactus_vision::{Limits, Picture, Plan, Processor};
pub use error::{Error, ErrorKind, Result};
pub use films::{Films, Watched};
pub use pictures::{Look, Pictures};
pub use sounds::{Heard, Sounds};

use cactus_engine::Model;
use cactus_engine::chat::{Asking, MediaFile, Unshown};
use std::sync::Arc;

/// Gives `model` what it sees and hears with, as far as its bundle has that, for conversations that hold files.
///
/// # Errors
/// [`Error::Model`] for a bundle that is damaged.
pub fn attach(model: &Model) -> Result<()> {
    Pictures::attach(model)?;
    Sounds::attach(model)?;
    Ok(())
}

/// The files of pictures or sounds.
fn files_of<'a>(files: &[&'a MediaFile]) -> std::result::Result<Vec<&'a [u8]>, Unshown> {
    let each = files.iter().enumerate().map(|(i, file)| match file {
        MediaFile::File(bytes) => Ok(&bytes[..]),
        MediaFile::Frames(..) => Err(unshown(i, "expected a file, found the frames of a film")),
    });
    each.collect()
}

/// What is wrong with one of the pictures, sounds or films.
fn unshown(i: usize, what: impl ToString) -> Unshown {
    Unshown {
        which: Some(i),
        what: what.to_string(),
    }
}

/// Whether so many `of` one kind, which have `tokens` together, fit the context, or need not.
fn fit_together(
    model: &Model,
    asking: &Asking<'_>,
    of: &str,
    count: usize,
    tokens: u64,
) -> std::result::Result<(), String> {
    let context = model.context_tokens();
    match tokens < context as u64 || asking.rolls {
        true => Ok(()),
        false => Err(format!(
            "the {count} {of} of this conversation have {tokens} tokens together, and the context holds {context}; send fewer or smaller {of}, or \
             make the context larger where the model allows it (`--context` of the command)"
        )),
    }
}

/// What tells one loaded model from another.
fn owner(model: &Model) -> usize {
    Arc::as_ptr(model.program()) as usize
}
