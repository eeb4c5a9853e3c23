//! What takes too long for the gate: `cargo xtask campaign [PART…]`, and `docs/campaign.md`, where each part
//! writes its row as soon as it ends, so that a campaign may be cut off and go on. `tidy` reads the page:
//! a part that failed, or that more than 60 commits have passed by, is a problem of every submission.

mod page;
mod parts;

use xshell::{Shell, cmd};

use crate::{Result, ci};
pub(crate) use page::check;
use page::{Page, Row};
pub(crate) use parts::tool;
use parts::{PARTS, Part};

/// What the campaign is asked for besides the names of parts.
pub(crate) struct Wishes {
    /// How long `fuzz` goes on, in all, and `soak` with each of its hosts.
    pub(crate) minutes: u32,
}

/// Run the parts called `names`, or all; go on after a failure, and fail in the end.
pub(crate) fn run(sh: &Shell, names: &[&str], wishes: &Wishes) -> Result {
    if let Some(name) = names
        .iter()
        .find(|name| !PARTS.iter().any(|it| it.name == **name))
    {
        let known: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
        return Err(format!("no part {name}; there are: {}", known.join(" ")).into());
    }
    let changed = cmd!(sh, "git status --porcelain --untracked-files=no")
        .quiet()
        .read()?;
    if let Some(line) = changed.lines().find(|line| !line.ends_with(page::PATH)) {
        return Err(
            format!("commit first, since a row names the commit it is about: {line}").into(),
        );
    }
    crate::leave_nothing_out();
    let _path = sh.push_env("PATH", parts::search_path(sh));
    let mut failed = Vec::new();
    for part in PARTS
        .iter()
        .filter(|part| names.is_empty() || names.contains(&part.name))
    {
        println!("\n=== {}: {}", part.name, part.proves);
        // Of what the part begins with: others may commit meanwhile.
        let (commit, date) = (head(sh)?, cmd!(sh, "date -u +%F").quiet().read()?);
        let (result, took) = ci::timed(|| (part.run)(sh, wishes));
        let found = result.unwrap_or_else(|error| {
            failed.push(part.name);
            let error = error.to_string();
            format!(
                "{} {}",
                page::FAILED,
                error.lines().next().unwrap_or_default()
            )
        });
        println!("campaign: {}: {found}", part.name);
        // Read again, for the same reason.
        let mut page = Page::read(sh)?;
        page.set(part.name, Row::new(commit, date, took, &found));
        page.write(sh)?;
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("campaign: failed: {}", failed.join(" ")).into())
}

fn head(sh: &Shell) -> Result<String> {
    Ok(cmd!(sh, "git rev-parse --short=12 HEAD").quiet().read()?)
}
