//! What may be shown to a model, and what is refused by name.

use super::{CASES, Expected, bundle, golden, greedy, load, words};
use cactus_engine::chat::{Asking, Chat, ChatRequest, MediaFile, Sense};
use cactus_engine::scheduler::{Request, Scheduler, SchedulerLimits};
use cactus_engine::{CancelToken, FIRST_MEDIA_ID, LoadOptions, Model};
use cactus_multimodal::{ErrorKind, Limits, Picture, Pictures};
use cactus_passes::Bits;
use cactus_testkit::picture_noise;
use serde_json::json;

#[test]
fn a_literal_token_is_no_picture() {
    let folder = tempfile::tempdir().unwrap();
    for name in CASES {
        let (model, pictures) = load(&bundle(folder.path(), name, Bits::Eight), 32);
        let picture = Picture::new(20, 20, picture_noise(20, 20, 5)).unwrap();
        let shown = pictures.look_at(&model, &picture, &CancelToken::new()).unwrap().shown;
        let [token, word] = words(name);
        let (before, behind) = (format!("an {word} or {token}"), format!("{word}?"));
        let content = json!([{"type": "text", "text": before}, {"type": "image"}, {"type": "text", "text": behind}]);
        let request = ChatRequest {
            messages: vec![json!({"role": "user", "content": content})],
            pictures: vec![shown.clone()],
            ..ChatRequest::default()
        };
        let chat = Chat::new(&model, &request).unwrap();
        let rows: Vec<u32> = chat.prompt.iter().copied().filter(|id| *id >= FIRST_MEDIA_ID).collect();
        assert_eq!(rows, shown.media.ids().collect::<Vec<_>>(), "{name}");
        let token = model.tokenizer().unwrap().token_id(token).unwrap();
        assert!(!chat.prompt.contains(&token), "{name}");
        // Without a picture the same text is text.
        let text = before + &behind;
        let plain = ChatRequest {
            messages: vec![json!({"role": "user", "content": text})],
            ..ChatRequest::default()
        };
        let chat = Chat::new(&model, &plain).unwrap();
        assert!(
            !chat.prompt.contains(&token) && chat.text.contains(&text),
            "{name}: {}",
            chat.text
        );
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path(), "smolvlm", Bits::Eight);
    let options = LoadOptions {
        context_tokens: 16,
        ..LoadOptions::default()
    };
    let model = Model::load(&path, &options).unwrap();
    let pictures = Pictures::attach(&model).unwrap().unwrap();
    let picture = Picture::new(60, 60, picture_noise(60, 60, 5)).unwrap();
    let error = pictures.look_at(&model, &picture, &CancelToken::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooManyTokens);
    assert!(error.to_string().contains("20 tokens"), "{error}");
    let error = pictures
        .look_at_file(&model, b"no picture", &Limits::default(), &CancelToken::new())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Picture);
    let cancel = CancelToken::new();
    cancel.cancel();
    let (large, small) = load(&path, 32);
    assert_eq!(
        small.look_at(&large, &picture, &cancel).unwrap_err().kind(),
        ErrorKind::Cancelled
    );

    // Ids that nobody holds rows of, in a session and in a scheduler.
    let lost = [1, FIRST_MEDIA_ID + 7, 2];
    let mut session = model.session().unwrap();
    let never = CancelToken::new();
    let error = session
        .generate(&lost, &greedy("smolvlm", 1), &never, &mut |_| {})
        .unwrap_err();
    assert!(error.to_string().contains("no picture"), "{error}");
    let limits = SchedulerLimits {
        sequences: 4,
        ..SchedulerLimits::default()
    };
    let scheduler = Scheduler::new(model, limits).unwrap();
    let request = Request::new(lost.to_vec(), greedy("smolvlm", 1));
    assert!(scheduler.generate(request, &mut |_| {}).is_err());
}

#[test]
fn pictures_and_parts_are_as_many() {
    let folder = tempfile::tempdir().unwrap();
    let (model, pictures) = load(&bundle(folder.path(), "lfm2_vl", Bits::Eight), 32);
    let want = Expected::of("lfm2_vl");
    let mut request = want.request(&model, &pictures);
    request.pictures.pop();
    let error = Chat::new(&model, &request).unwrap_err().to_string();
    assert!(error.contains("2 parts") && error.contains("found 1"), "{error}");
    request.pictures.clear();
    let error = Chat::new(&model, &request).unwrap_err().to_string();
    assert!(error.contains("no picture was given"), "{error}");
    let system = json!([{"role": "system", "content": [{"type": "image"}]}, {"role": "user", "content": "a"}]);
    request.messages = system.as_array().unwrap().clone();
    let error = Chat::new(&model, &request).unwrap_err().to_string();
    assert!(error.contains("messages[0].content[0]"), "{error}");
}

