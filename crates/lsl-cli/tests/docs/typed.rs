//! The tests: whole pages, links, and one for each session of a page.

mod expected;
mod generated;
mod links;
mod page;
mod session;
mod shell;
mod shown;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use page::Page;

/// What a check answers with; the text is for whoever wrote the page.
type Outcome = Result<(), String>;

/// A test of this program itself.
type SelfTest = (&'static str, fn() -> Outcome);

/// Run every test that the arguments ask for.
pub(super) fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let pages: Vec<Page> = page_files()
        .iter()
        .map(|path| Page::read(&repository(), path))
        .collect();
    let mut trials = vec![
        whole("pages", &pages, |pages| join(pages, page::check)),
        whole("links", &pages, links::check),
        whole("inline commands", &pages, |pages| join(pages, shown::check)),
    ];
    trials.extend(generated::trials());
    trials.extend(pages.iter().flat_map(session::trials));
    trials.extend(self_tests());
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A check of all pages at once.
fn whole(name: &str, pages: &[Page], check: fn(&[Page]) -> Outcome) -> Trial {
    let pages = pages.to_vec();
    trial(name, move || check(&pages))
}

fn trial(name: &str, run: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    Trial::test(name, move || run().map_err(Failed::from))
}

/// What is wrong with any page.
fn join(pages: &[Page], check: fn(&Page) -> Vec<String>) -> Outcome {
    none(&pages.iter().flat_map(check).collect::<Vec<_>>())
}

fn none(problems: &[String]) -> Outcome {
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.join("\n"))
    }
}

/// These tests have no harness that would find `#[test]`s.
fn self_tests() -> Vec<Trial> {
    [expected::tests(), page::tests(), links::tests()]
        .into_iter()
        .flatten()
        .map(|(name, test)| trial(name, test))
        .collect()
}

/// The root of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_owned()
}

/// The README and every page of the book.
fn page_files() -> Vec<String> {
    let mut files = vec!["README.md".to_owned()];
    for folder in ["docs", "docs/evidence"] {
        let entries = std::fs::read_dir(repository().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let pages = names.filter(|name| has_ending(name, "md"));
        files.extend(pages.map(|name| format!("{folder}/{name}")));
    }
    files.sort();
    files
}

fn has_ending(name: &str, ending: &str) -> bool {
    Path::new(name).extension().is_some_and(|end| end == ending)
}
