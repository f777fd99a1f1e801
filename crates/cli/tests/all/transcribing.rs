//! `cactus transcribe` with many recordings: folders, several at a time, transcripts in files. The model has random weights.

use crate::cactus::Cactus;
use cactus_testkit::tone;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// `whisper`, and in `talks` four recordings, one of them in a folder, a file that is none, a hidden one and a damaged one.
fn prepared() -> Cactus {
    let c = Cactus::new();
    let whisper = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/speech/whisper");
    c.ok(&["convert", whisper, "whisper"]);
    let talks = c.0.path().join("talks");
    fs::create_dir_all(talks.join("day 2")).unwrap();
    for (name, parts) in [
        ("b.wav", [(0.1, 0.5), (0.2, 0.4)]),
        ("a.WAV", [(0.0, 2.0), (0.3, 0.2)]),
        ("day 2/a.wav", [(0.5, 0.1), (0.1, 0.7)]),
        ("c.wav", [(0.2, 0.2), (0.2, 0.2)]),
        (".hidden.wav", [(0.2, 0.2), (0.2, 0.2)]),
    ] {
        fs::write(talks.join(name), tone::wav(&tone::sound(&parts))).unwrap();
    }
    fs::write(talks.join("notes.txt"), "not a recording").unwrap();
    c
}

const OPTIONS: [&str; 4] = ["--model", "whisper", "--language", "de"];

fn transcribe<'a>(what: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [&["transcribe"], what, &OPTIONS, more].concat()
}

