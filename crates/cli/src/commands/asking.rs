//! Asking a model the questions of a task, for the commands that measure answers.

use crate::args::{CalibrateTask, EvalTask};
use crate::output;
use crate::progress::{Unit, bar, spinner};
use anyhow::{Context as _, Result, bail};
use cactus_bundle::Checksum;
use cactus_engine::{CancelToken, GenerateOptions, KvDType, LoadOptions, Model};
use cactus_quality::read_file;
use cactus_quality::tasks::{Results, Setup, Task, TaskOptions, read_cases, run_task};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{Duration, Instant};

/// Tokens of question and answer together.
pub(super) const TASK_CONTEXT: usize = 4096;
/// Results are written when the last ones are this old.
const SAVE_EVERY: Duration = Duration::from_secs(2);

/// What is asked of what.
pub(super) struct Asking<'a> {
    pub(super) bundle: &'a Path,
    pub(super) task: Task,
    pub(super) data: &'a Path,
    pub(super) answers: Option<&'a Path>,
    pub(super) limit: Option<NonZeroUsize>,
    pub(super) results: Option<&'a Path>,
    pub(super) context_tokens: Option<usize>,
    pub(super) kv_dtype: KvDType,
    pub(super) threads: usize,
    pub(super) options: TaskOptions,
}

impl From<EvalTask> for Task {
    fn from(task: EvalTask) -> Task {
        match task {
            EvalTask::HellaSwag => Task::HellaSwag,
            EvalTask::Gsm8k => Task::Gsm8k,
            EvalTask::HumanEval => Task::HumanEval,
            EvalTask::Bfcl => Task::Bfcl,
        }
    }
}

impl CalibrateTask {
    /// The task, where answers are written word by word.
    pub(super) fn written(self) -> Option<Task> {
        match self {
            CalibrateTask::Gsm8k => Some(Task::Gsm8k),
            CalibrateTask::HumanEval => Some(Task::HumanEval),
            CalibrateTask::Bfcl => Some(Task::Bfcl),
            CalibrateTask::Decisions => None,
        }
    }
}

impl Asking<'_> {
    /// Asks what the file of results does not have yet, and keeps it up to date.
    pub(super) fn ask(&self) -> Result<Results> {
        if self.task == Task::HumanEval && !self.options.allow_code_execution {
            bail!(
                "`humaneval` runs Python programs that the model writes. Their time and memory are limited, they start in an \
                 empty folder, and without network where `unshare` works; but that is no sandbox. To run them, give \
                 `--allow-code-execution`"
            );
        }
        let data = read_file(self.data).context("`--data` cannot be read")?;
        let answers = self.answers.map(read_file).transpose();
        let answers = answers.context("`--answers` cannot be read")?;
        let mut cases = read_cases(self.task, &data, answers.as_deref())?;
        cases.truncate(self.limit.map_or(usize::MAX, usize::from));
        let loading = spinner("loading");
        let load = LoadOptions {
            context_tokens: self.context_tokens.unwrap_or(TASK_CONTEXT),
            kv_dtype: self.kv_dtype,
            threads: Some(self.threads),
            ..LoadOptions::default()
        };
        let model = Model::load(self.bundle, &load)?;
        // The likeliest token is taken every time.
        let fingerprint = model.fingerprint(&GenerateOptions::default())?;
        let setup = Setup {
            task: self.task,
            data: checksum(&[data.as_bytes(), answers.as_deref().unwrap_or_default().as_bytes()]),
            bundle: fingerprint.bundle,
            template: fingerprint.template,
            sampler: fingerprint.sampler,
            cases: cases.len(),
            max_tokens: self.options.max_tokens,
            raw: self.options.raw,
            constrained: self.options.constrained,
            one_call: self.options.one_call,
            signals: self.options.signals,
        };
        let mut results = match self.results {
            Some(file) => Results::open(file, setup, &cases)?,
            None => Results::new(setup),
        };
        loading.finish_and_clear();
        if !results.cases.is_empty() {
            output::note(format!(
                "continuing: {} of {} cases were answered before",
                results.cases.len(),
                cases.len()
            ));
        }
        let bar = bar(cases.len() as u64, self.task.name(), Unit::Of("cases"));
        bar.set_position(results.cases.len() as u64);
        let mut saved = Instant::now();
        let cancel = CancelToken::new();
        let mut each = |results: &Results| {
            bar.set_position(results.cases.len() as u64);
            bar.set_message(format!("{:.1} % right", 100.0 * results.accuracy));
            match self.results {
                Some(file) if saved.elapsed() > SAVE_EVERY => {
                    saved = Instant::now();
                    results.save(file)
                }
                _ => Ok(()),
            }
        };
        let run = run_task(&model, &cases, &self.options, &cancel, &mut results, &mut each);
        bar.finish_and_clear();
        // What was found before a failure is kept too.
        if let Some(file) = self.results {
            results.save(file)?;
        }
        run?;
        Ok(results)
    }
}

fn checksum(parts: &[&[u8]]) -> String {
    let each: Vec<String> = parts.iter().map(|part| Checksum::of(part).to_string()).collect();
    each.join("-")
}
