//! The C hosts of `tests/c`, each in the ways that suit it.

use std::env;
use std::process::Command;

use crate::keys::Ciphers;
use crate::stage::{Outcome, Stage};
use crate::{Need, Test, keys};

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
    argument: Argument,
    keys: &'static [Keys],
}

/// Whether a host has a security configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    None,
    /// Its own key, and nothing in plaintext.
    Required,
}

const PLAIN: &[Keys] = &[Keys::None];
const BOTH: &[Keys] = &[Keys::None, Keys::Required];
const SECURE: &[Keys] = &[Keys::Required];

/// What a host is told.
#[derive(Clone, Copy)]
enum Argument {
    None,
    Library,
    /// As many as asked for by `cargo xtask soak`.
    Cycles,
    Seconds,
}

impl Argument {
    fn word(self, stage: &Stage) -> Outcome<Option<String>> {
        Ok(match self {
            Self::None => None,
            Self::Library => {
                let library = stage.prefix()?.join("lib/liblsl.so.2");
                Some(library.display().to_string())
            }
            Self::Cycles => Some(asked("LSL_HOSTS_CYCLES", "1000")),
            Self::Seconds => Some(asked("LSL_HOSTS_SECONDS", "10")),
        })
    }
}

const HOSTS: &[Host] = &[
    Host {
        source: "ex",
        ways: ALL,
        argument: Argument::None,
        keys: BOTH,
    },
    Host {
        source: "ext",
        ways: ALL,
        argument: Argument::None,
        keys: BOTH,
    },
    Host {
        source: "misuse",
        ways: ALL,
        argument: Argument::None,
        keys: PLAIN,
    },
    Host {
        source: "blocked",
        ways: ALL,
        argument: Argument::None,
        keys: BOTH,
    },
    Host {
        source: "cancel",
        ways: &[Way::Plain, Way::Asan],
        argument: Argument::None,
        keys: BOTH,
    },
    Host {
        source: "temporaries",
        ways: ALL,
        argument: Argument::None,
        keys: PLAIN,
    },
    // The tools would measure themselves.
    Host {
        source: "largeinfos",
        ways: &[Way::Plain],
        argument: Argument::None,
        keys: PLAIN,
    },
    Host {
        source: "fork",
        ways: ALL,
        argument: Argument::None,
        keys: BOTH,
    },
    Host {
        source: "forkbusy",
        // The allocator of ASan does not survive a fork amid other threads' allocations.
        ways: &[Way::Plain, Way::Valgrind],
        argument: Argument::None,
        keys: BOTH,
    },
    Host {
        source: "forkfresh",
        ways: &[Way::Plain, Way::Asan],
        argument: Argument::None,
        keys: BOTH,
    },
    Host {
        source: "resumefork",
        ways: ALL,
        argument: Argument::None,
        keys: BOTH,
    },
    Host {
        source: "securefork",
        ways: ALL,
        argument: Argument::None,
        keys: SECURE,
    },
    Host {
        source: "order",
        ways: ALL,
        argument: Argument::None,
        keys: BOTH,
    },
    Host {
        source: "sigpipe",
        ways: ALL,
        argument: Argument::None,
        keys: BOTH,
    },
    Host {
        source: "exit",
        ways: ALL,
        argument: Argument::None,
        keys: BOTH,
    },
    Host {
        source: "interrupting",
        // The allocators of the tools know nothing of signal handlers.
        ways: &[Way::Plain],
        argument: Argument::None,
        keys: BOTH,
    },
    Host {
        source: "lateexit",
        ways: &[Way::Plain, Way::Asan],
        argument: Argument::None,
        keys: BOTH,
    },
    Host {
        source: "unload",
        ways: ALL,
        argument: Argument::Library,
        keys: PLAIN,
    },
    // Its own count of memory is meaningless under the tools, which see leaks themselves.
    Host {
        source: "churn",
        ways: &[Way::Plain],
        argument: Argument::Cycles,
        keys: BOTH,
    },
    // The tools would measure themselves.
    Host {
        source: "scale",
        ways: &[Way::Plain],
        argument: Argument::Cycles,
        keys: PLAIN,
    },
    Host {
        source: "stress",
        ways: ALL,
        argument: Argument::Seconds,
        keys: BOTH,
    },
];

/// Handshakes take seconds under valgrind, so only those hosts make them there that others cannot stand
/// in for; the limits of LSS/1 are too short for more at a time on a busy machine.
const SECURE_VALGRIND: &[&str] = &["ext", "fork", "securefork", "stress"];

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for host in HOSTS {
        for &keys in host.keys {
            let secure = if keys == Keys::None { "" } else { " secure" };
            for &way in host.ways {
                if (keys, way) == (Keys::Required, Way::Valgrind)
                    && !SECURE_VALGRIND.contains(&host.source)
                {
                    continue;
                }
                let name = format!("{}{secure}/{}", host.source, way.name());
                let in_folder = name.clone();
                tests.push(Test {
                    name,
                    needs: way.needs(),
                    run: Box::new(move |stage| play(stage, host, way, keys, &in_folder)),
                });
            }
        }
    }
    tests
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
            Self::Valgrind => vec![
                Need::Tool("cc"),
                Need::Tool("valgrind"),
                Need::Variable("LSL_HOSTS_VALGRIND"),
            ],
        }
    }
}

fn play(stage: &Stage, host: &Host, way: Way, keys: Keys, name: &str) -> Outcome {
    let folder = stage.folder(name)?;
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
            if host.source.contains("fork") {
                // What the threads of the parent refer to seems leaked in a child, without them.
                command.arg("--leak-check=no");
            }
            command.arg(&program);
            command
        }
    };
    command.args(host.argument.word(stage)?);
    if keys == Keys::Required {
        let ciphers = match way {
            Way::Plain | Way::Asan => Ciphers::All,
            Way::Valgrind => Ciphers::ChaCha20,
        };
        command.env(keys::VARIABLE, keys::device(&folder, ciphers)?);
    }
    // Leaks end a program, too; the tool's own code must not look like one of the host's.
    command.env("ASAN_OPTIONS", "detect_leaks=1:exitcode=99");
    let said = Stage::run(command, &folder)?;
    // Caught at the boundary, but a mistake of ours all the same.
    if said.contains("panicked at") {
        return Err(said);
    }
    // The lines about configuration and security and nothing else, when all goes as it should.
    if host.source == "ex" && said.lines().count() > 2 {
        return Err(format!("more than two lines of log:\n{said}"));
    }
    if let Some(measured) = said
        .lines()
        .find(|line| line.starts_with(|c: char| c.is_ascii_digit()))
    {
        println!("    {name}: {measured}");
    }
    Ok(())
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
