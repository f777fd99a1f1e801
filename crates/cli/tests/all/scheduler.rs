//! Many requests to one model: each has the answer that it would have alone, whatever else is computed, and nobody is kept
//! waiting by who has gone.

use crate::support;
use cactus_engine::choices::Choices;
use cactus_engine::scheduler::{Event, Priority, Request, SchedulerLimits, Sink};
use cactus_engine::{CancelToken, Completion, ErrorKind, FinishReason, GenerateOptions, LoadOptions, Model, Scheduler};
use cactus_testkit::Random;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

const CONTEXT: usize = 320;

fn model(case: &str, dir: &Path, threads: usize) -> Arc<Model> {
    model_of(case, dir, threads, CONTEXT)
}

fn model_of(case: &str, dir: &Path, threads: usize, context_tokens: usize) -> Arc<Model> {
    let load = LoadOptions {
        context_tokens,
        chunk_tokens: 48,
        threads: Some(threads),
        ..LoadOptions::default()
    };
    Model::load(&support::bundle(case, dir), &load).unwrap()
}

/// A prompt that often begins like others do.
fn prompt(random: &mut Random) -> Vec<u32> {
    let shared = [0, 70, 150, 200][random.below(4)];
    let own = 1 + random.below(90);
    let mut prompt: Vec<u32> = (0..shared).map(|i| 3 + (i * 7) % 41).collect();
    prompt.extend((0..own).map(|_| 3 + random.below(50) as u32));
    prompt
}

fn options(random: &mut Random) -> GenerateOptions {
    GenerateOptions {
        max_tokens: 1 + random.below(40),
        temperature: [0.0, 0.9][random.below(2)],
        top_k: [0, 12][random.below(2)],
        seed: Some(random.below(1000) as u64),
        repetition_penalty: [1.0, 1.2][random.below(2)],
        logprobs: [None, Some(2)][random.below(2)],
        prompt_lookup: [0, 0, 5][random.below(3)],
        ignore_eos: random.below(2) == 0,
        ..GenerateOptions::default()
    }
}

/// What a request came to, with its events in order checked.
struct Waiting(mpsc::Receiver<Event>);

impl Waiting {
    fn submit(scheduler: &Scheduler, request: Request) -> Waiting {
        let (sender, receiver) = mpsc::channel();
        let sink: Sink = Box::new(move |event| drop(sender.send(event)));
        scheduler.submit(request, sink).unwrap();
        Waiting(receiver)
    }

    fn end(self) -> cactus_engine::Result<Completion> {
        let (mut started, mut tokens, mut text) = (false, Vec::new(), String::new());
        let mut end = None;
        for event in self.0 {
            assert!(end.is_none(), "an event after the end");
            match event {
                Event::Started { .. } => {
                    assert!(!started);
                    started = true;
                }
                Event::Delta(piece) => {
                    assert!(started);
                    tokens.extend(piece.token);
                    text.push_str(&piece.text);
                }
                Event::End(result) => end = Some(result),
            }
        }
        let completion = end.expect("an end")?;
        assert_eq!(tokens, completion.completion_token_ids);
        assert_eq!(text, completion.response);
        Ok(completion)
    }
}

fn alone(model: &Arc<Model>, prompt: &[u32], options: &GenerateOptions) -> Completion {
    let mut session = model.session().unwrap();
    session
        .generate(prompt, options, &CancelToken::new(), &mut |_| {})
        .unwrap()
}

