//! Forms with a file, and what is wrong with their fields.

use crate::multipart::{self, Part};
use crate::{ApiError, Result};

/// Most bytes of a field that is no file.
pub(super) const MAX_TEXT: usize = 64 << 10;

pub(super) fn wrong(name: &str, message: impl std::fmt::Display) -> ApiError {
    ApiError::field(name, format!("`{name}`: {message}"))
}

/// The beginning of what a client wrote.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(40).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// A form that was read.
pub(super) struct Form<'a>(Vec<Part<'a>>);

impl<'a> Form<'a> {
    /// Reads a body.
    pub(super) fn read(content_type: Option<&str>, body: &'a [u8]) -> Result<Form<'a>> {
        let boundary = multipart::boundary(content_type)?;
        Ok(Form(multipart::parts(body, &boundary)?))
    }

    /// The one field `file`; `expected` says what should be in it.
    pub(super) fn file(&self, expected: &str) -> Result<&Part<'a>> {
        if let Some(part) = self.one("file")? {
            return Ok(part);
        }
        let names = self.0.iter().take(8);
        let names: Vec<String> = names.map(|part| format!("`{}`", shown(&part.name))).collect();
        let found = if names.is_empty() {
            "no field at all".to_owned()
        } else {
            names.join(", ")
        };
        let message = format_args!("is missing, expected {expected}; found {found}");
        Err(wrong("file", message))
    }

    /// The fields of a name; clients write `name[]` for lists.
    fn parts<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Part<'a>> + 's {
        let is = move |part: &&Part<'a>| part.name.strip_suffix("[]").unwrap_or(&part.name) == name;
        self.0.iter().filter(is)
    }

    /// What is in the fields of a name.
    pub(super) fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'a [u8]> + 's {
        self.parts(name).map(|part| part.content)
    }

    fn one<'s>(&'s self, name: &'s str) -> Result<Option<&'s Part<'a>>> {
        let mut all = self.parts(name);
        let first = all.next();
        match all.next() {
            None => Ok(first),
            Some(_) => Err(wrong(
                name,
                format_args!("found {} of them, expected one", 2 + all.count()),
            )),
        }
    }

    /// Texts that are not empty, which is as good as missing.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<&'a str>> {
        let read = |bytes: &'a [u8]| {
            if bytes.len() > MAX_TEXT {
                let found = bytes.len();
                return Err(wrong(
                    name,
                    format_args!("found {found} bytes, expected at most {MAX_TEXT}"),
                ));
            }
            std::str::from_utf8(bytes).map_err(|e| {
                let at = e.valid_up_to();
                wrong(name, format_args!("is not UTF-8 text: byte {at} is not valid"))
            })
        };
        let texts = self.all(name).map(read).collect::<Result<Vec<_>>>()?;
        Ok(texts
            .into_iter()
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .collect())
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>> {
        match self.texts(name)?[..] {
            [] => Ok(None),
            [text] => Ok(Some(text)),
            ref texts => Err(wrong(name, format_args!("found {} of them, expected one", texts.len()))),
        }
    }

    pub(super) fn number(&self, name: &str, least: f64, most: f64) -> Result<Option<f64>> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        match text.parse::<f64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(wrong(
                name,
                format_args!("found `{}`, expected a number from {least} to {most}", shown(text)),
            )),
        }
    }
}
