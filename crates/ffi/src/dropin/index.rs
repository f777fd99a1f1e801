//! The index of vectors of the public API: an index file of `retrieval` in a folder, with numbers as ids and the cosine as metric.
//!
//! The library locks the file only while it writes, so several programs may hold an index; each search sees what was committed before it.
//! What a call adds or deletes is there as a whole or not at all, and durable when it returns.

use crate::failure::{Code, Failure, Result};
use crate::handle::{Handles, Kind};
use crate::output::TextBuffer;
use crate::{guard, input};
use cactus_retrieval::{Document, ErrorKind, Id, Layout, Metric, Query, Recipe, SharedIndex, Value};
use std::ffi::{c_char, c_float, c_int, c_void};
use std::path::Path;
use std::sync::Arc;

/// Every index that is open.
static INDEXES: Handles<SharedIndex> = Handles::new(Kind::Index);
/// The file in the folder.
const FILE: &str = "cactus.index";
/// What the vectors are of: the caller knows.
const MODEL: &str = "caller";
/// The text that belongs to a document beside its own.
const METADATA: &str = "metadata";
/// Results where nobody says how many.
const TOP: u64 = 10;

impl From<cactus_retrieval::Error> for Failure {
    fn from(error: cactus_retrieval::Error) -> Failure {
        let code = match error.kind() {
            ErrorKind::Io | ErrorKind::NoSpace | ErrorKind::Busy | ErrorKind::Stale => Code::System,
            ErrorKind::NotAnIndex | ErrorKind::Version | ErrorKind::Damaged | ErrorKind::Lost => Code::Bundle,
            ErrorKind::Unsupported => Code::Unsupported,
            _ => Code::Argument,
        };
        Failure::new(code, error.to_string())
    }
}

/// Any `int` names a document; the file has its 32 bits.
fn id(number: c_int) -> Id {
    Id::Number(u64::from(number as u32))
}

fn number(id: &Id) -> c_int {
    match id {
        Id::Number(number) => *number as u32 as c_int,
        Id::Text(_) => 0,
    }
}

/// `count` pointers or numbers that the caller lends, to be written through.
///
/// # Safety
/// As [`input::values`].
unsafe fn places<'a, T: Copy>(start: *mut T, count: usize, name: &str) -> Result<&'a [T]> {
    // SAFETY: the caller's promise.
    unsafe { input::values(start.cast_const(), count, name) }
}

/// Opens the index in the folder `index_dir`, or makes one there, for vectors of `embedding_dim` numbers. NULL where that fails, also
/// where the index that is there has vectors of another length. It is closed with `cactus_index_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_index_init(index_dir: *const c_char, embedding_dim: usize) -> *mut c_void {
    guard::fresh(std::ptr::null_mut(), || {
        // SAFETY: the header's contract of strings.
        let folder = Path::new(unsafe { input::text(index_dir, "index_dir") }?);
        std::fs::create_dir_all(folder).map_err(|e| {
            Failure::new(
                Code::System,
                format!("`{}`: cannot make the folder: {e}", folder.display()),
            )
        })?;
        let recipe = Recipe::new(MODEL, embedding_dim, Metric::Cosine);
        let index = SharedIndex::open_or_create(&folder.join(FILE), &recipe, Layout::default())?;
        INDEXES.insert(Arc::new(index))
    })
}

/// Adds documents: for each an id that the index does not have yet, a text, a text that belongs to it (`metadatas` or one of its
/// pointers may be NULL) and a vector. `embedding_dim` is that of the index. Returns 0, or -1 where nothing was added.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_index_add(
    index: *mut c_void,
    ids: *const c_int,
    documents: *const *const c_char,
    metadatas: *const *const c_char,
    embeddings: *const *const c_float,
    count: usize,
    embedding_dim: usize,
) -> c_int {
    guard::status(|| {
        let index = INDEXES.get(index)?;
        let mut added = Vec::new();
        // SAFETY: the header's contract of arrays and strings.
        unsafe {
            let ids = input::values(ids, count, "ids")?;
            let texts = input::values(documents, count, "documents")?;
            let vectors = input::values(embeddings, count, "embeddings")?;
            let metadatas = match metadatas.is_null() {
                true => &[],
                false => input::values(metadatas, count, "metadatas")?,
            };
            for (i, number) in ids.iter().enumerate() {
                let vector = input::values(vectors[i], embedding_dim, &format!("embeddings[{i}]"))?.to_vec();
                let text = input::text(texts[i], &format!("documents[{i}]"))?;
                let metadata = metadatas.get(i).copied().unwrap_or(std::ptr::null());
                let metadata = input::optional_text(metadata, &format!("metadatas[{i}]"))?;
                let document = Document::new(id(*number), vector).with_text(text);
                added.push(match metadata {
                    Some(text) => document.with(METADATA, text),
                    None => document,
                });
            }
        }
        index.write(|index| added.into_iter().try_for_each(|document| index.add(document)))?;
        Ok(())
    })
}

