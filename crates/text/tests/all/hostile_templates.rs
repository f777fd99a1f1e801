//! Templates that try to take the machine down, and files that are not what they say.

use cactus_text::{ChatTemplate, ChatTemplateSource, Error, ErrorKind, Limits, RenderOptions, message};
use proptest::prelude::*;

fn template(source: &str) -> Result<ChatTemplate, Error> {
    ChatTemplate::from_source(ChatTemplateSource {
        chat_template: Some(source),
        ..Default::default()
    })
}

/// Small, so that a guard that fails shows as a wrong result and not as a dead machine.
const LIMITS: Limits = Limits {
    fuel: 200_000,
    output_bytes: 100_000,
    value_bytes: 100_000,
    total_bytes: 2_000_000,
};

fn render(source: &str) -> Result<String, Error> {
    let chat = template(source)?.with_limits(LIMITS)?;
    chat.render(&[message("user", "hello")], &RenderOptions::default())
}

#[test]
fn limits_every_way_to_grow_ends_in_an_error() {
    let doubling = |step: &str| {
        format!(
            "{{% set ns = namespace(s='x', l=[1]) %}}{{% for i in range(60) %}}{step}{{% endfor %}}{{{{ ns.s|length }}}}"
        )
    };
    let cases = [
        doubling("{% set ns.s = ns.s ~ ns.s %}"),
        doubling("{% set ns.s = ns.s + ns.s %}"),
        doubling("{% set ns.s = ns.s * 2 %}"),
        doubling("{% set ns.s = 2 * ns.s %}"),
        doubling("{% set ns.s = [ns.s, ns.s]|join %}"),
        doubling("{% set ns.s = ''.join([ns.s, ns.s]) %}"),
        doubling("{% set ns.s = ns.s|replace('', ns.s) %}"),
        doubling("{% set ns.s = ns.s.replace('x', 'xx') %}"),
        doubling("{% set ns.s = '{}{}'.format(ns.s, ns.s) %}"),
        doubling("{% set ns.s = '%s%s'|format(ns.s, ns.s) %}"),
        doubling("{% set c %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = c %}"),
        doubling("{% macro m() %}{{ ns.s }}{{ ns.s }}{% endmacro %}{% set ns.s = m() %}"),
        doubling("{% set c %}{% filter upper %}{{ ns.s }}{{ ns.s }}{% endfilter %}{% endset %}{% set ns.s = c %}"),
        doubling("{% set ns.s = (ns.s, ns.s)|string %}"),
        doubling("{% set ns.l = ns.l + ns.l %}"),
        doubling("{% set ns.l = ns.l * 2 %}"),
        doubling("{% set ns.l = [ns.l, ns.l] %}"),
        doubling("{% set ns.l = {'a': ns.l, 'b': ns.l} %}"),
        doubling("{% set ns.l = dict(a=ns.l, b=ns.l) %}"),
        doubling("{% set ns.l = (ns.l, ns.l) %}"),
        doubling("{% set ns.l = [ns.l, ns.l]|map('list')|list %}"),
        "{{ 'x' * 99999999 }}".to_owned(),
        "{{ 'x' * 99999999999999999999 }}".to_owned(),
        "{{ ([1] * 99999999)|length }}".to_owned(),
        "{{ ((1,) * 99999999)|length }}".to_owned(),
        "{{ ('x' * 50000) ~ ('x' * 50001) }}".to_owned(),
        "{{ '%99999999d' % 1 }}{{ '%99999999d'|format(1) }}".to_owned(),
        "{{ '{:>99999999}'.format('x') }}".to_owned(),
        "{{ '{0}{0}{0}'.format('x' * 50000) }}".to_owned(),
        "{{ 'x'|indent(99999999) }}".to_owned(),
        "{{ 'x'|indent(width=99999999) }}".to_owned(),
        "{{ [1]|batch(99999999, 0)|list }}".to_owned(),
        "{{ [1]|slice(99999999)|list }}".to_owned(),
        "{{ range(1000)|list|join('x' * 1000) }}".to_owned(),
        "{{ ('x' * 1000).join(range(1000)) }}".to_owned(),
        "{{ [1]|tojson(indent=99999999) }}".to_owned(),
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}".to_owned(),
        format!("{{% for i in range(99999) %}}{}{{% endfor %}}", "y".repeat(1000)),
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}".to_owned(),
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".to_owned(),
        "{% macro m(x) %}{{ m([x]) }}{% endmacro %}{{ m(1) }}".to_owned(),
        "{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}".to_owned(),
        "{% set ns = namespace() %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}".to_owned(),
        "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}".to_owned(),
        "{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns|tojson }}".to_owned(),
        "{% set ns = namespace() %}{% set ns.me = dict(a=ns) %}{{ ns == ns.me }}".to_owned(),
        "{{ [[[]]] * 9999999 }}".to_owned(),
        "{{ raise_exception }}{{ 'x'|replace('', 'y' * 90000)|replace('y', 'z' * 90000) }}".to_owned(),
    ];
    for source in cases {
        match render(&source) {
            Ok(text) => panic!("{source}: rendered {} bytes", text.len()),
            Err(e) => assert!(
                matches!(e.kind(), ErrorKind::TemplateLimit | ErrorKind::Render),
                "{source}: {e}"
            ),
        }
    }
}

