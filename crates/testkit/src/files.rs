//! Folders as tests need them.

use std::fs;
use std::path::{Path, PathBuf};

/// Names of what is in a folder, without the part behind the last dot, sorted: one case for each.
///
/// # Panics
/// Where the folder cannot be read or is empty.
pub fn cases(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder can be read");
    let stem = |path: PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let mut cases: Vec<String> = entries
        .filter_map(|entry| stem(entry.expect("the folder can be read").path()))
        .collect();
    assert!(!cases.is_empty(), "{} has no cases", folder.display());
    cases.sort();
    cases
}

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
