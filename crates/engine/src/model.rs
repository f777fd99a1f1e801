//! The immutable half of the engine: a loaded bundle with its program, tokenizer, template and threads.

use crate::chat::{Sense, Shows};
use crate::constraints::{Constraints, GrammarStats};
use crate::media::{self, Known};
use crate::options::GenerateOptions;
use crate::{Error, Result, Session};
use cactus_base::{Cores, Pool};
use cactus_bundle::{Bundle, Decoding, Gives};
use cactus_runtime::{KvDType, Options, Program};
use cactus_text::grammar::GrammarCompiler;
use cactus_text::{ChatTemplate, ChatTemplateSource, Tokenizer, TokenizerSource, TokenizerTables};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

/// Choices made when a model is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Tokens a session can hold; at most what the model was made for.
    pub context_tokens: usize,
    /// Prompt tokens computed at once, beside the rows of a picture in models whose pictures see themselves.
    pub chunk_tokens: usize,
    /// Most rows of a picture in such models; `None` is as many as the bundle says.
    pub picture_rows: Option<usize>,
    /// Element type of the KV cache.
    pub kv_dtype: KvDType,
    /// Threads for prompts, the caller's included, 1 to 1024; `None` is one for each fast core (see [`Cores`]).
    pub threads: Option<usize>,
    /// Threads for generating, 1 to 1024; `None` as for prompts.
    pub decode_threads: Option<usize>,
    /// Whether the threads that this model starts are kept on the fast cores.
    pub pin: bool,
}

/// Most threads that a model starts.
const MAX_THREADS: usize = 1024;

impl Default for LoadOptions {
    fn default() -> Self {
        let runtime = Options::default();
        LoadOptions {
            context_tokens: runtime.context_tokens,
            chunk_tokens: runtime.chunk_tokens,
            picture_rows: None,
            kv_dtype: runtime.kv_dtype,
            threads: None,
            decode_threads: None,
            pin: false,
        }
    }
}

type TextParts = Result<(Arc<Tokenizer>, Option<ChatTemplate>)>;

/// A loaded model. See the crate documentation.
#[derive(Debug)]
pub struct Model {
    program: Arc<Program>,
    pool: Pool,
    threads: AtomicUsize,
    decode_threads: AtomicUsize,
    eos: OnceLock<Vec<u32>>,
    defaults: GenerateOptions,
    text: OnceLock<Option<TextParts>>,
    /// The tokenizer is built beside everything else: its tables take longer than mapping the weights.
    loading: Mutex<Option<JoinHandle<TextParts>>>,
    constraints: OnceLock<Result<Constraints>>,
    media: Known,
    pictures: OnceLock<Arc<dyn Shows>>,
    sounds: OnceLock<Arc<dyn Shows>>,
    films: OnceLock<Arc<dyn Shows>>,
}

impl Model {
    /// Loads the bundle in the folder `path`.
    ///
    /// # Errors
    /// What is missing, damaged or not supported, naming file and place.
    pub fn load(path: &Path, options: &LoadOptions) -> Result<Arc<Model>> {
        Self::of(Arc::new(Bundle::open(path)?), options)
    }

    /// As [`Model::load`], of a bundle that is open.
    ///
    /// # Errors
    /// As [`Model::load`].
    #[doc(hidden)]
    pub fn of(bundle: Arc<Bundle>, options: &LoadOptions) -> Result<Arc<Model>> {
        Self::check_answers(&bundle)?;
        let (text, mut loading) = (OnceLock::new(), None);
        if Self::has_tokenizer(&bundle) {
            let bundle = Arc::clone(&bundle);
            let load = move || {
                let (tokenizer, template) = Model::load_text(&bundle)?;
                Ok((Arc::new(tokenizer), template))
            };
            match cfg!(target_family = "wasm") {
                false => loading = Some(std::thread::spawn(load)),
                true => drop(text.set(Some(load()))),
            }
        }
        let defaults = match bundle.has_file("generation_config.json") {
            true => generation_defaults(&bundle.file("generation_config.json")?)?,
            false => GenerateOptions::default(),
        };
        let cores = Cores::detect();
        for (what, count) in [("threads", options.threads), ("decode threads", options.decode_threads)] {
            if let Some(count) = count.filter(|count| !(1..=MAX_THREADS).contains(count)) {
                return Err(Error::Argument(format!(
                    "expected 1 to {MAX_THREADS} {what}, found {count}"
                )));
            }
        }
        let threads = options.threads.unwrap_or_else(|| cores.threads()).max(1);
        let decode_threads = options.decode_threads.unwrap_or(threads);
        let rows_together = media::rows_of_view(&bundle, options.picture_rows)?;
        let program = Program::new(
            bundle,
            "decoder",
            &Options {
                context_tokens: options.context_tokens,
                chunk_tokens: options.chunk_tokens,
                // A picture fits, whatever else a call computes.
                rows_together,
                kv_dtype: options.kv_dtype,
                kernels: None,
            },
        )?;
        Ok(Arc::new(Model {
            program: Arc::new(program),
            pool: Pool::on(threads.max(decode_threads), if options.pin { &cores.fast } else { &[] }),
            threads: AtomicUsize::new(threads),
            decode_threads: AtomicUsize::new(decode_threads),
            eos: OnceLock::new(),
            defaults,
            text,
            loading: Mutex::new(loading),
            constraints: OnceLock::new(),
            media: Known::default(),
            pictures: OnceLock::new(),
            sounds: OnceLock::new(),
            films: OnceLock::new(),
        }))
    }

