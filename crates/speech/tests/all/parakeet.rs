//! Models whose text goes along with the sound, CTC and transducers: whole recordings, and live, with tiny ones of random weights.

use cactus_engine::CancelToken;
use cactus_import::{ConvertOptions, convert};
use cactus_passes::{Bits, Policy};
use cactus_speech::{
    ErrorKind, FinalReason, Result, Span, Stream, StreamEvent, StreamOptions, TranscribeOptions, Transcriber,
    Transcript, Vad,
};
use cactus_testkit::tone;
use proptest::prelude::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

const MODELS: [&str; 3] = ["parakeet_ctc", "parakeet_tdt", "parakeet_rnnt"];

fn bundle(folder: &Path, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/speech")
        .join(name);
    let path = folder.join(name);
    let options = ConvertOptions {
        policy: Policy::uniform(Bits::ThirtyTwo),
        ..ConvertOptions::default()
    };
    convert(&source, &path, &options, &mut |_, _| {}).unwrap();
    path
}

/// As [`bundle`], of a model that writes `ä`, `ö` and `ü` in most of its longer tokens.
fn german(folder: &Path, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/speech")
        .join(name);
    let changed = folder.join(format!("{name}-source"));
    std::fs::create_dir(&changed).unwrap();
    for file in std::fs::read_dir(source).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), changed.join(file.file_name())).unwrap();
    }
    let path = changed.join("tokenizer.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let special = |text: &str| text.starts_with('<');
    let spelled = |text: &str| match text.chars().count() {
        1 => text.replace('?', "ä"),
        _ if special(text) => text.to_owned(),
        _ => text.replace('a', "ä").replace('o', "ö").replace('e', "ü"),
    };
    let vocab = json["model"]["vocab"].as_object().unwrap().iter();
    json["model"]["vocab"] = vocab.map(|(text, id)| (spelled(text), id.clone())).collect();
    json["model"]["merges"] = Value::Array(Vec::new());
    std::fs::write(&path, json.to_string()).unwrap();
    let path = folder.join(format!("{name}-german"));
    let options = ConvertOptions {
        policy: Policy::uniform(Bits::ThirtyTwo),
        ..ConvertOptions::default()
    };
    convert(&changed, &path, &options, &mut |_, _| {}).unwrap();
    path
}

