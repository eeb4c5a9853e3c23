//! The README and the book, executed: every command that a page shows is typed into a shell, every
//! program it shows is run, every link leads somewhere.
//!
//! One test for each session of a page, which libtest cannot make; where a session's stage is not
//! there the test is reported as ignored, and `cargo xtask book` makes the stage. How pages say what
//! runs where stands in `page.rs`.
#![forbid(unsafe_code)]
#![cfg_attr(
    unix,
    expect(
        clippy::unwrap_used,
        reason = "a test that cannot run is a failed test"
    )
)]

#[cfg(unix)]
mod expected;
#[cfg(unix)]
mod generated;
#[cfg(unix)]
mod links;
#[cfg(unix)]
mod page;
#[cfg(unix)]
mod session;
#[cfg(unix)]
mod shell;
#[cfg(unix)]
mod shown;

#[cfg(unix)]
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::process::ExitCode;

#[cfg(unix)]
use libtest_mimic::{Arguments, Failed, Trial};

#[cfg(unix)]
use crate::page::Page;

/// What a check answers with; the text is for whoever wrote the page.
#[cfg(unix)]
type Outcome = Result<(), String>;

/// A test of this program itself.
#[cfg(unix)]
type SelfTest = (&'static str, fn() -> Outcome);

/// There is no bash to type into.
#[cfg(not(unix))]
fn main() {}

#[cfg(unix)]
fn main() -> ExitCode {
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
#[cfg(unix)]
fn whole(name: &str, pages: &[Page], check: fn(&[Page]) -> Outcome) -> Trial {
    let pages = pages.to_vec();
    trial(name, move || check(&pages))
}

#[cfg(unix)]
fn trial(name: &str, run: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    Trial::test(name, move || run().map_err(Failed::from))
}

/// What is wrong with any page.
#[cfg(unix)]
fn join(pages: &[Page], check: fn(&Page) -> Vec<String>) -> Outcome {
    none(&pages.iter().flat_map(check).collect::<Vec<_>>())
}

#[cfg(unix)]
fn none(problems: &[String]) -> Outcome {
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.join("\n"))
    }
}

/// These tests have no harness that would find `#[test]`s.
#[cfg(unix)]
fn self_tests() -> Vec<Trial> {
    [expected::tests(), page::tests(), links::tests()]
        .into_iter()
        .flatten()
        .map(|(name, test)| trial(name, test))
        .collect()
}

/// The root of the repository.
#[cfg(unix)]
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_owned()
}

/// The README and every page of the book.
#[cfg(unix)]
fn page_files() -> Vec<String> {
    let mut files: Vec<String> = std::fs::read_dir(repository().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| has_ending(name, "md"))
        .map(|name| format!("docs/{name}"))
        .collect();
    files.push("README.md".into());
    files.sort();
    files
}

#[cfg(unix)]
fn has_ending(name: &str, ending: &str) -> bool {
    Path::new(name).extension().is_some_and(|end| end == ending)
}
