//! Project automation: everything a person or the gate runs on this workspace beyond plain cargo.
//!
//! One file per task. A task takes a shell whose directory is the workspace root and answers with a
//! `Result`; the first failure ends the run.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool talks to its user"
)]
#![forbid(unsafe_code)]

mod abi;
mod artefact;
mod at_rest;
mod book;
mod campaign;
mod captures;
mod ci;
mod crau;
mod cross;
mod deploy;
mod dist;
mod emulate;
mod evidence;
mod fuzz;
mod hosts;
mod instructions;
mod interop;
mod labs;
mod loom;
mod macos;
mod models;
mod recorder;
mod relay;
mod river;
mod roots;
mod systems;
mod tidy;
mod vectors;
mod windows;
mod wine;
mod xdf;
mod zig;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};

use lexopt::{Arg, ValueExt as _};
use xshell::{Shell, cmd};

/// What every task answers with; the text is for the person who runs it.
type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const HELP: &str = "\
Usage: cargo xtask TASK

  ci                     the gate, which stops at a failure: what every submission has to pass
                         within 25 minutes, the tasks marked * below
  fmt *                  rustfmt changes nothing
  campaign [PART…] [--minutes N]  what takes hours: the parts that docs/campaign.md lists, and that page
                         (fuzz for N minutes in all, 60 if not said)
  test *                 what the README says: cargo test --workspace --locked
  lint *                 clippy, warnings denied
  doc *                  documentation, warnings denied
  interop * [FILTER]     against real liblsl 1.18.0 and pylsl in a private namespace (--all: 1.17.7,
                         mne-lsl and pylsl's plotting example, too)
  at-rest * [FILTER]     encrypted recordings against stock age, and rage if there
  emulate                aarch64 under qemu: tests, hosts, sessions with x86-64, real liblsl
  roots                  the packages of target/dist on Debian for arm64 and amd64
  xdf *                  recordings: pyxdf reads ours, we read such as LabRecorder writes
  recorder * [PART] [--files DIR]  `lsl record`, play and xdf: killed 20 times, out of disk,
                         encrypted, played again, as tables; pyxdf and pyarrow judge (and read the
                         recordings in DIR; --all: killed 200 times)
  relay * [FILTER]       `lsl relay` between networks in namespaces: masqueraded, in a ring, cut and
                         killed 5 times, streams come and go 10 times (--all: 200 and 500 times)
  labs [FILTER] [--update]  networks that are broken in one way each: `lsl doctor` names it, and what it
                         prints puts it right (and keep what it saw for tests without a network)
  river * [FILTER]       `lsl relay` and River: a reader and a writer made from the specification at a real
                         Redis server, killed 3 times, tables read by pyarrow (--all: killed 20 times)
  crau                   what `lsl audit export` writes, read by crypto-auditing's own programs
  evidence [--check]     write the pages of docs/evidence from docs/results (or see whether they are up to
                         date, which `test` does, too)
  evidence run [PAGE[/PART]…] [--anyway] [--machine NAME]  measure what they lack, on a quiet machine (or on
                         any: they say so), or beside it as that of another machine
  evidence wire *        the cable and Wi-Fi that they are measured over: multicast, clocks and TCP pass
  abi *                  the C library's exports, names and headers against crates/lsl-ffi/abi
  headers [--check]      make the C headers from that table (or see whether they are up to date)
  hosts * [FILTER]       C and C++ programs on the library, plain and under ASan (--all: valgrind, too)
  soak [FILTER]          the same for minutes: 10,000 cycles, two minutes of stress
  deploy [FILTER]        `lsl deploy` to a real sshd and systemd in namespaces (needs root)
  install --prefix DIR   build the C library and lay out lib, include, pkg-config and CMake files
  cross [TARGET]         the commands and the C library for Raspberry Pi (aarch64) and x86-64, for
                         glibc 2.28 and newer, for Windows and for macOS, checked; below target/cross
                         (or for one target, or linux, windows or macos)
  dist [TARGET] [--prove]  archives, Debian packages and Python wheels of these, with checksums and a
                         bill of materials, below target/dist (and pack twice, try the wheel)
  tidy *                 purity, file sizes, licences, machine paths and other house rules
  instructions * [--update]  count the hot paths under valgrind against benches/instructions
                         (or make that baseline for this compiler)
  loom *                 every interleaving of the threads that share an outlet or an inlet
  timing                 whether the time of checking a MAC or opening a record tells of secrets
  models                 symbolic proofs of the encryption protocol: Verifpal, and ProVerif if there
  deny                   licences, bans and sources of the dependencies, by cargo-deny; `tidy` reads
                         the same list
  msrv *                 check the shipped crates with the oldest supported compiler
  systems                type-check everything for Windows and macOS
  wine * [PART]          the tests of Windows under Wine 8.0, but for those it lists, and liblsl for
                         Windows, ours and Linux with each other (--all: long tests, too; PART: a
                         package, `interop`, `hosts` for C programs, or `cli`)
  fuzz [SECONDS] [TARGET]  every fuzz target (or one) for SECONDS (default 30) each
  book [--update]        run every command that the README and docs show, and build the book
                         (or make the pages that come from the program)
  captures               make the pictures of the README from what the commands print
  vectors [--bless]      check the golden vectors against their checksums (or rewrite these)

With CI=true in the environment a missing tool is a failure; otherwise the task says what it skips.
";

/// The oldest compiler that builds the shipped crates, as the README promises.
const MSRV: &str = "1.91.0";

fn main() -> ExitCode {
    let done = match own_variables() {
        variables if variables.is_empty() => run().map(|()| ExitCode::SUCCESS),
        variables => run_without(&variables),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the names of the variables by which `cargo run` tells this program what package it is.
fn own_variables() -> Vec<OsString> {
    let is_own = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    };
    env::vars_os().map(|it| it.0).filter(is_own).collect()
}

/// Runs this program once more without these variables. Build scripts look at them, `ring`'s among others, so that a
/// task would compile anew what a plain `cargo test` has compiled, and the other way round.
fn run_without(variables: &[OsString]) -> Result<ExitCode> {
    let mut task = Command::new(env::current_exe()?);
    task.args(env::args_os().skip(1));
    for variable in variables {
        task.env_remove(variable);
    }
    let status = task.status()?;
    Ok(ExitCode::from(u8::from(!status.success())))
}

fn run() -> Result {
    let mut parser = lexopt::Parser::from_env();
    let mut words = Vec::new();
    let mut bless = false;
    let mut update = false;
    let mut check = false;
    let mut prove = false;
    let mut scope = Scope::Gate;
    let mut minutes = 60;
    let mut files = None;
    let mut prefix = None;
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            Arg::Long("bless") => bless = true,
            Arg::Long("update") => update = true,
            Arg::Long("check") => check = true,
            Arg::Long("prove") => prove = true,
            Arg::Long("anyway") => words.push("--anyway".into()),
            Arg::Long("all") => scope = Scope::All,
            Arg::Long("minutes") => minutes = parser.value()?.parse()?,
            Arg::Long("files") => files = Some(PathBuf::from(parser.value()?)),
            Arg::Long("prefix") => prefix = Some(PathBuf::from(parser.value()?)),
            Arg::Value(word) => words.push(word.to_string_lossy().into_owned()),
            Arg::Short(_) | Arg::Long(_) => return Err(arg.unexpected().into()),
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();

    let sh = Shell::new()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("xtask has no parent")?;
    sh.change_dir(root);
    match words.as_slice() {
        ["ci"] => ci::run(&sh),
        ["campaign", parts @ ..] => campaign::run(&sh, parts, &campaign::Wishes { minutes }),
        ["fmt"] => fmt(&sh),
        ["test"] => test(&sh),
        ["lint"] => lint(&sh),
        ["doc"] => doc(&sh),
        ["interop"] => interop::run(&sh, None, scope),
        ["interop", filter] => interop::run(&sh, Some(filter), scope),
        ["hosts"] => hosts::run(&sh, None, &hosts::SHORT, scope),
        ["hosts", filter] => hosts::run(&sh, Some(filter), &hosts::SHORT, scope),
        ["soak"] => hosts::run(&sh, None, &hosts::SOAK, scope),
        ["soak", filter] => hosts::run(&sh, Some(filter), &hosts::SOAK, scope),
        ["xdf"] => xdf::run(&sh, scope),
        ["at-rest"] => at_rest::run(&sh, None),
        ["at-rest", filter] => at_rest::run(&sh, Some(filter)),
        ["recorder", part @ ..] if part.len() < 2 => recorder::run(
            &sh,
            &recorder::Wishes {
                part: part.first().copied(),
                files: files.as_deref(),
                scope,
            },
        ),
        ["labs", filter @ ..] if filter.len() < 2 => {
            labs::run(&sh, filter.first().copied(), update)
        }
        ["relay", part @ ..] if part.len() < 2 => relay::run(&sh, part.first().copied(), scope),
        ["river", part @ ..] if part.len() < 2 => river::run(&sh, part.first().copied(), scope),
        ["evidence", words @ ..] => evidence::run(&sh, words, check),
        ["emulate"] => emulate::run(&sh),
        ["emulate", "inside"] => emulate::inside(&sh),
        ["roots"] => roots::run(&sh),
        ["deploy"] => deploy::run(&sh, None),
        ["deploy", filter] => deploy::run(&sh, Some(filter)),
        ["headers"] => abi::headers(&sh, check),
        ["abi"] => abi::check(&sh),
        ["install"] => {
            let prefix = prefix.ok_or("install where? --prefix DIR")?;
            abi::install(&sh, &prefix, abi::Profile::Dist)
        }
        ["cross"] => cross::run(&sh, None),
        ["cross", target] => cross::run(&sh, Some(target)),
        ["dist"] => dist::run(&sh, None, prove),
        ["dist", target] => dist::run(&sh, Some(target), prove),
        ["crau"] => crau::run(&sh).map(drop),
        ["tidy"] => tidy::run(&sh),
        ["instructions"] => instructions::run(&sh, update),
        ["loom"] => loom::run(&sh),
        ["models"] => models::run(&sh).map(drop),
        ["timing"] => timing(&sh).map(drop),
        ["deny"] => deny(&sh),
        ["msrv"] => msrv(&sh),
        ["systems"] => systems::run(&sh),
        ["wine", part @ ..] if part.len() < 2 => wine::run(&sh, part.first().copied(), scope),
        ["fuzz"] => fuzz::run(&sh, fuzz::DEFAULT_SECONDS, None),
        ["fuzz", seconds] => fuzz::run(&sh, seconds.parse()?, None),
        ["fuzz", seconds, target] => fuzz::run(&sh, seconds.parse()?, Some(target)),
        ["book"] => book::run(&sh, update),
        ["captures"] => captures::run(&sh),
        ["vectors"] if bless => vectors::bless(&sh),
        ["vectors"] => vectors::check(&sh),
        [] => Err(format!("which task?\n\n{HELP}").into()),
        _ => Err(format!("no such task: {}\n\n{HELP}", words.join(" ")).into()),
    }
}

/// How much of a task is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// What every submission has to pass.
    Gate,
    /// All of it, as in the campaign.
    All,
}

impl Scope {
    /// How often recorders are killed.
    pub(crate) fn kills(self) -> &'static str {
        match self {
            Self::Gate => "20",
            Self::All => "200",
        }
    }
}

