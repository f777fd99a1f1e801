//! From a grammar to a constraint, under limits.
//!
//! Depends on `llguidance` for the parser. It deliberately holds nothing of a request: one compiler serves a model.

use std::sync::Arc;

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::{Matcher, ParserFactory, TokenParser, regex_to_lark};
use serde_json::{Value, json};
use toktrie::{InferenceCapabilities, TokEnv};

use super::vocabulary::Vocabulary;
use super::{Constraint, Grammar, Reasoning, Tagged, locate, schema};
use crate::{Error, ErrorKind, Tokenizer};

/// Stack of the thread that compiles. Memory is used as far as the recursion goes.
const STACK_BYTES: usize = 64 << 20;
/// Letters of a library's message that are passed on.
const MAX_REASON: usize = 300;

/// What compiling and following a grammar may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrammarLimits {
    /// Bytes of a schema as JSON, of an expression or of a grammar. Default 1 MiB.
    pub source_bytes: usize,
    /// Levels of nesting of JSON in a schema, or of brackets in an expression or grammar. Default 96.
    pub nesting: usize,
    /// Schemas inside a schema, each counted as often as references reach it. Default 20,000.
    pub schemas: usize,
    /// Properties of one object. Default 2,000.
    pub properties: usize,
    /// Symbols of all rules. Default 200,000.
    pub symbols: usize,
    /// Steps of building expressions. Default 500,000, which take about 10 ms.
    pub compile_steps: u64,
    /// Steps of expressions for one token. Default 200,000, which take about 14 ms.
    pub token_steps: u64,
    /// Items of the parser for one token. Default 50,000, which take about 3 ms.
    pub token_items: usize,
    /// States of the lexer in all, 1 to 2 kB each. Default 50,000.
    pub lexer_states: usize,
}

impl Default for GrammarLimits {
    fn default() -> Self {
        Self {
            source_bytes: 1 << 20,
            nesting: 96,
            schemas: 20_000,
            properties: 2_000,
            symbols: 200_000,
            compile_steps: 500_000,
            token_steps: 200_000,
            token_items: 50_000,
            lexer_states: 50_000,
        }
    }
}

/// Compiles grammars for one tokenizer. Immutable and shareable between threads.
pub struct GrammarCompiler {
    factory: ParserFactory,
    limits: GrammarLimits,
    vocab_size: usize,
    specials: Specials,
}

impl std::fmt::Debug for GrammarCompiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrammarCompiler")
            .field("vocab_size", &self.vocab_size)
            .field("limits", &self.limits)
            .finish()
    }
}

/// Which words are special tokens.
#[derive(Debug, Clone)]
pub(crate) struct Specials(Arc<Tokenizer>);

impl Specials {
    /// A word in Lark: the token, where it is a special one, else its text.
    pub(crate) fn word(&self, word: &str) -> String {
        match self.id(word) {
            Some(id) => format!("<[{id}]>"),
            None => quoted(word),
        }
    }

    /// The same for a text that may begin with a special token.
    fn beginning(&self, text: &str) -> String {
        let ends = text.char_indices().map(|(at, c)| at + c.len_utf8()).rev();
        let token = ends.into_iter().find_map(|end| Some((self.id(&text[..end])?, end)));
        match token {
            Some((id, end)) if end < text.len() => format!("<[{id}]> {}", quoted(&text[end..])),
            Some((id, _)) => format!("<[{id}]>"),
            None => quoted(text),
        }
    }

    /// The id of a word that is a special token.
    pub(crate) fn id(&self, word: &str) -> Option<u32> {
        self.0.token_id(word).filter(|&id| self.0.is_special(id))
    }
}

/// A text as a string of Lark.
pub(crate) fn quoted(text: &str) -> String {
    // Lark strings are JSON strings.
    Value::from(text).to_string()
}

