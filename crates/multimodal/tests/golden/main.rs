//! Models that write about pictures as bundles, against what transformers computed (`golden/seeing_models.py`).

mod bundles;
mod captured;
mod films;
mod heard;
mod shown;

use cactus_base::Pool;
use cactus_bundle::Bundle;
use cactus_engine::chat::{Chat, ChatRequest};
use cactus_engine::scheduler::{Scheduler, SchedulerLimits};
use cactus_engine::{CancelToken, FIRST_MEDIA_ID, GenerateOptions, LoadOptions, MediaKind, Model};
use cactus_import::{ConvertOptions, convert};
use cactus_multimodal::{Picture, Pictures};
use cactus_passes::{Bits, Policy};
use cactus_runtime::{Execution, Function, Head, MediaRows};
use cactus_tensor::{Data, Tensor};
use cactus_testkit::picture_noise;
use safetensors::SafeTensors;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CASES: [&str; 10] = [
    "gemma3",
    "gemma3n",
    "gemma4",
    "gemma4_moe",
    "lfm2_vl",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_vl",
    "qwen3_vl_moe",
    "smolvlm",
];

/// The token that is replaced by rows, and what the template writes for a picture.
fn words(name: &str) -> [&'static str; 2] {
    match name {
        "gemma3" => ["<image_soft_token>", "<start_of_image>"],
        "gemma3n" => ["<image_soft_token>"; 2],
        "gemma4" | "gemma4_moe" => ["<|image|>"; 2],
        name if name.starts_with("qwen3") => ["<|image_pad|>"; 2],
        _ => ["<image>"; 2],
    }
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/seeing")
        .join(name)
}

fn bundle(folder: &Path, name: &str, bits: Bits) -> PathBuf {
    let path = folder.join(format!("{name}-{bits:?}"));
    let options = ConvertOptions {
        policy: Policy::uniform(bits),
        ..ConvertOptions::default()
    };
    let made = convert(&golden(name), &path, &options, &mut |_, _| {}).unwrap();
    assert!(
        made.notes.iter().all(|note| !note.contains("not read")),
        "{:?}",
        made.notes
    );
    path
}

fn load(path: &Path, chunk_tokens: usize) -> (Arc<Model>, Arc<Pictures>) {
    let model = load_model(path, chunk_tokens);
    let pictures = Pictures::attach(&model).unwrap().unwrap();
    (model, pictures)
}

fn load_model(path: &Path, chunk_tokens: usize) -> Arc<Model> {
    let options = LoadOptions {
        chunk_tokens,
        // So that what is compared is not how keys and values are rounded.
        kv_dtype: cactus_engine::KvDType::F16,
        threads: Some(2),
        ..LoadOptions::default()
    };
    Model::load(path, &options).unwrap()
}

struct Expected {
    about: Value,
    file: Vec<u8>,
}

impl Expected {
    fn of(name: &str) -> Expected {
        Expected::read(name, ["expected.json", "expected.safetensors"])
    }

    fn read(name: &str, [about, numbers]: [&str; 2]) -> Expected {
        let read = |file: &str| std::fs::read(golden(name).join(file)).unwrap();
        Expected {
            about: serde_json::from_slice(&read(about)).unwrap(),
            file: read(numbers),
        }
    }

    fn numbers(&self, name: &str) -> Vec<f32> {
        let file = SafeTensors::deserialize(&self.file).unwrap();
        let tensor = file.tensor(name).unwrap();
        tensor
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|&b| f32::from_le_bytes(b))
            .collect()
    }

    fn ids(&self, key: &str) -> Vec<u32> {
        self.about[key]
            .as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_u64().unwrap() as u32)
            .collect()
    }

    fn pictures(&self) -> Vec<Picture> {
        let one = |row: &Value| {
            let [width, height, seed] = [0, 1, 2].map(|i| row[i].as_u64().unwrap());
            let rgb = picture_noise(width as u32, height as u32, seed);
            Picture::new(width as u32, height as u32, rgb).unwrap()
        };
        self.about["pictures"].as_array().unwrap().iter().map(one).collect()
    }

    fn request(&self, model: &Model, pictures: &Pictures) -> ChatRequest {
        let look = |picture: &Picture| pictures.look_at(model, picture, &CancelToken::new()).unwrap().shown;
        ChatRequest {
            messages: self.about["messages"].as_array().unwrap().clone(),
            pictures: self.pictures().iter().map(look).collect(),
            ..ChatRequest::default()
        }
    }
}