/// Build every program for development; the folder they lie in. Always the whole workspace, with the
/// features that its tests have: a selection of packages would be compiled again with fewer.
pub(crate) fn programs(sh: &Shell) -> Result<PathBuf> {
    cmd!(
        sh,
        "cargo build --workspace --locked --lib --bins --examples"
    )
    .run()?;
    Ok(sh.current_dir().join("target/debug"))
}

/// The README's test command and nothing else, so that what the gate proves is what a user runs. Tests wait
/// for sockets and clocks more than they work: three for each core take a third of the time.
fn test(sh: &Shell) -> Result {
    let threads = 3 * std::thread::available_parallelism().map_or(1, usize::from);
    let mut tests = cmd!(sh, "cargo test --workspace --locked");
    match interop::valkey_server(sh) {
        Ok(server) => tests = tests.env("LSL_VALKEY_SERVER", server),
        Err(error) if is_gate() => return Err(error),
        Err(error) => println!("SKIPPED, no Valkey server: {error}"),
    }
    Ok(tests.env("RUST_TEST_THREADS", threads.to_string()).run()?)
}

fn fmt(sh: &Shell) -> Result {
    Ok(cmd!(sh, "cargo fmt --all --check").run()?)
}

/// All but `nats`, whose crates take a minute: the campaign has it.
const FEATURES: &str = "lsl-secure/rustcrypto";

