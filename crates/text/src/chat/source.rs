//! Where a model keeps its chat templates, and which one is taken.

use std::path::Path;

use serde_json::{Map, Value};

use crate::files::{json_type, parse_object, read_optional, token_text};
use crate::{Error, ErrorKind};

/// Longest template, in bytes. The longest known has 17 kB.
const MAX_TEMPLATE_BYTES: usize = 256 << 10;
/// Most templates of one model.
const MAX_TEMPLATES: usize = 64;

/// The files that a chat template and its special tokens come from.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChatTemplateSource<'a> {
    /// `chat_template.jinja`; wins over `chat_template` in the configuration.
    pub chat_template: Option<&'a str>,
    /// `tokenizer_config.json`: `chat_template`, one or a list of named ones, and special tokens such as
    /// `bos_token`, which templates read as variables.
    pub tokenizer_config: Option<&'a [u8]>,
    /// `special_tokens_map.json`: special tokens that the configuration lacks.
    pub special_tokens_map: Option<&'a [u8]>,
}

/// Templates by name, and the special tokens they may write.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) templates: Vec<(String, String)>,
    pub(super) special_tokens: Vec<(String, String)>,
}

fn missing(message: String) -> Error {
    Error::new(ErrorKind::MissingTemplate, message)
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

impl Sources {
    pub(super) fn from_dir(folder: &Path) -> Result<Self, Error> {
        let text = |path: &Path| -> Result<Option<String>, Error> {
            let Some(bytes) = read_optional(path)? else {
                return Ok(None);
            };
            let text = String::from_utf8(bytes);
            text.map(Some)
                .map_err(|e| invalid(format!("`{}` is not UTF-8: {e}", path.display())))
        };
        let mut chat_template = text(&folder.join("chat_template.jinja"))?;
        if chat_template.is_none()
            && let Some(bytes) = read_optional(&folder.join("chat_template.json"))?
        {
            // Written by older processors: {"chat_template": "..."}.
            let file = parse_object("chat_template.json", &bytes)?;
            chat_template = file.get("chat_template").and_then(Value::as_str).map(str::to_owned);
        }
        let tokenizer_config = read_optional(&folder.join("tokenizer_config.json"))?;
        let special_tokens_map = read_optional(&folder.join("special_tokens_map.json"))?;
        let mut named = Vec::new();
        if let Ok(entries) = std::fs::read_dir(folder.join("additional_chat_templates")) {
            for entry in entries.flatten().take(MAX_TEMPLATES) {
                let path = entry.path();
                let name = path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
                if let (Some(name), Some("jinja")) = (name, path.extension().and_then(|e| e.to_str()))
                    && let Some(template) = text(&path)?
                {
                    named.push((name, template));
                }
            }
            named.sort();
        }
        let source = ChatTemplateSource {
            chat_template: chat_template.as_deref(),
            tokenizer_config: tokenizer_config.as_deref(),
            special_tokens_map: special_tokens_map.as_deref(),
        };
        match Self::new(source) {
            Ok(mut sources) => {
                named.retain(|(name, _)| sources.templates.iter().all(|(known, _)| known != name));
                sources.templates.extend(named);
                sources.checked()
            }
            Err(e) if e.kind() == ErrorKind::MissingTemplate => Err(missing(format!("{e} in `{}`", folder.display()))),
            Err(e) => Err(e),
        }
    }

    pub(super) fn new(source: ChatTemplateSource<'_>) -> Result<Self, Error> {
        let optional = |name: &str, bytes: Option<&[u8]>| bytes.map(|b| parse_object(name, b)).transpose();
        let config = optional("tokenizer_config.json", source.tokenizer_config)?.unwrap_or_default();
        let map = optional("special_tokens_map.json", source.special_tokens_map)?.unwrap_or_default();
        let templates = match source.chat_template {
            Some(template) => vec![("default".to_owned(), template.to_owned())],
            None => match config.get("chat_template") {
                None | Some(Value::Null) => {
                    return Err(missing(
                        "no chat template: neither `chat_template.jinja` nor `chat_template` in `tokenizer_config.json`"
                            .to_owned(),
                    ));
                }
                Some(Value::String(template)) => vec![("default".to_owned(), template.clone())],
                Some(Value::Array(list)) => list.iter().map(named_template).collect::<Result<_, _>>()?,
                Some(other) => {
                    let found = json_type(other);
                    return Err(invalid(format!(
                        "`chat_template` in `tokenizer_config.json` is {found}, expected a string or a list"
                    )));
                }
            },
        };
        Self {
            templates,
            special_tokens: special_tokens(&config, &map),
        }
        .checked()
    }

    fn checked(self) -> Result<Self, Error> {
        if self.templates.is_empty() {
            return Err(missing(
                "no chat template: the list in `tokenizer_config.json` is empty".to_owned(),
            ));
        }
        if self.templates.len() > MAX_TEMPLATES {
            return Err(invalid(format!(
                "{} chat templates, expected at most {MAX_TEMPLATES}",
                self.templates.len()
            )));
        }
        if let Some((name, template)) = self.templates.iter().find(|(_, t)| t.len() > MAX_TEMPLATE_BYTES) {
            let bytes = template.len();
            return Err(invalid(format!(
                "chat template `{name}` has {bytes} bytes, expected at most {MAX_TEMPLATE_BYTES}"
            )));
        }
        Ok(self)
    }

    /// Name and text of the template to take.
    pub(super) fn pick(&self, name: Option<&str>, has_tools: bool) -> Result<(&str, &str), Error> {
        let find = |wanted: &str| {
            let found = self.templates.iter().find(|(name, _)| name == wanted);
            found.map(|(name, template)| (name.as_str(), template.as_str()))
        };
        let names = || {
            self.templates
                .iter()
                .map(|(name, _)| format!("`{name}`"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        if let Some(name) = name {
            return find(name).ok_or_else(|| missing(format!("no chat template `{name}`, found {}", names())));
        }
        if has_tools && let Some(found) = find("tool_use") {
            return Ok(found);
        }
        match (find("default"), self.templates.as_slice()) {
            (Some(found), _) => Ok(found),
            (None, [(name, template)]) => Ok((name, template)),
            _ => Err(missing(format!(
                "several chat templates and none is `default`, found {}",
                names()
            ))),
        }
    }
}

fn named_template(item: &Value) -> Result<(String, String), Error> {
    let text = |field: &str| item.get(field).and_then(Value::as_str).map(str::to_owned);
    match (text("name"), text("template")) {
        (Some(name), Some(template)) => Ok((name, template)),
        _ => Err(invalid(
            "an item of `chat_template` in `tokenizer_config.json` lacks the text `name` or `template`".to_owned(),
        )),
    }
}

/// Everything named `*_token` that has a text, as `transformers` passes it to templates.
fn special_tokens(config: &Map<String, Value>, map: &Map<String, Value>) -> Vec<(String, String)> {
    let extra = config.get("extra_special_tokens").and_then(Value::as_object);
    let mut tokens: Vec<(String, String)> = Vec::new();
    for (name, value) in config.iter().chain(extra.into_iter().flatten()).chain(map) {
        let is_new = tokens.iter().all(|(known, _)| known != name);
        if let Some(text) = token_text(value).filter(|_| name.ends_with("_token") && is_new) {
            tokens.push((name.clone(), text.to_owned()));
        }
    }
    tokens
}
