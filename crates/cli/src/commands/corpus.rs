//! Documents of a folder: kept in an index, searched, and asked about.

use crate::args::{AskArgs, CorpusArgs, FindArgs, IndexArgs, ModelArgs, SearchArgs, SourceArgs};
use crate::progress::{Unit, bar};
use crate::{model, output};
use anyhow::{Context as _, Result, bail};
use cactus_bundle::Checksum;
use cactus_embed::{EmbedOptions, Embedder, RankOptions, Reranker, Role};
use cactus_engine::chat::{Chat, ChatRequest};
use cactus_engine::{CancelToken, GenerateOptions, Model};
use cactus_rag::{Citation, Corpus, Embed, EmbedError, Found, Sources, Synced};
use cactus_retrieval::{Metric, Reader, Recipe};
use cactus_text::message;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The model where none is named and there is no index yet.
const DEFAULT_EMBEDDER: &str = "sentence-transformers/all-MiniLM-L6-v2";
/// The index of a folder, in it.
const INDEX: &str = ".cactus-index";
/// Candidates that a reranker puts in order, for each piece that is wanted.
const CANDIDATES: usize = 4;
/// Share of the words of a sentence that its source should have.
const SUPPORT: f32 = 0.5;

/// A model that makes vectors, as an index wants it.
struct Vectors {
    embedder: Embedder,
    recipe: Recipe,
}

impl Vectors {
    fn load(name: &str, source: &SourceArgs, threads: Option<u16>) -> Result<Vectors> {
        let bundle = bundle(name, source)?;
        let embedder = Embedder::open(&bundle, threads.map(usize::from))?;
        let manifest = bundle.join(cactus_bundle::MANIFEST_PATH);
        let bytes = std::fs::read(&manifest).with_context(|| format!("cannot read `{}`", manifest.display()))?;
        let recipe = Recipe {
            digest: Checksum::of(&bytes).to_string(),
            prompts: embedder.vectors().prompts.clone(),
            ..Recipe::new(name, embedder.vectors().dimensions as usize, Metric::Cosine)
        };
        Ok(Vectors { embedder, recipe })
    }

    fn embed(&self, role: Role<'_>, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let options = EmbedOptions {
            truncate: true,
            ..EmbedOptions::default()
        };
        let made = self.embedder.embed(role, texts, &options)?;
        Ok(made.rows().map(<[f32]>::to_vec).collect())
    }
}

impl Embed for Vectors {
    fn recipe(&self) -> Recipe {
        self.recipe.clone()
    }

    fn most_tokens(&self) -> usize {
        self.embedder.limit_tokens()
    }

    fn count_tokens(&self, text: &str) -> usize {
        // What cannot become tokens fits nowhere, and its vector says why.
        self.embedder.count(Role::Document, text).unwrap_or(usize::MAX)
    }

    fn embed_documents(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.embed(Role::Document, texts)
    }

    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let made = self.embed(Role::Query, &[text.to_owned()])?;
        made.into_iter().next().ok_or_else(|| "the model gave no vector".into())
    }
}

fn bundle(name: &str, source: &SourceArgs) -> Result<PathBuf> {
    model::bundle(&ModelArgs {
        model: Some(name.to_owned()),
        small: false,
        source: source.clone(),
        reconvert: false,
    })
}

/// A folder, its index, and the model of its vectors.
fn open(args: &CorpusArgs, source: &SourceArgs, threads: Option<u16>) -> Result<(Corpus, Vectors, PathBuf)> {
    if !args.folder.is_dir() {
        bail!(
            "`{}` is no folder; name the folder with the documents",
            args.folder.display()
        );
    }
    let index = args.index.clone().unwrap_or_else(|| args.folder.join(INDEX));
    let known = match index.exists() {
        true => Some(Reader::open(&index, None)?.recipe().model.clone()),
        false => None,
    };
    let given = args.embedder.as_ref().map(|name| match Path::new(name).exists() {
        // The index is asked from other folders, too.
        true => std::path::absolute(name).map_or_else(|_| name.clone(), |path| path.display().to_string()),
        false => name.clone(),
    });
    let name = given.or(known).unwrap_or_else(|| DEFAULT_EMBEDDER.to_owned());
    let vectors = Vectors::load(&name, source, threads)?;
    Ok((Corpus::new(&args.folder, &index), vectors, index))
}

