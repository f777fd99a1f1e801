//! Lists in pages: which part of a list a request asks for, and how it is sent.

use crate::{ApiError, Result};
use serde_json::{Value, json};

/// Most characters of an id of anything.
const MAX_ID: usize = 64;

/// Which part of a list is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Most entries.
    pub limit: usize,
    /// The oldest come first.
    pub oldest_first: bool,
    /// Only what comes after this id.
    pub after: Option<String>,
    /// Only what comes before this id.
    pub before: Option<String>,
    /// What else the query says, as far as it was asked after.
    pub only: Option<String>,
}

impl Page {
    /// Reads the query of an address: `limit` from 1 to `most` (`usual` without it), `order`, `after`, `before`, and under `only` what an entry
    /// has to be.
    ///
    /// # Errors
    /// The first parameter that is wrong. Those that are not known are ignored.
    pub fn read(query: Option<&str>, usual: usize, most: usize, only: &str) -> Result<Page> {
        let mut page = Page {
            limit: usual,
            oldest_first: false,
            after: None,
            before: None,
            only: None,
        };
        for pair in query.unwrap_or_default().split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if value.is_empty() {
                continue;
            }
            let wrong = |expected: &str| {
                let found: String = value.chars().take(MAX_ID).collect();
                Err(ApiError::field(
                    name,
                    format!("`{name}`: found `{found}`, expected {expected}"),
                ))
            };
            // Ids and the words of this API are letters, digits, `-` and `_`, which nobody has to escape.
            let is_plain =
                value.len() <= MAX_ID && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
            match name {
                "limit" => match value.parse() {
                    Ok(limit) if (1..=most).contains(&limit) => page.limit = limit,
                    _ => return wrong(&format!("a whole number from 1 to {most}")),
                },
                "order" => match value {
                    "asc" => page.oldest_first = true,
                    "desc" => page.oldest_first = false,
                    _ => return wrong("`asc` or `desc`"),
                },
                "after" if is_plain => page.after = Some(value.to_owned()),
                "before" if is_plain => page.before = Some(value.to_owned()),
                "after" | "before" => return wrong("an id"),
                name if name == only && is_plain => page.only = Some(value.to_owned()),
                name if name == only => return wrong("a word"),
                _ => {}
            }
        }
        Ok(page)
    }

    /// The entries of this page of `all`, which are the oldest first, and whether more follow. An id that is not in the list is before all of it, or
    /// after.
    #[must_use]
    pub fn of<T>(&self, mut all: Vec<T>, id: impl Fn(&T) -> &str) -> (Vec<T>, bool) {
        if !self.oldest_first {
            all.reverse();
        }
        if let Some(after) = &self.after
            && let Some(at) = all.iter().position(|one| id(one) == after)
        {
            all.drain(..=at);
        }
        if let Some(before) = &self.before
            && let Some(at) = all.iter().position(|one| id(one) == before)
        {
            // The page that ends there.
            all.truncate(at);
            let begin = all.len().saturating_sub(self.limit);
            return (all.split_off(begin), begin > 0);
        }
        let more = all.len() > self.limit;
        all.truncate(self.limit);
        (all, more)
    }
}

/// A page as it is sent; each entry has its id under `id`.
#[must_use]
pub fn list(entries: Vec<Value>, more: bool) -> Value {
    let id = |entry: Option<&Value>| entry.map_or(Value::Null, |entry| entry["id"].clone());
    let (first, last) = (id(entries.first()), id(entries.last()));
    json!({"object": "list", "data": entries, "first_id": first, "last_id": last, "has_more": more})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(page: &Page) -> (Vec<&'static str>, bool) {
        page.of(vec!["a", "b", "c", "d"], |id| id)
    }

    #[test]
    fn pages_are_parts_of_a_list() {
        let cases: &[(&str, &[&str], bool)] = &[
            ("", &["d", "c", "b"], true),
            ("order=asc", &["a", "b", "c"], true),
            ("order=asc&limit=4", &["a", "b", "c", "d"], false),
            ("order=asc&after=b", &["c", "d"], false),
            ("after=b", &["a"], false),
            ("order=asc&before=c", &["a", "b"], false),
            ("order=asc&before=d&limit=2", &["b", "c"], true),
            ("limit=&x=%41&after=nobody", &["d", "c", "b"], true),
        ];
        for (query, expected, more) in cases {
            let page = Page::read(Some(query), 3, 100, "filter").unwrap();
            assert_eq!(ids(&page), (expected.to_vec(), *more), "{query}");
        }
        assert_eq!(
            Page::read(Some("filter=failed"), 3, 9, "filter")
                .unwrap()
                .only
                .as_deref(),
            Some("failed")
        );
        for wrong in [
            "limit=0",
            "limit=10",
            "limit=x",
            "order=up",
            "after=../x",
            "before=%2e",
            "filter=a%20b",
        ] {
            let error = Page::read(Some(wrong), 3, 9, "filter").unwrap_err();
            assert_eq!(error.param.as_deref(), wrong.split('=').next(), "{wrong}");
        }
    }
}
