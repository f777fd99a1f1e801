//! What to do about an error. Libraries say what is wrong; only this file says what to type.

use cactus_bundle::ErrorKind as BundleKind;
use cactus_engine::ErrorKind as EngineKind;
use cactus_hub::ErrorKind as HubKind;
use cactus_retrieval::ErrorKind as IndexKind;

/// What failed, and what to do about it in this command, whose options are not those of every other.
#[derive(Debug)]
pub(crate) struct Advised {
    pub(crate) what: String,
    pub(crate) advice: String,
}

impl Advised {
    /// `error`, with this where it is a bundle below the floor.
    pub(crate) fn of_floor(self, error: anyhow::Error) -> anyhow::Error {
        if is_floor(&error) { error.context(self) } else { error }
    }
}

fn is_floor(error: &anyhow::Error) -> bool {
    let floor = |e: &cactus_quality::Error| matches!(e, cactus_quality::Error::Floor { .. });
    error.chain().any(|e| e.downcast_ref().is_some_and(floor))
}

impl std::fmt::Display for Advised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

/// What to do where a model cannot see.
pub(crate) const NAME_SEEING: &str = "name a model that sees, such as `HuggingFaceTB/SmolVLM2-500M-Video-Instruct`";

/// What to do where a model cannot hear.
pub(crate) const NAME_HEARING: &str =
    "name a model that hears, such as `google/gemma-4-E2B-it`; `cactus transcribe` writes down what is said";

/// What to do where a captured language model has to read a text.
pub(crate) const NAME_TOKENIZER: &str = "name the folder of the model's tokenizer with `--tokenizer FOLDER`";

/// What to do about `error`, where something can be done.
pub(crate) fn for_error(error: &anyhow::Error) -> Option<String> {
    if let Some(advised) = error.downcast_ref::<Advised>() {
        return Some(advised.advice.clone());
    }
    error.chain().find_map(|e| {
        if let Some(e) = e.downcast_ref::<cactus_hub::Error>() {
            return hub(e);
        }
        if let Some(e) = e.downcast_ref::<cactus_bundle::Error>() {
            return bundle(e.kind());
        }
        if let Some(e) = e.downcast_ref::<cactus_engine::Error>() {
            return engine(e);
        }
        if let Some(e) = e.downcast_ref::<cactus_runtime::Error>() {
            return runtime(e);
        }
        if let Some(e) = e.downcast_ref::<cactus_quality::Error>() {
            return quality(e);
        }
        if let Some(e) = e.downcast_ref::<cactus_import::Error>() {
            return import(e);
        }
        if let Some(cactus_rag::Error::Index(e)) = e.downcast_ref() {
            return index(e);
        }
        if let Some(e) = e.downcast_ref::<cactus_retrieval::Error>() {
            return index(e);
        }
        if let Some(e) = e.downcast_ref::<cactus_embed::Error>() {
            return embed(e);
        }
        if let Some(cactus_speech::Error::Model(what)) = e.downcast_ref() {
            let is_wrong = what.contains("does not transcribe");
            return is_wrong.then(|| "name a model that hears, such as `openai/whisper-tiny.en`".to_owned());
        }
        if let Some(cactus_router::hybrid::Error::Damaged { .. }) = e.downcast_ref() {
            let text =
                "keep a copy of the file, then remove it: the budgets begin anew, and what was spent is forgotten";
            return Some(text.to_owned());
        }
        None
    })
}

