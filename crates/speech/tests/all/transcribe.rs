//! Whole recordings: with a tiny model of random weights, whose words are nonsense that never changes, and with Whisper tiny.en
//! (`whisper-tiny.en` of `scripts/fetch_models.py`, where `CACTUS_TEST_MODELS` points to).
#![allow(clippy::print_stderr, reason = "a skipped test must be seen")]

use cactus_audio::decode::{Limits, load};
use cactus_bundle::Bundle;
use cactus_engine::CancelToken;
use cactus_import::{ConvertOptions, convert};
use cactus_passes::{Bits, Policy};
use cactus_speech::{ErrorKind, Result, TranscribeOptions, Transcriber, Transcript};
use std::fs::File;
use std::path::{Path, PathBuf};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn bundle(folder: &Path, source: &Path) -> PathBuf {
    let path = folder.join("m");
    convert(source, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
    path
}

fn tiny(folder: &Path) -> PathBuf {
    bundle(folder, &here("../../golden/speech/whisper"))
}

fn said(transcriber: &mut Transcriber, samples: &[f32], options: &TranscribeOptions) -> Result<Transcript> {
    transcriber.transcribe(samples, options, &CancelToken::new(), &mut |_| {})
}

/// A tone that rises, 16,000 samples a second.
fn sound(seconds: f64) -> Vec<f32> {
    let n = (seconds * 16_000.0) as usize;
    (0..n)
        .map(|i| (0.5 * (i as f64 * i as f64 * 1e-5).sin()) as f32)
        .collect()
}

#[test]
fn transcripts_are_the_same_with_any_number_of_threads_and_times_do_not_go_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = tiny(folder.path());
    // The window of this model is one second long.
    let samples = sound(4.5);
    let mut first = None;
    for threads in [1, 2, 3] {
        let mut transcriber = Transcriber::load(&path, Some(threads)).unwrap();
        let mut told = Vec::new();
        let options = TranscribeOptions {
            carry_tokens: 8,
            ..TranscribeOptions::default()
        };
        let found = transcriber
            .transcribe(&samples, &options, &CancelToken::new(), &mut |p| {
                told.push(p.done_s);
                assert_eq!(p.duration_s, 4.5);
            })
            .unwrap();
        assert!(
            told.windows(2).all(|w| w[0] < w[1]) && told.last() == Some(&4.5),
            "{told:?}"
        );
        let times = found.segments.iter().flat_map(|s| [s.start_s, s.end_s]);
        assert!(times.clone().zip(times.skip(1)).all(|(a, b)| a <= b), "{found:?}");
        assert!(
            found
                .segments
                .iter()
                .enumerate()
                .all(|(i, s)| s.id == i && s.end_s <= 4.5)
        );
        assert!(
            found.language.is_some(),
            "three languages are known, and one is the likeliest"
        );
        let want = first.get_or_insert_with(|| found.clone());
        assert_eq!(found, *want, "{threads} threads");
        // Nothing of a recording is left for the next.
        assert_eq!(said(&mut transcriber, &samples, &options).unwrap(), found);
    }
}

#[test]
fn attention_is_on_integers_in_the_encoder_of_whisper_where_its_weights_have_few_bits() {
    let folder = tempfile::tempdir().unwrap();
    for (model, can) in [("whisper", true), ("moonshine", false)] {
        for bits in [Bits::Four, Bits::Eight, Bits::Sixteen, Bits::ThirtyTwo] {
            let path = folder.path().join(format!("{model}-{bits:?}"));
            let options = ConvertOptions {
                policy: Policy::uniform(bits),
                ..ConvertOptions::default()
            };
            convert(
                &here("../../golden/speech").join(model),
                &path,
                &options,
                &mut |_, _| {},
            )
            .unwrap();
            let bundle = Bundle::open(&path).unwrap();
            for component in bundle.manifest().components.iter().map(|c| &*c.name) {
                let graph = bundle.graph(component).unwrap().0.to_string();
                let found: Vec<bool> = graph
                    .lines()
                    .filter(|line| line.contains("= attention("))
                    .map(|line| line.contains("integers=true"))
                    .collect();
                let wanted = can && component == "encoder" && bits <= Bits::Eight;
                assert!(component != "encoder" || !found.is_empty(), "{model} {bits:?}");
                assert!(
                    found.iter().all(|is| *is == wanted),
                    "{model} {bits:?} {component}: {found:?}"
                );
            }
        }
    }
}

