//! Texts, tokens, templates and grammars. One program, as each would link the whole of it.

mod chat_templates;
mod files;
mod forged;
mod grammar;
mod grammar_costs;
mod hostile_templates;
mod schema_sets;
mod schemas;
mod support;
mod tables;
mod tokenizers;
mod tools;
