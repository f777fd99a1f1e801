//! `/v1/vector_stores`: what is asked of stores and of the files in them. `answer` has what is told of them.

mod answer;
mod filter;
mod tool;

pub use answer::{Counts, EntryCard, LastError, Match, Place, Status, StoreCard, batch, contents, results};
pub use filter::{Comparison, Filter};
pub use tool::FileSearch;

use crate::{Fields, Result, json_type, objects};
use serde_json::{Map, Value};

/// Most files of one request.
pub const MAX_FILES: usize = 2000;
/// Most questions of one search.
const MAX_QUERIES: usize = 32;
/// Most entries of metadata, characters of their names, and of their texts.
const PAIRS: [usize; 3] = [16, 64, 512];
/// Most bytes of the name of an attribute.
const MAX_KEY_BYTES: usize = 240;
/// Characters of a store's name.
const MAX_NAME: usize = 256;
/// How large pieces may be asked to be, in tokens.
const PIECE_TOKENS: [u64; 2] = [100, 4096];

/// How a file is put into a store.
#[derive(Debug, Clone, PartialEq)]
pub struct Attach {
    /// Which file.
    pub file: String,
    /// What is known of it, by which searches can be narrowed.
    pub attributes: Map<String, Value>,
    /// Most tokens of a piece; `None` leaves it to the server.
    pub piece_tokens: Option<usize>,
}

/// `POST /v1/vector_stores`.
#[derive(Debug, Clone, PartialEq)]
pub struct Create {
    /// Its name.
    pub name: String,
    /// What its owner wants to know of it.
    pub metadata: Map<String, Value>,
    /// Files that are put into it.
    pub files: Vec<Attach>,
}

/// `POST /v1/vector_stores/{id}`: what changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Modify {
    /// Its name.
    pub name: Option<String>,
    /// What its owner wants to know of it.
    pub metadata: Option<Map<String, Value>>,
}

/// What is searched for.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    /// The questions.
    pub queries: Vec<String>,
    /// How.
    pub how: How,
}

/// How is searched.
#[derive(Debug, Clone, PartialEq)]
pub struct How {
    /// Which files count.
    pub filter: Option<Filter>,
    /// Most results.
    pub most: usize,
    /// Least cosine of a result, if any.
    pub threshold: Option<f32>,
    /// What the ranks by meaning and by words count; `None` orders by meaning alone.
    pub weights: Option<[f32; 2]>,
}

/// Reads `POST /v1/vector_stores`.
///
/// # Errors
/// The first field that is wrong or asks for what there is not.
pub fn create(body: &Value) -> Result<Create> {
    let fields = Fields::of_body(body)?;
    no_expiry(&fields)?;
    let piece_tokens = chunking(&fields)?;
    let attach = |file: String| Attach {
        file,
        attributes: Map::new(),
        piece_tokens,
    };
    Ok(Create {
        name: name(&fields)?.unwrap_or_default(),
        metadata: pairs(&fields, "metadata", true)?.unwrap_or_default(),
        files: ids(&fields, "file_ids")?.into_iter().map(attach).collect(),
    })
}

/// Reads `POST /v1/vector_stores/{id}`.
///
/// # Errors
/// As [`create`].
pub fn modify(body: &Value) -> Result<Modify> {
    let fields = Fields::of_body(body)?;
    no_expiry(&fields)?;
    Ok(Modify {
        name: name(&fields)?,
        metadata: pairs(&fields, "metadata", true)?,
    })
}

/// Reads `POST /v1/vector_stores/{id}/files`.
///
/// # Errors
/// As [`create`].
pub fn attach(body: &Value) -> Result<Attach> {
    one(&Fields::of_body(body)?)
}

/// Reads `POST /v1/vector_stores/{id}/files/{file_id}`: the attributes.
///
/// # Errors
/// As [`create`].
pub fn attributes(body: &Value) -> Result<Map<String, Value>> {
    let fields = Fields::of_body(body)?;
    if !fields.map().contains_key("attributes") {
        return Err(fields.missing("attributes", "an object"));
    }
    Ok(pairs(&fields, "attributes", false)?.unwrap_or_default())
}