    /// A new conversation.
    ///
    /// # Errors
    /// Where its memory cannot be had.
    pub fn session(self: &Arc<Self>) -> Result<Session> {
        Session::new(Arc::clone(self))
    }

    /// Tokens of prompt and answer together that it was loaded for.
    pub fn context_tokens(&self) -> usize {
        self.program.context_tokens()
    }

    /// The program. Like everything hidden here it is for the crates of this workspace: the facade `cactus` promises none of it.
    #[doc(hidden)]
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The bundle.
    #[doc(hidden)]
    pub fn bundle(&self) -> &Arc<Bundle> {
        self.program.bundle()
    }

    /// Logits for a position.
    pub fn vocab_size(&self) -> usize {
        self.program.vocab_size()
    }

    /// Generation options of the model's own configuration over ours.
    pub fn default_options(&self) -> &GenerateOptions {
        &self.defaults
    }

    /// Threads for prompts.
    pub fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    /// Threads for generating.
    pub fn decode_threads(&self) -> usize {
        self.decode_threads.load(Ordering::Relaxed)
    }

    /// Uses other numbers of threads from the next pass on: at least 1, and at most as many as it was loaded with. What is `None`
    /// stays as it is. Answers are the same with any number.
    pub fn set_threads(&self, threads: Option<usize>, decode_threads: Option<usize>) {
        for (number, given) in [(&self.threads, threads), (&self.decode_threads, decode_threads)] {
            if let Some(given) = given {
                number.store(given.clamp(1, self.pool.threads()), Ordering::Relaxed);
            }
        }
    }

    /// Gives it what shows it pictures, sounds or films; once each, later ones are left.
    pub fn set_shows(&self, sense: Sense, shows: Arc<dyn Shows>) {
        let _ = match sense {
            Sense::Picture => self.pictures.set(shows),
            Sense::Sound => self.sounds.set(shows),
            Sense::Film => self.films.set(shows),
        };
    }

    /// What shows it pictures, sounds or films, where somebody gave it that.
    #[must_use]
    pub fn shows(&self, sense: Sense) -> Option<&Arc<dyn Shows>> {
        match sense {
            Sense::Picture => self.pictures.get(),
            Sense::Sound => self.sounds.get(),
            Sense::Film => self.films.get(),
        }
    }

