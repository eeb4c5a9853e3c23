//! The stage for `crates/lsl-ffi/tests/hosts`: the library as installed, liblsl and its headers to
//! compare with, and a network of their own.

use std::path::PathBuf;

use xshell::{Shell, cmd};

use crate::abi::{self, Profile};
use crate::{Result, Scope, instructions, interop};

/// The installed layout that hosts are built against.
const PREFIX: &str = "target/hosts/prefix";

/// Where the optimised library lies under the name that programs load.
const OPTIMISED: &str = "target/hosts/optimised";

/// How long the measuring hosts run.
pub(crate) struct Effort {
    seconds: u32,
    cycles: u32,
}

/// What the gate runs, and what issue #3 asks for.
pub(crate) const SHORT: Effort = Effort {
    seconds: 10,
    cycles: 1_000,
};
pub(crate) const SOAK: Effort = Effort {
    seconds: 120,
    cycles: 10_000,
};

/// Make the stage as far as this machine allows and run the hosts whose name contains `filter`.
pub(crate) fn run(sh: &Shell, filter: Option<&str>, effort: &Effort, scope: Scope) -> Result {
    // Built here, because inside the namespace there is no network to fetch anything from.
    cmd!(sh, "cargo test --workspace --locked --test hosts --no-run").run()?;
    abi::install(sh, PREFIX.as_ref(), Profile::Dev)?;
    let mut variables = vec![("LSL_HOSTS_PREFIX", sh.current_dir().join(PREFIX))];
    let mut gaps = Vec::new();
    match headers(sh) {
        Ok(folder) => variables.push(("LSL_HOSTS_LIBLSL_HEADERS", folder)),
        Err(error) => gaps.push(format!("no headers of liblsl: {error}")),
    }
    match interop::newest_liblsl(sh) {
        Ok(library) => variables.push(("LSL_HOSTS_LIBLSL", library)),
        Err(error) => gaps.push(format!("no liblsl: {error}")),
    }
    let mut tools = vec!["cc", "c++", "cmake", "pkg-config", "gdb"];
    if scope == Scope::All {
        tools.push("valgrind");
        variables.push(("LSL_HOSTS_VALGRIND", "1".into()));
        match interop::older_liblsl(sh) {
            Ok(library) => variables.push(("LSL_HOSTS_LIBLSL_1_17_7", library)),
            Err(error) => gaps.push(format!("no liblsl 1.17.7: {error}")),
        }
    }
    if crate::is_gate() || filter.is_some_and(|filter| filter.contains("stack")) {
        let folder = sh.current_dir().join(OPTIMISED);
        sh.create_dir(&folder)?;
        let named = folder.join(abi::SONAME);
        sh.copy_file(instructions::library(sh)?, named)?;
        variables.push(("LSL_HOSTS_OPTIMISED", folder));
    }
    for tool in tools {
        if cmd!(sh, "{tool} --version")
            .quiet()
            .ignore_stderr()
            .read()
            .is_err()
        {
            gaps.push(format!("no {tool}"));
        }
    }
    let namespace = match interop::enter(sh) {
        Ok(words) => words,
        Err(error) => {
            // Without it nothing runs: the hosts would meet the streams of the house.
            variables.clear();
            gaps.push(format!("no private network: {error}"));
            Vec::new()
        }
    };
    for gap in &gaps {
        println!("hosts: {gap}");
    }
    if crate::is_gate() && !gaps.is_empty() {
        return Err("the gate must not run hosts with gaps".into());
    }

    let mut words = namespace;
    let test = [
        "cargo",
        "test",
        "--offline",
        "--locked",
        "--workspace",
        "--test",
        "hosts",
        "--",
    ];
    words.extend(test.map(str::to_owned));
    words.extend(filter.map(str::to_owned));
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let mut run = cmd!(sh, "{program} {arguments...}")
        .env("LSL_HOSTS_SECONDS", effort.seconds.to_string())
        .env("LSL_HOSTS_CYCLES", effort.cycles.to_string());
    for (name, path) in &variables {
        run = run.env(name, path);
    }
    Ok(run.run()?)
}

/// The crate that carries liblsl's public headers, pinned.
const HEADERS: &str = "lsl-sys";
const HEADERS_VERSION: &str = "0.1.1";

/// The folder with liblsl's public headers, fetched by cargo if it is not there yet. They are not
/// part of this repository.
pub(crate) fn headers(sh: &Shell) -> Result<PathBuf> {
    let package = sh.current_dir().join("target/liblsl-headers");
    let include = package.join(format!("vendor/{HEADERS}/liblsl/include"));
    if sh.path_exists(include.join("lsl_cpp.h")) {
        return Ok(include);
    }
    // A package that is never built: cargo only downloads what it depends on.
    sh.write_file(
        package.join("Cargo.toml"),
        format!(
            "[package]\nname = \"liblsl-headers\"\nversion = \"0.0.0\"\n\n[dependencies]\n\
             {HEADERS} = \"={HEADERS_VERSION}\"\n\n[workspace]\n"
        ),
    )?;
    sh.write_file(package.join("src/lib.rs"), "")?;
    let manifest = package.join("Cargo.toml");
    let vendor = package.join("vendor");
    cmd!(
        sh,
        "cargo vendor --quiet --manifest-path {manifest} {vendor}"
    )
    .ignore_stdout()
    .run()?;
    if sh.path_exists(include.join("lsl_cpp.h")) {
        Ok(include)
    } else {
        Err(format!("{HEADERS} {HEADERS_VERSION} has no lsl_cpp.h").into())
    }
}
