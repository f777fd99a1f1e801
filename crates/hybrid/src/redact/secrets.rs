//! Keys, private keys and JSON web tokens, by their form.

use super::Kind;

/// Prefixes of keys with the fewest bytes that a whole key has.
const PREFIXES: &[(&str, usize)] = &[
    ("sk-", 20),
    ("sk_live_", 16),
    ("sk_test_", 16),
    ("rk_live_", 16),
    ("rk_test_", 16),
    ("whsec_", 20),
    ("ghp_", 30),
    ("gho_", 30),
    ("ghu_", 30),
    ("ghs_", 30),
    ("ghr_", 30),
    ("github_pat_", 30),
    ("glpat-", 20),
    ("AKIA", 20),
    ("ASIA", 20),
    ("AIza", 35),
    ("ya29.", 20),
    ("xoxb-", 20),
    ("xoxp-", 20),
    ("xoxa-", 20),
    ("xapp-", 20),
    ("hf_", 20),
    ("gsk_", 20),
    ("xai-", 20),
    ("pplx-", 20),
    ("npm_", 30),
    ("pypi-", 30),
    ("SG.", 30),
    ("dop_v1_", 30),
    ("AGE-SECRET-KEY-", 40),
];

/// The run of `A-Za-z0-9_.-` around a place, found once for all starts within.
#[derive(Default)]
pub(super) struct Run {
    end: usize,
    dots: Vec<usize>,
}

impl Run {
    fn at<'a>(&'a mut self, bytes: &[u8], at: usize) -> &'a Run {
        if at >= self.end {
            let in_run = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
            self.end = at + bytes[at..].iter().take_while(|b| in_run(b)).count();
            self.dots.clear();
            self.dots.extend((at..self.end).filter(|i| bytes[*i] == b'.'));
        }
        self
    }

    /// The dots from `at` on.
    fn dots(&self, at: usize) -> &[usize] {
        &self.dots[self.dots.partition_point(|dot| *dot < at)..]
    }
}

/// The secret that begins at `at`, a letter or digit.
pub(super) fn at(bytes: &[u8], at: usize, run: &mut Run) -> Option<(Kind, usize)> {
    let rest = &bytes[at..];
    let run = run.at(bytes, at);
    if rest.starts_with(b"eyJ")
        && let Some(length) = jwt(at, run)
    {
        return Some((Kind::Jwt, length));
    }
    for (prefix, least) in PREFIXES {
        if rest.starts_with(prefix.as_bytes()) {
            let dot = run.dots(at + prefix.len()).first().copied().unwrap_or(run.end);
            let end = if *prefix == "SG." { run.end } else { dot };
            if end - at >= *least {
                return Some((Kind::Key, end - at));
            }
        }
    }
    None
}

/// Three parts and more of base64url, of which the first is an object of JSON.
fn jwt(at: usize, run: &Run) -> Option<usize> {
    let dots = run.dots(at);
    let (first, second) = (*dots.first()?, *dots.get(1)?);
    let long = first - at >= 10 && second - first > 2;
    // A token without a signature ends with its second dot; otherwise a last dot ends a sentence.
    let end = if dots.last() == Some(&(run.end - 1)) && dots.len() > 2 {
        run.end - 1
    } else {
        run.end
    };
    long.then_some(end - at)
}

/// From `-----BEGIN … PRIVATE KEY-----` to the end of the block, or of the text.
pub(super) fn private_key(rest: &[u8]) -> Option<usize> {
    let head = &rest[..rest.len().min(80)];
    let find = |text: &[u8], what: &[u8]| text.windows(what.len()).position(|window| window == what);
    let begin = find(head, b"PRIVATE KEY-----")? + b"PRIVATE KEY-----".len();
    let Some(end) = find(&rest[begin..], b"-----END ") else {
        return Some(rest.len());
    };
    let end = begin + end + b"-----END ".len();
    let tail = &rest[end..rest.len().min(end + 80)];
    Some(find(tail, b"-----").map_or(rest.len(), |close| end + close + 5))
}
