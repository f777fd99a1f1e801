//! Answers requests over HTTP until it is told to stop: options, where models are, and what is printed. The server itself is
//! `cactus-serve`.

use crate::args::{ModelArgs, ServeArgs};
use crate::commands::corpus::DEFAULT_EMBEDDER;
use crate::commands::watch::Watched;
use crate::commands::{corpus, route};
use crate::hint::Advised;
use crate::{model, output};
use anyhow::{Context as _, Result};
use cactus_engine::LoadOptions;
use cactus_engine::scheduler::SchedulerLimits;
use cactus_hub::{Fetcher, ModelRef, preferred};
use cactus_rag::INDEX_FILE;
use cactus_router::Router;
use cactus_router::setup::Setup;
use cactus_serve::models::{Does, ModelLimits, Models, Source};
use cactus_serve::{Documents, Fetch, ServeOptions, Tls};
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Keys, separated by commas.
const KEY_VARIABLE: &str = "CACTUS_API_KEY";

/// Files at public addresses.
#[derive(Debug)]
struct Public(Fetcher);

impl Fetch for Public {
    fn fetch(&self, address: &str) -> std::result::Result<Vec<u8>, String> {
        self.0.fetch(address)
    }
}

pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    if args.policy.is_none() {
        args.cactus.check_without_target(&[], "`--policy FILE`")?;
    }
    log();
    let limits = ModelLimits {
        load: LoadOptions {
            picture_rows: args.image_tokens.map(|tokens| tokens as usize),
            ..model::load_options(&args.engine)
        },
        scheduler: SchedulerLimits {
            sequences: args.parallel,
            queue: args.queue,
            kv_tokens: args.kv_tokens,
            ..SchedulerLimits::default()
        },
        memory_bytes: args.max_memory,
        picture_tokens: args.image_tokens,
        idle: args.idle.map(|minutes| Duration::from_secs(60 * u64::from(minutes))),
    };
    let names = names(args)?;
    let sources = names
        .iter()
        .map(|name| source(args, name))
        .collect::<Result<Vec<_>>>()?;
    let makes_vectors = |source: &Source| source.does.is_none_or(|does| does == Does::Embeds);
    if !args.documents.is_empty() && !sources.iter().any(makes_vectors) {
        return Err(anyhow::Error::msg(Advised {
            what: "`--documents` needs a model that makes vectors, and none is served".to_owned(),
            advice: format!("name one more: `cactus serve {} {DEFAULT_EMBEDDER}`", names.join(" ")),
        }));
    }
    let preload = match args.lazy {
        true => Vec::new(),
        false => sources.iter().take(1).map(|source| source.name.clone()).collect(),
    };
    let options = options(args)?;
    // One thread for all input and output: the cores are for computing.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("cactus-http")
        .enable_all()
        .build()
        .context("the server's thread cannot be started")?;
    let open = options.keys.is_empty();
    let spends = options.router.is_some();
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let listening = move |address: SocketAddr| {
        let shown = match address.ip().is_unspecified() {
            true => SocketAddr::new([127, 0, 0, 1].into(), address.port()),
            false => address,
        };
        output::note(format!(
            "chat: {scheme}://{shown}    APIs: {scheme}://{shown}/v1    stop: Ctrl-C"
        ));
        if open && !address.ip().is_loopback() {
            output::warning("anybody who reaches this machine can use the server; set a key with `--api-key`");
            if spends {
                output::warning("with `--policy`, whoever uses it spends what the policy's budget allows");
            }
        }
    };
    runtime.block_on(async move {
        let models = Models::new(sources, limits);
        cactus_serve::serve(models, options, preload, listening, stopped).await
    })?;
    // A download under way has no end of its own.
    runtime.shutdown_background();
    Ok(())
}

/// Events of the server, on standard error.
fn log() {
    let subscriber = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .with_max_level(tracing::Level::INFO);
    // Only fails if there is one already, which is as good.
    let _ = subscriber.try_init();
}

fn names(args: &ServeArgs) -> Result<Vec<String>> {
    if !args.models.is_empty() {
        return Ok(args.models.clone());
    }
    match model::named(None, args.small) {
        Some(name) => Ok(vec![name.to_owned()]),
        None => Ok(vec![model::meant(&model::hub(
            args.source.token.clone(),
            args.source.offline,
        )?)?]),
    }
}

/// The model that the user calls `name`: served under its own name.
fn source(args: &ServeArgs, name: &str) -> Result<Source> {
    let reference = ModelRef::parse(name)?;
    let own = match &reference {
        ModelRef::Local(path) => {
            let full = std::fs::canonicalize(path).with_context(|| format!("there is no model at `{name}`"))?;
            let last = if full.is_dir() {
                full.file_name()
            } else {
                full.file_stem()
            };
            last.unwrap_or(full.as_os_str()).to_string_lossy().into_owned()
        }
        // As a file or folder of that name here.
        ModelRef::Address(address) => {
            let last = address.name();
            let stem = last.len() - ".gguf".len().min(last.len());
            match last.get(stem..) {
                Some(end) if end.eq_ignore_ascii_case(".gguf") => last[..stem].to_owned(),
                _ => last.to_owned(),
            }
        }
        other => model::name_of(other),
    };
    let model = ModelArgs {
        model: Some(name.to_owned()),
        small: false,
        source: args.source.clone(),
        reconvert: false,
    };
    Ok(Source {
        name: own,
        aliases: vec![name.to_owned()],
        does: match &reference {
            ModelRef::Local(path) => does(path),
            ModelRef::Catalog(_) => Some(Does::Writes),
            ModelRef::HuggingFace(repo) if *repo == preferred().repo => Some(Does::Writes),
            other => {
                let hub = model::hub(args.source.token.clone(), args.source.offline)?;
                hub.find(other).ok().flatten().and_then(|found| does(&found.path))
            }
        },
        find: Arc::new(move || {
            let find = || -> Result<std::path::PathBuf> {
                let path = model::bundle(&model)?;
                model::needs_program(&cactus_engine::Bundle::open(&path)?)?;
                Ok(path)
            };
            find().map_err(|e| format!("{e:#}"))
        }),
    })
}