fn read(c: &Cactus, path: &str) -> String {
    fs::read_to_string(c.0.path().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn folders_are_written_down_in_order_however_many_at_a_time() {
    let c = prepared();
    let json = |more: &[&str]| c.ok(&transcribe(&["talks"], &[&["--format", "json"], more].concat()));
    let one = json(&["--jobs", "1"]);
    assert_eq!(json(&["--jobs", "3", "--threads", "2"]), one);
    assert_eq!(json(&[]), one);
    // Random weights are sure of nothing: what they write beside silence goes.
    let said = json(&["--hallucination-silence", "0.3"]);
    assert!(said.len() < one.len(), "{said}");
    let told = c.run(&transcribe(&["talks"], &["--hallucination-silence", "0"]));
    assert!(String::from_utf8_lossy(&told.stderr).contains("at least 0.1 seconds"));
    let told = serde_json::Deserializer::from_str(&one).into_iter::<Value>();
    let told: Vec<Value> = told.map(Result::unwrap).collect();
    let names: Vec<&str> = told.iter().map(|t| t["file"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["talks/a.WAV", "talks/b.wav", "talks/c.wav", "talks/day 2/a.wav"]
    );
    // A file that is named twice, by itself and by its folder, is transcribed once.
    let text = c.ok(&transcribe(&["talks/b.wav", "talks"], &["--jobs", "2"]));
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("# ")).collect();
    assert_eq!(
        headings,
        ["# talks/b.wav", "# talks/a.WAV", "# talks/c.wav", "# talks/day 2/a.wav"]
    );
    assert_eq!(c.ok(&transcribe(&["talks/b.wav", "talks"], &["--jobs", "1"])), text);
}

#[test]
fn transcripts_in_files_are_kept_until_their_recording_changes() {
    let c = prepared();
    fs::write(c.0.path().join("talks/c.mp3"), "damaged").unwrap();
    let to = |more: &[&str]| {
        c.run(&transcribe(
            &["talks"],
            &[&["--output", "out", "--format", "srt"], more].concat(),
        ))
    };
    let said = |out: &std::process::Output| String::from_utf8_lossy(&out.stderr).into_owned();
    let first = to(&[]);
    let told = said(&first);
    assert_eq!(first.status.code(), Some(1), "{told}");
    assert!(first.stdout.is_empty());
    assert!(
        told.contains("talks/c.mp3") && told.contains("1 of 5 recordings could not"),
        "{told}"
    );
    // Beside a recording of the same name, the whole name is kept.
    let files = ["out/a.srt", "out/b.srt", "out/c.wav.srt", "out/day 2/a.srt"];
    let alone = c.ok(&transcribe(&["talks/b.wav"], &["--format", "srt"]));
    assert_eq!(read(&c, "out/b.srt"), alone);
    let mut entries: Vec<_> = fs::read_dir(c.0.path().join("out"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    entries.sort();
    assert_eq!(entries, ["a.srt", "b.srt", "c.wav.srt", "day 2"]);

    // What is there stays, but for what is missing or older than its recording.
    fs::remove_file(c.0.path().join("talks/c.mp3")).unwrap();
    for file in ["out/a.srt", "out/c.wav.srt", "out/day 2/a.srt"] {
        fs::write(c.0.path().join(file), "mine").unwrap();
    }
    fs::rename(c.0.path().join("out/c.wav.srt"), c.0.path().join("out/c.srt")).unwrap();
    fs::remove_file(c.0.path().join("out/b.srt")).unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let day2 = fs::File::options().write(true).open(c.0.path().join(files[3])).unwrap();
    day2.set_modified(old).unwrap();
    let again = to(&[]);
    let told = said(&again);
    assert!(again.status.success(), "{told}");
    assert!(
        told.contains("2 of 4 recordings are written down already") && told.contains("--overwrite"),
        "{told}"
    );
    assert_eq!(
        (read(&c, "out/a.srt"), read(&c, "out/c.srt")),
        ("mine".into(), "mine".into())
    );
    assert_eq!(read(&c, "out/b.srt"), alone);
    assert_ne!(read(&c, files[3]), "mine");

    let anew = to(&["--overwrite"]);
    assert!(anew.status.success(), "{}", said(&anew));
    assert_ne!(read(&c, "out/a.srt"), "mine");
    assert!(said(&to(&[])).contains("4 of 4"));
}

/// What there is of a file that was cut off is written down, with a word about it.
#[test]
fn a_file_that_ends_early_is_written_down_with_a_warning() {
    let c = prepared();
    let whole = fs::read(c.0.path().join("talks/a.WAV")).unwrap();
    fs::write(c.0.path().join("cut.wav"), &whole[..whole.len() * 2 / 3]).unwrap();
    let out = c.run(&transcribe(&["cut.wav"], &[]));
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{told}");
    assert!(
        told.contains("`cut.wav`: the file ends early: it states 2.50 s and has 1.67 s"),
        "{told}"
    );
    let out = c.run(&transcribe(&["talks/a.WAV"], &[]));
    assert!(!String::from_utf8_lossy(&out.stderr).contains("ends early"));
}

#[test]
fn no_transcript_takes_the_place_of_another() {
    let c = prepared();
    let talks = c.0.path().join("talks");
    // A name that ends as the transcript of another does.
    fs::copy(talks.join("b.wav"), talks.join("c.mp3.wav")).unwrap();
    fs::copy(talks.join("b.wav"), talks.join("c.mp3")).unwrap();
    c.ok(&transcribe(&["talks"], &["--output", "out"]));
    let mut written: Vec<String> = fs::read_dir(c.0.path().join("out"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    written.sort();
    assert_eq!(
        written,
        ["a.txt", "b.txt", "c.mp3.txt", "c.mp3.wav.txt", "c.wav.txt", "day 2"]
    );
    // Two of one name, from two places.
    let out = c.run(&transcribe(&["talks/a.WAV", "talks/day 2/a.wav"], &["--output", "two"]));
    let two = [&out.stdout[..], &out.stderr].concat();
    let told = String::from_utf8_lossy(&two);
    assert!(out.status.success(), "{told}");
    fs::copy(talks.join("b.wav"), talks.join("day 2/b.wav")).unwrap();
    let out = c.run(&transcribe(&["talks/b.wav", "talks/day 2/b.wav"], &["--output", "one"]));
    let told = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{told}");
    assert!(
        told.contains("talks/b.wav") && told.contains("talks/day 2/b.wav") && told.contains("one/b.wav.txt"),
        "{told}"
    );
    assert!(!c.0.path().join("one").exists());
}

#[test]
fn what_cannot_be_done_is_said_before_anything_is() {
    let c = prepared();
    fs::create_dir(c.0.path().join("empty")).unwrap();
    for (what, more, said) in [
        ("empty", &[][..], "has no recording"),
        ("talks", &["--overwrite"], "--output"),
        ("talks", &["--jobs", "0"], "--jobs"),
        (
            "talks",
            &["--jobs", "2", "--cloud", "http://127.0.0.1:9/v1#ear"],
            "`--jobs`",
        ),
    ] {
        let out = c.run(&transcribe(&[what], more));
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{more:?}: {told}");
        assert!(told.contains(said), "{more:?}: {told}");
        assert!(out.stdout.is_empty());
    }
    // A place that takes no files: said before anything is heard.
    fs::write(c.0.path().join("file"), "").unwrap();
    let told = c.run(&transcribe(&["talks"], &["--output", "file"]));
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.contains("`file` is a file") && !told.contains("a.txt"), "{told}");
    assert!(Path::new(&c.0.path().join("file")).is_file());
}

#[test]
fn models_of_positions_are_transcribed_with_as_others_are() {
    let c = Cactus::new();
    for name in ["parakeet_ctc", "parakeet_tdt"] {
        let source = format!("{}/../../golden/speech/{name}", env!("CARGO_MANIFEST_DIR"));
        // What they were made to hear something in.
        let expected = fs::read(Path::new(&source).join("expected.safetensors")).unwrap();
        let expected = safetensors::SafeTensors::deserialize(&expected).unwrap();
        let bytes = expected.tensor("sound").unwrap().data().to_vec();
        let samples = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
        fs::write(c.0.path().join("a.wav"), tone::wav(&samples.collect::<Vec<f32>>())).unwrap();
        // The folder itself, which is converted on the way.
        let run = |more: &[&str]| c.ok(&[&["transcribe", "a.wav", "--model", &source], more].concat());
        let json =
            |more: &[&str]| -> Value { serde_json::from_str(&run(&[&["--format", "json"], more].concat())).unwrap() };
        let found = json(&["--words"]);
        assert!(
            found["language"].is_null() && found["duration_s"].as_f64().is_some(),
            "{found}"
        );
        let segments = found["segments"].as_array().unwrap();
        assert!(!segments.is_empty(), "{found}");
        for segment in segments {
            let words = segment["words"].as_array().unwrap();
            let texts: String = words.iter().map(|w| w["text"].as_str().unwrap()).collect();
            assert_eq!(segment["text"], texts);
            assert_eq!(
                (&segment["start_s"], &segment["end_s"]),
                (&words[0]["start_s"], &words[words.len() - 1]["end_s"])
            );
        }
        // Whatever the number of threads.
        assert_eq!(json(&["--words", "--threads", "1"]), found);
        assert!(run(&["--format", "srt"]).contains(" --> ") && run(&["--format", "vtt"]).starts_with("WEBVTT"));
        assert!(run(&[]).starts_with('['), "a line for each segment");
        json(&["--beams", "4", "--hotwords", "the,and"]);
        assert_eq!(json(&["--language", "en"])["language"], "en");
        let refused = c.run(&[
            "transcribe",
            "a.wav",
            "--model",
            &source,
            "--hallucination-silence",
            "2",
        ]);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && told.contains("writes nothing of silence"),
            "{told}"
        );
        let refused = c.run(&["transcribe", "a.wav", "--model", &source, "--language", "de"]);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && told.contains("its vocabulary lacks letters of `de`"),
            "{told}"
        );
    }
}
