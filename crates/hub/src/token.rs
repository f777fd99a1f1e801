//! Where the Hugging Face token comes from, and how it is kept out of messages.

use std::fmt;
use std::path::PathBuf;

/// Environment variable that holds a Hugging Face token.
pub const TOKEN_VARIABLE: &str = "HF_TOKEN";

/// A token. Its text never appears in `Debug` output.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl Token {
    /// The first of: `given`, the variables `HF_TOKEN` and `HUGGING_FACE_HUB_TOKEN`, the file that `HF_TOKEN_PATH`
    /// names, the file that the Hugging Face command-line tool writes. Empty ones do not count.
    pub(crate) fn find(given: Option<String>) -> Option<Token> {
        let variable = |name: &str| std::env::var(name).ok();
        let file = || {
            let path = std::env::var_os("HF_TOKEN_PATH").map(PathBuf::from)?;
            std::fs::read_to_string(path).ok()
        };
        // hf-hub's own look-up assumes that there is a home folder unless HF_HOME is set.
        let tool_file = || {
            (std::env::var_os("HF_HOME").is_some() || dirs::home_dir().is_some())
                .then(|| hf_hub::Cache::from_env().token())
                .flatten()
        };
        given
            .and_then(Token::of)
            .or_else(|| variable(TOKEN_VARIABLE).and_then(Token::of))
            .or_else(|| variable("HUGGING_FACE_HUB_TOKEN").and_then(Token::of))
            .or_else(|| file().and_then(Token::of))
            .or_else(|| tool_file().and_then(Token::of))
    }

    /// `text` without surrounding space; `None` where nothing is left or it cannot stand in a header.
    fn of(text: String) -> Option<Token> {
        let text = text.trim();
        let fits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        fits.then(|| Token(text.to_owned()))
    }

    /// The text itself, for hf-hub.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// The value of an `Authorization` header.
    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_trimmed_checked_and_hidden() {
        let token = Token::of(" hf_secret\n".to_owned()).unwrap();
        assert_eq!(token.bearer(), "Bearer hf_secret");
        assert!(!format!("{token:?}").contains("secret"));
        for bad in ["", "  ", "a b", "a\r\nX: y"] {
            assert_eq!(Token::of(bad.to_owned()), None, "{bad:?}");
        }
        assert_eq!(Token::find(Some("given".into())), Token::of("given".into()));
    }
}
