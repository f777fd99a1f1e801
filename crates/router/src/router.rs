//! What lasts longer than a request.

use crate::answered::Answered;
use crate::error::{Error, Result};
use crate::keys::{Keys, private_folder};
use crate::log::Log;
use crate::outgoing;
use crate::running::Running;
use crate::setup::Configured;
use cactus_cloud::{Base, Breaker, Deadlines, LookUp, MinutePrice, Money, Protocol, Target, Transport, Usage};
use cactus_engine::{GenerateOptions, Scheduler};
use cactus_hybrid::budget::{Folder, History, Journal, Spent};
use cactus_hybrid::money::Pico;
use cactus_hybrid::policy::{self, Handoff, Policy};
use cactus_hybrid::record::{Circumstances, Record};
use cactus_hybrid::redact::Class;
use cactus_hybrid::route::{FIRST_SECONDS, Outcome, Reason};
use cactus_hybrid::score::{Key, Section};
use cactus_protocol::{Job, Prompt, Ready};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Answers requests under one policy. Shared by all threads of a process; budget and record are shared with other processes,
/// too, by the folder.
#[derive(Debug)]
pub struct Router {
    pub(crate) policy: Policy,
    pub(crate) targets: BTreeMap<String, Remote>,
    pub(crate) transport: Transport,
    pub(crate) log: Log,
    journal: Mutex<Journal<Folder>>,
    begun: Instant,
}

/// A target made ready.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) policy: policy::Target,
    pub(crate) target: Target,
    /// Its key, where whoever made the policy gave it.
    given: Option<cactus_cloud::Key>,
    keys: Keys,
    pub(crate) breaker: Mutex<Breaker>,
    /// Seconds that its answers take of late.
    pub(crate) seconds: Mutex<f64>,
}

/// The task of calibrations that were learned from calls of tools.
const CALLS: &str = "bfcl";

/// The model on this machine.
#[derive(Clone, Debug)]
pub struct Local {
    /// Computes its answers.
    pub scheduler: Arc<Scheduler>,
    /// How long it took to load, for the times of an answer.
    pub load: Duration,
    calibration: Option<Arc<Calibration>>,
}

/// What a bundle says of its own confidence.
#[derive(Debug)]
pub(crate) struct Calibration {
    pub(crate) section: Section,
    pub(crate) digest: String,
}

impl Local {
    /// The model of a scheduler, with the calibration that its bundle has. Done once for a model that stays loaded.
    ///
    /// # Errors
    /// [`Error::File`] for a calibration that is damaged.
    pub fn new(scheduler: Arc<Scheduler>, load: Duration) -> Result<Local> {
        let model = scheduler.model();
        let bytes = model
            .document(cactus_engine::CONFIDENCE_PATH)
            .map_err(|e| Error::File(e.to_string()))?;
        let listed = model.bundle().manifest().files.get(cactus_engine::CONFIDENCE_PATH);
        let calibration = match bytes.zip(listed) {
            None => None,
            Some((bytes, listed)) => Some(Arc::new(Calibration {
                section: Section::from_json(&bytes).map_err(|e| Error::File(e.to_string()))?,
                digest: listed.xxh3.to_string(),
            })),
        };
        Ok(Local {
            scheduler,
            load,
            calibration,
        })
    }

    /// Whether somebody has calibrated the bundle; it may still not hold for a request.
    #[must_use]
    pub fn is_calibrated(&self) -> bool {
        self.calibration.is_some()
    }

    /// The calibration, where it holds for what is asked (`calls`: whether tools may be called); otherwise why it does not.
    pub(crate) fn calibration(
        &self,
        options: &GenerateOptions,
        calls: bool,
    ) -> Result<Option<Arc<Calibration>>, String> {
        let Some(calibration) = &self.calibration else {
            return Ok(None);
        };
        // What was learned from calls says nothing of prose, nor the other way round.
        let task = &calibration.section.task;
        if !task.split('+').any(|task| (task == CALLS) == calls) {
            return Err(format!(
                "the calibration of this bundle was learned from `{task}`, and does not hold for {}",
                if calls {
                    "calls of tools"
                } else {
                    "answers without tools"
                }
            ));
        }
        let found = self.scheduler.model().fingerprint(options).map_err(|e| e.to_string())?;
        let key = Key {
            bundle: found.bundle,
            template: found.template,
            sampler: found.sampler,
        };
        calibration.section.holds_for(&key).map_err(|e| e.to_string())?;
        Ok(Some(Arc::clone(calibration)))
    }
}

