//! Policy files as people write them, right and wrong.

use super::*;
use crate::money::Pico;
use crate::redact::{Action, Class, Kind};
use serde_json::json;

/// The example of the documentation.
fn documentation() -> &'static str {
    include_str!("../../../../docs/reference/policy.md")
}

fn example() -> &'static str {
    let (_, rest) = documentation().split_once("```toml\n").unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn example_of_the_documentation_is_read() {
    let policy = Policy::from_toml(example()).unwrap();
    assert_eq!(policy.prefer, ["lan", "haiku", "ears"]);
    let names = |targets: Vec<(&str, &Target)>| targets.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(names(policy.preferred(false, false, false).collect()), ["lan", "haiku"]);
    assert_eq!(names(policy.hearers().collect()), ["ears"]);
    let ears = &policy.targets["ears"];
    assert_eq!(
        (ears.minute, ears.word_times, ears.tools),
        (Some(Pico::ZERO), true, false)
    );
    assert_eq!(policy.transcription, crate::transcript::Rules::default());
    let haiku = &policy.targets["haiku"];
    assert_eq!(
        haiku.price,
        Price {
            input: Pico(100_000),
            output: Pico(500_000)
        }
    );
    assert_eq!(haiku.key, KeySource::Environment("ANTHROPIC_API_KEY".to_owned()));
    assert_eq!(
        (haiku.accuracy("tools"), haiku.accuracy("default")),
        (Some(0.95), Some(0.9))
    );
    assert_eq!(policy.caps.day, Some(Pico(1_000_000_000_000)));
    assert_eq!(policy.caps.month, Some(Pico(10_000_000_000_000)));
    assert_eq!(policy.redaction.action(Kind::Card), Action::Block);
    assert_eq!(policy.tool("get_weather"), ToolUse::CloudMayCall);
    assert_eq!(policy.tool("send_mail"), ToolUse::LocalOnly);
    let text = [Class::Text];
    assert_eq!(policy.consent.verdict(&text, "lan"), Verdict::Ask(vec![Class::Text]));
    assert_eq!(
        policy.consent.verdict(&[Class::Text, Class::Audio], "lan"),
        Verdict::Denied(Class::Audio)
    );
    assert_eq!(policy.consent.verdict(&[Class::Document], "lan"), Verdict::Granted);
    assert_eq!(
        policy.consent.verdict(&[Class::Document], "haiku"),
        Verdict::Denied(Class::Document)
    );
}

#[test]
fn empty_policy_lets_nothing_leave() {
    let policy = Policy::from_toml("version = 1").unwrap();
    assert_eq!(policy, Policy::default());
    assert_eq!(
        policy.consent.verdict(&[Class::Text], "x"),
        Verdict::Denied(Class::Text)
    );
    assert!(policy.prefer.is_empty());
}

#[test]
fn without_prefer_all_targets_are_asked_in_the_order_of_the_file() {
    let target = |name: &str| {
        format!(
            "[targets.{name}]\nprotocol = \"gemini\"\nmodel = \"m\"\nbase_url = \"https://x\"\n\
             input_usd_per_million = 0\noutput_usd_per_million = 0\n"
        )
    };
    let targets = target("z") + &target("a") + &target("m");
    let policy = Policy::from_toml(&format!("version = 1\n{targets}")).unwrap();
    assert_eq!(policy.prefer, ["z", "a", "m"]);
    let policy = Policy::from_toml(&format!("version = 1\nprefer = []\n{targets}")).unwrap();
    assert!(policy.prefer.is_empty());
}

