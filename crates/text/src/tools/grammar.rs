//! The constraint under which a model writes calls: free text until a call begins, then the form of its family with arguments
//! that satisfy the tool's schema.
//!
//! Depends on the table of formats and on [`crate::grammar`]. Where a form is JSON, the schema holds to the last keyword.
//! Where it is not (raw values, strings between special words), texts are bound by `enum` and `const` only, and
//! [`ToolGrammar::unenforced`] says which keywords are left to the receiver.

use serde_json::Value;

use super::format::{Row, Syntax};
use super::{CallFormat, Tool, ToolChoice};
use crate::grammar::{Grammar, GrammarCompiler, NamedSchema, Parts, Reasoning, Spacing, quoted, relax};
use crate::{Error, ErrorKind};

/// Keywords that say something about arguments beyond `properties`.
const OPEN: &[&str] = &[
    "additionalProperties",
    "patternProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
];

/// Most calls of one message. A weak model that has to call something would repeat itself until its tokens run out.
const MOST_CALLS: usize = 16;
/// Deepest arguments that are written in a form of their own; what is deeper may be any value.
const MAX_DEPTH: usize = 8;

/// What is asked of calls.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolOptions {
    /// Which tools may or have to be called.
    pub choice: ToolChoice,
    /// At most one call.
    pub single: bool,
    /// Reasoning before the answer.
    pub reasoning: Option<Reasoning>,
}

/// A grammar for a request with tools.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolGrammar {
    /// The grammar; `None` where nothing is to be constrained.
    pub grammar: Option<Grammar>,
    /// What of the schemas is not enforced, each with tool, place and keyword.
    pub unenforced: Vec<String>,
}