/// One request to a [`Router`].
#[derive(Debug)]
pub struct Ask {
    /// The model on this machine, where there is one for it.
    pub local: Option<Local>,
    /// What is asked: one answer to one conversation.
    pub job: Job,
    /// Where the request said what the answer must follow, for errors.
    pub format_field: &'static str,
    /// This target, and no other.
    pub target: Option<String>,
    /// Whether `target` is to answer whatever anybody is sure of. What the policy forbids stays forbidden.
    pub named: bool,
    /// In place of the policy's.
    pub handoff: Option<Handoff>,
    /// Options under the names of the public Cactus engine ([`policy::CACTUS_OPTIONS`]), which change the policy for this request
    /// alone.
    pub options: Map<String, Value>,
    /// Names the conversation to the budget.
    pub session: String,
    /// Names the user to the budget; empty where there is but one.
    pub user: String,
    /// Keeps tenants of the engine's prefix cache apart, as [`cactus_engine::scheduler::Request::salt`].
    pub salt: u64,
    /// The prompt of `job` as the model on this machine takes it, where the caller has made it already; `salt` is in it then.
    pub ready: Option<Ready>,
}

impl Ask {
    /// A request under the policy alone.
    #[must_use]
    pub fn new(local: Option<Local>, job: Job) -> Ask {
        Ask {
            local,
            job,
            format_field: "response_format",
            target: None,
            named: false,
            handoff: None,
            options: Map::new(),
            session: String::new(),
            user: String::new(),
            salt: 0,
            ready: None,
        }
    }
}

impl Router {
    /// A router with its budget and record in `folder`, and the keys that it finds by `keys`. Nothing is sent.
    ///
    /// # Errors
    /// [`Error::Target`] for an address that cannot be used; [`Error::File`] where `folder` cannot be made.
    pub fn new(configured: Configured, folder: &Path, keys: &Keys) -> Result<Router> {
        let Configured {
            policy,
            known,
            keys: mut given,
            ..
        } = configured;
        let failed = |e| Error::File(format!("cannot make the folder `{}`: {e}", folder.display()));
        private_folder(folder).map_err(failed)?;
        let ms = Duration::from_millis;
        let transport = Transport {
            deadlines: Deadlines {
                connect: ms(policy.deadlines.connect_ms),
                first: ms(policy.deadlines.first_payload_ms),
                gap: ms(policy.deadlines.gap_ms),
                total: ms(policy.deadlines.total_ms),
            },
            ..Transport::default()
        };
        let mut targets = BTreeMap::new();
        for (name, asked) in &policy.targets {
            let mut target = match known.get(name) {
                Some(known) => known.clone(),
                None => target(name, asked)?,
            };
            target.capabilities.max_output_tokens = Some(asked.max_output_tokens);
            let remote = Remote {
                policy: asked.clone(),
                target,
                given: given.remove(name),
                keys: keys.clone(),
                breaker: Mutex::default(),
                seconds: Mutex::new(FIRST_SECONDS),
            };
            targets.insert(name.clone(), remote);
        }
        Ok(Router {
            policy,
            targets,
            transport,
            log: Log::new(folder),
            journal: Mutex::new(Journal::new(Folder::new(folder))),
            begun: Instant::now(),
        })
    }

