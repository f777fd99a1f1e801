//! Figures for Prometheus. Labels are routes, statuses and models of this server, never anything that a client wrote.

use super::App;
use crate::protocol::Event;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

type Labels = Vec<(&'static str, String)>;
type Times = Family<Labels, Histogram, fn() -> Histogram>;

#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<Labels, Counter>,
    first_token: Times,
    gap: Times,
    transcription: Times,
    audio: Family<Labels, Counter<f64, AtomicU64>>,
    loaded: Family<Labels, Gauge>,
    of_models: Vec<Family<Labels, Gauge>>,
}

/// Gauges of a model: name and help.
const OF_MODELS: [(&str, &str); 12] = [
    ("requests_running", "Requests that are computed"),
    ("requests_waiting", "Requests that wait to be computed"),
    ("kv_tokens_capacity", "Tokens whose keys and values can be kept"),
    ("kv_tokens_used", "Tokens whose keys and values are kept"),
    (
        "prompt_tokens",
        "Prompt tokens since the model was loaded, cached ones included",
    ),
    (
        "prompt_tokens_cached",
        "Prompt tokens found in the prefix cache since the model was loaded",
    ),
    ("generated_tokens", "Tokens generated since the model was loaded"),
    ("passes", "Passes computed since the model was loaded"),
    (
        "preemptions",
        "Requests put back for want of memory since the model was loaded",
    ),
    (
        "grammars_compiled",
        "Schemas, grammars and sets of tools compiled since the model was loaded",
    ),
    (
        "grammars_reused",
        "Schemas, grammars and sets of tools of earlier requests used again since the model was loaded",
    ),
    (
        "model_memory_bytes",
        "Memory of the model: weights, activations, keys and values",
    ),
];

/// From a millisecond to four minutes.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 18))
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::with_prefix("cactus");
        let requests = Family::default();
        registry.register("http_requests", "Requests by route and status", requests.clone());
        let first_token: Times = Family::new_with_constructor(seconds);
        let help = "Time until the prompt of an answer was computed";
        registry.register_with_unit("time_to_first_token", help, Unit::Seconds, first_token.clone());
        let gap: Times = Family::new_with_constructor(seconds);
        let help = "Time between pieces of an answer";
        registry.register_with_unit("time_between_pieces", help, Unit::Seconds, gap.clone());
        let transcription: Times = Family::new_with_constructor(seconds);
        let help = "Time to transcribe a recording, from when it was received";
        registry.register_with_unit("transcription", help, Unit::Seconds, transcription.clone());
        let audio = Family::default();
        let help = "Length of the recordings that were transcribed";
        registry.register_with_unit("audio", help, Unit::Seconds, audio.clone());
        let loaded = Family::default();
        registry.register("model_loaded", "Whether the model is loaded", loaded.clone());
        let of_models = OF_MODELS.map(|(name, help)| {
            let family = Family::default();
            registry.register(name, help, family.clone());
            family
        });
        Self {
            registry,
            requests,
            first_token,
            gap,
            transcription,
            audio,
            loaded,
            of_models: of_models.into(),
        }
    }

    pub(super) fn count_request(&self, route: &str, status: u16) {
        let labels = vec![("route", route.to_owned()), ("status", status.to_string())];
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts a recording that was transcribed.
    pub(super) fn transcribed(&self, model: &str, seconds: f64, took: Duration) {
        let labels = vec![("model", model.to_owned())];
        self.audio.get_or_create(&labels).inc_by(seconds);
        self.transcription.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Watches an answer of a model.
    pub(super) fn watch(&self, model: &str) -> Watch {
        let labels = vec![("model", model.to_owned())];
        Watch {
            first_token: self.first_token.get_or_create(&labels).clone(),
            gap: self.gap.get_or_create(&labels).clone(),
            last: Instant::now(),
        }
    }
}

/// Measures one answer.
#[derive(Debug)]
pub(super) struct Watch {
    first_token: Histogram,
    gap: Histogram,
    last: Instant,
}

impl Watch {
    pub(super) fn saw(&mut self, event: &Event) {
        let histogram = match event {
            Event::Started { .. } => &self.first_token,
            Event::Delta(_) => &self.gap,
            _ => return,
        };
        let now = Instant::now();
        histogram.observe(now.duration_since(self.last).as_secs_f64());
        self.last = now;
    }
}

/// `GET /metrics`.
pub(super) async fn show(State(app): State<Arc<App>>) -> Response {
    let metrics = &app.metrics;
    for known in app.models.known() {
        let labels = vec![("model", known.card.id.clone())];
        let loaded = i64::from(known.card.loaded);
        metrics.loaded.get_or_create(&labels).set(loaded);
        let stats = known.stats.unwrap_or_default();
        let values = [
            known.busy.0 as u64,
            known.busy.1 as u64,
            stats.kv_tokens as u64,
            stats.kv_tokens_used as u64,
            stats.prompt_tokens,
            stats.cached_tokens,
            stats.generated_tokens,
            stats.passes,
            stats.preemptions,
            known.grammars.compiled,
            known.grammars.reused,
            known.bytes,
        ];
        for (family, value) in metrics.of_models.iter().zip(values) {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            family.get_or_create(&labels).set(value);
        }
    }
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, &metrics.registry);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}