/// A tone that rises, 16,000 samples a second, with a little noise.
fn sound(seconds: f64) -> Vec<f32> {
    let n = (seconds * 16_000.0) as usize;
    let noise = |i: usize| ((i as u32).wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0;
    let tone = |i: usize| (0.4 * (i as f64 * i as f64 * 1e-5).sin()) as f32;
    let loud = |i: usize| ((i / 3200) % 4) as f32 / 3.0;
    (0..n).map(|i| loud(i) * (tone(i) + 0.05 * noise(i))).collect()
}

fn plain() -> TranscribeOptions {
    TranscribeOptions::default()
}

fn with_words() -> TranscribeOptions {
    TranscribeOptions { words: true, ..plain() }
}

fn said(transcriber: &mut Transcriber, samples: &[f32], options: &TranscribeOptions) -> Result<Transcript> {
    transcriber.transcribe(samples, options, &CancelToken::new(), &mut |_| {})
}

/// Words and segments follow each other and lie in the recording.
fn check(found: &Transcript, samples: usize) {
    let mut before_s = 0.0;
    for (id, segment) in found.segments.iter().enumerate() {
        assert_eq!(segment.id, id);
        let words: String = segment.words.iter().map(|w| w.text.as_str()).collect();
        assert_eq!(words, segment.text);
        assert_eq!(segment.words.first().map(|w| w.start_s), Some(segment.start_s));
        assert_eq!(segment.words.last().map(|w| w.end_s), Some(segment.end_s));
        assert!(segment.end_s > segment.start_s, "{segment:?}");
        // The first token of a piece may be the middle of a word.
        assert!(
            segment.words[1..].iter().all(|w| w.text.starts_with(' ')),
            "{segment:?}"
        );
        for word in &segment.words {
            assert!(before_s <= word.start_s && word.start_s <= word.end_s, "{segment:?}");
            assert!((0.0..=1.0).contains(&word.probability), "{word:?}");
            before_s = word.start_s;
        }
        assert!(
            (0.0..=1.0).contains(&segment.confidence) && segment.mean_logprob <= 0.0,
            "{segment:?}"
        );
        assert!((segment.temperature, segment.no_speech) == (0.0, 0.0), "{segment:?}");
        assert!(segment.end_s <= samples as f64 / 16e3 + 1e-9, "{segment:?}");
    }
}

#[test]
fn words_have_times_and_threads_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for name in MODELS {
        let path = bundle(folder.path(), name);
        // With a pause in it, so long that it is heard in pieces.
        let mut samples = sound(27.0);
        samples[16_000 * 12..16_000 * 13].fill(0.0);
        let mut first = None;
        for threads in [1, 3] {
            let mut transcriber = Transcriber::load(&path, Some(threads)).unwrap();
            assert!(transcriber.has_words() && !transcriber.tells_languages());
            assert_eq!(transcriber.languages().collect::<Vec<_>>(), ["en"]);
            assert_eq!(transcriber.detect_language(&samples).unwrap(), []);
            let mut told = Vec::new();
            let found = transcriber
                .transcribe(&samples, &with_words(), &CancelToken::new(), &mut |p| {
                    told.push(p.done_s)
                })
                .unwrap();
            assert!(
                told.len() == 2 && (12.1..12.95).contains(&told[0]) && told[1] == 27.0,
                "{told:?}"
            );
            assert!(
                found.segments.len() > 1 && found.language.is_none(),
                "{name}: {found:?}"
            );
            check(&found, samples.len());
            let want = first.get_or_insert_with(|| found.clone());
            assert_eq!(found, *want, "{name}, {threads} threads");
            // Without words all else is the same.
            let mut without = said(&mut transcriber, &samples, &plain()).unwrap();
            for (segment, with) in without.segments.iter_mut().zip(&found.segments) {
                assert!(segment.words.is_empty());
                segment.words.clone_from(&with.words);
            }
            assert_eq!(without, found);
        }
        let mut transcriber = Transcriber::load(&path, Some(1)).unwrap();
        for beams in [2, 4] {
            let options = TranscribeOptions { beams, ..with_words() };
            let found = said(&mut transcriber, &samples, &options).unwrap();
            check(&found, samples.len());
        }
        // Silence, and hardly a sound.
        assert!(
            said(&mut transcriber, &vec![0.0; 80_000], &plain())
                .unwrap()
                .segments
                .is_empty()
        );
        for n in [0, 1, 100, 319, 1000] {
            check(
                &said(&mut transcriber, &samples[8000..8000 + n], &with_words()).unwrap(),
                n,
            );
        }
    }
}

#[test]
fn text_goes_on_where_nobody_pauses() {
    let folder = tempfile::tempdir().unwrap();
    let noise = |i: u32| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0;
    let tone = |i: u32| 0.3 * (f64::from(i) * f64::from(i) * 1e-6).sin() as f32;
    let samples: Vec<f32> = (0..58 * 16_000).map(|i| tone(i) + 0.1 * noise(i)).collect();
    for name in MODELS {
        let path = bundle(folder.path(), name);
        let mut first = None;
        for threads in [1, 3] {
            let mut transcriber = Transcriber::load(&path, Some(threads)).unwrap();
            let (mut told, mut told_of) = (Vec::new(), 0);
            let found = transcriber
                .transcribe(&samples, &with_words(), &CancelToken::new(), &mut |p| {
                    told.push(p.done_s);
                    told_of += p.segments.len();
                })
                .unwrap();
            // Ten seconds after ten.
            assert_eq!(told, [10.0, 20.0, 30.0, 40.0, 50.0, 58.0]);
            assert_eq!(told_of, found.segments.len());
            assert!(!found.segments.is_empty(), "{name}");
            check(&found, samples.len());
            let want = first.get_or_insert_with(|| found.clone());
            assert_eq!(found, *want, "{name}, {threads} threads");
        }
        let mut transcriber = Transcriber::load(&path, Some(2)).unwrap();
        let options = TranscribeOptions {
            beams: 3,
            ..with_words()
        };
        check(&said(&mut transcriber, &samples, &options).unwrap(), samples.len());
    }
}

