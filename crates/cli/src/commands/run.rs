//! Answering a prompt, and chatting.

mod asked;
mod attached;
mod drawn;
mod kept;
mod routed;

use crate::args::{ModelArgs, RunArgs};
use crate::commands::{function, profile, show};
use crate::{film_file, model, output};
use anyhow::{Context, Result, bail};
use attached::Attached;
use cactus_base::Pool;
use cactus_engine::chat::{Chat as Prepared, ChatRequest, Message, ToolCall};
use cactus_engine::speculate::{Drafter, ModelDrafter, PromptLookup};
use cactus_engine::{
    Bundle, CancelToken, Completion, Delta, FinishReason, GenerateOptions, Guides, LoadOptions, Model, Overflow,
    Session,
};
use cactus_router::Kept as KeptHere;
use cactus_router::hybrid::route::Reason;
use cactus_text::message;
use kept::Kept;
use routed::{Ready, Routed};
use rustyline::error::ReadlineError;
use serde_json::{Value, json};
use show::Shown;
use std::collections::{HashSet, VecDeque};
use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};

const HELP: &str = "\
/help    show this help
/reset   forget the conversation
/system  set the system prompt: /system You are a pirate
/image   show a picture with the next question: /image cat.jpg
/video   show a film with the next question: /video bird.mp4
/audio   play a sound with the next question: /audio bird.wav
/result  give the result of a call: /result 21 degrees
/stats   show the timings of the last answer
/exit    leave (or press Ctrl-D)
Ctrl-C stops an answer. A line that ends with \\ continues on the next.";

/// Exit code of a program that Ctrl-C ended.
pub(super) const INTERRUPTED: u8 = 130;

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    args.route.check()?;
    let ready = Ready::of(&args.route)?;
    let path = model::bundle(&args.model)?;
    let bundle = Arc::new(Bundle::open(&path)?);
    if args.verify {
        model::verify(&bundle)?;
    }
    if args.component.is_none() {
        Model::check_answers(&bundle)?;
    }
    let is_function = function::is_function(&bundle);
    if args.input_ids.is_some() && args.max_new_tokens.is_some() && args.output_dir.is_none() && is_function {
        return function::generate(bundle, args, &generate_options(args, &GenerateOptions::default())?);
    }
    let request = asked::request(&args.answer)?;
    let one_call = args.output_dir.is_some() || args.component.is_some() || function::gives_ids(&bundle, args);
    if args.session.is_some() && (is_function || one_call) {
        bail!("`--session` keeps a conversation, and arrays or token ids are none");
    }
    if is_function || one_call {
        function::run(bundle, args)?;
        return Ok(ExitCode::SUCCESS);
    }
    let alone = [
        ("--rolling", args.rolling),
        ("--draft-model", args.draft_model.is_some()),
        ("--profile", args.profile),
    ];
    if let (true, Some((option, _))) = (args.route.is_given(), alone.iter().find(|(_, given)| *given)) {
        bail!("`{option}` is for answers of this machine alone; leave it out, or `--cloud` and `--policy`");
    }
    let options = LoadOptions {
        picture_rows: args.image_tokens.map(|tokens| tokens as usize),
        ..model::load_options(&args.engine)
    };
    let loaded = Model::of(bundle, &options)?;
    let mut attached = Attached::new(
        &loaded,
        [args.image_tokens, args.video_frames],
        args.show_image_tokens.clone(),
    )?;
    let reads_more = !loaded.program().given_inputs().is_empty();
    if let (Some(input), false) = (args.input.first(), reads_more) {
        let ids = function::ids_of(loaded.bundle()).unwrap_or("input_ids");
        bail!(
            "the model has no input for `{input}`: it reads `{ids}` alone. `--input {ids}=FILE.npy` computes all logits, \
             `--prompt` or `--input-ids` generate"
        );
    }
    let options = generate_options(args, loaded.default_options())?;
    let mut session = loaded.session()?;
    if args.rolling {
        session.set_overflow(Overflow::Rolling { sinks: 4 });
    }
    session.execution().set_profiling(args.profile);
    if reads_more {
        let threads = model::threads(args.engine.threads);
        let given = function::given(loaded.program().given_inputs(), &args.input)?;
        session.execution().give(&Pool::new(threads), threads, &given)?;
    }
    let kept = match &args.session {
        Some(file) if loaded.chat_template()?.is_some() => {
            Kept::restore(&mut session, file, args.system.as_deref())?.unwrap_or_default()
        }
        Some(_) => bail!("`--session` keeps a conversation, which needs a chat template, and the model has none"),
        None => Kept::default(),
    };
    let interrupt = Interrupt::install()?;
    attached.plan(&loaded, &args.image)?;
    for file in &args.image {
        interrupt.while_answering(|cancel| attached.show(&loaded, file, cancel))?;
    }
    for film in &args.video {
        interrupt.while_answering(|cancel| attached.watch(&loaded, film, args.video_fps, cancel))?;
    }
    for file in &args.audio {
        interrupt.while_answering(|cancel| attached.play(&loaded, file, cancel))?;
    }
    let drafter = match &args.draft_model {
        Some(name) => {
            let choice = ModelArgs {
                model: Some(name.clone()),
                small: false,
                ..args.model.clone()
            };
            let draft = model::load(&choice, &model::load_options(&args.engine))?;
            Some(ModelDrafter::new(&draft, &loaded)?)
        }
        None => None,
    };
    let routed = match ready {
        Some(_) if loaded.chat_template()?.is_none() => {
            bail!("`--cloud` and `--policy` route conversations, which need a chat template, and the model has none")
        }
        Some(ready) => Some(Routed::new(ready, &loaded)?),
        None => None,
    };
    let mut chat = Chat {
        routed,
        drafter,
        attached,
        args,
        options,
        model: &loaded,
        session,
        interrupt,
        pending: kept.pending(),
        messages: kept.messages,
        system: kept.system.or_else(|| args.system.clone()),
        last: None,
        request,
        noted: HashSet::new(),
    };
    let code = match (&args.input_ids, &args.prompt) {
        (Some(ids), _) => chat.continue_ids(ids)?,
        (None, Some(prompt)) => chat.once(&model::text_or_stdin(prompt)?)?,
        (None, None) => chat.converse()?,
    };
    if args.profile {
        profile::print(&mut chat.session);
    }
    Ok(code)
}

