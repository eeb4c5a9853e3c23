//! The parts, each with what it proves and which files that is about.

use std::ffi::OsString;

use xshell::{Shell, cmd};

use super::Wishes;
use crate::{Result, Scope, fuzz, hosts, recorder};

/// A proof that takes long.
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) proves: &'static str,
    /// Commits that touch these make it older.
    pub(super) paths: &'static [&'static str],
    /// Answers with what it found.
    pub(super) run: fn(&Shell, &Wishes) -> Result<String>,
}

/// What streams, sessions and the C library are made of.
const LIBRARY: &[&str] = &[
    "crates/lsl-core/src",
    "crates/lsl-ffi/src",
    "crates/lsl-platform/src",
    "crates/lsl-proto/src",
    "crates/lsl-secure/src",
];

/// In the order in which they run: what others build on first, what takes longest last.
pub(super) const PARTS: &[Part] = &[
    Part {
        name: "deny",
        proves: "licences, bans and sources by cargo-deny",
        paths: &["Cargo.lock", ".cargo/deny.toml"],
        run: |sh, _| {
            tool(sh, "cargo-deny", "0.20.2", "0")?;
            quiet(crate::deny(sh))
        },
    },
    Part {
        name: "hosts",
        proves: "C programs under valgrind",
        paths: LIBRARY,
        run: |sh, _| quiet(hosts::run(sh, Some("/valgrind"), &hosts::SHORT, Scope::All)),
    },
    Part {
        name: "interop",
        proves: "all cells, liblsl 1.17.7 and mne-lsl among them",
        paths: LIBRARY,
        run: |sh, _| quiet(crate::interop::run(sh, None, Scope::All)),
    },
    Part {
        name: "recorder",
        proves: "recorders killed 200 times",
        paths: &[
            "crates/lsl-xdf/src",
            "crates/lsl-record/src",
            "crates/lsl-cli/src/commands/record",
        ],
        run: |sh, _| {
            crate::xdf::run(sh, Scope::All)?;
            quiet(recorder::run(sh, &recorder::Wishes::of(Scope::All)))
        },
    },
    Part {
        name: "resume",
        proves: "streams cut 200 times, stalled and restarted 50 times, lose and repeat nothing",
        paths: LIBRARY,
        run: |sh, _| resume(sh),
    },
    Part {
        name: "relay",
        proves: "relays joined by links that are cut 200 times and by rings with 500 changes lose and repeat nothing; links never stall, 20 devices read nothing that rules hide, who stops reading delays nobody",
        paths: &[
            "crates/lsl-core/src",
            "crates/lsl-proto/src",
            "crates/lsl-relay/src",
            "crates/lsl-relay/tests",
            "crates/lsl-secure/src",
            "crates/lsl-cli/src/commands/relay.rs",
        ],
        run: |sh, _| relay(sh),
    },
    Part {
        name: "labs",
        proves: "networks broken in one way each: `lsl doctor` names it, what it prints puts it right for our streams and those of liblsl 1.18.0 and 1.17.7, and healthy ones have no finding",
        paths: &[
            "crates/lsl-doctor/src",
            "crates/lsl-cli/src/commands/doctor.rs",
            "crates/lsl-cli/src/commands/config",
            "xtask/src/labs",
        ],
        run: |sh, _| quiet(crate::labs::run(sh, None, false)),
    },
    Part {
        name: "river",
        proves: "River's layout both ways: a relay and an ingester are killed 20 times and store each sample once",
        paths: &[
            "crates/lsl-cli/src/commands/relay/ingest",
            "crates/lsl-relay/src/engine/river",
            "crates/lsl-relay/src/shell/engine",
            "crates/lsl-relay/src/shell/rivers.rs",
            "xtask/src/river",
        ],
        run: |sh, _| quiet(crate::river::run(sh, None, Scope::All)),
    },
    Part {
        name: "crau",
        proves: "crypto-auditing's own programs read what `lsl audit export` writes",
        paths: &["crates/lsl-cli/src/commands/audit", "xtask/src/crau"],
        run: |sh, _| crate::crau::run(sh),
    },
    Part {
        name: "engine",
        proves: "10,000 appends to Redis, Valkey and two versions of NATS each, with replies cut, no memory, failover, servers killed: all there, none twice",
        paths: &[
            "crates/lsl-relay/src/engine",
            "crates/lsl-relay/src/shell/engine",
            "crates/lsl-relay/tests/engine",
        ],
        run: |sh, _| engine(sh),
    },
    Part {
        name: "systems",
        proves: "all code type-checks for Windows and macOS",
        paths: &["crates", "examples", "Cargo.lock"],
        run: |sh, _| {
            std_for(sh, &["x86_64-pc-windows-gnu", "aarch64-apple-darwin"])?;
            quiet(crate::systems::run(sh))
        },
    },
    Part {
        name: "wine",
        proves: "tests as Windows programs under Wine; liblsl for Windows, ours and Linux send to each other",
        paths: LIBRARY,
        run: |sh, _| {
            std_for(sh, &["x86_64-pc-windows-gnu"])?;
            quiet(crate::wine::run(sh, None, Scope::All))
        },
    },
    Part {
        name: "dist",
        proves: "packages for x86-64, aarch64, Windows and macOS, the same bytes twice; the wheel",
        paths: &[
            "Cargo.toml",
            "Cargo.lock",
            "crates/lsl-ffi/python",
            "crates/lsl-ffi/pkg",
            "xtask/src/dist",
        ],
        run: |sh, _| {
            std_for(
                sh,
                &[
                    "aarch64-apple-darwin",
                    "aarch64-unknown-linux-gnu",
                    "x86_64-apple-darwin",
                    "x86_64-pc-windows-gnu",
                    "x86_64-unknown-linux-gnu",
                ],
            )?;
            tool(sh, "cargo-deb", "3.8.0", "0")?;
            tool(sh, "cargo-cyclonedx", "0.5.9", "0")?;
            quiet(crate::dist::run(sh, None, true))
        },
    },
    Part {
        name: "roots",
        proves: "those packages on Debian 12 for both, from installation to removal",
        paths: &[
            "Cargo.toml",
            "Cargo.lock",
            "crates/lsl-ffi/python",
            "crates/lsl-ffi/pkg",
            "xtask/src/roots",
        ],
        run: |sh, _| quiet(crate::roots::run(sh)),
    },
    Part {
        name: "emulate",
        proves: "aarch64 under qemu: tests, C programs, sessions with x86-64",
        paths: LIBRARY,
        run: |sh, _| {
            std_for(sh, &["aarch64-unknown-linux-gnu"])?;
            quiet(crate::emulate::run(sh))
        },
    },
    Part {
        name: "deploy",
        proves: "lsl deploy to a real sshd and systemd",
        paths: &[
            "crates/lsl-cli/src/commands/deploy",
            "crates/lsl-cli/systemd",
            "crates/lsl-cli/tests/deploy",
        ],
        run: |sh, _| quiet(crate::deploy::run(sh, None)),
    },
    Part {
        name: "book",
        proves: "every command of the README and the book, typed",
        paths: &[
            "README.md",
            "docs",
            // The specifications hold no commands, and this page is written by every part.
            ":(exclude)docs/spec",
            ":(exclude)docs/campaign.md",
            "crates/lsl-cli/src",
            "crates/lsl-record/src",
            "crates/lsl-bench/src",
        ],
        run: |sh, _| quiet(crate::book::run(sh, false)),
    },
    Part {
        name: "models",
        proves: "LSS/1 in Verifpal and ProVerif",
        paths: &[
            "crates/lsl-secure/models",
            "docs/spec/relay.md",
            "docs/spec/secure-session.md",
        ],
        run: |sh, _| {
            // Unoptimised it does not finish.
            tool(sh, "verifpal", crate::models::VERIFPAL, "2")?;
            crate::models::run(sh)
        },
    },
    Part {
        name: "timing",
        proves: "checking a MAC and opening a record take a time that tells nothing",
        paths: &["crates/lsl-secure/src", "Cargo.lock"],
        run: |sh, _| crate::timing(sh),
    },
    Part {
        name: "miri",
        proves: "no undefined behaviour in handles and memory of the C library",
        paths: LIBRARY,
        run: |sh, _| miri(sh),
    },
    Part {
        name: "soak",
        proves: "10,000 cycles and minutes of stress of the C library",
        paths: LIBRARY,
        run: |sh, _| quiet(hosts::run(sh, Some("/plain"), &hosts::SOAK, Scope::All)),
    },
    Part {
        name: "fuzz",
        proves: "no input makes a parser panic or a session leave its rules",
        paths: &[
            "crates/lsl-proto/src",
            "crates/lsl-relay/src",
            "crates/lsl-secure/src",
            "crates/lsl-xdf/src",
        ],
        run: |sh, wishes| {
            tool(sh, "cargo-fuzz", "0.13.2", "0")?;
            let targets = u32::try_from(fuzz::targets(sh, None)?.len())?;
            let seconds = (60 * wishes.minutes / targets).max(1);
            fuzz::run(sh, seconds, None)?;
            Ok(format!("nothing in {targets} targets, {seconds} s each"))
        },
    },
    Part {
        name: "mutants",
        proves: "tests notice what is changed in handshake and record",
        paths: &[
            "crates/lsl-secure/src/handshake",
            "crates/lsl-secure/src/record",
        ],
        run: |sh, _| mutants(sh),
    },
];