#[test]
fn words_are_the_text_of_their_segment_and_follow_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = tiny(folder.path());
    let samples = sound(4.5);
    let options = |language: &str| TranscribeOptions {
        language: Some(language.to_owned()),
        words: true,
        ..TranscribeOptions::default()
    };
    for language in ["de", "zh"] {
        let mut first = None;
        for threads in [1, 3] {
            let mut transcriber = Transcriber::load(&path, Some(threads)).unwrap();
            let found = said(&mut transcriber, &samples, &options(language)).unwrap();
            assert!(!found.segments.is_empty());
            for segment in &found.segments {
                let text: String = segment.words.iter().map(|w| w.text.as_str()).collect();
                assert_eq!(text, segment.text);
                let (first, last) = (segment.words.first().unwrap(), segment.words.last().unwrap());
                assert_eq!((first.start_s, last.end_s), (segment.start_s, segment.end_s));
                assert!(
                    segment
                        .words
                        .iter()
                        .all(|w| w.start_s <= w.end_s && (0.0..=1.0).contains(&w.probability))
                );
            }
            let words: Vec<_> = found.segments.iter().flat_map(|s| &s.words).collect();
            assert!(words.windows(2).all(|w| w[0].start_s <= w[1].start_s), "{words:?}");
            let want = first.get_or_insert_with(|| found.clone());
            assert_eq!(found, *want, "{threads} threads");
            // Words of one recording leave nothing behind for another without them.
            let without = said(
                &mut transcriber,
                &samples,
                &TranscribeOptions {
                    words: false,
                    ..options(language)
                },
            );
            assert!(without.unwrap().segments.iter().all(|s| s.words.is_empty()));
        }
    }
}

#[test]
fn text_that_nobody_said_is_left_out_beside_silence() {
    let folder = tempfile::tempdir().unwrap();
    let path = tiny(folder.path());
    let samples = sound(4.5);
    let options = |words, hallucination_silence_s| TranscribeOptions {
        language: Some("de".to_owned()),
        words,
        hallucination_silence_s,
        ..TranscribeOptions::default()
    };
    let (mut first, is_odd) = (None, |word: &cactus_speech::Word| {
        let length_s = word.end_s - word.start_s;
        word.probability < 0.15 || length_s < 0.133
    });
    for threads in [1, 3] {
        let mut transcriber = Transcriber::load(&path, Some(threads)).unwrap();
        let all = said(&mut transcriber, &samples, &options(true, None)).unwrap();
        let some = |segment: &cactus_speech::Segment| segment.words.iter().all(is_odd);
        assert!(all.segments.iter().any(some), "random weights are sure of nothing");
        let found = said(&mut transcriber, &samples, &options(true, Some(0.3))).unwrap();
        // A window of this model is a second, so there may be silence on both sides of all in it.
        assert!(!found.segments.iter().any(some), "{found:?}");
        assert_ne!(found.segments, all.segments);
        // Words are found, and not told.
        let without = said(&mut transcriber, &samples, &options(false, Some(0.3))).unwrap();
        assert!(without.segments.iter().all(|segment| segment.words.is_empty()));
        assert_eq!(without.text(), found.text());
        let want = first.get_or_insert_with(|| found.clone());
        assert_eq!(found, *want, "{threads} threads");
    }
}