/// Loads `model` with requests at random, some of which are cancelled, and compares each answer with the one alone.
fn load(
    model: &Arc<Model>,
    limits: SchedulerLimits,
    requests: usize,
    seed: u64,
) -> cactus_engine::scheduler::SchedulerStats {
    let scheduler = Scheduler::new(Arc::clone(model), limits).unwrap();
    let mut random = Random::new(seed);
    let mut waiting = Vec::new();
    for i in 0..requests {
        let (prompt, options) = (prompt(&mut random), options(&mut random));
        let expected = alone(model, &prompt, &options);
        let mut request = Request::new(prompt, options);
        request.salt = random.below(2) as u64;
        request.priority = [Priority::Low, Priority::Normal, Priority::High][random.below(3)];
        let cancel = (random.below(6) == 0).then(|| request.cancel.clone());
        let answer = Waiting::submit(&scheduler, request);
        if random.below(8) == 0 {
            std::thread::sleep(Duration::from_millis(random.below(8) as u64));
        }
        if let Some(cancel) = &cancel {
            cancel.cancel();
        }
        waiting.push((i, answer, expected, cancel.is_some()));
    }
    for (i, answer, expected, cancelled) in waiting {
        let found = answer.end().unwrap();
        let said = &found.completion_token_ids;
        if found.finish_reason == FinishReason::Cancelled {
            assert!(cancelled, "request {i}");
            assert!(expected.completion_token_ids.starts_with(said), "request {i}");
            continue;
        }
        assert_eq!(*said, expected.completion_token_ids, "request {i}");
        assert_eq!(found.response, expected.response, "request {i}");
        assert_eq!(found.logprobs, expected.logprobs, "request {i}");
        assert_eq!(found.finish_reason, expected.finish_reason, "request {i}");
    }
    let stats = scheduler.stats();
    assert_eq!((stats.running, stats.waiting), (0, 0));
    assert_eq!(stats.finished + stats.cancelled, requests as u64);
    assert!(
        stats.kv_tokens_used <= stats.kv_tokens_cached.next_multiple_of(64) + 64 * 3 * 16,
        "{stats:?}"
    );
    stats
}

#[test]
fn every_answer_is_the_one_alone_under_any_load() {
    let folder = tempfile::tempdir().unwrap();
    for (case, threads) in [("llama", 3), ("qwen2", 1), ("gemma3_text", 2), ("lfm2", 2)] {
        let model = model(case, folder.path(), threads);
        let stats = load(&model, SchedulerLimits::default(), 60, threads as u64);
        assert!(stats.cached_tokens > 0, "{case}: {stats:?}");
        // Hardly any memory: requests are put back and computed again.
        let tight = SchedulerLimits {
            sequences: 6,
            kv_tokens: Some(CONTEXT + 64),
            gap: Duration::ZERO,
            ..SchedulerLimits::default()
        };
        load(&model, tight, 40, 7);
        let plain = SchedulerLimits {
            prefix_cache: false,
            ..tight
        };
        let stats = load(&model, plain, 20, 9);
        assert_eq!((stats.cached_tokens, stats.kv_tokens_used), (0, 0), "{case}");
    }
}

#[test]
fn requests_are_put_back_when_memory_runs_out_and_answered_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    // Room for two that are expected to say 256 tokens, and say more.
    let context = 640;
    let model = model_of("llama", folder.path(), 2, context);
    let limits = SchedulerLimits {
        sequences: 4,
        kv_tokens: Some(context),
        ..SchedulerLimits::default()
    };
    let scheduler = Scheduler::new(Arc::clone(&model), limits).unwrap();
    let options = GenerateOptions {
        max_tokens: 500,
        ignore_eos: true,
        ..GenerateOptions::default()
    };
    let prompts: Vec<Vec<u32>> = (0..4).map(|i| vec![5 + i, 9, 12]).collect();
    let answers: Vec<Waiting> = prompts
        .iter()
        .map(|prompt| Waiting::submit(&scheduler, Request::new(prompt.clone(), options.clone())))
        .collect();
    for (answer, prompt) in answers.into_iter().zip(&prompts) {
        let expected = alone(&model, prompt, &options);
        assert_eq!(
            answer.end().unwrap().completion_token_ids,
            expected.completion_token_ids
        );
    }
}

#[test]
fn equal_prompts_are_computed_once() {
    let folder = tempfile::tempdir().unwrap();
    for case in ["llama", "gemma3_text", "lfm2"] {
        let model = model(case, folder.path(), 2);
        let scheduler = Scheduler::new(Arc::clone(&model), SchedulerLimits::default()).unwrap();
        let prompt: Vec<u32> = (0..200).map(|i| 3 + (i * 5) % 47).collect();
        let options = GenerateOptions {
            max_tokens: 4,
            ignore_eos: true,
            ..GenerateOptions::default()
        };
        let all: Vec<Waiting> = (0..5)
            .map(|_| Waiting::submit(&scheduler, Request::new(prompt.clone(), options.clone())))
            .collect();
        let cached: Vec<usize> = all.into_iter().map(|w| w.end().unwrap().cached_tokens).collect();
        assert_eq!(cached.iter().filter(|&&n| n == 0).count(), 1, "{case}: {cached:?}");
        assert!(cached.iter().filter(|&&n| n >= 192).count() == 4, "{case}: {cached:?}");
    }
}

