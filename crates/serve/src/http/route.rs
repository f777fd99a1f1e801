//! Names of models that a policy adds (`local`, `auto`, `cloud:NAME`), what requests say beside the APIs, and what answers tell of
//! who gave them.

use super::App;
use crate::hearing::Heard;
use crate::models::Does;
use crate::protocol::openai::ModelCard;
use crate::protocol::{ApiError, Fields, Frame, Job, Kind};
use crate::routed::{CONSENT, CONSENT_TO, Routed};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use cactus_router::hybrid::redact::Class;
use cactus_router::hybrid::route::{Outcome, Reason, Side};
use cactus_router::{Answered, Kept, Standing, outgoing};
use serde_json::{Map, Value, json};
use std::time::Instant;

/// The model on this machine, and nothing else.
const LOCAL: &str = "local";
/// Whoever the policy says.
const AUTO: &str = "auto";
/// Before the name of a target.
const CLOUD: &str = "cloud:";

/// Whom a request asks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A model of this server, without the router.
    Here,
    /// The same, as no target can be asked what the policy would have decided about.
    Kept,
    /// The first model or a target, as the policy says.
    Policy,
    /// A target.
    Target(String),
}

/// The header with events beside those of its API that a client understands.
const EVENTS: &str = "x-cactus-events";
/// The one event that there is.
const REPLACED: &str = "replaced";

/// What a request says beside its API.
#[derive(Debug, Default)]
pub(super) struct Hints {
    /// The client understands that an answer is replaced.
    pub(super) replaceable: bool,
    pub(super) session: String,
    pub(super) user: String,
    pub(super) consent: Vec<Class>,
    pub(super) consent_to: Vec<String>,
}

/// The words of a header, which commas separate.
fn words<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let texts = headers
        .get_all(name)
        .into_iter()
        .map(|value| value.to_str().unwrap_or("?"));
    texts
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|word| !word.is_empty())
}

/// What a client that understands it is told where what came before in a stream is void. The fields of the APIs that are in it let
/// their clients pass over it.
pub(super) fn replaced(void: &Standing) -> Frame {
    let mut told = void.to_json();
    told.insert("event".to_owned(), Value::from(REPLACED));
    let data = json!({"type": REPLACED, "choices": [], "done": false, "cactus": told});
    Frame::named(REPLACED, &data)
}

impl Hints {
    /// From the headers and the body of a request.
    ///
    /// # Errors
    /// A class that there is not, or a field of another type.
    pub(super) fn read(app: &App, headers: &HeaderMap, body: &Value) -> Result<Hints, ApiError> {
        if app.options.router.is_none() {
            return Ok(Hints::default());
        }
        let mut consent = Vec::new();
        for word in words(headers, CONSENT) {
            let class = word.parse::<Class>();
            consent.push(class.map_err(|expected| {
                let message = format!("the header `{CONSENT}`: found `{word}`, {expected}, separated by commas");
                ApiError::field(CONSENT, message)
            })?);
        }
        if let Some(word) = words(headers, EVENTS).find(|word| *word != REPLACED) {
            let message = format!("the header `{EVENTS}`: found `{word}`, expected `{REPLACED}`");
            return Err(ApiError::field(EVENTS, message));
        }
        let fields = Fields::of_body(body)?;
        let metadata = fields.object("metadata").ok().flatten();
        let of_metadata = metadata.as_ref().and_then(|metadata| metadata.get("user_id")?.as_str());
        let named = match fields.text("user")? {
            Some(user) => Some(user),
            None => fields.text("safety_identifier")?.or(of_metadata),
        };
        // Who has one key cannot spend in the name of who has another.
        let user = [app.guard.payer(headers).as_str(), named.unwrap_or_default()].join("/");
        Ok(Hints {
            // Without a name, a request is a conversation of its own.
            session: match fields.text("session")? {
                Some(session) => format!("{user}/{session}"),
                None => crate::protocol::new_id("session-"),
            },
            user,
            consent,
            consent_to: words(headers, CONSENT_TO).map(str::to_owned).collect(),
            replaceable: words(headers, EVENTS).next().is_some(),
        })
    }
}

