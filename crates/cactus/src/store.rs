//! Models by name (feature `store`): found, downloaded, verified, and converted into the cache, which the command line, C and
//! Python share.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let path = cactus::store::prepare("smollm2")?;
//! let model = cactus::Model::load(&path, &cactus::LoadOptions::default())?;
//! # Ok(())
//! # }
//! ```

pub use cactus_hub::Hub;
pub use cactus_passes::Bits;
pub use cactus_store::{Error, ErrorKind, Result, Silent, Step, Wanted, Watcher, bundle, hub};
use std::path::PathBuf;
use std::rc::Rc;

/// The folder of a bundle of the model `name`: a folder or GGUF file, a known name, a Hugging Face id (`org/name`), or the address
/// (`https://…`) of a GGUF file or of the folder of a bundle. With 8 bits for each weight; [`bundle`] takes other choices and tells what happens.
///
/// # Errors
/// [`ErrorKind::Hub`] where it cannot be found or fetched, [`ErrorKind::Quality`] where it cannot be converted.
pub fn prepare(name: &str) -> Result<PathBuf> {
    let watcher: Rc<dyn Watcher> = Rc::new(Silent);
    bundle(&hub(None, false, None)?, name, &Wanted::default(), &watcher)
}
