//! Bounds on what a hostile template can cost.
//!
//! Fuel bounds the number of steps, but one step can double a string, so forty steps can ask for a terabyte.
//! The template is therefore rebuilt before it is compiled (see [`super::rebuild`]): every expression that
//! makes a new value is wrapped in a filter that measures the result against the [`Limits`](super::Limits).

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

use super::Limits;

/// Deepest nesting of lists and maps that a template may build.
pub(super) const MAX_DEPTH: usize = 64;
/// Most tokens within one tag: chains of operators nest the syntax tree as deep as they are long.
const MAX_TAG_TOKENS: usize = 1_000;
/// Most `elif` in one template, which nest too.
const MAX_ELIF: usize = 500;
/// Longest digits within a format string, which ask for that much padding.
const MAX_FORMAT_DIGITS: usize = 4;

/// Names of the measuring filters. A template that uses one by name measures once more.
pub(super) const CHECKED: &str = "cactus_checked";
pub(super) const STORED: &str = "cactus_stored";
pub(super) const CONCAT: &str = "cactus_concat";
pub(super) const MULTIPLY: &str = "cactus_multiply";

/// Detail of errors that are about a limit, so that they can be told from other errors.
const LIMIT_PREFIX: &str = "template limit: ";

pub(super) fn limit_error(what: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{LIMIT_PREFIX}{what}"))
}

/// Whether the error, or one beneath it, is about a limit.
pub(super) fn is_limit(error: &Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<Error>()
            && (error.kind() == ErrorKind::OutOfFuel
                || error
                    .detail()
                    .is_some_and(|d| d.starts_with(LIMIT_PREFIX) || d == "recursion limit exceeded"))
        {
            return true;
        }
        next = error.source();
    }
    false
}

/// What a rendering has used up.
#[derive(Debug, Default)]
struct Spent {
    bytes: usize,
    visits: usize,
}

/// Measures values against the limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guard {
    limits: Limits,
    namespace_type: &'static str,
}

impl Guard {
    pub(super) fn new(limits: Limits) -> Result<Self, Error> {
        let namespace = minijinja::functions::namespace(None)?;
        let namespace_type = namespace.as_object().map_or("", |object| object.type_name());
        Ok(Self { limits, namespace_type })
    }

    /// Passes on a new value after adding its size to what was spent.
    pub(super) fn check(&self, state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
        let spent = state.get_or_insert_extension(Spent::default());
        let own_bytes = match value.as_str() {
            Some(text) => text.len(),
            None => value.len().unwrap_or(0).saturating_mul(size_of::<Value>()),
        };
        self.spend(spent, own_bytes)?;
        let mut total = 0;
        self.measure(spent, &value, 0, &mut total)?;
        Ok(value)
    }

    /// Like [`check`](Self::check), for values put into a namespace: one that held a namespace, however deep,
    /// could contain itself.
    pub(super) fn check_stored(&self, state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
        if self.is_namespace(&value) {
            return Err(limit_error("a namespace within a namespace".to_owned()));
        }
        self.check(state, value)
    }

    /// Adds text that is captured or written out.
    pub(super) fn check_text(&self, state: &mut State<'_, '_>, bytes: usize) -> Result<(), Error> {
        let spent = state.get_or_insert_extension(Spent::default());
        self.spend(spent, bytes)
    }

    /// Fails if a text that is about to be made would be too long.
    pub(super) fn check_length(&self, bytes: Option<usize>) -> Result<(), Error> {
        match bytes {
            Some(bytes) if bytes <= self.limits.value_bytes => Ok(()),
            _ => Err(limit_error(format!(
                "a value of more than {} bytes",
                self.limits.value_bytes
            ))),
        }
    }

    fn spend(&self, spent: &mut Spent, bytes: usize) -> Result<(), Error> {
        spent.bytes = spent.bytes.saturating_add(bytes);
        if spent.bytes > self.limits.total_bytes {
            return Err(limit_error(format!(
                "more than {} bytes made in all",
                self.limits.total_bytes
            )));
        }
        Ok(())
    }

