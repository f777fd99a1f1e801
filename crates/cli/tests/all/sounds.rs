//! Sounds for a model that writes about them, from the command line.

use crate::cactus::Cactus;
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/seeing/gemma4_hears")
        .join(name)
}

#[test]
fn a_sound_goes_with_the_prompt() {
    let c = Cactus::new();
    c.ok(&["convert", golden("").to_str().unwrap(), "hears"]);
    let wav = golden("sound.1.wav").to_str().unwrap().to_owned();
    let asked = [
        "run",
        "hears",
        "--prompt",
        "What is this?",
        "--max-tokens",
        "4",
        "--temperature",
        "0",
    ];
    let out = c.run(&[&asked[..], &["--audio", &wav]].concat());
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success() && said.contains("1.3 s, 33 tokens"), "{said}");
    let lines = c.ok(&["inspect", "hears"]);
    for word in ["sounds", "16 bands", "40 ms a token", "at most 30 s", "<|audio|>"] {
        assert!(lines.contains(word), "{word}: {lines}");
    }
    for (model, file, said) in [
        ("hears", "absent.wav", "cannot read `absent.wav`"),
        ("m", wav.as_str(), "hears no sounds"),
    ] {
        let out = c.run(&["run", model, "--prompt", "a", "--audio", file]);
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && error.contains(said), "{error}");
    }
}
