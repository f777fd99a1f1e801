//! What a run of a task found so far, on disk with every few cases, so that it can be continued.

use super::{Case, Gathered, Task};
use crate::{Error, Result};
use cactus_base::Readers;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Largest results read, in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// What results belong to: with anything else they would mean something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The task.
    pub task: Task,
    /// Checksum of data and answers.
    pub data: String,
    /// Digest of the bundle: that of its [`Fingerprint`](cactus_engine::Fingerprint).
    pub bundle: String,
    /// Digest of its chat template.
    #[serde(default)]
    pub template: String,
    /// Digest of the options of the sampler.
    #[serde(default)]
    pub sampler: String,
    /// Cases asked for.
    pub cases: usize,
    /// Tokens an answer may have.
    pub max_tokens: usize,
    /// Whether prompts were continued as plain text.
    pub raw: bool,
    /// Whether calls were held to the schemas of their tools.
    #[serde(default)]
    pub constrained: bool,
    /// Whether at most one call was allowed.
    #[serde(default)]
    pub one_call: bool,
    /// Whether it was kept how sure the model was.
    #[serde(default)]
    pub signals: bool,
}

/// A case that was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Its id.
    pub id: String,
    /// Whether the answer is right.
    pub correct: bool,
    /// What was answered.
    pub answer: String,
    /// Why it is wrong, where that can be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Cases of the same group are alike, see [`Case::group`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How sure the model was, where that was asked for and the answer was generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gathered: Option<Gathered>,
}

impl Judged {
    /// An answer that is right if nothing is wrong with it.
    pub(super) fn new(case: &Case, answer: String, why: Option<String>) -> Self {
        Self {
            id: case.id.clone(),
            correct: why.is_none(),
            answer,
            why,
            group: case.group().map(str::to_owned),
            gathered: None,
        }
    }
}

/// The results of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// Version of this document.
    pub version: u32,
    /// What was asked of what.
    pub setup: Setup,
    /// Right answers.
    pub correct: usize,
    /// Share of the answers that is right.
    pub accuracy: f64,
    /// Standard error of that share.
    pub error: f64,
    /// The cases so far, in the order of the data.
    pub cases: Vec<Judged>,
}

impl Results {
    /// Nothing yet.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self {
            version: 1,
            setup,
            correct: 0,
            accuracy: 0.0,
            error: 0.0,
            cases: Vec::new(),
        }
    }

    /// The results in `path`, to be continued, or none where there is no such file.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Task`] where the file is something else, or of another run.
    pub fn open(path: &Path, setup: Setup, cases: &[Case]) -> Result<Self> {
        let fail = |what: String| Error::Task(format!("`{}`: {what}", path.display()));
        if let Err(e) = std::fs::metadata(path)
            && e.kind() == std::io::ErrorKind::NotFound
        {
            return Ok(Self::new(setup));
        }
        let found = Self::read(path)?;
        let (a, b) = (&found.setup, &setup);
        let differs = [
            ("another task", a.task != b.task),
            ("other data", a.data != b.data),
            ("another bundle", a.bundle != b.bundle),
            ("another number of cases", a.cases != b.cases),
            ("another length of answers", a.max_tokens != b.max_tokens),
            ("other prompts", a.raw != b.raw),
            ("another chat template", a.template != b.template),
            ("other sampling options", a.sampler != b.sampler),
            (
                "other constraints",
                (a.constrained, a.one_call) != (b.constrained, b.one_call),
            ),
            (
                match b.signals {
                    true => "a run that kept no signals",
                    false => "a run that kept signals",
                },
                a.signals != b.signals,
            ),
        ];
        if let Some((what, _)) = differs.iter().find(|(_, differs)| *differs) {
            return Err(fail(format!(
                "the file has results of {what}; name another file, or delete this one"
            )));
        }
        let fits = found.cases.len() <= cases.len() && found.cases.iter().zip(cases).all(|(f, c)| f.id == c.id);
        if !fits {
            return Err(fail("its cases are not the first cases of the data".into()));
        }
        Ok(found)
    }

    /// The results in `path`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Task`] where there are none.
    pub fn read(path: &Path) -> Result<Self> {
        let fail = |what: String| Error::Task(format!("`{}`: {what}", path.display()));
        let bytes = match std::fs::metadata(path) {
            Err(e) => return Err(fail(e.to_string())),
            Ok(m) if m.len() > MAX_BYTES => {
                return Err(fail(format!("{} bytes are too many for a file of results", m.len())));
            }
            Ok(_) => std::fs::read(path).map_err(|e| fail(e.to_string()))?,
        };
        let mut found: Self =
            serde_json::from_slice(&bytes).map_err(|e| fail(format!("not a file of task results: {e}")))?;
        if found.version != 1 {
            return Err(fail(format!("expected version 1, found {}", found.version)));
        }
        found.count();
        Ok(found)
    }

    /// Adds the next case.
    pub fn push(&mut self, judged: Judged) {
        self.cases.push(judged);
        self.count();
    }

    fn count(&mut self) {
        let n = self.cases.len().max(1) as f64;
        self.correct = self.cases.iter().filter(|c| c.correct).count();
        self.accuracy = self.correct as f64 / n;
        self.error = (self.accuracy * (1.0 - self.accuracy) / n).sqrt();
    }

    /// Writes them to `path`, whole or not at all.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Task`] where that fails.
    pub fn save(&self, path: &Path) -> Result<()> {
        let fail = |what: String| Error::Task(format!("`{}` cannot be written: {what}", path.display()));
        let mut text = serde_json::to_vec_pretty(self).map_err(|e| fail(e.to_string()))?;
        text.push(b'\n');
        cactus_base::replace_file(path, Readers::Usual, &text).map_err(|e| fail(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Question;

    fn setup() -> Setup {
        Setup {
            task: Task::Gsm8k,
            data: "d".into(),
            bundle: "b".into(),
            template: "t".into(),
            sampler: "s".into(),
            cases: 2,
            max_tokens: 8,
            raw: false,
            constrained: false,
            one_call: false,
            signals: false,
        }
    }

    fn judged(id: &str, correct: bool) -> Judged {
        Judged {
            id: id.into(),
            correct,
            answer: "é\n".into(),
            why: None,
            group: None,
            gathered: None,
        }
    }

    #[test]
    fn results_are_continued_and_never_mixed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        let case = |id: &str| Case {
            id: id.into(),
            question: Question::Number {
                text: "q".into(),
                expected: "1".into(),
            },
        };
        let cases = [case("a"), case("b")];
        let mut results = Results::open(&path, setup(), &cases).unwrap();
        results.push(judged("a", true));
        results.save(&path).unwrap();
        let mut again = Results::open(&path, setup(), &cases).unwrap();
        assert_eq!(again, results);
        again.push(judged("b", false));
        assert_eq!((again.correct, again.accuracy), (1, 0.5));
        again.save(&path).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let other = Setup {
            bundle: "other".into(),
            ..setup()
        };
        let error = Results::open(&path, other, &cases).unwrap_err().to_string();
        assert!(error.contains("another bundle") && error.contains("r.json"), "{error}");
        let error = Results::open(&path, setup(), &cases[1..]).unwrap_err().to_string();
        assert!(error.contains("not the first"), "{error}");
        let whole = std::fs::read(&path).unwrap();
        for bytes in [&whole[..whole.len() / 2], b"[]", b"{\"version\": 1}", b"\xff"] {
            std::fs::write(&path, bytes).unwrap();
            assert!(Results::open(&path, setup(), &cases).is_err());
        }
    }
}
