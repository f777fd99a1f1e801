//! Documents of a folder: kept in an index, searched, and asked about.

use crate::args::{AskArgs, CorpusArgs, FindArgs, IndexArgs, ModelArgs, SearchArgs, SourceArgs};
use crate::commands::run::INTERRUPTED;
use crate::commands::show::Shown;
use crate::commands::watch::Changes;
use crate::hint::Advised;
use crate::progress::{Unit, bar};
use crate::{model, output};
use anyhow::{Context as _, Result, bail};
use cactus_embed::{RankOptions, Reranker};
use cactus_engine::chat::{Chat, ChatRequest};
use cactus_engine::{CancelToken, ErrorKind as EngineKind, FinishReason, GenerateOptions, Guides, Model};
use cactus_rag::{
    Corpus, Embed as _, Extract, Found, INDEX_FILE, Limits, Nearness, Program, Skipped, Sources, Synced, Vectors,
};
use cactus_retrieval::{ErrorKind as IndexKind, Reader};
use cactus_text::message;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// The model where none is named and there is no index yet.
pub(crate) const DEFAULT_EMBEDDER: &str = "sentence-transformers/all-MiniLM-L6-v2";
/// Candidates that a reranker puts in order, for each piece that is wanted.
const CANDIDATES: usize = 4;

fn bundle(name: &str, source: &SourceArgs) -> Result<PathBuf> {
    model::bundle(&ModelArgs {
        model: Some(name.to_owned()),
        small: false,
        source: source.clone(),
        reconvert: false,
    })
}

/// A folder, its index, and the model of its vectors.
struct Opened {
    corpus: Corpus,
    vectors: Vectors,
    index: PathBuf,
    /// Whether the index names a place of the model where there is none any more.
    is_moved: bool,
}

fn open(args: &CorpusArgs, source: &SourceArgs, threads: Option<u16>, no_sync: bool) -> Result<Opened> {
    if !args.folder.is_dir() {
        bail!(
            "`{}` is not a folder; name the folder with the documents",
            args.folder.display()
        );
    }
    let index = args.index.clone().unwrap_or_else(|| args.folder.join(INDEX_FILE));
    if no_sync && !index.exists() {
        bail!(
            "there is no index `{}` yet; `cactus index {}` makes one",
            index.display(),
            args.folder.display()
        );
    }
    let known = match index.exists() {
        true => Some(Reader::open(&index, None)?.recipe().model.clone()),
        false => None,
    };
    let given = args.embedder.as_ref().map(|name| match Path::new(name).exists() {
        // The index is asked from other folders, too.
        true => std::path::absolute(name).map_or_else(|_| name.clone(), |path| path.display().to_string()),
        false => name.clone(),
    });
    let gone = known
        .as_deref()
        .filter(|name| Path::new(name).is_absolute() && !Path::new(name).exists());
    let is_moved = gone.is_some();
    if let (Some(gone), None) = (gone, &given) {
        return Err(anyhow::Error::msg(Advised {
            what: format!(
                "the index `{}` has vectors of the model at `{gone}`, where there is none any more",
                index.display()
            ),
            advice: "name the place where the model is now by `--embedder MODEL`, and the index goes on with it; or delete the index, \
                     and it is made anew"
                .to_owned(),
        }));
    }
    let name = given.or(known).unwrap_or_else(|| DEFAULT_EMBEDDER.to_owned());
    let vectors = Vectors::open(&name, &bundle(&name, source)?, threads.map(usize::from))?;
    let corpus = Corpus::new(&args.folder, &index);
    let corpus = match extract() {
        Some(extract) => corpus.with_extract(extract),
        None => corpus,
    };
    Ok(Opened {
        corpus,
        vectors,
        index,
        is_moved,
    })
}

/// Takes the text out of PDFs: this program, in a process of its own for each. A system that does not tell where the program is reads none.
pub(crate) fn extract() -> Option<Arc<dyn Extract>> {
    let program = std::env::current_exe().ok()?;
    Some(Arc::new(Program::new(&program, Limits::default())))
}

