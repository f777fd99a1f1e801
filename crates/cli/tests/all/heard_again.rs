//! `cactus transcribe` with a target that hears again what is doubtful. The model has random weights, and is never sure.

use crate::cactus::Cactus;
use cactus_testkit::http::{Server, json_answer};
use serde_json::{Value, json};

fn prepared() -> Cactus {
    let c = Cactus::new();
    let whisper = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/speech/whisper");
    c.ok(&["convert", whisper, "whisper"]);
    let samples = (0..64_000).map(|i| (16_000.0 * (f64::from(i) * f64::from(i) * 1e-5).sin()) as i16);
    let data: Vec<u8> = samples.flat_map(i16::to_le_bytes).collect();
    let mut file = b"RIFF".to_vec();
    file.extend((36 + data.len() as u32).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    std::fs::write(c.0.path().join("sound.wav"), file).unwrap();
    c
}

const TRANSCRIBE: [&str; 6] = ["transcribe", "sound.wav", "--model", "whisper", "--language", "de"];

#[test]
fn segments_say_who_heard_them_and_nothing_leaves_without_consent() {
    let c = prepared();
    let run = |more: &[&str]| c.ok(&[&TRANSCRIBE, more].concat());
    let alone: Value = serde_json::from_str(&run(&["--format", "json"])).unwrap();
    assert!(alone.get("answered_by").is_none());
    assert!(
        alone["segments"][0]["confidence"]
            .as_f64()
            .is_some_and(|c| c > 0.0 && c < 1.0)
    );
    // The target hears other words, as many and as long.
    let timed: Value = serde_json::from_str(&run(&["--format", "json", "--words"])).unwrap();
    let segments = timed["segments"].as_array().unwrap().iter();
    let words = segments.flat_map(|segment| segment["words"].as_array().unwrap());
    let words = words.map(|word| "x".repeat(word["text"].as_str().unwrap().trim().chars().count()));
    let words: Vec<String> = words.collect();
    let longest = words.iter().max_by_key(|word| word.len()).unwrap();
    let answer = json!({"text": words.join(" ")});
    let target = Server::of(vec![json_answer("200 OK", &answer)]);
    let cloud = format!("http://127.0.0.1:{}/v1#ear", target.port());
    let cloud = ["--cloud", &cloud, "--handoff", "always", "--format", "json"];
    let silent: Value = serde_json::from_str(&run(&cloud)).unwrap();
    assert_eq!((target.connections(), &silent["reason"]), (0, &json!("nobody_to_ask")));
    assert_eq!(silent["segments"][0]["answered_by"], "local");

    let told: Value = serde_json::from_str(&run(&[&cloud[..], &["--consent", "audio"]].concat())).unwrap();
    assert_eq!(
        (&told["answered_by"], &told["route"], &told["reason"]),
        (&json!("ear"), &json!("cloud"), &json!("always"))
    );
    assert_eq!((&told["cost_usd"], &told["attempts"]), (&json!(0.0), &json!(1)));
    let segments = told["segments"].as_array().unwrap();
    assert!(segments.iter().all(|segment| segment.get("words").is_none()), "{told}");
    let changed = segments.iter().find(|segment| segment["revision"] == 1).unwrap();
    assert_eq!(changed["answered_by"], "ear");
    assert!(changed["text"].as_str().unwrap().contains('x'), "{changed}");
    assert!(told["text"].as_str().unwrap().contains(longest.as_str()), "{told}");
    assert!(told["heard_again"]["sent_s"].as_f64().unwrap() > 1.0);
    let text = run(&["--cloud", cloud[1], "--handoff", "always", "--consent", "audio"]);
    assert!(text.contains(longest.as_str()), "{text}");
    let log = c.ok(&["route", "log"]);
    assert!(log.contains("ear") && !log.contains(longest.as_str()), "{log}");
    assert!(c.ok(&["route", "explain"]).contains("s were sent"));
}

#[test]
fn options_that_mean_nothing_are_refused() {
    let c = prepared();
    for (more, expected) in [
        (&["--budget", "1"][..], "add `--cloud TARGET`"),
        (&["--consent", "audio"], "add `--cloud TARGET`"),
        (&["--cloud", "claude-haiku-5-5"], ""),
        (
            &["--cloud", "http://127.0.0.1:1/v1#ear", "--translate"],
            "`--translate`",
        ),
        (&["--cloud", "https://example.com/v1#ear"], "nobody has said what"),
    ] {
        let done = c.command(&[&TRANSCRIBE, more].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && said.contains(expected), "{more:?}: {said}");
    }
}