/// What a task says that has nothing to tell but whether it went well.
fn quiet(result: Result) -> Result<String> {
    result.map(|()| "nothing".to_owned())
}

/// Where cargo's tools are installed.
const TOOLS: &str = "target/tools";

/// The search path on which they are.
pub(super) fn search_path(sh: &Shell) -> OsString {
    let mut path: OsString = sh.current_dir().join(TOOLS).join("bin").into();
    path.push(":");
    path.push(sh.var_os("PATH").unwrap_or_default());
    path
}

/// Build a tool unless this version of it is there; most are fast enough without optimisation.
pub(crate) fn tool(sh: &Shell, name: &str, version: &str, opt_level: &str) -> Result {
    let installed = cmd!(sh, "cargo install --root {TOOLS} --list")
        .quiet()
        .read()?;
    if installed
        .lines()
        .any(|line| line == format!("{name} v{version}:"))
    {
        return Ok(());
    }
    // Verifpal declares a compiler newer than it needs.
    cmd!(
        sh,
        "cargo install --locked --quiet --ignore-rust-version --root {TOOLS} {name}@{version}"
    )
    .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", opt_level)
    .env("CARGO_PROFILE_RELEASE_LTO", "off")
    .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
    .env("CARGO_TARGET_DIR", "target/tools/build")
    .run()?;
    Ok(())
}

