//! The stage for River's layout: a real Redis server, a reader and a writer made from the specification alone, and
//! pyarrow for what was ingested. Spec: relay §14, test 13.
//!
//! What happens stands in `river/*.py`; here is what it needs.

use xshell::{Shell, cmd};

use crate::{Result, Scope, interop, xdf};

const SCRIPTS: &str = "xtask/src/river";

/// Where programs have their files; what a failure leaves there is kept until the next run.
const FOLDER: &str = "target/river";

/// Made if it is not there yet.
const VENV: &str = "target/peers/river";

/// Play the scenes whose name contains `filter`.
pub(crate) fn run(sh: &Shell, filter: Option<&str>, scope: Scope) -> Result {
    let requirements = format!("{SCRIPTS}/river.txt");
    let server = cmd!(sh, "redis-server --version").quiet().read();
    let server = server.map_err(|error| format!("no redis-server (Debian has it): {error}"));
    let found = server.map_err(Into::into).and_then(|_| {
        let python = xdf::venv(sh, VENV, "redis, pyarrow.parquet", &requirements)?;
        Ok((python, interop::enter(sh)?))
    });
    let (python, namespace) = match found {
        Ok(found) => found,
        Err(error) if crate::is_gate() => return Err(error),
        Err(error) => {
            println!("river: 0 passed, 0 failed, all ignored: {error}");
            return Ok(());
        }
    };
    let built = crate::programs(sh)?;
    sh.remove_path(FOLDER)?;
    sh.create_dir(FOLDER)?;
    let folder = sh.current_dir().join(FOLDER);
    let (program, words) = namespace.split_first().ok_or("no command")?;
    let scope = if scope == Scope::All { "all" } else { "gate" };
    cmd!(
        sh,
        "{program} {words...} {python} -B {SCRIPTS}/scenes.py {folder} {filter...}"
    )
    .env("LSL_STAGE_COMMAND", built.join("lsl"))
    .env("LSL_STAGE_PYLSL", "")
    .env("LSL_STAGE_SCOPE", scope)
    .run()?;
    Ok(sh.remove_path(FOLDER)?)
}