/// Reads `POST /v1/vector_stores/{id}/file_batches`.
///
/// # Errors
/// As [`create`].
pub fn files(body: &Value) -> Result<Vec<Attach>> {
    let fields = Fields::of_body(body)?;
    let found = match fields.list("files")? {
        Some(_) if fields.get("file_ids").is_some() => {
            return Err(fields.wrong("files", "found `file_ids` beside it; leave one of the two out"));
        }
        Some(list) => {
            few(&fields, "files", list)?;
            objects(list, "files")?.iter().map(one).collect::<Result<_>>()?
        }
        None => {
            let (attributes, piece_tokens) = (pairs(&fields, "attributes", false)?, chunking(&fields)?);
            let attach = |file: String| Attach {
                file,
                attributes: attributes.clone().unwrap_or_default(),
                piece_tokens,
            };
            ids(&fields, "file_ids")?.into_iter().map(attach).collect::<Vec<_>>()
        }
    };
    match found.is_empty() {
        true => Err(fields.missing("file_ids", "a list of ids of files")),
        false => Ok(found),
    }
}

/// Reads `POST /v1/vector_stores/{id}/search`. `rewrite_query` is passed over: the answer says what was searched for.
///
/// # Errors
/// As [`create`].
pub fn search(body: &Value) -> Result<Search> {
    let fields = Fields::of_body(body)?;
    let wrong = |found: &str| fields.wrong("query", format_args!("found {found}, expected text or a list of texts"));
    let queries = match fields.get("query") {
        None => return Err(fields.missing("query", "text or a list of texts")),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(list)) if list.is_empty() || list.len() > MAX_QUERIES => {
            let message = format_args!("found {} texts, expected 1 to {MAX_QUERIES}", list.len());
            return Err(fields.wrong("query", message));
        }
        Some(Value::Array(list)) => list
            .iter()
            .map(|one| one.as_str().map(str::to_owned).ok_or_else(|| wrong(json_type(one))))
            .collect::<Result<_>>()?,
        Some(other) => return Err(wrong(json_type(other))),
    };
    if queries.iter().any(|query| query.trim().is_empty()) {
        return Err(fields.wrong("query", "is empty"));
    }
    fields.flag("rewrite_query")?;
    Ok(Search {
        queries,
        how: how(&fields, 10)?,
    })
}

/// Filter, number and ranking of a search; `usual` results where none says how many.
fn how(fields: &Fields<'_>, usual: usize) -> Result<How> {
    let most = fields.count("max_num_results", 1, 50)?;
    let mut how = How {
        filter: fields
            .object("filters")?
            .map(|filter| Filter::read(&filter))
            .transpose()?,
        most: most.map_or(usual, |most| most as usize),
        threshold: None,
        weights: Some([1.0, 1.0]),
    };
    let Some(ranking) = fields.object("ranking_options")? else {
        return Ok(how);
    };
    let number = |fields: &Fields<'_>, name: &str, most: f64| match fields.get(name) {
        None => Ok(None),
        Some(value) => match value.as_f64().filter(|x| (0.0..=most).contains(x)) {
            Some(number) => Ok(Some(number as f32)),
            None => Err(fields.wrong(name, format_args!("found {value}, expected a number from 0 to {most}"))),
        },
    };
    // Nothing is nearer than 0 asks for.
    how.threshold = number(&ranking, "score_threshold", 1.0)?.filter(|least| *least > 0.0);
    if let Some(hybrid) = ranking.object("hybrid_search")? {
        let weights = [
            number(&hybrid, "embedding_weight", 1e6)?,
            number(&hybrid, "text_weight", 1e6)?,
        ];
        how.weights = Some(weights.map(|weight| weight.unwrap_or(1.0)));
    }
    match ranking.text("ranker")? {
        None | Some("auto" | "default-2024-11-15") => {}
        Some("none") => how.weights = None,
        Some(other) => {
            let message = format_args!("found `{other}`, expected `auto` or `none`");
            return Err(ranking.wrong("ranker", message));
        }
    }
    Ok(how)
}

