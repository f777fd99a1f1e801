//! The registry of environment knobs: every variable that changes behavior, with its type, default and help.
//!
//! A knob is read where it takes effect; this module owns the names and the parsing, so that `cactus` can list all of
//! them and a misspelt value is an error that says what is accepted. It deliberately does not cache: callers read once
//! and keep the answer.

use crate::error::{Error, ErrorKind, Result};

/// Which values a knob accepts.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A whole number in `min..=max`.
    Count {
        /// Smallest accepted value.
        min: usize,
        /// Largest accepted value.
        max: usize,
    },
    /// `1`/`true`/`on` or `0`/`false`/`off`.
    Switch,
    /// Any text, for instance a path.
    Text,
}

/// One environment variable.
#[derive(Debug)]
pub struct Knob {
    /// Name of the environment variable.
    pub name: &'static str,
    /// Accepted values.
    pub kind: Kind,
    /// What holds when the variable is unset or empty, in words or as a value.
    pub default: &'static str,
    /// One sentence for people.
    pub help: &'static str,
}

/// Forces an instruction-set tier.
pub static ISA: Knob = Knob {
    name: "CACTUS_ISA",
    kind: Kind::Choice(&[
        "auto",
        "scalar",
        "simd128",
        "simd128_fma",
        "neon",
        "neon_dotprod",
        "neon_i8mm",
        "sme2",
        "avx2",
        "avx2_vnni",
        "avx512_vnni",
        "amx_int8",
    ]),
    default: "auto",
    help: "Instruction-set tier of the kernels; a tier that this CPU lacks is an error.",
};

/// Number of compute threads.
pub static THREADS: Knob = Knob {
    name: "CACTUS_THREADS",
    kind: Kind::Count { min: 1, max: 1024 },
    default: "number of CPUs available to the process",
    help: "Compute threads, the calling one included.",
};

/// Whether a signal handler turns a mapped file that is lost into an error.
pub static SIGBUS: Knob = Knob {
    name: "CACTUS_SIGBUS",
    kind: Kind::Switch,
    default: "on",
    help: "Whether a handler of SIGBUS turns a model file that is cut short or unreadable while in use into an error.",
};

/// The model of vectors where an application of the C library gives a model a folder of documents.
pub static EMBEDDER: Knob = Knob {
    name: "CACTUS_EMBEDDER",
    kind: Kind::Text,
    default: "sentence-transformers/all-MiniLM-L6-v2, if it is on this machine",
    help: "Model that makes the vectors of documents where an application names none: the folder of a bundle, or a name.",
};

/// The `cactus` command, for applications of the libraries.
pub static PROGRAM: Knob = Knob {
    name: "CACTUS_PROGRAM",
    kind: Kind::Text,
    default: "none, and PDF documents are not read",
    help: "Path of the `cactus` command, which the libraries start to take the text out of PDF documents.",
};

/// All knobs, in the order in which they are listed to people.
#[must_use]
pub fn all() -> &'static [&'static Knob] {
    static ALL: [&Knob; 5] = [&ISA, &THREADS, &SIGBUS, &EMBEDDER, &PROGRAM];
    &ALL
}

impl Knob {
    /// The variable's text, `None` when unset or empty.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKnob`] when the value is not UTF-8 or is not accepted by the knob's [`Kind`].
    pub fn text(&self) -> Result<Option<String>> {
        match std::env::var(self.name) {
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(raw)) => Err(self.invalid(&raw.to_string_lossy())),
            Ok(value) => self.parse(&value).map(|()| Some(value).filter(|v| !v.is_empty())),
        }
    }

    /// The chosen word of a [`Kind::Choice`] knob, `None` when unset.
    ///
    /// # Errors
    /// As [`Knob::text`].
    pub fn choice(&self) -> Result<Option<&'static str>> {
        let value = self.text()?;
        Ok(match self.kind {
            Kind::Choice(words) => value.and_then(|v| words.iter().copied().find(|w| *w == v)),
            _ => None,
        })
    }

    /// The number of a [`Kind::Count`] knob, `None` when unset.
    ///
    /// # Errors
    /// As [`Knob::text`].
    pub fn count(&self) -> Result<Option<usize>> {
        Ok(self.text()?.and_then(|v| v.parse().ok()))
    }

    /// The state of a [`Kind::Switch`] knob, `None` when unset.
    ///
    /// # Errors
    /// As [`Knob::text`].
    pub fn switch(&self) -> Result<Option<bool>> {
        Ok(self.text()?.map(|v| matches!(v.as_str(), "1" | "true" | "on")))
    }

    /// Checks `value` against the knob's kind without reading the environment; the empty text always passes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKnob`], naming the variable, the value and what is accepted.
    pub fn parse(&self, value: &str) -> Result<()> {
        let accepted = value.is_empty()
            || match self.kind {
                Kind::Choice(words) => words.contains(&value),
                Kind::Count { min, max } => value.parse::<usize>().is_ok_and(|n| (min..=max).contains(&n)),
                Kind::Switch => matches!(value, "1" | "true" | "on" | "0" | "false" | "off"),
                Kind::Text => true,
            };
        if accepted { Ok(()) } else { Err(self.invalid(value)) }
    }

    fn invalid(&self, value: &str) -> Error {
        let expected = match self.kind {
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Count { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Switch => "1, true, on, 0, false or off".to_owned(),
            Kind::Text => "UTF-8 text".to_owned(),
        };
        Error::new(
            ErrorKind::InvalidKnob,
            format!("{}: expected {expected}, found `{value}`", self.name),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_accepts_only_values_of_the_kind() {
        static SWITCH: Knob = Knob {
            name: "T_SWITCH",
            kind: Kind::Switch,
            default: "off",
            help: "Test.",
        };
        let cases: [(&Knob, &str, bool); 10] = [
            (&ISA, "scalar", true),
            (&ISA, "avx2", true),
            (&ISA, "", true),
            (&ISA, "AVX2", false),
            (&THREADS, "1", true),
            (&THREADS, "0", false),
            (&THREADS, "-3", false),
            (&THREADS, "many", false),
            (&SWITCH, "on", true),
            (&SWITCH, "yes", false),
        ];
        for (knob, value, ok) in cases {
            assert_eq!(knob.parse(value).is_ok(), ok, "{} {value:?}", knob.name);
        }
    }

    #[test]
    fn parse_unknown_choice_lists_values() {
        let error = ISA.parse("sse").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidKnob);
        assert_eq!(
            error.to_string(),
            "CACTUS_ISA: expected one of auto, scalar, simd128, simd128_fma, neon, neon_dotprod, neon_i8mm, sme2, avx2, avx2_vnni, avx512_vnni, amx_int8, found `sse`"
        );
    }

    #[test]
    fn all_knobs_are_named_and_documented_once() {
        let mut names: Vec<_> = all().iter().map(|k| k.name).collect();
        assert!(
            all()
                .iter()
                .all(|k| k.name.starts_with("CACTUS_") && k.help.ends_with('.') && !k.default.is_empty())
        );
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().len());
    }

    #[test]
    fn reads_of_an_unset_knob_give_none() {
        static UNSET: Knob = Knob {
            name: "CACTUS_TEST_UNSET",
            kind: Kind::Count { min: 0, max: 9 },
            default: "0",
            help: "Test.",
        };
        assert_eq!(UNSET.text().unwrap(), None);
        assert_eq!(UNSET.count().unwrap(), None);
        assert_eq!(UNSET.choice().unwrap(), None);
        assert_eq!(UNSET.switch().unwrap(), None);
    }
}
