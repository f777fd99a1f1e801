//! One case: what it has made, by name, and its steps.

use crate::answers::{Local, Stream};
use crate::asked::{Asked, ids, load_options};
use crate::failure::{Failure, Result};
use crate::hearing;
use crate::routed::{Policy, Routed};
use crate::vectors;
use cactus::search::{Embedder, Index};
use cactus::speech::{LiveTranscription, Transcriber};
use cactus::{FinishReason, GenerateOptions, Model, Request, Scheduler, SchedulerLimits};
use cactus_bundle::Bundle;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// See the module.
#[derive(Default)]
pub(crate) struct Case {
    things: BTreeMap<String, Thing>,
}

enum Thing {
    Model(Opened),
    Session(Conversation),
    Stream(Running),
    Embeds(Box<Embedder>),
    Hears(Transcriber),
    Live(Box<LiveTranscription>),
    Index(Index),
    /// What was closed.
    Closed,
}

/// A model.
struct Opened {
    scheduler: Arc<Scheduler>,
    policy: Option<Policy>,
}

/// A conversation: its messages, and what all its requests have.
struct Conversation {
    model: String,
    defaults: Map<String, Value>,
    messages: Vec<Value>,
}

/// A stream, and the conversation that gets its answer.
struct Running {
    stream: Stream,
    model: String,
    into: Option<(String, Vec<Value>)>,
}

/// A name whose thing was closed, which the compiler refuses where it is known.
fn closed() -> Failure {
    Failure::new("handle", "it was closed")
}

fn text<'s>(step: &'s Value, name: &str) -> &'s str {
    step[name].as_str().unwrap_or_default()
}

fn count(step: &Value, name: &str) -> usize {
    step[name].as_u64().unwrap_or_default() as usize
}

macro_rules! thing {
    ($name:ident, $variant:ident, $type:ty) => {
        fn $name(&mut self, step: &Value) -> Result<&mut $type> {
            let name = step.get("on").or(step.get("of")).and_then(Value::as_str);
            match self.things.get_mut(name.unwrap_or_default()) {
                Some(Thing::$variant(thing)) => Ok(thing),
                _ => Err(closed()),
            }
        }
    };
}

impl Case {
    /// What a step gives.
    pub(crate) fn run(&mut self, step: &Value) -> Value {
        self.result(step).unwrap_or_else(|failure| failure.json())
    }

    thing!(model, Model, Opened);
    thing!(session, Session, Conversation);
    thing!(stream, Stream, Running);
    thing!(embeds, Embeds, Embedder);
    thing!(hears, Hears, Transcriber);
    thing!(live, Live, LiveTranscription);
    thing!(index, Index, Index);

    fn keep(&mut self, step: &Value, thing: Thing) -> Value {
        self.things.insert(text(step, "as").to_owned(), thing);
        json!({})
    }