#[test]
fn wrong_file_names_the_line_and_what_was_expected() {
    let target = |line: &str| {
        format!(
            "version = 1\n[targets.a]\nprotocol = \"gemini\"\nmodel = \"m\"\ninput_usd_per_million = 0\n\
             output_usd_per_million = \"0.5\"\n{line}\n"
        )
    };
    let with_url = |line: &str| target(&format!("base_url = \"https://x\"\n{line}"));
    for (text, line, expected) in [
        ("handoff = \"auto\"".to_owned(), 1, "expected `version = 1`"),
        ("version = 2".to_owned(), 1, "expected version = 1; found 2"),
        (
            "version = 1\nhandof = \"auto\"".to_owned(),
            2,
            "found `handof`, did you mean `handoff`?",
        ),
        (
            "version = 1\n\nhandoff = \"maybe\"".to_owned(),
            3,
            "expected one of `never`, `auto`, `always`; found `maybe`",
        ),
        (
            "version = 1\nprefer = [\"x\"]".to_owned(),
            2,
            "expected the name of a target (none); found `x`",
        ),
        (
            "version = 1\nprefer = [\"a\",\n\"a\"]\n[targets.a]\nprotocol = \"anthropic\"\nbase_url = \"https://a.test\"\nmodel = \"m\"\n\
             input_usd_per_million = 1\noutput_usd_per_million = 1"
                .to_owned(),
            3,
            "expected each target once; found `a` again",
        ),
        (
            "version = 1\n[consent]\ntext = \"sometimes\"".to_owned(),
            3,
            "expected one of `never`, `ask`, `listed`, `always`; found `sometimes`",
        ),
        (
            "version = 1\n[consent]\nlisted = [\"b\"]".to_owned(),
            3,
            "expected the name of a target",
        ),
        (
            "version = 1\n[budget]\nday_usd = -1".to_owned(),
            3,
            "expected dollars such as `0.25`",
        ),
        (
            "version = 1\n[budget]\nday_usd = 1e-13".to_owned(),
            3,
            "expected dollars",
        ),
        (
            "version = 1\n[deadlines]\ngap_ms = 0".to_owned(),
            3,
            "expected milliseconds, from 1 on; found 0",
        ),
        (
            "version = 1\n[routing]\nmax_error = 1.5".to_owned(),
            3,
            "expected a number from 0 to 1; found 1.5",
        ),
        (
            "version = 1\n[routing]\nhedge_range = [0.9, 0.1]".to_owned(),
            3,
            "expected the lower end first",
        ),
        (
            "version = 1\n[routing]\nretries = 6".to_owned(),
            3,
            "expected at most 5 retries; found 6",
        ),
        ("version = 1\n[redaction]\nemail = true".to_owned(), 3, ""),
        ("version = 1\n[".to_owned(), 2, ""),
        (
            target("base_url = \"http://example.com\""),
            7,
            "expected `https`: plain `http` can be read on the way, so it is only for this machine",
        ),
        (
            target("base_url = \"http://192.168.1.2:80\""),
            7,
            "or `plain_http = true`",
        ),
        (
            target("base_url = \"https://x/v1?key=sk-12345\""),
            7,
            "expected an address without `?`",
        ),
        (
            target("base_url = \"https://x/v1/chat/completions/\""),
            7,
            "without its end `/chat/completions`, which is added to it: leave it off",
        ),
        (target("base_url = \"https://x/v1/messages\""), 7, "its end `/messages`"),
        (target("base_url = \"https://x/v1/responses\""), 7, "its end `/responses`"),
        (target("base_url = \"https://x:70000/v1\""), 7, "expected an address such as"),
        (
            target("base_url = \"http://host.example/v1\"\nplain_http = true"),
            7,
            "numeric addresses of private networks",
        ),
        (
            target("base_url = \"https://u:p@example.com\""),
            7,
            "without user or password",
        ),
        (target("base_url = \"example.com\""), 7, "expected an address such as"),
        (
            with_url("usd_per_minute = 1"),
            3,
            "is a price of `protocol = \"openai_transcriptions\"`",
        ),
        (
            with_url("").replace("gemini", "openai_transcriptions"),
            3,
            "expected `usd_per_minute`, and no price for tokens",
        ),
        (
            with_url("").replace("input_usd_per_million = 0", ""),
            3,
            "expected `input_usd_per_million` and",
        ),
        (
            "version = 1\n[transcription]\nleast_logprob = 0.5".to_owned(),
            3,
            "0 or below; found 0.5",
        ),
        (
            "version = 1\n[transcription]\nlongest_s = 0.5".to_owned(),
            3,
            "expected a number from 1 to 600; found 0.5",
        ),
        (
            "version = 1\n[transcription]\npadding_s = -1".to_owned(),
            3,
            "expected a number from 0 to 5; found -1",
        ),
        (with_url("key = \"sk-12345\""), 8, "expected where the key is"),
        (with_url("priced_on = \"yesterday\""), 8, "expected a day such as"),
        (with_url("max_output_tokens = 0"), 8, "expected at least 1 token"),
        (
            with_url("accuracy = { default = 0.9, math = 0.95 }"),
            8,
            "expected a kind of task (`default`, `tools`); found `math`",
        ),
        (
            with_url("").replace("targets.a", "targets.local"),
            2,
            "cannot be called `local`",
        ),
        (
            with_url("").replace("targets.a", "targets.auto"),
            2,
            "cannot be called `auto`",
        ),
        (
            "version = 1\n[consent]\ntext = \"listed\"".to_owned(),
            2,
            "`text = \"listed\"` lets nothing leave without a list",
        ),
        (
            with_url("accuracy = { default = 90 }"),
            8,
            "expected a number from 0 to 1",
        ),
    ] {
        let error = Policy::from_toml(&text).unwrap_err();
        assert_eq!(error.line, line, "{error} of {text}");
        assert!(error.what.contains(expected), "{error} of {text}");
        assert!(!error.what.contains("sk-12345"), "a key in a message");
    }
    for fine in [
        "http://127.0.0.1:8081/v1",
        "http://localhost",
        "http://[::1]:80",
        "https://[2001:db8::1]/x",
    ] {
        Policy::from_toml(&target(&format!("base_url = \"{fine}\""))).unwrap();
    }
    Policy::from_toml(&target("base_url = \"http://10.0.0.2\"\nplain_http = true")).unwrap();
}

