use super::*;
use crate::gguf::writer::Writer;
use crate::gguf::{Array, GgufFile, Value as Raw};
use tokenizers::Tokenizer;

fn kinds(kinds: &[i32]) -> Raw {
    Raw::Array(Array::I32(kinds.to_vec()))
}

/// Byte-level BPE of nine tokens.
fn byte_level() -> Writer {
    Writer::new()
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "gpt-2")
        .texts(
            "tokenizer.ggml.tokens",
            &["<s>", "a", "b", "ab", "Ġ", "Ġab", "<|im_end|>", "<tool>", ""],
        )
        .key("tokenizer.ggml.token_type", kinds(&[3, 1, 1, 1, 1, 1, 3, 4, 5]))
        .texts("tokenizer.ggml.merges", &["a b", "Ġ ab", "x y"])
        .count("tokenizer.ggml.bos_token_id", 0)
        .count("tokenizer.ggml.eos_token_id", 6)
}

/// SentencePiece: byte tokens of LF and of the two bytes of `é`, a run of spaces as a user-defined token.
fn sentence_piece() -> Writer {
    let rows = [
        ("<unk>", 2, 0.0),
        ("<s>", 3, 0.0),
        ("</s>", 3, 0.0),
        ("<0x0A>", 6, 0.0),
        ("<0xC3>", 6, 0.0),
        ("<0xA9>", 6, 0.0),
        ("▁", 1, -9.0),
        ("a", 1, -9.0),
        ("b", 1, -9.0),
        ("ab", 1, -1.0),
        ("▁ab", 1, -2.0),
        ("▁a", 1, -0.5),
        ("   ", 4, -1000.0),
    ];
    Writer::new()
        .text("tokenizer.ggml.model", "llama")
        .texts("tokenizer.ggml.tokens", &rows.map(|r| r.0))
        .key("tokenizer.ggml.token_type", kinds(&rows.map(|r| r.1)))
        .key(
            "tokenizer.ggml.scores",
            Raw::Array(Array::F32(rows.map(|r| r.2).to_vec())),
        )
        .count("tokenizer.ggml.bos_token_id", 1)
        .count("tokenizer.ggml.eos_token_id", 2)
        .count("tokenizer.ggml.unknown_token_id", 0)
}

fn files(writer: &Writer) -> Result<Option<TokenizerFiles>> {
    tokenizer(&GgufFile::parse(&writer.bytes()).unwrap().metadata)
}

fn load(writer: &Writer) -> Tokenizer {
    Tokenizer::from_bytes(files(writer).unwrap().unwrap().tokenizer_json).unwrap()
}

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, true).unwrap().get_ids().to_vec()
}

#[test]
fn byte_level_tokenizer_merges_and_cuts_added_tokens() {
    let tokenizer = load(&byte_level());
    let cases: &[(&str, &[u32])] = &[
        ("ab ab", &[3, 5]),
        ("a<|im_end|>b", &[1, 6, 2]),
        (" <tool>ab", &[4, 7, 3]),
        ("", &[]),
    ];
    for (text, want) in cases {
        assert_eq!(ids(&tokenizer, text), *want, "{text:?}");
        assert_eq!(tokenizer.decode(want, false).unwrap(), *text);
    }
    assert_eq!(
        tokenizer.decode(&[3, 6, 7], true).unwrap(),
        "ab<tool>",
        "control tokens are special"
    );
    assert_eq!(tokenizer.id_to_token(8).as_deref(), Some("[EMPTY_8]"));
}