/// What Ctrl-C cancels: reading a folder ends after a file, whose pieces stay, and an answer after a token. The second one ends the program.
fn interrupt() -> Result<CancelToken> {
    let cancel = CancelToken::new();
    let stop = cancel.clone();
    ctrlc::set_handler(move || {
        if stop.is_cancelled() {
            // Whatever computes is not asked; a commit is there as a whole or not at all.
            #[allow(clippy::disallowed_methods)]
            std::process::exit(i32::from(INTERRUPTED));
        }
        stop.cancel();
    })
    .context("cannot watch for Ctrl-C")?;
    Ok(cancel)
}

/// What the command came to; being stopped is no error.
pub(crate) fn unless_stopped(done: Result<ExitCode>) -> Result<ExitCode> {
    match done {
        Err(e) if matches!(e.downcast_ref(), Some(cactus_rag::Error::Cancelled)) => {
            output::note("stopped; what was read so far is in the index");
            Ok(ExitCode::from(INTERRUPTED))
        }
        done => done,
    }
}

/// Brings the index in step with its folder before a search. Where another program writes the index, what it has so far is taken.
fn sync_to_search(opened: &Opened, cancel: &CancelToken, args: &CorpusArgs) -> Result<()> {
    match sync(opened, cancel) {
        Err(cactus_rag::Error::Index(e)) if e.kind() == IndexKind::Busy && opened.index.exists() => {
            output::note("another program writes the index; what it has so far is searched");
        }
        synced => match &synced?.skipped[..] {
            [] => {}
            [one] => output::warning(format!("`{}` is not searched: {}", one.path, one.reason)),
            some => output::warning(format!(
                "{} files are not searched; `cactus index {}` names them",
                some.len(),
                args.folder.display()
            )),
        },
    }
    Ok(())
}

/// Says of what was not read why, but for what is among `told`, which becomes what is not read now.
fn warn(synced: &Synced, told: &mut Vec<Skipped>) {
    for one in synced.skipped.iter().filter(|one| !told.contains(one)) {
        output::warning(format!("`{}` was not read: {}", one.path, one.reason));
    }
    told.clone_from(&synced.skipped);
}

/// Brings the index in step with its folder, with a bar.
fn sync(opened: &Opened, cancel: &CancelToken) -> cactus_rag::Result<Synced> {
    let Opened { corpus, vectors, .. } = opened;
    let bar = bar(0, "reading", Unit::Of("files"));
    let synced = corpus.sync(vectors, &|| cancel.is_cancelled(), &mut |progress| {
        bar.set_length(progress.files[1] as u64);
        bar.set_position(progress.files[0] as u64);
        bar.set_message(progress.path.to_owned());
    });
    bar.finish_and_clear();
    let synced = synced?;
    if opened.is_moved {
        corpus.rename_model(vectors)?;
    }
    Ok(synced)
}