    pub(crate) fn known_media(&self) -> &Known {
        &self.media
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The tokenizer; waits until it is built.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`], or why it cannot be read.
    pub fn tokenizer(&self) -> Result<&Arc<Tokenizer>> {
        Ok(&self.text()?.0)
    }

    /// The chat template, if the model has one.
    ///
    /// # Errors
    /// As [`Model::tokenizer`].
    pub fn chat_template(&self) -> Result<Option<&ChatTemplate>> {
        Ok(self.text()?.1.as_ref())
    }

    /// Compiles constraints for this model; made when first asked for, which takes some milliseconds.
    ///
    /// # Errors
    /// As [`Model::tokenizer`], and for a vocabulary that is too large.
    #[doc(hidden)]
    pub fn grammars(&self) -> Result<&GrammarCompiler> {
        Ok(self.constraints()?.compiler())
    }

    /// How often constraints of chats were compiled, and how often one of an earlier chat was used again.
    pub fn grammar_stats(&self) -> GrammarStats {
        match self.constraints.get() {
            Some(Ok(constraints)) => constraints.stats(),
            _ => GrammarStats::default(),
        }
    }

    pub(crate) fn constraints(&self) -> Result<&Constraints> {
        let tokenizer = self.tokenizer()?;
        let make = || match GrammarCompiler::new(Arc::clone(tokenizer)) {
            Ok(compiler) => Ok(Constraints::new(compiler)),
            Err(e) => Err(Error::Shared(Arc::new(e.into()))),
        };
        self.constraints.get_or_init(make).as_ref().map_err(Error::again)
    }

    fn text(&self) -> Result<&(Arc<Tokenizer>, Option<ChatTemplate>)> {
        let loaded = self.text.get_or_init(|| {
            let handle = self.loading.lock().unwrap_or_else(|e| e.into_inner()).take()?;
            handle.join().ok()
        });
        match loaded {
            None => Err(Error::NoTokenizer),
            Some(Ok(parts)) => Ok(parts),
            Some(Err(e)) => Err(Error::Argument(e.to_string())),
        }
    }

    /// Whether `bundle` answers prompts; one that hears, or makes vectors or scores of texts, does not.
    ///
    /// # Errors
    /// [`Error::Hears`], [`Error::Embeds`], or why it cannot be found out.
    #[doc(hidden)]
    pub fn check_answers(bundle: &Bundle) -> Result<()> {
        if let Some(embedding) = bundle.embedding()? {
            return Err(Error::Embeds {
                path: bundle.root().to_owned(),
                ranks: matches!(embedding.gives, Gives::Scores(_)),
            });
        }
        match bundle.speech()? {
            None => Ok(()),
            Some(speech) => Err(Error::Hears {
                path: bundle.root().to_owned(),
                finds: matches!(speech.decoding, Decoding::Activity {}),
            }),
        }
    }

    /// Whether `bundle` has a tokenizer: in tables, or as JSON, which older bundles have beside the tables too.
    #[doc(hidden)]
    #[must_use]
    pub fn has_tokenizer(bundle: &Bundle) -> bool {
        ["tokenizer.tables", "tokenizer.json"]
            .iter()
            .any(|path| bundle.has_file(path))
    }

    /// The tokenizer and chat template of `bundle`, without loading anything else.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`], or why they cannot be read.
    #[doc(hidden)]
    pub fn load_text(bundle: &Bundle) -> Result<(Tokenizer, Option<ChatTemplate>)> {
        let optional = |path: &str| -> Result<Option<Vec<u8>>> {
            Ok(if bundle.has_file(path) {
                Some(bundle.file(path)?)
            } else {
                None
            })
        };
        // Bundles of kinds of vocabulary without tables have the JSON alone.
        let (tokenizer, tables) = match bundle.has_file("tokenizer.tables") {
            true => (
                Vec::new(),
                Some(TokenizerTables::new(bundle.map_file("tokenizer.tables")?)),
            ),
            false => (optional("tokenizer.json")?.ok_or(Error::NoTokenizer)?, None),
        };
        let config = optional("tokenizer_config.json")?;
        let generation = optional("generation_config.json")?;
        let template = optional("chat_template.jinja")?;
        let source = TokenizerSource {
            tokenizer: &tokenizer,
            tables,
            tokenizer_config: config.as_deref(),
            generation_config: generation.as_deref(),
            ..TokenizerSource::default()
        };
        let tokenizer = Tokenizer::from_source(source)?;
        let template = match template {
            Some(t) => Some(ChatTemplate::from_source(ChatTemplateSource {
                chat_template: Some(std::str::from_utf8(&t).map_err(|e| {
                    Error::Argument(format!(
                        "`chat_template.jinja` is not valid UTF-8 at byte {}",
                        e.valid_up_to()
                    ))
                })?),
                tokenizer_config: config.as_deref(),
                ..ChatTemplateSource::default()
            })?),
            None => None,
        };
        Ok((tokenizer, template))
    }

    /// Token ids that end an answer: those of the manifest and those the tokenizer knows by name.
    pub fn eos(&self) -> &[u32] {
        self.eos.get_or_init(|| {
            let mut ids = self.bundle().manifest().tokens.eos.clone();
            if let Ok(t) = self.tokenizer() {
                ids.extend(t.stop_ids());
            }
            ids.sort_unstable();
            ids.dedup();
            ids
        })
    }
}

fn generation_defaults(bytes: &[u8]) -> Result<GenerateOptions> {
    let config = serde_json::from_slice(bytes)
        .map_err(|e| Error::Argument(format!("`generation_config.json` is not readable: {e}")))?;
    Ok(GenerateOptions::from_generation_config(&config)?)
}