#[test]
fn spans_are_pieces_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut transcriber = Transcriber::load(&bundle(folder.path(), "parakeet_ctc"), Some(1)).unwrap();
    let samples = sound(9.0);
    let spans = [(16_000, 48_000), (64_000, 112_000)].map(|(start, end)| Span { start, end });
    let found = transcriber
        .transcribe_spans(&samples, &spans, &with_words(), &CancelToken::new(), &mut |_| {})
        .unwrap();
    check(&found, samples.len());
    let mut tokens = Vec::new();
    for span in spans {
        let alone = said(
            &mut transcriber,
            &samples[span.start as usize..span.end as usize],
            &with_words(),
        )
        .unwrap();
        tokens.extend(alone.segments.iter().flat_map(|s| s.tokens.clone()));
    }
    assert!(!tokens.is_empty());
    assert_eq!(
        found
            .segments
            .iter()
            .flat_map(|s| s.tokens.clone())
            .collect::<Vec<u32>>(),
        tokens
    );
    let inside = |s: f64| {
        spans
            .iter()
            .any(|span| (span.start as f64 / 16e3..=span.end as f64 / 16e3).contains(&s))
    };
    assert!(
        found.segments.iter().all(|s| inside(s.start_s) && inside(s.end_s)),
        "{found:?}"
    );
}

#[test]
fn hotwords_change_near_ties_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut transcriber = Transcriber::load(&bundle(folder.path(), "parakeet_ctc"), Some(1)).unwrap();
    let samples = sound(6.0);
    let mut tokens = |hotwords: &[&str], beams| {
        let hotwords = hotwords.iter().map(|w| (*w).to_owned()).collect();
        let options = TranscribeOptions {
            hotwords,
            beams,
            ..plain()
        };
        let found = said(&mut transcriber, &samples, &options).unwrap();
        found
            .segments
            .iter()
            .flat_map(|s| s.tokens.clone())
            .collect::<Vec<u32>>()
    };
    for beams in [1, 4] {
        let without = tokens(&[], beams);
        assert!(without.len() > 10);
        assert_eq!(tokens(&["  ", ""], beams), without);
        let words = ["the", "and", "of", "he", "what", "a", "she", "was"];
        let hot = words.iter().filter(|word| tokens(&[word], beams) != without).count();
        assert!(hot > 0, "no hotword was near, {beams} beams");
    }
}

