//! Small PDF documents, written as their specification has them, and such that nobody can read to their end.

use std::fmt::Write as _;

/// A document of numbered objects, the first of which is its catalog; each is what stands between `obj` and `endobj`.
#[must_use]
pub fn of_objects(objects: &[String]) -> Vec<u8> {
    let mut file = "%PDF-1.7\n".to_owned();
    let mut places = Vec::new();
    for (i, object) in objects.iter().enumerate() {
        places.push(file.len());
        let _ = write!(file, "{} 0 obj\n{object}\nendobj\n", i + 1);
    }
    let table = file.len();
    let _ = write!(file, "xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for place in places {
        let _ = writeln!(file, "{place:010} 00000 n ");
    }
    let count = objects.len() + 1;
    let _ = write!(
        file,
        "trailer\n<< /Size {count} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n"
    );
    file.into_bytes()
}

fn stream(entries: &str, content: &str) -> String {
    format!(
        "<< {entries} /Length {} >>\nstream\n{content}\nendstream",
        content.len()
    )
}

/// A document with these contents of its pages, which may use the font `/F`, and the objects from the fifth on that `more` has.
fn of_contents(contents: &[String], resources: &str, more: &[String]) -> Vec<u8> {
    let first = 4 + more.len();
    let kids: Vec<String> = (0..contents.len()).map(|i| format!("{} 0 R", first + 2 * i)).collect();
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        format!(
            "<< /Type /Pages /Kids [{}] /Count {} >>",
            kids.join(" "),
            contents.len()
        ),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_owned(),
    ];
    objects.extend(more.iter().cloned());
    for (i, content) in contents.iter().enumerate() {
        objects.push(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F 3 0 R >> {resources} >> /Contents {} 0 R >>",
            first + 2 * i + 1
        ));
        objects.push(stream("", content));
    }
    of_objects(&objects)
}

/// A document with these texts on its pages, in lines; an empty line is one. A page without text is as a scanned one.
#[must_use]
pub fn of_pages(pages: &[&str]) -> Vec<u8> {
    let content = |text: &&str| {
        let lines = text.lines().map(|line| {
            let line = line.replace('\\', "\\\\").replace('(', "\\(").replace(')', "\\)");
            format!("({line}) Tj T*\n")
        });
        format!("BT /F 11 Tf 13 TL 60 780 Td\n{}ET", lines.collect::<String>())
    };
    of_contents(&pages.iter().map(content).collect::<Vec<_>>(), "", &[])
}

/// A document of two kilobytes whose one page draws a word 2^`levels` times: each form draws the next one twice.
#[must_use]
pub fn endless(levels: usize) -> Vec<u8> {
    let form = |i: usize| {
        let number = i + 5;
        match i + 1 == levels {
            true => stream(
                "/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /Font << /F 3 0 R >> >>",
                "BT /F 9 Tf (on) Tj ET",
            ),
            false => stream(
                &format!(
                    "/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X {number} 0 R >> >>"
                ),
                "/X Do /X Do",
            ),
        }
    };
    let forms: Vec<String> = (0..levels).map(form).collect();
    of_contents(&["/X Do".to_owned()], "/XObject << /X 4 0 R >>", &forms)
}
