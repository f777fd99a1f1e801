//! What is known of a request before it begins.

use crate::error::Result;
use crate::outgoing::{self, Outgoing};
use crate::router::{Ask, Calibration, Remote, Router};
use cactus_engine::chat::ChatRequest;
use cactus_hybrid::policy::Verdict;
use cactus_hybrid::record::{Facts, Terms, tool_digest};
use cactus_hybrid::redact::{Class, Gate, Redactor};
use cactus_hybrid::route::{Offer, Request};
use cactus_protocol::{Prompt, Ready, api_error};
use cactus_text::grammar::Grammar;
use std::sync::Arc;

/// What is known of a request.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) ask: Ask,
    pub(crate) request: Request,
    pub(crate) prompt: Option<Prepared>,
    pub(crate) outgoing: Option<Outgoing>,
    /// The most tokens that each target of the request may answer.
    pub(crate) limits: Vec<u32>,
    /// What another policy has to know of it, where a target could be asked.
    pub(crate) facts: Option<Facts>,
    /// What each target of the request charges.
    pub(crate) terms: Vec<Terms>,
    /// The calibration that holds for the model on this machine.
    pub(crate) calibration: Option<Arc<Calibration>>,
    /// Why there is none that holds.
    pub(crate) uncalibrated: Option<String>,
    /// The answer has a form, by which it is judged as a whole.
    pub(crate) structured: bool,
    /// Why no target can be asked.
    pub(crate) why_not: Option<String>,
    /// What of it the rules do not let leave, where there is something.
    pub(crate) blocked: Option<String>,
    /// Why a target is left alone for a while, where one is.
    pub(crate) rest: Option<cactus_cloud::Error>,
}

/// The prompt, ready for the model on this machine.
pub(crate) struct Prepared(pub(crate) Ready);

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Prepared").field(&self.0.request.prompt.len()).finish()
    }
}

impl Asked {
    pub(crate) fn new(router: &Router, mut ask: Ask) -> Result<Asked> {
        if let Some(name) = &ask.target {
            router.check(name)?;
        }
        let made = ask.ready.take();
        let chat = match ask.job.prompts.as_slice() {
            [Prompt::Chat(chat)] if ask.job.choices <= 1 => Some(chat.as_ref()),
            _ => None,
        };
        // Who is asked elsewhere is told of the same tools as the model here.
        let chosen = match chat {
            Some(chat) if chat.most_tools.is_some() => Some(ChatRequest {
                tools: chat.offered().map_err(|e| api_error(&e, ask.format_field))?,
                ..chat.clone()
            }),
            _ => None,
        };
        let chat = chosen.as_ref().or(chat);
        let structured = chat.is_some_and(|chat| !chat.tools.is_empty() || chat.format.is_some());
        let (prompt, calibration) = match &ask.local {
            Some(local) => {
                let model = local.scheduler.model();
                let context = model.program().context_tokens();
                let mut ready = match made {
                    Some(ready) => ready,
                    None => {
                        let prompt = ask.job.prompts.first().cloned().unwrap_or(Prompt::Tokens(Vec::new()));
                        Ready::new(model, prompt, &ask.job.spec, context, ask.salt, ask.format_field)?
                    }
                };
                ready.request.signals = true;
                let calls = chat.is_some_and(|chat| !chat.tools.is_empty());
                let calibration = local.calibration(&ready.request.options, calls);
                (Some(Prepared(ready)), calibration)
            }
            None => (None, Ok(None)),
        };
        let fits = |Prepared(ready): &Prepared| {
            let context = ask
                .local
                .as_ref()
                .map(|local| local.scheduler.model().program().context_tokens());
            context.is_some_and(|context| ready.request.prompt.len() < context)
        };
        let local_able = prompt.as_ref().is_some_and(fits);
        let tokens = match (&prompt, chat) {
            // A schema is no part of the prompt here, and a target reads it as text.
            (Some(Prepared(ready)), chat) => ready.request.prompt.len() + chat.map_or(0, schema_bytes),
            (None, Some(chat)) => most_tokens(chat),
            (None, None) => 0,
        };
        let Targets {
            outgoing,
            able: remotes,
            unable,
            why_not,
        } = match chat {
            Some(chat) => targets(router, &ask, chat, tokens),
            None => Targets {
                why_not: Some("it asks for several answers, or for more of a text".to_owned()),
                ..Targets::default()
            },
        };
        let digests = |names: &[String]| names.iter().map(|name| tool_digest(name)).collect();
        let facts = outgoing.as_ref().map(|outgoing| Facts {
            input_tokens: tokens as u64,
            // What nobody has limited is as long as it may be.
            output_tokens: Some(outgoing.request.max_output_tokens)
                .filter(|most| *most < u32::MAX)
                .map(u64::from),
            offers_tools: digests(&outgoing.offers_tools),
            uses_tools: digests(&outgoing.uses_tools),
            structured,
            streamed: !structured && ask.job.stream,
            only: ask.target.clone(),
            unable,
            ..Facts::default()
        });
        let terms = remotes.iter().map(|(remote, limit)| Terms {
            price: remote.policy.price,
            most_tokens: *limit,
        });
        let terms = terms.collect();
        let classes: &[Class] = outgoing.as_ref().map_or(&[], |outgoing| &outgoing.classes);
        let task = facts.as_ref().map_or("default", Facts::task);
        let blocked = outgoing.as_ref().and_then(|outgoing| blocked(router, outgoing));
        let rests = remotes.iter().map(|(remote, _)| remote.rest(router.now()));
        let rests: Vec<Option<cactus_cloud::Error>> = rests.collect();
        let offer = |((remote, limit), rest): (&(&Remote, u32), &Option<cactus_cloud::Error>)| Offer {
            target: remote.target.name.clone(),
            reachable: rest.is_none(),
            refused: rest.is_some() && remote.breaker().is_refused(),
            consent: match blocked.is_some() {
                true => Verdict::Denied(Class::Text),
                false => router.policy.consent.verdict(classes, &remote.target.name),
            },
            accuracy: remote.policy.accuracy(task),
            seconds: remote.seconds(),
            worst_case: remote.worst_case(tokens, *limit),
        };
        let request = Request {
            named: ask.named,
            offers: remotes.iter().zip(&rests).map(offer).collect(),
            local_able,
            local_tools: outgoing.as_ref().is_some_and(|outgoing| outgoing.local_tools),
            // What nobody sees before its end can be judged as a whole.
            streamed: facts.as_ref().is_some_and(|facts| facts.streamed),
            prompt_confidence: None,
        };
        Ok(Asked {
            ask,
            request,
            prompt,
            facts,
            terms,
            limits: remotes.iter().map(|(_, limit)| *limit).collect(),
            outgoing,
            uncalibrated: calibration.as_ref().err().cloned(),
            calibration: calibration.ok().flatten(),
            structured,
            why_not,
            blocked,
            rest: rests.into_iter().flatten().next(),
        })
    }

