//! Programs in C for Windows, built as foreign ones are: by MinGW, with our headers and import libraries.

use std::fmt::Write as _;

use xshell::{Shell, cmd};

use super::{CC, stage::Stage};
use crate::windows::{LIBRARY, TRIPLE};
use crate::{Result, Scope, abi};

const SOURCES: &str = "crates/lsl-ffi/tests/c";

/// How a host comes by the library.
#[derive(Clone, Copy)]
enum Linked {
    /// By the file for MSVC.
    Lib,
    /// By the same under MinGW's name.
    Gnu,
    /// Not at all: it loads it.
    No,
}

/// Hosts, and what they are told.
const HOSTS: &[(&str, Linked, &str)] = &[
    ("ex", Linked::Lib, ""),
    ("misuse", Linked::Gnu, ""),
    ("order", Linked::Gnu, ""),
    ("ext", Linked::Gnu, ""),
    ("exit", Linked::Gnu, ""),
    ("unload", Linked::No, LIBRARY),
    ("windows", Linked::Gnu, "LIBLSL"),
];

/// A host that takes longer hangs.
const LIMIT: &str = "120";

/// Builds the library and the hosts, and runs them one after the other.
pub(super) fn play(sh: &Shell, stage: &Stage, _: Scope) -> Result {
    stage.cargo(sh, &["build", "-p", "lsl-ffi"])?.run()?;
    let library = stage.build.join(TRIPLE).join("debug").join(LIBRARY);
    let prefix = sh.current_dir().join("target/wine/hosts");
    abi::lay_out(sh, &library, &prefix, "lib")?;
    abi::compile_for_windows(sh, CC)?;
    let (bin, lib) = (prefix.join("bin"), prefix.join("lib"));
    let include = prefix.join("include");
    // Wine has no groups of IPv6, and each outlet would say so.
    sh.write_file(bin.join("lsl_api.cfg"), "[ports]\nIPv6 = disable\n")?;
    let mut script = format!("cd '{}'\n", bin.display());
    for &(host, linked, word) in HOSTS {
        let source = format!("{SOURCES}/{host}.c");
        let program = bin.join(host).with_extension("exe");
        let with = match linked {
            Linked::Lib => vec![lib.join("lsl.lib").display().to_string()],
            Linked::Gnu => vec![format!("-L{}", lib.display()), "-llsl".to_owned()],
            Linked::No => Vec::new(),
        };
        // Without MinGW's own library of threads beside it.
        cmd!(
            sh,
            "{CC} -std=gnu11 -O1 -Wall -Wextra -Werror -I {include} {source} -o {program} {with...}
                -lpthread -lntdll -lpsapi -static"
        )
        .run()?;
        let word = word.replace("LIBLSL", &stage.liblsl.display().to_string());
        writeln!(script, "echo 'wine: host {host}'")?;
        writeln!(
            script,
            "timeout -k 5 {LIMIT} wine {host}.exe {word} || exit 1"
        )?;
    }
    let enter = &stage.enter;
    Ok(cmd!(sh, "{enter} sh -c {script}").run()?)
}
