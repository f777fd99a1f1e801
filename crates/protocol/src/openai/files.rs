//! `/v1/files`: a form with a file, and what is told of files that are kept.

use super::form::{Form, shown, wrong};
use crate::Result;
use serde_json::{Value, json};

/// What files may be for. Nothing is made of it here.
const PURPOSES: [&str; 6] = ["assistants", "batch", "fine-tune", "vision", "user_data", "evals"];
/// Most bytes of a file's name.
const MAX_NAME: usize = 255;

/// A file that is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload<'a> {
    /// Its bytes.
    pub file: &'a [u8],
    /// What a reader calls it; no part of a path.
    pub name: String,
    /// What it is for.
    pub purpose: &'static str,
}

/// Reads the form of `POST /v1/files`.
///
/// # Errors
/// A body that is no form; the first field that is wrong or missing.
pub fn upload<'a>(content_type: Option<&str>, body: &'a [u8]) -> Result<Upload<'a>> {
    let form = Form::read(content_type, body)?;
    let file = form.file("a file")?;
    if file.content.is_empty() {
        return Err(wrong("file", "has no bytes"));
    }
    let name = file.file.as_deref().map(name).unwrap_or_default();
    if name.is_empty() {
        return Err(wrong(
            "file",
            "has no name; send one as `filename`, by which its kind is told",
        ));
    }
    let expected = PURPOSES.join("`, `");
    let purpose = match form.text("purpose")? {
        None => return Err(wrong("purpose", format_args!("is missing, expected `{expected}`"))),
        Some(word) => PURPOSES.into_iter().find(|known| *known == word).ok_or_else(|| {
            let message = format_args!("found `{}`, expected `{expected}`", shown(word));
            wrong("purpose", message)
        })?,
    };
    let expires = ["expires_after", "expires_after[anchor]", "expires_after[seconds]"];
    if expires.iter().any(|name| form.all(name).next().is_some()) {
        let message = "this server keeps files until they are deleted; leave it out";
        return Err(wrong("expires_after", message));
    }
    Ok(Upload {
        file: file.content,
        name,
        purpose,
    })
}

/// The last part of what a client calls a file, without characters that are none to a reader.
fn name(given: &str) -> String {
    let last = given.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut name: String = last.chars().filter(|c| !c.is_control()).collect();
    while name.len() > MAX_NAME {
        // The ending says what a file is.
        let middle = name
            .char_indices()
            .nth(name.chars().count() / 2)
            .map_or(0, |(at, _)| at);
        name.remove(middle);
    }
    match name.as_str() {
        "." | ".." => String::new(),
        _ => name,
    }
}

/// What is told of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCard<'a> {
    /// Its id.
    pub id: &'a str,
    /// How many bytes it has.
    pub bytes: u64,
    /// When it came, in seconds since 1970.
    pub created_at: u64,
    /// What a reader calls it.
    pub filename: &'a str,
    /// What it is for.
    pub purpose: &'a str,
}

impl FileCard<'_> {
    /// The file's object.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "id": self.id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": self.created_at,
            "expires_at": null,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
        })
    }
}

/// What is told of anything that is gone; `object` is what it was.
#[must_use]
pub fn deleted(id: &str, object: &str) -> Value {
    json!({"id": id, "object": object, "deleted": true})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(name: &str, purpose: &str) -> Vec<u8> {
        format!(
            "--XX\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n{purpose}\r\n--XX\r\n\
             Content-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\nbytes\r\n--XX--\r\n"
        )
        .into_bytes()
    }

    #[test]
    fn names_of_files_are_no_paths() {
        let long = format!("{}.md", "é".repeat(300));
        for (given, expected) in [
            ("a.md", Some("a.md")),
            ("../../etc/passwd", Some("passwd")),
            ("C:\\x\\b.txt", Some("b.txt")),
            ("a\u{1}b.md", Some("ab.md")),
            ("..", None),
            ("x/", None),
        ] {
            let body = form(given, "assistants");
            let read = upload(Some("multipart/form-data; boundary=XX"), &body);
            assert_eq!(read.as_ref().ok().map(|read| read.name.as_str()), expected, "{given}");
            if let Err(error) = read {
                assert_eq!(error.param.as_deref(), Some("file"));
            }
        }
        let body = form(&long, "user_data");
        let read = upload(Some("multipart/form-data; boundary=XX"), &body).unwrap();
        assert!(read.name.len() <= MAX_NAME && read.name.ends_with(".md"));
        let error = upload(Some("multipart/form-data; boundary=XX"), &form("a", "fun")).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("purpose"));
    }
}
