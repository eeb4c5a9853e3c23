//! Links: mdbook does not mind broken ones.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::page::Page;
use super::{Outcome, none, repository};

const SUMMARY: &str = "docs/SUMMARY.md";

/// Every link between files leads somewhere, no page of the book leads out of it or is left out.
pub(crate) fn check(pages: &[Page]) -> Outcome {
    let mut problems = Vec::new();
    let mut chapters = BTreeSet::new();
    for page in pages {
        for (line, target) in targets(page) {
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() {
                PathBuf::from(&page.path)
            } else {
                resolve(&page.path, file)
            };
            let mut say =
                |what: &str| problems.push(format!("{}:{line}: {target}: {what}", page.path));
            if page.path == SUMMARY {
                chapters.insert(path.clone());
            }
            if !repository().join(&path).exists() {
                say("leads nowhere");
            } else if page.path.starts_with("docs/") && !path.starts_with("docs") {
                say("is not part of the book: name the file, do not link it");
            } else if let Some(there) = pages.iter().find(|there| Path::new(&there.path) == path)
                && !anchor.is_empty()
                && !anchors(there).contains(anchor)
            {
                say("has no such heading");
            }
        }
    }
    for page in pages.iter().filter(|page| page.path.starts_with("docs/")) {
        if page.path != SUMMARY && !chapters.contains(Path::new(&page.path)) {
            problems.push(format!("{}: not in {SUMMARY}", page.path));
        }
    }
    none(&problems)
}

/// What `[text](target)` and `![text](target)` lead to, with lines.
fn targets(page: &Page) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    for (number, line) in &page.prose {
        // Code is no link.
        let text: String = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
        for (_, rest) in text
            .match_indices("](")
            .map(|(at, _)| text.split_at(at + 2))
        {
            if let Some((target, _)) = rest.split_once(')') {
                targets.push((*number, target.to_owned()));
            }
        }
    }
    targets
}

/// `file` as seen from `page`.
fn resolve(page: &str, file: &str) -> PathBuf {
    let mut path = PathBuf::new();
    let folder = Path::new(page).parent().unwrap_or_else(|| Path::new(""));
    for part in folder.join(file).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            part => path.push(part),
        }
    }
    path
}

/// The anchors of a page's headings, as mdBook and code hosts make them.
fn anchors(page: &Page) -> BTreeSet<String> {
    let headings = page.prose.iter().filter_map(|(_, line)| {
        let text = line.trim_start_matches('#');
        (text.len() < line.len()).then(|| text.trim())
    });
    headings.map(anchor).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| {
        if c == ' ' {
            '-'
        } else {
            c.to_ascii_lowercase()
        }
    })
    .collect()
}

/// Tests of this file.
pub(crate) fn tests() -> Vec<super::SelfTest> {
    vec![("self: broken links are found", || {
        let page = |text: &str| Page::parse("docs/SUMMARY.md", text);
        let broken = |text: &str| check(&[page(text)]).is_err();
        let cases = [
            ("[a](performance.md)", false),
            ("[a](nowhere.md)", true),
            ("[a](../README.md)", true),
            ("[a](https://example.org/x)", false),
            ("[a](performance.md) and [b](nowhere.md)", true),
            ("`[a](nowhere.md)`", false),
            ("# A `b`, c\n[a](#a-b-c)", false),
            ("# A `b`, c\n[a](#a-b)", true),
        ];
        let wrong = cases
            .iter()
            .filter(|(text, is_broken)| broken(text) != *is_broken);
        let wrong: Vec<String> = wrong.map(|case| format!("{case:?}")).collect();
        none(&wrong)
    })]
}
