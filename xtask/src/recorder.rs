//! The stage for `lsl record`, `play` and `xdf`: the real binary in a private network, killed, stopped and
//! out of disk; pyxdf judges what is left, real liblsl says what was sent.
//!
//! What happens stands in `recorder/*.py`; here is what it needs.

use std::path::Path;

use xshell::{Shell, cmd};

use crate::{Result, Scope, interop, xdf};

const SCRIPTS: &str = "xtask/src/recorder";

/// Recordings of other programs.
const REAL: &str = "crates/lsl-xdf/tests/vectors/xdf-modules";

/// Where the stage records; what a failure leaves there is kept until the next run.
const FOLDER: &str = "target/recorder";

/// Made if it is not there yet.
const PYARROW: &str = "target/peers/pyarrow-26.0.1";

/// What to do besides the usual.
pub(crate) struct Wishes<'a> {
    /// Only parts whose name contains this.
    pub(crate) part: Option<&'a str>,
    /// A folder with recordings to read instead of those that lie here.
    pub(crate) files: Option<&'a Path>,
    pub(crate) scope: Scope,
}

impl Wishes<'_> {
    /// Every part, as often as this scope asks for.
    pub(crate) fn of(scope: Scope) -> Self {
        Self {
            part: None,
            files: None,
            scope,
        }
    }
}

pub(crate) fn run(sh: &Shell, wishes: &Wishes<'_>) -> Result {
    let root = sh.current_dir();
    let found = xdf::install(sh).and_then(|pyxdf| {
        let pylsl = interop::pylsl_python(sh)?;
        let pyarrow = pyarrow(sh)?;
        Ok((pyxdf, pylsl, pyarrow, interop::enter(sh)?))
    });
    let (pyxdf, pylsl, pyarrow, namespace) = match found {
        Ok(found) => found,
        Err(error) if crate::is_gate() => return Err(error),
        Err(error) => {
            println!("recorder: SKIPPED: {error}");
            return Ok(());
        }
    };
    let built = crate::programs(sh)?;
    sh.remove_path(FOLDER)?;
    sh.create_dir(FOLDER)?;

    let folder = root.join(FOLDER);
    let files = wishes.files.unwrap_or_else(|| Path::new(REAL));
    let script = format!("{SCRIPTS}/recorder.py");
    let part = wishes.part;
    let (program, words) = namespace.split_first().ok_or("no command")?;
    cmd!(
        sh,
        "{program} {words...} {pyxdf} -B {script} {folder} {files} {part...}"
    )
    .env("LSL_STAGE_COMMAND", built.join("lsl"))
    .env("LSL_STAGE_LIBRARY", built.join("liblsl.so"))
    .env("LSL_STAGE_KILLS", wishes.scope.kills())
    .env("LSL_STAGE_PYLSL", pylsl)
    .env("LSL_STAGE_PYARROW", root.join(pyarrow))
    .run()?;
    Ok(sh.remove_path(FOLDER)?)
}

/// A Python that reads Parquet.
fn pyarrow(sh: &Shell) -> Result<String> {
    xdf::venv(
        sh,
        PYARROW,
        "pyarrow.parquet",
        &format!("{SCRIPTS}/pyarrow.txt"),
    )
}