/// Indexes a folder.
pub(crate) fn index(args: &IndexArgs) -> Result<ExitCode> {
    let opened = open(&args.corpus, &args.source, args.threads, false)?;
    opened.corpus.try_again();
    let cancel = interrupt()?;
    // Before the first look, so that no change falls between.
    let changes = args.watch.then(|| Changes::of(&args.corpus.folder)).transpose()?;
    let mut told = Vec::new();
    let first = sync(&opened, &cancel)?;
    warn(&first, &mut told);
    tell(&first, args, &opened)?;
    let Some(changes) = changes else {
        return Ok(ExitCode::SUCCESS);
    };
    if !args.corpus.json {
        output::note("watching; Ctrl-C ends it");
    }
    while changes.wait(&|| cancel.is_cancelled())? {
        match sync(&opened, &cancel) {
            Ok(synced) => {
                warn(&synced, &mut told);
                if !synced.is_unchanged() {
                    tell(&synced, args, &opened)?;
                }
            }
            Err(_) if cancel.is_cancelled() => {}
            // Another program may write just now, or the disk be full: the next change is another attempt.
            Err(e) => output::warning(e),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what came of reading a folder.
fn tell(synced: &Synced, args: &IndexArgs, opened: &Opened) -> Result<()> {
    if args.corpus.json {
        let mut value = serde_json::to_value(synced)?;
        value["index"] = json!(opened.index);
        value["embedder"] = json!(opened.vectors.recipe().model);
        return output::json(&value);
    }
    let unread = match synced.skipped.len() {
        0 => String::new(),
        n => format!(", {n} not read"),
    };
    output::line(format!(
        "files: {} ({} new, {} changed, {} gone{unread})    pieces: {} ({} got a vector)",
        synced.files, synced.added, synced.changed, synced.removed, synced.pieces, synced.embedded
    ));
    Ok(())
}

/// The pieces for a question, the best first.
fn find(
    Opened { corpus, vectors, .. }: &Opened,
    question: &str,
    (args, nearness): (&FindArgs, Nearness),
    source: &SourceArgs,
    threads: Option<u16>,
) -> Result<Vec<Found>> {
    let top = args.top as usize;
    let Some(name) = &args.rerank else {
        return Ok(corpus.search(vectors, question, top, nearness)?);
    };
    let reranker = Reranker::open(&bundle(name, source)?, threads.map(usize::from))?;
    let found = corpus.search(vectors, question, top.saturating_mul(CANDIDATES), nearness)?;
    if found.is_empty() {
        return Ok(found);
    }
    let texts: Vec<String> = found.iter().map(Found::in_context).collect();
    let options = RankOptions {
        truncate: true,
        ..RankOptions::default()
    };
    let ranked = reranker.score(question, &texts, &options)?;
    let order = ranked.order().into_iter().take(top);
    Ok(order.map(|i| found[i].clone().with_score(ranked.scores[i])).collect())
}

/// Why nothing was found.
fn nothing(nearness: Nearness, index: &Path) -> Result<String> {
    let is_empty = Reader::open(index, None)?.size().documents == 0;
    Ok(match nearness {
        _ if is_empty => "the folder has no documents".to_owned(),
        Nearness::AtLeast(least) => format!("the folder has nothing whose cosine with the question is {least} or more"),
        Nearness::Related => {
            "the folder has nothing on this: no piece is nearer to the question than pieces are to questions about \
                              something else (`--min-similarity any` takes the nearest all the same)"
                .to_owned()
        }
        _ => "nothing was found".to_owned(),
    })
}

/// `docs/a.md:3-7` or `docs/a.pdf, page 3`, and the headings above it.
fn place(found: &Found, folder: &Path) -> String {
    let at = match (found.page, found.lines) {
        (Some(page), _) => format!(", page {page}"),
        (None, [first, last]) if first == last => format!(":{first}"),
        (None, [first, last]) => format!(":{first}-{last}"),
    };
    let changed = match found.is_current(folder) {
        true => "",
        false => " (changed since it was read)",
    };
    let similarity = found.similarity.map_or(String::new(), |s| format!("  {s:.2}"));
    let place = format!(
        "{}{at}{changed}{similarity}  {}",
        found.path,
        found.headings.join(" > ")
    );
    output::harmless(place.trim_end()).into_owned()
}

/// Searches a folder.
pub(crate) fn search(args: &SearchArgs) -> Result<ExitCode> {
    let opened = open(&args.corpus, &args.source, args.threads, args.find.no_sync)?;
    let cancel = interrupt()?;
    if args.question.trim().is_empty() {
        bail!("the question is empty");
    }
    if !args.find.no_sync {
        sync_to_search(&opened, &cancel, &args.corpus)?;
    }
    let nearness = args.find.min_similarity.unwrap_or(Nearness::Any);
    let found = find(
        &opened,
        &args.question,
        (&args.find, nearness),
        &args.source,
        args.threads,
    )?;
    if args.corpus.json {
        let results: Vec<_> = found.iter().map(|found| found.to_json(&args.corpus.folder)).collect();
        output::json(&json!({"results": results}))?;
        return Ok(ExitCode::SUCCESS);
    }
    if found.is_empty() {
        output::note(nothing(nearness, &opened.index)?);
    }
    for found in &found {
        output::line(place(found, &args.corpus.folder));
        for line in found.text.lines() {
            output::line(format!("    {}", output::harmless(line)));
        }
        output::line("");
    }
    Ok(ExitCode::SUCCESS)
}

/// Answers a question from a folder, with its sources.
pub(crate) fn ask(args: &AskArgs) -> Result<ExitCode> {
    let threads = args.engine.threads;
    let opened = open(&args.corpus, &args.source, threads, args.find.no_sync)?;
    let cancel = interrupt()?;
    if args.question.trim().is_empty() {
        bail!("the question is empty");
    }
    if !args.find.no_sync {
        sync_to_search(&opened, &cancel, &args.corpus)?;
    }
    let nearness = args.find.min_similarity.unwrap_or(Nearness::Any);
    let asked = (&args.find, nearness);
    let found = find(&opened, &args.question, asked, &args.source, threads)?;
    if found.is_empty() {
        if args.corpus.json {
            output::json(&json!({"answer": "", "finish_reason": "nothing_found", "citations": [], "sources": []}))?;
        }
        output::note(nothing(nearness, &opened.index)?);
        return Ok(ExitCode::SUCCESS);
    }
    // The memory of the other model is free for this one.
    drop(opened);
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
    let guides = Guides {
        constraint: prepared.constraint,
        keep_special: true,
        ..Guides::default()
    };
    let (mut reader, mut shown) = (prepared.reader, Shown::new(args.corpus.json));
    let (mut deltas, mut failed) = (Vec::new(), None);
    let mut session = loaded.session()?;
    let completion = session.generate_with(&prepared.prompt, &options, guides, &cancel, &mut |delta| {
        reader.push(delta.text, delta.special, &mut deltas);
        if let Err(e) = shown.add(deltas.drain(..)) {
            failed.get_or_insert(e);
            cancel.cancel();
        }
    });
    let completion = completion.map_err(|e| match e.kind() {
        EngineKind::ContextFull => anyhow::Error::new(e).context(Advised {
            what: "the question and its sources are too long for the model".to_owned(),
            advice: match loaded.program().context_tokens() < args.engine.context {
                true => "give it fewer sources by `--top`, or take a model that reads more".to_owned(),
                false => "raise `--context`, or give it fewer sources by `--top`".to_owned(),
            },
        }),
        _ => e.into(),
    })?;
    reader.finish(&mut deltas);
    let end = shown.add(deltas.drain(..)).and_then(|()| shown.end());
    if let Some(e) = failed.or(end.err()) {
        return Err(e).context("cannot write the answer");
    }
    let text = shown.message.text;
    let code = match completion.finish_reason {
        FinishReason::Cancelled => ExitCode::from(INTERRUPTED),
        _ => ExitCode::SUCCESS,
    };
    let cited = sources.check(&text);
    if args.corpus.json {
        let source = |source: &cactus_rag::Source| {
            let mut value = source.found.to_json(&args.corpus.folder);
            value["number"] = source.number.into();
            value
        };
        output::json(&json!({
            "answer": text.trim(),
            "finish_reason": completion.finish_reason,
            "citations": cited,
            "sources": sources.all().iter().map(source).collect::<Vec<_>>(),
        }))?;
        return Ok(code);
    }
    output::line("");
    let named = |number: usize| cited.iter().any(|citation| citation.number == number);
    let any = cited.iter().any(|citation| citation.exists);
    for source in sources.all().iter().filter(|source| named(source.number) || !any) {
        output::note(format!(
            "[{}] {}",
            source.number,
            place(&source.found, &args.corpus.folder)
        ));
    }
    if !any {
        output::warning("the answer names no source; above are those that the model was given");
    }
    for citation in cited.iter().filter(|citation| !citation.exists) {
        output::warning(format!("there is no source [{}]", citation.number));
    }
    for citation in cited
        .iter()
        .filter(|citation| citation.exists && !citation.is_supported())
    {
        output::warning(format!(
            "[{}] has few of the words of the sentence that names it; read it before you believe the answer",
            citation.number
        ));
    }
    Ok(code)
}