fn generate_options(args: &RunArgs, defaults: &GenerateOptions) -> Result<GenerateOptions> {
    let mut o = defaults.clone();
    if let Some(n) = args.max_new_tokens {
        o.max_tokens = n;
    }
    let floats = [
        (args.temperature, &mut o.temperature),
        (args.top_p, &mut o.top_p),
        (args.min_p, &mut o.min_p),
        (args.typical_p, &mut o.typical_p),
        (args.repetition_penalty, &mut o.repetition_penalty),
        (args.frequency_penalty, &mut o.frequency_penalty),
        (args.presence_penalty, &mut o.presence_penalty),
    ];
    for (given, slot) in floats {
        if let Some(x) = given {
            *slot = x;
        }
    }
    if let Some(k) = args.top_k {
        o.top_k = k;
    }
    if args.seed.is_some() {
        o.seed = args.seed;
    }
    if !args.stop.is_empty() {
        o.stop = args.stop.clone();
    }
    o.ignore_eos |= args.ignore_eos;
    if let Some(tokens) = args.prompt_lookup {
        o.prompt_lookup = tokens;
    }
    if args.logprobs.is_some() {
        o.logprobs = args.logprobs;
    }
    o.validate()?;
    Ok(o)
}

/// Ctrl-C: stops an answer under way; otherwise ends the program.
#[derive(Clone)]
struct Interrupt {
    cancel: CancelToken,
    answering: Arc<AtomicBool>,
    /// What stops an answer that the token does not reach.
    stop: Arc<Mutex<Option<Stop>>>,
    /// Hears of Ctrl-C while a person is asked, where the question does not see it as a key.
    asking: Arc<Mutex<Option<Stop>>>,
    /// The program ends after the answer under way: something still waits for a line that nobody wants any more.
    leaving: Arc<AtomicBool>,
}

type Stop = Box<dyn Fn() + Send>;

impl Interrupt {
    fn install() -> Result<Interrupt> {
        let interrupt = Interrupt {
            cancel: CancelToken::new(),
            answering: Arc::new(AtomicBool::new(false)),
            stop: Arc::default(),
            asking: Arc::default(),
            leaving: Arc::default(),
        };
        let handler = interrupt.clone();
        ctrlc::set_handler(move || {
            let asking = handler.asking.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(asking) = asking {
                handler.leaving.store(true, Ordering::Relaxed);
                return asking();
            }
            // A second Ctrl-C before the first has taken effect ends the program too.
            if !handler.answering.load(Ordering::Relaxed) || handler.cancel.is_cancelled() {
                // The main thread waits in a read that cannot be woken; nothing unfinished is on disk while it does.
                #[allow(clippy::disallowed_methods)]
                std::process::exit(i32::from(INTERRUPTED));
            }
            handler.cancel.cancel();
            if let Some(stop) = &*handler.stop.lock().unwrap_or_else(PoisonError::into_inner) {
                stop();
            }
        })
        .context("cannot watch for Ctrl-C")?;
        Ok(interrupt)
    }