/// What Ctrl-C cancels: reading a folder ends after a file, whose pieces stay, and an answer after a token. The second one ends the program.
fn interrupt() -> Result<CancelToken> {
    let cancel = CancelToken::new();
    let stop = cancel.clone();
    ctrlc::set_handler(move || {
        if stop.is_cancelled() {
            // Whatever computes is not asked; a commit is there as a whole or not at all.
            #[allow(clippy::disallowed_methods)]
            std::process::exit(130);
        }
        stop.cancel();
    })
    .context("cannot watch for Ctrl-C")?;
    Ok(cancel)
}

/// Brings the index in step with its folder, with a bar.
fn sync(corpus: &Corpus, vectors: &Vectors, cancel: &CancelToken) -> Result<Synced> {
    let bar = bar(0, "reading", Unit::Of("files"));
    let synced = corpus.sync(vectors, &|| cancel.is_cancelled(), &mut |progress| {
        bar.set_length(progress.files[1] as u64);
        bar.set_position(progress.files[0] as u64);
        bar.set_message(progress.path.to_owned());
    });
    bar.finish_and_clear();
    let synced = synced?;
    for skipped in &synced.skipped {
        output::warning(format!("`{}` was not read: {}", skipped.path, skipped.reason));
    }
    Ok(synced)
}

/// Indexes a folder.
pub(crate) fn index(args: &IndexArgs) -> Result<()> {
    let (corpus, vectors, path) = open(&args.corpus, &args.source, args.threads)?;
    let synced = sync(&corpus, &vectors, &interrupt()?)?;
    if args.corpus.json {
        let skipped = |skipped: &cactus_rag::Skipped| json!({"path": skipped.path, "reason": skipped.reason});
        return output::json(&json!({
            "index": path,
            "embedder": vectors.recipe.model,
            "files": synced.files,
            "added": synced.added,
            "changed": synced.changed,
            "removed": synced.removed,
            "pieces": synced.pieces,
            "embedded": synced.embedded,
            "skipped": synced.skipped.iter().map(skipped).collect::<Vec<_>>(),
        }));
    }
    output::line(format!(
        "{} files in {} pieces: {} new, {} changed, {} gone; {} pieces got a vector",
        synced.files - synced.skipped.len(),
        synced.pieces,
        synced.added,
        synced.changed,
        synced.removed,
        synced.embedded
    ));
    Ok(())
}

/// The pieces for a question, the best first.
fn find(
    (corpus, vectors): (&Corpus, &Vectors),
    question: &str,
    args: &FindArgs,
    source: &SourceArgs,
    threads: Option<u16>,
) -> Result<Vec<Found>> {
    let top = args.top.get() as usize;
    let Some(name) = &args.rerank else {
        return Ok(corpus.search(vectors, question, top)?);
    };
    let reranker = Reranker::open(&bundle(name, source)?, threads.map(usize::from))?;
    let found = corpus.search(vectors, question, top.saturating_mul(CANDIDATES))?;
    let texts: Vec<String> = found.iter().map(Found::in_context).collect();
    let options = RankOptions {
        truncate: true,
        ..RankOptions::default()
    };
    let ranked = reranker.score(question, &texts, &options)?;
    let order = ranked.order().into_iter().take(top);
    Ok(order.map(|i| found[i].clone().with_score(ranked.scores[i])).collect())
}

/// `docs/a.md:3-7`
fn place(found: &Found) -> String {
    let [first, last] = found.lines;
    match first == last {
        true => format!("{}:{first}", found.path),
        false => format!("{}:{first}-{last}", found.path),
    }
}

fn as_json(found: &Found) -> Value {
    json!({
        "path": found.path,
        "bytes": [found.bytes.start, found.bytes.end],
        "lines": found.lines,
        "headings": found.headings,
        "text": found.text,
        "score": found.score,
        "similarity": found.similarity,
        "bm25": found.bm25,
    })
}