/// The grammar under which a model of `format` calls `tools`. Keywords that cannot be enforced are left out of the schemas of
/// tools that are not `strict`.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for a choice that the tools do not allow, or a call that is required of a model that has no form
/// for it; [`ErrorKind::UnsupportedSchema`] for a `strict` tool with a schema that the form cannot enforce.
pub fn grammar(
    compiler: &GrammarCompiler,
    format: CallFormat,
    tools: &[Tool],
    options: &ToolOptions,
) -> Result<ToolGrammar, Error> {
    let (picked, required) = options.choice.pick(tools)?;
    let free = |unenforced: Vec<String>| ToolGrammar {
        grammar: None,
        unenforced,
    };
    if picked.is_empty() {
        return Ok(free(Vec::new()));
    }
    let row = format.row.filter(|row| row.syntax != Syntax::Harmony);
    let Some(row) = row else {
        let name = format.name().unwrap_or("of this model");
        if required || picked.iter().any(|tool| tool.strict) {
            let message = format!("the format {name} has no form in which calls can be required or strict");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        return Ok(free(vec![format!("calls in the format {name} are not constrained")]));
    };
    let mut unenforced = Vec::new();
    let mut relaxed = Vec::with_capacity(picked.len());
    for tool in picked {
        relaxed.push(match tool.strict {
            true => tool.clone(),
            false => without_unsupported(compiler, tool, &mut unenforced)?,
        });
    }
    let picked: Vec<&Tool> = relaxed.iter().collect();
    let mut writer = Writer {
        compiler,
        row,
        parts: Parts::default(),
        unenforced,
        names: 0,
    };
    writer.parts.start = writer.start(&picked, required, options.single || !row.parallel)?;
    if let Some(tool) = picked.iter().find(|tool| tool.strict)
        && let Some(what) = writer
            .unenforced
            .iter()
            .find(|what| what.starts_with(&format!("`{}`", tool.name)))
    {
        let message = format!(
            "{what} cannot be enforced in the format {}, and the tool is strict",
            row.name
        );
        return Err(Error::new(ErrorKind::UnsupportedSchema, message));
    }
    let parts = Grammar::Parts(writer.parts);
    let grammar = match &options.reasoning {
        None => parts,
        Some(reasoning) => Grammar::AfterReasoning {
            reasoning: reasoning.clone(),
            then: Box::new(parts),
        },
    };
    Ok(ToolGrammar {
        grammar: Some(grammar),
        unenforced: writer.unenforced,
    })
}

/// A tool whose schema has no keyword that cannot be enforced.
fn without_unsupported(compiler: &GrammarCompiler, tool: &Tool, unenforced: &mut Vec<String>) -> Result<Tool, Error> {
    let named = |e: Error| Error::new(e.kind(), format!("the parameters of the tool `{}`: {e}", tool.name));
    let (mut parameters, dropped) = relax(&tool.parameters, compiler.limits()).map_err(named)?;
    if let Value::Object(fields) = &mut parameters
        && is_open(&tool.parameters)
        && !OPEN.iter().any(|keyword| fields.contains_key(*keyword))
    {
        fields.insert("additionalProperties".to_owned(), Value::Bool(true));
    }
    unenforced.extend(dropped.into_iter().map(|what| format!("`{}`, {what}", tool.name)));
    Ok(Tool {
        parameters,
        ..tool.clone()
    })
}

/// The tool if its schema compiles. If not, and it is not `strict`: the tool with a schema that does, and what that leaves to
/// the receiver.
///
/// # Errors
/// [`ErrorKind::UnsupportedSchema`] for a strict tool, [`ErrorKind::InvalidGrammar`] for a schema of the wrong form; both name
/// the tool.
pub fn compilable(compiler: &GrammarCompiler, tool: &Tool) -> Result<(Tool, Vec<String>), Error> {
    let mut unenforced = Vec::new();
    let mut changed = match tool.strict {
        true => tool.clone(),
        false => without_unsupported(compiler, tool, &mut unenforced)?,
    };
    let compiles = |tool: &Tool| compiler.compile(&Grammar::json_schema(tool.parameters.clone()));
    let Err(mut error) = compiles(&changed) else {
        return Ok((changed, unenforced));
    };
    if error.kind() == ErrorKind::UnsupportedSchema && !tool.strict {
        one_of_to_any_of(&mut changed.parameters);
        match compiles(&changed) {
            Ok(_) => {
                unenforced.push(format!("`{}`, that only one alternative of `oneOf` fits", tool.name));
                return Ok((changed, unenforced));
            }
            Err(other) => error = other,
        }
    }
    if tool.strict || error.kind() == ErrorKind::InvalidGrammar {
        let message = format!("the parameters of the tool `{}`: {error}", tool.name);
        return Err(Error::new(error.kind(), message));
    }
    changed.parameters = serde_json::json!({"type": "object", "additionalProperties": true});
    Ok((changed, vec![format!("`{}`, its whole schema ({error})", tool.name)]))
}

fn one_of_to_any_of(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let (Some(list), None) = (fields.get("oneOf").cloned(), fields.get("anyOf")) {
                fields.shift_remove("oneOf");
                fields.insert("anyOf".to_owned(), list);
            }
            fields.values_mut().for_each(one_of_to_any_of);
        }
        Value::Array(items) => items.iter_mut().for_each(one_of_to_any_of),
        _ => {}
    }
}

struct Writer<'a> {
    compiler: &'a GrammarCompiler,
    row: &'static Row,
    parts: Parts,
    unenforced: Vec<String>,
    names: usize,
}