#[test]
fn limits_error_tells_them_from_other_failures() {
    for source in [
        "{{ 'x' * 999999 }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    ] {
        assert_eq!(render(source).unwrap_err().kind(), ErrorKind::TemplateLimit, "{source}");
    }
    for source in [
        "{{ 1 / 0 }}",
        "{{ nothing.at.all }}",
        "{{ 'x'.nonsense() }}",
        "{{ messages|nonsense }}",
        "{{ 'a' + 1 }}",
    ] {
        let e = render(source).unwrap_err();
        assert!(
            matches!(e.kind(), ErrorKind::Render | ErrorKind::InvalidTemplate),
            "{source}: {e}"
        );
    }
    let e = render("{{ raise_exception('No such role!') }}").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Render);
    assert_eq!(
        e.to_string(),
        "chat template `default` refused the conversation: No such role!"
    );
}

#[test]
fn compile_broken_or_deep_templates_end_in_an_error() {
    let long = |part: &str, count: usize| part.repeat(count);
    let cases = [
        "{{".to_owned(),
        "{% if %}".to_owned(),
        "{% endfor %}".to_owned(),
        "{% unknown %}".to_owned(),
        "{% generation %}".to_owned(),
        "{{ 'open }}".to_owned(),
        "{% include 'other' %}".to_owned(),
        "{% import 'other' as o %}".to_owned(),
        "{% from 'other' import o %}".to_owned(),
        "{% extends 'other' %}".to_owned(),
        format!("{{{{ 1{} }}}}", long(" + 1", 60_000)),
        format!("{{{{ {}1{} }}}}", long("(", 30_000), long(")", 30_000)),
        format!("{{{{ {}1{} }}}}", long("[", 30_000), long("]", 30_000)),
        format!("{{{{ {}x }}}}", long("not ", 40_000)),
        format!("{{{{ {}1 }}}}", long("-", 100_000)),
        format!("{{{{ x{} }}}}", long("|d", 60_000)),
        format!("{{{{ x{} }}}}", long(".a", 60_000)),
        format!("{{{{ x{} }}}}", long("[0]", 60_000)),
        format!("{{{{ 1{} }}}}", long(" if x else 1", 15_000)),
        format!("{{% if x %}}{}{{% endif %}}", long("{% elif x %}", 15_000)),
        long("{% if x %}", 20_000),
        long("{% for x in y %}", 10_000),
        "x".repeat(300_000),
    ];
    for source in cases {
        let shown = &source[..source.len().min(40)];
        match template(&source) {
            Ok(_) => panic!("{shown}: compiled"),
            Err(e) => assert!(
                matches!(
                    e.kind(),
                    ErrorKind::InvalidTemplate | ErrorKind::TemplateLimit | ErrorKind::InvalidConfig
                ),
                "{shown}: {e}"
            ),
        }
    }
}