    fn result(&mut self, step: &Value) -> Result<Value> {
        Ok(match text(step, "op") {
            "versions" => json!({"abi": abi()}),
            "check_bundle" => json!({"report": report(Path::new(text(step, "path")), step["verify"] == true)}),
            "load" => {
                let opened = load(step)?;
                self.keep(step, Thing::Model(opened))
            }
            "load_embedder" => {
                let embeds = vectors::load(text(step, "source"))?;
                self.keep(step, Thing::Embeds(Box::new(embeds)))
            }
            "load_transcriber" => {
                let hears = hearing::load(text(step, "source"))?;
                self.keep(step, Thing::Hears(hears))
            }
            "info" => {
                let info = info(self.model(step)?.scheduler.model())?;
                let fields = step["fields"].as_array().into_iter().flatten();
                let fields =
                    fields.filter_map(|field| Some((field.as_str()?.to_owned(), info[field.as_str()?].clone())));
                json!({"info": fields.collect::<Map<_, _>>()})
            }
            "tokenize" => {
                let model = self.model(step)?.scheduler.model().clone();
                json!({"tokens": model.tokenizer()?.encode(text(step, "text"), step["special"] == true)?})
            }
            "detokenize" => {
                let model = self.model(step)?.scheduler.model().clone();
                let ids = known(&model, &step["tokens"])?;
                json!({"text": model.tokenizer()?.decode(&ids, step["special"] != true)})
            }
            "score" => json!({"score": score(&self.model(step)?.scheduler, step)?}),
            "session" => {
                let session = self.conversation(step)?;
                self.keep(step, Thing::Session(session))
            }
            "respond" => {
                let mut running = self.begin(step)?;
                let events = self.events(&mut running, &json!({}), usize::MAX);
                match events.into_iter().next_back() {
                    Some(end) if end["event"] == "failed" => {
                        return Ok(json!({"error": {"kind": end["kind"], "message": end["text"]}}));
                    }
                    end => json!({"answer": end.unwrap_or_default()["result"]}),
                }
            }
            "stream" => {
                let mut running = self.begin(step)?;
                json!({"events": self.events(&mut running, step, usize::MAX)})
            }
            "start" => {
                let running = self.begin(step)?;
                self.keep(step, Thing::Stream(running))
            }
            "read" => self.read(step, count(step, "count"))?,
            "collect" => self.read(step, usize::MAX)?,
            "cancel" => {
                self.stream(step)?.stream.cancel();
                json!({})
            }
            "messages" => json!({"messages": self.session(step)?.messages}),
            "tools" => self.tools(step)?,
            "structured" => {
                let mut request = step["request"].clone();
                request["schema"] = step["schema"].clone();
                let answer = self.result(&json!({"op": "respond", "on": step["on"], "request": request}))?;
                if answer.get("error").is_some() {
                    return Ok(answer);
                }
                json!({"value": whole(&answer["answer"])?})
            }
            "set_policy" => {
                let model = self.model(step)?;
                model.policy = match (step["policy"].as_str(), &step["options"]) {
                    (None, Value::Null) => None,
                    (toml, options) => Some(Policy::new(&model.scheduler, toml, options)?),
                };
                json!({})
            }
            "set_threads" => {
                let given = |name: &str| Some(count(step, name)).filter(|count| *count > 0);
                let model = self.model(step)?.scheduler.model().clone();
                model.set_threads(given("threads"), given("decode_threads"));
                json!({})
            }
            "memory_pressure" => {
                for thing in self.things.values() {
                    if let Thing::Model(model) = thing {
                        model.scheduler.forget_prefixes();
                    }
                }
                json!({})
            }
            "embed" => vectors::embed(self.embeds(step)?, step)?,
            "embed_image" => vectors::embed_image(self.embeds(step)?, text(step, "path"))?,
            "index_open" => {
                let index = vectors::open(step)?;
                self.keep(step, Thing::Index(index))
            }
            "index_add" => vectors::add(self.index(step)?, step).map(|()| json!({}))?,
            "index_query" => vectors::query(self.index(step)?, step)?,
            "index_get" => vectors::get(self.index(step)?, step)?,
            "index_delete" => vectors::delete(self.index(step)?, step).map(|()| json!({}))?,
            "index_compact" => self.index(step)?.compact().map(|()| json!({}))?,
            "transcribe" => json!({"result": hearing::transcribe(self.hears(step)?, step)?}),
            "detect_language" => json!({"result": hearing::detect_language(self.hears(step)?, step)?}),
            "speech" => json!({"result": hearing::speech(self.hears(step)?, step)?}),
            "live" => {
                let live = hearing::live(self.hears(step)?, &step["options"])?;
                self.keep(step, Thing::Live(Box::new(live)))
            }
            "push" => json!({"result": hearing::push(self.live(step)?, step)?}),
            "finish" => {
                let name = text(step, "of").to_owned();
                self.live(step)?;
                match self.things.insert(name, Thing::Closed) {
                    Some(Thing::Live(live)) => json!({"result": hearing::told(&live.finish()?)}),
                    _ => return Err(closed()),
                }
            }
            "close" => {
                self.close(text(step, "of"));
                json!({})
            }
            _ => json!({"absent": "this runner does not know the operation"}),
        })
    }

    /// Begins a request of a model or a conversation.
    fn begin(&mut self, step: &Value) -> Result<Running> {
        let on = text(step, "on").to_owned();
        let (model, request, into) = match self.things.get(&on) {
            Some(Thing::Session(session)) => {
                let (request, added) = session.request(&step["request"])?;
                (session.model.clone(), request, Some((on, added)))
            }
            _ => (on, step["request"].clone(), None),
        };
        let Some(Thing::Model(opened)) = self.things.get(&model) else {
            return Err(closed());
        };
        let asked = Asked::read(opened.scheduler.model(), &request)?;
        let consent = step["consent"].as_bool();
        let stream = match &opened.policy {
            Some(policy) => Stream::new(Box::new(Routed::begin(policy, &opened.scheduler, asked)?)),
            None => Stream::new(Box::new(Local::begin(&opened.scheduler, asked)?)),
        };
        Ok(Running {
            stream: stream.with_consent(consent),
            model,
            into,
        })
    }

