//! A model that sees and hears in one conversation, against what transformers computed.

use super::{Expected, bundle, farthest, golden, logits};
use cactus_base::Pool;
use cactus_bundle::Bundle;
use cactus_engine::chat::{Chat, ChatRequest, to_base64};
use cactus_engine::scheduler::{Scheduler, SchedulerLimits};
use cactus_engine::{CancelToken, FIRST_MEDIA_ID, GenerateOptions, LoadOptions, MediaKind, Model};
use cactus_import::{ConvertOptions, convert};
use cactus_multimodal::{ErrorKind, Heard, Pictures, Sounds};
use cactus_passes::{Bits, Policy};
use cactus_runtime::Function;
use cactus_tensor::{Elements, TensorView};
use serde_json::{Value, json};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

const CASE: &str = "gemma4_hears";
/// One without encoders, whose pictures see themselves, and one whose sounds all have as many rows.
const CASES: [&str; 3] = [CASE, "gemma4_unified", "gemma3n_hears"];

/// The tokens that rows of sounds and of pictures replace.
fn words(case: &str) -> [&'static str; 2] {
    match case {
        "gemma3n_hears" => ["<audio_soft_token>", "<image_soft_token>"],
        _ => ["<|audio|>", "<|image|>"],
    }
}

fn load(path: &Path, chunk_tokens: usize) -> (Arc<Model>, Option<Arc<Pictures>>, Arc<Sounds>) {
    let model = super::load_model(path, chunk_tokens);
    let pictures = Pictures::attach(&model).unwrap();
    let sounds = Sounds::attach(&model).unwrap().unwrap();
    (model, pictures, sounds)
}

fn file(i: usize) -> Vec<u8> {
    file_of(CASE, i)
}

fn file_of(case: &str, i: usize) -> Vec<u8> {
    std::fs::read(golden(case).join(format!("sound.{i}.wav"))).unwrap()
}

fn listen(model: &Model, sounds: &Sounds, case: &str, i: usize) -> Heard {
    let never = CancelToken::new();
    sounds.listen_to_file(model, &file_of(case, i), &never).unwrap()
}

/// The conversation, its sounds with their files.
fn request(case: &str, want: &Expected, model: &Model, pictures: Option<&Arc<Pictures>>) -> ChatRequest {
    let mut request = match pictures {
        Some(pictures) => want.request(model, pictures),
        None => ChatRequest {
            messages: want.about["messages"].as_array().unwrap().clone(),
            ..ChatRequest::default()
        },
    };
    let mut next = 0..;
    for message in &mut request.messages {
        for part in message["content"].as_array_mut().unwrap() {
            if part["type"] == "audio" {
                part["data"] = Value::from(to_base64(&file_of(case, next.next().unwrap())));
            }
        }
    }
    request
}

fn greedy(case: &str, model: &Model, tokens: usize) -> GenerateOptions {
    let all = model.vocab_size() as u32;
    let special = match case {
        "gemma3n_hears" => (0..7).chain(all - 6..all),
        _ => (0..11).chain(0..0),
    };
    GenerateOptions {
        max_tokens: tokens,
        temperature: 0.0,
        // No special token, as the golden script has it.
        logit_bias: special.map(|id| (id, -100.0)).collect(),
        ..GenerateOptions::default()
    }
}

#[test]
fn rows_of_sounds_prompt_logits_and_answer_are_those_of_transformers() {
    CASES.iter().for_each(|case| as_in_transformers(case));
}