#[test]
fn a_language_keeps_other_letters_out() {
    let folder = tempfile::tempdir().unwrap();
    let vad = folder.path().join("vad");
    let detector = tone::write_detector(folder.path()).unwrap();
    convert(&detector, &vad, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
    let samples = sound(12.0);
    let is_foreign = |text: &str| text.contains(['ä', 'ö', 'ü']);
    let mut texts = 0;
    for name in MODELS {
        let mut transcriber = Transcriber::load(&german(folder.path(), name), Some(1)).unwrap();
        assert_eq!(transcriber.languages().collect::<Vec<_>>(), ["de", "en"]);
        for beams in [1, 4] {
            let mut text = |language: Option<&str>| {
                let options = TranscribeOptions {
                    language: language.map(str::to_owned),
                    beams,
                    ..plain()
                };
                let found = said(&mut transcriber, &samples, &options).unwrap();
                assert_eq!(found.language.as_deref(), language);
                found.segments.iter().map(|s| s.text.as_str()).collect::<String>()
            };
            let (free, german, english) = (text(None), text(Some("de")), text(Some("en")));
            assert_eq!(german, free, "{name}, {beams} beams: nothing is foreign");
            assert!(!is_foreign(&english), "{name}, {beams} beams: {english}");
            // A search may find nothing the likeliest in noise.
            assert!(
                beams > 1 || is_foreign(&free) && !english.is_empty(),
                "{name}: {free}, {english}"
            );
            // What was locked for one recording is not for the next.
            assert_eq!(text(None), free);
        }
        let english = TranscribeOptions {
            language: Some("en".to_owned()),
            ..plain()
        };
        let hot = TranscribeOptions {
            hotwords: vec!["ä".to_owned()],
            ..english.clone()
        };
        let anywhere = TranscribeOptions {
            language: None,
            ..hot.clone()
        };
        transcriber.check(&anywhere).unwrap();
        let error = transcriber.check(&hot).unwrap_err().to_string();
        assert!(error.contains("the hotword `ä`"), "{error}");
        let options = StreamOptions {
            transcribe: english,
            ..live(1)
        };
        let spoken = tone::sound(&[(0.3, 0.4), (0.6, 2.9), (0.6, 0.5)]);
        let found = events(&mut transcriber, &vad, &options, &spoken, &[4000]);
        for event in &found {
            match event {
                StreamEvent::Partial {
                    committed, volatile, ..
                } => {
                    assert!(!is_foreign(committed) && !is_foreign(volatile), "{name}: {event:?}");
                }
                StreamEvent::Final { segment, language, .. } => {
                    assert!(!is_foreign(&segment.text), "{name}: {event:?}");
                    assert_eq!(language.as_deref(), Some("en"));
                    texts += 1;
                }
                _ => {}
            }
        }
    }
    assert!(texts > 0);
}

#[test]
fn options_that_such_a_model_lacks_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    for name in MODELS {
        let mut transcriber = Transcriber::load(&bundle(folder.path(), name), Some(1)).unwrap();
        let many = vec!["a".to_owned(); 201];
        for (options, why) in [
            (
                TranscribeOptions {
                    language: Some("de".into()),
                    ..plain()
                },
                "lacks letters of `de`",
            ),
            (
                TranscribeOptions {
                    language: Some("zh".into()),
                    ..plain()
                },
                "take one of en",
            ),
            (
                TranscribeOptions {
                    translate: true,
                    ..plain()
                },
                "does not translate",
            ),
            (
                TranscribeOptions {
                    initial_prompt: "Hm.".into(),
                    ..plain()
                },
                "no initial prompt",
            ),
            (
                TranscribeOptions {
                    carry_tokens: 4,
                    ..plain()
                },
                "nothing to carry",
            ),
            (
                TranscribeOptions {
                    temperature: 0.2,
                    ..plain()
                },
                "temperature at 0",
            ),
            (TranscribeOptions { beams: 33, ..plain() }, "at most 32"),
            (
                TranscribeOptions {
                    hallucination_silence_s: Some(2.0),
                    ..plain()
                },
                "writes nothing of silence",
            ),
            (
                TranscribeOptions {
                    hotwords: many,
                    ..plain()
                },
                "at most 200",
            ),
            (
                TranscribeOptions {
                    hotwords: vec!["Ω漢".into()],
                    ..plain()
                },
                "`Ω漢`",
            ),
        ] {
            let errors = [
                transcriber.check(&options).unwrap_err(),
                said(&mut transcriber, &sound(0.5), &options).unwrap_err(),
            ];
            for error in errors {
                assert!(
                    error.kind() == ErrorKind::Option && error.to_string().contains(why),
                    "{error}"
                );
            }
        }
        for bad in [f32::NAN, f32::INFINITY] {
            let mut samples = sound(0.5);
            samples[77] = bad;
            let error = said(&mut transcriber, &samples, &plain()).unwrap_err();
            assert!(
                error.kind() == ErrorKind::Sound && error.to_string().contains("sample 77"),
                "{error}"
            );
        }
        let cancel = CancelToken::new();
        cancel.cancel();
        let stopped = transcriber.transcribe(&sound(2.0), &plain(), &cancel, &mut |_| {});
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Cancelled);
    }
}

/// All events of a sound that comes in pieces of these sizes, over and over.
fn events(
    transcriber: &mut Transcriber,
    vad: &Path,
    options: &StreamOptions,
    samples: &[f32],
    sizes: &[usize],
) -> Vec<StreamEvent> {
    let (cancel, mut found) = (CancelToken::new(), Vec::new());
    let mut stream = Stream::new(transcriber, Vad::load(vad, 1).unwrap(), options.clone()).unwrap();
    let (mut rest, mut sizes) = (samples, sizes.iter().cycle());
    while !rest.is_empty() {
        let (now, later) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
        stream.push(transcriber, now, &cancel, &mut |e| found.push(e)).unwrap();
        rest = later;
    }
    stream.finish(transcriber, &cancel, &mut |e| found.push(e)).unwrap();
    found
}

