//! `cactus transcribe` and `cactus vad` of recordings that are unlike others: a transcript or a clear error, in bounded memory. The
//! models have random weights.

use crate::cactus::Cactus;
use cactus_testkit::recordings::{Becomes, awkward, wav};
use serde_json::Value;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::process::{Command, Output};

/// Address space of a process, most of which are mapped libraries and stacks: far from what the sizes in hostile headers ask for.
const SPACE_KB: usize = 1 << 20;

fn prepared() -> Cactus {
    let c = Cactus::new();
    for name in ["whisper", "silero_vad"] {
        c.ok(&[
            "convert",
            &format!("{}/../../golden/speech/{name}", env!("CARGO_MANIFEST_DIR")),
            name,
        ]);
    }
    c
}

/// Runs the command with [`SPACE_KB`].
fn bounded(c: &Cactus, args: &[&str]) -> Output {
    let plain = c.command(args);
    let script = format!("ulimit -v {SPACE_KB}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command
        .args(["-c", &script])
        .arg(plain.get_program())
        .args(plain.get_args());
    command.current_dir(c.0.path()).stdin(std::process::Stdio::null());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.output().unwrap()
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[cfg(target_os = "linux")]
#[test]
fn awkward_recordings_become_a_transcript_or_a_clear_error() {
    let c = prepared();
    let hears = ["transcribe", "--model", "whisper", "--language", "en", "--threads", "2"];
    let finds = ["vad", "--model", "silero_vad"];
    for case in awkward() {
        let name = case.name;
        fs::write(c.0.path().join(name), &case.bytes).unwrap();
        for command in [&hears[..], &finds] {
            let out = bounded(&c, &[command, &[name, "--format", "json"]].concat());
            let told = said(&out);
            let (duration_s, word) = match case.becomes {
                Becomes::Heard(s) => (s, None),
                Becomes::Part(s) => (s, Some("ends early")),
                Becomes::Refused(why) => {
                    assert_eq!(out.status.code(), Some(1), "{name}: {told}");
                    assert!(told.contains(name) && told.contains(why), "{name}: {told}");
                    assert!(out.stdout.is_empty(), "{name}");
                    continue;
                }
            };
            assert!(out.status.success(), "{name}: {told}");
            let found: Value = serde_json::from_slice(&out.stdout).unwrap();
            let found = found["duration_s"].as_f64().unwrap();
            assert!((found - duration_s).abs() < 0.03, "{name}: {found} s");
            assert_eq!(told.contains("ends early"), word.is_some(), "{name}: {told}");
        }
    }
}

/// A file of 1.2 GB that takes no place on the disk.
#[cfg(target_os = "linux")]
#[test]
fn ten_hours_are_heard_in_the_memory_of_minutes() {
    let c = prepared();
    let frames = 10 * 3600 * 16_000u32;
    let mut header = wav(1, 1, 16_000, 16, &[]);
    header[4..8].copy_from_slice(&(36 + 2 * frames).to_le_bytes());
    header[40..44].copy_from_slice(&(2 * frames).to_le_bytes());
    let mut file = fs::File::create(c.0.path().join("ten_hours.wav")).unwrap();
    file.write_all(&header).unwrap();
    file.seek(SeekFrom::Start(44 + 2 * u64::from(frames) - 1)).unwrap();
    file.write_all(&[0]).unwrap();
    let out = bounded(
        &c,
        &[
            "transcribe",
            "ten_hours.wav",
            "--model",
            "whisper",
            "--language",
            "en",
            "--format",
            "json",
        ],
    );
    assert!(out.status.success(), "{}", said(&out));
    let found: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&found["duration_s"], &found["segments"]),
        (&36_000.0.into(), &Value::Array(vec![]))
    );
}