#[test]
fn prefixes_are_shared_within_a_salt_only() {
    let folder = tempfile::tempdir().unwrap();
    let model = model("llama", folder.path(), 1);
    let scheduler = Scheduler::new(Arc::clone(&model), SchedulerLimits::default()).unwrap();
    let prompt: Vec<u32> = (0..130).map(|i| 3 + i % 47).collect();
    let cached = |salt: u64| {
        let mut request = Request::new(
            prompt.clone(),
            GenerateOptions {
                max_tokens: 1,
                ..GenerateOptions::default()
            },
        );
        request.salt = salt;
        scheduler.generate(request, &mut |_| {}).unwrap().cached_tokens
    };
    assert_eq!([cached(1), cached(2), cached(1), cached(2)], [0, 0, 128, 128]);
}

#[test]
fn what_cannot_be_answered_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let model = model("llama", folder.path(), 1);
    let limits = SchedulerLimits {
        sequences: 1,
        queue: 2,
        ..SchedulerLimits::default()
    };
    let scheduler = Scheduler::new(Arc::clone(&model), limits).unwrap();
    let refused = |request: Request| scheduler.submit(request, Box::new(|_| {})).unwrap_err().kind();
    let plain = GenerateOptions::default;
    assert_eq!(refused(Request::new(vec![], plain())), ErrorKind::Argument);
    assert_eq!(refused(Request::new(vec![5; CONTEXT], plain())), ErrorKind::ContextFull);
    let wrong = GenerateOptions {
        temperature: -1.0,
        ..plain()
    };
    assert_eq!(refused(Request::new(vec![5], wrong)), ErrorKind::Argument);

    let long = GenerateOptions {
        max_tokens: 280,
        ignore_eos: true,
        ..plain()
    };
    let cancel = CancelToken::new();
    let mut first = Request::new(vec![5, 6], long.clone());
    first.cancel = cancel.clone();
    let mut answers = vec![Waiting::submit(&scheduler, first)];
    let mut busy = None;
    for _ in 0..200 {
        let mut request = Request::new(vec![7, 8], long.clone());
        request.cancel = cancel.clone();
        let (sender, receiver) = mpsc::channel();
        match scheduler.submit(request, Box::new(move |event| drop(sender.send(event)))) {
            Ok(()) => answers.push(Waiting(receiver)),
            Err(e) => {
                busy = Some(e);
                break;
            }
        }
    }
    let busy = busy.expect("a full queue");
    assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
    cancel.cancel();
    for answer in answers {
        answer.end().unwrap();
    }
    // There is room again.
    let answer = Waiting::submit(
        &scheduler,
        Request::new(
            vec![5],
            GenerateOptions {
                max_tokens: 2,
                ..plain()
            },
        ),
    );
    answer.end().unwrap();
}

#[test]
fn a_scheduler_that_goes_away_ends_what_is_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let model = model("llama", folder.path(), 1);
    let scheduler = Scheduler::new(Arc::clone(&model), SchedulerLimits::default()).unwrap();
    let long = GenerateOptions {
        max_tokens: 300,
        ignore_eos: true,
        ..GenerateOptions::default()
    };
    let answers: Vec<Waiting> = (0..40)
        .map(|i| Waiting::submit(&scheduler, Request::new(vec![5 + i % 7, 6], long.clone())))
        .collect();
    drop(scheduler);
    for answer in answers {
        answer.end().unwrap();
    }
}

