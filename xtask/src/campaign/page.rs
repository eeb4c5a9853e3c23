//! `docs/campaign.md`: a row for each part, between a head and nothing else.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use xshell::{Shell, cmd};

use super::{PARTS, Part, head};
use crate::Result;

pub(super) const PATH: &str = "docs/campaign.md";

/// How what a part found begins when it failed.
pub(super) const FAILED: &str = "FAILED:";

/// What a part found that was added and has yet to run.
const NOT_YET: &str = "not run yet";

/// So many commits that touch what a part proves may follow its run.
const MAX_COMMITS: u32 = 60;

const HEAD: &str = "\
# Campaign

What takes hours is proved by `cargo xtask campaign`, not by the gate. Each row is a part of it: the commit that it
ran on, how long it took, and what it found. More than 60 later commits that touch what a part proves fail the gate
until it has run again. Made by the campaign, not by hand.

| part | what it proves | commit | date | minutes | found |
|---|---|---|---|---|---|
";

/// One run of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    commit: String,
    date: String,
    minutes: String,
    found: String,
}

impl Row {
    pub(super) fn new(commit: String, date: String, took: Duration, found: &str) -> Self {
        Self {
            commit,
            date,
            minutes: format!("{:.1}", took.as_secs_f64() / 60.0),
            // Neither may end a cell.
            found: found.replace('|', "/").replace(['\n', '`'], " "),
        }
    }

    fn parse(line: &str) -> Option<(String, Self)> {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", part, _, commit, date, minutes, found, ""] = cells.as_slice() else {
            return None;
        };
        let own = |text: &str| text.to_owned();
        let row = Self {
            commit: own(commit),
            date: own(date),
            minutes: own(minutes),
            found: own(found),
        };
        Some((own(part), row))
    }
}

/// The rows by part.
#[derive(Debug, Default)]
pub(super) struct Page(BTreeMap<String, Row>);

impl Page {
    pub(super) fn read(sh: &Shell) -> Result<Self> {
        if !sh.path_exists(PATH) {
            return Ok(Self::default());
        }
        Ok(Self::parse(&sh.read_file(PATH)?))
    }

    fn parse(text: &str) -> Self {
        let table = text.lines().skip_while(|line| !line.starts_with("|---"));
        Self(table.skip(1).filter_map(Row::parse).collect())
    }

    pub(super) fn set(&mut self, part: &str, row: Row) {
        self.0.insert(part.to_owned(), row);
    }

    /// Writes a row for every part there is; one that never ran has to within the next commits.
    pub(super) fn write(&self, sh: &Shell) -> Result {
        let mut text = HEAD.to_owned();
        for Part { name, proves, .. } in PARTS {
            let row = match self.0.get(*name) {
                Some(row) => row.clone(),
                None => Row {
                    commit: head(sh)?,
                    date: "-".into(),
                    minutes: "-".into(),
                    found: NOT_YET.into(),
                },
            };
            let Row {
                commit,
                date,
                minutes,
                found,
            } = row;
            writeln!(
                text,
                "| {name} | {proves} | {commit} | {date} | {minutes} | {found} |"
            )?;
        }
        Ok(sh.write_file(PATH, text)?)
    }

    /// What is wrong with the rows, where `age` tells how many commits since then touched some paths.
    fn problems(&self, parts: &[Part], age: impl Fn(&str, &[&str]) -> Result<u32>) -> Vec<String> {
        let mut problems = Vec::new();
        for part in parts {
            let mut say = |what: String| {
                problems.push(format!(
                    "{PATH}: {}: {what}; run `cargo xtask campaign {}`",
                    part.name, part.name
                ));
            };
            match self.0.get(part.name) {
                None => say("has no row".into()),
                Some(row) if row.found.starts_with(FAILED) => say(row.found.clone()),
                Some(row) => match age(&row.commit, part.paths) {
                    Ok(commits) if commits > MAX_COMMITS => say(format!(
                        "{commits} commits since {} touch what it proves, {MAX_COMMITS} may",
                        row.commit
                    )),
                    Ok(_) => {}
                    Err(error) => say(error.to_string()),
                },
            }
        }
        problems
    }
}

/// The rule of `tidy`.
pub(crate) fn check(sh: &Shell) -> Result<Vec<String>> {
    let page = Page::read(sh)?;
    let waiting = PARTS.iter().map(|part| part.name);
    let waiting: Vec<&str> = waiting
        .filter(|part| page.0.get(*part).is_some_and(|row| row.found == NOT_YET))
        .collect();
    if !waiting.is_empty() {
        println!("tidy: campaign: {NOT_YET}: {}", waiting.join(" "));
    }
    Ok(page.problems(PARTS, |commit, paths| age(sh, commit, paths)))
}

/// How many commits between `commit` and here touch one of `paths`.
fn age(sh: &Shell, commit: &str, paths: &[&str]) -> Result<u32> {
    // Not merely known: a commit that was rewritten may lie around for weeks.
    let is_past = cmd!(sh, "git merge-base --is-ancestor {commit} HEAD");
    if is_past.quiet().ignore_stderr().run().is_err() {
        let is_shallow = cmd!(sh, "git rev-parse --is-shallow-repository")
            .quiet()
            .read()?;
        let hint = if is_shallow == "true" {
            "this clone lacks old history (git fetch --unshallow)"
        } else {
            "it was rewritten or never pushed"
        };
        return Err(format!("it ran on {commit}, which is not in the history here: {hint}").into());
    }
    let range = format!("{commit}..HEAD");
    Ok(cmd!(sh, "git rev-list --count {range} -- {paths...}")
        .quiet()
        .read()?
        .parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: Part = Part {
        name: "proof",
        proves: "that it holds",
        paths: &["crates"],
        run: |_, _| Ok(String::new()),
    };

    fn page(found: &str) -> Page {
        let line = format!("| proof | that it holds | abc | 2026-11-22 | 1.0 | {found} |\n");
        Page::parse(&(HEAD.to_owned() + &line))
    }

    #[test]
    fn a_part_is_a_problem_when_it_is_old_failed_unknown_or_missing() {
        let age = |commits: u32| move |_: &str, _: &[&str]| Ok(commits);
        let say = |page: &Page, commits| page.problems(&[PART], age(commits)).join("\n");
        assert_eq!(say(&page("nothing"), 60), "");
        assert!(say(&page("nothing"), 61).contains("61 commits since abc"));
        assert!(say(&page("FAILED: it hangs"), 0).contains("it hangs"));
        assert!(say(&Page::default(), 0).contains("has no row"));
        // Time to run what is new, and no more.
        assert_eq!(say(&page(NOT_YET), 60), "");
        assert!(say(&page(NOT_YET), 61).contains("cargo xtask campaign proof"));
        let unknown = page("nothing").problems(&[PART], |_, _| Err("unknown commit".into()));
        assert!(unknown.join("\n").contains("unknown commit"));
    }

    #[test]
    fn a_row_is_read_as_it_was_written_and_cannot_break_the_table() {
        let took = Duration::from_secs(90);
        let row = Row::new("abc".into(), "2026-11-22".into(), took, "a | b\nc");
        assert_eq!(
            (row.minutes.as_str(), row.found.as_str()),
            ("1.5", "a / b c")
        );
        assert_eq!(page("a / b c").0["proof"].found, row.found);
    }
}
