//! The C hosts of `tests/c`, each in the ways that suit it.

use std::env;
use std::process::Command;

use crate::stage::{Outcome, Stage};
use crate::{Need, Test};

/// How a host runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    /// Sees what the host does wrong and what is leaked.
    Asan,
    /// Sees bad accesses and leaks inside the library, too.
    Valgrind,
}

const ALL: &[Way] = &[Way::Plain, Way::Asan, Way::Valgrind];

struct Host {
    source: &'static str,
    ways: &'static [Way],
    arguments: fn(&Stage, Way) -> Outcome<Vec<String>>,
}

const HOSTS: &[Host] = &[
    Host {
        source: "ex",
        ways: ALL,
        arguments: none,
    },
    Host {
        source: "ext",
        ways: ALL,
        arguments: none,
    },
    Host {
        source: "misuse",
        ways: ALL,
        arguments: none,
    },
    Host {
        source: "blocked",
        ways: ALL,
        arguments: none,
    },
    Host {
        source: "fork",
        ways: ALL,
        arguments: none,
    },
    Host {
        source: "sigpipe",
        ways: ALL,
        arguments: none,
    },
    Host {
        source: "exit",
        ways: ALL,
        arguments: none,
    },
    Host {
        source: "unload",
        ways: ALL,
        arguments: library,
    },
    // Its own count of memory is meaningless under the tools, which see leaks themselves.
    Host {
        source: "churn",
        ways: &[Way::Plain],
        arguments: cycles,
    },
    Host {
        source: "stress",
        ways: ALL,
        arguments: seconds,
    },
];

pub(crate) fn tests() -> Vec<Test> {
    let each = HOSTS
        .iter()
        .flat_map(|host| host.ways.iter().map(move |way| (host, *way)));
    each.map(|(host, way)| Test {
        name: format!("{}/{}", host.source, way.name()),
        needs: way.needs(),
        run: Box::new(move |stage| play(stage, host, way)),
    })
    .collect()
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Asan => "asan",
            Self::Valgrind => "valgrind",
        }
    }

    fn needs(self) -> Vec<Need> {
        match self {
            Self::Plain | Self::Asan => vec![Need::Tool("cc")],
            Self::Valgrind => vec![Need::Tool("cc"), Need::Tool("valgrind")],
        }
    }
}

fn play(stage: &Stage, host: &Host, way: Way) -> Outcome {
    let folder = stage.folder(&format!("{}-{}", host.source, way.name()))?;
    let source = format!("c/{}.c", host.source);
    let options: &[&str] = match way {
        Way::Plain | Way::Valgrind => &["-std=gnu11"],
        Way::Asan => &[
            "-std=gnu11",
            "-fsanitize=address",
            "-fno-omit-frame-pointer",
        ],
    };
    let program = stage.compile("cc", &source, options, &folder)?;
    let mut command = match way {
        Way::Plain | Way::Asan => Command::new(&program),
        Way::Valgrind => {
            let mut command = Command::new("valgrind");
            command.args(VALGRIND);
            if host.source == "fork" {
                // What the threads of the parent refer to seems leaked in a child, without them.
                command.arg("--leak-check=no");
            }
            command.arg(&program);
            command
        }
    };
    command.args((host.arguments)(stage, way)?);
    // Leaks end a program, too; the tool's own code must not look like one of the host's.
    command.env("ASAN_OPTIONS", "detect_leaks=1:exitcode=99");
    let said = stage.run(command, &folder)?;
    // Caught at the boundary, but a mistake of ours all the same.
    if said.contains("panicked at") {
        return Err(said);
    }
    if let Some(measured) = said
        .lines()
        .find(|line| line.starts_with(|c: char| c.is_ascii_digit()))
    {
        println!("    {}/{}: {measured}", host.source, way.name());
    }
    Ok(())
}

fn none(_: &Stage, _: Way) -> Outcome<Vec<String>> {
    Ok(Vec::new())
}

fn library(stage: &Stage, _: Way) -> Outcome<Vec<String>> {
    let library = stage.prefix()?.join("lib/liblsl.so.2");
    Ok(vec![library.display().to_string()])
}

/// As many as asked for by `cargo xtask soak`.
fn cycles(_: &Stage, _: Way) -> Outcome<Vec<String>> {
    Ok(vec![asked("LSL_HOSTS_CYCLES", "1000")])
}

fn seconds(_: &Stage, _: Way) -> Outcome<Vec<String>> {
    Ok(vec![asked("LSL_HOSTS_SECONDS", "10")])
}

fn asked(variable: &str, otherwise: &str) -> String {
    env::var(variable).unwrap_or_else(|_| otherwise.to_owned())
}

/// Memory that is still reachable is the runtime's, which lives as long as the process. Threads take
/// turns, or one that waits for another by trying again would starve it.
const VALGRIND: &[&str] = &[
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--show-leak-kinds=definite",
    "--errors-for-leak-kinds=definite",
    "--fair-sched=yes",
    "--num-callers=30",
];
