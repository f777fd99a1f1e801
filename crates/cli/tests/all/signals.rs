//! How sure a model was of its tokens: what the logits say, the same however the answer was made.

use crate::support;
use cactus_engine::scheduler::{Event, Request, SchedulerLimits};
use cactus_engine::speculate::PromptLookup;
use cactus_engine::{CancelToken, Completion, GenerateOptions, Guides, LoadOptions, Model, Scheduler, Signal};
use std::sync::Arc;
use std::sync::mpsc::channel;

fn alone(model: &Arc<Model>, options: &GenerateOptions, guides: Guides<'_>) -> (Completion, Vec<Signal>) {
    let prompt: Vec<u32> = (0..40).map(|i| 3 + (i * 7) % 11).collect();
    let mut signals = Vec::new();
    let mut session = model.session().unwrap();
    let completion = session
        .generate_with(&prompt, options, guides, &CancelToken::new(), &mut |delta| {
            signals.extend(delta.signal);
        })
        .unwrap();
    (completion, signals)
}

#[test]
fn signals_are_those_of_the_logits_however_the_answer_was_made() {
    let dir = tempfile::tempdir().unwrap();
    for (case, threads) in [("llama", 1), ("gemma3_text", 2)] {
        let load = LoadOptions {
            context_tokens: 256,
            threads: Some(threads),
            ..LoadOptions::default()
        };
        let model = Model::load(&support::bundle(case, dir.path()), &load).unwrap();
        for temperature in [0.0, 1.5] {
            let options = GenerateOptions {
                max_tokens: 40,
                ignore_eos: true,
                temperature,
                seed: Some(3),
                logprobs: Some(2),
                ..GenerateOptions::default()
            };
            let asked = || Guides {
                signals: true,
                ..Guides::default()
            };
            assert_eq!(alone(&model, &options, Guides::default()).1, [], "not asked for");
            let (completion, signals) = alone(&model, &options, asked());
            assert_eq!(signals.len(), 40, "{case}");
            for (signal, token) in signals.iter().zip(&completion.logprobs) {
                let [best, second] = [token.top[0].logprob, token.top[1].logprob];
                assert!((signal.logprob - token.logprob).abs() < 1e-4, "{signal:?} {token:?}");
                assert!((signal.margin - (best - second)).abs() < 1e-4, "{signal:?} {token:?}");
                assert!(
                    (signal.gap - (best - token.logprob)).abs() < 1e-4,
                    "{signal:?} {token:?}"
                );
                assert!((0.0..=(model.vocab_size() as f64).ln() + 1e-4).contains(&signal.entropy));
            }
            assert_eq!(signals.iter().all(|signal| signal.gap == 0.0), temperature == 0.0);

            let guessing = Guides {
                drafter: Some(&mut PromptLookup::default()),
                ..asked()
            };
            assert_eq!(alone(&model, &options, guessing).1, signals, "{case}");

            let scheduler = Scheduler::new(Arc::clone(&model), SchedulerLimits::default()).unwrap();
            let (sender, receiver) = channel();
            let request = Request {
                signals: true,
                ..Request::new((0..40).map(|i| 3 + (i * 7) % 11).collect(), options)
            };
            let sink = Box::new(move |event| drop(sender.send(event)));
            scheduler.submit(request, sink).unwrap();
            let told = receiver.iter().filter_map(|event| match event {
                Event::Delta(piece) => piece.signal,
                _ => None,
            });
            assert_eq!(told.collect::<Vec<_>>(), signals, "{case}");
        }
    }
}