    /// As [`Interrupt::while_answering`], for what is stopped by `stop`.
    fn while_stopping<T>(&self, stop: impl Fn() + Send + 'static, f: impl FnOnce() -> T) -> T {
        let set = |stop| *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = stop;
        set(Some(Box::new(stop)));
        let out = self.while_answering(|_| f());
        set(None);
        out
    }

    /// Asks a person something within an answer, on a thread of its own as nothing wakes a read; `None` where Ctrl-C came, and the
    /// question did not see it as a key. Then the program is to end once the answer has.
    fn ask<T: Send + 'static>(&self, question: impl FnOnce() -> T + Send + 'static) -> Result<Option<T>> {
        let (say, said) = channel();
        let set = |asking| *self.asking.lock().unwrap_or_else(PoisonError::into_inner) = asking;
        let interrupt = say.clone();
        // Who has gone on needs neither.
        set(Some(Box::new(move || drop(interrupt.send(None)))));
        let thread = std::thread::Builder::new().name("cactus-question".to_owned());
        let asked = thread.spawn(move || drop(say.send(Some(question()))));
        let came = asked.map(|_| said.recv());
        set(None);
        came.context("cannot ask at the terminal")?
            .context("the question at the terminal ended without an answer")
    }

    fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    fn while_answering<T>(&self, f: impl FnOnce(&CancelToken) -> T) -> T {
        self.cancel.reset();
        self.answering.store(true, Ordering::Relaxed);
        let out = f(&self.cancel);
        self.answering.store(false, Ordering::Relaxed);
        out
    }
}

struct Chat<'a> {
    /// Who else may answer, where somebody may.
    routed: Option<Routed>,
    /// Pictures for the next question.
    attached: Attached,
    args: &'a RunArgs,
    options: GenerateOptions,
    model: &'a Arc<Model>,
    session: Session,
    drafter: Option<ModelDrafter>,
    interrupt: Interrupt,
    messages: Vec<Value>,
    system: Option<String>,
    last: Option<Completion>,
    /// What is asked of every answer.
    request: ChatRequest,
    /// Calls whose results are awaited.
    pending: VecDeque<ToolCall>,
    /// What the user was told already.
    noted: HashSet<String>,
}

