//! Encryption at rest against the programs that everybody else uses: `age`, and `rage` where it is there.

use std::path::{Path, PathBuf};

use xshell::{Shell, cmd};

use crate::Result;

/// Find the programs and run `lsl-xdf`'s cases with them. With CI=true a missing `age` is a failure; `rage`
/// is in no distribution's archive and stays optional everywhere (`cargo install rage` takes minutes).
pub(crate) fn run(sh: &Shell, filter: Option<&str>) -> Result {
    let age = find(sh, "age");
    if age.is_none() && std::env::var_os("CI").is_some() {
        return Err("at-rest: no age here; `apt-get install age`".into());
    }
    let mut command = cmd!(
        sh,
        "cargo test --workspace --locked --test stock_age -- {filter...}"
    );
    for (variable, program) in [("LSL_STOCK_AGE", age), ("LSL_STOCK_RAGE", find(sh, "rage"))] {
        match program {
            Some(program) => command = command.env(variable, program),
            None => command = command.env_remove(variable),
        }
    }
    Ok(command.run()?)
}

/// Below `target` for who installed it there, on the search path otherwise.
fn find(sh: &Shell, name: &str) -> Option<PathBuf> {
    let own = sh.current_dir().join("target/rage/bin").join(name);
    if own.exists() {
        return Some(own);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory: PathBuf| directory.join(name))
        .find(|program: &PathBuf| Path::is_file(program))
}
