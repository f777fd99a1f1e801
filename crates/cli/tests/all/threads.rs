//! Counts of threads: every sensible one gives the same answer, and others are errors that say what is expected.

use crate::support;
use cactus_engine::{CancelToken, ErrorKind, GenerateOptions, LoadOptions, Model};

#[test]
fn any_count_of_threads_gives_one_answer_or_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = support::bundle("llama", dir.path());
    let load = |threads, decode_threads| {
        let options = LoadOptions {
            context_tokens: 128,
            threads: Some(threads),
            decode_threads,
            ..LoadOptions::default()
        };
        Model::load(&path, &options)
    };
    let answer = |threads, decode_threads| {
        let model = load(threads, decode_threads).unwrap();
        assert_eq!(model.threads(), threads);
        assert_eq!(model.decode_threads(), decode_threads.unwrap_or(threads));
        let options = GenerateOptions {
            max_tokens: 20,
            ignore_eos: true,
            ..GenerateOptions::default()
        };
        let mut session = model.session().unwrap();
        let completion = session.generate(&[3, 10, 17, 4], &options, &CancelToken::new(), &mut |_| {});
        completion.unwrap().completion_token_ids
    };
    let one = answer(1, None);
    for (threads, decode_threads) in [(1, Some(4)), (4, Some(1)), (3, None), (40, Some(41))] {
        assert_eq!(answer(threads, decode_threads), one, "{threads} {decode_threads:?}");
    }
    for (threads, decode_threads) in [(0, None), (10_000, None), (1, Some(0)), (1, Some(10_000))] {
        let error = load(threads, decode_threads).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert!(error.to_string().contains("expected 1 to 1024"), "{error}");
    }
}

#[test]
fn profile_counts_runs_on_several_threads() {
    let dir = tempfile::tempdir().unwrap();
    let path = support::bundle("llama", dir.path());
    let runs = |threads| {
        let options = LoadOptions {
            context_tokens: 128,
            threads: Some(threads),
            ..LoadOptions::default()
        };
        let model = Model::load(&path, &options).unwrap();
        let mut session = model.session().unwrap();
        let prompt: Vec<u32> = (0..120).map(|i| i % 50).collect();
        session.compute(&prompt, &CancelToken::new()).unwrap();
        assert!(session.execution().profile().is_none());
        session.execution().set_profiling(true);
        session.reset();
        session.compute(&prompt, &CancelToken::new()).unwrap();
        session.execution().profile().unwrap().joins().count()
    };
    assert_eq!(runs(1), 0);
    assert!(runs(2) > 0);
}