    /// This router, which looks names of hosts up in another way than the system's.
    #[must_use]
    pub fn with_look_up(mut self, look_up: LookUp) -> Router {
        self.transport.look_up = look_up;
        self
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The record of decisions.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Whether a target can be asked at all.
    ///
    /// # Errors
    /// [`Error::Target`] for a name that the policy does not have, or a key that is not there.
    pub fn check(&self, name: &str) -> Result<()> {
        match self.targets.get(name) {
            Some(remote) => match remote.key() {
                Ok(_) => Ok(()),
                Err(why) => Err(Error::Target(why)),
            },
            None => {
                let known: Vec<&str> = self.targets.keys().map(String::as_str).collect();
                Err(Error::Target(format!(
                    "there is no target `{name}` in the policy; it has {}",
                    if known.is_empty() {
                        "none".to_owned()
                    } else {
                        known.join(", ")
                    }
                )))
            }
        }
    }

    /// Starts a request. It is driven by whoever reads the events.
    ///
    /// # Errors
    /// What is wrong with the request; [`Error::Target`] for a name that the policy does not have.
    pub fn start(self: &Arc<Self>, ask: Ask) -> Result<Running> {
        Running::new(Arc::clone(self), ask)
    }

    /// What is spent or reserved, by a session and a user too.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn spent(&self, session: &str, user: &str) -> Result<Spent> {
        let spent = self.journal().spent(session, user, unix_seconds());
        spent.map_err(|e| Error::File(e.to_string()))
    }

    /// What was spent over time.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn history(&self) -> Result<History> {
        self.journal().history().map_err(|e| Error::File(e.to_string()))
    }

    /// Takes note that the model on this machine answers, without the router, what no target can be asked ([`outgoing::stays`]). It
    /// is recorded when what this gives is dropped.
    #[must_use]
    pub fn keep_here(self: &Arc<Self>, prompts: &[Prompt]) -> Kept {
        Kept {
            router: Arc::clone(self),
            classes: outgoing::classes_of(prompts),
            begun: Instant::now(),
            first: OnceLock::new(),
        }
    }

    pub(crate) fn journal(&self) -> MutexGuard<'_, Journal<Folder>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time of a clock that never goes back.
    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}

/// An answer of the model on this machine to what no target can be asked, until it ends.
#[derive(Debug)]
pub struct Kept {
    router: Arc<Router>,
    classes: Vec<Class>,
    begun: Instant,
    /// When its first token came.
    first: OnceLock<Duration>,
}

impl Kept {
    /// Takes note that its first token is there; only the first time counts.
    pub fn begins(&self) {
        self.first.get_or_init(|| self.begun.elapsed());
    }

    /// How it ended.
    #[must_use]
    pub fn answered(&self) -> Answered {
        Answered::here(self.outcome())
    }

    fn outcome(&self) -> Outcome {
        let ms = |time: &Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Outcome {
            first_ms: self.first.get().map(ms),
            ..Outcome::here(Reason::NoTarget, ms(&self.begun.elapsed()))
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let circumstances = Circumstances {
            seconds: unix_seconds(),
            classes: std::mem::take(&mut self.classes),
            ..Circumstances::default()
        };
        // The answer is there, and whoever has it cannot be told any more.
        let _ = self
            .router
            .log
            .add(&Record::without_target(&self.outcome(), circumstances));
    }
}

impl Remote {
    /// Its key as it is now, which somebody may have changed since the last request; or why there is none.
    pub(crate) fn key(&self) -> Result<Option<cactus_cloud::Key>, String> {
        if let Some(given) = &self.given {
            return Ok(Some(given.clone()));
        }
        let found = self.keys.find(&self.target, &self.policy.key);
        found.map_err(|e| e.to_string())
    }

    /// Why it is left alone for a while, where it is.
    pub(crate) fn rest(&self, now: Duration) -> Option<cactus_cloud::Error> {
        let key = self.key().ok().flatten();
        self.breaker().check(now, key.as_ref()).err()
    }

