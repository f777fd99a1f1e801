//! What is known of a request before it begins.

use crate::error::Result;
use crate::outgoing::{self, Outgoing};
use crate::router::{Ask, Calibration, Remote, Router};
use cactus_engine::chat::ChatRequest;
use cactus_hybrid::policy::Verdict;
use cactus_hybrid::redact::{Class, Gate, Redactor};
use cactus_hybrid::route::Request;
use cactus_protocol::{Prompt, Ready};
use std::sync::Arc;

/// What is known of a request.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) ask: Ask,
    pub(crate) request: Request,
    pub(crate) prompt: Option<Prepared>,
    pub(crate) outgoing: Option<Outgoing>,
    pub(crate) target: Option<String>,
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
    /// Why the target is left alone for a while, where it is.
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
            (Some(Prepared(ready)), _) => ready.request.prompt.len(),
            (None, Some(chat)) => most_tokens(chat),
            (None, None) => 0,
        };
        let (outgoing, remote, why_not) = match chat {
            Some(chat) => target(router, &ask, chat, tokens),
            None => (
                None,
                None,
                Some("it asks for several answers, or for more of a text".to_owned()),
            ),
        };
        let rest = remote.and_then(|remote| remote.rest(router.now()));
        let blocked = outgoing.as_ref().and_then(|outgoing| blocked(router, outgoing));
        let name = remote.map(|remote| remote.target.name.clone());
        let classes: &[Class] = outgoing.as_ref().map_or(&[], |outgoing| &outgoing.classes);
        let task = if structured { "tools" } else { "default" };
        let request = Request {
            named: ask.named,
            reachable: remote.is_some() && rest.is_none(),
            consent: match &name {
                Some(_) if blocked.is_some() => Verdict::Denied(Class::Text),
                Some(name) => router.policy.consent.verdict(classes, name),
                None => Verdict::Denied(Class::Text),
            },
            target: name.clone(),
            local_able,
            local_tools: outgoing.as_ref().is_some_and(|outgoing| outgoing.local_tools),
            // What nobody sees before its end can be judged as a whole.
            streamed: !structured && ask.job.stream,
            prompt_confidence: None,
            cloud_accuracy: remote.and_then(|remote| remote.policy.accuracy(task)),
            cloud_seconds: remote.map_or(0.0, Remote::seconds),
            worst_case: match (remote, &outgoing) {
                (Some(remote), Some(outgoing)) => remote.worst_case(tokens, outgoing.request.max_output_tokens),
                _ => Default::default(),
            },
        };
        Ok(Asked {
            ask,
            request,
            prompt,
            outgoing,
            target: name,
            uncalibrated: calibration.as_ref().err().cloned(),
            calibration: calibration.ok().flatten(),
            structured,
            why_not,
            blocked,
            rest,
        })
    }

    /// Tokens of the prompt by our own count.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.prompt
            .as_ref()
            .map_or(0, |Prepared(ready)| ready.request.prompt.len())
    }
}

/// What would be sent, to whom; or why nobody can be asked.
fn target<'a>(
    router: &'a Router,
    ask: &Ask,
    chat: &ChatRequest,
    tokens: usize,
) -> (Option<Outgoing>, Option<&'a Remote>, Option<String>) {
    let policy = &router.policy;
    let remote = match &ask.target {
        Some(name) => router.targets.get(name),
        None => policy
            .preferred(false, false, !chat.tools.is_empty())
            .and_then(|(name, _)| router.targets.get(name)),
    };
    let Some(remote) = remote else {
        return (None, None, Some("the policy names no target for it".to_owned()));
    };
    match outgoing::of_chat(chat, &ask.job.spec, policy, remote.policy.max_output_tokens) {
        Err(outgoing::NotPortable(what)) => (None, None, Some(format!("it needs {what}"))),
        Ok(outgoing) => match (remote.key(), remote.target.check(&outgoing.request)) {
            (Err(why), _) => (Some(outgoing), None, Some(why)),
            (Ok(_), Err(error)) => (Some(outgoing), None, Some(error.to_string())),
            (Ok(_), Ok(())) => match remote.fits(tokens, outgoing.request.max_output_tokens) {
                Ok(()) => (Some(outgoing), Some(remote), None),
                Err(why) => (Some(outgoing), None, Some(why)),
            },
        },
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
    messages + tools.sum::<usize>()
}
