//! The stage for `lsl relay`: machines in network namespaces with clocks of their own, routers that masquerade,
//! programs on real liblsl and on ours. Spec: relay §14, tests 1 to 4, 6, 10 and 11.
//!
//! What happens stands in `relay/*.py`; here is what it needs.

use xshell::{Shell, cmd};

use crate::{Result, Scope, interop, xdf};

/// Where machines have their homes; what a failure leaves there is kept until the next run.
const FOLDER: &str = "target/relay";

/// Play the scenes whose name contains `filter`.
pub(crate) fn run(sh: &Shell, filter: Option<&str>, scope: Scope) -> Result {
    let found = enter(sh)
        .and_then(|namespace| Ok((namespace, xdf::install(sh)?, interop::pylsl_python(sh)?)));
    let (namespace, pyxdf, pylsl) = match found {
        Ok(found) => found,
        Err(error) if crate::is_gate() => return Err(error),
        Err(error) => {
            println!("relay: 0 passed, 0 failed, all ignored: {error}");
            return Ok(());
        }
    };
    let built = crate::programs(sh)?;
    sh.remove_path(FOLDER)?;
    sh.create_dir(FOLDER)?;
    let folder = sh.current_dir().join(FOLDER);
    let script = "xtask/src/relay/relay.py";
    cmd!(
        sh,
        "unshare {namespace...} {pyxdf} -B {script} {folder} {filter...}"
    )
    .env("LSL_STAGE_COMMAND", built.join("lsl"))
    .env("LSL_STAGE_LIBRARY", built.join("liblsl.so"))
    .env("LSL_STAGE_PYLSL", pylsl)
    .env(
        "LSL_STAGE_SCOPE",
        if scope == Scope::All { "all" } else { "gate" },
    )
    .run()?;
    Ok(sh.remove_path(FOLDER)?)
}

/// The options of `unshare` with which a command may make networks; all that it starts ends with it. They are tried.
pub(crate) fn enter(sh: &Shell) -> Result<[&'static str; 5]> {
    let is_root = cmd!(sh, "id -u").quiet().read()? == "0";
    let namespaces = if is_root { "-nT" } else { "-rnT" };
    let words = [namespaces, "-p", "-f", "--mount-proc", "--kill-child"];
    let table =
        "table ip lab { chain nat { type nat hook postrouting priority 100; masquerade; }; }";
    cmd!(sh, "unshare {words...} nft -f -")
        .stdin(table)
        .run()
        .map_err(|error| format!("no network with routers (root, nft of nftables 1.0): {error}"))?;
    Ok(words)
}
