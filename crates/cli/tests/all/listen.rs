//! `cactus listen`, with a tiny Whisper and a detector that hears one tone, from files, a pipe, and a recorder.

use crate::cactus::Cactus;
use cactus_testkit::http::{Server, json_answer};
use cactus_testkit::tone;
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::Stdio;

/// The models `whisper` and `vad`, and `sound.raw`, two tones.
fn prepared() -> Cactus {
    let c = Cactus::new();
    let whisper = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/speech/whisper");
    c.ok(&["convert", whisper, "whisper"]);
    let detector = tone::write_detector(c.0.path()).unwrap();
    c.ok(&["convert", detector.to_str().unwrap(), "vad"]);
    let samples = tone::sound(&[(0.5, 0.3), (0.7, 0.3), (0.7, 0.0)]);
    let bytes: Vec<u8> = samples
        .iter()
        .flat_map(|s| ((s * 32767.0) as i16).to_le_bytes())
        .collect();
    std::fs::write(c.0.path().join("sound.raw"), bytes).unwrap();
    c
}

const MODELS: [&str; 6] = ["--model", "whisper", "--vad", "vad", "--language", "de"];

fn events(told: &str) -> Vec<Value> {
    told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn phrases_come_from_a_pipe_and_a_recorder() {
    let c = prepared();
    let with =
        |args: &[&'static str]| [&["listen"], args, &MODELS, &["--step-ms", "100", "--silence-ms", "150"]].concat();
    let recorded = c.ok(&with(&["--recorder", "cat sound.raw", "--format", "json"]));
    let found = events(&recorded);
    let of = |kind: &str| found.iter().filter(|e| e["event"] == kind).collect::<Vec<_>>();
    assert_eq!((of("speech_start").len(), of("speech_end").len()), (2, 2), "{recorded}");
    assert!(of("partial").len() >= 4, "{recorded}");
    for (phrase, begins) in of("speech_start").iter().zip([0.5, 1.5]) {
        let start = phrase["start_s"].as_f64().unwrap();
        assert!((start - begins).abs() < 0.05, "{phrase}");
    }
    let finals = of("final");
    assert!(
        !finals.is_empty() && finals.iter().all(|e| e["language"] == "de"),
        "{recorded}"
    );

    // The same through a pipe, whose pieces are cut within samples.
    let mut child = c
        .command(&with(&["-", "--format", "json"]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes = std::fs::read(c.0.path().join("sound.raw")).unwrap();
    let mut pipe = child.stdin.take().unwrap();
    bytes.chunks(777).for_each(|piece| pipe.write_all(piece).unwrap());
    drop(pipe);
    let piped = child.wait_with_output().unwrap();
    assert!(piped.status.success());
    assert_eq!(String::from_utf8(piped.stdout).unwrap(), recorded);

    let text = c.ok(&with(&["--recorder", "cat sound.raw"]));
    let shown = text.lines().filter(|line| line.starts_with("[00:00:0")).count();
    assert_eq!(shown, finals.len(), "{text}");
}

#[test]
fn transcribing_at_the_microphone_is_listening() {
    let c = prepared();
    let sound = ["--recorder", "cat sound.raw"];
    for format in ["text", "json"] {
        let [listened, transcribed] = [&["listen"][..], &["transcribe", "--mic"]]
            .map(|command| c.ok(&[command, &sound, &["--format", format], &MODELS].concat()));
        assert!(!listened.is_empty());
        assert_eq!(transcribed, listened, "{format}");
    }
    let wrong = |args: &[&'static str]| {
        let out = c.run(&[&["transcribe"], args].concat());
        assert!(!out.status.success(), "{args:?}");
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    assert!(wrong(&["--mic", "--model", "whisper"]).contains("--vad"));
    assert!(wrong(&[&["--mic", "--format", "srt"], &MODELS[..]].concat()).contains("`text` or `json`"));
    assert!(wrong(&[&["--mic", "sound.wav"], &MODELS[..]].concat()).contains("--mic"));
    assert!(wrong(&[&["sound.wav", "--recorder", "cat"], &MODELS[..]].concat()).contains("--recorder"));
}

#[test]
fn a_lost_microphone_keeps_what_was_said() {
    let c = prepared();
    let script = c.0.path().join("unplugged.sh");
    std::fs::write(&script, "cat sound.raw; echo 'device is gone' >&2; exit 3").unwrap();
    let args = [
        &["listen", "--recorder", "sh unplugged.sh", "--format", "json"][..],
        &MODELS,
    ]
    .concat();
    let out = c.run(&args);
    let (told, said) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(
        said.contains("`sh` stopped recording") && said.contains("device is gone"),
        "{said}"
    );
    assert!(events(&told).iter().any(|e| e["event"] == "final"), "{told}");
}

#[test]
fn doubtful_phrases_are_heard_again_and_the_text_from_here_stays() {
    let c = prepared();
    let listen = |more: &[&str]| {
        let sound = ["--recorder", "cat sound.raw", "--format", "json"];
        events(&c.ok(&[&["listen"], &sound[..], &MODELS, more].concat()))
    };
    let of = |found: &[Value], kind: &str| -> Vec<Value> {
        let kept = found.iter().filter(|e| e["event"] == kind);
        kept.cloned().collect()
    };
    let alone = of(&listen(&["--words"]), "final");
    assert!(!alone.is_empty());
    // The target hears other words, as many and as long as those of the first phrase.
    let words = alone[0]["segment"]["words"].as_array().unwrap().iter();
    let words = words.map(|word| "x".repeat(word["text"].as_str().unwrap().trim().chars().count()));
    let heard = words.collect::<Vec<_>>().join(" ");
    let whole = json_answer("200 OK", &json!({"text": heard}));
    let half = whole[..whole.len() - 3].to_vec();
    for (answer, changes) in [(whole, true), (half, false)] {
        let target = Server::of(vec![answer]);
        let address = format!("http://127.0.0.1:{}/v1#ear", target.port());
        let cloud = ["--cloud", &address, "--handoff", "always"];
        let silent = listen(&cloud);
        assert_eq!(target.connections(), 0, "nobody said yes");
        let told = listen(&[&cloud[..], &["--consent", "audio"]].concat());
        assert!(target.asked() >= 1);
        for found in [&silent, &told] {
            let finals = of(found, "final");
            assert_eq!(finals.len(), alone.len());
            for (now, before) in finals.iter().zip(&alone) {
                assert_eq!(now["segment"]["text"], before["segment"]["text"]);
                assert!(now["segment"].get("words").is_none(), "{now}");
            }
        }
        let revisions = of(&told, "revision");
        assert_eq!(revisions.len(), alone.len());
        let (first, text) = (&revisions[0], &alone[0]["segment"]["text"]);
        assert_eq!(first["id"], alone[0]["segment"]["id"]);
        assert_eq!(first["revision"], json!(u32::from(changes)), "{first}");
        assert_eq!(
            first["answered_by"],
            json!(if changes { "ear" } else { "local" }),
            "{first}"
        );
        assert_eq!(first["segment"]["text"] != *text, changes, "{first}");
    }
}

#[test]
fn what_cannot_be_listened_to_is_named() {
    let c = prepared();
    let refused = |args: &[&str]| {
        let out = c.run(&[&["listen"], args].concat());
        assert!(!out.status.success(), "{args:?}");
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let with = |args: &[&'static str]| refused(&[args, &MODELS].concat());
    assert!(with(&["absent.wav"]).contains("absent.wav"));
    assert!(with(&["--recorder", "no-such-program -x"]).contains("`no-such-program` cannot be started"));
    assert!(with(&["--recorder", " "]).contains("should name a program"));
    assert!(with(&["-", "--recorder", "cat"]).contains("--recorder"));
    assert!(with(&["-", "--vad-threshold", "2"]).contains("`threshold`"));
    assert!(with(&["-", "--budget", "1"]).contains("add `--cloud TARGET`"));
    assert!(with(&["-", "--beams", "99"]).contains("at most 32, found 99"));
    assert!(refused(&["-", "--model", "whisper", "--vad", "whisper"]).contains("it writes down what is said"));
    assert!(refused(&["-", "--model", "vad", "--vad", "vad"]).contains("it finds where somebody speaks"));
}
