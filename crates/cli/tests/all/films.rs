//! Films that a model sees.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use crate::cactus::Cactus;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(name)
}

/// A model that sees films, and a folder with so many frames of one.
fn model(frames: usize) -> Cactus {
    let c = Cactus::new();
    c.ok(&["convert", golden("seeing/smolvlm").to_str().unwrap(), "vlm"]);
    let folder = c.0.path().join("film");
    std::fs::create_dir(&folder).unwrap();
    let frame = std::fs::read(golden("pictures/files/wide.png")).unwrap();
    for i in 0..frames {
        std::fs::write(folder.join(format!("{i:03}.png")), &frame).unwrap();
    }
    std::fs::write(folder.join("notes.txt"), "no picture").unwrap();
    c
}

/// What a question about a film gives, and what is told of the film.
fn ask(c: &Cactus, more: &[&str]) -> (Value, String) {
    let base = [
        "run",
        "vlm",
        "--prompt",
        "What is this?",
        "--temperature",
        "0",
        "--max-tokens",
        "6",
        "--json",
    ];
    let args: Vec<&str> = base.iter().chain(&["--ignore-eos"]).chain(more).copied().collect();
    let out = c.run(&args);
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{told}");
    (serde_json::from_slice(&out.stdout).unwrap(), told)
}

fn tokens(answer: &Value) -> u64 {
    answer["prefill_tokens"].as_u64().unwrap()
}

#[test]
fn run_shows_a_model_the_frames_in_a_folder() {
    let c = model(6);
    let (none, _) = ask(&c, &[]);
    let (all, told) = ask(&c, &["--video", "film"]);
    assert!(told.contains("film: 6 frames of 32 x 32 pixels, 24 tokens"), "{told}");
    assert!(tokens(&none) + 24 < tokens(&all), "{none} {all}");
    // A frame a second is seen of two, and two of all.
    let (half, told) = ask(&c, &["--video-file", "film", "--video-fps", "2"]);
    assert!(told.contains("film: 3 frames"), "{told}");
    let (two, told) = ask(&c, &["--video", "film", "--video-frames", "2"]);
    assert!(told.contains("film: 2 frames"), "{told}");
    assert!(
        tokens(&two) < tokens(&half) && tokens(&half) < tokens(&all),
        "{two} {half} {all}"
    );
    assert!(
        c.ok(&["inspect", "vlm"])
            .contains("of a film one frame a second, at most 64")
    );
}

#[test]
fn run_takes_frames_out_of_a_film_where_the_system_has_ffmpeg() {
    if !["ffmpeg", "ffprobe"]
        .iter()
        .all(|program| Command::new(program).arg("-version").output().is_ok())
    {
        eprintln!("skipped: ffmpeg is not installed");
        return;
    }
    let c = model(0);
    let film = golden("../crates/audio/tests/files/video_and_sound.mp4");
    let film = film.to_str().unwrap();
    // Six frames in 0.6 seconds, of which one is seen.
    let (_, told) = ask(&c, &["--video", film]);
    assert!(told.contains("mp4: 1 frames of 32 x 32 pixels, 4 tokens"), "{told}");
    // The same as of a picture of it, taken out by hand.
    let frame = c.0.path().join("film/0.jpg");
    let took = Command::new("ffmpeg")
        .args(["-v", "error", "-i", film, "-frames:v", "1", "-qmin", "1", "-q:v", "1"])
        .arg(&frame)
        .status();
    assert!(took.unwrap().success());
    let answers = [film, "film"].map(|film| ask(&c, &["--video", film, "--video-fps", "1.7"]).0["response"].clone());
    assert_eq!(answers[0], answers[1]);
    // More frames than one sum of `ffmpeg` may have, of which none is left out.
    let long = c.0.path().join("long.mp4");
    let source = "testsrc=duration=300:size=32x32:rate=2";
    let made = Command::new("ffmpeg")
        .args(["-v", "error", "-f", "lavfi", "-i", source, "-c:v", "mpeg4"])
        .arg(&long)
        .status();
    assert!(made.unwrap().success());
    let out = c.run(&[
        "run",
        "vlm",
        "--prompt",
        "x",
        "--video",
        "long.mp4",
        "--video-frames",
        "300",
    ]);
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(told.contains("300 frames") && told.contains("1200 tokens"), "{told}");
    for (file, text) in [
        ("no_film.mp4", "no film"),
        ("list.m3u8", "#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n"),
    ] {
        std::fs::write(c.0.path().join(file), text).unwrap();
        let out = c.run(&["run", "vlm", "--prompt", "x", "--video", file]);
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && error.contains("cannot read it"), "{error}");
    }
}

#[test]
fn films_that_are_none_are_refused_by_name() {
    let c = model(1);
    c.ok(&["convert", golden("seeing/lfm2_vl").to_str().unwrap(), "still"]);
    std::fs::create_dir(c.0.path().join("empty")).unwrap();
    std::fs::write(c.0.path().join("film/zzz.png"), "no picture").unwrap();
    for (args, words) in [
        (
            &["run", "still", "--prompt", "x", "--video", "film"][..],
            "sees no films",
        ),
        (&["run", "vlm", "--prompt", "x", "--video", "empty"], "has no pictures"),
        (
            &["run", "vlm", "--prompt", "x", "--video", "absent.mp4"],
            "cannot read `absent.mp4`",
        ),
        (&["run", "vlm", "--prompt", "x", "--video", "film"], "`film`"),
        (
            &["run", "vlm", "--prompt", "x", "--video", "film", "--video-fps", "0"],
            "frames a second",
        ),
        (
            &["run", "vlm", "--prompt", "x", "--video", "film", "--video-frames", "0"],
            "--video-frames",
        ),
        (
            &["run", "vlm", "--prompt", "x", "--video", "film", "--raw"],
            "cannot be used with",
        ),
    ] {
        let out = c.run(args);
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && error.contains(words), "{args:?}: {error}");
    }
}
