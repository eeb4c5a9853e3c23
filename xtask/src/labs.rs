//! The labs of `lsl doctor`: networks that are broken in one way each, on purpose, in namespaces. The doctor names
//! exactly that, and what it prints, typed as it stands, puts it right. Spec: doctor Part C.
//!
//! What happens stands in `labs/*.py`, on the stage of `relay`; here is what it needs.

use xshell::{Shell, cmd};

use crate::{Result, interop, relay};

/// Where machines have their homes; what a failure leaves there is kept until the next run.
const FOLDER: &str = "target/labs";

/// What tests without a network replay.
const RECORDINGS: &str = "crates/lsl-doctor/tests/observations";

/// Play the labs whose name contains `filter`.
pub(crate) fn run(sh: &Shell, filter: Option<&str>, update: bool) -> Result {
    let found = relay::enter(sh).and_then(|namespace| {
        Ok((
            namespace,
            interop::pylsl_python(sh)?,
            interop::older_liblsl(sh)?,
        ))
    });
    let (namespace, pylsl, older) = match found {
        Ok(found) => found,
        Err(error) if crate::is_gate() => return Err(error),
        Err(error) => {
            println!("labs: 0 passed, 0 failed, all ignored: {error}");
            return Ok(());
        }
    };
    cmd!(sh, "cargo build --locked -p lsl-cli -p lsl-ffi").run()?;
    let built = sh.current_dir().join("target/debug");
    sh.remove_path(FOLDER)?;
    sh.create_dir(FOLDER)?;
    let folder = sh.current_dir().join(FOLDER);
    let script = "xtask/src/labs/labs.py";
    let recordings = update.then(|| sh.current_dir().join(RECORDINGS));
    cmd!(
        sh,
        "unshare {namespace...} python3 -B {script} {folder} {filter...}"
    )
    .env("LSL_STAGE_COMMAND", built.join("lsl"))
    .env("LSL_STAGE_LIBRARY", built.join("liblsl.so"))
    .env("LSL_STAGE_PYLSL", pylsl)
    .env("LSL_STAGE_OLDER", older)
    .env("LSL_STAGE_SCOPE", "all")
    .env("LSL_STAGE_RECORDINGS", recordings.unwrap_or_default())
    .run()?;
    Ok(sh.remove_path(FOLDER)?)
}