/// Deletes documents; ids that the index does not have are left out. Returns 0, or -1 where nothing was deleted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_index_delete(index: *mut c_void, ids: *const c_int, ids_count: usize) -> c_int {
    guard::status(|| {
        let index = INDEXES.get(index)?;
        // SAFETY: the header's contract of arrays.
        let ids = unsafe { input::values(ids, ids_count, "ids") }?;
        index.write(|index| ids.iter().try_for_each(|number| index.delete(&id(*number)).map(drop)))?;
        Ok(())
    })
}

/// Copies `found` into the caller's place, of which `sizes[i]` says how large it is, and writes there how much of it was needed. A null
/// `place` asks for nothing.
///
/// # Safety
/// `size` can be read and written, and as many bytes, or floats, at `place` as it says.
unsafe fn copied<T: Copy>(found: &[T], place: *mut T, size: *mut usize, name: &str) -> Result<()> {
    if place.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let room = unsafe { size.read_unaligned() };
    // SAFETY: the caller's promise.
    unsafe { size.write_unaligned(found.len()) };
    if found.len() > room {
        let what = format!("`{name}`: expected room for {}, found {room}", found.len());
        return Err(Failure::new(Code::BufferTooSmall, what));
    }
    // SAFETY: there is room, as was just checked.
    unsafe { std::ptr::copy_nonoverlapping(found.as_ptr().cast::<u8>(), place.cast::<u8>(), size_of_val(found)) };
    Ok(())
}

/// Copies a text with its zero byte, as [`copied`].
///
/// # Safety
/// As [`copied`].
unsafe fn copied_text(text: &str, place: *mut c_char, size: *mut usize, name: &str) -> Result<()> {
    if place.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let room = unsafe { size.read_unaligned() };
    // SAFETY: the caller's promise.
    unsafe { size.write_unaligned(text.len() + 1) };
    // SAFETY: the caller's promise.
    unsafe { TextBuffer::new(place, room, name) }?.write(text)?;
    Ok(())
}

/// Writes text, metadata and vector of each document to the caller's buffers. Any of the three arrays of buffers may be NULL, and any
/// buffer. The size beside a buffer says what it has room for, bytes or floats, and then what the result needed, zero byte included. An id
/// that the index does not have is an error. Returns 0, -2 where something does not fit, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_index_get(
    index: *mut c_void,
    ids: *const c_int,
    ids_count: usize,
    document_buffers: *mut *mut c_char,
    document_buffer_sizes: *mut usize,
    metadata_buffers: *mut *mut c_char,
    metadata_buffer_sizes: *mut usize,
    embedding_buffers: *mut *mut c_float,
    embedding_buffer_sizes: *mut usize,
) -> c_int {
    guard::status(|| {
        let reader = INDEXES.get(index)?.read()?;
        // SAFETY: the header's contract of arrays.
        let ids = unsafe { input::values(ids, ids_count, "ids") }?;
        let with_sizes = [
            (
                "document_buffer_sizes",
                document_buffers.is_null(),
                document_buffer_sizes,
            ),
            (
                "metadata_buffer_sizes",
                metadata_buffers.is_null(),
                metadata_buffer_sizes,
            ),
            (
                "embedding_buffer_sizes",
                embedding_buffers.is_null(),
                embedding_buffer_sizes,
            ),
        ];
        for (name, is_absent, sizes) in with_sizes {
            if !is_absent {
                // SAFETY: the header's contract of arrays.
                unsafe { places(sizes, ids_count, name) }?;
            }
        }
        let mut found = Vec::with_capacity(ids.len());
        for number in ids {
            let document = reader.get(&id(*number))?;
            found
                .push(document.ok_or_else(|| Failure::argument(format!("`ids`: the index has no document {number}")))?);
        }
        // Every size is written, whatever does not fit.
        let mut failed = None;
        for (i, document) in found.iter().enumerate() {
            let metadata = match document.metadata.get(METADATA) {
                Some(Value::Text(text)) => text.as_str(),
                _ => "",
            };
            // SAFETY: the header's contract of arrays and buffers; sizes were checked beside buffers.
            let written = unsafe {
                let place = |all: *mut *mut c_char| {
                    if all.is_null() {
                        std::ptr::null_mut()
                    } else {
                        all.add(i).read_unaligned()
                    }
                };
                let floats = match embedding_buffers.is_null() {
                    true => std::ptr::null_mut(),
                    false => embedding_buffers.add(i).read_unaligned(),
                };
                [
                    copied_text(
                        &document.text,
                        place(document_buffers),
                        document_buffer_sizes.wrapping_add(i),
                        &format!("document_buffers[{i}]"),
                    ),
                    copied_text(
                        metadata,
                        place(metadata_buffers),
                        metadata_buffer_sizes.wrapping_add(i),
                        &format!("metadata_buffers[{i}]"),
                    ),
                    copied(
                        &document.vector,
                        floats,
                        embedding_buffer_sizes.wrapping_add(i),
                        &format!("embedding_buffers[{i}]"),
                    ),
                ]
            };
            failed = written.into_iter().find_map(Result::err).or(failed);
        }
        failed.map_or(Ok(()), Err)
    })
}