#[test]
fn guards_leave_ordinary_expressions_as_they_are() {
    // Right: jinja2 3.1.6 in transformers' environment.
    let cases = [
        ("{{ 'a' ~ 1 ~ none ~ true ~ [1, 'b'] }}", "a1NoneTrue[1, 'b']"),
        (
            "{{ 'ab' * 2 }}{{ 2 * 'c' }}{{ 'x' * -1 }}{{ [1] * 2 }}{{ 3 * 4 }}{{ 1.5 * 2 }}{{ (1,) * 2 }}",
            "ababcc[1, 1]123.0(1, 1)",
        ),
        ("{{ true * 3 }}{{ 9223372036854775807 * 2 }}", "318446744073709551614"),
        ("{{ 1 + 2 * 3 ** 2 - 4 // 3 }}{{ 7 % 4 }}{{ -7 // 2 }}", "183-4"),
        ("{% set a, b = 1, 'x' %}{{ a }}{{ b }}", "1x"),
        (
            "{% set ns = namespace(n=1) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
            "4",
        ),
        ("{% set c %}<{{ 1 }}>{% endset %}{{ c ~ c }}", "<1><1>"),
        ("{% set c | upper | trim %} a {% endset %}[{{ c }}]", "[A]"),
        ("{% filter upper %}a{{ 'b' }}{% endfilter %}", "AB"),
        (
            "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, b=3) }}",
            "1213",
        ),
        (
            "{% macro m(x) %}[{{ caller(x) }}]{% endmacro %}{% call(y) m('z') %}{{ y }}{% endcall %}",
            "[z]",
        ),
        (
            "{% for i in [[1, [2]], []] recursive %}({{ loop(i) if i is iterable else i }}){% endfor %}",
            "((1)((2)))()",
        ),
        (
            "{% for i in range(3) if i != 1 %}{{ loop.index }}{{ loop.last }}{% else %}none{% endfor %}",
            "1False2True",
        ),
        (
            "{% for k, v in {'b': 1, 'a': 2}|dictsort %}{{ k }}{{ v }}{% endfor %}",
            "a2b1",
        ),
        ("{% with x = 1, y = 2 %}{{ x + y }}{% endwith %}", "3"),
        (
            "{{ messages[0].content[1:-1][::-1] }}{{ messages[-1]['role'] }}",
            "lleuser",
        ),
        (
            "{{ 'x' if 1 in [1, 2] and 3 not in [1] else 'y' }}{{ 1 < 2 < 3 }}",
            "xTrue",
        ),
        (
            "{% generation %}{{ messages[0].content }}{% endgeneration %}!",
            "hello!",
        ),
        ("{% raw %}{% generation %}{% endraw %}", "{% generation %}"),
        ("{{ '{% generation %}' }}{# {% generation %} #}", "{% generation %}"),
        (
            "{{ {'a': {'b': 1}}|tojson }}{{ [1, 'é<']|tojson(ensure_ascii=true) }}",
            "{\"a\": {\"b\": 1}}[1, \"\\u00e9<\"]",
        ),
        (
            "{{ {'a': [1, {}], 'b': []}|tojson(indent=2) }}",
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}",
        ),
        (
            "{{ {'b': 1, 'a': 2}|tojson(separators=(',', ':'), sort_keys=true) }}",
            "{\"a\":2,\"b\":1}",
        ),
        (
            "{{ 'a-b-c'.rsplit('-', 1) }}{{ 'a-b-c'.partition('-') }}{{ 'a-b'.removeprefix('a-') }}",
            "['a-b', 'c']('a', '-', 'b-c')b",
        ),
        (
            "{{ none is iterable }}{{ x is iterable }}{{ 'x' is sequence }}{{ {} is sequence }}",
            "FalseTrueTrueTrue",
        ),
        ("a\n{% if true %}\n  b\n{% endif %}\n  c", "a\n  b\n  c"),
    ];
    for (source, expected) in cases {
        let text = render(source).unwrap_or_else(|e| panic!("{source}: {e}"));
        assert_eq!(text, expected, "{source}");
    }
}

#[test]
fn limits_default_leaves_room_for_long_conversations() {
    let source = include_str!("../../../../golden/chat_templates/Qwen-Qwen3-0.6B.jinja");
    let chat = template(source).unwrap();
    let long = "word ".repeat(400);
    let messages: Vec<_> = (0..2000)
        .map(|i| message(if i % 2 == 0 { "user" } else { "assistant" }, &long))
        .collect();
    let text = chat.render(&messages, &RenderOptions::for_generation()).unwrap();
    assert!(text.len() > 4_000_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn templates_any_text_never_panics(source in "[{}%#a-z0-9 '\"|.()\\[\\]~+*=,<>\n-]{0,60}") {
        let _ = render(&source);
    }

    #[test]
    fn templates_of_template_words_never_panic(words in prop::collection::vec(prop::sample::select(WORDS.to_vec()), 0..24)) {
        let _ = render(&words.concat());
    }
}

const WORDS: &[&str] = &[
    "{{ ",
    " }}",
    "{% ",
    " %}",
    "{%- ",
    "-%}",
    "{# ",
    " #}",
    "for x in ",
    "messages",
    "if ",
    "elif ",
    "else",
    "endif",
    "endfor",
    "set ",
    "x",
    " = ",
    "namespace(a=1)",
    "macro m(x)",
    "endmacro",
    "m(",
    ")",
    "generation",
    "endgeneration",
    "raw",
    "endraw",
    "break",
    "continue",
    "[0]",
    ".content",
    "|tojson",
    "|length",
    " ~ ",
    " + ",
    " * ",
    "9999",
    "'a'",
    "[",
    "]",
    "{",
    "}",
    ":",
    ", ",
    " is ",
    "not ",
    "none",
    "recursive",
    "loop",
    "call ",
    "endcall",
    "filter ",
    "endfilter",
    "caller()",
    "\n",
    "with ",
    "endwith",
    "block b",
    "endblock",
    "self.b()",
    "super()",
    "range(",
];