#[test]
fn prompts_are_scored_as_alone_among_other_requests() {
    let folder = tempfile::tempdir().unwrap();
    for case in ["llama", "lfm2"] {
        let model = model(case, folder.path(), 2);
        let scheduler = Scheduler::new(Arc::clone(&model), SchedulerLimits::default()).unwrap();
        let prompt: Vec<u32> = (0..150).map(|i| 3 + (i * 5) % 47).collect();
        let options = GenerateOptions {
            max_tokens: 3,
            logprobs: Some(2),
            ..GenerateOptions::default()
        };
        let expected = model.session().unwrap().score(&prompt, 1).unwrap().token_logprobs;
        let others: Vec<Waiting> = (0..4)
            .map(|i| Waiting::submit(&scheduler, Request::new(prompt[..100 + i].to_vec(), options.clone())))
            .collect();
        // Twice: what is known of a prompt has no logits.
        for _ in 0..2 {
            let mut request = Request::new(prompt.clone(), options.clone());
            request.score_from = Some(1);
            let scored = scheduler.generate(request, &mut |_| {}).unwrap().prompt_logprobs;
            assert!(scored.iter().map(|t| t.token).eq(prompt[1..].iter().copied()), "{case}");
            assert!(
                scored.iter().all(|t| t.top.len() == 2 && t.top[0].logprob >= t.logprob),
                "{case}"
            );
            let far = scored
                .iter()
                .zip(&expected)
                .find(|(t, e)| (t.logprob - **e).abs() > 1e-9);
            assert!(far.is_none(), "{case}: {far:?}");
        }
        for other in others {
            other.end().unwrap();
        }
    }
}

