//! Conversations on disk: what comes back goes on as if it had never been away, and what is not whole or not ours is refused.

use crate::support::bundle;
use cactus_engine::{CancelToken, ErrorKind, GenerateOptions, KvDType, LoadOptions, Model, Session};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn load(bundle: &Path, kv_dtype: KvDType, chunk_tokens: usize) -> Arc<Model> {
    let load = LoadOptions {
        context_tokens: 320,
        chunk_tokens,
        kv_dtype,
        threads: Some(1),
        ..LoadOptions::default()
    };
    Model::load(bundle, &load).unwrap()
}

fn answer(session: &mut Session, prompt: &[u32]) -> (Vec<u32>, usize) {
    let options = GenerateOptions {
        max_tokens: 12,
        ignore_eos: true,
        ..GenerateOptions::default()
    };
    let completion = session
        .generate(prompt, &options, &CancelToken::new(), &mut |_| {})
        .unwrap();
    (completion.completion_token_ids, completion.cached_tokens)
}

#[test]
fn a_conversation_goes_on_where_it_was_saved() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chats/one");
    for case in ["llama", "gemma3_text", "lfm2"] {
        let bundle = bundle(case, folder.path());
        // Windows keep more where chunks are larger.
        let model = load(&bundle, KvDType::I8G32, 96);
        let mut prompt: Vec<u32> = (0..200).map(|i| 3 + (i * 5) % 47).collect();
        let mut session = model.session().unwrap();
        prompt.extend(answer(&mut session, &prompt).0);
        session.save(&file, "Grüße").unwrap();
        let held = session.tokens().len();
        prompt.extend([7, 8, 9]);
        let (expected, _) = answer(&mut session, &prompt);
        for chunk_tokens in [96, 32] {
            let mut other = load(&bundle, KvDType::I8G32, chunk_tokens).session().unwrap();
            answer(&mut other, &[4, 4, 4]);
            assert_eq!(other.restore(&file).unwrap(), "Grüße");
            assert_eq!(answer(&mut other, &prompt), (expected.clone(), held), "{case}");
        }
    }
    let left = fs::read_dir(file.parent().unwrap()).unwrap();
    assert_eq!(left.count(), 1, "only the file stays");
}

#[cfg(unix)]
#[test]
fn a_saved_conversation_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one");
    fs::write(&file, "anybody's").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let model = load(&bundle("llama", folder.path()), KvDType::I8G32, 96);
    model.session().unwrap().save(&file, "").unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_conversation_that_is_replaced_while_it_is_taken_back_is_one_of_the_two() {
    let folder = tempfile::tempdir().unwrap();
    let (file, spare) = (folder.path().join("one"), folder.path().join("spare"));
    let model = load(&bundle("llama", folder.path()), KvDType::I8G32, 96);
    let notes = ["short".to_owned(), "long".repeat(100_000)];
    let saved = notes.clone().map(|note| {
        model.session().unwrap().save(&file, &note).unwrap();
        fs::read(&file).unwrap()
    });
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for bytes in saved.iter().cycle() {
                if over.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                fs::write(&spare, bytes).unwrap();
                fs::rename(&spare, &file).unwrap();
            }
        });
        let mut session = model.session().unwrap();
        let restored: Vec<_> = (0..200).map(|_| session.restore(&file)).collect();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        for note in restored {
            assert!(notes.contains(&note.unwrap()));
        }
    });
}

#[test]
fn what_is_damaged_or_of_another_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bundle_path = bundle("llama", folder.path());
    let model = load(&bundle_path, KvDType::I8G32, 96);
    let file = folder.path().join("one");
    let mut session = model.session().unwrap();
    answer(&mut session, &(0..70).map(|i| 3 + i % 40).collect::<Vec<u32>>());
    session.save(&file, "").unwrap();
    let refused = |session: &mut Session, expected: &str| {
        let e = session.restore(&file).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Saved, "{e}");
        assert!(e.to_string().contains(expected), "{e}");
    };
    refused(
        &mut load(&bundle_path, KvDType::F16, 96).session().unwrap(),
        "keys and values",
    );
    let other = bundle("qwen2", folder.path());
    refused(
        &mut load(&other, KvDType::I8G32, 96).session().unwrap(),
        "another model",
    );
    // Nothing of a damaged file is taken, wherever the damage is.
    let whole = fs::read(&file).unwrap();
    for at in (0..whole.len()).step_by(whole.len() / 97) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&file, &damaged).unwrap();
        refused(&mut session, "damaged");
        fs::write(&file, &whole[..at]).unwrap();
        assert_eq!(session.restore(&file).unwrap_err().kind(), ErrorKind::Saved);
    }
    fs::remove_file(&file).unwrap();
    refused(&mut session, "cannot read it");
    // The session is as usable as before.
    answer(&mut session, &[5, 6, 7]);
}

#[test]
fn a_save_that_fails_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let model = load(&bundle("llama", folder.path()), KvDType::I8G32, 96);
    let mut session = model.session().unwrap();
    answer(&mut session, &[5, 6, 7]);
    // A folder is in the way.
    let file = folder.path().join("taken");
    fs::create_dir(&file).unwrap();
    assert_eq!(session.save(&file, "").unwrap_err().kind(), ErrorKind::Saved);
    assert!(file.is_dir());
    assert!(!folder.path().read_dir().unwrap().any(|e| {
        let name = e.unwrap().file_name();
        name.to_string_lossy().starts_with('.')
    }));
}

/// Saves two conversations in turn, again and again, for the test below to end.
#[test]
#[ignore = "runs until it is killed; run by the test below"]
fn save_forever() {
    let folder = PathBuf::from(std::env::var("CACTUS_TEST_SAVE").unwrap());
    let model = load(&folder.join("llama"), KvDType::I8G32, 96);
    let (mut one, mut two) = (model.session().unwrap(), model.session().unwrap());
    answer(&mut one, &[5; 100]);
    answer(&mut two, &[6; 150]);
    loop {
        one.save(&folder.join("saved"), "").unwrap();
        two.save(&folder.join("saved"), "").unwrap();
    }
}

#[test]
fn a_process_killed_while_it_saves_leaves_a_whole_file() {
    let folder = tempfile::tempdir().unwrap();
    let model = load(&bundle("llama", folder.path()), KvDType::I8G32, 96);
    let file = folder.path().join("saved");
    let mut session = model.session().unwrap();
    answer(&mut session, &[7; 30]);
    session.save(&file, "").unwrap();
    for round in 0..8 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "saved_sessions::save_forever"])
            .env("CACTUS_TEST_SAVE", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Once it saves, it is killed wherever it is then.
        let before = fs::metadata(&file).unwrap().modified().unwrap();
        let begun = Instant::now();
        while fs::metadata(&file).unwrap().modified().unwrap() == before && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(3 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        session.restore(&file).unwrap();
        assert!(
            matches!(session.tokens().len(), 111 | 161),
            "{}",
            session.tokens().len()
        );
    }
    // What the killed ones left behind is removed by whoever saves next.
    session.save(&file, "").unwrap();
    let names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
}
