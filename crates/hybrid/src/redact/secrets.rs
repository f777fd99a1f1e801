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
    ("glptt-", 20),
    ("gldt-", 20),
    ("glrt-", 20),
    ("AKIA", 20),
    ("ASIA", 20),
    ("AIza", 35),
    ("ya29.", 20),
    ("xoxb-", 20),
    ("xoxp-", 20),
    ("xoxa-", 20),
    ("xoxe-", 20),
    ("xoxe.", 20),
    ("xoxr-", 20),
    ("xoxs-", 20),
    ("xapp-", 20),
    ("hf_", 20),
    ("gsk_", 20),
    ("xai-", 20),
    ("pplx-", 20),
    ("npm_", 30),
    ("pypi-", 30),
    ("SG.", 30),
    ("dop_v1_", 30),
    ("doo_v1_", 30),
    ("dckr_pat_", 24),
    ("dckr_oat_", 24),
    ("shpat_", 32),
    ("shpss_", 32),
    ("shpca_", 32),
    ("shppa_", 32),
    ("r8_", 37),
    ("GOCSPX-", 28),
    ("ATATT3xFf", 40),
    ("sq0atp-", 26),
    ("sq0csp-", 40),
    ("lin_api_", 40),
    ("figd_", 40),
    ("tskey-", 24),
    ("nvapi-", 40),
    ("rubygems_", 40),
    ("sntrys_", 40),
    ("hvs.", 24),
    ("hvb.", 24),
    ("lsv2_pt_", 40),
    ("pul-", 40),
    ("sbp_", 40),
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
    if let Some(length) = webhook(rest).or_else(|| telegram(rest)) {
        return Some((Kind::Key, length));
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

/// An address to which everybody may post who knows it.
fn webhook(rest: &[u8]) -> Option<usize> {
    const ADDRESSES: [&str; 3] = [
        "hooks.slack.com/services/",
        "discord.com/api/webhooks/",
        "discordapp.com/api/webhooks/",
    ];
    let prefix = ADDRESSES.iter().find(|address| rest.starts_with(address.as_bytes()))?;
    let in_path = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'-');
    let length = rest[prefix.len()..].iter().take_while(in_path).count();
    (length >= 20).then_some(prefix.len() + length)
}

/// `123456789:AA…`, the key of a Telegram bot, also behind `bot` as in its addresses.
fn telegram(rest: &[u8]) -> Option<usize> {
    let digits = if rest.starts_with(b"bot") { &rest[3..] } else { rest };
    let count = digits.iter().take(11).take_while(|b| b.is_ascii_digit()).count();
    let behind = digits[count..]
        .strip_prefix(b":AA")
        .filter(|_| (8..=10).contains(&count))?;
    let in_key = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    let length = behind.iter().take(34).take_while(in_key).count();
    (length == 33).then_some(rest.len() - digits.len() + count + 3 + 33)
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// From `-----BEGIN … PRIVATE KEY-----`, or `… PRIVATE KEY BLOCK-----`, to the end of the block, or of the text.
pub(super) fn private_key(rest: &[u8]) -> Option<usize> {
    let head = &rest[..rest.len().min(80)];
    let name = find(head, b"PRIVATE KEY")?;
    let begin = name + find(&head[name..], b"-----")? + b"-----".len();
    let between = &head[name + b"PRIVATE KEY".len()..begin - b"-----".len()];
    if !matches!(between, b"" | b" BLOCK") {
        return None;
    }
    let Some(end) = find(&rest[begin..], b"-----END ") else {
        return Some(rest.len());
    };
    let end = begin + end + b"-----END ".len();
    let tail = &rest[end..rest.len().min(end + 80)];
    Some(find(tail, b"-----").map_or(rest.len(), |close| end + close + 5))
}

/// A file of PuTTY with a private key: to the end of the line `Private-MAC: …`, or else to the last line of the key.
pub(super) fn putty(rest: &[u8]) -> Option<usize> {
    // What is open comes first, and is short.
    const OPEN: usize = 4096;
    let head = &rest[..rest.len().min(OPEN)];
    let lines = find(head, b"Private-Lines:")? + b"Private-Lines:".len();
    let line = |at: usize| {
        at + rest[at..]
            .iter()
            .position(|b| *b == b'\n')
            .map_or(rest.len() - at, |end| end + 1)
    };
    let count = std::str::from_utf8(&rest[lines..line(lines)])
        .ok()?
        .trim()
        .parse()
        .ok()?;
    let key = (0..count).take(1000).fold(line(lines), |at, _| line(at));
    let end = if rest[key..].starts_with(b"Private-MAC:") {
        line(key)
    } else {
        key
    };
    Some(rest[..end].trim_ascii_end().len())
}