    /// Events of a stream, at most so many. At its end, the answer is part of the conversation.
    fn events(&mut self, running: &mut Running, step: &Value, most: usize) -> Vec<Value> {
        let (mut events, mut texts) = (Vec::new(), 0);
        while events.len() < most
            && let Some(event) = running.stream.next()
        {
            texts += usize::from(event["event"] == "text");
            if event["event"] == "text" && step["cancel_after"] == json!(texts) {
                running.stream.cancel();
            }
            if let (Some(message), Some((session, added))) = (
                event["result"].get("message"),
                running.into.take_if(|_| !event["result"].is_null()),
            ) && let Some(Thing::Session(session)) = self.things.get_mut(&session)
            {
                session.messages.extend(added);
                session.messages.push(message.clone());
            }
            events.push(event);
        }
        events
    }

    fn read(&mut self, step: &Value, most: usize) -> Result<Value> {
        let name = text(step, "of").to_owned();
        let Some(Thing::Stream(mut running)) = self.things.remove(&name) else {
            return Err(closed());
        };
        let events = self.events(&mut running, step, most);
        self.things.insert(name, Thing::Stream(running));
        Ok(json!({"events": events}))
    }

    fn close(&mut self, name: &str) {
        if let Some(thing) = self.things.insert(name.to_owned(), Thing::Closed)
            && matches!(thing, Thing::Model(_))
        {
            for other in self.things.values() {
                if let Thing::Stream(running) = other
                    && running.model == name
                {
                    running.stream.cancel();
                }
            }
        }
    }

    fn conversation(&mut self, step: &Value) -> Result<Conversation> {
        let model = self.model(step)?.scheduler.model().clone();
        let mut defaults = step["defaults"].as_object().cloned().unwrap_or_default();
        let messages = match defaults.shift_remove("messages") {
            Some(Value::Array(messages)) => messages,
            _ => Vec::new(),
        };
        let session = Conversation {
            model: text(step, "on").to_owned(),
            defaults,
            messages,
        };
        // What no request could have is refused here.
        let (request, _) = session.request(&json!("hello"))?;
        Asked::read(&model, &request)?;
        Ok(session)
    }

    /// Answers, calls the tools that the model wants, and goes on with what they give.
    fn tools(&mut self, step: &Value) -> Result<Value> {
        let (mut request, mut calls) = (step["request"].clone(), Vec::new());
        for round in 0.. {
            let answer = self.result(&json!({"op": "respond", "on": step["on"], "request": request}))?;
            let message = &answer["answer"]["message"];
            let wanted = message["tool_calls"].as_array().cloned().unwrap_or_default();
            let is_over = wanted.is_empty() || answer["answer"]["finish_reason"] == "cancelled";
            if answer.get("error").is_some() || is_over || round == count(step, "most") {
                return match answer.get("error") {
                    Some(_) => Ok(answer),
                    None => Ok(json!({"answer": answer["answer"], "calls": calls})),
                };
            }
            let mut messages = request["messages"].as_array().cloned().unwrap_or_default();
            messages.push(message.clone());
            for call in wanted {
                let content = called(step, &call["function"], &mut calls);
                messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": content}));
            }
            request["messages"] = json!(messages);
        }
        Err(Failure::new("internal", "there are always more rounds"))
    }
}

/// What the model reads of a call that it wants. Those that are made are added to `calls`.
fn called(step: &Value, call: &Value, calls: &mut Vec<Value>) -> String {
    let name = text(call, "name");
    let has = |field: &str| step[field].as_array().is_some_and(|names| names.contains(&json!(name)));
    let mut offered = step["request"]["tools"].as_array().into_iter().flatten();
    if !offered.any(|tool| tool["function"]["name"] == name) {
        return format!("error: there is no tool `{name}`");
    }
    let arguments: Value = match text(call, "arguments") {
        "" => json!({}),
        arguments => serde_json::from_str(arguments).unwrap_or_default(),
    };
    if !arguments.is_object() {
        return "error: the arguments are no JSON object".to_owned();
    }
    if has("refuse") {
        return "error: the call was refused".to_owned();
    }
    calls.push(json!([name, arguments]));
    let result = text(&step["results"], name);
    match has("throws") {
        true => format!("error: {result}"),
        false => result.to_owned(),
    }
}

/// The value of an answer of a form, which has to be whole.
fn whole(answer: &Value) -> Result<Value> {
    let cut = |why: String| {
        let reason = text(answer, "finish_reason");
        Failure::new(
            "cancelled",
            format!("the answer ended ({reason}) before it was whole{why}"),
        )
    };
    if answer["whole"] != true {
        return Err(cut(String::new()));
    }
    serde_json::from_str(text(&answer["message"], "content")).map_err(|error| cut(format!(": {error}")))
}

