//! Conversations that are kept in a file: what was said and computed before is there in the next run.

use serde_json::Value;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Writes calls as Qwen2.5 does, in few words.
const TEMPLATE: &str = "{% if tools %}{{ '<|im_start|>' }}{% for tool in tools %}{{ tool.function.name }} {% endfor %}\
{{ '<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>' }}{% endif %}\
{% for m in messages %}{{ '<|im_start|>' + m.role + ': ' + (m.content or '') }}\
{% for call in m.tool_calls or [] %}{{ '<tool_call>\n' + (call.function | tojson) + '\n</tool_call>' }}{% endfor %}\
{{ '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant: ' }}{% endif %}";

const TOOL: &str =
    r#"[{"name": "f", "parameters": {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}}]"#;

/// A folder with tiny models `m` and `other`.
struct Cactus(tempfile::TempDir);

impl Cactus {
    fn new() -> Self {
        let cactus = Cactus(tempfile::tempdir().unwrap());
        for (case, name) in [("qwen2", "m"), ("qwen2_tied", "other")] {
            let golden = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../golden/models")
                .join(case);
            let source = cactus.0.path().join(case);
            std::fs::create_dir(&source).unwrap();
            for entry in std::fs::read_dir(golden).unwrap() {
                let entry = entry.unwrap();
                std::fs::copy(entry.path(), source.join(entry.file_name())).unwrap();
            }
            std::fs::write(source.join("chat_template.jinja"), TEMPLATE).unwrap();
            let config = source.join("config.json");
            let mut json: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
            json["max_position_embeddings"] = Value::from(8192);
            std::fs::write(&config, json.to_string()).unwrap();
            assert!(
                cactus
                    .command(&["convert", case, name])
                    .output()
                    .unwrap()
                    .status
                    .success()
            );
        }
        cactus
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cactus"));
        command.args(args).current_dir(self.0.path()).env("NO_COLOR", "1");
        command.env("CACTUS_CACHE", self.0.path().join("cache"));
        command
    }

    fn run(&self, model: &str, more: &[&str]) -> Output {
        let fixed = [
            "run",
            model,
            "--temperature",
            "0",
            "--max-new-tokens",
            "40",
            "--ignore-eos",
        ];
        self.command(&[&fixed, more].concat()).output().unwrap()
    }

    /// The result of a prompt in the conversation `file`.
    fn says(&self, file: &str, prompt: &str) -> Value {
        let out = self.run("m", &["--session", file, "--prompt", prompt, "--json"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    }

    fn refused(&self, model: &str, more: &[&str], expected: &str) {
        let out = self.run(model, &[more, &["--prompt", "Hi"]].concat());
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && said.contains(expected), "{more:?}: {said}");
    }
}

#[test]
fn a_conversation_goes_on_in_another_run() {
    let c = Cactus::new();
    let first = c.says("chats/one", "The first question");
    let second = c.says("chats/one", "And another");
    assert_eq!(first["cached_tokens"], 0);
    // Where the answer begins, text may be cut into other tokens the second time.
    let count = |field: &Value| field.as_u64().unwrap();
    let (prompt, cached) = (count(&first["prefill_tokens"]), count(&second["cached_tokens"]));
    assert!(
        cached + 4 >= prompt,
        "{cached} tokens were there, after a prompt of {prompt}"
    );
    // The same in one run, line by line.
    let mut chat = c
        .command(&[
            "run",
            "m",
            "--temperature",
            "0",
            "--max-new-tokens",
            "40",
            "--ignore-eos",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = chat.stdin.take().unwrap();
    input.write_all(b"The first question\nAnd another\n").unwrap();
    drop(input);
    let shown = String::from_utf8(chat.wait_with_output().unwrap().stdout).unwrap();
    let text = |result: &Value| result["response"].as_str().unwrap().to_owned();
    assert_eq!(shown, format!("{}\n{}\n", text(&first), text(&second)));

    // A run that is killed while it answers leaves what was said before.
    let before = std::fs::read(c.0.path().join("chats/one")).unwrap();
    let mut killed = c
        .command(&[
            "run",
            "m",
            "--session",
            "chats/one",
            "--prompt",
            "Hi",
            "--max-new-tokens",
            "8000",
            "--ignore-eos",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut some = [0];
    std::io::Read::read_exact(killed.stdout.as_mut().unwrap(), &mut some).unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(std::fs::read(c.0.path().join("chats/one")).unwrap(), before);
}

#[test]
fn a_file_that_is_not_this_conversation_is_refused_and_kept() {
    let c = Cactus::new();
    c.says("one", "Hello");
    let file = c.0.path().join("one");
    let whole = std::fs::read(&file).unwrap();
    c.refused("other", &["--session", "one"], "another model");
    c.refused("m", &["--session", "one", "--kv", "f16"], "keys and values");
    c.refused(
        "m",
        &["--session", "one", "--system", "Be brief."],
        "another system prompt",
    );
    c.refused("m", &["--session", "one", "--raw"], "--raw");
    c.refused("m", &["--session", "one", "--context", "16"], "16");
    assert_eq!(std::fs::read(&file).unwrap(), whole);
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    std::fs::write(&file, &damaged).unwrap();
    c.refused("m", &["--session", "one"], "damaged");
    assert_eq!(std::fs::read(&file).unwrap(), damaged);
    // What never was one is not written over.
    std::fs::write(&file, "my letters").unwrap();
    c.refused("m", &["--session", "one"], "no saved session");
    assert_eq!(std::fs::read(&file).unwrap(), b"my letters");
}

#[test]
fn calls_that_await_results_are_kept_and_forgetting_is_too() {
    let c = Cactus::new();
    let chat = |input: &str| {
        let args = [
            "run",
            "m",
            "--temperature",
            "0",
            "--tools",
            TOOL,
            "--tool-choice",
            "f",
            "--session",
            "one",
        ];
        let mut chat = c.command(&args);
        let mut chat = chat
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        chat.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let out = chat.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&out.stdout), text(&out.stderr))
    };
    let (shown, _) = chat("Hello\n");
    assert!(shown.starts_with("f({\"a\": "), "{shown}");
    let (shown, said) = chat("/result 5\n/reset\n/result 5\n");
    assert!(
        shown.starts_with("f("),
        "the result was taken and the model went on: {shown} {said}"
    );
    assert!(said.contains("no call awaits a result"), "{said}");
    assert_eq!(
        c.says("one", "Hello")["cached_tokens"],
        0,
        "the conversation began again"
    );
}

#[test]
fn calls_that_are_cut_off_are_shown_once_as_text() {
    let c = Cactus::new();
    let mut cut = 0;
    for tokens in ["20", "30", "40", "50"] {
        let run = [
            "run",
            "m",
            "--temperature",
            "0",
            "--tools",
            TOOL,
            "--tool-choice",
            "f",
            "--prompt",
            "Hello",
        ];
        let out = c
            .command(&[&run[..], &["--max-new-tokens", tokens]].concat())
            .output()
            .unwrap();
        let shown = String::from_utf8(out.stdout).unwrap();
        let whole = shown.starts_with("f({\"a\":");
        cut += usize::from(!whole && shown.contains("{\"name\": \"f\", \"arg"));
        assert!(whole || !shown.contains("f("), "{tokens}: {shown}");
        assert!(shown.matches("\"f\"").count() <= 1, "{tokens}: {shown}");
    }
    assert!(cut > 0, "one of them was cut inside its arguments");
}
