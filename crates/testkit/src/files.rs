//! Folders as tests need them.

use std::fs;
use std::path::Path;

/// Copies a folder with all that is in it.
///
/// # Panics
/// Where something cannot be read or written.
pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the folder can be made");
    for entry in fs::read_dir(from).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        let target = to.join(path.file_name().expect("an entry has a name"));
        match path.is_dir() {
            true => copy_folder(&path, &target),
            false => drop(fs::copy(&path, &target).expect("the file can be copied")),
        }
    }
}
