//! `cactus run --cloud`, `cactus route` and `cactus auth`, with a server of ours as the target.

use crate::cactus::Cactus;
use cactus_testkit::http::{EVENTS, Server as Target};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

impl Cactus {
    fn wrong(&self, args: &[&str]) -> String {
        let out = self.run(args);
        assert!(!out.status.success(), "{args:?}");
        String::from_utf8(out.stderr).unwrap()
    }

    fn short(&self, args: &[&str]) -> Value {
        self.asked(&[&["--max-new-tokens", "6"], args].concat())
    }
}

/// `cactus serve`, until it is dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn new(cactus: &Cactus) -> Server {
        let mut command = cactus.command(&["serve", "m", "--port", "0", "--api-key", "house"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let address = lines
            .by_ref()
            .find_map(|line| Some(line.split_once("http://")?.1.split(['/', ' ']).next()?.to_owned()));
        // What it says later must find a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Server {
            child,
            address: address.expect("the server says where it listens"),
        }
    }

    fn target(&self) -> String {
        format!("http://{}/v1#m", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that is killed can write nothing down, but its money is reserved, and for what is known.
#[test]
fn request_whose_process_was_killed_is_told_of() {
    let cactus = Cactus::new();
    let target = Target::new(|_, _| {
        std::thread::sleep(std::time::Duration::from_secs(60));
        cactus_testkit::http::After::Close
    });
    let policy = format!(
        "version = 1\nhandoff = \"always\"\n[consent]\ntext = \"always\"\n[targets.dear]\nprotocol = \"openai_chat\"\nmodel = \"m\"\n\
         base_url = \"http://127.0.0.1:{}/v1\"\ninput_usd_per_million = 1\noutput_usd_per_million = 1\n",
        target.port()
    );
    std::fs::write(cactus.0.path().join("policy.toml"), policy).unwrap();
    let mut command = cactus.command(&[
        "run",
        "m",
        "--prompt",
        "Hello",
        "--policy",
        "policy.toml",
        "--max-new-tokens",
        "6",
    ]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while target.asked() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(cactus.ok(&["route", "log"]).contains("under way"));
    child.kill().unwrap();
    child.wait().unwrap();
    let log = cactus.ok(&["route", "log"]);
    assert!(
        log.contains("nobody (dear was asked)") && log.contains("ended without a record"),
        "{log}"
    );
    let line: Value = serde_json::from_str(cactus.ok(&["route", "log", "--json"]).trim()).unwrap();
    assert_eq!(
        (&line["unfinished"], &line["target"]),
        (&json!("ended without a record"), &json!("dear"))
    );
    let budget: Value = serde_json::from_str(&cactus.ok(&["route", "budget", "--json"])).unwrap();
    assert!(budget["day_usd"].as_f64().is_some_and(|usd| usd > 0.0));
    assert_eq!(
        (&line["reserved_usd"], &budget["unfinished"]),
        (&budget["day_usd"], &json!([line]))
    );
}

#[test]
fn conversation_goes_to_another_server_with_consent_and_key_and_is_recorded() {
    let cactus = Cactus::new();
    let server = Server::new(&cactus);
    let target = server.target();
    // Nobody is there to say yes.
    let kept = cactus.short(&["--cloud", &target, "--handoff", "always"]);
    assert_eq!(
        (kept["answered_by"].as_str(), kept["reason"].as_str()),
        (Some("local"), Some("nobody_to_ask"))
    );
    // Without its key the other server refuses, and the answer comes from here.
    let sent = ["--cloud", &target, "--handoff", "always", "--consent", "text"];
    let refused = cactus.short(&sent);
    assert_eq!(
        (refused["answered_by"].as_str(), refused["route"].as_str()),
        (Some("local"), Some("both"))
    );
    assert_eq!(refused["reason"], "key_refused");
    let explained = cactus.ok(&["route", "explain"]);
    assert!(explained.contains("m: failed: it refused the key; "), "{explained}");
    let record: Value = serde_json::from_str(&cactus.ok(&["route", "explain", "--json"])).unwrap();
    assert_eq!(
        (
            &record["reason"],
            &record["tries"][0]["target"],
            &record["tries"][0]["failed"]
        ),
        (&json!("key_refused"), &json!("m"), &json!("unauthorized"))
    );
    assert!(record["tries"][0]["ms"].is_u64(), "{record}");
    assert_eq!(refused["response"], kept["response"]);

    let mut auth = cactus.command(&["auth", "set", &target]);
    let mut auth = auth.stdin(Stdio::piped()).spawn().unwrap();
    auth.stdin.take().unwrap().write_all(b"house\n").unwrap();
    assert!(auth.wait().unwrap().success());
    let origin = format!("http://{}", server.address);
    assert_eq!(cactus.ok(&["auth", "list"]).trim(), origin);

    let answered = cactus.short(&sent);
    assert_eq!(
        (answered["answered_by"].as_str(), answered["route"].as_str()),
        (Some("m"), Some("cloud"))
    );
    // The same weights, asked the same.
    assert_eq!(answered["response"], kept["response"]);
    assert_eq!(answered["cloud_handoff"], true);
    assert_eq!(answered["prefill_tokens"], kept["prefill_tokens"], "the same tokenizer");
    assert!(answered["prefill_tokens"].as_u64().is_some_and(|tokens| tokens > 0));
    assert_eq!(
        (answered["cost_usd"].as_f64(), answered["cost_is_exact"].as_bool()),
        (Some(0.0), Some(true))
    );

    let log = cactus.ok(&["route", "log", "--json"]);
    let reasons: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["reason"].clone())
        .collect();
    assert_eq!(reasons, ["nobody_to_ask", "key_refused", "always"]);
    assert!(!log.contains("Hello"), "{log}");
    assert!(cactus.ok(&["route", "explain"]).contains("everything is handed off"));
    assert!(
        cactus
            .ok(&["route", "explain", "3"])
            .contains("nobody was there to say yes")
    );
    assert!(cactus.wrong(&["route", "explain", "4"]).contains("has 3 decisions"));
    std::fs::write(cactus.0.path().join("never.toml"), "version = 1\nhandoff = \"never\"\n").unwrap();
    let replayed: Value = serde_json::from_str(&cactus.ok(&["route", "replay", "never.toml", "--json"])).unwrap();
    assert_eq!(
        (replayed["was_cloud"].as_u64(), replayed["now_cloud"].as_u64()),
        (Some(1), Some(0))
    );
    let budget: Value = serde_json::from_str(&cactus.ok(&["route", "budget", "--json"])).unwrap();
    assert_eq!(
        (budget["day_usd"].as_f64(), budget["unsettled"].as_u64()),
        (Some(0.0), Some(0))
    );
    assert_eq!(budget["caps"]["day"], json!({"cap_usd": 1.0, "left_usd": 1.0}));
    assert_eq!(budget["caps"]["session"], json!({"cap_usd": null, "left_usd": null}));
    std::fs::write(
        cactus.0.path().join("caps.toml"),
        "version = 1\n[budget]\nday_usd = \"none\"\nmonth_usd = 3\n",
    )
    .unwrap();
    let budget = cactus.ok(&["route", "budget", "--policy", "caps.toml"]);
    assert!(budget.contains("at most $3.00, of which $3.00 is left"), "{budget}");
    assert!(
        budget.contains("no limit") && budget.contains("at most $0.01\n"),
        "{budget}"
    );

    let always = ["--cloud", &target, "--consent", "text", "--confidence-threshold", "1"];
    assert_eq!(cactus.short(&always)["answered_by"], "m");
    let never = ["--no-cloud-handoff", "--no-cloud-tele", "--handoff", "always"];
    let kept = cactus.short(&[&always[..], &never[..]].concat());
    assert_eq!(
        (kept["answered_by"].as_str(), kept["reason"].as_str()),
        (Some("local"), Some("handoff_off"))
    );

    // What nobody but the model here can do is answered here as without a target, and recorded.
    let logprobs = cactus.short(&[
        "--cloud",
        &target,
        "--handoff",
        "always",
        "--consent",
        "text",
        "--logprobs",
        "2",
    ]);
    assert_eq!(
        (logprobs["answered_by"].as_str(), logprobs["reason"].as_str()),
        (Some("local"), Some("no_target"))
    );
    assert_eq!(logprobs["logprobs"].as_array().map(Vec::len), Some(6), "{logprobs}");
    let regex = cactus.short(&[
        "--cloud",
        &target,
        "--handoff",
        "always",
        "--consent",
        "text",
        "--regex",
        "[a-z]+",
    ]);
    assert_eq!(
        (regex["answered_by"].as_str(), regex["reason"].as_str()),
        (Some("local"), Some("no_target"))
    );
    let log = cactus.ok(&["route", "log", "--json", "-n", "2"]);
    let recorded: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(recorded.len(), 2);
    assert!(
        recorded
            .iter()
            .all(|record| record["reason"] == "no_target" && record["classes"][0] == "text"),
        "{log}"
    );

    // The first target is not there, and the second answers.
    let policy = format!(
        "version = 1\nhandoff = \"always\"\nprefer = [\"gone\", \"house\"]\n[consent]\ntext = \"always\"\n[routing]\nretries = 0\n\
         [targets.gone]\nprotocol = \"openai_chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\ninput_usd_per_million = 0\n\
         output_usd_per_million = 0\n[targets.house]\nprotocol = \"openai_chat\"\nbase_url = \"http://{}/v1\"\nmodel = \"m\"\n\
         input_usd_per_million = 0\noutput_usd_per_million = 0\n",
        server.address
    );
    std::fs::write(cactus.0.path().join("two.toml"), policy).unwrap();
    let next = cactus.short(&["--policy", "two.toml"]);
    assert_eq!(
        (next["answered_by"].as_str(), next["attempts"].as_u64()),
        (Some("house"), Some(2))
    );
    assert!(next["notes"][0].as_str().unwrap().contains("`gone` failed"), "{next}");
    let explained = cactus.ok(&["route", "explain"]);
    assert!(explained.contains("gone: the target failed"), "{explained}");

    cactus.ok(&["auth", "remove", &origin]);
    assert!(cactus.wrong(&["auth", "remove", &target]).contains("no key"));
}

#[test]
fn options_of_cactus_are_options_of_run_and_serve() {
    let cactus = Cactus::new();
    for command in ["run", "serve"] {
        let help = cactus.ok(&[command, "--help"]);
        for option in cactus_router::hybrid::policy::CACTUS_OPTIONS {
            let flag = format!("--{}", option.name.replace('_', "-"));
            assert_eq!(
                help.contains(&flag),
                option.name == option.name.to_lowercase(),
                "{command} {flag}"
            );
        }
    }
    // What forbids is true without a target, and a switch does not take the model's name.
    let quiet = [
        "run",
        "--no-cloud-handoff",
        "m",
        "--no-cloud-tele",
        "--handoff",
        "never",
        "--max-new-tokens",
        "1",
    ];
    cactus.ok(&[
        &quiet[..],
        &[
            "--handoff-with-images=false",
            "--auto-handoff=false",
            "--prompt",
            "Hello",
        ],
    ]
    .concat());
    let add = "add `--cloud TARGET` or `--policy FILE`";
    let cases: [(&[&str], &str); 9] = [
        (&["run", "m", "--confidence-threshold", "0.7"], add),
        (&["run", "m", "--cloud-timeout-ms", "900"], add),
        (&["run", "m", "--handoff", "always"], add),
        (&["run", "m", "--handoff", "auto"], add),
        (&["run", "m", "--consent", "text"], add),
        (&["run", "m", "--budget", "1"], add),
        (&["serve", "m", "--confidence-threshold", "0.7"], "add `--policy FILE`"),
        (
            &["run", "m", "--confidence-threshold", "much"],
            "expected a number up to 1",
        ),
        (
            &["serve", "m", "--cloud-timeout-ms", "0"],
            "expected milliseconds, from 1 on",
        ),
    ];
    for (args, want) in cases {
        let out = cactus.run(args);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains(want), "{args:?}: {said}");
    }
}

#[test]
fn keys_are_kept_for_targets_of_a_policy_and_removed_as_they_are_listed() {
    let cactus = Cactus::new();
    let policy = "version = 1\n[targets.house]\nprotocol = \"openai-chat\"\nbase_url = \"http://[::1]:81/v1\"\nmodel = \"m\"\n\
                  input_usd_per_million = 0\noutput_usd_per_million = 0\n";
    std::fs::write(cactus.0.path().join("house.toml"), policy).unwrap();
    let set = |target: &[&str]| {
        let mut auth = cactus.command(&[&["auth", "set"], target].concat());
        let mut auth = auth.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Who refuses the target does not read.
        let _ = auth.stdin.take().unwrap().write_all(b"secret\n");
        let out = auth.wait_with_output().unwrap();
        (out.status.success(), String::from_utf8(out.stderr).unwrap())
    };
    assert!(set(&["house", "--policy", "house.toml"]).0);
    let (kept, said) = set(&["http://house.example/v1"]);
    assert!(kept && said.contains("private networks alone"), "{said}");
    let (kept, said) = set(&["house"]);
    assert!(!kept && said.contains("--policy FILE"), "{said}");
    assert_eq!(cactus.ok(&["auth", "list"]), "http://[::1]:81\nhttp://house.example\n");
    cactus.ok(&["auth", "remove", "http://[::1]:81"]);
    cactus.ok(&["auth", "remove", "http://house.example"]);
    assert_eq!(cactus.ok(&["auth", "list"]), "");
}

#[test]
fn a_damaged_budget_says_what_to_do_and_the_record_is_private() {
    let cactus = Cactus::new();
    cactus.short(&["--cloud", "http://127.0.0.1:9/v1#m", "--handoff", "never"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let record = cactus.0.path().join("state/decisions.jsonl");
        assert_eq!(std::fs::metadata(record).unwrap().permissions().mode() & 0o777, 0o600);
    }
    std::fs::write(cactus.0.path().join("state/budget.journal"), vec![7; 64]).unwrap();
    let said = cactus.wrong(&["route", "budget"]);
    assert!(
        said.contains("budget.journal") && said.contains("then remove it"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_routed_is_said_before_anything_is_computed() {
    let cactus = Cactus::new();
    let cases: [(&[&str], &str); 7] = [
        (&["--cloud", "nobody"], "claude-haiku-5-5"),
        (&["--cloud", "claude-haiku-5-5"], "cactus auth set claude-haiku-5-5"),
        (&["--cloud", "http://127.0.0.1:9/v1"], "has no model"),
        (
            &["--cloud", "http://127.0.0.1:9/v1#m", "--budget", "much"],
            "expected dollars",
        ),
        (
            &["--cloud", "http://127.0.0.1:9/v1#m", "--budget", "-1"],
            "expected dollars such as `0.25`, from 0 to",
        ),
        (&["--cloud", "http://127.0.0.1:9/v1#m", "--rolling"], "--rolling"),
        (&["--policy", "nowhere.toml"], "nowhere.toml"),
    ];
    for (args, want) in cases {
        let mut command = cactus.command(&[&["run", "m", "--prompt", "Hello"], args].concat());
        let out = command.env_remove("ANTHROPIC_API_KEY").output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && said.contains(want), "{args:?}: {said}");
    }
    // Nor is a model looked for first.
    let said = cactus.wrong(&["run", "nowhere.gguf", "--cloud", "nobody"]);
    assert!(
        said.contains("claude-haiku-5-5") && !said.contains("nowhere.gguf"),
        "{said}"
    );
}

#[test]
fn a_false_bill_is_told_with_the_answer_and_in_the_record() {
    let cactus = Cactus::new();
    let choice = |delta: Value, end: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": end}]});
    let said = [
        choice(json!({"content": "far"}), Value::Null),
        choice(json!({}), json!("stop")),
        json!({"choices": [], "usage": {"prompt_tokens": 1_000_000_000_000_u64, "completion_tokens": 9}}),
    ];
    let lines: String = said.iter().map(|data| format!("data: {data}\n\n")).collect();
    let target = Target::of(vec![format!("{EVENTS}{lines}data: [DONE]\n\n").into_bytes()]);
    let policy = format!(
        "version = 1\nhandoff = \"always\"\n[consent]\ntext = \"always\"\n[targets.t]\nprotocol = \"openai_chat\"\n\
         base_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\nmax_output_tokens = 100\ninput_usd_per_million = 1\n\
         output_usd_per_million = 1\n",
        target.port()
    );
    std::fs::write(cactus.0.path().join("policy.toml"), policy).unwrap();
    let answer = cactus.short(&["--policy", "policy.toml"]);
    assert_eq!(
        (&answer["response"], &answer["cost_is_exact"]),
        (&json!("far"), &json!(false))
    );
    assert!(answer["notes"].to_string().contains("FALSE BILL"), "{answer}");
    for told in [cactus.ok(&["route", "log"]), cactus.ok(&["route", "explain"])] {
        assert!(told.contains("FALSE BILL of $1000000"), "{told}");
    }
    // The budget of the day is not closed by it.
    let budget: Value = serde_json::from_str(&cactus.ok(&["route", "budget", "--json"])).unwrap();
    let spent = budget["day_usd"].as_f64().unwrap();
    assert!(spent > 0.0 && spent < 0.001, "{budget}");
    assert_eq!(budget["unsettled"], 0);
}