impl App {
    /// Whom a job asks; its model is then the name of one on this machine.
    ///
    /// # Errors
    /// A target that the policy does not have, or one for what only this machine can do.
    pub(super) fn way(&self, job: &mut Job) -> Result<Way, ApiError> {
        let Some(router) = &self.options.router else {
            return Ok(Way::Here);
        };
        if self.models.index(&job.model).is_ok() {
            return Ok(Way::Here);
        }
        let name = std::mem::take(&mut job.model);
        let name = plain(&name);
        let portable = outgoing::stays(job).is_none();
        match name.strip_prefix(CLOUD) {
            Some(target) if router.policy().targets.get(target).is_none_or(|target| target.hears()) => {}
            Some(target) if portable => return Ok(Way::Target(target.to_owned())),
            Some(_) => {
                let message = "a target gives one answer to a conversation, without log-probabilities";
                return Err(ApiError::field("model", message).with_code("no_target"));
            }
            None if name == LOCAL => return Ok(Way::Here),
            None if name == AUTO && portable => return Ok(Way::Policy),
            None if name == AUTO => return Ok(Way::Kept),
            None => {}
        }
        let known: Vec<String> = self.cards().into_iter().map(|card| card.id).collect();
        let message = format!("there is no model `{name}` here; there is `{}`", known.join("`, `"));
        Err(ApiError {
            param: Some("model".to_owned()),
            ..ApiError::new(Kind::NotFound, message).with_code("model_not_found")
        })
    }

    /// Takes note of a request to whoever the policy says, where it is of a kind that no target can be asked. It is recorded when what
    /// this gives is dropped.
    pub(super) fn keeps(&self, name: &str) -> Option<Kept> {
        let router = self.options.router.as_ref()?;
        self.asks_policy(name).then(|| router.keep_here(&[]))
    }

    /// Whether a name asks whoever the policy says.
    pub(super) fn asks_policy(&self, name: &str) -> bool {
        self.options.router.is_some() && plain(name) == AUTO && self.models.index(name).is_err()
    }

    /// The name of the model on this machine that a name means, where nothing but it can be meant.
    pub(super) fn here<'a>(&self, name: &'a str) -> &'a str {
        match self.options.router.is_some() && self.models.index(name).is_err() && [LOCAL, AUTO].contains(&plain(name))
        {
            true => "",
            false => name,
        }
    }

    /// The name of the model on this machine for what no target is asked for; `what` says what that is.
    ///
    /// # Errors
    /// The name of a target.
    pub(super) fn only_here<'a>(&self, name: &'a str, what: &str) -> Result<&'a str, ApiError> {
        let here = self.here(name);
        let targets = self.options.router.as_ref().map(|router| &router.policy().targets);
        let target = plain(name)
            .strip_prefix(CLOUD)
            .filter(|target| targets.is_some_and(|targets| targets.contains_key(*target)));
        match target.filter(|_| self.models.index(name).is_err()) {
            None => Ok(here),
            Some(target) => {
                let message = format!(
                    "{what} by models on this machine only, and no target is asked for it; found `{CLOUD}{target}`, expected `{LOCAL}`, \
                     `{AUTO}` or the name of a model here"
                );
                Err(ApiError::field("model", message).with_code("local_only"))
            }
        }
    }

    /// What an answer of a model of this server tells, where there is a policy: `kept` is what [`Self::keeps`] gave.
    pub(super) fn told_here(&self, kept: Option<&Kept>, begun: Instant) -> Option<Facts> {
        self.options.router.as_ref()?;
        let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let outcome = match kept {
            Some(kept) => kept.answered().outcome,
            None => Outcome::here(Reason::Named, ms),
        };
        Some(Facts::here(outcome, true))
    }

    /// What can be asked for, as `/v1/models` lists it.
    pub(super) fn cards(&self) -> Vec<ModelCard> {
        let mut cards: Vec<ModelCard> = self.models.known().into_iter().map(|known| known.card).collect();
        let mut writers = cards
            .iter()
            .filter(|card| card.model_type.is_none_or(|kind| kind == Does::Writes.word()));
        if let (Some(router), Some(first)) = (&self.options.router, writers.next().cloned()) {
            let named = |id: String| ModelCard { id, ..first.clone() };
            cards.extend([LOCAL, AUTO].map(|id| named(id.to_owned())));
            let target = |name: &String| ModelCard {
                context_tokens: None,
                loaded: false,
                sees: Some(false),
                watches: Some(false),
                hears: Some(false),
                ..named(format!("{CLOUD}{name}"))
            };
            let answers = router.policy().targets.iter().filter(|(_, target)| !target.hears());
            cards.extend(answers.map(|(name, _)| target(name)));
        }
        cards
    }
}

/// A name without what Ollama's clients put behind one.
fn plain(name: &str) -> &str {
    name.strip_suffix(":latest").unwrap_or(name)
}

/// What a client calls who answers: `local` or `cloud:NAME`.
pub(super) fn side_name(side: Side, target: Option<&str>) -> String {
    match (side, target) {
        (Side::Cloud, Some(target)) => format!("{CLOUD}{target}"),
        (Side::Cloud, None) => "cloud".to_owned(),
        (Side::Local, _) => LOCAL.to_owned(),
    }
}