#[test]
fn beams_and_hints_change_the_text_and_threads_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = tiny(folder.path());
    let samples = sound(2.5);
    let options = |beams| TranscribeOptions {
        language: Some("de".to_owned()),
        beams,
        ..TranscribeOptions::default()
    };
    let mut transcriber = Transcriber::load(&path, Some(1)).unwrap();
    let greedy = said(&mut transcriber, &samples, &options(0)).unwrap();
    assert_eq!(said(&mut transcriber, &samples, &options(1)).unwrap(), greedy);
    let mut three = Transcriber::load(&path, Some(3)).unwrap();
    for beams in [2, 5, 9] {
        let found = said(&mut transcriber, &samples, &options(beams)).unwrap();
        assert_eq!(said(&mut three, &samples, &options(beams)).unwrap(), found);
        // What is found at temperature 0 is as likely as what taking the likeliest token finds, or likelier.
        let first = |t: &Transcript| t.segments.first().map(|s| (s.temperature, s.mean_logprob));
        if let (Some((0.0, beam)), Some((0.0, one))) = (first(&found), first(&greedy)) {
            assert!(beam >= one, "{beams} beams");
        }
    }
    let hinted = |initial_prompt: &str, hotwords: &[&str]| TranscribeOptions {
        initial_prompt: initial_prompt.to_owned(),
        hotwords: hotwords.iter().map(|&w| w.to_owned()).collect(),
        ..options(0)
    };
    for options in [hinted("the the", &[]), hinted("", &["the", "of"])] {
        assert_ne!(said(&mut transcriber, &samples, &options).unwrap(), greedy);
    }
    assert_eq!(said(&mut transcriber, &samples, &hinted(" ", &[""])).unwrap(), greedy);
    let error = said(&mut transcriber, &samples, &options(33)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Option);
}

#[test]
fn languages_are_told_with_their_chances() {
    let folder = tempfile::tempdir().unwrap();
    let mut transcriber = Transcriber::load(&tiny(folder.path()), Some(1)).unwrap();
    let found = transcriber.detect_language(&sound(0.9)).unwrap();
    assert_eq!(found.len(), 3);
    assert!(
        found.windows(2).all(|w| w[0].probability >= w[1].probability),
        "{found:?}"
    );
    let sum: f64 = found.iter().map(|chance| chance.probability).sum();
    assert!((sum - 1.0).abs() < 1e-12, "{found:?}");
    let said = said(&mut transcriber, &sound(0.9), &TranscribeOptions::default()).unwrap();
    assert_eq!(said.language.as_ref(), Some(&found[0].code));
    // The first window alone counts.
    assert_eq!(transcriber.detect_language(&sound(5.0)).unwrap().len(), 3);
    assert_eq!(transcriber.detect_language(&[]).unwrap(), []);
    assert_eq!(transcriber.detect_language(&[0.0; 8000]).unwrap(), []);
    assert!(transcriber.detect_language(&[f32::NAN]).is_err());
}

#[test]
fn awkward_sound_is_transcribed_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut transcriber = Transcriber::load(&tiny(folder.path()), Some(1)).unwrap();
    let mut options = TranscribeOptions::default();
    for words in [true, false] {
        options.words = words;
        assert_eq!(said(&mut transcriber, &[], &options).unwrap().segments, []);
        for seconds in [0.001, 0.01, 0.1] {
            let found = said(&mut transcriber, &sound(seconds), &options).unwrap();
            assert!(found.segments.iter().all(|s| s.end_s <= seconds), "{found:?}");
        }
    }
    for bad in [f32::NAN, f32::INFINITY] {
        let mut samples = sound(0.2);
        samples[77] = bad;
        let error = said(&mut transcriber, &samples, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Sound);
        assert!(error.to_string().contains("77"), "{error}");
    }
    let cancel = CancelToken::new();
    cancel.cancel();
    let stopped = transcriber.transcribe(&sound(1.0), &options, &cancel, &mut |_| {});
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Cancelled);
}

