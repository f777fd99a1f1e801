//! No bundle of few bits without what it lost: whatever command converts on the way, and of captured programs too.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn golden(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(path);
    path.to_str().unwrap().to_owned()
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

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_cactus"))
            .args(args)
            .current_dir(self.dir.path())
            .env("CACTUS_CACHE", self.path("cache"))
            .env("NO_COLOR", "1")
            .output()
            .unwrap()
    }

    /// Standard output and standard error.
    fn ok(&self, args: &[&str]) -> [String; 2] {
        let out = self.run(args);
        let [said, err] = [out.stdout, out.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(out.status.success(), "{args:?}: {err}");
        [said, err]
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["--json"]].concat())[0]).unwrap()
    }

    fn fails(&self, args: &[&str]) -> String {
        let out = self.run(args);
        let err = String::from_utf8(out.stderr).unwrap();
        assert!(matches!(out.status.code(), Some(1 | 2)), "{args:?}: {err}");
        assert!(!err.contains("panicked"), "{err}");
        err
    }

    /// The folders of bundles in the cache, also unfinished ones.
    fn cached(&self) -> Vec<PathBuf> {
        let Ok(models) = std::fs::read_dir(self.path("cache/bundles")) else {
            return Vec::new();
        };
        let folders = models.flat_map(|m| std::fs::read_dir(m.unwrap().path()).unwrap());
        folders.map(|f| f.unwrap().path()).collect()
    }
}

/// A tiny model whose next token is certain enough that few bits change it: that of golden, with a sharper head.
const MODEL: &str = "models/llama32";

#[test]
fn every_command_that_converts_measures_few_bits_and_refuses_what_is_too_far() {
    let c = Cactus::new();
    let model = golden(MODEL);
    for command in [
        &["run", &model, "--prompt", "a", "--bits", "1"][..],
        &["bench", &model, "--bits", "1"],
        &["inspect", &model, "--bits", "1"],
        &["tokenize", &model, "--text", "a", "--bits", "1"],
    ] {
        let err = c.fails(command);
        for part in [
            "below the floor",
            "same top token",
            "use more bits",
            "cactus convert",
            "--bits 1",
        ] {
            assert!(err.contains(part), "{command:?}: {err}");
        }
        assert_eq!(c.cached(), [] as [&Path; 0], "{command:?}");
    }
    let run = ["run", &model, "--prompt", "a", "--max-new-tokens", "2", "--bits", "6"];
    let [_, err] = c.ok(&run);
    assert!(
        err.contains("converting") && err.contains("calibrating with the built-in text"),
        "{err}"
    );
    let [bundle] = &c.cached()[..] else {
        panic!("{:?}", c.cached());
    };
    let shown = c.json(&["inspect", bundle.to_str().unwrap()]);
    assert_eq!(shown["quality"]["verdict"], "passed", "{shown}");
    assert!(shown["quality"]["comparison"]["tokens"].as_u64().unwrap() > 100);
    let [_, err] = c.ok(&run);
    assert!(!err.contains("converting"), "{err}");
    // What was converted before anything was measured is converted again.
    std::fs::remove_file(bundle.join("quality.json")).unwrap();
    let [_, err] = c.ok(&run);
    assert!(
        err.contains("converting") && bundle.join("quality.json").is_file(),
        "{err}"
    );
    // Another bundle without calibration, which does not take the place of the first.
    let plain = [&run[..], &["--no-calibrate"]].concat();
    let [_, err] = c.ok(&plain);
    assert!(err.contains("converting") && !err.contains("calibrating"), "{err}");
    assert_eq!(c.cached().len(), 2);
    for path in c.cached() {
        let shown = c.json(&["inspect", path.to_str().unwrap()]);
        let calibrated = path == *bundle;
        assert_eq!(shown["quality"]["calibration"].is_string(), calibrated, "{shown}");
    }
}

#[test]
fn a_bundle_below_the_floor_says_so_and_hints_fit() {
    let c = Cactus::new();
    let model = golden(MODEL);
    let err = c.fails(&["convert", &model, "m", "--bits", "1", "--no-calibrate"]);
    assert!(
        err.contains("below the floor") && err.contains("leave out `--no-calibrate`"),
        "{err}"
    );
    for more in [&["--calibrate"][..], &[]] {
        let err = c.fails(&[&["convert", &model, "m", "--bits", "1"], more].concat());
        assert!(err.contains("below the floor") && !err.contains("leave out"), "{err}");
    }
    let err = c.fails(&["convert", &model, "m", "--bits", "4", "--calibrate", "--no-calibrate"]);
    assert!(err.contains("cannot be used with"), "{err}");
    let [_, err] = c.ok(&["convert", &model, "m", "--bits", "1", "--force"]);
    assert!(err.contains("below the floor"), "{err}");
    let [shown, _] = c.ok(&["inspect", "m", "--tensors"]);
    assert!(shown.contains("below the floor: divergence"), "{shown}");
    let row = shown
        .lines()
        .find(|l| l.contains("down_proj") && l.contains("cq1"))
        .unwrap();
    assert!(row.contains(" %"), "{row}");
    // What is not measured says that.
    c.ok(&["convert", &model, "n", "--bits", "1", "--no-quality"]);
    let [shown, _] = c.ok(&["inspect", "n"]);
    assert!(shown.contains("not measured (not asked for)"), "{shown}");
    c.ok(&["convert", &model, "e", "--bits", "8"]);
    assert!(!c.path("e/quality.json").exists());
    let [_, err] = c.ok(&["convert", &model, "e", "--bits", "16", "--calibrate", "--force"]);
    assert!(err.contains("`--calibrate` has no effect"), "{err}");
}