/// Fetches the standard library for `targets`, unless it is there.
fn std_for(sh: &Shell, targets: &[&str]) -> Result {
    Ok(cmd!(sh, "rustup target add {targets...}").run()?)
}

/// Runs test 12 in the numbers of its specification, on every kind of server, with all that NATS needs. Spec: relay §14.
fn engine(sh: &Shell) -> Result<String> {
    let deny = ["-D", "warnings"];
    cmd!(
        sh,
        "cargo clippy --locked -p lsl-relay -p lsl-cli --all-targets --features lsl-cli/nats -- {deny...}"
    )
    .run()?;
    let valkey = crate::interop::valkey_server(sh)?;
    let [nats, newer_nats] = crate::interop::nats_servers(sh)?;
    let said = cmd!(
        sh,
        "cargo test --locked -p lsl-relay --features nats --test engine -- --nocapture"
    )
    .env("LSL_VALKEY_SERVER", valkey)
    .env("LSL_NATS_SERVER", nats)
    .env("LSL_NEW_NATS_SERVER", newer_nats)
    .env("LSL_ENGINE_APPENDS", "10000")
    .read()?;
    println!("{said}");
    let appended = said.lines().filter(|line| line.contains(" appends, "));
    if appended.count() != 4 {
        return Err("one of the servers is missing".into());
    }
    let passed = crate::loom::passed(&said);
    Ok(format!(
        "nothing in {passed} tests on Redis, Valkey and NATS"
    ))
}

/// Runs the tests of resumed streams in the numbers of their specification. Spec: resume §9.
fn resume(sh: &Shell) -> Result<String> {
    let real = cmd!(
        sh,
        "cargo test --locked -p lsl-core --test it -- resume:: --test-threads 3"
    );
    let virtual_hosts = cmd!(
        sh,
        "cargo test --locked -p lsl-proto --test sim -- resuming::"
    );
    let mut passed = [0; 2];
    for (passed, run) in passed.iter_mut().zip([real, virtual_hosts]) {
        let said = run
            .env("LSL_TEST_CUTS", "200")
            .env("SIM_SEEDS", "500")
            .read()?;
        println!("{said}");
        *passed = crate::loom::passed(&said);
        if *passed == 0 {
            return Err("no test was run".into());
        }
    }
    let [real, virtual_hosts] = passed;
    Ok(format!(
        "nothing in {real} tests over sockets and {virtual_hosts} of 500 seeds each"
    ))
}