#[test]
fn types_and_names_are_told_in_words_of_the_file() {
    let head = "version = 1\n[targets.a]\nprotocol = \"gemini\"\nbase_url = \"https://x\"\nmodel = \"m\"\n\
                input_usd_per_million = 0\noutput_usd_per_million = 0\n";
    let here = |text: &str| format!("{head}{text}");
    for (text, (line, column), expected) in [
        (head.replace("\"m\"", "3"), (5, 9), "expected text in quotes; found `3`"),
        (
            head.replace("\"m\"", "2026-11-22"),
            (5, 9),
            "expected text in quotes; found `2026-11-22`",
        ),
        (
            head.replace("\"m\"", "[\"m\"]"),
            (5, 9),
            "expected text in quotes; found a list",
        ),
        (
            head.replace("\"m\"", "{ name = \"m\" }"),
            (5, 9),
            "expected text in quotes; found a table",
        ),
        (
            head.replace("\"m\"", "\" \""),
            (5, 9),
            "expected the name that the model has there; found an empty one",
        ),
        (
            head.replace("model = \"m\"\n", ""),
            (2, 1),
            "expected the option `model` in this table; found none",
        ),
        (
            head.replace("\"gemini\"", "3"),
            (3, 12),
            "expected a word in quotes; found `3`",
        ),
        (
            head.replace("targets.a", "targets.\"\""),
            (2, 1),
            "expected a name for the target",
        ),
        (
            here("images = \"yes\""),
            (8, 10),
            "expected true or false; found `\"yes\"`",
        ),
        (here("imagse = true"), (8, 1), "found `imagse`, did you mean `images`?"),
        (
            here("max_output_tokens = -5"),
            (8, 21),
            "expected a whole number from 0 to 4294967295; found `-5`",
        ),
        (
            here("max_output_tokens = 1.5"),
            (8, 21),
            "expected a whole number from 0 to 4294967295; found `1.5`",
        ),
        (
            here("model = \"n\""),
            (8, 1),
            "expected each name once; found `model` again: remove one of them",
        ),
        (
            here("key = 12345"),
            (8, 7),
            "expected text in quotes; found something else",
        ),
        (
            here("[targets.b]\nmodel = \"m\"\n[targets.b]"),
            (10, 10),
            "expected each name once; found `b` again",
        ),
        (
            here("[budget]\nday_usd = true"),
            (9, 11),
            "expected dollars such as 0.25; found `true`",
        ),
        (
            here("[routing]\nhedge_range = [0.1]"),
            (9, 15),
            "expected a list of 2; found one of 1",
        ),
        (
            here("[routing]\nmax_error = \"0.1\""),
            (9, 13),
            "expected a number; found `\"0.1\"`",
        ),
        (here("[routing]\nmax_error = 0"), (9, 13), "expected more than 0"),
        (here("[routing]\nmax_error = 1.0"), (9, 13), "less than 1"),
        (here("[hold_back]\ntokens = 0"), (9, 10), "expected at least 1 token"),
        (
            here("[consent]\nlisted = \"a\""),
            (9, 10),
            "expected a list in square brackets; found `\"a\"`",
        ),
        (
            here("[consent]\ntext = \"alwasy\""),
            (9, 8),
            "found `alwasy`, did you mean `always`?",
        ),
        (
            "version = 1\nprefer = 3".to_owned(),
            (2, 10),
            "expected a list in square brackets; found `3`",
        ),
        (
            "version = 1\nconsent = 3".to_owned(),
            (2, 11),
            "expected a table; found `3`",
        ),
        (
            "version = 1\ntargets = []".to_owned(),
            (2, 11),
            "expected a table; found a list",
        ),
        (
            "version = \"1\"".to_owned(),
            (1, 11),
            "expected a whole number; found `\"1\"`",
        ),
    ] {
        let error = Policy::from_toml(&text).unwrap_err();
        assert!(error.what.contains(expected), "{error} of {text}");
        assert_eq!((error.line, error.column), (line, column), "{error} of {text}");
        for word in [
            "invalid", "u32", "i64", "struct", "variant", "sequence", "boolean", "field", "12345",
        ] {
            assert!(!error.what.contains(word), "{error}");
        }
    }
}