    /// Tokens of the prompt by our own count.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.prompt
            .as_ref()
            .map_or(0, |Prepared(ready)| ready.request.prompt.len())
    }
}

/// Who can be asked what.
#[derive(Default)]
struct Targets<'a> {
    /// What would be sent.
    outgoing: Option<Outgoing>,
    /// To whom, and the most tokens that each may answer.
    able: Vec<(&'a Remote, u32)>,
    /// Who cannot take it.
    unable: Vec<String>,
    /// Why somebody cannot be asked.
    why_not: Option<String>,
}

fn targets<'a>(router: &'a Router, ask: &Ask, chat: &ChatRequest, tokens: usize) -> Targets<'a> {
    let policy = &router.policy;
    let names: Vec<&str> = match &ask.target {
        Some(name) => vec![name],
        None => {
            let able = policy.preferred(false, false, !chat.tools.is_empty());
            able.map(|(name, _)| name).collect()
        }
    };
    let remotes = names.into_iter().filter_map(|name| router.targets.get(name));
    let mut why_not = None;
    let outgoing = match outgoing::of_chat(chat, &ask.job.spec, policy, u32::MAX) {
        Ok(outgoing) => outgoing,
        Err(outgoing::NotPortable(what)) => {
            return Targets {
                why_not: Some(format!("it needs {what}")),
                ..Targets::default()
            };
        }
    };
    let (mut able, mut unable) = (Vec::new(), Vec::new());
    for remote in remotes {
        let mut request = outgoing.request.clone();
        request.max_output_tokens = request.max_output_tokens.min(remote.policy.max_output_tokens);
        let limit = request.max_output_tokens;
        let checked = remote.target.check(&request).map_err(|e| e.to_string());
        match remote.key().and(checked).and_then(|()| remote.fits(tokens, limit)) {
            Ok(()) => able.push((remote, limit)),
            Err(why) => {
                unable.push(remote.target.name.clone());
                why_not = why_not.or(Some(why));
            }
        }
    }
    if able.is_empty() {
        why_not.get_or_insert_with(|| "the policy names no target for it".to_owned());
    }
    Targets {
        outgoing: Some(outgoing),
        able,
        unable,
        why_not,
    }
}

/// Why the rules of redaction keep a request from leaving, whoever consents, where they do.
fn blocked(router: &Router, outgoing: &Outgoing) -> Option<String> {
    let rules = &router.policy.redaction;
    if !rules.block_any() {
        return None;
    }
    let mut redactor = Redactor::new(rules.clone());
    let gate = Gate::for_classes(&outgoing.classes);
    let sealed = outgoing::seal(outgoing.request.clone(), &gate, &mut redactor);
    sealed.err().map(|why| why.to_string())
}

/// No less than the tokens of a conversation, where there is no tokenizer to count them.
fn most_tokens(chat: &ChatRequest) -> usize {
    let messages: usize = chat.messages.iter().map(|message| message.to_string().len()).sum();
    let tools = chat
        .tools
        .iter()
        .map(|tool| tool.description.len() + tool.parameters.to_string().len());
    messages + tools.sum::<usize>() + schema_bytes(chat)
}

/// No less than the tokens of the schema that an answer has to follow.
fn schema_bytes(chat: &ChatRequest) -> usize {
    match &chat.format {
        Some(Grammar::JsonSchema { schema, .. }) => schema.to_string().len(),
        _ => 0,
    }
}
