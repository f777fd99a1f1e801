//! Policies, with a tiny model and a target on a real connection.

mod support;

use cactus::cloud::{
    Answered, AnsweredBy, AskOptions, Class, Event, Handoff, Policy, PolicyOptions, Question, Reason, SecretString,
};
use cactus::{ChatRequest, ErrorKind, FinishReason, GenerateOptions, LoadOptions, Model, Scheduler, SchedulerLimits};
use cactus_passes::Bits;
use cactus_testkit::http::{Server, chat_stream, json_answer};
use serde_json::json;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use support::bundle;

fn scheduler() -> &'static Arc<Scheduler> {
    static MADE: OnceLock<(tempfile::TempDir, Arc<Scheduler>)> = OnceLock::new();
    let (_, scheduler) = MADE.get_or_init(|| {
        let (folder, path) = bundle("models/qwen2_tied");
        let model = Model::load(&path, &LoadOptions::default()).unwrap();
        (folder, Scheduler::new(model, SchedulerLimits::default()).unwrap())
    });
    scheduler
}

/// A target that says "from afar".
fn afar() -> Server {
    Server::of(vec![chat_stream(&[json!({"content": "from afar"})], true)])
}

/// Everything goes to a target; a dollar for a million tokens.
fn options(target: &Server, text: &str, state: &Path) -> PolicyOptions {
    let toml = format!(
        "version = 1\nhandoff = \"always\"\n[consent]\ntext = \"{text}\"\n[targets.t]\nprotocol = \"openai_chat\"\n\
         base_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\nmax_output_tokens = 100\n\
         input_usd_per_million = 1\noutput_usd_per_million = 1\n",
        target.port()
    );
    PolicyOptions {
        toml: Some(toml),
        target: Some("t".to_owned()),
        state: Some(state.to_path_buf()),
        ..PolicyOptions::default()
    }
}

fn request() -> ChatRequest {
    ChatRequest {
        messages: vec![json!({"role": "user", "content": "hello"})],
        ..ChatRequest::default()
    }
}

fn short() -> GenerateOptions {
    GenerateOptions {
        max_tokens: 5,
        ..GenerateOptions::default()
    }
}

/// The end of an answer, its text as it came, and what was asked meanwhile.
fn ask(policy: &Policy, how: &AskOptions, yes: Option<bool>) -> (Answered, String, Vec<Question>) {
    let mut answering = policy.ask(&request(), short(), how).unwrap();
    let (mut text, mut asked, mut ended) = (String::new(), Vec::new(), None);
    while let Some(event) = answering.next() {
        assert!(ended.is_none(), "nothing follows the end: {event:?}");
        match event {
            Event::Consent(question) => {
                asked.push(question);
                if let Some(yes) = yes {
                    answering.consent(yes);
                }
            }
            Event::Added(added) => text.push_str(added.text()),
            Event::Replaced(_) => text.clear(),
            Event::End(answered) => ended = Some(*answered.unwrap()),
            _ => {}
        }
    }
    assert!(answering.next().is_none());
    (ended.expect("an end"), text, asked)
}