impl Chat<'_> {
    /// Answers one prompt.
    fn once(&mut self, prompt: &str) -> Result<ExitCode> {
        let (result, cancelled) = match self.is_routed() {
            true => {
                let reply = self.routed_answer(self.attached.message(prompt))?;
                (routed::json(&reply), reply.answered.outcome.reason == Reason::Cancelled)
            }
            false => {
                let (completion, answer, kept) = self.answer(prompt)?;
                let cancelled = completion.finish_reason == FinishReason::Cancelled;
                let mut result = show::json(&completion, &answer)?;
                if let (Some(kept), Value::Object(fields)) = (kept, &mut result) {
                    fields.extend(kept.answered().to_json());
                }
                (result, cancelled)
            }
        };
        if let Some(path) = &self.args.result_json {
            let json = serde_json::to_vec_pretty(&result)?;
            std::fs::write(path, json).with_context(|| format!("cannot write `{}`", path.display()))?;
        }
        if self.args.json {
            output::json(&result)?;
        }
        Ok(match cancelled {
            true => ExitCode::from(INTERRUPTED),
            false => ExitCode::SUCCESS,
        })
    }

    /// Whether somebody else may answer: not where log-probabilities are asked for, which no target gives.
    fn is_routed(&self) -> bool {
        self.routed.is_some() && self.options.logprobs.is_none()
    }

    /// Has the question answered here or elsewhere, and remembers both.
    fn routed_answer(&mut self, asked: Value) -> Result<routed::Reply> {
        let request = ChatRequest {
            messages: self.with(asked.clone()),
            ..self.request.clone()
        };
        let Some(routed) = &mut self.routed else {
            bail!("nobody else may answer");
        };
        let defaults = self.model.default_options();
        let reply = routed.answer(request, &self.options, defaults, &self.interrupt, self.args.json)?;
        if !self.args.json {
            reply.message.notes.iter().for_each(output::note);
            for note in &reply.answered.notes {
                // What holds for the whole chat is said once.
                if reply.answered.outcome.reason != Reason::Uncalibrated || self.noted.insert(note.clone()) {
                    output::note(note);
                }
            }
            if let Some(origin) = routed::origin(&reply.answered) {
                output::note(origin);
            }
        }
        if reply.answered.outcome.reason == Reason::Cancelled {
            if !self.args.json {
                output::note("(stopped)");
            }
            if reply.message == Message::default() {
                // Nobody has answered: the question is forgotten, and the result of a call kept.
                if asked["role"] == "tool" {
                    self.messages.push(asked);
                    self.keep()?;
                }
                return Ok(reply);
            }
        }
        self.attached.sent(&asked);
        self.messages.push(asked);
        self.messages.push(show::history(&reply.message));
        self.pending = reply.message.calls.iter().cloned().collect();
        self.keep()?;
        Ok(reply)
    }

    /// Continues token ids.
    fn continue_ids(&mut self, ids: &[u32]) -> Result<ExitCode> {
        let completion = self
            .session
            .generate(ids, &self.options, &CancelToken::new(), &mut |_| {})?;
        show_ids(self.args, &completion)?;
        Ok(ExitCode::SUCCESS)
    }

    /// What to compute for `messages`; for `prompt` alone where there is no chat template.
    fn prepare(&self, messages: Vec<Value>, prompt: &str) -> Result<Prepared> {
        let plain = self.args.raw || self.model.chat_template()?.is_none();
        let option = asked::format_option(&self.args.answer);
        if !plain {
            let request = ChatRequest {
                messages,
                rolls: self.args.rolling,
                ..self.request.clone()
            };
            return Prepared::new(self.model, &request).map_err(|e| asked::named(e, option));
        }
        let needs = [
            (
                "a system prompt needs",
                self.system.is_some(),
                "; put the text into the prompt instead",
            ),
            ("`--tools` needs", !self.request.tools.is_empty(), ""),
            ("`--thinking` needs", self.request.reasoning.is_some(), ""),
        ];
        if let Some((what, _, instead)) = needs.into_iter().find(|(_, given, _)| *given && !self.args.raw) {
            bail!("{what} a chat template, and the model has none{instead}");
        }
        Prepared::of_text(self.model, prompt, self.request.format.as_ref()).map_err(|e| asked::named(e, option))
    }

    /// The conversation with `next` after it.
    fn with(&self, next: Value) -> Vec<Value> {
        let system = self.system.iter().map(|system| message("system", system));
        system.chain(self.messages.iter().cloned()).chain([next]).collect()
    }

    /// Streams the answer to `prompt` and remembers both.
    fn answer(&mut self, prompt: &str) -> Result<(Completion, Message, Option<KeptHere>)> {
        if prompt.trim().is_empty() {
            bail!("the prompt is empty");
        }
        let asked = self.attached.message(prompt);
        let prepared = self.prepare(self.with(asked.clone()), prompt)?;
        self.pending.clear();
        self.reply(asked, prepared)
    }

    /// Streams the answer to what was prepared, and remembers it after `asked`.
    fn reply(&mut self, asked: Value, prepared: Prepared) -> Result<(Completion, Message, Option<KeptHere>)> {
        let kept = self
            .routed
            .as_ref()
            .map(|routed| routed.keep_here(self.with(asked.clone())));
        for note in prepared.notes {
            if self.noted.insert(note.clone()) {
                output::note(note);
            }
        }
        let mut reader = prepared.reader;
        let mut shown = Shown::new(self.args.json);
        let mut deltas = Vec::new();
        let mut failed = None;
        let interrupt = self.interrupt.clone();
        let completion = interrupt.while_answering(|cancel| {
            let mut lookup = PromptLookup::default();
            let drafter: Option<&mut dyn Drafter> = match (&mut self.drafter, self.options.prompt_lookup) {
                (Some(drafter), _) => Some(drafter),
                (None, 0) => None,
                (None, _) => Some(&mut lookup),
            };
            let guides = Guides {
                drafter,
                constraint: prepared.constraint,
                keep_special: true,
                ..Guides::default()
            };
            let mut on_delta = |delta: Delta<'_>| {
                kept.iter().for_each(KeptHere::begins);
                reader.push(delta.text, delta.special, &mut deltas);
                if let Err(e) = shown.add(deltas.drain(..)) {
                    failed.get_or_insert(e);
                    cancel.cancel();
                }
            };
            let session = &mut self.session;
            session.generate_with(&prepared.prompt, &self.options, guides, cancel, &mut on_delta)
        })?;
        reader.finish(&mut deltas);
        let end = shown.add(deltas.drain(..)).and_then(|()| shown.end());
        if let Some(e) = failed.or(end.err()) {
            return Err(e).context("cannot write the answer");
        }
        let answer = shown.message;
        answer.notes.iter().for_each(output::note);
        self.warn(&completion);
        if !self.args.json {
            let tokenizer = self.model.tokenizer()?;
            // Quoted, so that spaces and line ends show.
            show_logprobs(&completion, |id| format!("{:?}", tokenizer.decode(&[id], false)));
        }
        if self.args.verbose && !self.args.json {
            stats(&completion);
        }
        self.attached.sent(&asked);
        self.messages.push(asked);
        self.messages.push(show::history(&answer));
        self.pending = answer.calls.iter().cloned().collect();
        self.last = Some(completion.clone());
        self.keep()?;
        Ok((completion, answer, kept))
    }

    /// Saves the conversation, if it is to be kept.
    fn keep(&mut self) -> Result<()> {
        let Some(file) = &self.args.session else {
            return Ok(());
        };
        let kept = Kept {
            system: self.system.clone(),
            messages: self.messages.clone(),
        };
        kept.save(&mut self.session, file)
    }

    /// Begins the conversation again.
    fn forget(&mut self, told: &str) {
        self.attached.clear();
        self.messages.clear();
        self.pending.clear();
        self.session.reset();
        match self.keep() {
            Ok(()) => output::note(told),
            Err(e) => output::error(&e),
        }
    }

    /// Says why an answer ends before its end.
    fn warn(&self, completion: &Completion) {
        let whole = if completion.whole { "" } else { " and is not whole" };
        match completion.finish_reason {
            FinishReason::ContextFull => output::warning(format!(
                "the answer ends here{whole}, because the context is full; raise `--context`, or use `--rolling` to drop the oldest tokens",
            )),
            FinishReason::Cancelled if !self.args.json => output::note("(stopped)"),
            FinishReason::Length if !completion.whole => output::warning(format!(
                "the answer ends here after {} tokens and is not whole; raise `--max-new-tokens`",
                completion.decode_tokens
            )),
            _ => {}
        }
    }

    /// Takes the result of the first call that awaits one, and has the model go on after the last.
    fn result(&mut self, text: &str) -> Result<()> {
        let Some(call) = self.pending.pop_front() else {
            bail!("no call awaits a result");
        };
        let result = json!({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text});
        if let Some(next) = self.pending.front() {
            output::note(format!("(`{}` awaits its result)", next.name));
            self.messages.push(result);
            return self.keep();
        }
        if self.is_routed() {
            return self.routed_answer(result).map(drop);
        }
        let prepared = self.prepare(self.with(result.clone()), "")?;
        self.reply(result, prepared).map(drop)
    }

    fn converse(&mut self) -> Result<ExitCode> {
        if self.model.chat_template()?.is_none() && !self.args.raw {
            output::note("this model has no chat template, so each line is continued as plain text");
        }
        // What cannot be asked of any answer is found out before the first question.
        let system = self.system.iter().map(|system| message("system", system));
        self.prepare(system.chain([message("user", "?")]).collect(), "?")?;
        if !std::io::stdin().is_terminal() {
            for line in std::io::stdin().lock().lines() {
                let line = line.context("cannot read standard input as UTF-8 text")?;
                if !line.trim().is_empty() && !self.turn(&line) {
                    break;
                }
            }
            return Ok(ExitCode::SUCCESS);
        }
        output::note(format!(
            "{} on {} · /help shows commands, Ctrl-D leaves",
            self.model.bundle().manifest().name,
            self.model.program().kernels().tier().name()
        ));
        if !self.messages.is_empty() {
            output::note(format!(
                "(the conversation goes on after {} messages)",
                self.messages.len()
            ));
        }
        let mut editor = rustyline::DefaultEditor::new().context("cannot read from the terminal")?;
        let mut text = String::new();
        loop {
            let prompt = if text.is_empty() { "> " } else { "… " };
            match editor.readline(prompt) {
                Ok(line) => {
                    if let Some(more) = line.strip_suffix('\\') {
                        text.push_str(more);
                        text.push('\n');
                        continue;
                    }
                    text.push_str(&line);
                    let whole = std::mem::take(&mut text);
                    if whole.trim().is_empty() {
                        continue;
                    }
                    // The history is a convenience; a full one is no reason to stop.
                    let _ = editor.add_history_entry(&whole);
                    if !self.turn(&whole) {
                        break;
                    }
                    if self.interrupt.is_leaving() {
                        return Ok(ExitCode::from(INTERRUPTED));
                    }
                }
                Err(ReadlineError::Interrupted) => {
                    text.clear();
                    output::note("(press Ctrl-D or type /exit to leave)");
                }
                Err(ReadlineError::Eof) => break,
                Err(e) => return Err(e).context("cannot read from the terminal"),
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// One line of a chat; `false` ends it. An error is shown and the chat goes on.
    fn turn(&mut self, line: &str) -> bool {
        let trimmed = line.trim();
        let (command, rest) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, ""));
        match command {
            "/exit" | "/quit" => return false,
            "/help" => output::note(HELP),
            "/reset" => self.forget("(conversation forgotten)"),
            "/system" => {
                self.system = (!rest.trim().is_empty()).then(|| rest.trim().to_owned());
                self.forget("(system prompt set; the conversation starts again)");
            }
            "/image" | "/video" | "/audio" if rest.trim().is_empty() => {
                output::note(format!("`{command}` needs a file: {command} FILE"));
            }
            "/image" | "/video" | "/audio" => {
                let interrupt = self.interrupt.clone();
                let file = std::path::Path::new(rest.trim());
                let attached = interrupt.while_answering(|cancel| match command {
                    "/image" => self.attached.show(self.model, file, cancel),
                    "/video" => self.attached.watch(self.model, file, film_file::USUAL_RATE, cancel),
                    _ => self.attached.play(self.model, file, cancel),
                });
                if let Err(e) = attached {
                    output::error(&e);
                }
            }
            "/result" => {
                if let Err(e) = self.result(rest.trim()) {
                    output::error(&e);
                }
            }
            "/stats" => match &self.last {
                Some(c) => stats(c),
                None => output::note("there is no answer yet"),
            },
            _ if command.starts_with('/') && !command[1..].contains('/') && command.len() > 1 => {
                output::note(format!("there is no command `{command}`; /help lists the commands"));
            }
            _ => {
                let answered = match self.is_routed() {
                    true => self.routed_answer(self.attached.message(line)).map(drop),
                    false => self.answer(line).map(drop),
                };
                if let Err(e) = answered {
                    output::error(&e);
                }
            }
        }
        true
    }
}

