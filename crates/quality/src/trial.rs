//! How text is run through bundles of a kind of model: to see what reaches each weight, what a coarser weight does, and how far a
//! bundle is from its source. Language models are tried in windows of tokens here, models of texts in [`crate::passages`].

use crate::finish::measure;
use crate::passages::OfTexts;
use crate::pipeline::{SHORT_WINDOW, SHORT_WINDOWS, open_matrices};
use crate::report::Measured;
use crate::{Result, Runner, Sensitivity, Stage, Text, WINDOW, Windows, sensitivity};
use cactus_base::Pool;
use cactus_bundle::Bundle;
use cactus_engine::Model;
use cactus_import::Stop;
use cactus_passes::Policy;
use cactus_runtime::Observer;
use cactus_text::{ChatTemplate, Tokenizer};
use std::path::Path;
use std::sync::Arc;

/// Why text cannot be run through most functions.
pub(crate) const NO_MODEL: &str = "it is not a causal language model with states";

/// A bundle and texts that can be run through it.
pub trait Source {
    /// The bundle.
    fn bundle(&self) -> &Bundle;

    /// Threads, and how many of them compute.
    fn pool(&self) -> (&Pool, usize);

    /// How many texts there are.
    fn texts(&self) -> usize;

    /// Shows `observer` the inputs of linears while one of the texts is computed, until it has seen enough.
    ///
    /// # Errors
    /// What the runtime found.
    fn observe(&mut self, text: usize, observer: Observer<'_>) -> Result<()>;
}

impl Source for (Runner, Windows) {
    fn bundle(&self) -> &Bundle {
        self.0.bundle()
    }

    fn pool(&self) -> (&Pool, usize) {
        (self.0.pool(), self.0.threads())
    }

    fn texts(&self) -> usize {
        self.1.iter().len()
    }

    fn observe(&mut self, text: usize, observer: Observer<'_>) -> Result<()> {
        match self.1.iter().nth(text) {
            Some(window) => self.0.observe(window, observer),
            None => Ok(()),
        }
    }
}

/// Gets the stage and how far it is.
pub(crate) type Shown<'a> = dyn Fn(Stage, u64, u64) + 'a;

/// How text is run through bundles of a kind of model.
pub(crate) trait Trial {
    /// The bundle in `folder`, to see what reaches its weights, with at most so many tokens of `text`.
    fn source(&self, folder: &Path, text: &Text, tokens: usize) -> Result<Box<dyn Source>>;

    /// What each matrix of `reference` is sensitive to that has no rule of its own.
    fn sensitivities(
        &self,
        reference: &Path,
        policy: &Policy,
        bits: u32,
        text: &Text,
        shown: &Shown<'_>,
    ) -> Result<Vec<Sensitivity>>;

    /// How far `candidate` is from `reference` on a text, at most so many tokens of it.
    fn measure(
        &self,
        reference: &Path,
        candidate: &Path,
        text_and_tokens: (&Text, usize),
        shown: &Shown<'_>,
        stop: &Stop,
    ) -> Result<Measured>;
}

/// How text is run through bundles like the one in `folder`, or why it cannot be.
pub(crate) fn trial(folder: &Path, threads: usize) -> Result<Result<Box<dyn Trial>, String>> {
    let bundle = Bundle::open(folder)?;
    if bundle.embedding()?.is_some() {
        return Ok(Ok(Box::new(OfTexts { threads })));
    }
    Ok(match bundle.speech()? {
        Some(_) => Err(NO_MODEL.into()),
        None if Model::has_tokenizer(&bundle) => Ok(Box::new(Answers::of(&bundle, threads)?)),
        None => Err("the source has no tokenizer".into()),
    })
}

/// A language model.
pub(crate) struct Answers {
    texts: (Tokenizer, Option<ChatTemplate>),
    longest: usize,
    threads: usize,
}

impl Answers {
    pub(crate) fn of(bundle: &Bundle, threads: usize) -> Result<Answers> {
        Ok(Answers {
            texts: Model::load_text(bundle)?,
            longest: bundle.manifest().context_tokens,
            threads,
        })
    }

    fn windows(&self, text: &Text, length: usize, tokens: usize) -> Result<Windows> {
        let length = length.min(self.longest);
        Windows::of(&self.texts, text, length, tokens / length.max(1))
    }

    fn runner(&self, folder: &Path) -> Result<Runner> {
        Runner::open(folder, WINDOW, self.threads)
    }
}

impl Trial for Answers {
    fn source(&self, folder: &Path, text: &Text, tokens: usize) -> Result<Box<dyn Source>> {
        let windows = self.windows(text, WINDOW, tokens)?;
        Ok(Box::new((self.runner(folder)?, windows)))
    }

    fn sensitivities(
        &self,
        reference: &Path,
        policy: &Policy,
        bits: u32,
        text: &Text,
        shown: &Shown<'_>,
    ) -> Result<Vec<Sensitivity>> {
        let windows = self.windows(text, SHORT_WINDOW, SHORT_WINDOWS * SHORT_WINDOW)?;
        let mut runner = self.runner(reference)?;
        let bundle = Arc::clone(runner.bundle());
        let names = open_matrices(&bundle, policy, |name| runner.replace(name, None).is_ok());
        let total = names.len() as u64;
        sensitivity(&mut runner, &names, bits, &windows, &mut |done| {
            shown(Stage::Sensitivity, done as u64, total);
        })
    }

    fn measure(
        &self,
        reference: &Path,
        candidate: &Path,
        (text, tokens): (&Text, usize),
        shown: &Shown<'_>,
        stop: &Stop,
    ) -> Result<Measured> {
        let windows = self.windows(text, WINDOW, tokens)?;
        let mut runner = self.runner(reference)?;
        Ok(Measured::Answers(measure(
            &mut runner,
            candidate,
            &windows,
            shown,
            stop,
        )?))
    }
}