fn as_in_transformers(case: &str) {
    let folder = tempfile::tempdir().unwrap();
    let want = Expected::of(case);
    let (model, pictures, sounds) = load(&bundle(folder.path(), case, Bits::ThirtyTwo), 128);
    for i in 0..2 {
        let heard = listen(&model, &sounds, case, i);
        let rows = want.numbers(&format!("heard.{i}"));
        assert_eq!(heard.tokens, rows.len() / 32);
        let far = farthest(heard.shown.media.rows(), &rows);
        assert!(far <= 1e-4, "{case}: rows of sound {i} are {far} away");
    }
    let chat = Chat::new(&model, &request(case, &want, &model, pictures.as_ref())).unwrap();
    assert_eq!(chat.text, want.about["text"].as_str().unwrap());
    let shown = chat.media().iter().filter(|media| media.kind() != MediaKind::Sound);
    for (i, picture) in shown.enumerate() {
        let far = farthest(picture.rows(), &want.numbers(&format!("rows.{i}")));
        assert!(far <= 1e-4, "{case}: rows of picture {i} are {far} away");
    }
    let [sound, picture] = words(case).map(|token| model.tokenizer().unwrap().token_id(token).unwrap());
    let of_row = |id: u32| match chat
        .media()
        .iter()
        .find(|media| media.ids().contains(&id))
        .unwrap()
        .kind()
    {
        MediaKind::Sound => sound,
        _ => picture,
    };
    let ids: Vec<u32> = chat
        .prompt
        .iter()
        .map(|&id| if id >= FIRST_MEDIA_ID { of_row(id) } else { id })
        .collect();
    assert_eq!(ids, want.ids("ids"));
    let found = logits(&model, &chat, 128);
    let far = farthest(&found, &want.numbers("logits"));
    // Keys and values have half precision.
    assert!(far <= 0.05, "{case}: logits are {far} away");
    for chunk in [1, 7, 64] {
        let bits = |logits: &[f32]| logits.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
        assert!(
            bits(&logits(&model, &chat, chunk)) == bits(&found),
            "{case}: {chunk} at once"
        );
    }
    let mut session = model.session().unwrap();
    let answer = session.generate(
        &chat.prompt,
        &greedy(case, &model, 24),
        &CancelToken::new(),
        &mut |_| {},
    );
    assert_eq!(answer.unwrap().completion_token_ids, want.ids("greedy"));
    let scheduler = Scheduler::new(Arc::clone(&model), SchedulerLimits::default()).unwrap();
    for known in [0, chat.prompt.len() / 2] {
        let made = scheduler
            .generate(chat.request(greedy(case, &model, 24)), &mut |_| {})
            .unwrap();
        assert_eq!(made.completion_token_ids, want.ids("greedy"));
        assert!(made.cached_tokens >= known, "{}", made.cached_tokens);
    }
}

/// A position sees none behind it, so a sound begins as a longer one does, but for what the convolutions see at its end.
#[test]
fn rows_do_not_depend_on_what_fills_the_last_block() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _, sounds) = load(&bundle(folder.path(), CASE, Bits::ThirtyTwo), 128);
    let noise: Vec<f32> = cactus_testkit::picture_noise(100, 100, 3)
        .iter()
        .map(|&x| f32::from(x) / 256.0 - 0.5)
        .collect();
    let rows = |samples: usize| {
        let heard = sounds
            .listen_to(&model, &noise[..samples], &CancelToken::new())
            .unwrap();
        assert_eq!(heard.tokens, (samples - 160).div_ceil(160).div_ceil(4));
        heard.shown.media.rows().to_vec()
    };
    let long = rows(noise.len());
    for samples in [161, 1600, 2720, 2721, 9999] {
        let short = rows(samples);
        let same = short.len().saturating_sub(2 * 32);
        assert!(short[..same] == long[..same], "{samples}");
    }
}

