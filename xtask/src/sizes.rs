//! How long a source file may be.

use crate::repository::{Finding, TextFile};

/// A file longer than this needs a line in [`LONG_FILES`].
pub const LISTED_LINES: usize = 800;
/// No file may be longer than this.
pub const MAX_LINES: usize = 1200;
/// The median file should have about 250 lines; this is where it begins to be wrong.
pub const MAX_MEDIAN_LINES: usize = 320;

/// Files longer than [`LISTED_LINES`], each with the reason why it is one file.
pub const LONG_FILES: &[(&str, &str)] = &[];

/// Rust files that are too long, and reasons that are no longer needed.
pub fn check<'a>(files: impl IntoIterator<Item = &'a TextFile>, reasons: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut needed = Vec::new();
    for file in files {
        let lines = file.text.lines().count();
        let has_reason = reasons.iter().any(|(path, _)| *path == file.path);
        if lines > MAX_LINES {
            findings.push(Finding::new(
                &file.path,
                0,
                format!("{lines} lines; at most {MAX_LINES} are allowed: split it"),
            ));
        } else if lines > LISTED_LINES && !has_reason {
            findings.push(Finding::new(
                &file.path,
                0,
                format!("{lines} lines; over {LISTED_LINES} needs a reason in xtask/src/sizes.rs"),
            ));
        }
        if lines > LISTED_LINES {
            needed.push(file.path.as_str());
        }
    }
    for (path, _) in reasons.iter().filter(|(path, _)| !needed.contains(path)) {
        findings.push(Finding::new(
            *path,
            0,
            "is not long any more: remove its reason from xtask/src/sizes.rs",
        ));
    }
    findings
}

/// The median number of lines; 0 of no files.
pub fn median<'a>(files: impl IntoIterator<Item = &'a TextFile>) -> usize {
    let mut lines: Vec<usize> = files.into_iter().map(|f| f.text.lines().count()).collect();
    lines.sort_unstable();
    lines.get(lines.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, lines: usize) -> TextFile {
        TextFile {
            path: path.to_owned(),
            text: "x\n".repeat(lines),
        }
    }

    #[test]
    fn check_wants_a_reason_then_refuses() {
        let files = [
            file("a.rs", 800),
            file("b.rs", 801),
            file("c.rs", 1201),
            file("d.rs", 1200),
        ];
        let reasons = [("c.rs", "tables"), ("d.rs", "tables"), ("a.rs", "not long")];
        let found: Vec<String> = check(&files, &reasons).into_iter().map(|f| f.path).collect();
        assert_eq!(found, ["b.rs", "c.rs", "a.rs"]);
        assert_eq!(median(&files), 1200);
        assert_eq!(median(&[]), 0);
    }
}