    pub(crate) fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn seconds(&self) -> f64 {
        *self.seconds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of how long an answer took.
    pub(crate) fn took(&self, seconds: f64) {
        let mut held = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        *held += 0.3 * (seconds - *held);
    }

    /// Whether prompt and answer fit its context, as far as that is known.
    ///
    /// # Errors
    /// A sentence that says why not.
    pub(crate) fn fits(&self, input_tokens: usize, output_tokens: u32) -> Result<(), String> {
        let Some(context) = self.target.capabilities.context_tokens else {
            return Ok(());
        };
        let input = most_input(input_tokens);
        match input.saturating_add(u64::from(output_tokens)) <= context {
            true => Ok(()),
            false => Err(format!(
                "the target `{}` takes {context} tokens of prompt and answer together; found a prompt of up to {input}, and an \
                 answer of up to {output_tokens}",
                self.target.name
            )),
        }
    }

    /// The most that one try may cost, for a prompt of so many tokens by our own count.
    pub(crate) fn worst_case(&self, input_tokens: usize, output_tokens: u32) -> Pico {
        let (input, output) = (input_tokens as u64, u64::from(output_tokens));
        match &self.target.price {
            Some(price) => Pico(price.most(most_input(input_tokens), output).pico()),
            None => self.policy.price.worst_case(input, output),
        }
    }

    /// What so many milliseconds of sound cost. A target that nobody has priced is never asked: what it would cost is more than any
    /// budget has.
    pub(crate) fn sound_cost(&self, milliseconds: u64) -> Pico {
        let minute = self.target.minute.as_ref();
        minute.map_or(Pico::MAX, |minute| Pico(minute.cost(milliseconds).pico()))
    }

    /// What a try costs by the target's own count, where it has counted.
    pub(crate) fn cost(&self, usage: &Usage) -> Option<Pico> {
        match &self.target.price {
            Some(price) => price.cost(usage, unix_seconds()).map(|money| Pico(money.pico())),
            None => Some(self.policy.price.of(usage.input?, usage.output?)),
        }
    }
}

/// The most tokens that a target may count in a prompt, by our own count: as many again by half, as its tokenizer may cut finer.
fn most_input(tokens: usize) -> u64 {
    let tokens = tokens as u64;
    tokens.saturating_add(tokens.div_ceil(2))
}

/// A target of a policy as `cloud` has it.
///
/// # Errors
/// [`Error::Target`] for an address that cannot be used.
pub(crate) fn target(name: &str, asked: &policy::Target) -> Result<Target> {
    let protocol = match asked.protocol {
        policy::Protocol::Anthropic => Protocol::Anthropic,
        policy::Protocol::OpenaiChat => Protocol::OpenAiChat,
        policy::Protocol::OpenaiResponses => Protocol::OpenAiResponses,
        policy::Protocol::Gemini => Protocol::Gemini,
        policy::Protocol::OpenaiTranscriptions => Protocol::OpenAiTranscriptions,
    };
    // The policy has been checked: what is plain there may be.
    let base = Base::parse(&asked.base_url, true).map_err(|e| Error::Target(format!("the target `{name}`: {e}")))?;
    let mut target = Target::new(name, protocol, base, asked.model.clone());
    target.capabilities.images = asked.images;
    target.capabilities.audio = asked.audio;
    target.capabilities.tools = asked.tools;
    target.capabilities.max_output_tokens = Some(asked.max_output_tokens);
    target.capabilities.word_times = asked.word_times;
    target.minute = asked.minute.map(|amount| MinutePrice {
        source: "the policy".to_owned(),
        date: asked.priced_on.clone().unwrap_or_default(),
        amount: Money::from_pico(amount.0),
    });
    Ok(target)
}

/// Seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Where budget, record and keys of a user lie: `CACTUS_STATE`, or the folder `cactus` of the system's place for such files. `None`
/// where there is neither.
#[must_use]
pub fn default_folder() -> Option<PathBuf> {
    match std::env::var_os("CACTUS_STATE").filter(|path| !path.is_empty()) {
        Some(path) => Some(PathBuf::from(path)),
        None => Some(dirs::state_dir().or_else(dirs::data_local_dir)?.join("cactus")),
    }
}
