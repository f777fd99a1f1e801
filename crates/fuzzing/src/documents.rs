//! Documents that are cut into pieces.

use cactus_rag::{Kind, Program, Rules, pieces};

/// A byte for the kind, one for the size, then the document. Pieces are in order, lie at whole characters, and are no larger than asked for.
pub(crate) fn document(data: &[u8]) -> bool {
    let [kind, most, text @ ..] = data else {
        return false;
    };
    let kind = [Kind::Text, Kind::Markdown, Kind::Html, Kind::Code, Kind::Pdf][usize::from(kind % 5)];
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
        let ends = |text: &str| text.matches('\u{c}').count();
        assert_eq!(
            piece.page,
            (kind == Kind::Pdf).then(|| 1 + ends(&text[..piece.bytes.start])),
            "{piece:?}"
        );
        assert!(kind != Kind::Pdf || ends(&piece.text) == 0, "{piece:?}");
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
        "Page one.\n\u{c}Page two.\n\nIts end.\n\u{c}\n\u{c}Page four.",
    ];
    let seed = |(kind, text): (usize, &&str)| [&[kind as u8, 8], text.as_bytes()].concat();
    texts.iter().enumerate().map(seed).collect()
}

/// A PDF. Its pages come in order, and no form feed is in them, which would end one.
pub(crate) fn pdf(data: &[u8]) -> bool {
    let mut pages = 0;
    let read = cactus_pdf::pages(data.to_vec(), &mut |page| {
        pages += 1;
        assert_eq!(page.number, pages);
        assert!(!page.text.contains('\u{c}'), "{page:?}");
        pages < 100
    });
    read.is_ok_and(|all| all >= pages && pages > 0)
}

pub(crate) fn pdf_seeds() -> Vec<Vec<u8>> {
    // Without a table of its objects, which is made again from what is there.
    let small = "%PDF-1.4\n1 0 obj <</Type/Catalog/Pages 2 0 R>> endobj\n2 0 obj <</Type/Pages/Kids[3 0 R]/Count 1>> endobj\n\
                 3 0 obj <</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Resources<</Font<</F 4 0 R>>>>/Contents 5 0 R>> endobj\n\
                 4 0 obj <</Type/Font/Subtype/Type1/BaseFont/Helvetica>> endobj\n\
                 5 0 obj <</Length 58>> stream\nBT /F 12 Tf 20 100 Td [(Bread)-300(and)] TJ 0 -14 Td (tea) Tj ET\nendstream endobj\n\
                 trailer <</Root 1 0 R>>\n";
    vec![
        small.as_bytes().to_vec(),
        include_bytes!("../../../golden/pdf/columns.pdf").to_vec(),
    ]
}

/// What the program that reads a PDF writes, which a document may have made it write. No page has a form feed.
pub(crate) fn pdf_output(data: &[u8]) -> bool {
    match Program::read(data) {
        Ok(pages) => {
            assert!(pages.iter().all(|page| !page.contains('\u{c}')));
            true
        }
        Err(reason) => {
            assert!(!reason.is_empty() && !reason.contains('\n'), "{reason:?}");
            false
        }
    }
}

pub(crate) fn pdf_output_seeds() -> Vec<Vec<u8>> {
    let lines =
        "{\"page\":1,\"text\":\"One\\ntwo\\u000c\"}\n{\"page\":2,\"text\":\"\"}\n{\"pages\":2,\"unknown_glyphs\":1}\n";
    vec![lines.as_bytes().to_vec()]
}
