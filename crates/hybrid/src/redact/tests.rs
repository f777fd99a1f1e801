//! What is found, what is not, and that everything comes back.

use super::detect::detect;
use super::*;
use proptest::prelude::*;
use serde_json::json;

pub(super) fn found(text: &str) -> Vec<(Kind, &str)> {
    detect(text, |_| true)
        .into_iter()
        .map(|s| (s.kind, &text[s.start..s.end]))
        .collect()
}

#[test]
fn text_of_each_kind_is_found_whole() {
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U";
    for (kind, matched) in [
        (Kind::Email, "jo.doe+tag@mail.example.co.uk"),
        (Kind::Email, "jörg@müller.de"),
        (Kind::Email, "иван@пример.рф"),
        (Kind::Email, "ａｎｎａ＠example.com"),
        (Kind::Phone, "+49 30 1234567"),
        (Kind::Phone, "+1 (415) 555-0100"),
        (Kind::Phone, "+442079460000"),
        (Kind::Phone, "(415) 555-0100"),
        (Kind::Phone, "415-555-0100"),
        (Kind::Phone, "0171 2345678"),
        (Kind::Phone, "(030) 1234567"),
        (Kind::Phone, "06.12.34.56.78"),
        (Kind::Phone, "0049 30 1234567"),
        (Kind::Card, "4111 1111 1111 1111"),
        (Kind::Card, "4111-1111-1111-1111"),
        (Kind::Card, "4111.1111.1111.1111"),
        (Kind::Card, "378282246310005"),
        (Kind::Card, "3782 822463 10005"),
        (Kind::Card, "4111\u{a0}1111\u{a0}1111\u{a0}1111"),
        (Kind::Iban, "DE89 3704 0044 0532 0130 00"),
        (Kind::Iban, "GB82WEST12345698765432"),
        (Kind::Iban, "fr1420041010050500013m02606"),
        (Kind::NationalId, "536-90-4399"),
        (Kind::NationalId, "12345678Z"),
        (Kind::NationalId, "X1234567L"),
        (Kind::NationalId, "RSSMRA85T10A562S"),
        (Kind::NationalId, "AB123456C"),
        (Kind::NationalId, "AB 12 34 56 C"),
        (Kind::NationalId, "529.982.247-25"),
        (Kind::NationalId, "86095742719"),
        (Kind::NationalId, "44051401359"),
        (Kind::NationalId, "2 55 08 14 168 025 38"),
        (Kind::NationalId, "11010519491231002X"),
        (Kind::NationalId, "2341 2341 2346"),
        (Kind::Key, "sk-proj-abcdefghijklmnopqrstuvwx"),
        (Kind::Key, "AKIAIOSFODNN7EXAMPLE"),
        (Kind::Key, "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
        (
            Kind::Key,
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
        ),
        (Kind::Jwt, jwt),
        (Kind::Ip, "192.168.17.4"),
        (Kind::Ip, "2001:db8::8a2e:370:7334"),
        (Kind::Ip, "fe80::1"),
        (Kind::Position, "52.516275, 13.377704"),
        (Kind::Position, "-33.85678° S, 151.21530° E"),
        (Kind::Position, "52°31'12\"N"),
        (Kind::Position, "13° 24′ 18.5″ E"),
        (Kind::Placeholder, "[EMAIL_1]"),
    ] {
        for text in [
            matched.to_owned(),
            format!("({matched})"),
            format!("Say {matched}, please."),
            format!("\"a\":\"{matched}\"\n"),
            format!("値は{matched}です"),
            format!("x={matched}."),
        ] {
            assert_eq!(found(&text), [(kind, matched)], "in {text:?}");
        }
    }
}

#[test]
fn values_behind_labels_are_found() {
    for (kind, text, matched) in [
        (Kind::Key, "password: hunter2!", "hunter2!"),
        (Kind::Key, "{\"api_key\": \"abcd1234efgh\"}", "abcd1234efgh"),
        (Kind::Key, "export AWS_SECRET_KEY=a1b2c3d4e5/+", "a1b2c3d4e5/+"),
        (
            Kind::Key,
            "Authorization: Bearer abcdefgh.ijklmnop",
            "abcdefgh.ijklmnop",
        ),
        (Kind::Key, "password: pa\"ss1word and", "pa\"ss1word"),
        (Kind::Key, "password: ünï\"q9zz", "ünï\"q9zz"),
        (Kind::Key, "say \"password: hunter2\", then", "hunter2"),
        (Kind::Key, "pass: hunter2", "hunter2"),
        (Kind::Key, "DB_PASS=hunter2x", "hunter2x"),
        (Kind::Key, "pw: hunter2", "hunter2"),
        (Kind::Key, "mein Passwort: geheim1", "geheim1"),
        (Kind::Key, "contraseña: secreto1", "secreto1"),
        (Kind::Key, "my password is: hunter2", "hunter2"),
        (Kind::Key, "curl -u admin:s3cretpw https://x", "s3cretpw"),
        (
            Kind::Key,
            "Cookie: session=a1b2c3; theme=dark\nHost: x",
            "session=a1b2c3; theme=dark",
        ),
        (
            Kind::Email,
            "from \"anna smith\"@example.com",
            "\"anna smith\"@example.com",
        ),
        (Kind::Phone, "phone 4155552671", "4155552671"),
        (Kind::Phone, "Tel.: 5552671", "5552671"),
        (Kind::Position, "geo:52.52,13.405", "52.52,13.405"),
        (Kind::Key, "https://user:pass@host.example.com/x", "pass"),
        (Kind::Key, "postgres://u:p4ssw0rd@db/x", "p4ssw0rd"),
        (Kind::Key, "redis://:p4@ss@[::1]:6379", "p4@ss"),
        (Kind::Key, "password: Tr0ub4,dor&3", "Tr0ub4,dor&3"),
        (Kind::Key, "password: $ecret;99 x", "$ecret;99"),
        (
            Kind::Key,
            "password: \"correct horse battery 9\" is",
            "correct horse battery 9",
        ),
        (
            Kind::Key,
            "pwd='correct;horse;battery9', it's",
            "correct;horse;battery9",
        ),
        (Kind::Key, "password: 'it's 1 dog'.", "it's 1 dog"),
        (Kind::Key, "password: \"my dog 1\"", "my dog 1"),
        (Kind::Key, "password: `my jo@b.example` and", "my jo@b.example"),
        (Kind::Key, r#"{"password": "ab\"cdefgh9"}"#, r#"ab\"cdefgh9"#),
        (Kind::Key, r#"{"password": "ab\\", "x": "y"}"#, r"ab\\"),
        (
            Kind::Key,
            r#""{\"password\": \"my \\\"dog\\\" 1\"}""#,
            r#"my \\\"dog\\\" 1"#,
        ),
        (Kind::Key, "password: \"hunter2 is\nopen\"", "hunter2"),
        (Kind::Key, "/?password=hunter2xyz&user=bob, then", "hunter2xyz"),
        (Kind::Key, "Server=db;Password=hunter2xyz;Database=x", "hunter2xyz"),
        (Kind::Key, "my api key: 9f8e7d6c5b4a", "9f8e7d6c5b4a"),
        (Kind::Key, "Access-Key = 9f8e7d6c5b4a", "9f8e7d6c5b4a"),
        (Kind::Key, "Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        (Kind::Key, "{\"authorization\": \"basic dXNlcjpwYXNz\"}", "dXNlcjpwYXNz"),
        (Kind::Jwt, "token: eyJhbGciOiJI.eyJz1.abc.", "eyJhbGciOiJI.eyJz1.abc"),
        (Kind::Position, "{\"lat\": 52.51, \"x\": 1.25}", "52.51"),
        (Kind::Position, "longitude = -13.37", "-13.37"),
    ] {
        assert_eq!(found(text), [(kind, matched)], "{text}");
    }
}

#[test]
fn text_that_only_resembles_is_left() {
    for text in [
        "def login(password: str) -> bool:",
        "password = input(\"pw: \")",
        "password = os.getenv(\"DB\")",
        "password: Optional[str]",
        "let password: String = read();",
        "struct A { password: Option<String> }",
        "PASS: builds_1 and runs",
        "bypass: on1e",
        "0.0123456789",
        "550e8400-e29b-41d4-a716-446655440000",
        "version 1.2.3.4",
        "3 times 4155552671",
        "On 2026-11-22 at 12:34:56 the 3 results were 1,234,567.89 and 0.12345, 0.54321.",
        "version 1.2.3, 10.4.2.1.7, std::net::Ipv6Addr, a::b, 127.0.0.1, ::1",
        "4111 1111 1111 1112 and 12345678A and DE00 3704 1044 5531 1130 00",
        "token: the thing that a parser eats; key = value",
        "user@localhost, @handle, a@b, [EMAIL], [email_1], [_1], [X_]",
        "3.14159265358979323846, 1e-12, 0xdeadbeef, 100 200 300 400",
        "the password: is required; pwd: yes, token: 5, {password: [a-z]+} and password: ********",
        "password := read(); if password == \"x\" { password = ${P4SSW0RD} } password: <y0ur-password>",
        "a basic understanding, Basic authentication; https://example.org/@jo:x and http://h:8080/a@b",
        "api key: see page 12, ?token=a&b=12345678, private key: needed",
        "sk-short, eyJ.a, -----BEGIN CERTIFICATE-----",
        "05-11-2024 10:30, 05/11/2024 10:30, 2026-11-22T12:34:56Z, 1732276800000",
        "tel 12345, room 0815, 2000-2024, 1/2/2024",
    ] {
        assert_eq!(found(text), [], "{text}");
    }
}

#[test]
fn same_value_has_the_same_placeholder_and_rules_decide() {
    let mut redactor = Redactor::new(
        Rules::default()
            .with(Kind::Ip, Action::Allow)
            .with(Kind::Iban, Action::Block),
    );
    let text = "a@b.example, c@d.example, a@b.example at 10.1.2.3; write [EMAIL_2]";
    let redacted = redactor.redact(text).unwrap();
    assert_eq!(redacted, "[EMAIL_1], [EMAIL_2], [EMAIL_1] at 10.1.2.3; write [TEXT_1]");
    assert_eq!(redactor.restore(&redacted), text);
    assert_eq!(redactor.redact("c@d.example").unwrap(), "[EMAIL_2]");
    assert_eq!(redactor.redact("DE89370400440532013000"), Err(Blocked(Kind::Iban)));
    assert_eq!(redactor.replaced()[&Kind::Email], 4);
}

#[test]
fn json_is_redacted_within_and_restored_with_its_types() {
    let mut redactor = Redactor::new(Rules::default());
    let original = json!({"to": ["a@b.example"], "card": 4111111111111111u64, "a@b.example": 1, "lat": 52.5, "n": 7});
    let mut value = original.clone();
    redactor.redact_json(&mut value).unwrap();
    let sent = json!({"to": ["[EMAIL_1]"], "card": "[CARD_1]", "[EMAIL_1]": 1, "lat": "[POSITION_1]", "n": 7});
    assert_eq!(value, sent);
    redactor.restore_json(&mut value);
    assert_eq!(value, original);
}

#[test]
fn values_are_restored_as_the_schema_wants_them() {
    let mut redactor = Redactor::default();
    let sent = redactor
        .redact("card 4111 1111 1111 1111, pin: pw: 4821, fax 0171 2345678")
        .unwrap();
    assert_eq!(sent, "card [CARD_1], pin: pw: [KEY_1] fax [PHONE_1]");
    redactor
        .redact_json(&mut json!({"card": 5555555555554444u64, "lat": 52.5}))
        .unwrap();
    let schema = json!({
        "type": "object",
        "properties": {
            "card": {"type": "integer"}, "text": {"type": "string"}, "either": {"type": ["integer", "string"]},
            "list": {"type": "array", "items": {"$ref": "#/$defs/n"}}, "phone": {"type": "integer"},
            "place": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"lat": {"type": "string"}}}]},
        },
        "additionalProperties": {"type": "number"},
        "$defs": {"n": {"allOf": [{"type": "number"}, {"$ref": "#/$defs/n"}]}},
    });
    let mut value = json!({"card": "[CARD_1]", "text": "[CARD_2]", "either": "[CARD_2]", "list": ["[CARD_1]", "no [CARD_1]", 3],
        "phone": "[PHONE_1]", "place": {"lat": "[POSITION_1]"}, "x": "[POSITION_1]"});
    let mut plain = value.clone();
    redactor.restore_json_as(&mut value, &schema);
    assert_eq!(
        value,
        json!({"card": 4111111111111111u64, "text": "5555555555554444", "either": 5555555555554444u64,
            "list": [4111111111111111u64, "no 4111 1111 1111 1111", 3], "phone": "0171 2345678",
            "place": {"lat": "52.5"}, "x": 52.5})
    );
    // Without a schema, each is what it was.
    redactor.restore_json(&mut plain);
    assert_eq!(plain["card"], "4111 1111 1111 1111");
    assert_eq!(plain["text"], 5555555555554444u64);
}