#[test]
fn price_of_a_day_to_come_is_refused() {
    let text = |day: &str| example().replace("2026-11-22", day);
    let midday = 1_795_392_000 + 43_200;
    for day in ["2026-11-22", "2026-11-23", "2026-11-24"] {
        Policy::from_toml_at(&text(day), midday).unwrap();
    }
    let error = Policy::from_toml_at(&text("2026-11-25"), midday).unwrap_err();
    assert!(
        error
            .what
            .contains("a day that has been (today is 2026-11-23 by the clock"),
        "{error}"
    );
    assert_eq!(
        example().lines().nth(error.line - 1),
        Some("priced_on = \"2026-11-22\"")
    );
}

#[test]
fn rules_of_transcripts_are_read_in_their_units() {
    let policy = Policy::from_toml(
        "version = 1\n[transcription]\nleast_logprob = -1\nexpected_errors = 2\ndoubtful_word = 0.5\nkept_word = 1\n\
         padding_s = 0.25\nlongest_s = 10\n",
    );
    let rules = policy.unwrap().transcription;
    assert_eq!((rules.least_logprob, rules.expected_errors), (-1.0, 2.0));
    assert_eq!((rules.doubtful, rules.kept), (0.5, 1.0));
    assert_eq!((rules.margin_ms, rules.longest_ms), (250, 10_000));
}

#[test]
fn cactus_options_change_the_policy_and_never_give_consent() {
    let set = |options: &[(&str, serde_json::Value)]| {
        let mut policy = Policy::from_toml(example()).unwrap();
        for (name, value) in options {
            set_cactus_option(&mut policy, name, value).unwrap();
        }
        policy
    };
    let before = set(&[]);
    assert_eq!(set(&[("auto_handoff", json!(false))]).handoff, Handoff::Never);
    assert_eq!(
        set(&[("CACTUS_DISABLE_CLOUD_HANDOFF", json!("1"))]).handoff,
        Handoff::Never
    );
    assert_eq!(
        set(&[("no_cloud_handoff", json!(true)), ("confidence_threshold", json!(1))]).handoff,
        Handoff::Never
    );
    assert_eq!(set(&[("confidence_threshold", json!(1.0))]).handoff, Handoff::Always);
    assert_eq!(
        set(&[("confidence_threshold", json!("0.7"))])
            .routing
            .confidence_threshold,
        Some(0.7)
    );
    assert_eq!(
        set(&[("confidence_threshold", json!(-1))]).routing.confidence_threshold,
        None
    );
    let deadlines = set(&[("cloud_timeout_ms", json!(1500))]).deadlines;
    assert_eq!(
        (deadlines.total_ms, deadlines.first_payload_ms, deadlines.connect_ms),
        (1500, 1500, 1500)
    );
    let images = set(&[("handoff_with_images", json!(false))]);
    assert_eq!(
        images.consent.verdict(&[Class::Image], "haiku"),
        Verdict::Denied(Class::Image)
    );
    let no_ops = [
        ("auto_handoff", json!(true)),
        ("handoff_with_images", json!(true)),
        ("no_cloud_tele", json!(true)),
    ];
    assert_eq!(set(&no_ops), before);
    for (name, value, expected) in [
        ("auto_handof", json!(true), "expected one of auto_handoff, "),
        (
            "auto_handoff",
            json!("perhaps"),
            "expected true or false; found \"perhaps\"",
        ),
        (
            "cloud_timeout_ms",
            json!(0),
            "expected milliseconds, from 1 on; found 0",
        ),
        ("confidence_threshold", json!(null), "expected a number up to 1"),
    ] {
        let error = set_cactus_option(&mut Policy::default(), name, &value).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn documentation_has_every_cactus_option() {
    for option in CACTUS_OPTIONS {
        let row = format!("| `{}` | {} |", option.name, option.effect);
        assert!(
            documentation().contains(&row),
            "docs/reference/policy.md lacks the row\n{row}"
        );
    }
}