fn farthest(found: &[f32], want: &[f32]) -> f32 {
    assert_eq!(found.len(), want.len());
    found.iter().zip(want).map(|(f, w)| (f - w).abs()).fold(0.0, f32::max)
}

/// Logits of every position of a chat, computed in chunks.
fn logits(model: &Arc<Model>, chat: &Chat, chunk: usize) -> Vec<f32> {
    let mut execution = Execution::new(Arc::clone(model.program())).unwrap();
    let (pool, mut all) = (Pool::new(2), Vec::new());
    let rows = |at: usize, id: u32, count: usize| {
        let media = chat.media().iter().find(|media| media.ids().contains(&id))?;
        let width = media.rows().len() / media.len();
        let skipped = (id - media.ids().start) as usize;
        let of_part = match media.kind() {
            MediaKind::Film { rows, .. } => rows.get(),
            _ => media.len(),
        };
        Some(MediaRows {
            at,
            rows: &media.rows()[skipped * width..][..count * width],
            skipped: skipped % of_part,
            see_each_other: media.kind() != MediaKind::Sound,
            columns: media.columns(),
        })
    };
    let mut rest = &chat.prompt[..];
    while !rest.is_empty() {
        let mut end = chunk.min(rest.len());
        // Rows that see each other are computed at once.
        let together = |id: u32| {
            let pictures = chat.media().iter().filter(|media| media.kind() != MediaKind::Sound);
            pictures.into_iter().any(|media| media.ids().contains(&id))
        };
        while model.program().media_see_ahead()
            && end < rest.len()
            && rest[end] == rest[end - 1] + 1
            && together(rest[end - 1])
        {
            end += 1;
        }
        let (part, after) = rest.split_at(end);
        rest = after;
        let ids: Vec<u32> = part
            .iter()
            .map(|&id| if id >= FIRST_MEDIA_ID { 0 } else { id })
            .collect();
        let mut media: Vec<MediaRows<'_>> = Vec::new();
        let mut at = 0;
        for run in part.chunk_by(|a, b| *b == *a + 1 && *a >= FIRST_MEDIA_ID) {
            media.extend(rows(at, run[0], run.len()));
            at += run.len();
        }
        let mut each = |_: usize, logits: cactus_runtime::Logits<'_>| all.extend_from_slice(&logits);
        execution
            .run_with_media(&pool, 2, &ids, &media, Head::From(0, &mut each))
            .unwrap();
    }
    all
}

#[test]
fn rows_prompt_and_logits_are_those_of_transformers() {
    let folder = tempfile::tempdir().unwrap();
    for name in CASES {
        like_transformers(name, &bundle(folder.path(), name, Bits::ThirtyTwo));
    }
}

/// Rows, prompt and logits of the bundle at `path`, which is of the case `name`.
fn like_transformers(name: &str, path: &Path) {
    let want = Expected::of(name);
    let (model, pictures) = load(path, 128);
    let request = want.request(&model, &pictures);
    let chat = Chat::new(&model, &request).unwrap();
    for (i, media) in chat.media().iter().enumerate() {
        let far = farthest(media.rows(), &want.numbers(&format!("rows.{i}")));
        assert!(far <= 1e-4, "{name}: rows of picture {i} are {far} away");
    }
    like(name, &model, &chat, (&want, words(name)[0]));
}