fn index(e: &cactus_retrieval::Error) -> Option<String> {
    let text = match e.kind() {
        IndexKind::Busy => "wait until the other program is done, or search what the index has with `--no-sync`",
        IndexKind::Recipe => {
            "name the model that the index was made with by `--embedder`, or another file by `--index`; or delete the index, and it is made anew"
        }
        IndexKind::NotAnIndex | IndexKind::Version | IndexKind::Damaged => {
            "name another file by `--index`, or delete this one: it is made anew from the documents"
        }
        IndexKind::Io => {
            "`--index FILE` keeps the index where it can be written; a search with `--no-sync` only reads it"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

fn hub(e: &cactus_hub::Error) -> Option<String> {
    if let [first, ..] = e.suggestions() {
        return Some(format!("did you mean `{first}`? `cactus list` shows all names"));
    }
    let text = match (e.kind(), e) {
        (_, cactus_hub::Error::OfflineMode { .. }) => {
            "leave out `--offline` to download it, or give the path of a model that is on this machine"
        }
        (HubKind::Offline, _) => {
            "check the network connection, or give the path of a model file or folder that is on this machine"
        }
        (_, cactus_hub::Error::UnknownModel { .. }) => {
            "`cactus list` shows known models; a path, a Hugging Face id `org/name` or an address `https://…` also works"
        }
        (_, cactus_hub::Error::NotCached { .. }) => "`cactus list` shows what is in the cache",
        (HubKind::NotFound, cactus_hub::Error::NotFound { what, .. }) if what.contains("://") => {
            "check the address; it is that of a .gguf file, or of the folder of a bundle, in which `components/manifest.json` is"
        }
        (HubKind::NotFound, _) => "check the spelling; `cactus list` shows known models",
        (_, cactus_hub::Error::Unauthorized { what, .. }) if what.contains("://") => {
            "no token is sent to an address; use one that is open to all or signed, or download the model by other means and give its path"
        }
        (HubKind::Unauthorized, _) => {
            "accept the model's terms on its Hugging Face page, then give your token with `--token` or `HF_TOKEN`"
        }
        (HubKind::Checksum, _) => {
            "the download was damaged, or the file has changed at its source; try again, and if that fails do not use it"
        }
        (HubKind::NoSpace, _) => "free some space, or set `CACTUS_CACHE` to a folder on another disk",
        (HubKind::ToolMissing, _) => "install Python 3 with pip, or give the path of a model file instead",
        (HubKind::Unsupported, _) => {
            "a model is a bundle, a GGUF file, or a folder with `config.json` and .safetensors files"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

fn bundle(kind: BundleKind) -> Option<String> {
    let text = match kind {
        BundleKind::Version => {
            "convert the model again: `cactus convert --force`, or `cactus run --reconvert` for a model in the cache"
        }
        BundleKind::Checksum | BundleKind::Truncated | BundleKind::Invalid => {
            "the bundle is damaged; convert the model again: `cactus convert --force`, or `cactus run --reconvert` for a model in \
             the cache"
        }
        BundleKind::Lost => {
            "no text that depends on the missing bytes was printed; check the disk, then run `cactus inspect --verify` to see \
             whether the bundle is whole"
        }
        BundleKind::NotABundle => "make a bundle with `cactus convert MODEL FOLDER`",
        BundleKind::Exists => "give another folder, or `--force` to replace the bundle",
        BundleKind::NoSpace => "free some space, or write to another disk",
        _ => return None,
    };
    Some(text.to_owned())
}

fn quality(e: &cactus_quality::Error) -> Option<String> {
    use cactus_quality::Error as E;
    match e {
        E::Floor { calibrated: false, .. } => Some(
            "use more bits, an average such as `--bits auto:4.5`, or leave out `--no-calibrate`; `--force` writes the bundle anyway"
                .to_owned(),
        ),
        E::Floor { calibrated: true, .. } => Some(
            "use more bits, or an average such as `--bits auto:4.5`; `--force` writes the bundle anyway".to_owned(),
        ),
        E::Text(what) if what.ends_with(cactus_quality::NO_TOKENIZER) => Some(NAME_TOKENIZER.to_owned()),
        E::Bundle(e) => bundle(e.kind()),
        E::Engine(e) => engine(e),
        E::Runtime(e) => runtime(e),
        E::Convert(e) => import(e),
        _ => None,
    }
}

fn import(e: &cactus_import::Error) -> Option<String> {
    let cause = e.cause()?.downcast_ref::<cactus_bundle::Error>()?;
    bundle(cause.kind())
}

fn embed(e: &cactus_embed::Error) -> Option<String> {
    match e {
        cactus_embed::Error::Model(what) if what.contains("makes no vectors of texts") => {
            Some("name a model that makes vectors, such as `sentence-transformers/all-MiniLM-L6-v2`".to_owned())
        }
        cactus_embed::Error::Model(what) if what.contains("scores no documents") => {
            Some("name a reranker, such as `cross-encoder/ms-marco-MiniLM-L6-v2`".to_owned())
        }
        cactus_embed::Error::Bundle(e) => bundle(e.kind()),
        cactus_embed::Error::Engine(e) => engine(e),
        cactus_embed::Error::Runtime(e) => runtime(e),
        _ => None,
    }
}

fn runtime(e: &cactus_runtime::Error) -> Option<String> {
    match e {
        cactus_runtime::Error::Bundle(e) => bundle(e.kind()),
        _ => None,
    }
}

fn engine(e: &cactus_engine::Error) -> Option<String> {
    match e {
        cactus_engine::Error::Bundle(e) => return bundle(e.kind()),
        cactus_engine::Error::Runtime(e @ cactus_runtime::Error::Bundle(_)) => return runtime(e),
        cactus_engine::Error::Hears { path, finds } => {
            let command = if *finds { "vad" } else { "transcribe" };
            return Some(format!("`cactus {command} FILE --model {}`", path.display()));
        }
        cactus_engine::Error::Embeds { path, ranks } => {
            let path = path.display();
            return Some(match ranks {
                true => format!("`cactus rerank {path} QUERY DOCUMENT DOCUMENT`"),
                false => format!("`cactus embed {path} TEXT`"),
            });
        }
        _ => {}
    }
    let text = match e.kind() {
        EngineKind::ContextFull => {
            "raise `--context`, shorten the prompt, or use `--rolling` to drop the oldest tokens"
        }
        EngineKind::Bundle => "convert the model again with `cactus convert --force`",
        EngineKind::Saved => "name another file with `--session`, or remove this one to begin again",
        _ => return None,
    };
    Some(text.to_owned())
}