/// The ids of an answer, or all of it as JSON.
pub(super) fn show_ids(args: &RunArgs, completion: &Completion) -> Result<()> {
    if completion.finish_reason == FinishReason::ContextFull {
        output::warning(
            "the answer ends here, because the context is full; raise `--context`, as far as the model allows",
        );
    }
    if let Some(path) = &args.result_json {
        let json = serde_json::to_vec_pretty(completion)?;
        std::fs::write(path, json).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    if args.json {
        return output::json(completion);
    }
    let ids: Vec<String> = completion.completion_token_ids.iter().map(u32::to_string).collect();
    output::line(ids.join(","));
    show_logprobs(completion, |id| id.to_string());
    Ok(())
}

/// The log-probabilities of an answer, if they were asked for: a line for each token, which is named by `name`.
fn show_logprobs(completion: &Completion, name: impl Fn(u32) -> String) {
    let rows = completion.logprobs.iter().map(|token| {
        let others = token.top.iter().map(|t| format!("{} {:.3}", name(t.token), t.logprob));
        vec![
            name(token.token),
            format!("{:.3}", token.logprob),
            others.collect::<Vec<_>>().join("  "),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if !rows.is_empty() {
        let has_others = completion.logprobs.iter().any(|token| !token.top.is_empty());
        let others = if has_others { "most likely" } else { "" };
        output::table(&["token", "log-probability", others], &rows);
    }
}

fn stats(c: &Completion) {
    output::note(format!(
        "{} prompt tokens ({} reused) at {:.0} tok/s · first token after {:.0} ms · {} tokens at {:.1} tok/s{}",
        c.prefill_tokens,
        c.cached_tokens,
        c.prefill_tps,
        c.time_to_first_token_ms,
        c.decode_tokens,
        c.decode_tps,
        c.ram_usage_mb
            .map_or_else(String::new, |mb| format!(" · {mb:.0} MB resident")),
    ));
    if c.drafted_tokens > 0 {
        let (right, all) = (c.accepted_tokens, c.drafted_tokens);
        output::note(format!("{right} of {all} guessed tokens were right"));
    }
}