/// The headers of answers that say who gave them, why and at what cost.
pub(super) const TOLD: [&str; 8] = [
    "x-cactus-route",
    "x-cactus-reason",
    "x-cactus-confidence",
    "x-cactus-error-bound",
    "x-cactus-consent-needed",
    "x-cactus-cost-usd",
    "x-cactus-time-to-first-token-ms",
    "x-cactus-total-time-ms",
];
/// The fields of what is told that are in these headers, after the first; those from [`AT_END`] on where the answer is whole.
const FIELDS: [&str; 7] = [
    "reason",
    "confidence",
    "error_bound",
    "consent_needed",
    "cost_usd",
    "time_to_first_token_ms",
    "total_time_ms",
];
const AT_END: usize = 4;

/// What is known of an answer, for headers and for the beginning and end of the answer.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The model's name by which who answered can be asked again; empty where nobody has answered yet.
    route: String,
    /// What the answer says, in the words of `cactus run --json`.
    told: Map<String, Value>,
    /// The answer is whole.
    ended: bool,
}

impl Facts {
    /// Of an answer by the router.
    pub(super) fn of(routed: &Routed) -> Facts {
        let source = routed.source();
        let ended = routed.answered().map(Answered::to_json);
        let so_far = || routed.standing().map(Standing::to_json);
        let is_ended = ended.is_some();
        let mut told = ended.or_else(so_far).unwrap_or_default();
        let mut set = |name: &str, value: Value| drop(told.insert(name.to_owned(), value));
        if let Some(notes) = routed
            .answered()
            .map(|answered| &answered.notes)
            .filter(|notes| !notes.is_empty())
        {
            set("notes", json!(notes));
        }
        if let Some(question) = routed.question() {
            set("consent_needed", question.to_json());
        }
        Facts {
            route: source.map_or_else(String::new, |(side, target)| side_name(side, target)),
            told,
            ended: is_ended,
        }
    }

    /// Of a transcript that was heard again.
    pub(super) fn of_hearing(heard: &Heard) -> Facts {
        let Heard { answered, question, .. } = heard;
        let mut told = answered.to_json();
        if !answered.notes.is_empty() {
            told.insert("notes".to_owned(), json!(answered.notes));
        }
        if let Some(question) = question {
            told.insert("consent_needed".to_owned(), question.to_json());
        }
        let side = answered.outcome.answered_by.unwrap_or(Side::Local);
        Facts {
            route: side_name(side, answered.target.as_deref()),
            told,
            ended: true,
        }
    }

    /// Of an answer by a model of this server that is not the router's. `ended`: it is whole.
    pub(super) fn here(outcome: Outcome, ended: bool) -> Facts {
        Facts {
            route: LOCAL.to_owned(),
            told: Answered::here(outcome).to_json(),
            ended,
        }
    }

    /// Of an error after a decision.
    pub(super) fn of_error(told: &Map<String, Value>) -> Facts {
        Facts {
            route: String::new(),
            told: told.clone(),
            ended: true,
        }
    }