impl GrammarCompiler {
    /// Builds what all grammars of a tokenizer share: a prefix tree of its tokens. That takes some 20 ms and a few megabytes
    /// for 49,152 tokens (the test `grammar_costs` measures it), so it is done once and when first needed.
    ///
    /// # Errors
    /// [`ErrorKind::GrammarLimit`] for a vocabulary that is too large.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Result<Self, Error> {
        Self::with_limits(tokenizer, GrammarLimits::default())
    }

    /// The same with other limits.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_limits(tokenizer: Arc<Tokenizer>, limits: GrammarLimits) -> Result<Self, Error> {
        let vocab_size = tokenizer.vocab_size();
        let specials = Specials(Arc::clone(&tokenizer));
        let env: TokEnv = Arc::new(Vocabulary::new(tokenizer)?);
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices);
        let mut factory = factory.map_err(|e| invalid(&e))?;
        factory.quiet();
        let of_library = factory.limits_mut();
        of_library.initial_lexer_fuel = limits.compile_steps;
        of_library.step_lexer_fuel = limits.token_steps;
        of_library.step_max_items = limits.token_items;
        of_library.max_lexer_states = limits.lexer_states;
        of_library.max_grammar_size = limits.symbols;
        of_library.verbose_errors = false;
        Ok(Self {
            factory,
            limits,
            vocab_size,
            specials,
        })
    }

    /// The limits.
    pub fn limits(&self) -> &GrammarLimits {
        &self.limits
    }

    pub(crate) fn specials(&self) -> &Specials {
        &self.specials
    }

    /// A constraint at the beginning of a text.
    ///
    /// # Errors
    /// [`ErrorKind::UnsupportedSchema`] for a schema with a keyword, or a use of one, that cannot be enforced: the message
    /// names it and its JSON pointer. [`ErrorKind::InvalidGrammar`] for a schema, expression or grammar of the wrong form,
    /// or that nothing satisfies. [`ErrorKind::GrammarLimit`] for one that is too large or takes too long.
    pub fn compile(&self, grammar: &Grammar) -> Result<Constraint, Error> {
        let (parts, places) = Assembly::new(self).whole(grammar)?;
        let parser = on_own_stack(|| match self.parser(&parts) {
            Ok(parser) => Ok(parser),
            Err(error) if error.kind() == ErrorKind::GrammarLimit => Err(error),
            // The library does not say where; compiling the parts of each schema alone does.
            Err(error) => Err(places
                .iter()
                .find_map(|schema| locate::locate(schema, |part| self.check(part)))
                .unwrap_or(error)),
        })?;
        let size_bytes = parser.parser.lexer_stats().num_bytes;
        Ok(Constraint::new(Matcher::new(Ok(parser)), self.vocab_size, size_bytes))
    }

    fn parser(&self, parts: &TopLevelGrammar) -> Result<TokenParser, Error> {
        self.factory.create_parser(parts.clone()).map_err(|e| invalid(&e))
    }

    fn check(&self, prepared: &Value) -> Result<(), Error> {
        self.parser(&TopLevelGrammar::from_json_schema(prepared.clone()))
            .map(drop)
    }
}

/// Puts a grammar together from rules in Lark and named schemas.
struct Assembly<'a> {
    compiler: &'a GrammarCompiler,
    rules: String,
    schemas: Vec<(String, Value)>,
    /// Whole grammars in Lark, by name.
    larks: Vec<(String, String)>,
    names: usize,
}

impl<'a> Assembly<'a> {
    fn new(compiler: &'a GrammarCompiler) -> Self {
        Self {
            compiler,
            rules: String::new(),
            schemas: Vec::new(),
            larks: Vec::new(),
            names: 0,
        }
    }

    /// The grammar for the library, and the prepared schemas in it.
    fn whole(mut self, grammar: &Grammar) -> Result<(TopLevelGrammar, Vec<Value>), Error> {
        let named = |name: &str, schema: &Value| GrammarWithLexer {
            name: Some(name.to_owned()),
            ..GrammarWithLexer::from_json_schema(schema.clone())
        };
        let first = match grammar {
            // Alone, it needs no rule around it.
            Grammar::JsonSchema { .. } | Grammar::JsonObject { .. } => {
                self.reference(grammar)?;
                None
            }
            Grammar::Lark(text) => Some(self.checked_lark(text)?.to_owned()),
            other => {
                let start = self.reference(other)?;
                Some(format!("start: {start}\n{}", self.rules))
            }
        };
        let mut grammars: Vec<GrammarWithLexer> = first.into_iter().map(GrammarWithLexer::from_lark).collect();
        grammars.extend(self.schemas.iter().map(|(name, schema)| named(name, schema)));
        grammars.extend(self.larks.into_iter().map(|(name, text)| GrammarWithLexer {
            name: Some(name),
            ..GrammarWithLexer::from_lark(text)
        }));
        let parts = TopLevelGrammar {
            grammars,
            max_tokens: None,
        };
        Ok((parts, self.schemas.into_iter().map(|(_, schema)| schema).collect()))
    }

