//! What a front end hands to the converter.

use crate::{Error, Result, SentenceFolder, ctranslate2, ggml, gguf, hf, ort, silero};
use cactus_tensor::Tensor;
use serde_json::Value;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Weights by name, in the convention of Hugging Face `transformers`: its names, `[out, in]` shapes and values.
///
/// Reading is from `&self` and from any thread: a converter may read several tensors at once.
pub trait TensorSource: Send + Sync {
    /// The names of all tensors, sorted.
    fn names(&self) -> Vec<&str>;

    /// The shape of a tensor, outermost axis first; `None` where there is none of that name.
    fn shape(&self, name: &str) -> Option<Vec<usize>>;

    /// The type that the source stores a tensor in, such as `BF16` or `Q4_K`; `None` where there is none of that name.
    fn stored_type(&self, name: &str) -> Option<&'static str>;

    /// A tensor as `f32`, row-major.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Missing`] where there is none of that name, [`crate::ErrorKind::Unsupported`] where it is
    /// not a float type and so cannot be a weight.
    fn read(&self, name: &str) -> Result<Tensor>;

    /// Rows `rows` of a matrix as `f32`, row-major, where the source can read them without the rest of it. Of more axes all but the
    /// last count rows.
    ///
    /// # Errors
    /// As [`TensorSource::read`].
    fn read_rows(&self, _name: &str, _rows: Range<usize>) -> Option<Result<Tensor>> {
        None
    }

    /// One line about the source, such as `GGUF version 3, 272 tensors (Q4_1 210, F32 61, Q8_0 1)`.
    fn describe(&self) -> String;

    /// The files that hold the tensors, for a provenance record.
    fn files(&self) -> Vec<PathBuf>;
}

/// Tokenizer files in the Hugging Face form.
#[derive(Clone, Debug)]
pub struct TokenizerFiles {
    /// The text of `tokenizer.json`.
    pub tokenizer_json: Vec<u8>,
    /// `tokenizer_config.json`: special token texts, whether a beginning-of-text token is added.
    pub tokenizer_config: Value,
    /// The Jinja chat template; `None` for a base model.
    pub chat_template: Option<String>,
}

/// A model as a front end found it, before conversion.
pub struct SourceModel {
    /// What form the source has, as a provenance record names it: `huggingface`, `gguf`, `ctranslate2`, `ggml`, `silero`,
    /// `onnx`, `onnxruntime`.
    pub format: &'static str,
    /// `config.json`, or what it would be.
    pub config: Value,
    /// `generation_config.json`, or what it would be: sampling defaults, the ids that end an answer. An empty object
    /// where the source has none.
    pub generation_config: Value,
    /// `preprocessor_config.json`, or the section `feature_extractor` of `processor_config.json`: how sound becomes an input.
    /// An empty object where the source does not say.
    pub front_end: Value,
    /// The section `feature_extractor` of a model that sees and hears, whose `front_end` is what pictures go through. An empty object where
    /// the source does not say.
    pub hearing: Value,
    /// What a folder of sentence-transformers says beside the transformer; `None` where it is another.
    pub sentence: Option<SentenceFolder>,
    /// The tokenizer; `None` where the source has none.
    pub tokenizer: Option<TokenizerFiles>,
    /// The weights.
    pub tensors: Box<dyn TensorSource>,
}

impl std::fmt::Debug for SourceModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceModel")
            .field("config", &self.config)
            .field("tensors", &self.tensors.describe())
            .finish_non_exhaustive()
    }
}

/// Opens a Hugging Face folder, a GGUF file, a Whisper model as a folder of CTranslate2 or a file of whisper.cpp, the tensors
/// or the program of Silero VAD, or a folder of Moonshine for ONNX Runtime, whichever `path` is.
///
/// # Errors
/// [`crate::ErrorKind::Missing`] where nothing is there, [`crate::ErrorKind::Unsupported`] where it is none of them,
/// otherwise as [`hf::open_folder`], [`gguf::open_file`], [`ctranslate2::open_folder`] and [`ggml::open_file`].
pub fn open(path: &Path) -> Result<SourceModel> {
    open_for(path, None)
}

/// As [`open`]; of a file with several networks that for `rate_hz` samples a second.
///
/// # Errors
/// As [`open`]; [`crate::ErrorKind::Unsupported`] where there is none for that rate.
pub(crate) fn open_for(path: &Path, rate_hz: Option<u32>) -> Result<SourceModel> {
    let about = std::fs::metadata(path).map_err(|e| Error::reading(path, e))?;
    if let Some(file) = silero::file_of(path) {
        return silero::open_file(&file, rate_hz);
    }
    if about.is_dir() && ctranslate2::is_folder(path) {
        return ctranslate2::open_folder(path);
    }
    if about.is_dir() && ort::is_folder(path) {
        return ort::open_folder(path);
    }
    if about.is_dir() {
        return hf::open_folder(path);
    }
    let mut magic = [0; 4];
    let mut file = std::fs::File::open(path).map_err(|e| Error::reading(path, e))?;
    match std::io::Read::read_exact(&mut file, &mut magic) {
        Ok(()) if magic == gguf::MAGIC => gguf::open_file(path),
        Ok(()) if magic == ggml::MAGIC => ggml::open_file(path),
        Ok(()) => Err(not_a_model(path)),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Err(not_a_model(path)),
        Err(e) => Err(Error::reading(path, e)),
    }
}

fn not_a_model(path: &Path) -> Error {
    Error::unsupported(
        "expected a GGUF file (which starts with `GGUF`), a Whisper file of whisper.cpp, Silero VAD's `silero_vad_16k.safetensors` or `silero_vad.onnx`, a folder with `config.json` and `model.safetensors`, or one of Moonshine with `encoder_model.ort`",
    )
    .in_file(path)
}

/// `Q4_1 210, F32 61, Q8_0 1`: each type with its count, most frequent first.
pub(crate) fn count_types<'a>(types: impl Iterator<Item = &'a str>) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for ty in types {
        match counts.iter_mut().find(|(name, _)| *name == ty) {
            Some((_, count)) => *count += 1,
            None => counts.push((ty, 1)),
        }
    }
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let parts: Vec<String> = counts.iter().map(|(t, n)| format!("{t} {n}")).collect();
    parts.join(", ")
}
