//! The file that a repair writes: plain or encrypted, there when it is complete and not before.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use lsl_xdf::at_rest::{Encrypting, Recipients};
use lsl_xdf::claim;

use crate::failure::{Failure, Outcome};
use crate::ui::notice::note;

/// Writes a new file by `write`, encrypted if there are recipients. A file of this name is renamed, as
/// `lsl record` does. When something goes wrong everything is as it was.
pub(super) fn write<T>(
    path: &Path,
    recipients: Option<&Recipients>,
    write: impl FnOnce(&mut dyn Write) -> Outcome<T>,
) -> Outcome<T> {
    let claimed = claim(path)?;
    let done = fill(&claimed.file, recipients, write);
    match (&done, &claimed.moved) {
        (Ok(_), Some(moved)) => note(format_args!(
            "{} was there already: it is {} now.",
            path.display(),
            moved.display()
        )),
        (Ok(_), None) => {}
        (Err(_), moved) => {
            // Ours, and of no use; the first error is the one to report.
            let _ = fs::remove_file(path);
            if let Some(moved) = moved {
                let _ = fs::rename(moved, path);
            }
        }
    }
    done.map_err(|failure| failure.context(&path.display().to_string()))
}

fn fill<T>(
    file: &File,
    recipients: Option<&Recipients>,
    write: impl FnOnce(&mut dyn Write) -> Outcome<T>,
) -> Outcome<T> {
    let done = if let Some(recipients) = recipients {
        let mut output = Encrypting::new(file, recipients)?;
        let done = write(&mut output)?;
        output.finish()?;
        done
    } else {
        let mut output = BufWriter::with_capacity(1 << 20, file);
        let done = write(&mut output)?;
        output.flush()?;
        done
    };
    file.sync_all()?;
    Ok(done)
}

/// Refuses to write an encrypted recording, or a file that is called `.age`, without recipients.
pub(super) fn check_recipients(
    path: &Path,
    output: &Path,
    is_encrypted: bool,
    recipients: Option<&Recipients>,
) -> Outcome {
    let is_called_so = output.extension().is_some_and(|ending| ending == "age");
    if is_called_so && recipients.is_none() {
        return Err(Failure::Usage(format!(
            "{} would not be encrypted: add --recipient KEY or --recipients-file FILE, or choose a name \
             without .age",
            output.display()
        )));
    }
    if is_encrypted && recipients.is_none() {
        return Err(Failure::Usage(format!(
            "{} is encrypted, and an age file does not say to whom: name again who can open the new \
             one with --recipient KEY or --recipients-file FILE, or use `lsl unlock` first",
            path.display()
        )));
    }
    Ok(())
}