#[test]
fn secret_under_a_key_of_json_leaves_nowhere_and_comes_back() {
    let json = |value: &Value| Part {
        class: Class::ToolResult,
        content: Content::Json(value.clone()),
    };
    let text = |text: &str| Part {
        class: Class::Text,
        content: Content::Text(text.to_owned()),
    };
    let arguments = json!({"password": "hunter2-xyz!", "apiKey": "abcdef0123456789abcdef", "user": "bob", "pin": 4821,
        "list": {"passwords": 3, "Client-Secret": ["s3cr3t 4567", {"x": 1}]}, "max_tokens": 12345678, "pwd": 4821});
    let schema = json!({"properties": {"password": {"type": "string", "description": "password: string"}}, "required": ["password"]});
    let parts = vec![
        text(
            "I am bob. Try hunter2-xyz! at https://h/?k=abcdef0123456789abcdef&x, then s3cr3t 4567 in 4821s or 148210.",
        ),
        json(&arguments),
        json(&schema),
        text("hunter2-xyz! works, 4821 too"),
    ];
    let gate = Gate::for_classes(&[Class::Text, Class::ToolResult]);
    let mut redactor = Redactor::new(Rules::default());
    let sent = gate.pass(parts.clone(), &mut redactor).unwrap().into_parts();
    let all = format!("{sent:?}");
    for secret in ["hunter2", "abcdef0123", "s3cr3t", " 4821 ", "Number(4821)"] {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
    assert!(
        all.contains("bob") && all.contains("4821s or 148210") && all.contains("12345678"),
        "{all}"
    );
    // The words of a schema stay what they are.
    let Content::Json(sent_schema) = &sent[2] else { panic!() };
    assert_eq!(sent_schema["properties"]["password"]["type"], "string");
    assert_eq!(sent_schema["required"], json!(["password"]));
    for (part, sent) in parts.iter().zip(sent) {
        match (&part.content, sent) {
            (Content::Text(text), Content::Text(sent)) => assert_eq!(&redactor.restore(&sent), text),
            (Content::Json(value), Content::Json(mut sent)) => {
                redactor.restore_json(&mut sent);
                assert_eq!(&sent, value);
            }
            other => panic!("{other:?}"),
        }
    }
    let mut blocking = Redactor::new(Rules::default().with(Kind::Key, Action::Block));
    let refused = gate.pass(vec![json(&arguments)], &mut blocking).unwrap_err();
    assert_eq!(refused, Refused::Blocked(Blocked(Kind::Key)));
    let mut allowing = Redactor::new(Rules::default().with(Kind::Key, Action::Allow));
    let sent = gate.pass(vec![json(&arguments)], &mut allowing).unwrap();
    assert_eq!(sent.parts(), [Content::Json(arguments)]);
}

#[test]
fn secret_that_has_a_label_once_leaves_nowhere() {
    let one = |class, text: &str| {
        vec![Part {
            class,
            content: Content::Text(text.to_owned()),
        }]
    };
    let gate = Gate::for_classes(&[Class::Text, Class::ToolResult]);
    for (text, sent) in [
        (
            "My password: hunter2xyz. Remember it. Log in with hunter2xyz please",
            "My password: [KEY_1] Remember it. Log in with [KEY_2] please",
        ),
        (
            "(password: hunter2xyz) and hunter2xyz",
            "(password: [KEY_1] and [KEY_2]",
        ),
        (
            "password=hunter2xyz&user=bob, then hunter2xyz",
            "password=[KEY_1]&user=bob, then [KEY_1]",
        ),
        (
            "password: hunter2xyz,user:bob and hunter2xyz",
            "password: [KEY_1] and [KEY_2]",
        ),
        (
            r#"{"password": "ab\"cdefgh9"} is ab"cdefgh9"#,
            r#"{"password": "[KEY_1]"} is [KEY_2]"#,
        ),
        (
            "postgres://u:p4ssw0rd@db/x, p4ssw0rd",
            "postgres://u:[KEY_1]@db/x, [KEY_1]",
        ),
        (
            "password: monkey, name: monkey, all monkeys",
            "password: [KEY_1] name: monkey, all monkeys",
        ),
        ("password: \"my dog, 1\" of my dog", "password: \"[KEY_1]\" of my dog"),
    ] {
        let mut redactor = Redactor::default();
        let parts = gate.pass(one(Class::Text, text), &mut redactor).unwrap().into_parts();
        assert_eq!(parts, [Content::Text(sent.to_owned())], "{text}");
        assert_eq!(redactor.restore(sent), text);
    }
    // Where secrets may leave, what else they hold may not.
    let mut allowing = Redactor::new(Rules::default().with(Kind::Key, Action::Allow));
    let sent = allowing.redact("password: \"jo@b.example 9\", api_key=abcd1234&x=10.1.2.3");
    assert_eq!(sent.unwrap(), "password: \"[EMAIL_1] 9\", api_key=abcd1234&x=[IP_1]");
}

#[test]
fn result_that_is_json_is_redacted_as_json() {
    let part = |class, text: String| Part {
        class,
        content: Content::Text(text),
    };
    let result = json!({"password": "my dog 1", "login": {"password": {"value": "hunter2xyz", "old": ["corr\"ect", 4821],
        "hint": "ask your colleague", "type": "string", "minLength": 8}}, "headers": {"Authorization": "Basic dXNlcjpwYXNz"},
        "text": "{\"password\": \"my cat 2\"}"});
    let gate = Gate::for_classes(&[Class::Text, Class::ToolResult]);
    let mut redactor = Redactor::default();
    let said = "my dog 1, hunter2xyz, corr\"ect, my cat 2 and dXNlcjpwYXNz";
    let parts = vec![
        part(Class::Text, said.to_owned()),
        part(Class::ToolResult, result.to_string()),
        part(Class::ToolResult, "{\"n\":  1}".to_owned()),
        part(
            Class::ToolResult,
            "{\"password\": \"my owl 3\", \"password\": \"\"}".to_owned(),
        ),
    ];
    let sent = gate.pass(parts, &mut redactor).unwrap().into_parts();
    let all = format!("{sent:?}");
    for secret in ["dog", "hunter2", "corr", "4821", "dXN", "cat", "owl"] {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
    let [Content::Text(text), Content::Text(json), Content::Text(same), _] = &sent[..] else {
        panic!("{all}")
    };
    assert_eq!(redactor.restore(text), said);
    assert_eq!(same, "{\"n\":  1}");
    let mut json: Value = serde_json::from_str(json).unwrap();
    let about = &json["login"]["password"];
    assert_eq!(
        (&about["hint"], &about["type"], &about["minLength"]),
        (&json!("ask your colleague"), &json!("string"), &json!(8))
    );
    redactor.restore_json(&mut json);
    assert_eq!(json, result);
}

#[test]
fn placeholders_that_nobody_made_are_told_of_however_the_stream_is_cut() {
    let mut redactor = Redactor::new(Rules::default());
    // The person's own words look like a placeholder, and come back as they were.
    let sent = redactor.redact("jo@example.org wrote [EMAIL_7]").unwrap();
    assert_eq!(sent, "[EMAIL_1] wrote [TEXT_1]");
    let answer = "[EMAIL_1], [EMAIL_2], [TEXT_1], [PHONE_1], [EMAIL_2], [FIGURE_1], [EMAIL_], [1]";
    for cut in 0..answer.len() {
        let mut restorer = Restorer::of_text();
        let text = restorer.push(&redactor, &answer[..cut]) + &restorer.push(&redactor, &answer[cut..]);
        assert_eq!(
            text,
            "jo@example.org, [EMAIL_2], [EMAIL_7], [PHONE_1], [EMAIL_2], [FIGURE_1], [EMAIL_], [1]"
        );
        let invented: Vec<&str> = restorer.invented().iter().map(String::as_str).collect();
        assert_eq!(invented, ["[EMAIL_2]", "[PHONE_1]"]);
    }
    let (mut restorer, nothing) = (Restorer::of_text(), Redactor::new(Rules::default()));
    restorer.push(&nothing, answer);
    assert!(
        restorer.invented().is_empty(),
        "where nothing is replaced they are text"
    );
}

#[test]
fn restored_arguments_of_a_tool_are_json_however_the_stream_is_cut() {
    let mut redactor = Redactor::new(Rules::default());
    redactor.redact("password: \"a\\b\u{1}c\"").unwrap();
    let key = redactor.placeholders.keys().next().unwrap().1.clone();
    assert_eq!(key, "a\\b\u{1}c");
    let sent = r#"{"p": "[KEY_1]", "list": [1, [2], "[KEY_2]"]}"#;
    for cut in 0..sent.len() {
        let mut restorer = Restorer::of_json();
        let text =
            restorer.push(&redactor, &sent[..cut]) + &restorer.push(&redactor, &sent[cut..]) + &restorer.finish();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value, json!({"p": key, "list": [1, [2], "[KEY_2]"]}));
    }
}

#[test]
fn gate_lets_all_of_a_request_pass_or_nothing() {
    let text = |class, text: &str| Part {
        class,
        content: Content::Text(text.to_owned()),
    };
    let parts = vec![text(Class::Text, "hi"), text(Class::Document, "from a@b.example")];
    let mut redactor = Redactor::new(Rules::default());
    let refused = Gate::for_classes(&[Class::Text])
        .pass(parts.clone(), &mut redactor)
        .unwrap_err();
    assert_eq!(refused, gate::Refused::NoConsent(Class::Document));
    let outgoing = Gate::for_classes(&[Class::Text, Class::Document])
        .pass(parts, &mut redactor)
        .unwrap();
    assert_eq!(outgoing.parts()[1], Content::Text("from [EMAIL_1]".to_owned()));
}

#[test]
fn hostile_text_takes_linear_work() {
    // Each would take hours if a start looked at all that follows.
    for unit in [
        "1 ",
        "a.",
        "eyJ-",
        "eyJ.",
        "a@",
        "@a.",
        ":",
        "1",
        "token=",
        "-----BEGIN ",
        "[EMAIL_",
        "(",
        "+1",
        "A1 ",
        "1.",
        "lat:",
        "pwd:'",
        "pwd:\\\"a ",
        "password=&",
        "api key: \"a ",
        "://",
        "://a:",
        "bearer ",
        "token:\"&a",
        "password: |\n ",
        "password: |\n \n",
        "password is ",
        "password of ",
        "<password>a",
        " --password a",
        "authorization: a ",
        "PuTTY-User-Key-File-",
        "Private-Lines: 9\nPuTTY-User-Key-File-",
        "-----BEGIN PRIVATE KEY",
        "密码是",
        "pass\u{ad}",
        "\u{200b}",
        "６",
        "4111\n",
        "41 ",
        "a4111 ",
        "+49\n",
        "DE89\n",
        "tel 1",
        "ni ab1",
        "用@",
        "用户用户用户",
        "@例.",
        "(a) :",
    ] {
        let text = unit.repeat(200_000 / unit.len());
        let mut redactor = Redactor::new(Rules::default());
        let redacted = redactor.redact(&text).unwrap();
        assert_eq!(redactor.restore(&redacted), text, "{unit}");
    }
}

/// Texts of pieces that are, or nearly are, of some kind.
fn texts() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "a@b.example",
        "4111 1111 1111 1111",
        "4111111111111111",
        "+49 30 1234567",
        "0171 2345678",
        "10.1.2.3",
        "fe80::1",
        "52.516275, 13.377704",
        "DE89370400440532013000",
        "536-90-4399",
        "12345678Z",
        "[EMAIL_1]",
        "[TEXT_1]",
        "[CARD_",
        "sk-abcdefghijklmnopqrstuvwx",
        "password: hunter22",
        "eyJhbGciOiJI.eyJzdWIi.abc",
        "lat: 52.51",
        "lat=",
        "Bearer ",
        "token=",
        "password=",
        "api key: ",
        "://u:",
        "Authorization: Basic ",
        "authorization: Token ",
        "password is hunter2x",
        "密码是",
        "<password>",
        "</password>",
        " --token ",
        "password: |\n  ",
        "PuTTY-User-Key-File-",
        "\u{ad}",
        "４１１１",
        "“",
        "-----BEGIN PRIVATE KEY-----\n",
        "&a=",
        "&",
        ";",
        "\\",
        "'",
        "ab1234",
        "AB123456C",
        "é",
        "-",
        ".",
        " ",
        "@",
        "1",
        "(",
        ")",
        "[",
        "]",
        "_",
        ":",
        "\"",
        "x",
        "0",
        ", ",
        "52.51627",
    ]);
    prop::collection::vec(
        prop_oneof![4 => known.prop_map(str::to_owned), 1 => "[ -~]{0,4}", 1 => any::<char>().prop_map(String::from)],
        0..12,
    )
    .prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn restored_stream_is_the_text_for_any_cuts_and_nothing_found_leaves(text in texts(), cuts in prop::collection::vec(0usize..200, 0..6)) {
        let mut redactor = Redactor::new(Rules::default());
        let redacted = redactor.redact(&text).unwrap();
        let mut restorer = Restorer::of_text();
        let mut restored = String::new();
        let mut at = 0;
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|c| redacted.is_char_boundary(*c)).collect();
        cuts.sort_unstable();
        for cut in cuts.into_iter().chain([redacted.len()]) {
            restored.push_str(&restorer.push(&redactor, &redacted[at..cut.max(at)]));
            prop_assert!(restorer.held_bytes() < 20);
            at = cut.max(at);
        }
        restored.push_str(&restorer.finish());
        prop_assert_eq!(&restored, &text);
        // Whatever is found in what leaves is one of our placeholders.
        for (kind, found) in found(&redacted) {
            prop_assert!(kind == Kind::Placeholder && redactor.value(found).is_some(), "{} in {:?}", found, redacted);
        }
    }
}