impl Writer<'_> {
    /// Adds a rule and gives its name.
    fn rule(&mut self, kind: &str, body: &str) -> String {
        self.names += 1;
        let name = format!("t_{kind}_{}", self.names);
        self.parts.rules += &format!("{name}: {body}\n");
        name
    }

    /// A rule that takes as little text as it can up to `end`.
    fn up_to(&mut self, end: &str) -> String {
        match self.compiler.specials().id(end) {
            Some(id) => self.rule("text", &format!("T_TEXT <[{id}]>")),
            None => {
                self.names += 1;
                let name = format!("t_until_{}", self.names);
                self.parts.rules += &format!("{name}[lazy]: T_TEXT {}\n", quoted(end));
                name
            }
        }
    }

    fn word(&self, word: &str) -> String {
        self.compiler.specials().word(word)
    }

    /// What stands for the schema at `pointer` of a tool's parameters.
    fn schema(&mut self, tool: &Tool, pointer: &str) -> String {
        self.names += 1;
        let name = format!("t_json_{}", self.names);
        let mut root = tool.parameters.clone();
        if !is_open(&root)
            && let Value::Object(fields) = &mut root
        {
            // What a tool does not say it takes, a model should not make up.
            fields.insert("additionalProperties".to_owned(), Value::Bool(false));
        }
        self.parts.schemas.push(NamedSchema {
            name: name.clone(),
            root,
            pointer: pointer.to_owned(),
            spacing: Spacing::Line,
        });
        format!("@{name}")
    }

    fn start(&mut self, tools: &[&Tool], required: bool, single: bool) -> Result<String, Error> {
        self.parts.rules += "T_TEXT: /(?s:.*)/\n";
        let row = self.row;
        let mut bodies = Vec::new();
        for tool in tools {
            let body = self.body(tool)?;
            bodies.push(self.rule("tool", &body));
        }
        let any = bodies.join(" | ");
        let one = self.rule("one", &any);
        let open = row.open.first().copied().unwrap_or_default();
        let close = row.close.first().copied().unwrap_or_default();
        // What a model writes from the opening marker on.
        let after = match row.syntax {
            Syntax::Json(_) if row.bare && close.is_empty() => {
                // The whole answer is a call or begins otherwise.
                self.parts.rules += "T_OTHER: /\\s*[^{\\s](?s:.*)/\n";
                return Ok(if required { one } else { format!("({one} | T_OTHER)") });
            }
            Syntax::Json(_) if close.is_empty() => listed(&one, single, "\"[\"", "\"]\""),
            Syntax::Json(_) => format!("\"\\n\" {one} \"\\n\" {}", self.word(close)),
            Syntax::Python => {
                let list = listed(&one, single, "\"[\"", "\"]\"");
                format!("{list} {}", self.word(close))
            }
            Syntax::Mistral if row.name == "mistral_list" => listed(&one, single, "\"[\"", "\"]\""),
            Syntax::Mistral => one,
            Syntax::Elements => format!("\"\\n\" {one} \"\\n\" {}", self.word(close)),
            Syntax::Call(_) => format!("{one} {}", self.word(close)),
            Syntax::Harmony => return Err(Error::new(ErrorKind::InvalidInput, "harmony has no grammar")),
        };
        let call = self.rule("call", &format!("{} {after}", self.word(open)));
        let in_list = matches!(row.syntax, Syntax::Python) || row.name == "mistral_list" || row.name == "granite";
        if required {
            let gap = if matches!(row.syntax, Syntax::Json(_) | Syntax::Elements) {
                "\"\\n\""
            } else {
                ""
            };
            return Ok(match single || in_list {
                true => call,
                false => format!("({call} ({gap} {call}){{0,{}}})", MOST_CALLS - 1),
            });
        }
        let head = self.up_to(open);
        let call = self.rule("later", &format!("{head} {after}"));
        Ok(match single || in_list {
            true => format!("(T_TEXT | {call})"),
            false => format!("(({call}){{0,{MOST_CALLS}}} T_TEXT)"),
        })
    }

    /// A call of one tool, between the markers.
    fn body(&mut self, tool: &Tool) -> Result<String, Error> {
        let name = Value::from(tool.name.as_str()).to_string();
        Ok(match self.row.syntax {
            Syntax::Json(key) => {
                let arguments = self.schema(tool, "#");
                format!(
                    "{} {arguments} \"}}\"",
                    quoted(&format!("{{\"name\": {name}, \"{key}\": "))
                )
            }
            Syntax::Mistral if self.row.name == "mistral_list" => {
                let arguments = self.schema(tool, "#");
                let begin = quoted(&format!("{{\"name\": {name}, \"arguments\": "));
                format!("{begin} {arguments} (\", \\\"id\\\": \\\"\" /[a-zA-Z0-9]{{9}}/ \"\\\"\")? \"}}\"")
            }
            Syntax::Mistral => {
                let arguments = self.schema(tool, "#");
                let (id, args) = (self.word("[CALL_ID]"), self.word("[ARGS]"));
                format!("{} ({id} /[a-zA-Z0-9]{{9}}/)? {args} {arguments}", quoted(&tool.name))
            }
            Syntax::Elements => {
                let mut items = Vec::new();
                for (key, required) in self.parameters(tool) {
                    let pointer = pointer(&key);
                    let value = self.element(tool, &key, &pointer);
                    items.push((format!("{} {value}", quoted(&format!("<parameter={key}>\n"))), required));
                }
                let parameters = self.sequence(&items, "");
                let begin = quoted(&format!("<function={}>\n", tool.name));
                format!("{begin} {parameters} \"</function>\"")
            }
            Syntax::Python => {
                let mut items = Vec::new();
                for (key, required) in self.parameters(tool) {
                    let boolean = tool.parameter(&key).and_then(|s| s.get("type")) == Some(&Value::from("boolean"));
                    let value = match boolean {
                        true => "(\"True\" | \"False\" | \"true\" | \"false\")".to_owned(),
                        false => self.schema(tool, &pointer(&key)),
                    };
                    items.push((format!("{} {value}", quoted(&format!("{key}="))), required));
                }
                let arguments = self.sequence(&items, "\", \"");
                format!("{} {arguments} \")\"", quoted(&format!("{}(", tool.name)))
            }
            Syntax::Call(quote) => {
                let fields = self.fields(tool, &tool.parameters, "#", quote, 0);
                format!("{} {fields}", quoted(&format!("call:{}", tool.name)))
            }
            Syntax::Harmony => return Err(Error::new(ErrorKind::InvalidInput, "harmony has no grammar")),
        })
    }

    /// Names of a tool's parameters and whether they are required. Keys beyond them are not written in forms of their own.
    fn parameters(&mut self, tool: &Tool) -> Vec<(String, bool)> {
        for keyword in [
            "anyOf",
            "oneOf",
            "allOf",
            "$ref",
            "minProperties",
            "maxProperties",
            "patternProperties",
        ] {
            if tool.parameters.get(keyword).is_some() {
                self.unenforced.push(format!("`{}`, `{keyword}` at `#`", tool.name));
            }
        }
        keys(&tool.parameters)
    }

    /// Rules for items in order, some of which may be missing, with `between` between them.
    fn sequence(&mut self, items: &[(String, bool)], between: &str) -> String {
        let (mut first, mut rest) = ("\"\"".to_owned(), "\"\"".to_owned());
        for (item, required) in items.iter().rev() {
            let other = if *required {
                String::new()
            } else {
                format!(" | {first}")
            };
            let begun = format!("{item} {rest}{other}");
            let other = if *required { String::new() } else { format!(" | {rest}") };
            let going = format!("{between} {item} {rest}{other}");
            first = self.rule("first", &begun);
            rest = self.rule("rest", &going);
        }
        first
    }

    /// A raw value between elements, with what ends it.
    fn element(&mut self, tool: &Tool, key: &str, pointer: &str) -> String {
        let end = "\n</parameter>\n";
        let schema = tool.parameter(key).cloned().unwrap_or(Value::Bool(true));
        if let Some(texts) = choices(&schema) {
            let texts: Vec<String> = texts.iter().map(|text| quoted(&format!("{text}{end}"))).collect();
            return format!("({})", texts.join(" | "));
        }
        if has_only(&schema, &["integer", "number", "boolean", "null", "array", "object"]) {
            return format!("{} {}", self.schema(tool, pointer), quoted(end));
        }
        self.note(tool, &schema, pointer);
        self.up_to(end)
    }

    /// An object with bare keys, braces included.
    fn fields(&mut self, tool: &Tool, schema: &Value, pointer: &str, quote: &str, depth: usize) -> String {
        let mut items = Vec::new();
        for (key, required) in keys(schema) {
            let Some(inner) = schema.get("properties").and_then(|p| p.get(&key)) else {
                continue;
            };
            let inner_pointer = format!("{pointer}{}", &self::pointer(&key)[1..]);
            let value = self.bare(tool, inner, &inner_pointer, quote, depth + 1);
            items.push((format!("{} {value}", quoted(&format!("{key}:"))), required));
        }
        let fields = self.sequence(&items, "\",\"");
        self.rule("fields", &format!("\"{{\" {fields} \"}}\""))
    }

    /// A value with bare keys and strings between `quote`.
    fn bare(&mut self, tool: &Tool, schema: &Value, pointer: &str, quote: &str, depth: usize) -> String {
        let word = self.word(quote);
        if let Some(texts) = choices(schema) {
            let texts: Vec<String> = texts
                .iter()
                .map(|text| format!("{word} {} {word}", quoted(text)))
                .collect();
            return format!("({})", texts.join(" | "));
        }
        if has_only(schema, &["integer", "number", "boolean", "null"]) {
            return self.schema(tool, pointer);
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("string") => {
                self.note(tool, schema, pointer);
                let text = self.up_to(quote);
                format!("{word} {text}")
            }
            Some("array") if schema.get("items").is_some() && depth < MAX_DEPTH => {
                self.note(tool, schema, pointer);
                let items = schema.get("items").cloned().unwrap_or(Value::Bool(true));
                let item = self.bare(tool, &items, &format!("{pointer}/items"), quote, depth + 1);
                format!("\"[\" ({item} (\",\" {item})*)? \"]\"")
            }
            Some("object") if schema.get("properties").is_some() && depth < MAX_DEPTH => {
                self.note(tool, schema, pointer);
                self.fields(tool, schema, pointer, quote, depth)
            }
            _ => {
                self.unenforced
                    .push(format!("`{}`, the schema at `{pointer}`", tool.name));
                self.any(quote)
            }
        }
    }

    /// Any value with bare keys.
    fn any(&mut self, quote: &str) -> String {
        if !self.parts.rules.contains("\nt_any: ") {
            let word = self.word(quote);
            let text = self.up_to(quote);
            self.parts.rules += "T_NUMBER: /-?(0|[1-9][0-9]*)(\\.[0-9]+)?/\nT_KEY: /[A-Za-z0-9_-]+/\n";
            self.parts.rules += "t_field: T_KEY \":\" t_any\n";
            self.parts.rules += &format!("t_any: {word} {text} | T_NUMBER | \"true\" | \"false\" | \"null\" ");
            self.parts.rules += "| \"[\" (t_any (\",\" t_any)*)? \"]\" | \"{\" (t_field (\",\" t_field)*)? \"}\"\n";
        }
        "t_any".to_owned()
    }

    /// Remembers the keywords of a schema that its form does not enforce.
    fn note(&mut self, tool: &Tool, schema: &Value, pointer: &str) {
        let enforced = [
            "type",
            "title",
            "description",
            "default",
            "examples",
            "properties",
            "required",
            "items",
            "enum",
        ];
        let keywords = schema.as_object().into_iter().flat_map(|fields| fields.keys());
        for keyword in keywords.filter(|k| !enforced.contains(&k.as_str())) {
            if keyword == "additionalProperties" && schema.get(keyword) == Some(&Value::Bool(false)) {
                continue;
            }
            self.unenforced
                .push(format!("`{}`, `{keyword}` at `{pointer}`", tool.name));
        }
    }
}

