//! Handles a file that already has the name of the recording: a recording in progress is left
//! alone, an unfinished one is repaired if wished. Either way a new file begins; a journal beside
//! the old one shows that it has no end. Spec: recorder §3.4.

use std::io::{self, Write};
use std::path::Path;

use lsl_platform::remedy;
use lsl_record::unfinished_beside;
use lsl_xdf::at_rest::is_locked;
use lsl_xdf::repair::repair_in_place;
use lsl_xdf::{is_being_written, journal_path};

use super::display::size;
use super::messages::say;
use crate::failure::{Failure, Outcome};
use crate::ui::notice::note;
use crate::ui::prompt::can_ask;

/// Treatment of a recording without an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resume {
    /// Say how to repair it.
    Tell,
    /// Repair it, after a question if there is a terminal.
    Ask,
    /// Repair it without a question.
    Repair,
}

/// Checks an existing file of this name, and others beside it that have no end: names with numbers
/// are never taken twice.
///
/// # Errors
/// [`Failure::Usage`] if another process records into it. A failed repair does not prevent
/// recording.
pub(super) fn look_at(path: &Path, resume: Resume) -> Outcome {
    for other in unfinished_beside(path) {
        if resume == Resume::Tell {
            tell(&other);
        } else {
            look_at_one(&other, resume)?;
            // An encrypted one.
            tell(&other);
        }
    }
    look_at_one(path, resume)
}

fn look_at_one(path: &Path, resume: Resume) -> Outcome {
    if !path.is_file() {
        return Ok(());
    }
    let name = path.display();
    if is_being_written(path).unwrap_or(false) {
        return Err(Failure::Usage(format!(
            "{name} is being recorded at this moment, or another lsl works on it; name another file"
        )));
    }
    // An encrypted one gets its advice under its new name.
    let is_repaired = resume != Resume::Tell
        && journal_path(path).exists()
        && !is_locked(path).unwrap_or(false)
        && (resume == Resume::Repair || !can_ask() || is_wished(path)?);
    if is_repaired {
        note(format_args!("{name} was not finished; repairing it."));
        match repair_in_place(path) {
            Ok(survey) => note(format_args!(
                "{name} is whole again; {} could not be kept.",
                size(survey.dropped_bytes)
            )),
            Err(error) => note(format_args!("lsl record: {name}: {error}")),
        }
    }
    Ok(())
}

fn is_wished(path: &Path) -> Outcome<bool> {
    let mut stderr = io::stderr().lock();
    let question = format!("{} was not finished. Repair it now? [Y/n] ", path.display());
    // Without a visible question the user just presses Enter, which is yes.
    let _ = stderr
        .write_all(question.as_bytes())
        .and_then(|()| stderr.flush());
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(!matches!(answer.trim(), "n" | "N" | "no"))
}

/// Says how to repair a file, under the name that it was given, if it still has no end.
pub(super) fn tell(moved: &Path) {
    if !journal_path(moved).exists() {
        return;
    }
    let file = remedy::path(moved);
    say(if is_locked(moved).unwrap_or(false) {
        format!(
            "{file} was not finished. With the key that opens it, and those for whom it is:\n  \
             lsl xdf repair -i KEY -R RECIPIENTS -o REPAIRED.xdf.age {file}"
        )
    } else {
        format!("{file} was not finished: `lsl xdf repair {file}` makes it whole (or --resume).")
    });
}