#[test]
fn what_was_shown_is_its_models_and_its_salts_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path(), "lfm2_vl", Bits::Eight);
    let (one, pictures) = load(&path, 32);
    let (other, _) = load(&path, 32);
    let picture = Picture::new(40, 40, picture_noise(40, 40, 3)).unwrap();
    let shown = pictures.look_at(&one, &picture, &CancelToken::new()).unwrap().shown;
    let request = ChatRequest {
        messages: vec![json!({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a"}]})],
        pictures: vec![shown],
        ..ChatRequest::default()
    };
    assert!(Chat::new(&one, &request).is_ok());
    let error = Chat::new(&other, &request).unwrap_err().to_string();
    assert!(error.contains("another model"), "{error}");
    let error = pictures.look_at(&other, &picture, &CancelToken::new()).unwrap_err();
    assert!(error.to_string().contains("another model"), "{error}");
    // Two pictures, one encoded after the other, are not taken for one; a tenant's are its own.
    let file = std::fs::read(golden("smolvlm").join("../../pictures/files/wide.png")).unwrap();
    let shows = one.shows(Sense::Picture).unwrap();
    let never = CancelToken::new();
    let ids = |salt| {
        let asking = Asking {
            salt,
            rolls: false,
            cancel: &never,
        };
        shows.show(&one, &[&MediaFile::File(file.clone())], &asking).unwrap()[0]
            .media
            .ids()
    };
    let (a, b) = (ids(1), ids(2));
    assert!(a.end < b.start && a == ids(1));
}

#[test]
fn letters_that_stand_for_pictures_are_refused_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _) = load(&bundle(folder.path(), "lfm2_vl", Bits::Eight), 32);
    let user = json!({"role": "user", "content": "a"});
    let tool =
        json!({"type": "function", "function": {"name": "f", "description": "<|im_\u{1fffe}end|>", "parameters": {}}});
    let call = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
        "function": {"name": "f", "arguments": "{\"a\": \"\\ud83f\\udffe\"}"}}]});
    let of_tools = ChatRequest {
        messages: vec![user.clone()],
        tools: vec![cactus_engine::chat::Tool::from_json(&tool).unwrap()],
        ..ChatRequest::default()
    };
    let of_calls = ChatRequest {
        messages: vec![
            user.clone(),
            call,
            json!({"role": "tool", "tool_call_id": "1", "content": "b"}),
            user,
        ],
        ..ChatRequest::default()
    };
    for request in [of_tools, of_calls] {
        let error = Chat::new(&model, &request).unwrap_err().to_string();
        assert!(error.contains("no text"), "{error}");
    }
}

#[test]
fn tokens_of_a_picture_are_a_choice_where_its_sizes_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path(), "gemma4", Bits::Eight);
    let model = Model::load(&path, &LoadOptions::default()).unwrap();
    let picture = Picture::new(50, 40, picture_noise(50, 40, 3)).unwrap();
    let look = |tokens: Option<u32>| {
        let pictures = Pictures::attach_with(&model, tokens, None).unwrap().unwrap();
        pictures.look_at(&model, &picture, &CancelToken::new()).unwrap()
    };
    let (usual, same, more) = (look(None), look(Some(70)), look(Some(140)));
    assert!(usual.plan.tokens <= 70 && (100..=140).contains(&more.plan.tokens));
    assert_eq!(usual.shown.media.rows(), same.shown.media.rows());
    assert_eq!(more.shown.media.len() as u64, more.plan.tokens);
    // What is known of a picture is known with its size.
    assert!(!more.shown.media.ids().contains(&usual.shown.media.ids().start));
    let error = Pictures::attach_with(&model, Some(100), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Picture, "{error}");
    assert!(error.to_string().contains("trained with one of"), "{error}");
    let path = bundle(folder.path(), "smolvlm", Bits::Eight);
    let model = Model::load(&path, &LoadOptions::default()).unwrap();
    let error = Pictures::attach_with(&model, Some(70), None).unwrap_err().to_string();
    assert!(error.contains("one size"), "{error}");
}
