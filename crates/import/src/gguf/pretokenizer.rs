//! Pre-tokenizers of byte-level BPE: how a text is cut before merging, by the name in `tokenizer.ggml.pre`.
//!
//! GGUF stores the name only. The patterns are those of the models' published `tokenizer.json` files; each cuts the
//! pieces that the one before it left, keeping matches and what lies between them.

use crate::{Error, Result};

/// How a named pre-tokenizer cuts, and what comes with the name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PreTokenizer {
    names: &'static [&'static str],
    /// Regular expressions, applied one after the other.
    pub(super) splits: &'static [&'static str],
    /// A piece that is a token stays whole, even where merging would not reach it.
    pub(super) whole_words: bool,
    /// A beginning-of-text token is added unless the file says otherwise.
    pub(super) adds_bos: bool,
    /// The text is brought to Unicode's composed form first.
    pub(super) composes: bool,
}

/// The name used where a file has none, as files from before names existed.
const UNNAMED: &str = "default";

/// The pre-tokenizer called `name`.
///
/// # Errors
/// [`crate::ErrorKind::Unsupported`] for an unknown name, with the known ones.
pub(super) fn find(name: Option<&str>) -> Result<&'static PreTokenizer> {
    let name = name.unwrap_or(UNNAMED);
    let row = TABLE.iter().find(|row| row.names.contains(&name));
    row.ok_or_else(|| {
        let known: Vec<&str> = TABLE.iter().flat_map(|row| row.names).copied().collect();
        Error::unsupported(format!(
            "the pre-tokenizer `{name}` is not supported; supported are {}",
            known.join(", ")
        ))
    })
}

/// GPT-2's pattern: contractions, words, numbers and other runs with a leading space, white space.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Llama 3's pattern: digits in groups of up to three, a word takes one leading character of any kind.
const THREE_DIGITS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Qwen 2's pattern: as Llama 3's, digits one by one.
const ONE_DIGIT: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// GPT-4o's pattern: as Llama 3's, and a word splits where lower case turns to upper case.
const CASED: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// One row per way of cutting.
const TABLE: &[PreTokenizer] = &[
    PreTokenizer {
        names: &[
            "llama3",
            "llama-v3",
            "llama-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        splits: &[THREE_DIGITS],
        whole_words: true,
        adds_bos: true,
        composes: false,
    },
    PreTokenizer {
        names: &["glm4", "glm5"],
        splits: &[THREE_DIGITS],
        whole_words: true,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["dbrx", "smaug-bpe", "chatglm-bpe"],
        splits: &[THREE_DIGITS],
        whole_words: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        splits: &[r"\p{N}", GPT2],
        whole_words: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &[
            "gpt-2",
            "phi-2",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "roberta-bpe",
            "jina-es",
            "jina-de",
        ],
        splits: &[GPT2],
        whole_words: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["mpt", "olmo"],
        splits: &[GPT2],
        whole_words: false,
        adds_bos: false,
        composes: true,
    },
    PreTokenizer {
        names: &["qwen2"],
        splits: &[ONE_DIGIT],
        whole_words: false,
        adds_bos: false,
        composes: true,
    },
    PreTokenizer {
        names: &[
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        splits: &[ONE_DIGIT],
        whole_words: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["qwen35"],
        splits: &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        whole_words: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["tekken"],
        splits: &[
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        whole_words: true,
        adds_bos: true,
        composes: false,
    },
    PreTokenizer {
        names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        splits: &[CASED],
        whole_words: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["tiny_aya", "cohere2moe"],
        splits: &[r"\d{1,3}(?=(?:\d{3})*\b)", CASED],
        whole_words: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["deepseek-llm"],
        splits: &[
            r"[\r\n]",
            r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            r"[一-龥ࠀ-一가-퟿]+",
            r"\p{N}+",
        ],
        whole_words: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["deepseek-coder"],
        splits: &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
        whole_words: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        splits: &[
            r"\p{N}{1,3}",
            r"[一-龥぀-ゟ゠-ヿ]+",
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
        ],
        whole_words: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["falcon"],
        splits: &[
            r"[\p{P}\$\+<=>\^~\|`]+",
            r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
            r"[0-9][0-9][0-9]",
        ],
        whole_words: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["poro-chat", "bloom", "gpt3-finnish"],
        splits: &[r" ?[^(\s|.,!?…。，、।۔،)]+"],
        whole_words: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["viking"],
        splits: &[r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}"],
        whole_words: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["minicpm5"],
        splits: &[
            r"\p{N}{1,3}",
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        whole_words: true,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["seed-coder"],
        splits: &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        whole_words: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        splits: &[
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        ],
        whole_words: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["superbpe"],
        splits: &[r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
        whole_words: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["default"],
        splits: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
        whole_words: false,
        adds_bos: false,
        composes: false,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_knows_every_name_once() {
        let mut names: Vec<&str> = TABLE.iter().flat_map(|row| row.names).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for name in names {
            assert!(find(Some(name)).is_ok());
        }
        assert_eq!(find(None).unwrap(), find(Some("default")).unwrap());
    }

    #[test]
    fn find_of_unknown_name_lists_known_ones() {
        let error = find(Some("klingon")).unwrap_err().to_string();
        assert!(error.contains("klingon") && error.contains("qwen2"), "{error}");
    }
}
