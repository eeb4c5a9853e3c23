//! The command `lsl.exe`, played by Wine as people use it, against `lsl` of Linux: `cli.py` says how. Wine keeps no
//! lists of access but modes of files, which it shows as such lists: the rule is tested, not its enforcement.

use xshell::{Shell, cmd};

use super::stage::Stage;
use crate::windows::TRIPLE;
use crate::{Result, Scope, interop, xdf};

/// Where the commands work; what a failure leaves there is kept until the next run.
const FOLDER: &str = "target/wine/cli";

pub(super) fn play(sh: &Shell, stage: &Stage, scope: Scope) -> Result {
    stage.cargo(sh, &["build", "-p", "lsl-cli"])?.run()?;
    cmd!(sh, "cargo build --locked -p lsl-cli").run()?;
    let pyxdf = xdf::install(sh)?;
    sh.remove_path(FOLDER)?;
    sh.create_dir(FOLDER)?;
    let root = sh.current_dir();
    let (enter, folder) = (&stage.enter, root.join(FOLDER));
    let exe = stage.build.join(TRIPLE).join("debug/lsl.exe");
    let kills = if scope == Scope::Gate { "5" } else { "50" };
    cmd!(sh, "{enter} {pyxdf} -B xtask/src/wine/cli.py {folder}")
        .env("LSL_STAGE_EXE", exe)
        .env("LSL_STAGE_KILLS", kills)
        .env("LSL_STAGE_COMMAND", root.join("target/debug/lsl"))
        .env("LSL_STAGE_PYLSL", interop::pylsl_python(sh)?)
        .run()?;
    Ok(sh.remove_path(FOLDER)?)
}
