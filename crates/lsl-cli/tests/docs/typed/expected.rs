//! Whether a command printed what the page shows.
//!
//! `...` stands for anything: inside a line for a part of it, on a line of its own for any number of
//! lines. How wide columns are does not matter.

/// How exactly a page means what it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Exact,
    /// Numbers and keys may be others.
    Like,
}

/// Whether `printed` is what `shown` promises. Nothing shown promises nothing.
pub(crate) fn agree(shown: &[String], printed: &str, manner: Manner) -> bool {
    if shown.is_empty() {
        return true;
    }
    let shown: Vec<String> = shown.iter().map(|line| plain(line, manner)).collect();
    let printed: Vec<String> = printed.lines().map(|line| plain(line, manner)).collect();
    lines_agree(trim(&shown), trim(&printed))
}

fn trim(lines: &[String]) -> &[String] {
    let is_text = |line: &String| !line.is_empty();
    let start = lines.iter().position(is_text).unwrap_or(lines.len());
    let end = lines
        .iter()
        .rposition(is_text)
        .map_or(start, |last| last + 1);
    &lines[start..end]
}

fn lines_agree(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=printed.len()).any(|skip| lines_agree(rest, &printed[skip..]))
        }
        Some((first, rest)) => printed
            .split_first()
            .is_some_and(|(line, others)| line_agrees(first, line) && lines_agree(rest, others)),
    }
}

fn line_agrees(shown: &str, printed: &str) -> bool {
    let Some((start, rest)) = shown.split_once("...") else {
        return shown == printed;
    };
    let Some(mut left) = printed.strip_prefix(start) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split("...").collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = left.split_once(part) else {
            return false;
        };
        left = after;
    }
    left.ends_with(end)
}

/// The line without what may differ.
fn plain(line: &str, manner: Manner) -> String {
    let words: Vec<String> = line
        .split_whitespace()
        .map(|word| match manner {
            Manner::Exact => word.to_owned(),
            Manner::Like => without_numbers(word),
        })
        .collect();
    words.join(" ")
}

fn without_numbers(word: &str) -> String {
    for prefix in ["SHA256:", "lsl-ed25519:"] {
        if let Some((before, key)) = word.split_once(prefix) {
            let end = key.find(|c: char| !c.is_alphanumeric() && !"+/=.".contains(c));
            return format!("{before}{prefix}#{}", &key[end.unwrap_or(key.len())..]);
        }
    }
    let unsigned = word.strip_prefix(['+', '-']).unwrap_or(word);
    let is_signed = unsigned.starts_with(|c: char| c.is_ascii_digit());
    let mut plain = String::new();
    for c in if is_signed { unsigned } else { word }.chars() {
        let is_number = c.is_ascii_digit() || (c == '.' && plain.ends_with('#'));
        if !is_number {
            plain.push(c);
        } else if !plain.ends_with('#') {
            plain.push('#');
        }
    }
    plain
}

/// Tests of this file.
pub(crate) fn tests() -> Vec<super::SelfTest> {
    vec![("self: what pages show is compared", || {
        use Manner::{Exact, Like};
        let cases = [
            ("a b", "a   b\n", Exact, true),
            ("a b", "a c\n", Exact, false),
            ("a", "a\nb\n", Exact, false),
            ("a\n...", "a\nb\nc\n", Exact, true),
            ("...\nc", "a\nb\nc\n", Exact, true),
            ("a\n...\nd", "a\nb\nc\n", Exact, false),
            ("a ... c", "a b b c\n", Exact, true),
            ("a ... c ... e", "a b c d e", Exact, true),
            ("a ... c ... e", "a b d e", Exact, false),
            ("a...", "b", Exact, false),
            ("250 Hz 1.25 ms", "249.9 Hz 3 ms", Like, true),
            ("offset -0.1 s", "offset +0.2 s", Like, true),
            ("-a 1", "+a 1", Like, false),
            ("250 Hz", "249 Hz", Exact, false),
            ("250 Hz", "249 kHz", Like, false),
            ("k lsl-ed25519:AbC= x", "k lsl-ed25519:9/+dD x", Like, true),
            ("(SHA256:ab), x", "(SHA256:cd), x", Like, true),
            ("(SHA256:ab), x", "(SHA256:cd), y", Like, false),
            ("a", "", Exact, false),
        ];
        let wrong = cases.iter().filter(|(shown, printed, manner, expected)| {
            let shown: Vec<String> = shown.lines().map(str::to_owned).collect();
            agree(&shown, printed, *manner) != *expected
        });
        let wrong: Vec<String> = wrong.map(|case| format!("{case:?}")).collect();
        super::none(&wrong)
    })]
}