/// Plays all scenes of relays, and runs tests 7, 8, 10 and 15 in the numbers of their specification. Spec: relay §14.
fn relay(sh: &Shell) -> Result<String> {
    crate::relay::run(sh, None, Scope::All)?;
    let said = cmd!(
        sh,
        "cargo test --locked -p lsl-relay --lib --test relay -- small_socket_buffers devices_read from_any_place --nocapture"
    )
    .env("LSL_TEST_PLACES", "200")
    .env("LSL_TEST_SECONDS", "600")
    .env("LSL_TEST_DEVICES", "20")
    .read()?;
    println!("{said}");
    if crate::loom::passed(&said) != 3 {
        return Err("not all tests were run".into());
    }
    // With the speed that is packed.
    let results = "target/bench-relay";
    sh.remove_path(results)?;
    let measured = cmd!(
        sh,
        "cargo run --locked --profile counts -p lsl-bench -- relay --what others --output {results}"
    )
    .read()?;
    println!("{measured}");
    if !measured.contains(" met") {
        return Err("nothing was measured".into());
    }
    match measured.lines().find(|line| line.ends_with("missed")) {
        Some(line) => Err(format!("others suffer: {line}").into()),
        None => Ok("nothing".to_owned()),
    }
}

/// Unit tests under miri: of the C interface, where unsafe code is that needs no system call. The
/// protocol and LSS/1 forbid unsafe code, and Miri knows no groups of users, hence no configuration.
const MIRI: &[&str] = &[
    "handle::",
    "memory::",
    "kept::tests::a_document",
    "common::tests::last_error",
    "common::tests::null",
    "common::tests::strings",
];

fn miri(sh: &Shell) -> Result<String> {
    cmd!(sh, "rustup component add miri rust-src --toolchain nightly").run()?;
    // Miri runs no C or assembly, hence not ring.
    let said = cmd!(
        sh,
        "cargo +nightly miri test --locked --target-dir target/miri -p lsl-ffi -p lsl-secure
            --features lsl-secure/rustcrypto --lib -- {MIRI...}"
    )
    // The clock of this machine.
    .env("MIRIFLAGS", "-Zmiri-disable-isolation")
    .read()?;
    println!("{said}");
    let passed = crate::loom::passed(&said);
    if passed == 0 {
        return Err("no test was run".into());
    }
    Ok(format!("nothing in {passed} tests"))
}

/// Mutants are tried in so many runs, one part of them each day: all 426 take hours.
const MUTANT_SHARDS: u64 = 12;

fn mutants(sh: &Shell) -> Result<String> {
    tool(sh, "cargo-mutants", "27.1.0", "0")?;
    let output = "target/mutants";
    sh.create_dir(output)?;
    let day = cmd!(sh, "date -u +%s").quiet().read()?.parse::<u64>()? / 86_400;
    let shard = format!("{}/{MUTANT_SHARDS}", day % MUTANT_SHARDS);
    // What it tells by its status (2: some were missed) is in its files, too.
    cmd!(
        sh,
        "cargo mutants --package lsl-secure --file crates/lsl-secure/src/handshake/*.rs
            --file crates/lsl-secure/src/record/*.rs --output {output} --no-shuffle --colors never
            --shard {shard} -- --locked --lib --test it"
    )
    .ignore_status()
    .run()?;
    let lines = |name: &str| -> Result<Vec<String>> {
        let text = sh.read_file(format!("{output}/mutants.out/{name}.txt"))?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    let (caught, missed, timeout) = (lines("caught")?, lines("missed")?, lines("timeout")?);
    if caught.is_empty() {
        return Err("no mutant was caught: did the tests run?".into());
    }
    let mut found = format!(
        "shard {shard}: {} mutants noticed, {} by time; not noticed: {}",
        caught.len() + timeout.len(),
        timeout.len(),
        missed.len()
    );
    for mutant in missed {
        found.push_str("; ");
        found.push_str(mutant.trim_start_matches("crates/lsl-secure/src/"));
    }
    Ok(found)
}
