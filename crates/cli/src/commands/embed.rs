//! Vectors of texts, and documents in the order of their scores.

use crate::args::{EmbedArgs, ModelArgs, RerankArgs, TextModelArgs};
use crate::hint::Advised;
use crate::{model, npy, output, picture_file};
use anyhow::{Context as _, Result, bail};
use cactus_bundle::{Bundle, Gives};
use cactus_embed::{
    EmbedOptions, Embedded, Embedder, Limits, PictureEmbedder, RankOptions, Reranker, Role, TokenEmbedder,
};
use cactus_tensor::Tensor;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

/// Picture files in memory at once.
const FILES_AT_ONCE: usize = 16;

/// The digits of a number that tell it from every other of its kind.
fn number(x: f32) -> String {
    format!("{x:?}")
}

/// Writes the vectors of texts or pictures.
pub(crate) fn embed(args: &EmbedArgs) -> Result<()> {
    let role = match (args.query, args.document, &args.task) {
        (true, ..) => Role::Query,
        (_, true, _) => Role::Document,
        (_, _, Some(task)) => Role::Task(task),
        _ => Role::Plain,
    };
    let bundle = bundle(&args.model)?;
    if !args.image.is_empty() {
        return embed_pictures(args, &bundle);
    }
    if let Some(Gives::TokenVectors(_)) = Bundle::open(&bundle)?.embedding()?.map(|record| record.gives) {
        return embed_tokens(args, role, &bundle);
    }
    let embedder = Embedder::open(&bundle, args.model.threads.map(usize::from))?;
    // What is wrong with an option is told before texts are read.
    embedder.prompt(role)?;
    let texts = texts(&args.texts, args.file.as_deref(), "texts")?;
    let options = EmbedOptions {
        dimensions: args.dimensions,
        truncate: args.model.truncate,
        ..EmbedOptions::default()
    };
    let made = embedder
        .embed(role, &texts, &options)
        .map_err(|e| of_text(e, &args.texts))?;
    show(args, embedder.name(), made, "tokens")
}

/// Writes the vectors of pictures.
fn embed_pictures(args: &EmbedArgs, bundle: &Path) -> Result<()> {
    let embedder = PictureEmbedder::open(bundle, args.model.threads.map(usize::from))?;
    let limits = Limits::default();
    let read = |file: &PathBuf| picture_file::read(file, limits.max_bytes);
    let options = EmbedOptions {
        dimensions: args.dimensions,
        ..EmbedOptions::default()
    };
    let mut all = Embedded::default();
    // However many there are, few files are in memory at once.
    for names in args.image.chunks(FILES_AT_ONCE) {
        let files: Vec<Vec<u8>> = names.iter().map(read).collect::<Result<_>>()?;
        let made = embedder.embed_files(&files, &limits, &options).map_err(|e| match e {
            // By its name instead of its number.
            cactus_embed::Error::Picture { index, source } => anyhow::Error::new(source.within(names[index].display())),
            other => other.into(),
        })?;
        all.dimensions = made.dimensions;
        all.values.extend(made.values);
        all.tokens.extend(made.tokens);
    }
    show(args, embedder.name(), all, "patches")
}

/// Writes vectors as a file, as JSON or as lines; `pieces` are what the model reads.
fn show(args: &EmbedArgs, model: &str, made: Embedded, pieces: &str) -> Result<()> {
    if let Some(file) = &args.npy {
        let count = made.tokens.len();
        let array = Tensor::from_f32([count, made.dimensions], made.values)?;
        std::fs::write(file, npy::encode(&array)?).with_context(|| format!("cannot write `{}`", file.display()))?;
        output::note(format!(
            "{count} vectors of {} elements, of {} {pieces}, in {}",
            made.dimensions,
            made.tokens.iter().sum::<usize>(),
            file.display()
        ));
        return Ok(());
    }
    if args.model.json {
        let vectors: Vec<&[f32]> = made.rows().collect();
        return output::json(&serde_json::json!({
            "model": model,
            "dimensions": made.dimensions,
            pieces: made.tokens,
            "vectors": vectors,
        }));
    }
    for row in made.rows() {
        let numbers: Vec<String> = row.iter().map(|&x| number(x)).collect();
        output::line(numbers.join(" "));
    }
    Ok(())
}