#[test]
fn sounds_that_cannot_be_heard_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path(), CASE, Bits::Eight);
    let (model, _, sounds) = load(&path, 128);
    let never = CancelToken::new();
    let of = |samples: &[f32]| sounds.listen_to(&model, samples, &never).unwrap_err();
    for (error, kind, word) in [
        (of(&[]), ErrorKind::Sound, "more than 160"),
        (of(&[0.0; 160]), ErrorKind::Sound, "more than 160"),
        (of(&vec![0.0; 480_001]), ErrorKind::Sound, "longer than 30 s"),
        (of(&[f32::NAN; 400]), ErrorKind::Sound, "finite"),
        (
            sounds.listen_to_file(&model, b"no sound", &never).unwrap_err(),
            ErrorKind::Sound,
            "",
        ),
    ] {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    let ask = |model: &Model, content: Value| {
        let request = ChatRequest {
            messages: vec![json!({"role": "user", "content": content})],
            ..ChatRequest::default()
        };
        Chat::new(model, &request)
    };
    let sound = || json!({"type": "input_audio", "input_audio": {"data": to_base64(&file(0)), "format": "wav"}});
    assert_eq!(ask(&model, json!([sound()])).unwrap().media().len(), 1);
    let error = ask(&model, json!([{"type": "audio"}])).unwrap_err().to_string();
    assert!(error.contains("no sound was given"), "{error}");
    let error = ask(&model, json!([{"type": "audio", "data": "AAAA"}]))
        .unwrap_err()
        .to_string();
    assert!(error.contains("messages"), "{error}");
    // One that would fill the context, and several that do together.
    let options = LoadOptions {
        context_tokens: 24,
        ..LoadOptions::default()
    };
    let small = Model::load(&path, &options).unwrap();
    let hears = Sounds::attach(&small).unwrap().unwrap();
    let error = hears.listen_to_file(&small, &file(1), &never).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooManyTokens, "{error}");
    let error = ask(&small, json!([sound(), sound()])).unwrap_err().to_string();
    assert!(error.contains("2 sounds") && error.contains("26 tokens"), "{error}");
    // What was heard by one model is not for another.
    let shown = sounds.listen_to_file(&model, &file(0), &never).unwrap().shown;
    let request = ChatRequest {
        messages: vec![json!({"role": "user", "content": [{"type": "audio"}]})],
        sounds: vec![shown],
        ..ChatRequest::default()
    };
    assert!(
        Chat::new(&small, &request)
            .unwrap_err()
            .to_string()
            .contains("another model")
    );
    // Nor if it is known.
    let error = sounds.listen_to_file(&small, &file(0), &never).unwrap_err();
    assert!(error.to_string().contains("for another model"), "{error}");
    // A model that does not hear says so.
    let (deaf, _) = super::load(&bundle(folder.path(), "gemma4", Bits::Eight), 128);
    assert!(Sounds::attach(&deaf).unwrap().is_none());
    let error = ask(&deaf, json!([sound()])).unwrap_err().to_string();
    assert!(error.contains("hears no sounds"), "{error}");
}

#[test]
fn what_hears_keeps_eight_bits_and_is_near_what_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let rows = |bits| {
        let path = folder.path().join(format!("{bits:?}"));
        let options = ConvertOptions {
            policy: Policy::uniform(bits),
            ..ConvertOptions::default()
        };
        let made = convert(&golden(CASE), &path, &options, &mut |_, _| {}).unwrap();
        if bits == Bits::Four {
            let note = "`sound_encoder` keeps 8 bits";
            assert!(made.notes.iter().any(|found| found.contains(note)), "{:?}", made.notes);
            let bundle = Bundle::open(&path).unwrap();
            let (_, bindings) = bundle.graph("sound_encoder").unwrap();
            let few = bindings
                .values()
                .map(|name| bundle.weight(name).unwrap().packing.to_string());
            assert!(few.into_iter().all(|packing| !packing.starts_with("cq")));
        }
        let (model, _, sounds) = load(&path, 128);
        listen(&model, &sounds, CASE, 1).shown.media.rows().to_vec()
    };
    let want = rows(Bits::ThirtyTwo);
    for bits in [Bits::Eight, Bits::Four] {
        let found = rows(bits);
        let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| f64::from(x * y)).sum::<f64>();
        let cosine = dot(&found, &want) / (dot(&found, &found) * dot(&want, &want)).sqrt();
        assert!(cosine > 0.999, "{bits:?}: {cosine}");
    }
}

/// What hears in llama.cpp's form, beside what sees.
#[test]
fn encoder_in_a_file_of_its_own_hears_as_that_of_the_folder() {
    CASES.iter().for_each(|case| in_a_file_of_its_own(case));
}