/// Prompt and logits of a conversation, in which rows stand in place of `token`.
fn like(name: &str, model: &Arc<Model>, chat: &Chat, (want, token): (&Expected, &str)) {
    assert_eq!(chat.text, want.about["text"].as_str().unwrap(), "{name}");
    let token = model.tokenizer().unwrap().token_id(token).unwrap();
    let ids: Vec<u32> = chat
        .prompt
        .iter()
        .map(|&id| if id >= FIRST_MEDIA_ID { token } else { id })
        .collect();
    assert_eq!(ids, want.ids("ids"), "{name}");
    let found = logits(model, chat, 128);
    let far = farthest(&found, &want.numbers("logits"));
    // Keys and values have half precision.
    assert!(far <= 0.05, "{name}: logits are {far} away");
    // Bits do not depend on where a prompt is cut, within a picture neither.
    for chunk in [1, 7, 64] {
        let bits = |logits: &[f32]| logits.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
        assert!(
            bits(&logits(model, chat, chunk)) == bits(&found),
            "{name}, {chunk} at once"
        );
    }
}

/// A whole sequence at once, as whoever wants all of its logits computes it.
/// Without states nothing is stored in half precision.
#[test]
fn function_of_a_whole_sequence_gives_the_logits_of_transformers() {
    for (name, token) in [
        ("gemma3", 7),
        ("gemma3n", 161),
        ("gemma4", 6),
        ("gemma4_moe", 6),
        ("lfm2_vl", 4),
        ("smolvlm", 4),
    ] {
        whole_sequence(name, token);
    }
}

fn whole_sequence(name: &str, token: u32) {
    let folder = tempfile::tempdir().unwrap();
    let want = Expected::of(name);
    let path = bundle(folder.path(), name, Bits::ThirtyTwo);
    let ids = want.ids("ids");
    let rows = [want.numbers("rows.0"), want.numbers("rows.1")].concat();
    let hidden = rows.len() / ids.iter().filter(|id| **id == token).count();
    let (mut filled, mut taken) = (vec![0.0; ids.len() * hidden], rows.chunks(hidden));
    for (row, _) in filled.chunks_mut(hidden).zip(&ids).filter(|(_, id)| **id == token) {
        row.copy_from_slice(taken.next().unwrap());
    }
    let last = |at: usize| ids[at..].iter().take_while(|id| **id == token).count().max(1) + at - 1;
    let n = ids.len();
    let mut inputs = std::collections::BTreeMap::from([
        (
            "input_ids",
            Tensor::from_i64([1, n], ids.iter().map(|&id| i64::from(id)).collect()).unwrap(),
        ),
        (
            "media_mask",
            Tensor::new([1, n, 1], Data::Bool(ids.iter().map(|&id| id == token).collect())).unwrap(),
        ),
        ("media_rows", Tensor::from_f32([1, n, hidden], filled).unwrap()),
    ]);
    let function = Function::new(Arc::new(Bundle::open(&path).unwrap()), "decoder", None).unwrap();
    let sees_itself = function.graph().input("media_until").is_some();
    if sees_itself {
        let until = Tensor::from_i64([n], (0..n).map(|at| last(at) as i64).collect()).unwrap();
        inputs.insert("media_until", until);
    }
    let run = |inputs: &std::collections::BTreeMap<&str, Tensor>| {
        let named = inputs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        function.run(&Pool::new(2), 2, &named)
    };
    let logits = run(&inputs).unwrap();
    let far = farthest(logits[0].1.as_f32().unwrap(), &want.numbers("logits"));
    assert!(far < 1e-3, "{name}: {far}");
    if !sees_itself {
        return;
    }
    inputs.insert("media_until", Tensor::from_i64([n], vec![n as i64; n]).unwrap());
    let error = run(&inputs).unwrap_err().to_string();
    assert!(error.contains("sees up to position"), "{error}");
}

/// Several conversations at once: each answer is what it is alone, though no pass ends within a picture.
#[test]
fn answers_beside_others_are_those_of_each_alone() {
    for name in [
        "gemma3",
        "gemma3n",
        "gemma4",
        "gemma4_moe",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_vl",
    ] {
        beside_others(name);
    }
}