fn one(fields: &Fields<'_>) -> Result<Attach> {
    Ok(Attach {
        file: fields.required_text("file_id")?.to_owned(),
        attributes: pairs(fields, "attributes", false)?.unwrap_or_default(),
        piece_tokens: chunking(fields)?,
    })
}

fn few(fields: &Fields<'_>, name: &str, list: &[Value]) -> Result<()> {
    match list.len() > MAX_FILES {
        true => Err(fields.wrong(
            name,
            format_args!("found {} files, expected at most {MAX_FILES}", list.len()),
        )),
        false => Ok(()),
    }
}

fn ids(fields: &Fields<'_>, name: &str) -> Result<Vec<String>> {
    let list = fields.list(name)?.unwrap_or_default();
    few(fields, name, list)?;
    let id = |id: &Value| {
        let text = id.as_str().map(str::to_owned);
        text.ok_or_else(|| fields.wrong(name, format_args!("found {}, expected ids of files", json_type(id))))
    };
    list.iter().map(id).collect()
}

fn name(fields: &Fields<'_>) -> Result<Option<String>> {
    match fields.text("name")? {
        Some(name) if name.chars().count() > MAX_NAME => {
            Err(fields.wrong("name", format_args!("has more than {MAX_NAME} characters")))
        }
        name => Ok(name.map(str::to_owned)),
    }
}

fn no_expiry(fields: &Fields<'_>) -> Result<()> {
    match fields.get("expires_after") {
        Some(_) => Err(fields.wrong(
            "expires_after",
            "this server keeps stores until they are deleted; leave it out",
        )),
        None => Ok(()),
    }
}

/// Pairs of a name and a value: texts alone, or numbers and truth values, too.
fn pairs(fields: &Fields<'_>, name: &str, only_texts: bool) -> Result<Option<Map<String, Value>>> {
    let Some(inner) = fields.object(name)? else {
        return Ok(None);
    };
    let [most, of_key, of_text] = PAIRS;
    let map = inner.map();
    if map.len() > most {
        return Err(fields.wrong(
            name,
            format_args!("found {} entries, expected at most {most}", map.len()),
        ));
    }
    for (key, value) in map {
        if key.is_empty() || key.chars().count() > of_key || key.len() > MAX_KEY_BYTES {
            let message = format_args!("a name has 1 to {of_key} characters and at most {MAX_KEY_BYTES} bytes");
            return Err(fields.wrong(name, message));
        }
        let wrong = |message: std::fmt::Arguments<'_>| Err(inner.wrong(key, message));
        match value {
            Value::String(text) if text.chars().count() > of_text => {
                return wrong(format_args!("has more than {of_text} characters"));
            }
            Value::String(_) => {}
            Value::Bool(_) | Value::Number(_) if !only_texts => {}
            other if only_texts => return wrong(format_args!("found {}, expected text", json_type(other))),
            other => {
                let found = json_type(other);
                return wrong(format_args!("found {found}, expected text, a number, true or false"));
            }
        }
    }
    Ok(Some(map.clone()))
}