/// A folder with a tokenizer of 96 words.
fn words(c: &Cactus) {
    let text = "the of and a to in is that it was for on with he as his be at by had not are but from or have an they which \
                one you were her all she there would their we him been has when who will more no if out so said what up its";
    let mut vocab = serde_json::Map::new();
    let fill = (0..96).map(|i| format!("w{i}"));
    for word in ["<unk>", ".", ","]
        .into_iter()
        .chain(text.split_whitespace())
        .map(str::to_owned)
        .chain(fill)
    {
        let id = vocab.len();
        if id < 96 {
            vocab.entry(word).or_insert(id.into());
        }
    }
    let json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"},
    });
    std::fs::create_dir(c.path("words")).unwrap();
    std::fs::write(c.path("words/tokenizer.json"), json.to_string()).unwrap();
    std::fs::write(c.path("words/config.json"), "{}").unwrap();
    std::fs::write(c.path("words/tokenizer_config.json"), "{}").unwrap();
}

#[test]
fn a_captured_language_model_is_measured_and_refused_like_any_other() {
    let c = Cactus::new();
    words(&c);
    let program = golden("pt2/smollm2.pt2");
    let transpile = |bits: &'static str| ["transpile", &program, "m", "--tokenizer", "words", "--bits", bits];
    let made = c.json(&transpile("6"));
    assert_eq!(made["quality"]["verdict"], "passed", "{made}");
    assert_eq!(made["quality"]["calibration"], "built-in calibration text", "{made}");
    let shown = c.json(&["inspect", "m"]);
    assert_eq!(shown["quality"], made["quality"]);
    assert!(
        shown["quality"]["comparison"]["tokens"].as_u64().unwrap() > 100,
        "{shown}"
    );
    let errors = shown["quality"]["tensors"].as_array().unwrap();
    assert!(
        errors
            .iter()
            .any(|t| t["packing"] == "tcq6_g128" && t["relative"].as_f64().unwrap() > 0.0 && t["calibrated"] == true),
        "{shown}"
    );
    let made = c.json(&[
        "transpile",
        &program,
        "p",
        "--tokenizer",
        "words",
        "--bits",
        "6",
        "--no-calibrate",
    ]);
    assert!(made["quality"]["calibration"].is_null(), "{made}");
    let made = c.json(&["transpile", &program, "a", "--tokenizer", "words", "--bits", "auto:5"]);
    let packings: std::collections::BTreeSet<&str> = made["quality"]["tensors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["packing"].as_str().unwrap())
        .collect();
    assert!(packings.len() > 1 && made["quality"]["verdict"] == "passed", "{made}");

    let err = c.fails(&transpile("6"));
    assert!(err.contains("already there"), "{err}");
    std::fs::remove_dir_all(c.path("m")).unwrap();
    let err = c.fails(&transpile("1"));
    let hint = err.split("hint:").nth(1).unwrap_or_default();
    assert!(
        err.contains("below the floor") && hint.contains("--policy") && !hint.contains("calibrate"),
        "{err}"
    );
    assert!(!c.path("m").exists());
    let made = c.json(&[&transpile("1")[..], &["--force"]].concat());
    assert_eq!(made["quality"]["verdict"], "below_floor");

    // Without a tokenizer, and for a function, the matrices alone; at 8 bits nothing.
    let [_, err] = c.ok(&["transpile", &program, "n", "--bits", "2"]);
    assert!(
        err.contains("neither calibrated nor measured: there is no tokenizer") && err.contains("`--tokenizer FOLDER`"),
        "{err}"
    );
    assert!(!err.contains("calibrating"), "{err}");
    for more in [
        &["--bits", "auto:4"][..],
        &["--bits", "4", "--calibrate", "words/config.json"],
    ] {
        let err = c.fails(&[&["transpile", &program, "x"], more].concat());
        assert!(err.contains("there is no tokenizer") || err.contains("row"), "{err}");
        assert!(!c.path("x").exists());
    }
    let made = c.json(&["transpile", &golden("pt2/minilm.pt2"), "f", "--bits", "4"]);
    assert_eq!(made["quality"]["verdict"], "not_measured");
    assert!(!made["quality"]["tensors"].as_array().unwrap().is_empty());
    let made = c.json(&["transpile", &program, "e", "--bits", "8"]);
    assert!(made["quality"].is_null() && !c.path("e/quality.json").exists());
}

#[test]
fn policies_name_towers_and_idle_rules_are_named() {
    let c = Cactus::new();
    std::fs::copy(golden("pt2/minilm.pt2"), c.path("minilm.pt2")).unwrap();
    let parts = ["vision", "text"]
        .map(|name| serde_json::json!({"name": name, "file": "minilm.pt2", "outputs": [format!("{name}_out")]}));
    let capture = serde_json::json!({"name": "two", "components": parts});
    std::fs::write(c.path("capture.json"), capture.to_string()).unwrap();
    let policy = "[[rule]]\npattern = \"vision.*\"\nbits = 8\n[[rule]]\npattern = \"*nowhere*\"\nbits = 8\n";
    std::fs::write(c.path("policy.toml"), policy).unwrap();
    let [_, err] = c.ok(&[
        "transpile",
        "capture.json",
        "two",
        "--bits",
        "3",
        "--policy",
        "policy.toml",
        "--embedding-bits",
        "6",
    ]);
    assert!(
        err.contains("`*nowhere*` matches no weight") && !err.contains("`vision.*`"),
        "{err}"
    );
    let shown = c.json(&["inspect", "two"]);
    let mut seen = std::collections::BTreeSet::new();
    for (name, weight) in shown["tensors"].as_object().unwrap() {
        let packing = weight["packing"].as_str().unwrap();
        let tower = name.split('.').next().unwrap();
        assert!(!(tower == "vision" && packing.starts_with("cq")), "{name}: {packing}");
        seen.insert(format!("{tower} {packing}"));
    }
    for expected in ["vision int8_g32", "text tcq3_g128", "text tcq6_g128"] {
        assert!(seen.contains(expected), "{seen:?}");
    }

    let model = golden(MODEL);
    let policy = ["*.k_proj.*", "*layernorm*"]
        .map(|p| format!("[[rule]]\npattern = \"{p}\"\nbits = 8\n"))
        .concat();
    std::fs::write(c.path("policy.toml"), policy).unwrap();
    let [_, err] = c.ok(&[
        "convert",
        &model,
        "m",
        "--bits",
        "4",
        "--policy",
        "policy.toml",
        "--force",
    ]);
    assert!(
        err.contains("`*layernorm*` matches only weights that are never quantized") && !err.contains("rule `*.k_proj"),
        "{err}"
    );
    let shown = c.json(&["inspect", "m"]);
    let tensors = shown["tensors"].as_object().unwrap();
    let joined = tensors
        .iter()
        .find(|(name, _)| name.contains("q_proj+k_proj+v_proj"))
        .unwrap();
    assert_eq!(joined.1["packing"], "int8_g32", "{joined:?}");
}

#[test]
fn texts_of_conversations_and_options_that_cannot_be() {
    use std::io::Write;
    let c = Cactus::new();
    let model = golden(MODEL);
    let talk = serde_json::json!({"messages": [
        {"role": "user", "content": [{"type": "text", "text": "the quick brown fox ".repeat(40)}]},
        {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        {"role": "assistant", "content": "jumps over the lazy dog ".repeat(40)},
    ]});
    std::fs::write(c.path("rows.json"), format!("\u{feff}[{talk}, {talk}]")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(format!("{talk}\n{talk}\n").as_bytes()).unwrap();
    std::fs::write(c.path("rows.jsonl.gz"), packed.finish().unwrap()).unwrap();
    for file in ["rows.json", "rows.jsonl.gz"] {
        c.ok(&[
            "convert",
            &model,
            "m",
            "--bits",
            "6",
            "--calibrate",
            file,
            "--quality-text",
            file,
            "--force",
        ]);
        let report = c.json(&["inspect", "m"])["quality"].clone();
        assert_eq!(
            (&report["calibration"], &report["text"]),
            (&file.into(), &file.into()),
            "{report}"
        );
    }
    let found = ["rows.json", "rows.jsonl.gz"].map(|file| c.json(&["eval", "m", "--file", file, "--context", "64"]));
    assert!(
        found[0]["tokens"].as_u64().unwrap() > 100 && found[0] == found[1],
        "{found:?}"
    );
    for (args, expected) in [
        (
            &[
                "convert",
                &model,
                "x",
                "--bits",
                "4",
                "--calibrate",
                "--calibration-tokens",
                "100",
            ][..],
            "--calibration-tokens",
        ),
        (&["eval", "m", "--chunks", "0"], "--chunks"),
        (
            &["eval", "m", "--context", "3"],
            "windows of at least 4 tokens, found 3",
        ),
        (&["eval", "m", "--file", "."], "a folder"),
        (&["eval", "m", "--file", "nowhere.txt"], "`--file`"),
        (&["eval", "nowhere"], "`cactus convert SOURCE FOLDER`"),
        (&["eval", "m", "--against", "nowhere"], "`nowhere` is not a folder"),
    ] {
        let err = c.fails(args);
        assert!(err.contains(expected), "{args:?}: {err}");
    }
}