fn is_open(schema: &Value) -> bool {
    OPEN.iter().any(|keyword| schema.get(keyword).is_some())
}

/// One or more of a rule in a list.
fn listed(one: &str, single: bool, open: &str, close: &str) -> String {
    match single {
        true => format!("{open} {one} {close}"),
        false => format!("{open} {one} (\", \" {one}){{0,{}}} {close}", MOST_CALLS - 1),
    }
}

/// Names of properties in order and whether they are required.
fn keys(schema: &Value) -> Vec<(String, bool)> {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |key: &String| required.is_some_and(|list| list.iter().any(|r| r == key.as_str()));
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flat_map(|p| p.keys())
        .map(|key| (key.clone(), is_required(key)))
        .collect()
}

/// Whether a schema allows these types alone.
fn has_only(schema: &Value, kinds: &[&str]) -> bool {
    let known = |kind: &Value| kind.as_str().is_some_and(|kind| kinds.contains(&kind));
    match schema.get("type") {
        Some(Value::Array(list)) => !list.is_empty() && list.iter().all(known),
        Some(one) => known(one),
        None => false,
    }
}

/// The texts of an `enum` or `const` that has nothing else.
fn choices(schema: &Value) -> Option<Vec<&str>> {
    let list = match (schema.get("const"), schema.get("enum")) {
        (Some(one), _) => std::slice::from_ref(one),
        (None, Some(list)) => list.as_array()?.as_slice(),
        (None, None) => return None,
    };
    let texts: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
    texts.filter(|texts| !texts.is_empty())
}

/// Where a property is in the schema of parameters.
fn pointer(key: &str) -> String {
    let key = key.replace('~', "~0").replace('/', "~1").replace('%', "%25");
    format!("#/properties/{key}")
}