fn lint(sh: &Shell) -> Result {
    let deny = ["-D", "warnings"];
    Ok(cmd!(
        sh,
        "cargo clippy --workspace --all-targets --features {FEATURES} --locked -- {deny...}"
    )
    .run()?)
}

fn doc(sh: &Shell) -> Result {
    cmd!(
        sh,
        "cargo doc --workspace --no-deps --features {FEATURES} --locked"
    )
    .env("RUSTDOCFLAGS", "-D warnings")
    .run()?;
    Ok(())
}

/// What the driver in `benches` says of its measurements.
fn timing(sh: &Shell) -> Result<String> {
    let said = cmd!(
        sh,
        "cargo run --locked --profile counts -p lsl-benches --bin hot -- --timing"
    )
    .read()?;
    println!("{said}");
    Ok(said.lines().last().unwrap_or_default().to_owned())
}

fn deny(sh: &Shell) -> Result {
    if cmd!(sh, "cargo deny --version")
        .quiet()
        .ignore_stderr()
        .read()
        .is_err()
    {
        return missing("cargo-deny", "cargo install --locked cargo-deny");
    }
    cmd!(sh, "cargo deny --locked check licenses bans sources").run()?;
    println!("deny: advisories were not checked: their database is not reachable from the gate");
    Ok(())
}