#[test]
fn places_to_score_and_tokens_to_watch_that_there_are_not_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = model("llama", folder.path(), 1);
    let scheduler = Scheduler::new(Arc::clone(&model), SchedulerLimits::default()).unwrap();
    for (score_from, watch, expected) in [
        (Some(0), vec![], "from 1 to 3, found 0"),
        (Some(4), vec![], "from 1 to 3, found 4"),
        (None, vec![3, 1 << 30], "found 1073741824"),
    ] {
        let request = Request {
            score_from,
            watch,
            ..Request::new(vec![5, 6, 7], GenerateOptions::default())
        };
        let error = scheduler.submit(request, Box::new(|_| {})).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// The probability that a text begins with each answer and with no longer one, from whole sequences that are scored one by one.
fn naive(model: &Arc<Model>, prompt: &[u32], answers: &[Vec<u32>]) -> Vec<f64> {
    let begins: Vec<f64> = answers
        .iter()
        .map(|answer| {
            let tokens = [prompt, answer].concat();
            let score = model.session().unwrap().score(&tokens, prompt.len()).unwrap();
            score.logprob.exp()
        })
        .collect();
    let begin = |long: &[u32], short: &[u32]| long.len() > short.len() && long.starts_with(short);
    let exact = |i: usize| {
        let next = |j: &usize| {
            let between = |k: usize| begin(&answers[k], &answers[i]) && begin(&answers[*j], &answers[k]);
            begin(&answers[*j], &answers[i]) && !(0..answers.len()).any(between)
        };
        begins[i] - (0..answers.len()).filter(next).map(|j| begins[j]).sum::<f64>()
    };
    (0..answers.len()).map(exact).collect()
}

#[test]
fn choices_are_those_of_direct_scoring_with_the_same_bits_however_they_are_computed() {
    let folder = tempfile::tempdir().unwrap();
    for case in ["llama", "lfm2"] {
        let mut random = Random::new(11);
        let shared: Vec<u32> = (0..130).map(|i| 3 + (i * 5) % 47).collect();
        let asked: Vec<Choices> = (0..6)
            .map(|i| {
                let mut prompt = shared[..[130, 70][i % 2]].to_vec();
                prompt.extend((0..1 + random.below(40)).map(|_| 3 + random.below(50) as u32));
                let mut answers = vec![vec![4], vec![5, 6], vec![5, 6, 7, 8], vec![5], vec![9, 4]];
                answers.truncate([2, 5, 4][i % 3]);
                Choices::new(prompt, answers).unwrap()
            })
            .collect();
        let mut expected: Option<Vec<Vec<u64>>> = None;
        // Alone and in turn, then all at once in pieces of other sizes, among others, twice with what is known by then.
        for (threads, at_once, prefix_cache) in [(1, false, false), (2, true, true), (1, false, true)] {
            let model = model(case, folder.path(), threads);
            let limits = SchedulerLimits {
                prefix_cache,
                ..SchedulerLimits::default()
            };
            let scheduler = Scheduler::new(Arc::clone(&model), limits).unwrap();
            for _ in 0..2 {
                let mut others = Vec::new();
                if at_once {
                    let prompt = (0..3).map(|_| prompt(&mut random));
                    let request = |prompt| Request::new(prompt, options(&mut Random::new(3)));
                    others.extend(prompt.map(|prompt| Waiting::submit(&scheduler, request(prompt))));
                }
                let mut submitted = Vec::new();
                let mut completions: Vec<Vec<Completion>> = Vec::new();
                for choices in &asked {
                    let waiting = choices.requests().map(|request| Waiting::submit(&scheduler, request));
                    match at_once {
                        true => submitted.push(waiting.collect::<Vec<_>>()),
                        false => completions.push(waiting.map(|w| w.end().unwrap()).collect()),
                    }
                }
                let ended = submitted.into_iter();
                completions.extend(ended.map(|all| all.into_iter().map(|w| w.end().unwrap()).collect()));
                let found: Vec<Vec<f64>> = asked
                    .iter()
                    .zip(&completions)
                    .map(|(choices, completions)| choices.logprobs(completions).unwrap())
                    .collect();
                let bits = |p: &Vec<f64>| p.iter().map(|p| p.to_bits()).collect();
                let bits: Vec<Vec<u64>> = found.iter().map(bits).collect();
                let first = expected.get_or_insert_with(|| bits.clone());
                assert_eq!(*first, bits, "{case}, {threads} threads, prefix cache {prefix_cache}");
                for other in others {
                    other.end().unwrap();
                }
                if threads == 2 {
                    continue;
                }
                for (choices, found) in asked.iter().zip(&found) {
                    let expected = naive(&model, choices.prompt(), choices.answers());
                    for (found, expected) in found.iter().zip(&expected) {
                        assert!((found.exp() - expected).abs() < 1e-9, "{case}: {found} {expected}");
                    }
                    assert!(choices.logprobs(&completions[0][..0]).is_err());
                }
            }
        }
    }
}

#[test]
fn without_a_thread_whoever_waits_computes() {
    let folder = tempfile::tempdir().unwrap();
    let model = model("llama", folder.path(), 1);
    let options = |max_tokens| GenerateOptions {
        max_tokens,
        ignore_eos: true,
        ..GenerateOptions::default()
    };
    let scheduler = Scheduler::without_thread(Arc::clone(&model), SchedulerLimits::default()).unwrap();
    let submit = |request: Request| {
        let (sender, receiver) = mpsc::channel();
        let sink: Sink = Box::new(move |event| drop(sender.send(event)));
        scheduler.submit(request, sink).unwrap();
        receiver
    };
    let ended = |events: &mpsc::Receiver<Event>| loop {
        if let Some(Event::End(result)) = scheduler.receive(events).unwrap() {
            return result.unwrap();
        }
    };
    let [one, two] = [vec![5, 9, 12], vec![7, 3]];
    let [first, second] = [&one, &two].map(|prompt| alone(&model, prompt, &options(12)).completion_token_ids);
    let (one, two) = (
        submit(Request::new(one, options(12))),
        submit(Request::new(two, options(12))),
    );
    assert!(one.try_recv().is_err(), "something was computed before somebody waited");
    assert_eq!(ended(&one).completion_token_ids, first);
    // Passes are everybody's.
    assert_eq!(ended(&two).completion_token_ids, second);

    let endless = Request::new(vec![5, 9, 12], options(250));
    let cancel = endless.cancel.clone();
    let events = submit(endless);
    while !matches!(scheduler.receive(&events).unwrap(), Some(Event::Delta(_))) {}
    cancel.cancel();
    let last = scheduler.receive(&events).unwrap();
    assert!(
        matches!(&last, Some(Event::End(Ok(c))) if c.finish_reason == FinishReason::Cancelled),
        "{last:?}"
    );

    let left = submit(Request::new(vec![5, 9], options(250)));
    drop(scheduler);
    let all: Vec<Event> = left.try_iter().collect();
    assert!(
        matches!(&all[..], [Event::End(Ok(c))] if c.finish_reason == FinishReason::Cancelled),
        "{all:?}"
    );
}