/// As many rows as the released models have, which see each other and so are computed by one call.
#[test]
fn pictures_that_see_themselves_fit_a_call_whatever_their_size() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for file in std::fs::read_dir(golden("gemma4_moe")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), source.join(file.file_name())).unwrap();
    }
    let at = source.join("preprocessor_config.json");
    let text = std::fs::read_to_string(&at).unwrap();
    std::fs::write(&at, text.replace("\"max_soft_tokens\": 70", "\"max_soft_tokens\": 280")).unwrap();
    let path = folder.path().join("bundle");
    convert(&source, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
    let picture = Picture::new(60, 40, picture_noise(60, 40, 7)).unwrap();
    for (asked, rows) in [(None, 200..281), (Some(140), 100..141)] {
        let options = LoadOptions {
            picture_rows: asked,
            threads: Some(2),
            ..LoadOptions::default()
        };
        let model = Model::load(&path, &options).unwrap();
        let tokens = asked.map(|tokens| tokens as u32);
        let pictures = Pictures::attach_with(&model, tokens, None).unwrap().unwrap();
        let shown = pictures.look_at(&model, &picture, &CancelToken::new()).unwrap().shown;
        assert!(rows.contains(&shown.media.len()), "{}", shown.media.len());
        let request = ChatRequest {
            messages: vec![
                json!({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}),
            ],
            pictures: vec![shown],
            ..ChatRequest::default()
        };
        let chat = Chat::new(&model, &request).unwrap();
        let mut session = model.session().unwrap();
        let answer = session
            .generate(&chat.prompt, &greedy("gemma4_moe", 4), &CancelToken::new(), &mut |_| {})
            .unwrap();
        assert!(!answer.completion_token_ids.is_empty());
    }
    // A model loaded for smaller ones says what to do.
    let options = LoadOptions {
        picture_rows: Some(70),
        chunk_tokens: 100,
        ..LoadOptions::default()
    };
    let model = Model::load(&path, &options).unwrap();
    let pictures = Pictures::attach(&model).unwrap().unwrap();
    let error = pictures
        .look_at(&model, &picture, &CancelToken::new())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("picture_rows") && error.contains("170 positions"),
        "{error}"
    );
}

fn beside_others(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (model, pictures) = load(&bundle(folder.path(), name, Bits::Eight), 16);
    let chats: Vec<Chat> = (0..6)
        .map(|i| {
            let (width, height) = (30 + 20 * i, 40);
            let picture = Picture::new(width, height, picture_noise(width, height, u64::from(i))).unwrap();
            let shown = pictures.look_at(&model, &picture, &CancelToken::new()).unwrap().shown;
            let before = "the one and the other ".repeat(i as usize);
            let content =
                json!([{"type": "text", "text": before}, {"type": "image"}, {"type": "text", "text": "What is it?"}]);
            let request = ChatRequest {
                messages: vec![json!({"role": "user", "content": content})],
                pictures: vec![shown],
                ..ChatRequest::default()
            };
            Chat::new(&model, &request).unwrap()
        })
        .collect();
    let options = greedy(name, 12);
    let alone: Vec<Vec<u32>> = chats
        .iter()
        .map(|chat| {
            let mut session = model.session().unwrap();
            let answer = session.generate(&chat.prompt, &options, &CancelToken::new(), &mut |_| {});
            answer.unwrap().completion_token_ids
        })
        .collect();
    let limits = SchedulerLimits {
        sequences: 4,
        ..SchedulerLimits::default()
    };
    let scheduler = Scheduler::new(Arc::clone(&model), limits).unwrap();
    let beside: Vec<Vec<u32>> = std::thread::scope(|scope| {
        let asked: Vec<_> = chats
            .iter()
            .map(|chat| {
                let (scheduler, options) = (&scheduler, &options);
                scope.spawn(move || scheduler.generate(chat.request(options.clone()), &mut |_| {}).unwrap())
            })
            .collect();
        asked
            .into_iter()
            .map(|made| made.join().unwrap().completion_token_ids)
            .collect()
    });
    assert_eq!(beside, alone, "{name}");
}

