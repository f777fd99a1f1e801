//! Whole documents: what tools write, what nobody can read, and what is damaged.

use cactus_pdf::{Error, Page, pages};
use cactus_testkit::pdf;
use proptest::prelude::*;

const COLUMNS: &[u8] = include_bytes!("../../../golden/pdf/columns.pdf");
const COLUMNS_TEXT: &str = include_str!("../../../golden/pdf/columns.txt");
const ENCRYPTED: &[u8] = include_bytes!("../../../golden/pdf/encrypted.pdf");

fn read(bytes: &[u8]) -> Result<Vec<Page>, Error> {
    let mut found = Vec::new();
    let count = pages(bytes.to_vec(), &mut |page| {
        found.push(page);
        true
    })?;
    assert_eq!(count, found.len());
    Ok(found)
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn columns_are_read_one_after_the_other_in_the_words_of_their_writer() {
    let found = read(COLUMNS).unwrap();
    let text: Vec<&str> = found.iter().map(|page| page.text.as_str()).collect();
    assert_eq!(words(&text.join("\n")), words(COLUMNS_TEXT));
    assert_eq!((found.len(), found[1].number, found[0].unknown_glyphs), (2, 2, 0));
    // Paragraphs are found again where a column does not cut them.
    let whole = COLUMNS_TEXT.split("\n\n").filter(|paragraph| {
        found
            .iter()
            .any(|page| page.text.split("\n\n").any(|found| found == paragraph.trim()))
    });
    let (whole, all) = (whole.count(), COLUMNS_TEXT.split("\n\n").count());
    assert!(whole + 3 >= all, "{whole} of {all}");
}

#[test]
fn pages_are_numbered_and_reading_ends_where_nobody_wants_more() {
    let bytes = pdf::of_pages(&["One (1)\nline.", "", "Three \\ slashes."]);
    let found = read(&bytes).unwrap();
    let texts: Vec<&str> = found.iter().map(|page| page.text.as_str()).collect();
    assert_eq!(texts, ["One (1) line.", "", "Three \\ slashes."]);
    let mut seen = Vec::new();
    let all = pages(bytes, &mut |page| {
        seen.push(page.number);
        page.number < 2
    });
    assert_eq!((all, seen), (Ok(3), vec![1, 2]));
}

#[test]
fn what_cannot_be_opened_says_why() {
    for (bytes, error) in [
        (ENCRYPTED.to_vec(), Error::Encrypted),
        (b"Bread is made of flour.".to_vec(), Error::Damaged),
        (Vec::new(), Error::Damaged),
        (COLUMNS[..200].to_vec(), Error::Damaged),
    ] {
        assert_eq!(read(&bytes), Err(error));
    }
}

#[test]
fn forms_are_read_wherever_they_are_drawn() {
    let found = read(&pdf::endless(6)).unwrap();
    assert_eq!(found[0].text.matches("on").count(), 1 << 5);
}

proptest! {
    #[test]
    fn damaged_documents_give_text_or_an_error(cut in 0..COLUMNS.len(), flips in prop::collection::vec((0..COLUMNS.len(), any::<u8>()), 0..8)) {
        let mut bytes = COLUMNS[..cut].to_vec();
        for (at, bits) in flips {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= bits;
            }
        }
        // A form feed would end a page for whoever joins them.
        for page in read(&bytes).unwrap_or_default() {
            let ends_a_page = page.text.contains('\u{c}');
            prop_assert!(!ends_a_page);
        }
    }
}