fn msrv(sh: &Shell) -> Result {
    if cmd!(sh, "rustup run {MSRV} cargo --version")
        .quiet()
        .ignore_stderr()
        .read()
        .is_err()
    {
        return missing(
            &format!("Rust {MSRV}"),
            &format!("rustup toolchain install {MSRV} --profile minimal"),
        );
    }
    // Its own target directory, or the two compilers would rebuild each other's crates for ever.
    // No `-p`: the default members are the crates that ship.
    cmd!(
        sh,
        "rustup run {MSRV} cargo check --features {FEATURES} --locked --target-dir target/msrv"
    )
    .run()?;
    Ok(())
}

/// A tool is not there: fatal for the gate, a printed gap for a person.
fn missing(what: &str, install: &str) -> Result {
    if is_gate() {
        return Err(format!("{what} is missing; get it by: {install}").into());
    }
    println!("SKIPPED, {what} is missing; get it by: {install}");
    Ok(())
}

/// Whether a missing tool is a failure.
static STRICT: AtomicBool = AtomicBool::new(false);

/// A missing tool is a failure from here on.
fn leave_nothing_out() {
    STRICT.store(true, Ordering::Relaxed);
}

/// Whether this run decides about a submission, or is the campaign.
fn is_gate() -> bool {
    STRICT.load(Ordering::Relaxed) || env::var("CI").is_ok_and(|value| value == "true")
}