    fn name(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("cactus_{kind}_{}", self.names)
    }

    /// What stands for a grammar in a rule.
    fn reference(&mut self, grammar: &Grammar) -> Result<String, Error> {
        let limits = self.compiler.limits;
        match grammar {
            Grammar::JsonSchema { schema, spacing } => {
                let name = self.name("json");
                self.schemas
                    .push((name.clone(), schema::prepare(schema, "#", *spacing, &limits)?));
                Ok(format!("@{name}"))
            }
            Grammar::JsonObject { spacing } => {
                let schema = json!({"type": "object"});
                let name = self.name("json");
                self.schemas
                    .push((name.clone(), schema::prepare(&schema, "#", *spacing, &limits)?));
                Ok(format!("@{name}"))
            }
            Grammar::Regex(text) => {
                check_size("the expression", text, &limits)?;
                if text.contains('\n') || text.contains('\r') {
                    // Between slashes a line break would end the expression.
                    let text = text.replace('\n', "\\n").replace('\r', "\\r");
                    return Ok(format!("/{}/", regex_to_lark(&text, "")));
                }
                Ok(format!("/{}/", regex_to_lark(text, "")))
            }
            Grammar::Tagged(tagged) => self.tagged(tagged),
            Grammar::AfterReasoning { reasoning, then } => self.after_reasoning(reasoning, then),
            Grammar::Parts(parts) => {
                for part in &parts.schemas {
                    let prepared = schema::prepare(&part.root, &part.pointer, part.spacing, &limits)?;
                    self.schemas.push((part.name.clone(), prepared));
                }
                self.rules += &parts.rules;
                Ok(parts.start.clone())
            }
            Grammar::Lark(text) => {
                let text = self.checked_lark(text)?.to_owned();
                let name = self.name("lark");
                self.larks.push((name.clone(), text));
                Ok(format!("@{name}"))
            }
            Grammar::Either(grammars) => {
                if grammars.is_empty() {
                    let message = "a choice of grammars needs at least one";
                    return Err(Error::new(ErrorKind::InvalidGrammar, message));
                }
                let each: Result<Vec<String>, Error> = grammars.iter().map(|g| self.reference(g)).collect();
                Ok(format!("({})", each?.join(" | ")))
            }
        }
    }

    fn tagged(&mut self, tagged: &Tagged) -> Result<String, Error> {
        if tagged.tags.is_empty() {
            let message = "tagged text needs at least one tag";
            return Err(Error::new(ErrorKind::InvalidGrammar, message));
        }
        let specials = self.compiler.specials.clone();
        let text = self.name("TEXT").to_uppercase();
        self.rules += &format!("{text}: /(?s:.*)/\n");
        let mut heads = Vec::new();
        for tag in &tagged.tags {
            let body = self.reference(&tag.body)?;
            let end = if tag.end.is_empty() {
                String::new()
            } else {
                specials.word(&tag.end)
            };
            let name = self.name("tag");
            match (tagged.required, specials.id(&tag.begin)) {
                (true, _) => self.rules += &format!("{name}: {} {body} {end}\n", specials.word(&tag.begin)),
                (false, Some(id)) => self.rules += &format!("{name}: {text} <[{id}]> {body} {end}\n"),
                (false, None) => {
                    let head = self.name("head");
                    self.rules += &format!("{head}[lazy]: {text} {}\n", quoted(&tag.begin));
                    self.rules += &format!("{name}: {head} {body} {end}\n");
                }
            }
            heads.push(name);
        }
        let any = heads.join(" | ");
        Ok(match (tagged.required, tagged.single) {
            (true, true) => format!("({any})"),
            (true, false) => format!("({any})+"),
            (false, true) => format!("(({any}) | {text})"),
            (false, false) => format!("(({any})* {text})"),
        })
    }

