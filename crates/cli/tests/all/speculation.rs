//! Speculative decoding: the same answer as plain decoding, under every sampling option.

use crate::support;
use cactus_engine::speculate::{Drafter, ModelDrafter};
use cactus_engine::{CancelToken, Completion, GenerateOptions, Guides, LoadOptions, Model};
use std::path::Path;
use std::sync::Arc;

fn model(case: &str, dir: &Path) -> Arc<Model> {
    let load = LoadOptions {
        context_tokens: 256,
        threads: Some(2),
        ..LoadOptions::default()
    };
    Model::load(&support::bundle(case, dir), &load).unwrap()
}

fn answer(model: &Arc<Model>, options: &GenerateOptions, drafter: Option<&mut dyn Drafter>) -> Completion {
    let prompt: Vec<u32> = (0..40).map(|i| 3 + (i * 7) % 11).collect();
    let cancel = CancelToken::new();
    let mut session = model.session().unwrap();
    match drafter {
        None => session.generate(&prompt, options, &cancel, &mut |_| {}),
        drafter => {
            let guides = Guides {
                drafter,
                ..Guides::default()
            };
            session.generate_with(&prompt, options, guides, &cancel, &mut |_| {})
        }
    }
    .unwrap()
}

/// Guesses at random, so that nearly everything is wrong.
struct Wrong(u32);

impl Drafter for Wrong {
    fn draft(&mut self, _: &[u32], most: usize, out: &mut Vec<u32>) -> cactus_engine::Result<()> {
        for _ in 0..most {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            out.push((self.0 >> 16) % 64);
        }
        Ok(())
    }
}

#[test]
fn guesses_change_no_token() {
    let dir = tempfile::tempdir().unwrap();
    let mut drafted = 0;
    for case in ["llama", "qwen3", "gemma3_text", "lfm2"] {
        let model = model(case, dir.path());
        let greedy = GenerateOptions {
            max_tokens: 100,
            ignore_eos: true,
            ..GenerateOptions::default()
        };
        let drawn = GenerateOptions {
            temperature: 0.7,
            top_k: 20,
            seed: Some(11),
            repetition_penalty: 1.1,
            logprobs: Some(2),
            ..greedy.clone()
        };
        for options in [greedy, drawn] {
            let plain = answer(&model, &options, None);
            assert_eq!(
                (plain.drafted_tokens, plain.completion_token_ids.len()),
                (0, 100),
                "{case}"
            );
            for most in [1, 4, 15] {
                let options = GenerateOptions {
                    prompt_lookup: most,
                    ..options.clone()
                };
                let mut itself = ModelDrafter::new(&model, &model).unwrap();
                let answers = [
                    answer(&model, &options, None),
                    answer(&model, &options, Some(&mut Wrong(1))),
                    answer(&model, &options, Some(&mut itself)),
                ];
                for guessed in answers {
                    assert_eq!(
                        guessed.completion_token_ids, plain.completion_token_ids,
                        "{case} {most}"
                    );
                    assert_eq!(guessed.response, plain.response, "{case} {most}");
                    assert_eq!(guessed.logprobs, plain.logprobs, "{case} {most}");
                    assert!(guessed.accepted_tokens <= guessed.drafted_tokens);
                    drafted += guessed.drafted_tokens;
                    // Convolution states cannot go back, so such a model decodes plainly.
                    assert!(case != "lfm2" || guessed.drafted_tokens == 0);
                }
            }
        }
    }
    assert!(drafted > 1000, "nothing was guessed");
}

#[test]
fn a_model_that_guesses_for_itself_is_always_right() {
    let dir = tempfile::tempdir().unwrap();
    let model = model("llama", dir.path());
    let options = GenerateOptions {
        max_tokens: 60,
        ignore_eos: true,
        ..GenerateOptions::default()
    };
    let mut itself = ModelDrafter::new(&model, &model).unwrap();
    let guessed = answer(&model, &options, Some(&mut itself));
    // Its own end tokens are guessed and may not be drawn here; everything before the first is right.
    assert!(guessed.accepted_tokens > 0);
    assert!(
        guessed.accepted_tokens * 10 >= guessed.drafted_tokens * 9,
        "{guessed:?}"
    );
}

#[test]
fn a_full_context_ends_a_guessed_answer_where_it_ends_a_plain_one() {
    let dir = tempfile::tempdir().unwrap();
    let model = model("llama", dir.path());
    let options = |prompt_lookup| GenerateOptions {
        max_tokens: 500,
        ignore_eos: true,
        prompt_lookup,
        ..GenerateOptions::default()
    };
    let (plain, guessed) = (answer(&model, &options(0), None), answer(&model, &options(15), None));
    assert_eq!(plain.completion_token_ids, guessed.completion_token_ids);
    assert_eq!(plain.finish_reason, guessed.finish_reason);
    assert!(guessed.accepted_tokens > 0, "random weights repeat themselves");
}

#[test]
fn another_vocabulary_is_no_draft() {
    let dir = tempfile::tempdir().unwrap();
    let (target, draft) = (model("llama", dir.path()), model("gemma3_text", dir.path()));
    // 192 tokens and 128.
    let error = ModelDrafter::new(&draft, &target).unwrap_err();
    assert!(error.to_string().contains("vocabulary"), "{error}");
}