#[test]
fn beginning_token_follows_the_key_then_the_pre_tokenizer() {
    let add = |w: Writer, on| w.key("tokenizer.ggml.add_bos_token", Raw::Bool(on));
    let llama3 = || {
        let mut w = byte_level();
        w.metadata[1].1 = Raw::String("llama-bpe".into());
        w
    };
    let cases = [
        (byte_level(), false),
        (add(byte_level(), true), true),
        (llama3(), true),
        (add(llama3(), false), false),
        (sentence_piece(), true),
        (add(sentence_piece(), false), false),
    ];
    for (writer, added) in cases {
        let with_special = ids(&load(&writer), "ab");
        let plain = load(&writer).encode("ab", false).unwrap().get_ids().to_vec();
        assert_eq!(with_special.len(), plain.len() + usize::from(added));
        let config = files(&writer).unwrap().unwrap().tokenizer_config;
        assert_eq!(config["add_bos_token"], added);
    }
    let both = add(byte_level(), true).key("tokenizer.ggml.add_eos_token", Raw::Bool(true));
    assert_eq!(ids(&load(&both), "ab"), [0, 3, 6]);
    let pair = load(&both).encode(("a", "b"), true).unwrap();
    assert_eq!(pair.get_ids(), [0, 1, 6, 0, 2, 6]);
}

#[test]
fn qwen2_text_is_composed_first() {
    let mut writer = byte_level();
    writer.metadata[1].1 = Raw::String("qwen2".into());
    let normalized = |writer: &Writer| {
        let tokenizer = load(writer);
        let normalizer = tokenizer.get_normalizer()?;
        let mut text = tokenizers::NormalizedString::from("e\u{301}");
        tokenizers::Normalizer::normalize(normalizer, &mut text).unwrap();
        Some(text.get().to_owned())
    };
    assert_eq!(normalized(&writer).as_deref(), Some("\u{e9}"));
    assert_eq!(normalized(&byte_level()), None);
}

#[test]
fn sentence_piece_tokenizer_merges_by_score() {
    let tokenizer = load(&sentence_piece());
    let cases: &[(&str, &[u32])] = &[
        // `▁a` scores best and is joined before `ab`; `▁a` + `b` then gives `▁ab`.
        ("a", &[1, 11]),
        ("ab", &[1, 10]),
        ("aab", &[1, 11, 9]),
        ("é\n", &[1, 6, 4, 5, 3]),
        ("x", &[1, 6, 0]),
        ("</s>", &[1, 2]),
    ];
    for (text, want) in cases {
        assert_eq!(ids(&tokenizer, text), *want, "{text:?}");
    }
    assert_eq!(tokenizer.decode(&[11, 9, 4, 5, 3, 10], false).unwrap(), "aabé\n ab");
}

#[test]
fn space_prefix_follows_its_key() {
    let bare = sentence_piece().key("tokenizer.ggml.add_space_prefix", Raw::Bool(false));
    let tokenizer = load(&bare);
    assert_eq!(ids(&tokenizer, "ab"), [1, 9]);
    assert_eq!(ids(&tokenizer, " ab"), [1, 10]);
    assert_eq!(ids(&tokenizer, "a   ab"), [1, 7, 12, 9], "a user-defined run of spaces");
    assert_eq!(tokenizer.decode(&[10, 12, 9], false).unwrap(), " ab   ab");
}

#[test]
fn chat_templates_are_default_and_named() {
    let key = "tokenizer.chat_template";
    let cases = [
        (byte_level(), Value::Null, None),
        (byte_level().text(key, "T"), json!("T"), Some("T")),
        (
            byte_level()
                .text(key, "T")
                .text("tokenizer.chat_template.tool_use", "U"),
            json!([{"name": "default", "template": "T"}, {"name": "tool_use", "template": "U"}]),
            Some("T"),
        ),
    ];
    for (writer, config, template) in cases {
        let files = files(&writer).unwrap().unwrap();
        assert_eq!(files.chat_template.as_deref(), template);
        assert_eq!(
            files.tokenizer_config.get("chat_template").unwrap_or(&Value::Null),
            &config
        );
    }
}

#[test]
fn embedded_tokenizer_json_is_used_as_it_is() {
    let writer = byte_level().text("tokenizer.huggingface.json", "{\"own\": true}");
    assert_eq!(files(&writer).unwrap().unwrap().tokenizer_json, b"{\"own\": true}");
}