#[test]
fn options_that_a_model_lacks_are_errors_that_say_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let mut transcriber = Transcriber::load(&tiny(folder.path()), Some(1)).unwrap();
    assert_eq!(transcriber.languages().collect::<Vec<_>>(), ["de", "en", "zh"]);
    let with = |language: Option<&str>, translate| TranscribeOptions {
        language: language.map(str::to_owned),
        translate,
        ..TranscribeOptions::default()
    };
    let error = said(&mut transcriber, &sound(0.1), &with(Some("xx"), false)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Option);
    assert!(
        error.to_string().contains("`xx`") && error.to_string().contains("de, en, zh"),
        "{error}"
    );
    let german = said(&mut transcriber, &sound(0.5), &with(Some("de"), true)).unwrap();
    assert_eq!(german.language.as_deref(), Some("de"));

    let other = tempfile::tempdir().unwrap();
    let english = bundle(other.path(), &here("../../golden/speech/whisper_en"));
    let mut transcriber = Transcriber::load(&english, Some(1)).unwrap();
    assert_eq!(transcriber.languages().count(), 0);
    for options in [with(Some("de"), false), with(None, true)] {
        let error = said(&mut transcriber, &sound(0.1), &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Option, "{error}");
    }
    let text = tempfile::tempdir().unwrap();
    let text = bundle(text.path(), &here("../../golden/models/qwen2_tied"));
    let error = Transcriber::load(&text, Some(1)).unwrap_err().to_string();
    assert!(
        error.contains("does not transcribe") && error.contains("causal_lm_logits"),
        "{error}"
    );
}

#[test]
fn whisper_tiny_en_writes_what_is_said() {
    let models = std::env::var_os("CACTUS_TEST_MODELS").map(|f| PathBuf::from(f).join("whisper-tiny.en"));
    let Some(source) = models.filter(|f| f.join("model.bin").is_file()) else {
        eprintln!("SKIPPED: CACTUS_TEST_MODELS has no whisper-tiny.en; scripts/fetch_models.py fetches it");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut transcriber = Transcriber::load(&bundle(folder.path(), &source), None).unwrap();
    // John F. Kennedy, inaugural address, 1961: a work of the United States' government, in the public domain.
    let file = File::open(here("tests/files/jfk.opus")).unwrap();
    let samples = load(file, transcriber.sample_rate_hz(), Limits::default()).unwrap();
    let options = TranscribeOptions::default();
    let found = said(&mut transcriber, &samples, &options).unwrap();
    let plain = |text: &str| -> String {
        let kept = text.chars().filter(|c| c.is_alphanumeric() || *c == ' ');
        kept.collect::<String>().to_lowercase()
    };
    let sentence =
        "and so my fellow americans ask not what your country can do for you ask what you can do for your country";
    assert_eq!(plain(&found.text()), sentence);
    assert!(
        found
            .segments
            .iter()
            .all(|s| s.temperature == 0.0 && s.mean_logprob > -0.5 && s.no_speech < 0.1)
    );
    // Again after a pause: in windows of its own.
    let pause = vec![0.0; 21 * 16_000];
    let longer = [&samples[..], &pause, &samples].concat();
    let found = said(&mut transcriber, &longer, &options).unwrap();
    assert_eq!(
        plain(&found.text()).matches("what your country can do for you").count(),
        2,
        "{}",
        found.text()
    );
    let [first, .., last] = &found.segments[..] else {
        panic!("{found:?}");
    };
    assert!(
        first.end_s < 11.0 && last.end_s > 40.0 && last.end_s <= found.duration_s,
        "{found:?}"
    );
    // Nobody speaks.
    assert_eq!(
        said(&mut transcriber, &vec![0.0; 16_000 * 40], &options)
            .unwrap()
            .segments,
        []
    );
}
