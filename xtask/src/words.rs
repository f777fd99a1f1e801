//! What must not be written into any file: paths of one machine, and addresses of package registries.
//!
//! A path of the author's machine works nowhere else, and a registry's address takes from users the choice of their
//! own mirror, which their package client knows.

use crate::repository::{Finding, TextFile};

/// Words with the message for each. Split so that this file does not contain them.
fn words() -> Vec<(String, &'static str)> {
    let path = "is a path of one machine";
    let host = "names a registry's host: leave that to the package client";
    vec![
        (["/wo", "rk/"].concat(), path),
        (["/ro", "ot/"].concat(), path),
        (["/ho", "me/"].concat(), path),
        (["/Us", "ers/"].concat(), path),
        (["/t", "mp/"].concat(), path),
        (["py", "pi.org"].concat(), host),
        (["pythonho", "sted.org"].concat(), host),
        (["crates", ".io"].concat(), host),
        (["npm", "js.org"].concat(), host),
        (["npm", "js.com"].concat(), host),
        (["deb.deb", "ian.org"].concat(), host),
        (["proxy.go", "lang.org"].concat(), host),
    ]
}

/// Every forbidden word, with its line.
pub fn check<'a>(files: impl IntoIterator<Item = &'a TextFile>) -> Vec<Finding> {
    let words = words();
    let mut findings = Vec::new();
    for file in files {
        let is_lock = file.path.ends_with("Cargo.lock");
        for (line, number) in file.text.lines().zip(1..) {
            // The registry that cargo records for each package is its own, not ours to write.
            if is_lock && line.starts_with("source = ") {
                continue;
            }
            for (word, why) in &words {
                if line.contains(word) {
                    findings.push(Finding::new(&file.path, number, format!("`{word}` {why}")));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_finds_words_where_they_are_forbidden() {
        let registry = ["https://github.com/rust-lang/crates", ".io-index"].concat();
        let temporary = ["/t", "mp/x"].concat();
        let cases = [
            ("README.md", format!("see {registry}"), 1),
            ("Cargo.lock", format!("source = \"registry+{registry}\""), 0),
            ("Cargo.lock", format!("# {registry}"), 1),
            ("docs/a.md", format!("run in {temporary}"), 1),
            ("crates/a/src/b.rs", format!("open(\"{temporary}\")"), 1),
            ("crates/a/src/b.rs", ["open(\"/wo", "rk/main\")"].concat(), 1),
            ("scripts/a.py", "pip download x".to_owned(), 0),
        ];
        for (path, text, want) in cases {
            let file = TextFile {
                path: path.to_owned(),
                text: text.clone(),
            };
            assert_eq!(check([&file]).len(), want, "{path}: {text}");
        }
    }
}