/// Searches a folder.
pub(crate) fn search(args: &SearchArgs) -> Result<()> {
    let (corpus, vectors, _) = open(&args.corpus, &args.source, args.threads)?;
    let cancel = interrupt()?;
    if !args.find.no_sync {
        sync(&corpus, &vectors, &cancel)?;
    }
    let found = find(
        (&corpus, &vectors),
        &args.question,
        &args.find,
        &args.source,
        args.threads,
    )?;
    if args.corpus.json {
        return output::json(&json!({"results": found.iter().map(as_json).collect::<Vec<_>>()}));
    }
    if found.is_empty() {
        output::note("the folder has no documents");
    }
    for found in &found {
        let similarity = found.similarity.map_or(String::new(), |s| format!("  {s:.2}"));
        let headings = found.headings.join(" > ");
        output::line(format!("{}{similarity}  {headings}", place(found)).trim_end());
        for line in found.text.lines() {
            output::line(format!("    {}", output::harmless(line)));
        }
        output::line("");
    }
    Ok(())
}

/// Answers a question from a folder, with its sources.
pub(crate) fn ask(args: &AskArgs) -> Result<()> {
    let threads = args.engine.threads;
    let (corpus, vectors, _) = open(&args.corpus, &args.source, threads)?;
    let cancel = interrupt()?;
    if !args.find.no_sync {
        sync(&corpus, &vectors, &cancel)?;
    }
    let found = find((&corpus, &vectors), &args.question, &args.find, &args.source, threads)?;
    if found.is_empty() {
        bail!("the folder has no documents, so there is nothing to answer from");
    }
    // The memory of the other model is free for this one.
    drop(vectors);
    let answers = ModelArgs {
        model: args.model.clone(),
        small: false,
        source: args.source.clone(),
        reconvert: false,
    };
    let loaded = Model::load(&model::bundle(&answers)?, &model::load_options(&args.engine))?;
    let sources = Sources::new(found);
    let request = ChatRequest {
        messages: vec![
            message("system", &sources.instructions()),
            message("user", &args.question),
        ],
        ..ChatRequest::default()
    };
    let prepared = Chat::new(&loaded, &request)?;
    let options = GenerateOptions {
        max_tokens: args.max_new_tokens,
        ..loaded.default_options().clone()
    };
    let mut shown = 0;
    let mut text = String::new();
    let mut session = loaded.session()?;
    let completion = session.generate(&prepared.prompt, &options, &cancel, &mut |delta| {
        text.push_str(delta.text);
        if !args.corpus.json {
            output::piece(output::harmless(&text[shown..]));
        }
        shown = text.len();
    })?;
    let cited = sources.check(&text);
    if args.corpus.json {
        let source = |source: &cactus_rag::Source| {
            let mut value = as_json(&source.found);
            value["number"] = source.number.into();
            value
        };
        return output::json(&json!({
            "answer": text.trim(),
            "finish_reason": completion.finish_reason,
            "citations": cited.iter().map(citation).collect::<Vec<_>>(),
            "sources": sources.all().iter().map(source).collect::<Vec<_>>(),
        }));
    }
    output::line("");
    output::line("");
    let named = |number: usize| cited.iter().any(|citation| citation.number == number);
    let any = cited.iter().any(|citation| citation.exists);
    for source in sources.all().iter().filter(|source| named(source.number) || !any) {
        let headings = source.found.headings.join(" > ");
        output::note(format!("[{}] {}  {headings}", source.number, place(&source.found)).trim_end());
    }
    if !any {
        output::warning("the answer names no source; above are those that the model was given");
    }
    for citation in cited.iter().filter(|citation| !citation.exists) {
        output::warning(format!("there is no source [{}]", citation.number));
    }
    for citation in cited
        .iter()
        .filter(|citation| citation.exists && citation.support < SUPPORT)
    {
        output::warning(format!(
            "[{}] has few of the words of the sentence that names it; read it before you believe the answer",
            citation.number
        ));
    }
    Ok(())
}

fn citation(citation: &Citation) -> Value {
    json!({
        "number": citation.number,
        "at": citation.at,
        "exists": citation.exists,
        "support": citation.support,
    })
}