    fn is_namespace(&self, value: &Value) -> bool {
        value
            .as_object()
            .is_some_and(|object| object.type_name() == self.namespace_type)
    }

    /// Adds up what the value would be written out: a list that holds one long text twice counts it twice.
    fn measure(&self, spent: &mut Spent, value: &Value, depth: usize, total: &mut usize) -> Result<(), Error> {
        spent.visits += 1;
        if spent.visits as u64 > self.limits.fuel.saturating_mul(10) {
            return Err(limit_error("too much work on nested values".to_owned()));
        }
        if depth > MAX_DEPTH {
            return Err(limit_error(format!("values nested deeper than {MAX_DEPTH}")));
        }
        let bytes = value.as_str().map_or(size_of::<Value>(), str::len);
        *total = total.saturating_add(bytes);
        self.check_length(Some(*total))?;
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                for item in value.try_iter()? {
                    self.measure_item(spent, &item, depth, total)?;
                }
            }
            ValueKind::Map => {
                for key in value.try_iter()? {
                    let item = value.get_item(&key)?;
                    self.measure_item(spent, &key, depth, total)?;
                    self.measure_item(spent, &item, depth, total)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn measure_item(&self, spent: &mut Spent, item: &Value, depth: usize, total: &mut usize) -> Result<(), Error> {
        if self.is_namespace(item) {
            return Err(limit_error("a namespace within a list, map or namespace".to_owned()));
        }
        self.measure(spent, item, depth + 1, total)
    }
}

/// Fails on a format string that asks for much padding.
pub(super) fn check_format(format: &str) -> Result<(), Error> {
    let longest = format.split(|c: char| !c.is_ascii_digit()).map(str::len).max();
    if longest > Some(MAX_FORMAT_DIGITS) || format.contains('*') {
        return Err(limit_error(format!(
            "numbers of more than {MAX_FORMAT_DIGITS} digits in a format string"
        )));
    }
    Ok(())
}

/// The template with `{% generation %}` blocks turned into `{% with %}` blocks, which the parser knows and
/// which scope their variables the same way. They only mark what a training mask covers.
///
/// # Errors
/// A syntax error, or tags that are too long or too deep to be parsed safely.
pub(super) fn prepare(source: &str, syntax: SyntaxConfig) -> Result<String, Error> {
    let mut out = String::with_capacity(source.len());
    let mut copied = 0;
    let mut in_tag = 0;
    let mut elifs = 0;
    let mut first_of_block = false;
    for token in tokenize(source, false, syntax) {
        let (token, span) = token?;
        match token {
            Token::TemplateData(_) | Token::VariableStart => in_tag = 0,
            Token::BlockStart => {
                in_tag = 0;
                first_of_block = true;
                continue;
            }
            Token::Ident(name) if first_of_block => {
                let replacement = match name {
                    "generation" => "with",
                    "endgeneration" => "endwith",
                    _ => name,
                };
                elifs += usize::from(name == "elif");
                let (start, end) = (span.start_offset as usize, span.end_offset as usize);
                // Spans are offsets of the source; the checks keep a wrong one from being a panic.
                if replacement != name && source.get(start..end) == Some(name) {
                    out.push_str(source.get(copied..start).unwrap_or_default());
                    out.push_str(replacement);
                    copied = end;
                }
            }
            _ => in_tag += 1,
        }
        first_of_block = false;
        if in_tag > MAX_TAG_TOKENS || elifs > MAX_ELIF {
            return Err(limit_error(format!(
                "more than {MAX_TAG_TOKENS} tokens in the tag on line {}, or more than {MAX_ELIF} `elif`",
                span.start_line
            )));
        }
    }
    out.push_str(source.get(copied..).unwrap_or_default());
    Ok(out)
}