/// The nearest documents to each of `embeddings_count` vectors, by the cosine, the best first: ids and scores go to the caller's buffers,
/// one of each for each vector. The size beside a buffer says how many it has room for, and then how many were found. `options_json` may
/// have `top_k` (10), `score_threshold` (-1: none) and `filter`, which is ours. Returns 0, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_index_query(
    index: *mut c_void,
    embeddings: *const *const c_float,
    embeddings_count: usize,
    embedding_dim: usize,
    options_json: *const c_char,
    id_buffers: *mut *mut c_int,
    id_buffer_sizes: *mut usize,
    score_buffers: *mut *mut c_float,
    score_buffer_sizes: *mut usize,
) -> c_int {
    guard::status(|| {
        let reader = INDEXES.get(index)?.read()?;
        // SAFETY: the header's contract of arrays and strings.
        let (vectors, options) = unsafe {
            let options = input::optional_text(options_json, "options_json")?;
            (
                input::values(embeddings, embeddings_count, "embeddings")?,
                input::object(options, "options_json")?,
            )
        };
        // SAFETY: the header's contract of arrays.
        let (ids, scores) = unsafe {
            places(id_buffer_sizes, embeddings_count, "id_buffer_sizes")?;
            places(score_buffer_sizes, embeddings_count, "score_buffer_sizes")?;
            (
                places(id_buffers, embeddings_count, "id_buffers")?,
                places(score_buffers, embeddings_count, "score_buffers")?,
            )
        };
        let asked = Asked::read(&options)?;
        for (i, vector) in vectors.iter().enumerate() {
            // SAFETY: the header's contract of arrays.
            let vector = unsafe { input::values(*vector, embedding_dim, &format!("embeddings[{i}]")) }?;
            if ids[i].is_null() || scores[i].is_null() {
                let what = format!("`id_buffers[{i}]`, `score_buffers[{i}]`: expected room for results, found NULL");
                return Err(Failure::argument(what));
            }
            // SAFETY: sizes were checked.
            let room = unsafe {
                id_buffer_sizes
                    .add(i)
                    .read_unaligned()
                    .min(score_buffer_sizes.add(i).read_unaligned())
            };
            let mut hits = reader.search(&Query::Vector(vector), asked.filter.as_ref(), asked.top.min(room))?;
            hits.retain(|hit| hit.score >= asked.least);
            let numbers: Vec<c_int> = hits.iter().map(|hit| number(&hit.id)).collect();
            let found: Vec<f32> = hits.iter().map(|hit| hit.score).collect();
            // SAFETY: the header's contract of buffers; no more was asked for than they have room for.
            unsafe {
                copied(&numbers, ids[i], id_buffer_sizes.add(i), &format!("id_buffers[{i}]"))?;
                copied(
                    &found,
                    scores[i],
                    score_buffer_sizes.add(i),
                    &format!("score_buffers[{i}]"),
                )?;
            }
        }
        Ok(())
    })
}

/// What a search asks for.
struct Asked {
    top: usize,
    least: f32,
    filter: Option<cactus_retrieval::Filter>,
}

impl Asked {
    fn read(options: &serde_json::Map<String, serde_json::Value>) -> Result<Asked> {
        let given = |name: &str| options.get(name).filter(|value| !value.is_null());
        let wrong = |name: &str, expected: &str, found: &serde_json::Value| {
            Failure::argument(format!("`options_json`: `{name}` should be {expected}, found {found}"))
        };
        let top = given("top_k").map_or(Ok(TOP), |value| {
            value
                .as_u64()
                .filter(|n| *n > 0)
                .ok_or_else(|| wrong("top_k", "a whole number from 1 on", value))
        })?;
        let least = given("score_threshold").map_or(Ok(-1.0), |value| {
            value
                .as_f64()
                .ok_or_else(|| wrong("score_threshold", "a number", value))
        })?;
        Ok(Asked {
            top: usize::try_from(top).unwrap_or(usize::MAX),
            // The cosine of opposite vectors may be less than -1 by rounding.
            least: if least <= -1.0 { f32::NEG_INFINITY } else { least as f32 },
            filter: given("filter").map(cactus_retrieval::Filter::from_json).transpose()?,
        })
    }
}

/// Writes the file of an index anew, without what was deleted. Returns 0, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_index_compact(index: *mut c_void) -> c_int {
    guard::status(|| {
        INDEXES.get(index)?.write(|index| index.compact())?;
        Ok(())
    })
}

/// Closes an index. What was added is in its file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_index_destroy(index: *mut c_void) {
    guard::quiet(|| INDEXES.remove(index).map(drop));
}