    fn after_reasoning(&mut self, reasoning: &Reasoning, then: &Grammar) -> Result<String, Error> {
        let then = self.reference(then)?;
        let specials = self.compiler.specials.clone();
        let think = self.name("think");
        let text = self.name("TEXT").to_uppercase();
        self.rules += &format!("{text}: /(?s:.*)/\n");
        let body = match specials.id(&reasoning.close) {
            Some(id) => format!("{text} <[{id}]>"),
            None => {
                let head = self.name("thought");
                self.rules += &format!("{head}[lazy]: {text} {}\n", quoted(&reasoning.close));
                head
            }
        };
        let open = reasoning
            .open
            .as_deref()
            .map(|open| specials.beginning(open))
            .unwrap_or_default();
        let gap = self.name("GAP").to_uppercase();
        self.rules += &format!("{gap}: /\\n{{0,2}}/\n{think}: {open} {body} {gap}\n");
        let optional = if reasoning.required || reasoning.open.is_none() {
            ""
        } else {
            "?"
        };
        Ok(format!("{think}{optional} {then}"))
    }

    fn checked_lark<'t>(&self, text: &'t str) -> Result<&'t str, Error> {
        check_size("the grammar", text, &self.compiler.limits)?;
        for word in ["%json", "%llguidance", "%lark", "@"] {
            if outside_strings(text).contains(word) {
                let message =
                    format!("`{word}` is not allowed in a grammar: it would pass the checks of schemas and limits");
                return Err(Error::new(ErrorKind::InvalidGrammar, message));
            }
        }
        Ok(text)
    }
}

/// A grammar without its strings, expressions and comments.
fn outside_strings(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut quote = None;
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match (quote, c) {
                (Some(_), '\\') => drop(chars.next()),
                (Some(end), c) if c == end => quote = None,
                (Some(_), _) => {}
                (None, '/') if chars.peek() == Some(&'/') => break,
                (None, '"' | '/') => quote = Some(c),
                (None, '#') => break,
                (None, c) => out.push(c),
            }
        }
        out.push('\n');
    }
    out
}

/// Refuses a text that is too long or nested too deeply to be parsed by recursion.
fn check_size(what: &str, text: &str, limits: &GrammarLimits) -> Result<(), Error> {
    if text.len() > limits.source_bytes {
        let message = format!(
            "{what} has {} bytes, at most {} are allowed",
            text.len(),
            limits.source_bytes
        );
        return Err(Error::new(ErrorKind::GrammarLimit, message));
    }
    let mut depth = 0usize;
    for c in text.bytes() {
        match c {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > limits.nesting {
            let message = format!("{what} is nested deeper than {}", limits.nesting);
            return Err(Error::new(ErrorKind::GrammarLimit, message));
        }
    }
    Ok(())
}

/// Runs `work` on a thread whose stack is large enough for every recursion that the limits allow. WebAssembly has no threads; its
/// one stack is made as large (`sdks/web/scripts/build.sh`).
fn on_own_stack<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    let failed = || {
        Error::new(
            ErrorKind::InvalidGrammar,
            "the grammar could not be compiled: the compiler failed on it",
        )
    };
    if cfg!(target_family = "wasm") {
        return work();
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("cactus-grammar".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(|e| Error::new(ErrorKind::Io, "no thread could be started to compile a grammar").with_source(e))?;
        thread.join().unwrap_or_else(|_| Err(failed()))
    })
}

/// The library's message as an error of ours.
fn invalid(error: &dyn std::fmt::Display) -> Error {
    let reason = error.to_string();
    let limit = ["too many", "fuel", "too large", "too big", "limit", "too complex"];
    let kind = match limit.iter().any(|word| reason.contains(word)) {
        true => ErrorKind::GrammarLimit,
        false => ErrorKind::InvalidGrammar,
    };
    let first = reason.split("\n<").next().unwrap_or_default().trim();
    let short: String = first.chars().take(MAX_REASON).collect();
    Error::new(kind, format!("the grammar cannot be compiled: {short}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lark_outside_strings_is_what_remains() {
        let text = "start: \"%json\" /@[%]x/ // %json\nx: @a # %json\ny: %json {}";
        assert_eq!(outside_strings(text), "start:   \nx: @a \ny: %json {}\n");
    }
}