    /// Puts what is known into headers.
    pub(super) fn into_headers(self, headers: &mut HeaderMap) {
        let mut set = |name: &'static str, text: &str| {
            // Names of targets are letters, digits and dashes.
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        let [route, rest @ ..] = TOLD;
        if !self.route.is_empty() {
            set(route, &self.route);
        }
        let known = if self.ended { FIELDS.len() } else { AT_END };
        for (name, header) in FIELDS.into_iter().zip(rest).take(known) {
            match self.told.get(name) {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) => set(header, text),
                Some(other) => set(header, &other.to_string()),
            }
        }
    }

    /// Puts them into a whole answer, and why and for how much into its usage, too, where programs add it up.
    pub(super) fn into_answer(self, answer: &mut Value) {
        if let Some(Value::Object(usage)) = answer.get_mut("usage").filter(|_| self.ended) {
            for name in ["reason", "cost_usd"] {
                usage.extend(self.told.get(name).map(|value| (name.to_owned(), value.clone())));
            }
        }
        answer["cactus"] = Value::Object(self.told);
    }

    /// Puts them into the first of the frames that begin a stream.
    pub(super) fn into_beginning(self, frames: &mut [Frame]) {
        self.into_one_of(frames.iter_mut());
    }

    /// Puts them into the last of the frames that end a stream that clients read: the one with the usage or the reason of the end.
    pub(super) fn into_end(self, frames: &mut [Frame]) {
        self.into_one_of(frames.iter_mut().rev());
    }

    /// Puts them into the first of these frames that has a place for them.
    fn into_one_of<'a>(self, frames: impl Iterator<Item = &'a mut Frame>) {
        for frame in frames {
            let Ok(mut data @ Value::Object(_)) = serde_json::from_str(&frame.data) else {
                continue;
            };
            if data.get("type").is_some_and(|kind| kind == "message_stop") {
                continue;
            }
            match data.get_mut("response").filter(|inside| inside.is_object()) {
                Some(response) => self.into_answer(response),
                None => self.into_answer(&mut data),
            }
            frame.data = data.to_string();
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cactus_router::Question;
    use std::collections::BTreeSet;

    fn document() -> Value {
        serde_json::from_str(super::super::OPENAPI).unwrap()
    }

    /// The keys of an object in the document.
    fn keys(pointer: &str) -> BTreeSet<String> {
        let document = document();
        let found = document.pointer(pointer).unwrap_or_else(|| panic!("{pointer}"));
        found.as_object().unwrap().keys().cloned().collect()
    }

    fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
        names.into_iter().map(str::to_owned).collect()
    }

    fn told() -> Vec<String> {
        let outcome = Outcome::here(Reason::Named, 1);
        Answered::here(outcome).to_json().keys().cloned().collect()
    }

    #[test]
    fn openapi_has_the_headers_and_fields_of_answers_under_a_policy() {
        assert_eq!(keys("/components/headers"), of(TOLD));
        let errors = of(TOLD.into_iter().skip(1));
        assert_eq!(keys("/components/responses/Error/headers"), errors);
        let document = document();
        let parameters = document["components"]["parameters"].as_object().unwrap();
        let parameters = parameters.values().map(|one| one["name"].as_str().unwrap());
        assert_eq!(of(parameters), of([CONSENT, CONSENT_TO, EVENTS]));

        let told = told();
        let fields = || told.iter().map(String::as_str);
        assert_eq!(
            keys("/components/schemas/Decision/properties"),
            of(fields().chain(["notes", "consent_needed"]))
        );
        assert!(
            FIELDS
                .iter()
                .all(|field| *field == "consent_needed" || fields().any(|told| told == *field))
        );
        assert_eq!(
            keys("/components/schemas/Replaced/properties/cactus/properties"),
            of(fields().chain(["event"]))
        );
        let void = Standing {
            outcome: Outcome::here(Reason::CloudFailed, 1),
            target: None,
        };
        let frame: Value = serde_json::from_str(&replaced(&void).data).unwrap();
        let sent = frame.as_object().unwrap().keys().map(String::as_str);
        assert_eq!(keys("/components/schemas/Replaced/properties"), of(sent));
        let question = Question {
            classes: vec![Class::Text],
            target: String::new(),
            host: String::new(),
            most: String::new(),
            reason: Reason::Always,
            confidence: None,
        };
        let asked = question.to_json();
        let asked = asked.as_object().unwrap().keys().map(String::as_str);
        assert_eq!(keys("/components/schemas/Question/properties"), of(asked));
        let facts = Facts::here(Outcome::here(Reason::Named, 1), true);
        let mut answer = json!({"usage": {}});
        facts.into_answer(&mut answer);
        let spent = answer["usage"].as_object().unwrap().keys().map(String::as_str);
        assert_eq!(keys("/components/schemas/Spent/properties"), of(spent));
    }

    #[test]
    fn openapi_has_them_with_every_route_that_has_them() {
        let routed = [
            "/v1/chat/completions",
            "/v1/responses",
            "/v1/messages",
            "/api/chat",
            "/api/generate",
        ];
        let told = ["/v1/completions", "/v1/decisions", "/v1/audio/transcriptions"];
        let document = document();
        for (path, methods) in document["paths"].as_object().unwrap() {
            let operation = &methods["post"];
            let headers = operation.pointer("/responses/200/headers").and_then(Value::as_object);
            let tells = routed.contains(&path.as_str()) || told.contains(&path.as_str());
            assert_eq!(
                headers.map(|headers| headers.keys().cloned().collect()),
                tells.then(|| of(TOLD)),
                "{path}"
            );
            let asked: Vec<&str> = operation["parameters"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|one| one["$ref"].as_str()?.strip_prefix("#/components/parameters/"))
                .collect();
            let expected: &[&str] = match path.as_str() {
                path if routed.contains(&path) => &["Consent", "ConsentTo", "Events"],
                "/v1/audio/transcriptions" => &["Consent", "ConsentTo"],
                _ => &[],
            };
            assert_eq!(asked, expected, "{path}");
            let body = operation.pointer("/responses/200/content/application~1json/schema/properties/cactus/$ref");
            assert_eq!(body.is_some(), tells, "{path}");
        }
        // Each reference has what it refers to.
        let mut left = vec![&document];
        while let Some(value) = left.pop() {
            if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
                let pointer = reference.strip_prefix('#').unwrap_or(reference);
                assert!(document.pointer(pointer).is_some(), "{reference}");
            }
            match value {
                Value::Object(fields) => left.extend(fields.values()),
                Value::Array(items) => left.extend(items),
                _ => {}
            }
        }
    }
}
