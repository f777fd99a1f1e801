//! "Did you mean": the names closest to a misspelled one.

/// Up to three of `candidates` that `name` may have meant, best first. Case, `-`, `_`, `.`, `:` and spaces do not count.
///
/// A candidate is close when it begins with `name`, or contains all of it, or lies within a third of its length in
/// edits (insertion, deletion, replacement, swap of neighbors: the optimal string alignment distance), or begins with
/// something within a fifth of its length.
pub fn suggest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let wanted = fold(name);
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut ranked: Vec<(usize, &str)> = candidates
        .into_iter()
        .filter_map(|candidate| {
            let folded = fold(candidate);
            let edits = distance(&wanted, &folded);
            let limit = wanted.len().max(folded.len()).div_ceil(3).min(4);
            // A misspelled beginning: the same number of letters, give or take one.
            let beginnings = wanted.len().saturating_sub(1)..=wanted.len() + 1;
            let start_edits = beginnings
                .filter_map(|len| folded.get(..len))
                .map(|start| distance(&wanted, start))
                .min();
            let rank = if folded.starts_with(&wanted[..]) {
                0
            } else if wanted.len() >= 3 && folded.windows(wanted.len()).any(|w| w == &wanted[..]) {
                1
            } else if edits <= limit {
                1 + edits
            } else {
                start_edits.filter(|&e| wanted.len() >= 4 && e <= wanted.len().div_ceil(5).min(3))? + 2
            };
            Some((rank, candidate))
        })
        .collect();
    ranked.sort();
    ranked.dedup();
    ranked.into_iter().take(3).map(|(_, c)| c.to_owned()).collect()
}

fn fold(name: &str) -> Vec<char> {
    // A hostile name must not make the quadratic distance expensive.
    name.chars()
        .filter(|c| !matches!(c, '-' | '_' | '.' | ':' | ' '))
        .flat_map(char::to_lowercase)
        .take(200)
        .collect()
}

/// Optimal string alignment distance of `a` and `b`.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize>;
    let mut last: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        before_last = std::mem::take(&mut last);
        last = std::mem::take(&mut row);
        row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replace = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = [
        "smollm2-135m-instruct",
        "gemma-3-270m",
        "qwen2.5-coder-0.5b-instruct",
        "qwen2.5-coder-1.5b-instruct",
    ];

    #[test]
    fn suggest_finds_the_meant_name_or_nothing() {
        let cases: &[(&str, &[&str])] = &[
            ("smollm2", &["smollm2-135m-instruct"]),
            ("smolm2-135m-instruct", &["smollm2-135m-instruct"]),
            ("SmolLM2 135M Instrcut", &["smollm2-135m-instruct"]),
            ("smolm2-135m", &["smollm2-135m-instruct"]),
            ("gema-3-270m", &["gemma-3-270m"]),
            (
                "qwen2.5-coder",
                &["qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-1.5b-instruct"],
            ),
            ("llama-70b", &[]),
            ("", &[]),
        ];
        for (name, want) in cases {
            assert_eq!(suggest(name, NAMES), *want, "{name}");
        }
    }

    #[test]
    fn distance_counts_a_swap_once() {
        let d = |a: &str, b: &str| distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        assert_eq!(d("abcd", "abdc"), 1);
        assert_eq!(d("", "abc"), 3);
        assert_eq!(d("kitten", "sitting"), 3);
    }
}