fn live(beams: usize) -> StreamOptions {
    StreamOptions {
        transcribe: TranscribeOptions { beams, ..with_words() },
        step_ms: 300,
        silence_ms: 200,
        most_s: Some(3.0),
        ..StreamOptions::default()
    }
}

#[test]
fn live_text_grows_to_the_final_one() {
    let folder = tempfile::tempdir().unwrap();
    let vad = folder.path().join("vad");
    let detector = tone::write_detector(folder.path()).unwrap();
    convert(&detector, &vad, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
    // The last phrase is too long, and is cut in a pause that ends none.
    let samples = tone::sound(&[(0.5, 0.4), (0.6, 2.1), (0.6, 0.05), (0.6, 2.0), (0.12, 4.0)]);
    for name in MODELS {
        let mut transcriber = Transcriber::load(&bundle(folder.path(), name), Some(2)).unwrap();
        for beams in [1, 3] {
            let all = events(&mut transcriber, &vad, &live(beams), &samples, &[samples.len()]);
            let (mut committed, mut finals, mut cut_s) = (String::new(), 0, 0.0);
            for event in &all {
                match event {
                    StreamEvent::SpeechStart { .. } => committed.clear(),
                    StreamEvent::Partial { committed: now, .. } => {
                        assert!(now.starts_with(&committed), "{committed:?} {now:?}");
                        committed.clone_from(now);
                    }
                    StreamEvent::Final {
                        segment,
                        language,
                        reason,
                        ..
                    } => {
                        assert!(
                            segment.text.starts_with(&committed) && language.is_none(),
                            "{committed:?} {segment:?}"
                        );
                        let words: String = segment.words.iter().map(|w| w.text.as_str()).collect();
                        // A text that begins with a space alone may be without it.
                        assert_eq!(words.trim_start(), segment.text.trim_start());
                        let times = [segment.window_s, segment.start_s, segment.end_s];
                        assert!(times.is_sorted() && segment.start_s < segment.end_s, "{segment:?}");
                        // What was said before a cut is not said again behind it.
                        assert!(segment.start_s >= cut_s, "{cut_s} {segment:?}");
                        let last = segment.words.last().filter(|_| *reason == FinalReason::Length);
                        cut_s = last.map_or(0.0, |word| word.start_s);
                        finals += 1;
                    }
                    _ => {}
                }
            }
            // A search may find nothing in noise the likeliest.
            assert!(beams > 1 || finals >= 1, "{name}: {all:?}");
        }
    }
    // A stream that was made for another kind of model says so.
    let mut one = Transcriber::load(&folder.path().join("parakeet_ctc"), Some(1)).unwrap();
    let whisper = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/speech/whisper");
    let path = folder.path().join("whisper");
    convert(&whisper, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
    let mut other = Transcriber::load(&path, Some(1)).unwrap();
    let mut stream = Stream::new(&mut one, Vad::load(&vad, 1).unwrap(), live(1)).unwrap();
    let error = stream
        .push(&mut other, &samples, &CancelToken::new(), &mut |_| {})
        .unwrap_err();
    assert!(error.to_string().contains("another model"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]
    #[test]
    fn events_do_not_depend_on_pushes(sizes in prop::collection::vec(1usize..6000, 1..6), threads in 1usize..4, which in 0usize..3) {
        let folder = tempfile::tempdir().unwrap();
        let vad = folder.path().join("vad");
        let detector = tone::write_detector(folder.path()).unwrap();
        convert(&detector, &vad, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
        let path = bundle(folder.path(), MODELS[which]);
        let samples = tone::sound(&[(0.3, 0.4), (0.6, 1.7), (0.6, 0.05), (0.6, 3.4)]);
        let found = |threads, sizes: &[usize]| {
            let mut transcriber = Transcriber::load(&path, Some(threads)).unwrap();
            events(&mut transcriber, &vad, &live(1), &samples, sizes)
        };
        prop_assert_eq!(found(threads, &sizes), found(1, &[samples.len()]));
    }
}
