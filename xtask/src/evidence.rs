//! The pages with what others published beside ours: their runs, and whether each page is that of its data.
//! `lsl bench evidence` does the work; here it is built and put where nobody disturbs it. Spec: audit §6.

use xshell::{Shell, cmd};

use crate::{Result, interop};

/// Write the pages, or with `check` only see whether they are up to date; behind `run` are the parts to measure.
pub(crate) fn run(sh: &Shell, words: &[&str], check: bool) -> Result {
    let Some((&"run", parts)) = words.split_first() else {
        let check = check.then_some("--check");
        let run = "run --locked --quiet -p lsl-bench -- evidence".split(' ');
        return Ok(cmd!(sh, "cargo {run...} {check...} {words...}").run()?);
    };
    // As packages have it.
    let build = "build --locked --profile dist --target-dir target/bench -p lsl-ffi -p lsl-cli -p lsl-bench";
    let build = build.split(' ');
    cmd!(sh, "cargo {build...}").run()?;
    let namespace = interop::enter(sh)?;
    let (program, words) = namespace.split_first().ok_or("no command")?;
    let bench = sh.current_dir().join("target/bench/dist/lsl-bench");
    Ok(cmd!(sh, "{program} {words...} {bench} evidence --run {parts...}").run()?)
}
