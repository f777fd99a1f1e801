//! Pictures and sounds that a request names by address: they are fetched where the server may do that, and stand in the request as data then.

use crate::protocol::ApiError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Most addresses of a request.
const MOST: usize = 16;
/// The longest that the files of a request may take; a file that is on its way then still ends.
const LONGEST: Duration = Duration::from_secs(30);
/// How deep requests are looked into.
const DEPTH: usize = 16;

/// Fetches files for clients that name an address. It decides which addresses may be connected to.
pub trait Fetch: Debug + Send + Sync {
    /// The file at `address`.
    ///
    /// # Errors
    /// Why there is none, in words for the client.
    fn fetch(&self, address: &str) -> Result<Vec<u8>, String>;
}

/// What is fetched for one request.
struct Fetching<'a> {
    fetch: &'a dyn Fetch,
    count: usize,
    /// Bytes that may still come.
    rest: usize,
    begun: Instant,
}

/// The field of a part of this type that may have an address.
fn field_of(kind: &str) -> Option<&'static str> {
    match kind {
        "image_url" | "input_image" => Some("image_url"),
        "audio_url" => Some("audio_url"),
        "image" => Some("source"),
        _ => None,
    }
}

/// Whether [`fetched`] has anything to do.
pub(super) fn has_addresses(request: &Value) -> bool {
    has(request, DEPTH)
}

fn has(value: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else {
        return false;
    };
    match value {
        Value::Array(items) => items.iter().any(|item| has(item, depth)),
        Value::Object(fields) => {
            let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
            match field_of(kind).and_then(|name| fields.get(name)) {
                Some(part) => {
                    let url = part.get("url").unwrap_or(part).as_str();
                    url.is_some_and(|url| !url.starts_with("data:"))
                }
                None => fields.values().any(|field| has(field, depth)),
            }
        }
        _ => false,
    }
}

/// Puts the files at all addresses into `request`, at most `bytes` of them together.
pub(super) fn fetched(request: &mut Value, fetch: &dyn Fetch, bytes: usize) -> Result<(), ApiError> {
    let mut fetching = Fetching {
        fetch,
        count: 0,
        rest: bytes,
        begun: Instant::now(),
    };
    fetching.within(request, String::new(), DEPTH)
}

impl Fetching<'_> {
    fn within(&mut self, value: &mut Value, at: String, depth: usize) -> Result<(), ApiError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Ok(());
        };
        match value {
            Value::Array(items) => {
                for (i, item) in items.iter_mut().enumerate() {
                    self.within(item, format!("{at}[{i}]"), depth)?;
                }
            }
            Value::Object(fields) => {
                let kind = fields
                    .get("type")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned();
                let of = |name: &str| {
                    if at.is_empty() {
                        name.to_owned()
                    } else {
                        format!("{at}.{name}")
                    }
                };
                if let Some((name, part)) = field_of(&kind).and_then(|name| Some((name, fields.get_mut(name)?))) {
                    return self.part(part, of(name));
                }
                for (name, field) in fields.iter_mut() {
                    if field.is_array() || field.is_object() {
                        self.within(field, of(name), depth)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A part that may be an address, have one as `url`, or be Anthropic's source of the type `url`.
    fn part(&mut self, part: &mut Value, at: String) -> Result<(), ApiError> {
        let is_source = part["type"] == "url";
        let (url, at) = match part {
            Value::String(url) => (url, at),
            Value::Object(fields) => match fields.get_mut("url") {
                Some(Value::String(url)) => (url, format!("{at}.url")),
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        let refused = |what: String| ApiError::field(at.clone(), format!("`{at}`: {what}"));
        if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
            if url.starts_with("data:") || !url.contains(':') {
                return Ok(());
            }
            let scheme: String = url.chars().take_while(|c| *c != ':').take(20).collect();
            return Err(refused(format!(
                "found an address (`{scheme}:`), expected one of `http:` or `https:`, or a data URL"
            )));
        }
        self.count += 1;
        if self.count > MOST {
            return Err(refused(format!("expected at most {MOST} addresses in a request")));
        }
        if self.begun.elapsed() > LONGEST {
            let what = format!("the files of this request take longer than {} s", LONGEST.as_secs());
            return Err(refused(what).with_code("address_not_fetched"));
        }
        let file = match self.fetch.fetch(url) {
            Ok(file) => file,
            Err(what) => return Err(refused(what).with_code("address_not_fetched")),
        };
        let Some(rest) = self.rest.checked_sub(file.len()) else {
            return Err(refused(
                "the files at the addresses of this request are too large together".to_owned(),
            ));
        };
        self.rest = rest;
        let (data, kind) = (STANDARD.encode(&file), kind_of(&file));
        match is_source {
            true => *part = json!({"type": "base64", "media_type": kind, "data": data}),
            false => *url = format!("data:{kind};base64,{data}"),
        }
        Ok(())
    }
}

/// What a file says that it is; what it is, whoever decodes it finds.
fn kind_of(file: &[u8]) -> &'static str {
    match file {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Known;

    impl Fetch for Known {
        fn fetch(&self, address: &str) -> Result<Vec<u8>, String> {
            match address {
                "https://a/b.png" => Ok(b"\x89PNGx".to_vec()),
                other => Err(format!("`{other}` is not there")),
            }
        }
    }

    #[test]
    fn addresses_become_data_in_every_form() {
        let png = "iVBOR3g=";
        let url = format!("data:image/png;base64,{png}");
        let mut request = json!({"messages": [
            {"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "https://a/b.png", "detail": "low"}},
                {"type": "input_image", "image_url": "https://a/b.png"},
                {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUI="}},
                {"type": "text", "text": "https://a/b.png"}]},
            {"role": "user", "content": "https://a/c.png"}], "tools": [{"url": "https://a/c.png"}]});
        assert!(has_addresses(&request));
        fetched(&mut request, &Known, 100).unwrap();
        assert!(!has_addresses(&request), "all are data now");
        let expected = json!({"messages": [
            {"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
                {"type": "input_image", "image_url": url},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUI="}},
                {"type": "text", "text": "https://a/b.png"}]},
            {"role": "user", "content": "https://a/c.png"}], "tools": [{"url": "https://a/c.png"}]});
        assert_eq!(request, expected);
    }

    #[test]
    fn what_is_not_fetched_is_refused_by_its_field() {
        let part = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
        let refused = |parts: Vec<Value>, bytes| {
            let mut request = json!({"messages": [{"role": "user", "content": parts}]});
            fetched(&mut request, &Known, bytes).unwrap_err()
        };
        let error = refused(vec![part("https://a/b.png"), part("http://a/c.png")], 100);
        assert_eq!(error.param.as_deref(), Some("messages[0].content[1].image_url.url"));
        assert!(error.message.contains("not there"), "{}", error.message);
        assert!(
            refused(vec![part("https://a/b.png"); 2], 9)
                .message
                .contains("too large")
        );
        assert!(
            refused(vec![part("https://a/b.png"); MOST + 1], 1000)
                .message
                .contains("addresses")
        );
    }
}
