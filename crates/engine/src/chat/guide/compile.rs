//! Grammars of what is asked, compiled.

use super::super::request_error;
use super::Asked;
use crate::Result;
use cactus_text::ErrorKind;
use cactus_text::grammar::{Constraint, Grammar, GrammarCompiler, Reasoning};
use cactus_text::tools::{self, Tool, ToolChoice, ToolOptions};

pub(super) fn compile(
    compiler: &GrammarCompiler,
    asked: &Asked<'_>,
    notes: &mut Vec<String>,
) -> Result<Option<Constraint>> {
    let of_format = |e: cactus_text::Error| request_error("format", e);
    let Some(mut made) = Made::new(compiler, asked, asked.tools)? else {
        // No tool may be called, or the form of calls cannot be constrained.
        let Some(format) = asked.format else {
            return Ok(None);
        };
        let whole = after(&asked.reasoning, format.clone());
        return Ok(Some(compiler.compile(&whole).map_err(of_format)?));
    };
    let error = match compiler.compile(&made.whole) {
        Ok(constraint) => {
            notes.extend(made.notes());
            return Ok(Some(constraint));
        }
        Err(error) => error,
    };
    if let Some(format) = asked.format {
        compiler.compile(format).map_err(of_format)?;
    }
    // One of the tools, then.
    let mut changed = Vec::with_capacity(asked.tools.len());
    let mut left = Vec::new();
    for (i, tool) in asked.tools.iter().enumerate() {
        let (tool, unenforced) = tools::compilable(compiler, tool)
            .map_err(|e| request_error(format!("tools[{i}].function.parameters"), e))?;
        changed.push(tool);
        left.extend(unenforced);
    }
    if left.is_empty() {
        return Err(request_error("tools", error));
    }
    made = match Made::new(compiler, asked, &changed)? {
        Some(made) => made,
        None => return Ok(None),
    };
    let constraint = compiler.compile(&made.whole).map_err(|e| request_error("tools", e))?;
    made.unenforced.extend(left);
    notes.extend(made.notes());
    Ok(Some(constraint))
}

/// A grammar with tools.
struct Made {
    whole: Grammar,
    unenforced: Vec<String>,
}

impl Made {
    /// `None` if nothing is to be said about calls.
    fn new(compiler: &GrammarCompiler, asked: &Asked<'_>, tools: &[Tool]) -> Result<Option<Self>> {
        let (picked, required) = asked.choice.pick(tools).map_err(|e| request_error("tool_choice", e))?;
        if picked.is_empty() {
            return Ok(None);
        }
        let format = asked.format.filter(|_| !required);
        let choice = match (format, asked.choice) {
            (None, choice) => choice.clone(),
            // What is no call has to follow the format.
            (Some(_), ToolChoice::Allowed { names, .. }) => ToolChoice::Allowed {
                names: names.clone(),
                required: true,
            },
            (Some(_), _) => ToolChoice::Required,
        };
        // One tool by name is one call: a weak model would repeat it until its tokens run out.
        let single = asked.single || matches!(asked.choice, ToolChoice::Named(_));
        let options = ToolOptions {
            choice,
            single,
            reasoning: None,
        };
        let made = tools::grammar(compiler, asked.calls, tools, &options).map_err(|e| {
            let field = match e.kind() {
                ErrorKind::InvalidInput => "tool_choice",
                _ => "tools",
            };
            request_error(field, e)
        })?;
        let Some(calls) = made.grammar else {
            return Ok(None);
        };
        let answer = match format {
            None => calls,
            Some(format) => Grammar::Either(vec![format.clone(), calls]),
        };
        Ok(Some(Self {
            whole: after(&asked.reasoning, answer),
            unenforced: made.unenforced,
        }))
    }

    fn notes(&self) -> Option<String> {
        let mut left = self.unenforced.clone();
        left.dedup();
        let listed = left.join("; ");
        (!left.is_empty()).then(|| format!("not enforced in the arguments of calls: {listed}"))
    }
}

fn after(reasoning: &Option<Reasoning>, then: Grammar) -> Grammar {
    match reasoning {
        None => then,
        Some(reasoning) => Grammar::AfterReasoning {
            reasoning: reasoning.clone(),
            then: Box::new(then),
        },
    }
}
