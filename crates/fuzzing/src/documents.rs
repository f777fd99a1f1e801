//! Documents that are cut into pieces.

use cactus_rag::{Kind, Rules, pieces};

/// A byte for the kind, one for the size, then the document. Pieces are in order, lie at whole characters, and are no larger than asked for.
pub(crate) fn document(data: &[u8]) -> bool {
    let [kind, most, text @ ..] = data else {
        return false;
    };
    let kind = [Kind::Text, Kind::Markdown, Kind::Html, Kind::Code][usize::from(kind % 4)];
    let Ok(text) = std::str::from_utf8(text) else {
        return false;
    };
    let count = |text: &str| -> usize {
        text.split_whitespace()
            .map(|word| word.chars().count().div_ceil(8))
            .sum()
    };
    let most_tokens = usize::from(*most).max(1);
    let rules = Rules {
        most_tokens,
        count: &count,
    };
    let found = pieces(kind, text, rules);
    for piece in &found {
        assert!(text.get(piece.bytes.clone()).is_some(), "{piece:?}");
        assert!(
            !piece.text.trim().is_empty() && count(&piece.text) <= most_tokens,
            "{piece:?}"
        );
    }
    !found.is_empty()
}

pub(crate) fn document_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "One paragraph.\n\nAnother one. With two sentences.\n",
        "# A\n\ntext\n\n## B\n\n- a\n- b\n\n```\ncode\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
        "<html><title>t</title><h1>A &amp; b</h1><p>one<br>two</p><pre>x\n y</pre><script>1 < 2</script></html>",
        "/// Says.\nfn f() {\n    1;\n\n    2;\n}\n\nfn g() {}\n",
    ];
    let seed = |(kind, text): (usize, &&str)| [&[kind as u8, 8], text.as_bytes()].concat();
    texts.iter().enumerate().map(seed).collect()
}