fn kind<T>(result: cactus::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

#[test]
fn a_target_answers_and_the_route_says_who_why_and_for_how_much() {
    let (target, state) = (afar(), tempfile::tempdir().unwrap());
    let policy = Policy::new(scheduler(), &options(&target, "always", state.path())).unwrap();
    let (answered, text, asked) = ask(&policy, &AskOptions::default(), None);
    assert_eq!((text.as_str(), asked.len()), ("from afar", 0));
    assert_eq!(answered.answer.message.text, "from afar");
    assert_eq!(answered.answer.completion.finish_reason, FinishReason::Stop);
    let route = answered.route;
    assert_eq!(route.answered_by, Some(AnsweredBy::Target("t".to_owned())));
    assert_eq!((route.reason, route.attempts), (Reason::Always, 1));
    assert!(route.cost_usd > 0.0 && route.cost_is_exact);

    let never = AskOptions {
        handoff: Some(Handoff::Never),
        ..AskOptions::default()
    };
    let (answered, text, _) = ask(&policy, &never, None);
    assert_eq!(answered.route.answered_by, Some(AnsweredBy::Here));
    assert_eq!((answered.answer.completion.decode_tokens, target.asked()), (5, 1));
    assert_eq!(answered.answer.message.text, text);
}

#[test]
fn a_person_is_asked_before_anything_leaves() {
    let (target, state) = (afar(), tempfile::tempdir().unwrap());
    let policy = Policy::new(scheduler(), &options(&target, "ask", state.path())).unwrap();
    for (yes, reason) in [(Some(false), Reason::DeniedByPerson), (None, Reason::NobodyToAsk)] {
        let (answered, _, asked) = ask(&policy, &AskOptions::default(), yes);
        assert_eq!((answered.route.reason, target.asked()), (reason, 0));
        assert_eq!(answered.route.answered_by, Some(AnsweredBy::Here));
        assert_eq!(answered.route.wanted, Some(Reason::Always));
        assert_eq!(
            (asked[0].target.as_str(), &asked[0].classes[..]),
            ("t", &[Class::Text][..])
        );
        assert_eq!(asked[0].host, format!("127.0.0.1:{}", target.port()));
    }
    let (answered, text, asked) = ask(&policy, &AskOptions::default(), Some(true));
    assert_eq!((text.as_str(), asked.len(), target.asked()), ("from afar", 1, 1));
    assert_eq!(answered.route.answered_by, Some(AnsweredBy::Target("t".to_owned())));

    let allowed = PolicyOptions {
        consent: vec![Class::Text],
        ..options(&target, "ask", state.path())
    };
    let policy = Policy::new(scheduler(), &allowed).unwrap();
    assert_eq!(ask(&policy, &AskOptions::default(), None).2.len(), 0);
}

#[test]
fn a_target_that_fails_leaves_the_answer_to_this_machine() {
    let target = Server::of(vec![json_answer("400 Bad Request", &json!({}))]);
    let state = tempfile::tempdir().unwrap();
    let policy = Policy::new(scheduler(), &options(&target, "always", state.path())).unwrap();
    let (answered, text, _) = ask(&policy, &AskOptions::default(), None);
    assert_eq!(
        (answered.route.answered_by, answered.route.reason),
        (Some(AnsweredBy::Here), Reason::CloudFailed)
    );
    assert_eq!(answered.answer.message.text, text);
    assert!(!answered.answer.notes.is_empty());
}

#[test]
fn a_key_goes_to_its_target() {
    let (target, state) = (afar(), tempfile::tempdir().unwrap());
    let with_key = PolicyOptions {
        key: Some(SecretString::from("sk-own".to_owned())),
        ..options(&target, "always", state.path())
    };
    let policy = Policy::new(scheduler(), &with_key).unwrap();
    assert!(!format!("{policy:?}").contains("sk-own"));
    ask(&policy, &AskOptions::default(), None);
    assert!(
        target.requests()[0]
            .to_ascii_lowercase()
            .contains("authorization: bearer sk-own")
    );
}

#[test]
fn an_answer_can_be_stopped_from_any_thread() {
    let state = tempfile::tempdir().unwrap();
    let here = PolicyOptions {
        handoff: Some(Handoff::Never),
        state: Some(state.path().to_path_buf()),
        ..PolicyOptions::default()
    };
    let policy = Policy::new(scheduler(), &here).unwrap();
    let long = GenerateOptions {
        max_tokens: 100_000,
        ignore_eos: true,
        ..GenerateOptions::default()
    };
    let mut answering = policy.ask(&request(), long.clone(), &AskOptions::default()).unwrap();
    let mut end = None;
    for event in &mut answering.by_ref().take(3) {
        assert!(!matches!(event, Event::End(_)), "{event:?}");
    }
    let canceller = answering.canceller();
    std::thread::spawn(move || canceller.cancel()).join().unwrap();
    for event in answering {
        end = Some(event);
    }
    let Some(Event::End(Ok(answered))) = end else {
        panic!("{end:?}");
    };
    assert_eq!(answered.answer.completion.finish_reason, FinishReason::Cancelled);
    assert_eq!(answered.route.reason, Reason::Cancelled);

    // One that is left before its end is stopped, too.
    drop(policy.ask(&request(), long, &AskOptions::default()).unwrap());
}

#[test]
fn what_is_wrong_with_a_policy_or_a_request_is_said_at_once() {
    let (target, state) = (afar(), tempfile::tempdir().unwrap());
    let new = |options: PolicyOptions| Policy::new(scheduler(), &options);
    let good = || options(&target, "always", state.path());
    for wrong in [
        PolicyOptions {
            toml: Some("version = 1\nhandof = 1".to_owned()),
            ..good()
        },
        PolicyOptions {
            target: Some("nobody".to_owned()),
            ..good()
        },
        PolicyOptions {
            budget: Some("much".to_owned()),
            ..good()
        },
    ] {
        assert_eq!(kind(new(wrong)), ErrorKind::Argument);
    }
    let policy = new(good()).unwrap();
    let with_logprobs = GenerateOptions {
        logprobs: Some(1),
        ..short()
    };
    assert_eq!(
        kind(policy.ask(&request(), with_logprobs, &AskOptions::default())),
        ErrorKind::Argument
    );
    let empty = ChatRequest::default();
    assert_eq!(
        kind(policy.ask(&empty, short(), &AskOptions::default())),
        ErrorKind::Argument
    );
    assert_eq!(target.asked(), 0);
}

#[cfg(feature = "speech")]
#[test]
fn a_target_hears_again_what_is_doubtful_of_a_recording() {
    use cactus::cloud::{Permission, RecordingPolicy, Stop};
    use cactus::speech::{Sound, TranscribeOptions, Transcriber};
    // In 16 bits: what random weights write hangs on the last bit, and this needs words.
    let (_folder, path) = support::bundle_of("speech/whisper", Bits::Sixteen);
    let transcriber = Transcriber::load(&path, Some(1)).unwrap();
    // A tone that rises for four seconds.
    let pcm: Vec<i16> = (0..64_000)
        .map(|i| (16_000.0 * (f64::from(i) * f64::from(i) * 1e-5).sin()) as i16)
        .collect();
    let words = TranscribeOptions {
        words: true,
        ..TranscribeOptions::default()
    };
    let ours = transcriber.transcribe(Sound::Pcm(&pcm), &words).unwrap();
    // As many words as there are here, and as long.
    let theirs: Vec<String> = ours
        .text()
        .split_whitespace()
        .map(|word| "x".repeat(word.chars().count()))
        .collect();
    let near = Server::of(vec![json_answer("200 OK", &json!({"text": theirs.join(" ")}))]);
    let state = tempfile::tempdir().unwrap();
    let toml = format!(
        "version = 1\nhandoff = \"always\"\n[routing]\nretries = 0\n[budget]\nrequest_usd = 1\n[consent]\naudio = \"ask\"\n[targets.near]\n\
         protocol = \"openai_transcriptions\"\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\nusd_per_minute = 0.6\n",
        near.port()
    );
    let hears = PolicyOptions {
        toml: Some(toml),
        state: Some(state.path().to_path_buf()),
        ..PolicyOptions::default()
    };
    let policy = RecordingPolicy::new(&hears).unwrap();
    let hear = |says: Permission| {
        let mut person = |question: &Question| {
            assert_eq!(
                (question.target.as_str(), &question.classes[..]),
                ("near", &[Class::Audio][..])
            );
            says
        };
        policy
            .hear_again(Sound::Pcm(&pcm), &ours, &mut person, &Stop::default())
            .unwrap()
    };
    let kept = hear(Permission::No);
    assert_eq!((kept.transcript.text(), near.asked()), (ours.text(), 0));
    assert!(kept.by_target.iter().all(Option::is_none));
    assert_eq!(kept.route.reason, Reason::DeniedByPerson);
    let found = hear(Permission::Yes);
    assert!(near.asked() > 0 && found.sent_s > 3.0, "{found:?}");
    assert_eq!(found.route.answered_by, Some(AnsweredBy::Target("near".to_owned())));
    assert_eq!(found.by_target.len(), found.transcript.segments.len());
    assert!(found.by_target.iter().any(|target| target.as_deref() == Some("near")));
    assert!(found.transcript.text().contains("xx"));

    let writes = RecordingPolicy::new(&options(&near, "always", state.path())).unwrap_err();
    assert_eq!(writes.kind(), ErrorKind::Argument);
    assert!(writes.to_string().contains("does not write down speech"), "{writes}");
}
