//! Resolves citations of the specifications: `Spec: c-abi §7.2, §9` must name sections of a file in
//! `docs/spec`. A section is a numbered heading, or a numbered point below one (`recorder §3.4`).

use std::collections::{BTreeMap, BTreeSet};

use super::Source;

/// What citations call a specification, and the file that it is. `docs/spec/README.md` explains them.
const SPECIFICATIONS: &[(&str, &str)] = &[
    ("lsl-protocol", "docs/spec/lsl-protocol.md"),
    ("c-abi", "docs/spec/c-abi.md"),
    ("LSS/1", "docs/spec/secure-session.md"),
    ("recorder", "docs/spec/recorder.md"),
    ("audit", "docs/spec/audit.md"),
    ("resume", "docs/spec/resume.md"),
    ("relay", "docs/spec/relay.md"),
    ("doctor", "docs/spec/doctor.md"),
    ("view", "docs/spec/view.md"),
    ("windows", "docs/spec/windows.md"),
];

const FOLDER: &str = "docs/spec/";

/// Citations in tracked files that lead nowhere.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut sections = BTreeMap::new();
    let mut problems = Vec::new();
    for (name, path) in SPECIFICATIONS {
        match sources.iter().find(|source| source.path == *path) {
            Some(source) => {
                sections.insert(*name, sections_of(&source.text));
            }
            None => problems.push(format!("{path} is missing")),
        }
    }
    let citing = sources.iter().filter(|source| {
        source.has_extension(&["rs", "h", "in", "md", "toml", "c", "cpp", "py"])
            && !source.path.starts_with(FOLDER)
            && source.path != file!()
    });
    for source in citing {
        let text = unwrapped(&source.text);
        for (line, said) in wrong(&text, &sections) {
            problems.push(format!("{}:{line}: {said}", source.path));
        }
    }
    problems
}

/// Numbers of the sections of a specification: `7`, `7.2`, `A` of `Appendix A`.
fn sections_of(text: &str) -> BTreeSet<String> {
    let mut sections = BTreeSet::new();
    let mut current = String::new();
    for line in text.lines() {
        let heading = line.trim_start_matches('#');
        let words = heading.trim_start().trim_start_matches("Appendix ");
        let (number, _) = words.split_once(' ').unwrap_or((words, ""));
        if heading.len() < line.len() {
            number.trim_end_matches('.').clone_into(&mut current);
            sections.insert(current.clone());
        } else if let Some(point) = number.strip_suffix('.')
            && !current.is_empty()
            && point.parse::<u32>().is_ok()
        {
            sections.insert(format!("{current}.{point}"));
        }
    }
    sections
}

/// Text whose comments are one line each, so that a citation may wrap; with the line of each byte.
struct Unwrapped {
    text: String,
    /// Where each line of the file begins in `text`.
    starts: Vec<usize>,
}

fn unwrapped(source: &str) -> Unwrapped {
    let mut text = String::with_capacity(source.len());
    let mut starts = Vec::new();
    for line in source.lines() {
        starts.push(text.len());
        let content = line.trim_start();
        let bare = content.trim_start_matches(['/', '!', '*', '#']);
        text.push_str(bare.trim());
        text.push(' ');
    }
    Unwrapped { text, starts }
}

/// Line and description of each citation that names no section.
fn wrong(source: &Unwrapped, sections: &BTreeMap<&str, BTreeSet<String>>) -> Vec<(usize, String)> {
    let mut wrong = Vec::new();
    let text = source.text.as_str();
    let line_of = |at: usize| source.starts.partition_point(|start| *start <= at);
    for (name, known) in sections {
        for (at, _) in text.match_indices(*name) {
            let is_whole =
                !text[..at].ends_with(|c: char| c.is_alphanumeric() || "-_./".contains(c));
            if !is_whole {
                continue;
            }
            for number in cited(&text[at + name.len()..]) {
                if !known.contains(number) {
                    wrong.push((line_of(at), format!("{name} has no §{number}")));
                }
            }
        }
    }
    for (at, introduction) in text.match_indices(concat!("Spe", "c: ")) {
        let rest = &text[at + introduction.len()..];
        let is_known = SPECIFICATIONS
            .iter()
            .any(|(name, _)| rest.starts_with(name));
        if !is_known {
            let word = rest.split(' ').next().unwrap_or_default();
            wrong.push((line_of(at), format!("no specification is called {word}")));
        }
    }
    wrong.sort();
    wrong
}

/// The section numbers of ` §7.2, §9 and §10.1 (closing)`: everything up to another name.
fn cited(mut rest: &str) -> Vec<&str> {
    const BETWEEN: &[&str] = &[", ", " and ", " to ", "-", "; "];
    let mut numbers = Vec::new();
    let mut opening = " §";
    while let Some(after) = rest.strip_prefix(opening) {
        let end = after
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '.')
            .unwrap_or(after.len());
        numbers.push(after[..end].trim_end_matches('.'));
        rest = &after[end..];
        if let Some(inner) = rest.strip_prefix(" (")
            && let Some((_, behind)) = inner.split_once(')')
        {
            rest = behind;
        }
        let between = BETWEEN.iter().find(|between| rest.starts_with(**between));
        rest = between.map_or(rest, |between| &rest[between.len()..]);
        opening = "§";
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn citations_of_missing_sections_are_found_with_their_line() {
        let specification = "# Title\n## 7. Outlet\n### 7.2 Push\n1. first\n## Appendix A. Bytes\n";
        let mut sources: Vec<Source> = SPECIFICATIONS
            .iter()
            .map(|(_, path)| source(path, specification))
            .collect();
        for (text, expected) in [
            ("/// Spec: c-abi §7.2, §7.\n", None),
            ("/// Spec: c-abi §7.2.1 (first), LSS/1 §A.\n", None),
            ("// as LSS/1 §7 to §7.2 say", None),
            (
                "//\n/// Spec: c-abi §7.2, §9.\n",
                Some("x.rs:2: c-abi has no §9"),
            ),
            (
                "/// Spec: c-abi\n    /// §8.\n",
                Some("x.rs:1: c-abi has no §8"),
            ),
            (
                "as LSS/1 §7 and §3.3 want",
                Some("x.rs:1: LSS/1 has no §3.3"),
            ),
            (
                "/// Spec: abi §7.\n",
                Some("x.rs:1: no specification is called abi"),
            ),
        ] {
            sources.push(source("x.rs", text));
            let found = check(&sources);
            sources.pop();
            assert_eq!(found, Vec::from_iter(expected), "{text}");
        }
        sources.remove(0);
        assert_eq!(check(&sources), ["docs/spec/lsl-protocol.md is missing"]);
    }
}