/// The version of the ABI, which the engine itself does not have.
fn abi() -> Value {
    let abi: Value = serde_json::from_str(include_str!("../../ffi/abi.json")).unwrap_or_default();
    abi["abi_version"].clone()
}

impl Conversation {
    /// A request that adds something, as a request of the model, and what it adds.
    fn request(&self, asked: &Value) -> Result<(Value, Vec<Value>)> {
        let (added, fields) = match asked {
            Value::String(text) => (vec![json!({"role": "user", "content": text})], Map::new()),
            Value::Object(fields) => {
                let mut fields = fields.clone();
                let added = fields.shift_remove("messages");
                (
                    added.and_then(|added| added.as_array().cloned()).unwrap_or_default(),
                    fields,
                )
            }
            other => {
                return Err(Failure::argument(format!(
                    "expected an object or a string, found {other}"
                )));
            }
        };
        let mut map = self.defaults.clone();
        for (name, value) in fields {
            match (map.get_mut(&name), value) {
                (Some(Value::Object(below)), Value::Object(above)) if name == "options" => below.extend(above),
                (_, value) => drop(map.insert(name, value)),
            }
        }
        let messages: Vec<&Value> = self.messages.iter().chain(&added).collect();
        map.insert("messages".to_owned(), json!(messages));
        Ok((Value::Object(map), added))
    }
}

fn load(step: &Value) -> Result<Opened> {
    let options = load_options(&step["options"])?;
    let source = text(step, "source");
    let path = match Bundle::is_bundle(Path::new(source)) {
        true => PathBuf::from(source),
        false => {
            let hub = cactus::store::hub(None, step["options"]["offline"] == true, None)?;
            let watcher: Rc<dyn cactus::store::Watcher> = Rc::new(cactus::store::Silent);
            cactus::store::bundle(&hub, source, &cactus::store::Wanted::default(), &watcher)?
        }
    };
    let model = Model::of(Arc::new(Bundle::open(&path)?), &options)?;
    cactus::pictures::attach(&model).map_err(cactus::Error::from)?;
    Ok(Opened {
        scheduler: Scheduler::new(model, SchedulerLimits::default())?,
        policy: None,
    })
}

fn info(model: &Model) -> Result<Value> {
    let manifest = model.bundle().manifest();
    Ok(json!({
        "name": manifest.name,
        "family": manifest.family,
        "task": manifest.task,
        "context_tokens": model.context_tokens(),
        "vocab_size": model.vocab_size(),
        "threads": model.threads(),
        "decode_threads": model.decode_threads(),
        "chat": model.chat_template()?.is_some(),
    }))
}

fn known(model: &Model, tokens: &Value) -> Result<Vec<u32>> {
    let ids = ids(tokens);
    match ids.iter().find(|&&id| id as usize >= model.vocab_size()) {
        None => Ok(ids),
        Some(id) => Err(Failure::argument(format!("the model has no token {id}"))),
    }
}

fn score(scheduler: &Arc<Scheduler>, step: &Value) -> Result<Value> {
    let options = GenerateOptions {
        max_tokens: 1,
        logprobs: Some(0),
        ..GenerateOptions::default()
    };
    let request = Request {
        score_from: Some(count(step, "first")),
        ..Request::new(known(scheduler.model(), &step["tokens"])?, options)
    };
    let completion = scheduler.generate(request, &mut |_| {})?;
    if completion.finish_reason == FinishReason::Cancelled {
        return Err(Failure::new("cancelled", "the computation was stopped"));
    }
    let logprobs: Vec<f64> = completion.prompt_logprobs.iter().map(|info| info.logprob).collect();
    Ok(json!({"logprob": logprobs.iter().sum::<f64>(), "tokens": logprobs.len(), "logprobs": logprobs}))
}

/// Whether a bundle can be used, and what is known of it.
fn report(path: &Path, verify: bool) -> Value {
    let (mut report, checked) = cactus::check_bundle(path, verify);
    report.insert("usable".to_owned(), json!(checked.is_ok()));
    if let Err(failure) = checked.map_err(Failure::from) {
        report.insert("code".to_owned(), json!(failure.code()));
        report.insert("kind".to_owned(), json!(failure.kind));
        report.insert("message".to_owned(), json!(failure.message));
    }
    Value::Object(report)
}