fn in_a_file_of_its_own(case: &str) {
    let folder = tempfile::tempdir().unwrap();
    let options = ConvertOptions {
        policy: Policy::uniform(Bits::ThirtyTwo),
        pictures: Some(golden(case).join("mmproj.gguf")),
        ..ConvertOptions::default()
    };
    let path = folder.path().join("gguf");
    let made = convert(&golden(case).join("text.gguf"), &path, &options, &mut |_, _| {}).unwrap();
    assert!(
        made.notes.iter().all(|note| !note.contains("not read")),
        "{:?}",
        made.notes
    );
    let of_folder = bundle(folder.path(), case, Bits::ThirtyTwo);
    let components: &[&str] = match case {
        CASE => &["sound_encoder"],
        _ => &["sound_encoder", "picture_encoder", "decoder"],
    };
    for component in components {
        let graph = |path: &Path| Bundle::open(path).unwrap().graph(component).unwrap().0.to_string();
        assert_eq!(graph(&path), graph(&of_folder), "{case}: {component}");
        let weights = |path: &Path| {
            let bundle = Bundle::open(path).unwrap();
            let (_, bindings) = bundle.graph(component).unwrap();
            let exact = bindings.values().filter(|name| !name.ends_with("per_dim_scale"));
            let stored = exact.map(|name| (name.clone(), bundle.weight(name).unwrap().data.to_vec()));
            stored.collect::<std::collections::BTreeMap<String, Vec<u8>>>()
        };
        let (found, want) = (weights(&path), weights(&of_folder));
        assert!(!found.is_empty() && found == want, "{case}: {component}");
    }
    let record = |path: &Path| Bundle::open(path).unwrap().hearing().unwrap().unwrap();
    assert_eq!(record(&path), record(&of_folder));
    let (model, _, sounds) = load(&path, 320);
    for i in 0..2 {
        let far = farthest(
            listen(&model, &sounds, case, i).shown.media.rows(),
            &Expected::of(case).numbers(&format!("heard.{i}")),
        );
        assert!(far <= 1e-4, "{case}: {i}: {far}");
    }
}

/// Between operations, so that nobody is encoded for who has left.
#[test]
fn what_is_encoded_ends_when_nobody_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path(), CASE, Bits::Eight);
    let (model, pictures, _) = load(&path, 128);
    let asked = request(CASE, &Expected::of(CASE), &model, pictures.as_ref());
    asked.cancel.cancel();
    let error = Chat::new(&model, &asked).unwrap_err().to_string();
    assert!(error.contains("cancelled"), "{error}");
    asked.cancel.reset();
    assert!(Chat::new(&model, &asked).is_ok());

    let function = Function::new(Arc::new(Bundle::open(&path).unwrap()), "sound_encoder", None).unwrap();
    let (features, count) = (vec![0.5; 48 * 16], [48]);
    let inputs = [
        (
            "features",
            TensorView::new(&[1, 48, 16], Elements::F32(&features)).unwrap(),
        ),
        ("count", TensorView::new(&[1], Elements::I64(&count)).unwrap()),
    ];
    let pool = Pool::new(1);
    let run = |operations: usize| {
        let (left, mut outputs) = (Cell::new(operations), 0);
        let stop = || left.replace(left.get().saturating_sub(1)) == 0;
        let whole = function.run_reading_unless(&pool, 1, &inputs, &stop, &mut |_, _| outputs += 1);
        (whole.unwrap(), outputs)
    };
    assert_eq!(run(0), (false, 0));
    assert_eq!(run(10), (false, 0));
    assert_eq!(run(usize::MAX), (true, 1));
}

/// The last stretch is filled up, and none knows of another.
#[test]
fn samples_become_rows_stretch_by_stretch() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _, sounds) = load(&bundle(folder.path(), CASES[1], Bits::ThirtyTwo), 128);
    let noise: Vec<f32> = (0..2000).map(|i| ((i * 37) % 101) as f32 / 101.0 - 0.5).collect();
    let rows = |samples: &[f32]| {
        let heard = sounds.listen_to(&model, samples, &CancelToken::new()).unwrap();
        assert_eq!(heard.tokens, samples.len().div_ceil(640));
        heard.shown.media.rows().to_vec()
    };
    let long = rows(&noise);
    for samples in [1, 640, 641, 1280] {
        let (short, whole) = (rows(&noise[..samples]), samples / 640 * 32);
        assert!(short[..whole] == long[..whole], "{samples}");
    }
    let mut filled = noise[..700].to_vec();
    filled.resize(1280, 0.0);
    assert_eq!(rows(&noise[..700]), rows(&filled));
    let never = CancelToken::new();
    let of = |samples: &[f32]| sounds.listen_to(&model, samples, &never).unwrap_err().to_string();
    assert!(of(&[]).contains("more than 0"));
    assert!(of(&[f32::INFINITY; 10]).contains("finite"));
    assert!(of(&vec![0.0; 480_001]).contains("longer than 30 s"));
}
