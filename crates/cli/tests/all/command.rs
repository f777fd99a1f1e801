//! The `cactus` binary as a user meets it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(path)
}

struct Cactus {
    dir: tempfile::TempDir,
}

impl Cactus {
    fn new() -> Self {
        Cactus {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cactus"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("CACTUS_CACHE", self.dir.path().join("cache"))
            .env("NO_COLOR", "1")
            .env_remove("CACTUS_ISA");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn ok(&self, args: &[&str]) -> String {
        let out = self.run(args);
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{args:?}: {err}");
        String::from_utf8(out.stdout).unwrap()
    }

    /// Standard error of a run that must fail without a panic.
    fn fails(&self, args: &[&str]) -> String {
        let out = self.run(args);
        let err = String::from_utf8(out.stderr).unwrap();
        assert!(!out.status.success(), "{args:?} succeeded");
        assert!(
            matches!(out.status.code(), Some(1 | 2)),
            "{args:?}: {:?} {err}",
            out.status
        );
        assert!(!err.contains("panicked"), "{err}");
        err
    }
}

#[test]
fn convert_inspect_and_run_a_folder_and_a_gguf() {
    let c = Cactus::new();
    for source in ["models/qwen2_tied", "gguf/qwen2.gguf"] {
        let source = golden(source);
        let source = source.to_str().unwrap();
        c.ok(&["convert", source, "m", "--force"]);
        let json: serde_json::Value = serde_json::from_str(&c.ok(&["inspect", "m", "--json"])).unwrap();
        assert_eq!(json["task"], "causal_lm_logits");
        assert!(json["packings"]["int8_g32"]["tensors"].as_u64().unwrap() > 5);
        c.ok(&["inspect", "m", "--verify", "--tensors", "--program"]);
        let run = [
            "run",
            "m",
            "--prompt",
            "Hello",
            "--max-new-tokens",
            "5",
            "--ignore-eos",
            "--temperature",
            "0",
            "--json",
        ];
        let answer: serde_json::Value = serde_json::from_str(&c.ok(&run)).unwrap();
        assert_eq!(answer["decode_tokens"], 5);
        assert_eq!(answer["finish_reason"], "length");
        let again: serde_json::Value = serde_json::from_str(&c.ok(&run)).unwrap();
        assert_eq!(answer["response"], again["response"]);
    }
    c.ok(&["inspect", "m", "--graph", "g.svg"]);
    assert!(
        std::fs::read_to_string(c.dir.path().join("g.svg"))
            .unwrap()
            .starts_with("<svg")
    );
    c.ok(&["inspect", "m", "--graph", "g.dot", "--raw"]);
    let ids = c.ok(&["tokenize", "m", "--text", "Hello there", "--json"]);
    assert!(
        serde_json::from_str::<serde_json::Value>(&ids).unwrap()["count"]
            .as_u64()
            .unwrap()
            > 0
    );
    std::fs::write(c.dir.path().join("t.txt"), "the quick brown fox ".repeat(200)).unwrap();
    let score = c.ok(&["score", "m", "--file", "t.txt", "--context", "32", "--json"]);
    assert!(
        serde_json::from_str::<serde_json::Value>(&score).unwrap()["perplexity"]
            .as_f64()
            .unwrap()
            > 1.0
    );
    let bench = c.ok(&[
        "bench",
        "m",
        "--prefill",
        "16",
        "--decode",
        "4",
        "--reps",
        "1",
        "--json",
    ]);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&bench).unwrap()["rows"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let loads = c.ok(&["bench", "m", "--prefill", "0", "--decode", "0", "--json"]);
    assert!(serde_json::from_str::<serde_json::Value>(&loads).unwrap()["load_ms"].is_f64());
    let deep = c.fails(&["bench", "m", "--prefill", "99999999"]);
    assert!(deep.contains("99999999 tokens; the model handles at most"), "{deep}");
}

#[test]
fn wrong_input_is_a_clear_sentence_and_an_exit_code() {
    let c = Cactus::new();
    let source = golden("models/llama");
    c.ok(&["convert", source.to_str().unwrap(), "m"]);
    std::fs::create_dir(c.dir.path().join("empty")).unwrap();
    std::fs::write(c.dir.path().join("bad.gguf"), b"GGUF\x03\0\0\0garbage").unwrap();
    std::fs::write(c.dir.path().join("latin1.txt"), [b'a', 0xe9, b'b']).unwrap();
    let long = "word ".repeat(5000);
    let cases: &[(&[&str], &str)] = &[
        (&["run", "./nowhere", "--prompt", "x"], "nowhere"),
        (&["run", "./empty", "--prompt", "x"], "empty"),
        (
            &["run", "smollm2-135m-instuct", "--offline", "--prompt", "x"],
            "smollm2-135m-instruct",
        ),
        (&["convert", "./bad.gguf", "out"], "bad.gguf"),
        (&["convert", source.to_str().unwrap(), "m"], "already there"),
        (
            &["convert", source.to_str().unwrap(), "empty/../m2", "--bits", "1"],
            "--bits",
        ),
        (&["run", "m", "--prompt", "   "], "empty"),
        (&["run", "m", "--prompt", &long, "--context", "64"], "context"),
        (&["run", "m", "--prompt", "x", "--temperature", "-1"], "temperature"),
        (&["run", "m", "--promt", "x"], "--prompt"),
        (&["tokenize", "m", "--file", "latin1.txt"], "UTF-8"),
        (&["score", "m", "--file", "none.txt"], "none.txt"),
        (&["inspect", "m", "--graph", "g.bmp"], ".svg"),
        (&["download", "./nowhere"], "nowhere"),
    ];
    for (args, expected) in cases {
        let err = c.fails(args);
        assert!(err.contains(expected), "{args:?}: {err}");
    }
    assert!(!c.dir.path().join("out").exists());
}

#[test]
fn damaged_bundles_name_the_file() {
    let c = Cactus::new();
    c.ok(&["convert", golden("models/llama").to_str().unwrap(), "m"]);
    let weights = c.dir.path().join("m/model.weights");
    let mut bytes = std::fs::read(&weights).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&weights, &bytes).unwrap();
    let err = c.fails(&["run", "m", "--prompt", "x"]);
    assert!(err.contains("model.weights") && err.contains("hint:"), "{err}");
    bytes.truncate(bytes.len() / 2);
    bytes[0] ^= 1;
    std::fs::write(&weights, &bytes).unwrap();
    assert!(c.fails(&["inspect", "m"]).contains("model.weights"));
}

#[test]
fn unknown_tier_lists_those_of_this_cpu() {
    let c = Cactus::new();
    c.ok(&["convert", golden("models/llama").to_str().unwrap(), "m"]);
    let out = Command::new(env!("CARGO_BIN_EXE_cactus"))
        .args(["run", "m", "--prompt", "x"])
        .current_dir(c.dir.path())
        .env("CACTUS_ISA", "sse9")
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(
        !out.status.success() && err.contains("scalar") && err.contains("sse9"),
        "{err}"
    );
}

#[test]
fn a_chat_from_a_pipe_answers_each_line() {
    use std::io::Write;
    let c = Cactus::new();
    c.ok(&["convert", golden("models/llama").to_str().unwrap(), "m"]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_cactus"))
        .args(["run", "m", "--max-new-tokens", "3"])
        .current_dir(c.dir.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"Hello\n/reset\nHello\n/nope\n/exit\nnever\n")
        .unwrap();
    let out = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{err}");
    assert!(
        err.contains("(conversation forgotten)") && err.contains("no command `/nope`"),
        "{err}"
    );
}

#[test]
fn options_of_run_are_followed_or_refused() {
    let c = Cactus::new();
    let policy = "bits = 8\n[[rule]]\npattern = \"*.down_proj.*\"\nbits = 16\n";
    std::fs::write(c.dir.path().join("policy.toml"), policy).unwrap();
    let source = golden("models/llama");
    let out = c.run(&["convert", source.to_str().unwrap(), "m", "--policy", "policy.toml"]);
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(
        err.contains("converting llama to 8 bits (*.down_proj.*: 16 bits)\n"),
        "{err}"
    );

    // One component of a language model is a function of whole sequences: all logits, and nothing generated.
    let text = c.ok(&["run", "m", "--component", "decoder", "--input-ids", "1,2,3"]);
    assert!(text.contains("f32[1, 3, "), "{text}");
    for (more, expected) in [
        (
            &["--component", "encoder", "--prompt", "x"][..],
            "takes no prompt; leave it out",
        ),
        (
            &["--component", "encoder", "--input-ids", "1"],
            "no component `encoder`; it has decoder",
        ),
        (
            &["--component", "decoder", "--input-ids", "1", "--max-new-tokens", "2"],
            "Leave one of them out",
        ),
    ] {
        let err = c.fails(&[&["run", "m"], more].concat());
        assert!(err.contains(expected), "{more:?}: {err}");
    }

    // A line for each token, with as many alternatives as asked for.
    let run = [
        "run",
        "m",
        "--temperature",
        "0",
        "--ignore-eos",
        "--max-new-tokens",
        "3",
    ];
    for prompt in [["--prompt", "Hello"], ["--input-ids", "1,2"]] {
        let text = c.ok(&[&run[..], &prompt, &["--logprobs", "2"]].concat());
        let (_, table) = text.split_once("token ").unwrap_or_else(|| panic!("{text}"));
        let rows: Vec<&str> = table.lines().skip(1).collect();
        assert_eq!(rows.len(), 3, "{text}");
        for row in rows {
            let numbers = row
                .split_whitespace()
                .filter(|word| word.parse::<f64>().is_ok_and(|p| p <= 0.0));
            assert!(row.starts_with('"') == (prompt[0] == "--prompt"), "{text}");
            assert_eq!(numbers.count(), 3, "{text}");
        }
        let plain = c.ok(&[&run[..], &prompt].concat());
        assert!(
            text.starts_with(&plain) && !plain.contains("log-probability"),
            "{plain}"
        );
    }
}

#[test]
fn kernels_lists_every_tier_and_marks_one_pick() {
    let c = Cactus::new();
    let text = c.ok(&["kernels", "3,70,40", "--reps", "1", "--json"]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let tiers: Vec<&str> = cactus_kernels::Kernels::available().map(|k| k.tier().name()).collect();
    for packing in ["int8_g32", "tcq4_g128", "f16_n16", "f32_n16"] {
        let of: Vec<_> = rows.iter().filter(|r| r["packing"] == packing).collect();
        let listed: Vec<&str> = of.iter().map(|r| r["tier"].as_str().unwrap()).collect();
        assert_eq!(listed, tiers, "{packing}");
        assert_eq!(of.iter().filter(|r| r["picked"] == true).count(), 1, "{packing}");
        assert!(of.iter().all(|r| r["microseconds"].as_f64().unwrap() > 0.0));
    }
    for (shape, expected) in [
        ("1,2", "M,K,N"),
        ("0,4,4", "M,K,N"),
        ("9999,4,4", "4096 rows"),
        ("1,100000,100000", "the limit is"),
        ("4096,7000000,1", "the limit is"),
        ("4096,1,7000000", "the limit is"),
        ("1,18446744073709551615,1", "too large"),
    ] {
        assert!(c.fails(&["kernels", shape]).contains(expected), "{shape}");
    }
    let text = c.ok(&["kernels", "2,70,40", "--reps", "1", "--json", "--packing", "tcq2_g128"]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert!(rows.iter().all(|r| r["packing"] == "tcq2_g128") && rows.len() == tiers.len());
    assert!(c.fails(&["kernels", "--packing", "q4"]).contains("int8_g32, "));
}

#[test]
fn kernels_assert_fails_where_a_slow_tier_is_forced() {
    // Every CPU that these tests run on has a tier above it.
    assert!(cactus_kernels::Kernels::available().count() > 1);
    let c = Cactus::new();
    let args = [
        "kernels",
        "8,128,128",
        "--reps",
        "3",
        "--packing",
        "int8_g32",
        "--assert",
    ];
    let out = c.command(&args).env("CACTUS_ISA", "scalar").output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(
        !out.status.success() && text.contains("scalar, which is used, is more than 10 % slower"),
        "{text}"
    );
}

#[test]
fn convert_few_bits_calibrates_measures_and_refuses_what_is_too_far() {
    let c = Cactus::new();
    let source = golden("models/llama");
    let source = source.to_str().unwrap();
    std::fs::write(
        c.dir.path().join("policy.toml"),
        "bits = 3\n[[rule]]\npattern = \"*down*\"\nbits = 8\n",
    )
    .unwrap();
    c.ok(&[
        "convert",
        source,
        "m",
        "--policy",
        "policy.toml",
        "--calibrate",
        "--force",
    ]);
    let json: serde_json::Value = serde_json::from_str(&c.ok(&["inspect", "m", "--json", "--verify"])).unwrap();
    assert!(json["packings"]["int8_g32"]["tensors"].as_u64().unwrap() > 0, "{json}");
    assert!(json["packings"]["tcq3_g128"]["tensors"].as_u64().unwrap() > 0, "{json}");
    let quality = &json["quality"];
    assert!(quality["comparison"]["kl_mean"].as_f64().unwrap() > 0.0);
    // Whatever a linear reads has been seen, the output head too.
    for t in quality["tensors"].as_array().unwrap() {
        let coded = t["packing"].as_str().unwrap().starts_with("tcq");
        let table = t["name"].as_str().unwrap().contains("embed");
        assert!(table || t["calibrated"] == coded, "{t}");
    }
    assert!(c.ok(&["inspect", "m"]).contains("divergence from the source"));
    c.ok(&[
        "run",
        "m",
        "--raw",
        "--prompt",
        "abc",
        "--max-new-tokens",
        "3",
        "--temperature",
        "0",
    ]);

    c.ok(&["convert", source, "f16", "--bits", "16"]);
    let json: serde_json::Value =
        serde_json::from_str(&c.ok(&["eval", "m", "--against", "f16", "--context", "64", "--json"])).unwrap();
    assert!(json["kl_mean"].as_f64().unwrap() >= 0.0 && json["tokens"].as_u64().unwrap() > 30);
    c.ok(&["convert", source, "auto", "--bits", "auto:3.5", "--force"]);

    for (args, expected) in [
        (&["--bits", "auto:1"][..], "2.125"),
        (&["--bits", "7"], "expected 1, 2, 3"),
        (&["--policy", "missing.toml"], "missing.toml"),
        (&["--calibrate", "missing.txt"], "missing.txt"),
        (&["--quality-text", "policy.toml", "--no-quality"], "--no-quality"),
    ] {
        let err = c.fails(&[&["convert", source, "x"], args].concat());
        assert!(err.contains(expected), "{args:?}: {err}");
        assert!(!c.dir.path().join("x").exists());
    }
}

#[test]
fn vad_finds_spans_and_says_what_it_needs() {
    let c = Cactus::new();
    let model = golden("speech/silero_vad");
    let model = model.to_str().unwrap();
    c.ok(&["convert", model, "vad", "--bits", "4"]);
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../audio/tests/files");
    let [clip, other] = ["alaw_8k.wav", "stereo_44k.ogg"].map(|f| files.join(f).to_str().unwrap().to_owned());
    // Weights are made up, and so are the spans; options have their effect all the same.
    let json = |more: &[&str]| -> serde_json::Value {
        let told = c.ok(&[&["vad", &clip, "--model", "vad", "--format", "json"], more].concat());
        serde_json::from_str(&told).unwrap()
    };
    let all = json(&[
        "--threshold",
        "0",
        "--neg-threshold",
        "0",
        "--min-speech-ms",
        "0",
        "--probabilities",
    ]);
    let duration = all["duration_s"].as_f64().unwrap();
    assert_eq!(all["sample_rate_hz"], 2000);
    assert_eq!(all["speech_s"].as_f64(), Some(duration), "{all}");
    let chunks = (duration * 2000.0 / 64.0).ceil() as usize;
    assert_eq!(all["probabilities"].as_array().unwrap().len(), chunks);
    assert_eq!(json(&["--threshold", "1"])["spans"], serde_json::json!([]));
    let text = c.ok(&[
        "vad",
        &clip,
        &other,
        "-m",
        model,
        "--threshold",
        "0",
        "--neg-threshold",
        "0",
        "--min-speech-ms",
        "0",
    ]);
    assert_eq!(text.matches("[00:00:00.000 --> ").count(), 2, "{text}");

    let none = c.fails(&["vad", &clip]);
    assert!(
        none.contains("pip download silero-vad") && none.contains("cactus convert"),
        "{none}"
    );
    let wrong = c.fails(&["vad", &clip, "--model", "nothing-here"]);
    assert!(
        wrong.contains("`nothing-here`") && wrong.contains("pip download silero-vad"),
        "{wrong}"
    );
    let text = files.join("make.py");
    for (args, said) in [
        (vec!["vad", "absent.wav", "--model", "vad"], "absent.wav"),
        (vec!["vad", text.to_str().unwrap(), "--model", "vad"], "text file"),
        (vec!["vad", &clip, "--model", "vad", "--threshold", "2"], "`threshold`"),
        (vec!["vad", &clip, "--model", "vad", "--probabilities"], "--format json"),
        (vec!["transcribe", &clip, "--model", "vad"], "does not transcribe"),
        (vec!["transcribe", &clip, "--model", "vad"], "`openai/whisper-tiny.en`"),
        (vec!["run", "vad"], "cactus vad FILE"),
        (vec!["bench", "vad"], "cactus vad FILE"),
    ] {
        let error = c.fails(&args);
        assert!(error.contains(said), "{args:?}: {error}");
    }
    // One that cannot be read does not keep the others from it.
    let some = c.run(&[
        "vad",
        "absent.wav",
        &clip,
        "--model",
        "vad",
        "--threshold",
        "0",
        "--neg-threshold",
        "0",
    ]);
    assert_eq!(some.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&some.stdout).contains("-->"));
    // A model that hears at another rate.
    c.ok(&["convert", golden("speech/whisper").to_str().unwrap(), "whisper"]);
    let rates = c.fails(&["transcribe", &clip, "--model", "whisper", "--vad", "vad"]);
    assert!(rates.contains("2000") && rates.contains("16000"), "{rates}");
    for command in [
        &["run", "whisper", "--prompt", "Hi"][..],
        &["bench", "whisper"],
        &["score", "whisper", "--file", text.to_str().unwrap()],
        &["eval", "whisper", "--file", text.to_str().unwrap()],
    ] {
        let error = c.fails(command);
        assert!(error.contains("cactus transcribe FILE --model"), "{command:?}: {error}");
    }
    // Its components are functions all the same.
    let measured = c.ok(&[
        "bench",
        "whisper",
        "--component",
        "encoder",
        "--prefill",
        "16",
        "--reps",
        "1",
        "--json",
    ]);
    let rows: serde_json::Value = serde_json::from_str(&measured).unwrap();
    assert_eq!(
        (rows.as_array().unwrap().len(), &rows[0]["component"]),
        (1, &serde_json::json!("encoder"))
    );
    let unknown = c.fails(&["bench", "whisper", "--component", "ear"]);
    assert!(
        unknown.contains("no component `ear`") && unknown.contains("encoder"),
        "{unknown}"
    );
}