#[test]
fn tokenizer_of_unknown_kind_names_the_known_ones() {
    assert!(files(&Writer::new()).unwrap().is_none());
    let none = Writer::new().text("tokenizer.ggml.model", "no_vocab");
    assert!(files(&none).unwrap().is_none());
    let replaced = |at: usize, value: &str| {
        let mut w = byte_level();
        w.metadata[at].1 = Raw::String(value.into());
        files(&w).unwrap_err()
    };
    for (error, word) in [(replaced(0, "rwkv"), "llama"), (replaced(1, "klingon"), "smollm")] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn tokenizer_with_disagreeing_arrays_is_malformed() {
    use ErrorKind::{Malformed, Missing};
    let without = |writer: Writer, key: &str| {
        let mut writer = writer;
        writer.metadata.retain(|(k, _)| k != &format!("tokenizer.ggml.{key}"));
        writer
    };
    let with =
        |writer: Writer, key: &str, value: Raw| without(writer, key).key(&format!("tokenizer.ggml.{key}"), value);
    let cases = [
        (without(byte_level(), "tokens"), Missing),
        (without(byte_level(), "merges"), Missing),
        (without(sentence_piece(), "scores"), Missing),
        (with(byte_level(), "tokens", Raw::Bool(true)), Malformed),
        (with(byte_level(), "token_type", kinds(&[1])), Malformed),
        (with(byte_level(), "token_type", Raw::U8(1)), Malformed),
        (with(byte_level(), "bos_token_id", Raw::U32(9)), Malformed),
        (with(byte_level(), "add_bos_token", Raw::U32(1)), Malformed),
        (
            with(sentence_piece(), "scores", Raw::Array(Array::F32(vec![0.0]))),
            Malformed,
        ),
        (
            with(byte_level(), "merges", Raw::Array(Array::String(vec!["ab".into()]))),
            Malformed,
        ),
        (
            with(byte_level(), "merges", Raw::Array(Array::String(vec![String::new()]))),
            Malformed,
        ),
        (
            with(byte_level(), "tokens", Raw::Array(Array::String(vec!["a".into(); 9]))),
            Malformed,
        ),
    ];
    for (writer, kind) in cases {
        let error = files(&writer).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}

#[test]
fn end_ids_are_the_named_then_the_known_ones() {
    let metadata = |w: Writer| GgufFile::parse(&w.bytes()).unwrap().metadata;
    assert_eq!(end_ids(&metadata(byte_level())).unwrap(), [6]);
    let first = byte_level().count("tokenizer.ggml.eot_token_id", 7);
    assert_eq!(end_ids(&metadata(first)).unwrap(), [6, 7]);
    let mut other = byte_level();
    other.metadata.retain(|(k, _)| k != "tokenizer.ggml.eos_token_id");
    assert_eq!(end_ids(&metadata(other)).unwrap(), [6]);
    let only_id = Writer::new().count("tokenizer.ggml.eos_token_id", 3);
    assert_eq!(end_ids(&metadata(only_id)).unwrap(), [3]);
    // Messages of gpt-oss end with `<|end|>`, its answers do not. The tag `</s>` of Gemma ends nothing.
    let named = |names: &[&str], kind: i32| {
        let writer = Writer::new()
            .text("tokenizer.ggml.model", "gpt2")
            .texts("tokenizer.ggml.tokens", names)
            .key("tokenizer.ggml.token_type", kinds(&vec![kind; names.len()]));
        end_ids(&metadata(writer)).unwrap()
    };
    assert_eq!(named(&["a", "<|end|>", "<|endoftext|>"], 3), [1, 2]);
    assert_eq!(named(&["<|end|>", "<|return|>", "<|call|>"], 3), [1, 2]);
    assert_eq!(named(&["</s>", "<|im_end|>"], 4), [1]);
    assert_eq!(named(&["</s>", "<|im_end|>"], 1), [0; 0]);
}

#[test]
fn special_tokens_of_phi3_take_the_space_behind_them() {
    let of = |arch: &str| load(&sentence_piece().text("general.architecture", arch));
    let same = |t: &Tokenizer, a: &str, b: &str| ids(t, a) == ids(t, b);
    let (phi3, llama) = (of("phi3"), of("llama"));
    assert!(same(&phi3, "a</s>\n ab", "a</s>ab") && !same(&llama, "a</s>\n ab", "a</s>ab"));
    // Those that begin a text or stand for none do not.
    assert!(!same(&phi3, "a<s>\n ab", "a<s>ab"));
}