/// Most tokens of a piece, where the request says so.
fn chunking(fields: &Fields<'_>) -> Result<Option<usize>> {
    let Some(strategy) = fields.object("chunking_strategy")? else {
        return Ok(None);
    };
    match strategy.required_text("type")? {
        "auto" => Ok(None),
        "static" => {
            let sizes = strategy.object("static")?;
            let sizes = sizes.ok_or_else(|| strategy.missing("static", "an object"))?;
            if sizes
                .count("chunk_overlap_tokens", 0, u64::MAX)?
                .is_some_and(|overlap| overlap > 0)
            {
                let message = "pieces do not overlap here: they end where a sentence or section does; send 0";
                return Err(sizes.wrong("chunk_overlap_tokens", message));
            }
            let [least, most] = PIECE_TOKENS;
            let tokens = sizes.count("max_chunk_size_tokens", least, most)?;
            let tokens = tokens.ok_or_else(|| sizes.missing("max_chunk_size_tokens", "a whole number"))?;
            Ok(Some(tokens as usize))
        }
        other => {
            let message = format_args!("found `{other}`, expected `auto` or `static`");
            Err(strategy.wrong("type", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_that_cannot_be_meant_name_the_field() {
        let many: Map<String, Value> = (0..17).map(|i| (i.to_string(), json!("x"))).collect();
        let overlap = json!({"type": "static", "static": {"max_chunk_size_tokens": 800, "chunk_overlap_tokens": 400}});
        let small = json!({"type": "static", "static": {"max_chunk_size_tokens": 99, "chunk_overlap_tokens": 0}});
        type Read = fn(&Value) -> Result<()>;
        let (create, attach, search): (Read, Read, Read) = (
            |body| create(body).map(drop),
            |body| attach(body).map(drop),
            |body| search(body).map(drop),
        );
        for (read, body, param) in [
            (create, json!({"name": "x".repeat(257)}), "name"),
            (create, json!({"metadata": many}), "metadata"),
            (create, json!({"metadata": {"a": 1}}), "metadata.a"),
            (create, json!({"metadata": {"a": "x".repeat(513)}}), "metadata.a"),
            (create, json!({"metadata": {"x".repeat(65): "a"}}), "metadata"),
            (
                create,
                json!({"expires_after": {"anchor": "last_active_at", "days": 1}}),
                "expires_after",
            ),
            (create, json!({"file_ids": vec!["x"; 2001]}), "file_ids"),
            (create, json!({"file_ids": [1]}), "file_ids"),
            (attach, json!({}), "file_id"),
            (
                attach,
                json!({"file_id": "a", "attributes": {"a": null}}),
                "attributes.a",
            ),
            (
                attach,
                json!({"file_id": "a", "attributes": {"a": ["x"]}}),
                "attributes.a",
            ),
            (
                attach,
                json!({"file_id": "a", "chunking_strategy": overlap}),
                "chunking_strategy.static.chunk_overlap_tokens",
            ),
            (
                attach,
                json!({"file_id": "a", "chunking_strategy": small}),
                "chunking_strategy.static.max_chunk_size_tokens",
            ),
            (search, json!({"query": []}), "query"),
            (search, json!({"query": ["a", 5]}), "query"),
            (search, json!({"query": " "}), "query"),
            (search, json!({"query": "a", "max_num_results": 51}), "max_num_results"),
            (
                search,
                json!({"query": "a", "ranking_options": {"score_threshold": 1.5}}),
                "ranking_options.score_threshold",
            ),
            (
                search,
                json!({"query": "a", "ranking_options": {"ranker": "x"}}),
                "ranking_options.ranker",
            ),
        ] {
            let error = read(&body).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{body}: {error}");
        }
        assert_eq!(
            files(&json!({"file_ids": []})).unwrap_err().param.as_deref(),
            Some("file_ids")
        );
        let both = json!({"file_ids": ["a"], "files": [{"file_id": "a"}]});
        assert_eq!(files(&both).unwrap_err().param.as_deref(), Some("files"));
        assert_eq!(attributes(&json!({})).unwrap_err().param.as_deref(), Some("attributes"));
        assert_eq!(attributes(&json!({"attributes": null})).unwrap(), Map::new());
    }

    #[test]
    fn searches_are_read_with_their_ranking() {
        let read = |more: Value| {
            let mut body = json!({"query": "a", "rewrite_query": true});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            search(&body).unwrap().how
        };
        let usual = read(json!({}));
        assert_eq!(
            (usual.most, usual.threshold, usual.weights),
            (10, None, Some([1.0, 1.0]))
        );
        let ranking = json!({"ranker": "auto", "score_threshold": 0.5, "hybrid_search": {"embedding_weight": 2, "text_weight": 0}});
        let how = read(json!({"ranking_options": ranking, "max_num_results": 50}));
        assert_eq!(
            (how.most, how.threshold, how.weights),
            (50, Some(0.5), Some([2.0, 0.0]))
        );
        assert_eq!(read(json!({"ranking_options": {"ranker": "none"}})).weights, None);
    }
}