fn greedy(name: &str, tokens: usize) -> GenerateOptions {
    let special = match name {
        "gemma3n" => 7,
        "gemma3" | "gemma4" | "gemma4_moe" => 8,
        name if name.starts_with("qwen3") => 7,
        _ => 28,
    };
    // Tokens that are no text.
    let others = if name == "gemma3n" { 160..166 } else { 0..0 };
    GenerateOptions {
        max_tokens: tokens,
        temperature: 0.0,
        // No special token, as the golden script has it.
        logit_bias: (0..special).chain(others).map(|id| (id, -100.0)).collect(),
        ..GenerateOptions::default()
    }
}

#[test]
fn answers_are_the_same_alone_in_a_session_and_in_a_scheduler() {
    let folder = tempfile::tempdir().unwrap();
    for name in CASES {
        let want = Expected::of(name);
        let path = bundle(folder.path(), name, Bits::ThirtyTwo);
        let (model, pictures) = load(&path, 48);
        let request = want.request(&model, &pictures);
        let chat = Chat::new(&model, &request).unwrap();
        let mut session = model.session().unwrap();
        let options = greedy(name, 24);
        let answer = session
            .generate(&chat.prompt, &options, &CancelToken::new(), &mut |_| {})
            .unwrap();
        assert_eq!(answer.completion_token_ids, want.ids("greedy"), "{name}");

        let scheduler = Scheduler::new(Arc::clone(&model), SchedulerLimits::default()).unwrap();
        let ask = |chat: &Chat| {
            let made = scheduler.generate(chat.request(options.clone()), &mut |_| {}).unwrap();
            (made.completion_token_ids, made.cached_tokens)
        };
        let (first, known) = ask(&chat);
        assert_eq!((first, known), (want.ids("greedy"), 0), "{name}");
        // The same again begins with what was computed of it, its pictures among that.
        let (again, known) = ask(&chat);
        assert_eq!(again, want.ids("greedy"), "{name}");
        assert!(
            known >= chat.prompt.len() / 2,
            "{name}: {known} of {}",
            chat.prompt.len()
        );
        // Another picture in its place is another prompt.
        let other = Picture::new(40, 30, picture_noise(40, 30, 99)).unwrap();
        let mut changed = request.clone();
        changed.pictures[0] = pictures.look_at(&model, &other, &CancelToken::new()).unwrap().shown;
        let (answer, known) = ask(&Chat::new(&model, &changed).unwrap());
        assert_ne!(answer, want.ids("greedy"), "{name}");
        let same = chat.prompt.iter().take_while(|id| **id < FIRST_MEDIA_ID).count();
        assert!(
            known <= same,
            "{name}: {known} tokens, of which {same} come before the picture"
        );
    }
}

#[test]
fn next_question_about_a_picture_begins_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    for name in CASES {
        let (model, pictures) = load(&bundle(folder.path(), name, Bits::Eight), 32);
        let picture = Picture::new(60, 60, picture_noise(60, 60, 5)).unwrap();
        let scheduler = Scheduler::new(Arc::clone(&model), SchedulerLimits::default()).unwrap();
        // So long that the picture ends just before a block does, of which something is kept.
        let times = if name.starts_with("qwen") { 10 } else { 6 };
        let before = "the one and the other of them ".repeat(times);
        let ask = |question: &str| {
            let shown = pictures.look_at(&model, &picture, &CancelToken::new()).unwrap().shown;
            let rows = shown.media.len();
            let content =
                json!([{"type": "text", "text": before}, {"type": "image"}, {"type": "text", "text": question}]);
            let request = ChatRequest {
                messages: vec![json!({"role": "user", "content": content})],
                pictures: vec![shown],
                ..ChatRequest::default()
            };
            let chat = Chat::new(&model, &request).unwrap();
            let end = chat.prompt.iter().rposition(|id| *id >= FIRST_MEDIA_ID).unwrap() + 1;
            let made = scheduler.generate(chat.request(greedy(name, 4)), &mut |_| {}).unwrap();
            (made.cached_tokens, end, rows)
        };
        ask("What is this?");
        let (known, end, rows) = ask("Who has made it, and when?");
        assert!(
            known >= end && rows > 1,
            "{name}: {known} known, the picture ends at {end}"
        );
    }
}