/// Writes the vectors of the tokens of texts: a line for each, and an empty one between texts.
fn embed_tokens(args: &EmbedArgs, role: Role<'_>, bundle: &Path) -> Result<()> {
    let embedder = TokenEmbedder::open(bundle, args.model.threads.map(usize::from))?;
    let texts = texts(&args.texts, args.file.as_deref(), "texts")?;
    if let (Some(_), false) = (&args.npy, texts.len() == 1) {
        bail!(
            "the model gives a vector of each token, so that `--npy` takes one text, found {}; use `--json` for several",
            texts.len()
        );
    }
    let options = EmbedOptions {
        dimensions: args.dimensions,
        truncate: args.model.truncate,
        ..EmbedOptions::default()
    };
    let made = embedder
        .embed(role, &texts, &options)
        .map_err(|e| of_text(e, &args.texts))?;
    if let (Some(file), [matrix]) = (&args.npy, &made[..]) {
        let array = Tensor::from_f32([matrix.rows().len(), matrix.dimensions], matrix.values.clone())?;
        std::fs::write(file, npy::encode(&array)?).with_context(|| format!("cannot write `{}`", file.display()))?;
        output::note(format!(
            "{} vectors of {} elements, of {} tokens, in {}",
            matrix.rows().len(),
            matrix.dimensions,
            matrix.tokens,
            file.display()
        ));
        return Ok(());
    }
    if args.model.json {
        let matrices: Vec<Vec<&[f32]>> = made.iter().map(|matrix| matrix.rows().collect()).collect();
        return output::json(&serde_json::json!({
            "model": embedder.name(),
            "dimensions": embedder.vectors().dimensions,
            "tokens": made.iter().map(|matrix| matrix.tokens).collect::<Vec<_>>(),
            "matrices": matrices,
        }));
    }
    for (i, matrix) in made.iter().enumerate() {
        if i > 0 {
            output::line(String::new());
        }
        for row in matrix.rows() {
            let numbers: Vec<String> = row.iter().map(|&x| number(x)).collect();
            output::line(numbers.join(" "));
        }
    }
    Ok(())
}

/// Writes documents, the best first.
pub(crate) fn rerank(args: &RerankArgs) -> Result<()> {
    let bundle = bundle(&args.model)?;
    let reranker = Reranker::open(&bundle, args.model.threads.map(usize::from))?;
    let documents = texts(&args.documents, args.file.as_deref(), "documents")?;
    let options = RankOptions {
        truncate: args.model.truncate,
        instruction: args.instruction.clone(),
        ..RankOptions::default()
    };
    let ranked = reranker.score(&args.query, &documents, &options);
    let ranked = ranked.map_err(|e| of_text(e, &args.documents))?;
    let most = args.top.map_or(usize::MAX, |n| n as usize);
    let order: Vec<usize> = ranked.order().into_iter().take(most).collect();
    if args.model.json {
        let result =
            |&i: &usize| serde_json::json!({"index": i, "relevance_score": ranked.scores[i], "document": documents[i]});
        return output::json(&serde_json::json!({
            "model": reranker.name(),
            "tokens": ranked.tokens,
            "results": order.iter().map(result).collect::<Vec<_>>(),
        }));
    }
    for i in order {
        output::line(format!("{:.4}\t{}", ranked.scores[i], documents[i]));
    }
    Ok(())
}

fn bundle(args: &TextModelArgs) -> Result<PathBuf> {
    model::bundle(&ModelArgs {
        model: Some(args.model.clone()),
        small: false,
        source: args.source.clone(),
        reconvert: args.reconvert,
    })
}

/// An error of a text by its number, from 1, which is that of its line where texts are lines.
fn of_text(e: cactus_embed::Error, given: &[String]) -> anyhow::Error {
    let word = if given.is_empty() { "line" } else { "text" };
    match e {
        cactus_embed::Error::TooLong { index, tokens, limit } => anyhow::Error::msg(Advised {
            what: format!(
                "{word} {} has {tokens} tokens, and the model reads at most {limit}",
                index + 1
            ),
            advice: "cut it into shorter ones, or `--truncate` leaves out its end".to_owned(),
        }),
        cactus_embed::Error::Text { index, what } => anyhow::anyhow!("{word} {} {what}", index + 1),
        other => other.into(),
    }
}

/// The texts that were given, else the lines of a file, else those of standard input: each line is one, so that their numbers stay.
fn texts(given: &[String], file: Option<&Path>, what: &str) -> Result<Vec<String>> {
    if !given.is_empty() {
        return Ok(given.to_vec());
    }
    let (bytes, from) = match file {
        Some(file) => {
            let bytes = std::fs::read(file).with_context(|| format!("`--file`: cannot read `{}`", file.display()))?;
            (bytes, format!("`{}`", file.display()))
        }
        None if std::io::stdin().is_terminal() => {
            bail!("no {what} were given; name them, or a file with one on each line by `--file FILE`")
        }
        None => {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut std::io::stdin(), &mut bytes)?;
            (bytes, "standard input".to_owned())
        }
    };
    let text = model::utf8(bytes, &from)?;
    match text.trim().is_empty() {
        true => bail!("{from} has no {what}: expected one on each line"),
        false => Ok(text.lines().map(str::to_owned).collect()),
    }
}