/// What the model at `path` is for, a bundle or what becomes one; `None` where that is not known before it is converted.
fn does(path: &Path) -> Option<Does> {
    // Most such files hold a language model, and the vocabulary takes long to become a tokenizer.
    if path
        .extension()
        .is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"))
        && !cactus_import::gguf::may_make_vectors(path)
    {
        return Some(Does::Writes);
    }
    let made = || match cactus_import::task_of(path)? {
        "text_embedding" if cactus_import::makes_token_vectors(path)? => Ok(Does::EmbedsTokens),
        "text_embedding" => Ok(Does::Embeds),
        "text_ranking" => Ok(Does::Ranks),
        _ => cactus_import::speech_of(path).map(|speech| Does::with(speech.as_ref())),
    };
    Does::of(path).ok().or_else(|| made().ok())
}

fn options(args: &ServeArgs) -> Result<ServeOptions> {
    let mut keys = args.api_key.clone();
    if keys.is_empty()
        && let Ok(listed) = std::env::var(KEY_VARIABLE)
    {
        keys = listed.split(',').map(|key| key.trim().to_owned()).collect();
        keys.retain(|key| !key.is_empty());
    }
    if keys.iter().any(|key| key.trim().is_empty()) {
        anyhow::bail!("`--api-key` is empty; leave it out to serve without keys");
    }
    let tls = args.tls_cert.clone().zip(args.tls_key.clone());
    let plain = ServeOptions::new(SocketAddr::new(args.host, args.port));
    let body_bytes = usize::try_from(args.max_body).unwrap_or(usize::MAX);
    Ok(ServeOptions {
        keys,
        allowed_hosts: args.allow_host.clone(),
        allowed_origins: args.allow_origin.clone(),
        body_bytes,
        bodies_bytes: plain.bodies_bytes.max(body_bytes.saturating_mul(4)),
        data: args.data.clone(),
        documents: args
            .documents
            .iter()
            .map(|folder| documents(folder))
            .collect::<Result<_>>()?,
        extract: corpus::extract(),
        fetch: args
            .fetch_media
            .then(|| Arc::new(Public(Fetcher::default())) as Arc<dyn Fetch>),
        embedder: args.embedder.clone(),
        file_bytes: usize::try_from(args.max_file).unwrap_or(usize::MAX),
        audio_bytes: usize::try_from(args.max_audio).unwrap_or(usize::MAX),
        audio_time: Duration::from_secs(60 * u64::from(args.max_audio_minutes)),
        recordings: args.recordings,
        timeout: Duration::from_secs(args.timeout),
        drain: Duration::from_secs(args.drain),
        tls: tls.map(|(certificate, key)| Tls { certificate, key }),
        router: args.policy.as_deref().map(|policy| router(args, policy)).transpose()?,
        ..plain
    })
}

/// A folder that is searched, with its index in it.
fn documents(folder: &Path) -> Result<Documents> {
    let whole = std::fs::canonicalize(folder).ok().filter(|folder| folder.is_dir());
    let Some(folder) = whole else {
        anyhow::bail!(
            "`--documents`: `{}` is not a folder; name the folder with the documents",
            folder.display()
        );
    };
    Ok(Documents {
        index: folder.join(INDEX_FILE),
        watch: Some(Arc::new(Watched::of(&folder)?)),
        folder,
    })
}

/// The router of a policy file. A target without its key is told of, and the others work.
fn router(args: &ServeArgs, policy: &Path) -> Result<Arc<Router>> {
    let setup = Setup {
        file: Some(policy),
        options: args.cactus.0.clone(),
        ..Setup::default()
    };
    let configured = setup.read(&|name| std::env::var(name).ok())?;
    let router = Router::new(configured, &route::folder()?, &route::keys()?)?;
    for name in router.policy().targets.keys() {
        if let Err(error) = router.check(name) {
            output::warning(error);
        }
    }
    Ok(Arc::new(router))
}

/// Waits until the user or the system wants the server to stop; a second time, that it does not wait for answers.
async fn stopped() {
    #[cfg(unix)]
    {
        let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
        match terminate {
            Ok(mut terminate) => tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            },
            Err(_) => drop(tokio::signal::ctrl_c().await),
        }
    }
    #[cfg(not(unix))]
    drop(tokio::signal::ctrl_c().await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_say_what_they_are_for_before_they_are_converted() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden");
        for (path, expected) in [
            ("speech/whisper", Some(Does::Hears)),
            ("speech/moonshine", Some(Does::Hears)),
            ("speech/silero_vad", Some(Does::FindsSpeech)),
            ("embedding/bert", Some(Does::Embeds)),
            ("embedding/bert_tokens", Some(Does::EmbedsTokens)),
            ("embedding/xlm_roberta_ranker", Some(Does::Ranks)),
            ("models/qwen2_tied", Some(Does::Writes)),
            ("gguf/qwen3.gguf", Some(Does::Writes)),
            ("speech", None),
        ] {
            assert_eq!(does(&golden.join(path)), expected, "{path}");
        }
        assert_eq!(does(Path::new("any.gguf")), Some(Does::Writes));
    }
}
